//! Loss functions. Each returns a scalar: the mean over the batch.

use std::panic::Location;

use crate::model::concat;
use thalweg_api::{NewOp, Output, TensorType, on_behalf_of, tf};
use thalweg_tensor::DType;

use crate::Model;
use crate::layers::Table;
use crate::view::cast_to;

/// Softmax cross entropy: `logits` has classes in its last dimension. `labels` are class indices
/// (integers), or class probabilities of the same shape (floats).
#[track_caller]
pub fn softmax_cross_entropy<L: TensorType>(
    logits: &Output<f32>,
    labels: &Output<L>,
) -> Output<f32> {
    on_behalf_of(Location::caller(), || {
        if labels.dtype().is_some_and(DType::is_floating) {
            let node = NewOp::new(logits.graph(), "SoftmaxCrossEntropyWithLogits");
            return node.input(rows(logits)).input(rows(labels)).output::<f32>().mean();
        }
        logits.softmax_cross_entropy(labels).mean()
    })
}

/// Reshapes to `[rows, features]`: all dimensions but the last become one.
fn rows<T: TensorType>(x: &Output<T>) -> Output<T> {
    let shape = x.shape();
    match shape.dims() {
        Some([.., last]) if shape.rank() != Some(2) => {
            x.reshape([-1, last.map_or(-1, |last| last as i32)])
        }
        _ => x.clone(),
    }
}

/// Sigmoid cross entropy: `logits` of independent binary labels, `labels` in {0, 1}.
#[track_caller]
pub fn sigmoid_cross_entropy(logits: &Output<f32>, labels: &Output<f32>) -> Output<f32> {
    on_behalf_of(Location::caller(), || {
        // max(x, 0) - x z + log(1 + exp(-|x|)), which does not overflow.
        (logits.relu() - logits * labels + (-logits.abs()).exp().log1p()).mean()
    })
}

/// Mean squared error.
#[track_caller]
pub fn mean_squared_error(predictions: &Output<f32>, labels: &Output<f32>) -> Output<f32> {
    on_behalf_of(Location::caller(), || predictions.squared_difference(labels).mean())
}

/// Mean absolute error.
#[track_caller]
pub fn mean_absolute_error(predictions: &Output<f32>, labels: &Output<f32>) -> Output<f32> {
    on_behalf_of(Location::caller(), || (predictions - labels).abs().mean())
}

/// Huber loss: quadratic for differences up to `delta`, linear beyond.
#[track_caller]
pub fn huber(predictions: &Output<f32>, labels: &Output<f32>, delta: f32) -> Output<f32> {
    on_behalf_of(Location::caller(), || {
        let size = (predictions - labels).abs();
        let near = size.minimum(delta);
        (near.square() * 0.5 + (size - &near) * delta).mean()
    })
}

/// Logarithm of the hyperbolic cosine of the difference: quadratic near 0, linear beyond.
#[track_caller]
pub fn log_cosh(predictions: &Output<f32>, labels: &Output<f32>) -> Output<f32> {
    on_behalf_of(Location::caller(), || {
        // x + softplus(-2 x) - log(2), which does not overflow.
        let gap = (predictions - labels).abs();
        (&gap + (&gap * -2.0).softplus() - std::f32::consts::LN_2).mean()
    })
}

/// Poisson loss: `predictions - labels * log(predictions)`.
#[track_caller]
pub fn poisson(predictions: &Output<f32>, labels: &Output<f32>) -> Output<f32> {
    on_behalf_of(Location::caller(), || {
        (predictions - labels * (predictions + EPSILON).log()).mean()
    })
}

/// Kullback-Leibler divergence of the distributions in the last dimension:
/// `sum(labels * log(labels / predictions))`.
#[track_caller]
pub fn kl_divergence(predictions: &Output<f32>, labels: &Output<f32>) -> Output<f32> {
    on_behalf_of(Location::caller(), || {
        let (p, q) = (labels.clip(EPSILON, 1.0), predictions.clip(EPSILON, 1.0));
        (&p * (&p / q).log()).sum_axes([-1]).mean()
    })
}

/// Keeps logarithms finite, as in Keras.
const EPSILON: f32 = 1e-7;

/// Hinge loss: `max(1 - labels * scores, 0)` with labels in {-1, 1}.
#[track_caller]
pub fn hinge(scores: &Output<f32>, labels: &Output<f32>) -> Output<f32> {
    on_behalf_of(Location::caller(), || (1.0 - scores * labels).relu().mean())
}

