//! Status, health and stop requests from outside a cluster, each with a timeout.

use std::sync::Arc;
use std::time::Duration;

use thalweg_proto as pb;
use thalweg_proto::grpc::health::v1::health_check_response::ServingStatus;
use thalweg_proto::grpc::health::v1::{HealthCheckRequest, HealthCheckResponse};
use thalweg_rpc::{Channel, ConnectPolicy, block_on};
use thalweg_tensor::{Budget, Code, Result, err};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::methods;
use crate::cluster_spec::{ClusterSpec, TaskName};
use crate::master::tracer::TracedStep;
use crate::network::own_messages::{StatusRequest, StatusResponse, StopRequest, StopResponse};
use crate::network::trace_messages::{StepTrace, TraceRequest, TraceResponse, TracedStepInfo};

/// Maximum size of a response.
const RESPONSE_BYTES_MAX: usize = 256 << 20;
/// How long a master may take to answer after the step has ended.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Maximum number of concurrent requests.
const CONCURRENT_REQUESTS_MAX: usize = 512;

/// The state of a task, as seen from outside.
#[derive(Clone, Debug)]
pub enum TaskState {
    /// A task of ours, with its status.
    Alive(Box<StatusResponse>),
    /// A TensorFlow task, with its devices.
    Foreign(Vec<String>),
    /// It did not answer within the timeout.
    Silent,
    /// It cannot be reached, for this reason.
    Dead(String),
}

/// A task and its state.
#[derive(Clone, Debug)]
pub struct TaskReport {
    /// The task.
    pub task: TaskName,
    /// Its address.
    pub address: String,
    /// Its state.
    pub state: TaskState,
}

/// The states of all tasks of a cluster. Each has `timeout` to answer, and lists at most `waits_max` waits.
pub fn status_of(
    cluster: &ClusterSpec,
    waits_max: u32,
    timeout: Duration,
) -> Result<Vec<TaskReport>> {
    let tasks: Vec<(TaskName, String)> =
        cluster.tasks().map(|(task, address)| (task.clone(), address.to_owned())).collect();
    let all = async move {
        let permits = Arc::new(Semaphore::new(CONCURRENT_REQUESTS_MAX));
        let mut requests = JoinSet::new();
        for (task, address) in tasks {
            let permits = permits.clone();
            requests.spawn(async move {
                let _permit = permits.acquire().await;
                let request = StatusRequest { waits_max, with_cluster: false };
                let state = task_state(&address, &request, timeout).await;
                TaskReport { task, address, state }
            });
        }
        let mut reports = requests.join_all().await;
        reports.sort_by(|a, b| a.task.cmp(&b.task));
        Ok(reports)
    };
    block_on(all, None)
}

/// The state of the task at `address`, which has `timeout` to answer.
pub async fn task_state(address: &str, request: &StatusRequest, timeout: Duration) -> TaskState {
    let answer = tokio::time::timeout(timeout, get_status(address, request, timeout)).await;
    answer.unwrap_or(TaskState::Silent)
}

async fn get_status(address: &str, request: &StatusRequest, timeout: Duration) -> TaskState {
    let answer: Result<StatusResponse> =
        channel(address, timeout).call(methods::STATUS, request, None).await;
    match answer {
        Ok(status) => return TaskState::Alive(Box::new(status)),
        Err(e) if e.code() == Code::Unimplemented => {}
        Err(e) => return TaskState::Dead(e.message().to_owned()),
    }
    let answer: Result<pb::GetStatusResponse> =
        channel(address, timeout).call(methods::GET_STATUS, &pb::GetStatusRequest {}, None).await;
    match answer {
        Ok(status) => {
            TaskState::Foreign(status.device_attributes.into_iter().map(|d| d.name).collect())
        }
        Err(e) => TaskState::Dead(e.message().to_owned()),
    }
}

