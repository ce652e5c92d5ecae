//! Makes the report of a step: partition graphs and cost graph in TensorFlow's messages.

use std::time::Duration;

use rustc_hash::FxHashMap;
use thalweg_graph::{Graph, Role};
use thalweg_proto as pb;
use thalweg_tensor::PartialShape;

use crate::execute::step::StepShared;
use crate::session::metadata::{NodeTiming, RunMetadata};
use crate::session::options::RunOptions;
use crate::session::plan_cache::CachedPlan;

/// The reports that a caller asked for.
#[derive(Clone, Copy)]
pub(crate) struct Reports {
    trace: bool,
    cost_graph: bool,
    partition_graphs: bool,
    /// Nodes are timed though the caller did not ask for it.
    learns: bool,
}

impl From<&RunOptions> for Reports {
    fn from(options: &RunOptions) -> Reports {
        Reports {
            trace: options.trace,
            cost_graph: options.cost_graph,
            partition_graphs: options.partition_graphs,
            learns: false,
        }
    }
}

impl Reports {
    /// The reports of a step whose nodes' times are kept for later plans, if it `learns`.
    pub(crate) fn of_step(options: &RunOptions, learns: bool) -> Reports {
        Reports { learns, ..Reports::from(options) }
    }

    /// Whether nodes are timed.
    pub(crate) fn times_nodes(self) -> bool {
        self.trace || self.cost_graph || self.learns
    }

    /// Drops what the caller did not ask for.
    pub(crate) fn drop_unasked(self, metadata: &mut RunMetadata) {
        if !self.trace {
            *metadata = RunMetadata {
                partition_graphs: std::mem::take(&mut metadata.partition_graphs),
                cost_graph: metadata.cost_graph.take(),
                ..RunMetadata::default()
            };
        }
    }

    /// The report of a step that has ended, merged with that of other tasks; a thread began to end it at `ending`.
    pub(crate) fn of(
        self,
        plan: &CachedPlan,
        step: &StepShared,
        ending: Duration,
        remote: Option<RunMetadata>,
    ) -> RunMetadata {
        let mut metadata = RunMetadata::default();
        if let Some(trace) = &step.trace {
            metadata.started_ns = trace.started_ns;
            let since_begin = |time: Duration| time.saturating_sub(trace.begin).as_nanos() as u64;
            metadata.ending_ns = since_begin(ending);
            // Before the work that only a traced step has.
            metadata.duration_ns = since_begin(step.core.options.environment.clock.monotonic());
            metadata.nodes = trace.take(&plan.executables);
        }
        if self.cost_graph {
            metadata.cost_graph = Some(cost_graph(plan, &metadata.nodes));
        }
        if !self.trace && !self.learns {
            metadata.nodes.clear();
        }
        if self.partition_graphs {
            metadata.partition_graphs = partition_graphs(plan);
        }
        if let Some(remote) = remote {
            metadata.absorb(remote);
        }
        metadata
    }
}

/// The graphs that ran, one for each device, every node with its device.
fn partition_graphs(plan: &CachedPlan) -> Vec<pb::GraphDef> {
    let graph = |part: &std::sync::Arc<crate::execute::executable::Executable>| {
        let mut def = part.graph.to_def();
        for node in &mut def.node {
            node.device = part.device_name.to_string();
        }
        def.library.get_or_insert_default();
        def.versions.get_or_insert_with(|| pb::VersionDef {
            producer: thalweg_graph::GRAPH_VERSION,
            ..Default::default()
        });
        def
    };
    plan.executables.iter().map(graph).collect()
}

/// Numbers of the two nodes that TensorFlow adds to every graph.
const SOURCE: i32 = 0;
const SINK: i32 = 1;

/// The cost of each node in the step.
fn cost_graph(plan: &CachedPlan, timings: &[NodeTiming]) -> pb::CostGraphDef {
    let timed: FxHashMap<(&str, &str), &NodeTiming> =
        timings.iter().map(|t| ((&*t.device, &*t.node), t)).collect();
    let mut finals = Vec::new();
    let mut nodes = Vec::new();
    let mut base = SINK + 1;
    for part in &plan.executables {
        for (i, node) in part.graph.nodes().iter().enumerate() {
            let timing = timed.get(&(&*part.device_name, &*node.name)).copied();
            let is_final = node.role() == Role::Send;
            let id = base + i as i32;
            if is_final {
                finals.push(id);
            }
            let mut control_input: Vec<i32> =
                node.control_inputs.iter().map(|c| base + c.index() as i32).collect();
            if node.inputs.is_empty() && control_input.is_empty() {
                control_input.push(SOURCE);
            }
            nodes.push(pb::cost_graph_def::Node {
                name: node.name.to_string(),
                device: part.device_name.to_string(),
                id,
                input_info: node.inputs.iter().map(|e| input_info(base, *e)).collect(),
                output_info: output_infos(&part.graph, i, timing),
                compute_cost: timing
                    .map_or(0, |t| t.end_ns.saturating_sub(t.start_ns).div_ceil(1000) as i64),
                is_final,
                control_input,
                ..Default::default()
            });
        }
        base += part.graph.len() as i32;
    }
    let source = pb::cost_graph_def::Node { name: "_SOURCE".into(), ..Default::default() };
    let sink = pb::cost_graph_def::Node {
        name: "_SINK".into(),
        id: SINK,
        control_input: std::iter::once(SOURCE).chain(finals).collect(),
        ..Default::default()
    };
    nodes.splice(0..0, [source, sink]);
    pb::CostGraphDef { node: nodes, cost: Vec::new() }
}

fn input_info(base: i32, from: thalweg_graph::Endpoint) -> pb::cost_graph_def::node::InputInfo {
    pb::cost_graph_def::node::InputInfo {
        preceding_node: base + from.node.index() as i32,
        preceding_port: from.index as i32,
    }
}

/// Sizes of the outputs that were traced; the others are unknown.
fn output_infos(
    graph: &Graph,
    node: usize,
    timing: Option<&NodeTiming>,
) -> Vec<pb::cost_graph_def::node::OutputInfo> {
    let info = |(slot, declared): (usize, &thalweg_graph::OutputInfo)| {
        let seen = timing.and_then(|t| t.outputs.iter().find(|o| o.slot as usize == slot));
        pb::cost_graph_def::node::OutputInfo {
            size: seen.map_or(-1, |o| o.bytes as i64),
            alias_input_port: -1,
            shape: Some(
                seen.map_or_else(|| PartialShape::unknown().to_proto(), |o| o.shape.to_proto()),
            ),
            dtype: declared.dtype as i32,
        }
    };
    graph.nodes()[node].outputs.iter().enumerate().map(info).collect()
}
