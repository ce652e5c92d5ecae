//! Answers that a plugin should not give, from plugins that are tables of functions made here.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::ThreadId;

use thalweg_tensor::{Code, Result, Shape, Tensor};

use super::args::{FUNCTIONS, Function, HEADER_SLOTS, SLOTS, Slot};
use super::{Api, Buffer, Client, Executable, Fallible, Infallible};

/// A table that tests may change before they use it.
struct Table(Vec<Slot>);

/// Slots that stay for good.
struct Kept(Vec<Slot>);

// SAFETY: nobody changes them.
unsafe impl Send for Kept {}

fn number(n: usize) -> Slot {
    without_provenance_mut(n)
}

impl Table {
    /// A table of this version that has no functions.
    fn empty(major: usize, minor: usize) -> Table {
        let mut slots = vec![null_mut(); HEADER_SLOTS + FUNCTIONS];
        slots[0] = number(slots.len() * size_of::<Slot>());
        slots[HEADER_SLOTS - 1] = number(minor << 32 | major);
        Table(slots)
    }

    fn with(mut self, function: Function, entry: Fallible) -> Table {
        self.0[HEADER_SLOTS + function as usize] = entry as Slot;
        self
    }

    fn with_infallible(mut self, function: Function, entry: Infallible) -> Table {
        self.0[HEADER_SLOTS + function as usize] = entry as Slot;
        self
    }

    /// As of a plugin: the table stays for good.
    fn load(self) -> Result<Api> {
        static TABLES: Mutex<Vec<Kept>> = Mutex::new(Vec::new());
        let mut tables = TABLES.lock().unwrap();
        tables.push(Kept(self.0));
        let table = tables.last_mut().unwrap().0.as_mut_ptr();
        // SAFETY: the table stays where it is, and is as long as it says.
        unsafe { Api::from_table(table) }
    }
}

/// Errors of the made-up plugins, by address.
struct FakeError {
    code: i32,
    message: &'static [u8],
}

static ALIVE_ERRORS: AtomicI64 = AtomicI64::new(0);

fn error(code: i32, message: &'static [u8]) -> Slot {
    ALIVE_ERRORS.fetch_add(1, Ordering::SeqCst);
    Box::into_raw(Box::new(FakeError { code, message })).cast()
}

/// A slot of an argument struct.
///
/// # Safety
/// `args` points to an argument struct.
unsafe fn get(args: *mut Slot, slot: usize) -> Slot {
    assert!(slot < SLOTS);
    // SAFETY: the caller vouches for the struct.
    unsafe { args.add(slot).read() }
}

/// # Safety
/// As [`get`].
unsafe fn set(args: *mut Slot, slot: usize, value: Slot) {
    assert!(slot < SLOTS);
    // SAFETY: the caller vouches for the struct.
    unsafe { args.add(slot).write(value) }
}

unsafe extern "C" fn error_destroy(args: *mut Slot) {
    ALIVE_ERRORS.fetch_sub(1, Ordering::SeqCst);
    // SAFETY: the caller passes an error that `error` made.
    drop(unsafe { Box::from_raw(get(args, 2).cast::<FakeError>()) });
}

unsafe extern "C" fn error_message(args: *mut Slot) {
    // SAFETY: as above.
    unsafe {
        let message = (*get(args, 2).cast::<FakeError>()).message;
        set(args, 3, message.as_ptr().cast_mut().cast());
        set(args, 4, number(message.len()));
    }
}

unsafe extern "C" fn error_code(args: *mut Slot) -> Slot {
    // SAFETY: as above.
    unsafe {
        let code = (*get(args, 2).cast::<FakeError>()).code;
        if code == -1 {
            return error(-1, b"no code");
        }
        set(args, 3, number(code as u32 as usize));
    }
    null_mut()
}

