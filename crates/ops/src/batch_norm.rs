//! Batch normalization: normalizes channels to mean 0 and variance 1, then scales and shifts them.

use half::{bf16, f16};
use smallvec::SmallVec;
use thalweg_graph::{Node, OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, ensure};

use crate::batch_norm_gradients;
use crate::batch_norm_lowering;
use crate::map::{narrowed, wide_view, widened};
use crate::math::fold::{Sum, SumOfSquares, loops};
use crate::math::vectorized::vectorized;
use crate::math::widen::Widen;
use crate::reduce::{Layout, fold};
use crate::split::for_each_rows;
use crate::window::Format;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        FUSED_BATCH_NORM.with_gradient(batch_norm_gradients::fused),
        FUSED_BATCH_NORM_V2.with_gradient(batch_norm_gradients::fused_v2),
        FUSED_BATCH_NORM_V3.with_gradient(batch_norm_gradients::fused_v3),
        FUSED_BATCH_NORM_GRAD.with_gradient(batch_norm_gradients::fused_grad),
        FUSED_BATCH_NORM_GRAD_V2.with_gradient(batch_norm_gradients::fused_grad),
        FUSED_BATCH_NORM_GRAD_V3.with_gradient(batch_norm_gradients::fused_grad),
    ],
    kernels: &[
        cpu_kernel!("FusedBatchNorm", "T" in [f32] => normalize),
        cpu_kernel!("FusedBatchNormV2", "T" in [f32, f16, bf16] => normalize),
        cpu_kernel!("FusedBatchNormV3", "T" in [f32, f16, bf16] => normalize),
        cpu_kernel!("FusedBatchNormGrad", "T" in [f32] => gradient),
        cpu_kernel!("FusedBatchNormGradV2", "T" in [f32, f16, bf16] => gradient),
        cpu_kernel!("FusedBatchNormGradV3", "T" in [f32, f16, bf16] => gradient),
        KernelSpec::lowering("FusedBatchNorm", batch_norm_lowering::normalize),
        KernelSpec::lowering("FusedBatchNormV2", batch_norm_lowering::normalize),
        KernelSpec::lowering("FusedBatchNormV3", batch_norm_lowering::normalize),
        KernelSpec::lowering("FusedBatchNormGrad", batch_norm_lowering::gradient),
        KernelSpec::lowering("FusedBatchNormGradV2", batch_norm_lowering::gradient),
        KernelSpec::lowering("FusedBatchNormGradV3", batch_norm_lowering::gradient),
    ],
};

const FUSED_BATCH_NORM: OpDef =
    OpDef::new("FusedBatchNorm", normalized_shapes).with_work(Work::per_output::<40>);

const FUSED_BATCH_NORM_V2: OpDef = OpDef { name: "FusedBatchNormV2", ..FUSED_BATCH_NORM };

const FUSED_BATCH_NORM_V3: OpDef = OpDef { name: "FusedBatchNormV3", ..FUSED_BATCH_NORM_V2 };

const FUSED_BATCH_NORM_GRAD: OpDef =
    OpDef::new("FusedBatchNormGrad", gradient_shapes).with_work(Work::per_output::<40>);

const FUSED_BATCH_NORM_GRAD_V2: OpDef =
    OpDef { name: "FusedBatchNormGradV2", ..FUSED_BATCH_NORM_GRAD };

const FUSED_BATCH_NORM_GRAD_V3: OpDef =
    OpDef { name: "FusedBatchNormGradV3", ..FUSED_BATCH_NORM_GRAD_V2 };

/// Number of channels that images and vectors agree on, and the shape of the images with it.
fn agreed_channels(
    c: &ShapeContext<'_>,
    images: &PartialShape,
    vectors: std::ops::Range<usize>,
) -> Result<(PartialShape, PartialShape)> {
    let format = Format::of_any_rank(c.attrs())?;
    let mut channels = PartialShape::new([format.split_partial(images).2]);
    for i in vectors {
        channels = channels.merge(&c.with_rank(i, "a vector per channel", 1)?)?;
    }
    let own = PartialShape::new(format.join(None, [None; 3], channels.dim(0)));
    Ok((images.merge(&own)?, channels))
}

fn normalized_shapes(c: &mut ShapeContext<'_>) -> Result<()> {
    let format = Format::of_any_rank(c.attrs())?;
    let x = c.with_rank(0, "x", format.rank())?;
    // With `is_training`, the moments are computed here, and their inputs are empty vectors.
    let vectors = if c.attrs().bool("is_training")? { 1..3 } else { 1..5 };
    let (y, channels) = agreed_channels(c, &x, vectors)?;
    c.set_output(0, y);
    for i in 1..5 {
        c.set_output(i, channels.clone());
    }
    Ok(())
}

