//! The AVX-512 micro-kernel: 14 rows of two 512-bit registers leave four of the 32 for operands.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::kernel::{TileFn, tile, tiles};
use super::lanes::{Lanes, LoadAs};

/// 16 numbers of 32 bits.
#[derive(Clone, Copy)]
pub(super) struct F32x16(__m512);

/// 8 numbers of 64 bits.
#[derive(Clone, Copy)]
pub(super) struct F64x8(__m512d);

/// Implements [`Lanes`] method by method, each with the one intrinsic of its name.
macro_rules! lanes {
    (
        $lanes:ident of $len:literal $number:ty, mask $mask:ty,
        zero $zero:ident, splat $splat:ident,
        load $load:ident, load_partial $load_partial:ident,
        store $store:ident, store_partial $store_partial:ident,
        plus $plus:ident, plus_product $plus_product:ident,
        transpose $transpose:ident
    ) => {
        // SAFETY: a register of 512 bits has this many numbers; `tiles!` lists 14 kernels; each
        // method touches the numbers that its contract names, others being masked off.
        unsafe impl Lanes for $lanes {
            type Number = $number;
            const LEN: usize = $len;
            const ROWS: usize = 14;
            const VECTORS: usize = 2;
            const TILES: &'static [[TileFn<$number>; 3]] =
                tiles!(Self: 1 2 3 4 5 6 7 8 9 10 11 12 13 14);

            #[inline(always)]
            unsafe fn with_features<R>(work: impl FnOnce() -> R) -> R {
                // SAFETY: the caller vouches for AVX-512F.
                unsafe { with_avx512(work) }
            }

            #[inline(always)]
            unsafe fn prefetch(at: *const $number) {
                // SAFETY: a hint, which no address can make fault.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
            }

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: the caller vouches for AVX-512F.
                Self(unsafe { $zero() })
            }

            #[inline(always)]
            unsafe fn splat(x: $number) -> Self {
                // SAFETY: the caller vouches for AVX-512F.
                Self(unsafe { $splat(x) })
            }

            #[inline(always)]
            unsafe fn load(from: *const $number) -> Self {
                // SAFETY: the caller vouches for AVX-512F and for `LEN` numbers at `from`.
                Self(unsafe { $load(from) })
            }

            #[inline(always)]
            unsafe fn load_partial(from: *const $number, count: usize) -> Self {
                // SAFETY: the caller vouches for AVX-512F and for `count` numbers at `from`.
                Self(unsafe { $load_partial(first(count) as $mask, from) })
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut $number) {
                // SAFETY: the caller vouches for AVX-512F and for room for `LEN` numbers at `to`.
                unsafe { $store(to, self.0) }
            }

            #[inline(always)]
            unsafe fn store_partial(self, to: *mut $number, count: usize) {
                // SAFETY: the caller vouches for AVX-512F and for room for `count` numbers.
                unsafe { $store_partial(to, first(count) as $mask, self.0) }
            }

            #[inline(always)]
            unsafe fn plus(self, x: Self) -> Self {
                // SAFETY: the caller vouches for AVX-512F.
                Self(unsafe { $plus(self.0, x.0) })
            }

            #[inline(always)]
            unsafe fn plus_product(self, x: Self, y: Self) -> Self {
                // SAFETY: the caller vouches for AVX-512F.
                Self(unsafe { $plus_product(x.0, y.0, self.0) })
            }

            #[inline(always)]
            unsafe fn transpose(square: &mut [Self]) {
                // SAFETY: the caller vouches for AVX-512F.
                unsafe { $transpose(square) }
            }
        }

        // SAFETY: reads `LEN`, or the first `count`, numbers at `from`.
        unsafe impl LoadAs<$lanes> for $number {
            #[inline(always)]
            unsafe fn load(from: *const $number) -> $lanes {
                // SAFETY: the caller vouches for AVX-512F and for `LEN` numbers at `from`.
                unsafe { <$lanes as Lanes>::load(from) }
            }

            #[inline(always)]
            unsafe fn load_partial(from: *const $number, count: usize) -> $lanes {
                // SAFETY: the caller vouches for AVX-512F and for `count` numbers at `from`.
                unsafe { <$lanes as Lanes>::load_partial(from, count) }
            }
        }
    };
}

lanes! {
    F32x16 of 16 f32, mask __mmask16,
    zero _mm512_setzero_ps, splat _mm512_set1_ps,
    load _mm512_loadu_ps, load_partial _mm512_maskz_loadu_ps,
    store _mm512_storeu_ps, store_partial _mm512_mask_storeu_ps,
    plus _mm512_add_ps, plus_product _mm512_fmadd_ps,
    transpose transpose_16
}

lanes! {
    F64x8 of 8 f64, mask __mmask8,
    zero _mm512_setzero_pd, splat _mm512_set1_pd,
    load _mm512_loadu_pd, load_partial _mm512_maskz_loadu_pd,
    store _mm512_storeu_pd, store_partial _mm512_mask_storeu_pd,
    plus _mm512_add_pd, plus_product _mm512_fmadd_pd,
    transpose transpose_8
}

