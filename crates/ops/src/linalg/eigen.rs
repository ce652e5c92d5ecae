//! Eigenvalues and eigenvectors.

use num_complex::Complex;
use thalweg_graph::{OpDef, ShapeContext};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit};
use thalweg_tensor::{Element, PartialShape, Result, ensure};

use super::batch::{Batch, Dense, Parts, cost, for_each_matrix, scratch, unrequested_output};
use super::shapes::Matrices;
use super::spectral_gradients::{general_grad, self_adjoint_grad};
use crate::math::factor::{eigen, symmetric};
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        SELF_ADJOINT_EIG_V2.with_gradient(self_adjoint_grad),
        BATCH_SELF_ADJOINT_EIG_V2,
        SELF_ADJOINT_EIG,
        BATCH_SELF_ADJOINT_EIG,
        EIG.with_gradient(general_grad),
    ],
    kernels: &[
        cpu_kernel!("SelfAdjointEigV2", "T" in [f32, f64, Complex<f32>, Complex<f64>]
            => self_adjoint),
        cpu_kernel!("BatchSelfAdjointEigV2", "T" in [f32, f64] => self_adjoint),
        cpu_kernel!("SelfAdjointEig", "T" in [f32, f64] => self_adjoint_stacked),
        cpu_kernel!("BatchSelfAdjointEig", "T" in [f32, f64] => self_adjoint_stacked),
        cpu_kernel!("Eig", "T" in [f32, f64, Complex<f32>, Complex<f64>] => general),
    ],
};

const SELF_ADJOINT_EIG_V2: OpDef = OpDef::new("SelfAdjointEigV2", pairs_shape)
    .with_work(|c| work::per_matrix(c, |_, n| 10.0 * n.powi(3)));

const BATCH_SELF_ADJOINT_EIG_V2: OpDef =
    OpDef { name: "BatchSelfAdjointEigV2", ..SELF_ADJOINT_EIG_V2 };

const SELF_ADJOINT_EIG: OpDef = OpDef::new("SelfAdjointEig", stacked_shape)
    .with_work(|c| work::per_matrix(c, |_, n| 10.0 * n.powi(3)));

const BATCH_SELF_ADJOINT_EIG: OpDef = OpDef { name: "BatchSelfAdjointEig", ..SELF_ADJOINT_EIG };

const EIG: OpDef =
    OpDef::new("Eig", pairs_shape).with_work(|c| work::per_matrix(c, |_, n| 50.0 * n.powi(3)));

fn pairs_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let matrices = Matrices::square(c, 0, "input")?;
    let n = matrices.rows;
    c.set_output(0, matrices.with(&[n]));
    let has_vectors = c.attrs().bool("compute_v")?;
    c.set_output(1, if has_vectors { matrices.with(&[n, n]) } else { PartialShape::scalar() });
    Ok(())
}

/// The shape of eigenvalues and eigenvectors stacked, eigenvalues in the first row.
fn stacked_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let matrices = Matrices::square(c, 0, "input")?;
    let n = matrices.rows;
    c.set_output(0, matrices.with(&[n.map(|n| n.saturating_add(1)), n]));
    Ok(())
}

/// Decomposes a copy of `source` in `vectors`; the eigenvalues are written to `values`.
fn decompose<T: Dense>(
    ctx: &KernelContext<'_>,
    source: &[T],
    n: usize,
    values: &mut [T],
    (vectors, with_vectors): (&mut [T], bool),
) -> Result<()> {
    let mut real = scratch::<T::Real>(ctx, 2 * n)?;
    let (own, off) = real.as_mut_slice::<T::Real>()?.split_at_mut(n);
    let mut memory = scratch::<T>(ctx, symmetric::scratch_len(n))?;
    vectors.copy_from_slice(source);
    let ended = symmetric::decompose(vectors, n, own, off, with_vectors, memory.as_mut_slice()?);
    ensure!(
        ended,
        InvalidArgument,
        "Self-adjoint eigen decomposition was not successful. The input might not be valid."
    );
    values.iter_mut().zip(&*own).for_each(|(value, &own)| *value = T::real(own));
    Ok(())
}

