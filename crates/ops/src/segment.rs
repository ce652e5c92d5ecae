//! Segment reductions: sorted and unsorted.

use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{OpDef, Work};
use thalweg_hlo::Value;
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{
    Complex32, Complex64, DType, PartialShape, Result, Shape, Tensor, bail, bf16, ensure, f16,
};

use crate::indices::{Indices, coordinates};
use crate::number::{Number, Ordered};
use crate::rows_lowering::scattered;
use crate::scatter::Update;
use crate::segment_gradients;
use crate::split::{Disjoint, for_each_rows};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        SEGMENT_SUM.with_gradient(segment_gradients::sum),
        SEGMENT_MEAN.with_gradient(segment_gradients::mean),
        SEGMENT_PROD.with_gradient(segment_gradients::product),
        SEGMENT_MIN.with_gradient(segment_gradients::extremum),
        SEGMENT_MAX.with_gradient(segment_gradients::extremum),
        UNSORTED_SEGMENT_SUM.with_gradient(segment_gradients::sum),
        UNSORTED_SEGMENT_PROD.with_gradient(segment_gradients::product),
        UNSORTED_SEGMENT_MIN.with_gradient(segment_gradients::extremum),
        UNSORTED_SEGMENT_MAX.with_gradient(segment_gradients::extremum),
    ],
    kernels: &[
        cpu_kernel!("SegmentSum", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64
        ] => segment_sum),
        cpu_kernel!("SegmentMean", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64
        ] => segment_mean),
        cpu_kernel!("SegmentProd", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64
        ] => segment_prod),
        cpu_kernel!("SegmentMin", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64
        ] => segment_min),
        cpu_kernel!("SegmentMax", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64
        ] => segment_max),
        cpu_kernel!("UnsortedSegmentSum", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64
        ] => unsorted_sum; host_inputs: &["num_segments"]),
        cpu_kernel!("UnsortedSegmentProd", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64
        ] => unsorted_prod; host_inputs: &["num_segments"]),
        cpu_kernel!("UnsortedSegmentMin", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64
        ] => unsorted_min; host_inputs: &["num_segments"]),
        cpu_kernel!("UnsortedSegmentMax", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64
        ] => unsorted_max; host_inputs: &["num_segments"]),
        KernelSpec::lowering("UnsortedSegmentSum", |l| {
            lower_unsorted(l, |like| like.scalar_like(0.0), Value::plus)
        })
        .with_host_inputs(&["num_segments"]),
        KernelSpec::lowering("UnsortedSegmentProd", |l| {
            lower_unsorted(l, |like| like.scalar_like(1.0), Value::times)
        })
        .with_host_inputs(&["num_segments"]),
        KernelSpec::lowering("UnsortedSegmentMin", |l| {
            lower_unsorted(l, largest, |x, y| Update::Min.lower(x, y))
        })
        .with_host_inputs(&["num_segments"]),
        KernelSpec::lowering("UnsortedSegmentMax", |l| {
            lower_unsorted(l, least, |x, y| Update::Max.lower(x, y))
        })
        .with_host_inputs(&["num_segments"]),
    ],
};

/// Element types of segment reductions.
trait Start: Number {
    /// A number of rows as the divisor of a mean.
    fn count(n: usize) -> Self;
}

/// Element types with initial values for minimum and maximum.
trait Bounded: Start + Ordered {
    const LOWEST: Self;
    const HIGHEST: Self;
}

macro_rules! start {
    ($($t:ty: $count:expr;)+) => { $(
        impl Start for $t {
            fn count(n: usize) -> Self {
                let count: fn(usize) -> $t = $count;
                count(n)
            }
        }
    )+ };
}

macro_rules! bounded {
    ($($t:ty: $count:expr;)+) => {
        start! { $($t: $count;)+ }
        $(impl Bounded for $t {
            const LOWEST: Self = <$t>::MIN;
            const HIGHEST: Self = <$t>::MAX;
        })+
    };
}