// SAFETY: reads 16 elements at `from`.
unsafe impl LoadAs<F32x16> for bf16 {
    #[inline(always)]
    unsafe fn load(from: *const bf16) -> F32x16 {
        // SAFETY: the caller vouches for AVX-512F and for 16 elements of 16 bits at `from`. A
        // bfloat16 is the upper half of the f32 of the same value.
        unsafe {
            let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            F32x16(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits)))
        }
    }
}

// SAFETY: reads 16 elements at `from`.
unsafe impl LoadAs<F32x16> for f16 {
    #[inline(always)]
    unsafe fn load(from: *const f16) -> F32x16 {
        // SAFETY: the caller vouches for AVX-512F and for 16 elements of 16 bits at `from`.
        unsafe { F32x16(_mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))) }
    }
}

#[target_feature(enable = "avx512f")]
unsafe fn with_avx512<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// A mask of the first `count` lanes, at most 16.
#[inline(always)]
fn first(count: usize) -> u32 {
    (1 << count) - 1
}

#[inline(always)]
unsafe fn transpose_16(square: &mut [F32x16]) {
    let square: &mut [F32x16; 16] = square.try_into().expect("a square of 16 registers");
    // SAFETY: the caller vouches for AVX-512F.
    unsafe {
        // Pairs of numbers, then of pairs, within the 128-bit quarters of each register.
        let mut pairs = [_mm512_setzero_pd(); 16];
        for i in (0..16).step_by(2) {
            let (x, y) = (square[i].0, square[i + 1].0);
            pairs[i] = _mm512_castps_pd(_mm512_unpacklo_ps(x, y));
            pairs[i + 1] = _mm512_castps_pd(_mm512_unpackhi_ps(x, y));
        }
        let mut fours = [_mm512_setzero_ps(); 16];
        for i in (0..16).step_by(4) {
            for j in 0..2 {
                let (x, y) = (pairs[i + j], pairs[i + j + 2]);
                fours[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
                fours[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
            }
        }
        // Then the quarters among registers: `fours[4 * g + c]` has rows `4 * g..` of columns `c`,
        // `c + 4`, `c + 8` and `c + 12`.
        for c in 0..4 {
            let (x, y) = (fours[c], fours[4 + c]);
            let (z, w) = (fours[8 + c], fours[12 + c]);
            let (xy_even, xy_odd) =
                (_mm512_shuffle_f32x4::<0x88>(x, y), _mm512_shuffle_f32x4::<0xdd>(x, y));
            let (zw_even, zw_odd) =
                (_mm512_shuffle_f32x4::<0x88>(z, w), _mm512_shuffle_f32x4::<0xdd>(z, w));
            square[c].0 = _mm512_shuffle_f32x4::<0x88>(xy_even, zw_even);
            square[c + 4].0 = _mm512_shuffle_f32x4::<0x88>(xy_odd, zw_odd);
            square[c + 8].0 = _mm512_shuffle_f32x4::<0xdd>(xy_even, zw_even);
            square[c + 12].0 = _mm512_shuffle_f32x4::<0xdd>(xy_odd, zw_odd);
        }
    }
}

#[inline(always)]
unsafe fn transpose_8(square: &mut [F64x8]) {
    let square: &mut [F64x8; 8] = square.try_into().expect("a square of 8 registers");
    // SAFETY: the caller vouches for AVX-512F.
    unsafe {
        let mut pairs = [_mm512_setzero_pd(); 8];
        for i in (0..8).step_by(2) {
            let (x, y) = (square[i].0, square[i + 1].0);
            pairs[i] = _mm512_unpacklo_pd(x, y);
            pairs[i + 1] = _mm512_unpackhi_pd(x, y);
        }
        // `pairs[2 * g + c]` has rows `2 * g..` of columns `c`, `c + 2`, `c + 4` and `c + 6`.
        for c in 0..2 {
            let (x, y) = (pairs[c], pairs[2 + c]);
            let (z, w) = (pairs[4 + c], pairs[6 + c]);
            let (xy_even, xy_odd) =
                (_mm512_shuffle_f64x2::<0x88>(x, y), _mm512_shuffle_f64x2::<0xdd>(x, y));
            let (zw_even, zw_odd) =
                (_mm512_shuffle_f64x2::<0x88>(z, w), _mm512_shuffle_f64x2::<0xdd>(z, w));
            square[c].0 = _mm512_shuffle_f64x2::<0x88>(xy_even, zw_even);
            square[c + 2].0 = _mm512_shuffle_f64x2::<0x88>(xy_odd, zw_odd);
            square[c + 4].0 = _mm512_shuffle_f64x2::<0xdd>(xy_even, zw_even);
            square[c + 6].0 = _mm512_shuffle_f64x2::<0xdd>(xy_odd, zw_odd);
        }
    }
}
