//! Which samples a round uses when its workers die at bad moments.

use std::sync::Arc;
use std::time::Duration;

use thalweg_graph::Scope;
use thalweg_runtime::{RunOptions, Session, SessionOptions};
use thalweg_tensor::{Code, DType, Result, Tensor};

use super::{Coordinated, Ledger, Mode, Order, Replica};
use crate::leases::{Batch, Leases, Shards};
use crate::{Chief, Initializer, Model, Optimizer, RunSteps, losses};

const GENERATION: i64 = 1;
/// Samples of a shard, which is a batch.
const BATCH: i64 = 4;
const SHARDS: usize = 3;

/// Two workers in one graph, in one process.
struct Pair {
    session: Arc<Session>,
    /// Each with the names of what it feeds: worker, generation, shard, used, count.
    workers: Vec<(Coordinated, [String; 5])>,
    /// Worker, generation, whether it is late; the shard, and what to run.
    claim: ([String; 3], String, String),
    release: (String, String),
    /// How often each shard was used, and the sum of all gradients.
    state: [String; 2],
}

impl Pair {
    fn new(mode: Mode) -> Result<Pair> {
        let ops = thalweg_ops::op_registry(thalweg_ops::FAMILIES)?;
        let mut model = Model::new(Scope::new(ops));
        let shards = Shards::new(SHARDS * BATCH as usize, BATCH as usize, 1)?;
        let leases = Leases::new(&model, shards, 1, Duration::from_secs(1000))?;
        let leases = leases.with_offers(&model, 2)?;
        let x = model.input("x", DType::Float, &[])?;
        let w = model.variable("w", &[], &Initializer::Zeros)?;
        let value = w.read(&mut model)?;
        let product = model.add("Mul", &[value, x])?;
        let loss = losses::mean(&mut model, product)?;
        let mut workers = Vec::new();
        for index in 0..2 {
            let ledger = Ledger { leases: leases.clone(), batch: leases.batch(&model)? };
            let replica = Replica { index, count: 2 };
            let optimizer = Optimizer::sgd(1.0);
            let step = mode.minimize_with(&mut model, &optimizer, loss, replica, Some(&ledger))?;
            let Batch { worker, generation, shard, used, count } = ledger.batch;
            let fed = [worker, generation, shard, used, count].map(|output| model.name_of(output));
            workers.push((step, fed));
        }
        let claim = leases.claim(&model)?;
        let fed = [claim.worker, claim.generation, claim.is_late];
        let fed = fed.map(|output| model.name_of(output));
        let claim = (fed, model.name_of(claim.shard), model.node_name(claim.done));
        let release = leases.release(&model)?;
        let release = (model.name_of(release.0), model.node_name(release.1));
        let set = leases.set_generation(&model)?;
        let (_, table) = leases.state(&model)?;
        let init = model.init()?;
        let state = [table, w.read(&mut model)?].map(|output| model.name_of(output));
        let kernels = thalweg_ops::kernel_registry(thalweg_ops::FAMILIES);
        let session = Session::new(model.to_graph(), kernels, SessionOptions::default())?;
        session.run(&[], &[], &[&model.node_name(init)])?;
        let set = (model.name_of(set.0), model.node_name(set.1));
        session.run(&[(&set.0, Tensor::scalar(GENERATION))], &[], &[&set.1])?;
        Ok(Pair { session: Arc::new(session), workers, claim, release, state })
    }

    fn start_chief(&self) -> Chief {
        Chief::start(self.session.clone(), self.workers[0].0.chief.as_ref().unwrap()).unwrap()
    }

    fn start(&self, worker: usize) {
        let start = self.workers[worker].0.start_worker.as_ref().unwrap();
        self.session.run(&[], &[], &[start]).unwrap();
    }

    /// The shard that a worker gets.
    fn claim(&self, worker: usize) -> Option<i64> {
        let (fed, shard, done) = &self.claim;
        let numbers = [worker as i64, GENERATION, 0].map(Tensor::scalar);
        let feeds: Vec<(&str, Tensor)> = fed.iter().map(String::as_str).zip(numbers).collect();
        let found = self.session.run(&feeds, &[shard], &[done]).unwrap();
        Some(found[0].scalar_value::<i64>().unwrap()).filter(|&shard| shard >= 0)
    }

    fn release(&self, worker: usize) {
        let (fed, node) = &self.release;
        self.session.run(&[(fed, Tensor::scalar(worker as i64))], &[], &[node]).unwrap();
    }

