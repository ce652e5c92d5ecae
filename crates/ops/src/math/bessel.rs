//! Bessel functions of orders zero and one, in double precision.
//!
//! Power series near zero, asymptotic series far away, and for the second kind in between the
//! continued fraction of Steed and Temme.

use std::f64::consts::{FRAC_2_PI, PI};

/// Euler's constant.
const GAMMA: f64 = 0.577_215_664_901_532_9;
/// From this argument on, the asymptotic series of `I` reaches full precision.
const FAR: f64 = 22.0;

/// e^-|x| I₀(x).
pub(crate) fn i0e(x: f64) -> f64 {
    let x = x.abs();
    if x < FAR { i_series(x, 0.0) * (-x).exp() } else { i_asymptotic(x, 0.0) }
}

/// e^-|x| I₁(x).
pub(crate) fn i1e(x: f64) -> f64 {
    let magnitude = x.abs();
    let value = if magnitude < FAR {
        i_series(magnitude, 1.0) * (-magnitude).exp()
    } else {
        i_asymptotic(magnitude, 1.0)
    };
    if x < 0.0 { -value } else { value }
}

/// I₀(x).
pub(crate) fn i0(x: f64) -> f64 {
    if x.abs() < FAR { i_series(x.abs(), 0.0) } else { times_exp(i0e(x), x) }
}

/// I₁(x).
pub(crate) fn i1(x: f64) -> f64 {
    if x.abs() < FAR {
        let value = i_series(x.abs(), 1.0);
        return if x < 0.0 { -value } else { value };
    }
    times_exp(i1e(x), x)
}

