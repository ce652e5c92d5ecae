//! `ImageProjectiveTransform`: each output pixel samples the input at the position given by eight
//! parameters.

use half::{bf16, f16};
use num_traits::AsPrimitive;
use thalweg_graph::{GradientContext, NodeAttrs, OpDef, Output, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit};
use thalweg_tensor::{DType, Element, PartialShape, Result, Shape, Tensor, bail, ensure};

use super::pixels::{Images, truncated};
use super::resize::{image_sides, size_input, sizes_known};
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        IMAGE_PROJECTIVE_TRANSFORM_V2.with_gradient(gradient),
        IMAGE_PROJECTIVE_TRANSFORM_V3.with_gradient(gradient),
    ],
    kernels: &[
        cpu_kernel!("ImageProjectiveTransformV2", "dtype" in [u8, i32, i64, f16, bf16, f32, f64] => transform; host_inputs: &["output_shape"]),
        cpu_kernel!("ImageProjectiveTransformV3", "dtype" in [u8, i32, i64, f16, bf16, f32, f64] => transform; host_inputs: &["output_shape", "fill_value"]),
    ],
};

const IMAGE_PROJECTIVE_TRANSFORM_V2: OpDef =
    OpDef::new("ImageProjectiveTransformV2", transformed_shape).with_work(Work::per_output::<1500>);

const IMAGE_PROJECTIVE_TRANSFORM_V3: OpDef =
    OpDef { name: "ImageProjectiveTransformV3", ..IMAGE_PROJECTIVE_TRANSFORM_V2 };

fn transformed_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let images = c.with_rank(0, "images", 4)?;
    c.with_rank(1, "transforms", 2)?;
    let [height, width] = sizes_known(c, 2)?;
    c.set_output(0, PartialShape::new([images.dim(0), height, width, images.dim(3)]));
    Ok(())
}

/// The adjoint transformed by the inverse matrices, as in TensorFlow: an approximation of the
/// gradient.
fn gradient(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, images, transforms) = (g.grad(0)?, g.input(0), g.input(1));
    if !g.dtype(images).is_floating() {
        return Ok(());
    }
    let (inverse, size) = (inverted(g, transforms)?, image_sides(g, images)?);
    let is_v3 = g.num_inputs() == 4;
    let zero = g.number(DType::Float, 0.0)?;
    let op = if is_v3 { "ImageProjectiveTransformV3" } else { "ImageProjectiveTransformV2" };
    let mut builder = g.op_like(op, &["interpolation", "fill_mode"]).inputs(&[grad, inverse, size]);
    if is_v3 {
        builder = builder.input(zero);
    }
    let adjoint = builder.build()?;
    g.set(0, adjoint)
}

/// The inverse transforms; eight parameters and a final one form a 3 by 3 matrix.
fn inverted(g: &mut GradientContext<'_>, transforms: Output) -> Result<Output> {
    let one = g.number(DType::Float, 1.0)?;
    let padding = g.scope().constant(&Tensor::from_slice(Shape::new(&[2, 2])?, &[0, 0, 0, 1])?)?;
    let nine = g.add("PadV2", &[transforms, padding, one])?;
    let (matrices, rows) = (g.ints(&[-1, 3, 3])?, g.ints(&[-1, 9])?);
    let nine = g.add("Reshape", &[nine, matrices])?;
    let inverse = g.add("MatrixInverse", &[nine])?;
    let flat = g.add("Reshape", &[inverse, rows])?;
    let (first, last) = (g.ints(&[0, 0])?, g.ints(&[0, 8])?);
    let (eight, single) = (g.ints(&[-1, 8])?, g.ints(&[-1, 1])?);
    let scale = g.add("Slice", &[flat, last, single])?;
    let flat = g.add("Slice", &[flat, first, eight])?;
    g.add("RealDiv", &[flat, scale])
}

/// Fill mode for positions outside the image (`fill_mode`).
#[derive(Clone, Copy)]
enum Fill {
    Constant,
    Reflect,
    Wrap,
    Nearest,
}

impl Fill {
    fn from_attrs(attrs: NodeAttrs<'_>) -> Result<Fill> {
        let name = String::from_utf8_lossy(attrs.bytes("fill_mode")?).to_uppercase();
        Ok(match name.as_str() {
            "CONSTANT" => Fill::Constant,
            "REFLECT" => Fill::Reflect,
            "WRAP" => Fill::Wrap,
            "NEAREST" => Fill::Nearest,
            _ => bail!(
                InvalidArgument,
                "Invalid mode {name}: it must be REFLECT, WRAP, CONSTANT or NEAREST"
            ),
        })
    }

