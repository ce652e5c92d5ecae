//! Simulated quantization for training: `FakeQuantWithMinMaxArgs`, `...Vars`, `...VarsPerChannel`,
//! and their gradients.
//!
//! The range is nudged so that zero is a level. The gradient is straight-through within the range;
//! elements out of range contribute to the gradients of `min` and `max`.

use thalweg_graph::{Gradient, GradientContext, NodeAttrs, OpDef, ShapeContext, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, bail, ensure};

use super::fake_lowering;
use crate::map::{map, map_with};
use crate::split::{Disjoint, for_each_rows};

pub(crate) static FAMILY: Family = Family {
    ops: &[ARGS, ARGS_GRADIENT, VARS, VARS_GRADIENT, PER_CHANNEL, PER_CHANNEL_GRADIENT],
    kernels: &[
        KernelSpec { op: ARGS.name, create: args, ..KernelSpec::CPU },
        KernelSpec { op: ARGS_GRADIENT.name, create: args_gradient, ..KernelSpec::CPU },
        KernelSpec { op: VARS.name, create: vars, ..KernelSpec::CPU },
        KernelSpec { op: VARS_GRADIENT.name, create: vars_gradient, ..KernelSpec::CPU },
        KernelSpec { op: PER_CHANNEL.name, create: per_channel, ..KernelSpec::CPU },
        KernelSpec {
            op: PER_CHANNEL_GRADIENT.name,
            create: per_channel_gradient,
            ..KernelSpec::CPU
        },
        KernelSpec::lowering("FakeQuantWithMinMaxArgs", fake_lowering::args),
        KernelSpec::lowering("FakeQuantWithMinMaxArgsGradient", fake_lowering::args_gradient),
        KernelSpec::lowering("FakeQuantWithMinMaxVars", |l| fake_lowering::vars(l, false)),
        KernelSpec::lowering("FakeQuantWithMinMaxVarsGradient", |l| {
            fake_lowering::vars_gradient(l, false)
        }),
        KernelSpec::lowering("FakeQuantWithMinMaxVarsPerChannel", |l| fake_lowering::vars(l, true)),
        KernelSpec::lowering("FakeQuantWithMinMaxVarsPerChannelGradient", |l| {
            fake_lowering::vars_gradient(l, true)
        }),
    ],
};

const ARGS: OpDef = OpDef::new("FakeQuantWithMinMaxArgs", shape::unchanged)
    .with_work(Work::per_output::<250>)
    .with_gradient(|g| through(g, "FakeQuantWithMinMaxArgsGradient"));

/// The gradients of all inputs, by the op `op`.
fn through(g: &mut GradientContext<'_>, op: &str) -> Result<()> {
    let mut inputs = vec![g.grad(0)?];
    inputs.extend_from_slice(g.inputs());
    let attrs = ["min", "max", "num_bits", "narrow_range"];
    let adjoints = g.op_like(op, &attrs).inputs(&inputs).build_all()?;
    adjoints.into_iter().enumerate().try_for_each(|(i, adjoint)| g.set(i, adjoint))
}

const ARGS_GRADIENT: OpDef =
    OpDef { name: "FakeQuantWithMinMaxArgsGradient", gradient: Gradient::None, ..ARGS };

const VARS: OpDef = OpDef::new("FakeQuantWithMinMaxVars", vars_shape)
    .with_work(Work::per_output::<250>)
    .with_gradient(|g| through(g, "FakeQuantWithMinMaxVarsGradient"));

const VARS_GRADIENT: OpDef = OpDef {
    name: "FakeQuantWithMinMaxVarsGradient",
    shape: vars_gradient_shape,
    gradient: Gradient::None,
    ..VARS
};

const PER_CHANNEL: OpDef = OpDef {
    name: "FakeQuantWithMinMaxVarsPerChannel",
    shape: per_channel_shape,
    gradient: Gradient::By(|g| through(g, "FakeQuantWithMinMaxVarsPerChannelGradient")),
    ..VARS
};

const PER_CHANNEL_GRADIENT: OpDef = OpDef {
    name: "FakeQuantWithMinMaxVarsPerChannelGradient",
    shape: per_channel_gradient_shape,
    ..VARS_GRADIENT
};

