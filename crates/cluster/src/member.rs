//! A task as a member of its cluster: who the others are, the way to them, the steps they share.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_kernel::{Cancellation, Rendezvous};

use crate::addresses::Addresses;
use crate::cluster_spec::{ClusterSpec, TaskName};
use crate::network::grpc::{GrpcTransport, ServerRuntime};
use crate::network::transport::{Call, Done, Transport};
use crate::step::Steps;
use crate::step::rendezvous::Renamed;
use crate::task::Task;
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
    pub(crate) steps: Arc<Steps>,
    /// Whether a session brought the cluster.
    pub(crate) is_brought: bool,
    /// The ways to other tasks that sessions brought; they are looked after too.
    brought: Mutex<Vec<Weak<dyn Transport>>>,
    /// Tasks that have answered at some time.
    pub(crate) seen: Mutex<BTreeSet<TaskName>>,
    /// What it counts, and who waits for whom.
    pub(crate) watch: Arc<Watch>,
    /// Where the task's server runs, for its gRPC transports.
    runtime: ServerRuntime,
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
        let runtime = ServerRuntime::default();
        let transport = GrpcTransport::new(&cluster, addresses, &task, runtime.clone());
        Member::make(task, cluster, Some(Arc::new(transport)), runtime)
    }

    /// A task in a cluster whose tasks `transport` reaches.
    pub(crate) fn with(
        task: Arc<Task>,
        cluster: ClusterSpec,
        transport: Option<Arc<dyn Transport>>,
    ) -> Arc<Member> {
        Member::make(task, cluster, transport, ServerRuntime::default())
    }

    fn make(
        task: Arc<Task>,
        cluster: ClusterSpec,
        transport: Option<Arc<dyn Transport>>,
        runtime: ServerRuntime,
    ) -> Arc<Member> {
        let name = TaskName::new(&task.options.job, task.options.index);
        let entropy = task.options.environment.entropy.clone();
        let clock = task.options.environment.clock.clone();
        let watch = Arc::new(Watch::new(name.clone(), clock));
        let steps = Steps::new(name.clone(), transport.clone(), entropy, watch.clone());
        Arc::new(Member {
            task,
            cluster,
            name,
            transport,
            steps: Arc::new(steps),
            is_brought: false,
            brought: Mutex::default(),
            seen: Mutex::default(),
            watch,
            runtime,
        })
    }

    /// The same task in the cluster that a session of its master brought.
    pub(crate) fn in_cluster(&self, cluster: ClusterSpec) -> Arc<Member> {
        Arc::new(Member {
            task: self.task.clone(),
            transport: Some(self.way_to(&cluster)),
            cluster,
            name: self.name.clone(),
            steps: self.steps.clone(),
            is_brought: true,
            brought: Mutex::default(),
            seen: Mutex::default(),
            watch: self.watch.clone(),
            runtime: self.runtime.clone(),
        })
    }

    /// A way to the tasks of a cluster that a session brought, as long as somebody holds it.
    pub(crate) fn way_to(&self, cluster: &ClusterSpec) -> Arc<dyn Transport> {
        let addresses = Arc::new(cluster.clone());
        let grpc = GrpcTransport::new(cluster, addresses, &self.task, self.runtime.clone());
        let transport: Arc<dyn Transport> = Arc::new(grpc);
        self.brought.lock().push(Arc::downgrade(&transport));
        transport
    }

    /// Where this task and the others meet in a step of its master.
    pub(crate) fn rendezvous(&self, step: u64) -> Arc<dyn Rendezvous> {
        let table = self.steps.begin(step);
        match &self.transport {
            Some(transport) if self.is_brought => {
                Arc::new(Renamed::new(table, &self.name, transport.clone()))
            }
            _ => table,
        }
    }

    /// The task.
    pub fn task(&self) -> &Arc<Task> {
        &self.task
    }

    /// The other tasks of the cluster, sorted.
    pub(crate) fn others(&self) -> Vec<TaskName> {
        self.cluster.tasks().map(|(task, _)| task.clone()).filter(|t| *t != self.name).collect()
    }

    /// Makes a call whose answer is ignored: `make` gets the transport and what to pass to its method.
    pub(crate) fn notify(
        &self,
        to: &TaskName,
        make: impl FnOnce(&dyn Transport, Call<'_>, Done<()>),
    ) {
        if let Some(transport) = &self.transport {
            let cancellation = &Cancellation::default();
            let call = Call { to, timeout: Some(NOTICE_LIMIT), cancellation };
            make(&**transport, call, Box::new(|_| {}));
        }
    }

    /// The async runtime on which the task is served.
    pub(crate) fn server_runtime(&self) -> &ServerRuntime {
        &self.runtime
    }

    /// Time has passed.
    pub(crate) fn tick(&self) {
        let now = self.task.options.environment.clock.monotonic();
        self.transports().for_each(|transport| transport.tick(now));
    }

    /// The ways to tasks of the cluster, and of those that sessions brought.
    fn transports(&self) -> impl Iterator<Item = Arc<dyn Transport>> {
        let mut brought = self.brought.lock();
        brought.retain(|transport| transport.strong_count() > 0);
        let brought: Vec<_> = brought.iter().filter_map(Weak::upgrade).collect();
        self.transport.iter().cloned().chain(brought)
    }

    /// Other tasks that owe an answer and say nothing.
    pub(crate) fn silent(&self) -> Vec<(TaskName, Duration)> {
        let now = self.task.options.environment.clock.monotonic();
        self.transports().flat_map(|transport| transport.silent(now)).collect()
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