/// `scaled` times e^|x|, multiplied in two steps: e^|x| overflows before the product does.
fn times_exp(scaled: f64, x: f64) -> f64 {
    if x.is_infinite() {
        return if scaled.is_sign_negative() { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    let half = (x.abs() / 2.0).exp();
    scaled * half * half
}

/// Σ (x/2)^(2k + order) / (k! (k + order)!), all terms positive.
fn i_series(x: f64, order: f64) -> f64 {
    let quarter = x * x / 4.0;
    let mut term = if order == 0.0 { 1.0 } else { x / 2.0 };
    let (mut sum, mut k) = (term, 1.0);
    while term > sum * 1e-18 {
        term *= quarter / (k * (k + order));
        sum += term;
        k += 1.0;
    }
    if x.is_nan() { x } else { sum }
}

/// Hankel's series of e^-x I(x) for large `x`.
fn i_asymptotic(x: f64, order: f64) -> f64 {
    if x.is_infinite() {
        return 0.0;
    }
    let square = 4.0 * order * order;
    let (mut term, mut sum, mut k) = (1.0f64, 1.0, 1.0);
    while term.abs() > 1e-18 && k < 40.0 {
        let odd = 2.0 * k - 1.0;
        term *= -(square - odd * odd) / (8.0 * x * k);
        sum += term;
        k += 1.0;
    }
    sum / (2.0 * PI * x).sqrt()
}

/// K₀(x) and K₁(x), both times e^x.
fn k_scaled(x: f64) -> (f64, f64) {
    if x < 2.0 {
        let (k0, k1) = k_series(x);
        return (k0 * x.exp(), k1 * x.exp());
    }
    if x.is_infinite() {
        return (0.0, 0.0);
    }
    // Steed's continued fraction with Temme's sum, for order zero.
    let (mut b, mut d) = (2.0 * (1.0 + x), 1.0 / (2.0 * (1.0 + x)));
    let (mut h, mut delta) = (d, d);
    let (mut q1, mut q2) = (0.0, 1.0);
    let (mut a, mut c) = (-0.25, 0.25);
    let mut q = c;
    let mut s = 1.0 + q * delta;
    for i in 2..20_000 {
        let i = f64::from(i);
        a -= 2.0 * (i - 1.0);
        c = -a * c / i;
        let next = (q1 - b * q2) / a;
        q1 = q2;
        q2 = next;
        q += c * next;
        b += 2.0;
        d = 1.0 / (b + a * d);
        delta *= b * d - 1.0;
        h += delta;
        let change = q * delta;
        s += change;
        if (change / s).abs() < 1e-17 {
            break;
        }
    }
    let k0 = (PI / (2.0 * x)).sqrt() / s;
    (k0, k0 * (x + 0.5 - 0.25 * h) / x)
}

/// K₀ and K₁ near zero.
fn k_series(x: f64) -> (f64, f64) {
    let quarter = x * x / 4.0;
    let log = (x / 2.0).ln() + GAMMA;
    // Sums over (x²/4)^k / (k! (k + order)!) times harmonic numbers.
    let (mut term0, mut term1, mut harmonic) = (1.0, x / 2.0, 0.0);
    let (mut sum0, mut sum1) = (-log, 0.5 * term1);
    let (mut k, mut i1) = (1.0, term1);
    while k < 40.0 {
        term0 *= quarter / (k * k);
        term1 *= quarter / (k * (k + 1.0));
        harmonic += 1.0 / k;
        sum0 += term0 * (harmonic - log);
        sum1 += term1 * (harmonic + 0.5 / (k + 1.0));
        i1 += term1;
        k += 1.0;
        if term0 < 1e-20 {
            break;
        }
    }
    (sum0, 1.0 / x + log * i1 - sum1)
}

/// The value of K outside of its domain: NaN for NaN, infinity for `x <= 0`.
fn k_edge(x: f64) -> Option<f64> {
    // TensorFlow also returns infinity for negative arguments.
    if x.is_nan() { Some(x) } else { (x <= 0.0).then_some(f64::INFINITY) }
}

/// e^x K₀(x).
pub(crate) fn k0e(x: f64) -> f64 {
    k_edge(x).unwrap_or_else(|| k_scaled(x).0)
}

/// e^x K₁(x).
pub(crate) fn k1e(x: f64) -> f64 {
    k_edge(x).unwrap_or_else(|| k_scaled(x).1)
}

/// K₀(x).
pub(crate) fn k0(x: f64) -> f64 {
    k_edge(x).unwrap_or_else(|| if x < 2.0 { k_series(x).0 } else { over_exp(k_scaled(x).0, x) })
}

/// K₁(x).
pub(crate) fn k1(x: f64) -> f64 {
    k_edge(x).unwrap_or_else(|| if x < 2.0 { k_series(x).1 } else { over_exp(k_scaled(x).1, x) })
}

fn over_exp(scaled: f64, x: f64) -> f64 {
    if x.is_infinite() { 0.0 } else { scaled * (-x).exp() }
}

/// J₀(x).
pub(crate) fn j0(x: f64) -> f64 {
    libm::j0(x)
}

/// J₁(x).
pub(crate) fn j1(x: f64) -> f64 {
    libm::j1(x)
}

/// Y₀(x).
pub(crate) fn y0(x: f64) -> f64 {
    if x < 0.0 { f64::NEG_INFINITY } else { libm::y0(x) }
}

/// Y₁(x).
pub(crate) fn y1(x: f64) -> f64 {
    if x < 0.0 {
        return f64::NEG_INFINITY;
    }
    // `libm::y1` loses the leading term to underflow for smaller arguments.
    if x > 0.0 && x < 1e-300 { -FRAC_2_PI / x } else { libm::y1(x) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: f64, exact: f64) {
        assert!((got - exact).abs() <= 1e-13 * exact.abs(), "{got} is not {exact}");
    }

    #[test]
    fn known_values() {
        close(i0(1.0), 1.266_065_877_752_008_4);
        close(i1(-1.0), -0.565_159_103_992_485);
        close(i0e(21.9), i_asymptotic(21.9, 0.0));
        close(i1e(21.9), i_asymptotic(21.9, 1.0));
        close(k0(1.0), 0.421_024_438_240_708_34);
        close(k1(1.0), 0.601_907_230_197_234_6);
        close(k0e(3.0), k0(3.0) * 3f64.exp());
        close(k0(5.0), 0.003_691_098_334_042_594);
        close(k1(5.0), 0.004_044_613_445_452_164);
    }

    #[test]
    fn pieces_meet() {
        let (low, high) = (k_series(1.999_999_999), k_scaled(2.0));
        assert!((low.0 * 2f64.exp() / high.0 - 1.0).abs() < 1e-8);
        assert!((low.1 * 2f64.exp() / high.1 - 1.0).abs() < 1e-8);
        // The Wronskian ties all four together: I₀K₁ + I₁K₀ = 1/x.
        for x in [0.1, 1.0, 1.9, 2.1, 5.0, 15.0, 30.0, 200.0] {
            close(i0e(x) * k1e(x) + i1e(x) * k0e(x), 1.0 / x);
        }
    }

    #[test]
    fn edges() {
        assert_eq!((k0(0.0), k1e(0.0)), (f64::INFINITY, f64::INFINITY));
        assert!(k0(f64::NAN).is_nan() && i0(f64::NAN).is_nan());
        assert_eq!((k0(-1.0), y0(-1.0)), (f64::INFINITY, f64::NEG_INFINITY));
        assert_eq!((i0(800.0), i1(-800.0)), (f64::INFINITY, f64::NEG_INFINITY));
        assert_eq!(i0e(f64::INFINITY), 0.0);
    }
}
