//! Cost model: time of nodes and transfers, sizes of tensors.

use rustc_hash::FxHashMap;
use thalweg_graph::{Endpoint, Graph, NodeId};
use thalweg_kernel::{DeviceDescription, DeviceName};
use thalweg_tensor::{DType, PartialShape};

/// Assumed bytes of a tensor of unknown shape.
const UNKNOWN_BYTES: u64 = 1024;
/// Assumed bytes of an element that is an object: a string, a handle, a variant.
const OBJECT_BYTES: usize = 16;
/// Time to start a kernel.
const OVERHEAD_SECONDS: f64 = 1e-6;

/// Cost of a node on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeCost {
    /// Execution time.
    pub seconds: f64,
    /// Total size of its outputs.
    pub output_bytes: u64,
}

/// A source of costs: estimates or measurements.
pub trait CostSource {
    /// The cost of `node` on `device`.
    fn cost(&self, graph: &Graph, node: NodeId, device: &DeviceDescription) -> NodeCost;
}

/// Estimates from shapes: a node is memory bound and moves its inputs and outputs once.
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

/// Size of an output; `UNKNOWN_BYTES` if its shape is not known.
pub(crate) fn tensor_bytes(graph: &Graph, tensor: Endpoint) -> u64 {
    let output = graph.output(tensor);
    bytes_of(&output.shape, output.dtype)
}

/// Size of a tensor of this shape; `UNKNOWN_BYTES` if it is not known.
pub(crate) fn bytes_of(shape: &PartialShape, dtype: DType) -> u64 {
    let element_bytes = if dtype.is_object() { OBJECT_BYTES } else { dtype.size() };
    match shape.to_shape() {
        Some(shape) => (shape.num_elements() as u64).saturating_mul(element_bytes as u64),
        None => UNKNOWN_BYTES,
    }
}

/// Latency and bandwidth between devices.
#[derive(Clone, Debug)]
pub struct Links {
    /// Latency and bytes per second between two devices of one task.
    pub within_task: (f64, f64),
    /// Latency and bytes per second between tasks.
    pub between_tasks: (f64, f64),
    /// Latency and bytes per second of other pairs of devices.
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
    /// Time to transfer `bytes` from one device to another.
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
