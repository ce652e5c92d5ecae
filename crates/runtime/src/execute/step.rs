//! What all partitions of one step share: the count of outstanding work, cancellation, the waiting
//! caller and the partitions of other tasks.
//!
//! `outstanding` counts threads at work, nodes that were offered to others and kernels that complete
//! later; the step has ended when it falls to zero, and then no thread touches its values any more.
//! Every change is an atomic addition with acquire and release ordering, so the thread that brings the
//! count to zero, or reads zero, sees all writes of the step.
//!
//! One thread may wait: the caller's. It sets `is_waiting` and then checks once more for the end and
//! for offered nodes; a thread that ends the step or offers a node writes that first and then checks
//! `is_waiting`. All four accesses are sequentially consistent, so at least one thread sees the other's
//! write. The waiter holds the lock from before it sets the flag until it sleeps, and the waker takes
//! the lock between clearing the flag and notifying: the wake-up is not lost.

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
    /// Aborts the rendezvous when the step is cancelled.
    _abort: Option<Registration>,
    pub(crate) trace: Option<Arc<Trace>>,
    /// Whether the caller sleeps, or is about to.
    is_waiting: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
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

    /// Prepares for another step, which has this cancellation.
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

    /// Subtracts one from `outstanding`; true if that ended the step.
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

    /// Wakes the waiting caller; false if it does not wait, or another thread is waking it.
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

    /// Sleeps until woken, unless the step has ended or `has_work`; true if the step has ended.
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
