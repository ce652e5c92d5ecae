//! Parallel reduction over any set of dimensions, with bitwise equal results for any number of
//! threads.
//!
//! Adjacent dimensions that are both kept or both reduced are merged. The rest is a grid of blocks,
//! each a contiguous matrix whose rows are reduced to one row of `columns` results; a contiguous
//! run is a matrix of one column.

use std::ops::Range;

use smallvec::SmallVec;
use thalweg_kernel::KernelContext;
use thalweg_tensor::{Element, Result, Shape, Tensor};

use crate::math::fold::FoldLoops;
use crate::math::widen::Widen;
use crate::split::{Disjoint, for_each_rows};

/// Results that one thread accumulates at a time, on its stack.
const TILE: usize = 512;
/// Elements that are reduced sequentially; longer runs are reduced in halves (pairwise). They fit
/// in one conversion to the wider type.
const BLOCK: usize = 2048;
/// Rows that are reduced sequentially, for any number of columns.
const BLOCK_ROWS: usize = 128;
/// Matrices with fewer columns have several rows reduced in parallel lanes.
const NARROW: usize = 32;
/// Minimum elements per group when a reduction with few results is divided for threads.
const GROUP: usize = 1 << 16;
/// Runs up to this length are reduced many per call.
const SHORT_RUN: usize = 16;
const RUNS_AT_ONCE: usize = 1024;

/// A dimension of the grid of blocks: its size, and its stride in the input.
type GridDim = (usize, usize);

/// Layout of a tensor for a reduction.
#[derive(Debug)]
pub(crate) struct Layout {
    kept: SmallVec<[GridDim; 2]>,
    folded: SmallVec<[GridDim; 2]>,
    rows: usize,
    columns: usize,
}

impl Layout {
    /// The layout of a tensor of these sizes; `is_folded` marks the reduced dimensions.
    pub(crate) fn new(dims: &[usize], is_folded: &[bool]) -> Layout {
        let mut merged: SmallVec<[(usize, bool); 4]> = SmallVec::new();
        for (&size, &folded) in dims.iter().zip(is_folded).filter(|&(&size, _)| size != 1) {
            match merged.last_mut() {
                Some(last) if last.1 == folded => last.0 *= size,
                _ => merged.push((size, folded)),
            }
        }
        let columns = match merged.last() {
            Some(&(size, false)) => {
                merged.pop();
                size
            }
            _ => 1,
        };
        let rows = merged.pop().map_or(1, |last| last.0);
        let mut layout = Layout { kept: SmallVec::new(), folded: SmallVec::new(), rows, columns };
        let mut stride = rows * columns;
        for &(size, folded) in merged.iter().rev() {
            let grid = if folded { &mut layout.folded } else { &mut layout.kept };
            grid.push((size, stride));
            stride *= size;
        }
        layout
    }

    /// Whether each result is reduced from a contiguous run, and runs are consecutive.
    fn is_runs(&self) -> bool {
        let is_dense = matches!(self.kept[..], [(_, stride)] if stride == self.rows);
        is_dense && self.columns == 1 && self.folded.is_empty()
    }

    fn results(&self) -> usize {
        count(&self.kept) * self.columns
    }
}

fn count(grid: &[GridDim]) -> usize {
    grid.iter().map(|d| d.0).product()
}

/// Offset of block `index` of a grid; the first dimension varies fastest.
fn offset(grid: &[GridDim], mut index: usize) -> usize {
    match grid {
        [] => 0,
        [(_, stride)] => index * stride,
        _ => {
            let mut at = 0;
            for &(size, stride) in grid {
                at += index % size * stride;
                index /= size;
            }
            at
        }
    }
}

