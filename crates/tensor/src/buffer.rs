//! The memory of tensors: one block with a reference count, a shape and a dtype in its head, and
//! elements behind it or elsewhere.
//!
//! A tensor is one pointer wide, so moving it along an edge costs nothing, and making one takes one
//! recycled block. Views (a reshaped tensor that others hold, some rows of one) are blocks of their
//! own that keep their parent alive.

use std::any::Any;
use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::derived::Derived;
use crate::object::{ResourceHandle, VariantValue};
use crate::{Budget, Charge, DType, Result, Shape, recycle};

pub(crate) const BLOCK_ALIGN: usize = 64;
pub(crate) const HEADER_BYTES: usize = size_of::<Block>();

const _: () = assert!(HEADER_BYTES == 2 * BLOCK_ALIGN, "a head is two cache lines");

/// Head of an allocation. `data` points behind it, into a parent, or into foreign memory.
#[repr(C, align(64))]
pub(crate) struct Block {
    pub(crate) references: AtomicUsize,
    pub(crate) data: *mut u8,
    /// Bytes allocated behind the head.
    pub(crate) capacity: usize,
    /// `Arc<Budget>` as a raw pointer, or null; `capacity` bytes are charged to it.
    pub(crate) charge: AtomicPtr<Budget>,
    pub(crate) class: usize,
    /// Link in a free list.
    pub(crate) next: *mut Block,
    /// The block whose elements this one shows.
    pub(crate) parent: Option<Buffer>,
    pub(crate) content: Option<Box<Content>>,
    pub(crate) shape: Shape,
    pub(crate) dtype: DType,
    /// Whether a derived form was asked for: if not, there is none.
    pub(crate) was_asked: AtomicBool,
    /// What was derived from the elements. It goes before they change.
    pub(crate) derived: OnceLock<Box<Derived>>,
}

impl Block {
    /// Drops what was derived from the elements, which are about to change.
    #[inline]
    pub(crate) fn forget_derived(&mut self) {
        if *self.was_asked.get_mut() {
            self.take_derived();
        }
    }

    #[cold]
    fn take_derived(&mut self) {
        *self.was_asked.get_mut() = false;
        drop(self.derived.take());
    }
}

/// Elements that do not lie behind the head.
pub(crate) enum Content {
    /// Received or mapped bytes: readable, never written; held so that they stay.
    Bytes(#[expect(dead_code, reason = "it keeps the bytes alive")] Bytes),
    /// Memory of a device, which host code cannot read.
    Device(Arc<dyn DeviceMemory>),
    Strings(Objects<Bytes>),
    Resources(Objects<ResourceHandle>),
    Variants(Objects<VariantValue>),
}

/// Elements that are objects, with what they cost a budget.
pub(crate) struct Objects<T> {
    /// A scalar's one element lies here, without memory of its own.
    pub(crate) items: SmallVec<[T; 1]>,
    pub(crate) _charge: Option<Charge>,
}

/// Memory that only its device can read; the device downcasts it.
pub trait DeviceMemory: Any + Send + Sync {
    /// Name of the memory space, for messages.
    fn space(&self) -> &str;
    /// Size in bytes.
    fn len_bytes(&self) -> usize;
}

/// A reference to a block.
pub(crate) struct Buffer {
    block: NonNull<Block>,
}

// SAFETY: the count is atomic; a block changes only through `&mut self` of its only reference.
unsafe impl Send for Buffer {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Memory for `bytes`, charged to `budget` if there is one; the flag says that it is all zero.
    pub(crate) fn allocate(
        dtype: DType,
        shape: Shape,
        bytes: usize,
        budget: Option<&Arc<Budget>>,
    ) -> Result<(Buffer, bool)> {
        // Ask for the nominal size first, so that an absurd one never reaches the allocator.
        if let Some(budget) = budget {
            budget.check(bytes)?;
        }
        let (mut buffer, zeroed) = Self::new_block(dtype, shape, bytes)?;
        if let Some(budget) = budget {
            budget.take(buffer.head().capacity)?;
            // SAFETY: the block is new, so this is its only reference.
            *unsafe { buffer.block.as_mut() }.charge.get_mut() =
                Arc::into_raw(budget.clone()).cast_mut();
        }
        Ok((buffer, zeroed))
    }

    fn new_block(dtype: DType, shape: Shape, bytes: usize) -> Result<(Buffer, bool)> {
        let (mut block, zeroed) = recycle::allocate(bytes)?;
        // SAFETY: the block is new and nobody else refers to it.
        let head = unsafe { block.as_mut() };
        head.dtype = dtype;
        head.shape = shape;
        Ok((Buffer { block }, zeroed))
    }

    /// A block for elements that live elsewhere, at `data` if the host can read them.
    pub(crate) fn with_content(
        dtype: DType,
        shape: Shape,
        data: *mut u8,
        content: Content,
    ) -> Result<Buffer> {
        let (mut buffer, _) = Self::new_block(dtype, shape, 0)?;
        // SAFETY: the block is new and nobody else refers to it.
        let head = unsafe { buffer.block.as_mut() };
        head.data = data;
        head.content = Some(Box::new(content));
        Ok(buffer)
    }

