//! The clients of a training job: workers that run steps, the chief that runs rounds, failures and
//! what follows from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_kernel::{Environment, KernelOrigin, NodeStates, Value};
use thalweg_ops::Registry;
use thalweg_tensor::{Budget, Code, Error, Result, Tensor, bail, err};
use thalweg_train::Rng;

use super::events::{nanoseconds, seconds};
use super::failures::{Failure, Role};
use super::replica::{Alike, Instance, Plans};
use super::report::{DeviceShare, TrainReport};
use super::world::{Id, Notice, Tasks, World};
use super::{Straggler, TrainJob};

/// The most bytes of tensors that have values.
const MEMORY_MAX: usize = 8 << 30;
/// The most events of one simulation.
const EVENTS_MAX: u64 = 1_000_000_000;
/// How long a worker that lost its session waits until it tries again, as `Trainer`'s workers do.
const RETRY: f64 = 0.05;
/// How many consecutive rounds may be aborted, as by `Chief`.
const GIVEN_UP_MAX: u32 = 3;

/// What a step or a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Init,
    ChiefStart,
    ChiefWait,
    ChiefApply,
    Start(u32),
    Step(u32),
    Fail(u32),
    Back(u32),
    Restored(u32),
    Saved(u32),
}

impl Purpose {
    fn tag(self) -> u64 {
        let (kind, index) = match self {
            Purpose::Init => (0, 0),
            Purpose::ChiefStart => (1, 0),
            Purpose::ChiefWait => (2, 0),
            Purpose::ChiefApply => (3, 0),
            Purpose::Start(i) => (4, i),
            Purpose::Step(i) => (5, i),
            Purpose::Fail(i) => (6, i),
            Purpose::Back(i) => (7, i),
            Purpose::Restored(i) => (8, i),
            Purpose::Saved(i) => (9, i),
        };
        kind << 32 | u64::from(index)
    }

    fn of(tag: u64) -> Result<Purpose> {
        let index = tag as u32;
        Ok(match tag >> 32 {
            0 => Purpose::Init,
            1 => Purpose::ChiefStart,
            2 => Purpose::ChiefWait,
            3 => Purpose::ChiefApply,
            4 => Purpose::Start(index),
            5 => Purpose::Step(index),
            6 => Purpose::Fail(index),
            7 => Purpose::Back(index),
            8 => Purpose::Restored(index),
            9 => Purpose::Saved(index),
            _ => bail!(Internal, "{tag} is no purpose"),
        })
    }
}

/// A worker as a client.
struct Worker {
    step: Arc<Instance>,
    start: Arc<Instance>,
    /// The step or start that runs.
    run: Option<Id>,
    began: u64,
    /// How many steps it has begun in all: its random numbers follow from it.
    steps_begun: u64,
    /// How many steps it has done since the variables were initialized or restored.
    steps_done: u64,
    is_training: bool,
}

/// A training job that runs.
pub(super) struct Training<'a> {
    job: &'a TrainJob,
    plans: Plans,
    world: World,
    workers: Vec<Worker>,
    /// The chief's step that runs, and how many rounds were aborted in a row.
    chief: Option<Id>,
    given_up: u32,
    /// When training began.
    begin: u64,
    has_begun: bool,
    global_step: u64,
    checkpoint: Option<u64>,
    /// The checkpoint that is being written.
    saving: Option<u64>,
    /// Counts restorations: timers of an earlier one are void.
    era: u32,
    /// Variables are lost.
    needs_restoring: bool,
    /// How many workers that train have done so many steps.
    clocks: BTreeMap<u64, u32>,
    durations: Vec<f64>,
    report: TrainReport,
}

