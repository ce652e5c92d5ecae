//! One step of a plan in virtual time: discrete events over the plan's partitions.
//!
//! A device runs one kernel at a time, in the order in which they became ready. A link between two tasks,
//! or between two devices of one, carries one tensor at a time in each direction; a tensor arrives a
//! latency after its last byte was sent. The partitions of other tasks start when the master's request
//! has reached them, and the step ends when their answers are back.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use thalweg_graph::{Endpoint, Graph, Node, NodeId, Role};
use thalweg_kernel::{DeviceDescription, DeviceSpec};
use thalweg_plan::{CostSource, Links, Partition, state_bytes};
use thalweg_tensor::{DType, Result, err};

use crate::timeline::{Span, SpanKind, Timeline};

/// Factors on the speeds of devices and links.
#[derive(Clone, Debug, Default)]
pub struct Factors {
    /// By position of the device: how much faster than described; 1 where missing.
    pub devices: BTreeMap<u32, f64>,
    /// By positions of the sending and the receiving device's tasks: how much faster.
    pub links: BTreeMap<(u32, u32), f64>,
    /// How much faster all other links are; 0 means as described.
    pub all_links: f64,
}

impl Factors {
    /// Devices and links that are as much faster.
    pub(crate) fn apply(
        &self,
        devices: &[DeviceDescription],
        links: &Links,
    ) -> (Vec<DeviceDescription>, Links) {
        let (mut devices, mut links) = (devices.to_vec(), links.clone());
        for (i, factor) in &self.devices {
            let Some(device) = devices.get_mut(*i as usize) else { continue };
            device.flops_per_second *= factor;
            device.memory_bytes_per_second *= factor;
            device.start_seconds /= factor;
        }
        let numbers = task_numbers(&devices);
        let faster = |(latency, rate): (f64, f64), factor: f64| (latency / factor, rate * factor);
        let task = |number: u32| {
            let device = numbers.iter().position(|&t| t == number)?;
            let name = &devices[device].name;
            let (job, task) = (Some(name.job.clone()), Some(name.task));
            Some((DeviceSpec { job, task, ..DeviceSpec::default() }, name))
        };
        let single = self.links.iter().filter_map(|(&(from, to), &factor)| {
            let ((from, a), (to, b)) = (task(from)?, task(to)?);
            Some((from, to, faster(links.between(a, b), factor)))
        });
        let single: Vec<_> = single.collect();
        if self.all_links > 0.0 {
            links.between_tasks = faster(links.between_tasks, self.all_links);
            for (.., link) in &mut links.exceptions {
                *link = faster(*link, self.all_links);
            }
        }
        links.exceptions.extend(single);
        (devices, links)
    }
}

/// For each device, a number of its task; the first device's is 0.
fn task_numbers(devices: &[DeviceDescription]) -> Vec<u32> {
    let mut numbers = FxHashMap::default();
    let number = |d: &DeviceDescription| {
        let next = numbers.len() as u32;
        *numbers.entry((d.name.job.clone(), d.name.replica, d.name.task)).or_insert(next)
    };
    devices.iter().map(number).collect()
}

/// A played step.
#[derive(Clone, Debug)]
pub struct PlayedStep {
    /// What ran, and when.
    pub timeline: Timeline,
    /// For each device, the most bytes that its tensors took at once, with its variables.
    pub peak_memory_bytes: Vec<u64>,
}

/// A plan prepared to be played any number of times.
pub struct StepProgram {
    devices: Vec<DeviceDescription>,
    names: Vec<Arc<str>>,
    /// For each device, a number of its task; the client's is 0.
    tasks: Vec<u32>,
    links: Links,
    nodes: Vec<SimNode>,
    /// Bytes of the variables of each device.
    state_bytes: Vec<u64>,
}

/// A node of a partition.
struct SimNode {
    name: Arc<str>,
    op: Arc<str>,
    device: u32,
    seconds: f64,
    /// Edges that must be fulfilled before it is ready.
    pending: u32,
    successors: Vec<u32>,
    /// Bytes of its outputs that other nodes read.
    output_bytes: u64,
    /// The nodes whose outputs it reads, once for each edge.
    inputs: Vec<u32>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Compute,
    /// Sends to the `_Recv` at this position.
    Send {
        receiver: u32,
        bytes: u64,
    },
    /// Receives, or takes a feed.
    Receive,
}

