//! TensorFlow's protocol: gRPC messages over HTTP/2, in and out.
//!
//! The framing is done here rather than by a library so that tensors are copied once on the way in
//! (from the frames they arrive in to the memory they stay in) and not at all on the way out.

mod answer;
pub(crate) mod client;
mod gather;
mod local;
mod message;
mod own_service;
mod peers;
pub(crate) mod pieces;
mod probe;
mod rope;
mod server;
mod service;
mod transport;
mod worker_service;

/// Framing and settings, for other services on the same transport.
pub mod framing {
    pub use super::answer::{Answer, message, not_grpc, response, status};
    pub use super::gather::Path;
    pub use super::message::{Limits, read};
    pub use super::pieces::{Pieces, field_len};
    pub use super::rope::Rope;
    pub use super::service::{decode, decode_step, parse_timeout};
    pub use super::transport::accepting;
    pub use crate::master::discover::on_pool;
}

pub use local::LocalCluster;
pub(crate) use peers::Peers;
pub use probe::{TaskReport, TaskState, check_health, status_of, stop_tasks};
pub use server::{Server, ServerOptions};
