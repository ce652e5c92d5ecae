//! Gradients of loops.
//!
//! The loop counts its iterations and keeps a list for each value that its gradient reads, with an
//! element per iteration. The gradient is a loop that takes them off again, the last one first.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use thalweg_proto as pb;
use thalweg_tensor::{DType, PartialShape, Result, Tensor, ensure, err};

use crate::functional_gradient::{
    Backward, adopt, body_of, empty_list, given_adjoints, grow, grown_signature, shape_constant,
    types_of, zeros,
};
use crate::piece::{Piece, Slot};
use crate::{
    AttrValue, Attrs, GradientContext, GradientOptions, Graph, Output, Role, connected_gradients,
};

/// `While` and `StatelessWhile`.
pub(crate) fn while_loop(g: &mut GradientContext<'_>) -> Result<()> {
    let function = (**g.attrs().function("body")?).clone();
    let cond = (**g.attrs().function("cond")?).clone();
    let given = given_adjoints(g)?;
    let mut types = types_of(g, &given);
    // What one iteration hands an adjoint on to, the one before it takes an adjoint from.
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
        // A variable that the body makes anew owes nothing to its old value.
        if !back.dxs.contains_key(&i) {
            let zeros = back.scope.add("ZerosLike", &[back.dys[k]])?;
            back.dxs.insert(i, zeros);
        }
    }
    let mut lap = Lap::new(back);
    let (count, lists) = lap.forward(g, &function, &cond)?;
    lap.backward(g, &function, &types, &given, count, &lists)
}

/// `For`. It keeps nothing of its iterations, so its gradient runs them once more, as a `While` does.
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
    // Adjoints go no further back than to these, however the inputs depend on each other.
    let inputs = g.inputs()[3..].to_vec();
    let scope = g.scope();
    let xs = inputs.iter().map(|&x| scope.add("Identity", &[x])).collect::<Result<Vec<_>>>()?;
    let ends = counted_again(g, &function, &xs)?;
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

