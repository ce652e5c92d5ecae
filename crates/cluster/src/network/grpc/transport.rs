//! Calls to other tasks by gRPC, and by the stream protocol for tensors of tasks of ours: connections are
//! made when a call needs them, and tasks that do not answer are probed.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use prost::Message;
use rustc_hash::FxHashMap;
use thalweg_kernel::{Cancellation, Clock, Value};
use thalweg_proto as pb;
use thalweg_rpc::{Channel, ConnectPolicy, Method, Pieces, check_status, decode_response, runtime};
use thalweg_runtime::RunMetadata;
use thalweg_tensor::{Code, Error, Result, Tensor, err};
use tokio::runtime::Handle;
use tracing::{info, warn};

use super::methods;
use crate::addresses::{Addresses, TaskAddress};
use crate::cluster_spec::{ClusterSpec, TaskName};
use crate::errors::received;
use crate::member::NOTICE_LIMIT;
use crate::network::completion::Completion;
use crate::network::failure_detector::{Action, FailureDetector, Limits};
use crate::network::own_messages::RunGraphResponseExtension;
use crate::network::stream::client::Streams;
use crate::network::transport::{Call, Done, RunGraphReport, Transport};
use crate::step::rendezvous::Sender;
use crate::task::{Task, TensorTransport};

/// Timeout of a probe on a connection of its own.
const PROBE_LIMIT: Duration = Duration::from_secs(12);

/// The async runtime on which a task's server runs. Calls to other tasks are made there, so that an answer
/// that leads to another call wakes no second thread.
#[derive(Clone, Default)]
pub(crate) struct ServerRuntime(Arc<OnceLock<Handle>>);

impl ServerRuntime {
    /// The server runs on `handle`; later servers of the same task are ignored.
    pub(crate) fn set(&self, handle: Handle) {
        let _ = self.0.set(handle);
    }

    /// The server's runtime, or the process's for calls while there is no server.
    fn handle(&self) -> Result<Handle> {
        match self.0.get() {
            Some(handle) => Ok(handle.clone()),
            None => Ok(runtime()?.handle().clone()),
        }
    }
}

/// Calls to the tasks of one cluster.
pub(crate) struct GrpcTransport {
    tasks: FxHashMap<TaskName, Arc<Peer>>,
    addresses: Arc<dyn Addresses>,
    /// Of `addresses`, when they were last read.
    generation: AtomicU64,
    limits: Limits,
}

/// One other task.
struct Peer {
    name: TaskName,
    control: Channel,
    /// Tensors have a connection of their own: a small message must not wait behind a large one.
    tensors: Channel,
    runtime: ServerRuntime,
    /// Calls in progress whose answer may take longer than [`NOTICE_LIMIT`].
    waiting: AtomicUsize,
    detector: Mutex<FailureDetector>,
    /// Whether it has answered a call since the last tick.
    is_heard: AtomicBool,
    /// The incarnation that it reported last; 0 if none.
    incarnation: AtomicU64,
    clock: Arc<dyn Clock>,
    /// The stream protocol, unless tensors come by gRPC too.
    streams: Option<Streams>,
    /// Ends the calls in progress when the task is considered lost.
    lost: Mutex<Cancellation>,
}

impl GrpcTransport {
    /// Connects to no task yet.
    pub(crate) fn new(
        cluster: &ClusterSpec,
        addresses: Arc<dyn Addresses>,
        task: &Task,
        runtime: &ServerRuntime,
    ) -> GrpcTransport {
        let clock = &task.options.environment.clock;
        let limits = Limits::with_loss(task.options.silence_limit);
        let way = task.options.tensor_transport;
        let peer = |(name, _): (&TaskName, &str)| {
            let channel = || {
                // A task that refuses a connection is not there; one that does not answer is silent.
                let policy = ConnectPolicy::Once(limits.loss);
                let resolver = TaskAddress { task: name.clone(), addresses: addresses.clone() };
                Channel::new(Arc::new(resolver), policy, task.incoming.clone())
            };
            let peer = Peer {
                name: name.clone(),
                control: channel(),
                tensors: channel(),
                runtime: runtime.clone(),
                waiting: AtomicUsize::new(0),
                detector: Mutex::default(),
                is_heard: AtomicBool::new(false),
                incarnation: AtomicU64::new(0),
                clock: clock.clone(),
                streams: (way == TensorTransport::Auto).then(Streams::default),
                lost: Mutex::default(),
            };
            (name.clone(), Arc::new(peer))
        };
        let tasks = cluster.tasks().map(peer).collect();
        let generation = AtomicU64::new(addresses.generation());
        GrpcTransport { tasks, addresses, generation, limits }
    }

