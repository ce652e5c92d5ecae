//! `ResizeBicubic`: resizing by cubic interpolation.

use std::sync::LazyLock;

use num_traits::AsPrimitive;
use parking_lot::Mutex;
use thalweg_graph::{GradientContext, OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, Result, Shape, Tensor};

use super::pixels::{IMAGE_TYPES, as_floats, table};
use super::resize::{
    Resizing, Sampling, Taps, resize_gradient, resized_shape, resizing_gradient, shape_of_original,
};
use super::resize_lowering;
use crate::math::vectorized::vectorized;
use crate::math::widen::Widen;
use crate::split::Disjoint;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        RESIZE_BICUBIC.with_gradient(bicubic_gradient),
        OpDef::new("ResizeBicubicGrad", shape_of_original).with_work(Work::per_input::<1000>),
    ],
    kernels: &[
        KernelSpec {
            op: "ResizeBicubic",
            constraints: &[("T", IMAGE_TYPES)],
            host_inputs: &["size"],
            create: resize_bicubic,
            ..KernelSpec::CPU
        },
        cpu_kernel!("ResizeBicubicGrad", "T" in [f32, f64] => resize_bicubic_grad),
        KernelSpec::lowering("ResizeBicubic", |l| {
            resize_lowering::resize(l, |s, scale, x, size| taps(s, scale, x, size).list())
        })
        .for_dtypes(&[("T", IMAGE_TYPES)])
        .with_host_inputs(&["size"]),
        KernelSpec::lowering("ResizeBicubicGrad", |l| {
            resize_lowering::resize_gradient(l, |s, scale, x, size| taps(s, scale, x, size).list())
        }),
    ],
};

const RESIZE_BICUBIC: OpDef =
    OpDef::new("ResizeBicubic", resized_shape).with_work(Work::per_output::<100>);

/// The gradient is defined for single and double precision only.
fn bicubic_gradient(g: &mut GradientContext<'_>) -> Result<()> {
    match g.dtype(g.input(0)) {
        DType::Float | DType::Double => resize_gradient(g, "ResizeBicubicGrad"),
        _ => Ok(()),
    }
}

/// Fractional positions between two pixels for which weights are tabulated.
const STEPS: usize = 1024;

/// For each fractional position: the weights of the nearer and of the farther pixel on one side.
type Weights = Vec<[f32; 2]>;

/// Tabulates the cubic kernel with parameter `slope`.
fn weights(slope: f64) -> Weights {
    let at = |i: usize| {
        let near = i as f64 / STEPS as f64;
        let far = near + 1.0;
        let near_weight = ((slope + 2.0) * near - (slope + 3.0)) * near * near + 1.0;
        let far_weight = ((slope * far - 5.0 * slope) * far + 8.0 * slope) * far - 4.0 * slope;
        [near_weight as f32, far_weight as f32]
    };
    (0..=STEPS).map(at).collect()
}

/// For `align_corners` and legacy sampling.
static CORNER_WEIGHTS: LazyLock<Weights> = LazyLock::new(|| weights(-0.75));
/// For `half_pixel_centers`: the Keys cubic.
static KEYS_WEIGHTS: LazyLock<Weights> = LazyLock::new(|| weights(-0.5));

fn taps(sampling: Sampling, scale: f32, x: usize, size: usize) -> Taps<4> {
    let place = sampling.place(x, scale);
    let base = place.floor();
    let step = ((place - base) * STEPS as f32).round_ties_even() as usize;
    let step = step.min(STEPS);
    let table: &Weights = if sampling.half_pixel_centers { &KEYS_WEIGHTS } else { &CORNER_WEIGHTS };
    let [near, far] = table[step];
    let [opposite_near, opposite_far] = table[STEPS - step];
    let mut weight = [far, near, opposite_near, opposite_far];
    let wanted = [-1, 0, 1, 2].map(|offset| base as i64 + offset);
    let at = wanted.map(|x| x.clamp(0, size as i64 - 1));
    if sampling.half_pixel_centers {
        // Pixels outside the image have weight zero; the other weights are normalized.
        for k in 0..4 {
            if at[k] != wanted[k] {
                weight[k] = 0.0;
            }
        }
        let sum: f32 = weight.iter().sum();
        if sum.abs() >= 1000.0 * f32::MIN_POSITIVE {
            weight = weight.map(|w| w * (1.0 / sum));
        }
    }
    Taps { at: at.map(|x| x as usize), weight }
}

