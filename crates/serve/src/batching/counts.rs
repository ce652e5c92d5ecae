//! What batching has done, for all methods of a version together: methods come and go, counts stay.

use std::sync::atomic::{AtomicU64, Ordering};

/// What batching has done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    /// Batches that have run.
    pub(crate) batches: u64,
    /// Rows of requests in them.
    pub(crate) rows: u64,
    /// Requests that were turned away.
    pub(crate) refused: u64,
    /// Rows that wait now.
    pub(crate) waiting: u64,
}

/// Where batchers count.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    batches: AtomicU64,
    rows: AtomicU64,
    refused: AtomicU64,
    waiting: AtomicU64,
}

impl Totals {
    /// A batch has run.
    pub(super) fn ran(&self, rows: usize) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// A request was turned away.
    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// The rows that wait at one batcher have changed.
    pub(super) fn waiting(&self, before: usize, after: usize) {
        // Wraps round where fewer wait than before, as it should.
        self.waiting.fetch_add((after as u64).wrapping_sub(before as u64), Ordering::Relaxed);
    }

    /// The counts as they are now.
    pub(crate) fn now(&self) -> Counts {
        Counts {
            batches: self.batches.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
        }
    }
}
