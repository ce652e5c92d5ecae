//! `CropAndResize`: boxes cropped from images and resized.

use half::f16;
use num_traits::AsPrimitive;
use smallvec::SmallVec;
use thalweg_graph::{GradientContext, NodeAttrs, OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, Element, PartialShape, Result, Shape, Tensor, bail, ensure};

use super::crop_lowering;
use super::pixels::{IMAGE_TYPES, Images, as_floats, table};
use super::resize::sizes_known;
use crate::map::narrowed;
use crate::math::widen::Widen;
use crate::split::{Disjoint, for_each_rows};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        CROP_AND_RESIZE.with_gradient(gradient),
        OpDef::new("CropAndResizeGradImage", grad_image_shape).with_work(Work::per_input::<700>),
        OpDef::new("CropAndResizeGradBoxes", grad_boxes_shape).with_work(Work::per_input::<700>),
    ],
    kernels: &[
        KernelSpec {
            op: "CropAndResize",
            constraints: &[("T", IMAGE_TYPES)],
            host_inputs: &["crop_size"],
            create: crop_and_resize,
            ..KernelSpec::CPU
        },
        cpu_kernel!("CropAndResizeGradImage", "T" in [f32, f64, f16] => grad_image; host_inputs: &["image_size"]),
        KernelSpec {
            op: "CropAndResizeGradBoxes",
            constraints: &[("T", IMAGE_TYPES)],
            create: grad_boxes,
            ..KernelSpec::CPU
        },
        KernelSpec::lowering("CropAndResize", crop_lowering::crop_and_resize)
            .for_dtypes(&[("T", IMAGE_TYPES)])
            .with_host_inputs(&["crop_size"]),
        KernelSpec::lowering("CropAndResizeGradImage", crop_lowering::grad_image)
            .with_host_inputs(&["image_size"]),
        KernelSpec::lowering("CropAndResizeGradBoxes", crop_lowering::grad_boxes)
            .for_dtypes(&[("T", IMAGE_TYPES)]),
    ],
};

const CROP_AND_RESIZE: OpDef =
    OpDef::new("CropAndResize", crops_shape).with_work(Work::per_output::<600>);

/// The number of boxes, from the boxes in input `i` and the box indices in input `i + 1`.
fn boxes_known(c: &ShapeContext<'_>, i: usize) -> Result<Option<usize>> {
    let boxes = c.with_rank(i, "boxes", 2)?;
    let indices = c.with_rank(i + 1, "box_ind", 1)?;
    let merged = PartialShape::new([boxes.dim(0)]).merge(&indices)?;
    ensure!(
        boxes.dim(1).is_none_or(|n| n == 4),
        InvalidArgument,
        "boxes must have 4 columns, got shape {boxes}"
    );
    Ok(merged.dim(0))
}

fn crops_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let image = c.with_rank(0, "image", 4)?;
    let boxes = boxes_known(c, 1)?;
    let [height, width] = sizes_known(c, 3)?;
    c.set_output(0, PartialShape::new([boxes, height, width, image.dim(3)]));
    Ok(())
}

fn grad_image_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.shape_from_input(3)?.merge(&PartialShape::of_rank(4))?;
    c.set_output(0, shape);
    Ok(())
}

fn grad_boxes_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, c.input(2).clone());
    Ok(())
}

fn gradient(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, image, boxes, images) = (g.grad(0)?, g.input(0), g.input(1), g.input(2));
    let dtype = g.dtype(image);
    if matches!(dtype, DType::Half | DType::Float | DType::Double) {
        let shape = g.shape_of(image)?;
        let of_image = g
            .op_like("CropAndResizeGradImage", &["method"])
            .inputs(&[grad, boxes, images, shape])
            .attr("T", dtype)
            .build()?;
        g.set(0, of_image)?;
    }
    let of_boxes = g.add("CropAndResizeGradBoxes", &[grad, image, boxes, images])?;
    g.set(1, of_boxes)
}

