//! Transposition of a tile that fits in the first cache.

/// Writes `target[r * target_stride + c] = source[r + c * source_stride]` for `r` below `height`
/// and `c` below `width`.
///
/// # Safety
/// Every element so reached must be valid, for reading in the source and for writing in the target,
/// and nobody else may access those of the target meanwhile.
pub(crate) unsafe fn tile<C: Clone>(
    source: *const C,
    source_stride: isize,
    target: *mut C,
    target_stride: usize,
    (height, width): (usize, usize),
) {
    for r in 0..height {
        for c in 0..width {
            // SAFETY: the caller's promise.
            unsafe {
                let value = (*source.offset(r as isize + c as isize * source_stride)).clone();
                *target.add(r * target_stride + c) = value;
            }
        }
    }
}
