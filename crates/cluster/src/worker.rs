//! The worker: runs the parts of plans that masters give it, and hands tensors to other workers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use thalweg_graph::Graph;
use thalweg_kernel::{Cancellation, Registration, Rendezvous, RendezvousKey, Value};
use thalweg_proto as pb;
use thalweg_runtime::{NodeWait, RegisteredGraph, RunMetadata, RunOptions, Session};
use thalweg_tensor::{Error, Result, Tensor, bail, ensure, err};

use crate::config;
use crate::errors::from_task;
use crate::master_session::check_size;
use crate::member::Member;
use crate::recent_ids::RecentIds;
use crate::remote_rendezvous::{Sender, TaskRendezvous};
use crate::steps::Admitted;
use crate::task::{Task, attributes};
use crate::watch::Awaited;

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
    partial: Mutex<FxHashMap<u64, Arc<PartialStep>>>,
}

/// What one master's session has here.
struct WorkerSession {
    session: Session,
    graphs: RwLock<FxHashMap<String, Arc<RegisteredGraph>>>,
    next_graph: AtomicU64,
    /// The master's task, and which of its starts it was.
    master: (String, i64),
}

/// What a part of a step gave: tensors for those who asked for them by key, and a report.
pub(crate) struct RanGraph {
    pub(crate) received: Vec<(String, Tensor)>,
    pub(crate) metadata: RunMetadata,
    /// Whether the step goes on: then there is nothing to report.
    pub(crate) goes_on: bool,
}

type Done = Box<dyn FnOnce(Result<RanGraph>) + Send>;

impl Worker {
    /// A worker without sessions.
    pub fn new(member: Arc<Member>) -> Worker {
        Worker {
            member,
            sessions: RwLock::default(),
            recent: Mutex::default(),
            partial: Mutex::default(),
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
        let devices = self.member.task.devices(1);
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
            let session = self.new_session(request.isolate_session_state, master)?;
            sessions.insert(handle.clone(), Arc::new(session));
        }
        Ok(pb::CreateWorkerSessionResponse {})
    }

