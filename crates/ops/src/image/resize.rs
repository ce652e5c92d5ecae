//! Common parts of resize ops: sizes, scales, and gradients.

use num_traits::AsPrimitive;
use thalweg_graph::{GradientContext, NodeAttrs, Output, ShapeContext};
use thalweg_kernel::{AnyKernel, KernelContext, KernelInit};
use thalweg_tensor::{PartialShape, Result, Shape, Tensor, bail, ensure};

use super::pixels::{Images, table};
use super::resize_lowering::TapList;
use crate::map::narrowed;
use crate::math::widen::Widen;
use crate::split::for_each_rows;

/// How output pixels map to sample positions (`align_corners`, `half_pixel_centers`).
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

    /// Input pixels per output pixel.
    pub(crate) fn scale(self, original: usize, resized: usize) -> f32 {
        // A single pixel has no corners to align.
        if self.align_corners && resized > 1 && original > 1 {
            (original - 1) as f32 / (resized - 1) as f32
        } else {
            original as f32 / resized as f32
        }
    }

    /// The input position of output pixel `x`.
    pub(crate) fn place(self, x: usize, scale: f32) -> f32 {
        if self.half_pixel_centers { (x as f32 + 0.5) * scale - 0.5 } else { x as f32 * scale }
    }
}

/// Input and output sizes of a resize op.
pub(crate) struct Resizing {
    pub(crate) input: Images,
    pub(crate) output: Images,
    pub(crate) height_scale: f32,
    pub(crate) width_scale: f32,
}

impl Resizing {
    pub(crate) fn new(ctx: &KernelContext<'_>, sampling: Sampling) -> Result<Resizing> {
        Resizing::to(Images::of(ctx.input(0)?, "input")?, size_input(ctx, 1)?, sampling)
    }

