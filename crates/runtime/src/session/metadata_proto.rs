//! [`RunMetadata`] as TensorFlow's message, out and in.

use thalweg_proto as pb;
use thalweg_tensor::{DType, Result, Shape};

use super::metadata::{NodeTiming, RunMetadata, TracedOutput};

/// What tools group memory by.
const ALLOCATOR: &str = "cpu";

impl RunMetadata {
    /// The message that `timeline.Timeline` and TensorBoard read.
    pub fn to_proto(&self) -> pb::RunMetadata {
        to_proto(self)
    }

    /// What a server reports of a step.
    pub fn from_proto(proto: pb::RunMetadata) -> RunMetadata {
        from_proto(proto)
    }
}

fn to_proto(metadata: &RunMetadata) -> pb::RunMetadata {
    let mut devices: Vec<pb::DeviceStepStats> = Vec::new();
    for node in metadata.nodes.iter().filter(|n| !is_of_client(n)) {
        let position = devices.iter().position(|d| *d.device == *node.device);
        let position = position.unwrap_or_else(|| {
            let device = node.device.to_string();
            devices.push(pb::DeviceStepStats { device, ..Default::default() });
            devices.len() - 1
        });
        devices[position].node_stats.push(node_stats(node, metadata.started_ns));
    }
    for device in &mut devices {
        device.node_stats.sort_by_key(|n| n.all_start_nanos);
        let first = device.node_stats.first().map_or(0, |n| n.all_start_nanos);
        device.node_stats.insert(0, source(first));
    }
    devices.sort_by(|a, b| a.device.cmp(&b.device));
    pb::RunMetadata {
        step_stats: (!devices.is_empty()).then_some(pb::StepStats { dev_stats: devices }),
        cost_graph: metadata.cost_graph.clone(),
        partition_graphs: metadata.partition_graphs.clone(),
        ..Default::default()
    }
}

/// Feeds and fetches are not work of the graph; TensorFlow does not list them. A feed that another task receives is
/// a tensor like others then.
fn is_of_client(node: &NodeTiming) -> bool {
    let is_edge = || node.transferred().is_some_and(|(tensor, _)| tensor.starts_with("edge_"));
    matches!(node.op.as_str(), "_Recv" | "_Send")
        && (node.node.starts_with("_recv_") || node.node.starts_with("_send_"))
        && !is_edge()
}

/// TensorFlow's timelines begin with it.
fn source(start_nanos: i64) -> pb::NodeExecStats {
    pb::NodeExecStats {
        node_name: "_SOURCE".into(),
        timeline_label: "_SOURCE = NoOp()".into(),
        all_start_micros: start_nanos / 1000,
        all_start_nanos: start_nanos,
        scheduled_micros: start_nanos / 1000,
        scheduled_nanos: start_nanos,
        ..Default::default()
    }
}

fn node_stats(node: &NodeTiming, started_ns: u64) -> pb::NodeExecStats {
    let start = started_ns.saturating_add(node.start_ns) as i64;
    let took = node.end_ns.saturating_sub(node.start_ns) as i64;
    let scheduled = started_ns.saturating_add(node.ready_ns.min(node.start_ns)) as i64;
    let bytes: i64 = node.outputs.iter().map(|o| o.bytes as i64).sum();
    let memory = pb::AllocatorMemoryUsed {
        allocator_name: ALLOCATOR.into(),
        total_bytes: bytes,
        peak_bytes: bytes,
        live_bytes: bytes,
        allocation_records: vec![pb::AllocationRecord {
            alloc_micros: start / 1000,
            alloc_bytes: bytes,
        }],
        ..Default::default()
    };
    pb::NodeExecStats {
        node_name: node.node.to_string(),
        timeline_label: node.label.clone(),
        all_start_micros: start / 1000,
        all_start_nanos: start,
        op_end_rel_micros: took / 1000,
        op_end_rel_nanos: took,
        all_end_rel_micros: took / 1000,
        all_end_rel_nanos: took,
        scheduled_micros: scheduled / 1000,
        scheduled_nanos: scheduled,
        thread_id: node.thread,
        memory: if bytes > 0 { vec![memory] } else { Vec::new() },
        memory_stats: Some(pb::MemoryStats::default()),
        output: node.outputs.iter().map(output).collect(),
        ..Default::default()
    }
}

fn output(output: &TracedOutput) -> pb::NodeOutput {
    pb::NodeOutput {
        slot: output.slot as i32,
        tensor_description: Some(pb::TensorDescription {
            dtype: output.dtype.to_proto(),
            shape: Some(output.shape.to_proto()),
            allocation_description: Some(pb::AllocationDescription {
                requested_bytes: output.bytes as i64,
                allocated_bytes: output.bytes as i64,
                allocator_name: ALLOCATOR.into(),
                ..Default::default()
            }),
        }),
    }
}

