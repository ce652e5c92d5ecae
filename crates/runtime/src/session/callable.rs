//! One kind of step, ready to run; and the same for feeds of certain shapes.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thalweg_graph::Role;
use thalweg_proto::TensorProto;
use thalweg_tensor::{Budget, Result, Shape, Tensor, ensure};

use crate::execute::executable::{Executable, Kind};
use crate::session::metadata::RunMetadata;
use crate::session::options::RunOptions;
use crate::session::plan_cache::{CachedPlan, KeyRef};
use crate::session::{Session, SessionCore};

/// Bytes of constants that a plan for certain shapes may hold besides those of the plan for any.
const OWN_CONSTANT_BYTES_MAX: usize = 8 << 20;

/// One kind of step of a session, ready to run.
#[derive(Clone)]
pub struct Callable {
    core: Arc<SessionCore>,
    plan: Arc<CachedPlan>,
}

/// How much a step does besides its kernels' work: less is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlanSize {
    /// Nodes that call a function, each of which is a step within the step.
    pub calls: usize,
    /// Nodes that are no constants, without those that functions have.
    pub nodes: usize,
}

impl Session {
    /// Prepares one kind of step; calling it looks nothing up.
    pub fn make_callable(
        &self,
        feeds: &[&str],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<Callable> {
        let core = self.core().clone();
        let plan = core.plan(KeyRef { feeds: &feeds, fetches, targets, is_partial: false })?;
        Ok(Callable { core, plan })
    }
}

impl Callable {
    /// Runs the step with feeds in the order they were named.
    pub fn call(&self, feeds: &[Tensor]) -> Result<Vec<Tensor>> {
        self.call_with(&RunOptions::default(), feeds).map(|(tensors, _)| tensors)
    }

    /// What the session's tensors are charged to, for feeds that are made from others.
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

    /// As [`Callable::start`], with feeds that are made on the pool as well, and with the callable that
    /// is chosen once they are there: this one, or one for their shapes.
    pub fn start_with(
        &self,
        options: RunOptions,
        choose: impl FnOnce() -> Result<(Callable, Vec<Tensor>)> + Send + 'static,
        done: impl FnOnce(Result<(Vec<Tensor>, RunMetadata)>) + Send + 'static,
    ) {
        self.core.pool.spawn(move || {
            let checked = choose().and_then(|(callable, feeds)| {
                callable.plan.check_count(feeds.len()).map(|()| (callable, feeds))
            });
            match checked {
                Ok((Callable { core, plan }, feeds)) => {
                    core.start_plan(plan, &options, feeds.into_iter(), done);
                }
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
        self.core.clone().run_plan(&self.plan, options, feeds.iter().cloned())
    }

    /// The same step, planned for feeds of these shapes and no others: what follows from the shapes is
    /// worked out now, and functions are written out where they are called. It gives what this one gives.
    ///
    /// The session does not keep it; it goes with its last clone.
    pub fn for_shapes(&self, shapes: &[Shape]) -> Result<Callable> {
        ensure!(
            self.plan.remote.is_none() && self.plan.parts.len() == 1,
            Unimplemented,
            "a step over several devices is planned for any shapes"
        );
        let names = &self.plan.key;
        let (feeds, fetches, targets) =
            (refs(&names.feeds), refs(&names.fetches), refs(&names.targets));
        let key =
            KeyRef { feeds: &&feeds[..], fetches: &fetches, targets: &targets, is_partial: false };
        let shared = KnownConstants::of(&self.plan.parts);
        let plan = self.core.make_plan(key, shapes, &shared)?;
        let own: usize = plan.parts.iter().map(|part| shared.bytes_besides(part)).sum();
        ensure!(
            own <= OWN_CONSTANT_BYTES_MAX,
            ResourceExhausted,
            "a plan for these shapes would hold {} MB of constants of its own",
            own >> 20
        );
        Ok(Callable { core: self.core.clone(), plan })
    }

    /// Shapes of the feeds that it is for; none if it is for any.
    pub fn shapes(&self) -> &[Shape] {
        &self.plan.shapes
    }

    /// Whether it is for feeds of these shapes.
    pub fn is_for(&self, feeds: &[Tensor]) -> bool {
        self.plan.is_for(feeds)
    }

    /// How much a step does besides its kernels' work.
    pub fn size(&self) -> PlanSize {
        let nodes = || self.plan.parts.iter().flat_map(|part| part.graph.nodes());
        let is_flow = |role: Role| role.is_branch() || role == Role::While;
        let calls = nodes().filter(|node| node.role().is_call() && !is_flow(node.role()));
        let nodes = nodes().filter(|node| node.role() != Role::Const);
        PlanSize { calls: calls.count(), nodes: nodes.count() }
    }
}

fn refs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// Constants of a plan, for others of the same graph: weights may be among them.
#[derive(Default)]
pub(crate) struct KnownConstants(FxHashMap<usize, Tensor>);

impl KnownConstants {
    fn of(parts: &[Arc<Executable>]) -> KnownConstants {
        let constants = parts.iter().flat_map(|part| constants_of(part));
        KnownConstants(constants.map(|(proto, tensor)| (address(proto), tensor.clone())).collect())
    }

    /// The value of a constant, if its message is that of one of these. The plan that they are from
    /// holds the messages, so an address means the same as long as this is used.
    pub(crate) fn find(&self, proto: &TensorProto) -> Option<Tensor> {
        self.0.get(&address(proto)).cloned()
    }

    /// Bytes of constants that are not among these.
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
