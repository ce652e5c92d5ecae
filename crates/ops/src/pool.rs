//! Max and average pooling, and the gradients of average pooling.

use half::{bf16, f16};
use smallvec::SmallVec;
use thalweg_graph::{GradientContext, NodeAttrs, OpDef, ShapeContext, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Element, PartialShape, Result, Shape, Tensor, ensure};

use crate::map::{narrowed, wide_view};
use crate::math::fold::{Fold, MaximumNumber, Mean, fold_windows, loops};
use crate::math::real::Real;
use crate::math::widen::Widen;
use crate::pool_lowering;
use crate::split::for_each_rows;
use crate::window::{Format, Grid, Padding, Sizes, Sliding};
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        MAX_POOL.with_gradient(gradient_of_max_pool),
        MAX_POOL_V2.with_gradient(gradient_of_max_pool_v2),
        AVG_POOL.with_gradient(gradient_of_avg_pool),
        AVG_POOL_GRAD.with_gradient(gradient_of_avg_pool_grad),
        MAX_POOL_3D.with_gradient(gradient_of_max_pool_3d),
        AVG_POOL_3D.with_gradient(gradient_of_avg_pool_3d),
        AVG_POOL_3D_GRAD.with_gradient(gradient_of_avg_pool_3d_grad),
    ],
    kernels: &[
        cpu_kernel!("MaxPool", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16]
            => max_pool),
        cpu_kernel!("MaxPoolV2", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16]
            => max_pool; host_inputs: &["ksize", "strides"]),
        cpu_kernel!("MaxPool3D", "T" in [f32, f16, bf16] => max_pool),
        cpu_kernel!("AvgPool", "T" in [f32, f64, f16, bf16] => avg_pool),
        cpu_kernel!("AvgPool3D", "T" in [f32, f64, f16, bf16] => avg_pool),
        cpu_kernel!("AvgPoolGrad", "T" in [f32, f64, f16, bf16] => avg_pool_grad;
            host_inputs: &["orig_input_shape"]),
        cpu_kernel!("AvgPool3DGrad", "T" in [f32, f64, f16, bf16] => avg_pool_grad;
            host_inputs: &["orig_input_shape"]),
        KernelSpec::lowering("MaxPool", pool_lowering::max_pool),
        KernelSpec::lowering("MaxPoolV2", pool_lowering::max_pool)
            .with_host_inputs(&["ksize", "strides"]),
        KernelSpec::lowering("MaxPool3D", pool_lowering::max_pool),
        KernelSpec::lowering("AvgPool", pool_lowering::avg_pool),
        KernelSpec::lowering("AvgPool3D", pool_lowering::avg_pool),
        KernelSpec::lowering("AvgPoolGrad", pool_lowering::avg_pool_grad)
            .with_host_inputs(&["orig_input_shape"]),
        KernelSpec::lowering("AvgPool3DGrad", pool_lowering::avg_pool_grad)
            .with_host_inputs(&["orig_input_shape"]),
    ],
};

const MAX_POOL: OpDef = OpDef::new("MaxPool", |c| pooled_shape(c, 2)).with_work(work::pool::<4>);

const MAX_POOL_V2: OpDef = OpDef { name: "MaxPoolV2", ..MAX_POOL };

const AVG_POOL: OpDef = OpDef::new("AvgPool", |c| pooled_shape(c, 2)).with_work(work::pool::<4>);

const AVG_POOL_GRAD: OpDef = OpDef {
    name: "AvgPoolGrad",
    shape: shape::from_first_input,
    work: work::pool_grad::<20>,
    ..AVG_POOL
};

const MAX_POOL_3D: OpDef =
    OpDef::new("MaxPool3D", |c| pooled_shape(c, 3)).with_work(work::pool::<4>);

const AVG_POOL_3D: OpDef = OpDef { name: "AvgPool3D", ..MAX_POOL_3D };

