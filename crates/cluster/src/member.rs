//! A task as a member of a cluster: its cluster spec, its transport to the other tasks, its steps.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_kernel::{Cancellation, Rendezvous};

use crate::addresses::Addresses;
use crate::cluster_spec::{ClusterSpec, TaskName};
use crate::diagnostics::Diagnostics;
use crate::network::grpc::{GrpcTransport, ServerRuntime};
use crate::network::transport::{Call, Done, Transport};
use crate::step::Steps;
use crate::step::rendezvous::AliasRendezvous;
use crate::task::Task;

/// Timeout of calls whose answer is ignored.
pub(crate) const NOTIFY_TIMEOUT: Duration = Duration::from_secs(10);

/// A task and its cluster.
pub struct Member {
    /// The task.
    pub(crate) task: Arc<Task>,
    /// The cluster; empty if the task is in none.
    pub(crate) cluster: ClusterSpec,
    pub(crate) name: TaskName,
    pub(crate) transport: Option<Arc<dyn Transport>>,
    /// Steps on this task.
    pub(crate) steps: Arc<Steps>,
    /// Whether the cluster came with a session (ClusterSpec propagation).
    pub(crate) is_propagated: bool,
    /// Transports of propagated clusters; they need ticks too.
    propagated: Mutex<Vec<Weak<dyn Transport>>>,
    /// Tasks that have answered `GetStatus` at least once.
    pub(crate) seen: Mutex<BTreeSet<TaskName>>,
    /// Its step counters and its waits.
    pub(crate) diagnostics: Arc<Diagnostics>,
    /// Where the task's server runs, for its gRPC transports.
    runtime: ServerRuntime,
}

impl Member {
    /// A task in no cluster.
    pub fn standalone(task: Arc<Task>) -> Arc<Member> {
        Member::with_transport(task, ClusterSpec::default(), None)
    }

    /// A task in a cluster whose tasks reach each other by gRPC and by our stream protocol.
    pub fn new(task: Arc<Task>, cluster: ClusterSpec) -> Arc<Member> {
        let addresses = Arc::new(cluster.clone());
        Member::with_addresses(task, cluster, addresses)
    }

    /// As [`Member::new`], with a resolver that is called for the address of every connection attempt.
    pub fn with_addresses(
        task: Arc<Task>,
        cluster: ClusterSpec,
        addresses: Arc<dyn Addresses>,
    ) -> Arc<Member> {
        let runtime = ServerRuntime::default();
        let transport = GrpcTransport::new(&cluster, addresses, &task, &runtime);
        Member::build(task, cluster, Some(Arc::new(transport)), runtime)
    }

    /// A task in a cluster whose tasks `transport` reaches.
    pub(crate) fn with_transport(
        task: Arc<Task>,
        cluster: ClusterSpec,
        transport: Option<Arc<dyn Transport>>,
    ) -> Arc<Member> {
        Member::build(task, cluster, transport, ServerRuntime::default())
    }

    fn build(
        task: Arc<Task>,
        cluster: ClusterSpec,
        transport: Option<Arc<dyn Transport>>,
        runtime: ServerRuntime,
    ) -> Arc<Member> {
        let name = TaskName::new(&task.options.job, task.options.index);
        let entropy = task.options.environment.entropy.clone();
        let clock = task.options.environment.clock.clone();
        let diagnostics = Arc::new(Diagnostics::new(name.clone(), clock));
        let steps = Steps::new(name.clone(), transport.clone(), entropy, diagnostics.clone());
        Arc::new(Member {
            task,
            cluster,
            name,
            transport,
            steps: Arc::new(steps),
            is_propagated: false,
            propagated: Mutex::default(),
            seen: Mutex::default(),
            diagnostics,
            runtime,
        })
    }