    /// Reads the addresses again if they have changed.
    fn refresh_addresses(&self) {
        let generation = self.addresses.generation();
        if self.generation.swap(generation, Ordering::Relaxed) != generation {
            self.tasks.values().for_each(|peer| peer.refresh_address());
        }
    }

    /// Makes a call: `make` gets the task that is called and returns the call's future, which runs until
    /// it is answered, cancelled, or the task is lost.
    fn start<T, F>(&self, call: Call<'_>, done: Done<T>, make: impl FnOnce(Arc<Peer>) -> F)
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let begun = call.cancellation.check().and_then(|()| {
            let peer = self.tasks.get(call.to).cloned();
            let peer = peer.ok_or_else(|| err!(NotFound, "the cluster has no task {}", call.to))?;
            let runtime = peer.runtime.handle()?;
            Ok((peer, runtime))
        });
        let (peer, runtime) = match begun {
            Ok(begun) => begun,
            Err(e) => return done(Err(e)),
        };
        let lost = peer.lost.lock().clone();
        let waiting =
            call.timeout.is_none_or(|t| t > NOTICE_LIMIT).then(|| PendingCall::new(&peer));
        let completion = Completion::new(done);
        let of_task = CompleteOnDrop(completion.clone());
        let future = make(peer.clone());
        let task = runtime.spawn(async move {
            let result = future.await.map_err(|e| peer.named(received(e)));
            if result.is_ok() {
                peer.is_heard.store(true, Ordering::Relaxed);
            }
            drop(waiting);
            of_task.0.complete(result);
        });
        let ends = || {
            let (abort, completion) = (task.abort_handle(), completion.clone());
            move |cause: &Error| {
                // In this order: aborting drops the future, which answers too.
                completion.complete(Err(cause.clone()));
                abort.abort();
            }
        };
        completion.keep([call.cancellation.on_cancel(ends()), lost.on_cancel(ends())]);
    }

    /// Makes a call whose response is empty.
    fn start_empty(&self, call: Call<'_>, method: Method, request: &impl Message, done: Done<()>) {
        let mut pieces = Pieces::default();
        pieces.put_fields(request);
        let timeout = call.timeout;
        self.start(call, done, |peer| async move {
            peer.control.send(method, pieces, timeout).await.map(|_| ())
        });
    }
}

impl Transport for GrpcTransport {
    fn get_status(&self, call: Call<'_>, done: Done<pb::GetStatusResponse>) {
        let timeout = call.timeout;
        self.start(call, done, |peer| async move {
            let request = pb::GetStatusRequest {};
            let status = peer.control.call(methods::GET_STATUS, &request, timeout).await?;
            peer.note_incarnation(&status);
            Ok(status)
        });
    }

    fn create_worker_session(
        &self,
        call: Call<'_>,
        request: pb::CreateWorkerSessionRequest,
        done: Done<()>,
    ) {
        self.start_empty(call, methods::CREATE_WORKER_SESSION, &request, done);
    }

    fn delete_worker_session(
        &self,
        call: Call<'_>,
        request: pb::DeleteWorkerSessionRequest,
        done: Done<()>,
    ) {
        self.start_empty(call, methods::DELETE_WORKER_SESSION, &request, done);
    }

    fn register_graph(
        &self,
        call: Call<'_>,
        request: pb::RegisterGraphRequest,
        done: Done<pb::RegisterGraphResponse>,
    ) {
        let timeout = call.timeout;
        self.start(call, done, |peer| async move {
            peer.control.call(methods::REGISTER_GRAPH, &request, timeout).await
        });
    }

    fn deregister_graph(
        &self,
        call: Call<'_>,
        request: pb::DeregisterGraphRequest,
        done: Done<()>,
    ) {
        self.start_empty(call, methods::DEREGISTER_GRAPH, &request, done);
    }

