//! Optimizers: update rules, learning rates, clipping and weight decay.

mod rule;

pub use rule::Rule;

use std::panic::Location;

use thalweg_api::{Any, Graph, NewOp, Operation, Output, TensorType, on_behalf_of, tf};
use thalweg_graph::{GradientOptions, connected_gradients};
use thalweg_tensor::{DType, Result, ensure, err};

use crate::gradient::Gradients;
use crate::model::slot;
use crate::state::State;
use crate::view::{after, cast_to, like, number};
use crate::{Clip, Gradient, Initializer, LossScale, Model, Rate, Variable};
use rule::{Part, Recipe};

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
    /// trainable variables of its graph, their updates, the model's updates, and the increment of
    /// `global_step`.
    #[track_caller]
    #[must_use = "a step runs it as a target"]
    pub fn minimize<T: TensorType>(&self, loss: &Output<T>) -> Operation {
        let model = Model::of(loss.graph());
        self.apply(&model, &self.gradients(&model, loss))
    }

    /// The clipped gradients of `loss` and of the regularization terms by the trainable variables
    /// that they depend on; none, and a mistake, if there is no such variable.
    #[track_caller]
    pub fn gradients<T: TensorType>(&self, model: &Model, loss: &Output<T>) -> Gradients {
        on_behalf_of(Location::caller(), || {
            let gradients = model.build(|_| self.whole_gradients(model, loss)).unwrap_or_default();
            self.clipped(model, gradients, |_| model.graph().clone())
        })
    }

    /// Adds the nodes that apply these gradients, the model's updates, and the increment of
    /// `global_step`.
    #[track_caller]
    pub fn apply(&self, model: &Model, gradients: &Gradients) -> Operation {
        if gradients.is_empty() {
            // None, since they could not be computed, or none were given.
            if model.check().is_ok() {
                let error = err!(InvalidArgument, "there are no gradients to apply");
                model.record(Location::caller(), error);
            }
            return Operation::poisoned(model);
        }
        on_behalf_of(Location::caller(), || {
            let changed = model.build(|_| self.change_all(model, gradients));
            changed.map_or_else(|| Operation::poisoned(model), |changed| model.train_step(changed))
        })
    }

    /// As [`Optimizer::apply`], for gradients that are not clipped yet.
    #[track_caller]
    pub(crate) fn clip_and_apply(&self, model: &Model, gradients: &Gradients) -> Operation {
        let gradients = self.clipped(model, gradients.clone(), |_| model.graph().clone());
        self.apply(model, &gradients)
    }

    /// Clipped gradients, each computed in the view that `place` returns for its variable.
    pub(crate) fn clipped(
        &self,
        view: &Graph,
        gradients: Gradients,
        place: impl Fn(&Variable) -> Graph,
    ) -> Gradients {
        match self.clip {
            Some(clip) if !gradients.is_empty() => clip.apply(view, &gradients, place),
            _ => gradients,
        }
    }

    /// As [`Optimizer::gradients`], before clipping: a mean of several gradients is clipped as a
    /// whole.
    pub(crate) fn whole_gradients<T: TensorType>(
        &self,
        model: &Model,
        loss: &Output<T>,
    ) -> Result<Gradients> {
        let mut loss = model.with_penalties(&loss.any().within(model));
        let scale = self.loss_scale.map(|scale| scale.factor(model)).transpose()?;
        if let (Some(scale), Some(dtype)) = (&scale, loss.dtype()) {
            loss = loss * cast_to(scale, dtype);
        }
        let (variables, at) = (model.trainable(), loss.endpoint()?);
        let handles: Vec<_> = variables.iter().map(|variable| variable.handle).collect();
        let mut scope = model.as_scope().clone();
        let found = connected_gradients(&mut scope, &[at], &handles, &GradientOptions::default())?;
        let found = variables.into_iter().zip(found);
        let found = found.filter_map(|(v, adjoint)| Some((v, Gradient::of(model, adjoint?))));
        let found: Gradients = found.collect();
        ensure!(
            !found.is_empty(),
            InvalidArgument,
            "the loss '{}' depends on no trainable variable",
            loss.name()?
        );
        let Some(scale) = scale else { return Ok(found) };
        let unscale = |(variable, gradient): (Variable, Gradient)| {
            let values = gradient.values() / cast_to(&scale, variable.dtype);
            (variable, gradient.with_values(values))
        };
        Ok(found.into_iter().map(unscale).collect())
    }

    /// As [`Optimizer::apply`], without the model's updates; returns the nodes that must have run.
    pub(crate) fn change_all(
        &self,
        model: &Model,
        gradients: &Gradients,
    ) -> Result<Vec<Operation>> {
        match self.loss_scale {
            Some(scale) => {
                scale.guard(model, gradients, |gradients| self.change_each(model, gradients))
            }
            None => self.change_each(model, gradients),
        }
    }

    fn change_each(&self, model: &Model, gradients: &Gradients) -> Result<Vec<Operation>> {
        let train = model.at(model.scope("train"));
        let counter = model.step_counter()?;
        let steps = State::<i64>::of(&train, &counter);
        let step = steps.read(&train);
        let rate = self.rate.build(&train, &step)?;
        let powers = self.powers(&train)?;
        let settings = Settings { rate, step, powers };
        let mut last = Vec::with_capacity(gradients.len());
        for (variable, gradient) in gradients {
            let beside = train.device(&variable.device);
            // Not before the gradient is there: it is that of the whole weights.
            let ready = after(&beside, &gradient.operations());
            let decay = self.decay(&ready, variable, &settings.rate);
            let update = Update { at: after(&beside, &decay), variable, settings: &settings };
            last.push(self.change(&update, gradient)?);
        }
        let then = after(&train, &last);
        for (power, beta) in &settings.powers {
            last.push(power.assign(&then, power.read(&then) * *beta as f32));
        }
        last.push(steps.assign_add(&then.device(&counter.device), 1));
        Ok(last)
    }

    /// Powers of the betas, which Adam and Adamax keep once for all variables.
    fn powers(&self, model: &Model) -> Result<Vec<(State<f32>, f64)>> {
        let power = |(name, beta): (&str, f64)| {
            let first = Initializer::Constant(beta);
            let power = model.top().untrained(name, DType::Float, &[], &first)?;
            Ok((State::of(model, &power), beta))
        };
        ["beta1_power", "beta2_power"].into_iter().zip(self.rule.betas()).map(power).collect()
    }

    /// Adds weight decay; none if the rule has no decay.
    fn decay(&self, at: &Graph, variable: &Variable, rate: &Output<f32>) -> Vec<Operation> {
        if self.weight_decay == 0.0 {
            return Vec::new();
        }
        let state = State::<Any>::of(at, variable);
        let part = at.constant(self.weight_decay as f32) * rate;
        vec![state.assign_sub(at, state.read(at) * cast_to(&part, variable.dtype))]
    }

    fn change(&self, update: &Update<'_>, gradient: &Gradient) -> Result<Operation> {
        let at = &update.at;
        match gradient {
            Gradient::Dense(gradient) => {
                self.by_kernel(update, self.rule.dense(), &gradient.within(at), None)
            }
            Gradient::Sparse { values, indices, .. } => {
                let (values, indices) = match self.rule {
                    // It subtracts duplicate rows one after the other.
                    Rule::Sgd => (values.within(at), indices.within(at)),
                    _ => summed_rows(at, values, indices),
                };
                match self.rule.sparse() {
                    Some(recipe) => self.by_kernel(update, recipe, &values, Some(&indices)),
                    None => self.change_rows_by_hand(update, &values, &indices),
                }
            }
        }
    }

    /// An update by the op that makes it.
    fn by_kernel(
        &self,
        Update { at, variable, settings }: &Update<'_>,
        recipe: Recipe,
        gradient: &Output<Any>,
        indices: Option<&Output<Any>>,
    ) -> Result<Operation> {
        let dtype = variable.dtype;
        let mut slots = Vec::new();
        for (name, first) in self.rule.slots() {
            let slot = slot(at, variable, name, &Initializer::Constant(first))?;
            slots.push(State::<Any>::of(at, &slot));
        }
        let mut node = NewOp::new(at, recipe.op).input(State::<Any>::of(at, variable).handle());
        for part in recipe.parts {
            node = match part {
                Part::Slot(i) => node.input(slots[i].handle()),
                Part::Gradient => node.input(gradient),
                Part::Indices => node.input(indices.unwrap_or(gradient)),
                Part::Rate => node.input(cast_to(&settings.rate.within(at), dtype)),
                Part::Number(value) => node.input(number(at, dtype, value)),
                Part::Step => node.input(settings.step.within(at) + 1),
                Part::Power(i) => node.input(cast_to(&settings.powers[i].0.read(at), dtype)),
            };
        }
        if self.is_locking {
            node = node.attr("use_locking", true);
        }
        if let Some((attr, value)) = recipe.flag {
            node = node.attr(attr, value);
        }
        Ok(node.operation())
    }

    /// Sparse updates for rules without a sparse kernel, composed of other ops.
    fn change_rows_by_hand(
        &self,
        update: &Update<'_>,
        gradient: &Output<Any>,
        indices: &Output<Any>,
    ) -> Result<Operation> {
        let Update { at, variable, settings } = update;
        let (state, dtype) = (State::<Any>::of(at, variable), variable.dtype);
        Ok(match &self.rule {
            Rule::Adam { beta1, beta2, epsilon } => {
                let moment = |name: &str, beta: f64, values: &Output<Any>| {
                    let slot = slot(at, variable, name, &Initializer::Zeros)?;
                    Result::Ok(fade_and_add(at, &State::of(at, &slot), beta, (values, indices)))
                };
                let m = moment("Adam", *beta1, gradient)?;
                let v = moment("Adam_1", *beta2, &gradient.square())?;
                let root = v.sqrt();
                let step =
                    m / (&root + like(&root, *epsilon)) * cast_to(&adam_rate(at, settings), dtype);
                state.assign_sub(at, step)
            }
            // Its greatest gradients fade for all rows: those without one have zeros.
            Rule::Adamax { .. } => {
                let rows = variable.shape.dims()[0] as i32;
                let dense = tf::unsorted_segment_sum(gradient, indices, rows);
                return self.change(update, &Gradient::Dense(dense));
            }
            // Gradient descent: the rows go down by the rate.
            _ => {
                let step = gradient * cast_to(&settings.rate.within(at), dtype);
                state.scatter_sub(at, indices, step)
            }
        })
    }
}

