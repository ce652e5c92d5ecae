//! `SparseConcat`, `SparseSplit` and `SparseSlice`.

use smallvec::SmallVec;
use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, err};

use super::coo::{Coordinates, matrix, set_sparse_outputs, sparse_input_shapes, take, take_rows};
use super::gradients;
use crate::cells::{Cell, blank};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        SPARSE_CONCAT.without_gradient(),
        OpDef::new("SparseSplit", split_shape).with_work(Work::serial::<10>),
        SPARSE_SLICE.with_gradient(gradients::slice),
        OpDef::new("SparseSliceGrad", slice_grad_shape).with_work(Work::serial::<10>),
    ],
    kernels: &[
        KernelSpec { op: "SparseConcat", create: concat, ..KernelSpec::CPU },
        KernelSpec { op: "SparseSplit", create: split, ..KernelSpec::CPU },
        KernelSpec { op: "SparseSlice", create: slice, ..KernelSpec::CPU },
        KernelSpec { op: "SparseSliceGrad", create: slice_grad, ..KernelSpec::CPU },
    ],
};

const SPARSE_CONCAT: OpDef = OpDef::new("SparseConcat", concat_shape).with_work(Work::serial::<10>);

fn concat_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let n = c.num_inputs() / 3;
    let (mut count, mut rank) = (Some(0usize), PartialShape::of_rank(1));
    for i in 0..n {
        let indices = c.with_rank(i, "indices", 2)?;
        let values = c.with_rank(n + i, "values", 1)?;
        let shape = c.with_rank(2 * n + i, "shapes", 1)?;
        let own = PartialShape::new([indices.dim(0)]).merge(&values)?;
        rank = rank.merge(&PartialShape::new([indices.dim(1)]).merge(&shape)?)?;
        count = count.zip(own.dim(0)).and_then(|(a, b)| a.checked_add(b));
    }
    set_sparse_outputs(c, 0, count, rank.dim(0));
    Ok(())
}

/// The non-negative form of an axis.
fn axis(given: i64, rank: usize, name: &str) -> Result<usize> {
    let axis = if given < 0 { given.saturating_add(rank as i64) } else { given };
    usize::try_from(axis).ok().filter(|&a| a < rank).ok_or_else(|| {
        err!(InvalidArgument, "{name} must be in range [-{rank}, {rank}), got {given}")
    })
}

fn concat(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let concat_dim = init.attrs().int("concat_dim")?;
    AnyKernel::new(move |ctx| {
        let n = ctx.num_inputs() / 3;
        let mut parts = Vec::with_capacity(n);
        for i in 0..n {
            parts.push(Coordinates::of(ctx.input(i)?, ctx.input(n + i)?, ctx.input(2 * n + i)?)?);
        }
        let rank = parts[0].rank;
        let axis = axis(concat_dim, rank, "Concat dimension")?;
        let mut sizes: SmallVec<[i64; 6]> = parts[0].sizes.into();
        for (i, part) in parts.iter().enumerate().skip(1) {
            let fits = part.rank == rank
                && (0..rank).all(|d| d == axis || part.sizes[d] == parts[0].sizes[d]);
            ensure!(
                fits,
                InvalidArgument,
                "Input shapes must match outside dimension {axis}: {:?} and shape {i}, {:?}",
                parts[0].sizes,
                part.sizes
            );
            sizes[axis] = sizes[axis].wrapping_add(part.sizes[axis]);
        }
        for sizes in parts.iter().map(|p| p.sizes).chain([&sizes[..]]) {
            ensure!(Shape::from_i64(sizes).is_ok(), Internal, "{sizes:?} is not a shape");
        }
        let (indices, values) = join(ctx, &parts, axis)?;
        // The concatenated parts are in row-major order only along the first dimension.
        let shape = Tensor::vector(&sizes)?;
        let all = Coordinates::of(&indices, &values, &shape)?;
        let order = all.order(ctx)?;
        let positions = order.as_slice::<i64>()?;
        let sorted = take_rows(ctx, all, positions)?;
        let values = take(ctx, &values, positions)?;
        ctx.set_output(0, sorted)?;
        ctx.set_output(1, values)?;
        ctx.set_output(2, shape)
    })
}

