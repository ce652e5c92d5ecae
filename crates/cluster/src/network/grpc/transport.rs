//! Calls to other tasks by gRPC, and by the stream protocol for tensors of tasks of ours. Connections are made on
//! demand, and tasks that do not answer are probed.

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
use crate::member::NOTIFY_TIMEOUT;
use crate::network::completion::Completion;
use crate::network::failure_detector::{Action, FailureDetector, SilenceLimits};
use crate::network::own_messages::RunGraphResponseExtension;
use crate::network::stream::client::Streams;
use crate::network::trace_messages::{ClockRequest, ClockResponse};
use crate::network::transport::{Call, Done, RunGraphReport, Transport};
use crate::step::rendezvous::ParsedKey;
use crate::task::{Task, TensorTransport};

/// Timeout of a probe on a connection of its own.
const RECONNECT_PROBE_TIMEOUT: Duration = Duration::from_secs(12);

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
    tasks: FxHashMap<TaskName, Arc<RemoteWorker>>,
    addresses: Arc<dyn Addresses>,
    /// `addresses.generation()` at the last tick.
    generation: AtomicU64,
    limits: SilenceLimits,
}

/// The worker of one other task: its channels and its failure detector.
struct RemoteWorker {
    name: TaskName,
    control: Channel,
    /// Tensors have a connection of their own: a small message must not wait behind a large one.
    tensors: Channel,
    runtime: ServerRuntime,
    /// Calls in progress whose answer may take longer than [`NOTIFY_TIMEOUT`].
    pending_calls: AtomicUsize,
    detector: Mutex<FailureDetector>,
    /// Whether the task has answered a call since the last tick.
    has_answered: AtomicBool,
    /// The task's last known incarnation; 0 if none.
    incarnation: AtomicU64,
    clock: Arc<dyn Clock>,
    /// The stream protocol's connection; none if tensors are received by gRPC.
    streams: Option<Streams>,
    /// Cancels the calls in progress when the task is declared lost.
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
        let limits = SilenceLimits::with_loss(task.options.heartbeat_timeout);
        let tensor_transport = task.options.tensor_transport;
        let worker = |(name, _): (&TaskName, &str)| {
            let channel = || {
                // A refused connection fails at once; silence is left to the failure detector.
                let policy = ConnectPolicy::Once(limits.lost_after);
                let resolver = TaskAddress { task: name.clone(), addresses: addresses.clone() };
                Channel::new(Arc::new(resolver), policy, task.incoming.clone())
            };
            let worker = RemoteWorker {
                name: name.clone(),
                control: channel(),
                tensors: channel(),
                runtime: runtime.clone(),
                pending_calls: AtomicUsize::new(0),
                detector: Mutex::default(),
                has_answered: AtomicBool::new(false),
                incarnation: AtomicU64::new(0),
                clock: clock.clone(),
                streams: (tensor_transport == TensorTransport::Auto).then(Streams::default),
                lost: Mutex::default(),
            };
            (name.clone(), Arc::new(worker))
        };
        let tasks = cluster.tasks().map(worker).collect();
        let generation = AtomicU64::new(addresses.generation());
        GrpcTransport { tasks, addresses, generation, limits }
    }

    /// Reads the addresses again if they have changed.
    fn refresh_addresses(&self) {
        let generation = self.addresses.generation();
        if self.generation.swap(generation, Ordering::Relaxed) != generation {
            self.tasks.values().for_each(|worker| worker.refresh_address());
        }
    }

    /// Makes a call: `start_call` gets the task that is called and returns the call's future, which runs until
    /// it is answered, cancelled, or the task is lost.
    fn start<T, F>(
        &self,
        call: Call<'_>,
        done: Done<T>,
        start_call: impl FnOnce(Arc<RemoteWorker>) -> F,
    ) where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let found = call.cancellation.check().and_then(|()| {
            let worker = self.tasks.get(call.to).cloned();
            let worker =
                worker.ok_or_else(|| err!(NotFound, "the cluster has no task {}", call.to))?;
            let runtime = worker.runtime.handle()?;
            Ok((worker, runtime))
        });
        let (worker, runtime) = match found {
            Ok(found) => found,
            Err(e) => return done(Err(e)),
        };
        let lost = worker.lost.lock().clone();
        let pending =
            call.timeout.is_none_or(|t| t > NOTIFY_TIMEOUT).then(|| PendingCall::new(&worker));
        let completion = Completion::new(done);
        let complete_on_drop = CompleteOnDrop(completion.clone());
        let future = start_call(worker.clone());
        let task = runtime.spawn(async move {
            let result = future.await.map_err(|e| worker.with_task_name(received(e)));
            if result.is_ok() {
                worker.has_answered.store(true, Ordering::Relaxed);
            }
            drop(pending);
            complete_on_drop.0.complete(result);
        });
        let on_end = || {
            let (abort, completion) = (task.abort_handle(), completion.clone());
            move |cause: &Error| {
                // In this order: aborting drops the future, which answers too.
                completion.complete(Err(cause.clone()));
                abort.abort();
            }
        };
        completion.keep([call.cancellation.on_cancel(on_end()), lost.on_cancel(on_end())]);
    }

    /// Makes a call whose response is empty.
    fn start_empty(&self, call: Call<'_>, method: Method, request: &impl Message, done: Done<()>) {
        let mut pieces = Pieces::default();
        pieces.put_fields(request);
        let timeout = call.timeout;
        self.start(call, done, |worker| async move {
            worker.control.send(method, pieces, timeout).await.map(|_| ())
        });
    }
}

