//! Linear algebra: factorisations, solvers, Einstein sums, Fourier transforms.
