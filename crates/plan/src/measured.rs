//! Measured costs: what nodes took in earlier steps, by node, shapes and device.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_graph::{Endpoint, Graph, Node, NodeId};
use thalweg_kernel::DeviceDescription;
use thalweg_tensor::Shape;

use crate::cost::{CostSource, NodeCost, StaticCosts, tensor_bytes};

/// The weight of a new measurement once there are several: older ones decay by it.
const NEW_WEIGHT: f64 = 0.25;
/// Most measurements kept; beyond, nodes that were never measured are not added.
const MEASUREMENTS_MAX: usize = 1 << 20;
/// Most combinations of shapes kept of a node on a device; the one measured longest ago goes.
const SHAPES_MAX: usize = 8;

/// What one node took on one device with outputs of certain shapes.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Seconds that the node kept its device busy, decayed over the steps.
    pub seconds: f64,
    /// How often it was measured.
    pub count: u64,
    /// Shapes of the outputs, by their positions.
    pub shapes: Vec<(u32, Shape)>,
    /// Sizes of these outputs.
    pub bytes: Vec<u64>,
}

/// A run of a node, as a trace reports it.
#[derive(Clone, Debug)]
pub struct NodeRun<'a> {
    /// The node's name.
    pub node: &'a str,
    /// The full name of the device.
    pub device: &'a str,
    /// Seconds that it kept the device busy.
    pub seconds: f64,
    /// Position, shape and size of each output.
    pub outputs: Vec<(u32, Shape, u64)>,
}

/// Measured costs of nodes; what was not measured is estimated.
#[derive(Clone, Debug, Default)]
pub struct MeasuredCosts {
    /// By node, then by device; of each device the newest shapes are last.
    nodes: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Vec<Measurement>>>,
    len: usize,
}

impl MeasuredCosts {
    /// Adds a run. The first of a node counts as little as possible: it includes what is done once.
    pub fn record(&mut self, run: &NodeRun<'_>) {
        if !run.seconds.is_finite() || run.seconds < 0.0 {
            return;
        }
        let shapes: Vec<(u32, Shape)> =
            run.outputs.iter().map(|(slot, shape, _)| (*slot, shape.clone())).collect();
        let bytes = run.outputs.iter().map(|(.., bytes)| *bytes).collect();
        if let Some(known) = self.find_mut(run.node, run.device) {
            let position = known.iter().position(|m| m.shapes == shapes);
            if let Some(position) = position {
                let mut measurement = known.remove(position);
                let weight = if measurement.count == 1 { 1.0 } else { NEW_WEIGHT };
                measurement.seconds += weight * (run.seconds - measurement.seconds);
                measurement.count += 1;
                known.push(measurement);
                return;
            }
        }
        self.insert(
            run.node,
            run.device,
            Measurement { seconds: run.seconds, count: 1, shapes, bytes },
        );
    }

    /// Adds what was measured earlier; refuses it silently beyond a limit.
    pub fn insert(&mut self, node: &str, device: &str, measurement: Measurement) {
        if self.len >= MEASUREMENTS_MAX {
            return;
        }
        let by_device = match self.nodes.get_mut(node) {
            Some(known) => known,
            None => self.nodes.entry(node.into()).or_default(),
        };
        let known = match by_device.get_mut(device) {
            Some(known) => known,
            None => by_device.entry(device.into()).or_default(),
        };
        if known.len() == SHAPES_MAX {
            known.remove(0);
            self.len -= 1;
        }
        known.push(measurement);
        self.len += 1;
    }

    fn find_mut(&mut self, node: &str, device: &str) -> Option<&mut Vec<Measurement>> {
        self.nodes.get_mut(node)?.get_mut(device)
    }

