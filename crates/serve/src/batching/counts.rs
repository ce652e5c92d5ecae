//! Batching statistics of a version, over all its methods.

use std::sync::atomic::{AtomicU64, Ordering};

/// Batching statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    /// The number of batches that have run.
    pub(crate) batches: u64,
    /// The number of rows in these batches, without padding.
    pub(crate) rows: u64,
    /// The number of rejected requests.
    pub(crate) rejected: u64,
    /// The number of rows in the queues.
    pub(crate) waiting: u64,
}

/// The counters that batch schedulers update.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    batches: AtomicU64,
    rows: AtomicU64,
    rejected: AtomicU64,
    waiting: AtomicU64,
}

impl Totals {
    /// Counts a batch.
    pub(super) fn ran(&self, rows: usize) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Counts a rejected request.
    pub(super) fn rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Updates the number of waiting rows of one scheduler.
    pub(super) fn waiting(&self, before: usize, after: usize) {
        // Wrapping addition of a negative difference.
        self.waiting.fetch_add((after as u64).wrapping_sub(before as u64), Ordering::Relaxed);
    }

    /// The current statistics.
    pub(crate) fn now(&self) -> Counts {
        Counts {
            batches: self.batches.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
        }
    }
}