impl Transport for GrpcTransport {
    fn get_status(&self, call: Call<'_>, done: Done<pb::GetStatusResponse>) {
        let timeout = call.timeout;
        self.start(call, done, |worker| async move {
            let request = pb::GetStatusRequest {};
            let status = worker.control.call(methods::GET_STATUS, &request, timeout).await?;
            worker.note_incarnation(&status);
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
        self.start(call, done, |worker| async move {
            worker.control.call(methods::REGISTER_GRAPH, &request, timeout).await
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
        self.start(call, done, |worker| async move { worker.run_graph(&request, timeout).await });
    }

    fn cleanup_graph(&self, call: Call<'_>, request: pb::CleanupGraphRequest, done: Done<()>) {
        self.start_empty(call, methods::CLEANUP_GRAPH, &request, done);
    }

    fn cleanup_all(&self, call: Call<'_>, request: pb::CleanupAllRequest, done: Done<()>) {
        self.start_empty(call, methods::CLEANUP_ALL, &request, done);
    }

    fn recv_tensor(&self, call: Call<'_>, request: pb::RecvTensorRequest, done: Done<Value>) {
        let timeout = call.timeout;
        self.start(call, done, |worker| async move { worker.recv_tensor(&request, timeout).await });
    }

    fn clock(&self, call: Call<'_>, request: ClockRequest, done: Done<ClockResponse>) {
        let timeout = call.timeout;
        self.start(call, done, |worker| async move {
            worker.control.call(methods::CLOCK, &request, timeout).await
        });
    }

    fn streams(&self) -> usize {
        let is_open =
            |worker: &&Arc<RemoteWorker>| worker.streams.as_ref().is_some_and(Streams::is_open);
        self.tasks.values().filter(is_open).count()
    }

    fn tick(&self, now: Duration) {
        self.refresh_addresses();
        for worker in self.tasks.values() {
            let is_in_use = worker.pending_calls.load(Ordering::Relaxed) > 0;
            if worker.has_answered.swap(false, Ordering::Relaxed) {
                worker.answered(now, &self.limits);
            }
            let actions = worker.detector.lock().tick(now, is_in_use, &self.limits);
            actions.into_iter().for_each(|action| worker.perform(action, &self.limits));
        }
    }

    fn silent(&self, now: Duration) -> Vec<(TaskName, Duration)> {
        let of = |worker: &Arc<RemoteWorker>| {
            Some((worker.name.clone(), worker.detector.lock().reported(now)?))
        };
        let mut silent: Vec<_> = self.tasks.values().filter_map(of).collect();
        silent.sort();
        silent
    }
}

/// Completes a call whose future is dropped with its runtime, when the server shuts down.
struct CompleteOnDrop<T>(Completion<T>);

impl<T> Drop for CompleteOnDrop<T> {
    fn drop(&mut self) {
        self.0.complete(Err(err!(Unavailable, "this task shuts down")));
    }
}

/// Counts a call that may wait for a task, as long as it lives.
struct PendingCall(Arc<RemoteWorker>);

impl PendingCall {
    fn new(worker: &Arc<RemoteWorker>) -> PendingCall {
        worker.pending_calls.fetch_add(1, Ordering::Relaxed);
        PendingCall(worker.clone())
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        self.0.pending_calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RemoteWorker {
    fn perform(self: &Arc<Self>, action: Action, limits: &SilenceLimits) {
        let name = &self.name;
        match action {
            Action::Probe => self.probe(None, *limits),
            Action::ProbeOnNewConnection => self.probe(Some(self.control.separate()), *limits),
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
                    "{name} has answered after {seconds:.0} s of silence"
                );
            }
            Action::DeclareLost(silent) => {
                let seconds = silent.as_secs_f32();
                self.declare_lost(&format!("it has been silent for {seconds:.0} s"));
            }
        }
    }

    /// Resolves the task's address again, and cancels the calls to its former address.
    fn refresh_address(&self) {
        // Both channels, independent of the first result.
        let moved = [self.control.refresh_address(), self.tensors.refresh_address()];
        if let Some(address) = moved.into_iter().flatten().next() {
            self.declare_lost(&format!("it has moved to {address}"));
        }
    }

    /// Cancels the calls in progress.
    fn declare_lost(&self, why: &str) {
        let name = &self.name;
        warn!(target: "thalweg::cluster", task = %name, "{name} is lost: {why}; calls to it end");
        self.streams.iter().for_each(Streams::disconnect);
        let lost = std::mem::take(&mut *self.lost.lock());
        lost.cancel(err!(Unavailable, "{name} is lost: {why}"));
    }

    fn answered(self: &Arc<Self>, now: Duration, limits: &SilenceLimits) {
        let back = self.detector.lock().answered(now);
        if let Some(action) = back {
            self.perform(action, limits);
        }
    }

    /// Sends `GetStatus`, on a new connection if one is given.
    fn probe(self: &Arc<Self>, new_channel: Option<Channel>, limits: SilenceLimits) {
        let Ok(runtime) = self.runtime.handle() else { return };
        let worker = self.clone();
        // The first probe waits as long as the calls do; those on new connections would pile up.
        let limit = if new_channel.is_some() {
            limits.lost_after.min(RECONNECT_PROBE_TIMEOUT)
        } else {
            limits.lost_after
        };
        runtime.spawn(async move {
            let request = pb::GetStatusRequest {};
            let channel = new_channel.as_ref().unwrap_or(&worker.control);
            let answer: Result<pb::GetStatusResponse> =
                channel.call(methods::GET_STATUS, &request, Some(limit)).await;
            let Ok(status) = answer else { return };
            worker.note_incarnation(&status);
            worker.answered(worker.clock.monotonic(), &limits);
            if new_channel.is_some() {
                // The old connections may be stuck until TCP retransmits, which can take a minute.
                worker.control.reconnect().await;
                worker.tensors.reconnect().await;
                worker.streams.iter().for_each(Streams::disconnect);
            }
        });
    }

    /// A restarted task cannot answer calls to its former incarnation. Their connections may stay open: a
    /// machine that lost its power sends no reset.
    fn note_incarnation(&self, status: &pb::GetStatusResponse) {
        let Some(device) = status.device_attributes.first() else { return };
        let before = self.incarnation.swap(device.incarnation, Ordering::Relaxed);
        if before != 0 && before != device.incarnation {
            self.declare_lost("it was restarted");
        }
    }

    /// Names the task in errors that mean that it is lost.
    fn with_task_name(&self, error: Error) -> Error {
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
        let metadata = pb::RunMetadata {
            step_stats: response.step_stats,
            cost_graph: response.cost_graph.filter(|c| !c.node.is_empty()),
            partition_graphs: response.partition_graph,
            ..Default::default()
        };
        let mut metadata = RunMetadata::from_proto(metadata);
        if partition.began_ns != 0 {
            let begun = RunMetadata { started_ns: partition.began_ns, ..Default::default() };
            let report = std::mem::replace(&mut metadata, begun);
            metadata.absorb(report);
        }
        Ok(RunGraphReport {
            metadata,
            is_cleaned_up: partition.is_cleaned_up,
            ended_ns: partition.ended_ns,
        })
    }

    async fn recv_tensor(
        &self,
        request: &pb::RecvTensorRequest,
        limit: Option<Duration>,
    ) -> Result<Value> {
        if let Some(streams) = &self.streams {
            let incarnation = ParsedKey::parse(&request.rendezvous_key)?.src_incarnation;
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
        self.decode_tensor(self.tensors.call(methods::RECV_TENSOR, request, limit).await?)
    }

    fn decode_tensor(&self, response: pb::RecvTensorResponse) -> Result<Value> {
        if response.is_dead {
            return Ok(Value::Dead);
        }
        let proto = response
            .tensor
            .ok_or_else(|| err!(DataLoss, "{} answered RecvTensor without a tensor", self.name))?;
        Ok(Value::Tensor(Tensor::from_received_proto(proto, self.tensors.incoming())?))
    }
}
