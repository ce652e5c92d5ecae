//! Graph construction: name scopes, and errors at the line that builds a node.

use std::cell::RefCell;
use std::sync::Arc;

use parking_lot::ReentrantMutex;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use thalweg_tensor::{
    Complex32, Complex64, DType, PartialShape, Result, Tensor, bf16, ensure, f16,
};

use crate::gradient::{CustomGradient, GradientContext};
use crate::{Attrs, Endpoint, Graph, IntoAttr, NewNode, Node, NodeId, OpRegistry};

/// A tensor in a graph under construction.
pub type Output = Endpoint;

/// Adds nodes to a graph under a name scope, with a device and control dependencies.
///
/// Scopes of one graph share it, on any threads; [`Scope::child`] nests name scopes.
#[derive(Clone)]
pub struct Scope {
    shared: Arc<Locked>,
    prefix: String,
    device: Arc<str>,
    control_inputs: SmallVec<[NodeId; 1]>,
}

/// What the scopes of a graph share, for one thread at a time. A thread may read while it reads: a
/// function given to [`Scope::with_graph`] may use other scopes of the graph.
struct Locked(ReentrantMutex<RefCell<Shared>>);

impl Locked {
    fn read<R>(&self, look: impl FnOnce(&Shared) -> R) -> R {
        look(&self.0.lock().borrow())
    }

    fn write<R>(&self, change: impl FnOnce(&mut Shared) -> R) -> R {
        change(&mut self.0.lock().borrow_mut())
    }
}

struct Shared {
    graph: Graph,
    /// How often each name was requested, for numeric suffixes.
    used: FxHashMap<String, u32>,
    /// Gradient functions that the program registered.
    gradients: FxHashMap<String, Arc<CustomGradient>>,
    /// Depth of nested functions whose gradients are being built.
    depth: u32,
}

/// Maximum depth of nested functions whose gradients are built, which bounds recursive functions.
const GRADIENT_DEPTH_MAX: u32 = 64;

impl Scope {
    /// A scope at the top of a new graph.
    pub fn new(registry: Arc<OpRegistry>) -> Scope {
        Scope::of(Graph::new(registry))
    }

    /// A scope at the top of an existing graph.
    pub fn of(graph: Graph) -> Scope {
        let mut used = FxHashMap::default();
        for node in graph.nodes() {
            // `a/b/c` also reserves the scopes `a` and `a/b`.
            let scopes = node.name.match_indices('/').map(|(end, _)| &node.name[..end]);
            for name in scopes.chain([&*node.name]) {
                if !used.contains_key(name) {
                    used.insert(name.to_owned(), 1);
                }
            }
        }
        let shared = Shared { graph, used, gradients: FxHashMap::default(), depth: 0 };
        Scope {
            shared: Arc::new(Locked(ReentrantMutex::new(RefCell::new(shared)))),
            prefix: String::new(),
            device: "".into(),
            control_inputs: SmallVec::new(),
        }
    }

    /// A scope at the top of a function's graph, with the gradient functions of this scope.
    pub(crate) fn over(&self, graph: Graph) -> Result<Scope> {
        let (gradients, depth) = self.shared.read(|s| (s.gradients.clone(), s.depth));
        ensure!(
            depth < GRADIENT_DEPTH_MAX,
            ResourceExhausted,
            "functions call each other more than {GRADIENT_DEPTH_MAX} deep"
        );
        let scope = Scope::of(graph);
        scope.shared.write(|inner| {
            inner.gradients = gradients;
            inner.depth = depth + 1;
        });
        Ok(scope)
    }

    /// Whether both are scopes of one graph.
    pub fn is_same_graph(&self, other: &Scope) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// A nested scope; a name used before gets a numeric suffix.
    pub fn child(&self, name: &str) -> Scope {
        let name = self.unique_name(name);
        Scope { prefix: format!("{name}/"), ..self.clone() }
    }

    /// The prefix of the names of this scope's nodes.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// This scope with nodes placed on `device`.
    pub fn on_device(&self, device: &str) -> Scope {
        Scope { device: device.into(), ..self.clone() }
    }

