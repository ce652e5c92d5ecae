//! Lowering of `CropAndResize` and its gradients.
//!
//! A box of an image that does not exist selects zeros, and its gradient is left out.

use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::Lowering;
use thalweg_tensor::{DType, Result, ensure};

use super::crop_and_resize::is_nearest;
use super::pixels::Images;
use super::resize::checked_size;
use crate::rows_lowering::{gathered_points, scattered};

/// Where the pixels of all crops lie in their images.
struct Samples {
    /// Number of boxes, height and width of crops.
    dims: [usize; 3],
    /// The image of each pixel.
    image: Value,
    rows: Axis,
    columns: Axis,
}

/// Sample positions of all crops along one axis.
struct Axis {
    /// Where the dimension is in `Samples::dims`.
    dim: usize,
    /// The position of each sample, per box and pixel.
    place: Value,
    is_inside: Value,
    size: usize,
}

impl Axis {
    /// Samples between two columns of `boxes`.
    fn new(
        boxes: &Value,
        (from, to): (usize, usize),
        dim: usize,
        size: usize,
        count: usize,
    ) -> Axis {
        let last = (size - 1) as f64;
        let (from, to) = (boxes.slice_dim(1, from, from + 1), boxes.slice_dim(1, to, to + 1));
        let place = if count > 1 {
            let step = (&to - &from) * last / (count - 1) as f64;
            // In double precision, where the sum is exact: however a compiler rounds, and however often it
            // computes a position, its integral part and its fraction fit together.
            let start = (from * last).convert(DType::Double);
            let steps = boxes.iota(DType::Double, &[1, count], 1) * step.convert(DType::Double);
            (start + steps).convert(DType::Float)
        } else {
            (from + to) * 0.5 * last
        };
        let is_inside = place
            .compare_to(Comparison::GreaterEqual, 0.0)
            .and(&place.compare_to(Comparison::LessEqual, last));
        Axis { dim, place, is_inside, size }
    }

    /// A value per box and pixel of this axis, for all pixels of the crops.
    fn spread(&self, x: &Value, dims: &[usize]) -> Value {
        x.broadcast_in(dims, &[0, self.dim])
    }

    fn lower(&self) -> Value {
        self.place.floor()
    }

    fn upper(&self) -> Value {
        self.place.ceil()
    }

    fn fraction(&self) -> Value {
        &self.place - self.place.floor()
    }

    fn nearest(&self) -> Value {
        self.place.round_half_away()
    }

    /// The derivatives of a sample's position by both ends of the box, per pixel.
    fn shares(&self, like: &Value, count: usize) -> (Value, Value) {
        let last = (self.size - 1) as f64;
        if count == 1 {
            let half = like.splat(DType::Float, &[1, 1], 0.5 * last);
            return (half.clone(), half);
        }
        let far = like.iota(DType::Float, &[1, count], 1) * (last / (count - 1) as f64);
        (far.negate() + last, far)
    }
}

impl Samples {
    /// The samples of the boxes in inputs `i` and `i + 1`.
    fn new(l: &Lowering<'_>, i: usize, image: Images, crop: (usize, usize)) -> Result<Samples> {
        let (boxes, images) = (l.input(i)?, l.input(i + 1)?);
        let count = images.num_elements();
        ensure!(
            boxes.rank() == 2 && boxes.dims() == [count, 4] && images.rank() == 1,
            InvalidArgument,
            "boxes must have 4 columns and box_index their number, are {:?} and {:?}",
            boxes.dims(),
            images.dims()
        );
        ensure!(
            image.height > 0 && image.width > 0,
            InvalidArgument,
            "image dimensions must be positive, got {} and {}",
            image.height,
            image.width
        );
        ensure!(
            crop.0 > 0 && crop.1 > 0,
            InvalidArgument,
            "crop dimensions must be positive, got {} and {}",
            crop.0,
            crop.1
        );
        Ok(Samples {
            dims: [count, crop.0, crop.1],
            image: images,
            rows: Axis::new(&boxes, (0, 2), 1, image.height, crop.0),
            columns: Axis::new(&boxes, (1, 3), 2, image.width, crop.1),
        })
    }

    /// Whether each sample is in its image.
    fn is_inside(&self) -> Value {
        let spread = |axis: &Axis| axis.spread(&axis.is_inside, &self.dims);
        spread(&self.rows).and(&spread(&self.columns))
    }

    /// A row and a column per sample as points of a batch of images; those outside are nowhere.
    fn points(&self, rows: &Value, columns: &Value) -> Value {
        let image = self.image.broadcast_in(&self.dims, &[0]);
        let image = self.is_inside().select(&image, &image.scalar_like(-1.0));
        let index = |axis: &Axis, x: &Value| axis.spread(x, &self.dims).convert(DType::Int32);
        let (rows, columns) = (index(&self.rows, rows), index(&self.columns, columns));
        image.expand(3).concatenate(&[rows.expand(3), columns.expand(3)], 3)
    }

    /// The fractional distances of samples from the pixels before them, for crops of `dims`.
    fn fractions(&self, dims: &[usize]) -> (Value, Value) {
        let spread = |axis: &Axis| axis.spread(&axis.fraction(), dims);
        (spread(&self.rows), spread(&self.columns))
    }

    /// The pixels around each sample: above left and right, below left and right.
    fn corners(&self, images: &Value) -> Result<[Value; 4]> {
        let (top, bottom) = (self.rows.lower(), self.rows.upper());
        let (left, right) = (self.columns.lower(), self.columns.upper());
        let of = |y: &Value, x: &Value| gathered_points(images, &self.points(y, x));
        Ok([of(&top, &left)?, of(&top, &right)?, of(&bottom, &left)?, of(&bottom, &right)?])
    }
}

