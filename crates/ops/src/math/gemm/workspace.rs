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

/// Runs `work` with `len` bytes aligned to 64, of any content; `None` if there is no memory.
pub(super) fn with_workspace<R>(len: usize, work: impl FnOnce(*mut u8) -> R) -> Option<R> {
    // Taken rather than borrowed: a panic in `work` costs the memory and nothing else.
    let mut lines = LINES.take();
    lines.try_reserve_exact(len.div_ceil(size_of::<Line>())).ok()?;
    let result = work(lines.as_mut_ptr().cast());
    LINES.set(lines);
    Some(result)
}
