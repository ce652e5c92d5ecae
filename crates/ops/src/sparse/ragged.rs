//! Ragged tensors: rows of different lengths, given by row splits.

use smallvec::SmallVec;
use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, Element, PartialShape, Result, Shape, Tensor, bail, ensure, err};

use super::coo::{matrix, set_outputs, set_sparse_outputs};
use super::gradients;
use crate::cells::{Cell, blank};
use crate::indices::Indices;
use crate::number::Real;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        RAGGED_GATHER.with_gradient(gradients::ragged_gather),
        RAGGED_RANGE.without_gradient(),
        RAGGED_TENSOR_TO_SPARSE.with_gradient(gradients::ragged_to_sparse),
    ],
    kernels: &[
        KernelSpec { op: "RaggedGather", create: gather, ..KernelSpec::CPU },
        cpu_kernel!("RaggedRange", "T" in [f32, f64, i32, i64] => range),
        KernelSpec { op: "RaggedTensorToSparse", create: to_sparse, ..KernelSpec::CPU },
    ],
};

/// Row splits of one ragged dimension: the start of each row, followed by the end of the last.
#[derive(Clone, Copy)]
pub(crate) struct Splits<'a> {
    at: Indices<'a>,
    /// Number of rows.
    pub(crate) rows: usize,
}

impl<'a> Splits<'a> {
    /// Checks that the row splits are ascending.
    pub(crate) fn of(tensor: &'a Tensor) -> Result<Splits<'a>> {
        ensure!(
            tensor.rank() == 1 && tensor.num_elements() > 0,
            InvalidArgument,
            "splits must be a vector of at least one element, got shape {}",
            tensor.shape()
        );
        let splits = Splits { at: Indices::of(tensor)?, rows: tensor.num_elements() - 1 };
        for row in 0..=splits.rows {
            let before = if row == 0 { 0 } else { splits.at.at(row - 1) };
            ensure!(
                before <= splits.at.at(row),
                InvalidArgument,
                "splits must not be negative and not decrease, but splits[{row}] is {} after \
                 {before}",
                splits.at.at(row)
            );
        }
        Ok(splits)
    }

    /// The start of row `i`, or for `rows` the end of the last row.
    #[inline]
    pub(crate) fn start(&self, i: usize) -> usize {
        self.at.at(i) as usize
    }

    /// The end of the last row.
    pub(crate) fn end(&self) -> usize {
        self.start(self.rows)
    }

    fn longest(&self) -> usize {
        (0..self.rows).map(|i| self.start(i + 1) - self.start(i)).max().unwrap_or(0)
    }
}

/// A row splits tensor that is filled sequentially.
pub(crate) struct SplitsWriter {
    tensor: Tensor,
    next: usize,
}

impl SplitsWriter {
    /// Allocates splits of `rows` rows; the first begins at 0.
    pub(crate) fn new(ctx: &KernelContext<'_>, dtype: DType, rows: usize) -> Result<SplitsWriter> {
        let shape = Shape::new(&[rows.saturating_add(1)])?;
        let mut writer = SplitsWriter { tensor: ctx.allocate(dtype, shape)?, next: 0 };
        writer.push(0)?;
        Ok(writer)
    }

    /// Appends the end of the next row.
    pub(crate) fn push(&mut self, end: usize) -> Result<()> {
        let wrong = || err!(InvalidArgument, "row split {end} does not fit the splits' type");
        if self.tensor.dtype() == DType::Int32 {
            let end = i32::try_from(end).map_err(|_| wrong())?;
            self.tensor.as_mut_slice::<i32>()?[self.next] = end;
        } else {
            let end = i64::try_from(end).map_err(|_| wrong())?;
            self.tensor.as_mut_slice::<i64>()?[self.next] = end;
        }
        self.next += 1;
        Ok(())
    }

