//! Leases under random histories: workers that die at any moment, parameter servers that lose all.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_api::{Output, tf};
use thalweg_runtime::{Session, SessionOptions};
use thalweg_tensor::{Code, Result, Tensor};
use thalweg_train::leases::{Batch, Claim, Leases, Shards};
use thalweg_train::{Initializer, Model};

/// A table with a variable that counts how often each sample was used, as a model's variables would
/// have it.
struct Table {
    session: Session,
    names: Names,
}

struct Names {
    init: String,
    claim: Claim,
    batch: Batch,
    commit: String,
    release: (String, String),
    release_all: String,
    set_generation: (String, String),
    counts: String,
    state: String,
    snapshot: (Vec<String>, String),
    restore: Vec<(String, String)>,
    model: Model,
}

/// The name that a session feeds or fetches a tensor by.
fn name(output: &Output<i64>) -> String {
    output.name().unwrap()
}

/// What a worker believes that it holds.
#[derive(Clone, Copy, Debug)]
struct Lease {
    shard: i64,
    used: i64,
    generation: i64,
}

impl Table {
    fn new(shards: Shards, epochs: u64, lease: Duration) -> Table {
        let names = Names::new(Model::new(), shards, epochs, lease).unwrap();
        let kernels = thalweg_ops::kernel_registry(thalweg_ops::FAMILIES);
        let options = SessionOptions::default();
        let session = Session::new(names.model.as_scope().to_graph(), kernels, options).unwrap();
        session.run(&[], &[], &[&names.init]).unwrap();
        let table = Table { session, names };
        table.set_generation(1);
        table
    }

    fn set_generation(&self, generation: i64) {
        let (fed, node) = &self.names.set_generation;
        self.session.run(&[(fed, Tensor::scalar(generation))], &[], &[node]).unwrap();
    }

    /// The shard that a worker gets, and the samples that are left.
    fn claim(&self, worker: i64, generation: i64) -> Result<(Option<Lease>, i64)> {
        let Names { claim, .. } = &self.names;
        let results = self.session.run(
            &[
                (&name(&claim.worker), Tensor::scalar(worker)),
                (&name(&claim.generation), Tensor::scalar(generation)),
                (&name(&claim.is_late), Tensor::scalar(worker % 2)),
            ],
            &[&name(&claim.shard), &name(&claim.used), &name(&claim.left)],
            &[&claim.done.name()?],
        )?;
        let number = |i: usize| results[i].scalar_value::<i64>();
        let lease = Lease { shard: number(0)?, used: number(1)?, generation };
        Ok(((lease.shard >= 0).then_some(lease), number(2)?))
    }

    /// Uses some samples of a lease.
    fn commit(&self, worker: i64, lease: Lease, samples: &[usize]) -> Result<()> {
        let Names { batch, .. } = &self.names;
        let indices: Vec<i64> = samples.iter().map(|&sample| sample as i64).collect();
        let feeds = [
            (name(&batch.worker), Tensor::scalar(worker)),
            (name(&batch.generation), Tensor::scalar(lease.generation)),
            (name(&batch.shard), Tensor::scalar(lease.shard)),
            (name(&batch.used), Tensor::scalar(lease.used)),
            (name(&batch.count), Tensor::scalar(samples.len() as i64)),
            ("samples:0".to_owned(), Tensor::vector(&indices)?),
        ];
        let feeds: Vec<(&str, Tensor)> =
            feeds.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        self.session.run(&feeds, &[], &[&self.names.commit]).map(|_| ())
    }

    fn release(&self, worker: i64) {
        let (fed, node) = &self.names.release;
        self.session.run(&[(fed, Tensor::scalar(worker))], &[], &[node]).unwrap();
    }

    fn counts(&self) -> Vec<i64> {
        let counts = self.session.run(&[], &[&self.names.counts], &[]).unwrap();
        counts[0].as_slice::<i64>().unwrap().to_vec()
    }

    fn save(&self) -> Vec<Tensor> {
        self.try_save().unwrap()
    }

