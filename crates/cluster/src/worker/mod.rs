//! TensorFlow's `WorkerService` without its transport: worker sessions, registered graphs, `RunGraph`,
//! `RecvTensor`.

#[cfg(test)]
mod fused_partitions_tests;
pub(crate) mod rpc_log;
pub(crate) mod run_graph_result;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use thalweg_graph::Graph;
use thalweg_kernel::{Cancellation, Registration, Rendezvous, RendezvousKey, Value};
use thalweg_proto as pb;
use thalweg_runtime::{
    FetchCollector, NodeWait, RegisteredGraph, RunOptions, Session, StepEnd, system_boot_id,
};
use thalweg_tensor::{Error, Result, Tensor, ensure, err};

use crate::cluster_spec::{ClusterSpec, TaskName};
use crate::diagnostics::WaitTarget;
use crate::errors::from_task;
use crate::master::config;
use crate::master::session::check_size;
use crate::member::Member;
use crate::network::trace_messages::{ClockRequest, ClockResponse, SentInfo};
use crate::network::transport::{RunGraphReport, Transport};
use crate::step::failure_log::FailureLog;
use crate::step::recent_ids::RecentIds;
use crate::step::rendezvous::{AliasRendezvous, ParsedKey, TaskRendezvous};
use crate::step::{Admitted, Steps};
use crate::task::{Task, attributes};
use crate::worker::run_graph_result::{Done, RunGraphResult, collect};

/// Maximum numbers of worker sessions, and of registered graphs of one session.
const SESSIONS_MAX: usize = 100_000;
const GRAPHS_MAX: usize = 100_000;
/// How long a step is kept after its master's connection was closed.
const ORPHAN_LIMIT: Duration = Duration::from_secs(10);

/// The worker of one task.
pub struct Worker {
    member: Arc<Member>,
    sessions: RwLock<FxHashMap<String, Arc<WorkerSession>>>,
    recent: Mutex<RecentIds>,
    partial: Mutex<FxHashMap<u64, Arc<StepEnd>>>,
    /// Steps under the names that this task has in propagated clusters. It may be the master of a step
    /// and, under another name, a worker of it.
    aliases: RwLock<BTreeMap<TaskName, Arc<Steps>>>,
}

/// A worker session.
struct WorkerSession {
    session: Session,
    graphs: RwLock<FxHashMap<String, Arc<RegisteredGraph>>>,
    next_graph: AtomicU64,
    /// The master's task name and incarnation.
    master: (String, i64),
    /// This task in the session's propagated cluster, if it has one.
    propagated: Option<PropagatedTask>,
}

/// This task in a propagated cluster.
struct PropagatedTask {
    name: TaskName,
    transport: Arc<dyn Transport>,
    steps: Arc<Steps>,
}

/// A `RecvTensor` request of another worker, for a step under one of this task's names.
#[derive(Clone)]
pub(crate) struct TensorRequest {
    member: Arc<Member>,
    steps: Arc<Steps>,
    step: u64,
}

impl TensorRequest {
    /// Passes the tensor to `done` when it has been sent; `key` is that of the request.
    pub(crate) fn receive(&self, key: &str, done: impl FnOnce(Result<Value>) + Send + 'static) {
        let key = RendezvousKey(key.into());
        let name = self.member.name.to_string();
        let (step, diagnostics) = (self.step, self.member.diagnostics.clone());
        let waits = diagnostics.wait(step, WaitTarget::SendTensor(key.clone()));
        let (requested, sent) = (diagnostics.wall(), key.clone());
        let received = Box::new(move |value: Result<Value>| {
            drop(waits);
            diagnostics.sent.add(step, &sent, requested, || diagnostics.wall());
            done(value.map_err(|e| from_task(&name, e)));
        });
        self.steps.request_tensor(self.step, &key, received);
    }

    /// Cancels the request. Requests for the same step under other names of this task stay pending.
    pub(crate) fn cancel(&self) {
        self.steps.cancel_request(self.step);
    }
}

