//! Tasks that execute partitions of steps in virtual time.
//!
//! Each task has one device, a serial server of nodes, first come, first served, and state of its own.
//! Kernels of small tensors run for real, so that queues, mutexes and accumulators decide who waits;
//! large tensors are ghosts, of which only the size counts. A ghost is [`Value::Dead`], which graphs
//! without control flow do not have.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_kernel::{
    Cancellation, DeviceDescription, DeviceName, KernelOrigin, Outputs, StepContext, StepId, Value,
};
use thalweg_tensor::{Error, Result};

use super::events::{Events, nanoseconds};
use super::network::{Interface, SMALL_BYTES};
use super::program::{Input, Program, Site, StepPlan};
use super::replica::Instance;
use super::tasks::Task;

/// The duration from which on a node is an event of its own, in nanoseconds.
const LONG: u64 = 20_000;
/// How long a device executes nodes within one event.
const SLICE: u64 = 100_000;
/// Bytes of a request that starts a partition, and of its answer.
const REQUEST_BYTES: u64 = 512;

/// A slot of a slab that is used again under another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id {
    pub index: u32,
    pub generation: u32,
}

/// What happens.
pub(super) enum Event {
    /// A task continues with its queue.
    Device { task: u32, epoch: u32 },
    /// The node that a task executes ends.
    Finish { task: u32, epoch: u32 },
    /// The first byte of a large tensor arrives.
    FirstByte { to: u32, bytes: u64, last: u64, payload: Payload },
    /// A message has arrived.
    Arrival(Payload),
    /// A failure is known to the step's master.
    Failed { run: Id, error: Box<Error> },
    /// A time that the caller has asked for.
    Timer(u64),
}

/// What a message carries.
pub(super) enum Payload {
    Tensor { to: Id, node: u32, value: Value },
    Begin(Id),
    PartitionEnded(Id),
}

/// What the caller of [`World::next`] learns.
pub(super) enum Notice {
    /// A step has ended.
    Ended { tag: u64, result: Result<Vec<Value>> },
    /// A step has incremented the global step.
    Updated,
    /// A time that was asked for.
    Timer(u64),
}

/// A step that runs.
struct Run {
    generation: u32,
    live: Option<Live>,
}

struct Live {
    tag: u64,
    plan: Arc<StepPlan>,
    worker: u32,
    /// By how much longer nodes on the worker take.
    factor: f64,
    partitions: Vec<Id>,
    left: u32,
    fetched: Vec<Value>,
    cancellation: Cancellation,
    number: u64,
}

/// A partition, or a call of a function, that runs.
#[derive(Default)]
pub(super) struct Activation {
    generation: u32,
    pub(super) live: Option<Box<Act>>,
    pending: Vec<u32>,
    slots: Vec<Value>,
}

pub(super) struct Act {
    pub run: Id,
    pub program: Arc<Program>,
    pub instance: Arc<Instance>,
    pub task: u32,
    pub remaining: u32,
    pub has_begun: bool,
    pub context: Arc<StepContext>,
    pub caller: Option<Caller>,
    pub args: Vec<Value>,
}

/// The loop that called a function.
pub(super) struct Caller {
    pub act: Id,
    pub node: u32,
    pub is_cond: bool,
}

pub(super) struct Completed {
    pub act: Id,
    pub node: u32,
    pub result: Result<Outputs>,
}

pub(super) struct World {
    pub events: Events<Event>,
    pub tasks: Vec<Task>,
    pub workers: u32,
    runs: Vec<Run>,
    free_runs: Vec<u32>,
    pub(super) acts: Vec<Activation>,
    free_acts: Vec<u32>,
    pub(super) completed: Arc<Mutex<Vec<Completed>>>,
    /// Nodes that take no time and are ready.
    pub(super) light: VecDeque<(Id, u32)>,
    pub(super) notices: VecDeque<Notice>,
    pub(super) origin: KernelOrigin,
    latency: u64,
    steps: u64,
}

/// The tasks of a world.
pub(super) struct Tasks<'a> {
    pub worker: &'a DeviceDescription,
    pub workers: u32,
    pub server: &'a DeviceDescription,
    pub servers: u32,
    pub network: &'a super::Network,
}

