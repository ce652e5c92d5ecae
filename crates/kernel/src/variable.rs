//! Variables: tensors that outlive steps, and their buffers.

use std::sync::Arc;

use parking_lot::{RwLock, RwLockWriteGuard};
use thalweg_tensor::{Budget, DType, Error, PartialShape, Resource, Result, Tensor, ensure, err};

/// The `shared_name` of anonymous variables: each handle that is made is a new variable.
pub const ANONYMOUS_VARIABLE: &str = "cd2c89b7-88b7-44c8-ad83-06c2a9158347";

/// A named tensor that outlives steps.
///
/// Readers take snapshots, which share memory with the variable. An update writes in place if there is
/// no snapshot, else to a copy. The variable itself owns a reference to its tensor, so no kernel can
/// take its memory over.
///
/// Every update locks `buffer` for reading and the buffer's value for writing, in this order, so an
/// assignment that replaces the buffer waits for updates under way.
pub struct Variable {
    name: Arc<str>,
    dtype: DType,
    shape: PartialShape,
    /// The budget that the value is charged to: the task's, not that of the session that created it.
    budget: Arc<Budget>,
    buffer: RwLock<Option<Arc<VariableBuffer>>>,
}

/// The buffer of a variable's value, which aliases of a reference variable share.
///
/// An assignment of as many elements changes the value in the buffer, so all aliases see it; an assignment of another number of elements gives the variable a new buffer, and the old
/// one keeps the last value.
pub struct VariableBuffer {
    value: RwLock<Tensor>,
}

impl VariableBuffer {
    /// The value as it is now.
    pub fn snapshot(&self) -> Tensor {
        self.value.read().clone()
    }

    /// The value, locked for an accelerator, which replaces it by what a program makes of it. Whoever
    /// locks several buffers does so in the order of their addresses.
    pub fn lock(&self) -> RwLockWriteGuard<'_, Tensor> {
        self.value.write()
    }
}

impl Variable {
    /// A variable without a value.
    pub fn new(name: Arc<str>, dtype: DType, shape: PartialShape, budget: Arc<Budget>) -> Self {
        Variable { name, dtype, shape, budget, buffer: RwLock::new(None) }
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
        self.buffer.read().is_some()
    }

    /// The value as it is now, if it has one.
    pub fn snapshot(&self) -> Option<Tensor> {
        self.buffer.read().as_ref().map(|buffer| buffer.snapshot())
    }

    /// The value as it is now; `FailedPrecondition` before the first assignment.
    pub fn read(&self) -> Result<Tensor> {
        self.snapshot().ok_or_else(|| self.uninitialized())
    }

    /// The buffer that holds the value now; `FailedPrecondition` before the first assignment.
    pub fn buffer(&self) -> Result<Arc<VariableBuffer>> {
        self.buffer.read().clone().ok_or_else(|| self.uninitialized())
    }

    /// Reads under the cell's lock, without a snapshot: for gathers.
    pub fn with_value<R>(&self, read: impl FnOnce(&Tensor) -> Result<R>) -> Result<R> {
        let buffer = self.buffer.read();
        let value = buffer.as_ref().ok_or_else(|| self.uninitialized())?.value.read();
        read(&value)
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
        if let Some(buffer) = &*self.buffer.read() {
            let mut value = buffer.value.write();
            if value.shape().num_elements() == tensor.shape().num_elements() {
                *value = tensor;
                return Ok(());
            }
        }
        *self.buffer.write() = Some(Arc::new(VariableBuffer { value: RwLock::new(tensor) }));
        Ok(())
    }

    /// Changes the value in place, or a copy of it if there is a snapshot; the cell is locked while
    /// `change` runs. A kernel that locks several cells does so in the order of their addresses.
    pub fn update<R>(&self, change: impl FnOnce(&mut Tensor) -> Result<R>) -> Result<R> {
        let buffer = self.buffer.read();
        let mut value = buffer.as_ref().ok_or_else(|| self.uninitialized())?.value.write();
        value.make_unique(Some(&self.budget))?;
        change(&mut value)
    }

    #[cold]
    fn uninitialized(&self) -> Error {
        err!(FailedPrecondition, "Attempting to use uninitialized value {}", self.name)
    }
}

impl Resource for Variable {
    fn kind(&self) -> &'static str {
        "Variable"
    }

    fn held_bytes(&self) -> usize {
        // While it is written, its value stays the size that it was declared with.
        let declared = || self.shape.to_shape().map_or(0, |s| s.num_elements() * self.dtype.size());
        match self.buffer.try_read().as_deref() {
            Some(Some(buffer)) => buffer.value.try_read().map_or_else(declared, |v| v.size_bytes()),
            Some(None) => 0,
            None => declared(),
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    #[test]
    fn updates_leave_snapshots_alone() {
        let budget = Budget::new(1 << 20);
        let v = Variable::new("v".into(), DType::Float, PartialShape::unknown(), budget.clone());
        assert_eq!(v.read().unwrap_err().code(), Code::FailedPrecondition);
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
    #[test]
    fn a_buffer_sees_updates_until_the_number_of_elements_changes() {
        let budget = Budget::new(1 << 20);
        let v = Variable::new("v".into(), DType::Float, PartialShape::unknown(), budget);
        assert_eq!(v.buffer().map(drop).unwrap_err().code(), Code::FailedPrecondition);
        v.assign(Tensor::vector(&[1.0f32]).unwrap()).unwrap();
        let buffer = v.buffer().unwrap();
        v.assign(Tensor::vector(&[2.0f32]).unwrap()).unwrap();
        assert_eq!(buffer.snapshot().as_slice::<f32>().unwrap(), [2.0]);
        v.update(|t| {
            t.as_mut_slice::<f32>()?[0] = 3.0;
            Ok(())
        })
        .unwrap();
        assert_eq!(buffer.snapshot().as_slice::<f32>().unwrap(), [3.0]);
        v.assign(Tensor::vector(&[4.0f32, 5.0]).unwrap()).unwrap();
        assert_eq!(buffer.snapshot().as_slice::<f32>().unwrap(), [3.0]);
        assert_eq!(v.read().unwrap().as_slice::<f32>().unwrap(), [4.0, 5.0]);
    }
}
