//! How elements that meet in one place combine: sums, products and extremes, for scatters and
//! segments. Integers wrap, 16-bit floats round after each step.

use num_complex::Complex;
use thalweg_tensor::{Element, bf16, f16};

/// Elements that can be summed and multiplied.
pub(crate) trait Combine: Element {
    /// What changes no sum.
    const ZERO: Self;
    /// What changes no product.
    const ONE: Self;
    /// The sum.
    fn plus(self, other: Self) -> Self;
    /// The difference.
    fn minus(self, other: Self) -> Self;
    /// The product.
    fn times(self, other: Self) -> Self;
}

/// Elements of which one is larger.
pub(crate) trait Ordered: Combine + PartialOrd {
    /// The least finite number.
    const LOWEST: Self;
    /// The greatest finite number.
    const HIGHEST: Self;

    /// The larger; `self` where they do not compare.
    fn larger(self, other: Self) -> Self {
        if self < other { other } else { self }
    }

    /// The smaller; `self` where they do not compare.
    fn smaller(self, other: Self) -> Self {
        if other < self { other } else { self }
    }
}

macro_rules! integers {
    ($($t:ty),+) => { $(
        impl Combine for $t {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        }
        impl Ordered for $t {
            const LOWEST: Self = <$t>::MIN;
            const HIGHEST: Self = <$t>::MAX;
        }
    )+ };
}

macro_rules! floats {
    ($($t:ty: $zero:expr, $one:expr;)+) => { $(
        impl Combine for $t {
            const ZERO: Self = $zero;
            const ONE: Self = $one;
            fn plus(self, other: Self) -> Self {
                self + other
            }
            fn minus(self, other: Self) -> Self {
                self - other
            }
            fn times(self, other: Self) -> Self {
                self * other
            }
        }
    )+ };
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);

floats! {
    f32: 0.0, 1.0;
    f64: 0.0, 1.0;
    f16: f16::ZERO, f16::ONE;
    bf16: bf16::ZERO, bf16::ONE;
    Complex<f32>: Complex { re: 0.0, im: 0.0 }, Complex { re: 1.0, im: 0.0 };
    Complex<f64>: Complex { re: 0.0, im: 0.0 }, Complex { re: 1.0, im: 0.0 };
}

macro_rules! ordered_floats {
    ($($t:ty),+) => { $(
        impl Ordered for $t {
            const LOWEST: Self = <$t>::MIN;
            const HIGHEST: Self = <$t>::MAX;
        }
    )+ };
}

ordered_floats!(f32, f64, f16, bf16);
