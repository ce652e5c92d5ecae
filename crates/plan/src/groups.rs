//! Colocation groups: nodes that must share a device, and the devices that each group can be on.
//!
//! References and resource handles are valid only on the device of their state, so a node that takes
//! one is colocated with the node that makes it; if the two have different device constraints, that
//! of the state counts, as in TensorFlow. The attr `_class` colocates nodes too, and then both
//! constraints must be met.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thalweg_graph::{AttrValue, Graph, Node, NodeId, OutputInfo, Role};
use thalweg_kernel::{ACCELERATORS, DeviceDescription};
use thalweg_tensor::{DType, Error, Result, err};

use crate::host_state::HostState;
use crate::place::{Specs, cannot_assign, check_kernel};
use crate::{Frames, Target};

/// Colocation groups as a union-find forest.
pub(crate) struct Groups<'a> {
    graph: &'a Graph,
    target: &'a Target<'a>,
    parent: Vec<u32>,
    feasible: Vec<Feasible>,
    /// Whether device constraints of a loop's nodes may be ignored to keep the loop on one device.
    ignores_loop_constraints: bool,
}

/// Positions of devices, ascending.
type Devices = Arc<[u32]>;

/// Devices that a node, or a group of nodes, can be on.
#[derive(Clone)]
struct Feasible {
    /// Devices with kernels; of existing state, the device that it is on.
    supported: Devices,
    /// Those of them that match the client's constraints; empty only under soft placement.
    requested: Devices,
}

/// Why two nodes are colocated.
#[derive(Clone, Copy, PartialEq)]
enum Cause {
    /// The attr `_class` of one names the other.
    Class,
    /// The second takes a reference or handle from the first.
    State,
    /// They belong to one loop.
    Loop,
}

impl<'a> Groups<'a> {
    /// The groups of `graph`.
    pub(crate) fn of(
        graph: &'a Graph,
        frames: &Frames,
        target: &'a Target<'a>,
        host_state: &'a HostState,
    ) -> Result<Self> {
        let mut finder = FeasibleFinder::new(target, host_state);
        let feasible: Result<Vec<Feasible>> = graph.nodes().iter().map(|n| finder.of(n)).collect();
        let parent = (0..graph.len() as u32).collect();
        let mut groups =
            Groups { graph, target, parent, feasible: feasible?, ignores_loop_constraints: false };
        groups.join_state()?;
        groups.join_classes()?;
        if frames.has_loops() {
            groups.join_all_loops(frames)?;
        }
        for i in 0..graph.len() as u32 {
            groups.parent[i as usize] = groups.root(i);
        }
        Ok(groups)
    }

    /// The root of a node's group.
    pub(crate) fn root_of(&self, id: NodeId) -> u32 {
        self.parent[id.index()]
    }

    /// The devices that the group with this root can be on.
    pub(crate) fn devices(&self, root: u32) -> &[u32] {
        let feasible = &self.feasible[root as usize];
        if feasible.requested.is_empty() { &feasible.supported } else { &feasible.requested }
    }

    fn join_state(&mut self) -> Result<()> {
        let graph = self.graph;
        for id in graph.ids() {
            let node = graph.node(id);
            for endpoint in &node.inputs {
                if graph.output(*endpoint).dtype == DType::Resource {
                    self.join(endpoint.node, id, Cause::State)?;
                }
            }
            for arg in node.op.inputs.iter().filter(|arg| arg.is_ref) {
                for endpoint in &node.inputs[node.input_range(&arg.name)?] {
                    self.join(endpoint.node, id, Cause::State)?;
                }
            }
        }
        Ok(())
    }

    fn join_classes(&mut self) -> Result<()> {
        let graph = self.graph;
        // Nodes that name the same node are colocated even if it is not part of this step.
        let mut absent: FxHashMap<&str, NodeId> = FxHashMap::default();
        for id in graph.ids() {
            for name in colocation_classes(graph.node(id)) {
                let other = graph.find(name).unwrap_or_else(|| *absent.entry(name).or_insert(id));
                self.join(other, id, Cause::Class)?;
            }
        }
        Ok(())
    }

    /// Colocates the nodes of each loop as far as possible.
    fn join_all_loops(&mut self, frames: &Frames) -> Result<()> {
        let mut loops = Loops::new(frames);
        let before = (self.parent.clone(), self.feasible.clone());
        loop {
            match self.join_loops(&loops) {
                Ok(()) => return Ok(()),
                Err((blamed, error)) => match loops.next_to_split(blamed) {
                    Some(frame) => loops.is_split[frame as usize] = true,
                    // Soft placement ignores constraints only as the last resort.
                    None if self.target.options.allow_soft_placement
                        && !self.ignores_loop_constraints =>
                    {
                        self.ignores_loop_constraints = true;
                    }
                    None => return Err(error),
                },
            }
            (self.parent, self.feasible) = before.clone();
        }
    }

