//! The fast stream: tensors between two tasks of ours, over a socket without HTTP/2.
//!
//! A task asks another by gRPC whether it has one ([`hello`]). Then it connects, to a unix socket if
//! both are on one machine, to the gRPC port otherwise, and asks for tensors by the same keys as with
//! `RecvTensor`. A tensor leaves from where it is and arrives where it stays. Large ones travel in
//! parts between which small ones pass, on one machine through memory that both share ([`ring`]).
//! [`frame`] has the format.

mod arriving;
pub(crate) mod client;
pub(crate) mod frame;
pub(crate) mod hello;
mod leaving;
mod reader;
mod ring;
pub(crate) mod server;
pub(crate) mod socket;
#[cfg(test)]
mod stream_tests;
