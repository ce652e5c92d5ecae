//! Shared memory of tensors: one header with a reference count, data behind it or elsewhere.

use std::any::Any;
use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};

use bytes::Bytes;

use crate::{Budget, Result, recycle};

pub(crate) const BLOCK_ALIGN: usize = 64;
pub(crate) const HEADER_BYTES: usize = size_of::<Block>();

/// Head of an allocation. `data` points behind it, or into foreign memory.
#[repr(C, align(64))]
pub(crate) struct Block {
    pub(crate) references: AtomicUsize,
    pub(crate) data: *mut u8,
    /// Bytes allocated behind the header.
    pub(crate) capacity: usize,
    /// `Arc<Budget>` as a raw pointer, or null; `capacity` bytes are charged to it.
    pub(crate) charge: AtomicPtr<Budget>,
    pub(crate) foreign: Option<Box<Foreign>>,
    pub(crate) class: usize,
    /// Link in a free list.
    pub(crate) next: *mut Block,
}

/// Memory that a buffer shows but did not allocate.
pub(crate) enum Foreign {
    /// Received or mapped bytes: readable, never written.
    Bytes(#[expect(dead_code, reason = "it keeps the bytes alive")] Bytes),
    /// Memory of a device, which host code cannot read.
    Device(Arc<dyn DeviceMemory>),
}

/// Memory that only its device can read; the device downcasts it.
pub trait DeviceMemory: Any + Send + Sync {
    /// Name of the memory space, for messages.
    fn space(&self) -> &str;
    /// Size in bytes.
    fn len_bytes(&self) -> usize;
}

/// Reference-counted memory, 64-byte aligned when it is ours.
///
/// A buffer is plain bytes; [`crate::Tensor`] gives them a type. It is unique when this is the only
/// reference and the memory is ours to write.
pub struct Buffer {
    block: NonNull<Block>,
}

// SAFETY: the count is atomic; data are written only through `as_mut_ptr`'s unique `&mut self`.
unsafe impl Send for Buffer {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Memory for `bytes`, charged to `budget` if there is one; the flag says that it is all zero.
    pub(crate) fn allocate(bytes: usize, budget: Option<&Arc<Budget>>) -> Result<(Buffer, bool)> {
        // Take the nominal size first, so that an absurd one never reaches the allocator.
        if let Some(budget) = budget {
            budget.take(bytes)?;
        }
        let allocated = recycle::allocate(bytes);
        if let Some(budget) = budget {
            budget.give_back(bytes);
        }
        let (block, zeroed) = allocated?;
        let buffer = Buffer { block };
        if let Some(budget) = budget {
            buffer.charge_to(Some(budget))?;
        }
        Ok((buffer, zeroed))
    }

    /// A view of bytes that came from elsewhere.
    pub(crate) fn from_bytes(bytes: Bytes) -> Result<Buffer> {
        let (block, _) = recycle::allocate(0)?;
        // SAFETY: the block is new and nobody else refers to it.
        unsafe {
            (*block.as_ptr()).data = bytes.as_ptr().cast_mut();
            (*block.as_ptr()).foreign = Some(Box::new(Foreign::Bytes(bytes)));
        }
        Ok(Buffer { block })
    }

    /// A handle to device memory.
    pub(crate) fn from_device(memory: Arc<dyn DeviceMemory>) -> Result<Buffer> {
        let (block, _) = recycle::allocate(0)?;
        // SAFETY: the block is new and nobody else refers to it.
        unsafe { (*block.as_ptr()).foreign = Some(Box::new(Foreign::Device(memory))) };
        Ok(Buffer { block })
    }

    #[inline]
    fn head(&self) -> &Block {
        // SAFETY: the block lives as long as any reference to it.
        unsafe { self.block.as_ref() }
    }

    /// Start of the bytes; null for device memory.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *const u8 {
        match self.head().foreign.as_deref() {
            Some(Foreign::Device(_)) => null_mut(),
            _ => self.head().data,
        }
    }

    /// Start of the bytes for writing, if nobody else can see them.
    #[inline]
    pub(crate) fn as_mut_ptr(&mut self) -> Option<*mut u8> {
        self.is_unique().then(|| self.head().data)
    }

    /// The device memory this refers to, if it is that.
    #[inline]
    pub fn device_memory(&self) -> Option<&Arc<dyn DeviceMemory>> {
        match self.head().foreign.as_deref() {
            Some(Foreign::Device(memory)) => Some(memory),
            _ => None,
        }
    }

    /// Whether this is the only reference to memory of our own.
    #[inline]
    pub fn is_unique(&self) -> bool {
        self.head().foreign.is_none() && self.head().references.load(Ordering::Acquire) == 1
    }

    /// Whether two buffers are the same memory.
    pub fn is_same(&self, other: &Buffer) -> bool {
        self.block == other.block
    }

    /// Moves the charge for this memory to another budget, or to none.
    pub(crate) fn charge_to(&self, budget: Option<&Arc<Budget>>) -> Result<()> {
        let capacity = self.head().capacity;
        let raw = match budget {
            Some(budget) => {
                budget.take(capacity)?;
                Arc::into_raw(budget.clone()).cast_mut()
            }
            None => null_mut(),
        };
        uncharge(self.head().charge.swap(raw, Ordering::AcqRel), capacity);
        Ok(())
    }
}

fn uncharge(raw: *mut Budget, capacity: usize) {
    if !raw.is_null() {
        // SAFETY: the pointer came from `Arc::into_raw` in `charge_to` and is taken back once.
        unsafe { Arc::from_raw(raw) }.give_back(capacity);
    }
}

impl Clone for Buffer {
    #[inline]
    fn clone(&self) -> Buffer {
        // Relaxed suffices to add a reference: the existing one keeps the block alive.
        let before = self.head().references.fetch_add(1, Ordering::Relaxed);
        assert!(before < usize::MAX / 2, "a buffer has too many references");
        Buffer { block: self.block }
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        // The last owner needs no atomic write: nobody can add a reference to a unique one.
        let references = &self.head().references;
        if references.load(Ordering::Acquire) != 1 {
            if references.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            fence(Ordering::Acquire);
        }
        // SAFETY: the count fell to zero (or was one and ours), so access is exclusive.
        let block = unsafe { self.block.as_mut() };
        let charge = std::mem::replace(block.charge.get_mut(), null_mut());
        if !charge.is_null() {
            uncharge(charge, block.capacity);
        }
        if block.foreign.take().is_some() {
            // SAFETY: the data of a recycled block lie behind its header again.
            block.data = unsafe { self.block.as_ptr().cast::<u8>().add(HEADER_BYTES) };
        }
        recycle::release(self.block);
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:p})", self.block)
    }
}
