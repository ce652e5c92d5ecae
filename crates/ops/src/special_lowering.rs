//! Special functions on accelerators, in double precision unless said otherwise.
//!
//! The formulas are those of `math/special.rs`, `math/gamma.rs` and `math/bessel.rs`, or ones that need no
//! branches: quadratures of integrals, which converge exponentially, and expansions in Chebyshev
//! polynomials.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};

use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::Lowering;
use thalweg_tensor::{DType, Result};

use crate::lowering::{is_negative, is_zero, set_narrow, wide_unary, with_sign_of};
use crate::math::gamma::BERNOULLI;

/// Euler's constant.
pub(crate) const GAMMA: f64 = 0.577_215_664_901_532_9;

/// Lowers a function of one input that is computed in double precision.
pub(crate) fn in_double(l: &mut Lowering<'_>, f: impl FnOnce(&Value) -> Value) -> Result<()> {
    let x = l.input(0)?.convert(DType::Double);
    set_narrow(l, 0, &f(&x))
}

/// As [`in_double`], for two inputs.
pub(crate) fn pair_in_double(
    l: &mut Lowering<'_>,
    f: impl FnOnce(&Value, &Value) -> Value,
) -> Result<()> {
    let (x, y) = (l.input(0)?.convert(DType::Double), l.input(1)?.convert(DType::Double));
    set_narrow(l, 0, &f(&x, &y))
}

/// `x < bound`.
pub(crate) fn below(x: &Value, bound: f64) -> Value {
    x.compare_to(Comparison::Less, bound)
}

/// `x > bound`.
pub(crate) fn above(x: &Value, bound: f64) -> Value {
    x.compare_to(Comparison::Greater, bound)
}

/// A constant of the shape of `x`.
pub(crate) fn number(x: &Value, constant: f64) -> Value {
    x.full_like(constant)
}

/// The polynomial with these coefficients, that of the highest power first.
pub(crate) fn polynomial(x: &Value, coefficients: &[f64]) -> Value {
    coefficients.iter().fold(x.zeros_like(), |sum, &c| sum * x + c)
}

/// The Chebyshev series with these coefficients, by Clenshaw's recurrence.
fn chebyshev(x: &Value, coefficients: &[f64]) -> Value {
    let twice = x * 2.0;
    let (mut a, mut b) = (x.zeros_like(), x.zeros_like());
    for &c in coefficients[1..].iter().rev() {
        (a, b) = (&twice * &a - b + c, a);
    }
    x * a - b + coefficients[0]
}

/// (1 + 2x) e^x² erfc(x) for x ≥ 0, by (x - 3.75) / (x + 3.75).
const ERFC: [f64; 26] = [
    1.177_578_934_567_401_8,
    -0.004_590_054_580_646_478,
    -0.084_249_133_366_517_92,
    0.059_209_939_998_191_89,
    -0.026_658_668_435_305_752,
    0.009_074_997_670_705_265,
    -0.002_413_163_540_417_608,
    0.000_490_775_836_525_808_6,
    -6.916_973_302_501_207e-5,
    4.139_027_986_073_01e-6,
    7.740_383_066_198_49e-7,
    -2.188_640_104_923_439_6e-7,
    1.076_499_946_567_091e-8,
    4.521_959_811_218_287e-9,
    -7.754_400_208_831_351e-10,
    -6.318_088_340_886_684e-11,
    2.868_795_010_930_67e-11,
    1.945_586_854_577_735e-13,
    -9.654_696_748_433_44e-13,
    3.252_548_148_148_741_3e-14,
    3.347_811_948_286_807e-14,
    -1.864_562_880_419_299_1e-15,
    -1.250_795_053_068_851e-15,
    7.418_235_256_625_416e-17,
    5.068_148_904_797_470_4e-17,
    -2.237_056_659_422_547e-18,
];

/// The complementary error function.
pub(crate) fn erfc(x: &Value) -> Value {
    let a = x.abs();
    // Of infinity the quotient would be NaN; the result is 0 long before.
    let finite = a.minimum(&a.scalar_like(1e3));
    let t = (&finite - 3.75) / (&finite + 3.75);
    let tail = chebyshev(&t, &ERFC) / (&finite * 2.0 + 1.0) * finite.square().negate().exp();
    is_negative(x).select(&(tail.negate() + 2.0), &tail)
}