fn resize_bicubic(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let sampling = Sampling::from_attrs(init.attrs())?;
    AnyKernel::new(move |ctx| {
        let sizes = Resizing::new(ctx, sampling)?;
        let mut out = ctx.allocate(DType::Float, sizes.output.shape()?)?;
        if out.num_elements() > 0 {
            interpolate(ctx, &sizes, sampling, &mut out)?;
        }
        ctx.set_output(0, out)
    })
}

/// Computes output rows: sums four input rows into one, then sums columns. If few columns are
/// needed, only those are summed.
fn interpolate(
    ctx: &KernelContext<'_>,
    sizes: &Resizing,
    sampling: Sampling,
    out: &mut Tensor,
) -> Result<()> {
    let Resizing { input, output, height_scale, width_scale } = *sizes;
    let images = as_floats(ctx, 0)?;
    let images = images.as_slice::<f32>()?;
    let rows = table(output.height, |y| taps(sampling, height_scale, y, input.height))?;
    let columns = table(output.width, |x| taps(sampling, width_scale, x, input.width))?;
    let is_whole = input.width <= 4 * output.width;
    let (row, scratch_len) =
        (output.row(), if is_whole { input.row() } else { 4 * input.channels });
    let failure = Mutex::new(None);
    let out = Disjoint::new(out.as_mut_slice::<f32>()?);
    ctx.parallel_for(output.batch * output.height, 4.0 * row as f64 + 10.0, |range| {
        let scratch = Shape::new(&[scratch_len]).and_then(|s| ctx.allocate(DType::Float, s));
        let result = scratch.and_then(|mut scratch| {
            let scratch = scratch.as_mut_slice::<f32>()?;
            for i in range {
                // SAFETY: `parallel_for` hands out every row once.
                let out = unsafe { out.part(i * row..(i + 1) * row) };
                let y = &rows[i % output.height];
                let sources = y.at.map(|at| input.row_of(images, i / output.height, at));
                if is_whole {
                    sum_rows(sources, y.weight, scratch);
                    sum_columns(scratch, &columns, output.channels, out);
                } else {
                    sum_squares(sources, y.weight, &columns, scratch, out);
                }
            }
            Ok(())
        });
        if let Err(e) = result {
            *failure.lock() = Some(e);
        }
    })?;
    failure.into_inner().map_or(Ok(()), Err)
}

/// An output row from four input rows, pixel by pixel.
fn sum_squares(
    sources: [&[f32]; 4],
    weight: [f32; 4],
    columns: &[Taps<4>],
    scratch: &mut [f32],
    out: &mut [f32],
) {
    let channels = scratch.len() / 4;
    for (out, taps) in out.chunks_exact_mut(channels).zip(columns) {
        for (summed, at) in scratch.chunks_exact_mut(channels).zip(taps.at) {
            sum_rows(sources.map(|row| &row[at * channels..][..channels]), weight, summed);
        }
        let pixels = [0, 1, 2, 3].map(|k| &scratch[k * channels..][..channels]);
        sum_rows(pixels, taps.weight, out);
    }
}

/// An output row from the weighted sum of its four input rows.
fn sum_columns(source: &[f32], columns: &[Taps<4>], channels: usize, out: &mut [f32]) {
    match channels {
        1 => sum_pixels::<1>(source, columns, out),
        3 => sum_pixels::<3>(source, columns, out),
        4 => sum_pixels::<4>(source, columns, out),
        _ => {
            for (out, taps) in out.chunks_exact_mut(channels).zip(columns) {
                let pixels = taps.at.map(|at| &source[at * channels..][..channels]);
                sum_rows(pixels, taps.weight, out);
            }
        }
    }
}

vectorized! {
    fn sum_rows<L>(sources: [&[f32]; 4], weight: [f32; 4], out: &mut [f32]) {
        let [a, b, c, d] = sources.map(|source| &source[..out.len()]);
        for (i, out) in out.iter_mut().enumerate() {
            *out = a[i] * weight[0] + b[i] * weight[1] + c[i] * weight[2] + d[i] * weight[3];
        }
    }
}

fn sum_pixels<const C: usize>(source: &[f32], columns: &[Taps<4>], out: &mut [f32]) {
    let source = source.as_chunks::<C>().0;
    for (out, taps) in out.as_chunks_mut::<C>().0.iter_mut().zip(columns) {
        let pixels = taps.at.map(|at| &source[at]);
        for c in 0..C {
            out[c] = pixels[0][c] * taps.weight[0]
                + pixels[1][c] * taps.weight[1]
                + pixels[2][c] * taps.weight[2]
                + pixels[3][c] * taps.weight[3];
        }
    }
}

fn resize_bicubic_grad<T>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T: Widen,
    f32: AsPrimitive<T::Wide>,
    T::Wide: std::ops::AddAssign,
{
    resizing_gradient::<T, 4>(init, taps)
}
