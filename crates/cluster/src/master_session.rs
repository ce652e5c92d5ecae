//! One client's session on the master: its graph's version, its callables, its steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use thalweg_graph::Graph;
use thalweg_kernel::Cancellation;
use thalweg_proto as pb;
use thalweg_runtime::{Callable, RunMetadata, RunOptions, Session};
use thalweg_tensor::{Error, Result, Tensor, bail, ensure, err};

use crate::config;
use crate::recent_ids::RecentIds;
use crate::task::{Task, attributes};

/// Callables that a session keeps at most.
const CALLABLES_MAX: usize = 10_000;

/// What a step gave: its tensors in the order of the fetches, and a report.
pub(crate) type Ran = (Vec<Tensor>, RunMetadata);

/// A session that a client has opened.
pub(crate) struct MasterSession {
    session: Session,
    devices: Vec<pb::DeviceAttributes>,
    graph_version: Mutex<i64>,
    operation_timeout: Option<Duration>,
    callables: Mutex<FxHashMap<i64, Arc<Callable>>>,
    next_callable: AtomicI64,
    recent: Mutex<RecentIds>,
    /// Ends every step of the session.
    closing: Cancellation,
}

impl MasterSession {
    /// A session over the graph that a client sent.
    pub(crate) fn new(task: &Task, request: pb::CreateSessionRequest) -> Result<MasterSession> {
        let config = request.config.unwrap_or_default();
        let graph = Graph::from_def(task.ops.clone(), request.graph_def.unwrap_or_default())?;
        let options = config::session_options(task, &config)?;
        let devices = options.devices.iter().map(|d| attributes(d.description())).collect();
        Ok(MasterSession {
            session: Session::new(graph, task.kernels.clone(), options)?,
            devices,
            graph_version: Mutex::new(0),
            operation_timeout: config::milliseconds(config.operation_timeout_in_ms),
            callables: Mutex::default(),
            next_callable: AtomicI64::new(0),
            recent: Mutex::default(),
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
        self.session.extend(request.graph_def.unwrap_or_default())?;
        *version += 1;
        Ok(*version)
    }

    /// The devices of the session.
    pub(crate) fn devices(&self) -> &[pb::DeviceAttributes] {
        &self.devices
    }

    /// Ends all steps, now and later.
    pub(crate) fn close(&self) {
        self.closing.cancel(err!(
            Cancelled,
            "Step was cancelled by an explicit call to `Session::Close()`."
        ));
    }

    fn check_id(&self, what: &str, id: i64) -> Result<()> {
        let is_new = self.recent.lock().insert(id);
        ensure!(is_new, Aborted, "The same {what} request was received twice.");
        Ok(())
    }

    /// Runs a step; `done` is told of its end by a thread of the pool.
    pub(crate) fn run(
        &self,
        request: &pb::RunStepRequest,
        feeds: Vec<(String, Tensor)>,
        cancellation: &Cancellation,
        done: impl FnOnce(Result<Ran>) + Send + 'static,
    ) {
        if let Err(e) = self.check_id("RunStep (Master)", request.request_id) {
            return done(Err(e));
        }
        let options = config::run_options(request.options.as_ref(), self.operation_timeout);
        let (options, done) = self.guarded(options, cancellation, done);
        self.session.start(options, feeds, request.fetch.clone(), request.target.clone(), done);
    }

    /// Prepares a kind of step.
    pub(crate) fn make_callable(&self, request: &pb::MakeCallableRequest) -> Result<i64> {
        self.check_id("MakeCallable", request.request_id)?;
        let options = request.options.clone().unwrap_or_default();
        ensure!(
            options.tensor_connection.is_empty(),
            Unimplemented,
            "callables with tensor_connection are not supported"
        );
        let names = |list: &[String]| -> Vec<String> { list.to_vec() };
        let (feeds, fetches, targets) =
            (names(&options.feed), names(&options.fetch), names(&options.target));
        let callable =
            self.session.make_callable(&refs(&feeds), &refs(&fetches), &refs(&targets))?;
        let mut callables = self.callables.lock();
        ensure!(
            callables.len() < CALLABLES_MAX,
            ResourceExhausted,
            "the session has {CALLABLES_MAX} callables; release some"
        );
        let handle = self.next_callable.fetch_add(1, Ordering::Relaxed);
        callables.insert(handle, Arc::new(callable));
        Ok(handle)
    }

    /// Runs a step that was prepared.
    pub(crate) fn run_callable(
        &self,
        request: &pb::RunCallableRequest,
        feeds: Vec<Tensor>,
        cancellation: &Cancellation,
        done: impl FnOnce(Result<Ran>) + Send + 'static,
    ) {
        let found = self.check_id("RunCallable", request.request_id).and_then(|()| {
            let callable = self.callables.lock().get(&request.handle).cloned();
            callable.ok_or_else(|| no_callable(request.handle))
        });
        let callable = match found {
            Ok(callable) => callable,
            Err(e) => return done(Err(e)),
        };
        let options = RunOptions { timeout: self.operation_timeout, ..Default::default() };
        let (options, done) = self.guarded(options, cancellation, done);
        callable.start(options, feeds, done);
    }

    /// Forgets a prepared step.
    pub(crate) fn release_callable(&self, handle: i64) -> Result<()> {
        match self.callables.lock().remove(&handle) {
            Some(_) => Ok(()),
            None => Err(no_callable(handle)),
        }
    }

    /// Ties a step to the caller's wish and to the session's life.
    fn guarded(
        &self,
        mut options: RunOptions,
        cancellation: &Cancellation,
        done: impl FnOnce(Result<Ran>) + Send + 'static,
    ) -> (RunOptions, impl FnOnce(Result<Ran>) + Send + 'static) {
        let link = self.closing.link(cancellation);
        options.cancellation = Some(cancellation.clone());
        let done = move |result| {
            drop(link);
            done(result);
        };
        (options, done)
    }
}

fn refs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

fn no_callable(handle: i64) -> Error {
    err!(InvalidArgument, "No such callable handle: {handle}")
}

/// Tensors of a request's feeds.
pub(crate) fn feeds_of(feeds: Vec<pb::NamedTensorProto>) -> Result<Vec<(String, Tensor)>> {
    let tensor = |feed: pb::NamedTensorProto| {
        let Some(proto) = feed.tensor else {
            bail!(InvalidArgument, "the feed '{}' has no tensor", feed.name);
        };
        Ok((feed.name, Tensor::from_proto(&proto, None)?))
    };
    feeds.into_iter().map(tensor).collect()
}
