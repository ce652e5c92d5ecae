//! `Cumsum`, `Cumprod` and `CumulativeLogsumexp`.

use half::{bf16, f16};
use num_complex::Complex;
use thalweg_graph::{GradientContext, OpDef, Output, ShapeContext, Work};
use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{DType, Result, bail, ensure};

use crate::gradients::Arithmetic;
use crate::lowering::{set_narrow, wide};
use crate::map::{narrowed, widened};
use crate::math::fold::{Fold, Product, Sum};
use crate::math::vectorized::vectorized;
use crate::math::widen::Widen;
use crate::split::Disjoint;

pub(crate) static FAMILY: Family = Family {
    ops: &[CUMSUM, CUMPROD, CUMULATIVE_LOGSUMEXP],
    kernels: &[
        cpu_kernel!("Cumsum", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64,
            Complex<f32>, Complex<f64>] => cumsum; host_inputs: &["axis"]),
        cpu_kernel!("Cumprod", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64,
            Complex<f32>, Complex<f64>] => cumprod; host_inputs: &["axis"]),
        cpu_kernel!("CumulativeLogsumexp", "T" in [f32, f64, f16, bf16] => cumulative_logsumexp;
            host_inputs: &["axis"]),
        KernelSpec::lowering("Cumsum", |l| lower_scan(l, 0.0, Value::plus))
            .with_host_inputs(&["axis"]),
        KernelSpec::lowering("Cumprod", |l| lower_scan(l, 1.0, Value::times))
            .with_host_inputs(&["axis"]),
        KernelSpec::lowering("CumulativeLogsumexp", |l| {
            lower_scan(l, f64::NEG_INFINITY, log_sum_exp)
        })
        .with_host_inputs(&["axis"]),
    ],
};

const CUMSUM: OpDef =
    OpDef::new("Cumsum", as_input).with_work(Work::per_output::<60>).with_gradient(cumsum_grad);

const CUMPROD: OpDef = OpDef { name: "Cumprod", ..CUMSUM }.with_gradient(cumprod_grad);

const CUMULATIVE_LOGSUMEXP: OpDef =
    OpDef { name: "CumulativeLogsumexp", work: Work::per_output::<2000>, ..CUMSUM }
        .with_gradient(cumulative_logsumexp_grad);

/// `op` along the same dimension, with `reverse` inverted.
fn backwards(g: &mut GradientContext<'_>, op: &str, x: Output) -> Result<Output> {
    let (axis, reverse) = (g.input(1), g.attrs().bool("reverse")?);
    g.op_like(op, &["exclusive"]).inputs(&[x, axis]).attr("reverse", !reverse).build()
}

fn cumsum_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let grad = g.grad(0)?;
    let adjoint = backwards(g, "Cumsum", grad)?;
    g.set(0, adjoint)
}

/// The adjoint is the reversed `Cumsum` of `y * grad`, divided by `x`. As in TensorFlow, a factor
/// of zero gets an adjoint of zero.
fn cumprod_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, y) = (g.grad(0)?, g.input(0), g.output(0));
    let product = g.times(y, grad)?;
    let sum = backwards(g, "Cumsum", product)?;
    let adjoint = g.add("DivNoNan", &[sum, x])?;
    g.set(0, adjoint)
}

/// Σ grad e^(x - y) over the results that contain `x`, computed in logarithms to avoid overflow:
/// once for the positive adjoints and once for the negative ones.
fn cumulative_logsumexp_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let grad = g.grad(0)?;
    let negative = g.negated(grad)?;
    let (gain, loss) = (positive_part(g, grad)?, positive_part(g, negative)?);
    let adjoint = g.minus(gain, loss)?;
    g.set(0, adjoint)
}

fn positive_part(g: &mut GradientContext<'_>, grad: Output) -> Result<Output> {
    let (x, y) = (g.input(0), g.output(0));
    let zero = g.number_like(grad, 0.0)?;
    let lowest = g.number_like(grad, lowest(g.dtype(grad)))?;
    let is_positive = g.add("Greater", &[grad, zero])?;
    let logarithm = g.add("Log", &[grad])?;
    let logarithm = g.select(is_positive, logarithm, lowest)?;
    let ratio = g.minus(logarithm, y)?;
    let sum = backwards(g, "CumulativeLogsumexp", ratio)?;
    let exponent = g.plus(sum, x)?;
    g.add("Exp", &[exponent])
}

/// The lowest finite number of a dtype.
fn lowest(dtype: DType) -> f64 {
    match dtype {
        DType::Half => f16::MIN.to_f64(),
        DType::BFloat16 => bf16::MIN.to_f64(),
        DType::Float => f32::MIN.into(),
        _ => f64::MIN,
    }
}

