//! Threads of a pool that have nothing to do: how they sleep, and how they are woken.
//!
//! A thread that queues a job publishes it and then reads the number of sleepers; a sleeper counts itself and
//! then looks for jobs. A sequentially consistent fence stands between the two on both sides, so at
//! least one sees the other: the sleeper is woken, or it sees the job and stays awake. A sleeper
//! holds the lock from before it counts itself until it waits, and the waking thread takes the lock, so
//! the call is not lost. A sleeper that was woken already looks for jobs before it sleeps again.
//!
//! `tests/loom` checks this.

use crate::sync::atomic::{AtomicUsize, Ordering, fence};
use crate::sync::{CachePadded, Condvar, Mutex};

/// The threads of a pool that sleep.
pub(crate) struct Sleepers {
    count: CachePadded<AtomicUsize>,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Sleepers {
    pub(crate) fn new() -> Sleepers {
        Sleepers {
            count: CachePadded::new(AtomicUsize::new(0)),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// Wakes a thread, if one sleeps. The caller has published a job before.
    pub(crate) fn wake_one(&self) {
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) > 0 {
            let _guard = self.lock.lock();
            self.wake.notify_one();
        }
    }

    /// Wakes all threads. The caller has published the reason before.
    pub(crate) fn wake_all(&self) {
        let _guard = self.lock.lock();
        self.wake.notify_all();
    }

    /// Sleeps until this or another thread is woken, unless `has_reason` to stay awake.
    pub(crate) fn sleep(&self, has_reason: impl FnOnce() -> bool) {
        let mut guard = self.lock.lock();
        self.count.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !has_reason() {
            self.wake.wait(&mut guard);
        }
        self.count.fetch_sub(1, Ordering::SeqCst);
    }
}