fn gradient_shapes(c: &mut ShapeContext<'_>) -> Result<()> {
    let format = Format::of_any_rank(c.attrs())?;
    let x = c.with_rank(0, "y_backprop", format.rank())?.merge(c.input(1))?;
    let (x, channels) = agreed_channels(c, &x, 2..5)?;
    c.set_output(0, x);
    c.set_output(1, channels.clone());
    c.set_output(2, channels);
    for i in 3..5 {
        c.set_output(i, PartialShape::new([Some(0)]));
    }
    Ok(())
}

/// Attrs of a node.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) epsilon: f32,
    pub(crate) is_training: bool,
    /// Weight of the new moments in the exponential moving averages.
    pub(crate) factor: f32,
    pub(crate) channels_first: bool,
}

impl Settings {
    pub(crate) fn new(node: &Node) -> Result<Settings> {
        let attrs = node.attrs();
        ensure!(
            attrs.get("U").is_none() || attrs.dtype("U")? == DType::Float,
            Unimplemented,
            "{} has no CPU kernel for moments other than float",
            node.op.name
        );
        Ok(Settings {
            epsilon: attrs.float("epsilon")?,
            is_training: attrs.bool("is_training")?,
            factor: match attrs.get("exponential_avg_factor") {
                Some(_) => attrs.float("exponential_avg_factor")?,
                None => 1.0,
            },
            channels_first: Format::of_any_rank(attrs)?.channels_first,
        })
    }
}

/// How a batch of images is divided into channels.
struct Channels {
    shape: Shape,
    /// Number of channels.
    count: usize,
    /// Contiguous elements of one channel.
    run: usize,
    /// Elements of one channel in the batch.
    elements: usize,
    is_folded: SmallVec<[bool; 5]>,
}

impl Channels {
    fn new(shape: &Shape, settings: Settings) -> Result<Channels> {
        let rank = shape.rank();
        ensure!(
            rank == 4 || rank == 5,
            InvalidArgument,
            "input must be 4 or 5-dimensional, got shape {shape}"
        );
        let dim = if settings.channels_first { 1 } else { rank - 1 };
        let count = shape[dim];
        Ok(Channels {
            shape: shape.clone(),
            count,
            run: shape[dim + 1..].iter().product(),
            elements: shape
                .iter()
                .enumerate()
                .filter(|&(i, _)| i != dim)
                .map(|(_, &d)| d)
                .product(),
            is_folded: (0..rank).map(|i| i != dim).collect(),
        })
    }

    /// Input `i`, a vector with one number per channel.
    fn vector<'a>(&self, ctx: &'a KernelContext<'_>, i: usize, name: &str) -> Result<&'a [f32]> {
        let shape = ctx.input(i)?.shape();
        ensure!(
            shape.rank() == 1 && shape[0] == self.count,
            InvalidArgument,
            "{name} must have the same number of elements as the channels of x, got shape {shape} and {}",
            self.count
        );
        ctx.slice(i)
    }

    /// Sums over all dimensions but the channels.
    fn sums<F: crate::math::fold::Fold<f32>>(
        &self,
        ctx: &KernelContext<'_>,
        data: &[f32],
    ) -> Result<Tensor> {
        let layout = Layout::new(&self.shape, &self.is_folded);
        fold::<f32>(ctx, data, &layout, &loops::<f32, F>(), &Shape::new(&[self.count])?)
    }

    /// A vector with one number per channel.
    fn map(&self, ctx: &KernelContext<'_>, number: impl Fn(usize) -> f32) -> Result<Tensor> {
        let mut out = ctx.allocate(DType::Float, Shape::new(&[self.count])?)?;
        out.as_mut_slice::<f32>()?.iter_mut().enumerate().for_each(|(c, x)| *x = number(c));
        Ok(out)
    }

    /// Calls `work(part, start, channels)` on parts of `data` that begin at element `start`: rows
    /// of all channels, or runs of the one channel in the range.
    fn visit(
        &self,
        ctx: &KernelContext<'_>,
        data: &mut [f32],
        work: impl Fn(&mut [f32], usize, std::ops::Range<usize>) + Sync,
    ) -> Result<()> {
        let unit = if self.run == 1 { self.count } else { self.run };
        for_each_rows(ctx, data, unit, 0.5 * unit as f64, |first, data| {
            if self.run == 1 {
                return work(data, first * unit, 0..self.count);
            }
            for (i, data) in (first..).zip(data.chunks_exact_mut(unit)) {
                let channel = i % self.count;
                work(data, i * unit, channel..channel + 1);
            }
        })
    }

