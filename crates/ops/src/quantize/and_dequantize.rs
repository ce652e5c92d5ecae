//! `QuantizeAndDequantize` in its four versions: floats rounded to the levels of an integer type,
//! with a straight-through gradient within the range.

use thalweg_graph::{Gradient, GradientContext, NodeAttrs, OpDef, ShapeContext, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit};
use thalweg_tensor::{Element, PartialShape, Result, bail, ensure};

use super::range::Slices;
use crate::number::Real;
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("QuantizeAndDequantize", shape::unchanged)
            .with_work(Work::per_output::<300>)
            .with_gradient(straight_through),
        QUANTIZE_AND_DEQUANTIZE_V2,
        OpDef::new("QuantizeAndDequantizeV3", ranged_shape)
            .with_work(Work::per_output::<300>)
            .with_gradient(straight_through),
        QUANTIZE_AND_DEQUANTIZE_V4,
        OpDef::new("QuantizeAndDequantizeV4Grad", gradient_shape),
    ],
    kernels: &[
        cpu_kernel!("QuantizeAndDequantize", "T" in [f32, f64] => with_attr_range),
        cpu_kernel!("QuantizeAndDequantizeV2", "T" in [f32, f64] => with_input_range),
        cpu_kernel!("QuantizeAndDequantizeV3", "T" in [f32, f64] => with_input_range),
        cpu_kernel!("QuantizeAndDequantizeV4", "T" in [f32, f64] => with_input_range),
        cpu_kernel!("QuantizeAndDequantizeV4Grad", "T" in [f32, f64] => gradient),
    ],
};

/// The straight-through gradient: the adjoint, as if nothing were rounded.
fn straight_through(g: &mut GradientContext<'_>) -> Result<()> {
    let grad = g.grad(0)?;
    g.set(0, grad)
}

const QUANTIZE_AND_DEQUANTIZE_V2: OpDef = OpDef::new("QuantizeAndDequantizeV2", ranged_shape)
    .with_work(Work::per_output::<300>)
    .with_gradient(straight_through);

const QUANTIZE_AND_DEQUANTIZE_V4: OpDef = OpDef {
    name: "QuantizeAndDequantizeV4",
    gradient: Gradient::By(within_range),
    ..QUANTIZE_AND_DEQUANTIZE_V2
};

/// The adjoint where the input is in the range, else zero.
fn within_range(g: &mut GradientContext<'_>) -> Result<()> {
    let inputs = [g.grad(0)?, g.input(0), g.input(1), g.input(2)];
    let op = g.op_like("QuantizeAndDequantizeV4Grad", &["axis"]).inputs(&inputs);
    let adjoints = op.build_all()?;
    adjoints.into_iter().enumerate().try_for_each(|(i, adjoint)| g.set(i, adjoint))
}

/// The shape of the range inputs `first` and `first + 1`, for inputs of this shape.
fn ends_shape(c: &ShapeContext<'_>, first: usize, input: &PartialShape) -> Result<PartialShape> {
    let axis = c.attrs().int("axis")?;
    ensure!(axis >= -1, InvalidArgument, "Axis must be at least -1. Found {axis}");
    let rank = usize::from(axis != -1);
    let min = c.with_rank(first, "input_min", rank)?;
    let ends = min.merge(&c.with_rank(first + 1, "input_max", rank)?)?;
    let (Ok(axis), Some(dims)) = (usize::try_from(axis), input.dims()) else { return Ok(ends) };
    ensure!(
        axis < dims.len(),
        InvalidArgument,
        "input {input} must have more dimensions than the axis {axis}"
    );
    ends.merge(&PartialShape::new([dims[axis]]))
}

fn ranged_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    ends_shape(c, 1, c.input(0))?;
    shape::unchanged(c)
}

fn gradient_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.input(0).merge(c.input(1))?;
    let ends = ends_shape(c, 2, &input)?;
    c.set_output(0, input);
    c.set_output(1, ends.clone());
    c.set_output(2, ends);
    Ok(())
}

/// Float types that are quantized.
trait Float: Element + Real {
    const MAX: Self;
    fn from_f64(value: f64) -> Self;
    fn to_even(self) -> Self;
    fn half_up(self) -> Self;
}

macro_rules! floats {
    ($($t:ident),+) => { $(
        impl Float for $t {
            const MAX: Self = $t::MAX;

            fn from_f64(value: f64) -> Self {
                value as $t
            }

            #[inline(always)]
            fn to_even(self) -> Self {
                self.round_ties_even()
            }

            #[inline(always)]
            fn half_up(self) -> Self {
                (self + 0.5).floor()
            }
        }
    )+ };
}

