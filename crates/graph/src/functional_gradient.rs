//! Gradients through calls, branches and loops.
//!
//! The gradient of a function is built beside a copy of its nodes. What it reads of them must come
//! from the forward pass, so the node that ran the function gets further outputs: it grows, its
//! other outputs stay what they were. Loops are in `loop_gradient`.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_proto as pb;
use thalweg_tensor::{DType, PartialShape, Result, Tensor, err};

use crate::piece::{Piece, Slot, add_function};
use crate::{
    AttrValue, Attrs, Endpoint, FunctionBody, GradientContext, GradientOptions, Graph, IntoAttr,
    NodeId, Output, OutputInfo, Role, Scope, connected_gradients, instantiate_gradient, reachable,
};

/// A function beside its gradient.
pub(crate) struct Backward {
    /// Over the function's nodes, then those of its gradient.
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
    /// The gradient by way of the results that have an adjoint: their positions, and the types of
    /// the adjoints.
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

    pub(crate) fn slot(&self, tensor: Output) -> Slot {
        self.scope.with_graph(|g| Slot::of(g, tensor))
    }

    pub(crate) fn slots(&self, tensors: &[Output]) -> Vec<Slot> {
        tensors.iter().map(|&t| self.slot(t)).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.scope.with_graph(Graph::len)
    }

    /// A further argument. Its number is of no meaning: functions are written from slots.
    pub(crate) fn arg(&mut self, name: &str, dtype: DType, shape: &PartialShape) -> Result<Output> {
        let node = self.scope.op("_Arg").name(name).attr("T", dtype).attr("index", 0i64);
        node.attr("_output_shapes", &[shape.clone()][..]).build()
    }

    /// Nodes from a position on.
    pub(crate) fn piece_from(&self, first: usize) -> Piece {
        self.scope.with_graph(|g| Piece::of(g, g.ids().skip(first)))
    }

    /// The function's nodes, and what those that grew got besides; then the gradient's.
    pub(crate) fn split(&self) -> (Piece, Piece) {
        self.scope.with_graph(|graph| {
            let function = graph.ids().take(self.first);
            let is_forward = reachable(graph.len(), function, |id, stack| {
                stack.extend(graph.node(id).inputs.iter().map(|e| e.node));
            });
            let (forward, gradient): (Vec<NodeId>, Vec<NodeId>) =
                graph.ids().partition(|id| is_forward[id.index()]);
            (Piece::of(graph, forward), Piece::of(graph, gradient))
        })
    }

    /// What the gradient reads of the function.
    pub(crate) fn captures(&self, gradient: &Piece) -> Vec<Output> {
        let results: Vec<Output> = self.dxs.values().copied().collect();
        self.scope.with_graph(|g| gradient.captures(g, &self.dys, &results))
    }

    pub(crate) fn position(&self, tensor: Output) -> Option<usize> {
        self.args.iter().position(|&arg| arg == tensor)
    }

    pub(crate) fn function(
        &self,
        piece: &Piece,
        args: &[Slot],
        results: &[Slot],
    ) -> Result<pb::FunctionDef> {
        self.scope.with_graph(|g| piece.to_function(g, args, results))
    }

    /// The function with further results.
    fn forward(&self, piece: &Piece, more: &[Slot]) -> Result<pb::FunctionDef> {
        let mut results = self.slots(&self.results);
        results.extend_from_slice(more);
        self.function(piece, &self.slots(&self.args), &results)
    }

    /// Zeros for an argument that this function does not depend on.
    fn ensure_adjoint(&mut self, i: usize, dtype: DType) -> Result<()> {
        if !self.dxs.contains_key(&i) {
            let zeros = zeros(&mut self.scope, self.args[i], dtype)?;
            self.dxs.insert(i, zeros);
        }
        Ok(())
    }
}

/// Zeros for the adjoint of `of`, which are of its type unless it is the handle of a variable.
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

/// Adjoints of the outputs that have one.
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

/// Takes over the functions that building a gradient made, and adds one more.
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