    fn try_save(&self) -> Result<Vec<Tensor>> {
        let (values, done) = &self.names.snapshot;
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        self.session.run(&[], &values, &[done])
    }

    /// A parameter server comes back with what a checkpoint has.
    fn restore(&self, saved: &[Tensor], generation: i64) {
        self.set_generation(0);
        assert_eq!(self.names.restore.len(), saved.len());
        for ((fed, node), value) in self.names.restore.iter().zip(saved) {
            self.session.run(&[(fed, value.clone())], &[], &[node]).unwrap();
        }
        self.session.run(&[], &[], &[&self.names.release_all]).unwrap();
        self.set_generation(generation);
    }
}

impl Names {
    fn new(model: Model, shards: Shards, epochs: u64, lease: Duration) -> Result<Names> {
        let leases = Leases::new(&model, shards, epochs, lease)?;
        let counts = model.counter::<i64>("counts", &[shards.samples()], &Initializer::Zeros);
        let claim = leases.claim(&model);
        let batch = leases.batch(&model);
        let samples = model.placeholder::<i64>("samples", [None]);
        let commit = leases.commit(&model, &batch, &[samples.operation()], |inside| {
            let handle = counts.handle().within(inside);
            Ok(vec![tf::resource_scatter_add(handle, &samples, 1i64)])
        })?;
        let (freed, release) = leases.release(&model);
        let (generation, set_generation) = leases.set_generation(&model);
        let (_, state) = leases.state(&model);
        let (values, done) = leases.snapshot(&model, &model.variables());
        let mut restore = Vec::new();
        for variable in model.variables() {
            let dims: Vec<_> = variable.shape.dims().iter().map(|size| Some(*size)).collect();
            let value = model.placeholder::<i64>("value", &dims[..]);
            let set = model.existing_variable::<i64>(Some(variable)).assign(&value);
            restore.push((name(&value), set.name()?));
        }
        Ok(Names {
            init: model.init().name()?,
            claim,
            batch,
            commit: commit.name()?,
            release: (name(&freed), release.name()?),
            release_all: leases.release_all(&model).name()?,
            set_generation: (name(&generation), set_generation.name()?),
            counts: name(&counts),
            state: name(&state),
            snapshot: (values.iter().map(Output::name).collect::<Result<_>>()?, done.name()?),
            restore,
            model,
        })
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % limit
    }
}

const FOR_EVER: Duration = Duration::from_secs(1 << 30);

/// Plays one history to its end; how often what happened.
fn play(seed: u64) -> BTreeMap<&'static str, u32> {
    let mut random = Random(seed);
    let samples = 1 + random.below(60) as usize;
    let per_shard = 1 + random.below(20) as usize;
    let (epochs, workers, batch) = (1 + random.below(3), 1 + random.below(4), 1 + random.below(9));
    let shards = Shards::new(samples, per_shard, seed).unwrap();
    let table = Table::new(shards, epochs, FOR_EVER);
    let mut held: Vec<Option<Lease>> = vec![None; workers as usize];
    let mut generation = 1;
    let mut saved = table.save();
    let mut happened = BTreeMap::new();
    let mut note = |what| *happened.entry(what).or_insert(0) += 1;
    for _ in 0..4000 {
        let worker = random.below(workers);
        let lease = held[worker as usize];
        match (random.below(40), lease) {
            // The worker dies; whoever notices takes its shards away, or it comes back and claims.
            (0, _) => {
                note("death");
                held[worker as usize] = None;
                if random.below(2) == 0 {
                    table.release(worker as i64);
                }
            }
            // It was taken for dead, but is not: what it has computed must not count.
            (1, Some(_)) => table.release(worker as i64),
            (2, _) => saved = table.save(),
            (3, _) => {
                note("restore");
                generation += 1;
                table.restore(&saved, generation);
            }
            (_, None) => match table.claim(worker as i64, generation) {
                Ok((_, 0)) => break,
                Ok((lease, _)) => held[worker as usize] = lease,
                Err(e) => panic!("seed {seed}: {e}"),
            },
            (_, Some(lease)) => {
                let next = shards.batch(lease.shard as usize, lease.used as u64, batch as usize);
                held[worker as usize] = match table.commit(worker as i64, lease, &next) {
                    Ok(()) => {
                        note("commit");
                        let used = lease.used + next.len() as i64;
                        let size = shards.size(lease.shard as usize) as i64;
                        (used % size != 0).then_some(Lease { used, ..lease })
                    }
                    Err(e) => {
                        note("refusal");
                        assert_eq!(e.code(), Code::InvalidArgument, "seed {seed}: {e}");
                        None
                    }
                };
            }
        }
        let most = table.counts().into_iter().max().unwrap();
        assert!(most <= epochs as i64, "seed {seed}: a sample was used {most} times");
    }
    assert_eq!(table.counts(), vec![epochs as i64; samples], "seed {seed}");
    happened
}

