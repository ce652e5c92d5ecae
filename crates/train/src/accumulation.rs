//! Gradient accumulation: one update by the mean gradient of several micro-batches.

use thalweg_formats::saved_model::RUN_STATE_ATTR;
use thalweg_graph::{Adjoint, NodeId, Output};
use thalweg_tensor::{DType, PartialShape, Result};

use crate::{ModelScope, Variable};

/// Gradient accumulation: the gradients of micro-batches, which are computed one after the other,
/// are summed in buffers on the device that computes them.
///
/// Every micro-batch is a run of its own, with [`Accumulation::weight`] fed: the number of its
/// samples by that of the batch. The first runs [`Accumulation::first`], others
/// [`Accumulation::add`], and the last the op that applies [`Accumulation::gradients`], with
/// another `first` or `add` before it.
pub struct Accumulation {
    /// Fed: the weight of the micro-batch.
    pub weight: Output,
    /// The target of the first micro-batch: it sets the buffers.
    pub first: NodeId,
    /// The target of further micro-batches, except for the last: it adds to the buffers.
    pub add: NodeId,
    /// The weighted sum, with the gradients of the micro-batch that is fed. Sparse gradients have
    /// become dense.
    pub gradients: Vec<(Variable, Adjoint)>,
}

impl Accumulation {
    /// Adds the nodes that accumulate these gradients. The model's updates, such as those of moving
    /// averages, run with every micro-batch.
    pub fn new(model: &mut ModelScope, gradients: &[(Variable, Adjoint)]) -> Result<Accumulation> {
        let mut at = model.with_scope(model.child("accumulation"));
        let weight = at.placeholder(DType::Float, &PartialShape::scalar())?;
        let (mut first, mut add, mut sums) = (Vec::new(), Vec::new(), Vec::new());
        for (variable, adjoint) in gradients {
            let gradient = adjoint.to_dense(&mut at)?;
            let dtype = at.dtype(gradient);
            let factor = at.cast(weight, dtype)?;
            let part = at.add("Mul", &[gradient, factor])?;
            let buffer = buffer(&mut at, variable)?;
            first.push(at.op("AssignVariableOp").inputs(&[buffer, part]).build_node()?);
            add.push(at.op("AssignAddVariableOp").inputs(&[buffer, part]).build_node()?);
            let sum = at.op("ReadVariableOp").input(buffer).attr("dtype", dtype).build()?;
            sums.push((variable.clone(), Adjoint::Dense(at.add("AddV2", &[sum, part])?)));
        }
        let updates = model.updates();
        let target = |name: &str, nodes: Vec<NodeId>| {
            let mut at = model.with_scope(model.child("accumulation"));
            at.op("NoOp").name(name).after(&[nodes, updates.clone()].concat()).build_node()
        };
        let (first, add) = (target("first", first)?, target("add", add)?);
        Ok(Accumulation { weight, first, add, gradients: sums })
    }
}

/// A variable beside the gradient, which no checkpoint holds.
fn buffer(at: &mut ModelScope, of: &Variable) -> Result<Output> {
    let name = format!("accumulation/{}", of.name);
    let node = at.op("VarHandleOp").attr("dtype", of.dtype);
    let node = node.attr("shape", &PartialShape::from(&of.shape)).attr("shared_name", &*name);
    node.attr(RUN_STATE_ATTR, true).build()
}
