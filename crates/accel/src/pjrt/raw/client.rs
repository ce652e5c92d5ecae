//! Owners of clients.

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use thalweg_tensor::{Result, Tensor, ensure, err};

use super::args::{Args, COUNT_MAX, Function, Slot, array, named_value, number};
use super::event::{Event, IN_CALLBACK};
use super::{Api, Buffer, Executable, Object};
use crate::pjrt::OptionValue;

/// A client: a plugin's connection to devices.
pub(in crate::pjrt) struct Client {
    pub(super) api: Api,
    object: Object,
    pub(super) devices: Vec<Object>,
}

/// What a plugin says about a device.
pub(in crate::pjrt) struct DeviceInfo {
    pub(in crate::pjrt) id: i32,
    pub(in crate::pjrt) kind: String,
    pub(in crate::pjrt) debug: String,
}

impl Client {
    pub(in crate::pjrt) fn create(
        api: Api,
        options: &[(&str, OptionValue)],
    ) -> Result<Arc<Client>> {
        let options: Vec<_> =
            options.iter().map(|(name, value)| named_value(name, value)).collect();
        let mut args = Args::new(&[array(&options), number(options.len())]);
        // SAFETY: an array of named values and its length; without callbacks, as for one process.
        unsafe { api.call(Function::ClientCreate, &mut args) }?;
        let mut client =
            Client { api, object: Object::of(&args, 8, "client")?, devices: Vec::new() };
        // SAFETY: the client is alive.
        let args = unsafe { api.ask(Function::ClientAddressableDevices, client.object) }?;
        // SAFETY: the plugin returned an array of devices.
        client.devices = unsafe { devices(&args) }?;
        Ok(Arc::new(client))
    }

    pub(in crate::pjrt) fn platform_name(&self) -> Result<String> {
        // SAFETY: the client is alive.
        unsafe { self.api.ask_text(Function::ClientPlatformName, self.object) }
    }

    pub(in crate::pjrt) fn platform_version(&self) -> Result<String> {
        // SAFETY: the client is alive.
        unsafe { self.api.ask_text(Function::ClientPlatformVersion, self.object) }
    }

    /// Number of addressable devices.
    pub(in crate::pjrt) fn device_count(&self) -> usize {
        self.devices.len()
    }

    pub(super) fn device(&self, ordinal: usize) -> Result<Object> {
        let n = self.devices.len();
        let device = self.devices.get(ordinal).copied();
        device.ok_or_else(|| err!(InvalidArgument, "there is no device {ordinal}, only {n}"))
    }

    pub(in crate::pjrt) fn device_info(&self, ordinal: usize) -> Result<DeviceInfo> {
        let device = self.device(ordinal)?;
        // SAFETY: devices live as long as their client.
        let args = unsafe { self.api.ask(Function::DeviceGetDescription, device) }?;
        let description = Object::of(&args, 3, "description of a device")?;
        // SAFETY: descriptions live as long as their device.
        unsafe {
            Ok(DeviceInfo {
                id: self.api.ask(Function::DeviceDescriptionId, description)?.int(3),
                kind: self.api.ask_text(Function::DeviceDescriptionKind, description)?,
                debug: self.api.ask_text(Function::DeviceDescriptionDebugString, description)?,
            })
        }
    }

    /// Bytes in use, the most that were, and the limit.
    pub(in crate::pjrt) fn memory_stats(&self, ordinal: usize) -> Result<[Option<u64>; 3]> {
        let device = self.device(ordinal)?;
        // SAFETY: devices live as long as their client.
        let args = unsafe { self.api.ask(Function::DeviceMemoryStats, device) }?;
        let number = |slot: usize| u64::try_from(args.number(slot) as i64).ok();
        let optional = |slot: usize| args.flag(slot + 1).then(|| number(slot)).flatten();
        Ok([number(3), optional(4), optional(10)])
    }

