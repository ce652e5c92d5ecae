//! `Transpose`: permutation of dimensions.

use smallvec::SmallVec;
use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{GradientContext, OpDef, PartialValue, ValueContext, Work};
use thalweg_hlo::Value;
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{
    Complex32, Complex64, DType, PartialShape, RANK_MAX, Result, Shape, Tensor, bail, ensure, err,
};

use crate::cells::blank;
use crate::reshape::ints_output;
use crate::reshape_lowering;
use crate::split::for_each_rows;
use crate::strided::{StridedCopy, strides};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        TRANSPOSE.with_gradient(transpose_grad),
        CONJUGATE_TRANSPOSE.with_gradient(transpose_grad),
        INVERT_PERMUTATION.without_gradient(),
    ],
    kernels: &[
        KernelSpec {
            op: "Transpose",
            host_inputs: &["perm"],
            create: transpose,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "ConjugateTranspose",
            host_inputs: &["perm"],
            create: conjugate_transpose,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "InvertPermutation",
            create: invert_permutation,
            is_cheap: true,
            ..KernelSpec::CPU
        },
        KernelSpec::lowering("Transpose", |l| lower_transpose(l, Value::clone))
            .with_host_inputs(&["perm"]),
        KernelSpec::lowering("ConjugateTranspose", |l| lower_transpose(l, Value::conjugate))
            .with_host_inputs(&["perm"]),
        KernelSpec::lowering("InvertPermutation", |l| {
            let inverse = inverted(&l.ints(0)?)?;
            l.set_host(0, reshape_lowering::ints(l.output_dtype(0), &inverse, false)?)
        })
        .with_host_inputs(&["x"]),
    ],
};

const TRANSPOSE: OpDef = OpDef::new("Transpose", transpose_shape).with_work(Work::moves);
const CONJUGATE_TRANSPOSE: OpDef =
    OpDef::new("ConjugateTranspose", transpose_shape).with_work(Work::moves);

fn transpose_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let perm = c.partial_value(1).and_then(|v| v.known());
    let perm_len = perm.as_ref().map(Vec::len).or(c.with_rank(1, "perm", 1)?.dim(0));
    let Some(rank) = c.input(0).rank().or(perm_len) else { return Ok(()) };
    ensure!(
        perm_len.is_none_or(|n| n == rank) && rank <= RANK_MAX,
        InvalidArgument,
        "transpose expects a vector of size {rank}. But input(1) is a vector of size {}",
        perm_len.unwrap_or(0)
    );
    let shape = match perm {
        Some(perm) => {
            let axes = permutation(&perm, rank)?;
            PartialShape::new(axes.iter().map(|&axis| c.input(0).dim(axis)))
        }
        None => PartialShape::of_rank(rank),
    };
    c.set_output(0, shape);
    Ok(())
}

/// The axes in `perm`, each exactly once; negative ones count from the end.
fn permutation(perm: &[i64], rank: usize) -> Result<SmallVec<[usize; 8]>> {
    let mut axes: SmallVec<[usize; 8]> = SmallVec::new();
    let mut is_there: SmallVec<[bool; 8]> = smallvec::smallvec![false; rank];
    for &axis in perm {
        let from_end = if axis < 0 { axis.wrapping_add(rank as i64) } else { axis };
        let found = usize::try_from(from_end)
            .ok()
            .filter(|&a| a < rank)
            .ok_or_else(|| err!(InvalidArgument, "{axis} is out of range [0 .. {rank})"))?;
        is_there[found] = true;
        axes.push(found);
    }
    if let Some(missing) = is_there.iter().position(|there| !there) {
        let shown: Vec<String> = perm.iter().map(ToString::to_string).collect();
        bail!(InvalidArgument, "{missing} is missing from {{{}}}.", shown.join(","));
    }
    Ok(axes)
}

fn transpose(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let output = transposed(ctx)?;
        ctx.set_output(0, output)
    })
}