    /// The tensor, after all rows were pushed.
    pub(crate) fn finish(self) -> Tensor {
        debug_assert_eq!(self.next, self.tensor.num_elements());
        self.tensor
    }
}

const RAGGED_GATHER: OpDef =
    OpDef::new("RaggedGather", gather_shape).with_work(Work::copies_outputs);

fn gather_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (ragged_rank, outputs) = (c.attrs().size("PARAMS_RAGGED_RANK")?, c.num_outputs());
    for i in 0..ragged_rank {
        c.with_rank(i, "params_nested_splits", 1)?;
    }
    let values = c.with_rank_at_least(ragged_rank, "params_dense_values", 1)?;
    if let Some(rank) = c.input(ragged_rank + 1).rank() {
        ensure!(
            outputs == ragged_rank + rank,
            InvalidArgument,
            "OUTPUT_RAGGED_RANK must be {ragged_rank} + {rank} - 1, is {}",
            outputs - 1
        );
    }
    for i in 0..outputs - 1 {
        c.set_output(i, PartialShape::of_rank(1));
    }
    if let Some(dims) = values.dims() {
        let rest = dims[1..].iter().copied();
        c.set_output(outputs - 1, PartialShape::new(std::iter::once(None).chain(rest)));
    }
    Ok(())
}

