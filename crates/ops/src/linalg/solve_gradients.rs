//! Gradients of decompositions and solvers.

use thalweg_graph::{GradientContext, Output};
use thalweg_tensor::{Result, ensure};

use super::gradients::{MatrixArithmetic, ones, shape_and, size_along};
use crate::gradients::{Arithmetic, conj, set_repeated};

/// Half of the sum of a matrix and its adjoint.
fn hermitian(g: &mut GradientContext<'_>, x: Output) -> Result<Output> {
    let turned = g.adjoint_matrix(x)?;
    let sum = g.plus(x, turned)?;
    g.scaled(sum, 0.5)
}

/// The lower triangle with its diagonal halved.
pub(crate) fn half_triangle(g: &mut GradientContext<'_>, x: Output) -> Result<Output> {
    let lower = g.triangle(x, true)?;
    let diagonal = g.diagonal(x)?;
    let half = g.scaled(diagonal, 0.5)?;
    let half = g.diagonal_matrix(half)?;
    g.minus(lower, half)
}

/// Solves with a triangle of `a`, or with its adjoint.
fn solve_triangle(
    g: &mut GradientContext<'_>,
    a: Output,
    b: Output,
    (is_lower, is_adjoint): (bool, bool),
) -> Result<Output> {
    g.op("MatrixTriangularSolve")
        .inputs(&[a, b])
        .attr("lower", is_lower)
        .attr("adjoint", is_adjoint)
        .build()
}

/// `L^-H half(L^H dL) L^-1`, made Hermitian.
pub(crate) fn cholesky_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, l) = (g.grad(0)?, g.output(0));
    let middle = g.product((l, true), (grad, false))?;
    let middle = half_triangle(g, middle)?;
    let left = solve_triangle(g, l, middle, (true, true))?;
    let turned = g.adjoint_matrix(left)?;
    let both = solve_triangle(g, l, turned, (true, true))?;
    let adjoint = hermitian(g, both)?;
    g.set(0, adjoint)
}

pub(crate) fn inverse_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, inverse) = (g.grad(0)?, g.output(0));
    let turns = !g.attrs().bool("adjoint")?;
    let right = if turns {
        g.product((grad, false), (inverse, true))?
    } else {
        // The output is the adjoint of the inverse, so its transpose is used.
        g.product((inverse, false), (grad, true))?
    };
    let product = if turns {
        g.product((inverse, true), (right, false))?
    } else {
        g.product((right, false), (inverse, false))?
    };
    let adjoint = g.negated(product)?;
    g.set(0, adjoint)
}

/// One number per matrix, as 1 by 1 matrices.
fn as_matrices(g: &mut GradientContext<'_>, x: Output) -> Result<Output> {
    let shape = shape_and(g, x, &[1, 1])?;
    g.add("Reshape", &[x, shape])
}

/// The adjoint of the inverse times one number per matrix.
fn scaled_inverse(g: &mut GradientContext<'_>, factor: Output) -> Result<()> {
    let a = g.input(0);
    let inverse = g.op("MatrixInverse").input(a).attr("adjoint", true).build()?;
    let factor = as_matrices(g, factor)?;
    let adjoint = g.times(factor, inverse)?;
    g.set(0, adjoint)
}

pub(crate) fn determinant_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, determinant) = (g.grad(0)?, g.output(0));
    let determinant = conj(g, determinant)?;
    let factor = g.times(grad, determinant)?;
    scaled_inverse(g, factor)
}

/// The sign of a real determinant is piecewise constant, so it has no gradient.
pub(crate) fn log_determinant_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let grad = g.grad(1)?;
    scaled_inverse(g, grad)
}

/// The adjoint of the matrix of a solved system, from that of the right-hand side.
fn of_matrix(
    g: &mut GradientContext<'_>,
    x: Output,
    of_rhs: Output,
    is_adjoint: bool,
) -> Result<Output> {
    let (left, right) = if is_adjoint { (x, of_rhs) } else { (of_rhs, x) };
    let product = g.product((left, false), (right, true))?;
    g.negated(product)
}

pub(crate) fn solve_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, a, x) = (g.grad(0)?, g.input(0), g.output(0));
    let is_adjoint = g.attrs().bool("adjoint")?;
    let of_rhs = g.op("MatrixSolve").inputs(&[a, grad]).attr("adjoint", !is_adjoint).build()?;
    let of_a = of_matrix(g, x, of_rhs, is_adjoint)?;
    g.set(0, of_a)?;
    g.set(1, of_rhs)
}

pub(crate) fn triangular_solve_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, a, x) = (g.grad(0)?, g.input(0), g.output(0));
    let (is_lower, is_adjoint) = (g.attrs().bool("lower")?, g.attrs().bool("adjoint")?);
    let of_rhs = solve_triangle(g, a, grad, (is_lower, !is_adjoint))?;
    let of_a = of_matrix(g, x, of_rhs, is_adjoint)?;
    let of_a = g.triangle(of_a, is_lower)?;
    set_repeated(g, 0, of_a)?;
    set_repeated(g, 1, of_rhs)
}

