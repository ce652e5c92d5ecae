//! The calls of TensorFlow's worker service that tasks make to each other, whatever carries them.

use std::time::Duration;

use thalweg_kernel::{Cancellation, Value};
use thalweg_proto as pb;
use thalweg_runtime::RunMetadata;
use thalweg_tensor::Result;

use crate::cluster_spec::TaskName;

/// Where a call goes and what ends it before it is answered.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    /// The task that is called.
    pub(crate) to: &'a TaskName,
    /// Bound on the time until the answer; none if the call may take as long as a step.
    pub(crate) timeout: Option<Duration>,
    /// Cancelling it ends the call: the cause is the answer, and the called task learns that no one
    /// waits any more.
    pub(crate) cancellation: &'a Cancellation,
}

/// Receives the answer of a call. It is called exactly once, on any thread.
pub(crate) type Done<T> = Box<dyn FnOnce(Result<T>) + Send>;

/// A worker's answer to `RunGraph`.
#[derive(Default)]
pub(crate) struct RunGraphReport {
    pub(crate) metadata: RunMetadata,
    /// Whether the worker has dropped all state of the step, so that it needs no `CleanupGraph`.
    pub(crate) is_forgotten: bool,
}

/// Calls to the workers of other tasks. A task that cannot be reached answers `Unavailable`, at once.
pub(crate) trait Transport: Send + Sync {
    fn get_status(&self, call: Call<'_>, done: Done<pb::GetStatusResponse>);

    fn create_worker_session(
        &self,
        call: Call<'_>,
        request: pb::CreateWorkerSessionRequest,
        done: Done<()>,
    );

    fn delete_worker_session(
        &self,
        call: Call<'_>,
        request: pb::DeleteWorkerSessionRequest,
        done: Done<()>,
    );

    fn register_graph(
        &self,
        call: Call<'_>,
        request: pb::RegisterGraphRequest,
        done: Done<pb::RegisterGraphResponse>,
    );

    fn deregister_graph(&self, call: Call<'_>, request: pb::DeregisterGraphRequest, done: Done<()>);

    /// An error in the response's body is an error here.
    fn run_graph(&self, call: Call<'_>, request: pb::RunGraphRequest, done: Done<RunGraphReport>);

    fn cleanup_graph(&self, call: Call<'_>, request: pb::CleanupGraphRequest, done: Done<()>);

    fn cleanup_all(&self, call: Call<'_>, request: pb::CleanupAllRequest, done: Done<()>);

    /// Receives a tensor, or [`Value::Dead`].
    fn recv_tensor(&self, call: Call<'_>, request: pb::RecvTensorRequest, done: Done<Value>);

    /// Number of tasks whose tensors come by our stream protocol now.
    fn streams(&self) -> usize {
        0
    }

    /// Tasks that owe an answer and whose silence has been reported, sorted, with its duration.
    fn silent(&self, now: Duration) -> Vec<(TaskName, Duration)> {
        let _ = now;
        Vec::new()
    }

    /// Runs what is due at `now`: probes of silent tasks, changed addresses.
    fn tick(&self, now: Duration) {
        let _ = now;
    }
}
