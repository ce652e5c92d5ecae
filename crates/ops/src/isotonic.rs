//! `IsotonicRegression` by the pool adjacent violators algorithm.

use half::{bf16, f16};
use thalweg_graph::{GradientContext, OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{DType, Element, Result, ensure};

use crate::split::Disjoint;

macro_rules! kernel {
    ($dtype:ident: $t:ty => $out_dtype:ident: $out:ty) => {
        KernelSpec {
            op: "IsotonicRegression",
            constraints: &[("T", &[DType::$dtype]), ("output_dtype", &[DType::$out_dtype])],
            create: regress::<$t, $out>,
            ..KernelSpec::CPU
        }
    };
}

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("IsotonicRegression", both_unchanged)
        .with_work(Work::serial::<20>)
        .with_gradient(regression_grad)],
    kernels: &[
        kernel!(Float: f32 => Float: f32),
        kernel!(Double: f64 => Double: f64),
        kernel!(Half: f16 => Half: f16),
        kernel!(BFloat16: bf16 => BFloat16: bf16),
        kernel!(Int8: i8 => Float: f32),
        kernel!(Int16: i16 => Float: f32),
        kernel!(Int32: i32 => Double: f64),
        kernel!(Int64: i64 => Double: f64),
    ],
};

/// The mean of the gradient over each segment.
fn regression_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, segments) = (g.grad(0)?, g.output(1));
    let shape = g.shape_of(grad)?;
    let (all, axis, one) = (g.ints(&[-1])?, g.int(0)?, g.int(1)?);
    let total = g.add("Prod", &[shape, axis])?;
    // A segment begins where the segment index changes or a row begins: indices offset by the row
    // length change in both cases.
    let (end, step) = (g.ints(&[0])?, g.ints(&[1])?);
    let columns = g.op("StridedSlice").inputs(&[shape, all, end, step]).attr("end_mask", 1);
    let columns = columns.attr("shrink_axis_mask", 1).build()?;
    let flat = g.add("Reshape", &[segments, all])?;
    let places = g.add("Range", &[axis, total, one])?;
    let rows = g.add("FloorDiv", &[places, columns])?;
    let starts = g.add("Mul", &[rows, columns])?;
    let flat = g.add("AddV2", &[flat, starts])?;
    let values = g.add("Reshape", &[grad, all])?;
    let sums = g.add("UnsortedSegmentSum", &[values, flat, total])?;
    let ones = g.add("OnesLike", &[values])?;
    let counts = g.add("UnsortedSegmentSum", &[ones, flat, total])?;
    let averages = g.add("DivNoNan", &[sums, counts])?;
    let spread = g.add("GatherV2", &[averages, flat, axis])?;
    let result = g.add("Reshape", &[spread, shape])?;
    g.set(0, result)
}

fn both_unchanged(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, c.input(0).clone());
    c.set_output(1, c.input(0).clone());
    Ok(())
}

/// Input types.
trait Value: Element {
    fn as_f64(self) -> f64;
}

/// Output types, to which means are rounded.
trait Average: Element {
    fn round(value: f64) -> Self;
}

macro_rules! values {
    ($($t:ty),+) => { $(
        impl Value for $t {
            fn as_f64(self) -> f64 {
                self as f64
            }
        }
    )+ };
}

values!(f32, f64, i8, i16, i32, i64);

impl Value for f16 {
    fn as_f64(self) -> f64 {
        self.to_f64()
    }
}

impl Value for bf16 {
    fn as_f64(self) -> f64 {
        self.to_f64()
    }
}

impl Average for f32 {
    fn round(value: f64) -> Self {
        value as f32
    }
}

impl Average for f64 {
    fn round(value: f64) -> Self {
        value
    }
}

impl Average for f16 {
    fn round(value: f64) -> Self {
        f16::from_f32(value as f32)
    }
}

impl Average for bf16 {
    fn round(value: f64) -> Self {
        bf16::from_f32(value as f32)
    }
}

