//! Bytes and text made into tensors: raw numbers, CSV, examples, serialized tensors.
