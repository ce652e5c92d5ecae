//! Discovery of devices before a session is created: `GetStatus` to the tasks that its graph needs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use thalweg_kernel::{Cancellation, DeviceName, DeviceSpec};
use thalweg_proto as pb;
use thalweg_runtime::on_pool;
use thalweg_tensor::{Code, Error, Result, err};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::warn;

use crate::cluster_spec::TaskName;
use crate::diagnostics::WaitTarget;
use crate::master::Master;
use crate::master::config::with_defaults;
use crate::master::session_peers::SessionPeers;
use crate::member::Member;
use crate::network::transport::Call;

/// Timeout of `GetStatus` on tasks that the session's graph does not name.
const OPTIONAL_TIMEOUT: Duration = Duration::from_millis(300);
/// Timeout of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause between two calls to the same task.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Delay until a wait for a task is logged, and the interval after that.
const REPORT_DELAY: Duration = Duration::from_secs(3);
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// How long to wait for a task that has answered before: it may restart.
const RESTART_TIMEOUT: Duration = Duration::from_secs(30);

impl Master {
    /// Creates a session over the client's graph, once the tasks that the graph names have answered.
    pub async fn open_session(
        self: &Arc<Self>,
        mut request: pb::CreateSessionRequest,
    ) -> Result<pb::CreateSessionResponse> {
        request.config = Some(with_defaults(self.task(), request.config.take()));
        let peers = self.new_peers(&request)?;
        if let Some(peers) = &peers {
            discover(peers, request.graph_def.as_ref()).await?;
        }
        let master = self.clone();
        on_pool(move || master.create_session(request, peers)).await
    }
}

