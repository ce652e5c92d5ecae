//! Shape ops: `Reshape`, `Shape`, `ExpandDims`, `BroadcastTo` and the like.

use smallvec::SmallVec;
use thalweg_graph::shape::{self, ShapeContext, broadcast_shapes};
use thalweg_graph::{OpDef, PartialValue, Role, ValueContext, Work, gradient};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, PartialShape, RANK_MAX, Result, Shape, Tensor, bail, ensure, err};

use crate::CHEAP;
use crate::cells::blank;
use crate::strided::{StridedCopy, strides};
use crate::{reshape_gradients, reshape_lowering as lowering};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        RESHAPE.with_gradient(reshape_gradients::reshape),
        EXPAND_DIMS.with_gradient(reshape_gradients::reshape),
        SQUEEZE.with_gradient(reshape_gradients::reshape),
        SHAPE.without_gradient(),
        SHAPE_N.without_gradient(),
        RANK.without_gradient(),
        SIZE.without_gradient(),
        BROADCAST_TO.with_gradient(reshape_gradients::broadcast_to),
        OpDef::new("BroadcastArgs", broadcast_args_shape)
            .with_work(Work::none)
            .with_value(broadcast_args_value),
        BROADCAST_GRADIENT_ARGS.without_gradient(),
        ENSURE_SHAPE.with_gradient(gradient::unchanged),
    ],
    kernels: &[
        KernelSpec { op: "Reshape", host_inputs: &["shape"], create: reshape, ..CHEAP },
        KernelSpec { op: "ExpandDims", host_inputs: &["dim"], create: expand_dims, ..CHEAP },
        KernelSpec { op: "Squeeze", create: squeeze, ..CHEAP },
        KernelSpec { op: "Shape", host_outputs: &["output"], create: shapes, ..CHEAP },
        KernelSpec { op: "ShapeN", host_outputs: &["output"], create: shapes, ..CHEAP },
        KernelSpec { op: "Rank", host_outputs: &["output"], create: rank, ..CHEAP },
        KernelSpec { op: "Size", host_outputs: &["output"], create: size, ..CHEAP },
        KernelSpec {
            op: "BroadcastTo",
            host_inputs: &["shape"],
            create: broadcast_to,
            ..KernelSpec::CPU
        },
        KernelSpec { op: "BroadcastArgs", create: broadcast_args, ..CHEAP },
        KernelSpec { op: "BroadcastGradientArgs", create: broadcast_gradient_args, ..CHEAP },
        KernelSpec { op: "EnsureShape", create: ensure_shape, ..CHEAP },
        KernelSpec::lowering("Reshape", lowering::reshape).with_host_inputs(&["shape"]),
        KernelSpec::lowering("ExpandDims", lowering::to_output_dims).with_host_inputs(&["dim"]),
        KernelSpec::lowering("Squeeze", lowering::to_output_dims),
        KernelSpec::lowering("Shape", lowering::shapes).of_shapes(),
        KernelSpec::lowering("ShapeN", lowering::shapes).of_shapes(),
        KernelSpec::lowering("Rank", lowering::rank).of_shapes(),
        KernelSpec::lowering("Size", lowering::size).of_shapes(),
        KernelSpec::lowering("BroadcastTo", lowering::broadcast_to).with_host_inputs(&["shape"]),
        KernelSpec::lowering("BroadcastArgs", lowering::broadcast_args)
            .with_host_inputs(&["s0", "s1"]),
        KernelSpec::lowering("BroadcastGradientArgs", lowering::broadcast_gradient_args)
            .with_host_inputs(&["s0", "s1"]),
        KernelSpec::lowering("EnsureShape", |l| l.forward(0, 0)),
    ],
};

type Ints = SmallVec<[i64; 4]>;
type Dims = SmallVec<[Option<usize>; 4]>;

const RESHAPE: OpDef =
    OpDef::new("Reshape", reshape_shape).with_work(Work::none).with_value(reshape_value);