pub(crate) fn is_nearest(attrs: NodeAttrs<'_>) -> Result<bool> {
    match &attrs.bytes("method")?[..] {
        b"bilinear" => Ok(false),
        b"nearest" => Ok(true),
        other => bail!(
            InvalidArgument,
            "method must be 'bilinear' or 'nearest', is '{}'",
            String::from_utf8_lossy(other)
        ),
    }
}

/// Boxes as fractions of an image (y1, x1, y2, x2), and the index of each box's image.
struct Boxes<'a> {
    corners: &'a [[f32; 4]],
    images: &'a [i32],
}

impl<'a> Boxes<'a> {
    /// Boxes of inputs `i` and `i + 1`, for a batch of `batch` images.
    fn new(ctx: &'a KernelContext<'_>, i: usize) -> Result<Boxes<'a>> {
        let (boxes, images) = (ctx.input(i)?, ctx.input(i + 1)?);
        let [count, columns] = *boxes.shape().dims() else {
            bail!(InvalidArgument, "boxes must be 2-D, got shape {}", boxes.shape());
        };
        ensure!(columns == 4, InvalidArgument, "boxes must have 4 columns, got {columns}");
        ensure!(
            images.shape().dims() == [count],
            InvalidArgument,
            "box_index must have shape [{count}], got {}",
            images.shape()
        );
        let (corners, _) = boxes.as_slice::<f32>()?.as_chunks::<4>();
        ensure!(
            corners.as_flattened().iter().all(|x| x.is_finite()),
            InvalidArgument,
            "Boxes contains at least one element that is not finite"
        );
        Ok(Boxes { corners, images: images.as_slice()? })
    }

    fn check_images(&self, batch: usize) -> Result<()> {
        let is_known = |&i: &i32| usize::try_from(i).is_ok_and(|i| i < batch);
        ensure!(
            self.images.iter().all(is_known),
            OutOfRange,
            "box_index has values outside [0, {batch})"
        );
        Ok(())
    }
}

/// Sample positions of a crop along one axis of the image.
#[derive(Clone, Copy)]
struct CropAxis {
    start: f32,
    step: f32,
    last: f32,
}

/// A sample position: the pixel before it, the pixel after it, and the fractional distance from the
/// first.
#[derive(Clone, Copy)]
struct SamplePosition {
    lower: usize,
    upper: usize,
    fraction: f32,
    nearest: usize,
}

impl CropAxis {
    /// Samples from one end of a box to the other, on an axis of `size` pixels, in `count` steps.
    fn new(from: f32, to: f32, size: usize, count: usize) -> CropAxis {
        let last = (size - 1) as f32;
        if count > 1 {
            CropAxis { start: from * last, step: (to - from) * last / (count - 1) as f32, last }
        } else {
            let middle = 0.5 * f64::from(from + to) * f64::from(last);
            CropAxis { start: middle as f32, step: 0.0, last }
        }
    }

    /// The position of the crop's pixel `i`, or `None` outside the image.
    fn place(&self, i: usize) -> Option<SamplePosition> {
        let place = self.start + i as f32 * self.step;
        if !(0.0..=self.last).contains(&place) {
            return None;
        }
        Some(SamplePosition {
            lower: place.floor() as usize,
            upper: place.ceil() as usize,
            fraction: place - place.floor(),
            nearest: place.round() as usize,
        })
    }
}

