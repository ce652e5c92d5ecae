//! TensorFlow's messages, generated from the `.proto` files of this crate.
//!
//! Packages, names and numbers are TensorFlow's, so both sides read each other's bytes and text.
//! `bytes` fields are [`bytes::Bytes`]: decoding from a `Bytes` shares its buffer, it does not copy.
//! Maps are ordered, so equal messages have equal encodings.
//! Decoding refuses messages nested deeper than 100 levels. [`Codec`] decodes and encodes by code that
//! is compiled in this crate, [`prost::Message`] by code that each crate compiles for itself.
//!
//! Services are in the descriptors only, for gRPC server reflection; their methods are dispatched
//! by the servers.

/// Includes what `build.rs` made of one protobuf package.
macro_rules! package {
    ($name:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $name, ".rs"));
    };
}

/// Package `tensorflow`, with a module for each package inside it.
#[allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]
pub mod tensorflow {
    package!("tensorflow");

    pub mod data {
        package!("tensorflow.data");

        pub mod experimental {
            package!("tensorflow.data.experimental");
        }
        pub mod model {
            package!("tensorflow.data.model");
        }
    }
    pub mod distributed_runtime {
        package!("tensorflow.distributed_runtime");
    }
    pub mod eager {
        package!("tensorflow.eager");
    }
    pub mod error {
        package!("tensorflow.error");
    }
    /// TensorFlow Serving's messages.
    pub mod serving {
        package!("tensorflow.serving");
    }
    /// Package `tensorflow.core.platform`, under a name that cannot shadow the `core` crate.
    pub mod core_platform {
        package!("tensorflow.core.platform");
    }
}

/// Package `google`: the well-known types that TensorFlow's messages hold.
#[allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]
pub mod google {
    pub mod protobuf {
        package!("google.protobuf");
    }
}

/// Package `grpc`: what servers of any kind answer.
#[allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]
pub mod grpc {
    pub mod health {
        pub mod v1 {
            package!("grpc.health.v1");
        }
    }
    pub mod reflection {
        pub mod v1 {
            package!("grpc.reflection.v1");
        }
        pub mod v1alpha {
            package!("grpc.reflection.v1alpha");
        }
    }
}

/// Package `inference`: the Open Inference Protocol.
#[allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]
pub mod inference {
    package!("inference");
}

mod codec;
pub mod text;

pub use codec::Codec;
pub use tensorflow::*;

/// The compiled `.proto` files: an encoded `google.protobuf.FileDescriptorSet`.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
