//! Calls between tasks ([`transport`]) and their carriers: gRPC with TensorFlow's messages ([`grpc`]), our
//! stream protocol for tensors between two tasks of ours ([`stream`]), direct calls within a process
//! ([`memory`]).

pub(crate) mod completion;
pub(crate) mod failure_detector;
pub mod grpc;
pub(crate) mod memory;
pub mod own_messages;
pub(crate) mod single_flight;
pub(crate) mod stream;
pub(crate) mod trace_messages;
pub(crate) mod transport;
