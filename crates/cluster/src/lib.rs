//! Tasks: processes that hold devices and state, and that clients reach over the network.
//!
//! [`Master`] is what a client talks to: it keeps sessions and runs their steps. A [`Worker`] runs the
//! parts of steps that masters of other tasks give it, and the workers of a step hand each other
//! tensors. Neither knows of sockets; [`grpc`] brings them TensorFlow's messages and takes their
//! answers away.

mod addresses;
mod cluster_spec;
mod errors;
mod master;
mod member;
mod network;
pub mod notation;
mod remote_session;
mod step;
mod task;
mod watch;
mod worker;

pub use addresses::{Addresses, ClusterFile, ParseCluster};
pub use cluster_spec::{ClusterSpec, TaskName};
pub use master::Master;
pub use member::Member;
pub use network::memory::MemoryNetwork;
pub use network::{grpc, own_messages};
pub use remote_session::{
    Connect, ConnectOptions, RemoteCallable, RemotePartialRun, RemoteSession,
};
pub use task::{CPUS_MAX, Task, TaskOptions, TensorTransport};
pub use worker::Worker;