/// What the updates of all variables in one step share.
struct Settings {
    rate: Output<f32>,
    step: Output<i64>,
    powers: Vec<(State<f32>, f64)>,
}

/// The update of one variable.
struct Update<'a> {
    /// The view of its nodes, which run after weight decay.
    at: Graph,
    variable: &'a Variable,
    settings: &'a Settings,
}

/// Sums duplicate rows, so that each index occurs once.
pub(crate) fn summed_rows(
    at: &Graph,
    values: &Output<Any>,
    indices: &Output<Any>,
) -> (Output<Any>, Output<Any>) {
    let (unique, positions) = tf::unique::<i32, Any>(indices.within(at));
    let count = tf::size::<i32, Any>(&unique);
    (tf::unsorted_segment_sum(values.within(at), &positions, &count), unique)
}

/// `slot = slot * beta`, then `slot[rows] += (1 - beta) * values`; returns the new slot.
fn fade_and_add(
    at: &Graph,
    slot: &State<Any>,
    beta: f64,
    (values, indices): (&Output<Any>, &Output<Any>),
) -> Output<Any> {
    let old = slot.read(at);
    let faded = slot.assign(at, &old * like(&old, beta));
    let values = values * like(values, 1.0 - beta);
    let added = slot.scatter_add(&at.after(&[&faded]), indices, &values);
    slot.read(&at.after(&[&added])).within(at)
}

/// `rate * sqrt(1 - beta2^t) / (1 - beta1^t)`.
fn adam_rate(at: &Graph, settings: &Settings) -> Output<f32> {
    let [first, second] = [0, 1].map(|i| 1.0 - settings.powers[i].0.read(at));
    settings.rate.within(at) * (second.sqrt() / first)
}
