//! Element types of matrices, and their accumulator types.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use num_complex::Complex;

use super::drive::{Job, geometry, run};
use super::lanes::{Auto, Baseline};
use super::plan::Geometry;
use super::{Error, Level};
#[cfg(target_arch = "x86_64")]
use super::{
    avx2::{Avx2, F32x8, F64x4},
    avx512::{F32x16, F64x8},
};

/// A type that matrices can hold.
pub trait Element: Sealed {}

/// The requirements on an [`Element`]; sealed, so the list of element types is closed.
pub trait Sealed: Copy + Send + Sync + 'static {
    /// The type in which products are summed.
    type Sum: Number;

    /// The value as a term of a sum, exactly.
    fn widen(self) -> Self::Sum;

    /// The sum as an element, rounded once.
    fn narrow(sum: Self::Sum) -> Self;

    /// Rounds a row of sums; both are of the same length.
    fn narrow_row(sums: &[Self::Sum], row: &mut [Self]) {
        for (x, &sum) in row.iter_mut().zip(sums) {
            *x = Self::narrow(sum);
        }
    }

    /// Whether `Self` and `Sum` have the same representation, so that elements can be accumulated
    /// in place.
    const SUMS_IN_PLACE: bool;

    /// The parameters of the micro-kernel for `level` that the plan depends on.
    fn geometry(level: Level) -> Geometry;

    /// Runs the job with the instructions of `level`.
    ///
    /// # Safety
    ///
    /// The machine has the level, and the job's plan was made for its geometry.
    unsafe fn run(level: Level, job: &mut Job<'_, Self>) -> Result<(), Error>;
}

impl<T: Sealed> Element for T {}

/// Arithmetic of sums; integers wrap.
pub trait Number: Sealed<Sum = Self> {
    /// Zero.
    const ZERO: Self;

    /// `self + x`.
    fn plus(self, x: Self) -> Self;

    /// `self + x * y`, with one rounding where the target has an instruction for it.
    fn plus_product(self, x: Self, y: Self) -> Self;
}

macro_rules! integers {
    ($($t:ty, lanes $lanes:literal, same bits as $signed:ty;)+) => { $(
        impl Sealed for $t {
            // Wrapping sums have the same bits for signed and unsigned integers: one kernel serves
            // both.
            type Sum = $signed;
            const SUMS_IN_PLACE: bool = true;
            fn widen(self) -> $signed {
                self as $signed
            }
            fn narrow(sum: $signed) -> $t {
                sum as $t
            }
            fn geometry(level: Level) -> Geometry {
                match level {
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 | Level::Avx2 => {
                        geometry::<$t, Auto<$signed, $lanes, Avx2>>()
                    }
                    _ => geometry::<$t, Auto<$signed, $lanes, Baseline>>(),
                }
            }
            unsafe fn run(level: Level, job: &mut Job<'_, $t>) -> Result<(), Error> {
                // SAFETY: the caller vouches for the level, whose instructions these are.
                unsafe {
                match level {
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 | Level::Avx2 => {
                        run::<$t, Auto<$signed, $lanes, Avx2>>(job)
                    }
                    _ => run::<$t, Auto<$signed, $lanes, Baseline>>(job),
                }
                }
            }
        }
    )+ };
}

integers! {
    i8, lanes 16, same bits as i8;
    u8, lanes 16, same bits as i8;
    i16, lanes 16, same bits as i16;
    u16, lanes 16, same bits as i16;
    i32, lanes 8, same bits as i32;
    u32, lanes 8, same bits as i32;
    i64, lanes 4, same bits as i64;
    u64, lanes 4, same bits as i64;
}

macro_rules! integer_sums {
    ($($t:ty)+) => { $(
        impl Number for $t {
            const ZERO: $t = 0;
            #[inline(always)]
            fn plus(self, x: $t) -> $t {
                self.wrapping_add(x)
            }
            #[inline(always)]
            fn plus_product(self, x: $t, y: $t) -> $t {
                self.wrapping_add(x.wrapping_mul(y))
            }
        }
    )+ };
}

integer_sums! { i8 i16 i32 i64 }

