//! Tasks: processes that hold devices and state, and that clients reach over the network.
//!
//! [`Master`] is what a client talks to: it keeps sessions and runs their steps. A [`Worker`] runs the
//! parts of steps that masters of other tasks give it, and the workers of a step hand each other
//! tensors. Neither knows of sockets; [`grpc`] brings them TensorFlow's messages and takes their
//! answers away.

mod addresses;
mod cluster_spec;
mod config;
mod descriptors;
mod discover;
mod errors;
#[cfg(test)]
mod fused_parts;
pub mod grpc;
#[cfg(test)]
mod histories;
mod master;
mod master_session;
mod master_step;
mod member;
mod memory;
pub mod metadata;
mod once_call;
pub mod own_messages;
mod part_answer;
mod recent_ids;
mod remote;
mod remote_parts;
mod remote_rendezvous;
mod rpc_log;
mod session_peers;
mod silence;
mod step_life;
mod steps;
mod stream;
mod task;
mod transport;
mod watch;
mod worker;

pub use addresses::{Addresses, ClusterFile, ParseCluster};
pub use cluster_spec::{ClusterSpec, TaskName};
pub use master::Master;
pub use member::Member;
pub use memory::MemoryNetwork;
pub use remote::{Connect, ConnectOptions, RemoteCallable, RemotePartialRun, RemoteSession};
pub use task::{CPUS_MAX, Task, TaskOptions, TensorTransport};
pub use worker::Worker;
