//! Conversion between half and single precision, eight elements at a time with F16C.

use half::f16;
use half::slice::HalfFloatSliceExt;
use thalweg_tensor::{DType, Element};

use crate::operand::{Binary, BinaryLoop};

/// Widens; `out` is as long as `x`.
pub(crate) fn widen(x: &[f16], out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "as many out as in");
    // SAFETY: both have the stated length, and `out` is borrowed exclusively.
    unsafe { widen_raw(x.as_ptr(), out.as_mut_ptr(), x.len()) }
}

/// Widens into memory that need not be initialized.
///
/// # Safety
///
/// `x` is valid for reading `n` elements and `out` for writing `n` elements, with exclusive access
/// to `out`.
pub(crate) unsafe fn widen_raw(x: *const f16, out: *mut f32, n: usize) {
    #[cfg(target_arch = "x86_64")]
    if super::simd::has_avx2() {
        // SAFETY: the machine has the instructions, as was just seen; the rest is the caller's
        // promise.
        return unsafe { widen_f16c(x, out, n) };
    }
    for i in 0..n {
        // SAFETY: as the caller promises.
        unsafe { out.add(i).write((*x.add(i)).to_f32()) };
    }
}

/// Rounds to the nearest, ties to even; `out` is as long as `x`.
pub(crate) fn narrow(x: &[f32], out: &mut [f16]) {
    assert_eq!(x.len(), out.len(), "as many out as in");
    #[cfg(target_arch = "x86_64")]
    if super::simd::has_avx2() {
        // SAFETY: the machine has the instructions, as was just seen.
        return unsafe { narrow_f16c(x, out) };
    }
    out.convert_from_f32_slice(x);
}

/// # Safety
/// As for [`widen_raw`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx,f16c")]
unsafe fn widen_f16c(x: *const f16, out: *mut f32, n: usize) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
    let whole = n / 8 * 8;
    for i in (0..whole).step_by(8) {
        // SAFETY: as the caller promises; neither needs alignment.
        unsafe {
            let halves = _mm_loadu_si128(x.add(i).cast());
            _mm256_storeu_ps(out.add(i), _mm256_cvtph_ps(halves));
        }
    }
    for i in whole..n {
        // SAFETY: as the caller promises.
        unsafe { out.add(i).write((*x.add(i)).to_f32()) };
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx,f16c")]
fn narrow_f16c(x: &[f32], out: &mut [f16]) {
    use std::arch::x86_64::{
        _MM_FROUND_TO_NEAREST_INT, _mm_storeu_si128, _mm256_cvtps_ph, _mm256_loadu_ps,
    };
    let (eights, rest) = x.as_chunks::<8>();
    let (out_eights, out_rest) = out.as_chunks_mut::<8>();
    for (x, out) in eights.iter().zip(out_eights) {
        // SAFETY: both have room for eight elements, and need no alignment.
        unsafe {
            let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(x.as_ptr()));
            _mm_storeu_si128(out.as_mut_ptr().cast(), halves);
        }
    }
    for (x, out) in rest.iter().zip(out_rest) {
        *out = f16::from_f32(*x);
    }
}

/// A loop that widens, applies `Op` and rounds eight elements at a time; `None` if the machine
/// lacks F16C or `Op` does not return floats.
pub(crate) fn zip_loop<Op: Binary<f32>>() -> Option<BinaryLoop> {
    #[cfg(target_arch = "x86_64")]
    if Op::Out::DTYPE == DType::Float && Op::IS_SIMD && super::simd::has_avx2() {
        return Some(zip_f16c::<Op>);
    }
    None
}

/// # Safety
/// All three pointers are valid for `n` halves, with exclusive access to `out`; either operand may
/// be the output. The machine has F16C and AVX, and `Op::Out` is `f32`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn zip_f16c<Op: Binary<f32>>(x: *const u8, y: *const u8, out: *mut u8, n: usize) {
    use std::arch::x86_64::{
        _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_cvtph_ps,
        _mm256_cvtps_ph, _mm256_loadu_ps, _mm256_storeu_ps,
    };
    let (x, y, out) = (x.cast::<f16>(), y.cast::<f16>(), out.cast::<f16>());
    let whole = n / 8 * 8;
    for i in (0..whole).step_by(8) {
        let (mut a, mut b, mut c) = ([0f32; 8], [0f32; 8], [0f32; 8]);
        // SAFETY: as the caller promises; nothing here needs alignment.
        unsafe {
            let load = |from: *const f16| _mm256_cvtph_ps(_mm_loadu_si128(from.add(i).cast()));
            _mm256_storeu_ps(a.as_mut_ptr(), load(x));
            _mm256_storeu_ps(b.as_mut_ptr(), load(y));
            for ((c, &a), &b) in c.iter_mut().zip(&a).zip(&b) {
                *c = std::mem::transmute_copy(&Op::apply::<super::simd::Avx2>(a, b));
            }
            let rounded = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(c.as_ptr()));
            _mm_storeu_si128(out.add(i).cast(), rounded);
        }
    }
    for i in whole..n {
        // SAFETY: as the caller promises.
        unsafe {
            let (a, b) = ((*x.add(i)).to_f32(), (*y.add(i)).to_f32());
            let c: f32 = std::mem::transmute_copy(&Op::apply::<super::simd::Avx2>(a, b));
            out.add(i).write(f16::from_f32(c));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_goes_there_and_back() {
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        let mut wide = vec![0.0; all.len()];
        widen(&all, &mut wide);
        let mut back = vec![f16::ZERO; all.len()];
        narrow(&wide, &mut back);
        for ((half, wide), back) in all.iter().zip(&wide).zip(&back) {
            assert!(half.is_nan() && wide.is_nan() || *wide == half.to_f32(), "{half}");
            assert!(half.is_nan() && back.is_nan() || back == half, "{half}");
        }
    }

    #[test]
    fn rounding_is_to_even_at_any_length() {
        for n in 0..20 {
            let x: Vec<f32> = (0..n).map(|i| 2048.0 + i as f32).collect();
            let mut out = vec![f16::ZERO; n];
            narrow(&x, &mut out);
            let expected: Vec<f16> = x.iter().map(|&x| f16::from_f32(x)).collect();
            assert_eq!(out, expected);
        }
    }
}
