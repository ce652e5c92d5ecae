//! Callables: a step's feeds, fetches and targets with their plan, for any feed shapes or for given ones.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thalweg_graph::Role;
use thalweg_proto::TensorProto;
use thalweg_tensor::{Budget, Result, Shape, Tensor, ensure};

use crate::execute::executable::{Executable, Kind};
use crate::session::metadata::RunMetadata;
use crate::session::options::RunOptions;
use crate::session::plan_cache::{CachedPlan, KeyRef};
use crate::session::step::Step;
use crate::session::{Session, SessionCore};

/// Most bytes of constants that a plan for given shapes may own besides those it shares.
const OWN_CONSTANT_BYTES_MAX: usize = 8 << 20;

/// A step of a session with its plan: calling it looks nothing up.
#[derive(Clone)]
pub struct Callable {
    core: Arc<SessionCore>,
    plan: Arc<CachedPlan>,
}

/// The overhead of a step besides its kernels' work; smaller is faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlanSize {
    /// Nodes that call a function.
    pub calls: usize,
    /// Nodes that are not constants; those of functions are not counted.
    pub nodes: usize,
}

impl Session {
    /// Plans a step with these feeds, fetches and targets.
    pub fn make_callable(
        &self,
        feeds: &[&str],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<Callable> {
        let core = self.core().clone();
        let plan = core.plan(KeyRef::new(&feeds, fetches, targets))?;
        Ok(Callable { core, plan })
    }
}

impl Callable {
    /// Runs the step with feeds in the order they were named.
    pub fn call(&self, feeds: &[Tensor]) -> Result<Vec<Tensor>> {
        self.call_with(&RunOptions::default(), feeds).map(|(tensors, _)| tensors)
    }

    /// Bounds the bytes of the session's tensors; for callers that allocate feeds.
    pub fn budget(&self) -> &Arc<Budget> {
        self.core.budget()
    }

    /// As [`Callable::call_with`], but does not wait; see [`Session::start`].
    pub fn start(
        &self,
        options: RunOptions,
        feeds: Vec<Tensor>,
        done: impl FnOnce(Result<(Vec<Tensor>, RunMetadata)>) + Send + 'static,
    ) {
        let this = self.clone();
        self.start_with(options, move || Ok((this, feeds)), done);
    }

    /// As [`Callable::start`]; `choose` runs on the pool too, makes the feeds, and returns the callable
    /// to run with them: this one, or one for their shapes.
    pub fn start_with(
        &self,
        options: RunOptions,
        choose: impl FnOnce() -> Result<(Callable, Vec<Tensor>)> + Send + 'static,
        done: impl FnOnce(Result<(Vec<Tensor>, RunMetadata)>) + Send + 'static,
    ) {
        self.core.pool.spawn(move || {
            let step = choose().and_then(|(Callable { core, plan }, feeds)| {
                plan.check_count(feeds.len())?;
                Step::with_feeds(&core, plan, &options, feeds.into_iter())
            });
            match step {
                Ok(step) => step.start(&options, done),
                Err(e) => done(Err(e)),
            }
        });
    }

    /// As [`Callable::call`], with options and a report.
    pub fn call_with(
        &self,
        options: &RunOptions,
        feeds: &[Tensor],
    ) -> Result<(Vec<Tensor>, RunMetadata)> {
        self.plan.check_count(feeds.len())?;
        Step::with_feeds(&self.core, self.plan.clone(), options, feeds.iter().cloned())?
            .run(options)
    }

    /// The same step, planned for feeds of these shapes only: sizes become constants and function calls
    /// are inlined. Results are the same.
    ///
    /// The session does not cache it; the plan is dropped with its last clone.
    pub fn for_shapes(&self, shapes: &[Shape]) -> Result<Callable> {
        ensure!(
            self.plan.remote.is_none() && self.plan.executables.len() == 1,
            Unimplemented,
            "a step over several devices is planned for any shapes"
        );
        let names = &self.plan.key;
        let (feeds, fetches, targets) =
            (refs(&names.feeds), refs(&names.fetches), refs(&names.targets));
        let feeds = &feeds[..];
        let key = KeyRef::new(&feeds, &fetches, &targets);
        let key = KeyRef { choice: self.plan.key.choice, ..key };
        let shared = SharedConstants::of(&self.plan.executables);
        let plan = self.core.make_plan(key, shapes, &shared)?;
        let own: usize = plan.executables.iter().map(|part| shared.bytes_besides(part)).sum();
        ensure!(
            own <= OWN_CONSTANT_BYTES_MAX,
            ResourceExhausted,
            "a plan for these shapes would hold {} MB of constants of its own",
            own >> 20
        );
        Ok(Callable { core: self.core.clone(), plan })
    }

    /// Shapes that the feeds must have; empty if any shapes will do.
    pub fn shapes(&self) -> &[Shape] {
        &self.plan.shapes
    }

    /// Whether feeds of these shapes may be given.
    pub fn is_for(&self, feeds: &[Tensor]) -> bool {
        self.plan.is_for(feeds)
    }

    /// The overhead of a step besides its kernels' work.
    pub fn size(&self) -> PlanSize {
        let nodes = || self.plan.executables.iter().flat_map(|part| part.graph.nodes());
        let is_flow = |role: Role| role.is_branch() || role == Role::While;
        let calls = nodes().filter(|node| node.role().is_call() && !is_flow(node.role()));
        let nodes = nodes().filter(|node| node.role() != Role::Const);
        PlanSize { calls: calls.count(), nodes: nodes.count() }
    }
}

pub(crate) fn refs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// Constants of a plan, weights among them, that other plans of the same graph use too.
#[derive(Default)]
pub(crate) struct SharedConstants(FxHashMap<usize, Tensor>);

impl SharedConstants {
    fn of(parts: &[Arc<Executable>]) -> SharedConstants {
        let constants = parts.iter().flat_map(|part| constants_of(part));
        SharedConstants(constants.map(|(proto, tensor)| (address(proto), tensor.clone())).collect())
    }

    /// The tensor of the constant with this message, found by the message's address. The plan that the
    /// constants are from owns the messages, so an address stays valid.
    pub(crate) fn find(&self, proto: &TensorProto) -> Option<Tensor> {
        self.0.get(&address(proto)).cloned()
    }

    /// Bytes of the executable's constants that are not among these.
    fn bytes_besides(&self, part: &Executable) -> usize {
        let others = constants_of(part).filter(|(proto, _)| !self.0.contains_key(&address(proto)));
        others.map(|(_, tensor)| tensor.size_bytes()).sum()
    }
}

fn address(proto: &TensorProto) -> usize {
    std::ptr::from_ref(proto) as usize
}

fn constants_of(part: &Executable) -> impl Iterator<Item = (&TensorProto, &Tensor)> {
    part.nodes.iter().zip(part.graph.nodes()).filter_map(|(exec, node)| match exec.kind {
        Kind::Constant(i) => {
            let proto = node.attrs().tensor_proto("value").ok()?;
            Some((&**proto, &part.constants[i as usize]))
        }
        _ => None,
    })
}