/// A table with errors.
fn table() -> Table {
    Table::empty(0, 115)
        .with_infallible(Function::ErrorDestroy, error_destroy)
        .with_infallible(Function::ErrorMessage, error_message)
        .with(Function::ErrorGetCode, error_code)
}

unsafe extern "C" fn nothing(_: *mut Slot) -> Slot {
    null_mut()
}

#[test]
fn tables_are_checked() {
    // SAFETY: null is allowed.
    let e = unsafe { Api::from_table(null_mut()) }.err().unwrap();
    assert_eq!(e.code(), Code::InvalidArgument);
    // SAFETY: an address that is not aligned is not read.
    assert!(unsafe { Api::from_table(without_provenance_mut(17)) }.is_err());
    let mut short = Table::empty(0, 115);
    short.0[0] = number(32);
    assert_eq!(short.load().err().unwrap().code(), Code::InvalidArgument);
    for (major, minor) in [(0, 59), (1, 115), (0, 0)] {
        let e = Table::empty(major, minor).load().err().unwrap();
        assert_eq!(e.code(), Code::FailedPrecondition);
        let said = format!("API is {major}.{minor}; Thalweg needs 0.60");
        assert!(e.message().contains(&said), "{e}");
    }
    let mut few = Table::empty(0, 115);
    few.0[0] = number((HEADER_SLOTS + FUNCTIONS - 1) * size_of::<Slot>());
    assert_eq!(few.load().err().unwrap().code(), Code::FailedPrecondition);
    assert_eq!(Table::empty(0, 60).load().unwrap().version(), (0, 60));
}

#[test]
fn missing_functions_are_named() {
    let e = table().load().unwrap().initialize().unwrap_err();
    assert_eq!(e.code(), Code::Unimplemented);
    assert!(e.message().contains("PluginInitialize"), "{e}");
}

#[test]
fn errors_have_code_and_text() {
    unsafe extern "C" fn refuse(_: *mut Slot) -> Slot {
        error(9, b"not now")
    }
    unsafe extern "C" fn refuse_oddly(_: *mut Slot) -> Slot {
        error(77, b"\xff\xfe")
    }
    unsafe extern "C" fn refuse_without_code(_: *mut Slot) -> Slot {
        error(-1, b"")
    }
    unsafe extern "C" fn refuse_at_length(_: *mut Slot) -> Slot {
        error(13, &[b'x'; 100_000])
    }
    let _guard = plugin::IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    let refusal = |entry| {
        let api = table().with(Function::PluginInitialize, entry).load().unwrap();
        api.initialize().unwrap_err()
    };
    let e = refusal(refuse);
    assert_eq!((e.code(), e.message()), (Code::FailedPrecondition, "not now"));
    let e = refusal(refuse_oddly);
    assert_eq!((e.code(), e.message()), (Code::Unknown, "\u{fffd}\u{fffd}"));
    let e = refusal(refuse_without_code);
    assert_eq!((e.code(), e.message()), (Code::Unknown, "the PJRT plugin gave no reason"));
    let e = refusal(refuse_at_length);
    assert_eq!((e.code(), e.message().len()), (Code::Internal, 4096 + 3));
    assert_eq!(ALIVE_ERRORS.load(Ordering::SeqCst), 0);
    // A plugin without the functions on errors.
    let bare = Table::empty(0, 115).with(Function::PluginInitialize, nothing).load().unwrap();
    bare.initialize().unwrap();
}

/// A plugin whose objects are numbers, with one device; `ODD` says what is odd about it.
mod plugin {
    use super::*;

    /// Objects that were made and not destroyed.
    pub(super) static ALIVE: AtomicI64 = AtomicI64::new(0);
    /// Where clients were destroyed.
    pub(super) static DESTROYED_ON: Mutex<Vec<ThreadId>> = Mutex::new(Vec::new());
    /// What a plugin of a test does not do: 0 for nothing.
    pub(super) static ODD: AtomicUsize = AtomicUsize::new(0);
    /// One test at a time uses it.
    pub(super) static IN_USE: Mutex<()> = Mutex::new(());