    /// From images of these sizes to a height and width.
    pub(crate) fn to(
        input: Images,
        (height, width): (usize, usize),
        sampling: Sampling,
    ) -> Result<Resizing> {
        let output = input.resized(height, width);
        ensure!(input.channels > 0, InvalidArgument, "image must have at least one channel");
        ensure!(
            input.height > 0 && input.width > 0,
            InvalidArgument,
            "input image must be of non-zero size, got {} and {}",
            input.height,
            input.width
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
    checked_size(ctx.input(i)?.shape(), &ctx.ints(i, "size")?)
}

/// The height and width in a tensor of this shape with these elements.
pub(crate) fn checked_size(shape: &Shape, size: &[i64]) -> Result<(usize, usize)> {
    ensure!(
        shape.dims() == [2],
        InvalidArgument,
        "size must be a vector of two elements, got shape {shape}"
    );
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

/// Height and width of images, as a vector.
pub(crate) fn image_sides(g: &mut GradientContext<'_>, images: Output) -> Result<Output> {
    let (shape, begin, size) = (g.shape_of(images)?, g.ints(&[1])?, g.ints(&[2])?);
    g.add("Slice", &[shape, begin, size])
}

/// The gradient of a resize op, by the op `op` of the adjoint and the original image.
pub(crate) fn resize_gradient(g: &mut GradientContext<'_>, op: &str) -> Result<()> {
    let (grad, image) = (g.grad(0)?, g.input(0));
    // Integer images have no gradient.
    if !g.dtype(image).is_floating() {
        return Ok(());
    }
    let attrs = ["align_corners", "half_pixel_centers"];
    let adjoint = g.op_like(op, &attrs).inputs(&[grad, image]).build()?;
    g.set(0, adjoint)
}

/// Input pixels of an output pixel along one axis, in ascending order, and their weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taps<const K: usize> {
    pub(crate) at: [usize; K],
    pub(crate) weight: [f32; K],
}

impl<const K: usize> Taps<K> {
    /// The pixels with their weights.
    pub(crate) fn list(&self) -> TapList {
        self.at.into_iter().zip(self.weight).collect()
    }
}

/// Sizes of a gradient op: of the incoming gradient and of the original image.
pub(crate) struct GradientSizes {
    pub(crate) resized: Images,
    pub(crate) original: Images,
}

impl GradientSizes {
    /// The sizes from the gradient in input 0 and the original image in input 1.
    pub(crate) fn new(ctx: &KernelContext<'_>) -> Result<GradientSizes> {
        let resized = Images::of(ctx.input(0)?, "input_grad")?;
        GradientSizes::of(resized, Images::of(ctx.input(1)?, "original_image")?)
    }

    /// The sizes of a gradient of these sizes by images of these.
    pub(crate) fn of(resized: Images, image: Images) -> Result<GradientSizes> {
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

/// The kernel of a resize op's gradient. `taps(sampling, scale, x, size)` returns the taps of
/// output position `x`, along a dimension of `size` input pixels.
pub(crate) fn resizing_gradient<T, const K: usize>(
    init: &KernelInit<'_>,
    taps: fn(Sampling, f32, usize, usize) -> Taps<K>,
) -> Result<AnyKernel>
where
    T: Widen,
    f32: AsPrimitive<T::Wide>,
    T::Wide: std::ops::AddAssign,
{
    let sampling = Sampling::from_attrs(init.attrs())?;
    AnyKernel::new(move |ctx| {
        let sizes = GradientSizes::new(ctx)?;
        if sizes.resized.batch * sizes.resized.channels == 0 {
            let out = ctx.zeros(T::DTYPE, sizes.original.shape()?)?;
            return ctx.set_output(0, out);
        }
        let along = |from: usize, to: usize| {
            let scale = sampling.scale(from, to);
            table(to, |x| taps(sampling, scale, x, from))
        };
        let rows = along(sizes.original.height, sizes.resized.height)?;
        let columns = along(sizes.original.width, sizes.resized.width)?;
        scatter_gradient::<T, K>(ctx, &sizes, &rows, &columns)
    })
}

/// Sets output 0 to the gradient of a resize op with these taps: adds each pixel of the gradient in
/// input 0, weighted, to the pixels it was computed from.
fn scatter_gradient<T, const K: usize>(
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
            // Both ends of the taps are monotonic.
            let start = rows.partition_point(|taps| taps.at[K - 1] < y);
            let end = rows.partition_point(|taps| taps.at[0] <= y);
            for (resized_y, taps) in (start..end).zip(&rows[start..]) {
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

#[cfg(test)]
mod tests {
    use crate::testing::call;
    use thalweg_tensor::{Code, DType, Result, Shape, Tensor};

    const OPS: [&str; 4] =
        ["ResizeBilinear", "ResizeBicubic", "ResizeNearestNeighbor", "ResizeArea"];

    fn numbers(count: usize) -> Vec<f32> {
        let mut state = 11u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        (0..count).map(|_| next()).collect()
    }

    fn images(dims: &[usize]) -> Tensor {
        let count = dims.iter().product();
        Tensor::from_slice(Shape::new(dims).unwrap(), &numbers(count)).unwrap()
    }

    fn resize(op: &'static str, image: Tensor, size: &[i32]) -> Result<Tensor> {
        call(op).input(image).input(Tensor::vector(size)?).run()
    }

    #[test]
    fn shapes() {
        for op in OPS {
            let known =
                call(op).shape(DType::Float, "2,?,4,3").constant(Tensor::vector(&[5, 6]).unwrap());
            assert_eq!(known.infer(), "[2,5,6,3]", "{op}");
            let unknown = call(op).shape(DType::Float, "unknown").shape(DType::Int32, "2");
            assert_eq!(unknown.infer(), "[?,?,?,?]", "{op}");
            for (image, size) in [("2,3", "2"), ("1,2,3,4", "3"), ("1,2,3,4", "")] {
                let wrong = call(op).shape(DType::Float, image).shape(DType::Int32, size).infer();
                assert!(wrong.starts_with("INVALID_ARGUMENT"), "{op}: {wrong}");
            }
        }
    }

    #[test]
    fn hostile_sizes() {
        for op in OPS {
            for (dims, size) in [
                (&[1, 2, 2, 1][..], &[0, 1][..]),
                (&[1, 2, 2, 1], &[-1, 1]),
                (&[1, 2, 2, 1], &[i32::MIN, i32::MAX]),
                (&[1, 2, 2, 1], &[1, 1, 1]),
                (&[1, 2, 2, 0], &[1, 1]),
                (&[1, 0, 2, 1], &[1, 1]),
                (&[2, 2, 1], &[1, 1]),
            ] {
                let error = resize(op, images(dims), size).unwrap_err();
                assert_eq!(error.code(), Code::InvalidArgument, "{op} {dims:?} {size:?}: {error}");
            }
            let error = resize(op, images(&[1, 2, 2, 1]), &[i32::MAX, i32::MAX]).unwrap_err();
            assert_eq!(error.code(), Code::ResourceExhausted, "{op}");
            let none = resize(op, images(&[0, 2, 2, 1]), &[i32::MAX, 3]).unwrap();
            assert_eq!(none.num_elements(), 0);
        }
    }

    /// Resizing keeps a constant image constant, for any sizes and any division of the work.
    #[test]
    fn constants_stay() {
        for op in OPS {
            for (from, to) in
                [((5, 7), (3, 3)), ((1, 1), (4, 6)), ((4, 40), (9, 2)), ((2, 2), (1, 1))]
            {
                let dims = [2, from.0, from.1, 3];
                let flat = Tensor::from_slice(
                    Shape::new(&dims).unwrap(),
                    &vec![0.75f32; dims.iter().product()],
                );
                let got = resize(op, flat.unwrap(), &[to.0, to.1]).unwrap();
                let close = got.as_slice::<f32>().unwrap().iter().all(|x| (x - 0.75).abs() < 1e-4);
                assert!(close, "{op} {from:?} {to:?} {got:?}");
            }
            let size = Tensor::vector(&[50, 60]).unwrap();
            let run =
                |c: crate::testing::Call| c.input(images(&[2, 30, 40, 3])).input(size.clone());
            let (a, b) = (run(call(op)).run().unwrap(), run(call(op).backwards()).run().unwrap());
            assert_eq!(a.as_bytes().unwrap(), b.as_bytes().unwrap(), "{op}");
        }
    }

    /// Resizing is linear, so `<resize(x), g> == <x, gradient(g)>`.
    #[test]
    fn gradients_are_adjoint() {
        for (op, grad, by_image) in [
            ("ResizeBilinear", "ResizeBilinearGrad", true),
            ("ResizeBicubic", "ResizeBicubicGrad", true),
            ("ResizeNearestNeighbor", "ResizeNearestNeighborGrad", false),
        ] {
            for (from, to) in [((5, 7), (3, 3)), ((3, 4), (8, 9)), ((1, 6), (4, 1))] {
                for (align, half) in [(false, false), (true, false), (false, true)] {
                    let x = images(&[2, from.0, from.1, 3]);
                    let g = images(&[2, to.0, to.1, 3]);
                    let set = |c: crate::testing::Call| {
                        c.attr("align_corners", align).attr("half_pixel_centers", half)
                    };
                    let size = Tensor::vector(&[to.0 as i32, to.1 as i32]).unwrap();
                    let y = set(call(op).input(x.clone()).input(size)).run().unwrap();
                    let second = match by_image {
                        true => x.clone(),
                        false => Tensor::vector(&[from.0 as i32, from.1 as i32]).unwrap(),
                    };
                    let back = set(call(grad).input(g.clone()).input(second)).run().unwrap();
                    let dot = |a: &Tensor, b: &Tensor| -> f64 {
                        let (a, b) = (a.as_slice::<f32>().unwrap(), b.as_slice::<f32>().unwrap());
                        a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
                    };
                    let (left, right) = (dot(&y, &g), dot(&x, &back));
                    assert!((left - right).abs() < 1e-4, "{op} {from:?} {to:?} {left} {right}");
                }
            }
        }
    }
}
