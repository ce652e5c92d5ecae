//! The other tasks of a cluster, as a session uses them. `cluster` implements both traits.

use std::sync::Arc;

use thalweg_kernel::{Cancellation, DeviceDescription, Rendezvous};
use thalweg_plan::Partition;
use thalweg_tensor::Result;

use crate::session::metadata::RunMetadata;
use crate::session::options::RunOptions;

/// The other tasks of a cluster, which run partitions of a session's steps.
pub trait RemoteTasks: Send + Sync {
    /// Devices of the tasks that are known so far. A device that was listed once stays listed.
    fn devices(&self) -> Vec<DeviceDescription>;

    /// Takes over the partitions of a plan whose devices belong to other tasks. Nothing is sent
    /// before the first step of the plan.
    fn take(&self, partitions: Vec<Partition>) -> Result<Arc<dyn RemotePartitions>>;

    /// A step number that no other step of the cluster has.
    fn next_step(&self) -> u64;

    /// The rendezvous of step number `step`, through which this task and the others exchange tensors.
    fn rendezvous(&self, step: u64) -> Arc<dyn Rendezvous>;
}

/// The partitions of one plan that other tasks run.
pub trait RemotePartitions: Send + Sync {
    /// Starts the partitions in step number `step`; `done` is called once, when all have ended or were
    /// abandoned. `cancellation` ends them. The session keeps the result until the whole step has
    /// ended; dropping it makes the other tasks forget the step.
    fn start(
        &self,
        step: u64,
        options: &RunOptions,
        cancellation: &Cancellation,
        done: RemotePartitionsDone,
    ) -> Box<dyn Send + Sync>;
}

/// Called with the merged report of the remote partitions, or with their first error.
pub type RemotePartitionsDone = Box<dyn FnOnce(Result<RunMetadata>) + Send>;
