//! The timeline of a measured step, from the times of its nodes.
//!
//! A timing has a node's start and end, its inputs by name and the sizes of its outputs. The span of a node is
//! caused by the input that ended last; a `_Recv` becomes the transfer from its `_Send`.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_runtime::{NodeTiming, RunMetadata};
use thalweg_sim::{Span, SpanKind, Timeline};

/// Beginnings of the names of ops that wait for something outside of the step.
const WAITING_OPS: &[&str] = &[
    "QueueDequeue",
    "QueueEnqueue",
    "ReaderRead",
    "BarrierTakeMany",
    "AccumulatorTakeGradient",
    "SparseAccumulatorTakeGradient",
    "Unstage",
    "MapUnstage",
    "OrderedMapUnstage",
    "IteratorGetNext",
];

/// The timeline of a step.
pub(crate) fn timeline(metadata: &RunMetadata) -> Timeline {
    let timings: Vec<&NodeTiming> =
        metadata.nodes.iter().filter(|n| &*n.node != "_SOURCE").collect();
    let mut devices: Vec<Arc<str>> = timings.iter().map(|n| n.device.clone()).collect();
    devices.sort();
    devices.dedup();
    let position = |device: &Arc<str>| devices.binary_search(device).unwrap_or(0) as u32;
    // Spans in the order of their ends, so that causes come first; a send ends before its receive.
    let mut order: Vec<usize> = (0..timings.len()).collect();
    order.sort_by_key(|&i| (timings[i].end_ns, timings[i].op == "_Recv", i));
    let begin = timings.iter().map(|n| n.start_ns).min().unwrap_or(0);
    let seconds = |ns: u64| ns.saturating_sub(begin) as f64 * 1e-9;
    let mut spans: Vec<Span> = Vec::with_capacity(order.len());
    // By device and name, the last span of a node: a loop runs one several times.
    let mut by_name: BTreeMap<(u32, &str), u32> = BTreeMap::new();
    let mut sends: BTreeMap<String, u32> = BTreeMap::new();
    for i in order {
        let timing = timings[i];
        let device = position(&timing.device);
        let (start, end) = (seconds(timing.start_ns), seconds(timing.end_ns));
        let sent = sends.get(&transfer_key(timing, "_R")).filter(|_| timing.op == "_Recv");
        let inputs = inputs(&timing.label).filter_map(|name| by_name.get(&(device, name)));
        let cause = inputs.chain(sent).copied().max_by(|&a, &b| {
            let end = |i: u32| spans[i as usize].end;
            end(a).total_cmp(&end(b))
        });
        let ready = cause.map_or(0.0, |cause| spans[cause as usize].end);
        let (kind, start) = match sent {
            Some(&send) => {
                let from = spans[send as usize].device;
                let bytes = timing.outputs.iter().map(|o| o.bytes).sum();
                // The receive was posted earlier; the tensor left when it was sent.
                (SpanKind::Transfer { from, bytes }, start.max(ready).min(end))
            }
            None if WAITING_OPS.iter().any(|op| timing.op.starts_with(op)) => {
                (SpanKind::Wait, start)
            }
            None => (SpanKind::Compute, start),
        };
        let span = Span {
            device,
            lane: timing.thread,
            node: timing.node.clone(),
            op: timing.op.as_str().into(),
            kind,
            ready: ready.min(start),
            start,
            end: end.max(start),
            cause,
        };
        let number = spans.len() as u32;
        by_name.insert((device, &timing.node), number);
        if timing.op == "_Send" {
            sends.insert(transfer_key(timing, "_S"), number);
        }
        spans.push(span);
    }
    let seconds = spans.iter().map(|span| span.end).fold(0.0, f64::max);
    Timeline { seconds, devices, spans }
}

/// The names of a node's inputs, from `sum = AddV2(a, b:1, ^first)`.
fn inputs(label: &str) -> impl Iterator<Item = &str> {
    let list = label.split_once('(').map_or("", |(_, list)| list.strip_suffix(')').unwrap_or(list));
    list.split(", ").filter(|name| !name.is_empty()).map(|name| {
        let name = name.strip_prefix('^').unwrap_or(name);
        name.split(':').next().unwrap_or(name)
    })
}

/// What a `_Send` and its `_Recv` have in common: they are named `x_S3` and `x_R3`.
fn transfer_key(timing: &NodeTiming, mark: &str) -> String {
    match timing.node.rsplit_once(mark) {
        Some((name, edge)) => format!("{edge} {name}"),
        None => timing.node.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use thalweg_sim::SegmentKind;

    use super::*;

    fn timing(node: &str, label: &str, device: &str, start_ns: u64, end_ns: u64) -> NodeTiming {
        let op = label.split('(').next().unwrap().to_owned();
        NodeTiming {
            node: node.into(),
            op,
            device: device.into(),
            thread: 0,
            start_ns,
            end_ns,
            label: format!("{node} = {label}"),
            outputs: Vec::new(),
        }
    }

    #[test]
    fn a_step_over_two_devices_has_causes_and_a_transfer() {
        let nodes = vec![
            timing("_SOURCE", "NoOp()", "b", 1000, 1000),
            timing("w", "VariableV2()", "a", 1000, 1100),
            timing("w_S0", "_Send(w)", "a", 1100, 1200),
            // Posted at the beginning of the step.
            timing("w_R0", "_Recv()", "b", 1000, 3200),
            timing("x", "QueueDequeueV2()", "b", 1000, 1500),
            timing("y", "MatMul(w_R0, x:1, ^x)", "b", 4200, 9200),
        ];
        let timeline = timeline(&RunMetadata { nodes, ..Default::default() });
        assert_eq!(timeline.devices, ["a".into(), "b".into()]);
        assert!((timeline.seconds - 8.2e-6).abs() < 1e-12);
        let find = |name: &str| timeline.spans.iter().find(|s| &*s.node == name).unwrap();
        let cause = |name: &str| find(name).cause.map(|i| &*timeline.spans[i as usize].node);
        assert_eq!(
            (cause("y"), cause("w_R0"), cause("w_S0"), cause("w")),
            (Some("w_R0"), Some("w_S0"), Some("w"), None)
        );
        assert_eq!(find("w_R0").kind, SpanKind::Transfer { from: 0, bytes: 0 });
        assert!((find("w_R0").start - 0.2e-6).abs() < 1e-12, "{:?}", find("w_R0"));
        assert_eq!(find("x").kind, SpanKind::Wait);
        for (i, span) in timeline.spans.iter().enumerate() {
            assert!(span.cause.is_none_or(|cause| (cause as usize) < i));
            assert!(span.ready <= span.start && span.start <= span.end, "{span:?}");
        }
        let kinds: Vec<_> = timeline.critical_path().iter().map(|s| s.kind).collect();
        assert!(
            kinds.contains(&SegmentKind::Link(0, 1)) && kinds.contains(&SegmentKind::Queueing(1))
        );
    }

    #[test]
    fn nothing_is_a_timeline_too() {
        assert_eq!(timeline(&RunMetadata::default()), Timeline::default());
    }
}
