//! Supervised distributed training: workers on a cluster whose tasks may fail, with exactly-once
//! accounting of samples.
//!
//! Each worker has a session on its own task. The chief, worker 0, initializes the variables, or
//! restores them from the most recent checkpoint, whenever they are uninitialized; all other
//! workers wait for it. A worker that loses a task opens new sessions until one succeeds.
//! Checkpoints are written concurrently with steps, often enough that a failed parameter server
//! loses at most `updates_lost_max` updates.

mod callbacks;
mod checkpoint;
mod evaluation;
mod monitor;
mod program;
mod replica;
mod screen;
mod shared;
mod step;

use std::time::Duration;

use thalweg_api::{Any, Output, TensorType};
use thalweg_cluster::TaskName;
use thalweg_tensor::{Error, Result, Tensor, ensure};

use crate::leases::Shards;
use crate::metrics::Metric;
use crate::{Cluster, Mode, Model, Optimizer, Stops, mnist};
pub use callbacks::{Callback, Checkpoint, Control, EarlyStopping, Epoch, ReduceOnPlateau, Step};
use evaluation::Evaluator;
pub use evaluation::{Evaluation, Every};
use program::Program;
pub use screen::{Event, Progress, Screen};
use shared::Shared;

/// A data set.
pub trait Samples: Sync {
    /// The number of samples.
    fn count(&self) -> usize;

    /// The samples at `indices`, as tensors for the network's inputs in their order.
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

/// A network to train.
#[derive(Clone, Debug)]
pub struct Net {
    /// The tensors that batches are fed to.
    pub inputs: Vec<Output<Any>>,
    /// The loss to minimize.
    pub loss: Output<f32>,
    /// Metrics that are reported beside the loss, by name.
    pub metrics: Vec<(String, Metric)>,
}

impl Net {
    /// A network with the tensors that batches are fed to, in the order of [`Samples::batch`], and
    /// the loss to minimize: a mean over the batch.
    pub fn new(inputs: impl Inputs, loss: &Output<f32>) -> Net {
        Net { inputs: inputs.into_inputs(), loss: loss.clone(), metrics: Vec::new() }
    }