    /// Maps coordinate `x` into an axis of `size` pixels.
    fn inside(self, x: f32, size: usize) -> f32 {
        let last = size as f32 - 1.0;
        let bound = |x: f32| {
            if x < 0.0 {
                0.0
            } else if x > last {
                last
            } else {
                x
            }
        };
        let is_inside = (0.0..=last).contains(&x);
        match self {
            Fill::Constant => x,
            Fill::Nearest => bound(x),
            _ if is_inside || x.is_nan() => bound(x),
            _ if size <= 1 => 0.0,
            Fill::Reflect => {
                let (size, twice) = (size as f32, 2.0 * size as f32);
                let reflected = if x < 0.0 {
                    let x = if x < twice { twice * (-x / twice).trunc() + x } else { x };
                    if x < -size { x + twice } else { -x - 1.0 }
                } else {
                    let x = x - twice * (x / twice).trunc();
                    if x >= size { twice - x - 1.0 } else { x }
                };
                bound(reflected)
            }
            Fill::Wrap => {
                let size = size as f32;
                let wrapped = if x < 0.0 {
                    x + size * ((-x / last).trunc() + 1.0)
                } else {
                    x - size * (x / last).trunc()
                };
                bound(wrapped)
            }
        }
    }
}

fn is_bilinear(attrs: NodeAttrs<'_>) -> Result<bool> {
    match String::from_utf8_lossy(attrs.bytes("interpolation")?).to_uppercase().as_str() {
        "NEAREST" => Ok(false),
        "BILINEAR" => Ok(true),
        other => {
            bail!(InvalidArgument, "Invalid interpolation {other}: it must be NEAREST or BILINEAR")
        }
    }
}

fn transform<T>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T: Element + AsPrimitive<f32>,
    f32: AsPrimitive<T>,
{
    let is_bilinear = is_bilinear(init.attrs())?;
    let fill = Fill::from_attrs(init.attrs())?;
    AnyKernel::new(move |ctx| {
        let input = Images::of(ctx.input(0)?, "images")?;
        let transforms = transforms(ctx, input.batch)?;
        let (height, width) = size_input(ctx, 2)?;
        let output = input.resized(height, width);
        let outside: f32 = match ctx.num_inputs() {
            4 => fill_value(ctx)?,
            _ => 0.0,
        };
        let mut out = ctx.allocate(T::DTYPE, output.shape()?)?;
        let view = View { data: ctx.slice::<T>(0)?, input, fill, outside: outside.as_() };
        let (row, channels) = (output.row(), output.channels);
        let cost = output.width as f64 * (20.0 + 4.0 * channels as f64);
        for_each_rows(ctx, out.as_mut_slice::<T>()?, row, cost, |first, out| {
            for (i, out) in (first..).zip(out.chunks_exact_mut(row)) {
                let (image, y) = (i / output.height, i % output.height);
                let numbers = &transforms[if transforms.len() == 1 { 0 } else { image }];
                for (x, out) in out.chunks_exact_mut(channels).enumerate() {
                    match project(numbers, x as f32, y as f32) {
                        None => out.fill(view.outside),
                        Some(place) if is_bilinear => view.mixed(image, place, out),
                        Some(place) => view.nearest(image, place, out),
                    }
                }
            }
        })?;
        ctx.set_output(0, out)
    })
}

fn transforms<'a>(ctx: &'a KernelContext<'_>, images: usize) -> Result<&'a [[f32; 8]]> {
    let tensor = ctx.input(1)?;
    match *tensor.shape().dims() {
        [rows, 8] if rows == 1 || rows == images => Ok(tensor.as_slice::<f32>()?.as_chunks().0),
        _ => bail!(
            InvalidArgument,
            "Input transform should be {images} x 8 or 1 x 8, got shape {}",
            tensor.shape()
        ),
    }
}

fn fill_value(ctx: &KernelContext<'_>) -> Result<f32> {
    let tensor = ctx.input(3)?;
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "fill_value must be a scalar, got shape {}",
        tensor.shape()
    );
    tensor.scalar_value()
}

/// Input position of output pixel (x, y), or `None` if it is infinite.
fn project(t: &[f32; 8], x: f32, y: f32) -> Option<[f32; 2]> {
    let depth = t[6] * x + t[7] * y + 1.0;
    if depth == 0.0 {
        return None;
    }
    Some([(t[0] * x + t[1] * y + t[2]) / depth, (t[3] * x + t[4] * y + t[5]) / depth])
}

