//! Placement: one device per node. `groups` applies the constraints, `choose` chooses among the
//! devices that satisfy them.
//!
//! The constraints: the client's device strings, colocation (`_class`), state on the device of the ops
//! that take it by reference or handle, and kernels that exist.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thalweg_graph::{Flag, Graph, Node};
use thalweg_kernel::{DeviceDescription, DeviceSpec};
use thalweg_tensor::{Code, Context, Error, Result, err};

use crate::choose::by_default;
use crate::groups::Groups;
use crate::host_state::HostState;
use crate::schedule::{Order, by_best, by_finish};
use crate::{Choice, Frames, Pins, Target};

/// The devices of nodes.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// For each node, the position of its device among the target's.
    pub devices: Vec<u32>,
    /// For each node, the reason for its device.
    pub reasons: Vec<Reason>,
    /// For each node, the start and finish that the cost model predicts, in seconds; empty for the
    /// default rules.
    pub predicted: Vec<(f64, f64)>,
    /// For each node by which the device of a group was chosen, the devices that were tried and when it
    /// would have finished there; empty for the default rules.
    pub elsewhere: Vec<Box<[(u32, f64)]>>,
    /// The predicted duration of the step in seconds; 0 for the default rules.
    pub seconds: f64,
}

impl Placement {
    /// Drops the nodes that are not marked.
    pub(crate) fn retain(&mut self, is_kept: &[bool]) {
        fn retain<T>(values: &mut Vec<T>, is_kept: &[bool]) {
            let mut marks = is_kept.iter();
            values.retain(|_| marks.next() == Some(&true));
        }
        retain(&mut self.devices, is_kept);
        retain(&mut self.reasons, is_kept);
        retain(&mut self.predicted, is_kept);
        retain(&mut self.elsewhere, is_kept);
    }
}

/// Why a node has its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The client's device string leaves no other.
    Constraint,
    /// No other device has kernels for it, or its state is there already.
    OnlyDevice,
    /// Another node of its colocation group was placed first.
    Colocated,
    /// By the cost model it finishes first there.
    EarliestFinish,
    /// By the cost model it would finish earlier elsewhere, where there is no memory left.
    Memory,
    /// The first node that needs it is there.
    WithReaders,
    /// The whole step was predicted to end first with everything there.
    Given,
    /// TensorFlow's default rules.
    Default,
}

impl Reason {
    /// A few words for logs.
    pub fn text(self) -> &'static str {
        match self {
            Reason::Constraint => "device constraint",
            Reason::OnlyDevice => "only device",
            Reason::Colocated => "colocation",
            Reason::EarliestFinish => "earliest finish",
            Reason::Memory => "memory elsewhere",
            Reason::WithReaders => "with its reader",
            Reason::Given => "all on one device",
            Reason::Default => "default",
        }
    }
}

/// Gives every node a device, whose full name the nodes of the returned graph have.
pub fn place(graph: Graph, target: &Target<'_>) -> Result<(Graph, Placement)> {
    place_beside(graph, target, &HostState::default())
}

/// Devices of the graph's stateful nodes, by the cost model over all of its nodes: where state lies is
/// decided by everything that uses it, not by the step that happens to run first. Nothing is decided of
/// a graph that cannot be placed as a whole; its steps may be.
pub fn place_state(graph: &Graph, target: &Target<'_>) -> Pins {
    let mut pins = target.pins.clone();
    if target.options.choice == Choice::Default || target.devices.len() == 1 {
        return pins;
    }
    let Ok((_, placement)) = place(graph.clone(), target) else { return pins };
    for (node, &device) in graph.nodes().iter().zip(&placement.devices) {
        if node.op.has(Flag::Stateful) {
            let device = &target.devices[device as usize].name;
            pins.entry(node.name.clone()).or_insert_with(|| device.clone());
        }
    }
    pins
}

/// The same with state that stays on the CPU.
pub(crate) fn place_beside(
    mut graph: Graph,
    target: &Target<'_>,
    host_state: &HostState,
) -> Result<(Graph, Placement)> {
    if target.devices.len() == 1 {
        return place_on_one(graph, target);
    }
    let frames = Frames::of(&graph)?;
    let groups = Groups::of(&graph, &frames, target, host_state)?;
    let placement = match target.options.choice {
        Choice::Default => by_default(&graph, &groups, target),
        Choice::Greedy => by_finish(&graph, &groups, target, Order::LongestPath)?,
        Choice::Etf => by_finish(&graph, &groups, target, Order::EarliestStart)?,
        Choice::Auto => by_best(&graph, &groups, target)?,
    };
    let names: Vec<Arc<str>> = target.devices.iter().map(|d| d.name.to_string().into()).collect();
    for (id, &device) in graph.ids().zip(&placement.devices) {
        graph.set_device(id, names[device as usize].clone());
    }
    Ok((graph, placement))
}

/// With one device, placement only checks constraints and kernels.
fn place_on_one(mut graph: Graph, target: &Target<'_>) -> Result<(Graph, Placement)> {
    let device = &target.devices[0];
    let name: Arc<str> = device.name.to_string().into();
    let mut specs = Specs::default();
    for id in graph.ids() {
        let node = graph.node(id);
        check_kernel(node, device, target)?;
        let is_there = node.device == name || specs.of(node)?.matches(&device.name);
        if !is_there && !target.options.allow_soft_placement {
            return Err(cannot_assign(node, target));
        }
    }
    for id in graph.ids() {
        graph.set_device(id, name.clone());
    }
    let placement = Placement {
        devices: vec![0; graph.len()],
        reasons: vec![Reason::OnlyDevice; graph.len()],
        ..Placement::default()
    };
    Ok((graph, placement))
}

/// Parsed device constraints; most nodes share one string.
#[derive(Default)]
pub(crate) struct Specs(FxHashMap<Arc<str>, DeviceSpec>);

impl Specs {
    pub(crate) fn of(&mut self, node: &Node) -> Result<&DeviceSpec> {
        if !self.0.contains_key(&node.device) {
            let spec: DeviceSpec =
                node.device.parse().context(|| format!("node '{}'", node.name))?;
            self.0.insert(node.device.clone(), spec);
        }
        Ok(&self.0[&node.device])
    }
}

pub(crate) fn check_kernel(
    node: &Node,
    device: &DeviceDescription,
    target: &Target<'_>,
) -> Result<()> {
    if node.role().is_interpreted() {
        return Ok(());
    }
    match target.kernels.find(node, &device.name.device_type) {
        Ok(_) => Ok(()),
        Err(e) => Err(e.with_code(Code::Unimplemented).at_node(&node.name)),
    }
}

pub(crate) fn cannot_assign(node: &Node, target: &Target<'_>) -> Error {
    let exists = node
        .device
        .parse::<DeviceSpec>()
        .is_ok_and(|spec| target.devices.iter().any(|d| spec.matches(&d.name)));
    if exists {
        let e = err!(
            InvalidArgument,
            "Cannot assign a device for operation {name}: Could not satisfy explicit device \
             specification '{}' because no supported kernel of {} for such devices is available.",
            node.device,
            node.op.name,
            name = node.name
        );
        return e.at_node(&node.name);
    }
    let devices: Vec<String> = target.devices.iter().map(|d| d.name.to_string()).collect();
    err!(
        InvalidArgument,
        "Cannot assign a device for operation {name}: {{{{node {name}}}}} was explicitly assigned to \
         {} but available devices are [ {} ]. Make sure the device specification refers to a valid \
         device.\n\t [[{name}]]",
        node.device,
        devices.join(", "),
        name = node.name
    )
}
