//! Owners of buffers.

use std::sync::Arc;

use thalweg_tensor::{DType, RANK_MAX, Result, Tensor, ensure};

use super::args::{Args, Function, array, dense_layout, number};
use super::event::{Callback, Event, run};
use super::{Client, Object};

/// An array in the memory of a device.
pub(in crate::pjrt) struct Buffer {
    pub(super) client: Arc<Client>,
    pub(super) object: Object,
}

impl Buffer {
    /// Asks the plugin about this buffer.
    fn ask(&self, function: Function) -> Result<Args> {
        // SAFETY: the buffer is alive, and all callers name functions of buffers.
        unsafe { self.client.api.ask(function, self.object) }
    }

    /// PJRT's number of the element type.
    pub(in crate::pjrt) fn element_type(&self) -> Result<i32> {
        Ok(self.ask(Function::BufferElementType)?.int(3))
    }

    pub(in crate::pjrt) fn dims(&self) -> Result<Vec<i64>> {
        let args = self.ask(Function::BufferDimensions)?;
        let (start, count) = (args.0[3].cast::<i64>(), args.count(4, RANK_MAX)?);
        ensure!(count == 0 || !start.is_null(), Internal, "the PJRT plugin returned no dimensions");
        // SAFETY: the plugin returned an array of so many numbers, which the buffer owns.
        Ok((0..count).map(|i| unsafe { start.add(i).read_unaligned() }).collect())
    }

    pub(in crate::pjrt) fn size_on_device(&self) -> Result<usize> {
        Ok(self.ask(Function::BufferOnDeviceSizeInBytes)?.number(3))
    }

    pub(in crate::pjrt) fn is_deleted(&self) -> Result<bool> {
        Ok(self.ask(Function::BufferIsDeleted)?.flag(3))
    }

    /// Calls `callback` once the contents are there, or could not be computed.
    pub(in crate::pjrt) fn on_ready(&self, callback: Callback) {
        let event = self.ask(Function::BufferReadyEvent);
        match event.and_then(|args| Object::of(&args, 3, "event of a buffer")) {
            Ok(object) => Event { client: self.client.clone(), object }.on_ready(callback),
            Err(e) => run(callback, Err(e)),
        }
    }

    pub(in crate::pjrt) fn copy_to(&self, client: &Arc<Client>, device: usize) -> Result<Buffer> {
        ensure!(Arc::ptr_eq(client, &self.client), InvalidArgument, "a device of another client");
        let device = client.device(device)?;
        let mut args = Args::new(&[self.object.slot(), device.slot()]);
        // SAFETY: buffer and device are alive and of one client.
        unsafe { self.client.api.call(Function::BufferCopyToDevice, &mut args) }?;
        Ok(Buffer { client: self.client.clone(), object: Object::of(&args, 4, "buffer")? })
    }

    /// Starts copying the elements, in row-major order, to `target`, which `done` receives.
    pub(in crate::pjrt) fn download(
        &self,
        mut target: Tensor,
        done: impl FnOnce(Result<Tensor>) + Send + 'static,
    ) {
        let args = self.start_download(&mut target);
        match args.map(|args| Object::of(&args, 6, "event of a transfer")) {
            Ok(Ok(object)) => Event { client: self.client.clone(), object }
                .on_ready(Box::new(move |outcome| done(outcome.and_then(|()| cleaned(target))))),
            Ok(Err(e)) => {
                // Nothing will say when the memory has been written.
                std::mem::forget(target);
                done(Err(e));
            }
            Err(e) => done(Err(e)),
        }
    }

    /// Until the event in slot 6 the plugin writes to the memory of `target`, wherever that tensor moves.
    fn start_download(&self, target: &mut Tensor) -> Result<Args> {
        let minor_to_major: Vec<i64> = (0..target.rank() as i64).rev().collect();
        let layout = dense_layout(&minor_to_major);
        // SAFETY: the bytes of bools become 0 or 1 (`cleaned`) before anybody reads them as bools.
        let bytes = unsafe { target.bytes_mut() }?;
        let (start, length) = (bytes.as_mut_ptr().cast(), number(bytes.len()));
        let mut args = Args::new(&[self.object.slot(), array(&layout), start, length]);
        // SAFETY: the buffer is alive. The tensor is the only one with this memory; the caller keeps it, and
        // hands it to nobody, until the event.
        unsafe { self.client.api.call(Function::BufferToHostBuffer, &mut args) }?;
        Ok(args)
    }
}

/// A tensor that a plugin wrote, with every bool 0 or 1.
fn cleaned(mut tensor: Tensor) -> Result<Tensor> {
    if tensor.dtype() == DType::Bool {
        // SAFETY: 0 and 1 are what is written.
        for byte in unsafe { tensor.bytes_mut() }? {
            *byte = u8::from(*byte != 0);
        }
    }
    Ok(tensor)
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: nobody else has the buffer; computations that use it keep what they need.
        unsafe { self.client.api.destroy(Function::BufferDestroy, self.object) };
    }
}
