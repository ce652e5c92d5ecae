//! A client's session on the master: graph version, callables, partial runs, steps.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use thalweg_graph::Graph;
use thalweg_kernel::Cancellation;
use thalweg_proto as pb;
pub(crate) use thalweg_runtime::PartialRunOutputs;
use thalweg_runtime::{Callable, NodeWait, PartialRun, RunMetadata, RunOptions, Session};
use thalweg_tensor::{Budget, Error, Result, Tensor, bail, ensure, err};

use crate::master::clocks::align;
use crate::master::config;
use crate::master::session_peers::SessionPeers;
use crate::step::recent_ids::RecentIds;
use crate::task::{Task, attributes};

/// Maximum number of callables of a session.
const CALLABLES_MAX: usize = 10_000;
/// Maximum number of open partial runs of a session.
const PARTIAL_RUNS_MAX: usize = 1_000;

/// The fetched tensors of a step, in the order of the fetches, and its report.
pub(crate) type StepOutput = (Vec<Tensor>, RunMetadata);

/// A callable and the options of its steps.
type Prepared = (Callable, Option<pb::RunOptions>);

/// A session that a client has created.
pub(crate) struct MasterSession {
    session: Session,
    devices: Vec<pb::DeviceAttributes>,
    /// The other tasks, if there are any.
    peers: Option<Arc<SessionPeers>>,
    graph_version: Mutex<i64>,
    operation_timeout: Option<Duration>,
    callables: Mutex<FxHashMap<i64, Arc<Prepared>>>,
    next_callable: AtomicI64,
    partial_runs: Mutex<FxHashMap<String, Arc<PartialRun>>>,
    next_partial_run: AtomicI64,
    cost_model: CostModel,
    graph_nodes_max: usize,
    recent: Mutex<RecentIds>,
    /// The connection of the last call, if the client cancelled it, and when.
    lost: Mutex<Option<(Weak<()>, Duration)>>,
    /// Cancels every step of the session.
    closing: Cancellation,
}

impl MasterSession {
    /// A session over the graph that a client sent.
    pub(crate) fn new(
        task: &Task,
        request: pb::CreateSessionRequest,
        peers: Option<Arc<SessionPeers>>,
    ) -> Result<MasterSession> {
        let config = request.config.unwrap_or_default();
        let nodes_max = task.options.graph_nodes_max;
        check_size(0, request.graph_def.as_ref(), nodes_max)?;
        let graph = Graph::from_def(task.ops.clone(), request.graph_def.unwrap_or_default())?;
        let mut options = config::session_options(task, &config)?;
        if let Some(peers) = &peers {
            options.remote_tasks = Some(peers.clone());
        }
        let devices = options.devices.iter().map(|d| attributes(d.description())).collect();
        Ok(MasterSession {
            session: Session::new(graph, task.kernels.clone(), options)?,
            devices,
            peers,
            graph_version: Mutex::new(0),
            operation_timeout: config::milliseconds(config.operation_timeout_in_ms),
            callables: Mutex::default(),
            next_callable: AtomicI64::new(0),
            partial_runs: Mutex::default(),
            next_partial_run: AtomicI64::new(0),
            cost_model: CostModel::new(&config),
            graph_nodes_max: nodes_max,
            recent: Mutex::default(),
            lost: Mutex::default(),
            closing: Cancellation::default(),
        })
    }

    /// Adds nodes to the graph if the client knows its newest version.
    pub(crate) fn extend(&self, request: pb::ExtendSessionRequest) -> Result<i64> {
        let mut version = self.graph_version.lock();
        ensure!(
            request.current_graph_version == *version,
            Aborted,
            "Current version is {version} but caller expected {}.",
            request.current_graph_version
        );
        let nodes = self.session.with_graph(Graph::len);
        check_size(nodes, request.graph_def.as_ref(), self.graph_nodes_max)?;
        self.session.extend(request.graph_def.unwrap_or_default())?;
        *version += 1;
        Ok(*version)
    }

