//! Calls of PJRT's C interface, and owners of the objects that a plugin makes. All `unsafe` code of this
//! crate is in this folder; what it exports to the rest is safe.
//!
//! The objects of a client refer to it: each owner holds an `Arc` of its [`Client`]. PJRT's functions may
//! be called from any thread.
#![expect(unsafe_code, reason = "a C interface, loaded at run time")]

mod args;
mod buffer;
mod client;
mod event;
mod executable;
#[cfg(test)]
mod raw_tests;

use std::ffi::c_void;
use std::path::Path;
use std::ptr::NonNull;

use thalweg_tensor::{Code, Error, Result, ensure, err};

use self::args::{
    Args, COUNT_MAX, FUNCTIONS, Function, HEADER_SLOTS, NAMED_VALUE_SLOTS, SLOTS, Slot,
    TEXT_BYTES_MAX,
};
use super::MINIMUM_MINOR;

pub(super) use buffer::Buffer;
pub(super) use client::{Client, DeviceInfo};
pub(super) use executable::Executable;

/// The type of every function that can fail: an argument struct to an error, or null.
type Fallible = unsafe extern "C" fn(*mut Slot) -> Slot;
/// The type of `ErrorDestroy` and `ErrorMessage`.
type Infallible = unsafe extern "C" fn(*mut Slot);

/// The address of an object of the plugin.
#[derive(Clone, Copy, PartialEq)]
struct Object(NonNull<c_void>);

// SAFETY: PJRT's objects are internally synchronized and bound to no thread.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Object {
    /// The object that a plugin returned in this slot.
    fn of(args: &Args, slot: usize, what: &str) -> Result<Object> {
        let object = NonNull::new(args.0[slot]).map(Object);
        object.ok_or_else(|| err!(Internal, "the PJRT plugin returned no {what}"))
    }

    fn slot(self) -> Slot {
        self.0.as_ptr()
    }
}

/// The table of functions of a plugin that is loaded for the rest of the process's life.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::pjrt) struct Api(NonNull<Slot>);

// SAFETY: the table does not change.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

impl Api {
    /// Loads the library at `path` and checks its table. A library with a table is never unloaded.
    pub(in crate::pjrt) fn load(path: &Path) -> Result<Api> {
        let shown = path.display();
        // SAFETY: a library's initialisers may do anything; the user names one that may run here.
        let library = unsafe { libloading::Library::new(path) }
            .map_err(|e| err!(InvalidArgument, "cannot load the PJRT plugin {shown}: {e}"))?;
        // SAFETY: that is the type of the function of this name in every version of PJRT.
        let get = unsafe { library.get::<unsafe extern "C" fn() -> *mut Slot>(b"GetPjrtApi") };
        let table = match get {
            // SAFETY: the function takes nothing and returns a static table.
            Ok(get) => unsafe { get() },
            Err(_) => {
                let what = "is not a PJRT plugin: it has no function GetPjrtApi";
                return Err(err!(InvalidArgument, "{shown} {what}"));
            }
        };
        std::mem::forget(library);
        // SAFETY: `GetPjrtApi` returns null or such a table.
        unsafe { Api::from_table(table) }.map_err(|e| e.map_message(|m| format!("{shown}: {m}")))
    }

    /// # Safety
    /// `table` is null or points to a table that stays as it is: a size in bytes, and as many bytes.
    pub(in crate::pjrt) unsafe fn from_table(table: *mut Slot) -> Result<Api> {
        let table = NonNull::new(table).filter(|table| table.is_aligned());
        let table = table.ok_or_else(|| err!(InvalidArgument, "GetPjrtApi returned no table"))?;
        // SAFETY: a table begins with its size.
        let bytes = unsafe { table.read() }.addr();
        let slots = bytes / size_of::<Slot>();
        ensure!(slots >= HEADER_SLOTS, InvalidArgument, "a PJRT table of {bytes} bytes");
        let api = Api(table);
        let (major, minor) = api.version();
        ensure!(
            major == 0 && minor >= MINIMUM_MINOR && slots >= HEADER_SLOTS + FUNCTIONS,
            FailedPrecondition,
            "the plugin's PJRT API is {major}.{minor}; Thalweg needs 0.{MINIMUM_MINOR} or a later 0.x"
        );
        Ok(api)
    }

