//! Loss functions. Each returns a scalar: the mean over the batch.

use thalweg_graph::Output;
use thalweg_tensor::{DType, Result, Tensor};

use crate::layers::lookup;
use crate::{Model, Variable};

/// Sparse softmax cross entropy: `logits` has classes in its last dimension, `labels` holds class
/// indices.
pub fn softmax_cross_entropy(model: &mut Model, logits: Output, labels: Output) -> Result<Output> {
    let (logits, labels) = (as_rows(model, logits)?, as_vector(model, labels)?);
    let node = model.op("SparseSoftmaxCrossEntropyWithLogits").inputs(&[logits, labels]);
    let each = node.build()?;
    mean(model, each)
}

/// Reshapes to `[rows, features]`: all dimensions but the last become one.
pub(crate) fn as_rows(model: &mut Model, x: Output) -> Result<Output> {
    if model.shape(x).rank() == Some(2) {
        return Ok(x);
    }
    let last = model.features(x)?;
    let rows = model.ints(&[-1, last as i32])?;
    model.add("Reshape", &[x, rows])
}

/// Reshapes to a vector.
pub(crate) fn as_vector(model: &mut Model, x: Output) -> Result<Output> {
    if model.shape(x).rank() == Some(1) {
        return Ok(x);
    }
    let flat = model.ints(&[-1])?;
    model.add("Reshape", &[x, flat])
}

/// Softmax cross entropy of `logits` with class `probabilities` of the same shape.
pub fn softmax_cross_entropy_with(
    model: &mut Model,
    logits: Output,
    probabilities: Output,
) -> Result<Output> {
    let each = model.add("SoftmaxCrossEntropyWithLogits", &[logits, probabilities])?;
    mean(model, each)
}

/// Sigmoid cross entropy: `logits` of independent binary labels, `labels` in {0, 1}.
pub fn sigmoid_cross_entropy(model: &mut Model, logits: Output, labels: Output) -> Result<Output> {
    let each = sigmoid_terms(model, logits, labels)?;
    mean(model, each)
}

/// `max(x, 0) - x z + log(1 + exp(-|x|))`, which does not overflow.
fn sigmoid_terms(model: &mut Model, logits: Output, labels: Output) -> Result<Output> {
    let positive = model.add("Relu", &[logits])?;
    let product = model.add("Mul", &[logits, labels])?;
    let size = model.add("Abs", &[logits])?;
    let small = model.add("Neg", &[size])?;
    let small = model.add("Exp", &[small])?;
    let rest = model.add("Log1p", &[small])?;
    let first = model.add("Sub", &[positive, product])?;
    model.add("AddV2", &[first, rest])
}

/// Mean squared error.
pub fn mean_squared_error(model: &mut Model, given: Output, wanted: Output) -> Result<Output> {
    let each = model.add("SquaredDifference", &[given, wanted])?;
    mean(model, each)
}

/// Mean absolute error.
pub fn mean_absolute_error(model: &mut Model, given: Output, wanted: Output) -> Result<Output> {
    let gap = model.add("Sub", &[given, wanted])?;
    let each = model.add("Abs", &[gap])?;
    mean(model, each)
}

/// Huber loss: quadratic for differences up to `delta`, linear beyond.
pub fn huber(model: &mut Model, given: Output, wanted: Output, delta: f32) -> Result<Output> {
    let gap = model.add("Sub", &[given, wanted])?;
    let size = model.add("Abs", &[gap])?;
    let dtype = model.dtype(given);
    let delta = model.number(dtype, f64::from(delta))?;
    let near = model.add("Minimum", &[size, delta])?;
    let far = model.add("Sub", &[size, near])?;
    let square = model.add("Square", &[near])?;
    let half = model.number(dtype, 0.5)?;
    let square = model.add("Mul", &[square, half])?;
    let line = model.add("Mul", &[far, delta])?;
    let each = model.add("AddV2", &[square, line])?;
    mean(model, each)
}

/// Hinge loss: `max(1 - labels * scores, 0)` with labels in {-1, 1}.
pub fn hinge(model: &mut Model, scores: Output, labels: Output) -> Result<Output> {
    let product = model.add("Mul", &[scores, labels])?;
    let dtype = model.dtype(scores);
    let one = model.number(dtype, 1.0)?;
    let gap = model.add("Sub", &[one, product])?;
    let each = model.add("Relu", &[gap])?;
    mean(model, each)
}

/// L2 penalty: `scale * sum(x^2)`.
pub fn l2(model: &mut Model, x: Output, scale: f32) -> Result<Output> {
    let half = model.add("L2Loss", &[x])?;
    let scale = model.float(2.0 * scale)?;
    model.add("Mul", &[half, scale])
}

/// Mean of all elements.
pub fn mean(model: &mut Model, x: Output) -> Result<Output> {
    let axes = all_axes(model, x)?;
    model.add("Mean", &[x, axes])
}

/// Sum of all elements.
pub fn sum(model: &mut Model, x: Output) -> Result<Output> {
    let axes = all_axes(model, x)?;
    model.add("Sum", &[x, axes])
}

