//! Receives that begin no earlier than their readers can need them.
//!
//! A tensor that arrives long before its reader is ready lies in memory for nothing: a worker that asks
//! for all of a model's weights at once holds all of them. From what nodes cost follows when each can
//! begin at the earliest; a tensor is asked for as long before that as its way takes, with room to
//! spare. That is a control edge from a node that ends about then.
//!
//! The edge comes only from nodes that every reader of the tensor waits for anyway, so nothing waits for
//! anything new, and no order of events can hang that did not before. Receives have an order, that of
//! their need, and follow nodes that wait for earlier ones alone, so edges never close a circle. Graphs
//! with branches and loops stay as they are: an edge from a branch not taken would kill the receive.

use smallvec::{SmallVec, smallvec};
use thalweg_graph::{Graph, NodeId, Successors};

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
    mut graph: Graph,
    arrivals: &[Arrival],
    seconds: impl Fn(&Graph, NodeId) -> f64,
) -> Graph {
    let large: Vec<Arrival> = arrivals.iter().copied().filter(|a| a.bytes >= BYTES_MIN).collect();
    if large.len() <= UNDER_WAY_MIN {
        return graph;
    }
    let order = graph.topological_order();
    if order.len() < graph.len() {
        return graph;
    }
    let mut ends = vec![0.0; graph.len()];
    arrivals.iter().for_each(|a| ends[a.node.index()] = f64::NAN);
    for &id in &order {
        // What arrives is there at once as far as this is concerned: nobody is to wait for it.
        ends[id.index()] = match ends[id.index()].is_nan() {
            true => 0.0,
            false => {
                latest(&graph, id, &ends, &[]).map_or(0.0, |(_, end)| end) + seconds(&graph, id)
            }
        };
    }
    let mut search = Search { successors: Successors::of(&graph), graph: &graph, ends, visits: 0 };
    let edges = search.edges(&large, &order);
    for (receive, after) in edges {
        graph.add_control_input(receive, after);
    }
    graph
}

/// Of what a node waits for, except for some, that which ends last, and when.
fn latest(graph: &Graph, id: NodeId, ends: &[f64], except: &[NodeId]) -> Option<(NodeId, f64)> {
    let all = graph.node(id).predecessors().filter(|source| !except.contains(source));
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
}

