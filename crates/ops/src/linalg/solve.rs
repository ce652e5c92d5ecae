//! Triangular and banded solvers, and least squares.

use num_complex::Complex;
use thalweg_graph::{OpDef, ShapeContext, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Result, Shape, ensure};

use super::batch::{Batch, Dense, Parts, cost, for_each_matrix, positions, scratch};
use super::factor_lowering::lower_triangular_solve;
use super::shapes::{Matrices, equal, followed};
use super::solve_gradients::{banded_solve_grad, least_squares_grad, triangular_solve_grad};
use crate::math::factor::scalar::{adjoint, multiply, number};
use crate::math::factor::triangular::{self, Triangle};
use crate::math::factor::{cholesky, least_squares};
use crate::matmul::Batches;
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        MATRIX_TRIANGULAR_SOLVE.with_gradient(triangular_solve_grad),
        BATCH_MATRIX_TRIANGULAR_SOLVE,
        BANDED_TRIANGULAR_SOLVE.with_gradient(banded_solve_grad),
        MATRIX_SOLVE_LS.with_gradient(least_squares_grad),
        BATCH_MATRIX_SOLVE_LS,
    ],
    kernels: &[
        cpu_kernel!("MatrixTriangularSolve", "T" in [f32, f64, Complex<f32>, Complex<f64>]
            => triangular),
        cpu_kernel!("BatchMatrixTriangularSolve", "T" in [f32, f64] => triangular),
        cpu_kernel!("BandedTriangularSolve", "T" in [f32, f64, Complex<f32>, Complex<f64>]
            => banded),
        cpu_kernel!("MatrixSolveLs", "T" in [f32, f64, Complex<f32>, Complex<f64>]
            => solve_least_squares; host_inputs: &["l2_regularizer"]),
        cpu_kernel!("BatchMatrixSolveLs", "T" in [f32, f64]
            => solve_least_squares; host_inputs: &["l2_regularizer"]),
        KernelSpec::lowering("MatrixTriangularSolve", lower_triangular_solve),
        KernelSpec::lowering("BatchMatrixTriangularSolve", lower_triangular_solve),
    ],
};

const MATRIX_TRIANGULAR_SOLVE: OpDef = OpDef::new("MatrixTriangularSolve", triangular_shape)
    .with_work(|c| work::solve(c, |_| 0.0, |n| n));

const BATCH_MATRIX_TRIANGULAR_SOLVE: OpDef =
    OpDef { name: "BatchMatrixTriangularSolve", ..MATRIX_TRIANGULAR_SOLVE };

const BANDED_TRIANGULAR_SOLVE: OpDef = OpDef {
    name: "BandedTriangularSolve",
    shape: banded_shape,
    work: work::banded,
    ..MATRIX_TRIANGULAR_SOLVE
};

const MATRIX_SOLVE_LS: OpDef = OpDef::new("MatrixSolveLs", least_squares_shape)
    .with_work(|c| work::per_matrix(c, |m, n| 4.0 * m * n * m.min(n)));

const BATCH_MATRIX_SOLVE_LS: OpDef = OpDef { name: "BatchMatrixSolveLs", ..MATRIX_SOLVE_LS };

fn triangular_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let matrix = Matrices::square(c, 0, "matrix")?;
    let rhs = Matrices::of(c, 1, "rhs")?;
    let rows = equal(matrix.rows, rhs.rows, "rows of matrix and rhs")?;
    let batch = shape::broadcast_shapes(&matrix.batch, &rhs.batch)?;
    c.set_output(0, followed(&batch, &[rows, rhs.columns]));
    Ok(())
}

fn banded_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let matrix = Matrices::of(c, 0, "matrix")?;
    let rhs = Matrices::of(c, 1, "rhs")?;
    ensure!(matrix.rows != Some(0), InvalidArgument, "matrix must have at least one band");
    let rows = equal(matrix.columns, rhs.rows, "columns of the bands and rows of rhs")?;
    let batch = shape::broadcast_shapes(&matrix.batch, &rhs.batch)?;
    c.set_output(0, followed(&batch, &[rows, rhs.columns]));
    Ok(())
}