floats!(f32, f64);

/// Options from the attrs.
#[derive(Clone, Copy)]
struct Rules {
    is_signed: bool,
    is_narrow: bool,
    is_half_up: bool,
    is_range_given: bool,
    axis: i64,
}

impl Rules {
    fn from_attrs(attrs: NodeAttrs<'_>) -> Result<Rules> {
        let flag = |name: &str| attrs.get(name).map_or(Ok(false), |_| attrs.bool(name));
        let axis = attrs.get("axis").map_or(Ok(-1), |_| attrs.int("axis"))?;
        ensure!(axis >= -1, InvalidArgument, "Axis must be at least -1. Found {axis}");
        let is_half_up = match attrs.get("round_mode") {
            Some(_) => attrs.string("round_mode")? == "HALF_UP",
            None => false,
        };
        Ok(Rules {
            is_signed: attrs.bool("signed_input")?,
            is_narrow: flag("narrow_range")?,
            is_half_up,
            is_range_given: attrs.bool("range_given")?,
            axis,
        })
    }

    fn check_bits(&self, bits: i64) -> Result<u32> {
        let most = if self.is_signed { 62 } else { 63 };
        ensure!(
            0 < bits && bits < most,
            InvalidArgument,
            "num_bits is out of range: {bits} with signed_input_ {}",
            u8::from(self.is_signed)
        );
        Ok(bits as u32)
    }

    /// The levels for the range `min..max`.
    fn levels<T: Float>(&self, bits: u32, min: T, max: T) -> Levels<T> {
        let (lowest, highest) = if self.is_signed {
            (-(1i64 << (bits - 1)) + i64::from(self.is_narrow), (1i64 << (bits - 1)) - 1)
        } else {
            (0, (1i64 << bits) - 1)
        };
        let (lowest, highest) = (T::from_f64(lowest as f64), T::from_f64(highest as f64));
        let side = |level: T, end: T| {
            if level.times(end) > T::ZERO { level.over(end) } else { T::MAX }
        };
        let (below, above) = (side(lowest, min), side(highest, max));
        // The end that needs the smaller scale keeps its value, the other is computed from it.
        if below < above {
            let inverse = min.over(lowest);
            Levels { min, max: highest.times(inverse), scale: below, inverse }
        } else {
            let inverse = max.over(highest);
            Levels { min: lowest.times(inverse), max, scale: above, inverse }
        }
    }
}

/// Scale and range of the quantization levels.
#[derive(Clone, Copy)]
struct Levels<T> {
    min: T,
    max: T,
    scale: T,
    inverse: T,
}

impl<T: Float> Levels<T> {
    fn round(&self, rules: &Rules, x: &[T], out: &mut [T]) {
        let Levels { min, max, scale, inverse } = *self;
        // NaN stays NaN.
        let clamp = |x: T| {
            let x = if x > max { max } else { x };
            if x < min { min } else { x }
        };
        for (out, &x) in out.iter_mut().zip(x) {
            let x = if rules.is_range_given { clamp(x) } else { x };
            let scaled = x.times(scale);
            let level = if rules.is_half_up { scaled.half_up() } else { scaled.to_even() };
            *out = level.times(inverse);
        }
    }
}

/// The minimum and maximum of a slice; NaN if an element is NaN.
fn extremes<T: Float>(data: &[T], slices: Slices, slice: usize) -> (T, T) {
    let (mut min, mut max) = (T::MAX, T::ZERO.minus(T::MAX));
    let runs = data.chunks(slices.inner.max(1)).skip(slice).step_by(slices.count.max(1));
    for &x in runs.flatten() {
        min = if x < min { x } else { min };
        max = if x > max { x } else { max };
    }
    (min, max)
}

