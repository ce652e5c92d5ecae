//! What a step did, when asked: times of nodes, and a timeline that trace viewers open.

use std::fmt::Write;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

use parking_lot::Mutex;

use crate::executable::Executable;

/// One node's run.
#[derive(Clone, Debug)]
pub struct NodeTiming {
    /// The node.
    pub node: Arc<str>,
    /// Its op.
    pub op: String,
    /// The device it ran on.
    pub device: Arc<str>,
    /// The thread that ran it, or on which it completed, numbered from 0 by first appearance.
    pub thread: u32,
    /// When it started, in nanoseconds since the step began.
    pub start_ns: u64,
    /// When it was done, likewise.
    pub end_ns: u64,
}

/// Times of nodes, collected when asked for.
pub(crate) struct Trace {
    begin: Duration,
    nodes: Mutex<Vec<NodeTiming>>,
    threads: Mutex<Vec<ThreadId>>,
}

impl Trace {
    pub(crate) fn new(begin: Duration) -> Trace {
        Trace { begin, nodes: Mutex::default(), threads: Mutex::default() }
    }

    pub(crate) fn record(&self, exec: &Executable, node: u32, start: Duration, end: Duration) {
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
        self.nodes.lock().push(NodeTiming {
            node: node.name.clone(),
            op: node.op.name.clone(),
            device: exec.device_name.clone(),
            thread,
            start_ns: (start.saturating_sub(self.begin)).as_nanos() as u64,
            end_ns: (end.saturating_sub(self.begin)).as_nanos() as u64,
        });
    }

    pub(crate) fn take(&self) -> Vec<NodeTiming> {
        std::mem::take(&mut *self.nodes.lock())
    }
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
        };
        let nodes = vec![timing("a\"\\\n", "d1"), timing("b", "d0")];
        let json = RunMetadata { nodes }.to_trace_json();
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
