//! Random histories of steps over the state machines of master, worker and rendezvous: messages are reordered,
//! duplicated or lost with their connection; tasks and masters crash.

mod network;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustc_hash::FxHashMap;
use thalweg_graph::OpRegistry;
use thalweg_kernel::{KernelRegistry, Rendezvous, RendezvousKey, Value};
use thalweg_proto as pb;
use thalweg_tensor::{Error, Result, Tensor, err};

use crate::cluster_spec::ClusterSpec;
use crate::master::step::{Action, Actions, Cleanup, Event, MasterStep};
use crate::member::Member;
use crate::network::transport::Transport;
use crate::step::Admitted;
use crate::step::recent_ids::RecentIds;
use crate::step::rendezvous::TaskRendezvous;
use crate::task::{Task, TaskOptions};
use crate::worker::{TensorRequest, Worker};
use network::{Message, PartitionId, PendingCall, Rng, Shared, TestTransport, end_call, send};

/// Number of histories, and the number of steps of each.
const HISTORIES: u64 = 12_000;
const STEPS: u64 = 5;

/// A tensor that one partition sends to another, once the sender has received the edges in `needs`.
struct Edge {
    from: usize,
    to: usize,
    key: RendezvousKey,
    /// Elements of the tensor: step, edge and incarnation of the sender.
    content: [u64; 3],
    needs: Vec<usize>,
}

/// One incarnation of a task.
struct Incarnation {
    worker: Worker,
    member: Arc<Member>,
    recent: RecentIds,
    /// Running partitions, by step.
    partitions: FxHashMap<u64, RunningPartition>,
    /// `RecvTensor` requests of other tasks, by call, and whether each was answered.
    requested: FxHashMap<u64, Vec<(TensorRequest, Arc<AtomicBool>)>>,
}

struct RunningPartition {
    table: Arc<TaskRendezvous>,
    received: BTreeSet<usize>,
    sent: BTreeSet<usize>,
    /// Edges whose send has been scheduled or is done.
    started: BTreeSet<usize>,
}

struct Master {
    machine: MasterStep,
    edges: Arc<Vec<Edge>>,
    /// The incarnations of the tasks when the plan was made.
    tasks: Vec<u64>,
    results: Vec<Result<()>>,
    has_ended: bool,
    /// Dropped when the master crashes.
    connection: Option<Arc<()>>,
}

/// Totals over all histories.
#[derive(Default, Debug)]
struct Counts {
    succeeded: usize,
    failed: usize,
    crashed: usize,
    tensors: usize,
}

struct World {
    rng: Rng,
    task_options: TaskOptions,
    network: Shared,
    tasks: Vec<Incarnation>,
    masters: FxHashMap<u64, Master>,
    /// The partitions that ran, on any incarnation of their task.
    ran: Vec<PartitionId>,
    counts: Counts,
}

fn task_lost(task: usize) -> Error {
    err!(Unavailable, "task {task} is lost")
}

impl World {
    fn new(seed: u64, task_options: &TaskOptions) -> World {
        let mut world = World {
            rng: Rng(seed),
            task_options: task_options.clone(),
            network: Shared::default(),
            tasks: Vec::new(),
            masters: FxHashMap::default(),
            ran: Vec::new(),
            counts: Counts::default(),
        };
        for task in 0..2 + world.rng.below(3) {
            let incarnation = world.start_task(task);
            world.tasks.push(incarnation);
        }
        world
    }

    fn start_task(&mut self, task: usize) -> Incarnation {
        let options =
            TaskOptions { job: "w".into(), index: task as u32, ..self.task_options.clone() };
        let ops = OpRegistry::new([]).unwrap();
        let mut made = Task::new(options, ops, KernelRegistry::new([]));
        // Small numbers, so that tasks share them; a task never has the same incarnation twice.
        made.incarnation = 1 + self.tasks.get(task).map_or(0, Incarnation::number);
        let transport: Arc<dyn Transport> =
            Arc::new(TestTransport { network: self.network.clone(), from: task });
        let member =
            Member::with_transport(Arc::new(made), ClusterSpec::default(), Some(transport));
        Incarnation {
            worker: Worker::new(member.clone()),
            member,
            recent: RecentIds::default(),
            partitions: FxHashMap::default(),
            requested: FxHashMap::default(),
        }
    }

