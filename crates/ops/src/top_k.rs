//! The largest elements along the last dimension: `TopK`, `TopKV2`, `InTopK` and `NthElement`.
//!
//! Of equal elements the one with the lower index comes first. If `k` is less than the row length,
//! elements pass through a heap, and unsorted results are in heap order; that order, and the
//! treatment of NaN, are those of TensorFlow's heap.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicBool, Ordering as Memory};

use half::{bf16, f16};
use smallvec::SmallVec;
use thalweg_graph::{GradientContext, OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, Element, PartialShape, Result, Shape, Tensor, bail, ensure};

use crate::indices::Indices;
use crate::split::{Disjoint, for_each_rows};
use crate::top_k_lowering as lowering;
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("TopK", top_k_shape).with_work(work::sort).with_gradient(top_k_grad),
        OpDef::new("TopKV2", top_k_shape).with_work(work::sort).with_gradient(top_k_grad),
        IN_TOP_K,
        IN_TOP_K_V2,
        OpDef::new("NthElement", nth_element_shape)
            .with_work(Work::per_input::<400>)
            .with_gradient(nth_element_grad),
    ],
    kernels: &[
        cpu_kernel!("TopK", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64]
            => top_k),
        cpu_kernel!("TopKV2", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64]
            => top_k; host_inputs: &["k"]),
        KernelSpec { op: "InTopK", create: in_top_k, ..KernelSpec::CPU },
        KernelSpec { op: "InTopKV2", create: in_top_k, host_inputs: &["k"], ..KernelSpec::CPU },
        cpu_kernel!("NthElement", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32,
            u64] => nth_element; host_inputs: &["n"]),
        KernelSpec::lowering("TopK", lowering::top_k),
        KernelSpec::lowering("TopKV2", lowering::top_k).with_host_inputs(&["k"]),
        KernelSpec::lowering("InTopK", lowering::in_top_k),
        KernelSpec::lowering("InTopKV2", lowering::in_top_k),
        KernelSpec::lowering("NthElement", lowering::nth_element).with_host_inputs(&["n"]),
    ],
};

/// The adjoint is scattered to the selected elements.
fn top_k_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, input, indices) = (g.grad(0)?, g.input(0), g.output(1));
    let shape = g.shape_of(input)?;
    let wide = g.cast(shape, DType::Int64)?;
    let (first, last) = (g.ints(&[0])?, g.ints(&[-1])?);
    let step = g.ints(&[1])?;
    let outer = g.add("StridedSlice", &[wide, first, last, step])?;
    let rows = g.add("Prod", &[outer, first])?;
    let total = g.add("Prod", &[wide, first])?;
    let columns = g.op("StridedSlice").inputs(&[wide, last, first, step]).attr("end_mask", 1);
    let columns = columns.attr("shrink_axis_mask", 1).build()?;
    let (zero, one) = (g.number_like(wide, 0.0)?, g.number_like(wide, 1.0)?);
    let starts = g.add("Range", &[zero, rows, one])?;
    let starts = g.add("Mul", &[starts, columns])?;
    let starts = g.add("ExpandDims", &[starts, last])?;
    let positions = g.cast(indices, DType::Int64)?;
    let taken = g.shape_of(indices)?;
    let count = g.op("StridedSlice").inputs(&[taken, last, first, step]).attr("end_mask", 1);
    let count = count.attr("shrink_axis_mask", 1).build()?;
    let rows = g.cast(rows, DType::Int32)?;
    let matrix = g.op("Pack").inputs(&[rows, count]).build()?;
    let positions = g.add("Reshape", &[positions, matrix])?;
    let positions = g.add("AddV2", &[positions, starts])?;
    let flat = g.add("Reshape", &[positions, last])?;
    let values = g.add("Reshape", &[grad, last])?;
    let summed = g.add("UnsortedSegmentSum", &[values, flat, total])?;
    let result = g.add("Reshape", &[summed, shape])?;
    g.set(0, result)
}

