//! The order in which ready nodes are placed.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use thalweg_graph::{NodeId, Successors};

use super::{Order, Problem, Schedule};

/// Devices over which costs are averaged for the longest paths.
const SAMPLED_DEVICES: usize = 8;

/// For each node, the seconds of the longest path from its start to the end of the step, with costs
/// averaged over devices and half of the transfers.
pub(super) fn longest_paths(problem: &Problem<'_>) -> Vec<f64> {
    let Problem { graph, target, .. } = problem;
    let mut below = vec![0.0f64; graph.len()];
    let step = target.devices.len().div_ceil(SAMPLED_DEVICES).max(1);
    let sampled: Vec<u32> = (0..target.devices.len() as u32).step_by(step).collect();
    for &id in problem.topological.iter().rev() {
        let own: f64 = sampled.iter().map(|&d| problem.seconds(id, d)).sum();
        let from_start = below[id.index()] + own / sampled.len() as f64;
        below[id.index()] = from_start;
        let node = graph.node(id);
        let mut reach = |source: NodeId, seconds: f64| {
            // Edges of loops go back.
            if !graph.is_back_edge(source, node) {
                let known = &mut below[source.index()];
                *known = known.max(from_start + seconds);
            }
        };
        for &input in &node.inputs {
            let bytes = target.costs.tensor_bytes(graph, input);
            reach(input.node, problem.links.usual_seconds(bytes) / 2.0);
        }
        node.control_inputs.iter().for_each(|&source| reach(source, 0.0));
    }
    below
}

/// The nodes that wait to be placed and whose inputs are placed; deferred ones are left out.
pub(super) struct Ready {
    order: Order,
    heap: BinaryHeap<Entry>,
    pending: Vec<u32>,
    successors: Successors,
}

impl Ready {
    pub(super) fn new(problem: &Problem<'_>, order: Order) -> Ready {
        let graph = problem.graph;
        let mut ready = Ready {
            order,
            heap: BinaryHeap::new(),
            pending: vec![0; graph.len()],
            successors: Successors::of(graph),
        };
        for id in graph.ids() {
            let node = graph.node(id);
            let awaited = node.predecessors().filter(|&source| {
                !problem.is_deferred[source.index()] && !graph.is_back_edge(source, node)
            });
            ready.pending[id.index()] = awaited.count() as u32;
        }
        // Nodes on or behind a cycle that is no loop never become ready.
        for &id in &problem.topological {
            if ready.pending[id.index()] == 0 && !problem.is_deferred[id.index()] {
                ready.push(problem, id, 0.0);
            }
        }
        ready
    }

    fn push(&mut self, problem: &Problem<'_>, id: NodeId, start: f64) {
        self.heap.push(Entry { start, below: problem.below[id.index()], id });
    }

    /// The node to place next.
    pub(super) fn next(&mut self, state: &Schedule<'_>) -> Option<NodeId> {
        loop {
            let entry = self.heap.pop()?;
            if self.order == Order::LongestPath {
                return Some(entry.id);
            }
            // Starts only become later, so an entry that is still right is the first.
            let start = state.earliest_start(entry.id);
            if start <= entry.start {
                return Some(entry.id);
            }
            self.heap.push(Entry { start, ..entry });
        }
    }

    /// Adds the successors that became ready.
    pub(super) fn placed(&mut self, problem: &Problem<'_>, id: NodeId) {
        for i in 0..self.successors.after(id).len() {
            let next = self.successors.after(id)[i];
            if problem.graph.is_back_edge(id, problem.graph.node(next)) {
                continue;
            }
            let pending = &mut self.pending[next.index()];
            *pending -= 1;
            if *pending == 0 && !problem.is_deferred[next.index()] {
                self.push(problem, next, 0.0);
            }
        }
    }
}

/// A ready node; the greatest is the next.
struct Entry {
    start: f64,
    below: f64,
    id: NodeId,
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        let earlier = other.start.total_cmp(&self.start);
        earlier.then(self.below.total_cmp(&other.below)).then(other.id.0.cmp(&self.id.0))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}
