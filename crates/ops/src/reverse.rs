//! `Reverse`, `ReverseSequence` and `Roll`.

use smallvec::SmallVec;
use thalweg_graph::shape::{self, ShapeContext};
use thalweg_graph::{GradientContext, OpDef, Work};
use thalweg_hlo::Comparison;
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{Result, Tensor, bail, ensure};

use crate::cells::blank;
use crate::rows_lowering::gathered;
use crate::strided::{Dim, Segment, StridedCopy, copy_boxes, strides};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        REVERSE.with_gradient(reverse_adjoint),
        REVERSE_V2.with_gradient(reverse_adjoint),
        REVERSE_SEQUENCE.with_gradient(reverse_adjoint),
        ROLL.with_gradient(roll_grad),
    ],
    kernels: &[
        KernelSpec { op: "Reverse", host_inputs: &["dims"], create: reverse, ..KernelSpec::CPU },
        KernelSpec {
            op: "ReverseV2",
            host_inputs: &["axis"],
            create: reverse_v2,
            ..KernelSpec::CPU
        },
        KernelSpec { op: "ReverseSequence", create: reverse_sequence, ..KernelSpec::CPU },
        KernelSpec { op: "Roll", host_inputs: &["shift", "axis"], create: roll, ..KernelSpec::CPU },
        KernelSpec::lowering("Reverse", |l| {
            let is_reversed = l.host(1)?.as_slice::<bool>()?;
            lower_reverse(l, is_reversed)
        })
        .with_host_inputs(&["dims"]),
        KernelSpec::lowering("ReverseV2", |l| {
            let dims = l.input_dims(0)?;
            if dims.is_empty() || dims.contains(&0) {
                return l.forward(0, 0);
            }
            lower_reverse(l, &reversed_axes(&l.ints(1)?, dims.len())?)
        })
        .with_host_inputs(&["axis"]),
        KernelSpec::lowering("ReverseSequence", lower_reverse_sequence),
        KernelSpec::lowering("Roll", lower_roll).with_host_inputs(&["shift", "axis"]),
    ],
};

const REVERSE: OpDef = OpDef::new("Reverse", reverse_shape).with_work(Work::moves);

fn reverse_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let dims = c.with_rank(1, "dims", 1)?;
    if let (Some(rank), Some(n)) = (c.input(0).rank(), dims.dim(0)) {
        ensure!(
            rank == n,
            InvalidArgument,
            "'dims' must have {rank} values, one for each dimension, has {n}"
        );
    }
    shape::unchanged(c)
}

fn reverse(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let (rank, dims) = (ctx.input(0)?.rank(), ctx.input(1)?);
        ensure!(
            dims.rank() == 1,
            InvalidArgument,
            "'dims' must be 1-dimension, not {}",
            dims.rank()
        );
        ensure!(
            dims.num_elements() == rank,
            InvalidArgument,
            "'dims' must have the same number of values as 'input' has dimensions. 'input' has \
             {rank}'dims' has {} values",
            dims.num_elements()
        );
        let is_reversed = SmallVec::from_slice(dims.as_slice::<bool>()?);
        reverse_dims(ctx, &is_reversed)
    })
}

fn reverse_dims(ctx: &mut KernelContext<'_>, is_reversed: &SmallVec<[bool; 8]>) -> Result<()> {
    let input = ctx.input(0)?;
    let moves = |(&size, &is_reversed): (&usize, &bool)| size > 1 && is_reversed;
    if !input.shape().iter().zip(is_reversed).any(moves) || input.num_elements() == 0 {
        let input = ctx.take_input(0)?;
        return ctx.set_output(0, input);
    }
    let mut start = 0;
    let mut source: SmallVec<[isize; 6]> = SmallVec::new();
    for ((&size, stride), &reversed) in
        input.shape().iter().zip(strides(input.shape())).zip(is_reversed)
    {
        source.push(if reversed { -(stride as isize) } else { stride as isize });
        start += if reversed { (size - 1) * stride } else { 0 };
    }
    let mut output = blank(ctx, input.dtype(), input.shape().clone())?;
    StridedCopy::filling(input.shape(), &source, start).run(ctx, input, &mut output)?;
    ctx.set_output(0, output)
}

fn lower_reverse(l: &mut Lowering<'_>, is_reversed: &[bool]) -> Result<()> {
    let dims: Vec<usize> = (0..is_reversed.len()).filter(|&i| is_reversed[i]).collect();
    l.unary(|x| if dims.is_empty() { x.clone() } else { x.reverse(&dims) })
}

const REVERSE_V2: OpDef = OpDef::new("ReverseV2", reverse_v2_shape).with_work(Work::moves);

fn reverse_v2_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(1, "axis", 1)?;
    if let (Some(rank), Some(axes)) =
        (c.input(0).rank(), c.partial_value(1).and_then(|v| v.known()))
    {
        reversed_axes(&axes, rank)?;
    }
    shape::unchanged(c)
}

