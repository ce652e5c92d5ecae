//! Special functions: integrals and inverses without a closed form, in double precision.
#![expect(clippy::neg_cmp_op_on_partial_ord, reason = "NaN must fail these comparisons")]

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, FRAC_PI_2, PI, SQRT_2};

/// The inverse error function.
pub(crate) fn erfinv(y: f64) -> f64 {
    if !(y.abs() <= 1.0) {
        return f64::NAN;
    }
    if y.abs() == 1.0 {
        return f64::INFINITY.copysign(y);
    }
    if y.abs() > 0.5 {
        return (-ndtri_of_tail((1.0 - y.abs()) / 2.0) * FRAC_1_SQRT_2).copysign(y);
    }
    let mut x = first_guess(y * y, -(y * y)).copysign(y) * FRAC_1_SQRT_2;
    for _ in 0..3 {
        let error = (libm::erf(x) - y) / (FRAC_2_SQRT_PI * (-x * x).exp());
        x -= error / (1.0 + x * error);
    }
    if y == 0.0 { y } else { x }
}

/// The inverse of the standard normal cumulative distribution function.
pub(crate) fn ndtri(p: f64) -> f64 {
    if !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    if p == 0.0 {
        return f64::NEG_INFINITY;
    }
    if p == 1.0 {
        return f64::INFINITY;
    }
    if p <= 0.5 { ndtri_of_tail(p) } else { -ndtri_of_tail(1.0 - p) }
}

/// Winitzki's approximation of √2 erfinv(y), with a relative error of a few thousandths, from y²
/// and -y², each as exact as the caller has it.
fn first_guess(square: f64, minus_square: f64) -> f64 {
    const A: f64 = 0.147;
    let log = if square < 0.5 { minus_square.ln_1p() } else { (1.0 + minus_square).ln() };
    let middle = 2.0 / (PI * A) + log / 2.0;
    // The difference of a root and its leading term, in the form without cancellation.
    let root = (middle * middle - log / A).sqrt();
    let result = if middle > 0.0 { (-log / A) / (root + middle) } else { root - middle };
    SQRT_2 * result.sqrt()
}

/// [`ndtri`] for a probability of at most one half.
fn ndtri_of_tail(p: f64) -> f64 {
    // 1 - y² for y = 1 - 2p.
    let rest = 4.0 * p * (1.0 - p);
    let mut x = -first_guess(1.0 - rest, rest - 1.0);
    if rest < 0.1 {
        // The difference above has lost digits, the logarithm has not.
        x = -tail_guess(rest.ln());
    }
    for _ in 0..4 {
        let density = (-x * x / 2.0).exp() / (2.0 * PI).sqrt();
        if density == 0.0 {
            break;
        }
        let error = (0.5 * libm::erfc(-x * FRAC_1_SQRT_2) - p) / density;
        x -= error / (1.0 + x * error / 2.0);
    }
    x
}

fn tail_guess(log: f64) -> f64 {
    const A: f64 = 0.147;
    let middle = 2.0 / (PI * A) + log / 2.0;
    SQRT_2 * ((middle * middle - log / A).sqrt() - middle).sqrt()
}

/// Dawson's integral, e^(-x²) ∫ e^(t²) dt from 0 to x.
pub(crate) fn dawson(x: f64) -> f64 {
    /// Spacing of the sum; its error is about e^-(π / 2h)².
    const H: f64 = 0.25;
    let magnitude = x.abs();
    if magnitude < 0.2 {
        // x (1 - 2x²/3 (1 - 2x²/5 (1 - ..)))
        let square = 2.0 * x * x;
        let mut sum = 1.0;
        for n in (1..=10).rev() {
            sum = 1.0 - square / (2.0 * f64::from(n) + 1.0) * sum;
        }
        return x * sum;
    }
    if magnitude > 1e8 {
        return 0.5 / x;
    }
    // Rybicki's exponentially convergent sum over odd numbers, centred on x.
    let centre = 2.0 * (magnitude / (2.0 * H)).round();
    let offset = magnitude - centre * H;
    let mut sum = 0.0;
    for k in -20..20 {
        let n = f64::from(2 * k + 1);
        let distance = offset - n * H;
        sum += (-distance * distance).exp() / (centre + n);
    }
    (sum / PI.sqrt()).copysign(x)
}

/// Spence's function, the dilogarithm of 1 - x.
pub(crate) fn spence(x: f64) -> f64 {
    if !(x >= 0.0) {
        return f64::NAN;
    }
    if x.is_infinite() {
        return f64::NEG_INFINITY;
    }
    if x == 0.0 {
        return PI * PI / 6.0;
    }
    if x > 2.0 {
        let log = x.ln();
        return -0.5 * log * log - spence(1.0 / x);
    }
    if x < 0.5 {
        return PI * PI / 6.0 - x.ln() * (-x).ln_1p() - dilogarithm_by_log(-(-x).ln_1p());
    }
    // Near one, the logarithm of the difference has more digits.
    dilogarithm_by_log(-(x - 1.0).ln_1p())
}

/// Li₂(1 - e^-u), by Bernoulli's numbers, for |u| of at most ln 2.
fn dilogarithm_by_log(u: f64) -> f64 {
    /// B₂ₖ / (2k + 1)!
    const TERMS: [f64; 9] = [
        2.777_777_777_777_778e-2,
        -2.777_777_777_777_778e-4,
        4.724_111_866_969_009e-6,
        -9.185_773_074_661_964e-8,
        1.897_886_998_897_1e-9,
        -4.064_761_645_144_225_6e-11,
        8.921_691_020_456_452e-13,
        -1.993_929_586_072_107_4e-14,
        4.518_980_029_619_918e-16,
    ];
    let square = u * u;
    let tail = TERMS.iter().rev().fold(0.0, |sum, term| sum * square + term);
    u - square / 4.0 + u * square * tail
}

