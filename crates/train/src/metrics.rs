//! Metrics of classification and regression, and streaming means.

use thalweg_graph::{NodeId, Output};
use thalweg_tensor::{DType, Result, Tensor};

use crate::losses::{as_rows, as_vector};
use crate::{Initializer, Model, Variable, losses};

/// A metric over many batches: statistics of a batch, which are summed over batches, and a function
/// of the sums.
///
/// A scalar tensor is a metric too: its mean over all samples.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub(crate) statistics: Output,
    value: Value,
}

/// How a metric follows from its statistics.
#[derive(Clone, Copy, Debug)]
enum Value {
    /// The mean of a scalar over samples.
    Mean,
    /// Of the sums of the statistics.
    OfSums(fn(&[f64]) -> f64),
}

/// The sums of a metric's statistics.
#[derive(Clone, Debug)]
pub(crate) struct Sums {
    value: Value,
    sums: Vec<f64>,
    samples: f64,
}

impl From<Output> for Metric {
    fn from(statistics: Output) -> Metric {
        Metric { statistics, value: Value::Mean }
    }
}

impl Metric {
    /// Empty sums of a mean over samples, such as the loss.
    #[cfg(feature = "remote")]
    pub(crate) fn mean_of_samples() -> Sums {
        Sums { value: Value::Mean, sums: Vec::new(), samples: 0.0 }
    }

    /// Empty sums.
    pub(crate) fn sums(self) -> Sums {
        Sums { value: self.value, sums: Vec::new(), samples: 0.0 }
    }
}

impl Sums {
    /// Adds the statistics of a batch.
    pub(crate) fn add(&mut self, statistics: &Tensor, samples: usize) -> Result<()> {
        let weight = match self.value {
            Value::Mean => samples as f64,
            Value::OfSums(_) => 1.0,
        };
        let statistics = statistics.as_slice::<f32>()?;
        self.sums.resize(statistics.len(), 0.0);
        for (sum, value) in self.sums.iter_mut().zip(statistics) {
            *sum += weight * f64::from(*value);
        }
        self.samples += samples as f64;
        Ok(())
    }

    /// The metric over all batches that were added; NaN if there were none.
    pub(crate) fn value(&self) -> f32 {
        let value = match self.value {
            _ if self.sums.is_empty() => f64::NAN,
            Value::Mean => self.sums[0] / self.samples,
            Value::OfSums(value) => value(&self.sums),
        };
        value as f32
    }
}

/// Accuracy: the fraction of examples whose highest logit is that of the true class.
pub fn accuracy(model: &mut Model, logits: Output, labels: Output) -> Result<Output> {
    let right = is_right(model, logits, labels)?;
    losses::mean(model, right)
}

/// 1 for each example (or each time step of each) that is classified correctly, else 0.
pub fn is_right(model: &mut Model, logits: Output, labels: Output) -> Result<Output> {
    let (logits, labels) = (as_rows(model, logits)?, as_vector(model, labels)?);
    let axis = model.int(1)?;
    let dtype = model.dtype(labels);
    let best = model.op("ArgMax").inputs(&[logits, axis]).attr("output_type", dtype).build()?;
    let right = model.add("Equal", &[best, labels])?;
    model.cast(right, DType::Float)
}

/// Top-k accuracy: the fraction of examples whose true class is among the `k` highest logits.
pub fn top_k_accuracy(model: &mut Model, logits: Output, labels: Output, k: i32) -> Result<Output> {
    let dtype = model.dtype(labels);
    let k = model.number(dtype, f64::from(k))?;
    let right = model.op("InTopKV2").inputs(&[logits, labels, k]).build()?;
    let right = model.cast(right, DType::Float)?;
    losses::mean(model, right)
}

/// The score from which on an example counts as positive.
const THRESHOLD: f64 = 0.5;
/// The number of thresholds of [`auc`].
const THRESHOLDS: usize = 200;

/// Precision of a binary classifier: the fraction of positive predictions that are right. `scores`
/// are probabilities, positive above 0.5; `labels` are floats, 0 or 1. It is 0 where no prediction
/// is positive.
pub fn precision(model: &mut Model, scores: Output, labels: Output) -> Result<Metric> {
    let statistics = confusion(model, scores, labels)?;
    let value = |sums: &[f64]| ratio(sums[TP], sums[TP] + sums[FP]);
    Ok(Metric { statistics, value: Value::OfSums(value) })
}

/// Recall of a binary classifier: the fraction of positive examples that are found. Arguments as
/// for [`precision`].
pub fn recall(model: &mut Model, scores: Output, labels: Output) -> Result<Metric> {
    let statistics = confusion(model, scores, labels)?;
    let value = |sums: &[f64]| ratio(sums[TP], sums[TP] + sums[FN]);
    Ok(Metric { statistics, value: Value::OfSums(value) })
}

