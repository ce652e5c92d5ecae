//! Quantized numbers and the training that pretends to have them.
