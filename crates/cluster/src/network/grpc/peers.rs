//! Other tasks by gRPC: a few connections to each, made when they are needed.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use prost::Message;
use rustc_hash::FxHashMap;
use thalweg_kernel::{Cancellation, Clock, Registration, Value};
use thalweg_proto as pb;
use thalweg_rpc::{Channel, ConnectPolicy, Method, Pieces, check_status, runtime};
use thalweg_tensor::{Code, Error, Result, Tensor, err};
use tokio::runtime::Handle;
use tracing::{info, warn};

use super::methods;
use crate::addresses::{Addresses, TaskAddress};
use crate::cluster_spec::{ClusterSpec, TaskName};
use crate::member::NOTICE_LIMIT;
use crate::network::silence::{Action, Limits, Silence};
use crate::network::stream::client::Streams;
use crate::network::transport::{Answered, Call, Reply, Transport};
use crate::step::rendezvous::Sender;
use crate::task::{Task, TensorTransport};

/// How long a question on a connection of its own waits for its answer.
const ANEW_LIMIT: Duration = Duration::from_secs(12);

/// The other tasks of a cluster.
pub(crate) struct Peers {
    tasks: FxHashMap<TaskName, Arc<Peer>>,
    addresses: Arc<dyn Addresses>,
    /// Of the addresses, when they were last looked at.
    generation: AtomicU64,
    /// Where the task's server runs, once it does.
    home: Arc<OnceLock<Handle>>,
    limits: Limits,
}

struct Peer {
    name: TaskName,
    control: Channel,
    /// Tensors have a connection of their own: a small word must not wait behind a large one.
    tensors: Channel,
    home: Arc<OnceLock<Handle>>,
    /// Calls on their way that may take as long as they like.
    waiting: AtomicUsize,
    silence: Mutex<Silence>,
    /// Whether it has answered anything since it was last looked after.
    is_heard: AtomicBool,
    /// Which of its starts was seen last; 0 if none was.
    incarnation: AtomicU64,
    clock: Arc<dyn Clock>,
    /// The fast stream, unless all goes by gRPC.
    streams: Option<Streams>,
    /// Ends the calls on their way when the task is taken for lost.
    lost: Mutex<Cancellation>,
}

