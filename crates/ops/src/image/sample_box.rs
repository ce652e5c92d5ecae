//! `SampleDistortedBoundingBox` and random crops.

use num_traits::AsPrimitive;
use parking_lot::Mutex;
use thalweg_graph::{OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Element, PartialShape, Result, Shape, Tensor, bail, ensure};

use crate::cells::Cell;
use crate::math::random::candidates::below_u32;
use crate::math::random::distributions::unit_f32;
use crate::math::random::philox::{Philox, Samples};
use crate::random::{own_generator, philox_from_seed};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        SAMPLE_DISTORTED_BOUNDING_BOX.without_gradient(),
        SAMPLE_DISTORTED_BOUNDING_BOX_V2.without_gradient(),
        STATELESS_SAMPLE_DISTORTED_BOUNDING_BOX,
        RANDOM_CROP.without_gradient(),
    ],
    kernels: &[
        cpu_kernel!("SampleDistortedBoundingBox", "T" in [u8, i8, i16, i32, i64] => sample_box),
        cpu_kernel!("SampleDistortedBoundingBoxV2", "T" in [u8, i8, i16, i32, i64] => sample_box),
        cpu_kernel!("StatelessSampleDistortedBoundingBox", "T" in [u8, i8, i16, i32, i64] => sample_box),
        KernelSpec { op: "RandomCrop", create: random_crop, ..KernelSpec::CPU },
    ],
};

const SAMPLE_DISTORTED_BOUNDING_BOX: OpDef =
    OpDef::new("SampleDistortedBoundingBox", box_shape).with_work(Work::fixed::<5>);

const SAMPLE_DISTORTED_BOUNDING_BOX_V2: OpDef =
    OpDef { name: "SampleDistortedBoundingBoxV2", ..SAMPLE_DISTORTED_BOUNDING_BOX };

const STATELESS_SAMPLE_DISTORTED_BOUNDING_BOX: OpDef =
    OpDef { name: "StatelessSampleDistortedBoundingBox", ..SAMPLE_DISTORTED_BOUNDING_BOX };

const RANDOM_CROP: OpDef = OpDef::new("RandomCrop", crop_shape).with_work(Work::copies_outputs);

fn box_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let size = c.with_rank(0, "image_size", 1)?;
    let boxes = c.with_rank(1, "bounding_boxes", 3)?;
    ensure!(
        size.dim(0).is_none_or(|n| n == 3) && boxes.dim(2).is_none_or(|n| n == 4),
        InvalidArgument,
        "image_size must have 3 elements and boxes 4 coordinates, got shapes {size} and {boxes}"
    );
    c.set_output(0, PartialShape::new([Some(3)]));
    c.set_output(1, PartialShape::new([Some(3)]));
    c.set_output(2, PartialShape::new([Some(1), Some(1), Some(4)]));
    Ok(())
}

fn crop_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let image = c.with_rank(0, "image", 3)?;
    let [height, width] = super::resize::sizes_known(c, 1)?;
    c.set_output(0, PartialShape::new([height, width, image.dim(2)]));
    Ok(())
}

#[derive(Clone, Copy)]
struct Settings {
    /// The attr `min_object_covered`; V2 ops have an input instead.
    covered_min: Option<f32>,
    aspect_ratio: [f32; 2],
    area: [f32; 2],
    attempts: usize,
    uses_image: bool,
}

