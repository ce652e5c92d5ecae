//! Quantization ops.

pub(crate) mod and_dequantize;
pub(crate) mod convert;
pub(crate) mod fake;
mod fake_lowering;
mod range;
pub(crate) mod requantize;
