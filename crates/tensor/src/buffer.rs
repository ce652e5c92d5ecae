//! Reference-counted blocks that hold tensors: a header with reference count, dtype and shape, and
//! the elements after it or elsewhere.
//!
//! A tensor is one pointer to a block, so moving it along an edge moves one word, and making one
//! takes one block of the recycling allocator. Elements that lie elsewhere have a handle, the
//! [`Content`], where plain elements would be. A view (a tensor that is reshaped while it is shared, a
//! range of rows) is a block without elements of its own that keeps its parent alive.
//!
//! A block that is charged to a budget is charged for [`charged_bytes`]: its header, the memory after
//! it and, where elements are objects, their slots. Views and blocks that kernels make without a
//! budget are charged when something keeps them ([`Buffer::ensure_charged`]).

use std::any::Any;
use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::derived::Derived;
use crate::object::{ResourceHandle, VariantValue};
use crate::{Budget, DType, Result, Shape, Tensor, recycle};

pub(crate) const BLOCK_ALIGN: usize = 64;
pub(crate) const HEADER_BYTES: usize = size_of::<Block>();

const _: () = assert!(HEADER_BYTES == 2 * BLOCK_ALIGN, "a header is two cache lines");
const _: () =
    assert!(size_of::<Content>() <= recycle::DATA_BYTES_MIN, "every block has space for one");
const _: () = assert!(align_of::<Content>() <= BLOCK_ALIGN, "data are aligned for it");

/// Header of an allocation. `data` points behind it, into a parent, or into foreign memory.
#[repr(C, align(64))]
pub(crate) struct Block {
    pub(crate) references: AtomicUsize,
    pub(crate) data: *mut u8,
    /// Bytes allocated behind the header.
    pub(crate) capacity: usize,
    /// `Arc<Budget>` as a raw pointer, or null; [`charged_bytes`] are charged to it.
    pub(crate) charge: AtomicPtr<Budget>,
    /// What a budget is charged for the slots of objects. It does not change when objects are moved
    /// out.
    pub(crate) slot_bytes: usize,
    pub(crate) class: usize,
    /// Link in a free list.
    pub(crate) next: *mut Block,
    /// The block whose elements this one is a view of.
    pub(crate) parent: Option<Buffer>,
    pub(crate) shape: Shape,
    pub(crate) dtype: DType,
    /// Whether a [`Content`] lies behind the header.
    pub(crate) has_content: bool,
    /// Whether the elements are received bytes or in device memory, which is never written.
    pub(crate) is_foreign: bool,
    /// Whether a derived form was requested: if not, there is none.
    pub(crate) was_asked: AtomicBool,
    /// The derived form of the elements. It is dropped before the elements change.
    pub(crate) derived: OnceLock<Box<Derived>>,
}

impl Block {
    /// Drops the derived form of the elements, which are about to change.
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

/// Elements that do not lie behind the header.
pub(crate) enum Content {
    /// Received or mapped bytes: readable, never written.
    Bytes(#[expect(dead_code, reason = "it keeps the bytes alive")] Bytes),
    /// Memory of a device, which host code cannot read.
    Device(Arc<dyn DeviceMemory>),
    Strings(Objects<Bytes>),
    /// Boxed: an inline handle would not fit behind the header.
    Resources(Box<Objects<ResourceHandle>>),
    Variants(Objects<VariantValue>),
}

/// Elements that are objects. A scalar's one element is stored inline.
pub(crate) type Objects<T> = SmallVec<[T; 1]>;

/// Memory that only its device can read; the device downcasts it.
pub trait DeviceMemory: Any + Send + Sync {
    /// Name of the memory space, for messages.
    fn space(&self) -> &str;
    /// Size in bytes.
    fn len_bytes(&self) -> usize;
    /// A copy in host memory. Blocks until the device has computed the elements.
    fn read(&self) -> Result<Tensor>;
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
        // Charged before it is allocated, so that an absurd size never reaches the allocator.
        let reserved = Reserved::new(recycle::capacity(bytes), budget)?;
        let (mut buffer, zeroed) = Self::new_block(dtype, shape, bytes)?;
        buffer.set_charge(reserved);
        Ok((buffer, zeroed))
    }

    /// Hands a new block the charge for it.
    #[inline]
    fn set_charge(&mut self, reserved: Reserved<'_>) {
        debug_assert_eq!(reserved.bytes, charged_bytes(self.head()));
        // SAFETY: only called on new blocks, so this is the only reference.
        *unsafe { self.block.as_mut() }.charge.get_mut() = reserved.into_raw();
    }

