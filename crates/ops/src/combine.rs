//! Combining two elements as stored: integers wrap, narrow floats compute in single precision and
//! round. For updates of variables, where an element is combined at a time.

use num_complex::Complex;
use thalweg_tensor::{Element, Result, Tensor, bf16, ensure, f16};

/// Elements that can be added, subtracted, multiplied and divided.
pub(crate) trait Combine: Element {
    /// The sum.
    fn plus(self, other: Self) -> Self;
    /// The difference.
    fn minus(self, other: Self) -> Self;
    /// The product.
    fn times(self, other: Self) -> Self;
    /// The quotient; zero for an integer divided by zero.
    fn over(self, other: Self) -> Self;

    /// Refuses integer divisors that are zero.
    fn check_divisors(_divisors: &Tensor) -> Result<()> {
        Ok(())
    }
}

/// Elements that have an order.
pub(crate) trait CombineOrdered: Combine {
    /// The smaller of the two.
    fn smaller(self, other: Self) -> Self;
    /// The larger of the two.
    fn larger(self, other: Self) -> Self;
}

macro_rules! impl_integer {
    ($($t:ty),+) => { $(
        impl Combine for $t {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn over(self, other: Self) -> Self {
                if other == 0 { 0 } else { self.wrapping_div(other) }
            }

            fn check_divisors(divisors: &Tensor) -> Result<()> {
                let has_zero = divisors.as_slice::<$t>()?.contains(&0);
                ensure!(!has_zero, InvalidArgument, "Integer division by zero");
                Ok(())
            }
        }

        impl CombineOrdered for $t {
            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                self.min(other)
            }

            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                self.max(other)
            }
        }
    )+ };
}

impl_integer!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! impl_float {
    ($($t:ty: $widen:expr, $narrow:expr;)+) => { $(
        impl Combine for $t {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                $narrow($widen(self) + $widen(other))
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                $narrow($widen(self) - $widen(other))
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                $narrow($widen(self) * $widen(other))
            }

            #[inline(always)]
            fn over(self, other: Self) -> Self {
                $narrow($widen(self) / $widen(other))
            }
        }
    )+ };
}

impl_float! {
    f32: |x| x, |x| x;
    f64: |x| x, |x| x;
    f16: f32::from, f16::from_f32;
    bf16: f32::from, bf16::from_f32;
    Complex<f32>: |x| x, |x| x;
    Complex<f64>: |x| x, |x| x;
}

macro_rules! impl_ordered_float {
    ($($t:ty),+) => { $(
        impl CombineOrdered for $t {
            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                if other < self { other } else { self }
            }

            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                if other > self { other } else { self }
            }
        }
    )+ };
}

impl_ordered_float!(f16, bf16, f32, f64);
