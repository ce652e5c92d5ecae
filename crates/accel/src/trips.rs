//! How often a loop runs, where that follows from what is known when its region is compiled.
//!
//! The condition, or each operand of a logical and, may depend on counters alone: loop variables whose values
//! in all iterations follow from known ones. Then the iterations are counted by evaluating these.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;
use thalweg_graph::{Endpoint, FunctionBody, Graph, NodeId, Role};
use thalweg_kernel::{Operand, Value};
use thalweg_plan::{Evaluator, forwarded_arguments};
use thalweg_tensor::{DType, Tensor};

/// Most iterations that are counted.
const TRIPS_MAX: usize = 1 << 14;
/// Most nodes that are evaluated to count the iterations of all loops of a program.
pub(crate) const EVALUATIONS_MAX: usize = 1 << 19;
/// Most counters of a loop.
const COUNTERS_MAX: usize = 64;
/// Most nodes that a counter may depend on.
const NODES_MAX: usize = 64;
/// Most bytes of a counter.
const BYTES_MAX: usize = 1024;

/// How often a loop runs.
pub(crate) struct Trips {
    /// At most so often.
    pub(crate) max: usize,
    /// If it is exactly so often: the values of the counters after the loop, by loop variable.
    pub(crate) ends: Option<BTreeMap<usize, Tensor>>,
}

/// The nodes that an output of a function depends on, in order, and the arguments among them.
struct Slice {
    output: Endpoint,
    nodes: Vec<NodeId>,
    args: BTreeSet<usize>,
}

/// The bound on the iterations of a loop with these inputs; `None` if there is none.
pub(crate) fn trips(
    evaluator: &Evaluator,
    cond: &FunctionBody,
    body: &FunctionBody,
    inputs: &[Operand],
    evaluations_left: &mut usize,
) -> Option<Trips> {
    let forwarded = forwarded_arguments(body);
    let stays = |i: usize| forwarded.get(i) == Some(&Some(i));
    let result = *cond.result_tensors().first()?;
    let terms = terms_of(&cond.graph, result);
    let mut known: BTreeMap<usize, Tensor> = BTreeMap::new();
    let mut steps: BTreeMap<usize, Slice> = BTreeMap::new();
    let mut counted: Vec<Slice> = Vec::new();
    for &term in &terms {
        let Some(slice) = Slice::of(cond, term) else { continue };
        if follow(body, &slice.args, &stays, inputs, &mut known, &mut steps).is_some() {
            counted.push(slice);
        }
    }
    if counted.is_empty() {
        return None;
    }
    let is_exact = counted.len() == terms.len();
    if is_exact {
        // Other counters, on which loops that come after may depend.
        let others = (0..inputs.len()).filter(|&i| !stays(i));
        for i in others.filter(|&i| matches!(inputs[i], Operand::Host(_))).take(COUNTERS_MAX) {
            follow(body, &BTreeSet::from([i]), &stays, inputs, &mut known, &mut steps);
        }
    }
    let work = counted.iter().chain(steps.values()).map(|s| s.nodes.len()).sum::<usize>().max(1);
    for count in 0..TRIPS_MAX {
        *evaluations_left = evaluations_left.checked_sub(work)?;
        for slice in &counted {
            let goes_on = slice.evaluate(evaluator, cond, &known)?;
            let goes_on = (goes_on.rank() == 0 && goes_on.dtype() == DType::Bool)
                .then(|| goes_on.as_bytes().ok()?.first().copied())??;
            if goes_on == 0 {
                known.retain(|i, _| steps.contains_key(i));
                return Some(Trips { max: count, ends: is_exact.then_some(known) });
            }
        }
        let mut next = known.clone();
        for (&i, step) in &steps {
            next.insert(i, step.evaluate(evaluator, body, &known)?);
        }
        known = next;
    }
    None
}

/// The operands of nested logical ands.
fn terms_of(graph: &Graph, output: Endpoint) -> Vec<Endpoint> {
    let (mut terms, mut stack, mut looked) = (Vec::new(), vec![output], 0);
    while let Some(output) = stack.pop() {
        let node = graph.node(output.node);
        looked += 1;
        match node.role() {
            _ if looked > NODES_MAX => terms.push(output),
            Role::Identity => stack.push(node.inputs[0]),
            _ if &*node.op.name == "LogicalAnd" => stack.extend(&node.inputs),
            _ => terms.push(output),
        }
    }
    terms
}

