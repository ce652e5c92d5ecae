//! Orders and neighbours of nodes.

use thalweg_graph::{Graph, Node, NodeId, Role};

/// The nodes that `node` waits for, by data and by control; a node read twice comes twice.
pub fn reads(node: &Node) -> impl Iterator<Item = NodeId> + '_ {
    node.inputs.iter().map(|e| e.node).chain(node.control_inputs.iter().copied())
}

/// Every node after those it waits for; edges that close loops do not count.
pub fn topological_order(graph: &Graph) -> Vec<NodeId> {
    let counted = |node: &'_ Node| {
        let is_merge = node.role() == Role::Merge;
        move |source: &NodeId| !is_merge || graph.node(*source).role() != Role::NextIteration
    };
    // Successors as one flat array: a million small vectors would cost more than the order.
    let mut starts = vec![0u32; graph.len() + 1];
    let mut pending = vec![0u32; graph.len()];
    for (i, node) in graph.nodes().iter().enumerate() {
        for source in reads(node).filter(counted(node)) {
            starts[source.index() + 1] += 1;
            pending[i] += 1;
        }
    }
    for i in 0..graph.len() {
        starts[i + 1] += starts[i];
    }
    let mut fill = starts.clone();
    let mut successors = vec![NodeId(0); starts[graph.len()] as usize];
    for (i, node) in graph.nodes().iter().enumerate() {
        for source in reads(node).filter(counted(node)) {
            successors[fill[source.index()] as usize] = NodeId(i as u32);
            fill[source.index()] += 1;
        }
    }
    let mut order: Vec<NodeId> = graph.ids().filter(|id| pending[id.index()] == 0).collect();
    let mut next = 0;
    while next < order.len() {
        let i = order[next].index();
        next += 1;
        for &s in &successors[starts[i] as usize..starts[i + 1] as usize] {
            pending[s.index()] -= 1;
            if pending[s.index()] == 0 {
                order.push(s);
            }
        }
    }
    order
}

/// Whom each node releases, as one flat array.
pub(crate) struct Successors {
    starts: Vec<u32>,
    nodes: Vec<NodeId>,
}

impl Successors {
    pub(crate) fn of(graph: &Graph) -> Successors {
        let mut starts = vec![0u32; graph.len() + 1];
        for source in graph.nodes().iter().flat_map(reads) {
            starts[source.index() + 1] += 1;
        }
        for i in 0..graph.len() {
            starts[i + 1] += starts[i];
        }
        let mut fill = starts.clone();
        let mut nodes = vec![NodeId(0); starts[graph.len()] as usize];
        for (i, node) in graph.nodes().iter().enumerate() {
            for source in reads(node) {
                nodes[fill[source.index()] as usize] = NodeId(i as u32);
                fill[source.index()] += 1;
            }
        }
        Successors { starts, nodes }
    }

    /// Those that wait for `id`; one that waits twice comes twice.
    pub(crate) fn after(&self, id: NodeId) -> &[NodeId] {
        let (start, end) = (self.starts[id.index()], self.starts[id.index() + 1]);
        &self.nodes[start as usize..end as usize]
    }
}
