//! Updates that record their samples in the lease table in the same critical section.

use thalweg_graph::{Adjoint, IndexedSlices, NodeId, Output};
use thalweg_tensor::Result;

use crate::leases::{Batch, Leases};
use crate::{ModelScope, Optimizer, Variable};

/// The lease table of a worker's samples, and the batch that the worker feeds.
#[cfg_attr(
    not(feature = "remote"),
    allow(dead_code, reason = "supervised training needs clusters")
)]
pub(crate) struct Ledger {
    pub leases: Leases,
    pub batch: Batch,
}

impl Ledger {
    /// As [`Optimizer::clip_and_apply`]; the variables are updated and the samples are recorded in
    /// one critical section.
    pub(super) fn apply(
        &self,
        model: &mut ModelScope,
        optimizer: &Optimizer,
        gradients: &[(Variable, Adjoint)],
    ) -> Result<NodeId> {
        let here = |model: &ModelScope, _: &Variable| model.with_scope((**model).clone());
        let gradients = optimizer.clipped(model, gradients.to_vec(), here)?;
        let (gradients, ready) = arrived(model, &gradients)?;
        let commit = self.leases.commit(model, &self.batch, &ready, |inside| {
            optimizer.change_all(inside, &gradients)
        })?;
        let last = [vec![commit], model.updates()].concat();
        model.op("NoOp").name("train_step").after(&last).build_node()
    }
}

type Gradients = Vec<(Variable, Adjoint)>;

/// Copies of the gradients on the devices of their variables, and the nodes after which they are
/// there, so that no transfer is pending when the critical section begins.
fn arrived(
    model: &ModelScope,
    gradients: &[(Variable, Adjoint)],
) -> Result<(Gradients, Vec<NodeId>)> {
    let (mut there, mut nodes) = (Vec::with_capacity(gradients.len()), Vec::new());
    for (variable, adjoint) in gradients {
        let mut beside = model.top_on(&variable.device);
        let mut here = |output: Output| {
            let output = beside.op("Identity").name("arrived").input(output).build()?;
            nodes.push(output.node);
            Result::Ok(output)
        };
        let adjoint = match *adjoint {
            Adjoint::Dense(gradient) => Adjoint::Dense(here(gradient)?),
            Adjoint::Sparse(rows) => Adjoint::Sparse(IndexedSlices {
                values: here(rows.values)?,
                indices: here(rows.indices)?,
                dense_shape: here(rows.dense_shape)?,
            }),
        };
        there.push((variable.clone(), adjoint));
    }
    Ok((there, nodes))
}
