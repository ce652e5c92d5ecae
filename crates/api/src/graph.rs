//! The graph under construction: a handle that everything else is made by.

use std::any::TypeId;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use thalweg_graph::{Endpoint, NodeId, Scope};
use thalweg_kernel::Family;
use thalweg_tensor::{Error, PartialShape, Result, ensure, err};

use crate::dtype::{TensorType, known_dtype};
use crate::init::Init;
use crate::mistake::{Caller, Mistake, origin, summary};
use crate::node::{NewOp, poisoned};
use crate::output::{Operation, Output, Raw, Target};
use crate::value::IntoTensor;
use crate::variable::Variable;
use crate::variable_info::VariableInfo;
use thalweg_ops::Registry;

/// A dataflow graph under construction, cheap to clone: all clones and views share it.
///
/// Handles ([`Output`], [`Variable`]) know their graph, so most nodes are added by their methods.
/// Nothing here returns a `Result`: a mistake is kept with the source line of the call, and
/// [`Graph::check`] and [`Graph::session`] report all of them at once.
///
/// A view ([`Graph::scope`], [`Graph::device`], [`Graph::after`]) is the same graph with other
/// properties of the nodes that are added through it. A node is added to the view of its first
/// operand.
#[derive(Clone)]
pub struct Graph(Arc<View>);

struct View {
    shared: Arc<Shared>,
    scope: Scope,
}

struct Shared {
    registry: Registry,
    root: Scope,
    /// Whether it is what a gradient function sees of the graph to which it adds nodes.
    is_of_gradient: bool,
    /// The innermost body of a branch or loop that is being traced; 0 for none.
    body: AtomicU32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    mistakes: Vec<Mistake>,
    /// The source line that added a node, by its position.
    lines: Vec<Option<Caller>>,
    variables: Vec<VariableInfo>,
    /// Positions of the variables by name.
    by_name: FxHashMap<String, usize>,
    initializers: Vec<NodeId>,
    /// The bodies that are being traced, outermost first.
    bodies: Vec<u32>,
    bodies_traced: u32,
    seed: i64,
    seeds_used: i64,
    extensions: FxHashMap<TypeId, Arc<dyn std::any::Any + Send + Sync>>,
}

/// The seed of random ops in a graph whose program sets none, as in TensorFlow.
const DEFAULT_SEED: i64 = 87_654_321;

impl Default for Graph {
    fn default() -> Graph {
        Graph::new()
    }
}

impl Graph {
    /// An empty graph with all built-in ops.
    pub fn new() -> Graph {
        Graph::with_registry(Registry::built_in())
    }

    /// An empty graph with the built-in ops and those of further families.
    #[track_caller]
    pub fn with_families(families: &[&Family]) -> Graph {
        match Registry::with_families(families) {
            Ok(registry) => Graph::with_registry(registry),
            Err(e) => {
                let graph = Graph::new();
                graph.record(Location::caller(), e);
                graph
            }
        }
    }

    /// An empty graph with these ops and kernels.
    pub fn with_registry(registry: Registry) -> Graph {
        let scope = Scope::new(registry.ops.clone());
        Graph::over(scope, registry)
    }

    /// A graph that a scope has begun; its sessions have these kernels.
    pub fn over(scope: Scope, registry: Registry) -> Graph {
        Graph::with_shared(scope, registry, false)
    }

    /// As [`Graph::over`], for a gradient function.
    pub(crate) fn of_gradient(scope: Scope, registry: Registry) -> Graph {
        Graph::with_shared(scope, registry, true)
    }

    fn with_shared(scope: Scope, registry: Registry, is_of_gradient: bool) -> Graph {
        let shared = Shared {
            registry,
            root: scope.clone(),
            is_of_gradient,
            body: AtomicU32::new(0),
            state: Mutex::new(State { seed: DEFAULT_SEED, ..State::default() }),
        };
        Graph(Arc::new(View { shared: Arc::new(shared), scope }))
    }

    /// A view that adds nodes to this scope, which must be one of this graph.
    pub fn with_scope(&self, scope: Scope) -> Graph {
        Graph(Arc::new(View { shared: self.0.shared.clone(), scope }))
    }

