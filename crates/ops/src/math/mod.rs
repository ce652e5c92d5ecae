//! Pure loops: no graphs, no kernels, no allocation.
