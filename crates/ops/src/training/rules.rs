//! Elementwise update rules of the optimizers.
//!
//! A rule gets one element of the variable and of its slots, in the order of the op's inputs, with
//! an element of the gradient, and returns their new values.

use std::ops::{Add, Div, Mul, Neg, Sub};

use num_complex::Complex;
use thalweg_tensor::Result;

use super::Parameters;

/// Compute types of rules.
pub(super) trait Field:
    Copy
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    fn from_f64(value: f64) -> Self;
    fn sqrt(self) -> Self;
}

/// Real compute types.
pub(super) trait Ordered: Field + PartialOrd {
    fn abs(self) -> Self;
    fn powf(self, exponent: Self) -> Self;
    fn exp(self) -> Self;
    fn max(self, other: Self) -> Self;
    /// -1, 0 or 1.
    fn sign(self) -> Self;
}

macro_rules! impl_field {
    ($($t:ident),+) => { $(
        impl Field for $t {
            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $t
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                self.sqrt()
            }
        }

        impl Field for Complex<$t> {
            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                Complex::new(value as $t, 0.0)
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                Complex::sqrt(self)
            }
        }

        impl Ordered for $t {
            #[inline(always)]
            fn abs(self) -> Self {
                self.abs()
            }

            #[inline(always)]
            fn powf(self, exponent: Self) -> Self {
                self.powf(exponent)
            }

            #[inline(always)]
            fn exp(self) -> Self {
                self.exp()
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                if other > self { other } else { self }
            }

            #[inline(always)]
            fn sign(self) -> Self {
                if self > 0.0 {
                    1.0
                } else if self < 0.0 {
                    -1.0
                } else {
                    0.0
                }
            }
        }
    )+ };
}

impl_field!(f32, f64);

#[inline(always)]
fn one<W: Field>() -> W {
    W::from_f64(1.0)
}

/// An optimizer with the parameters of one step.
pub(super) trait Rule<W, const N: usize>: Copy + Send + Sync {
    /// Reads the parameters.
    fn new(parameters: &Parameters<'_, W>) -> Result<Self>;
    /// The variable and its slots after applying the gradient.
    fn step(&self, slots: [W; N], gradient: W) -> [W; N];
}

#[derive(Clone, Copy)]
pub(super) struct GradientDescent<W> {
    rate: W,
}

impl<W: Field> Rule<W, 1> for GradientDescent<W> {
    fn new(p: &Parameters<'_, W>) -> Result<Self> {
        Ok(Self { rate: p.scalar("alpha")? })
    }

    #[inline(always)]
    fn step(&self, [var]: [W; 1], gradient: W) -> [W; 1] {
        [var - gradient * self.rate]
    }
}

#[derive(Clone, Copy)]
pub(super) struct Momentum<W> {
    rate: W,
    momentum: W,
    use_nesterov: bool,
}

impl<W: Field> Rule<W, 2> for Momentum<W> {
    fn new(p: &Parameters<'_, W>) -> Result<Self> {
        Ok(Self {
            rate: p.scalar("lr")?,
            momentum: p.scalar("momentum")?,
            use_nesterov: p.flag("use_nesterov"),
        })
    }

    #[inline(always)]
    fn step(&self, [var, accum]: [W; 2], gradient: W) -> [W; 2] {
        let accum = accum * self.momentum + gradient;
        let var = if self.use_nesterov {
            var - (gradient * self.rate + accum * self.momentum * self.rate)
        } else {
            var - accum * self.rate
        };
        [var, accum]
    }
}

/// Momentum with the learning rate inside of the accumulator (`ApplyKerasMomentum`).
#[derive(Clone, Copy)]
pub(super) struct KerasMomentum<W>(Momentum<W>);

impl<W: Field> Rule<W, 2> for KerasMomentum<W> {
    fn new(p: &Parameters<'_, W>) -> Result<Self> {
        Ok(Self(Momentum::new(p)?))
    }

    #[inline(always)]
    fn step(&self, [var, accum]: [W; 2], gradient: W) -> [W; 2] {
        let Momentum { rate, momentum, use_nesterov } = self.0;
        let accum = accum * momentum - gradient * rate;
        let var =
            if use_nesterov { var + (accum * momentum - gradient * rate) } else { var + accum };
        [var, accum]
    }
}

#[derive(Clone, Copy)]
pub(super) struct Adagrad<W> {
    rate: W,
    update_slots: bool,
}

impl<W: Field> Rule<W, 2> for Adagrad<W> {
    fn new(p: &Parameters<'_, W>) -> Result<Self> {
        Ok(Self { rate: p.scalar("lr")?, update_slots: p.flag("update_slots") })
    }

