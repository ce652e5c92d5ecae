//! Tests which samples rounds use when workers fail at any point of a step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use thalweg_api::tf;
use thalweg_runtime::{RunOptions, Session, SessionOptions};
use thalweg_tensor::{Code, Result, Tensor};

use super::{Coordinated, Ledger, Mode, Order, Replica};
use crate::leases::{Batch, Leases, Shards};
use crate::{Chief, Initializer, Model, Optimizer, RunSteps};

const GENERATION: i64 = 1;
/// Samples of a shard, which is a batch.
const BATCH: i64 = 4;
const PATIENCE: Duration = Duration::from_secs(20);

/// Workers in one graph, in one process.
struct Crew {
    session: Arc<Session>,
    /// Each worker with the tensors that it feeds: worker, generation, shard, used, count.
    workers: Vec<(Coordinated, [String; 5])>,
    /// Fed: worker, generation, is_late. Fetched: shard, samples left. The target to run.
    claim: ([String; 3], [String; 2], String),
    release: (String, String),
    /// The lease table, and two variables whose elements count how much of each shard's gradient
    /// they have seen; the gradients of the second are sparse.
    state: [String; 3],
}

impl Crew {
    fn new(mode: Mode, count: usize, shards: usize) -> Result<Crew> {
        let model = Model::new();
        let samples = Shards::new(shards * BATCH as usize, BATCH as usize, 1)?;
        let leases = Leases::new(&model, samples, 1, Duration::from_secs(1000))?;
        let leases = leases.with_offers(&model, count);
        let shard = model.placeholder::<i64>("shard", [Some(1)]);
        let [dense, rows] = ["dense", "rows"]
            .map(|name| model.parameter_parts(name, &[shards], &Initializer::Zeros));
        let one_hot = tf::one_hot(&shard, shards as i32, -1.0f32, 0.0);
        let of_dense = (dense.read(&model) * one_hot).sum();
        let loss = of_dense - rows.gather(&model, &shard).sum();
        let optimizer = Optimizer::sgd(1.0);
        let mut workers = Vec::new();
        for index in 0..count {
            let ledger = Ledger { leases: leases.clone(), batch: leases.batch(&model) };
            let replica = Replica { index, count };
            let gradients = optimizer.whole_gradients(&model, &loss)?;
            let step = mode.apply(&model, &optimizer, &gradients, (replica, Some(&ledger)))?;
            let Batch { worker, generation, shard, used, count } = ledger.batch;
            let fed = [worker, generation, shard, used, count].map(|fed| fed.name().unwrap());
            workers.push((step, fed));
        }
        let claim = leases.claim(&model);
        let fed = [claim.worker, claim.generation, claim.is_late].map(|fed| fed.name().unwrap());
        let fetched = [claim.shard, claim.left].map(|fetched| fetched.name().unwrap());
        let claim = (fed, fetched, claim.done.name()?);
        let (released, release) = leases.release(&model);
        let release = (released.name()?, release.name()?);
        let (fed, set) = leases.set_generation(&model);
        let (_, table) = leases.state(&model);
        let [dense, rows] = [dense, rows].map(|value| value.read(&model).name());
        let state = [table.name()?, dense?, rows?];
        let init = model.init().name()?;
        let kernels = thalweg_ops::kernel_registry(thalweg_ops::FAMILIES);
        let graph = model.as_scope().to_graph();
        let session = Session::new(graph, kernels, SessionOptions::default())?;
        session.run(&[], &[], &[&init])?;
        session.run(&[(&fed.name()?, Tensor::scalar(GENERATION))], &[], &[&set.name()?])?;
        Ok(Crew { session: Arc::new(session), workers, claim, release, state })
    }

    fn start_chief(&self) -> Chief {
        Chief::start(self.session.clone(), self.workers[0].0.chief.as_ref().unwrap()).unwrap()
    }

    fn start(&self, worker: usize) {
        let start = self.workers[worker].0.start_worker.as_ref().unwrap();
        self.session.run(&[], &[], &[start]).unwrap();
    }

