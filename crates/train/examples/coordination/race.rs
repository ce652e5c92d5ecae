//! Five workers train on digits, one of them slow: what each coordination mode makes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use thalweg_cluster::RemoteSession;
use thalweg_tensor::{Result, Tensor};
use thalweg_train::{
    Chief, Cluster, Coordinated, Dense, Flatten, Layer, Mode, Model, Optimizer, losses, mnist,
};

/// Digits that the loss is measured on.
const TESTED: usize = 200;
/// Digits of one gradient.
const BATCH: usize = 16;
/// Length of the time in which one worker stays the slow one.
const WINDOW: Duration = Duration::from_millis(1000);

/// One training.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Race {
    /// How the workers wait for each other.
    pub(crate) mode: Mode,
    /// How many there are.
    pub(crate) workers: usize,
    /// What a gradient costs a worker besides the little that these small ones do.
    pub(crate) pace: Duration,
    /// How much longer the slow worker takes; 1 if none is slow.
    pub(crate) slowness: u32,
    /// How long they train.
    pub(crate) length: Duration,
    /// How often the loss is measured.
    pub(crate) interval: Duration,
}

/// Where a training stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    /// Since it began.
    pub(crate) seconds: f64,
    /// Changes of the variables.
    pub(crate) updates: i64,
    /// Gradients in them.
    pub(crate) used: u64,
    /// Gradients that came too late.
    pub(crate) dropped: u64,
    /// On digits that are not trained on.
    pub(crate) loss: f32,
}

/// A worker's session and what it runs in it.
struct Worker {
    session: Arc<RemoteSession>,
    train: Coordinated,
    init: String,
    loss: String,
}

#[derive(Default)]
struct Tally {
    is_over: AtomicBool,
    used: AtomicU64,
    dropped: AtomicU64,
}

impl Race {
    /// Trains and measures.
    pub(crate) fn run(&self) -> Result<Vec<Point>> {
        let (digits, tested) = (mnist::train()?, mnist::test()?);
        let tested = feeds(&tested, &(0..TESTED).collect::<Vec<usize>>())?;
        let cluster = Cluster::local(1, self.workers as u32)?;
        let all: Vec<Worker> =
            (0..self.workers).map(|i| self.worker(&cluster, i)).collect::<Result<_>>()?;
        let chief_of = &all[0];
        chief_of.session.run(&[], &[], &[&chief_of.init])?;
        let ops = chief_of.train.chief.as_ref();
        let chief = ops.map(|ops| Chief::start(chief_of.session.clone(), ops)).transpose()?;
        for worker in &all {
            let start = worker.train.start_worker.as_ref();
            start.map(|start| worker.session.run(&[], &[], &[start])).transpose()?;
        }
        let (tally, begun) = (Tally::default(), Instant::now());
        std::thread::scope(|threads| {
            let steps: Vec<_> = all
                .iter()
                .enumerate()
                .map(|(i, worker)| {
                    let (tally, digits) = (&tally, &digits);
                    let slow = move || self.is_slow(i, begun.elapsed());
                    threads.spawn(move || {
                        self.train(worker, Random(i as u64 + 1), digits, tally, slow)
                    })
                })
                .collect();
            let points = self.watch(chief_of, &tested, &tally);
            tally.is_over.store(true, Ordering::Relaxed);
            // Wakes whoever waits for gradients that nobody computes any more.
            let stopped = chief.map_or(Ok(()), Chief::stop);
            for step in steps {
                step.join().expect("a worker's thread does not panic")?;
            }
            stopped.and(points)
        })
    }

    fn worker(&self, cluster: &Cluster, index: usize) -> Result<Worker> {
        let model = cluster.place(Model::new().seed(1), index)?;
        let images = model.placeholder::<f32>("images", [None, Some(28), Some(28), Some(1)]);
        let labels = model.placeholder::<i64>("labels", [None]);
        let logits = Dense::new(10).apply(&model, &Flatten.apply(&model, &images));
        let loss = losses::softmax_cross_entropy(&logits, &labels);
        let optimizer = Optimizer::sgd(0.1).locking();
        let replica = cluster.replica(index);
        let train = self.mode.minimize(&model, &optimizer, &loss, replica)?;
        let (init, loss) = (model.init().name()?, loss.name()?);
        let session = Arc::new(cluster.session(index, &model.as_scope().to_graph())?);
        Ok(Worker { session, train, init, loss })
    }

    /// What one worker does.
    fn train(
        &self,
        worker: &Worker,
        mut random: Random,
        digits: &mnist::Digits,
        tally: &Tally,
        is_slow: impl Fn() -> bool,
    ) -> Result<()> {
        while !tally.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(self.pace * if is_slow() { self.slowness } else { 1 });
            let chosen: Vec<usize> = (0..BATCH).map(|_| random.below(digits.len())).collect();
            let (_, is_used) = worker.train.run(&*worker.session, &feeds(digits, &chosen)?, &[])?;
            let counter = if is_used { &tally.used } else { &tally.dropped };
            counter.fetch_add(1, Ordering::Relaxed);
        }
        let leave = worker.train.leave.as_ref();
        leave.map(|leave| worker.session.run(&[], &[], &[leave])).transpose()?;
        Ok(())
    }

    /// Whether a worker is the slow one: in each window another, at random.
    fn is_slow(&self, index: usize, now: Duration) -> bool {
        let window = (now.as_millis() / WINDOW.as_millis()) as u64;
        Random(window + 1).below(self.workers) == index
    }

    /// Measures from the first change of the variables on: before it, plans are made.
    fn watch(&self, worker: &Worker, tested: &Feeds, tally: &Tally) -> Result<Vec<Point>> {
        while worker.measure(tested)?.0 == 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let (mut points, begun) = (Vec::new(), Instant::now());
        loop {
            let seconds = begun.elapsed().as_secs_f64();
            let (updates, loss) = worker.measure(tested)?;
            let used = tally.used.load(Ordering::Relaxed);
            let dropped = tally.dropped.load(Ordering::Relaxed);
            points.push(Point { seconds, updates, used, dropped, loss });
            if begun.elapsed() >= self.length {
                return Ok(points);
            }
            std::thread::sleep(self.interval);
        }
    }
}

impl Worker {
    fn measure(&self, tested: &Feeds) -> Result<(i64, f32)> {
        let fetches = [self.train.global_step.as_str(), self.loss.as_str()];
        let got = self.session.run(tested, &fetches, &[])?;
        Ok((got[0].scalar_value()?, got[1].scalar_value()?))
    }
}

/// Digits, as the graph takes them.
type Feeds = Vec<(&'static str, Tensor)>;

fn feeds(digits: &mnist::Digits, chosen: &[usize]) -> Result<Feeds> {
    let (images, labels) = digits.batch(chosen)?;
    Ok(vec![("images:0", images), ("labels:0", labels)])
}

/// Numbers that look random, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        for _ in 0..4 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(0x9e37_79b9);
            self.0 ^= self.0 >> 29;
        }
        (self.0 >> 33) as usize % limit
    }
}
