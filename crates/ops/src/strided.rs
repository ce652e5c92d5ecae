//! Strided copies between two tensors.
//!
//! Transpose, slice, pad, concat, split, tile, broadcast and reverse are all strided copies: a box
//! of elements with a stride per dimension in the source (any, also 0 and negative) and in the
//! target.

use std::ops::Range;

use smallvec::SmallVec;
use thalweg_kernel::KernelContext;
use thalweg_tensor::{Result, Tensor, ensure};

use crate::cells::{Cell, fill, nanoseconds_per_cell};
use crate::math::transpose::Tile;

/// One dimension of the box.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Dim {
    /// Number of elements.
    pub(crate) len: usize,
    /// Stride in the source, in elements.
    pub(crate) source: isize,
    /// Stride in the target, in elements.
    pub(crate) target: usize,
}

/// A copy of a box of elements.
#[derive(Clone, Debug, Default)]
pub(crate) struct StridedCopy {
    /// The dimensions, in any order.
    pub(crate) dims: SmallVec<[Dim; 6]>,
    /// Offset of the box in the source.
    pub(crate) source_start: usize,
    /// Offset of the box in the target.
    pub(crate) target_start: usize,
}

/// Row-major strides of a tensor of this shape.
pub(crate) fn strides(dims: &[usize]) -> SmallVec<[usize; 6]> {
    let mut strides: SmallVec<[usize; 6]> = smallvec::smallvec![1; dims.len()];
    for i in (1..dims.len()).rev() {
        // Sizes of 0 count as 1; the product of the others cannot overflow (see `Shape`).
        strides[i - 1] = strides[i] * dims[i].max(1);
    }
    strides
}

impl StridedCopy {
    /// The copy that fills a target of shape `dims` in row-major order.
    pub(crate) fn filling(dims: &[usize], source: &[isize], source_start: usize) -> StridedCopy {
        let dims = dims.iter().zip(source).zip(strides(dims));
        let dims = dims.map(|((&len, &source), target)| Dim { len, source, target }).collect();
        StridedCopy { dims, source_start, target_start: 0 }
    }

    /// Runs the copy. The tensors must have one dtype, and the target must not be shared.
    pub(crate) fn run(
        mut self,
        ctx: &KernelContext<'_>,
        source: &Tensor,
        target: &mut Tensor,
    ) -> Result<()> {
        ensure!(
            source.dtype() == target.dtype(),
            Internal,
            "{} cannot be copied to {}",
            source.dtype(),
            target.dtype()
        );
        if self.dims.iter().any(|d| d.len == 0) {
            return Ok(());
        }
        self.normalize();
        self.check(source.num_elements(), target.num_elements())?;
        with_cell!(source.dtype(), C => {
            copy_cells::<C>(ctx, &self, C::view(source)?, C::view_mut(target)?)
        })
    }

    /// Sorts the dimensions by target stride, outermost first, and merges those that are contiguous
    /// on both sides. At least one dimension remains.
    fn normalize(&mut self) {
        self.dims.retain(|d| d.len != 1);
        self.dims.sort_by_key(|d| std::cmp::Reverse(d.target));
        let mut joined: SmallVec<[Dim; 6]> = SmallVec::new();
        for &inner in &self.dims {
            match joined.last_mut() {
                Some(outer)
                    if outer.target == inner.target * inner.len
                        && outer.source == inner.source * inner.len as isize =>
                {
                    *outer = Dim { len: outer.len * inner.len, ..inner };
                }
                _ => joined.push(inner),
            }
        }
        if joined.is_empty() {
            joined.push(Dim { len: 1, source: 1, target: 1 });
        }
        self.dims = joined;
    }

    /// Whether all offsets are in bounds and no two elements have the same target, which the copy
    /// loops require.
    fn check(&self, source_len: usize, target_len: usize) -> Result<()> {
        let (mut low, mut high) = (self.source_start as i128, self.source_start as i128);
        let mut reach = 0u128;
        let mut is_injective = true;
        for dim in self.dims.iter().rev() {
            let span = (dim.len as i128 - 1) * dim.source as i128;
            low += span.min(0);
            high += span.max(0);
            is_injective &= dim.target as u128 > reach;
            reach += (dim.len as u128 - 1) * dim.target as u128;
        }
        ensure!(
            low >= 0
                && high < source_len as i128
                && self.target_start as u128 + reach < target_len as u128
                && is_injective,
            Internal,
            "a strided copy is out of bounds: {self:?} from {source_len} to {target_len}"
        );
        Ok(())
    }

    fn num_elements(&self) -> usize {
        self.dims.iter().map(|d| d.len).product()
    }

