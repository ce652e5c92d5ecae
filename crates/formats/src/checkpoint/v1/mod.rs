//! V1 checkpoints: an SSTable that holds everything.
//!
//! The empty key holds a list of all tensors with their dtypes, shapes and slices; the key of a
//! slice holds its elements as the typed lists of a `TensorProto` without dtype and shape. A
//! checkpoint in several files is read by a pattern that matches all of them.

mod reader;
mod values;
mod writer;

pub use reader::{Reader, TensorEntry};
pub use writer::Writer;

/// The latest supported version of the format.
const VERSION: i32 = 1;
