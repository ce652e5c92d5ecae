//! `SparseReduceSum`, `SparseReduceMax` and `SparseSoftmax`.

use std::cmp::Ordering;

use smallvec::SmallVec;
use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit};
use thalweg_tensor::{
    Complex32, Complex64, PartialShape, Result, Shape, Tensor, bf16, ensure, err, f16,
};

use super::coo::{Coordinates, matrix, sparse_input_shapes, strides};
use super::gradients;
use crate::number::{Number, Ordered};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        SPARSE_REDUCE_SUM.with_gradient(gradients::reduce_sum),
        OpDef::new("SparseReduceSumSparse", sparse_shape).with_work(Work::serial::<10>),
        OpDef::new("SparseReduceMax", dense_shape).with_work(Work::serial::<10>),
        OpDef::new("SparseReduceMaxSparse", sparse_shape).with_work(Work::serial::<10>),
        SPARSE_SOFTMAX.with_gradient(gradients::softmax),
    ],
    kernels: &[
        cpu_kernel!("SparseReduceSum", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64
        ] => sum),
        cpu_kernel!("SparseReduceSumSparse", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64
        ] => sum_sparse),
        cpu_kernel!("SparseReduceMax", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64
        ] => max),
        cpu_kernel!("SparseReduceMaxSparse", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64
        ] => max_sparse),
        cpu_kernel!("SparseSoftmax", "T" in [f32, f64, f16] => softmax),
    ],
};

const SPARSE_REDUCE_SUM: OpDef =
    OpDef::new("SparseReduceSum", dense_shape).with_work(Work::serial::<10>);

fn dense_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let keeps = c.attrs().bool("keep_dims")?;
    let shape = c.shape_from_input(2)?;
    let (Some(dims), Some(axes)) = (shape.dims(), c.partial_value(3).and_then(|v| v.known()))
    else {
        if keeps && let Some(rank) = shape.rank() {
            c.set_output(0, PartialShape::of_rank(rank));
        }
        return Ok(());
    };
    let is_reduced = reduced(&axes, dims.len())?;
    let output = dims.iter().zip(&is_reduced).filter_map(|(&dim, &reduced)| match reduced {
        false => Some(dim),
        true => keeps.then_some(Some(1)),
    });
    c.set_output(0, PartialShape::new(output));
    Ok(())
}

fn sparse_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::of_rank(2));
    c.set_output(1, PartialShape::of_rank(1));
    c.set_output(2, PartialShape::of_rank(1));
    Ok(())
}

/// For each dimension whether it is among the axes.
fn reduced(axes: &[i64], rank: usize) -> Result<SmallVec<[bool; 6]>> {
    let mut is_reduced: SmallVec<[bool; 6]> = smallvec::smallvec![false; rank];
    for &axis in axes {
        let from_start = if axis < 0 { axis + rank as i64 } else { axis };
        let slot = usize::try_from(from_start).ok().and_then(|a| is_reduced.get_mut(a));
        *slot.ok_or_else(|| {
            err!(
                InvalidArgument,
                "Invalid reduction dimension {axis}, for input with {rank} dimensions"
            )
        })? = true;
    }
    Ok(is_reduced)
}

/// Parameters of a reduction.
struct Reduction<'a> {
    sparse: Coordinates<'a>,
    /// The kept dimensions.
    kept: SmallVec<[usize; 6]>,
    /// The reduced dimensions.
    dropped: SmallVec<[usize; 6]>,
    /// Index of each kept dimension in the result's coordinates, for sparse results.
    columns: SmallVec<[usize; 6]>,
    sizes: SmallVec<[i64; 6]>,
}

