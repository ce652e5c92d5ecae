//! One step of a plan, from its begin to its end.
//!
//! `Session::run`, `Callable`, `PartialRun` and a registered graph all run a [`Step`]. They differ in
//! how feeds and fetches pass: as slots of the first partition ([`Step::with_feeds`]), or through the
//! step's rendezvous ([`Step::with_rendezvous`]), where [`FetchCollector`] gathers them. A function
//! call is no step: it shares its caller's context, and only has execution state of its own.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;
use thalweg_kernel::{Cancellation, Registration, Rendezvous, StepContext, StepId};
use thalweg_tensor::{Result, Tensor, bail, ensure};

#[cfg(doc)]
use crate::FetchCollector;
use crate::execute::StepState;
use crate::execute::deadline::Deadline;
use crate::execute::executable::Executable;
use crate::execute::rendezvous::LocalRendezvous;
use crate::execute::step::StepShared;
use crate::session::SessionCore;
use crate::session::metadata::RunMetadata;
use crate::session::options::RunOptions;
use crate::session::plan_cache::CachedPlan;
use crate::session::report::Reports;
use crate::session::trace::Trace;

/// The fetches of a step in the caller's order, and its report.
pub(crate) type StepOutputs = (Vec<Tensor>, RunMetadata);

/// One step of a plan on this task.
pub(crate) struct Step {
    plan: Arc<CachedPlan>,
    /// One per executable of the plan; the first has the client's feeds and fetches.
    states: SmallVec<[Arc<StepState>; 1]>,
    reports: Reports,
    /// The number of the step if its nodes' times are kept for later plans.
    learns: Option<u64>,
    caller: CallerLink,
}

/// Lets the caller's cancellation and its timeout end a step, until this is dropped.
#[derive(Default)]
pub(crate) struct CallerLink {
    _cancellation: Option<Registration>,
    _deadline: Option<Deadline>,
}

impl CallerLink {
    pub(crate) fn new(options: &RunOptions, step: &Cancellation) -> CallerLink {
        CallerLink {
            _cancellation: options.cancellation.as_ref().map(|caller| caller.link(step)),
            _deadline: options.timeout.and_then(|timeout| Deadline::after(timeout, step)),
        }
    }
}

impl Step {
    /// A step whose feeds are these tensors, in the order of the plan's names, and whose fetches are
    /// returned at its end.
    pub(crate) fn with_feeds(
        core: &Arc<SessionCore>,
        plan: Arc<CachedPlan>,
        options: &RunOptions,
        feeds: impl Iterator<Item = Tensor>,
    ) -> Result<Step> {
        let id = core.next_step_id(options);
        let plan = plan.newest();
        let learns = plan.learning.as_ref().and_then(|learning| learning.begin_step());
        let reports = Reports::of_step(options, learns.is_some());
        let recycled = if plan.recycles(reports) { plan.recycled_state(id) } else { None };
        let mut states = match recycled {
            Some(state) => SmallVec::from_buf([state]),
            None => {
                let rendezvous = core.rendezvous_if_needed(&plan, id);
                new_states(core, &plan, reports, id, rendezvous)
            }
        };
        let Some(first) = Arc::get_mut(&mut states[0]) else {
            bail!(Internal, "a step that has not begun is in use");
        };
        for (i, tensor) in feeds.enumerate() {
            check_feed(&plan, i, &tensor)?;
            first.set_feed(i, tensor);
        }
        let caller = CallerLink::new(options, states[0].context.cancellation());
        Ok(Step { plan, states, reports, learns, caller })
    }

    /// A step whose feeds and fetches pass through `rendezvous`.
    pub(crate) fn with_rendezvous(
        core: &Arc<SessionCore>,
        plan: Arc<CachedPlan>,
        options: &RunOptions,
        id: StepId,
        rendezvous: Arc<dyn Rendezvous>,
    ) -> Step {
        let reports = Reports::from(options);
        let states = new_states(core, &plan, reports, id, Some(rendezvous));
        Step { plan, states, reports, learns: None, caller: CallerLink::default() }
    }

    /// Lets the caller's cancellation and timeout end the step.
    pub(crate) fn linked(mut self, options: &RunOptions) -> Step {
        self.caller = CallerLink::new(options, self.states[0].context.cancellation());
        self
    }

    /// What the partitions of the step share.
    pub(crate) fn shared(&self) -> &Arc<StepShared> {
        &self.states[0].shared
    }

    /// Runs the step on this thread and the pool's, and returns when it has ended.
    pub(crate) fn run(self, options: &RunOptions) -> Result<StepOutputs> {
        let options = &self.traced(options);
        StepState::run_to_end(&self.states, self.plan.remote.as_deref(), options);
        self.end()
    }

