//! TensorFlow's `MasterService` without its transport: sessions by handle, and the calls of clients.

pub(crate) mod clocks;
pub(crate) mod config;
pub(crate) mod discover;
pub(crate) mod remote_partitions;
pub(crate) mod session;
pub(crate) mod session_peers;
pub(crate) mod step;
pub(crate) mod tracer;

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use thalweg_kernel::Cancellation;
use thalweg_proto as pb;
use thalweg_runtime::{NodeWait, RunMetadata};
use thalweg_tensor::{Result, Tensor, bail, ensure, err};
use tracing::debug;

use crate::cluster_spec::ClusterSpec;
use crate::errors::from_task;
use crate::master::session::{MasterSession, PartialRunOutputs, StepOutput, decode_feeds};
use crate::master::session_peers::SessionPeers;
use crate::master::tracer::{Ticket, Tracer};
use crate::member::Member;
use crate::step::failure_log::FailureLog;
use crate::task::{Task, attributes};

/// Maximum number of open sessions; each holds a graph.
const SESSIONS_MAX: usize = 100_000;
/// The newest `versions.min_consumer` that is accepted.
const CONSUMER_VERSION: i32 = thalweg_graph::GRAPH_VERSION;

/// The master of one task.
pub struct Master {
    member: Arc<Member>,
    task: Arc<Task>,
    sessions: RwLock<FxHashMap<String, Arc<MasterSession>>>,
    pub(crate) tracer: Arc<Tracer>,
}

impl Master {
    /// A master of a task that is in no cluster.
    pub fn new(task: Arc<Task>) -> Master {
        Master::with_member(Member::standalone(task))
    }

    /// A master whose sessions may use all tasks of its cluster.
    pub fn with_member(member: Arc<Member>) -> Master {
        Master {
            task: member.task().clone(),
            member,
            sessions: RwLock::default(),
            tracer: Arc::default(),
        }
    }

    /// The task in its cluster.
    pub fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// The task it serves.
    pub fn task(&self) -> &Arc<Task> {
        &self.task
    }

    /// Number of open sessions.
    pub fn session_count(&self) -> usize {
        self.sessions.read().len()
    }

    /// Nodes of its sessions that wait, at most `waits_max`.
    pub(crate) fn waits(&self, waits_max: usize) -> Vec<NodeWait> {
        let sessions: Vec<_> = self.sessions.read().values().cloned().collect();
        sessions.iter().flat_map(|s| s.waits(waits_max)).take(waits_max).collect()
    }

    fn session(&self, handle: &str) -> Result<Arc<MasterSession>> {
        let found = self.sessions.read().get(handle).cloned();
        let session = found.ok_or_else(|| err!(Aborted, "Session {handle} is not found."))?;
        session.note_call();
        Ok(session)
    }

    /// The client cancelled a call of this session. If `connection` ends as well, the session is an
    /// orphan until its next call.
    pub(crate) fn note_lost_call(&self, handle: &str, connection: Weak<()>) {
        if let Some(session) = self.sessions.read().get(handle) {
            session.note_lost_call(connection, self.task.options.environment.clock.monotonic());
        }
    }

    /// Closes sessions whose client disconnected during a call at least `limit` ago.
    pub fn close_orphans(&self, limit: Duration) {
        let now = self.task.options.environment.clock.monotonic();
        let is_orphan = |session: &Arc<MasterSession>| session.is_orphan(now, limit);
        if !self.sessions.read().values().any(is_orphan) {
            return;
        }
        let orphans: Vec<_> =
            self.sessions.write().extract_if(|_, session| is_orphan(session)).collect();
        for (handle, session) in &orphans {
            debug!(
                target: "thalweg::session",
                session = handle,
                "session {handle} is closed: its client has disconnected"
            );
            session.close();
        }
    }

    /// The other tasks for a session that is about to be created; none if the task is in no cluster.
    pub(crate) fn new_peers(
        &self,
        request: &pb::CreateSessionRequest,
    ) -> Result<Option<Arc<SessionPeers>>> {
        let config = request.config.clone().unwrap_or_default();
        let cluster = ClusterSpec::from_proto(&config.cluster_def.clone().unwrap_or_default())?;
        let member = match cluster.is_empty() {
            true if self.member.transport.is_none() => return Ok(None),
            true => self.member.clone(),
            false => self.member.in_cluster(self.add_own_task(cluster, &request.target)?),
        };
        Ok(Some(SessionPeers::new(member, &self.new_handle(), config)))
    }

