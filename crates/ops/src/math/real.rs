//! Functions of real numbers that loops over either precision can use.

use thalweg_tensor::Element;

use super::float;
use super::simd::Level;

/// Single or double precision.
pub(crate) trait Real:
    Element + num_traits::Float + std::ops::AddAssign + std::ops::MulAssign + std::iter::Sum
{
    /// `e^x`.
    fn exp_at<L: Level>(self) -> Self;
    /// `e^x - 1`.
    fn exp_m1_at<L: Level>(self) -> Self;
    /// `ln(1 + x)`.
    fn ln_1p_at<L: Level>(self) -> Self;
    /// `a * b + c`, rounded once where the level has an instruction for it.
    fn mul_add_at<L: Level>(a: Self, b: Self, c: Self) -> Self;
    /// The nearest value of this type.
    fn of(x: f64) -> Self;
}

impl Real for f32 {
    #[inline(always)]
    fn exp_at<L: Level>(self) -> f32 {
        float::exp::<L>(self)
    }

    #[inline(always)]
    fn exp_m1_at<L: Level>(self) -> f32 {
        float::expm1::<L>(self)
    }

    #[inline(always)]
    fn ln_1p_at<L: Level>(self) -> f32 {
        float::log1p::<L>(self)
    }

    #[inline(always)]
    fn mul_add_at<L: Level>(a: f32, b: f32, c: f32) -> f32 {
        L::mul_add(a, b, c)
    }

    #[inline(always)]
    fn of(x: f64) -> f32 {
        x as f32
    }
}

impl Real for f64 {
    #[inline(always)]
    fn exp_at<L: Level>(self) -> f64 {
        self.exp()
    }

    #[inline(always)]
    fn exp_m1_at<L: Level>(self) -> f64 {
        self.exp_m1()
    }

    #[inline(always)]
    fn ln_1p_at<L: Level>(self) -> f64 {
        self.ln_1p()
    }

    #[inline(always)]
    fn mul_add_at<L: Level>(a: f64, b: f64, c: f64) -> f64 {
        a * b + c
    }

    #[inline(always)]
    fn of(x: f64) -> f64 {
        x
    }
}
