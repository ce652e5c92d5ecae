//! What a step spent its time on, as text and as JSON, by task.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use serde_json::{Value, json};

use crate::timeline::{Attribution, Segment, SegmentKind, SpanKind, Timeline};

/// Pieces of the critical path that are shown, the longest.
const PIECES_MAX: usize = 10;
/// Rows of one table that are shown as text.
const ROWS_MAX: usize = 20;

/// What a step spent its time on.
pub struct Summary<'a> {
    timeline: &'a Timeline,
    attribution: Attribution,
    path: Vec<Segment>,
    links: BTreeMap<(String, String), LinkUse>,
}

/// What one link, in one direction, carried in a step.
#[derive(Clone, Debug, Default, PartialEq)]
struct LinkUse {
    /// Seconds of the critical path.
    critical: f64,
    /// How many tensors, requests and answers of the critical path.
    critical_messages: usize,
    /// Tensors, requests and answers, and their time on the way added up.
    messages: usize,
    seconds: f64,
    bytes: u64,
}

impl<'a> Summary<'a> {
    /// Of this step.
    pub fn of(timeline: &'a Timeline) -> Summary<'a> {
        let (attribution, path) = (timeline.attribution(), timeline.critical_path());
        let links = links(timeline, &path);
        Summary { timeline, attribution, path, links }
    }

    /// The share of the step's time that is charged to something.
    pub fn charged_share(&self) -> f64 {
        self.attribution.charged_share(self.timeline)
    }

    /// Seconds of the critical path by what `of` finds in a kind of segment.
    fn critical(&self, of: impl Fn(SegmentKind) -> Option<u32>) -> Vec<(String, f64)> {
        let mut found: BTreeMap<String, f64> = BTreeMap::new();
        for (kind, seconds) in &self.attribution.critical {
            if let Some(device) = of(*kind) {
                *found.entry(short_device(self.device(device))).or_default() += seconds;
            }
        }
        longest_first(found)
    }

    fn compute(&self) -> Vec<(String, f64)> {
        self.critical(|kind| match kind {
            SegmentKind::Compute(device) => Some(device),
            _ => None,
        })
    }

    fn queueing(&self) -> Vec<(String, f64)> {
        self.critical(|kind| match kind {
            SegmentKind::Queueing(device) => Some(device),
            _ => None,
        })
    }

    fn waiting(&self) -> Vec<(String, f64)> {
        self.critical(|kind| match kind {
            SegmentKind::Waiting(device) => Some(device),
            _ => None,
        })
    }

    /// How long each task's devices ran nothing because of another task.
    fn waits(&self) -> Vec<((String, String), f64)> {
        let mut waits: BTreeMap<(String, String), f64> = BTreeMap::new();
        for ((device, of), seconds) in &self.attribution.waits {
            let ends = ends(self.device(*of), self.device(*device));
            *waits.entry((ends.1, ends.0)).or_default() += seconds;
        }
        longest_first(waits)
    }

    fn device(&self, i: u32) -> &str {
        self.timeline.devices.get(i as usize).map_or("", |d| d)
    }

    /// The longest pieces of the critical path: what, seconds.
    fn pieces(&self) -> Vec<(Piece, f64)> {
        let mut pieces: BTreeMap<Piece, f64> = BTreeMap::new();
        for segment in &self.path {
            let span = &self.timeline.spans[segment.span as usize];
            let (kind, at) = match segment.kind {
                SegmentKind::Compute(d) => ("compute", short_device(self.device(d))),
                SegmentKind::Link(from, to) => {
                    let (from, to) = ends(self.device(from), self.device(to));
                    ("link", format!("{from} -> {to}"))
                }
                SegmentKind::Queueing(d) => ("queueing", short_device(self.device(d))),
                SegmentKind::Waiting(d) => ("waiting", short_device(self.device(d))),
            };
            let piece = Piece { kind, at, node: span.node.to_string(), op: span.op.to_string() };
            *pieces.entry(piece).or_default() += segment.end - segment.start;
        }
        let mut pieces = longest_first(pieces);
        pieces.truncate(PIECES_MAX);
        pieces
    }

    /// As JSON; all times are in seconds.
    pub fn to_json(&self) -> Value {
        let by_device = |rows: Vec<(String, f64)>| -> Vec<Value> {
            let row = |(device, seconds)| json!({ "device": device, "seconds": seconds });
            rows.into_iter().map(row).collect()
        };
        let link = |((from, to), link): (&(String, String), &LinkUse)| {
            json!({
                "from": from,
                "to": to,
                "critical_seconds": link.critical,
                "critical_messages": link.critical_messages,
                "seconds": link.seconds,
                "messages": link.messages,
                "bytes": link.bytes,
            })
        };
        let wait = |((task, of), seconds): ((String, String), f64)| json!({ "task": task, "of": of, "seconds": seconds });
        let piece = |(piece, seconds): (Piece, f64)| {
            json!({
                "kind": piece.kind,
                "at": piece.at,
                "node": piece.node,
                "op": piece.op,
                "seconds": seconds,
            })
        };
        json!({
            "seconds": self.timeline.seconds,
            "charged_share": self.charged_share(),
            "unattributed_seconds": self.attribution.unattributed,
            "compute": by_device(self.compute()),
            "links": self.links.iter().map(link).collect::<Vec<_>>(),
            "queueing": by_device(self.queueing()),
            "waiting": by_device(self.waiting()),
            "waits": self.waits().into_iter().map(wait).collect::<Vec<_>>(),
            "critical_path": self.pieces().into_iter().map(piece).collect::<Vec<_>>(),
        })
    }

    fn share(&self, seconds: f64) -> String {
        let whole = self.timeline.seconds.max(f64::MIN_POSITIVE);
        format!("{:>10} {:>5.1} %", milliseconds(seconds), 100.0 * seconds / whole)
    }
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, share) = (self.timeline.seconds, 100.0 * self.charged_share());
        writeln!(f, "{}, of which {share:.1} % are charged:", milliseconds(seconds).trim_start())?;
        let mut rows = |what: &str, rows: Vec<(String, f64)>| -> fmt::Result {
            for (device, seconds) in rows.into_iter().take(ROWS_MAX) {
                writeln!(f, "  {}  {what} {device}", self.share(seconds))?;
            }
            Ok(())
        };
        rows("compute on", self.compute())?;
        rows("queueing on", self.queueing())?;
        rows("waiting for queues and files on", self.waiting())?;
        let mut links: Vec<_> = self.links.iter().collect();
        links.sort_by(|a, b| b.1.critical.total_cmp(&a.1.critical).then_with(|| a.0.cmp(b.0)));
        for ((from, to), link) in links.into_iter().take(ROWS_MAX) {
            let mut each = String::new();
            if link.critical_messages > 1 {
                let mean = link.critical / link.critical_messages as f64;
                write!(each, ", {} each", milliseconds(mean).trim_start())?;
            }
            writeln!(
                f,
                "  {}  link {from} -> {to} in {} of {} messages{each}, {}",
                self.share(link.critical),
                link.critical_messages,
                link.messages,
                bytes(link.bytes)
            )?;
        }
        let waits = self.waits();
        if !waits.is_empty() {
            writeln!(f, "ran nothing meanwhile:")?;
        }
        for ((task, of), seconds) in waits.into_iter().take(ROWS_MAX) {
            writeln!(f, "  {}  {task} waited for {of}", self.share(seconds))?;
        }
        writeln!(f, "longest on the critical path:")?;
        for (piece, seconds) in self.pieces() {
            let Piece { kind, at, node, op } = piece;
            writeln!(f, "  {}  {kind} {at}: '{node}' ({op})", self.share(seconds))?;
        }
        Ok(())
    }
}

