//! Reverse-mode differentiation: adds nodes that compute the derivatives of `ys` by `xs`.
//!
//! [`gradients`] walks the graph from `ys` back to `xs`. At each node the op's gradient function adds
//! nodes that compute the adjoints of the inputs from those of the outputs (an adjoint is the
//! derivative of the sum of `ys` by a tensor). Adjoints of a tensor with several readers are summed.
//!
//! Adjoints of gathered rows stay sparse ([`IndexedSlices`]) until a node needs them dense.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use thalweg_tensor::{Context, DType, PartialShape, Result, Tensor, bail, ensure};

use crate::value::partial_value;
use crate::{
    Endpoint, Graph, Node, NodeAttrs, NodeBuilder, NodeId, Output, PartialValue, Role, Scope,
};

/// How an op is differentiated.
#[derive(Clone, Copy, Default)]
pub enum Gradient {
    /// Not defined: a path through the op is an error.
    #[default]
    Unknown,
    /// Not differentiable: backpropagation stops here without an error.
    None,
    /// Adjoints are computed by nodes that this function adds.
    By(GradientFn),
}

/// Adds the nodes that compute the adjoints of a node's inputs from those of its outputs.
pub type GradientFn = fn(&mut GradientContext<'_>) -> Result<()>;

/// A gradient function that a program registers; see [`Scope::set_gradient`].
pub(crate) type CustomGradient = dyn Fn(&mut GradientContext<'_>) -> Result<()> + Send + Sync;

/// The attr that names another gradient function than the op's own (`gradient_override_map`).
const OVERRIDE_ATTR: &str = "_gradient_op_type";

/// The adjoint of a tensor: the derivative of the `ys` by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adjoint {
    /// A tensor of the same shape.
    Dense(Output),
    /// `IndexedSlices`: some rows of such a tensor; the others are zero.
    Sparse(IndexedSlices),
}

/// Rows of a tensor (`tf.IndexedSlices`): `values[i]` is row `indices[i]`; values of equal indices
/// are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexedSlices {
    /// The rows.
    pub values: Output,
    /// Indices of the rows; a vector.
    pub indices: Output,
    /// Shape of the dense tensor; a vector.
    pub dense_shape: Output,
}

impl Adjoint {
    /// The dense tensor: rows are summed into zeros.
    pub fn to_dense(self, scope: &mut Scope) -> Result<Output> {
        let slices = match self {
            Adjoint::Dense(output) => return Ok(output),
            Adjoint::Sparse(slices) => slices,
        };
        let zero = scope.constant(&Tensor::vector(&[0i32])?)?;
        let one = scope.constant(&Tensor::vector(&[1i32])?)?;
        let rows = scope
            .op("StridedSlice")
            .inputs(&[slices.dense_shape, zero, one, one])
            .attr("shrink_axis_mask", 1i64)
            .build()?;
        scope.add("UnsortedSegmentSum", &[slices.values, slices.indices, rows])
    }
}

/// Options of [`gradients`].
#[derive(Clone, Copy, Default)]
pub struct GradientOptions<'a> {
    /// Adjoints of the `ys`, ones for missing entries. Empty, or one entry for each of `ys`.
    pub grad_ys: &'a [Option<Output>],
    /// Tensors treated as constant: backpropagation stops at them.
    pub stop_gradients: &'a [Output],
}

/// Adds nodes that compute the derivative of the sum of `ys` by each of `xs`; zeros for an `x`
/// without a path to the `ys`.
pub fn gradients(
    scope: &mut Scope,
    ys: &[Output],
    xs: &[Output],
    options: &GradientOptions<'_>,
) -> Result<Vec<Adjoint>> {
    let connected = connected_gradients(scope, ys, xs, options)?;
    xs.iter()
        .zip(connected)
        .map(|(&x, adjoint)| adjoint.map_or_else(|| zeros(scope, x), Ok))
        .collect()
}