impl Settings {
    fn new(init: &KernelInit<'_>) -> Result<Settings> {
        let attrs = init.attrs();
        let range = |name: &str| match *attrs.floats(name)? {
            [low, high] if low > 0.0 && high > 0.0 => Ok([low, high]),
            ref other => {
                bail!(InvalidArgument, "{name} must be two positive numbers, is {other:?}")
            }
        };
        let (aspect_ratio, area) = (range("aspect_ratio_range")?, range("area_range")?);
        ensure!(
            area[0] <= 1.0 && area[1] <= 1.0,
            InvalidArgument,
            "area_range must be less than or equal to 1.0, is {area:?}"
        );
        let attempts = attrs.int("max_attempts")?;
        ensure!(
            attempts > 0 && attempts <= i64::from(i32::MAX),
            InvalidArgument,
            "max_attempts must be positive, is {attempts}"
        );
        let covered_min =
            attrs.get("min_object_covered").map(|_| attrs.float("min_object_covered"));
        let covered_min = covered_min.transpose()?;
        if let Some(covered_min) = covered_min {
            check_covered(covered_min)?;
        }
        Ok(Settings {
            covered_min,
            aspect_ratio,
            area,
            attempts: attempts as usize,
            uses_image: attrs.bool("use_image_if_no_bounding_boxes")?,
        })
    }
}

fn check_covered(covered_min: f32) -> Result<()> {
    ensure!(
        covered_min >= 0.0,
        InvalidArgument,
        "Min object covered must be non-negative: {covered_min}"
    );
    Ok(())
}

/// Random numbers of a stateful op's generator, or of a seed in the last input.
enum Source {
    Own(Mutex<Philox>),
    Seed,
}

impl Source {
    fn new(init: &KernelInit<'_>) -> Result<Source> {
        match init.node.input_range("seed") {
            Ok(_) => Ok(Source::Seed),
            Err(_) => Ok(Source::Own(Mutex::new(own_generator(init)?))),
        }
    }

    fn start(&self, ctx: &KernelContext<'_>, samples: u64) -> Result<Samples> {
        Ok(Samples::new(match self {
            Source::Own(generator) => generator.lock().reserve_samples(samples),
            Source::Seed => philox_from_seed(ctx.input(3)?)?,
        }))
    }
}

/// Pixels `x[0]..x[1]` of rows `y[0]..y[1]`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rectangle {
    x: [i32; 2],
    y: [i32; 2],
}

impl Rectangle {
    fn area(&self) -> f32 {
        let side = |[from, to]: [i32; 2]| i64::from(to) - i64::from(from);
        (side(self.x).max(0) * side(self.y).max(0)) as f32
    }

    fn intersection(&self, other: &Rectangle) -> Rectangle {
        let both = |a: [i32; 2], b: [i32; 2]| [a[0].max(b[0]), a[1].min(b[1])];
        Rectangle { x: both(self.x, other.x), y: both(self.y, other.y) }
    }
}

fn sample_box<T>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T: Element + AsPrimitive<i64>,
    i32: AsPrimitive<T>,
{
    let settings = Settings::new(init)?;
    let source = Source::new(init)?;
    AnyKernel::new(move |ctx| {
        let (height, width) = image_size::<T>(ctx)?;
        let covered_min = match settings.covered_min {
            Some(covered_min) => covered_min,
            None => covered_input(ctx)?,
        };
        let image = Rectangle { x: [0, width], y: [0, height] };
        let objects = objects(ctx, image, settings.uses_image)?;
        let mut samples = source.start(ctx, 4 * settings.attempts as u64)?;
        let mut found = None;
        for attempt in 0..settings.attempts {
            // Checks for cancellation; `max_attempts` may be up to 2^31 - 1.
            if attempt % 4096 == 4095 {
                ctx.check_cancelled()?;
            }
            let [low, high] = settings.aspect_ratio;
            let aspect_ratio = unit_f32(samples.next_u32()) * (high - low) + low;
            let crop = random_rectangle(image, settings.area, aspect_ratio, &mut samples);
            found = crop.filter(|crop| covers(crop, covered_min, &objects));
            if found.is_some() {
                break;
            }
        }
        let Rectangle { x, y } = found.unwrap_or(image);
        let vector = |values: [i32; 3]| Tensor::vector(&values.map(|v| -> T { v.as_() }));
        ctx.set_output(0, vector([y[0], x[0], 0])?)?;
        ctx.set_output(1, vector([y[1] - y[0], x[1] - x[0], -1])?)?;
        let share = |v: i32, of: i32| v as f32 / of as f32;
        let corners =
            [share(y[0], height), share(x[0], width), share(y[1], height), share(x[1], width)];
        ctx.set_output(2, Tensor::from_slice(Shape::new(&[1, 1, 4])?, &corners)?)
    })
}

