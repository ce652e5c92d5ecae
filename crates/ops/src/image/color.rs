//! Color ops: contrast, hue, saturation, RGB to HSV and back.

use half::{bf16, f16};
use thalweg_graph::{GradientContext, OpDef, Output, ShapeContext, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, Element, PartialShape, Result, Shape, Tensor, bail, ensure};

use super::color_lowering;
use super::pixels::as_floats;
use crate::math::real::Real;
use crate::math::widen::Widen;
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("AdjustContrast", adjusted_shape).with_work(Work::per_output::<200>),
        ADJUST_CONTRAST_V2,
        ADJUST_HUE,
        ADJUST_SATURATION,
        RGB_TO_HSV.with_gradient(rgb_to_hsv_gradient),
        HSV_TO_RGB.without_gradient(),
    ],
    kernels: &[
        KernelSpec {
            op: "AdjustContrast",
            constraints: &[(
                "T",
                &[
                    DType::UInt8,
                    DType::Int8,
                    DType::Int16,
                    DType::Int32,
                    DType::Float,
                    DType::Double,
                ],
            )],
            create: adjust_contrast,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "AdjustContrastv2",
            constraints: &[("T", &[DType::Float])],
            create: adjust_contrast,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "AdjustHue",
            constraints: &[("T", &[DType::Float])],
            create: adjust_hue,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "AdjustSaturation",
            constraints: &[("T", &[DType::Float])],
            create: adjust_saturation,
            ..KernelSpec::CPU
        },
        cpu_kernel!("RGBToHSV", "T" in [f32, f64, f16, bf16] => rgb_to_hsv),
        cpu_kernel!("HSVToRGB", "T" in [f32, f64, f16, bf16] => hsv_to_rgb),
        KernelSpec::lowering("AdjustContrast", color_lowering::adjust_contrast),
        KernelSpec::lowering("AdjustContrastv2", color_lowering::adjust_contrast),
        KernelSpec::lowering("AdjustHue", color_lowering::adjust_hue),
        KernelSpec::lowering("AdjustSaturation", color_lowering::adjust_saturation),
        KernelSpec::lowering("RGBToHSV", color_lowering::rgb_to_hsv),
        KernelSpec::lowering("HSVToRGB", color_lowering::hsv_to_rgb),
    ],
};

const ADJUST_CONTRAST_V2: OpDef =
    OpDef::new("AdjustContrastv2", adjusted_shape).with_work(Work::per_output::<200>);

const ADJUST_HUE: OpDef =
    OpDef { name: "AdjustHue", work: Work::per_output::<450>, ..ADJUST_CONTRAST_V2 };

const ADJUST_SATURATION: OpDef =
    OpDef { name: "AdjustSaturation", work: Work::per_output::<450>, ..ADJUST_CONTRAST_V2 };

const RGB_TO_HSV: OpDef = OpDef::new("RGBToHSV", colors_shape).with_work(Work::per_output::<140>);

const HSV_TO_RGB: OpDef = OpDef { name: "HSVToRGB", ..RGB_TO_HSV };

fn adjusted_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank_at_least(0, "images", 3)?;
    shape::unchanged(c)
}

/// The last dimension is three.
fn colors_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let images = c.with_rank_at_least(0, "images", 1)?;
    let shape = match images.dims() {
        None => PartialShape::unknown(),
        Some(dims) => {
            let (&last, outer) = dims.split_last().unwrap_or((&None, &[]));
            ensure!(
                last.is_none_or(|n| n == 3),
                InvalidArgument,
                "images must have 3 channels, got shape {images}"
            );
            PartialShape::new(outer.iter().copied().chain([Some(3)]))
        }
    };
    c.set_output(0, shape);
    Ok(())
}