fn all_axes(model: &mut Model, x: Output) -> Result<Output> {
    if let Some(rank) = model.shape(x).rank() {
        let axes: Vec<i32> = (0..rank as i32).collect();
        return model.ints(&axes);
    }
    let (zero, one) = (model.int(0)?, model.int(1)?);
    let rank = model.add("Rank", &[x])?;
    model.add("Range", &[zero, rank, one])
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

/// Logits of the true and of the sampled classes, each minus the logarithm of its expected count.
/// Classes are sampled from a log-uniform (Zipfian) distribution, so frequent classes should have
/// small indices.
struct Candidates {
    /// The logit of the true class, one per example.
    right: Output,
    /// The logits of the sampled classes, a row per example.
    drawn: Output,
}

impl Sampled {
    fn candidates(
        self,
        model: &mut Model,
        weights: &[Variable],
        biases: &[Variable],
        (inputs, labels): (Output, Output),
    ) -> Result<Candidates> {
        let column = model.ints(&[-1, 1])?;
        let labels = model.cast(labels, DType::Int64)?;
        let labels_column = model.add("Reshape", &[labels, column])?;
        let (seed, seed2) = model.next_seeds();
        let node = model.op("LogUniformCandidateSampler").input(labels_column);
        let node = node.attr("num_true", 1i64).attr("num_sampled", self.count as i64);
        let node = node.attr("unique", true).attr("range_max", self.classes as i64);
        let sampled = node.attr("seed", seed).attr("seed2", seed2).build_all()?;
        let [drawn, right_count, drawn_count] = [sampled[0], sampled[1], sampled[2]];

        let flat = model.ints(&[-1])?;
        let flat_labels = model.add("Reshape", &[labels, flat])?;
        let right_rows = lookup(model, weights, flat_labels)?;
        let right_bias = lookup(model, biases, flat_labels)?;
        let product = model.add("Mul", &[inputs, right_rows])?;
        let axis = model.ints(&[1])?;
        let dots = model.add("Sum", &[product, axis])?;
        let right_bias = model.add("Reshape", &[right_bias, flat])?;
        let right = model.add("AddV2", &[dots, right_bias])?;
        let expected = model.add("Reshape", &[right_count, flat])?;
        let expected = model.add("Log", &[expected])?;
        let right = model.add("Sub", &[right, expected])?;

        let drawn_rows = lookup(model, weights, drawn)?;
        let drawn_bias = lookup(model, biases, drawn)?;
        let node = model.op("MatMul").inputs(&[inputs, drawn_rows]).attr("transpose_b", true);
        let scores = node.build()?;
        let drawn_bias = model.add("Reshape", &[drawn_bias, flat])?;
        let scores = model.add("AddV2", &[scores, drawn_bias])?;
        let expected = model.add("Log", &[drawn_count])?;
        let mut scores = model.add("Sub", &[scores, expected])?;
        if self.removes_hits {
            // Whether the sampled class of a column equals the true class of a row.
            let row = model.ints(&[1, -1])?;
            let drawn_row = model.add("Reshape", &[drawn, row])?;
            let hits = model.add("Equal", &[labels_column, drawn_row])?;
            let low = model.float(-1e30)?;
            scores = model.add("SelectV2", &[hits, low, scores])?;
        }
        Ok(Candidates { right, drawn: scores })
    }
}

/// Sampled softmax loss over the true class and sampled ones, for many classes. `weights` has a row
/// per class and may be partitioned; `biases` is `[classes, 1]`.
pub fn sampled_softmax(
    model: &mut Model,
    weights: &[Variable],
    biases: &[Variable],
    inputs: Output,
    labels: Output,
    sampled: Sampled,
) -> Result<Output> {
    let found = sampled.candidates(model, weights, biases, (inputs, labels))?;
    let column = model.ints(&[-1, 1])?;
    let right = model.add("Reshape", &[found.right, column])?;
    let axis = model.int(1)?;
    let scores = model.op("ConcatV2").inputs(&[right, found.drawn, axis]).build()?;
    let first = model.add("ZerosLike", &[found.right])?;
    let first = model.cast(first, DType::Int64)?;
    softmax_cross_entropy(model, scores, first)
}

/// Noise-contrastive estimation (NCE) loss: a binary classification of true and sampled classes.
pub fn nce(
    model: &mut Model,
    weights: &[Variable],
    biases: &[Variable],
    inputs: Output,
    labels: Output,
    sampled: Sampled,
) -> Result<Output> {
    let found = sampled.candidates(model, weights, biases, (inputs, labels))?;
    let one = model.constant(&Tensor::scalar(1.0f32))?;
    let zero = model.constant(&Tensor::scalar(0.0f32))?;
    let right = sigmoid_terms(model, found.right, one)?;
    let drawn = sigmoid_terms(model, found.drawn, zero)?;
    let axis = model.ints(&[1])?;
    let drawn = model.add("Sum", &[drawn, axis])?;
    let each = model.add("AddV2", &[right, drawn])?;
    mean(model, each)
}
