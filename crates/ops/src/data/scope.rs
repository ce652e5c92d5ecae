//! The context of a dataset iterator, which outlives the steps that use it.

use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use thalweg_kernel::{
    Background, Cancellation, Device, Environment, Registration, SessionContext, StepContext,
    StepId,
};
use thalweg_tensor::{Budget, Result, err};

/// State shared by all parts of one iterator.
///
/// The session is held weakly: it owns the resource manager, which owns iterators.
pub(crate) struct Scope {
    pub(crate) budget: Arc<Budget>,
    pub(crate) environment: Environment,
    pub(crate) background: Arc<dyn Background>,
    /// Cancels running calls and background work, when the iterator is dropped or its session
    /// closes.
    pub(crate) cancellation: Cancellation,
    _closing: Registration,
    step_id: StepId,
    call_depth: u32,
    session: Weak<SessionContext>,
    device: Arc<dyn Device>,
    /// Call steps that ended without error, for reuse.
    idle: Mutex<Vec<CallStep>>,
}

/// Placeholder for the session in idle steps, which must not keep the session alive.
static NO_SESSION: LazyLock<Arc<SessionContext>> =
    LazyLock::new(|| Arc::new(SessionContext::isolated(&Budget::new(0), Environment::frozen())));

/// The step of one function call; the scope's cancellation cancels it.
pub(crate) struct CallStep {
    pub(crate) context: Arc<StepContext>,
    pub(crate) link: Registration,
}

/// Maximum idle steps.
const IDLE_MAX: usize = 8;

impl Scope {
    /// A scope with the session and files of `step`, independent of the step's end.
    pub(crate) fn new(step: &StepContext) -> Arc<Scope> {
        let cancellation = Cancellation::default();
        Arc::new(Scope {
            budget: step.budget().clone(),
            environment: step.environment().clone(),
            background: step.background().clone(),
            _closing: step.background().closing().link(&cancellation),
            cancellation,
            step_id: step.step_id(),
            call_depth: step.call_depth(),
            session: Arc::downgrade(step.session()),
            device: step.device().clone(),
            idle: Mutex::default(),
        })
    }

    /// A step for one function call with this cancellation.
    pub(crate) fn step(&self, cancellation: Cancellation) -> Result<Arc<StepContext>> {
        let device = self.device.clone();
        let step = StepContext::new(self.session()?, device, self.step_id, cancellation);
        Ok(Arc::new(step.at_call_depth(self.call_depth + 1)))
    }

    fn session(&self) -> Result<Arc<SessionContext>> {
        let closed = || err!(Cancelled, "the session of the iterator is closed");
        self.session.upgrade().ok_or_else(closed)
    }

    /// An idle step, or a new one.
    pub(crate) fn begin_call(&self) -> Result<CallStep> {
        let idle = self.idle.lock().pop();
        if let Some(mut step) = idle
            && let Some(context) = Arc::get_mut(&mut step.context)
        {
            context.set_session(self.session()?);
            return Ok(step);
        }
        let cancellation = Cancellation::default();
        let link = self.cancellation.link(&cancellation);
        Ok(CallStep { context: self.step(cancellation)?, link })
    }

    /// Returns the step of a completed call for reuse, unless it is still referenced or holds step
    /// resources. Idle steps hold neither the session nor its state.
    pub(crate) fn end_call(&self, mut step: CallStep) {
        let Some(context) = Arc::get_mut(&mut step.context) else { return };
        if context.cancellation().is_cancelled() || !context.step_resources().is_empty() {
            return;
        }
        context.set_session(NO_SESSION.clone());
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(step);
        }
    }

    /// Number of parallel calls, for `AUTOTUNE` (-1) chosen by the runtime.
    pub(crate) fn calls(&self, asked: i64) -> usize {
        /// Maximum; more parallel calls would only take memory.
        const CALLS_MAX: usize = 1024;
        match usize::try_from(asked) {
            Ok(n) => n.clamp(1, CALLS_MAX),
            Err(_) => self.background.threads().max(1),
        }
    }
}
