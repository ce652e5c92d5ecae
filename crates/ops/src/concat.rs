//! Concatenation and splitting along a dimension.

use smallvec::SmallVec;
use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{OpDef, PartialValue, ValueContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{PartialShape, Result, Shape, Tensor, bail, ensure, err};

use crate::cells::blank;
use crate::reshape::ints_output;
use crate::strided::{Dim, StridedCopy};
use crate::work;
use crate::{concat_gradients, concat_lowering as lowering};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        CONCAT.with_gradient(concat_gradients::concat),
        CONCAT_V2.with_gradient(concat_gradients::concat_v2),
        CONCAT_OFFSET.without_gradient(),
        PACK.with_gradient(concat_gradients::pack),
        UNPACK.with_gradient(concat_gradients::unpack),
        SPLIT.with_gradient(concat_gradients::split_evenly),
        SPLIT_V.with_gradient(concat_gradients::split_v),
    ],
    kernels: &[
        KernelSpec {
            op: "Concat",
            host_inputs: &["concat_dim"],
            create: concat,
            ..KernelSpec::CPU
        },
        KernelSpec { op: "ConcatV2", host_inputs: &["axis"], create: concat, ..KernelSpec::CPU },
        KernelSpec { op: "ConcatOffset", create: concat_offset, is_cheap: true, ..KernelSpec::CPU },
        KernelSpec { op: "Pack", create: pack, ..KernelSpec::CPU },
        KernelSpec { op: "Unpack", create: unpack, ..KernelSpec::CPU },
        KernelSpec { op: "Split", host_inputs: &["split_dim"], create: split, ..KernelSpec::CPU },
        KernelSpec {
            op: "SplitV",
            host_inputs: &["size_splits", "split_dim"],
            create: split_v,
            ..KernelSpec::CPU
        },
        KernelSpec::lowering("Concat", lowering::concat).with_host_inputs(&["concat_dim"]),
        KernelSpec::lowering("ConcatV2", lowering::concat).with_host_inputs(&["axis"]),
        KernelSpec::lowering("ConcatOffset", lowering::concat_offset)
            .with_host_inputs(&["concat_dim", "shape"]),
        KernelSpec::lowering("Pack", lowering::pack),
        KernelSpec::lowering("Unpack", lowering::unpack),
        KernelSpec::lowering("Split", lowering::split).with_host_inputs(&["split_dim"]),
        KernelSpec::lowering("SplitV", lowering::split_v)
            .with_host_inputs(&["size_splits", "split_dim"]),
    ],
};

type Dims = SmallVec<[Option<usize>; 4]>;

/// The non-negative form of `axis` for a tensor of this rank.
pub(crate) fn checked_axis(axis: i64, rank: usize) -> Option<usize> {
    let from_end = if axis < 0 { axis.wrapping_add(rank as i64) } else { axis };
    usize::try_from(from_end).ok().filter(|&a| a < rank)
}

const CONCAT: OpDef =
    OpDef::new("Concat", concat_shape).with_work(Work::moves).with_value(concat_value);
const CONCAT_V2: OpDef =
    OpDef::new("ConcatV2", concat_shape).with_work(Work::moves).with_value(concat_value);

fn concat_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let values = c.input_range("values")?;
    let axis_input = if values.start == 0 { values.end } else { 0 };
    let mut rank = None;
    for i in values.clone() {
        let Some(r) = c.input(i).rank() else { continue };
        ensure!(r > 0, InvalidArgument, "Can't concatenate scalars (use tf.stack instead)");
        ensure!(
            rank.is_none_or(|rank| rank == r),
            InvalidArgument,
            "Ranks of all input tensors should match: input {i} has shape {}",
            c.input(i)
        );
        rank = Some(r);
    }
    let Some(rank) = rank else { return Ok(()) };
    let axis = c.partial_value(axis_input).and_then(|v| v.elements.first().copied().flatten());
    let Some(axis) = axis else {
        c.set_output(0, PartialShape::of_rank(rank));
        return Ok(());
    };
    let axis = checked_axis(axis, rank).ok_or_else(|| axis_out_of_range(axis, rank))?;
    let mut result = PartialShape::of_rank(rank);
    let mut size = Some(0usize);
    for i in values {
        let dims = c.input(i).dims();
        size = size.zip(dims.and_then(|d| d[axis])).map(|(a, b)| a.saturating_add(b));
        if let Some(dims) = dims {
            let mut others = Dims::from_slice(dims);
            others[axis] = None;
            result = result.merge(&PartialShape::new(others))?;
        }
    }
    let mut dims: Dims = result.dims().unwrap_or_default().into();
    dims[axis] = size;
    c.set_output(0, PartialShape::new(dims));
    Ok(())
}