fn reshape_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let wanted = match c.partial_value(1) {
        Some(value) => PartialValue { is_scalar: false, ..value }.to_shape()?,
        None => c.shape_from_input(1)?,
    };
    let input = c.input(0);
    let (Some(dims), Some(from)) = (wanted.dims(), input.dims()) else {
        c.set_output(0, wanted);
        return Ok(());
    };
    let product = |dims: &[Option<usize>]| -> Option<u128> {
        let mut known = dims.iter().flatten();
        known.try_fold(1u128, |n, &d| n.checked_mul(d as u128))
    };
    let all_known = from.iter().all(Option::is_some);
    let unknown = dims.iter().filter(|d| d.is_none()).count();
    let (Some(have), Some(want)) = (product(from), product(dims)) else {
        bail!(InvalidArgument, "shapes {input} or {wanted} are too large");
    };
    if unknown == 0 {
        let is_possible = if all_known {
            have == want
        } else {
            // Unknown sizes can supply the rest only if the known ones divide the number of
            // elements.
            have == 0 || want % have == 0
        };
        ensure!(
            is_possible,
            InvalidArgument,
            "Cannot reshape a tensor of shape {input} to shape {wanted}"
        );
    }
    let mut result: Dims = dims.into();
    if unknown == 1 && all_known && want != 0 {
        ensure!(
            have % want == 0,
            InvalidArgument,
            "Cannot reshape a tensor with {have} elements to shape {wanted}: {want} does not \
             divide {have}"
        );
        result.iter_mut().filter(|d| d.is_none()).for_each(|d| *d = Some((have / want) as usize));
    }
    c.set_output(0, PartialShape::new(result));
    Ok(())
}

/// The static value: a vector that becomes a scalar, or stays a vector.
fn reshape_value(c: &mut ValueContext<'_>) -> Option<PartialValue> {
    let (value, wanted) = (c.input(0)?, c.input(1)?);
    match (wanted.elements.len(), value.elements.len()) {
        (0, 1) => Some(PartialValue { is_scalar: true, ..value }),
        (1, _) => Some(PartialValue { is_scalar: false, ..value }),
        _ => None,
    }
}

fn reshape(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let sizes = ctx.input(1)?;
        ensure!(
            sizes.rank() <= 1,
            InvalidArgument,
            "sizes input must be 1-D, not {}",
            sizes.shape()
        );
        let shape = resolve(&ctx.ints(1, "shape")?, ctx.input(0)?.shape())?;
        let output = ctx.take_input(0)?.reshaped(shape)?;
        ctx.set_output(0, output)
    })
}

/// The output shape for `sizes`, one of which may be -1, when `input` is reshaped.
pub(crate) fn resolve(sizes: &[i64], input: &Shape) -> Result<Shape> {
    ensure!(sizes.len() <= RANK_MAX, InvalidArgument, "rank {} exceeds {RANK_MAX}", sizes.len());
    let mut dims: SmallVec<[usize; 6]> = SmallVec::new();
    let mut unknown = None;
    let mut product = Some(1u64);
    for (i, &size) in sizes.iter().enumerate() {
        if size == -1 {
            if let Some(first) = unknown {
                bail!(InvalidArgument, "Only one input size may be -1, not both {first} and {i}");
            }
            unknown = Some(i);
        }
        ensure!(size >= -1, InvalidArgument, "Size {i} must be non-negative, not {size}");
        // Sizes of zero are skipped: the remaining sizes determine the size for -1.
        product = product.and_then(|p| p.checked_mul(size.max(1) as u64));
        dims.push(size.max(0) as usize);
    }
    let product = product.ok_or_else(|| err!(InvalidArgument, "sizes {sizes:?} are too large"))?;
    if let Some(unknown) = unknown {
        let has_zero = sizes.contains(&0);
        let counted = input.iter().filter(|&&d| d > 0 || !has_zero);
        let elements = counted.product::<usize>();
        let missing = elements / product as usize;
        ensure!(
            missing * product as usize == elements || elements != input.num_elements(),
            InvalidArgument,
            "Input to reshape is a tensor with {elements} values, but the requested shape \
             requires a multiple of {product}"
        );
        dims[unknown] = missing;
    }
    let shape = Shape::new(&dims)?;
    ensure!(
        shape.num_elements() == input.num_elements(),
        InvalidArgument,
        "Input to reshape is a tensor with {} values, but the requested shape has {}",
        input.num_elements(),
        shape.num_elements()
    );
    Ok(shape)
}

