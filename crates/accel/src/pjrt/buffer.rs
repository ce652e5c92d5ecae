//! Arrays in the memory of a device.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, mpsc};

use thalweg_tensor::{Budget, DType, DeviceMemory, Result, Shape, Tensor, err};

use super::{Device, raw};

/// A dense array in the memory of a device. Dropping it frees the memory once nothing that was started
/// uses it.
pub struct Buffer {
    pub(super) raw: raw::Buffer,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    pub(super) device: usize,
    pub(super) space: Arc<str>,
}

/// Dtypes and PJRT's numbers for them. Of dtypes with the same number, the first is that of outputs of
/// programs: quantized numbers are integers to XLA.
const ELEMENT_TYPES: &[(DType, i32)] = &[
    (DType::Bool, 1),
    (DType::Int8, 2),
    (DType::Int16, 3),
    (DType::Int32, 4),
    (DType::Int64, 5),
    (DType::UInt8, 6),
    (DType::UInt16, 7),
    (DType::UInt32, 8),
    (DType::UInt64, 9),
    (DType::Half, 10),
    (DType::Float, 11),
    (DType::Double, 12),
    (DType::BFloat16, 13),
    (DType::Complex64, 14),
    (DType::Complex128, 15),
    (DType::Float8E5m2, 16),
    (DType::Float8E4m3fn, 17),
    (DType::Float8E4m3b11fnuz, 18),
    (DType::Float8E5m2fnuz, 19),
    (DType::Float8E4m3fnuz, 20),
    (DType::QInt8, 2),
    (DType::QInt16, 3),
    (DType::QInt32, 4),
    (DType::QUInt8, 6),
    (DType::QUInt16, 7),
];

/// PJRT's number for the elements of a dtype.
pub(super) fn element_type(dtype: DType) -> Result<i32> {
    let found = ELEMENT_TYPES.iter().find(|(known, _)| *known == dtype).map(|&(_, number)| number);
    found.ok_or_else(|| err!(InvalidArgument, "{dtype} elements cannot lie on an accelerator"))
}

/// A buffer that the plugin made, with what the plugin says about it.
pub(super) fn describe(raw: raw::Buffer, device: usize, space: &Arc<str>) -> Result<Buffer> {
    let number = raw.element_type()?;
    let known = ELEMENT_TYPES.iter().find(|(_, known)| *known == number).map(|&(dtype, _)| dtype);
    let dtype = known.ok_or_else(|| {
        err!(Unimplemented, "no dtype is the PJRT plugin's element type {number}")
    })?;
    let shape = Shape::from_i64(&raw.dims()?)?;
    // The size in bytes is computed without a check later on.
    shape
        .num_elements()
        .checked_mul(dtype.size())
        .ok_or_else(|| err!(ResourceExhausted, "a {dtype} buffer of shape {shape}"))?;
    Ok(Buffer { raw, dtype, shape, device, space: space.clone() })
}

impl Buffer {
    /// The buffer that holds the elements of `tensor`, if a PJRT device has them.
    pub fn of(tensor: &Tensor) -> Option<&Buffer> {
        let memory: &dyn Any = tensor.device_memory()?.as_ref();
        memory.downcast_ref()
    }

    /// A tensor whose elements this buffer holds.
    pub fn into_tensor(self) -> Result<Tensor> {
        Tensor::from_device(self.dtype, self.shape.clone(), Arc::new(self))
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The sizes of the shape.
    pub fn dims(&self) -> &[usize] {
        self.shape.dims()
    }

    /// Bytes of the elements on the host.
    pub fn size_bytes(&self) -> usize {
        self.shape.num_elements() * self.dtype.size()
    }

    /// Bytes that the buffer takes of the device's memory, padding included.
    pub fn size_on_device(&self) -> Result<usize> {
        self.raw.size_on_device()
    }

    /// Ordinal of the device in whose memory it lies.
    pub fn device(&self) -> usize {
        self.device
    }

    /// Whether an execution has taken the memory, so that nothing can read this buffer any more.
    pub fn is_donated(&self) -> Result<bool> {
        self.raw.is_deleted()
    }

    /// Calls `callback` once the contents are there, or the execution that should have made them has
    /// failed. A buffer that was donated is an error.
    pub fn on_ready(&self, callback: impl FnOnce(Result<()>) + Send + 'static) {
        self.raw.on_ready(Box::new(callback));
    }

    /// Waits until the contents are there, or gives the error of what should have made them. Not for
    /// callbacks.
    pub fn wait(&self) -> Result<()> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.on_ready(move |result| {
            // The receiver waits below.
            let _ = sender.send(result);
        });
        receiver.recv().map_err(|_| err!(Internal, "the PJRT plugin dropped an event"))?
    }

    /// Starts copying the elements to a new tensor of the host, in row-major order, charged to `budget`.
    /// `done` is called once, whatever happens.
    pub fn download(
        &self,
        budget: Option<&Arc<Budget>>,
        done: impl FnOnce(Result<Tensor>) + Send + 'static,
    ) {
        match Tensor::allocate(self.dtype, self.shape.clone(), budget) {
            Ok(target) => self.raw.download(target, done),
            Err(e) => done(Err(e)),
        }
    }

    /// As [`Buffer::download`], blocking the thread, charged to no budget. Not for callbacks: a plugin's
    /// thread that waits may be the one that copies.
    pub fn read(&self) -> Result<Tensor> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.download(None, move |tensor| {
            // The receiver waits below.
            let _ = sender.send(tensor);
        });
        receiver.recv().map_err(|_| err!(Internal, "the PJRT plugin dropped a transfer"))?
    }

    /// Starts copying to another device of the same client.
    pub fn copy_to(&self, device: &Device) -> Result<Buffer> {
        let raw = self.raw.copy_to(&device.client, device.ordinal())?;
        let (dtype, shape) = (self.dtype, self.shape.clone());
        Ok(Buffer { raw, dtype, shape, device: device.ordinal(), space: device.space.clone() })
    }
}

impl DeviceMemory for Buffer {
    fn space(&self) -> &str {
        &self.space
    }

    fn len_bytes(&self) -> usize {
        self.size_bytes()
    }

    fn read(&self) -> Result<Tensor> {
        Buffer::read(self)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} {} in {})", self.dtype, self.shape, self.space)
    }
}
