//! `SparseSegmentSum`, `SparseSegmentMean` and `SparseSegmentSqrtN`, and their gradients.

use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{
    DType, Element, PartialShape, Result, Shape, Tensor, bail, bf16, ensure, f16,
};

use crate::indices::{FirstBad, Indices};
use crate::number::Number;
use crate::segment::SortedIds;
use crate::segment_gradients;
use crate::sparse_segment_lowering as lowering;
use crate::split::{Disjoint, for_each_rows};
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        SPARSE_SEGMENT_SUM.with_gradient(segment_gradients::sparse_sum),
        SPARSE_SEGMENT_SUM_WITH_NUM_SEGMENTS.with_gradient(segment_gradients::sparse_sum),
        SPARSE_SEGMENT_MEAN.with_gradient(segment_gradients::sparse_mean),
        SPARSE_SEGMENT_MEAN_WITH_NUM_SEGMENTS.with_gradient(segment_gradients::sparse_mean),
        SPARSE_SEGMENT_SQRT_N.with_gradient(segment_gradients::sparse_sqrt_n),
        SPARSE_SEGMENT_SQRT_N_WITH_NUM_SEGMENTS.with_gradient(segment_gradients::sparse_sqrt_n),
        OpDef::new("SparseSegmentSumGrad", grad_shape).with_work(Work::per_input::<50>),
        OpDef::new("SparseSegmentMeanGrad", grad_shape).with_work(Work::per_input::<50>),
        OpDef::new("SparseSegmentSqrtNGrad", grad_shape).with_work(Work::per_input::<50>),
        SPARSE_SEGMENT_SUM_GRAD_V2,
        OpDef { name: "SparseSegmentMeanGradV2", ..SPARSE_SEGMENT_SUM_GRAD_V2 },
        OpDef { name: "SparseSegmentSqrtNGradV2", ..SPARSE_SEGMENT_SUM_GRAD_V2 },
    ],
    kernels: &[
        cpu_kernel!("SparseSegmentSum", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64
        ] => sum),
        cpu_kernel!("SparseSegmentSumWithNumSegments", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64
        ] => sum; host_inputs: &["num_segments"]),
        cpu_kernel!("SparseSegmentMean", "T" in [f32, f64, f16, bf16] => mean),
        cpu_kernel!("SparseSegmentMeanWithNumSegments", "T" in [f32, f64, f16, bf16] => mean;
            host_inputs: &["num_segments"]),
        cpu_kernel!("SparseSegmentSqrtN", "T" in [f32, f64, f16, bf16] => sqrt_n),
        cpu_kernel!("SparseSegmentSqrtNWithNumSegments", "T" in [f32, f64, f16, bf16] => sqrt_n;
            host_inputs: &["num_segments"]),
        cpu_kernel!("SparseSegmentSumGrad", "T" in [f32, f64, f16, bf16] => sum_grad;
            host_inputs: &["output_dim0"]),
        cpu_kernel!("SparseSegmentMeanGrad", "T" in [f32, f64, f16, bf16] => mean_grad;
            host_inputs: &["output_dim0"]),
        cpu_kernel!("SparseSegmentSqrtNGrad", "T" in [f32, f64, f16, bf16] => sqrt_n_grad;
            host_inputs: &["output_dim0"]),
        cpu_kernel!("SparseSegmentSumGradV2", "T" in [f32, f64, f16, bf16] => sum_rows_grad;
            host_inputs: &["dense_output_dim0"]),
        cpu_kernel!("SparseSegmentMeanGradV2", "T" in [f32, f64, f16, bf16] => mean_rows_grad;
            host_inputs: &["dense_output_dim0"]),
        cpu_kernel!("SparseSegmentSqrtNGradV2", "T" in [f32, f64, f16, bf16] => sqrt_n_rows_grad;
            host_inputs: &["dense_output_dim0"]),
        KernelSpec::lowering("SparseSegmentSumWithNumSegments", |l| {
            lowering::combine(l, Scale::None)
        })
        .with_host_inputs(&["num_segments"]),
        KernelSpec::lowering("SparseSegmentSumGrad", |l| lowering::spread(l, Scale::None))
            .with_host_inputs(&["output_dim0"]),
        KernelSpec::lowering("SparseSegmentMeanWithNumSegments", |l| {
            lowering::combine(l, Scale::Mean)
        })
        .with_host_inputs(&["num_segments"]),
        KernelSpec::lowering("SparseSegmentMeanGrad", |l| lowering::spread(l, Scale::Mean))
            .with_host_inputs(&["output_dim0"]),
        KernelSpec::lowering("SparseSegmentSqrtNWithNumSegments", |l| {
            lowering::combine(l, Scale::SqrtN)
        })
        .with_host_inputs(&["num_segments"]),
        KernelSpec::lowering("SparseSegmentSqrtNGrad", |l| lowering::spread(l, Scale::SqrtN))
            .with_host_inputs(&["output_dim0"]),
    ],
};