const EXPAND_DIMS: OpDef =
    OpDef::new("ExpandDims", expand_dims_shape).with_work(Work::none).with_value(expand_dims_value);

fn expand_dims_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let Some(dims) = c.input(0).dims() else { return Ok(()) };
    let shape = match c.partial_value(1).and_then(|v| v.elements.first().copied().flatten()) {
        Some(axis) => {
            let mut dims = Dims::from_slice(dims);
            dims.insert(new_axis(axis, dims.len())?, Some(1));
            PartialShape::new(dims)
        }
        None => PartialShape::of_rank(dims.len() + 1),
    };
    c.set_output(0, shape);
    Ok(())
}

fn new_axis(axis: i64, rank: usize) -> Result<usize> {
    let from_end = if axis < 0 { axis + rank as i64 + 1 } else { axis };
    usize::try_from(from_end).ok().filter(|&a| a <= rank).ok_or_else(|| {
        err!(InvalidArgument, "Tried to expand dim index {axis} for tensor with {rank} dimensions.")
    })
}

fn expand_dims_value(c: &mut ValueContext<'_>) -> Option<PartialValue> {
    let value = c.input(0)?;
    value.is_scalar.then(|| PartialValue { is_scalar: false, ..value })
}

fn expand_dims(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.output_dtype(0);
    AnyKernel::new(move |ctx| {
        let axis = ctx.input(1)?;
        ensure!(
            axis.num_elements() == 1,
            InvalidArgument,
            "'dim' must be a tensor with a single value"
        );
        ensure!(dtype != DType::Variant, InvalidArgument, "ExpandDims on Variant not supported");
        let input = ctx.input(0)?;
        let mut dims = input.shape().to_vec();
        dims.insert(new_axis(ctx.ints(1, "dim")?[0], dims.len())?, 1);
        let output = ctx.take_input(0)?.reshaped(Shape::new(&dims)?)?;
        ctx.set_output(0, output)
    })
}

const SQUEEZE: OpDef =
    OpDef::new("Squeeze", squeeze_shape).with_work(Work::none).with_value(squeeze_value);

fn squeeze_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let Some(dims) = c.input(0).dims() else { return Ok(()) };
    let axes = c.attrs().ints("squeeze_dims")?;
    let is_squeezed = squeezed_axes(axes, dims.len())?;
    // An unknown size may be 1 and would then be removed.
    if axes.is_empty() && dims.contains(&None) {
        return Ok(());
    }
    let mut result = Dims::new();
    for (i, &d) in dims.iter().enumerate() {
        if axes.is_empty() && d == Some(1) {
            continue;
        }
        if is_squeezed[i] {
            check_squeezed(i, d.unwrap_or(1))?;
        } else {
            result.push(d);
        }
    }
    c.set_output(0, PartialShape::new(result));
    Ok(())
}

fn squeezed_axes(axes: &[i64], rank: usize) -> Result<SmallVec<[bool; 8]>> {
    let mut is_squeezed: SmallVec<[bool; 8]> = smallvec::smallvec![false; rank];
    for &axis in axes {
        let from_end = if axis < 0 { axis.wrapping_add(rank as i64) } else { axis };
        let slot = usize::try_from(from_end).ok().and_then(|a| is_squeezed.get_mut(a));
        *slot.ok_or_else(|| {
            err!(
                InvalidArgument,
                "Tried to squeeze dim index {axis} for tensor with {rank} dimensions."
            )
        })? = true;
    }
    Ok(is_squeezed)
}

