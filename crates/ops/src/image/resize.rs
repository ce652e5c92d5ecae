//! What all resizing ops share: sizes and scales, and the way back for gradients.

use num_traits::AsPrimitive;
use thalweg_graph::{NodeAttrs, ShapeContext};
use thalweg_kernel::KernelContext;
use thalweg_tensor::{PartialShape, Result, Tensor, bail, ensure};

use super::pixels::Images;
use crate::map::narrowed;
use crate::math::widen::Widen;
use crate::split::for_each_rows;

/// Where samples lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampling {
    pub(crate) align_corners: bool,
    pub(crate) half_pixel_centers: bool,
}

impl Sampling {
    pub(crate) fn from_attrs(attrs: NodeAttrs<'_>) -> Result<Sampling> {
        let align_corners = attrs.bool("align_corners")?;
        let half_pixel_centers =
            attrs.get("half_pixel_centers").is_some() && attrs.bool("half_pixel_centers")?;
        ensure!(
            !(align_corners && half_pixel_centers),
            InvalidArgument,
            "If half_pixel_centers is True, align_corners must be False."
        );
        Ok(Sampling { align_corners, half_pixel_centers })
    }

    /// Pixels of the original for one of the resized image.
    pub(crate) fn scale(self, original: usize, resized: usize) -> f32 {
        if self.align_corners && resized > 1 {
            (original as i64 - 1) as f32 / (resized - 1) as f32
        } else {
            original as f32 / resized as f32
        }
    }

    /// The place in the original that pixel `x` of the resized image shows.
    pub(crate) fn place(self, x: usize, scale: f32) -> f32 {
        if self.half_pixel_centers { (x as f32 + 0.5) * scale - 0.5 } else { x as f32 * scale }
    }
}

/// The original's and the result's sizes of an op that takes images and a size.
pub(crate) struct Resizing {
    pub(crate) input: Images,
    pub(crate) output: Images,
    pub(crate) height_scale: f32,
    pub(crate) width_scale: f32,
}

impl Resizing {
    pub(crate) fn new(ctx: &KernelContext<'_>, sampling: Sampling) -> Result<Resizing> {
        let input = Images::of(ctx.input(0)?, "input")?;
        let (height, width) = size_input(ctx, 1)?;
        let output = input.resized(height, width);
        ensure!(input.channels > 0, InvalidArgument, "image must have at least one channel");
        ensure!(
            input.height > 0 && input.width > 0,
            InvalidArgument,
            "input image must be of non-zero size, got shape {}",
            ctx.input(0)?.shape()
        );
        check_sizes(input, "input")?;
        let height_scale = sampling.scale(input.height, height);
        let width_scale = sampling.scale(input.width, width);
        let last = ((height - 1) as f32 * height_scale).max((width - 1) as f32 * width_scale);
        ensure!(
            last.ceil() <= i32::MAX as f32,
            InvalidArgument,
            "input image scale would be too large for an int"
        );
        Ok(Resizing { input, output, height_scale, width_scale })
    }
}

/// The height and width in input `i`; both must be positive.
pub(crate) fn size_input(ctx: &KernelContext<'_>, i: usize) -> Result<(usize, usize)> {
    let tensor = ctx.input(i)?;
    ensure!(
        tensor.shape().dims() == [2],
        InvalidArgument,
        "size must be a vector of two elements, got shape {}",
        tensor.shape()
    );
    let size = ctx.ints(i, "size")?;
    ensure!(
        size[0] > 0 && size[1] > 0,
        InvalidArgument,
        "output dimensions must be positive, got {} and {}",
        size[0],
        size[1]
    );
    Ok((size[0] as usize, size[1] as usize))
}

pub(crate) fn check_sizes(images: Images, name: &str) -> Result<()> {
    let Images { height, width, .. } = images;
    ensure!(
        height.max(width) < i32::MAX as usize,
        InvalidArgument,
        "{name} sizes must be between 0 and max int32, got {height} and {width}"
    );
    Ok(())
}

/// The images resized to the size in the second input.
pub(crate) fn resized_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let images = c.with_rank(0, "images", 4)?;
    let [height, width] = sizes_known(c, 1)?;
    c.set_output(0, PartialShape::new([images.dim(0), height, width, images.dim(3)]));
    Ok(())
}

