//! Gradients of QR, singular value and eigenvalue decompositions.

use thalweg_graph::{GradientContext, Output};
use thalweg_tensor::{DType, Result, ensure};

use super::gradients::{MatrixArithmetic, size_along};
use super::solve_gradients::half_triangle;
use crate::gradients::{Arithmetic, conj};

/// Rows and columns of a matrix, if known.
fn known_sides(g: &GradientContext<'_>, of: Output) -> Option<(usize, usize)> {
    match g.shape(of).dims() {
        Some([.., Some(rows), Some(columns)]) => Some((*rows, *columns)),
        _ => None,
    }
}

/// `x r^-H` for an upper triangle `r`.
fn over_adjoint(g: &mut GradientContext<'_>, x: Output, r: Output) -> Result<Output> {
    let turned = g.adjoint_matrix(x)?;
    let solved = g
        .op("MatrixTriangularSolve")
        .inputs(&[r, turned])
        .attr("lower", false)
        .attr("adjoint", false)
        .build()?;
    g.adjoint_matrix(solved)
}

/// `x - x^H`.
fn skew(g: &mut GradientContext<'_>, x: Output) -> Result<Output> {
    let turned = g.adjoint_matrix(x)?;
    g.minus(x, turned)
}

/// For wide matrices, the columns beyond the number of rows depend on the others through `q` alone;
/// there may be none.
pub(crate) fn qr_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (a, q, r) = (g.input(0), g.output(0), g.output(1));
    let sides = known_sides(g, a);
    ensure!(
        !g.attrs().bool("full_matrices")? || sides.is_none_or(|(rows, columns)| rows <= columns),
        Unimplemented,
        "QrGrad is not implemented when nrows > ncols and full_matrices is true"
    );
    let (of_q, of_r) = (g.grad(0)?, g.grad(1)?);
    let is_deep = sides.is_none_or(|(rows, columns)| rows > columns);
    if sides.is_some_and(|(rows, columns)| rows >= columns) {
        let adjoint = qr_grad_of_tall(g, (q, r), (of_q, of_r), is_deep)?;
        return g.set(0, adjoint);
    }
    let middle = size_along(g, q, -1)?;
    let (right, of_v) = (columns_from(g, a, middle)?, columns_from(g, of_r, middle)?);
    let (u, of_u) = (columns_before(g, r, middle)?, columns_before(g, of_r, middle)?);
    let of_right = g.product((q, false), (of_v, false))?;
    let more = g.product((right, false), (of_v, true))?;
    let of_q = g.plus(of_q, more)?;
    let of_left = qr_grad_of_tall(g, (q, u), (of_q, of_u), is_deep)?;
    let axis = g.int(-1)?;
    let adjoint = g.op("ConcatV2").inputs(&[of_left, of_right]).input(axis).build()?;
    g.set(0, adjoint)
}

/// The columns from `at`, a vector of one number.
fn columns_from(g: &mut GradientContext<'_>, x: Output, at: Output) -> Result<Output> {
    let (zero, axis) = (g.ints(&[0])?, g.int(0)?);
    let begin = g.op("ConcatV2").inputs(&[zero, at]).input(axis).build()?;
    let (end, step) = (g.ints(&[0, 0])?, g.ints(&[1, 1])?);
    let slice = g.op("StridedSlice").inputs(&[x, begin, end, step]);
    slice.attr("ellipsis_mask", 1i64).attr("end_mask", 2i64).build()
}

/// The columns before `at`, a vector of one number.
fn columns_before(g: &mut GradientContext<'_>, x: Output, at: Output) -> Result<Output> {
    let (zero, axis) = (g.ints(&[0])?, g.int(0)?);
    let end = g.op("ConcatV2").inputs(&[zero, at]).input(axis).build()?;
    let (begin, step) = (g.ints(&[0, 0])?, g.ints(&[1, 1])?);
    let slice = g.op("StridedSlice").inputs(&[x, begin, end, step]);
    slice.attr("ellipsis_mask", 1i64).attr("begin_mask", 2i64).build()
}

