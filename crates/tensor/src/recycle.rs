//! Recycling allocator of tensor blocks: size-class free lists in front of the system allocator.
//!
//! A step makes tensors of the same sizes every time, and the page faults of a fresh large allocation
//! cost more than the kernel that fills it. Free small blocks are kept in per-thread lists without a
//! lock; the overflow of those, and large blocks, are kept in shared lists up to
//! [`SHARED_BYTES_MAX`]. Free blocks are charged to no budget.
//!
//! Allocated memory is initialised (zeroes, or what an earlier block left), so kernels may view it as
//! numbers before they write it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::{Cell, UnsafeCell};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::buffer::{BLOCK_ALIGN, Block, HEADER_BYTES};
use crate::{DType, Result, Shape, err};

/// Bytes behind the header of the smallest blocks.
pub(crate) const DATA_BYTES_MIN: usize = 64;
/// Classes alternate between 64·2ⁱ and 96·2ⁱ bytes of data, up to 1 GiB.
const CLASSES: usize = 49;
/// Class of blocks above the largest class: they return to the system when they are freed.
const UNCLASSED: usize = usize::MAX;
/// Classes up to 48 KiB are cached per thread.
const THREAD_CLASSES: usize = 20;
/// Blocks of each class that a thread keeps; with more, it moves half of them to the shared list, and
/// with none it takes as many from there.
const THREAD_BLOCKS_MAX: usize = 64;
/// Bytes that the shared lists keep together; further blocks return to the system.
const SHARED_BYTES_MAX: usize = 1 << 30;

static SHARED: [Mutex<List>; CLASSES] = [const { Mutex::new(List::EMPTY) }; CLASSES];
static SHARED_BYTES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static LOCAL: ThreadLists = const { ThreadLists(UnsafeCell::new([const { List::EMPTY }; THREAD_CLASSES])) };
    /// Set while the thread's lists are borrowed; a nested call then uses the shared lists.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// A free list: blocks linked through their headers.
struct List {
    head: *mut Block,
    len: usize,
}

// SAFETY: a list owns its blocks exclusively; free blocks are referred to from nowhere else.
unsafe impl Send for List {}

impl List {
    const EMPTY: List = List { head: null_mut(), len: 0 };

    fn push(&mut self, block: NonNull<Block>) {
        // SAFETY: the caller owns the free block, so writing its link field is exclusive.
        unsafe { (*block.as_ptr()).next = self.head };
        self.head = block.as_ptr();
        self.len += 1;
    }

    fn pop(&mut self) -> Option<NonNull<Block>> {
        let block = NonNull::new(self.head)?;
        // SAFETY: blocks in the list are live allocations that the list owns.
        self.head = unsafe { (*block.as_ptr()).next };
        self.len -= 1;
        Some(block)
    }
}

struct ThreadLists(UnsafeCell<[List; THREAD_CLASSES]>);

impl Drop for ThreadLists {
    fn drop(&mut self) {
        for (class, list) in self.0.get_mut().iter_mut().enumerate() {
            release_shared(class, list, list.len);
        }
    }
}

/// Runs `body` on this thread's lists, unless they are borrowed or already dropped.
fn with_thread_lists<R>(body: impl FnOnce(&mut [List; THREAD_CLASSES]) -> R) -> Option<R> {
    LOCAL
        .try_with(|lists| {
            if BUSY.replace(true) {
                return None;
            }
            // SAFETY: the lists belong to this thread, and `BUSY` makes this the only borrow.
            let result = body(unsafe { &mut *lists.0.get() });
            BUSY.set(false);
            Some(result)
        })
        .ok()
        .flatten()
}

/// Index of the smallest class that holds `bytes`.
fn class_of(bytes: usize) -> usize {
    if bytes <= DATA_BYTES_MIN {
        return 0;
    }
    // The power of two at or above `bytes`, and the three-quarter step below it.
    let power = usize::BITS - (bytes - 1).leading_zeros();
    let doublings = (power - 6) as usize;
    if bytes <= 3 << (power - 2) { doublings * 2 - 1 } else { doublings * 2 }
}

fn class_bytes(class: usize) -> usize {
    if class.is_multiple_of(2) { 64 << (class / 2) } else { 96 << (class / 2) }
}

fn layout(data_bytes: usize) -> Option<Layout> {
    Layout::from_size_align(data_bytes.checked_add(HEADER_BYTES)?, BLOCK_ALIGN).ok()
}

/// Bytes behind the header of a block that is asked for `bytes`.
pub(crate) fn capacity(bytes: usize) -> usize {
    let class = class_of(bytes);
    if class < CLASSES { class_bytes(class) } else { bytes }
}

/// A block of [`capacity`] for `bytes`, one reference, no charge; the flag says whether it is all
/// zero.
pub(crate) fn allocate(bytes: usize) -> Result<(NonNull<Block>, bool)> {
    let class = class_of(bytes);
    if class >= CLASSES {
        return fresh(bytes, UNCLASSED).map(|block| (block, true));
    }
    let mut recycled = None;
    if class < THREAD_CLASSES {
        recycled = with_thread_lists(|lists| {
            let list = &mut lists[class];
            if list.len == 0 {
                take_shared(class, list, THREAD_BLOCKS_MAX / 2);
            }
            list.pop()
        });
    }
    let recycled = recycled.unwrap_or_else(|| {
        let mut one = List::EMPTY;
        take_shared(class, &mut one, 1);
        one.pop()
    });
    let Some(block) = recycled else {
        return fresh(class_bytes(class), class).map(|block| (block, true));
    };
    // SAFETY: the block came out of a list, so this function owns it.
    unsafe { (*block.as_ptr()).references = AtomicUsize::new(1) };
    Ok((block, false))
}

