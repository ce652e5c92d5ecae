//! The words of PJRT's C interface: the functions of the table by index, and argument structs.
//!
//! An argument struct is a run of 8-byte slots: its size, a list of extensions (none here), then the
//! fields. A plugin accepts structs that are larger than those it knows and ignores the rest, and it
//! takes zero as the absence of a field that it knows and this caller does not. So every call passes
//! [`SLOTS`] zeroed slots, which also leaves room for whatever a later version returns.

use std::ffi::c_void;
use std::ptr::{null_mut, without_provenance_mut};

use thalweg_tensor::{Result, ensure};

use crate::pjrt::OptionValue;

const _: () = assert!(
    size_of::<usize>() == 8 && cfg!(target_endian = "little"),
    "the layout of PJRT's structs is known for 64-bit little-endian processors only"
);

/// A field of an argument struct: an address, or a number in its low bytes.
pub(super) type Slot = *mut c_void;

/// Slots of an argument struct. PJRT's longest has less than 30.
pub(super) const SLOTS: usize = 64;

/// Slots of the table before its functions: size, extensions, and the version's size, extensions,
/// numbers.
pub(super) const HEADER_SLOTS: usize = 5;

/// Slots of a `PJRT_NamedValue`, which plugins read as an array.
pub(super) const NAMED_VALUE_SLOTS: usize = 7;

/// Slots of a `PJRT_Buffer_MemoryLayout`.
const LAYOUT_SLOTS: usize = 10;

/// The most bytes that are read of a text of the plugin: longer texts are cut.
pub(super) const TEXT_BYTES_MAX: usize = 4096;

/// The most objects (devices, attributes, outputs) that a plugin may name at once.
pub(super) const COUNT_MAX: usize = 1 << 16;

/// The functions used here, by their index in the table.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(usize)]
pub(super) enum Function {
    ErrorDestroy = 0,
    ErrorMessage = 1,
    ErrorGetCode = 2,
    PluginInitialize = 3,
    PluginAttributes = 4,
    EventDestroy = 5,
    EventAwait = 8,
    EventOnReady = 9,
    ClientCreate = 10,
    ClientDestroy = 11,
    ClientPlatformName = 12,
    ClientPlatformVersion = 14,
    ClientAddressableDevices = 16,
    ClientCompile = 20,
    ClientBufferFromHostBuffer = 22,
    DeviceDescriptionId = 23,
    DeviceDescriptionKind = 26,
    DeviceDescriptionDebugString = 27,
    DeviceGetDescription = 29,
    DeviceMemoryStats = 34,
    ExecutableDestroy = 40,
    ExecutableNumOutputs = 44,
    ExecutableSerialize = 49,
    LoadedExecutableDestroy = 50,
    LoadedExecutableGetExecutable = 51,
    LoadedExecutableAddressableDevices = 52,
    LoadedExecutableExecute = 55,
    ExecutableDeserializeAndLoad = 56,
    BufferDestroy = 58,
    BufferElementType = 59,
    BufferDimensions = 60,
    BufferOnDeviceSizeInBytes = 64,
    BufferIsDeleted = 68,
    BufferCopyToDevice = 69,
    BufferToHostBuffer = 70,
    BufferReadyEvent = 72,
}

/// Functions of a table that has all of [`Function`].
pub(super) const FUNCTIONS: usize = Function::BufferReadyEvent as usize + 1;

pub(super) fn number(n: usize) -> Slot {
    without_provenance_mut(n)
}

pub(super) fn array<T>(items: &[T]) -> Slot {
    items.as_ptr().cast_mut().cast()
}

/// An argument struct.
pub(super) struct Args(pub(super) [Slot; SLOTS]);

impl Args {
    /// A struct with these fields; the others are zero.
    pub(super) fn new(fields: &[Slot]) -> Args {
        let mut slots = [null_mut(); SLOTS];
        slots[0] = number(size_of_val(&slots));
        slots[2..2 + fields.len()].copy_from_slice(fields);
        Args(slots)
    }

    pub(super) fn as_slot(&mut self) -> Slot {
        self.0.as_mut_ptr().cast()
    }

    pub(super) fn number(&self, slot: usize) -> usize {
        self.0[slot].addr()
    }

    /// A C `int` or enum.
    pub(super) fn int(&self, slot: usize) -> i32 {
        self.number(slot) as i32
    }

    /// A C `bool`.
    pub(super) fn flag(&self, slot: usize) -> bool {
        self.number(slot) as u8 != 0
    }

    /// How many items the plugin returned.
    pub(super) fn count(&self, slot: usize, most: usize) -> Result<usize> {
        let n = self.number(slot);
        ensure!(n <= most, Internal, "the PJRT plugin returned {n} items, more than {most}");
        Ok(n)
    }
}

/// A struct of the kind `PJRT_NamedValue`, which refers to name and value.
pub(super) fn named_value(name: &str, value: &OptionValue) -> [Slot; NAMED_VALUE_SLOTS] {
    let (kind, value, count) = match value {
        OptionValue::Str(s) => (0, array(s.as_bytes()), s.len()),
        OptionValue::Int(n) => (1, number(*n as usize), 1),
        OptionValue::IntList(list) => (2, array(list), list.len()),
        OptionValue::Float(x) => (3, number(x.to_bits() as usize), 1),
        OptionValue::Bool(b) => (4, number(usize::from(*b)), 1),
    };
    let bytes = number(NAMED_VALUE_SLOTS * size_of::<Slot>());
    let (name, name_bytes) = (array(name.as_bytes()), number(name.len()));
    [bytes, null_mut(), name, name_bytes, number(kind), value, number(count)]
}

/// A struct of the kind `PJRT_Buffer_MemoryLayout`: dense, in this order from minor to major.
pub(super) fn dense_layout(minor_to_major: &[i64]) -> [Slot; LAYOUT_SLOTS] {
    let zero = null_mut();
    let tiled_bytes = number(7 * size_of::<Slot>());
    let (order, rank) = (array(minor_to_major), number(minor_to_major.len()));
    // The layout's own head, the seven fields of a tiled one, and 0 for tiled.
    let bytes = number(LAYOUT_SLOTS * size_of::<Slot>());
    [bytes, zero, tiled_bytes, zero, order, rank, zero, zero, zero, zero]
}