fn from_proto(proto: pb::RunMetadata) -> RunMetadata {
    let devices = proto.step_stats.map(|s| s.dev_stats).unwrap_or_default();
    let stats = || devices.iter().flat_map(|d| d.node_stats.iter().map(move |n| (d, n)));
    let started_ns = stats().map(|(_, n)| scheduled_ns(n)).min().unwrap_or(0);
    let mut nodes: Vec<NodeTiming> = stats().map(|(d, n)| timing(d, n, started_ns)).collect();
    nodes.sort_by_key(|n| n.end_ns);
    RunMetadata {
        started_ns,
        nodes,
        partition_graphs: proto.partition_graphs,
        cost_graph: proto.cost_graph,
        ..Default::default()
    }
}

/// When a node became ready. It started later, whatever a server claims.
fn scheduled_ns(stats: &pb::NodeExecStats) -> u64 {
    let ns = match stats.scheduled_nanos {
        0 => stats.scheduled_micros.saturating_mul(1000),
        ns => ns,
    };
    let start = start_ns(stats);
    if ns > 0 { (ns as u64).min(start) } else { start }
}

/// Older servers count microseconds alone.
fn start_ns(stats: &pb::NodeExecStats) -> u64 {
    let ns = match stats.all_start_nanos {
        0 => stats.all_start_micros.saturating_mul(1000),
        ns => ns,
    };
    ns.max(0) as u64
}

fn timing(device: &pb::DeviceStepStats, stats: &pb::NodeExecStats, started_ns: u64) -> NodeTiming {
    let start = start_ns(stats).saturating_sub(started_ns);
    let took = match stats.all_end_rel_nanos {
        0 => stats.all_end_rel_micros.saturating_mul(1000),
        ns => ns,
    };
    let op = stats.timeline_label.split_once(" = ").and_then(|(_, call)| call.split_once('('));
    NodeTiming {
        node: stats.node_name.as_str().into(),
        op: op.map_or_else(String::new, |(op, _)| op.to_owned()),
        device: device.device.as_str().into(),
        thread: stats.thread_id,
        ready_ns: scheduled_ns(stats).saturating_sub(started_ns),
        start_ns: start,
        end_ns: start.saturating_add(took.max(0) as u64),
        label: stats.timeline_label.clone(),
        outputs: stats.output.iter().filter_map(|o| traced(o).ok()).collect(),
    }
}

fn traced(output: &pb::NodeOutput) -> Result<TracedOutput> {
    let description = output.tensor_description.clone().unwrap_or_default();
    let shape = description.shape.unwrap_or_default();
    let bytes = description.allocation_description.map_or(0, |a| a.requested_bytes);
    Ok(TracedOutput {
        slot: output.slot.max(0) as u32,
        dtype: DType::from_proto(description.dtype)?,
        shape: Shape::from_proto(&shape)?,
        bytes: bytes.max(0) as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT_FEED: &str = "_recv_x_0_S1 = _Send(_recv_x_0, edge_1__recv_x_0 @/job:ps/task:0)";

    fn node(name: &str, op: &str, start_ns: u64) -> NodeTiming {
        NodeTiming {
            node: name.into(),
            op: op.into(),
            device: "/device:CPU:0".into(),
            thread: 1,
            ready_ns: start_ns - 10,
            start_ns,
            end_ns: start_ns + 2500,
            label: format!("{name} = {op}(a, b)"),
            outputs: vec![TracedOutput {
                slot: 0,
                dtype: DType::Float,
                shape: Shape::new(&[2, 3]).unwrap(),
                bytes: 24,
            }],
        }
    }

    #[test]
    fn reports_go_out_and_come_back() {
        let nodes = vec![
            node("late", "Mul", 9000),
            node("early", "Add", 1000),
            node("_recv_x_0", "_Recv", 10),
            NodeTiming { label: SENT_FEED.into(), ..node("_recv_x_0_S1", "_Send", 5000) },
        ];
        let started_ns = 1_700_000_000_000_000_000;
        let proto = to_proto(&RunMetadata { started_ns, nodes, ..Default::default() });
        let device = &proto.step_stats.as_ref().unwrap().dev_stats[0];
        let names: Vec<&str> = device.node_stats.iter().map(|n| n.node_name.as_str()).collect();
        assert_eq!(names, ["_SOURCE", "early", "_recv_x_0_S1", "late"]);
        let early = &device.node_stats[1];
        assert_eq!(early.all_start_micros, (started_ns / 1000) as i64 + 1);
        assert_eq!(early.scheduled_nanos, started_ns as i64 + 990);
        assert_eq!((early.all_end_rel_micros, early.memory[0].total_bytes), (2, 24));
        let back = from_proto(proto);
        let late = back.nodes.last().unwrap();
        // The first node became ready at 990: the step is not known to have begun before.
        assert_eq!((&*late.node, late.op.as_str()), ("late", "Mul"));
        assert_eq!((late.ready_ns, late.start_ns, late.end_ns), (8000, 8010, 8010 + 2500));
        assert_eq!(late.outputs[0].shape, Shape::new(&[2, 3]).unwrap());
    }
}