    fn leave(&self, worker: usize) {
        let leave = self.workers[worker].0.leave.as_ref().unwrap();
        self.session.run(&[], &[], &[leave]).unwrap();
    }

    /// The shard that a worker gets, and the samples that remain.
    fn claim(&self, worker: usize) -> (Option<i64>, i64) {
        let (fed, fetched, done) = &self.claim;
        let numbers = [worker as i64, GENERATION, 0].map(Tensor::scalar);
        let feeds: Vec<(&str, Tensor)> = fed.iter().map(String::as_str).zip(numbers).collect();
        let fetches: Vec<&str> = fetched.iter().map(String::as_str).collect();
        let found = self.session.run(&feeds, &fetches, &[done]).unwrap();
        let number = |i: usize| found[i].scalar_value::<i64>().unwrap();
        (Some(number(0)).filter(|&shard| shard >= 0), number(1))
    }

    fn release(&self, worker: usize) {
        let (fed, node) = &self.release;
        self.session.run(&[(fed, Tensor::scalar(worker as i64))], &[], &[node]).unwrap();
    }

    /// Runs a step with all samples of a shard; returns whether its gradient was applied.
    fn step(&self, worker: usize, shard: i64, timeout: Duration) -> Result<bool> {
        let (step, fed) = &self.workers[worker];
        let numbers = [worker as i64, GENERATION, shard, 0, BATCH].map(Tensor::scalar);
        let mut feeds: Vec<(&str, Tensor)> = fed.iter().map(String::as_str).zip(numbers).collect();
        feeds.push(("shard:0", Tensor::vector(&[shard])?));
        let options = RunOptions { timeout: Some(timeout), ..RunOptions::default() };
        let used = step.used.as_ref().unwrap();
        let found = self.session.run_step_with(&options, &feeds, &[used], &[&step.step])?;
        found.0[0].scalar_value()
    }

    /// Votes, then fails before the round has ended.
    fn die_in_step(&self, worker: usize, shard: i64) {
        let error = self.step(worker, shard, Duration::from_millis(200)).unwrap_err();
        assert_eq!(error.code(), Code::DeadlineExceeded, "{error}");
    }

