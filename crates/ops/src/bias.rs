//! `BiasAdd` (adds a vector to every row or to every channel of an image) and its gradient.

use half::{bf16, f16};
use num_complex::Complex;
use smallvec::SmallVec;
use thalweg_graph::{GradientContext, NodeAttrs, OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{Element, PartialShape, Result, Shape, ensure};

use crate::gradients::Arithmetic;
use crate::lowering::{set_narrow, wide};
use crate::map::narrowed;
use crate::math::fold::{Fold, Sum, loops};
use crate::math::vectorized::vectorized;
use crate::math::widen::Widen;
use crate::reduce::{Layout, fold};
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        BIAS_ADD,
        BIAS_ADD_V1,
        OpDef::new("BiasAddGrad", channels_only)
            .with_work(Work::per_input::<1>)
            .with_gradient(bias_add_grad_grad),
    ],
    kernels: &[
        cpu_kernel!("BiasAdd", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64,
            Complex<f32>, Complex<f64>] => bias_add),
        cpu_kernel!("BiasAddV1", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64,
            Complex<f32>, Complex<f64>] => bias_add),
        cpu_kernel!("BiasAddGrad", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32,
            u64, Complex<f32>, Complex<f64>] => bias_add_grad),
        KernelSpec::lowering("BiasAdd", lower_bias_add),
        KernelSpec::lowering("BiasAddV1", lower_bias_add),
        KernelSpec::lowering("BiasAddGrad", lower_bias_add_grad),
    ],
};

const BIAS_ADD: OpDef = OpDef::new("BiasAdd", with_bias).with_gradient(bias_add_op_grad);

const BIAS_ADD_V1: OpDef = OpDef { name: "BiasAddV1", ..BIAS_ADD };

fn bias_add_op_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let grad = g.grad(0)?;
    let of_bias = g.op_like("BiasAddGrad", &["data_format"]).input(grad).build()?;
    g.set(0, grad)?;
    g.set(1, of_bias)
}

/// Broadcasts the adjoint of the sums over the summed dimensions.
fn bias_add_grad_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (mut grad, input) = (g.grad(0)?, g.input(0));
    let shape = g.shape_of(input)?;
    if is_nchw(g.attrs())? {
        // NCHW: the channels come before the spatial dimensions.
        let (rank, two) = (g.add("Size", &[shape])?, g.int(2)?);
        let (image_rank, axis, one) = (g.minus(rank, two)?, g.int(0)?, g.int(1)?);
        let image_rank = g.add("ExpandDims", &[image_rank, axis])?;
        let ones = g.add("Fill", &[image_rank, one])?;
        let channels = g.shape_of(grad)?;
        let column = g.op("ConcatV2").inputs(&[channels, ones]).input(axis).build()?;
        grad = g.add("Reshape", &[grad, column])?;
    }
    let adjoint = g.add("BroadcastTo", &[grad, shape])?;
    g.set(0, adjoint)
}

fn is_nchw(attrs: NodeAttrs<'_>) -> Result<bool> {
    Ok(attrs.get("data_format").is_some() && attrs.string("data_format")? == "NCHW")
}

/// The channel dimension; the rank is at least 2.
fn channel_dim(rank: usize, is_nchw: bool) -> usize {
    if is_nchw { 1 } else { rank - 1 }
}

fn with_bias(c: &mut ShapeContext<'_>) -> Result<()> {
    let is_nchw = is_nchw(c.attrs())?;
    let value = c.with_rank_at_least(0, "value", if is_nchw { 3 } else { 2 })?;
    let bias = c.with_rank(1, "bias", 1)?;
    let Some(dims) = value.dims() else { return Ok(()) };
    let mut expected = PartialShape::of_rank(dims.len()).dims().unwrap_or(&[]).to_vec();
    expected[channel_dim(dims.len(), is_nchw)] = bias.dim(0);
    c.set_output(0, value.merge(&PartialShape::new(expected))?);
    Ok(())
}

fn channels_only(c: &mut ShapeContext<'_>) -> Result<()> {
    let is_nchw = is_nchw(c.attrs())?;
    let value = c.with_rank_at_least(0, "out_backprop", if is_nchw { 3 } else { 2 })?;
    let channels = value.rank().and_then(|rank| value.dim(channel_dim(rank, is_nchw)));
    c.set_output(0, PartialShape::new([channels]));
    Ok(())
}