/// As [`gradients`], but `None` for an `x` without a path to the `ys`.
pub fn connected_gradients(
    scope: &mut Scope,
    ys: &[Output],
    xs: &[Output],
    options: &GradientOptions<'_>,
) -> Result<Vec<Option<Adjoint>>> {
    let count = options.grad_ys.len();
    ensure!(
        count == 0 || count == ys.len(),
        InvalidArgument,
        "{count} grad_ys for {} ys",
        ys.len()
    );
    for &given in options.grad_ys.iter().flatten() {
        scope.with_graph(|graph| graph.checked_output(given).map(|_| ()))?;
    }
    let mut scope = scope.child("gradients");
    let paths = scope.with_graph(|graph| Paths::between(graph, ys, xs, options.stop_gradients))?;
    let mut sums = AdjointSums::default();
    for (i, &y) in ys.iter().enumerate() {
        let given = options.grad_ys.get(i).copied().flatten();
        sums.add(y, Adjoint::Dense(seed(&mut scope, i, y, given)?));
    }
    for &id in paths.nodes.iter().rev() {
        backpropagate(&mut scope, id, &paths, &mut sums)?;
    }
    xs.iter().map(|&x| sums.total(&mut scope, x)).collect()
}

/// The initial adjoint of a `y`: the caller's, or ones.
fn seed(scope: &mut Scope, i: usize, y: Output, given: Option<Output>) -> Result<Output> {
    let name = format!("grad_ys_{i}");
    let (dtype, shape) = scope.with_graph(|g| (g.output(y).dtype, g.output(y).shape.clone()));
    if let Some(given) = given {
        let (d, s) = scope.with_graph(|g| (g.output(given).dtype, g.output(given).shape.clone()));
        // The value behind a handle or in a list has a type and shape of its own.
        if !dtype.is_object() {
            ensure!(d == dtype, InvalidArgument, "grad_ys {i} is {d}, its y is {dtype}");
            s.merge(&shape).context(|| format!("grad_ys {i} is not of its y's shape"))?;
        }
        return scope.op("Identity").name(&name).input(given).build();
    }
    ensure!(
        dtype.is_floating() || dtype.is_complex() || dtype.is_integer(),
        InvalidArgument,
        "y {i} is {dtype}, which has no gradient"
    );
    let shape = scope.shape_of(y)?;
    let one = scope.number(dtype, 1.0)?;
    scope.op("Fill").name(&name).inputs(&[shape, one]).build()
}

/// Zeros of the shape of `x`, or of the variable whose handle `x` is.
fn zeros(scope: &mut Scope, x: Output) -> Result<Adjoint> {
    let info = scope.with_graph(|g| g.output(x).clone());
    let mut value = x;
    if info.dtype == DType::Resource {
        let dtype = scope.with_graph(|g| g.node(x.node).attrs().dtype("dtype"))?;
        value = scope.op("ReadVariableOp").input(x).attr("dtype", dtype).build()?;
    }
    Ok(Adjoint::Dense(scope.add("ZerosLike", &[value])?))
}

/// Whether a tensor of this type can have an adjoint. The adjoint of a resource is that of its
/// variable's value.
fn is_differentiable(dtype: DType) -> bool {
    dtype.is_floating() || dtype.is_complex() || matches!(dtype, DType::Resource | DType::Variant)
}

/// The nodes on paths from `xs` to `ys`.
struct Paths {
    /// In topological order.
    nodes: Vec<NodeId>,
    members: FxHashSet<NodeId>,
    /// Nodes on paths at which backpropagation stops.
    stops: FxHashSet<NodeId>,
}

impl Paths {
    fn between(graph: &Graph, ys: &[Output], xs: &[Output], stop: &[Output]) -> Result<Paths> {
        for &e in ys.iter().chain(xs).chain(stop) {
            graph.checked_output(e)?;
        }
        let sources: FxHashSet<NodeId> = xs.iter().map(|x| x.node).collect();
        let mut paths =
            Paths { nodes: Vec::new(), members: FxHashSet::default(), stops: FxHashSet::default() };
        for id in ancestors(graph, ys) {
            let leads_on = paths.passes_to(graph, id);
            if leads_on || sources.contains(&id) {
                paths.nodes.push(id);
                paths.members.insert(id);
            }
            if !leads_on && sources.contains(&id) {
                paths.stops.insert(id);
            }
        }
        paths.stops.extend(stop.iter().map(|s| s.node));
        Ok(paths)
    }

