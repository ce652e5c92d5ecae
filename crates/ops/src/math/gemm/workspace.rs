//! Thread-local packing buffers, of a size bounded by constants.

use std::cell::Cell;
use std::mem::MaybeUninit;

/// A cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "only its address is used")] [MaybeUninit<u8>; 64]);

thread_local! {
    static LINES: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// Runs `work` with `len` uninitialized bytes aligned to 64; `None` if the allocation failed.
pub(super) fn with_workspace<R>(len: usize, work: impl FnOnce(*mut u8) -> R) -> Option<R> {
    // Taken, not borrowed: a panic in `work` only frees the memory.
    let mut lines = LINES.take();
    lines.try_reserve_exact(len.div_ceil(size_of::<Line>())).ok()?;
    let result = work(lines.as_mut_ptr().cast());
    LINES.set(lines);
    Some(result)
}