fn self_adjoint<T: Dense>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let with_vectors = init.attrs().bool("compute_v")?;
    AnyKernel::new(move |ctx| {
        let batch = Batch::square(ctx, 0)?;
        let (n, each) = (batch.rows, batch.each());
        let data = ctx.slice::<T>(0)?;
        let mut e = ctx.allocate_output(0, batch.shape(&[n])?)?;
        let mut v = ctx.allocate_output(1, batch.shape(&[n, n])?)?;
        let parts = (
            Parts::new(e.as_mut_slice::<T>()?, n),
            Parts::new(v.as_mut_slice::<T>()?, each),
            Parts::<u8>::none(),
        );
        for_each_matrix(ctx, (batch.count, cost(&[9, n, n, n])), parts, |i, e, v, _| {
            decompose(ctx, &data[i * each..(i + 1) * each], n, e, (v, with_vectors))
        })?;
        ctx.set_output(0, e)?;
        let v = if with_vectors { v } else { unrequested_output(ctx, T::DTYPE)? };
        ctx.set_output(1, v)
    })
}

fn self_adjoint_stacked<T: Dense>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let batch = Batch::square(ctx, 0)?;
        let (n, each) = (batch.rows, batch.each());
        let data = ctx.slice::<T>(0)?;
        let mut out = ctx.allocate_output(0, batch.shape(&[n + 1, n])?)?;
        let parts = (
            Parts::new(out.as_mut_slice::<T>()?, each + n),
            Parts::<u8>::none(),
            Parts::<u8>::none(),
        );
        for_each_matrix(ctx, (batch.count, cost(&[9, n, n, n])), parts, |i, out, _, _| {
            let (e, v) = out.split_at_mut(n);
            decompose(ctx, &data[i * each..(i + 1) * each], n, e, (v, true))
        })?;
        ctx.set_output(0, out)
    })
}

/// Element types of general matrices, whose eigenvalues have a complex type.
trait General: Dense {
    type Value: Dense;

    /// Elements of scratch for `n` rows.
    fn scratch_len(n: usize) -> usize;

    /// Decomposes `a`; an empty `vectors` skips the eigenvectors.
    fn decompose(
        a: &mut [Self],
        n: usize,
        values: &mut [Self::Value],
        vectors: &mut [Self::Value],
        scratch: &mut [Self],
    ) -> bool;
}

macro_rules! general {
    ($($t:ty => $len:path, $decompose:path;)+) => { $(
        impl General for $t {
            type Value = Complex<<$t as crate::math::factor::scalar::Scalar>::Real>;

            fn scratch_len(n: usize) -> usize {
                $len(n)
            }

            fn decompose(
                a: &mut [$t],
                n: usize,
                values: &mut [Self::Value],
                vectors: &mut [Self::Value],
                scratch: &mut [$t],
            ) -> bool {
                $decompose(a, n, values, vectors, scratch)
            }
        }
    )+ };
}

general! {
    f32 => eigen::real_scratch_len, eigen::real;
    f64 => eigen::real_scratch_len, eigen::real;
    Complex<f32> => eigen::complex_scratch_len, eigen::complex;
    Complex<f64> => eigen::complex_scratch_len, eigen::complex;
}