/// Checks that each level's rows are in bounds of the next level, and the last level's of the
/// values.
fn check_levels(levels: &[Splits<'_>], values: &Tensor) -> Result<()> {
    ensure!(values.rank() >= 1, InvalidArgument, "the values' rank must be nonzero");
    let ends = levels.iter().map(Splits::end);
    let counts = levels[1..].iter().map(|s| s.rows).chain([values.shape()[0]]);
    for (level, (end, count)) in ends.zip(counts).enumerate() {
        ensure!(
            end <= count,
            InvalidArgument,
            "splits of level {level} end at {end}, but there are only {count} values"
        );
    }
    Ok(())
}

fn gather(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let ragged_rank = init.attrs().size("PARAMS_RAGGED_RANK")?;
    let splits_dtype = init.attrs().dtype("Tsplits")?;
    AnyKernel::new(move |ctx| {
        let outputs = gathered(ctx, ragged_rank, splits_dtype)?;
        set_outputs(ctx, outputs)
    })
}

fn gathered(
    ctx: &KernelContext<'_>,
    ragged_rank: usize,
    splits_dtype: DType,
) -> Result<Vec<Tensor>> {
    let indices = ctx.input(ragged_rank + 1)?;
    ensure!(
        ctx.num_outputs() == ragged_rank + indices.rank(),
        InvalidArgument,
        "OUTPUT_RAGGED_RANK must be {ragged_rank} + {} - 1, is {}",
        indices.rank(),
        ctx.num_outputs() - 1
    );
    let levels: SmallVec<[Splits<'_>; 4]> =
        (0..ragged_rank).map(|i| Splits::of(ctx.input(i)?)).collect::<Result<_>>()?;
    let values = ctx.input(ragged_rank)?;
    check_levels(&levels, values)?;
    let mut outputs = uniform_splits(ctx, splits_dtype, indices.shape())?;
    let (mut picked, count) = (picks(ctx, &levels[0], indices)?, indices.num_elements());
    let picked = picked.as_mut_slice::<i64>()?;
    if indices.rank() > 0 {
        outputs.push(split_lengths(ctx, splits_dtype, picked.chunks_exact(2), count)?);
    }
    for level in &levels[1..] {
        outputs.push(next_level(ctx, splits_dtype, level, picked)?);
    }
    outputs.push(copy_ranges(ctx, values, picked)?);
    Ok(outputs)
}

/// Row splits of the dimensions that indices of rank 2 or more add: all rows have one length.
fn uniform_splits(ctx: &KernelContext<'_>, dtype: DType, shape: &Shape) -> Result<Vec<Tensor>> {
    let mut outputs = Vec::with_capacity(shape.rank());
    let mut rows = 1;
    for dims in shape.windows(2) {
        rows *= dims[0];
        let mut writer = SplitsWriter::new(ctx, dtype, rows)?;
        for row in 1..=rows {
            writer.push(row * dims[1])?;
        }
        outputs.push(writer.finish());
    }
    Ok(outputs)
}

/// For each index, the range of values of its row.
fn picks(ctx: &KernelContext<'_>, level: &Splits<'_>, indices: &Tensor) -> Result<Tensor> {
    let mut picked = matrix(ctx, indices.num_elements(), 2)?;
    let at = Indices::of(indices)?;
    for (i, range) in picked.as_mut_slice::<i64>()?.chunks_exact_mut(2).enumerate() {
        let Some(row) = at.below(i, level.rows) else {
            bail!(InvalidArgument, "indices[{i}] = {} is not in [0, {})", at.at(i), level.rows);
        };
        range.copy_from_slice(&[level.start(row) as i64, level.start(row + 1) as i64]);
    }
    Ok(picked)
}

/// Row splits for rows of the lengths of these ranges.
fn split_lengths<'a>(
    ctx: &KernelContext<'_>,
    dtype: DType,
    ranges: impl Iterator<Item = &'a [i64]>,
    rows: usize,
) -> Result<Tensor> {
    let mut writer = SplitsWriter::new(ctx, dtype, rows)?;
    let mut end = 0usize;
    for range in ranges {
        end = end.saturating_add((range[1] - range[0]) as usize);
        writer.push(end)?;
    }
    Ok(writer.finish())
}

/// The total length of these ranges.
fn total(ranges: &[i64]) -> usize {
    let lengths = ranges.chunks_exact(2).map(|r| (r[1] - r[0]) as usize);
    lengths.fold(0, usize::saturating_add)
}

/// The row splits of the gathered rows of a level; `ranges` then become ranges of the next level.
fn next_level(
    ctx: &KernelContext<'_>,
    dtype: DType,
    level: &Splits<'_>,
    picked: &mut [i64],
) -> Result<Tensor> {
    let mut writer = SplitsWriter::new(ctx, dtype, total(picked))?;
    let mut end = 0usize;
    for range in picked.chunks_exact_mut(2) {
        for row in range[0] as usize..range[1] as usize {
            end = end.saturating_add(level.start(row + 1) - level.start(row));
            writer.push(end)?;
        }
        range[0] = level.start(range[0] as usize) as i64;
        range[1] = level.start(range[1] as usize) as i64;
    }
    Ok(writer.finish())
}

/// The rows of `values` in these ranges, concatenated.
fn copy_ranges(ctx: &KernelContext<'_>, values: &Tensor, ranges: &[i64]) -> Result<Tensor> {
    let mut dims: SmallVec<[usize; 6]> = values.shape()[..].into();
    dims[0] = total(ranges);
    let row: usize = dims[1..].iter().product();
    let mut output = blank(ctx, values.dtype(), Shape::new(&dims)?)?;
    with_cell!(values.dtype(), C => {
        let (from, mut rest) = (C::view(values)?, C::view_mut(&mut output)?);
        for range in ranges.chunks_exact(2) {
            let part = &from[range[0] as usize * row..range[1] as usize * row];
            let (to, after) = rest.split_at_mut(part.len());
            to.clone_from_slice(part);
            rest = after;
        }
    });
    Ok(output)
}

const RAGGED_RANGE: OpDef = OpDef::new("RaggedRange", range_shape).with_work(Work::serial::<2>);

fn range_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (mut rows, mut are_all_scalars) = (None, true);
    for i in 0..3 {
        let Some(dims) = c.input(i).dims() else {
            are_all_scalars = false;
            continue;
        };
        match dims {
            [] => {}
            [n] => {
                are_all_scalars = false;
                rows = PartialShape::new([rows]).merge(&PartialShape::new([*n]))?.dim(0);
            }
            _ => bail!(
                InvalidArgument,
                "starts, limits and deltas must be scalars or vectors, got {}",
                c.input(i)
            ),
        }
    }
    let splits = if are_all_scalars { Some(2) } else { rows.and_then(|n| n.checked_add(1)) };
    c.set_output(0, PartialShape::new([splits]));
    c.set_output(1, PartialShape::of_rank(1));
    Ok(())
}

