//! Files, and the storage that they lie in.
//!
//! [`Storage`] is where files are: local ones here, stores behind URLs elsewhere. [`record`] reads
//! and writes TFRecord files, [`events`] the event files that TensorBoard shows, [`checkpoint`] the
//! tensors that training saves, [`npz`] and [`safetensors`] those of others. Whatever a file holds, a reader gives the data that was written or an
//! error that names the file and the place.
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
