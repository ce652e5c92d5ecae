//! Accelerators: devices of XLA's PJRT plugins.

pub mod pjrt;
