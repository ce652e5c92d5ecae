//! Work that goes on beside steps: input pipelines that run ahead of those who draw from them.

use std::sync::LazyLock;

use crate::Cancellation;

/// Threads for work that no step waits for; `runtime` implements it.
pub trait Background: Send + Sync {
    /// Runs `job` soon, on another thread. It must not wait for anything.
    fn spawn(&self, job: Box<dyn FnOnce() + Send>);

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

    fn closing(&self) -> &Cancellation {
        static NEVER: LazyLock<Cancellation> = LazyLock::new(Cancellation::default);
        &NEVER
    }

    fn threads(&self) -> usize {
        1
    }
}