    fn new_block(dtype: DType, shape: Shape, bytes: usize) -> Result<(Buffer, bool)> {
        let (mut block, zeroed) = recycle::allocate(bytes)?;
        // SAFETY: the block is new, so this is its only reference.
        let head = unsafe { block.as_mut() };
        head.dtype = dtype;
        head.shape = shape;
        Ok((Buffer { block }, zeroed))
    }

    /// A block for elements that are stored elsewhere, at `data` if the host can read them, and the
    /// charge for it.
    pub(crate) fn with_content(
        dtype: DType,
        shape: Shape,
        data: *mut u8,
        content: Content,
        reserved: Reserved<'_>,
    ) -> Result<Buffer> {
        let (mut buffer, _) = Self::new_block(dtype, shape, 0)?;
        let is_foreign = matches!(content, Content::Bytes(_) | Content::Device(_));
        // SAFETY: the block is new, so this is its only reference; every block has memory for a
        // content behind its header, and this one has none yet.
        let head = unsafe {
            content_of(buffer.block).write(content);
            buffer.block.as_mut()
        };
        head.data = data;
        (head.has_content, head.is_foreign) = (true, is_foreign);
        head.slot_bytes = reserved.bytes - HEADER_BYTES - head.capacity;
        buffer.set_charge(reserved);
        Ok(buffer)
    }

