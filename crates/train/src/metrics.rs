//! Metrics of classification and regression, and streaming means.

use std::panic::Location;

use crate::model::concat;
use crate::model::stack;
use thalweg_api::{NewOp, Operation, Output, TensorType, on_behalf_of};
use thalweg_tensor::{Result, Tensor};

use crate::{Initializer, Model};

/// A metric over many batches: statistics of a batch, which are summed over batches, and a function
/// of the sums.
///
/// A scalar tensor is a metric too: its mean over all samples.
#[derive(Clone, Debug)]
pub struct Metric {
    pub(crate) statistics: Output<f32>,
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

impl From<Output<f32>> for Metric {
    fn from(statistics: Output<f32>) -> Metric {
        Metric { statistics, value: Value::Mean }
    }
}

impl From<&Output<f32>> for Metric {
    fn from(statistics: &Output<f32>) -> Metric {
        statistics.clone().into()
    }
}

impl Metric {
    /// Empty sums of a mean over samples, such as the loss.
    #[cfg(feature = "remote")]
    pub(crate) fn mean_of_samples() -> Sums {
        Sums { value: Value::Mean, sums: Vec::new(), samples: 0.0 }
    }

    /// Empty sums.
    pub(crate) fn sums(&self) -> Sums {
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

/// Accuracy: the fraction of examples (or time steps of them) whose highest logit is that of the true
/// class.
#[track_caller]
pub fn accuracy<L: TensorType>(logits: &Output<f32>, labels: &Output<L>) -> Output<f32> {
    on_behalf_of(Location::caller(), || correct(logits, labels).mean())
}

/// 1 for each example (or each time step of each) that is classified correctly, else 0.
#[track_caller]
pub fn correct<L: TensorType>(logits: &Output<f32>, labels: &Output<L>) -> Output<f32> {
    on_behalf_of(Location::caller(), || logits.argmax(-1).equal(labels.cast::<i64>()).cast::<f32>())
}

/// Top-k accuracy: the fraction of examples whose true class is among the `k` highest logits.
#[track_caller]
pub fn top_k_accuracy<L: TensorType>(
    logits: &Output<f32>,
    labels: &Output<L>,
    k: i64,
) -> Output<f32> {
    on_behalf_of(Location::caller(), || {
        let labels = labels.cast::<i64>();
        let node = NewOp::new(logits.graph(), "InTopKV2").input(logits).input(&labels).input(k);
        node.output::<bool>().cast::<f32>().mean()
    })
}

/// The score from which on an example counts as positive.
const THRESHOLD: f32 = 0.5;
/// The number of thresholds of [`auc`].
const THRESHOLDS: usize = 200;

macro_rules! of_confusion {
    ($($(#[$doc:meta])* $name:ident => $value:expr;)+) => { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(scores: &Output<f32>, labels: &Output<f32>) -> Metric {
            on_behalf_of(Location::caller(), || Metric {
                statistics: confusion(scores, labels),
                value: Value::OfSums($value),
            })
        }
    )+ };
}

of_confusion! {
    /// Precision of a binary classifier: the fraction of positive predictions that are right.
    /// `scores` are probabilities, positive above 0.5; `labels` are 0 or 1. It is 0 where no
    /// prediction is positive.
    precision => |sums| ratio(sums[TP], sums[TP] + sums[FP]);
    /// Recall of a binary classifier: the fraction of positive examples that are found. Arguments as
    /// for [`precision`].
    recall => |sums| ratio(sums[TP], sums[TP] + sums[FN]);
    /// F1 score of a binary classifier: the harmonic mean of precision and recall. Arguments as for
    /// [`precision`].
    f1_score => |sums| ratio(2.0 * sums[TP], 2.0 * sums[TP] + sums[FP] + sums[FN]);
}

/// Positions in the statistics of [`confusion`].
const TP: usize = 0;
const FP: usize = 1;
const FN: usize = 2;

/// True positives, false positives and false negatives.
fn confusion(scores: &Output<f32>, labels: &Output<f32>) -> Output<f32> {
    let found = scores.greater(THRESHOLD).cast::<f32>();
    let (both, found, labels) = ((&found * labels).sum(), found.sum(), labels.sum());
    stack(&[&both, &(found - &both), &(labels - &both)])
}

fn ratio(part: f64, all: f64) -> f64 {
    if all == 0.0 { 0.0 } else { part / all }
}

/// The area under the receiver operating characteristic curve (ROC AUC) of a binary classifier, by
/// the trapezoidal rule over 200 thresholds as in Keras. Arguments as for [`precision`].
#[track_caller]
pub fn auc(scores: &Output<f32>, labels: &Output<f32>) -> Metric {
    on_behalf_of(Location::caller(), || {
        let thresholds = (0..THRESHOLDS).map(|i| match i {
            0 => [-1e-7],
            _ if i == THRESHOLDS - 1 => [1.0 + 1e-7],
            _ => [i as f32 / (THRESHOLDS - 1) as f32],
        });
        let thresholds = scores.graph().constant(thresholds.collect::<Vec<[f32; 1]>>());
        let labels = labels.reshape([1, -1]);
        let others = 1.0 - &labels;
        let found = scores.reshape([1, -1]).greater(&thresholds).cast::<f32>();
        // Found positives and negatives for each threshold, then all of them.
        let sums = [&found * &labels, &found * &others, labels, others];
        let [hits, misses, positives, negatives] = sums.map(|each| each.sum_axes([1]));
        let statistics = concat(&[&hits, &misses, &positives, &negatives], 0);
        Metric { statistics, value: Value::OfSums(area) }
    })
}

/// The area under the curve, from the statistics of [`auc`].
fn area(sums: &[f64]) -> f64 {
    let (true_positives, rest) = sums.split_at(THRESHOLDS);
    let (false_positives, all) = rest.split_at(THRESHOLDS);
    (1..THRESHOLDS)
        .map(|i| {
            let [x0, x1] = [i, i - 1].map(|i| ratio(false_positives[i], all[1]));
            let [y0, y1] = [i, i - 1].map(|i| ratio(true_positives[i], all[0]));
            (x1 - x0) * 0.5 * (y0 + y1)
        })
        .sum()
}

/// Root mean squared error.
#[track_caller]
pub fn root_mean_squared_error(predictions: &Output<f32>, labels: &Output<f32>) -> Metric {
    on_behalf_of(Location::caller(), || {
        let each = predictions.squared_difference(labels);
        let statistics = stack(&[&each.sum(), &each.ones_like().sum()]);
        Metric { statistics, value: Value::OfSums(|sums| ratio(sums[0], sums[1]).sqrt()) }
    })
}

/// A mean over many batches, accumulated in variables.
pub struct StreamingMean {
    /// The target that adds a batch.
    pub update: Operation,
    /// The mean so far; 0 before the first batch.
    pub value: Output<f32>,
    /// The target that resets the mean.
    pub reset: Operation,
}

impl StreamingMean {
    /// The mean of all elements of `each` over all batches, kept in the variables `total` and `count`
    /// of the layer `name`.
    #[track_caller]
    pub fn new(model: &Model, name: &str, each: &Output<f32>) -> StreamingMean {
        on_behalf_of(Location::caller(), || {
            let layer = model.layer(name);
            let counter = |name| layer.counter::<f32>(name, &[], &Initializer::Zeros);
            let (total, count) = (counter("total"), counter("count"));
            let each = each.within(&layer);
            let added = [total.assign_add(each.sum()), count.assign_add(each.ones_like().sum())];
            let value = NewOp::new(&layer, "DivNoNan").input(total.value()).input(count.value());
            let cleared = [total.assign(0.0), count.assign(0.0)];
            StreamingMean {
                update: layer.group("update", &[&added[0], &added[1]]),
                value: value.output(),
                reset: layer.group("reset", &[&cleared[0], &cleared[1]]),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A metric over these batches of scores and labels.
    fn over_batches(
        metric: fn(&Output<f32>, &Output<f32>) -> Metric,
        batches: &[(&[f32], &[f32])],
    ) -> f32 {
        let model = Model::new();
        let scores = model.placeholder("scores", [None]);
        let labels = model.placeholder("labels", [None]);
        let metric = metric(&scores, &labels);
        let session = model.session().unwrap();
        let mut sums = metric.sums();
        for (given, wanted) in batches {
            let feeds = thalweg_api::feed! { scores: *given, labels: *wanted };
            let found: Tensor = session.run(&metric.statistics, feeds, &[]).unwrap();
            sums.add(&found, given.len()).unwrap();
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
        let mean = |x: &Output<f32>, _: &Output<f32>| x.mean().into();
        assert!((over_batches(mean, &batches) - 1.5).abs() < 1e-6);
    }
}
