//! Parallel loops that write disjoint parts of one output.

use std::ops::Range;

use thalweg_kernel::KernelContext;
use thalweg_tensor::Result;

/// A slice whose disjoint parts several threads may write.
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    _borrow: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: parts are handed out only through `part`, whose callers promise that they are disjoint,
// so sharing the wrapper shares no element.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Disjoint { start: slice.as_mut_ptr(), len: slice.len(), _borrow: std::marker::PhantomData }
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The elements in `range`.
    ///
    /// # Safety
    /// While the returned slice lives, no other part that overlaps `range` may exist.
    #[expect(clippy::mut_from_ref, reason = "the parts are disjoint, as the callers promise")]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "a part lies within its slice");
        // SAFETY: the range lies within the slice that is borrowed mutably for `'a`, and the
        // caller promises that no overlapping part exists.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

/// Calls `body(first_row, rows)` on parts of `out` that are whole rows of `row_len` elements, in
/// parallel if that pays. The division depends on sizes and cost only.
pub(crate) fn for_each_rows<T: Send>(
    ctx: &KernelContext<'_>,
    out: &mut [T],
    row_len: usize,
    nanoseconds_per_row: f64,
    body: impl Fn(usize, &mut [T]) + Sync,
) -> Result<()> {
    if row_len == 0 {
        return Ok(());
    }
    let rows = out.len() / row_len;
    let out = Disjoint::new(out);
    ctx.parallel_for(rows, nanoseconds_per_row, |range| {
        // SAFETY: `parallel_for` hands out disjoint ranges of rows.
        let part = unsafe { out.part(range.start * row_len..range.end * row_len) };
        body(range.start, part);
    })
}