    /// A view of the elements of this block from `offset_bytes` on. It is not charged: most views go with
    /// the step that makes them.
    pub(crate) fn view(&self, dtype: DType, shape: Shape, offset_bytes: usize) -> Result<Buffer> {
        let (mut view, _) = Self::new_block(dtype, shape, 0)?;
        // SAFETY: the block is new, so this is its only reference.
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

    /// The header for writing, if this is the only reference to it; drops the derived form.
    #[inline]
    pub(crate) fn head_mut(&mut self) -> Option<&mut Block> {
        if self.head().references.load(Ordering::Acquire) != 1 {
            return None;
        }
        // SAFETY: the only reference is borrowed mutably, so no other thread can reach the block.
        let head = unsafe { self.block.as_mut() };
        head.forget_derived();
        Some(head)
    }

    /// The address of the elements, for writing, if this is the only reference to them and they may be
    /// written; drops the derived form.
    #[inline]
    pub(crate) fn data_mut(&mut self) -> Option<*mut u8> {
        let head = self.head_mut()?;
        if let Some(parent) = &mut head.parent {
            parent.data_mut()?;
        } else if head.is_foreign {
            return None;
        }
        Some(head.data)
    }

    /// The block that holds the elements: this one, or its parent.
    pub(crate) fn root(&self) -> &Buffer {
        self.head().parent.as_ref().unwrap_or(self)
    }

    /// The elements, if they do not lie behind a header.
    pub(crate) fn content(&self) -> Option<&Content> {
        let root = self.root();
        // SAFETY: the flag says that there is a content; it changes only through `&mut self` of the
        // block's only reference.
        root.head().has_content.then(|| unsafe { &*content_of(root.block) })
    }

    /// The objects for writing, if no other tensor shares them.
    pub(crate) fn content_mut(&mut self) -> Option<&mut Content> {
        self.head_mut()?;
        // SAFETY: this is the only reference to the block.
        let root = match unsafe { &mut self.block.as_mut().parent } {
            Some(parent) => parent,
            None => self,
        };
        let has_content = root.head_mut()?.has_content;
        // SAFETY: the flag says that there is a content, and this is the only reference to its block.
        has_content.then(|| unsafe { &mut *content_of(root.block) })
    }

    /// Whether this is the only reference to the elements, and they may be written.
    #[inline]
    pub(crate) fn is_unique(&self) -> bool {
        let head = self.head();
        if head.references.load(Ordering::Acquire) != 1 {
            return false;
        }
        match &head.parent {
            Some(parent) => parent.is_unique(),
            None => !head.is_foreign,
        }
    }

    /// Whether there is another reference to the elements.
    pub(crate) fn is_shared(&self) -> bool {
        let head = self.head();
        head.references.load(Ordering::Acquire) != 1
            || head.parent.as_ref().is_some_and(Buffer::is_shared)
    }

    /// Moves the charge for the elements' memory to another budget.
    pub(crate) fn charge_to(&self, budget: &Arc<Budget>) -> Result<()> {
        let head = self.root().head();
        let bytes = charged_bytes(head);
        // The block counts as not charged meanwhile. Another thread may then charge it first.
        let before = head.charge.swap(null_mut(), Ordering::AcqRel);
        if before.is_null() {
            self.root().charge_first(budget)?;
        } else {
            // SAFETY: the pointer came from `Arc::into_raw` and was taken out of the header once.
            let before = unsafe { Arc::from_raw(before.cast_const()) };
            let moved = Budget::transfer(&before, budget, bytes);
            let holder = if moved.is_ok() { budget.clone() } else { before };
            set_first(head, Arc::into_raw(holder).cast_mut());
            moved?;
        }
        if let Some(derived) = head.derived.get() {
            // If it does not fit, the budget that it was made with stays charged.
            let _ = derived.elements.charge_to(budget);
        }
        Ok(())
    }

    /// Charges this block and its parent to `budget`, each unless it is charged already.
    #[inline]
    pub(crate) fn ensure_charged(&self, budget: &Arc<Budget>) -> Result<()> {
        let head = self.head();
        if head.charge.load(Ordering::Relaxed).is_null() {
            self.charge_first(budget)?;
        }
        head.parent.as_ref().map_or(Ok(()), |parent| parent.ensure_charged(budget))
    }

    /// As [`Buffer::ensure_charged`], but a block that is not charged and has no other reference
    /// stays so: its bytes are returned.
    #[inline]
    pub(crate) fn uncharged_bytes(&self, budget: &Arc<Budget>) -> Result<usize> {
        let head = self.head();
        // Acquire as in `is_unique`: another thread may have charged the block before it let go.
        if head.references.load(Ordering::Acquire) != 1 {
            self.ensure_charged(budget)?;
        }
        if let Some(parent) = &head.parent {
            parent.ensure_charged(budget)?;
        }
        let is_charged = !head.charge.load(Ordering::Relaxed).is_null();
        Ok(if is_charged { 0 } else { charged_bytes(head) })
    }

    fn charge_first(&self, budget: &Arc<Budget>) -> Result<()> {
        let head = self.head();
        set_first(head, Reserved::all(charged_bytes(head), Some(budget))?.into_raw());
        Ok(())
    }

    /// Whether two references are to the same block.
    pub(crate) fn is_same(&self, other: &Buffer) -> bool {
        self.block == other.block
    }
}

/// Where a block has its content, if it has one: where plain elements would be.
#[inline]
fn content_of(block: NonNull<Block>) -> *mut Content {
    // SAFETY: a block's allocation goes on behind its header.
    unsafe { block.as_ptr().cast::<u8>().add(HEADER_BYTES).cast() }
}

/// Bytes charged to a budget, if there is one, for a block that does not exist yet.
pub(crate) struct Reserved<'a> {
    budget: Option<&'a Arc<Budget>>,
    bytes: usize,
}

impl<'a> Reserved<'a> {
    /// Charges for a block with `bytes` behind its header.
    #[inline]
    pub(crate) fn new(bytes: usize, budget: Option<&'a Arc<Budget>>) -> Result<Reserved<'a>> {
        Self::all(bytes.saturating_add(HEADER_BYTES), budget)
    }

    /// Charges for a block whose objects have slots of `slot_bytes` together.
    pub(crate) fn slots(
        slot_bytes: usize,
        budget: Option<&'a Arc<Budget>>,
    ) -> Result<Reserved<'a>> {
        Self::new(slot_bytes.saturating_add(recycle::capacity(0)), budget)
    }

    #[inline]
    fn all(bytes: usize, budget: Option<&'a Arc<Budget>>) -> Result<Reserved<'a>> {
        if let Some(budget) = budget {
            budget.take(bytes)?;
        }
        Ok(Reserved { budget, bytes })
    }

    /// The budget as [`Block::charge`] has it; the bytes stay charged.
    #[inline]
    fn into_raw(mut self) -> *mut Budget {
        self.budget.take().map_or(null_mut(), |budget| Arc::into_raw(budget.clone()).cast_mut())
    }
}

impl Drop for Reserved<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(budget) = self.budget {
            budget.give_back(self.bytes);
        }
    }
}

/// What a block is charged for: header, memory behind it, slots of objects.
#[inline]
fn charged_bytes(head: &Block) -> usize {
    HEADER_BYTES + head.capacity + head.slot_bytes
}