fn image_size<T: Element + AsPrimitive<i64>>(ctx: &KernelContext<'_>) -> Result<(i32, i32)> {
    let size = ctx.input(0)?;
    ensure!(
        size.shape().dims() == [3],
        InvalidArgument,
        "image_size must be a vector of 3 elements, got shape {}",
        size.shape()
    );
    let size = size.as_slice::<T>()?;
    let side = |x: T| i32::try_from(x.as_()).ok().filter(|&x| x >= 0);
    match (side(size[0]), side(size[1])) {
        (Some(height), Some(width)) => Ok((height, width)),
        _ => bail!(
            InvalidArgument,
            "image height and width must not be negative and fit an int, got {:?} and {:?}",
            size[0],
            size[1]
        ),
    }
}

fn covered_input(ctx: &KernelContext<'_>) -> Result<f32> {
    let tensor = ctx.input(2)?;
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "min_object_covered must be 0-D, got shape {}",
        tensor.shape()
    );
    let covered_min = tensor.scalar_value()?;
    check_covered(covered_min)?;
    Ok(covered_min)
}

/// The boxes in pixels; the whole image if there are none and `use_image_if_no_bounding_boxes` is
/// set.
fn objects(ctx: &KernelContext<'_>, image: Rectangle, uses_image: bool) -> Result<Vec<Rectangle>> {
    let boxes = ctx.input(1)?;
    ensure!(
        boxes.rank() == 3 && boxes.shape()[2] == 4,
        InvalidArgument,
        "bounding boxes must have shape [batch, N, 4], got {}",
        boxes.shape()
    );
    let corners = boxes.as_slice::<f32>()?.as_chunks::<4>().0;
    if corners.is_empty() {
        ensure!(
            uses_image,
            InvalidArgument,
            "No bounding boxes provided as input. One must enable use_image_if_no_bounding_boxes \
             if you wish to not provide any bounding boxes."
        );
        return Ok(vec![image]);
    }
    let is_inside = corners.as_flattened().iter().all(|x| (0.0..=1.0).contains(x));
    ensure!(is_inside, InvalidArgument, "All bounding box coordinates must be in [0.0, 1.0]");
    super::pixels::table(corners.len(), |i| {
        let [top, left, bottom, right] = corners[i];
        let pixel = |share: f32, of: i32| (share * of as f32) as i32;
        Rectangle {
            x: [pixel(left, image.x[1]), pixel(right, image.x[1])],
            y: [pixel(top, image.y[1]), pixel(bottom, image.y[1])],
        }
    })
}

/// Whether a crop covers the required fraction of any object.
fn covers(crop: &Rectangle, covered_min: f32, objects: &[Rectangle]) -> bool {
    crop.area() >= 1.0
        && objects.iter().any(|object| {
            let area = object.area();
            area >= 1.0 && crop.intersection(object).area() / area >= covered_min
        })
}

/// The nearest integer, ties to even.
fn nearest(x: f32) -> i32 {
    x.round_ties_even() as i32
}

