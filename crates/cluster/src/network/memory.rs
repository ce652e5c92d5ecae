//! A transport within one process, for tests and simulations: tasks call each other's workers directly.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::RwLock;
use thalweg_kernel::{Cancellation, DeviceDescription, DeviceName, Value};
use thalweg_proto as pb;
use thalweg_runtime::Pool;
use thalweg_tensor::{Error, Result, err};

use crate::cluster_spec::{ClusterSpec, TaskName};
use crate::member::Member;
use crate::network::completion::Completion;
use crate::network::trace_messages::{ClockRequest, ClockResponse};
use crate::network::transport::{Call, Done, RunGraphReport, Transport};
use crate::task::{Task, attributes};
use crate::worker::Worker;

/// The tasks of a cluster in this process. A task that has not joined, or has crashed, cannot be
/// reached.
#[derive(Default)]
pub struct MemoryNetwork {
    tasks: RwLock<BTreeMap<TaskName, Arc<Node>>>,
    idle: RwLock<BTreeSet<TaskName>>,
}

/// A task on the network.
struct Node {
    worker: Arc<Worker>,
    /// Cancelled when the task crashes.
    crashed: Cancellation,
}

impl MemoryNetwork {
    /// A network without tasks.
    pub fn new() -> Arc<MemoryNetwork> {
        Arc::new(MemoryNetwork::default())
    }

    /// Adds a task, or restarts it.
    pub fn join(self: &Arc<Self>, task: Arc<Task>, cluster: ClusterSpec) -> Arc<Member> {
        let member = Member::with_transport(task, cluster, Some(self.clone()));
        let worker = Arc::new(Worker::new(member.clone()));
        let node = Node { worker, crashed: Cancellation::default() };
        self.tasks.write().insert(member.name.clone(), Arc::new(node));
        member
    }

    /// Adds a task that answers every call at once and does nothing: the cost of a step is then that of
    /// its master.
    pub fn join_idle(&self, task: TaskName) {
        self.idle.write().insert(task);
    }

    /// Removes a task; calls to it end with `Unavailable` at once.
    pub fn crash(&self, task: &TaskName) {
        let gone = self.tasks.write().remove(task);
        if let Some(node) = gone {
            node.crashed.cancel(lost(task));
        }
    }
}

fn lost(task: &TaskName) -> Error {
    err!(Unavailable, "{task} is lost: it has crashed")
}

impl MemoryNetwork {
    /// The task that a call reaches; `None` if it is an idle one.
    fn find(&self, call: Call<'_>) -> Result<Option<Arc<Node>>> {
        if self.idle.read().contains(call.to) {
            return Ok(None);
        }
        call.cancellation.check()?;
        self.tasks.read().get(call.to).cloned().map(Some).ok_or_else(|| lost(call.to))
    }

    /// Runs `body` on the pool with the called worker; an idle task answers `idle`. The caller and a crash of
    /// the task cancel the cancellation that `body` gets.
    fn start<T: Send + 'static>(
        &self,
        call: Call<'_>,
        done: Done<T>,
        idle: impl FnOnce() -> T,
        body: impl FnOnce(&Arc<Worker>, &Cancellation, Completion<T>) + Send + 'static,
    ) {
        let node = match self.find(call) {
            Ok(Some(node)) => node,
            Ok(None) => return done(Ok(idle())),
            Err(e) => return done(Err(e)),
        };
        let completion = Completion::new(done);
        let own = Cancellation::default();
        let on_end = || {
            let (own, completion) = (own.clone(), completion.clone());
            move |cause: &Error| {
                own.cancel(cause.clone());
                completion.complete(Err(cause.clone()));
            }
        };
        completion.keep([call.cancellation.on_cancel(on_end()), node.crashed.on_cancel(on_end())]);
        Pool::global().spawn(move || body(&node.worker, &own, completion));
    }

    /// As `start`, for calls that the worker answers synchronously.
    fn answer<T: Send + 'static>(
        &self,
        call: Call<'_>,
        done: Done<T>,
        idle: impl FnOnce() -> T,
        body: impl FnOnce(&Worker) -> Result<T> + Send + 'static,
    ) {
        self.start(call, done, idle, move |worker, _, completion| {
            completion.complete(body(worker));
        });
    }
}

