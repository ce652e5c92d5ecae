//! Gradients of max pooling, and max pooling with argmax.

use half::{bf16, f16};
use thalweg_graph::{GradientContext, OpDef, ShapeContext, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, Element, Result, Shape, Tensor, bail, ensure};

use crate::argmax::improve;
use crate::indices::Indices;
use crate::map::{narrowed, wide_view};
use crate::math::fold::{Fold, MaximumNumber, Sum};
use crate::math::widen::Widen;
use crate::pool::{Images, Pooling, Source, inferred};
use crate::pool_lowering;
use crate::split::for_each_rows;
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        MAX_POOL_GRAD.with_gradient(gradient_of_max_pool_grad),
        MAX_POOL_GRAD_V2.with_gradient(gradient_of_max_pool_grad_v2),
        MAX_POOL_GRAD_GRAD.with_gradient(gradient_of_max_pool_grad_grad),
        MAX_POOL_GRAD_GRAD_V2,
        MAX_POOL_3D_GRAD.with_gradient(gradient_of_max_pool_3d_grad),
        MAX_POOL_3D_GRAD_GRAD.with_gradient(gradient_of_max_pool_3d_grad_grad),
        MAX_POOL_WITH_ARGMAX.with_gradient(gradient_of_max_pool_with_argmax),
        MAX_POOL_GRAD_WITH_ARGMAX,
        MAX_POOL_GRAD_GRAD_WITH_ARGMAX,
    ],
    kernels: &[
        cpu_kernel!("MaxPoolGrad", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32,
            u64] => max_pool_grad),
        cpu_kernel!("MaxPoolGradV2", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32,
            u64] => max_pool_grad; host_inputs: &["ksize", "strides"]),
        cpu_kernel!("MaxPoolGradGrad", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16,
            u32, u64] => max_pool_grad_grad),
        cpu_kernel!("MaxPoolGradGradV2", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16,
            u32, u64] => max_pool_grad_grad; host_inputs: &["ksize", "strides"]),
        cpu_kernel!("MaxPool3DGrad", "T" in [f32, f16, bf16] => max_pool_3d_grad),
        cpu_kernel!("MaxPool3DGradGrad", "T" in [f32, f16, bf16] => max_pool_grad_grad),
        cpu_kernel!("MaxPoolWithArgmax", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16,
            u32, u64] => max_pool_with_argmax),
        cpu_kernel!("MaxPoolGradWithArgmax", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8,
            u16, u32, u64] => max_pool_grad_with_argmax),
        cpu_kernel!("MaxPoolGradGradWithArgmax", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64,
            u8, u16, u32, u64] => max_pool_grad_grad_with_argmax),
        KernelSpec::lowering("MaxPoolGrad", pool_lowering::max_pool_grad),
        KernelSpec::lowering("MaxPoolGradV2", pool_lowering::max_pool_grad)
            .with_host_inputs(&["ksize", "strides"]),
        KernelSpec::lowering("MaxPoolGradGrad", pool_lowering::max_pool_grad_grad),
        KernelSpec::lowering("MaxPoolGradGradV2", pool_lowering::max_pool_grad_grad)
            .with_host_inputs(&["ksize", "strides"]),
        KernelSpec::lowering("MaxPool3DGrad", pool_lowering::max_pool_3d_grad),
        KernelSpec::lowering("MaxPool3DGradGrad", pool_lowering::max_pool_grad_grad),
        KernelSpec::lowering("MaxPoolWithArgmax", pool_lowering::max_pool_with_argmax),
        KernelSpec::lowering("MaxPoolGradWithArgmax", pool_lowering::max_pool_grad_with_argmax),
        KernelSpec::lowering(
            "MaxPoolGradGradWithArgmax",
            pool_lowering::max_pool_grad_grad_with_argmax,
        ),
    ],
};

const MAX_POOL_GRAD: OpDef =
    OpDef::new("MaxPoolGrad", shape::unchanged).with_work(work::pool_grad::<100>);

const MAX_POOL_GRAD_V2: OpDef = OpDef { name: "MaxPoolGradV2", ..MAX_POOL_GRAD };