fn check_squeezed(axis: usize, size: usize) -> Result<()> {
    ensure!(
        size == 1,
        InvalidArgument,
        "Can not squeeze dim[{axis}], expected a dimension of 1, got {size}"
    );
    Ok(())
}

fn squeeze_value(c: &mut ValueContext<'_>) -> Option<PartialValue> {
    let value = c.input(0)?;
    (value.elements.len() == 1).then(|| PartialValue { is_scalar: true, ..value })
}

fn squeeze(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let axes = init.attrs().ints("squeeze_dims")?.to_vec();
    AnyKernel::new(move |ctx| {
        let shape = ctx.input(0)?.shape();
        let is_squeezed = squeezed_axes(&axes, shape.rank())?;
        let mut dims: SmallVec<[usize; 6]> = SmallVec::new();
        for (i, &d) in shape.iter().enumerate() {
            if is_squeezed[i] {
                check_squeezed(i, d)?;
            } else if !axes.is_empty() || d != 1 {
                dims.push(d);
            }
        }
        let output = ctx.take_input(0)?.reshaped(Shape::new(&dims)?)?;
        ctx.set_output(0, output)
    })
}

const SHAPE: OpDef =
    OpDef::new("Shape", shapes_shape).with_work(Work::none).with_value(shapes_value);
const SHAPE_N: OpDef =
    OpDef::new("ShapeN", shapes_shape).with_work(Work::none).with_value(shapes_value);

fn shapes_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for i in 0..c.num_outputs() {
        c.set_output(i, PartialShape::new([c.input(i).rank()]));
    }
    Ok(())
}

fn shapes_value(c: &mut ValueContext<'_>) -> Option<PartialValue> {
    let dims = c.input_shape(c.output()).dims()?;
    Some(PartialValue::vector(dims.iter().map(|d| d.map(|d| d as i64))))
}

fn shapes(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("out_type")?;
    AnyKernel::new(move |ctx| {
        for i in 0..ctx.num_inputs() {
            let dims = ctx.input(i)?.shape().to_i64();
            let output = ints_output(ctx, dtype, &dims, false)?;
            ctx.set_output(i, output)?;
        }
        Ok(())
    })
}

/// Outputs sizes or indices as a vector, or as a scalar.
pub(crate) fn ints_output(
    ctx: &KernelContext<'_>,
    dtype: DType,
    values: &[i64],
    is_scalar: bool,
) -> Result<Tensor> {
    let shape = if is_scalar { Shape::scalar() } else { Shape::new(&[values.len()])? };
    let mut output = ctx.allocate(dtype, shape)?;
    if dtype == DType::Int64 {
        output.as_mut_slice::<i64>()?.copy_from_slice(values);
        return Ok(output);
    }
    for (to, &value) in output.as_mut_slice::<i32>()?.iter_mut().zip(values) {
        *to = i32::try_from(value)
            .map_err(|_| err!(InvalidArgument, "{value} does not fit the 32-bit output type"))?;
    }
    Ok(output)
}

const RANK: OpDef = OpDef::new("Rank", shape::scalar).with_work(Work::none).with_value(rank_value);

fn rank_value(c: &mut ValueContext<'_>) -> Option<PartialValue> {
    Some(PartialValue::scalar(Some(c.input_shape(0).rank()? as i64)))
}

fn rank(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let rank = ctx.input(0)?.rank() as i64;
        let output = ints_output(ctx, DType::Int32, &[rank], true)?;
        ctx.set_output(0, output)
    })
}

const SIZE: OpDef = OpDef::new("Size", shape::scalar).with_work(Work::none).with_value(size_value);

