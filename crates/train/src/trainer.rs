//! Supervised training: workers on a cluster, whose tasks may die, learn from samples that are
//! accounted for.
//!
//! Each worker has a session on its own task. The chief, worker 0, gives the variables their values,
//! new ones or those of the newest checkpoint, whenever they have none; all other workers wait for
//! that. Whoever loses a task opens another session until there is one. Checkpoints are written beside
//! the steps, and often enough that no more than one interval of updates can be lost with a parameter
//! server.

mod checkpoint;
mod hooks;
mod monitor;
mod program;
mod replica;
mod screen;
mod shared;

use std::sync::Arc;
use std::time::Duration;

use thalweg_cluster::TaskName;
use thalweg_graph::Output;
use thalweg_tensor::{Error, Result, Tensor, ensure};

use crate::leases::Shards;
use crate::{Cluster, Mode, Model, Optimizer, Stops, mnist};
pub use hooks::{EarlyStop, Flow, Hook, Step};
use program::Program;
pub use screen::{Event, Progress, Screen};
use shared::Shared;

/// What a net learns from.
pub trait Samples: Sync {
    /// How many there are.
    fn count(&self) -> usize;

    /// Some of them, as the tensors that the net's inputs are fed with, in their order.
    fn batch(&self, indices: &[usize]) -> Result<Vec<Tensor>>;
}

impl Samples for mnist::Digits {
    fn count(&self) -> usize {
        self.len()
    }

    fn batch(&self, indices: &[usize]) -> Result<Vec<Tensor>> {
        let (images, labels) = mnist::Digits::batch(self, indices)?;
        Ok(vec![images, labels])
    }
}

/// A net that is to be trained.
#[derive(Clone, Debug)]
pub struct Net {
    /// What batches are fed to.
    pub inputs: Vec<Output>,
    /// What is to become small.
    pub loss: Output,
    /// Scalars that are shown beside the loss, with their names.
    pub figures: Vec<(String, Output)>,
}

/// How a training goes.
#[derive(Clone, Debug)]
pub struct TrainOptions {
    /// Where checkpoints lie; event files lie in `events` under it. All tasks must see it.
    pub folder: String,
    /// How workers wait for each other.
    pub mode: Mode,
    /// Samples of a step.
    pub batch: usize,
    /// How often each sample is used.
    pub epochs: u64,
    /// Batches of a shard, which a worker holds at a time.
    pub batches_per_shard: usize,
    /// The most updates that are lost with a parameter server: the interval of checkpoints.
    pub updates_lost_max: u64,
    /// Checkpoints that are kept.
    pub checkpoints_max: usize,
    /// Updates from one entry of the model's summaries in the event file to the next; 0 for none.
    pub summary_steps: u64,
    /// Updates after which it ends, if its samples have not ended it before.
    pub updates_max: Option<u64>,
    /// Time after which it ends.
    pub time_max: Option<Duration>,
    /// The workers that this process drives; all by default.
    pub workers: Option<Vec<usize>>,
    /// After such a silence the samples of a worker are given to others.
    pub lease: Duration,
    /// How long one step may take.
    pub step_time_max: Duration,
    /// How long a checkpoint may take to be written. One that takes longer is given up and begun anew;
    /// when none succeeds for `outage_max`, training fails.
    pub save_time_max: Duration,
    /// For how long tasks may be gone before training fails.
    pub outage_max: Duration,
    /// The tasks that end once training has ended well, and all who train here have closed their
    /// sessions: none unless told. Whoever drives worker 0 tells them.
    pub stops: Stops,
    /// Where random numbers begin: first values, and the order of samples.
    pub seed: u64,
}

impl Default for TrainOptions {
    fn default() -> TrainOptions {
        TrainOptions {
            folder: "training".into(),
            mode: Mode::Async,
            batch: 100,
            epochs: 1,
            batches_per_shard: 10,
            updates_lost_max: 500,
            checkpoints_max: 5,
            summary_steps: 100,
            updates_max: None,
            time_max: None,
            workers: None,
            lease: Duration::from_secs(60),
            step_time_max: Duration::from_secs(50),
            save_time_max: Duration::from_secs(300),
            outage_max: Duration::from_secs(300),
            stops: Stops::Nobody,
            seed: 87_654_321,
        }
    }
}

impl TrainOptions {
    fn validate(&self, workers: usize) -> Result<()> {
        ensure!(self.batch > 0, InvalidArgument, "a batch has at least one sample");
        ensure!(self.batches_per_shard > 0, InvalidArgument, "a shard has at least one batch");
        ensure!(
            self.updates_lost_max >= workers as u64,
            InvalidArgument,
            "each of {workers} workers may have an update on its way that is in no checkpoint, but \
             updates_lost_max is {}",
            self.updates_lost_max
        );
        ensure!(
            !self.save_time_max.is_zero(),
            InvalidArgument,
            "a checkpoint takes some time, but save_time_max is zero"
        );
        ensure!(
            self.step_time_max < self.lease,
            InvalidArgument,
            "a step may take {:?}, but the lease of its samples only lasts {:?}",
            self.step_time_max,
            self.lease
        );
        let beyond = self.workers.iter().flatten().find(|&&worker| worker >= workers);
        ensure!(
            beyond.is_none(),
            InvalidArgument,
            "there is no worker {}, only {workers}",
            beyond.copied().unwrap_or_default()
        );
        Ok(())
    }
}