    /// Colocates each loop with its `Enter` nodes and inner loops. In a loop that is split over devices,
    /// nodes with constraints or state of their own are left out. An error comes with the outermost
    /// loop that cannot be on one device.
    fn join_loops(&mut self, loops: &Loops<'_>) -> Result<(), (u32, Error)> {
        let (graph, frames) = (self.graph, loops.frames);
        let mut firsts: Vec<Option<NodeId>> = vec![None; frames.all.len()];
        for id in graph.ids() {
            let Some(outermost) = loops.around(id) else { continue };
            let is_split = loops.is_split[outermost as usize];
            let joins = |node: &Node| !is_split || !is_bound(graph, node);
            let (node, frame) = (graph.node(id), frames.of[id.index()]);
            for source in node.predecessors().filter(|&s| is_single_iteration(graph.node(s))) {
                self.join(source, id, Cause::Loop).map_err(|e| (outermost, e))?;
            }
            if !joins(node) {
                continue;
            }
            let first_of_frame = *firsts[frame as usize].get_or_insert(id);
            let sources = node.predecessors().filter(|s| frames.of[s.index()] != frame);
            let sources = sources.filter(|&s| joins(graph.node(s)));
            for other in std::iter::once(first_of_frame).chain(sources) {
                self.join(other, id, Cause::Loop).map_err(|e| (outermost, e))?;
            }
        }
        Ok(())
    }

    /// The root of a node's group, with path halving.
    fn root(&mut self, mut i: u32) -> u32 {
        while self.parent[i as usize] != i {
            self.parent[i as usize] = self.parent[self.parent[i as usize] as usize];
            i = self.parent[i as usize];
        }
        i
    }

    fn join(&mut self, first: NodeId, second: NodeId, cause: Cause) -> Result<()> {
        let (a, b) = (self.root(first.0), self.root(second.0));
        if a == b {
            return Ok(());
        }
        let (of_a, of_b) = (&self.feasible[a as usize], &self.feasible[b as usize]);
        let supported = common(&of_a.supported, &of_b.supported);
        let mut requested = common(&of_a.requested, &of_b.requested);
        if requested.is_empty() && cause == Cause::State {
            requested = common(&of_a.requested, &supported);
        }
        let is_soft = match cause {
            Cause::Loop => self.ignores_loop_constraints,
            Cause::Class | Cause::State => self.target.options.allow_soft_placement,
        };
        if supported.is_empty() || (requested.is_empty() && !is_soft) {
            return self.refuse(first, second, cause);
        }
        // The smaller id becomes the root, so that equal graphs give equal groups.
        let (root, other) = (a.min(b), a.max(b));
        self.parent[other as usize] = root;
        self.feasible[root as usize] = Feasible { supported, requested };
        Ok(())
    }

    fn refuse(&self, first: NodeId, second: NodeId, cause: Cause) -> Result<()> {
        let (a, b) = (self.graph.node(first), self.graph.node(second));
        let place = |n: &Node| match n.device.is_empty() {
            true => "no device of its own".to_owned(),
            false => format!("device '{}'", n.device),
        };
        let e = match cause {
            Cause::Loop => err!(
                InvalidArgument,
                "{{{{node {}}}}} ({}) and {{{{node {}}}}} ({}) belong to a loop that cannot be split over \
                 devices",
                b.name,
                place(b),
                a.name,
                place(a)
            ),
            Cause::State => err!(
                InvalidArgument,
                "{{{{node {}}}}} ({}) is colocated with {{{{node {}}}}} ({}), which takes its state, \
                 but no device satisfies both groups",
                a.name,
                place(a),
                b.name,
                place(b)
            ),
            Cause::Class => err!(
                InvalidArgument,
                "Cannot colocate nodes {{{{colocation_node {}}}}} ({}) and {{{{colocation_node {}}}}} \
                 ({}): no device satisfies both and their colocation groups",
                b.name,
                place(b),
                a.name,
                place(a)
            ),
        };
        Err(e.at_node(&b.name))
    }
}

/// The names of the nodes with which the attr `_class` colocates this one.
pub(crate) fn colocation_classes(node: &Node) -> impl Iterator<Item = &str> {
    let classes = match node.attrs.get("_class") {
        Some(AttrValue::List(list)) => &list.s[..],
        _ => &[],
    };
    let names = classes.iter().filter_map(|class| class.strip_prefix(b"loc:@"));
    names.filter_map(|name| std::str::from_utf8(name).ok())
}

/// The loops of a graph, and which of them are split over devices.
struct Loops<'a> {
    frames: &'a Frames,
    /// For each frame, its outermost enclosing loop.
    outermost: Vec<u32>,
    /// For each outermost loop, whether it is split over devices.
    is_split: Vec<bool>,
}

impl<'a> Loops<'a> {
    fn new(frames: &'a Frames) -> Self {
        let mut outermost: Vec<u32> = Vec::with_capacity(frames.all.len());
        for (i, frame) in frames.all.iter().enumerate() {
            let own = i as u32;
            // A frame comes after its parent.
            outermost.push(if frame.parent == 0 { own } else { outermost[frame.parent as usize] });
        }
        Loops { frames, outermost, is_split: vec![false; frames.all.len()] }
    }