    #[inline(always)]
    fn step(&self, [var, accum]: [W; 2], gradient: W) -> [W; 2] {
        let accum = if self.update_slots { accum + gradient * gradient } else { accum };
        [var - gradient * self.rate / accum.sqrt(), accum]
    }
}

#[derive(Clone, Copy)]
pub(super) struct AdagradV2<W> {
    rate: W,
    epsilon: W,
    update_slots: bool,
}

impl<W: Field> Rule<W, 2> for AdagradV2<W> {
    fn new(p: &Parameters<'_, W>) -> Result<Self> {
        Ok(Self {
            rate: p.scalar("lr")?,
            epsilon: p.scalar("epsilon")?,
            update_slots: p.flag("update_slots"),
        })
    }

    #[inline(always)]
    fn step(&self, [var, accum]: [W; 2], gradient: W) -> [W; 2] {
        let accum = if self.update_slots { accum + gradient * gradient } else { accum };
        [var - gradient * self.rate / (accum.sqrt() + self.epsilon), accum]
    }
}

#[derive(Clone, Copy)]
pub(super) struct Adadelta<W> {
    rate: W,
    rho: W,
    epsilon: W,
}

impl<W: Field> Rule<W, 3> for Adadelta<W> {
    fn new(p: &Parameters<'_, W>) -> Result<Self> {
        Ok(Self { rate: p.scalar("lr")?, rho: p.scalar("rho")?, epsilon: p.scalar("epsilon")? })
    }

    #[inline(always)]
    fn step(&self, [var, accum, accum_update]: [W; 3], gradient: W) -> [W; 3] {
        let Self { rate, rho, epsilon } = *self;
        let accum = accum * rho + gradient * gradient * (one::<W>() - rho);
        let update = (accum_update + epsilon).sqrt() / (accum + epsilon).sqrt() * gradient;
        let accum_update = accum_update * rho + update * update * (one::<W>() - rho);
        [var - update * rate, accum, accum_update]
    }
}

#[derive(Clone, Copy)]
pub(super) struct RmsProp<W> {
    rate: W,
    rho: W,
    momentum: W,
    epsilon: W,
}

impl<W: Field> Rule<W, 3> for RmsProp<W> {
    fn new(p: &Parameters<'_, W>) -> Result<Self> {
        Ok(Self {
            rate: p.scalar("lr")?,
            rho: p.scalar("rho")?,
            momentum: p.scalar("momentum")?,
            epsilon: p.scalar("epsilon")?,
        })
    }

    #[inline(always)]
    fn step(&self, [var, ms, mom]: [W; 3], gradient: W) -> [W; 3] {
        let ms = ms + (gradient * gradient - ms) * (one::<W>() - self.rho);
        let mom = mom * self.momentum + gradient * self.rate / (ms + self.epsilon).sqrt();
        [var - mom, ms, mom]
    }
}

#[derive(Clone, Copy)]
pub(super) struct CenteredRmsProp<W>(RmsProp<W>);

impl<W: Field> Rule<W, 4> for CenteredRmsProp<W> {
    fn new(p: &Parameters<'_, W>) -> Result<Self> {
        Ok(Self(RmsProp::new(p)?))
    }

    #[inline(always)]
    fn step(&self, [var, mg, ms, mom]: [W; 4], gradient: W) -> [W; 4] {
        let RmsProp { rate, rho, momentum, epsilon } = self.0;
        let ms = ms + (gradient * gradient - ms) * (one::<W>() - rho);
        let mg = mg + (gradient - mg) * (one::<W>() - rho);
        let variance = ms - mg * mg + epsilon;
        let mom = mom * momentum + gradient * rate / variance.sqrt();
        [var - mom, mg, ms, mom]
    }
}

#[derive(Clone, Copy)]
pub(super) struct Adam<W> {
    /// The learning rate with bias correction for the zero initialization of the moments.
    rate: W,
    beta1: W,
    beta2: W,
    epsilon: W,
    use_nesterov: bool,
}

impl<W: Field> Adam<W> {
    /// The updated moments.
    #[inline(always)]
    fn moments(&self, [m, v]: [W; 2], gradient: W) -> [W; 2] {
        let m = m + (gradient - m) * (one::<W>() - self.beta1);
        let v = v + (gradient * gradient - v) * (one::<W>() - self.beta2);
        [m, v]
    }
}

impl<W: Field> Rule<W, 3> for Adam<W> {
    fn new(p: &Parameters<'_, W>) -> Result<Self> {
        let (beta1_power, beta2_power) = (p.scalar("beta1_power")?, p.scalar("beta2_power")?);
        let correction = (one::<W>() - beta2_power).sqrt() / (one::<W>() - beta1_power);
        Ok(Self {
            rate: p.scalar("lr")? * correction,
            beta1: p.scalar("beta1")?,
            beta2: p.scalar("beta2")?,
            epsilon: p.scalar("epsilon")?,
            use_nesterov: p.flag("use_nesterov"),
        })
    }

