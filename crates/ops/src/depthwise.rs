//! Depthwise convolutions.

use half::{bf16, f16};
use thalweg_graph::{OpDef, ShapeContext};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Element, PartialShape, Result, Shape, Tensor, ensure};

use crate::conv_gradients;
use crate::conv_lowering;
use crate::map::{narrowed, wide_view};
use crate::math::real::Real;
use crate::math::simd::Level;
use crate::math::vectorized::vectorized;
use crate::math::widen::Widen;
use crate::patches::filter_window;
use crate::split::for_each_rows;
use crate::window::{Grid, Run, Sliding};
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        DEPTHWISE_CONV_2D_NATIVE.with_gradient(conv_gradients::depthwise),
        DEPTHWISE_CONV_2D_NATIVE_BACKPROP_INPUT.with_gradient(conv_gradients::depthwise_to_images),
        DEPTHWISE_CONV_2D_NATIVE_BACKPROP_FILTER.with_gradient(conv_gradients::depthwise_to_filter),
    ],
    kernels: &[
        cpu_kernel!("DepthwiseConv2dNative", "T" in [f32, f64, f16, bf16] => forward),
        cpu_kernel!("DepthwiseConv2dNativeBackpropInput", "T" in [f32, f64, f16, bf16]
            => backward_images; host_inputs: &["input_sizes"]),
        cpu_kernel!("DepthwiseConv2dNativeBackpropFilter", "T" in [f32, f64, f16, bf16]
            => backward_filter; host_inputs: &["filter_sizes"]),
        KernelSpec::lowering("DepthwiseConv2dNative", conv_lowering::depthwise),
        KernelSpec::lowering(
            "DepthwiseConv2dNativeBackpropInput",
            conv_lowering::depthwise_to_images,
        )
        .with_host_inputs(&["input_sizes"]),
        KernelSpec::lowering(
            "DepthwiseConv2dNativeBackpropFilter",
            conv_lowering::depthwise_to_filter,
        )
        .with_host_inputs(&["filter_sizes"]),
    ],
};

const DEPTHWISE_CONV_2D_NATIVE: OpDef =
    OpDef::new("DepthwiseConv2dNative", convolved_shape).with_work(work::depthwise);

const DEPTHWISE_CONV_2D_NATIVE_BACKPROP_INPUT: OpDef = OpDef {
    name: "DepthwiseConv2dNativeBackpropInput",
    shape: |c| shape_in(c, 0),
    ..DEPTHWISE_CONV_2D_NATIVE
};

const DEPTHWISE_CONV_2D_NATIVE_BACKPROP_FILTER: OpDef = OpDef {
    name: "DepthwiseConv2dNativeBackpropFilter",
    shape: |c| shape_in(c, 1),
    ..DEPTHWISE_CONV_2D_NATIVE
};

fn convolved_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let sliding = Sliding::from_attrs(c.attrs(), 2)?;
    let images = c.with_rank(0, "input", 4)?;
    let filter = c.with_rank(1, "filter", 4)?;
    let (batch, sizes, channels) = sliding.format.split_partial(&images);
    let depth = PartialShape::new([channels]).merge(&PartialShape::new([filter.dim(2)]))?.dim(0);
    let window = [Some(1), filter.dim(0), filter.dim(1)].map(|size| size.filter(|&s| s > 0));
    let output = sliding.partial_output(sizes, window)?;
    let out = depth.zip(filter.dim(3)).and_then(|(a, b)| a.checked_mul(b));
    c.set_output(0, PartialShape::new(sliding.format.join(batch, output, out)));
    Ok(())
}

fn shape_in(c: &mut ShapeContext<'_>, i: usize) -> Result<()> {
    let shape = c.shape_from_input(i)?.merge(&PartialShape::of_rank(4))?;
    c.set_output(0, shape);
    Ok(())
}

/// A depthwise convolution of a batch of images in NHWC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depthwise {
    pub(crate) sliding: Sliding,
    pub(crate) batch: usize,
    pub(crate) grid: Grid,
    pub(crate) channels: usize,
    /// Filters per channel (`channel_multiplier`).
    multiplier: usize,
}

