//! The blocks of a parallel loop: each is claimed once, and the owner waits for all.
//!
//! `next` counts claims, `finished` counts blocks that were run (or skipped). While a claimed block
//! runs, `finished` is below the number of blocks, so the owner waits, and what belongs to it, such as
//! the loop's body, is there. A thread that comes late claims nothing.
//!
//! What the blocks write reaches the owner: each addition to `finished` releases it, and the owner's
//! load of the last sum acquires all of it, as all changes of `finished` are such additions.
//!
//! `tests/loom` checks this.

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{CachePadded, spin_loop, yield_now};

/// Blocks of one loop.
pub(crate) struct Blocks {
    count: usize,
    next: CachePadded<AtomicUsize>,
    finished: CachePadded<AtomicUsize>,
}

impl Blocks {
    pub(crate) fn new(count: usize) -> Blocks {
        Blocks {
            count,
            next: CachePadded::new(AtomicUsize::new(0)),
            finished: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    /// Claims a block; `None` if all are claimed. The caller must call
    /// [`Blocks::finish`] once for it.
    pub(crate) fn claim(&self) -> Option<usize> {
        let block = self.next.fetch_add(1, Ordering::Relaxed);
        (block < self.count).then_some(block)
    }

    /// A claimed block is over; from now on its thread touches nothing of the owner's.
    pub(crate) fn finish(&self) {
        self.finished.fetch_add(1, Ordering::Release);
    }

    /// Returns once all blocks are finished.
    pub(crate) fn wait(&self) {
        let mut rounds = 0u32;
        while self.finished.load(Ordering::Acquire) < self.count {
            rounds += 1;
            if rounds < 64 { spin_loop() } else { yield_now() }
        }
    }
}