/// For matrices with at least as many rows as columns.
fn qr_grad_of_tall(
    g: &mut GradientContext<'_>,
    (q, r): (Output, Output),
    (of_q, of_r): (Output, Output),
    is_deep: bool,
) -> Result<Output> {
    let inside = g.product((q, true), (of_q, false))?;
    let of_triangle = g.product((r, false), (of_r, true))?;
    let (first, second) = (skew(g, inside)?, skew(g, of_triangle)?);
    let sum = g.plus(first, second)?;
    let lower = g.triangle(sum, true)?;
    let solved = over_adjoint(g, lower, r)?;
    let middle = g.plus(of_r, solved)?;
    let along = g.product((q, false), (middle, false))?;
    let projected = g.product((q, false), (inside, false))?;
    let outside = g.minus(of_q, projected)?;
    let across = over_adjoint(g, outside, r)?;
    let mut adjoint = g.plus(along, across)?;
    if is_deep && g.dtype(q).is_complex() {
        let turned = g.adjoint_matrix(inside)?;
        let difference = g.minus(of_triangle, turned)?;
        let diagonal = g.diagonal(difference)?;
        let real = g.real_part(diagonal)?;
        let imaginary = g.minus(diagonal, real)?;
        let imaginary = conj(g, imaginary)?;
        let correction = g.diagonal_matrix(imaginary)?;
        let correction = g.product((q, false), (correction, false))?;
        let correction = over_adjoint(g, correction, r)?;
        adjoint = g.plus(adjoint, correction)?;
    }
    Ok(adjoint)
}

/// `1 / (x[j] - x[i])` as a matrix, zero on the diagonal and where values are equal.
fn reciprocal_gaps(g: &mut GradientContext<'_>, x: Output) -> Result<Output> {
    let (row, column) = (g.expanded(x, -2)?, g.expanded(x, -1)?);
    let gaps = g.minus(row, column)?;
    // One on the diagonal: the reciprocal of zero has no derivative.
    let ones = g.add("OnesLike", &[x])?;
    let identity = g.diagonal_matrix(ones)?;
    let gaps = g.plus(gaps, identity)?;
    let reciprocals = g.safe_reciprocal(gaps)?;
    g.minus(reciprocals, identity)
}

pub(crate) fn svd_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let a = g.input(0);
    let of_s = g.grad(0)?;
    if !g.attrs().bool("compute_uv")? {
        let outputs = g.op("Svd").input(a).attr("compute_uv", true).build_all()?;
        let of_s = g.diagonal_matrix(of_s)?;
        let left = g.product((outputs[1], false), (of_s, false))?;
        let adjoint = g.product((left, false), (outputs[2], true))?;
        return g.set(0, adjoint);
    }
    let sides = known_sides(g, a);
    ensure!(
        !g.attrs().bool("full_matrices")? || sides.is_some_and(|(rows, columns)| rows == columns),
        Unimplemented,
        "the gradient of full singular vectors is there for square matrices only"
    );
    let (s, u, v) = (g.output(0), g.output(1), g.output(2));
    let (of_u, of_v) = (g.grad(1)?, g.grad(2)?);
    let is_tall = sides.is_some_and(|(rows, columns)| rows > columns);
    let middle = svd_middle(g, (s, u, v), (of_s, of_u, of_v), is_tall)?;
    let left = g.product((u, false), (middle, false))?;
    let mut adjoint = g.product((left, false), (v, true))?;
    // The component of the vectors' adjoint outside their span, on the longer side.
    let inverse = g.safe_reciprocal(s)?;
    let inverse = g.expanded(inverse, -2)?;
    if sides.is_none_or(|(rows, columns)| rows > columns) {
        let outside = outside_span(g, u, of_u)?;
        let scaled = g.times(outside, inverse)?;
        let more = g.product((scaled, false), (v, true))?;
        adjoint = g.plus(adjoint, more)?;
    }
    if sides.is_none_or(|(rows, columns)| columns > rows) {
        let outside = outside_span(g, v, of_v)?;
        let scaled = g.times(outside, inverse)?;
        let more = g.product((u, false), (scaled, true))?;
        adjoint = g.plus(adjoint, more)?;
    }
    g.set(0, adjoint)
}

/// `x - q q^H x`, the component outside the span of `q`.
fn outside_span(g: &mut GradientContext<'_>, q: Output, x: Output) -> Result<Output> {
    let inside = g.product((q, true), (x, false))?;
    let inside = g.product((q, false), (inside, false))?;
    g.minus(x, inside)
}

