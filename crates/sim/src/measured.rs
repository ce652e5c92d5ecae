//! The timeline of a step that was traced.
//!
//! Nodes come with when they became ready, started and ended, and with a label that names their inputs. What made a
//! node ready is the input that ended last; of a received tensor it is the node that sent it, which another task may
//! have run. A tensor is on its way from the moment it was sent, which is when both the value and the request for
//! it were there; before, its receiver waits for the sender.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use thalweg_runtime::{Dispatch, NodeTiming, RunMetadata};

use crate::timeline::{Span, SpanKind, Timeline};

/// A clock is read with this error: what ended so little after another thing began may be its cause.
const READING_NS: u64 = 1_000;
/// A tensor that is sent so soon after its request was there already.
const AT_ONCE_NS: u64 = 10_000;
/// A tensor that was sent so long after its `_Send` ended waited for its sender's part of the step to end.
const DEFERRED_NS: u64 = 50_000;
/// A task that was called so long after it was to be knew the graph not yet.
const REGISTERING_NS: u64 = 200_000;

/// The timeline of a step from the report of all its tasks; empty if no node was timed.
pub fn measured(metadata: &RunMetadata) -> Timeline {
    let is_work = |node: &&NodeTiming| !node.op.is_empty() && &*node.node != "_SOURCE";
    let nodes: Vec<&NodeTiming> = metadata.nodes.iter().filter(is_work).collect();
    let mut builder = Builder::new(metadata, nodes);
    builder.add_dispatches();
    builder.add_nodes();
    builder.add_answers();
    builder.add_end();
    builder.finish()
}

/// A span before spans are ordered; times are ns, and the cause is a position among the drafts.
struct Draft {
    device: u32,
    thread: u32,
    node: Arc<str>,
    op: Arc<str>,
    kind: SpanKind,
    ready: u64,
    start: u64,
    end: u64,
    cause: Option<u32>,
}

struct Builder<'a> {
    metadata: &'a RunMetadata,
    nodes: Vec<&'a NodeTiming>,
    devices: Vec<Arc<str>>,
    /// For each device and node name, the nodes in the order in which they ended.
    by_name: FxHashMap<(&'a str, &'a str), Vec<usize>>,
    /// For each received node, where its tensor came from.
    senders: FxHashMap<usize, Sender>,
    /// What was sent.
    sends: BTreeMap<TensorKey<'a>, Vec<usize>>,
    drafts: Vec<Draft>,
    /// For each node, its draft.
    draft_of: Vec<Option<u32>>,
    /// For each dispatch, the draft of its `RunGraph`.
    calls: Vec<u32>,
}

/// Where a received tensor came from.
#[derive(Clone, Copy)]
struct Sender {
    /// The node that sent it.
    node: Option<usize>,
    /// When the request for it had come and when it went, as the sender says.
    times: Option<(u64, u64)>,
}

/// A tensor between two devices: receiver, name, sender.
type TensorKey<'a> = (&'a str, &'a str, &'a str);

