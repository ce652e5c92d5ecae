//! The world of an iterator, which outlives the steps that draw from it.

use std::sync::{Arc, Weak};

use thalweg_kernel::{
    Background, Cancellation, Device, Environment, FunctionRunner, Parallel, Registration,
    ResourceManager, StepContext, StepId,
};
use thalweg_tensor::{Budget, Result, err};

/// What all parts of one iterator share.
///
/// The session is held weakly: it holds the resource manager, which holds iterators.
pub(crate) struct Scope {
    pub(crate) budget: Arc<Budget>,
    pub(crate) environment: Environment,
    pub(crate) background: Arc<dyn Background>,
    /// Ends what the iterator has begun, when it goes or when its session does.
    pub(crate) cancellation: Cancellation,
    _closing: Registration,
    step_id: StepId,
    call_depth: u32,
    state_budget: Arc<Budget>,
    resources: Weak<ResourceManager>,
    functions: Weak<dyn FunctionRunner>,
    parallel: Arc<dyn Parallel>,
    device: Arc<dyn Device>,
}

impl Scope {
    /// A world like that of `step`, without its end.
    pub(crate) fn new(step: &StepContext) -> Arc<Scope> {
        let cancellation = Cancellation::default();
        Arc::new(Scope {
            budget: step.budget.clone(),
            environment: step.environment.clone(),
            background: step.background.clone(),
            _closing: step.background.closing().link(&cancellation),
            cancellation,
            step_id: step.step_id,
            call_depth: step.call_depth,
            state_budget: step.state_budget.clone(),
            resources: Arc::downgrade(&step.resources),
            functions: Arc::downgrade(&step.functions),
            parallel: step.parallel.clone(),
            device: step.device.clone(),
        })
    }

    /// A step of its own for one call of a function, which ends when the flag says so.
    pub(crate) fn step(&self, cancellation: Cancellation) -> Result<Arc<StepContext>> {
        let closed = || err!(Cancelled, "the session that the iterator was made in is closed");
        Ok(Arc::new(StepContext {
            step_id: self.step_id,
            call_depth: self.call_depth + 1,
            budget: self.budget.clone(),
            state_budget: self.state_budget.clone(),
            cancellation,
            resources: self.resources.upgrade().ok_or_else(closed)?,
            step_resources: ResourceManager::new("step"),
            parallel: self.parallel.clone(),
            background: self.background.clone(),
            functions: self.functions.upgrade().ok_or_else(closed)?,
            environment: self.environment.clone(),
            device: self.device.clone(),
        }))
    }

    /// How many calls to keep going at once where a graph leaves that to the runtime.
    pub(crate) fn calls(&self, asked: i64) -> usize {
        /// Calls beyond which more only take memory.
        const CALLS_MAX: usize = 1024;
        match usize::try_from(asked) {
            Ok(n) => n.clamp(1, CALLS_MAX),
            Err(_) => self.background.threads().max(1),
        }
    }
}