    /// A block that shows the elements of this one from `offset_bytes` on.
    pub(crate) fn view(&self, dtype: DType, shape: Shape, offset_bytes: usize) -> Result<Buffer> {
        let (mut view, _) = Self::new_block(dtype, shape, 0)?;
        // SAFETY: the block is new and nobody else refers to it.
        let head = unsafe { view.block.as_mut() };
        head.data = self.head().data.wrapping_add(offset_bytes);
        head.parent = Some(self.root().clone());
        Ok(view)
    }

    #[inline]
    pub(crate) fn head(&self) -> &Block {
        // SAFETY: the block lives as long as any reference to it.
        unsafe { self.block.as_ref() }
    }

    /// The head for writing, if this is the only reference to it; what was derived from the elements
    /// goes.
    #[inline]
    pub(crate) fn head_mut(&mut self) -> Option<&mut Block> {
        if self.head().references.load(Ordering::Acquire) != 1 {
            return None;
        }
        // SAFETY: the only reference is borrowed mutably, so nobody else can reach the block.
        let head = unsafe { self.block.as_mut() };
        head.forget_derived();
        Some(head)
    }

    /// Where the elements lie, for writing, if this is the only way to them and they may be written;
    /// what was derived from them goes.
    #[inline]
    pub(crate) fn data_mut(&mut self) -> Option<*mut u8> {
        let head = self.head_mut()?;
        if let Some(parent) = &mut head.parent {
            parent.data_mut()?;
        } else if !is_written_here(head) {
            return None;
        }
        Some(head.data)
    }

    /// The block that holds the elements: this one, or its parent.
    pub(crate) fn root(&self) -> &Buffer {
        self.head().parent.as_ref().unwrap_or(self)
    }

    /// What holds the elements, if they do not lie behind a head.
    pub(crate) fn content(&self) -> Option<&Content> {
        self.root().head().content.as_deref()
    }

    /// The objects for writing, if nobody else can see them.
    pub(crate) fn content_mut(&mut self) -> Option<&mut Content> {
        let head = self.head_mut()?;
        match &mut head.parent {
            Some(parent) => parent.head_mut()?.content.as_deref_mut(),
            None => head.content.as_deref_mut(),
        }
    }

    /// Whether this is the only way to the elements, and they may be written.
    #[inline]
    pub(crate) fn is_unique(&self) -> bool {
        let head = self.head();
        if head.references.load(Ordering::Acquire) != 1 {
            return false;
        }
        match &head.parent {
            Some(parent) => parent.is_unique(),
            None => is_written_here(head),
        }
    }

    /// Moves the charge for the elements' memory to another budget.
    pub(crate) fn charge_to(&self, budget: &Arc<Budget>) -> Result<()> {
        let head = self.root().head();
        budget.take(head.capacity)?;
        let raw = Arc::into_raw(budget.clone()).cast_mut();
        uncharge(head.charge.swap(raw, Ordering::AcqRel), head.capacity);
        if let Some(derived) = head.derived.get() {
            // Where there is no room for it, whoever made it goes on paying.
            let _ = derived.elements.charge_to(budget);
        }
        Ok(())
    }

    /// Whether two references are to the same block.
    pub(crate) fn is_same(&self, other: &Buffer) -> bool {
        self.block == other.block
    }
}

/// Whether the elements of a block are neither someone else's bytes nor a device's.
#[inline]
fn is_written_here(head: &Block) -> bool {
    !matches!(head.content.as_deref(), Some(Content::Bytes(_) | Content::Device(_)))
}

fn uncharge(raw: *mut Budget, capacity: usize) {
    if !raw.is_null() {
        // SAFETY: the pointer came from `Arc::into_raw` and is taken back once.
        unsafe { Arc::from_raw(raw) }.give_back(capacity);
    }
}

impl Clone for Buffer {
    #[inline]
    fn clone(&self) -> Buffer {
        // Relaxed suffices to add a reference: the existing one keeps the block alive.
        let before = self.head().references.fetch_add(1, Ordering::Relaxed);
        assert!(before < usize::MAX / 2, "a tensor has too many references");
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
        release(self.block);
    }
}

/// Empties a block that nobody refers to any more and gives it back.
fn release(mut block: NonNull<Block>) {
    // SAFETY: the count fell to zero (or was one and the caller's), so access is exclusive.
    let head = unsafe { block.as_mut() };
    head.forget_derived();
    let charge = std::mem::replace(head.charge.get_mut(), null_mut());
    if !charge.is_null() {
        uncharge(charge, head.capacity);
    }
    if head.shape.is_on_heap() {
        head.shape = Shape::scalar();
    }
    if head.content.is_some() || head.parent.is_some() {
        // Behind a lock of their own or deep in a chain, drops may run long: take them out first.
        drop((head.content.take(), head.parent.take()));
        // SAFETY: the data of a recycled block lie behind its head again.
        head.data = unsafe { block.as_ptr().cast::<u8>().add(HEADER_BYTES) };
    }
    recycle::release(block);
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:p})", self.block)
    }
}