/// Element types with their accumulator types.
trait Summed: Element {
    /// The wider type.
    type Wide: Number;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    /// The factor `x` in this type.
    fn factor(x: f64) -> Self::Wide;
}

macro_rules! summed {
    ($($t:ty => $wide:ty: $widen:expr, $narrow:expr;)+) => { $(
        impl Summed for $t {
            type Wide = $wide;
            #[inline(always)]
            fn widen(self) -> $wide {
                let widen: fn($t) -> $wide = $widen;
                widen(self)
            }
            #[inline(always)]
            fn narrow(wide: $wide) -> $t {
                let narrow: fn($wide) -> $t = $narrow;
                narrow(wide)
            }
            fn factor(x: f64) -> $wide {
                x as $wide
            }
        }
    )+ };
}

summed! {
    f32 => f32: |x| x, |x| x;
    f64 => f64: |x| x, |x| x;
    f16 => f32: f32::from, f16::from_f32;
    bf16 => f32: f32::from, bf16::from_f32;
    i8 => i8: |x| x, |x| x;
    i16 => i16: |x| x, |x| x;
    i32 => i32: |x| x, |x| x;
    i64 => i64: |x| x, |x| x;
    u8 => u8: |x| x, |x| x;
    u16 => u16: |x| x, |x| x;
    u32 => u32: |x| x, |x| x;
    u64 => u64: |x| x, |x| x;
}

/// How the sum of a segment is scaled.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    /// By 1.
    None,
    /// Divided by the number of rows.
    Mean,
    /// Divided by the square root of the number of rows.
    SqrtN,
}

impl Scale {
    fn factor(self, rows: usize) -> f64 {
        let rows = rows.max(1) as f64;
        match self {
            Scale::None => 1.0,
            Scale::Mean => 1.0 / rows,
            Scale::SqrtN => 1.0 / rows.sqrt(),
        }
    }
}

const SPARSE_SEGMENT_SUM: OpDef =
    OpDef::new("SparseSegmentSum", sparse_shape).with_work(work::sparse_rows);
const SPARSE_SEGMENT_SUM_WITH_NUM_SEGMENTS: OpDef =
    OpDef::new("SparseSegmentSumWithNumSegments", sparse_shape).with_work(work::sparse_rows);
const SPARSE_SEGMENT_MEAN: OpDef =
    OpDef::new("SparseSegmentMean", sparse_shape).with_work(work::sparse_rows);
const SPARSE_SEGMENT_MEAN_WITH_NUM_SEGMENTS: OpDef =
    OpDef::new("SparseSegmentMeanWithNumSegments", sparse_shape).with_work(work::sparse_rows);
const SPARSE_SEGMENT_SQRT_N: OpDef =
    OpDef::new("SparseSegmentSqrtN", sparse_shape).with_work(work::sparse_rows);
const SPARSE_SEGMENT_SQRT_N_WITH_NUM_SEGMENTS: OpDef =
    OpDef::new("SparseSegmentSqrtNWithNumSegments", sparse_shape).with_work(work::sparse_rows);