/// Element types of ranges.
trait Stepped: Element + Real {
    /// Number of elements from `start` up to but excluding `limit`; `None` if it is not finite.
    fn steps(start: Self, limit: Self, delta: Self) -> Option<usize>;
}

macro_rules! stepped_integers {
    ($($t:ty),+) => { $(
        impl Stepped for $t {
            fn steps(start: $t, limit: $t, delta: $t) -> Option<usize> {
                let (distance, delta) = (i128::from(limit) - i128::from(start), i128::from(delta));
                if (distance < 0) != (delta < 0) {
                    return Some(0);
                }
                let steps = (distance.abs() + delta.abs() - 1) / delta.abs();
                i64::try_from(steps).ok().map(|s| s as usize)
            }
        }
    )+ };
}

stepped_integers!(i32, i64);

macro_rules! stepped_floats {
    ($($t:ty),+) => { $(
        impl Stepped for $t {
            fn steps(start: $t, limit: $t, delta: $t) -> Option<usize> {
                if (delta > 0.0 && limit < start) || (delta < 0.0 && limit > start) {
                    return Some(0);
                }
                let steps = ((limit - start) / delta).abs().ceil();
                (steps < i64::MAX as $t).then_some(steps as usize)
            }
        }
    )+ };
}

stepped_floats!(f32, f64);

fn range<T: Stepped>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let splits_dtype = init.attrs().dtype("Tsplits")?;
    AnyKernel::new(move |ctx| {
        let mut rows = None;
        for i in 0..3 {
            match ctx.input(i)?.shape()[..] {
                [] => {}
                [n] if rows.is_none_or(|rows| rows == n) => rows = Some(n),
                _ => bail!(
                    InvalidArgument,
                    "starts, limits and deltas must be scalars or vectors of one length, got {}",
                    ctx.input(i)?.shape()
                ),
            }
        }
        let rows = rows.unwrap_or(1);
        let (starts, limits, deltas) = (ctx.slice::<T>(0)?, ctx.slice::<T>(1)?, ctx.slice::<T>(2)?);
        let pick = |values: &[T], i: usize| values[if values.len() == 1 { 0 } else { i }];
        let mut writer = SplitsWriter::new(ctx, splits_dtype, rows)?;
        let mut total = 0usize;
        for i in 0..rows {
            let (start, limit, delta) = (pick(starts, i), pick(limits, i), pick(deltas, i));
            ensure!(delta != T::ZERO, InvalidArgument, "Requires delta != 0");
            let Some(steps) = T::steps(start, limit, delta) else {
                bail!(
                    InvalidArgument,
                    "Requires ((limit - start) / delta) to be a number below 2^63; row {i} goes \
                     from {start:?} to {limit:?} by {delta:?}"
                );
            };
            total = total.saturating_add(steps);
            writer.push(total)?;
        }
        let splits = writer.finish();
        let mut output = ctx.allocate_output(1, Shape::new(&[total])?)?;
        let mut rest = output.as_mut_slice::<T>()?;
        let rows_of = Splits::of(&splits)?;
        for i in 0..rows {
            let (row, after) = rest.split_at_mut(rows_of.start(i + 1) - rows_of.start(i));
            rest = after;
            let (mut value, delta) = (pick(starts, i), pick(deltas, i));
            for slot in row {
                *slot = value;
                value = value.plus(delta);
            }
        }
        ctx.set_output(0, splits)?;
        ctx.set_output(1, output)
    })
}

