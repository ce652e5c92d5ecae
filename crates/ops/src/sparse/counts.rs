//! `Bincount` and its sparse and ragged forms.

use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{OpDef, Work};
use thalweg_hlo::Value;
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, bail, ensure};

use super::coo::{Coordinates, matrix, set_outputs, set_sparse_outputs};
use crate::indices::Indices;
use crate::number::Number;
use crate::rows_lowering::{scattered, wide};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("Bincount", bincount_shape).with_work(Work::serial::<5>),
        OpDef::new("DenseBincount", dense_bincount_shape).with_work(Work::serial::<5>),
        OpDef::new("SparseBincount", sparse_bincount_shape).with_work(Work::serial::<5>),
        OpDef::new("RaggedBincount", ragged_bincount_shape).with_work(Work::serial::<5>),
        OpDef::new("DenseCountSparseOutput", dense_count_shape).with_work(Work::serial::<50>),
        OpDef::new("SparseCountSparseOutput", sparse_count_shape).with_work(Work::serial::<50>),
        OpDef::new("RaggedCountSparseOutput", ragged_count_shape).with_work(Work::serial::<50>),
    ],
    kernels: &[
        cpu_kernel!("Bincount", "T" in [f32, f64, i32, i64] => bincount),
        cpu_kernel!("DenseBincount", "T" in [f32, f64, i32, i64] => dense_bincount),
        KernelSpec::lowering("Bincount", |l| lower_bincount(l, false)).with_host_inputs(&["size"]),
        KernelSpec::lowering("DenseBincount", |l| {
            lower_bincount(l, l.attrs().bool("binary_output")?)
        })
        .with_host_inputs(&["size"]),
        cpu_kernel!("SparseBincount", "T" in [f32, f64, i32, i64] => sparse_bincount),
        cpu_kernel!("RaggedBincount", "T" in [f32, f64, i32, i64] => ragged_bincount),
        cpu_kernel!("DenseCountSparseOutput", "output_type" in [f32, f64, i32, i64] => dense_count),
        cpu_kernel!("SparseCountSparseOutput", "output_type" in [f32, f64, i32, i64] => sparse_count),
        cpu_kernel!("RaggedCountSparseOutput", "output_type" in [f32, f64, i32, i64] => ragged_count),
    ],
};

/// The values that are counted, and their weights.
struct Counted<'a, T> {
    numbers: Indices<'a>,
    len: usize,
    /// Empty if each value has weight one.
    weights: &'a [T],
    is_binary: bool,
}

impl<'a, T: Number> Counted<'a, T> {
    fn new(numbers: &'a Tensor, weights: &'a Tensor, is_binary: bool) -> Result<Counted<'a, T>> {
        let len = numbers.num_elements();
        ensure!(
            weights.num_elements() == 0 || weights.num_elements() == len,
            InvalidArgument,
            "`weights` must be as many as the numbers, {len}, or a length-0 tensor, in which case \
             all weights are 1; got shape {}",
            weights.shape()
        );
        Ok(Counted { numbers: Indices::of(numbers)?, len, weights: weights.as_slice()?, is_binary })
    }

    fn check_not_negative(&self) -> Result<()> {
        for i in 0..self.len {
            ensure!(
                self.numbers.at(i) >= 0,
                InvalidArgument,
                "Input arr must be non-negative! Number {i} is {}",
                self.numbers.at(i)
            );
        }
        Ok(())
    }

    /// Adds value `i` to its bin, if it has one.
    #[inline]
    fn count(&self, i: usize, bins: &mut [T]) {
        if let Some(bin) = self.numbers.below(i, bins.len()) {
            bins[bin] = self.counted(bins[bin], i);
        }
    }

    /// The count of a bin after adding value `i`.
    #[inline]
    fn counted(&self, so_far: T, i: usize) -> T {
        if self.is_binary {
            T::ONE
        } else {
            so_far.plus(self.weights.get(i).copied().unwrap_or(T::ONE))
        }
    }
}

/// The number of bins, in input `i`.
fn bins(ctx: &KernelContext<'_>, i: usize) -> Result<usize> {
    let size = ctx.scalar_int(i, "size")?;
    match usize::try_from(size) {
        Ok(size) => Ok(size),
        Err(_) => bail!(InvalidArgument, "size ({size}) must be non-negative"),
    }
}

/// Checks that the weights have the shape of the values.
fn check_weights(numbers: &Tensor, weights: &Tensor) -> Result<()> {
    ensure!(
        weights.num_elements() == 0 || weights.shape() == numbers.shape(),
        InvalidArgument,
        "`weights` must be the same shape as the values or a length-0 `Tensor`, in which case it \
         acts as all weights equal to 1. Received {}",
        weights.shape()
    );
    Ok(())
}