/// Rounds the input; `range` returns the range of each slice.
fn compute<T: Float>(
    ctx: &mut KernelContext<'_>,
    rules: &Rules,
    bits: u32,
    slices: Slices,
    range: impl Fn(usize) -> (T, T) + Sync,
) -> Result<()> {
    let mut out = ctx.allocate_output(0, ctx.input(0)?.shape().clone())?;
    let data = ctx.slice::<T>(0)?;
    let levels = |slice: usize| {
        let (min, max) =
            if rules.is_range_given { range(slice) } else { extremes(data, slices, slice) };
        rules.levels(bits, min, max)
    };
    if slices.count == 1 && !data.is_empty() {
        let levels = levels(0);
        for_each_rows(ctx, out.as_mut_slice::<T>()?, 1, 1.5, |first, out| {
            levels.round(rules, &data[first..][..out.len()], out);
        })?;
    } else if !data.is_empty() {
        let shared = crate::split::Disjoint::new(out.as_mut_slice::<T>()?);
        let (stride, inner) = (slices.count * slices.inner, slices.inner);
        let cost = 2.0 * (data.len() / slices.count) as f64;
        ctx.parallel_for(slices.count, cost, |range| {
            for slice in range {
                let levels = levels(slice);
                for start in (slice * inner..data.len()).step_by(stride) {
                    // SAFETY: every slice, and with it each of its runs, is visited once.
                    let out = unsafe { shared.part(start..start + inner) };
                    levels.round(rules, &data[start..start + inner], out);
                }
            }
        })?;
    }
    ctx.set_output(0, out)
}

fn check_range<T: Float + std::fmt::Display>(min: T, max: T) -> Result<()> {
    ensure!(min <= max, InvalidArgument, "Invalid range: input_min {min} > input_max {max}");
    Ok(())
}

fn with_attr_range<T: Float>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let rules = Rules::from_attrs(attrs)?;
    let bits = rules.check_bits(attrs.int("num_bits")?)?;
    let (min, max) = (attrs.float("input_min")?, attrs.float("input_max")?);
    if rules.is_range_given {
        check_range(min, max)?;
    }
    let range = (T::from_f64(min.into()), T::from_f64(max.into()));
    AnyKernel::new(move |ctx| {
        let slices = Slices::new(ctx.input(0)?.shape(), -1)?;
        compute::<T>(ctx, &rules, bits, slices, |_| range)
    })
}

fn with_input_range<T: Float + std::fmt::Display>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let rules = Rules::from_attrs(attrs)?;
    let attr_bits = match attrs.get("num_bits") {
        Some(_) => Some(rules.check_bits(attrs.int("num_bits")?)?),
        None => None,
    };
    AnyKernel::new(move |ctx| {
        let slices = Slices::new(ctx.input(0)?.shape(), rules.axis)?;
        let bits = match attr_bits {
            Some(bits) => bits,
            None => {
                let rank = ctx.input(3)?.rank();
                ensure!(
                    rank == 0,
                    InvalidArgument,
                    "Invalid shape. The `num_bits` tensor should be a scalar. Got dimensions: {rank}"
                );
                rules.check_bits(ctx.scalar_int(3, "num_bits")?)?
            }
        };
        let (min, max) = (ctx.input(1)?.clone(), ctx.input(2)?.clone());
        let (min, max) = (min.as_slice::<T>()?, max.as_slice::<T>()?);
        if rules.is_range_given {
            check_ends(ctx, 1, rules.axis, slices.count)?;
            min.iter().zip(max).try_for_each(|(&min, &max)| check_range(min, max))?;
        }
        compute::<T>(ctx, &rules, bits, slices, |slice| (min[slice], max[slice]))
    })
}

/// Inputs `first` and `first + 1` must be scalars, or vectors along an axis.
fn check_ends(ctx: &KernelContext<'_>, first: usize, axis: i64, count: usize) -> Result<()> {
    for (i, name) in [(first, "input_min"), (first + 1, "input_max")] {
        let shape = ctx.input(i)?.shape();
        if axis < 0 {
            ensure!(shape.rank() == 0, InvalidArgument, "{name} must be a scalar, is {shape}");
        } else if shape.dims() != [count] {
            bail!(InvalidArgument, "{name} has incorrect size, expected {count} was {shape}");
        }
    }
    Ok(())
}

