//! Residual connections and position embeddings.

use thalweg_api::{Any, Output};

use super::Layer;
use crate::{Initializer, Model};

/// Residual connection: `x + layer(x)`.
#[derive(Clone, Copy, Debug)]
pub struct Residual<L>(pub L);

impl<L: Layer> Layer for Residual<L> {
    fn build(&self, model: &Model, x: &Output<Any>) -> Output<f32> {
        let y = self.0.build(model, x).within(model);
        x.typed::<f32>() + y
    }
}

/// Learned position embeddings, added to each element of a sequence `[batch, time, features]`.
#[derive(Clone, Copy, Debug)]
pub struct PositionEmbedding;

impl Layer for PositionEmbedding {
    fn build(&self, model: &Model, x: &Output<Any>) -> Output<f32> {
        let x = x.typed::<f32>();
        let Some(features) = model.features(&x) else { return model.poisoned() };
        let shape = x.shape();
        let Some([_, Some(length), _]) = shape.dims() else {
            return model.wrong_shape("position embeddings need a known sequence length", &x);
        };
        let layer = model.layer("positions");
        let first = Initializer::Uniform(-0.05, 0.05);
        x.within(&layer) + layer.parameter("embeddings", &[*length, features], &first)
    }
}