fn top_k_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let k = if c.num_inputs() == 1 {
        Some(c.attrs().int("k")?)
    } else {
        c.with_rank(1, "k", 0)?;
        c.partial_value(1).and_then(|value| *value.elements.first()?)
    };
    let k = k.map(|k| checked_k(k, None)).transpose()?;
    let input = c.with_rank_at_least(0, "input", 1)?;
    let Some(dims) = input.dims() else { return Ok(()) };
    let (last, outer) = dims.split_last().expect("the rank is at least one");
    if let (Some(k), Some(columns)) = (k, *last) {
        ensure!(
            k <= columns,
            InvalidArgument,
            "input must have last dimension >= k = {k} but is {columns}"
        );
    }
    let shape = PartialShape::new(outer.iter().copied().chain([k]));
    c.set_output(0, shape.clone());
    c.set_output(1, shape);
    Ok(())
}

pub(crate) fn checked_k(k: i64, columns: Option<usize>) -> Result<usize> {
    let Ok(k) = usize::try_from(k) else {
        bail!(InvalidArgument, "Need k >= 0, got {k}");
    };
    if let Some(columns) = columns {
        ensure!(
            k <= columns,
            InvalidArgument,
            "input must have at least k columns. Had {columns}, needed {k}"
        );
    }
    Ok(k)
}

fn top_k<T: Element + PartialOrd>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let is_sorted = init.attrs().bool("sorted")?;
    let k = init.attrs().get("k").map(|_| init.attrs().int("k")).transpose()?;
    AnyKernel::new(move |ctx| {
        let k = match k {
            Some(k) => k,
            None => {
                let k = ctx.input(1)?;
                ensure!(
                    k.rank() == 0,
                    InvalidArgument,
                    "k must be scalar, got shape {}",
                    k.shape()
                );
                ctx.scalar_int(1, "k")?
            }
        };
        compute_top_k::<T>(ctx, k, is_sorted)
    })
}

fn compute_top_k<T: Element + PartialOrd>(
    ctx: &mut KernelContext<'_>,
    k: i64,
    is_sorted: bool,
) -> Result<()> {
    let shape = ctx.input(0)?.shape();
    let Some((&columns, outer)) = shape.split_last() else {
        bail!(InvalidArgument, "input must be >= 1-D, got shape {shape}");
    };
    let k = checked_k(k, Some(columns))?;
    let dtype = ctx.output_dtype(1)?;
    let most = match dtype {
        DType::Int16 => i16::MAX as usize,
        DType::Int32 => i32::MAX as usize,
        _ => usize::MAX,
    };
    ensure!(
        columns <= most,
        InvalidArgument,
        "Second dimension of flattened input must be <= {most}, got {columns}"
    );
    let dims: SmallVec<[usize; 4]> = outer.iter().copied().chain([k]).collect();
    let dims = Shape::new(&dims)?;
    let mut values = ctx.allocate_output(0, dims.clone())?;
    let mut indices = ctx.allocate_output(1, dims)?;
    if values.num_elements() > 0 {
        let rows = values.num_elements() / k;
        let data = ctx.slice::<T>(0)?;
        let out = Disjoint::new(values.as_mut_slice::<T>()?);
        let positions = Positions::of(&mut indices)?;
        let is_short_of_memory = AtomicBool::new(false);
        let depth = f64::from(usize::BITS - k.leading_zeros());
        let nanoseconds = columns as f64 + k as f64 * depth * 5.0;
        ctx.parallel_for(rows, nanoseconds, |range| {
            let mut best = Vec::new();
            if best.try_reserve_exact(k + 1).is_err() {
                is_short_of_memory.store(true, Memory::Relaxed);
                return;
            }
            for row in range {
                select(&data[row * columns..][..columns], k, is_sorted, &mut best);
                // SAFETY: `parallel_for` hands out each row once.
                let out = unsafe { out.part(row * k..(row + 1) * k) };
                out.iter_mut().zip(&best).for_each(|(out, &(value, _))| *out = value);
                // SAFETY: as above.
                unsafe { positions.write(row * k, &best[..k]) };
            }
        })?;
        ensure!(
            !is_short_of_memory.into_inner(),
            ResourceExhausted,
            "out of memory for the {k} largest of a row"
        );
    }
    ctx.set_output(0, values)?;
    ctx.set_output(1, indices)
}

