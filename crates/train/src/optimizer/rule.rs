//! Update rules as data: the slots that they keep, and their kernels with inputs in order.

/// An update rule. Slots have the names that TensorFlow's optimizers give them.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// `x -= rate * g`.
    Sgd,
    /// SGD with momentum.
    Momentum {
        /// The momentum coefficient.
        momentum: f64,
        /// Whether to use Nesterov momentum.
        is_nesterov: bool,
    },
    /// Adagrad.
    Adagrad {
        /// The initial value of the accumulators.
        initial: f64,
    },
    /// Adagrad dual averaging, for sparse models.
    AdagradDa {
        /// The initial value of the squared-gradient accumulators.
        initial: f64,
        /// L1 regularization strength.
        l1: f64,
        /// L2 regularization strength.
        l2: f64,
    },
    /// Adadelta.
    Adadelta {
        /// The decay rate of the averages.
        rho: f64,
        /// A constant for numerical stability.
        epsilon: f64,
    },
    /// RMSProp.
    RmsProp {
        /// The decay rate of the average of squares.
        decay: f64,
        /// The momentum coefficient.
        momentum: f64,
        /// A constant for numerical stability.
        epsilon: f64,
        /// Whether to normalize by the variance instead of the second moment.
        is_centered: bool,
    },
    /// Adam.
    Adam {
        /// The decay rate of the first-moment estimate.
        beta1: f64,
        /// The decay rate of the second-moment estimate.
        beta2: f64,
        /// A constant for numerical stability.
        epsilon: f64,
    },
    /// Adamax: Adam with the infinity norm.
    Adamax {
        /// The decay rate of the first-moment estimate.
        beta1: f64,
        /// The decay rate of the infinity norm.
        beta2: f64,
        /// A constant for numerical stability.
        epsilon: f64,
    },
    /// FTRL-proximal (follow the regularized leader), for sparse models.
    Ftrl {
        /// The initial value of the squared-gradient accumulators.
        initial: f64,
        /// L1 regularization strength.
        l1: f64,
        /// L2 regularization strength.
        l2: f64,
        /// Learning-rate power; usually -0.5.
        power: f64,
        /// L2 shrinkage strength, applied to gradients only, so that weights without gradients stay
        /// as they are; usually 0.
        shrinkage: f64,
    },
    /// Proximal gradient descent.
    Proximal {
        /// L1 regularization strength.
        l1: f64,
        /// L2 regularization strength.
        l2: f64,
    },
    /// Proximal Adagrad.
    ProximalAdagrad {
        /// The initial value of the accumulators.
        initial: f64,
        /// L1 regularization strength.
        l1: f64,
        /// L2 regularization strength.
        l2: f64,
    },
}

/// An input of an update kernel after the variable.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// The slot at this index.
    Slot(usize),
    Gradient,
    /// Indices of a sparse gradient.
    Indices,
    Rate,
    Number(f64),
    /// The number of this step, beginning with 1.
    Step,
    /// The first or second beta raised to the number of the step.
    Power(usize),
}

/// An update op and its inputs.
pub(super) struct Recipe {
    pub op: &'static str,
    pub parts: Vec<Part>,
    pub flag: Option<(&'static str, bool)>,
}

use Part::{Gradient, Indices, Number, Power, Rate, Slot, Step};

impl Rule {
    /// Names and initial values of the slots of each variable.
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

    /// The op for dense gradients.
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

    /// The op for sparse gradients; `None` if there is no such kernel.
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

    /// The first op, or the second where there is L2 shrinkage.
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
