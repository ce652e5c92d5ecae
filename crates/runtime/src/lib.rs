//! Executor, thread pool, local rendezvous and the in-process session.
//!
//! [`Session::run`] looks up (or compiles) the plan for a set of feeds, fetches and targets, and
//! runs a step of it: a node runs when all its inputs are available, on the caller's thread if it is
//! inexpensive, else on the pool. Only structural ops are known by name here.

mod environment;
mod execute;
mod functions;
mod pool;
pub mod saved_model;
mod session;
mod sync;

pub use environment::{memory_limit_bytes, resident_bytes, system_boot_id, system_environment};
pub use execute::rendezvous::LocalRendezvous;
pub use execute::wait_list::{NodeWait, WaitGuard, WaitList};
pub use pool::Pool;
pub use pool::background::detached_step;
pub use pool::on_pool::on_pool;
pub use saved_model::{LoadOptions, SavedModel, SavedModelBuilder};
pub use session::Session;
pub use session::callable::{Callable, PlanSize};
pub use session::fetch_collector::{Collected, FetchCollector, StepEnd};
pub use session::learning::SharedCosts;
pub use session::metadata::{
    Dispatch, NodeTiming, RunMetadata, SentTensor, TaskClock, TaskReport, TracedOutput,
};
pub use session::options::{CostModel, PlacedNode, PlacementLog, RunOptions, SessionOptions};
pub use session::partial_run::{PartialRun, PartialRunOutputs};
pub use session::registered::RegisteredGraph;
pub use session::remote_tasks::{RemotePartitions, RemotePartitionsDone, RemoteTasks};
pub use session::sharing::SharedVariable;
