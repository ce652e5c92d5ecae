//! Placement by the cost model: the graph is played on the devices in virtual time, one node after the
//! other, and each colocation group goes where its node would finish first.
//!
//! A device runs one kernel at a time; a tensor arrives after the latency of its link and the time that
//! its bytes take. Nodes without work whose inputs are all such nodes (constants, variables, reads of
//! them) are deferred: they go to the device of the first node that needs them, since where they are
//! costs nothing until then.

mod links;
mod memory;
mod order;

use rustc_hash::FxHashMap;
use thalweg_graph::{Graph, Node, NodeId, WorkContext};
use thalweg_tensor::{Error, Result, err};

use self::links::LinkTable;
use self::memory::Memory;
use crate::Target;
use crate::choose::by_default;
use crate::groups::Groups;
use crate::place::{Placement, Reason};

/// Most devices that are tried for a node: those of its inputs, and those that are free first.
const TRIED_MAX: usize = 16;
/// What remains at most of the duration by the default rules if another placement is to be chosen:
/// predictions are not better than that.
const GAIN_MIN: f64 = 0.9;
/// Most devices for which the automatic choice tries to put everything on one.
const SINGLE_DEVICES_MAX: u32 = 8;

/// Which ready node is placed next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The one with the longest path below it.
    LongestPath,
    /// The one that can start first, as in m-ETF (earliest task first, under memory limits).
    EarliestStart,
}

/// The best of the default rules, both orders, and everything on one device, by predicted duration.
pub(crate) fn by_best(
    graph: &Graph,
    groups: &Groups<'_>,
    target: &Target<'_>,
) -> Result<Placement> {
    let problem = Problem::new(graph, groups, target);
    let default = problem.evaluate(&by_default(graph, groups, target));
    let mut found: Vec<Result<Placement>> = Vec::new();
    for order in [Order::LongestPath, Order::EarliestStart] {
        found.push(problem.place(order, &mut |_| None));
    }
    for device in 0..(target.devices.len() as u32).min(SINGLE_DEVICES_MAX) {
        let single = &mut |root: u32| groups.devices(root).contains(&device).then_some(device);
        found.push(problem.place(Order::LongestPath, single));
    }
    let mut best: Option<Placement> = None;
    let mut refused = None;
    for placement in found {
        match placement {
            Ok(placement) if best.as_ref().is_none_or(|b| placement.seconds < b.seconds) => {
                best = Some(placement);
            }
            Ok(_) => {}
            Err(e) => refused = refused.or(Some(e)),
        }
    }
    match (default, best) {
        (Ok(default), Some(best)) if best.seconds > GAIN_MIN * default.seconds => Ok(default),
        (_, Some(best)) => Ok(best),
        (Ok(default), None) => Ok(default),
        (Err(_), None) => Err(refused.unwrap_or_else(|| err!(Internal, "no placement was tried"))),
    }
}

/// Places every group where its first node that costs something would finish first.
pub(crate) fn by_finish(
    graph: &Graph,
    groups: &Groups<'_>,
    target: &Target<'_>,
    order: Order,
) -> Result<Placement> {
    Problem::new(graph, groups, target).place(order, &mut |_| None)
}

/// A device for the group with this root, if one is given.
type Given<'a> = dyn FnMut(u32) -> Option<u32> + 'a;

/// A graph and the devices it is placed on.
struct Problem<'a> {
    graph: &'a Graph,
    groups: &'a Groups<'a>,
    target: &'a Target<'a>,
    links: LinkTable<'a>,
    /// The nodes in topological order.
    topological: Vec<NodeId>,
    /// For each node, the seconds of the longest path from its start to the end of the step.
    below: Vec<f64>,
    /// Nodes that go to the device of the first node that needs them.
    is_deferred: Vec<bool>,
    /// The nodes of the groups that have several and that have work.
    members: FxHashMap<u32, Vec<NodeId>>,
}

