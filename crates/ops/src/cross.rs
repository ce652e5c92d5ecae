//! `Cross`: the cross product of 3-vectors.

use half::{bf16, f16};
use thalweg_graph::{GradientContext, OpDef, ShapeContext, Work, shape};
use thalweg_hlo::Value;
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{Element, Result, ensure};

use crate::lowering::{check_same_shapes, rounded_as, set_narrow, wide};
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("Cross", cross_shape)
        .with_work(Work::per_output::<3>)
        .with_gradient(cross_grad)],
    kernels: &[
        cpu_kernel!("Cross", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32,
            u64] => cross),
        KernelSpec::lowering("Cross", lower_cross),
    ],
};

fn cross_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, a, b) = (g.grad(0)?, g.input(0), g.input(1));
    let (of_a, of_b) = (g.add("Cross", &[b, grad])?, g.add("Cross", &[grad, a])?);
    g.set(0, of_a)?;
    g.set(1, of_b)
}

fn cross_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank_at_least(0, "a", 1)?;
    c.with_rank_at_least(1, "b", 1)?;
    shape::merged(c)?;
    let last = [0, 1].map(|i| c.input(i).dims().and_then(|dims| *dims.last()?));
    ensure!(
        last.iter().all(|d| d.is_none_or(|d| d == 3)),
        InvalidArgument,
        "vectors must have 3 elements, but are {} and {}",
        c.input(0),
        c.input(1)
    );
    Ok(())
}

fn lower_cross(l: &mut Lowering<'_>) -> Result<()> {
    check_same_shapes(l, 0)?;
    let dtype = l.input(0)?.dtype();
    let (a, b) = (wide(&l.input(0)?), wide(&l.input(1)?));
    ensure!(
        a.dims().last() == Some(&3),
        FailedPrecondition,
        "Cross-products are only defined for 3-element vectors, got {:?}",
        a.dims()
    );
    let last = a.rank() - 1;
    let at = |x: &Value, i: usize| x.slice_dim(last, i % 3, i % 3 + 1);
    // As the CPU kernel does: each product is rounded.
    let product = |i: usize, j: usize| rounded_as(&(at(&a, i) * at(&b, j)), dtype);
    let [x, y, z] = [0, 1, 2].map(|i| product(i + 1, i + 2) - product(i + 2, i + 1));
    set_narrow(l, 0, &x.concatenate(&[y, z], last))
}

/// Element types of determinants.
trait Entry: Element {
    /// `a * d - b * c`, every step rounded to this type.
    fn determinant(a: Self, b: Self, c: Self, d: Self) -> Self;
}

macro_rules! entries {
    ($($t:ty: $times:path, $minus:path;)+) => { $(
        impl Entry for $t {
            #[inline(always)]
            fn determinant(a: Self, b: Self, c: Self, d: Self) -> Self {
                $minus($times(a, d), $times(b, c))
            }
        }
    )+ };
}

entries! {
    f32: std::ops::Mul::mul, std::ops::Sub::sub;
    f64: std::ops::Mul::mul, std::ops::Sub::sub;
    f16: std::ops::Mul::mul, std::ops::Sub::sub;
    bf16: std::ops::Mul::mul, std::ops::Sub::sub;
    i8: i8::wrapping_mul, i8::wrapping_sub;
    i16: i16::wrapping_mul, i16::wrapping_sub;
    i32: i32::wrapping_mul, i32::wrapping_sub;
    i64: i64::wrapping_mul, i64::wrapping_sub;
    u8: u8::wrapping_mul, u8::wrapping_sub;
    u16: u16::wrapping_mul, u16::wrapping_sub;
    u32: u32::wrapping_mul, u32::wrapping_sub;
    u64: u64::wrapping_mul, u64::wrapping_sub;
}

fn cross<T: Entry>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let (a, b) = (ctx.input(0)?.shape(), ctx.input(1)?.shape());
        ensure!(a == b, InvalidArgument, "Both inputs must be of same shape: {a} vs. {b}");
        ensure!(a.rank() >= 1, InvalidArgument, "Input must be at least 1D, is {a}");
        ensure!(
            a.last() == Some(&3),
            FailedPrecondition,
            "Cross-products are only defined for 3-element vectors, got {a}"
        );
        let mut out = ctx.allocate_output(0, a.clone())?;
        let (a, b) = (ctx.slice::<T>(0)?, ctx.slice::<T>(1)?);
        for_each_rows(ctx, out.as_mut_slice::<T>()?, 3, 3.0, |first, out| {
            let (a, b) = (&a[3 * first..], &b[3 * first..]);
            let vectors = a.chunks_exact(3).zip(b.chunks_exact(3));
            for (out, (a, b)) in out.chunks_exact_mut(3).zip(vectors) {
                out[0] = T::determinant(a[1], a[2], b[1], b[2]);
                out[1] = T::determinant(a[2], a[0], b[2], b[0]);
                out[2] = T::determinant(a[0], a[1], b[0], b[1]);
            }
        })?;
        ctx.set_output(0, out)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::call;
    use thalweg_tensor::{Code, DType, Tensor};

    #[test]
    fn products() {
        let run = |a: Tensor, b: Tensor| call("Cross").input(a).input(b).run();
        let vector = |v: [u8; 3]| Tensor::vector(&v).unwrap();
        let got = run(vector([1, 2, 3]), vector([4, 5, 6])).unwrap();
        assert_eq!(got.as_slice::<u8>().unwrap(), [253, 6, 253]);
        let rounded = |v: [f32; 3]| Tensor::vector(&v.map(bf16::from_f32)).unwrap();
        let got = run(rounded([1.1, 2.2, 3.3]), rounded([4.4, 5.5, 6.6])).unwrap();
        let got: Vec<f32> = got.as_slice::<bf16>().unwrap().iter().map(|x| x.to_f32()).collect();
        assert_eq!(got, [-3.625, 7.25, -3.625]);
        let pair = || Tensor::vector(&[1f32, 2.0]).unwrap();
        assert_eq!(run(pair(), pair()).unwrap_err().code(), Code::FailedPrecondition);
        let scalar = || Tensor::scalar(1f32);
        assert_eq!(run(scalar(), scalar()).unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(
            call("Cross").shape(DType::Float, "?,3").shape(DType::Float, "2,?").infer(),
            "[2,3]"
        );
    }
}
