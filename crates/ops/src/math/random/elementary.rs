//! Logarithm, sine and cosine for random ops: in single precision, without branches, so that loops
//! over them vectorize.
//!
//! Random floats have 23 random bits, so each function has only 2^23 different arguments here. For
//! each of them the result has the bits of glibc's `logf`, `sinf` and `cosf`, which TensorFlow
//! uses; hence results do not depend on the installed C library.

/// Table entry: `inverse` is `1 / x` for `x` in the middle of a sixteenth of an octave, and `log`
/// is `ln x`, such that `mantissa * inverse - 1` is small.
#[derive(Clone, Copy)]
pub(crate) struct Slice {
    pub(crate) inverse: f64,
    pub(crate) log: f64,
}

const fn slice(inverse: u64, log: u64) -> Slice {
    Slice { inverse: f64::from_bits(inverse), log: f64::from_bits(log) }
}

/// Start of the first table entry: about 0.7, so that the logarithm is exact near 1.
pub(crate) const FIRST_SLICE: u32 = 0x3f33_0000;

pub(crate) const SLICES: [Slice; 16] = [
    slice(0x3ff6_61ec_79f8_f3be, 0xbfd5_7bf7_808c_aade),
    slice(0x3ff5_71ed_4aaf_883d, 0xbfd2_bef0_a7c0_6ddb),
    slice(0x3ff4_9539_f0f0_10b0, 0xbfd0_1eae_7f51_3a67),
    slice(0x3ff3_c995_b0b8_0385, 0xbfcb_31d8_a682_24e9),
    slice(0x3ff3_0d19_0c88_64a5, 0xbfc6_574f_0ac0_7758),
    slice(0x3ff2_5e22_7b0b_8ea0, 0xbfc1_aa2b_c79c_8100),
    slice(0x3ff1_bb4a_4a1a_343f, 0xbfba_4e76_ce8c_0e5e),
    slice(0x3ff1_2358_f08a_e5ba, 0xbfb1_973c_5a61_1ccc),
    slice(0x3ff0_953f_4199_00a7, 0xbfa2_52f4_38e1_0c1e),
    slice(0x3ff0_0000_0000_0000, 0x0000_0000_0000_0000),
    slice(0x3fee_608c_fd9a_47ac, 0x3faa_a5aa_5df2_5984),
    slice(0x3fec_a4b3_1f02_6aa0, 0x3fbc_5e53_aa36_2eb4),
    slice(0x3feb_2036_576a_fce6, 0x3fc5_26e5_7720_db08),
    slice(0x3fe9_c2d1_63a1_aa2d, 0x3fcb_c286_0d22_4770),
    slice(0x3fe8_86e6_0378_41ed, 0x3fd1_058b_c8a0_7ee1),
    slice(0x3fe7_67dc_f553_4862, 0x3fd4_0430_57b6_ee09),
];

/// Coefficients of `ln(1 + r) - r` over `r^2`, lowest first.
pub(crate) const LOG_COEFFICIENTS: [f64; 3] = [
    f64::from_bits(0xbfdf_fffe_f20a_4123),
    f64::from_bits(0x3fd5_575b_0be0_0b6a),
    f64::from_bits(0xbfd0_0ea3_48b8_8334),
];

/// The natural logarithm of a positive normal number.
#[inline(always)]
pub(crate) fn ln(x: f32) -> f32 {
    let offset = x.to_bits().wrapping_sub(FIRST_SLICE);
    let exponent = f64::from(offset.cast_signed() >> 23);
    let mantissa = f64::from(f32::from_bits(x.to_bits().wrapping_sub(offset & 0xff80_0000)));
    let Slice { inverse, log } = SLICES[(offset >> 19 & 15) as usize];
    let r = mantissa * inverse - 1.0;
    let [a, b, c] = LOG_COEFFICIENTS;
    let curve = c * (r * r) + (b * r + a);
    (curve * (r * r) + (log + exponent * std::f64::consts::LN_2 + r)) as f32
}

