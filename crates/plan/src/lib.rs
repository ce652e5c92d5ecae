//! From a graph and the wish to run a part of it, to one graph per device.
//!
//! Pure functions: no I/O, no thread, no clock, and equal inputs give equal plans. There is one
//! pipeline, [`compile`]; the local session and a cluster's master both call it.

mod choose;
mod cost;
mod frames;
mod groups;
mod late_reads;
mod late_receives;
mod lower;
mod optimize;
mod partition;
mod place;
mod prune;
mod settle;
mod span;

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thalweg_graph::{Endpoint, Graph, NodeId, TensorName};
use thalweg_kernel::{DeviceDescription, DeviceName, KernelRegistry};
use thalweg_tensor::{Context, Result, Shape, bail, err};

pub use cost::{CostSource, Links, NodeCost, StaticCosts};
pub use frames::{Frame, Frames};
pub use lower::{Which, lower};
pub use optimize::optimize;
pub use partition::{BFLOAT16_SENDS, NEVER_DEAD, partition};
pub use place::{Placement, Reason, place};
pub use prune::prune;

/// What one kind of step feeds, fetches and runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StepSignature {
    /// Tensors that the caller gives.
    pub feeds: Vec<Endpoint>,
    /// Tensors that the caller gets.
    pub fetches: Vec<Endpoint>,
    /// Nodes to run for their effects.
    pub targets: Vec<NodeId>,
    /// Shapes of the feeds, if the plan is for these alone; none if it is for any.
    pub feed_shapes: Vec<Shape>,
}

impl StepSignature {
    /// Finds the names that a client gave; `NotFound` names the one that is not there.
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
        };
        let mut sorted = signature.feeds.clone();
        sorted.sort();
        if let Some(twice) = sorted.windows(2).find(|w| w[0] == w[1]) {
            bail!(InvalidArgument, "'{}' is fed twice", graph.node(twice[0].node).name);
        }
        Ok(signature)
    }
}

/// Nodes by name; a tensor's name stands for its node. TensorFlow lists all that are missing, each
/// with a space behind it.
fn resolve_targets(graph: &Graph, names: &[&str]) -> Result<Vec<NodeId>> {
    let node = |name: &str| graph.find(TensorName::parse(name).map_or(name, |n| n.node));
    let missing: String =
        names.iter().filter(|n| node(n).is_none()).map(|n| format!("{n} ")).collect();
    if !missing.is_empty() {
        bail!(NotFound, "PruneForTargets: Some target nodes not found: {missing}");
    }
    Ok(names.iter().filter_map(|n| node(n)).collect())
}

/// Devices that earlier plans gave to nodes with state, by the nodes' names: state does not move.
pub type Pins = FxHashMap<Arc<str>, DeviceName>;

/// What a plan is made for.
pub struct Target<'a> {
    /// The devices there are; the first is the client's, where feeds enter and fetches leave.
    pub devices: &'a [DeviceDescription],
    /// How fast tensors move between them.
    pub links: &'a Links,
    /// What nodes cost.
    pub costs: &'a dyn CostSource,
    /// The kernels there are.
    pub kernels: &'a Arc<KernelRegistry>,
    /// Where state is already.
    pub pins: &'a Pins,
    /// Choices of the caller.
    pub options: Options,
}

/// Choices that change a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Fold constants and merge equal nodes.
    pub optimize: bool,
    /// Where a device constraint cannot be met, take another device.
    pub allow_soft_placement: bool,
    /// Write the functions out that nodes run, in place of the nodes: branches as `Switch` and
    /// `Merge`, loops as frames. Without it that is done only where a function's nodes say on which of
    /// several devices they are, or where state that it takes is on several.
    pub lower: bool,
    /// How a device is chosen where several would do.
    pub choice: Choice,
    /// Send 32-bit floats between tasks as the upper halves of their bits.
    pub bfloat16_transfers: bool,
}

/// How a device is chosen where several would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Choice {
    /// Where it would finish first, by simulation.
    #[default]
    EarliestFinish,
    /// The client's device, else the first by name: TensorFlow's default.
    First,
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

/// A step's graph, cut by device.
#[derive(Clone)]
pub struct Plan {
    /// One graph for each device that has something to do, in the order of the devices.
    pub partitions: Vec<Partition>,
    /// Where each node of the whole was put, and why.
    pub placement: Placement,
}

/// What one device does in a step.
#[derive(Clone)]
pub struct Partition {
    /// The device.
    pub device: DeviceName,
    /// Its nodes.
    pub graph: Graph,
}

/// Makes a plan for a graph that was pruned elsewhere: all of it runs, and its nodes name their
/// devices.
pub fn compile_whole(graph: Graph, target: &Target<'_>) -> Result<Plan> {
    let (placed, placement) = place(graph, target).context(|| "place")?;
    let placed = late_reads::read_late(placed);
    let partitions = partition(placed, &placement, target).context(|| "partition")?;
    Ok(Plan { partitions, placement })
}

/// Makes a plan for one kind of step.
pub fn compile(graph: &Graph, step: &StepSignature, target: &Target<'_>) -> Result<Plan> {
    let client = target
        .devices
        .first()
        .ok_or_else(|| err!(InvalidArgument, "there is no device to run on"))?;
    let mut pruned = prune(graph, step, client).context(|| "prune")?;
    if !step.feed_shapes.is_empty() {
        pruned = settle::settle(&pruned, step).context(|| "settle")?;
    }
    let spanning = span::spanning(&pruned, target);
    if target.options.lower {
        pruned = lower(&pruned, &Which::All).context(|| "lower")?;
    } else if !spanning.is_empty() {
        pruned = lower(&pruned, &Which::These(spanning)).context(|| "lower")?;
    }
    let (mut placed, mut placement) = place(pruned, target).context(|| "place")?;
    placed = late_reads::read_late(placed);
    if target.options.optimize {
        placed = optimize(placed, &mut placement, target.kernels).context(|| "optimize")?;
    }
    let partitions = partition(placed, &placement, target).context(|| "partition")?;
    Ok(Plan { partitions, placement })
}