/// The number of bins in input `i`, if known.
fn known_bins(c: &ShapeContext<'_>, i: usize) -> Result<Option<usize>> {
    c.with_rank(i, "size", 0)?;
    match c.partial_value(i).and_then(|v| v.first()) {
        Some(size) if size < 0 => bail!(InvalidArgument, "size ({size}) must be non-negative"),
        size => Ok(size.map(|s| s as usize)),
    }
}

fn bincount_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let bins = known_bins(c, 1)?;
    c.set_output(0, PartialShape::new([bins]));
    Ok(())
}

fn bincount<T: Number>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let size = bins(ctx, 1)?;
        let counted = Counted::<T>::new(ctx.input(0)?, ctx.input(2)?, false)?;
        counted.check_not_negative()?;
        let mut output = ctx.zeros(T::DTYPE, Shape::new(&[size])?)?;
        let target = output.as_mut_slice::<T>()?;
        (0..counted.len).for_each(|i| counted.count(i, target));
        ctx.set_output(0, output)
    })
}

fn dense_bincount_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let bins = known_bins(c, 1)?;
    match c.input(0).dims() {
        Some([] | [_]) => c.set_output(0, PartialShape::new([bins])),
        Some([rows, _]) => c.set_output(0, PartialShape::new([*rows, bins])),
        Some(dims) => {
            bail!(InvalidArgument, "Shape must be at most rank 2 but is rank {}", dims.len())
        }
        None => {}
    }
    Ok(())
}

fn dense_bincount<T: Number>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let is_binary = init.attrs().bool("binary_output")?;
    AnyKernel::new(move |ctx| {
        let (numbers, weights) = (ctx.input(0)?, ctx.input(2)?);
        ensure!(
            numbers.rank() <= 2,
            InvalidArgument,
            "Shape must be at most rank 2 but is rank {}",
            numbers.rank()
        );
        let size = bins(ctx, 1)?;
        check_weights(numbers, weights)?;
        let counted = Counted::<T>::new(numbers, weights, is_binary)?;
        counted.check_not_negative()?;
        let (rows, columns, shape) = match numbers.shape()[..] {
            [rows, columns] => (rows, columns, Shape::new(&[rows, size])?),
            _ => (1, counted.len, Shape::new(&[size])?),
        };
        let mut output = ctx.zeros(T::DTYPE, shape)?;
        let target = output.as_mut_slice::<T>()?;
        if size > 0 {
            for (row, bins) in target.chunks_exact_mut(size).enumerate().take(rows) {
                (row * columns..(row + 1) * columns).for_each(|i| counted.count(i, bins));
            }
        }
        ctx.set_output(0, output)
    })
}

/// Adds weights to bins, of one row or of each row of a matrix.
fn lower_bincount(l: &mut Lowering<'_>, is_binary: bool) -> Result<()> {
    let (numbers, weights, dims) = (wide(&l.input(0)?), l.input(2)?, l.output_dims(0)?);
    let len = numbers.num_elements();
    ensure!(
        [0, len].contains(&weights.num_elements()),
        InvalidArgument,
        "`weights` must be as many as the numbers, {len}, or none; got shape {:?}",
        weights.dims()
    );
    let one = weights.splat(weights.dtype(), &[len], 1.0);
    let weights = if is_binary || weights.num_elements() == 0 { one } else { weights.flatten() };
    let none = weights.splat(weights.dtype(), &dims, 0.0);
    let bin = numbers.reshape(&[len, 1]);
    let place = match numbers.dims() {
        [rows, columns] if dims.len() == 2 => {
            let row = numbers.iota(numbers.dtype(), &[*rows, *columns], 0).reshape(&[len, 1]);
            row.concatenate(&[bin], 1)
        }
        _ => bin,
    };
    let combine = |x: &Value, y: &Value| if is_binary { y.clone() } else { x + y };
    l.set(0, scattered(&none, &place, &weights, combine)?)
}

fn sparse_bincount_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let bins = known_bins(c, 3)?;
    let shape = c.shape_from_input(2)?;
    match shape.rank() {
        Some(1) => c.set_output(0, PartialShape::new([bins])),
        Some(2) => c.set_output(0, PartialShape::new([shape.dim(0), bins])),
        _ => {}
    }
    Ok(())
}

