//! The AVX2 micro-kernel: 6 rows of two 256-bit registers leave four of the 16 for operands.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::kernel::{TileFn, tile, tiles};
use super::lanes::{Features, Lanes, LoadAs};

/// AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(super) struct Avx2;

/// 8 numbers of 32 bits.
#[derive(Clone, Copy)]
pub(super) struct F32x8(__m256);

/// 4 numbers of 64 bits.
#[derive(Clone, Copy)]
pub(super) struct F64x4(__m256d);

// SAFETY: runs `work` with the instructions that the caller vouches for.
unsafe impl Features for Avx2 {
    #[inline(always)]
    unsafe fn with_features<R>(work: impl FnOnce() -> R) -> R {
        // SAFETY: the caller vouches for AVX2, FMA and F16C.
        unsafe { with_avx2(work) }
    }
}

/// Implements [`Lanes`] method by method, each with the one intrinsic of its name.
macro_rules! lanes {
    (
        $lanes:ident of $len:literal $number:ty, mask $mask:ident,
        zero $zero:ident, splat $splat:ident,
        load $load:ident, load_partial $load_partial:ident,
        store $store:ident, store_partial $store_partial:ident,
        plus $plus:ident, plus_product $plus_product:ident,
        transpose $transpose:ident
    ) => {
        // SAFETY: a register of 256 bits has this many numbers; `tiles!` lists 6 kernels; each
        // method touches the numbers that its contract names, others being masked off.
        unsafe impl Lanes for $lanes {
            type Number = $number;
            const LEN: usize = $len;
            const ROWS: usize = 6;
            const VECTORS: usize = 2;
            const TILES: &'static [[TileFn<$number>; 3]] = tiles!(Self: 1 2 3 4 5 6);

            #[inline(always)]
            unsafe fn with_features<R>(work: impl FnOnce() -> R) -> R {
                // SAFETY: the caller vouches for AVX2, FMA and F16C.
                unsafe { with_avx2(work) }
            }

            #[inline(always)]
            unsafe fn prefetch(at: *const $number) {
                // SAFETY: a hint, which no address can make fault.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
            }

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: the caller vouches for AVX2.
                Self(unsafe { $zero() })
            }

            #[inline(always)]
            unsafe fn splat(x: $number) -> Self {
                // SAFETY: the caller vouches for AVX2.
                Self(unsafe { $splat(x) })
            }

            #[inline(always)]
            unsafe fn load(from: *const $number) -> Self {
                // SAFETY: the caller vouches for AVX2 and for `LEN` numbers at `from`.
                Self(unsafe { $load(from) })
            }

            #[inline(always)]
            unsafe fn load_partial(from: *const $number, count: usize) -> Self {
                // SAFETY: the caller vouches for AVX2 and for `count` numbers at `from`.
                Self(unsafe { $load_partial(from, $mask(count)) })
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut $number) {
                // SAFETY: the caller vouches for AVX2 and for room for `LEN` numbers at `to`.
                unsafe { $store(to, self.0) }
            }

            #[inline(always)]
            unsafe fn store_partial(self, to: *mut $number, count: usize) {
                // SAFETY: the caller vouches for AVX2 and for room for `count` numbers at `to`.
                unsafe { $store_partial(to, $mask(count), self.0) }
            }

            #[inline(always)]
            unsafe fn plus(self, x: Self) -> Self {
                // SAFETY: the caller vouches for AVX2.
                Self(unsafe { $plus(self.0, x.0) })
            }

            #[inline(always)]
            unsafe fn plus_product(self, x: Self, y: Self) -> Self {
                // SAFETY: the caller vouches for FMA.
                Self(unsafe { $plus_product(x.0, y.0, self.0) })
            }

            #[inline(always)]
            unsafe fn transpose(square: &mut [Self]) {
                // SAFETY: the caller vouches for AVX2.
                unsafe { $transpose(square) }
            }
        }

        // SAFETY: reads `LEN`, or the first `count`, numbers at `from`.
        unsafe impl LoadAs<$lanes> for $number {
            #[inline(always)]
            unsafe fn load(from: *const $number) -> $lanes {
                // SAFETY: the caller vouches for AVX2 and for `LEN` numbers at `from`.
                unsafe { <$lanes as Lanes>::load(from) }
            }

            #[inline(always)]
            unsafe fn load_partial(from: *const $number, count: usize) -> $lanes {
                // SAFETY: the caller vouches for AVX2 and for `count` numbers at `from`.
                unsafe { <$lanes as Lanes>::load_partial(from, count) }
            }
        }
    };
}

