//! `HistogramFixedWidth`: a histogram with bins of equal width.

use thalweg_graph::{OpDef, ShapeContext, Work};
use thalweg_hlo::Value;
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{DType, Element, PartialShape, Result, Shape, Tensor, bail, ensure};

use crate::rows_lowering::scattered;

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("HistogramFixedWidth", bins_shape).with_work(Work::per_input::<300>)],
    kernels: &[
        cpu_kernel!("HistogramFixedWidth", "T" in [f32, f64, i32, i64] => histogram;
            host_inputs: &["value_range", "nbins"]),
        KernelSpec::lowering("HistogramFixedWidth", lower_histogram)
            .with_host_inputs(&["value_range", "nbins"]),
    ],
};

fn bins_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let range = c.with_rank(1, "value_range", 1)?;
    PartialShape::new([Some(2)]).merge(&range)?;
    c.with_rank(2, "nbins", 0)?;
    let bins = c.partial_value(2).and_then(|value| *value.elements.first()?);
    let bins = bins.map(checked_bins).transpose()?;
    c.set_output(0, PartialShape::new([bins]));
    Ok(())
}

fn checked_bins(bins: i64) -> Result<usize> {
    match usize::try_from(bins) {
        Ok(bins) if bins > 0 => Ok(bins),
        _ => bail!(InvalidArgument, "nbins should be a positive number, but got '{bins}'"),
    }
}

/// Element types of histograms.
trait Binned: Element + PartialOrd + std::fmt::Display {
    fn as_f64(self) -> f64;
}

macro_rules! binned {
    ($($t:ty),+) => { $(
        impl Binned for $t {
            fn as_f64(self) -> f64 {
                self as f64
            }
        }
    )+ };
}

binned!(f32, f64, i32, i64);

/// The bins.
struct Bins {
    start: f64,
    width: f64,
    last: f64,
}

impl Bins {
    fn new<T: Binned>(range: &Tensor, count: usize) -> Result<Bins> {
        let range = range.as_slice::<T>()?;
        ensure!(
            range.len() == 2 && range[0] < range[1],
            InvalidArgument,
            "value_range should satisfy value_range[0] < value_range[1], but got {range:?}"
        );
        let (start, end) = (range[0].as_f64(), range[1].as_f64());
        Ok(Bins { start, width: (end - start) / count as f64, last: (count - 1) as f64 })
    }

    /// The bin of a value that is not NaN; values out of range are in the first or last bin.
    fn find(&self, x: f64) -> usize {
        ((x.max(self.start) - self.start) / self.width).min(self.last) as usize
    }
}

fn histogram<T: Binned>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let range = ctx.input(1)?;
        ensure!(range.rank() == 1, InvalidArgument, "value_range should be a vector.");
        ensure!(
            range.num_elements() == 2,
            InvalidArgument,
            "value_range should be a vector of 2 elements."
        );
        ensure!(ctx.input(2)?.rank() == 0, InvalidArgument, "nbins should be a scalar.");
        let count = checked_bins(ctx.scalar_int(2, "nbins")?)?;
        let bins = Bins::new::<T>(range, count)?;
        let mut out = ctx.zeros(ctx.output_dtype(0)?, Shape::new(&[count])?)?;
        let values = ctx.slice::<T>(0)?;
        // A single bin counts all values, including NaN.
        let is_counted = |x: f64| count == 1 || !x.is_nan();
        if out.dtype() == DType::Int64 {
            let out = out.as_mut_slice::<i64>()?;
            tally(ctx, values, &bins, is_counted, |bin| out[bin] += 1)?;
        } else {
            let out = out.as_mut_slice::<i32>()?;
            tally(ctx, values, &bins, is_counted, |bin| out[bin] = out[bin].wrapping_add(1))?;
        }
        ctx.set_output(0, out)
    })
}

fn lower_histogram(l: &mut Lowering<'_>) -> Result<()> {
    let (x, range) = (l.input(0)?, l.host(1)?);
    let count = checked_bins(l.int(2)?)?;
    let bins = match x.dtype() {
        DType::Float => Bins::new::<f32>(range, count)?,
        DType::Double => Bins::new::<f64>(range, count)?,
        DType::Int32 => Bins::new::<i32>(range, count)?,
        _ => Bins::new::<i64>(range, count)?,
    };
    let x = x.flatten().convert(DType::Double);
    let position = (x.maximum(&x.scalar_like(bins.start)) - bins.start) / bins.width;
    let bin = position.minimum(&x.scalar_like(bins.last)).convert(DType::Int64).expand(1);
    let one = x.splat(l.output_dtype(0), x.dims(), 1.0);
    let none = x.splat(l.output_dtype(0), &[count], 0.0);
    l.set(0, scattered(&none, &bin, &one, Value::plus)?)
}

/// Values between two checks for cancellation.
const BLOCK: usize = 1 << 16;

fn tally<T: Binned>(
    ctx: &KernelContext<'_>,
    values: &[T],
    bins: &Bins,
    is_counted: impl Fn(f64) -> bool,
    mut count: impl FnMut(usize),
) -> Result<()> {
    for block in values.chunks(BLOCK) {
        ctx.check_cancelled()?;
        for x in block {
            let x = x.as_f64();
            ensure!(is_counted(x), InvalidArgument, "Histogram values must not contain NaN");
            count(bins.find(x));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, code};
    use thalweg_tensor::{Code, Tensor};

    #[test]
    fn counts() {
        let values = Tensor::vector(&[-1f32, 0.0, 1.5, 2.0, 5.0, 15.0]).unwrap();
        let call_with = |values: Tensor, range: Tensor, bins: i32| {
            call("HistogramFixedWidth").input(values).input(range).input(Tensor::scalar(bins))
        };
        let range = Tensor::vector(&[0f32, 5.0]).unwrap();
        let got = call_with(values, range.clone(), 5).run().unwrap();
        assert_eq!(got.as_slice::<i32>().unwrap(), [2, 1, 1, 0, 2]);
        let values = Tensor::vector(&[1i32]).unwrap();
        let whole = Tensor::vector(&[i32::MIN, i32::MAX]).unwrap();
        let got = call_with(values, whole, 5).attr("dtype", DType::Int64).run().unwrap();
        assert_eq!(got.as_slice::<i64>().unwrap(), [0, 0, 1, 0, 0]);
        let wide = Tensor::vector(&[0f32, f32::INFINITY]).unwrap();
        let values = Tensor::vector(&[f32::INFINITY, 1.0]).unwrap();
        assert!(call_with(values, wide, 5).run().is_ok());
        for (value, range, bins) in [
            (f32::NAN, [0f32, 5.0], 5),
            (1.0, [5.0, 5.0], 5),
            (1.0, [f32::NAN, 5.0], 5),
            (1.0, [0.0, 5.0], 0),
            (1.0, [0.0, 5.0], i32::MIN),
            (1.0, [0.0, 5.0], i32::MAX),
        ] {
            let (value, range) =
                (Tensor::vector(&[value]).unwrap(), Tensor::vector(&range).unwrap());
            let wanted = match bins {
                i32::MAX => Code::ResourceExhausted,
                _ => Code::InvalidArgument,
            };
            assert_eq!(code(call_with(value, range, bins).run()), Some(wanted), "{bins}");
        }
    }

    #[test]
    fn shapes() {
        let infer = |bins| {
            let call = call("HistogramFixedWidth").shape(DType::Float, "3,4");
            call.shape(DType::Float, "2").constant(Tensor::scalar(bins)).infer()
        };
        assert_eq!(infer(7), "[7]");
        assert!(infer(0).starts_with("INVALID_ARGUMENT"));
    }
}
