//! Tasks: processes that hold devices and state, and that clients reach over the network.
//!
//! [`Master`] is what a client talks to: it keeps sessions and runs their steps. It knows nothing
//! of sockets; [`grpc`] brings it TensorFlow's messages and takes its answers away.

mod config;
pub mod grpc;
mod master;
mod master_session;
mod metadata;
mod recent_ids;
mod remote;
mod task;

pub use master::Master;
pub use remote::{Connect, ConnectOptions, RemoteCallable, RemotePartialRun, RemoteSession};
pub use task::{Task, TaskOptions};
