//! Updates that record their samples in the lease table in the same critical section.

use thalweg_api::{Any, NewOp, Operation, Output};
use thalweg_tensor::Result;

use crate::gradient::Gradients;
use crate::leases::{Batch, Leases};
use crate::{Gradient, Model, Optimizer};

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
    /// Clips and applies gradients; the variables are updated and the samples are recorded in one
    /// critical section.
    pub(super) fn apply(
        &self,
        model: &Model,
        optimizer: &Optimizer,
        gradients: &Gradients,
    ) -> Result<Operation> {
        let gradients = optimizer.clipped(model, gradients.clone(), |_| model.graph().clone());
        let (gradients, ready) = arrived(model, &gradients);
        let commit = self.leases.commit(model, &self.batch, &ready, |inside| {
            optimizer.change_all(&model.at(inside.clone()), &gradients)
        })?;
        Ok(model.train_step(vec![commit]))
    }
}

/// Copies of the gradients on the devices of their variables, and the nodes after which they are
/// there, so that no transfer is pending when the critical section begins.
fn arrived(model: &Model, gradients: &Gradients) -> (Gradients, Vec<Operation>) {
    let (mut there, mut nodes) = (Vec::with_capacity(gradients.len()), Vec::new());
    for (variable, gradient) in gradients {
        let beside = model.root().device(&variable.device);
        let mut here = |x: &Output<Any>| -> Output<Any> {
            let x: Output<Any> = NewOp::new(&beside, "Identity").name("arrived").input(x).output();
            nodes.push(x.operation());
            x
        };
        let gradient = match gradient {
            Gradient::Dense(gradient) => Gradient::Dense(here(gradient)),
            Gradient::Sparse { values, indices, dense_shape } => Gradient::Sparse {
                values: here(values),
                indices: here(indices),
                dense_shape: here(dense_shape),
            },
        };
        there.push((variable.clone(), gradient));
    }
    (there, nodes)
}
