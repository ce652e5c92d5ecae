//! Quantized numbers and the training that pretends to have them.

pub(crate) mod and_dequantize;
pub(crate) mod convert;
pub(crate) mod fake;
mod range;
pub(crate) mod requantize;
