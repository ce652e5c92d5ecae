//! The rules as data: which slots they keep, and what their kernels are given in which order.

/// How a variable follows its gradients. Slots are called as TensorFlow's optimizers call them.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// `x -= rate * g`.
    Sgd,
    /// With momentum.
    Momentum {
        /// How much of the last step is taken again.
        momentum: f64,
        /// Looks ahead.
        is_nesterov: bool,
    },
    /// Steps shrink with the sum of squares of a parameter's gradients.
    Adagrad {
        /// What the sums begin with.
        initial: f64,
    },
    /// Adagrad over the sum of all gradients, for sparse models.
    AdagradDa {
        /// What the sums of squares begin with.
        initial: f64,
        /// Strength of the first norm.
        l1: f64,
        /// Strength of the second norm.
        l2: f64,
    },
    /// Adagrad with a window, and without a rate of its own.
    Adadelta {
        /// How much of the averages stays.
        rho: f64,
        /// Keeps quotients finite.
        epsilon: f64,
    },
    /// Steps are divided by the root of a running mean of squares.
    RmsProp {
        /// How much of the mean stays.
        decay: f64,
        /// How much of the last step is taken again.
        momentum: f64,
        /// Keeps quotients finite.
        epsilon: f64,
        /// Takes the variance, not the mean of squares.
        is_centered: bool,
    },
    /// Adam.
    Adam {
        /// How much of the mean stays.
        beta1: f64,
        /// How much of the mean of squares stays.
        beta2: f64,
        /// Keeps quotients finite.
        epsilon: f64,
    },
    /// Adam by the greatest gradient rather than the mean of squares.
    Adamax {
        /// How much of the mean stays.
        beta1: f64,
        /// How much of the greatest stays.
        beta2: f64,
        /// Keeps quotients finite.
        epsilon: f64,
    },
    /// Follows the regularized leader: sparse models of many features.
    Ftrl {
        /// What the sums of squares begin with.
        initial: f64,
        /// Strength of the first norm: more of it, more zeros.
        l1: f64,
        /// Strength of the second norm.
        l2: f64,
        /// Power of the sums by which rates fall; -0.5 as a rule.
        power: f64,
        /// Strength of a second norm that gradients alone see, so that unused weights stay as they
        /// are; 0 as a rule.
        shrinkage: f64,
    },
    /// Gradient descent towards small norms.
    Proximal {
        /// Strength of the first norm.
        l1: f64,
        /// Strength of the second norm.
        l2: f64,
    },
    /// Adagrad towards small norms.
    ProximalAdagrad {
        /// What the sums begin with.
        initial: f64,
        /// Strength of the first norm.
        l1: f64,
        /// Strength of the second norm.
        l2: f64,
    },
}

/// What a kernel is given after the variable.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// The slot at this position.
    Slot(usize),
    Gradient,
    /// Rows that the gradient is of.
    Indices,
    Rate,
    Number(f64),
    /// The number of this step, beginning with 1.
    Step,
    /// The first or second beta to the power of the step.
    Power(usize),
}

/// A kernel and its inputs.
pub(super) struct Recipe {
    pub op: &'static str,
    pub parts: Vec<Part>,
    pub flag: Option<(&'static str, bool)>,
}

use Part::{Gradient, Indices, Number, Power, Rate, Slot, Step};

impl Rule {
    /// Names and first values of what is kept beside each variable.
    pub(super) fn slots(&self) -> Vec<(&'static str, f64)> {
        match *self {
            Rule::Sgd | Rule::Proximal { .. } => vec![],
            Rule::Momentum { .. } => vec![("Momentum", 0.0)],
            Rule::Adagrad { initial } => vec![("Adagrad", initial)],
            Rule::ProximalAdagrad { initial, .. } => vec![("ProximalAdagrad", initial)],
            Rule::AdagradDa { initial, .. } => vec![("AdagradDA", 0.0), ("AdagradDA_1", initial)],
            Rule::Adadelta { .. } => vec![("Adadelta", 0.0), ("Adadelta_1", 0.0)],
            Rule::RmsProp { is_centered: false, .. } => vec![("RMSProp", 1.0), ("RMSProp_1", 0.0)],
            Rule::RmsProp { is_centered: true, .. } => {
                vec![("RMSProp", 1.0), ("RMSProp_1", 0.0), ("RMSProp_2", 0.0)]
            }
            Rule::Adam { .. } => vec![("Adam", 0.0), ("Adam_1", 0.0)],
            Rule::Adamax { .. } => vec![("AdaMax", 0.0), ("AdaMax_1", 0.0)],
            Rule::Ftrl { initial, .. } => vec![("Ftrl", initial), ("Ftrl_1", 0.0)],
        }
    }

    /// The betas whose powers are kept.
    pub(super) fn betas(&self) -> Vec<f64> {
        match *self {
            Rule::Adam { beta1, beta2, .. } => vec![beta1, beta2],
            Rule::Adamax { beta1, .. } => vec![beta1],
            _ => vec![],
        }
    }