fn crop_and_resize(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let is_nearest = is_nearest(init.attrs())?;
    let outside = init.attrs().float("extrapolation_value")?;
    AnyKernel::new(move |ctx| {
        let image = Images::of(ctx.input(0)?, "input image")?;
        let crop = ctx.input(3)?;
        ensure!(
            crop.shape().dims() == [2],
            InvalidArgument,
            "crop_size must be a vector of two elements, got shape {}",
            crop.shape()
        );
        let size = ctx.ints(3, "crop_size")?;
        ensure!(
            size[0] > 0 && size[1] > 0,
            InvalidArgument,
            "crop dimensions must be positive, got {} and {}",
            size[0],
            size[1]
        );
        ensure!(
            image.height > 0 && image.width > 0,
            InvalidArgument,
            "image dimensions must be positive, got shape {}",
            ctx.input(0)?.shape()
        );
        let boxes = Boxes::new(ctx, 1)?;
        let (height, width) = (size[0] as usize, size[1] as usize);
        let crops = Images { batch: boxes.corners.len(), height, width, ..image };
        boxes.check_images(image.batch)?;
        let mut out = ctx.allocate(DType::Float, crops.shape()?)?;
        if out.num_elements() > 0 {
            let images = as_floats(ctx, 0)?;
            let read = Reader { data: images.as_slice()?, image, is_nearest, outside };
            let row = crops.row();
            let cost = 2.0 * row as f64 + 10.0;
            for_each_rows(ctx, out.as_mut_slice::<f32>()?, row, cost, |first, out| {
                for (i, out) in (first..).zip(out.chunks_exact_mut(row)) {
                    read.row(&boxes, crops, i, out);
                }
            })?;
        }
        ctx.set_output(0, out)
    })
}

struct Reader<'a> {
    data: &'a [f32],
    image: Images,
    is_nearest: bool,
    outside: f32,
}

impl Reader<'_> {
    /// Row `i` of all crops.
    fn row(&self, boxes: &Boxes<'_>, crops: Images, i: usize, out: &mut [f32]) {
        let (number, y) = (i / crops.height, i % crops.height);
        let [y1, x1, y2, x2] = boxes.corners[number];
        let rows = CropAxis::new(y1, y2, self.image.height, crops.height);
        let columns = CropAxis::new(x1, x2, self.image.width, crops.width);
        let Some(y) = rows.place(y) else {
            out.fill(self.outside);
            return;
        };
        let image = boxes.images[number] as usize;
        let channels = crops.channels;
        let [top, bottom, nearest] =
            [y.lower, y.upper, y.nearest].map(|y| self.image.row_of(self.data, image, y));
        for (x, out) in out.chunks_exact_mut(channels).enumerate() {
            let Some(x) = columns.place(x) else {
                out.fill(self.outside);
                continue;
            };
            if self.is_nearest {
                out.copy_from_slice(&nearest[x.nearest * channels..][..channels]);
                continue;
            }
            let (left, right) = (x.lower * channels, x.upper * channels);
            for (c, out) in out.iter_mut().enumerate() {
                let upper = top[left + c] + (top[right + c] - top[left + c]) * x.fraction;
                let lower = bottom[left + c] + (bottom[right + c] - bottom[left + c]) * x.fraction;
                *out = upper + (lower - upper) * y.fraction;
            }
        }
    }
}

/// The sizes of the gradient in input 0, which must have one crop per box.
fn grads_of(ctx: &KernelContext<'_>, boxes: &Boxes<'_>) -> Result<Images> {
    let grads = Images::of(ctx.input(0)?, "grads image")?;
    ensure!(
        grads.height > 0 && grads.width > 0,
        InvalidArgument,
        "grads dimensions must be positive, got shape {}",
        ctx.input(0)?.shape()
    );
    ensure!(
        grads.batch == boxes.corners.len(),
        InvalidArgument,
        "boxes and grads have incompatible shape: {} boxes, {} crops",
        boxes.corners.len(),
        grads.batch
    );
    Ok(grads)
}

