//! Averages of variables over the steps of a training.

use thalweg_graph::{NodeId, Output};
use thalweg_tensor::{DType, Result};

use crate::{Model, Variable};

/// Keeps `average = decay * average + (1 - decay) * variable` for variables.
#[derive(Clone, Copy, Debug)]
pub struct MovingAverage {
    decay: f32,
    is_warming: bool,
}

impl MovingAverage {
    /// How much of an average stays at each step.
    pub fn new(decay: f32) -> MovingAverage {
        MovingAverage { decay, is_warming: false }
    }

    /// Lets averages follow faster at first: after `n` steps no more than `(1 + n) / (10 + n)` stays.
    #[must_use]
    pub fn warming(self) -> MovingAverage {
        MovingAverage { is_warming: true, ..self }
    }

    /// The average of a variable; called as TensorFlow calls it. It begins with what the variable
    /// begins with.
    pub fn of(self, model: &Model, variable: &Variable) -> Result<Variable> {
        model.slot_like(variable, "ExponentialMovingAverage")
    }

    /// Adds the node that brings the averages of `variables` up to date; it belongs after the
    /// optimizer's.
    pub fn update(
        self,
        model: &mut Model,
        variables: &[Variable],
        after: &[NodeId],
    ) -> Result<NodeId> {
        let mut then = model.with_scope(model.after(after));
        let part = self.part(&mut then)?;
        let mut nodes = Vec::with_capacity(variables.len());
        for variable in variables {
            let average = self.of(model, variable)?;
            let mut beside = model.with_scope(model.on_device(&variable.device).after(after));
            let (old, new) = (average.read(&mut beside)?, variable.read(&mut beside)?);
            let gap = beside.add("Sub", &[old, new])?;
            let part = beside.cast(part, variable.dtype)?;
            let step = beside.add("Mul", &[gap, part])?;
            let node = beside.op("AssignSubVariableOp").inputs(&[average.handle, step]);
            nodes.push(node.build_node()?);
        }
        model.op("NoOp").name("moving_averages").after(&nodes).build_node()
    }

    /// The part of an average that goes at a step.
    fn part(self, model: &mut Model) -> Result<Output> {
        let part = model.number(DType::Float, 1.0 - f64::from(self.decay))?;
        if !self.is_warming {
            return Ok(part);
        }
        let steps = model.global_step()?.read(model)?;
        let steps = model.cast(steps, DType::Float)?;
        let (nine, ten) = (model.float(9.0)?, model.float(10.0)?);
        let sum = model.add("AddV2", &[ten, steps])?;
        // 1 - (1 + n) / (10 + n).
        let early = model.add("RealDiv", &[nine, sum])?;
        model.add("Maximum", &[part, early])
    }
}
