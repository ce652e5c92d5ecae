//! Functions of complex numbers in double precision, with the branch cuts and signed zeros of C's
//! library.

use num_complex::Complex64;

/// i z.
fn times_i(z: Complex64) -> Complex64 {
    Complex64::new(-z.im, z.re)
}

/// -i z.
fn times_minus_i(z: Complex64) -> Complex64 {
    Complex64::new(z.im, -z.re)
}

/// `zero * factor`, and `zero` where `zero` is exactly 0 and `factor` may be infinite.
fn scaled(zero: f64, factor: f64) -> f64 {
    if zero == 0.0 { zero } else { zero * factor }
}

/// e^z.
pub(crate) fn exp(z: Complex64) -> Complex64 {
    let radius = z.re.exp();
    Complex64::new(radius * z.im.cos(), scaled(z.im.sin(), radius))
}

/// e^z - 1, without cancellation near zero.
pub(crate) fn expm1(z: Complex64) -> Complex64 {
    let half_sine = (z.im / 2.0).sin();
    let re = z.re.exp_m1() * z.im.cos() - 2.0 * half_sine * half_sine;
    Complex64::new(re, scaled(z.im.sin(), z.re.exp()))
}

/// ln(1 + z), without cancellation near zero.
pub(crate) fn log1p(z: Complex64) -> Complex64 {
    let is_near = z.re.abs() < 0.5 && z.im.abs() < 0.5;
    let re = if is_near {
        (z.re * (2.0 + z.re) + z.im * z.im).ln_1p() / 2.0
    } else {
        (1.0 + z.re).hypot(z.im).ln()
    };
    Complex64::new(re, z.im.atan2(1.0 + z.re))
}

/// sinh z.
pub(crate) fn sinh(z: Complex64) -> Complex64 {
    Complex64::new(scaled(z.re.sinh(), z.im.cos()), scaled(z.im.sin(), z.re.cosh()))
}

/// cosh z.
pub(crate) fn cosh(z: Complex64) -> Complex64 {
    Complex64::new(z.re.cosh() * z.im.cos(), scaled(z.im.sin(), z.re.sinh()))
}

/// tanh z; its parts do not overflow far from the imaginary axis.
pub(crate) fn tanh(z: Complex64) -> Complex64 {
    if z.re.abs() > 20.0 {
        let small = 2.0 * (2.0 * z.im).sin() * (-2.0 * z.re.abs()).exp();
        return Complex64::new(1f64.copysign(z.re), if small.is_nan() { 0.0 } else { small });
    }
    z.tanh()
}

/// sin z.
pub(crate) fn sin(z: Complex64) -> Complex64 {
    times_minus_i(sinh(times_i(z)))
}

/// cos z.
pub(crate) fn cos(z: Complex64) -> Complex64 {
    cosh(times_i(z))
}

/// tan z.
pub(crate) fn tan(z: Complex64) -> Complex64 {
    times_minus_i(tanh(times_i(z)))
}

/// √(1 - z) and √(1 + z), with the signs of zeros that the branch cuts need.
fn roots(z: Complex64) -> (Complex64, Complex64) {
    (Complex64::new(1.0 - z.re, -z.im).sqrt(), Complex64::new(1.0 + z.re, z.im).sqrt())
}

/// Inverse sine, after Kahan.
pub(crate) fn asin(z: Complex64) -> Complex64 {
    let (below, above) = roots(z);
    let re = z.re.atan2((below * above).re);
    Complex64::new(re, libm::asinh((below.conj() * above).im))
}

/// Inverse cosine, after Kahan.
pub(crate) fn acos(z: Complex64) -> Complex64 {
    let (below, above) = roots(z);
    Complex64::new(2.0 * below.re.atan2(above.re), libm::asinh((above.conj() * below).im))
}

/// Inverse hyperbolic tangent, after Kahan.
pub(crate) fn atanh(z: Complex64) -> Complex64 {
    let (x, y) = (z.re, z.im);
    let re = (4.0 * x / ((1.0 - x) * (1.0 - x) + y * y)).ln_1p() / 4.0;
    let im = (2.0 * y).atan2((1.0 - x) * (1.0 + x) - y * y) / 2.0;
    Complex64::new(if x < 0.0 { -atanh(-z).re } else { re }, im)
}

/// Inverse tangent.
pub(crate) fn atan(z: Complex64) -> Complex64 {
    times_minus_i(atanh(times_i(z)))
}

/// Inverse hyperbolic sine.
pub(crate) fn asinh(z: Complex64) -> Complex64 {
    times_minus_i(asin(times_i(z)))
}

/// Inverse hyperbolic cosine, after Kahan.
pub(crate) fn acosh(z: Complex64) -> Complex64 {
    let below = Complex64::new(z.re - 1.0, z.im).sqrt();
    let above = Complex64::new(z.re + 1.0, z.im).sqrt();
    Complex64::new(libm::asinh((below.conj() * above).re), 2.0 * below.im.atan2(above.re))
}

/// x to the power of y.
pub(crate) fn power(x: Complex64, y: Complex64) -> Complex64 {
    // ln 0 is infinite and has no argument, so a base of 0 is handled apart.
    if x.re == 0.0 && x.im == 0.0 {
        let nothing = if y.re > 0.0 { 0.0 } else { f64::NAN };
        return Complex64::new(nothing, nothing);
    }
    if y.im == 0.0 && y.re.fract() == 0.0 && y.re.abs() <= 64.0 {
        return x.powi(y.re as i32);
    }
    exp(y * x.ln())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: Complex64, b: Complex64) {
        assert!((a - b).norm() <= 1e-12 * b.norm().max(1e-300), "{a} is not {b}");
    }

    #[test]
    fn near_and_far() {
        let z = Complex64::new(1e-9, 2e-9);
        close(expm1(z), z + z * z / 2.0);
        close(log1p(z), z - z * z / 2.0);
        assert_eq!(tanh(Complex64::new(800.0, 1.0)).re, 1.0);
        assert_eq!(tanh(Complex64::new(-800.0, 1.0)).re, -1.0);
        close(tanh(Complex64::new(21.0, 0.4)), Complex64::new(21.0, 0.4).tanh());
        assert_eq!(exp(Complex64::new(1e10, 0.0)), Complex64::new(f64::INFINITY, 0.0));
    }

    #[test]
    fn inverses_invert() {
        for (re, im) in [(0.3, -0.7), (-2.0, 1.0), (1.5, 0.2), (-0.1, -3.0), (4.0, 4.0)] {
            let z = Complex64::new(re, im);
            close(sin(asin(z)), z);
            close(cos(acos(z)), z);
            close(tan(atan(z)), z);
            close(sinh(asinh(z)), z);
            close(cosh(acosh(z)), z);
            close(tanh(atanh(z)), z);
            let root = power(z, Complex64::new(2.5, 0.0));
            close(root * root, power(z, Complex64::new(5.0, 0.0)));
        }
    }

    #[test]
    fn cuts_are_continuous_from_the_side_that_zeroes_say() {
        let above = Complex64::new(2.0, 0.0);
        close(asin(above), Complex64::new(std::f64::consts::FRAC_PI_2, 1.316_957_896_924_816_6));
        close(acos(above), Complex64::new(0.0, -1.316_957_896_924_816_6));
        assert!(atanh(above).im > 0.0 && atanh(above.conj()).im < 0.0);
    }
}
