//! Cholesky decomposition and its gradient.

use num_complex::Complex;
use num_traits::Float;
use thalweg_graph::{OpDef, ShapeContext};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Result, ensure};

use super::batch::{Batch, Dense, Parts, cost, for_each_matrix, scratch};
use super::factor_lowering::{lower_cholesky, lower_cholesky_grad};
use super::shapes;
use super::solve_gradients::cholesky_grad;
use crate::math::factor::cholesky;
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        CHOLESKY.with_gradient(cholesky_grad),
        BATCH_CHOLESKY,
        CHOLESKY_GRAD,
        BATCH_CHOLESKY_GRAD,
    ],
    kernels: &[
        cpu_kernel!("Cholesky", "T" in [f32, f64, Complex<f32>, Complex<f64>] => factor),
        cpu_kernel!("BatchCholesky", "T" in [f32, f64] => factor),
        cpu_kernel!("CholeskyGrad", "T" in [f32, f64] => gradient),
        cpu_kernel!("BatchCholeskyGrad", "T" in [f32, f64] => gradient),
        KernelSpec::lowering("Cholesky", lower_cholesky),
        KernelSpec::lowering("BatchCholesky", lower_cholesky),
        KernelSpec::lowering("CholeskyGrad", lower_cholesky_grad),
        KernelSpec::lowering("BatchCholeskyGrad", lower_cholesky_grad),
    ],
};

const CHOLESKY: OpDef = OpDef::new("Cholesky", shapes::square)
    .with_work(|c| work::per_matrix(c, |_, n| n.powi(3) / 3.0));

const BATCH_CHOLESKY: OpDef = OpDef { name: "BatchCholesky", ..CHOLESKY };

const CHOLESKY_GRAD: OpDef = OpDef::new("CholeskyGrad", gradient_shape)
    .with_work(|c| work::per_matrix(c, |_, n| 3.0 * n.powi(3)));

const BATCH_CHOLESKY_GRAD: OpDef = OpDef { name: "BatchCholeskyGrad", ..CHOLESKY_GRAD };

fn gradient_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    shapes::Matrices::square(c, 0, "l")?;
    c.set_output(0, c.input(0).merge(c.input(1))?);
    Ok(())
}

/// The factor of a matrix that is not positive definite is NaN.
fn factor<T: Dense>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let (batch, shape) = (Batch::square(ctx, 0)?, ctx.input(0)?.shape().clone());
        let (n, each) = (batch.rows, batch.each());
        let (mut out, taken) = ctx.forward_input_or_allocate(&[0], T::DTYPE, &shape)?;
        let source = if taken.is_some() { None } else { Some(ctx.slice::<T>(0)?) };
        let parts = (Parts::new(out.as_mut_slice::<T>()?, each), none(), none());
        for_each_matrix(ctx, (batch.count, cost(&[n, n, n])), parts, |i, out, _, _| {
            if let Some(source) = source {
                out.copy_from_slice(&source[i * each..(i + 1) * each]);
            }
            if !cholesky::factor(out, n) {
                out.fill(T::real(T::Real::nan()));
            }
            cholesky::clear_upper(out, n);
            Ok(())
        })?;
        ctx.set_output(0, out)
    })
}

fn none<'a>() -> Parts<'a, u8> {
    Parts::none()
}

fn gradient<T: Dense>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let (batch, shape) = (Batch::square(ctx, 0)?, ctx.input(0)?.shape().clone());
        Batch::square(ctx, 1)?;
        ensure!(
            shape == *ctx.input(1)?.shape(),
            InvalidArgument,
            "Inputs (L and grad) must have the same shape, but are {shape} and {}",
            ctx.input(1)?.shape()
        );
        let (n, each) = (batch.rows, batch.each());
        let (l, grad) = (ctx.slice::<T>(0)?, ctx.slice::<T>(1)?);
        let mut out = ctx.allocate_output(0, shape)?;
        let parts = (Parts::new(out.as_mut_slice::<T>()?, each), none(), none());
        for_each_matrix(ctx, (batch.count, cost(&[3, n, n, n])), parts, |i, out, _, _| {
            let mut scratch = scratch::<T>(ctx, each)?;
            let range = i * each..(i + 1) * each;
            cholesky::gradient(&l[range.clone()], &grad[range], n, out, scratch.as_mut_slice()?);
            Ok(())
        })?;
        ctx.set_output(0, out)
    })
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, DType, Shape, Tensor};

    use crate::testing::{call, code};

    #[test]
    fn shapes() {
        for (shape, expected) in
            [("2,3,3", "[2,3,3]"), ("?,3", "[3,3]"), ("unknown", "<unknown>"), ("0,0", "[0,0]")]
        {
            assert_eq!(call("Cholesky").shape(DType::Float, shape).infer(), expected);
        }
        for shape in ["3", "2,3", ""] {
            let got = call("Cholesky").shape(DType::Float, shape).infer();
            assert!(got.starts_with("INVALID_ARGUMENT"), "{shape}: {got}");
        }
    }

    #[test]
    fn hostile_inputs() {
        for dims in [&[3][..], &[2, 3], &[], &[2, 0]] {
            let input = Tensor::zeros(DType::Float, Shape::new(dims).unwrap()).unwrap();
            let error = call("Cholesky").input(input).run().unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{dims:?}");
        }
        let values = [4.0f32, 9.0, 2.0, 5.0, 1.0, 2.0, 2.0, 1.0];
        let input = Tensor::from_slice(Shape::new(&[2, 2, 2]).unwrap(), &values).unwrap();
        let out = call("Cholesky").input(input).backwards().run().unwrap();
        let out = out.as_slice::<f32>().unwrap();
        assert_eq!(out[..4], [2.0, 0.0, 1.0, 2.0]);
        assert!(out[4].is_nan() && out[5] == 0.0 && out[6].is_nan() && out[7].is_nan());
        let empty = Tensor::zeros(DType::Float, Shape::new(&[3, 0, 0]).unwrap()).unwrap();
        assert_eq!(call("Cholesky").input(empty).run().unwrap().shape().dims(), [3, 0, 0]);
        let l = Tensor::zeros(DType::Float, Shape::new(&[2, 2]).unwrap()).unwrap();
        let grad = Tensor::zeros(DType::Float, Shape::new(&[3, 3]).unwrap()).unwrap();
        assert_eq!(
            code(call("CholeskyGrad").input(l).input(grad).run()),
            Some(Code::InvalidArgument)
        );
    }
}
