//! Gradients of loops.
//!
//! The loop is extended by an iteration counter and, for each intermediate value that its gradient
//! reads, by a tensor list to which each iteration pushes the value. The gradient is a loop over
//! the same number of iterations that pops them.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use thalweg_proto as pb;
use thalweg_tensor::{DType, PartialShape, Result, Tensor, ensure, err};

use crate::functional_gradient::{
    Backward, adopt, body_of, empty_list, extend_node, extended_signature, given_adjoints,
    shape_constant, types_of, zeros,
};
use crate::subgraph::{FunctionArg, Subgraph};
use crate::{
    AttrValue, Attrs, GradientContext, GradientOptions, Graph, Output, Role, connected_gradients,
};

/// Gradient of `While` and `StatelessWhile`.
pub(crate) fn while_loop(g: &mut GradientContext<'_>) -> Result<()> {
    let function = (**g.attrs().function("body")?).clone();
    let cond = (**g.attrs().function("cond")?).clone();
    let given = given_adjoints(g)?;
    let mut types = types_of(g, &given);
    // A loop variable's adjoint at the beginning of an iteration is its adjoint at the end of the
    // previous one.
    let mut back = loop {
        let body = body_of(g.scope(), &function)?;
        let back = Backward::new(g.scope(), body, &types)?;
        let known = types.len();
        for (&i, &dx) in &back.dxs {
            types.entry(i).or_insert_with(|| back.info(dx).dtype);
        }
        if types.len() == known {
            break back;
        }
    };
    ensure!(
        back.args.len() == g.num_inputs() && back.results.len() == g.num_inputs(),
        InvalidArgument,
        "the body has {} arguments and {} results for {} variables",
        back.args.len(),
        back.results.len(),
        g.num_inputs()
    );
    for (k, &i) in types.keys().enumerate() {
        // The body overwrites this variable without reading it.
        if !back.dxs.contains_key(&i) {
            let zeros = back.scope.add("ZerosLike", &[back.dys[k]])?;
            back.dxs.insert(i, zeros);
        }
    }
    let mut body = DifferentiatedBody::new(back);
    let (count, lists) = body.forward(g, &function, &cond)?;
    body.backward(g, &function, &types, &given, count, &lists)
}

/// Gradient of `For`. The node cannot be extended, so the gradient recomputes the loop as a `While`
/// and differentiates that.
pub(crate) fn for_loop(g: &mut GradientContext<'_>) -> Result<()> {
    let function = (**g.attrs().function("body")?).clone();
    let is_stateful = |graph: &Graph| {
        let known = graph.library().get(&function.name);
        known.and_then(|f| f.signature.as_ref()).is_some_and(|s| s.is_stateful)
    };
    ensure!(
        !g.scope().with_graph(is_stateful),
        Unimplemented,
        "the gradient of a For runs its body again, and '{}' has effects",
        function.name
    );
    let given = given_adjoints(g)?;
    // Backpropagation stops at these, even if the inputs depend on each other.
    let inputs = g.inputs()[3..].to_vec();
    let scope = g.scope();
    let xs = inputs.iter().map(|&x| scope.add("Identity", &[x])).collect::<Result<Vec<_>>>()?;
    let ends = for_as_while(g, &function, &xs)?;
    let ys: Vec<Output> = given.keys().map(|&i| ends[i]).collect();
    let grad_ys: Vec<Option<Output>> = given.values().copied().map(Some).collect();
    let options = GradientOptions { grad_ys: &grad_ys, ..Default::default() };
    let adjoints = connected_gradients(g.scope(), &ys, &xs, &options)?;
    for (i, adjoint) in adjoints.into_iter().enumerate() {
        if let Some(adjoint) = adjoint {
            let adjoint = adjoint.to_dense(g.scope())?;
            g.set(i + 3, adjoint)?;
        }
    }
    Ok(())
}

