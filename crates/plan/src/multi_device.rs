//! Multi-device functions: calls whose functions must run on several devices are inlined before nodes
//! are placed.

use rustc_hash::{FxHashMap, FxHashSet};
use thalweg_graph::{Graph, Node, NodeId};
use thalweg_kernel::DeviceSpec;
use thalweg_tensor::DType;

use crate::Target;

/// The calls of functions whose nodes have device constraints, or that take handles of state on
/// incompatible devices.
pub(crate) fn calls(graph: &Graph, target: &Target<'_>) -> FxHashSet<NodeId> {
    let mut found = FxHashSet::default();
    if target.devices.len() == 1 {
        return found;
    }
    let mut constraints = Constraints { graph, by_function: FxHashMap::default() };
    for id in graph.ids() {
        let node = graph.node(id);
        if node.role().is_call()
            && (constraints.of_call(node) || has_incompatible_state(graph, node, target))
        {
            found.insert(id);
        }
    }
    found
}

/// Which functions of a graph have device constraints.
struct Constraints<'a> {
    graph: &'a Graph,
    /// For each function, whether a node of it, or of a function that it calls, has a device constraint.
    by_function: FxHashMap<String, bool>,
}

impl Constraints<'_> {
    fn of_call(&mut self, node: &Node) -> bool {
        node.callees().any(|name| self.of_function(name))
    }

    fn of_function(&mut self, name: &str) -> bool {
        if let Some(&known) = self.by_function.get(name) {
            return known;
        }
        let mut nodes = self.graph.library().reachable([name]).flat_map(|f| &f.node_def);
        let has_constraint = nodes.any(|node| !node.device.is_empty());
        self.by_function.insert(name.to_owned(), has_constraint);
        has_constraint
    }
}

/// Whether no device is possible for both the node and all state that it takes handles of.
fn has_incompatible_state(graph: &Graph, node: &Node, target: &Target<'_>) -> bool {
    let mut common = possible_devices(node, target);
    let is_handle = |e: &&thalweg_graph::Endpoint| graph.output(**e).dtype == DType::Resource;
    for e in node.inputs.iter().filter(is_handle) {
        let matching = possible_devices(graph.node(e.node), target);
        common.retain(|d| matching.contains(d));
        if common.is_empty() {
            return true;
        }
    }
    false
}

/// The devices that match the node's constraint; of existing state, the device that it is on.
fn possible_devices(node: &Node, target: &Target<'_>) -> Vec<usize> {
    let spec = node.device.parse::<DeviceSpec>().ok();
    let pin = target.pins.get(&node.name);
    let may = |i: &usize| {
        let name = &target.devices[*i].name;
        match (pin, &spec) {
            (Some(pin), _) => pin == name,
            (None, Some(spec)) => spec.matches(name),
            // Placement reports a constraint that cannot be parsed.
            (None, None) => true,
        }
    };
    let matching: Vec<usize> = (0..target.devices.len()).filter(may).collect();
    // Placement refuses or ignores a constraint that no device matches.
    if matching.is_empty() { (0..target.devices.len()).collect() } else { matching }
}