    /// A view at the root of the graph: no name scope, device or control inputs.
    pub fn root(&self) -> Graph {
        self.with_scope(self.0.shared.root.clone())
    }

    /// A view with a nested name scope; a name used before gets a numeric suffix.
    #[must_use]
    pub fn scope(&self, name: &str) -> Graph {
        self.with_scope(self.0.scope.child(name))
    }

    /// A view whose nodes are placed on `device`, such as `/job:ps/task:0`.
    #[must_use]
    pub fn device(&self, device: &str) -> Graph {
        self.with_scope(self.0.scope.on_device(device))
    }

    /// A view whose nodes run after these.
    #[track_caller]
    #[must_use]
    pub fn after(&self, targets: &[&dyn Target]) -> Graph {
        let nodes = self.nodes(targets, Location::caller());
        self.with_scope(self.0.scope.after(&nodes))
    }

    /// The nodes of these targets; mistakes and poisoned ones are left out.
    fn nodes(&self, targets: &[&dyn Target], caller: Caller) -> Vec<NodeId> {
        let mut nodes = Vec::with_capacity(targets.len());
        for target in targets {
            let is_poisoned = target.to_operation().is_poisoned();
            match self.node_of(*target) {
                Ok(node) => nodes.push(node),
                Err(_) if is_poisoned => {}
                Err(e) => self.record(caller, e),
            }
        }
        nodes
    }

    /// The scope of this view, for code that builds nodes without this API.
    pub fn as_scope(&self) -> &Scope {
        &self.0.scope
    }

    /// The op definitions and kernels of this graph.
    pub fn registry(&self) -> &Registry {
        &self.0.shared.registry
    }

    /// A tensor that code without this API added to this graph; a mistake if it has another dtype.
    #[track_caller]
    pub fn output<T: TensorType>(&self, at: Endpoint) -> Output<T> {
        Output::<crate::Any>::new(self.clone(), Some(at)).typed()
    }

    /// The tensor of a handle for code that adds nodes to this graph without this API; `None` if the
    /// handle is poisoned, and a mistake if it belongs to another graph.
    #[track_caller]
    pub fn endpoint_of<T: TensorType>(&self, handle: &Output<T>) -> Option<Endpoint> {
        let caller = Location::caller();
        self.checked(handle.raw()).unwrap_or_else(|e| {
            self.record(caller, e);
            None
        })
    }

    /// The node of a target, likewise.
    #[track_caller]
    pub fn node_id_of(&self, target: &dyn Target) -> Option<NodeId> {
        self.nodes(&[target], Location::caller()).pop()
    }

    /// A node that code without this API added to this graph.
    pub fn operation(&self, node: NodeId) -> Operation {
        Operation::new(self.clone(), Some(node))
    }

    /// What the function adds to this graph, or a mistake at the line that calls this method. The error
    /// of a poisoned handle is no further mistake.
    #[track_caller]
    pub fn build<R>(&self, add: impl FnOnce(&mut Scope) -> Result<R>) -> Option<R> {
        let caller = Location::caller();
        match add(&mut self.0.scope.clone()) {
            Ok(added) => Some(added),
            Err(e) => {
                if e != poisoned() || self.check().is_ok() {
                    self.record(caller, e);
                }
                None
            }
        }
    }

    /// A tensor that each step feeds.
    #[track_caller]
    pub fn placeholder<T: TensorType>(&self, name: &str, shape: impl Dims) -> Output<T> {
        let Some(dtype) = self.build(|_| known_dtype::<T>("placeholder")) else {
            return Output::poisoned(self);
        };
        let op = NewOp::new(self, "Placeholder").name(name).attr("dtype", dtype);
        op.attr("shape", &shape.to_partial()).output()
    }

    /// A constant.
    #[track_caller]
    pub fn constant<T: TensorType>(&self, value: impl IntoTensor<T>) -> Output<T> {
        let attrs = value.into_tensor().and_then(|t| thalweg_graph::Attrs::of_const(&t));
        match attrs {
            Ok(attrs) => NewOp::new(self, "Const").attrs(&attrs).output(),
            Err(e) => {
                self.record(Location::caller(), e);
                Output::new(self.clone(), None)
            }
        }
    }

