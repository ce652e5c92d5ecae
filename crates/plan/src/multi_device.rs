//! Multi-device functions: calls whose functions must run on several devices are inlined before nodes
//! are placed.

use rustc_hash::{FxHashMap, FxHashSet};
use thalweg_graph::{Graph, Node, NodeId};
use thalweg_hlo::is_supported;
use thalweg_kernel::{DeviceDescription, DeviceSpec};
use thalweg_proto as pb;
use thalweg_tensor::DType;

use crate::Target;

/// The calls of functions whose nodes have device constraints, or of which an accelerator runs some nodes
/// only or runs nodes that nothing else does, or that take handles of state on incompatible devices.
pub(crate) fn calls(graph: &Graph, target: &Target<'_>) -> FxHashSet<NodeId> {
    let mut found = FxHashSet::default();
    if target.devices.len() == 1 {
        return found;
    }
    let mut constraints = Constraints { graph, target, by_function: FxHashMap::default() };
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

/// Which functions of a graph must run on several devices.
struct Constraints<'a> {
    graph: &'a Graph,
    target: &'a Target<'a>,
    /// For each function, whether a node of it, or of a function that it calls, has a device constraint or
    /// cannot run on an accelerator that is there, or runs nowhere else.
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
        let accelerator = self.target.devices.iter().find(|d| d.is_accelerator());
        let is_split = nodes.any(|node| {
            !node.device.is_empty()
                || accelerator
                    .is_some_and(|device| !self.runs_on(node, device) || self.runs_on_no_host(node))
        });
        self.by_function.insert(name.to_owned(), is_split);
        is_split
    }

    /// Whether a node of a function runs on accelerators alone.
    fn runs_on_no_host(&self, node: &pb::NodeDef) -> bool {
        let specs = self.target.kernels.for_op(&node.op);
        !specs.is_empty() && specs.iter().all(|spec| spec.lower.is_some())
    }

    /// Whether an accelerator runs a node of a function: its op has a lowering, for numbers.
    fn runs_on(&self, node: &pb::NodeDef, device: &DeviceDescription) -> bool {
        let Ok(op) = self.graph.find_op(&node.op) else { return false };
        if op.role.is_interpreted() {
            return true;
        }
        let specs = self.target.kernels.for_op(&node.op);
        // A list is a variant.
        let has_lists = specs.iter().any(|s| s.serves(&device.name.device_type) && s.runs_on_host);
        let is_number = |attr: &pb::AttrValue| match &attr.value {
            Some(pb::attr_value::Value::Type(number)) => {
                DType::from_proto(*number).is_ok_and(|dtype| {
                    is_supported(dtype)
                        || dtype == DType::Resource
                        || dtype == DType::Variant && has_lists
                })
            }
            _ => true,
        };
        specs.iter().any(|spec| spec.serves(&device.name.device_type))
            && node.attr.values().all(is_number)
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
