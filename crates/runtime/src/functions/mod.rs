//! Instances of functions: executables of their bodies, made once for each set of attrs.
//!
//! State inside a function (of a seeded random op, for example) belongs to the call site in one plan,
//! because TensorFlow's sessions inline function bodies by default. So a stateful body is instantiated
//! per call site, which owns the instance. Stateless functions, and recursive ones, which cannot be
//! inlined, have one instance per session. Variables and other resources are found by name.

pub(crate) mod calls;
mod loops;

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;
use thalweg_graph::{
    Attrs, Flag, Graph, NodeId, Op, Role, callees, functions_in, instantiate_gradient,
};
use thalweg_kernel::{Device, DeviceName, KeptGraph};
use thalweg_plan::StepSignature;
use thalweg_proto as pb;
use thalweg_tensor::{DType, Result, Tensor, ensure, err};

use crate::execute::executable::{Executable, Interface};
use crate::session::SessionCore;

/// Most instances that a session keeps; beyond, an instance is made for each call.
const INSTANCES_MAX: usize = 4096;

/// A function that a node calls.
pub(crate) struct Callee {
    pub(crate) function: FunctionKey,
    instance: Mutex<SiteInstance>,
}

/// A function and the attrs that it is instantiated with.
#[derive(Clone, PartialEq)]
pub(crate) struct FunctionKey {
    pub(crate) name: String,
    attrs: Attrs,
    /// Whether this is its gradient function: from arguments and adjoints of results to adjoints of
    /// arguments.
    is_gradient: bool,
}

enum SiteInstance {
    Unknown,
    /// The session owns the instance; if it has dropped it, it makes another.
    Shared(Weak<Instance>),
    /// The call site owns the instance, because it has state.
    Own(Arc<Instance>, #[expect(dead_code, reason = "it counts until it is dropped")] Counted),
}

impl Callee {
    pub(crate) fn new(name: String, attrs: Attrs) -> Callee {
        let function = FunctionKey { name, attrs, is_gradient: false };
        Callee { function, instance: Mutex::new(SiteInstance::Unknown) }
    }

    /// The function that an attr names.
    pub(crate) fn from_attr(function: &pb::NameAttrList) -> Callee {
        Callee::new(function.name.clone(), Attrs::from_proto(&function.attr))
    }

    /// The function's gradient.
    pub(crate) fn differentiated(mut self) -> Callee {
        self.function.is_gradient = true;
        self
    }
}

/// A function instantiated for one device.
pub(crate) struct Instance {
    pub(crate) exec: Arc<Executable>,
    results: Box<[DType]>,
}

impl Instance {
    pub(crate) fn check_args(&self, args: &[Tensor]) -> Result<()> {
        let expected = &self.exec.feeds;
        ensure!(
            args.len() == expected.len(),
            InvalidArgument,
            "it takes {} arguments, got {}",
            expected.len(),
            args.len()
        );
        for (i, (arg, expected)) in args.iter().zip(expected).enumerate() {
            let expected = expected.unwrap_or(arg.dtype());
            ensure!(
                arg.dtype() == expected,
                InvalidArgument,
                "argument {i} must be {expected}, got {}",
                arg.dtype()
            );
        }
        Ok(())
    }

    pub(crate) fn check_results(&self, wanted: &[DType]) -> Result<()> {
        let given = &self.results;
        ensure!(
            given.len() == wanted.len(),
            InvalidArgument,
            "it has {} results, {} are wanted",
            given.len(),
            wanted.len()
        );
        for (i, (given, wanted)) in given.iter().zip(wanted).enumerate() {
            ensure!(given == wanted, InvalidArgument, "result {i} is {given}, {wanted} is wanted");
        }
        Ok(())
    }

    /// Checks that the function has one result: a loop's condition.
    pub(crate) fn check_condition(&self) -> Result<()> {
        ensure!(
            self.results.len() == 1,
            InvalidArgument,
            "a loop's condition has one result, not {}",
            self.results.len()
        );
        Ok(())
    }
}

/// Counts one instance that a call site owns, until it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// Counts one more, unless there are too many.
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
    /// By function, whether call sites share its instance.
    is_shared: Mutex<FxHashMap<String, bool>>,
    /// Number of instances that call sites own.
    own_count: Arc<AtomicUsize>,
}