fn sparse_bincount<T: Number>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let is_binary = init.attrs().bool("binary_output")?;
    AnyKernel::new(move |ctx| {
        let sparse = Coordinates::of_inputs(ctx, 0)?;
        ensure!(sparse.rank > 0, InvalidArgument, "dense_shape must not be empty");
        let dense = sparse.shape()?;
        sparse.check_bounds()?;
        let size = bins(ctx, 3)?;
        let counted = Counted::<T>::new(ctx.input(1)?, ctx.input(4)?, is_binary)?;
        if sparse.rank == 1 {
            counted.check_not_negative()?;
            let mut output = ctx.zeros(T::DTYPE, Shape::new(&[size])?)?;
            let target = output.as_mut_slice::<T>()?;
            (0..counted.len).for_each(|i| counted.count(i, target));
            return ctx.set_output(0, output);
        }
        let mut output = ctx.zeros(T::DTYPE, Shape::new(&[dense[0], size])?)?;
        let target = output.as_mut_slice::<T>()?;
        for i in 0..counted.len {
            let row = sparse.row(i)[0] as usize;
            counted.count(i, &mut target[row * size..(row + 1) * size]);
        }
        ctx.set_output(0, output)
    })
}

fn ragged_bincount_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let bins = known_bins(c, 2)?;
    let rows = c.with_rank(0, "splits", 1)?.dim(0).and_then(|n| n.checked_sub(1));
    c.set_output(0, PartialShape::new([rows, bins]));
    Ok(())
}

/// Ends of the rows of a ragged tensor of `len` values.
fn row_ends(splits: &Tensor, len: usize) -> Result<&[i64]> {
    let splits = splits.as_slice::<i64>()?;
    let [first, ends @ ..] = splits else {
        bail!(InvalidArgument, "Splits must have at least one element");
    };
    let last = ends.last().unwrap_or(first);
    ensure!(*first == 0, InvalidArgument, "Splits must start with 0, not with {first}");
    ensure!(
        *last == len as i64,
        InvalidArgument,
        "Splits must end with the number of values, got {last} instead of {len}"
    );
    Ok(ends)
}

/// Calls `visit(row, i)` for each value; rows are contiguous.
fn for_each_in_rows(ends: &[i64], len: usize, mut visit: impl FnMut(usize, usize)) {
    let mut row = 0;
    for i in 0..len {
        // The last end is `len`, so the search stays in bounds.
        while row + 1 < ends.len() && i as i64 >= ends[row] {
            row += 1;
        }
        visit(row, i);
    }
}

fn ragged_bincount<T: Number>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let is_binary = init.attrs().bool("binary_output")?;
    AnyKernel::new(move |ctx| {
        let size = bins(ctx, 2)?;
        let counted = Counted::<T>::new(ctx.input(1)?, ctx.input(3)?, is_binary)?;
        let ends = row_ends(ctx.input(0)?, counted.len)?;
        counted.check_not_negative()?;
        let mut output = ctx.zeros(T::DTYPE, Shape::new(&[ends.len(), size])?)?;
        let target = output.as_mut_slice::<T>()?;
        for_each_in_rows(ends, counted.len, |row, i| {
            counted.count(i, &mut target[row * size..(row + 1) * size]);
        });
        ctx.set_output(0, output)
    })
}

fn dense_count_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let values = c.with_rank_at_least(0, "values", 1)?;
    set_sparse_outputs(c, 0, None, values.rank());
    Ok(())
}

fn sparse_count_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let rank = c.with_rank(0, "indices", 2)?.dim(1);
    set_sparse_outputs(c, 0, None, rank.map(|r| r.min(2)));
    Ok(())
}

fn ragged_count_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    set_sparse_outputs(c, 0, None, Some(2));
    Ok(())
}

/// The range of values that a sparse count includes (`minlength`, `maxlength`).
#[derive(Clone, Copy)]
struct Limits {
    minlength: i64,
    maxlength: i64,
    is_binary: bool,
}

impl Limits {
    fn of(init: &KernelInit<'_>) -> Result<Limits> {
        let attrs = init.attrs();
        Ok(Limits {
            minlength: attrs.int("minlength")?,
            maxlength: attrs.int("maxlength")?,
            is_binary: attrs.bool("binary_output")?,
        })
    }