fn mix(a: &Value, b: &Value, fraction: &Value) -> Value {
    a + (b - a) * fraction
}

pub(crate) fn crop_and_resize(l: &mut Lowering<'_>) -> Result<()> {
    let images = l.input(0)?.convert(DType::Float);
    let image = Images::of_dims(images.dims(), "input image")?;
    let crop = checked_size(l.host(3)?.shape(), &l.ints(3)?)?;
    let samples = Samples::new(l, 1, image, crop)?;
    let dims = [&samples.dims[..], &[image.channels]].concat();
    if dims.contains(&0) || images.num_elements() == 0 {
        let none =
            images.splat(DType::Float, &dims, f64::from(l.attrs().float("extrapolation_value")?));
        return l.set(0, none);
    }
    let pixels = if is_nearest(l.attrs())? {
        let points = samples.points(&samples.rows.nearest(), &samples.columns.nearest());
        gathered_points(&images, &points)?
    } else {
        let [tl, tr, bl, br] = samples.corners(&images)?;
        let (y, x) = samples.fractions(&dims);
        mix(&mix(&tl, &tr, &x), &mix(&bl, &br, &x), &y)
    };
    let outside =
        images.splat(DType::Float, &[], f64::from(l.attrs().float("extrapolation_value")?));
    let is_inside = samples.is_inside().broadcast_in(&dims, &[0, 1, 2]);
    l.set(0, is_inside.select(&pixels, &outside))
}

/// The gradient in input 0 and the sizes of its crops.
fn gradient_of(l: &Lowering<'_>, channels: usize) -> Result<(Value, Images)> {
    let grads = l.input(0)?;
    let crops = Images::of_dims(grads.dims(), "grads image")?;
    ensure!(
        crops.channels == channels,
        InvalidArgument,
        "image and grads are incompatible: {channels} and {} channels",
        crops.channels
    );
    Ok((grads, crops))
}

fn check_count(samples: &Samples, crops: Images) -> Result<()> {
    ensure!(
        samples.dims[0] == crops.batch,
        InvalidArgument,
        "boxes and grads have incompatible shape: {} boxes, {} crops",
        samples.dims[0],
        crops.batch
    );
    Ok(())
}

pub(crate) fn grad_image(l: &mut Lowering<'_>) -> Result<()> {
    let shape = l.shape_input(3, "image_size")?;
    let image = Images::of_dims(shape.dims(), "image")?;
    let (grads, crops) = gradient_of(l, image.channels)?;
    let samples = Samples::new(l, 1, image, (crops.height, crops.width))?;
    check_count(&samples, crops)?;
    let wide = if l.output_dtype(0) == DType::Double { DType::Double } else { DType::Float };
    let mut sums = grads.splat(wide, shape.dims(), 0.0);
    if grads.num_elements() == 0 || sums.num_elements() == 0 {
        return l.set(0, sums.convert(l.output_dtype(0)));
    }
    let mut add = |y: &Value, x: &Value, weight: Option<Value>| -> Result<()> {
        let updates = weight.map_or(grads.clone(), |weight| &grads * weight).convert(wide);
        sums = scattered(&sums, &samples.points(y, x), &updates, Value::plus)?;
        Ok(())
    };
    let (rows, columns) = (&samples.rows, &samples.columns);
    if is_nearest(l.attrs())? {
        add(&rows.nearest(), &columns.nearest(), None)?;
    } else {
        let (fy, fx) = samples.fractions(grads.dims());
        let (gy, gx) = (fy.negate() + 1.0, fx.negate() + 1.0);
        for (y, wy) in [(rows.lower(), gy), (rows.upper(), fy)] {
            for (x, wx) in [(columns.lower(), &gx), (columns.upper(), &fx)] {
                add(&y, &x, Some(&wy * wx))?;
            }
        }
    }
    l.set(0, sums.convert(l.output_dtype(0)))
}

pub(crate) fn grad_boxes(l: &mut Lowering<'_>) -> Result<()> {
    let images = l.input(1)?.convert(DType::Float);
    let image = Images::of_dims(images.dims(), "input image")?;
    let (grads, crops) = gradient_of(l, image.channels)?;
    let samples = Samples::new(l, 2, image, (crops.height, crops.width))?;
    check_count(&samples, crops)?;
    if grads.num_elements() == 0 || images.num_elements() == 0 {
        return l.set(0, grads.splat(DType::Float, &[crops.batch, 4], 0.0));
    }
    let dims = grads.dims();
    let [tl, tr, bl, br] = samples.corners(&images)?;
    let (fy, fx) = samples.fractions(dims);
    let is_inside = samples.is_inside().broadcast_in(dims, &[0, 1, 2]);
    let grads = is_inside.select(&grads, &grads.scalar_like(0.0));
    let slope_y = &grads * mix(&(&bl - &tl), &(&br - &tr), &fx);
    let slope_x = &grads * mix(&(&tr - &tl), &(&br - &bl), &fy);
    let sum = |slope: &Value, share: &Value, dim: usize| {
        let share = share.reshape(&[share.num_elements()]);
        let share = match share.num_elements() == dims[dim] {
            true => share.broadcast_in(dims, &[dim]),
            false => share.reshape(&[]),
        };
        (slope * share).sum(&[1, 2, 3]).expand(1)
    };
    let (near_y, far_y) = samples.rows.shares(&grads, crops.height);
    let (near_x, far_x) = samples.columns.shares(&grads, crops.width);
    let parts = [sum(&slope_x, &near_x, 2), sum(&slope_y, &far_y, 1), sum(&slope_x, &far_x, 2)];
    l.set(0, sum(&slope_y, &near_y, 1).concatenate(&parts, 1))
}