/// The gradient of a triangular solve, of which the bands are taken.
pub(crate) fn banded_solve_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, bands, x) = (g.grad(0)?, g.input(0), g.output(0));
    let (is_lower, is_adjoint) = (g.attrs().bool("lower")?, g.attrs().bool("adjoint")?);
    let of_rhs = g
        .op("BandedTriangularSolve")
        .inputs(&[bands, grad])
        .attr("lower", is_lower)
        .attr("adjoint", !is_adjoint)
        .build()?;
    let of_a = of_matrix(g, x, of_rhs, is_adjoint)?;
    let (count, one) = (size_along(g, bands, -2)?, g.ints(&[1])?);
    let (none, axis) = (g.ints(&[0])?, g.int(0)?);
    let range = if is_lower { [g.minus(one, count)?, none] } else { [none, g.minus(count, one)?] };
    let range = g.op("ConcatV2").inputs(&range).input(axis).build()?;
    let zero = g.number_like(of_a, 0.0)?;
    // Element i of a band is in row i, so bands below the diagonal are right-aligned, bands above
    // are left-aligned.
    let align = if is_lower { "LEFT_RIGHT" } else { "LEFT_LEFT" };
    let diagonals =
        g.op("MatrixDiagPartV3").inputs(&[of_a, range, zero]).attr("align", align).build()?;
    set_repeated(g, 0, diagonals)?;
    set_repeated(g, 1, of_rhs)
}

/// Solves with the Cholesky factor of a Gram matrix.
fn solve_gram(g: &mut GradientContext<'_>, factor: Output, b: Output) -> Result<Output> {
    let half = solve_triangle(g, factor, b, (true, false))?;
    solve_triangle(g, factor, half, (true, true))
}

/// Gradient of least squares by the normal equations; the regularizer gets no gradient.
pub(crate) fn least_squares_grad(g: &mut GradientContext<'_>) -> Result<()> {
    ensure!(g.attrs().bool("fast")?, Unimplemented, "Gradient not defined for fast=False");
    let a = g.input(0);
    let shape = g.shape(a);
    let (of_a, of_b) = match shape.dims() {
        Some([.., Some(rows), Some(columns)]) if rows >= columns => tall_grad(g)?,
        Some([.., Some(_), Some(_)]) => wide_grad(g)?,
        // The sizes are unknown, so both forms are computed; the other one, which may be NaN, is
        // not selected.
        _ => {
            let (rows, columns) = (size_along(g, a, -2)?, size_along(g, a, -1)?);
            let is_tall = g.add("GreaterEqual", &[rows, columns])?;
            let (tall, wide) = (tall_grad(g)?, wide_grad(g)?);
            (g.select(is_tall, tall.0, wide.0)?, g.select(is_tall, tall.1, wide.1)?)
        }
    };
    g.set(0, of_a)?;
    g.set(1, of_b)
}

/// The Cholesky factor of `a^H a`, or of `a a^H`, plus the regularizer.
fn gram_factor(g: &mut GradientContext<'_>, is_tall: bool) -> Result<Output> {
    let a = g.input(0);
    let gram = g.product((a, is_tall), (a, !is_tall))?;
    let count = size_along(g, gram, -1)?;
    let one = ones(g, count, gram)?;
    let identity = g.einsum("i->ii", &[one])?;
    let l2 = g.cast(g.input(2), g.dtype(a))?;
    let ridge = g.times(identity, l2)?;
    let gram = g.plus(gram, ridge)?;
    g.add("Cholesky", &[gram])
}

/// For matrices with at least as many rows as columns.
fn tall_grad(g: &mut GradientContext<'_>) -> Result<(Output, Output)> {
    let (grad, a, b, x) = (g.grad(0)?, g.input(0), g.input(1), g.output(0));
    let factor = gram_factor(g, true)?;
    let z = solve_gram(g, factor, grad)?;
    let xz = g.product((x, false), (z, true))?;
    let turned = g.adjoint_matrix(xz)?;
    let both = g.plus(xz, turned)?;
    let first = g.product((a, false), (both, false))?;
    let second = g.product((b, false), (z, true))?;
    Ok((g.minus(second, first)?, g.product((a, false), (z, false))?))
}

/// For matrices with fewer rows than columns.
fn wide_grad(g: &mut GradientContext<'_>) -> Result<(Output, Output)> {
    let (grad, a, b) = (g.grad(0)?, g.input(0), g.input(1));
    let factor = gram_factor(g, false)?;
    let right = g.product((a, false), (grad, false))?;
    let of_b = solve_gram(g, factor, right)?;
    let inner = solve_gram(g, factor, b)?;
    let first = g.product((inner, true), (a, false))?;
    let first = g.product((of_b, false), (first, false))?;
    let back = g.product((a, true), (of_b, false))?;
    let rest = g.minus(grad, back)?;
    let second = g.product((inner, false), (rest, true))?;
    Ok((g.minus(second, first)?, of_b))
}