/// With `max` and `min` of the channels and `span` their difference: value is `max`, saturation
/// `span / max`, hue `(difference of the other two) / (6 span)` plus a constant.
fn rgb_to_hsv_gradient(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, images, hsv) = (g.grad(0)?, g.input(0), g.output(0));
    let rgb = channels(g, images)?;
    let (of_hsv, max) = (channels(g, grad)?, channels(g, hsv)?[2]);
    let [red, green, blue] = rgb;
    let is_max = [
        mask(g, ("GreaterEqual", red, green), ("GreaterEqual", red, blue))?,
        mask(g, ("Greater", green, red), ("GreaterEqual", green, blue))?,
        mask(g, ("Greater", blue, red), ("Greater", blue, green))?,
    ];
    let is_min = [
        mask(g, ("Less", red, green), ("Less", red, blue))?,
        mask(g, ("LessEqual", green, red), ("Less", green, blue))?,
        mask(g, ("LessEqual", blue, red), ("LessEqual", blue, green))?,
    ];
    let min = g.add("Minimum", &[red, green])?;
    let min = g.add("Minimum", &[min, blue])?;
    let span = g.add("Sub", &[max, min])?;
    let six = g.number_like(span, 6.0)?;
    let six_spans = g.add("Mul", &[six, span])?;
    // The sum of hue's numerator over the channels, masked by which channel is the maximum.
    let mut distance = None;
    for i in 0..3 {
        let between = g.add("Sub", &[rgb[(i + 1) % 3], rgb[(i + 2) % 3]])?;
        let part = g.add("Mul", &[is_max[i], between])?;
        distance = Some(match distance {
            None => part,
            Some(sum) => g.add("AddV2", &[sum, part])?,
        });
    }
    let distance = distance.unwrap_or(span);
    let mut results = [grad; 3];
    for i in 0..3 {
        let of_span = g.add("Sub", &[is_max[i], is_min[i]])?;
        let of_distance = g.add("Sub", &[is_max[(i + 2) % 3], is_max[(i + 1) % 3]])?;
        let value = g.add("Mul", &[of_hsv[2], is_max[i]])?;
        let saturation = quotient_slope(g, (span, of_span), (max, is_max[i]))?;
        let saturation = g.add("Mul", &[of_hsv[1], saturation])?;
        let six_of_span = g.add("Mul", &[six, of_span])?;
        let hue = quotient_slope(g, (distance, of_distance), (six_spans, six_of_span))?;
        let hue = g.add("Mul", &[of_hsv[0], hue])?;
        results[i] = g.add("AddN", &[value, saturation, hue])?;
    }
    let axis = g.int(-1)?;
    let adjoint = g.op("ConcatV2").inputs(&results).input(axis).build()?;
    g.set(0, adjoint)
}

/// The three channels, each with a last dimension of size 1.
fn channels(g: &mut GradientContext<'_>, images: Output) -> Result<[Output; 3]> {
    let axis = g.int(-1)?;
    let parts = g.op("Split").inputs(&[axis, images]).attr("num_split", 3i64).build_all()?;
    match parts[..] {
        [a, b, c] => Ok([a, b, c]),
        _ => bail!(Internal, "a split into three gave {}", parts.len()),
    }
}

/// One where both comparisons hold, else zero.
fn mask(
    g: &mut GradientContext<'_>,
    (first, a, b): (&str, Output, Output),
    (second, c, d): (&str, Output, Output),
) -> Result<Output> {
    let (first, second) = (g.add(first, &[a, b])?, g.add(second, &[c, d])?);
    let both = g.add("LogicalAnd", &[first, second])?;
    let dtype = g.dtype(a);
    g.cast(both, dtype)
}

/// The derivative of `x / y` from those of `x` and `y`; zero where `y` is zero.
fn quotient_slope(
    g: &mut GradientContext<'_>,
    (x, of_x): (Output, Output),
    (y, of_y): (Output, Output),
) -> Result<Output> {
    let (left, right) = (g.add("Mul", &[of_x, y])?, g.add("Mul", &[x, of_y])?);
    let (top, bottom) = (g.add("Sub", &[left, right])?, g.add("Mul", &[y, y])?);
    g.add("DivNoNan", &[top, bottom])
}

