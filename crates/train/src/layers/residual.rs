//! Layers around layers, and places in a sequence.

use thalweg_graph::Output;
use thalweg_tensor::{Result, ensure};

use super::Layer;
use crate::{Initializer, Model};

/// What a layer gives is added to what it gets: `x + layer(x)`.
#[derive(Clone, Copy, Debug)]
pub struct Residual<L>(pub L);

impl<L: Layer> Layer for Residual<L> {
    fn apply(&self, model: &mut Model, x: Output) -> Result<Output> {
        let y = self.0.apply(model, x)?;
        model.add("AddV2", &[x, y])
    }
}

/// Adds to each element of a sequence a row that says where it stands; the rows are learnt.
#[derive(Clone, Copy, Debug)]
pub struct Positions;

impl Layer for Positions {
    fn apply(&self, model: &mut Model, x: Output) -> Result<Output> {
        let (shape, features) = (model.shape(x), model.features(x)?);
        let length = shape.rank().filter(|rank| *rank == 3).and_then(|_| shape.dim(1));
        ensure!(
            length.is_some(),
            InvalidArgument,
            "positions are those of sequences of a known length, not of a tensor of shape {shape}"
        );
        let mut layer = model.layer("positions");
        let dims = [length.unwrap_or(0), features];
        let rows = layer.parameter("embeddings", &dims, &Initializer::Uniform(-0.05, 0.05))?;
        let rows = rows.read(&mut layer)?;
        layer.add("AddV2", &[x, rows])
    }
}
