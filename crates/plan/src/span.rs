//! Which nodes run functions whose parts must be on different devices: those are written out before
//! nodes are placed.

use rustc_hash::{FxHashMap, FxHashSet};
use thalweg_graph::{Graph, Node, NodeId};
use thalweg_kernel::DeviceSpec;
use thalweg_tensor::DType;

use crate::Target;

/// The nodes that run functions whose nodes say where they are, or that take handles of state which
/// is on devices that do not go together.
pub(crate) fn spanning(graph: &Graph, target: &Target<'_>) -> FxHashSet<NodeId> {
    let mut found = FxHashSet::default();
    if target.devices.len() == 1 {
        return found;
    }
    let mut library = Library { graph, says_where: FxHashMap::default() };
    for id in graph.ids() {
        let node = graph.node(id);
        if node.role().is_call() && (library.says_where(node) || handles_span(graph, node, target))
        {
            found.insert(id);
        }
    }
    found
}

/// What is known of a graph's functions.
struct Library<'a> {
    graph: &'a Graph,
    /// Whether a function's nodes, or those of one that it calls in turn, say where they are.
    says_where: FxHashMap<String, bool>,
}

impl Library<'_> {
    fn says_where(&mut self, node: &Node) -> bool {
        node.callees().any(|name| self.function_says(name))
    }

    fn function_says(&mut self, name: &str) -> bool {
        if let Some(&known) = self.says_where.get(name) {
            return known;
        }
        let mut nodes = self.graph.library().reachable([name]).flat_map(|f| &f.node_def);
        let says = nodes.any(|node| !node.device.is_empty());
        self.says_where.insert(name.to_owned(), says);
        says
    }
}

/// Whether no device suits the node and all the state that it takes handles of.
fn handles_span(graph: &Graph, node: &Node, target: &Target<'_>) -> bool {
    let mut common = devices_of(node, target);
    let is_handle = |e: &&thalweg_graph::Endpoint| graph.output(**e).dtype == DType::Resource;
    for e in node.inputs.iter().filter(is_handle) {
        let suits = devices_of(graph.node(e.node), target);
        common.retain(|d| suits.contains(d));
        if common.is_empty() {
            return true;
        }
    }
    false
}

/// Where a node may be, as far as it says so itself or its state is somewhere already.
fn devices_of(node: &Node, target: &Target<'_>) -> Vec<usize> {
    let spec = node.device.parse::<DeviceSpec>().ok();
    let pin = target.pins.get(&node.name);
    let may = |i: &usize| {
        let name = &target.devices[*i].name;
        match (pin, &spec) {
            (Some(pin), _) => pin == name,
            (None, Some(spec)) => spec.matches(name),
            // What cannot be read is an error of placement.
            (None, None) => true,
        }
    };
    let suits: Vec<usize> = (0..target.devices.len()).filter(may).collect();
    // A wish that nothing meets says nothing here: placement refuses it or takes another device.
    if suits.is_empty() { (0..target.devices.len()).collect() } else { suits }
}