    pub(super) const NO_CLIENT: usize = 1;
    pub(super) const NO_DEVICES: usize = 2;
    pub(super) const MANY_DEVICES: usize = 3;
    pub(super) const NULL_DEVICE: usize = 4;
    pub(super) const NO_BUFFER: usize = 5;
    pub(super) const NO_EVENT: usize = 6;
    pub(super) const NO_CALLBACKS: usize = 7;
    pub(super) const ANOTHER_THREAD: usize = 8;
    pub(super) const MANY_DIMS: usize = 9;
    pub(super) const NULL_DIMS: usize = 10;
    pub(super) const FOREIGN_DEVICE: usize = 11;
    pub(super) const NOTHING_SERIALIZED: usize = 12;
    pub(super) const FAILED: usize = 13;
    pub(super) const NO_PROGRAM: usize = 14;

    pub(super) fn is(odd: usize) -> bool {
        ODD.load(Ordering::SeqCst) == odd
    }

    fn made(id: usize) -> Slot {
        ALIVE.fetch_add(1, Ordering::SeqCst);
        number(id)
    }

    unsafe extern "C" fn destroyed(_: *mut Slot) -> Slot {
        ALIVE.fetch_sub(1, Ordering::SeqCst);
        null_mut()
    }

    unsafe extern "C" fn client_destroyed(_: *mut Slot) -> Slot {
        ALIVE.fetch_sub(1, Ordering::SeqCst);
        DESTROYED_ON.lock().unwrap().push(std::thread::current().id());
        null_mut()
    }

    unsafe extern "C" fn create(args: *mut Slot) -> Slot {
        if !is(NO_CLIENT) {
            // SAFETY: the caller passes an argument struct, here and below.
            unsafe { set(args, 8, made(0x10)) };
        }
        null_mut()
    }

    struct Devices([Slot; 1]);
    // SAFETY: numbers.
    unsafe impl Sync for Devices {}
    static DEVICES: Devices = Devices([without_provenance_mut(0x20)]);
    static FOREIGN: Devices = Devices([without_provenance_mut(0x21)]);
    static NULL: Devices = Devices([null_mut()]);

    unsafe extern "C" fn devices(args: *mut Slot) -> Slot {
        // SAFETY: as above.
        unsafe {
            let list = if is(NULL_DEVICE) { &NULL } else { &DEVICES };
            let list = list.0.as_ptr().cast_mut().cast();
            set(args, 3, if is(NO_DEVICES) { null_mut() } else { list });
            set(args, 4, number(if is(MANY_DEVICES) { usize::MAX } else { 1 }));
        }
        null_mut()
    }

    unsafe extern "C" fn devices_of_executable(args: *mut Slot) -> Slot {
        let list = if is(FOREIGN_DEVICE) { &FOREIGN } else { &DEVICES };
        // SAFETY: as above.
        unsafe {
            set(args, 3, list.0.as_ptr().cast_mut().cast());
            set(args, 4, number(1));
        }
        null_mut()
    }

    /// Reads the byte after a program, as XLA does.
    unsafe extern "C" fn compile(args: *mut Slot) -> Slot {
        // SAFETY: as above; the caller passes a struct with bytes, which a null byte follows, and their number.
        unsafe {
            let program = get(args, 3).cast::<Slot>();
            let (start, bytes) = (get(program, 2).cast::<u8>(), get(program, 3).addr());
            if start.add(bytes).read() != 0 {
                return error(3, b"no null byte follows the program");
            }
            set(args, 6, made(0x30));
        }
        null_mut()
    }

    /// Takes what `serialize` gives.
    unsafe extern "C" fn deserialize(args: *mut Slot) -> Slot {
        // SAFETY: as above; the caller passes bytes and their number.
        unsafe {
            let (start, bytes) = (get(args, 3).cast::<u8>(), get(args, 4).addr());
            if std::slice::from_raw_parts(start, bytes) != b"code" {
                return error(3, b"no program");
            }
            if !is(NO_PROGRAM) {
                set(args, 5, made(0x30));
            }
        }
        null_mut()
    }