fn fresh(data_bytes: usize, class: usize) -> Result<NonNull<Block>> {
    let too_large =
        || err!(ResourceExhausted, "out of memory: the system has no {data_bytes} bytes");
    let layout = layout(data_bytes).ok_or_else(too_large)?;
    // SAFETY: the layout's size is at least the header's, so it is not zero.
    let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(too_large)?;
    let block = base.cast::<Block>();
    // SAFETY: the allocation is aligned for and larger than the header; the data follow it.
    unsafe {
        block.write(Block {
            references: AtomicUsize::new(1),
            data: base.as_ptr().add(HEADER_BYTES),
            capacity: data_bytes,
            charge: AtomicPtr::new(null_mut()),
            class,
            next: null_mut(),
            parent: None,
            slot_bytes: 0,
            shape: Shape::scalar(),
            dtype: DType::Float,
            has_content: false,
            is_foreign: false,
            was_asked: AtomicBool::new(false),
            derived: OnceLock::new(),
        });
    }
    Ok(block)
}

/// Moves up to `count` blocks of the shared list to `list`.
fn take_shared(class: usize, list: &mut List, count: usize) {
    let before = list.len;
    let mut shared = SHARED[class].lock();
    while list.len - before < count
        && let Some(block) = shared.pop()
    {
        list.push(block);
    }
    drop(shared);
    let taken = list.len - before;
    if taken > 0 {
        SHARED_BYTES.fetch_sub(taken * class_bytes(class), Ordering::Relaxed);
    }
}

/// Frees an empty block without references.
pub(crate) fn release(block: NonNull<Block>) {
    // SAFETY: the caller held the last reference.
    let class = unsafe { (*block.as_ptr()).class };
    if class < THREAD_CLASSES {
        let kept = with_thread_lists(|lists| {
            let list = &mut lists[class];
            list.push(block);
            if list.len > THREAD_BLOCKS_MAX {
                release_shared(class, list, THREAD_BLOCKS_MAX / 2);
            }
        });
        if kept.is_some() {
            return;
        }
    }
    if class == UNCLASSED {
        return free(block);
    }
    let mut one = List::EMPTY;
    one.push(block);
    release_shared(class, &mut one, 1);
}

/// Moves `count` blocks of `list`, which has as many, to the shared list, or frees them if the shared
/// lists are full.
fn release_shared(class: usize, list: &mut List, count: usize) {
    let bytes = count * class_bytes(class);
    let blocks = std::iter::from_fn(|| list.pop()).take(count);
    if SHARED_BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes <= SHARED_BYTES_MAX {
        let mut shared = SHARED[class].lock();
        blocks.for_each(|block| shared.push(block));
        return;
    }
    SHARED_BYTES.fetch_sub(bytes, Ordering::Relaxed);
    blocks.for_each(free);
}

fn free(block: NonNull<Block>) {
    // SAFETY: the caller owns the block, and `capacity` is what `fresh` allocated it with.
    unsafe {
        let layout = layout((*block.as_ptr()).capacity).expect("it was allocated with this layout");
        block.as_ptr().drop_in_place();
        dealloc(block.as_ptr().cast(), layout);
    }
}

/// Returns the memory of the shared free lists to the system.
pub fn trim() {
    for (class, list) in SHARED.iter().enumerate() {
        let mut taken = std::mem::replace(&mut *list.lock(), List::EMPTY);
        SHARED_BYTES.fetch_sub(taken.len * class_bytes(class), Ordering::Relaxed);
        while let Some(block) = taken.pop() {
            free(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tensor;

    #[test]
    fn a_class_is_the_smallest_that_fits() {
        for bytes in (0..100_000).chain([1 << 20, (1 << 20) + 1, 3 << 19, (3 << 19) + 1, 1 << 30]) {
            let class = class_of(bytes);
            assert!(class_bytes(class) >= bytes, "{bytes} in class {class}");
            assert!(class == 0 || class_bytes(class - 1) < bytes, "{bytes} in class {class}");
        }
        assert_eq!(class_of(1 << 30), CLASSES - 1);
    }

    #[test]
    fn many_blocks_are_recycled_across_threads() {
        // Enough to fill and empty a thread's list several times.
        let made = || -> Vec<Tensor> {
            (0..5 * THREAD_BLOCKS_MAX).map(|i| Tensor::scalar_string(i.to_string())).collect()
        };
        for _ in 0..3 {
            let tensors = std::thread::scope(|scope| scope.spawn(made).join().unwrap());
            for (i, tensor) in tensors.iter().enumerate() {
                assert_eq!(tensor.strings().unwrap()[0], i.to_string());
            }
            drop(tensors);
            // The memory that held strings holds numbers, and is all initialised.
            for _ in 0..THREAD_BLOCKS_MAX {
                let zeros = Tensor::zeros(DType::Int64, Shape::new(&[8]).unwrap()).unwrap();
                assert_eq!(zeros.as_slice::<i64>().unwrap(), [0; 8]);
            }
        }
    }
}