/// Concatenates all coordinates, offset along `axis` by the size of the preceding parts, and all
/// values.
fn join(
    ctx: &KernelContext<'_>,
    parts: &[Coordinates<'_>],
    axis: usize,
) -> Result<(Tensor, Tensor)> {
    let (n, rank) = (parts.len(), parts[0].rank);
    let count = parts.iter().map(|p| p.count).sum();
    let mut indices = matrix(ctx, count, rank)?;
    let mut rows = indices.as_mut_slice::<i64>()?.chunks_exact_mut(rank);
    let mut offset = 0i64;
    for part in parts {
        for (i, row) in (0..part.count).zip(&mut rows) {
            row.copy_from_slice(part.row(i));
            row[axis] = row[axis].wrapping_add(offset);
        }
        offset = offset.wrapping_add(part.sizes[axis]);
    }
    let mut values = blank(ctx, ctx.output_dtype(1)?, Shape::new(&[count])?)?;
    with_cell!(values.dtype(), C => {
        let mut rest = C::view_mut(&mut values)?;
        for i in 0..n {
            let from = C::view(ctx.input(n + i)?)?;
            let (to, after) = rest.split_at_mut(from.len());
            to.clone_from_slice(from);
            rest = after;
        }
    });
    Ok((indices, values))
}

fn split_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let rank = c.with_rank(3, "shape", 1)?.dim(0);
    let n = c.num_outputs() / 3;
    for i in 0..n {
        c.set_output(i, PartialShape::new([None, rank]));
        c.set_output(n + i, PartialShape::of_rank(1));
        c.set_output(2 * n + i, PartialShape::new([rank]));
    }
    Ok(())
}

/// A dimension divided into pieces of nearly equal size, the longer ones first.
struct Pieces {
    size: i64,
    longer: i64,
}

impl Pieces {
    /// Start of piece `i`.
    fn start(&self, i: i64) -> i64 {
        i * self.size + i.min(self.longer)
    }

    /// The piece that contains `x`.
    fn holding(&self, x: i64) -> i64 {
        // If all pieces have one size, it may be any number.
        if self.longer == 0 {
            return x / self.size;
        }
        let boundary = self.longer * (self.size + 1);
        if x < boundary { x / (self.size + 1) } else { self.longer + (x - boundary) / self.size }
    }
}

fn split(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let n = init.attrs().size("num_split")?;
    AnyKernel::new(move |ctx| {
        let sparse = Coordinates::of_inputs(ctx, 1)?;
        let axis = axis(ctx.scalar_int(0, "split_dim")?, sparse.rank, "split_dim")?;
        let dim = sparse.shape()?[axis] as i64;
        ensure!(
            n as i64 <= dim,
            InvalidArgument,
            "Input num_split should be between 1 and the splitting dimension size ({dim}), got {n}"
        );
        let pieces = Pieces { size: dim / n as i64, longer: dim % n as i64 };
        for i in 0..sparse.count {
            ensure!(
                (0..dim).contains(&sparse.row(i)[axis]),
                InvalidArgument,
                "indices[{i}] = {:?} is out of bounds: need 0 <= index < {:?}",
                sparse.row(i),
                sparse.sizes
            );
        }
        let piece_of = |i: &i64| pieces.holding(sparse.row(*i as usize)[axis]);
        let order =
            sparse.order_by(ctx, |a, b| piece_of(&(a as i64)).cmp(&piece_of(&(b as i64))))?;
        let mut rest = order.as_slice::<i64>()?;
        let mut outputs = Vec::with_capacity(n);
        for piece in 0..n as i64 {
            let (positions, after) = rest.split_at(rest.partition_point(|i| piece_of(i) <= piece));
            rest = after;
            let mut indices = take_rows(ctx, sparse, positions)?;
            let start = pieces.start(piece);
            for row in indices.as_mut_slice::<i64>()?.chunks_exact_mut(sparse.rank) {
                row[axis] -= start;
            }
            let mut sizes: SmallVec<[i64; 6]> = sparse.sizes.into();
            sizes[axis] = pieces.start(piece + 1) - start;
            let values = take(ctx, ctx.input(2)?, positions)?;
            outputs.push((indices, values, Tensor::vector(&sizes)?));
        }
        for (i, (indices, values, shape)) in outputs.into_iter().enumerate() {
            ctx.set_output(i, indices)?;
            ctx.set_output(n + i, values)?;
            ctx.set_output(2 * n + i, shape)?;
        }
        Ok(())
    })
}

const SPARSE_SLICE: OpDef = OpDef::new("SparseSlice", slice_shape).with_work(Work::serial::<10>);

