//! Loss scaling, for gradients that are computed in 16 bits.

use thalweg_graph::{Adjoint, IndexedSlices, NodeId, Output};
use thalweg_tensor::{DType, Result};

use crate::{Initializer, ModelScope, Variable};

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

    /// The factor, as a float tensor.
    pub(crate) fn factor(self, model: &mut ModelScope) -> Result<Output> {
        match self {
            LossScale::Static(factor) => model.float(factor),
            LossScale::Dynamic { initial, .. } => state(model, initial)?[0].read(model),
        }
    }

    /// Adds the nodes that change the factor after an update that was made or skipped.
    fn follow(self, model: &mut ModelScope, is_finite: Output) -> Result<Vec<NodeId>> {
        let LossScale::Dynamic { initial, growth_steps } = self else { return Ok(Vec::new()) };
        let [scale, steps] = state(model, initial)?;
        let mut at = model.with_scope(model.after(&[is_finite.node]));
        let (old, count) = (scale.read(&mut at)?, steps.read(&mut at)?);
        let (none, one) = (at.number(DType::Int64, 0.0)?, at.number(DType::Int64, 1.0)?);
        let count = at.add("AddV2", &[count, one])?;
        let most = at.number(DType::Int64, f64::from(growth_steps))?;
        let grows = at.add("GreaterEqual", &[count, most])?;
        let (two, half, least) = (at.float(2.0)?, at.float(0.5)?, at.float(1.0)?);
        let doubled = at.add("Mul", &[old, two])?;
        let grown = at.add("SelectV2", &[grows, doubled, old])?;
        let halved = at.add("Mul", &[old, half])?;
        let halved = at.add("Maximum", &[halved, least])?;
        let new = at.add("SelectV2", &[is_finite, grown, halved])?;
        let begins_again = at.add("LogicalNot", &[is_finite])?;
        let begins_again = at.add("LogicalOr", &[begins_again, grows])?;
        let count = at.add("SelectV2", &[begins_again, none, count])?;
        let set = |at: &mut ModelScope, of: &Variable, value| {
            at.op("AssignVariableOp").inputs(&[of.handle, value]).build_node()
        };
        Ok(vec![set(&mut at, &scale, new)?, set(&mut at, &steps, count)?])
    }

    /// Adds what `change` adds for these gradients so that it runs only if all of them are finite;
    /// returns the nodes after which the update was made or skipped.
    pub(crate) fn guard(
        self,
        model: &ModelScope,
        gradients: &[(Variable, Adjoint)],
        change: impl FnOnce(&[(Variable, Adjoint)]) -> Result<Vec<NodeId>>,
    ) -> Result<Vec<NodeId>> {
        let mut at = model.with_scope(model.child("loss_scale"));
        let is_finite = all_finite(&mut at, gradients)?;
        // On the false branch the values are dead, and so is every node that needs one.
        let mut guarded = Vec::with_capacity(gradients.len());
        for (variable, adjoint) in gradients {
            let mut beside = at.on(&variable.device);
            let mut pass = |output: Output| {
                Result::Ok(beside.op("Switch").inputs(&[output, is_finite]).build_all()?[1])
            };
            let adjoint = match *adjoint {
                Adjoint::Dense(gradient) => Adjoint::Dense(pass(gradient)?),
                Adjoint::Sparse(rows) => Adjoint::Sparse(IndexedSlices {
                    values: pass(rows.values)?,
                    indices: pass(rows.indices)?,
                    dense_shape: rows.dense_shape,
                }),
            };
            guarded.push((variable.clone(), adjoint));
        }
        let changed = change(&guarded)?;
        let branches = at.op("Switch").inputs(&[is_finite, is_finite]).build_all()?;
        let made = at.op("Identity").name("made").input(branches[1]).after(&changed).build()?;
        let skipped = at.op("Identity").name("skipped").input(branches[0]).build()?;
        let either = at.op("Merge").inputs(&[made, skipped]).build_all()?[0];
        let mut after = at.with_scope(at.after(&[either.node]));
        let followed = self.follow(&mut after, is_finite)?;
        Ok([vec![either.node], followed].concat())
    }
}

/// The variables of a dynamic factor: the factor, and the number of updates since it changed.
fn state(model: &ModelScope, initial: f32) -> Result<[Variable; 2]> {
    let first = Initializer::Constant(f64::from(initial));
    let scale = model.top().counter("loss_scale", DType::Float, &[], &first)?;
    let zero = Initializer::Zeros;
    Ok([scale, model.top().counter("loss_scale_steps", DType::Int64, &[], &zero)?])
}

/// Whether all gradients are finite.
fn all_finite(at: &mut ModelScope, gradients: &[(Variable, Adjoint)]) -> Result<Output> {
    let mut all = Vec::with_capacity(gradients.len());
    for (variable, adjoint) in gradients {
        let values = match adjoint {
            Adjoint::Dense(values) | Adjoint::Sparse(IndexedSlices { values, .. }) => *values,
        };
        let mut beside = at.on(&variable.device);
        let finite = beside.add("IsFinite", &[values])?;
        let flat = beside.ints(&[-1])?;
        let finite = beside.add("Reshape", &[finite, flat])?;
        let axis = beside.int(0)?;
        all.push(beside.add("All", &[finite, axis])?);
    }
    let all = at.op("Pack").inputs(&all).build()?;
    let axis = at.int(0)?;
    at.add("All", &[all, axis])
}
