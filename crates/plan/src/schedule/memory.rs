//! Memory of the devices while nodes are placed: state, and tensors whose readers have not all run, with
//! the copies of them that other devices received.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use thalweg_graph::{Endpoint, Graph, Node, NodeId};
use thalweg_tensor::DType;

use super::NOWHERE;
use crate::CostSource;
use crate::cost::{is_state, state_bytes};

pub(super) struct Memory {
    limits: Vec<u64>,
    /// Bytes in use now.
    used: Vec<u64>,
    /// For each node, the number of its readers' inputs that have not run.
    readers: Vec<u32>,
    /// The devices other than its own that hold a tensor.
    copies: FxHashMap<Endpoint, SmallVec<[u32; 4]>>,
}

impl Memory {
    pub(super) fn new(graph: &Graph, limits: Vec<u64>) -> Memory {
        let mut readers = vec![0; graph.len()];
        for input in graph.nodes().iter().flat_map(|n| &n.inputs) {
            readers[input.node.index()] += 1;
        }
        Memory { used: vec![0; limits.len()], limits, readers, copies: FxHashMap::default() }
    }

    /// Bytes that a device would need beyond what it has if `id` ran there, with the state and the
    /// tensors that would come with it.
    pub(super) fn needed_bytes(
        &self,
        (graph, costs): (&Graph, &dyn CostSource),
        devices: &[u32],
        (id, device): (NodeId, u32),
    ) -> u64 {
        let node = graph.node(id);
        let mut needed = output_bytes(graph, costs, id);
        for &input in &node.inputs {
            let from = devices[input.node.index()];
            let is_copied = from != device && !self.has_copy(input, device);
            needed += match from {
                NOWHERE => state_bytes(graph.node(input.node)),
                _ if is_copied => costs.tensor_bytes(graph, input),
                _ => 0,
            };
        }
        needed
    }

    pub(super) fn has_room(&self, device: u32, bytes: u64) -> bool {
        let (used, limit) = (self.used[device as usize], self.limits[device as usize]);
        used.saturating_add(bytes) <= limit
    }

    /// Adds the state of a node, which stays.
    pub(super) fn holds(&mut self, node: &Node, device: u32) {
        let used = &mut self.used[device as usize];
        *used = used.saturating_add(state_bytes(node));
    }

    /// Notes that a placed node has run: its outputs are there, and it needs its inputs no more.
    /// Returns whether its device had room.
    pub(super) fn ran(
        &mut self,
        (graph, costs): (&Graph, &dyn CostSource),
        devices: &[u32],
        id: NodeId,
    ) -> bool {
        let (node, device) = (graph.node(id), devices[id.index()]);
        self.holds(node, device);
        self.add(device, output_bytes(graph, costs, id));
        for &input in &node.inputs {
            if devices[input.node.index()] != device && !self.has_copy(input, device) {
                self.copies.entry(input).or_default().push(device);
                self.add(device, costs.tensor_bytes(graph, input));
            }
        }
        let had_room = self.has_room(device, 0);
        for &input in &node.inputs {
            let left = &mut self.readers[input.node.index()];
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.release((graph, costs), devices, input.node);
            }
        }
        if self.readers[id.index()] == 0 {
            self.release((graph, costs), devices, id);
        }
        had_room
    }

    fn has_copy(&self, tensor: Endpoint, device: u32) -> bool {
        self.copies.get(&tensor).is_some_and(|devices| devices.contains(&device))
    }

    fn add(&mut self, device: u32, bytes: u64) {
        let used = &mut self.used[device as usize];
        *used = used.saturating_add(bytes);
    }

    /// Frees the outputs of a node whose readers have all run, and the copies of them.
    fn release(&mut self, (graph, costs): (&Graph, &dyn CostSource), devices: &[u32], id: NodeId) {
        let own = devices[id.index()];
        for index in 0..graph.node(id).outputs.len() as u32 {
            let tensor = Endpoint { node: id, index };
            let bytes = held_bytes(graph, costs, tensor);
            self.used[own as usize] = self.used[own as usize].saturating_sub(bytes);
            for device in self.copies.remove(&tensor).unwrap_or_default() {
                let copied = costs.tensor_bytes(graph, tensor);
                self.used[device as usize] = self.used[device as usize].saturating_sub(copied);
            }
        }
    }
}

fn output_bytes(graph: &Graph, costs: &dyn CostSource, id: NodeId) -> u64 {
    let outputs = 0..graph.node(id).outputs.len() as u32;
    outputs.map(|index| held_bytes(graph, costs, Endpoint { node: id, index })).sum()
}

/// What an output takes; a reference or handle is state's, which is counted once.
fn held_bytes(graph: &Graph, costs: &dyn CostSource, tensor: Endpoint) -> u64 {
    let output = graph.output(tensor);
    if output.is_ref || output.dtype == DType::Resource || is_state(graph.node(tensor.node)) {
        return 0;
    }
    costs.tensor_bytes(graph, tensor)
}