/// F1 score of a binary classifier: the harmonic mean of precision and recall. Arguments as for
/// [`precision`].
pub fn f1_score(model: &mut Model, scores: Output, labels: Output) -> Result<Metric> {
    let statistics = confusion(model, scores, labels)?;
    let value = |sums: &[f64]| ratio(2.0 * sums[TP], 2.0 * sums[TP] + sums[FP] + sums[FN]);
    Ok(Metric { statistics, value: Value::OfSums(value) })
}

/// Positions in the statistics of [`confusion`].
const TP: usize = 0;
const FP: usize = 1;
const FN: usize = 2;

/// True positives, false positives and false negatives.
fn confusion(model: &mut Model, scores: Output, labels: Output) -> Result<Output> {
    let dtype = model.dtype(scores);
    let threshold = model.number(dtype, THRESHOLD)?;
    let found = model.add("Greater", &[scores, threshold])?;
    let found = model.cast(found, DType::Float)?;
    let labels = model.cast(labels, DType::Float)?;
    let both = model.add("Mul", &[found, labels])?;
    let (both, found, labels) =
        (losses::sum(model, both)?, losses::sum(model, found)?, losses::sum(model, labels)?);
    let wrong = model.add("Sub", &[found, both])?;
    let missed = model.add("Sub", &[labels, both])?;
    model.op("Pack").inputs(&[both, wrong, missed]).build()
}

fn ratio(part: f64, all: f64) -> f64 {
    if all == 0.0 { 0.0 } else { part / all }
}

/// The area under the receiver operating characteristic curve (ROC AUC) of a binary classifier, by
/// the trapezoidal rule over 200 thresholds as in Keras. Arguments as for [`precision`].
pub fn auc(model: &mut Model, scores: Output, labels: Output) -> Result<Metric> {
    let thresholds: Vec<f32> = (0..THRESHOLDS)
        .map(|i| match i {
            0 => -1e-7,
            _ if i == THRESHOLDS - 1 => 1.0 + 1e-7,
            _ => i as f32 / (THRESHOLDS - 1) as f32,
        })
        .collect();
    let row = model.ints(&[1, -1])?;
    let scores = model.cast(scores, DType::Float)?;
    let labels = model.cast(labels, DType::Float)?;
    let (scores, labels) =
        (model.add("Reshape", &[scores, row])?, model.add("Reshape", &[labels, row])?);
    let column = model.ints(&[-1, 1])?;
    let thresholds = model.constant(&Tensor::vector(&thresholds)?)?;
    let thresholds = model.add("Reshape", &[thresholds, column])?;
    let found = model.add("Greater", &[scores, thresholds])?;
    let found = model.cast(found, DType::Float)?;
    let one = model.float(1.0)?;
    let others = model.add("Sub", &[one, labels])?;
    // Sums over examples: found positives and negatives per threshold, then all of them.
    let axis = model.ints(&[1])?;
    let mut parts = Vec::with_capacity(4);
    for of in [labels, others] {
        let hits = model.add("Mul", &[found, of])?;
        parts.push(model.add("Sum", &[hits, axis])?);
    }
    for of in [labels, others] {
        parts.push(model.add("Sum", &[of, axis])?);
    }
    let axis = model.int(0)?;
    let statistics = model.op("ConcatV2").inputs(&parts).input(axis).build()?;
    Ok(Metric { statistics, value: Value::OfSums(area) })
}

/// The area under the curve, from the statistics of [`auc`].
fn area(sums: &[f64]) -> f64 {
    let (true_positives, rest) = sums.split_at(THRESHOLDS);
    let (false_positives, all) = rest.split_at(THRESHOLDS);
    let rate = |of: &[f64], all: f64, i: usize| ratio(of[i], all);
    (1..THRESHOLDS)
        .map(|i| {
            let [x0, x1] = [i, i - 1].map(|i| rate(false_positives, all[1], i));
            let [y0, y1] = [i, i - 1].map(|i| rate(true_positives, all[0], i));
            (x1 - x0) * 0.5 * (y0 + y1)
        })
        .sum()
}

/// Root mean squared error.
pub fn root_mean_squared_error(
    model: &mut Model,
    predictions: Output,
    labels: Output,
) -> Result<Metric> {
    let each = model.add("SquaredDifference", &[predictions, labels])?;
    let sum = losses::sum(model, each)?;
    let count = model.add("Size", &[each])?;
    let count = model.cast(count, DType::Float)?;
    let sum = model.cast(sum, DType::Float)?;
    let statistics = model.op("Pack").inputs(&[sum, count]).build()?;
    Ok(Metric { statistics, value: Value::OfSums(|sums| ratio(sums[0], sums[1]).sqrt()) })
}