/// The error function.
pub(crate) fn erf(x: &Value) -> Value {
    // x (1 - x²/3 + x⁴/10 - ..) 2/√π
    let mut terms = Vec::new();
    let mut factorial = 1.0;
    for n in 0..14 {
        terms.push(FRAC_2_SQRT_PI / (factorial * f64::from(2 * n + 1)));
        factorial *= -f64::from(n + 1);
    }
    terms.reverse();
    let near = x * polynomial(&x.square(), &terms);
    let far = with_sign_of(&(erfc(&x.abs()).negate() + 1.0), x);
    below(&x.abs(), 0.5).select(&near, &far)
}

/// The error function in single precision, by the rational approximation of the CPU kernel.
fn single_erf(x: &Value) -> Value {
    let x = x.clamp(&x.scalar_like(-3.925), &x.scalar_like(3.925));
    let square = x.square();
    let p = polynomial(
        &square,
        &[
            1.986_946_5e-8,
            -1.956_592e-6,
            1.421_721_7e-4,
            3.719_216e-3,
            5.063_132e-2,
            0.200_365_93,
            FRAC_2_SQRT_PI,
        ],
    );
    let q = polynomial(&square, &[9.599_764e-4, 1.439_009_6e-2, 0.115_180_31, 0.510_901_3, 1.0]);
    let one = x.scalar_like(1.0);
    (x * p / q).clamp(&one.negate(), &one)
}

/// `Erf` occurs in activation functions, so single precision stays single.
pub(crate) fn lower_erf(l: &mut Lowering<'_>) -> Result<()> {
    wide_unary(l, |x| if x.dtype() == DType::Double { erf(x) } else { single_erf(x) })
}

/// Winitzki's approximation of √2 erfinv(y), by ln(1 - y²).
fn normal_guess(log: &Value) -> Value {
    const A: f64 = 0.147;
    let middle = log * 0.5 + 2.0 / (PI * A);
    let root = (middle.square() - log / A).sqrt();
    let without_cancellation = log.negate() / A / (&root + &middle);
    above(&middle, 0.0).select(&without_cancellation, &(root - &middle)).sqrt()
        * std::f64::consts::SQRT_2
}

/// The normal quantile of a probability of at most one half.
fn quantile_of_tail(p: &Value) -> Value {
    // 1 - y² for y = 1 - 2p.
    let rest = p * 4.0 * (p.ones_like() - p);
    let log = below(&rest, 0.5).select(&rest.log(), &(&rest - 1.0).log_plus_one());
    let mut x = normal_guess(&log).negate();
    for _ in 0..4 {
        let density = (x.square() * -0.5).exp() / (2.0 * PI).sqrt();
        let error = (erfc(&(&x * -FRAC_1_SQRT_2)) * 0.5 - p) / &density;
        let step = &error / (&x * &error * 0.5 + 1.0);
        let is_lost = is_zero(&density);
        x = is_lost.select(&x, &(&x - step));
    }
    x
}

/// The inverse of the standard normal distribution function.
pub(crate) fn ndtri(p: &Value) -> Value {
    let is_low = p.compare_to(Comparison::LessEqual, 0.5);
    let tail = quantile_of_tail(&is_low.select(p, &(p.ones_like() - p)));
    let x = is_low.select(&tail, &tail.negate());
    let x = is_zero(p).select(&number(p, f64::NEG_INFINITY), &x);
    let x = p.compare_to(Comparison::Equal, 1.0).select(&number(p, f64::INFINITY), &x);
    let is_outside = is_negative(p).or(&above(p, 1.0));
    is_outside.select(&number(p, f64::NAN), &x)
}

/// The inverse error function.
pub(crate) fn erfinv(y: &Value) -> Value {
    let a = y.abs();
    let far = quantile_of_tail(&((a.ones_like() - &a) * 0.5)) * -FRAC_1_SQRT_2;
    let mut near = normal_guess(&a.square().negate().log_plus_one()) * FRAC_1_SQRT_2;
    for _ in 0..3 {
        let slope = near.square().negate().exp() * FRAC_2_SQRT_PI;
        let error = (erf(&near) - &a) / slope;
        near = &near - &error / (&near * &error + 1.0);
    }
    let x = above(&a, 0.5).select(&far, &near);
    let x = a.compare_to(Comparison::Equal, 1.0).select(&number(y, f64::INFINITY), &x);
    let x = above(&a, 1.0).select(&number(y, f64::NAN), &x);
    with_sign_of(&x, y)
}

