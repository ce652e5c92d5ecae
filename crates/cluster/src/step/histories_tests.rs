//! Random histories of steps over the state machines of master, worker and rendezvous: messages that
//! are late, come twice or get lost with their connection; tasks and masters that crash.

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
use network::{Caller, Message, PartitionId, Random, Shared, Way, end_call, send};

/// How many histories are played, and the steps of each.
const HISTORIES: u64 = 12_000;
const STEPS: u64 = 5;

/// A tensor between two partitions. It is sent once some of the earlier ones to the sender are there.
struct Edge {
    from: usize,
    to: usize,
    key: RendezvousKey,
    /// What it carries: whose it is.
    mark: [u64; 3],
    needs: Vec<usize>,
}

/// One start of a task.
struct Incarnation {
    worker: Worker,
    member: Arc<Member>,
    recent: RecentIds,
    /// Running partitions, by step.
    partitions: FxHashMap<u64, RunningPartition>,
    /// Tensors that others ask for, by call; and whether they were told.
    asked: FxHashMap<u64, Vec<(TensorRequest, Arc<AtomicBool>)>>,
}

struct RunningPartition {
    table: Arc<TaskRendezvous>,
    received: BTreeSet<usize>,
    sent: BTreeSet<usize>,
    /// Edges that are about to be sent or have been.
    begun: BTreeSet<usize>,
}

struct Master {
    machine: MasterStep,
    edges: Arc<Vec<Edge>>,
    /// The starts of the tasks that it knew when it made its plan.
    lives: Vec<u64>,
    results: Vec<Result<()>>,
    is_over: bool,
    /// Gone with the master.
    connection: Option<Arc<()>>,
}

/// What was seen over all histories.
#[derive(Default, Debug)]
struct Seen {
    good: usize,
    failed: usize,
    crashed: usize,
    tensors: usize,
}

struct World {
    random: Random,
    task_options: TaskOptions,
    network: Shared,
    lives: Vec<Incarnation>,
    masters: FxHashMap<u64, Master>,
    /// Which partitions ran, in any start of their task.
    ran: Vec<PartitionId>,
    seen: Seen,
}

fn lost(task: usize) -> Error {
    err!(Unavailable, "task {task} is lost")
}

impl World {
    fn new(seed: u64, task_options: &TaskOptions) -> World {
        let mut world = World {
            random: Random(seed),
            task_options: task_options.clone(),
            network: Shared::default(),
            lives: Vec::new(),
            masters: FxHashMap::default(),
            ran: Vec::new(),
            seen: Seen::default(),
        };
        for task in 0..2 + world.random.below(3) {
            let life = world.live(task);
            world.lives.push(life);
        }
        world
    }

    fn live(&mut self, task: usize) -> Incarnation {
        let options =
            TaskOptions { job: "w".into(), index: task as u32, ..self.task_options.clone() };
        let ops = OpRegistry::new([]).unwrap();
        let mut made = Task::new(options, ops, KernelRegistry::new([]));
        // Few values, so that one task's may be another's too; never one that the task had.
        made.incarnation = 1 + self.lives.get(task).map_or(0, Incarnation::number);
        let way: Arc<dyn Transport> = Arc::new(Way { network: self.network.clone(), from: task });
        let member = Member::with(Arc::new(made), ClusterSpec::default(), Some(way));
        Incarnation {
            worker: Worker::new(member.clone()),
            member,
            recent: RecentIds::default(),
            partitions: FxHashMap::default(),
            asked: FxHashMap::default(),
        }
    }

    /// A master makes a plan for a step and begins it.
    fn begin(&mut self, step: u64) {
        let tasks = self.lives.len();
        let lives: Vec<u64> = self.lives.iter().map(Incarnation::number).collect();
        let device = |task: usize| format!("/job:w/replica:0/task:{task}/device:CPU:0");
        let mut edges: Vec<Edge> = Vec::new();
        for edge in 0..self.random.below(3 * tasks) {
            let (from, to) = (self.random.below(tasks), self.random.below(tasks));
            // Steps use the same names, as the runs of one plan do.
            let life = lives[from];
            let key = format!("{};{life:016x};{};edge_{edge};0:0", device(from), device(to));
            let earlier = (0..edge).filter(|&e| edges[e].to == from).collect::<Vec<_>>();
            let needs = earlier.into_iter().filter(|_| self.random.chance(60)).collect();
            let mark = [step, edge as u64, life];
            edges.push(Edge { from, to, key: RendezvousKey(key.into()), mark, needs });
        }
        let master = Master {
            machine: MasterStep::new(tasks),
            edges: Arc::new(edges),
            lives,
            results: Vec::new(),
            is_over: false,
            connection: Some(Arc::default()),
        };
        self.masters.insert(step, master);
        self.tell(step, Event::Begin);
    }