const AVG_POOL_3D_GRAD: OpDef = OpDef {
    name: "AvgPool3DGrad",
    shape: shape::from_first_input,
    work: work::pool_grad::<20>,
    ..AVG_POOL_3D
};

/// Window sizes and strides, from attrs or from inputs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pooling {
    pub(crate) sliding: Sliding,
    pub(crate) window: Sizes,
    /// Number of adjacent channels that are pooled together.
    pub(crate) channel_window: usize,
}

impl Pooling {
    /// Pooling with `ksize` and `strides`, which have one entry per dimension.
    pub(crate) fn new(
        attrs: NodeAttrs<'_>,
        spatial: usize,
        ksize: &[i64],
        strides: &[i64],
    ) -> Result<Pooling> {
        let format = Format::from_attrs(attrs, spatial)?;
        for (list, name) in [(ksize, "ksize"), (strides, "strides")] {
            ensure!(
                list.len() == format.rank(),
                InvalidArgument,
                "Sliding window {name} field must specify {} dimensions, has {}",
                format.rank(),
                list.len()
            );
            ensure!(
                list.iter().all(|&x| (1..=i64::from(i32::MAX)).contains(&x)),
                InvalidArgument,
                "Sliding window {name} must be > 0, got {list:?}"
            );
        }
        let (channels, batch) = (ksize[format.channel_dim()], ksize[0]);
        ensure!(
            batch == 1 && strides[0] == 1,
            Unimplemented,
            "Pooling is not yet supported on the batch dimension."
        );
        let mut spatial_strides: SmallVec<[i64; 5]> = SmallVec::from_slice(strides);
        spatial_strides[format.channel_dim()] = 1;
        let sliding = Sliding::with_strides(attrs, format, &spatial_strides)?;
        let sizes: SmallVec<[usize; 5]> = ksize.iter().map(|&k| k as usize).collect();
        let (_, window, channel_window) = format.split(&sizes);
        ensure!(
            channels == strides[format.channel_dim()],
            Unimplemented,
            "Depthwise pooling requires the depth window to equal the depth stride."
        );
        ensure!(
            channels == 1 || window == [1; 3],
            Unimplemented,
            "Pooling supports exactly one of pooling across depth or pooling across width/height."
        );
        let pooling = Pooling { sliding, window, channel_window };
        pooling.check_padding()?;
        Ok(pooling)
    }

    fn check_padding(&self) -> Result<()> {
        if let Padding::Explicit(pads) = self.sliding.padding {
            for ((before, after), window) in pads.into_iter().zip(self.window) {
                ensure!(
                    before.max(after) < window,
                    InvalidArgument,
                    "explicit padding of {before} and {after} must be less than the window of {window}"
                );
            }
        }
        Ok(())
    }

    /// Pooling with the attrs of a node.
    pub(crate) fn from_attrs(attrs: NodeAttrs<'_>, spatial: usize) -> Result<Pooling> {
        Pooling::new(attrs, spatial, attrs.ints("ksize")?, attrs.ints("strides")?)
    }

    /// The windows on images of this shape.
    pub(crate) fn images(&self, shape: &Shape) -> Result<Images> {
        let format = self.sliding.format;
        ensure!(
            shape.rank() == format.rank(),
            InvalidArgument,
            "images to be pooled must have {} spatial dimensions, got shape {shape}",
            format.spatial
        );
        let (batch, input, channels) = format.split(shape);
        let axes = self.sliding.axes(input, self.window)?;
        Ok(Images { batch, channels, grid: Grid { axes } })
    }

    /// The shape of the pooled images.
    pub(crate) fn output_shape(&self, images: &Images) -> Result<Shape> {
        let (batch, channels) = (images.batch, images.channels / self.channel_window);
        Shape::new(&self.sliding.format.join(batch, images.grid.output(), channels))
    }
}

/// A batch of images and the windows on each image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Images {
    pub(crate) batch: usize,
    pub(crate) channels: usize,
    pub(crate) grid: Grid,
}