fn grad_image<T>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T: Widen,
    f32: AsPrimitive<T::Wide>,
    T::Wide: std::ops::AddAssign,
{
    let is_nearest = is_nearest(init.attrs())?;
    AnyKernel::new(move |ctx| {
        let size = image_size(ctx)?;
        let boxes = Boxes::new(ctx, 1)?;
        let grads = grads_of(ctx, &boxes)?;
        ensure!(
            size.height > 0 && size.width > 0,
            InvalidArgument,
            "image dimensions must be positive, got {} and {}",
            size.height,
            size.width
        );
        ensure!(
            size.channels == grads.channels,
            InvalidArgument,
            "image_size and grads are incompatible: {} and {} channels",
            size.channels,
            grads.channels
        );
        boxes.check_images(size.batch)?;
        let mut out = ctx.zeros(<T::Wide as Element>::DTYPE, size.shape()?)?;
        if out.num_elements() > 0 && grads.batch > 0 {
            let writer = Writer {
                grads: ctx.slice(0)?,
                crops: grads,
                image: size,
                boxes: &boxes,
                is_nearest,
            };
            writer.all(ctx, out.as_mut_slice::<T::Wide>()?)?;
        }
        let out = narrowed::<T>(ctx, out)?;
        ctx.set_output(0, out)
    })
}

fn image_size(ctx: &KernelContext<'_>) -> Result<Images> {
    let tensor = ctx.input(3)?;
    ensure!(
        tensor.shape().dims() == [4],
        InvalidArgument,
        "image_size must be a vector of 4 elements, got shape {}",
        tensor.shape()
    );
    let sizes: SmallVec<[i64; 4]> = ctx.ints(3, "image_size")?;
    let shape = Shape::from_i64(&sizes)?;
    Ok(Images { batch: shape[0], height: shape[1], width: shape[2], channels: shape[3] })
}

/// Adds the gradients of crops to the gradients of their images.
struct Writer<'a> {
    grads: &'a [f32],
    crops: Images,
    image: Images,
    boxes: &'a Boxes<'a>,
    is_nearest: bool,
}

impl Writer<'_> {
    /// All images in parallel; the boxes of one image in order.
    fn all<A>(&self, ctx: &KernelContext<'_>, out: &mut [A]) -> Result<()>
    where
        A: Element + std::ops::AddAssign,
        f32: AsPrimitive<A>,
    {
        let mut order = table(self.boxes.images.len(), |i| i)?;
        order.sort_by_key(|&i| self.boxes.images[i]);
        let groups: Vec<&[usize]> =
            order.chunk_by(|&a, &b| self.boxes.images[a] == self.boxes.images[b]).collect();
        let size = out.len() / self.image.batch;
        let out = Disjoint::new(out);
        let cost = 4.0 * self.grads.len() as f64 / groups.len() as f64;
        ctx.parallel_for(groups.len(), cost, |range| {
            for group in &groups[range] {
                let image = self.boxes.images[group[0]] as usize;
                // SAFETY: each image is one group's, and each group is handed out once.
                let out = unsafe { out.part(image * size..(image + 1) * size) };
                group.iter().for_each(|&number| self.one(number, out));
            }
        })
    }

    fn one<A>(&self, number: usize, out: &mut [A])
    where
        A: Element + std::ops::AddAssign,
        f32: AsPrimitive<A>,
    {
        let [y1, x1, y2, x2] = self.boxes.corners[number];
        let rows = CropAxis::new(y1, y2, self.image.height, self.crops.height);
        let columns = CropAxis::new(x1, x2, self.image.width, self.crops.width);
        let (channels, row) = (self.crops.channels, self.image.row());
        for crop_y in 0..self.crops.height {
            let Some(y) = rows.place(crop_y) else { continue };
            let grads = self.crops.row_of(self.grads, number, crop_y);
            for (x, grads) in grads.chunks_exact(channels).enumerate() {
                let Some(x) = columns.place(x) else { continue };
                if self.is_nearest {
                    let at = y.nearest * row + x.nearest * channels;
                    add_scaled(&mut out[at..at + channels], grads, 1.0, 1.0);
                    continue;
                }
                for (line, weight) in [(y.lower, 1.0 - y.fraction), (y.upper, y.fraction)] {
                    for (column, x_weight) in [(x.lower, 1.0 - x.fraction), (x.upper, x.fraction)] {
                        let at = line * row + column * channels;
                        add_scaled(&mut out[at..at + channels], grads, weight, x_weight);
                    }
                }
            }
        }
    }
}