/// The adjoint within the spans of the singular vectors, in their coordinates.
fn svd_middle(
    g: &mut GradientContext<'_>,
    (s, u, v): (Output, Output, Output),
    (of_s, of_u, of_v): (Output, Output, Output),
    is_tall: bool,
) -> Result<Output> {
    let squares = g.squared(s)?;
    let gaps = reciprocal_gaps(g, squares)?;
    let (row, column) = (g.expanded(s, -2)?, g.expanded(s, -1)?);
    let u_part = g.product((u, true), (of_u, false))?;
    let v_part = g.product((v, true), (of_v, false))?;
    let both = |g: &mut GradientContext<'_>, part: Output| {
        let scaled = g.times(gaps, part)?;
        let turned = g.adjoint_matrix(scaled)?;
        g.plus(scaled, turned)
    };
    let (from_u, from_v) = (both(g, u_part)?, both(g, v_part)?);
    let (from_u, from_v) = (g.times(from_u, row)?, g.times(column, from_v)?);
    let diagonal = g.diagonal_matrix(of_s)?;
    let middle = g.add("AddN", &[diagonal, from_u, from_v])?;
    if !g.dtype(u).is_complex() {
        return Ok(middle);
    }
    // The common phase of a pair of singular vectors is free; only the difference of their phases
    // determines the matrix.
    let own = g.diagonal(if is_tall { u_part } else { v_part })?;
    let real = g.real_part(own)?;
    let imaginary = if is_tall { g.minus(own, real)? } else { g.minus(real, own)? };
    let inverse = g.safe_reciprocal(s)?;
    let scaled = g.times(inverse, imaginary)?;
    let correction = g.diagonal_matrix(scaled)?;
    g.plus(middle, correction)
}

/// Only the lower triangle of the input is read, so only it gets an adjoint.
pub(crate) fn self_adjoint_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let of_e = g.grad(0)?;
    let of_e = g.diagonal_matrix(of_e)?;
    let (v, middle) = if g.attrs().bool("compute_v")? {
        let (e, v, of_v) = (g.output(0), g.output(1), g.grad(1)?);
        let gaps = reciprocal_gaps(g, e)?;
        let inside = g.product((v, true), (of_v, false))?;
        let scaled = g.times(gaps, inside)?;
        (v, g.plus(of_e, scaled)?)
    } else {
        let a = g.input(0);
        let outputs = g.op("SelfAdjointEigV2").input(a).attr("compute_v", true).build_all()?;
        (outputs[1], of_e)
    };
    let left = g.product((v, false), (middle, false))?;
    let whole = g.product((left, false), (v, true))?;
    let turned = g.adjoint_matrix(whole)?;
    let sum = g.plus(whole, turned)?;
    let adjoint = half_triangle(g, sum)?;
    g.set(0, adjoint)
}

/// Eigenvectors have length 1, which determines the component of their derivative along themselves.
pub(crate) fn general_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let a = g.input(0);
    let of_e = g.grad(0)?;
    let of_e = g.diagonal_matrix(of_e)?;
    let (v, middle) = if g.attrs().bool("compute_v")? {
        let (e, v, of_v) = (g.output(0), g.output(1), g.grad(1)?);
        let gaps = reciprocal_gaps(g, e)?;
        let gaps = conj(g, gaps)?;
        let inside = g.product((v, true), (of_v, false))?;
        let own = g.diagonal(inside)?;
        let own = g.real_part(own)?;
        let own = g.expanded(own, -2)?;
        let gram = g.product((v, true), (v, false))?;
        let along = g.times(gram, own)?;
        let across = g.minus(inside, along)?;
        let scaled = g.times(gaps, across)?;
        (v, g.plus(of_e, scaled)?)
    } else {
        let dtype = g.dtype(g.output(0));
        let node = g.op("Eig").input(a).attr("compute_v", true).attr("Tout", dtype);
        (node.build_all()?[1], of_e)
    };
    let right = g.product((middle, false), (v, true))?;
    let adjoint = g.op("MatrixSolve").inputs(&[v, right]).attr("adjoint", true).build()?;
    let dtype = g.dtype(a);
    let adjoint = match dtype {
        DType::Float | DType::Double => g.op("Real").input(adjoint).attr("Tout", dtype).build()?,
        _ => adjoint,
    };
    g.set(0, adjoint)
}