fn sparse_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let data = c.with_rank_at_least(0, "data", 1)?;
    c.with_rank(1, "indices", 1)?.merge(&c.with_rank(2, "segment_ids", 1)?)?;
    let mut rows = None;
    if c.num_inputs() == 4 {
        c.with_rank(3, "num_segments", 0)?;
        if let Some(n) = c.partial_value(3).and_then(|v| v.first()) {
            ensure!(n >= 0, InvalidArgument, "num_segments must not be negative, is {n}");
            rows = Some(n as usize);
        }
    }
    if let Some(dims) = data.dims() {
        let rest = dims[1..].iter().copied();
        c.set_output(0, PartialShape::new(std::iter::once(rows).chain(rest)));
    }
    Ok(())
}

fn sum<T: Summed>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| combine_rows::<T>(ctx, Scale::None))
}

fn mean<T: Summed>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| combine_rows::<T>(ctx, Scale::Mean))
}

fn sqrt_n<T: Summed>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| combine_rows::<T>(ctx, Scale::SqrtN))
}

fn check_pairs(indices: &Tensor, ids: &Tensor) -> Result<()> {
    ensure!(indices.rank() == 1, InvalidArgument, "indices should be a vector.");
    ensure!(ids.rank() == 1, InvalidArgument, "segment_ids should be a vector.");
    ensure!(
        indices.num_elements() == ids.num_elements(),
        InvalidArgument,
        "segment_ids and indices should have same size."
    );
    Ok(())
}

fn combine_rows<T: Summed>(ctx: &mut KernelContext<'_>, scale: Scale) -> Result<()> {
    let (data, indices, ids) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
    check_pairs(indices, ids)?;
    ensure!(data.rank() >= 1, InvalidArgument, "data must be at least rank 1");
    let ids = SortedIds::new(ids)?;
    let mut segments = ids.segments();
    if ctx.num_inputs() == 4 {
        let num = ctx.scalar_int(3, "num_segments")?;
        ensure!(num >= 0, InvalidArgument, "segment ids must be >= 0");
        ensure!(segments as i64 <= num, InvalidArgument, "segment ids must be < num_segments");
        segments = num as usize;
    }
    let mut dims = data.shape().to_vec();
    let limit = std::mem::replace(&mut dims[0], segments);
    let row: usize = dims[1..].iter().product();
    let count = indices.num_elements();
    let indices = Indices::of(indices)?;
    let mut output = ctx.allocate_output(0, Shape::new(&dims)?)?;
    let elements = data.as_slice::<T>()?;
    let bad = FirstBad::new();
    // Indices are also checked if rows are empty.
    (0..count).filter(|&i| row == 0 && indices.below(i, limit).is_none()).for_each(|i| bad.note(i));
    let cost = (count as f64 / segments.max(1) as f64).max(1.0) * row as f64;
    for_each_rows(ctx, output.as_mut_slice::<T>()?, row, cost, |first, part| {
        let mut start = ids.start(first);
        for (n, target) in part.chunks_exact_mut(row).enumerate() {
            let end = ids.end(start, first + n);
            let source = |i: usize| match indices.below(i, limit) {
                Some(index) => Some(&elements[index * row..][..row]),
                None => {
                    bad.note(i);
                    None
                }
            };
            sum_rows(&(start..end).filter_map(source), target, scale.factor(end - start));
            start = end;
        }
    })?;
    if let Some(i) = bad.get() {
        bail!(InvalidArgument, "Bad: indices[{i}] == {} out of range [0, {limit})", indices.at(i));
    }
    ctx.set_output(0, output)
}

/// Columns that are summed at a time, on the stack.
const COLUMNS: usize = 64;

/// Sets `target` to the sum of the rows, times `factor`.
fn sum_rows<'a, T: Summed>(
    rows: &(impl Iterator<Item = &'a [T]> + Clone),
    target: &mut [T],
    factor: f64,
) {
    for (block, target) in target.chunks_mut(COLUMNS).enumerate() {
        let start = block * COLUMNS;
        let mut sums = [T::default().widen(); COLUMNS];
        for row in rows.clone() {
            let row = &row[start..start + target.len()];
            sums.iter_mut().zip(row).for_each(|(sum, &x)| *sum = sum.plus(x.widen()));
        }
        if factor != 1.0 {
            let factor = T::factor(factor);
            sums.iter_mut().for_each(|sum| *sum = sum.times(factor));
        }
        target.iter_mut().zip(sums).for_each(|(t, sum)| *t = T::narrow(sum));
    }
}