fn add_scaled<A>(out: &mut [A], grads: &[f32], y_weight: f32, x_weight: f32)
where
    A: Element + std::ops::AddAssign,
    f32: AsPrimitive<A>,
{
    for (out, grad) in out.iter_mut().zip(grads) {
        *out += (x_weight * (y_weight * grad)).as_();
    }
}

fn grad_boxes(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(move |ctx| {
        let image = Images::of(ctx.input(1)?, "input image")?;
        let boxes = Boxes::new(ctx, 2)?;
        let grads = grads_of(ctx, &boxes)?;
        ensure!(
            image.height > 0 && image.width > 0,
            InvalidArgument,
            "image dimensions must be positive, got shape {}",
            ctx.input(1)?.shape()
        );
        ensure!(
            image.channels == grads.channels,
            InvalidArgument,
            "image and grads are incompatible: {} and {} channels",
            image.channels,
            grads.channels
        );
        boxes.check_images(image.batch)?;
        let mut out: Tensor = ctx.zeros(DType::Float, Shape::new(&[grads.batch, 4])?)?;
        let (data, images) = (ctx.slice::<f32>(0)?, as_floats(ctx, 1)?);
        let images = images.as_slice::<f32>()?;
        let cost = 4.0 * (grads.height * grads.row()) as f64 + 10.0;
        for_each_rows(ctx, out.as_mut_slice::<f32>()?, 4, cost, |first, out| {
            for (number, out) in (first..).zip(out.as_chunks_mut::<4>().0) {
                box_gradient(&boxes, number, (data, grads), (images, image), out);
            }
        })?;
        ctx.set_output(0, out)
    })
}

/// The gradient of one crop with respect to the corners of its box.
fn box_gradient(
    boxes: &Boxes<'_>,
    number: usize,
    (data, crops): (&[f32], Images),
    (images, image): (&[f32], Images),
    out: &mut [f32; 4],
) {
    let [y1, x1, y2, x2] = boxes.corners[number];
    let rows = CropAxis::new(y1, y2, image.height, crops.height);
    let columns = CropAxis::new(x1, x2, image.width, crops.width);
    let source = boxes.images[number] as usize;
    let channels = crops.channels;
    for crop_y in 0..crops.height {
        let Some(y) = rows.place(crop_y) else { continue };
        let grads = crops.row_of(data, number, crop_y);
        let (near_y, far_y) = shares(crop_y, image.height, crops.height);
        let [top, bottom] = [y.lower, y.upper].map(|y| image.row_of(images, source, y));
        for crop_x in 0..crops.width {
            let Some(x) = columns.place(crop_x) else { continue };
            let (near_x, far_x) = shares(crop_x, image.width, crops.width);
            let (left, right) = (x.lower * channels, x.upper * channels);
            for c in 0..channels {
                let (tl, tr) = (top[left + c], top[right + c]);
                let (bl, br) = (bottom[left + c], bottom[right + c]);
                let grad = grads[crop_x * channels + c];
                let slope_y = grad * ((1.0 - x.fraction) * (bl - tl) + x.fraction * (br - tr));
                let slope_x = grad * ((1.0 - y.fraction) * (tr - tl) + y.fraction * (br - bl));
                out[0] += slope_y * near_y;
                out[1] += slope_x * near_x;
                out[2] += slope_y * far_y;
                out[3] += slope_x * far_x;
            }
        }
    }
}