impl Depthwise {
    pub(crate) fn new(sliding: &Sliding, images: &Shape, filter: &Shape) -> Result<Depthwise> {
        for (shape, name) in [(images, "input"), (filter, "filter")] {
            ensure!(shape.rank() == 4, InvalidArgument, "{name} must be 4-dimensional: {shape}");
        }
        let (batch, sizes, channels) = sliding.format.split(images);
        ensure!(
            filter[2] == channels,
            InvalidArgument,
            "input and filter must have the same depth: {channels} vs {}",
            filter[2]
        );
        ensure!(
            filter.num_elements() > 0,
            InvalidArgument,
            "filter must not have zero elements, got shape {filter}"
        );
        let axes = sliding.axes(sizes, filter_window(filter))?;
        let multiplier = filter[3];
        Ok(Depthwise { sliding: *sliding, batch, grid: Grid { axes }, channels, multiplier })
    }

    pub(crate) fn outs(&self) -> usize {
        self.channels * self.multiplier
    }

    fn check_gradient(&self, ctx: &KernelContext<'_>) -> Result<()> {
        let expected = self.sliding.format.join(self.batch, self.grid.output(), self.outs());
        let got = ctx.input(2)?.shape();
        ensure!(
            got.dims() == &expected[..],
            InvalidArgument,
            "out_backprop must have shape {expected:?}, got {got}"
        );
        Ok(())
    }

    /// Calls `visit(cell, pixel)` for the cells of a window that are inside the image.
    fn visit(&self, window: usize, mut visit: impl FnMut(usize, usize)) {
        let step = self.grid.axes[2].dilation;
        self.grid.visit_rows(window, |cell, pixel, count| {
            (0..count).for_each(|i| visit(cell + i, pixel + i * step));
        });
    }

    fn forward<A: Real>(
        &self,
        ctx: &KernelContext<'_>,
        images: &[A],
        filter: &[A],
        out: &mut [A],
    ) -> Result<()> {
        let (outs, channels, pixels) = (self.outs(), self.channels, self.grid.output_pixels());
        let cost = 0.3 * self.grid.cells() as f64 * outs as f64;
        for_each_rows(ctx, out, outs, cost, |first, out| {
            if self.multiplier == 1 {
                return self.grid.for_each_run(first, outs, out, |out, run| {
                    sum_products(out, images, filter, run, channels);
                });
            }
            for (row, out) in (first..).zip(out.chunks_exact_mut(outs)) {
                let base = row / pixels * self.grid.input_pixels();
                out.fill(A::zero());
                self.visit(row % pixels, |cell, pixel| {
                    let x = &images[(base + pixel) * channels..][..channels];
                    add_products(out, x, &filter[cell * outs..][..outs]);
                });
            }
        })
    }

    fn backward_images<A: Real>(
        &self,
        ctx: &KernelContext<'_>,
        filter: &[A],
        gradient: &[A],
        out: &mut [A],
    ) -> Result<()> {
        let (outs, channels) = (self.outs(), self.channels);
        let [_, rows, columns] = self.grid.axes;
        let cost = 0.3 * self.grid.cells() as f64 * outs as f64;
        for_each_rows(ctx, out, channels, cost, |first, out| {
            for (pixel, out) in (first..).zip(out.chunks_exact_mut(channels)) {
                let (x, y) = (pixel % columns.input, pixel / columns.input % rows.input);
                let image = pixel / columns.input / rows.input;
                out.fill(A::zero());
                for i in 0..rows.window {
                    let Some(row) = rows.window_with(y, i) else { continue };
                    for j in 0..columns.window {
                        let Some(column) = columns.window_with(x, j) else { continue };
                        let at = (image * rows.output + row) * columns.output + column;
                        let cell = i * columns.window + j;
                        let gradient = &gradient[at * outs..][..outs];
                        add_sums(out, gradient, &filter[cell * outs..][..outs]);
                    }
                }
            }
        })
    }