fn reversed_axes(axes: &[i64], rank: usize) -> Result<SmallVec<[bool; 8]>> {
    let mut is_reversed: SmallVec<[bool; 8]> = smallvec::smallvec![false; rank];
    for (i, &axis) in axes.iter().enumerate() {
        let from_end = if axis < 0 { axis.wrapping_add(rank as i64) } else { axis };
        let slot = usize::try_from(from_end).ok().and_then(|a| is_reversed.get_mut(a));
        let Some(slot) = slot else {
            bail!(InvalidArgument, "'axis'[{i}] = {axis} is out of valid range [0, {rank})");
        };
        ensure!(!*slot, InvalidArgument, "axis {from_end} specified more than once.");
        *slot = true;
    }
    Ok(is_reversed)
}

fn reverse_v2(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        // As in TensorFlow, axes are not checked for a scalar or an empty tensor.
        let input = ctx.input(0)?;
        if input.rank() == 0 || input.num_elements() == 0 {
            let input = ctx.take_input(0)?;
            return ctx.set_output(0, input);
        }
        let axes = ctx.input(1)?;
        ensure!(
            axes.rank() == 1,
            InvalidArgument,
            "'dims' must be 1-dimension, not {}",
            axes.rank()
        );
        let is_reversed = reversed_axes(&ctx.ints(1, "axis")?, input.rank())?;
        reverse_dims(ctx, &is_reversed)
    })
}

const REVERSE_SEQUENCE: OpDef =
    OpDef::new("ReverseSequence", reverse_sequence_shape).with_work(Work::per_output::<30>);

fn reverse_sequence_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let lens = c.with_rank(1, "seq_lengths", 1)?;
    if let Some(dims) = c.input(0).dims() {
        let (batch, seq) =
            sequence_dims(c.attrs().int("batch_dim")?, c.attrs().int("seq_dim")?, dims.len())?;
        if let (Some(batch), Some(n)) = (dims[batch], lens.dim(0)) {
            ensure!(
                batch == n,
                InvalidArgument,
                "Length of seq_lengths != input.dims({seq}), ({n} vs. {batch})"
            );
        }
    }
    shape::unchanged(c)
}

fn sequence_dims(batch: i64, seq: i64, rank: usize) -> Result<(usize, usize)> {
    ensure!(seq >= 0, InvalidArgument, "Invalid seq_dim {seq}");
    ensure!(batch >= 0, InvalidArgument, "Invalid batch_dim {batch}");
    ensure!(batch != seq, InvalidArgument, "batch_dim == seq_dim == {seq}");
    for (name, dim) in [("seq_dim", seq), ("batch_dim", batch)] {
        ensure!(
            dim < rank as i64,
            InvalidArgument,
            "{name} must be < input rank ( {dim} vs. {rank})"
        );
    }
    Ok((batch as usize, seq as usize))
}

fn reverse_sequence(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let (batch, seq) = (init.attrs().int("batch_dim")?, init.attrs().int("seq_dim")?);
    AnyKernel::new(move |ctx| {
        let (input, lens) = (ctx.input(0)?, ctx.input(1)?);
        ensure!(
            lens.rank() == 1,
            InvalidArgument,
            "seq_lengths must be 1-dim, not {}",
            lens.rank()
        );
        let shape = input.shape();
        let (batch, seq) = sequence_dims(batch, seq, shape.rank())?;
        ensure!(
            lens.num_elements() == shape[batch],
            InvalidArgument,
            "Length of seq_lengths != input.dims({batch}), ({} vs. {})",
            lens.num_elements(),
            shape[batch]
        );
        let lens = ctx.ints(1, "seq_lengths")?;
        for (i, &len) in lens.iter().enumerate() {
            ensure!(len >= 0, InvalidArgument, "seq_lens({i}) < 0");
            ensure!(len <= shape[seq] as i64, InvalidArgument, "seq_lens({i}) > input.dims({seq})");
        }
        let mut output = blank(ctx, input.dtype(), shape.clone())?;
        for (i, &len) in lens.iter().enumerate() {
            copy_sequence(ctx, input, &mut output, (batch, i), (seq, len as usize))?;
        }
        ctx.set_output(0, output)
    })
}

/// Gathers along the sequence, which is moved behind the batch for that.
fn lower_reverse_sequence(l: &mut Lowering<'_>) -> Result<()> {
    let (x, lens) = (l.input(0)?, l.input(1)?);
    let (batch, seq) =
        sequence_dims(l.attrs().int("batch_dim")?, l.attrs().int("seq_dim")?, x.rank())?;
    let others = (0..x.rank()).filter(|&i| i != batch && i != seq);
    let order: Vec<usize> = [batch, seq].into_iter().chain(others).collect();
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(i, &from)| back[from] = i);
    let dims = [x.dims()[batch], x.dims()[seq]];
    let (step, lens) = (lens.iota(lens.dtype(), &dims, 1), lens.broadcast_in(&dims, &[0]));
    let is_reversed = step.compare(Comparison::Less, &lens);
    let source = is_reversed.select(&(&lens - &step - 1.0), &step);
    l.set(0, gathered(&x.transpose(&order), &source, 1, 1).transpose(&back))
}