    /// All measurements, in order.
    pub fn iter<'a>(&'a self) -> impl Iterator<Item = (&'a str, &'a str, &'a Measurement)> {
        self.nodes.iter().flat_map(|(node, devices)| {
            let of_device = move |(device, all): (&'a Arc<str>, &'a Vec<Measurement>)| {
                all.iter().map(move |m| (&**node, &**device, m))
            };
            devices.iter().flat_map(of_device)
        })
    }

    /// Number of measurements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The measurement of a node on a device that fits its shapes best.
    fn find(&self, node: &Node, device: &str) -> Option<&Measurement> {
        let known = self.nodes.get(&node.name)?.get(device)?;
        let fits = |m: &&Measurement| m.shapes.iter().all(|(slot, s)| agrees(node, *slot, s));
        known.iter().rev().find(fits).or(known.last())
    }

    /// The measurement on another device of the same type, with that device's name.
    fn find_elsewhere(
        &self,
        node: &Node,
        device: &DeviceDescription,
    ) -> Option<(&str, &Measurement)> {
        let devices = self.nodes.get(&node.name)?;
        let of_type = format!("/device:{}:", device.name.device_type);
        let (name, _) = devices.iter().find(|(name, _)| name.contains(&of_type))?;
        Some((name, self.find(node, name)?))
    }
}

/// Whether a measured shape may be that of an output.
fn agrees(node: &Node, slot: u32, shape: &Shape) -> bool {
    let Some(output) = node.outputs.get(slot as usize) else { return false };
    output.shape.is_compatible_with(shape)
}

/// Costs of nodes from measurements, on devices of any speed.
pub struct MeasuredSource<'a> {
    /// The measurements.
    pub measured: &'a MeasuredCosts,
    /// The devices, among them those that were measured.
    pub devices: &'a [DeviceDescription],
}

impl MeasuredSource<'_> {
    /// How much longer a node takes on `device` than on the one of this name, by the estimates.
    fn ratio(&self, graph: &Graph, id: NodeId, name: &str, device: &DeviceDescription) -> f64 {
        let measured_on = self.devices.iter().find(|d| d.name.to_string() == name);
        let Some(measured_on) = measured_on else { return 1.0 };
        let speed = |d: &DeviceDescription| (d.flops_per_second, d.memory_bytes_per_second);
        if speed(device) == speed(measured_on) {
            return 1.0;
        }
        let here = StaticCosts.cost(graph, id, device).seconds;
        let there = StaticCosts.cost(graph, id, measured_on).seconds;
        if there > 0.0 { here / there } else { 1.0 }
    }
}

impl CostSource for MeasuredSource<'_> {
    fn cost(&self, graph: &Graph, id: NodeId, device: &DeviceDescription) -> NodeCost {
        let estimate = StaticCosts.cost(graph, id, device);
        let node = graph.node(id);
        if !self.measured.nodes.contains_key(&node.name) {
            return estimate;
        }
        let name = device.name.to_string();
        let seconds = match self.measured.find(node, &name) {
            // The device may be asked for with another speed than it was measured with.
            Some(measurement) => {
                device.start_seconds + measurement.seconds * self.ratio(graph, id, &name, device)
            }
            None => match self.measured.find_elsewhere(node, device) {
                Some((name, measurement)) => {
                    device.start_seconds + measurement.seconds * self.ratio(graph, id, name, device)
                }
                None => estimate.seconds,
            },
        };
        NodeCost { seconds, ..estimate }
    }

    fn tensor_bytes(&self, graph: &Graph, tensor: Endpoint) -> u64 {
        let node = graph.node(tensor.node);
        let is_known = graph.output(tensor).shape.to_shape().is_some();
        let measured = || {
            let devices = self.measured.nodes.get(&node.name)?;
            let newest = devices.values().filter_map(|all| all.last()).next()?;
            let position = newest.shapes.iter().position(|(slot, _)| *slot == tensor.index)?;
            newest.bytes.get(position).copied()
        };
        match is_known || self.measured.is_empty() {
            true => tensor_bytes(graph, tensor),
            false => measured().unwrap_or_else(|| tensor_bytes(graph, tensor)),
        }
    }
}