    fn run_graph(&self, call: Call<'_>, request: pb::RunGraphRequest, done: Done<RunGraphReport>) {
        let timeout = call.timeout;
        self.start(call, done, |peer| async move { peer.run_graph(&request, timeout).await });
    }

    fn cleanup_graph(&self, call: Call<'_>, request: pb::CleanupGraphRequest, done: Done<()>) {
        self.start_empty(call, methods::CLEANUP_GRAPH, &request, done);
    }

    fn cleanup_all(&self, call: Call<'_>, request: pb::CleanupAllRequest, done: Done<()>) {
        self.start_empty(call, methods::CLEANUP_ALL, &request, done);
    }

    fn recv_tensor(&self, call: Call<'_>, request: pb::RecvTensorRequest, done: Done<Value>) {
        let timeout = call.timeout;
        self.start(call, done, |peer| async move { peer.recv_tensor(&request, timeout).await });
    }

    fn streams(&self) -> usize {
        let is_open = |peer: &&Arc<Peer>| peer.streams.as_ref().is_some_and(Streams::is_open);
        self.tasks.values().filter(is_open).count()
    }

    fn tick(&self, now: Duration) {
        self.refresh_addresses();
        for peer in self.tasks.values() {
            let is_in_use = peer.waiting.load(Ordering::Relaxed) > 0;
            if peer.is_heard.swap(false, Ordering::Relaxed) {
                peer.hear(now, &self.limits);
            }
            let actions = peer.detector.lock().tick(now, is_in_use, &self.limits);
            actions.into_iter().for_each(|action| peer.act(action, &self.limits));
        }
    }

    fn silent(&self, now: Duration) -> Vec<(TaskName, Duration)> {
        let of = |peer: &Arc<Peer>| Some((peer.name.clone(), peer.detector.lock().reported(now)?));
        let mut silent: Vec<_> = self.tasks.values().filter_map(of).collect();
        silent.sort();
        silent
    }
}

/// Answers a call whose future is dropped with its runtime, when the server ends.
struct CompleteOnDrop<T>(Completion<T>);

impl<T> Drop for CompleteOnDrop<T> {
    fn drop(&mut self) {
        self.0.complete(Err(err!(Unavailable, "this task ends")));
    }
}

/// Counts a call that may wait for a task, as long as it lives.
struct PendingCall(Arc<Peer>);

