//! Counters of a task's steps, and its list of waits between tasks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_kernel::{Clock, DeviceName, RendezvousKey, Value};
use thalweg_runtime::{NodeWait, WaitGuard, WaitList};

use crate::cluster_spec::TaskName;

use crate::network::own_messages::{ReceivedInfo, WaitInfo, WaitKind};
use crate::step::sent_log::SentLog;
use crate::worker::rpc_log::RpcLog;

/// The most tasks whose tensors are counted: sessions may bring clusters of their own.
const TASKS_COUNTED_MAX: usize = 100_000;

/// Counters of ended steps.
#[derive(Default)]
pub(crate) struct StepCounts {
    succeeded: AtomicU64,
    failed: AtomicU64,
}

impl StepCounts {
    /// Counts one step.
    pub(crate) fn count<T, E>(&self, result: &Result<T, E>) {
        let counter = if result.is_ok() { &self.succeeded } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// How many steps succeeded and how many failed.
    pub(crate) fn succeeded_and_failed(&self) -> (u64, u64) {
        (self.succeeded.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }
}

/// The counters and the waits of a task.
pub(crate) struct Diagnostics {
    own: TaskName,
    clock: Arc<dyn Clock>,
    begin: Duration,
    /// Steps of clients.
    pub(crate) as_master: StepCounts,
    /// Partitions that the task ran for masters of other tasks.
    pub(crate) as_worker: StepCounts,
    waits: Arc<WaitList<CallWait>>,
    /// Tensors received from other tasks, while a master has logging turned on.
    pub(crate) rpc_log: RpcLog,
    /// Tensors sent to other tasks in traced steps.
    pub(crate) sent: SentLog,
    /// Bytes of tensors received from each other task.
    received: Mutex<BTreeMap<TaskName, u64>>,
}

/// A wait between tasks.
#[derive(Clone)]
pub(crate) struct CallWait {
    step: u64,
    target: WaitTarget,
    since: Duration,
}

/// The call that a wait belongs to.
#[derive(Clone)]
pub(crate) enum WaitTarget {
    /// This task waits for a tensor of another.
    RecvTensor(RendezvousKey),
    /// Another task waits for a tensor of this one.
    SendTensor(RendezvousKey),
    /// This task's master waits for another task to run its partition of a step.
    RunGraph(TaskName),
    /// A session that is being created waits for a task that its graph needs.
    GetStatus(TaskName),
}

/// Keeps a wait in the list until it is dropped.
pub(crate) type CallWaitGuard = WaitGuard<CallWait>;

impl Diagnostics {
    pub(crate) fn new(own: TaskName, clock: Arc<dyn Clock>) -> Diagnostics {
        let begin = clock.monotonic();
        Diagnostics {
            own,
            clock,
            begin,
            as_master: StepCounts::default(),
            as_worker: StepCounts::default(),
            waits: Arc::default(),
            rpc_log: RpcLog::default(),
            sent: SentLog::default(),
            received: Mutex::default(),
        }
    }

    /// Counts a tensor that came from another task.
    pub(crate) fn count_received(&self, from: &TaskName, value: &Value) {
        let Value::Tensor(tensor) = value else { return };
        let (bytes, mut received) = (tensor.size_bytes() as u64, self.received.lock());
        if let Some(total) = received.get_mut(from) {
            *total = total.saturating_add(bytes);
        } else if received.len() < TASKS_COUNTED_MAX {
            received.insert(from.clone(), bytes);
        }
    }

    /// Bytes of tensors received from each other task, by its name.
    pub(crate) fn received(&self) -> Vec<ReceivedInfo> {
        let received = self.received.lock();
        let info =
            |(task, &bytes): (&TaskName, &u64)| ReceivedInfo { from: task.to_string(), bytes };
        received.iter().map(info).collect()
    }

    /// Adds a wait to the list, until the returned value is dropped.
    pub(crate) fn wait(&self, step: u64, target: WaitTarget) -> CallWaitGuard {
        self.waits.add(CallWait { step, target, since: self.clock.monotonic() })
    }

    /// The wall clock time, if the log of received tensors is on.
    pub(crate) fn rpc_log_start(&self) -> Option<Duration> {
        self.rpc_log.is_on().then(|| self.clock.wall())
    }

    /// Logs a tensor that was requested at `start`.
    pub(crate) fn log(&self, step: u64, key: RendezvousKey, value: &Value, start: Duration) {
        self.rpc_log.add(step, key, value, start, self.clock.wall());
    }

    /// The wall clock time.
    pub(crate) fn wall(&self) -> Duration {
        self.clock.wall()
    }

    /// Time since the task was started.
    pub(crate) fn uptime(&self) -> Duration {
        self.clock.monotonic().saturating_sub(self.begin)
    }

    /// Waits between tasks and of `nodes`, the longest first, at most `waits_max`.
    pub(crate) fn waits(&self, nodes: Vec<NodeWait>, waits_max: usize) -> Vec<WaitInfo> {
        let now = self.clock.monotonic();
        let waited = |since: Duration| now.saturating_sub(since).as_millis() as u64;
        let own = self.own.to_string();
        let call = |wait: CallWait| {
            let (kind, task, of, what) = match &wait.target {
                WaitTarget::RecvTensor(key) => {
                    (WaitKind::Tensor, own.clone(), task_of(key, 0), text(key))
                }
                WaitTarget::SendTensor(key) => {
                    (WaitKind::Tensor, task_of(key, 2), own.clone(), text(key))
                }
                WaitTarget::RunGraph(of) => {
                    (WaitKind::Partition, own.clone(), of.to_string(), String::new())
                }
                WaitTarget::GetStatus(of) => {
                    (WaitKind::Task, own.clone(), of.to_string(), String::new())
                }
            };
            let (kind, waited_ms) = (kind as i32, waited(wait.since));
            WaitInfo { kind, step: wait.step, task, of, what, waited_ms, ..Default::default() }
        };
        let node = |wait: NodeWait| WaitInfo {
            kind: WaitKind::Node as i32,
            step: wait.step,
            task: own.clone(),
            what: wait.node,
            op: wait.op,
            on: wait.on.unwrap_or_default(),
            waited_ms: waited(wait.since),
            ..Default::default()
        };
        let calls = self.waits.list(waits_max).into_iter().map(call);
        let mut waits: Vec<WaitInfo> = calls.chain(nodes.into_iter().map(node)).collect();
        // The longest wait is the most likely cause of the others.
        waits.sort_by(|a, b| b.waited_ms.cmp(&a.waited_ms).then_with(|| a.what.cmp(&b.what)));
        waits.truncate(waits_max);
        waits
    }
}

fn text(key: &RendezvousKey) -> String {
    key.0.to_string()
}

/// The task of the device in this field of a rendezvous key.
fn task_of(key: &RendezvousKey, field: usize) -> String {
    let device = key.0.split(';').nth(field).and_then(|d| d.parse::<DeviceName>().ok());
    device.map_or_else(String::new, |device| TaskName::of(&device).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_runtime::system_environment;
    use thalweg_tensor::Tensor;

    #[test]
    fn waits_name_the_waiting_and_the_awaited_task() {
        let own = TaskName::new("worker", 1);
        let diagnostics = Diagnostics::new(own, system_environment().clock);
        let key = "/job:ps/replica:0/task:0/device:CPU:0;0000000000000001;\
                   /job:worker/replica:0/task:1/device:CPU:0;edge_1_v;0:0";
        let tensor = diagnostics.wait(7, WaitTarget::RecvTensor(RendezvousKey(key.into())));
        let partition = diagnostics.wait(7, WaitTarget::RunGraph(TaskName::new("ps", 0)));
        let node = NodeWait {
            step: 7,
            node: "take".into(),
            op: "QueueDequeueV2".into(),
            on: Some("q".into()),
            since: Duration::ZERO,
        };
        let waits = diagnostics.waits(vec![node], 10);
        assert_eq!(waits.len(), 3);
        let of = |kind: WaitKind| waits.iter().find(|w| w.kind == kind as i32).unwrap();
        let tensor_wait = of(WaitKind::Tensor);
        assert_eq!(tensor_wait.of, "/job:ps/replica:0/task:0");
        assert_eq!(tensor_wait.task, "/job:worker/replica:0/task:1");
        assert_eq!(of(WaitKind::Node).on, "q");
        assert_eq!(of(WaitKind::Partition).of, "/job:ps/replica:0/task:0");
        assert_eq!(diagnostics.waits(Vec::new(), 1).len(), 1);
        drop((tensor, partition));
        assert!(diagnostics.waits(Vec::new(), 10).is_empty());
        let ps = TaskName::new("ps", 0);
        for _ in 0..2 {
            diagnostics.count_received(&ps, &Value::Tensor(Tensor::scalar(1.0f32)));
        }
        let received = ReceivedInfo { from: ps.to_string(), bytes: 8 };
        assert_eq!(diagnostics.received(), [received]);
        diagnostics.as_master.count(&Ok::<(), ()>(()));
        diagnostics.as_master.count(&Err::<(), ()>(()));
        assert_eq!(diagnostics.as_master.succeeded_and_failed(), (1, 1));
    }
}
