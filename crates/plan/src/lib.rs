//! Planning: from a graph and the feeds, fetches and targets of a step to one graph per device.
//!
//! Pure functions: no I/O, no thread, no clock, and equal inputs give byte-equal plans. There is one
//! pipeline, [`compile`]; the local session and a cluster's master both call it.

mod aliases;
mod choose;
mod cost;
mod evaluate;
mod frames;
mod groups;
mod host_state;
mod late_receives;
mod lower;
mod measured;
mod multi_device;
mod optimize;
mod partition;
mod place;
mod prune;
mod region_members;
mod regions;
mod schedule;
mod source_sets;
mod specialize;

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thalweg_graph::{Endpoint, Graph, NodeId, TensorName};
use thalweg_kernel::{DeviceDescription, DeviceName, KernelRegistry};
use thalweg_tensor::{Context, Result, Shape, bail, err};

pub use aliases::{Aliases, FETCHED_ALIAS, fetches_alias, forwarded_inputs};
pub use cost::{CostSource, DeviceSpeed, DeviceSpeeds, Links, NodeCost, StaticCosts, state_bytes};
pub use evaluate::Evaluator;
pub use frames::{Frame, Frames};
pub use lower::{LowerSelection, lower};
pub use measured::{MeasuredCosts, MeasuredSource, Measurement, NodeRun};
pub use optimize::optimize;
pub use partition::{BFLOAT16_SENDS, NEVER_DEAD, partition};
pub use place::{Placement, Reason, place, place_state};
pub use prune::prune;
pub use region_members::{VariableName, forwarded_arguments, nodes_that_run, variable_name};
pub use regions::{Parts, Region, form_regions};

/// The feeds, fetches and targets of a step: one plan serves all steps with equal signatures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StepSignature {
    /// Tensors that the client feeds.
    pub feeds: Vec<Endpoint>,
    /// Tensors that the client fetches.
    pub fetches: Vec<Endpoint>,
    /// Nodes to run though none of their outputs is fetched.
    pub targets: Vec<NodeId>,
    /// Shapes of the feeds if the plan is specialized for them, else empty.
    pub feed_shapes: Vec<Shape>,
    /// Whether feeds and fetches come in several calls: a fetch then does not wait for the step's end.
    pub is_partial: bool,
}

impl StepSignature {
    /// Resolves a client's names; `NotFound` if the graph lacks one.
    pub fn resolve(
        graph: &Graph,
        feeds: &[&str],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<Self> {
        let tensor = |name: &str, missing: &dyn Fn() -> thalweg_tensor::Error| {
            let parsed = TensorName::parse(name)?;
            let node = graph.find(parsed.node).ok_or_else(missing)?;
            let outputs = graph.node(node).outputs.len();
            if parsed.is_control || parsed.index as usize >= outputs {
                bail!(
                    InvalidArgument,
                    "'{name}' is not a tensor: node '{}' has {outputs} outputs",
                    parsed.node
                );
            }
            Ok(Endpoint { node, index: parsed.index })
        };
        let feed = |name: &&str| {
            tensor(name, &|| err!(NotFound, "FeedInputs: unable to find feed output {name}"))
        };
        let fetch =
            |name: &&str| tensor(name, &|| err!(NotFound, "FetchOutputs node {name}: not found"));
        let signature = StepSignature {
            feeds: feeds.iter().map(feed).collect::<Result<_>>()?,
            fetches: fetches.iter().map(fetch).collect::<Result<_>>()?,
            targets: resolve_targets(graph, targets)?,
            feed_shapes: Vec::new(),
            is_partial: false,
        };
        let mut sorted = signature.feeds.clone();
        sorted.sort();
        if let Some(twice) = sorted.windows(2).find(|w| w[0] == w[1]) {
            bail!(InvalidArgument, "'{}' is fed twice", graph.node(twice[0].node).name);
        }
        Ok(signature)
    }
}

/// Nodes by name; the name of a tensor means its node. As in TensorFlow, the error lists all missing
/// names, each followed by a space.
fn resolve_targets(graph: &Graph, names: &[&str]) -> Result<Vec<NodeId>> {
    let node = |name: &str| graph.find(TensorName::parse(name).map_or(name, |n| n.node));
    let missing: String =
        names.iter().filter(|n| node(n).is_none()).map(|n| format!("{n} ")).collect();
    if !missing.is_empty() {
        bail!(NotFound, "PruneForTargets: Some target nodes not found: {missing}");
    }
    Ok(names.iter().filter_map(|n| node(n)).collect())
}

/// Devices of stateful nodes in earlier plans, by the nodes' names: state does not move.
pub type Pins = FxHashMap<Arc<str>, DeviceName>;

/// The devices, links, costs and kernels that a plan is made for.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// The devices; the first is the client's, where feeds enter and fetches leave.
    pub devices: &'a [DeviceDescription],
    /// Latency and bandwidth between them.
    pub links: &'a Links,
    /// What nodes cost.
    pub costs: &'a dyn CostSource,
    /// The kernels of all device types.
    pub kernels: &'a Arc<KernelRegistry>,
    /// Devices of existing state.
    pub pins: &'a Pins,
    /// The caller's options.
    pub options: Options,
}

