//! `DrawBoundingBoxes`.

use half::f16;
use thalweg_graph::{OpDef, ShapeContext, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit};
use thalweg_tensor::{Element, Result, Tensor, bail, ensure};

use super::pixels::{Images, truncated};
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[DRAW_BOUNDING_BOXES.without_gradient(), DRAW_BOUNDING_BOXES_V2],
    kernels: &[
        cpu_kernel!("DrawBoundingBoxes", "T" in [f32, f16] => draw),
        cpu_kernel!("DrawBoundingBoxesV2", "T" in [f32, f16] => draw),
    ],
};

const DRAW_BOUNDING_BOXES: OpDef =
    OpDef::new("DrawBoundingBoxes", drawn_shape).with_work(Work::moves);

const DRAW_BOUNDING_BOXES_V2: OpDef = OpDef { name: "DrawBoundingBoxesV2", ..DRAW_BOUNDING_BOXES };

fn drawn_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank_at_least(0, "images", 3)?;
    shape::unchanged(c)
}

/// TensorFlow's default colors: yellow, blue, red, lime, purple, olive, maroon, navy blue, aqua,
/// fuchsia.
const COLORS: [[f32; 4]; 10] = [
    [1.0, 1.0, 0.0, 1.0],
    [0.0, 0.0, 1.0, 1.0],
    [1.0, 0.0, 0.0, 1.0],
    [0.0, 1.0, 0.0, 1.0],
    [0.5, 0.0, 0.5, 1.0],
    [0.5, 0.5, 0.0, 1.0],
    [0.5, 0.0, 0.0, 1.0],
    [0.0, 0.0, 0.5, 1.0],
    [0.0, 1.0, 1.0, 1.0],
    [1.0, 0.0, 1.0, 1.0],
];

/// The color of each box, cyclic.
struct Colors<'a> {
    given: &'a [f32],
    columns: usize,
    is_grey: bool,
}

impl<'a> Colors<'a> {
    fn new(ctx: &'a KernelContext<'_>, channels: usize) -> Result<Colors<'a>> {
        let is_grey = channels == 1;
        if ctx.num_inputs() < 3 {
            return Ok(Colors { given: &[], columns: 4, is_grey });
        }
        let colors = ctx.input(2)?;
        let [_, columns] = *colors.shape().dims() else {
            bail!(InvalidArgument, "colors must be a 2-D matrix, got shape {}", colors.shape());
        };
        ensure!(
            colors.num_elements() == 0 || columns >= channels,
            InvalidArgument,
            "colors must have at least the {channels} channels of the images, got shape {}",
            colors.shape()
        );
        Ok(Colors { given: colors.as_slice()?, columns, is_grey })
    }

    fn pen(&self, number: usize) -> [f32; 4] {
        if self.given.is_empty() {
            let color = COLORS[number % COLORS.len()];
            return if self.is_grey { [1.0; 4] } else { color };
        }
        let count = self.given.len() / self.columns;
        let given = &self.given[number % count * self.columns..][..self.columns];
        let mut pen = [0.0; 4];
        pen.iter_mut().zip(given).for_each(|(pen, x)| *pen = *x);
        pen
    }
}