impl<'a> Training<'a> {
    pub(super) fn new(job: &'a TrainJob) -> Result<Training<'a>> {
        let origin = KernelOrigin {
            kernels: Registry::built_in().kernels,
            budget: Budget::new(MEMORY_MAX),
            environment: Environment::frozen(),
            states: Arc::new(NodeStates::default()),
        };
        let plans = Plans::new(job, &origin)?;
        let tasks = Tasks {
            worker: &job.worker,
            workers: job.workers,
            server: &job.server,
            servers: job.ps,
            network: &job.network,
        };
        let worker = |i| {
            let start = plans.start_worker.as_ref();
            Ok(Worker {
                step: plans.step.instance(i)?,
                start: start.map(|start| start.instance(i)).transpose()?.unwrap_or_default(),
                run: None,
                began: 0,
                steps_begun: 0,
                steps_done: 0,
                is_training: false,
            })
        };
        let workers = (0..job.workers).map(worker).collect::<Result<_>>()?;
        Ok(Training {
            job,
            world: World::new(&tasks, origin),
            plans,
            workers,
            chief: None,
            given_up: 0,
            begin: 0,
            has_begun: false,
            global_step: 0,
            checkpoint: None,
            saving: None,
            era: 0,
            needs_restoring: false,
            clocks: BTreeMap::new(),
            durations: Vec::new(),
            report: TrainReport::default(),
        })
    }

    pub(super) fn run(mut self) -> Result<TrainReport> {
        self.chief = Some(self.start_alone(|plans| Some(&plans.init), Purpose::Init)?);
        let limit = |begin: u64| begin.saturating_add(nanoseconds(self.job.seconds_max));
        while self.global_step < self.job.updates {
            let Some(notice) = self.world.next() else {
                bail!(
                    Aborted,
                    "the training stands still at update {}: every worker waits for another",
                    self.global_step
                );
            };
            if self.has_begun && self.world.events.now() > limit(self.begin) {
                break;
            }
            if self.world.events.count() > EVENTS_MAX {
                bail!(ResourceExhausted, "more than {EVENTS_MAX} events");
            }
            match notice {
                Notice::Updated => self.updated(),
                Notice::Timer(tag) => self.timer(Purpose::of(tag)?)?,
                Notice::Ended { tag, result } => self.ended(Purpose::of(tag)?, result)?,
            }
        }
        Ok(self.reported())
    }

    fn now(&self) -> f64 {
        seconds(self.world.events.now() - self.begin)
    }

    fn tell(&mut self, text: String) {
        let now = self.now();
        self.report.events.push((now, text));
    }

    fn timer_in(&mut self, delay: f64, purpose: Purpose) {
        let at = self.world.events.now().saturating_add(nanoseconds(delay));
        self.world.events.add(at, super::world::Event::Timer(purpose.tag()));
    }

    /// Starts a step that the chief's client runs.
    fn start_alone(
        &mut self,
        plan: impl Fn(&Plans) -> Option<&Alike>,
        purpose: Purpose,
    ) -> Result<Id> {
        let plan = plan(&self.plans).ok_or_else(|| err!(Internal, "{purpose:?} has no plan"))?;
        let (plan, instance) = (plan.plan.clone(), Arc::<Instance>::default());
        Ok(self.world.start((&plan, &instance), 0, 1.0, purpose.tag()))
    }

    fn ended(&mut self, purpose: Purpose, result: Result<Vec<Value>>) -> Result<()> {
        match purpose {
            Purpose::Init => {
                result?;
                self.initialized()
            }
            Purpose::ChiefStart => {
                result?;
                let is_first = self.given_up == 0;
                self.lead(Purpose::ChiefWait)?;
                if is_first {
                    self.start_workers()?;
                }
                Ok(())
            }
            Purpose::ChiefWait => {
                result?;
                self.lead(Purpose::ChiefApply)
            }
            Purpose::ChiefApply => match result {
                Ok(_) => {
                    self.given_up = 0;
                    self.lead(Purpose::ChiefWait)
                }
                Err(e) if e.code() == Code::InvalidArgument && self.given_up < GIVEN_UP_MAX => {
                    self.given_up += 1;
                    self.tell(format!("the round is aborted: {}", e.message()));
                    self.lead(Purpose::ChiefStart)
                }
                Err(e) => Err(e),
            },
            Purpose::Start(i) => {
                result?;
                self.join(i);
                self.begin_step(i)
            }
            Purpose::Step(i) => self.step_ended(i, &result?),
            other => bail!(Internal, "{other:?} is no step"),
        }
    }

    fn lead(&mut self, purpose: Purpose) -> Result<()> {
        let of = move |plans: &Plans| match (purpose, plans.chief.as_ref()?) {
            (Purpose::ChiefStart, chief) => Some(chief.start.plan.clone()),
            (Purpose::ChiefWait, chief) => Some(chief.wait.plan.clone()),
            (_, chief) => Some(chief.apply.plan.clone()),
        };
        let plan = of(&self.plans).ok_or_else(|| err!(Internal, "there is no chief"))?;
        let instance = Arc::<Instance>::default();
        self.chief = Some(self.world.start((&plan, &instance), 0, 1.0, purpose.tag()));
        Ok(())
    }

    /// The variables have values: training begins, or goes on.
    fn initialized(&mut self) -> Result<()> {
        self.chief = None;
        if self.has_begun {
            let step = i64::try_from(self.global_step).unwrap_or(i64::MAX);
            for ps in 0..self.job.ps {
                self.world.set_variable(self.world.server(ps), "global_step", step)?;
            }
            self.needs_restoring = false;
        }
        if self.plans.chief.is_some() {
            return self.lead(Purpose::ChiefStart);
        }
        self.start_workers()
    }

    /// All workers that are up and do not train begin to.
    fn start_workers(&mut self) -> Result<()> {
        if !self.has_begun {
            self.has_begun = true;
            self.begin = self.world.events.now();
            for (i, failure) in self.job.failures.iter().enumerate() {
                let at = self.begin.saturating_add(nanoseconds(failure.at));
                let tag = Purpose::Fail(i as u32).tag();
                self.world.events.add(at, super::world::Event::Timer(tag));
            }
        }
        for i in 0..self.job.workers {
            let worker = &self.workers[i as usize];
            if self.world.tasks[i as usize].is_alive && worker.run.is_none() {
                self.start_worker(i)?;
            }
        }
        Ok(())
    }

    fn start_worker(&mut self, i: u32) -> Result<()> {
        let Some(start) = &self.plans.start_worker else {
            self.join(i);
            return self.begin_step(i);
        };
        let (plan, instance) = (start.plan.clone(), self.workers[i as usize].start.clone());
        let run = self.world.start((&plan, &instance), i, 1.0, Purpose::Start(i).tag());
        self.workers[i as usize].run = Some(run);
        Ok(())
    }

    fn begin_step(&mut self, i: u32) -> Result<()> {
        let now = self.world.events.now();
        let worker = &mut self.workers[i as usize];
        let factor = self.job.straggler.factor(self.job.seed, i, worker.steps_begun);
        worker.began = now;
        worker.steps_begun += 1;
        if let Some((&least, _)) = self.clocks.first_key_value() {
            self.report.lead_max = self.report.lead_max.max(worker.steps_done - least);
        }
        let (plan, instance) = (self.plans.step.plan.clone(), worker.step.clone());
        let run = self.world.start((&plan, &instance), i, factor, Purpose::Step(i).tag());
        self.workers[i as usize].run = Some(run);
        Ok(())
    }

    /// A worker takes part from now on.
    fn join(&mut self, i: u32) {
        let worker = &mut self.workers[i as usize];
        if !std::mem::replace(&mut worker.is_training, true) {
            *self.clocks.entry(worker.steps_done).or_insert(0) += 1;
        }
    }

    fn step_ended(&mut self, i: u32, fetched: &[Value]) -> Result<()> {
        let took = seconds(self.world.events.now() - self.workers[i as usize].began);
        self.durations.push(took);
        self.report.worker_steps += 1;
        if let Some(used) = fetched.first() {
            let used = used.tensor().map(Tensor::scalar_value::<bool>).transpose()?;
            if !used.unwrap_or(true) {
                self.report.dropped_gradients += 1;
            }
        }
        let worker = &mut self.workers[i as usize];
        let done = worker.steps_done;
        worker.steps_done += 1;
        if let Some(count) = self.clocks.get_mut(&done) {
            *count -= 1;
            if *count == 0 {
                self.clocks.remove(&done);
            }
        }
        *self.clocks.entry(done + 1).or_insert(0) += 1;
        self.begin_step(i)
    }

    fn updated(&mut self) {
        self.global_step += 1;
        let now = self.now();
        self.report.updates.push((now, self.global_step));
        let every = self.job.checkpoint_every;
        let is_due = every > 0 && self.global_step.is_multiple_of(every);
        if is_due && self.saving.is_none() && !self.needs_restoring {
            // Beside training, as a trainer's checkpoints are.
            self.saving = Some(self.global_step);
            self.timer_in(self.disk_seconds(), Purpose::Saved(self.era));
        }
    }

    /// How long writing or reading a checkpoint takes: servers do so at once.
    fn disk_seconds(&self) -> f64 {
        let most = self.plans.variable_bytes.iter().copied().max().unwrap_or(0);
        most as f64 / self.job.disk_bandwidth
    }

    fn timer(&mut self, purpose: Purpose) -> Result<()> {
        match purpose {
            Purpose::Fail(i) => self.task_fails(self.job.failures[i as usize]),
            Purpose::Back(i) => self.task_is_back(self.job.failures[i as usize]),
            Purpose::Restored(era) if era == self.era => self.restored(),
            Purpose::Saved(era) if era == self.era => {
                if let Some(saved) = self.saving.take() {
                    self.checkpoint = Some(saved);
                    self.report.checkpoints += 1;
                }
                Ok(())
            }
            Purpose::Restored(_) | Purpose::Saved(_) => Ok(()),
            other => bail!(Internal, "{other:?} is no timer"),
        }
    }

    fn position(&self, failure: &Failure) -> u32 {
        match failure.role {
            Role::Worker => failure.index,
            Role::Ps => self.world.server(failure.index),
        }
    }

    fn task_fails(&mut self, failure: Failure) -> Result<()> {
        let task = self.position(&failure);
        if !self.world.tasks[task as usize].is_alive {
            return Ok(());
        }
        self.tell(format!("{} fails", failure.task()));
        self.world.crash(task);
        let error = err!(Unavailable, "{} has failed", failure.task());
        match failure.role {
            Role::Ps => self.variables_are_lost(&error),
            Role::Worker => {
                if failure.index == 0 {
                    let run = self.chief.take();
                    self.end(run, &error);
                    if self.needs_restoring {
                        // It was about to restore them.
                        self.era += 1;
                    }
                }
                self.worker_stops(failure.index, &error);
            }
        }
        let index = self.job.failures.iter().position(|other| *other == failure);
        let index = index.ok_or_else(|| err!(Internal, "an unknown failure"))? as u32;
        self.timer_in(self.job.restart_seconds, Purpose::Back(index));
        Ok(())
    }

    fn end(&mut self, run: Option<Id>, error: &Error) -> bool {
        run.is_some_and(|run| self.world.abort(run, error).is_some())
    }

    fn worker_stops(&mut self, i: u32, error: &Error) {
        let run = self.workers[i as usize].run.take();
        let was_running = self.end(run, error);
        let worker = &mut self.workers[i as usize];
        if std::mem::replace(&mut worker.is_training, false) {
            let done = worker.steps_done;
            if let Some(count) = self.clocks.get_mut(&done) {
                *count -= 1;
                if *count == 0 {
                    self.clocks.remove(&done);
                }
            }
            self.report.lost_steps += u64::from(was_running);
        }
    }

    /// A parameter server has failed: all steps end, and nothing goes on until the variables are
    /// restored from the last checkpoint.
    fn variables_are_lost(&mut self, error: &Error) {
        self.era += 1;
        self.saving = None;
        self.needs_restoring = true;
        let run = self.chief.take();
        self.end(run, error);
        for i in 0..self.job.workers {
            self.worker_stops(i, error);
        }
    }

    fn task_is_back(&mut self, failure: Failure) -> Result<()> {
        let task = self.position(&failure);
        self.world.restart(task);
        self.tell(format!("{} is back", failure.task()));
        if self.needs_restoring {
            // Other workers start once the variables are there.
            if failure.role == Role::Ps || failure.index == 0 {
                self.try_restoring();
            }
            return Ok(());
        }
        // The worker that is back has no chief yet if it is the first.
        if failure.role == Role::Worker && failure.index == 0 && self.plans.chief.is_some() {
            self.given_up = 0;
            return self.lead(Purpose::ChiefStart);
        }
        self.start_worker(failure.index)
    }

    /// The chief restores the variables once all parameter servers and itself are there.
    fn try_restoring(&mut self) {
        let servers = (0..self.job.ps).map(|ps| self.world.server(ps));
        let is_alive = |task: u32| self.world.tasks[task as usize].is_alive;
        if servers.chain([0]).all(is_alive) {
            self.era += 1;
            let read = self.checkpoint.map_or(0.0, |_| self.disk_seconds());
            self.timer_in(RETRY + read, Purpose::Restored(self.era));
        }
    }

    fn restored(&mut self) -> Result<()> {
        let kept = self.checkpoint.unwrap_or(0);
        let lost = self.global_step.saturating_sub(kept);
        self.report.lost_updates += lost;
        self.global_step = kept;
        self.given_up = 0;
        self.tell(match self.checkpoint {
            Some(step) => format!("the checkpoint of step {step} is restored, {lost} updates lost"),
            None => format!("without a checkpoint training begins anew, {lost} updates lost"),
        });
        // The servers' state of coordination begins anew too.
        for ps in 0..self.job.ps {
            let task = self.world.server(ps);
            self.world.crash(task);
            self.world.restart(task);
        }
        for worker in &mut self.workers {
            worker.steps_done = 0;
        }
        self.clocks.clear();
        self.chief = Some(self.start_alone(|plans| Some(&plans.init), Purpose::Init)?);
        Ok(())
    }

    fn reported(mut self) -> TrainReport {
        let total = self.now();
        let per_second = |count: f64| if total > 0.0 { count / total } else { 0.0 };
        let report = &mut self.report;
        report.seconds = total;
        report.updates_done = self.global_step;
        report.steps_per_second = per_second(self.global_step as f64);
        let used = report.worker_steps.saturating_sub(report.dropped_gradients);
        report.samples_per_second = per_second(used as f64 * self.job.net.batch as f64);
        report.events_simulated = self.world.events.count();
        let whole = seconds(self.world.events.now()).max(f64::MIN_POSITIVE);
        let share = |task: &super::tasks::Task| DeviceShare {
            name: task.device.0.name.to_string(),
            busy: (seconds(task.busy) / whole).min(1.0),
            bytes_out: task.interface.bytes_out,
            bytes_in: task.interface.bytes_in,
        };
        report.devices = self.world.tasks.iter().map(share).collect();
        report.set_durations(self.durations);
        self.report
    }
}

impl Straggler {
    /// The factor of a worker's step: it follows from the seed alone, not from what happened before.
    fn factor(&self, seed: u64, worker: u32, step: u64) -> f64 {
        let own = seed ^ (u64::from(worker) << 32 | (step & 0xffff_ffff));
        let mut rng = Rng::new(Rng::new(own).bits() ^ seed.rotate_left(17));
        let mut unit = || (rng.bits() >> 11) as f64 / (1u64 << 53) as f64;
        let (radius, angle) = (unit(), unit());
        // Box-Muller; the radius must not be 0.
        let normal = (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
        let mut factor = (self.sigma * normal).exp();
        if unit() < self.probability {
            factor *= self.factor;
        }
        let slow = self.slow_workers.iter().filter(|(i, _)| *i == worker);
        slow.fold(factor, |factor, (_, by)| factor * by)
    }
}
