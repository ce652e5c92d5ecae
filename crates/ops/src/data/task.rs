//! Background tasks: polled when woken, by one thread at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Wake, Waker};

use thalweg_kernel::Background;

/// Work that is polled until it must wait.
pub(crate) trait Work: Send + Sync + 'static {
    /// Advances the work. When it must wait, it registers the context's waker.
    fn advance(&self, cx: &mut Context<'_>) -> After;
}

/// Result of [`Work::advance`].
#[derive(Default)]
pub(crate) struct After {
    /// Whether `advance` is to be called again at once.
    pub(crate) is_more: bool,
    /// Called after the task is released, because it may take long.
    pub(crate) then: Option<Box<dyn FnOnce() + Send>>,
}

/// Not running and not notified.
const IDLE: u8 = 0;
/// A job that will run it is queued on the pool.
const QUEUED: u8 = 1;
/// A thread runs it.
const RUNNING: u8 = 2;
/// A thread runs it, and it was notified since, so it must run once more.
const AGAIN: u8 = 3;

/// Work and its state.
pub(crate) struct Task<W> {
    state: AtomicU8,
    background: Arc<dyn Background>,
    pub(crate) work: W,
}

impl<W: Work> Task<W> {
    pub(crate) fn new(background: &Arc<dyn Background>, work: W) -> Arc<Task<W>> {
        Arc::new(Task { state: AtomicU8::new(IDLE), background: background.clone(), work })
    }

    /// Queues a job that runs the work.
    pub(crate) fn notify(self: &Arc<Self>) {
        let next = |state| match state {
            IDLE => Some(QUEUED),
            RUNNING => Some(AGAIN),
            _ => None,
        };
        if self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next) == Ok(IDLE) {
            self.queue();
        }
    }

    /// Runs the work on this thread; if another thread is running it, that thread runs it once
    /// more.
    pub(crate) fn run_here(self: &Arc<Self>) {
        let next = |state| Some(if state == IDLE || state == QUEUED { RUNNING } else { AGAIN });
        let before = self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        if matches!(before, Ok(IDLE | QUEUED)) {
            self.run();
        }
    }

    fn queue(self: &Arc<Self>) {
        let task = self.clone();
        self.background.spawn(Box::new(move || {
            // Another thread may have run the task before this job started.
            let claimed =
                task.state.compare_exchange(QUEUED, RUNNING, Ordering::SeqCst, Ordering::SeqCst);
            if claimed.is_ok() {
                task.run();
            }
        }));
    }

    /// The caller has set the state to `RUNNING`.
    fn run(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        let After { is_more, then } = self.work.advance(&mut Context::from_waker(&waker));
        drop(waker);
        let is_idle = !is_more
            && self
                .state
                .compare_exchange(RUNNING, IDLE, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok();
        if !is_idle {
            self.state.store(QUEUED, Ordering::SeqCst);
            self.queue();
        }
        if let Some(then) = then {
            then();
        }
    }
}

impl<W: Work> Wake for Task<W> {
    fn wake(self: Arc<Self>) {
        self.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify();
    }
}
