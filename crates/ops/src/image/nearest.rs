//! `ResizeNearestNeighbor`.

use half::{bf16, f16};
use thalweg_graph::{GradientContext, OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Element, PartialShape, Result, Tensor, ensure};

use super::pixels::{IMAGE_TYPES, Images, table};
use super::resize::{Resizing, Sampling, check_sizes, image_sides, resized_shape, sizes_known};
use super::resize_lowering;
use crate::cells::{Cell, nanoseconds_per_cell};
use crate::map::{narrowed, wide_view};
use crate::math::widen::Widen;
use crate::number::Number;
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        RESIZE_NEAREST_NEIGHBOR.with_gradient(gradient),
        OpDef::new("ResizeNearestNeighborGrad", grad_shape).with_work(Work::per_output::<400>),
    ],
    kernels: &[
        KernelSpec {
            op: "ResizeNearestNeighbor",
            constraints: &[("T", IMAGE_TYPES)],
            host_inputs: &["size"],
            create: resize_nearest_neighbor,
            ..KernelSpec::CPU
        },
        cpu_kernel!("ResizeNearestNeighborGrad", "T" in [u8, i8, i32, f16, f32, f64, bf16] => resize_nearest_neighbor_grad; host_inputs: &["size"]),
        KernelSpec::lowering("ResizeNearestNeighbor", |l| resize_lowering::pick(l, nearest))
            .for_dtypes(&[("T", IMAGE_TYPES)])
            .with_host_inputs(&["size"]),
        KernelSpec::lowering("ResizeNearestNeighborGrad", |l| {
            resize_lowering::pick_gradient(l, nearest)
        })
        .with_host_inputs(&["size"]),
    ],
};

const RESIZE_NEAREST_NEIGHBOR: OpDef =
    OpDef::new("ResizeNearestNeighbor", resized_shape).with_work(Work::copies_outputs);

fn grad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let grads = c.with_rank(0, "grads", 4)?;
    let [height, width] = sizes_known(c, 1)?;
    c.set_output(0, PartialShape::new([grads.dim(0), height, width, grads.dim(3)]));
    Ok(())
}

fn gradient(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, image) = (g.grad(0)?, g.input(0));
    if !g.dtype(image).is_floating() {
        return Ok(());
    }
    let size = image_sides(g, image)?;
    let attrs = ["align_corners", "half_pixel_centers"];
    let adjoint = g.op_like("ResizeNearestNeighborGrad", &attrs).inputs(&[grad, size]).build()?;
    g.set(0, adjoint)
}

/// Index of the input pixel for each output pixel along one axis.
fn nearest(sampling: Sampling, original: usize, resized: usize) -> Result<Vec<usize>> {
    let scale = sampling.scale(original, resized);
    table(resized, |x| {
        let place = if sampling.half_pixel_centers {
            ((x as f32 + 0.5) * scale).floor()
        } else if sampling.align_corners {
            (x as f32 * scale).round()
        } else {
            (x as f32 * scale).floor()
        };
        (place as i64).min(original as i64 - 1).max(0) as usize
    })
}

fn resize_nearest_neighbor(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let sampling = Sampling::from_attrs(init.attrs())?;
    AnyKernel::new(move |ctx| {
        let sizes = Resizing::new(ctx, sampling)?;
        let shape = sizes.output.shape()?;
        let mut out = ctx.allocate_output(0, shape)?;
        if out.num_elements() > 0 {
            with_cell!(out.dtype(), C => pick::<C>(ctx, &sizes, sampling, &mut out)?);
        }
        ctx.set_output(0, out)
    })
}

fn pick<C: Cell>(
    ctx: &KernelContext<'_>,
    sizes: &Resizing,
    sampling: Sampling,
    out: &mut Tensor,
) -> Result<()> {
    let Resizing { input, output, .. } = *sizes;
    let images = C::view(ctx.input(0)?)?;
    let rows = nearest(sampling, input.height, output.height)?;
    let columns = nearest(sampling, input.width, output.width)?;
    let (row, channels) = (output.row(), output.channels);
    let cost = nanoseconds_per_cell::<C>() * row as f64 + output.width as f64;
    for_each_rows(ctx, C::view_mut(out)?, row, cost, |first, out| {
        for (i, out) in (first..).zip(out.chunks_exact_mut(row)) {
            let source = input.row_of(images, i / output.height, rows[i % output.height]);
            match channels {
                1 => pick_row::<C, 1>(source, &columns, out),
                3 => pick_row::<C, 3>(source, &columns, out),
                4 => pick_row::<C, 4>(source, &columns, out),
                _ => {
                    for (out, &x) in out.chunks_exact_mut(channels).zip(&columns) {
                        out.clone_from_slice(&source[x * channels..][..channels]);
                    }
                }
            }
        }
    })
}

fn pick_row<C: Cell, const N: usize>(source: &[C], columns: &[usize], out: &mut [C]) {
    let source = source.as_chunks::<N>().0;
    for (out, &x) in out.as_chunks_mut::<N>().0.iter_mut().zip(columns) {
        out.clone_from(&source[x]);
    }
}

fn resize_nearest_neighbor_grad<T>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T: Widen<Wide: Number>,
{
    let sampling = Sampling::from_attrs(init.attrs())?;
    AnyKernel::new(move |ctx| {
        let resized = Images::of(ctx.input(0)?, "input")?;
        let size = ctx.input(1)?;
        ensure!(
            size.shape().dims() == [2],
            InvalidArgument,
            "size must be a vector of two elements, got shape {}",
            size.shape()
        );
        let size = ctx.ints(1, "size")?;
        ensure!(
            size[0] > 0 && size[1] > 0,
            InvalidArgument,
            "size must be positive, got {} and {}",
            size[0],
            size[1]
        );
        let original = resized.resized(size[0] as usize, size[1] as usize);
        check_sizes(original, "original")?;
        let mut out = ctx.zeros(<T::Wide as Element>::DTYPE, original.shape()?)?;
        if ctx.input(0)?.num_elements() > 0 {
            scatter_gradient::<T>(ctx, resized, original, sampling, &mut out)?;
        }
        let out = narrowed::<T>(ctx, out)?;
        ctx.set_output(0, out)
    })
}

/// Adds each pixel of the gradient to the input pixel that it was copied from.
fn scatter_gradient<T: Widen<Wide: Number>>(
    ctx: &KernelContext<'_>,
    resized: Images,
    original: Images,
    sampling: Sampling,
    out: &mut Tensor,
) -> Result<()> {
    let grads = wide_view::<T>(ctx, 0)?;
    let grads = grads.as_slice::<T::Wide>()?;
    let rows = nearest(sampling, original.height, resized.height)?;
    let columns = nearest(sampling, original.width, resized.width)?;
    let (row, channels) = (original.row(), original.channels);
    let cost = grads.len() as f64 / (original.batch * original.height) as f64 + 20.0;
    for_each_rows(ctx, out.as_mut_slice::<T::Wide>()?, row, cost, |first, out| {
        for (i, out) in (first..).zip(out.chunks_exact_mut(row)) {
            let (image, y) = (i / original.height, i % original.height);
            let start = rows.partition_point(|&at| at < y);
            let end = rows.partition_point(|&at| at <= y);
            for resized_y in start..end {
                let grads = resized.row_of(grads, image, resized_y);
                for (grads, &x) in grads.chunks_exact(channels).zip(&columns) {
                    let out = &mut out[x * channels..][..channels];
                    for (out, &grad) in out.iter_mut().zip(grads) {
                        *out = out.plus(grad);
                    }
                }
            }
        }
    })
}