/// An accepted `RunGraph`.
struct Admission {
    graph: Arc<RegisteredGraph>,
    steps: Arc<Steps>,
    /// The step's rendezvous on this task.
    table: Arc<TaskRendezvous>,
    /// `table` as the session uses it.
    rendezvous: Arc<dyn Rendezvous>,
    /// Whether this is the first request for the step.
    starts: bool,
}

impl Worker {
    /// A worker without sessions.
    pub fn new(member: Arc<Member>) -> Worker {
        Worker {
            member,
            sessions: RwLock::default(),
            recent: Mutex::default(),
            partial: Mutex::default(),
            aliases: RwLock::default(),
        }
    }

    /// Number of worker sessions.
    pub fn session_count(&self) -> usize {
        self.sessions.read().len()
    }

    /// The worker's task.
    pub(crate) fn task(&self) -> &Task {
        &self.member.task
    }

    /// Nodes of its sessions that wait, at waits_max `waits_max`.
    pub(crate) fn waits(&self, waits_max: usize) -> Vec<NodeWait> {
        let sessions: Vec<_> = self.sessions.read().values().cloned().collect();
        sessions.iter().flat_map(|s| s.session.waits(waits_max)).take(waits_max).collect()
    }

    /// The devices of the task.
    pub(crate) fn get_status(&self) -> pb::GetStatusResponse {
        let devices = self.member.task.devices();
        pb::GetStatusResponse {
            device_attributes: devices.iter().map(|d| attributes(d.description())).collect(),
        }
    }

    /// Creates a worker session; idempotent.
    pub(crate) fn create_session(
        &self,
        request: &pb::CreateWorkerSessionRequest,
    ) -> Result<pb::CreateWorkerSessionResponse> {
        let handle = &request.session_handle;
        let master = (request.master_task.clone(), request.master_incarnation);
        let mut sessions = self.sessions.write();
        if !sessions.contains_key(handle) {
            // A master that has restarted has lost its earlier sessions.
            let is_stale = |s: &WorkerSession| {
                !master.0.is_empty() && s.master.0 == master.0 && s.master.1 != master.1
            };
            sessions.retain(|_, session| !is_stale(session));
            ensure!(
                sessions.len() < SESSIONS_MAX,
                ResourceExhausted,
                "{SESSIONS_MAX} sessions of masters are open on this task"
            );
            let propagated = self.propagated_task(request.server_def.as_ref())?;
            let session = self.new_session(request.isolate_session_state, master, propagated)?;
            sessions.insert(handle.clone(), Arc::new(session));
        }
        Ok(pb::CreateWorkerSessionResponse {})
    }

    /// This task in the propagated cluster of a request, if it has one.
    fn propagated_task(&self, server: Option<&pb::ServerDef>) -> Result<Option<PropagatedTask>> {
        let Some(server) = server else { return Ok(None) };
        let cluster = ClusterSpec::from_proto(&server.cluster.clone().unwrap_or_default())?;
        if cluster.is_empty() {
            return Ok(None);
        }
        let index = u32::try_from(server.task_index).map_err(|_| {
            err!(
                InvalidArgument,
                "the task_index of a session's server_def is {}; it must not be negative",
                server.task_index
            )
        })?;
        let name = TaskName::new(&server.job_name, index);
        ensure!(
            cluster.address(&name).is_some(),
            InvalidArgument,
            "the session's cluster has no task {name}"
        );
        let new_steps = || {
            let entropy = self.member.task.options.environment.entropy.clone();
            Arc::new(Steps::new(name.clone(), None, entropy, self.member.diagnostics.clone()))
        };
        // Under its own name a task has one set of steps, in every cluster.
        let steps = match name == self.member.name {
            true => self.member.steps.clone(),
            false => self.aliases.write().entry(name.clone()).or_insert_with(new_steps).clone(),
        };
        let transport = self.member.transport_to(&cluster);
        Ok(Some(PropagatedTask { name, transport, steps }))
    }

    /// The steps of this task under one of its names.
    fn steps_of(&self, name: &TaskName) -> Option<Arc<Steps>> {
        if *name == self.member.name {
            return Some(self.member.steps.clone());
        }
        self.aliases.read().get(name).cloned()
    }