impl<'a> Reduction<'a> {
    fn of_inputs(ctx: &'a KernelContext<'_>, keeps: bool) -> Result<Reduction<'a>> {
        let sparse = Coordinates::of_inputs(ctx, 0)?;
        sparse.shape()?;
        let axes = ctx.input(3)?;
        ensure!(
            axes.rank() <= 1,
            InvalidArgument,
            "Expected reduction_axes to be a scalar or a vector; got shape {}",
            axes.shape()
        );
        let is_reduced = reduced(&ctx.ints(3, "reduction_axes")?, sparse.rank)?;
        let (dropped, kept): (SmallVec<[usize; 6]>, SmallVec<[usize; 6]>) =
            (0..sparse.rank).partition(|&d| is_reduced[d]);
        let (columns, sizes) = if keeps {
            let size = |d: usize| if is_reduced[d] { 1 } else { sparse.sizes[d] };
            (kept.clone(), (0..sparse.rank).map(size).collect())
        } else {
            ((0..kept.len()).collect(), kept.iter().map(|&d| sparse.sizes[d]).collect())
        };
        Ok(Reduction { sparse, kept, dropped, columns, sizes })
    }

    fn compare(&self, a: usize, b: usize, dims: &[usize]) -> Ordering {
        let (a, b) = (self.sparse.row(a), self.sparse.row(b));
        dims.iter().map(|&d| a[d]).cmp(dims.iter().map(|&d| b[d]))
    }

    /// Indices of the values, sorted so that groups are contiguous.
    fn order(&self, ctx: &KernelContext<'_>) -> Result<Tensor> {
        self.sparse.order_by(ctx, |a, b| {
            self.compare(a, b, &self.kept).then_with(|| self.compare(a, b, &self.dropped))
        })
    }

    /// Calls `visit(first, value)` for each group: the index of one of its values, and their
    /// combination.
    fn for_each_group<T: Number>(
        &self,
        order: &[i64],
        values: &[T],
        combine: impl Fn(T, T) -> T,
        mut visit: impl FnMut(usize, T) -> Result<()>,
    ) -> Result<()> {
        let together =
            |a: &i64, b: &i64| self.compare(*a as usize, *b as usize, &self.kept).is_eq();
        for group in order.chunk_by(together) {
            let mut total = values[group[0] as usize];
            for &i in &group[1..] {
                total = combine(total, values[i as usize]);
            }
            visit(group[0] as usize, total)?;
        }
        Ok(())
    }
}

fn to_dense<T: Number>(
    init: &KernelInit<'_>,
    combine: impl Fn(T, T) -> T + Copy + Send + Sync + 'static,
) -> Result<AnyKernel> {
    let keeps = init.attrs().bool("keep_dims")?;
    AnyKernel::new(move |ctx| {
        let reduction = Reduction::of_inputs(ctx, keeps)?;
        let mut output = ctx.zeros(T::DTYPE, Shape::from_i64(&reduction.sizes)?)?;
        let order = reduction.order(ctx)?;
        let target = output.as_mut_slice::<T>()?;
        let strides = strides(&reduction.sizes);
        let (order, values) = (order.as_slice()?, ctx.slice::<T>(1)?);
        reduction.for_each_group(order, values, combine, |first, total| {
            let row = reduction.sparse.row(first);
            let terms = reduction.kept.iter().zip(&reduction.columns);
            let terms = terms.map(|(&d, &column)| row[d].wrapping_mul(strides[column]));
            let place = terms.fold(0, i64::wrapping_add);
            let slot = usize::try_from(place).ok().and_then(|p| target.get_mut(p));
            *slot.ok_or_else(|| {
                err!(
                    Internal,
                    "indices[{first}] = {row:?} lies outside the shape {:?}",
                    reduction.sparse.sizes
                )
            })? = total;
            Ok(())
        })?;
        ctx.set_output(0, output)
    })
}