/// Squared hinge loss: `max(1 - labels * scores, 0)^2` with labels in {-1, 1}.
#[track_caller]
pub fn squared_hinge(scores: &Output<f32>, labels: &Output<f32>) -> Output<f32> {
    on_behalf_of(Location::caller(), || (1.0 - scores * labels).relu().square().mean())
}

/// Cosine distance over the last dimension: 1 minus the cosine similarity.
#[track_caller]
pub fn cosine_distance(predictions: &Output<f32>, labels: &Output<f32>) -> Output<f32> {
    on_behalf_of(Location::caller(), || {
        let unit = |x: &Output<f32>| x * x.square().sum_keepdims([-1]).maximum(1e-12).rsqrt();
        (1.0 - (unit(predictions) * unit(labels)).sum_axes([-1])).mean()
    })
}

/// L2 penalty: `scale * sum(x^2)`.
#[track_caller]
pub fn l2(x: &Output<f32>, scale: f32) -> Output<f32> {
    on_behalf_of(Location::caller(), || x.l2_loss() * (2.0 * scale))
}

/// Settings of a candidate sampler: negative classes are sampled instead of using all classes.
#[derive(Clone, Copy, Debug)]
pub struct Sampled {
    /// The number of sampled classes.
    pub count: usize,
    /// The number of classes.
    pub classes: usize,
    /// Whether sampled classes that equal the true class are removed (`remove_accidental_hits`).
    pub removes_hits: bool,
}

impl Sampled {
    /// Logits of the true classes, one per example, and of the sampled ones, a row per example, each
    /// minus the logarithm of its expected count. Classes are sampled from a log-uniform (Zipfian)
    /// distribution, so frequent classes should have small indices.
    fn logits<L: TensorType>(
        self,
        model: &Model,
        (weights, biases): (&Table, &Table),
        (inputs, labels): (&Output<f32>, &Output<L>),
    ) -> (Output<f32>, Output<f32>) {
        if !weights.is_of(model) || !biases.is_of(model) {
            return (model.poisoned(), model.poisoned());
        }
        let inputs = inputs.within(model);
        let labels: Output<i64> = cast_to(&labels.within(model), DType::Int64).typed();
        let column = labels.reshape([-1, 1]);
        let (seed, seed2) = model.next_seeds();
        let sampler = tf::LogUniformCandidateSampler::new().seed(seed).seed2(seed2);
        let (drawn, right_count, drawn_count) =
            sampler.build(&column, 1, self.count as i64, true, self.classes as i64);
        // Inputs are multiplied by each row of weights alone, or by all of them.
        let flat = labels.reshape([-1]);
        let bias = |classes: &Output<i64>| biases.lookup(model, classes).reshape([-1]);
        let dots = (&inputs * weights.lookup(model, &flat)).sum_axes([1]);
        let right = dots + bias(&flat) - right_count.reshape([-1]).log();
        let scores =
            tf::MatMul::new().transpose_b(true).build(&inputs, weights.lookup(model, &drawn));
        let mut scores = scores + bias(&drawn) - drawn_count.log();
        if self.removes_hits {
            // Whether the sampled class of a column equals the true class of a row.
            scores = column.equal(drawn.reshape([1, -1])).select(-1e30f32, &scores);
        }
        (right, scores)
    }
}

/// Sampled softmax loss over the true class and sampled ones, for many classes. `weights` has a row
/// per class; `biases` is `[classes, 1]`.
#[track_caller]
pub fn sampled_softmax<L: TensorType>(
    model: &Model,
    (weights, biases): (&Table, &Table),
    (inputs, labels): (&Output<f32>, &Output<L>),
    sampled: Sampled,
) -> Output<f32> {
    on_behalf_of(Location::caller(), || {
        let (right, drawn) = sampled.logits(model, (weights, biases), (inputs, labels));
        let scores = concat(&[&right.expand_dims(1i32), &drawn], 1);
        scores.softmax_cross_entropy(right.zeros_like().cast::<i64>()).mean()
    })
}

/// Noise-contrastive estimation (NCE) loss: a binary classification of true and sampled classes.
#[track_caller]
pub fn nce<L: TensorType>(
    model: &Model,
    (weights, biases): (&Table, &Table),
    (inputs, labels): (&Output<f32>, &Output<L>),
    sampled: Sampled,
) -> Output<f32> {
    on_behalf_of(Location::caller(), || {
        let (right, drawn) = sampled.logits(model, (weights, biases), (inputs, labels));
        // Sigmoid cross entropy with labels 1 and 0.
        let rest = |x: &Output<f32>| (-x.abs()).exp().log1p();
        let of_right = right.relu() - &right + rest(&right);
        let of_drawn = (drawn.relu() + rest(&drawn)).sum_axes([1]);
        (of_right + of_drawn).mean()
    })
}