bounded! {
    f32: |n| n as f32;
    f64: |n| n as f64;
    f16: |n| f16::from_f64(n as f64);
    bf16: |n| bf16::from_f64(n as f64);
    i8: |n| n as i8;
    i16: |n| n as i16;
    i32: |n| n as i32;
    i64: |n| n as i64;
    u8: |n| n as u8;
    u16: |n| n as u16;
    u32: |n| n as u32;
    u64: |n| n as u64;
}

start! {
    Complex32: |n| Complex32::new(n as f32, 0.0);
    Complex64: |n| Complex64::new(n as f64, 0.0);
}

const SEGMENT_SUM: OpDef = OpDef::new("SegmentSum", segment_shape).with_work(Work::per_input::<20>);
const SEGMENT_MEAN: OpDef = OpDef { name: "SegmentMean", ..SEGMENT_SUM };
const SEGMENT_PROD: OpDef = OpDef { name: "SegmentProd", ..SEGMENT_SUM };
const SEGMENT_MIN: OpDef = OpDef::new("SegmentMin", segment_shape).with_work(Work::per_input::<20>);
const SEGMENT_MAX: OpDef = OpDef { name: "SegmentMax", ..SEGMENT_MIN };

fn segment_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let data = c.with_rank_at_least(0, "data", 1)?;
    let ids = c.with_rank(1, "segment_ids", 1)?;
    let Some(dims) = data.dims() else { return Ok(()) };
    if let (Some(rows), Some(n)) = (dims[0], ids.dim(0)) {
        ensure!(
            rows == n,
            InvalidArgument,
            "segment_ids should be the same size as dimension 0 of input: {n} and {rows}"
        );
    }
    let rest = dims[1..].iter().copied();
    c.set_output(0, PartialShape::new(std::iter::once(None).chain(rest)));
    Ok(())
}

/// Segment ids, checked to be ascending.
pub(crate) struct SortedIds<'a> {
    ids: Indices<'a>,
    len: usize,
}

