//! Determinant, inverse and solve, by LU decomposition.

use half::f16;
use num_complex::Complex;
use thalweg_graph::{OpDef, ShapeContext};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, Element, Result, Tensor, ensure};

use super::batch::{Batch, Dense, Parts, cost, for_each_matrix, positions, scratch};
use super::lu_lowering::{
    lower_determinant, lower_inverse, lower_log_determinant, lower_lu, lower_solve,
};
use super::shapes::{self, Matrices, equal, followed};
use super::solve_gradients::{determinant_grad, inverse_grad, log_determinant_grad, solve_grad};
use crate::map::{narrowed, wide_view};
use crate::math::factor::lu;
use crate::math::widen::Widen;
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        MATRIX_DETERMINANT.with_gradient(determinant_grad),
        BATCH_MATRIX_DETERMINANT,
        LOG_MATRIX_DETERMINANT.with_gradient(log_determinant_grad),
        MATRIX_INVERSE.with_gradient(inverse_grad),
        BATCH_MATRIX_INVERSE,
        MATRIX_SOLVE.with_gradient(solve_grad),
        BATCH_MATRIX_SOLVE,
        LU,
    ],
    kernels: &[
        cpu_kernel!("MatrixDeterminant", "T" in [f32, f64, Complex<f32>, Complex<f64>]
            => determinant),
        cpu_kernel!("BatchMatrixDeterminant", "T" in [f32, f64, Complex<f32>, Complex<f64>]
            => determinant),
        cpu_kernel!("LogMatrixDeterminant", "T" in [f32, f64, Complex<f32>, Complex<f64>]
            => log_determinant),
        cpu_kernel!("MatrixInverse", "T" in [f32, f64, f16, Complex<f32>, Complex<f64>]
            => inverse),
        cpu_kernel!("BatchMatrixInverse", "T" in [f32, f64] => inverse),
        cpu_kernel!("MatrixSolve", "T" in [f32, f64, Complex<f32>, Complex<f64>] => solve),
        cpu_kernel!("BatchMatrixSolve", "T" in [f32, f64] => solve),
        KernelSpec {
            op: "Lu",
            constraints: &[(
                "T",
                &[DType::Float, DType::Double, DType::Complex64, DType::Complex128],
            )],
            create: lu_factors,
            ..KernelSpec::CPU
        },
        KernelSpec::lowering("MatrixDeterminant", lower_determinant),
        KernelSpec::lowering("BatchMatrixDeterminant", lower_determinant),
        KernelSpec::lowering("LogMatrixDeterminant", lower_log_determinant),
        KernelSpec::lowering("MatrixInverse", lower_inverse),
        KernelSpec::lowering("BatchMatrixInverse", lower_inverse),
        KernelSpec::lowering("MatrixSolve", lower_solve),
        KernelSpec::lowering("BatchMatrixSolve", lower_solve),
        KernelSpec::lowering("Lu", lower_lu),
    ],
};

const MATRIX_DETERMINANT: OpDef = OpDef::new("MatrixDeterminant", shapes::numbers)
    .with_work(|c| work::per_matrix(c, |_, n| n.powi(3) / 1.5));

const BATCH_MATRIX_DETERMINANT: OpDef =
    OpDef { name: "BatchMatrixDeterminant", ..MATRIX_DETERMINANT };

const LOG_MATRIX_DETERMINANT: OpDef = OpDef { name: "LogMatrixDeterminant", ..MATRIX_DETERMINANT };

const MATRIX_INVERSE: OpDef = OpDef::new("MatrixInverse", shapes::square)
    .with_work(|c| work::per_matrix(c, |_, n| 2.0 * n.powi(3)));

const BATCH_MATRIX_INVERSE: OpDef = OpDef { name: "BatchMatrixInverse", ..MATRIX_INVERSE };

const MATRIX_SOLVE: OpDef = OpDef::new("MatrixSolve", solve_shape)
    .with_work(|c| work::solve(c, |n| n.powi(3) / 1.5, |n| 2.0 * n));

const BATCH_MATRIX_SOLVE: OpDef = OpDef { name: "BatchMatrixSolve", ..MATRIX_SOLVE };