/// The index output, in any of its dtypes.
enum Positions<'a> {
    I16(Disjoint<'a, i16>),
    I32(Disjoint<'a, i32>),
    I64(Disjoint<'a, i64>),
}

impl<'a> Positions<'a> {
    fn of(tensor: &'a mut Tensor) -> Result<Positions<'a>> {
        Ok(match tensor.dtype() {
            DType::Int16 => Positions::I16(Disjoint::new(tensor.as_mut_slice()?)),
            DType::Int32 => Positions::I32(Disjoint::new(tensor.as_mut_slice()?)),
            _ => Positions::I64(Disjoint::new(tensor.as_mut_slice()?)),
        })
    }

    /// Writes the indices in `found` from element `start` on.
    ///
    /// # Safety
    ///
    /// No other thread may write these elements at the same time.
    unsafe fn write<T>(&self, start: usize, found: &[Candidate<T>]) {
        let range = start..start + found.len();
        // SAFETY: as the caller promises.
        unsafe {
            match self {
                Positions::I16(all) => {
                    all.part(range).iter_mut().zip(found).for_each(|(to, c)| *to = c.1 as i16);
                }
                Positions::I32(all) => {
                    all.part(range).iter_mut().zip(found).for_each(|(to, c)| *to = c.1 as i32);
                }
                Positions::I64(all) => {
                    all.part(range).iter_mut().zip(found).for_each(|(to, c)| *to = c.1 as i64);
                }
            }
        }
    }
}

/// An element and its index.
type Candidate<T> = (T, usize);

/// Moves the `k` largest elements of `row` to the front of `best`, which has capacity `k + 1`.
fn select<T: Element + PartialOrd>(
    row: &[T],
    k: usize,
    is_sorted: bool,
    best: &mut Vec<Candidate<T>>,
) {
    best.clear();
    if k == 1 {
        best.push(largest(row));
    } else if k == row.len() {
        best.extend(row.iter().enumerate().map(|(i, &x)| (x, i)));
        sort_all(best);
    } else {
        best.extend(row.iter().take(k + 1).enumerate().map(|(i, &x)| (x, i)));
        make_heap(best);
        remove_least(best);
        best.truncate(k);
        for (i, &x) in row.iter().enumerate().skip(k + 1) {
            if comes_before(&(x, i), &best[0]) {
                remove_least(best);
                sift_up(best, 0, k - 1, (x, i));
            }
        }
        if is_sorted {
            sort_heap(best);
        }
    }
}

/// The first of the largest elements; NaN only if there is no other element.
fn largest<T: Element + PartialOrd>(row: &[T]) -> Candidate<T> {
    let mut best = (row[0], 0);
    let is_nan = |x: &T| x.partial_cmp(x).is_none();
    for (i, x) in row.iter().enumerate() {
        if *x > best.0 || (is_nan(&best.0) && !is_nan(x)) {
            best = (*x, i);
        }
    }
    best
}

/// Whether `a` is larger than `b`, or equal with a lower index.
#[inline(always)]
fn comes_before<T: PartialOrd>(a: &Candidate<T>, b: &Candidate<T>) -> bool {
    if b.0 < a.0 {
        true
    } else if b.0 > a.0 {
        false
    } else {
        a.1 < b.1
    }
}

/// Length up to which TensorFlow's sort is an insertion sort, which determines where NaN are
/// placed.
const INSERTION_MAX: usize = 16;

fn sort_all<T: Element + PartialOrd>(all: &mut [Candidate<T>]) {
    let has_nan = all.iter().any(|(x, _)| x.partial_cmp(x).is_none());
    if has_nan && all.len() <= INSERTION_MAX {
        for i in 1..all.len() {
            let goes_first = all[0].0 < all[i].0;
            let passes = |&j: &usize| all[j - 1].0 < all[i].0;
            let passed = (1..=i).rev().take_while(passes).count();
            all[if goes_first { 0 } else { i - passed }..=i].rotate_right(1);
        }
        return;
    }
    // NaN are last, so that the order is total.
    all.sort_unstable_by(|a, b| {
        let by_value = b.0.partial_cmp(&a.0).unwrap_or_else(|| {
            let is_nan = |x: &T| x.partial_cmp(x).is_none();
            is_nan(&a.0).cmp(&is_nan(&b.0))
        });
        by_value.then(a.1.cmp(&b.1))
    });
}

/// Inserts `item` into the heap's hole at `hole`: the hole sinks to a leaf, then `item` rises. The
/// root is the element that [`comes_before`] puts last.
fn sift<T: Copy + PartialOrd>(heap: &mut [Candidate<T>], hole: usize, item: Candidate<T>) {
    let (top, len) = (hole, heap.len());
    let mut hole = hole;
    while 2 * hole + 2 < len {
        let right = 2 * hole + 2;
        let child = if comes_before(&heap[right], &heap[right - 1]) { right - 1 } else { right };
        heap[hole] = heap[child];
        hole = child;
    }
    if 2 * hole + 2 == len {
        heap[hole] = heap[len - 1];
        hole = len - 1;
    }
    sift_up(heap, top, hole, item);
}

/// Moves `item` up from `hole`, at most to `top`.
fn sift_up<T: Copy + PartialOrd>(
    heap: &mut [Candidate<T>],
    top: usize,
    mut hole: usize,
    item: Candidate<T>,
) {
    while hole > top && comes_before(&heap[(hole - 1) / 2], &item) {
        heap[hole] = heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    heap[hole] = item;
}

fn make_heap<T: Copy + PartialOrd>(all: &mut [Candidate<T>]) {
    for i in (0..all.len() / 2).rev() {
        sift(all, i, all[i]);
    }
}

/// Moves the root to the end, and restores the heap of the others.
fn remove_least<T: Copy + PartialOrd>(heap: &mut [Candidate<T>]) {
    let Some((last, rest)) = heap.split_last_mut() else { return };
    if let Some(&least) = rest.first() {
        let item = std::mem::replace(last, least);
        sift(rest, 0, item);
    }
}

fn sort_heap<T: Copy + PartialOrd>(heap: &mut [Candidate<T>]) {
    for len in (2..=heap.len()).rev() {
        remove_least(&mut heap[..len]);
    }
}

const IN_TOP_K: OpDef = OpDef::new("InTopK", in_top_k_shape).with_work(Work::per_input::<20>);

const IN_TOP_K_V2: OpDef = OpDef { name: "InTopKV2", ..IN_TOP_K };

fn in_top_k_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let predictions = c.with_rank(0, "predictions", 2)?;
    let targets = c.with_rank(1, "targets", 1)?;
    if c.num_inputs() > 2 {
        c.with_rank(2, "k", 0)?;
    }
    let rows = PartialShape::new([predictions.dim(0)]).merge(&targets)?;
    c.set_output(0, rows);
    Ok(())
}

fn in_top_k(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let k = init.attrs().get("k").map(|_| init.attrs().int("k")).transpose()?;
    AnyKernel::new(move |ctx| {
        let (predictions, targets) = (ctx.input(0)?, ctx.input(1)?);
        ensure!(predictions.rank() == 2, InvalidArgument, "predictions must be 2-dimensional");
        ensure!(targets.rank() == 1, InvalidArgument, "targets must be 1-dimensional");
        let (rows, classes) = (predictions.shape()[0], predictions.shape()[1]);
        ensure!(
            rows == targets.num_elements(),
            InvalidArgument,
            "First dimension of predictions {rows} must match length of targets {}",
            targets.num_elements()
        );
        let k = match k {
            Some(k) => k,
            None => {
                let k = ctx.input(2)?;
                ensure!(k.rank() == 0, InvalidArgument, "k must be 0-D, got shape {}", k.shape());
                ctx.scalar_int(2, "k")?
            }
        };
        let (data, targets) = (ctx.slice::<f32>(0)?, Indices::of(targets)?);
        let mut out = ctx.allocate_output(0, Shape::new(&[rows])?)?;
        for_each_rows(ctx, out.as_mut_slice::<bool>()?, 1, classes as f64, |first, out| {
            for (i, out) in (first..).zip(out) {
                let row = &data[i * classes..][..classes];
                *out = targets.below(i, classes).is_some_and(|target| is_in_top(row, target, k));
            }
        })?;
        ctx.set_output(0, out)
    })
}

/// Whether fewer than `k` predictions exceed the target's; false if a prediction of the row is not
/// finite.
fn is_in_top(row: &[f32], target: usize, k: i64) -> bool {
    let wanted = row[target];
    let larger = row.iter().filter(|&&x| x > wanted).count();
    (larger as i64) < k && row.iter().all(|x| x.is_finite())
}

/// The adjoint is divided among all elements that equal the result.
fn nth_element_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, input, taken) = (g.grad(0)?, g.input(0), g.output(0));
    let dtype = g.dtype(grad);
    let last = g.int(-1)?;
    let taken = g.add("ExpandDims", &[taken, last])?;
    let is_equal = g.add("Equal", &[taken, input])?;
    let is_equal = g.cast(is_equal, dtype)?;
    let count = g.op("Sum").inputs(&[is_equal, last]).attr("keep_dims", true).build()?;
    let grad = g.add("ExpandDims", &[grad, last])?;
    let share = g.add("RealDiv", &[is_equal, count])?;
    let share = g.add("Mul", &[share, grad])?;
    g.set(0, share)
}

fn nth_element_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(1, "n", 0)?;
    let input = c.with_rank_at_least(0, "input", 1)?;
    let Some((last, outer)) = input.dims().and_then(<[_]>::split_last) else { return Ok(()) };
    let n = c.partial_value(1).and_then(|value| *value.elements.first()?);
    if let Some(n) = n {
        checked_n(n, *last)?;
    }
    c.set_output(0, PartialShape::new(outer.iter().copied()));
    Ok(())
}