    /// Runs steps until all samples are used, and fails in some of them.
    fn work(&self, worker: usize, mut random: Random, deaths: &AtomicU32) {
        let mut has_left = false;
        loop {
            let shard = match self.claim(worker) {
                (_, 0) => return self.leave(worker),
                (Some(shard), _) => shard,
                (None, _) => {
                    if !std::mem::replace(&mut has_left, true) {
                        self.leave(worker);
                    }
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
            };
            if std::mem::replace(&mut has_left, false) {
                self.start(worker);
            }
            let is_to_die = random.below(3) == 0;
            let soon = Duration::from_micros(300 + random.below(6000));
            match self.step(worker, shard, if is_to_die { soon } else { PATIENCE }) {
                Ok(_) => {}
                // Its session was lost, and somebody notices before it is back, or does not.
                Err(error) if is_to_die && error.code() == Code::DeadlineExceeded => {
                    deaths.fetch_add(1, Ordering::Relaxed);
                    if random.below(2) == 0 {
                        self.release(worker);
                        std::thread::sleep(Duration::from_micros(random.below(3000)));
                    }
                    self.start(worker);
                }
                Err(error) => panic!("worker {worker}: {error}"),
            }
        }
    }

    /// Lets all workers run until all samples are used.
    fn finish(&self) {
        std::thread::scope(|threads| {
            for worker in 0..self.workers.len() {
                threads.spawn(move || {
                    while let (Some(shard), _) = self.claim(worker) {
                        while !self.step(worker, shard, PATIENCE).unwrap() {}
                    }
                    self.leave(worker);
                });
            }
        });
    }

    /// How many samples of each shard were used, and how much of its gradient was applied.
    fn state(&self) -> (Vec<i64>, Vec<f32>) {
        let names: Vec<&str> = self.state.iter().map(String::as_str).collect();
        let found = self.session.run(&[], &names, &[]).unwrap();
        let used = found[0].as_slice::<i64>().unwrap().chunks_exact(3).map(|row| row[1]).collect();
        let [dense, rows] = [1, 2].map(|i: usize| found[i].as_slice::<f32>().unwrap().to_vec());
        assert_eq!(dense, rows, "both variables have seen the same");
        (used, dense)
    }

    /// Each shard was used once: alone, or as a part of the mean of up to `most` gradients.
    fn check(&self, most: usize, what: &str) {
        let (used, parts) = self.state();
        assert_eq!(used, vec![BATCH; used.len()], "{what}");
        for part in parts {
            let is_one = (1..=most).any(|count| (part - 1.0 / count as f32).abs() < 1e-5);
            assert!(is_one, "{what}: {part} of a gradient was used");
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % limit
    }
}

const MODES: [Mode; 3] = [
    Mode::Sync { order: Order::Arrival },
    Mode::Sync { order: Order::Worker },
    Mode::Backup { spare: 0 },
];

#[test]
fn what_was_offered_is_not_dealt_again_in_its_round() {
    for mode in MODES {
        let crew = Crew::new(mode, 2, 3).unwrap();
        let _chief = crew.start_chief();
        crew.start(0);
        crew.start(1);
        assert_eq!(crew.claim(1).0, Some(0));
        crew.die_in_step(1, 0);
        // Somebody notices, and gives what worker 1 held to others; its gradient is in the round.
        crew.release(1);
        assert_eq!(crew.claim(0).0, Some(1), "{mode:?}: shard 0 is offered");
        assert!(crew.step(0, 1, PATIENCE).unwrap());
        assert_eq!(crew.state(), (vec![BATCH, BATCH, 0], vec![0.5, 0.5, 0.0]), "{mode:?}");
        // It is back; what is left is used once.
        crew.start(1);
        crew.finish();
        crew.check(2, &format!("{mode:?}"));
    }
}

#[test]
fn a_worker_that_comes_back_takes_back_what_it_cast() {
    for mode in MODES {
        let crew = Crew::new(mode, 2, 3).unwrap();
        let _chief = crew.start_chief();
        crew.start(0);
        crew.start(1);
        assert_eq!(crew.claim(1).0, Some(0));
        crew.die_in_step(1, 0);
        crew.release(1);
        assert_eq!(crew.claim(0).0, Some(1));
        crew.start(1);
        assert_eq!(crew.claim(1).0, Some(0), "{mode:?}: nobody offers them now");
        crew.finish();
        crew.check(2, &format!("{mode:?}"));
    }
}

/// Three workers that fail in every third step, and a chief that is replaced repeatedly.
#[test]
fn whoever_dies_each_sample_is_used_once() {
    let deaths = AtomicU32::new(0);
    for seed in 0..12 {
        let mode = [MODES[0], MODES[1], Mode::Backup { spare: 1 }][seed as usize % 3];
        let crew = Crew::new(mode, 3, 20).unwrap();
        let (mut chief, is_over) = (crew.start_chief(), AtomicBool::new(false));
        (0..3).for_each(|worker| crew.start(worker));
        std::thread::scope(|threads| {
            let workers: Vec<_> = (0..3)
                .map(|worker| {
                    let (crew, deaths) = (&crew, &deaths);
                    let random = Random(seed * 10 + worker as u64);
                    threads.spawn(move || crew.work(worker, random, deaths))
                })
                .collect();
            threads.spawn(|| {
                let mut random = Random(seed);
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(20 + random.below(100)));
                    chief.stop().unwrap();
                    chief = crew.start_chief();
                }
            });
            let ended: Vec<_> =
                workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            is_over.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|worker| worker.unwrap());
        });
        crew.check(3, &format!("seed {seed}, {mode:?}"));
    }
    // How many strike in the middle of a step is up to the machine's speed.
    assert!(deaths.into_inner() > 0, "nobody died");
}