    /// Whether an input of the node can pass an adjoint to a node on a path.
    fn passes_to(&self, graph: &Graph, id: NodeId) -> bool {
        let carries = |e: &Endpoint| {
            self.members.contains(&e.node) && is_differentiable(graph.output(*e).dtype)
        };
        graph.node(id).inputs.iter().any(carries)
    }
}

/// All nodes that `ys` depend on, in topological order.
fn ancestors(graph: &Graph, ys: &[Output]) -> Vec<NodeId> {
    let mut order = Vec::new();
    let mut seen = vec![false; graph.len()];
    let mut stack: Vec<(NodeId, usize)> = Vec::new();
    for y in ys {
        if !std::mem::replace(&mut seen[y.node.index()], true) {
            stack.push((y.node, 0));
        }
        while let Some((id, next)) = stack.last_mut() {
            // Back edges of loops are not followed.
            let node = graph.node(*id);
            let inputs = match node.role() {
                Role::NextIteration => &[][..],
                _ => &node.inputs[..],
            };
            match inputs.get(*next) {
                Some(input) => {
                    *next += 1;
                    if !std::mem::replace(&mut seen[input.node.index()], true) {
                        stack.push((input.node, 0));
                    }
                }
                None => {
                    order.push(*id);
                    stack.pop();
                }
            }
        }
    }
    order
}

/// Contributions to the adjoint of each tensor, to be summed.
#[derive(Default)]
struct AdjointSums {
    parts: FxHashMap<Endpoint, SmallVec<[Adjoint; 2]>>,
}

impl AdjointSums {
    fn add(&mut self, of: Endpoint, part: Adjoint) {
        self.parts.entry(of).or_default().push(part);
    }

    /// The sum of the contributions to the adjoint of `of`, computed once.
    fn total(&mut self, scope: &mut Scope, of: Endpoint) -> Result<Option<Adjoint>> {
        let Some(parts) = self.parts.get_mut(&of) else { return Ok(None) };
        if parts.len() > 1 {
            let total = sum(scope, parts)?;
            parts.clear();
            parts.push(total);
        }
        Ok(parts.first().copied())
    }
}

/// The sum of adjoints; sparse ones are concatenated if all are sparse.
fn sum(scope: &mut Scope, parts: &[Adjoint]) -> Result<Adjoint> {
    let slices: Option<Vec<IndexedSlices>> = parts
        .iter()
        .map(|p| if let Adjoint::Sparse(slices) = p { Some(*slices) } else { None })
        .collect();
    let Some(mut slices) = slices else {
        let dense: Vec<Output> = parts.iter().map(|p| p.to_dense(scope)).collect::<Result<_>>()?;
        return Ok(Adjoint::Dense(scope.add("AddN", &dense)?));
    };
    let is_wide =
        |s: &IndexedSlices| scope.with_graph(|g| g.output(s.indices).dtype == DType::Int64);
    if slices.iter().any(is_wide) {
        for s in &mut slices {
            s.indices = scope.cast(s.indices, DType::Int64)?;
        }
    }
    let axis = scope.constant(&Tensor::scalar(0i32))?;
    let mut join = |of: fn(&IndexedSlices) -> Output| {
        let all: Vec<Output> = slices.iter().map(of).collect();
        scope.op("ConcatV2").inputs(&all).input(axis).build()
    };
    let (values, indices) = (join(|s| s.values)?, join(|s| s.indices)?);
    Ok(Adjoint::Sparse(IndexedSlices { values, indices, dense_shape: slices[0].dense_shape }))
}

/// The gradient of an op that forwards its first input: the adjoint of its output, dense or sparse.
pub fn unchanged(g: &mut GradientContext<'_>) -> Result<()> {
    g.adjoint(0).map_or(Ok(()), |adjoint| g.set_adjoint(0, adjoint))
}

