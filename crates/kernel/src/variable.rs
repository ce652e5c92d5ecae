//! The cell that holds a variable's value between steps.

use std::sync::Arc;

use parking_lot::{MappedRwLockWriteGuard, RwLock, RwLockWriteGuard};
use thalweg_tensor::{Budget, DType, PartialShape, Resource, Result, Tensor, ensure, err};

/// A variable's value, locked for writing.
pub type VariableGuard<'a> = MappedRwLockWriteGuard<'a, Tensor>;

/// A named tensor that outlives steps.
///
/// Readers take snapshots, which share memory with the cell; updates write in place when nobody
/// holds a snapshot, else on a copy. The cell itself counts as a holder of its buffer, so a kernel
/// never takes over a variable's memory.
pub struct Variable {
    name: Arc<str>,
    dtype: DType,
    shape: PartialShape,
    /// Whom the value's memory is charged to: the task, not the session that made it.
    budget: Arc<Budget>,
    value: RwLock<Option<Tensor>>,
}

impl Variable {
    /// A variable without a value.
    pub fn new(name: Arc<str>, dtype: DType, shape: PartialShape, budget: Arc<Budget>) -> Self {
        Variable { name, dtype, shape, budget, value: RwLock::new(None) }
    }

    /// Its name, for messages.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape it was declared with.
    pub fn shape(&self) -> &PartialShape {
        &self.shape
    }

    /// Whether it has a value.
    pub fn is_initialized(&self) -> bool {
        self.value.read().is_some()
    }

    /// The value as it is now, if it has one.
    pub fn snapshot(&self) -> Option<Tensor> {
        self.value.read().clone()
    }

    /// The value as it is now; `FailedPrecondition` before the first assignment.
    pub fn read(&self) -> Result<Tensor> {
        self.snapshot().ok_or_else(|| {
            err!(FailedPrecondition, "Attempting to use uninitialized value {}", self.name)
        })
    }

    /// Reads under the cell's lock, without a snapshot: for gathers.
    pub fn with_value<R>(&self, read: impl FnOnce(&Tensor) -> Result<R>) -> Result<R> {
        let value = self.value.read();
        read(value.as_ref().ok_or_else(|| {
            err!(FailedPrecondition, "Attempting to use uninitialized value {}", self.name)
        })?)
    }

    /// Replaces the value.
    pub fn assign(&self, tensor: Tensor) -> Result<()> {
        ensure!(
            tensor.dtype() == self.dtype,
            InvalidArgument,
            "variable {} is {}, the value {}",
            self.name,
            self.dtype,
            tensor.dtype()
        );
        tensor.charge_to(&self.budget)?;
        *self.value.write() = Some(tensor);
        Ok(())
    }

    /// Changes the value in place, on a copy if somebody holds a snapshot.
    pub fn update<R>(&self, change: impl FnOnce(&mut Tensor) -> Result<R>) -> Result<R> {
        change(&mut *self.write()?)
    }

    /// The value for writing, on a copy if somebody holds a snapshot; the cell is locked as long as
    /// the guard lives. Who locks several cells does so in the order of their addresses.
    pub fn write(&self) -> Result<VariableGuard<'_>> {
        let value = RwLockWriteGuard::try_map(self.value.write(), Option::as_mut);
        let mut value = value.map_err(|_| {
            err!(FailedPrecondition, "Attempting to use uninitialized value {}", self.name)
        })?;
        value.make_unique(Some(&self.budget))?;
        Ok(value)
    }
}

impl Resource for Variable {
    fn kind(&self) -> &'static str {
        "Variable"
    }

    fn held_bytes(&self) -> usize {
        match self.value.try_read() {
            Some(value) => value.as_ref().map_or(0, Tensor::size_bytes),
            // It is being written; its value stays the size that it was declared with.
            None => self.shape.to_shape().map_or(0, |s| s.num_elements() * self.dtype.size()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_leave_snapshots_alone() {
        let budget = Budget::new(1 << 20);
        let v = Variable::new("v".into(), DType::Float, PartialShape::unknown(), budget.clone());
        assert!(v.read().is_err());
        v.assign(Tensor::vector(&[1.0f32]).unwrap()).unwrap();
        assert!(budget.used_bytes() > 0);
        let before = v.read().unwrap();
        v.update(|t| {
            t.as_mut_slice::<f32>()?[0] = 2.0;
            Ok(())
        })
        .unwrap();
        assert_eq!(before.as_slice::<f32>().unwrap(), [1.0]);
        assert_eq!(v.read().unwrap().as_slice::<f32>().unwrap(), [2.0]);
    }
}