impl World {
    pub(super) fn new(tasks: &Tasks<'_>, origin: KernelOrigin) -> World {
        let Tasks { worker, workers, server, servers, network } = tasks;
        let task = |description: &DeviceDescription, job: &str, task, bandwidth| {
            let name = DeviceName::cpu(job, task, 0);
            Task::new(
                DeviceDescription { name, ..description.clone() },
                Interface::new(bandwidth, network.message_seconds),
                &origin,
            )
        };
        let of_workers = (0..*workers).map(|i| task(worker, "worker", i, network.worker_bandwidth));
        let of_servers = (0..*servers).map(|i| task(server, "ps", i, network.server_bandwidth));
        World {
            events: Events::new(),
            tasks: of_workers.chain(of_servers).collect(),
            workers: *workers,
            runs: Vec::new(),
            free_runs: Vec::new(),
            acts: Vec::new(),
            free_acts: Vec::new(),
            completed: Arc::default(),
            light: VecDeque::new(),
            notices: VecDeque::new(),
            latency: nanoseconds(network.latency),
            origin,
            steps: 0,
        }
    }

    /// Position of a parameter server among the tasks.
    pub(super) fn server(&self, ps: u32) -> u32 {
        self.workers + ps
    }

    /// Runs until there is something to tell; `None` if nothing can happen any more.
    pub(super) fn next(&mut self) -> Option<Notice> {
        loop {
            if let Some(notice) = self.notices.pop_front() {
                return Some(notice);
            }
            let event = self.events.next()?;
            let now = self.events.now();
            match event {
                Event::Device { task, epoch } if self.tasks[task as usize].epoch == epoch => {
                    self.advance(task);
                }
                Event::Finish { task, epoch } if self.tasks[task as usize].epoch == epoch => {
                    if let Some((act, node)) = self.tasks[task as usize].current.take() {
                        self.execute(act, node, now);
                        self.settle(now);
                    }
                    self.advance(task);
                }
                Event::Device { .. } | Event::Finish { .. } => {}
                Event::FirstByte { to, bytes, last, payload } => {
                    let there = self.tasks[to as usize].interface.receive(bytes, now, last);
                    self.events.add(there, Event::Arrival(payload));
                }
                Event::Arrival(payload) => self.arrived(payload, now),
                Event::Failed { run, error } => {
                    if let Some(tag) = self.abort(run, &error) {
                        self.notices.push_back(Notice::Ended { tag, result: Err(*error) });
                    }
                }
                Event::Timer(timer) => return Some(Notice::Timer(timer)),
            }
        }
    }

    fn arrived(&mut self, payload: Payload, now: u64) {
        match payload {
            Payload::Tensor { to, node, value } => {
                let Some((act, pending, slots)) = self.parts(to) else { return };
                let received = &act.program.nodes[node as usize];
                slots[received.first_slot as usize] = value;
                pending[node as usize] -= 1;
                if pending[node as usize] == 0 && act.has_begun {
                    self.light.push_back((to, node));
                    self.settle(now);
                }
            }
            Payload::Begin(act) => {
                self.begin(act, now);
                self.settle(now);
            }
            Payload::PartitionEnded(run) => self.partition_ended(run),
        }
    }

    /// Starts a step of a worker; its end comes as a notice with this tag.
    pub(super) fn start(
        &mut self,
        (plan, instance): (&Arc<StepPlan>, &Arc<Instance>),
        worker: u32,
        factor: f64,
        tag: u64,
    ) -> Id {
        let now = self.events.now();
        let index = self.free_runs.pop().unwrap_or_else(|| {
            self.runs.push(Run { generation: 0, live: None });
            self.runs.len() as u32 - 1
        });
        let run = Id { index, generation: self.runs[index as usize].generation };
        self.steps += 1;
        let mut live = Live {
            tag,
            plan: plan.clone(),
            worker,
            factor,
            partitions: Vec::with_capacity(plan.partitions.len()),
            left: plan.partitions.len() as u32,
            fetched: vec![Value::Empty; plan.fetches as usize],
            cancellation: Cancellation::default(),
            number: self.steps,
        };
        let mut begins = Vec::with_capacity(plan.partitions.len());
        for program in &plan.partitions {
            let task = match program.site {
                Site::Worker => worker,
                Site::Ps(ps) => self.server(ps),
            };
            let step_id = StepId { number: live.number, request: 0 };
            let on = &self.tasks[task as usize];
            let (session, device) = (on.session.clone(), on.device.clone());
            let context = StepContext::new(session, device, step_id, live.cancellation.clone());
            let act = Act {
                run,
                program: program.clone(),
                instance: instance.clone(),
                task,
                remaining: program.nodes.len() as u32,
                has_begun: false,
                context: Arc::new(context),
                caller: None,
                args: Vec::new(),
            };
            let act = self.activate(act);
            live.partitions.push(act);
            begins.push((task, act));
        }
        self.runs[index as usize].live = Some(live);
        for (task, act) in begins {
            match task == worker {
                true => self.events.add(now, Event::Arrival(Payload::Begin(act))),
                false => self.send(worker, task, REQUEST_BYTES, now, Payload::Begin(act)),
            }
        }
        if plan.partitions.is_empty() {
            self.end(run);
        }
        run
    }

