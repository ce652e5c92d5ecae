//! Timelines as JSON: what the dashboard draws and `thalweg simulate --json` prints.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::timeline::{SegmentKind, Span, SpanKind, Timeline};

/// The timeline with its critical path and the attribution of its time. Devices, links and spans are named by
/// position; times are seconds.
pub fn timeline_to_json(timeline: &Timeline) -> Value {
    json!({
        "step_seconds": timeline.seconds,
        "devices": devices(timeline),
        "links": links(timeline),
        "timeline": timeline.spans.iter().map(span).collect::<Vec<_>>(),
        "critical_path": critical_path(timeline),
        "attribution": attribution(timeline),
    })
}

/// The name of a device; empty if there is none at this position.
fn name(timeline: &Timeline, device: u32) -> &str {
    timeline.devices.get(device as usize).map_or("", |name| &**name)
}

fn devices(timeline: &Timeline) -> Vec<Value> {
    let mut busy = vec![Vec::new(); timeline.devices.len()];
    for span in timeline.spans.iter().filter(|span| span.kind == SpanKind::Compute) {
        if let Some(intervals) = busy.get_mut(span.device as usize) {
            intervals.push((span.start, span.end));
        }
    }
    let device = |(name, busy): (&std::sync::Arc<str>, Vec<(f64, f64)>)| {
        let kind = name.rsplit_once("/device:").and_then(|(_, device)| device.split(':').next());
        json!({
            "name": &**name,
            "type": kind.unwrap_or(""),
            "busy_seconds": union(busy),
            "peak_memory_bytes": Value::Null,
            "memory_bytes": Value::Null,
        })
    };
    timeline.devices.iter().zip(busy).map(device).collect()
}

/// The total length of what intervals cover.
fn union(mut intervals: Vec<(f64, f64)>) -> f64 {
    intervals.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut covered, mut until) = (0.0, f64::NEG_INFINITY);
    for (start, end) in intervals {
        covered += (end - start.max(until)).max(0.0);
        until = until.max(end);
    }
    covered
}

fn links(timeline: &Timeline) -> Vec<Value> {
    let mut links: BTreeMap<(u32, u32), (u64, u64, f64)> = BTreeMap::new();
    for span in &timeline.spans {
        if let SpanKind::Transfer { from, bytes } = span.kind {
            let (sum, transfers, seconds) = links.entry((from, span.device)).or_default();
            *sum = sum.saturating_add(bytes);
            *transfers += 1;
            *seconds += span.end - span.start;
        }
    }
    let link = |((from, to), (bytes, transfers, seconds)): ((u32, u32), (u64, u64, f64))| {
        json!({
            "from": name(timeline, from),
            "to": name(timeline, to),
            "bytes": bytes,
            "transfers": transfers,
            "seconds": seconds,
        })
    };
    links.into_iter().map(link).collect()
}

/// The word for what a span was.
fn kind(span: &Span) -> &'static str {
    match span.kind {
        SpanKind::Compute => "compute",
        SpanKind::Transfer { .. } => "transfer",
        SpanKind::Wait => "wait",
        SpanKind::Dispatch { .. } => "dispatch",
    }
}

fn span(span: &Span) -> Value {
    let mut json = json!({
        "device": span.device,
        "lane": span.lane,
        "name": &*span.node,
        "op": &*span.op,
        "kind": kind(span),
        "ready": span.ready,
        "start": span.start,
        "end": span.end,
        "cause": span.cause,
    });
    match span.kind {
        SpanKind::Transfer { from, bytes } => {
            (json["from"], json["bytes"]) = (json!(from), json!(bytes));
        }
        SpanKind::Dispatch { from } => json["from"] = json!(from),
        SpanKind::Compute | SpanKind::Wait => {}
    }
    json
}

/// The word for what time went into, the device, and the device from which it came.
fn charged(kind: SegmentKind) -> (&'static str, u32, Option<u32>) {
    match kind {
        SegmentKind::Compute(device) => ("compute", device, None),
        SegmentKind::Link(from, to) => ("link", to, Some(from)),
        SegmentKind::Queueing(device) => ("queueing", device, None),
        SegmentKind::Waiting(device) => ("waiting", device, None),
    }
}