    /// How a whole variable changes.
    pub(super) fn dense(&self) -> Recipe {
        let recipe = |op, parts: &[Part]| Recipe { op, parts: parts.to_vec(), flag: None };
        match *self {
            Rule::Sgd => recipe("ResourceApplyGradientDescent", &[Rate, Gradient]),
            Rule::Momentum { momentum, is_nesterov } => Recipe {
                flag: Some(("use_nesterov", is_nesterov)),
                ..recipe("ResourceApplyMomentum", &[Slot(0), Rate, Gradient, Number(momentum)])
            },
            Rule::Adagrad { .. } => recipe("ResourceApplyAdagrad", &[Slot(0), Rate, Gradient]),
            Rule::AdagradDa { l1, l2, .. } => {
                let parts = [Slot(0), Slot(1), Gradient, Rate, Number(l1), Number(l2), Step];
                recipe("ResourceApplyAdagradDA", &parts)
            }
            Rule::Adadelta { rho, epsilon } => recipe(
                "ResourceApplyAdadelta",
                &[Slot(0), Slot(1), Rate, Number(rho), Number(epsilon), Gradient],
            ),
            Rule::RmsProp { .. } => Recipe {
                op: self.rms_op("ResourceApplyRMSProp", "ResourceApplyCenteredRMSProp"),
                parts: [self.rms_parts(), vec![Gradient]].concat(),
                flag: None,
            },
            Rule::Adam { beta1, beta2, epsilon } => {
                let betas = [Number(beta1), Number(beta2), Number(epsilon), Gradient];
                let first = [Slot(0), Slot(1), Power(0), Power(1), Rate];
                Recipe { op: "ResourceApplyAdam", parts: [&first[..], &betas].concat(), flag: None }
            }
            Rule::Adamax { beta1, beta2, epsilon } => {
                let betas = [Number(beta1), Number(beta2), Number(epsilon), Gradient];
                let first = [Slot(0), Slot(1), Power(0), Rate];
                Recipe {
                    op: "ResourceApplyAdaMax",
                    parts: [&first[..], &betas].concat(),
                    flag: None,
                }
            }
            Rule::Ftrl { .. } => {
                self.ftrl(["ResourceApplyFtrl", "ResourceApplyFtrlV2"], &[Gradient])
            }
            Rule::Proximal { l1, l2 } => recipe(
                "ResourceApplyProximalGradientDescent",
                &[Rate, Number(l1), Number(l2), Gradient],
            ),
            Rule::ProximalAdagrad { l1, l2, .. } => recipe(
                "ResourceApplyProximalAdagrad",
                &[Slot(0), Rate, Number(l1), Number(l2), Gradient],
            ),
        }
    }

    /// How rows of a variable change; none where no kernel does that.
    pub(super) fn sparse(&self) -> Option<Recipe> {
        let recipe = |op, parts: &[Part]| Recipe { op, parts: parts.to_vec(), flag: None };
        Some(match *self {
            Rule::Sgd | Rule::Adam { .. } | Rule::Adamax { .. } => return None,
            Rule::Momentum { momentum, is_nesterov } => {
                let parts = [Slot(0), Rate, Gradient, Indices, Number(momentum)];
                let flag = Some(("use_nesterov", is_nesterov));
                Recipe { flag, ..recipe("ResourceSparseApplyMomentum", &parts) }
            }
            Rule::Adagrad { .. } => {
                recipe("ResourceSparseApplyAdagrad", &[Slot(0), Rate, Gradient, Indices])
            }
            Rule::AdagradDa { l1, l2, .. } => {
                let last = [Rate, Number(l1), Number(l2), Step];
                let parts = [&[Slot(0), Slot(1), Gradient, Indices][..], &last].concat();
                Recipe { op: "ResourceSparseApplyAdagradDA", parts, flag: None }
            }
            Rule::Adadelta { rho, epsilon } => recipe(
                "ResourceSparseApplyAdadelta",
                &[Slot(0), Slot(1), Rate, Number(rho), Number(epsilon), Gradient, Indices],
            ),
            Rule::RmsProp { .. } => Recipe {
                op: self.rms_op("ResourceSparseApplyRMSProp", "ResourceSparseApplyCenteredRMSProp"),
                parts: [self.rms_parts(), vec![Gradient, Indices]].concat(),
                flag: None,
            },
            Rule::Ftrl { .. } => {
                let ops = ["ResourceSparseApplyFtrl", "ResourceSparseApplyFtrlV2"];
                self.ftrl(ops, &[Gradient, Indices])
            }
            Rule::Proximal { l1, l2 } => recipe(
                "ResourceSparseApplyProximalGradientDescent",
                &[Rate, Number(l1), Number(l2), Gradient, Indices],
            ),
            Rule::ProximalAdagrad { l1, l2, .. } => recipe(
                "ResourceSparseApplyProximalAdagrad",
                &[Slot(0), Rate, Number(l1), Number(l2), Gradient, Indices],
            ),
        })
    }

    /// The first op, or the second where there is a shrinkage.
    fn ftrl(&self, ops: [&'static str; 2], gradient: &[Part]) -> Recipe {
        let Rule::Ftrl { l1, l2, power, shrinkage, .. } = *self else {
            return Recipe { op: ops[0], parts: Vec::new(), flag: None };
        };
        let mut parts =
            [&[Slot(0), Slot(1)][..], gradient, &[Rate, Number(l1), Number(l2)]].concat();
        if shrinkage != 0.0 {
            parts.push(Number(shrinkage));
        }
        parts.push(Number(power));
        Recipe { op: ops[usize::from(shrinkage != 0.0)], parts, flag: None }
    }

    fn rms_op(&self, plain: &'static str, centered: &'static str) -> &'static str {
        match self {
            Rule::RmsProp { is_centered: true, .. } => centered,
            _ => plain,
        }
    }

    /// The centered kernel takes the mean of gradients first; TensorFlow keeps it as the second slot.
    fn rms_parts(&self) -> Vec<Part> {
        let Rule::RmsProp { decay, momentum, epsilon, is_centered } = *self else {
            return Vec::new();
        };
        let slots =
            if is_centered { vec![Slot(1), Slot(0), Slot(2)] } else { vec![Slot(0), Slot(1)] };
        let numbers = [Rate, Number(decay), Number(momentum), Number(epsilon)];
        [slots, numbers.to_vec()].concat()
    }
}