    /// `(x - mean) * factor + offset`, channel by channel.
    fn rescale(
        &self,
        ctx: &KernelContext<'_>,
        data: &mut [f32],
        source: Option<&[f32]>,
        [mean, factor, offset]: [&[f32]; 3],
    ) -> Result<()> {
        self.visit(ctx, data, |data, start, channels| {
            if let Some(source) = source {
                data.copy_from_slice(&source[start..start + data.len()]);
            }
            match channels.len() == 1 {
                true => {
                    let c = channels.start;
                    rescale_run(data, mean[c], factor[c], offset[c]);
                }
                false => rescale_rows(data, mean, factor, offset),
            }
        })
    }
}

vectorized! {
    fn rescale_rows<L>(x: &mut [f32], mean: &[f32], factor: &[f32], offset: &[f32]) {
        for row in x.chunks_exact_mut(mean.len()) {
            for (((x, &m), &f), &o) in row.iter_mut().zip(mean).zip(factor).zip(offset) {
                *x = (*x - m) * f + o;
            }
        }
    }
}

vectorized! {
    fn rescale_run<L>(x: &mut [f32], mean: f32, factor: f32, offset: f32) {
        for x in x {
            *x = (*x - mean) * factor + offset;
        }
    }
}

fn normalize<T: Widen<Wide = f32>>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let settings = Settings::new(init.node)?;
    AnyKernel::new(move |ctx| {
        let channels = Channels::new(ctx.input(0)?.shape(), settings)?;
        if settings.is_training {
            return normalize_by_batch::<T>(ctx, &channels, settings);
        }
        let scale = channels.vector(ctx, 1, "scale")?;
        channels.vector(ctx, 2, "offset")?;
        channels.vector(ctx, 3, "mean")?;
        let variance = channels.vector(ctx, 4, "variance")?;
        let factor = channels.map(ctx, |c| scale[c] / (variance[c] + settings.epsilon).sqrt())?;
        let (mut y, is_blank) = widened::<T>(ctx, 0)?;
        let source = if is_blank { Some(ctx.slice::<f32>(0)?) } else { None };
        let vectors = [ctx.slice(3)?, factor.as_slice()?, ctx.slice(2)?];
        channels.rescale(ctx, y.as_mut_slice()?, source, vectors)?;
        let (mean, variance) = (ctx.input(3)?.clone(), ctx.input(4)?.clone());
        let y = narrowed::<T>(ctx, y)?;
        set_outputs(ctx, y, [mean.clone(), variance.clone(), mean, variance])
    })
}

fn normalize_by_batch<T: Widen<Wide = f32>>(
    ctx: &mut KernelContext<'_>,
    channels: &Channels,
    settings: Settings,
) -> Result<()> {
    channels.vector(ctx, 1, "scale")?;
    channels.vector(ctx, 2, "offset")?;
    let is_running = settings.factor != 1.0;
    if is_running {
        channels.vector(ctx, 3, "mean")?;
        channels.vector(ctx, 4, "variance")?;
    }
    let (mut y, is_blank) = widened::<T>(ctx, 0)?;
    let source = if is_blank { Some(ctx.slice::<f32>(0)?) } else { None };
    let count = channels.elements as f32;
    let sums = channels.sums::<Sum>(ctx, source.map_or_else(|| y.as_slice(), Ok)?)?;
    let sums = sums.as_slice::<f32>()?;
    let mean = channels.map(ctx, |c| sums[c] / count)?;
    let (ones, zeros) = (channels.map(ctx, |_| 1.0)?, channels.map(ctx, |_| 0.0)?);
    let (one, zero) = (ones.as_slice::<f32>()?, zeros.as_slice::<f32>()?);
    channels.rescale(ctx, y.as_mut_slice()?, source, [mean.as_slice()?, one, zero])?;
    let squares = channels.sums::<SumOfSquares>(ctx, y.as_slice()?)?;
    let squares = squares.as_slice::<f32>()?;
    let variance = channels.map(ctx, |c| squares[c] / count)?;
    let spread = variance.as_slice::<f32>()?;
    let (scale, offset) = (ctx.slice::<f32>(1)?, ctx.slice::<f32>(2)?);
    let factor = channels.map(ctx, |c| scale[c] / (spread[c] + settings.epsilon).sqrt())?;
    channels.rescale(ctx, y.as_mut_slice()?, None, [zero, factor.as_slice()?, offset])?;
    // Bessel's correction: the running variance is unbiased.
    let correction = count / (count - 1.0).max(1.0);
    let mixed = |old: usize, new: f32, c: usize| -> f32 {
        if !is_running {
            return new;
        }
        let old = ctx.slice::<f32>(old).map_or(0.0, |old| old[c]);
        (1.0 - settings.factor) * old + settings.factor * new
    };
    let moments = mean.as_slice::<f32>()?;
    let batch_mean = channels.map(ctx, |c| mixed(3, moments[c], c))?;
    let batch_variance = channels.map(ctx, |c| mixed(4, spread[c] * correction, c))?;
    let y = narrowed::<T>(ctx, y)?;
    set_outputs(ctx, y, [batch_mean, batch_variance, mean.clone(), variance.clone()])
}

