//! Reductions over any dimensions: sums, means, products, minima, maxima, norms, `All` and `Any`.

use half::{bf16, f16};
use num_complex::Complex;
use smallvec::SmallVec;
use thalweg_graph::{OpDef, PartialValue, ShapeContext, ValueContext, Work, shape};
use thalweg_hlo::{Reduction, Value};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lower, Lowering};
use thalweg_tensor::{DType, Element, PartialShape, Result, Shape, bail, ensure};

use crate::lowering::wide_unary;
use crate::map::narrowed;
use crate::math::fold::{self, Fold, FoldLoops, Maximum, Minimum, Product, Sum, SumOfSquares};
use crate::math::widen::Widen;
use crate::reduce::{Layout, fold};
use crate::reduction_gradients::*;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        SUM,
        OpDef::new("Mean", reduced).with_work(Work::per_input::<1>).with_gradient(mean_grad),
        PROD,
        MAX,
        MIN,
        ALL,
        ANY,
        OpDef::new("EuclideanNorm", reduced)
            .with_work(Work::per_input::<2>)
            .with_gradient(euclidean_norm_grad),
        OpDef::new("L2Loss", shape::scalar)
            .with_work(Work::per_input::<2>)
            .with_gradient(l2_loss_grad),
    ],
    kernels: &[
        cpu_kernel!("Sum", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64,
            Complex<f32>, Complex<f64>] => sum; host_inputs: AXES),
        cpu_kernel!("Mean", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64,
            Complex<f32>, Complex<f64>] => mean; host_inputs: AXES),
        cpu_kernel!("Prod", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64,
            Complex<f32>, Complex<f64>] => product; host_inputs: AXES),
        cpu_kernel!("Max", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64]
            => maximum; host_inputs: AXES),
        cpu_kernel!("Min", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64]
            => minimum; host_inputs: AXES),
        cpu_kernel!("EuclideanNorm", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32,
            u64, Complex<f32>, Complex<f64>] => euclidean_norm; host_inputs: AXES),
        cpu_kernel!("L2Loss", "T" in [f32, f64, f16, bf16] => l2_loss),
        KernelSpec::lowering("L2Loss", |l| wide_unary(l, |x| x.flatten().square().sum(&[0]) * 0.5)),
        KernelSpec { op: "All", host_inputs: AXES, create: minimum::<bool>, ..KernelSpec::CPU },
        KernelSpec { op: "Any", host_inputs: AXES, create: maximum::<bool>, ..KernelSpec::CPU },
        lowered("Sum", |l| lower(l, Reduction::Sum)),
        lowered("Mean", lower_mean),
        lowered("Prod", |l| lower(l, Reduction::Product)),
        lowered("Max", |l| lower(l, Reduction::Maximum)),
        lowered("Min", |l| lower(l, Reduction::Minimum)),
        lowered("All", |l| lower(l, Reduction::And)),
        lowered("Any", |l| lower(l, Reduction::Or)),
        lowered("EuclideanNorm", lower_norm),
        KernelSpec::lowering("L2Loss", lower_l2_loss),
    ],
};

/// The lowering of a reduction: the dimensions are known when it is compiled.
const fn lowered(op: &'static str, lower: Lower) -> KernelSpec {
    KernelSpec::lowering(op, lower).with_host_inputs(AXES)
}

const AXES: &[&str] = &["reduction_indices"];

const SUM: OpDef = OpDef::new("Sum", reduced)
    .with_work(Work::per_input::<1>)
    .with_value(|c| reduced_value(c, 0, i64::checked_add))
    .with_gradient(sum_grad);

const PROD: OpDef = OpDef::new("Prod", reduced)
    .with_work(Work::per_input::<1>)
    .with_value(|c| reduced_value(c, 1, i64::checked_mul))
    .with_gradient(prod_grad);

const MAX: OpDef = OpDef::new("Max", reduced)
    .with_work(Work::per_input::<1>)
    .with_value(|c| reduced_value(c, i64::MIN, |a, b| Some(a.max(b))))
    .with_gradient(extreme_grad);

