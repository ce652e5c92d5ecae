//! Pure loops: no graphs, no kernels, no allocation.

pub(crate) mod combine;
pub(crate) mod float;
pub(crate) mod random;
pub(crate) mod simd;
pub(crate) mod transpose;