fn set_outputs(ctx: &mut KernelContext<'_>, y: Tensor, moments: [Tensor; 4]) -> Result<()> {
    ctx.set_output(0, y)?;
    for (i, moment) in moments.into_iter().enumerate() {
        ctx.set_output(i + 1, moment)?;
    }
    if ctx.num_outputs() > 5 {
        ctx.set_output(5, Tensor::scalar(0.0f32))?;
    }
    Ok(())
}

fn gradient<T: Widen<Wide = f32>>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let settings = Settings::new(init.node)?;
    AnyKernel::new(move |ctx| {
        let (dy, x) = (ctx.input(0)?.shape(), ctx.input(1)?.shape());
        ensure!(
            dy == x,
            InvalidArgument,
            "x and y_backprop must have same shape, got {x} and {dy}"
        );
        let channels = Channels::new(x, settings)?;
        backpropagate::<T>(ctx, &channels, settings)
    })
}

fn backpropagate<T: Widen<Wide = f32>>(
    ctx: &mut KernelContext<'_>,
    channels: &Channels,
    settings: Settings,
) -> Result<()> {
    let (wide_dy, wide_x) = (wide_view::<T>(ctx, 0)?, wide_view::<T>(ctx, 1)?);
    let (dy, x) = (wide_dy.as_slice::<f32>()?, wide_x.as_slice::<f32>()?);
    let scale = channels.vector(ctx, 2, "scale")?;
    let mean = channels.vector(ctx, 3, "reserve_space_1")?;
    let variance = channels.vector(ctx, 4, "reserve_space_2")?;
    let offset_backprop = channels.sums::<Sum>(ctx, dy)?;
    // Holds dy * (x - mean) for the sums, and is then overwritten with the gradient.
    let mut dx = ctx.allocate(DType::Float, channels.shape.clone())?;
    channels.visit(ctx, dx.as_mut_slice()?, |out, start, part| {
        let (dy, x) = (&dy[start..start + out.len()], &x[start..start + out.len()]);
        products(out, dy, x, &mean[part]);
    })?;
    let products = channels.sums::<Sum>(ctx, dx.as_slice()?)?;
    let products = products.as_slice::<f32>()?;
    let inverse = channels.map(ctx, |c| 1.0 / (variance[c] + settings.epsilon).sqrt())?;
    let inverse = inverse.as_slice::<f32>()?;
    let scale_backprop = channels.map(ctx, |c| products[c] * inverse[c])?;
    let (sums, count) = (offset_backprop.as_slice::<f32>()?, channels.elements as f32);
    let is_training = settings.is_training;
    let shift = channels.map(ctx, |c| if is_training { sums[c] / count } else { 0.0 })?;
    let slope = channels.map(ctx, |c| match is_training {
        true => products[c] / count * inverse[c] * inverse[c],
        false => 0.0,
    })?;
    let factor = channels.map(ctx, |c| scale[c] * inverse[c])?;
    let terms = [mean, shift.as_slice()?, slope.as_slice()?, factor.as_slice()?];
    channels.visit(ctx, dx.as_mut_slice()?, |out, start, part| {
        let (dy, x) = (&dy[start..start + out.len()], &x[start..start + out.len()]);
        let [mean, shift, slope, factor] = terms.map(|t| &t[part.clone()]);
        input_gradient(out, dy, x, mean, shift, slope, factor);
    })?;
    let dx = narrowed::<T>(ctx, dx)?;
    ctx.set_output(0, dx)?;
    ctx.set_output(1, scale_backprop)?;
    ctx.set_output(2, offset_backprop.clone())?;
    for i in 3..5 {
        let nothing = ctx.allocate(DType::Float, Shape::new(&[0])?)?;
        ctx.set_output(i, nothing)?;
    }
    Ok(())
}