    /// The device that nodes of this scope request; empty for none.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// This scope with nodes that run after `nodes`.
    pub fn after(&self, nodes: &[NodeId]) -> Scope {
        let mut scope = self.clone();
        scope.control_inputs.extend_from_slice(nodes);
        scope
    }

    pub(crate) fn clear_control_inputs(&mut self) {
        self.control_inputs.clear();
    }

    /// Keeps other threads from adding nodes while the guard lives.
    pub(crate) fn lock(&self) -> impl Sized + '_ {
        self.shared.0.lock()
    }

    /// A copy of the current graph.
    pub fn to_graph(&self) -> Graph {
        self.shared.read(|s| s.graph.clone())
    }

    /// Calls `look` with the current graph.
    pub fn with_graph<R>(&self, look: impl FnOnce(&Graph) -> R) -> R {
        self.shared.read(|s| look(&s.graph))
    }

    pub(crate) fn with_graph_mut<R>(&self, change: impl FnOnce(&mut Graph) -> R) -> R {
        self.shared.write(|s| change(&mut s.graph))
    }

    /// Adds a node with these inputs and default attrs; returns its first output.
    pub fn add(&mut self, op: &str, inputs: &[Output]) -> Result<Output> {
        self.op(op).inputs(inputs).build()
    }

    /// A builder of a node of this op.
    pub fn op(&mut self, op: &str) -> NodeBuilder<'_> {
        self.node(op)
    }

    /// As [`Scope::op`], from a scope that is shared.
    pub fn node(&self, op: &str) -> NodeBuilder<'_> {
        NodeBuilder {
            op: op.to_owned(),
            name: None,
            inputs: SmallVec::new(),
            control_inputs: self.control_inputs.clone(),
            attrs: Attrs::default(),
            scope: self,
        }
    }

    /// Adds a constant.
    pub fn constant(&mut self, value: &Tensor) -> Result<Output> {
        let mut node = self.op("Const");
        node.attrs = Attrs::of_const(value)?;
        node.build()
    }

    /// Adds a placeholder, which each step must feed.
    pub fn placeholder(&mut self, dtype: DType, shape: &PartialShape) -> Result<Output> {
        self.op("Placeholder").attr("dtype", dtype).attr("shape", shape).build()
    }

    /// Adds a scalar constant of this dtype.
    pub fn number(&mut self, dtype: DType, value: f64) -> Result<Output> {
        let tensor = match dtype {
            DType::Float => Tensor::scalar(value as f32),
            DType::Double => Tensor::scalar(value),
            DType::Half => Tensor::scalar(f16::from_f64(value)),
            DType::BFloat16 => Tensor::scalar(bf16::from_f64(value)),
            DType::Complex64 => Tensor::scalar(Complex32::new(value as f32, 0.0)),
            DType::Complex128 => Tensor::scalar(Complex64::new(value, 0.0)),
            DType::Int32 => Tensor::scalar(value as i32),
            _ => {
                let wide = self.constant(&Tensor::scalar(value))?;
                return self.cast(wide, dtype);
            }
        };
        self.constant(&tensor)
    }

    /// The shape of a tensor as a vector of int32: a constant if it is known.
    pub fn shape_of(&mut self, of: Output) -> Result<Output> {
        let known = self.with_graph(|g| g.output(of).shape.to_shape());
        let dims: Option<Vec<i32>> =
            known.and_then(|s| s.iter().map(|&d| i32::try_from(d).ok()).collect());
        match dims {
            Some(dims) => self.constant(&Tensor::vector(&dims)?),
            None => self.add("Shape", &[of]),
        }
    }

    /// `of` cast to `dtype`; `of` itself if it has that dtype.
    pub fn cast(&mut self, of: Output, dtype: DType) -> Result<Output> {
        if self.with_graph(|g| g.output(of).dtype == dtype) {
            return Ok(of);
        }
        self.op("Cast").input(of).attr("DstT", dtype).build()
    }

    /// Registers a gradient function for every scope of this graph. `name` is an op, whose gradient
    /// function it replaces, or a value of the attr `_gradient_op_type` of nodes.
    pub fn set_gradient(
        &self,
        name: &str,
        function: impl Fn(&mut GradientContext<'_>) -> Result<()> + Send + Sync + 'static,
    ) {
        self.shared.write(|s| s.gradients.insert(name.to_owned(), Arc::new(function)));
    }

    pub(crate) fn custom_gradient(&self, name: &str) -> Option<Arc<CustomGradient>> {
        self.shared.read(|s| s.gradients.get(name).cloned())
    }

    /// Name of a tensor, as in feeds and fetches: `scope/node:0`.
    pub fn name_of(&self, output: Output) -> String {
        self.with_graph(|g| format!("{}:{}", g.node(output.node).name, output.index))
    }

    fn unique_name(&self, name: &str) -> String {
        self.shared.write(|shared| unique(&mut shared.used, [&*self.prefix, name].concat()))
    }
}