fn vars_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(1, "min", 0)?;
    c.with_rank(2, "max", 0)?;
    shape::unchanged(c)
}

fn vars_gradient_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let inputs = c.input(0).merge(c.input(1))?;
    c.with_rank(2, "min", 0)?;
    c.with_rank(3, "max", 0)?;
    c.set_output(0, inputs);
    c.set_output(1, PartialShape::scalar());
    c.set_output(2, PartialShape::scalar());
    Ok(())
}

/// The shape of the range inputs `first` and `first + 1`, for inputs of this shape.
fn channels_shape(
    c: &ShapeContext<'_>,
    first: usize,
    inputs: &PartialShape,
) -> Result<PartialShape> {
    let min = c.with_rank(first, "min", 1)?;
    let ends = min.merge(&c.with_rank(first + 1, "max", 1)?)?;
    match inputs.dims().and_then(<[_]>::last) {
        Some(&channels) => ends.merge(&PartialShape::new([channels])),
        None => Ok(ends),
    }
}

fn per_channel_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let inputs = c.with_rank_at_least(0, "inputs", 1)?;
    channels_shape(c, 1, inputs)?;
    shape::unchanged(c)
}

fn per_channel_gradient_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank_at_least(0, "gradients", 1)?;
    let inputs = c.input(0).merge(c.input(1))?;
    let ends = channels_shape(c, 2, &inputs)?;
    c.set_output(0, inputs);
    c.set_output(1, ends.clone());
    c.set_output(2, ends);
    Ok(())
}

/// The integers to which inputs are quantized.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    pub(crate) lowest: f32,
    pub(crate) highest: f32,
}

impl Levels {
    pub(crate) fn from_attrs(attrs: NodeAttrs<'_>) -> Result<Levels> {
        let bits = attrs.int("num_bits")?;
        ensure!(
            (2..=16).contains(&bits),
            InvalidArgument,
            "num_bits must be between 2 and 16, inclusive, got {bits}"
        );
        let lowest = if attrs.bool("narrow_range")? { 1.0 } else { 0.0 };
        Ok(Levels { lowest, highest: ((1 << bits) - 1) as f32 })
    }

    /// The range, shifted so that zero is a level.
    fn nudge(self, min: f32, max: f32) -> Nudged {
        let scale = (max - min) / (self.highest - self.lowest);
        let zero = self.lowest - min / scale;
        // NaN takes the last branch, where it converts to 0.
        let zero = if zero < self.lowest {
            self.lowest
        } else if zero > self.highest {
            self.highest
        } else {
            f32::from(zero.round() as u16)
        };
        let min = (self.lowest - zero) * scale;
        let zero_level = (-min * (1.0 / scale) + 0.5).floor();
        Nudged { min, max: (self.highest - zero) * scale, scale, zero_level }
    }
}

/// A range in which zero is a level.
#[derive(Clone, Copy, Debug)]
struct Nudged {
    min: f32,
    max: f32,
    /// Distance between levels.
    scale: f32,
    /// Index of the level zero.
    zero_level: f32,
}

impl Nudged {
    /// `clamp(x) - min`. NaN stays NaN.
    #[inline(always)]
    fn above_min(&self, x: f32) -> f32 {
        let x = if x > self.max { self.max } else { x };
        (if x < self.min { self.min } else { x }) - self.min
    }

    /// Rounds each element to a level, by division by the scale or, if `by_division` is false, by
    /// multiplication with its inverse; TensorFlow's ops differ in this, and the results may differ
    /// in the last bit.
    fn quantize(&self, x: &mut [f32], by_division: bool) {
        let Nudged { scale, zero_level, .. } = *self;
        if by_division {
            for x in x {
                *x = (self.above_min(*x) / scale - zero_level + 0.5).floor() * scale;
            }
            return;
        }
        let inverse = 1.0 / scale;
        for x in x {
            *x = (self.above_min(*x) * inverse - zero_level + 0.5).floor() * scale;
        }
    }

    /// 1 where the input is in the range, else 0.
    #[inline(always)]
    fn is_within(&self, x: f32) -> f32 {
        if x >= self.min && x <= self.max { 1.0 } else { 0.0 }
    }

