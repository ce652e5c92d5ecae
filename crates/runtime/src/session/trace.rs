//! Records when the nodes of a step ran. What can be derived from the graph (labels, when a node became ready) is
//! derived when the step has ended.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use thalweg_graph::{Graph, Node};
use thalweg_kernel::{RendezvousKey, Value};

use super::metadata::{NodeTiming, TracedOutput};
use crate::execute::executable::{Executable, Kind};

/// Most timings kept: a loop may run for ever.
const TIMINGS_MAX: usize = 1 << 18;
/// Threads share a buffer only if there are more of them.
const SHARDS: usize = 16;

/// Collects the times of a step's nodes.
pub(crate) struct Trace {
    /// When the step began, by the monotonic clock.
    pub(crate) begin: Duration,
    /// When the step began, since 1970.
    pub(crate) started_ns: u64,
    count: AtomicUsize,
    shards: [Mutex<Vec<Record>>; SHARDS],
}

/// One execution of a node, as the thread that ran it saw it.
struct Record {
    exec: Arc<Executable>,
    node: u32,
    thread: u32,
    start: Duration,
    end: Duration,
    outputs: Vec<TracedOutput>,
}

thread_local! {
    /// This thread's number among those of the process that ever traced.
    static THREAD: Cell<u32> = const { Cell::new(u32::MAX) };
}

fn thread_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    THREAD.with(|thread| {
        if thread.get() == u32::MAX {
            thread.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        thread.get()
    })
}

impl Trace {
    /// A step that begins at `begin` of the monotonic clock and at `wall` of the wall clock.
    pub(crate) fn new(begin: Duration, wall: Duration) -> Trace {
        let started_ns = wall.as_nanos() as u64;
        Trace { begin, started_ns, count: AtomicUsize::new(0), shards: Default::default() }
    }

    /// Records that a node ran between these times and set `outputs`.
    pub(crate) fn record(
        &self,
        exec: &Arc<Executable>,
        node: u32,
        (start, end): (Duration, Duration),
        outputs: &[Value],
    ) {
        if self.count.fetch_add(1, Ordering::Relaxed) >= TIMINGS_MAX {
            return;
        }
        let thread = thread_number();
        let outputs = outputs.iter().enumerate().filter_map(traced).collect();
        let record = Record { exec: exec.clone(), node, thread, start, end, outputs };
        self.shards[thread as usize % SHARDS].lock().push(record);
    }

    /// The timings in the order in which the nodes ended. `partitions` are the step's; the other executables
    /// are bodies of functions.
    pub(crate) fn take(&self, partitions: &[Arc<Executable>]) -> Vec<NodeTiming> {
        let mut records = Vec::new();
        self.shards.iter().for_each(|shard| records.append(&mut shard.lock()));
        // A record is made before the node's successors may start, so this order is one of causes.
        records.sort_by_key(|r: &Record| (r.end, r.start));
        let mut ends: FxHashMap<(*const Executable, u32), Vec<Duration>> = FxHashMap::default();
        let mut threads = FxHashMap::default();
        for record in &records {
            ends.entry((Arc::as_ptr(&record.exec), record.node)).or_default().push(record.end);
        }
        let timing = |record: Record| {
            let count = threads.len() as u32;
            let thread = *threads.entry(record.thread).or_insert(count);
            let exec = &record.exec;
            let node = &exec.graph.nodes()[record.node as usize];
            let is_partition = partitions.iter().any(|p| Arc::ptr_eq(p, exec));
            let earliest = if is_partition { self.begin } else { record.start };
            let last_input = last_input(node, record.start, |input| {
                ends.get(&(Arc::as_ptr(exec), input)).map_or(&[], Vec::as_slice)
            });
            let since_begin = |time: Duration| time.saturating_sub(self.begin).as_nanos() as u64;
            NodeTiming {
                node: node.name.clone(),
                op: node.op.name.clone(),
                device: exec.device_name.clone(),
                thread,
                ready_ns: since_begin(last_input.unwrap_or(earliest)),
                start_ns: since_begin(record.start),
                end_ns: since_begin(record.end),
                label: label(&exec.graph, node, &exec.nodes[record.node as usize].kind),
                outputs: record.outputs,
            }
        };
        records.into_iter().map(timing).collect()
    }
}

/// When the last input of a node that started at `start` was there. In a loop a node runs several times, and the
/// latest run before counts. `ends` gives the ends of another node's runs in their order.
fn last_input<'a>(
    node: &Node,
    start: Duration,
    ends: impl Fn(u32) -> &'a [Duration],
) -> Option<Duration> {
    let inputs = node.inputs.iter().map(|e| e.node).chain(node.control_inputs.iter().copied());
    inputs
        .filter_map(|input| {
            let ends = ends(input.index() as u32);
            let before = ends.partition_point(|end| *end <= start);
            before.checked_sub(1).map(|last| ends[last])
        })
        .max()
}

fn traced((slot, value): (usize, &Value)) -> Option<TracedOutput> {
    let Value::Tensor(tensor) = value.clone().without_alias() else { return None };
    Some(TracedOutput {
        slot: slot as u32,
        dtype: tensor.dtype(),
        shape: tensor.shape().clone(),
        bytes: tensor.size_bytes() as u64,
    })
}

/// A node as TensorFlow's timelines show it. Of a send or receive they show the tensor and the device at the other
/// end; here they come behind the inputs.
fn label(graph: &Graph, node: &Node, kind: &Kind) -> String {
    let mut text = format!("{} = {}(", node.name, node.op.name);
    let data = node.inputs.iter().map(|e| match (&graph.node(e.node).name, e.index) {
        (name, 0) => name.to_string(),
        (name, index) => format!("{name}:{index}"),
    });
    let control = node.control_inputs.iter().map(|c| format!("^{}", graph.node(*c).name));
    let tensor = match kind {
        Kind::Send(key) => sent_tensor(key, 2),
        Kind::Receive(key) => sent_tensor(key, 0),
        _ => None,
    };
    for (i, input) in data.chain(control).chain(tensor).enumerate() {
        text.push_str(if i == 0 { "" } else { ", " });
        text.push_str(&input);
    }
    text.push(')');
    text
}

/// The tensor of a rendezvous key, `edge_1_x @/job:ps/...`, with the device that the key has at position `peer`.
fn sent_tensor(key: &RendezvousKey, peer: usize) -> Option<String> {
    let mut fields = key.0.split(';');
    let device = fields.clone().nth(peer)?;
    Some(format!("{} @{device}", fields.nth(3)?))
}