macro_rules! floats {
    ($($t:ty, lanes $lanes:literal, $avx2:ident, $avx512:ident;)+) => { $(
        impl Sealed for $t {
            type Sum = $t;
            const SUMS_IN_PLACE: bool = true;
            fn widen(self) -> $t {
                self
            }
            fn narrow(sum: $t) -> $t {
                sum
            }
            fn geometry(level: Level) -> Geometry {
                match level {
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 => geometry::<$t, $avx512>(),
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => geometry::<$t, $avx2>(),
                    _ => geometry::<$t, Auto<$t, $lanes, Baseline>>(),
                }
            }
            unsafe fn run(level: Level, job: &mut Job<'_, $t>) -> Result<(), Error> {
                // SAFETY: the caller vouches for the level, whose instructions these are.
                unsafe {
                match level {
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 => run::<$t, $avx512>(job),
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => run::<$t, $avx2>(job),
                    _ => run::<$t, Auto<$t, $lanes, Baseline>>(job),
                }
                }
            }
        }

        impl Number for $t {
            const ZERO: $t = 0.0;
            #[inline(always)]
            fn plus(self, x: $t) -> $t {
                self + x
            }
            #[inline(always)]
            fn plus_product(self, x: $t, y: $t) -> $t {
                // Without the FMA instruction, `mul_add` is a library call.
                if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
                    x.mul_add(y, self)
                } else {
                    self + x * y
                }
            }
        }

        impl Sealed for Complex<$t> {
            type Sum = Complex<$t>;
            const SUMS_IN_PLACE: bool = true;
            fn widen(self) -> Self {
                self
            }
            fn narrow(sum: Self) -> Self {
                sum
            }
            fn geometry(level: Level) -> Geometry {
                match level {
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 | Level::Avx2 => geometry::<Self, Auto<Self, 4, Avx2>>(),
                    _ => geometry::<Self, Auto<Self, 4, Baseline>>(),
                }
            }
            unsafe fn run(level: Level, job: &mut Job<'_, Self>) -> Result<(), Error> {
                // SAFETY: the caller vouches for the level, whose instructions these are.
                unsafe {
                match level {
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 | Level::Avx2 => run::<Self, Auto<Self, 4, Avx2>>(job),
                    _ => run::<Self, Auto<Self, 4, Baseline>>(job),
                }
                }
            }
        }

        impl Number for Complex<$t> {
            const ZERO: Self = Complex { re: 0.0, im: 0.0 };
            #[inline(always)]
            fn plus(self, x: Self) -> Self {
                self + x
            }
            #[inline(always)]
            fn plus_product(self, x: Self, y: Self) -> Self {
                self + x * y
            }
        }
    )+ };
}

floats! {
    f32, lanes 8, F32x8, F32x16;
    f64, lanes 4, F64x4, F64x8;
}

macro_rules! halves {
    ($($t:ty: $narrow:expr, $narrow_row:expr;)+) => { $(
        impl Sealed for $t {
            type Sum = f32;
            const SUMS_IN_PLACE: bool = false;
            fn widen(self) -> f32 {
                self.to_f32()
            }
            fn narrow(sum: f32) -> $t {
                $narrow(sum)
            }
            fn narrow_row(sums: &[f32], row: &mut [$t]) {
                $narrow_row(sums, row);
            }
            fn geometry(level: Level) -> Geometry {
                match level {
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 => geometry::<$t, F32x16>(),
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => geometry::<$t, F32x8>(),
                    _ => geometry::<$t, Auto<f32, 8, Baseline>>(),
                }
            }
            unsafe fn run(level: Level, job: &mut Job<'_, $t>) -> Result<(), Error> {
                // SAFETY: the caller vouches for the level, whose instructions these are.
                unsafe {
                    match level {
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx512 => run::<$t, F32x16>(job),
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx2 => run::<$t, F32x8>(job),
                        _ => run::<$t, Auto<f32, 8, Baseline>>(job),
                    }
                }
            }
        }
    )+ };
}

halves! {
    bf16: round_to_bf16, |sums: &[f32], row: &mut [bf16]| {
        for (x, &sum) in row.iter_mut().zip(sums) {
            *x = round_to_bf16(sum);
        }
    };
    f16: f16::from_f32, |sums: &[f32], row: &mut [f16]| row.convert_from_f32_slice(sums);
}

/// Rounds to the nearest, ties to even, in a form that compilers vectorize.
#[inline(always)]
fn round_to_bf16(x: f32) -> bf16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    let quiet = bits >> 16 | 0x40;
    bf16::from_bits(if x.is_nan() { quiet } else { rounded } as u16)
}