pub(crate) fn axis_out_of_range(axis: i64, rank: usize) -> thalweg_tensor::Error {
    err!(
        InvalidArgument,
        "ConcatOp : Expected concatenating dimensions in the range [-{rank}, {rank}), but got {axis}"
    )
}

fn concat_value(c: &mut ValueContext<'_>) -> Option<PartialValue> {
    // The axis is input 0 or the last input; vectors have only axis 0, so its value is not needed.
    let last = c.num_inputs() - 1;
    let values = if c.attrs().get("Tidx").is_some() { 0..last } else { 1..last + 1 };
    let mut elements = SmallVec::new();
    for i in values {
        let value = c.input(i)?;
        if value.is_scalar {
            return None;
        }
        elements.extend(value.elements);
    }
    Some(PartialValue { elements, is_scalar: false })
}

fn concat(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let values = init.node.input_range("values")?;
    let axis_input = if values.start == 0 { values.end } else { 0 };
    AnyKernel::new(move |ctx| {
        let axis = ctx.input(axis_input)?;
        ensure!(
            axis.num_elements() == 1 && axis.rank() <= 1,
            InvalidArgument,
            "Concat dim tensor should be a scalar integer, but got shape {}",
            axis.shape()
        );
        let axis = ctx.ints(axis_input, "axis")?[0];
        let first = ctx.input(values.start)?.shape().clone();
        let rank = first.rank();
        ensure!(
            rank > 0,
            InvalidArgument,
            "ConcatOp : Can't concatenate scalars (use tf.stack instead)"
        );
        let axis = checked_axis(axis, rank).ok_or_else(|| axis_out_of_range(axis, rank))?;
        let size = concat_size(ctx, values.clone(), axis)?;
        let mut dims = first.to_vec();
        dims[axis] = size;
        // A single nonempty input is the result.
        let mut filled =
            values.clone().filter(|&i| ctx.input(i).is_ok_and(|t| t.num_elements() > 0));
        if let (Some(only), None) = (filled.next(), filled.next()) {
            let output = ctx.take_input(only)?;
            return ctx.set_output(0, output);
        }
        let output = joined(ctx, values.clone(), &first[..axis], Shape::new(&dims)?)?;
        ctx.set_output(0, output)
    })
}

/// Checks that the inputs differ along `axis` only, and sums their sizes there.
fn concat_size(
    ctx: &KernelContext<'_>,
    values: std::ops::Range<usize>,
    axis: usize,
) -> Result<usize> {
    let first = ctx.input(values.start)?.shape();
    let mut size = 0usize;
    for (n, i) in values.enumerate() {
        let shape = ctx.input(i)?.shape();
        ensure!(
            shape.rank() == first.rank(),
            InvalidArgument,
            "ConcatOp : Ranks of all input tensors should match: shape[0] = {first} vs. shape[{n}] \
             = {shape}"
        );
        for d in (0..first.rank()).filter(|&d| d != axis) {
            ensure!(
                shape[d] == first[d],
                InvalidArgument,
                "ConcatOp : Dimension {d} in both shapes must be equal: shape[0] = {first} vs. \
                 shape[{n}] = {shape}"
            );
        }
        size = size
            .checked_add(shape[axis])
            .ok_or_else(|| err!(InvalidArgument, "ConcatOp : the sizes sum up to too much"))?;
    }
    Ok(size)
}

/// Concatenates the inputs: each is `outer` rows, which are placed next to each other in rows of
/// the output.
pub(crate) fn joined(
    ctx: &KernelContext<'_>,
    values: std::ops::Range<usize>,
    outer: &[usize],
    shape: Shape,
) -> Result<Tensor> {
    let mut output = blank(ctx, ctx.input(values.start)?.dtype(), shape)?;
    let rows: usize = outer.iter().product();
    let row = output.num_elements().checked_div(rows).unwrap_or(0);
    let mut target_start = 0;
    for i in values {
        let input = ctx.input(i)?;
        let len = input.num_elements().checked_div(rows).unwrap_or(0);
        let dims = [
            Dim { len: rows, source: len as isize, target: row },
            Dim { len, source: 1, target: 1 },
        ];
        let copy = StridedCopy { dims: dims[..].into(), source_start: 0, target_start };
        copy.run(ctx, input, &mut output)?;
        target_start += len;
    }
    Ok(output)
}

const CONCAT_OFFSET: OpDef = OpDef::new("ConcatOffset", concat_offset_shape).with_work(Work::none);