fn general<T: General>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let with_vectors = init.attrs().bool("compute_v")?;
    let (dtype, wanted) = (init.attrs().dtype("Tout")?, T::Value::DTYPE);
    ensure!(dtype == wanted, InvalidArgument, "Invalid output dtype {dtype}, must be {wanted}");
    AnyKernel::new(move |ctx| {
        let batch = Batch::square(ctx, 0)?;
        let (n, each) = (batch.rows, batch.each());
        let data = ctx.slice::<T>(0)?;
        let columns = if with_vectors { n } else { 0 };
        let mut e = ctx.allocate_output(0, batch.shape(&[n])?)?;
        let mut v = ctx.allocate_output(1, batch.shape(&[n, columns])?)?;
        let parts = (
            Parts::new(e.as_mut_slice::<T::Value>()?, n),
            Parts::new(v.as_mut_slice::<T::Value>()?, n * columns),
            Parts::<u8>::none(),
        );
        for_each_matrix(ctx, (batch.count, cost(&[25, n, n, n])), parts, |i, e, v, _| {
            let mut memory = scratch::<T>(ctx, each + T::scratch_len(n))?;
            let (a, scratch) = memory.as_mut_slice::<T>()?.split_at_mut(each);
            a.copy_from_slice(&data[i * each..(i + 1) * each]);
            ensure!(
                T::decompose(a, n, e, v, scratch),
                InvalidArgument,
                "Eigen decomposition was not successful. The input might not be valid."
            );
            Ok(())
        })?;
        ctx.set_output(0, e)?;
        let v = if with_vectors { v } else { unrequested_output(ctx, wanted)? };
        ctx.set_output(1, v)
    })
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, DType, Shape, Tensor};

    use super::*;
    use crate::testing::{call, pairs};

    fn matrix(values: &[f64], n: usize) -> Tensor {
        Tensor::from_slice(Shape::new(&[n, n]).unwrap(), values).unwrap()
    }

    #[test]
    fn shapes() {
        for (op, shape, expected) in [
            ("SelfAdjointEigV2", "5,3,3", "[5,3] [5,3,3]"),
            ("SelfAdjointEigV2", "?,3", "[3] [3,3]"),
            ("SelfAdjointEig", "3,3", "[4,3]"),
            ("BatchSelfAdjointEig", "2,3,3", "[2,4,3]"),
        ] {
            assert_eq!(call(op).shape(DType::Double, shape).infer(), expected, "{op} {shape}");
        }
        let got = call("Eig").shape(DType::Double, "2,2").attr("Tout", DType::Complex128).infer();
        assert_eq!(got, "[2] [2,2]");
    }

    /// Signs and order recorded from TensorFlow.
    #[test]
    fn known_pairs() {
        let close = |t: &Tensor, wanted: &[f64]| {
            let got = t.as_slice::<f64>().unwrap();
            assert!(pairs(got, wanted).all(|(a, b)| (a - b).abs() < 1e-5), "{got:?}");
        };
        let a = matrix(&[2.0, 9.0, 9.0, 1.0, 3.0, 9.0, 0.0, -1.0, 1.0], 3);
        let out = call("SelfAdjointEigV2").input(a.clone()).run_all().unwrap();
        close(&out[0], &[0.467911, 1.652704, 3.879385]);
        let vectors = [
            -0.293128, -0.844029, 0.449099, 0.449099, 0.293128, 0.84403, 0.84403, -0.449099,
            -0.293128,
        ];
        close(&out[1], &vectors);
        let stacked = call("SelfAdjointEig").input(a.clone()).run().unwrap();
        close(&stacked, &[&[0.467911, 1.652704, 3.879385], &vectors[..]].concat());
        let alone = call("SelfAdjointEigV2").attr("compute_v", false).input(a).run_all().unwrap();
        close(&alone[0], &[0.467911, 1.652704, 3.879385]);
        let general = call("Eig").attr("Tout", DType::Complex128);
        let out = general.input(matrix(&[4.0, 1.0, 2.0, 3.0], 2)).run_all().unwrap();
        let values = out[0].as_slice::<Complex<f64>>().unwrap();
        assert!((values[0].re - 5.0).abs() < 1e-12 && (values[1].re - 2.0).abs() < 1e-12);
    }

    #[test]
    fn hostile_inputs() {
        let run = |op, t: Tensor| {
            let node = call(op).input(t);
            let node = if op == "Eig" { node.attr("Tout", DType::Complex128) } else { node };
            node.run_all()
        };
        for op in ["SelfAdjointEigV2", "SelfAdjointEig", "Eig"] {
            for dims in [&[3][..], &[2, 3], &[]] {
                let t = Tensor::zeros(DType::Double, Shape::new(dims).unwrap()).unwrap();
                assert_eq!(run(op, t).unwrap_err().code(), Code::InvalidArgument);
            }
            let empty = Tensor::zeros(DType::Double, Shape::new(&[2, 0, 0]).unwrap()).unwrap();
            assert!(run(op, empty).is_ok());
        }
        let error = run("Eig", matrix(&[f64::NAN; 4], 2)).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        let out = run("SelfAdjointEigV2", matrix(&[f64::INFINITY; 4], 2)).unwrap();
        assert!(out[0].as_slice::<f64>().unwrap().iter().all(|x| x.is_nan()));
        let mismatch = call("Eig").attr("Tout", DType::Complex64).input(matrix(&[1.0; 4], 2));
        assert_eq!(mismatch.run().unwrap_err().code(), Code::InvalidArgument);
    }
}
