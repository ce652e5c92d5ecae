//! The network of a history: messages in flight, in no order, and pending calls.

use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use thalweg_kernel::{Registration, Value};
use thalweg_proto as pb;
use thalweg_tensor::{Error, Result};

use crate::master::step::Cleanup;
use crate::network::trace_messages::{ClockRequest, ClockResponse};
use crate::network::transport::{Call, Done, RunGraphReport, Transport};

/// SplitMix64.
pub(super) struct Rng(pub(super) u64);

impl Rng {
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

/// A message in flight, or an event within a task. `incarnation` is that of the task.
#[derive(Clone)]
pub(super) enum Message {
    /// `RunGraph`: a master starts a task's partition of a step.
    RunGraph { step: u64, task: usize, incarnation: u64 },
    /// The caller of `RunGraph` cancelled it or crashed.
    CancelRunGraph { step: u64, task: usize, incarnation: u64 },
    /// The response of `RunGraph`.
    RunGraphDone { step: u64, task: usize, result: Result<Cleanup> },
    /// `CleanupGraph`.
    Cleanup { step: u64, task: usize },
    /// `RecvTensor`.
    RecvTensor { call: u64, to: usize, request: pb::RecvTensorRequest },
    /// The response of `RecvTensor`.
    RecvTensorDone { call: u64, result: Result<Value> },
    /// The caller of `RecvTensor` cancelled it or crashed.
    CancelRecvTensor { call: u64, to: usize },
    /// Within a task: the inputs of a send have arrived, and it sends its tensor.
    Send { partition: PartitionId, edge: usize },
    /// Within a task: a receive has succeeded or failed.
    TensorReceived { partition: PartitionId, edge: usize, result: Result<()> },
    /// Within a task: its partition of a step ends.
    PartitionEnded { partition: PartitionId, error: Option<Error> },
}

impl Message {
    /// Whether the network delivers it, possibly twice.
    pub(super) fn is_remote(&self) -> bool {
        !matches!(
            self,
            Message::Send { .. } | Message::TensorReceived { .. } | Message::PartitionEnded { .. }
        )
    }
}

/// One partition of a step on one incarnation of a task.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct PartitionId {
    pub(super) step: u64,
    pub(super) task: usize,
    pub(super) incarnation: u64,
}

/// The shared network: messages in flight and pending `RecvTensor` calls.
#[derive(Default)]
pub(super) struct Network {
    pub(super) in_flight: Vec<Message>,
    pub(super) calls: FxHashMap<u64, PendingCall>,
    pub(super) last_call: u64,
    pub(super) links: Vec<Registration>,
}

pub(super) struct PendingCall {
    pub(super) done: Done<Value>,
    pub(super) from: usize,
    pub(super) to: usize,
}

pub(super) type Shared = Arc<Mutex<Network>>;

pub(super) fn send(network: &Shared, message: Message) {
    network.lock().in_flight.push(message);
}

/// Removes a pending call; its callee is notified of the cancellation.
pub(super) fn end_call(network: &Shared, call: u64) -> Option<PendingCall> {
    let mut network = network.lock();
    let pending = network.calls.remove(&call)?;
    network.in_flight.push(Message::CancelRecvTensor { call, to: pending.to });
    Some(pending)
}

/// The transport of one task to the others.
pub(super) struct TestTransport {
    pub(super) network: Shared,
    pub(super) from: usize,
}

/// Histories play the other calls as [`Message`]s of their own.
const ONLY_TENSORS: &str = "tasks of a history call RecvTensor only";

impl Transport for TestTransport {
    fn recv_tensor(&self, call: Call<'_>, request: pb::RecvTensorRequest, done: Done<Value>) {
        let (from, to) = (self.from, call.to.index as usize);
        let number = {
            let mut network = self.network.lock();
            network.last_call += 1;
            let number = network.last_call;
            network.calls.insert(number, PendingCall { done, from, to });
            network.in_flight.push(Message::RecvTensor { call: number, to, request });
            number
        };
        let network = self.network.clone();
        let link = call.cancellation.on_cancel(move |cause| {
            if let Some(pending) = end_call(&network, number) {
                (pending.done)(Err(cause.clone()));
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

    fn clock(&self, _: Call<'_>, _: ClockRequest, _: Done<ClockResponse>) {
        panic!("{ONLY_TENSORS}");
    }
}
