//! Choice of a device for each colocation group among the feasible ones.

use rustc_hash::FxHashMap;
use thalweg_graph::{Graph, Node, NodeId};

use crate::Target;
use crate::aliases::{Aliases, forwarded_inputs};
use crate::cost::tensor_bytes;
use crate::groups::Groups;
use crate::place::{Placement, Reason};

/// TensorFlow's default: an accelerator of the client's task if one is feasible, then the client's
/// device, then the first by name. A source node
/// goes to the device of its readers if all are on one (TensorFlow's heuristic A).
pub(crate) fn by_default(graph: &Graph, groups: &Groups<'_>, target: &Target<'_>) -> Placement {
    let mut rank: Vec<u32> = (0..target.devices.len() as u32).collect();
    let names: Vec<String> = target.devices.iter().map(|d| d.name.to_string()).collect();
    let is_near = |d: u32| target.devices[d as usize].name.is_same_task(&target.devices[0].name);
    let is_accelerator = |d: u32| target.devices[d as usize].is_accelerator();
    rank.sort_by_key(|&d| (!(is_near(d) && is_accelerator(d)), d != 0, &names[d as usize]));
    let mut position = vec![0u32; rank.len()];
    rank.iter().enumerate().for_each(|(i, &d)| position[d as usize] = i as u32);

    let mut chosen: FxHashMap<u32, u32> = FxHashMap::default();
    let mut reasons = vec![Reason::Colocated; graph.len()];
    let mut choose = |id: NodeId, preferred: Option<u32>, reasons: &mut Vec<Reason>| {
        let root = groups.root_of(id);
        *chosen.entry(root).or_insert_with(|| {
            let devices = groups.devices(root);
            let preferred = preferred.filter(|d| devices.contains(d));
            reasons[id.index()] = match (devices.len(), preferred) {
                (1, _) => Reason::OnlyChoice,
                (_, Some(_)) => Reason::WithReaders,
                _ => Reason::Default,
            };
            let first = devices.iter().copied().min_by_key(|&d| position[d as usize]);
            preferred.or(first).unwrap_or(0)
        })
    };
    let mut devices = vec![u32::MAX; graph.len()];
    let forwards = forwards_of_references(graph);
    let mut is_left = vec![true; graph.len()];
    forwards.iter().for_each(|id| is_left[id.index()] = false);
    for id in graph.ids().filter(|id| is_left[id.index()] && !is_source(graph.node(*id))) {
        devices[id.index()] = choose(id, None, &mut reasons);
    }
    for &id in &forwards {
        // On the reference's device it is the variable itself; a copy elsewhere would see no later update.
        let source = graph.node(id).inputs.iter().map(|e| devices[e.node.index()]);
        let preferred = source.min().filter(|&d| d != u32::MAX && is_near(d));
        devices[id.index()] = choose(id, preferred, &mut reasons);
    }
    let agreed = device_of_readers(graph, &devices);
    for id in graph.ids().filter(|id| is_source(graph.node(*id))) {
        devices[id.index()] = choose(id, agreed[id.index()], &mut reasons);
    }
    Placement { devices, reasons, predicted: Vec::new() }
}

/// The nodes without a device constraint that may forward a reference, in topological order.
fn forwards_of_references(graph: &Graph) -> Vec<NodeId> {
    let aliases = Aliases::of(graph, []);
    if aliases.is_empty() {
        return Vec::new();
    }
    let forwards = |id: &NodeId| {
        let node = graph.node(*id);
        let forwarded = &node.inputs[..forwarded_inputs(node)];
        node.device.is_empty() && forwarded.iter().any(|&e| aliases.contains(e))
    };
    graph.topological_order().into_iter().filter(forwards).collect()
}

/// Whether a node has no inputs and one output, which is not a reference.
fn is_source(node: &Node) -> bool {
    node.inputs.is_empty() && node.outputs.len() == 1 && !node.outputs[0].is_ref
}

/// For each node, the device of its successors if all are on one.
fn device_of_readers(graph: &Graph, devices: &[u32]) -> Vec<Option<u32>> {
    const NONE: u32 = u32::MAX;
    const SEVERAL: u32 = u32::MAX - 1;
    let mut agreed = vec![NONE; graph.len()];
    for (node, &device) in graph.nodes().iter().zip(devices) {
        for source in node.predecessors() {
            let known = &mut agreed[source.index()];
            *known = if *known == NONE || *known == device { device } else { SEVERAL };
        }
    }
    agreed.into_iter().map(|d| (d < SEVERAL).then_some(d)).collect()
}

/// List scheduling: simulates the devices in topological order and puts each group where its first
/// node finishes earliest.
pub(crate) fn by_finish(graph: &Graph, groups: &Groups<'_>, target: &Target<'_>) -> Placement {
    let mut free_at = vec![0.0f64; target.devices.len()];
    let mut decided: FxHashMap<u32, u32> = FxHashMap::default();
    let mut placement = Placement {
        devices: vec![0; graph.len()],
        reasons: vec![Reason::OnlyChoice; graph.len()],
        predicted: vec![(0.0, 0.0); graph.len()],
    };
    for id in graph.topological_order() {
        let root = groups.root_of(id);
        let choices = groups.devices(root);
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
        let (device, reason) = match (decided.get(&root), choices) {
            (Some(&device), _) => (device, Reason::Colocated),
            (None, [only]) => (*only, Reason::OnlyChoice),
            // Ties go to the first device.
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
