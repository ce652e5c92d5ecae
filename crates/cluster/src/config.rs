//! What a client's ConfigProto and RunOptions mean here.

use std::sync::Arc;
use std::time::Duration;

use thalweg_plan::Options;
use thalweg_proto as pb;
use thalweg_runtime::{PlacementLog, Pool, RunOptions, SessionOptions};
use thalweg_tensor::{Result, ensure};

use crate::task::Task;

/// CPU devices that one session may ask for.
const CPUS_MAX: i32 = 256;

/// Options of a session on `task` as its client wishes them.
pub(crate) fn session_options(task: &Task, config: &pb::ConfigProto) -> Result<SessionOptions> {
    let cpus = config.device_count.get("CPU").copied().unwrap_or(1);
    ensure!(
        (0..=CPUS_MAX).contains(&cpus),
        InvalidArgument,
        "device_count of CPU is {cpus}; it must be between 0 and {CPUS_MAX}"
    );
    // TensorFlow reads 0 as "decide yourself" and -1 as "the caller's thread".
    let threads = |asked: i32| match asked {
        1.. => (asked as usize).min(Pool::global().threads()),
        0 => Pool::global().threads(),
        _ => 1,
    };
    let level = config
        .graph_options
        .as_ref()
        .and_then(|g| g.optimizer_options.as_ref())
        .map_or(0, |o| o.opt_level);
    let is_isolated = config.isolate_session_state;
    Ok(SessionOptions {
        inter_threads: threads(config.inter_op_parallelism_threads),
        intra_threads: threads(config.intra_op_parallelism_threads),
        memory_limit_bytes: task.options.memory_limit_bytes,
        plan: Options {
            optimize: level != pb::optimizer_options::Level::L0 as i32,
            allow_soft_placement: config.allow_soft_placement,
            bfloat16_transfers: config
                .graph_options
                .as_ref()
                .is_some_and(|g| g.enable_bfloat16_sendrecv),
            ..Options::default()
        },
        devices: task.devices(cpus.max(1) as u32),
        resources: (!is_isolated).then(|| task.resources.clone()),
        environment: task.options.environment.clone(),
        placement_log: config.log_device_placement.then(placement_log),
        ..Default::default()
    })
}

/// Says on standard error where nodes were put, as TensorFlow does.
fn placement_log() -> PlacementLog {
    Arc::new(|node, op, device| eprintln!("{node}: ({op}): {device}"))
}

/// A wish for milliseconds; zero and less is none.
pub(crate) fn milliseconds(asked: i64) -> Option<Duration> {
    u64::try_from(asked).ok().filter(|&ms| ms > 0).map(Duration::from_millis)
}

/// Options of one step; `operation_timeout` is the session's for all of its calls.
pub(crate) fn run_options(
    options: Option<&pb::RunOptions>,
    operation_timeout: Option<Duration>,
    request_id: i64,
) -> RunOptions {
    let asked = options.and_then(|o| milliseconds(o.timeout_in_ms));
    let no_trace = pb::run_options::TraceLevel::NoTrace as i32;
    RunOptions {
        timeout: asked.or(operation_timeout),
        trace: options.is_some_and(|o| o.trace_level != no_trace),
        partition_graphs: options.is_some_and(|o| o.output_partition_graphs),
        cost_graph: false,
        cancellation: None,
        request_id,
    }
}
