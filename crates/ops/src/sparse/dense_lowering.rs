//! Lowering of ops between sparse and dense tensors.
//!
//! A value at coordinates out of range is left out.

use thalweg_hlo::Value;
use thalweg_kernel::Lowering;
use thalweg_tensor::{Result, Tensor, ensure};

use crate::lowering::{set_narrow, wide};
use crate::rows_lowering::{gathered, gathered_points, scattered, wide as wide_indices};

pub(crate) fn to_dense(l: &mut Lowering<'_>) -> Result<()> {
    let (indices, values, default) = (l.input(0)?, l.input(2)?, l.input(3)?);
    let shape = l.shape_input(1, "output_shape")?;
    let (count, rank) = match *indices.dims() {
        [] => (1, 1),
        [count] => (count, 1),
        [count, rank] => (count, rank),
        _ => (0, usize::MAX),
    };
    ensure!(
        shape.rank() == rank,
        InvalidArgument,
        "output_shape has {} elements, but sparse_indices have shape {:?}",
        shape.rank(),
        indices.dims()
    );
    ensure!(
        values.rank() == 0 || *values.dims() == [count],
        InvalidArgument,
        "sparse_values has incorrect shape {:?}, should be [] or [{count}]",
        values.dims()
    );
    ensure!(default.rank() == 0, InvalidArgument, "default_value should be a scalar");
    let target = default.broadcast_to(shape.dims());
    let (points, values) = (indices.reshape(&[count, rank]), values.broadcast_to(&[count]));
    l.set(0, scattered(&target, &points, &values, |_, new| new.clone())?)
}

/// Checks that inputs `0..2` are the coordinates and values of a sparse tensor of this rank.
fn check_sparse(l: &Lowering<'_>, rank: usize) -> Result<()> {
    let (indices, values) = (l.input_dims(0)?, l.input_dims(1)?);
    ensure!(
        values.len() == 1 && indices == [values[0], rank],
        InvalidArgument,
        "the indices of {values:?} values of a tensor of rank {rank} have shape {indices:?}"
    );
    Ok(())
}

pub(crate) fn add_to_dense(l: &mut Lowering<'_>) -> Result<()> {
    let (indices, values, dense) = (l.input(0)?, l.input(1)?, l.input(3)?);
    let shape = l.shape_input(2, "a_shape")?;
    check_sparse(l, shape.rank())?;
    ensure!(
        *dense.dims() == *shape.dims() && (1..=5).contains(&shape.rank()),
        InvalidArgument,
        "the shapes differ (no broadcasting is supported): {shape} and {:?}",
        dense.dims()
    );
    l.set(0, scattered(&dense, &indices, &values, Value::plus)?)
}

/// Combines each value with the element of the dense tensor at its coordinates; the dense tensor is
/// broadcast.
pub(crate) fn combine(l: &mut Lowering<'_>, by: fn(&Value, &Value) -> Value) -> Result<()> {
    let (indices, values, dense) = (l.input(0)?, l.input(1)?, l.input(3)?);
    let shape = l.shape_input(2, "sp_shape")?;
    check_sparse(l, shape.rank())?;
    let missing = shape.rank().checked_sub(dense.rank());
    let fits = |missing: usize| {
        dense.dims().iter().zip(&shape[missing..]).all(|(&d, &s)| d == s || d == 1 && s > 0)
    };
    let missing = missing.filter(|&missing| fits(missing) && (1..=5).contains(&shape.rank()));
    let Some(missing) = missing else {
        thalweg_tensor::bail!(
            InvalidArgument,
            "SparseDenseBinaryOp broadcasts dense to sparse only; got incompatible shapes: \
             {shape} vs. {:?}",
            dense.dims()
        );
    };
    let indices = wide_indices(&indices).slice_dim(1, missing, shape.rank());
    let strides: Vec<i64> = dense.dims().iter().map(|&d| i64::from(d != 1)).collect();
    let points = indices * l.program().constant(&Tensor::vector(&strides)?);
    let partners = gathered_points(&dense, &points)?;
    set_narrow(l, 0, &by(&wide(&values), &wide(&partners)))
}

/// The product of a sparse and a dense matrix.
pub(crate) fn product(l: &mut Lowering<'_>) -> Result<()> {
    let (indices, values, b) = (l.input(0)?, l.input(1)?, l.input(3)?);
    let a = l.shape_input(2, "a_shape")?;
    let (adjoint_a, adjoint_b) = (l.attrs().bool("adjoint_a")?, l.attrs().bool("adjoint_b")?);
    ensure!(
        b.rank() == 2 && a.rank() == 2,
        InvalidArgument,
        "the product is of matrices, but 'a_shape' is {a} and 'b' has shape {:?}",
        b.dims()
    );
    check_sparse(l, 2)?;
    let b = if adjoint_b { b.transpose(&[1, 0]).conjugate() } else { b };
    let (rows, inner) = if adjoint_a { (a[1], a[0]) } else { (a[0], a[1]) };
    ensure!(
        inner == b.dims()[0],
        InvalidArgument,
        "Cannot multiply A and B because inner dimension does not match: {inner} vs. {}.  Did you \
         forget a transpose?",
        b.dims()[0]
    );
    let (b, values) = (wide(&b), wide(&values));
    let zeros = b.splat(b.dtype(), &[rows, b.dims()[1]], 0.0);
    if values.num_elements() == 0 || inner == 0 {
        return set_narrow(l, 0, &zeros);
    }
    let column = |i: usize| indices.slice_dim(1, i, i + 1);
    let (to, from) = if adjoint_a { (column(1), column(0)) } else { (column(0), column(1)) };
    let values = if adjoint_a { values.conjugate() } else { values };
    let parts = gathered(&b, &from.flatten(), 0, 0) * values.expand(1);
    set_narrow(l, 0, &scattered(&zeros, &to, &parts, Value::plus)?)
}
