//! `Pad`, `PadV2` and `MirrorPad`.

use smallvec::SmallVec;
use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{GradientContext, OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{
    Complex32, Complex64, DType, PartialShape, RANK_MAX, Result, Shape, Tensor, bail, bf16, ensure,
    err, f16,
};

use crate::cells::blank;
use crate::gradient_shapes::{flat, shape_as};
use crate::number::Number;
use crate::pad_lowering as lowering;
use crate::strided::{Dim, Segment, StridedCopy, copy_boxes, strides};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        PAD.with_gradient(pad_grad),
        PAD_V2.with_gradient(pad_grad),
        MIRROR_PAD.with_gradient(gradient_of_mirror_pad),
        MIRROR_PAD_GRAD.with_gradient(gradient_of_mirror_pad_grad),
    ],
    kernels: &[
        KernelSpec { op: "Pad", host_inputs: &["paddings"], create: pad, ..KernelSpec::CPU },
        KernelSpec {
            op: "PadV2",
            host_inputs: &["paddings", "constant_values"],
            create: pad,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "MirrorPad",
            host_inputs: &["paddings"],
            create: mirror_pad,
            ..KernelSpec::CPU
        },
        cpu_kernel!("MirrorPadGrad", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64
        ] => mirror_pad_grad; host_inputs: &["paddings"]),
        KernelSpec::lowering("Pad", lowering::pad).with_host_inputs(&["paddings"]),
        KernelSpec::lowering("PadV2", lowering::pad).with_host_inputs(&["paddings"]),
        KernelSpec::lowering("MirrorPad", lowering::mirror_pad).with_host_inputs(&["paddings"]),
        KernelSpec::lowering("MirrorPadGrad", lowering::mirror_pad_grad)
            .with_host_inputs(&["paddings"]),
    ],
};

const PAD: OpDef = OpDef::new("Pad", pad_shape).with_work(Work::moves);
const PAD_V2: OpDef = OpDef::new("PadV2", pad_shape).with_work(Work::moves);
const MIRROR_PAD: OpDef = OpDef::new("MirrorPad", pad_shape).with_work(Work::moves);

fn pad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    padded_shape(c, |size, before, after| size.checked_add(before)?.checked_add(after))
}

/// The output's shape, where `resize(size, before, after)` is the new size of a dimension.
fn padded_shape(
    c: &mut ShapeContext<'_>,
    resize: fn(usize, usize, usize) -> Option<usize>,
) -> Result<()> {
    let paddings = c.with_rank(1, "paddings", 2)?;
    ensure!(
        paddings.dim(1).is_none_or(|n| n == 2),
        InvalidArgument,
        "paddings must be a matrix with 2 columns, got shape {paddings}"
    );
    let Some(rank) = c.input(0).rank().or(paddings.dim(0)).filter(|&r| r <= RANK_MAX) else {
        return Ok(());
    };
    ensure!(
        paddings.dim(0).is_none_or(|n| n == rank),
        InvalidArgument,
        "The first dimension of paddings must be the rank of inputs {paddings} {}",
        c.input(0)
    );
    let Some(paddings) = c.constant(1) else {
        c.set_output(0, PartialShape::of_rank(rank));
        return Ok(());
    };
    let mut dims = SmallVec::<[Option<usize>; 4]>::new();
    for (i, [before, after]) in pairs(&paddings)?.into_iter().enumerate() {
        let size = c.input(0).dim(i);
        dims.push(match size {
            Some(size) => Some(resize(size, before, after).ok_or_else(|| {
                err!(InvalidArgument, "size {size} cannot be padded by {before} and {after}")
            })?),
            None => None,
        });
    }
    c.set_output(0, PartialShape::new(dims));
    Ok(())
}

/// The rows of `paddings`, which must not be negative.
pub(crate) fn pairs(paddings: &Tensor) -> Result<SmallVec<[[usize; 2]; 6]>> {
    let values: SmallVec<[i64; 12]> = match paddings.dtype() {
        DType::Int32 => paddings.as_slice::<i32>()?.iter().map(|&x| x.into()).collect(),
        _ => paddings.as_slice::<i64>()?.into(),
    };
    let mut pairs = SmallVec::new();
    for pair in values.as_chunks::<2>().0 {
        let [before, after] = pair.map(|p| usize::try_from(p).ok());
        let (Some(before), Some(after)) = (before, after) else {
            bail!(InvalidArgument, "Paddings must be non-negative: {} {}", pair[0], pair[1]);
        };
        pairs.push([before, after]);
    }
    Ok(pairs)
}