const MAX_POOL_GRAD_GRAD: OpDef = OpDef {
    name: "MaxPoolGradGrad",
    shape: as_second,
    work: work::pool_grad::<300>,
    ..MAX_POOL_GRAD
};

const MAX_POOL_GRAD_GRAD_V2: OpDef =
    OpDef { name: "MaxPoolGradGradV2", shape: as_second, ..MAX_POOL_GRAD_V2 };

const MAX_POOL_3D_GRAD: OpDef = OpDef { name: "MaxPool3DGrad", ..MAX_POOL_GRAD };

const MAX_POOL_3D_GRAD_GRAD: OpDef = OpDef { name: "MaxPool3DGradGrad", ..MAX_POOL_GRAD_GRAD };

const MAX_POOL_WITH_ARGMAX: OpDef =
    OpDef::new("MaxPoolWithArgmax", pooled_twice).with_work(work::pool::<100>);

const MAX_POOL_GRAD_WITH_ARGMAX: OpDef =
    OpDef::new("MaxPoolGradWithArgmax", shape::unchanged).with_work(Work::moves);

const MAX_POOL_GRAD_GRAD_WITH_ARGMAX: OpDef =
    OpDef { name: "MaxPoolGradGradWithArgmax", shape: pooled_once, ..MAX_POOL_GRAD_WITH_ARGMAX };

fn as_second(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, c.input(1).clone());
    Ok(())
}

fn pooled_once(c: &mut ShapeContext<'_>) -> Result<()> {
    let pooled = inferred(c, 2)?;
    c.set_output(0, pooled);
    Ok(())
}

fn pooled_twice(c: &mut ShapeContext<'_>) -> Result<()> {
    let pooled = inferred(c, 2)?;
    c.set_output(0, pooled.clone());
    c.set_output(1, pooled);
    Ok(())
}

/// Channels that one thread processes together; every window sets up memory for so many.
const TILE: usize = 64;

/// Maximum of every window and channel, and its first position.
struct Largest<'a, A> {
    images: &'a Images,
    data: &'a [A],
}

impl<A: Element> Largest<'_, A>
where
    MaximumNumber: Fold<A>,
{
    /// Calls `take(first_channel, values, pixels)` for the channels of one window.
    fn visit(&self, image: usize, window: usize, mut take: impl FnMut(usize, &[A], &[i64])) {
        let (grid, channels) = (self.images.grid, self.images.channels);
        for first in (0..channels).step_by(TILE) {
            let width = TILE.min(channels - first);
            let (mut best, mut at) = ([MaximumNumber::START; TILE], [-1; TILE]);
            let (best, at) = (&mut best[..width], &mut at[..width]);
            let mut is_first = true;
            grid.visit_rows(window, |_, pixel, count| {
                for pixel in pixel..pixel + count {
                    if std::mem::take(&mut is_first) {
                        at.fill(pixel as i64);
                    }
                    let start = (image * grid.input_pixels() + pixel) * channels + first;
                    let x = &self.data[start..start + width];
                    improve::<A, MaximumNumber>(best, at, x, pixel as i64);
                }
            });
            take(first, best, at);
        }
    }
}

/// Inputs of a gradient op, checked.
fn checked_gradient(
    ctx: &KernelContext<'_>,
    pooling: &Pooling,
    grad_is_pooled: bool,
) -> Result<Images> {
    ensure!(
        pooling.channel_window == 1,
        Unimplemented,
        "the gradient of depthwise max pooling has no CPU kernel"
    );
    let input = ctx.input(0)?.shape();
    let images = pooling.images(input)?;
    let pooled = pooling.output_shape(&images)?;
    for (i, name, expected) in
        [(1, "orig_output", &pooled), (2, "grad", if grad_is_pooled { &pooled } else { input })]
    {
        let got = ctx.input(i)?.shape();
        ensure!(
            got == expected,
            InvalidArgument,
            "Expected {name} to have shape {expected}, but got {got}"
        );
    }
    Ok(images)
}