/// The derivatives of a sample's position with respect to both ends of the box.
fn shares(i: usize, size: usize, count: usize) -> (f32, f32) {
    let last = (size - 1) as f32;
    if count == 1 {
        return (0.5 * last, 0.5 * last);
    }
    let far = i as f32 * (last / (count - 1) as f32);
    (last - far, far)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::call;
    use thalweg_tensor::Code;

    fn image() -> Tensor {
        let data: Vec<f32> = (0..24).map(|x| x as f32).collect();
        Tensor::from_slice(Shape::new(&[1, 3, 4, 2]).unwrap(), &data).unwrap()
    }

    fn boxes(corners: &[[f32; 4]]) -> Tensor {
        let shape = Shape::new(&[corners.len(), 4]).unwrap();
        Tensor::from_slice(shape, corners.as_flattened()).unwrap()
    }

    fn crop(corners: &[[f32; 4]], images: &[i32], size: &[i32]) -> Result<Tensor> {
        call("CropAndResize")
            .input(image())
            .input(boxes(corners))
            .input(Tensor::vector(images)?)
            .input(Tensor::vector(size)?)
            .run()
    }

    #[test]
    fn corners_of_the_image() {
        let got = crop(&[[0.0, 0.0, 1.0, 1.0]], &[0], &[2, 2]).unwrap();
        assert_eq!(got.as_slice::<f32>().unwrap(), [0., 1., 6., 7., 16., 17., 22., 23.]);
        let got = crop(&[[0.0, 0.0, 1.0, 1.0]], &[0], &[1, 1]).unwrap();
        assert_eq!(got.as_slice::<f32>().unwrap(), [11., 12.]);
        assert_eq!(crop(&[], &[], &[2, 2]).unwrap().shape().dims(), [0, 2, 2, 2]);
    }

    #[test]
    fn hostile_boxes() {
        let whole = [0.0, 0.0, 1.0, 1.0];
        let code = |r: Result<Tensor>| r.unwrap_err().code();
        assert_eq!(code(crop(&[whole], &[1], &[2, 2])), Code::OutOfRange);
        assert_eq!(code(crop(&[whole], &[-1], &[2, 2])), Code::OutOfRange);
        assert_eq!(code(crop(&[whole], &[0, 0], &[2, 2])), Code::InvalidArgument);
        assert_eq!(code(crop(&[whole], &[0], &[0, 2])), Code::InvalidArgument);
        assert_eq!(code(crop(&[[f32::NAN; 4]], &[0], &[2, 2])), Code::InvalidArgument);
        for x in [1e38, -1e38, 1e-38, 2.0] {
            crop(&[[x, -x, -x, x]], &[0], &[3, 3]).unwrap();
        }
    }

    #[test]
    fn gradients_of_image_and_boxes() {
        let ones = Tensor::from_slice(Shape::new(&[1, 2, 2, 2]).unwrap(), &[1.0f32; 8]).unwrap();
        let corners = || boxes(&[[0.0, 0.0, 1.0, 0.8]]);
        let back = |size: &[i32]| {
            call("CropAndResizeGradImage")
                .input(ones.clone())
                .input(corners())
                .input(Tensor::vector(&[0]).unwrap())
                .input(Tensor::vector(size).unwrap())
                .attr("T", DType::Float)
                .run()
        };
        let got = back(&[1, 3, 4, 2]).unwrap();
        let row = [1.0, 1.0, 0.0, 0.0, 0.599_999_9, 0.599_999_9, 0.400_000_1, 0.400_000_1];
        assert_eq!(got.as_slice::<f32>().unwrap()[..8], row);
        for size in [[1, 3, 4, 3], [1, 0, 4, 2], [1, -3, 4, 2]] {
            assert_eq!(back(&size).unwrap_err().code(), Code::InvalidArgument, "{size:?}");
        }
        assert_eq!(back(&[0, 3, 4, 2]).unwrap_err().code(), Code::OutOfRange);
        let slopes = call("CropAndResizeGradBoxes")
            .input(ones.clone())
            .input(image())
            .input(corners())
            .input(Tensor::vector(&[0]).unwrap())
            .run()
            .unwrap();
        assert_eq!(slopes.as_slice::<f32>().unwrap(), [0.0, 0.0, 0.0, 24.0]);
    }
}
