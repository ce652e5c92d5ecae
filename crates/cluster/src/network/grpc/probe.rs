//! Status, health and stop requests from outside a cluster, each with a time limit.

use std::sync::Arc;
use std::time::Duration;

use thalweg_proto as pb;
use thalweg_proto::grpc::health::v1::health_check_response::ServingStatus;
use thalweg_proto::grpc::health::v1::{HealthCheckRequest, HealthCheckResponse};
use thalweg_rpc::{Channel, ConnectPolicy, wait};
use thalweg_tensor::{Budget, Code, Result, err};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::methods;
use crate::cluster_spec::{ClusterSpec, TaskName};
use crate::network::own_messages::{StatusRequest, StatusResponse, StopRequest, StopResponse};

/// Maximum size of a response.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Maximum number of concurrent requests.
const AT_ONCE: usize = 512;

/// The state of a task, as seen from outside.
#[derive(Clone, Debug)]
pub enum TaskState {
    /// A task of ours, with its status.
    Alive(Box<StatusResponse>),
    /// A task that has TensorFlow's protocol only, with its devices.
    Foreign(Vec<String>),
    /// It did not answer within the time limit.
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

/// The states of all tasks of a cluster. Each has `limit` to answer, and lists at most `waits_max` waits.
pub fn status_of(
    cluster: &ClusterSpec,
    waits_max: u32,
    limit: Duration,
) -> Result<Vec<TaskReport>> {
    let tasks: Vec<(TaskName, String)> =
        cluster.tasks().map(|(task, address)| (task.clone(), address.to_owned())).collect();
    let all = async move {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut asked = JoinSet::new();
        for (task, address) in tasks {
            let places = places.clone();
            asked.spawn(async move {
                let _place = places.acquire().await;
                let answer = tokio::time::timeout(limit, ask(&address, waits_max, limit)).await;
                let state = answer.unwrap_or(TaskState::Silent);
                TaskReport { task, address, state }
            });
        }
        let mut reports = asked.join_all().await;
        reports.sort_by(|a, b| a.task.cmp(&b.task));
        Ok(reports)
    };
    wait(all, None)
}

async fn ask(address: &str, waits_max: u32, limit: Duration) -> TaskState {
    let request = StatusRequest { waits_max };
    let answer: Result<StatusResponse> =
        channel(address, limit).call(methods::STATUS, &request, None).await;
    match answer {
        Ok(status) => return TaskState::Alive(Box::new(status)),
        Err(e) if e.code() == Code::Unimplemented => {}
        Err(e) => return TaskState::Dead(e.message().to_owned()),
    }
    let answer: Result<pb::GetStatusResponse> =
        channel(address, limit).call(methods::GET_STATUS, &pb::GetStatusRequest {}, None).await;
    match answer {
        Ok(status) => {
            TaskState::Foreign(status.device_attributes.into_iter().map(|d| d.name).collect())
        }
        Err(e) => TaskState::Dead(e.message().to_owned()),
    }
}

/// Asks tasks to end once they have no session, at the latest after `grace`; returns what each answered
/// within `limit`. Tasks of TensorFlow, and those that do not allow it, refuse.
pub fn stop_tasks(
    cluster: &ClusterSpec,
    tasks: &[TaskName],
    grace: Duration,
    limit: Duration,
) -> Result<Vec<(TaskName, Result<()>)>> {
    let tasks = tasks.iter().map(|task| (task.clone(), cluster.address(task).map(str::to_owned)));
    let tasks: Vec<(TaskName, Option<String>)> = tasks.collect();
    let all = async move {
        let mut asked = JoinSet::new();
        for (i, (task, address)) in tasks.into_iter().enumerate() {
            asked.spawn(async move {
                let answer = tokio::time::timeout(limit, ask_to_stop(&task, address, grace, limit));
                let silent = || err!(Unavailable, "{task} says nothing");
                let answer = answer.await.unwrap_or_else(|_| Err(silent()));
                (i, task, answer)
            });
        }
        let mut found = asked.join_all().await;
        found.sort_by_key(|(i, ..)| *i);
        Ok(found.into_iter().map(|(_, task, answer)| (task, answer)).collect())
    };
    wait(all, None)
}

async fn ask_to_stop(
    task: &TaskName,
    address: Option<String>,
    grace: Duration,
    limit: Duration,
) -> Result<()> {
    let address = address.ok_or_else(|| err!(NotFound, "the cluster has no {task}"))?;
    let request = StopRequest {
        task: task.to_string(),
        grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
    };
    let answer: Result<StopResponse> =
        channel(&address, limit).call(methods::STOP, &request, None).await;
    answer.map(|_| ())
}

/// Whether the server at `address` is healthy: asks gRPC's health protocol, or `GetStatus` of a server
/// without it, for at most `limit`.
pub fn check_health(address: &str, limit: Duration) -> Result<()> {
    let address = address.to_owned();
    let check = async move {
        let answer: Result<HealthCheckResponse> = channel(&address, limit)
            .call(methods::HEALTH_CHECK, &HealthCheckRequest::default(), None)
            .await;
        match answer {
            Ok(health) if health.status == ServingStatus::Serving as i32 => Ok(()),
            Ok(_) => Err(err!(Unavailable, "{address} is about to end")),
            Err(e) if e.code() == Code::Unimplemented => {
                let request = pb::GetStatusRequest {};
                let channel = channel(&address, limit);
                let answer: Result<pb::GetStatusResponse> =
                    channel.call(methods::GET_STATUS, &request, None).await;
                answer.map(|_| ())
            }
            Err(e) => Err(e),
        }
    };
    let bounded = async move {
        let silent = || err!(Unavailable, "there is no answer within {} s", limit.as_secs_f32());
        tokio::time::timeout(limit, check).await.unwrap_or_else(|_| Err(silent()))
    };
    wait(bounded, None)
}

/// A channel of its own; the caller's limit ends an attempt to connect before the policy does.
fn channel(address: &str, limit: Duration) -> Channel {
    let policy = ConnectPolicy::Once(limit.saturating_mul(2));
    Channel::new(Arc::new(address.to_owned()), policy, Budget::new(ANSWER_BYTES_MAX))
}