    /// 1 where the input is below the range, else 0.
    #[inline(always)]
    fn is_below(&self, x: f32) -> f32 {
        if x < self.min { 1.0 } else { 0.0 }
    }

    /// 1 where the input is above the range, else 0.
    #[inline(always)]
    fn is_above(&self, x: f32) -> f32 {
        if x > self.max { 1.0 } else { 0.0 }
    }
}

fn attr_range(attrs: NodeAttrs<'_>) -> Result<Nudged> {
    let (min, max) = (attrs.float("min")?, attrs.float("max")?);
    ensure!(min < max, InvalidArgument, "min has to be smaller than max, was: {min} >= {max}");
    Ok(Levels::from_attrs(attrs)?.nudge(min, max))
}

fn args(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let range = attr_range(init.attrs())?;
    AnyKernel::new(move |ctx| map::<f32>(ctx, 1.0, |x| range.quantize(x, false)))
}

fn check_sizes(gradients: &Shape, inputs: &Shape) -> Result<()> {
    ensure!(
        gradients == inputs,
        InvalidArgument,
        "gradient and input must be the same size, are {gradients} and {inputs}"
    );
    Ok(())
}

fn args_gradient(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let range = attr_range(init.attrs())?;
    AnyKernel::new(move |ctx| {
        check_sizes(ctx.input(0)?.shape(), ctx.input(1)?.shape())?;
        map_with::<f32>(ctx, 0.5, |gradients, inputs| {
            for (gradient, &x) in gradients.iter_mut().zip(inputs) {
                *gradient *= range.is_within(x);
            }
        })
    })
}

/// The range of the scalars in inputs `first` and `first + 1`; `None` if both are zero, when every
/// result is zero.
fn scalar_range(ctx: &KernelContext<'_>, first: usize, levels: Levels) -> Result<Option<Nudged>> {
    for (i, name) in [(first, "min"), (first + 1, "max")] {
        let rank = ctx.input(i)?.rank();
        ensure!(rank == 0, InvalidArgument, "`{name}` must be rank 0 but is rank {rank}");
    }
    let (min, max) = (ctx.slice::<f32>(first)?[0], ctx.slice::<f32>(first + 1)?[0]);
    Ok((min != 0.0 || max != 0.0).then(|| levels.nudge(min, max)))
}

fn vars(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let levels = Levels::from_attrs(init.attrs())?;
    AnyKernel::new(move |ctx| match scalar_range(ctx, 1, levels)? {
        Some(range) => map::<f32>(ctx, 1.0, |x| range.quantize(x, true)),
        None => map::<f32>(ctx, 0.2, |x| x.fill(0.0)),
    })
}

fn vars_gradient(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let levels = Levels::from_attrs(init.attrs())?;
    AnyKernel::new(move |ctx| {
        check_sizes(ctx.input(0)?.shape(), ctx.input(1)?.shape())?;
        let range = scalar_range(ctx, 2, levels)?;
        let len = ctx.input(0)?.num_elements();
        let columns = Columns { len: len.min(1), count: len };
        let ends = columns.gradients(ctx, |_| range, Shape::scalar())?;
        ctx.set_output(1, ends.0)?;
        ctx.set_output(2, ends.1)
    })
}

/// The ranges of the channels, in inputs `first` and `first + 1`.
fn channel_ends(ctx: &KernelContext<'_>, first: usize) -> Result<usize> {
    let shape = ctx.input(0)?.shape();
    let Some(&depth) = shape.last() else {
        bail!(InvalidArgument, "inputs must have at least one dimension");
    };
    for (i, name) in [(first, "min"), (first + 1, "max")] {
        let given = ctx.input(i)?.shape();
        ensure!(given.rank() == 1, InvalidArgument, "`{name}` must be rank 1 but is {given}");
        ensure!(
            given[0] == depth,
            InvalidArgument,
            "{name} has incorrect size, expected {depth} was {}",
            given[0]
        );
    }
    Ok(depth)
}