fn grad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let grad = c.with_rank_at_least(0, "grad", 1)?;
    c.with_rank(1, "indices", 1)?.merge(&c.with_rank(2, "segment_ids", 1)?)?;
    c.with_rank(3, "output_dim0", 0)?;
    let rows = match c.partial_value(3).and_then(|v| v.first()) {
        Some(n) => {
            ensure!(n >= 0, InvalidArgument, "output_dim0 must not be negative, is {n}");
            Some(n as usize)
        }
        None => None,
    };
    if let Some(dims) = grad.dims() {
        let rest = dims[1..].iter().copied();
        c.set_output(0, PartialShape::new(std::iter::once(rows).chain(rest)));
    }
    Ok(())
}

fn sum_grad<T: Summed>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| spread_rows::<T>(ctx, Scale::None))
}

fn mean_grad<T: Summed>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| spread_rows::<T>(ctx, Scale::Mean))
}

fn sqrt_n_grad<T: Summed>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| spread_rows::<T>(ctx, Scale::SqrtN))
}

/// The gradient op: adds each segment's row, scaled, to the gathered rows.
fn spread_rows<T: Summed>(ctx: &mut KernelContext<'_>, scale: Scale) -> Result<()> {
    let (grad, indices, ids) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
    check_pairs(indices, ids)?;
    ensure!(grad.rank() >= 1, InvalidArgument, "grad must be at least rank 1");
    let rows = rows_of_all(ctx)?;
    let output = scatter_rows::<T>(ctx, Indices::of(indices)?, rows, scale)?;
    ctx.set_output(0, output)
}

/// The number of rows of the gradient (`output_dim0`).
fn rows_of_all(ctx: &KernelContext<'_>) -> Result<usize> {
    let rows = ctx.scalar_int(3, "output_dim0")?;
    ensure!(rows >= 0, InvalidArgument, "output_dim0 must not be negative, is {rows}");
    Ok(rows as usize)
}

/// A tensor of `limit` rows in which the row of segment `ids[i]` is added to row `indices[i]`.
fn scatter_rows<T: Summed>(
    ctx: &KernelContext<'_>,
    indices: Indices<'_>,
    limit: usize,
    scale: Scale,
) -> Result<Tensor> {
    let (grad, ids) = (ctx.input(0)?, ctx.input(2)?);
    let mut dims = grad.shape().to_vec();
    let segments = std::mem::replace(&mut dims[0], limit);
    let row = dims[1..].iter().product::<usize>();
    let (count, ids) = (ids.num_elements(), Indices::of(ids)?);
    // The number of rows of each segment; ids need not be sorted here.
    let mut counts = ctx.zeros(DType::Int64, Shape::new(&[segments])?)?;
    let counts = counts.as_mut_slice::<i64>()?;
    for i in 0..count {
        let id = ids.below(i, segments);
        let Some(id) = id else {
            bail!(InvalidArgument, "Segment id {} out of range [0, {segments}).", ids.at(i));
        };
        counts[id] += 1;
        ensure!(
            indices.below(i, limit).is_some(),
            InvalidArgument,
            "Index {} out of range [0, {limit}).",
            indices.at(i)
        );
    }
    let shape = Shape::new(&dims)?;
    let mut sums = ctx.zeros(<T::Wide as Element>::DTYPE, shape.clone())?;
    let elements = grad.as_slice::<T>()?;
    let target = Disjoint::new(sums.as_mut_slice::<T::Wide>()?);
    // Work is divided by columns, so that the order of summation holds for every element.
    ctx.parallel_for(row, count as f64, |columns| {
        for i in 0..count {
            let (id, index) = (ids.at(i) as usize, indices.at(i) as usize);
            let factor = T::factor(scale.factor(counts[id] as usize));
            let range = index * row + columns.start..index * row + columns.end;
            // SAFETY: ranges of columns are disjoint, and one thread's parts live in turn.
            let to = unsafe { target.part(range) };
            let from = &elements[id * row..][columns.clone()];
            to.iter_mut().zip(from).for_each(|(t, &x)| *t = t.plus(x.widen().times(factor)));
        }
    })?;
    if T::DTYPE == <T::Wide as Element>::DTYPE {
        return Ok(sums);
    }
    let mut output = ctx.allocate_output(0, shape)?;
    let sums = sums.as_slice::<T::Wide>()?;
    for_each_rows(ctx, output.as_mut_slice::<T>()?, 1, 1.0, |first, part| {
        part.iter_mut().zip(&sums[first..]).for_each(|(t, &sum)| *t = T::narrow(sum));
    })?;
    Ok(output)
}