fn max_pool_grad<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    MaximumNumber: Fold<T::Wide>,
    Sum: Fold<T::Wide>,
{
    let source = Source::new(init, 3)?;
    AnyKernel::new(move |ctx| {
        let pooling = source.pooling(ctx)?;
        let images = checked_gradient(ctx, &pooling, true)?;
        let format = pooling.sliding.format;
        let input = format.to_channels_last(ctx, wide_view::<T>(ctx, 0)?)?;
        let grad = format.to_channels_last(ctx, wide_view::<T>(ctx, 2)?)?;
        let grad = grad.as_slice::<T::Wide>()?;
        let largest = Largest { images: &images, data: input.as_slice::<T::Wide>()? };
        let (grid, channels) = (images.grid, images.channels);
        let out = per_image::<T::Wide>(ctx, &images, &input, |image, out| {
            for window in 0..grid.output_pixels() {
                let start = (image * grid.output_pixels() + window) * channels;
                largest.visit(image, window, |first, _, pixels| {
                    let grad = &grad[start + first..];
                    for (c, (&pixel, &g)) in pixels.iter().zip(grad).enumerate() {
                        // A window outside the image has no maximum.
                        if let Ok(pixel) = usize::try_from(pixel) {
                            let out = &mut out[pixel * channels + first + c];
                            *out = Sum::merge(*out, g);
                        }
                    }
                });
            }
        })?;
        let out = format.restore(ctx, narrowed::<T>(ctx, out)?)?;
        ctx.set_output(0, out)
    })
}

/// A tensor of the input's shape, zero-initialized and filled by `work(image, part)`.
fn per_image<A: Element>(
    ctx: &KernelContext<'_>,
    images: &Images,
    input: &Tensor,
    work: impl Fn(usize, &mut [A]) + Sync,
) -> Result<Tensor> {
    let mut out = ctx.zeros(A::DTYPE, input.shape().clone())?;
    let image_len = images.grid.input_pixels() * images.channels;
    let cells = images.grid.output_pixels() as f64 * images.grid.cells() as f64;
    let nanoseconds = 1.0 * cells * images.channels as f64;
    for_each_rows(ctx, out.as_mut_slice::<A>()?, image_len, nanoseconds, |first, out| {
        for (image, out) in (first..).zip(out.chunks_exact_mut(image_len)) {
            work(image, out);
        }
    })?;
    Ok(out)
}

/// All pixels equal to the window's maximum get its gradient.
fn max_pool_3d_grad<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    Sum: Fold<T::Wide>,
{
    ensure!(
        init.attrs().dtype("TInput")? == T::DTYPE,
        Unimplemented,
        "MaxPool3DGrad takes input and gradient of one type"
    );
    let source = Source::new(init, 3)?;
    AnyKernel::new(move |ctx| {
        let pooling = source.pooling(ctx)?;
        let images = checked_gradient(ctx, &pooling, true)?;
        let format = pooling.sliding.format;
        let input = format.to_channels_last(ctx, wide_view::<T>(ctx, 0)?)?;
        let output = format.to_channels_last(ctx, wide_view::<T>(ctx, 1)?)?;
        let grad = format.to_channels_last(ctx, wide_view::<T>(ctx, 2)?)?;
        let data = input.as_slice::<T::Wide>()?;
        let (largest, grad) = (output.as_slice::<T::Wide>()?, grad.as_slice::<T::Wide>()?);
        let (grid, channels) = (images.grid, images.channels);
        let out = per_image::<T::Wide>(ctx, &images, &input, |image, out| {
            let data = &data[image * out.len()..][..out.len()];
            for window in 0..grid.output_pixels() {
                let start = (image * grid.output_pixels() + window) * channels;
                let (largest, grad) = (&largest[start..], &grad[start..]);
                grid.visit_rows(window, |_, pixel, count| {
                    for i in pixel * channels..(pixel + count) * channels {
                        let c = i % channels;
                        if data[i] == largest[c] {
                            out[i] = Sum::merge(out[i], grad[c]);
                        }
                    }
                });
            }
        })?;
        let out = format.restore(ctx, narrowed::<T>(ctx, out)?)?;
        ctx.set_output(0, out)
    })
}