const MIN: OpDef = OpDef::new("Min", reduced)
    .with_work(Work::per_input::<1>)
    .with_value(|c| reduced_value(c, i64::MAX, |a, b| Some(a.min(b))))
    .with_gradient(extreme_grad);

const ALL: OpDef = OpDef::new("All", reduced).with_work(Work::per_input::<1>);

const ANY: OpDef = OpDef { name: "Any", ..ALL };

/// The non-negative form of `axis` for a tensor of this rank.
fn dimension(axis: i64, rank: usize) -> Result<usize> {
    let at = if axis < 0 { axis + rank as i64 } else { axis };
    match usize::try_from(at) {
        Ok(at) if at < rank => Ok(at),
        _ => bail!(
            InvalidArgument,
            "Invalid reduction dimension {axis}: the input has {rank} dimensions"
        ),
    }
}

/// Which dimensions of the input are reduced, and the output shape.
fn reduced(c: &mut ShapeContext<'_>) -> Result<()> {
    let axes = c.input(1);
    ensure!(
        axes.rank().is_none_or(|rank| rank <= 1),
        InvalidArgument,
        "reduction_indices must be a scalar or a vector, got shape {axes}"
    );
    let keep_dims = c.attrs().bool("keep_dims")?;
    let Some(dims) = c.input(0).dims() else { return Ok(()) };
    let Some(axes) = c.partial_value(1).and_then(|value| value.known()) else {
        if keep_dims {
            c.set_output(0, PartialShape::of_rank(dims.len()));
        }
        return Ok(());
    };
    let mut gone: SmallVec<[bool; 4]> = smallvec::smallvec![false; dims.len()];
    for axis in axes {
        gone[dimension(axis, dims.len())?] = true;
    }
    let left = dims.iter().zip(&gone).filter_map(|(&dim, &gone)| match gone {
        false => Some(dim),
        true => keep_dims.then_some(Some(1)),
    });
    c.set_output(0, PartialShape::new(left));
    Ok(())
}

/// The static value of a reduction of a small integer vector.
fn reduced_value(
    c: &mut ValueContext<'_>,
    start: i64,
    merge: fn(i64, i64) -> Option<i64>,
) -> Option<PartialValue> {
    let axes = c.input(1)?.known()?;
    let input = c.input(0)?;
    if input.is_scalar || axes.is_empty() {
        return axes.is_empty().then_some(input);
    }
    let mut total = Some(start);
    for element in &input.elements {
        total = total.zip(*element).and_then(|(a, b)| merge(a, b));
    }
    if c.attrs().dtype("T").ok()? == DType::Int32 {
        total = total.filter(|&x| i32::try_from(x).is_ok());
    }
    let keep_dims = c.attrs().bool("keep_dims").ok()?;
    Some(if keep_dims { PartialValue::vector([total]) } else { PartialValue::scalar(total) })
}

fn sum<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    Sum: Fold<T::Wide>,
{
    reduction::<T>(init, fold::loops::<T::Wide, Sum>(), |_, _| ())
}

fn mean<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    Sum: Fold<T::Wide>,
    T::Wide: Finish,
{
    reduction::<T>(init, fold::loops::<T::Wide, Sum>(), |sums, count| {
        sums.iter_mut().for_each(|x| *x = x.divided_by(count));
    })
}

fn product<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    Product: Fold<T::Wide>,
{
    reduction::<T>(init, fold::loops::<T::Wide, Product>(), |_, _| ())
}

fn maximum<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    Maximum: Fold<T::Wide>,
{
    reduction::<T>(init, fold::loops::<T::Wide, Maximum>(), |_, _| ())
}

fn minimum<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    Minimum: Fold<T::Wide>,
{
    reduction::<T>(init, fold::loops::<T::Wide, Minimum>(), |_, _| ())
}

fn euclidean_norm<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    SumOfSquares: Fold<T::Wide>,
    T::Wide: Finish,
{
    reduction::<T>(init, fold::loops::<T::Wide, SumOfSquares>(), |sums, _| {
        sums.iter_mut().for_each(|x| *x = x.root());
    })
}