fn size_value(c: &mut ValueContext<'_>) -> Option<PartialValue> {
    let elements = c.input_shape(0).to_shape()?.num_elements();
    Some(PartialValue::scalar(Some(elements as i64)))
}

fn size(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("out_type")?;
    AnyKernel::new(move |ctx| {
        let elements = ctx.input(0)?.num_elements() as i64;
        let output = ints_output(ctx, dtype, &[elements], true)?;
        ctx.set_output(0, output)
    })
}

const BROADCAST_TO: OpDef = OpDef::new("BroadcastTo", broadcast_to_shape).with_work(Work::moves);

fn broadcast_to_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(1, "shape", 1)?;
    let wanted = c.shape_from_input(1)?;
    let input = c.input(0);
    if let (Some(from), Some(to)) = (input.rank(), wanted.rank()) {
        ensure!(
            from <= to,
            InvalidArgument,
            "Rank of input ({from}) must be no greater than rank of output shape ({to})."
        );
        let joint = broadcast_shapes(input, &wanted)?;
        joint.merge(&wanted)?;
    }
    c.set_output(0, wanted);
    Ok(())
}

fn broadcast_to(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let shape = ctx.shape_input(1, "shape")?;
        if ctx.input(0)?.shape() == &shape {
            let input = ctx.take_input(0)?;
            return ctx.set_output(0, input);
        }
        let input = ctx.input(0)?;
        let source = broadcast_strides(input.shape(), &shape)?;
        let mut output = blank(ctx, input.dtype(), shape.clone())?;
        StridedCopy::filling(&shape, &source, 0).run(ctx, input, &mut output)?;
        ctx.set_output(0, output)
    })
}

/// Strides of a tensor of shape `from` broadcast to `to`.
pub(crate) fn broadcast_strides(from: &Shape, to: &Shape) -> Result<SmallVec<[isize; 6]>> {
    ensure!(
        from.rank() <= to.rank(),
        InvalidArgument,
        "Rank of input ({}) must be no greater than rank of output shape ({}).",
        from.rank(),
        to.rank()
    );
    let new = to.rank() - from.rank();
    let mut result: SmallVec<[isize; 6]> = smallvec::smallvec![0; new];
    for ((&size, stride), &wanted) in from.iter().zip(strides(from)).zip(&to[new..]) {
        ensure!(
            size == wanted || size == 1,
            InvalidArgument,
            "Unable to broadcast tensor of shape {from} to tensor of shape {to}"
        );
        result.push(if size == 1 { 0 } else { stride as isize });
    }
    Ok(result)
}

fn broadcast_args_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let lens = [c.with_rank(0, "s0", 1)?.dim(0), c.with_rank(1, "s1", 1)?.dim(0)];
    let len = match lens {
        [Some(a), Some(b)] => Some(a.max(b)),
        _ => None,
    };
    c.set_output(0, PartialShape::new([len]));
    Ok(())
}

fn broadcast_args_value(c: &mut ValueContext<'_>) -> Option<PartialValue> {
    let (a, b) = (c.input(0)?, c.input(1)?);
    let shape = broadcast_shapes(&a.to_shape().ok()?, &b.to_shape().ok()?).ok()?;
    Some(PartialValue::vector(shape.dims()?.iter().map(|d| d.map(|d| d as i64))))
}

fn broadcast_args(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.output_dtype(0);
    AnyKernel::new(move |ctx| {
        let (a, b) = broadcast_inputs(ctx)?;
        let output = ints_output(ctx, dtype, &joint_sizes(&a, &b)?, false)?;
        ctx.set_output(0, output)
    })
}

/// The sizes to which two shapes broadcast.
pub(crate) fn joint_sizes(a: &[i64], b: &[i64]) -> Result<SmallVec<[i64; 8]>> {
    aligned(a, b)
        .map(|(x, y)| {
            check_pair((a, b), (x, y))?;
            Ok(if x == 1 { y } else { x })
        })
        .collect()
}

