//! Optimizers by handle, under their usual names: `Adam::new(1e-3).minimize(&loss)`.

use thalweg_api::{Operation, Output, TensorType};

use crate::{Clip, LossScale, Optimizer, Rate, Rule};

macro_rules! optimizers {
    ($($(#[$doc:meta])* $name:ident => |$rate:ident| $rule:expr;)+) => { $(
        $(#[$doc])*
        ///
        /// It minimizes over the trainable variables of the loss's graph.
        #[derive(Clone, Debug)]
        pub struct $name(Optimizer);

        impl $name {
            /// An optimizer with this learning rate, or schedule of it, and TensorFlow's defaults.
            pub fn new($rate: impl Into<Rate>) -> $name {
                $name($rule)
            }

            /// Sets gradient clipping.
            #[must_use]
            pub fn clip(self, clip: Clip) -> $name {
                $name(self.0.clip(clip))
            }

            /// Sets decoupled weight decay: each step subtracts `rate * weight_decay * variable`.
            #[must_use]
            pub fn weight_decay(self, weight_decay: f64) -> $name {
                $name(self.0.weight_decay(weight_decay))
            }

            /// Scales the loss, for gradients in 16 bits, and skips updates with gradients that are
            /// not finite.
            #[must_use]
            pub fn loss_scale(self, loss_scale: LossScale) -> $name {
                $name(self.0.loss_scale(loss_scale))
            }

            /// Serializes updates of one variable by several workers (`use_locking`).
            #[must_use]
            pub fn locking(self) -> $name {
                $name(self.0.locking())
            }

            /// Adds a training step: the gradients of the loss by all trainable variables, their
            /// updates, and the increment of `global_step`.
            #[track_caller]
            #[must_use = "a step runs it as a target"]
            pub fn minimize<T: TensorType>(&self, loss: &Output<T>) -> Operation {
                self.0.minimize(loss)
            }
        }

        impl From<$name> for Optimizer {
            fn from(optimizer: $name) -> Optimizer {
                optimizer.0
            }
        }
    )+ };
}

optimizers! {
    /// Stochastic gradient descent.
    Sgd => |rate| Optimizer::sgd(rate);
    /// Stochastic gradient descent with momentum, 0.9 by default.
    Momentum => |rate| Optimizer::momentum(rate, 0.9);
    /// Adam.
    Adam => |rate| Optimizer::adam(rate);
    /// Adam with decoupled weight decay, 0.004 by default.
    AdamW => |rate| Optimizer::adamw(rate, 0.004);
    /// Adamax: Adam with the infinity norm.
    Adamax => |rate| Optimizer::new(
        Rule::Adamax { beta1: 0.9, beta2: 0.999, epsilon: 1e-7 },
        rate,
    );
    /// Adagrad.
    Adagrad => |rate| Optimizer::adagrad(rate);
    /// Adadelta.
    Adadelta => |rate| Optimizer::new(Rule::Adadelta { rho: 0.95, epsilon: 1e-7 }, rate);
    /// RMSProp.
    RmsProp => |rate| Optimizer::new(
        Rule::RmsProp { decay: 0.9, momentum: 0.0, epsilon: 1e-7, is_centered: false },
        rate,
    );
    /// FTRL-proximal, for sparse models.
    Ftrl => |rate| Optimizer::new(
        Rule::Ftrl { initial: 0.1, l1: 0.0, l2: 0.0, power: -0.5, shrinkage: 0.0 },
        rate,
    );
}

macro_rules! betas {
    ($($name:ident),+) => { $(
        impl $name {
            /// Sets the decay rates of the first and second moment estimates.
            #[must_use]
            pub fn betas(self, first: f64, second: f64) -> $name {
                $name(self.0.with_rule(|rule| match rule {
                    Rule::Adam { beta1, beta2, .. } | Rule::Adamax { beta1, beta2, .. } => {
                        (*beta1, *beta2) = (first, second);
                    }
                    _ => {}
                }))
            }

            /// Sets the constant for numerical stability.
            #[must_use]
            pub fn epsilon(self, value: f64) -> $name {
                $name(self.0.with_rule(|rule| match rule {
                    Rule::Adam { epsilon, .. } | Rule::Adamax { epsilon, .. } => *epsilon = value,
                    _ => {}
                }))
            }
        }
    )+ };
}

betas!(Adam, AdamW, Adamax);

impl Momentum {
    /// Sets the momentum coefficient.
    #[must_use]
    pub fn coefficient(self, value: f64) -> Momentum {
        Momentum(self.0.with_rule(|rule| {
            if let Rule::Momentum { momentum, .. } = rule {
                *momentum = value;
            }
        }))
    }

    /// Uses Nesterov momentum.
    #[must_use]
    pub fn nesterov(self) -> Momentum {
        Momentum(self.0.with_rule(|rule| {
            if let Rule::Momentum { is_nesterov, .. } = rule {
                *is_nesterov = true;
            }
        }))
    }
}
