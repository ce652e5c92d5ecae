//! `ScaleAndTranslate`: resampling with one of several kernels.
//!
//! Each output pixel is a weighted sum over a span of input rows and a span of input columns; the
//! gradient uses the transposed weights.

use std::f32::consts::PI;

use thalweg_graph::{GradientContext, OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, Result, Shape, Tensor, bail, ensure, err};

use super::pixels::{IMAGE_TYPES, Images, as_floats, table};
use super::resize::{check_sizes, resized_shape, shape_of_original, size_input};
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        SCALE_AND_TRANSLATE.with_gradient(gradient),
        OpDef::new("ScaleAndTranslateGrad", shape_of_original).with_work(Work::per_input::<500>),
    ],
    kernels: &[
        KernelSpec {
            op: "ScaleAndTranslate",
            constraints: &[("T", IMAGE_TYPES)],
            host_inputs: &["size", "scale", "translation"],
            create: scale_and_translate,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "ScaleAndTranslateGrad",
            constraints: &[("T", &[DType::Float])],
            host_inputs: &["scale", "translation"],
            create: scale_and_translate_grad,
            ..KernelSpec::CPU
        },
    ],
};

const SCALE_AND_TRANSLATE: OpDef =
    OpDef::new("ScaleAndTranslate", forward_shape).with_work(Work::per_output::<500>);

fn forward_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for (i, name) in [(2, "scale"), (3, "translation")] {
        let shape = c.with_rank(i, name, 1)?;
        ensure!(
            shape.dim(0).is_none_or(|n| n == 2),
            InvalidArgument,
            "{name} must have two elements, got shape {shape}"
        );
    }
    resized_shape(c)
}

/// The gradient is defined for single precision only.
fn gradient(g: &mut GradientContext<'_>) -> Result<()> {
    let inputs = [g.grad(0)?, g.input(0), g.input(2), g.input(3)];
    if g.dtype(g.input(0)) != DType::Float {
        return Ok(());
    }
    let attrs = ["kernel_type", "antialias"];
    let adjoint = g.op_like("ScaleAndTranslateGrad", &attrs).inputs(&inputs).build()?;
    g.set(0, adjoint)
}

/// The weight of a pixel as a function of its distance from the sample.
#[derive(Clone, Copy, Debug)]
enum SamplingKernel {
    Lanczos(f32),
    Gaussian,
    Box,
    Triangle,
    KeysCubic,
    MitchellCubic,
}

impl SamplingKernel {
    fn from_name(name: &str) -> Result<SamplingKernel> {
        Ok(match name {
            "lanczos1" => SamplingKernel::Lanczos(1.0),
            "lanczos3" => SamplingKernel::Lanczos(3.0),
            "lanczos5" => SamplingKernel::Lanczos(5.0),
            "gaussian" => SamplingKernel::Gaussian,
            "box" => SamplingKernel::Box,
            "triangle" => SamplingKernel::Triangle,
            "keyscubic" => SamplingKernel::KeysCubic,
            "mitchellcubic" => SamplingKernel::MitchellCubic,
            other => bail!(InvalidArgument, "Unrecognized kernel type: {other}"),
        })
    }

    /// The distance from which on weights are zero.
    fn radius(self) -> f32 {
        match self {
            SamplingKernel::Lanczos(radius) => radius,
            SamplingKernel::Gaussian => 1.5,
            SamplingKernel::Box | SamplingKernel::Triangle => 1.0,
            SamplingKernel::KeysCubic | SamplingKernel::MitchellCubic => 2.0,
        }
    }

    /// The weight at distance `x >= 0`.
    fn weight(self, x: f32) -> f32 {
        match self {
            SamplingKernel::Lanczos(radius) if x > radius => 0.0,
            SamplingKernel::Lanczos(_) if x <= 1e-3 => 1.0,
            SamplingKernel::Lanczos(radius) => {
                radius * (PI * x).sin() * (PI * x / radius).sin() / (PI * PI * x * x)
            }
            SamplingKernel::Gaussian if x >= self.radius() => 0.0,
            SamplingKernel::Gaussian => {
                let deviation = self.radius() / 3.0;
                (-x * x / (2.0 * deviation * deviation)).exp()
            }
            SamplingKernel::Box if x < 0.5 => 1.0,
            SamplingKernel::Box if x == 0.5 => 0.5,
            SamplingKernel::Box => 0.0,
            SamplingKernel::Triangle => (1.0 - x).max(0.0),
            SamplingKernel::KeysCubic | SamplingKernel::MitchellCubic if x >= 2.0 => 0.0,
            SamplingKernel::KeysCubic if x >= 1.0 => ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0,
            SamplingKernel::KeysCubic => ((1.5 * x - 2.5) * x) * x + 1.0,
            SamplingKernel::MitchellCubic if x >= 1.0 => {
                (((-7.0 / 18.0) * x + 2.0) * x - 10.0 / 3.0) * x + 16.0 / 9.0
            }
            SamplingKernel::MitchellCubic => (((7.0 / 6.0) * x - 2.0) * x) * x + 8.0 / 9.0,
        }
    }
}