impl StepProgram {
    /// Prepares the partitions of a plan.
    pub fn new(
        partitions: &[Partition],
        devices: &[DeviceDescription],
        links: &Links,
        costs: &dyn CostSource,
    ) -> Result<StepProgram> {
        let mut program = StepProgram {
            tasks: task_numbers(devices),
            names: devices.iter().map(|d| d.name.to_string().into()).collect(),
            devices: devices.to_vec(),
            links: links.clone(),
            nodes: Vec::new(),
            state_bytes: vec![0; devices.len()],
        };
        let mut transfers = Transfers::default();
        for partition in partitions {
            let device = devices.iter().position(|d| d.name == partition.device);
            let device = device
                .ok_or_else(|| err!(Internal, "the plan has a device {}", partition.device))?;
            program.add(&partition.graph, device as u32, costs, &mut transfers);
        }
        for (key, (send, bytes)) in &transfers.sends {
            let Some(&receiver) = transfers.receives.get(key) else { continue };
            program.nodes[*send as usize].kind = Kind::Send { receiver, bytes: *bytes };
            program.nodes[receiver as usize].pending += 1;
        }
        Ok(program)
    }

    fn add(
        &mut self,
        graph: &Graph,
        device: u32,
        costs: &dyn CostSource,
        transfers: &mut Transfers,
    ) {
        let base = self.nodes.len() as u32;
        let description = &self.devices[device as usize];
        for id in graph.ids() {
            let node = graph.node(id);
            let transfer = node.role().is_transfer();
            let cost = costs.cost(graph, id, description);
            let forward = node.predecessors().filter(|&s| !graph.is_back_edge(s, node));
            let (mut pending, position) = (forward.count() as u32, base + id.0);
            if node.role() == Role::Merge {
                // Whichever input is alive starts it.
                pending = pending.min(1);
            }
            if transfer && let Some(key) = transfer_key(node) {
                let bytes = node.inputs.first().map_or(0, |&e| costs.tensor_bytes(graph, e));
                match node.role() {
                    Role::Send => drop(transfers.sends.insert(key, (position, bytes))),
                    _ => drop(transfers.receives.insert(key, position)),
                }
            }
            let inputs = node.inputs.iter().map(|e| base + e.node.0);
            self.nodes.push(SimNode {
                name: node.name.clone(),
                op: node.op.name.as_str().into(),
                device,
                seconds: if transfer { 0.0 } else { cost.seconds },
                pending,
                successors: Vec::new(),
                output_bytes: held_bytes(graph, costs, id),
                inputs: inputs.collect(),
                kind: if node.role() == Role::Recv { Kind::Receive } else { Kind::Compute },
            });
            self.state_bytes[device as usize] += state_bytes(node);
        }
        for id in graph.ids() {
            let node = graph.node(id);
            for source in node.predecessors().filter(|&s| !graph.is_back_edge(s, node)) {
                self.nodes[(base + source.0) as usize].successors.push(base + id.0);
            }
        }
    }

    /// The devices.
    pub fn devices(&self) -> &[DeviceDescription] {
        &self.devices
    }