#[test]
fn every_sample_counts_once_per_epoch() {
    let mut all: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 0..40 {
        for (what, times) in play(seed) {
            *all.entry(what).or_insert(0) += times;
        }
    }
    for what in ["death", "restore", "refusal", "commit"] {
        assert!(all.get(what).copied().unwrap_or_default() > 20, "{all:?}");
    }
}

#[test]
fn a_silent_worker_loses_its_shard() {
    let shards = Shards::new(10, 10, 1).unwrap();
    let table = Table::new(shards, 1, Duration::from_millis(30));
    let lease = table.claim(0, 1).unwrap().0.unwrap();
    let more = Duration::from_millis(40);
    assert!(table.claim(1, 1).unwrap().0.is_none(), "it is held");
    std::thread::sleep(more);
    let taken = table.claim(1, 1).unwrap().0.unwrap();
    assert_eq!(taken.shard, lease.shard);
    let late = table.commit(0, lease, &shards.batch(0, 0, 5)).unwrap_err();
    assert!(late.message().contains("does not hold"), "{late}");
    table.commit(1, taken, &shards.batch(0, 0, 5)).unwrap();
    assert_eq!(table.counts().iter().sum::<i64>(), 5);
}

/// An update that fails between its first and its last change leaves variables that nobody goes on
/// with, and no checkpoint of them is written.
#[test]
fn a_change_in_part_is_no_change() {
    let shards = Shards::new(10, 5, 1).unwrap();
    let table = Table::new(shards, 1, FOR_EVER);
    let saved = table.save();
    let lease = table.claim(0, 1).unwrap().0.unwrap();
    let error = table.commit(0, lease, &[1, 2, 77]).unwrap_err();
    assert!(error.message().contains("77"), "{error}");
    let refused = [
        table.claim(1, 1).map(|_| ()).unwrap_err(),
        table.commit(0, lease, &shards.batch(0, 0, 5)).unwrap_err(),
        table.try_save().map(|_| ()).unwrap_err(),
    ];
    for error in refused {
        assert!(error.message().contains("generation"), "{error}");
    }
    table.restore(&saved, 2);
    assert_eq!(table.counts(), [0; 10]);
    let lease = table.claim(0, 2).unwrap().0.unwrap();
    table.commit(0, lease, &shards.batch(0, 0, 5)).unwrap();
    assert_eq!(table.counts().iter().sum::<i64>(), 5);
}

#[test]
fn another_generation_is_refused() {
    let shards = Shards::new(10, 5, 1).unwrap();
    let table = Table::new(shards, 1, FOR_EVER);
    let lease = table.claim(0, 1).unwrap().0.unwrap();
    table.set_generation(7);
    let refused = [
        table.claim(0, 1).map(|_| ()).unwrap_err(),
        table.commit(0, lease, &shards.batch(0, 0, 5)).unwrap_err(),
    ];
    for error in refused {
        assert!(error.message().contains("another generation"), "{error}");
    }
    assert_eq!(table.counts(), [0; 10]);
    let state = table.session.run(&[], &[&table.names.state], &[]).unwrap();
    assert_eq!(state[0].shape().dims(), [2, 3]);
}
