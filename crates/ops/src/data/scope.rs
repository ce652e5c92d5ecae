//! The world of an iterator, which outlives the steps that draw from it.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use thalweg_kernel::{
    Background, Cancellation, Device, Environment, FunctionRunner, NoFunctions, Parallel,
    Registration, ResourceManager, StepContext, StepId,
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
    /// Steps of calls that ended well, for the next ones.
    idle: Mutex<Vec<CallStep>>,
    /// Stand in such a step for what is held weakly.
    no_resources: Arc<ResourceManager>,
    no_functions: Arc<dyn FunctionRunner>,
}

/// The step of one call of a function; it is cancelled with the scope.
pub(crate) struct CallStep {
    pub(crate) context: Arc<StepContext>,
    pub(crate) link: Registration,
}

/// Steps kept for later calls.
const IDLE_MAX: usize = 8;

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
            idle: Mutex::default(),
            no_resources: ResourceManager::new(""),
            no_functions: Arc::new(NoFunctions),
        })
    }

    /// A step of its own for one call of a function, which ends when the flag says so.
    pub(crate) fn step(&self, cancellation: Cancellation) -> Result<Arc<StepContext>> {
        let (resources, functions) = self.session()?;
        Ok(Arc::new(StepContext {
            step_id: self.step_id,
            call_depth: self.call_depth + 1,
            budget: self.budget.clone(),
            state_budget: self.state_budget.clone(),
            keeps_packed_weights: false,
            cancellation,
            resources,
            step_resources: ResourceManager::new("step"),
            parallel: self.parallel.clone(),
            background: self.background.clone(),
            functions,
            environment: self.environment.clone(),
            device: self.device.clone(),
        }))
    }

    /// What is held weakly.
    fn session(&self) -> Result<(Arc<ResourceManager>, Arc<dyn FunctionRunner>)> {
        let closed = || err!(Cancelled, "the session that the iterator was made in is closed");
        let resources = self.resources.upgrade().ok_or_else(closed)?;
        Ok((resources, self.functions.upgrade().ok_or_else(closed)?))
    }

    /// The step of an earlier call, or a new one.
    pub(crate) fn begin_call(&self) -> Result<CallStep> {
        let idle = self.idle.lock().pop();
        if let Some(mut step) = idle
            && let Some(context) = Arc::get_mut(&mut step.context)
        {
            (context.resources, context.functions) = self.session()?;
            return Ok(step);
        }
        let cancellation = Cancellation::default();
        let link = self.cancellation.link(&cancellation);
        Ok(CallStep { context: self.step(cancellation)?, link })
    }

    /// Keeps the step of a call that is over for a later one, unless somebody still holds it or
    /// something was left in it. What is kept holds neither the session nor its state.
    pub(crate) fn end_call(&self, mut step: CallStep) {
        let Some(context) = Arc::get_mut(&mut step.context) else { return };
        if context.cancellation.is_cancelled() || !context.step_resources.is_empty() {
            return;
        }
        context.resources = self.no_resources.clone();
        context.functions = self.no_functions.clone();
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(step);
        }
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
