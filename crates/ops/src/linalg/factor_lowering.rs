//! Cholesky factors and triangular solvers on accelerators.

use thalweg_hlo::{Comparison, Reduction, Value};
use thalweg_kernel::Lowering;
use thalweg_tensor::{DType, Result, ensure};

/// Input `i`, whose last two dimensions are square matrices.
pub(crate) fn square_input(l: &Lowering<'_>, i: usize) -> Result<Value> {
    let x = l.input(i)?;
    let is_square = matches!(x.dims(), [.., rows, columns] if rows == columns);
    ensure!(
        is_square,
        InvalidArgument,
        "input {i} of {} must be square matrices, got shape {:?}",
        l.node().op.name,
        x.dims()
    );
    Ok(x)
}

/// Whether an element is on the diagonal or below, in the last two dimensions.
pub(crate) fn is_lower(x: &Value) -> Value {
    let (rows, columns) = (x.rank() - 2, x.rank() - 1);
    let row = x.iota(DType::Int32, x.dims(), rows);
    row.compare(Comparison::GreaterEqual, &x.iota(DType::Int32, x.dims(), columns))
}

/// The transposed matrices, conjugated.
pub(crate) fn adjoint(x: &Value) -> Value {
    let mut order: Vec<usize> = (0..x.rank()).collect();
    order.swap(x.rank() - 2, x.rank() - 1);
    x.transpose(&order).conjugate()
}

/// The factor of a matrix that is not positive definite is NaN.
pub(crate) fn lower_cholesky(l: &mut Lowering<'_>) -> Result<()> {
    let x = square_input(l, 0)?;
    if x.num_elements() == 0 {
        return l.set(0, x);
    }
    let last = [x.rank() - 2, x.rank() - 1];
    let (factor, is_lower) = (x.cholesky(), is_lower(&x));
    let zero = x.scalar_like(0.0);
    let is_bad = factor.is_nan().and(&is_lower).reduce(Reduction::Or, &last);
    let nan = match x.dtype().is_complex() {
        true => zero.real().scalar_like(f64::NAN).complex(&zero.imaginary()),
        false => x.scalar_like(f64::NAN),
    };
    let factor = is_bad.keep_dims(x.dims(), &last).select(&nan, &factor);
    l.set(0, is_lower.select(&factor, &zero))
}

/// The gradient of the Cholesky factor (Murray, 2016): l^-H phi(l^H grad) l^-1, made symmetric, where
/// phi takes the lower triangle and half of the diagonal.
pub(crate) fn lower_cholesky_grad(l: &mut Lowering<'_>) -> Result<()> {
    let (factor, grad) = (square_input(l, 0)?, square_input(l, 1)?);
    ensure!(
        factor.dims() == grad.dims(),
        InvalidArgument,
        "Inputs (L and grad) must have the same shape, but are {:?} and {:?}",
        factor.dims(),
        grad.dims()
    );
    if factor.num_elements() == 0 {
        return l.set(0, factor);
    }
    let zero = factor.scalar_like(0.0);
    let is_lower = is_lower(&factor);
    let is_strictly_lower = is_lower.and(&adjoint(&is_lower).not());
    let factor = is_lower.select(&factor, &zero);
    let grad = is_lower.select(&grad, &zero);
    let product = adjoint(&factor).matmul(&grad);
    let half = &product * 0.5;
    let phi = is_strictly_lower.select(&product, &is_lower.select(&half, &zero));
    let left = factor.triangular_solve(&phi, true, true);
    let both = factor.triangular_solve(&adjoint(&left), true, true);
    l.set(0, (&both + adjoint(&both)) * 0.5)
}

pub(crate) fn lower_triangular_solve(l: &mut Lowering<'_>) -> Result<()> {
    let (matrix, right, dims) = (square_input(l, 0)?, l.input(1)?, l.output_dims(0)?);
    let n = matrix.dims()[matrix.rank() - 1];
    ensure!(
        right.rank() >= 2 && right.dims()[right.rank() - 2] == n,
        InvalidArgument,
        "the right-hand sides must have {n} rows, got shape {:?}",
        right.dims()
    );
    let right = right.broadcast_to(&dims);
    if right.num_elements() == 0 {
        return l.set(0, right);
    }
    let batch = &dims[..dims.len() - 2];
    let matrix = matrix.broadcast_to(&[batch, &[n, n]].concat());
    let (is_lower, is_adjoint) = (l.attrs().bool("lower")?, l.attrs().bool("adjoint")?);
    l.set(0, matrix.triangular_solve(&right, is_lower, is_adjoint))
}
