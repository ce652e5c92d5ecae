//! Checkpoints of the first format: a table that holds everything.
//!
//! The empty key has a list of all tensors with their types, shapes and slices; the key of a slice has
//! its elements as the typed lists of a `TensorProto` without type and shape. What was saved in
//! several files is read by a pattern that matches all of them.

mod reader;
mod values;
mod writer;

pub use reader::{Reader, Saved};
pub use writer::Writer;

/// The newest version of the format that is known here.
const VERSION: i32 = 1;