/// The rows of input 1, one for each dimension of input 0.
fn paddings_input(ctx: &KernelContext<'_>) -> Result<SmallVec<[[usize; 2]; 6]>> {
    let (input, paddings) = (ctx.input(0)?, ctx.input(1)?);
    ensure!(
        paddings.rank() == 2 && paddings.shape()[1] == 2,
        InvalidArgument,
        "paddings must be a matrix with 2 columns: {}",
        paddings.shape()
    );
    ensure!(
        paddings.shape()[0] == input.rank(),
        InvalidArgument,
        "The first dimension of paddings must be the rank of inputs{} {}",
        paddings.shape(),
        input.shape()
    );
    pairs(paddings)
}

fn padded(shape: &Shape, paddings: &[[usize; 2]]) -> Result<Shape> {
    let mut dims: SmallVec<[usize; 6]> = SmallVec::new();
    for (&size, [before, after]) in shape.iter().zip(paddings) {
        let size = size.checked_add(*before).and_then(|s| s.checked_add(*after));
        dims.push(size.ok_or_else(|| {
            err!(InvalidArgument, "a dimension padded by {before} and {after} is too large")
        })?);
    }
    Shape::new(&dims)
}

fn pad(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let has_value = init.node.op.name == "PadV2";
    let dtype = init.output_dtype(0);
    AnyKernel::new(move |ctx| {
        let paddings = paddings_input(ctx)?;
        let value = if has_value {
            let value = ctx.input(2)?;
            ensure!(
                value.rank() == 0,
                InvalidArgument,
                "constant_values must be a scalar. Found: {}",
                value.shape()
            );
            value.clone()
        } else {
            ctx.zeros(dtype, Shape::scalar())?
        };
        if paddings.iter().all(|p| *p == [0, 0]) {
            let input = ctx.take_input(0)?;
            return ctx.set_output(0, input);
        }
        let input = ctx.input(0)?;
        let mut output = blank(ctx, dtype, padded(input.shape(), &paddings)?)?;
        fill_margins(ctx, &paddings, input.shape(), &value, &mut output)?;
        let to = strides(output.shape());
        let dims = input.shape().iter().zip(strides(input.shape())).zip(&to);
        let copy = StridedCopy {
            dims: dims
                .map(|((&len, source), &target)| Dim { len, source: source as isize, target })
                .collect(),
            source_start: 0,
            target_start: paddings.iter().zip(&to).map(|(p, s)| p[0] * s).sum(),
        };
        copy.run(ctx, input, &mut output)?;
        ctx.set_output(0, output)
    })
}

/// Fills the padding in `output`, each element once: for each dimension the slabs before and after
/// it, within the input along earlier dimensions and whole along later ones.
fn fill_margins(
    ctx: &KernelContext<'_>,
    paddings: &[[usize; 2]],
    inner: &Shape,
    value: &Tensor,
    output: &mut Tensor,
) -> Result<()> {
    let (outer, to) = (output.shape().clone(), strides(output.shape()));
    for (d, &[before, after]) in paddings.iter().enumerate() {
        for (start, len) in [(0, before), (before + inner[d], after)] {
            let mut copy = StridedCopy::default();
            for i in 0..inner.rank() {
                let (first, len) = match i.cmp(&d) {
                    std::cmp::Ordering::Less => (paddings[i][0], inner[i]),
                    std::cmp::Ordering::Equal => (start, len),
                    std::cmp::Ordering::Greater => (0, outer[i]),
                };
                copy.target_start += first * to[i];
                copy.dims.push(Dim { len, source: 0, target: to[i] });
            }
            copy.run(ctx, value, output)?;
        }
    }
    Ok(())
}

/// Distance of the mirror from the edge: 0 repeats the edge (SYMMETRIC), 1 does not (REFLECT).
fn mirror_offset(init: &KernelInit<'_>) -> Result<usize> {
    Ok(usize::from(init.attrs().string("mode")? == "REFLECT"))
}

fn mirror_pad(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let offset = mirror_offset(init)?;
    AnyKernel::new(move |ctx| {
        let paddings = paddings_input(ctx)?;
        let input = ctx.input(0)?;
        let mut segments: SmallVec<[SmallVec<[Segment; 3]>; 6]> = SmallVec::new();
        for (&size, &[before, after]) in input.shape().iter().zip(&paddings) {
            check_mirror(size, before, after, offset)?;
            let all = [
                Segment {
                    len: before,
                    source: (before + offset).wrapping_sub(1),
                    step: -1,
                    target: 0,
                },
                Segment { len: size, source: 0, step: 1, target: before },
                Segment {
                    len: after,
                    source: size.wrapping_sub(1 + offset),
                    step: -1,
                    target: before + size,
                },
            ];
            segments.push(all.into_iter().filter(|s| s.len > 0).collect());
        }
        if paddings.iter().all(|p| *p == [0, 0]) {
            let input = ctx.take_input(0)?;
            return ctx.set_output(0, input);
        }
        let mut output = blank(ctx, input.dtype(), padded(input.shape(), &paddings)?)?;
        copy_boxes(ctx, &segments, input, &mut output)?;
        ctx.set_output(0, output)
    })
}

