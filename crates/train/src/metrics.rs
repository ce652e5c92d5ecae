//! Metrics of classification, and streaming means.

use thalweg_graph::{NodeId, Output};
use thalweg_tensor::{DType, Result};

use crate::losses::{as_rows, as_vector};
use crate::{Initializer, Model, Variable, losses};

/// Accuracy: the fraction of examples whose highest logit is that of the true class.
pub fn accuracy(model: &mut Model, logits: Output, labels: Output) -> Result<Output> {
    let right = is_right(model, logits, labels)?;
    losses::mean(model, right)
}

/// 1 for each example (or each time step of each) that is classified correctly, else 0.
pub fn is_right(model: &mut Model, logits: Output, labels: Output) -> Result<Output> {
    let (logits, labels) = (as_rows(model, logits)?, as_vector(model, labels)?);
    let axis = model.int(1)?;
    let dtype = model.dtype(labels);
    let best = model.op("ArgMax").inputs(&[logits, axis]).attr("output_type", dtype).build()?;
    let right = model.add("Equal", &[best, labels])?;
    model.cast(right, DType::Float)
}

/// Top-k accuracy: the fraction of examples whose true class is among the `k` highest logits.
pub fn top_k_accuracy(model: &mut Model, logits: Output, labels: Output, k: i32) -> Result<Output> {
    let dtype = model.dtype(labels);
    let k = model.number(dtype, f64::from(k))?;
    let right = model.op("InTopKV2").inputs(&[logits, labels, k]).build()?;
    let right = model.cast(right, DType::Float)?;
    losses::mean(model, right)
}

/// A mean over many batches, accumulated in variables.
pub struct StreamingMean {
    total: Variable,
    count: Variable,
    /// The node that adds a batch.
    pub update: NodeId,
    /// The mean so far; 0 before the first batch.
    pub value: Output,
    /// The node that resets the mean.
    pub reset: NodeId,
}

impl StreamingMean {
    /// The mean of all elements of `each` over all batches.
    pub fn new(model: &mut Model, name: &str, each: Output) -> Result<StreamingMean> {
        let mut layer = model.layer(name);
        let counter =
            |layer: &Model, name| layer.counter(name, DType::Float, &[], &Initializer::Zeros);
        let (total, count) = (counter(&layer, "total")?, counter(&layer, "count")?);
        let sum = losses::sum(&mut layer, each)?;
        let size = layer.add("Size", &[each])?;
        let size = layer.cast(size, DType::Float)?;
        let add = |layer: &mut Model, to: &Variable, what| {
            layer.op("AssignAddVariableOp").inputs(&[to.handle, what]).build_node()
        };
        let added = [add(&mut layer, &total, sum)?, add(&mut layer, &count, size)?];
        let update = layer.op("NoOp").name("update").after(&added).build_node()?;
        let (sum, size) = (total.read(&mut layer)?, count.read(&mut layer)?);
        let value = layer.add("DivNoNan", &[sum, size])?;
        let init = [total.init, count.init];
        let reset = layer.op("NoOp").name("reset").after(&init).build_node()?;
        Ok(StreamingMean { total, count, update, value, reset })
    }

    /// The variables that hold total and count.
    pub fn variables(&self) -> [&Variable; 2] {
        [&self.total, &self.count]
    }
}
