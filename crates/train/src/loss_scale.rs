//! Loss scaling, for gradients that are computed in 16 bits.

use thalweg_api::{Graph, Operation, Output, tf};
use thalweg_tensor::{DType, Result};

use crate::gradient::Gradients;
use crate::state::State;
use crate::view::after;
use crate::{Gradient, Initializer, Model};

/// Loss scaling: the loss is multiplied by a factor before it is differentiated and the gradients
/// are divided by it, so that small ones do not vanish in 16 bits. An update whose gradients are
/// not all finite is skipped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossScale {
    /// A constant factor.
    Static(f32),
    /// A factor that is halved when an update is skipped, down to 1, and doubled after so many
    /// updates in a row. It is kept in the variable `loss_scale`.
    Dynamic {
        /// The initial factor.
        initial: f32,
        /// The number of updates after which the factor is doubled.
        growth_steps: u32,
    },
}

impl LossScale {
    /// Dynamic loss scaling with Keras's defaults: it begins with 2^15 and grows every 2,000 steps.
    pub fn dynamic() -> LossScale {
        LossScale::Dynamic { initial: 32768.0, growth_steps: 2000 }
    }

    /// The factor.
    pub(crate) fn factor(self, model: &Model) -> Result<Output<f32>> {
        match self {
            LossScale::Static(factor) => Ok(model.constant(factor)),
            LossScale::Dynamic { initial, .. } => Ok(state(model, initial)?.0.read(model)),
        }
    }

    /// Adds the nodes that change the factor after an update that was made or skipped.
    fn follow(self, model: &Model, at: &Graph, is_finite: &Output<bool>) -> Result<Vec<Operation>> {
        let LossScale::Dynamic { initial, growth_steps } = self else { return Ok(Vec::new()) };
        let (scale, steps) = state(model, initial)?;
        let (is_finite, old) = (is_finite.within(at), scale.read(at));
        let count = steps.read(at) + 1;
        let grows = count.greater_equal(i64::from(growth_steps));
        let grown = grows.select(&old * 2.0, &old);
        let new = is_finite.select(&grown, (&old * 0.5).maximum(1.0));
        let begins_again = is_finite.logical_not().logical_or(&grows);
        let count = begins_again.select(0i64, &count);
        Ok(vec![scale.assign(at, &new), steps.assign(at, &count)])
    }

    /// Adds what `change` adds for these gradients so that it runs only if all of them are finite;
    /// returns the nodes after which the update was made or skipped.
    pub(crate) fn guard(
        self,
        model: &Model,
        gradients: &Gradients,
        change: impl FnOnce(&Gradients) -> Result<Vec<Operation>>,
    ) -> Result<Vec<Operation>> {
        let at = model.scope("loss_scale");
        let is_finite = all_finite(&at, gradients);
        // On the false branch the values are dead, and so is every node that needs one.
        let guard = |(variable, gradient): &(crate::Variable, Gradient)| {
            let beside = at.device(&variable.device);
            let pass = |x: &Output<_>| tf::switch(x.within(&beside), &is_finite).1;
            let guarded = match gradient {
                Gradient::Dense(gradient) => Gradient::Dense(pass(gradient)),
                Gradient::Sparse { values, indices, dense_shape } => Gradient::Sparse {
                    values: pass(values),
                    indices: pass(indices),
                    dense_shape: dense_shape.clone(),
                },
            };
            (variable.clone(), guarded)
        };
        let changed = change(&gradients.iter().map(guard).collect())?;
        let (skipped, made) = tf::switch(is_finite.within(&at), &is_finite);
        let made = made.within(&after(&at, &changed)).named("made");
        let either = tf::merge(&at, &[made, skipped.named("skipped")]).0.operation();
        let followed =
            self.follow(model, &after(&at, std::slice::from_ref(&either)), &is_finite)?;
        Ok([vec![either], followed].concat())
    }
}

/// The variables of a dynamic factor: the factor, and the number of updates since it changed.
fn state(model: &Model, initial: f32) -> Result<(State<f32>, State<i64>)> {
    let (top, first) = (model.top(), Initializer::Constant(f64::from(initial)));
    let scale = top.untrained("loss_scale", DType::Float, &[], &first)?;
    let steps = top.untrained("loss_scale_steps", DType::Int64, &[], &Initializer::Zeros)?;
    Ok((State::of(model, &scale), State::of(model, &steps)))
}

/// Whether all gradients are finite.
fn all_finite(at: &Graph, gradients: &Gradients) -> Output<bool> {
    let all: Vec<Output<bool>> = gradients
        .iter()
        .map(|(variable, gradient)| {
            let values = gradient.values().within(&at.device(&variable.device));
            tf::all(tf::is_finite(values).reshape([-1]), 0)
        })
        .collect();
    tf::all(tf::pack(at, &all), 0)
}
