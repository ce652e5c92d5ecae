//! Placement: one device per node. `groups` applies the constraints, `choose` chooses among the
//! devices that satisfy them.
//!
//! The constraints: the client's device strings, colocation (`_class`), state on the device of the ops
//! that take it by reference or handle, and kernels that exist.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thalweg_graph::{Graph, Node};
use thalweg_kernel::{DeviceDescription, DeviceSpec};
use thalweg_tensor::{Code, Context, Error, Result, err};

use crate::choose::{by_default, by_finish};
use crate::groups::Groups;
use crate::host_state::HostState;
use crate::{Choice, Frames, Target};

/// The devices of nodes.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// For each node, the position of its device among the target's.
    pub devices: Vec<u32>,
    /// For each node, the reason for its device.
    pub reasons: Vec<Reason>,
    /// For each node, its start and finish times in the simulation, in seconds; empty without one.
    pub predicted: Vec<(f64, f64)>,
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
    }
}

/// Why a node has its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Only one device is feasible.
    OnlyChoice,
    /// Another node of its colocation group was placed first.
    Colocated,
    /// It finishes earliest there.
    EarliestFinish,
    /// All its readers are there.
    WithReaders,
    /// The default device.
    Default,
}

/// Gives every node a device, whose full name the nodes of the returned graph have.
pub fn place(graph: Graph, target: &Target<'_>) -> Result<(Graph, Placement)> {
    place_beside(graph, target, &HostState::default())
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
    // The simulation knows nothing yet of regions, which make small nodes on accelerators cheap.
    let has_accelerator = target.devices.iter().any(DeviceDescription::is_accelerator);
    let placement = match target.options.choice {
        Choice::EarliestFinish if !has_accelerator => by_finish(&graph, &groups, target),
        _ => by_default(&graph, &groups, target),
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
        reasons: vec![Reason::OnlyChoice; graph.len()],
        predicted: Vec::new(),
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
