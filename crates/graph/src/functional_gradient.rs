//! Gradients of calls and branches; those of loops are in `loop_gradient`.
//!
//! The gradient of a function is built in a graph that has a copy of the function's nodes. The
//! intermediate values that it reads come from the forward pass: the differentiated node is extended
//! by an output for each of them, after its own outputs.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_proto as pb;
use thalweg_tensor::{DType, PartialShape, Result, Tensor, err};

use crate::subgraph::{FunctionArg, Subgraph, add_function};
use crate::{
    AttrValue, Attrs, Endpoint, FunctionBody, GradientContext, GradientOptions, Graph, IntoAttr,
    NodeId, Output, OutputInfo, Role, Scope, connected_gradients, instantiate_gradient, reachable,
};

/// A function and its gradient in one graph.
pub(crate) struct Backward {
    /// Over the function's nodes, followed by those of its gradient.
    pub(crate) scope: Scope,
    /// Number of the function's nodes.
    first: usize,
    pub(crate) args: Vec<Output>,
    pub(crate) results: Vec<Output>,
    /// Adjoints of results, as arguments.
    pub(crate) dys: Vec<Output>,
    /// Adjoints of arguments, by position.
    pub(crate) dxs: BTreeMap<usize, Output>,
}

impl Backward {
    /// Builds the gradient. `with` has the positions of the results with an adjoint, and the types
    /// of these adjoints.
    pub(crate) fn new(
        outer: &Scope,
        body: FunctionBody,
        with: &BTreeMap<usize, DType>,
    ) -> Result<Backward> {
        let mut back = Backward {
            first: body.graph.len(),
            args: body.arg_tensors(),
            results: body.result_tensors(),
            scope: outer.over(body.graph)?,
            dys: Vec::new(),
            dxs: BTreeMap::new(),
        };
        let mut ys = Vec::with_capacity(with.len());
        for (&i, &dtype) in with {
            let y = back.results.get(i).ok_or_else(|| err!(InvalidArgument, "no result {i}"))?;
            ys.push(*y);
            let info = back.info(*y);
            let shape = if info.dtype == dtype { info.shape } else { PartialShape::unknown() };
            let dy = back.arg("dy", dtype, &shape)?;
            back.dys.push(dy);
        }
        let grad_ys: Vec<Option<Output>> = back.dys.iter().copied().map(Some).collect();
        let options = GradientOptions { grad_ys: &grad_ys, ..Default::default() };
        let adjoints = connected_gradients(&mut back.scope, &ys, &back.args, &options)?;
        for (i, adjoint) in adjoints.into_iter().enumerate() {
            if let Some(adjoint) = adjoint {
                back.dxs.insert(i, adjoint.to_dense(&mut back.scope)?);
            }
        }
        Ok(back)
    }

    pub(crate) fn info(&self, tensor: Output) -> OutputInfo {
        self.scope.with_graph(|g| g.output(tensor).clone())
    }

    pub(crate) fn function_arg(&self, tensor: Output) -> FunctionArg {
        self.scope.with_graph(|g| FunctionArg::of(g, tensor))
    }

    pub(crate) fn function_args(&self, tensors: &[Output]) -> Vec<FunctionArg> {
        tensors.iter().map(|&t| self.function_arg(t)).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.scope.with_graph(Graph::len)
    }

    /// Adds an `_Arg`. Its index is not used: functions are written from lists of arguments.
    pub(crate) fn arg(&mut self, name: &str, dtype: DType, shape: &PartialShape) -> Result<Output> {
        let node = self.scope.op("_Arg").name(name).attr("T", dtype).attr("index", 0i64);
        node.attr("_output_shapes", &[shape.clone()][..]).build()
    }

    /// The nodes from position `first` on.
    pub(crate) fn subgraph_from(&self, first: usize) -> Subgraph {
        self.scope.with_graph(|g| Subgraph::of(g, g.ids().skip(first)))
    }

    /// The forward nodes (the function's, and those that extended nodes depend on) and the gradient's.
    pub(crate) fn split(&self) -> (Subgraph, Subgraph) {
        self.scope.with_graph(|graph| {
            let function = graph.ids().take(self.first);
            let is_forward = reachable(graph.len(), function, |id, stack| {
                stack.extend(graph.node(id).inputs.iter().map(|e| e.node));
            });
            let (forward, gradient): (Vec<NodeId>, Vec<NodeId>) =
                graph.ids().partition(|id| is_forward[id.index()]);
            (Subgraph::of(graph, forward), Subgraph::of(graph, gradient))
        })
    }

