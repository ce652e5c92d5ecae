//! Optimizers: update rules, learning rates, clipping and weight decay.

mod rule;

pub use rule::Rule;

use thalweg_graph::{Adjoint, GradientOptions, IndexedSlices, NodeId, Output, connected_gradients};
use thalweg_tensor::{DType, Result, ensure};

use crate::{Clip, Initializer, LossScale, ModelScope, Rate, Variable};
use rule::Part;

/// An update rule with a learning rate, gradient clipping and weight decay.
#[derive(Clone, Debug)]
pub struct Optimizer {
    rule: Rule,
    rate: Rate,
    clip: Option<Clip>,
    loss_scale: Option<LossScale>,
    weight_decay: f64,
    is_locking: bool,
}

impl From<&Optimizer> for Optimizer {
    fn from(optimizer: &Optimizer) -> Optimizer {
        optimizer.clone()
    }
}

impl Optimizer {
    /// An optimizer with this rule.
    pub fn new(rule: Rule, rate: impl Into<Rate>) -> Optimizer {
        Optimizer {
            rule,
            rate: rate.into(),
            clip: None,
            loss_scale: None,
            weight_decay: 0.0,
            is_locking: false,
        }
    }

    /// Stochastic gradient descent.
    pub fn sgd(rate: impl Into<Rate>) -> Optimizer {
        Optimizer::new(Rule::Sgd, rate)
    }

    /// Stochastic gradient descent with momentum.
    pub fn momentum(rate: impl Into<Rate>, momentum: f64) -> Optimizer {
        Optimizer::new(Rule::Momentum { momentum, is_nesterov: false }, rate)
    }

