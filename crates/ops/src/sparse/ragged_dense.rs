//! `RaggedTensorToTensor`: rows padded with a default value, or truncated.

use smallvec::SmallVec;
use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, bail, ensure};

use super::gradients;
use crate::cells::{Cell, blank, nanoseconds_per_cell};
use crate::indices::Indices;
use crate::split::for_each_rows;
use crate::strided::StridedCopy;

pub(crate) static FAMILY: Family = Family {
    ops: &[RAGGED_TENSOR_TO_TENSOR.with_gradient(gradients::ragged_to_dense)],
    kernels: &[KernelSpec { op: "RaggedTensorToTensor", create: to_dense, ..KernelSpec::CPU }],
};

const RAGGED_TENSOR_TO_TENSOR: OpDef =
    OpDef::new("RaggedTensorToTensor", to_dense_shape).with_work(Work::moves);

fn to_dense_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let types = partition_types(c.attrs().strings("row_partition_types")?)?;
    let ragged_rank = types.iter().filter(|t| **t != Partition::FirstDimSize).count();
    let asked = match c.partial_value(0) {
        Some(value) => value.to_shape()?,
        None => PartialShape::unknown(),
    };
    let Some(values) = c.input(1).dims() else {
        c.set_output(0, asked);
        return Ok(());
    };
    ensure!(!values.is_empty(), InvalidArgument, "values must have at least rank 1");
    let natural = std::iter::repeat_n(None, ragged_rank + 1).chain(values[1..].iter().copied());
    c.set_output(0, PartialShape::new(natural).merge(&asked)?);
    Ok(())
}

/// Row partition types (`row_partition_types`).
#[derive(Clone, Copy, PartialEq)]
enum Partition {
    /// The number of rows of the outermost dimension (`FIRST_DIM_SIZE`).
    FirstDimSize,
    /// For each value its row (`VALUE_ROWIDS`).
    ValueRowids,
    /// For each row its first value (`ROW_SPLITS`).
    RowSplits,
}

fn partition_types(names: &[thalweg_tensor::Bytes]) -> Result<SmallVec<[Partition; 4]>> {
    let mut types = SmallVec::new();
    for (i, name) in names.iter().enumerate() {
        let partition = match &name[..] {
            b"FIRST_DIM_SIZE" => Partition::FirstDimSize,
            b"VALUE_ROWIDS" => Partition::ValueRowids,
            b"ROW_SPLITS" => Partition::RowSplits,
            other => bail!(
                InvalidArgument,
                "Unknown string for partition info type: {}",
                String::from_utf8_lossy(other)
            ),
        };
        let fits = match partition {
            Partition::FirstDimSize => {
                i == 0 && names.get(1).is_some_and(|n| &n[..] == b"VALUE_ROWIDS")
            }
            Partition::ValueRowids => i > 0,
            Partition::RowSplits => true,
        };
        ensure!(
            fits,
            InvalidArgument,
            "FIRST_DIM_SIZE must be first, and followed by VALUE_ROWIDS, which cannot be first"
        );
        types.push(partition);
    }
    ensure!(!types.is_empty(), InvalidArgument, "there must be a row partition");
    Ok(types)
}

/// One ragged dimension.
struct Level<'a> {
    partition: Partition,
    numbers: Indices<'a>,
    len: usize,
}

