//! Exponentials, logarithms and square roots of matrices.

use num_complex::Complex;
use thalweg_graph::OpDef;
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit};
use thalweg_tensor::Result;

use super::batch::{Batch, Dense, Parts, cost, for_each_matrix, positions, scratch};
use super::shapes;
use super::solve_gradients::square_root_grad;
use crate::math::factor::functions;
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        MATRIX_EXPONENTIAL,
        MATRIX_LOGARITHM,
        MATRIX_SQUARE_ROOT.with_gradient(square_root_grad),
    ],
    kernels: &[
        cpu_kernel!("MatrixExponential", "T" in [f32, f64, Complex<f32>, Complex<f64>]
            => exponential),
        cpu_kernel!("MatrixLogarithm", "T" in [Complex<f32>, Complex<f64>] => logarithm),
        cpu_kernel!("MatrixSquareRoot", "T" in [f32, f64, Complex<f32>, Complex<f64>]
            => square_root),
    ],
};

const MATRIX_EXPONENTIAL: OpDef = OpDef::new("MatrixExponential", shapes::square)
    .with_work(|c| work::per_matrix(c, |_, n| 20.0 * n.powi(3)));

const MATRIX_LOGARITHM: OpDef = OpDef {
    name: "MatrixLogarithm",
    work: |c| work::per_matrix(c, |_, n| 150.0 * n.powi(3)),
    ..MATRIX_EXPONENTIAL
};

const MATRIX_SQUARE_ROOT: OpDef = OpDef {
    name: "MatrixSquareRoot",
    work: |c| work::per_matrix(c, |_, n| 150.0 * n.powi(3)),
    ..MATRIX_EXPONENTIAL
};

/// Sets output 0 to a copy of input 0 with `work` applied to each matrix.
fn map_matrices<T: Dense>(
    ctx: &mut KernelContext<'_>,
    work: impl Fn(&KernelContext<'_>, &mut [T], usize) -> Result<()> + Sync,
) -> Result<()> {
    let (batch, shape) = (Batch::square(ctx, 0)?, ctx.input(0)?.shape().clone());
    let (n, each) = (batch.rows, batch.each());
    let (mut out, taken) = ctx.forward_input_or_allocate(&[0], T::DTYPE, &shape)?;
    let source = if taken.is_some() { None } else { Some(ctx.slice::<T>(0)?) };
    let parts =
        (Parts::new(out.as_mut_slice::<T>()?, each), Parts::<u8>::none(), Parts::<u8>::none());
    let count = if n == 0 { 0 } else { batch.count };
    let ctx_ref: &KernelContext<'_> = ctx;
    for_each_matrix(ctx_ref, (count, cost(&[30, n, n, n])), parts, |i, out, _, _| {
        if let Some(source) = source {
            out.copy_from_slice(&source[i * each..(i + 1) * each]);
        }
        work(ctx_ref, out, n)
    })?;
    ctx.set_output(0, out)
}

fn exponential<T: Dense>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        map_matrices::<T>(ctx, |ctx, a, n| {
            let mut memory = scratch::<T>(ctx, functions::scratch_len(n))?;
            functions::exponential(a, n, &mut positions(n)?, memory.as_mut_slice()?);
            Ok(())
        })
    })
}

fn logarithm<T: Dense>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        map_matrices::<T>(ctx, |ctx, a, n| {
            let mut memory = scratch::<T>(ctx, functions::scratch_len(n))?;
            functions::logarithm(a, n, memory.as_mut_slice()?);
            Ok(())
        })
    })
}

/// Element types of matrix square roots; a real matrix may have no real square root.
trait Rooted: Dense {
    fn square_root(ctx: &KernelContext<'_>, a: &mut [Self], n: usize) -> Result<()>;
}

macro_rules! rooted {
    ($($t:ty),+) => { $(
        impl Rooted for $t {
            fn square_root(ctx: &KernelContext<'_>, a: &mut [$t], n: usize) -> Result<()> {
                let mut memory = scratch::<Complex<$t>>(ctx, n * n + functions::scratch_len(n))?;
                let (wide, scratch) = memory.as_mut_slice::<Complex<$t>>()?.split_at_mut(n * n);
                functions::real_square_root(a, n, wide, scratch);
                Ok(())
            }
        }

        impl Rooted for Complex<$t> {
            fn square_root(ctx: &KernelContext<'_>, a: &mut [Self], n: usize) -> Result<()> {
                let mut memory = scratch::<Self>(ctx, functions::scratch_len(n))?;
                functions::square_root(a, n, memory.as_mut_slice()?);
                Ok(())
            }
        }
    )+ };
}

rooted!(f32, f64);

fn square_root<T: Rooted>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| map_matrices::<T>(ctx, T::square_root))
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, DType, Shape, Tensor};

    use super::*;
    use crate::testing::{call, pairs};

    #[test]
    fn known_values() {
        let a = Tensor::from_slice(Shape::new(&[2, 2]).unwrap(), &[4.0f32, 1.0, 2.0, 3.0]).unwrap();
        let near = |t: &Tensor, wanted: [f32; 4]| {
            let got = t.as_slice::<f32>().unwrap();
            assert!(pairs(got, &wanted).all(|(a, b)| (a - b).abs() < 1e-4), "{got:?}");
        };
        let root = call("MatrixSquareRoot").input(a.clone()).run().unwrap();
        near(&root, [1.962116, 0.273951, 0.547903, 1.688165]);
        let zero = Tensor::zeros(DType::Float, Shape::new(&[2, 2]).unwrap()).unwrap();
        near(&call("MatrixExponential").input(zero).run().unwrap(), [1.0, 0.0, 0.0, 1.0]);
        let wide: Vec<Complex<f32>> =
            a.as_slice::<f32>().unwrap().iter().map(|&x| Complex::new(x, 0.0)).collect();
        let wide = Tensor::from_slice(Shape::new(&[2, 2]).unwrap(), &wide).unwrap();
        let log = call("MatrixLogarithm").input(wide).run().unwrap();
        let log = log.as_slice::<Complex<f32>>().unwrap();
        for (got, wanted) in pairs(log, &[1.304008, 0.30543, 0.61086, 0.998577]) {
            assert!((got.re - wanted).abs() < 1e-4 && got.im.abs() < 1e-4, "{log:?}");
        }
    }

    #[test]
    fn hostile_inputs() {
        for op in ["MatrixExponential", "MatrixSquareRoot"] {
            for dims in [&[3][..], &[2, 3], &[]] {
                let t = Tensor::zeros(DType::Float, Shape::new(dims).unwrap()).unwrap();
                assert_eq!(call(op).input(t).run().unwrap_err().code(), Code::InvalidArgument);
            }
            let empty = Tensor::zeros(DType::Float, Shape::new(&[3, 0, 0]).unwrap()).unwrap();
            assert!(call(op).input(empty).run().is_ok());
            let values = [f32::NAN, f32::INFINITY, 0.0, 1.0];
            let bad = Tensor::from_slice(Shape::new(&[2, 2]).unwrap(), &values).unwrap();
            let out = call(op).input(bad).run().unwrap();
            assert!(out.as_slice::<f32>().unwrap().iter().all(|x| x.is_nan()), "{op}");
        }
    }
}