/// What a `For` gives for these variables, by way of a `While`.
fn counted_again(
    g: &mut GradientContext<'_>,
    body: &pb::NameAttrList,
    xs: &[Output],
) -> Result<Vec<Output>> {
    let dtypes: Vec<DType> = xs.iter().map(|&x| g.dtype(x)).collect();
    let (start, limit, delta) = (g.input(0), g.input(1), g.input(2));
    let s = g.scope();
    // 64 bits, as the number after the last may be none of 32.
    let [start, limit, delta] = [start, limit, delta].map(|x| s.cast(x, DType::Int64));
    let (start, limit, delta) = (start?, limit?, delta?);
    let zero = s.constant(&Tensor::scalar(0i64))?;
    let one = s.constant(&Tensor::scalar(1i64))?;
    // A step of zero goes with a loop that does nothing.
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

/// One iteration beside its gradient.
struct Lap {
    back: Backward,
    body: Piece,
    gradient: Piece,
    /// Arguments that stay as they are for the whole loop, and that the gradient reads.
    fixed: Vec<Output>,
    /// Values of each iteration that the gradient reads.
    saved: Vec<Output>,
}

impl Lap {
    fn new(back: Backward) -> Lap {
        let (body, gradient) = back.split();
        let captures = back.captures(&gradient);
        let is_fixed = |t: &Output| {
            let same = |i: usize| back.scope.with_graph(|g| origin(g, back.results[i])) == *t;
            back.position(*t).is_some_and(same)
        };
        let (fixed, saved) = captures.into_iter().partition(is_fixed);
        Lap { back, body, gradient, fixed, saved }
    }

    /// Makes the loop count its iterations and keep what its gradient reads; the count and the
    /// lists it ends with.
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
        let mut piece = self.body.clone();
        piece.append(back.piece_from(begin));
        let more = back.slots(&results);
        let all_args = [back.slots(&back.args), back.slots(&args)].concat();
        let all_results = [back.slots(&back.results), more.clone()].concat();
        let body = back.function(&piece, &all_args, &all_results)?;
        let body = adopt(g, back, &function.name, body)?;
        let cond = self.wider_condition(g, cond, &more)?;
        let (dtypes, shapes) = grown_signature(g, &more);
        let mut attrs = vec![("body", body), ("cond", cond), ("T", dtypes)];
        if g.node().op.attr("output_shapes").is_some() {
            attrs.push(("output_shapes", shapes));
        }
        let outputs = grow(g, &inputs, &more, attrs);
        Ok((outputs[0], outputs[1..].to_vec()))
    }

    /// The condition, with arguments that it does not look at.
    fn wider_condition(
        &self,
        g: &mut GradientContext<'_>,
        cond: &pb::NameAttrList,
        more: &[Slot],
    ) -> Result<AttrValue> {
        let body = body_of(g.scope(), cond)?;
        let slot = |&t: &Output| Slot::of(&body.graph, t);
        let mut args: Vec<Slot> = body.arg_tensors().iter().map(slot).collect();
        args.extend(more.iter().map(Slot::foreign));
        let piece = Piece::of(&body.graph, body.graph.ids());
        let results: Vec<Slot> = body.result_tensors().iter().map(slot).collect();
        let def = piece.to_function(&body.graph, &args, &results)?;
        adopt(g, &self.back, &cond.name, def)
    }

    /// Adds the loop that runs the gradient of each iteration, the last one first.
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
        let mut piece = self.gradient.clone();
        piece.replace_inputs(&popped);
        piece.append(back.piece_from(begin));
        let dxs: Vec<Output> =
            back.dxs.values().map(|dx| popped.get(dx).copied().unwrap_or(*dx)).collect();
        let args = [vec![counter], back.dys.clone(), before, self.fixed.clone()].concat();
        let results = [vec![fewer], dxs, after, self.fixed.clone()].concat();
        let (args, results) = (back.slots(&args), back.slots(&results));
        let def = back.function(&piece, &args, &results)?;
        let body = adopt(g, back, &format!("gradient_of_{}", function.name), def)?;
        let cond = self.countdown(g, &args)?;

        let mut inputs = vec![count];
        for (&i, &dtype) in types {
            inputs.push(match given.get(&i) {
                Some(&adjoint) => adjoint,
                None => {
                    let output = g.output(i);
                    zeros(g.scope(), output, dtype)?
                }
            });
        }
        inputs.extend_from_slice(lists);
        let fixed = self.fixed.iter().filter_map(|&t| self.back.position(t));
        inputs.extend(fixed.map(|i| g.input(i)));
        // An adjoint may be of another shape at the end than it is between iterations.
        let unknown = |i: usize| (1..=types.len()).contains(&i);
        let shapes: Vec<PartialShape> = args
            .iter()
            .enumerate()
            .map(|(i, a)| if unknown(i) { PartialShape::unknown() } else { a.shape.clone() })
            .collect();
        let op = if piece.is_stateful() { "While" } else { "StatelessWhile" };
        let node = g.op(op).inputs(&inputs).attr("cond", cond).attr("body", body);
        let outputs = node.attr("output_shapes", &shapes[..]).build_all()?;
        for (&i, &output) in types.keys().zip(&outputs[1..]) {
            g.set(i, output)?;
        }
        Ok(())
    }

    /// Whether iterations are left, by the first of these arguments.
    fn countdown(&mut self, g: &mut GradientContext<'_>, args: &[Slot]) -> Result<AttrValue> {
        let back = &mut self.back;
        let begin = back.len();
        let zero = back.scope.constant(&Tensor::scalar(0i32))?;
        let counter = args[0].tensor.ok_or_else(|| err!(Internal, "the loop has no counter"))?;
        let goes_on = back.scope.add("Greater", &[counter, zero])?;
        let mut slots: Vec<Slot> = args.iter().map(Slot::foreign).collect();
        slots[0] = args[0].clone();
        let piece = back.piece_from(begin);
        let def = back.function(&piece, &slots, &[back.slot(goes_on)])?;
        adopt(g, &self.back, "countdown", def)
    }
}

/// Where a tensor comes from, through nodes that hand it on.
fn origin(graph: &Graph, mut tensor: Output) -> Output {
    // A chain of identities is no longer than the graph, and has no loop outside of frames.
    for _ in 0..graph.len() {
        let node = graph.node(tensor.node);
        if node.role() != Role::Identity {
            break;
        }
        tensor = node.inputs[0];
    }
    tensor
}
