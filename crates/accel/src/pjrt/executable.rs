//! Compiled programs.

use std::sync::{Arc, OnceLock};

use thalweg_tensor::{DType, Result, Shape, ensure};

use super::buffer::describe;
use super::{Buffer, Device, raw};

/// A program that is compiled for one device.
pub struct Executable {
    raw: raw::Executable,
    outputs: usize,
    /// What the outputs of the first execution were, and so those of every other.
    types: OnceLock<Vec<(DType, Shape)>>,
    device: usize,
    space: Arc<str>,
}

impl Executable {
    pub(super) fn new(raw: raw::Executable, device: &Device) -> Result<Arc<Executable>> {
        let devices = raw.devices()?;
        let expected = device.ordinal();
        ensure!(
            devices == [expected],
            Internal,
            "a program for device {expected} was compiled for {devices:?}"
        );
        let outputs = raw.num_outputs()?;
        let space = device.space.clone();
        let types = OnceLock::new();
        Ok(Arc::new(Executable { raw, outputs, types, device: expected, space }))
    }

    /// Ordinal of the device on which it runs.
    pub fn device(&self) -> usize {
        self.device
    }

    /// How many outputs the program has.
    pub fn num_outputs(&self) -> usize {
        self.outputs
    }

    /// The compiled program, for the same version of the plugin and the same kind of device.
    pub fn serialize(&self) -> Result<Vec<u8>> {
        self.raw.serialize()
    }

    /// Starts the program and returns its outputs, which become ready later; an error of the program itself
    /// shows in them. The arguments lie on this executable's device and have the program's dtypes and shapes:
    /// XLA compares only their number and sizes in bytes. Arguments that the program donates
    /// (attributes `tf.aliasing_output` and `jax.buffer_donor`) cannot be used after this call, except
    /// those whose index is in `not_donatable`.
    pub fn execute(&self, arguments: &[&Buffer], not_donatable: &[usize]) -> Result<Vec<Buffer>> {
        if let Some(index) = not_donatable.iter().find(|&&index| index >= arguments.len()) {
            ensure!(false, InvalidArgument, "there is no argument {index} to keep");
        }
        let kept: Vec<i64> = not_donatable.iter().map(|&index| index as i64).collect();
        let raw: Vec<&raw::Buffer> = arguments.iter().map(|buffer| &buffer.raw).collect();
        let outputs = self.raw.execute(&raw, &kept, self.outputs)?;
        if let Some(types) = self.types.get() {
            let buffer = |(raw, (dtype, shape)): (_, &(DType, Shape))| Buffer {
                raw,
                dtype: *dtype,
                shape: shape.clone(),
                device: self.device,
                space: self.space.clone(),
            };
            return Ok(outputs.into_iter().zip(types).map(buffer).collect());
        }
        let describe = |raw| describe(raw, self.device, &self.space);
        let buffers = outputs.into_iter().map(describe).collect::<Result<Vec<Buffer>>>()?;
        self.types.get_or_init(|| buffers.iter().map(|b| (b.dtype, b.shape.clone())).collect());
        Ok(buffers)
    }
}

impl std::fmt::Debug for Executable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Executable(device {}, {} outputs)", self.device, self.outputs)
    }
}