const SPARSE_SEGMENT_SUM_GRAD_V2: OpDef =
    OpDef::new("SparseSegmentSumGradV2", rows_grad_shape).with_work(Work::per_input::<50>);

fn rows_grad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let grad = c.with_rank_at_least(0, "grad", 1)?;
    c.with_rank(1, "indices", 1)?.merge(&c.with_rank(2, "segment_ids", 1)?)?;
    c.with_rank(3, "dense_output_dim0", 0)?;
    if let Some(dims) = grad.dims() {
        let rest = dims[1..].iter().copied();
        c.set_output(0, PartialShape::new(std::iter::once(None).chain(rest)));
    }
    c.set_output(1, PartialShape::new([None]));
    Ok(())
}

fn sum_rows_grad<T: Summed>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| spread_to_picked::<T>(ctx, Scale::None))
}

fn mean_rows_grad<T: Summed>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| spread_to_picked::<T>(ctx, Scale::Mean))
}

fn sqrt_n_rows_grad<T: Summed>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| spread_to_picked::<T>(ctx, Scale::SqrtN))
}

/// The V2 gradient op: as [`spread_rows`], but returns only the gathered rows, sorted by index, and
/// their indices.
fn spread_to_picked<T: Summed>(ctx: &mut KernelContext<'_>, scale: Scale) -> Result<()> {
    let (grad, indices, ids) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
    check_pairs(indices, ids)?;
    ensure!(grad.rank() >= 1, InvalidArgument, "grad must be at least rank 1");
    let limit = rows_of_all(ctx)?;
    if limit == 0 {
        // A tensor without rows has no gathered rows, whatever the indices are.
        let mut dims = grad.shape().to_vec();
        dims[0] = 0;
        let none = ctx.zeros(indices.dtype(), Shape::new(&[0])?)?;
        ctx.set_output(0, ctx.zeros(T::DTYPE, Shape::new(&dims)?)?)?;
        return ctx.set_output(1, none);
    }
    let indices = Indices::of(indices)?;
    let count = ids.num_elements();
    let picked = sorted_unique(ctx, indices, count, limit)?;
    let picked = picked.as_slice::<i64>()?;
    let mut places = ctx.zeros(DType::Int64, Shape::new(&[count])?)?;
    for_each_rows(ctx, places.as_mut_slice::<i64>()?, 1, 10.0, |first, part| {
        for (i, place) in part.iter_mut().enumerate() {
            *place = picked.partition_point(|&p| p < indices.at(first + i)) as i64;
        }
    })?;
    let output = scatter_rows::<T>(ctx, Indices::of(&places)?, picked.len(), scale)?;
    let mut which = ctx.allocate_output(1, Shape::new(&[picked.len()])?)?;
    if which.dtype() == DType::Int64 {
        which.as_mut_slice::<i64>()?.copy_from_slice(picked);
    } else {
        let which = which.as_mut_slice::<i32>()?;
        which.iter_mut().zip(picked).for_each(|(to, &i)| *to = i as i32);
    }
    ctx.set_output(0, output)?;
    ctx.set_output(1, which)
}

