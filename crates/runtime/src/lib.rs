//! Executor, thread pool, local rendezvous and the in-process session.
//!
//! [`Session::run`] looks up (or compiles) the plan for a set of feeds, fetches and targets, and
//! executes it: a node runs when all its inputs are there, on the caller's thread while it is
//! cheap, on the pool when it is not. Nothing here names an op except the structural ones.

mod background;
mod callable;
mod calls;
mod deadline;
mod environment;
mod executable;
mod execute;
mod flat_inputs;
mod framed;
mod functions;
mod loops;
mod metadata;
mod options;
mod partial_run;
mod parts;
mod peers;
mod placement_log;
mod plan_cache;
mod pool;
mod registered;
mod rendezvous;
mod report;
pub mod saved_model;
mod session;
mod sharing;
mod start;
mod step;
mod transfers;
mod wait_list;
mod waiting;

pub use background::detached_step;
pub use callable::{Callable, PlanSize};
pub use environment::{memory_limit_bytes, resident_bytes, system_environment};
pub use metadata::{NodeTiming, RunMetadata, TracedOutput};
pub use options::{PlacementLog, RunOptions, SessionOptions};
pub use partial_run::{Part, PartialRun};
pub use peers::{Peers, RemoteDone, RemoteParts};
pub use pool::Pool;
pub use registered::RegisteredGraph;
pub use rendezvous::LocalRendezvous;
pub use saved_model::{LoadOptions, SavedModel, SavedModelBuilder};
pub use session::Session;
pub use sharing::SharedVariable;
pub use wait_list::{NodeWait, WaitList, Waiting};