impl<'a> SortedIds<'a> {
    /// Checks that the ids are not negative and not descending.
    pub(crate) fn new(tensor: &'a Tensor) -> Result<SortedIds<'a>> {
        let (ids, len) = (Indices::of(tensor)?, tensor.num_elements());
        let segments = if len == 0 { 0 } else { ids.at(len - 1).saturating_add(1) };
        for i in 0..len {
            ensure!(
                (0..segments).contains(&ids.at(i)) || (i > 0 && ids.at(i) < ids.at(i - 1)),
                InvalidArgument,
                "Segment id {} out of range [0, {segments}), possibly because 'segment_ids' input \
                 is not sorted.",
                ids.at(i)
            );
            ensure!(
                i == 0 || ids.at(i - 1) <= ids.at(i),
                InvalidArgument,
                "segment ids are not increasing"
            );
        }
        Ok(SortedIds { ids, len })
    }

    /// Number of segments: the last id plus one.
    pub(crate) fn segments(&self) -> usize {
        if self.len == 0 { 0 } else { self.ids.at(self.len - 1) as usize + 1 }
    }

    /// Index of the first id that is at least `id`.
    pub(crate) fn start(&self, id: usize) -> usize {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = low + (high - low) / 2;
            if (self.ids.at(middle) as usize) < id {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Index of the first id after `position` that differs from `id`.
    pub(crate) fn end(&self, mut position: usize, id: usize) -> usize {
        while position < self.len && self.ids.at(position) as usize == id {
            position += 1;
        }
        position
    }
}

fn check_segments(ctx: &KernelContext<'_>) -> Result<()> {
    let (data, ids) = (ctx.input(0)?, ctx.input(1)?);
    ensure!(ids.rank() == 1, InvalidArgument, "segment_ids should be a vector.");
    ensure!(data.rank() >= 1, InvalidArgument, "input must be at least rank 1");
    ensure!(
        ids.num_elements() == data.shape()[0],
        InvalidArgument,
        "segment_ids should be the same size as dimension 0 of input."
    );
    Ok(())
}

/// A kernel of sorted segments: sets each row of the output to the combination of its segment's
/// rows, in order, with `finish` applied to it and their number; or to `empty` if the segment has
/// no rows.
fn segments<T: Number>(
    empty: T,
    combine: impl Fn(T, T) -> T + Copy + Send + Sync + 'static,
    finish: impl Fn(T, usize) -> T + Copy + Send + Sync + 'static,
) -> Result<AnyKernel> {
    AnyKernel::new(move |ctx| {
        check_segments(ctx)?;
        let (data, ids) = (ctx.input(0)?, SortedIds::new(ctx.input(1)?)?);
        let mut dims = data.shape().to_vec();
        dims[0] = ids.segments();
        let row: usize = dims[1..].iter().product();
        let mut output = ctx.allocate_output(0, Shape::new(&dims)?)?;
        let elements = data.as_slice::<T>()?;
        let cost = (ids.len as f64 / dims[0].max(1) as f64).max(1.0) * row as f64;
        for_each_rows(ctx, output.as_mut_slice::<T>()?, row, cost, |first, part| {
            let mut start = ids.start(first);
            for (n, target) in part.chunks_exact_mut(row).enumerate() {
                let end = ids.end(start, first + n);
                let mut rows = elements[start * row..end * row].chunks_exact(row);
                match rows.next() {
                    Some(first) => target.copy_from_slice(first),
                    None => target.fill(empty),
                }
                for from in rows {
                    target.iter_mut().zip(from).for_each(|(t, &x)| *t = combine(*t, x));
                }
                if end > start {
                    target.iter_mut().for_each(|t| *t = finish(*t, end - start));
                }
                start = end;
            }
        })?;
        ctx.set_output(0, output)
    })
}

fn segment_sum<T: Start>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    segments(T::ZERO, T::plus, |x, _| x)
}

fn segment_mean<T: Start>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    segments(T::ZERO, T::plus, |x, n| x.over(T::count(n)))
}

fn segment_prod<T: Start>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    segments(T::ONE, T::times, |x, _| x)
}

fn segment_min<T: Bounded>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    segments(T::ZERO, T::lesser, |x, _| x)
}

fn segment_max<T: Bounded>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    segments(T::ZERO, T::greater, |x, _| x)
}

const UNSORTED_SEGMENT_SUM: OpDef =
    OpDef::new("UnsortedSegmentSum", unsorted_shape).with_work(Work::per_input::<100>);
const UNSORTED_SEGMENT_PROD: OpDef =
    OpDef::new("UnsortedSegmentProd", unsorted_shape).with_work(Work::per_input::<100>);
const UNSORTED_SEGMENT_MIN: OpDef =
    OpDef::new("UnsortedSegmentMin", unsorted_shape).with_work(Work::per_input::<100>);
const UNSORTED_SEGMENT_MAX: OpDef = OpDef { name: "UnsortedSegmentMax", ..UNSORTED_SEGMENT_MIN };

fn unsorted_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (data, ids) = (c.input(0), c.input(1));
    c.with_rank(2, "num_segments", 0)?;
    let segments = match c.partial_value(2).and_then(|v| v.first()) {
        Some(n) => {
            ensure!(n >= 0, InvalidArgument, "num_segments must not be negative, is {n}");
            Some(n as usize)
        }
        None => None,
    };
    let (Some(data_dims), Some(id_dims)) = (data.dims(), ids.dims()) else { return Ok(()) };
    let prefix = PartialShape::new(data_dims.iter().copied().take(id_dims.len()));
    ensure!(
        prefix.merge(ids).is_ok(),
        InvalidArgument,
        "data.shape = {data} does not start with segment_ids.shape = {ids}"
    );
    let rest = data_dims[id_dims.len()..].iter().copied();
    c.set_output(0, PartialShape::new(std::iter::once(segments).chain(rest)));
    Ok(())
}

