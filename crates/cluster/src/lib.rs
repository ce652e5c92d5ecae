//! TensorFlow's distributed runtime: the tasks of a cluster, each with a master and a worker.
//!
//! A [`Master`] implements TensorFlow's `MasterService`: it keeps the sessions of clients, plans their
//! steps, registers the partitions of a plan with the workers of other tasks and runs the steps. A
//! [`Worker`] implements `WorkerService`: it runs the partitions that masters registered with it and sends
//! tensors to other workers. Neither uses sockets; [`grpc`] decodes requests for them, encodes their
//! responses and makes their calls to other tasks.

mod addresses;
mod cluster_spec;
mod diagnostics;
mod errors;
mod master;
mod member;
mod network;
pub mod notation;
mod remote_session;
mod step;
mod sync;
mod task;
mod worker;

pub use addresses::{Addresses, ClusterFile, ParseCluster};
pub use cluster_spec::{ClusterSpec, TaskName};
pub use master::Master;
pub use master::tracer::TracedStep;
pub use member::Member;
pub use network::memory::MemoryNetwork;
pub use network::{grpc, own_messages};
pub use remote_session::{
    Connect, ConnectOptions, RemoteCallable, RemotePartialRun, RemoteSession,
};
pub use task::{CPUS_MAX, Task, TaskOptions, TensorTransport};
pub use worker::Worker;