    #[inline(always)]
    fn step(&self, [var, m, v]: [W; 3], gradient: W) -> [W; 3] {
        let [m, v] = self.moments([m, v], gradient);
        let direction = if self.use_nesterov {
            gradient * (one::<W>() - self.beta1) + self.beta1 * m
        } else {
            m
        };
        [var - direction * self.rate / (v.sqrt() + self.epsilon), m, v]
    }
}

/// AMSGrad: Adam with a non-decreasing second moment.
#[derive(Clone, Copy)]
pub(super) struct Amsgrad<W>(Adam<W>);

impl<W: Ordered> Rule<W, 4> for Amsgrad<W> {
    fn new(p: &Parameters<'_, W>) -> Result<Self> {
        Ok(Self(Adam::new(p)?))
    }

    #[inline(always)]
    fn step(&self, [var, m, v, vhat]: [W; 4], gradient: W) -> [W; 4] {
        let [m, v] = self.0.moments([m, v], gradient);
        let vhat = vhat.max(v);
        [var - m * self.0.rate / (vhat.sqrt() + self.0.epsilon), m, v, vhat]
    }
}

#[derive(Clone, Copy)]
pub(super) struct AdaMax<W> {
    rate: W,
    beta1: W,
    beta2: W,
    epsilon: W,
}

impl<W: Ordered> Rule<W, 3> for AdaMax<W> {
    fn new(p: &Parameters<'_, W>) -> Result<Self> {
        Ok(Self {
            rate: p.scalar("lr")? / (one::<W>() - p.scalar("beta1_power")?),
            beta1: p.scalar("beta1")?,
            beta2: p.scalar("beta2")?,
            epsilon: p.scalar("epsilon")?,
        })
    }

    #[inline(always)]
    fn step(&self, [var, m, v]: [W; 3], gradient: W) -> [W; 3] {
        let m = m + (gradient - m) * (one::<W>() - self.beta1);
        let v = (self.beta2 * v).max(gradient.abs());
        [var - self.rate * (m / (v + self.epsilon)), m, v]
    }
}

#[derive(Clone, Copy)]
pub(super) struct AddSign<W> {
    rate: W,
    alpha: W,
    sign_decay: W,
    beta: W,
}

impl<W: Ordered> Rule<W, 2> for AddSign<W> {
    fn new(p: &Parameters<'_, W>) -> Result<Self> {
        Ok(Self {
            rate: p.scalar("lr")?,
            alpha: p.scalar("alpha")?,
            sign_decay: p.scalar("sign_decay")?,
            beta: p.scalar("beta")?,
        })
    }

    #[inline(always)]
    fn step(&self, [var, m]: [W; 2], gradient: W) -> [W; 2] {
        let m = m * self.beta + gradient * (one::<W>() - self.beta);
        let agreement = gradient.sign() * m.sign();
        [var - self.rate * (self.alpha + self.sign_decay * agreement) * gradient, m]
    }
}

#[derive(Clone, Copy)]
pub(super) struct PowerSign<W> {
    rate: W,
    logbase: W,
    sign_decay: W,
    beta: W,
}

impl<W: Ordered> Rule<W, 2> for PowerSign<W> {
    fn new(p: &Parameters<'_, W>) -> Result<Self> {
        Ok(Self {
            rate: p.scalar("lr")?,
            logbase: p.scalar("logbase")?,
            sign_decay: p.scalar("sign_decay")?,
            beta: p.scalar("beta")?,
        })
    }

    #[inline(always)]
    fn step(&self, [var, m]: [W; 2], gradient: W) -> [W; 2] {
        let m = m * self.beta + gradient * (one::<W>() - self.beta);
        let agreement = gradient.sign() * m.sign();
        let scale = (self.logbase * self.sign_decay * agreement).exp();
        [var - self.rate * scale * gradient, m]
    }
}

/// Regularization towards zero: `l1` by a constant, `l2` proportionally.
#[derive(Clone, Copy)]
struct Shrinkage<W> {
    l1: W,
    l2: W,
}

impl<W: Ordered> Shrinkage<W> {
    fn new(p: &Parameters<'_, W>) -> Result<Self> {
        Ok(Self { l1: p.scalar("l1")?, l2: p.scalar("l2")? })
    }