impl<'a> Builder<'a> {
    fn new(metadata: &'a RunMetadata, nodes: Vec<&'a NodeTiming>) -> Builder<'a> {
        let mut by_name: FxHashMap<(&str, &str), Vec<usize>> = FxHashMap::default();
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_by_key(|&i| (nodes[i].end_ns, nodes[i].start_ns));
        for &i in &order {
            by_name.entry((&nodes[i].device, &nodes[i].node)).or_default().push(i);
        }
        let sends = transfers(&nodes, &order, "_Send");
        let senders = match_senders(metadata, &sends, &transfers(&nodes, &order, "_Recv"));
        let devices = devices(metadata, &nodes);
        let draft_of = vec![None; nodes.len()];
        let (drafts, calls) = Default::default();
        Builder { metadata, nodes, devices, by_name, senders, sends, drafts, draft_of, calls }
    }

    fn device(&self, name: &str) -> u32 {
        self.devices.binary_search_by(|d| (**d).cmp(name)).unwrap_or(0) as u32
    }

    /// The first device of a task.
    fn device_of_task(&self, task: &str) -> u32 {
        self.devices.iter().position(|d| is_of_task(d, task)).unwrap_or(0) as u32
    }

    fn push(&mut self, draft: Draft) -> u32 {
        self.drafts.push(draft);
        self.drafts.len() as u32 - 1
    }

    /// The requests by which the master started the parts of other tasks.
    fn add_dispatches(&mut self) {
        let metadata = self.metadata;
        let from = self.device_of_task(&metadata.master);
        for Dispatch { task, asked_ns, sent_ns, began_ns, .. } in &metadata.dispatches {
            let device = self.device_of_task(task);
            let call = |op: &str, ready: u64, start: u64, end: u64, cause| Draft {
                device,
                thread: 0,
                node: task.as_str().into(),
                op: op.into(),
                kind: SpanKind::Dispatch { from },
                ready,
                start,
                end: end.max(start),
                cause,
            };
            let mut registered = None;
            if sent_ns.saturating_sub(*asked_ns) > REGISTERING_NS {
                registered = Some(self.push(call("RegisterGraph", 0, *asked_ns, *sent_ns, None)));
            }
            let ready = if registered.is_some() { *sent_ns } else { 0 };
            let run = self.push(call("RunGraph", ready, *sent_ns, *began_ns, registered));
            self.calls.push(run);
        }
    }

    fn add_nodes(&mut self) {
        for i in 0..self.nodes.len() {
            let node = self.nodes[i];
            let draft = Draft {
                device: self.device(&node.device),
                thread: node.thread,
                node: node.node.clone(),
                op: node.op.as_str().into(),
                kind: match waits(node) {
                    true => SpanKind::Wait,
                    false => SpanKind::Compute,
                },
                ready: node.ready_ns.min(node.start_ns),
                start: node.start_ns,
                end: node.end_ns,
                cause: None,
            };
            self.draft_of[i] = Some(self.push(draft));
        }
        for i in 0..self.nodes.len() {
            self.set_cause(i);
        }
        for i in 0..self.nodes.len() {
            if let Some(sender) = self.senders.get(&i).copied() {
                self.make_transfer(i, sender);
            }
        }
    }

    /// Finds what made a node ready: the input that ended last, or the call of its task.
    fn set_cause(&mut self, i: usize) {
        let Some(draft) = self.draft_of[i] else { return };
        let (node, start) = (self.nodes[i], self.nodes[i].start_ns);
        let latest = |input: &str| {
            let input = input.strip_prefix('^').unwrap_or(input);
            // A name has no colon; the number behind one is that of the output.
            let name = input.rsplit_once(':').map_or(input, |(name, _)| name);
            let runs = self.by_name.get(&(&*node.device, name))?;
            let before = runs.partition_point(|&run| self.nodes[run].end_ns <= start + READING_NS);
            let run = runs[..before].iter().rev().find(|&&run| run != i)?;
            Some((self.nodes[*run].end_ns, *run))
        };
        let last = node.inputs().filter_map(latest).max();
        let explained = last.map_or(0, |(end, _)| end);
        let (cause, ready) = match (self.unlisted_receive(i, explained), last) {
            (Some(received), _) => (Some(received), node.ready_ns),
            (None, Some((end, input))) => (self.draft_of[input], end),
            // Feeds are not in every report; they are there when the step begins.
            (None, None) if node.inputs().any(|input| input.starts_with("_recv_")) => (None, 0),
            (None, None) => (self.call_of(node), node.ready_ns),
        };
        let draft = &mut self.drafts[draft as usize];
        (draft.cause, draft.ready) = (cause, ready.min(draft.start));
    }

    /// TensorFlow's tasks report no `_Recv`. If a node became ready later than by its known inputs, at `explained`,
    /// it waited for a tensor that another task has sent; a span is made of its way. Our master calls the `_Recv`
    /// of the tensor `edge_2_x` `x_R2`.
    fn unlisted_receive(&mut self, i: usize, explained: u64) -> Option<u32> {
        let node = self.nodes[i];
        if node.ready_ns <= explained + READING_NS {
            return None;
        }
        let sent = |input: &'a str| {
            let (name, number) = input.rsplit_once("_R")?;
            let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            if !is_number || self.by_name.contains_key(&(&*node.device, input)) {
                return None;
            }
            let tensor = format!("edge_{number}_{name}");
            let (key, sends) = self.sends.range((&*node.device, &*tensor, "")..).next()?;
            let is_it = key.0 == &*node.device && key.1 == tensor;
            let send = *sends.first().filter(|_| is_it)?;
            Some((self.nodes[send].end_ns, send, name))
        };
        let (put, send, name) = node.inputs().filter_map(sent).max()?;
        let (sender, tensor) = (self.nodes[send], self.nodes[send].transferred()?.0);
        let produced = self.by_name.get(&(&*sender.device, name)).and_then(|runs| runs.first());
        let outputs = produced.map_or(&[][..], |&run| &self.nodes[run].outputs);
        let draft = Draft {
            device: self.device(&node.device),
            thread: 0,
            node: tensor.into(),
            op: "_Recv".into(),
            kind: SpanKind::Transfer {
                from: self.device(&sender.device),
                bytes: outputs.first().map_or(0, |o| o.bytes),
            },
            ready: put.min(node.ready_ns),
            start: put.min(node.ready_ns),
            end: node.ready_ns,
            cause: self.draft_of[send],
        };
        Some(self.push(draft))
    }

    /// What computed a tensor on a task that reports no `_Send`, as TensorFlow's: `x` for `edge_2_x`.
    fn producer(&self, device: &str, tensor: &str, until: u64) -> Option<usize> {
        let name = tensor.strip_prefix("edge_")?.split_once('_')?.1;
        let runs = self.by_name.get(&(device, name))?;
        runs.iter().rev().find(|&&run| self.nodes[run].end_ns <= until + READING_NS).copied()
    }

    /// The call that made a node ready that waits for no other.
    fn call_of(&self, node: &NodeTiming) -> Option<u32> {
        let dispatches = &self.metadata.dispatches;
        let i = dispatches.iter().position(|d| is_of_task(&node.device, &d.task))?;
        // The nodes of functions become ready when they are called.
        let is_first =
            node.ready_ns <= dispatches[i].began_ns + READING_NS || node.ready_ns < node.start_ns;
        is_first.then(|| self.calls[i])
    }

    /// Makes the span of a `_Recv` that of its tensor's way.
    fn make_transfer(&mut self, i: usize, Sender { node: sender, times: sent }: Sender) {
        let (node, Some(own)) = (self.nodes[i], self.draft_of[i]) else { return };
        let Some((tensor, peer)) = node.transferred() else { return };
        let from = self.device(peer);
        let (asked, arrived) = (node.start_ns, node.end_ns);
        // A `_Send` may deliver its tensor before it ends.
        let sender = sender.or_else(|| self.producer(peer, tensor, arrived));
        let put = sender.map(|sender| self.nodes[sender].end_ns.min(arrived));
        let own_cause = self.drafts[own as usize].cause;
        let (start, cause) = match (put, sent) {
            // The request came when the value was there.
            (_, Some((requested, sent))) if sent.saturating_sub(requested) < AT_ONCE_NS => {
                let draft = &self.drafts[own as usize];
                let request = Draft {
                    device: from,
                    thread: 0,
                    node: tensor.into(),
                    op: "RecvTensor".into(),
                    kind: SpanKind::Transfer { from: draft.device, bytes: 0 },
                    ready: draft.ready,
                    start: asked,
                    end: requested.clamp(asked, arrived.max(asked)),
                    cause: own_cause,
                };
                (sent, Some(self.push(request)))
            }
            (Some(put), Some((_, sent))) if sent.saturating_sub(put) > DEFERRED_NS => {
                (sent, self.last_of(peer, sent).or_else(|| self.draft_of[sender?]))
            }
            (Some(put), sent) if put >= asked || sent.is_some() => {
                (sent.map_or(put, |(_, sent)| sent), sender.and_then(|s| self.draft_of[s]))
            }
            _ => (asked, own_cause),
        };
        let start = start.min(arrived);
        let ready = cause.map_or(start, |c| self.drafts[c as usize].end.min(start));
        let bytes = node.outputs.iter().map(|o| o.bytes).sum();
        let draft = &mut self.drafts[own as usize];
        draft.kind = SpanKind::Transfer { from, bytes };
        (draft.node, draft.thread) = (tensor.into(), 0);
        (draft.ready, draft.start, draft.end, draft.cause) = (ready, start, arrived, cause);
    }

    /// What ended last on the task of a device until this time.
    fn last_of(&self, device: &str, until: u64) -> Option<u32> {
        let task = device.rsplit_once("/device:").map_or(device, |(task, _)| task);
        let ended = (0..self.nodes.len()).filter(|&i| {
            is_of_task(&self.nodes[i].device, task) && self.nodes[i].end_ns <= until + READING_NS
        });
        self.draft_of[ended.max_by_key(|&i| self.nodes[i].end_ns)?]
    }

    /// The answers of other tasks.
    fn add_answers(&mut self) {
        let metadata = self.metadata;
        let device = self.device_of_task(&metadata.master);
        for dispatch in &metadata.dispatches {
            let task = &dispatch.task;
            let cause = self.last_of(task, dispatch.ended_ns);
            let start = dispatch.ended_ns.min(dispatch.answered_ns);
            let ready = cause.map_or(start, |c| self.drafts[c as usize].end.min(start));
            let answer = Draft {
                device,
                thread: 0,
                node: task.as_str().into(),
                op: "RunGraph".into(),
                kind: SpanKind::Dispatch { from: self.device_of_task(task) },
                ready,
                start,
                end: dispatch.answered_ns,
                cause,
            };
            self.push(answer);
        }
    }

    /// The end of the step on the master's task, once all nodes have run: fetches are gathered, and memory is freed.
    fn add_end(&mut self) {
        let (start, end) = (self.metadata.ending_ns, self.metadata.duration_ns);
        let last = (0..self.drafts.len()).max_by_key(|&i| self.drafts[i].end);
        let Some(last) = last.filter(|&i| self.drafts[i].end <= end && start <= end) else {
            return;
        };
        let device = match self.metadata.master.as_str() {
            "" => self.drafts[last].device,
            master => self.device_of_task(master),
        };
        let ready = self.drafts[last].end;
        let draft = Draft {
            device,
            thread: u32::MAX,
            node: "step".into(),
            op: "StepEnd".into(),
            kind: SpanKind::Compute,
            ready,
            start: start.max(ready),
            end,
            cause: Some(last as u32),
        };
        self.push(draft);
    }

    /// Orders the spans so that causes come first.
    fn finish(self) -> Timeline {
        let drafts = &self.drafts;
        let mut by_time: Vec<u32> = (0..drafts.len() as u32).collect();
        by_time.sort_by_key(|&i| (drafts[i as usize].end, drafts[i as usize].start, i));
        let mut position = vec![None; drafts.len()];
        let mut order = Vec::with_capacity(drafts.len());
        for last in by_time {
            // What clocks disagree on may name a cause that ended later, or even a circle of causes.
            let (mut chain, mut current) = (Vec::new(), Some(last));
            while let Some(i) = current.filter(|&i| position[i as usize].is_none()) {
                position[i as usize] = Some(u32::MAX);
                chain.push(i);
                current = drafts[i as usize].cause;
            }
            for i in chain.into_iter().rev() {
                position[i as usize] = Some(order.len() as u32);
                order.push(i);
            }
        }
        let seconds = |ns: u64| ns as f64 / 1e9;
        let lanes = lanes(drafts);
        let span = |i: &u32| {
            let draft = &drafts[*i as usize];
            let own = position[*i as usize];
            Span {
                device: draft.device,
                lane: lanes[*i as usize],
                node: draft.node.clone(),
                op: draft.op.clone(),
                kind: draft.kind,
                ready: seconds(draft.ready),
                start: seconds(draft.start),
                end: seconds(draft.end),
                cause: draft.cause.and_then(|c| position[c as usize]).filter(|c| Some(*c) < own),
            }
        };
        let last = drafts.iter().map(|d| d.end).max().unwrap_or(0);
        let end = last.max(self.metadata.duration_ns);
        let spans = order.iter().map(span).collect();
        Timeline { seconds: seconds(end), devices: self.devices, spans }
    }
}

