//! Gradients of reductions.

use thalweg_graph::{GradientContext, Output};
use thalweg_tensor::{DType, Result};

use crate::gradients::{Arithmetic, conj};

/// The non-negative axes, and the input's rank.
fn positive_axes(g: &mut GradientContext<'_>) -> Result<(Output, Output)> {
    let shape = g.shape_of(g.input(0))?;
    let (rank, axes) = (g.add("Size", &[shape])?, g.cast(g.input(1), DType::Int32)?);
    let shifted = g.plus(axes, rank)?;
    Ok((g.add("FloorMod", &[shifted, rank])?, rank))
}

/// The shape of the result with `keep_dims`.
fn kept_shape(g: &mut GradientContext<'_>) -> Result<Output> {
    if let Some(dims) = known_kept_shape(g) {
        return g.ints(&dims);
    }
    let shape = g.shape_of(g.input(0))?;
    let (axes, rank) = positive_axes(g)?;
    let (zero, one) = (g.int(0)?, g.int(1)?);
    let all = g.add("Range", &[zero, rank, one])?;
    let axes_shape = g.shape_of(axes)?;
    let ones = g.add("Fill", &[axes_shape, one])?;
    g.op("DynamicStitch").inputs(&[all, axes, shape, ones]).attr("N", 2i64).build()
}

fn known_kept_shape(g: &GradientContext<'_>) -> Option<Vec<i32>> {
    let shape = g.shape(g.input(0)).to_shape()?;
    let mut dims: Vec<i32> = shape.iter().map(|&d| i32::try_from(d).ok()).collect::<Option<_>>()?;
    for axis in g.value(g.input(1))?.known()? {
        let at = if axis < 0 { axis + dims.len() as i64 } else { axis };
        *dims.get_mut(usize::try_from(at).ok()?)? = 1;
    }
    Some(dims)
}

/// A tensor of the result's shape, reshaped as with `keep_dims`.
fn kept(g: &mut GradientContext<'_>, x: Output) -> Result<Output> {
    if g.attrs().bool("keep_dims")? {
        return Ok(x);
    }
    let shape = kept_shape(g)?;
    g.add("Reshape", &[x, shape])
}

/// A tensor of the result's shape, broadcast to the input's.
fn repeated(g: &mut GradientContext<'_>, x: Output) -> Result<Output> {
    let (x, shape) = (kept(g, x)?, g.shape_of(g.input(0))?);
    g.add("BroadcastTo", &[x, shape])
}

pub(crate) fn sum_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let grad = g.grad(0)?;
    let adjoint = repeated(g, grad)?;
    g.set(0, adjoint)
}

pub(crate) fn mean_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let grad = g.grad(0)?;
    let repeated = repeated(g, grad)?;
    let count = elements_per_result(g)?;
    let adjoint = g.over(repeated, count)?;
    g.set(0, adjoint)
}

/// The number of elements per result, in the result's dtype.
fn elements_per_result(g: &mut GradientContext<'_>) -> Result<Output> {
    let (input, dtype) = (g.input(0), g.dtype(g.output(0)));
    let sizes = (g.shape(input).to_shape(), g.shape(g.output(0)).to_shape());
    if let (Some(from), Some(to)) = sizes {
        let count = from.num_elements() / to.num_elements().max(1);
        return g.number(dtype, count as f64);
    }
    let (shape, (axes, _)) = (g.shape_of(input)?, positive_axes(g)?);
    let axes = as_vector(g, axes)?;
    let count = product_of(g, shape, axes)?;
    g.cast(count, dtype)
}

/// The gradient of `Prod`: the product of the other elements, from exclusive cumulative products in
/// both directions, without division by zero.
pub(crate) fn prod_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x) = (g.grad(0)?, g.input(0));
    let grad = repeated(g, grad)?;
    // Transposes the reduced dimensions to the front and merges them.
    let shape = g.shape_of(x)?;
    let (axes, rank) = positive_axes(g)?;
    let axes = as_vector(g, axes)?;
    let (zero, one) = (g.int(0)?, g.int(1)?);
    let all = g.add("Range", &[zero, rank, one])?;
    let others = g.add("ListDiff", &[all, axes])?;
    let order = g.op("ConcatV2").inputs(&[axes, others]).input(zero).build()?;
    let (gone, left) = (product_of(g, shape, axes)?, product_of(g, shape, others)?);
    let matrix_shape = g.op("Pack").inputs(&[gone, left]).build()?;
    let permuted = g.add("Transpose", &[x, order])?;
    let permuted_shape = g.shape_of(permuted)?;
    let matrix = g.add("Reshape", &[permuted, matrix_shape])?;

    let mut running = |reverse: bool| {
        let product = g.op("Cumprod").inputs(&[matrix, zero]).attr("exclusive", true);
        product.attr("reverse", reverse).build()
    };
    let (before, after) = (running(false)?, running(true)?);
    let rest = g.times(before, after)?;
    let rest = conj(g, rest)?;
    let rest = g.add("Reshape", &[rest, permuted_shape])?;
    let order_back = g.add("InvertPermutation", &[order])?;
    let rest = g.add("Transpose", &[rest, order_back])?;
    let adjoint = g.times(grad, rest)?;
    g.set(0, adjoint)
}

/// Axes may be a scalar.
fn as_vector(g: &mut GradientContext<'_>, axes: Output) -> Result<Output> {
    let any_length = g.ints(&[-1])?;
    g.add("Reshape", &[axes, any_length])
}

/// The product of the elements of a vector at these indices.
fn product_of(g: &mut GradientContext<'_>, of: Output, indices: Output) -> Result<Output> {
    let (axis, axes) = (g.int(0)?, g.ints(&[0])?);
    let elements = g.add("GatherV2", &[of, indices, axis])?;
    g.add("Prod", &[elements, axes])
}

/// The adjoint is divided evenly among the elements that equal the extreme.
pub(crate) fn extreme_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, axes, y) = (g.grad(0)?, g.input(0), g.input(1), g.output(0));
    let (grad, y) = (kept(g, grad)?, kept(g, y)?);
    let is_extreme = g.add("Equal", &[y, x])?;
    let dtype = g.dtype(grad);
    let indicators = g.cast(is_extreme, dtype)?;
    let count = g.sum_kept(indicators, axes)?;
    let share = g.over(indicators, count)?;
    let adjoint = g.times(share, grad)?;
    g.set(0, adjoint)
}

/// x / (norm / grad), in this order: where the adjoint is zero, so is the result, for any norm.
pub(crate) fn euclidean_norm_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, y) = (g.grad(0)?, g.input(0), g.output(0));
    let (grad, y) = (kept(g, grad)?, kept(g, y)?);
    let divisor = g.over(y, grad)?;
    let adjoint = g.over(x, divisor)?;
    g.set(0, adjoint)
}

/// Gradient of Σ x² / 2.
pub(crate) fn l2_loss_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x) = (g.grad(0)?, g.input(0));
    let adjoint = g.times(x, grad)?;
    g.set(0, adjoint)
}