    #[inline(always)]
    fn pull(&self, x: W, rate: W) -> W {
        let zero = W::from_f64(0.0);
        let pulled =
            if self.l1 > zero { x.sign() * (x.abs() - rate * self.l1).max(zero) } else { x };
        pulled / (one::<W>() + self.l2 * rate)
    }
}

#[derive(Clone, Copy)]
pub(super) struct ProximalGradientDescent<W> {
    rate: W,
    shrinkage: Shrinkage<W>,
}

impl<W: Ordered> Rule<W, 1> for ProximalGradientDescent<W> {
    fn new(p: &Parameters<'_, W>) -> Result<Self> {
        Ok(Self { rate: p.scalar("alpha")?, shrinkage: Shrinkage::new(p)? })
    }

    #[inline(always)]
    fn step(&self, [var]: [W; 1], gradient: W) -> [W; 1] {
        [self.shrinkage.pull(var - gradient * self.rate, self.rate)]
    }
}

#[derive(Clone, Copy)]
pub(super) struct ProximalAdagrad<W> {
    rate: W,
    shrinkage: Shrinkage<W>,
}

impl<W: Ordered> Rule<W, 2> for ProximalAdagrad<W> {
    fn new(p: &Parameters<'_, W>) -> Result<Self> {
        Ok(Self { rate: p.scalar("lr")?, shrinkage: Shrinkage::new(p)? })
    }

    #[inline(always)]
    fn step(&self, [var, accum]: [W; 2], gradient: W) -> [W; 2] {
        let accum = accum + gradient * gradient;
        let rate = self.rate / accum.sqrt();
        [self.shrinkage.pull(var - gradient * rate, rate), accum]
    }
}

#[derive(Clone, Copy)]
pub(super) struct AdagradDa<W> {
    rate: W,
    l1: W,
    l2: W,
    global_step: W,
}

impl<W: Ordered> Rule<W, 3> for AdagradDa<W> {
    fn new(p: &Parameters<'_, W>) -> Result<Self> {
        Ok(Self {
            rate: p.scalar("lr")?,
            l1: p.scalar("l1")?,
            l2: p.scalar("l2")?,
            global_step: W::from_f64(p.integer("global_step")? as f64),
        })
    }

    #[inline(always)]
    fn step(&self, [_, sum, squares]: [W; 3], gradient: W) -> [W; 3] {
        let Self { rate, l1, l2, global_step } = *self;
        let zero = W::from_f64(0.0);
        let sum = sum + gradient;
        let squares = squares + gradient * gradient;
        let pulled =
            if l1 > zero { sum.sign() * (sum.abs() - l1 * global_step).max(zero) } else { sum };
        [-rate * pulled / (l2 * global_step * rate + squares.sqrt()), sum, squares]
    }
}

/// FTRL-Proximal ("follow the regularized leader").
#[derive(Clone, Copy)]
pub(super) struct Ftrl<W> {
    rate: W,
    l1: W,
    l2: W,
    l2_shrinkage: W,
    /// `-learning_rate_power`: the power of the accumulator, usually 1/2.
    power: W,
    multiply_linear_by_lr: bool,
}

impl<W: Ordered> Ftrl<W> {
    #[inline(always)]
    fn scale(&self, accum: W) -> W {
        if self.power == W::from_f64(0.5) { accum.sqrt() } else { accum.powf(self.power) }
    }
}

impl<W: Ordered> Rule<W, 3> for Ftrl<W> {
    fn new(p: &Parameters<'_, W>) -> Result<Self> {
        let has_shrinkage = p.has("l2_shrinkage");
        Ok(Self {
            rate: p.scalar("lr")?,
            l1: p.scalar("l1")?,
            l2: p.scalar("l2")?,
            l2_shrinkage: if has_shrinkage { p.scalar("l2_shrinkage")? } else { W::from_f64(0.0) },
            power: -p.scalar("lr_power")?,
            multiply_linear_by_lr: p.flag("multiply_linear_by_lr"),
        })
    }

    #[inline(always)]
    fn step(&self, [var, accum, linear]: [W; 3], gradient: W) -> [W; 3] {
        let two = W::from_f64(2.0);
        // V2 (`multiply_linear_by_lr`) multiplies the other terms instead of dividing by the
        // learning rate.
        let (divisor, factor) =
            if self.multiply_linear_by_lr { (one(), self.rate) } else { (self.rate, one()) };
        let shrunk = gradient + two * self.l2_shrinkage * var;
        let new_accum = accum + gradient * gradient;
        let growth = (self.scale(new_accum) - self.scale(accum)) / divisor;
        let linear = linear + shrunk * factor - growth * var;
        let l1 = self.l1 * factor;
        let curvature = self.scale(new_accum) / divisor + two * self.l2 * factor;
        let var = if linear.abs() > l1 {
            (l1 * linear.sign() - linear) / curvature
        } else {
            W::from_f64(0.0)
        };
        [var, new_accum, linear]
    }
}
