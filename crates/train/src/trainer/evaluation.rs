//! Evaluation of checkpoints, beside training.
//!
//! A checkpoint is one state of all variables, and the variables of a running training are not. So
//! an evaluation restores a checkpoint into a session of its own, in this process.

use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_api::Output;
use thalweg_kernel::Environment;
use thalweg_ops::Registry;
use thalweg_runtime::{Session, SessionOptions, system_environment};
use thalweg_storage::ByUrl;
use thalweg_tensor::{Context, Result, Tensor, ensure};

use super::{Net, Samples};
use crate::metrics::{Metric, Sums};
use crate::{Model, RunSteps, Saver};

/// When a training is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// After each of so many epochs.
    Epochs(u64),
    /// After each of so many updates.
    Updates(u64),
}

impl Every {
    /// How often it was due after so many epochs and updates.
    pub(super) fn times(self, epochs: u64, updates: u64) -> u64 {
        match self {
            Every::Epochs(every) => epochs / every.max(1),
            Every::Updates(every) => updates / every.max(1),
        }
    }
}

/// The loss and the metrics of a checkpoint on the evaluation data.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The number of updates of the checkpoint.
    pub updates: u64,
    /// The mean loss.
    pub loss: f32,
    /// The network's metrics over all samples, by name.
    pub metrics: Vec<(String, f32)>,
    /// The prefix of the checkpoint.
    pub checkpoint: String,
}

impl Evaluation {
    /// The metric of this name, or the `loss`.
    pub fn value(&self, name: &str) -> Option<f32> {
        let found = self.metrics.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| *value).or((name == "loss").then_some(self.loss))
    }
}

/// The network for inference, in a session of this process.
pub(super) struct Evaluator<'a> {
    samples: &'a dyn Samples,
    pub every: Every,
    batch: usize,
    session: Session,
    /// Restores the session's variables, one evaluation at a time.
    saver: Mutex<Saver>,
    inputs: Vec<String>,
    metrics: Vec<(String, Metric)>,
    /// Fetched: the loss, then the statistics of the metrics.
    fetches: Vec<String>,
}

impl<'a> Evaluator<'a> {
    pub(super) fn new(
        registry: &Registry,
        (samples, every): (&'a dyn Samples, Every),
        batch: usize,
        build: &dyn Fn(&Model) -> Net,
    ) -> Result<Evaluator<'a>> {
        ensure!(samples.count() > 0, InvalidArgument, "the evaluation data has no samples");
        let model = Model::with_registry(registry.clone()).inference();
        let net = build(&model);
        model.check().context(|| "the network for evaluation")?;
        let saver = Saver::of_model(&model)?;
        let environment =
            Environment { storage: Arc::new(ByUrl::default()), ..system_environment() };
        let options = SessionOptions { environment, ..SessionOptions::default() };
        let graph = model.as_scope().to_graph();
        let session = Session::new(graph, registry.kernels.clone(), options)?;
        let statistics = net.metrics.iter().map(|(_, metric)| &metric.statistics);
        let fetches = std::iter::once(&net.loss).chain(statistics);
        Ok(Evaluator {
            samples,
            every,
            batch,
            session,
            saver: Mutex::new(saver),
            inputs: net.inputs.iter().map(Output::name).collect::<Result<_>>()?,
            fetches: fetches.map(Output::name).collect::<Result<_>>()?,
            metrics: net.metrics,
        })
    }

    /// Evaluates a checkpoint on all samples.
    pub(super) fn evaluate(&self, checkpoint: &str, updates: u64) -> Result<Evaluation> {
        let saver = self.saver.lock();
        saver.restore(&self.session, checkpoint)?;
        let of_metrics = self.metrics.iter().map(|(_, metric)| metric.sums());
        let mut sums: Vec<Sums> =
            std::iter::once(Metric::mean_of_samples()).chain(of_metrics).collect();
        let fetches: Vec<&str> = self.fetches.iter().map(String::as_str).collect();
        let count = self.samples.count();
        for begin in (0..count).step_by(self.batch) {
            let indices: Vec<usize> = (begin..count.min(begin + self.batch)).collect();
            let tensors = self.samples.batch(&indices)?;
            let feeds: Vec<(&str, Tensor)> =
                self.inputs.iter().map(String::as_str).zip(tensors).collect();
            let found = self.session.run_step(&feeds, &fetches, &[])?;
            for (sums, statistics) in sums.iter_mut().zip(&found) {
                sums.add(statistics, indices.len())?;
            }
        }
        let names = self.metrics.iter().map(|(name, _)| name.clone());
        Ok(Evaluation {
            updates,
            loss: sums[0].value(),
            metrics: names.zip(sums[1..].iter().map(Sums::value)).collect(),
            checkpoint: checkpoint.to_owned(),
        })
    }
}