/// A random rectangle of about this aspect ratio, whose fraction of the image's area is in the
/// range `area`.
fn random_rectangle(
    image: Rectangle,
    [area_min, area_max]: [f32; 2],
    aspect_ratio: f32,
    samples: &mut Samples,
) -> Option<Rectangle> {
    let (image_width, image_height) = (image.x[1], image.y[1]);
    if area_min > area_max || aspect_ratio <= 0.0 || image_width.min(image_height) <= 0 {
        return None;
    }
    let area_min = area_min * image_width as f32 * image_height as f32;
    let area_max = area_max * image_width as f32 * image_height as f32;
    let mut height = nearest((area_min / aspect_ratio).sqrt());
    let mut height_max = nearest((area_max / aspect_ratio).sqrt());
    let width_of = |height: i32| nearest(height as f32 * aspect_ratio);
    if width_of(height_max) > image_width {
        let room = f64::from(image_width) + 0.5 - f64::from(0.000_000_1f32);
        height_max = (room / f64::from(aspect_ratio)) as i32;
        if width_of(height_max) > image_width {
            height_max -= 1;
        }
    }
    height_max = height_max.min(image_height);
    height = height.min(height_max);
    if height < height_max {
        height += below_u32(samples, (height_max - height + 1) as u32) as i32;
    }
    let mut width = width_of(height);
    // Rounding may move the area out of the range.
    let area_of = |width: i32, height: i32| (i64::from(width) * i64::from(height)) as f32;
    if area_of(width, height) < area_min {
        height += 1;
        width = width_of(height);
    }
    if area_of(width, height) > area_max {
        height -= 1;
        width = width_of(height);
    }
    let is_in_range = (area_min..=area_max).contains(&area_of(width, height));
    let fits = (1..=image_width).contains(&width) && (1..=image_height).contains(&height);
    if !is_in_range || !fits {
        return None;
    }
    let mut start = |size: i32, of: i32| {
        if size < of { below_u32(samples, (of - size) as u32) as i32 } else { 0 }
    };
    let y = start(height, image_height);
    let x = start(width, image_width);
    Some(Rectangle { x: [x, x + width], y: [y, y + height] })
}

