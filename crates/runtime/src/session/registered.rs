//! Graphs that another task has pruned, placed and cut, and that run here as they came.

use std::sync::Arc;

use thalweg_graph::{AttrValue, Graph, Node, Role};
use thalweg_kernel::{Rendezvous, StepId};
use thalweg_plan::{NEVER_DEAD, Options, Pins, Target, compile_whole};
use thalweg_tensor::Result;

use crate::execute::StepState;
use crate::execute::deadline;
use crate::execute::executable::Interface;
use crate::session::callable::KnownConstants;
use crate::session::metadata::RunMetadata;
use crate::session::options::RunOptions;
use crate::session::plan_cache::{CachedPlan, PlanKey};
use crate::session::report::Reports;
use crate::session::{Session, SessionCore};

/// A part of a plan that a master made. All of it runs in every step; whatever goes in and out, the
/// client's tensors too, passes through the step's rendezvous.
pub struct RegisteredGraph {
    core: Arc<SessionCore>,
    plan: Arc<CachedPlan>,
}

impl Session {
    /// Makes a graph ready whose nodes name devices of this session.
    pub fn register(&self, graph: Graph) -> Result<RegisteredGraph> {
        let core = self.core().clone();
        core.adopt_functions(&graph);
        let descriptions = core.own_devices();
        let pins = Pins::default();
        // What there was to choose was chosen by the master.
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
        let (parts, remote) =
            core.make_parts(plan.partitions, interface, &KnownConstants::default())?;
        let plan = CachedPlan::new(PlanKey::default(), &[], parts, remote);
        Ok(RegisteredGraph { core, plan })
    }
}

/// Whether a node receives what another task's branch may not have given.
fn may_be_dead(node: &Node) -> bool {
    node.role() == Role::Recv && !matches!(node.attrs.get(NEVER_DEAD), Some(AttrValue::Bool(true)))
}

impl RegisteredGraph {
    /// Runs it in a step of that number; a thread of the pool calls `done`. Of the options, the
    /// cancellation, the timeout and the reports count.
    pub fn start(
        &self,
        options: &RunOptions,
        step: u64,
        rendezvous: Arc<dyn Rendezvous>,
        done: impl FnOnce(Result<RunMetadata>) + Send + 'static,
    ) {
        let step_id = StepId { number: step, request: options.request_id };
        let states = self.core.new_states(&self.plan, options, step_id, Some(rendezvous));
        let cancellation = states[0].context.cancellation();
        let link = options.cancellation.as_ref().map(|caller| caller.link(cancellation));
        let deadline = options.timeout.and_then(|t| deadline::arm(cancellation, t));
        let (plan, reports) = (self.plan.clone(), Reports::from(options));
        let (context, shared) = (states[0].context.clone(), states[0].shared.clone());
        let end = move || {
            drop((link, deadline));
            context.step_resources().clear();
            done(shared.cancellation.check().map(|()| reports.of(&plan, &shared, None)));
        };
        let options = options.clone();
        self.core.pool.spawn(move || StepState::start_all(&states, None, &options, Box::new(end)));
    }

    /// How many nodes a step runs.
    pub fn nodes(&self) -> usize {
        self.plan.parts.iter().map(|p| p.nodes.len()).sum()
    }
}