    /// The number of a device's task, as [`Factors`] has it.
    pub fn task_of(&self, device: u32) -> u32 {
        self.tasks.get(device as usize).copied().unwrap_or(0)
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is nothing to play.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Plays the step.
    pub fn play(&self, factors: &Factors) -> PlayedStep {
        Player::new(self, factors).play()
    }

    fn link(&self, from: u32, to: u32, factors: &Factors) -> (f64, f64) {
        let (a, b) = (&self.devices[from as usize].name, &self.devices[to as usize].name);
        let (latency, rate) = self.links.between(a, b);
        let tasks = (self.task_of(from), self.task_of(to));
        let all = if factors.all_links > 0.0 { factors.all_links } else { 1.0 };
        let factor = factors.links.get(&tasks).copied().unwrap_or(all);
        (latency / factor, rate * factor)
    }
}

/// The name and the devices of a tensor that is sent.
type TransferKey = (Arc<str>, Arc<str>, Arc<str>);

#[derive(Default)]
struct Transfers {
    /// Position of the `_Send`, and the size.
    sends: BTreeMap<TransferKey, (u32, u64)>,
    receives: BTreeMap<TransferKey, u32>,
}

/// The key of a transfer between devices; none for feeds and fetches.
fn transfer_key(node: &Node) -> Option<TransferKey> {
    let attrs = node.attrs();
    if attrs.bool("client_terminated").unwrap_or(false) {
        return None;
    }
    let text = |name| attrs.string(name).ok().map(Arc::from);
    Some((text("tensor_name")?, text("send_device")?, text("recv_device")?))
}

fn held_bytes(graph: &Graph, costs: &dyn CostSource, id: NodeId) -> u64 {
    let node = graph.node(id);
    let is_held = |index: &u32| {
        let output = &node.outputs[*index as usize];
        !output.is_ref && output.dtype != DType::Resource
    };
    let outputs = (0..node.outputs.len() as u32).filter(is_held);
    outputs.map(|index| costs.tensor_bytes(graph, Endpoint { node: id, index })).sum()
}

/// Something that happens at a time; the number decides among equal times.
#[derive(Clone, Copy)]
struct Event {
    at: f64,
    number: u64,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    /// The nodes without inputs of a task's devices become ready.
    Begin(u32),
    /// A node ends.
    End(u32),
    /// A tensor arrives: its `_Recv`, and the span of the transfer.
    Arrive(u32, u32),
}

impl Ord for Event {
    fn cmp(&self, other: &Event) -> Ordering {
        self.at.total_cmp(&other.at).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

struct Player<'a> {
    program: &'a StepProgram,
    factors: &'a Factors,
    now: f64,
    events: BinaryHeap<Reverse<Event>>,
    next_number: u64,
    pending: Vec<u32>,
    /// For each node, the span that made it ready, and when.
    ready: Vec<(f64, Option<u32>)>,
    /// For each node that has run, its span.
    span_of: Vec<Option<u32>>,
    queues: Vec<VecDeque<u32>>,
    is_busy: Vec<bool>,
    /// When each link has sent what it has, by tasks, or by devices within one task.
    link_free: BTreeMap<(u32, u32, bool), f64>,
    spans: Vec<Span>,
    memory: Vec<u64>,
    peak: Vec<u64>,
    readers: Vec<u32>,
    /// When the last answer of another task is back.
    end: f64,
}

impl<'a> Player<'a> {
    fn new(program: &'a StepProgram, factors: &'a Factors) -> Player<'a> {
        let nodes = program.nodes.len();
        let mut readers = vec![0; nodes];
        program.nodes.iter().flat_map(|n| &n.inputs).for_each(|&i| readers[i as usize] += 1);
        Player {
            program,
            factors,
            now: 0.0,
            events: BinaryHeap::new(),
            next_number: 0,
            pending: program.nodes.iter().map(|n| n.pending).collect(),
            ready: vec![(0.0, None); nodes],
            span_of: vec![None; nodes],
            queues: vec![VecDeque::new(); program.devices.len()],
            is_busy: vec![false; program.devices.len()],
            link_free: BTreeMap::new(),
            spans: Vec::with_capacity(nodes),
            memory: program.state_bytes.clone(),
            peak: program.state_bytes.clone(),
            readers,
            end: 0.0,
        }
    }

    fn play(mut self) -> PlayedStep {
        let tasks = self.program.tasks.iter().copied().max().map_or(0, |t| t + 1);
        for task in 0..tasks {
            let latency = self.dispatch_seconds(task);
            self.push(latency, What::Begin(task));
        }
        while let Some(Reverse(event)) = self.events.pop() {
            self.now = event.at;
            match event.what {
                What::Begin(task) => self.begin(task),
                What::End(node) => self.ended(node),
                What::Arrive(receiver, span) => {
                    self.span_of[receiver as usize] = Some(span);
                    self.fulfil(receiver, Some(span));
                }
            }
        }
        let timeline =
            Timeline { seconds: self.end, devices: self.program.names.clone(), spans: self.spans };
        PlayedStep { timeline, peak_memory_bytes: self.peak }
    }

    fn push(&mut self, at: f64, what: What) {
        self.next_number += 1;
        self.events.push(Reverse(Event { at, number: self.next_number, what }));
    }

    /// The latency of a message between the client's task and another.
    fn dispatch_seconds(&self, task: u32) -> f64 {
        let device = self.program.tasks.iter().position(|&t| t == task);
        match device {
            Some(device) if task != self.program.task_of(0) => {
                self.program.link(0, device as u32, self.factors).0
            }
            _ => 0.0,
        }
    }

    /// Starts the partitions of a task.
    fn begin(&mut self, task: u32) {
        for i in 0..self.program.nodes.len() as u32 {
            let node = &self.program.nodes[i as usize];
            if node.pending == 0 && self.program.task_of(node.device) == task {
                let span = (task != self.program.task_of(0)).then(|| self.dispatched(node.device));
                self.became_ready(i, span.flatten());
            }
        }
    }