    /// The same task in a propagated cluster of one of its master's sessions.
    pub(crate) fn in_cluster(&self, cluster: ClusterSpec) -> Arc<Member> {
        Arc::new(Member {
            task: self.task.clone(),
            transport: Some(self.transport_to(&cluster)),
            cluster,
            name: self.name.clone(),
            steps: self.steps.clone(),
            is_propagated: true,
            propagated: Mutex::default(),
            seen: Mutex::default(),
            diagnostics: self.diagnostics.clone(),
            runtime: self.runtime.clone(),
        })
    }

    /// A transport to the tasks of a propagated cluster; it gets ticks as long as a session holds it.
    pub(crate) fn transport_to(&self, cluster: &ClusterSpec) -> Arc<dyn Transport> {
        let addresses = Arc::new(cluster.clone());
        let grpc = GrpcTransport::new(cluster, addresses, &self.task, &self.runtime);
        let transport: Arc<dyn Transport> = Arc::new(grpc);
        self.propagated.lock().push(Arc::downgrade(&transport));
        transport
    }

    /// The rendezvous of this task for a step of its own master.
    pub(crate) fn rendezvous(&self, step: u64) -> Arc<dyn Rendezvous> {
        let table = self.steps.begin(step);
        match &self.transport {
            Some(transport) if self.is_propagated => {
                Arc::new(AliasRendezvous::new(table, &self.name, transport.clone()))
            }
            _ => table,
        }
    }

    /// The task.
    pub fn task(&self) -> &Arc<Task> {
        &self.task
    }

    /// The other tasks of the cluster, sorted.
    pub(crate) fn other_tasks(&self) -> Vec<TaskName> {
        self.cluster.tasks().map(|(task, _)| task.clone()).filter(|t| *t != self.name).collect()
    }

    /// Makes a call whose answer is ignored: `start` gets the transport and the arguments of its method.
    pub(crate) fn notify(
        &self,
        to: &TaskName,
        start: impl FnOnce(&dyn Transport, Call<'_>, Done<()>),
    ) {
        if let Some(transport) = &self.transport {
            let cancellation = &Cancellation::default();
            let call = Call { to, timeout: Some(NOTIFY_TIMEOUT), cancellation };
            start(&**transport, call, Box::new(|_| {}));
        }
    }

    /// The async runtime on which the task is served.
    pub(crate) fn server_runtime(&self) -> &ServerRuntime {
        &self.runtime
    }

    /// Runs the periodic work of the transports; the server calls this every 100 ms.
    pub(crate) fn tick(&self) {
        let now = self.task.options.environment.clock.monotonic();
        self.transports().for_each(|transport| transport.tick(now));
    }

    /// The transports to the tasks of the cluster and of propagated clusters.
    fn transports(&self) -> impl Iterator<Item = Arc<dyn Transport>> {
        let mut propagated = self.propagated.lock();
        propagated.retain(|transport| transport.strong_count() > 0);
        let propagated: Vec<_> = propagated.iter().filter_map(Weak::upgrade).collect();
        self.transport.iter().cloned().chain(propagated)
    }

    /// Other tasks that the failure detector has reported as silent, with the duration of the silence.
    pub(crate) fn silent_tasks(&self) -> Vec<(TaskName, Duration)> {
        let now = self.task.options.environment.clock.monotonic();
        self.transports().flat_map(|transport| transport.silent(now)).collect()
    }

    /// Steps of clients that succeeded, and partitions that this task ran for other masters.
    pub fn steps_ended(&self) -> (u64, u64) {
        (
            self.diagnostics.as_master.succeeded_and_failed().0,
            self.diagnostics.as_worker.succeeded_and_failed().0,
        )
    }

    /// Steps with a rendezvous on this task now.
    pub fn steps_known(&self) -> usize {
        self.steps.len()
    }

    /// Number of tasks whose tensors come by our stream protocol now.
    pub fn streams_open(&self) -> usize {
        self.transport.as_ref().map_or(0, |transport| transport.streams())
    }
}