    /// Adam with TensorFlow's defaults.
    pub fn adam(rate: impl Into<Rate>) -> Optimizer {
        Optimizer::new(Rule::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }, rate)
    }

    /// AdamW: Adam with decoupled weight decay.
    pub fn adamw(rate: impl Into<Rate>, weight_decay: f64) -> Optimizer {
        Optimizer { weight_decay, ..Optimizer::adam(rate) }
    }

    /// Adagrad with TensorFlow's defaults.
    pub fn adagrad(rate: impl Into<Rate>) -> Optimizer {
        Optimizer::new(Rule::Adagrad { initial: 0.1 }, rate)
    }

    /// The same optimizer with a changed rule.
    pub(crate) fn with_rule(mut self, change: impl FnOnce(&mut Rule)) -> Optimizer {
        change(&mut self.rule);
        self
    }

    /// Sets gradient clipping.
    #[must_use]
    pub fn clip(self, clip: Clip) -> Optimizer {
        Optimizer { clip: Some(clip), ..self }
    }

    /// Scales the loss, for gradients in 16 bits, and skips updates with gradients that are not
    /// finite.
    #[must_use]
    pub fn loss_scale(self, loss_scale: LossScale) -> Optimizer {
        Optimizer { loss_scale: Some(loss_scale), ..self }
    }

    /// Sets decoupled weight decay: each step subtracts `rate * weight_decay * variable`.
    #[must_use]
    pub fn weight_decay(self, weight_decay: f64) -> Optimizer {
        Optimizer { weight_decay, ..self }
    }

    /// Uses locking: updates of one variable by several workers are serialized (`use_locking`).
    #[must_use]
    pub fn locking(self) -> Optimizer {
        Optimizer { is_locking: true, ..self }
    }

    /// Adds a training step: the gradients of `loss` and of the regularization terms by all
    /// trainable variables, their updates, the model's updates, and the increment of `global_step`.
    pub fn minimize(&self, model: &mut ModelScope, loss: Output) -> Result<NodeId> {
        let gradients = self.gradients(model, loss)?;
        self.apply(model, &gradients)
    }

    /// The clipped gradients of `loss` and of the regularization terms by the trainable variables
    /// that they depend on.
    pub fn gradients(
        &self,
        model: &mut ModelScope,
        loss: Output,
    ) -> Result<Vec<(Variable, Adjoint)>> {
        let gradients = self.whole_gradients(model, loss)?;
        self.clipped(model, gradients, |model, _| model.with_scope((**model).clone()))
    }

    /// As [`Optimizer::apply`], for gradients that are not clipped yet.
    pub(crate) fn clip_and_apply(
        &self,
        model: &mut ModelScope,
        gradients: &[(Variable, Adjoint)],
    ) -> Result<NodeId> {
        let here = |model: &ModelScope, _: &Variable| model.with_scope((**model).clone());
        let gradients = self.clipped(model, gradients.to_vec(), here)?;
        self.apply(model, &gradients)
    }

    /// Clipped gradients, computed on the device that `place` returns for each variable.
    pub(crate) fn clipped(
        &self,
        model: &ModelScope,
        gradients: Vec<(Variable, Adjoint)>,
        place: impl Fn(&ModelScope, &Variable) -> ModelScope,
    ) -> Result<Vec<(Variable, Adjoint)>> {
        match self.clip {
            Some(clip) => clip.build(model, &gradients, place),
            None => Ok(gradients),
        }
    }

    /// As [`Optimizer::gradients`], before clipping: a mean of several gradients is clipped as a
    /// whole.
    pub(crate) fn whole_gradients(
        &self,
        model: &mut ModelScope,
        loss: Output,
    ) -> Result<Vec<(Variable, Adjoint)>> {
        let mut loss = model.with_penalties(loss)?;
        let scale = self.loss_scale.map(|scale| scale.factor(model)).transpose()?;
        if let Some(scale) = scale {
            let dtype = model.dtype(loss);
            let factor = model.cast(scale, dtype)?;
            loss = model.add("Mul", &[loss, factor])?;
        }
        let variables = model.trainable();
        let handles: Vec<Output> = variables.iter().map(|variable| variable.handle).collect();
        let found = connected_gradients(model, &[loss], &handles, &GradientOptions::default())?;
        let found = variables.into_iter().zip(found);
        let found: Vec<_> = found.filter_map(|(v, adjoint)| Some((v, adjoint?))).collect();
        ensure!(
            !found.is_empty(),
            InvalidArgument,
            "the loss '{}' depends on no trainable variable",
            model.name_of(loss)
        );
        let Some(scale) = scale else { return Ok(found) };
        let unscale = |(variable, adjoint): (Variable, Adjoint)| {
            let scale = model.cast(scale, variable.dtype)?;
            let adjoint = match adjoint {
                Adjoint::Dense(values) => Adjoint::Dense(model.add("RealDiv", &[values, scale])?),
                Adjoint::Sparse(rows) => Adjoint::Sparse(IndexedSlices {
                    values: model.add("RealDiv", &[rows.values, scale])?,
                    ..rows
                }),
            };
            Ok((variable, adjoint))
        };
        found.into_iter().map(unscale).collect()
    }

    /// Adds the nodes that apply these gradients, the model's updates, and the increment of
    /// `global_step`.
    pub fn apply(
        &self,
        model: &mut ModelScope,
        gradients: &[(Variable, Adjoint)],
    ) -> Result<NodeId> {
        let mut last = self.change_all(model, gradients)?;
        last.extend(model.updates());
        model.op("NoOp").name("train_step").after(&last).build_node()
    }

    /// As [`Optimizer::apply`], without the model's updates; returns the nodes that must have run.
    pub(crate) fn change_all(
        &self,
        model: &ModelScope,
        gradients: &[(Variable, Adjoint)],
    ) -> Result<Vec<NodeId>> {
        match self.loss_scale {
            Some(scale) => {
                scale.guard(model, gradients, |gradients| self.change_each(model, gradients))
            }
            None => self.change_each(model, gradients),
        }
    }

    fn change_each(
        &self,
        model: &ModelScope,
        gradients: &[(Variable, Adjoint)],
    ) -> Result<Vec<NodeId>> {
        let mut train = model.with_scope(model.child("train"));
        let step = model.global_step()?;
        let now = step.read(&mut train)?;
        let rate = self.rate.build(&mut train, now)?;
        let powers = self.powers(&train)?;
        let settings = Settings { rate, step: now, powers: &powers };
        let mut changes = Vec::with_capacity(gradients.len());
        for (variable, adjoint) in gradients {
            let beside = train.on(&variable.device);
            // Not before the gradient is there: it is that of the whole weights.
            let gradient = match adjoint {
                Adjoint::Dense(gradient) => vec![gradient.node],
                Adjoint::Sparse(rows) => vec![rows.values.node, rows.indices.node],
            };
            let mut ready = beside.with_scope(beside.after(&gradient));
            let decay = self.decay(&mut ready, variable, rate)?;
            let mut after = beside.with_scope(beside.after(&decay));
            changes.push(self.change(&mut after, variable, *adjoint, &settings)?);
        }
        let mut after = train.with_scope(train.after(&changes));
        let mut last = changes.clone();
        for (power, beta) in &powers {
            let value = power.read(&mut after)?;
            let beta = after.float(*beta as f32)?;
            let value = after.add("Mul", &[value, beta])?;
            let node = after.op("AssignVariableOp").inputs(&[power.handle, value]);
            last.push(node.build_node()?);
        }
        let mut counting = after.on(&step.device);
        let one = counting.number(DType::Int64, 1.0)?;
        let node = counting.op("AssignAddVariableOp").inputs(&[step.handle, one]);
        last.push(node.build_node()?);
        Ok(last)
    }

    /// Powers of the betas, which Adam and Adamax keep once for all variables.
    fn powers(&self, model: &ModelScope) -> Result<Vec<(Variable, f64)>> {
        let top = |name: &str, beta: f64| -> Result<(Variable, f64)> {
            let first = Initializer::Constant(beta);
            Ok((model.top().counter(name, DType::Float, &[], &first)?, beta))
        };
        let names = ["beta1_power", "beta2_power"];
        self.rule.betas().iter().zip(names).map(|(beta, name)| top(name, *beta)).collect()
    }

    /// Adds weight decay; none if the rule has no decay.
    fn decay(
        &self,
        model: &mut ModelScope,
        variable: &Variable,
        rate: Output,
    ) -> Result<Vec<NodeId>> {
        if self.weight_decay == 0.0 {
            return Ok(Vec::new());
        }
        let value = variable.read(model)?;
        let part = model.float(self.weight_decay as f32)?;
        let part = model.add("Mul", &[part, rate])?;
        let part = model.cast(part, variable.dtype)?;
        let step = model.add("Mul", &[value, part])?;
        Ok(vec![model.op("AssignSubVariableOp").inputs(&[variable.handle, step]).build_node()?])
    }

    fn change(
        &self,
        model: &mut ModelScope,
        variable: &Variable,
        adjoint: Adjoint,
        settings: &Settings<'_>,
    ) -> Result<NodeId> {
        let (gradient, indices) = match adjoint {
            Adjoint::Dense(gradient) => (gradient, None),
            // It subtracts duplicate rows one after the other.
            Adjoint::Sparse(rows) if self.rule == Rule::Sgd => (rows.values, Some(rows.indices)),
            Adjoint::Sparse(rows) => {
                let (values, indices) = summed_rows(model, rows)?;
                (values, Some(indices))
            }
        };
        let Some(recipe) = (match indices {
            None => Some(self.rule.dense()),
            Some(_) => self.rule.sparse(),
        }) else {
            return self.change_rows_by_hand(model, variable, (gradient, indices), settings);
        };
        let mut slots = Vec::new();
        for (name, first) in self.rule.slots() {
            slots.push(model.slot(variable, name, &Initializer::Constant(first))?);
        }
        let mut inputs = vec![variable.handle];
        for part in recipe.parts {
            inputs.push(match part {
                Part::Slot(i) => slots[i].handle,
                Part::Gradient => gradient,
                Part::Indices => indices.unwrap_or(gradient),
                Part::Rate => model.cast(settings.rate, variable.dtype)?,
                Part::Number(value) => model.number(variable.dtype, value)?,
                Part::Step => {
                    let one = model.number(DType::Int64, 1.0)?;
                    model.add("AddV2", &[settings.step, one])?
                }
                Part::Power(i) => {
                    let power = settings.powers[i].0.read(model)?;
                    model.cast(power, variable.dtype)?
                }
            });
        }
        let mut node = model.op(recipe.op).inputs(&inputs);
        if self.is_locking {
            node = node.attr("use_locking", true);
        }
        if let Some((attr, value)) = recipe.flag {
            node = node.attr(attr, value);
        }
        node.build_node()
    }

    /// Sparse updates for rules without a sparse kernel, composed of other ops.
    fn change_rows_by_hand(
        &self,
        model: &mut ModelScope,
        variable: &Variable,
        (gradient, indices): (Output, Option<Output>),
        settings: &Settings<'_>,
    ) -> Result<NodeId> {
        let indices = indices.unwrap_or(gradient);
        match &self.rule {
            Rule::Adam { beta1, beta2, epsilon } => {
                let m = model.slot(variable, "Adam", &Initializer::Zeros)?;
                let v = model.slot(variable, "Adam_1", &Initializer::Zeros)?;
                let square = model.add("Square", &[gradient])?;
                let m = fade_and_add(model, &m, *beta1, (gradient, indices))?;
                let v = fade_and_add(model, &v, *beta2, (square, indices))?;
                let root = model.add("Sqrt", &[v])?;
                let epsilon = model.number(variable.dtype, *epsilon)?;
                let root = model.add("AddV2", &[root, epsilon])?;
                let direction = model.add("RealDiv", &[m, root])?;
                let rate = adam_rate(model, settings)?;
                let rate = model.cast(rate, variable.dtype)?;
                let step = model.add("Mul", &[direction, rate])?;
                let node = model.op("AssignSubVariableOp").inputs(&[variable.handle, step]);
                node.build_node()
            }
            // Its greatest gradients fade for all rows: those without one have zeros.
            Rule::Adamax { .. } => {
                let rows = model.int(variable.shape.dims()[0] as i32)?;
                let dense = model.add("UnsortedSegmentSum", &[gradient, indices, rows])?;
                self.change(model, variable, Adjoint::Dense(dense), settings)
            }
            _ => {
                // Gradient descent: the rows go down by the rate.
                let rate = model.cast(settings.rate, variable.dtype)?;
                let step = model.add("Mul", &[gradient, rate])?;
                let node = model.op("ResourceScatterSub").inputs(&[variable.handle, indices, step]);
                node.build_node()
            }
        }
    }
}