lanes! {
    F32x8 of 8 f32, mask first_of_8,
    zero _mm256_setzero_ps, splat _mm256_set1_ps,
    load _mm256_loadu_ps, load_partial _mm256_maskload_ps,
    store _mm256_storeu_ps, store_partial _mm256_maskstore_ps,
    plus _mm256_add_ps, plus_product _mm256_fmadd_ps,
    transpose transpose_8
}

lanes! {
    F64x4 of 4 f64, mask first_of_4,
    zero _mm256_setzero_pd, splat _mm256_set1_pd,
    load _mm256_loadu_pd, load_partial _mm256_maskload_pd,
    store _mm256_storeu_pd, store_partial _mm256_maskstore_pd,
    plus _mm256_add_pd, plus_product _mm256_fmadd_pd,
    transpose transpose_4
}

// SAFETY: reads 8 elements at `from`.
unsafe impl LoadAs<F32x8> for bf16 {
    #[inline(always)]
    unsafe fn load(from: *const bf16) -> F32x8 {
        // SAFETY: the caller vouches for AVX2 and for 8 elements of 16 bits at `from`. A bfloat16
        // is the upper half of the f32 of the same value.
        unsafe {
            let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            F32x8(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits)))
        }
    }
}

// SAFETY: reads 8 elements at `from`.
unsafe impl LoadAs<F32x8> for f16 {
    #[inline(always)]
    unsafe fn load(from: *const f16) -> F32x8 {
        // SAFETY: the caller vouches for F16C and for 8 elements of 16 bits at `from`.
        unsafe { F32x8(_mm256_cvtph_ps(_mm_loadu_si128(from.cast()))) }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn with_avx2<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// A mask of the first `count` of 8 lanes.
#[inline(always)]
unsafe fn first_of_8(count: usize) -> __m256i {
    // SAFETY: the caller vouches for AVX2.
    unsafe {
        _mm256_cmpgt_epi32(
            _mm256_set1_epi32(count as i32),
            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
        )
    }
}

/// A mask of the first `count` of 4 lanes.
#[inline(always)]
unsafe fn first_of_4(count: usize) -> __m256i {
    // SAFETY: the caller vouches for AVX2.
    unsafe { _mm256_cmpgt_epi64(_mm256_set1_epi64x(count as i64), _mm256_setr_epi64x(0, 1, 2, 3)) }
}

#[inline(always)]
unsafe fn transpose_8(square: &mut [F32x8]) {
    let square: &mut [F32x8; 8] = square.try_into().expect("a square of 8 registers");
    // SAFETY: the caller vouches for AVX2.
    unsafe {
        let mut pairs = [_mm256_setzero_pd(); 8];
        for i in (0..8).step_by(2) {
            let (x, y) = (square[i].0, square[i + 1].0);
            pairs[i] = _mm256_castps_pd(_mm256_unpacklo_ps(x, y));
            pairs[i + 1] = _mm256_castps_pd(_mm256_unpackhi_ps(x, y));
        }
        let mut fours = [_mm256_setzero_ps(); 8];
        for i in (0..8).step_by(4) {
            for j in 0..2 {
                let (x, y) = (pairs[i + j], pairs[i + j + 2]);
                fours[i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(x, y));
                fours[i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(x, y));
            }
        }
        // `fours[4 * g + c]` has rows `4 * g..` of columns `c` and `c + 4`.
        for c in 0..4 {
            let (x, y) = (fours[c], fours[4 + c]);
            square[c].0 = _mm256_permute2f128_ps::<0x20>(x, y);
            square[c + 4].0 = _mm256_permute2f128_ps::<0x31>(x, y);
        }
    }
}

#[inline(always)]
unsafe fn transpose_4(square: &mut [F64x4]) {
    let square: &mut [F64x4; 4] = square.try_into().expect("a square of 4 registers");
    // SAFETY: the caller vouches for AVX2.
    unsafe {
        let mut pairs = [_mm256_setzero_pd(); 4];
        for i in (0..4).step_by(2) {
            let (x, y) = (square[i].0, square[i + 1].0);
            pairs[i] = _mm256_unpacklo_pd(x, y);
            pairs[i + 1] = _mm256_unpackhi_pd(x, y);
        }
        // `pairs[2 * g + c]` has rows `2 * g..` of columns `c` and `c + 2`.
        for c in 0..2 {
            let (x, y) = (pairs[c], pairs[2 + c]);
            square[c].0 = _mm256_permute2f128_pd::<0x20>(x, y);
            square[c + 2].0 = _mm256_permute2f128_pd::<0x31>(x, y);
        }
    }
}