/// Reduces `data`, which has this layout, to a tensor of `shape` in the wider type.
pub(crate) fn fold<T: Widen>(
    ctx: &KernelContext<'_>,
    data: &[T],
    layout: &Layout,
    loops: &FoldLoops<T::Wide>,
    shape: &Shape,
) -> Result<Tensor> {
    let results = layout.results();
    let job = Job { data, layout, loops };
    let tiles = layout.columns.div_ceil(TILE).max(1);
    let jobs = count(&layout.kept) * tiles;
    let groups = groups(data.len(), jobs, job.units());
    let (dtype, mut partial) = (T::Wide::DTYPE, ctx.allocate(T::Wide::DTYPE, shape.clone())?);
    if groups > 1 {
        partial = ctx.allocate(dtype, Shape::new(&[groups, results])?)?;
    }
    let out = partial.as_mut_slice::<T::Wide>()?;
    if data.is_empty() {
        out.fill(loops.start);
        return Ok(partial);
    }
    let nanoseconds = 0.02 * size_of::<T::Wide>() as f64 * data.len() as f64;
    if layout.is_runs() && groups == 1 {
        let nanoseconds = nanoseconds / results as f64 + 1.0;
        for_each_rows(ctx, out, 1, nanoseconds, |first, out| job.fold_runs(first, out))?;
        return Ok(partial);
    }
    let parts = Disjoint::new(out);
    ctx.parallel_for(jobs * groups, nanoseconds / (jobs * groups) as f64 + 3.0, |items| {
        for item in items {
            let (group, item) = (item / jobs, item % jobs);
            let (block, tile) = (item / tiles, item % tiles);
            let columns = tile * TILE..((tile + 1) * TILE).min(layout.columns);
            let start = group * results + block * layout.columns;
            // SAFETY: each item has its own group, block and range of columns.
            let acc = unsafe { parts.part(start + columns.start..start + columns.end) };
            acc.fill(loops.start);
            let units = job.units();
            let units = units * group / groups..units * (group + 1) / groups;
            job.fold_units(offset(&layout.kept, block), units, columns, acc);
        }
    })?;
    if groups == 1 { Ok(partial) } else { merge_groups(ctx, partial, groups, loops, shape) }
}

/// Number of groups into which the reduced elements are divided; more than one only if there is too
/// little other parallelism.
fn groups(elements: usize, jobs: usize, units: usize) -> usize {
    if jobs == 0 || jobs >= 16 || elements < 2 * GROUP {
        return 1;
    }
    (elements / GROUP).min(64 / jobs).min(units)
}

fn merge_groups<A: Element>(
    ctx: &KernelContext<'_>,
    mut partial: Tensor,
    groups: usize,
    loops: &FoldLoops<A>,
    shape: &Shape,
) -> Result<Tensor> {
    let results = shape.num_elements();
    let parts = partial.as_mut_slice::<A>()?;
    let mut distance = 1;
    while distance < groups {
        for group in (0..groups - distance).step_by(2 * distance) {
            let (left, right) = parts.split_at_mut((group + distance) * results);
            (loops.merge)(&mut left[group * results..][..results], &right[..results]);
        }
        distance *= 2;
    }
    let mut out = ctx.allocate(A::DTYPE, shape.clone())?;
    out.as_mut_slice::<A>()?.copy_from_slice(&parts[..results]);
    Ok(out)
}

struct Job<'a, T: Widen> {
    data: &'a [T],
    layout: &'a Layout,
    loops: &'a FoldLoops<T::Wide>,
}

