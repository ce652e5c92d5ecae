//! Owners of executables.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use thalweg_tensor::{Result, ensure, err};

use super::args::{Args, COUNT_MAX, Function, Slot, array, number};
use super::client::devices;
use super::{Buffer, Client, Infallible, Object};

/// A compiled program on its devices.
pub(in crate::pjrt) struct Executable {
    pub(super) client: Arc<Client>,
    pub(super) object: Object,
}

impl Executable {
    /// Ordinals of the devices on which it runs.
    pub(in crate::pjrt) fn devices(&self) -> Result<Vec<usize>> {
        let (api, function) = (self.client.api, Function::LoadedExecutableAddressableDevices);
        // SAFETY: the executable is alive; the plugin returned an array of devices.
        let devices = unsafe { devices(&api.ask(function, self.object)?) }?;
        let ordinal = |device| self.client.devices.iter().position(|&known| known == device);
        let ordinals: Option<Vec<usize>> = devices.into_iter().map(ordinal).collect();
        ordinals.ok_or_else(|| err!(Internal, "an executable on a device that the client lacks"))
    }

    /// Calls a function of the part of the executable that is independent of devices.
    fn with_program<T>(
        &self,
        function: Function,
        then: impl FnOnce(&Args) -> Result<T>,
    ) -> Result<T> {
        let api = self.client.api;
        // SAFETY: the executable is alive.
        let args = unsafe { api.ask(Function::LoadedExecutableGetExecutable, self.object) }?;
        let program = Object::of(&args, 3, "executable")?;
        // SAFETY: the object is alive, and destroyed after its last use.
        unsafe {
            let answer = api.ask(function, program).and_then(|args| then(&args));
            api.destroy(Function::ExecutableDestroy, program);
            answer
        }
    }

    pub(in crate::pjrt) fn num_outputs(&self) -> Result<usize> {
        self.with_program(Function::ExecutableNumOutputs, |args| args.count(3, COUNT_MAX))
    }

    pub(in crate::pjrt) fn serialize(&self) -> Result<Vec<u8>> {
        self.with_program(Function::ExecutableSerialize, |args| {
            let (start, bytes, owner) = (args.0[3], args.number(4), args.0[5]);
            let copy = if start.is_null() {
                Err(err!(Internal, "the PJRT plugin serialized nothing"))
            } else {
                // SAFETY: the plugin returned so many bytes, which live until the deleter is called.
                Ok(unsafe { std::slice::from_raw_parts(start.cast::<u8>(), bytes) }.to_vec())
            };
            if let Some(deleter) = NonNull::new(args.0[6]) {
                // SAFETY: the plugin returned a function of this type; it is called once, with its owner.
                let deleter =
                    unsafe { std::mem::transmute::<NonNull<c_void>, Infallible>(deleter) };
                // SAFETY: as above.
                unsafe { deleter(owner.cast()) };
            }
            copy
        })
    }

    /// Starts the program. `arguments` of other clients are an error; those whose index is in `kept` are not
    /// donated. The program has `outputs` outputs.
    pub(in crate::pjrt) fn execute(
        &self,
        arguments: &[&Buffer],
        kept: &[i64],
        outputs: usize,
    ) -> Result<Vec<Buffer>> {
        let is_ours = |buffer: &&Buffer| Arc::ptr_eq(&buffer.client, &self.client);
        ensure!(arguments.iter().all(is_ours), InvalidArgument, "a buffer of another client");
        let inputs: Vec<Slot> = arguments.iter().map(|buffer| buffer.object.slot()).collect();
        let mut results: Vec<Slot> = vec![null_mut(); outputs];
        let zero = null_mut();
        let options = [zero, zero, zero, zero, zero, array(kept), number(kept.len())];
        let mut options = Args::new(&options);
        let (input_lists, result_lists) = ([array(&inputs)], [results.as_mut_ptr()]);
        let mut args = Args::new(&[
            self.object.slot(),
            options.as_slot(),
            array(&input_lists),
            number(1),
            number(inputs.len()),
            array(&result_lists),
        ]);
        // SAFETY: executable and buffers are alive and of one client; the list of results is as long as
        // the plugin said that it must be.
        unsafe { self.client.api.call(Function::LoadedExecutableExecute, &mut args) }?;
        let buffer = |object| Buffer { client: self.client.clone(), object: Object(object) };
        let buffers = results.into_iter().map(|object| NonNull::new(object).map(buffer));
        // All before any is looked at, so that those that are there are freed.
        let buffers: Vec<Option<Buffer>> = buffers.collect();
        let buffers: Option<Vec<Buffer>> = buffers.into_iter().collect();
        buffers.ok_or_else(|| err!(Internal, "the PJRT plugin returned no buffer for an output"))
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: nobody else has the executable; running ones keep what they need.
        unsafe { self.client.api.destroy(Function::LoadedExecutableDestroy, self.object) };
    }
}
