//! Learning-rate schedules.

use thalweg_api as api;
use thalweg_graph::{NodeId, Output};
use thalweg_tensor::{DType, Result, Tensor, ensure};

use crate::{Initializer, Model, ModelScope};

/// The variable that an adjustable rate is multiplied by.
const SCALE: &str = "learning_rate_scale";

/// A learning rate, possibly a function of the step.
#[derive(Clone, Debug, PartialEq)]
pub enum Rate {
    /// Constant.
    Constant(f64),
    /// Exponential decay: `initial * decay ^ (step / steps)`; with `is_staircase` the exponent is
    /// rounded down.
    Exponential {
        /// The initial rate.
        initial: f64,
        /// Steps after which the rate has been multiplied by `decay` once.
        steps: f64,
        /// The decay factor.
        decay: f64,
        /// Whether the exponent is an integer.
        is_staircase: bool,
    },
    /// Polynomial decay from `initial` to `end` within `steps`, with degree `power`.
    Polynomial {
        /// The initial rate.
        initial: f64,
        /// The final rate.
        end: f64,
        /// The number of decay steps.
        steps: f64,
        /// The degree; 1 is linear.
        power: f64,
    },
    /// Cosine decay from `initial` to `initial * alpha` within `steps`.
    Cosine {
        /// The initial rate.
        initial: f64,
        /// The number of decay steps.
        steps: f64,
        /// The final rate as a fraction of the initial one.
        alpha: f64,
    },
    /// Piecewise constant: `values[i]` up to and including step `boundaries[i]`, the last value
    /// beyond.
    Piecewise {
        /// Steps, ascending.
        boundaries: Vec<i64>,
        /// The rates; one more than boundaries.
        values: Vec<f64>,
    },
    /// Linear warm-up from 0 within `steps` to the rate of `then`, which it follows afterwards.
    Warmup {
        /// The number of warm-up steps.
        steps: f64,
        /// The schedule after the warm-up.
        then: Box<Rate>,
    },
    /// Inverse time decay: `initial / (1 + decay * step / steps)`.
    InverseTime {
        /// The initial rate.
        initial: f64,
        /// The number of decay steps.
        steps: f64,
        /// The decay rate.
        decay: f64,
    },
    /// One-cycle policy with cosine annealing: from `initial` to `max` within the first
    /// `warmup * steps` steps, then to `end`, as PyTorch's `OneCycleLR`.
    OneCycle {
        /// The initial rate.
        initial: f64,
        /// The highest rate.
        max: f64,
        /// The final rate.
        end: f64,
        /// The number of steps of the cycle.
        steps: f64,
        /// The fraction of the steps in which the rate rises.
        warmup: f64,
    },
    /// A schedule times the variable `learning_rate_scale`, which begins with 1, is saved in
    /// checkpoints, and is changed by callbacks such as `ReduceOnPlateau`.
    Adjustable(Box<Rate>),
}

impl From<f64> for Rate {
    fn from(rate: f64) -> Rate {
        Rate::Constant(rate)
    }
}

impl Rate {
    /// Exponential decay: the rate is multiplied by `decay` every `steps` steps.
    pub fn exponential(initial: f64, steps: f64, decay: f64) -> Rate {
        Rate::Exponential { initial, steps, decay, is_staircase: false }
    }

    /// Cosine decay to 0 within `steps`.
    pub fn cosine(initial: f64, steps: f64) -> Rate {
        Rate::Cosine { initial, steps, alpha: 0.0 }
    }

    /// Linear decay to `end` within `steps`.
    pub fn linear(initial: f64, end: f64, steps: f64) -> Rate {
        Rate::Polynomial { initial, end, steps, power: 1.0 }
    }

    /// `values[i]` up to and including step `boundaries[i]`, the last value beyond.
    pub fn piecewise(boundaries: &[i64], values: &[f64]) -> Rate {
        Rate::Piecewise { boundaries: boundaries.to_vec(), values: values.to_vec() }
    }

    /// The one-cycle policy with PyTorch's defaults: it begins with a 25th of `max`, rises for 30 %
    /// of the steps, and ends with a 10,000th of where it began.
    pub fn one_cycle(max: f64, steps: f64) -> Rate {
        let initial = max / 25.0;
        Rate::OneCycle { initial, max, end: initial / 1e4, steps, warmup: 0.3 }
    }

    /// Linear warm-up from 0 within `steps`, then this schedule, whose steps count from the
    /// beginning of the warm-up.
    #[must_use]
    pub fn warmup(self, steps: f64) -> Rate {
        Rate::Warmup { steps, then: Box::new(self) }
    }

    /// This schedule, [adjustable](Rate::Adjustable) while training runs.
    #[must_use]
    pub fn adjustable(self) -> Rate {
        Rate::Adjustable(Box::new(self))
    }

    /// Adds the node that multiplies the rate by what is fed; `None` if it is not adjustable.
    #[cfg(feature = "remote")]
    pub(crate) fn scale(model: &ModelScope) -> Result<Option<(Output, NodeId)>> {
        let Some(scale) = model.find(SCALE) else { return Ok(None) };
        let at = model.top_on(&scale.device);
        let mut at = at.with_scope(at.child("scale_learning_rate"));
        let factor = at.input("factor", DType::Float, &[])?;
        let old = scale.read(&mut at)?;
        let new = at.add("Mul", &[old, factor])?;
        let node = at.op("AssignVariableOp").inputs(&[scale.handle, new]).build_node()?;
        Ok(Some((factor, node)))
    }

    /// The rate at a step.
    #[track_caller]
    pub fn at(&self, model: &Model, step: &api::Output<i64>) -> api::Output<f32> {
        let Some(step) = model.endpoint_of(step) else { return model.poisoned() };
        model.build(|model| self.build(model, step))
    }

