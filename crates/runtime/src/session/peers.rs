//! The other tasks of a cluster, as a session sees them.

use std::sync::Arc;

use thalweg_kernel::{Cancellation, DeviceDescription, Rendezvous};
use thalweg_plan::Partition;
use thalweg_tensor::Result;

use crate::session::metadata::RunMetadata;
use crate::session::options::RunOptions;

/// Tasks elsewhere that run parts of a session's steps.
pub trait Peers: Send + Sync {
    /// Their devices, as far as they are known. Those that were told of stay.
    fn devices(&self) -> Vec<DeviceDescription>;

    /// Takes the parts of a plan that are theirs. Nothing is sent before a step needs it.
    fn take(&self, parts: Vec<Partition>) -> Result<Arc<dyn RemoteParts>>;

    /// A number for a step that no other step of any task has.
    fn next_step(&self) -> u64;

    /// Where this task and the others meet in a step.
    fn rendezvous(&self, step: u64) -> Arc<dyn Rendezvous>;
}

/// Parts of a plan that run elsewhere.
pub trait RemoteParts: Send + Sync {
    /// Starts the parts; `done` is called once, when all have ended or were given up. Cancelling
    /// ends them. What is returned is kept until the whole step is over; dropping it makes the tasks
    /// forget the step.
    fn start(
        &self,
        step: u64,
        options: &RunOptions,
        cancellation: &Cancellation,
        done: RemoteDone,
    ) -> Box<dyn Send + Sync>;
}

/// Is told how the parts elsewhere ended.
pub type RemoteDone = Box<dyn FnOnce(Result<RunMetadata>) + Send>;