    fn new_session(&self, is_isolated: bool, master: (String, i64)) -> Result<WorkerSession> {
        let task = &self.member.task;
        let config = pb::ConfigProto { isolate_session_state: is_isolated, ..Default::default() };
        let options = config::session_options(task, &config)?;
        let graph = Graph::new(task.ops.clone());
        Ok(WorkerSession {
            session: Session::new(graph, task.kernels.clone(), options)?,
            graphs: RwLock::default(),
            next_graph: AtomicU64::new(1),
            master,
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
        let session = Arc::new(self.new_session(false, Default::default())?);
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
        let (graph, table, begins) = match self.admit(request, connection) {
            Ok(admitted) => admitted,
            Err(e) => return Err((e, done)),
        };
        for (key, tensor) in sent {
            if let Err(e) = table.send(&RendezvousKey(key.into()), Value::Tensor(tensor)) {
                return Err((e, done));
            }
        }
        let step = request.step_id as u64;
        let wanted = Wanted::new(request.recv_key.clone(), done);
        wanted.receive(&table);
        if request.is_partial {
            self.run_part(request, &graph, &table, begins, cancellation, wanted);
            return Ok(());
        }
        let (worker, links) = (self.clone(), tied(&table, cancellation));
        graph.start(&run_options(request, cancellation), step, table, move |result| {
            drop(links);
            worker.member.steps.finished(step, result.as_ref().err().cloned());
            wanted.ended(result);
        });
        Ok(())
    }

    fn admit(
        &self,
        request: &pb::RunGraphRequest,
        connection: Option<Weak<()>>,
    ) -> Result<(Arc<RegisteredGraph>, Arc<TaskRendezvous>, bool)> {
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
        Ok(match self.member.steps.run(step, request.is_partial, connection)? {
            Admitted::Begins(table) => (graph, table, true),
            Admitted::Joins(table) => (graph, table, false),
        })
    }

    /// One of several requests for the same step: the first starts it, the last waits for its end.
    fn run_part(
        self: &Arc<Self>,
        request: &pb::RunGraphRequest,
        graph: &RegisteredGraph,
        table: &Arc<TaskRendezvous>,
        begins: bool,
        cancellation: &Cancellation,
        wanted: Arc<Wanted>,
    ) {
        let step = request.step_id as u64;
        let state = self.partial.lock().entry(step).or_default().clone();
        if begins {
            let (worker, ended) = (self.clone(), state.clone());
            // The step is not this request's to end.
            let of_step = Cancellation::default();
            let links = tied(table, &of_step);
            graph.start(&run_options(request, &of_step), step, table.clone(), move |result| {
                drop(links);
                worker.member.steps.finished(step, result.as_ref().err().cloned());
                ended.ended(result);
            });
        }
        if request.is_last_partial_run {
            self.partial.lock().remove(&step);
            let (table, end) = (table.clone(), state.clone());
            let link = cancellation.on_cancel(move |cause| table.abort(cause));
            end.wait(move |result| {
                drop(link);
                wanted.ended(result);
            });
        } else {
            wanted.goes_on();
        }
    }

    /// Gives a tensor to another worker when it is there.
    pub(crate) fn recv_tensor(
        self: &Arc<Self>,
        request: &pb::RecvTensorRequest,
        done: impl FnOnce(Result<Value>) + Send + 'static,
    ) {
        if let Err(e) = self.check_key(&request.rendezvous_key) {
            return done(Err(e));
        }
        let key = RendezvousKey(request.rendezvous_key.as_str().into());
        let name = self.member.name.to_string();
        let waits = self.member.watch.wait(request.step_id as u64, Awaited::Wanted(key.clone()));
        let received = Box::new(move |value: Result<Value>| {
            drop(waits);
            done(value.map_err(|e| from_task(&name, e)));
        });
        self.member.steps.want(request.step_id as u64, &key, received);
    }

    /// Whoever wanted a tensor of that step has gone.
    pub(crate) fn recv_tensor_given_up(&self, step: i64) {
        self.member.steps.want_no_more(step as u64);
    }

    fn check_key(&self, key: &str) -> Result<()> {
        let sender = Sender::of(key)?;
        let (name, task) = (&self.member.name, &self.member.task);
        ensure!(
            sender.device.job == name.job && sender.device.task == name.index,
            InvalidArgument,
            "{} is no device of {name}",
            sender.device
        );
        let own = task.incarnation.wrapping_add(u64::from(sender.device.index));
        ensure!(
            sender.incarnation == own,
            Aborted,
            "a tensor is asked of another start of {name}: of incarnation {}, and this one is {own}; the \
             task was restarted",
            sender.incarnation
        );
        Ok(())
    }

    /// Forgets a step.
    pub(crate) fn cleanup_graph(
        &self,
        request: &pb::CleanupGraphRequest,
    ) -> pb::CleanupGraphResponse {
        self.partial.lock().remove(&(request.step_id as u64));
        self.member.steps.forget(request.step_id as u64);
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
        self.member.steps.forget_orphans(now, ORPHAN_LIMIT);
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

/// Tensors that a request wants by key, and the end that it waits for.
struct Wanted {
    keys: Vec<String>,
    state: Mutex<WantedState>,
}

struct WantedState {
    left: usize,
    tensors: Vec<Option<Tensor>>,
    metadata: RunMetadata,
    goes_on: bool,
    done: Option<Done>,
}

impl Wanted {
    fn new(keys: Vec<String>, done: Done) -> Arc<Wanted> {
        let state = WantedState {
            left: keys.len() + 1,
            tensors: vec![None; keys.len()],
            metadata: RunMetadata::default(),
            goes_on: false,
            done: Some(done),
        };
        Arc::new(Wanted { keys, state: Mutex::new(state) })
    }

    fn receive(self: &Arc<Self>, table: &Arc<TaskRendezvous>) {
        for (i, key) in self.keys.iter().enumerate() {
            let wanted = self.clone();
            let received = move |value: Result<Value>| {
                wanted.arrived(|state| {
                    let Value::Tensor(tensor) = value? else {
                        bail!(
                            InvalidArgument,
                            "what was asked for is the result of a branch not taken"
                        );
                    };
                    state.tensors[i] = Some(tensor);
                    Ok(())
                });
            };
            table.receive(&RendezvousKey(key.as_str().into()), Box::new(received));
        }
    }

    fn ended(&self, result: Result<RunMetadata>) {
        self.arrived(|state| result.map(|metadata| state.metadata = metadata));
    }

    fn goes_on(&self) {
        self.arrived(|state| {
            state.goes_on = true;
            Ok(())
        });
    }

    fn arrived(&self, what: impl FnOnce(&mut WantedState) -> Result<()>) {
        let mut state = self.state.lock();
        let result = what(&mut state);
        state.left = state.left.saturating_sub(1);
        if result.is_ok() && state.left > 0 {
            return;
        }
        // The first error answers; what comes later finds nobody.
        let Some(done) = state.done.take() else { return };
        let tensors = std::mem::take(&mut state.tensors).into_iter().flatten();
        let ran = RanGraph {
            received: self.keys.iter().cloned().zip(tensors).collect(),
            metadata: std::mem::take(&mut state.metadata),
            goes_on: state.goes_on,
        };
        drop(state);
        done(result.map(|()| ran));
    }
}

/// A step that a master starts in parts.
#[derive(Default)]
struct PartialStep(Mutex<PartialEnd>);

#[derive(Default)]
enum PartialEnd {
    #[default]
    Running,
    Awaited(Box<dyn FnOnce(Result<RunMetadata>) + Send>),
    Over(Result<RunMetadata>),
}

impl PartialStep {
    fn ended(&self, result: Result<RunMetadata>) {
        let mut state = self.0.lock();
        match std::mem::take(&mut *state) {
            PartialEnd::Awaited(wait) => {
                drop(state);
                wait(result);
            }
            _ => *state = PartialEnd::Over(result),
        }
    }

    fn wait(&self, then: impl FnOnce(Result<RunMetadata>) + Send + 'static) {
        let mut state = self.0.lock();
        match std::mem::take(&mut *state) {
            PartialEnd::Over(result) => {
                drop(state);
                then(result);
            }
            _ => *state = PartialEnd::Awaited(Box::new(then)),
        }
    }
}
