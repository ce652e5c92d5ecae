//! Gradients of slicing.

use thalweg_graph::{GradientContext, Output};
use thalweg_tensor::{DType, Result};

use crate::gradient_shapes::shape_as;
use crate::gradients::set_repeated;

/// The attrs that determine how begin, end and strides are interpreted.
const MASKS: &[&str] =
    &["begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"];

/// Gradient of `Slice`: the adjoint padded with zeros.
pub(crate) fn slice(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, begin, y) = (g.grad(0)?, g.input(0), g.input(1), g.output(0));
    let dtype = g.dtype(begin);
    let (whole, taken) = (shape_as(g, x, dtype)?, shape_as(g, y, dtype)?);
    let left = g.add("Sub", &[whole, taken])?;
    let after = g.add("Sub", &[left, begin])?;
    let paddings = g.op("Pack").inputs(&[begin, after]).attr("axis", 1i64).build()?;
    let adjoint = g.add("Pad", &[grad, paddings])?;
    g.set(0, adjoint)
}

/// Begin, end and strides: inputs 1 to 3, widened from int16, which the gradient op does not
/// support.
fn bounds(g: &mut GradientContext<'_>) -> Result<[Output; 3]> {
    let is_short = g.dtype(g.input(1)) == DType::Int16;
    let mut bounds = [g.input(1), g.input(2), g.input(3)];
    if is_short {
        for bound in &mut bounds {
            *bound = g.cast(*bound, DType::Int32)?;
        }
    }
    Ok(bounds)
}

/// Gradient of `StridedSlice`.
pub(crate) fn strided_slice(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, [begin, end, strides]) = (g.grad(0)?, g.input(0), bounds(g)?);
    let shape = shape_as(g, x, g.dtype(begin))?;
    let node = g.op_like("StridedSliceGrad", MASKS);
    let adjoint = node.inputs(&[shape, begin, end, strides, grad]).build()?;
    g.set(0, adjoint)
}

/// Gradient of `StridedSliceGrad`.
pub(crate) fn strided_slice_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, [begin, end, strides]) = (g.grad(0)?, bounds(g)?);
    let adjoint = g.op_like("StridedSlice", MASKS).inputs(&[grad, begin, end, strides]).build()?;
    g.set(4, adjoint)
}

/// Gradient of `TensorStridedSliceUpdate`: the slice of the adjoint goes to the value, the rest to
/// the tensor.
pub(crate) fn tensor_strided_slice_update(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, [begin, end, strides]) = (g.grad(0)?, bounds(g)?);
    let slice = g.op_like("StridedSlice", MASKS).inputs(&[grad, begin, end, strides]).build()?;
    let zeros = g.add("ZerosLike", &[slice])?;
    let node = g.op_like("TensorStridedSliceUpdate", MASKS);
    let rest = node.inputs(&[grad, begin, end, strides, zeros]).build()?;
    g.set(0, rest)?;
    set_repeated(g, 4, slice)
}