    unsafe extern "C" fn program(args: *mut Slot) -> Slot {
        // SAFETY: as above.
        unsafe { set(args, 3, made(0x31)) };
        null_mut()
    }

    unsafe extern "C" fn outputs(args: *mut Slot) -> Slot {
        // SAFETY: as above.
        unsafe { set(args, 3, number(2)) };
        null_mut()
    }

    unsafe extern "C" fn serialize(args: *mut Slot) -> Slot {
        unsafe extern "C" fn delete(owner: *mut Slot) {
            assert_eq!(owner.addr(), 0x32);
            ALIVE.fetch_sub(1, Ordering::SeqCst);
        }
        // SAFETY: as above.
        unsafe {
            if !is(NOTHING_SERIALIZED) {
                set(args, 3, b"code".as_ptr().cast_mut().cast());
                set(args, 4, number(4));
            }
            set(args, 5, made(0x32));
            set(args, 6, delete as Infallible as Slot);
        }
        null_mut()
    }

    unsafe extern "C" fn execute(args: *mut Slot) -> Slot {
        // SAFETY: as above; there are two outputs.
        unsafe {
            let outputs = get(args, 7).cast::<*mut Slot>().read();
            outputs.write(made(0x40));
            if !is(NO_BUFFER) {
                outputs.add(1).write(made(0x41));
            }
        }
        null_mut()
    }

    unsafe extern "C" fn upload(args: *mut Slot) -> Slot {
        // SAFETY: as above.
        unsafe {
            if !is(NO_EVENT) {
                set(args, 13, made(0x50));
            }
            if !is(NO_BUFFER) {
                set(args, 14, made(0x40));
            }
        }
        null_mut()
    }

    unsafe extern "C" fn dims(args: *mut Slot) -> Slot {
        static DIMS: [i64; 2] = [2, 3];
        // SAFETY: as above.
        unsafe {
            let dims = DIMS.as_ptr().cast_mut().cast();
            set(args, 3, if is(NULL_DIMS) { null_mut() } else { dims });
            set(args, 4, number(if is(MANY_DIMS) { 1 << 40 } else { 2 }));
        }
        null_mut()
    }

    /// Writes sevens, and says so by an event.
    unsafe extern "C" fn download(args: *mut Slot) -> Slot {
        // SAFETY: as above; the target has as many bytes as it says.
        unsafe {
            get(args, 4).cast::<u8>().write_bytes(7, get(args, 5).addr());
            if !is(NO_EVENT) {
                set(args, 6, made(0x50));
            }
        }
        null_mut()
    }

    unsafe extern "C" fn ready(args: *mut Slot) -> Slot {
        if !is(NO_EVENT) {
            // SAFETY: as above.
            unsafe { set(args, 3, made(0x50)) };
        }
        null_mut()
    }

    fn outcome() -> Slot {
        if is(FAILED) { error(14, b"the device is gone") } else { null_mut() }
    }

    unsafe extern "C" fn on_ready(args: *mut Slot) -> Slot {
        if is(NO_CALLBACKS) {
            return error(12, b"no callbacks");
        }
        type Callee = unsafe extern "C" fn(Slot, Slot);
        // SAFETY: as above; the callback has this type.
        let (callee, user) =
            unsafe { (std::mem::transmute::<Slot, Callee>(get(args, 3)), get(args, 4)) };
        if is(ANOTHER_THREAD) {
            let user = user.expose_provenance();
            let call = move || {
                // So that the caller has no reference left.
                std::thread::sleep(std::time::Duration::from_millis(50));
                // SAFETY: what `OnReady` was given.
                unsafe { callee(null_mut(), std::ptr::with_exposed_provenance_mut(user)) };
            };
            std::thread::Builder::new().spawn(call).unwrap();
        } else {
            // SAFETY: as above.
            unsafe { callee(outcome(), user) };
        }
        null_mut()
    }