fn lower_bias_add(l: &mut Lowering<'_>) -> Result<()> {
    let (x, bias) = (l.input(0)?, l.input(1)?);
    ensure!(x.rank() >= 2, InvalidArgument, "Input tensor must be at least 2D: {:?}", x.dims());
    ensure!(bias.rank() == 1, InvalidArgument, "Biases must be 1D: {:?}", bias.dims());
    let channel_dim = channel_dim(x.rank(), is_nchw(l.attrs())?);
    ensure!(
        bias.dims()[0] == x.dims()[channel_dim],
        InvalidArgument,
        "Must provide as many biases as dimension {channel_dim} of the input tensor has: {:?} vs. {:?}",
        bias.dims(),
        x.dims()
    );
    let sum = wide(&x) + wide(&bias).broadcast_in(x.dims(), &[channel_dim]);
    set_narrow(l, 0, &sum)
}

fn lower_bias_add_grad(l: &mut Lowering<'_>) -> Result<()> {
    let x = l.input(0)?;
    ensure!(x.rank() >= 2, InvalidArgument, "Input tensor must be at least 2D: {:?}", x.dims());
    let channel_dim = channel_dim(x.rank(), is_nchw(l.attrs())?);
    let others: Vec<usize> = (0..x.rank()).filter(|&i| i != channel_dim).collect();
    set_narrow(l, 0, &wide(&x).sum(&others))
}

fn bias_add<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    Sum: Fold<T::Wide>,
{
    let is_nchw = is_nchw(init.attrs())?;
    AnyKernel::new(move |ctx| add_bias::<T>(ctx, is_nchw))
}

fn add_bias<T: Widen>(ctx: &mut KernelContext<'_>, is_nchw: bool) -> Result<()>
where
    Sum: Fold<T::Wide>,
{
    let (shape, bias) = (ctx.input(0)?.shape().clone(), ctx.input(1)?);
    ensure!(shape.rank() >= 2, InvalidArgument, "Input tensor must be at least 2D: {shape}");
    ensure!(bias.rank() == 1, InvalidArgument, "Biases must be 1D: {}", bias.shape());
    let channel_dim = channel_dim(shape.rank(), is_nchw);
    let (channels, inner) = (shape[channel_dim], shape[channel_dim + 1..].iter().product());
    ensure!(
        bias.num_elements() == channels,
        InvalidArgument,
        "Must provide as many biases as dimension {channel_dim} of the input tensor has: {} vs. {shape}",
        bias.shape()
    );
    let mut wide_bias = ctx.allocate(T::Wide::DTYPE, bias.shape().clone())?;
    T::widen(bias.as_slice()?, wide_bias.as_mut_slice()?);
    let bias = wide_bias.as_slice::<T::Wide>()?;
    let (mut out, taken) = ctx.forward_input_or_allocate(&[0], T::DTYPE, &shape)?;
    let source = if taken.is_some() { None } else { Some(ctx.slice::<T>(0)?) };
    let blocks = Blocks { source };
    let unit = if inner == 1 { channels } else { inner };
    for_each_rows(ctx, out.as_mut_slice::<T>()?, unit, 0.3 * unit as f64, |first, out| {
        if inner == 1 && channels <= BLOCK {
            let rows = BLOCK / channels * channels;
            return blocks.visit(first * unit, out, rows, |_, x| {
                add_rows::<T::Wide, Sum>(x, bias);
            });
        }
        for (i, out) in (first..).zip(out.chunks_mut(unit)) {
            blocks.visit(i * unit, out, BLOCK, |start, x| {
                if inner == 1 {
                    add_rows::<T::Wide, Sum>(x, &bias[start..start + x.len()]);
                } else {
                    add_one::<T::Wide, Sum>(x, bias[i % channels]);
                }
            });
        }
    })?;
    ctx.set_output(0, out)
}

/// The input, or nothing if the output was forwarded from it.
struct Blocks<'a, T> {
    source: Option<&'a [T]>,
}

impl<T: Widen> Blocks<'_, T> {
    /// Calls `work` on blocks of `out`, which begins at element `first` of the input, with the
    /// block's range in `out`.
    fn visit(
        &self,
        first: usize,
        out: &mut [T],
        block: usize,
        work: impl Fn(usize, &mut [T::Wide]),
    ) {
        for (i, out) in out.chunks_mut(block).enumerate() {
            if let Some(source) = self.source {
                out.copy_from_slice(&source[first + i * block..][..out.len()]);
            }
            T::with_wide_mut(out, |x| work(i * block, x));
        }
    }
}