    /// Sets the outputs: for each row its distinct values, ascending, with their counts. `row(i)`
    /// is the row of value `i`; a vector input has no rows.
    fn output<T: Number>(
        self,
        ctx: &KernelContext<'_>,
        counted: &Counted<'_, T>,
        rows: Option<usize>,
        row: impl Fn(usize) -> i64,
    ) -> Result<[Tensor; 3]> {
        counted.check_not_negative()?;
        let is_kept = |i: &usize| self.maxlength < 0 || counted.numbers.at(*i) < self.maxlength;
        let count = (0..counted.len).filter(is_kept).count();
        let mut order = ctx.allocate(DType::Int64, Shape::new(&[count])?)?;
        let order = order.as_mut_slice::<i64>()?;
        let kept = (0..counted.len).filter(is_kept);
        order.iter_mut().zip(kept).for_each(|(slot, i)| *slot = i as i64);
        let key = |i: i64| (row(i as usize), counted.numbers.at(i as usize));
        order.sort_unstable_by_key(|&i| (key(i), i));
        let groups = || order.chunk_by(|&a, &b| key(a) == key(b));
        let (found, rank) = (groups().count(), 1 + usize::from(rows.is_some()));
        let mut indices = matrix(ctx, found, rank)?;
        let mut counts = ctx.allocate(T::DTYPE, Shape::new(&[found])?)?;
        let slots = indices.as_mut_slice::<i64>()?.chunks_exact_mut(rank);
        for ((group, slot), total) in groups().zip(slots).zip(counts.as_mut_slice::<T>()?) {
            let (row, number) = key(group[0]);
            slot[0] = row;
            slot[rank - 1] = number;
            let members = group.iter();
            *total = members.fold(T::default(), |sum, &i| counted.counted(sum, i as usize));
        }
        let largest = (0..counted.len).map(|i| counted.numbers.at(i)).max().unwrap_or(0);
        let bins = largest.saturating_add(1).max(self.minlength);
        let bins = if self.maxlength < 0 { bins } else { bins.min(self.maxlength) };
        let shape = match rows {
            Some(rows) => Tensor::vector(&[rows as i64, bins])?,
            None => Tensor::vector(&[bins])?,
        };
        Ok([indices, counts, shape])
    }
}

fn dense_count<T: Number>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let limits = Limits::of(init)?;
    AnyKernel::new(move |ctx| {
        let (numbers, weights) = (ctx.input(0)?, ctx.input(1)?);
        check_weights(numbers, weights)?;
        let counted = Counted::<T>::new(numbers, weights, limits.is_binary)?;
        let outputs = match numbers.shape()[..] {
            [_] => limits.output(ctx, &counted, None, |_| 0)?,
            [rows, columns] if rows > 0 => {
                limits.output(ctx, &counted, Some(rows), |i| (i / columns) as i64)?
            }
            _ => bail!(
                InvalidArgument,
                "Input must be a vector, or a matrix with rows; got shape {}",
                numbers.shape()
            ),
        };
        set_outputs(ctx, outputs)
    })
}

fn sparse_count<T: Number>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let limits = Limits::of(init)?;
    AnyKernel::new(move |ctx| {
        let sparse = Coordinates::of_inputs(ctx, 0)?;
        ensure!(sparse.rank > 0, InvalidArgument, "dense_shape must not be empty");
        let dense = sparse.shape()?;
        sparse.check_bounds()?;
        check_weights(ctx.input(1)?, ctx.input(3)?)?;
        let counted = Counted::<T>::new(ctx.input(1)?, ctx.input(3)?, limits.is_binary)?;
        let rows = (sparse.rank > 1).then_some(dense[0]);
        ensure!(rows != Some(0), InvalidArgument, "dense_shape must have rows, is {dense}");
        let row = |i: usize| if sparse.rank > 1 { sparse.row(i)[0] } else { 0 };
        let outputs = limits.output(ctx, &counted, rows, row)?;
        set_outputs(ctx, outputs)
    })
}

fn ragged_count<T: Number>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let limits = Limits::of(init)?;
    AnyKernel::new(move |ctx| {
        let (numbers, weights) = (ctx.input(1)?, ctx.input(2)?);
        check_weights(numbers, weights)?;
        let counted = Counted::<T>::new(numbers, weights, limits.is_binary)?;
        let ends = row_ends(ctx.input(0)?, counted.len)?;
        ensure!(!ends.is_empty(), InvalidArgument, "Splits must have rows");
        let mut rows = ctx.allocate(DType::Int64, Shape::new(&[counted.len])?)?;
        let slots = rows.as_mut_slice::<i64>()?;
        for_each_in_rows(ends, counted.len, |row, i| slots[i] = row as i64);
        let rows = rows.as_slice::<i64>()?;
        let outputs = limits.output(ctx, &counted, Some(ends.len()), |i| rows[i])?;
        set_outputs(ctx, outputs)
    })
}