    /// A trainable variable with this name within the name scope; sessions initialize it.
    #[track_caller]
    pub fn variable<T: TensorType>(&self, name: &str, init: Init) -> Variable<T> {
        crate::init::add_variable(self, name, &init, Location::caller())
    }

    /// One target for several.
    #[track_caller]
    pub fn group(&self, name: &str, targets: &[&dyn Target]) -> Operation {
        let caller = Location::caller();
        let poisoned = targets.iter().any(|target| target.to_operation().is_poisoned());
        let nodes = self.nodes(targets, caller);
        if poisoned || nodes.len() < targets.len() {
            return Operation::new(self.clone(), None);
        }
        NewOp::at(&self.after(targets), "NoOp", caller).name(name).operation()
    }

    /// Sets the seed of the random ops that are added from now on.
    pub fn set_seed(&self, seed: i64) {
        self.0.shared.state.lock().seed = seed;
    }

    /// Seeds for the next random op: the graph's, and one that no other op of the graph has.
    pub fn next_seeds(&self) -> (i64, i64) {
        let mut state = self.0.shared.state.lock();
        state.seeds_used += 1;
        (state.seed, state.seeds_used)
    }

    /// The variables in the order in which they were added.
    pub fn variables(&self) -> Vec<VariableInfo> {
        self.0.shared.state.lock().variables.clone()
    }

    /// The variable with this full name.
    pub fn find_variable(&self, name: &str) -> Option<VariableInfo> {
        let state = self.0.shared.state.lock();
        state.by_name.get(name).map(|&index| state.variables[index].clone())
    }

    /// A handle of a variable that this graph has; poisoned if there is none. A mistake if it has
    /// another dtype, or belongs to another graph.
    #[track_caller]
    pub fn existing_variable<T: TensorType>(&self, variable: Option<VariableInfo>) -> Variable<T> {
        Variable::of(self, variable, Location::caller())
    }

    /// Makes a variable that was added without this API one of the graph's: sessions initialize it.
    pub fn keep_variable(&self, variable: VariableInfo) {
        let mut state = self.0.shared.state.lock();
        let index = state.variables.len();
        state.by_name.insert(variable.name.clone(), index);
        state.variables.push(variable);
    }

    /// Makes sessions run this node when they initialize variables.
    pub fn add_initializer(&self, node: NodeId) {
        self.0.shared.state.lock().initializers.push(node);
    }

    /// The nodes that initialize variables, between these counts of variables and of others.
    pub(crate) fn initializers(&self, from: (usize, usize), to: (usize, usize)) -> Vec<NodeId> {
        let state = self.0.shared.state.lock();
        let of_variables = state.variables[from.0..to.0].iter().map(|variable| variable.init);
        of_variables.chain(state.initializers[from.1..to.1].iter().copied()).collect()
    }

    /// How many variables and further initializers there are.
    pub(crate) fn initializer_counts(&self) -> (usize, usize) {
        let state = self.0.shared.state.lock();
        (state.variables.len(), state.initializers.len())
    }

    /// What a library attached to this graph: found, or made.
    pub fn extension<E: std::any::Any + Send + Sync>(&self, make: impl FnOnce() -> E) -> Arc<E> {
        let found = self.0.shared.state.lock().extensions.get(&TypeId::of::<E>()).cloned();
        let extension = found.unwrap_or_else(|| {
            let made: Arc<dyn std::any::Any + Send + Sync> = Arc::new(make());
            let mut state = self.0.shared.state.lock();
            state.extensions.entry(TypeId::of::<E>()).or_insert(made).clone()
        });
        extension.downcast().expect("the map's key is the type")
    }

