//! The value of an edge in a step.

use std::sync::Arc;

use thalweg_tensor::Tensor;

use crate::{Variable, VariableBuffer};

/// The value of one edge in one step.
#[derive(Clone, Default)]
pub enum Value {
    /// Not set yet, or moved out.
    #[default]
    Empty,
    /// A tensor.
    Tensor(Tensor),
    /// A reference to a variable.
    Ref(Arc<Variable>),
    /// An alias of a reference variable: its buffer, which ops that forward their input (`Identity`,
    /// `Switch`, `Enter` and others) output. A kernel takes a snapshot of it when it starts, a fetch
    /// when the step has ended.
    Alias(Arc<VariableBuffer>),
    /// The result of a branch not taken.
    Dead,
}

impl Value {
    /// Replaces this value.
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

    /// The same in host memory, for another device.
    pub fn without_alias_on_host(self) -> thalweg_tensor::Result<Value> {
        match self {
            Value::Alias(buffer) => buffer.snapshot().into_host().map(Value::Tensor),
            other => Ok(other),
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
