//! Requantization of 32-bit accumulators to 8 bits: `RequantizationRange`, `Requantize` and
//! `QuantizeDownAndShrinkRange`.

use thalweg_graph::{OpDef, ShapeContext, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, PartialShape, QInt8, QInt32, QUInt8, Result, Shape, Tensor, ensure};

use super::range::{ToFloat, ToQuantized, to_float_exact};
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("RequantizationRange", range_shape).with_work(Work::per_input::<2>),
        REQUANTIZE,
        QUANTIZE_DOWN_AND_SHRINK_RANGE,
    ],
    kernels: &[
        KernelSpec {
            op: "RequantizationRange",
            constraints: &[("Tinput", &[DType::QInt32])],
            create: requantization_range,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "Requantize",
            constraints: &[
                ("Tinput", &[DType::QInt32]),
                ("out_type", &[DType::QUInt8, DType::QInt8]),
            ],
            create: requantize,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "QuantizeDownAndShrinkRange",
            constraints: &[("Tinput", &[DType::QInt32]), ("out_type", &[DType::QUInt8])],
            create: quantize_down,
            ..KernelSpec::CPU
        },
    ],
};

const REQUANTIZE: OpDef =
    OpDef::new("Requantize", requantize_shape).with_work(Work::per_output::<10>);

const QUANTIZE_DOWN_AND_SHRINK_RANGE: OpDef =
    OpDef { name: "QuantizeDownAndShrinkRange", ..REQUANTIZE };

fn range_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(1, "input_min", 0)?;
    c.with_rank(2, "input_max", 0)?;
    shape::scalar(c)
}

fn requantize_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for i in 1..c.num_inputs() {
        c.with_rank(i, "a range's end", 0)?;
    }
    c.set_output(0, c.input(0).clone());
    c.set_output(1, PartialShape::scalar());
    c.set_output(2, PartialShape::scalar());
    Ok(())
}

/// The scalar in input `i`.
fn end(ctx: &KernelContext<'_>, i: usize, name: &str) -> Result<f32> {
    let tensor = ctx.input(i)?;
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "`{name}` must be rank 0 but is rank {}",
        tensor.rank()
    );
    tensor.scalar_value()
}

fn ends(ctx: &KernelContext<'_>) -> Result<(f32, f32)> {
    Ok((end(ctx, 1, "input_min")?, end(ctx, 2, "input_max")?))
}

/// The range of the values in the input, extended to contain zero.
fn used_range(ctx: &KernelContext<'_>) -> Result<(f32, f32)> {
    let (min, max) = ends(ctx)?;
    let data = ctx.slice::<QInt32>(0)?;
    // Without elements, the minimum exceeds the maximum.
    let (least, most) =
        data.iter().fold((i32::MAX, i32::MIN), |(least, most), x| (least.min(x.0), most.max(x.0)));
    let real = |x: i32| to_float_exact::<QInt32>(x.into(), min, max);
    Ok((real(least).min(0.0), real(most)))
}

fn requantization_range(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let (min, max) = used_range(ctx)?;
        ctx.set_output(0, Tensor::scalar(min))?;
        ctx.set_output(1, Tensor::scalar(max))
    })
}

/// Sets the outputs for the input requantized to another range.
fn set_outputs(ctx: &mut KernelContext<'_>, min: f32, max: f32) -> Result<()> {
    let (from_min, from_max) = ends(ctx)?;
    let shape: Shape = ctx.input(0)?.shape().clone();
    let mut out = ctx.allocate_output(0, shape)?;
    let data = ctx.slice::<QInt32>(0)?;
    if out.dtype() == DType::QUInt8 {
        let fixed = FixedPoint::new([from_min, from_max], [min, max]);
        for_each_rows(ctx, out.as_mut_slice::<QUInt8>()?, 1, 1.0, |first, out| {
            for (out, x) in out.iter_mut().zip(&data[first..]) {
                *out = QUInt8(fixed.convert(x.0));
            }
        })?;
    } else {
        let to_float = ToFloat::new::<QInt32>(from_min, from_max);
        let to_quantized = ToQuantized::new::<QInt8>(min, max);
        for_each_rows(ctx, out.as_mut_slice::<QInt8>()?, 1, 1.0, |first, out| {
            for (out, &x) in out.iter_mut().zip(&data[first..]) {
                *out = to_quantized.convert(to_float.convert(x));
            }
        })?;
    }
    ctx.set_output(0, out)?;
    ctx.set_output(1, Tensor::scalar(min))?;
    ctx.set_output(2, Tensor::scalar(max))
}