    /// One error that lists every mistake with its source line, if there are any.
    pub fn check(&self) -> Result<()> {
        match summary(&self.0.shared.state.lock().mistakes) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// The mistakes so far, in the order in which they were made.
    pub fn mistakes(&self) -> Vec<Mistake> {
        self.0.shared.state.lock().mistakes.clone()
    }

    /// Keeps a mistake of the line `caller`.
    pub fn record(&self, caller: Caller, error: Error) {
        let caller = origin(caller);
        self.0.shared.state.lock().mistakes.push(Mistake { error, caller });
    }

    /// Keeps the source line that added a node.
    pub(crate) fn locate(&self, node: NodeId, caller: Caller) {
        let lines = &mut self.0.shared.state.lock().lines;
        if lines.len() <= node.index() {
            lines.resize(node.index() + 1, None);
        }
        lines[node.index()] = Some(origin(caller));
    }

    /// The source line that added a node.
    pub(crate) fn line_of(&self, node: NodeId) -> Option<Caller> {
        self.0.shared.state.lock().lines.get(node.index()).copied().flatten()
    }

    /// Whether both are views of one graph.
    pub fn is_same(&self, other: &Graph) -> bool {
        Arc::ptr_eq(&self.0.shared, &other.0.shared)
    }

    /// The body that this thread adds nodes to now; 0 for the graph itself.
    pub(crate) fn body(&self) -> u32 {
        let body = &self.0.shared.body;
        match body.load(Ordering::Relaxed) {
            0 => 0,
            // A body of this thread, or one of another thread, which holds the graph meanwhile.
            _ => self.as_scope().with_graph(|_| body.load(Ordering::Relaxed)),
        }
    }

    /// The tensor of a handle; `None` if the handle is poisoned.
    pub(crate) fn checked(&self, handle: &Raw) -> Result<Option<Endpoint>> {
        if handle.at.is_none() {
            return Ok(None);
        }
        if !self.is_same(&handle.graph) {
            return Err(self.foreign(&handle.graph, &handle.name().unwrap_or_default()));
        }
        self.check_body(handle.body)?;
        Ok(handle.at)
    }

    /// The error of a handle of another graph.
    #[cold]
    pub(crate) fn foreign(&self, other: &Graph, name: &str) -> Error {
        let why = if self.0.shared.is_of_gradient {
            ": a gradient function can use its arguments and what it computes of them"
        } else if other.0.shared.is_of_gradient {
            ", that of a gradient function: only what the function returns leaves it"
        } else {
            ""
        };
        err!(InvalidArgument, "'{name}' belongs to another graph{why}")
    }

    /// Checks that handles of this body can be used now.
    pub(crate) fn check_body(&self, body: u32) -> Result<()> {
        let is_open =
            body == 0 || body == self.body() || self.0.shared.state.lock().bodies.contains(&body);
        ensure!(
            is_open,
            InvalidArgument,
            "the tensor belongs to the body of a branch or loop: return it from the closure to use \
             it outside"
        );
        Ok(())
    }

    /// Calls `trace`, whose nodes belong to a new body.
    pub(crate) fn in_body<R>(&self, trace: impl FnOnce() -> R) -> R {
        let shared = &self.0.shared;
        let before = shared.body.load(Ordering::Relaxed);
        let first = self.as_scope().with_graph(thalweg_graph::Graph::len);
        {
            let mut state = shared.state.lock();
            state.bodies_traced += 1;
            let body = state.bodies_traced;
            state.bodies.push(body);
            shared.body.store(body, Ordering::Relaxed);
        }
        let result = trace();
        let mut state = shared.state.lock();
        state.bodies.pop();
        state.lines.truncate(first);
        shared.body.store(before, Ordering::Relaxed);
        result
    }
}

/// The static shape of a placeholder: `[None, Some(784)]`, or a [`PartialShape`].
pub trait Dims {
    /// The shape.
    fn to_partial(&self) -> PartialShape;
}

impl<const RANK: usize> Dims for [Option<usize>; RANK] {
    fn to_partial(&self) -> PartialShape {
        PartialShape::new(self.iter().copied())
    }
}

impl Dims for &[Option<usize>] {
    fn to_partial(&self) -> PartialShape {
        PartialShape::new(self.iter().copied())
    }
}

impl Dims for PartialShape {
    fn to_partial(&self) -> PartialShape {
        self.clone()
    }
}

impl Dims for &PartialShape {
    fn to_partial(&self) -> PartialShape {
        (*self).clone()
    }
}
