//! The end of a step: the count of outstanding work, and the one thread that waits for the end.
//!
//! The count is of threads at work, nodes that were offered to others and kernels that complete
//! later; the step has ended when it falls to zero, and then no thread touches its values any more.
//! Every change is an atomic addition, and subtractions have acquire and release ordering, so the
//! thread that brings the count to zero, or reads zero, sees all writes of the step.
//!
//! One thread may wait: the caller's. It sets `is_waiting` and then checks once more for the end and
//! for offered nodes; a thread that ends the step or offers a node writes that first and then checks
//! `is_waiting`. A sequentially consistent fence stands between the write and the check on both sides,
//! so at least one thread sees the other's write. The waiter holds the lock from before it sets the
//! flag until it sleeps, and the waker takes the lock between clearing the flag and notifying: the
//! wake-up is not lost.
//!
//! `tests/loom` checks this.

use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use crate::sync::{Condvar, Mutex};

/// What is under way in a step, and who waits for its end.
pub(crate) struct Outstanding {
    count: AtomicUsize,
    /// Whether the caller sleeps, or is about to.
    is_waiting: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Outstanding {
    /// Nothing is under way.
    pub(crate) fn new() -> Outstanding {
        Outstanding {
            count: AtomicUsize::new(0),
            is_waiting: AtomicBool::new(false),
            lock: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    /// Resets it; no other thread refers to it.
    pub(crate) fn reset(&mut self) {
        self.count.store(0, Ordering::Relaxed);
        self.is_waiting.store(false, Ordering::Relaxed);
    }

    /// Counts `more`. The caller is counted already, or no other thread refers to the step yet.
    #[inline]
    pub(crate) fn add(&self, more: usize) {
        self.count.fetch_add(more, Ordering::Relaxed);
    }

    /// Counts one off that cannot be the last: the caller is counted a second time.
    #[inline]
    pub(crate) fn give_up(&self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }

    /// Counts one off; true if it was the last: then the caller ends the step and calls
    /// [`Outstanding::wake_waiter`].
    #[inline]
    pub(crate) fn release(&self) -> bool {
        self.count.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Wakes the caller if it sleeps; false if it does not, or another thread wakes it just now.
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

    /// Sleeps until another thread calls, unless the step is over or `has_work`; true if it is over.
    pub(crate) fn wait(&self, has_work: impl FnOnce() -> bool) -> bool {
        let mut guard = self.lock.lock();
        // Exchanges, as in `wake_waiter`: all changes of the flag see the one before.
        self.is_waiting.swap(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let is_over = self.count.load(Ordering::SeqCst) == 0;
        if !is_over && !has_work() {
            self.changed.wait(&mut guard);
        }
        self.is_waiting.swap(false, Ordering::SeqCst);
        is_over
    }
}
