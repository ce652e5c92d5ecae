//! Background jobs, which no step waits for: prefetching input pipelines, checkpoint I/O.

use std::sync::LazyLock;

use crate::Cancellation;

/// Threads for background jobs of a session; `runtime` implements it.
pub trait Background: Send + Sync {
    /// Queues `job` for a thread of the pool. The job must not block.
    fn spawn(&self, job: Box<dyn FnOnce() + Send>);

    /// Queues `job` for a thread on which it may block on files. These threads are bounded in number,
    /// so a job must not wait for another such job.
    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>);

    /// Calls `work(i)` for every `i < count`, on this thread and on others that may block on files,
    /// and returns when all calls have. The calling thread must be one that may block.
    fn for_each_blocking(&self, count: usize, work: &(dyn Fn(usize) + Sync));

    /// Cancelled when the session is closed: its background jobs must end then.
    fn closing(&self) -> &Cancellation;

    /// Number of jobs that may run at once; only a hint for how far to prefetch.
    fn threads(&self) -> usize;
}

/// Runs each job at once on the calling thread: for tests and constant folding.
pub struct NoBackground;

impl Background for NoBackground {
    fn spawn(&self, job: Box<dyn FnOnce() + Send>) {
        job();
    }

    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>) {
        job();
    }

    fn for_each_blocking(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
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
