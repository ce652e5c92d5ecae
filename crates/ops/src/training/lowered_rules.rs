//! The rules of `rules` on an accelerator: the same formulas on whole tensors.

use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::Lowering;
use thalweg_tensor::{Result, ensure};

use crate::lowering::wide;

/// New values of the variable and its slots from the present ones and the gradient.
type Step = Box<dyn Fn(&[Value], &Value) -> Vec<Value>>;

/// An optimizer with the parameters of one step.
pub(super) struct LoweredRule {
    /// Number of variables: the first inputs of the op.
    pub(super) slots: usize,
    pub(super) step: Step,
}

impl LoweredRule {
    fn new<const N: usize>(step: impl Fn(&[Value; N], &Value) -> [Value; N] + 'static) -> Self {
        let step = move |slots: &[Value], gradient: &Value| {
            let slots: &[Value; N] = slots.try_into().expect("as many values as slots");
            step(slots, gradient).into()
        };
        LoweredRule { slots: N, step: Box::new(step) }
    }
}

/// The scalar inputs of an optimizer op, by name.
pub(super) struct LoweredParameters<'a, 'b>(pub(super) &'b Lowering<'a>);

impl LoweredParameters<'_, '_> {
    fn scalar(&self, name: &str) -> Result<Value> {
        let value = self.0.input(self.0.node().input_range(name)?.start)?;
        ensure!(value.rank() == 0, InvalidArgument, "{name} is not a scalar: {:?}", value.dims());
        Ok(wide(&value))
    }

    fn has(&self, name: &str) -> bool {
        self.0.node().op.inputs.iter().any(|input| input.name == name)
    }

    /// A bool attr; false if the op does not have it.
    fn flag(&self, name: &str) -> bool {
        self.0.attrs().bool(name).unwrap_or(false)
    }
}

type Parameters<'a, 'b> = LoweredParameters<'a, 'b>;

/// `1 - x`.
fn complement(x: &Value) -> Value {
    x.negate() + 1.0
}

/// `x` moved towards `target` by a fraction.
fn moved(x: &Value, target: &Value, fraction: &Value) -> Value {
    x + (target - x) * fraction
}

/// The greater one; the first if either is NaN.
fn greater(x: &Value, y: &Value) -> Value {
    y.compare(Comparison::Greater, x).select(y, x)
}

/// The accumulated squares of gradients, where the op updates them.
fn squares(accum: &Value, gradient: &Value, updates: bool) -> Value {
    if updates { accum + gradient.square() } else { accum.clone() }
}

pub(super) fn gradient_descent(p: &Parameters<'_, '_>) -> Result<LoweredRule> {
    let rate = p.scalar("alpha")?;
    Ok(LoweredRule::new(move |[var], gradient| [var - gradient * &rate]))
}

pub(super) fn momentum(p: &Parameters<'_, '_>) -> Result<LoweredRule> {
    let (rate, momentum) = (p.scalar("lr")?, p.scalar("momentum")?);
    let use_nesterov = p.flag("use_nesterov");
    Ok(LoweredRule::new(move |[var, accum], gradient| {
        let accum = accum * &momentum + gradient;
        let change = match use_nesterov {
            true => gradient * &rate + &accum * &momentum * &rate,
            false => &accum * &rate,
        };
        [var - change, accum]
    }))
}

/// Momentum with the learning rate inside of the accumulator.
pub(super) fn keras_momentum(p: &Parameters<'_, '_>) -> Result<LoweredRule> {
    let (rate, momentum) = (p.scalar("lr")?, p.scalar("momentum")?);
    let use_nesterov = p.flag("use_nesterov");
    Ok(LoweredRule::new(move |[var, accum], gradient| {
        let descent = gradient * &rate;
        let accum = accum * &momentum - &descent;
        let change = if use_nesterov { &accum * &momentum - descent } else { accum.clone() };
        [var + change, accum]
    }))
}

pub(super) fn adagrad(p: &Parameters<'_, '_>) -> Result<LoweredRule> {
    let (rate, update_slots) = (p.scalar("lr")?, p.flag("update_slots"));
    Ok(LoweredRule::new(move |[var, accum], gradient| {
        let accum = squares(accum, gradient, update_slots);
        [var - gradient * &rate / accum.sqrt(), accum]
    }))
}

pub(super) fn adagrad_v2(p: &Parameters<'_, '_>) -> Result<LoweredRule> {
    let (rate, epsilon) = (p.scalar("lr")?, p.scalar("epsilon")?);
    let update_slots = p.flag("update_slots");
    Ok(LoweredRule::new(move |[var, accum], gradient| {
        let accum = squares(accum, gradient, update_slots);
        [var - gradient * &rate / (accum.sqrt() + &epsilon), accum]
    }))
}

