//! Gradients of the special functions.

use std::f64::consts::{FRAC_PI_2, PI};

use thalweg_graph::{GradientContext, Output};
use thalweg_tensor::Result;

use crate::gradients::{Arithmetic, chain_input, chain_output, set_repeated};

/// The derivative is minus `op` of the argument.
pub(crate) fn chain_negated(g: &mut GradientContext<'_>, op: &str) -> Result<()> {
    chain_input(g, |g, x| {
        let value = g.add(op, &[x])?;
        g.negated(value)
    })
}

/// √π/2 e^y².
pub(crate) fn erfinv_grad(g: &mut GradientContext<'_>) -> Result<()> {
    chain_output(g, |g, y| {
        let square = g.squared(y)?;
        let exponential = g.add("Exp", &[square])?;
        g.scaled(exponential, PI.sqrt() / 2.0)
    })
}

/// √(2π) e^(y²/2).
pub(crate) fn ndtri_grad(g: &mut GradientContext<'_>) -> Result<()> {
    chain_output(g, |g, y| {
        let square = g.squared(y)?;
        let half = g.scaled(square, 0.5)?;
        let exponential = g.add("Exp", &[half])?;
        g.scaled(exponential, (2.0 * PI).sqrt())
    })
}

pub(crate) fn digamma_grad(g: &mut GradientContext<'_>) -> Result<()> {
    chain_input(g, |g, x| {
        let one = g.number_like(x, 1.0)?;
        g.add("Polygamma", &[one, x])
    })
}

/// 1 - 2 x y.
pub(crate) fn dawsn_grad(g: &mut GradientContext<'_>) -> Result<()> {
    chain_input(g, |g, x| {
        let product = g.times(x, g.output(0))?;
        let doubled = g.scaled(product, 2.0)?;
        g.number_minus(1.0, doubled)
    })
}

/// e^x / x.
pub(crate) fn expint_grad(g: &mut GradientContext<'_>) -> Result<()> {
    chain_input(g, |g, x| {
        let exponential = g.add("Exp", &[x])?;
        g.over(exponential, x)
    })
}

/// `function` of π/2 x².
pub(crate) fn fresnel_grad(g: &mut GradientContext<'_>, function: &str) -> Result<()> {
    chain_input(g, |g, x| {
        let square = g.squared(x)?;
        let angle = g.scaled(square, FRAC_PI_2)?;
        g.add(function, &[angle])
    })
}

/// ln x / (1 - x), and -1 at x = 1.
pub(crate) fn spence_grad(g: &mut GradientContext<'_>) -> Result<()> {
    chain_input(g, |g, x| {
        let (logarithm, rest) = (g.add("Log", &[x])?, g.number_minus(1.0, x)?);
        let slope = g.over(logarithm, rest)?;
        at_number(g, x, 1.0, -1.0, slope)
    })
}

/// `value` where `x` is this number, else `elsewhere`.
fn at_number(
    g: &mut GradientContext<'_>,
    x: Output,
    number: f64,
    value: f64,
    elsewhere: Output,
) -> Result<Output> {
    let (number, value) = (g.number_like(x, number)?, g.number_like(x, value)?);
    let is_there = g.add("Equal", &[x, number])?;
    g.select(is_there, value, elsewhere)
}

/// `op` of x, minus y / x: the recurrence from order 0 to order 1.
fn order_one_slope(g: &mut GradientContext<'_>, op: &str, x: Output) -> Result<Output> {
    let (value, quotient) = (g.add(op, &[x])?, g.over(g.output(0), x)?);
    g.minus(value, quotient)
}

pub(crate) fn bessel_i1_grad(g: &mut GradientContext<'_>) -> Result<()> {
    chain_input(g, |g, x| {
        let slope = order_one_slope(g, "BesselI0", x)?;
        // TensorFlow's value; the derivative at 0 is 1/2.
        at_number(g, x, 0.0, 1.0, slope)
    })
}

pub(crate) fn bessel_j1_grad(g: &mut GradientContext<'_>) -> Result<()> {
    chain_input(g, |g, x| {
        let slope = order_one_slope(g, "BesselJ0", x)?;
        at_number(g, x, 0.0, 0.5, slope)
    })
}

pub(crate) fn bessel_y1_grad(g: &mut GradientContext<'_>) -> Result<()> {
    chain_input(g, |g, x| order_one_slope(g, "BesselY0", x))
}

/// -K₀ - y / x.
pub(crate) fn bessel_k1_grad(g: &mut GradientContext<'_>) -> Result<()> {
    chain_input(g, |g, x| {
        let (order_zero, quotient) = (g.add("BesselK0", &[x])?, g.over(g.output(0), x)?);
        let sum = g.plus(order_zero, quotient)?;
        g.negated(sum)
    })
}