    /// Adds a metric that is reported beside the loss, in training and in evaluation: a scalar that
    /// is a mean over the batch, or a [`Metric`].
    #[must_use]
    pub fn metric(mut self, name: &str, metric: impl Into<Metric>) -> Net {
        self.metrics.push((name.to_owned(), metric.into()));
        self
    }
}

/// The inputs of a network: a handle, a tuple of handles, or a vector of handles of any type.
pub trait Inputs {
    /// The handles.
    fn into_inputs(self) -> Vec<Output<Any>>;
}

impl Inputs for Vec<Output<Any>> {
    fn into_inputs(self) -> Vec<Output<Any>> {
        self
    }
}

impl<T: TensorType> Inputs for &Output<T> {
    fn into_inputs(self) -> Vec<Output<Any>> {
        vec![self.any()]
    }
}

macro_rules! inputs {
    ($(($($t:ident $i:tt),+);)+) => { $(
        impl<$($t: TensorType),+> Inputs for ($(&Output<$t>,)+) {
            fn into_inputs(self) -> Vec<Output<Any>> {
                vec![$(self.$i.any()),+]
            }
        }
    )+ };
}

inputs! {
    (A 0);
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
    (A 0, B 1, C 2, D 3, E 4);
    (A 0, B 1, C 2, D 3, E 4, F 5);
}

/// Options of a training.
#[derive(Clone, Debug)]
pub struct TrainOptions {
    /// The folder of checkpoints; event files are in `events` under it. All tasks must see it.
    pub folder: String,
    /// The coordination mode.
    pub mode: Mode,
    /// The batch size of each step.
    pub batch: usize,
    /// The number of micro-batches of a batch: their gradients are computed one after the other and
    /// accumulated, so that a step needs less memory.
    pub micro_batches: usize,
    /// The batch size of evaluations.
    pub evaluation_batch: usize,
    /// The number of epochs.
    pub epochs: u64,
    /// The size of a shard in batches; a worker holds one shard at a time.
    pub batches_per_shard: usize,
    /// The maximum number of updates that are lost with a parameter server; it bounds the interval
    /// of checkpoints.
    pub updates_lost_max: u64,
    /// The number of checkpoints to keep.
    pub checkpoints_max: usize,
    /// The number of updates between two summaries in the event file; 0 for none.
    pub summary_steps: u64,
    /// The number of updates after which training ends, if the samples do not end it before.
    pub updates_max: Option<u64>,
    /// The time after which training ends.
    pub time_max: Option<Duration>,
    /// The workers that this process runs; all by default.
    pub workers: Option<Vec<usize>>,
    /// The lease time: a worker that sends nothing for so long loses its samples to others.
    pub lease: Duration,
    /// The deadline of one step.
    pub step_time_max: Duration,
    /// The deadline of writing a checkpoint. A checkpoint that takes longer is abandoned and
    /// started again; if none succeeds for `outage_max`, training fails.
    pub save_time_max: Duration,
    /// For how long tasks may be unavailable before training fails.
    pub outage_max: Duration,
    /// The tasks to stop once training has succeeded and all processes that train have closed their
    /// sessions; none by default. The process that runs worker 0 stops them.
    pub stops: Stops,
    /// The seed of initial values and of the order of samples.
    pub seed: u64,
}

impl Default for TrainOptions {
    fn default() -> TrainOptions {
        TrainOptions {
            folder: "training".into(),
            mode: Mode::Async,
            batch: 100,
            micro_batches: 1,
            evaluation_batch: 500,
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
        ensure!(self.batch > 0, InvalidArgument, "batch must be at least 1");
        ensure!(
            self.micro_batches > 0 && self.micro_batches <= self.batch,
            InvalidArgument,
            "micro_batches must be between 1 and the batch size {}, got {}",
            self.batch,
            self.micro_batches
        );
        let evaluation_batch = self.evaluation_batch;
        ensure!(evaluation_batch > 0, InvalidArgument, "evaluation_batch must be at least 1");
        ensure!(
            self.batches_per_shard > 0,
            InvalidArgument,
            "batches_per_shard must be at least 1"
        );
        ensure!(
            self.updates_lost_max >= workers as u64,
            InvalidArgument,
            "each of {workers} workers may have an update on its way that is in no checkpoint, but \
             updates_lost_max is {}",
            self.updates_lost_max
        );
        ensure!(!self.save_time_max.is_zero(), InvalidArgument, "save_time_max must not be zero");
        ensure!(
            self.step_time_max < self.lease,
            InvalidArgument,
            "step_time_max ({:?}) must be less than lease ({:?})",
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

/// The result of a training.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The number of updates of the variables.
    pub updates: u64,
    /// The number of samples that led to these updates.
    pub samples: u64,
    /// The loss, as an exponential moving average over steps.
    pub loss: f32,
    /// The duration.
    pub took: Duration,
    /// The number of updates that were lost with parameter servers; their samples were used again.
    pub updates_lost: u64,
    /// How often a worker was interrupted.
    pub interruptions: u64,
    /// The last checkpoint, or the one that was restored at the end; `None` if another process runs
    /// the chief.
    pub checkpoint: Option<String>,
    /// The evaluations, in their order; those of the process that runs the chief.
    pub evaluations: Vec<Evaluation>,
    /// The folder of event files.
    pub events: String,
    /// Tasks that should have stopped and still run, with the reason.
    pub left: Vec<(TaskName, Error)>,
}

/// Trains a network on a cluster.
///
/// ```no_run
/// use thalweg_tensor::Result;
/// use thalweg_train::trainer::{EarlyStopping, Every};
/// use thalweg_train::{
///     Adam, Cluster, Dense, Flatten, Layer, Net, TrainOptions, Trainer, losses, metrics, mnist,
/// };
///
/// # fn main() -> Result<()> {
/// // This process; or `Cluster::connect("ps=host:port;worker=host:port,host:port")?`.
/// let cluster = Cluster::local(1, 2)?;
/// let options = TrainOptions { epochs: 10, ..TrainOptions::default() };
/// let unseen = mnist::test()?;
/// let outcome = Trainer::new(&cluster, options)
///     .evaluate(&unseen, Every::Epochs(1))
///     .callback(EarlyStopping::maximize("accuracy").patience(2).restore_best())
///     .run(&mnist::train()?, Adam::new(1e-3), |model| {
///         let images = model.placeholder::<f32>("images", [None, Some(28), Some(28), Some(1)]);
///         let labels = model.placeholder::<i64>("labels", [None]);
///         let logits = Dense::new(10).apply(model, &Flatten.apply(model, &images));
///         let loss = losses::softmax_cross_entropy(&logits, &labels);
///         let accuracy = metrics::accuracy(&logits, &labels);
///         Net::new((&images, &labels), &loss).metric("accuracy", accuracy)
///     })?;
/// println!("{:?} is in {:?}", outcome.evaluations.last(), outcome.checkpoint);
/// # Ok(())
/// # }
/// ```
pub struct Trainer<'a> {
    cluster: &'a Cluster,
    options: TrainOptions,
    callbacks: Vec<Box<dyn Callback + 'a>>,
    evaluation: Option<(&'a dyn Samples, Every)>,
    screen: Screen,
}

/// The immutable state that the threads of a training share.
struct Plan<'a> {
    cluster: &'a Cluster,
    options: &'a TrainOptions,
    optimizer: &'a Optimizer,
    shards: Shards,
    samples: &'a dyn Samples,
    callbacks: &'a [Box<dyn Callback + 'a>],
    /// The evaluation, in the process that runs the chief.
    evaluator: Option<Evaluator<'a>>,
    screen: &'a Screen,
    /// Whether this process runs worker 0.
    has_chief: bool,
}

impl Plan<'_> {
    /// The number of unsaved updates beyond which workers pause: each worker may have one more in
    /// flight.
    fn updates_unsaved_max(&self) -> u64 {
        self.options.updates_lost_max.saturating_sub(self.cluster.workers().len() as u64)
    }

