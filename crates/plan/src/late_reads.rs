//! Readers that come after an update of what they read.
//!
//! In TensorFlow the value of a reference variable, as `Identity` reads it, is the variable's own
//! memory: who looks at it after an update sees what the update left. Programs lean on that (the
//! tokens of synchronous training are such a look). Here a reader has what the variable was when
//! `Identity` ran, so a reader that certainly follows an update reads the variable itself instead.
//!
//! In a part of a graph that another task has cut, what is received may follow anything that was sent:
//! the way between them lies elsewhere. Who reads too late there sees what it would in TensorFlow.

use rustc_hash::FxHashMap;
use thalweg_graph::{Endpoint, Graph, Node, NodeId, Successors};

/// Nodes visited at most; what a graph that needs more would gain is not worth the wait.
const VISITS_MAX: usize = 10_000_000;
/// Ops between a variable and one that takes its reference, at most.
const REFERENCES_MAX: usize = 64;

const SENDS: [&str; 2] = ["_Send", "_HostSend"];
const RECEIVES: [&str; 2] = ["_Recv", "_HostRecv"];

/// The graph with such readers turned to the variables; all else stays.
pub(crate) fn read_late(graph: Graph) -> Graph {
    let variables = read_and_updated(&graph);
    if variables.is_empty() {
        return graph;
    }
    let successors = Successors::of(&graph);
    let has_op = |id: NodeId, ops: [&str; 2]| ops.contains(&graph.node(id).op.name.as_str());
    let received: Vec<NodeId> = graph.ids().filter(|&id| has_op(id, RECEIVES)).collect();
    let mut late: Vec<(NodeId, usize, NodeId)> = Vec::new();
    let mut seen_for = vec![u32::MAX; graph.len()];
    let mut visits = 0;
    for (k, variable) in variables.iter().enumerate() {
        let (mut stack, mut is_sent) = (variable.updates.clone(), false);
        while let Some(id) = stack.pop() {
            let elsewhere = match has_op(id, SENDS) && !std::mem::replace(&mut is_sent, true) {
                true => &received[..],
                false => &[],
            };
            for &next in successors.after(id).iter().chain(elsewhere) {
                visits += 1;
                if visits > VISITS_MAX {
                    return graph;
                }
                if seen_for[next.index()] != k as u32 {
                    seen_for[next.index()] = k as u32;
                    stack.push(next);
                }
            }
        }
        for &read in &variable.reads {
            for &reader in successors.after(read) {
                if seen_for[reader.index()] != k as u32 || seen_for[read.index()] == k as u32 {
                    continue;
                }
                let inputs = graph.node(reader).inputs.iter().enumerate();
                late.extend(inputs.filter(|(_, e)| e.node == read).map(|(i, _)| (reader, i, read)));
            }
        }
    }
    if late.is_empty() { graph } else { turned(&graph, &late) }
}

/// Who reads a variable by `Identity`, and who takes it by reference and so may update it.
#[derive(Default)]
struct Variable {
    reads: Vec<NodeId>,
    updates: Vec<NodeId>,
}

fn read_and_updated(graph: &Graph) -> Vec<Variable> {
    let mut order: Vec<NodeId> = Vec::new();
    let mut variables: FxHashMap<NodeId, Variable> = FxHashMap::default();
    for id in graph.ids() {
        let node = graph.node(id);
        let Some(&input) = node.inputs.iter().find(|e| graph.output(**e).is_ref) else { continue };
        let Some(root) = root_of(graph, input) else { continue };
        let variable = variables.entry(root).or_insert_with(|| {
            order.push(root);
            Variable::default()
        });
        if node.op.name == "Identity" {
            variable.reads.push(id);
        } else if node.op.inputs.iter().any(|arg| arg.is_ref) {
            variable.updates.push(id);
        }
    }
    let both = |v: &Variable| !v.reads.is_empty() && !v.updates.is_empty();
    order.iter().filter_map(|root| variables.remove(root)).filter(both).collect()
}

/// The node that made what the reference refers to.
fn root_of(graph: &Graph, reference: Endpoint) -> Option<NodeId> {
    let mut id = reference.node;
    for _ in 0..REFERENCES_MAX {
        match graph.node(id).inputs.iter().find(|e| graph.output(**e).is_ref) {
            Some(before) => id = before.node,
            None => return Some(id),
        }
    }
    None
}

/// The readers read what `Identity` reads, and still come after it.
fn turned(graph: &Graph, late: &[(NodeId, usize, NodeId)]) -> Graph {
    let mut nodes: Vec<Node> = graph.nodes().to_vec();
    for &(reader, input, read) in late {
        // Another device has no part in the variable's memory.
        if nodes[reader.index()].device != nodes[read.index()].device {
            continue;
        }
        let variable = graph.node(read).inputs[0];
        let node = &mut nodes[reader.index()];
        node.inputs[input] = variable;
        if !node.control_inputs.contains(&read) {
            node.control_inputs.push(read);
        }
    }
    Graph::from_nodes(graph, nodes)
}
