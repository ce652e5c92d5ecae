//! A task as a member of its cluster: who the others are, the way to them, the steps they share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_kernel::Cancellation;

use crate::addresses::Addresses;
use crate::cluster_spec::{ClusterSpec, TaskName};
use crate::steps::Steps;
use crate::task::Task;
use crate::transport::{Call, Transport};
use crate::watch::Watch;

/// How long a word to another task that nobody waits for may take.
pub(crate) const NOTICE_LIMIT: Duration = Duration::from_secs(10);

/// A task and its cluster.
pub struct Member {
    /// The task.
    pub(crate) task: Arc<Task>,
    /// The cluster; empty if the task is alone.
    pub(crate) cluster: ClusterSpec,
    pub(crate) name: TaskName,
    pub(crate) transport: Option<Arc<dyn Transport>>,
    /// Steps on this task.
    pub(crate) steps: Steps,
    /// Tasks that have answered at some time.
    pub(crate) seen: Mutex<BTreeSet<TaskName>>,
    /// What it counts, and who waits for whom.
    pub(crate) watch: Arc<Watch>,
}

impl Member {
    /// A task in no cluster.
    pub fn alone(task: Arc<Task>) -> Arc<Member> {
        Member::with(task, ClusterSpec::default(), None)
    }

    /// A task in a cluster whose tasks reach each other by gRPC, and by streams of ours.
    pub fn of(task: Arc<Task>, cluster: ClusterSpec) -> Arc<Member> {
        let addresses = Arc::new(cluster.clone());
        Member::at(task, cluster, addresses)
    }

    /// The same, where `addresses` tells, for every connection, where the tasks are.
    pub fn at(task: Arc<Task>, cluster: ClusterSpec, addresses: Arc<dyn Addresses>) -> Arc<Member> {
        let transport = crate::grpc::Peers::new(&cluster, addresses, &task);
        Member::with(task, cluster, Some(Arc::new(transport)))
    }

    pub(crate) fn with(
        task: Arc<Task>,
        cluster: ClusterSpec,
        transport: Option<Arc<dyn Transport>>,
    ) -> Arc<Member> {
        let name = TaskName::new(&task.options.job, task.options.index);
        let entropy = task.options.environment.entropy.clone();
        let clock = task.options.environment.clock.clone();
        let watch = Arc::new(Watch::new(name.clone(), clock));
        let steps = Steps::new(name.clone(), transport.clone(), entropy, watch.clone());
        Arc::new(Member { task, cluster, name, transport, steps, seen: Mutex::default(), watch })
    }

    /// The task.
    pub fn task(&self) -> &Arc<Task> {
        &self.task
    }

    /// The other tasks of the cluster, sorted.
    pub(crate) fn others(&self) -> Vec<TaskName> {
        self.cluster.tasks().map(|(task, _)| task.clone()).filter(|t| *t != self.name).collect()
    }

    /// Tells a task something; whether it hears is not our affair.
    pub(crate) fn notify(&self, to: &TaskName, call: Call) {
        if let Some(transport) = &self.transport {
            let nobody = Cancellation::default();
            transport.call(to, call, Some(NOTICE_LIMIT), &nobody, Box::new(|_| {}));
        }
    }

    /// Time has passed.
    pub(crate) fn tick(&self) {
        if let Some(transport) = &self.transport {
            transport.tick(self.task.options.environment.clock.monotonic());
        }
    }

    /// Other tasks that owe an answer and say nothing.
    pub(crate) fn silent(&self) -> Vec<(TaskName, Duration)> {
        let now = self.task.options.environment.clock.monotonic();
        self.transport.as_ref().map_or_else(Vec::new, |transport| transport.silent(now))
    }

    /// Steps of clients that ended well here, and parts of other tasks' steps.
    pub fn steps_ended(&self) -> (u64, u64) {
        (self.watch.as_master.numbers().0, self.watch.as_worker.numbers().0)
    }

    /// Steps that have something to do with this task now.
    pub fn steps_known(&self) -> usize {
        self.steps.len()
    }

    /// Other tasks whose tensors come over a stream of ours now.
    pub fn streams_open(&self) -> usize {
        self.transport.as_ref().map_or(0, |transport| transport.streams())
    }
}