fn concat_offset_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for i in 1..c.num_inputs() {
        let shape = c.with_rank(i, "shape", 1)?;
        c.set_output(i - 1, shape);
    }
    Ok(())
}

fn concat_offset(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("shape_type")?;
    AnyKernel::new(move |ctx| {
        let axis = ctx.scalar_int(0, "Concat dim tensor")?;
        let mut shapes: SmallVec<[Ints; 4]> = SmallVec::new();
        for i in 1..ctx.num_inputs() {
            ensure!(
                ctx.input(i)?.rank() == 1,
                InvalidArgument,
                "input {} should be a vector, but got shape {}",
                i - 1,
                ctx.input(i)?.shape()
            );
            shapes.push(ctx.ints(i, "shape")?);
        }
        for (i, offsets) in offsets(axis, &shapes)?.iter().enumerate() {
            let output = ints_output(ctx, dtype, offsets, false)?;
            ctx.set_output(i, output)?;
        }
        Ok(())
    })
}

type Ints = SmallVec<[i64; 4]>;

/// For each of the shapes that are concatenated, where it begins in the result.
pub(crate) fn offsets(axis: i64, shapes: &[Ints]) -> Result<Vec<Ints>> {
    let Some(first) = shapes.first() else { return Ok(Vec::new()) };
    let rank = first.len();
    let Some(axis) = checked_axis(axis, rank) else {
        bail!(InvalidArgument, "Concat dim is out of range: {axis} vs. {rank}");
    };
    let mut offset = 0i64;
    let mut all = Vec::with_capacity(shapes.len());
    for (i, dims) in shapes.iter().enumerate() {
        ensure!(
            dims.len() == rank,
            InvalidArgument,
            "input {i} should contain {rank} elements, but got {}",
            dims.len()
        );
        for d in (0..rank).filter(|&d| d != axis) {
            ensure!(
                dims[d] == first[d],
                InvalidArgument,
                "All dimensions except {axis} must match. Input {i} has shape {dims:?} and \
                 doesn't match input 0 with shape {first:?}."
            );
        }
        let mut offsets = Ints::from_elem(0, rank);
        offsets[axis] = offset;
        all.push(offsets);
        offset = offset.wrapping_add(dims[axis]);
    }
    Ok(all)
}

const PACK: OpDef = OpDef::new("Pack", pack_shape).with_work(Work::moves).with_value(pack_value);

fn pack_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let mut shape = PartialShape::unknown();
    for i in 0..c.num_inputs() {
        shape = shape.merge(c.input(i))?;
    }
    let Some(dims) = shape.dims() else { return Ok(()) };
    let axis = pack_axis(c.attrs().int("axis")?, dims.len())?;
    let mut dims = Dims::from_slice(dims);
    dims.insert(axis, Some(c.num_inputs()));
    c.set_output(0, PartialShape::new(dims));
    Ok(())
}

pub(crate) fn pack_axis(axis: i64, rank: usize) -> Result<usize> {
    let rank = rank + 1;
    checked_axis(axis, rank)
        .ok_or_else(|| err!(InvalidArgument, "axis = {axis} not in [-{rank}, {rank})"))
}

fn pack_value(c: &mut ValueContext<'_>) -> Option<PartialValue> {
    let mut elements = SmallVec::new();
    for i in 0..c.num_inputs() {
        // One unknown size leaves the other elements known.
        elements.push(match c.input(i) {
            Some(value) if value.is_scalar => value.elements[0],
            None if c.input_shape(i).rank() == Some(0) => None,
            _ => return None,
        });
    }
    Some(PartialValue { elements, is_scalar: false })
}

fn pack(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let axis = init.attrs().int("axis")?;
    AnyKernel::new(move |ctx| {
        let first = ctx.input(0)?.shape().clone();
        let axis = pack_axis(axis, first.rank())?;
        for i in 1..ctx.num_inputs() {
            let shape = ctx.input(i)?.shape();
            ensure!(
                *shape == first,
                InvalidArgument,
                "Shapes of all inputs must match: values[0].shape = {first} != values[{i}].shape \
                 = {shape}"
            );
        }
        let mut dims = first.to_vec();
        dims.insert(axis, ctx.num_inputs());
        let shape = Shape::new(&dims)?;
        let output = if ctx.num_inputs() == 1 {
            ctx.take_input(0)?.reshaped(shape)?
        } else {
            joined(ctx, 0..ctx.num_inputs(), &first[..axis], shape)?
        };
        ctx.set_output(0, output)
    })
}

