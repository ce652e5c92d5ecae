//! The stream protocol: tensors between two tasks of ours, over a socket without HTTP/2.
//!
//! A task asks another by gRPC whether it serves streams ([`hello`]), connects to its unix socket if both are on
//! one machine, to its gRPC port otherwise, and requests tensors by the rendezvous keys of `RecvTensor`. A tensor
//! is sent from its own memory and received into the memory in which it stays. Large tensors are sent in chunks,
//! with small ones between them, and on one machine through shared memory ([`ring`]). [`frame`] has the format.

pub(crate) mod client;
pub(crate) mod frame;
pub(crate) mod hello;
mod incoming_tensor;
mod reader;
mod ring;
mod send_queue;
pub(crate) mod server;
mod slot_set;
pub(crate) mod socket;
#[cfg(test)]
mod stream_tests;