#[derive(Clone, Copy)]
struct Settings {
    kernel: SamplingKernel,
    antialias: bool,
}

impl Settings {
    fn new(init: &KernelInit<'_>) -> Result<Settings> {
        let attrs = init.attrs();
        let name = String::from_utf8_lossy(attrs.bytes("kernel_type")?);
        let kernel = SamplingKernel::from_name(&name)?;
        Ok(Settings { kernel, antialias: attrs.bool("antialias")? })
    }
}

/// For each output pixel along one axis: the start of its span of input pixels, and the weights of
/// the span.
struct Spans {
    starts: Vec<usize>,
    /// Start of each span's weights, followed by the end of the last.
    offsets: Vec<usize>,
    weights: Vec<f32>,
}

impl Spans {
    fn len(&self) -> usize {
        self.starts.len()
    }

    fn get(&self, i: usize) -> (usize, &[f32]) {
        (self.starts[i], &self.weights[self.offsets[i]..self.offsets[i + 1]])
    }

    /// Spans of `output` pixels over `input` pixels.
    fn new(settings: Settings, axis: Axis, input: usize, output: usize) -> Result<Spans> {
        let Settings { kernel, antialias } = settings;
        let inverse = 1.0 / axis.scale;
        let moved = -inverse * axis.translation;
        let stretch = if antialias { inverse.max(1.0) } else { 1.0 };
        let reach = kernel.radius() * stretch;
        let mut spans = Spans { starts: table(0, |_| 0)?, offsets: vec![0], weights: Vec::new() };
        reserve(&mut spans.starts, output)?;
        reserve(&mut spans.offsets, output)?;
        let last = input as i64 - 1;
        for x in 0..output {
            let sample = (x as f32 + 0.5) * inverse + moved;
            if sample >= 0.0 && sample <= input as f32 {
                let start = ((sample - reach - 0.5).ceil() as i64).clamp(0, last);
                let end = ((sample + reach - 0.5).floor() as i64).clamp(0, last) + 1;
                spans.starts.push(start as usize);
                spans.push_weights(start..end, |source| {
                    let distance = source as f32 + 0.5 - sample;
                    kernel.weight((distance * (1.0 / stretch)).abs())
                })?;
            } else {
                spans.starts.push(0);
            }
            spans.offsets.push(spans.weights.len());
        }
        Ok(spans)
    }

    /// Appends weights for the pixels in `range`, normalized to sum 1.
    fn push_weights(
        &mut self,
        range: std::ops::Range<i64>,
        weight: impl Fn(i64) -> f32,
    ) -> Result<()> {
        let count = (range.end - range.start).max(0) as usize;
        reserve(&mut self.weights, count)?;
        let first = self.weights.len();
        self.weights.extend(range.map(weight));
        let added = &mut self.weights[first..];
        let sum: f32 = added.iter().sum();
        let factor = if sum.abs() >= 1000.0 * f32::MIN_POSITIVE { 1.0 / sum } else { 0.0 };
        added.iter_mut().for_each(|w| *w *= factor);
        Ok(())
    }

