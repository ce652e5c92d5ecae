//! What all partitions of one step share: when it ends, how it fails, who waits for it.
//!
//! `outstanding` counts threads at work, nodes that were offered to others and kernels that complete
//! later; the step is over when it falls to zero, and then nobody touches its values any more. Every
//! change of it is an addition to an atomic number, so whoever brings it to zero, or sees it there,
//! sees all that was done before: each subtraction releases and each acquires.
//!
//! One thread may wait: the caller's. It raises `is_waiting` and then looks once more for an end and
//! for something to do; whoever makes either writes it first and then looks at `is_waiting`. All
//! four are sequentially consistent, so at least one sees the other's. The waiter holds the lock from
//! before it raises the flag until it sleeps, and whoever takes the flag down takes the lock before
//! it calls: the call is not lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

use parking_lot::{Condvar, Mutex};
use thalweg_kernel::{Cancellation, Registration, Rendezvous};
use thalweg_tensor::Error;

use crate::pool::Pool;
use crate::session::SessionCore;
use crate::session::metadata::{RunMetadata, Trace};
use crate::session::options::RunOptions;
use crate::session::remote_tasks::RemotePartitions;

/// What all partitions of one step, or one function call, share.
pub(crate) struct StepShared {
    pub(crate) core: Arc<SessionCore>,
    pub(crate) outstanding: AtomicUsize,
    pub(crate) cancellation: Cancellation,
    pub(crate) rendezvous: Option<Arc<dyn Rendezvous>>,
    /// Ends what waits at the rendezvous when the step is cancelled, by whomever.
    _abort: Option<Registration>,
    pub(crate) trace: Option<Arc<Trace>>,
    /// Whether the caller sleeps, or is about to.
    is_waiting: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
    /// Called at the end: for function calls, for which nobody waits.
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
            outstanding: AtomicUsize::new(0),
            cancellation,
            rendezvous,
            _abort: abort,
            trace,
            is_waiting: AtomicBool::new(false),
            lock: Mutex::new(()),
            changed: Condvar::new(),
            on_done: Mutex::new(None),
            remote: Mutex::default(),
        }
    }

    /// The flag for another step, if nobody else knows this one.
    pub(crate) fn reset(&mut self, cancellation: Cancellation) {
        *self.outstanding.get_mut() = 0;
        *self.is_waiting.get_mut() = false;
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
        self.outstanding.fetch_add(1, Ordering::Relaxed);
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

    /// Takes one away from `outstanding`; whoever takes the last ends the step.
    pub(crate) fn release(&self) -> bool {
        if self.outstanding.fetch_sub(1, Ordering::SeqCst) != 1 {
            return false;
        }
        let on_done = self.on_done.lock().take();
        if let Some(on_done) = on_done {
            on_done();
        }
        self.wake_waiter();
        true
    }

    /// Wakes the caller if it sleeps; false if it does not, or somebody else wakes it just now.
    pub(crate) fn wake_waiter(&self) -> bool {
        fence(Ordering::SeqCst);
        if !self.is_waiting.load(Ordering::SeqCst) || !self.is_waiting.swap(false, Ordering::SeqCst)
        {
            return false;
        }
        drop(self.lock.lock());
        self.changed.notify_one();
        true
    }

    /// Sleeps until somebody calls, unless the step is over or `has_work`; true if it is over.
    pub(crate) fn wait(&self, has_work: impl FnOnce() -> bool) -> bool {
        let mut guard = self.lock.lock();
        self.is_waiting.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let is_over = self.outstanding.load(Ordering::SeqCst) == 0;
        if !is_over && !has_work() {
            self.changed.wait(&mut guard);
        }
        self.is_waiting.store(false, Ordering::SeqCst);
        is_over
    }
}
