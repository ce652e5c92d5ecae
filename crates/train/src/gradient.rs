//! Gradients of variables by handle.

use thalweg_api::{Any, Graph, Operation, Output};
use thalweg_graph::{Adjoint, IndexedSlices};

use crate::Variable;

/// The gradient of a loss with respect to a variable.
#[derive(Clone, Debug)]
pub enum Gradient {
    /// One element for each of the variable's.
    Dense(Output<Any>),
    /// That of gathered rows (`IndexedSlices`); the other rows have zeros. An index may occur more
    /// than once: its rows are summed.
    Sparse {
        /// A row for each index.
        values: Output<Any>,
        /// Rows of the variable.
        indices: Output<Any>,
        /// The shape of the variable.
        dense_shape: Output<Any>,
    },
}

/// Variables with their gradients.
pub type Gradients = Vec<(Variable, Gradient)>;

impl Gradient {
    /// The gradient that `adjoint` is in this graph.
    pub(crate) fn of(graph: &Graph, adjoint: Adjoint) -> Gradient {
        match adjoint {
            Adjoint::Dense(at) => Gradient::Dense(graph.output(at)),
            Adjoint::Sparse(IndexedSlices { values, indices, dense_shape }) => Gradient::Sparse {
                values: graph.output(values),
                indices: graph.output(indices),
                dense_shape: graph.output(dense_shape),
            },
        }
    }

    /// Its numbers: all elements, or those of the rows.
    pub fn values(&self) -> &Output<Any> {
        match self {
            Gradient::Dense(values) | Gradient::Sparse { values, .. } => values,
        }
    }

    /// The gradient with other numbers.
    #[must_use]
    pub fn with_values(&self, new: Output<Any>) -> Gradient {
        match self {
            Gradient::Dense(_) => Gradient::Dense(new),
            Gradient::Sparse { indices, dense_shape, .. } => Gradient::Sparse {
                values: new,
                indices: indices.clone(),
                dense_shape: dense_shape.clone(),
            },
        }
    }

    /// The gradient as one tensor of the variable's shape.
    #[track_caller]
    #[must_use]
    pub fn to_dense(&self, graph: &Graph) -> Output<Any> {
        let Gradient::Sparse { values, indices, dense_shape } = self else {
            return self.values().within(graph);
        };
        let added = graph.build(|scope| {
            let [values, indices] = [values.endpoint()?, indices.endpoint()?];
            let slices = IndexedSlices { values, indices, dense_shape: dense_shape.endpoint()? };
            Adjoint::Sparse(slices).to_dense(scope)
        });
        added.map_or_else(|| Output::poisoned(graph), |at| graph.output(at))
    }

    /// The nodes after which it is computed.
    pub(crate) fn operations(&self) -> Vec<Operation> {
        match self {
            Gradient::Dense(gradient) => vec![gradient.operation()],
            Gradient::Sparse { values, indices, .. } => {
                vec![values.operation(), indices.operation()]
            }
        }
    }
}