    /// The tensors of the function that the gradient reads.
    pub(crate) fn captures(&self, gradient: &Subgraph) -> Vec<Output> {
        let results: Vec<Output> = self.dxs.values().copied().collect();
        self.scope.with_graph(|g| gradient.captures(g, &self.dys, &results))
    }

    pub(crate) fn position(&self, tensor: Output) -> Option<usize> {
        self.args.iter().position(|&arg| arg == tensor)
    }

    pub(crate) fn function(
        &self,
        subgraph: &Subgraph,
        args: &[FunctionArg],
        results: &[FunctionArg],
    ) -> Result<pb::FunctionDef> {
        self.scope.with_graph(|g| subgraph.to_function(g, args, results))
    }

    /// The function with additional results.
    fn forward(&self, subgraph: &Subgraph, more: &[FunctionArg]) -> Result<pb::FunctionDef> {
        let mut results = self.function_args(&self.results);
        results.extend_from_slice(more);
        self.function(subgraph, &self.function_args(&self.args), &results)
    }

    /// Sets the adjoint of argument `i` to zeros if the results do not depend on it.
    fn ensure_adjoint(&mut self, i: usize, dtype: DType) -> Result<()> {
        if !self.dxs.contains_key(&i) {
            let zeros = zeros(&mut self.scope, self.args[i], dtype)?;
            self.dxs.insert(i, zeros);
        }
        Ok(())
    }
}

/// Zeros for the adjoint of `of`. The adjoint of a variable's handle has the variable's type, `dtype`.
pub(crate) fn zeros(scope: &mut Scope, of: Output, dtype: DType) -> Result<Output> {
    let mut value = of;
    if scope.with_graph(|g| g.output(of).dtype) == DType::Resource && dtype != DType::Resource {
        value = scope.op("ReadVariableOp").input(of).attr("dtype", dtype).build()?;
    }
    scope.add("ZerosLike", &[value])
}

pub(crate) fn body_of(scope: &Scope, function: &pb::NameAttrList) -> Result<FunctionBody> {
    let attrs = Attrs::from_proto(&function.attr);
    scope.with_graph(|graph| graph.function_body(&function.name, &attrs))
}

/// The adjoints of the outputs that have one, with their positions.
pub(crate) fn given_adjoints(g: &mut GradientContext<'_>) -> Result<BTreeMap<usize, Output>> {
    let mut given = BTreeMap::new();
    for i in 0..g.num_outputs() {
        if let Some(adjoint) = g.adjoint(i) {
            given.insert(i, adjoint.to_dense(g.scope())?);
        }
    }
    Ok(given)
}

pub(crate) fn types_of(
    g: &GradientContext<'_>,
    tensors: &BTreeMap<usize, Output>,
) -> BTreeMap<usize, DType> {
    tensors.iter().map(|(&i, &tensor)| (i, g.dtype(tensor))).collect()
}

/// Adds the functions created while building a gradient, and `def`, to the graph's library.
pub(crate) fn adopt(
    g: &mut GradientContext<'_>,
    back: &Backward,
    base: &str,
    def: pb::FunctionDef,
) -> Result<AttrValue> {
    let library = back.scope.with_graph(|inner| inner.library().clone());
    let name = g.scope().with_graph_mut(|graph| {
        graph.library_mut().absorb(&library);
        add_function(graph, base, def)
    })?;
    Ok(AttrValue::function(&name, &Attrs::default()))
}

/// Extends the differentiated node by inputs and outputs, and sets attrs; returns the new outputs.
pub(crate) fn extend_node(
    g: &mut GradientContext<'_>,
    inputs: &[Output],
    outputs: &[FunctionArg],
    attrs: Vec<(&str, AttrValue)>,
) -> Vec<Output> {
    let (node, old) = (g.id(), g.num_outputs() as u32);
    g.scope().with_graph_mut(|graph| {
        let extended = graph.node_mut(node);
        // No other gradient may have extended the node in the meantime.
        debug_assert_eq!(extended.outputs.len(), old as usize);
        extended.inputs.extend_from_slice(inputs);
        extended.outputs.extend(outputs.iter().map(|function_arg| OutputInfo {
            dtype: function_arg.dtype,
            is_ref: false,
            shape: function_arg.shape.clone(),
        }));
        for (name, value) in attrs {
            extended.attrs.set(name, value);
        }
    });
    (0..outputs.len() as u32).map(|i| Endpoint { node, index: old + i }).collect()
}

