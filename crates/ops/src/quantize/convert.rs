//! `QuantizeV2` and `Dequantize`.

use std::cmp::Ordering;

use smallvec::SmallVec;
use thalweg_graph::{NodeAttrs, OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelInit};
use thalweg_tensor::{
    DType, PartialShape, QInt8, QInt16, QInt32, QUInt8, QUInt16, Result, Shape, bail, ensure,
};

use super::range::{Quantized, Slices, ToFloat, ToQuantized, clamp};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("QuantizeV2", quantize_shape).with_work(Work::per_output::<150>),
        OpDef::new("Dequantize", quantize_shape).with_work(Work::per_output::<150>),
    ],
    kernels: &[
        cpu_kernel!("QuantizeV2", "T" in [QInt8, QUInt8, QInt16, QUInt16, QInt32] => quantize),
        cpu_kernel!("Dequantize", "T" in [QInt8, QUInt8, QInt16, QUInt16, QInt32] => dequantize),
    ],
};

fn quantize_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let axis = c.attrs().int("axis")?;
    ensure!(axis >= -1, InvalidArgument, "axis should be at least -1, got {axis}");
    let rank = usize::from(axis != -1);
    let merged = c.with_rank(1, "min_range", rank)?.merge(&c.with_rank(2, "max_range", rank)?)?;
    let mut ranges = merged;
    let input = match usize::try_from(axis) {
        Ok(axis) => c.with_rank_at_least(0, "input", axis + 1)?,
        Err(_) => c.input(0),
    };
    if let (Ok(axis), Some(dims)) = (usize::try_from(axis), input.dims()) {
        ranges = ranges.merge(&PartialShape::new([dims[axis]]))?;
    }
    c.set_output(0, input.clone());
    c.set_output(1, ranges.clone());
    c.set_output(2, ranges);
    Ok(())
}

/// Quantization mode (`mode`).
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    MinCombined,
    MinFirst,
    Scaled,
}

impl Mode {
    fn from_attrs(attrs: NodeAttrs<'_>) -> Result<Mode> {
        Ok(match attrs.string("mode")? {
            "MIN_COMBINED" => Mode::MinCombined,
            "MIN_FIRST" => Mode::MinFirst,
            _ => Mode::Scaled,
        })
    }
}

fn attr_axis(attrs: NodeAttrs<'_>) -> Result<i64> {
    let axis = attrs.int("axis")?;
    ensure!(
        (-1..=i64::from(i32::MAX)).contains(&axis),
        InvalidArgument,
        "axis should be at least -1, got {axis}"
    );
    Ok(axis)
}

/// Options from the attrs of `QuantizeV2`.
#[derive(Clone, Copy)]
struct Rules {
    mode: Mode,
    to_even: bool,
    is_narrow: bool,
    least_range: f32,
}

/// Parameters for one slice.
#[derive(Clone, Copy)]
struct Plan {
    min: f32,
    max: f32,
    scale: f32,
    /// Added after scaling.
    shift: f32,
    /// Subtracted before scaling.
    start: f32,
    rounding: Rounding,
    min_first: ToQuantized,
}

#[derive(Clone, Copy)]
enum Rounding {
    HalfAway,
    HalfEven,
    /// Half was added before: truncates.
    Cut,
    MinFirst,
}

impl Rules {
    fn plan<T: Quantized>(&self, given_min: f32, given_max: f32) -> Result<Plan> {
        ensure!(
            given_max.partial_cmp(&given_min) != Some(Ordering::Less),
            InvalidArgument,
            "input_max_range must be larger than input_min_range: {given_max} and {given_min}"
        );
        // A range that is too small would map every integer to one float.
        let min = given_min.min(0.0);
        let least = given_min.abs().max(given_max.abs()).max(1.0) * self.least_range;
        let max = given_max.max(min + least).max(0.0);
        let mut plan = Plan {
            min,
            max,
            scale: (T::steps() / f64::from(max - min)) as f32,
            shift: 0.5,
            start: min,
            rounding: Rounding::Cut,
            min_first: ToQuantized::new::<T>(min, max),
        };
        match self.mode {
            Mode::MinFirst => plan.rounding = Rounding::MinFirst,
            Mode::MinCombined if T::IS_SIGNED => {
                plan.shift = -(((T::steps() + 1.0) / 2.0) as f32);
                plan.rounding = Rounding::HalfAway;
            }
            Mode::MinCombined => {}
            Mode::Scaled => {
                let lowest = (T::LOWEST + i64::from(self.is_narrow)) as f32;
                let highest = T::HIGHEST as f32;
                let side =
                    |end: f32, range: f32| if end * range > 0.0 { end / range } else { f32::MAX };
                plan.scale = side(lowest, min).min(side(highest, max));
                (plan.min, plan.max) = (lowest / plan.scale, highest / plan.scale);
                (plan.start, plan.shift) = (0.0, 0.0);
                plan.rounding = if self.to_even { Rounding::HalfEven } else { Rounding::HalfAway };
            }
        }
        Ok(plan)
    }
}

