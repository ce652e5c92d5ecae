//! The worker: runs the parts of plans that masters give it, and hands tensors to other workers.

#[cfg(test)]
mod fused_parts_tests;
pub(crate) mod part_answer;
pub(crate) mod rpc_log;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use thalweg_graph::Graph;
use thalweg_kernel::{Cancellation, Registration, Rendezvous, RendezvousKey, Value};
use thalweg_proto as pb;
use thalweg_runtime::{FetchCollector, NodeWait, RegisteredGraph, RunOptions, Session, StepEnd};
use thalweg_tensor::{Error, Result, Tensor, ensure, err};

use crate::cluster_spec::{ClusterSpec, TaskName};
use crate::errors::from_task;
use crate::master::config;
use crate::master::session::check_size;
use crate::member::Member;
use crate::network::transport::Transport;
use crate::step::failure_log::FailureLog;
use crate::step::recent_ids::RecentIds;
use crate::step::rendezvous::{Renamed, Sender, TaskRendezvous};
use crate::step::{Admitted, Steps};
use crate::task::{Task, attributes};
use crate::watch::Awaited;
use crate::worker::part_answer::{Done, GraphEnd, RanGraph, collect};

/// Sessions of masters at once; graphs of one session.
const SESSIONS_MAX: usize = 100_000;
const GRAPHS_MAX: usize = 100_000;
/// How long steps stay whose master's connection is gone.
const ORPHAN_LIMIT: Duration = Duration::from_secs(10);

/// Serves the masters and the other workers of one task.
pub struct Worker {
    member: Arc<Member>,
    sessions: RwLock<FxHashMap<String, Arc<WorkerSession>>>,
    recent: Mutex<RecentIds>,
    partial: Mutex<FxHashMap<u64, Arc<StepEnd>>>,
    /// The steps that run under other names, which sessions gave this task. It may be the master of
    /// a step and, under another name, run a part of it.
    aliases: RwLock<BTreeMap<TaskName, Arc<Steps>>>,
}

/// What one master's session has here.
struct WorkerSession {
    session: Session,
    graphs: RwLock<FxHashMap<String, Arc<RegisteredGraph>>>,
    next_graph: AtomicU64,
    /// The master's task, and which of its starts it was.
    master: (String, i64),
    /// Who this task is in the cluster that the session brought, if it brought one.
    place: Option<SessionPlace>,
}

/// A task in the cluster of one session.
struct SessionPlace {
    name: TaskName,
    transport: Arc<dyn Transport>,
    steps: Arc<Steps>,
}

/// A tensor that another worker asks for, of a step under one of this task's names.
#[derive(Clone)]
pub(crate) struct AskedTensor {
    member: Arc<Member>,
    steps: Arc<Steps>,
    step: u64,
}

impl AskedTensor {
    /// Gives it when it is there; `key` is that of the request.
    pub(crate) fn receive(&self, key: &str, done: impl FnOnce(Result<Value>) + Send + 'static) {
        let key = RendezvousKey(key.into());
        let name = self.member.name.to_string();
        let waits = self.member.watch.wait(self.step, Awaited::Wanted(key.clone()));
        let received = Box::new(move |value: Result<Value>| {
            drop(waits);
            done(value.map_err(|e| from_task(&name, e)));
        });
        self.steps.want(self.step, &key, received);
    }

    /// Whoever asked has gone before there was an answer. Under other names of this task the same step
    /// may be awaited by others, who are not concerned.
    pub(crate) fn give_up(&self) {
        self.steps.want_no_more(self.step);
    }
}

/// A part of a step that may run.
struct Admission {
    graph: Arc<RegisteredGraph>,
    steps: Arc<Steps>,
    /// The step's meeting place.
    table: Arc<TaskRendezvous>,
    /// The same, as the session uses it.
    meets: Arc<dyn Rendezvous>,
    /// Whether this is the first request for the step.
    begins: bool,
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

    /// Sessions open now.
    pub fn session_count(&self) -> usize {
        self.sessions.read().len()
    }

    /// Whose worker it is.
    pub(crate) fn task(&self) -> &Task {
        &self.member.task
    }