    /// A master plans a step and begins it.
    fn begin(&mut self, step: u64) {
        let task_count = self.tasks.len();
        let tasks: Vec<u64> = self.tasks.iter().map(Incarnation::number).collect();
        let device = |task: usize| format!("/job:w/replica:0/task:{task}/device:CPU:0");
        let mut edges: Vec<Edge> = Vec::new();
        for edge in 0..self.rng.below(3 * task_count) {
            let (from, to) = (self.rng.below(task_count), self.rng.below(task_count));
            // Steps use the same names, as the runs of one plan do.
            let incarnation = tasks[from];
            let key = format!("{};{incarnation:016x};{};edge_{edge};0:0", device(from), device(to));
            let earlier = (0..edge).filter(|&e| edges[e].to == from).collect::<Vec<_>>();
            let needs = earlier.into_iter().filter(|_| self.rng.chance(60)).collect();
            let content = [step, edge as u64, incarnation];
            edges.push(Edge { from, to, key: RendezvousKey(key.into()), content, needs });
        }
        let master = Master {
            machine: MasterStep::new(task_count),
            edges: Arc::new(edges),
            tasks,
            results: Vec::new(),
            has_ended: false,
            connection: Some(Arc::default()),
        };
        self.masters.insert(step, master);
        self.handle(step, Event::Begin);
    }