/// Gives the differentiated node further inputs and outputs, and other functions.
pub(crate) fn grow(
    g: &mut GradientContext<'_>,
    inputs: &[Output],
    outputs: &[Slot],
    attrs: Vec<(&str, AttrValue)>,
) -> Vec<Output> {
    let (node, old) = (g.id(), g.num_outputs() as u32);
    g.scope().with_graph_mut(|graph| {
        let grown = graph.node_mut(node);
        // Others may have made it grow since the gradient began; what they added is in the middle.
        debug_assert_eq!(grown.outputs.len(), old as usize);
        grown.inputs.extend_from_slice(inputs);
        grown.outputs.extend(outputs.iter().map(|slot| OutputInfo {
            dtype: slot.dtype,
            is_ref: false,
            shape: slot.shape.clone(),
        }));
        for (name, value) in attrs {
            grown.attrs.set(name, value);
        }
    });
    (0..outputs.len() as u32).map(|i| Endpoint { node, index: old + i }).collect()
}

/// Types and shapes of the node's outputs and of those it is to have besides.
pub(crate) fn grown_signature(g: &GradientContext<'_>, more: &[Slot]) -> (AttrValue, AttrValue) {
    let own = g.node().outputs.iter().map(|o| (o.dtype, o.shape.clone()));
    let (dtypes, shapes): (Vec<DType>, Vec<PartialShape>) =
        own.chain(more.iter().map(|s| (s.dtype, s.shape.clone()))).unzip();
    ((&dtypes[..]).into_attr(), (&shapes[..]).into_attr())
}

/// `PartitionedCall` and `StatefulPartitionedCall`.
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
    let mut grown = Vec::new();
    if !values.is_empty() {
        let more = back.slots(&values);
        let forward = adopt(g, &back, &function.name, back.forward(&forward, &more)?)?;
        let (dtypes, _) = grown_signature(g, &more);
        grown = grow(g, &[], &more, vec![("f", forward), ("Tout", dtypes)]);
    }
    let mut inputs: Vec<Output> = given.values().copied().collect();
    let mut next = grown.into_iter();
    for &capture in &captures {
        let from_outside = back.position(capture).map(|i| g.input(i));
        inputs.extend(from_outside.or_else(|| next.next()));
    }
    let args = [back.slots(&back.dys), back.slots(&captures)].concat();
    run_backward(g, &back, &gradient, &function.name, &args, &inputs)
}

/// Adds the call that computes the adjoints of a node's inputs.
fn run_backward(
    g: &mut GradientContext<'_>,
    back: &Backward,
    piece: &Piece,
    name: &str,
    args: &[Slot],
    inputs: &[Output],
) -> Result<()> {
    let dxs: Vec<Output> = back.dxs.values().copied().collect();
    if dxs.is_empty() {
        return Ok(());
    }
    let results = back.slots(&dxs);
    let def = back.function(piece, args, &results)?;
    let function = adopt(g, back, &format!("gradient_of_{name}"), def)?;
    let op = if piece.is_stateful() { "StatefulPartitionedCall" } else { "PartitionedCall" };
    let dtypes: Vec<DType> = results.iter().map(|r| r.dtype).collect();
    let in_types: Vec<DType> = args.iter().map(|a| a.dtype).collect();
    let node = g.op(op).inputs(inputs).attr("Tin", &in_types[..]).attr("Tout", &dtypes[..]);
    let outputs = node.attr("f", function).build_all()?;
    for (&i, output) in back.dxs.keys().zip(outputs) {
        g.set(i, output)?;
    }
    Ok(())
}

/// The gradient that a client defined for a function.
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

/// A node whose op is the name of a function. It cannot grow, so its gradient computes the function
/// once more, as TensorFlow's does.
pub(crate) fn direct_call(g: &mut GradientContext<'_>) -> Result<()> {
    let attr = g.node().attrs.to_proto();
    let function = pb::NameAttrList { name: g.node().op.name.clone(), attr };
    if let Some(defined) = defined_gradient(g, &function.name) {
        return call_defined(g, &defined, &function);
    }
    let body = body_of(g.scope(), &function)?;
    recomputed(g, body, &function.name)
}

