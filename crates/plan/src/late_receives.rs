//! Delayed receives: a `_Recv` of a large tensor starts just before its readers need the tensor.
//!
//! A tensor that arrives long before its reader is ready only occupies memory: a worker that receives
//! all weights of a model at once holds all of them. The costs of nodes give the earliest start of each
//! reader (as soon as possible schedule); the receive gets a control edge from a node that finishes
//! before that by the transfer time times `LEAD`.
//!
//! The edge comes only from a node that every reader of the tensor depends on, so no reader waits for
//! anything new and no deadlock is added. Receives are ordered by the time of their need, and each
//! follows nodes that depend only on earlier ones, so the edges never form a cycle. Graphs with control
//! flow stay unchanged: an edge from a dead branch would make the receive dead.

use smallvec::{SmallVec, smallvec};
use thalweg_graph::{Graph, NodeId, Successors};

/// Smaller tensors are received at once: they take little memory, and their transfer time is latency.
const BYTES_MIN: u64 = 64 << 10;
/// The lead of a receive, as a multiple of its transfer time.
const LEAD: f64 = 2.0;
/// Large tensors that are always in flight at once, whatever their estimated transfer time.
const IN_FLIGHT_MIN: usize = 3;
/// Most nodes that depend on nothing but the tensor.
const FORWARDERS_MAX: usize = 16;
/// Most nodes visited for all receives; beyond that, receives are not delayed.
const VISITS_MAX: usize = 4_000_000;

/// A tensor that is received from another device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    /// The `_Recv`.
    pub(crate) node: NodeId,
    /// Size of the tensor.
    pub(crate) bytes: u64,
    /// Transfer time.
    pub(crate) seconds: f64,
}

/// The graph of one device with receives of large tensors delayed. `seconds` is the cost of a node.
pub(crate) fn receive_late(
    mut graph: Graph,
    receives: &[Received],
    seconds: impl Fn(&Graph, NodeId) -> f64,
) -> Graph {
    let large: Vec<Received> = receives.iter().copied().filter(|a| a.bytes >= BYTES_MIN).collect();
    if large.len() <= IN_FLIGHT_MIN {
        return graph;
    }
    let order = graph.topological_order();
    if order.len() < graph.len() {
        return graph;
    }
    let mut finish = vec![0.0; graph.len()];
    receives.iter().for_each(|a| finish[a.node.index()] = f64::NAN);
    for &id in &order {
        // Receives count as instant: the schedule is for readers that never wait for them.
        finish[id.index()] = match finish[id.index()].is_nan() {
            true => 0.0,
            false => {
                latest(&graph, id, &finish, &[]).map_or(0.0, |(_, end)| end) + seconds(&graph, id)
            }
        };
    }
    let mut search =
        Search { successors: Successors::of(&graph), graph: &graph, finish, visits: 0 };
    let edges = search.edges(&large, &order);
    for (receive, after) in edges {
        graph.add_control_input(receive, after);
    }
    graph
}

/// Predecessor of `id` with the latest finish time, ignoring `except`, with that time.
fn latest(graph: &Graph, id: NodeId, finish: &[f64], except: &[NodeId]) -> Option<(NodeId, f64)> {
    let all = graph.node(id).predecessors().filter(|source| !except.contains(source));
    all.map(|source| (source, finish[source.index()])).reduce(|a, b| if b.1 > a.1 { b } else { a })
}

struct Search<'a> {
    graph: &'a Graph,
    successors: Successors,
    /// Earliest finish time of each node.
    finish: Vec<f64>,
    visits: usize,
}

/// The first use of a received tensor.
struct Use {
    received: Received,
    /// Earliest start of the first reader.
    at: f64,
    /// The predecessor of that reader that finishes last.
    last: NodeId,
    readers: SmallVec<[NodeId; 4]>,
}

