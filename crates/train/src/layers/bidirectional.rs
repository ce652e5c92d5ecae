//! Recurrent layers in both directions.

use crate::model::concat;
use thalweg_api::{Any, NewOp, Output};

use super::Layer;
use crate::Model;

/// A recurrent layer and another one like it over the reversed sequence; their outputs are
/// concatenated along the features.
#[derive(Clone, Copy, Debug)]
pub struct Bidirectional<L>(pub L);

/// The tensor `[batch, time, features]` with time reversed.
fn reversed(x: &Output<f32>) -> Output<f32> {
    NewOp::new(x.graph(), "ReverseV2").input(x).input([1i32]).output()
}

impl<L: Layer> Layer for Bidirectional<L> {
    fn build(&self, model: &Model, x: &Output<Any>) -> Output<f32> {
        let layer = model.layer("bidirectional");
        let x = x.typed::<f32>().within(&layer);
        let forward = self.0.apply(&layer.layer("forward"), &x).within(&layer);
        let mut backward = self.0.apply(&layer.layer("backward"), &reversed(&x)).within(&layer);
        if backward.shape().rank() == Some(3) {
            backward = reversed(&backward);
        }
        concat(&[&forward, &backward], -1)
    }
}
