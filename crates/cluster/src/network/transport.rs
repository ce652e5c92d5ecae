//! What tasks ask of each other, whatever carries it.

use std::time::Duration;

use thalweg_kernel::{Cancellation, Value};
use thalweg_proto as pb;
use thalweg_tensor::Result;

use crate::cluster_spec::TaskName;

/// A question to another task's worker.
pub(crate) enum Call {
    GetStatus,
    CreateWorkerSession(Box<pb::CreateWorkerSessionRequest>),
    DeleteWorkerSession(pb::DeleteWorkerSessionRequest),
    RegisterGraph(Box<pb::RegisterGraphRequest>),
    DeregisterGraph(pb::DeregisterGraphRequest),
    RunGraph(Box<pb::RunGraphRequest>),
    CleanupGraph(pb::CleanupGraphRequest),
    CleanupAll(pb::CleanupAllRequest),
    RecvTensor(pb::RecvTensorRequest),
}

/// What a worker answers.
pub(crate) enum Reply {
    Status(pb::GetStatusResponse),
    Registered(pb::RegisterGraphResponse),
    /// Errors in the body have become errors already.
    Ran(Box<pb::RunGraphResponse>),
    /// A tensor, or the word that it is dead.
    Received(Value),
    Done,
}

/// Is told the answer, once.
pub(crate) type Answered = Box<dyn FnOnce(Result<Reply>) + Send>;

/// The way to other tasks.
pub(crate) trait Transport: Send + Sync {
    /// Asks `to`. Cancelling ends the call, with the cause as its answer, and tells the other side
    /// that nobody waits any more. A task that cannot be reached is `Unavailable`, at once.
    fn call(
        &self,
        to: &TaskName,
        call: Call,
        limit: Option<Duration>,
        cancellation: &Cancellation,
        answered: Answered,
    );

    /// Tasks whose tensors come by a stream of ours now.
    fn streams(&self) -> usize {
        0
    }

    /// Tasks that owe an answer and have been silent for long enough to be worth a word, sorted.
    fn silent(&self, now: Duration) -> Vec<(TaskName, Duration)> {
        let _ = now;
        Vec::new()
    }

    /// Connections made from now on live where the task's own server does: an answer that makes
    /// another one does so without waking a second thread.
    fn live_on(&self, runtime: tokio::runtime::Handle) {
        let _ = runtime;
    }

    /// Time has passed; it is `now`.
    fn tick(&self, now: Duration) {
        let _ = now;
    }
}