/// A mean over many batches, accumulated in variables.
pub struct StreamingMean {
    total: Variable,
    count: Variable,
    /// The node that adds a batch.
    pub update: NodeId,
    /// The mean so far; 0 before the first batch.
    pub value: Output,
    /// The node that resets the mean.
    pub reset: NodeId,
}

impl StreamingMean {
    /// The mean of all elements of `each` over all batches.
    pub fn new(model: &mut Model, name: &str, each: Output) -> Result<StreamingMean> {
        let mut layer = model.layer(name);
        let counter =
            |layer: &Model, name| layer.counter(name, DType::Float, &[], &Initializer::Zeros);
        let (total, count) = (counter(&layer, "total")?, counter(&layer, "count")?);
        let sum = losses::sum(&mut layer, each)?;
        let size = layer.add("Size", &[each])?;
        let size = layer.cast(size, DType::Float)?;
        let add = |layer: &mut Model, to: &Variable, what| {
            layer.op("AssignAddVariableOp").inputs(&[to.handle, what]).build_node()
        };
        let added = [add(&mut layer, &total, sum)?, add(&mut layer, &count, size)?];
        let update = layer.op("NoOp").name("update").after(&added).build_node()?;
        let (sum, size) = (total.read(&mut layer)?, count.read(&mut layer)?);
        let value = layer.add("DivNoNan", &[sum, size])?;
        let init = [total.init, count.init];
        let reset = layer.op("NoOp").name("reset").after(&init).build_node()?;
        Ok(StreamingMean { total, count, update, value, reset })
    }

    /// The variables that hold total and count.
    pub fn variables(&self) -> [&Variable; 2] {
        [&self.total, &self.count]
    }
}

#[cfg(test)]
mod tests {
    use thalweg_graph::Scope;
    use thalweg_ops::Registry;
    use thalweg_runtime::{Session, SessionOptions};

    use super::*;

    /// A metric over these batches of scores and labels.
    fn over_batches(
        metric: fn(&mut Model, Output, Output) -> Result<Metric>,
        batches: &[(&[f32], &[f32])],
    ) -> f32 {
        let Registry { ops, kernels } = Registry::built_in();
        let mut model = Model::new(Scope::new(ops));
        let scores = model.input("scores", DType::Float, &[None]).unwrap();
        let labels = model.input("labels", DType::Float, &[None]).unwrap();
        let metric = metric(&mut model, scores, labels).unwrap();
        let statistics = model.name_of(metric.statistics);
        let session = Session::new(model.to_graph(), kernels, SessionOptions::default()).unwrap();
        let mut sums = metric.sums();
        for (scores, labels) in batches {
            let count = scores.len();
            let feeds = [("scores", *scores), ("labels", *labels)];
            let feeds = feeds.map(|(name, values)| (name, Tensor::vector(values).unwrap()));
            let found = session.run(&feeds, &[&statistics], &[]).unwrap();
            sums.add(&found[0], count).unwrap();
        }
        sums.value()
    }

    #[test]
    fn binary_metrics_over_batches() {
        // Positive predictions: 0.9 and 0.8 right, 0.7 wrong; 0.4 and 0.1 are missed.
        let batches: [(&[f32], &[f32]); 2] =
            [(&[0.9, 0.7, 0.4], &[1.0, 0.0, 1.0]), (&[0.8, 0.1, 0.2, 0.3], &[1.0, 1.0, 0.0, 0.0])];
        let close = |found: f32, wanted: f32| assert!((found - wanted).abs() < 1e-6, "{found}");
        close(over_batches(precision, &batches), 2.0 / 3.0);
        close(over_batches(recall, &batches), 0.5);
        close(over_batches(f1_score, &batches), 4.0 / 7.0);
        // Of the 12 pairs of a positive and a negative, the positive is the higher one in 8: 0.9 and
        // 0.8 over all three, 0.4 over two, 0.1 over none.
        close(over_batches(auc, &batches), 8.0 / 12.0);
        let gaps = [0.1f32, 0.7, 0.6, 0.2, 0.9, 0.2, 0.3].map(|gap| gap * gap).iter().sum::<f32>();
        close(over_batches(root_mean_squared_error, &batches), (gaps / 7.0).sqrt());
        close(over_batches(precision, &[(&[0.1], &[1.0])]), 0.0);
    }

    #[test]
    fn a_scalar_is_averaged_over_samples() {
        let batches: [(&[f32], &[f32]); 2] = [(&[3.0], &[0.0]), (&[0.0, 1.0, 2.0], &[0.0; 3])];
        let mean = |model: &mut Model, x: Output, _: Output| Ok(losses::mean(model, x)?.into());
        assert!((over_batches(mean, &batches) - 1.5).abs() < 1e-6);
    }
}
