//! Threads for one kernel's work.

/// Runs blocks of work on as many threads as the step has.
pub trait Parallel: Send + Sync {
    /// Calls `body(i)` once for every `i` in `0..blocks`, in any order, on any thread; returns
    /// when all are done. The caller's thread works too.
    fn run(&self, blocks: usize, body: &(dyn Fn(usize) + Sync));

    /// How many threads may work at once; only for choosing between algorithms with equal results.
    fn threads(&self) -> usize;
}

/// The caller's thread alone.
pub struct OneThread;

impl Parallel for OneThread {
    fn run(&self, blocks: usize, body: &(dyn Fn(usize) + Sync)) {
        (0..blocks).for_each(body);
    }

    fn threads(&self) -> usize {
        1
    }
}
