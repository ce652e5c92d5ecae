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
    /// The nearest value.
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
    fn of(x: f64) -> f64 {
        x
    }
}