#[derive(Default)]
struct SharedInstances {
    by_fingerprint: FxHashMap<u64, SmallVec<[Entry; 1]>>,
    count: usize,
}

struct Entry {
    function: FunctionKey,
    device: DeviceName,
    instance: Arc<Instance>,
}

impl SharedInstances {
    fn find(
        &self,
        fingerprint: u64,
        function: &FunctionKey,
        device: &DeviceName,
    ) -> Option<Arc<Instance>> {
        let is_same = |e: &&Entry| e.function == *function && e.device == *device;
        let bucket = self.by_fingerprint.get(&fingerprint)?;
        bucket.iter().find(is_same).map(|e| e.instance.clone())
    }

    fn insert(&mut self, fingerprint: u64, entry: Entry) {
        if self.count < INSTANCES_MAX {
            self.count += 1;
            self.by_fingerprint.entry(fingerprint).or_default().push(entry);
        }
    }
}

impl Functions {
    /// Drops all shared instances.
    pub(crate) fn clear(&self) {
        *self.shared.lock() = SharedInstances::default();
    }

    /// The instance that all calls with these attrs on this device share.
    fn shared_instance(
        &self,
        core: &SessionCore,
        function: &FunctionKey,
        device: &Arc<dyn Device>,
    ) -> Result<Arc<Instance>> {
        let mut hasher = FxHasher::default();
        let device_name = &device.description().name;
        (&function.name, function.is_gradient, device_name).hash(&mut hasher);
        function.attrs.fingerprint(&mut hasher);
        let fingerprint = hasher.finish();
        if let Some(known) = self.shared.lock().find(fingerprint, function, device_name) {
            return Ok(known);
        }
        let instance = make(core, function, device)?;
        let mut shared = self.shared.lock();
        // If another thread was faster, its instance is used.
        if let Some(known) = shared.find(fingerprint, function, device_name) {
            return Ok(known);
        }
        let entry = Entry {
            function: function.clone(),
            device: device_name.clone(),
            instance: instance.clone(),
        };
        shared.insert(fingerprint, entry);
        Ok(instance)
    }

