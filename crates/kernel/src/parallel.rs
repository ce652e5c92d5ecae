//! Intra-op parallelism: threads that share the loop of one kernel.

/// Runs the blocks of a loop on the threads that a session allows one kernel.
pub trait Parallel: Send + Sync {
    /// Calls `body(i)` once for every `i` in `0..blocks`, in any order, on this thread and others;
    /// returns when all calls have.
    fn run(&self, blocks: usize, body: &(dyn Fn(usize) + Sync));

    /// How many threads may work at once; only for choosing between algorithms with equal results.
    fn threads(&self) -> usize;
}

/// Runs all blocks on the calling thread.
pub struct OneThread;

impl Parallel for OneThread {
    fn run(&self, blocks: usize, body: &(dyn Fn(usize) + Sync)) {
        (0..blocks).for_each(body);
    }

    fn threads(&self) -> usize {
        1
    }
}