impl Search<'_> {
    /// Receives, and what each is to follow; `order` has each node after those it waits for.
    fn edges(&mut self, arrivals: &[Arrival], order: &[NodeId]) -> Vec<(NodeId, NodeId)> {
        let mut needs: Vec<Need> = arrivals.iter().filter_map(|a| self.need(*a)).collect();
        needs.sort_by(|a, b| a.at.total_cmp(&b.at).then(a.arrival.node.cmp(&b.arrival.node)));
        let ranks = ranks(self.graph, &needs, order);
        let mut edges = Vec::new();
        for k in UNDER_WAY_MIN..needs.len() {
            let need = &needs[k];
            let limit = need.at - LEAD * need.arrival.seconds;
            let limit = limit.min(needs[k - UNDER_WAY_MIN].at);
            if let Some(after) = before(self.graph, &self.ends, need.last, limit)
                // It may wait for the tensor itself, or for one that is to follow what this one feeds.
                && ranks[after.index()] <= k
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
        Some(Need { arrival, at, last, readers })
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

/// For each node one more than the place of the last among `needs` that it waits for, zero if for none.
fn ranks(graph: &Graph, needs: &[Need], order: &[NodeId]) -> Vec<usize> {
    let mut ranks = vec![0; graph.len()];
    needs.iter().zip(1..).for_each(|(need, rank)| ranks[need.arrival.node.index()] = rank);
    for id in order {
        let of_sources = graph.node(*id).predecessors().map(|source| ranks[source.index()]).max();
        ranks[id.index()] = ranks[id.index()].max(of_sources.unwrap_or(0));
    }
    ranks
}

/// What ends by `limit` among those that `node` waits for, and itself: the last on the way back along
/// what ends last. What ends at once is nothing to follow.
fn before(graph: &Graph, ends: &[f64], mut node: NodeId, limit: f64) -> Option<NodeId> {
    while ends[node.index()] > limit {
        node = latest(graph, node, ends, &[])?.0;
    }
    let is_worth_it = ends[node.index()] > 0.0 && graph.node(node).predecessors().next().is_some();
    is_worth_it.then_some(node)
}

#[cfg(test)]
mod tests {
    use thalweg_graph::{Output, Scope};
    use thalweg_ops::{FAMILIES, op_registry};
    use thalweg_tensor::{DType, Tensor};

    use super::*;

    /// A graph of one device in which every node takes a second; what arrives is a placeholder.
    struct Part(Scope);

    impl Part {
        /// `clock` nodes one after the other, and three receives that are needed when the second of
        /// them has ended: those that come after them may be late.
        fn new(clock: usize) -> (Part, Vec<Output>) {
            let mut part = Part(Scope::new(op_registry(FAMILIES).unwrap()));
            let begin = part.0.constant(&Tensor::scalar(0.0f32)).unwrap();
            let ticks = part.chain(begin, clock);
            for name in ["first", "second", "third"] {
                let received = part.receive(name);
                part.join(ticks[1], received);
            }
            (part, ticks)
        }

        fn receive(&mut self, name: &str) -> Output {
            self.0.op("Placeholder").name(name).attr("dtype", DType::Float).build().unwrap()
        }

        fn join(&mut self, a: Output, b: Output) -> Output {
            self.0.op("AddV2").inputs(&[a, b]).build().unwrap()
        }

        fn chain(&mut self, mut x: Output, len: usize) -> Vec<Output> {
            let next = |_| {
                x = self.0.op("Neg").input(x).build().unwrap();
                x
            };
            (0..len).map(next).collect()
        }

        /// Which of `names` are received late. Whatever comes of it is no circle.
        fn late(&self, names: &[&str]) -> Vec<bool> {
            let graph = self.0.to_graph();
            let receives = graph.ids().filter(|id| &*graph.node(*id).op.name == "Placeholder");
            let arrivals: Vec<Arrival> =
                receives.map(|node| Arrival { node, bytes: 1 << 20, seconds: 0.25 }).collect();
            let late = receive_late(graph, &arrivals, |_, _| 1.0);
            assert_eq!(late.topological_order().len(), late.len(), "it is a circle");
            let is_late = |name: &&str| {
                let node = late.nodes().iter().find(|node| *node.name == **name).unwrap();
                !node.control_inputs.is_empty()
            };
            names.iter().map(is_late).collect()
        }
    }

    /// A reader that waits for the tensor, and for what comes of the tensor alone, is met before the
    /// latter is known for what it is: the tensor is needed at once.
    #[test]
    fn a_receive_does_not_follow_what_it_feeds() {
        let (mut part, ticks) = Part::new(10);
        let own = part.receive("own");
        let fed = part.chain(own, 5);
        part.join(fed[4], own);
        let other = part.receive("other");
        part.join(ticks[9], other);
        assert_eq!(part.late(&["own", "other"]), [false, true]);
    }

    /// Two tensors that are joined after some work on each: the one seems to be needed when the other's
    /// work has been done, and the other way round. One of them may follow.
    #[test]
    fn two_receives_do_not_follow_each_other() {
        let (mut part, ticks) = Part::new(10);
        let (left, right) = (part.receive("left"), part.receive("right"));
        let (of_left, of_right) = (part.chain(left, 6), part.chain(right, 6));
        part.join(of_left[5], of_right[5]);
        let other = part.receive("other");
        part.join(ticks[9], other);
        assert_eq!(part.late(&["left", "right", "other"]), [false, true, true]);
    }
}