/// Copies one entry of the batch with the first `len` steps of its sequence reversed.
fn copy_sequence(
    ctx: &KernelContext<'_>,
    input: &Tensor,
    output: &mut Tensor,
    (batch, entry): (usize, usize),
    (seq, len): (usize, usize),
) -> Result<()> {
    let rest = input.shape()[seq] - len;
    let parts = [
        Segment { len, source: len.saturating_sub(1), step: -1, target: 0 },
        Segment { len: rest, source: len, step: 1, target: len },
    ];
    for part in parts.into_iter().filter(|p| p.len > 0) {
        let mut copy = StridedCopy::default();
        for (i, (&size, stride)) in input.shape().iter().zip(strides(input.shape())).enumerate() {
            let segment = if i == batch {
                Segment { len: 1, source: entry, step: 1, target: entry }
            } else if i == seq {
                part
            } else {
                Segment { len: size, source: 0, step: 1, target: 0 }
            };
            copy.source_start += segment.source * stride;
            copy.target_start += segment.target * stride;
            let source = segment.step * stride as isize;
            copy.dims.push(Dim { len: segment.len, source, target: stride });
        }
        copy.run(ctx, input, output)?;
    }
    Ok(())
}

const ROLL: OpDef = OpDef::new("Roll", roll_shape).with_work(Work::moves);

fn roll_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank_at_least(0, "input", 1)?;
    for (i, name) in [(1, "shift"), (2, "axis")] {
        ensure!(
            c.input(i).rank().is_none_or(|r| r <= 1),
            InvalidArgument,
            "{name} must be a scalar or a 1-D vector. Found: {}",
            c.input(i)
        );
    }
    shape::unchanged(c)
}

fn roll(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let (input, shift, axis) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        ensure!(input.rank() >= 1, InvalidArgument, "input must be 1-D or higher");
        for (name, tensor) in [("shift", shift), ("axis", axis)] {
            ensure!(
                tensor.rank() <= 1,
                InvalidArgument,
                "{name} must be a scalar or a 1-D vector. Found: {}",
                tensor.shape()
            );
        }
        ensure!(
            shift.shape() == axis.shape(),
            InvalidArgument,
            "shift and axis must have the same size"
        );
        let shifts = total_shifts(&ctx.ints(1, "shift")?, &ctx.ints(2, "axis")?, input.shape())?;
        let mut segments: SmallVec<[SmallVec<[Segment; 3]>; 6]> = SmallVec::new();
        for (&size, &shift) in input.shape().iter().zip(&shifts) {
            let parts = [
                Segment { len: size - shift, source: 0, step: 1, target: shift },
                Segment { len: shift, source: size - shift, step: 1, target: 0 },
            ];
            segments.push(parts.into_iter().filter(|s| s.len > 0).collect());
        }
        if segments.iter().all(|s| s.len() <= 1) {
            let input = ctx.take_input(0)?;
            return ctx.set_output(0, input);
        }
        let mut output = blank(ctx, input.dtype(), input.shape().clone())?;
        copy_boxes(ctx, &segments, input, &mut output)?;
        ctx.set_output(0, output)
    })
}

/// How far each dimension is shifted, less than its size.
fn total_shifts(shift: &[i64], axis: &[i64], dims: &[usize]) -> Result<SmallVec<[usize; 6]>> {
    let mut shifts: SmallVec<[i128; 6]> = smallvec::smallvec![0; dims.len()];
    for (&shift, &axis) in shift.iter().zip(axis) {
        let from_end = if axis < 0 { axis.wrapping_add(dims.len() as i64) } else { axis };
        let slot = usize::try_from(from_end).ok().and_then(|a| shifts.get_mut(a));
        let Some(slot) = slot else {
            bail!(InvalidArgument, "axis {axis} is out of range");
        };
        *slot += i128::from(shift);
    }
    let within = |(&shift, &size): (&i128, &usize)| shift.rem_euclid(size.max(1) as i128) as usize;
    Ok(shifts.iter().zip(dims).map(within).collect())
}

fn lower_roll(l: &mut Lowering<'_>) -> Result<()> {
    let (mut x, shift, axis) = (l.input(0)?, l.ints(1)?, l.ints(2)?);
    ensure!(
        l.input_dims(1)? == l.input_dims(2)?,
        InvalidArgument,
        "shift and axis must have the same size"
    );
    let dims = x.dims().to_vec();
    for (d, shift) in total_shifts(&shift, &axis, &dims)?.into_iter().enumerate() {
        if shift > 0 {
            let start = dims[d] - shift;
            x = x.slice_dim(d, start, dims[d]).concatenate(&[x.slice_dim(d, 0, start)], d);
        }
    }
    l.set(0, x)
}

/// The gradient is the same reversal of the adjoint.
fn reverse_adjoint(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, op, what) = (g.grad(0)?, g.node().op.name.clone(), g.input(1));
    let adjoint = g.op_like(&op, &["seq_dim", "batch_dim"]).inputs(&[grad, what]).build()?;
    g.set(0, adjoint)
}

fn roll_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, shift, axis) = (g.grad(0)?, g.input(1), g.input(2));
    let back = g.add("Neg", &[shift])?;
    let adjoint = g.add("Roll", &[grad, back, axis])?;
    g.set(0, adjoint)
}
