//! Bessel functions of orders zero and one on accelerators, in double precision.
//!
//! Near zero integrals over the circle, or power series; far away Hankel's asymptotic series.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_4, PI};

use thalweg_hlo::{Comparison, Value};

use crate::lowering::is_negative;
use crate::special_lowering::{GAMMA, above, below, number, polynomial};

/// From this argument on, the asymptotic series reach full precision.
const FAR: f64 = 25.0;
/// Points of a quadrature over half the circle; its error is about J₂ₙ(25).
const POINTS: u32 = 64;

/// The coefficients aₖ of Hankel's series of this order, k = 0 .. 20, with the series' powers of 1/x.
fn hankel(order: f64) -> [f64; 21] {
    let (square, mut terms) = (4.0 * order * order, [1.0; 21]);
    for k in 1..terms.len() {
        let odd = 2.0 * k as f64 - 1.0;
        terms[k] = terms[k - 1] * (square - odd * odd) / (8.0 * k as f64);
    }
    terms
}

/// Σ aₖ (sign / x)^k.
fn hankel_sum(x: &Value, order: f64, sign: f64) -> Value {
    let mut terms = hankel(order);
    terms.reverse();
    polynomial(&(x.reciprocal() * sign), &terms)
}

/// The argument where a formula for large ones is used, elsewhere a harmless one.
fn far(x: &Value) -> Value {
    x.maximum(&x.scalar_like(FAR))
}

/// The argument where a formula for small ones is used, elsewhere a harmless one.
fn near(x: &Value) -> Value {
    x.minimum(&x.scalar_like(FAR))
}

/// e^-x I(x) of an order for x ≥ 0, e^-x/π ∫ e^(x cos t) cos(order t) dt over half the circle.
fn i_scaled(x: &Value, order: u32) -> Value {
    let small = near(x);
    let mut sum = x.zeros_like();
    for point in 0..POINTS {
        let t = PI * (f64::from(point) + 0.5) / f64::from(POINTS);
        let weight = (f64::from(order) * t).cos() / f64::from(POINTS);
        sum = sum + (&small * (t.cos() - 1.0)).exp() * weight;
    }
    let large = far(x);
    let asymptotic = hankel_sum(&large, f64::from(order), -1.0) / (&large * (2.0 * PI)).sqrt();
    below(x, FAR).select(&sum, &asymptotic)
}

pub(crate) fn i0e(x: &Value) -> Value {
    i_scaled(&x.abs(), 0)
}

pub(crate) fn i1e(x: &Value) -> Value {
    // The quadrature cancels near zero, where the function is x / 2.
    let a = x.abs();
    let tiny = &a * 0.5 * (a.square() * 0.125 + 1.0) * a.negate().exp();
    let value = below(&a, 1e-3).select(&tiny, &i_scaled(&a, 1));
    is_negative(x).select(&value.negate(), &value)
}

/// `scaled` times e^|x|, in two steps, because e^|x| overflows before the product does.
fn times_exp(scaled: &Value, x: &Value) -> Value {
    let half = (x.abs() * 0.5).exp();
    let product = scaled * &half * &half;
    let infinite = x.sign().abs() * f64::INFINITY;
    let infinite = is_negative(scaled).select(&infinite.negate(), &infinite);
    let is_infinite = x.abs().compare_to(Comparison::Equal, f64::INFINITY);
    is_infinite.select(&infinite, &product)
}

pub(crate) fn i0(x: &Value) -> Value {
    times_exp(&i0e(x), x)
}

pub(crate) fn i1(x: &Value) -> Value {
    let value = times_exp(&i1e(&x.abs()), x);
    is_negative(x).select(&value.negate(), &value)
}

/// The oscillating functions far away: √(2 / πx) times the cosine and sine of the phase, combined with
/// the even and odd terms of Hankel's series.
struct Wave {
    first: Value,
    second: Value,
}

impl Wave {
    fn new(x: &Value, order: u32) -> Wave {
        let terms = hankel(f64::from(order));
        let inverse = x.reciprocal();
        let square = inverse.square().negate();
        let every_other = |from: usize| -> Vec<f64> {
            let mut part: Vec<f64> = terms.iter().skip(from).step_by(2).copied().collect();
            part.reverse();
            part
        };
        let even = polynomial(&square, &every_other(0));
        let odd = polynomial(&square, &every_other(1)) * inverse;
        let phase = x - FRAC_PI_4 * f64::from(2 * order + 1);
        let (cosine, sine) = (phase.cosine(), phase.sine());
        let amplitude = (x.reciprocal() * FRAC_2_PI).sqrt();
        let first = &amplitude * (&even * &cosine - &odd * &sine);
        Wave { first, second: amplitude * (even * sine + odd * cosine) }
    }
}

/// Σ wⱼ cos(x sin tⱼ) and Σ wⱼ sin tⱼ sin(x sin tⱼ) over the points of the quadrature.
fn circle(x: &Value, weight: impl Fn(f64) -> f64) -> (Value, Value) {
    let (mut cosines, mut sines) = (x.zeros_like(), x.zeros_like());
    // The points of the second quarter repeat those of the first.
    for point in 0..POINTS / 2 {
        let t = PI * (f64::from(point) + 0.5) / f64::from(POINTS);
        let (w, angle) = (2.0 * weight(t) / f64::from(POINTS), x * t.sin());
        cosines = cosines + angle.cosine() * w;
        sines = sines + angle.sine() * (w * t.sin());
    }
    (cosines, sines)
}

