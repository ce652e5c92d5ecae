//! Learning-rate schedules.

use std::f64::consts::PI;
use std::panic::Location;

use thalweg_api::{Operation, Output, on_behalf_of};
use thalweg_tensor::{DType, Result, ensure};

use crate::state::State;
use crate::{Initializer, Model};

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
    pub(crate) fn scale(model: &Model) -> Option<(Output<f32>, Operation)> {
        let scale = model.find(SCALE)?;
        let at = model.root().device(&scale.device).scope("scale_learning_rate");
        let (scale, factor) = (State::<f32>::of(model, &scale), at.placeholder("factor", []));
        let new = scale.read(&at) * &factor;
        Some((factor, scale.assign(&at, new)))
    }

    /// The rate at a step.
    #[track_caller]
    pub fn at(&self, model: &Model, step: &Output<i64>) -> Output<f32> {
        let step = step.within(model);
        on_behalf_of(Location::caller(), || {
            model.build(|_| self.build(model, &step)).unwrap_or_else(|| model.poisoned())
        })
    }

    /// Adds nodes that compute the rate at `step`.
    pub(crate) fn build(&self, model: &Model, step: &Output<i64>) -> Result<Output<f32>> {
        let part = |steps: &f64| step.cast::<f32>() / *steps as f32;
        // The remaining fraction, from 1 to 0.
        let left = |steps: &f64| 1.0 - part(steps).minimum(1.0);
        Ok(match self {
            Rate::Constant(rate) => model.constant(*rate as f32),
            Rate::Exponential { initial, steps, decay, is_staircase } => {
                let mut exponent = part(steps);
                if *is_staircase {
                    exponent = exponent.floor();
                }
                model.constant(*decay as f32).pow(exponent) * *initial as f32
            }
            Rate::Polynomial { initial, end, steps, power } => {
                left(steps).pow(*power as f32) * (initial - end) as f32 + *end as f32
            }
            Rate::Cosine { initial, steps, alpha } => {
                // cos(pi (1 - left)) = -cos(pi left)
                let cosine = (left(steps) * PI as f32).cos();
                let middle = (0.5 * (1.0 - alpha) + alpha) * initial;
                cosine * (-0.5 * (1.0 - alpha) * initial) as f32 + middle as f32
            }
            Rate::Piecewise { boundaries, values } => piecewise(model, step, boundaries, values)?,
            Rate::Warmup { steps, then } => then.build(model, step)? * part(steps).minimum(1.0),
            Rate::InverseTime { initial, steps, decay } => {
                *initial as f32 / (part(steps) * *decay as f32 + 1.0)
            }
            Rate::OneCycle { initial, max, end, steps, warmup } => {
                let (top, last) = (warmup * steps - 1.0, steps - 1.0);
                ensure!(
                    top > 0.0 && top < last,
                    InvalidArgument,
                    "a cycle of {steps} steps cannot rise for {warmup} of them"
                );
                annealed(step, (0.0, top), (*initial, *max))
                    + annealed(step, (top, last), (0.0, end - max))
            }
            Rate::Adjustable(rate) => {
                let rate = rate.build(model, step)?;
                let scale = model.top().untrained(SCALE, DType::Float, &[], &Initializer::Ones)?;
                rate * State::of(model, &scale).read(model)
            }
        })
    }
}

/// Cosine annealing between two rates while the step goes from `begin` to `end`; constant before
/// and afterwards.
fn annealed(step: &Output<i64>, (begin, end): (f64, f64), (from, to): (f64, f64)) -> Output<f32> {
    let part = (step.cast::<f32>() - begin as f32) * (1.0 / (end - begin)) as f32;
    let cosine = (part.clip(0.0, 1.0) * PI as f32).cos();
    cosine * (0.5 * (from - to)) as f32 + (0.5 * (from + to)) as f32
}

fn piecewise(
    model: &Model,
    step: &Output<i64>,
    boundaries: &[i64],
    values: &[f64],
) -> Result<Output<f32>> {
    ensure!(
        values.len() == boundaries.len() + 1 && boundaries.is_sorted(),
        InvalidArgument,
        "{} values for {} boundaries, which must ascend",
        values.len(),
        boundaries.len()
    );
    let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
    // How many boundaries have been passed.
    let passed = step.greater(boundaries).cast::<i32>().sum_axes([0]);
    Ok(model.constant(values).gather(&passed))
}
