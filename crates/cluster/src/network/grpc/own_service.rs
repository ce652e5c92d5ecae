//! The services beside TensorFlow's: `thalweg.Peer` and gRPC's health protocol.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Response;
use thalweg_kernel::{ResourceManager, Variable};
use thalweg_proto::grpc::health::v1::health_check_response::ServingStatus;
use thalweg_proto::grpc::health::v1::{HealthCheckRequest, HealthCheckResponse};
use thalweg_rpc::{MessageBody, Rope, decode, message};
use thalweg_runtime::{Pool, resident_bytes};
use thalweg_tensor::{Resource, Result, Tensor, bail, ensure, err};

use super::service::Service;
use crate::master::tracer::TracedStep;
use crate::network::own_messages::{
    AcceleratorInfo, QUEUES_MAX, QueueInfo, SilentTask, StatusRequest, StatusResponse, StopRequest,
    StopResponse, TaskInfo,
};
use crate::network::trace_messages::{StepTrace, TraceRequest, TraceResponse, TracedStepInfo};

/// Maximum number of waits in a response.
const WAITS_MAX: usize = 10_000;
/// Maximum time that `Stop` waits for sessions to be closed.
const GRACE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Maximum time that `Trace` waits for a step.
const TRACE_TIMEOUT_MAX: Duration = Duration::from_secs(3600);
/// The services that health checks may name.
const SERVICES: &[&str] =
    &["", "tensorflow.MasterService", "tensorflow.WorkerService", "thalweg.Peer"];

impl Service {
    /// Methods of `/thalweg.Peer`.
    pub(super) fn peer_call(&self, method: &str, rope: Rope) -> Result<Response<MessageBody>> {
        match method {
            "Status" => Ok(message(&self.status(&decode(rope)?))),
            "Clock" => Ok(message(&self.worker.clock(&decode(rope)?))),
            "Stop" => Ok(message(&self.stop(&decode(rope)?)?)),
            _ => bail!(Unimplemented, "thalweg.Peer has no method {method}"),
        }
    }

    /// `/thalweg.Peer/Trace`: the report of the next step that a client runs here, or of earlier traced ones.
    pub(super) async fn trace(&self, rope: Rope) -> Result<Response<MessageBody>> {
        let request: TraceRequest = decode(rope)?;
        let tracer = &self.master.tracer;
        let steps = if request.is_past {
            tracer.kept()
        } else {
            let timeout = Duration::from_millis(request.timeout_ms).min(TRACE_TIMEOUT_MAX);
            let next = tokio::time::timeout(timeout, tracer.next_step()?);
            let own = self.master.task().name();
            let seconds = timeout.as_secs_f32();
            let step = next.await.map_err(|_| {
                err!(
                    DeadlineExceeded,
                    "no client ran a whole step on the master of {own} within {seconds} s"
                )
            })?;
            vec![step.map_err(|_| err!(Unavailable, "{own} shuts down"))?]
        };
        Ok(message(&TraceResponse { steps: steps.iter().map(|step| traced(step)).collect() }))
    }

    /// Methods of `/grpc.health.v1.Health`.
    pub(super) fn health_call(&self, method: &str, rope: Rope) -> Result<Response<MessageBody>> {
        if method != "Check" {
            bail!(Unimplemented, "grpc.health.v1.Health has no method {method}");
        }
        let request: HealthCheckRequest = decode(rope)?;
        if !SERVICES.contains(&request.service.as_str()) {
            bail!(NotFound, "there is no service '{}'", request.service);
        }
        let status = match self.is_stopping.load(Ordering::Relaxed) {
            true => ServingStatus::NotServing,
            false => ServingStatus::Serving,
        };
        Ok(message(&HealthCheckResponse { status: status as i32 }))
    }

