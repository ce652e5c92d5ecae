//! `thalweg cluster trace`: traces the next step that a client runs, and says what its time went into.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use thalweg_cluster::TracedStep;
use thalweg_cluster::grpc::trace_next_step;
use thalweg_runtime::{RunMetadata, TaskClock};
use thalweg_sim::{Summary, Timeline, measured, trace_json};
use thalweg_tensor::{Context, Result};

use crate::run::parse_seconds;
use crate::{Failure, files};

/// What is traced, and where the result goes.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Args {
    /// The server on which the client has its session; of a job with a session on each worker, one
    /// of them
    #[arg(value_name = "HOST:PORT")]
    address: String,

    /// How long to wait for a step to begin and end
    #[arg(long, value_name = "SECONDS", default_value = "60", allow_negative_numbers = true,
          value_parser = parse_seconds, help_heading = "Execution")]
    timeout: Duration,

    /// Write the timeline, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "PATH", help_heading = "Output")]
    output: Option<PathBuf>,

    /// Print one JSON object instead of text
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Traces the next step.
pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    if let Some(path) = &args.output {
        files::check_writable(path).context(|| "--output")?;
    }
    let address = args.address.strip_prefix("grpc://").unwrap_or(&args.address);
    let step = trace_next_step(address, args.timeout)?;
    let timeline = measured(&step.metadata);
    if let Some(path) = &args.output {
        write_timeline(path, &timeline)?;
    }
    let summary = Summary::of(&timeline);
    match args.json {
        true => writeln!(out, "{}", to_json(&step, &summary))?,
        false => {
            if !step.metadata.master.is_empty() {
                writeln!(out, "step {} of {}", step.id, step.metadata.master)?;
            }
            write!(out, "{summary}")?;
            write_clocks(&step.metadata, out)?;
        }
    }
    Ok(())
}

/// Writes a timeline in the trace-event format.
pub(crate) fn write_timeline(path: &Path, timeline: &Timeline) -> Result<()> {
    files::write(path, trace_json(timeline).as_bytes())
}

fn to_json(step: &TracedStep, summary: &Summary<'_>) -> Value {
    let mut json = summary.to_json();
    json["step"] = step.id.into();
    json["session"] = step.session.as_str().into();
    json["master"] = step.metadata.master.as_str().into();
    json["clocks"] = step.metadata.clocks.iter().map(clock_json).collect();
    json
}

/// What is known of a task's clock.
pub(crate) fn clock_json(clock: &TaskClock) -> Value {
    json!({
        "task": clock.task,
        "offset_seconds": clock.offset_ns as f64 / 1e9,
        "error_seconds": clock.error_ns.map(|ns| ns as f64 / 1e9),
        "round_trip_seconds": clock.round_trip_ns as f64 / 1e9,
    })
}

fn write_clocks(metadata: &RunMetadata, out: &mut dyn Write) -> Result<(), Failure> {
    let ms = |ns: f64| ns / 1e6;
    for clock in &metadata.clocks {
        let (task, offset) = (&clock.task, ms(clock.offset_ns as f64));
        let trip = ms(clock.round_trip_ns as f64);
        match clock.error_ns {
            Some(error) => writeln!(
                out,
                "clock of {task}: {offset:+.3} ms, at most {:.3} ms off; round trip {trip:.3} ms",
                ms(error as f64)
            )?,
            None => writeln!(out, "clock of {task}: not known, taken as {offset:+.3} ms")?,
        }
    }
    Ok(())
}
