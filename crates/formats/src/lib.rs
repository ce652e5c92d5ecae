//! File formats, and the storage abstraction below them.
//!
//! [`Storage`] abstracts file systems: local files here, object stores behind URLs in another
//! crate. [`record`] reads and writes TFRecord files, [`events`] TensorBoard's event files,
//! [`checkpoint`] checkpoints, [`npz`] and [`safetensors`] the formats of other frameworks. A
//! reader returns the data that was written, or an error that names the file and the offset.
#![deny(unsafe_code)]

pub mod checkpoint;
mod checksum;
pub mod events;
pub mod message;
pub mod npz;
pub mod record;
pub mod safetensors;
pub mod saved_model;
pub mod storage;
pub mod wire;
pub mod zip;

pub use checksum::{crc32c, masked_crc32c};
pub use storage::{LocalStorage, NoStorage, Rooted, Storage};
