//! QR and singular value decomposition.

use half::f16;
use num_complex::Complex;
use thalweg_graph::{OpDef, ShapeContext};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Element, PartialShape, Result};

use super::batch::{
    Batch, Dense, Parts, cost, for_each_matrix, positions, scratch, unrequested_output,
};
use super::lu_lowering::lower_qr;
use super::shapes::Matrices;
use super::spectral_gradients::{qr_grad, svd_grad};
use crate::map::{narrowed, wide_view};
use crate::math::factor::qr;
use crate::math::factor::svd::{self, Vectors};
use crate::math::widen::Widen;
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[QR.with_gradient(qr_grad), SVD.with_gradient(svd_grad), BATCH_SVD],
    kernels: &[
        cpu_kernel!("Qr", "T" in [f32, f64, f16, Complex<f32>, Complex<f64>] => qr_factors),
        cpu_kernel!("Svd", "T" in [f32, f64, Complex<f32>, Complex<f64>] => singular_values),
        KernelSpec::lowering("Qr", lower_qr),
        cpu_kernel!("BatchSvd", "T" in [f32, f64, Complex<f32>, Complex<f64>] => singular_values),
    ],
};

const QR: OpDef =
    OpDef::new("Qr", qr_shape).with_work(|c| work::per_matrix(c, |m, n| 3.0 * m * n * m.min(n)));

const SVD: OpDef =
    OpDef::new("Svd", svd_shape).with_work(|c| work::per_matrix(c, |m, n| 20.0 * m * n * m.min(n)));

const BATCH_SVD: OpDef = OpDef { name: "BatchSvd", ..SVD };

fn qr_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let matrices = Matrices::of(c, 0, "input")?;
    let (rows, columns) = (matrices.rows, matrices.columns);
    let inner = if c.attrs().bool("full_matrices")? { rows } else { matrices.shorter() };
    c.set_output(0, matrices.with(&[rows, inner]));
    c.set_output(1, matrices.with(&[inner, columns]));
    Ok(())
}

fn svd_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let matrices = Matrices::of(c, 0, "input")?;
    let (rows, columns, shorter) = (matrices.rows, matrices.columns, matrices.shorter());
    c.set_output(0, matrices.with(&[shorter]));
    if !c.attrs().bool("compute_uv")? {
        c.set_output(1, PartialShape::scalar());
        c.set_output(2, PartialShape::scalar());
        return Ok(());
    }
    let is_full = c.attrs().bool("full_matrices")?;
    c.set_output(1, matrices.with(&[rows, if is_full { rows } else { shorter }]));
    c.set_output(2, matrices.with(&[columns, if is_full { columns } else { shorter }]));
    Ok(())
}

fn qr_factors<T: Widen<Wide: Dense>>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let is_full = init.attrs().bool("full_matrices")?;
    AnyKernel::new(move |ctx| {
        let batch = Batch::of(ctx, 0)?;
        let (m, n, each) = (batch.rows, batch.columns, batch.each());
        let (k, inner) = (m.min(n), if is_full { m } else { m.min(n) });
        let input = wide_view::<T>(ctx, 0)?;
        let data = input.as_slice::<T::Wide>()?;
        let mut q = ctx.allocate(<T::Wide>::DTYPE, batch.shape(&[m, inner])?)?;
        let mut r = ctx.allocate(<T::Wide>::DTYPE, batch.shape(&[inner, n])?)?;
        let is_empty = q.num_elements() == 0 && r.num_elements() == 0;
        let parts = (
            Parts::new(q.as_mut_slice::<T::Wide>()?, m * inner),
            Parts::new(r.as_mut_slice::<T::Wide>()?, inner * n),
            Parts::<u8>::none(),
        );
        let work = cost(&[2, m, n, k]) + cost(&[2, m, inner, k]);
        // Matrices without elements may have any number of rows; no work is done for them.
        let count = if is_empty { 0 } else { batch.count };
        for_each_matrix(ctx, (count, work), parts, |i, q, r, _| {
            let mut memory = scratch::<T::Wide>(ctx, each + k + qr::scratch_len(m, n.max(m)))?;
            let (a, rest) = memory.as_mut_slice::<T::Wide>()?.split_at_mut(each);
            let (taus, scratch) = rest.split_at_mut(k);
            a.copy_from_slice(&data[i * each..(i + 1) * each]);
            qr::factor(a, (m, n), taus, scratch);
            qr::form_q((a, taus), (m, n), q, inner, scratch);
            qr::copy_r(a, n, r, inner);
            Ok(())
        })?;
        let (q, r) = (narrowed::<T>(ctx, q)?, narrowed::<T>(ctx, r)?);
        ctx.set_output(0, q)?;
        ctx.set_output(1, r)
    })
}