impl PendingCall {
    fn new(peer: &Arc<Peer>) -> PendingCall {
        peer.waiting.fetch_add(1, Ordering::Relaxed);
        PendingCall(peer.clone())
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Peer {
    fn act(self: &Arc<Self>, action: Action, limits: &Limits) {
        let name = &self.name;
        match action {
            Action::Probe => self.probe(None, *limits),
            Action::ProbeAnew => self.probe(Some(self.control.separate()), *limits),
            Action::ReportSilence(silent) => {
                let seconds = silent.as_secs_f32();
                warn!(
                    target: "thalweg::cluster",
                    task = %name,
                    silent_s = seconds,
                    "{name} has been silent for {seconds:.0} s; calls to it wait"
                );
            }
            Action::ReportRecovery(silent) => {
                let seconds = silent.as_secs_f32();
                info!(
                    target: "thalweg::cluster",
                    task = %name,
                    silent_s = seconds,
                    "{name} is back after {seconds:.0} s of silence"
                );
            }
            Action::DeclareLost(silent) => {
                let seconds = silent.as_secs_f32();
                self.lose(&format!("it has been silent for {seconds:.0} s"));
            }
        }
    }

    /// Resolves the task's address again, and ends the calls to its former address.
    fn refresh_address(&self) {
        // Both channels, whatever the first returns.
        let moved = [self.control.refresh_address(), self.tensors.refresh_address()];
        if let Some(address) = moved.into_iter().flatten().next() {
            self.lose(&format!("it has moved to {address}"));
        }
    }

    /// Ends the calls that wait for the task.
    fn lose(&self, why: &str) {
        let name = &self.name;
        warn!(target: "thalweg::cluster", task = %name, "{name} is lost: {why}; calls to it end");
        self.streams.iter().for_each(Streams::forget);
        let lost = std::mem::take(&mut *self.lost.lock());
        lost.cancel(err!(Unavailable, "{name} is lost: {why}"));
    }

    fn hear(self: &Arc<Self>, now: Duration, limits: &Limits) {
        let back = self.detector.lock().hear(now);
        if let Some(action) = back {
            self.act(action, limits);
        }
    }

    /// Sends `GetStatus`, on a new connection if one is given.
    fn probe(self: &Arc<Self>, anew: Option<Channel>, limits: Limits) {
        let Ok(runtime) = self.runtime.handle() else { return };
        let peer = self.clone();
        // The first probe waits as long as the calls do; those on new connections would pile up.
        let limit = if anew.is_some() { limits.loss.min(PROBE_LIMIT) } else { limits.loss };
        runtime.spawn(async move {
            let request = pb::GetStatusRequest {};
            let channel = anew.as_ref().unwrap_or(&peer.control);
            let answer: Result<pb::GetStatusResponse> =
                channel.call(methods::GET_STATUS, &request, Some(limit)).await;
            let Ok(status) = answer else { return };
            peer.note_incarnation(&status);
            peer.hear(peer.clock.monotonic(), &limits);
            if anew.is_some() {
                // The old connections may be stuck until TCP retransmits, which can take a minute.
                peer.control.reconnect().await;
                peer.tensors.reconnect().await;
                peer.streams.iter().for_each(Streams::forget);
            }
        });
    }

    /// A restarted task cannot answer calls to its former incarnation. Their connections may stay open: a
    /// machine that lost its power sends no reset.
    fn note_incarnation(&self, status: &pb::GetStatusResponse) {
        let Some(device) = status.device_attributes.first() else { return };
        let before = self.incarnation.swap(device.incarnation, Ordering::Relaxed);
        if before != 0 && before != device.incarnation {
            self.lose("it was started anew");
        }
    }

    /// Names the task in errors that mean that it is lost.
    fn named(&self, error: Error) -> Error {
        let is_silent = error.code() == Code::DeadlineExceeded;
        if error.code() != Code::Unavailable && !is_silent {
            return error;
        }
        error.with_code(Code::Unavailable).map_message(|m| format!("{} is lost: {m}", self.name))
    }

    async fn run_graph(
        &self,
        request: &pb::RunGraphRequest,
        timeout: Option<Duration>,
    ) -> Result<RunGraphReport> {
        let mut pieces = Pieces::default();
        pieces.put_fields(request);
        let rope = self.control.send(methods::RUN_GRAPH, pieces, timeout).await?;
        let extension: RunGraphResponseExtension = decode_response(rope.clone())?;
        let response: pb::RunGraphResponse = decode_response(rope)?;
        let partition = extension.partition.unwrap_or_default();
        check_status(response.status_code.into(), || response.status_error_message).map_err(
            |e| match partition.error {
                Some(origin) => e.with_shown_origin(origin.into()),
                None => e,
            },
        )?;
        Ok(RunGraphReport {
            metadata: RunMetadata::from_proto(pb::RunMetadata {
                step_stats: response.step_stats,
                cost_graph: response.cost_graph.filter(|c| !c.node.is_empty()),
                partition_graphs: response.partition_graph,
                ..Default::default()
            }),
            is_forgotten: partition.is_forgotten,
        })
    }

    async fn recv_tensor(
        &self,
        request: &pb::RecvTensorRequest,
        limit: Option<Duration>,
    ) -> Result<Value> {
        if let Some(streams) = &self.streams {
            let incarnation = Sender::of(&request.rendezvous_key)?.incarnation;
            if let Some(stream) = streams.find(&self.name, &self.control, incarnation).await? {
                let receive = stream.receive(request);
                return match limit {
                    None => receive.await,
                    Some(limit) => tokio::time::timeout(limit, receive)
                        .await
                        .unwrap_or_else(|_| Err(err!(DeadlineExceeded, "Deadline Exceeded"))),
                };
            }
        }
        self.tensor_of(self.tensors.call(methods::RECV_TENSOR, request, limit).await?)
    }

    fn tensor_of(&self, response: pb::RecvTensorResponse) -> Result<Value> {
        if response.is_dead {
            return Ok(Value::Dead);
        }
        let proto =
            response.tensor.ok_or_else(|| err!(DataLoss, "{} sent no tensor", self.name))?;
        Ok(Value::Tensor(Tensor::from_received_proto(proto, self.tensors.incoming())?))
    }
}