/// Whether the window is in attrs or, in V2 ops, in inputs.
#[derive(Clone, Copy)]
pub(crate) struct Source {
    spatial: usize,
    fixed: Option<Pooling>,
    first_input: usize,
}

impl Source {
    /// For a node whose window is an attr, or in the inputs from `first_input` on.
    pub(crate) fn new(init: &KernelInit<'_>, first_input: usize) -> Result<Source> {
        let name = &init.node.op.name;
        let spatial = if name.contains("3D") { 3 } else { 2 };
        let fixed = match init.attrs().get("ksize") {
            Some(_) => Some(Pooling::from_attrs(init.attrs(), spatial)?),
            None => None,
        };
        Ok(Source { spatial, fixed, first_input })
    }

    /// The pooling of this step.
    pub(crate) fn pooling(&self, ctx: &KernelContext<'_>) -> Result<Pooling> {
        if let Some(pooling) = self.fixed {
            return Ok(pooling);
        }
        let ksize = ctx.ints(self.first_input, "ksize")?;
        let strides = ctx.ints(self.first_input + 1, "strides")?;
        Pooling::new(ctx.node().attrs(), self.spatial, &ksize, &strides)
    }
}

fn pooled_shape(c: &mut ShapeContext<'_>, spatial: usize) -> Result<()> {
    let shape = inferred(c, spatial)?;
    c.set_output(0, shape);
    Ok(())
}

/// The static shape of the pooled first input.
pub(crate) fn inferred(c: &ShapeContext<'_>, spatial: usize) -> Result<PartialShape> {
    let format = match c.attrs().get("data_format") {
        Some(_) if c.attrs().string("data_format")? == "NCHW_VECT_C" => {
            return Ok(PartialShape::unknown());
        }
        _ => Format::from_attrs(c.attrs(), spatial)?,
    };
    let input = c.with_rank(0, "input", format.rank())?;
    let known = |c: &ShapeContext<'_>, i: usize| c.partial_value(i).and_then(|v| v.known());
    let (ksize, strides) = match c.attrs().get("ksize") {
        Some(_) => {
            (Some(c.attrs().ints("ksize")?.to_vec()), Some(c.attrs().ints("strides")?.to_vec()))
        }
        None => (known(c, 1), known(c, 2)),
    };
    let (Some(ksize), Some(strides)) = (ksize, strides) else {
        return Ok(PartialShape::of_rank(format.rank()));
    };
    let pooling = Pooling::new(c.attrs(), spatial, &ksize, &strides)?;
    let (batch, sizes, channels) = format.split_partial(&input);
    let output = pooling.sliding.partial_output(sizes, pooling.window.map(Some))?;
    let channels = channels.map(|channels| channels / pooling.channel_window);
    Ok(PartialShape::new(format.join(batch, output, channels)))
}

fn max_pool<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    MaximumNumber: Fold<T::Wide>,
{
    let source = Source::new(init, 1)?;
    AnyKernel::new(move |ctx| {
        let pooling = source.pooling(ctx)?;
        if pooling.channel_window > 1 {
            return max_of_channels::<T>(ctx, &pooling);
        }
        pool::<T, MaximumNumber>(ctx, &pooling)
    })
}

fn avg_pool<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    Mean: Fold<T::Wide>,
{
    let source = Source::new(init, 1)?;
    AnyKernel::new(move |ctx| {
        let pooling = source.pooling(ctx)?;
        ensure!(
            pooling.channel_window == 1,
            Unimplemented,
            "Non-spatial pooling is not yet supported."
        );
        pool::<T, Mean>(ctx, &pooling)
    })
}

/// Maximum window size for reducing all cells at once in registers; larger windows are reduced row
/// by row.
const CELLS_LISTED: usize = 64;