    /// The instance that a call site runs.
    fn instance_for(
        &self,
        core: &SessionCore,
        callee: &Callee,
        device: &Arc<dyn Device>,
    ) -> Result<Arc<Instance>> {
        let mut kept = callee.instance.lock();
        match &*kept {
            SiteInstance::Own(instance, _) => return Ok(instance.clone()),
            SiteInstance::Shared(instance) => {
                if let Some(instance) = instance.upgrade() {
                    return Ok(instance);
                }
            }
            SiteInstance::Unknown => {}
        }
        let function = &callee.function;
        if !self.is_shared(core, &function.name)
            && let Some(counted) = Counted::new(&self.own_count)
        {
            let instance = make(core, function, device)?;
            *kept = SiteInstance::Own(instance.clone(), counted);
            return Ok(instance);
        }
        let instance = self.shared_instance(core, function, device)?;
        *kept = SiteInstance::Shared(Arc::downgrade(&instance));
        Ok(instance)
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

/// Whether a function, with all functions that it calls, is stateless, or is recursive.
fn is_stateless_or_recursive(graph: &Graph, name: &str) -> bool {
    let (mut is_stateful, mut is_recursive) = (false, false);
    for node in graph.library().reachable([name]).flat_map(|function| &function.node_def) {
        is_recursive |= callees(node).any(|callee| callee == name);
        // What a call does depends on what it calls.
        let is_call = node.attr.values().any(|value| !functions_in(value).is_empty());
        let keeps_state = |op: Arc<Op>| op.has(Flag::Stateful) && op.role != Role::Function;
        is_stateful |= !is_call && graph.find_op(&node.op).is_ok_and(keeps_state);
    }
    !is_stateful || is_recursive
}

fn make(
    core: &SessionCore,
    function: &FunctionKey,
    device: &Arc<dyn Device>,
) -> Result<Arc<Instance>> {
    let body = core.with_graph(|graph| Body::of(graph, function))?;
    if function.is_gradient {
        // Gradients of its callees are functions that were made just now.
        core.adopt_functions(&body.graph);
    }
    let states = Arc::default();
    let exec =
        core.compile_for_one(&body.graph, &body.signature, body.interface, device, states)?;
    Ok(Arc::new(Instance { exec: Arc::new(exec), results: body.results }))
}

/// The graph of a function, and its targets: results, control results and stateful nodes.
struct Body {
    graph: Graph,
    signature: StepSignature,
    interface: Interface,
    results: Box<[DType]>,
}

impl Body {
    fn of(graph: &Graph, function: &FunctionKey) -> Result<Body> {
        let FunctionKey { name, attrs, is_gradient } = function;
        let body = match is_gradient {
            true => instantiate_gradient(name, attrs, graph)?,
            false => graph.function_body(name, attrs)?,
        };
        let effects = body.graph.ids().filter(|&id| body.graph.node(id).op.has(Flag::Stateful));
        let mut targets: Vec<_> =
            body.results.iter().chain(&body.control_results).copied().collect();
        targets.extend(effects);
        let interface = Interface {
            feeds: body.args.len(),
            fetches: body.results.len(),
            is_function: true,
            is_partial: false,
            may_receive_dead: false,
        };
        let signature = StepSignature { targets, ..Default::default() };
        let dtype = |&id: &NodeId| body.graph.node(id).attrs().dtype("T");
        let results = body.results.iter().map(dtype).collect::<Result<_>>()?;
        Ok(Body { graph: body.graph, signature, interface, results })
    }
}

impl SessionCore {
    /// The instance of function `name` for `device`.
    pub(crate) fn named_instance(
        &self,
        name: &str,
        attrs: &Attrs,
        device: &Arc<dyn Device>,
    ) -> Result<Arc<Instance>> {
        let (name, attrs) = (name.to_owned(), attrs.clone());
        let function = FunctionKey { name, attrs, is_gradient: false };
        self.functions.shared_instance(self, &function, device)
    }

    /// The instance of a graph that a kernel runs.
    pub(crate) fn instance_of_graph(
        &self,
        kept: &KeptGraph,
        device: &Arc<dyn Device>,
    ) -> Result<Arc<Instance>> {
        let known = || kept.kept.get()?.downcast_ref::<Arc<Instance>>().cloned();
        if let Some(instance) = known() {
            return Ok(instance);
        }
        let graph = &kept.graph;
        let count = |role: Role| graph.nodes().iter().filter(|n| n.role() == role).count();
        let mut results = vec![None; count(Role::Retval)];
        for node in graph.nodes().iter().filter(|n| n.role() == Role::Retval) {
            let slot = results.get_mut(node.attrs().size("index")?);
            *slot.ok_or_else(|| err!(Internal, "a result has no slot"))? =
                Some(node.attrs().dtype("T")?);
        }
        let results: Option<Box<[DType]>> = results.into_iter().collect();
        let results = results.ok_or_else(|| err!(Internal, "a result is missing"))?;
        let interface = Interface {
            feeds: count(Role::Arg),
            fetches: results.len(),
            is_function: true,
            is_partial: false,
            may_receive_dead: false,
        };
        let targets = graph.ids().collect();
        let signature = StepSignature { targets, ..Default::default() };
        let states = kept.states.clone();
        let exec = self.compile_for_one(graph, &signature, interface, device, states)?;
        let exec = Arc::new(exec);
        // If another thread was faster, its instance is used.
        let _ = kept.kept.set(Box::new(Arc::new(Instance { exec, results })));
        known().ok_or_else(|| err!(Internal, "a graph was kept for another runtime"))
    }

    /// The instance of a call site's function for `device`.
    pub(crate) fn instance_of(
        &self,
        callee: &Callee,
        device: &Arc<dyn Device>,
    ) -> Result<Arc<Instance>> {
        self.functions.instance_for(self, callee, device)
    }
}
