//! TensorFlow's default rules for the device of a colocation group. `schedule` has the cost model's.

use rustc_hash::FxHashMap;
use thalweg_graph::{Graph, Node, NodeId};

use crate::Target;
use crate::aliases::{Aliases, forwarded_inputs};
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
                (1, _) if graph.node(id).device.is_empty() => Reason::OnlyDevice,
                (1, _) => Reason::Constraint,
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
    Placement { devices, reasons, ..Placement::default() }
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
