//! Ready nodes that any thread may run, and which threads run nodes of one partition.
//!
//! Up to `threads_max` threads run nodes of a partition at once. `active` counts them, `queued` counts
//! jobs in the pool that will try to become active. A thread that offers a node writes `len`, then
//! wakes the waiting caller, or queues a job if `active + queued` is below the bound. A thread that
//! leaves decrements `active`, a job that begins decrements `queued`, and then each reads `len`. A
//! sequentially consistent fence stands between the write and the read on both sides, so if the offer
//! counted on a thread that was leaving, that thread sees the node and becomes active again, or finds
//! that others are, to which the same applies. No node is left behind.
//!
//! `tests/loom` checks this.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering, fence};

/// The offered nodes of a partition, and the threads that run its nodes.
pub(crate) struct Offers<T> {
    nodes: Mutex<Vec<T>>,
    /// Number of `nodes`.
    len: AtomicUsize,
    /// Threads that run nodes of this partition.
    active: AtomicUsize,
    /// Jobs in the pool that have not begun.
    queued: AtomicUsize,
    /// Most threads that may be active.
    threads_max: usize,
}

impl<T: Copy> Offers<T> {
    /// No nodes, and no active thread.
    pub(crate) fn new(threads_max: usize) -> Offers<T> {
        Offers {
            nodes: Mutex::default(),
            len: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            threads_max,
        }
    }

    /// Whether no nodes are offered.
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::SeqCst) == 0
    }

    /// Whether more than one thread may be active.
    pub(crate) fn is_parallel(&self) -> bool {
        self.threads_max > 1
    }

    /// Whether a thread that becomes active would find a node.
    pub(crate) fn is_wanting(&self) -> bool {
        !self.is_empty() && self.active.load(Ordering::SeqCst) < self.threads_max
    }

    /// Offers nodes. The caller wakes the waiting caller of the step or queues jobs then
    /// ([`Offers::count_job`]).
    pub(crate) fn push(&self, nodes: &[T]) {
        let mut offered = self.nodes.lock();
        offered.extend_from_slice(nodes);
        self.len.store(offered.len(), Ordering::SeqCst);
        drop(offered);
        fence(Ordering::SeqCst);
    }

    /// Counts a job that the caller queues then; false if there are enough threads and jobs.
    pub(crate) fn count_job(&self) -> bool {
        let threads = self.active.load(Ordering::SeqCst) + self.queued.load(Ordering::SeqCst);
        if threads >= self.threads_max {
            return false;
        }
        self.queued.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// A job begins; true if its thread is active then.
    pub(crate) fn begin_job(&self) -> bool {
        self.queued.fetch_sub(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.try_enter()
    }

    /// Takes a node; the caller's thread is active.
    pub(crate) fn pop(&self) -> Option<T> {
        if self.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut offered = self.nodes.lock();
        let node = offered.pop();
        self.len.store(offered.len(), Ordering::SeqCst);
        node
    }

    /// Makes the thread that starts the partition active.
    pub(crate) fn enter(&self) {
        self.active.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes this thread active, if nodes are offered and fewer than `threads_max` threads are active.
    pub(crate) fn try_enter(&self) -> bool {
        let one_more = |n: usize| (n < self.threads_max).then_some(n + 1);
        !self.is_empty()
            && self.active.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_ok()
    }

    /// Makes this thread inactive; true if it is active again, because a node was offered meanwhile.
    pub(crate) fn leave(&self) -> bool {
        self.active.fetch_sub(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.try_enter()
    }

    /// Makes this thread inactive; true if nodes are offered: then a job is counted, which the caller
    /// queues.
    pub(crate) fn leave_for_job(&self) -> bool {
        self.active.fetch_sub(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let is_needed = !self.is_empty();
        if is_needed {
            self.queued.fetch_add(1, Ordering::SeqCst);
        }
        is_needed
    }

    /// Makes this thread inactive; it looks for offered nodes by itself then.
    pub(crate) fn leave_to_wait(&self) {
        self.active.fetch_sub(1, Ordering::SeqCst);
    }
}
