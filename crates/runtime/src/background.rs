//! What sessions lend kernels for work beside their steps: jobs on the pool, and word of the end.

use thalweg_kernel::{Background, Cancellation};

use crate::pool::Pool;

/// A session's jobs on the process's pool.
pub(crate) struct PoolJobs {
    pool: &'static Pool,
    closing: Cancellation,
}

impl PoolJobs {
    pub(crate) fn new(pool: &'static Pool) -> PoolJobs {
        PoolJobs { pool, closing: Cancellation::default() }
    }
}

impl Background for PoolJobs {
    fn spawn(&self, job: Box<dyn FnOnce() + Send>) {
        self.pool.spawn(job);
    }

    fn closing(&self) -> &Cancellation {
        &self.closing
    }

    fn threads(&self) -> usize {
        self.pool.threads()
    }
}