/// The exponential integral Ei(x); NaN below zero.
pub(crate) fn expint(x: f64) -> f64 {
    const GAMMA: f64 = 0.577_215_664_901_532_9;
    if !(x >= 0.0) {
        return f64::NAN;
    }
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    if x.is_infinite() {
        return x;
    }
    let (mut term, mut sum, mut k) = (1.0, 0.0, 1.0);
    if x < 40.0 {
        while k < 500.0 {
            term *= x / k;
            sum += term / k;
            if term / k < 1e-18 * sum {
                break;
            }
            k += 1.0;
        }
        return GAMMA + x.ln() + sum;
    }
    while k < 60.0 {
        let next = term * k / x;
        if next > term || next < 1e-18 {
            break;
        }
        term = next;
        sum += term;
        k += 1.0;
    }
    // In two steps, because e^x overflows before the result does.
    let half = (x / 2.0).exp();
    half * ((1.0 + sum) / x) * half
}

/// The Fresnel integrals of sin and cos of πt²/2.
pub(crate) fn fresnel(x: f64) -> (f64, f64) {
    let magnitude = x.abs();
    let (sine, cosine) = if x.is_nan() {
        (x, x)
    } else if magnitude < 1.6 {
        fresnel_series(magnitude)
    } else if magnitude > 1e7 {
        (0.5, 0.5)
    } else {
        fresnel_fraction(magnitude)
    };
    if x < 0.0 { (-sine, -cosine) } else { (sine, cosine) }
}

fn fresnel_series(x: f64) -> (f64, f64) {
    let square = FRAC_PI_2 * x * x;
    // Terms i^n (πx²/2)^n / n! over 2n + 1; the real ones are for the cosine.
    let (mut term, mut sums, mut n) = (x, [x, 0.0, 0.0, 0.0], 1usize);
    while n < 60 {
        term *= square / n as f64;
        sums[n % 4] += term / (2 * n + 1) as f64;
        if term < 1e-18 * x {
            break;
        }
        n += 1;
    }
    (sums[1] - sums[3], sums[0] - sums[2])
}

fn fresnel_fraction(x: f64) -> (f64, f64) {
    use num_complex::Complex64;
    let square = PI * x * x;
    let mut b = Complex64::new(1.0, -square);
    let mut c = Complex64::new(1e300, 0.0);
    let mut d = b.inv();
    let mut h = d;
    let mut n = -1.0f64;
    for _ in 0..500 {
        n += 2.0;
        let a = -n * (n + 1.0);
        b += 4.0;
        d = (a * d + b).inv();
        c = b + a * c.inv();
        let delta = c * d;
        h *= delta;
        if (delta.re - 1.0).abs() + delta.im.abs() < 1e-16 {
            break;
        }
    }
    h *= Complex64::new(x, -x);
    // The angle πx²/2, with whole turns subtracted exactly from x².
    let (high, low) = (x * x, x.mul_add(x, -(x * x)));
    let angle = FRAC_PI_2 * (high % 4.0 + low);
    let rotation = Complex64::new(angle.cos(), angle.sin());
    let result = Complex64::new(0.5, 0.5) * (Complex64::new(1.0, 0.0) - rotation * h);
    (result.im, result.re)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: f64, exact: f64) {
        assert!((got - exact).abs() <= 2e-13 * exact.abs(), "{got} is not {exact}");
    }

    #[test]
    fn known_values() {
        close(ndtri(0.975), 1.959_963_984_540_054_5);
        close(ndtri(1e-300), -37.047_096_299_361_2);
        close(ndtri(0.5 + 1e-9), 2.506_628_203_738_711_4e-9);
        close(dawson(1.0), 0.538_079_506_912_768_4);
        close(dawson(0.1), 0.099_335_992_397_852_87);
        close(dawson(-30.0), -0.016_675_941_401_059_18);
        close(spence(0.25), 0.978_469_392_930_306_1);
        close(spence(3.0), -1.436_746_366_883_680_9);
        close(expint(1.0), 1.895_117_816_355_936_8);
        close(expint(50.0), 1.058_563_689_713_169e20);
        close(fresnel(1.0).0, 0.438_259_147_390_354_77);
        close(fresnel(3.0).1, 0.605_720_789_297_685_6);
    }

    #[test]
    fn inverses_invert() {
        for y in [1e-10, 0.1, 0.4999, 0.5001, 0.9, 0.999_999, -0.3] {
            close(libm::erf(erfinv(y)), y);
        }
        assert_eq!(erfinv(1.0), f64::INFINITY);
        assert!(erfinv(1.1).is_nan() && ndtri(-0.1).is_nan());
        assert_eq!(ndtri(0.0), f64::NEG_INFINITY);
    }

    #[test]
    fn pieces_meet() {
        let (series, fraction) = (fresnel_series(1.6), fresnel_fraction(1.6));
        close(series.0, fraction.0);
        close(series.1, fraction.1);
        assert!((dawson(0.199_999_999_9) / dawson(0.200_000_000_1) - 1.0).abs() < 1e-8);
        assert!((expint(39.999_999_999) / expint(40.000_000_001) - 1.0).abs() < 1e-8);
        assert!((spence(1.999_999_999) / spence(2.000_000_001) - 1.0).abs() < 1e-8);
    }
}
