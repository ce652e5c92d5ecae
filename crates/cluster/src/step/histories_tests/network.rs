//! What is between the tasks of a history: messages in no order, and calls without an answer yet.

use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use thalweg_kernel::{Registration, Value};
use thalweg_proto as pb;
use thalweg_tensor::{Error, Result};

use crate::master::step::Cleanup;
use crate::network::transport::{Call, Done, RunGraphReport, Transport};

/// Small, seeded, good enough.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// What is on its way. A `life` is one of a task's starts.
#[derive(Clone)]
pub(super) enum Message {
    /// A master has a task run its partition of a step.
    Run { step: u64, task: usize, life: u64 },
    /// The caller of `Run` is gone.
    CallerGone { step: u64, task: usize, life: u64 },
    /// The answer to `Run`.
    Ran { step: u64, task: usize, result: Result<Cleanup> },
    /// A master has a task forget a step.
    Cleanup { step: u64, task: usize },
    /// A task asks another for a tensor.
    Want { call: u64, to: usize, request: pb::RecvTensorRequest },
    /// The answer to `Want`.
    Gave { call: u64, result: Result<Value> },
    /// Nobody waits for the answer to a `Want` any more.
    GiveUp { call: u64, to: usize },
    /// Within a task: a node has what it needs and sends its tensor.
    Sends { partition: PartitionId, edge: usize },
    /// Within a task: a tensor is there, or will not be.
    Received { partition: PartitionId, edge: usize, result: Result<()> },
    /// Within a task: its partition of a step ends.
    Ends { partition: PartitionId, error: Option<Error> },
}

impl Message {
    /// Whether it goes over the network, where it may come twice.
    pub(super) fn travels(&self) -> bool {
        !matches!(self, Message::Sends { .. } | Message::Received { .. } | Message::Ends { .. })
    }
}

/// One partition of a step on one incarnation of a task.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct PartitionId {
    pub(super) step: u64,
    pub(super) task: usize,
    pub(super) life: u64,
}

/// What all share: messages under way in no order, and who waits for tensors.
#[derive(Default)]
pub(super) struct Network {
    pub(super) on_way: Vec<Message>,
    pub(super) calls: FxHashMap<u64, Caller>,
    pub(super) last_call: u64,
    pub(super) links: Vec<Registration>,
}

pub(super) struct Caller {
    pub(super) done: Done<Value>,
    pub(super) from: usize,
    pub(super) to: usize,
}

pub(super) type Shared = Arc<Mutex<Network>>;

pub(super) fn send(network: &Shared, message: Message) {
    network.lock().on_way.push(message);
}

/// Takes the caller out, whose call ends now; the other side learns that.
pub(super) fn end_call(network: &Shared, call: u64) -> Option<Caller> {
    let mut network = network.lock();
    let caller = network.calls.remove(&call)?;
    network.on_way.push(Message::GiveUp { call, to: caller.to });
    Some(caller)
}

/// The way from one task to the others.
pub(super) struct Way {
    pub(super) network: Shared,
    pub(super) from: usize,
}

/// Histories play the other calls as [`Message`]s of their own.
const ONLY_TENSORS: &str = "tasks of a history ask each other for tensors only";

impl Transport for Way {
    fn recv_tensor(&self, call: Call<'_>, request: pb::RecvTensorRequest, done: Done<Value>) {
        let (from, to) = (self.from, call.to.index as usize);
        let number = {
            let mut network = self.network.lock();
            network.last_call += 1;
            let number = network.last_call;
            network.calls.insert(number, Caller { done, from, to });
            network.on_way.push(Message::Want { call: number, to, request });
            number
        };
        let network = self.network.clone();
        let link = call.cancellation.on_cancel(move |cause| {
            if let Some(caller) = end_call(&network, number) {
                (caller.done)(Err(cause.clone()));
            }
        });
        self.network.lock().links.push(link);
    }

    fn get_status(&self, _: Call<'_>, _: Done<pb::GetStatusResponse>) {
        panic!("{ONLY_TENSORS}");
    }

    fn create_worker_session(&self, _: Call<'_>, _: pb::CreateWorkerSessionRequest, _: Done<()>) {
        panic!("{ONLY_TENSORS}");
    }

    fn delete_worker_session(&self, _: Call<'_>, _: pb::DeleteWorkerSessionRequest, _: Done<()>) {
        panic!("{ONLY_TENSORS}");
    }

    fn register_graph(
        &self,
        _: Call<'_>,
        _: pb::RegisterGraphRequest,
        _: Done<pb::RegisterGraphResponse>,
    ) {
        panic!("{ONLY_TENSORS}");
    }

    fn deregister_graph(&self, _: Call<'_>, _: pb::DeregisterGraphRequest, _: Done<()>) {
        panic!("{ONLY_TENSORS}");
    }

    fn run_graph(&self, _: Call<'_>, _: pb::RunGraphRequest, _: Done<RunGraphReport>) {
        panic!("{ONLY_TENSORS}");
    }

    fn cleanup_graph(&self, _: Call<'_>, _: pb::CleanupGraphRequest, _: Done<()>) {
        panic!("{ONLY_TENSORS}");
    }

    fn cleanup_all(&self, _: Call<'_>, _: pb::CleanupAllRequest, _: Done<()>) {
        panic!("{ONLY_TENSORS}");
    }
}