/// The shape of the second input.
pub(crate) fn shape_of_original(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, c.input(1).clone());
    Ok(())
}

/// The pixels of the original along one axis that a pixel of the resized image is made of, in
/// ascending order, and their weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taps<const K: usize> {
    pub(crate) at: [usize; K],
    pub(crate) weight: [f32; K],
}

/// Sizes of a gradient op: of the incoming gradient and of the original image.
pub(crate) struct GradientSizes {
    pub(crate) resized: Images,
    pub(crate) original: Images,
}

impl GradientSizes {
    /// From a gradient in the first input and the original image in the second.
    pub(crate) fn new(ctx: &KernelContext<'_>) -> Result<GradientSizes> {
        let resized = Images::of(ctx.input(0)?, "input_grad")?;
        let image = Images::of(ctx.input(1)?, "original_image")?;
        let original = resized.resized(image.height, image.width);
        for (images, name) in [(resized, "resized"), (original, "original")] {
            ensure!(
                images.height > 0 && images.width > 0,
                InvalidArgument,
                "{name} dimensions must be positive, got {} and {}",
                images.height,
                images.width
            );
            check_sizes(images, name)?;
        }
        Ok(GradientSizes { resized, original })
    }
}

/// Sets output 0 to the gradient of a resizing with these taps: what each pixel of the gradient in
/// input 0 gives back to the pixels it was made of.
pub(crate) fn give_back<T, const K: usize>(
    ctx: &mut KernelContext<'_>,
    sizes: &GradientSizes,
    rows: &[Taps<K>],
    columns: &[Taps<K>],
) -> Result<()>
where
    T: Widen,
    f32: AsPrimitive<T::Wide>,
    T::Wide: std::ops::AddAssign,
{
    let GradientSizes { resized, original } = *sizes;
    let grads = ctx.slice::<f32>(0)?;
    let mut out = ctx.zeros(<T::Wide as thalweg_tensor::Element>::DTYPE, original.shape()?)?;
    let work = grads.len() as f64 * (K * K) as f64;
    let cost = work / (original.batch * original.height).max(1) as f64 + 50.0;
    let row = original.row();
    for_each_rows(ctx, out.as_mut_slice::<T::Wide>()?, row, cost, |first, out| {
        for (i, out) in (first..).zip(out.chunks_exact_mut(row)) {
            let (image, y) = (i / original.height, i % original.height);
            // Both ends of the taps move one way only.
            let start = rows.partition_point(|taps| taps.at[K - 1] < y);
            let end = rows.partition_point(|taps| taps.at[0] <= y);
            for resized_y in start..end {
                let taps = &rows[resized_y];
                for k in (0..K).filter(|&k| taps.at[k] == y) {
                    let grads = resized.row_of(grads, image, resized_y);
                    add_row(grads, taps.weight[k], columns, resized.channels, out);
                }
            }
        }
    })?;
    let out: Tensor = narrowed::<T>(ctx, out)?;
    ctx.set_output(0, out)
}

fn add_row<A, const K: usize>(
    grads: &[f32],
    weight: f32,
    columns: &[Taps<K>],
    channels: usize,
    out: &mut [A],
) where
    f32: AsPrimitive<A>,
    A: std::ops::AddAssign + Copy + 'static,
{
    for (grads, taps) in grads.chunks_exact(channels).zip(columns) {
        for (at, column_weight) in taps.at.iter().zip(taps.weight) {
            let out = &mut out[at * channels..][..channels];
            for (out, grad) in out.iter_mut().zip(grads) {
                *out += (grad * weight * column_weight).as_();
            }
        }
    }
}

/// The sizes in the integer input `i`, a vector of two, for shape inference.
pub(crate) fn sizes_known(c: &ShapeContext<'_>, i: usize) -> Result<[Option<usize>; 2]> {
    let shape = c.with_rank(i, "size", 1)?;
    match shape.dim(0) {
        None | Some(2) => {}
        Some(_) => bail!(InvalidArgument, "size must have two elements, got shape {shape}"),
    }
    let size = c.shape_from_input(i)?;
    Ok([size.dim(0), size.dim(1)])
}
