//! Lowering of slices and of strided assignment.

use thalweg_hlo::Value;
use thalweg_kernel::Lowering;
use thalweg_tensor::{DType, Result, ensure};

use crate::slice::{Masks, Part, StridedSlice, slice_range};

pub(crate) fn slice(l: &mut Lowering<'_>) -> Result<()> {
    let (x, begin, size) = (l.input(0)?, l.ints(1)?, l.ints(2)?);
    ensure!(
        begin.len() == x.rank() && size.len() == x.rank(),
        InvalidArgument,
        "Expected begin and size arguments to be 1-D tensors of size {}",
        x.rank()
    );
    let (mut starts, mut limits) = (Vec::new(), Vec::new());
    for (i, &dim) in x.dims().iter().enumerate() {
        let (start, len) = slice_range(i, begin[i], size[i], dim)?;
        starts.push(start);
        limits.push(start + len);
    }
    l.set(0, x.slice(&starts, &limits, &vec![1; x.rank()]))
}

pub(crate) fn strided_slice(l: &mut Lowering<'_>) -> Result<()> {
    let x = l.input(0)?;
    let slice = bounds(l, x.dims())?;
    l.set(0, taken(&x, &slice.part).reshape(&slice.shape()?))
}

pub(crate) fn strided_slice_grad(l: &mut Lowering<'_>) -> Result<()> {
    let (dims, dy) = (l.output_dims(0)?, l.input(4)?);
    let slice = bounds(l, &dims)?;
    ensure!(
        dy.dims() == slice.shape()?.dims(),
        InvalidArgument,
        "shape of dy was {:?} instead of {}",
        dy.dims(),
        slice.shape()?
    );
    let dy = dy.reshape(&slice.part.sizes());
    l.set(0, spread(&dy, &slice.part, &dims))
}

pub(crate) fn tensor_strided_slice_update(l: &mut Lowering<'_>) -> Result<()> {
    let (x, value) = (l.input(0)?, l.input(4)?);
    let updated = updated(l, &x, &value)?;
    l.set(0, updated)
}

/// `x` with `value` in place of the slice that inputs 1 to 3 specify.
pub(crate) fn updated(l: &Lowering<'_>, x: &Value, value: &Value) -> Result<Value> {
    let slice = bounds(l, x.dims())?;
    let sizes = slice.part.sizes();
    if sizes.contains(&0) {
        return Ok(x.clone());
    }
    let shape = slice.shape()?;
    // A value may have leading dimensions of size 1 that the slice does not have.
    let extra = value.rank().saturating_sub(shape.rank());
    let is_wide = value.dims()[..extra].iter().any(|&d| d != 1);
    let value = if is_wide { value.clone() } else { value.reshape(&value.dims()[extra..]) };
    let value = value.broadcast_to(&shape).reshape(&sizes);
    let is_updated = spread(&value.splat(DType::Bool, &sizes, 1.0), &slice.part, x.dims());
    Ok(is_updated.select(&spread(&value, &slice.part, x.dims()), x))
}

/// The slice of a tensor of these dimensions that inputs 1 to 3 specify.
fn bounds(l: &Lowering<'_>, dims: &[usize]) -> Result<StridedSlice> {
    let (begin, end, strides) = (l.ints(1)?, l.ints(2)?, l.ints(3)?);
    ensure!(
        begin.len() == strides.len() && end.len() == strides.len(),
        InvalidArgument,
        "Expected begin, end, and strides to be 1D equal size tensors"
    );
    StridedSlice::new(Masks::from_attrs(&l.attrs())?, [&begin, &end, &strides], dims)
}

/// A slice of one dimension in ascending order: its first and last element and the distance between
/// elements. The slice is not empty.
fn ascending(begin: usize, step: i64, len: usize) -> (usize, usize, usize) {
    let distance = if len == 1 { 1 } else { step.unsigned_abs() as usize };
    let span = (len - 1) * distance;
    if step > 0 { (begin, begin + span, distance) } else { (begin - span, begin, distance) }
}

/// The dimensions that a slice reverses.
fn reversed(part: &Part) -> Vec<usize> {
    (0..part.dims.len()).filter(|&i| part.dims[i].step < 0 && part.dims[i].len > 1).collect()
}

/// The elements of a slice.
fn taken(x: &Value, part: &Part) -> Value {
    let (mut starts, mut limits, mut strides) = (Vec::new(), Vec::new(), Vec::new());
    for d in &part.dims {
        let (first, end, distance) = match d.len {
            0 => (0, 0, 1),
            _ => {
                let (first, last, distance) = ascending(d.begin, d.step, d.len);
                (first, last + 1, distance)
            }
        };
        starts.push(first);
        limits.push(end);
        strides.push(distance);
    }
    let slice = x.slice(&starts, &limits, &strides);
    let reversed = reversed(part);
    if reversed.is_empty() { slice } else { slice.reverse(&reversed) }
}

/// A tensor of dimensions `dims` with `value` in the slice and zeros elsewhere.
fn spread(value: &Value, part: &Part, dims: &[usize]) -> Value {
    if part.sizes().contains(&0) {
        return value.splat(value.dtype(), dims, 0.0);
    }
    let reversed = reversed(part);
    let value = if reversed.is_empty() { value.clone() } else { value.reverse(&reversed) };
    let (mut low, mut high, mut interior) = (Vec::new(), Vec::new(), Vec::new());
    for (d, &size) in part.dims.iter().zip(dims) {
        let (first, last, distance) = ascending(d.begin, d.step, d.len);
        low.push(first as i64);
        high.push((size - 1 - last) as i64);
        interior.push(distance as i64 - 1);
    }
    value.pad(&value.scalar_like(0.0), &low, &high, &interior)
}