/// Elements per block.
const BLOCK: usize = 2048;

vectorized! {
    fn add_rows<L>[A: Copy, F: Fold<A>](out: &mut [A], bias: &[A]) {
        for row in out.chunks_exact_mut(bias.len()) {
            for (x, &b) in row.iter_mut().zip(bias) {
                *x = F::merge(*x, b);
            }
        }
    }
}

vectorized! {
    fn add_one<L>[A: Copy, F: Fold<A>](out: &mut [A], b: A) {
        for x in out {
            *x = F::merge(*x, b);
        }
    }
}

fn bias_add_grad<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    Sum: Fold<T::Wide>,
{
    let is_nchw = is_nchw(init.attrs())?;
    AnyKernel::new(move |ctx| {
        let shape = ctx.input(0)?.shape();
        ensure!(shape.rank() >= 2, InvalidArgument, "Input tensor must be at least 2D: {shape}");
        let channel_dim = channel_dim(shape.rank(), is_nchw);
        let is_folded: SmallVec<[bool; 4]> = (0..shape.rank()).map(|i| i != channel_dim).collect();
        let layout = Layout::new(shape, &is_folded);
        let channels = Shape::new(&[shape[channel_dim]])?;
        let add = loops::<T::Wide, Sum>();
        let sums = fold::<T>(ctx, ctx.slice(0)?, &layout, &add, &channels)?;
        let output = narrowed::<T>(ctx, sums)?;
        ctx.set_output(0, output)
    })
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, DType, Tensor};

    use super::*;
    use crate::testing::call;

    #[test]
    fn shapes() {
        let infer = |format: &str, value, bias| {
            let call = call("BiasAdd").shape(DType::Float, value).shape(DType::Float, bias);
            call.attr("data_format", format).infer()
        };
        assert_eq!(infer("NHWC", "2,?", "3"), "[2,3]");
        assert_eq!(infer("NCHW", "2,?,4", "3"), "[2,3,4]");
        assert_eq!(infer("NHWC", "unknown", "3"), "<unknown>");
        assert!(infer("NHWC", "2,4", "3").starts_with("INVALID_ARGUMENT"));
        assert!(infer("NHWC", "3", "3").starts_with("INVALID_ARGUMENT"));
        let grad = |value| call("BiasAddGrad").shape(DType::Float, value).infer();
        assert_eq!(grad("2,?,5"), "[5]");
        assert_eq!(grad("unknown"), "[?]");
    }

    /// Compares with the sum element by element, for fewer and more channels than a block has
    /// elements.
    #[test]
    fn every_layout() {
        for (dims, format) in [
            (&[5, 3][..], "NHWC"),
            (&[2, 3, 4], "NCHW"),
            (&[3, 5000], "NHWC"),
            (&[2, 3, 2500], "NCHW"),
            (&[2, 0, 3], "NHWC"),
            (&[2, 0], "NHWC"),
        ] {
            let shape = Shape::new(dims).unwrap();
            let values: Vec<i32> = (0..shape.num_elements() as i32).collect();
            let channels = dims[channel_dim(dims.len(), format == "NCHW")];
            let inner = if format == "NCHW" { dims[2..].iter().product() } else { 1 };
            let bias: Vec<i32> = (0..channels as i32).map(|c| c * 1000).collect();
            let expected: Vec<i32> =
                values.iter().enumerate().map(|(i, x)| x + bias[i / inner % channels]).collect();
            let value = Tensor::from_slice(shape, &values).unwrap();
            for held in [None, Some(value.clone())] {
                let call = call("BiasAdd").attr("data_format", format);
                let value =
                    if held.is_some() { value.clone() } else { value.deep_copy(None).unwrap() };
                let got = call.input(value).input(Tensor::vector(&bias).unwrap()).run().unwrap();
                assert_eq!(got.as_slice::<i32>().unwrap(), expected, "{dims:?}");
            }
        }
    }

    #[test]
    fn hostile_shapes() {
        for (value, bias) in [(&[3][..], &[3][..]), (&[2, 3], &[2]), (&[2, 3], &[3, 1])] {
            let zeros = |d| Tensor::zeros(DType::Float, Shape::new(d).unwrap()).unwrap();
            let error = call("BiasAdd").input(zeros(value)).input(zeros(bias)).run().unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument);
        }
    }
}
