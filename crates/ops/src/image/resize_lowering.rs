//! Lowering of resize ops: each is a weighted sum of a few rows, then of a few columns.
//!
//! The gradient is the transposed sum. Where an output pixel has many taps, the sum is a product with a
//! matrix.

use smallvec::SmallVec;
use thalweg_hlo::{DotDims, Value};
use thalweg_kernel::Lowering;
use thalweg_tensor::{DType, Result, Shape, Tensor, ensure, err};

use super::pixels::{Images, table};
use super::resize::{GradientSizes, Resizing, Sampling, checked_size};
use crate::rows_lowering::gathered;

/// Pixels along one axis with their weights.
pub(crate) type TapList = SmallVec<[(usize, f32); 4]>;

/// The input pixels of output position `x`, given the scale and the number of input pixels.
pub(crate) type TapsOf = fn(Sampling, f32, usize, usize) -> TapList;

/// More taps than these are summed by a product.
const GATHERED_MAX: usize = 8;
/// Most elements of a constant matrix or table of a program.
const TABLE_MAX: usize = 1 << 22;

fn images(l: &Lowering<'_>, i: usize, name: &str) -> Result<Images> {
    Images::of_dims(&l.input_dims(i)?, name)
}

fn sizes(l: &Lowering<'_>, sampling: Sampling) -> Result<Resizing> {
    let size = checked_size(l.host(1)?.shape(), &l.ints(1)?)?;
    Resizing::to(images(l, 0, "input")?, size, sampling)
}

/// An op that resizes images to floats.
pub(crate) fn resize(l: &mut Lowering<'_>, taps: TapsOf) -> Result<()> {
    let sampling = Sampling::from_attrs(l.attrs())?;
    let Resizing { input, output, height_scale, width_scale } = sizes(l, sampling)?;
    let x = l.input(0)?.convert(DType::Float);
    check_table(output.height.max(output.width))?;
    let rows = table(output.height, |y| taps(sampling, height_scale, y, input.height))?;
    let columns = table(output.width, |x| taps(sampling, width_scale, x, input.width))?;
    l.set(0, mixed(&mixed(&x, 1, &rows)?, 2, &columns)?)
}

/// Copies pixels; the functions give for each axis the input pixel of each output pixel.
pub(crate) fn pick(
    l: &mut Lowering<'_>,
    nearest: fn(Sampling, usize, usize) -> Result<Vec<usize>>,
) -> Result<()> {
    let sampling = Sampling::from_attrs(l.attrs())?;
    let Resizing { input, output, .. } = sizes(l, sampling)?;
    check_table(output.height.max(output.width))?;
    let x = l.input(0)?;
    let rows = positions(&x, &nearest(sampling, input.height, output.height)?)?;
    let columns = positions(&x, &nearest(sampling, input.width, output.width)?)?;
    l.set(0, gathered(&gathered(&x, &rows, 1, 0), &columns, 2, 0))
}

/// The gradient of an op that resizes the images in input 1.
pub(crate) fn resize_gradient(l: &mut Lowering<'_>, taps: TapsOf) -> Result<()> {
    let sampling = Sampling::from_attrs(l.attrs())?;
    let (resized, image) = (images(l, 0, "input_grad")?, images(l, 1, "original_image")?);
    let sizes = GradientSizes::of(resized, image)?;
    let wide = if l.output_dtype(0) == DType::Double { DType::Double } else { DType::Float };
    spread(l, &sizes, wide, |original, resized| {
        let scale = sampling.scale(original, resized);
        table(resized, |x| taps(sampling, scale, x, original))
    })
}

/// The gradient of [`pick`], whose images have the size in input 1.
pub(crate) fn pick_gradient(
    l: &mut Lowering<'_>,
    nearest: fn(Sampling, usize, usize) -> Result<Vec<usize>>,
) -> Result<()> {
    let sampling = Sampling::from_attrs(l.attrs())?;
    let resized = images(l, 0, "input")?;
    let (height, width) = checked_size(l.host(1)?.shape(), &l.ints(1)?)?;
    let sizes = GradientSizes::of(resized, resized.resized(height, width))?;
    let wide = match l.output_dtype(0) {
        DType::Half | DType::BFloat16 => DType::Float,
        DType::UInt8 | DType::Int8 => DType::Int32,
        other => other,
    };
    spread(l, &sizes, wide, |original, resized| {
        let places = nearest(sampling, original, resized)?;
        table(resized, |x| TapList::from_elem((places[x], 1.0), 1))
    })
}