pub(crate) fn checked_n(n: i64, columns: Option<usize>) -> Result<usize> {
    let Ok(place) = usize::try_from(n) else {
        bail!(InvalidArgument, "n must be non-negative but is {n}");
    };
    ensure!(
        columns.is_none_or(|columns| place < columns),
        InvalidArgument,
        "Input must have last dimension > n = {n}"
    );
    Ok(place)
}

fn nth_element<T: Element + PartialOrd>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let is_reversed = init.attrs().bool("reverse")?;
    AnyKernel::new(move |ctx| {
        let n = ctx.input(1)?;
        ensure!(n.rank() == 0, InvalidArgument, "N must be scalar but has rank {}", n.rank());
        let n = ctx.scalar_int(1, "n")?;
        let shape = ctx.input(0)?.shape().clone();
        let Some((&columns, outer)) = shape.split_last() else {
            bail!(InvalidArgument, "Input must be at least rank 1 but is rank 0");
        };
        let n = checked_n(n, Some(columns))?;
        let n = if is_reversed { columns - 1 - n } else { n };
        let mut out = ctx.allocate_output(0, Shape::new(outer)?)?;
        let (mut rows, taken) = ctx.forward_input_or_allocate(&[0], T::DTYPE, &shape)?;
        if taken.is_none() {
            rows.as_mut_slice::<T>()?.copy_from_slice(ctx.slice(0)?);
        }
        let rows = Disjoint::new(rows.as_mut_slice::<T>()?);
        for_each_rows(ctx, out.as_mut_slice::<T>()?, 1, 5.0 * columns as f64, |first, out| {
            for (row, out) in (first..).zip(out) {
                // SAFETY: each row is visited once.
                let row = unsafe { rows.part(row * columns..(row + 1) * columns) };
                let (_, nth, _) = row.select_nth_unstable_by(n, order);
                *out = *nth;
            }
        })?;
        ctx.set_output(0, out)
    })
}

