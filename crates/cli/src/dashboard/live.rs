//! Steps of a running cluster, for the dashboard.

use std::time::Duration;

use thalweg_cluster::grpc::trace_next_step;
use thalweg_dashboard::{ClockOffset, StepTimeline, Tracer};
use thalweg_sim::measured;
use thalweg_tensor::Result;

/// Traces steps by asking their masters.
pub(crate) struct MasterTracer;

impl Tracer for MasterTracer {
    fn trace_next(&self, address: &str, timeout: Duration) -> Result<StepTimeline> {
        let step = trace_next_step(address, timeout)?;
        let clock = |clock: &thalweg_runtime::TaskClock| ClockOffset {
            task: clock.task.clone(),
            offset_seconds: clock.offset_ns as f64 * 1e-9,
            error_seconds: clock.error_ns.map_or(f64::NAN, |ns| ns as f64 * 1e-9),
        };
        Ok(StepTimeline {
            label: format!("step {} of {} at {address}", step.id, step.session),
            time_ms: step.metadata.started_ns / 1_000_000,
            timeline: measured(&step.metadata),
            clocks: step.metadata.clocks.iter().map(clock).collect(),
        })
    }
}
