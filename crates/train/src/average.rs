//! Exponential moving averages of variables over training steps.

use std::panic::Location;

use thalweg_api::{Any, Graph, Operation, Output, Target, on_behalf_of};
use thalweg_tensor::Result;

use crate::model::slot_like;
use crate::state::State;
use crate::view::{cast_to, group};
use crate::{Model, Variable};

/// Exponential moving average of variables: `average = decay * average + (1 - decay) * variable`,
/// as TensorFlow's `ExponentialMovingAverage`.
#[derive(Clone, Copy, Debug)]
pub struct MovingAverage {
    decay: f32,
    is_warming: bool,
}

impl MovingAverage {
    /// An average with this decay, the fraction of the old average that stays at each step.
    pub fn new(decay: f32) -> MovingAverage {
        MovingAverage { decay, is_warming: false }
    }

    /// Uses `min(decay, (1 + n) / (10 + n))` as decay after `n` steps, so that averages follow the
    /// variables faster at first (`num_updates` in TensorFlow).
    #[must_use]
    pub fn warming(self) -> MovingAverage {
        MovingAverage { is_warming: true, ..self }
    }

    /// The average of `variable`, under the name that TensorFlow gives it. It is initialized with
    /// the variable's initial value. An error if the variable belongs to another graph.
    pub fn of(self, graph: &Graph, variable: &Variable) -> Result<Variable> {
        slot_like(graph, variable, "ExponentialMovingAverage")
    }

    /// Adds the target that runs `train`, a training step, and then updates the averages of
    /// `variables`, which belong to the graph of `model`.
    #[track_caller]
    pub fn follow(self, model: &Model, variables: &[Variable], train: &dyn Target) -> Operation {
        on_behalf_of(Location::caller(), || {
            let added = model.node_id_of(train);
            let added = added.and_then(|_| model.build(|_| self.update(model, variables, train)));
            added.unwrap_or_else(|| Operation::poisoned(model))
        })
    }

    fn update(
        self,
        model: &Model,
        variables: &[Variable],
        train: &dyn Target,
    ) -> Result<Operation> {
        let then = model.after(&[train]);
        let part = self.part(&then, model)?;
        let mut nodes = Vec::with_capacity(variables.len());
        for variable in variables {
            let beside = then.device(&variable.device);
            let average = State::<Any>::of(model, &self.of(model, variable)?);
            let gap = average.read(&beside) - State::of(model, variable).read(&beside);
            let part = cast_to(&part.within(&beside), variable.dtype);
            nodes.push(average.assign_sub(&beside, gap * part));
        }
        Ok(group(model, "moving_averages", &nodes))
    }

    /// The fraction of the average that a step replaces: `1 - decay`.
    fn part(self, at: &Graph, model: &Model) -> Result<Output<f32>> {
        let part = at.constant((1.0 - f64::from(self.decay)) as f32);
        if !self.is_warming {
            return Ok(part);
        }
        let steps = State::<i64>::of(model, &model.step_counter()?).read(at).cast::<f32>();
        // 1 - (1 + n) / (10 + n).
        Ok(part.maximum(9.0 / (steps + 10.0)))
    }
}