fn is_of_task(device: &str, task: &str) -> bool {
    device.strip_prefix(task).is_some_and(|rest| rest.starts_with('/'))
}

/// The devices of all nodes, and one for each task that ran none.
fn devices(metadata: &RunMetadata, nodes: &[&NodeTiming]) -> Vec<Arc<str>> {
    let mut devices: BTreeSet<Arc<str>> = nodes.iter().map(|n| n.device.clone()).collect();
    let peers = nodes.iter().filter_map(|n| n.transferred());
    devices.extend(peers.map(|(_, peer)| Arc::from(peer)));
    let tasks = metadata.dispatches.iter().map(|d| &d.task).chain([&metadata.master]);
    for task in tasks.filter(|task| !task.is_empty()) {
        if !devices.iter().any(|d| is_of_task(d, task)) {
            devices.insert(format!("{task}/device:CPU:0").into());
        }
    }
    devices.into_iter().collect()
}

/// The nodes of an op that transfer tensors, by tensor, in the order in which they ended.
fn transfers<'a>(
    nodes: &[&'a NodeTiming],
    order: &[usize],
    op: &str,
) -> BTreeMap<TensorKey<'a>, Vec<usize>> {
    let mut found: BTreeMap<TensorKey<'a>, Vec<usize>> = BTreeMap::new();
    for &i in order.iter().filter(|&&i| nodes[i].op == op) {
        let own = &*nodes[i].device;
        if let Some((tensor, peer)) = nodes[i].transferred() {
            let (to, from) = if op == "_Send" { (peer, own) } else { (own, peer) };
            found.entry((to, tensor, from)).or_default().push(i);
        }
    }
    found
}

