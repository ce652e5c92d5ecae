//! How tasks reach each other: the calls they make ([`transport`]) and what carries them: gRPC with
//! TensorFlow's messages, the stream for tensors between two tasks of ours, or a process's own memory.

pub(crate) mod completion;
pub mod grpc;
pub(crate) mod memory;
pub mod own_messages;
pub(crate) mod silence;
pub(crate) mod single_flight;
pub(crate) mod stream;
pub(crate) mod transport;