/// The results of a `For` with the initial values `xs`, computed by a `While`.
fn for_as_while(
    g: &mut GradientContext<'_>,
    body: &pb::NameAttrList,
    xs: &[Output],
) -> Result<Vec<Output>> {
    let dtypes: Vec<DType> = xs.iter().map(|&x| g.dtype(x)).collect();
    let (start, limit, delta) = (g.input(0), g.input(1), g.input(2));
    let s = g.scope();
    // In 64 bits: the number after the last may overflow 32 bits.
    let [start, limit, delta] = [start, limit, delta].map(|x| s.cast(x, DType::Int64));
    let (start, limit, delta) = (start?, limit?, delta?);
    let zero = s.constant(&Tensor::scalar(0i64))?;
    let one = s.constant(&Tensor::scalar(1i64))?;
    // With a delta of zero the loop has no iterations; 1 avoids a division by zero.
    let is_zero = s.op("Equal").inputs(&[delta, zero]).build()?;
    let is_zero = s.cast(is_zero, DType::Int64)?;
    let step = s.add("AddV2", &[delta, is_zero])?;
    let sign = s.add("Sign", &[step])?;
    let span = s.add("Sub", &[limit, start])?;
    let beyond = s.add("AddV2", &[span, step])?;
    let beyond = s.add("Sub", &[beyond, sign])?;
    let count = s.add("FloorDiv", &[beyond, step])?;
    let name = AttrValue::function(&body.name, &Attrs::from_proto(&body.attr));
    let variables: Vec<Output> = std::iter::once(zero).chain(xs.iter().copied()).collect();
    let ends = s.while_loop(
        &variables,
        |s, vars| s.add("Less", &[vars[0], count]),
        |s, vars| {
            let gone = s.add("Mul", &[vars[0], step])?;
            let number = s.add("AddV2", &[start, gone])?;
            let number = s.cast(number, DType::Int32)?;
            let call = s.op("PartitionedCall").input(number).inputs(&vars[1..]);
            let results = call.attr("f", name.clone()).attr("Tout", &dtypes[..]).build_all()?;
            let next = s.add("AddV2", &[vars[0], one])?;
            Ok(std::iter::once(next).chain(results).collect())
        },
    )?;
    Ok(ends[1..].to_vec())
}

/// The body of a loop and its gradient.
struct DifferentiatedBody {
    back: Backward,
    body: Subgraph,
    gradient: Subgraph,
    /// Loop invariants that the gradient reads.
    fixed: Vec<Output>,
    /// Values of each iteration that the gradient reads, saved in lists.
    saved: Vec<Output>,
}

impl DifferentiatedBody {
    fn new(back: Backward) -> DifferentiatedBody {
        let (body, gradient) = back.split();
        let captures = back.captures(&gradient);
        let is_fixed = |t: &Output| {
            let same = |i: usize| back.scope.with_graph(|g| origin(g, back.results[i])) == *t;
            back.position(*t).is_some_and(same)
        };
        let (fixed, saved) = captures.into_iter().partition(is_fixed);
        DifferentiatedBody { back, body, gradient, fixed, saved }
    }

    /// Extends the loop by the counter and the lists; returns their final values.
    fn forward(
        &mut self,
        g: &mut GradientContext<'_>,
        function: &pb::NameAttrList,
        cond: &pb::NameAttrList,
    ) -> Result<(Output, Vec<Output>)> {
        let back = &mut self.back;
        let begin = back.len();
        let count = back.arg("count", DType::Int32, &PartialShape::scalar())?;
        let one = back.scope.constant(&Tensor::scalar(1i32))?;
        let mut args = vec![count];
        let mut results = vec![back.scope.add("AddV2", &[count, one])?];
        let zero = g.scope().constant(&Tensor::scalar(0i32))?;
        let mut inputs = vec![zero];
        for &value in &self.saved {
            let info = back.info(value);
            let list = back.arg("list", DType::Variant, &PartialShape::scalar())?;
            args.push(list);
            results.push(back.scope.add("TensorListPushBack", &[list, value])?);
            inputs.push(empty_list(g.scope(), info.dtype, &info.shape)?);
        }
        let mut subgraph = self.body.clone();
        subgraph.append(back.subgraph_from(begin));
        let more = back.function_args(&results);
        let all_args = [back.function_args(&back.args), back.function_args(&args)].concat();
        let all_results = [back.function_args(&back.results), more.clone()].concat();
        let body = back.function(&subgraph, &all_args, &all_results)?;
        let body = adopt(g, back, &function.name, body)?;
        let cond = self.extended_condition(g, cond, &more)?;
        let (dtypes, shapes) = extended_signature(g, &more);
        let mut attrs = vec![("body", body), ("cond", cond), ("T", dtypes)];
        if g.node().op.attr("output_shapes").is_some() {
            attrs.push(("output_shapes", shapes));
        }
        let outputs = extend_node(g, &inputs, &more, attrs);
        Ok((outputs[0], outputs[1..].to_vec()))
    }

    /// The condition with additional, unused arguments.
    fn extended_condition(
        &self,
        g: &mut GradientContext<'_>,
        cond: &pb::NameAttrList,
        more: &[FunctionArg],
    ) -> Result<AttrValue> {
        let body = body_of(g.scope(), cond)?;
        let function_arg = |&t: &Output| FunctionArg::of(&body.graph, t);
        let mut args: Vec<FunctionArg> = body.arg_tensors().iter().map(function_arg).collect();
        args.extend(more.iter().map(FunctionArg::unbound));
        let subgraph = Subgraph::of(&body.graph, body.graph.ids());
        let results: Vec<FunctionArg> = body.result_tensors().iter().map(function_arg).collect();
        let def = subgraph.to_function(&body.graph, &args, &results)?;
        adopt(g, &self.back, &cond.name, def)
    }

