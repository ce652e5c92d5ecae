//! `ResizeBilinear`: resizing by bilinear interpolation.

use num_traits::AsPrimitive;
use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, Result, Tensor, bf16, f16};

use super::pixels::{IMAGE_TYPES, as_floats, table};
use super::resize::{
    Resizing, Sampling, Taps, resize_gradient, resized_shape, resizing_gradient, shape_of_original,
};
use super::resize_lowering;
use crate::math::vectorized::vectorized;
use crate::math::widen::Widen;
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        RESIZE_BILINEAR.with_gradient(|g| resize_gradient(g, "ResizeBilinearGrad")),
        RESIZE_BILINEAR_GRAD.without_gradient(),
    ],
    kernels: &[
        KernelSpec {
            op: "ResizeBilinear",
            constraints: &[("T", IMAGE_TYPES)],
            host_inputs: &["size"],
            create: resize_bilinear,
            ..KernelSpec::CPU
        },
        cpu_kernel!("ResizeBilinearGrad", "T" in [f32, f64, f16, bf16] => resize_bilinear_grad),
        KernelSpec::lowering("ResizeBilinear", |l| {
            resize_lowering::resize(l, |s, scale, x, size| taps(s, scale, x, size).list())
        })
        .for_dtypes(&[("T", IMAGE_TYPES)])
        .with_host_inputs(&["size"]),
        KernelSpec::lowering("ResizeBilinearGrad", |l| {
            resize_lowering::resize_gradient(l, |s, scale, x, size| taps(s, scale, x, size).list())
        }),
    ],
};

const RESIZE_BILINEAR: OpDef =
    OpDef::new("ResizeBilinear", resized_shape).with_work(Work::per_output::<90>);

const RESIZE_BILINEAR_GRAD: OpDef =
    OpDef::new("ResizeBilinearGrad", shape_of_original).with_work(Work::per_input::<300>);

/// Two neighboring pixels and the fractional distance of the sample from the first.
#[derive(Clone, Copy)]
struct Between {
    lower: usize,
    upper: usize,
    fraction: f32,
}

impl Between {
    fn new(place: f32, size: usize) -> Between {
        let last = size as i64 - 1;
        let upper = (place.ceil() as i64).min(last).max(0);
        let lower = (place.floor() as i64).max(0).min(upper);
        let fraction = place - place.floor();
        Between { lower: lower as usize, upper: upper as usize, fraction }
    }

    fn along(sampling: Sampling, scale: f32, from: usize, to: usize) -> Result<Vec<Between>> {
        table(to, |x| Between::new(sampling.place(x, scale), from))
    }
}

fn taps(sampling: Sampling, scale: f32, x: usize, size: usize) -> Taps<2> {
    let x = Between::new(sampling.place(x, scale), size);
    Taps { at: [x.lower, x.upper], weight: [1.0 - x.fraction, x.fraction] }
}

fn resize_bilinear(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let sampling = Sampling::from_attrs(init.attrs())?;
    AnyKernel::new(move |ctx| {
        let sizes = Resizing::new(ctx, sampling)?;
        let shape = sizes.output.shape()?;
        if sizes.input == sizes.output {
            let out = as_floats(ctx, 0)?;
            return ctx.set_output(0, out);
        }
        let mut out = ctx.allocate(DType::Float, shape)?;
        if out.num_elements() > 0 {
            interpolate(ctx, &sizes, sampling, &mut out)?;
        }
        ctx.set_output(0, out)
    })
}

fn interpolate(
    ctx: &KernelContext<'_>,
    sizes: &Resizing,
    sampling: Sampling,
    out: &mut Tensor,
) -> Result<()> {
    let Resizing { input, output, height_scale, width_scale } = *sizes;
    let images = as_floats(ctx, 0)?;
    let images = images.as_slice::<f32>()?;
    let rows = Between::along(sampling, height_scale, input.height, output.height)?;
    let columns = Between::along(sampling, width_scale, input.width, output.width)?;
    let (row, channels) = (output.row(), output.channels);
    let cost = 1.5 * row as f64 + 10.0;
    for_each_rows(ctx, out.as_mut_slice::<f32>()?, row, cost, |first, out| {
        for (i, out) in (first..).zip(out.chunks_exact_mut(row)) {
            let (image, y) = (i / output.height, rows[i % output.height]);
            let top = input.row_of(images, image, y.lower);
            let bottom = input.row_of(images, image, y.upper);
            match channels {
                1 => one_row::<1>(top, bottom, y.fraction, &columns, out),
                3 => one_row::<3>(top, bottom, y.fraction, &columns, out),
                4 => one_row::<4>(top, bottom, y.fraction, &columns, out),
                _ => any_row(top, bottom, y.fraction, &columns, channels, out),
            }
        }
    })
}

#[inline(always)]
fn mix(a: f32, b: f32, fraction: f32) -> f32 {
    a + (b - a) * fraction
}

/// A row of pixels with `C` channels.
fn one_row<const C: usize>(
    top: &[f32],
    bottom: &[f32],
    fraction: f32,
    columns: &[Between],
    out: &mut [f32],
) {
    let (top, bottom) = (top.as_chunks::<C>().0, bottom.as_chunks::<C>().0);
    for (out, x) in out.as_chunks_mut::<C>().0.iter_mut().zip(columns) {
        let (tl, tr) = (&top[x.lower], &top[x.upper]);
        let (bl, br) = (&bottom[x.lower], &bottom[x.upper]);
        for c in 0..C {
            let upper = mix(tl[c], tr[c], x.fraction);
            let lower = mix(bl[c], br[c], x.fraction);
            out[c] = mix(upper, lower, fraction);
        }
    }
}

vectorized! {
    fn any_row<L>(
        top: &[f32],
        bottom: &[f32],
        fraction: f32,
        columns: &[Between],
        channels: usize,
        out: &mut [f32],
    ) {
        for (out, x) in out.chunks_exact_mut(channels).zip(columns) {
            let (left, right) = (x.lower * channels, x.upper * channels);
            let (tl, tr) = (&top[left..left + channels], &top[right..right + channels]);
            let (bl, br) = (&bottom[left..left + channels], &bottom[right..right + channels]);
            for c in 0..channels {
                let upper = mix(tl[c], tr[c], x.fraction);
                let lower = mix(bl[c], br[c], x.fraction);
                out[c] = mix(upper, lower, fraction);
            }
        }
    }
}

fn resize_bilinear_grad<T>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T: Widen,
    f32: AsPrimitive<T::Wide>,
    T::Wide: std::ops::AddAssign,
{
    resizing_gradient::<T, 2>(init, taps)
}
