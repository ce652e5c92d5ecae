//! Multi-head self-attention.

use crate::model::concat;
use thalweg_api::{Any, NewOp, Output};
use thalweg_tensor::err;

use super::dense::rows_times;
use super::{Activation, Dense, Layer};
use crate::model::in_compute_dtype;
use crate::{Initializer, Model};

/// Multi-head self-attention over a tensor `[batch, time, features]`.
#[derive(Clone, Copy, Debug)]
pub struct MultiHeadAttention {
    heads: usize,
    is_causal: bool,
}

impl MultiHeadAttention {
    /// Attention with this number of heads, which divide the features evenly.
    pub fn new(heads: usize) -> MultiHeadAttention {
        MultiHeadAttention { heads, is_causal: false }
    }

    /// Causal: a position attends to itself and to earlier positions only.
    #[must_use]
    pub fn causal(self) -> MultiHeadAttention {
        MultiHeadAttention { is_causal: true, ..self }
    }
}

impl Layer for MultiHeadAttention {
    fn build(&self, model: &Model, x: &Output<Any>) -> Output<f32> {
        let Some(features) = model.features(x) else { return model.poisoned() };
        let heads = self.heads;
        if heads == 0 || features % heads != 0 {
            return model.mistake(err!(
                InvalidArgument,
                "{features} features are not divisible by {heads} attention heads"
            ));
        }
        let layer = model.layer("attention");
        let x = x.typed::<f32>().within(&layer);
        let width = features / heads;
        let sizes = x.shape_tensor();
        let leading: Output<i32> = NewOp::new(&layer, "StridedSlice")
            .input(&sizes)
            .input([0])
            .input([2])
            .input([1])
            .output();
        let apart = concat(&[&leading, &layer.constant([heads as i32, width as i32])], 0);
        let [query, key, value] = projections(&layer, &x, features)
            .map(|projection| projection.reshape(&apart).transpose([0, 2, 1, 3]));
        let scores = in_compute_dtype(&layer, (&query, &key), |query, key| {
            NewOp::new(&layer, "BatchMatMulV2").input(query).input(key).attr("adj_y", true).output()
        });
        let mut scores = scores * (1.0 / (width as f64).sqrt()) as f32;
        if self.is_causal {
            // A large negative number above the diagonal: softmax gives these scores no weight.
            let time: Output<i32> = NewOp::new(&layer, "StridedSlice")
                .input(&sizes)
                .input([1])
                .input([2])
                .input([1])
                .output();
            let square = concat(&[&time, &time], 0);
            let ones: Output<f32> = NewOp::new(&layer, "Fill").input(&square).input(1f32).output();
            let band = NewOp::new(&layer, "MatrixBandPart").input(&ones);
            let seen: Output<f32> = band.input(-1i32).input(0i32).output();
            scores = seen.greater(0.0).select(&scores, -1e9);
        }
        let weights = scores.softmax();
        let mixed =
            in_compute_dtype(&layer, (&weights, &value), |weights, value| weights.matmul(value));
        let together = mixed.transpose([0, 2, 1, 3]).reshape(&sizes);
        let ensure = NewOp::new(&layer, "EnsureShape").input(&together).attr("shape", &x.shape());
        Dense::new(features).apply(&layer, &ensure.output::<f32>())
    }
}

/// Queries, keys and values, by one product with the kernels of three dense layers.
fn projections(layer: &Model, x: &Output<f32>, features: usize) -> [Output<f32>; 3] {
    let (kernels, biases): (Vec<Output<f32>>, Vec<Output<f32>>) = (0..3)
        .map(|_| {
            let dense = layer.layer("dense");
            let kernel =
                dense.parameter("kernel", &[features, features], &Initializer::GlorotUniform);
            (kernel, dense.parameter("bias", &[features], &Initializer::Zeros))
        })
        .unzip();
    let kernel = concat(&kernels.iter().collect::<Vec<_>>(), 1);
    let bias = concat(&biases.iter().collect::<Vec<_>>(), 0);
    let y = rows_times(layer, x, &kernel, 3 * features);
    let y = Activation::Linear.with_bias(layer, &y, Some(&bias));
    let built = NewOp::new(layer, "Split").input(-1i32).input(&y).attr("num_split", 3i64).build();
    [0, 1, 2].map(|i| built.output(i))
}
