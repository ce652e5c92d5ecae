//! One device per node: first what must hold, then the white paper's choice.
//!
//! What must hold: the device that the client wrote, colocation (`_class`), state beside the ops
//! that take it by reference or handle, and a kernel that exists. Then the graph is walked in
//! topological order on simulated devices, and each group goes where it would finish first.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thalweg_graph::{AttrValue, ControlFlow, Graph, Node, NodeId, OutputInfo, structural};
use thalweg_kernel::{DeviceDescription, DeviceSpec};
use thalweg_tensor::{Context, DType, Result, bail};

use crate::cost::tensor_bytes;
use crate::{Frames, Target, reads, topological_order};

/// Where nodes were put.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// For each node, the position of its device among the target's.
    pub devices: Vec<u32>,
    /// For each node, why it is there.
    pub reasons: Vec<Reason>,
    /// For each node, when it is predicted to start and finish, in seconds.
    pub predicted: Vec<(f64, f64)>,
}

/// Why a node is where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There was only one device it could be on.
    OnlyChoice,
    /// It belongs to a group that was placed by another member.
    Colocated,
    /// It finishes there first.
    EarliestFinish,
}

/// Gives every node a device; the nodes of the returned graph carry its full name.
pub fn place(graph: Graph, target: &Target<'_>) -> Result<(Graph, Placement)> {
    if target.devices.len() == 1 {
        return place_on_one(graph, target);
    }
    let frames = Frames::of(&graph)?;
    let mut loops = Loops::new(&frames);
    let (groups, feasible) = loop {
        let groups = Groups::of(&graph, &loops)?;
        match feasible_devices(&graph, &groups, &loops, target)? {
            Fit::Devices(feasible) => break (groups, feasible),
            Fit::Apart(frame) => loops.is_apart[frame as usize] = true,
        }
    };
    let placement = simulate(&graph, &groups, &feasible, target);
    let names: Vec<Arc<str>> = target.devices.iter().map(|d| d.name.to_string().into()).collect();
    let mut nodes = graph.nodes().to_vec();
    for (node, &device) in nodes.iter_mut().zip(&placement.devices) {
        node.device = names[device as usize].clone();
    }
    Ok((Graph::from_nodes(&graph, nodes), placement))
}

/// The common case: nothing to choose, so only check.
fn place_on_one(mut graph: Graph, target: &Target<'_>) -> Result<(Graph, Placement)> {
    let device = &target.devices[0];
    let name: Arc<str> = device.name.to_string().into();
    let mut specs = Specs::default();
    for id in graph.ids() {
        let node = graph.node(id);
        check_kernel(node, device, target)?;
        let is_there = node.device == name || specs.of(node)?.matches(&device.name);
        if !is_there && !target.options.allow_soft_placement {
            bail!(InvalidArgument, "{}", cannot_assign(node, target));
        }
    }
    for id in graph.ids() {
        graph.set_device(id, name.clone());
    }
    let placement = Placement {
        devices: vec![0; graph.len()],
        reasons: vec![Reason::OnlyChoice; graph.len()],
        predicted: Vec::new(),
    };
    Ok((graph, placement))
}

/// Device constraints as they were parsed: most nodes share one text.
#[derive(Default)]
struct Specs(FxHashMap<Arc<str>, DeviceSpec>);

impl Specs {
    fn of(&mut self, node: &Node) -> Result<&DeviceSpec> {
        if !self.0.contains_key(&node.device) {
            let spec: DeviceSpec =
                node.device.parse().context(|| format!("node '{}'", node.name))?;
            self.0.insert(node.device.clone(), spec);
        }
        Ok(&self.0[&node.device])
    }
}

fn needs_no_kernel(node: &Node) -> bool {
    node.op.is_function || structural::is_interpreted(&node.op.name)
}

fn check_kernel(node: &Node, device: &DeviceDescription, target: &Target<'_>) -> Result<()> {
    if needs_no_kernel(node) {
        return Ok(());
    }
    match target.kernels.find(node, &device.name.device_type) {
        Ok(_) => Ok(()),
        Err(e) => bail!(Unimplemented, "{}\n\t [[{{{{node {}}}}}]]", e.message(), node.name),
    }
}