impl<T: Widen> Job<'_, T> {
    /// Number of units that are divided into groups: blocks if there are several for a result, else
    /// rows.
    fn units(&self) -> usize {
        if self.layout.folded.is_empty() { self.layout.rows } else { count(&self.layout.folded) }
    }

    fn fold_units(
        &self,
        base: usize,
        units: Range<usize>,
        columns: Range<usize>,
        acc: &mut [T::Wide],
    ) {
        let layout = self.layout;
        if layout.folded.is_empty() {
            return self.fold_rows(base, units, columns, acc);
        }
        if units.len() > 8 {
            let middle = units.start + units.len().next_power_of_two() / 2;
            self.fold_units(base, units.start..middle, columns.clone(), acc);
            let mut right = [self.loops.start; TILE];
            let right = &mut right[..acc.len()];
            self.fold_units(base, middle..units.end, columns, right);
            return (self.loops.merge)(acc, right);
        }
        for unit in units {
            let start = base + offset(&layout.folded, unit);
            self.fold_rows(start, 0..layout.rows, columns.clone(), acc);
        }
    }

    /// Reduces rows of the block that begins at `start` into `acc`, pairwise if they are many.
    fn fold_rows(
        &self,
        start: usize,
        rows: Range<usize>,
        columns: Range<usize>,
        acc: &mut [T::Wide],
    ) {
        if self.layout.columns == 1 {
            let run = self.fold_run(&self.data[start + rows.start..start + rows.end]);
            return (self.loops.merge)(acc, &[run]);
        }
        let limit = (BLOCK / columns.len()).max(BLOCK_ROWS);
        if rows.len() > limit {
            let halves = rows.len().div_ceil(limit).next_power_of_two() / 2;
            let middle = rows.start + halves * limit;
            self.fold_rows(start, rows.start..middle, columns.clone(), acc);
            let mut right = [self.loops.start; TILE];
            let right = &mut right[..acc.len()];
            self.fold_rows(start, middle..rows.end, columns, right);
            return (self.loops.merge)(acc, right);
        }
        let stride = self.layout.columns;
        // Only whole rows are contiguous, so that several can be converted at once.
        let at_once = if columns.len() == stride { (T::CHUNK / stride).max(1) } else { 1 };
        let at_once = if T::CHUNK == usize::MAX { rows.len() } else { at_once };
        let mut row = rows.start;
        while row < rows.end {
            let next = row.saturating_add(at_once).min(rows.end);
            let from = start + row * stride + columns.start;
            let to = start + (next - 1) * stride + columns.end;
            T::with_wide(&self.data[from..to], |x| self.fold_matrix(x, acc));
            row = next;
        }
    }

    /// Reduces each run from the `first` on to one result.
    fn fold_runs(&self, first: usize, out: &mut [T::Wide]) {
        let len = self.layout.rows;
        let mut rest = &self.data[first * len..];
        // For short runs, one call each would dominate the cost.
        let at_once = if len <= SHORT_RUN { (T::CHUNK / len).clamp(1, RUNS_AT_ONCE) } else { 1 };
        for out in out.chunks_mut(at_once) {
            let (runs, later) = rest.split_at(out.len() * len);
            rest = later;
            match out {
                [out] if len > SHORT_RUN => *out = self.fold_run(runs),
                _ => T::with_wide(runs, |x| (self.loops.short_runs)(out, x, len)),
            }
        }
    }

    /// Reduces a run, pairwise if it is long.
    fn fold_run(&self, x: &[T]) -> T::Wide {
        if x.len() <= BLOCK {
            return T::with_wide(x, self.loops.run);
        }
        let halves = x.len().div_ceil(BLOCK).next_power_of_two() / 2;
        let (left, right) = x.split_at(halves * BLOCK);
        let mut both = [self.fold_run(left)];
        (self.loops.merge)(&mut both, &[self.fold_run(right)]);
        both[0]
    }

    /// Reduces the rows of `x`, the first of which begins at its start.
    fn fold_matrix(&self, x: &[T::Wide], acc: &mut [T::Wide]) {
        let stride = self.layout.columns;
        let side_by_side = 2 * NARROW / stride;
        if stride >= NARROW || x.len() < 2 * side_by_side * stride {
            return (self.loops.columns)(acc, x, stride);
        }
        let mut wide = [self.loops.start; 2 * NARROW];
        let wide = &mut wide[..side_by_side * stride];
        let whole = x.len() / wide.len() * wide.len();
        (self.loops.columns)(wide, &x[..whole], wide.len());
        for part in wide.chunks_exact(stride) {
            (self.loops.merge)(acc, part);
        }
        (self.loops.columns)(acc, &x[whole..], stride);
    }
}
