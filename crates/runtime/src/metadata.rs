//! What a step did, when asked: times of nodes, and a timeline that trace viewers open.

use std::fmt::Write;
use std::sync::Arc;

/// One node's run.
#[derive(Clone, Debug)]
pub struct NodeTiming {
    /// The node.
    pub node: Arc<str>,
    /// Its op.
    pub op: String,
    /// The device it ran on.
    pub device: Arc<str>,
    /// The thread that ran it (or started it), numbered from 0 by first appearance.
    pub thread: u32,
    /// When it started, in nanoseconds since the step began.
    pub start_ns: u64,
    /// When it was done, likewise.
    pub end_ns: u64,
}

/// What a step reports besides its results.
#[derive(Clone, Debug, Default)]
pub struct RunMetadata {
    /// Nodes in the order in which they finished; empty unless tracing was asked for.
    pub nodes: Vec<NodeTiming>,
}

impl RunMetadata {
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