/// `SymbolicGradient`, for second derivatives.
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
    let args = [back.slots(&back.args), back.slots(&back.dys)].concat();
    let inputs: Vec<Output> = g.inputs().iter().chain(given.values()).copied().collect();
    run_backward(g, &back, &back.piece_from(0), name, &args, &inputs)
}

/// `If`, `Case` and their stateless forms.
pub(crate) fn branch(g: &mut GradientContext<'_>) -> Result<()> {
    let (functions, is_case) = branches_of(g)?;
    let given = given_adjoints(g)?;
    let types = types_of(g, &given);
    let mut backs = Vec::with_capacity(functions.len());
    for function in &functions {
        let body = body_of(g.scope(), function)?;
        backs.push(Backward::new(g.scope(), body, &types)?);
    }
    // What has an adjoint in one branch has one in all.
    let mut wanted: BTreeMap<usize, DType> = BTreeMap::new();
    for back in &backs {
        wanted.extend(back.dxs.iter().map(|(&i, &dx)| (i, back.info(dx).dtype)));
    }
    if wanted.is_empty() {
        return Ok(());
    }
    for back in &mut backs {
        for (&i, &dtype) in &wanted {
            back.ensure_adjoint(i, dtype)?;
        }
    }
    let (forwards, gradients): (Vec<Piece>, Vec<Piece>) = backs.iter().map(Backward::split).unzip();
    let captures: Vec<Vec<Output>> =
        backs.iter().zip(&gradients).map(|(back, piece)| back.captures(piece)).collect();
    let inside = |b: usize, t: &&Output| backs[b].position(**t).is_none();
    // By branch, the values that its gradient reads; the other branches have nothing of the kind.
    let values: Vec<Vec<Slot>> = captures
        .iter()
        .enumerate()
        .map(|(b, c)| c.iter().filter(|t| inside(b, t)).map(|&t| backs[b].slot(t)).collect())
        .collect();
    let seen_by = |b: usize| -> Vec<Slot> {
        let slots = values.iter().enumerate();
        slots
            .flat_map(|(v, s)| s.iter().map(move |s| if v == b { s.clone() } else { s.foreign() }))
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
        let all = [back.slots(&back.dys), back.slots(&outer), more].concat();
        let dxs: Vec<Output> = back.dxs.values().copied().collect();
        let def = back.function(&gradients[b], &all, &back.slots(&dxs))?;
        backward.push(adopt(g, back, &format!("gradient_of_{}", function.name), def)?);
    }
    let more: Vec<Slot> = values.concat();
    let mut grown = Vec::new();
    if !more.is_empty() {
        let (dtypes, shapes) = grown_signature(g, &more);
        let mut attrs = branch_attrs(forward, is_case)?;
        attrs.extend([("Tout", dtypes), ("output_shapes", shapes)]);
        grown = grow(g, &[], &more, attrs);
    }
    let is_stateful = gradients.iter().any(Piece::is_stateful);
    let op = match (is_case, is_stateful) {
        (false, false) => "StatelessIf",
        (false, true) => "If",
        (true, false) => "StatelessCase",
        (true, true) => "Case",
    };
    let outer: Vec<Output> = args.iter().map(|&i| g.input(i + 1)).collect();
    let selector = g.input(0);
    let dtypes: Vec<DType> = wanted.values().copied().collect();
    let mut node = g.op(op).input(selector);
    for inputs in [&given.values().copied().collect::<Vec<_>>(), &outer, &grown] {
        node = node.inputs(inputs);
    }
    for (name, value) in branch_attrs(backward, is_case)? {
        node = node.attr(name, value);
    }
    let outputs = node.attr("Tout", &dtypes[..]).build_all()?;
    for (&i, output) in wanted.keys().zip(outputs) {
        g.set(i + 1, output)?;
    }
    Ok(())
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

/// A list for elements of this type and shape.
pub(crate) fn empty_list(scope: &mut Scope, dtype: DType, shape: &PartialShape) -> Result<Output> {
    let shape = shape_constant(scope, shape)?;
    let any = scope.constant(&Tensor::scalar(-1i32))?;
    scope.op("EmptyTensorList").inputs(&[shape, any]).attr("element_dtype", dtype).build()
}

/// A shape as list ops take it: -1 for what is unknown.
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
