//! Conversion of `ConfigProto` and `RunOptions` to options of sessions and steps.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use thalweg_plan::{Choice, Options};
use thalweg_proto as pb;
use thalweg_runtime::{PlacedNode, PlacementLog, Pool, RunOptions, SessionOptions};
use thalweg_tensor::{Result, bail, ensure, err};
use tracing::info;

use crate::task::{CPUS_MAX, Task};

/// A client's `ConfigProto` merged over the task's default one, as TensorFlow's servers do it: lists are
/// concatenated, scalars replaced.
pub(crate) fn with_defaults(
    task: &Task,
    client_config: Option<pb::ConfigProto>,
) -> pb::ConfigProto {
    let (mut config, client_config) =
        (task.options.session_config.clone(), client_config.unwrap_or_default());
    if config == pb::ConfigProto::default() {
        return client_config;
    }
    config
        .merge(client_config.encode_to_vec().as_slice())
        .expect("a message that was decoded can be decoded again");
    config
}

/// Options of a session on `task` with this config.
pub(crate) fn session_options(task: &Task, config: &pb::ConfigProto) -> Result<SessionOptions> {
    // Other tasks have seen the devices that this one was started with: a session has no fewer.
    let cpus_min = task.cpus() as i32;
    let cpus = config.device_count.get("CPU").copied().unwrap_or(cpus_min);
    ensure!(
        (0..=CPUS_MAX).contains(&cpus),
        InvalidArgument,
        "device_count of CPU is {cpus}; it must be between 0 and {CPUS_MAX}"
    );
    // As in TensorFlow: 0 means the number of cores, -1 the calling thread.
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
        budget: Some(task.budget.clone()),
        plan: Options {
            optimize: level != pb::optimizer_options::Level::L0 as i32,
            allow_soft_placement: config.allow_soft_placement,
            bfloat16_transfers: config
                .graph_options
                .as_ref()
                .is_some_and(|g| g.enable_bfloat16_sendrecv),
            choice: placement(config)?.unwrap_or(task.options.placement),
            ..Options::default()
        },
        devices: task.first_devices(cpus.max(cpus_min) as u32),
        resources: (!is_isolated).then(|| task.resources.clone()),
        environment: task.options.environment.clone(),
        cost_model: task.options.cost_model.clone(),
        placement_log: config.log_device_placement.then(placement_log),
        ..Default::default()
    })
}

/// The name of the custom graph optimizer by which a client's config chooses how devices are chosen, and
/// that of its parameter. Other servers ignore optimizers that they do not know, or refuse them.
const PLACEMENT_OPTIMIZER: (&str, &str) = ("placement", "algorithm");

/// How devices are chosen, if the config says it:
/// `graph_options { rewrite_options { custom_optimizers { name: "placement" parameter_map { key:
/// "algorithm" value { s: "auto" } } } } }`.
fn placement(config: &pb::ConfigProto) -> Result<Option<Choice>> {
    let rewrite = config.graph_options.as_ref().and_then(|g| g.rewrite_options.as_ref());
    let mut optimizers = rewrite.into_iter().flat_map(|r| &r.custom_optimizers);
    let (name, parameter) = PLACEMENT_OPTIMIZER;
    let Some(optimizer) = optimizers.find(|o| o.name == name) else { return Ok(None) };
    let value = optimizer.parameter_map.get(parameter).and_then(|v| v.value.clone());
    let Some(pb::attr_value::Value::S(algorithm)) = value else {
        bail!(InvalidArgument, "the optimizer '{name}' lacks the string parameter '{parameter}'");
    };
    let algorithm = String::from_utf8_lossy(&algorithm);
    let choice = Choice::from_name(&algorithm);
    let choice = choice.ok_or_else(|| {
        let known = Choice::NAMES.map(|(name, _)| name).join(", ");
        err!(InvalidArgument, "there is no placement algorithm '{algorithm}': there are {known}")
    })?;
    Ok(Some(choice))
}

/// Logs the device of each node, in TensorFlow's format, with the reason.
fn placement_log() -> PlacementLog {
    Arc::new(|placed: &PlacedNode<'_>| {
        let PlacedNode { node, op, device, .. } = placed;
        let reason = placed.to_string();
        // The rules of TensorFlow are logged as TensorFlow does.
        let why = placed.finish_seconds.map_or_else(String::new, |_| format!(": {reason}"));
        info!(target: "thalweg::placement", node, op, %device, reason, "{node}: ({op}): {device}{why}");
    })
}

/// A timeout in milliseconds; none if it is not positive.
pub(crate) fn milliseconds(asked: i64) -> Option<Duration> {
    u64::try_from(asked).ok().filter(|&ms| ms > 0).map(Duration::from_millis)
}

/// Options of one step; `operation_timeout` is the session's default timeout.
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
        placement: None,
        cancellation: None,
        request_id,
    }
}

#[cfg(test)]
mod tests {
    use thalweg_graph::OpRegistry;
    use thalweg_kernel::KernelRegistry;
    use thalweg_tensor::Code;

    use super::*;
    use crate::task::TaskOptions;

    fn task(config: pb::ConfigProto) -> Task {
        let options = TaskOptions { session_config: config, ..Default::default() };
        Task::new(options, OpRegistry::new([]).unwrap(), KernelRegistry::new([]))
    }

    #[test]
    fn the_clients_config_overrides_the_tasks() {
        let client_config = |cpus: i32, timeout: i64, filter: &str| pb::ConfigProto {
            device_count: [("CPU".to_owned(), cpus)].into(),
            operation_timeout_in_ms: timeout,
            device_filters: vec![filter.into()],
            ..Default::default()
        };
        let task =
            task(pb::ConfigProto { log_device_placement: true, ..client_config(2, 10, "/job:ps") });
        assert_eq!(with_defaults(&task, None), task.options.session_config);
        let config = with_defaults(&task, Some(client_config(3, 20, "/job:worker")));
        assert_eq!((config.device_count["CPU"], config.operation_timeout_in_ms), (3, 20));
        assert_eq!(config.device_filters, ["/job:ps", "/job:worker"]);
        assert!(config.log_device_placement);
    }

    #[test]
    fn a_session_has_at_least_the_devices_of_its_task() {
        let cpus = |n: i32| pb::ConfigProto {
            device_count: [("CPU".to_owned(), n)].into(),
            ..Default::default()
        };
        assert_eq!(task(pb::ConfigProto::default()).devices().len(), 1);
        let task = task(cpus(2));
        assert_eq!(task.devices().len(), 2);
        for (asked, has) in [(1, 2), (2, 2), (5, 5)] {
            let config = with_defaults(&task, Some(cpus(asked)));
            assert_eq!(session_options(&task, &config).unwrap().devices.len(), has);
        }
        let e = session_options(&task, &cpus(300)).err().expect("300 devices are too many");
        assert_eq!(e.code(), Code::InvalidArgument, "{e}");
    }
}
