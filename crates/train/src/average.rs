//! Exponential moving averages of variables over training steps.

use thalweg_api::Operation;
use thalweg_graph::{NodeId, Output};
use thalweg_tensor::{DType, Result};

use crate::{Model, ModelScope, Variable};

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
    pub fn of(self, model: &ModelScope, variable: &Variable) -> Result<Variable> {
        model.slot_like(variable, "ExponentialMovingAverage")
    }

    /// Adds the target that runs `train`, a training step, and then updates the averages of
    /// `variables`, which belong to the graph of `model`.
    #[track_caller]
    pub fn follow(self, model: &Model, variables: &[Variable], train: &Operation) -> Operation {
        let Some(node) = model.node_id_of(train) else { return Operation::poisoned(model) };
        let added = model.graph().build(|_| self.update(&mut model.as_scope(), variables, &[node]));
        added.map_or_else(|| Operation::poisoned(model), |node| model.operation(node))
    }

    /// Adds the node that updates the averages of `variables`; the node runs after `after`, which
    /// are the optimizer's nodes.
    pub fn update(
        self,
        model: &mut ModelScope,
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

    /// The fraction of the average that a step replaces: `1 - decay`.
    fn part(self, model: &mut ModelScope) -> Result<Output> {
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