    /// A propagated cluster with this task added, under the name it was started with and at the address
    /// by which the client reaches it, since the other tasks must reach it too.
    fn add_own_task(&self, mut cluster: ClusterSpec, target: &str) -> Result<ClusterSpec> {
        let own = &self.member.name;
        ensure!(
            cluster.address(own).is_none(),
            InvalidArgument,
            "the session's cluster has a task {own}, the name of the server that the session is opened on; give the cluster's tasks other \
             names"
        );
        let address = target.strip_prefix("grpc://").unwrap_or(target);
        cluster.add(own.clone(), address)?;
        Ok(cluster)
    }

    fn new_handle(&self) -> String {
        format!("{:016x}", self.task.options.environment.entropy.next_u64())
    }

    /// The other tasks of an open session.
    pub(crate) fn peers_of(&self, handle: &str) -> Option<Arc<SessionPeers>> {
        self.sessions.read().get(handle)?.peers().cloned()
    }

    /// Creates a session over the client's graph.
    pub(crate) fn create_session(
        &self,
        request: pb::CreateSessionRequest,
        peers: Option<Arc<SessionPeers>>,
    ) -> Result<pb::CreateSessionResponse> {
        check_version(request.graph_def.as_ref())?;
        ensure!(
            self.session_count() < SESSIONS_MAX,
            ResourceExhausted,
            "{SESSIONS_MAX} sessions are open; close some"
        );
        let handle = peers.as_ref().map_or_else(|| self.new_handle(), |p| p.handle.clone());
        let session = MasterSession::new(&self.task, request, peers)?;
        self.sessions.write().insert(handle.clone(), Arc::new(session));
        debug!(target: "thalweg::session", session = handle, "session {handle} is open");
        Ok(pb::CreateSessionResponse { session_handle: handle, graph_version: 0 })
    }

    /// Adds nodes to a session's graph.
    pub fn extend_session(
        &self,
        request: pb::ExtendSessionRequest,
    ) -> Result<pb::ExtendSessionResponse> {
        check_version(request.graph_def.as_ref())?;
        let session = self.session(&request.session_handle)?;
        Ok(pb::ExtendSessionResponse { new_graph_version: session.extend(request)? })
    }

    /// Runs a step. `done` gets the fetched tensors with their names, or the step's error.
    pub fn run_step(
        &self,
        mut request: pb::RunStepRequest,
        cancellation: &Cancellation,
        done: impl FnOnce(Result<StepResult>) + Send + 'static,
    ) {
        let feeds = std::mem::take(&mut request.feed);
        let found = self.session(&request.session_handle).and_then(|session| {
            Ok((session, decode_feeds(feeds, &self.task.budget)?, self.task.begin_step()?))
        });
        let (session, feeds, permit) = match found {
            Ok(found) => found,
            Err(e) => return done(Err(e)),
        };
        let (name, fetches) = (self.task.name(), request.fetch.clone());
        let diagnostics = self.member.diagnostics.clone();
        let failures = FailureLog::new(&request.session_handle);
        let traces = session.traces(request.options.as_ref());
        let handle = request.session_handle.clone();
        let done = move |result: Result<PartialRunOutputs>| {
            drop(permit);
            failures.log_master_step(&result);
            // Only the last call of a partial run has a report.
            if !matches!(&result, Ok((_, None))) {
                diagnostics.as_master.count(&result);
            }
            done(result.map(|ran| StepResult { fetches, ran }).map_err(|e| from_task(&name, e)));
        };
        if request.partial_run_handle.is_empty() {
            let ticket = self.tracer.begin();
            let is_traced = ticket.is_some();
            let whole = move |result: Result<StepOutput>| {
                let result = reported(result, ticket, &handle, traces);
                done(result.map(|(tensors, report)| (tensors, Some(report))));
            };
            session.run(&request, feeds, is_traced, cancellation, whole);
        } else {
            session.partial_run(&request, feeds, cancellation, done);
        }
    }

    /// Prepares a partial run.
    pub fn partial_run_setup(
        &self,
        request: &pb::PartialRunSetupRequest,
    ) -> Result<pb::PartialRunSetupResponse> {
        let session = self.session(&request.session_handle)?;
        Ok(pb::PartialRunSetupResponse { partial_run_handle: session.partial_run_setup(request)? })
    }

    /// Prepares a callable.
    pub fn make_callable(
        &self,
        request: &pb::MakeCallableRequest,
    ) -> Result<pb::MakeCallableResponse> {
        let handle = self.session(&request.session_handle)?.make_callable(request)?;
        Ok(pb::MakeCallableResponse { handle })
    }