/// The scalar in input `i`.
fn number(ctx: &KernelContext<'_>, i: usize, name: &str) -> Result<f32> {
    let tensor = ctx.input(i)?;
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "{name} must be scalar, got shape {}",
        tensor.shape()
    );
    tensor.scalar_value()
}

fn check_images(ctx: &KernelContext<'_>) -> Result<Shape> {
    let shape = ctx.input(0)?.shape().clone();
    ensure!(shape.rank() >= 3, InvalidArgument, "input must be at least 3-D, got shape {shape}");
    Ok(shape)
}

/// Rows of pixels that are summed separately, so that many small images and one large image
/// parallelize alike.
const BAND: usize = 16;

/// Scales the distance of values from their channel's mean, image by image; the V1 op then clamps
/// them.
fn adjust_contrast(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let is_limited = init.node.op.name == "AdjustContrast";
    AnyKernel::new(move |ctx| {
        let shape = check_images(ctx)?;
        let factor = number(ctx, 1, "contrast_factor")?;
        let limits = match is_limited {
            true => Some((number(ctx, 2, "min_value")?, number(ctx, 3, "max_value")?)),
            false => None,
        };
        let rank = shape.rank();
        let (height, row, channels) =
            (shape[rank - 3], shape[rank - 2] * shape[rank - 1], shape[rank - 1]);
        let mut out = floats_to_change(ctx, &shape)?;
        if out.num_elements() == 0 {
            return ctx.set_output(0, out);
        }
        let images = out.num_elements() / (height * row);
        let means = channel_means(ctx, out.as_slice()?, [images, height, row, channels])?;
        let means = means.as_slice::<f32>()?;
        for_each_rows(ctx, out.as_mut_slice::<f32>()?, row, row as f64, |first, out| {
            for (i, out) in (first..).zip(out.chunks_exact_mut(row)) {
                let means = &means[i / height * channels..][..channels];
                for pixel in out.chunks_exact_mut(channels) {
                    for (x, mean) in pixel.iter_mut().zip(means) {
                        *x = (*x - mean) * factor + mean;
                    }
                }
                if let Some((min, max)) = limits {
                    out.iter_mut().for_each(|x| *x = x.max(min).min(max));
                }
            }
        })?;
        ctx.set_output(0, out)
    })
}

/// The first input as mutable `f32`.
fn floats_to_change(ctx: &mut KernelContext<'_>, shape: &Shape) -> Result<Tensor> {
    if ctx.input(0)?.dtype() != DType::Float {
        return as_floats(ctx, 0);
    }
    let (mut out, taken) = ctx.forward_input_or_allocate(&[0], DType::Float, shape)?;
    if taken.is_none() {
        let source = ctx.slice::<f32>(0)?;
        for_each_rows(ctx, out.as_mut_slice::<f32>()?, 1, 0.3, |first, out| {
            out.copy_from_slice(&source[first..first + out.len()]);
        })?;
    }
    Ok(out)
}

/// The mean of each channel of each image. Bands of rows are summed in parallel, then each image's
/// bands in order.
fn channel_means(
    ctx: &KernelContext<'_>,
    data: &[f32],
    [images, height, row, channels]: [usize; 4],
) -> Result<Tensor> {
    let bands = height.div_ceil(BAND);
    let mut sums = ctx.zeros(DType::Double, Shape::new(&[images, bands, channels])?)?;
    let cost = (BAND * row) as f64;
    for_each_rows(ctx, sums.as_mut_slice::<f64>()?, channels, cost, |first, sums| {
        for (i, sums) in (first..).zip(sums.chunks_exact_mut(channels)) {
            let (image, band) = (i / bands, i % bands);
            let rows = band * BAND..((band + 1) * BAND).min(height);
            let start = (image * height + rows.start) * row;
            for pixel in data[start..start + rows.len() * row].chunks_exact(channels) {
                sums.iter_mut().zip(pixel).for_each(|(sum, &x)| *sum += f64::from(x));
            }
        }
    })?;
    let sums = sums.as_slice::<f64>()?;
    let mut means = ctx.zeros(DType::Float, Shape::new(&[images, channels])?)?;
    let pixels = (height * row / channels) as f64;
    for (image, means) in means.as_mut_slice::<f32>()?.chunks_exact_mut(channels).enumerate() {
        for (c, mean) in means.iter_mut().enumerate() {
            let of_bands = (0..bands).map(|band| sums[(image * bands + band) * channels + c]);
            *mean = (of_bands.sum::<f64>() / pixels) as f32;
        }
    }
    Ok(means)
}