/// Finds the devices of other tasks for a session: waits until the tasks that `graph` names have
/// started, and adds the other tasks that answer within [`OPTIONAL_TIMEOUT`].
pub(crate) async fn discover(
    peers: &Arc<SessionPeers>,
    graph: Option<&pb::GraphDef>,
) -> Result<()> {
    let member = &peers.member;
    let allowed: Vec<TaskName> = member
        .other_tasks()
        .into_iter()
        .filter(|t| matches_filters(&peers.config.device_filters, t))
        .collect();
    let named = graph.map(|g| named_tasks(g, member)).unwrap_or_default();
    let is_unknown = |t: &&TaskName| !peers.has_task(t);
    let (needed, optional_tasks): (Vec<&TaskName>, Vec<&TaskName>) =
        allowed.iter().filter(is_unknown).partition(|t| named.contains(t));
    let mut waits = JoinSet::new();
    for task in needed {
        waits.spawn(wait_for_task(member.clone(), peers.clone(), task.clone()));
    }
    let mut optional = JoinSet::new();
    for task in optional_tasks {
        let (member, peers, task) = (member.clone(), peers.clone(), task.clone());
        optional.spawn(async move {
            if let Ok(status) = get_status(&member, &task, OPTIONAL_TIMEOUT).await {
                peers.add(&task, &status.device_attributes);
            }
        });
    }
    while let Some(found) = waits.join_next().await {
        found.unwrap_or_else(|e| Err(err!(Internal, "{e}")))?;
    }
    let all = async { while optional.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(OPTIONAL_TIMEOUT, all).await;
    if member.is_propagated { create_worker_sessions(peers, &named).await } else { Ok(()) }
}

/// Creates the worker sessions of a propagated cluster. `CreateWorkerSession` gives a task its name in that
/// cluster, which the task must have before the first `RecvTensor` under that name.
async fn create_worker_sessions(
    peers: &Arc<SessionPeers>,
    needed: &BTreeSet<TaskName>,
) -> Result<()> {
    let mut waits = Vec::new();
    for task in peers.tasks() {
        let (sender, receiver) = oneshot::channel();
        peers.create_worker_session(&peers.task(&task), move |opened| {
            // The receiver is dropped if the client cancelled the call.
            let _ = sender.send(opened);
        });
        waits.push((task, receiver));
    }
    for (task, receiver) in waits {
        let dropped = || Err(err!(Internal, "the call ended without an answer"));
        let opened = receiver.await.unwrap_or_else(|_| dropped());
        if needed.contains(&task) {
            opened?;
        }
    }
    Ok(())
}

/// Whether a session's `device_filters` allow a task.
fn matches_filters(filters: &[String], task: &TaskName) -> bool {
    let device = DeviceName::cpu(&task.job, task.index, 0);
    let matches = |filter: &String| {
        filter.parse::<DeviceSpec>().is_ok_and(|mut spec| {
            (spec.device_type, spec.index) = (None, None);
            spec.matches(&device)
        })
    };
    filters.is_empty() || filters.iter().any(matches)
}

/// The tasks that nodes of a graph name. A job without a task index means its first task, or this one.
fn named_tasks(graph: &pb::GraphDef, member: &Member) -> BTreeSet<TaskName> {
    let functions = graph.library.as_ref().map_or(&[][..], |l| &l.function);
    let nodes = graph.node.iter().chain(functions.iter().flat_map(|f| &f.node_def));
    let mut texts: Vec<&str> = nodes.map(|n| n.device.as_str()).collect();
    texts.sort_unstable();
    texts.dedup();
    let mut named = BTreeSet::new();
    for spec in texts.iter().filter_map(|t| t.parse::<DeviceSpec>().ok()) {
        let Some(job) = spec.job else { continue };
        let of_job = |t: &&TaskName| t.job == job && spec.task.is_none_or(|i| i == t.index);
        let mut matching = member.cluster.tasks().map(|(t, _)| t).filter(of_job);
        let is_own = spec.task.is_none() && member.name.job == job;
        if let Some(task) = matching.next().filter(|_| !is_own) {
            named.insert(task.clone());
        }
    }
    named
}

/// Calls `GetStatus` on a task until it answers.
async fn wait_for_task(
    member: Arc<Member>,
    peers: Arc<SessionPeers>,
    task: TaskName,
) -> Result<()> {
    let was_seen = member.seen.lock().contains(&task);
    let limit = if was_seen { RESTART_TIMEOUT } else { member.task.options.startup_timeout };
    let clock = &member.task.options.environment.clock;
    let begin = clock.monotonic();
    let waited = || clock.monotonic().saturating_sub(begin);
    let mut report_after = REPORT_DELAY;
    let _waits = member.diagnostics.wait(0, WaitTarget::GetStatus(task.clone()));
    loop {
        match get_status(&member, &task, CALL_TIMEOUT).await {
            Ok(status) => {
                member.seen.lock().insert(task.clone());
                peers.add(&task, &status.device_attributes);
                return Ok(());
            }
            Err(e) if waited() >= limit => {
                return Err(unavailable_task(&task, was_seen, limit, &e));
            }
            Err(_) => {}
        }
        if waited() >= report_after {
            warn!(
                target: "thalweg::cluster",
                session = peers.handle,
                task = %task,
                "a session waits for {task}, which its graph names and which does not answer"
            );
            report_after += REPORT_INTERVAL;
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// The error for a task that does not answer. TensorFlow's clients retry UNAVAILABLE without a bound, so only
/// a task that has answered before and may restart gets it.
fn unavailable_task(task: &TaskName, was_seen: bool, limit: Duration, error: &Error) -> Error {
    let code = if was_seen { Code::Unavailable } else { Code::DeadlineExceeded };
    let seconds = limit.as_secs_f32();
    Error::new(
        code,
        format!("the graph names {task}, which did not answer within {seconds} s: {error}"),
    )
}

async fn get_status(
    member: &Member,
    task: &TaskName,
    timeout: Duration,
) -> Result<pb::GetStatusResponse> {
    let Some(transport) = &member.transport else {
        return Err(err!(Unavailable, "this task belongs to no cluster"));
    };
    let (sender, receiver) = oneshot::channel();
    let done = Box::new(move |response| {
        // The receiver is dropped if the client cancelled the call.
        let _ = sender.send(response);
    });
    // In a block of its own: a reference to it must not be held across the await.
    {
        let cancellation = &Cancellation::default();
        transport.get_status(Call { to: task, timeout: Some(timeout), cancellation }, done);
    }
    receiver
        .await
        .unwrap_or_else(|_| Err(err!(Internal, "GetStatus to {task} ended without an answer")))
}

/// Has all other tasks empty containers; those that do not answer within [`CALL_TIMEOUT`] are ignored.
pub(crate) async fn cleanup_all(member: &Arc<Member>, containers: &[String]) {
    let Some(transport) = &member.transport else { return };
    let mut waits = Vec::new();
    for task in member.other_tasks() {
        let (sender, receiver) = oneshot::channel();
        let request = pb::CleanupAllRequest { container: containers.to_vec() };
        let done = Box::new(move |_| {
            let _ = sender.send(());
        });
        let cancellation = &Cancellation::default();
        let call = Call { to: &task, timeout: Some(CALL_TIMEOUT), cancellation };
        transport.cleanup_all(call, request, done);
        waits.push(receiver);
    }
    for wait in waits {
        let _ = wait.await;
    }
}