    unsafe extern "C" fn wait(_: *mut Slot) -> Slot {
        outcome()
    }

    pub(super) fn load() -> Api {
        let table = table()
            .with(Function::ClientCreate, create)
            .with(Function::ClientDestroy, client_destroyed)
            .with(Function::ClientAddressableDevices, devices)
            .with(Function::ClientCompile, compile)
            .with(Function::ExecutableDeserializeAndLoad, deserialize)
            .with(Function::LoadedExecutableAddressableDevices, devices_of_executable)
            .with(Function::LoadedExecutableGetExecutable, program)
            .with(Function::ExecutableNumOutputs, outputs)
            .with(Function::ExecutableSerialize, serialize)
            .with(Function::LoadedExecutableExecute, execute)
            .with(Function::ClientBufferFromHostBuffer, upload)
            .with(Function::BufferDimensions, dims)
            .with(Function::BufferToHostBuffer, download)
            .with(Function::BufferReadyEvent, ready)
            .with(Function::EventOnReady, on_ready)
            .with(Function::EventAwait, wait);
        let destroys = [
            Function::EventDestroy,
            Function::ExecutableDestroy,
            Function::LoadedExecutableDestroy,
            Function::BufferDestroy,
        ];
        destroys.into_iter().fold(table, |table, f| table.with(f, destroyed)).load().unwrap()
    }
}

/// Runs `test` with a client, a program and a buffer of a plugin that then becomes odd; all that the
/// plugin made is destroyed afterwards.
fn with_odd_plugin(odd: usize, test: impl FnOnce(&Arc<Client>, &Executable, Buffer)) {
    let _guard = plugin::IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    plugin::ODD.store(0, Ordering::SeqCst);
    let alive = plugin::ALIVE.load(Ordering::SeqCst);
    {
        let client = Client::create(plugin::load(), &[]).unwrap();
        let program = client.compile(b"", b"").unwrap();
        let buffer = client.upload(&vector(), 11, 0).unwrap();
        plugin::ODD.store(odd, Ordering::SeqCst);
        test(&client, &program, buffer);
    }
    plugin::ODD.store(0, Ordering::SeqCst);
    assert_eq!(plugin::ALIVE.load(Ordering::SeqCst), alive, "objects that nobody destroys");
}

fn vector() -> Tensor {
    Tensor::vector(&[1.0f32, 2.0]).unwrap()
}

fn outcome_of(buffer: &Buffer) -> Result<()> {
    let (sender, receiver) = mpsc::channel();
    buffer.on_ready(Box::new(move |outcome| sender.send(outcome).unwrap()));
    receiver.recv().unwrap()
}

fn downloaded(buffer: &Buffer, target: Tensor) -> Result<Tensor> {
    let (sender, receiver) = mpsc::channel();
    buffer.download(target, move |tensor| sender.send(tensor).unwrap());
    receiver.recv().unwrap()
}

#[test]
fn a_plain_plugin_works() {
    with_odd_plugin(0, |client, program, buffer| {
        assert_eq!(program.devices().unwrap(), [0]);
        assert_eq!(program.num_outputs().unwrap(), 2);
        assert_eq!(program.serialize().unwrap(), b"code");
        // Only a part of what lies in memory.
        assert_eq!(client.compile(&b"program"[..4], b"").unwrap().devices().unwrap(), [0]);
        assert_eq!(client.deserialize(b"code", b"").unwrap().devices().unwrap(), [0]);
        let e = client.deserialize(b"cod", b"").err().unwrap();
        assert_eq!((e.code(), e.message()), (Code::InvalidArgument, "no program"));
        assert_eq!(program.execute(&[&buffer], &[], 2).unwrap().len(), 2);
        assert_eq!(buffer.dims().unwrap(), [2, 3]);
        outcome_of(&buffer).unwrap();
        let shape = Shape::new(&[3]).unwrap();
        let bytes = Tensor::zeros(thalweg_tensor::DType::UInt8, shape.clone()).unwrap();
        assert_eq!(downloaded(&buffer, bytes).unwrap().as_slice::<u8>().unwrap(), [7; 3]);
        // A bool is 0 or 1, whatever a plugin writes.
        let bools = Tensor::zeros(thalweg_tensor::DType::Bool, shape).unwrap();
        assert_eq!(downloaded(&buffer, bools).unwrap().as_bytes().unwrap(), [1; 3]);
    });
}

