//! Branch-free single-precision functions that vectorize.
//!
//! Each is within two units in the last place of the true value (`tanh` and `sigmoid`: three),
//! for every argument. The polynomials are minimax fits of our own.

use std::f32::consts::FRAC_2_SQRT_PI;

use super::simd::Level;

/// Adding and subtracting this number rounds to the nearest integer, which is then in the low bits.
const ROUNDER: f32 = 12_582_912.0;
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// Two to the power of a whole number in the range of normal exponents.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// Range reduction: `x = n * ln 2 + r` with `|r| <= ln 2 / 2`, for `x` within the range of `exp`.
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
    // Beyond these bounds the result is infinite or zero; NaN passes both comparisons.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -105.0 { -105.0 } else { x };
    let (n, r) = reduce_by_ln_2::<L>(x);
    let mut p = 0.001_395_047_8;
    p = L::mul_add(p, r, 0.008_368_868);
    p = L::mul_add(p, r, 0.041_666_202);
    p = L::mul_add(p, r, 0.166_665_2);
    p = L::mul_add(p, r, 0.5);
    let y = L::mul_add(p, r * r, r) + 1.0;
    // Scales in two steps, because n may exceed the exponents of normal numbers.
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
    // The exponent for which the mantissa is in [sqrt(1/2), sqrt(2)).
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
    // The sign bit and the bits of zero are tested: with denormals-are-zero, comparisons treat
    // subnormal numbers as zero.
    let y = if (x.to_bits() as i32) < 0 || x.is_nan() { f32::NAN } else { y };
    if x.to_bits() << 1 == 0 { f32::NEG_INFINITY } else { y }
}

/// ln(1 + x).
#[inline(always)]
pub(crate) fn log1p<L: Level>(x: f32) -> f32 {
    // Kahan's correction adds the rounding error of the sum to first order.
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
    // For larger magnitudes the result rounds to one; NaN passes the comparison.
    let magnitude = x.abs();
    let t = if magnitude > 9.5 { 9.5 } else { magnitude };
    let grown = expm1_within::<L>(t + t);
    (grown / (grown + 2.0)).copysign(x)
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub(crate) fn sigmoid<L: Level>(x: f32) -> f32 {
    // The exponential is at most 1, so neither sign of `x` overflows.
    let e = exp::<L>(-x.abs());
    let y = (if x < 0.0 { e } else { 1.0 }) / (1.0 + e);
    if x.is_nan() { x } else { y }
}

/// Range reduction: the number of quarter turns nearest to `x`, and the remainder, at most an
/// eighth turn.
#[inline(always)]
fn quarter_turns(x: f32) -> (i32, f32) {
    // The first 33 bits of a quarter turn, so that products with integers of up to 20 bits are
    // exact, and its remainder.
    const HIGH: f64 = 1.570_796_326_734_125_6;
    const LOW: f64 = 6.077_100_506_506_192e-11;
    let x = f64::from(x);
    // Adding and subtracting 1.5 * 2^52 rounds to an integer.
    const ROUNDER: f64 = 6_755_399_441_055_744.0;
    let turns = (x * std::f64::consts::FRAC_2_PI + ROUNDER) - ROUNDER;
    let left = (x - turns * HIGH) - turns * LOW;
    (turns as i32, left as f32)
}

/// Sine for |x| <= pi/4.
#[inline(always)]
fn sin_near<L: Level>(x: f32) -> f32 {
    let t = x * x;
    let tail = L::mul_add(L::mul_add(-1.951_529_6e-4, t, 8.332_161e-3), t, -1.666_665_5e-1);
    L::mul_add(x * t, tail, x)
}

/// Cosine for |x| <= pi/4.
#[inline(always)]
fn cos_near<L: Level>(x: f32) -> f32 {
    let t = x * x;
    let tail = L::mul_add(L::mul_add(2.443_315_7e-5, t, -1.388_731_6e-3), t, 4.166_664_6e-2);
    L::mul_add(t * t, tail, L::mul_add(-0.5, t, 1.0))
}

/// Sine, for arguments that are not [`is_far`].
#[inline(always)]
pub(crate) fn sin<L: Level>(x: f32) -> f32 {
    let (turns, left) = quarter_turns(x);
    sin_of_turns::<L>(turns, left)
}

/// Cosine, for arguments that are not [`is_far`].
#[inline(always)]
pub(crate) fn cos<L: Level>(x: f32) -> f32 {
    let (turns, left) = quarter_turns(x);
    sin_of_turns::<L>(turns.wrapping_add(1), left)
}

/// Sine of `turns` quarter turns plus `left`.
#[inline(always)]
fn sin_of_turns<L: Level>(turns: i32, left: f32) -> f32 {
    let (sin, cos) = (sin_near::<L>(left), cos_near::<L>(left));
    let value = if turns & 1 == 0 { sin } else { cos };
    let sign = ((turns & 2) as u32) << 30;
    f32::from_bits(value.to_bits() ^ sign)
}

/// Whether [`sin`] and [`cos`] would lose digits: large angles, infinity and NaN.
#[inline(always)]
pub(crate) fn is_far(x: f32) -> bool {
    (x.abs() >= 1e6) | x.is_nan()
}

/// The error function as a rational approximation, accurate to seven digits.
#[inline(always)]
pub(crate) fn erf<L: Level>(x: f32) -> f32 {
    // For larger magnitudes the result rounds to one; NaN passes the comparison.
    let magnitude = x.abs();
    let x = if magnitude > 3.925 { 3.925f32.copysign(x) } else { x };
    let t = x * x;
    let mut p = 1.986_946_5e-8;
    for c in
        [-1.956_592e-6, 1.421_721_7e-4, 3.719_216e-3, 5.063_132e-2, 0.200_365_93, FRAC_2_SQRT_PI]
    {
        p = L::mul_add(p, t, c);
    }
    let mut q = 9.599_764e-4;
    for c in [1.439_009_6e-2, 0.115_180_31, 0.510_901_3, 1.0] {
        q = L::mul_add(q, t, c);
    }
    (x * p / q).clamp(-1.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::super::simd::{Baseline, Loop, run};
    use super::*;
    use crate::testing::pairs;

    /// Distance from the exact value in units in the last place.
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
    fn functions_of_part_of_the_line_are_close_there() {
        let mut worst = [0.0f64; 3];
        // Every 997th number of either sign.
        for bits in (0..u32::MAX).step_by(997) {
            let x = f32::from_bits(bits);
            if !is_far(x) {
                let exact = f64::from(x);
                worst[0] = worst[0].max(ulps(sin::<Baseline>(x), exact.sin()));
                worst[1] = worst[1].max(ulps(cos::<Baseline>(x), exact.cos()));
            }
            if x.is_finite() && x.abs() >= f32::MIN_POSITIVE {
                worst[2] = worst[2].max(ulps(erf::<Baseline>(x), libm::erf(f64::from(x))));
            }
        }
        assert!(worst[0] < 2.0 && worst[1] < 2.0 && worst[2] < 8.0, "{worst:?}");
        assert!(erf::<Baseline>(f32::NAN).is_nan());
        assert_eq!([erf::<Baseline>(f32::INFINITY), erf::<Baseline>(-9.0)], [1.0, -1.0]);
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
                for (&x, &y) in pairs(&values, &got) {
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