fn of_large(x: &Value, small: &Value, large: &Value) -> Value {
    let value = below(x, FAR).select(small, large);
    x.compare_to(Comparison::Equal, f64::INFINITY).select(&x.zeros_like(), &value)
}

pub(crate) fn j0(x: &Value) -> Value {
    let a = x.abs();
    of_large(&a, &circle(&near(&a), |_| 1.0).0, &Wave::new(&far(&a), 0).first)
}

pub(crate) fn j1(x: &Value) -> Value {
    let a = x.abs();
    let value = of_large(&a, &circle(&near(&a), |_| 1.0).1, &Wave::new(&far(&a), 1).first);
    is_negative(x).select(&value.negate(), &value)
}

/// The weight of Neumann's series Σ (-1)^k J₂ₖ / k as an integral over the circle.
fn neumann(t: f64) -> f64 {
    let term = |k: u32| {
        let sign = if k.is_multiple_of(2) { 1.0 } else { -1.0 };
        sign * (2.0 * f64::from(k) * t).cos() / f64::from(k)
    };
    (1..=30).map(term).sum()
}

/// Minus infinity at zero and, as in TensorFlow, below.
fn y_edges(x: &Value, value: &Value) -> Value {
    let is_low = x.compare_to(Comparison::LessEqual, 0.0);
    is_low.select(&number(x, f64::NEG_INFINITY), value)
}

pub(crate) fn y0(x: &Value) -> Value {
    let small = near(x);
    let log = (&small * 0.5).log() + GAMMA;
    let (j0, neumann) = (circle(&small, |_| 1.0).0, circle(&small, neumann).0);
    let value = log * j0 * FRAC_2_PI - neumann * (2.0 * FRAC_2_PI);
    y_edges(x, &of_large(x, &value, &Wave::new(&far(x), 0).second))
}

/// Y₁ is minus the derivative of Y₀.
pub(crate) fn y1(x: &Value) -> Value {
    let small = near(x);
    let log = (&small * 0.5).log() + GAMMA;
    let ((j0, j1), neumann) = (circle(&small, |_| 1.0), circle(&small, neumann).1);
    let value = (log * j1 - j0 / &small) * FRAC_2_PI - neumann * (2.0 * FRAC_2_PI);
    y_edges(x, &of_large(x, &value, &Wave::new(&far(x), 1).second))
}

/// K₀ and K₁ below 1, by series.
fn k_series(x: &Value) -> (Value, Value) {
    let quarter = x.square() * 0.25;
    let log = (x * 0.5).log() + GAMMA;
    let (mut term0, mut term1, mut harmonic) = (x.ones_like(), x * 0.5, 0.0);
    let (mut sum0, mut sum1, mut i1) = (log.negate(), &term1 * 0.5, term1.clone());
    for k in 1..=12 {
        let k = f64::from(k);
        term0 = term0 * &quarter / (k * k);
        term1 = term1 * &quarter / (k * (k + 1.0));
        harmonic += 1.0 / k;
        sum0 = sum0 + &term0 * (log.negate() + harmonic);
        sum1 = sum1 + &term1 * (harmonic + 0.5 / (k + 1.0));
        i1 = i1 + &term1;
    }
    (sum0, x.reciprocal() + log * i1 - sum1)
}

/// e^x K(x) of an order from 1 on: ∫ e^(x - x cosh t) cosh(order t) dt, and Hankel's series far away.
fn k_scaled(x: &Value, order: u32) -> Value {
    /// Spacing of the quadrature.
    const H: f64 = 0.15;
    let small = near(x);
    let mut sum = number(x, 0.5 * H);
    for point in 1..=30 {
        let t = H * f64::from(point);
        sum = sum + (&small * (1.0 - t.cosh())).exp() * ((f64::from(order) * t).cosh() * H);
    }
    let large = far(x);
    let asymptotic = hankel_sum(&large, f64::from(order), 1.0) / (large * FRAC_2_PI).sqrt();
    below(x, FAR).select(&sum, &asymptotic)
}

/// Infinity at zero and, as in TensorFlow, below; NaN of NaN.
fn k_edges(x: &Value, value: &Value) -> Value {
    let is_low = x.compare_to(Comparison::LessEqual, 0.0);
    let value = x.compare_to(Comparison::Equal, f64::INFINITY).select(&x.zeros_like(), value);
    is_low.select(&number(x, f64::INFINITY), &value)
}

/// K of an order, times e^x if `is_scaled`.
fn k(x: &Value, order: u32, is_scaled: bool) -> Value {
    let (k0, k1) = k_series(&x.minimum(&x.scalar_like(1.0)));
    let series = if order == 0 { k0 } else { k1 };
    let (series, large) = match is_scaled {
        true => (series * x.minimum(&x.scalar_like(1.0)).exp(), k_scaled(x, order)),
        false => (series, k_scaled(x, order) * x.negate().exp()),
    };
    k_edges(x, &above(x, 1.0).select(&large, &series))
}

pub(crate) fn k0(x: &Value) -> Value {
    k(x, 0, false)
}

pub(crate) fn k1(x: &Value) -> Value {
    k(x, 1, false)
}

pub(crate) fn k0e(x: &Value) -> Value {
    k(x, 0, true)
}

pub(crate) fn k1e(x: &Value) -> Value {
    k(x, 1, true)
}