fn as_input(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, c.input(0).clone());
    Ok(())
}

/// `ln(e^a + e^b)`.
struct LogSumExp;

macro_rules! log_sum_exp {
    ($($t:ty),+) => { $(
        impl Fold<$t> for LogSumExp {
            const START: $t = <$t>::NEG_INFINITY;

            fn merge(a: $t, b: $t) -> $t {
                let (high, low) = if a > b { (a, b) } else { (b, a) };
                // The difference of two infinities would be NaN.
                if high == <$t>::NEG_INFINITY { high } else { high + (low - high).exp().ln_1p() }
            }
        }
    )+ };
}

log_sum_exp!(f32, f64);

/// `ln(e^a + e^b)`.
fn log_sum_exp(a: &Value, b: &Value) -> Value {
    let high = a.maximum(b);
    let sum = &high + (a.minimum(b) - &high).exp().log_plus_one();
    // The difference of two infinities would be NaN.
    high.compare(Comparison::Equal, &high.lowest_like()).select(&high, &sum)
}

fn lower_scan(l: &mut Lowering<'_>, start: f64, merge: fn(&Value, &Value) -> Value) -> Result<()> {
    let mut x = wide(&l.input(0)?);
    ensure!(l.host(1)?.rank() == 0, InvalidArgument, "ScanOp: axis must be a scalar");
    let axis = checked_axis(l.int(1)?, x.rank())?;
    let (exclusive, reverse) = (l.attrs().bool("exclusive")?, l.attrs().bool("reverse")?);
    if exclusive && x.dims()[axis] > 0 {
        x = shifted(&x, axis, reverse, 1, start);
    }
    set_narrow(l, 0, &scanned(&x, axis, reverse, start, merge))
}

/// A scan in as many steps as the length has binary digits: after step `n`, an element contains the
/// 2^n elements that end with it.
pub(crate) fn scanned(
    x: &Value,
    axis: usize,
    reverse: bool,
    start: f64,
    merge: fn(&Value, &Value) -> Value,
) -> Value {
    let mut x = x.clone();
    let mut by = 1;
    while by < x.dims()[axis] {
        x = merge(&shifted(&x, axis, reverse, by, start), &x);
        by *= 2;
    }
    x
}

/// The elements moved by a number of places along an axis, with `start` in the places that are free.
fn shifted(x: &Value, axis: usize, reverse: bool, by: usize, start: f64) -> Value {
    let zeros = vec![0i64; x.rank()];
    let (mut low, mut high) = (zeros.clone(), zeros.clone());
    (low[axis], high[axis]) = (by as i64, -(by as i64));
    if reverse {
        std::mem::swap(&mut low, &mut high);
    }
    x.pad(&x.scalar_like(start), &low, &high, &zeros)
}

fn cumsum<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    Sum: Fold<T::Wide>,
{
    scan::<T, Sum>(init)
}

fn cumprod<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    Product: Fold<T::Wide>,
{
    scan::<T, Product>(init)
}

fn cumulative_logsumexp<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    LogSumExp: Fold<T::Wide>,
{
    scan::<T, LogSumExp>(init)
}

fn scan<T: Widen, F: Fold<T::Wide>>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let exclusive = init.attrs().bool("exclusive")?;
    let reverse = init.attrs().bool("reverse")?;
    AnyKernel::new(move |ctx| scan_along::<T, F>(ctx, exclusive, reverse))
}

/// Columns that one thread scans at a time.
const TILE: usize = 256;

