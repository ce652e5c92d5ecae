//! `SparseReorder` and `SparseReshape`.

use smallvec::SmallVec;
use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{PartialShape, RANK_MAX, Result, Tensor, ensure, err};

use super::coo::{Coordinates, matrix, sparse_input_shapes, strides, take, take_rows};
use super::gradients;
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        SPARSE_REORDER.with_gradient(gradients::reorder),
        OpDef::new("SparseReshape", reshape_shape).with_work(Work::serial::<10>),
    ],
    kernels: &[
        KernelSpec { op: "SparseReorder", create: reorder, ..KernelSpec::CPU },
        KernelSpec { op: "SparseReshape", create: reshape, ..KernelSpec::CPU },
    ],
};

const SPARSE_REORDER: OpDef =
    OpDef::new("SparseReorder", reorder_shape).with_work(Work::serial::<20>);

fn reorder_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (count, rank) = sparse_input_shapes(c, 0)?;
    c.set_output(0, PartialShape::new([count, rank]));
    c.set_output(1, PartialShape::new([count]));
    Ok(())
}

fn reorder(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let sparse = Coordinates::of_inputs(ctx, 0)?;
        if (1..sparse.count).all(|i| sparse.row(i - 1) <= sparse.row(i)) {
            let (indices, values) = (ctx.take_input(0)?, ctx.take_input(1)?);
            ctx.set_output(0, indices)?;
            return ctx.set_output(1, values);
        }
        let order = sparse.order(ctx)?;
        let positions = order.as_slice::<i64>()?;
        let indices = take_rows(ctx, sparse, positions)?;
        let values = take(ctx, ctx.input(1)?, positions)?;
        ctx.set_output(0, indices)?;
        ctx.set_output(1, values)
    })
}

fn reshape_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let indices = c.with_rank(0, "input_indices", 2)?;
    c.with_rank(1, "input_shape", 1)?;
    let rank = c.with_rank(2, "new_shape", 1)?.dim(0);
    c.set_output(0, PartialShape::new([indices.dim(0), rank]));
    c.set_output(1, PartialShape::new([rank]));
    Ok(())
}

/// The product of `sizes`.
fn product(sizes: &[i64]) -> Result<i64> {
    let mut product = 1i64;
    for &size in sizes {
        product = size.checked_mul(product).filter(|_| size >= 0).ok_or_else(|| {
            err!(InvalidArgument, "{sizes:?} is not a shape: too large, or below 0")
        })?;
    }
    Ok(product)
}

/// The new shape with its -1, if any, computed.
fn complete(old: &[i64], new: &[i64]) -> Result<SmallVec<[i64; 6]>> {
    let total = product(old)?;
    let mut sizes: SmallVec<[i64; 6]> = new.into();
    let mut missing = sizes.iter().enumerate().filter(|(_, s)| **s == -1).map(|(i, _)| i);
    let (unknown, other) = (missing.next(), missing.next());
    if let (Some(i), Some(j)) = (unknown, other) {
        return Err(err!(
            InvalidArgument,
            "only one output dimension may be -1, not both {i} and {j}"
        ));
    }
    if let Some(i) = unknown {
        sizes[i] = 1;
        let known = product(&sizes)?;
        ensure!(
            known > 0,
            InvalidArgument,
            "reshape cannot infer the missing input size for an empty tensor unless all specified \
             input sizes are non-zero"
        );
        sizes[i] = total / known;
        ensure!(
            sizes[i] * known == total,
            InvalidArgument,
            "Input to SparseReshape is a SparseTensor with {total} dense values, but the \
             requested shape requires a multiple of {known}. input_shape={old:?} new_shape={new:?}"
        );
    }
    let asked = product(&sizes)?;
    ensure!(
        asked == total,
        InvalidArgument,
        "Input to reshape is a tensor with {total} dense values, but the requested shape has \
         {asked}. input_shape={old:?} new_shape={new:?}"
    );
    Ok(sizes)
}

fn reshape(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let (old, new) = (ctx.input(1)?, ctx.input(2)?);
        let from = Coordinates::of_matrix(ctx.input(0)?, "Input indices")?;
        for (shape, name) in [(old, "Input shape"), (new, "Target shape")] {
            ensure!(
                shape.rank() == 1,
                InvalidArgument,
                "{name} should be a vector but received shape {}",
                shape.shape()
            );
        }
        ensure!(
            from.rank == old.num_elements(),
            InvalidArgument,
            "Input tensor rank must match input shape length: {} and {}",
            from.rank,
            old.num_elements()
        );
        ensure!(
            new.num_elements() <= RANK_MAX,
            InvalidArgument,
            "the new shape has {} dimensions",
            new.num_elements()
        );
        let (old, new) = (old.as_slice::<i64>()?, new.as_slice::<i64>()?);
        let sizes = complete(old, new)?;
        let shape = Tensor::vector(&sizes)?;
        if old == &sizes[..] {
            let indices = ctx.take_input(0)?;
            ctx.set_output(0, indices)?;
            return ctx.set_output(1, shape);
        }
        ensure!(
            from.count == 0 || !old.contains(&0),
            InvalidArgument,
            "there are {} values in an empty shape {old:?}",
            from.count
        );
        let indices = renumber(ctx, from, &strides(old), &strides(&sizes))?;
        ctx.set_output(0, indices)?;
        ctx.set_output(1, shape)
    })
}

/// The coordinates of the same row-major offset in a shape with other strides.
fn renumber(
    ctx: &thalweg_kernel::KernelContext<'_>,
    from: Coordinates<'_>,
    old: &[i64],
    new: &[i64],
) -> Result<Tensor> {
    let mut output = matrix(ctx, from.count, new.len())?;
    let cost = 3.0 * (old.len() + 4 * new.len()) as f64;
    for_each_rows(ctx, output.as_mut_slice::<i64>()?, new.len(), cost, |first, part| {
        for (n, row) in part.chunks_exact_mut(new.len()).enumerate() {
            let terms = from.row(first + n).iter().zip(old).map(|(x, s)| x.wrapping_mul(*s));
            let mut place = terms.fold(0, i64::wrapping_add);
            for (x, &stride) in row.iter_mut().zip(new) {
                // Strides of a shape without zeros are not zero.
                *x = place.checked_div(stride).unwrap_or(0);
                place = place.checked_rem(stride).unwrap_or(0);
            }
        }
    })?;
    Ok(output)
}
