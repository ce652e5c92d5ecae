//! `AddN`: the sum of tensors of one shape.

use half::{bf16, f16};
use num_complex::Complex;
use thalweg_graph::{GradientContext, OpDef, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{DType, Element, Result, Tensor, bail, ensure};

use crate::lists::{self, values::add_variants};
use crate::lowering::{check_same_shapes, set_narrow, wide};
use crate::math::fold::{Fold, Sum, loops};
use crate::math::widen::Widen;
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[ADD_N, ACCUMULATE_NV2],
    kernels: &[
        cpu_kernel!("AddN", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64,
            Complex<f32>, Complex<f64>] => add_n),
        KernelSpec {
            op: "AddN",
            constraints: &[("T", &[DType::Variant])],
            create: |_| AnyKernel::new(add_variants),
            ..KernelSpec::CPU
        },
        // TensorFlow's graph rewriting replaces this op by a variable and additions to it.
        cpu_kernel!("AccumulateNV2", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32,
            u64, Complex<f32>, Complex<f64>] => add_n),
        KernelSpec::lowering("AddN", lower_add_n),
        KernelSpec::beside_regions("AddN", lists::lowering::add_n, |_| {
            AnyKernel::new(add_variants)
        })
        .for_dtypes(&[("T", &[DType::Variant])]),
        KernelSpec::lowering("AccumulateNV2", lower_add_n),
    ],
};

const ADD_N: OpDef = OpDef::new("AddN", shape::merged)
    .with_work(|c| Work::scaled(c, c.inputs() as f64 - 1.0))
    .with_gradient(add_n_grad);

const ACCUMULATE_NV2: OpDef = OpDef { name: "AccumulateNV2", shape: shape::from_attr, ..ADD_N };

/// Each term gets the adjoint of the sum, dense or as `IndexedSlices`.
fn add_n_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let Some(adjoint) = g.adjoint(0) else { return Ok(()) };
    (0..g.num_inputs()).try_for_each(|i| g.set_adjoint(i, adjoint))
}

/// Elements of each input that are added at a time.
const BLOCK: usize = 2048;

fn lower_add_n(l: &mut Lowering<'_>) -> Result<()> {
    check_same_shapes(l, 0)?;
    let mut sum = wide(&l.input(0)?);
    for term in l.inputs_from(1)? {
        sum = sum + wide(&term);
    }
    set_narrow(l, 0, &sum)
}

fn add_n<T: Widen>(_: &KernelInit<'_>) -> Result<AnyKernel>
where
    Sum: Fold<T::Wide>,
{
    AnyKernel::new(add_all::<T>)
}

fn add_all<T: Widen>(ctx: &mut KernelContext<'_>) -> Result<()>
where
    Sum: Fold<T::Wide>,
{
    let shape = ctx.input(0)?.shape().clone();
    for i in 1..ctx.num_inputs() {
        let other = ctx.input(i)?.shape();
        ensure!(
            shape == *other,
            InvalidArgument,
            "Inputs to {} must have the same size and shape. Input 0: {shape} != input {i}: {other}",
            ctx.node().op.name
        );
    }
    if ctx.num_inputs() == 1 {
        let only = ctx.take_input(0)?;
        return ctx.set_output(0, only);
    }
    let (mut out, taken) = ctx.forward_input_or_allocate(&[0], T::DTYPE, &shape)?;
    let first_given = usize::from(taken.is_some());
    let mut given = smallvec::SmallVec::<[&[T]; 8]>::new();
    for i in first_given..ctx.num_inputs() {
        given.push(ctx.slice::<T>(i)?);
    }
    let add = loops::<T::Wide, Sum>().merge;
    let nanoseconds = 0.2 * given.len() as f64;
    for_each_rows(ctx, out.as_mut_slice::<T>()?, 1, nanoseconds, |first, out| {
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            let range = first + i * BLOCK..first + i * BLOCK + out.len();
            let mut given = given.iter();
            if let (None, Some(first)) = (taken, given.clone().next()) {
                out.copy_from_slice(&first[range.clone()]);
                given.next();
            }
            T::with_wide_mut(out, |sum| {
                for term in given {
                    T::with_wide(&term[range.clone()], |term| add(sum, term));
                }
            });
        }
    })?;
    drop(given);
    ctx.set_output(0, out)
}

/// The sum of two tensors of one dtype and shape, for all dtypes of `AddN`.
pub(crate) fn sum_of_two(ctx: &KernelContext<'_>, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    ensure!(
        a.shape() == b.shape() && a.dtype() == b.dtype(),
        InvalidArgument,
        "Trying to add two tensors with incompatible element shapes. One is {} and the other is {}",
        a.shape(),
        b.shape()
    );
    let mut sum = a.deep_copy(Some(ctx.budget()))?;
    macro_rules! add {
        ($($t:ty),+) => {
            match a.dtype() {
                $(<$t as Element>::DTYPE => add_to::<$t>(ctx, &mut sum, b)?,)+
                other => bail!(InvalidArgument, "Trying to add unsupported dtype {other}"),
            }
        };
    }
    add!(f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, Complex<f32>, Complex<f64>);
    Ok(sum)
}

fn add_to<T: Widen>(ctx: &KernelContext<'_>, sum: &mut Tensor, term: &Tensor) -> Result<()>
where
    Sum: Fold<T::Wide>,
{
    let (sum, term) = (sum.as_mut_slice::<T>()?, term.as_slice::<T>()?);
    let add = loops::<T::Wide, Sum>().merge;
    for_each_rows(ctx, sum, 1, 0.4, |first, out| {
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            let start = first + i * BLOCK;
            let term = &term[start..start + out.len()];
            T::with_wide_mut(out, |out| T::with_wide(term, |term| add(out, term)));
        }
    })
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, DType, Tensor};

    use crate::testing::call;

    #[test]
    fn shapes() {
        let three = |a, b, c| {
            let call = call("AddN").shape(DType::Float, a).shape(DType::Float, b);
            call.shape(DType::Float, c).attr("N", 3i64).infer()
        };
        assert_eq!(three("2,?", "unknown", "?,3"), "[2,3]");
        assert!(three("2", "2", "3").starts_with("INVALID_ARGUMENT"));
    }

    #[test]
    fn sums() {
        let run = |lists: &[&[i32]]| {
            let mut call = call("AddN").attr("N", lists.len() as i64);
            for list in lists {
                call = call.input(Tensor::vector(list).unwrap());
            }
            call.run()
        };
        let got = run(&[&[1, 2], &[10, i32::MAX], &[100, 1]]).unwrap();
        assert_eq!(got.as_slice::<i32>().unwrap(), [111, i32::MIN + 2]);
        assert_eq!(run(&[&[5]]).unwrap().as_slice::<i32>().unwrap(), [5]);
        assert_eq!(run(&[&[5], &[1, 2]]).unwrap_err().code(), Code::InvalidArgument);
    }
}