pub(crate) fn check_mirror(size: usize, before: usize, after: usize, offset: usize) -> Result<()> {
    if offset == 0 {
        ensure!(
            before <= size && after <= size,
            InvalidArgument,
            "paddings must be no greater than the dimension size: {before}, {after} greater than \
             {size}"
        );
    } else {
        ensure!(
            before < size && after < size,
            InvalidArgument,
            "paddings must be less than the dimension size: {before}, {after} not less than {size}"
        );
    }
    Ok(())
}

const MIRROR_PAD_GRAD: OpDef =
    OpDef::new("MirrorPadGrad", mirror_pad_grad_shape).with_work(Work::moves);

fn mirror_pad_grad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    padded_shape(c, |size, before, after| size.checked_sub(before)?.checked_sub(after))
}

fn mirror_pad_grad<T: Number>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let offset = mirror_offset(init)?;
    AnyKernel::new(move |ctx| {
        let paddings = paddings_input(ctx)?;
        let shape = ctx.input(0)?.shape().clone();
        let mut dims: SmallVec<[usize; 6]> = SmallVec::new();
        for (&size, &[before, after]) in shape.iter().zip(&paddings) {
            let total = before.saturating_add(after);
            ensure!(
                total < size,
                InvalidArgument,
                "Total paddings must be less than the input dimension size: {total} was not less \
                 than {size}"
            );
            check_mirror(size - total, before, after, offset)?;
            dims.push(size - total);
        }
        let mut folded = ctx.take_input(0)?;
        folded.make_unique(Some(ctx.budget()))?;
        fold_margins(folded.as_mut_slice::<T>()?, &shape, &paddings, offset);
        let from = strides(&shape);
        let start = paddings.iter().zip(&from).map(|(p, s)| p[0] * s).sum();
        let source: SmallVec<[isize; 6]> = from.iter().map(|&s| s as isize).collect();
        let mut output = blank(ctx, folded.dtype(), Shape::new(&dims)?)?;
        StridedCopy::filling(&dims, &source, start).run(ctx, &folded, &mut output)?;
        ctx.set_output(0, output)
    })
}

/// Adds the padding to the elements that it mirrors, dimension by dimension. Rows are whole runs of
/// the later dimensions; the padding of earlier dimensions is folded again, without effect.
fn fold_margins<T: Number>(data: &mut [T], shape: &Shape, paddings: &[[usize; 2]], offset: usize) {
    for (d, &[before, after]) in paddings.iter().enumerate() {
        let row: usize = shape[d + 1..].iter().product();
        let block = shape[d] * row;
        if block == 0 || before + after == 0 {
            continue;
        }
        let last = shape[d] - 1 - after;
        for block in data.chunks_exact_mut(block) {
            for i in 0..before {
                add_row(block, row, i, 2 * before + offset - 1 - i);
            }
            for i in 0..after {
                add_row(block, row, last + 1 + i, last - offset - i);
            }
        }
    }
}

fn add_row<T: Number>(block: &mut [T], row: usize, from: usize, to: usize) {
    let (low, high) = (from.min(to), from.max(to));
    let (head, tail) = block.split_at_mut(high * row);
    let (low, high) = (&mut head[low * row..][..row], &mut tail[..row]);
    let (source, target): (&[T], &mut [T]) = if from < to { (low, high) } else { (high, low) };
    target.iter_mut().zip(source).for_each(|(t, &s)| *t = t.plus(s));
}

/// Slices the padding off the adjoint.
fn pad_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, paddings) = (g.grad(0)?, g.input(0), g.input(1));
    let (first, column) = (g.ints(&[0, 0])?, g.ints(&[-1, 1])?);
    let before = g.add("Slice", &[paddings, first, column])?;
    let (begin, size) = (flat(g, before)?, shape_as(g, x, g.dtype(paddings))?);
    let adjoint = g.add("Slice", &[grad, begin, size])?;
    g.set(0, adjoint)
}

fn gradient_of_mirror_pad(g: &mut GradientContext<'_>) -> Result<()> {
    swap_mirror_pad(g, "MirrorPadGrad")
}

fn gradient_of_mirror_pad_grad(g: &mut GradientContext<'_>) -> Result<()> {
    swap_mirror_pad(g, "MirrorPad")
}

/// `MirrorPad` and `MirrorPadGrad` are each other's gradient.
fn swap_mirror_pad(g: &mut GradientContext<'_>, op: &str) -> Result<()> {
    let (grad, paddings) = (g.grad(0)?, g.input(1));
    let adjoint = g.op_like(op, &["mode"]).inputs(&[grad, paddings]).build()?;
    g.set(0, adjoint)
}
