//! Receives that begin no earlier than their readers can need them.
//!
//! A tensor that arrives long before its reader is ready lies in memory for nothing: a worker that asks
//! for all of a model's weights at once holds all of them. From what nodes cost follows when each can
//! begin at the earliest; a tensor is asked for as long before that as its way takes, with room to
//! spare. That is a control edge from a node that ends about then.
//!
//! The edge comes only from nodes that every reader of the tensor waits for anyway, so nothing waits for
//! anything new, and no order of events can hang that did not before. Graphs with branches and loops
//! stay as they are: an edge from a branch not taken would kill the receive.

use smallvec::{SmallVec, smallvec};
use thalweg_graph::{Graph, NodeId};

use crate::topology::{Successors, reads, topological_order};

/// Smaller tensors are asked for at once: they cost no memory to speak of, and their way is all wait.
const BYTES_MIN: u64 = 64 << 10;
/// How many times its way a tensor gets.
const LEAD: f64 = 2.0;
/// As many larger tensors are on their way at a time, however long their way is thought to be.
const UNDER_WAY_MIN: usize = 3;
/// Nodes between a tensor and those of its readers that wait for something else too, at most.
const BETWEEN_MAX: usize = 16;
/// Nodes visited at most for all receives; what a graph that needs more would gain is not worth it.
const VISITS_MAX: usize = 4_000_000;

/// A tensor that comes from another device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// The node that receives it.
    pub(crate) node: NodeId,
    /// Its size.
    pub(crate) bytes: u64,
    /// How long it is on its way.
    pub(crate) seconds: f64,
}

/// The graph of one device, with large tensors asked for late. `seconds` is what a node takes.
pub(crate) fn receive_late(
    graph: Graph,
    arrivals: &[Arrival],
    seconds: impl Fn(&Graph, NodeId) -> f64,
) -> Graph {
    let large: Vec<Arrival> = arrivals.iter().copied().filter(|a| a.bytes >= BYTES_MIN).collect();
    if large.len() <= UNDER_WAY_MIN {
        return graph;
    }
    let order = topological_order(&graph);
    if order.len() < graph.len() {
        return graph;
    }
    let mut ends = vec![0.0; graph.len()];
    arrivals.iter().for_each(|a| ends[a.node.index()] = f64::NAN);
    for id in order {
        // What arrives is there at once as far as this is concerned: nobody is to wait for it.
        ends[id.index()] = match ends[id.index()].is_nan() {
            true => 0.0,
            false => {
                latest(&graph, id, &ends, &[]).map_or(0.0, |(_, end)| end) + seconds(&graph, id)
            }
        };
    }
    let mut search = Search { successors: Successors::of(&graph), graph: &graph, ends, visits: 0 };
    let edges = search.edges(&large);
    if edges.is_empty() {
        return graph;
    }
    let mut nodes = graph.nodes().to_vec();
    for (receive, after) in edges {
        nodes[receive.index()].control_inputs.push(after);
    }
    let late = Graph::from_nodes(&graph, nodes);
    // Two receives can each seem to be needed after what the other one feeds alone. That is rare, and
    // then all of them begin at once.
    if topological_order(&late).len() < late.len() { graph } else { late }
}

/// Of what a node waits for, except for some, that which ends last, and when.
fn latest(graph: &Graph, id: NodeId, ends: &[f64], except: &[NodeId]) -> Option<(NodeId, f64)> {
    let all = reads(graph.node(id)).filter(|source| !except.contains(source));
    all.map(|source| (source, ends[source.index()])).reduce(|a, b| if b.1 > a.1 { b } else { a })
}

struct Search<'a> {
    graph: &'a Graph,
    successors: Successors,
    /// When each node ends at the earliest.
    ends: Vec<f64>,
    visits: usize,
}

/// Who needs a tensor, and when.
struct Need {
    arrival: Arrival,
    /// When the first of them could begin.
    at: f64,
    /// What that one waits for last.
    last: NodeId,
    readers: SmallVec<[NodeId; 4]>,
    /// The receive, and what waits for it alone.
    same: SmallVec<[NodeId; BETWEEN_MAX]>,
}

impl Search<'_> {
    /// Receives, and what each is to follow.
    fn edges(&mut self, arrivals: &[Arrival]) -> Vec<(NodeId, NodeId)> {
        let mut needs: Vec<Need> = arrivals.iter().filter_map(|a| self.need(*a)).collect();
        needs.sort_by(|a, b| a.at.total_cmp(&b.at).then(a.arrival.node.cmp(&b.arrival.node)));
        let mut edges = Vec::new();
        for k in UNDER_WAY_MIN..needs.len() {
            let need = &needs[k];
            let limit = need.at - LEAD * need.arrival.seconds;
            let limit = limit.min(needs[k - UNDER_WAY_MIN].at);
            if let Some(after) = before(self.graph, &self.ends, need.last, limit)
                // A reader may have been met before the way by which it waits for the tensor alone.
                && !need.same.contains(&after)
                && self.is_before_all(after, &need.readers)
            {
                edges.push((need.arrival.node, after));
            }
        }
        edges
    }

    /// Who needs a tensor and when; `None` if somebody could use it at once. A node that waits for
    /// nothing but the tensor passes it on: its readers count.
    fn need(&self, arrival: Arrival) -> Option<Need> {
        let mut same: SmallVec<[NodeId; BETWEEN_MAX]> = smallvec![arrival.node];
        let mut readers: SmallVec<[NodeId; 4]> = SmallVec::new();
        let mut first: Option<(NodeId, f64)> = None;
        let mut next = 0;
        while let Some(&id) = same.get(next) {
            next += 1;
            for &reader in self.successors.after(id) {
                if readers.contains(&reader) || same.contains(&reader) {
                    continue;
                }
                match latest(self.graph, reader, &self.ends, &same) {
                    Some((last, at)) => {
                        readers.push(reader);
                        first = first.filter(|f| f.1 <= at).or(Some((last, at)));
                    }
                    None if same.len() < BETWEEN_MAX => same.push(reader),
                    None => return None,
                }
            }
        }
        let (last, at) = first?;
        Some(Need { arrival, at, last, readers, same })
    }

    /// Whether every one of `readers` waits for `node`.
    fn is_before_all(&mut self, node: NodeId, readers: &[NodeId]) -> bool {
        let mut left: SmallVec<[NodeId; 4]> = SmallVec::from_slice(readers);
        let mut seen = rustc_hash::FxHashSet::default();
        let mut stack = vec![node];
        while let Some(id) = stack.pop() {
            for &next in self.successors.after(id) {
                self.visits += 1;
                if self.visits > VISITS_MAX {
                    return false;
                }
                left.retain(|reader| *reader != next);
                if left.is_empty() {
                    return true;
                }
                if seen.insert(next) {
                    stack.push(next);
                }
            }
        }
        false
    }
}

/// What ends by `limit` among those that `node` waits for, and itself: the last on the way back along
/// what ends last. What ends at once is nothing to follow.
fn before(graph: &Graph, ends: &[f64], mut node: NodeId, limit: f64) -> Option<NodeId> {
    while ends[node.index()] > limit {
        node = latest(graph, node, ends, &[])?.0;
    }
    let is_worth_it = ends[node.index()] > 0.0 && reads(graph.node(node)).next().is_some();
    is_worth_it.then_some(node)
}