/// Sets output 0 to the images with a function applied to every pixel's three channels.
fn each_pixel(
    ctx: &mut KernelContext<'_>,
    nanoseconds: f64,
    change: impl Fn([f32; 3]) -> [f32; 3] + Sync,
) -> Result<()> {
    let shape = ctx.input(0)?.shape().clone();
    let mut out = floats_to_change(ctx, &shape)?;
    for_each_rows(ctx, out.as_mut_slice::<f32>()?, 3, nanoseconds, |_, out| {
        out.as_chunks_mut::<3>().0.iter_mut().for_each(|pixel| *pixel = change(*pixel));
    })?;
    ctx.set_output(0, out)
}

fn check_three_channels(shape: &Shape) -> Result<()> {
    let channels = shape.last().copied().unwrap_or(0);
    ensure!(
        channels == 3,
        InvalidArgument,
        "input must have 3 channels but instead has {channels} channels"
    );
    Ok(())
}

fn adjust_hue(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let shape = check_images(ctx)?;
        let delta = number(ctx, 1, "delta")?;
        check_three_channels(&shape)?;
        each_pixel(ctx, 15.0, |pixel| shift_hue(pixel, delta * 6.0))
    })
}

/// The order of channels from largest to smallest in each sextant of the hue circle.
const SEXTANTS: [[usize; 3]; 6] =
    [[0, 1, 2], [1, 0, 2], [1, 2, 0], [2, 1, 0], [2, 0, 1], [0, 2, 1]];

/// A pixel with its hue shifted by `delta` sextants.
fn shift_hue(pixel: [f32; 3], delta: f32) -> [f32; 3] {
    let [r, g, b] = pixel;
    let sextant = if r < g {
        if b < r {
            1
        } else if b > g {
            3
        } else {
            2
        }
    } else if b < g {
        0
    } else if b > r {
        4
    } else {
        5
    };
    let [max, mid, min] = SEXTANTS[sextant].map(|c| pixel[c]);
    let mut hue = 0.0;
    if max != min {
        let ratio = (mid - min) / (max - min);
        hue = sextant as f32 + if sextant % 2 == 0 { ratio } else { 1.0 - ratio };
    }
    hue = wrap_hue(hue + delta);
    let sextant = (hue as usize).min(5);
    let ratio = hue - sextant as f32;
    let ratio = if sextant.is_multiple_of(2) { ratio } else { 1.0 - ratio };
    let mut changed = [0.0; 3];
    let values = [max, min + ratio * (max - min), min];
    for (c, value) in SEXTANTS[sextant].into_iter().zip(values) {
        changed[c] = value;
    }
    changed
}

/// The hue reduced to [0, 6). Small values are reduced stepwise, with TensorFlow's rounding.
fn wrap_hue(mut hue: f32) -> f32 {
    if hue.abs() > 600.0 {
        hue = hue.rem_euclid(6.0);
    }
    while hue < 0.0 {
        hue += 6.0;
    }
    while hue >= 6.0 {
        hue -= 6.0;
    }
    hue
}

fn adjust_saturation(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let shape = check_images(ctx)?;
        let scale = number(ctx, 1, "scale")?;
        check_three_channels(&shape)?;
        each_pixel(ctx, 15.0, |pixel| scale_saturation(pixel, scale))
    })
}