/// Backpropagates through one node: from the adjoints of its outputs to those of its inputs.
fn backpropagate(
    scope: &mut Scope,
    id: NodeId,
    paths: &Paths,
    sums: &mut AdjointSums,
) -> Result<()> {
    if paths.stops.contains(&id) {
        return Ok(());
    }
    let node = scope.with_graph(|graph| graph.node(id).clone());
    let outputs = (0..node.outputs.len() as u32).map(|index| Endpoint { node: id, index });
    let adjoints: SmallVec<[Option<Adjoint>; 2]> =
        outputs.map(|o| sums.total(scope, o)).collect::<Result<_>>()?;
    if adjoints.iter().all(Option::is_none) {
        return Ok(());
    }
    let source = scope.prefix().trim_end_matches('/').to_owned();
    let mut scope = scope.child(&format!("{}_grad", node.name));
    let results = smallvec::smallvec![None; node.inputs.len()];
    let mut context = GradientContext {
        scope: &mut scope,
        source,
        id,
        node: &node,
        adjoints: &adjoints,
        results,
    };
    context
        .differentiate()
        .context(|| format!("gradient of '{}' ({})", node.name, node.op.name))?;
    let results = context.results;
    for (&input, adjoint) in node.inputs.iter().zip(results) {
        if let Some(adjoint) = adjoint.filter(|_| paths.members.contains(&input.node)) {
            sums.add(input, adjoint);
        }
    }
    Ok(())
}

/// Argument of a gradient function: a node, the adjoints of its outputs, and a scope to build in.
pub struct GradientContext<'a> {
    scope: &'a mut Scope,
    source: String,
    id: NodeId,
    node: &'a Node,
    adjoints: &'a [Option<Adjoint>],
    results: SmallVec<[Option<Adjoint>; 4]>,
}