impl<'a> Problem<'a> {
    fn new(graph: &'a Graph, groups: &'a Groups<'a>, target: &'a Target<'a>) -> Problem<'a> {
        let topological = graph.topological_order();
        let mut is_deferred = vec![false; graph.len()];
        for &id in &topological {
            let node = graph.node(id);
            is_deferred[id.index()] = is_free(graph, node)
                && node.predecessors().all(|source| is_deferred[source.index()]);
        }
        let mut problem = Problem {
            graph,
            groups,
            target,
            links: LinkTable::new(target),
            below: Vec::new(),
            members: members(graph, groups, &is_deferred),
            topological,
            is_deferred,
        };
        problem.below = order::longest_paths(&problem);
        problem
    }

    fn seconds(&self, id: NodeId, device: u32) -> f64 {
        let device = &self.target.devices[device as usize];
        self.target.costs.cost(self.graph, id, device).seconds
    }

    /// The placement with the times that the cost model predicts for it.
    fn evaluate(&self, placement: &Placement) -> Result<Placement> {
        let mut of_root: FxHashMap<u32, u32> = FxHashMap::default();
        for id in self.graph.ids() {
            of_root.entry(self.groups.root_of(id)).or_insert(placement.devices[id.index()]);
        }
        let played = self.place(Order::LongestPath, &mut |root| of_root.get(&root).copied())?;
        Ok(Placement { reasons: placement.reasons.clone(), ..played })
    }

    fn place(&self, order: Order, given: &mut Given<'_>) -> Result<Placement> {
        let mut state = Schedule::new(self);
        let mut ready = order::Ready::new(self, order);
        while let Some(id) = ready.next(&state) {
            state.place(id, given)?;
            ready.placed(self, id);
        }
        // What lies on a cycle that is no loop of the graph is refused by the partitioner.
        for id in self.graph.ids() {
            if state.devices[id.index()] == NOWHERE {
                state.settle(id, 0, given);
            }
        }
        Ok(state.finish())
    }
}

/// The nodes of groups of several, without the deferred ones.
fn members(
    graph: &Graph,
    groups: &Groups<'_>,
    is_deferred: &[bool],
) -> FxHashMap<u32, Vec<NodeId>> {
    let mut members: FxHashMap<u32, Vec<NodeId>> = FxHashMap::default();
    for id in graph.ids().filter(|id| !is_deferred[id.index()]) {
        members.entry(groups.root_of(id)).or_default().push(id);
    }
    members.retain(|_, nodes| nodes.len() > 1);
    members
}

/// Whether a node states no work: it is there at once wherever it is.
fn is_free(graph: &Graph, node: &Node) -> bool {
    let work = WorkContext::new(graph, node).work();
    work.flops == 0.0 && work.bytes == 0.0 && work.seconds == 0.0 && !node.role().is_transfer()
}

/// The device of a node that has none yet.
const NOWHERE: u32 = u32::MAX;

/// The devices in virtual time while nodes are placed.
struct Schedule<'a> {
    problem: &'a Problem<'a>,
    /// When each device has run what it has.
    free_at: Vec<f64>,
    devices: Vec<u32>,
    times: Vec<(f64, f64)>,
    reasons: Vec<Reason>,
    elsewhere: Vec<Box<[(u32, f64)]>>,
    /// The devices of groups, by root.
    decided: FxHashMap<u32, u32>,
    memory: Memory,
}