    /// Adds the loop that runs the gradient of each iteration, in reverse order.
    fn backward(
        &mut self,
        g: &mut GradientContext<'_>,
        function: &pb::NameAttrList,
        types: &BTreeMap<usize, DType>,
        given: &BTreeMap<usize, Output>,
        count: Output,
        lists: &[Output],
    ) -> Result<()> {
        let back = &mut self.back;
        let begin = back.len();
        let counter = back.arg("left", DType::Int32, &PartialShape::scalar())?;
        let one = back.scope.constant(&Tensor::scalar(1i32))?;
        let fewer = back.scope.add("Sub", &[counter, one])?;
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let mut popped = FxHashMap::default();
        for &value in &self.saved {
            let info = back.info(value);
            let list = back.arg("list", DType::Variant, &PartialShape::scalar())?;
            let shape = shape_constant(&mut back.scope, &info.shape)?;
            let pop = back.scope.op("TensorListPopBack").inputs(&[list, shape]);
            let pop = pop.attr("element_dtype", info.dtype).build_all()?;
            before.push(list);
            after.push(pop[0]);
            popped.insert(value, pop[1]);
        }
        let mut subgraph = self.gradient.clone();
        subgraph.replace_inputs(&popped);
        subgraph.append(back.subgraph_from(begin));
        let dxs: Vec<Output> =
            back.dxs.values().map(|dx| popped.get(dx).copied().unwrap_or(*dx)).collect();
        let args = [vec![counter], back.dys.clone(), before, self.fixed.clone()].concat();
        let results = [vec![fewer], dxs, after, self.fixed.clone()].concat();
        let (args, results) = (back.function_args(&args), back.function_args(&results));
        let def = back.function(&subgraph, &args, &results)?;
        let body = adopt(g, back, &format!("gradient_of_{}", function.name), def)?;
        let cond = self.countdown(g, &args)?;

        let mut inputs = vec![count];
        inputs.extend(initial_adjoints(g, types, given)?);
        inputs.extend_from_slice(lists);
        let fixed = self.fixed.iter().filter_map(|&t| self.back.position(t));
        inputs.extend(fixed.map(|i| g.input(i)));
        // An adjoint may have different shapes after the loop and between iterations.
        let unknown = |i: usize| (1..=types.len()).contains(&i);
        let shapes: Vec<PartialShape> = args
            .iter()
            .enumerate()
            .map(|(i, a)| if unknown(i) { PartialShape::unknown() } else { a.shape.clone() })
            .collect();
        let op = if subgraph.is_stateful() { "While" } else { "StatelessWhile" };
        let parallel = g.attrs().int("parallel_iterations").ok();
        let node = g.op(op).inputs(&inputs).attr("cond", cond).attr("body", body);
        let mut node = node.attr("output_shapes", &shapes[..]);
        if let Some(parallel) = parallel {
            node = node.attr("parallel_iterations", parallel);
        }
        let outputs = node.build_all()?;
        for (&i, &output) in types.keys().zip(&outputs[1..]) {
            g.set(i, output)?;
        }
        Ok(())
    }

    /// The condition of the gradient's loop: the first argument, the counter, is positive.
    fn countdown(
        &mut self,
        g: &mut GradientContext<'_>,
        args: &[FunctionArg],
    ) -> Result<AttrValue> {
        let back = &mut self.back;
        let begin = back.len();
        let zero = back.scope.constant(&Tensor::scalar(0i32))?;
        let counter = args[0].tensor.ok_or_else(|| err!(Internal, "the loop has no counter"))?;
        let goes_on = back.scope.add("Greater", &[counter, zero])?;
        let mut function_args: Vec<FunctionArg> = args.iter().map(FunctionArg::unbound).collect();
        function_args[0] = args[0].clone();
        let subgraph = back.subgraph_from(begin);
        let def = back.function(&subgraph, &function_args, &[back.function_arg(goes_on)])?;
        adopt(g, &self.back, "countdown", def)
    }
}

/// The adjoints of the loop's outputs that have the types `types`: those that are given, else zeros.
fn initial_adjoints(
    g: &mut GradientContext<'_>,
    types: &BTreeMap<usize, DType>,
    given: &BTreeMap<usize, Output>,
) -> Result<Vec<Output>> {
    let mut adjoints = Vec::with_capacity(types.len());
    for (&i, &dtype) in types {
        adjoints.push(match given.get(&i) {
            Some(&adjoint) => adjoint,
            None => {
                let output = g.output(i);
                zeros(g.scope(), output, dtype)?
            }
        });
    }
    Ok(adjoints)
}

/// The source of a tensor, skipping `Identity` nodes.
fn origin(graph: &Graph, mut tensor: Output) -> Output {
    // A chain is at most as long as the graph, since it has no cycle outside of frames.
    for _ in 0..graph.len() {
        let node = graph.node(tensor.node);
        if node.role() != Role::Identity {
            break;
        }
        tensor = node.inputs[0];
    }
    tensor
}
