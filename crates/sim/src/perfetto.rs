//! A timeline in the trace-event format, which ui.perfetto.dev and chrome://tracing open: a process per task, a
//! thread per lane of a device, an arrow from what sent a tensor to the tensor's way, the number of running kernels
//! as a counter, and the critical path as a process of its own.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::timeline::{SegmentKind, Span, SpanKind, Timeline};

/// Numbers of lanes in one device at most; further ones share the last row.
const LANES_MAX: u32 = 10_000;

/// The timeline as JSON.
pub fn trace_json(timeline: &Timeline) -> String {
    let mut tasks: Vec<&str> = timeline.devices.iter().map(|d| task_of(d)).collect();
    tasks.sort_unstable();
    tasks.dedup();
    let process = |device: u32| {
        let task = timeline.devices.get(device as usize).map_or("", |d| task_of(d));
        tasks.binary_search(&task).unwrap_or(0) + 1
    };
    let mut events = Vec::with_capacity(2 * timeline.spans.len());
    for (i, task) in tasks.iter().enumerate() {
        events.push(named("process_name", i + 1, 0, task));
    }
    for ((device, lane), what) in rows(timeline) {
        let name = timeline.devices.get(device as usize).map_or("", |d| device_of(d));
        let text = format!("{name} {what}");
        events.push(named("thread_name", process(device), thread(device, lane), &text));
    }
    for (i, span) in timeline.spans.iter().enumerate() {
        events.push(slice(timeline, span, process(span.device)));
        if let SpanKind::Transfer { .. } | SpanKind::Dispatch { .. } = span.kind
            && let Some(cause) = span.cause.and_then(|c| timeline.spans.get(c as usize))
        {
            let from = (process(cause.device), thread(cause.device, cause.lane));
            let to = (process(span.device), thread(span.device, span.lane));
            // An arrow begins within the slice from which it comes, which may end after the tensor has arrived.
            let begin = cause.start.max((cause.end - 1e-9).min(span.start));
            events.push(flow("s", i, from, begin));
            events.push(flow("f", i, to, span.start));
        }
    }
    events.extend(counters(timeline, &process));
    events.extend(critical_path(timeline, tasks.len() + 1));
    // A line for each event, so that the file can be read and compared.
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
    format!("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{}\n]}}\n", lines.join(",\n"))
}

/// The task of a device's full name.
fn task_of(device: &str) -> &str {
    device.rsplit_once("/device:").map_or(device, |(task, _)| task)
}

/// The device within its task, `CPU:0`.
fn device_of(device: &str) -> &str {
    device.rsplit_once("/device:").map_or(device, |(_, device)| device)
}

fn thread(device: u32, lane: u32) -> u32 {
    device * LANES_MAX + lane.min(LANES_MAX - 1) + 1
}

/// What each lane of each device holds.
fn rows(timeline: &Timeline) -> BTreeMap<(u32, u32), &'static str> {
    let what = |span: &Span| match span.kind {
        SpanKind::Compute => "kernels",
        SpanKind::Transfer { .. } => "receives",
        SpanKind::Wait => "waits",
        SpanKind::Dispatch { .. } => "calls",
    };
    timeline.spans.iter().map(|span| ((span.device, span.lane), what(span))).collect()
}

fn named(what: &str, process: usize, thread: u32, name: &str) -> Value {
    json!({ "ph": "M", "pid": process, "tid": thread, "name": what, "args": { "name": name } })
}

fn microseconds(seconds: f64) -> f64 {
    // Whole ns: more digits would be noise.
    (seconds * 1e9).round() / 1e3
}

fn slice(timeline: &Timeline, span: &Span, process: usize) -> Value {
    let mut args = json!({
        "name": &*span.node,
        "op": &*span.op,
        "queued_us": microseconds((span.start - span.ready).max(0.0)),
    });
    let device = |i: u32| timeline.devices.get(i as usize).map_or("", |d| &**d);
    let category = match span.kind {
        SpanKind::Compute => "op",
        SpanKind::Wait => "wait",
        SpanKind::Transfer { from, bytes } => {
            args["from"] = device(from).into();
            args["bytes"] = bytes.into();
            "transfer"
        }
        SpanKind::Dispatch { from } => {
            args["from"] = device(from).into();
            "dispatch"
        }
    };
    json!({
        "ph": "X",
        "pid": process,
        "tid": thread(span.device, span.lane),
        "name": &*span.op,
        "cat": category,
        "ts": microseconds(span.start),
        "dur": microseconds(span.end - span.start),
        "args": args,
    })
}