/// The argument of Stirling's series is at least this.
const STIRLING_FROM: usize = 12;

/// `x`, or for arguments below the range of Stirling's series, one that is within.
fn shifted(x: &Value) -> (Value, Value) {
    let is_small = below(x, STIRLING_FROM as f64);
    (is_small.select(&(x + STIRLING_FROM as f64), x), is_small)
}

/// ln Γ(x) for positive `x`.
fn positive_lgamma(x: &Value) -> Value {
    let (z, is_small) = shifted(x);
    // Σ B₂ₖ / (2k (2k - 1) z^(2k-1))
    let inverse = z.reciprocal();
    let mut terms: Vec<f64> =
        (1..=8).map(|k| BERNOULLI[k - 1] / ((2 * k) as f64 * (2 * k - 1) as f64)).collect();
    terms.reverse();
    let rest = &inverse * polynomial(&inverse.square(), &terms);
    let stirling = (&z - 0.5) * z.log() - &z + 0.5 * (2.0 * PI).ln() + rest;
    // Γ(x + n) = x (x + 1) .. (x + n - 1) Γ(x)
    let product = (1..STIRLING_FROM).fold(x.clone(), |product, n| product * (x + n as f64));
    is_small.select(&(&stirling - product.log()), &stirling)
}

/// The distance to the nearest integer, with a sign: what periodic functions depend on.
fn fraction(x: &Value) -> Value {
    x - x.round_half_even()
}

/// ln |Γ(x)|.
pub(crate) fn lgamma(x: &Value) -> Value {
    let is_low = below(x, 0.5);
    let positive = positive_lgamma(&is_low.select(&(x.ones_like() - x), x));
    let sine = (fraction(x) * PI).sine().abs();
    let reflected = sine.log().negate() + PI.ln() - &positive;
    let value = is_low.select(&reflected, &positive);
    x.abs().compare_to(Comparison::Equal, f64::INFINITY).select(&number(x, f64::INFINITY), &value)
}

/// The derivative of ln Γ; NaN at its poles.
pub(crate) fn digamma(x: &Value) -> Value {
    let is_low = x.compare_to(Comparison::LessEqual, 0.0);
    let y = is_low.select(&(x.ones_like() - x), x);
    let (z, is_small) = shifted(&y);
    let inverse = z.reciprocal();
    let mut terms: Vec<f64> = (1..=8).map(|k| BERNOULLI[k - 1] / (2 * k) as f64).collect();
    terms.reverse();
    let square = inverse.square();
    let series = z.log() - &inverse * 0.5 - &square * polynomial(&square, &terms);
    let sums = (0..STIRLING_FROM).fold(y.zeros_like(), |sum, n| sum + (&y + n as f64).reciprocal());
    let positive = is_small.select(&(&series - sums), &series);
    let reflected = &positive - (fraction(x) * PI).tan().reciprocal() * PI;
    let value = is_low.select(&reflected, &positive);
    let is_pole = is_low.and(&x.compare(Comparison::Equal, &x.floor()));
    let value = is_pole.select(&number(x, f64::NAN), &value);
    x.compare_to(Comparison::Equal, f64::INFINITY).select(x, &value)
}

/// Dawson's integral, by Rybicki's sum over odd numbers around `x`, a series near 0.
pub(crate) fn dawson(x: &Value) -> Value {
    /// Spacing of the sum; its error is about e^-(π / 2h)².
    const H: f64 = 0.25;
    let a = x.abs();
    let square = x.square() * 2.0;
    let mut near = x.ones_like();
    for n in (1..=10).rev() {
        near = near.ones_like() - &square / f64::from(2 * n + 1) * near;
    }
    let bounded = a.minimum(&a.scalar_like(1e8));
    let centre = (&bounded / (2.0 * H)).round_half_even() * 2.0;
    let offset = bounded - &centre * H;
    let mut sum = x.zeros_like();
    for k in -20..20 {
        let n = f64::from(2 * k + 1);
        sum = sum + (&offset - n * H).square().negate().exp() / (&centre + n);
    }
    let middle = with_sign_of(&(sum / PI.sqrt()), x);
    let result = below(&a, 0.2).select(&(x * near), &middle);
    above(&a, 1e8).select(&(x.reciprocal() * 0.5), &result)
}