fn per_channel(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let levels = Levels::from_attrs(init.attrs())?;
    AnyKernel::new(move |ctx| {
        let depth = channel_ends(ctx, 1)?;
        let shape = ctx.input(0)?.shape().clone();
        let mut out = ctx.allocate_output(0, shape)?;
        let (data, min, max) = (ctx.slice::<f32>(0)?, ctx.slice::<f32>(1)?, ctx.slice::<f32>(2)?);
        let cost = 8.0 * depth as f64;
        for_each_rows(ctx, out.as_mut_slice::<f32>()?, depth, cost, |first, out| {
            out.copy_from_slice(&data[first * depth..][..out.len()]);
            for channel in 0..depth {
                let range = levels.nudge(min[channel], max[channel]);
                let is_empty = min[channel] == 0.0 && max[channel] == 0.0;
                for x in out[channel..].iter_mut().step_by(depth) {
                    range.quantize(std::slice::from_mut(x), false);
                    *x = if is_empty { 0.0 } else { *x };
                }
            }
        })?;
        ctx.set_output(0, out)
    })
}

fn per_channel_gradient(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let levels = Levels::from_attrs(init.attrs())?;
    AnyKernel::new(move |ctx| {
        check_sizes(ctx.input(0)?.shape(), ctx.input(1)?.shape())?;
        let depth = channel_ends(ctx, 2)?;
        let (min, max) = (ctx.input(2)?.clone(), ctx.input(3)?.clone());
        let (min, max) = (min.as_slice::<f32>()?, max.as_slice::<f32>()?);
        let count = ctx.input(0)?.num_elements().checked_div(depth).unwrap_or(0);
        let columns = Columns { len: depth, count };
        let range = |channel: usize| {
            let (min, max): (f32, f32) = (min[channel], max[channel]);
            (min != 0.0 || max != 0.0).then(|| levels.nudge(min, max))
        };
        let ends = columns.gradients(ctx, range, Shape::new(&[depth])?)?;
        ctx.set_output(1, ends.0)?;
        ctx.set_output(2, ends.1)
    })
}

/// A matrix with one range per column.
struct Columns {
    /// Number of columns.
    len: usize,
    /// Elements per column.
    count: usize,
}

