//! Background jobs of a session, on the process's pool and on its blocking threads.

use std::sync::Arc;

use thalweg_kernel::{
    Background, Cancellation, DeviceDescription, DeviceName, Environment, HostDevice,
    SessionContext, StepContext, StepId,
};
use thalweg_tensor::Budget;

use crate::environment::memory_limit_bytes;
use crate::pool::Pool;
use crate::pool::blocking;

/// A step without a session, for input pipelines that a program iterates itself: it has threads, files
/// and memory, but no graph.
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

/// Runs a session's background jobs on the process's pool.
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

    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>) {
        blocking::spawn(job);
    }

    fn for_each_blocking(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        blocking::for_each(self.pool.threads(), count, work);
    }

    fn closing(&self) -> &Cancellation {
        &self.closing
    }

    fn threads(&self) -> usize {
        self.pool.threads()
    }
}