    /// At most `most` of the nodes that wait in its sessions.
    pub(crate) fn waits(&self, most: usize) -> Vec<NodeWait> {
        let sessions: Vec<_> = self.sessions.read().values().cloned().collect();
        sessions.iter().flat_map(|s| s.session.waits(most)).take(most).collect()
    }

    /// The devices of the task.
    pub(crate) fn get_status(&self) -> pb::GetStatusResponse {
        let devices = self.member.task.devices();
        pb::GetStatusResponse {
            device_attributes: devices.iter().map(|d| attributes(d.description())).collect(),
        }
    }

    /// Opens a session for a master; once more is as good as once.
    pub(crate) fn create_session(
        &self,
        request: &pb::CreateWorkerSessionRequest,
    ) -> Result<pb::CreateWorkerSessionResponse> {
        let handle = &request.session_handle;
        let master = (request.master_task.clone(), request.master_incarnation);
        let mut sessions = self.sessions.write();
        if !sessions.contains_key(handle) {
            // A master that started anew has lost the sessions of its earlier life.
            let is_stale = |s: &WorkerSession| {
                !master.0.is_empty() && s.master.0 == master.0 && s.master.1 != master.1
            };
            sessions.retain(|_, session| !is_stale(session));
            ensure!(
                sessions.len() < SESSIONS_MAX,
                ResourceExhausted,
                "{SESSIONS_MAX} sessions of masters are open on this task"
            );
            let place = self.place_in(request.server_def.as_ref())?;
            let session = self.new_session(request.isolate_session_state, master, place)?;
            sessions.insert(handle.clone(), Arc::new(session));
        }
        Ok(pb::CreateWorkerSessionResponse {})
    }

    /// Who this task is in the cluster that a master's session brought.
    fn place_in(&self, server: Option<&pb::ServerDef>) -> Result<Option<SessionPlace>> {
        let Some(server) = server else { return Ok(None) };
        let cluster = ClusterSpec::from_proto(&server.cluster.clone().unwrap_or_default())?;
        if cluster.is_empty() {
            return Ok(None);
        }
        let index = u32::try_from(server.task_index)
            .map_err(|_| err!(InvalidArgument, "a task has the number {}", server.task_index))?;
        let name = TaskName::new(&server.job_name, index);
        ensure!(
            cluster.address(&name).is_some(),
            InvalidArgument,
            "the session's cluster has no task {name}"
        );
        let new_steps = || {
            let entropy = self.member.task.options.environment.entropy.clone();
            Arc::new(Steps::new(name.clone(), None, entropy, self.member.watch.clone()))
        };
        // Under its own name a task has one table of steps, whoever gave it the name.
        let steps = match name == self.member.name {
            true => self.member.steps.clone(),
            false => self.aliases.write().entry(name.clone()).or_insert_with(new_steps).clone(),
        };
        let transport = self.member.way_to(&cluster);
        Ok(Some(SessionPlace { name, transport, steps }))
    }

