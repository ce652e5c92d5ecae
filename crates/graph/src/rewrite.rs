//! Functions that graph passes share: predecessors and successors, topological order, reachability,
//! and dropping nodes with a renumbering of the rest.

use crate::{Flag, Graph, Node, NodeId, Role};

impl Node {
    /// The sources of the node's data edges, then of its control edges. The source of several edges
    /// is repeated.
    pub fn predecessors(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.inputs.iter().map(|e| e.node).chain(self.control_inputs.iter().copied())
    }
}

impl Graph {
    /// Whether the graph has control flow ops (`Switch`, `Merge`, `Enter`, ...).
    pub fn has_control_flow(&self) -> bool {
        self.nodes().iter().any(|node| node.role().is_control_flow())
    }

    /// Whether the edge from `source` to `target` is the back edge of a loop.
    pub fn is_back_edge(&self, source: NodeId, target: &Node) -> bool {
        target.role() == Role::Merge && self.node(source).role() == Role::NextIteration
    }

    /// Whether a node computes values from values only, so that equal nodes are interchangeable: no
    /// state, no call, no reference, no control flow.
    pub fn is_pure(&self, node: &Node) -> bool {
        !node.op.has(Flag::Stateful)
            && !node.role().is_call()
            && !node.role().is_control_flow()
            && node.outputs.iter().all(|output| !output.is_ref)
            && node.inputs.iter().all(|e| !self.output(*e).is_ref)
    }

    /// For each node, whether it has a successor.
    pub fn has_successor(&self) -> Vec<bool> {
        let mut has_successor = vec![false; self.len()];
        for source in self.nodes().iter().flat_map(Node::predecessors) {
            has_successor[source.index()] = true;
        }
        has_successor
    }

    /// The nodes in topological order; back edges of loops are ignored. Nodes on or behind any
    /// other cycle are missing.
    pub fn topological_order(&self) -> Vec<NodeId> {
        let forward = |i: usize| {
            let node = &self.nodes()[i];
            node.predecessors().filter(move |&source| !self.is_back_edge(source, node))
        };
        Successors::new(self.len(), forward).topological_order()
    }
}

/// The successors of all nodes in one flat array, which takes less memory and time than a vector
/// per node.
pub struct Successors {
    /// Start of each node's successors, followed by the number of edges.
    starts: Vec<u32>,
    targets: Vec<NodeId>,
}

impl Successors {
    /// The successors in `graph`, by data and control edges.
    pub fn of(graph: &Graph) -> Successors {
        Successors::new(graph.len(), |i| graph.nodes()[i].predecessors())
    }

    /// The successors from the predecessors of each of `len` nodes.
    pub(crate) fn new<I>(len: usize, predecessors: impl Fn(usize) -> I) -> Successors
    where
        I: Iterator<Item = NodeId>,
    {
        let mut starts = vec![0u32; len + 1];
        for source in (0..len).flat_map(&predecessors) {
            starts[source.index() + 1] += 1;
        }
        for i in 0..len {
            starts[i + 1] += starts[i];
        }
        let mut next = starts.clone();
        let mut targets = vec![NodeId(0); starts[len] as usize];
        for i in 0..len {
            for source in predecessors(i) {
                let at = &mut next[source.index()];
                targets[*at as usize] = NodeId(i as u32);
                *at += 1;
            }
        }
        Successors { starts, targets }
    }

    /// Number of edges.
    pub fn num_edges(&self) -> usize {
        self.targets.len()
    }

    /// The targets of the edges from `id`, ascending. The target of several edges is repeated.
    pub fn after(&self, id: NodeId) -> &[NodeId] {
        let (start, end) = (self.starts[id.index()], self.starts[id.index() + 1]);
        &self.targets[start as usize..end as usize]
    }

    /// The nodes in topological order (Kahn's algorithm); those on and behind cycles are missing.
    pub(crate) fn topological_order(&self) -> Vec<NodeId> {
        let len = self.starts.len() - 1;
        let mut pending = vec![0u32; len];
        self.targets.iter().for_each(|target| pending[target.index()] += 1);
        let mut order = Vec::with_capacity(len);
        order.extend((0..len as u32).map(NodeId).filter(|id| pending[id.index()] == 0));
        let mut next = 0;
        while let Some(&id) = order.get(next) {
            next += 1;
            for target in self.after(id) {
                pending[target.index()] -= 1;
                if pending[target.index()] == 0 {
                    order.push(*target);
                }
            }
        }
        order
    }
}

/// Marks `roots` and all nodes reachable from them, of `len` nodes; `push_neighbours` appends the
/// neighbours of a node.
pub fn reachable(
    len: usize,
    roots: impl IntoIterator<Item = NodeId>,
    mut push_neighbours: impl FnMut(NodeId, &mut Vec<NodeId>),
) -> Vec<bool> {
    let mut is_reached = vec![false; len];
    let mut stack: Vec<NodeId> = roots.into_iter().collect();
    while let Some(id) = stack.pop() {
        if !std::mem::replace(&mut is_reached[id.index()], true) {
            push_neighbours(id, &mut stack);
        }
    }
    is_reached
}

/// Marks `roots` and all nodes of `nodes` that they depend on, by data and control edges.
pub fn dependencies(nodes: &[Node], roots: impl IntoIterator<Item = NodeId>) -> Vec<bool> {
    reachable(nodes.len(), roots, |id, stack| stack.extend(nodes[id.index()].predecessors()))
}

/// New ids of nodes for a pass that drops or reorders nodes.
pub struct Renumbering(Vec<NodeId>);

impl Renumbering {
    const DROPPED: NodeId = NodeId(u32::MAX);

    /// Keeps the marked nodes in their order, with ids from `first` on.
    pub fn keep(is_kept: &[bool], first: u32) -> Renumbering {
        let mut next = first;
        let number = |&is_kept: &bool| match is_kept {
            true => {
                next += 1;
                NodeId(next - 1)
            }
            false => Renumbering::DROPPED,
        };
        Renumbering(is_kept.iter().map(number).collect())
    }

    /// Moves the node `order[i]` to position `i`; every node is in `order` once.
    pub fn reorder(order: &[NodeId]) -> Renumbering {
        let mut ids = vec![Renumbering::DROPPED; order.len()];
        order.iter().zip(0..).for_each(|(id, new)| ids[id.index()] = NodeId(new));
        Renumbering(ids)
    }

    /// The new id of a node, if it is kept.
    pub fn get(&self, id: NodeId) -> Option<NodeId> {
        Some(self.0[id.index()]).filter(|&new| new != Renumbering::DROPPED)
    }

    /// Rewrites the edges of a node. Sources of data edges must be kept; control edges from dropped
    /// nodes are removed.
    pub fn rewire(&self, node: &mut Node) {
        for input in &mut node.inputs {
            input.node = self.0[input.node.index()];
            debug_assert_ne!(
                input.node,
                Renumbering::DROPPED,
                "an input of {} is dropped",
                node.name
            );
        }
        node.control_inputs.retain(|control| {
            *control = self.0[control.index()];
            *control != Renumbering::DROPPED
        });
    }
}

/// The marked nodes in their order, with edges by their new positions.
pub fn keep_nodes(nodes: impl IntoIterator<Item = Node>, is_kept: &[bool]) -> Vec<Node> {
    let renumbering = Renumbering::keep(is_kept, 0);
    let kept = nodes.into_iter().zip(is_kept).filter(|(_, is_kept)| **is_kept);
    let rewired = kept.map(|(mut node, _)| {
        renumbering.rewire(&mut node);
        node
    });
    rewired.collect()
}
