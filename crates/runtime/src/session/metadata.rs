//! Metadata of a step: times of its nodes, collected on request, and a timeline for trace viewers.

use std::fmt::Write;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_graph::{Graph, Node};
use thalweg_kernel::Value;
use thalweg_proto as pb;
use thalweg_tensor::{DType, Shape};

use crate::execute::executable::Executable;

/// One execution of a node.
#[derive(Clone, Debug, Default)]
pub struct NodeTiming {
    /// The node.
    pub node: Arc<str>,
    /// Its op.
    pub op: String,
    /// The device it ran on.
    pub device: Arc<str>,
    /// The thread that ran it, or on which it completed, numbered from 0 by first appearance.
    pub thread: u32,
    /// When it started, in ns since the step began.
    pub start_ns: u64,
    /// When it ended, in ns since the step began.
    pub end_ns: u64,
    /// The node with its op and inputs: `sum = AddV2(a, b:1, ^first)`.
    pub label: String,
    /// Its outputs that other nodes read.
    pub outputs: Vec<TracedOutput>,
}

/// An output tensor of a node.
#[derive(Clone, Debug)]
pub struct TracedOutput {
    /// Which of the node's outputs it is.
    pub slot: u32,
    /// Its element type.
    pub dtype: DType,
    /// Its shape.
    pub shape: Shape,
    /// Its size in memory.
    pub bytes: u64,
}

/// Most timings kept: a loop may run for ever.
const TIMINGS_MAX: usize = 1 << 18;

/// Collects the times of a step's nodes.
pub(crate) struct Trace {
    begin: Duration,
    /// When the step began, since 1970.
    pub(crate) started_ns: u64,
    nodes: Mutex<Vec<NodeTiming>>,
    threads: Mutex<Vec<ThreadId>>,
}

impl Trace {
    /// A step that begins at `begin` of the monotonic clock and at `wall` of the wall clock.
    pub(crate) fn new(begin: Duration, wall: Duration) -> Trace {
        let started_ns = wall.as_nanos() as u64;
        Trace { begin, started_ns, nodes: Mutex::default(), threads: Mutex::default() }
    }

    /// Records that a node ran between these times and set `outputs`.
    pub(crate) fn record(
        &self,
        exec: &Executable,
        node: u32,
        (start, end): (Duration, Duration),
        outputs: &[Value],
    ) {
        let thread = {
            let mut threads = self.threads.lock();
            let current = std::thread::current().id();
            let position = threads.iter().position(|&t| t == current);
            position.unwrap_or_else(|| {
                threads.push(current);
                threads.len() - 1
            }) as u32
        };
        let node = &exec.graph.nodes()[node as usize];
        let mut nodes = self.nodes.lock();
        if nodes.len() >= TIMINGS_MAX {
            return;
        }
        nodes.push(NodeTiming {
            node: node.name.clone(),
            op: node.op.name.clone(),
            device: exec.device_name.clone(),
            thread,
            start_ns: (start.saturating_sub(self.begin)).as_nanos() as u64,
            end_ns: (end.saturating_sub(self.begin)).as_nanos() as u64,
            label: label(&exec.graph, node),
            outputs: outputs.iter().enumerate().filter_map(traced).collect(),
        });
    }

    pub(crate) fn take(&self) -> Vec<NodeTiming> {
        std::mem::take(&mut *self.nodes.lock())
    }
}

fn traced((slot, value): (usize, &Value)) -> Option<TracedOutput> {
    let Value::Tensor(tensor) = value.clone().without_alias() else { return None };
    Some(TracedOutput {
        slot: slot as u32,
        dtype: tensor.dtype(),
        shape: tensor.shape().clone(),
        bytes: tensor.size_bytes() as u64,
    })
}

/// A node as TensorFlow's timelines show it.
fn label(graph: &Graph, node: &Node) -> String {
    let mut text = format!("{} = {}(", node.name, node.op.name);
    let data = node.inputs.iter().map(|e| match (&graph.node(e.node).name, e.index) {
        (name, 0) => name.to_string(),
        (name, index) => format!("{name}:{index}"),
    });
    let control = node.control_inputs.iter().map(|c| format!("^{}", graph.node(*c).name));
    for (i, input) in data.chain(control).enumerate() {
        text.push_str(if i == 0 { "" } else { ", " });
        text.push_str(&input);
    }
    text.push(')');
    text
}