/// Types and shapes of the node's outputs and of `more`, as attrs.
pub(crate) fn extended_signature(
    g: &GradientContext<'_>,
    more: &[FunctionArg],
) -> (AttrValue, AttrValue) {
    let own = g.node().outputs.iter().map(|o| (o.dtype, o.shape.clone()));
    let (dtypes, shapes): (Vec<DType>, Vec<PartialShape>) =
        own.chain(more.iter().map(|s| (s.dtype, s.shape.clone()))).unzip();
    ((&dtypes[..]).into_attr(), (&shapes[..]).into_attr())
}

/// Gradient of `PartitionedCall` and `StatefulPartitionedCall`.
pub(crate) fn call(g: &mut GradientContext<'_>) -> Result<()> {
    let function = (**g.attrs().function("f")?).clone();
    if let Some(defined) = defined_gradient(g, &function.name) {
        return call_defined(g, &defined, &function);
    }
    let given = given_adjoints(g)?;
    let body = body_of(g.scope(), &function)?;
    let types = types_of(g, &given);
    let back = Backward::new(g.scope(), body, &types)?;
    let (forward, gradient) = back.split();
    let captures = back.captures(&gradient);
    let values: Vec<Output> =
        captures.iter().copied().filter(|&t| back.position(t).is_none()).collect();
    let mut extended = Vec::new();
    if !values.is_empty() {
        let more = back.function_args(&values);
        let forward = adopt(g, &back, &function.name, back.forward(&forward, &more)?)?;
        let (dtypes, _) = extended_signature(g, &more);
        extended = extend_node(g, &[], &more, vec![("f", forward), ("Tout", dtypes)]);
    }
    let mut inputs: Vec<Output> = given.values().copied().collect();
    let mut next = extended.into_iter();
    for &capture in &captures {
        let from_outside = back.position(capture).map(|i| g.input(i));
        inputs.extend(from_outside.or_else(|| next.next()));
    }
    let args = [back.function_args(&back.dys), back.function_args(&captures)].concat();
    run_backward(g, &back, &gradient, &function.name, &args, &inputs)
}

/// Adds the call of the gradient function, which computes the adjoints of the node's inputs.
fn run_backward(
    g: &mut GradientContext<'_>,
    back: &Backward,
    subgraph: &Subgraph,
    name: &str,
    args: &[FunctionArg],
    inputs: &[Output],
) -> Result<()> {
    let dxs: Vec<Output> = back.dxs.values().copied().collect();
    if dxs.is_empty() {
        return Ok(());
    }
    let results = back.function_args(&dxs);
    let def = back.function(subgraph, args, &results)?;
    let function = adopt(g, back, &format!("gradient_of_{name}"), def)?;
    let op = if subgraph.is_stateful() { "StatefulPartitionedCall" } else { "PartitionedCall" };
    let dtypes: Vec<DType> = results.iter().map(|r| r.dtype).collect();
    let in_types: Vec<DType> = args.iter().map(|a| a.dtype).collect();
    let node = g.op(op).inputs(inputs).attr("Tin", &in_types[..]).attr("Tout", &dtypes[..]);
    let outputs = node.attr("f", function).build_all()?;
    for (&i, output) in back.dxs.keys().zip(outputs) {
        g.set(i, output)?;
    }
    Ok(())
}

/// The name of the gradient function registered for a function.
fn defined_gradient(g: &mut GradientContext<'_>, name: &str) -> Option<String> {
    g.scope().with_graph(|graph| graph.library().gradient(name).map(str::to_owned))
}

fn call_defined(
    g: &mut GradientContext<'_>,
    gradient: &str,
    function: &pb::NameAttrList,
) -> Result<()> {
    let mut inputs = g.inputs().to_vec();
    let dtypes: Vec<DType> = inputs.iter().map(|&x| g.dtype(x)).collect();
    for i in 0..g.num_outputs() {
        inputs.push(g.grad(i)?);
    }
    let function = AttrValue::function(gradient, &Attrs::from_proto(&function.attr));
    let node = g.op("StatefulPartitionedCall").inputs(&inputs).attr("Tout", &dtypes[..]);
    let adjoints = node.attr("f", function).build_all()?;
    for (i, adjoint) in adjoints.into_iter().enumerate() {
        g.set(i, adjoint)?;
    }
    Ok(())
}