#[test]
fn odd_clients_are_errors() {
    for odd in [plugin::NO_CLIENT, plugin::NO_DEVICES, plugin::MANY_DEVICES, plugin::NULL_DEVICE] {
        with_odd_plugin(odd, |_, _, _| {
            let e = Client::create(plugin::load(), &[]).err().unwrap();
            assert_eq!(e.code(), Code::Internal, "{odd}: {e}");
        });
    }
    with_odd_plugin(0, |client, _, _| {
        let e = client.device_info(0).err().unwrap();
        assert!(e.code() == Code::Unimplemented && e.message().contains("DeviceGetDescription"));
        assert_eq!(client.device_info(1).err().unwrap().code(), Code::InvalidArgument);
    });
}

#[test]
fn odd_programs_are_errors() {
    with_odd_plugin(plugin::FOREIGN_DEVICE, |_, program, _| {
        assert_eq!(program.devices().unwrap_err().code(), Code::Internal);
    });
    with_odd_plugin(plugin::NOTHING_SERIALIZED, |_, program, _| {
        assert_eq!(program.serialize().unwrap_err().code(), Code::Internal);
    });
    with_odd_plugin(plugin::NO_PROGRAM, |client, _, _| {
        assert_eq!(client.deserialize(b"code", b"").err().unwrap().code(), Code::Internal);
    });
    with_odd_plugin(plugin::NO_BUFFER, |client, program, buffer| {
        let e = program.execute(&[&buffer], &[], 2).err().unwrap();
        assert_eq!(e.code(), Code::Internal);
        assert_eq!(client.upload(&vector(), 11, 0).err().unwrap().code(), Code::Internal);
    });
}

#[test]
fn odd_buffers_are_errors() {
    for odd in [plugin::MANY_DIMS, plugin::NULL_DIMS] {
        with_odd_plugin(odd, |_, _, buffer| {
            assert_eq!(buffer.dims().unwrap_err().code(), Code::Internal);
        });
    }
    with_odd_plugin(plugin::FAILED, |_, _, buffer| {
        let e = downloaded(&buffer, vector()).unwrap_err();
        assert_eq!((e.code(), e.message()), (Code::Unavailable, "the device is gone"));
        assert_eq!(outcome_of(&buffer).unwrap_err().code(), Code::Unavailable);
    });
}

#[test]
fn memory_of_a_transfer_without_end_is_kept() {
    with_odd_plugin(plugin::NO_EVENT, |client, _, buffer| {
        let sent = vector();
        drop(client.upload(&sent, 11, 0).unwrap());
        assert!(!sent.is_unique());
        assert_eq!(outcome_of(&buffer).unwrap_err().code(), Code::Internal);
        assert_eq!(downloaded(&buffer, vector()).unwrap_err().code(), Code::Internal);
    });
}

#[test]
fn without_callbacks_the_caller_waits() {
    with_odd_plugin(plugin::NO_CALLBACKS, |client, _, buffer| {
        let sent = vector();
        drop(client.upload(&sent, 11, 0).unwrap());
        assert!(sent.is_unique());
        outcome_of(&buffer).unwrap();
        let tensor = downloaded(&buffer, vector()).unwrap();
        assert_eq!(tensor.as_bytes().unwrap(), [7; 8]);
    });
}

