//! Quantization ops.

pub(crate) mod and_dequantize;
pub(crate) mod convert;
pub(crate) mod fake;
mod range;
pub(crate) mod requantize;