    /// The devices of the session.
    pub(crate) fn devices(&self) -> Vec<pb::DeviceAttributes> {
        let others = self.peers.as_ref().map(|p| p.attributes()).unwrap_or_default();
        [self.devices.clone(), others].concat()
    }

    /// Nodes that wait, at most `waits_max`.
    pub(crate) fn waits(&self, waits_max: usize) -> Vec<NodeWait> {
        self.session.waits(waits_max)
    }

    /// The other tasks, if there are any.
    pub(crate) fn peers(&self) -> Option<&Arc<SessionPeers>> {
        self.peers.as_ref()
    }

    /// Closes the session: current and later steps end with `Cancelled`.
    pub(crate) fn close(&self) {
        self.closing.cancel(err!(
            Cancelled,
            "Step was cancelled by an explicit call to `Session::Close()`."
        ));
        let partial_runs = std::mem::take(&mut *self.partial_runs.lock());
        drop(partial_runs);
        if let Some(peers) = &self.peers {
            peers.close();
        }
    }

    /// Records that the client has made a call.
    pub(crate) fn note_call(&self) {
        *self.lost.lock() = None;
    }

    /// Records that the client cancelled a call on `connection`.
    pub(crate) fn note_lost_call(&self, connection: Weak<()>, now: Duration) {
        *self.lost.lock() = Some((connection, now));
    }

    /// Whether the client disconnected during a call at least `limit` ago and has made no call since.
    pub(crate) fn is_orphan(&self, now: Duration, limit: Duration) -> bool {
        let is_gone = |(connection, since): &(Weak<()>, Duration)| {
            connection.strong_count() == 0 && now.saturating_sub(*since) >= limit
        };
        self.lost.lock().as_ref().is_some_and(is_gone)
    }

    fn check_id(&self, what: &str, id: i64) -> Result<()> {
        let is_new = self.recent.lock().insert(id);
        ensure!(is_new, Aborted, "The same {what} request was received twice.");
        Ok(())
    }

    /// Whether steps with these options are traced.
    pub(crate) fn traces(&self, options: Option<&pb::RunOptions>) -> bool {
        config::run_options(options, None, 0).trace
    }

    /// Whether steps of a callable are traced.
    pub(crate) fn callable_traces(&self, handle: i64) -> bool {
        let callable = self.callables.lock().get(&handle).cloned();
        callable.is_some_and(|callable| self.traces(callable.1.as_ref()))
    }

    /// Runs a step; traces it if the client asks for that, or someone else does. `done` is called on a thread of
    /// the pool.
    pub(crate) fn run(
        &self,
        request: &pb::RunStepRequest,
        feeds: Vec<(String, Tensor)>,
        is_traced: bool,
        cancellation: &Cancellation,
        done: impl FnOnce(Result<StepOutput>) + Send + 'static,
    ) {
        if let Err(e) = self.check_id("RunStep (Master)", request.request_id) {
            return done(Err(e));
        }
        let mut options = config::run_options(
            request.options.as_ref(),
            self.operation_timeout,
            request.request_id,
        );
        options.cost_graph = self.cost_model.is_due();
        options.trace |= is_traced;
        let done = self.aligned(options.trace, done);
        let (options, done) = self.cancelled_on_close(options, cancellation, done);
        self.session.start(options, feeds, request.fetch.clone(), request.target.clone(), done);
    }

    /// Prepares a partial run.
    pub(crate) fn partial_run_setup(&self, request: &pb::PartialRunSetupRequest) -> Result<String> {
        self.check_id("PartialRunSetup (Master)", request.request_id)?;
        ensure!(
            self.partial_runs.lock().len() < PARTIAL_RUNS_MAX,
            ResourceExhausted,
            "the session has {PARTIAL_RUNS_MAX} partial runs open; finish one of them"
        );
        let names = [&request.feed, &request.fetch, &request.target].map(|names| refs(names));
        let run = self.session.partial_run(&names[0], &names[1], &names[2])?;
        let handle = self.next_partial_run.fetch_add(1, Ordering::Relaxed).to_string();
        self.partial_runs.lock().insert(handle.clone(), Arc::new(run));
        // The session may have been closed meanwhile, and its partial runs with it.
        if let Err(e) = self.closing.check() {
            self.partial_runs.lock().remove(&handle);
            return Err(e);
        }
        Ok(handle)
    }