fn gradient<T: Float>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let axis = init.attrs().int("axis")?;
    ensure!(axis >= -1, InvalidArgument, "Axis must be at least -1. Found {axis}");
    AnyKernel::new(move |ctx| {
        let (gradients, input) = (ctx.input(0)?.shape(), ctx.input(1)?.shape());
        ensure!(
            gradients == input,
            InvalidArgument,
            "gradient and input must be the same size, are {gradients} and {input}"
        );
        let slices = Slices::new(input, axis)?;
        check_ends(ctx, 2, axis, slices.count)?;
        let mut out = ctx.allocate_output(0, input.clone())?;
        let (gradients, input) = (ctx.slice::<T>(0)?, ctx.slice::<T>(1)?);
        let (min, max) = (ctx.slice::<T>(2)?, ctx.slice::<T>(3)?);
        let inner = slices.inner.max(1);
        for_each_rows(ctx, out.as_mut_slice::<T>()?, 1, 1.0, |first, out| {
            for (at, out) in (first..).zip(out) {
                let slice = at / inner % slices.count;
                let is_within = min[slice] <= input[at] && input[at] <= max[slice];
                *out = gradients[at].times(if is_within { T::ONE } else { T::ZERO });
            }
        })?;
        ctx.set_output(0, out)?;
        for i in [1, 2] {
            let zeros = ctx.zeros(T::DTYPE, ctx.input(i + 1)?.shape().clone())?;
            ctx.set_output(i, zeros)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{call, code};
    use thalweg_tensor::{Code, DType, Shape, Tensor};

    fn matrix(values: [f32; 4]) -> Tensor {
        Tensor::from_slice(Shape::new(&[2, 2]).unwrap(), &values).unwrap()
    }

    #[test]
    fn shapes() {
        let infer = |axis: i64, ends| {
            let call = call("QuantizeAndDequantizeV4Grad").attr("axis", axis);
            let call = call.shape(DType::Float, "2,3").shape(DType::Float, "2,?");
            call.shape(DType::Float, ends).shape(DType::Float, ends).infer()
        };
        assert_eq!(infer(-1, ""), "[2,3] [] []");
        assert_eq!(infer(1, "?"), "[2,3] [3] [3]");
        assert!(infer(0, "3").starts_with("INVALID_ARGUMENT"));
        assert!(infer(2, "3").starts_with("INVALID_ARGUMENT"));
        assert!(infer(-2, "").starts_with("INVALID_ARGUMENT"));
    }

    /// Recorded from TensorFlow.
    #[test]
    fn levels() {
        let zero = || Tensor::scalar(0f32);
        let values = Tensor::vector(&[-1f32, 0.5, 2.2, 3.0]).unwrap();
        let got = call("QuantizeAndDequantizeV2").input(values).input(zero()).input(zero());
        let got = got.run().unwrap();
        assert_eq!(got.as_slice::<f32>().unwrap(), [-0.992_126, 0.496_063, 2.196_850_3, 3.0]);
        let ends = || Tensor::vector(&[0f32, 0.0]).unwrap();
        let got = call("QuantizeAndDequantizeV2").input(matrix([-1.0, 0.5, 2.0, 3.0]));
        let got = got.input(ends()).input(ends()).attr("axis", 1).run().unwrap();
        assert_eq!(got.as_slice::<f32>().unwrap(), [-1.007_874, 0.496_063, 2.0, 3.0]);
        let got = call("QuantizeAndDequantizeV3").input(matrix([-1.0, 0.5, 2.0, 3.0]));
        let got = got.input(Tensor::vector(&[-1f32, -1.0]).unwrap());
        let got = got.input(Tensor::vector(&[1f32, 2.0]).unwrap()).input(Tensor::scalar(4));
        let got = got.attr("axis", 0).run().unwrap();
        assert_eq!(got.as_slice::<f32>().unwrap(), [-1.0, 0.571_428_6, 2.0, 2.0]);
    }

    #[test]
    fn hostile_inputs() {
        let run = |axis: i64, bits: i64, ends: Tensor| {
            let call = call("QuantizeAndDequantizeV4").input(matrix([1.0; 4])).input(ends.clone());
            let call = call.input(ends).attr("axis", axis).attr("num_bits", bits);
            call.attr("range_given", true).run()
        };
        let pair = || Tensor::vector(&[1f32, 1.0]).unwrap();
        assert!(run(-1, 8, Tensor::scalar(1f32)).is_ok());
        assert!(run(1, 8, pair()).is_ok());
        for (axis, bits, ends) in [
            (-1, 8, pair()),
            (0, 8, Tensor::scalar(1f32)),
            (i64::MAX, 8, pair()),
            (i64::MIN, 8, pair()),
            (-1, 0, Tensor::scalar(1f32)),
            (-1, 62, Tensor::scalar(1f32)),
            (-1, i64::MIN, Tensor::scalar(1f32)),
            (-1, 8, Tensor::scalar(f32::NAN)),
        ] {
            assert_eq!(code(run(axis, bits, ends)), Some(Code::InvalidArgument), "{axis} {bits}");
        }
        let empty = Tensor::zeros(DType::Float, Shape::new(&[0, 2]).unwrap()).unwrap();
        let call = call("QuantizeAndDequantizeV2").input(empty).input(pair()).input(pair());
        assert!(call.attr("axis", 1).run().is_ok());
    }
}