/// Reduces each window.
fn pool<T: Widen, F: Fold<T::Wide>>(ctx: &mut KernelContext<'_>, pooling: &Pooling) -> Result<()> {
    let images = pooling.images(ctx.input(0)?.shape())?;
    let format = pooling.sliding.format;
    let input = format.to_channels_last(ctx, wide_view::<T>(ctx, 0)?)?;
    let data = input.as_slice::<T::Wide>()?;
    let (grid, channels) = (images.grid, images.channels);
    let shape = format.channels_last().join(images.batch, grid.output(), channels);
    let mut out = ctx.allocate(T::Wide::DTYPE, Shape::new(&shape)?)?;
    let fold = loops::<T::Wide, F>();
    let nanoseconds = 10.0 + 0.2 * grid.cells() as f64 * channels as f64;
    for_each_rows(ctx, out.as_mut_slice()?, channels, nanoseconds, |first, out| {
        if grid.cells() <= CELLS_LISTED {
            return grid.for_each_run(first, channels, out, |out, run| {
                fold_windows::<T::Wide, F>(out, data, run, channels);
            });
        }
        for (i, out) in (first..).zip(out.chunks_exact_mut(channels)) {
            let (image, window) = (i / grid.output_pixels(), i % grid.output_pixels());
            out.fill(fold.start);
            let mut pixels = 0;
            grid.visit_rows(window, |_, pixel, count| {
                let start = (image * grid.input_pixels() + pixel) * channels;
                (fold.columns)(out, &data[start..start + count * channels], channels);
                pixels += count;
            });
            F::finish(out, pixels);
        }
    })?;
    let out = format.restore(ctx, narrowed::<T>(ctx, out)?)?;
    ctx.set_output(0, out)
}

/// Maximum over adjacent channels.
fn max_of_channels<T: Widen>(ctx: &mut KernelContext<'_>, pooling: &Pooling) -> Result<()>
where
    MaximumNumber: Fold<T::Wide>,
{
    let images = pooling.images(ctx.input(0)?.shape())?;
    let window = pooling.channel_window;
    ensure!(
        images.channels % window == 0,
        Unimplemented,
        "Depthwise max pooling requires the depth window to evenly divide the input depth"
    );
    let format = pooling.sliding.format;
    ensure!(!format.channels_first, Unimplemented, "Depthwise max pooling takes NHWC only");
    let data = ctx.slice::<T>(0)?;
    let mut out = ctx.allocate(T::Wide::DTYPE, pooling.output_shape(&images)?)?;
    let fold = loops::<T::Wide, MaximumNumber>();
    for_each_rows(ctx, out.as_mut_slice()?, 1, window as f64, |first, out| {
        for (i, out) in (first..).zip(out) {
            *out = fold.start;
            for part in data[i * window..(i + 1) * window].chunks(T::CHUNK.min(2048)) {
                *out = MaximumNumber::merge(*out, T::with_wide(part, fold.run));
            }
        }
    })?;
    let out = narrowed::<T>(ctx, out)?;
    ctx.set_output(0, out)
}

fn avg_pool_grad<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T::Wide: Real,
{
    let source = Source::new(init, 2)?;
    AnyKernel::new(move |ctx| {
        let pooling = source.pooling(ctx)?;
        ensure!(
            pooling.channel_window == 1,
            Unimplemented,
            "Non-spatial pooling is not yet supported."
        );
        let shape = ctx.shape_input(0, "orig_input_shape")?;
        let images = pooling.images(&shape)?;
        let (grad, expected) = (ctx.input(1)?.shape(), pooling.output_shape(&images)?);
        ensure!(
            *grad == expected,
            InvalidArgument,
            "the gradient of images of {shape} must have shape {expected}, got {grad}"
        );
        let format = pooling.sliding.format;
        let grad = format.to_channels_last(ctx, wide_view::<T>(ctx, 1)?)?;
        let out = scatter_average::<T::Wide>(ctx, &images, format, grad.as_slice()?)?;
        let out = format.restore(ctx, narrowed::<T>(ctx, out)?)?;
        ctx.set_output(0, out)
    })
}

/// Adds to each pixel its share of the gradients of all windows that contain it.
fn scatter_average<A: Real>(
    ctx: &KernelContext<'_>,
    images: &Images,
    format: Format,
    grad: &[A],
) -> Result<Tensor> {
    let (grid, channels) = (images.grid, images.channels);
    let input = grid.axes.map(|a| a.input);
    let shape = format.channels_last().join(images.batch, input, channels);
    let mut out = ctx.zeros(A::DTYPE, Shape::new(&shape)?)?;
    let image_len = grid.input_pixels() * channels;
    let nanoseconds = 0.3 * grid.output_pixels() as f64 * grid.cells() as f64 * channels as f64;
    for_each_rows(ctx, out.as_mut_slice::<A>()?, image_len, nanoseconds, |first, out| {
        for (image, out) in (first..).zip(out.chunks_exact_mut(image_len)) {
            for window in 0..grid.output_pixels() {
                let start = (image * grid.output_pixels() + window) * channels;
                let grad = &grad[start..start + channels];
                let mut pixels = 0;
                grid.visit_rows(window, |_, _, count| pixels += count);
                let share = A::of(1.0 / pixels as f64);
                grid.visit_rows(window, |_, pixel, count| {
                    for out in out[pixel * channels..].chunks_exact_mut(channels).take(count) {
                        add_scaled(out, grad, share);
                    }
                });
            }
        }
    })?;
    Ok(out)
}

crate::math::vectorized::vectorized! {
    fn add_scaled<L>[A: Real](out: &mut [A], x: &[A], factor: A) {
        for (out, &x) in out.iter_mut().zip(x) {
            *out += x * factor;
        }
    }
}

/// Names of the attrs of a window.
const WINDOW: &[&str] = &["ksize", "strides", "padding", "data_format"];

fn gradient_of_max_pool(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, y) = (g.grad(0)?, g.input(0), g.output(0));
    let attrs = &["ksize", "strides", "padding", "explicit_paddings", "data_format"];
    let adjoint = g.op_like("MaxPoolGrad", attrs).inputs(&[x, y, grad]).build()?;
    g.set(0, adjoint)
}

