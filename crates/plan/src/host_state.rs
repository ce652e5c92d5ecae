//! State that stays on the CPU: variables with an op, anywhere in the client's graph, that no accelerator
//! runs, or that such an op is colocated with. A plan sees only the nodes of its step, and the first plan that
//! has a variable decides where it lives.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use thalweg_graph::{Endpoint, Graph, Node, Role};
use thalweg_proto as pb;
use thalweg_tensor::DType;

use crate::Target;
use crate::groups::colocation_classes;

/// Names of nodes of state that no accelerator may have.
pub(crate) type HostState = FxHashSet<Arc<str>>;

/// The state of `graph` that stays on the CPU.
pub(crate) fn host_state(graph: &Graph, target: &Target<'_>) -> HostState {
    let mut found = HostState::default();
    let Some(accelerator) = target.devices.iter().find(|d| d.is_accelerator()) else {
        return found;
    };
    let device_type = accelerator.name.device_type.as_str();
    let is_state = |e: &Endpoint| {
        let output = graph.output(*e);
        output.is_ref || output.dtype == DType::Resource
    };
    for node in graph.nodes() {
        for (i, e) in node.inputs.iter().enumerate().filter(|(_, e)| is_state(e)) {
            let takes_state = match node.role() {
                role if role.is_call() => node
                    .callees()
                    .any(|function| !function_runs(graph, function, i, device_type, target)),
                role if role.is_interpreted() => false,
                // A read of a reference's value is no reason to keep it from an accelerator.
                _ if !takes_reference(node, i) && graph.output(*e).is_ref => false,
                _ => target.kernels.find(node, device_type).is_err(),
            };
            if takes_state && let Some(source) = source(graph, *e) {
                found.insert(source.name.clone());
            }
        }
        let runs_there =
            || node.role().is_interpreted() || target.kernels.find(node, device_type).is_ok();
        if colocation_classes(node).next().is_some() && !runs_there() {
            found.extend(colocated_state(graph, node).map(|state| state.name.clone()));
        }
    }
    found
}

/// The state that a node is colocated with by `_class`, by way of other nodes too.
fn colocated_state<'g>(graph: &'g Graph, node: &'g Node) -> impl Iterator<Item = &'g Node> {
    let mut seen: FxHashSet<&str> = FxHashSet::default();
    let mut stack = vec![node];
    std::iter::from_fn(move || {
        while let Some(node) = stack.pop() {
            if matches!(node.role(), Role::Variable | Role::VarHandle) {
                return Some(node);
            }
            let names = colocation_classes(node).filter(|name| seen.insert(name));
            let found = names.filter_map(|name| graph.find(name)).map(|id| graph.node(id));
            stack.extend(found.collect::<Vec<_>>());
        }
        None
    })
}

/// Whether input `i` of a node is the reference or handle itself.
fn takes_reference(node: &Node, i: usize) -> bool {
    node.op
        .inputs
        .iter()
        .any(|arg| arg.is_ref && node.input_range(&arg.name).is_ok_and(|range| range.contains(&i)))
}

/// The node of state behind an output that forwards it.
fn source(graph: &Graph, mut e: Endpoint) -> Option<&Node> {
    for _ in 0..graph.len() {
        let node = graph.node(e.node);
        match node.role() {
            Role::Variable | Role::VarHandle => return Some(node),
            Role::Identity | Role::Enter | Role::Switch => e = *node.inputs.first()?,
            _ => return None,
        }
    }
    None
}

/// Whether an accelerator runs the nodes of a function that take argument `i`.
fn function_runs(
    graph: &Graph,
    name: &str,
    i: usize,
    device_type: &str,
    target: &Target<'_>,
) -> bool {
    let Some(function) = graph.library().get(name) else { return true };
    let arguments = function.signature.as_ref().map_or(&[][..], |s| &s.input_arg);
    let Some(argument) = arguments.get(i) else { return true };
    let takes = |node: &&pb::NodeDef| node.input.contains(&argument.name);
    let runs = |node: &pb::NodeDef| {
        let is_interpreted = graph.find_op(&node.op).is_ok_and(|op| op.role.is_interpreted());
        let specs = target.kernels.for_op(&node.op);
        is_interpreted || specs.iter().any(|spec| spec.serves(device_type))
    };
    function.node_def.iter().filter(takes).all(runs)
}