    /// Compiles `program`, StableHLO as text or bytecode; `options` is a `CompileOptionsProto`.
    pub(in crate::pjrt) fn compile(
        self: &Arc<Self>,
        program: &[u8],
        options: &[u8],
    ) -> Result<Executable> {
        // XLA reads the text in place, and MLIR's lexer recognizes its end by a null byte there: without one
        // it reads on in whatever memory follows, and a mistake found there has no place in the text, which
        // ends the process.
        let terminated = [program, b"\0"].concat();
        let format = array(b"mlir".as_slice());
        let mut program =
            Args::new(&[array(&terminated), number(program.len()), format, number(4)]);
        let (bytes, length) = (array(options), number(options.len()));
        let mut args = Args::new(&[self.object.slot(), program.as_slot(), bytes, length]);
        // SAFETY: the client is alive, and what the call reads outlives it.
        unsafe { self.api.call(Function::ClientCompile, &mut args) }?;
        Ok(Executable { client: self.clone(), object: Object::of(&args, 6, "executable")? })
    }

    /// Loads what [`Executable::serialize`] gave; `options` replaces the options it was compiled with.
    pub(in crate::pjrt) fn deserialize(
        self: &Arc<Self>,
        serialized: &[u8],
        options: &[u8],
    ) -> Result<Executable> {
        let (bytes, length) = (array(serialized), number(serialized.len()));
        let (options, options_length) = (array(options), number(options.len()));
        let fields = [self.object.slot(), bytes, length, null_mut(), options, options_length];
        let mut args = Args::new(&fields);
        // SAFETY: the client is alive, and what the call reads outlives it.
        unsafe { self.api.call(Function::ExecutableDeserializeAndLoad, &mut args) }?;
        Ok(Executable { client: self.clone(), object: Object::of(&args, 5, "executable")? })
    }

    /// Starts copying `tensor`, whose elements are of PJRT's type `element_type`, to a device. The tensor's
    /// memory is kept as it is until the plugin has read it.
    pub(in crate::pjrt) fn upload(
        self: &Arc<Self>,
        tensor: &Tensor,
        element_type: i32,
        device: usize,
    ) -> Result<Buffer> {
        /// The plugin may read the memory until an event says that it has.
        const IMMUTABLE_UNTIL_TRANSFER_COMPLETES: usize = 1;
        let (data, dims) = (array(tensor.as_bytes()?), tensor.shape().to_i64());
        let mut args = Args::new(&[
            self.object.slot(),
            data,
            number(element_type as usize),
            array(&dims),
            number(dims.len()),
            null_mut(),
            null_mut(),
            number(IMMUTABLE_UNTIL_TRANSFER_COMPLETES),
            self.device(device)?.slot(),
        ]);
        // SAFETY: client and device are alive. The data are as long as type and dimensions say. A clone
        // of the tensor keeps them from being freed or changed until the event below.
        unsafe { self.api.call(Function::ClientBufferFromHostBuffer, &mut args) }?;
        let kept = tensor.clone();
        match Object::of(&args, 13, "event of a transfer") {
            Ok(event) => Event { client: self.clone(), object: event }
                .on_ready(Box::new(move |_| drop(kept))),
            // Nothing will say when the memory has been read.
            Err(_) => std::mem::forget(kept),
        }
        Ok(Buffer { client: self.clone(), object: Object::of(&args, 14, "buffer")? })
    }
}

/// The array of devices in a struct that begins with another object.
///
/// # Safety
/// `args` are the plugin's answer to a function that returns devices.
pub(super) unsafe fn devices(args: &Args) -> Result<Vec<Object>> {
    let (start, count) = (args.0[3].cast::<Slot>(), args.count(4, COUNT_MAX)?);
    ensure!(count == 0 || !start.is_null(), Internal, "the PJRT plugin returned no devices");
    // SAFETY: the plugin returned an array of so many devices.
    let devices =
        (0..count).map(|i| NonNull::new(unsafe { start.add(i).read_unaligned() }).map(Object));
    let devices: Option<Vec<Object>> = devices.collect();
    devices.ok_or_else(|| err!(Internal, "the PJRT plugin returned no device"))
}

impl Drop for Client {
    fn drop(&mut self) {
        let (api, object) = (self.api, self.object);
        // SAFETY: all objects of the client hold an `Arc` of it, so they are gone.
        let destroy = move || unsafe { api.destroy(Function::ClientDestroy, object) };
        if !IN_CALLBACK.get() {
            return destroy();
        }
        // A client waits for its threads, of which this is one.
        let spawned = std::thread::Builder::new().name("pjrt-client-end".into()).spawn(destroy);
        if let Err(e) = spawned {
            tracing::warn!("a PJRT client is never freed, for want of a thread: {e}");
        }
    }
}