const UNPACK: OpDef =
    OpDef::new("Unpack", unpack_shape).with_work(|c| work::range_of(c, 0)).with_value(unpack_value);

fn unpack_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let Some(dims) = c.input(0).dims() else { return Ok(()) };
    let (axis, num) = (c.attrs().int("axis")?, c.attrs().size("num")?);
    let axis = unpack_axis(axis, dims.len())?;
    ensure!(
        dims[axis].is_none_or(|d| d == num),
        InvalidArgument,
        "Dimension {axis} must be {num}, is {}",
        c.input(0)
    );
    let mut dims = Dims::from_slice(dims);
    dims.remove(axis);
    for i in 0..num {
        c.set_output(i, PartialShape::new(dims.iter().copied()));
    }
    Ok(())
}

pub(crate) fn unpack_axis(axis: i64, rank: usize) -> Result<usize> {
    checked_axis(axis, rank)
        .ok_or_else(|| err!(InvalidArgument, "axis = {axis} not in [-{rank}, {rank})"))
}

fn unpack_value(c: &mut ValueContext<'_>) -> Option<PartialValue> {
    let element = c.input(0)?.elements.get(c.output()).copied()?;
    Some(PartialValue::scalar(element))
}

fn unpack(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let (axis, num) = (init.attrs().int("axis")?, init.attrs().size("num")?);
    AnyKernel::new(move |ctx| {
        let input = ctx.input(0)?;
        let axis = unpack_axis(axis, input.rank())?;
        ensure!(
            input.shape()[axis] == num,
            InvalidArgument,
            "Input shape axis {axis} must equal {num}, got shape {}",
            input.shape()
        );
        let mut dims = input.shape().to_vec();
        dims.remove(axis);
        let shape = Shape::new(&dims)?;
        cut(ctx, 0, axis, std::iter::repeat_n((1, shape), num))
    })
}

/// Sets each output to the next `size` rows of input `i` along `axis`, in the given shape. Slices
/// of the first dimension share the input's memory.
fn cut(
    ctx: &mut KernelContext<'_>,
    i: usize,
    axis: usize,
    parts: impl Iterator<Item = (usize, Shape)>,
) -> Result<()> {
    let input = ctx.take_input(i)?;
    let outer: usize = input.shape()[..axis].iter().product();
    let inner: usize = input.shape()[axis + 1..].iter().product();
    let row = input.shape()[axis] * inner;
    let flat = Shape::new(&[outer * input.shape()[axis], inner])?;
    let input = input.reshaped(flat)?;
    let mut start = 0;
    for (n, (size, shape)) in parts.enumerate() {
        let part = if outer == 1 {
            input.rows(start, size, Some(ctx.budget()))?.reshaped(shape)?
        } else {
            let mut part = blank(ctx, input.dtype(), shape)?;
            let len = size * inner;
            let dims = [
                Dim { len: outer, source: row as isize, target: len },
                Dim { len, source: 1, target: 1 },
            ];
            let copy =
                StridedCopy { dims: dims[..].into(), source_start: start * inner, target_start: 0 };
            copy.run(ctx, &input, &mut part)?;
            part
        };
        ctx.set_output(n, part)?;
        start += size;
    }
    Ok(())
}

const SPLIT: OpDef =
    OpDef::new("Split", split_shape).with_work(|c| work::range_of(c, 1)).with_value(split_value);

fn split_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let num = c.attrs().size("num_split")?;
    let axis = c.partial_value(0).and_then(|v| v.first());
    let shape = match (c.input(1).dims(), axis) {
        (Some(dims), Some(axis)) => {
            let axis = split_axis(axis, dims.len())?;
            let mut dims = Dims::from_slice(dims);
            dims[axis] = dims[axis].map(|size| split_size(size, num, axis)).transpose()?;
            PartialShape::new(dims)
        }
        (Some(dims), None) => PartialShape::of_rank(dims.len()),
        _ => PartialShape::unknown(),
    };
    for i in 0..num {
        c.set_output(i, shape.clone());
    }
    Ok(())
}

pub(crate) fn split_axis(axis: i64, rank: usize) -> Result<usize> {
    checked_axis(axis, rank).ok_or_else(|| {
        err!(
            InvalidArgument,
            "-input rank(-{rank}) <= split_dim < input rank ({rank}), but got {axis}"
        )
    })
}

pub(crate) fn split_size(size: usize, num: usize, axis: usize) -> Result<usize> {
    ensure!(
        num > 0 && size.is_multiple_of(num),
        InvalidArgument,
        "Number of ways to split should evenly divide the split dimension, but got split_dim \
         {axis} (size = {size}) and num_split {num}"
    );
    Ok(size / num)
}