/// A pixel with its saturation multiplied by `scale`.
fn scale_saturation([r, g, b]: [f32; 3], scale: f32) -> [f32; 3] {
    let value = r.max(g).max(b);
    let range = value - r.min(g).min(b);
    let saturation = if value > 0.0 { range / value } else { 0.0 };
    let norm = 1.0 / (6.0 * range);
    let mut hue = if r == value {
        norm * (g - b)
    } else if g == value {
        norm * (b - r) + 2.0 / 6.0
    } else {
        norm * (r - g) + 4.0 / 6.0
    };
    if range <= 0.0 {
        hue = 0.0;
    }
    if hue < 0.0 {
        hue += 1.0;
    }
    let saturation = (saturation * scale).clamp(0.0, 1.0);
    let chroma = saturation * value;
    let rest = value - chroma;
    let sixths = hue * 6.0;
    let middle = chroma * (1.0 - (wrap_to_two(sixths) - 1.0).abs());
    let mut changed = [rest; 3];
    if let Some(&[max, mid, _]) = SEXTANTS.get(sixths as usize) {
        changed[max] += chroma;
        changed[mid] += middle;
    }
    changed
}

/// A number of sextants reduced to [0, 2).
fn wrap_to_two(mut x: f32) -> f32 {
    if x <= 0.0 {
        x += 2.0;
    }
    while (2.0..16.0).contains(&x) {
        x -= 2.0;
    }
    x
}

fn check_colors(ctx: &KernelContext<'_>) -> Result<()> {
    let shape = ctx.input(0)?.shape();
    let Some(&channels) = shape.last() else {
        bail!(InvalidArgument, "input must be at least 1-D, got shape {shape}");
    };
    ensure!(
        channels == 3,
        FailedPrecondition,
        "input must have 3 channels but input only has {channels} channels."
    );
    Ok(())
}

/// Converts colors in the wide type, pixel by pixel.
///
/// Blocks must not split a pixel, so 16-bit floats are widened as whole tensors.
fn convert<T>(ctx: &mut KernelContext<'_>, work: fn(&mut [T::Wide; 3])) -> Result<()>
where
    T: Widen,
{
    check_colors(ctx)?;
    if T::DTYPE == T::Wide::DTYPE {
        let shape = ctx.input(0)?.shape().clone();
        let (mut out, taken) = ctx.forward_input_or_allocate(&[0], T::DTYPE, &shape)?;
        let source = if taken.is_some() { None } else { Some(ctx.slice::<T::Wide>(0)?) };
        for_each_rows(ctx, out.as_mut_slice::<T::Wide>()?, 3, 12.0, |first, out| {
            if let Some(source) = source {
                out.copy_from_slice(&source[first * 3..][..out.len()]);
            }
            out.as_chunks_mut::<3>().0.iter_mut().for_each(work);
        })?;
        return ctx.set_output(0, out);
    }
    let mut wide = crate::map::wide_view::<T>(ctx, 0)?;
    for_each_rows(ctx, wide.as_mut_slice::<T::Wide>()?, 3, 12.0, |_, out| {
        out.as_chunks_mut::<3>().0.iter_mut().for_each(work);
    })?;
    let out = crate::map::narrowed::<T>(ctx, wide)?;
    ctx.set_output(0, out)
}

fn rgb_to_hsv<T: Widen<Wide: Real>>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| convert::<T>(ctx, to_hsv::<T::Wide>))
}

fn hsv_to_rgb<T: Widen<Wide: Real>>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| convert::<T>(ctx, to_rgb::<T::Wide>))
}

/// Red, green, blue into hue, saturation, value.
fn to_hsv<A: Real>(pixel: &mut [A; 3]) {
    let [r, g, b] = *pixel;
    let (zero, one) = (A::zero(), A::one());
    let value = r.max(g).max(b);
    let range = value - r.min(g).min(b);
    let saturation = if value > zero { range / value } else { zero };
    let norm = one / range * A::of(1.0 / 6.0);
    let mut hue = if r == value {
        norm * (g - b)
    } else if g == value {
        norm * (b - r) + A::of(2.0 / 6.0)
    } else {
        norm * (r - g) + A::of(4.0 / 6.0)
    };
    if range <= zero {
        hue = zero;
    }
    if hue < zero {
        hue += one;
    }
    *pixel = [hue, saturation, value];
}

