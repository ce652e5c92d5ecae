//! Single-precision functions without branches or calls, so that loops over them vectorise.
//!
//! Each is within two units in the last place of the true value (`tanh` and `sigmoid`: three),
//! for every argument. The polynomials are minimax fits of our own.

use super::simd::Level;

/// Adding and subtracting this rounds to the nearest integer, which then lies in the low bits.
const ROUNDER: f32 = 12_582_912.0;
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// Two to the power of a whole number in the range of normal exponents.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `x` cut into `n * ln 2 + r`, with `|r| <= ln 2 / 2`, for `x` within the range of `exp`.
#[inline(always)]
fn reduce_by_ln_2<L: Level>(x: f32) -> (i32, f32) {
    let shifted = L::mul_add(x, std::f32::consts::LOG2_E, ROUNDER);
    let n = shifted - ROUNDER;
    let r = L::mul_add(n, -LN_2_LOW, L::mul_add(n, -LN_2_HIGH, x));
    ((shifted.to_bits() as i32).wrapping_sub(ROUNDER.to_bits() as i32), r)
}

/// e^x.
#[inline(always)]
pub(crate) fn exp<L: Level>(x: f32) -> f32 {
    // Beyond these the result is infinite or zero; NaN passes both comparisons.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -105.0 { -105.0 } else { x };
    let (n, r) = reduce_by_ln_2::<L>(x);
    let mut p = 0.001_395_047_8;
    p = L::mul_add(p, r, 0.008_368_868);
    p = L::mul_add(p, r, 0.041_666_202);
    p = L::mul_add(p, r, 0.166_665_2);
    p = L::mul_add(p, r, 0.5);
    let y = L::mul_add(p, r * r, r) + 1.0;
    // In two steps, because n may lie outside the exponents of normal numbers.
    let half = n >> 1;
    y * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// e^x - 1.
#[inline(always)]
pub(crate) fn expm1<L: Level>(x: f32) -> f32 {
    let clamped = if x > 89.0 { 89.0 } else { x };
    let clamped = if clamped < -18.0 { -18.0 } else { clamped };
    let y = expm1_within::<L>(clamped);
    // Keeps the sign of a zero.
    if x == 0.0 { x } else { y }
}

/// e^x - 1 for `x` from -18 to 89.
#[inline(always)]
fn expm1_within<L: Level>(x: f32) -> f32 {
    let (n, r) = reduce_by_ln_2::<L>(x);
    let mut p = 0.000_198_457_05;
    p = L::mul_add(p, r, 0.001_394_058_1);
    p = L::mul_add(p, r, 0.008_333_39);
    p = L::mul_add(p, r, 0.041_666_362);
    p = L::mul_add(p, r, 0.166_666_66);
    p = L::mul_add(p, r, 0.5);
    let y = L::mul_add(p, r * r, r);
    // 2^n (1 + y) - 1, as 2 (2^(n-1) y + (2^(n-1) - 1/2)): 2^n itself may not be representable.
    let scale = power_of_two(n.wrapping_sub(1));
    2.0 * L::mul_add(y, scale, scale - 0.5)
}

/// Natural logarithm.
#[inline(always)]
pub(crate) fn log<L: Level>(x: f32) -> f32 {
    let is_tiny = x < f32::MIN_POSITIVE;
    let scaled = if is_tiny { x * 8_388_608.0 } else { x };
    let bits = scaled.to_bits() as i32;
    // Exponent such that the mantissa lies in [sqrt(1/2), sqrt(2)).
    let shifted = bits.wrapping_sub(0x3f35_04f3);
    let exponent = shifted >> 23;
    let mantissa = f32::from_bits(bits.wrapping_sub(exponent << 23) as u32);
    let e = exponent as f32 - if is_tiny { 23.0 } else { 0.0 };
    let f = mantissa - 1.0;
    let mut p = -0.076_326_77;
    p = L::mul_add(p, f, 0.127_585_26);
    p = L::mul_add(p, f, -0.131_595_27);
    p = L::mul_add(p, f, 0.142_022_2);
    p = L::mul_add(p, f, -0.166_234_69);
    p = L::mul_add(p, f, 0.200_012_03);
    p = L::mul_add(p, f, -0.250_008_17);
    p = L::mul_add(p, f, 0.333_333_3);
    let square = f * f;
    let tail = L::mul_add(e, LN_2_LOW, p * (f * square));
    let y = L::mul_add(e, LN_2_HIGH, L::mul_add(square, -0.5, tail) + f);
    let y = if x == f32::INFINITY { x } else { y };
    // By the sign bit, and zero by its bits: comparisons may take a denormal number for zero.
    let y = if (x.to_bits() as i32) < 0 || x.is_nan() { f32::NAN } else { y };
    if x.to_bits() << 1 == 0 { f32::NEG_INFINITY } else { y }
}

/// ln(1 + x).
#[inline(always)]
pub(crate) fn log1p<L: Level>(x: f32) -> f32 {
    // What the sum lost is put back to first order, after Kahan.
    let sum = 1.0 + x;
    let lost = x - (sum - 1.0);
    let corrected = log::<L>(sum) + lost / sum;
    let is_plain = sum == 1.0 || sum == f32::INFINITY;
    let y = if is_plain { x } else { corrected };
    if x == -1.0 { f32::NEG_INFINITY } else { y }
}

/// Hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh<L: Level>(x: f32) -> f32 {
    // Beyond, the nearest number is one; NaN passes the comparison.
    let magnitude = x.abs();
    let t = if magnitude > 9.5 { 9.5 } else { magnitude };
    let grown = expm1_within::<L>(t + t);
    (grown / (grown + 2.0)).copysign(x)
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub(crate) fn sigmoid<L: Level>(x: f32) -> f32 {
    // The exponential is at most 1, so that neither side of zero overflows.
    let e = exp::<L>(-x.abs());
    let y = (if x < 0.0 { e } else { 1.0 }) / (1.0 + e);
    if x.is_nan() { x } else { y }
}

#[cfg(test)]
mod tests {
    use super::super::simd::{Baseline, Loop, run};
    use super::*;

    /// Distance in units of the last place of the true value.
    fn ulps(got: f32, exact: f64) -> f64 {
        let nearest = exact as f32;
        if got == nearest || (got.is_nan() && nearest.is_nan()) {
            return 0.0;
        }
        let unit = f64::from(nearest.abs().next_up()) - f64::from(nearest.abs());
        if unit.is_finite() { (f64::from(got) - exact).abs() / unit } else { f64::INFINITY }
    }

    struct Each<'a>(usize, &'a [f32]);

    impl Loop for Each<'_> {
        type Output = Vec<f32>;

        #[inline(always)]
        fn run<L: Level>(self) -> Vec<f32> {
            let f = [exp::<L>, expm1::<L>, log::<L>, log1p::<L>, tanh::<L>, sigmoid::<L>][self.0];
            self.1.iter().map(|&x| f(x)).collect()
        }
    }

    #[test]
    fn close_to_the_true_value_everywhere() {
        let exact: [fn(f64) -> f64; 6] =
            [f64::exp, f64::exp_m1, f64::ln, f64::ln_1p, f64::tanh, |x| 1.0 / (1.0 + (-x).exp())];
        // All exponents, both signs, infinities and NaNs.
        let mut values: Vec<f32> = (0..=u32::MAX).step_by(100_003).map(f32::from_bits).collect();
        values.extend([0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
        values.extend([88.72, 88.73, -87.3, -103.9, -104.0, 0.625, 0.624_999, f32::MAX, f32::MIN]);
        for (i, exact) in exact.iter().enumerate() {
            for got in [run(Each(i, &values)), Each(i, &values).run::<Baseline>()] {
                for (&x, &y) in values.iter().zip(&got) {
                    let error = ulps(y, exact(f64::from(x)));
                    assert!(
                        error <= if i >= 4 { 3.0 } else { 2.0 },
                        "function {i} at {x:e} is {y:e}, off by {error} ulps"
                    );
                }
            }
        }
    }

    #[test]
    fn zeroes_keep_their_sign() {
        for f in [expm1::<Baseline>, log1p::<Baseline>, tanh::<Baseline>] {
            assert!(f(-0.0).is_sign_negative() && f(0.0).is_sign_positive());
        }
    }
}