impl<'a> Schedule<'a> {
    fn new(problem: &'a Problem<'a>) -> Schedule<'a> {
        let nodes = problem.graph.len();
        Schedule {
            problem,
            free_at: vec![0.0; problem.target.devices.len()],
            devices: vec![NOWHERE; nodes],
            times: vec![(0.0, 0.0); nodes],
            reasons: vec![Reason::OnlyDevice; nodes],
            elsewhere: vec![Box::default(); nodes],
            decided: FxHashMap::default(),
            memory: Memory::new(
                problem.graph,
                problem.target.devices.iter().map(|d| d.memory_bytes).collect(),
            ),
        }
    }

    /// When `id` would start on a device.
    fn start(&self, id: NodeId, device: u32) -> f64 {
        let Problem { graph, target, links, .. } = self.problem;
        let node = graph.node(id);
        let arrival = |source: NodeId, bytes: u64| {
            let from = self.devices[source.index()];
            // A deferred node comes to the device of its reader, if it can be there.
            if from == NOWHERE {
                return 0.0;
            }
            self.times[source.index()].1 + links.seconds(from, device, bytes)
        };
        let data = node.inputs.iter().map(|&e| {
            let is_here = self.devices[e.node.index()] == device;
            arrival(e.node, if is_here { 0 } else { target.costs.tensor_bytes(graph, e) })
        });
        let control = node.control_inputs.iter().map(|&source| arrival(source, 0));
        data.chain(control).fold(self.free_at[device as usize], f64::max)
    }

    /// When `id` would finish on a device, with what remains of its group.
    fn finish_of_group(&self, id: NodeId, device: u32) -> f64 {
        let own = self.start(id, device) + self.problem.seconds(id, device);
        let members = self.problem.members.get(&self.problem.groups.root_of(id));
        let others = members.into_iter().flatten().filter(|&&other| other != id);
        own + others.map(|&other| self.problem.seconds(other, device)).sum::<f64>()
    }

    /// The earliest start of `id` over the devices that it may be on.
    fn earliest_start(&self, id: NodeId) -> f64 {
        let root = self.problem.groups.root_of(id);
        match self.decided.get(&root) {
            Some(&device) => self.start(id, device),
            None => {
                let tried = self.tried(id);
                tried.iter().map(|&d| self.start(id, d)).fold(f64::INFINITY, f64::min)
            }
        }
    }

    /// The feasible devices worth trying.
    fn tried(&self, id: NodeId) -> Vec<u32> {
        let feasible = self.problem.groups.devices(self.problem.groups.root_of(id));
        if feasible.len() <= TRIED_MAX {
            return feasible.to_vec();
        }
        let node = self.problem.graph.node(id);
        let near = node.predecessors().map(|source| self.devices[source.index()]);
        let mut tried: Vec<u32> =
            near.filter(|d| feasible.binary_search(d).is_ok()).take(TRIED_MAX / 2).collect();
        let mut by_time: Vec<u32> = feasible.to_vec();
        let count = TRIED_MAX - tried.len();
        let earlier = |a: &u32, b: &u32| {
            let (at_a, at_b) = (self.free_at[*a as usize], self.free_at[*b as usize]);
            at_a.total_cmp(&at_b).then(a.cmp(b))
        };
        by_time.select_nth_unstable_by(count, earlier);
        tried.extend_from_slice(&by_time[..count]);
        tried.sort_unstable();
        tried.dedup();
        tried
    }

    /// Places a node that is not deferred, and the deferred ones that it needs.
    fn place(&mut self, id: NodeId, given: &mut Given<'_>) -> Result<()> {
        let root = self.problem.groups.root_of(id);
        let device = match self.decided.get(&root) {
            Some(&device) => {
                self.reasons[id.index()] = Reason::Colocated;
                device
            }
            None => self.decide(id, root, given)?,
        };
        for source in self.problem.graph.node(id).predecessors() {
            self.settle(source, device, given);
        }
        let start = self.start(id, device);
        let end = start + self.problem.seconds(id, device);
        self.free_at[device as usize] = end;
        self.devices[id.index()] = device;
        self.times[id.index()] = (start, end);
        let Problem { graph, target, .. } = self.problem;
        match self.memory.ran((graph, target.costs), &self.devices, id) {
            true => Ok(()),
            false => Err(self.no_room(id, device)),
        }
    }

    /// Decides the device of a group by its node `id`.
    fn decide(&mut self, id: NodeId, root: u32, given: &mut Given<'_>) -> Result<u32> {
        let feasible = self.problem.groups.devices(root);
        let (device, reason) = match (given(root), feasible) {
            (Some(device), _) => (device, Reason::Given),
            (None, [only]) => (*only, self.reason_of_only(id)),
            (None, _) => {
                let tried = self.tried(id);
                let mut finish: Vec<(u32, f64)> =
                    tried.iter().map(|&d| (d, self.finish_of_group(id, d))).collect();
                // Ties go to the first device.
                finish.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
                let first = finish.first().map_or(0, |f| f.0);
                let best = finish.iter().find(|(d, _)| self.fits(id, *d));
                let device = best.map(|f| f.0).ok_or_else(|| self.no_room(id, first))?;
                self.elsewhere[id.index()] = finish.into_boxed_slice();
                (device, if device == first { Reason::EarliestFinish } else { Reason::Memory })
            }
        };
        self.reasons[id.index()] = reason;
        self.decided.insert(root, device);
        Ok(device)
    }

    fn reason_of_only(&self, id: NodeId) -> Reason {
        match self.problem.graph.node(id).device.is_empty() {
            true => Reason::OnlyDevice,
            false => Reason::Constraint,
        }
    }

    /// Whether a device has the memory for `id` and what would come with it.
    fn fits(&self, id: NodeId, device: u32) -> bool {
        self.memory.has_room(device, self.needed_bytes(id, device))
    }

    fn needed_bytes(&self, id: NodeId, device: u32) -> u64 {
        let Problem { graph, target, .. } = self.problem;
        self.memory.needed_bytes((graph, target.costs), &self.devices, (id, device))
    }

    fn no_room(&self, id: NodeId, device: u32) -> Error {
        let (node, target) = (self.problem.graph.node(id), self.problem.target);
        let device_of = &target.devices[device as usize];
        let e = err!(
            ResourceExhausted,
            "by the cost model {} has no room for '{}': it needs {} bytes more, and the limit is {}",
            device_of.name,
            node.name,
            self.needed_bytes(id, device),
            device_of.memory_bytes
        );
        e.at_node(&node.name)
    }

    /// Gives a deferred node and those before it `device`, or the first that they may be on.
    fn settle(&mut self, id: NodeId, device: u32, given: &mut Given<'_>) {
        let mut stack = vec![id];
        while let Some(id) = stack.pop() {
            if self.devices[id.index()] != NOWHERE {
                continue;
            }
            let root = self.problem.groups.root_of(id);
            let feasible = self.problem.groups.devices(root);
            let (own, reason) = match self.decided.get(&root) {
                Some(&decided) => (decided, Reason::Colocated),
                None => match given(root) {
                    Some(given) => (given, Reason::Given),
                    None if feasible.len() == 1 => (feasible[0], self.reason_of_only(id)),
                    None if feasible.binary_search(&device).is_ok() => {
                        (device, Reason::WithReaders)
                    }
                    None => (feasible.first().copied().unwrap_or(0), Reason::Default),
                },
            };
            self.decided.insert(root, own);
            self.devices[id.index()] = own;
            self.reasons[id.index()] = reason;
            self.memory.holds(self.problem.graph.node(id), own);
            stack.extend(self.problem.graph.node(id).predecessors());
        }
    }

    fn finish(self) -> Placement {
        let seconds = self.times.iter().map(|(_, end)| *end).fold(0.0, f64::max);
        Placement {
            devices: self.devices,
            reasons: self.reasons,
            predicted: self.times,
            elsewhere: self.elsewhere,
            seconds,
        }
    }
}