/// What came of a training.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Updates that the variables have seen.
    pub updates: u64,
    /// Samples that led to them.
    pub samples: u64,
    /// The loss, averaged over the last steps.
    pub loss: f32,
    /// How long it took.
    pub took: Duration,
    /// Updates that were lost with parameter servers; their samples were used again.
    pub updates_lost: u64,
    /// How often a worker was interrupted.
    pub interruptions: u64,
    /// The last checkpoint; none if another process has the chief.
    pub checkpoint: Option<String>,
    /// The folder of event files.
    pub events: String,
    /// Tasks that were to end and go on, and why.
    pub left: Vec<(TaskName, Error)>,
}

/// Trains a net on a cluster.
pub struct Trainer<'a> {
    cluster: &'a Cluster,
    options: TrainOptions,
    hooks: Vec<Arc<dyn Hook>>,
    screen: Screen,
}

/// What the parts of a training share and do not change.
struct Plan<'a> {
    cluster: &'a Cluster,
    options: &'a TrainOptions,
    optimizer: &'a Optimizer,
    shards: Shards,
    samples: &'a dyn Samples,
    hooks: &'a [Arc<dyn Hook>],
    screen: &'a Screen,
    /// Whether this process drives worker 0.
    has_chief: bool,
}

impl Plan<'_> {
    /// Updates in no checkpoint beyond which workers hold back: each may have one more on its way.
    fn updates_unsaved_max(&self) -> u64 {
        self.options.updates_lost_max.saturating_sub(self.cluster.workers().len() as u64)
    }

    /// Whether this process writes the model's summaries: the one that drives the chief does.
    fn writes_summaries(&self) -> bool {
        self.has_chief && self.options.summary_steps > 0
    }
}

impl<'a> Trainer<'a> {
    /// A training on `cluster`, shown on standard output.
    pub fn new(cluster: &'a Cluster, options: TrainOptions) -> Trainer<'a> {
        Trainer { cluster, options, hooks: Vec::new(), screen: Screen::standard() }
    }

    /// Has `hook` called.
    #[must_use]
    pub fn hook(mut self, hook: Arc<dyn Hook>) -> Trainer<'a> {
        self.hooks.push(hook);
        self
    }

    /// Shows it elsewhere.
    #[must_use]
    pub fn screen(mut self, screen: Screen) -> Trainer<'a> {
        self.screen = screen;
        self
    }

    /// Trains the net that `build` adds to the graph of each worker, until the samples, a limit or a
    /// hook ends it. If the folder has a checkpoint, it goes on from there.
    pub fn run(
        &self,
        samples: &dyn Samples,
        optimizer: &Optimizer,
        build: impl Fn(&mut Model) -> Result<Net>,
    ) -> Result<Outcome> {
        let options = &self.options;
        let count = self.cluster.workers().len();
        options.validate(count)?;
        let per_shard = options.batch.saturating_mul(options.batches_per_shard);
        let workers = options.workers.clone().unwrap_or_else(|| (0..count).collect());
        let plan = Plan {
            cluster: self.cluster,
            options,
            optimizer,
            shards: Shards::new(samples.count(), per_shard, options.seed)?,
            samples,
            hooks: &self.hooks,
            screen: &self.screen,
            has_chief: workers.contains(&0),
        };
        let programs: Vec<(usize, Program)> = workers
            .iter()
            .map(|&worker| Ok((worker, Program::new(self.cluster, &plan, worker, &build)?)))
            .collect::<Result<_>>()?;
        let shared = Shared::new(options);
        let mut outcome = monitor::run(&plan, &shared, &programs)?;
        if plan.has_chief {
            outcome.left = self.stop(&plan, &shared)?;
        }
        for hook in &self.hooks {
            hook.end(&outcome)?;
        }
        Ok(outcome)
    }

    /// Ends the tasks that are to end; those that go on.
    fn stop(&self, plan: &Plan<'_>, shared: &Shared) -> Result<Vec<(TaskName, Error)>> {
        if plan.options.stops == Stops::Nobody {
            return Ok(Vec::new());
        }
        // Workers of other processes may be in a step, and are told after it.
        let left = self.cluster.stop(plan.options.stops, plan.options.step_time_max)?;
        let refused = left.iter().map(|(task, error)| format!("{task}: {error}")).collect();
        shared.tell(plan, &Event::Stopped { stops: plan.options.stops, refused });
        Ok(left)
    }
}
