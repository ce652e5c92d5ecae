//! Averages of variables over the steps of a training.

use thalweg_graph::{NodeId, Output};
use thalweg_tensor::Result;

use crate::{Initializer, Model, Variable};

/// Keeps `average = decay * average + (1 - decay) * variable` for variables.
#[derive(Clone, Copy, Debug)]
pub struct MovingAverage {
    decay: f32,
}

impl MovingAverage {
    /// How much of an average stays at each step.
    pub fn new(decay: f32) -> MovingAverage {
        MovingAverage { decay }
    }

    /// The average of a variable; called as TensorFlow calls it.
    pub fn of(self, model: &Model, variable: &Variable) -> Result<Variable> {
        model.slot(variable, "ExponentialMovingAverage", &Initializer::Zeros)
    }

    /// Adds the node that brings the averages of `variables` up to date; it belongs after the
    /// optimizer's. Averages begin with what the variables begin with.
    pub fn update(
        self,
        model: &mut Model,
        variables: &[Variable],
        after: &[NodeId],
    ) -> Result<NodeId> {
        let mut nodes = Vec::with_capacity(variables.len());
        for variable in variables {
            let average = self.of(model, variable)?;
            let mut beside = model.with_scope(model.on_device(&variable.device).after(after));
            let step = self.step(&mut beside, variable, &average)?;
            let node = beside.op("AssignSubVariableOp").inputs(&[average.handle, step]);
            nodes.push(node.build_node()?);
        }
        model.op("NoOp").name("moving_averages").after(&nodes).build_node()
    }

    fn step(self, model: &mut Model, variable: &Variable, average: &Variable) -> Result<Output> {
        let (old, new) = (average.read(model)?, variable.read(model)?);
        let gap = model.add("Sub", &[old, new])?;
        let part = model.number(variable.dtype, 1.0 - f64::from(self.decay))?;
        model.add("Mul", &[gap, part])
    }
}