/// Sends `Stop` to tasks: each shuts down once it has no session, at the latest after `grace`. Returns the
/// result of each call within `timeout`; TensorFlow's tasks, and those without `--allow-stop`, refuse.
pub fn stop_tasks(
    cluster: &ClusterSpec,
    tasks: &[TaskName],
    grace: Duration,
    timeout: Duration,
) -> Result<Vec<(TaskName, Result<()>)>> {
    let tasks = tasks.iter().map(|task| (task.clone(), cluster.address(task).map(str::to_owned)));
    let tasks: Vec<(TaskName, Option<String>)> = tasks.collect();
    let all = async move {
        let mut requests = JoinSet::new();
        for (i, (task, address)) in tasks.into_iter().enumerate() {
            requests.spawn(async move {
                let answer =
                    tokio::time::timeout(timeout, request_stop(&task, address, grace, timeout));
                let timed_out = || {
                    err!(Unavailable, "{task} did not answer within {} s", timeout.as_secs_f32())
                };
                let answer = answer.await.unwrap_or_else(|_| Err(timed_out()));
                (i, task, answer)
            });
        }
        let mut found = requests.join_all().await;
        found.sort_by_key(|(i, ..)| *i);
        Ok(found.into_iter().map(|(_, task, answer)| (task, answer)).collect())
    };
    block_on(all, None)
}

async fn request_stop(
    task: &TaskName,
    address: Option<String>,
    grace: Duration,
    timeout: Duration,
) -> Result<()> {
    let address = address.ok_or_else(|| err!(NotFound, "the cluster has no {task}"))?;
    let request = StopRequest {
        task: task.to_string(),
        grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
    };
    let answer: Result<StopResponse> =
        channel(&address, timeout).call(methods::STOP, &request, None).await;
    answer.map(|_| ())
}

/// Whether the server at `address` is healthy: asks gRPC's health protocol, or `GetStatus` of a server
/// without it, for at most `timeout`.
pub fn check_health(address: &str, timeout: Duration) -> Result<()> {
    let address = address.to_owned();
    let check = async move {
        let answer: Result<HealthCheckResponse> = channel(&address, timeout)
            .call(methods::HEALTH_CHECK, &HealthCheckRequest::default(), None)
            .await;
        match answer {
            Ok(health) if health.status == ServingStatus::Serving as i32 => Ok(()),
            Ok(_) => Err(err!(Unavailable, "{address} is shutting down")),
            Err(e) if e.code() == Code::Unimplemented => {
                let request = pb::GetStatusRequest {};
                let channel = channel(&address, timeout);
                let answer: Result<pb::GetStatusResponse> =
                    channel.call(methods::GET_STATUS, &request, None).await;
                answer.map(|_| ())
            }
            Err(e) => Err(e),
        }
    };
    let bounded = async move {
        let timed_out =
            || err!(Unavailable, "the server did not answer within {} s", timeout.as_secs_f32());
        tokio::time::timeout(timeout, check).await.unwrap_or_else(|_| Err(timed_out()))
    };
    block_on(bounded, None)
}

/// The next step that a client runs on the master at `address`, traced, or an error after `timeout`. A job with a
/// master for each worker has as many next steps.
pub fn trace_next_step(address: &str, timeout: Duration) -> Result<TracedStep> {
    let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let request = TraceRequest { timeout_ms, is_past: false };
    let mut steps = request_traces(address, request, timeout.saturating_add(ANSWER_TIME))?;
    steps.pop().ok_or_else(|| err!(DataLoss, "{address} answered without a step"))
}

/// The steps that the master at `address` has traced before, the latest last.
pub fn traced_steps(address: &str, timeout: Duration) -> Result<Vec<TracedStep>> {
    request_traces(address, TraceRequest { timeout_ms: 0, is_past: true }, timeout)
}

fn request_traces(
    address: &str,
    request: TraceRequest,
    timeout: Duration,
) -> Result<Vec<TracedStep>> {
    let address = address.to_owned();
    let call = async move {
        let timed_out =
            || err!(Unavailable, "{address} did not answer within {} s", timeout.as_secs_f32());
        // The server is there or not; only the step may take long.
        let channel = channel(&address, timeout.min(ANSWER_TIME));
        let answer = channel.call(methods::TRACE, &request, None);
        let answer: TraceResponse =
            tokio::time::timeout(timeout, answer).await.unwrap_or_else(|_| Err(timed_out()))?;
        Ok(answer.steps.into_iter().map(traced_step).collect())
    };
    block_on(call, None)
}

fn traced_step(step: TracedStepInfo) -> TracedStep {
    let metadata = StepTrace::join(step.metadata.unwrap_or_default(), step.trace);
    TracedStep { id: step.id, session: step.session, metadata }
}

/// A channel of its own; the caller's timeout ends an attempt to connect before the policy does.
fn channel(address: &str, timeout: Duration) -> Channel {
    let policy = ConnectPolicy::Once(timeout.saturating_mul(2));
    Channel::new(Arc::new(address.to_owned()), policy, Budget::new(RESPONSE_BYTES_MAX))
}