    /// Runs a callable; `done` gets the tensors in the order of its fetches.
    pub fn run_callable(
        &self,
        mut request: pb::RunCallableRequest,
        cancellation: &Cancellation,
        done: impl FnOnce(Result<StepOutput>) + Send + 'static,
    ) {
        let protos = std::mem::take(&mut request.feed);
        let found = self.session(&request.session_handle).and_then(|session| {
            let feed = |proto| Tensor::from_received_proto(proto, &self.task.budget);
            let feeds: Result<Vec<Tensor>> = protos.into_iter().map(feed).collect();
            Ok((session, feeds?, self.task.begin_step()?))
        });
        let (session, feeds, permit) = match found {
            Ok(found) => found,
            Err(e) => return done(Err(e)),
        };
        let (name, diagnostics) = (self.task.name(), self.member.diagnostics.clone());
        let failures = FailureLog::new(&request.session_handle);
        let (ticket, handle) = (self.tracer.begin(), request.session_handle.clone());
        let (is_traced, traces) = (ticket.is_some(), session.callable_traces(request.handle));
        session.run_callable(&request, feeds, is_traced, cancellation, move |result| {
            drop(permit);
            let result = reported(result, ticket, &handle, traces);
            failures.log_master_step(&result);
            diagnostics.as_master.count(&result);
            done(result.map_err(|e| from_task(&name, e)));
        });
    }

    /// Releases a callable.
    pub fn release_callable(
        &self,
        request: &pb::ReleaseCallableRequest,
    ) -> Result<pb::ReleaseCallableResponse> {
        self.session(&request.session_handle)?.release_callable(request.handle)?;
        Ok(pb::ReleaseCallableResponse {})
    }

    /// Closes a session; its steps end with `Cancelled`.
    pub fn close_session(
        &self,
        request: &pb::CloseSessionRequest,
    ) -> Result<pb::CloseSessionResponse> {
        let handle = &request.session_handle;
        let Some(session) = self.sessions.write().remove(handle) else {
            bail!(Aborted, "Session {handle} is not found. Possibly, this master has restarted.");
        };
        session.close();
        debug!(target: "thalweg::session", session = handle, "session {handle} is closed");
        Ok(pb::CloseSessionResponse {})
    }

    /// Empties containers (the default one if none is named) and closes all sessions.
    pub fn reset(&self, request: &pb::ResetRequest) -> pb::ResetResponse {
        self.close_all();
        self.task.reset(&request.container);
        pb::ResetResponse {}
    }

    /// Closes all sessions.
    pub fn close_all(&self) {
        let sessions = std::mem::take(&mut *self.sessions.write());
        sessions.values().for_each(|session| session.close());
    }

    /// The devices of a session, or of the task.
    pub fn list_devices(
        &self,
        request: &pb::ListDevicesRequest,
    ) -> Result<pb::ListDevicesResponse> {
        let local_device = if request.session_handle.is_empty() {
            self.task.devices().iter().map(|d| attributes(d.description())).collect()
        } else {
            self.session(&request.session_handle)?.devices()
        };
        Ok(pb::ListDevicesResponse { local_device, remote_device: Vec::new() })
    }
}

/// Gives the report of a step to those who asked for it from outside. The client gets one that it asked for.
fn reported(
    result: Result<StepOutput>,
    ticket: Option<Ticket>,
    session: &str,
    client_traces: bool,
) -> Result<StepOutput> {
    let (tensors, mut report) = result?;
    if let Some(ticket) = ticket {
        let clients = match client_traces {
            true => report.clone(),
            false => RunMetadata {
                partition_graphs: report.partition_graphs.clone(),
                cost_graph: report.cost_graph.clone(),
                ..Default::default()
            },
        };
        ticket.report(session, std::mem::replace(&mut report, clients));
    }
    Ok((tensors, report))
}

/// The result of `RunStep`.
pub struct StepResult {
    /// The fetches, by the client's names.
    pub fetches: Vec<String>,
    /// Their tensors, and a report.
    pub ran: PartialRunOutputs,
}

fn check_version(graph: Option<&pb::GraphDef>) -> Result<()> {
    let min_consumer = graph.and_then(|g| g.versions.as_ref()).map_or(0, |v| v.min_consumer);
    ensure!(
        min_consumer <= CONSUMER_VERSION,
        InvalidArgument,
        "GraphDef min consumer version {min_consumer} above current version {CONSUMER_VERSION}: the \
         graph was written for a newer TensorFlow than 2.21"
    );
    Ok(())
}