    /// The outermost loop around a node, if it is in one.
    fn around(&self, id: NodeId) -> Option<u32> {
        match self.frames.of[id.index()] {
            0 => None,
            frame => Some(self.outermost[frame as usize]),
        }
    }

    /// The loop to split next: `blamed`, or another one if it is split already.
    fn next_to_split(&self, blamed: u32) -> Option<u32> {
        let is_whole = |frame: &u32| {
            *frame != 0
                && self.outermost[*frame as usize] == *frame
                && !self.is_split[*frame as usize]
        };
        let all = 0..self.frames.all.len() as u32;
        std::iter::once(blamed).chain(all).find(is_whole)
    }
}

/// Whether a node has a device constraint, or takes or makes a reference or handle of state.
fn is_bound(graph: &Graph, node: &Node) -> bool {
    let is_state = |o: &OutputInfo| o.dtype == DType::Resource || o.is_ref;
    !node.device.is_empty()
        || node.outputs.iter().any(is_state)
        || node.inputs.iter().any(|&e| is_state(graph.output(e)))
}

/// Whether a node's output exists in one iteration only. Its readers must be on its device: a `_Recv`
/// on another device would wait for it in every iteration.
fn is_single_iteration(node: &Node) -> bool {
    match node.role() {
        Role::NextIteration => true,
        Role::Enter => !node.attrs().bool("is_constant").unwrap_or(false),
        _ => false,
    }
}

fn common(a: &Devices, b: &Devices) -> Devices {
    if Arc::ptr_eq(a, b) {
        return a.clone();
    }
    // Both are sorted.
    a.iter().copied().filter(|d| b.binary_search(d).is_ok()).collect()
}

/// Finds the feasible devices of nodes; most nodes share a few sets.
struct FeasibleFinder<'a> {
    target: &'a Target<'a>,
    host_state: &'a HostState,
    specs: Specs,
    all: Devices,
    by_text: FxHashMap<Arc<str>, Devices>,
    types: Vec<&'a str>,
}

impl<'a> FeasibleFinder<'a> {
    fn new(target: &'a Target<'a>, host_state: &'a HostState) -> Self {
        let mut types: Vec<&str> =
            target.devices.iter().map(|d| d.name.device_type.as_str()).collect();
        types.sort_unstable();
        types.dedup();
        let all = (0..target.devices.len() as u32).collect();
        FeasibleFinder {
            target,
            host_state,
            specs: Specs::default(),
            all,
            by_text: FxHashMap::default(),
            types,
        }
    }

    /// Devices that match the node's constraint.
    fn matching(&mut self, node: &Node) -> Result<Devices> {
        if let Some(known) = self.by_text.get(&node.device) {
            return Ok(known.clone());
        }
        let spec = self.specs.of(node)?;
        let devices = self.target.devices;
        let matching: Devices = if node.device.is_empty() {
            self.all.clone()
        } else {
            self.all.iter().copied().filter(|&d| spec.matches(&devices[d as usize].name)).collect()
        };
        self.by_text.insert(node.device.clone(), matching.clone());
        Ok(matching)
    }

    fn supported(&self, node: &Node) -> Devices {
        let is_host_state = self.host_state.contains(&node.name);
        let has_kernel = |device_type: &&str| {
            if is_host_state && ACCELERATORS.contains(device_type) {
                return false;
            }
            node.role().is_interpreted() || self.target.kernels.find(node, device_type).is_ok()
        };
        let types: Vec<&str> = self.types.iter().copied().filter(|t| has_kernel(t)).collect();
        let pin = self.target.pins.get(&node.name);
        if pin.is_none() && types.len() == self.types.len() {
            return self.all.clone();
        }
        let can = |d: &DeviceDescription| {
            pin.is_none_or(|p| *p == d.name) && types.contains(&d.name.device_type.as_str())
        };
        self.all.iter().copied().filter(|&d| can(&self.target.devices[d as usize])).collect()
    }

    fn of(&mut self, node: &Node) -> Result<Feasible> {
        let supported = self.supported(node);
        if supported.is_empty() {
            check_kernel(node, &self.target.devices[0], self.target)?;
            let e = err!(
                InvalidArgument,
                "the state of '{}' is on a device that does not exist any more",
                node.name
            );
            return Err(e.at_node(&node.name));
        }
        let mut requested = common(&self.matching(node)?, &supported);
        if requested.is_empty() {
            // The device of existing state overrides the constraint.
            let is_pinned = self.target.pins.contains_key(&node.name);
            if !is_pinned && !self.target.options.allow_soft_placement {
                return Err(cannot_assign(node, self.target));
            }
            requested = supported.clone();
        }
        Ok(Feasible { supported, requested })
    }
}
