//! The timeline of one step over all its devices, and what follows from it: the critical path, and what
//! the step's time was spent on.

use std::collections::BTreeMap;
use std::sync::Arc;

/// What one step did, and when. Times are seconds since the step began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Duration of the step.
    pub seconds: f64,
    /// Full names of the devices.
    pub devices: Vec<Arc<str>>,
    /// What ran. A span comes after the one that is its cause.
    pub spans: Vec<Span>,
}

/// One thing that took time.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Position of the device on which it ran; of a transfer, the one that received.
    pub device: u32,
    /// The row within the device: a thread, or one of several at once.
    pub lane: u32,
    /// The node, or the tensor that was transferred.
    pub node: Arc<str>,
    /// The node's op.
    pub op: Arc<str>,
    /// What it was.
    pub kind: SpanKind,
    /// When its inputs were there; from then to `start` it was queued.
    pub ready: f64,
    /// When it started.
    pub start: f64,
    /// When it ended.
    pub end: f64,
    /// Position of the span whose end made it ready; none for what the step's begin made ready.
    pub cause: Option<u32>,
}

/// What a span was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// A kernel.
    Compute,
    /// A tensor on its way from another device.
    Transfer {
        /// Position of the device that sent it.
        from: u32,
        /// Its size.
        bytes: u64,
    },
    /// A kernel that waited for something outside the step: a queue, an accumulator, a file.
    Wait,
    /// The request by which a master starts the step on another task, or the task's answer.
    Dispatch {
        /// Position of the device from which it came.
        from: u32,
    },
}

/// A piece of the critical path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// What the time went into.
    pub kind: SegmentKind,
    /// Position of the span that it belongs to.
    pub span: u32,
    /// When it began.
    pub start: f64,
    /// When it ended.
    pub end: f64,
}

/// What a piece of time went into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SegmentKind {
    /// A kernel ran on this device.
    Compute(u32),
    /// A tensor, a request or an answer was on its way between these devices.
    Link(u32, u32),
    /// Something was ready, and the device, its threads or the link were taken.
    Queueing(u32),
    /// A kernel on this device waited for something outside the step.
    Waiting(u32),
}

/// What the time of a step was spent on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attribution {
    /// Seconds of the critical path by what they went into.
    pub critical: BTreeMap<SegmentKind, f64>,
    /// For each device, how much it waited for each other: the time in which it ran nothing and what
    /// it ran next was held up by the other.
    pub waits: BTreeMap<(u32, u32), f64>,
    /// Seconds of the step that the critical path does not cover.
    pub unattributed: f64,
}

impl Attribution {
    /// The share of the step's time that is charged to something.
    pub fn charged_share(&self, timeline: &Timeline) -> f64 {
        if timeline.seconds > 0.0 { 1.0 - self.unattributed / timeline.seconds } else { 1.0 }
    }
}

impl Timeline {
    /// The chain of causes that ends with the span that ended last, in the order of time. Gaps between
    /// the pieces are time that nothing explains.
    pub fn critical_path(&self) -> Vec<Segment> {
        let mut path = Vec::new();
        let last = (0..self.spans.len() as u32)
            .max_by(|&a, &b| self.spans[a as usize].end.total_cmp(&self.spans[b as usize].end));
        let mut current = last;
        // What comes later is explained already: a kernel may end after what it made ready has started.
        let mut until = f64::INFINITY;
        while let Some(i) = current {
            let span = &self.spans[i as usize];
            let mut piece = |kind, start: f64, end: f64| {
                let (start, end) = (start.min(until), end.min(until));
                if end > start {
                    path.push(Segment { kind, span: i, start, end });
                }
                until = until.min(start);
            };
            let busy = match span.kind {
                SpanKind::Compute => SegmentKind::Compute(span.device),
                SpanKind::Transfer { from, .. } | SpanKind::Dispatch { from } => {
                    SegmentKind::Link(from, span.device)
                }
                SpanKind::Wait => SegmentKind::Waiting(span.device),
            };
            piece(busy, span.start, span.end);
            piece(SegmentKind::Queueing(span.device), span.ready, span.start);
            current = span.cause.filter(|&cause| cause < i);
        }
        path.reverse();
        path
    }

    /// What the step's time was spent on.
    pub fn attribution(&self) -> Attribution {
        let mut attribution = Attribution { waits: self.waits(), ..Attribution::default() };
        let mut charged = 0.0;
        for segment in self.critical_path() {
            let seconds = segment.end - segment.start;
            *attribution.critical.entry(segment.kind).or_default() += seconds;
            charged += seconds;
        }
        attribution.unattributed = (self.seconds - charged).max(0.0);
        attribution
    }

    /// For each device, the time in which it was idle because what it ran next came from another one.
    fn waits(&self) -> BTreeMap<(u32, u32), f64> {
        let mut waits = BTreeMap::new();
        let mut by_start: Vec<&Span> = self.spans.iter().collect();
        by_start.retain(|s| matches!(s.kind, SpanKind::Compute));
        by_start.sort_by(|a, b| a.start.total_cmp(&b.start));
        let mut busy_until = vec![0.0f64; self.devices.len()];
        for span in by_start {
            let until = &mut busy_until[span.device as usize];
            let idle = span.start.min(span.ready) - *until;
            let source = span.cause.and_then(|cause| self.origin(cause, span.device));
            if let Some(source) = source.filter(|_| idle > 0.0) {
                *waits.entry((span.device, source)).or_default() += idle;
            }
            *until = until.max(span.end);
        }
        waits
    }

    /// The device from which the chain of causes at `i` came to `device`.
    fn origin(&self, i: u32, device: u32) -> Option<u32> {
        let span = &self.spans[i as usize];
        match span.kind {
            SpanKind::Transfer { from, .. } | SpanKind::Dispatch { from } if from != device => {
                Some(from)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(device: u32, kind: SpanKind, times: [f64; 3], cause: Option<u32>) -> Span {
        let [ready, start, end] = times;
        Span { device, lane: 0, node: "n".into(), op: "Op".into(), kind, ready, start, end, cause }
    }

    /// A kernel on device 0, its result sent to device 1, and a kernel there that had to queue.
    fn two_devices() -> Timeline {
        let transfer = SpanKind::Transfer { from: 0, bytes: 8 };
        let spans = vec![
            span(0, SpanKind::Compute, [0.0, 0.5, 2.0], None),
            span(1, transfer, [2.0, 2.0, 5.0], Some(0)),
            span(1, SpanKind::Compute, [5.0, 6.0, 9.0], Some(1)),
        ];
        Timeline { seconds: 10.0, devices: vec!["a".into(), "b".into()], spans }
    }

    #[test]
    fn the_critical_path_says_what_each_piece_went_into() {
        let path = two_devices().critical_path();
        let pieces: Vec<_> = path.iter().map(|s| (s.kind, s.start, s.end)).collect();
        let expected = [
            (SegmentKind::Queueing(0), 0.0, 0.5),
            (SegmentKind::Compute(0), 0.5, 2.0),
            (SegmentKind::Link(0, 1), 2.0, 5.0),
            (SegmentKind::Queueing(1), 5.0, 6.0),
            (SegmentKind::Compute(1), 6.0, 9.0),
        ];
        assert_eq!(pieces, expected);
    }

    #[test]
    fn what_no_span_covers_is_not_charged() {
        let timeline = two_devices();
        let attribution = timeline.attribution();
        assert_eq!(attribution.unattributed, 1.0);
        assert!((attribution.charged_share(&timeline) - 0.9).abs() < 1e-12);
        assert_eq!(attribution.waits, BTreeMap::from([((1, 0), 5.0)]));
    }
}