/// The report of a step, as TensorFlow's `RunMetadata`.
#[derive(Clone, Debug, Default)]
pub struct RunMetadata {
    /// When the step began, in ns since 1970; 0 unless nodes were timed.
    pub started_ns: u64,
    /// Nodes in the order in which they finished, up to a limit; empty unless tracing
    /// was asked for.
    pub nodes: Vec<NodeTiming>,
    /// The graphs that ran, one for each device, if they were asked for.
    pub partition_graphs: Vec<pb::GraphDef>,
    /// The cost of each node, if that was asked for.
    pub cost_graph: Option<pb::CostGraphDef>,
}

impl RunMetadata {
    /// Merges the report of another task about the same step.
    pub fn absorb(&mut self, other: RunMetadata) {
        if self.started_ns == 0 {
            self.started_ns = other.started_ns;
        }
        let base = self.started_ns;
        // Clocks of machines differ; what began before the step did is shown at its beginning.
        let at = |ns: u64| other.started_ns.saturating_add(ns).saturating_sub(base);
        self.nodes.extend(other.nodes.into_iter().map(|node| NodeTiming {
            start_ns: at(node.start_ns),
            end_ns: at(node.end_ns),
            ..node
        }));
        self.partition_graphs.extend(other.partition_graphs);
        match (&mut self.cost_graph, other.cost_graph) {
            (Some(own), Some(theirs)) => own.node.extend(theirs.node),
            (own @ None, theirs) => *own = theirs,
            (Some(_), None) => {}
        }
    }

    /// The timeline in the trace-event format that Perfetto and chrome://tracing open.
    pub fn to_trace_json(&self) -> String {
        let mut devices: Vec<&Arc<str>> = self.nodes.iter().map(|n| &n.device).collect();
        devices.sort();
        devices.dedup();
        let mut text = String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
        for (pid, device) in devices.iter().enumerate() {
            let _ = writeln!(
                text,
                "{{\"ph\":\"M\",\"pid\":{pid},\"name\":\"process_name\",\"args\":{{\"name\":{}}}}},",
                quoted(device)
            );
        }
        for (i, n) in self.nodes.iter().enumerate() {
            let pid = devices.binary_search(&&n.device).unwrap_or(0);
            let _ = write!(
                text,
                "{}{{\"ph\":\"X\",\"pid\":{pid},\"tid\":{},\"name\":{},\"cat\":\"op\",\"ts\":{:.3},\
                 \"dur\":{:.3},\"args\":{{\"name\":{},\"op\":{}}}}}",
                if i == 0 { "" } else { ",\n" },
                n.thread,
                quoted(&n.op),
                n.start_ns as f64 / 1e3,
                n.end_ns.saturating_sub(n.start_ns) as f64 / 1e3,
                quoted(&n.node),
                quoted(&n.op)
            );
        }
        text.push_str("\n]}\n");
        text
    }
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_trace_is_json_too() {
        assert_eq!(
            RunMetadata::default().to_trace_json(),
            "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n\n]}\n"
        );
    }

    #[test]
    fn names_are_quoted_and_events_separated() {
        let timing = |node: &str, device: &str| NodeTiming {
            node: node.into(),
            op: "Op".into(),
            device: device.into(),
            thread: 1,
            start_ns: 1500,
            end_ns: 4000,
            label: String::new(),
            outputs: Vec::new(),
        };
        let nodes = vec![timing("a\"\\\n", "d1"), timing("b", "d0")];
        let json = RunMetadata { nodes, ..Default::default() }.to_trace_json();
        let expected = r#"{"displayTimeUnit":"ns","traceEvents":[
{"ph":"M","pid":0,"name":"process_name","args":{"name":"d0"}},
{"ph":"M","pid":1,"name":"process_name","args":{"name":"d1"}},
{"ph":"X","pid":1,"tid":1,"name":"Op","cat":"op","ts":1.500,"dur":2.500,"args":{"name":"a\"\\\u000a","op":"Op"}},
{"ph":"X","pid":0,"tid":1,"name":"Op","cat":"op","ts":1.500,"dur":2.500,"args":{"name":"b","op":"Op"}}
]}
"#;
        assert_eq!(json, expected);
    }
}
