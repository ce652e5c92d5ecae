//! What travels along an edge.

use std::sync::Arc;

use thalweg_tensor::Tensor;

use crate::Variable;

/// The content of one edge in one step.
#[derive(Clone, Default)]
pub enum Value {
    /// Not there (yet, or any more).
    #[default]
    Empty,
    /// A tensor.
    Tensor(Tensor),
    /// A reference to a variable; by-value consumers take a snapshot when they start.
    Ref(Arc<Variable>),
    /// The result of a branch not taken.
    Dead,
}

impl Value {
    /// The tensor, if it is one.
    #[inline]
    pub fn tensor(&self) -> Option<&Tensor> {
        match self {
            Value::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Self {
        Value::Tensor(tensor)
    }
}
