//! Alias analysis: which edges may carry the buffer of a reference variable.
//!
//! In TensorFlow an op that forwards a reference returns a tensor that shares the variable's buffer, so a
//! reader after an update sees the update. Here such a tensor is an alias, and only the readers of the
//! edges found here check for one.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};
use thalweg_graph::{AttrValue, Endpoint, Graph, IntoAttr, Node, NodeId, Role};
use thalweg_tensor::Result;

/// The outputs of a graph that may carry a reference or an alias.
#[derive(Debug, Default)]
pub struct Aliases(FxHashSet<Endpoint>);

impl Aliases {
    /// Finds the aliases of a graph; the nodes `received` receive aliases from another device.
    pub fn of(graph: &Graph, received: impl IntoIterator<Item = NodeId>) -> Aliases {
        let mut stack: Vec<Endpoint> =
            received.into_iter().map(|node| Endpoint { node, index: 0 }).collect();
        for id in graph.ids() {
            let outputs = graph.node(id).outputs.iter().zip(0..);
            stack.extend(
                outputs.filter(|(o, _)| o.is_ref).map(|(_, index)| Endpoint { node: id, index }),
            );
        }
        if stack.is_empty() {
            return Aliases::default();
        }
        let mut forwarding: FxHashMap<Endpoint, SmallVec<[(NodeId, u32); 2]>> =
            FxHashMap::default();
        for id in graph.ids() {
            let node = graph.node(id);
            for (input, position) in node.inputs[..forwarded_inputs(node)].iter().zip(0..) {
                forwarding.entry(*input).or_default().push((id, position));
            }
        }
        let mut found: FxHashSet<Endpoint> = stack.iter().copied().collect();
        while let Some(endpoint) = stack.pop() {
            for &(node, input) in forwarding.get(&endpoint).into_iter().flatten() {
                for index in forwarded_outputs(graph.node(node), input) {
                    let output = Endpoint { node, index };
                    if found.insert(output) {
                        stack.push(output);
                    }
                }
            }
        }
        Aliases(found)
    }

    /// Whether no output does.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an output may carry a reference or an alias.
    pub fn contains(&self, output: Endpoint) -> bool {
        !self.0.is_empty() && self.0.contains(&output)
    }
}

/// Marks a fetch of what may be an alias, and the `_Send` and `_Recv` that bring it to the client's
/// device: nothing else reads it there, and it is sent when the updates of the sending task are done.
/// TensorFlow ignores it.
pub const FETCHED_ALIAS: &str = "_thalweg_fetched_alias";

/// Whether a node has the mark.
pub fn fetches_alias(node: &Node) -> bool {
    matches!(node.attrs.get(FETCHED_ALIAS), Some(AttrValue::Bool(true)))
}

/// The graph with the mark on such fetches.
pub(crate) fn mark_fetches(graph: Graph) -> Result<Graph> {
    let aliases = Aliases::of(&graph, []);
    let mut marked = Vec::new();
    for id in graph.ids() {
        let node = graph.node(id);
        let is_alias = node.role() == Role::Send && aliases.contains(node.inputs[0]);
        if is_alias && node.attrs().bool("client_terminated")? {
            marked.push(id);
        }
    }
    if marked.is_empty() {
        return Ok(graph);
    }
    let mut nodes = graph.nodes().to_vec();
    for id in marked {
        nodes[id.index()].attrs.set(FETCHED_ALIAS, true.into_attr());
    }
    Ok(Graph::from_nodes(&graph, nodes))
}

/// How many of its first inputs a node forwards.
pub fn forwarded_inputs(node: &Node) -> usize {
    match node.role() {
        Role::Merge => node.inputs.len(),
        Role::Identity
        | Role::Switch
        | Role::Enter
        | Role::Exit
        | Role::NextIteration
        | Role::LoopCond
        | Role::PlaceholderWithDefault => 1,
        Role::Forward => node.outputs.len().min(node.inputs.len()),
        _ => 0,
    }
}

/// The outputs to which a node forwards this input.
fn forwarded_outputs(node: &Node, input: u32) -> SmallVec<[u32; 2]> {
    match node.role() {
        Role::Forward => smallvec![input],
        Role::Switch => (0..node.outputs.len() as u32).collect(),
        _ => smallvec![0],
    }
}