/// For each window, the gradient at the first pixel equal to the window's maximum.
fn max_pool_grad_grad<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let source = Source::new(init, 3)?;
    AnyKernel::new(move |ctx| {
        let pooling = source.pooling(ctx)?;
        let images = checked_gradient(ctx, &pooling, false)?;
        let format = pooling.sliding.format;
        let input = format.to_channels_last(ctx, ctx.input(0)?.clone())?;
        let largest = format.to_channels_last(ctx, ctx.input(1)?.clone())?;
        let grad = format.to_channels_last(ctx, ctx.input(2)?.clone())?;
        let (data, grad) = (input.as_slice::<T>()?, grad.as_slice::<T>()?);
        let largest_values = largest.as_slice::<T>()?;
        let (grid, channels) = (images.grid, images.channels);
        let mut out = ctx.zeros(T::DTYPE, largest.shape().clone())?;
        let nanoseconds = 1.0 * grid.cells() as f64 * channels as f64;
        for_each_rows(ctx, out.as_mut_slice::<T>()?, channels, nanoseconds, |first, out| {
            for (i, out) in (first..).zip(out.chunks_exact_mut(channels)) {
                let image = i / grid.output_pixels();
                for (c, out) in out.iter_mut().enumerate() {
                    let (wanted, mut is_found) = (largest_values[i * channels + c], false);
                    grid.visit_rows(i % grid.output_pixels(), |_, pixel, count| {
                        for pixel in pixel..pixel + count {
                            let at = (image * grid.input_pixels() + pixel) * channels + c;
                            if !is_found && data[at] == wanted {
                                (*out, is_found) = (grad[at], true);
                            }
                        }
                    });
                }
            }
        })?;
        let out = format.restore(ctx, out)?;
        ctx.set_output(0, out)
    })
}

fn max_pool_with_argmax<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    MaximumNumber: Fold<T::Wide>,
{
    let source = Source::new(init, 1)?;
    let includes_batch = init.attrs().bool("include_batch_in_index")?;
    AnyKernel::new(move |ctx| {
        let pooling = source.pooling(ctx)?;
        ensure!(
            pooling.channel_window == 1,
            Unimplemented,
            "MaxPoolWithArgmax does not pool the depth dimension"
        );
        let images = pooling.images(ctx.input(0)?.shape())?;
        let input = wide_view::<T>(ctx, 0)?;
        let largest = Largest { images: &images, data: input.as_slice::<T::Wide>()? };
        let (grid, channels) = (images.grid, images.channels);
        let shape = pooling.output_shape(&images)?;
        let mut values = ctx.allocate(T::Wide::DTYPE, shape.clone())?;
        let mut positions = ctx.allocate(DType::Int64, shape)?;
        let positions_out = crate::split::Disjoint::new(positions.as_mut_slice::<i64>()?);
        let nanoseconds = 1.0 * grid.cells() as f64 * channels as f64;
        for_each_rows(
            ctx,
            values.as_mut_slice::<T::Wide>()?,
            channels,
            nanoseconds,
            |first, out| {
                for (i, out) in (first..).zip(out.chunks_exact_mut(channels)) {
                    let image = i / grid.output_pixels();
                    let batch_start = if includes_batch { image * grid.input_pixels() } else { 0 };
                    // SAFETY: every window has its own channels in both outputs.
                    let positions = unsafe { positions_out.part(i * channels..(i + 1) * channels) };
                    largest.visit(image, i % grid.output_pixels(), |first, best, at| {
                        out[first..first + best.len()].copy_from_slice(best);
                        for (c, &pixel) in (first..).zip(at) {
                            positions[c] =
                                (pixel + batch_start as i64) * channels as i64 + c as i64;
                        }
                    });
                }
            },
        )?;
        let positions = as_indices(ctx, positions)?;
        ctx.set_output(1, positions)?;
        let values = narrowed::<T>(ctx, values)?;
        ctx.set_output(0, values)
    })
}

