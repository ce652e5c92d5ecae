//! Numeric loops over slices, without graphs, kernels or allocation.

pub(crate) mod bessel;
pub(crate) mod complex;
pub(crate) mod factor;
pub(crate) mod float;
pub(crate) mod fold;
pub(crate) mod gamma;
#[expect(unreachable_pub, reason = "it is written to stand alone")]
pub(crate) mod gemm;
pub(crate) mod half_slices;
pub(crate) mod random;
pub(crate) mod real;
pub(crate) mod rows;
pub(crate) mod rsqrt;
pub(crate) mod simd;
pub(crate) mod special;
pub(crate) mod transpose;
pub(crate) mod vectorized;
pub(crate) mod widen;
