//! Work that goes on beside steps: input pipelines that run ahead of those who draw from them.

use std::sync::LazyLock;

use crate::Cancellation;

/// Threads for work that no step waits for; `runtime` implements it.
pub trait Background: Send + Sync {
    /// Runs `job` soon, on another thread. It must not wait for anything.
    fn spawn(&self, job: Box<dyn FnOnce() + Send>);

    /// Runs `job` soon, on a thread on which it may wait for files. There are only so many of them,
    /// so it must not wait for another such job.
    fn spawn_waiting(&self, job: Box<dyn FnOnce() + Send>);

    /// Calls `work(i)` for every `i < count`, on this thread and on others that may wait for files,
    /// and returns when all are done. For threads that may wait themselves.
    fn spread_waiting(&self, count: usize, work: &(dyn Fn(usize) + Sync));

    /// Cancelled when the session goes: work that was begun for it must end then.
    fn closing(&self) -> &Cancellation;

    /// How many jobs may run at once; only for choosing how far to run ahead.
    fn threads(&self) -> usize;
}

/// Jobs run at once, on the thread that asks: for tests and for folding.
pub struct NoBackground;

impl Background for NoBackground {
    fn spawn(&self, job: Box<dyn FnOnce() + Send>) {
        job();
    }

    fn spawn_waiting(&self, job: Box<dyn FnOnce() + Send>) {
        job();
    }

    fn spread_waiting(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(work);
    }

    fn closing(&self) -> &Cancellation {
        static NEVER: LazyLock<Cancellation> = LazyLock::new(Cancellation::default);
        &NEVER
    }

    fn threads(&self) -> usize {
        1
    }
}