vectorized! {
    /// `out = dy * (x - mean)`; `mean` repeats as often as it fits.
    fn products<L>(out: &mut [f32], dy: &[f32], x: &[f32], mean: &[f32]) {
        if let [mean] = *mean {
            for ((out, &dy), &x) in out.iter_mut().zip(dy).zip(x) {
                *out = dy * (x - mean);
            }
            return;
        }
        let rows = out.chunks_exact_mut(mean.len()).zip(dy.chunks_exact(mean.len()));
        for ((out, dy), x) in rows.zip(x.chunks_exact(mean.len())) {
            for (((out, &dy), &x), &mean) in out.iter_mut().zip(dy).zip(x).zip(mean) {
                *out = dy * (x - mean);
            }
        }
    }
}

vectorized! {
    /// `(dy - shift - (x - mean) * slope) * factor`; the vectors repeat as often as they fit.
    fn input_gradient<L>(out: &mut [f32], dy: &[f32], x: &[f32], mean: &[f32], shift: &[f32],
        slope: &[f32], factor: &[f32]) {
        if let ([mean], [shift], [slope], [factor]) = (mean, shift, slope, factor) {
            for ((out, &dy), &x) in out.iter_mut().zip(dy).zip(x) {
                *out = (dy - shift - (x - mean) * slope) * factor;
            }
            return;
        }
        let n = mean.len();
        let (shift, slope, factor) = (&shift[..n], &slope[..n], &factor[..n]);
        let rows = out.chunks_exact_mut(n).zip(dy.chunks_exact(n)).zip(x.chunks_exact(n));
        for ((out, dy), x) in rows {
            for c in 0..n {
                out[c] = (dy[c] - shift[c] - (x[c] - mean[c]) * slope[c]) * factor[c];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;
    use crate::testing::{Call, call};

    #[test]
    fn shapes() {
        let infer = |format: &str, x: &str, scale: &str| {
            let mut call =
                call("FusedBatchNormV3").shape(DType::Float, x).shape(DType::Float, scale);
            for _ in 0..3 {
                call = call.shape(DType::Float, "?");
            }
            call.attr("data_format", format).infer()
        };
        assert_eq!(infer("NHWC", "2,?,4,?", "3"), "[2,?,4,3] [3] [3] [3] [3] <unknown>");
        assert_eq!(infer("NCHW", "2,3,4,4", "?"), "[2,3,4,4] [3] [3] [3] [3] <unknown>");
        assert!(infer("NHWC", "2,3,4,4", "3").starts_with("INVALID_ARGUMENT"));
        assert!(infer("NHWC", "2,3,3", "3").starts_with("INVALID_ARGUMENT"));
    }

    fn vector(values: &[f32]) -> Tensor {
        Tensor::vector(values).unwrap()
    }

    fn images(dims: &[usize]) -> Tensor {
        let shape = Shape::new(dims).unwrap();
        let values: Vec<f32> = (0..shape.num_elements()).map(|i| (i * 31 % 17) as f32).collect();
        Tensor::from_slice(shape, &values).unwrap()
    }

    fn training(x: Tensor, channels: usize) -> Call {
        let call = call("FusedBatchNormV3").input(x).input(vector(&vec![1.0; channels]));
        call.input(vector(&vec![0.0; channels])).input(vector(&[])).input(vector(&[]))
    }

    #[test]
    fn channels_end_with_mean_0_and_variance_1() {
        for (dims, format) in [(&[3, 5, 4, 6][..], "NHWC"), (&[3, 6, 5, 4], "NCHW")] {
            let call =
                training(images(dims), 6).attr("data_format", format).attr("epsilon", 0.0f32);
            let y = call.run().unwrap();
            let y = y.as_slice::<f32>().unwrap();
            for c in 0..6 {
                let own = |i: &usize| if format == "NHWC" { i % 6 == c } else { i / 20 % 6 == c };
                let values: Vec<f32> = (0..y.len()).filter(own).map(|i| y[i]).collect();
                let mean = values.iter().sum::<f32>() / 60.0;
                let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / 60.0;
                assert!(mean.abs() < 1e-5 && (variance - 1.0).abs() < 1e-4, "{mean} {variance}");
            }
        }
    }

    #[test]
    fn hostile_shapes() {
        for (dims, channels) in [(&[4, 4, 3][..], 3), (&[1, 2, 2, 3], 2), (&[1, 2, 2, 3], 4)] {
            let error = training(images(dims), channels).run().unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{dims:?}");
        }
        let empty = training(images(&[0, 2, 2, 3]), 3).run_all().unwrap();
        assert!(empty[1].as_slice::<f32>().unwrap().iter().all(|x| x.is_nan()));
    }
}
