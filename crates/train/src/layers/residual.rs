//! Residual connections and position embeddings.

use thalweg_graph::Output;
use thalweg_tensor::{Result, ensure};

use super::Layer;
use crate::{Initializer, Model};

/// Residual connection: `x + layer(x)`.
#[derive(Clone, Copy, Debug)]
pub struct Residual<L>(pub L);

impl<L: Layer> Layer for Residual<L> {
    fn apply(&self, model: &mut Model, x: Output) -> Result<Output> {
        let y = self.0.apply(model, x)?;
        model.add("AddV2", &[x, y])
    }
}

/// Learned position embeddings, added to each element of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct Positions;

impl Layer for Positions {
    fn apply(&self, model: &mut Model, x: Output) -> Result<Output> {
        let (shape, features) = (model.shape(x), model.features(x)?);
        let length = shape.rank().filter(|rank| *rank == 3).and_then(|_| shape.dim(1));
        ensure!(
            length.is_some(),
            InvalidArgument,
            "position embeddings need a known sequence length, got shape {shape}"
        );
        let mut layer = model.layer("positions");
        let dims = [length.unwrap_or(0), features];
        let rows = layer.parameter("embeddings", &dims, &Initializer::Uniform(-0.05, 0.05))?;
        let rows = rows.read(&mut layer)?;
        layer.add("AddV2", &[x, rows])
    }
}