fn scan_along<T: Widen, F: Fold<T::Wide>>(
    ctx: &mut KernelContext<'_>,
    exclusive: bool,
    reverse: bool,
) -> Result<()> {
    let shape = ctx.input(0)?.shape();
    let axis = checked_axis(ctx.scalar_int(1, "ScanOp: axis")?, shape.rank())?;
    let (count, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    let (mut wide, is_blank) = widened::<T>(ctx, 0)?;
    let source = if is_blank { Some(ctx.slice::<T::Wide>(0)?) } else { None };
    let total = wide.num_elements();
    let (outer, tiles) = (total.checked_div(count * inner).unwrap_or(0), inner.div_ceil(TILE));
    let out = Disjoint::new(wide.as_mut_slice::<T::Wide>()?);
    let nanoseconds = 1.0 * count as f64 * inner.min(TILE) as f64;
    ctx.parallel_for(outer * tiles, nanoseconds, |items| {
        for item in items {
            let (block, tile) = (item / tiles, item % tiles);
            if inner == 1 {
                let range = block * count..(block + 1) * count;
                // SAFETY: each item is a block of its own.
                let out = unsafe { out.part(range.clone()) };
                if let Some(source) = source {
                    out.copy_from_slice(&source[range]);
                }
                match reverse {
                    true => scan_run::<T::Wide, F>(out.iter_mut().rev(), exclusive),
                    false => scan_run::<T::Wide, F>(out.iter_mut(), exclusive),
                }
                continue;
            }
            let width = TILE.min(inner - tile * TILE);
            let mut totals = [F::START; TILE];
            let totals = &mut totals[..width];
            for i in 0..count {
                let i = if reverse { count - 1 - i } else { i };
                let start = (block * count + i) * inner + tile * TILE;
                // SAFETY: each item has its own block and range of columns.
                let out = unsafe { out.part(start..start + width) };
                if let Some(source) = source {
                    out.copy_from_slice(&source[start..start + width]);
                }
                match exclusive {
                    true => take_in_after::<T::Wide, F>(out, totals),
                    false => take_in::<T::Wide, F>(out, totals),
                }
            }
        }
    })?;
    let output = narrowed::<T>(ctx, wide)?;
    ctx.set_output(0, output)
}

/// Scans contiguous elements.
fn scan_run<'a, A: Copy + 'a, F: Fold<A>>(run: impl Iterator<Item = &'a mut A>, exclusive: bool) {
    let mut total = F::START;
    for x in run {
        let before = total;
        total = F::merge(total, *x);
        *x = if exclusive { before } else { total };
    }
}

fn checked_axis(axis: i64, rank: usize) -> Result<usize> {
    let at = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
    match usize::try_from(at) {
        Ok(at) if at < rank => Ok(at),
        _ => bail!(
            InvalidArgument,
            "ScanOp: Expected scan axis in the range [-{rank}, {rank}), but got {axis}"
        ),
    }
}

vectorized! {
    fn take_in<L>[A: Copy, F: Fold<A>](row: &mut [A], totals: &mut [A]) {
        for (x, total) in row.iter_mut().zip(totals) {
            *total = F::merge(*total, *x);
            *x = *total;
        }
    }
}

vectorized! {
    fn take_in_after<L>[A: Copy, F: Fold<A>](row: &mut [A], totals: &mut [A]) {
        for (x, total) in row.iter_mut().zip(totals) {
            let before = *total;
            *total = F::merge(*total, *x);
            *x = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, DType, Shape, Tensor};

    use crate::testing::call;

    #[test]
    fn directions() {
        let run = |exclusive: bool, reverse: bool| {
            let call = call("Cumsum").attr("exclusive", exclusive).attr("reverse", reverse);
            let x = Tensor::vector(&[1i32, 2, 3]).unwrap();
            let got = call.input(x).input(Tensor::scalar(0i32)).run().unwrap();
            got.as_slice::<i32>().unwrap().to_vec()
        };
        assert_eq!(run(false, false), [1, 3, 6]);
        assert_eq!(run(true, false), [0, 1, 3]);
        assert_eq!(run(false, true), [6, 5, 3]);
        assert_eq!(run(true, true), [5, 3, 0]);
    }

    #[test]
    fn columns_do_not_mix() {
        let (rows, columns) = (7, 600);
        let x: Vec<i64> = (0..rows * columns).map(|i| i as i64 % columns as i64).collect();
        let shape = Shape::new(&[rows, columns]).unwrap();
        let input = Tensor::from_slice(shape, &x).unwrap();
        let got = call("Cumsum").input(input).input(Tensor::scalar(-2i32)).run().unwrap();
        for (i, &sum) in got.as_slice::<i64>().unwrap().iter().enumerate() {
            assert_eq!(sum, (i / columns + 1) as i64 * (i % columns) as i64);
        }
    }

    #[test]
    fn logarithms_of_sums() {
        const LOWEST: f32 = f32::NEG_INFINITY;
        let x = Tensor::vector(&[LOWEST, LOWEST, 1.0f32, 2.0]).unwrap();
        let got = call("CumulativeLogsumexp").input(x).input(Tensor::scalar(0i32)).run().unwrap();
        let got = got.as_slice::<f32>().unwrap();
        assert_eq!(got[..3], [LOWEST, LOWEST, 1.0]);
        assert!((got[3] - 2.313_261_7).abs() < 1e-6);
    }

    #[test]
    fn hostile_axes() {
        for (dims, axis) in [(&[2][..], 1i64), (&[2], -2), (&[], 0), (&[], -1), (&[2], i64::MIN)] {
            let x = Tensor::zeros(DType::Float, Shape::new(dims).unwrap()).unwrap();
            let error = call("Cumsum").input(x).input(Tensor::scalar(axis)).run().unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument);
        }
    }
}