fn l2_loss<T: Widen>(_: &KernelInit<'_>) -> Result<AnyKernel>
where
    SumOfSquares: Fold<T::Wide>,
    T::Wide: Finish,
{
    AnyKernel::new(|ctx| {
        let data = ctx.slice::<T>(0)?;
        let layout = Layout::new(&[data.len()], &[true]);
        let loops = fold::loops::<T::Wide, SumOfSquares>();
        let mut sum = fold::<T>(ctx, data, &layout, &loops, &Shape::scalar())?;
        sum.as_mut_slice::<T::Wide>()?.iter_mut().for_each(|x| *x = x.divided_by(2));
        let output = narrowed::<T>(ctx, sum)?;
        ctx.set_output(0, output)
    })
}

/// A kernel that reduces, then applies `finish` to the results with the number of elements of each.
fn reduction<T: Widen>(
    init: &KernelInit<'_>,
    loops: FoldLoops<T::Wide>,
    finish: fn(&mut [T::Wide], usize),
) -> Result<AnyKernel> {
    let keep_dims = init.attrs().bool("keep_dims")?;
    AnyKernel::new(move |ctx| {
        let target = Target::new(ctx, keep_dims)?;
        let layout = Layout::new(ctx.input(0)?.shape(), &target.is_folded);
        let mut folded = fold::<T>(ctx, ctx.slice(0)?, &layout, &loops, &target.shape)?;
        finish(folded.as_mut_slice()?, target.count);
        let output = narrowed::<T>(ctx, folded)?;
        ctx.set_output(0, output)
    })
}

/// Sets the output to `f(widened input, dimensions)`, rounded to the input's dtype.
fn lower_by(l: &mut Lowering<'_>, f: impl FnOnce(&Value, &[usize]) -> Result<Value>) -> Result<()> {
    let x = l.input(0)?;
    let dims = l.axes(1, x.rank())?;
    ensure!(
        dims.len() == l.ints(1)?.len(),
        InvalidArgument,
        "Invalid reduction arguments: axes contain a dimension twice"
    );
    let keep_dims = l.attrs().bool("keep_dims")?;
    let reduced = f(&x.widened(), &dims)?.convert(x.dtype());
    l.set(0, if keep_dims { reduced.keep_dims(x.dims(), &dims) } else { reduced })
}

fn lower(l: &mut Lowering<'_>, reduction: Reduction) -> Result<()> {
    lower_by(l, |x, dims| Ok(x.reduce(reduction, dims)))
}

fn lower_mean(l: &mut Lowering<'_>) -> Result<()> {
    lower_by(l, |x, dims| {
        let count: usize = dims.iter().map(|&d| x.dims()[d]).product();
        let sum = x.sum(dims);
        if x.dtype().is_complex() {
            let count = count.max(1) as f64;
            return Ok((sum.real() / count).complex(&(sum.imaginary() / count)));
        }
        if !x.dtype().is_integer() {
            return Ok(sum / count as f64);
        }
        Ok(match truncated(count, x.dtype()) {
            0 => sum.zeros_like(),
            count => sum.divided_by(&sum.splat_integer(sum.dtype(), &[], count)),
        })
    })
}

/// A count truncated to an integer dtype.
fn truncated(count: usize, dtype: DType) -> i128 {
    match dtype {
        DType::Int8 => (count as i8).into(),
        DType::Int16 => (count as i16).into(),
        DType::Int32 => (count as i32).into(),
        DType::Int64 => (count as i64).into(),
        DType::UInt8 => (count as u8).into(),
        DType::UInt16 => (count as u16).into(),
        DType::UInt32 => (count as u32).into(),
        _ => count as i128,
    }
}

/// The square root of the sum of squared absolute values; of integers, by way of double.
fn lower_norm(l: &mut Lowering<'_>) -> Result<()> {
    lower_by(l, |x, dims| {
        let dtype = x.dtype();
        Ok(match dtype {
            _ if dtype.is_complex() => {
                let squares = x.real().square() + x.imaginary().square();
                let norm = squares.sum(dims).sqrt();
                norm.complex(&norm.zeros_like())
            }
            _ if dtype.is_integer() => {
                x.square().sum(dims).convert(DType::Double).sqrt().convert(dtype)
            }
            _ => x.square().sum(dims).sqrt(),
        })
    })
}

fn lower_l2_loss(l: &mut Lowering<'_>) -> Result<()> {
    l.unary(|x| (x.widened().flatten().square().sum(&[0]) * 0.5).convert(x.dtype()))
}

/// Parameters of a reduction: the reduced dimensions, the output shape, and the number of elements
/// per result.
struct Target {
    is_folded: SmallVec<[bool; 4]>,
    shape: Shape,
    count: usize,
}

impl Target {
    fn new(ctx: &KernelContext<'_>, keep_dims: bool) -> Result<Target> {
        let dims = ctx.input(0)?.shape();
        let mut is_folded: SmallVec<[bool; 4]> = smallvec::smallvec![false; dims.rank()];
        for axis in ctx.ints(1, "reduction_indices")? {
            let at = dimension(axis, dims.rank())?;
            ensure!(
                !is_folded[at],
                InvalidArgument,
                "Invalid reduction arguments: axes contain dimension {at} twice"
            );
            is_folded[at] = true;
        }
        let mut left: SmallVec<[usize; 4]> = SmallVec::new();
        let mut count = 1;
        for (&dim, &folded) in dims.iter().zip(&is_folded) {
            match folded {
                false => left.push(dim),
                true => {
                    count *= dim;
                    left.extend(keep_dims.then_some(1));
                }
            }
        }
        Ok(Target { is_folded, shape: Shape::new(&left)?, count })
    }
}

/// Conversion of a sum to a mean or a norm.
trait Finish: Element {
    fn divided_by(self, count: usize) -> Self;
    fn root(self) -> Self;
}

macro_rules! finish {
    (integers $($i:ty),+; floats $($f:ty),+) => {
        $(impl Finish for $i {
            /// The count is truncated to the type first, as in TensorFlow; if that gives 0, the
            /// result is 0.
            fn divided_by(self, count: usize) -> $i {
                if count as $i == 0 { 0 } else { self.wrapping_div(count as $i) }
            }

            fn root(self) -> $i {
                (self as f64).sqrt() as $i
            }
        })+
        $(impl Finish for $f {
            fn divided_by(self, count: usize) -> $f {
                self / count as $f
            }

            fn root(self) -> $f {
                self.sqrt()
            }
        }

        impl Finish for Complex<$f> {
            /// The mean of no elements is 0.
            fn divided_by(self, count: usize) -> Complex<$f> {
                self / count.max(1) as $f
            }

            fn root(self) -> Complex<$f> {
                Complex::new(self.re.sqrt(), 0.0)
            }
        })+
    };
}

finish!(integers i8, i16, i32, i64, u8, u16, u32, u64; floats f32, f64);

#[cfg(test)]
mod tests {
    use thalweg_tensor::Tensor;

    use super::*;
    use crate::testing::call;

    #[test]
    fn shapes() {
        for (input, axes, keep_dims, expected) in [
            ("2,3,4", &[1i32][..], false, "[2,4]"),
            ("2,3,4", &[-1, 0], true, "[1,3,1]"),
            ("2,?,4", &[0], false, "[?,4]"),
            ("2,3", &[], false, "[2,3]"),
            ("unknown", &[0], true, "<unknown>"),
        ] {
            let axes = Tensor::vector(axes).unwrap();
            let call = call("Sum").shape(DType::Float, input).constant(axes);
            assert_eq!(call.attr("keep_dims", keep_dims).infer(), expected, "{input}");
        }
        let unknown_axes = |keep_dims: bool| {
            let call = call("Max").shape(DType::Float, "2,3").shape(DType::Int32, "?");
            call.attr("keep_dims", keep_dims).infer()
        };
        assert_eq!(unknown_axes(true), "[?,?]");
        assert_eq!(unknown_axes(false), "<unknown>");
        let bad = call("Sum").shape(DType::Float, "2").constant(Tensor::scalar(1i32)).infer();
        assert!(bad.starts_with("INVALID_ARGUMENT"), "{bad}");
    }

    /// Compares every set of axes of small shapes with a sum element by element.
    #[test]
    fn any_axes() {
        for dims in [&[3, 4, 5][..], &[2, 1, 3, 2], &[40, 3], &[3, 70], &[7, 5, 3, 2], &[0, 3]] {
            let shape = Shape::new(dims).unwrap();
            let values: Vec<i64> = (0..shape.num_elements() as i64).map(|i| i * i - 40).collect();
            let input = Tensor::from_slice(shape.clone(), &values).unwrap();
            for mask in 0..1usize << dims.len() {
                let axes: Vec<i64> =
                    (0..dims.len() as i64).filter(|a| mask >> a & 1 == 1).collect();
                let kept: Vec<usize> =
                    (0..dims.len()).filter(|&a| mask >> a & 1 == 0).map(|a| dims[a]).collect();
                let mut expected = vec![0i64; kept.iter().product()];
                for (i, value) in values.iter().enumerate() {
                    let (mut rest, mut at, mut stride) = (i, 0, 1);
                    for a in (0..dims.len()).rev() {
                        if mask >> a & 1 == 0 {
                            at += rest % dims[a] * stride;
                            stride *= dims[a];
                        }
                        rest /= dims[a];
                    }
                    expected[at] += value;
                }
                let call = call("Sum").input(input.clone());
                let got = call.input(Tensor::vector(&axes).unwrap()).run().unwrap();
                assert_eq!(got.shape().dims(), kept, "{dims:?} over {axes:?}");
                assert_eq!(got.as_slice::<i64>().unwrap(), expected, "{dims:?} over {axes:?}");
            }
        }
    }

    fn random_floats(n: usize) -> Vec<f32> {
        let mut state = 7u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state as f32 / u32::MAX as f32
        };
        (0..n).map(|_| next()).collect()
    }

    #[test]
    fn large_sums_are_exact_enough_and_do_not_depend_on_threads() {
        for dims in [&[300_000][..], &[700, 600], &[3, 1000, 129], &[200_003, 3], &[64, 7, 999]] {
            let shape = Shape::new(dims).unwrap();
            let values = random_floats(shape.num_elements());
            let exact: f64 = values.iter().map(|&x| f64::from(x)).sum();
            let input = Tensor::from_slice(shape, &values).unwrap();
            for axes in [&[0i32][..], &[-1], &[0, -1]] {
                let axes = if dims.len() == 1 { &[0] } else { axes };
                let sum = || call("Sum").input(input.clone()).input(Tensor::vector(axes).unwrap());
                let got = sum().run().unwrap();
                let again = sum().backwards().run().unwrap();
                assert_eq!(got.as_slice::<f32>().unwrap(), again.as_slice::<f32>().unwrap());
                let total: f64 = got.as_slice::<f32>().unwrap().iter().map(|&x| f64::from(x)).sum();
                assert!((total / exact - 1.0).abs() < 1e-6, "{dims:?} over {axes:?}");
            }
        }
    }

    #[test]
    fn special_values() {
        let run = |op, values: &[f32]| {
            let call = call(op).input(Tensor::vector(values).unwrap());
            call.input(Tensor::scalar(0i32)).run().unwrap().scalar_value::<f32>().unwrap()
        };
        let mut long = vec![1.0; 1000];
        long[700] = f32::NAN;
        for values in [&long[..], &[1.0, f32::NAN, 2.0]] {
            assert!(run("Max", values).is_nan() && run("Min", values).is_nan());
        }
        assert_eq!(run("Max", &[]), f32::NEG_INFINITY);
        assert_eq!(run("Min", &[]), f32::INFINITY);
        assert_eq!((run("Sum", &[]), run("Prod", &[])), (0.0, 1.0));
        assert!(run("Mean", &[]).is_nan());
    }

    #[test]
    fn hostile_axes() {
        for axes in [&[0i32, 0][..], &[0, -2], &[2], &[-3], &[i32::MIN], &[i32::MAX]] {
            let input = Tensor::zeros(DType::Float, Shape::new(&[2, 3]).unwrap()).unwrap();
            let call = call("Sum").input(input).input(Tensor::vector(axes).unwrap());
            assert_eq!(call.run().unwrap_err().code(), thalweg_tensor::Code::InvalidArgument);
        }
    }
}
