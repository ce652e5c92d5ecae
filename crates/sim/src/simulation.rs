//! A step of a graph on described devices: planned as a session plans it, then played.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use thalweg_graph::{Graph, NodeId, Role, WorkContext};
use thalweg_kernel::{DeviceDescription, KernelRegistry};
use thalweg_plan::{
    Choice, MeasuredCosts, MeasuredSource, Options, Pins, Reason, StepSignature, Target,
    partition_step, place_state, place_step, state_bytes,
};
use thalweg_tensor::{Result, Shape, bail};

use crate::devices::Machines;
use crate::step::{Factors, PlayedStep, StepProgram};
use crate::timeline::SegmentKind;

/// Most devices and most links whose doubling is tried.
const WHAT_IF_MAX: usize = 8;

/// A graph with the devices that its steps are simulated on.
pub struct Simulation {
    graph: Graph,
    kernels: Arc<KernelRegistry>,
    devices: Vec<DeviceDescription>,
    machines: Machines,
    measured: MeasuredCosts,
}

/// What is simulated of a graph.
#[derive(Clone, Debug, Default)]
pub struct StepChoice {
    /// Shapes of placeholders; others that the step needs are fed with what their nodes say.
    pub shapes: BTreeMap<String, Shape>,
    /// Tensors to fetch.
    pub fetches: Vec<String>,
    /// Nodes to run.
    pub targets: Vec<String>,
}

/// A planned step.
pub struct PlannedStep {
    /// The algorithm that placed it.
    pub choice: Choice,
    /// Each node with its device.
    pub placement: Vec<PlacedRow>,
    /// What is played.
    pub program: StepProgram,
}

/// The placement of a node.
#[derive(Clone, Debug)]
pub struct PlacedRow {
    /// The node's name.
    pub node: Arc<str>,
    /// Its op.
    pub op: Arc<str>,
    /// Position of its device.
    pub device: u32,
    /// Why it is there.
    pub reason: Reason,
    /// When the placement expects it to finish, if it was made by the cost model.
    pub finish: Option<f64>,
    /// The devices that were tried, and when it would finish there.
    pub elsewhere: Vec<(u32, f64)>,
}

/// What a step computes and trains, wherever it runs.
#[derive(Clone, Debug, Default)]
pub struct StepWork {
    /// Floating-point operations.
    pub flops: f64,
    /// The variables that it reads or writes.
    pub variables: Vec<VariableSize>,
}

/// A variable.
#[derive(Clone, Debug)]
pub struct VariableSize {
    /// Its node.
    pub name: Arc<str>,
    /// Bytes of its value.
    pub bytes: u64,
}

impl Simulation {
    /// A simulation of steps of `graph`.
    pub fn new(
        graph: Graph,
        kernels: Arc<KernelRegistry>,
        machines: Machines,
        measured: MeasuredCosts,
    ) -> Result<Simulation> {
        let devices = machines.descriptions()?;
        Ok(Simulation { graph, kernels, devices, machines, measured })
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The devices.
    pub fn devices(&self) -> &[DeviceDescription] {
        &self.devices
    }

    /// The devices and links as described.
    pub fn machines(&self) -> &Machines {
        &self.machines
    }

    /// Plans a step as a session does.
    pub fn plan(&self, step: &StepChoice, choice: Choice) -> Result<PlannedStep> {
        self.plan_with(step, choice, &Factors::default())
    }

    /// Plans a step on devices and links of other speeds than described.
    pub fn plan_with(
        &self,
        step: &StepChoice,
        choice: Choice,
        factors: &Factors,
    ) -> Result<PlannedStep> {
        let signature = self.signature(step)?;
        let costs = MeasuredSource { measured: &self.measured, devices: &self.devices };
        let (devices, links) = factors.apply(&self.devices, &self.machines.links);
        let pins = Pins::default();
        let target = Target {
            devices: &devices,
            links: &links,
            costs: &costs,
            kernels: &self.kernels,
            pins: &pins,
            options: Options { choice, allow_soft_placement: true, ..Options::default() },
        };
        // As a session does it before its first step.
        let pins = place_state(&self.graph, &target);
        let target = Target { pins: &pins, ..target };
        let (placed, placement) = place_step(&self.graph, &signature, &target)?;
        let row = |id: NodeId| PlacedRow {
            node: placed.node(id).name.clone(),
            op: placed.node(id).op.name.as_str().into(),
            device: placement.devices[id.index()],
            reason: placement.reasons[id.index()],
            finish: placement.predicted.get(id.index()).map(|(_, end)| *end),
            elsewhere: placement.elsewhere.get(id.index()).map_or(Vec::new(), |e| e.to_vec()),
        };
        let rows = placed.ids().filter(|id| !placed.node(*id).role().is_transfer()).map(row);
        let rows = rows.collect();
        let plan = partition_step((placed, placement), &signature, &target)?;
        let program = StepProgram::new(&plan.partitions, &devices, &links, &costs)?;
        Ok(PlannedStep { choice, placement: rows, program })
    }

    /// What a step computes and trains.
    pub fn work(&self, step: &StepChoice) -> Result<StepWork> {
        let signature = self.signature(step)?;
        let costs = MeasuredSource { measured: &self.measured, devices: &self.devices };
        let pins = Pins::default();
        let target = Target {
            devices: &self.devices[..1],
            links: &self.machines.links,
            costs: &costs,
            kernels: &self.kernels,
            pins: &pins,
            options: Options { allow_soft_placement: true, ..Options::default() },
        };
        let (placed, _) = place_step(&self.graph, &signature, &target)?;
        let mut work = StepWork::default();
        for node in placed.nodes() {
            work.flops += WorkContext::new(&placed, node).work().flops;
            if node.role().is_variable() {
                let (name, bytes) = (node.name.clone(), state_bytes(node));
                work.variables.push(VariableSize { name, bytes });
            }
        }
        Ok(work)
    }

    /// The fetches and targets, with all placeholders that they need as feeds.
    fn signature(&self, step: &StepChoice) -> Result<StepSignature> {
        let fetches: Vec<&str> = step.fetches.iter().map(String::as_str).collect();
        let targets: Vec<&str> = step.targets.iter().map(String::as_str).collect();
        let bare = StepSignature::resolve(&self.graph, &[], &fetches, &targets)?;
        let roots = bare.fetches.iter().map(|e| e.node).chain(bare.targets.iter().copied());
        let needed = self.placeholders_before(roots);
        if let Some(unknown) = step.shapes.keys().find(|name| !needed.contains(name.as_str())) {
            bail!(
                InvalidArgument,
                "the step needs no placeholder '{unknown}': it needs {needed:?}"
            );
        }
        let feeds: Vec<&str> = needed.iter().copied().collect();
        let mut signature = StepSignature::resolve(&self.graph, &feeds, &fetches, &targets)?;
        let given: Option<Vec<Shape>> =
            feeds.iter().map(|name| step.shapes.get(*name).cloned()).collect();
        match given {
            Some(shapes) => signature.feed_shapes = shapes,
            None if step.shapes.is_empty() => {}
            None => {
                let missing = feeds.iter().find(|name| !step.shapes.contains_key(**name));
                bail!(InvalidArgument, "the shape of '{}' is not given", missing.unwrap_or(&""));
            }
        }
        Ok(signature)
    }

    fn placeholders_before(&self, roots: impl Iterator<Item = NodeId>) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        let mut is_seen = vec![false; self.graph.len()];
        let mut stack: Vec<NodeId> = roots.collect();
        while let Some(id) = stack.pop() {
            if std::mem::replace(&mut is_seen[id.index()], true) {
                continue;
            }
            let node = self.graph.node(id);
            if node.role() == Role::Placeholder {
                found.insert(&*node.name);
            }
            stack.extend(node.predecessors());
        }
        found
    }
}