    /// Calls `emit(source, target, rows, len)` for pieces that cover the elements in `range`,
    /// counted in the order of the dimensions. A piece has `rows` consecutive indices of the last
    /// but one dimension, each with `len` elements of the last.
    fn pieces(&self, range: Range<usize>, emit: &mut dyn FnMut(usize, usize, usize, usize)) {
        let n = self.dims.len();
        let inner = self.dims[n - 1];
        let middle = if n > 1 { self.dims[n - 2] } else { Dim { len: 1, source: 0, target: 0 } };
        let mut walk = Odometer::new(self, &self.dims[..n.saturating_sub(2)]);
        let mut at = range.start;
        walk.seek(at / inner.len / middle.len);
        while at < range.end {
            let (row, column) = (at / inner.len % middle.len, at % inner.len);
            let left = range.end - at;
            let (rows, len) = if column == 0 && left >= inner.len {
                ((middle.len - row).min(left / inner.len), inner.len)
            } else {
                (1, (inner.len - column).min(left))
            };
            let source =
                walk.source + row as isize * middle.source + column as isize * inner.source;
            let target = walk.target + row * middle.target + column * inner.target;
            emit(source as usize, target, rows, len);
            at += rows * len;
            if at.is_multiple_of(inner.len * middle.len) {
                walk.step();
            }
        }
    }
}

/// Offsets in source and target while counting through the outer dimensions.
struct Odometer<'a> {
    dims: &'a [Dim],
    counters: SmallVec<[usize; 6]>,
    start: (isize, usize),
    source: isize,
    target: usize,
}

impl<'a> Odometer<'a> {
    fn new(copy: &StridedCopy, dims: &'a [Dim]) -> Self {
        let start = (copy.source_start as isize, copy.target_start);
        let counters = smallvec::smallvec![0; dims.len()];
        Odometer { dims, counters, start, source: start.0, target: start.1 }
    }

    /// Moves to the `index`-th combination of the counters.
    fn seek(&mut self, mut index: usize) {
        (self.source, self.target) = self.start;
        for (counter, dim) in self.counters.iter_mut().zip(self.dims).rev() {
            *counter = index % dim.len;
            index /= dim.len;
            self.source += *counter as isize * dim.source;
            self.target += *counter * dim.target;
        }
    }

    fn step(&mut self) {
        for (counter, dim) in self.counters.iter_mut().zip(self.dims).rev() {
            *counter += 1;
            self.source += dim.source;
            self.target += dim.target;
            if *counter < dim.len {
                return;
            }
            *counter = 0;
            self.source -= dim.len as isize * dim.source;
            self.target -= dim.len * dim.target;
        }
    }
}

/// A pointer shared by threads that read immutable elements or write disjoint ones.
#[derive(Clone, Copy)]
struct Shared<C>(*mut C);

// SAFETY: `copy_cells` and `copy_tiles` hand each thread elements of its own to write.
unsafe impl<C: Send + Sync> Sync for Shared<C> {}

impl<C> Shared<C> {
    fn at(&self, offset: usize) -> *mut C {
        self.0.wrapping_add(offset)
    }
}

fn copy_cells<C: Cell>(
    ctx: &KernelContext<'_>,
    copy: &StridedCopy,
    source: &[C],
    target: &mut [C],
) -> Result<()> {
    let inner = copy.dims[copy.dims.len() - 1];
    if inner.target == 1
        && inner.source != 1
        && let Some(outer) = copy.dims.iter().position(|d| d.source == 1)
    {
        return copy_tiles(ctx, copy, outer, source, target);
    }
    let middle = copy.dims.len().checked_sub(2).map_or(inner, |i| copy.dims[i]);
    let is_run = inner.target == 1 && inner.source == 1;
    let cost =
        if is_run { nanoseconds_per_cell::<C>() } else { nanoseconds_per_cell::<C>().max(1.0) };
    let (from, to) = (source.as_ptr(), Shared(target.as_mut_ptr()));
    let from = Shared(from.cast_mut());
    ctx.parallel_for(copy.num_elements(), cost, |range| {
        copy.pieces(range, &mut |source, target, rows, len| {
            for row in 0..rows {
                let source = (source as isize + row as isize * middle.source) as usize;
                let target = target + row * middle.target;
                // SAFETY: `StridedCopy::check` saw that all offsets lie within the slices and that
                // no two elements share a target, and `parallel_for` hands out disjoint ranges.
                // Source and target are different tensors, since the target is unique.
                unsafe { copy_row(from.at(source), to.at(target), inner, len) };
            }
        });
    })
}