/// Gradient of a node whose op is a function. Its signature is fixed, so the gradient recomputes
/// the function, as in TensorFlow.
pub(crate) fn direct_call(g: &mut GradientContext<'_>) -> Result<()> {
    let attr = g.node().attrs.to_proto();
    let function = pb::NameAttrList { name: g.node().op.name.clone(), attr };
    if let Some(defined) = defined_gradient(g, &function.name) {
        return call_defined(g, &defined, &function);
    }
    let body = body_of(g.scope(), &function)?;
    recomputed(g, body, &function.name)
}

/// Gradient of `SymbolicGradient`, for second derivatives.
pub(crate) fn symbolic_gradient(g: &mut GradientContext<'_>) -> Result<()> {
    let function = (**g.attrs().function("f")?).clone();
    let (name, attrs) = (&function.name, Attrs::from_proto(&function.attr));
    let body = g.scope().with_graph(|graph| instantiate_gradient(name, &attrs, graph))?;
    recomputed(g, body, &format!("gradient_of_{name}"))
}

fn recomputed(g: &mut GradientContext<'_>, body: FunctionBody, name: &str) -> Result<()> {
    let given = given_adjoints(g)?;
    let types = types_of(g, &given);
    let back = Backward::new(g.scope(), body, &types)?;
    let args = [back.function_args(&back.args), back.function_args(&back.dys)].concat();
    let inputs: Vec<Output> = g.inputs().iter().chain(given.values()).copied().collect();
    run_backward(g, &back, &back.subgraph_from(0), name, &args, &inputs)
}

/// Gradient of `If`, `Case` and their stateless forms.
pub(crate) fn branch(g: &mut GradientContext<'_>) -> Result<()> {
    let (functions, is_case) = branches_of(g)?;
    let given = given_adjoints(g)?;
    let types = types_of(g, &given);
    let (backs, wanted) = branch_gradients(g, &functions, &types)?;
    if wanted.is_empty() {
        return Ok(());
    }
    let (forwards, gradients): (Vec<Subgraph>, Vec<Subgraph>) =
        backs.iter().map(Backward::split).unzip();
    let captures: Vec<Vec<Output>> =
        backs.iter().zip(&gradients).map(|(back, subgraph)| back.captures(subgraph)).collect();
    let inside = |b: usize, t: &&Output| backs[b].position(**t).is_none();
    // For each branch, the values that its gradient reads; the other branches output dummies in
    // their place.
    let values: Vec<Vec<FunctionArg>> = captures
        .iter()
        .enumerate()
        .map(|(b, c)| {
            c.iter().filter(|t| inside(b, t)).map(|&t| backs[b].function_arg(t)).collect()
        })
        .collect();
    let seen_by = |b: usize| -> Vec<FunctionArg> {
        let function_args = values.iter().enumerate();
        function_args
            .flat_map(|(v, s)| s.iter().map(move |s| if v == b { s.clone() } else { s.unbound() }))
            .collect()
    };
    let args: BTreeSet<usize> = backs
        .iter()
        .zip(&captures)
        .flat_map(|(b, c)| c.iter().filter_map(|&t| b.position(t)))
        .collect();

    let mut forward = Vec::with_capacity(functions.len());
    let mut backward = Vec::with_capacity(functions.len());
    for (b, (back, function)) in backs.iter().zip(&functions).enumerate() {
        let more = seen_by(b);
        forward.push(adopt(g, back, &function.name, back.forward(&forwards[b], &more)?)?);
        let outer: Vec<Output> = args.iter().map(|&i| back.args[i]).collect();
        let all = [back.function_args(&back.dys), back.function_args(&outer), more].concat();
        let dxs: Vec<Output> = back.dxs.values().copied().collect();
        let def = back.function(&gradients[b], &all, &back.function_args(&dxs))?;
        backward.push(adopt(g, back, &format!("gradient_of_{}", function.name), def)?);
    }
    let more: Vec<FunctionArg> = values.concat();
    let mut extended = Vec::new();
    if !more.is_empty() {
        let (dtypes, shapes) = extended_signature(g, &more);
        let mut attrs = branch_attrs(forward, is_case)?;
        attrs.extend([("Tout", dtypes), ("output_shapes", shapes)]);
        extended = extend_node(g, &[], &more, attrs);
    }
    let is_stateful = gradients.iter().any(Subgraph::is_stateful);
    let outer = args.iter().map(|&i| g.input(i + 1));
    let inputs: Vec<Output> = given.values().copied().chain(outer).chain(extended).collect();
    let outputs = run_backward_branch(g, &inputs, &wanted, backward, (is_case, is_stateful))?;
    for (&i, output) in wanted.keys().zip(outputs) {
        g.set(i + 1, output)?;
    }
    Ok(())
}