/// Order by value, NaN last.
fn order<T: PartialOrd>(a: &T, b: &T) -> Ordering {
    let is_nan = |x: &T| x.partial_cmp(x).is_none();
    a.partial_cmp(b).unwrap_or_else(|| is_nan(a).cmp(&is_nan(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, code};
    use thalweg_tensor::Code;

    #[test]
    fn shapes() {
        for (input, k, expected) in [
            ("2,3,4", 2, "[2,3,2] [2,3,2]"),
            ("?", 2, "[2] [2]"),
            ("unknown", 1, "<unknown> <unknown>"),
        ] {
            let call = call("TopKV2").shape(DType::Float, input).constant(Tensor::scalar(k));
            assert_eq!(call.infer(), expected, "{input}");
        }
        for (input, k) in [("2", 3), ("", 1), ("4", -1)] {
            let call = call("TopKV2").shape(DType::Float, input).constant(Tensor::scalar(k));
            assert!(call.infer().starts_with("INVALID_ARGUMENT"), "{input} {k}");
        }
        let call = call("InTopKV2").shape(DType::Float, "?,5").shape(DType::Int32, "3");
        assert_eq!(call.shape(DType::Int32, "").infer(), "[3]");
    }

    /// Recorded from TensorFlow: the order of unsorted results, and of NaN.
    #[test]
    fn as_the_heap_leaves_them() {
        const N: f32 = f32::NAN;
        for (values, k, is_sorted, expected) in [
            (&[5.0, 1.0, 4.0, 2.0, 3.0, 9.0, 0.0][..], 3, false, &[2, 0, 5][..]),
            (
                &[5.0, 1.0, 4.0, 2.0, 3.0, 9.0, 0.0, 8.0, 7.0, 7.0, 7.0, 6.0],
                6,
                false,
                &[11, 8, 10, 7, 5, 9],
            ),
            (&[1.0, N, 3.0, N, 2.0], 3, true, &[1, 2, 4]),
            (&[1.0, N, 3.0, N, 2.0], 5, true, &[2, 0, 1, 3, 4]),
            (&[N, N, 3.0, 5.0, N, 7.0, 2.0, 9.0], 3, true, &[0, 1, 7]),
            (&[N, N, 3.0, 5.0, N, 7.0, 2.0, 9.0], 8, true, &[0, 1, 3, 2, 4, 7, 5, 6]),
            (&[N, 1.0, 3.0], 1, true, &[2]),
            (&[N, N], 1, true, &[0]),
            (&[1.0, 2.0, 2.0, 2.0, 1.0], 4, true, &[1, 2, 3, 0]),
        ] {
            let call = call("TopKV2").input(Tensor::vector(values).unwrap());
            let call = call.input(Tensor::scalar(k)).attr("sorted", is_sorted);
            let got = call.run_all().unwrap();
            assert_eq!(got[1].as_slice::<i32>().unwrap(), expected, "{values:?} {k}");
        }
    }

    #[test]
    fn against_a_sort() {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 20
        };
        for columns in [1usize, 2, 3, 17, 30] {
            let data: Vec<i64> = (0..3 * columns).map(|_| i64::from(next() % 23)).collect();
            let shape = Shape::new(&[3, columns]).unwrap();
            for k in (0..=columns).filter(|k| k % 5 < 3) {
                let call = call("TopKV2").input(Tensor::from_slice(shape.clone(), &data).unwrap());
                let call = call.input(Tensor::scalar(k as i16)).attr("index_type", DType::Int64);
                let got = call.backwards().run_all().unwrap();
                for (row, values) in data.chunks(columns).enumerate() {
                    let mut order: Vec<usize> = (0..columns).collect();
                    order.sort_by_key(|&i| std::cmp::Reverse(values[i]));
                    let expected: Vec<i64> = order[..k].iter().map(|&i| i as i64).collect();
                    assert_eq!(got[1].as_slice::<i64>().unwrap()[row * k..][..k], expected);
                }
            }
        }
    }

    #[test]
    fn predictions_that_are_not_finite() {
        let rows = [1.0, f32::INFINITY, 2.0, 1.0, 3.0, 2.0, 1.0, 1.0, 1.0];
        let call =
            call("InTopK").input(Tensor::from_slice(Shape::new(&[3, 3]).unwrap(), &rows).unwrap());
        let call = call.input(Tensor::vector(&[2i64, 2, -1]).unwrap()).attr("k", 2);
        assert_eq!(call.run().unwrap().as_slice::<bool>().unwrap(), [false, true, false]);
    }

    #[test]
    fn hostile_inputs() {
        let matrix = || Tensor::zeros(DType::Float, Shape::new(&[2, 0]).unwrap()).unwrap();
        for (n, input) in [(0, matrix()), (-1, Tensor::scalar(1f32)), (i32::MAX, matrix())] {
            assert_eq!(
                code(call("NthElement").input(input).input(Tensor::scalar(n)).run()),
                Some(Code::InvalidArgument)
            );
        }
        assert_eq!(
            code(call("TopKV2").input(matrix()).input(Tensor::scalar(i64::MAX)).run_all()),
            Some(Code::InvalidArgument)
        );
        let wide = Tensor::zeros(DType::UInt8, Shape::new(&[40_000]).unwrap()).unwrap();
        let wide = call("TopKV2").input(wide).input(Tensor::scalar(1));
        assert_eq!(
            code(wide.attr("index_type", DType::Int16).run_all()),
            Some(Code::InvalidArgument)
        );
    }
}