const LU: OpDef =
    OpDef::new("Lu", lu_shape).with_work(|c| work::per_matrix(c, |_, n| n.powi(3) / 1.5));

fn solve_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let matrix = Matrices::square(c, 0, "matrix")?;
    let rhs = Matrices::of(c, 1, "rhs")?;
    let rows = equal(matrix.rows, rhs.rows, "rows of matrix and rhs")?;
    let batch = matrix.batch.merge(&rhs.batch)?;
    c.set_output(0, followed(&batch, &[rows, rhs.columns]));
    Ok(())
}

fn lu_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let matrices = Matrices::square(c, 0, "input")?;
    c.set_output(0, matrices.with(&[matrices.rows, matrices.rows]));
    c.set_output(1, matrices.with(&[matrices.rows]));
    Ok(())
}

/// Calls `body` with the LU factors of each matrix of input 0 and whether the number of row
/// exchanges is odd. It fills one element of each output.
fn for_each_determinant<T: Dense>(
    ctx: &KernelContext<'_>,
    first: &mut Tensor,
    second: Option<&mut Tensor>,
    body: impl Fn(&[T], usize, bool) -> (T, T) + Sync,
) -> Result<()> {
    let batch = Batch::square(ctx, 0)?;
    let (n, each) = (batch.rows, batch.each());
    let data = ctx.slice::<T>(0)?;
    let second = match second {
        Some(tensor) => Parts::new(tensor.as_mut_slice::<T>()?, 1),
        None => Parts::none(),
    };
    let parts = (Parts::new(first.as_mut_slice::<T>()?, 1), second, Parts::<u8>::none());
    for_each_matrix(ctx, (batch.count, cost(&[n, n, n])), parts, |i, first, second, _| {
        let (mut memory, mut order) = (scratch::<T>(ctx, each)?, positions(n)?);
        let a = memory.as_mut_slice::<T>()?;
        a.copy_from_slice(&data[i * each..(i + 1) * each]);
        let is_odd = lu::factor(a, n, &mut order);
        let (x, y) = body(a, n, is_odd);
        first[0] = x;
        second.iter_mut().for_each(|second| *second = y);
        Ok(())
    })
}

fn determinant<T: Dense>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let batch = Batch::square(ctx, 0)?;
        let mut out = ctx.allocate_output(0, batch.shape(&[])?)?;
        for_each_determinant::<T>(ctx, &mut out, None, |lu, n, is_odd| {
            (lu::determinant(lu, n, is_odd), T::ZERO)
        })?;
        ctx.set_output(0, out)
    })
}

fn log_determinant<T: Dense>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let batch = Batch::square(ctx, 0)?;
        let mut sign = ctx.allocate_output(0, batch.shape(&[])?)?;
        let mut log = ctx.allocate_output(1, batch.shape(&[])?)?;
        for_each_determinant::<T>(ctx, &mut sign, Some(&mut log), |lu, n, is_odd| {
            let (sign, log) = lu::log_determinant(lu, n, is_odd);
            (sign, T::real(log))
        })?;
        ctx.set_output(0, sign)?;
        ctx.set_output(1, log)
    })
}

fn inverse<T: Widen<Wide: Dense>>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let is_adjoint = init.attrs().bool("adjoint")?;
    AnyKernel::new(move |ctx| {
        let batch = Batch::square(ctx, 0)?;
        let (n, each) = (batch.rows, batch.each());
        let input = wide_view::<T>(ctx, 0)?;
        let data = input.as_slice::<T::Wide>()?;
        let mut out = ctx.allocate(<T::Wide>::DTYPE, batch.shape(&[n, n])?)?;
        let parts = (
            Parts::new(out.as_mut_slice::<T::Wide>()?, each),
            Parts::<u8>::none(),
            Parts::<u8>::none(),
        );
        for_each_matrix(ctx, (batch.count, cost(&[3, n, n, n])), parts, |i, out, _, _| {
            let (mut memory, mut order) = (scratch::<T::Wide>(ctx, 2 * each)?, positions(n)?);
            let (a, scratch) = memory.as_mut_slice::<T::Wide>()?.split_at_mut(each);
            a.copy_from_slice(&data[i * each..(i + 1) * each]);
            lu::factor(a, n, &mut order);
            ensure!(!lu::is_singular(a, n), InvalidArgument, "Input is not invertible.");
            lu::inverse((a, &order), n, is_adjoint, out, scratch);
            Ok(())
        })?;
        let out = narrowed::<T>(ctx, out)?;
        ctx.set_output(0, out)
    })
}