impl Level<'_> {
    /// The length of the longest row.
    fn width(&self) -> usize {
        if self.partition == Partition::RowSplits {
            let length = |i: usize| self.numbers.at(i).saturating_sub(self.numbers.at(i - 1));
            return (1..self.len).map(length).max().map_or(0, |l| l.max(0) as usize);
        }
        let (mut longest, mut run) = (0, 0);
        for i in 0..self.len {
            let is_same = i > 0 && self.numbers.at(i) == self.numbers.at(i - 1);
            run = if is_same { run + 1 } else { 1 };
            longest = longest.max(run);
        }
        longest
    }

    /// A lower bound of the number of rows.
    fn rows(&self) -> usize {
        match self.partition {
            Partition::RowSplits => self.len.saturating_sub(1),
            _ => (0..self.len)
                .map(|i| self.numbers.at(i))
                .max()
                .map_or(0, |id| usize::try_from(id).unwrap_or(0).saturating_add(1)),
        }
    }

    /// Output index of each value of this dimension, or -1, given the output indices of its rows.
    /// Only the first `needed` are computed; a row holds at most `width` values at distance
    /// `stride`.
    fn output_indices(
        &self,
        ctx: &KernelContext<'_>,
        parents: &[i64],
        width: usize,
        stride: usize,
        needed: usize,
    ) -> Result<Tensor> {
        let found = match self.partition {
            Partition::RowSplits => self.check_splits(parents.len())?,
            _ => self.len,
        };
        let mut output_indices = ctx.allocate(DType::Int64, Shape::new(&[found.min(needed)])?)?;
        let slots = output_indices.as_mut_slice::<i64>()?;
        let place = |row: i64, column: usize| {
            if row < 0 || column >= width { -1 } else { row + (column * stride) as i64 }
        };
        if self.partition == Partition::RowSplits {
            let mut slots = slots.iter_mut();
            for (i, &parent) in parents.iter().enumerate().take(self.len - 1) {
                let length = (self.numbers.at(i + 1) - self.numbers.at(i)) as usize;
                for (column, slot) in (&mut slots).take(length).enumerate() {
                    *slot = place(parent, column);
                }
            }
            return Ok(output_indices);
        }
        let mut column = 0;
        for i in 0..self.len {
            let is_same = i > 0 && self.numbers.at(i) == self.numbers.at(i - 1);
            column = if is_same { column + 1 } else { 0 };
            let Some(row) = self.numbers.below(i, parents.len()) else {
                bail!(
                    InvalidArgument,
                    "value_rowids[{i}] = {} is not in [0, {})",
                    self.numbers.at(i),
                    parents.len()
                );
            };
            ensure!(
                i == 0 || self.numbers.at(i - 1) <= self.numbers.at(i),
                InvalidArgument,
                "value_rowids must not decrease"
            );
            if let Some(slot) = slots.get_mut(i) {
                *slot = place(parents[row], column);
            }
        }
        Ok(output_indices)
    }

    /// The number of values in the rows.
    fn check_splits(&self, rows: usize) -> Result<usize> {
        ensure!(
            (1..=rows + 1).contains(&self.len),
            InvalidArgument,
            "row_splits has {} entries for {rows} rows",
            self.len
        );
        ensure!(
            self.numbers.at(0) == 0,
            InvalidArgument,
            "row_splits must begin with 0, begins with {}",
            self.numbers.at(0)
        );
        for i in 1..self.len {
            ensure!(
                self.numbers.at(i - 1) <= self.numbers.at(i),
                InvalidArgument,
                "row_splits must not decrease, but {} follows {}",
                self.numbers.at(i),
                self.numbers.at(i - 1)
            );
        }
        Ok(self.numbers.at(self.len - 1) as usize)
    }
}