    /// The steps of this task under all its names.
    fn all_steps(&self) -> Vec<Arc<Steps>> {
        let aliases = self.aliases.read();
        std::iter::once(&self.member.steps).chain(aliases.values()).cloned().collect()
    }

    fn new_session(
        &self,
        is_isolated: bool,
        master: (String, i64),
        propagated: Option<PropagatedTask>,
    ) -> Result<WorkerSession> {
        let task = &self.member.task;
        let config = pb::ConfigProto { isolate_session_state: is_isolated, ..Default::default() };
        let mut options = config::session_options(task, &config)?;
        if let Some(propagated) = &propagated {
            options.devices = task.devices_of(&propagated.name, task.cpus());
        }
        let graph = Graph::new(task.ops.clone());
        Ok(WorkerSession {
            session: Session::new(graph, task.kernels.clone(), options)?,
            graphs: RwLock::default(),
            next_graph: AtomicU64::new(1),
            master,
            propagated,
        })
    }

    /// Deletes a worker session, if it exists.
    pub(crate) fn delete_session(
        &self,
        request: &pb::DeleteWorkerSessionRequest,
    ) -> pb::DeleteWorkerSessionResponse {
        let gone = self.sessions.write().remove(&request.session_handle);
        drop(gone);
        pb::DeleteWorkerSessionResponse {}
    }

    fn session(&self, handle: &str, was_created: bool) -> Result<Arc<WorkerSession>> {
        if let Some(session) = self.sessions.read().get(handle) {
            return Ok(session.clone());
        }
        let name = &self.member.name;
        ensure!(
            handle.is_empty() && !was_created,
            Aborted,
            "Session handle is not found: {handle}. Possibly this worker (\"{name}\") just restarted."
        );
        // Masters that create no worker sessions share one.
        let session = Arc::new(self.new_session(false, Default::default(), None)?);
        Ok(self.sessions.write().entry(String::new()).or_insert(session).clone())
    }

    /// Registers a graph: the partitions of a plan that this task runs.
    pub(crate) fn register_graph(
        &self,
        mut request: pb::RegisterGraphRequest,
    ) -> Result<pb::RegisterGraphResponse> {
        let session =
            self.session(&request.session_handle, request.create_worker_session_called)?;
        let task = &self.member.task;
        check_size(0, request.graph_def.as_ref(), task.options.graph_nodes_max)?;
        ensure!(
            session.graphs.read().len() < GRAPHS_MAX,
            ResourceExhausted,
            "the session has {GRAPHS_MAX} graphs on this task"
        );
        if let (Some(graph), Some(rewrite)) = (&mut request.graph_def, task.options.rewrite) {
            rewrite(graph);
        }
        let graph = Graph::from_def(task.ops.clone(), request.graph_def.unwrap_or_default())?;
        let registered = Arc::new(session.session.register(graph)?);
        let number = session.next_graph.fetch_add(1, Ordering::Relaxed);
        let graph_handle = format!("{number:016x}");
        session.graphs.write().insert(graph_handle.clone(), registered);
        Ok(pb::RegisterGraphResponse { graph_handle })
    }

    /// Removes a registered graph.
    pub(crate) fn deregister_graph(
        &self,
        request: &pb::DeregisterGraphRequest,
    ) -> Result<pb::DeregisterGraphResponse> {
        let session =
            self.session(&request.session_handle, request.create_worker_session_called)?;
        let gone = session.graphs.write().remove(&request.graph_handle);
        ensure!(gone.is_some(), Aborted, "Graph handle is not found: {}", request.graph_handle);
        Ok(pb::DeregisterGraphResponse {})
    }