/// An error if two sizes of the shapes `a` and `b` do not broadcast.
fn check_pair((a, b): (&[i64], &[i64]), (x, y): (i64, i64)) -> Result<()> {
    ensure!(
        x == y || x == 1 || y == 1,
        InvalidArgument,
        "Incompatible shapes: {} vs. {}",
        show(a),
        show(b)
    );
    Ok(())
}

fn broadcast_inputs(ctx: &KernelContext<'_>) -> Result<(Ints, Ints)> {
    for i in 0..2 {
        let shape = ctx.input(i)?.shape();
        ensure!(shape.rank() == 1, InvalidArgument, "In[{i}] must be a vector.{shape}");
        ensure!(shape[0] <= RANK_MAX, InvalidArgument, "rank {} exceeds {RANK_MAX}", shape[0]);
    }
    Ok((ctx.ints(0, "s0")?, ctx.ints(1, "s1")?))
}

/// Pairs of sizes of two shapes; the shorter one is preceded by ones.
fn aligned<'a>(a: &'a [i64], b: &'a [i64]) -> impl Iterator<Item = (i64, i64)> + 'a {
    let rank = a.len().max(b.len());
    let at =
        move |dims: &[i64], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |i| dims[i]);
    (0..rank).map(move |i| (at(a, i), at(b, i)))
}

fn show(dims: &[i64]) -> String {
    let dims: Vec<String> = dims.iter().map(ToString::to_string).collect();
    format!("[{}]", dims.join(","))
}

const BROADCAST_GRADIENT_ARGS: OpDef =
    OpDef::new("BroadcastGradientArgs", broadcast_gradient_args_shape).with_work(Work::none);

fn broadcast_gradient_args_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, "s0", 1)?;
    c.with_rank(1, "s1", 1)?;
    c.set_output(0, PartialShape::of_rank(1));
    c.set_output(1, PartialShape::of_rank(1));
    Ok(())
}

/// `BroadcastGradientArgs`: the axes along which the gradients of the two operands must be summed.
fn broadcast_gradient_args(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.output_dtype(0);
    AnyKernel::new(move |ctx| {
        let (a, b) = broadcast_inputs(ctx)?;
        for (i, axes) in summed_axes(&a, &b)?.iter().enumerate() {
            let output = ints_output(ctx, dtype, axes, false)?;
            ctx.set_output(i, output)?;
        }
        Ok(())
    })
}

/// The axes along which the gradients of operands of the shapes `a` and `b` must be summed.
pub(crate) fn summed_axes(a: &[i64], b: &[i64]) -> Result<[SmallVec<[i64; 8]>; 2]> {
    let mut axes: [SmallVec<[i64; 8]>; 2] = Default::default();
    // Equal shapes need no sum, not even over sizes of one.
    if a != b {
        for (i, (x, y)) in aligned(a, b).enumerate() {
            check_pair((a, b), (x, y))?;
            for (axes, size) in axes.iter_mut().zip([x, y]) {
                if size == 1 {
                    axes.push(i as i64);
                }
            }
        }
    }
    Ok(axes)
}

const ENSURE_SHAPE: OpDef =
    OpDef::new("EnsureShape", ensure_shape_shape).with_work(Work::none).with_role(Role::Forward);

fn ensure_shape_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let declared = c.attrs().shape("shape")?;
    c.set_output(0, c.input(0).merge(&declared)?);
    Ok(())
}

fn ensure_shape(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let declared = init.attrs().shape("shape")?;
    AnyKernel::new(move |ctx| {
        let shape = ctx.input(0)?.shape();
        ensure!(
            declared.is_compatible_with(shape),
            InvalidArgument,
            "Shape of tensor {} {shape} is not compatible with expected shape {declared}.",
            ctx.node().name
        );
        let input = ctx.take_input(0)?;
        ctx.set_output(0, input)
    })
}