    /// Adds nodes that compute the float rate at `step`, an int64.
    pub fn build(&self, model: &mut ModelScope, step: Output) -> Result<Output> {
        match self {
            Rate::Constant(rate) => model.float(*rate as f32),
            Rate::Exponential { initial, steps, decay, is_staircase } => {
                let mut exponent = quotient(model, step, *steps)?;
                if *is_staircase {
                    exponent = model.add("Floor", &[exponent])?;
                }
                let decay = model.float(*decay as f32)?;
                let factor = model.add("Pow", &[decay, exponent])?;
                scaled(model, factor, *initial)
            }
            Rate::Polynomial { initial, end, steps, power } => {
                let left = left(model, step, *steps)?;
                let power = model.float(*power as f32)?;
                let part = model.add("Pow", &[left, power])?;
                let above = scaled(model, part, initial - end)?;
                let end = model.float(*end as f32)?;
                model.add("AddV2", &[above, end])
            }
            Rate::Cosine { initial, steps, alpha } => {
                let left = left(model, step, *steps)?;
                // cos(pi (1 - left)) = -cos(pi left)
                let angle = scaled(model, left, std::f64::consts::PI)?;
                let cosine = model.add("Cos", &[angle])?;
                let part = scaled(model, cosine, -0.5 * (1.0 - alpha) * initial)?;
                let middle = model.float(((0.5 * (1.0 - alpha) + alpha) * initial) as f32)?;
                model.add("AddV2", &[part, middle])
            }
            Rate::Piecewise { boundaries, values } => piecewise(model, step, boundaries, values),
            Rate::Warmup { steps, then } => {
                let goal = then.build(model, step)?;
                let part = quotient(model, step, *steps)?;
                let one = model.float(1.0)?;
                let part = model.add("Minimum", &[part, one])?;
                model.add("Mul", &[goal, part])
            }
            Rate::InverseTime { initial, steps, decay } => {
                let gone = quotient(model, step, *steps)?;
                let gone = scaled(model, gone, *decay)?;
                let one = model.float(1.0)?;
                let divisor = model.add("AddV2", &[gone, one])?;
                let initial = model.float(*initial as f32)?;
                model.add("RealDiv", &[initial, divisor])
            }
            Rate::OneCycle { initial, max, end, steps, warmup } => {
                let (top, last) = (warmup * steps - 1.0, steps - 1.0);
                ensure!(
                    top > 0.0 && top < last,
                    InvalidArgument,
                    "a cycle of {steps} steps cannot rise for {warmup} of them"
                );
                let up = annealed(model, step, (0.0, top), (*initial, *max))?;
                let down = annealed(model, step, (top, last), (0.0, end - max))?;
                model.add("AddV2", &[up, down])
            }
            Rate::Adjustable(rate) => {
                let rate = rate.build(model, step)?;
                let scale = model.top().counter(SCALE, DType::Float, &[], &Initializer::Ones)?;
                let scale = scale.read(model)?;
                model.add("Mul", &[rate, scale])
            }
        }
    }
}

/// Cosine annealing between two rates while the step goes from `begin` to `end`; constant before
/// and afterwards.
fn annealed(
    model: &mut ModelScope,
    step: Output,
    (begin, end): (f64, f64),
    (from, to): (f64, f64),
) -> Result<Output> {
    let step = model.cast(step, DType::Float)?;
    let begin_at = model.float(begin as f32)?;
    let gone = model.add("Sub", &[step, begin_at])?;
    let part = scaled(model, gone, 1.0 / (end - begin))?;
    let (zero, one) = (model.float(0.0)?, model.float(1.0)?);
    let part = model.add("ClipByValue", &[part, zero, one])?;
    let angle = scaled(model, part, std::f64::consts::PI)?;
    let cosine = model.add("Cos", &[angle])?;
    let swing = scaled(model, cosine, 0.5 * (from - to))?;
    let middle = model.float((0.5 * (from + to)) as f32)?;
    model.add("AddV2", &[swing, middle])
}

fn scaled(model: &mut ModelScope, x: Output, by: f64) -> Result<Output> {
    let by = model.float(by as f32)?;
    model.add("Mul", &[x, by])
}

/// `step / steps`.
fn quotient(model: &mut ModelScope, step: Output, steps: f64) -> Result<Output> {
    let step = model.cast(step, DType::Float)?;
    let steps = model.float(steps as f32)?;
    model.add("RealDiv", &[step, steps])
}

/// The remaining fraction of `steps`, from 1 to 0.
fn left(model: &mut ModelScope, step: Output, steps: f64) -> Result<Output> {
    let gone = quotient(model, step, steps)?;
    let one = model.float(1.0)?;
    let gone = model.add("Minimum", &[gone, one])?;
    model.add("Sub", &[one, gone])
}

fn piecewise(
    model: &mut ModelScope,
    step: Output,
    boundaries: &[i64],
    values: &[f64],
) -> Result<Output> {
    ensure!(
        values.len() == boundaries.len() + 1 && boundaries.is_sorted(),
        InvalidArgument,
        "{} values for {} boundaries, which must ascend",
        values.len(),
        boundaries.len()
    );
    let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
    let values = model.constant(&Tensor::vector(&values)?)?;
    let boundaries = model.constant(&Tensor::vector(boundaries)?)?;
    // How many boundaries have been passed.
    let passed = model.add("Greater", &[step, boundaries])?;
    let passed = model.cast(passed, DType::Int32)?;
    let axis = model.ints(&[0])?;
    let index = model.add("Sum", &[passed, axis])?;
    let axis = model.int(0)?;
    model.add("GatherV2", &[values, index, axis])
}