fn critical_path(timeline: &Timeline) -> Vec<Value> {
    let segment = |segment: crate::Segment| {
        let (kind, device, from) = charged(segment.kind);
        json!({
            "kind": kind,
            "device": device,
            "from": from,
            "span": segment.span,
            "start": segment.start,
            "end": segment.end,
        })
    };
    timeline.critical_path().into_iter().map(segment).collect()
}

fn attribution(timeline: &Timeline) -> Value {
    let attribution = timeline.attribution();
    let mut parts: Vec<(SegmentKind, f64)> =
        attribution.critical.iter().map(|(kind, seconds)| (*kind, *seconds)).collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let part = |(of, seconds): (SegmentKind, f64)| {
        let (kind, device, from) = charged(of);
        json!({
            "kind": kind,
            "device": name(timeline, device),
            "from": from.map(|from| name(timeline, from)),
            "seconds": seconds,
        })
    };
    let wait = |(&(device, of), seconds): (&(u32, u32), &f64)| json!({ "device": name(timeline, device), "for": name(timeline, of), "seconds": seconds });
    json!({
        "charged_share": attribution.charged_share(timeline),
        "unattributed": attribution.unattributed,
        "parts": parts.into_iter().map(part).collect::<Vec<_>>(),
        "waits": attribution.waits.iter().map(wait).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline() -> Timeline {
        let span = |device, kind, [ready, start, end]: [f64; 3], cause| Span {
            device,
            lane: 0,
            node: "n".into(),
            op: "MatMul".into(),
            kind,
            ready,
            start,
            end,
            cause,
        };
        let devices =
            ["/job:a/replica:0/task:0/device:GPU:0", "/job:b/replica:0/task:0/device:CPU:0"];
        Timeline {
            seconds: 10.0,
            devices: devices.map(Into::into).to_vec(),
            spans: vec![
                span(0, SpanKind::Compute, [0.0, 0.5, 2.0], None),
                span(1, SpanKind::Transfer { from: 0, bytes: 8 }, [2.0, 2.0, 5.0], Some(0)),
                span(1, SpanKind::Compute, [5.0, 6.0, 9.0], Some(1)),
                span(1, SpanKind::Compute, [5.0, 7.0, 8.0], Some(1)),
            ],
        }
    }

    #[test]
    fn every_part_is_there() {
        let json = timeline_to_json(&timeline());
        assert_eq!(json["step_seconds"], 10.0);
        assert_eq!(json["devices"][0]["type"], "GPU");
        // Two spans at once are busy once.
        assert_eq!(json["devices"][1]["busy_seconds"], 3.0);
        assert_eq!(
            json["links"],
            json!([{ "from": json["devices"][0]["name"], "to": json["devices"][1]["name"],
                     "bytes": 8, "transfers": 1, "seconds": 3.0 }])
        );
        assert_eq!(json["timeline"][1]["kind"], "transfer");
        assert_eq!(
            (&json["timeline"][1]["from"], &json["timeline"][1]["cause"]),
            (&json!(0), &json!(0))
        );
        assert_eq!(
            (&json["timeline"][0]["cause"], json["timeline"][0].get("from")),
            (&Value::Null, None)
        );
        let kinds: Vec<_> =
            json["critical_path"].as_array().unwrap().iter().map(|s| &s["kind"]).collect();
        assert_eq!(kinds, ["queueing", "compute", "link", "queueing", "compute"]);
        assert_eq!(json["critical_path"][2]["from"], 0);
        let attribution = &json["attribution"];
        assert_eq!(
            (&attribution["unattributed"], &attribution["charged_share"]),
            (&json!(1.0), &json!(0.9))
        );
        assert_eq!(attribution["parts"][0]["seconds"], 3.0);
        assert_eq!(attribution["waits"][0]["seconds"], 5.0);
        assert_eq!(attribution["waits"][0]["for"], json["devices"][0]["name"]);
    }
}
