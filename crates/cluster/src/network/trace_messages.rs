//! Messages of ours about traced steps: clocks, and what TensorFlow's `RunMetadata` has no fields for.

use thalweg_proto as pb;
use thalweg_runtime::{Dispatch, RunMetadata, SentTensor, TaskClock};

/// Request of `/thalweg.Peer/Clock`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ClockRequest {
    /// A traced step that has ended: its master wants to know what the task sent in it. 0 means none.
    #[prost(uint64, tag = "1")]
    pub(crate) step: u64,
}

/// The time by a task's clock.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ClockResponse {
    /// Its wall clock, in ns since 1970.
    #[prost(fixed64, tag = "1")]
    pub(crate) wall_ns: u64,
    /// The id of the start of its machine: tasks with the same one may share a clock. Empty if not known.
    #[prost(string, tag = "2")]
    pub(crate) boot: String,
    /// What the task sent in the step of the request, in ns since 1970.
    #[prost(message, repeated, tag = "3")]
    pub(crate) sent: Vec<SentInfo>,
}

/// A tensor that a task sent to another one.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SentInfo {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(fixed64, tag = "2")]
    requested_ns: u64,
    #[prost(fixed64, tag = "3")]
    sent_ns: u64,
}

/// A task's clock as seen from the master's.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ClockInfo {
    #[prost(string, tag = "1")]
    task: String,
    #[prost(sint64, tag = "2")]
    offset_ns: i64,
    #[prost(uint64, optional, tag = "3")]
    error_ns: Option<u64>,
    #[prost(uint64, tag = "4")]
    round_trip_ns: u64,
}

/// The part of a step that another task ran.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DispatchInfo {
    #[prost(string, tag = "1")]
    task: String,
    #[prost(uint64, tag = "2")]
    asked_ns: u64,
    #[prost(uint64, tag = "3")]
    sent_ns: u64,
    #[prost(uint64, tag = "4")]
    began_ns: u64,
    #[prost(uint64, tag = "5")]
    ended_ns: u64,
    #[prost(uint64, tag = "6")]
    answered_ns: u64,
}

/// What a trace has beyond TensorFlow's `RunMetadata`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StepTrace {
    /// When the step began, by the master's clock.
    #[prost(fixed64, tag = "1")]
    started_ns: u64,
    #[prost(uint64, tag = "2")]
    step: u64,
    #[prost(string, tag = "3")]
    master: String,
    #[prost(message, repeated, tag = "4")]
    clocks: Vec<ClockInfo>,
    #[prost(message, repeated, tag = "5")]
    dispatches: Vec<DispatchInfo>,
    #[prost(message, repeated, tag = "6")]
    sent: Vec<SentInfo>,
    #[prost(uint64, tag = "7")]
    duration_ns: u64,
    #[prost(uint64, tag = "8")]
    ending_ns: u64,
}

/// Fields of ours in a `RunStepResponse` or `RunCallableResponse`. TensorFlow's clients skip them.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StepResponseExtension {
    #[prost(message, optional, tag = "20000")]
    pub(crate) trace: Option<StepTrace>,
}

/// Request of `/thalweg.Peer/Trace`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TraceRequest {
    /// How long to wait for a step of a client to begin and end.
    #[prost(uint64, tag = "1")]
    pub(crate) timeout_ms: u64,
    /// Whether to return the steps that were traced before, at once.
    #[prost(bool, tag = "2")]
    pub(crate) is_past: bool,
}

/// Traced steps, the latest last.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TraceResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) steps: Vec<TracedStepInfo>,
}

/// A traced step of a client.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TracedStepInfo {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(string, tag = "2")]
    pub(crate) session: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) metadata: Option<pb::RunMetadata>,
    #[prost(message, optional, tag = "4")]
    pub(crate) trace: Option<StepTrace>,
}

impl From<&SentTensor> for SentInfo {
    fn from(SentTensor { key, requested_ns, sent_ns }: &SentTensor) -> SentInfo {
        SentInfo { key: key.clone(), requested_ns: *requested_ns, sent_ns: *sent_ns }
    }
}

impl From<SentInfo> for SentTensor {
    fn from(SentInfo { key, requested_ns, sent_ns }: SentInfo) -> SentTensor {
        SentTensor { key, requested_ns, sent_ns }
    }
}

impl StepTrace {
    /// What TensorFlow's message does not say of a step, if nodes were timed.
    pub(crate) fn of(metadata: &RunMetadata) -> Option<StepTrace> {
        if metadata.started_ns == 0 {
            return None;
        }
        let clock = |clock: &TaskClock| ClockInfo {
            task: clock.task.clone(),
            offset_ns: clock.offset_ns,
            error_ns: clock.error_ns,
            round_trip_ns: clock.round_trip_ns,
        };
        let dispatch = |dispatch: &Dispatch| DispatchInfo {
            task: dispatch.task.clone(),
            asked_ns: dispatch.asked_ns,
            sent_ns: dispatch.sent_ns,
            began_ns: dispatch.began_ns,
            ended_ns: dispatch.ended_ns,
            answered_ns: dispatch.answered_ns,
        };
        Some(StepTrace {
            started_ns: metadata.started_ns,
            duration_ns: metadata.duration_ns,
            ending_ns: metadata.ending_ns,
            step: metadata.step,
            master: metadata.master.clone(),
            clocks: metadata.clocks.iter().map(clock).collect(),
            dispatches: metadata.dispatches.iter().map(dispatch).collect(),
            sent: metadata.sent.iter().map(SentInfo::from).collect(),
        })
    }

    /// The report that a message of TensorFlow's and one of ours make together.
    pub(crate) fn join(proto: pb::RunMetadata, trace: Option<StepTrace>) -> RunMetadata {
        let report = RunMetadata::from_proto(proto);
        let Some(trace) = trace else { return report };
        let clock = |clock: ClockInfo| TaskClock {
            task: clock.task,
            offset_ns: clock.offset_ns,
            error_ns: clock.error_ns,
            round_trip_ns: clock.round_trip_ns,
        };
        let dispatch = |dispatch: DispatchInfo| Dispatch {
            task: dispatch.task,
            asked_ns: dispatch.asked_ns,
            sent_ns: dispatch.sent_ns,
            began_ns: dispatch.began_ns,
            ended_ns: dispatch.ended_ns,
            answered_ns: dispatch.answered_ns,
        };
        let mut joined = RunMetadata {
            started_ns: trace.started_ns,
            duration_ns: trace.duration_ns,
            ending_ns: trace.ending_ns,
            step: trace.step,
            master: trace.master,
            clocks: trace.clocks.into_iter().map(clock).collect(),
            dispatches: trace.dispatches.into_iter().map(dispatch).collect(),
            sent: trace.sent.into_iter().map(SentTensor::from).collect(),
            ..Default::default()
        };
        joined.absorb(report);
        joined
    }
}
