//! Measured steps: traced in a cluster, or recorded in event files.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prost::Message;
use serde_json::{Value, json};
use thalweg_proto as pb;
use thalweg_runtime::RunMetadata;
use thalweg_sim::json::timeline_to_json;
use thalweg_sim::{Timeline, measured, trace_json};
use thalweg_tensor::{Result, err};

/// Most steps kept, and spans of all of them but the last; the oldest goes first.
const STEPS_MAX: usize = 50;
const SPANS_MAX: usize = 1_000_000;
/// Largest run metadata that is read.
const METADATA_BYTES_MAX: usize = 64 << 20;

/// Traces steps of a cluster that runs.
pub trait Tracer: Send + Sync {
    /// Traces the next step that a client runs on the master at `address`, and blocks until it has ended; the
    /// error is `DeadlineExceeded` if there was none within `timeout`.
    fn trace_next(&self, address: &str, timeout: Duration) -> Result<StepTimeline>;
}

/// A measured step.
#[derive(Clone, Debug, Default)]
pub struct StepTimeline {
    /// What it is called, with its session.
    pub label: String,
    /// When it began, since 1970.
    pub time_ms: u64,
    /// What it did.
    pub timeline: Timeline,
    /// The clocks of its tasks.
    pub clocks: Vec<ClockOffset>,
}

/// How far the clock of a task is from that of the task that traced.
#[derive(Clone, Debug)]
pub struct ClockOffset {
    /// The task.
    pub task: String,
    /// What was subtracted from its times, in seconds.
    pub offset_seconds: f64,
    /// Bound on the error of the offset.
    pub error_seconds: f64,
}

/// The steps.
#[derive(Default)]
pub(crate) struct Steps(Mutex<Numbered>);

#[derive(Default)]
struct Numbered {
    steps: VecDeque<(u64, Arc<StepTimeline>)>,
    next: u64,
}

impl Steps {
    /// Adds a step; returns its id.
    pub(crate) fn add(&self, step: StepTimeline) -> String {
        let mut all = self.0.lock();
        all.next += 1;
        let id = all.next;
        let spans = |all: &Numbered| {
            all.steps.iter().map(|(_, step)| step.timeline.spans.len()).sum::<usize>()
        };
        while all.steps.len() >= STEPS_MAX || spans(&all) > SPANS_MAX {
            all.steps.pop_front();
        }
        all.steps.push_back((id, Arc::new(step)));
        id.to_string()
    }

    /// Adds the run metadata of a step from an event file, unless it has no times or cannot be read.
    pub(crate) fn add_run_metadata(
        &self,
        run: &str,
        tagged: &pb::TaggedRunMetadata,
        step: i64,
        wall_time: f64,
    ) {
        if tagged.run_metadata.len() > METADATA_BYTES_MAX {
            return;
        }
        let Ok(metadata) = pb::RunMetadata::decode(&tagged.run_metadata[..]) else { return };
        let timeline = measured(&RunMetadata::from_proto(metadata));
        if timeline.spans.is_empty() {
            return;
        }
        let of_run = if run == "." { String::new() } else { format!(" of {run}") };
        self.add(StepTimeline {
            label: format!("{}, step {step}{of_run}", tagged.tag),
            time_ms: (wall_time * 1e3) as u64,
            timeline,
            ..StepTimeline::default()
        });
    }

    /// Whether there are any.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().steps.is_empty()
    }

    /// `/api/steps`.
    pub(crate) fn to_json(&self) -> Value {
        let all = self.0.lock();
        let steps = all.steps.iter().map(|(id, step)| {
            json!({
                "id": id.to_string(),
                "label": step.label,
                "seconds": step.timeline.seconds,
                "time_ms": step.time_ms,
                "simulated": false,
            })
        });
        json!({ "steps": steps.collect::<Vec<_>>() })
    }

    /// `/api/step`: the timeline of a step.
    pub(crate) fn timeline(&self, id: &str) -> Result<Value> {
        let step = self.find(id)?;
        let mut json = timeline_to_json(&step.timeline);
        let clock = |clock: &ClockOffset| {
            json!({
                "task": clock.task,
                "offset_seconds": clock.offset_seconds,
                "error_seconds": clock.error_seconds,
            })
        };
        json["clocks"] = step.clocks.iter().map(clock).collect();
        Ok(json)
    }

    /// `/api/step.perfetto`: the timeline of a step as trace events.
    pub(crate) fn trace_events(&self, id: &str) -> Result<String> {
        Ok(trace_json(&self.find(id)?.timeline))
    }

    fn find(&self, id: &str) -> Result<Arc<StepTimeline>> {
        let all = self.0.lock();
        let mut steps = all.steps.iter();
        let found =
            steps.find(|(number, _)| number.to_string() == id).map(|(_, step)| step.clone());
        found.ok_or_else(|| err!(NotFound, "there is no step '{id}'; the oldest are forgotten"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_steps_are_forgotten() {
        let steps = Steps::default();
        assert!(steps.is_empty());
        for i in 0..STEPS_MAX + 5 {
            let clocks =
                vec![ClockOffset { task: "t".into(), offset_seconds: 0.5, error_seconds: 0.1 }];
            let label = format!("step {i}");
            assert_eq!(
                steps.add(StepTimeline { label, clocks, ..StepTimeline::default() }),
                (i + 1).to_string()
            );
        }
        let json = steps.to_json();
        assert_eq!(json["steps"].as_array().unwrap().len(), STEPS_MAX);
        assert_eq!(
            (&json["steps"][0]["id"], &json["steps"][0]["label"]),
            (&json!("6"), &json!("step 5"))
        );
        assert_eq!(steps.timeline("6").unwrap()["clocks"][0]["offset_seconds"], 0.5);
        assert!(steps.timeline("5").is_err() && steps.trace_events("x").is_err());
        assert!(steps.trace_events("7").unwrap().contains("traceEvents"));
    }

    #[test]
    fn run_metadata_without_times_are_no_steps() {
        let steps = Steps::default();
        let tagged = |bytes: &'static [u8]| pb::TaggedRunMetadata {
            tag: "t".into(),
            run_metadata: thalweg_tensor::Bytes::from_static(bytes),
        };
        for bytes in [&b""[..], b"\xff\xff"] {
            steps.add_run_metadata(".", &tagged(bytes), 1, 1.0);
        }
        assert!(steps.is_empty());
    }
}