/// The shape of the result: the requested shape, completed from rows and values.
fn output_shape(
    ctx: &KernelContext<'_>,
    first: usize,
    levels: &[Level<'_>],
    values: &Shape,
) -> Result<Shape> {
    let asked = ctx.input(0)?;
    ensure!(
        asked.rank() <= 1,
        InvalidArgument,
        "shape must be a vector or -1, is {}",
        asked.shape()
    );
    let rank = levels.len() + values.rank();
    let mut sizes = ctx.ints(0, "shape")?;
    if asked.rank() == 0 {
        ensure!(sizes[0] == -1, InvalidArgument, "a scalar shape must be -1, is {}", sizes[0]);
        sizes = smallvec::smallvec![-1; rank];
    }
    ensure!(
        sizes.len() == rank,
        InvalidArgument,
        "shape has {} dimensions, but values of shape {values} in {} ragged dimensions have {rank}",
        sizes.len(),
        levels.len()
    );
    for (i, size) in sizes.iter_mut().enumerate() {
        ensure!(*size >= -1, InvalidArgument, "dimension {i} of shape cannot be {size}");
        if let Some(&own) = i.checked_sub(levels.len()).filter(|&k| k > 0).map(|k| &values[k]) {
            ensure!(
                *size == -1 || *size == own as i64,
                InvalidArgument,
                "dimension {i} of shape is {size}, but the values have {own} there"
            );
            *size = own as i64;
        } else if *size == -1 {
            *size = if i == 0 { first } else { levels[i - 1].width() } as i64;
        }
    }
    Shape::from_i64(&sizes)
}

/// Checks that the default can be broadcast to the shape of a value.
fn check_default(default: &Shape, element: &[usize]) -> Result<()> {
    let pairs = default.iter().rev().zip(element.iter().rev());
    ensure!(
        default.rank() <= element.len() && pairs.into_iter().all(|(d, e)| d == e || *d == 1),
        InvalidArgument,
        "default_value of shape {default} cannot be broadcast to values of shape {element:?}"
    );
    Ok(())
}

/// The default value broadcast to the shape of a value.
fn stretched(ctx: &KernelContext<'_>, default: &Tensor, element: &[usize]) -> Result<Tensor> {
    let own = crate::strided::strides(default.shape());
    let missing = element.len() - default.rank();
    let stride = |i: usize| match i.checked_sub(missing) {
        Some(j) if default.shape()[j] > 1 => own[j] as isize,
        _ => 0,
    };
    let strides: SmallVec<[isize; 6]> = (0..element.len()).map(stride).collect();
    let mut output = blank(ctx, default.dtype(), Shape::new(element)?)?;
    StridedCopy::filling(element, &strides, 0).run(ctx, default, &mut output)?;
    Ok(output)
}

fn to_dense(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let types = partition_types(init.attrs().strings("row_partition_types")?)?;
    ensure!(
        init.attrs().size("num_row_partition_tensors")? == types.len(),
        InvalidArgument,
        "there are {} row partition types for another number of tensors",
        types.len()
    );
    AnyKernel::new(move |ctx| {
        let output = dense(ctx, &types)?;
        ctx.set_output(0, output)
    })
}

fn dense(ctx: &KernelContext<'_>, types: &[Partition]) -> Result<Tensor> {
    let (values, default) = (ctx.input(1)?, ctx.input(2)?);
    ensure!(values.rank() >= 1, InvalidArgument, "values must have at least rank 1");
    let mut levels = SmallVec::<[Level<'_>; 4]>::new();
    let mut first = None;
    for (i, &partition) in types.iter().enumerate() {
        let tensor = ctx.input(3 + i)?;
        let (numbers, len) = (Indices::of(tensor)?, tensor.num_elements());
        let own = match partition {
            Partition::FirstDimSize if len > 0 => usize::try_from(numbers.at(0)).ok(),
            Partition::FirstDimSize => None,
            _ => tensor.shape().first().and_then(|n| n.checked_sub(1)),
        };
        if i == 0 {
            first = own;
        }
        if partition != Partition::FirstDimSize {
            levels.push(Level { partition, numbers, len });
        }
    }
    let Some(first) = first else {
        bail!(InvalidArgument, "the first row partition does not say how many rows there are");
    };
    let shape = output_shape(ctx, first, &levels, values.shape())?;
    let element = &values.shape()[1..];
    check_default(default.shape(), element)?;
    let mut output = blank(ctx, values.dtype(), shape)?;
    if output.num_elements() > 0 {
        fill(ctx, &mut output, &stretched(ctx, default, element)?)?;
        scatter(ctx, &mut output, first, &levels)?;
    }
    Ok(output)
}

fn fill(ctx: &KernelContext<'_>, output: &mut Tensor, default: &Tensor) -> Result<()> {
    let len = default.num_elements();
    with_cell!(default.dtype(), C => {
        let default = C::view(default)?;
        let cost = len as f64 * nanoseconds_per_cell::<C>();
        for_each_rows(ctx, C::view_mut(output)?, len, cost, |_, part| {
            if let [one] = default {
                crate::cells::fill(part, one);
            } else {
                part.chunks_exact_mut(len).for_each(|row| row.clone_from_slice(default));
            }
        })?;
    });
    Ok(())
}

/// Copies the values to their output indices.
fn scatter(
    ctx: &KernelContext<'_>,
    output: &mut Tensor,
    first: usize,
    levels: &[Level<'_>],
) -> Result<()> {
    let values = ctx.input(1)?;
    let shape = output.shape().clone();
    let element: usize = values.shape()[1..].iter().product();
    let strides = crate::strided::strides(&shape);
    let needed = |level: usize| levels.get(level).map_or(values.shape()[0], Level::rows);
    // Rows without a partition entry need no index; missing rows are rejected below.
    let mut output_indices = ctx.allocate(DType::Int64, Shape::new(&[first.min(needed(0))])?)?;
    for (i, place) in output_indices.as_mut_slice::<i64>()?.iter_mut().enumerate() {
        *place = if i < shape[0] { (i * strides[0]) as i64 } else { -1 };
    }
    for (k, level) in levels.iter().enumerate() {
        let parents = output_indices.as_slice::<i64>()?;
        output_indices =
            level.output_indices(ctx, parents, shape[k + 1], strides[k + 1], needed(k + 1))?;
    }
    with_cell!(values.dtype(), C => {
        let (from, to) = (C::view(values)?, C::view_mut(output)?);
        for (row, &place) in from.chunks_exact(element).zip(output_indices.as_slice::<i64>()?) {
            if let Ok(place) = usize::try_from(place) {
                to[place..place + element].clone_from_slice(row);
            }
        }
    });
    Ok(())
}
