//! Asks the tasks of a cluster for their states, each second, while a client of the dashboard is there.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use thalweg_cluster::TaskName;
use thalweg_cluster::grpc::{TaskState, task_state};
use thalweg_cluster::own_messages::{StatusRequest, StatusResponse};
use thalweg_kernel::{Clock, DeviceName};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::history::History;
use super::{ClusterSource, Watched};
use crate::attention::Attention;

/// Time between two rounds of requests.
const INTERVAL: Duration = Duration::from_secs(1);
/// The deadline of a request.
const LIMIT: Duration = Duration::from_millis(2000);
/// Older states are not given to a client that asks; a new round is waited for.
const FRESH_FOR: Duration = Duration::from_secs(4);
/// Most waits that a task lists.
const WAITS_MAX: u32 = 200;
/// Most concurrent requests.
const REQUESTS_MAX: usize = 256;
/// Most tasks that are watched.
const TASKS_MAX: usize = 10_000;

/// Watches a cluster.
pub(crate) struct ClusterWatch {
    source: ClusterSource,
    clock: Arc<dyn Clock>,
    history: Mutex<History>,
    attention: Attention,
}

impl ClusterWatch {
    pub(crate) fn new(source: ClusterSource, clock: Arc<dyn Clock>) -> Arc<ClusterWatch> {
        let attention = Attention::new(clock.clone());
        let mut history = History::default();
        history.watch(match &source {
            ClusterSource::Address(address) => {
                vec![Watched { name: address.clone(), address: address.clone() }]
            }
            ClusterSource::Spec(spec) => spec
                .tasks()
                .take(TASKS_MAX)
                .map(|(task, address)| Watched { name: task.to_string(), address: address.into() })
                .collect(),
        });
        Arc::new(ClusterWatch { source, clock, history: Mutex::new(history), attention })
    }

    /// A client asks: waits for a round if the last is long ago.
    pub(crate) async fn ask(&self) {
        self.attention.ask(FRESH_FOR, LIMIT + INTERVAL).await;
    }

    /// The tasks and events of the last round.
    pub(crate) async fn snapshot(&self) -> Value {
        self.ask().await;
        self.history.lock().to_json()
    }

    /// The devices of the tasks that have answered.
    pub(crate) fn devices(&self) -> Vec<DeviceName> {
        let history = self.history.lock();
        let statuses = history.tasks.iter().filter_map(|task| task.last.as_ref());
        statuses.flat_map(|s| &s.devices).filter_map(|name| name.parse().ok()).collect()
    }

    /// Addresses of the tasks on which clients have sessions.
    pub(crate) fn masters(&self) -> Vec<String> {
        let history = self.history.lock();
        let has_session = |state: &Option<TaskState>| match state {
            Some(TaskState::Alive(status)) => status.master_sessions > 0,
            _ => false,
        };
        let masters = history.tasks.iter().filter(|task| has_session(&task.state));
        masters.map(|task| task.of.address.clone()).collect()
    }

    /// Asks the tasks for ever; the caller ends it by dropping it.
    pub(crate) async fn run(self: Arc<Self>) {
        self.attention.work(INTERVAL, || self.round()).await;
    }

    /// One round: the states of all tasks, and the tasks that a new one has told of.
    async fn round(&self) {
        let watched = || self.history.lock().tasks.iter().map(|task| task.of.clone()).collect();
        let lists = match &self.source {
            ClusterSource::Address(address) => Some(address.as_str()),
            ClusterSource::Spec(_) => None,
        };
        let mut tasks: Vec<Watched> = watched();
        let mut states = ask(&tasks, lists).await;
        if let Some(found) = lists.and_then(|address| discovered(&tasks, &states, address)) {
            self.history.lock().watch(found);
            tasks = watched();
            states = ask(&tasks, lists).await;
        }
        let now = self.clock.wall().as_millis() as u64;
        self.history.lock().report(states, now);
    }
}

/// The tasks that the task at `address` lists, if they differ from those that were asked.
fn discovered(tasks: &[Watched], states: &[TaskState], address: &str) -> Option<Vec<Watched>> {
    let (_, state) = tasks.iter().zip(states).find(|(task, _)| task.address == address)?;
    let found = match state {
        TaskState::Alive(status) => listed(status, address),
        TaskState::Foreign(devices) => {
            let name = TaskName::of(&devices.first()?.parse().ok()?).to_string();
            vec![Watched { name, address: address.to_owned() }]
        }
        TaskState::Silent | TaskState::Dead(_) => return None,
    };
    (found != tasks).then_some(found)
}

/// The tasks that a task at `address` lists, itself included.
fn listed(status: &StatusResponse, address: &str) -> Vec<Watched> {
    let of_cluster = status.cluster.iter().take(TASKS_MAX);
    let mut tasks: Vec<Watched> = of_cluster
        .map(|task| Watched { name: task.task.clone(), address: task.address.clone() })
        .collect();
    // A task in no cluster, or one that another address leads to as well.
    match tasks.iter_mut().find(|task| task.name == status.task) {
        Some(own) => own.address = address.to_owned(),
        None => tasks.push(Watched { name: status.task.clone(), address: address.to_owned() }),
    }
    tasks
}

/// The states of these tasks, in their order; the one at the address `lists` lists its cluster.
async fn ask(tasks: &[Watched], lists: Option<&str>) -> Vec<TaskState> {
    let permits = Arc::new(Semaphore::new(REQUESTS_MAX));
    let mut requests = JoinSet::new();
    for (i, task) in tasks.iter().enumerate() {
        let (permits, address) = (permits.clone(), task.address.clone());
        let with_cluster = lists == Some(task.address.as_str());
        let request = StatusRequest { waits_max: WAITS_MAX, with_cluster };
        requests.spawn(async move {
            let _permit = permits.acquire_owned().await;
            (i, task_state(&address, &request, LIMIT).await)
        });
    }
    let mut states = requests.join_all().await;
    states.sort_by_key(|(i, _)| *i);
    states.into_iter().map(|(_, state)| state).collect()
}

#[cfg(test)]
mod tests {
    use thalweg_cluster::own_messages::TaskInfo;

    use super::*;

    #[test]
    fn a_task_lists_its_cluster_and_is_asked_where_it_was_found() {
        let (ps, worker) = ("/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0");
        let info =
            |task: &str, address: &str| TaskInfo { task: task.into(), address: address.into() };
        let cluster = vec![info(ps, "internal:1"), info(worker, "internal:2")];
        let status = StatusResponse { task: ps.into(), cluster, ..Default::default() };
        let addresses = |status| -> Vec<(String, String)> {
            listed(status, "127.0.0.1:9").into_iter().map(|w| (w.name, w.address)).collect()
        };
        let expected = [(ps, "127.0.0.1:9"), (worker, "internal:2")]
            .map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(addresses(&status), expected);
        let alone = StatusResponse { task: ps.into(), ..Default::default() };
        assert_eq!(addresses(&alone), expected[..1]);
    }
}