/// A kernel of unsorted segments: combines each row, in order, with the row of the output that its
/// id selects; rows with negative ids are dropped.
fn unsorted<T: Number>(
    start: T,
    combine: impl Fn(T, T) -> T + Copy + Send + Sync + 'static,
) -> Result<AnyKernel> {
    AnyKernel::new(move |ctx| {
        let (data, ids, num) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        ensure!(
            num.rank() == 0,
            InvalidArgument,
            "num_segments should be a scalar, not shape {}",
            num.shape()
        );
        ensure!(
            data.shape().starts_with(ids.shape()),
            InvalidArgument,
            "data.shape = {} does not start with segment_ids.shape = {}",
            data.shape(),
            ids.shape()
        );
        let num = Indices::of(num)?.at(0);
        ensure!(num >= 0, InvalidArgument, "Input num_segments == {num} must not be negative.");
        let rest = &data.shape()[ids.rank()..];
        let dims: Vec<usize> = std::iter::once(num as usize).chain(rest.iter().copied()).collect();
        let row: usize = rest.iter().product();
        check_ids(ids, num)?;
        let mut output = ctx.allocate_output(0, Shape::new(&dims)?)?;
        let target = output.as_mut_slice::<T>()?;
        for_each_rows(ctx, target, 1, 0.3, |_, part| part.fill(start))?;
        let (rows, elements) = (ids.num_elements(), data.as_slice::<T>()?);
        let (ids, target) = (Indices::of(ids)?, Disjoint::new(target));
        // Work is divided by columns, so that the order of the rows holds for every element.
        ctx.parallel_for(row, rows as f64, |columns| {
            for i in 0..rows {
                let Ok(id) = usize::try_from(ids.at(i)) else { continue };
                // SAFETY: ranges of columns are disjoint, and one thread's parts live in turn.
                let to = unsafe { target.part(id * row + columns.start..id * row + columns.end) };
                let from = &elements[i * row..][columns.clone()];
                to.iter_mut().zip(from).for_each(|(t, &x)| *t = combine(*t, x));
            }
        })?;
        ctx.set_output(0, output)
    })
}

fn lower_unsorted(
    l: &mut Lowering<'_>,
    start: fn(&Value) -> Value,
    combine: fn(&Value, &Value) -> Value,
) -> Result<()> {
    let (data, ids, dims) = (l.input(0)?, l.input(1)?, l.output_dims(0)?);
    let rows = ids.num_elements();
    let data = data.reshape(&[&[rows], &dims[1..]].concat());
    let target = start(&data).broadcast_to(&dims);
    l.set(0, scattered(&target, &ids.reshape(&[rows, 1]), &data, combine)?)
}

/// The largest finite number of a value's dtype.
fn largest(like: &Value) -> Value {
    match like.dtype() {
        DType::Float => like.scalar_like(f32::MAX.into()),
        DType::Double => like.scalar_like(f64::MAX),
        DType::Half => like.scalar_like(f16::MAX.into()),
        DType::BFloat16 => like.scalar_like(bf16::MAX.into()),
        _ => like.highest_like(),
    }
}

/// The least finite number of a value's dtype.
fn least(like: &Value) -> Value {
    if like.dtype().is_integer() { like.lowest_like() } else { -largest(like) }
}

fn check_ids(ids: &Tensor, num: i64) -> Result<()> {
    let values = Indices::of(ids)?;
    if let Some(bad) = (0..ids.num_elements()).find(|&i| values.at(i) >= num) {
        bail!(
            InvalidArgument,
            "segment_ids[{}] = {} is out of range [0, {num})",
            coordinates(bad, ids.shape()),
            values.at(bad)
        );
    }
    Ok(())
}

fn unsorted_sum<T: Start>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    unsorted(T::ZERO, T::plus)
}

fn unsorted_prod<T: Start>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    unsorted(T::ONE, T::times)
}

fn unsorted_min<T: Bounded>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    unsorted(T::HIGHEST, T::lesser)
}

fn unsorted_max<T: Bounded>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    unsorted(T::LOWEST, T::greater)
}