/// Hue, saturation, value into red, green, blue.
fn to_rgb<A: Real>(pixel: &mut [A; 3]) {
    let [hue, saturation, value] = *pixel;
    let (zero, one, two) = (A::zero(), A::one(), A::of(2.0));
    let sixths = hue * A::of(6.0);
    let within = |x: A| {
        if x < zero {
            zero
        } else if x > one {
            one
        } else {
            x
        }
    };
    let shares = [
        within((sixths - A::of(3.0)).abs() - one),
        within(two - (sixths - two).abs()),
        within(two - (sixths - A::of(4.0)).abs()),
    ];
    *pixel = shares.map(|share| (one - saturation + saturation * share) * value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::call;
    use thalweg_tensor::Code;

    fn tensor(dims: &[usize], data: &[f32]) -> Tensor {
        Tensor::from_slice(Shape::new(dims).unwrap(), data).unwrap()
    }

    #[test]
    fn there_and_back() {
        let mut state = 7u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32
        };
        for _ in 0..2000 {
            let color = [next(), next(), next()];
            let mut same = color;
            to_hsv(&mut same);
            to_rgb(&mut same);
            let close = color.iter().zip(same).all(|(a, b)| (a - b).abs() < 1e-5);
            assert!(close, "{color:?} {same:?}");
            let turned_back = shift_hue(shift_hue(color, 2.3), -2.3);
            let close = color.iter().zip(turned_back).all(|(a, b)| (a - b).abs() < 1e-5);
            assert!(close, "{color:?} {turned_back:?}");
            let same = scale_saturation(color, 1.0);
            let close = color.iter().zip(same).all(|(a, b)| (a - b).abs() < 1e-5);
            assert!(close, "{color:?} {same:?}");
        }
    }

    #[test]
    fn endless_turns_end() {
        for delta in [1e30f32, -1e30, f32::INFINITY, f32::NAN] {
            shift_hue([0.1, 0.7, 0.3], delta);
            scale_saturation([0.1, 0.7, 0.3], delta);
        }
        scale_saturation([f32::NAN, f32::INFINITY, -1.0], 2.0);
    }

    #[test]
    fn contrast_keeps_the_mean() {
        let data: Vec<f32> = (0..2 * 40 * 3 * 2).map(|i| (i % 17) as f32).collect();
        let images = tensor(&[2, 40, 3, 2], &data);
        let got =
            call("AdjustContrastv2").input(images).input(Tensor::scalar(0.0f32)).run().unwrap();
        let got = got.as_slice::<f32>().unwrap();
        let mean: f32 = data[..240].iter().step_by(2).sum::<f32>() / 120.0;
        assert!(got[..240].iter().step_by(2).all(|x| (x - mean).abs() < 1e-4));
    }

    #[test]
    fn hostile_inputs() {
        let image = || tensor(&[1, 1, 1, 3], &[0.1, 0.2, 0.3]);
        for op in ["AdjustContrastv2", "AdjustHue", "AdjustSaturation"] {
            let vector = tensor(&[1], &[1.0]);
            let error = call(op).input(image()).input(vector).run().unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{op}");
            let flat = tensor(&[3], &[0.0; 3]);
            let error = call(op).input(flat).input(Tensor::scalar(1.0f32)).run().unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{op}");
            let none = tensor(&[2, 0, 5, 3], &[]);
            let empty = call(op).input(none).input(Tensor::scalar(1.0f32)).run().unwrap();
            assert_eq!(empty.shape().dims(), [2, 0, 5, 3]);
        }
        for op in ["RGBToHSV", "HSVToRGB"] {
            let error = call(op).input(tensor(&[2], &[0.0; 2])).run().unwrap_err();
            assert_eq!(error.code(), Code::FailedPrecondition, "{op}");
            let error = call(op).input(Tensor::scalar(1.0f32)).run().unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{op}");
            assert_eq!(call(op).shape(DType::Float, "2,?").infer(), "[2,3]");
        }
    }
}