impl Plan {
    fn convert<T: Quantized>(&self, input: &[f32], out: &mut [T]) {
        let Plan { min, max, scale, shift, start, .. } = *self;
        let scaled = |x: f32| (clamp(x, min, max) - start) * scale + shift;
        let pairs = out.iter_mut().zip(input);
        match self.rounding {
            Rounding::HalfAway => pairs.for_each(|(o, &x)| *o = T::from_float(scaled(x).round())),
            Rounding::HalfEven => {
                pairs.for_each(|(o, &x)| *o = T::from_float(scaled(x).round_ties_even()));
            }
            Rounding::Cut => pairs.for_each(|(o, &x)| *o = T::from_float(scaled(x))),
            Rounding::MinFirst => pairs.for_each(|(o, &x)| *o = self.min_first.convert(x)),
        }
    }
}

fn quantize<T: Quantized>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let rules = Rules {
        mode: Mode::from_attrs(attrs)?,
        to_even: attrs.string("round_mode")? == "HALF_TO_EVEN",
        is_narrow: attrs.bool("narrow_range")?,
        least_range: attrs.float("ensure_minimum_range")?,
    };
    ensure!(
        !rules.to_even || rules.mode == Mode::Scaled,
        InvalidArgument,
        "Round mode 'HALF_TO_EVEN' only supported for mode 'SCALED', but mode is {:?}",
        rules.mode
    );
    let axis = attr_axis(attrs)?;
    AnyKernel::new(move |ctx| {
        let shape = ctx.input(0)?.shape();
        let slices = Slices::new(shape, axis)?;
        for (i, name) in [(1, "min_range"), (2, "max_range")] {
            let given = ctx.input(i)?.shape();
            ensure!(
                given.num_elements() == slices.count && (axis < 0 || given.rank() == 1),
                InvalidArgument,
                "{name} must have an element for each slice along axis {axis}, but has shape {given}"
            );
        }
        // A single range is a scalar output, even if the input was a vector.
        let ranges: SmallVec<[usize; 1]> =
            (slices.count != 1).then_some(slices.count).into_iter().collect();
        ensure!(
            slices.count == 1 || rules.mode != Mode::MinFirst,
            Unimplemented,
            "MIN_FIRST mode is not implemented for Quantize with axis != -1."
        );
        let (min, max) = (ctx.slice::<f32>(1)?, ctx.slice::<f32>(2)?);
        let mut mins = ctx.allocate_output(1, Shape::new(&ranges)?)?;
        let mut maxes = ctx.allocate_output(2, Shape::new(&ranges)?)?;
        let ends = mins.as_mut_slice::<f32>()?.iter_mut().zip(maxes.as_mut_slice::<f32>()?);
        for ((out_min, out_max), (&min, &max)) in ends.zip(min.iter().zip(max)) {
            let plan = rules.plan::<T>(min, max)?;
            (*out_min, *out_max) = (plan.min, plan.max);
        }
        let mut out = ctx.allocate_output(0, shape.clone())?;
        let data = ctx.slice::<f32>(0)?;
        slices.for_each(ctx, out.as_mut_slice::<T>()?, |slice, start, out| {
            // The first loop has checked that all plans are valid.
            if let Ok(plan) = rules.plan::<T>(min[slice], max[slice]) {
                plan.convert(&data[start..][..out.len()], out);
            }
        })?;
        ctx.set_output(0, out)?;
        ctx.set_output(1, mins)?;
        ctx.set_output(2, maxes)
    })
}

fn dequantize<T: Quantized>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let (mode, is_narrow) = (Mode::from_attrs(attrs)?, attrs.bool("narrow_range")?);
    ensure!(
        attrs.dtype("dtype")? == DType::Float || mode == Mode::MinCombined,
        InvalidArgument,
        "When output type is bfloat16, Mode string must be 'MIN_COMBINED', is {mode:?}"
    );
    let axis = attr_axis(attrs)?;
    AnyKernel::new(move |ctx| {
        let shape = ctx.input(0)?.shape();
        let slices = Slices::new(shape, axis)?;
        for (i, name) in [(1, "input_min_tensor"), (2, "input_max_tensor")] {
            let count = ctx.input(i)?.num_elements();
            ensure!(
                count == slices.count,
                InvalidArgument,
                "{name} must have as many elements as input on the dequantization axis ({axis}), \
                 got {count}, expected {}",
                slices.count
            );
        }
        ensure!(
            slices.count == 1 || mode != Mode::MinFirst,
            Unimplemented,
            "MIN_FIRST mode is not implemented for Dequantize with axis != -1."
        );
        let (min, max) = (ctx.slice::<f32>(1)?, ctx.slice::<f32>(2)?);
        let data = ctx.slice::<T>(0)?;
        let mut out = ctx.allocate_output(0, shape.clone())?;
        let convert = |slice: usize, x: T| real::<T>(mode, is_narrow, min[slice], max[slice])(x);
        match out.dtype() {
            DType::Float => {
                slices.for_each(ctx, out.as_mut_slice::<f32>()?, |slice, start, out| {
                    let real = real::<T>(mode, is_narrow, min[slice], max[slice]);
                    out.iter_mut().zip(&data[start..]).for_each(|(out, &x)| *out = real(x));
                })?;
            }
            DType::BFloat16 => {
                let out = out.as_mut_slice::<half::bf16>()?;
                slices.for_each(ctx, out, |slice, start, out| {
                    for (out, &x) in out.iter_mut().zip(&data[start..]) {
                        *out = half::bf16::from_f32(convert(slice, x));
                    }
                })?;
            }
            other => bail!(Internal, "real numbers cannot be {other}"),
        }
        ctx.set_output(0, out)
    })
}

