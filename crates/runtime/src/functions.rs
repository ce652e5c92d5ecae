//! Functions as executables, made once for each set of attrs.
//!
//! State inside a function (a seeded random op's, say) belongs to the call site, in one plan: that
//! is what TensorFlow's sessions do by default, as they put a copy of the body in the place of each
//! call. So a body with state is instantiated per site and kept by the site; all others, and those
//! that call themselves, which cannot be copied so, share one instance per session. Variables and
//! other resources inside functions are found by name, as everywhere.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use smallvec::SmallVec;
use thalweg_graph::{Attrs, Flag, Graph, instantiate};
use thalweg_kernel::{CallDone, Device, DeviceName, FunctionRunner, StepContext};
use thalweg_plan::StepSignature;
use thalweg_proto as pb;
use thalweg_proto::attr_value::Value as ProtoValue;
use thalweg_tensor::{Result, Tensor, ensure, err};

use crate::executable::{Executable, Interface};
use crate::execute::StepState;
use crate::session::SessionCore;
use crate::step::StepShared;

/// Calls within calls; each takes a piece of its thread's stack.
const CALL_DEPTH_MAX: u32 = 100;
/// Instances kept; a program with more makes the rest anew each time.
const INSTANCES_MAX: usize = 4096;

/// A node that calls a function.
pub(crate) struct CallSite {
    name: String,
    attrs: Attrs,
    instance: Mutex<SiteInstance>,
}

enum SiteInstance {
    Unknown,
    /// The session's; it keeps it alive, or makes it again.
    Shared(Weak<Executable>),
    /// This site's alone, because of the state in it.
    Own(Arc<Executable>, #[expect(dead_code, reason = "it counts until it is dropped")] Counted),
}

impl CallSite {
    pub(crate) fn new(name: String, attrs: Attrs) -> CallSite {
        CallSite { name, attrs, instance: Mutex::new(SiteInstance::Unknown) }
    }
}

/// One of the instances that sites keep.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// Counts one more, if there may be more.
    fn new(count: &Arc<AtomicUsize>) -> Option<Counted> {
        let more = |n: usize| (n < INSTANCES_MAX).then_some(n + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Counted(count.clone()))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The instances of a session's functions.
#[derive(Default)]
pub(crate) struct Functions {
    shared: Mutex<SharedInstances>,
    /// For each function asked about, whether call sites share its instance.
    is_shared: Mutex<FxHashMap<String, bool>>,
    /// Instances that call sites keep for themselves.
    own_count: Arc<AtomicUsize>,
}

#[derive(Default)]
struct SharedInstances {
    by_fingerprint: FxHashMap<u64, SmallVec<[Instance; 1]>>,
    count: usize,
}

struct Instance {
    name: String,
    attrs: Attrs,
    device: DeviceName,
    executable: Arc<Executable>,
}

impl SharedInstances {
    fn find(
        &self,
        fingerprint: u64,
        name: &str,
        attrs: &Attrs,
        device: &DeviceName,
    ) -> Option<Arc<Executable>> {
        let is_same = |i: &&Instance| i.name == name && i.device == *device && i.attrs == *attrs;
        let bucket = self.by_fingerprint.get(&fingerprint)?;
        bucket.iter().find(is_same).map(|i| i.executable.clone())
    }

    fn insert(&mut self, fingerprint: u64, instance: Instance) {
        if self.count < INSTANCES_MAX {
            self.count += 1;
            self.by_fingerprint.entry(fingerprint).or_default().push(instance);
        }
    }
}

impl Functions {
    /// Forgets all instances.
    pub(crate) fn clear(&self) {
        *self.shared.lock() = SharedInstances::default();
    }

    /// The instance that all calls with these attrs on this device share.
    fn instance(
        &self,
        core: &SessionCore,
        name: &str,
        attrs: &Attrs,
        device: &Arc<dyn Device>,
    ) -> Result<Arc<Executable>> {
        let mut hasher = FxHasher::default();
        let device_name = &device.description().name;
        (name, device_name).hash(&mut hasher);
        attrs.fingerprint(&mut hasher);
        let fingerprint = hasher.finish();
        if let Some(known) = self.shared.lock().find(fingerprint, name, attrs, device_name) {
            return Ok(known);
        }
        let executable = make(core, name, attrs, device)?;
        let mut shared = self.shared.lock();
        // Another thread may have been faster; then its instance is everybody's.
        if let Some(known) = shared.find(fingerprint, name, attrs, device_name) {
            return Ok(known);
        }
        shared.insert(
            fingerprint,
            Instance {
                name: name.to_owned(),
                attrs: attrs.clone(),
                device: device_name.clone(),
                executable: executable.clone(),
            },
        );
        Ok(executable)
    }

    /// The instance that a call site runs.
    fn instance_for(
        &self,
        core: &SessionCore,
        site: &CallSite,
        device: &Arc<dyn Device>,
    ) -> Result<Arc<Executable>> {
        let mut instance = site.instance.lock();
        match &*instance {
            SiteInstance::Own(executable, _) => return Ok(executable.clone()),
            SiteInstance::Shared(executable) => {
                if let Some(executable) = executable.upgrade() {
                    return Ok(executable);
                }
            }
            SiteInstance::Unknown => {}
        }
        if !self.is_shared(core, &site.name)
            && let Some(counted) = Counted::new(&self.own_count)
        {
            let executable = make(core, &site.name, &site.attrs, device)?;
            *instance = SiteInstance::Own(executable.clone(), counted);
            return Ok(executable);
        }
        let executable = self.instance(core, &site.name, &site.attrs, device)?;
        *instance = SiteInstance::Shared(Arc::downgrade(&executable));
        Ok(executable)
    }

    fn is_shared(&self, core: &SessionCore, name: &str) -> bool {
        if let Some(&known) = self.is_shared.lock().get(name) {
            return known;
        }
        let is_shared = core.with_graph(|graph| is_stateless_or_recursive(graph, name));
        self.is_shared.lock().insert(name.to_owned(), is_shared);
        is_shared
    }
}

/// Whether a function, with all that it calls, has no state of its own, or calls itself.
fn is_stateless_or_recursive(graph: &Graph, name: &str) -> bool {
    let mut seen: FxHashSet<String> = FxHashSet::default();
    let mut stack = vec![name.to_owned()];
    let (mut is_stateful, mut is_recursive) = (false, false);
    while let Some(next) = stack.pop() {
        let Some(function) = graph.library().get(&next) else { continue };
        for node in &function.node_def {
            let mut callees = Vec::new();
            node.attr.values().for_each(|value| functions_in(value, &mut callees));
            match graph.find_op(&node.op) {
                Ok(op) if op.is_function => callees.push(node.op.as_str()),
                // What a call does depends on what it calls.
                Ok(op) => is_stateful |= op.has(Flag::Stateful) && callees.is_empty(),
                Err(_) => {}
            }
            for callee in callees {
                is_recursive |= callee == name;
                if !seen.contains(callee) {
                    seen.insert(callee.to_owned());
                    stack.push(callee.to_owned());
                }
            }
        }
    }
    !is_stateful || is_recursive
}

/// Names of the functions in an attr's value.
fn functions_in<'a>(value: &'a pb::AttrValue, names: &mut Vec<&'a str>) {
    match &value.value {
        Some(ProtoValue::Func(function)) => names.push(&function.name),
        Some(ProtoValue::List(list)) => names.extend(list.func.iter().map(|f| f.name.as_str())),
        _ => {}
    }
}

fn make(
    core: &SessionCore,
    name: &str,
    attrs: &Attrs,
    device: &Arc<dyn Device>,
) -> Result<Arc<Executable>> {
    let body = core.with_graph(|graph| Body::of(graph, name, attrs))?;
    core.compile_for_one(&body.graph, &body.signature, body.interface, device).map(Arc::new)
}

/// A function's graph, and what of it must run: results, control results and whatever has effects.
struct Body {
    graph: Graph,
    signature: StepSignature,
    interface: Interface,
}

impl Body {
    fn of(graph: &Graph, name: &str, attrs: &Attrs) -> Result<Body> {
        let function = graph
            .library()
            .get(name)
            .ok_or_else(|| err!(NotFound, "function '{name}' is not in the graph's library"))?;
        let body = instantiate(function, attrs, graph)?;
        let effects = body.graph.ids().filter(|&id| body.graph.node(id).op.has(Flag::Stateful));
        let mut targets: Vec<_> =
            body.results.iter().chain(&body.control_results).copied().collect();
        targets.extend(effects);
        let interface =
            Interface { feeds: body.args.len(), fetches: body.results.len(), is_function: true };
        let signature = StepSignature { targets, ..Default::default() };
        Ok(Body { graph: body.graph, signature, interface })
    }
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
        let executable = || self.functions.instance(self, name, attrs, &step.device);
        self.start_call(name, &executable, args, step, done);
    }
}