/// Finds for each received node the one that sent its tensor, and when the sender says it was requested and sent. In
/// a loop a tensor is sent several times, and received as often in the same order.
fn match_senders<'a>(
    metadata: &'a RunMetadata,
    sends: &BTreeMap<TensorKey<'a>, Vec<usize>>,
    receives: &BTreeMap<TensorKey<'a>, Vec<usize>>,
) -> FxHashMap<usize, Sender> {
    let mut logged: BTreeMap<TensorKey<'a>, Vec<(u64, u64)>> = BTreeMap::new();
    for sent in &metadata.sent {
        let fields: Vec<&str> = sent.key.split(';').collect();
        if let [from, _, to, tensor, ..] = fields[..] {
            let times = (sent.requested_ns, sent.sent_ns);
            logged.entry((to, tensor, from)).or_default().push(times);
        }
    }
    logged.values_mut().for_each(|times| times.sort_by_key(|(_, sent)| *sent));
    let mut found = FxHashMap::default();
    for (key, receivers) in receives {
        for (k, &receiver) in receivers.iter().enumerate() {
            let node = sends.get(key).and_then(|sends| sends.get(k)).copied();
            let times = logged.get(key).and_then(|times| times.get(k)).copied();
            found.insert(receiver, Sender { node, times });
        }
    }
    found
}