/// A piece of the critical path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    kind: &'static str,
    at: String,
    node: String,
    op: String,
}

fn longest_first<K: Ord>(found: BTreeMap<K, f64>) -> Vec<(K, f64)> {
    let mut rows: Vec<(K, f64)> = found.into_iter().filter(|(_, seconds)| *seconds > 0.0).collect();
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    rows
}

fn links(timeline: &Timeline, path: &[Segment]) -> BTreeMap<(String, String), LinkUse> {
    let name = |i: u32| timeline.devices.get(i as usize).map_or("", |d| &**d);
    let mut links: BTreeMap<(String, String), LinkUse> = BTreeMap::new();
    for span in &timeline.spans {
        let (from, bytes) = match span.kind {
            SpanKind::Transfer { from, bytes } => (from, bytes),
            SpanKind::Dispatch { from } => (from, 0),
            SpanKind::Compute | SpanKind::Wait => continue,
        };
        let link = links.entry(ends(name(from), name(span.device))).or_default();
        link.messages += 1;
        link.seconds += span.end - span.start;
        link.bytes += bytes;
    }
    for segment in path {
        if let SegmentKind::Link(from, to) = segment.kind {
            let link = links.entry(ends(name(from), name(to))).or_default();
            link.critical += segment.end - segment.start;
            link.critical_messages += 1;
        }
    }
    links
}

