//! TensorFlow's master and worker services over gRPC, both sides; `thalweg-rpc` does the framing.

mod local;
pub(crate) mod methods;
mod own_service;
mod probe;
mod responses;
mod server;
mod service;
mod transport;
mod worker_service;

pub use local::LocalCluster;
pub use probe::{
    TaskReport, TaskState, check_health, status_of, stop_tasks, task_state, trace_next_step,
    traced_steps,
};
pub use server::{Server, ServerOptions};
pub(crate) use transport::{GrpcTransport, ServerRuntime};