/// `full`, or `full` with the first number that makes it unique.
fn unique(used: &mut FxHashMap<String, u32>, full: String) -> String {
    let Some(count) = used.get_mut(&full) else {
        used.insert(full.clone(), 1);
        return full;
    };
    *count += 1;
    let mut number = *count - 1;
    loop {
        let candidate = [&*full, "_", &number.to_string()].concat();
        if !used.contains_key(&candidate) {
            used.insert(candidate.clone(), 1);
            return candidate;
        }
        number += 1;
    }
}

/// A node under construction.
pub struct NodeBuilder<'a> {
    scope: &'a Scope,
    op: String,
    name: Option<String>,
    inputs: SmallVec<[Endpoint; 2]>,
    control_inputs: SmallVec<[NodeId; 1]>,
    attrs: Attrs,
}

impl NodeBuilder<'_> {
    /// The name within the scope; by default the op's.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Appends one input.
    pub fn input(mut self, input: Output) -> Self {
        self.inputs.push(input);
        self
    }

    /// Appends inputs.
    pub fn inputs(mut self, inputs: &[Output]) -> Self {
        self.inputs.extend_from_slice(inputs);
        self
    }

    /// Appends control inputs: nodes that must run before.
    pub fn after(mut self, nodes: &[NodeId]) -> Self {
        self.control_inputs.extend_from_slice(nodes);
        self
    }

    /// Drops the control inputs, also those of the scope.
    pub fn detached(mut self) -> Self {
        self.control_inputs.clear();
        self
    }

    /// Sets attrs.
    pub fn attrs(mut self, attrs: Attrs) -> Self {
        if self.attrs.iter().next().is_none() {
            self.attrs = attrs;
            return self;
        }
        for (name, value) in attrs.iter() {
            self.attrs.set(name.clone(), value.clone());
        }
        self
    }

    /// Sets an attr; types and numbers that the inputs determine need not be set.
    pub fn attr(mut self, name: &str, value: impl IntoAttr) -> Self {
        self.attrs.set(name, value.into_attr());
        self
    }

    /// Adds the node; returns its first output.
    pub fn build(self) -> Result<Output> {
        Ok(Endpoint { node: self.build_node()?, index: 0 })
    }

    /// Adds the node.
    pub fn build_node(self) -> Result<NodeId> {
        self.build_with(|id, _| id)
    }

    /// Adds the node; returns what `look` finds of it.
    pub fn build_with<R>(self, look: impl FnOnce(NodeId, &Node) -> R) -> Result<R> {
        let NodeBuilder { scope, op, name, inputs, control_inputs, attrs } = self;
        scope.shared.write(|shared| {
            let name = [&*scope.prefix, name.as_deref().unwrap_or(&op)].concat();
            let name = unique(&mut shared.used, name);
            let op = shared.graph.find_op(&op)?;
            let device = scope.device.clone();
            let new = NewNode::new(name, op);
            let id = shared.graph.add(NewNode { inputs, control_inputs, device, attrs, ..new })?;
            Ok(look(id, shared.graph.node(id)))
        })
    }

    /// Adds the node; returns all its outputs.
    pub fn build_all(self) -> Result<Vec<Output>> {
        let scope = self.scope;
        let node = self.build_node()?;
        let outputs = scope.with_graph(|g| g.node(node).outputs.len() as u32);
        Ok((0..outputs).map(|index| Endpoint { node, index }).collect())
    }
}