/// I₁e - y sign x.
pub(crate) fn bessel_i0e_grad(g: &mut GradientContext<'_>) -> Result<()> {
    chain_input(g, |g, x| {
        let (order_one, sign) = (g.add("BesselI1e", &[x])?, g.add("Sign", &[x])?);
        let decay = g.times(sign, g.output(0))?;
        g.minus(order_one, decay)
    })
}

/// I₀e - y (sign x + 1/x).
pub(crate) fn bessel_i1e_grad(g: &mut GradientContext<'_>) -> Result<()> {
    chain_input(g, |g, x| {
        let (order_zero, sign) = (g.add("BesselI0e", &[x])?, g.add("Sign", &[x])?);
        let inverse = g.reciprocal(x)?;
        let rate = g.plus(sign, inverse)?;
        let decay = g.times(g.output(0), rate)?;
        let slope = g.minus(order_zero, decay)?;
        at_number(g, x, 0.0, 0.5, slope)
    })
}

/// y - K₁e.
pub(crate) fn bessel_k0e_grad(g: &mut GradientContext<'_>) -> Result<()> {
    chain_input(g, |g, x| {
        let order_one = g.add("BesselK1e", &[x])?;
        g.minus(g.output(0), order_one)
    })
}

/// y (1 - 1/x) - K₀e.
pub(crate) fn bessel_k1e_grad(g: &mut GradientContext<'_>) -> Result<()> {
    chain_input(g, |g, x| {
        let (order_zero, inverse) = (g.add("BesselK0e", &[x])?, g.reciprocal(x)?);
        let rate = g.number_minus(1.0, inverse)?;
        let growth = g.times(g.output(0), rate)?;
        g.minus(growth, order_zero)
    })
}

/// By `a` the op `IgammaGradA`, by `x` the density x^(a-1) e^-x / Γ(a); `sign` is that of the
/// function.
pub(crate) fn igamma_grad(g: &mut GradientContext<'_>, sign: f64) -> Result<()> {
    let (grad, a, x) = (g.grad(0)?, g.input(0), g.input(1));
    let grad = if sign < 0.0 { g.negated(grad)? } else { grad };
    let by_a = g.add("IgammaGradA", &[a, x])?;
    let (less, logarithm) = (g.shifted(a, -1.0)?, g.add("Log", &[x])?);
    let power = g.times(less, logarithm)?;
    let (falling, scale) = (g.minus(power, x)?, g.add("Lgamma", &[a])?);
    let exponent = g.minus(falling, scale)?;
    let by_x = g.add("Exp", &[exponent])?;
    for (i, slope) in [(0, by_a), (1, by_x)] {
        let adjoint = g.times(slope, grad)?;
        set_repeated(g, i, adjoint)?;
    }
    Ok(())
}

/// By `x` the polygamma function of the next order; none by the order.
pub(crate) fn polygamma_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, order, x) = (g.grad(0)?, g.input(0), g.input(1));
    let next = g.shifted(order, 1.0)?;
    let slope = g.add("Polygamma", &[next, x])?;
    let adjoint = g.times(slope, grad)?;
    set_repeated(g, 1, adjoint)
}

/// By `q` only: -x ζ(x + 1, q).
pub(crate) fn zeta_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, q) = (g.grad(0)?, g.input(0), g.input(1));
    let (next, negative) = (g.shifted(x, 1.0)?, g.negated(x)?);
    let value = g.add("Zeta", &[next, q])?;
    let slope = g.times(negative, value)?;
    let adjoint = g.times(slope, grad)?;
    set_repeated(g, 1, adjoint)
}

/// By `x` only: the density x^(a-1) (1-x)^(b-1) / B(a, b).
pub(crate) fn betainc_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, a, b, x) = (g.grad(0)?, g.input(0), g.input(1), g.input(2));
    let sum = g.plus(a, b)?;
    let (of_a, of_b) = (g.add("Lgamma", &[a])?, g.add("Lgamma", &[b])?);
    let (of_both, of_sum) = (g.plus(of_a, of_b)?, g.add("Lgamma", &[sum])?);
    let log_beta = g.minus(of_both, of_sum)?;
    let (a_less, b_less, negative) = (g.shifted(a, -1.0)?, g.shifted(b, -1.0)?, g.negated(x)?);
    let (rising, falling) = (g.add("Xlogy", &[a_less, x])?, g.add("Xlog1py", &[b_less, negative])?);
    let logarithm = g.plus(falling, rising)?;
    let exponent = g.minus(logarithm, log_beta)?;
    let slope = g.add("Exp", &[exponent])?;
    let adjoint = g.times(slope, grad)?;
    set_repeated(g, 2, adjoint)
}