/// Adds each pixel of the gradient in input 0, weighted, to the pixels that it was computed from.
fn spread(
    l: &mut Lowering<'_>,
    sizes: &GradientSizes,
    wide: DType,
    taps: impl Fn(usize, usize) -> Result<Vec<TapList>>,
) -> Result<()> {
    let GradientSizes { resized, original } = *sizes;
    let grads = l.input(0)?.convert(wide);
    for images in [resized, original] {
        check_table(images.height.max(images.width))?;
    }
    let rows = transposed(&taps(original.height, resized.height)?, original.height)?;
    let columns = transposed(&taps(original.width, resized.width)?, original.width)?;
    let sums = mixed(&mixed(&grads, 2, &columns)?, 1, &rows)?;
    l.set(0, sums.convert(l.output_dtype(0)))
}

/// For each input position the outputs that it contributes to.
fn transposed(taps: &[TapList], size: usize) -> Result<Vec<TapList>> {
    let mut of_inputs = table(size, |_| TapList::new())?;
    for (output, taps) in taps.iter().enumerate() {
        for &(input, weight) in taps {
            let list: &mut TapList = of_inputs
                .get_mut(input)
                .ok_or_else(|| err!(Internal, "pixel {input} of {size} does not exist"))?;
            match list.last_mut() {
                Some((last, sum)) if *last == output => *sum += weight,
                _ => list.push((output, weight)),
            }
        }
    }
    Ok(of_inputs)
}

fn check_table(elements: usize) -> Result<()> {
    ensure!(
        elements <= TABLE_MAX,
        ResourceExhausted,
        "resizing needs a table of {elements} elements, an accelerator's program may have {TABLE_MAX}"
    );
    Ok(())
}

/// Along an axis, for each list of taps the sum of the elements that it names.
fn mixed(x: &Value, axis: usize, taps: &[TapList]) -> Result<Value> {
    let most = taps.iter().map(TapList::len).max().unwrap_or(0);
    if most > GATHERED_MAX {
        return multiplied(x, axis, taps);
    }
    check_table(most * taps.len())?;
    let mut dims = x.dims().to_vec();
    dims[axis] = taps.len();
    let mut sum: Option<Value> = None;
    for k in 0..most {
        let tap = |taps: &TapList| taps.get(k).copied().unwrap_or((0, 0.0));
        let places: Vec<usize> = taps.iter().map(|taps| tap(taps).0).collect();
        let weights: Vec<f32> = taps.iter().map(|taps| tap(taps).1).collect();
        let pixels = match places.iter().copied().eq(0..x.dims()[axis]) {
            true => x.clone(),
            false => gathered(x, &positions(x, &places)?, axis, 0),
        };
        let part = match weights.iter().all(|&w| w == 1.0) {
            true => pixels,
            false => {
                let weights = x.constant(&Tensor::vector(&weights)?).convert(x.dtype());
                pixels * weights.broadcast_in(&dims, &[axis])
            }
        };
        sum = Some(match sum {
            None => part,
            Some(sum) => sum + part,
        });
    }
    Ok(sum.unwrap_or_else(|| x.splat(x.dtype(), &dims, 0.0)))
}

/// The same by a product with a matrix.
fn multiplied(x: &Value, axis: usize, taps: &[TapList]) -> Result<Value> {
    let size = x.dims()[axis];
    check_table(taps.len().saturating_mul(size))?;
    let mut weights = table(taps.len() * size, |_| 0f32)?;
    for (row, taps) in weights.chunks_exact_mut(size).zip(taps) {
        taps.iter().for_each(|&(at, weight)| row[at] += weight);
    }
    let shape = Shape::new(&[taps.len(), size])?;
    let matrix = x.constant(&Tensor::from_slice(shape, &weights)?).convert(x.dtype());
    let contracting = (vec![axis], vec![1]);
    let product = x.dot_general(&matrix, &DotDims { contracting, ..DotDims::default() }, x.dtype());
    let mut order: Vec<usize> = (0..x.rank() - 1).collect();
    order.insert(axis, x.rank() - 1);
    Ok(product.transpose(&order))
}

fn positions(x: &Value, places: &[usize]) -> Result<Value> {
    let places: Vec<i32> = places.iter().map(|&p| p as i32).collect();
    Ok(x.constant(&Tensor::vector(&places)?))
}