/// Options of planning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Constant folding and common subexpression elimination.
    pub optimize: bool,
    /// Soft placement: ignore a device constraint that cannot be met.
    pub allow_soft_placement: bool,
    /// Inline all functions: calls as nodes, branches as `Switch` and `Merge`, loops as frames. Without
    /// it only functions that span several devices are inlined: those whose nodes have device
    /// constraints, or that take handles of state on several devices.
    pub lower: bool,
    /// How a device is chosen among several feasible ones.
    pub choice: Choice,
    /// Send 32-bit floats between tasks as bfloat16 (truncated).
    pub bfloat16_transfers: bool,
}

/// How a device is chosen among several feasible ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Choice {
    /// TensorFlow's default rules: an accelerator of the client's task, else the client's device, else
    /// the first by name.
    #[default]
    Default,
    /// By the cost model, where the node would finish first; nodes are placed in the order of the
    /// longest path below them.
    Greedy,
    /// By the cost model, where the node would finish first; the node that can start first is placed
    /// first (m-ETF).
    Etf,
    /// What is predicted to be fastest of these, and of everything on one device; the default rules
    /// unless a tenth of the step is won.
    Auto,
}

impl Choice {
    /// The names that users write.
    pub const NAMES: [(&'static str, Choice); 4] = [
        ("default", Choice::Default),
        ("greedy", Choice::Greedy),
        ("etf", Choice::Etf),
        ("auto", Choice::Auto),
    ];

    /// The choice of this name.
    pub fn from_name(name: &str) -> Option<Choice> {
        Self::NAMES.iter().find(|(n, _)| *n == name).map(|&(_, choice)| choice)
    }

    /// The name of the choice.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, choice)| *choice == self).map_or("", |(name, _)| name)
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            optimize: true,
            allow_soft_placement: false,
            lower: false,
            choice: Choice::default(),
            bfloat16_transfers: false,
        }
    }
}

/// The graph of a step, partitioned by device.
#[derive(Clone)]
pub struct Plan {
    /// One graph for each device that has nodes, in the order of the devices.
    pub partitions: Vec<Partition>,
    /// Device of each node of the unpartitioned graph, and the reason for it.
    pub placement: Placement,
}

/// The part of a step's graph that runs on one device.
#[derive(Clone)]
pub struct Partition {
    /// The device.
    pub device: DeviceName,
    /// Its nodes.
    pub graph: Graph,
}

/// Makes a plan for a graph that another task has pruned and placed: all nodes run, and each has a
/// device.
pub fn compile_whole(graph: Graph, target: &Target<'_>) -> Result<Plan> {
    let (placed, placement) = place(graph, target).context(|| "place")?;
    let partitions = partition(placed, &placement, target).context(|| "partition")?;
    Ok(Plan { partitions, placement })
}

/// Makes the plan for steps with the signature `step`.
pub fn compile(graph: &Graph, step: &StepSignature, target: &Target<'_>) -> Result<Plan> {
    let (placed, placement) = place_step(graph, step, target)?;
    partition_step((placed, placement), step, target)
}

/// The plan for nodes that [`place_step`] has placed.
pub fn partition_step(
    (mut placed, mut placement): (Graph, Placement),
    step: &StepSignature,
    target: &Target<'_>,
) -> Result<Plan> {
    if target.options.optimize {
        placed = optimize(placed, &mut placement, target.kernels).context(|| "optimize")?;
    }
    // What is sent to another task when the partition has ended would come too late for a call of a partial
    // run.
    let client = &target.devices[0].name;
    let is_near = |d: &DeviceDescription| d.name.is_same_task(client);
    if target.devices.len() > 1 && (!step.is_partial || target.devices.iter().all(is_near)) {
        placed = aliases::mark_fetches(placed)?;
    }
    let partitions = partition(placed, &placement, target).context(|| "partition")?;
    Ok(Plan { partitions, placement })
}

/// The nodes that steps with the signature `step` run, each with its device: a plan before it is
/// optimized and partitioned.
pub fn place_step(
    graph: &Graph,
    step: &StepSignature,
    target: &Target<'_>,
) -> Result<(Graph, Placement)> {
    let client = target
        .devices
        .first()
        .ok_or_else(|| err!(InvalidArgument, "there is no device to run on"))?;
    let mut pruned = prune(graph, step, client).context(|| "prune")?;
    if !step.feed_shapes.is_empty() {
        pruned = specialize::specialize(&pruned, step).context(|| "specialize")?;
    }
    let multi_device = multi_device::calls(&pruned, target);
    let selection = if target.options.lower {
        Some(LowerSelection::All)
    } else if !multi_device.is_empty() {
        Some(LowerSelection::Nodes(multi_device))
    } else {
        // The cost model places the nodes of a function one by one.
        let is_chosen = target.options.choice != Choice::Default && target.devices.len() > 1;
        is_chosen.then_some(LowerSelection::Calls)
    };
    if let Some(selection) = selection {
        pruned = lower(&pruned, &selection).context(|| "lower")?;
    }
    let host_state = host_state::host_state(graph, target);
    place::place_beside(pruned, target, &host_state).context(|| "place")
}