    /// The transposed spans: for each of `input` pixels, the output pixels that use it, with
    /// weights.
    fn reversed(&self, input: usize) -> Result<Spans> {
        let mut bounds = table(input, |_| (usize::MAX, 0usize))?;
        for i in 0..self.len() {
            let (start, weights) = self.get(i);
            for bound in &mut bounds[start..start + weights.len()] {
                *bound = (bound.0.min(i), i + 1);
            }
        }
        let width = |&(first, end): &(usize, usize)| end.saturating_sub(first);
        let mut offsets = table(input + 1, |_| 0)?;
        for (i, bound) in bounds.iter().enumerate() {
            offsets[i + 1] = offsets[i] + width(bound);
        }
        let mut weights = table(offsets[input], |_| 0.0)?;
        for i in 0..self.len() {
            let (start, own) = self.get(i);
            for (source, &weight) in (start..).zip(own) {
                weights[offsets[source] + i - bounds[source].0] = weight;
            }
        }
        let starts = table(input, |i| if width(&bounds[i]) > 0 { bounds[i].0 } else { 0 })?;
        Ok(Spans { starts, offsets, weights })
    }
}

fn reserve<T>(entries: &mut Vec<T>, more: usize) -> Result<()> {
    entries
        .try_reserve(more)
        .map_err(|_| err!(ResourceExhausted, "out of memory for {more} more sampling weights"))
}

#[derive(Clone, Copy)]
struct Axis {
    scale: f32,
    translation: f32,
}

/// Scale and translation of rows and columns, from inputs 2 and 3.
fn axes(ctx: &KernelContext<'_>) -> Result<[Axis; 2]> {
    for (i, name) in [(2, "scale"), (3, "translation")] {
        let shape = ctx.input(i)?.shape();
        ensure!(
            shape.dims() == [2],
            InvalidArgument,
            "{name} must be a vector of two elements, got shape {shape}"
        );
    }
    let (scale, translation) = (ctx.slice::<f32>(2)?, ctx.slice::<f32>(3)?);
    ensure!(
        scale[0] > 0.0 && scale[1] > 0.0,
        InvalidArgument,
        "Scale must be greater than zero, got {} and {}",
        scale[0],
        scale[1]
    );
    Ok([0, 1].map(|i| Axis { scale: scale[i], translation: translation[i] }))
}

fn scale_and_translate(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let settings = Settings::new(init)?;
    AnyKernel::new(move |ctx| {
        let input = Images::of(ctx.input(0)?, "input")?;
        let (height, width) = size_input(ctx, 1)?;
        let [rows, columns] = axes(ctx)?;
        ensure!(input.channels > 0, InvalidArgument, "image must have at least one channel");
        ensure!(
            input.height > 0 && input.width > 0,
            InvalidArgument,
            "input image must be of non-zero size, got shape {}",
            ctx.input(0)?.shape()
        );
        check_sizes(input, "input")?;
        let output = input.resized(height, width);
        let mut out = ctx.zeros(DType::Float, output.shape()?)?;
        if out.num_elements() > 0 {
            let rows = Spans::new(settings, rows, input.height, height)?;
            let columns = Spans::new(settings, columns, input.width, width)?;
            let images = as_floats(ctx, 0)?;
            gather(ctx, images.as_slice()?, input, &rows, &columns, &mut out)?;
        }
        ctx.set_output(0, out)
    })
}

fn scale_and_translate_grad(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let settings = Settings::new(init)?;
    AnyKernel::new(move |ctx| {
        let grads = Images::of(ctx.input(0)?, "grads")?;
        let image = Images::of(ctx.input(1)?, "original_image")?;
        let [rows, columns] = axes(ctx)?;
        let original = grads.resized(image.height, image.width);
        check_sizes(original, "original")?;
        check_sizes(grads, "resized")?;
        let mut out = ctx.zeros(DType::Float, original.shape()?)?;
        if out.num_elements() > 0 && ctx.input(0)?.num_elements() > 0 {
            let rows = Spans::new(settings, rows, original.height, grads.height)?;
            let rows = rows.reversed(original.height)?;
            let columns = Spans::new(settings, columns, original.width, grads.width)?;
            let columns = columns.reversed(original.width)?;
            gather(ctx, ctx.slice(0)?, grads, &rows, &columns, &mut out)?;
        }
        ctx.set_output(0, out)
    })
}

