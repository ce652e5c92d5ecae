//! Multi-head self-attention.

use thalweg_graph::Output;
use thalweg_tensor::{Result, ensure};

use super::{Dense, Layer};
use crate::Model;

/// Multi-head self-attention over a tensor `[batch, time, features]`.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    heads: usize,
    is_causal: bool,
}

impl Attention {
    /// Attention with this number of heads, which divide the features evenly.
    pub fn new(heads: usize) -> Attention {
        Attention { heads, is_causal: false }
    }

    /// Causal: a position attends to itself and to earlier positions only.
    #[must_use]
    pub fn causal(self) -> Attention {
        Attention { is_causal: true, ..self }
    }
}

impl Layer for Attention {
    fn apply(&self, model: &mut Model, x: Output) -> Result<Output> {
        let features = model.features(x)?;
        ensure!(
            self.heads > 0 && features % self.heads == 0,
            InvalidArgument,
            "{features} features are not divisible by {} attention heads",
            self.heads
        );
        let mut layer = model.layer("attention");
        let width = features / self.heads;
        let [query, key, value] = [(); 3].map(|()| {
            let mapped = Dense::new(features).apply(&mut layer, x)?;
            let heads = layer.shape_of_heads(mapped, self.heads, width)?;
            let apart = layer.add("Reshape", &[mapped, heads])?;
            let order = layer.ints(&[0, 2, 1, 3])?;
            layer.add("Transpose", &[apart, order])
        });
        let (query, key, value) = (query?, key?, value?);
        let node = layer.op("BatchMatMulV2").inputs(&[query, key]).attr("adj_y", true);
        let scores = node.build()?;
        let dtype = layer.dtype(x);
        let scale = layer.number(dtype, 1.0 / (width as f64).sqrt())?;
        let mut scores = layer.add("Mul", &[scores, scale])?;
        if self.is_causal {
            scores = layer.hide_later(scores)?;
        }
        let weights = layer.add("Softmax", &[scores])?;
        let mixed = layer.add("BatchMatMulV2", &[weights, value])?;
        let order = layer.ints(&[0, 2, 1, 3])?;
        let mixed = layer.add("Transpose", &[mixed, order])?;
        let shape = layer.shape_of(x)?;
        let together = layer.add("Reshape", &[mixed, shape])?;
        let static_shape = layer.shape(x);
        let together = layer.with_static_shape(together, &static_shape)?;
        Dense::new(features).apply(&mut layer, together)
    }
}

impl Model {
    /// The shape `[batch, time, heads, features / heads]`.
    fn shape_of_heads(&mut self, x: Output, heads: usize, width: usize) -> Result<Output> {
        let shape = self.shape_of(x)?;
        let (from, to, step) = (self.ints(&[0])?, self.ints(&[2])?, self.ints(&[1])?);
        let leading = self.add("StridedSlice", &[shape, from, to, step])?;
        let last = self.ints(&[heads as i32, width as i32])?;
        let axis = self.int(0)?;
        self.op("ConcatV2").inputs(&[leading, last, axis]).build()
    }

    /// Masks the scores above the diagonal with a large negative number, so that softmax gives them
    /// zero weight.
    fn hide_later(&mut self, scores: Output) -> Result<Output> {
        let dtype = self.dtype(scores);
        let ones = self.add("OnesLike", &[scores])?;
        let (all, none) = (self.int(-1)?, self.int(0)?);
        let seen = self.add("MatrixBandPart", &[ones, all, none])?;
        let zero = self.number(dtype, 0.0)?;
        let is_seen = self.add("Greater", &[seen, zero])?;
        let low = self.number(dtype, -1e9)?;
        self.add("SelectV2", &[is_seen, scores, low])
    }

    /// The same tensor with this static shape.
    fn with_static_shape(
        &mut self,
        x: Output,
        shape: &thalweg_tensor::PartialShape,
    ) -> Result<Output> {
        self.op("EnsureShape").input(x).attr("shape", shape).build()
    }
}
