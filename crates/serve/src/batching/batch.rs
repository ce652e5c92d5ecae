//! One batch: inputs are concatenated before the step, outputs are split after it.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_tensor::{Budget, Result, Tensor, ensure};

use super::parameters::Parameters;
use super::queue::Piece;
use super::rows::{self, JoinOptions};

/// The contents of a batch.
pub(super) struct Batch {
    /// The inputs of requests, and which of their rows are in the batch.
    pub(super) parts: Vec<(Vec<Tensor>, Piece)>,
    pub(super) parameters: Option<Parameters>,
    /// The budget that the concatenated inputs are charged to.
    pub(super) budget: Arc<Budget>,
}

impl Batch {
    /// The rows of the batch, including padding.
    pub(super) fn padded_rows(&self) -> usize {
        let rows: usize = self.parts.iter().map(|(_, piece)| piece.rows).sum();
        self.parameters.as_ref().map_or(rows, |p| p.padded_rows(rows))
    }

    /// The concatenated inputs.
    pub(super) fn join(&self) -> Result<Vec<Tensor>> {
        let padded_rows = self.padded_rows();
        let pads = self.parameters.as_ref().is_some_and(|p| p.pad_variable_length_inputs);
        let inputs = self.parts.first().map_or(0, |(inputs, _)| inputs.len());
        let one = |input: usize| {
            let part = |(inputs, piece): &(Vec<Tensor>, Piece)| {
                inputs[input].rows(piece.start, piece.rows, None)
            };
            let parts = self.parts.iter().map(part).collect::<Result<Vec<Tensor>>>()?;
            rows::join(&parts, JoinOptions { rows: padded_rows, pads, budget: &self.budget })
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
            "an output of shape {} for a batch of {rows} rows: the first dimension must be the number of rows, so this model cannot be batched",
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
pub(super) fn concatenated(
    answers: BTreeMap<usize, Vec<Tensor>>,
    budget: &Arc<Budget>,
) -> Result<Vec<Tensor>> {
    let mut parts: Vec<Vec<Tensor>> = answers.into_values().collect();
    if parts.len() == 1 {
        return Ok(parts.remove(0));
    }
    let outputs = parts.first().map_or(0, Vec::len);
    let one = |output: usize| {
        let parts_of_output: Vec<Tensor> = parts.iter().map(|part| part[output].clone()).collect();
        let rows = parts_of_output.iter().map(|part| part.shape()[0]).sum();
        // Padding of the inputs may have made the parts differ.
        rows::join(&parts_of_output, JoinOptions { rows, pads: true, budget })
    };
    (0..outputs).map(one).collect()
}
