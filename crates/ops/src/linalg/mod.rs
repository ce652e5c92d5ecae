//! Linear algebra: decompositions, solvers, einsum, Fourier transforms.

mod batch;
pub(crate) mod cholesky;
mod contract;
pub(crate) mod decompose;
pub(crate) mod eigen;
pub(crate) mod einsum;
mod einsum_gradient;
pub(crate) mod einsum_lowering;
mod equation;
mod factor_lowering;
pub(crate) mod fourier;
mod fourier_gradients;
mod fourier_lowering;
mod fourier_rows;
pub(crate) mod functions;
mod gradients;
pub(crate) mod inverse;
mod lu_lowering;
mod shapes;
pub(crate) mod solve;
mod solve_gradients;
mod spectral_gradients;
pub(crate) mod tridiagonal;