impl Search<'_> {
    /// Receives, and the nodes that each is to follow. `order` is topological.
    fn edges(&mut self, receives: &[Received], order: &[NodeId]) -> Vec<(NodeId, NodeId)> {
        let mut uses: Vec<Use> = receives.iter().filter_map(|a| self.first_use(*a)).collect();
        uses.sort_by(|a, b| a.at.total_cmp(&b.at).then(a.received.node.cmp(&b.received.node)));
        let ranks = ranks(self.graph, &uses, order);
        let mut edges = Vec::new();
        for k in IN_FLIGHT_MIN..uses.len() {
            let first_use = &uses[k];
            let limit = first_use.at - LEAD * first_use.received.seconds;
            let limit = limit.min(uses[k - IN_FLIGHT_MIN].at);
            if let Some(after) = before(self.graph, &self.finish, first_use.last, limit)
                // It must not depend on this tensor, nor on one that is needed later.
                && ranks[after.index()] <= k
                && self.is_before_all(after, &first_use.readers)
            {
                edges.push((first_use.received.node, after));
            }
        }
        edges
    }

    /// The first use of a tensor; `None` if a reader could start at once. Nodes that depend on nothing
    /// but the tensor count as forwarders of it: their readers are its readers.
    fn first_use(&self, received: Received) -> Option<Use> {
        let mut forwarders: SmallVec<[NodeId; FORWARDERS_MAX]> = smallvec![received.node];
        let mut readers: SmallVec<[NodeId; 4]> = SmallVec::new();
        let mut first: Option<(NodeId, f64)> = None;
        let mut next = 0;
        while let Some(&id) = forwarders.get(next) {
            next += 1;
            for &reader in self.successors.after(id) {
                if readers.contains(&reader) || forwarders.contains(&reader) {
                    continue;
                }
                match latest(self.graph, reader, &self.finish, &forwarders) {
                    Some((last, at)) => {
                        readers.push(reader);
                        first = first.filter(|f| f.1 <= at).or(Some((last, at)));
                    }
                    None if forwarders.len() < FORWARDERS_MAX => forwarders.push(reader),
                    None => return None,
                }
            }
        }
        let (last, at) = first?;
        Some(Use { received, at, last, readers })
    }

    /// Whether all `readers` depend on `node`.
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

/// For each node, one more than the position in `uses` of the last tensor that it depends on; zero if
/// it depends on none.
fn ranks(graph: &Graph, uses: &[Use], order: &[NodeId]) -> Vec<usize> {
    let mut ranks = vec![0; graph.len()];
    uses.iter()
        .zip(1..)
        .for_each(|(first_use, rank)| ranks[first_use.received.node.index()] = rank);
    for id in order {
        let of_sources = graph.node(*id).predecessors().map(|source| ranks[source.index()]).max();
        ranks[id.index()] = ranks[id.index()].max(of_sources.unwrap_or(0));
    }
    ranks
}

/// The first node that finishes by `limit` on the critical path back from `node`, which is included;
/// `None` if it finishes at time zero or has no predecessor.
fn before(graph: &Graph, finish: &[f64], mut node: NodeId, limit: f64) -> Option<NodeId> {
    while finish[node.index()] > limit {
        node = latest(graph, node, finish, &[])?.0;
    }
    let is_worth_it =
        finish[node.index()] > 0.0 && graph.node(node).predecessors().next().is_some();
    is_worth_it.then_some(node)
}

#[cfg(test)]
mod tests {
    use thalweg_graph::{Output, Role, Scope};
    use thalweg_ops::{FAMILIES, op_registry};
    use thalweg_tensor::{DType, Tensor};

    use super::*;

    /// A graph of one device in which every node takes a second; placeholders are receives.
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

        /// Which of `names` are received late; the result must be acyclic.
        fn late(&self, names: &[&str]) -> Vec<bool> {
            let graph = self.0.to_graph();
            let receives = graph.ids().filter(|id| graph.node(*id).role() == Role::Placeholder);
            let receives: Vec<Received> =
                receives.map(|node| Received { node, bytes: 1 << 20, seconds: 0.25 }).collect();
            let late = receive_late(graph, &receives, |_, _| 1.0);
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