fn singular_values<T: Dense>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let vectors = match (attrs.bool("compute_uv")?, attrs.bool("full_matrices")?) {
        (false, _) => Vectors::None,
        (true, false) => Vectors::Thin,
        (true, true) => Vectors::Full,
    };
    AnyKernel::new(move |ctx| {
        let batch = Batch::of(ctx, 0)?;
        let (m, n, each) = (batch.rows, batch.columns, batch.each());
        let k = m.min(n);
        let (u_columns, v_columns) = svd::columns_of((m, n), vectors);
        let data = ctx.slice::<T>(0)?;
        let mut s = ctx.allocate_output(0, batch.shape(&[k])?)?;
        let mut u = ctx.allocate_output(1, batch.shape(&[m, u_columns])?)?;
        let mut v = ctx.allocate_output(2, batch.shape(&[n, v_columns])?)?;
        let is_empty = [&s, &u, &v].iter().all(|tensor| tensor.num_elements() == 0);
        let count = if is_empty { 0 } else { batch.count };
        let parts = (
            Parts::new(s.as_mut_slice::<T>()?, k),
            Parts::new(u.as_mut_slice::<T>()?, m * u_columns),
            Parts::new(v.as_mut_slice::<T>()?, n * v_columns),
        );
        for_each_matrix(ctx, (count, cost(&[20, m, n, k])), parts, |i, s, u, v| {
            let mut memory = scratch::<T>(ctx, svd::scratch_len((m, n), vectors))?;
            let real = k + svd::real_scratch_len(m, n);
            let mut real = scratch::<T::Real>(ctx, real)?;
            let (values, norms) = real.as_mut_slice::<T::Real>()?.split_at_mut(k);
            let mut order = positions(m.max(n))?;
            svd::decompose(
                &data[i * each..(i + 1) * each],
                (m, n),
                vectors,
                svd::Output { values, u, v },
                (&mut order, norms),
                memory.as_mut_slice()?,
            );
            s.iter_mut().zip(&*values).for_each(|(s, &value)| *s = T::real(value));
            Ok(())
        })?;
        if vectors == Vectors::None {
            (u, v) = (unrequested_output(ctx, T::DTYPE)?, unrequested_output(ctx, T::DTYPE)?);
        }
        ctx.set_output(0, s)?;
        ctx.set_output(1, u)?;
        ctx.set_output(2, v)
    })
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{DType, Shape, Tensor};

    use super::*;
    use crate::testing::call;

    #[test]
    fn shapes() {
        for (op, attr, shape, expected) in [
            ("Qr", "full_matrices", "5,4,3", "[5,4,4] [5,4,3]"),
            ("Qr", "", "4,3", "[4,3] [3,3]"),
            ("Qr", "", "?,3", "[?,?] [?,3]"),
            ("Svd", "", "4,3", "[3] [4,3] [3,3]"),
            ("Svd", "full_matrices", "4,3", "[3] [4,4] [3,3]"),
            ("Svd", "", "unknown", "<unknown> <unknown> <unknown>"),
        ] {
            let mut node = call(op).shape(DType::Float, shape);
            if !attr.is_empty() {
                node = node.attr("full_matrices", true);
            }
            assert_eq!(node.infer(), expected, "{op} {shape}");
        }
        assert!(call("Svd").shape(DType::Float, "3").infer().starts_with("INVALID_ARGUMENT"));
    }

    #[test]
    fn empty_matrices() {
        let empty =
            |dims: &[usize]| Tensor::zeros(DType::Float, Shape::new(dims).unwrap()).unwrap();
        for (dims, is_full, q, r) in [
            (&[2, 0][..], false, &[2, 0][..], &[0, 0][..]),
            (&[2, 0], true, &[2, 2], &[2, 0]),
            (&[0, 3], true, &[0, 0], &[0, 3]),
            (&[3, 0, 0], false, &[3, 0, 0], &[3, 0, 0]),
        ] {
            let out = call("Qr").attr("full_matrices", is_full).input(empty(dims)).run_all();
            let out = out.unwrap();
            assert_eq!((out[0].shape().dims(), out[1].shape().dims()), (q, r));
        }
        let out = call("Svd").attr("full_matrices", true).input(empty(&[0, 3])).run_all().unwrap();
        assert_eq!(
            out[2].as_slice::<f32>().unwrap(),
            [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
        );
        let out = call("Qr").attr("full_matrices", true).input(empty(&[2, 0])).run_all().unwrap();
        assert_eq!(out[0].as_slice::<f32>().unwrap(), [1.0, 0.0, 0.0, 1.0]);
        let alone = call("Svd").attr("compute_uv", false).input(empty(&[2, 2])).run_all().unwrap();
        assert_eq!(alone[0].as_slice::<f32>().unwrap(), [0.0, 0.0]);
        assert_eq!(alone[1].rank(), 0);
        // No elements, but sizes whose squares overflow.
        for dims in [&[0, 1 << 40][..], &[1 << 40, 0], &[0, 1 << 31, 1 << 31]] {
            assert!(call("Qr").input(empty(dims)).run_all().is_ok(), "{dims:?}");
            assert!(call("Svd").input(empty(dims)).run_all().is_ok(), "{dims:?}");
        }
        for op in ["Cholesky", "MatrixInverse", "SelfAdjointEigV2", "MatrixSquareRoot"] {
            assert!(call(op).input(empty(&[0, 1 << 31, 1 << 31])).run_all().is_ok(), "{op}");
        }
    }

    #[test]
    fn halves_are_computed_in_single_precision() {
        let values = [4.0, 1.0, 2.0, 3.0].map(f16::from_f64);
        let input = Tensor::from_slice(Shape::new(&[2, 2]).unwrap(), &values).unwrap();
        let out = call("Qr").input(input).run_all().unwrap();
        assert_eq!(out[1].as_slice::<f16>().unwrap()[0], f16::from_f64(-(20f64.sqrt())));
    }
}