/// Rows shifted by one, down or up, with a row of zeros in the gap.
fn shifted_rows(g: &mut GradientContext<'_>, x: Output, is_up: bool) -> Result<Output> {
    let kept = g.part(x, -2, if is_up { (1, None) } else { (0, Some(-1)) })?;
    let row = g.part(x, -2, (0, Some(1)))?;
    let zeros = g.add("ZerosLike", &[row])?;
    let axis = g.int(-2)?;
    let parts = if is_up { [kept, zeros] } else { [zeros, kept] };
    g.op("ConcatV2").inputs(&parts).input(axis).build()
}

/// The sum over the last dimension.
fn row_sums(g: &mut GradientContext<'_>, x: Output) -> Result<Output> {
    let axis = g.int(-1)?;
    g.add("Sum", &[x, axis])
}

pub(crate) fn tridiagonal_mat_mul_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, rhs) = (g.grad(0)?, g.input(3));
    let rhs = conj(g, rhs)?;
    let (above, below) = (shifted_rows(g, rhs, true)?, shifted_rows(g, rhs, false)?);
    for (i, x) in [above, rhs, below].into_iter().enumerate() {
        let product = g.times(x, grad)?;
        let sums = row_sums(g, product)?;
        let adjoint = g.expanded(sums, -2)?;
        g.set(i, adjoint)?;
    }
    let mut terms = Vec::new();
    for i in 0..3 {
        let diagonal = g.adjoint_matrix(g.input(i))?;
        terms.push(g.times(diagonal, grad)?);
    }
    let from_above = shifted_rows(g, terms[0], false)?;
    let from_below = shifted_rows(g, terms[2], true)?;
    let adjoint = g.add("AddN", &[from_above, terms[1], from_below])?;
    g.set(3, adjoint)
}

/// `x` shifted by one along the last dimension, with zeros in the gap.
fn shifted_columns(g: &mut GradientContext<'_>, x: Output, is_left: bool) -> Result<Output> {
    let kept = g.part(x, -1, if is_left { (1, None) } else { (0, Some(-1)) })?;
    let column = g.part(x, -1, (0, Some(1)))?;
    let zeros = g.add("ZerosLike", &[column])?;
    let axis = g.int(-1)?;
    let parts = if is_left { [kept, zeros] } else { [zeros, kept] };
    g.op("ConcatV2").inputs(&parts).input(axis).build()
}

pub(crate) fn tridiagonal_solve_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, diagonals, x) = (g.grad(0)?, g.input(0), g.output(0));
    let upper = g.part(diagonals, -2, (0, Some(1)))?;
    let main = g.part(diagonals, -2, (1, Some(2)))?;
    let lower = g.part(diagonals, -2, (2, Some(3)))?;
    let (new_upper, new_lower) =
        (shifted_columns(g, lower, true)?, shifted_columns(g, upper, false)?);
    let axis = g.int(-2)?;
    let turned = g.op("ConcatV2").inputs(&[new_upper, main, new_lower]).input(axis).build()?;
    let turned = conj(g, turned)?;
    let of_rhs = g
        .op_like("TridiagonalSolve", &["partial_pivoting", "perturb_singular"])
        .inputs(&[turned, grad])
        .build()?;
    let x = conj(g, x)?;
    let (above, below) = (shifted_rows(g, x, true)?, shifted_rows(g, x, false)?);
    let mut rows = Vec::new();
    for x in [above, x, below] {
        let product = g.times(of_rhs, x)?;
        let sums = row_sums(g, product)?;
        let sums = g.negated(sums)?;
        rows.push(g.expanded(sums, -2)?);
    }
    let of_diagonals = g.op("ConcatV2").inputs(&rows).input(axis).build()?;
    g.set(0, of_diagonals)?;
    g.set(1, of_rhs)
}

/// Solves Sylvester's equation `X^H G + G X^H = dX` as one system over all elements of `G`.
pub(crate) fn square_root_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, root) = (g.grad(0)?, g.output(0));
    let adjoint = g.adjoint_matrix(root)?;
    let conjugate = conj(g, root)?;
    let count = size_along(g, root, -1)?;
    let one = ones(g, count, root)?;
    let identity = g.einsum("i->ii", &[one])?;
    let first = g.einsum("...ik,jl->...ijkl", &[adjoint, identity])?;
    let second = g.einsum("ik,...jl->...ijkl", &[identity, conjugate])?;
    let both = g.plus(first, second)?;
    let square = g.times(count, count)?;
    let batch = {
        let shape = g.shape_of(root)?;
        let (begin, end, step) = (g.ints(&[0])?, g.ints(&[-2])?, g.ints(&[1])?);
        g.add("StridedSlice", &[shape, begin, end, step])?
    };
    let axis = g.int(0)?;
    let matrix_shape = g.op("ConcatV2").inputs(&[batch, square, square]).input(axis).build()?;
    let matrix = g.add("Reshape", &[both, matrix_shape])?;
    let single = g.ints(&[1])?;
    let vector_shape = g.op("ConcatV2").inputs(&[batch, square, single]).input(axis).build()?;
    let vector = g.add("Reshape", &[grad, vector_shape])?;
    let solution = g.add("MatrixSolve", &[matrix, vector])?;
    let shape = g.shape_of(root)?;
    let adjoint = g.add("Reshape", &[solution, shape])?;
    g.set(0, adjoint)
}
