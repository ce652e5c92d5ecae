//! What travels along an edge.

use std::sync::Arc;

use thalweg_tensor::Tensor;

use crate::{Variable, VariableBuffer};

/// The content of one edge in one step.
#[derive(Clone, Default)]
pub enum Value {
    /// Not there (yet, or any more).
    #[default]
    Empty,
    /// A tensor.
    Tensor(Tensor),
    /// A reference to a variable.
    Ref(Arc<Variable>),
    /// What an op that forwards its input (`Identity`, `Switch`, `Enter` and their like) makes of a
    /// reference: the variable's buffer. A kernel takes a snapshot of it when it starts, a fetch when
    /// the step is over.
    Alias(Arc<VariableBuffer>),
    /// The result of a branch not taken.
    Dead,
}

impl Value {
    /// Puts another value in the place of this one.
    ///
    /// A plain assignment must keep the new value in memory while the old one is dropped, writes it
    /// there in halves and reads it back whole, which the processor can only do when both halves have
    /// left it: a wait that was half of an `Identity`'s time.
    #[inline(always)]
    pub fn set(&mut self, value: Value) {
        if !matches!(self, Value::Empty) {
            self.clear();
        }
        // What was here is empty now: there is nothing to drop.
        std::mem::forget(std::mem::replace(self, value));
    }

    #[cold]
    #[inline(never)]
    fn clear(&mut self) {
        *self = Value::Empty;
    }

    /// A snapshot in place of an alias; any other value stays.
    pub fn without_alias(self) -> Value {
        match self {
            Value::Alias(buffer) => Value::Tensor(buffer.snapshot()),
            other => other,
        }
    }

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
