//! Cost model: time of nodes and transfers, sizes of tensors.

use thalweg_graph::{Endpoint, Flag, Graph, Node, NodeId, WorkContext};
use thalweg_kernel::{ACCELERATORS, DeviceDescription, DeviceName, DeviceSpec};

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

    /// The size of a tensor.
    fn tensor_bytes(&self, graph: &Graph, tensor: Endpoint) -> u64 {
        tensor_bytes(graph, tensor)
    }
}

/// Estimates from shapes: arithmetic and memory traffic, as each op states them, overlap; the device's
/// time to start a kernel does not.
pub struct StaticCosts;

impl CostSource for StaticCosts {
    fn cost(&self, graph: &Graph, node: NodeId, device: &DeviceDescription) -> NodeCost {
        let node = graph.node(node);
        let context = WorkContext::new(graph, node);
        let work = context.work();
        let busy =
            (work.flops / device.flops_per_second).max(work.bytes / device.memory_bytes_per_second);
        let output_bytes: f64 = (0..context.outputs()).map(|i| context.output_bytes(i)).sum();
        NodeCost {
            seconds: device.start_seconds + work.seconds + busy,
            output_bytes: output_bytes as u64,
        }
    }
}

/// Size of an output; what is not known of its shape is assumed.
pub(crate) fn tensor_bytes(graph: &Graph, tensor: Endpoint) -> u64 {
    let output = graph.output(tensor);
    thalweg_graph::tensor_bytes(&output.shape, output.dtype) as u64
}

/// Whether the node keeps a tensor between steps, which takes memory of its device from then on.
pub(crate) fn is_state(node: &Node) -> bool {
    node.op.has(Flag::Stateful) && node.inputs.is_empty()
}

/// What the state of a node takes: a variable's value.
pub fn state_bytes(node: &Node) -> u64 {
    if !is_state(node) {
        return 0;
    }
    let of_refs = node.outputs.iter().filter(|o| o.is_ref);
    let refs: f64 = of_refs.map(|o| thalweg_graph::tensor_bytes(&o.shape, o.dtype)).sum();
    let attrs = node.attrs();
    let of_handle = match (attrs.dtype("dtype"), attrs.shape("shape")) {
        (Ok(dtype), Ok(shape)) if refs == 0.0 => thalweg_graph::tensor_bytes(&shape, dtype),
        _ => 0.0,
    };
    (refs + of_handle) as u64
}

/// Speeds of devices that differ from what their descriptions say, by pattern: the last that matches a
/// device counts.
#[derive(Clone, Debug, Default)]
pub struct DeviceSpeeds(pub Vec<(DeviceSpec, DeviceSpeed)>);

/// What is known of a device's speed; `None` leaves what its description says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceSpeed {
    /// Floating-point operations per second.
    pub flops_per_second: Option<f64>,
    /// Bytes per second of its own memory.
    pub memory_bytes_per_second: Option<f64>,
    /// Time to start a kernel.
    pub start_seconds: Option<f64>,
    /// Bytes it can hold.
    pub memory_bytes: Option<u64>,
}

impl DeviceSpeeds {
    /// The description with the speed that is known of the device.
    pub fn describe(&self, mut device: DeviceDescription) -> DeviceDescription {
        for (_, speed) in self.0.iter().filter(|(spec, _)| spec.matches(&device.name)) {
            let DeviceSpeed { flops_per_second, .. } = *speed;
            device.flops_per_second = flops_per_second.unwrap_or(device.flops_per_second);
            let bandwidth = speed.memory_bytes_per_second;
            device.memory_bytes_per_second = bandwidth.unwrap_or(device.memory_bytes_per_second);
            device.start_seconds = speed.start_seconds.unwrap_or(device.start_seconds);
            device.memory_bytes = speed.memory_bytes.unwrap_or(device.memory_bytes);
        }
        device
    }
}

/// Latency and bandwidth between devices.
#[derive(Clone, Debug)]
pub struct Links {
    /// Latency and bytes per second between two devices of one task.
    pub within_task: (f64, f64),
    /// Latency and bytes per second between an accelerator and another device of its task.
    pub to_accelerator: (f64, f64),
    /// Latency and bytes per second between tasks.
    pub between_tasks: (f64, f64),
    /// Latency and bytes per second from devices that match the first pattern to those that match the
    /// second; the last that matches counts.
    pub exceptions: Vec<(DeviceSpec, DeviceSpec, (f64, f64))>,
}

impl Default for Links {
    fn default() -> Self {
        Links {
            within_task: (2e-6, 1e10),
            to_accelerator: (2e-5, 1e10),
            between_tasks: (1e-4, 1e9),
            exceptions: Vec::new(),
        }
    }
}

impl Links {
    /// Latency and bytes per second of a link that is no exception.
    pub(crate) fn usual(&self, is_same_task: bool, has_accelerator: bool) -> (f64, f64) {
        match (is_same_task, has_accelerator) {
            (false, _) => self.between_tasks,
            (true, true) => self.to_accelerator,
            (true, false) => self.within_task,
        }
    }

    /// Latency and bytes per second between two devices.
    pub fn between(&self, from: &DeviceName, to: &DeviceName) -> (f64, f64) {
        let is_it =
            |e: &&(DeviceSpec, DeviceSpec, (f64, f64))| e.0.matches(from) && e.1.matches(to);
        if let Some(&(.., link)) = self.exceptions.iter().rev().find(is_it) {
            return link;
        }
        let is_accelerator = |d: &DeviceName| ACCELERATORS.contains(&d.device_type.as_str());
        self.usual(from.is_same_task(to), is_accelerator(from) || is_accelerator(to))
    }

    /// Time to transfer `bytes` from one device to another.
    pub fn seconds(&self, from: &DeviceName, to: &DeviceName, bytes: u64) -> f64 {
        if from == to {
            return 0.0;
        }
        let (latency, rate) = self.between(from, to);
        latency + bytes as f64 / rate
    }
}