impl Columns {
    /// Sets output 0 to the gradient of the inputs, and returns the gradients of `min` and `max`,
    /// in this shape. Without a range the gradient passes through.
    fn gradients(
        &self,
        ctx: &mut KernelContext<'_>,
        range: impl Fn(usize) -> Option<Nudged> + Sync,
        shape: Shape,
    ) -> Result<(Tensor, Tensor)> {
        let (gradients, inputs) = (ctx.slice::<f32>(0)?, ctx.slice::<f32>(1)?);
        let mut out = ctx.allocate_output(0, ctx.input(0)?.shape().clone())?;
        let mut ends = [ctx.zeros(DType::Float, shape.clone())?, ctx.zeros(DType::Float, shape)?];
        let [mins, maxes] = &mut ends;
        let mins = Disjoint::new(mins.as_mut_slice::<f32>()?);
        let maxes = Disjoint::new(maxes.as_mut_slice::<f32>()?);
        let written = Disjoint::new(out.as_mut_slice::<f32>()?);
        // One thread sums a column, so the order of summation is fixed.
        ctx.parallel_for(self.len, 2.0 * self.count as f64, |columns| {
            for column in columns {
                let (mut below, mut above) = (0.0f64, 0.0f64);
                let range = range(column);
                for i in 0..self.count {
                    let at = i * self.len + column;
                    let (gradient, x) = (gradients[at], inputs[at]);
                    // SAFETY: each column, and with it each element, is visited once.
                    let out = unsafe { written.part(at..at + 1) };
                    let Some(range) = &range else {
                        out[0] = gradient;
                        continue;
                    };
                    out[0] = gradient * range.is_within(x);
                    below += f64::from(gradient * range.is_below(x));
                    above += f64::from(gradient * range.is_above(x));
                }
                // SAFETY: as above.
                unsafe {
                    mins.part(column..column + 1)[0] = below as f32;
                    maxes.part(column..column + 1)[0] = above as f32;
                }
            }
        })?;
        ctx.set_output(0, out)?;
        let [mins, maxes] = ends;
        Ok((mins, maxes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, code, pairs};
    use thalweg_tensor::Code;

    fn vector(values: &[f32]) -> Tensor {
        Tensor::vector(values).unwrap()
    }

    #[test]
    fn shapes() {
        let infer = |inputs, min| {
            let call = call("FakeQuantWithMinMaxVarsPerChannelGradient");
            let call = call.shape(DType::Float, inputs).shape(DType::Float, inputs);
            call.shape(DType::Float, min).shape(DType::Float, min).infer()
        };
        assert_eq!(infer("2,3", "?"), "[2,3] [3] [3]");
        assert!(infer("2,3", "2").starts_with("INVALID_ARGUMENT"));
        assert!(infer("", "2").starts_with("INVALID_ARGUMENT"));
    }

    /// Recorded from TensorFlow.
    #[test]
    fn levels() {
        let values = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, 6.0, -6.0, 1e-30];
        let expected = [f32::NAN, 5.976_470_5, -6.023_529_5, 0.0, 5.976_470_5, -5.976_470_5, 0.0];
        let all = [
            call("FakeQuantWithMinMaxArgs").input(vector(&values)),
            call("FakeQuantWithMinMaxVars")
                .input(vector(&values))
                .input(Tensor::scalar(-6f32))
                .input(Tensor::scalar(6f32)),
            call("FakeQuantWithMinMaxVarsPerChannel")
                .input(vector(&values).reshaped(Shape::new(&[7, 1]).unwrap()).unwrap())
                .input(vector(&[-6.0]))
                .input(vector(&[6.0])),
        ];
        for call in all {
            let got = call.run().unwrap();
            for (&got, &wanted) in pairs(got.as_slice::<f32>().unwrap(), &expected) {
                assert!(got == wanted || (got.is_nan() && wanted.is_nan()), "{got} {wanted}");
            }
        }
    }

    #[test]
    fn gradients_of_the_ends() {
        let call = call("FakeQuantWithMinMaxVarsGradient").input(vector(&[1.0, 2.0, 3.0, 4.0]));
        let call = call.input(vector(&[-10.0, 0.0, 3.0, 10.0])).input(Tensor::scalar(-6f32));
        let got = call.input(Tensor::scalar(6f32)).run_all().unwrap();
        assert_eq!(got[0].as_slice::<f32>().unwrap(), [0.0, 2.0, 3.0, 0.0]);
        assert_eq!(got[1].scalar_value::<f32>().unwrap(), 1.0);
        assert_eq!(got[2].scalar_value::<f32>().unwrap(), 4.0);
    }

    #[test]
    fn hostile_inputs() {
        for (min, max, bits) in [(6f32, -6f32, 8), (0.0, 0.0, 8), (0.0, 1.0, 1), (0.0, 1.0, 17)] {
            let call = call("FakeQuantWithMinMaxArgs").input(vector(&[1.0])).attr("min", min);
            assert_eq!(
                code(call.attr("max", max).attr("num_bits", bits).run()),
                Some(Code::InvalidArgument)
            );
        }
        let per_channel = |inputs: Tensor, ends: Tensor| {
            let call = call("FakeQuantWithMinMaxVarsPerChannel").input(inputs);
            call.input(ends.clone()).input(ends).run()
        };
        assert_eq!(
            code(per_channel(Tensor::scalar(1f32), vector(&[1.0]))),
            Some(Code::InvalidArgument)
        );
        assert_eq!(
            code(per_channel(vector(&[1.0, 2.0]), vector(&[1.0]))),
            Some(Code::InvalidArgument)
        );
        assert_eq!(
            code(per_channel(vector(&[1.0]), Tensor::scalar(1f32))),
            Some(Code::InvalidArgument)
        );
        assert!(per_channel(vector(&[]), vector(&[])).is_ok());
        let empty = call("FakeQuantWithMinMaxVars").input(vector(&[1.0, 2.0]));
        let empty = empty.input(Tensor::scalar(0f32)).input(Tensor::scalar(0f32)).run().unwrap();
        assert_eq!(empty.as_slice::<f32>().unwrap(), [0.0, 0.0]);
    }
}
