//! Tensors in the memory of an accelerator.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_tensor::{Charge, DeviceMemory, Result, Tensor, ensure, err};

use crate::pjrt::Buffer;

/// A buffer that is charged to its device's budget.
pub(crate) struct Memory {
    pub(crate) buffer: Buffer,
    /// Given back when the memory is; `None` once a program has taken the memory for a result.
    charge: Mutex<Option<Charge>>,
}

impl DeviceMemory for Memory {
    fn space(&self) -> &str {
        self.buffer.space()
    }

    fn len_bytes(&self) -> usize {
        self.buffer.len_bytes()
    }

    fn read(&self) -> Result<Tensor> {
        self.buffer.read()
    }
}

impl Memory {
    /// A buffer with the charge for its bytes.
    pub(crate) fn new(buffer: Buffer, charge: Charge) -> Memory {
        Memory { buffer, charge: Mutex::new(Some(charge)) }
    }

    /// The charge, for the result to which the memory is donated.
    pub(crate) fn take_charge(&self) -> Option<Charge> {
        self.charge.lock().take()
    }

    /// The tensor of this memory.
    pub(crate) fn into_tensor(self) -> Result<Tensor> {
        let (dtype, shape) = (self.buffer.dtype(), self.buffer.shape().clone());
        Tensor::from_device(dtype, shape, Arc::new(self))
    }
}

/// The memory of a tensor on an accelerator.
pub(crate) fn memory_of(tensor: &Tensor) -> Result<Arc<Memory>> {
    let memory = tensor.device_memory().ok_or_else(|| {
        err!(Internal, "a tensor of the host was taken for one of an accelerator")
    })?;
    let any: Arc<dyn Any + Send + Sync> = memory.clone();
    let memory: Arc<Memory> = any.downcast().map_err(|_| {
        err!(Internal, "a tensor of another kind of memory was taken for one of an accelerator")
    })?;
    ensure!(
        memory.buffer.dims() == tensor.shape().dims(),
        Internal,
        "a tensor of shape {} has memory of shape {}",
        tensor.shape(),
        memory.buffer.shape()
    );
    Ok(memory)
}

/// Whether nothing else holds the memory of this tensor.
pub(crate) fn is_sole_holder(tensor: &Tensor) -> bool {
    !tensor.is_shared() && tensor.device_memory().is_some_and(|m| Arc::strong_count(m) == 1)
}