fn transposed(ctx: &mut KernelContext<'_>) -> Result<Tensor> {
    let (input, perm) = (ctx.input(0)?, ctx.input(1)?);
    let rank = input.rank();
    ensure!(perm.rank() == 1, InvalidArgument, "perm must be rank 1, got shape {}", perm.shape());
    ensure!(
        perm.num_elements() == rank,
        InvalidArgument,
        "transpose expects a vector of size {rank}. But input(1) is a vector of size {}",
        perm.num_elements()
    );
    let axes = permutation(&ctx.ints(1, "perm")?, rank)?;
    let dims: SmallVec<[usize; 8]> = axes.iter().map(|&a| input.shape()[a]).collect();
    let shape = Shape::new(&dims)?;
    // Moving dimensions of size 1 does not move elements.
    if axes.iter().filter(|&&a| input.shape()[a] != 1).is_sorted() {
        return ctx.take_input(0)?.reshaped(shape);
    }
    let from = strides(input.shape());
    let source: SmallVec<[isize; 8]> = axes.iter().map(|&a| from[a] as isize).collect();
    let mut output = blank(ctx, input.dtype(), shape)?;
    StridedCopy::filling(&dims, &source, 0).run(ctx, input, &mut output)?;
    Ok(output)
}

fn conjugate_transpose(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.output_dtype(0);
    AnyKernel::new(move |ctx| {
        let mut output = transposed(ctx)?;
        if dtype.is_complex() {
            output.make_unique(Some(ctx.budget()))?;
        }
        match dtype {
            DType::Complex64 => {
                for_each_rows(ctx, output.as_mut_slice::<Complex32>()?, 1, 0.5, |_, part| {
                    part.iter_mut().for_each(|x| *x = x.conj());
                })?;
            }
            DType::Complex128 => {
                for_each_rows(ctx, output.as_mut_slice::<Complex64>()?, 1, 1.0, |_, part| {
                    part.iter_mut().for_each(|x| *x = x.conj());
                })?;
            }
            _ => {}
        }
        ctx.set_output(0, output)
    })
}

fn lower_transpose(l: &mut Lowering<'_>, finish: fn(&Value) -> Value) -> Result<()> {
    let x = l.input(0)?;
    let axes = permutation(&l.ints(1)?, x.rank())?;
    l.set(0, finish(&x.transpose(&axes)))
}

const INVERT_PERMUTATION: OpDef = OpDef::new("InvertPermutation", invert_permutation_shape)
    .with_work(Work::moves)
    .with_value(invert_permutation_value);

fn invert_permutation_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.with_rank(0, "x", 1)?;
    c.set_output(0, shape);
    Ok(())
}

fn invert_permutation_value(c: &mut ValueContext<'_>) -> Option<PartialValue> {
    let inverse = inverted(&c.input(0)?.known()?).ok()?;
    Some(PartialValue::vector(inverse.into_iter().map(Some)))
}

fn inverted(perm: &[i64]) -> Result<SmallVec<[i64; 8]>> {
    let mut inverse: SmallVec<[i64; 8]> = SmallVec::new();
    inverse
        .try_reserve(perm.len())
        .map_err(|_| err!(ResourceExhausted, "out of memory for {} indices", perm.len()))?;
    inverse.resize(perm.len(), -1);
    for (i, &x) in perm.iter().enumerate() {
        let slot = usize::try_from(x).ok().and_then(|x| inverse.get_mut(x));
        let Some(slot) = slot else {
            bail!(InvalidArgument, "{x} is not between 0 and {}", perm.len());
        };
        ensure!(*slot == -1, InvalidArgument, "{x} is duplicated in the input.");
        *slot = i as i64;
    }
    Ok(inverse)
}

fn invert_permutation(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.output_dtype(0);
    AnyKernel::new(move |ctx| {
        ensure!(
            ctx.input(0)?.rank() == 1,
            InvalidArgument,
            "invert_permutation expects a 1D vector."
        );
        let inverse = inverted(&ctx.ints(0, "x")?)?;
        let output = ints_output(ctx, dtype, &inverse, false)?;
        ctx.set_output(0, output)
    })
}

/// The gradient is a transpose by the inverse permutation.
fn transpose_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, op, perm) = (g.grad(0)?, g.node().op.name.clone(), g.input(1));
    let back = g.add("InvertPermutation", &[perm])?;
    let adjoint = g.add(&op, &[grad, back])?;
    g.set(0, adjoint)
}