fn cannot_assign(node: &Node, target: &Target<'_>) -> String {
    let exists = node
        .device
        .parse::<DeviceSpec>()
        .is_ok_and(|spec| target.devices.iter().any(|d| spec.matches(&d.name)));
    if exists {
        return format!(
            "Cannot assign a device for operation {name}: Could not satisfy explicit device \
             specification '{}' because no supported kernel of {} for such devices is available.\n\t \
             [[{{{{node {name}}}}}]]",
            node.device,
            node.op.name,
            name = node.name
        );
    }
    let devices: Vec<String> = target.devices.iter().map(|d| d.name.to_string()).collect();
    format!(
        "Cannot assign a device for operation {name}: {{{{node {name}}}}} was explicitly assigned to \
         {} but available devices are [ {} ]. Make sure the device specification refers to a valid \
         device.\n\t [[{name}]]",
        node.device,
        devices.join(", "),
        name = node.name
    )
}

/// The loops of a graph, and which of them need more than one device.
struct Loops<'a> {
    frames: &'a Frames,
    /// For each frame, the loop around all others that it stands in.
    outermost: Vec<u32>,
    /// For each outermost loop, whether its nodes go where they must, each by itself.
    is_apart: Vec<bool>,
}

impl<'a> Loops<'a> {
    fn new(frames: &'a Frames) -> Self {
        let mut outermost: Vec<u32> = Vec::with_capacity(frames.all.len());
        for (i, frame) in frames.all.iter().enumerate() {
            let own = i as u32;
            // A frame comes after the one it stands in.
            outermost.push(if frame.parent == 0 { own } else { outermost[frame.parent as usize] });
        }
        Loops { frames, outermost, is_apart: vec![false; frames.all.len()] }
    }

    /// The outermost loop around a node, if it is in one.
    fn around(&self, id: NodeId) -> Option<u32> {
        match self.frames.of[id.index()] {
            0 => None,
            frame => Some(self.outermost[frame as usize]),
        }
    }
}

/// Whether a node of a loop that needs several devices says itself where it is: by a wish, or by the
/// state that it takes or gives a handle of.
fn says_where(graph: &Graph, node: &Node) -> bool {
    let has_wish = !node.device.is_empty() && ControlFlow::of(&node.op.name).is_none();
    let is_state = |o: &OutputInfo| o.dtype == DType::Resource || o.is_ref;
    has_wish
        || node.outputs.iter().any(is_state)
        || node.inputs.iter().any(|&e| is_state(graph.output(e)))
}

/// Whether what a node gives is there in one iteration, but not in all: then it must be read where
/// the node is, as readers elsewhere would wait for it in each.
fn gives_once(node: &Node) -> bool {
    match ControlFlow::of(&node.op.name) {
        Some(ControlFlow::NextIteration) => true,
        Some(ControlFlow::Enter) => !node.attrs().bool("is_constant").unwrap_or(false),
        _ => false,
    }
}

/// Nodes that must share a device, as a union-find forest.
struct Groups {
    parent: Vec<u32>,
}

impl Groups {
    fn of(graph: &Graph, loops: &Loops<'_>) -> Result<Groups> {
        let mut groups = Groups { parent: (0..graph.len() as u32).collect() };
        for id in graph.ids() {
            let node = graph.node(id);
            // A reference or a handle is only good where its state lives.
            for endpoint in &node.inputs {
                if graph.output(*endpoint).dtype == DType::Resource {
                    groups.join(id, endpoint.node);
                }
            }
            for arg in node.op.inputs.iter().filter(|arg| arg.is_ref) {
                for endpoint in &node.inputs[node.input_range(&arg.name)?] {
                    groups.join(id, endpoint.node);
                }
            }
            if let Some(AttrValue::List(list)) = node.attrs.get("_class") {
                let names = list.s.iter().filter_map(|s| s.strip_prefix(b"loc:@"));
                for name in names.filter_map(|n| std::str::from_utf8(n).ok()) {
                    if let Some(other) = graph.find(name) {
                        groups.join(id, other);
                    }
                }
            }
        }
        groups.join_loops(graph, loops);
        for i in 0..graph.len() as u32 {
            groups.parent[i as usize] = groups.root(i);
        }
        Ok(groups)
    }