    /// A step with all of a shard, whose gradient is ten to the power of its number; whether it was
    /// used.
    fn step(&self, worker: usize, shard: i64, timeout: Option<Duration>) -> Result<bool> {
        let (step, fed) = &self.workers[worker];
        let numbers = [worker as i64, GENERATION, shard, 0, BATCH].map(Tensor::scalar);
        let mut feeds: Vec<(&str, Tensor)> = fed.iter().map(String::as_str).zip(numbers).collect();
        feeds.push(("x:0", Tensor::scalar(-(10f32.powi(shard as i32)))));
        let options = RunOptions { timeout, ..RunOptions::default() };
        let used = step.used.as_ref().unwrap();
        let found = self.session.run_step_with(&options, &feeds, &[used], &[&step.step])?;
        found.0[0].scalar_value()
    }

    /// Casts a ballot and dies before the round has ended.
    fn die_in_step(&self, worker: usize, shard: i64) {
        let soon = Some(Duration::from_millis(200));
        let error = self.step(worker, shard, soon).unwrap_err();
        assert_eq!(error.code(), Code::DeadlineExceeded, "{error}");
    }

    /// Both take steps until all samples are used.
    fn finish(&self) {
        std::thread::scope(|threads| {
            for worker in 0..2 {
                threads.spawn(move || {
                    while let Some(shard) = self.claim(worker) {
                        while !self.step(worker, shard, Some(Duration::from_secs(20))).unwrap() {}
                    }
                    let leave = self.workers[worker].0.leave.as_ref().unwrap();
                    self.session.run(&[], &[], &[leave]).unwrap();
                });
            }
        });
    }

    /// How many samples of each shard were used, and the sum of the gradients' means.
    fn state(&self) -> (Vec<i64>, f32) {
        let found = self.session.run(&[], &[&self.state[0], &self.state[1]], &[]).unwrap();
        let used = found[0].as_slice::<i64>().unwrap().chunks_exact(3).map(|row| row[1]).collect();
        (used, found[1].scalar_value().unwrap())
    }
}

const ONCE: [i64; SHARDS] = [BATCH; SHARDS];
const MODES: [Mode; 3] = [
    Mode::Sync { order: Order::Arrival },
    Mode::Sync { order: Order::Worker },
    Mode::Backup { spare: 0 },
];

#[test]
fn what_was_offered_is_not_dealt_again_in_its_round() {
    for mode in MODES {
        let pair = Pair::new(mode).unwrap();
        let _chief = pair.start_chief();
        pair.start(0);
        pair.start(1);
        assert_eq!(pair.claim(1), Some(0));
        pair.die_in_step(1, 0);
        // Somebody notices, and gives what worker 1 held to others; its gradient is in the round.
        pair.release(1);
        assert_eq!(pair.claim(0), Some(1), "{mode:?}: shard 0 is offered");
        assert!(pair.step(0, 1, Some(Duration::from_secs(20))).unwrap());
        let (used, sum) = pair.state();
        assert_eq!((used, sum), (vec![BATCH, BATCH, 0], 5.5), "{mode:?}");
        // It is back; what is left is used once.
        pair.start(1);
        pair.finish();
        assert_eq!(pair.state(), (ONCE.to_vec(), 105.5), "{mode:?}");
    }
}

#[test]
fn a_worker_that_comes_back_takes_back_what_it_cast() {
    for mode in MODES {
        let pair = Pair::new(mode).unwrap();
        let _chief = pair.start_chief();
        pair.start(0);
        pair.start(1);
        assert_eq!(pair.claim(1), Some(0));
        pair.die_in_step(1, 0);
        pair.release(1);
        // It is back in the same round, with other samples: those it had are somebody else's.
        assert_eq!(pair.claim(0), Some(1));
        pair.start(1);
        assert_eq!(pair.claim(1), Some(0), "{mode:?}: nobody offers them now");
        pair.finish();
        let (used, sum) = pair.state();
        assert_eq!(used, ONCE, "{mode:?}");
        // Each gradient is whole, or half of a mean; none was used twice.
        let mut sum = (sum * 2.0).round() as i64;
        for shard in (0..SHARDS).rev() {
            let weight = sum / 10i64.pow(shard as u32);
            assert!((1..=2).contains(&weight), "{mode:?}: shard {shard} counts {weight} / 2");
            sum -= weight * 10i64.pow(shard as u32);
        }
        assert_eq!(sum, 0, "{mode:?}");
    }
}