impl Peers {
    /// Connects to nobody yet.
    pub(crate) fn new(cluster: &ClusterSpec, addresses: Arc<dyn Addresses>, task: &Task) -> Peers {
        let clock = &task.options.environment.clock;
        let limits = Limits::with_loss(task.options.silence_limit);
        let way = task.options.tensor_transport;
        let home: Arc<OnceLock<Handle>> = Arc::default();
        let peer = |(name, _): (&TaskName, &str)| {
            let channel = || {
                // One that refuses is not there; one that says nothing is silent.
                let policy = ConnectPolicy::Once(limits.loss);
                let resolver = TaskAddress { task: name.clone(), addresses: addresses.clone() };
                Channel::new(Arc::new(resolver), policy, task.incoming.clone())
            };
            let peer = Peer {
                name: name.clone(),
                control: channel(),
                tensors: channel(),
                home: home.clone(),
                waiting: AtomicUsize::new(0),
                silence: Mutex::default(),
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
        Peers { tasks, addresses, generation, home, limits }
    }

    /// Looks whether tasks are elsewhere now.
    fn follow(&self) {
        let generation = self.addresses.generation();
        if self.generation.swap(generation, Ordering::Relaxed) != generation {
            self.tasks.values().for_each(|peer| peer.follow());
        }
    }
}

impl Transport for Peers {
    fn call(
        &self,
        to: &TaskName,
        call: Call,
        limit: Option<Duration>,
        cancellation: &Cancellation,
        answered: Answered,
    ) {
        let begun = cancellation.check().and_then(|()| {
            let peer = self.tasks.get(to).cloned();
            let peer = peer.ok_or_else(|| err!(NotFound, "the cluster has no task {to}"))?;
            let runtime = peer.runtime()?;
            Ok((peer, runtime))
        });
        let (peer, runtime) = match begun {
            Ok(begun) => begun,
            Err(e) => return answered(Err(e)),
        };
        let lost = peer.lost.lock().clone();
        let waits = limit.is_none_or(|l| l > NOTICE_LIMIT).then(|| Waiting::new(&peer));
        let once = Arc::new(Once::new(answered));
        let of_task = AnswerOnDrop(once.clone());
        let task = runtime.spawn(async move {
            let result = peer.call(call, limit).await.map_err(|e| peer.named(e));
            if result.is_ok() {
                peer.is_heard.store(true, Ordering::Relaxed);
            }
            drop(waits);
            of_task.0.answer(result);
        });
        let ends = || {
            let (abort, once) = (task.abort_handle(), once.clone());
            move |cause: &Error| {
                // In this order: a call that is dropped has an answer of its own.
                once.answer(Err(cause.clone()));
                abort.abort();
            }
        };
        once.keep([cancellation.on_cancel(ends()), lost.on_cancel(ends())]);
    }

    fn streams(&self) -> usize {
        let is_open = |peer: &&Arc<Peer>| peer.streams.as_ref().is_some_and(Streams::is_open);
        self.tasks.values().filter(is_open).count()
    }

    fn live_on(&self, runtime: Handle) {
        // A task is served once.
        let _ = self.home.set(runtime);
    }

    fn tick(&self, now: Duration) {
        self.follow();
        for peer in self.tasks.values() {
            let is_in_use = peer.waiting.load(Ordering::Relaxed) > 0;
            if peer.is_heard.swap(false, Ordering::Relaxed) {
                peer.hear(now, &self.limits);
            }
            let actions = peer.silence.lock().tick(now, is_in_use, &self.limits);
            actions.into_iter().for_each(|action| peer.act(action, &self.limits));
        }
    }

    fn silent(&self, now: Duration) -> Vec<(TaskName, Duration)> {
        let of = |peer: &Arc<Peer>| Some((peer.name.clone(), peer.silence.lock().reported(now)?));
        let mut silent: Vec<_> = self.tasks.values().filter_map(of).collect();
        silent.sort();
        silent
    }
}

/// Answers a call whose runtime ends, with its server.
struct AnswerOnDrop(Arc<Once>);

impl Drop for AnswerOnDrop {
    fn drop(&mut self) {
        self.0.answer(Err(err!(Unavailable, "this task ends")));
    }
}

/// One of the calls that may wait for a task.
struct Waiting(Arc<Peer>);

impl Waiting {
    fn new(peer: &Arc<Peer>) -> Waiting {
        peer.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(peer.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An answer that is given once, by whoever is first.
struct Once(Mutex<(Option<Answered>, Option<[Registration; 2]>)>);

impl Once {
    fn new(answered: Answered) -> Once {
        Once(Mutex::new((Some(answered), None)))
    }

    /// Keeps what may end the call until it is answered.
    fn keep(&self, registrations: [Registration; 2]) {
        let mut state = self.0.lock();
        if state.0.is_some() {
            state.1 = Some(registrations);
        }
    }

    fn answer(&self, result: Result<Reply>) {
        let (answered, registrations) = std::mem::take(&mut *self.0.lock());
        drop(registrations);
        if let Some(answered) = answered {
            answered(result);
        }
    }
}

impl Peer {
    /// Where calls to it are made.
    fn runtime(&self) -> Result<Handle> {
        match self.home.get() {
            Some(home) => Ok(home.clone()),
            None => Ok(runtime()?.handle().clone()),
        }
    }

    fn act(self: &Arc<Self>, action: Action, limits: &Limits) {
        let name = &self.name;
        match action {
            Action::Ask => self.ask(None, *limits),
            Action::AskAnew => self.ask(Some(self.control.separate()), *limits),
            Action::Report(silent) => {
                let seconds = silent.as_secs_f32();
                warn!(
                    target: "thalweg::cluster",
                    task = %name,
                    silent_s = seconds,
                    "{name} has been silent for {seconds:.0} s; calls to it wait"
                );
            }
            Action::ReportBack(silent) => {
                let seconds = silent.as_secs_f32();
                info!(
                    target: "thalweg::cluster",
                    task = %name,
                    silent_s = seconds,
                    "{name} is back after {seconds:.0} s of silence"
                );
            }
            Action::Lose(silent) => {
                let seconds = silent.as_secs_f32();
                self.lose(&format!("it has been silent for {seconds:.0} s"));
            }
        }
    }

    /// Ends calls to where the task is no longer.
    fn follow(&self) {
        // Both, whatever the first says.
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
        let back = self.silence.lock().hear(now);
        if let Some(action) = back {
            self.act(action, limits);
        }
    }

    /// Asks whether the task is there, on a connection that was made for it or on the usual one.
    fn ask(self: &Arc<Self>, anew: Option<Channel>, limits: Limits) {
        let Ok(runtime) = self.runtime() else { return };
        let peer = self.clone();
        // The first question stays; those on connections of their own would pile up over a long limit.
        let limit = if anew.is_some() { limits.loss.min(ANEW_LIMIT) } else { limits.loss };
        runtime.spawn(async move {
            let request = pb::GetStatusRequest {};
            let channel = anew.as_ref().unwrap_or(&peer.control);
            let answer: Result<pb::GetStatusResponse> =
                channel.call(methods::GET_STATUS, &request, Some(limit)).await;
            let Ok(status) = answer else { return };
            peer.note_start(&status);
            peer.hear(peer.clock.monotonic(), &limits);
            if anew.is_some() {
                // The usual way may be stuck until TCP tries again, which can take a minute.
                peer.control.reconnect().await;
                peer.tensors.reconnect().await;
                peer.streams.iter().for_each(Streams::forget);
            }
        });
    }

    /// A task that was started anew has nothing for those who wait for what it was before. Their
    /// connections may not tell them: a machine that was cut off and lost its power says nothing.
    fn note_start(&self, status: &pb::GetStatusResponse) {
        let Some(device) = status.device_attributes.first() else { return };
        let before = self.incarnation.swap(device.incarnation, Ordering::Relaxed);
        if before != 0 && before != device.incarnation {
            self.lose("it was started anew");
        }
    }

    /// An error with the task's name: who was lost is what matters most.
    fn named(&self, error: Error) -> Error {
        let is_silent = error.code() == Code::DeadlineExceeded;
        if error.code() != Code::Unavailable && !is_silent {
            return error;
        }
        Error::new(Code::Unavailable, format!("{} is lost: {}", self.name, error.message()))
    }

    async fn call(&self, call: Call, limit: Option<Duration>) -> Result<Reply> {
        let control = &self.control;
        Ok(match call {
            Call::GetStatus => {
                let request = pb::GetStatusRequest {};
                let status = control.call(methods::GET_STATUS, &request, limit).await?;
                self.note_start(&status);
                Reply::Status(status)
            }
            Call::CreateWorkerSession(r) => {
                done(control, methods::CREATE_WORKER_SESSION, &*r, limit).await?
            }
            Call::DeleteWorkerSession(r) => {
                done(control, methods::DELETE_WORKER_SESSION, &r, limit).await?
            }
            Call::RegisterGraph(request) => {
                Reply::Registered(control.call(methods::REGISTER_GRAPH, &*request, limit).await?)
            }
            Call::DeregisterGraph(r) => done(control, methods::DEREGISTER_GRAPH, &r, limit).await?,
            Call::RunGraph(request) => {
                let response: pb::RunGraphResponse =
                    control.call(methods::RUN_GRAPH, &*request, limit).await?;
                check_status(response.status_code.into(), || {
                    response.status_error_message.clone()
                })?;
                Reply::Ran(Box::new(response))
            }
            Call::CleanupGraph(r) => done(control, methods::CLEANUP_GRAPH, &r, limit).await?,
            Call::CleanupAll(r) => done(control, methods::CLEANUP_ALL, &r, limit).await?,
            Call::RecvTensor(request) => Reply::Received(self.recv_tensor(&request, limit).await?),
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
        self.received(self.tensors.call(methods::RECV_TENSOR, request, limit).await?)
    }

    fn received(&self, response: pb::RecvTensorResponse) -> Result<Value> {
        if response.is_dead {
            return Ok(Value::Dead);
        }
        let proto =
            response.tensor.ok_or_else(|| err!(DataLoss, "{} sent no tensor", self.name))?;
        Ok(Value::Tensor(Tensor::from_received_proto(proto, self.tensors.incoming())?))
    }
}

/// A call whose answer says nothing.
async fn done(
    channel: &Channel,
    method: Method,
    request: &impl Message,
    limit: Option<Duration>,
) -> Result<Reply> {
    let mut pieces = Pieces::default();
    pieces.put_fields(request);
    channel.send(method, pieces, limit).await?;
    Ok(Reply::Done)
}