fn flow(phase: &str, id: usize, (process, thread): (usize, u32), at: f64) -> Value {
    json!({
        "ph": phase,
        "bp": "e",
        "id": id,
        "pid": process,
        "tid": thread,
        "name": "sent",
        "cat": "flow",
        "ts": microseconds(at),
    })
}

/// The number of running kernels of each device.
fn counters(timeline: &Timeline, process: &dyn Fn(u32) -> usize) -> Vec<Value> {
    let mut changes: BTreeMap<(u32, u64), i64> = BTreeMap::new();
    let ns = |seconds: f64| (seconds.max(0.0) * 1e9).round() as u64;
    for span in timeline.spans.iter().filter(|s| s.kind == SpanKind::Compute) {
        *changes.entry((span.device, ns(span.start))).or_default() += 1;
        *changes.entry((span.device, ns(span.end))).or_default() -= 1;
    }
    let (mut running, mut current) = (0, u32::MAX);
    let mut events = Vec::new();
    for ((device, at), change) in changes {
        if device != current {
            (running, current) = (0, device);
        }
        running += change;
        if change != 0 {
            let name = timeline.devices.get(device as usize).map_or("", |d| device_of(d));
            events.push(json!({
                "ph": "C",
                "pid": process(device),
                "name": format!("running kernels of {name}"),
                "ts": at as f64 / 1e3,
                "args": { "kernels": running },
            }));
        }
    }
    events
}

fn critical_path(timeline: &Timeline, process: usize) -> Vec<Value> {
    let path = timeline.critical_path();
    if path.is_empty() {
        return Vec::new();
    }
    let device = |i: u32| timeline.devices.get(i as usize).map_or("", |d| &**d);
    let mut events = vec![named("process_name", process, 0, "critical path")];
    for segment in path {
        let span = &timeline.spans[segment.span as usize];
        let what = match segment.kind {
            SegmentKind::Compute(at) => format!("compute on {}", device(at)),
            SegmentKind::Link(from, to) => format!("{} to {}", device(from), device(to)),
            SegmentKind::Queueing(at) => format!("queueing on {}", device(at)),
            SegmentKind::Waiting(at) => format!("waiting on {}", device(at)),
        };
        events.push(json!({
            "ph": "X",
            "pid": process,
            "tid": 1,
            "name": what,
            "cat": "critical",
            "ts": microseconds(segment.start),
            "dur": microseconds(segment.end - segment.start),
            "args": { "name": &*span.node, "op": &*span.op },
        }));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_an_empty_trace_is_json_too() {
        let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(parse(&trace_json(&Timeline::default()))["traceEvents"], json!([]));
        let span = Span {
            device: 0,
            lane: 0,
            node: "a\"\\\n".into(),
            op: "Op".into(),
            kind: SpanKind::Compute,
            ready: 0.0,
            start: 1.5e-6,
            end: 4e-6,
            cause: None,
        };
        let sent = SpanKind::Transfer { from: 0, bytes: 12 };
        let transfer =
            Span { device: 1, kind: sent, start: 4e-6, end: 9e-6, cause: Some(0), ..span.clone() };
        let devices = ["/job:ps/task:0/device:CPU:0", "/job:worker/task:0/device:CPU:0"];
        let devices = devices.map(Into::into).to_vec();
        let timeline = Timeline { seconds: 9e-6, devices, spans: vec![span, transfer] };
        let json = parse(&trace_json(&timeline));
        let events = json["traceEvents"].as_array().unwrap();
        let of = |phase: &str| -> Vec<&Value> {
            events.iter().filter(|e| e["ph"] == phase && e["cat"] != "critical").collect()
        };
        let names: Vec<&Value> = of("M").iter().map(|e| &e["args"]["name"]).collect();
        let expected = ["/job:ps/task:0", "/job:worker/task:0", "CPU:0 kernels", "CPU:0 receives"];
        assert_eq!(names[..4], expected);
        let slices = of("X");
        assert_eq!(
            (&slices[0]["args"]["name"], &slices[0]["ts"]),
            (&json!("a\"\\\n"), &json!(1.5))
        );
        assert_eq!((&slices[1]["args"]["bytes"], &slices[1]["dur"]), (&json!(12), &json!(5.0)));
        assert_eq!((of("s")[0]["id"].clone(), of("f")[0]["id"].clone()), (json!(1), json!(1)));
        let counts: Vec<&Value> = of("C").iter().map(|e| &e["args"]["kernels"]).collect();
        assert_eq!(counts, [1, 0]);
        assert!(events.iter().any(|e| e["cat"] == "critical" && e["dur"] == 5.0));
    }
}