    /// A master takes note of something, unless it is gone.
    fn tell(&mut self, step: u64, event: Event) {
        let master = self.masters.get_mut(&step).expect("the step has begun");
        if master.connection.is_none() {
            return;
        }
        let mut actions = Actions::new();
        master.machine.on(event, &mut actions);
        for action in actions {
            match action {
                Action::Run(task) => {
                    let life = master.lives[task];
                    send(&self.network, Message::Run { step, task, life });
                }
                Action::GiveUp(task, _) => {
                    let life = master.lives[task];
                    send(&self.network, Message::CallerGone { step, task, life });
                }
                Action::Finish(result) => master.results.push(result),
                Action::Cleanup(task) => send(&self.network, Message::Cleanup { step, task }),
            }
        }
        if !master.results.is_empty() && !std::mem::replace(&mut master.is_over, true) {
            self.tell(step, Event::Over);
        }
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Run { step, task, life } => self.run(PartitionId { step, task, life }),
            Message::CallerGone { step, task, life } => {
                self.caller_gone(PartitionId { step, task, life });
            }
            Message::Ran { step, task, result } => self.tell(step, Event::Answered(task, result)),
            Message::Cleanup { step, task } => {
                let request = pb::CleanupGraphRequest { step_id: step as i64 };
                self.lives[task].worker.cleanup_graph(&request);
            }
            Message::Want { call, to, request } => self.want(call, to, &request),
            Message::Gave { call, result } => {
                if let Some(caller) = end_call(&self.network, call) {
                    (caller.done)(result);
                }
            }
            Message::GiveUp { call, to } => {
                let asked = self.lives[to].asked.remove(&call).unwrap_or_default();
                let unanswered = asked.iter().filter(|(_, told)| !told.load(Ordering::Relaxed));
                unanswered.for_each(|(asked, _)| asked.give_up());
            }
            Message::Sends { partition, edge } => self.sends(partition, edge),
            Message::Received { partition, edge, result } => self.received(partition, edge, result),
            Message::Ends { partition, error } => self.ends(partition, error),
        }
    }

    /// A request to run a partition arrives. Another start of the task knows nothing of its session.
    fn run(&mut self, partition: PartitionId) {
        let PartitionId { step, task, life } = partition;
        let connection = self.masters[&step].connection.as_ref().map(Arc::downgrade);
        let admitted = self.lives[task].admit(step, life, connection.unwrap_or_default());
        let table = match admitted {
            Ok(table) => table,
            Err(e) => return send(&self.network, Message::Ran { step, task, result: Err(e) }),
        };
        self.ran.push(partition);
        let edges = self.masters[&step].edges.clone();
        let state = RunningPartition {
            table: table.clone(),
            received: BTreeSet::new(),
            sent: BTreeSet::new(),
            begun: BTreeSet::new(),
        };
        self.lives[task].partitions.insert(step, state);
        for (edge, told) in edges.iter().enumerate().filter(|(_, e)| e.to == task) {
            let (network, mark, key) = (self.network.clone(), told.mark, told.key.clone());
            let received = move |value: Result<Value>| {
                let result = value.map(|value| assert_carries(&value, mark, &key));
                send(&network, Message::Received { partition, edge, result });
            };
            table.receive(&told.key, Box::new(received));
        }
        if self.random.chance(5) {
            let error = Some(err!(Internal, "boom"));
            send(&self.network, Message::Ends { partition, error });
        }
        self.go_on(partition);
    }

    /// The partition, while it runs.
    fn partition(&mut self, partition: PartitionId) -> Option<&mut RunningPartition> {
        let life = &mut self.lives[partition.task];
        let is_same = life.number() == partition.life;
        life.partitions.get_mut(&partition.step).filter(|_| is_same)
    }

    /// Sends what can be sent; ends the partition if nothing is left.
    fn go_on(&mut self, id: PartitionId) {
        let (network, edges) = (self.network.clone(), self.masters[&id.step].edges.clone());
        let Some(partition) = self.partition(id) else { return };
        let own = |(edge, e): (usize, &Edge)| (e.from == id.task).then_some(edge);
        for edge in edges.iter().enumerate().filter_map(own) {
            let is_ready = edges[edge].needs.iter().all(|e| partition.received.contains(e));
            if is_ready && partition.begun.insert(edge) {
                send(&network, Message::Sends { partition: id, edge });
            }
        }
        let is_done = |e: &usize| {
            (edges[*e].from != id.task || partition.sent.contains(e))
                && (edges[*e].to != id.task || partition.received.contains(e))
        };
        if (0..edges.len()).all(|edge| is_done(&edge)) {
            send(&network, Message::Ends { partition: id, error: None });
        }
    }

    fn sends(&mut self, id: PartitionId, edge: usize) {
        let edges = self.masters[&id.step].edges.clone();
        let Some(partition) = self.partition(id) else { return };
        let table = partition.table.clone();
        partition.sent.insert(edge);
        let tensor = Tensor::vector(&edges[edge].mark).unwrap();
        match table.send(&edges[edge].key, Value::Tensor(tensor)) {
            Ok(()) => self.go_on(id),
            Err(error) => send(&self.network, Message::Ends { partition: id, error: Some(error) }),
        }
    }

    fn received(&mut self, id: PartitionId, edge: usize, result: Result<()>) {
        let Some(partition) = self.partition(id) else { return };
        match result {
            Ok(()) => {
                assert!(partition.received.insert(edge), "{id:?}: edge {edge} came twice");
                self.seen.tensors += 1;
                self.go_on(id);
            }
            Err(error) => send(&self.network, Message::Ends { partition: id, error: Some(error) }),
        }
    }

    fn ends(&mut self, id: PartitionId, error: Option<Error>) {
        if self.partition(id).is_none() {
            return;
        }
        let life = &mut self.lives[id.task];
        life.partitions.remove(&id.step);
        let is_forgotten = life.member.steps.finished_whole(id.step, error.clone());
        let rest = if is_forgotten { Cleanup::Done } else { Cleanup::Needed };
        let result = error.map_or(Ok(rest), Err);
        send(&self.network, Message::Ran { step: id.step, task: id.task, result });
    }

    fn caller_gone(&mut self, id: PartitionId) {
        let Some(partition) = self.partition(id) else { return };
        let gone = err!(Cancelled, "the master is gone");
        let table = partition.table.clone();
        table.abort(&gone);
        send(&self.network, Message::Ends { partition: id, error: Some(gone) });
    }

    /// A task is asked for a tensor, by somebody who may have given up already.
    fn want(&mut self, call: u64, to: usize, request: &pb::RecvTensorRequest) {
        let is_awaited = self.network.lock().calls.contains_key(&call);
        let network = self.network.clone();
        let life = &mut self.lives[to];
        let asked = match life.worker.tensor_request(request) {
            Ok(asked) => asked,
            Err(e) => return send(&network, Message::Gave { call, result: Err(e) }),
        };
        let told = Arc::new(AtomicBool::new(false));
        let tells = told.clone();
        asked.receive(&request.rendezvous_key, move |result| {
            tells.store(true, Ordering::Relaxed);
            send(&network, Message::Gave { call, result });
        });
        match (told.load(Ordering::Relaxed), is_awaited) {
            (true, _) => {}
            (false, true) => life.asked.entry(call).or_default().push((asked, told)),
            (false, false) => asked.give_up(),
        }
    }

    /// A connection breaks with a request on it: both sides learn that, neither what the other has.
    fn lose(&mut self, message: &Message) {
        match *message {
            Message::Run { step, task, life } => {
                send(&self.network, Message::Ran { step, task, result: Err(lost(task)) });
                send(&self.network, Message::CallerGone { step, task, life });
            }
            Message::Want { call, to, .. } => {
                send(&self.network, Message::Gave { call, result: Err(lost(to)) });
            }
            _ => {}
        }
    }

    /// All that a task had is gone; calls to it and of it end.
    fn crash(&mut self, task: usize) {
        let next = self.live(task);
        let old = std::mem::replace(&mut self.lives[task], next);
        let (from, to) = {
            let network = self.network.lock();
            let of = |which: fn(&Caller) -> usize| {
                let calls = network.calls.iter().filter(|(_, c)| which(c) == task);
                let mut calls: Vec<u64> = calls.map(|(&call, _)| call).collect();
                calls.sort_unstable();
                calls
            };
            (of(|c| c.from), of(|c| c.to))
        };
        // Nobody is there any more to be answered.
        from.iter().for_each(|&call| drop(end_call(&self.network, call)));
        for call in to {
            send(&self.network, Message::Gave { call, result: Err(lost(task)) });
        }
        let mut steps: Vec<u64> = self.masters.keys().copied().collect();
        steps.sort_unstable();
        for step in steps {
            send(&self.network, Message::Ran { step, task, result: Err(lost(task)) });
        }
        drop(old);
    }

    /// A master is gone; its connections to the tasks end.
    fn crash_master(&mut self, step: u64) {
        let master = self.masters.get_mut(&step).expect("the step has begun");
        if master.connection.take().is_some() && !master.is_over {
            self.seen.crashed += 1;
            for (task, &life) in master.lives.iter().enumerate() {
                send(&self.network, Message::CallerGone { step, task, life });
            }
        }
    }

    /// Delivers messages in any order, some of them twice or not at all, until there are none.
    fn play(&mut self) {
        let mut begun = 0;
        loop {
            let count = self.network.lock().on_way.len();
            if begun < STEPS && (count == 0 || self.random.chance(15)) {
                begun += 1;
                self.begin(begun);
                continue;
            }
            if count == 0 {
                return;
            }
            if self.random.below(500) == 0 {
                let task = self.random.below(self.lives.len());
                self.crash(task);
            }
            if begun > 0 && self.random.below(1000) == 0 {
                let step = 1 + self.random.below(begun as usize) as u64;
                self.crash_master(step);
            }
            let at = self.random.below(count);
            let message = self.network.lock().on_way.swap_remove(at);
            if message.travels() && self.random.chance(2) {
                send(&self.network, message.clone());
            }
            let breaks = matches!(message, Message::Run { .. } | Message::Want { .. });
            match breaks && self.random.below(200) == 0 {
                true => self.lose(&message),
                false => self.deliver(message),
            }
        }
    }

    /// Tasks forget the steps of masters that have been gone for long; what that brings about.
    fn sweep(&mut self) {
        for now in [0, 100] {
            for life in &self.lives {
                let limit = Duration::from_secs(10);
                life.member.steps.forget_orphans(Duration::from_secs(now), limit);
            }
        }
        loop {
            let Some(message) = self.network.lock().on_way.pop() else { return };
            self.deliver(message);
        }
    }

    fn check(&mut self, seed: u64) {
        for (step, master) in &self.masters {
            if master.connection.is_none() && !master.is_over {
                continue;
            }
            let [result] = &master.results[..] else {
                panic!("seed {seed}: step {step} ended {} times", master.results.len())
            };
            let ran = self.ran.iter().filter(|partition| partition.step == *step).count();
            match result {
                Ok(()) => {
                    assert_eq!(ran, master.lives.len(), "seed {seed}: partitions of step {step}");
                    self.seen.good += 1;
                }
                Err(_) => self.seen.failed += 1,
            }
        }
        let mut ran: Vec<(u64, usize)> = self.ran.iter().map(|p| (p.step, p.task)).collect();
        ran.sort_unstable();
        let twice = ran.windows(2).find(|w| w[0] == w[1]);
        assert_eq!(twice, None, "seed {seed}: a step and task that ran it twice");
        for (task, life) in self.lives.iter().enumerate() {
            assert!(life.partitions.is_empty(), "seed {seed}: a partition hangs on task {task}");
            assert_eq!(life.member.steps.len(), 0, "seed {seed}: task {task} keeps steps");
        }
        let mut network = self.network.lock();
        assert_eq!(network.calls.len(), 0, "seed {seed}: a call has no answer");
        let links = std::mem::take(&mut network.links);
        drop(network);
        drop(links);
    }
}