/// The positions in the dtype of the second output.
fn as_indices(ctx: &KernelContext<'_>, positions: Tensor) -> Result<Tensor> {
    if ctx.output_dtype(1)? == DType::Int64 {
        return Ok(positions);
    }
    let mut out = ctx.allocate(DType::Int32, positions.shape().clone())?;
    let to = out.as_mut_slice::<i32>()?.iter_mut();
    to.zip(positions.as_slice::<i64>()?).for_each(|(to, &x)| *to = x as i32);
    Ok(out)
}

/// Positions that `argmax` contains.
struct Positions<'a> {
    indices: Indices<'a>,
    /// Elements of an image, if indices count from the start of each image.
    image_len: Option<usize>,
    pooled_len: usize,
    total: usize,
}

impl<'a> Positions<'a> {
    /// Checks the input shapes of a gradient op with `argmax`; input `pooled` has the pooled shape.
    fn new(
        ctx: &'a KernelContext<'_>,
        pooling: &Pooling,
        includes_batch: bool,
        grad_is_pooled: bool,
    ) -> Result<Positions<'a>> {
        let input = ctx.input(0)?.shape();
        let images = pooling.images(input)?;
        let pooled = pooling.output_shape(&images)?;
        for (i, name, expected) in
            [(1, "grad", if grad_is_pooled { &pooled } else { input }), (2, "argmax", &pooled)]
        {
            let got = ctx.input(i)?.shape();
            ensure!(
                got == expected,
                InvalidArgument,
                "Expected {name} shape to be {expected}, but got {got}"
            );
        }
        Ok(Positions {
            indices: Indices::of(ctx.input(2)?)?,
            image_len: (!includes_batch).then_some(input.num_elements() / images.batch.max(1)),
            pooled_len: pooled.num_elements() / images.batch.max(1),
            total: input.num_elements(),
        })
    }

    fn at(&self, i: usize) -> Result<usize> {
        let start = self.image_len.map_or(0, |len| i / self.pooled_len * len);
        match self.indices.below(i, self.image_len.unwrap_or(self.total)) {
            Some(index) => Ok(start + index),
            None => bail!(
                InvalidArgument,
                "argmax[{i}] is {}, outside the {} elements that it may point to",
                self.indices.at(i),
                self.image_len.unwrap_or(self.total)
            ),
        }
    }
}

fn max_pool_grad_with_argmax<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    Sum: Fold<T::Wide>,
{
    let source = Source::new(init, 3)?;
    let includes_batch = init.attrs().bool("include_batch_in_index")?;
    AnyKernel::new(move |ctx| {
        let pooling = source.pooling(ctx)?;
        let grad = wide_view::<T>(ctx, 1)?;
        let mut out = ctx.zeros(T::Wide::DTYPE, ctx.input(0)?.shape().clone())?;
        let positions = Positions::new(ctx, &pooling, includes_batch, true)?;
        let sums = out.as_mut_slice::<T::Wide>()?;
        for (i, &g) in grad.as_slice::<T::Wide>()?.iter().enumerate() {
            let at = positions.at(i)?;
            sums[at] = Sum::merge(sums[at], g);
        }
        let out = narrowed::<T>(ctx, out)?;
        ctx.set_output(0, out)
    })
}

fn max_pool_grad_grad_with_argmax<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let source = Source::new(init, 3)?;
    let includes_batch = init.attrs().bool("include_batch_in_index")?;
    AnyKernel::new(move |ctx| {
        let pooling = source.pooling(ctx)?;
        let positions = Positions::new(ctx, &pooling, includes_batch, false)?;
        let grad = ctx.slice::<T>(1)?;
        let shape: Shape = ctx.input(2)?.shape().clone();
        let mut out = ctx.allocate(T::DTYPE, shape)?;
        for (i, out) in out.as_mut_slice::<T>()?.iter_mut().enumerate() {
            *out = grad[positions.at(i)?];
        }
        ctx.set_output(0, out)
    })
}

/// The positions of the maxima are piecewise constant, so only the incoming adjoint gets a
/// gradient.
fn through_maxima(g: &mut GradientContext<'_>, op: &str, attrs: &[&str]) -> Result<()> {
    let (grad, mut inputs) = (g.grad(0)?, g.inputs().to_vec());
    inputs[2] = grad;
    let adjoint = g.op_like(op, attrs).inputs(&inputs).build()?;
    g.set(2, adjoint)?;
    for (i, &input) in inputs[..2].iter().enumerate() {
        let zeros = g.add("ZerosLike", &[input])?;
        g.set(i, zeros)?;
    }
    Ok(())
}