impl GradientContext<'_> {
    fn differentiate(&mut self) -> Result<()> {
        let op = &self.node.op;
        let named = match self.node.attrs.get(OVERRIDE_ATTR) {
            Some(_) => Some(self.node.attrs().string(OVERRIDE_ATTR)?),
            None => None,
        };
        if let Some(custom) = self.scope.custom_gradient(named.unwrap_or(&op.name)) {
            return custom(self);
        }
        let gradient = match named {
            None => op.gradient,
            Some(name) => match self.scope.with_graph(|g| g.find_op(name)) {
                Ok(other) => other.gradient,
                // TensorFlow's Python code registers the gradients of traced functions in its own
                // process only.
                Err(_) if self.node.role().is_call() => op.gradient,
                Err(_) => bail!(NotFound, "no gradient function is called '{name}'"),
            },
        };
        match gradient {
            Gradient::By(function) => function(self),
            Gradient::None => Ok(()),
            Gradient::Unknown => bail!(NotFound, "no gradient is defined for {}", op.name),
        }
    }

    /// A name for this call of [`gradients`] that is unique in the graph.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The node's attrs, with defaults.
    pub fn attrs(&self) -> NodeAttrs<'_> {
        self.node.attrs()
    }

    /// The node.
    pub fn node(&self) -> &Node {
        self.node
    }

    pub(crate) fn id(&self) -> NodeId {
        self.id
    }

    /// Number of inputs.
    pub fn num_inputs(&self) -> usize {
        self.node.inputs.len()
    }

    /// Input `i`, which must exist.
    pub fn input(&self, i: usize) -> Output {
        self.node.inputs[i]
    }

    /// All inputs.
    pub fn inputs(&self) -> &[Output] {
        &self.node.inputs
    }

    /// Number of outputs.
    pub fn num_outputs(&self) -> usize {
        self.node.outputs.len()
    }

    /// Output `i`.
    pub fn output(&self, i: usize) -> Output {
        Endpoint { node: self.id, index: i as u32 }
    }

    /// Adjoint of output `i`, if it has one.
    pub fn adjoint(&self, i: usize) -> Option<Adjoint> {
        self.adjoints.get(i).copied().flatten()
    }

    /// Dense adjoint of output `i`; zeros if it has none.
    pub fn grad(&mut self, i: usize) -> Result<Output> {
        match self.adjoint(i) {
            Some(adjoint) => adjoint.to_dense(self.scope),
            None => {
                let output = self.output(i);
                self.add("ZerosLike", &[output])
            }
        }
    }

    /// Sets the adjoint of input `i`; other inputs have none.
    pub fn set(&mut self, i: usize, adjoint: Output) -> Result<()> {
        let (of, got) = self
            .scope
            .with_graph(|g| (g.output(self.node.inputs[i]).clone(), g.output(adjoint).clone()));
        if !is_differentiable(of.dtype) {
            return Ok(());
        }
        if !of.dtype.is_object() {
            ensure!(
                of.dtype == got.dtype,
                Internal,
                "input {i} is {}, its adjoint {}",
                of.dtype,
                got.dtype
            );
            of.shape.merge(&got.shape).context(|| format!("adjoint of input {i}"))?;
        }
        self.results[i] = Some(Adjoint::Dense(adjoint));
        Ok(())
    }

    /// Sets a sparse adjoint of input `i`.
    pub fn set_rows(&mut self, i: usize, rows: IndexedSlices) {
        self.results[i] = Some(Adjoint::Sparse(rows));
    }

    /// Sets the adjoint of input `i`, dense or sparse.
    pub fn set_adjoint(&mut self, i: usize, adjoint: Adjoint) -> Result<()> {
        match adjoint {
            Adjoint::Dense(output) => self.set(i, output),
            Adjoint::Sparse(rows) => {
                self.set_rows(i, rows);
                Ok(())
            }
        }
    }

    /// Dtype of a tensor.
    pub fn dtype(&self, of: Output) -> DType {
        self.scope.with_graph(|g| g.output(of).dtype)
    }

    /// Shape of a tensor, as far as known.
    pub fn shape(&self, of: Output) -> PartialShape {
        self.scope.with_graph(|g| g.output(of).shape.clone())
    }

    /// The static value of a small integer tensor, as far as known.
    pub fn value(&self, of: Output) -> Option<PartialValue> {
        self.scope.with_graph(|g| partial_value(g, of))
    }

    /// The scope to build in.
    pub fn scope(&mut self) -> &mut Scope {
        self.scope
    }

    /// Adds a node with these inputs and default attrs; returns its first output.
    pub fn add(&mut self, op: &str, inputs: &[Output]) -> Result<Output> {
        self.scope.add(op, inputs)
    }

    /// A builder of a node of this op.
    pub fn op(&mut self, op: &str) -> NodeBuilder<'_> {
        self.scope.op(op)
    }

    /// A builder of a node with these attrs of the differentiated node.
    pub fn op_like(&mut self, op: &str, attrs: &[&str]) -> NodeBuilder<'_> {
        let node = self.node.attrs();
        let mut given = Vec::new();
        for &name in attrs {
            given.extend(node.get(name).map(|value| (name, value.clone())));
        }
        given.into_iter().fold(self.scope.op(op), |node, (name, value)| node.attr(name, value))
    }

    /// A scalar of this type.
    pub fn number(&mut self, dtype: DType, value: f64) -> Result<Output> {
        self.scope.number(dtype, value)
    }

    /// A scalar of the type of `like`.
    pub fn number_like(&mut self, like: Output, value: f64) -> Result<Output> {
        let dtype = self.dtype(like);
        self.scope.number(dtype, value)
    }

    /// A vector of int32.
    pub fn ints(&mut self, values: &[i32]) -> Result<Output> {
        self.scope.constant(&Tensor::vector(values)?)
    }

    /// A scalar int32.
    pub fn int(&mut self, value: i32) -> Result<Output> {
        self.scope.constant(&Tensor::scalar(value))
    }

    /// The shape of a tensor as a vector of int32: a constant if it is known.
    pub fn shape_of(&mut self, of: Output) -> Result<Output> {
        self.scope.shape_of(of)
    }

    /// `of` cast to `dtype`; `of` itself if it has that dtype.
    pub fn cast(&mut self, of: Output, dtype: DType) -> Result<Output> {
        self.scope.cast(of, dtype)
    }
}