    /// Whether this process writes the model's summaries: the one that runs the chief does.
    fn writes_summaries(&self) -> bool {
        self.has_chief && self.options.summary_steps > 0
    }
}

impl<'a> Trainer<'a> {
    /// A training on `cluster`, with progress on standard output.
    pub fn new(cluster: &'a Cluster, options: TrainOptions) -> Trainer<'a> {
        let screen = Screen::standard();
        Trainer { cluster, options, callbacks: Vec::new(), evaluation: None, screen }
    }

    /// Adds a callback.
    #[must_use]
    pub fn callback(mut self, callback: impl Callback + 'a) -> Trainer<'a> {
        self.callbacks.push(Box::new(callback));
        self
    }

    /// Evaluates checkpoints on these samples during training and at its end, in the process that
    /// runs the chief: the network is built for inference there, and gives its loss and metrics.
    /// Workers train on meanwhile.
    #[must_use]
    pub fn evaluate(mut self, samples: &'a dyn Samples, every: Every) -> Trainer<'a> {
        self.evaluation = Some((samples, every));
        self
    }

    /// Sets where progress is shown.
    #[must_use]
    pub fn screen(mut self, screen: Screen) -> Trainer<'a> {
        self.screen = screen;
        self
    }

    /// Trains the network that `build` adds to the graph of each worker, until the samples, a limit
    /// or a callback ends training. If the folder has a checkpoint, training continues from it.
    pub fn run(
        &self,
        samples: &dyn Samples,
        optimizer: impl Into<Optimizer>,
        build: impl Fn(&Model) -> Net,
    ) -> Result<Outcome> {
        let optimizer = optimizer.into();
        let options = &self.options;
        let count = self.cluster.workers().len();
        options.validate(count)?;
        let per_shard = options.batch.saturating_mul(options.batches_per_shard);
        let workers = options.workers.clone().unwrap_or_else(|| (0..count).collect());
        let evaluation = self.evaluation.filter(|_| workers.contains(&0));
        let evaluator = match evaluation {
            Some(evaluation) => {
                let registry = self.cluster.registry();
                Some(Evaluator::new(registry, evaluation, options.evaluation_batch, &build)?)
            }
            None => None,
        };
        let plan = Plan {
            cluster: self.cluster,
            options,
            optimizer: &optimizer,
            shards: Shards::new(samples.count(), per_shard, options.seed)?,
            samples,
            callbacks: &self.callbacks,
            evaluator,
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
        for callback in &self.callbacks {
            callback.on_end(&outcome)?;
        }
        Ok(outcome)
    }

    /// Stops the tasks that are to be stopped; returns those that still run.
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