/// Names of the attrs of a window.
const WINDOW: &[&str] = &["ksize", "strides", "padding", "data_format"];

fn gradient_of_max_pool_grad(g: &mut GradientContext<'_>) -> Result<()> {
    through_maxima(g, "MaxPoolGradGrad", WINDOW)
}

fn gradient_of_max_pool_grad_v2(g: &mut GradientContext<'_>) -> Result<()> {
    through_maxima(g, "MaxPoolGradGradV2", &["padding", "data_format"])
}

fn gradient_of_max_pool_grad_grad(g: &mut GradientContext<'_>) -> Result<()> {
    through_maxima(g, "MaxPoolGrad", WINDOW)
}

fn gradient_of_max_pool_3d_grad(g: &mut GradientContext<'_>) -> Result<()> {
    through_maxima(g, "MaxPool3DGradGrad", WINDOW)
}

fn gradient_of_max_pool_3d_grad_grad(g: &mut GradientContext<'_>) -> Result<()> {
    through_maxima(g, "MaxPool3DGrad", WINDOW)
}

fn gradient_of_max_pool_with_argmax(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, argmax) = (g.grad(0)?, g.input(0), g.output(1));
    let attrs = &["ksize", "strides", "padding", "include_batch_in_index"];
    let adjoint = g.op_like("MaxPoolGradWithArgmax", attrs).inputs(&[x, grad, argmax]).build()?;
    g.set(0, adjoint)
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;
    use crate::testing::{Call, call};

    fn images(dims: &[usize], values: &[f32]) -> Tensor {
        Tensor::from_slice(Shape::new(dims).unwrap(), values).unwrap()
    }

    fn windows(call: Call) -> Call {
        let sizes = &[1i64, 2, 2, 1][..];
        call.attr("ksize", sizes).attr("strides", sizes).attr("padding", "VALID")
    }

    #[test]
    fn the_first_of_equals_gets_the_gradient() {
        let call = call("MaxPoolGrad").input(images(&[1, 2, 2, 1], &[1.0; 4]));
        let call = call.input(images(&[1, 1, 1, 1], &[1.0])).input(images(&[1, 1, 1, 1], &[5.0]));
        let got = windows(call).run().unwrap();
        assert_eq!(got.as_slice::<f32>().unwrap(), [5.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn positions_count_within_the_image_or_the_batch() {
        let values: Vec<f32> = (0..16u8).map(f32::from).collect();
        for (includes_batch, expected) in [(false, [6, 7, 6, 7]), (true, [6, 7, 14, 15])] {
            let call = call("MaxPoolWithArgmax").input(images(&[2, 2, 2, 2], &values));
            let got = windows(call).attr("include_batch_in_index", includes_batch).run_all();
            assert_eq!(got.unwrap()[1].as_slice::<i64>().unwrap(), expected);
        }
    }

    #[test]
    fn hostile_positions() {
        for bad in [8i64, -1, i64::MAX, i64::MIN] {
            let argmax = Shape::new(&[1, 1, 1, 2]).unwrap();
            let argmax = Tensor::from_slice(argmax, &[0i64, bad]).unwrap();
            let call = call("MaxPoolGradWithArgmax").input(images(&[1, 2, 2, 2], &[0.0; 8]));
            let call = call.input(images(&[1, 1, 1, 2], &[1.0; 2])).input(argmax);
            assert_eq!(windows(call).run().unwrap_err().code(), Code::InvalidArgument);
        }
        let call = call("MaxPoolGrad").input(images(&[1, 2, 2, 1], &[1.0; 4]));
        let call =
            call.input(images(&[1, 1, 2, 1], &[1.0; 2])).input(images(&[1, 1, 1, 1], &[5.0]));
        assert_eq!(windows(call).run().unwrap_err().code(), Code::InvalidArgument);
    }
}