/// The ends of a link: tasks, or devices if both are of one task.
fn ends(from: &str, to: &str) -> (String, String) {
    let task =
        |device: &str| device.rsplit_once("/device:").map_or("", |(task, _)| task).to_owned();
    if task(from) == task(to) {
        return (short_device(from), short_device(to));
    }
    (short_task(&task(from)), short_task(&task(to)))
}

/// `ps/0` for `/job:ps/replica:0/task:0`; other names as they are.
fn short_task(task: &str) -> String {
    let parts: Vec<&str> = task.split('/').collect();
    let find = |prefix: &str| parts.iter().find_map(|part| part.strip_prefix(prefix));
    match (find("job:"), find("task:")) {
        (Some(job), Some(index)) => format!("{job}/{index}"),
        _ => task.to_owned(),
    }
}

/// `ps/0 CPU:0` for a full name.
fn short_device(device: &str) -> String {
    match device.rsplit_once("/device:") {
        Some((task, device)) => format!("{} {device}", short_task(task)),
        None => device.to_owned(),
    }
}

fn milliseconds(seconds: f64) -> String {
    let ms = seconds * 1e3;
    if ms < 10.0 { format!("{ms:.3} ms") } else { format!("{ms:.1} ms") }
}

fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.2} GB", count as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Span;

    #[test]
    fn text_and_json_name_the_link_the_device_and_the_task_waited_for() {
        let span = |device: u32, kind: SpanKind, [ready, start, end]: [f64; 3], cause| Span {
            device,
            lane: 0,
            node: "n".into(),
            op: "Op".into(),
            kind,
            ready,
            start,
            end,
            cause,
        };
        let transfer = SpanKind::Transfer { from: 0, bytes: 8000 };
        let spans = vec![
            span(0, SpanKind::Compute, [0.0, 0.0, 0.002], None),
            span(1, transfer, [0.002, 0.002, 0.022], Some(0)),
            span(1, SpanKind::Compute, [0.022, 0.023, 0.025], Some(1)),
        ];
        let devices =
            ["/job:ps/replica:0/task:0/device:CPU:0", "/job:w/replica:0/task:3/device:CPU:0"];
        let devices = devices.map(Into::into).to_vec();
        let timeline = Timeline { seconds: 0.025, devices, spans };
        let summary = Summary::of(&timeline);
        let text = summary.to_string();
        for line in [
            "25.0 ms, of which 100.0 % are charged:",
            "    2.000 ms   8.0 %  compute on ps/0 CPU:0",
            "    1.000 ms   4.0 %  queueing on w/3 CPU:0",
            "     20.0 ms  80.0 %  link ps/0 -> w/3 in 1 of 1 messages, 8.0 kB",
            "     22.0 ms  88.0 %  w/3 waited for ps/0",
            "     20.0 ms  80.0 %  link ps/0 -> w/3: 'n' (Op)",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        let json = summary.to_json();
        assert_eq!(json["links"][0]["from"], "ps/0");
        assert_eq!(json["links"][0]["bytes"], 8000);
        assert!((json["links"][0]["critical_seconds"].as_f64().unwrap() - 0.02).abs() < 1e-9);
        assert_eq!(json["waits"][0]["of"], "ps/0");
    }
}
