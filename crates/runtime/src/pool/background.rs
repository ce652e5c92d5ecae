//! What sessions lend kernels for work beside their steps: jobs on the pool, and word of the end.

use std::sync::Arc;

use thalweg_kernel::{
    Background, Cancellation, DeviceDescription, DeviceName, Environment, HostDevice,
    SessionContext, StepContext, StepId,
};
use thalweg_tensor::Budget;

use crate::environment::memory_limit_bytes;
use crate::pool::Pool;
use crate::pool::waiting;

/// A step of no session, for work that needs threads, files and memory but no graph: input pipelines
/// that a program draws from itself.
pub fn detached_step(environment: Environment) -> Arc<StepContext> {
    let memory = memory_limit_bytes();
    let budget = Budget::new(memory);
    let device = DeviceDescription::cpu(DeviceName::cpu("localhost", 0, 0), memory as u64);
    let session = SessionContext {
        background: Arc::new(PoolJobs::new(Pool::global())),
        ..SessionContext::isolated(&budget, environment)
    };
    let (id, cancellation) = (StepId::default(), Cancellation::default());
    Arc::new(StepContext::new(Arc::new(session), HostDevice::shared(device), id, cancellation))
}

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

    fn spawn_waiting(&self, job: Box<dyn FnOnce() + Send>) {
        waiting::spawn(job);
    }

    fn spread_waiting(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        waiting::spread(self.pool.threads(), count, work);
    }

    fn closing(&self) -> &Cancellation {
        &self.closing
    }

    fn threads(&self) -> usize {
        self.pool.threads()
    }
}
