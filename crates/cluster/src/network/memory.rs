//! A cluster within one process: tasks that reach each other by calls, for tests and simulations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use thalweg_kernel::{Cancellation, DeviceDescription, DeviceName, Registration, Value};
use thalweg_proto as pb;
use thalweg_runtime::Pool;
use thalweg_tensor::{Error, Result, err};

use crate::cluster_spec::{ClusterSpec, TaskName};
use crate::member::Member;
use crate::network::transport::{Answered, Call, Reply, Transport};
use crate::task::{Task, attributes};
use crate::worker::Worker;
use crate::worker::part_answer::RanGraph;

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
    /// Is cancelled when the task crashes.
    crashed: Cancellation,
}

impl MemoryNetwork {
    /// A network without tasks.
    pub fn new() -> Arc<MemoryNetwork> {
        Arc::new(MemoryNetwork::default())
    }

    /// Adds a task, or starts it anew.
    pub fn join(self: &Arc<Self>, task: Arc<Task>, cluster: ClusterSpec) -> Arc<Member> {
        let member = Member::with(task, cluster, Some(self.clone()));
        let worker = Arc::new(Worker::new(member.clone()));
        let node = Node { worker, crashed: Cancellation::default() };
        self.tasks.write().insert(member.name.clone(), Arc::new(node));
        member
    }

    /// Adds a task that answers at once whatever it is asked, and does nothing: what a step costs then
    /// is its master's work.
    pub fn join_idle(&self, task: TaskName) {
        self.idle.write().insert(task);
    }

    /// Takes a task away; calls to it end at once.
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

impl Transport for MemoryNetwork {
    fn call(
        &self,
        to: &TaskName,
        call: Call,
        _limit: Option<Duration>,
        cancellation: &Cancellation,
        answered: Answered,
    ) {
        if self.idle.read().contains(to) {
            return answered(idle_answer(to, &call));
        }
        let node = self.tasks.read().get(to).cloned();
        let node = cancellation.check().and_then(|()| node.ok_or_else(|| lost(to)));
        let node = match node {
            Ok(node) => node,
            Err(e) => return answered(Err(e)),
        };
        let once = Once::new(answered);
        let own = Cancellation::default();
        let (of_caller, of_crash) = (once.clone(), once.clone());
        let (ends, crash_ends) = (own.clone(), own.clone());
        let links = [
            cancellation.on_cancel(move |cause| {
                ends.cancel(cause.clone());
                of_caller.answer(Err(cause.clone()));
            }),
            node.crashed.on_cancel(move |cause| {
                crash_ends.cancel(cause.clone());
                of_crash.answer(Err(cause.clone()));
            }),
        ];
        once.keep(links);
        Pool::global().spawn(move || ask(&node.worker, call, &own, &once));
    }
}

fn idle_answer(task: &TaskName, call: &Call) -> Result<Reply> {
    Ok(match call {
        Call::GetStatus => {
            let device = DeviceDescription {
                incarnation: 1,
                ..DeviceDescription::cpu(DeviceName::cpu(&task.job, task.index, 0), 1 << 30)
            };
            Reply::Status(pb::GetStatusResponse { device_attributes: vec![attributes(&device)] })
        }
        Call::RegisterGraph(_) => {
            Reply::Registered(pb::RegisterGraphResponse { graph_handle: "idle".into() })
        }
        Call::RunGraph(_) => Reply::Ran(Box::new(RanGraph::of_nothing().report())),
        Call::RecvTensor(_) => Reply::Received(Value::Dead),
        _ => Reply::Done,
    })
}

/// An answer that is given once, by whoever is first.
#[derive(Clone)]
struct Once(Arc<Mutex<OnceState>>);

struct OnceState {
    answered: Option<Answered>,
    links: Vec<Registration>,
}

impl Once {
    fn new(answered: Answered) -> Once {
        Once(Arc::new(Mutex::new(OnceState { answered: Some(answered), links: Vec::new() })))
    }

    /// Keeps what may end the call until it is answered.
    fn keep<const N: usize>(&self, links: [Registration; N]) {
        let mut state = self.0.lock();
        if state.answered.is_some() {
            state.links.extend(links);
        }
    }

    fn answer(&self, result: Result<Reply>) {
        let (answered, links) = {
            let mut state = self.0.lock();
            (state.answered.take(), std::mem::take(&mut state.links))
        };
        drop(links);
        if let Some(answered) = answered {
            answered(result);
        }
    }
}

fn ask(worker: &Arc<Worker>, call: Call, cancellation: &Cancellation, once: &Once) {
    let done = |result: Result<()>| result.map(|()| Reply::Done);
    let reply = match call {
        Call::GetStatus => Ok(Reply::Status(worker.get_status())),
        Call::CreateWorkerSession(r) => done(worker.create_session(&r).map(|_| ())),
        Call::DeleteWorkerSession(r) => {
            worker.delete_session(&r);
            Ok(Reply::Done)
        }
        Call::RegisterGraph(r) => worker.register_graph(*r).map(Reply::Registered),
        Call::DeregisterGraph(r) => done(worker.deregister_graph(&r).map(|_| ())),
        Call::CleanupGraph(r) => {
            worker.cleanup_graph(&r);
            Ok(Reply::Done)
        }
        Call::CleanupAll(r) => {
            worker.cleanup_all(&r);
            Ok(Reply::Done)
        }
        Call::RunGraph(request) => {
            let once = once.clone();
            let none: Option<Weak<()>> = None;
            return worker.run_graph(&request, Vec::new(), none, cancellation, move |result| {
                once.answer(result.map(|ran| Reply::Ran(Box::new(ran.report()))));
            });
        }
        Call::RecvTensor(request) => {
            let asked = match worker.asked(&request) {
                Ok(asked) => asked,
                Err(e) => return once.answer(Err(e)),
            };
            let of_once = once.clone();
            asked.receive(&request.rendezvous_key, move |value| {
                of_once.answer(value.map(Reply::Received));
            });
            // Not before it is asked for: a call may have been given up already.
            return once.keep([cancellation.on_cancel(move |_| asked.give_up())]);
        }
    };
    once.answer(reply);
}