    /// Major and minor number of the API.
    pub(in crate::pjrt) fn version(self) -> (i32, i32) {
        // SAFETY: `from_table` saw that the table has a header.
        let version = unsafe { self.0.add(HEADER_SLOTS - 1).read() }.addr();
        (version as i32, (version >> 32) as i32)
    }

    fn entry(self, function: Function) -> Option<NonNull<c_void>> {
        // SAFETY: `from_table` saw that the table has an entry for each `Function`.
        NonNull::new(unsafe { self.0.add(HEADER_SLOTS + function as usize).read() })
    }

    /// Calls a function that can fail.
    ///
    /// # Safety
    /// The fields of `args` are those that PJRT asks of `function`, which can fail.
    unsafe fn call(self, function: Function, args: &mut Args) -> Result<()> {
        // SAFETY: the caller vouches for function and fields; the returned error is freed here.
        unsafe { self.result(self.call_raw(function, args)?) }
    }

    /// As [`Api::call`], returning the plugin's error, or null.
    ///
    /// # Safety
    /// As [`Api::call`].
    unsafe fn call_raw(self, function: Function, args: &mut Args) -> Result<Slot> {
        let entry = self.entry(function);
        let entry =
            entry.ok_or_else(|| err!(Unimplemented, "the PJRT plugin has no {function:?}"))?;
        // SAFETY: entries of functions that can fail have this type.
        let entry = unsafe { std::mem::transmute::<NonNull<c_void>, Fallible>(entry) };
        // SAFETY: the caller vouches for the fields.
        Ok(unsafe { entry(args.0.as_mut_ptr()) })
    }

    /// Calls a function that cannot fail; one that is missing does nothing.
    ///
    /// # Safety
    /// The fields of `args` are those that PJRT asks of `function`, which cannot fail.
    unsafe fn call_infallible(self, function: Function, args: &mut Args) {
        if let Some(entry) = self.entry(function) {
            // SAFETY: `ErrorDestroy` and `ErrorMessage` have this type.
            let entry = unsafe { std::mem::transmute::<NonNull<c_void>, Infallible>(entry) };
            // SAFETY: the caller vouches for the fields.
            unsafe { entry(args.0.as_mut_ptr()) };
        }
    }

    /// Reads and frees an error.
    ///
    /// # Safety
    /// `error` is null or an error of this plugin that nobody else frees.
    unsafe fn result(self, error: Slot) -> Result<()> {
        if error.is_null() {
            return Ok(());
        }
        let mut args = Args::new(&[error]);
        // SAFETY: the error is alive.
        let code = match unsafe { self.call_raw(Function::ErrorGetCode, &mut args) } {
            Ok(failure) if failure.is_null() => code(args.int(3)),
            // SAFETY: the second error is ours as well.
            Ok(failure) => unsafe { self.free_error(failure) },
            Err(_) => Code::Unknown,
        };
        let mut args = Args::new(&[error]);
        // SAFETY: the error is alive, and so is its message until it is freed.
        let message = unsafe {
            self.call_infallible(Function::ErrorMessage, &mut args);
            text(args.0[3], args.number(4))
        };
        // SAFETY: nobody else frees the error, and nothing refers to it any more.
        unsafe { self.free_error(error) };
        let message = if message.is_empty() { "the PJRT plugin gave no reason" } else { &message };
        Err(Error::new(code, message))
    }

    /// Frees an error of which nothing is known.
    ///
    /// # Safety
    /// As [`Api::result`], and `error` is not null.
    unsafe fn free_error(self, error: Slot) -> Code {
        // SAFETY: the caller vouches for the error.
        unsafe { self.call_infallible(Function::ErrorDestroy, &mut Args::new(&[error])) };
        Code::Unknown
    }

    /// Calls a function whose only argument is an object.
    ///
    /// # Safety
    /// `object` is alive and of the type that `function` takes.
    unsafe fn ask(self, function: Function, object: Object) -> Result<Args> {
        let mut args = Args::new(&[object.slot()]);
        // SAFETY: the caller vouches for the object.
        unsafe { self.call(function, &mut args) }?;
        Ok(args)
    }

    /// Calls a function that returns a text about an object.
    ///
    /// # Safety
    /// As [`Api::ask`].
    unsafe fn ask_text(self, function: Function, object: Object) -> Result<String> {
        // SAFETY: the caller vouches for the object, which owns the text.
        unsafe { self.ask(function, object).map(|args| text(args.0[3], args.number(4))) }
    }