    /// A loop is a unit, with what enters it and the loops in it. One that needs several devices is
    /// one too, but for the nodes that say where they are.
    fn join_loops(&mut self, graph: &Graph, loops: &Loops<'_>) {
        let frames = loops.frames;
        let mut leaders: Vec<Option<NodeId>> = vec![None; frames.all.len()];
        for id in graph.ids() {
            let Some(outermost) = loops.around(id) else { continue };
            let is_apart = loops.is_apart[outermost as usize];
            let goes = |node: &Node| !is_apart || !says_where(graph, node);
            let (node, frame) = (graph.node(id), frames.of[id.index()]);
            for source in reads(node).filter(|&s| gives_once(graph.node(s))) {
                self.join(id, source);
            }
            if !goes(node) {
                continue;
            }
            let leader = *leaders[frame as usize].get_or_insert(id);
            self.join(id, leader);
            for source in reads(node).filter(|s| frames.of[s.index()] != frame) {
                if goes(graph.node(source)) {
                    self.join(id, source);
                }
            }
        }
    }

    /// The leader of a group; paths are halved on the way, so they stay short.
    fn root(&mut self, mut i: u32) -> u32 {
        while self.parent[i as usize] != i {
            self.parent[i as usize] = self.parent[self.parent[i as usize] as usize];
            i = self.parent[i as usize];
        }
        i
    }

    /// The leader, once all groups are joined and flat.
    fn root_of(&self, id: NodeId) -> u32 {
        self.parent[id.index()]
    }

    fn join(&mut self, a: NodeId, b: NodeId) {
        let (a, b) = (self.root(a.0), self.root(b.0));
        // The smaller id leads, so that equal graphs give equal groups.
        let (lead, other) = (a.min(b), a.max(b));
        self.parent[other as usize] = lead;
    }
}

/// Whether all groups have a device.
enum Fit {
    /// For each group (by its root), the devices that all members can be on.
    Devices(FxHashMap<u32, Vec<u32>>),
    /// This loop cannot be on one device.
    Apart(u32),
}

fn feasible_devices(
    graph: &Graph,
    groups: &Groups,
    loops: &Loops<'_>,
    target: &Target<'_>,
) -> Result<Fit> {
    let mut groups_choices: FxHashMap<u32, Choices> = FxHashMap::default();
    let mut specs = Specs::default();
    for id in graph.ids() {
        let node = graph.node(id);
        let choices = Choices::of(node, &mut specs, target)?;
        let root = groups.root_of(id);
        let Some(group) = groups_choices.get_mut(&root) else {
            groups_choices.insert(root, choices);
            continue;
        };
        group.narrow(&choices);
        if !group.able.is_empty() && !group.wanted.is_empty() {
            continue;
        }
        let in_group = |id: &NodeId| groups.root_of(*id) == root;
        let mut around = graph.ids().filter(in_group).filter_map(|id| loops.around(id));
        if let Some(frame) = around.find(|&frame| !loops.is_apart[frame as usize]) {
            return Ok(Fit::Apart(frame));
        }
        if group.able.is_empty() || !target.options.allow_soft_placement {
            let leader = graph.node(NodeId(root));
            bail!(
                InvalidArgument,
                "Cannot colocate nodes {{{{colocation_node {}}}}} (device '{}') and \
                 {{{{colocation_node {}}}}} (device '{}'): no device satisfies both, and what else \
                 is colocated with them\n\t [[{{{{node {}}}}}]]",
                node.name,
                node.device,
                leader.name,
                leader.device,
                node.name
            );
        }
    }
    let wanted_or_able = |c: Choices| if c.wanted.is_empty() { c.able } else { c.wanted };
    let feasible = groups_choices.into_iter().map(|(root, c)| (root, wanted_or_able(c)));
    Ok(Fit::Devices(feasible.collect()))
}