fn least_squares_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let matrix = Matrices::of(c, 0, "matrix")?;
    let rhs = Matrices::of(c, 1, "rhs")?;
    c.with_rank(2, "l2_regularizer", 0)?;
    equal(matrix.rows, rhs.rows, "rows of matrix and rhs")?;
    let batch = matrix.batch.merge(&rhs.batch)?;
    c.set_output(0, followed(&batch, &[matrix.columns, rhs.columns]));
    Ok(())
}

/// Solves one system in place: matrix, right-hand sides, number of their columns.
type Solver<'a, T> = &'a (dyn Fn(&[T], &mut [T]) -> Result<()> + Sync);

/// Solves every pair of a matrix and right-hand sides with broadcast batches. `rows` is the number
/// of rows of the right-hand sides.
fn solve_pairs<T: Dense>(
    ctx: &KernelContext<'_>,
    (rows, nanoseconds): (usize, f64),
    solver: Solver<'_, T>,
) -> Result<thalweg_tensor::Tensor> {
    let (matrix, rhs) = (Batch::of(ctx, 0)?, Batch::of(ctx, 1)?);
    ensure!(
        rhs.rows == rows,
        InvalidArgument,
        "In[0] mismatch In[1] shape: {rows} vs. {}: {} {}",
        rhs.rows,
        ctx.input(0)?.shape(),
        ctx.input(1)?.shape()
    );
    let pairs = Batches::new(ctx.input(0)?.shape(), ctx.input(1)?.shape(), true)?;
    let (a_each, b_each) = (matrix.each(), rhs.each());
    let dims: smallvec::SmallVec<[usize; 6]> =
        pairs.dims.iter().copied().chain([rows, rhs.columns]).collect();
    let mut out = ctx.allocate_output(0, Shape::new(&dims)?)?;
    if out.num_elements() > 0 {
        let (a, b) = (ctx.slice::<T>(0)?, ctx.slice::<T>(1)?);
        let parts = (
            Parts::new(out.as_mut_slice::<T>()?, b_each),
            Parts::<u8>::none(),
            Parts::<u8>::none(),
        );
        for_each_matrix(ctx, (pairs.count(), nanoseconds), parts, |i, out, _, _| {
            let (of_a, of_b) = pairs.pair(i);
            out.copy_from_slice(&b[of_b * b_each..(of_b + 1) * b_each]);
            solver(&a[of_a * a_each..(of_a + 1) * a_each], out)
        })?;
    }
    Ok(out)
}

/// Checks that the inputs are at least matrices.
fn check_ranks(ctx: &KernelContext<'_>) -> Result<()> {
    for i in 0..2 {
        let rank = ctx.input(i)?.rank();
        ensure!(rank >= 2, InvalidArgument, "In[{i}] ndims must be >= 2: {rank}");
    }
    Ok(())
}

fn triangle(init: &KernelInit<'_>) -> Result<Triangle> {
    Ok(Triangle { lower: init.attrs().bool("lower")?, adjoint: init.attrs().bool("adjoint")? })
}

/// A zero on the diagonal gives infinity or NaN.
fn triangular<T: Dense>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let triangle = triangle(init)?;
    AnyKernel::new(move |ctx| {
        check_ranks(ctx)?;
        let batch = Batch::of(ctx, 0)?;
        let (n, columns) = (batch.rows, Batch::of(ctx, 1)?.columns);
        ensure!(
            n == batch.columns,
            InvalidArgument,
            "In[0] matrices in the last dimensions must be square ({} =/= {n})",
            batch.columns
        );
        let out = solve_pairs::<T>(ctx, (n, cost(&[n, n, columns])), &|a, b| {
            triangular::solve(a, n, triangle, b, columns);
            Ok(())
        })?;
        ctx.set_output(0, out)
    })
}