    /// Frees an object; there is nothing to do about a failure.
    ///
    /// # Safety
    /// As [`Api::ask`]; nobody uses the object after this.
    unsafe fn destroy(self, function: Function, object: Object) {
        // SAFETY: the caller vouches for the object.
        if let Err(e) = unsafe { self.ask(function, object) } {
            tracing::warn!("{function:?} of a PJRT plugin failed: {e}");
        }
    }

    /// Prepares the plugin: once, before every other function.
    pub(in crate::pjrt) fn initialize(self) -> Result<()> {
        // SAFETY: the function takes no fields.
        unsafe { self.call(Function::PluginInitialize, &mut Args::new(&[])) }
    }

    /// The plugin's attributes as texts.
    pub(in crate::pjrt) fn attributes(self) -> Result<Vec<(String, String)>> {
        let mut args = Args::new(&[]);
        // SAFETY: the function takes no fields.
        unsafe { self.call(Function::PluginAttributes, &mut args) }?;
        let count = args.count(3, COUNT_MAX)?;
        let mut attributes = Vec::new();
        let mut next: *const Slot = args.0[2].cast();
        for _ in 0..count {
            ensure!(!next.is_null() && next.is_aligned(), Internal, "a PJRT attribute at {next:p}");
            // SAFETY: the plugin returned an array of `count` structs that live as long as the process;
            // each begins with its size.
            let stride = unsafe { next.read() }.addr().div_ceil(size_of::<Slot>());
            ensure!(
                (NAMED_VALUE_SLOTS..=SLOTS).contains(&stride),
                Internal,
                "a PJRT attribute of {stride} words"
            );
            // SAFETY: the struct has so many slots.
            let attribute = std::array::from_fn(|i| unsafe { next.add(i).read() });
            // SAFETY: the fields are those of an attribute of the plugin.
            attributes.push(unsafe { attribute_text(&attribute) });
            next = next.wrapping_add(stride);
        }
        Ok(attributes)
    }
}

fn code(number: i32) -> Code {
    use Code::*;
    let codes = [
        Cancelled,
        Unknown,
        InvalidArgument,
        DeadlineExceeded,
        NotFound,
        AlreadyExists,
        PermissionDenied,
        ResourceExhausted,
        FailedPrecondition,
        Aborted,
        OutOfRange,
        Unimplemented,
        Internal,
        Unavailable,
        DataLoss,
        Unauthenticated,
    ];
    codes.into_iter().find(|&code| code as i32 == number).unwrap_or(Unknown)
}

/// # Safety
/// `start` is null or points to `bytes` readable bytes.
unsafe fn text(start: Slot, bytes: usize) -> String {
    if start.is_null() || bytes == 0 {
        return String::new();
    }
    let shown = bytes.min(TEXT_BYTES_MAX);
    // SAFETY: so many bytes are readable.
    let shown = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), shown) };
    let mut text = String::from_utf8_lossy(shown).into_owned();
    if bytes > TEXT_BYTES_MAX {
        text.push_str("...");
    }
    text
}

/// # Safety
/// `fields` are those of a named value of the plugin.
unsafe fn attribute_text(fields: &[Slot; NAMED_VALUE_SLOTS]) -> (String, String) {
    let &[_, _, name, name_bytes, kind, value, count] = fields;
    // SAFETY: the name is a text of the plugin.
    let name = unsafe { text(name, name_bytes.addr()) };
    let bits = value.addr();
    let value = match kind.addr() as i32 {
        // SAFETY: this kind is a text of `count` bytes.
        0 => unsafe { text(value, count.addr()) },
        1 => (bits as i64).to_string(),
        2 if !value.is_null() => {
            let count = count.addr().min(TEXT_BYTES_MAX);
            // SAFETY: this kind is an array of `count` 64-bit integers.
            let numbers =
                (0..count).map(|i| unsafe { value.cast::<i64>().add(i).read_unaligned() });
            numbers.map(|n| n.to_string()).collect::<Vec<_>>().join(".")
        }
        3 => f32::from_bits(bits as u32).to_string(),
        4 => (bits as u8 != 0).to_string(),
        _ => String::new(),
    };
    (name, value)
}