/// What the updates of all variables in one step share.
struct Settings<'a> {
    rate: Output,
    step: Output,
    powers: &'a [(Variable, f64)],
}

/// Sums duplicate rows, so that each index occurs once.
pub(crate) fn summed_rows(model: &mut ModelScope, rows: IndexedSlices) -> Result<(Output, Output)> {
    let unique = model.op("Unique").input(rows.indices).build_all()?;
    let count = model.add("Size", &[unique[0]])?;
    let values = model.add("UnsortedSegmentSum", &[rows.values, unique[1], count])?;
    Ok((values, unique[0]))
}

/// `slot = slot * beta`, then `slot[rows] += (1 - beta) * values`; returns the new slot.
fn fade_and_add(
    model: &mut ModelScope,
    slot: &Variable,
    beta: f64,
    (values, indices): (Output, Output),
) -> Result<Output> {
    let old = slot.read(model)?;
    let factor = model.number(slot.dtype, beta)?;
    let faded = model.add("Mul", &[old, factor])?;
    let fade = model.op("AssignVariableOp").inputs(&[slot.handle, faded]).build_node()?;
    let rest = model.number(slot.dtype, 1.0 - beta)?;
    let values = model.add("Mul", &[values, rest])?;
    let node = model.op("ResourceScatterAdd").inputs(&[slot.handle, indices, values]);
    let add = node.after(&[fade]).build_node()?;
    let mut after = model.with_scope(model.after(&[add]));
    slot.read(&mut after)
}

/// `rate * sqrt(1 - beta2^t) / (1 - beta1^t)`.
fn adam_rate(model: &mut ModelScope, settings: &Settings<'_>) -> Result<Output> {
    let one = model.float(1.0)?;
    let [first, second] = [0, 1].map(|i| {
        let power = settings.powers[i].0.read(model)?;
        model.add("Sub", &[one, power])
    });
    let (first, second) = (first?, second?);
    let second = model.add("Sqrt", &[second])?;
    let factor = model.add("RealDiv", &[second, first])?;
    model.add("Mul", &[settings.rate, factor])
}