pub(super) fn adadelta(p: &Parameters<'_, '_>) -> Result<LoweredRule> {
    let (rate, rho, epsilon) = (p.scalar("lr")?, p.scalar("rho")?, p.scalar("epsilon")?);
    let rest = complement(&rho);
    Ok(LoweredRule::new(move |[var, accum, accum_update], gradient| {
        let accum = accum * &rho + gradient.square() * &rest;
        let update = (accum_update + &epsilon).sqrt() / (&accum + &epsilon).sqrt() * gradient;
        let accum_update = accum_update * &rho + update.square() * &rest;
        [var - update * &rate, accum, accum_update]
    }))
}

pub(super) fn rms_prop(p: &Parameters<'_, '_>) -> Result<LoweredRule> {
    let (rate, momentum) = (p.scalar("lr")?, p.scalar("momentum")?);
    let (rest, epsilon) = (complement(&p.scalar("rho")?), p.scalar("epsilon")?);
    Ok(LoweredRule::new(move |[var, ms, mom], gradient| {
        let ms = moved(ms, &gradient.square(), &rest);
        let mom = mom * &momentum + gradient * &rate / (&ms + &epsilon).sqrt();
        [var - &mom, ms, mom]
    }))
}

pub(super) fn centered_rms_prop(p: &Parameters<'_, '_>) -> Result<LoweredRule> {
    let (rate, momentum) = (p.scalar("lr")?, p.scalar("momentum")?);
    let (rest, epsilon) = (complement(&p.scalar("rho")?), p.scalar("epsilon")?);
    Ok(LoweredRule::new(move |[var, mg, ms, mom], gradient| {
        let ms = moved(ms, &gradient.square(), &rest);
        let mg = moved(mg, gradient, &rest);
        let variance = &ms - mg.square() + &epsilon;
        let mom = mom * &momentum + gradient * &rate / variance.sqrt();
        [var - &mom, mg, ms, mom]
    }))
}

/// The parameters of Adam and AMSGrad.
struct Moments {
    /// The learning rate with bias correction for the zero initialization of the moments.
    rate: Value,
    beta1: Value,
    beta2: Value,
    epsilon: Value,
}

impl Moments {
    fn new(p: &Parameters<'_, '_>) -> Result<Moments> {
        let (beta1_power, beta2_power) = (p.scalar("beta1_power")?, p.scalar("beta2_power")?);
        let correction = complement(&beta2_power).sqrt() / complement(&beta1_power);
        Ok(Moments {
            rate: p.scalar("lr")? * correction,
            beta1: p.scalar("beta1")?,
            beta2: p.scalar("beta2")?,
            epsilon: p.scalar("epsilon")?,
        })
    }

    /// The updated moments.
    fn updated(&self, m: &Value, v: &Value, gradient: &Value) -> (Value, Value) {
        let m = moved(m, gradient, &complement(&self.beta1));
        (m, moved(v, &gradient.square(), &complement(&self.beta2)))
    }

    fn descended(&self, var: &Value, direction: &Value, v: &Value) -> Value {
        var - direction * &self.rate / (v.sqrt() + &self.epsilon)
    }
}

pub(super) fn adam(p: &Parameters<'_, '_>) -> Result<LoweredRule> {
    let (moments, use_nesterov) = (Moments::new(p)?, p.flag("use_nesterov"));
    Ok(LoweredRule::new(move |[var, m, v], gradient| {
        let (m, v) = moments.updated(m, v, gradient);
        let direction = match use_nesterov {
            true => gradient * complement(&moments.beta1) + &moments.beta1 * &m,
            false => m.clone(),
        };
        [moments.descended(var, &direction, &v), m, v]
    }))
}

/// Adam with a non-decreasing second moment.
pub(super) fn amsgrad(p: &Parameters<'_, '_>) -> Result<LoweredRule> {
    let moments = Moments::new(p)?;
    Ok(LoweredRule::new(move |[var, m, v, vhat], gradient| {
        let (m, v) = moments.updated(m, v, gradient);
        let vhat = greater(vhat, &v);
        [moments.descended(var, &m, &vhat), m, v, vhat]
    }))
}

pub(super) fn ada_max(p: &Parameters<'_, '_>) -> Result<LoweredRule> {
    let rate = p.scalar("lr")? / complement(&p.scalar("beta1_power")?);
    let (rest, beta2) = (complement(&p.scalar("beta1")?), p.scalar("beta2")?);
    let epsilon = p.scalar("epsilon")?;
    Ok(LoweredRule::new(move |[var, m, v], gradient| {
        let m = moved(m, gradient, &rest);
        let v = greater(&(&beta2 * v), &gradient.abs());
        [var - &rate * (&m / (&v + &epsilon)), m, v]
    }))
}