/// Copies `len` elements along `dim`.
///
/// # Safety
///
/// Both pointers must be valid for the elements that `dim` and `len` reach, the source for reading
/// and the target for writing, with exclusive access to the target.
unsafe fn copy_row<C: Cell>(source: *const C, target: *mut C, dim: Dim, len: usize) {
    if dim.source == 1 && dim.target == 1 {
        // SAFETY: the caller's promise, for runs of `len`.
        let (source, target) = unsafe {
            (std::slice::from_raw_parts(source, len), std::slice::from_raw_parts_mut(target, len))
        };
        target.clone_from_slice(source);
    } else if dim.source == 0 && dim.target == 1 {
        // SAFETY: the caller's promise, for one element and a run of `len`.
        let (source, target) = unsafe { (&*source, std::slice::from_raw_parts_mut(target, len)) };
        fill(target, source);
    } else if dim.source == -1 && dim.target == 1 {
        // SAFETY: the caller's promise, for runs of `len`, of which the source's ends here.
        let (source, target) = unsafe {
            let first = source.sub(len - 1);
            (std::slice::from_raw_parts(first, len), std::slice::from_raw_parts_mut(target, len))
        };
        target.iter_mut().zip(source.iter().rev()).for_each(|(t, s)| *t = s.clone());
    } else {
        for i in 0..len {
            // SAFETY: the caller's promise, element by element.
            unsafe {
                *target.add(i * dim.target) = (*source.offset(i as isize * dim.source)).clone();
            }
        }
    }
}

/// Maximum elements in a tile of a transposition.
const TILE_ELEMENTS: usize = 4096;

/// Minimum target size for non-temporal stores: no cache keeps the target until it is read.
const STREAM_BYTES: usize = 32 << 20;

/// Copies where the target is contiguous in one dimension and the source in another (`outer`): tile
/// by tile, so that each cache line of both sides is used completely while it is cached.
fn copy_tiles<C: Cell>(
    ctx: &KernelContext<'_>,
    copy: &StridedCopy,
    outer: usize,
    source: &[C],
    target: &mut [C],
) -> Result<()> {
    let mut others = copy.clone();
    let rows = others.dims.remove(outer);
    let columns = others.dims.pop().expect("the innermost dimension is not `outer`");
    // The height of a strip is one cache line of the source; along it, cache lines of the target
    // are filled.
    let line = (64 / size_of::<C>()).max(1);
    let height = if columns.len >= line { line } else { TILE_ELEMENTS / columns.len };
    let height = height.clamp(1, rows.len);
    let width = (TILE_ELEMENTS / height).clamp(1, columns.len);
    let (down, across) = (rows.len.div_ceil(height), columns.len.div_ceil(width));
    let tiles = down * across * others.num_elements();
    let cost = nanoseconds_per_cell::<C>().max(0.3) * (height * width) as f64;
    let streams = size_of_val(target) >= STREAM_BYTES;
    let (from, to) = (Shared(source.as_ptr().cast_mut()), Shared(target.as_mut_ptr()));
    ctx.parallel_for(tiles, cost, |range| {
        let mut walk = Odometer::new(&others, &others.dims);
        walk.seek(range.start / (down * across));
        for tile in range {
            let (row, column) = (tile / across % down * height, tile % across * width);
            let source = walk.source + row as isize + column as isize * columns.source;
            let target = walk.target + row * rows.target + column;
            let part = Tile {
                source: from.at(source as usize).cast_const(),
                source_stride: columns.source,
                target: to.at(target),
                target_stride: rows.target,
                height: height.min(rows.len - row),
                width: width.min(columns.len - column),
            };
            // SAFETY: as in `copy_cells`: `check` saw that all offsets are valid and the targets
            // distinct, and each tile is visited once.
            unsafe { part.run(streams) };
            if (tile + 1).is_multiple_of(down * across) {
                walk.step();
            }
        }
    })
}

/// A range of one dimension that is copied forwards, backwards, or repeated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// Number of elements.
    pub(crate) len: usize,
    /// Index of its first element in the source.
    pub(crate) source: usize,
    /// Step in the source: 1, -1, or 0 to repeat one element.
    pub(crate) step: isize,
    /// Index of its first element in the target.
    pub(crate) target: usize,
}

/// Copies every box in the product of the segments of all dimensions.
///
/// Segments must not be empty, so that there are no more boxes than elements.
pub(crate) fn copy_boxes(
    ctx: &KernelContext<'_>,
    segments: &[SmallVec<[Segment; 3]>],
    source: &Tensor,
    target: &mut Tensor,
) -> Result<()> {
    let (from, to) = (strides(source.shape()), strides(target.shape()));
    if segments.iter().any(SmallVec::is_empty) || target.num_elements() == 0 {
        return Ok(());
    }
    let mut chosen: SmallVec<[usize; 6]> = smallvec::smallvec![0; segments.len()];
    loop {
        let mut copy = StridedCopy::default();
        for (i, (&n, segments)) in chosen.iter().zip(segments).enumerate() {
            let segment = segments[n];
            copy.source_start += segment.source * from[i];
            copy.target_start += segment.target * to[i];
            let source = segment.step * from[i] as isize;
            copy.dims.push(Dim { len: segment.len, source, target: to[i] });
        }
        copy.run(ctx, source, target)?;
        let next = chosen.iter().zip(segments).rposition(|(&n, s)| n + 1 < s.len());
        let Some(next) = next else { return Ok(()) };
        chosen[next] += 1;
        chosen[next + 1..].fill(0);
    }
}