/// Σ 1 / (q + n)^x, Hurwitz's zeta function, by Euler and Maclaurin.
pub(crate) fn zeta(x: &Value, q: &Value) -> Value {
    let (x, q) = (x.plus(&q.zeros_like()), q.plus(&x.zeros_like()));
    // Terms before the remainder: as many as take the base beyond 10.
    let initial = [q.scalar_like(0.0), q.clone(), q.zeros_like()];
    let is_early = |v: &[Value]| {
        let is_open = v[1].compare_to(Comparison::LessEqual, 10.0).or(&below(&v[0], 10.0));
        is_open.and(&below(&v[0], ZETA_TERMS_MAX))
    };
    let condition = |v: &[Value]| any(&is_early(v));
    let sums = Value::repeat_while(&initial, condition, |v| {
        let is_early = is_early(v);
        let (a, sum) = (&v[1], &v[2]);
        let more = sum + a.power(&x.negate());
        vec![&v[0] + 1.0, is_early.select(&(a + 1.0), a), is_early.select(&more, sum)]
    });
    let (a, sum) = (&sums[1], &sums[2]);
    let edge = a.power(&x.negate());
    let mut total = sum + &edge * a / (&x - 1.0) + &edge * 0.5;
    let mut factor = &x * &edge / a;
    let mut factorial = 2.0;
    for (k, b) in BERNOULLI.iter().enumerate() {
        let k = 2.0 * k as f64;
        total = total + &factor * (b / factorial);
        factor = factor * (&x + (k + 1.0)) * (&x + (k + 2.0)) / a.square();
        factorial *= (k + 3.0) * (k + 4.0);
    }
    zeta_edges(&x, &q, &total)
}

/// Most terms that are added; arguments below minus this number have no exact value.
const ZETA_TERMS_MAX: f64 = 20_000.0;

/// The values of ζ(x, q) at poles and outside of its domain, elsewhere `inside`.
fn zeta_edges(x: &Value, q: &Value, inside: &Value) -> Value {
    let (infinity, nan) = (number(x, f64::INFINITY), number(x, f64::NAN));
    let is_integer = |v: &Value| v.compare(Comparison::Equal, &v.floor());
    let is_low = q.compare_to(Comparison::LessEqual, 0.0);
    let is_even = is_integer(&(x * 0.5));
    let at_pole = is_even.select(&infinity, &nan);
    let result = is_low.and(&is_integer(x).not()).select(&nan, inside);
    let result = is_low.and(&is_integer(q)).select(&at_pole, &result);
    let is_far = q.compare_to(Comparison::Equal, f64::INFINITY);
    let result = is_far.select(&x.zeros_like(), &result);
    // Of an infinite exponent only the base 1 is left.
    let of_base = below(q, 1.0).select(&infinity, &x.zeros_like());
    let of_base = q.compare_to(Comparison::Equal, 1.0).select(&x.ones_like(), &of_base);
    let result = x.compare_to(Comparison::Equal, f64::INFINITY).select(&of_base, &result);
    let is_valid = above(x, 1.0).and(&q.is_nan().not());
    let result = is_valid.select(&result, &nan);
    x.compare_to(Comparison::Equal, 1.0).select(&infinity, &result)
}

/// Whether any element holds.
pub(crate) fn any(x: &Value) -> Value {
    let dims: Vec<usize> = (0..x.rank()).collect();
    x.reduce(thalweg_hlo::Reduction::Or, &dims)
}

/// The derivative of order `n + 1` of ln Γ.
pub(crate) fn polygamma(n: &Value, x: &Value) -> Value {
    let (n, x) = (n.plus(&x.zeros_like()), x.plus(&n.zeros_like()));
    let next = &n + 1.0;
    let is_even = (&n * 0.5).compare(Comparison::Equal, &(&n * 0.5).floor());
    let sign = is_even.select(&number(&n, -1.0), &number(&n, 1.0));
    let value = sign * lgamma(&next).exp() * zeta(&next, &x);
    let is_valid =
        n.compare_to(Comparison::GreaterEqual, 0.0).and(&n.compare(Comparison::Equal, &n.floor()));
    let value = is_valid.select(&value, &number(&n, f64::NAN));
    is_zero(&n).select(&digamma(&x), &value)
}