    /// Gradient of the filter, cell by cell over all image rows.
    fn backward_filter<A: Real>(
        &self,
        ctx: &KernelContext<'_>,
        images: &[A],
        gradient: &[A],
        out: &mut [A],
    ) -> Result<()> {
        let (outs, channels) = (self.outs(), self.channels);
        let [_, rows, columns] = self.grid.axes;
        // Each row is summed first, so that rounding errors do not grow with the batch.
        let mut row_sums = ctx.allocate(A::DTYPE, Shape::new(&[self.grid.cells(), outs])?)?;
        let row_sums = crate::split::Disjoint::new(row_sums.as_mut_slice::<A>()?);
        let cost = 0.3 * (self.batch * self.grid.output_pixels()) as f64 * outs as f64;
        for_each_rows(ctx, out, outs, cost, |first, out| {
            for (cell, out) in (first..).zip(out.chunks_exact_mut(outs)) {
                let (i, j) = (cell / columns.window, cell % columns.window);
                // SAFETY: every cell is handed out once.
                let sums = unsafe { row_sums.part(cell * outs..(cell + 1) * outs) };
                out.fill(A::zero());
                for at in 0..self.batch * rows.input {
                    let (image, y) = (at / rows.input, at % rows.input);
                    let Some(row) = rows.window_with(y, i) else { continue };
                    sums.fill(A::zero());
                    for x in 0..columns.input {
                        let Some(column) = columns.window_with(x, j) else { continue };
                        let pixel = (image * rows.input + y) * columns.input + x;
                        let window = (image * rows.output + row) * columns.output + column;
                        let x = &images[pixel * channels..][..channels];
                        add_products(sums, x, &gradient[window * outs..][..outs]);
                    }
                    out.iter_mut().zip(&*sums).for_each(|(out, &sum)| *out += sum);
                }
            }
        })
    }
}

/// Windows that are summed together, so that the filter is read once for all of them.
const AT_ONCE: usize = 4;

/// Sums the products of `N` channels of `W` windows in registers; `x` begins with the channels of
/// the first window's first cell, and `f` with those of the filter.
#[inline(always)]
fn sum_block<A: Real, L: Level, const W: usize, const N: usize>(
    out: &mut [A],
    (x, f): (&[A], &[A]),
    run: &Run<'_>,
    channels: usize,
) {
    let step = run.stride * channels;
    let mut acc = [[A::zero(); N]; W];
    for cell in run.cells {
        let (x, f) = (&x[cell.pixel * channels..], &f[cell.index * channels..][..N]);
        for (i, acc) in acc.iter_mut().enumerate() {
            for ((acc, &x), &f) in acc.iter_mut().zip(&x[i * step..][..N]).zip(f) {
                *acc = A::mul_add_at::<L>(x, f, *acc);
            }
        }
    }
    for (i, acc) in acc.iter().enumerate() {
        out[i * channels..][..N].copy_from_slice(acc);
    }
}

/// Sums the products of all channels of `W` windows.
#[inline(always)]
fn sum_windows<A: Real, L: Level, const W: usize>(
    out: &mut [A],
    (x, f): (&[A], &[A]),
    run: &Run<'_>,
    channels: usize,
) {
    let mut at = 0;
    while at < channels {
        let (out, operands) = (&mut out[at..], (x.get(at..).unwrap_or(&[]), &f[at..]));
        match channels - at {
            // Twice as many of the wider type would not fit in the registers.
            16.. if size_of::<A>() <= 4 => {
                sum_block::<A, L, W, 16>(out, operands, run, channels);
                at += 16;
            }
            8.. => {
                sum_block::<A, L, W, 8>(out, operands, run, channels);
                at += 8;
            }
            _ => {
                sum_block::<A, L, W, 1>(out, operands, run, channels);
                at += 1;
            }
        }
    }
}

vectorized! {
    /// Sets `out` to the sums of products of the filter and each window of the run.
    fn sum_products<L>[A: Real](
        out: &mut [A],
        images: &[A],
        filter: &[A],
        run: &Run<'_>,
        channels: usize,
    ) {
        // The position of a window without cells may be out of bounds.
        let from = |i| images.get((run.first + i * run.stride) * channels..).unwrap_or(&[]);
        let whole = run.windows / AT_ONCE * AT_ONCE;
        let (groups, rest) = out.split_at_mut(whole * channels);
        for (i, out) in groups.chunks_exact_mut(AT_ONCE * channels).enumerate() {
            sum_windows::<A, L, AT_ONCE>(out, (from(i * AT_ONCE), filter), run, channels);
        }
        for (i, out) in (whole..).zip(rest.chunks_exact_mut(channels)) {
            sum_windows::<A, L, 1>(out, (from(i), filter), run, channels);
        }
    }
}