fn banded<T: Dense>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let triangle = triangle(init)?;
    AnyKernel::new(move |ctx| {
        check_ranks(ctx)?;
        let batch = Batch::of(ctx, 0)?;
        let (count, n, columns) = (batch.rows, batch.columns, Batch::of(ctx, 1)?.columns);
        ensure!(
            ctx.input(0)?.num_elements() > 0,
            InvalidArgument,
            "In[0] must not be an empty tensor, got shape {}",
            ctx.input(0)?.shape()
        );
        ensure!(
            ctx.input(1)?.num_elements() > 0,
            InvalidArgument,
            "In[1] must not be an empty tensor, got shape {}",
            ctx.input(1)?.shape()
        );
        let out = solve_pairs::<T>(ctx, (n, cost(&[n, count.min(n), columns])), &|bands, b| {
            let main = if triangle.lower { 0 } else { count - 1 };
            ensure!(
                bands[main * n..(main + 1) * n].iter().all(|&x| x != T::ZERO),
                InvalidArgument,
                "Input matrix is not invertible."
            );
            triangular::solve_banded(bands, (count, n), triangle, b, columns);
            Ok(())
        })?;
        ctx.set_output(0, out)
    })
}

fn solve_least_squares<T: Dense>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let is_fast = init.attrs().bool("fast")?;
    AnyKernel::new(move |ctx| {
        let (matrix, rhs) = (Batch::of(ctx, 0)?, Batch::of(ctx, 1)?);
        matrix.check_same(&rhs, 1)?;
        ensure!(
            matrix.rows == rhs.rows,
            InvalidArgument,
            "Input matrix and rhs are incompatible: {} and {} rows",
            matrix.rows,
            rhs.rows
        );
        let l2 = ctx.input(2)?;
        ensure!(
            l2.rank() == 0,
            InvalidArgument,
            "l2_regularizer must be scalar, got shape {}",
            l2.shape()
        );
        let l2 = l2.scalar_value::<f64>()?;
        ensure!(l2 >= 0.0, InvalidArgument, "l2_regularizer must be >= 0, is {l2}");
        let (m, n, columns) = (matrix.rows, matrix.columns, rhs.columns);
        let (a, b) = (ctx.slice::<T>(0)?, ctx.slice::<T>(1)?);
        let mut out = ctx.allocate_output(0, matrix.shape(&[n, columns])?)?;
        let parts = (
            Parts::new(out.as_mut_slice::<T>()?, n * columns),
            Parts::<u8>::none(),
            Parts::<u8>::none(),
        );
        let work = cost(&[2, m, n, m.min(n)]) + cost(&[2, m, n, columns]);
        for_each_matrix(ctx, (matrix.count, work), parts, |i, out, _, _| {
            let system = System {
                a: &a[i * m * n..(i + 1) * m * n],
                b: &b[i * m * columns..(i + 1) * m * columns],
                sizes: (m, n, columns),
            };
            out.fill(T::ZERO);
            if m == 0 || n == 0 || columns == 0 {
                return Ok(());
            }
            if is_fast {
                system.by_normal_equations(ctx, l2, out)
            } else {
                system.shortest(ctx, out)
            }
        })?;
        ctx.set_output(0, out)
    })
}

/// One least squares problem: `m` by `n`, with `columns` right-hand sides.
struct System<'a, T> {
    a: &'a [T],
    b: &'a [T],
    sizes: (usize, usize, usize),
}