fn split_value(c: &mut ValueContext<'_>) -> Option<PartialValue> {
    let elements = c.input(1)?.elements;
    let size = split_size(elements.len(), c.attrs().size("num_split").ok()?, 0).ok()?;
    let start = c.output() * size;
    Some(PartialValue::vector(elements.get(start..start + size)?.iter().copied()))
}

fn split(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let num = init.attrs().size("num_split")?;
    AnyKernel::new(move |ctx| {
        let axis = ctx.scalar_int(0, "split_dim")?;
        let mut dims = ctx.input(1)?.shape().to_vec();
        let axis = split_axis(axis, dims.len())?;
        dims[axis] = split_size(dims[axis], num, axis)?;
        let (size, shape) = (dims[axis], Shape::new(&dims)?);
        cut(ctx, 1, axis, std::iter::repeat_n((size, shape), num))
    })
}

const SPLIT_V: OpDef = OpDef::new("SplitV", split_v_shape).with_work(|c| work::range_of(c, 0));

fn split_v_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let num = c.attrs().size("num_split")?;
    let axis = c.partial_value(2).and_then(|v| v.first());
    let Some(dims) = c.input(0).dims() else { return Ok(()) };
    let Some(axis) = axis else {
        (0..num).for_each(|i| c.set_output(i, PartialShape::of_rank(dims.len())));
        return Ok(());
    };
    let axis = split_axis(axis, dims.len())?;
    let sizes = c.partial_value(1).and_then(|v| v.known());
    let sizes = match (sizes, dims[axis]) {
        (Some(sizes), Some(total)) => {
            split_sizes(&sizes, num, total)?.into_iter().map(Some).collect()
        }
        (Some(sizes), None) => sizes.into_iter().map(|s| usize::try_from(s).ok()).collect(),
        (None, total) => vec![if num == 1 { total } else { None }; num],
    };
    for (i, &size) in sizes.iter().enumerate() {
        let mut dims = Dims::from_slice(dims);
        dims[axis] = size;
        c.set_output(i, PartialShape::new(dims));
    }
    Ok(())
}

/// Sizes of the parts when `total` is split; at most one may be given as -1.
pub(crate) fn split_sizes(sizes: &[i64], num: usize, total: usize) -> Result<Vec<usize>> {
    ensure!(
        sizes.len() == num,
        InvalidArgument,
        "size of the split_tensor must be 1-D and have the same elements as outputs got {} \
         elements",
        sizes.len()
    );
    let mut unknown = None;
    let mut sum = 0usize;
    let mut result = Vec::new();
    let mismatch = || {
        err!(
            InvalidArgument,
            "Determined shape must either match input shape along split_dim exactly if fully \
             specified, or be less than the size of the input along split_dim if not fully \
             specified. Got: {sizes:?} of {total}"
        )
    };
    for (i, &size) in sizes.iter().enumerate() {
        if size == -1 {
            ensure!(unknown.is_none(), InvalidArgument, "There can only be one -1 in the input.");
            unknown = Some(i);
        }
        let size = if size == -1 { 0 } else { usize::try_from(size).map_err(|_| mismatch())? };
        sum = sum.checked_add(size).filter(|&sum| sum <= total).ok_or_else(mismatch)?;
        result.push(size);
    }
    match unknown {
        Some(i) => result[i] = total - sum,
        None => ensure!(sum == total, InvalidArgument, "{}", mismatch().message()),
    }
    Ok(result)
}

fn split_v(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let num = init.attrs().size("num_split")?;
    AnyKernel::new(move |ctx| {
        let axis = ctx.scalar_int(2, "split_dim")?;
        let shape = ctx.input(0)?.shape().clone();
        let axis = split_axis(axis, shape.rank())?;
        let sizes = ctx.input(1)?;
        ensure!(
            sizes.rank() == 1 && sizes.num_elements() == num,
            InvalidArgument,
            "size of the split_tensor must be 1-D and have the same elements as outputs got {} \
             -D and {} elements",
            sizes.rank(),
            sizes.num_elements()
        );
        let sizes = match sizes.as_slice::<i8>() {
            Ok(small) => small.iter().map(|&s| s.into()).collect(),
            Err(_) => ctx.ints(1, "size_splits")?,
        };
        let mut parts = Vec::new();
        for size in split_sizes(&sizes, num, shape[axis])? {
            let mut dims = shape.to_vec();
            dims[axis] = size;
            parts.push((size, Shape::new(&dims)?));
        }
        cut(ctx, 0, axis, parts.into_iter())
    })
}