/// Coefficients of the sine and cosine on an eighth of a turn, in powers of the squared angle.
pub(crate) const SINE_COEFFICIENTS: [f64; 3] = [
    f64::from_bits(0xbfc5_5554_5995_a603),
    f64::from_bits(0x3f81_1076_0523_0bc4),
    f64::from_bits(0xbf29_94eb_3774_cf24),
];
pub(crate) const COSINE_COEFFICIENTS: [f64; 4] = [
    f64::from_bits(0xbfdf_ffff_fd0c_621c),
    f64::from_bits(0x3fa5_5553_e106_8f19),
    f64::from_bits(0xbf56_c087_e89a_359d),
    f64::from_bits(0x3ef9_9343_027b_f8c3),
];

/// Quarter turns per radian, times 2^24, so that the number of quarter turns can be rounded as an
/// integer.
pub(crate) const QUARTERS_SCALED: f64 = f64::from_bits(0x4164_5f30_6dc9_c883);

/// Sine and cosine of an angle in `[0, 2 pi]`.
#[inline(always)]
pub(crate) fn sin_cos(angle: f32) -> (f32, f32) {
    let angle = f64::from(angle);
    // SAFETY: up to five quarters times 2^24 fit in 32 bits; an `as` would check the range again
    // and again, and keep the loop from becoming vector code.
    let scaled = unsafe { (angle * QUARTERS_SCALED).to_int_unchecked::<i32>() };
    let quarter = (scaled + (1 << 23)) >> 24;
    let x = angle - f64::from(quarter) * std::f64::consts::FRAC_PI_2;
    let square = x * x;
    let fourth = square * square;
    let cube = square * x;
    let [s1, s2, s3] = SINE_COEFFICIENTS;
    let [c1, c2, c3, c4] = COSINE_COEFFICIENTS;
    let sine = (x + cube * s1 + cube * square * (s2 + square * s3)) as f32;
    let cosine = (1.0 + square * c1 + fourth * c2 + fourth * square * (c3 + square * c4)) as f32;
    let (sine, cosine) = if quarter & 1 == 0 { (sine, cosine) } else { (cosine, sine) };
    (signed(sine, quarter & 2 != 0), signed(cosine, (quarter + 1) & 2 != 0))
}

#[inline(always)]
fn signed(x: f32, negative: bool) -> f32 {
    f32::from_bits(x.to_bits() ^ u32::from(negative) << 31)
}

/// Sine and cosine in double precision, in one call where the C library has one.
#[inline]
pub(crate) fn sin_cos_f64(angle: f64) -> (f64, f64) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn sincos(x: f64, sine: *mut f64, cosine: *mut f64);
        }
        let (mut sine, mut cosine) = (0.0, 0.0);
        // SAFETY: glibc's function of this signature writes its two results and nothing else.
        unsafe { sincos(angle, &mut sine, &mut cosine) };
        (sine, cosine)
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    angle.sin_cos()
}

#[cfg(test)]
mod tests {
    use super::super::distributions::{turn_f32, unit_f32};
    use super::*;

    /// Tests all arguments that occur; in unoptimized builds a sample.
    #[cfg(target_env = "gnu")]
    #[test]
    fn every_argument_gives_the_bits_of_glibc() {
        let step = if cfg!(debug_assertions) { 101 } else { 1 };
        let edges = [0, 1, (1 << 23) - 1, (1 << 22) - 1, 1 << 22, (1 << 21) - 1, 1 << 21];
        for bits in (0..1 << 23).step_by(step).chain(edges) {
            let x = unit_f32(bits).max(1e-7);
            assert_eq!(ln(x).to_bits(), x.ln().to_bits(), "ln {x}");
            let angle = turn_f32(bits);
            let (sine, cosine) = sin_cos(angle);
            assert_eq!(sine.to_bits(), angle.sin().to_bits(), "sin {angle}");
            assert_eq!(cosine.to_bits(), angle.cos().to_bits(), "cos {angle}");
        }
    }
}