/// Adds weighted sums over rows, then columns, of `images` to `out`, which must be zero.
fn gather(
    ctx: &KernelContext<'_>,
    images: &[f32],
    input: Images,
    rows: &Spans,
    columns: &Spans,
    out: &mut Tensor,
) -> Result<()> {
    let total = input.batch * rows.len();
    let mut summed = ctx.zeros(DType::Float, Shape::new(&[total, input.row()])?)?;
    let source_row = input.row();
    let span = rows.weights.len() / rows.len().max(1) + 1;
    let cost = (source_row * span) as f64 * 0.3;
    for_each_rows(ctx, summed.as_mut_slice::<f32>()?, source_row, cost, |first, summed| {
        for (i, summed) in (first..).zip(summed.chunks_exact_mut(source_row)) {
            let (start, weights) = rows.get(i % rows.len());
            for (y, weight) in (start..).zip(weights) {
                let source = input.row_of(images, i / rows.len(), y);
                summed.iter_mut().zip(source).for_each(|(sum, x)| *sum += x * weight);
            }
        }
    })?;
    let summed = summed.as_slice::<f32>()?;
    let channels = input.channels;
    let row = columns.len() * channels;
    let span = columns.weights.len() / columns.len().max(1) + 1;
    let cost = (row * span) as f64;
    for_each_rows(ctx, out.as_mut_slice::<f32>()?, row, cost, |first, out| {
        for (i, out) in (first..).zip(out.chunks_exact_mut(row)) {
            let source = &summed[i * source_row..][..source_row];
            for (x, out) in out.chunks_exact_mut(channels).enumerate() {
                let (start, weights) = columns.get(x);
                let pixels = source[start * channels..].chunks_exact(channels);
                for (pixel, weight) in pixels.zip(weights) {
                    out.iter_mut().zip(pixel).for_each(|(sum, x)| *sum += x * weight);
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::call;
    use thalweg_tensor::Code;

    fn images(dims: &[usize]) -> Tensor {
        let data: Vec<f32> =
            (0..dims.iter().product()).map(|i: usize| (i * 37 % 101) as f32 / 50.0).collect();
        Tensor::from_slice(Shape::new(dims).unwrap(), &data).unwrap()
    }

    fn pair(x: f32, y: f32) -> Tensor {
        Tensor::vector(&[x, y]).unwrap()
    }

    #[test]
    fn the_gradient_is_adjoint() {
        for kernel in ["lanczos1", "lanczos3", "gaussian", "box", "triangle", "keyscubic"] {
            for (scale, moved) in [((0.4, 2.0), (0.3, -1.0)), ((1.5, 0.7), (2.5, 0.2))] {
                let (x, g) = (images(&[2, 5, 6, 2]), images(&[2, 4, 7, 2]));
                let y = call("ScaleAndTranslate")
                    .input(x.clone())
                    .input(Tensor::vector(&[4, 7]).unwrap())
                    .input(pair(scale.0, scale.1))
                    .input(pair(moved.0, moved.1))
                    .attr("kernel_type", kernel)
                    .run()
                    .unwrap();
                let back = call("ScaleAndTranslateGrad")
                    .input(g.clone())
                    .input(x.clone())
                    .input(pair(scale.0, scale.1))
                    .input(pair(moved.0, moved.1))
                    .attr("kernel_type", kernel)
                    .run()
                    .unwrap();
                let dot = |a: &Tensor, b: &Tensor| -> f32 {
                    let (a, b) = (a.as_slice::<f32>().unwrap(), b.as_slice::<f32>().unwrap());
                    a.iter().zip(b).map(|(a, b)| a * b).sum()
                };
                let (left, right) = (dot(&y, &g), dot(&x, &back));
                assert!((left - right).abs() < 1e-2, "{kernel}: {left} {right}");
            }
        }
    }

    #[test]
    fn hostile_scales() {
        let run = |scale: Tensor, moved: Tensor| {
            call("ScaleAndTranslate")
                .input(images(&[1, 3, 4, 1]))
                .input(Tensor::vector(&[2, 2]).unwrap())
                .input(scale)
                .input(moved)
                .run()
        };
        for bad in [0.0, -1.0, f32::NAN] {
            let error = run(pair(bad, 1.0), pair(0.0, 0.0)).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{bad}");
        }
        for odd in [f32::INFINITY, 1e30, 1e-30, f32::MIN_POSITIVE] {
            run(pair(odd, odd), pair(0.0, 0.0)).unwrap();
        }
        for odd in [f32::NAN, f32::INFINITY, -1e30, 1e30] {
            run(pair(1.0, 1.0), pair(odd, odd)).unwrap();
        }
        let three = Tensor::vector(&[1.0f32; 3]).unwrap();
        assert_eq!(run(three, pair(0.0, 0.0)).unwrap_err().code(), Code::InvalidArgument);
    }
}
