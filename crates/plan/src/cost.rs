//! What nodes and transfers cost, in seconds and bytes.

use rustc_hash::FxHashMap;
use thalweg_graph::{Endpoint, Graph, NodeId};
use thalweg_kernel::{DeviceDescription, DeviceName};
use thalweg_tensor::{DType, PartialShape};

/// Bytes taken for a tensor whose shape is not known.
const UNKNOWN_BYTES: u64 = 1024;
/// Bytes taken for an element that is an object: a string, a handle, a variant.
const OBJECT_BYTES: usize = 16;
/// What starting any kernel costs.
const OVERHEAD_SECONDS: f64 = 1e-6;

/// What one node costs on one device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeCost {
    /// Time to run it.
    pub seconds: f64,
    /// Size of its outputs together.
    pub output_bytes: u64,
}

/// Estimates or measurements.
pub trait CostSource {
    /// What `node` costs on `device`.
    fn cost(&self, graph: &Graph, node: NodeId, device: &DeviceDescription) -> NodeCost;
}

/// Estimates from shapes alone: a node moves its inputs and outputs through memory once.
pub struct StaticCosts;

impl CostSource for StaticCosts {
    fn cost(&self, graph: &Graph, node: NodeId, device: &DeviceDescription) -> NodeCost {
        let node = graph.node(node);
        let inputs = node.inputs.iter().map(|&e| tensor_bytes(graph, e));
        let inputs = inputs.fold(0, u64::saturating_add);
        let outputs = node.outputs.iter().map(|o| bytes_of(&o.shape, o.dtype));
        let output_bytes = outputs.fold(0, u64::saturating_add);
        let moved = inputs.saturating_add(output_bytes) as f64;
        NodeCost {
            seconds: OVERHEAD_SECONDS + moved / device.memory_bytes_per_second,
            output_bytes,
        }
    }
}

/// Size of one tensor, as far as its shape is known.
pub(crate) fn tensor_bytes(graph: &Graph, tensor: Endpoint) -> u64 {
    let output = graph.output(tensor);
    bytes_of(&output.shape, output.dtype)
}

/// Size of a tensor of this shape, as far as it is known.
pub(crate) fn bytes_of(shape: &PartialShape, dtype: DType) -> u64 {
    let element_bytes = if dtype.is_object() { OBJECT_BYTES } else { dtype.size() };
    match shape.to_shape() {
        Some(shape) => (shape.num_elements() as u64).saturating_mul(element_bytes as u64),
        None => UNKNOWN_BYTES,
    }
}

/// How fast tensors move between devices.
#[derive(Clone, Debug)]
pub struct Links {
    /// Latency and bytes per second between two devices of one task.
    pub within_task: (f64, f64),
    /// Latency and bytes per second between tasks.
    pub between_tasks: (f64, f64),
    /// Pairs that differ from these.
    pub exceptions: FxHashMap<(DeviceName, DeviceName), (f64, f64)>,
}

impl Default for Links {
    fn default() -> Self {
        Links {
            within_task: (2e-6, 1e10),
            between_tasks: (1e-4, 1e9),
            exceptions: FxHashMap::default(),
        }
    }
}

impl Links {
    /// Time for `bytes` to get from one device to another.
    pub fn seconds(&self, from: &DeviceName, to: &DeviceName, bytes: u64) -> f64 {
        if from == to {
            return 0.0;
        }
        let same_task = (&from.job, from.replica, from.task) == (&to.job, to.replica, to.task);
        let usual = if same_task { self.within_task } else { self.between_tasks };
        let (latency, rate) =
            self.exceptions.get(&(from.clone(), to.clone())).copied().unwrap_or(usual);
        latency + bytes as f64 / rate
    }
}