vectorized! {
    /// `out[c, m] += x[c] * f[c, m]`.
    fn add_products<L>[A: Real](out: &mut [A], x: &[A], f: &[A]) {
        let multiplier = out.len() / x.len();
        if multiplier == 1 {
            for ((out, &x), &f) in out.iter_mut().zip(x).zip(f) {
                *out += x * f;
            }
            return;
        }
        let each = out.chunks_exact_mut(multiplier).zip(f.chunks_exact(multiplier));
        for ((out, f), &x) in each.zip(x) {
            for (out, &f) in out.iter_mut().zip(f) {
                *out += x * f;
            }
        }
    }
}

vectorized! {
    /// `out[c] += sum of g[c, m] * f[c, m] over m`.
    fn add_sums<L>[A: Real](out: &mut [A], g: &[A], f: &[A]) {
        let multiplier = g.len() / out.len();
        if multiplier == 1 {
            for ((out, &g), &f) in out.iter_mut().zip(g).zip(f) {
                *out += g * f;
            }
            return;
        }
        let each = g.chunks_exact(multiplier).zip(f.chunks_exact(multiplier));
        for (out, (g, f)) in out.iter_mut().zip(each) {
            for (&g, &f) in g.iter().zip(f) {
                *out += g * f;
            }
        }
    }
}

fn sliding_of(init: &KernelInit<'_>) -> Result<Sliding> {
    Sliding::from_attrs(init.attrs(), 2)?.check()
}

fn finish<T: Widen>(ctx: &mut KernelContext<'_>, images: Tensor, sliding: Sliding) -> Result<()> {
    let images = narrowed::<T>(ctx, images)?;
    let images = sliding.format.restore(ctx, images)?;
    ctx.set_output(0, images)
}

fn forward<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T::Wide: Real,
{
    let sliding = sliding_of(init)?;
    AnyKernel::new(move |ctx| {
        let conv = Depthwise::new(&sliding, ctx.input(0)?.shape(), ctx.input(1)?.shape())?;
        let format = sliding.format;
        let images = format.to_channels_last(ctx, wide_view::<T>(ctx, 0)?)?;
        let filter = wide_view::<T>(ctx, 1)?;
        let shape = format.channels_last().join(conv.batch, conv.grid.output(), conv.outs());
        let mut out = ctx.allocate(T::Wide::DTYPE, Shape::new(&shape)?)?;
        conv.forward::<T::Wide>(ctx, images.as_slice()?, filter.as_slice()?, out.as_mut_slice()?)?;
        finish::<T>(ctx, out, sliding)
    })
}

fn backward_images<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T::Wide: Real,
{
    let sliding = sliding_of(init)?;
    AnyKernel::new(move |ctx| {
        let shape = ctx.shape_input(0, "input_sizes")?;
        let conv = Depthwise::new(&sliding, &shape, ctx.input(1)?.shape())?;
        conv.check_gradient(ctx)?;
        let format = sliding.format;
        let filter = wide_view::<T>(ctx, 1)?;
        let gradient = format.to_channels_last(ctx, wide_view::<T>(ctx, 2)?)?;
        let (batch, sizes, channels) = format.split(&shape);
        let shape = Shape::new(&format.channels_last().join(batch, sizes, channels))?;
        let mut out = ctx.allocate(T::Wide::DTYPE, shape)?;
        let (filter, gradient) = (filter.as_slice()?, gradient.as_slice()?);
        conv.backward_images::<T::Wide>(ctx, filter, gradient, out.as_mut_slice()?)?;
        finish::<T>(ctx, out, sliding)
    })
}