fn draw<T>(_: &KernelInit<'_>) -> Result<AnyKernel>
where
    T: Element + num_traits::FromPrimitive,
{
    AnyKernel::new(|ctx| {
        let images = Images::of(ctx.input(0)?, "images")?;
        let boxes = ctx.input(1)?;
        let [batch, count, columns] = *boxes.shape().dims() else {
            bail!(InvalidArgument, "boxes must be 3-dimensional, got shape {}", boxes.shape());
        };
        ensure!(
            batch == images.batch,
            InvalidArgument,
            "images and boxes must be equally many, got {} and {batch}",
            images.batch
        );
        ensure!(columns == 4, InvalidArgument, "boxes must have 4 columns, got {columns}");
        ensure!(
            matches!(images.channels, 1 | 3 | 4),
            InvalidArgument,
            "Channel depth should be either 1 (GRY), 3 (RGB), or 4 (RGBA), is {}",
            images.channels
        );
        Colors::new(ctx, images.channels)?;
        let mut out = copied::<T>(ctx)?;
        let size = images.height * images.row();
        let (boxes, colors) = (ctx.slice::<f32>(1)?, Colors::new(ctx, images.channels)?);
        let boxes = boxes.as_chunks::<4>().0;
        let cost = (count * (images.height + images.width)) as f64 * 4.0 + 10.0;
        for_each_rows(ctx, out.as_mut_slice::<T>()?, size, cost, |first, out| {
            for (i, out) in (first..).zip(out.chunks_exact_mut(size)) {
                for number in 0..count {
                    let mut pen = [T::default(); 4];
                    for (pen, color) in pen.iter_mut().zip(colors.pen(number)) {
                        *pen = T::from_f32(color).unwrap_or_default();
                    }
                    outline(&boxes[i * count + number], images, &pen[..images.channels], out);
                }
            }
        })?;
        ctx.set_output(0, out)
    })
}

/// The first input as a mutable copy.
fn copied<T: Element>(ctx: &mut KernelContext<'_>) -> Result<Tensor> {
    let shape = ctx.input(0)?.shape().clone();
    let (mut out, taken) = ctx.forward_input_or_allocate(&[0], T::DTYPE, &shape)?;
    if taken.is_none() {
        let source = ctx.slice::<T>(0)?;
        for_each_rows(ctx, out.as_mut_slice::<T>()?, 1, 0.3, |first, out| {
            out.copy_from_slice(&source[first..first + out.len()]);
        })?;
    }
    Ok(out)
}

/// Draws the outline of one box into one image, clipped to it.
fn outline<T: Element>(corners: &[f32; 4], images: Images, pen: &[T], out: &mut [T]) {
    let (last_row, last_column) = (images.height as i64 - 1, images.width as i64 - 1);
    let [top, left, bottom, right] = *corners;
    let top = truncated(top * last_row as f32);
    let bottom = truncated(bottom * last_row as f32);
    let left = truncated(left * last_column as f32);
    let right = truncated(right * last_column as f32);
    let is_outside = top > last_row || bottom < 0 || left > last_column || right < 0;
    if top > bottom || left > right || is_outside {
        return;
    }
    let rows = top.max(0)..=bottom.min(last_row);
    let columns = left.max(0)..=right.min(last_column);
    let mut dot = |row: i64, column: i64| {
        let at = (row as usize * images.width + column as usize) * pen.len();
        out[at..at + pen.len()].copy_from_slice(pen);
    };
    for row in [top, bottom] {
        if (0..=last_row).contains(&row) {
            columns.clone().for_each(|column| dot(row, column));
        }
    }
    for column in [left, right] {
        if (0..=last_column).contains(&column) {
            rows.clone().for_each(|row| dot(row, column));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::call;
    use thalweg_tensor::{Code, DType, Result, Shape, Tensor};

    fn draw(dims: &[usize], boxes: &[f32]) -> Result<Vec<f32>> {
        let images = Tensor::zeros(DType::Float, Shape::new(dims)?)?;
        let boxes = Tensor::from_slice(Shape::new(&[1, boxes.len() / 4, 4])?, boxes)?;
        let out = call("DrawBoundingBoxes").input(images).input(boxes).run()?;
        Ok(out.as_slice::<f32>()?.to_vec())
    }

    #[test]
    fn an_outline() {
        let got = draw(&[1, 3, 4, 1], &[0.0, 0.0, 1.0, 0.7]).unwrap();
        assert_eq!(got, [1., 1., 1., 0., 1., 0., 1., 0., 1., 1., 1., 0.]);
    }

    #[test]
    fn boxes_beyond_the_image_draw_what_is_inside() {
        let got = draw(&[1, 3, 3, 1], &[-1.0, 0.5, 9.0, 2.0]).unwrap();
        assert_eq!(got, [0., 1., 0., 0., 1., 0., 0., 1., 0.]);
        for hostile in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30] {
            draw(&[1, 3, 3, 3], &[hostile, 0.0, 1.0, hostile]).unwrap();
            draw(&[1, 3, 3, 3], &[0.0, hostile, hostile, 1.0]).unwrap();
        }
        draw(&[1, 0, 3, 3], &[0.0, 0.0, 1.0, 1.0]).unwrap();
        assert_eq!(draw(&[1, 3, 3, 2], &[0.0; 4]).unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(draw(&[2, 3, 3, 3], &[0.0; 4]).unwrap_err().code(), Code::InvalidArgument);
    }
}
