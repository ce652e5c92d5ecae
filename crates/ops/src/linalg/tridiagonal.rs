//! Tridiagonal systems and products.

use num_complex::Complex;
use num_traits::Float;
use thalweg_graph::{OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelInit};
use thalweg_tensor::{Result, ensure};

use super::batch::{Batch, Dense, Parts, cost, for_each_matrix, scratch};
use super::shapes::{Matrices, equal, followed};
use super::solve_gradients::{tridiagonal_mat_mul_grad, tridiagonal_solve_grad};
use crate::math::factor::tridiagonal::{self, Diagonals};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        TRIDIAGONAL_SOLVE.with_gradient(tridiagonal_solve_grad),
        TRIDIAGONAL_MAT_MUL.with_gradient(tridiagonal_mat_mul_grad),
    ],
    kernels: &[
        cpu_kernel!("TridiagonalSolve", "T" in [f32, f64, Complex<f32>, Complex<f64>] => solve),
        cpu_kernel!("TridiagonalMatMul", "T" in [f32, f64, Complex<f32>, Complex<f64>]
            => multiply),
    ],
};

const TRIDIAGONAL_SOLVE: OpDef =
    OpDef::new("TridiagonalSolve", solve_shape).with_work(Work::per_output::<700>);

const TRIDIAGONAL_MAT_MUL: OpDef =
    OpDef::new("TridiagonalMatMul", multiply_shape).with_work(Work::per_output::<150>);

fn solve_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let diagonals = Matrices::of(c, 0, "diagonals")?;
    let rhs = Matrices::of(c, 1, "rhs")?;
    equal(diagonals.rows, Some(3), "the number of diagonals and 3")?;
    let rows = equal(diagonals.columns, rhs.rows, "columns of diagonals and rows of rhs")?;
    let batch = diagonals.batch.merge(&rhs.batch)?;
    c.set_output(0, followed(&batch, &[rows, rhs.columns]));
    Ok(())
}

fn multiply_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let rhs = Matrices::of(c, 3, "rhs")?;
    let (mut batch, mut rows) = (rhs.batch.clone(), rhs.rows);
    for (i, name) in ["superdiag", "maindiag", "subdiag"].into_iter().enumerate() {
        let diagonal = Matrices::of(c, i, name)?;
        equal(diagonal.rows, Some(1), "the rows of a diagonal and 1")?;
        rows = equal(rows, diagonal.columns, "columns of a diagonal and rows of rhs")?;
        batch = batch.merge(&diagonal.batch)?;
    }
    c.set_output(0, followed(&batch, &[rows, rhs.columns]));
    Ok(())
}

/// If a pivot is zero, the whole solution is NaN.
fn solve<T: Dense>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let pivots = init.attrs().bool("partial_pivoting")?;
    let perturb = init.attrs().bool("perturb_singular")?;
    ensure!(
        pivots || !perturb,
        InvalidArgument,
        "Setting perturb_singular requires also setting partial_pivoting."
    );
    AnyKernel::new(move |ctx| {
        let (matrix, rhs) = (Batch::of(ctx, 0)?, Batch::of(ctx, 1)?);
        matrix.check_same(&rhs, 1)?;
        ensure!(
            matrix.rows == 3,
            InvalidArgument,
            "Expected diagonals to be provided as a matrix with 3 rows, got {} rows.",
            matrix.rows
        );
        let (n, columns) = (matrix.columns, rhs.columns);
        ensure!(
            rhs.rows == n,
            InvalidArgument,
            "Expected the same number of left-hand sides and right-hand sides, got {n} and {}.",
            rhs.rows
        );
        let (a, b) = (ctx.slice::<T>(0)?, ctx.slice::<T>(1)?);
        let mut out = ctx.allocate_output(0, ctx.input(1)?.shape().clone())?;
        let count = if n * columns == 0 { 0 } else { matrix.count };
        let parts = (
            Parts::new(out.as_mut_slice::<T>()?, n * columns),
            Parts::<u8>::none(),
            Parts::<u8>::none(),
        );
        for_each_matrix(ctx, (count, cost(&[20, n, columns])), parts, |i, out, _, _| {
            let mut memory = scratch::<T>(ctx, 3 * n)?;
            let scratch = memory.as_mut_slice()?;
            let (upper, rest) = a[i * 3 * n..(i + 1) * 3 * n].split_at(n);
            let (main, lower) = rest.split_at(n);
            let matrix = Diagonals { upper, main, lower };
            out.copy_from_slice(&b[i * n * columns..(i + 1) * n * columns]);
            let is_solved = if pivots {
                tridiagonal::solve_pivoted(matrix, out, columns, perturb, scratch)
            } else {
                tridiagonal::solve(matrix, out, columns, scratch)
            };
            if !is_solved {
                out.fill(T::of(T::Real::nan(), T::Real::nan()));
            }
            Ok(())
        })?;
        ctx.set_output(0, out)
    })
}

