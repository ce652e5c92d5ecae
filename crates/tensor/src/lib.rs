//! Element types, shapes, tensors and the buffers under them; the workspace's one error type.
//!
//! A [`Tensor`] is dense, typed and cheap to clone: clones share its memory. Memory comes from a
//! recycling allocator and is charged to a [`Budget`] before it is allocated, so that sizes from
//! untrusted input exhaust the budget, not the process. Nothing here computes.

mod budget;
mod buffer;
mod denormal;
mod derived;
mod dtype;
mod error;
mod float8;
pub mod npy;
mod object;
mod partial_shape;
mod proto;
mod recycle;
mod shape;
mod string;
mod tensor;
mod view;

pub use budget::{Budget, Charge};
pub use buffer::DeviceMemory;
pub use bytes::Bytes;
pub use denormal::FlushDenormals;
pub use derived::Form;
pub use dtype::{DType, Element, QInt8, QInt16, QInt32, QUInt8, QUInt16};
pub use error::{Code, Context, Error, Origin, Result};
pub use float8::{Float8E4m3b11fnuz, Float8E4m3fn, Float8E4m3fnuz, Float8E5m2, Float8E5m2fnuz};
pub use half::{bf16, f16};
pub use num_complex::{Complex32, Complex64};
pub use object::{QueueSize, Resource, ResourceHandle, Variant, VariantValue, check_nesting};
pub use partial_shape::PartialShape;
pub use recycle::trim as trim_recycled_memory;
pub use shape::{RANK_MAX, Shape};
pub use string::{SHORT_STRING_BYTES, StringBuilder, charge_string, copy_string, with_charge};
pub use tensor::Tensor;
