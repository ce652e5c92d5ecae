//! `ResizeArea`: resizing by area averages.

use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, Result, Tensor};

use super::pixels::{IMAGE_TYPES, as_floats, table};
use super::resize::{Resizing, Sampling, resized_shape};
use super::resize_lowering;
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("ResizeArea", resized_shape).with_work(Work::per_output::<500>)],
    kernels: &[
        KernelSpec {
            op: "ResizeArea",
            constraints: &[("T", IMAGE_TYPES)],
            host_inputs: &["size"],
            create: resize_area,
            ..KernelSpec::CPU
        },
        KernelSpec::lowering("ResizeArea", |l| {
            resize_lowering::resize(l, |_, scale, x, size| {
                let pixels = Cover::new(x, scale);
                pixels.pixels(size).map(|(at, share)| (at, share / scale)).collect()
            })
        })
        .for_dtypes(&[("T", IMAGE_TYPES)])
        .with_host_inputs(&["size"]),
    ],
};

/// The pixels of the input along one axis that an output pixel covers: the inner ones wholly, the
/// first and the last partly.
#[derive(Clone, Copy)]
struct Cover {
    start: i64,
    end: i64,
    first: f32,
    last: f32,
}

impl Cover {
    fn new(x: usize, scale: f32) -> Cover {
        let from = x as f32 * scale;
        let to = (x + 1) as f32 * scale;
        let (start, end) = (from.floor() as i64, to.ceil() as i64);
        let share = |pixel: i64| {
            let pixel = pixel as f32;
            if pixel < from {
                if pixel + 1.0 > to { scale } else { pixel + 1.0 - from }
            } else if pixel + 1.0 > to {
                to - pixel
            } else {
                1.0
            }
        };
        Cover { start, end, first: share(start), last: share(end - 1) }
    }

    /// Each pixel index, clamped to an axis of `size`, with its covered fraction.
    fn pixels(&self, size: usize) -> impl Iterator<Item = (usize, f32)> + '_ {
        (self.start..self.end).map(move |i| {
            let share = if i == self.start {
                self.first
            } else if i == self.end - 1 {
                self.last
            } else {
                1.0
            };
            (i.clamp(0, size as i64 - 1) as usize, share)
        })
    }
}

fn resize_area(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let sampling = Sampling::from_attrs(init.attrs())?;
    AnyKernel::new(move |ctx| {
        let sizes = Resizing::new(ctx, sampling)?;
        let mut out = ctx.zeros(DType::Float, sizes.output.shape()?)?;
        if out.num_elements() > 0 {
            average(ctx, &sizes, &mut out)?;
        }
        ctx.set_output(0, out)
    })
}

fn average(ctx: &KernelContext<'_>, sizes: &Resizing, out: &mut Tensor) -> Result<()> {
    let Resizing { input, output, height_scale, width_scale } = *sizes;
    let images = as_floats(ctx, 0)?;
    let images = images.as_slice::<f32>()?;
    let columns = table(output.width, |x| Cover::new(x, width_scale))?;
    let scale = 1.0 / (height_scale * width_scale);
    let (row, channels) = (output.row(), output.channels);
    let covered = (f64::from(height_scale) + 1.0) * (f64::from(width_scale) + 1.0);
    for_each_rows(ctx, out.as_mut_slice::<f32>()?, row, covered * row as f64, |first, out| {
        for (i, out) in (first..).zip(out.chunks_exact_mut(row)) {
            let (image, y) = (i / output.height, Cover::new(i % output.height, height_scale));
            for (source_y, share_y) in y.pixels(input.height) {
                let source = input.row_of(images, image, source_y);
                for (out, x) in out.chunks_exact_mut(channels).zip(&columns) {
                    add_pixels(source, x, input.width, share_y, scale, out);
                }
            }
        }
    })
}

/// Adds the covered pixels of one row to an output pixel.
fn add_pixels(
    source: &[f32],
    cover: &Cover,
    width: usize,
    share_y: f32,
    scale: f32,
    out: &mut [f32],
) {
    let channels = out.len();
    for (c, out) in out.iter_mut().enumerate() {
        let mut sum = 0.0;
        for (x, share) in cover.pixels(width) {
            sum += source[x * channels + c] * (share * scale);
        }
        *out += sum * share_y;
    }
}