/// The function from integers to the real numbers that they represent.
fn real<T: Quantized>(mode: Mode, is_narrow: bool, min: f32, max: f32) -> impl Fn(T) -> f32 {
    let first = ToFloat::new::<T>(min, max);
    let steps = T::HIGHEST as f32 - T::LOWEST as f32;
    let half = if T::IS_SIGNED { (steps + 1.0) / 2.0 } else { 0.0 };
    let (scale, shift, start) = match mode {
        Mode::Scaled => {
            let lowest = (T::LOWEST + i64::from(is_narrow)) as f32;
            let top = max / T::HIGHEST as f32;
            (if T::IS_SIGNED { (min / lowest).max(top) } else { top }, 0.0, 0.0)
        }
        _ => ((max - min) / steps, half, min),
    };
    move |x: T| match mode {
        Mode::MinFirst => first.convert(x),
        _ => (x.get() as f32 + shift) * scale + start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, code, pairs};
    use thalweg_tensor::{Code, Tensor};

    #[test]
    fn shapes() {
        let infer = |axis: i64, input, range| {
            let call = call("QuantizeV2").shape(DType::Float, input).attr("axis", axis);
            let call = call.shape(DType::Float, range).shape(DType::Float, range);
            call.attr("T", DType::QInt8).infer()
        };
        assert_eq!(infer(-1, "2,3", ""), "[2,3] [] []");
        assert_eq!(infer(1, "2,3", "?"), "[2,3] [3] [3]");
        assert!(infer(1, "2,3", "2").starts_with("INVALID_ARGUMENT"));
        assert!(infer(2, "2,3", "2").starts_with("INVALID_ARGUMENT"));
        assert!(infer(-2, "2,3", "").starts_with("INVALID_ARGUMENT"));
    }

    /// Dequantizing inverts quantizing up to one step, in every mode.
    #[test]
    fn there_and_back() {
        let values: Vec<f32> = (-40..=80).map(|i| i as f32 / 20.0).collect();
        for (mode, dtype) in ["MIN_COMBINED", "MIN_FIRST", "SCALED"].into_iter().flat_map(|m| {
            [DType::QInt8, DType::QUInt8, DType::QInt16, DType::QUInt16].map(|t| (m, t))
        }) {
            let input = Tensor::vector(&values).unwrap();
            let call_with = |op, input| call(op).input(input).attr("mode", mode);
            let quantized = call_with("QuantizeV2", input).input(Tensor::scalar(-2f32));
            let quantized = quantized.input(Tensor::scalar(4f32)).attr("T", dtype);
            let [q, min, max] = quantized.run_all().unwrap().try_into().unwrap();
            let back = call_with("Dequantize", q).input(min).input(max).run().unwrap();
            let is_unsigned = matches!(dtype, DType::QUInt8 | DType::QUInt16);
            for (&got, &x) in pairs(back.as_slice::<f32>().unwrap(), &values) {
                let wanted = if mode == "SCALED" && is_unsigned { x.max(0.0) } else { x };
                assert!((got - wanted).abs() < 8.0 / 250.0, "{mode} {dtype}: {got} for {x}");
            }
        }
    }

    #[test]
    fn hostile_inputs() {
        let run = |min: Tensor, max: Tensor, axis: i64, mode: &str| {
            let input = Tensor::zeros(DType::Float, Shape::new(&[2, 3]).unwrap()).unwrap();
            let call = call("QuantizeV2").input(input).input(min).input(max).attr("mode", mode);
            call.attr("T", DType::QInt32).attr("axis", axis).run_all()
        };
        let (one, pair) = (|| Tensor::scalar(1f32), || Tensor::vector(&[1f32, 2.0]).unwrap());
        assert_eq!(
            code(run(one(), Tensor::scalar(0f32), -1, "SCALED")),
            Some(Code::InvalidArgument)
        );
        assert_eq!(code(run(pair(), pair(), -1, "SCALED")), Some(Code::InvalidArgument));
        assert_eq!(code(run(pair(), pair(), 1, "SCALED")), Some(Code::InvalidArgument));
        assert_eq!(code(run(pair(), pair(), 5, "SCALED")), Some(Code::InvalidArgument));
        assert!(run(pair(), pair(), 0, "SCALED").is_ok());
        assert_eq!(code(run(pair(), pair(), 0, "MIN_FIRST")), Some(Code::Unimplemented));
        assert!(run(Tensor::scalar(f32::NAN), one(), -1, "MIN_COMBINED").is_ok());
        assert!(run(Tensor::scalar(f32::NEG_INFINITY), one(), -1, "MIN_FIRST").is_ok());
    }
}
