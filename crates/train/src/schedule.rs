//! Learning-rate schedules.

use thalweg_graph::Output;
use thalweg_tensor::{DType, Result, Tensor, ensure};

use crate::Model;

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
}

impl From<f64> for Rate {
    fn from(rate: f64) -> Rate {
        Rate::Constant(rate)
    }
}

impl Rate {
    /// Adds nodes that compute the float rate at `step`, an int64.
    pub fn build(&self, model: &mut Model, step: Output) -> Result<Output> {
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
        }
    }
}

fn scaled(model: &mut Model, x: Output, by: f64) -> Result<Output> {
    let by = model.float(by as f32)?;
    model.add("Mul", &[x, by])
}

/// `step / steps`.
fn quotient(model: &mut Model, step: Output, steps: f64) -> Result<Output> {
    let step = model.cast(step, DType::Float)?;
    let steps = model.float(steps as f32)?;
    model.add("RealDiv", &[step, steps])
}

/// The remaining fraction of `steps`, from 1 to 0.
fn left(model: &mut Model, step: Output, steps: f64) -> Result<Output> {
    let gone = quotient(model, step, steps)?;
    let one = model.float(1.0)?;
    let gone = model.add("Minimum", &[gone, one])?;
    model.add("Sub", &[one, gone])
}

fn piecewise(
    model: &mut Model,
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