    /// Runs a registered graph in a step. `done` gets the tensors of the request's `recv_key`s.
    pub(crate) fn run_graph(
        self: &Arc<Self>,
        request: &pb::RunGraphRequest,
        sent: Vec<(String, Tensor)>,
        connection: Option<Weak<()>>,
        cancellation: &Cancellation,
        done: impl FnOnce(Result<RunGraphResult>) + Send + 'static,
    ) {
        let (name, diagnostics) = (self.member.name.to_string(), self.member.diagnostics.clone());
        let done: Done = Box::new(move |result| {
            if !matches!(&result, Ok(RunGraphResult { is_partial: true, .. })) {
                diagnostics.as_worker.count(&result);
            }
            done(result.map_err(|e| from_task(&name, e)));
        });
        if let Err((e, done)) = self.start_graph(request, sent, connection, cancellation, done) {
            done(Err(e));
        }
    }

    fn start_graph(
        self: &Arc<Self>,
        request: &pb::RunGraphRequest,
        sent: Vec<(String, Tensor)>,
        connection: Option<Weak<()>>,
        cancellation: &Cancellation,
        done: Done,
    ) -> Result<(), (Error, Done)> {
        let Admission { graph, steps, table, rendezvous, starts } =
            match self.admit(request, connection) {
                Ok(admitted) => admitted,
                Err(e) => return Err((e, done)),
            };
        for (key, tensor) in sent {
            if let Err(e) = table.send(&RendezvousKey(key.into()), Value::Tensor(tensor)) {
                return Err((e, done));
            }
        }
        let step = request.step_id as u64;
        let collector = collect(request.recv_key.clone(), &*rendezvous, done);
        if request.is_partial {
            let admission = Admission { graph, steps, table, rendezvous, starts };
            self.partial_run_graph(request, &admission, cancellation, collector);
            return Ok(());
        }
        let links = link_aborts(&table, cancellation);
        let failures = FailureLog::new(&request.session_handle);
        let diagnostics = self.member.diagnostics.clone();
        let is_traced = request.exec_opts.is_some_and(|reports| reports.record_timeline);
        if is_traced {
            diagnostics.sent.begin(step, diagnostics.wall());
        }
        graph.start(&run_options(request, cancellation), step, rendezvous, move |result| {
            drop(links);
            table.send_fetched();
            failures.log_worker_step(step, &result);
            let ended_ns = if is_traced { diagnostics.wall().as_nanos() as u64 } else { 0 };
            let is_cleaned_up = steps.finish_and_clean_up(step, result.as_ref().err().cloned());
            let report = |metadata| Some(RunGraphReport { metadata, is_cleaned_up, ended_ns });
            collector.event(result.map(report));
        });
        Ok(())
    }

    fn admit(
        &self,
        request: &pb::RunGraphRequest,
        connection: Option<Weak<()>>,
    ) -> Result<Admission> {
        for key in &request.recv_key {
            ParsedKey::parse(key)?;
        }
        let session =
            self.session(&request.session_handle, request.create_worker_session_called)?;
        let graph = session.graphs.read().get(&request.graph_handle).cloned();
        let graph = graph
            .ok_or_else(|| err!(Aborted, "Graph handle is not found: {}", request.graph_handle))?;
        ensure!(
            self.recent.lock().insert(request.request_id),
            Aborted,
            "The same RunGraph (Worker) request was received twice."
        );
        let step = request.step_id as u64;
        let steps = session
            .propagated
            .as_ref()
            .map_or(&self.member.steps, |propagated| &propagated.steps)
            .clone();
        let (table, starts) = match steps.run(step, request.is_partial, connection)? {
            Admitted::Starts(table) => (table, true),
            Admitted::Joins(table) => (table, false),
        };
        let rendezvous: Arc<dyn Rendezvous> = match &session.propagated {
            None => table.clone(),
            Some(PropagatedTask { name, transport, .. }) => {
                Arc::new(AliasRendezvous::new(table.clone(), name, transport.clone()))
            }
        };
        Ok(Admission { graph, steps, table, rendezvous, starts })
    }