    /// The span of the request that started a device's partition.
    fn dispatched(&mut self, device: u32) -> Option<u32> {
        let last = self.spans.last();
        let is_it = |s: &Span| matches!(s.kind, SpanKind::Dispatch { .. }) && s.device == device;
        if last.is_some_and(is_it) {
            return Some(self.spans.len() as u32 - 1);
        }
        let kind = SpanKind::Dispatch { from: 0 };
        self.span(device, ("RunGraph".into(), "".into()), kind, [0.0, 0.0, self.now], None)
    }

    fn span(
        &mut self,
        device: u32,
        (node, op): (Arc<str>, Arc<str>),
        kind: SpanKind,
        [ready, start, end]: [f64; 3],
        cause: Option<u32>,
    ) -> Option<u32> {
        self.spans.push(Span { device, lane: 0, node, op, kind, ready, start, end, cause });
        Some(self.spans.len() as u32 - 1)
    }

    /// One of the edges of a node is fulfilled.
    fn fulfil(&mut self, node: u32, span: Option<u32>) {
        let pending = &mut self.pending[node as usize];
        if *pending == 0 {
            return;
        }
        *pending -= 1;
        if *pending == 0 {
            self.became_ready(node, span);
        }
    }

    fn became_ready(&mut self, i: u32, span: Option<u32>) {
        let node = &self.program.nodes[i as usize];
        self.ready[i as usize] = (self.now, span);
        if node.kind != Kind::Compute || node.seconds == 0.0 {
            self.push(self.now, What::End(i));
            return;
        }
        self.queues[node.device as usize].push_back(i);
        self.start_next(node.device);
    }

    fn start_next(&mut self, device: u32) {
        if self.is_busy[device as usize] {
            return;
        }
        let Some(i) = self.queues[device as usize].pop_front() else { return };
        self.is_busy[device as usize] = true;
        let node = &self.program.nodes[i as usize];
        let factor = self.factors.devices.get(&device).copied().unwrap_or(1.0);
        let end = self.now + node.seconds / factor;
        let (ready, cause) = self.ready[i as usize];
        let names = (node.name.clone(), node.op.clone());
        let span = self.span(device, names, SpanKind::Compute, [ready, self.now, end], cause);
        self.span_of[i as usize] = span;
        self.allocate(device, node.output_bytes);
        self.push(end, What::End(i));
    }

    fn allocate(&mut self, device: u32, bytes: u64) {
        let used = &mut self.memory[device as usize];
        *used = used.saturating_add(bytes);
        self.peak[device as usize] = self.peak[device as usize].max(*used);
    }

    fn free(&mut self, node: u32) {
        let node = &self.program.nodes[node as usize];
        let used = &mut self.memory[node.device as usize];
        *used = used.saturating_sub(node.output_bytes);
    }

    fn ended(&mut self, i: u32) {
        let program = self.program;
        let node = &program.nodes[i as usize];
        // What took no time of its own passes on what made it ready.
        let span = self.span_of[i as usize].or(self.ready[i as usize].1);
        if node.kind != Kind::Compute {
            self.allocate(node.device, node.output_bytes);
        }
        if let Kind::Send { receiver, bytes } = node.kind {
            self.send(i, receiver, bytes, span);
        }
        for &input in &node.inputs {
            let left = &mut self.readers[input as usize];
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.free(input);
            }
        }
        if self.readers[i as usize] == 0 {
            self.free(i);
        }
        for &next in &node.successors {
            self.fulfil(next, span);
        }
        let answer = self.dispatch_seconds(program.task_of(node.device));
        self.end = self.end.max(self.now + answer);
        if node.kind == Kind::Compute && node.seconds != 0.0 {
            self.is_busy[node.device as usize] = false;
            self.start_next(node.device);
        }
    }

    fn send(&mut self, i: u32, receiver: u32, bytes: u64, cause: Option<u32>) {
        let program = self.program;
        let (from, to) =
            (program.nodes[i as usize].device, program.nodes[receiver as usize].device);
        let (latency, rate) = program.link(from, to, self.factors);
        let is_near = program.task_of(from) == program.task_of(to);
        let key = match is_near {
            true => (from, to, true),
            false => (program.task_of(from), program.task_of(to), false),
        };
        let free = self.link_free.entry(key).or_default();
        let start = free.max(self.now);
        *free = start + bytes as f64 / rate;
        let end = *free + latency;
        let node = &program.nodes[receiver as usize];
        let names = (node.name.clone(), node.op.clone());
        let times = [self.now, start, end];
        let span = self.span(to, names, SpanKind::Transfer { from, bytes }, times, cause);
        if let Some(span) = span {
            self.push(end, What::Arrive(receiver, span));
        }
    }
}