fn random_crop(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let generator = Mutex::new(own_generator(init)?);
    AnyKernel::new(move |ctx| {
        let image = ctx.input(0)?.shape().clone();
        let [height, width, channels] = *image.dims() else {
            bail!(InvalidArgument, "input must be 3-dimensional, got shape {image}");
        };
        let size = ctx.input(1)?;
        ensure!(
            size.shape().dims() == [2],
            InvalidArgument,
            "size must be a vector of two elements, got shape {}",
            size.shape()
        );
        let size = ctx.ints(1, "size")?;
        let part = |i: usize, of: usize| usize::try_from(size[i]).ok().filter(|&n| n <= of);
        let (Some(rows), Some(columns)) = (part(0, height), part(1, width)) else {
            bail!(FailedPrecondition, "a crop of {size:?} does not fit an image of shape {image}");
        };
        if [rows, columns] == [height, width] {
            let whole = ctx.take_input(0)?;
            return ctx.set_output(0, whole);
        }
        let mut samples = Samples::new(generator.lock().reserve_samples(2));
        let mut start = |room: usize| match room {
            0 => 0,
            _ => samples.next_u32() as usize % (room + 1),
        };
        let (y, x) = (start(height - rows), start(width - columns));
        let mut out = ctx.allocate_output(0, Shape::new(&[rows, columns, channels])?)?;
        with_cell!(out.dtype(), C => {
            let (source, row) = (C::view(ctx.input(0)?)?, columns * channels);
            if row > 0 {
                for (i, out) in C::view_mut(&mut out)?.chunks_exact_mut(row).enumerate() {
                    out.clone_from_slice(&source[((y + i) * width + x) * channels..][..row]);
                }
            }
        });
        ctx.set_output(0, out)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Call, call};
    use thalweg_tensor::{Code, DType};

    fn boxes(corners: &[[f32; 4]]) -> Tensor {
        let shape = Shape::new(&[1, corners.len(), 4]).unwrap();
        Tensor::from_slice(shape, corners.as_flattened()).unwrap()
    }

    fn stateless(size: &[i32], corners: &[[f32; 4]], covered: f32, seed: [i64; 2]) -> Call {
        call("StatelessSampleDistortedBoundingBox")
            .input(Tensor::vector(size).unwrap())
            .input(boxes(corners))
            .input(Tensor::scalar(covered))
            .input(Tensor::vector(&seed).unwrap())
    }

    const OBJECTS: [[f32; 4]; 2] = [[0.1, 0.2, 0.6, 0.7], [0.3, 0.3, 0.9, 0.8]];

    /// Boxes recorded from TensorFlow for the same seeds.
    #[test]
    fn the_same_boxes_as_tensorflow() {
        for (seed, begin, size) in [
            ([3, 4], [0, 21, 0], [18, 16, -1]),
            ([1, 2], [12, 3, 0], [26, 32, -1]),
            ([0, 0], [18, 24, 0], [20, 17, -1]),
            ([-5, 7], [1, 1, 0], [25, 19, -1]),
            ([123_456_789, 987_654_321], [9, 5, 0], [30, 36, -1]),
        ] {
            let got = stateless(&[40, 50, 3], &OBJECTS, 0.3, seed).run_all().unwrap();
            assert_eq!(got[0].as_slice::<i32>().unwrap(), begin, "{seed:?}");
            assert_eq!(got[1].as_slice::<i32>().unwrap(), size, "{seed:?}");
        }
        let area = stateless(&[40, 50, 3], &OBJECTS, 0.3, [3, 4])
            .attr("area_range", &[0.3f32, 0.5][..])
            .attr("aspect_ratio_range", &[0.5f32, 2.0][..])
            .run_all()
            .unwrap();
        assert_eq!(area[0].as_slice::<i32>().unwrap(), [5, 15, 0]);
        let first = call("SampleDistortedBoundingBoxV2")
            .input(Tensor::vector(&[40, 50, 3]).unwrap())
            .input(boxes(&OBJECTS))
            .input(Tensor::scalar(0.3f32))
            .attr("seed", 5i64)
            .attr("seed2", 6i64)
            .run_all()
            .unwrap();
        assert_eq!(first[0].as_slice::<i32>().unwrap(), [1, 7, 0]);
        assert_eq!(first[1].as_slice::<i32>().unwrap(), [28, 33, -1]);
    }

    #[test]
    fn hostile_inputs() {
        let size = [40, 50, 3];
        let refused = [
            stateless(&size, &[[0.0, 0.0, 1.8, 1.0]], 0.3, [1, 2]),
            stateless(&size, &[[f32::NAN; 4]], 0.3, [1, 2]),
            stateless(&size, &[], 0.3, [1, 2]),
            stateless(&size, &OBJECTS, -1.0, [1, 2]),
            stateless(&[40, 50], &OBJECTS, 0.3, [1, 2]),
            stateless(&[-4, 50, 3], &OBJECTS, 0.3, [1, 2]),
            stateless(&size, &OBJECTS, 0.3, [1, 2]).attr("max_attempts", 0i64),
            stateless(&size, &OBJECTS, 0.3, [1, 2]).attr("area_range", &[0.0f32, 1.0][..]),
            stateless(&size, &OBJECTS, 0.3, [1, 2]).attr("aspect_ratio_range", &[1.0f32][..]),
        ];
        for call in refused {
            assert_eq!(call.run_all().unwrap_err().code(), Code::InvalidArgument);
        }
        for size in [[0, 50, 3], [i32::MAX, i32::MAX, 3], [1, 1, 1]] {
            stateless(&size, &OBJECTS, 0.3, [1, 2]).run_all().unwrap();
        }
        let crop = |size: &[i64]| {
            call("RandomCrop")
                .input(Tensor::zeros(DType::UInt8, Shape::new(&[4, 5, 3]).unwrap()).unwrap())
                .input(Tensor::vector(size).unwrap())
                .run()
        };
        assert_eq!(crop(&[2, 3]).unwrap().shape().dims(), [2, 3, 3]);
        assert_eq!(crop(&[5, 5]).unwrap_err().code(), Code::FailedPrecondition);
        assert_eq!(crop(&[-1, 5]).unwrap_err().code(), Code::FailedPrecondition);
        assert_eq!(crop(&[1]).unwrap_err().code(), Code::InvalidArgument);
    }
}