    /// One `RunGraph` of a partial run: the first starts the step, the last waits for its end.
    fn partial_run_graph(
        self: &Arc<Self>,
        request: &pb::RunGraphRequest,
        admission: &Admission,
        cancellation: &Cancellation,
        collector: Arc<FetchCollector<RunGraphReport>>,
    ) {
        let table = &admission.table;
        let step = request.step_id as u64;
        let state = self.partial.lock().entry(step).or_default().clone();
        if admission.starts {
            let (steps, ended) = (admission.steps.clone(), state.clone());
            // Cancelling this request does not cancel the step.
            let step_cancellation = Cancellation::default();
            let links = link_aborts(table, &step_cancellation);
            let (options, rendezvous) =
                (run_options(request, &step_cancellation), admission.rendezvous.clone());
            let table = table.clone();
            admission.graph.start(&options, step, rendezvous, move |result| {
                drop(links);
                table.send_fetched();
                steps.finished(step, result.as_ref().err().cloned());
                ended.set(result);
            });
        }
        if request.is_last_partial_run {
            self.partial.lock().remove(&step);
            let (table, end) = (table.clone(), state.clone());
            let link = cancellation.on_cancel(move |cause| table.abort(cause));
            end.wait(move |result| {
                drop(link);
                let report = |metadata| Some(RunGraphReport { metadata, ..Default::default() });
                collector.event(result.map(report));
            });
        } else {
            collector.event(Ok(None));
        }
    }

    /// The time by this task's clock, and what the task sent in a traced step.
    pub(crate) fn clock(&self, request: &ClockRequest) -> ClockResponse {
        let sent = match request.step {
            0 => Vec::new(),
            step => self.member.diagnostics.sent.take(step),
        };
        ClockResponse {
            boot: system_boot_id().to_owned(),
            sent: sent.iter().map(SentInfo::from).collect(),
            // Last, so that it lies between request and answer with nothing slow beside it.
            wall_ns: self.member.diagnostics.wall().as_nanos() as u64,
        }
    }

    /// Checks a `RecvTensor` request: its key must name a device of this task and its incarnation.
    pub(crate) fn tensor_request(&self, request: &pb::RecvTensorRequest) -> Result<TensorRequest> {
        let steps = self.check_key(&request.rendezvous_key)?;
        Ok(TensorRequest { member: self.member.clone(), steps, step: request.step_id as u64 })
    }

    /// The steps under the task name that a key has as its source.
    fn check_key(&self, key: &str) -> Result<Arc<Steps>> {
        let parsed = ParsedKey::parse(key)?;
        let (name, task) = (&self.member.name, &self.member.task);
        let steps = self.steps_of(&TaskName::of(&parsed.src_device)).ok_or_else(|| {
            err!(InvalidArgument, "{} is not a device of {name}", parsed.src_device)
        })?;
        let own = task.incarnation.wrapping_add(u64::from(parsed.src_device.index));
        ensure!(
            parsed.src_incarnation == own,
            Aborted,
            "the rendezvous key names incarnation {} of {name}, whose incarnation is {own}: the task was \
             restarted",
            parsed.src_incarnation
        );
        Ok(steps)
    }

    /// Whether a key names a device of this task with another incarnation.
    pub(crate) fn has_other_incarnation(&self, key: &str) -> bool {
        ParsedKey::parse(key).is_ok_and(|parsed| {
            let own = self.member.task.incarnation.wrapping_add(u64::from(parsed.src_device.index));
            self.steps_of(&TaskName::of(&parsed.src_device)).is_some()
                && parsed.src_incarnation != own
        })
    }

    /// Turns the log of received tensors on or off, or returns what was logged.
    pub(crate) fn logging(&self, request: &pb::LoggingRequest) -> pb::LoggingResponse {
        self.member.diagnostics.rpc_log.answer(request)
    }

    /// Drops a step.
    pub(crate) fn cleanup_graph(
        &self,
        request: &pb::CleanupGraphRequest,
    ) -> pb::CleanupGraphResponse {
        self.partial.lock().remove(&(request.step_id as u64));
        self.all_steps().iter().for_each(|steps| steps.clean_up(request.step_id as u64));
        pb::CleanupGraphResponse {}
    }

    /// Empties containers, the default one if none is named.
    pub(crate) fn cleanup_all(&self, request: &pb::CleanupAllRequest) -> pb::CleanupAllResponse {
        self.member.task.reset(&request.container);
        pb::CleanupAllResponse {}
    }