    /// Makes one call of a partial run; its last call, or one that fails, ends it.
    pub(crate) fn partial_run(
        self: &Arc<Self>,
        request: &pb::RunStepRequest,
        feeds: Vec<(String, Tensor)>,
        cancellation: &Cancellation,
        done: impl FnOnce(Result<PartialRunOutputs>) + Send + 'static,
    ) {
        let handle = request.partial_run_handle.clone();
        let found = self.check_id("RunStep (Master)", request.request_id).and_then(|()| {
            ensure!(
                request.target.is_empty(),
                InvalidArgument,
                "a partial run takes its targets at its setup"
            );
            self.partial_runs.lock().get(&handle).cloned().ok_or_else(|| {
                err!(InvalidArgument, "Must run PartialRunSetup before performing partial runs")
            })
        });
        let run = match found {
            Ok(run) => run,
            Err(e) => return done(Err(e)),
        };
        let options = config::run_options(
            request.options.as_ref(),
            self.operation_timeout,
            request.request_id,
        );
        let (session, kept) = (self.clone(), run.clone());
        let done = move |result: Result<PartialRunOutputs>| {
            if kept.is_over() {
                session.partial_runs.lock().remove(&handle);
            }
            done(result);
        };
        let done = self.aligned_partial_run(options.trace, done);
        let (options, done) = self.cancelled_on_close(options, cancellation, done);
        run.start(options, feeds, request.fetch.clone(), done);
    }

    /// Prepares a callable.
    pub(crate) fn make_callable(&self, request: &pb::MakeCallableRequest) -> Result<i64> {
        self.check_id("MakeCallable", request.request_id)?;
        let options = request.options.clone().unwrap_or_default();
        ensure!(
            options.tensor_connection.is_empty(),
            Unimplemented,
            "callables with tensor_connection are not supported"
        );
        let names = [&options.feed, &options.fetch, &options.target].map(|names| refs(names));
        let callable = self.session.make_callable(&names[0], &names[1], &names[2])?;
        let mut callables = self.callables.lock();
        ensure!(
            callables.len() < CALLABLES_MAX,
            ResourceExhausted,
            "the session has {CALLABLES_MAX} callables; release one of them"
        );
        let handle = self.next_callable.fetch_add(1, Ordering::Relaxed);
        callables.insert(handle, Arc::new((callable, options.run_options)));
        Ok(handle)
    }

    /// Runs a callable.
    pub(crate) fn run_callable(
        &self,
        request: &pb::RunCallableRequest,
        feeds: Vec<Tensor>,
        is_traced: bool,
        cancellation: &Cancellation,
        done: impl FnOnce(Result<StepOutput>) + Send + 'static,
    ) {
        let found = self.check_id("RunCallable", request.request_id).and_then(|()| {
            let callable = self.callables.lock().get(&request.handle).cloned();
            callable.ok_or_else(|| no_callable(request.handle))
        });
        let callable = match found {
            Ok(callable) => callable,
            Err(e) => return done(Err(e)),
        };
        let mut options =
            config::run_options(callable.1.as_ref(), self.operation_timeout, request.request_id);
        options.cost_graph = self.cost_model.is_due();
        options.trace |= is_traced;
        let done = self.aligned(options.trace, done);
        let (options, done) = self.cancelled_on_close(options, cancellation, done);
        callable.0.start(options, feeds, done);
    }

    /// Releases a callable.
    pub(crate) fn release_callable(&self, handle: i64) -> Result<()> {
        match self.callables.lock().remove(&handle) {
            Some(_) => Ok(()),
            None => Err(no_callable(handle)),
        }
    }