impl Incarnation {
    /// Which of its task's starts it is.
    fn number(&self) -> u64 {
        self.member.task.incarnation
    }

    /// As [`Worker`] takes requests to run a partition.
    fn admit(&mut self, step: u64, life: u64, connection: Weak<()>) -> Result<Arc<TaskRendezvous>> {
        if self.number() != life {
            return Err(err!(Aborted, "Session handle is not found"));
        }
        if !self.recent.insert(step as i64) {
            return Err(err!(Aborted, "the same request came twice"));
        }
        match self.member.steps.run(step, false, Some(connection))? {
            Admitted::Begins(table) => Ok(table),
            Admitted::Joins(_) => panic!("step {step} joins a whole step"),
        }
    }
}

/// What answers a question must be what was asked for: of the step, the edge and the start.
fn assert_carries(value: &Value, mark: [u64; 3], key: &RendezvousKey) {
    let Value::Tensor(tensor) = value else { panic!("{key:?} is no tensor") };
    assert_eq!(tensor.as_slice::<u64>().unwrap(), mark, "another's tensor for {key:?}");
}

#[test]
fn no_step_hangs_or_runs_twice_or_gets_anothers_tensor() {
    let options = TaskOptions::default();
    let mut seen = Seen::default();
    for seed in 0..HISTORIES {
        let mut world = World::new(seed, &options);
        world.play();
        world.sweep();
        world.check(seed);
        seen.good += world.seen.good;
        seen.failed += world.seen.failed;
        seen.crashed += world.seen.crashed;
        seen.tensors += world.seen.tensors;
    }
    // Enough of each kind, or the histories say little.
    let steps = (HISTORIES * STEPS) as usize;
    assert!(seen.good > steps / 4 && seen.failed > steps / 10, "{seen:?}");
    assert!(seen.crashed > steps / 1000 && seen.tensors > steps, "{seen:?}");
}