/// Hands a block that is not charged its charge; returns the bytes if another thread was first.
fn set_first(head: &Block, raw: *mut Budget) {
    let set = head.charge.compare_exchange(null_mut(), raw, Ordering::AcqRel, Ordering::Relaxed);
    if set.is_err() {
        uncharge(raw, charged_bytes(head));
    }
}

fn uncharge(raw: *mut Budget, bytes: usize) {
    if !raw.is_null() {
        // SAFETY: the pointer came from `Arc::into_raw` and is taken back once.
        unsafe { Arc::from_raw(raw) }.give_back(bytes);
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
        // The last owner needs no atomic write: no other thread can add a reference to a unique block.
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

/// Empties a block without references and returns it to the recycling allocator.
fn release(mut block: NonNull<Block>) {
    // SAFETY: the count fell to zero (or was one and the caller's), so access is exclusive.
    let head = unsafe { block.as_mut() };
    head.forget_derived();
    let charge = std::mem::replace(head.charge.get_mut(), null_mut());
    if !charge.is_null() {
        uncharge(charge, charged_bytes(head));
    }
    if head.shape.is_on_heap() {
        head.shape = Shape::scalar();
    }
    if head.has_content || head.parent.is_some() {
        empty(block);
    }
    recycle::release(block);
}

/// Drops what a block without references holds; its data lie behind its header afterwards.
fn empty(mut block: NonNull<Block>) {
    let data = content_of(block);
    // SAFETY: as in `release`.
    let head = unsafe { block.as_mut() };
    let parent = head.parent.take();
    let content = std::mem::take(&mut head.has_content).then(|| {
        // SAFETY: there is a content. It is moved out once, since the flag is cleared; the memory
        // becomes initialised again, as that of all free blocks.
        unsafe {
            let content = data.read();
            data.cast::<u8>().write_bytes(0, size_of::<Content>());
            content
        }
    });
    (head.is_foreign, head.slot_bytes, head.data) = (false, 0, data.cast());
    // Dropping them may take long (deep nesting, locks), so it comes last.
    drop((content, parent));
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:p})", self.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tensor;

    #[test]
    fn a_keeper_charges_only_what_nothing_else_does() {
        let budget = Budget::new(1 << 20);
        let string = Tensor::scalar_string("abc");
        let bytes = string.uncharged_bytes(&budget).unwrap();
        assert!(bytes > HEADER_BYTES);
        assert_eq!(budget.used_bytes(), 0);
        // With a second reference, the block itself is charged.
        let other = string.clone();
        assert_eq!(string.uncharged_bytes(&budget).unwrap(), 0);
        assert_eq!(budget.used_bytes(), bytes);
        drop(string);
        assert_eq!(other.uncharged_bytes(&budget).unwrap(), 0);
        drop(other);
        assert_eq!(budget.used_bytes(), 0);

        // A view counts for its header, and its parent is charged.
        let numbers = Tensor::vector(&[0f32; 1000]).unwrap();
        let view = numbers.rows(0, 10, None).unwrap();
        drop(numbers);
        assert!(view.uncharged_bytes(&budget).unwrap() < 1000);
        assert!(budget.used_bytes() >= 4000);
        assert_eq!(view.uncharged_bytes(&Budget::new(0)).unwrap_or(0), HEADER_BYTES + 64);
        drop(view);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn objects_of_every_kind_are_dropped_once() {
        let held: Arc<str> = "device".into();
        let handle = ResourceHandle { device: held.clone(), ..ResourceHandle::default() };
        let tensor =
            Tensor::from_resources(Shape::new(&[2]).unwrap(), vec![handle.clone(), handle]);
        let mut tensor = tensor.unwrap();
        assert_eq!(Arc::strong_count(&held), 3);
        let copy = tensor.deep_copy(None).unwrap();
        assert_eq!(Arc::strong_count(&held), 5);
        tensor.resources_mut().unwrap()[0] = ResourceHandle::default();
        assert_eq!(Arc::strong_count(&held), 4);
        drop((tensor, copy));
        assert_eq!(Arc::strong_count(&held), 1);

        let bytes = Bytes::from(vec![7u8; 64]);
        let view = Tensor::from_bytes(DType::UInt8, Shape::new(&[64]).unwrap(), bytes.clone());
        let view = view.unwrap();
        assert!(!view.is_unique() && !bytes.is_unique());
        drop(view);
        assert!(bytes.is_unique());
        assert_eq!(Tensor::scalar(5i64).scalar_value::<i64>().unwrap(), 5);
    }
}