    /// Sends a message; it is lost if one of the tasks is down.
    pub(super) fn send(&mut self, from: u32, to: u32, bytes: u64, at: u64, payload: Payload) {
        if !self.tasks[from as usize].is_alive || !self.tasks[to as usize].is_alive {
            return;
        }
        let (first, last) = self.tasks[from as usize].interface.send(bytes, at);
        let (first, last) = (first + self.latency, last + self.latency);
        if bytes <= SMALL_BYTES {
            let there = self.tasks[to as usize].interface.receive(bytes, first, last);
            self.events.add(there, Event::Arrival(payload));
        } else {
            self.events.add(first, Event::FirstByte { to, bytes, last, payload });
        }
    }

    pub(super) fn activate(&mut self, act: Act) -> Id {
        let index = self.free_acts.pop().unwrap_or_else(|| {
            self.acts.push(Activation::default());
            self.acts.len() as u32 - 1
        });
        let activation = &mut self.acts[index as usize];
        activation.pending.clear();
        activation.pending.extend_from_slice(&act.program.pending);
        activation.slots.clear();
        activation.slots.resize(act.program.slots as usize, Value::Empty);
        activation.live = Some(Box::new(act));
        Id { index, generation: activation.generation }
    }

    /// A live activation, what its nodes wait for, and its values.
    pub(super) fn parts(&mut self, id: Id) -> Option<(&mut Act, &mut Vec<u32>, &mut Vec<Value>)> {
        let activation = &mut self.acts[id.index as usize];
        if activation.generation != id.generation {
            return None;
        }
        let Activation { live, pending, slots, .. } = activation;
        Some((live.as_deref_mut()?, pending, slots))
    }

    /// Ends an activation; its values are dropped.
    pub(super) fn retire(&mut self, id: Id) -> Option<Box<Act>> {
        let activation = &mut self.acts[id.index as usize];
        if activation.generation != id.generation {
            return None;
        }
        activation.generation += 1;
        let act = activation.live.take();
        let mut slots = std::mem::take(&mut activation.slots);
        self.free_acts.push(id.index);
        // A lock that is dropped here may complete other nodes.
        slots.clear();
        self.acts[id.index as usize].slots = slots;
        act
    }

    /// Starts the nodes of an activation that wait for nothing.
    pub(super) fn begin(&mut self, id: Id, at: u64) {
        let Some((act, pending, _)) = self.parts(id) else { return };
        act.has_begun = true;
        let program = act.program.clone();
        let is_empty = act.remaining == 0;
        let ready: Vec<u32> =
            program.roots.iter().copied().filter(|&n| pending[n as usize] == 0).collect();
        for node in ready {
            self.ready(id, node, at);
        }
        if is_empty {
            self.ended(id, at);
        }
    }

    /// Queues a node for its device, or for now if it takes no time.
    pub(super) fn ready(&mut self, id: Id, node: u32, at: u64) {
        let Some((act, ..)) = self.parts(id) else { return };
        let task = act.task;
        if act.program.nodes[node as usize].is_light() {
            self.light.push_back((id, node));
            return;
        }
        let on = &mut self.tasks[task as usize];
        on.queue.push_back((id, node));
        if !on.is_scheduled {
            on.is_scheduled = true;
            let (time, epoch) = (at.max(on.free_at), on.epoch);
            self.events.add(time, Event::Device { task, epoch });
        }
    }