struct View<'a, T> {
    data: &'a [T],
    input: Images,
    fill: Fill,
    outside: T,
}

impl<T> View<'_, T>
where
    T: Element + AsPrimitive<f32>,
    f32: AsPrimitive<T>,
{
    fn bring_inside(&self, [x, y]: [f32; 2]) -> [f32; 2] {
        [self.fill.inside(x, self.input.width), self.fill.inside(y, self.input.height)]
    }

    /// The pixel at these coordinates, or the fill value outside the image.
    fn pixel(&self, image: usize, x: i64, y: i64) -> Option<&[T]> {
        let Images { height, width, channels, .. } = self.input;
        let x = usize::try_from(x).ok().filter(|&x| x < width)?;
        let y = usize::try_from(y).ok().filter(|&y| y < height)?;
        Some(&self.data[((image * height + y) * width + x) * channels..][..channels])
    }

    fn nearest(&self, image: usize, place: [f32; 2], out: &mut [T]) {
        let [x, y] = self.bring_inside(place).map(|x| truncated(x.round()));
        match self.pixel(image, x, y) {
            Some(pixel) => out.copy_from_slice(pixel),
            None => out.fill(self.outside),
        }
    }

    fn mixed(&self, image: usize, place: [f32; 2], out: &mut [T]) {
        let [x, y] = self.bring_inside(place);
        let (left, top) = (x.floor(), y.floor());
        let (right, bottom) = (left + 1.0, top + 1.0);
        let pixel = |x: f32, y: f32| self.pixel(image, truncated(x), truncated(y));
        let pixels =
            [pixel(left, top), pixel(right, top), pixel(left, bottom), pixel(right, bottom)];
        for (c, out) in out.iter_mut().enumerate() {
            let [tl, tr, bl, br] = pixels.map(|p| p.map_or(self.outside, |pixel| pixel[c]).as_());
            let upper = (right - x) * tl + (x - left) * tr;
            let lower = (right - x) * bl + (x - left) * br;
            *out = ((bottom - y) * upper + (y - top) * lower).as_();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::call;
    use thalweg_tensor::Code;

    fn run(numbers: &[f32], size: [i32; 2], fill_mode: &str) -> Result<Tensor> {
        let data: Vec<f32> = (0..12).map(|x| x as f32).collect();
        call("ImageProjectiveTransformV3")
            .input(Tensor::from_slice(Shape::new(&[1, 3, 4, 1])?, &data)?)
            .input(Tensor::from_slice(Shape::new(&[1, numbers.len()])?, numbers)?)
            .input(Tensor::vector(&size)?)
            .input(Tensor::scalar(9.0f32))
            .attr("interpolation", "BILINEAR")
            .attr("fill_mode", fill_mode)
            .run()
    }

    #[test]
    fn the_identity_changes_nothing() {
        let got = run(&[1., 0., 0., 0., 1., 0., 0., 0.], [3, 4], "CONSTANT").unwrap();
        let expected: Vec<f32> = (0..12).map(|x| x as f32).collect();
        assert_eq!(got.as_slice::<f32>().unwrap(), expected);
        let moved = run(&[1., 0., 1., 0., 1., 0., 0., 0.], [1, 4], "CONSTANT").unwrap();
        assert_eq!(moved.as_slice::<f32>().unwrap(), [1., 2., 3., 9.]);
        let moved = run(&[1., 0., -2., 0., 1., 0., 0., 0.], [1, 4], "REFLECT").unwrap();
        assert_eq!(moved.as_slice::<f32>().unwrap(), [1., 0., 0., 1.]);
    }

    #[test]
    fn hostile_transforms() {
        for mode in ["CONSTANT", "REFLECT", "WRAP", "NEAREST"] {
            for x in [f32::NAN, f32::INFINITY, -1e38, 1e38, 1e-45] {
                run(&[x; 8], [2, 2], mode).unwrap();
                run(&[-x; 8], [2, 2], mode).unwrap();
            }
        }
        let code = |r: Result<Tensor>| r.unwrap_err().code();
        assert_eq!(code(run(&[0.0; 7], [2, 2], "WRAP")), Code::InvalidArgument);
        assert_eq!(code(run(&[0.0; 8], [0, 2], "WRAP")), Code::InvalidArgument);
        assert_eq!(code(run(&[0.0; 8], [2, 2], "WARP")), Code::InvalidArgument);
    }
}
