//! Registered graphs: partitions that a master has pruned, placed and optimized for this task.

use std::sync::Arc;

use thalweg_graph::{AttrValue, Graph, Node, Role};
use thalweg_kernel::{Rendezvous, StepId};
use thalweg_plan::{NEVER_DEAD, Options, Pins, Target, compile_whole};
use thalweg_tensor::Result;

use crate::execute::executable::Interface;
use crate::session::callable::SharedConstants;
use crate::session::metadata::RunMetadata;
use crate::session::options::RunOptions;
use crate::session::plan_cache::{CachedPlan, PlanKey};
use crate::session::step::Step;
use crate::session::{Session, SessionCore};

/// A graph that a master registered. Every step runs all of it; all its tensors, the client's feeds and
/// fetches too, pass through the step's rendezvous.
pub struct RegisteredGraph {
    core: Arc<SessionCore>,
    plan: Arc<CachedPlan>,
}

impl Session {
    /// Registers a graph whose nodes name devices of this session.
    pub fn register(&self, graph: Graph) -> Result<RegisteredGraph> {
        let core = self.core().clone();
        core.adopt_functions(&graph);
        let descriptions = core.own_devices();
        let pins = Pins::default();
        // The master has optimized the graph already.
        let options = Options { optimize: false, ..core.options.plan };
        let target = Target { options, ..core.target(descriptions, &pins) };
        let may_receive_dead = graph.nodes().iter().any(may_be_dead);
        let plan = compile_whole(graph, &target)?;
        let interface = Interface {
            feeds: 0,
            fetches: 0,
            is_function: false,
            is_partial: true,
            may_receive_dead,
        };
        let (executables, remote) =
            core.make_executables(plan.partitions, interface, &SharedConstants::default())?;
        let plan = CachedPlan::new(PlanKey::default(), &[], executables, remote, None);
        Ok(RegisteredGraph { core, plan })
    }
}

/// Whether a node may receive a dead value: the result of a branch that another task did not take.
fn may_be_dead(node: &Node) -> bool {
    node.role() == Role::Recv && !matches!(node.attrs.get(NEVER_DEAD), Some(AttrValue::Bool(true)))
}

impl RegisteredGraph {
    /// Runs the graph in step number `step`; a thread of the pool calls `done` at its end. Of the
    /// options, the cancellation, the timeout and the reports count.
    pub fn start(
        &self,
        options: &RunOptions,
        step: u64,
        rendezvous: Arc<dyn Rendezvous>,
        done: impl FnOnce(Result<RunMetadata>) + Send + 'static,
    ) {
        let id = StepId { number: step, request: options.request_id };
        let step = Step::with_rendezvous(&self.core, self.plan.clone(), options, id, rendezvous);
        let (step, options) = (step.linked(options), options.clone());
        self.core.pool.spawn(move || {
            step.start(&options, |result| done(result.map(|(_, metadata)| metadata)));
        });
    }

    /// Number of nodes that a step runs.
    pub fn nodes(&self) -> usize {
        self.plan.executables.iter().map(|p| p.nodes.len()).sum()
    }
}