    /// A device executes what is in its queue.
    fn advance(&mut self, task: u32) {
        let begin = self.events.now();
        let mut cursor = begin;
        loop {
            let on = &mut self.tasks[task as usize];
            let epoch = on.epoch;
            let Some((id, node)) = on.queue.pop_front() else {
                on.is_scheduled = false;
                on.free_at = cursor;
                return;
            };
            let activation = &self.acts[id.index as usize];
            let Some(act) = activation.live.as_deref() else { continue };
            if activation.generation != id.generation {
                continue;
            }
            let (seconds, run) = (act.program.nodes[node as usize].seconds, act.run);
            let is_of_worker = act.program.site == Site::Worker;
            let factor = match (is_of_worker, &self.runs[run.index as usize].live) {
                (true, Some(live)) => live.factor,
                _ => 1.0,
            };
            let cost = nanoseconds(seconds * factor);
            let on = &mut self.tasks[task as usize];
            on.busy += cost;
            cursor += cost;
            if cost > LONG {
                on.current = Some((id, node));
                self.events.add(cursor, Event::Finish { task, epoch });
                return;
            }
            self.execute(id, node, cursor);
            self.settle(cursor);
            if cursor - begin > SLICE {
                self.events.add(cursor, Event::Device { task, epoch });
                return;
            }
        }
    }

    /// A partition, or a function, has run all its nodes.
    pub(super) fn ended(&mut self, id: Id, at: u64) {
        let Some((act, ..)) = self.parts(id) else { return };
        if act.caller.is_some() {
            return self.returned(id, at);
        }
        let (run, task) = (act.run, act.task);
        self.retire(id);
        let worker = self.runs[run.index as usize].live.as_ref().map(|live| live.worker);
        match worker {
            Some(worker) if worker != task => {
                self.send(task, worker, REQUEST_BYTES, at, Payload::PartitionEnded(run));
            }
            _ => self.events.add(at, Event::Arrival(Payload::PartitionEnded(run))),
        }
    }

    fn partition_ended(&mut self, run: Id) {
        let slot = &mut self.runs[run.index as usize];
        if slot.generation != run.generation {
            return;
        }
        if let Some(live) = &mut slot.live {
            live.left -= 1;
            if live.left == 0 {
                self.end(run);
            }
        }
    }

    fn end(&mut self, run: Id) {
        let slot = &mut self.runs[run.index as usize];
        slot.generation += 1;
        if let Some(live) = slot.live.take() {
            self.free_runs.push(run.index);
            self.notices.push_back(Notice::Ended { tag: live.tag, result: Ok(live.fetched) });
        }
    }

    pub(super) fn fetched(&mut self, run: Id, i: u32, value: Value) {
        let live = self.runs[run.index as usize].live.as_mut();
        if let Some(slot) = live.and_then(|live| live.fetched.get_mut(i as usize)) {
            *slot = value;
        }
    }

    pub(super) fn partition_of(&self, run: Id, partition: u32) -> Option<(Id, u32)> {
        let live = self.runs[run.index as usize].live.as_ref()?;
        let to = *live.partitions.get(partition as usize)?;
        let task = match live.plan.partitions[partition as usize].site {
            Site::Worker => live.worker,
            Site::Ps(ps) => self.server(ps),
        };
        Some((to, task))
    }

    /// Ends a step because of a failure of one of its nodes, once the master knows.
    pub(super) fn fail(&mut self, run: Id, error: Error, at: u64) {
        self.events.add(at + self.latency, Event::Failed { run, error: Box::new(error) });
    }

    /// Aborts a step on all its tasks; returns its tag if it was running.
    pub(super) fn abort(&mut self, run: Id, cause: &Error) -> Option<u64> {
        let slot = &mut self.runs[run.index as usize];
        if slot.generation != run.generation {
            return None;
        }
        slot.generation += 1;
        let live = slot.live.take()?;
        self.free_runs.push(run.index);
        let of_run =
            |activation: &Activation| activation.live.as_ref().is_some_and(|act| act.run == run);
        let ended: Vec<Id> = (0..self.acts.len())
            .filter(|&i| of_run(&self.acts[i]))
            .map(|i| Id { index: i as u32, generation: self.acts[i].generation })
            .collect();
        for id in ended {
            self.retire(id);
        }
        live.cancellation.cancel(cause.clone());
        self.settle(self.events.now());
        Some(live.tag)
    }
}

/// A value that is not there, or a ghost.
pub(super) fn is_ghost(value: &Value) -> bool {
    matches!(value, Value::Dead)
}

impl Input {
    /// The slot that a value is in, and whether to take it.
    pub(super) fn of_slots(self, slots: &mut [Value]) -> Option<Value> {
        match self {
            Input::Slot { slot, is_only: true } => Some(std::mem::take(&mut slots[slot as usize])),
            Input::Slot { slot, is_only: false } => Some(slots[slot as usize].clone()),
            Input::Preset(_) => None,
        }
    }
}