    /// Has the server end once it has no session.
    fn stop(&self, request: &StopRequest) -> Result<StopResponse> {
        let own = self.master.task().name();
        ensure!(
            self.may_be_stopped,
            PermissionDenied,
            "{own} refuses Stop: it was started without --allow-stop"
        );
        ensure!(
            request.task == own,
            FailedPrecondition,
            "Stop names {}, but this task is {own}; it keeps running",
            request.task
        );
        let grace = Duration::from_millis(request.grace_ms).min(GRACE_MAX);
        // The last request counts; there is no receiver if the server has ended.
        self.stop_requested.send_replace(Some(grace));
        Ok(StopResponse {})
    }

    fn status(&self, request: &StatusRequest) -> StatusResponse {
        let (master, worker) = (&self.master, &self.worker);
        let (member, task) = (master.member(), master.task());
        let diagnostics = &member.diagnostics;
        let waits_max = (request.waits_max as usize).min(WAITS_MAX);
        let mut nodes = master.waits(waits_max);
        nodes.extend(worker.waits(waits_max));
        let held = task.resources.all_named();
        let variables = || held.iter().map(|(_, held)| held).filter(|r| r.kind() == "Variable");
        let queue = |(name, held): &(Arc<str>, Arc<dyn Resource>)| {
            let size = held.queue_size()?;
            let capacity = size.capacity.map_or(-1, |max| i64::try_from(max).unwrap_or(i64::MAX));
            Some(QueueInfo { name: name.to_string(), size: size.elements, capacity })
        };
        let own_cluster = member.cluster.tasks().filter(|_| request.with_cluster);
        let own_cluster = own_cluster.map(|(task, address)| TaskInfo {
            task: task.to_string(),
            address: address.to_owned(),
        });
        let (master_steps, master_steps_failed) = diagnostics.as_master.succeeded_and_failed();
        let (worker_steps, worker_steps_failed) = diagnostics.as_worker.succeeded_and_failed();
        let silent = member.silent_tasks().into_iter().map(|(task, silent)| SilentTask {
            task: task.to_string(),
            silent_ms: silent.as_millis() as u64,
        });
        let devices = task.devices();
        StatusResponse {
            task: task.name(),
            version: env!("CARGO_PKG_VERSION").into(),
            incarnation: task.incarnation,
            devices: devices.iter().map(|d| d.description().name.to_string()).collect(),
            master_sessions: master.session_count() as u64,
            worker_sessions: worker.session_count() as u64,
            master_steps,
            master_steps_failed,
            worker_steps,
            worker_steps_failed,
            steps_now: task.steps() as u64,
            resident_bytes: resident_bytes(),
            memory_limit_bytes: task.options.memory_limit_bytes as u64,
            variables: variables().count() as u64,
            variable_bytes: variables().map(|v| v.held_bytes() as u64).sum(),
            resources: (held.len() - variables().count()) as u64,
            uptime_ms: diagnostics.uptime().as_millis() as u64,
            waits: diagnostics.waits(nodes, waits_max),
            silent: silent.collect(),
            process: std::process::id(),
            threads: Pool::global().threads() as u32,
            accelerators: devices.iter().filter_map(|d| AcceleratorInfo::of(&**d)).collect(),
            cluster: own_cluster.collect(),
            queues: held.iter().filter_map(queue).take(QUEUES_MAX).collect(),
            received: diagnostics.received(),
            clocks: staleness_clocks(&task.resources),
        }
    }
}

/// The variable with the steps of each worker where training bounds how stale a worker may be.
const CLOCKS: &str = "coordination/clocks";
/// The most workers whose clocks a status has.
const CLOCKS_MAX: usize = 4096;

fn staleness_clocks(resources: &ResourceManager) -> Vec<i64> {
    let clocks = resources.find::<Variable>("", CLOCKS).and_then(|clocks| clocks.snapshot());
    let of = |clocks: Tensor| {
        Some(clocks.as_slice::<i64>().ok()?.iter().take(CLOCKS_MAX).copied().collect())
    };
    clocks.and_then(of).unwrap_or_default()
}

fn traced(step: &TracedStep) -> TracedStepInfo {
    TracedStepInfo {
        id: step.id,
        session: step.session.clone(),
        metadata: Some(step.metadata.to_proto()),
        trace: StepTrace::of(&step.metadata),
    }
}