#[test]
fn no_client_ends_on_a_thread_of_its_own() {
    let _guard = plugin::IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    plugin::ODD.store(plugin::ANOTHER_THREAD, Ordering::SeqCst);
    plugin::DESTROYED_ON.lock().unwrap().clear();
    let (sender, receiver) = mpsc::channel();
    let client = Client::create(plugin::load(), &[]).unwrap();
    let program = client.compile(b"", b"").unwrap();
    let buffers = program.execute(&[], &[], 2).unwrap();
    buffers[0].on_ready(Box::new(move |_| sender.send(std::thread::current().id()).unwrap()));
    drop((client, program, buffers));
    let callback_thread = receiver.recv().unwrap();
    let destroyed_on = loop {
        if let Some(&thread) = plugin::DESTROYED_ON.lock().unwrap().first() {
            break thread;
        }
        std::thread::yield_now();
    };
    plugin::ODD.store(0, Ordering::SeqCst);
    assert!(destroyed_on != callback_thread && destroyed_on != std::thread::current().id());
}

#[test]
fn attributes_are_texts() {
    unsafe extern "C" fn attributes(args: *mut Slot) -> Slot {
        let text = |text: &'static [u8]| text.as_ptr().cast_mut().cast();
        static VERSION: [i64; 3] = [1, 20, 0];
        // Longer than what this caller knows.
        let attribute = |name: &'static [u8], kind: usize, value: Slot, count: usize| {
            let size = number(9 * size_of::<Slot>());
            let (start, length) = (text(name), number(name.len()));
            let (kind, count, end) = (number(kind), number(count), number(usize::MAX));
            [size, null_mut(), start, length, kind, value, count, end, end]
        };
        static LISTS: Mutex<Vec<Kept>> = Mutex::new(Vec::new());
        let list = [
            attribute(b"text", 0, text(b"value"), 5),
            attribute(b"int", 1, number(-5i64 as usize), 1),
            attribute(b"list", 2, VERSION.as_ptr().cast_mut().cast(), 3),
            attribute(b"float", 3, number(0.5f32.to_bits() as usize), 1),
            attribute(b"bool", 4, number(1), 1),
            attribute(b"other", 99, number(1), 1),
            attribute(b"no list", 2, null_mut(), 3),
        ];
        let mut lists = LISTS.lock().unwrap();
        lists.push(Kept(list.concat()));
        // SAFETY: the caller passes an argument struct.
        unsafe {
            set(args, 3, number(list.len()));
            set(args, 2, lists.last_mut().unwrap().0.as_mut_ptr().cast());
        }
        null_mut()
    }
    let api = table().with(Function::PluginAttributes, attributes).load().unwrap();
    let attributes = api.attributes().unwrap();
    let expected = [
        ("text", "value"),
        ("int", "-5"),
        ("list", "1.20.0"),
        ("float", "0.5"),
        ("bool", "true"),
        ("other", ""),
        ("no list", ""),
    ];
    assert_eq!(attributes, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));

    unsafe extern "C" fn short(args: *mut Slot) -> Slot {
        static SHORT: [usize; 7] = [8, 0, 0, 0, 0, 0, 0];
        // SAFETY: the caller passes an argument struct.
        unsafe {
            set(args, 2, SHORT.as_ptr().cast_mut().cast());
            set(args, 3, number(1));
        }
        null_mut()
    }
    let api = table().with(Function::PluginAttributes, short).load().unwrap();
    assert_eq!(api.attributes().unwrap_err().code(), Code::Internal);
    unsafe extern "C" fn absent(args: *mut Slot) -> Slot {
        // SAFETY: as above.
        unsafe { set(args, 3, number(3)) };
        null_mut()
    }
    let api = table().with(Function::PluginAttributes, absent).load().unwrap();
    assert_eq!(api.attributes().unwrap_err().code(), Code::Internal);
}