/// Notes what the loop variables `args` are in the first iteration, and how they and those that they depend on
/// change; `None` if that is not known.
fn follow(
    body: &FunctionBody,
    args: &BTreeSet<usize>,
    stays: &impl Fn(usize) -> bool,
    inputs: &[Operand],
    known: &mut BTreeMap<usize, Tensor>,
    steps: &mut BTreeMap<usize, Slice>,
) -> Option<()> {
    let (mut known_now, mut steps_now) = (BTreeMap::new(), BTreeMap::new());
    let mut left: Vec<usize> = args.iter().copied().collect();
    while let Some(i) = left.pop() {
        if known.contains_key(&i) || known_now.contains_key(&i) {
            continue;
        }
        match inputs.get(i)? {
            Operand::Host(tensor) if tensor.size_bytes() <= BYTES_MAX => {
                known_now.insert(i, tensor.clone());
            }
            _ => return None,
        }
        if !stays(i) {
            let slice = Slice::of(body, *body.result_tensors().get(i)?)?;
            left.extend(&slice.args);
            steps_now.insert(i, slice);
        }
    }
    known.append(&mut known_now);
    steps.append(&mut steps_now);
    Some(())
}

impl Slice {
    /// What `output` depends on, if these are few pure nodes.
    fn of(function: &FunctionBody, output: Endpoint) -> Option<Slice> {
        let graph = &function.graph;
        let mut slice = Slice { output, nodes: Vec::new(), args: BTreeSet::new() };
        // Nodes whose inputs are to be visited, and those that come after their inputs.
        let mut stack = vec![(output.node, false)];
        let mut seen = BTreeSet::new();
        while let Some((id, is_after)) = stack.pop() {
            let node = graph.node(id);
            if is_after {
                slice.nodes.push(id);
                continue;
            }
            if !seen.insert(id) {
                continue;
            }
            if node.role() == Role::Arg {
                slice.args.insert(function.args.iter().position(|arg| *arg == id)?);
                continue;
            }
            let is_const = node.role() == Role::Const;
            let is_plain = node.outputs.iter().all(|output| !output.dtype.is_object());
            if seen.len() > NODES_MAX
                || !graph.is_pure(node)
                || !is_plain
                || node.inputs.is_empty() && !is_const
            {
                return None;
            }
            stack.push((id, true));
            stack.extend(node.inputs.iter().map(|e| (e.node, false)));
        }
        Some(slice)
    }

    /// The output for these arguments.
    fn evaluate(
        &self,
        evaluator: &Evaluator,
        function: &FunctionBody,
        args: &BTreeMap<usize, Tensor>,
    ) -> Option<Tensor> {
        let mut values: BTreeMap<NodeId, SmallVec<[Tensor; 1]>> = BTreeMap::new();
        for &i in &self.args {
            values.insert(*function.args.get(i)?, SmallVec::from_elem(args.get(&i)?.clone(), 1));
        }
        for &id in &self.nodes {
            let node = function.graph.node(id);
            let input = |e: &Endpoint| values.get(&e.node)?.get(e.index as usize).cloned();
            let inputs: Option<Vec<Tensor>> = node.inputs.iter().map(input).collect();
            let inputs = inputs?;
            let outputs = match node.role() {
                Role::Const => SmallVec::from_elem(node.attrs().tensor("value", None).ok()?, 1),
                Role::Identity => SmallVec::from_vec(inputs),
                _ => {
                    let mut inputs: Vec<Value> = inputs.into_iter().map(Value::Tensor).collect();
                    evaluator.evaluate(node, &mut inputs)?
                }
            };
            if outputs.iter().any(|tensor| tensor.size_bytes() > BYTES_MAX) {
                return None;
            }
            values.insert(id, outputs);
        }
        values.get(&self.output.node)?.get(self.output.index as usize).cloned()
    }
}