fn backward_filter<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T::Wide: Real,
{
    let sliding = sliding_of(init)?;
    AnyKernel::new(move |ctx| {
        let shape = ctx.shape_input(1, "filter_sizes")?;
        let conv = Depthwise::new(&sliding, ctx.input(0)?.shape(), &shape)?;
        conv.check_gradient(ctx)?;
        let format = sliding.format;
        let images = format.to_channels_last(ctx, wide_view::<T>(ctx, 0)?)?;
        let gradient = format.to_channels_last(ctx, wide_view::<T>(ctx, 2)?)?;
        let mut out = ctx.allocate(T::Wide::DTYPE, shape)?;
        let (images, gradient) = (images.as_slice()?, gradient.as_slice()?);
        conv.backward_filter::<T::Wide>(ctx, images, gradient, out.as_mut_slice()?)?;
        let out = narrowed::<T>(ctx, out)?;
        ctx.set_output(0, out)
    })
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, DType};

    use super::*;
    use crate::testing::{Call, call};

    #[test]
    fn shapes() {
        let infer = |images, filter| {
            let call = call("DepthwiseConv2dNative").shape(DType::Float, images);
            let call = call.shape(DType::Float, filter).attr("padding", "VALID");
            call.attr("strides", &[1i64, 2, 2, 1][..]).infer()
        };
        assert_eq!(infer("2,7,6,?", "3,3,4,2"), "[2,3,2,8]");
        assert!(infer("2,7,6,3", "3,3,4,2").starts_with("INVALID_ARGUMENT"));
    }

    fn counted(dims: &[usize]) -> Tensor {
        let shape = Shape::new(dims).unwrap();
        let values: Vec<f32> =
            (0..shape.num_elements()).map(|i| (i * 31 % 11) as f32 - 5.0).collect();
        Tensor::from_slice(shape, &values).unwrap()
    }

    fn with_attrs(call: Call, stride: i64, dilation: i64) -> Call {
        let call = call.attr("strides", &[1, stride, stride, 1][..]).attr("padding", "SAME");
        call.attr("dilations", &[1, dilation, dilation, 1][..])
    }

    /// A depthwise convolution and its gradients equal those of a grouped convolution.
    #[test]
    fn agrees_with_groups() {
        for (channels, multiplier, stride, dilation) in [(3, 1, 1, 1), (3, 2, 2, 1), (2, 3, 1, 2)] {
            let outs = channels * multiplier;
            let images = counted(&[2, 6, 5, channels]);
            let depthwise = counted(&[3, 2, channels, multiplier]);
            let grouped =
                depthwise.clone().reshaped(Shape::new(&[3, 2, 1, outs]).unwrap()).unwrap();
            let run = |op, filter: &Tensor| {
                let call = call(op).input(images.clone()).input(filter.clone());
                with_attrs(call, stride, dilation).run().unwrap()
            };
            let y = run("DepthwiseConv2dNative", &depthwise);
            assert_eq!(y.as_bytes().unwrap(), run("Conv2D", &grouped).as_bytes().unwrap());
            let dy = counted(y.shape());
            let sizes = |t: &Tensor| {
                Tensor::vector(&t.shape().iter().map(|&d| d as i32).collect::<Vec<_>>()).unwrap()
            };
            let dx = |op, filter: &Tensor| {
                let call = call(op).input(sizes(&images)).input(filter.clone()).input(dy.clone());
                with_attrs(call, stride, dilation).run().unwrap()
            };
            let a = dx("DepthwiseConv2dNativeBackpropInput", &depthwise);
            let b = dx("Conv2DBackpropInput", &grouped);
            assert_eq!(a.as_slice::<f32>().unwrap(), b.as_slice::<f32>().unwrap());
            let dw = |op, filter: &Tensor| {
                let call = call(op).input(images.clone()).input(sizes(filter)).input(dy.clone());
                with_attrs(call, stride, dilation).run().unwrap()
            };
            let a = dw("DepthwiseConv2dNativeBackpropFilter", &depthwise);
            let b = dw("Conv2DBackpropFilter", &grouped);
            assert_eq!(a.as_slice::<f32>().unwrap(), b.as_slice::<f32>().unwrap());
        }
    }

    #[test]
    fn hostile_shapes() {
        for (images, filter) in [
            (&[1, 5, 5, 4][..], &[3, 3, 2, 3][..]),
            (&[5, 5, 4], &[3, 3, 4, 3]),
            (&[1, 5, 5, 0], &[3, 3, 0, 1]),
        ] {
            let call = call("DepthwiseConv2dNative").input(counted(images)).input(counted(filter));
            let error = with_attrs(call, 1, 1).run().unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{images:?}");
        }
    }
}