    /// The steps of this task under a name, its own or another that a session gave it.
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
        place: Option<SessionPlace>,
    ) -> Result<WorkerSession> {
        let task = &self.member.task;
        let config = pb::ConfigProto { isolate_session_state: is_isolated, ..Default::default() };
        let mut options = config::session_options(task, &config)?;
        if let Some(place) = &place {
            options.devices = task.devices_of(&place.name, task.cpus());
        }
        let graph = Graph::new(task.ops.clone());
        Ok(WorkerSession {
            session: Session::new(graph, task.kernels.clone(), options)?,
            graphs: RwLock::default(),
            next_graph: AtomicU64::new(1),
            master,
            place,
        })
    }

    /// Closes a session, if it is there.
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
        // Masters that open no sessions share one.
        let session = Arc::new(self.new_session(false, Default::default(), None)?);
        Ok(self.sessions.write().entry(String::new()).or_insert(session).clone())
    }

    /// Takes a part of a plan.
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

    /// Forgets a part of a plan.
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

    /// Runs a part of a step. `done` gets the tensors that the caller asked for by key.
    pub(crate) fn run_graph(
        self: &Arc<Self>,
        request: &pb::RunGraphRequest,
        sent: Vec<(String, Tensor)>,
        connection: Option<Weak<()>>,
        cancellation: &Cancellation,
        done: impl FnOnce(Result<RanGraph>) + Send + 'static,
    ) {
        let (name, watch) = (self.member.name.to_string(), self.member.watch.clone());
        let done: Done = Box::new(move |result| {
            if !matches!(&result, Ok(RanGraph { goes_on: true, .. })) {
                watch.as_worker.count(&result);
            }
            done(result.map_err(|e| from_task(&name, e)));
        });
        if let Err((e, done)) = self.begin(request, sent, connection, cancellation, done) {
            done(Err(e));
        }
    }

    fn begin(
        self: &Arc<Self>,
        request: &pb::RunGraphRequest,
        sent: Vec<(String, Tensor)>,
        connection: Option<Weak<()>>,
        cancellation: &Cancellation,
        done: Done,
    ) -> Result<(), (Error, Done)> {
        let Admission { graph, steps, table, meets, begins } = match self.admit(request, connection)
        {
            Ok(admitted) => admitted,
            Err(e) => return Err((e, done)),
        };
        for (key, tensor) in sent {
            if let Err(e) = table.send(&RendezvousKey(key.into()), Value::Tensor(tensor)) {
                return Err((e, done));
            }
        }
        let step = request.step_id as u64;
        let collector = collect(request.recv_key.clone(), &*meets, done);
        if request.is_partial {
            let part = Admission { graph, steps, table, meets, begins };
            self.run_part(request, &part, cancellation, collector);
            return Ok(());
        }
        let links = tied(&table, cancellation);
        let failures = FailureLog::new(&request.session_handle);
        graph.start(&run_options(request, cancellation), step, meets, move |result| {
            drop(links);
            table.send_fetched();
            failures.of_worker(step, &result);
            let is_forgotten = steps.finished_whole(step, result.as_ref().err().cloned());
            collector.event(result.map(|metadata| Some(GraphEnd { metadata, is_forgotten })));
        });
        Ok(())
    }

    fn admit(
        &self,
        request: &pb::RunGraphRequest,
        connection: Option<Weak<()>>,
    ) -> Result<Admission> {
        for key in &request.recv_key {
            Sender::of(key)?;
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
        let steps = session.place.as_ref().map_or(&self.member.steps, |place| &place.steps).clone();
        let (table, begins) = match steps.run(step, request.is_partial, connection)? {
            Admitted::Begins(table) => (table, true),
            Admitted::Joins(table) => (table, false),
        };
        let meets: Arc<dyn Rendezvous> = match &session.place {
            None => table.clone(),
            Some(SessionPlace { name, transport, .. }) => {
                Arc::new(Renamed::new(table.clone(), name, transport.clone()))
            }
        };
        Ok(Admission { graph, steps, table, meets, begins })
    }

    /// One of several requests for the same step: the first starts it, the last waits for its end.
    fn run_part(
        self: &Arc<Self>,
        request: &pb::RunGraphRequest,
        part: &Admission,
        cancellation: &Cancellation,
        collector: Arc<FetchCollector<GraphEnd>>,
    ) {
        let table = &part.table;
        let step = request.step_id as u64;
        let state = self.partial.lock().entry(step).or_default().clone();
        if part.begins {
            let (steps, ended) = (part.steps.clone(), state.clone());
            // The step is not this request's to end.
            let of_step = Cancellation::default();
            let links = tied(table, &of_step);
            let (options, meets) = (run_options(request, &of_step), part.meets.clone());
            let table = table.clone();
            part.graph.start(&options, step, meets, move |result| {
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
                let is_forgotten = false;
                collector.event(result.map(|metadata| Some(GraphEnd { metadata, is_forgotten })));
            });
        } else {
            collector.event(Ok(None));
        }
    }

    /// What another worker asks for; it is a tensor of this start of the task.
    pub(crate) fn asked(&self, request: &pb::RecvTensorRequest) -> Result<AskedTensor> {
        let steps = self.check_key(&request.rendezvous_key)?;
        Ok(AskedTensor { member: self.member.clone(), steps, step: request.step_id as u64 })
    }

    /// The steps that a key is about.
    fn check_key(&self, key: &str) -> Result<Arc<Steps>> {
        let sender = Sender::of(key)?;
        let (name, task) = (&self.member.name, &self.member.task);
        let steps = self
            .steps_of(&TaskName::of(&sender.device))
            .ok_or_else(|| err!(InvalidArgument, "{} is no device of {name}", sender.device))?;
        let own = task.incarnation.wrapping_add(u64::from(sender.device.index));
        ensure!(
            sender.incarnation == own,
            Aborted,
            "a tensor is asked of another start of {name}: of incarnation {}, and this one is {own}; the \
             task was restarted",
            sender.incarnation
        );
        Ok(steps)
    }

    /// Whether a key names a device of this task, of another start of it.
    pub(crate) fn is_of_another_start(&self, key: &str) -> bool {
        Sender::of(key).is_ok_and(|sender| {
            let own = self.member.task.incarnation.wrapping_add(u64::from(sender.device.index));
            self.steps_of(&TaskName::of(&sender.device)).is_some() && sender.incarnation != own
        })
    }

    /// Logs the tensors that come from other tasks, or tells what was logged.
    pub(crate) fn logging(&self, request: &pb::LoggingRequest) -> pb::LoggingResponse {
        self.member.watch.rpc_log.answer(request)
    }

    /// Forgets a step.
    pub(crate) fn cleanup_graph(
        &self,
        request: &pb::CleanupGraphRequest,
    ) -> pb::CleanupGraphResponse {
        self.partial.lock().remove(&(request.step_id as u64));
        self.all_steps().iter().for_each(|steps| steps.forget(request.step_id as u64));
        pb::CleanupGraphResponse {}
    }

    /// Empties containers, the default one if none is named.
    pub(crate) fn cleanup_all(&self, request: &pb::CleanupAllRequest) -> pb::CleanupAllResponse {
        self.member.task.reset(&request.container);
        pb::CleanupAllResponse {}
    }

    /// Lets go of what masters left behind that are gone.
    pub(crate) fn sweep(&self) {
        let now = self.member.task.options.environment.clock.monotonic();
        self.all_steps().iter().for_each(|steps| steps.forget_orphans(now, ORPHAN_LIMIT));
        // A name that no session uses any more is forgotten with its last step.
        let is_used = |steps: &Arc<Steps>| Arc::strong_count(steps) > 1 || steps.len() > 0;
        self.aliases.write().retain(|_, steps| is_used(steps));
    }
}

