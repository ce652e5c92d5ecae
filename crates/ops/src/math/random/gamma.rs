//! The derivative of a gamma-distributed value with respect to its shape.
//!
//! A value `x` and its shape `a` satisfy `P(a, x) = const`, where `P` is the regularized lower
//! incomplete gamma function, so `dx/da = -(dP/da) / (dP/dx)`. `P` is a series or a continued
//! fraction times `x^a e^-x / Gamma(a)`; the common factor cancels, and the remaining factor is
//! differentiated term by term with dual numbers.

use std::ops::{Add, Div, Mul, Sub};

/// Precision of the element type; it determines which terms are negligible.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Precision {
    /// Unit roundoff: half the distance from 1 to the next number.
    rounding: f64,
    /// Densities with a smaller logarithm are treated as zero, and the derivative is then zero.
    log_density_min: f64,
    terms_max: usize,
}

/// Precision of `f32`; the arithmetic is in `f64` nevertheless.
pub(crate) const SINGLE: Precision =
    Precision { rounding: f32::EPSILON as f64 / 2.0, log_density_min: -88.722_84, terms_max: 200 };

/// Precision of `f64`.
pub(crate) const DOUBLE: Precision = Precision {
    rounding: f64::EPSILON / 2.0,
    log_density_min: -709.782_712_893_384,
    terms_max: 500,
};

/// d sample / d alpha, for a sample of the gamma distribution of shape `alpha` and rate 1.
pub(crate) fn sample_derivative(alpha: f64, sample: f64, precision: Precision) -> f64 {
    if sample == 0.0 {
        return 0.0;
    }
    if sample.is_nan() || alpha.is_nan() || sample < 0.0 || alpha <= 0.0 {
        return f64::NAN;
    }
    let log_density = alpha * sample.ln() - sample - libm::lgamma(alpha);
    if log_density < precision.log_density_min || log_density.is_nan() {
        return 0.0;
    }
    if sample > 1.0 && sample > alpha {
        let tail = tail_fraction(alpha, sample, precision);
        (tail.slope + tail.value * (sample.ln() - digamma(alpha))) * sample
    } else {
        let sum = series(alpha, sample, precision);
        -(sum.slope + sum.value * (sample.ln() - digamma(alpha + 1.0))) * sample / alpha
    }
}

/// The sum of `x^n / ((a+1) ... (a+n))` over `n >= 0`.
fn series(a: f64, x: f64, precision: Precision) -> Dual {
    let mut divisor = Dual::variable(a);
    let mut term = Dual::constant(1.0);
    let mut sum = term;
    for _ in 0..precision.terms_max {
        divisor = divisor + Dual::constant(1.0);
        term = term * (Dual::constant(x) / divisor);
        sum = sum + term;
        if term.slope.abs() <= precision.rounding * sum.slope.abs() {
            break;
        }
    }
    sum
}

/// The continued fraction of the upper incomplete gamma function, evaluated by its convergents.
fn tail_fraction(a: f64, x: f64, precision: Precision) -> Dual {
    let scale_max = 1.0 / f64::EPSILON;
    let mut y = Dual::constant(1.0) - Dual::variable(a);
    let mut z = y + Dual::constant(x + 1.0);
    let mut numerators = [Dual::constant(1.0), Dual::constant(x + 1.0)];
    let mut denominators = [Dual::constant(x), z * Dual::constant(x)];
    let mut fraction = numerators[1] / denominators[1];
    for count in 1..=precision.terms_max {
        y = y + Dual::constant(1.0);
        z = z + Dual::constant(2.0);
        let weight = y * Dual::constant(count as f64);
        let step = |[before, last]: [Dual; 2]| [last, last * z - before * weight];
        numerators = step(numerators);
        denominators = step(denominators);
        if denominators[1].value != 0.0 {
            let previous = fraction;
            fraction = numerators[1] / denominators[1];
            if (fraction.slope - previous.slope).abs() <= precision.rounding {
                break;
            }
        }
        if numerators[1].value.abs() > scale_max {
            let shrink = |dual: Dual| dual * Dual::constant(f64::EPSILON);
            numerators = numerators.map(shrink);
            denominators = denominators.map(shrink);
        }
    }
    fraction
}

/// The logarithmic derivative of the gamma function, for positive arguments.
fn digamma(x: f64) -> f64 {
    // From this argument on, the asymptotic expansion is exact to double precision.
    const LARGE: f64 = 10.0;
    let mut shift = 0.0;
    let mut x = x;
    while x < LARGE {
        shift += 1.0 / x;
        x += 1.0;
    }
    let square = 1.0 / (x * x);
    // Bernoulli numbers B(2n) / 2n, highest first.
    const COEFFICIENTS: [f64; 7] = [
        1.0 / 12.0,
        -691.0 / 32760.0,
        1.0 / 132.0,
        -1.0 / 240.0,
        1.0 / 252.0,
        -1.0 / 120.0,
        1.0 / 12.0,
    ];
    let tail = COEFFICIENTS.iter().fold(0.0, |sum, coefficient| (sum + coefficient) * square);
    x.ln() - 0.5 / x - tail - shift
}

/// A dual number: a value and its derivative with respect to the shape.
#[derive(Clone, Copy, Debug)]
struct Dual {
    value: f64,
    slope: f64,
}

impl Dual {
    fn constant(value: f64) -> Self {
        Self { value, slope: 0.0 }
    }

    fn variable(value: f64) -> Self {
        Self { value, slope: 1.0 }
    }
}

impl Add for Dual {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { value: self.value + other.value, slope: self.slope + other.slope }
    }
}

impl Sub for Dual {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self { value: self.value - other.value, slope: self.slope - other.slope }
    }
}

impl Mul for Dual {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        let slope = self.slope * other.value + self.value * other.slope;
        Self { value: self.value * other.value, slope }
    }
}

impl Div for Dual {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        let value = self.value / other.value;
        Self { value, slope: (self.slope - value * other.slope) / other.value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shape, sample and derivative.
    const EXPECTED: [(f64, f64, f64); 12] = [
        (0.001, 1e-06, 0.013239952850876239),
        (0.001, 0.001, 6.339511118616953),
        (0.001, 0.02, 68.48091998065482),
        (0.1, 0.09000000000000001, 2.009802199958133),
        (0.5, 0.5, 1.3373525943353344),
        (0.5, 10.0, 4.162989887060221),
        (1.0, 1.0, 1.1735630272247275),
        (1.0, 20.0, 3.620666483951484),
        (2.0, 2.0, 1.0862085766363292),
        (2.0, 40.0, 3.3733575998678456),
        (10.0, 10.0, 1.0168234904310758),
        (100.0, 100.0, 1.0016683237741728),
    ];

    #[test]
    fn derivative_is_tensorflow_s() {
        for (alpha, sample, expected) in EXPECTED {
            let ours = sample_derivative(alpha, sample, DOUBLE);
            assert!((ours - expected).abs() <= 1e-13 * expected.abs(), "{alpha} {sample}: {ours}");
            let ours = sample_derivative(alpha, sample, SINGLE);
            assert!((ours - expected).abs() <= 1e-5 * expected.abs(), "{alpha} {sample}: {ours}");
        }
        assert_eq!(sample_derivative(2.0, 0.0, DOUBLE), 0.0);
        assert_eq!(sample_derivative(2.0, f64::INFINITY, DOUBLE), 0.0);
        assert!(sample_derivative(-2.0, 1.0, DOUBLE).is_nan());
        assert!(sample_derivative(f64::NAN, 1.0, DOUBLE).is_nan());
    }
}
