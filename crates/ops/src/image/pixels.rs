//! Pixel types for computation, and interpolation tables.

use num_traits::AsPrimitive;
use thalweg_kernel::KernelContext;
use thalweg_tensor::{DType, Element, Result, Shape, Tensor, bail, bf16, err, f16};

use crate::map::wide_view;
use crate::split::for_each_rows;

/// Element types of most image ops.
pub(crate) const IMAGE_TYPES: &[DType] = &[
    DType::Int8,
    DType::UInt8,
    DType::Int16,
    DType::UInt16,
    DType::Int32,
    DType::Int64,
    DType::Half,
    DType::BFloat16,
    DType::Float,
    DType::Double,
];

/// Input `i` as `f32`: shared if it is of that type, else converted.
pub(crate) fn as_floats(ctx: &KernelContext<'_>, i: usize) -> Result<Tensor> {
    match ctx.input(i)?.dtype() {
        DType::Float => Ok(ctx.input(i)?.clone()),
        DType::Half => wide_view::<f16>(ctx, i),
        DType::BFloat16 => wide_view::<bf16>(ctx, i),
        DType::Double => converted::<f64>(ctx, i),
        DType::UInt8 => converted::<u8>(ctx, i),
        DType::Int8 => converted::<i8>(ctx, i),
        DType::UInt16 => converted::<u16>(ctx, i),
        DType::Int16 => converted::<i16>(ctx, i),
        DType::Int32 => converted::<i32>(ctx, i),
        DType::Int64 => converted::<i64>(ctx, i),
        other => bail!(InvalidArgument, "images do not support dtype {other}"),
    }
}

fn converted<T: Element + AsPrimitive<f32>>(ctx: &KernelContext<'_>, i: usize) -> Result<Tensor> {
    let (shape, data) = (ctx.input(i)?.shape().clone(), ctx.slice::<T>(i)?);
    let mut out = ctx.allocate(DType::Float, shape)?;
    for_each_rows(ctx, out.as_mut_slice::<f32>()?, 1, 0.4, |first, out| {
        for (out, x) in out.iter_mut().zip(&data[first..]) {
            *out = x.as_();
        }
    })?;
    Ok(out)
}

/// A table of `len` entries; an error if the allocation fails.
pub(crate) fn table<T>(len: usize, entry: impl FnMut(usize) -> T) -> Result<Vec<T>> {
    let mut entries = Vec::new();
    entries
        .try_reserve_exact(len)
        .map_err(|_| err!(ResourceExhausted, "out of memory for a table of {len} entries"))?;
    entries.extend((0..len).map(entry));
    Ok(entries)
}

/// Sizes of a batch of images.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Images {
    pub(crate) batch: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
}

impl Images {
    /// The sizes of the tensor `name`, which must have four dimensions.
    pub(crate) fn of(tensor: &Tensor, name: &str) -> Result<Images> {
        Images::of_dims(tensor.shape(), name)
    }

    /// The sizes of a tensor `name` of these dimensions.
    pub(crate) fn of_dims(dims: &[usize], name: &str) -> Result<Images> {
        let [batch, height, width, channels] = *dims else {
            bail!(InvalidArgument, "{name} must be 4-dimensional, got shape {dims:?}");
        };
        Ok(Images { batch, height, width, channels })
    }

    /// The sizes of the same batch with images of another height and width.
    pub(crate) fn resized(self, height: usize, width: usize) -> Images {
        Images { height, width, ..self }
    }

    pub(crate) fn shape(self) -> Result<Shape> {
        Shape::new(&[self.batch, self.height, self.width, self.channels])
    }

    /// Elements per row of pixels.
    pub(crate) fn row(self) -> usize {
        self.width * self.channels
    }

    /// The row of pixels `y` of image `image`.
    pub(crate) fn row_of<T>(self, data: &[T], image: usize, y: usize) -> &[T] {
        let row = self.row();
        &data[(image * self.height + y) * row..][..row]
    }
}

/// Conversion of a float to i32 as x86-64 does it: towards zero, and the minimum for values out of
/// range.
pub(crate) fn truncated(x: f32) -> i64 {
    if x >= -(2f32.powi(63)) && x < 2f32.powi(63) { x as i64 } else { i64::MIN }
}