    /// Passes an event to the master of a step, unless that master has crashed.
    fn handle(&mut self, step: u64, event: Event) {
        let master = self.masters.get_mut(&step).expect("the step has begun");
        if master.connection.is_none() {
            return;
        }
        let mut actions = Actions::new();
        master.machine.handle(event, &mut actions);
        for action in actions {
            match action {
                Action::Run(task) => {
                    let incarnation = master.tasks[task];
                    send(&self.network, Message::RunGraph { step, task, incarnation });
                }
                Action::CancelCall(task, _) => {
                    let incarnation = master.tasks[task];
                    send(&self.network, Message::CancelRunGraph { step, task, incarnation });
                }
                Action::Finish(result) => master.results.push(result),
                Action::Cleanup(task) => send(&self.network, Message::Cleanup { step, task }),
            }
        }
        if !master.results.is_empty() && !std::mem::replace(&mut master.has_ended, true) {
            self.handle(step, Event::StepEnded);
        }
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::RunGraph { step, task, incarnation } => {
                self.run(PartitionId { step, task, incarnation });
            }
            Message::CancelRunGraph { step, task, incarnation } => {
                self.cancel_run_graph(PartitionId { step, task, incarnation });
            }
            Message::RunGraphDone { step, task, result } => {
                self.handle(step, Event::RunGraphDone(task, result));
            }
            Message::Cleanup { step, task } => {
                let request = pb::CleanupGraphRequest { step_id: step as i64 };
                self.tasks[task].worker.cleanup_graph(&request);
            }
            Message::RecvTensor { call, to, request } => self.recv_tensor(call, to, &request),
            Message::RecvTensorDone { call, result } => {
                if let Some(caller) = end_call(&self.network, call) {
                    (caller.done)(result);
                }
            }
            Message::CancelRecvTensor { call, to } => {
                let requested = self.tasks[to].requested.remove(&call).unwrap_or_default();
                let unanswered = requested
                    .iter()
                    .filter(|(_, is_answered)| !is_answered.load(Ordering::Relaxed));
                unanswered.for_each(|(requested, _)| requested.cancel());
            }
            Message::Send { partition, edge } => self.send_tensor(partition, edge),
            Message::TensorReceived { partition, edge, result } => {
                self.received(partition, edge, result);
            }
            Message::PartitionEnded { partition, error } => self.end_partition(partition, error),
        }
    }

    /// A `RunGraph` arrives. Another incarnation of the task does not have its session.
    fn run(&mut self, partition: PartitionId) {
        let PartitionId { step, task, incarnation } = partition;
        let connection = self.masters[&step].connection.as_ref().map(Arc::downgrade);
        let admitted = self.tasks[task].admit(step, incarnation, connection.unwrap_or_default());
        let table = match admitted {
            Ok(table) => table,
            Err(e) => {
                return send(&self.network, Message::RunGraphDone { step, task, result: Err(e) });
            }
        };
        self.ran.push(partition);
        let edges = self.masters[&step].edges.clone();
        let state = RunningPartition {
            table: table.clone(),
            received: BTreeSet::new(),
            sent: BTreeSet::new(),
            started: BTreeSet::new(),
        };
        self.tasks[task].partitions.insert(step, state);
        for (edge, incoming) in edges.iter().enumerate().filter(|(_, e)| e.to == task) {
            let (network, content, key) =
                (self.network.clone(), incoming.content, incoming.key.clone());
            let received = move |value: Result<Value>| {
                let result = value.map(|value| assert_content(&value, content, &key));
                send(&network, Message::TensorReceived { partition, edge, result });
            };
            table.receive(&incoming.key, Box::new(received));
        }
        if self.rng.chance(5) {
            let error = Some(err!(Internal, "boom"));
            send(&self.network, Message::PartitionEnded { partition, error });
        }
        self.advance(partition);
    }

    /// The partition, while it runs.
    fn partition(&mut self, partition: PartitionId) -> Option<&mut RunningPartition> {
        let incarnation = &mut self.tasks[partition.task];
        let is_same = incarnation.number() == partition.incarnation;
        incarnation.partitions.get_mut(&partition.step).filter(|_| is_same)
    }

    /// Schedules the sends whose inputs have arrived; ends the partition if all its edges are done.
    fn advance(&mut self, id: PartitionId) {
        let (network, edges) = (self.network.clone(), self.masters[&id.step].edges.clone());
        let Some(partition) = self.partition(id) else { return };
        let own = |(edge, e): (usize, &Edge)| (e.from == id.task).then_some(edge);
        for edge in edges.iter().enumerate().filter_map(own) {
            let is_ready = edges[edge].needs.iter().all(|e| partition.received.contains(e));
            if is_ready && partition.started.insert(edge) {
                send(&network, Message::Send { partition: id, edge });
            }
        }
        let is_done = |e: &usize| {
            (edges[*e].from != id.task || partition.sent.contains(e))
                && (edges[*e].to != id.task || partition.received.contains(e))
        };
        if (0..edges.len()).all(|edge| is_done(&edge)) {
            send(&network, Message::PartitionEnded { partition: id, error: None });
        }
    }

    fn send_tensor(&mut self, id: PartitionId, edge: usize) {
        let edges = self.masters[&id.step].edges.clone();
        let Some(partition) = self.partition(id) else { return };
        let table = partition.table.clone();
        partition.sent.insert(edge);
        let tensor = Tensor::vector(&edges[edge].content).unwrap();
        match table.send(&edges[edge].key, Value::Tensor(tensor)) {
            Ok(()) => self.advance(id),
            Err(error) => {
                send(&self.network, Message::PartitionEnded { partition: id, error: Some(error) });
            }
        }
    }

    fn received(&mut self, id: PartitionId, edge: usize, result: Result<()>) {
        let Some(partition) = self.partition(id) else { return };
        match result {
            Ok(()) => {
                assert!(partition.received.insert(edge), "{id:?}: edge {edge} was received twice");
                self.counts.tensors += 1;
                self.advance(id);
            }
            Err(error) => {
                send(&self.network, Message::PartitionEnded { partition: id, error: Some(error) });
            }
        }
    }

    fn end_partition(&mut self, id: PartitionId, error: Option<Error>) {
        if self.partition(id).is_none() {
            return;
        }
        let incarnation = &mut self.tasks[id.task];
        incarnation.partitions.remove(&id.step);
        let is_cleaned_up = incarnation.member.steps.finish_and_clean_up(id.step, error.clone());
        let rest = if is_cleaned_up { Cleanup::Done } else { Cleanup::Needed };
        let result = error.map_or(Ok(rest), Err);
        send(&self.network, Message::RunGraphDone { step: id.step, task: id.task, result });
    }

    fn cancel_run_graph(&mut self, id: PartitionId) {
        let Some(partition) = self.partition(id) else { return };
        let cause = err!(Cancelled, "the master disconnected");
        let table = partition.table.clone();
        table.abort(&cause);
        send(&self.network, Message::PartitionEnded { partition: id, error: Some(cause) });
    }

    /// A `RecvTensor` arrives; its caller may have cancelled it already.
    fn recv_tensor(&mut self, call: u64, to: usize, request: &pb::RecvTensorRequest) {
        let is_awaited = self.network.lock().calls.contains_key(&call);
        let network = self.network.clone();
        let incarnation = &mut self.tasks[to];
        let requested = match incarnation.worker.tensor_request(request) {
            Ok(requested) => requested,
            Err(e) => return send(&network, Message::RecvTensorDone { call, result: Err(e) }),
        };
        let is_answered = Arc::new(AtomicBool::new(false));
        let answered = is_answered.clone();
        requested.receive(&request.rendezvous_key, move |result| {
            answered.store(true, Ordering::Relaxed);
            send(&network, Message::RecvTensorDone { call, result });
        });
        match (is_answered.load(Ordering::Relaxed), is_awaited) {
            (true, _) => {}
            (false, true) => {
                incarnation.requested.entry(call).or_default().push((requested, is_answered));
            }
            (false, false) => requested.cancel(),
        }
    }

    /// A connection breaks before it has delivered a request; both sides are notified of the break.
    fn lose_message(&mut self, message: &Message) {
        match *message {
            Message::RunGraph { step, task, incarnation } => {
                send(
                    &self.network,
                    Message::RunGraphDone { step, task, result: Err(task_lost(task)) },
                );
                send(&self.network, Message::CancelRunGraph { step, task, incarnation });
            }
            Message::RecvTensor { call, to, .. } => {
                send(&self.network, Message::RecvTensorDone { call, result: Err(task_lost(to)) });
            }
            _ => {}
        }
    }

    /// A task crashes: its state is dropped, its calls and the calls to it end.
    fn crash(&mut self, task: usize) {
        let next = self.start_task(task);
        let old = std::mem::replace(&mut self.tasks[task], next);
        let (from, to) = {
            let network = self.network.lock();
            let of = |which: fn(&PendingCall) -> usize| {
                let calls = network.calls.iter().filter(|(_, c)| which(c) == task);
                let mut calls: Vec<u64> = calls.map(|(&call, _)| call).collect();
                calls.sort_unstable();
                calls
            };
            (of(|c| c.from), of(|c| c.to))
        };
        // The crashed task receives no answers.
        from.iter().for_each(|&call| drop(end_call(&self.network, call)));
        for call in to {
            send(&self.network, Message::RecvTensorDone { call, result: Err(task_lost(task)) });
        }
        let mut steps: Vec<u64> = self.masters.keys().copied().collect();
        steps.sort_unstable();
        for step in steps {
            send(&self.network, Message::RunGraphDone { step, task, result: Err(task_lost(task)) });
        }
        drop(old);
    }

    /// A master crashes; its connections to the tasks break.
    fn crash_master(&mut self, step: u64) {
        let master = self.masters.get_mut(&step).expect("the step has begun");
        if master.connection.take().is_some() && !master.has_ended {
            self.counts.crashed += 1;
            for (task, &incarnation) in master.tasks.iter().enumerate() {
                send(&self.network, Message::CancelRunGraph { step, task, incarnation });
            }
        }
    }

    /// Delivers messages in a random order, some twice, some not at all, until none is in flight.
    fn deliver_all(&mut self) {
        let mut started = 0;
        loop {
            let count = self.network.lock().in_flight.len();
            if started < STEPS && (count == 0 || self.rng.chance(15)) {
                started += 1;
                self.begin(started);
                continue;
            }
            if count == 0 {
                return;
            }
            if self.rng.below(500) == 0 {
                let task = self.rng.below(self.tasks.len());
                self.crash(task);
            }
            if started > 0 && self.rng.below(1000) == 0 {
                let step = 1 + self.rng.below(started as usize) as u64;
                self.crash_master(step);
            }
            let at = self.rng.below(count);
            let message = self.network.lock().in_flight.swap_remove(at);
            if message.is_remote() && self.rng.chance(2) {
                send(&self.network, message.clone());
            }
            let breaks = matches!(message, Message::RunGraph { .. } | Message::RecvTensor { .. });
            match breaks && self.rng.below(200) == 0 {
                true => self.lose_message(&message),
                false => self.deliver(message),
            }
        }
    }

    /// Tasks clean up the steps of crashed masters; delivers the resulting messages.
    fn sweep(&mut self) {
        for now in [0, 100] {
            for incarnation in &self.tasks {
                let limit = Duration::from_secs(10);
                incarnation.member.steps.clean_up_orphans(Duration::from_secs(now), limit);
            }
        }
        loop {
            let Some(message) = self.network.lock().in_flight.pop() else { return };
            self.deliver(message);
        }
    }

    fn check(&mut self, seed: u64) {
        for (step, master) in &self.masters {
            if master.connection.is_none() && !master.has_ended {
                continue;
            }
            let [result] = &master.results[..] else {
                panic!("seed {seed}: step {step} ended {} times", master.results.len())
            };
            let ran = self.ran.iter().filter(|partition| partition.step == *step).count();
            match result {
                Ok(()) => {
                    assert_eq!(ran, master.tasks.len(), "seed {seed}: partitions of step {step}");
                    self.counts.succeeded += 1;
                }
                Err(_) => self.counts.failed += 1,
            }
        }
        let mut ran: Vec<(u64, usize)> = self.ran.iter().map(|p| (p.step, p.task)).collect();
        ran.sort_unstable();
        let twice = ran.windows(2).find(|w| w[0] == w[1]);
        assert_eq!(twice, None, "seed {seed}: a step and task that ran it twice");
        for (task, incarnation) in self.tasks.iter().enumerate() {
            assert!(
                incarnation.partitions.is_empty(),
                "seed {seed}: a partition still runs on task {task}"
            );
            assert_eq!(incarnation.member.steps.len(), 0, "seed {seed}: task {task} keeps steps");
        }
        let mut network = self.network.lock();
        assert_eq!(network.calls.len(), 0, "seed {seed}: a call has no answer");
        let links = std::mem::take(&mut network.links);
        drop(network);
        drop(links);
    }
}

