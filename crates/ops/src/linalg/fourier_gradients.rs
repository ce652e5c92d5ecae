//! Gradients of Fourier transforms: scaled inverse transforms.

use thalweg_graph::{GradientContext, Output};
use thalweg_tensor::{DType, Result};

use super::gradients::MatrixArithmetic;
use crate::gradients::Arithmetic;

/// The product of the last `rank` sizes of `x`, as a scalar of type `dtype`.
fn size(g: &mut GradientContext<'_>, x: Output, rank: usize, dtype: DType) -> Result<Output> {
    let shape = g.shape_of(x)?;
    let last = g.part(shape, -1, (-(rank as i32), None))?;
    product(g, last, dtype)
}

/// The product of a vector of integers, as a scalar of type `dtype`.
fn product(g: &mut GradientContext<'_>, sizes: Output, dtype: DType) -> Result<Output> {
    let axis = g.int(0)?;
    let count = g.add("Prod", &[sizes, axis])?;
    g.cast(count, dtype)
}

/// The gradient of a complex transform over `rank` axes, whose inverse is `inverse`.
pub(crate) fn complex_grad(
    g: &mut GradientContext<'_>,
    inverse: &str,
    rank: usize,
    is_inverse: bool,
) -> Result<()> {
    let grad = g.grad(0)?;
    let dtype = g.dtype(grad);
    let size = size(g, grad, rank, dtype)?;
    let back = g.op(inverse).input(grad).attr("Tcomplex", dtype).build()?;
    let adjoint = if is_inverse { g.over(back, size)? } else { g.times(back, size)? };
    g.set(0, adjoint)
}

/// `x` zero-padded at the end of the last `rank` axes, to the sizes in `wanted`.
fn padded(g: &mut GradientContext<'_>, x: Output, wanted: Output, rank: usize) -> Result<Output> {
    let shape = g.shape_of(x)?;
    let own = g.part(shape, -1, (-(rank as i32), None))?;
    let missing = g.minus(wanted, own)?;
    let others = g.part(shape, -1, (0, Some(-(rank as i32))))?;
    let zeros = g.add("ZerosLike", &[others])?;
    let axis = g.int(0)?;
    let after = g.op("ConcatV2").inputs(&[zeros, missing]).input(axis).build()?;
    let before = g.add("ZerosLike", &[after])?;
    let paddings = g.op("Pack").inputs(&[before, after]).attr("axis", 1i64).build()?;
    g.add("Pad", &[x, paddings])
}

/// The last `rank` sizes of `x`.
fn last_sizes(g: &mut GradientContext<'_>, x: Output, rank: usize) -> Result<Output> {
    let shape = g.shape_of(x)?;
    g.part(shape, -1, (-(rank as i32), None))
}

/// The upper half of the frequencies of a real signal is not an output: its adjoint is zero.
pub(crate) fn real_grad(g: &mut GradientContext<'_>, inverse: &str, rank: usize) -> Result<()> {
    let (grad, x, lengths) = (g.grad(0)?, g.input(0), g.input(1));
    let (dtype, real) = (g.dtype(grad), g.dtype(x));
    let whole = padded(g, grad, lengths, rank)?;
    let back = g.op(inverse).input(whole).attr("Tcomplex", dtype).build()?;
    let back = g.op("Real").input(back).attr("Tout", real).build()?;
    let size = product(g, lengths, real)?;
    let cropped = g.times(back, size)?;
    let wanted = last_sizes(g, x, rank)?;
    let adjoint = padded(g, cropped, wanted, rank)?;
    g.set(0, adjoint)
}

/// Each frequency except the first, and the last of an even length, stands for two.
pub(crate) fn inverse_real_grad(
    g: &mut GradientContext<'_>,
    forward: &str,
    rank: usize,
) -> Result<()> {
    let (grad, x, lengths) = (g.grad(0)?, g.input(0), g.input(1));
    let (dtype, real) = (g.dtype(x), g.dtype(grad));
    let back = g
        .op(forward)
        .inputs(&[grad, lengths])
        .attr("Treal", real)
        .attr("Tcomplex", dtype)
        .build()?;
    let size = product(g, lengths, dtype)?;
    let scaled = g.over(back, size)?;
    // 2 where 0 < k and 2 k < length, else 1.
    let length = g.part(lengths, -1, (-1, None))?;
    let zero = g.int(0)?;
    let length = g.op("Squeeze").input(length).build()?;
    let half = {
        let sizes = last_sizes(g, back, 1)?;
        g.op("Squeeze").input(sizes).build()?
    };
    let one = g.int(1)?;
    let k = g.add("Range", &[zero, half, one])?;
    let twice = g.plus(k, k)?;
    let (is_inner, is_later) = (g.add("Less", &[twice, length])?, g.add("Greater", &[k, zero])?);
    let counts_twice = g.add("LogicalAnd", &[is_inner, is_later])?;
    let more = g.cast(counts_twice, real)?;
    let factor = g.shifted(more, 1.0)?;
    let factor = g.cast(factor, dtype)?;
    let cropped = g.times(scaled, factor)?;
    let wanted = last_sizes(g, x, rank)?;
    let adjoint = padded(g, cropped, wanted, rank)?;
    g.set(0, adjoint)
}