impl PlannedStep {
    /// Plays the step.
    pub fn play(&self, factors: &Factors) -> PlayedStep {
        self.program.play(factors)
    }

    /// How long the step would take if a device or link of its critical path were twice as fast, the
    /// one that helps most first.
    pub fn what_if(&self, played: &PlayedStep, factors: &Factors) -> Vec<(String, f64)> {
        let attribution = played.timeline.attribution();
        let mut by_seconds: Vec<(SegmentKind, f64)> = attribution.critical.into_iter().collect();
        by_seconds.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let mut changes: BTreeMap<String, Factors> = BTreeMap::new();
        for (kind, _) in by_seconds {
            if changes.len() == 2 * WHAT_IF_MAX {
                break;
            }
            let mut changed = factors.clone();
            let name = |device: u32| &self.program.devices()[device as usize].name;
            let what = match kind {
                SegmentKind::Compute(device) | SegmentKind::Queueing(device) => {
                    *changed.devices.entry(device).or_insert(1.0) *= 2.0;
                    name(device).to_string()
                }
                SegmentKind::Link(from, to) => {
                    let tasks = (self.program.task_of(from), self.program.task_of(to));
                    let back = (tasks.1, tasks.0);
                    let all = if factors.all_links > 0.0 { factors.all_links } else { 1.0 };
                    for pair in BTreeSet::from([tasks, back]) {
                        *changed.links.entry(pair).or_insert(all) *= 2.0;
                    }
                    let (from, to) = (name(from.min(to)), name(from.max(to)));
                    format!("link between {from} and {to}")
                }
                SegmentKind::Waiting(_) => continue,
            };
            changes.entry(format!("{what} twice as fast")).or_insert(changed);
        }
        let play =
            |(what, factors): (String, Factors)| (what, self.play(&factors).timeline.seconds);
        let mut found: Vec<(String, f64)> = changes.into_iter().map(play).collect();
        found.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
        found
    }

    /// The name of a device.
    pub fn device_name(&self, device: u32) -> String {
        self.program.devices()[device as usize].name.to_string()
    }

    /// The placement of each node.
    pub fn placement_to_json(&self) -> Vec<Value> {
        let row = |row: &PlacedRow| {
            let elsewhere = row.elsewhere.iter().filter(|(device, _)| *device != row.device);
            let elsewhere = elsewhere.map(
                |&(device, finish)| json!({"device": self.device_name(device), "finish": finish}),
            );
            json!({
                "node": &*row.node,
                "op": &*row.op,
                "device": self.device_name(row.device),
                "reason": row.reason.text(),
                "finish": row.finish,
                "elsewhere": elsewhere.collect::<Vec<_>>(),
            })
        };
        self.placement.iter().map(row).collect()
    }
}