/// Devices that a node, or a group of nodes, can be on.
struct Choices {
    /// Where there are kernels, or where its state is already.
    able: Vec<u32>,
    /// Those of them that the client wants; empty only if it may not get what it wants.
    wanted: Vec<u32>,
}

impl Choices {
    fn of(node: &Node, specs: &mut Specs, target: &Target<'_>) -> Result<Choices> {
        let has_kernel = |d: &DeviceDescription| {
            needs_no_kernel(node) || target.kernels.find(node, &d.name.device_type).is_ok()
        };
        let pin = target.pins.get(&node.name);
        let able = |d: &DeviceDescription| pin.is_none_or(|p| *p == d.name) && has_kernel(d);
        let matching = |can: &dyn Fn(&DeviceDescription) -> bool| -> Vec<u32> {
            (0..target.devices.len() as u32).filter(|&d| can(&target.devices[d as usize])).collect()
        };
        let able = matching(&able);
        if able.is_empty() {
            check_kernel(node, &target.devices[0], target)?;
            bail!(
                InvalidArgument,
                "the state of '{}' is on a device that is not there any more\n\t [[{{{{node {}}}}}]]",
                node.name,
                node.name
            );
        }
        let spec = specs.of(node)?;
        let is_wanted = |d: &u32| spec.matches(&target.devices[*d as usize].name);
        let mut wanted: Vec<u32> = able.iter().copied().filter(is_wanted).collect();
        if wanted.is_empty() {
            if !target.options.allow_soft_placement {
                bail!(InvalidArgument, "{}", cannot_assign(node, target));
            }
            wanted.clone_from(&able);
        }
        Ok(Choices { able, wanted })
    }

    fn narrow(&mut self, other: &Choices) {
        self.able.retain(|d| other.able.contains(d));
        self.wanted.retain(|d| other.wanted.contains(d));
    }
}

/// Walks the graph on simulated devices and decides group by group.
fn simulate(
    graph: &Graph,
    groups: &Groups,
    feasible: &FxHashMap<u32, Vec<u32>>,
    target: &Target<'_>,
) -> Placement {
    let mut free_at = vec![0.0f64; target.devices.len()];
    let mut decided: FxHashMap<u32, u32> = FxHashMap::default();
    let mut placement = Placement {
        devices: vec![0; graph.len()],
        reasons: vec![Reason::OnlyChoice; graph.len()],
        predicted: vec![(0.0, 0.0); graph.len()],
    };
    for id in topological_order(graph) {
        let root = groups.root_of(id);
        let choices = &feasible[&root];
        let finish = |d: u32| {
            let device = &target.devices[d as usize];
            let arrival = |source: NodeId, bytes: u64| {
                let from = &target.devices[placement.devices[source.index()] as usize];
                placement.predicted[source.index()].1
                    + target.links.seconds(&from.name, &device.name, bytes)
            };
            let node = graph.node(id);
            let data = node.inputs.iter().map(|e| arrival(e.node, tensor_bytes(graph, *e)));
            let control = node.control_inputs.iter().map(|&source| arrival(source, 0));
            let start = data.chain(control).fold(free_at[d as usize], f64::max);
            (start, start + target.costs.cost(graph, id, device).seconds)
        };
        let (device, reason) = match (decided.get(&root), &choices[..]) {
            (Some(&device), _) => (device, Reason::Colocated),
            (None, [only]) => (*only, Reason::OnlyChoice),
            // Of equals the first: `min_by` keeps it.
            (None, several) => {
                let best =
                    several.iter().copied().min_by(|&a, &b| finish(a).1.total_cmp(&finish(b).1));
                (best.unwrap_or(0), Reason::EarliestFinish)
            }
        };
        let (start, end) = finish(device);
        decided.insert(root, device);
        free_at[device as usize] = end;
        placement.devices[id.index()] = device;
        placement.reasons[id.index()] = reason;
        placement.predicted[id.index()] = (start, end);
    }
    placement
}