impl SessionCore {
    /// Runs the function that a node calls.
    pub(crate) fn call_site(
        &self,
        site: &CallSite,
        args: Vec<Tensor>,
        step: &Arc<StepContext>,
        done: CallDone,
    ) {
        let executable = || self.functions.instance_for(self, site, &step.device);
        self.start_call(&site.name, &executable, args, step, done);
    }

    fn start_call(
        &self,
        name: &str,
        executable: &dyn Fn() -> Result<Arc<Executable>>,
        args: Vec<Tensor>,
        step: &Arc<StepContext>,
        done: CallDone,
    ) {
        match self.prepare_call(executable, args, step) {
            Ok(state) => {
                let running = state.clone();
                state.start(Box::new(move || done(results_of(&running))));
            }
            Err(e) => done(Err(e.map_message(|m| format!("calling function '{name}': {m}")))),
        }
    }

    fn prepare_call(
        &self,
        executable: &dyn Fn() -> Result<Arc<Executable>>,
        args: Vec<Tensor>,
        step: &Arc<StepContext>,
    ) -> Result<Arc<StepState>> {
        ensure!(
            step.call_depth < CALL_DEPTH_MAX,
            ResourceExhausted,
            "functions call each other more than {CALL_DEPTH_MAX} deep"
        );
        let core =
            self.this.upgrade().ok_or_else(|| err!(Internal, "the session is being dropped"))?;
        let exec = executable()?;
        ensure!(
            args.len() == exec.feeds.len(),
            InvalidArgument,
            "it takes {} arguments, got {}",
            exec.feeds.len(),
            args.len()
        );
        for (i, (arg, expected)) in args.iter().zip(&exec.feeds).enumerate() {
            let expected = expected.unwrap_or(arg.dtype());
            ensure!(
                arg.dtype() == expected,
                InvalidArgument,
                "argument {i} must be {expected}, got {}",
                arg.dtype()
            );
        }
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
        let shared = Arc::new(StepShared::new(core, step.cancellation.clone(), None, None));
        let mut state = StepState::new(&exec, context, shared);
        for (i, arg) in args.into_iter().enumerate() {
            state.set_feed(i, arg);
        }
        Ok(Arc::new(state))
    }
}

fn results_of(state: &StepState) -> Result<Vec<Tensor>> {
    state.context.cancellation.check()?;
    (0..state.num_fetches()).map(|i| state.take_fetch(i)).collect()
}