fn to_sparse<T: Number>(
    init: &KernelInit<'_>,
    combine: impl Fn(T, T) -> T + Copy + Send + Sync + 'static,
) -> Result<AnyKernel> {
    let keeps = init.attrs().bool("keep_dims")?;
    AnyKernel::new(move |ctx| {
        let reduction = Reduction::of_inputs(ctx, keeps)?;
        let order = reduction.order(ctx)?;
        let (order, values) = (order.as_slice()?, ctx.slice::<T>(1)?);
        let mut count = 0;
        reduction.for_each_group(order, values, combine, |_, _| {
            count += 1;
            Ok(())
        })?;
        let rank = reduction.sizes.len();
        let mut indices = matrix(ctx, count, rank)?;
        let mut totals = ctx.allocate(T::DTYPE, Shape::new(&[count])?)?;
        let (rows, out) = (indices.as_mut_slice::<i64>()?, totals.as_mut_slice::<T>()?);
        rows.fill(0);
        let mut n = 0;
        reduction.for_each_group(order, values, combine, |first, total| {
            let row = reduction.sparse.row(first);
            for (&d, &column) in reduction.kept.iter().zip(&reduction.columns) {
                rows[n * rank + column] = row[d];
            }
            out[n] = total;
            n += 1;
            Ok(())
        })?;
        let sizes = Tensor::vector(&reduction.sizes)?;
        ctx.set_output(0, indices)?;
        ctx.set_output(1, totals)?;
        ctx.set_output(2, sizes)
    })
}

fn sum<T: Number>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    to_dense::<T>(init, T::plus)
}

fn sum_sparse<T: Number>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    to_sparse::<T>(init, T::plus)
}

/// The maximum; NaN is replaced by the value after it, as comparisons with NaN are false.
fn later_larger<T: Ordered>(total: T, x: T) -> T {
    x.greater(total)
}

fn max<T: Ordered>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    to_dense::<T>(init, later_larger::<T>)
}

fn max_sparse<T: Ordered>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    to_sparse::<T>(init, later_larger::<T>)
}

const SPARSE_SOFTMAX: OpDef =
    OpDef::new("SparseSoftmax", softmax_shape).with_work(Work::serial::<10>);

fn softmax_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (count, _) = sparse_input_shapes(c, 0)?;
    c.set_output(0, PartialShape::new([count]));
    Ok(())
}

/// Float types with an exponential.
trait Exponential: Ordered {
    fn exp(self) -> Self;
}

impl Exponential for f32 {
    fn exp(self) -> Self {
        f32::exp(self)
    }
}

impl Exponential for f64 {
    fn exp(self) -> Self {
        f64::exp(self)
    }
}

impl Exponential for f16 {
    fn exp(self) -> Self {
        f16::from_f32(f32::from(self).exp())
    }
}

fn softmax<T: Exponential>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let sparse = Coordinates::of_inputs(ctx, 0)?;
        sparse.shape()?;
        ensure!(
            sparse.rank >= 2,
            InvalidArgument,
            "Input should have rank >= 2, but received shape: {:?}",
            sparse.sizes
        );
        let last = sparse.rank - 1;
        let prefix = |i: &i64| &sparse.row(*i as usize)[..last];
        let order = sparse.order(ctx)?;
        let mut output = ctx.allocate_output(0, Shape::new(&[sparse.count])?)?;
        let (values, mut rest) = (ctx.slice::<T>(1)?, output.as_mut_slice::<T>()?);
        // The results are in the order of the coordinates, even if the values were not.
        for group in order.as_slice::<i64>()?.chunk_by(|a, b| prefix(a) == prefix(b)) {
            let (target, after) = rest.split_at_mut(group.len());
            rest = after;
            let mut largest = values[group[0] as usize];
            for (slot, &i) in target.iter_mut().zip(group) {
                *slot = values[i as usize];
                largest = largest.greater(*slot);
            }
            target.iter_mut().for_each(|x| *x = x.minus(largest).exp());
            let total = target[1..].iter().fold(target[0], |total, &x| total.plus(x));
            target.iter_mut().for_each(|x| *x = x.over(total));
        }
        ctx.set_output(0, output)
    })
}