/// 32-bit to 8-bit conversion in integer arithmetic with 16 fractional bits.
struct FixedPoint {
    scale: i64,
    offset: i64,
}

impl FixedPoint {
    fn new(from: [f32; 2], to: [f32; 2]) -> FixedPoint {
        const ONE: f64 = 65536.0;
        const HALF: i64 = 1 << 15;
        let (from_range, to_range) = (from[1] - from[0], to[1] - to[0]);
        if to_range == 0.0 {
            return FixedPoint { scale: 0, offset: HALF };
        }
        let middle = (f64::from(from[0] + from[1]) / 2.0) as f32;
        let inverse = (255.0 / f64::from(to_range)) as f32;
        let scale = (255.0 * ONE * f64::from(from_range) / f64::from(to_range)) as i64;
        let input = (middle * inverse * ONE as f32) as i64;
        let output = (ONE * (f64::from(to[0]) * 255.0) / f64::from(to_range)) as i64;
        FixedPoint { scale, offset: input.wrapping_sub(output).wrapping_add(HALF) }
    }

    fn convert(&self, x: i32) -> u8 {
        let scaled = i64::from(x).wrapping_mul(self.scale) >> 32;
        (scaled.wrapping_add(self.offset) >> 16).clamp(0, 255) as u8
    }
}

fn requantize(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let min = end(ctx, 3, "requested_output_min")?;
        let max = end(ctx, 4, "requested_output_max")?;
        ensure!(min <= 0.0, InvalidArgument, "requested_output_min must be <= 0, but got {min}");
        ensure!(
            max >= min,
            InvalidArgument,
            "requested_output_max must be >= requested_output_min, but got {max} and {min}"
        );
        set_outputs(ctx, min, max)
    })
}

fn quantize_down(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let (min, max) = used_range(ctx)?;
        set_outputs(ctx, min, max)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, code};
    use thalweg_tensor::Code;

    fn input(values: &[i32]) -> Tensor {
        let values: Vec<QInt32> = values.iter().map(|&x| QInt32(x)).collect();
        Tensor::vector(&values).unwrap()
    }

    #[test]
    fn shapes() {
        let infer = |min| {
            let call = call("QuantizeDownAndShrinkRange").shape(DType::QInt32, "2,?");
            let call = call.shape(DType::Float, min).shape(DType::Float, "");
            call.attr("out_type", DType::QUInt8).infer()
        };
        assert_eq!(infer(""), "[2,?] [] []");
        assert!(infer("1").starts_with("INVALID_ARGUMENT"));
    }

    #[test]
    fn the_used_range_fills_eight_bits() {
        let call_with = |op| {
            let call = call(op).input(input(&[-(1 << 20), 0, 3 << 20]));
            call.input(Tensor::scalar(-2048f32)).input(Tensor::scalar(2048f32))
        };
        let range = call_with("RequantizationRange").run_all().unwrap();
        let [min, max] = [0, 1].map(|i: usize| range[i].scalar_value::<f32>().unwrap());
        assert!((min + 1.0).abs() < 1e-3 && (max - 3.0).abs() < 1e-3, "{min} {max}");
        let down = call_with("QuantizeDownAndShrinkRange").attr("out_type", DType::QUInt8);
        let down = down.run_all().unwrap();
        let got: Vec<u8> = down[0].as_slice::<QUInt8>().unwrap().iter().map(|x| x.0).collect();
        assert_eq!(got, [0, 64, 255]);
    }

    #[test]
    fn hostile_inputs() {
        let run = |min: f32, max: f32, dtype: DType| {
            let call = call("Requantize").input(input(&[i32::MIN, i32::MAX]));
            let call = call.input(Tensor::scalar(f32::MIN)).input(Tensor::scalar(f32::MAX));
            let call = call.input(Tensor::scalar(min)).input(Tensor::scalar(max));
            call.attr("out_type", dtype).run_all()
        };
        for dtype in [DType::QUInt8, DType::QInt8] {
            assert!(run(-1.0, 1.0, dtype).is_ok());
            assert!(run(0.0, 0.0, dtype).is_ok());
            assert_eq!(code(run(1.0, 2.0, dtype)), Some(Code::InvalidArgument));
            assert_eq!(code(run(-1.0, -2.0, dtype)), Some(Code::InvalidArgument));
            assert_eq!(code(run(f32::NAN, 1.0, dtype)), Some(Code::InvalidArgument));
        }
        let empty = call("RequantizationRange").input(input(&[])).input(Tensor::scalar(0f32));
        assert!(empty.input(Tensor::scalar(1f32)).run_all().is_ok());
    }
}