    /// Has the reports of other tasks merged into that of a traced step, by the master's clock.
    fn aligned(
        &self,
        is_traced: bool,
        done: impl FnOnce(Result<StepOutput>) + Send + 'static,
    ) -> impl FnOnce(Result<StepOutput>) + Send + 'static {
        let done = self.aligned_partial_run(is_traced, |result: Result<PartialRunOutputs>| {
            done(result.map(|(tensors, report)| (tensors, report.unwrap_or_default())));
        });
        |result: Result<StepOutput>| done(result.map(|(tensors, report)| (tensors, Some(report))))
    }

    /// As `aligned`; only the last call of a partial run has a report.
    fn aligned_partial_run(
        &self,
        is_traced: bool,
        done: impl FnOnce(Result<PartialRunOutputs>) + Send + 'static,
    ) -> impl FnOnce(Result<PartialRunOutputs>) + Send + 'static {
        let member = self.peers.as_ref().filter(|_| is_traced).map(|peers| peers.member.clone());
        move |result| match (member, result) {
            (Some(member), Ok((tensors, Some(report)))) => {
                align(&member, report, |report| done(Ok((tensors, Some(report)))));
            }
            (_, result) => done(result),
        }
    }

    /// Has the caller's cancellation and the session's closing cancel a step.
    fn cancelled_on_close<T>(
        &self,
        mut options: RunOptions,
        cancellation: &Cancellation,
        done: impl FnOnce(Result<T>) + Send + 'static,
    ) -> (RunOptions, impl FnOnce(Result<T>) + Send + 'static) {
        let link = self.closing.link(cancellation);
        options.cancellation = Some(cancellation.clone());
        let done = move |result| {
            drop(link);
            done(result);
        };
        (options, done)
    }
}

/// Which steps of a session report the costs of their nodes (`build_cost_model`).
struct CostModel {
    /// The period in steps; 0 means never.
    period: i64,
    /// The first step that may report.
    after: i64,
    count: AtomicI64,
}

impl CostModel {
    fn new(config: &pb::ConfigProto) -> CostModel {
        let options = config.graph_options.clone().unwrap_or_default();
        CostModel {
            period: options.build_cost_model,
            after: options.build_cost_model_after,
            count: AtomicI64::new(0),
        }
    }

    /// Counts a step; returns whether it reports.
    fn is_due(&self) -> bool {
        if self.period <= 0 {
            return false;
        }
        let steps = self.count.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let steps = steps.saturating_sub(self.after);
        steps >= 0 && steps % self.period == 0
    }
}

/// Checks the number of nodes of a graph before it is built.
pub(crate) fn check_size(
    nodes: usize,
    more: Option<&pb::GraphDef>,
    nodes_max: usize,
) -> Result<()> {
    let functions = more.and_then(|g| g.library.as_ref()).map_or(&[][..], |l| &l.function);
    let in_functions: usize = functions.iter().map(|f| f.node_def.len()).sum();
    let total = nodes + more.map_or(0, |g| g.node.len()) + in_functions;
    ensure!(
        total <= nodes_max,
        ResourceExhausted,
        "the graph has {total} nodes; a session's may have {nodes_max}"
    );
    Ok(())
}

fn refs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

fn no_callable(handle: i64) -> Error {
    err!(InvalidArgument, "No such callable handle: {handle}")
}

/// Decodes the feeds of a request.
pub(crate) fn decode_feeds(
    feeds: Vec<pb::NamedTensorProto>,
    budget: &Arc<Budget>,
) -> Result<Vec<(String, Tensor)>> {
    let tensor = |feed: pb::NamedTensorProto| {
        let Some(proto) = feed.tensor else {
            bail!(InvalidArgument, "the feed '{}' has no tensor", feed.name);
        };
        Ok((feed.name, Tensor::from_received_proto(proto, budget)?))
    };
    feeds.into_iter().map(tensor).collect()
}
