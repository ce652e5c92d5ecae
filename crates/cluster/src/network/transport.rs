//! The calls of TensorFlow's `WorkerService` that tasks make to each other, independent of the transport.

use std::time::Duration;

use thalweg_kernel::{Cancellation, Value};
use thalweg_proto as pb;
use thalweg_runtime::RunMetadata;
use thalweg_tensor::Result;

use crate::cluster_spec::TaskName;
use crate::network::trace_messages::{ClockRequest, ClockResponse};

/// The callee of a call, its timeout and its cancellation.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    /// The task that is called.
    pub(crate) to: &'a TaskName,
    /// Timeout; none if the call may take as long as a step.
    pub(crate) timeout: Option<Duration>,
    /// Cancels the call: its result is the cause, and the callee is notified.
    pub(crate) cancellation: &'a Cancellation,
}

/// Callback with the result of a call. Called exactly once, on any thread.
pub(crate) type Done<T> = Box<dyn FnOnce(Result<T>) + Send>;

/// A worker's answer to `RunGraph`.
#[derive(Default)]
pub(crate) struct RunGraphReport {
    pub(crate) metadata: RunMetadata,
    /// Whether the worker has dropped all state of the step, so that it needs no `CleanupGraph`.
    pub(crate) is_cleaned_up: bool,
    /// When the partition of a traced step had ended, by the worker's clock; 0 if the worker does not say.
    pub(crate) ended_ns: u64,
}

/// Calls to the workers of other tasks. Calls to an unreachable task fail with `Unavailable` at once.
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

    /// The time by the clock of a task; tasks of TensorFlow do not tell.
    fn clock(&self, call: Call<'_>, request: ClockRequest, done: Done<ClockResponse>);

    /// Number of tasks with an open connection of the stream protocol.
    fn streams(&self) -> usize {
        0
    }

    /// Tasks that have been reported as silent, sorted, with the duration of the silence.
    fn silent(&self, now: Duration) -> Vec<(TaskName, Duration)> {
        let _ = now;
        Vec::new()
    }

    /// Runs periodic work at time `now`: probes silent tasks, refreshes changed addresses.
    fn tick(&self, now: Duration) {
        let _ = now;
    }
}