/// The distinct ones of `count` indices, ascending, as int64.
fn sorted_unique(
    ctx: &KernelContext<'_>,
    indices: Indices<'_>,
    count: usize,
    limit: usize,
) -> Result<Tensor> {
    let mut sorted = ctx.zeros(DType::Int64, Shape::new(&[count])?)?;
    let sorted = sorted.as_mut_slice::<i64>()?;
    for (i, to) in sorted.iter_mut().enumerate() {
        *to = indices.at(i);
        ensure!(
            indices.below(i, limit).is_some(),
            InvalidArgument,
            "Index {to} out of range [0, {limit})."
        );
    }
    sorted.sort_unstable();
    let firsts = || sorted.chunk_by(|x, y| x == y).map(|run| run[0]);
    let mut unique = ctx.zeros(DType::Int64, Shape::new(&[firsts().count()])?)?;
    unique.as_mut_slice::<i64>()?.iter_mut().zip(firsts()).for_each(|(to, i)| *to = i);
    Ok(unique)
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;
    use crate::testing::{Call, call};

    fn gradient(op: &'static str, indices: &[i32], ids: &[i64], rows: i32) -> Call {
        let grad: Vec<f32> = (0..6).map(|i| i as f32 + 1.0).collect();
        call(op)
            .input(Tensor::from_slice(Shape::new(&[3, 2]).unwrap(), &grad).unwrap())
            .input(Tensor::vector(indices).unwrap())
            .input(Tensor::vector(ids).unwrap())
            .input(Tensor::scalar(rows))
    }

    /// The V2 gradient scattered into zeros equals the dense gradient.
    #[test]
    fn rows_and_whole_gradients_agree() {
        for (whole, as_rows) in [
            ("SparseSegmentSumGrad", "SparseSegmentSumGradV2"),
            ("SparseSegmentMeanGrad", "SparseSegmentMeanGradV2"),
            ("SparseSegmentSqrtNGrad", "SparseSegmentSqrtNGradV2"),
        ] {
            let cases: [(&[i32], &[i64], usize); 3] =
                [(&[5, 1, 5, 0], &[0, 0, 1, 2], 3), (&[3, 3], &[1, 0], 1), (&[], &[], 0)];
            for (indices, ids, unique) in cases {
                let expected = gradient(whole, indices, ids, 7).run().unwrap();
                let rows = gradient(as_rows, indices, ids, 7).backwards().run_all().unwrap();
                assert_eq!(rows[0].shape().to_vec(), [unique, 2]);
                let mut got = [0.0; 14];
                let which = rows[1].as_slice::<i32>().unwrap();
                assert!(which.is_sorted() && which.len() == unique);
                let values = rows[0].as_slice::<f32>().unwrap();
                for (&row, values) in which.iter().zip(values.chunks(2)) {
                    got[row as usize * 2..][..2].copy_from_slice(values);
                }
                assert_eq!(expected.as_slice::<f32>().unwrap(), got, "{as_rows} {indices:?}");
            }
        }
    }

    #[test]
    fn hostile_gradients_of_rows() {
        let op = "SparseSegmentSumGradV2";
        let cases: [(&[i32], &[i64], i32); 7] = [
            (&[7], &[0], 7),
            (&[-1], &[0], 7),
            (&[1], &[3], 7),
            (&[1], &[-3], 7),
            (&[1, 2], &[1], 7),
            (&[], &[], -1),
            (&[i32::MAX], &[i64::MAX], i32::MAX),
        ];
        for (indices, ids, rows) in cases {
            let error = gradient(op, indices, ids, rows).run_all().unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{indices:?} {ids:?} {rows}");
        }
        let nothing = gradient(op, &[0], &[1], 0).run_all().unwrap();
        assert_eq!(nothing[0].shape().to_vec(), [0, 2]);
        // Rows that were not gathered cost nothing.
        let far = gradient(op, &[i32::MAX - 1], &[1], i32::MAX).run_all().unwrap();
        assert_eq!(far[0].as_slice::<f32>().unwrap(), [3.0, 4.0]);
        let shapes = call(op).shape(DType::Float, "3,?,2").shape(DType::Int32, "4");
        let shapes = shapes.shape(DType::Int32, "?").shape(DType::Int32, "");
        assert_eq!(shapes.infer(), "[?,?,2] [?]");
    }
}
