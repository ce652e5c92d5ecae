//! Gradients of matrix products.

use thalweg_graph::{GradientContext, Output};
use thalweg_tensor::{DType, PartialShape, Result};

use crate::gradients::{conj, repeated_axes, sum_to_shape};

/// A factor of a product, and whether it is transposed.
type Side = (Output, bool);

/// The two products that are the adjoints of `op(a) op(b)`, where `op` optionally transposes.
fn adjoint_products(
    grad: Output,
    (a, transpose_a): Side,
    (b, transpose_b): Side,
) -> [(Side, Side); 2] {
    let of_a = match transpose_a {
        false => ((grad, false), (b, !transpose_b)),
        true => ((b, transpose_b), (grad, true)),
    };
    let of_b = match transpose_b {
        false => ((a, !transpose_a), (grad, false)),
        true => ((grad, true), (a, transpose_a)),
    };
    [of_a, of_b]
}

pub(crate) fn mat_mul_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, a, b) = (g.grad(0)?, g.input(0), g.input(1));
    let (a, b) = (conj(g, a)?, conj(g, b)?);
    let flags = [g.attrs().bool("transpose_a")?, g.attrs().bool("transpose_b")?];
    let products = adjoint_products(grad, (a, flags[0]), (b, flags[1]));
    for (i, ((x, transpose_x), (y, transpose_y))) in products.into_iter().enumerate() {
        let adjoint = g
            .op("MatMul")
            .inputs(&[x, y])
            .attr("transpose_a", transpose_x)
            .attr("transpose_b", transpose_y)
            .build()?;
        g.set(i, adjoint)?;
    }
    Ok(())
}

/// The products are in single precision; each adjoint is cast to its factor's dtype.
pub(crate) fn sparse_mat_mul_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, a, b) = (g.grad(0)?, g.input(0), g.input(1));
    let flag = |g: &GradientContext<'_>, name| g.attrs().bool(name);
    let transposed = [flag(g, "transpose_a")?, flag(g, "transpose_b")?];
    let sparse = [flag(g, "a_is_sparse")?, flag(g, "b_is_sparse")?];
    let is_sparse = |x: Output| (x == a && sparse[0]) || (x == b && sparse[1]);
    let products = adjoint_products(grad, (a, transposed[0]), (b, transposed[1]));
    for (i, ((x, transpose_x), (y, transpose_y))) in products.into_iter().enumerate() {
        let product = g
            .op("SparseMatMul")
            .inputs(&[x, y])
            .attr("transpose_a", transpose_x)
            .attr("transpose_b", transpose_y)
            .attr("a_is_sparse", is_sparse(x))
            .attr("b_is_sparse", is_sparse(y))
            .build()?;
        let dtype = g.dtype(g.input(i));
        let adjoint = g.cast(product, dtype)?;
        g.set(i, adjoint)?;
    }
    Ok(())
}

/// Gradient of all three versions. `adj` conjugates what it transposes, as gradients require; the
/// adjoints of broadcast batches are summed.
pub(crate) fn batch_mat_mul_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, y) = (g.grad(0)?, g.input(0), g.input(1));
    let flags = [g.attrs().bool("adj_x")?, g.attrs().bool("adj_y")?];
    let products = adjoint_products(grad, (x, flags[0]), (y, flags[1]));
    let batches = [batch_dims(&g.shape(x)), batch_dims(&g.shape(y))];
    let axes = repeated_axes(g, [&batches[0], &batches[1]], |g| {
        Ok([batch_shape(g, x)?, batch_shape(g, y)?])
    })?;
    for (i, ((left, adj_left), (right, adj_right))) in products.into_iter().enumerate() {
        let product = batch_product(g, (left, adj_left), (right, adj_right), g.dtype(g.input(i)))?;
        let adjoint = sum_to_shape(g, product, axes[i], g.input(i))?;
        g.set(i, adjoint)?;
    }
    Ok(())
}

fn batch_product(
    g: &mut GradientContext<'_>,
    (left, adj_left): Side,
    (right, adj_right): Side,
    dtype: DType,
) -> Result<Output> {
    let is_mixed = g.dtype(left) != dtype || g.dtype(right) != dtype;
    let op = if is_mixed { "BatchMatMulV3" } else { "BatchMatMulV2" };
    let mut product =
        g.op(op).inputs(&[left, right]).attr("adj_x", adj_left).attr("adj_y", adj_right);
    if is_mixed {
        product = product.attr("Tout", dtype);
    }
    product.build()
}

/// All dimensions but the last two.
fn batch_dims(shape: &PartialShape) -> PartialShape {
    match shape.dims() {
        Some([batch @ .., _, _]) => PartialShape::new(batch.iter().copied()),
        _ => PartialShape::unknown(),
    }
}

fn batch_shape(g: &mut GradientContext<'_>, of: Output) -> Result<Output> {
    let shape = g.shape_of(of)?;
    let (begin, end, step) = (g.ints(&[0])?, g.ints(&[-2])?, g.ints(&[1])?);
    g.add("StridedSlice", &[shape, begin, end, step])
}
