//! What all partitions of one step share: the count of outstanding work (`outstanding`), cancellation, the waiting
//! caller and the partitions of other tasks.

use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_kernel::{Cancellation, Registration, Rendezvous};
use thalweg_tensor::Error;

use crate::execute::outstanding::Outstanding;
use crate::pool::Pool;
use crate::session::SessionCore;
use crate::session::metadata::RunMetadata;
use crate::session::options::RunOptions;
use crate::session::remote_tasks::RemotePartitions;
use crate::session::trace::Trace;

/// What all partitions of one step, or one function call, share.
pub(crate) struct StepShared {
    pub(crate) core: Arc<SessionCore>,
    pub(crate) outstanding: Outstanding,
    pub(crate) cancellation: Cancellation,
    pub(crate) rendezvous: Option<Arc<dyn Rendezvous>>,
    /// Aborts the rendezvous when the step is cancelled.
    _abort: Option<Registration>,
    pub(crate) trace: Option<Arc<Trace>>,
    /// Called at the end of a step or function call for which no thread waits.
    on_done: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    remote: Mutex<Remote>,
}

/// The partitions of a step that other tasks run.
#[derive(Default)]
struct Remote {
    /// Kept until the step has ended; dropping it makes the other tasks forget the step.
    running: Option<Box<dyn Send + Sync>>,
    report: Option<RunMetadata>,
}

impl StepShared {
    pub(crate) fn new(
        core: Arc<SessionCore>,
        cancellation: Cancellation,
        rendezvous: Option<Arc<dyn Rendezvous>>,
        trace: Option<Arc<Trace>>,
    ) -> StepShared {
        let abort = rendezvous
            .clone()
            .map(|rendezvous| cancellation.on_cancel(move |cause| rendezvous.abort(cause)));
        StepShared {
            core,
            outstanding: Outstanding::new(),
            cancellation,
            rendezvous,
            _abort: abort,
            trace,
            on_done: Mutex::new(None),
            remote: Mutex::default(),
        }
    }

    /// Prepares for another step, which has this cancellation.
    pub(crate) fn reset(&mut self, cancellation: Cancellation) {
        self.outstanding.reset();
        self.cancellation = cancellation;
    }

    pub(crate) fn pool(&self) -> &'static Pool {
        self.core.pool
    }

    /// Ends the step with this error, unless another came first.
    pub(crate) fn fail(&self, error: Error) {
        self.cancellation.cancel(error);
    }

    /// Starts the partitions of other tasks. The caller counts as outstanding.
    pub(crate) fn start_remote(
        self: &Arc<Self>,
        partitions: &dyn RemotePartitions,
        step: u64,
        options: &RunOptions,
    ) {
        self.outstanding.add(1);
        let shared = self.clone();
        let done = Box::new(move |result| {
            match result {
                Ok(report) => shared.remote.lock().report = Some(report),
                Err(e) => shared.fail(e),
            }
            shared.release();
        });
        let running = partitions.start(step, options, &self.cancellation, done);
        self.remote.lock().running = Some(running);
    }

    /// The step has ended: the other tasks forget it. Returns their report, if they took part.
    pub(crate) fn end_remote(&self) -> Option<RunMetadata> {
        let Remote { running, report } = std::mem::take(&mut *self.remote.lock());
        drop(running);
        report
    }

    /// Sets what the end of the step calls.
    pub(crate) fn on_done(&self, done: Box<dyn FnOnce() + Send>) {
        *self.on_done.lock() = Some(done);
    }

    /// Subtracts one from `outstanding`; true if that ended the step.
    pub(crate) fn release(&self) -> bool {
        if !self.outstanding.release() {
            return false;
        }
        let on_done = self.on_done.lock().take();
        if let Some(on_done) = on_done {
            on_done();
        }
        self.outstanding.wake_waiter();
        true
    }
}