impl Incarnation {
    /// The incarnation number.
    fn number(&self) -> u64 {
        self.member.task.incarnation
    }

    /// Admits a `RunGraph` as [`Worker`] does.
    fn admit(
        &mut self,
        step: u64,
        incarnation: u64,
        connection: Weak<()>,
    ) -> Result<Arc<TaskRendezvous>> {
        if self.number() != incarnation {
            return Err(err!(Aborted, "Session handle is not found"));
        }
        if !self.recent.insert(step as i64) {
            return Err(err!(Aborted, "duplicate request"));
        }
        match self.member.steps.run(step, false, Some(connection))? {
            Admitted::Starts(table) => Ok(table),
            Admitted::Joins(_) => panic!("step {step} joins a whole step"),
        }
    }
}

/// The received tensor must be of the requested step, edge and incarnation.
fn assert_content(value: &Value, content: [u64; 3], key: &RendezvousKey) {
    let Value::Tensor(tensor) = value else { panic!("{key:?} is no tensor") };
    assert_eq!(tensor.as_slice::<u64>().unwrap(), content, "wrong tensor for {key:?}");
}

#[test]
fn no_step_hangs_runs_twice_or_receives_a_wrong_tensor() {
    let options = TaskOptions::default();
    let mut counts = Counts::default();
    for seed in 0..HISTORIES {
        let mut world = World::new(seed, &options);
        world.deliver_all();
        world.sweep();
        world.check(seed);
        counts.succeeded += world.counts.succeeded;
        counts.failed += world.counts.failed;
        counts.crashed += world.counts.crashed;
        counts.tensors += world.counts.tensors;
    }
    // The histories must cover each outcome often enough.
    let steps = (HISTORIES * STEPS) as usize;
    assert!(counts.succeeded > steps / 4 && counts.failed > steps / 10, "{counts:?}");
    assert!(counts.crashed > steps / 1000 && counts.tensors > steps, "{counts:?}");
}
