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

pub use local::LocalCluster;
pub(crate) use peers::Peers;
pub use probe::{TaskReport, TaskState, check_health, status_of};
pub use server::{Server, ServerOptions};