/// Has a step's run and its meeting place end each other, as long as the links live.
fn tied(table: &Arc<TaskRendezvous>, run: &Cancellation) -> (Registration, Registration) {
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
impl AskedTensor {
    /// A question that nobody will answer.
    pub(crate) fn of_a_task_alone(step: u64) -> AskedTensor {
        let member = tests::member();
        AskedTensor { steps: member.steps.clone(), member, step }
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
        let ops = OpRegistry::new([], "").unwrap();
        let task = Task::new(TaskOptions::default(), ops, KernelRegistry::new([]));
        Member::alone(Arc::new(task))
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

    /// A step may run on a task under two names; who gives up a tensor of the one must not end the
    /// wait for a tensor of the other.
    #[test]
    fn giving_up_concerns_one_name_of_the_task() {
        let worker = Worker::new(member());
        rename(&worker);
        let ask = |task: &str| {
            let incarnation = worker.task().incarnation;
            let asker = "/job:w/replica:0/task:0/device:CPU:0";
            let key = format!("{task}/device:CPU:0;{incarnation:016x};{asker};edge_1_v;0:0");
            let (step_id, rendezvous_key) = (5, key);
            let request = pb::RecvTensorRequest { step_id, rendezvous_key, ..Default::default() };
            let asked = worker.asked(&request).unwrap();
            let (tell, told) = mpsc::channel();
            asked.receive(&request.rendezvous_key, move |result| drop(tell.send(result)));
            (asked, told)
        };
        let (own, of_own) = ask("/job:local/replica:0/task:0");
        let (other, of_other) = ask("/job:other/replica:0/task:3");
        other.give_up();
        let ended = of_other.try_recv().expect("nobody awaits that step any more").err().unwrap();
        assert_eq!(ended.code(), Code::Aborted);
        assert!(of_own.try_recv().is_err(), "another's wait was ended");
        assert_eq!(worker.all_steps().iter().map(|steps| steps.len()).sum::<usize>(), 1);
        own.give_up();
        assert!(of_own.try_recv().expect("it is over").is_err());
    }
}