fn solve<T: Dense>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let is_adjoint = init.attrs().bool("adjoint")?;
    AnyKernel::new(move |ctx| {
        let (batch, rhs) = (Batch::of(ctx, 0)?, Batch::of(ctx, 1)?);
        batch.check_same(&rhs, 1)?;
        Batch::square(ctx, 0)?;
        ensure!(
            batch.rows == rhs.rows,
            InvalidArgument,
            "Input matrix and rhs are incompatible: {} and {} rows",
            batch.rows,
            rhs.rows
        );
        let (n, columns, each) = (batch.rows, rhs.columns, batch.each());
        let (a, b) = (ctx.slice::<T>(0)?, ctx.slice::<T>(1)?);
        let mut out = ctx.allocate_output(0, batch.shape(&[n, columns])?)?;
        let count = if columns == 0 { 0 } else { batch.count };
        let parts = (
            Parts::new(out.as_mut_slice::<T>()?, n * columns),
            Parts::<u8>::none(),
            Parts::<u8>::none(),
        );
        let work = cost(&[n, n, n]) + cost(&[2, n, n, columns]);
        for_each_matrix(ctx, (count, work), parts, |i, out, _, _| {
            let mut memory = scratch::<T>(ctx, each + n * columns)?;
            let mut order = positions(n)?;
            let (lu, scratch) = memory.as_mut_slice::<T>()?.split_at_mut(each);
            lu.copy_from_slice(&a[i * each..(i + 1) * each]);
            lu::factor(lu, n, &mut order);
            ensure!(!lu::is_singular(lu, n), InvalidArgument, "Input matrix is not invertible.");
            out.copy_from_slice(&b[i * n * columns..(i + 1) * n * columns]);
            lu::solve((lu, &order), n, is_adjoint, out, columns, scratch);
            Ok(())
        })?;
        ctx.set_output(0, out)
    })
}

fn lu_factors(init: &KernelInit<'_>) -> Result<AnyKernel> {
    match init.attrs().dtype("T")? {
        DType::Float => lu_kernel::<f32>(),
        DType::Double => lu_kernel::<f64>(),
        DType::Complex64 => lu_kernel::<Complex<f32>>(),
        DType::Complex128 => lu_kernel::<Complex<f64>>(),
        other => thalweg_tensor::bail!(Unimplemented, "Lu has no kernel for {other}"),
    }
}

