//! Linear algebra: factorisations, solvers, Einstein sums, Fourier transforms.

mod batch;
pub(crate) mod cholesky;
mod contract;
pub(crate) mod decompose;
pub(crate) mod eigen;
pub(crate) mod einsum;
mod equation;
pub(crate) mod fourier;
mod fourier_rows;
pub(crate) mod functions;
pub(crate) mod inverse;
mod shapes;
pub(crate) mod solve;
pub(crate) mod tridiagonal;
