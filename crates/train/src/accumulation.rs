//! Gradient accumulation: one update by the mean gradient of several micro-batches.

use thalweg_api::{Any, Graph, NewOp, Operation, Output};
use thalweg_formats::saved_model::RUN_STATE_ATTR;
use thalweg_tensor::PartialShape;

use crate::gradient::Gradients;
use crate::state::State;
use crate::view::{cast_to, group};
use crate::{Gradient, Model, Variable};

/// Gradient accumulation: the gradients of micro-batches, which are computed one after the other,
/// are summed in buffers on the device that computes them.
///
/// Every micro-batch is a run of its own, with [`Accumulation::weight`] fed: the number of its
/// samples by that of the batch. The first runs [`Accumulation::first`], others
/// [`Accumulation::add`], and the last the op that applies [`Accumulation::gradients`], with
/// another `first` or `add` before it.
pub struct Accumulation {
    /// Fed: the weight of the micro-batch.
    pub weight: Output<f32>,
    /// The target of the first micro-batch: it sets the buffers.
    pub first: Operation,
    /// The target of further micro-batches, except for the last: it adds to the buffers.
    pub add: Operation,
    /// The weighted sum, with the gradients of the micro-batch that is fed. Sparse gradients have
    /// become dense.
    pub gradients: Gradients,
}

impl Accumulation {
    /// Adds the nodes that accumulate these gradients. The model's updates, such as those of moving
    /// averages, run with every micro-batch.
    #[track_caller]
    pub fn new(model: &Model, gradients: &Gradients) -> Accumulation {
        let at = model.scope("accumulation");
        let weight: Output<f32> = at.placeholder("Placeholder", []);
        let (mut first, mut add, mut sums) = (model.updates(), model.updates(), Vec::new());
        for (variable, gradient) in gradients {
            let gradient = gradient.to_dense(&at);
            let part = gradient * cast_to(&weight, variable.dtype);
            let buffer = buffer(&at, variable);
            first.push(buffer.assign(&at, &part));
            add.push(buffer.assign_add(&at, &part));
            sums.push((variable.clone(), Gradient::Dense(buffer.read(&at) + &part)));
        }
        let target =
            |name: &str, nodes: &[Operation]| group(&model.scope("accumulation"), name, nodes);
        let (first, add) = (target("first", &first), target("add", &add));
        Accumulation { weight, first, add, gradients: sums }
    }
}

/// A variable beside the gradient, which no checkpoint holds.
fn buffer(at: &Graph, of: &Variable) -> State<Any> {
    let name = format!("accumulation/{}", of.name);
    let node = NewOp::new(at, "VarHandleOp").attr("dtype", of.dtype);
    let node = node.attr("shape", &PartialShape::from(&of.shape)).attr("shared_name", &*name);
    State::new(node.attr(RUN_STATE_ATTR, true).output(), of.dtype)
}
