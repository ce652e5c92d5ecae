//! Linear algebra: factorisations, solvers, Einstein sums, Fourier transforms.

mod contract;
pub(crate) mod einsum;
mod equation;