/// Whether a node's kernel waits for something outside the step.
fn waits(node: &NodeTiming) -> bool {
    let op = node.op.as_str();
    // Received from the client of a partial run.
    op == "_Recv"
        || (op.starts_with("Queue") && (op.contains("Dequeue") || op.contains("Enqueue")))
        || op.contains("AccumulatorTakeGradient")
        || op.starts_with("Barrier")
        || op.starts_with("ReaderRead")
        || matches!(op, "Stage" | "Unstage" | "MutexLock")
        || matches!(op, "ReadFile" | "WriteFile" | "SaveV2" | "RestoreV2" | "MergeV2Checkpoints")
}

/// The row of each span within its device: those of a thread are in one as long as each lies within another or
/// beside it.
fn lanes(drafts: &[Draft]) -> Vec<u32> {
    let class = |kind: SpanKind| match kind {
        SpanKind::Compute => 0,
        SpanKind::Wait => 1,
        SpanKind::Transfer { .. } => 2,
        SpanKind::Dispatch { .. } => 3,
    };
    let mut groups: BTreeMap<(u32, u32, u32), Vec<usize>> = BTreeMap::new();
    for (i, draft) in drafts.iter().enumerate() {
        let thread = if class(draft.kind) == 0 { draft.thread } else { 0 };
        groups.entry((draft.device, class(draft.kind), thread)).or_default().push(i);
    }
    let mut lanes = vec![0; drafts.len()];
    let mut next = (u32::MAX, 0);
    for ((device, ..), mut group) in groups {
        if next.0 != device {
            next = (device, 0);
        }
        group.sort_by_key(|&i| (drafts[i].start, std::cmp::Reverse(drafts[i].end), i));
        // Of each row, the ends of the spans that are open, the innermost last.
        let mut rows: Vec<Vec<u64>> = Vec::new();
        for i in group {
            let (start, end) = (drafts[i].start, drafts[i].end);
            let fits = |open: &mut Vec<u64>| {
                while open.last().is_some_and(|last| *last <= start) {
                    open.pop();
                }
                open.last().is_none_or(|last| end <= *last)
            };
            let row = rows.iter_mut().position(fits).unwrap_or_else(|| {
                rows.push(Vec::new());
                rows.len() - 1
            });
            rows[row].push(end);
            lanes[i] = next.1 + row as u32;
        }
        next.1 += rows.len() as u32;
    }
    lanes
}

#[cfg(test)]
#[path = "measured_tests.rs"]
mod tests;