const RAGGED_TENSOR_TO_SPARSE: OpDef =
    OpDef::new("RaggedTensorToSparse", to_sparse_shape).with_work(Work::serial::<2>);

fn to_sparse_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let ragged_rank = c.attrs().size("RAGGED_RANK")?;
    for i in 0..ragged_rank {
        c.with_rank(i, "rt_nested_splits", 1)?;
    }
    let values = c.with_rank_at_least(ragged_rank, "rt_dense_values", 1)?;
    let count = values.to_shape().map(|s| s.num_elements());
    set_sparse_outputs(c, 0, count, values.rank().map(|r| r + ragged_rank));
    Ok(())
}

/// Checks that each level ends where the next begins, without gaps.
pub(crate) fn check_nested(levels: &[Splits<'_>], values: &Tensor) -> Result<()> {
    ensure!(values.rank() >= 1, InvalidArgument, "the values' rank must be nonzero");
    let counts = levels[1..].iter().map(|s| s.rows).chain([values.shape()[0]]);
    for (level, (splits, count)) in levels.iter().zip(counts).enumerate() {
        ensure!(
            splits.start(0) == 0 && splits.end() == count,
            InvalidArgument,
            "splits of level {level} must go from 0 to {count}, but go from {} to {}",
            splits.start(0),
            splits.end()
        );
    }
    Ok(())
}

fn to_sparse(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let ragged_rank = init.attrs().size("RAGGED_RANK")?;
    AnyKernel::new(move |ctx| {
        let outputs = sparse_parts(ctx, ragged_rank)?;
        set_outputs(ctx, outputs)
    })
}

fn sparse_parts(ctx: &KernelContext<'_>, ragged_rank: usize) -> Result<[Tensor; 3]> {
    let levels: SmallVec<[Splits<'_>; 4]> =
        (0..ragged_rank).map(|i| Splits::of(ctx.input(i)?)).collect::<Result<_>>()?;
    let values = ctx.input(ragged_rank)?;
    check_nested(&levels, values)?;
    let rank = ragged_rank + values.rank();
    let mut sizes = SmallVec::<[i64; 6]>::with_capacity(rank);
    sizes.push(levels[0].rows as i64);
    sizes.extend(levels.iter().map(|l| l.longest() as i64));
    sizes.extend(values.shape()[1..].iter().map(|&d| d as i64));
    let mut indices = matrix(ctx, values.num_elements(), rank)?;
    coordinates(&levels, &values.shape()[1..], indices.as_mut_slice()?, rank);
    let count = values.num_elements();
    let values = values.clone().reshaped(Shape::new(&[count])?)?;
    Ok([indices, values, Tensor::vector(&sizes)?])
}

/// Writes the coordinates of all values, in order.
fn coordinates(levels: &[Splits<'_>], inner: &[usize], indices: &mut [i64], rank: usize) {
    let inner_len: usize = inner.iter().product();
    if inner_len == 0 {
        return;
    }
    // The current row of each level, which only increases.
    let mut rows: SmallVec<[usize; 4]> = smallvec::smallvec![0; levels.len()];
    for (value, block) in indices.chunks_exact_mut(inner_len * rank).enumerate() {
        let mut prefix: SmallVec<[i64; 6]> = smallvec::smallvec![0; levels.len() + 1];
        let mut at = value;
        for (k, level) in levels.iter().enumerate().rev() {
            while level.start(rows[k] + 1) <= at {
                rows[k] += 1;
            }
            prefix[k + 1] = (at - level.start(rows[k])) as i64;
            at = rows[k];
        }
        prefix[0] = at as i64;
        for (n, row) in block.chunks_exact_mut(rank).enumerate() {
            row[..prefix.len()].copy_from_slice(&prefix);
            let mut place = n;
            for (x, &size) in row[prefix.len()..].iter_mut().zip(inner).rev() {
                *x = (place % size) as i64;
                place /= size;
            }
        }
    }
}