fn slice_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (_, mut rank) = sparse_input_shapes(c, 0)?;
    for (i, name) in [(3, "start"), (4, "size")] {
        rank = PartialShape::new([rank]).merge(&c.with_rank(i, name, 1)?)?.dim(0);
    }
    set_sparse_outputs(c, 0, None, rank);
    Ok(())
}

/// Input `i`, a vector of `rank` integers.
fn vector<'a>(ctx: &'a KernelContext<'_>, i: usize, rank: usize, name: &str) -> Result<&'a [i64]> {
    let tensor = ctx.input(i)?;
    ensure!(
        tensor.shape()[..] == [rank],
        InvalidArgument,
        "{name} should be a vector of {rank} elements but received shape {}",
        tensor.shape()
    );
    tensor.as_slice()
}

fn slice(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let sparse = Coordinates::of_inputs(ctx, 0)?;
        sparse.shape()?;
        let start = vector(ctx, 3, sparse.rank, "start")?;
        let size = vector(ctx, 4, sparse.rank, "size")?;
        let mut sizes = SmallVec::<[i64; 6]>::new();
        for (d, &dim) in sparse.sizes.iter().enumerate() {
            let left = (i128::from(dim) - i128::from(start[d])).max(0);
            let kept = if left == 0 { 0 } else { left.min(size[d].into()) };
            // No larger than `size[d]`.
            sizes.push(kept as i64);
        }
        Shape::from_i64(&sizes)?;
        let is_inside = |i: usize| {
            sparse.row(i).iter().enumerate().all(|(d, &x)| {
                x >= start[d] && i128::from(x) < i128::from(start[d]) + i128::from(size[d])
            })
        };
        let count = (0..sparse.count).filter(|&i| is_inside(i)).count();
        let mut positions = ctx.allocate(DType::Int64, Shape::new(&[count])?)?;
        let inside = (0..sparse.count).filter(|&i| is_inside(i));
        positions.as_mut_slice::<i64>()?.iter_mut().zip(inside).for_each(|(p, i)| *p = i as i64);
        let positions = positions.as_slice::<i64>()?;
        let mut indices = take_rows(ctx, sparse, positions)?;
        for row in indices.as_mut_slice::<i64>()?.chunks_exact_mut(sparse.rank.max(1)) {
            row.iter_mut().zip(start).for_each(|(x, s)| *x = x.wrapping_sub(*s));
        }
        let values = take(ctx, ctx.input(1)?, positions)?;
        ctx.set_output(0, indices)?;
        ctx.set_output(1, values)?;
        ctx.set_output(2, Tensor::vector(&sizes)?)
    })
}

fn slice_grad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let indices = c.with_rank(1, "input_indices", 2)?;
    c.set_output(0, PartialShape::new([indices.dim(0)]));
    Ok(())
}

fn slice_grad(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let grad = ctx.input(0)?;
        let from = Coordinates::of_matrix(ctx.input(1)?, "input_indices")?;
        let to = Coordinates::of_matrix(ctx.input(3)?, "output_indices")?;
        let start = vector(ctx, 2, from.rank, "input_start")?;
        ensure!(
            to.rank == from.rank && to.count <= from.count,
            InvalidArgument,
            "output_indices, {}, cannot be part of input_indices, {}",
            ctx.input(3)?.shape(),
            ctx.input(1)?.shape()
        );
        ensure!(
            grad.shape()[..] == [to.count],
            InvalidArgument,
            "backprop_val_grad must have shape [{}], has {}",
            to.count,
            grad.shape()
        );
        let mut output = ctx.zeros(grad.dtype(), Shape::new(&[from.count])?)?;
        let mut found = 0;
        with_cell!(grad.dtype(), C => {
            let (grad, target) = (C::view(grad)?, C::view_mut(&mut output)?);
            for (i, slot) in target.iter_mut().enumerate() {
                if found == to.count {
                    break;
                }
                let moved = to.row(found).iter().zip(start).map(|(x, s)| x.wrapping_add(*s));
                if moved.eq(from.row(i).iter().copied()) {
                    slot.clone_from(&grad[found]);
                    found += 1;
                }
            }
        });
        if found < to.count {
            bail!(
                Internal,
                "Elements of backprop_val_grad aren't all propagated. Num elements: {}, used: {found}",
                to.count
            );
        }
        ctx.set_output(0, output)
    })
}