    /// Drops steps whose master has disconnected, and unused names.
    pub(crate) fn sweep(&self) {
        let now = self.member.task.options.environment.clock.monotonic();
        self.all_steps().iter().for_each(|steps| steps.clean_up_orphans(now, ORPHAN_LIMIT));
        // A name is removed with its last session and step.
        let is_used = |steps: &Arc<Steps>| Arc::strong_count(steps) > 1 || steps.len() > 0;
        self.aliases.write().retain(|_, steps| is_used(steps));
    }
}

/// Has a run and its rendezvous abort each other until the registrations are dropped.
fn link_aborts(table: &Arc<TaskRendezvous>, run: &Cancellation) -> (Registration, Registration) {
    let ended = table.clone();
    (run.on_cancel(move |cause| ended.abort(cause)), table.aborted().link(run))
}

fn run_options(request: &pb::RunGraphRequest, cancellation: &Cancellation) -> RunOptions {
    let reports = request.exec_opts.unwrap_or_default();
    RunOptions {
        trace: reports.record_timeline,
        cost_graph: reports.record_costs,
        partition_graphs: reports.record_partition_graphs,
        cancellation: Some(cancellation.clone()),
        request_id: request.request_id,
        ..Default::default()
    }
}

#[cfg(test)]
impl TensorRequest {
    /// A request that is never answered.
    pub(crate) fn for_standalone_task(step: u64) -> TensorRequest {
        let member = tests::member();
        TensorRequest { steps: member.steps.clone(), member, step }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use thalweg_graph::OpRegistry;
    use thalweg_kernel::KernelRegistry;
    use thalweg_tensor::Code;

    use super::*;
    use crate::task::TaskOptions;

    pub(super) fn member() -> Arc<Member> {
        let ops = OpRegistry::new([]).unwrap();
        let task = Task::new(TaskOptions::default(), ops, KernelRegistry::new([]));
        Member::standalone(Arc::new(task))
    }

    /// Has a session call the worker's task `/job:other/task:3`.
    fn rename(worker: &Worker) {
        let mut cluster = ClusterSpec::default();
        cluster.add(TaskName::new("other", 3), "127.0.0.1:1").unwrap();
        let server = pb::ServerDef {
            cluster: Some(cluster.to_proto()),
            job_name: "other".into(),
            task_index: 3,
            ..Default::default()
        };
        let request = pb::CreateWorkerSessionRequest {
            session_handle: "s".into(),
            server_def: Some(server),
            ..Default::default()
        };
        worker.create_session(&request).unwrap();
    }

    /// A step may run on a task under two names; cancelling a request under one name must not end a
    /// request under the other.
    #[test]
    fn cancelling_concerns_one_name_of_the_task() {
        let worker = Worker::new(member());
        rename(&worker);
        let request = |task: &str| {
            let incarnation = worker.task().incarnation;
            let consumer = "/job:w/replica:0/task:0/device:CPU:0";
            let key = format!("{task}/device:CPU:0;{incarnation:016x};{consumer};edge_1_v;0:0");
            let (step_id, rendezvous_key) = (5, key);
            let message = pb::RecvTensorRequest { step_id, rendezvous_key, ..Default::default() };
            let request = worker.tensor_request(&message).unwrap();
            let (sender, receiver) = mpsc::channel();
            request.receive(&message.rendezvous_key, move |result| drop(sender.send(result)));
            (request, receiver)
        };
        let (own, from_own) = request("/job:local/replica:0/task:0");
        let (other, from_other) = request("/job:other/replica:0/task:3");
        other.cancel();
        let ended = from_other.try_recv().expect("the step has no request left").err().unwrap();
        assert_eq!(ended.code(), Code::Aborted);
        assert!(matches!(from_own.try_recv(), Err(mpsc::TryRecvError::Empty)), "it still waits");
        assert_eq!(worker.all_steps().iter().map(|steps| steps.len()).sum::<usize>(), 1);
        own.cancel();
        let ended = from_own.try_recv().expect("the request was cancelled").err().unwrap();
        assert_eq!(ended.code(), Code::Aborted);
    }
}