fn multiply<T: Dense>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let rhs = {
            for i in 0..4 {
                Batch::of(ctx, i)?;
            }
            Batch::of(ctx, 3)?
        };
        let (n, columns) = (rhs.rows, rhs.columns);
        for (i, name) in ["superdiagonal", "maindiagonal", "subdiagonal"].iter().enumerate() {
            let diagonal = Batch::of(ctx, i)?;
            rhs.check_same(&diagonal, i)?;
            ensure!(
                diagonal.rows == 1 && diagonal.columns == n,
                InvalidArgument,
                "Invalid {name} shape: {} by {} instead of 1 by {n}.",
                diagonal.rows,
                diagonal.columns
            );
        }
        let (upper, main) = (ctx.slice::<T>(0)?, ctx.slice::<T>(1)?);
        let (lower, x) = (ctx.slice::<T>(2)?, ctx.slice::<T>(3)?);
        let mut out = ctx.allocate_output(0, ctx.input(3)?.shape().clone())?;
        let each = n * columns;
        let parts =
            (Parts::new(out.as_mut_slice::<T>()?, each), Parts::<u8>::none(), Parts::<u8>::none());
        for_each_matrix(ctx, (rhs.count, cost(&[3, each])), parts, |i, out, _, _| {
            let own = |d: &'_ [T]| i * n..i * n + n.min(d.len());
            let matrix = Diagonals {
                upper: &upper[own(upper)],
                main: &main[own(main)],
                lower: &lower[own(lower)],
            };
            tridiagonal::multiply(matrix, &x[i * each..(i + 1) * each], columns, out);
            Ok(())
        })?;
        ctx.set_output(0, out)
    })
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, DType, Shape, Tensor};

    use crate::testing::{call, pairs};

    fn tensor(dims: &[usize], values: &[f64]) -> Tensor {
        Tensor::from_slice(Shape::new(dims).unwrap(), values).unwrap()
    }

    #[test]
    fn shapes() {
        let solve =
            |a, b| call("TridiagonalSolve").shape(DType::Double, a).shape(DType::Double, b).infer();
        assert_eq!(solve("5,3,4", "?,4,2"), "[5,4,2]");
        assert!(solve("2,4", "4,2").starts_with("INVALID_ARGUMENT"));
        assert!(solve("3,4", "3,2").starts_with("INVALID_ARGUMENT"));
        let node = call("TridiagonalMatMul").shape(DType::Double, "1,?");
        let node = node.shape(DType::Double, "1,4").shape(DType::Double, "unknown");
        assert_eq!(node.shape(DType::Double, "?,2").infer(), "[4,2]");
    }

    /// Values recorded from TensorFlow.
    #[test]
    fn values() {
        let diagonals = tensor(&[3, 3], &[2.0, -1.0, 0.0, 1.0, 3.0, 2.0, 0.0, 4.0, -2.0]);
        let rhs = tensor(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        for pivots in [true, false] {
            let node = call("TridiagonalSolve").attr("partial_pivoting", pivots);
            let got = node.input(diagonals.clone()).input(rhs.clone()).run().unwrap();
            let wanted = [1.5, 1.666667, -0.25, 0.166667, 2.25, 3.166667];
            let got = got.as_slice::<f64>().unwrap();
            assert!(pairs(got, &wanted).all(|(a, b)| (a - b).abs() < 1e-5), "{got:?}");
        }
        let row = |v: [f64; 3]| tensor(&[1, 3], &v);
        let node =
            call("TridiagonalMatMul").input(row([1.0, 2.0, 9.0])).input(row([3.0, 4.0, 5.0]));
        let got = node.input(row([9.0, 6.0, 7.0])).input(rhs).run().unwrap();
        assert_eq!(got.as_slice::<f64>().unwrap(), [6.0, 10.0, 28.0, 40.0, 46.0, 58.0]);
    }

    #[test]
    fn hostile_inputs() {
        let run = |a: &[usize], b: &[usize], perturb: bool, pivots: bool| {
            let zeros =
                |dims: &[usize]| Tensor::zeros(DType::Double, Shape::new(dims).unwrap()).unwrap();
            let node = call("TridiagonalSolve").attr("partial_pivoting", pivots);
            let node = node.attr("perturb_singular", perturb);
            node.input(zeros(a)).input(zeros(b)).run()
        };
        for (a, b) in
            [(&[2, 3][..], &[3, 1][..]), (&[3, 3], &[2, 1]), (&[3, 3], &[3]), (&[2, 3, 3], &[3, 1])]
        {
            assert_eq!(run(a, b, false, true).unwrap_err().code(), Code::InvalidArgument);
        }
        assert_eq!(run(&[3, 3], &[3, 1], true, false).unwrap_err().code(), Code::InvalidArgument);
        let nan = run(&[3, 3], &[3, 1], false, true).unwrap();
        assert!(nan.as_slice::<f64>().unwrap().iter().all(|x| x.is_nan()));
        assert_eq!(run(&[3, 0], &[0, 2], false, true).unwrap().num_elements(), 0);
        assert!(run(&[3, 1], &[1, 1], true, true).unwrap().as_slice::<f64>().unwrap()[0] == 0.0);
    }
}
