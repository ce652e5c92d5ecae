//! Dense matrix decompositions, real and complex, in single and double precision.
//!
//! Matrices are row-major slices. Nothing here allocates: callers pass scratch memory of the
//! lengths that the `scratch_len` functions return. Every iteration is bounded, and input that is
//! not finite ends it. Signs follow the conventions of LAPACK and Eigen, so that results can be
//! compared with theirs.

pub(crate) mod bidiagonal;
pub(crate) mod cholesky;
pub(crate) mod eigen;
pub(crate) mod functions;
pub(crate) mod hessenberg;
pub(crate) mod householder;
pub(crate) mod least_squares;
pub(crate) mod lu;
pub(crate) mod qr;
pub(crate) mod real_schur;
pub(crate) mod rotation;
pub(crate) mod scalar;
pub(crate) mod schur;
pub(crate) mod svd;
pub(crate) mod symmetric;
pub(crate) mod triangular;
pub(crate) mod tridiagonal;

#[cfg(test)]
pub(crate) mod testing;
