//! Functions as executables, made once for each set of attrs.

use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use thalweg_graph::{Attrs, Flag, Graph, instantiate};
use thalweg_kernel::{CallDone, Device, FunctionRunner, StepContext};
use thalweg_plan::StepSignature;
use thalweg_tensor::{Result, Tensor, ensure, err};

use crate::executable::Executable;
use crate::execute::{StepShared, StepState};
use crate::session::SessionCore;

/// Calls within calls; each takes a piece of its thread's stack.
const CALL_DEPTH_MAX: u32 = 100;
/// Instances kept; a program with more makes the rest anew each time.
const INSTANCES_MAX: usize = 4096;

/// The instances of a session's functions.
#[derive(Default)]
pub(crate) struct Functions {
    instances: Mutex<FxHashMap<String, Arc<Executable>>>,
}

impl Functions {
    /// Forgets all instances.
    pub(crate) fn clear(&self) {
        self.instances.lock().clear();
    }

    fn instance(
        &self,
        core: &SessionCore,
        name: &str,
        attrs: &Attrs,
        device: &Arc<dyn Device>,
    ) -> Result<Arc<Executable>> {
        let key = instance_key(name, attrs, device);
        if let Some(known) = self.instances.lock().get(&key) {
            return Ok(known.clone());
        }
        let body = core.with_graph(|graph| body_of(graph, name, attrs))?;
        let made = Arc::new(core.compile_for_one(&body.0, &body.1, device)?);
        let mut instances = self.instances.lock();
        if instances.len() < INSTANCES_MAX {
            instances.insert(key, made.clone());
        }
        Ok(made)
    }
}

fn instance_key(name: &str, attrs: &Attrs, device: &Arc<dyn Device>) -> String {
    use std::fmt::Write;
    let mut key = format!("{name}@{}", device.description().name);
    for (attr, value) in attrs.iter() {
        let _ = write!(key, ";{attr}={value:?}");
    }
    key
}

/// A function's graph, and what of it must run: results, control results and whatever has effects.
fn body_of(graph: &Graph, name: &str, attrs: &Attrs) -> Result<(Graph, StepSignature)> {
    let function = graph
        .library()
        .get(name)
        .ok_or_else(|| err!(NotFound, "function '{name}' is not in the graph's library"))?;
    let body = instantiate(function, attrs, graph)?;
    let effects = body.graph.ids().filter(|&id| body.graph.node(id).op.has(Flag::Stateful));
    let mut targets: Vec<_> = body.results.iter().chain(&body.control_results).copied().collect();
    targets.extend(effects);
    let signature = StepSignature { targets, ..Default::default() };
    Ok((body.graph, signature))
}

impl FunctionRunner for SessionCore {
    fn call(
        &self,
        name: &str,
        attrs: &Attrs,
        args: Vec<Tensor>,
        step: &Arc<StepContext>,
        done: CallDone,
    ) {
        match self.prepare_call(name, attrs, args, step) {
            Ok(state) => {
                let running = state.clone();
                state.start(Box::new(move || done(results_of(&running))));
            }
            Err(e) => done(Err(e.map_message(|m| format!("calling function '{name}': {m}")))),
        }
    }
}

fn results_of(state: &StepState) -> Result<Vec<Tensor>> {
    state.context.cancellation.check()?;
    (0..state.num_fetches()).map(|i| state.take_fetch(i)).collect()
}

impl SessionCore {
    fn prepare_call(
        &self,
        name: &str,
        attrs: &Attrs,
        args: Vec<Tensor>,
        step: &Arc<StepContext>,
    ) -> Result<Arc<StepState>> {
        ensure!(
            step.call_depth < CALL_DEPTH_MAX,
            ResourceExhausted,
            "functions call each other more than {CALL_DEPTH_MAX} deep"
        );
        let exec = self.functions.instance(self, name, attrs, &step.device)?;
        let context = Arc::new(StepContext {
            step_id: step.step_id,
            call_depth: step.call_depth + 1,
            budget: step.budget.clone(),
            state_budget: step.state_budget.clone(),
            cancellation: step.cancellation.clone(),
            resources: step.resources.clone(),
            step_resources: step.step_resources.clone(),
            parallel: step.parallel.clone(),
            functions: step.functions.clone(),
            environment: step.environment.clone(),
            device: step.device.clone(),
        });
        let shared = Arc::new(StepShared::new(
            step.cancellation.clone(),
            None,
            None,
            self.pool,
            self.options.inter_threads,
        ));
        let mut state = StepState::new(&exec, context, shared);
        ensure!(
            args.len() >= state.num_feeds(),
            InvalidArgument,
            "it takes {} arguments, got {}",
            state.num_feeds(),
            args.len()
        );
        for (i, arg) in args.into_iter().enumerate().take(state.num_feeds()) {
            state.set_feed(i, arg);
        }
        Ok(Arc::new(state))
    }
}