impl<T: Dense> System<'_, T> {
    /// Solves `(a^H a + l2) x = a^H b`, or `x = a^H (a a^H + l2)^-1 b` if there are fewer rows than
    /// columns.
    fn by_normal_equations(&self, ctx: &KernelContext<'_>, l2: f64, x: &mut [T]) -> Result<()> {
        let (m, n, columns) = self.sizes;
        let k = m.min(n);
        let mut memory = scratch::<T>(ctx, m * n + k * k + m * columns)?;
        let (turned, rest) = memory.as_mut_slice::<T>()?.split_at_mut(m * n);
        let (gram, rest) = rest.split_at_mut(k * k);
        adjoint(self.a, m, n, turned);
        if m >= n {
            multiply(turned, self.a, gram, (n, m, n));
        } else {
            multiply(self.a, turned, gram, (m, n, m));
        }
        (0..k).for_each(|i| gram[i * k + i] += T::real(number(l2)));
        ensure!(
            cholesky::factor(gram, k),
            InvalidArgument,
            "Input matrix was rank deficient or ill-conditioned. Try setting fast=False or provide \
                a larger l2_regularizer > 0."
        );
        if m >= n {
            multiply(turned, self.b, x, (n, m, columns));
            cholesky::solve(gram, n, x, columns);
        } else {
            let inner = &mut rest[..m * columns];
            inner.copy_from_slice(self.b);
            cholesky::solve(gram, m, inner, columns);
            multiply(turned, inner, x, (n, m, columns));
        }
        Ok(())
    }

    /// The minimum-norm solution, for any rank.
    fn shortest(&self, ctx: &KernelContext<'_>, x: &mut [T]) -> Result<()> {
        let (m, n, columns) = self.sizes;
        let needed = m * n + m * columns + least_squares::scratch_len(m, n, columns);
        let mut memory = scratch::<T>(ctx, needed)?;
        let (a, rest) = memory.as_mut_slice::<T>()?.split_at_mut(m * n);
        let (b, scratch_part) = rest.split_at_mut(m * columns);
        a.copy_from_slice(self.a);
        b.copy_from_slice(self.b);
        let (mut order, mut norms) = (positions(n)?, scratch::<T::Real>(ctx, 2 * n)?);
        let norms = norms.as_mut_slice()?;
        least_squares::solve((a, b), self.sizes, x, (&mut order, norms), scratch_part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, DType, Tensor};

    use super::*;
    use crate::testing::call;

    fn counted(dims: &[usize]) -> Tensor {
        let shape = Shape::new(dims).unwrap();
        let values: Vec<f64> = (1..=shape.num_elements()).map(|i| i as f64).collect();
        Tensor::from_slice(shape, &values).unwrap()
    }

    fn assert_near(got: &Tensor, wanted: &[f64]) {
        let got = got.as_slice::<f64>().unwrap();
        assert_eq!(got.len(), wanted.len());
        assert!(got.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-5), "{got:?}");
    }

    #[test]
    fn shapes() {
        for (op, inputs, expected) in [
            ("MatrixTriangularSolve", ["5,1,3,3", "7,3,2"], "[5,7,3,2]"),
            ("BandedTriangularSolve", ["2,3", "7,3,2"], "[7,3,2]"),
            ("MatrixTriangularSolve", ["?,3", "?,2"], "[3,2]"),
        ] {
            let node = call(op).shape(DType::Double, inputs[0]).shape(DType::Double, inputs[1]);
            assert_eq!(node.infer(), expected, "{op}");
        }
        let node = call("MatrixSolveLs").shape(DType::Double, "5,4,3");
        let node = node.shape(DType::Double, "5,4,2").shape(DType::Double, "");
        assert_eq!(node.infer(), "[5,3,2]");
    }

    /// Values recorded from TensorFlow.
    #[test]
    fn bands() {
        let run = |lower: bool, adjoint: bool| {
            let node = call("BandedTriangularSolve").attr("lower", lower).attr("adjoint", adjoint);
            node.input(counted(&[2, 3])).input(counted(&[3, 2])).run().unwrap()
        };
        assert_near(&run(true, false), &[1.0, 2.0, -1.0, -3.0, 3.666667, 8.0]);
        assert_near(&run(true, true), &[18.5, 22.0, -3.5, -4.0, 1.666667, 2.0]);
        assert_near(&run(false, false), &[0.183333, 0.4, 0.266667, 0.4, 0.833333, 1.0]);
        assert_near(&run(false, true), &[0.25, 0.5, 0.55, 0.7, 0.65, 0.766667]);
    }

    #[test]
    fn least_squares_of_any_shape() {
        let eye = |m: usize, n: usize| {
            let mut t = counted(&[m, n]);
            let data = t.as_mut_slice::<f64>().unwrap();
            (0..m.min(n)).for_each(|i| data[i * n + i] += 1.0);
            t
        };
        let run = |a: Tensor, b: Tensor, l2: f64, fast: bool| {
            let node = call("MatrixSolveLs").attr("fast", fast).input(a).input(b);
            node.input(Tensor::scalar(l2)).run()
        };
        for (fast, l2, wanted) in [
            (true, 0.0, [0.348485, 0.19697]),
            (true, 0.5, [0.308571, 0.228571]),
            (false, 0.5, [0.348485, 0.19697]),
        ] {
            assert_near(&run(eye(4, 2), counted(&[4, 1]), l2, fast).unwrap(), &wanted);
        }
        for (fast, l2, wanted) in [
            (true, 0.0, [0.045455, -0.045455, 0.090909, 0.181818]),
            (true, 0.5, [0.048261, -0.008517, 0.086586, 0.1533]),
            (false, 0.0, [0.045455, -0.045455, 0.090909, 0.181818]),
        ] {
            assert_near(&run(eye(2, 4), counted(&[2, 1]), l2, fast).unwrap(), &wanted);
        }
        let ones = Tensor::from_slice(Shape::new(&[4, 2]).unwrap(), &[1.0; 8]).unwrap();
        assert_near(&run(ones.clone(), counted(&[4, 1]), 0.0, false).unwrap(), &[1.25, 1.25]);
        let code = |r: Result<Tensor>| r.unwrap_err().code();
        assert_eq!(code(run(ones.clone(), counted(&[4, 1]), 0.0, true)), Code::InvalidArgument);
        assert_eq!(code(run(ones.clone(), counted(&[4, 1]), -1.0, false)), Code::InvalidArgument);
        assert_eq!(code(run(ones, counted(&[3, 1]), 0.0, true)), Code::InvalidArgument);
        let empty = run(counted(&[0, 2]), counted(&[0, 1]), 0.0, true).unwrap();
        assert_eq!(empty.as_slice::<f64>().unwrap(), [0.0, 0.0]);
    }

    #[test]
    fn hostile_inputs() {
        for (op, a, b) in [
            ("MatrixTriangularSolve", &[2][..], &[2, 2][..]),
            ("MatrixTriangularSolve", &[2, 2], &[2]),
            ("MatrixTriangularSolve", &[2, 3], &[2, 2]),
            ("MatrixTriangularSolve", &[2, 2], &[3, 2]),
            ("MatrixTriangularSolve", &[2, 2, 2], &[3, 2, 2]),
            ("BandedTriangularSolve", &[0, 3], &[3, 1]),
            ("BandedTriangularSolve", &[1, 0], &[0, 1]),
            ("BandedTriangularSolve", &[2, 3], &[2, 1]),
            ("BandedTriangularSolve", &[3], &[3, 1]),
        ] {
            let error = call(op).input(counted(a)).input(counted(b)).run().unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{op} {a:?} {b:?}");
        }
        let zeros = Tensor::zeros(DType::Double, Shape::new(&[2, 2]).unwrap()).unwrap();
        let out = call("MatrixTriangularSolve").input(zeros.clone()).input(counted(&[2, 1])).run();
        assert!(out.unwrap().as_slice::<f64>().unwrap()[0].is_infinite());
        let refused = call("BandedTriangularSolve").input(zeros).input(counted(&[2, 1])).run();
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    }
}