    /// Starts the step; `done` is called at its end by the thread that ends it, perhaps before this
    /// returns.
    pub(crate) fn start(
        self,
        options: &RunOptions,
        done: impl FnOnce(Result<StepOutputs>) + Send + 'static,
    ) {
        let (states, remote) = (self.states.clone(), self.plan.remote.clone());
        let options = &self.traced(options).into_owned();
        let end = move || done(self.end());
        StepState::start_all(&states, remote.as_deref(), options, Box::new(end));
    }

    /// The options with which other tasks run their partitions: they trace the step if this task does.
    fn traced<'a>(&self, options: &'a RunOptions) -> Cow<'a, RunOptions> {
        match self.learns {
            Some(_) if !options.trace => Cow::Owned(RunOptions { trace: true, ..options.clone() }),
            _ => Cow::Borrowed(options),
        }
    }

    /// Ends the step, which no thread runs any more: unlinks it from its caller, drops its resources,
    /// lets other tasks forget it, gathers its fetches and its report, and recycles its state.
    fn end(self) -> Result<StepOutputs> {
        let Step { plan, mut states, reports, learns, caller } = self;
        let first = &states[0];
        let clock = &first.shared.core.options.environment.clock;
        let ending = first.shared.trace.as_ref().map_or(Duration::ZERO, |_| clock.monotonic());
        let result = first.shared.cancellation.check();
        drop(caller);
        first.context.step_resources().clear();
        let remote = first.shared.end_remote();
        result?;
        let mut fetches = Vec::with_capacity(first.num_fetches());
        first.take_fetches(&mut fetches)?;
        let mut metadata = reports.of(&plan, &first.shared, ending, remote);
        if let Some(step) = learns {
            first.shared.core.learn(&plan, step, &metadata);
            reports.drop_unasked(&mut metadata);
        }
        let recycles = plan.recycles(reports) && first.shared.rendezvous.is_none();
        if recycles && let Some(state) = states.pop() {
            plan.recycle(state);
        }
        Ok((fetches, metadata))
    }
}

/// Execution state of a new step, one per executable of the plan.
fn new_states(
    core: &Arc<SessionCore>,
    plan: &CachedPlan,
    reports: Reports,
    id: StepId,
    rendezvous: Option<Arc<dyn Rendezvous>>,
) -> SmallVec<[Arc<StepState>; 1]> {
    let clock = &core.options.environment.clock;
    let trace =
        reports.times_nodes().then(|| Arc::new(Trace::new(clock.monotonic(), clock.wall())));
    let cancellation = Cancellation::default();
    let shared = Arc::new(StepShared::new(core.clone(), cancellation.clone(), rendezvous, trace));
    let device = plan.executables[0].device.clone();
    let step = StepContext::new(core.context.clone(), device, id, cancellation);
    let state = |exec: &Arc<Executable>| {
        let context = Arc::new(step.on_device(exec.device.clone()));
        Arc::new(StepState::new(exec, context, shared.clone()))
    };
    plan.executables.iter().map(state).collect()
}

/// Checks that feed `i` has the dtype, and the shape if the plan is for one, that the plan expects.
fn check_feed(plan: &CachedPlan, i: usize, tensor: &Tensor) -> Result<()> {
    let expected = plan.executables[0].feeds[i].unwrap_or(tensor.dtype());
    ensure!(
        tensor.dtype() == expected,
        InvalidArgument,
        "'{}' is {expected}, but {} was fed",
        plan.key.feeds[i],
        tensor.dtype()
    );
    if let Some(expected) = plan.shapes.get(i) {
        ensure!(
            tensor.shape() == expected,
            InvalidArgument,
            "the step is planned for '{}' of shape {expected}, but {} was fed",
            plan.key.feeds[i],
            tensor.shape()
        );
    }
    Ok(())
}

impl SessionCore {
    /// The id of the session's next step.
    pub(crate) fn next_step_id(&self, options: &RunOptions) -> StepId {
        let number = match &self.options.remote_tasks {
            Some(tasks) => tasks.next_step(),
            None => self.next_step.fetch_add(1, Ordering::Relaxed),
        };
        StepId { number, request: options.request_id }
    }

    /// The rendezvous of a step: the cluster's if other tasks take part, else one of this process.
    pub(crate) fn rendezvous(&self, plan: &CachedPlan, step: StepId) -> Arc<dyn Rendezvous> {
        match &self.options.remote_tasks {
            Some(tasks) if plan.remote.is_some() => tasks.rendezvous(step.number),
            _ => Arc::new(LocalRendezvous::default()),
        }
    }

    /// A rendezvous, unless all of the plan is one partition of this task.
    fn rendezvous_if_needed(&self, plan: &CachedPlan, id: StepId) -> Option<Arc<dyn Rendezvous>> {
        let is_cut = plan.executables.len() > 1 || plan.remote.is_some();
        is_cut.then(|| self.rendezvous(plan, id))
    }
}