/// The optimizers whose step depends on whether gradient and momentum have the same sign; `scale` makes
/// its length from the factor `alpha` or `logbase` and the agreement of the signs.
fn by_sign(
    p: &Parameters<'_, '_>,
    factor: &str,
    scale: fn(&Value, &Value) -> Value,
) -> Result<LoweredRule> {
    let (rate, factor) = (p.scalar("lr")?, p.scalar(factor)?);
    let (sign_decay, beta) = (p.scalar("sign_decay")?, p.scalar("beta")?);
    Ok(LoweredRule::new(move |[var, m], gradient| {
        let m = m * &beta + gradient * complement(&beta);
        let agreement = &sign_decay * (gradient.sign() * m.sign());
        [var - &rate * scale(&factor, &agreement) * gradient, m]
    }))
}

pub(super) fn add_sign(p: &Parameters<'_, '_>) -> Result<LoweredRule> {
    by_sign(p, "alpha", Value::plus)
}

pub(super) fn power_sign(p: &Parameters<'_, '_>) -> Result<LoweredRule> {
    by_sign(p, "logbase", |base, agreement| (base * agreement).exp())
}

/// `x` moved towards 0 by a distance, where `l1` is positive.
fn shrunk(x: &Value, l1: &Value, distance: &Value) -> Value {
    let rest = greater(&(x.abs() - distance), &x.scalar_like(0.0).broadcast_to(x.dims()));
    l1.compare_to(Comparison::Greater, 0.0).select(&(x.sign() * rest), x)
}

/// Regularization towards zero: `l1` by a constant, `l2` proportionally.
struct Shrinkage {
    l1: Value,
    l2: Value,
}

impl Shrinkage {
    fn new(p: &Parameters<'_, '_>) -> Result<Self> {
        Ok(Self { l1: p.scalar("l1")?, l2: p.scalar("l2")? })
    }

    fn pull(&self, x: &Value, rate: &Value) -> Value {
        shrunk(x, &self.l1, &(rate * &self.l1)) / (&self.l2 * rate + 1.0)
    }
}

pub(super) fn proximal_gradient_descent(p: &Parameters<'_, '_>) -> Result<LoweredRule> {
    let (rate, shrinkage) = (p.scalar("alpha")?, Shrinkage::new(p)?);
    Ok(LoweredRule::new(move |[var], gradient| [shrinkage.pull(&(var - gradient * &rate), &rate)]))
}

pub(super) fn proximal_adagrad(p: &Parameters<'_, '_>) -> Result<LoweredRule> {
    let (rate, shrinkage) = (p.scalar("lr")?, Shrinkage::new(p)?);
    Ok(LoweredRule::new(move |[var, accum], gradient| {
        let accum = accum + gradient.square();
        let rate = &rate / accum.sqrt();
        [shrinkage.pull(&(var - gradient * &rate), &rate), accum]
    }))
}

pub(super) fn adagrad_da(p: &Parameters<'_, '_>) -> Result<LoweredRule> {
    let (rate, l1, l2) = (p.scalar("lr")?, p.scalar("l1")?, p.scalar("l2")?);
    let global_step = p.scalar("global_step")?.convert(rate.dtype());
    Ok(LoweredRule::new(move |[_, sum, squares], gradient| {
        let (sum, squares) = (sum + gradient, squares + gradient.square());
        let pulled = shrunk(&sum, &l1, &(&l1 * &global_step));
        let divisor = &l2 * &global_step * &rate + squares.sqrt();
        [rate.negate() * pulled / divisor, sum, squares]
    }))
}

/// FTRL-Proximal ("follow the regularized leader").
pub(super) fn ftrl(p: &Parameters<'_, '_>) -> Result<LoweredRule> {
    let (rate, l1, l2) = (p.scalar("lr")?, p.scalar("l1")?, p.scalar("l2")?);
    let l2_shrinkage = match p.has("l2_shrinkage") {
        true => p.scalar("l2_shrinkage")?,
        false => rate.zeros_like(),
    };
    // The power of the accumulator, usually 1/2.
    let power = p.scalar("lr_power")?.negate();
    // V2 (`multiply_linear_by_lr`) multiplies the other terms instead of dividing by the learning rate.
    let (divisor, factor) = match p.flag("multiply_linear_by_lr") {
        true => (rate.ones_like(), rate),
        false => (rate.clone(), rate.ones_like()),
    };
    let scale = move |accum: &Value| {
        let is_root = power.compare_to(Comparison::Equal, 0.5);
        is_root.select(&accum.sqrt(), &accum.power(&power))
    };
    Ok(LoweredRule::new(move |[var, accum, linear], gradient| {
        let shrunk = gradient + &l2_shrinkage * 2.0 * var;
        let new_accum = accum + gradient.square();
        let new_scale = scale(&new_accum);
        let growth = (&new_scale - scale(accum)) / &divisor;
        let linear = linear + shrunk * &factor - growth * var;
        let l1 = &l1 * &factor;
        let curvature = new_scale / &divisor + &l2 * 2.0 * &factor;
        let moved = (&l1 * linear.sign() - &linear) / curvature;
        let is_far = linear.abs().compare(Comparison::Greater, &l1);
        [is_far.select(&moved, &var.zeros_like()), new_accum, linear]
    }))
}