impl Transport for MemoryNetwork {
    fn get_status(&self, call: Call<'_>, done: Done<pb::GetStatusResponse>) {
        let idle = || {
            let device = DeviceDescription {
                incarnation: 1,
                ..DeviceDescription::cpu(DeviceName::cpu(&call.to.job, call.to.index, 0), 1 << 30)
            };
            pb::GetStatusResponse { device_attributes: vec![attributes(&device)] }
        };
        self.answer(call, done, idle, |worker| Ok(worker.get_status()));
    }

    fn create_worker_session(
        &self,
        call: Call<'_>,
        request: pb::CreateWorkerSessionRequest,
        done: Done<()>,
    ) {
        self.answer(call, done, || (), move |worker| worker.create_session(&request).map(|_| ()));
    }

    fn delete_worker_session(
        &self,
        call: Call<'_>,
        request: pb::DeleteWorkerSessionRequest,
        done: Done<()>,
    ) {
        self.answer(
            call,
            done,
            || (),
            move |worker| {
                worker.delete_session(&request);
                Ok(())
            },
        );
    }

    fn register_graph(
        &self,
        call: Call<'_>,
        request: pb::RegisterGraphRequest,
        done: Done<pb::RegisterGraphResponse>,
    ) {
        let idle = || pb::RegisterGraphResponse { graph_handle: "idle".into() };
        self.answer(call, done, idle, move |worker| worker.register_graph(request));
    }

    fn deregister_graph(
        &self,
        call: Call<'_>,
        request: pb::DeregisterGraphRequest,
        done: Done<()>,
    ) {
        self.answer(call, done, || (), move |worker| worker.deregister_graph(&request).map(|_| ()));
    }

    fn run_graph(&self, call: Call<'_>, request: pb::RunGraphRequest, done: Done<RunGraphReport>) {
        let idle = || RunGraphReport { is_cleaned_up: true, ..Default::default() };
        self.start(call, done, idle, move |worker, cancellation, completion| {
            worker.run_graph(&request, Vec::new(), None, cancellation, move |result| {
                completion.complete(result.map(|ran| RunGraphReport {
                    metadata: ran.metadata,
                    is_cleaned_up: ran.is_cleaned_up,
                    ended_ns: ran.ended_ns,
                }));
            });
        });
    }

    fn cleanup_graph(&self, call: Call<'_>, request: pb::CleanupGraphRequest, done: Done<()>) {
        self.answer(
            call,
            done,
            || (),
            move |worker| {
                worker.cleanup_graph(&request);
                Ok(())
            },
        );
    }

    fn cleanup_all(&self, call: Call<'_>, request: pb::CleanupAllRequest, done: Done<()>) {
        self.answer(
            call,
            done,
            || (),
            move |worker| {
                worker.cleanup_all(&request);
                Ok(())
            },
        );
    }

    fn clock(&self, call: Call<'_>, request: ClockRequest, done: Done<ClockResponse>) {
        self.answer(call, done, ClockResponse::default, move |worker| Ok(worker.clock(&request)));
    }

    fn recv_tensor(&self, call: Call<'_>, request: pb::RecvTensorRequest, done: Done<Value>) {
        self.start(
            call,
            done,
            || Value::Dead,
            move |worker, cancellation, completion| {
                let tensor_request = match worker.tensor_request(&request) {
                    Ok(tensor_request) => tensor_request,
                    Err(e) => return completion.complete(Err(e)),
                };
                let received = completion.clone();
                tensor_request
                    .receive(&request.rendezvous_key, move |value| received.complete(value));
                // Registered after the receive: a call that is cancelled already cancels the request at once.
                completion.keep([cancellation.on_cancel(move |_| tensor_request.cancel())]);
            },
        );
    }
}
