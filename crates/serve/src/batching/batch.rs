//! One batch: inputs are concatenated before the step, outputs are split after it.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_tensor::{Budget, Result, Tensor, ensure};

use super::parameters::Parameters;
use super::queue::Piece;
use super::rows::{self, Joining};

/// The contents of a batch.
pub(super) struct Gathered {
    /// The inputs of requests, and which of their rows are in the batch.
    pub(super) parts: Vec<(Vec<Tensor>, Piece)>,
    pub(super) parameters: Option<Parameters>,
    /// The budget that the concatenated inputs are charged to.
    pub(super) budget: Arc<Budget>,
}

impl Gathered {
    /// The rows of the batch, including padding.
    pub(super) fn rows_filled_up(&self) -> usize {
        let rows: usize = self.parts.iter().map(|(_, piece)| piece.rows).sum();
        self.parameters.as_ref().map_or(rows, |p| p.filled_up(rows))
    }

    /// The concatenated inputs.
    pub(super) fn join(&self) -> Result<Vec<Tensor>> {
        let filled_up = self.rows_filled_up();
        let pads = self.parameters.as_ref().is_some_and(|p| p.pad_variable_length_inputs);
        let inputs = self.parts.first().map_or(0, |(inputs, _)| inputs.len());
        let one = |input: usize| {
            let part = |(inputs, piece): &(Vec<Tensor>, Piece)| {
                inputs[input].rows(piece.start, piece.rows, None)
            };
            let parts = self.parts.iter().map(part).collect::<Result<Vec<Tensor>>>()?;
            rows::join(&parts, Joining { rows: filled_up, pads, budget: &self.budget })
        };
        (0..inputs).map(one).collect()
    }
}

/// Fails if the outputs cannot be split by rows.
pub(super) fn check(outputs: &[Tensor], rows: usize) -> Result<()> {
    for output in outputs {
        ensure!(
            output.shape().first() == Some(&rows),
            FailedPrecondition,
            "an output of shape {} came from a batch of {rows} rows: the model cannot be batched",
            output.shape()
        );
    }
    Ok(())
}

/// Some rows of all outputs, or the error of the step.
pub(super) fn slice(result: &Result<Vec<Tensor>>, at: usize, rows: usize) -> Result<Vec<Tensor>> {
    match result {
        Ok(outputs) => outputs.iter().map(|output| output.rows(at, rows, None)).collect(),
        Err(e) => Err(e.clone()),
    }
}

/// The answers to the parts of a request, concatenated in order.
pub(super) fn whole(
    answers: BTreeMap<usize, Vec<Tensor>>,
    budget: &Arc<Budget>,
) -> Result<Vec<Tensor>> {
    let mut parts: Vec<Vec<Tensor>> = answers.into_values().collect();
    if parts.len() == 1 {
        return Ok(parts.remove(0));
    }
    let outputs = parts.first().map_or(0, Vec::len);
    let one = |output: usize| {
        let of_parts: Vec<Tensor> = parts.iter().map(|part| part[output].clone()).collect();
        let rows = of_parts.iter().map(|part| part.shape()[0]).sum();
        // Padding of the inputs may have made the parts differ.
        rows::join(&of_parts, Joining { rows, pads: true, budget })
    };
    (0..outputs).map(one).collect()
}