fn regress<T: Value, O: Average>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let shape = ctx.input(0)?.shape().clone();
        ensure!(shape.rank() >= 1, InvalidArgument, "input must have at least one dimension");
        let columns = shape[shape.rank() - 1];
        ensure!(
            columns <= i32::MAX as usize,
            InvalidArgument,
            "{columns} columns are too many for 32-bit segments"
        );
        let mut out = ctx.allocate_output(0, shape.clone())?;
        let mut segments = ctx.allocate_output(1, shape.clone())?;
        // Sums of the blocks of all rows; a row has at most as many blocks as elements.
        let mut sums = ctx.allocate(DType::Double, shape)?;
        let data = ctx.slice::<T>(0)?;
        let rows = data.len().checked_div(columns).unwrap_or(0);
        let values = Disjoint::new(out.as_mut_slice::<O>()?);
        let ends = Disjoint::new(segments.as_mut_slice::<i32>()?);
        let sums = Disjoint::new(sums.as_mut_slice::<f64>()?);
        ctx.parallel_for(rows, 10.0 * columns as f64, |range| {
            for row in range {
                let range = row * columns..(row + 1) * columns;
                // SAFETY: each row is visited once.
                let (out, ends, sums) = unsafe {
                    (values.part(range.clone()), ends.part(range.clone()), sums.part(range.clone()))
                };
                pool(&data[range], sums, ends, out);
            }
        })?;
        ctx.set_output(0, out)?;
        ctx.set_output(1, segments)
    })
}

/// Pools one row: a block whose mean exceeds that of the block before is merged with it. `sums` and
/// `ends` are scratch for the blocks.
fn pool<T: Value, O: Average>(data: &[T], sums: &mut [f64], ends: &mut [i32], out: &mut [O]) {
    let mut blocks = 0;
    let start = |ends: &[i32], block: usize| if block == 0 { 0 } else { ends[block - 1] as usize };
    for (i, &x) in data.iter().enumerate() {
        (sums[blocks], ends[blocks]) = (x.as_f64(), i as i32 + 1);
        blocks += 1;
        while blocks > 1 {
            let (middle, first) = (start(ends, blocks - 1), start(ends, blocks - 2));
            let last = sums[blocks - 1] / (i + 1 - middle) as f64;
            let before = sums[blocks - 2] / (middle - first) as f64;
            // False for NaN, which stays in a block by itself.
            if last > before {
                sums[blocks - 2] += sums[blocks - 1];
                ends[blocks - 2] = ends[blocks - 1];
                blocks -= 1;
            } else {
                break;
            }
        }
    }
    // In reverse order, so that block ends are read before segments overwrite them.
    for block in (0..blocks).rev() {
        let range = start(ends, block)..ends[block] as usize;
        out[range.clone()].fill(O::round(sums[block] / range.len() as f64));
        ends[range].fill(block as i32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, code, pairs};
    use thalweg_tensor::{Code, Shape, Tensor};

    #[test]
    fn pools_what_increases() {
        let nan = f32::NAN;
        for (values, expected, segments) in [
            (
                &[1f32, 3.0, 2.0, 5.0, 4.0, 0.0][..],
                &[3f32, 3.0, 3.0, 3.0, 3.0, 0.0][..],
                &[0, 0, 0, 0, 0, 1][..],
            ),
            (&[3.0, 3.0, 2.0, 2.0, 1.0], &[3.0, 3.0, 2.0, 2.0, 1.0], &[0, 1, 2, 3, 4]),
            (&[3.0, nan, 2.0, 2.0, 1.0], &[3.0, nan, 2.0, 2.0, 1.0], &[0, 1, 2, 3, 4]),
            (&[], &[], &[]),
        ] {
            let shape = Shape::new(&[1, values.len()]).unwrap();
            let input = Tensor::from_slice(shape, values).unwrap();
            let got = call("IsotonicRegression").input(input).run_all().unwrap();
            let same = |(a, b): (&f32, &f32)| a == b || (a.is_nan() && b.is_nan());
            assert!(pairs(got[0].as_slice::<f32>().unwrap(), expected).all(same), "{values:?}");
            assert_eq!(got[1].as_slice::<i32>().unwrap(), segments);
        }
        assert_eq!(
            code(call("IsotonicRegression").input(Tensor::scalar(1f32)).run_all()),
            Some(Code::InvalidArgument)
        );
        let ints = Tensor::from_slice(Shape::new(&[2, 2]).unwrap(), &[1i64, 2, 2, 1]).unwrap();
        let ints = call("IsotonicRegression").input(ints).attr("output_dtype", DType::Double);
        assert_eq!(ints.run().unwrap().as_slice::<f64>().unwrap(), [1.5, 1.5, 2.0, 1.0]);
    }
}