fn lu_kernel<T: Dense>() -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let batch = Batch::square(ctx, 0)?;
        let (n, each) = (batch.rows, batch.each());
        let data = ctx.slice::<T>(0)?;
        let mut factors = ctx.allocate_output(0, batch.shape(&[n, n])?)?;
        let mut places = ctx.allocate(DType::Int64, batch.shape(&[n])?)?;
        let parts = (
            Parts::new(factors.as_mut_slice::<T>()?, each),
            Parts::new(places.as_mut_slice::<i64>()?, n),
            Parts::<u8>::none(),
        );
        for_each_matrix(ctx, (batch.count, cost(&[n, n, n])), parts, |i, out, places, _| {
            let mut order = positions(n)?;
            out.copy_from_slice(&data[i * each..(i + 1) * each]);
            lu::factor(out, n, &mut order);
            ensure!(!lu::is_singular(out, n), InvalidArgument, "Input is not invertible.");
            places.iter_mut().zip(&order).for_each(|(place, &row)| *place = row as i64);
            Ok(())
        })?;
        if ctx.output_dtype(1)? == DType::Int32 {
            let mut narrow = ctx.allocate(DType::Int32, places.shape().clone())?;
            let wide = places.as_slice::<i64>()?;
            // A matrix in memory has fewer than 2^31 rows.
            narrow.as_mut_slice::<i32>()?.iter_mut().zip(wide).for_each(|(n, &w)| *n = w as i32);
            places = narrow;
        }
        ctx.set_output(0, factors)?;
        ctx.set_output(1, places)
    })
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, Shape};

    use super::*;
    use crate::testing::call;

    fn matrix(dims: &[usize], values: &[f64]) -> Tensor {
        Tensor::from_slice(Shape::new(dims).unwrap(), values).unwrap()
    }

    #[test]
    fn shapes() {
        for (op, inputs, expected) in [
            ("MatrixDeterminant", &["5,3,3"][..], "[5]"),
            ("LogMatrixDeterminant", &["?,3"], "[] []"),
            ("MatrixInverse", &["5,?,3"], "[5,3,3]"),
            ("Lu", &["5,3,3"], "[5,3,3] [5,3]"),
            ("MatrixSolve", &["5,3,3", "?,3,2"], "[5,3,2]"),
            ("MatrixSolve", &["unknown", "3,2"], "[3,2]"),
        ] {
            let mut node = call(op);
            for shape in inputs {
                node = node.shape(DType::Double, shape);
            }
            assert_eq!(node.infer(), expected, "{op} {inputs:?}");
        }
        for (a, b) in [("2,3", "2,1"), ("2,2", "3,1"), ("2,2", "2"), ("4,2,2", "3,2,2")] {
            let node = call("MatrixSolve").shape(DType::Double, a).shape(DType::Double, b);
            assert!(node.infer().starts_with("INVALID_ARGUMENT"), "{a} {b}");
        }
    }

    #[test]
    fn values() {
        let a = matrix(&[1, 3, 3], &[0.0, 2.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 3.0]);
        let out = call("Lu").input(a.clone()).run_all().unwrap();
        assert_eq!(out[1].as_slice::<i32>().unwrap(), [1, 0, 2]);
        let det = call("MatrixDeterminant").input(a.clone()).run().unwrap();
        assert_eq!(det.as_slice::<f64>().unwrap(), [-6.0]);
        let inverse = call("MatrixInverse").input(a.clone()).run().unwrap();
        let b = matrix(&[1, 3, 1], &[1.0, 2.0, 3.0]);
        let x = call("MatrixSolve").input(a).input(b).run().unwrap();
        assert_eq!(x.as_slice::<f64>().unwrap(), [2.0, 0.0, 1.0]);
        assert_eq!(inverse.as_slice::<f64>().unwrap()[..3], [0.0, 1.0, 0.0]);
    }

    #[test]
    fn hostile_inputs() {
        let singular = matrix(&[2, 2], &[1.0, 2.0, 2.0, 4.0]);
        for op in ["MatrixInverse", "Lu"] {
            let error = call(op).input(singular.clone()).run().unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument);
        }
        let b = matrix(&[2, 1], &[1.0, 2.0]);
        let solve = |a: &Tensor, b: &Tensor| {
            call("MatrixSolve").input(a.clone()).input(b.clone()).run().map_err(|e| e.code())
        };
        assert_eq!(solve(&singular, &b).unwrap_err(), Code::InvalidArgument);
        let identity = matrix(&[2, 2], &[1.0, 0.0, 0.0, 1.0]);
        for bad in
            [matrix(&[2], &[0.0; 2]), matrix(&[3, 1], &[0.0; 3]), matrix(&[1, 2, 1], &[0.0; 2])]
        {
            assert_eq!(solve(&identity, &bad).unwrap_err(), Code::InvalidArgument);
        }
        assert_eq!(solve(&singular, &matrix(&[2, 0], &[])).unwrap().num_elements(), 0);
        let empty = call("MatrixDeterminant").input(matrix(&[3, 0, 0], &[])).run().unwrap();
        assert_eq!(empty.as_slice::<f64>().unwrap(), [1.0; 3]);
        let log = call("LogMatrixDeterminant").input(singular).run_all().unwrap();
        assert_eq!(log[1].as_slice::<f64>().unwrap(), [f64::NEG_INFINITY]);
    }
}