fn gradient_of_max_pool_v2(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, y, ksize, strides) =
        (g.grad(0)?, g.input(0), g.output(0), g.input(1), g.input(2));
    let node = g.op_like("MaxPoolGradV2", &["padding", "data_format"]);
    let adjoint = node.inputs(&[x, y, grad, ksize, strides]).build()?;
    g.set(0, adjoint)
}

fn gradient_of_max_pool_3d(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, y) = (g.grad(0)?, g.input(0), g.output(0));
    let adjoint = g.op_like("MaxPool3DGrad", WINDOW).inputs(&[x, y, grad]).build()?;
    g.set(0, adjoint)
}

fn gradient_of_avg_pool(g: &mut GradientContext<'_>) -> Result<()> {
    spread_adjoint(g, "AvgPoolGrad")
}

fn gradient_of_avg_pool_3d(g: &mut GradientContext<'_>) -> Result<()> {
    spread_adjoint(g, "AvgPool3DGrad")
}

fn gradient_of_avg_pool_grad(g: &mut GradientContext<'_>) -> Result<()> {
    average_adjoint(g, "AvgPool")
}

fn gradient_of_avg_pool_3d_grad(g: &mut GradientContext<'_>) -> Result<()> {
    average_adjoint(g, "AvgPool3D")
}

fn spread_adjoint(g: &mut GradientContext<'_>, op: &str) -> Result<()> {
    let (grad, shape) = (g.grad(0)?, g.shape_of(g.input(0))?);
    let adjoint = g.op_like(op, WINDOW).inputs(&[shape, grad]).build()?;
    g.set(0, adjoint)
}

