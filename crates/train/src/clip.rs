//! Gradient clipping.

use thalweg_graph::{Adjoint, IndexedSlices, Output};
use thalweg_tensor::Result;

use crate::{ModelScope, Variable};

/// How gradients are clipped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Clip {
    /// Clips every element to `[-limit, limit]` (`clip_by_value`).
    Value(f32),
    /// Clips the L2 norm of each variable's gradient (`clip_by_norm`).
    Norm(f32),
    /// Clips the global L2 norm of all gradients (`clip_by_global_norm`).
    GlobalNorm(f32),
}

impl Clip {
    /// Adds the clipping nodes, on the device that `place` returns for each variable.
    pub(crate) fn build(
        self,
        model: &ModelScope,
        all: &[(Variable, Adjoint)],
        place: impl Fn(&ModelScope, &Variable) -> ModelScope,
    ) -> Result<Vec<(Variable, Adjoint)>> {
        let change_each = |change: &dyn Fn(&mut ModelScope, Output) -> Result<Output>| {
            let one = |(variable, adjoint): &(Variable, Adjoint)| {
                let values = change(&mut place(model, variable), numbers(*adjoint))?;
                Ok((variable.clone(), with_numbers(*adjoint, values)))
            };
            all.iter().map(one).collect::<Result<Vec<_>>>()
        };
        match self {
            Clip::Value(limit) => change_each(&|model, values| {
                let (low, high) = (model.float(-limit)?, model.float(limit)?);
                model.add("ClipByValue", &[values, low, high])
            }),
            Clip::Norm(limit) => change_each(&|model, values| {
                let squares = model.add("L2Loss", &[values])?;
                let factor = factor(model, squares, limit)?;
                model.add("Mul", &[values, factor])
            }),
            Clip::GlobalNorm(limit) => {
                let mut squares = Vec::with_capacity(all.len());
                for (variable, adjoint) in all {
                    let mut place = place(model, variable);
                    squares.push(place.add("L2Loss", &[numbers(*adjoint)])?);
                }
                let mut home = model.with_scope((**model).clone());
                let sum = home.op("AddN").inputs(&squares).build()?;
                let factor = factor(&mut home, sum, limit)?;
                change_each(&|model, values| model.add("Mul", &[values, factor]))
            }
        }
    }
}

/// The factor that scales a norm down to `limit`, computed from half the squared norm; 1 where the
/// norm is below.
fn factor(model: &mut ModelScope, half_square: Output, limit: f32) -> Result<Output> {
    let two = model.float(2.0)?;
    let square = model.add("Mul", &[half_square, two])?;
    let norm = model.add("Sqrt", &[square])?;
    let limit = model.float(limit)?;
    let most = model.add("Maximum", &[norm, limit])?;
    model.add("RealDiv", &[limit, most])
}

fn numbers(adjoint: Adjoint) -> Output {
    match adjoint {
        Adjoint::Dense(values) | Adjoint::Sparse(IndexedSlices { values, .. }) => values,
    }
}

fn with_numbers(adjoint: Adjoint, values: Output) -> Adjoint {
    match adjoint {
        Adjoint::Dense(_) => Adjoint::Dense(values),
        Adjoint::Sparse(rows) => Adjoint::Sparse(IndexedSlices { values, ..rows }),
    }
}