/// The gradient of each branch, and the positions and types of the arguments that have an adjoint.
/// An argument with an adjoint in one branch has one in all branches.
fn branch_gradients(
    g: &mut GradientContext<'_>,
    functions: &[pb::NameAttrList],
    types: &BTreeMap<usize, DType>,
) -> Result<(Vec<Backward>, BTreeMap<usize, DType>)> {
    let mut backs = Vec::with_capacity(functions.len());
    for function in functions {
        let body = body_of(g.scope(), function)?;
        backs.push(Backward::new(g.scope(), body, types)?);
    }
    let mut wanted: BTreeMap<usize, DType> = BTreeMap::new();
    for back in &backs {
        wanted.extend(back.dxs.iter().map(|(&i, &dx)| (i, back.info(dx).dtype)));
    }
    for back in &mut backs {
        for (&i, &dtype) in &wanted {
            back.ensure_adjoint(i, dtype)?;
        }
    }
    Ok((backs, wanted))
}

/// Adds the `If` or `Case` of the branches' gradients, with the selector of the differentiated
/// node.
fn run_backward_branch(
    g: &mut GradientContext<'_>,
    inputs: &[Output],
    wanted: &BTreeMap<usize, DType>,
    functions: Vec<AttrValue>,
    (is_case, is_stateful): (bool, bool),
) -> Result<Vec<Output>> {
    let op = match (is_case, is_stateful) {
        (false, false) => "StatelessIf",
        (false, true) => "If",
        (true, false) => "StatelessCase",
        (true, true) => "Case",
    };
    let selector = g.input(0);
    let dtypes: Vec<DType> = wanted.values().copied().collect();
    let mut node = g.op(op).input(selector).inputs(inputs);
    for (name, value) in branch_attrs(functions, is_case)? {
        node = node.attr(name, value);
    }
    node.attr("Tout", &dtypes[..]).build_all()
}

fn branches_of(g: &GradientContext<'_>) -> Result<(Vec<pb::NameAttrList>, bool)> {
    let attrs = g.attrs();
    if g.node().role() == Role::Case {
        return Ok((attrs.functions("branches")?.to_vec(), true));
    }
    let branch = |name: &str| attrs.function(name).map(|f| (**f).clone());
    Ok((vec![branch("then_branch")?, branch("else_branch")?], false))
}

fn branch_attrs(
    functions: Vec<AttrValue>,
    is_case: bool,
) -> Result<Vec<(&'static str, AttrValue)>> {
    if is_case {
        let list = AttrValue::list_of(crate::AttrKind::Func, &functions)?;
        return Ok(vec![("branches", list)]);
    }
    Ok(["then_branch", "else_branch"].into_iter().zip(functions).collect())
}

/// An empty tensor list for elements of this type and shape.
pub(crate) fn empty_list(scope: &mut Scope, dtype: DType, shape: &PartialShape) -> Result<Output> {
    let shape = shape_constant(scope, shape)?;
    let any = scope.constant(&Tensor::scalar(-1i32))?;
    scope.op("EmptyTensorList").inputs(&[shape, any]).attr("element_dtype", dtype).build()
}

/// A shape in the form of tensor list ops: unknown dimensions are -1.
pub(crate) fn shape_constant(scope: &mut Scope, shape: &PartialShape) -> Result<Output> {
    let size = |d: &Option<usize>| d.and_then(|d| i32::try_from(d).ok()).unwrap_or(-1);
    match shape.dims() {
        Some(dims) => {
            let sizes: Vec<i32> = dims.iter().map(size).collect();
            scope.constant(&Tensor::vector(&sizes)?)
        }
        None => scope.constant(&Tensor::scalar(-1i32)),
    }
}