fn average_adjoint(g: &mut GradientContext<'_>, op: &str) -> Result<()> {
    let grad = g.grad(0)?;
    let adjoint = g.op_like(op, WINDOW).input(grad).build()?;
    g.set(1, adjoint)
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, DType};

    use super::*;
    use crate::testing::call;

    #[test]
    fn shapes() {
        for (input, padding, format, expected) in [
            ("2,7,6,3", "SAME", "NHWC", "[2,4,3,3]"),
            ("2,7,6,3", "VALID", "NHWC", "[2,3,3,3]"),
            ("2,3,7,?", "VALID", "NCHW", "[2,3,3,?]"),
            ("unknown", "SAME", "NHWC", "[?,?,?,?]"),
        ] {
            let sizes: &[i64] = if format == "NHWC" { &[1, 2, 2, 1] } else { &[1, 1, 2, 2] };
            let call = call("MaxPool").shape(DType::Float, input).attr("ksize", sizes);
            let call = call.attr("strides", sizes).attr("padding", padding);
            assert_eq!(call.attr("data_format", format).infer(), expected, "{input}");
        }
    }

    fn pool(op: &'static str, input: Tensor, ksize: &[i64], strides: &[i64]) -> Result<Tensor> {
        let call = call(op).input(input).attr("ksize", ksize).attr("strides", strides);
        call.attr("padding", "SAME").run()
    }

    #[test]
    fn both_formats_agree() {
        let values: Vec<f32> = (0..2 * 5 * 4 * 3).map(|i| (i * 37 % 101) as f32).collect();
        let last = Tensor::from_slice(Shape::new(&[2, 5, 4, 3]).unwrap(), &values).unwrap();
        let first: Vec<f32> = (0..values.len())
            .map(|i| {
                let (n, c, p) = (i / 60, i / 20 % 3, i % 20);
                values[(n * 20 + p) * 3 + c]
            })
            .collect();
        let first = Tensor::from_slice(Shape::new(&[2, 3, 5, 4]).unwrap(), &first).unwrap();
        for op in ["MaxPool", "AvgPool"] {
            let a = pool(op, last.clone(), &[1, 3, 2, 1], &[1, 2, 1, 1]).unwrap();
            let call = call(op).input(first.clone()).attr("ksize", &[1i64, 1, 3, 2][..]);
            let call = call.attr("strides", &[1i64, 1, 2, 1][..]).attr("padding", "SAME");
            let b = call.attr("data_format", "NCHW").run().unwrap();
            let (a, b) = (a.as_slice::<f32>().unwrap(), b.as_slice::<f32>().unwrap());
            for (i, x) in b.iter().enumerate() {
                let (n, c, p) = (i / 36, i / 12 % 3, i % 12);
                assert_eq!(*x, a[(n * 12 + p) * 3 + c], "{op}");
            }
        }
    }

    #[test]
    fn hostile_windows() {
        let image = || Tensor::zeros(DType::Float, Shape::new(&[1, 4, 4, 3]).unwrap()).unwrap();
        for (ksize, strides, code) in [
            (&[1, 0, 2, 1][..], &[1, 1, 1, 1][..], Code::InvalidArgument),
            (&[1, 2, 2, 1], &[1, 0, 1, 1], Code::InvalidArgument),
            (&[1, i64::MAX, 2, 1], &[1, 1, 1, 1], Code::InvalidArgument),
            (&[1, 2, 2, 1, 1], &[1, 1, 1, 1, 1], Code::InvalidArgument),
            (&[2, 2, 2, 1], &[1, 1, 1, 1], Code::Unimplemented),
            (&[1, 1, 1, 2], &[1, 1, 1, 2], Code::Unimplemented),
            (&[1, 2, 2, 3], &[1, 1, 1, 3], Code::Unimplemented),
        ] {
            assert_eq!(
                pool("MaxPool", image(), ksize, strides).unwrap_err().code(),
                code,
                "{ksize:?}"
            );
        }
        let huge = pool("MaxPool", image(), &[1, 1 << 30, 1 << 30, 1], &[1, 1 << 30, 1, 1]);
        assert_eq!(huge.unwrap().shape().dims(), [1, 1, 4, 3]);
    }
}
