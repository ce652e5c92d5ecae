//! The inputs of an executable's nodes, as one array.

use thalweg_graph::{Endpoint, Graph, Node, NodeId};
use thalweg_plan::{Aliases, fetches_alias, forwarded_inputs};
use thalweg_tensor::Result;

use crate::execute::executable::{
    ENTERED_ONCE, ExecNode, HAS_UNREAD, Input, Kind, PREPARES, SOLE, Takes,
};
use crate::execute::framed::Layout;
use crate::execute::transfers::{Transfer, Transfers};

/// The slots of all inputs, and the number of readers of each output.
pub(crate) struct FlatInputs {
    pub(crate) inputs: Vec<Input>,
    /// Number of readers of each output that has several.
    pub(crate) readers: Vec<u32>,
    pub(crate) is_unread: Vec<bool>,
}

impl FlatInputs {
    pub(crate) fn of(
        graph: &Graph,
        nodes: &mut [ExecNode],
        mut layout: Option<&mut Layout>,
        transfers: &Transfers,
    ) -> Result<FlatInputs> {
        let output = |nodes: &[ExecNode], e: &Endpoint| {
            (nodes[e.node.index()].first_output + e.index) as usize
        };
        let mut counts = vec![0u32; graph.nodes().iter().map(|n| n.outputs.len()).sum()];
        for e in graph.nodes().iter().flat_map(|n| &n.inputs) {
            counts[output(nodes, e)] += 1;
        }
        let mut readers = Vec::new();
        let mut shared = vec![SOLE; counts.len()];
        for (i, node) in nodes.iter().enumerate() {
            let is_constant = layout.as_ref().is_some_and(|l| l.is_constant[i]);
            let readers = match &mut layout {
                Some(layout) => &mut layout.statics[layout.outputs_in[i] as usize].readers,
                None => &mut readers,
            };
            let first = node.first_output as usize;
            for output in first..first + node.num_outputs() as usize {
                if is_constant {
                    shared[output] = ENTERED_ONCE;
                } else if counts[output] > 1 {
                    shared[output] = readers.len() as u32;
                    readers.push(counts[output]);
                }
            }
        }
        let aliases = aliases(graph, nodes);
        let mut inputs = Vec::new();
        for (i, node) in graph.nodes().iter().enumerate() {
            let takes_ref = ref_inputs(node)?;
            let keeps_alias = alias_inputs(node, &nodes[i].kind)?;
            for (k, e) in node.inputs.iter().enumerate() {
                let transfer = transfers.between(*e, i, k);
                let takes = match takes_ref.get(k).copied().unwrap_or(false) {
                    true => Takes::Ref,
                    false if k < keeps_alias => Takes::Alias,
                    false => Takes::Tensor,
                };
                let is_changed = match takes {
                    Takes::Tensor => aliases.contains(*e),
                    Takes::Alias => graph.output(*e).is_ref,
                    Takes::Ref => false,
                };
                if transfer != Transfer::None || is_changed {
                    nodes[i].outputs |= PREPARES;
                }
                let shared = shared[output(nodes, e)];
                let slot = nodes[e.node.index()].first_slot + e.index;
                inputs.push(Input { slot, shared, transfer, takes });
            }
        }
        let is_unread: Vec<bool> = counts.iter().map(|&count| count == 0).collect();
        for node in nodes {
            let outputs =
                node.first_output as usize..(node.first_output + node.num_outputs()) as usize;
            if is_unread[outputs].contains(&true) {
                node.outputs |= HAS_UNREAD;
            }
        }
        Ok(FlatInputs { inputs, readers, is_unread })
    }
}

/// The outputs that may carry a reference or an alias.
fn aliases(graph: &Graph, nodes: &[ExecNode]) -> Aliases {
    let is_received = |id: &NodeId| {
        matches!(nodes[id.index()].kind, Kind::Receive(_)) && fetches_alias(graph.node(*id))
    };
    Aliases::of(graph, graph.ids().filter(is_received))
}

/// How many inputs, from the first on, may stay aliases.
fn alias_inputs(node: &Node, kind: &Kind) -> Result<usize> {
    Ok(match kind {
        Kind::Fetch(_) => 1,
        // The receiver takes the snapshot.
        Kind::Send(_) => {
            usize::from(fetches_alias(node) || node.attrs().bool("client_terminated")?)
        }
        // The kernel reads a snapshot, and the executor forwards the buffer.
        Kind::Kernel(_) => 0,
        _ => forwarded_inputs(node),
    })
}

/// Which inputs an op takes by reference; empty if none.
fn ref_inputs(node: &Node) -> Result<Vec<bool>> {
    let mut flags = Vec::new();
    for arg in node.op.inputs.iter().filter(|arg| arg.is_ref) {
        flags.resize(node.inputs.len(), false);
        flags[node.input_range(&arg.name)?].fill(true);
    }
    Ok(flags)
}
