//! `SparseFillEmptyRows` and `RaggedFillEmptyRows`.

use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{
    Complex32, Complex64, DType, PartialShape, Result, Shape, Tensor, bf16, ensure, f16,
};

use super::coo::{Coordinates, matrix, sparse_input_shapes};
use super::gradients;
use crate::cells::{Cell, blank};
use crate::number::Number;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        SPARSE_FILL_EMPTY_ROWS.with_gradient(gradients::fill_empty_rows),
        OpDef::new("SparseFillEmptyRowsGrad", grad_shape),
        RAGGED_FILL_EMPTY_ROWS.with_gradient(gradients::fill_empty_rows),
        OpDef::new("RaggedFillEmptyRowsGrad", grad_shape),
    ],
    kernels: &[
        KernelSpec {
            op: "SparseFillEmptyRows",
            host_inputs: &["dense_shape"],
            create: fill_sparse,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "RaggedFillEmptyRows",
            host_inputs: &["nrows"],
            create: fill_ragged,
            ..KernelSpec::CPU
        },
        cpu_kernel!("SparseFillEmptyRowsGrad", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64
        ] => grad),
        cpu_kernel!("RaggedFillEmptyRowsGrad", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64
        ] => grad),
    ],
};

const SPARSE_FILL_EMPTY_ROWS: OpDef =
    OpDef::new("SparseFillEmptyRows", fill_sparse_shape).with_work(Work::serial::<10>);

fn fill_sparse_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (count, rank) = sparse_input_shapes(c, 0)?;
    c.with_rank(3, "default_value", 0)?;
    let rows = c.shape_from_input(2)?.dim(0);
    c.set_output(0, PartialShape::new([None, rank]));
    c.set_output(1, PartialShape::of_rank(1));
    c.set_output(2, PartialShape::new([rows]));
    c.set_output(3, PartialShape::new([count]));
    Ok(())
}

/// Destination of the values when empty rows get a default value.
struct Filled {
    /// For each row the index of its first value in the result, followed by the end of the last
    /// row.
    starts: Tensor,
    is_empty: Tensor,
    /// For each value its index in the result.
    positions: Tensor,
    is_unchanged: bool,
}

/// Counts the values of each row. `row(i)` is the row of value `i`.
fn count_rows(
    ctx: &KernelContext<'_>,
    count: usize,
    rows: usize,
    row: impl Fn(usize) -> i64,
) -> Result<Filled> {
    let mut starts = ctx.zeros(DType::Int64, Shape::new(&[rows.saturating_add(1)])?)?;
    let mut is_empty = ctx.allocate(DType::Bool, Shape::new(&[rows])?)?;
    let mut positions = ctx.allocate(DType::Int64, Shape::new(&[count])?)?;
    let next = starts.as_mut_slice::<i64>()?;
    let mut is_unchanged = true;
    for i in 0..count {
        let r = row(i);
        ensure!(
            (0..rows as i64).contains(&r),
            InvalidArgument,
            "indices({i}, 0) is invalid: {r} is not in [0, {rows})"
        );
        is_unchanged &= i == 0 || row(i - 1) <= r;
        next[r as usize] += 1;
    }
    let mut total = 0;
    for (slot, empty) in next.iter_mut().zip(is_empty.as_mut_slice::<bool>()?) {
        *empty = *slot == 0;
        is_unchanged &= !*empty;
        total += std::mem::replace(slot, total).max(1);
    }
    next[rows] = total;
    for (i, place) in positions.as_mut_slice::<i64>()?.iter_mut().enumerate() {
        let start = &mut next[row(i) as usize];
        *place = *start;
        *start += 1;
    }
    // Each start was advanced to the end of its row's values, and is moved back here.
    for i in 0..count {
        next[row(i) as usize] -= 1;
    }
    Ok(Filled { starts, is_empty, positions, is_unchanged })
}

/// The values at their new indices, and the default in empty rows.
fn place_values(
    ctx: &KernelContext<'_>,
    filled: &Filled,
    values: &Tensor,
    default: &Tensor,
) -> Result<Tensor> {
    let starts = filled.starts.as_slice::<i64>()?;
    let total = starts.last().map_or(0, |&t| t as usize);
    let mut output = blank(ctx, values.dtype(), Shape::new(&[total])?)?;
    with_cell!(values.dtype(), C => {
        let (from, default) = (C::view(values)?, &C::view(default)?[0]);
        let target = C::view_mut(&mut output)?;
        for (value, &place) in from.iter().zip(filled.positions.as_slice::<i64>()?) {
            target[place as usize].clone_from(value);
        }
        for (&start, &empty) in starts.iter().zip(filled.is_empty.as_slice::<bool>()?) {
            if empty {
                target[start as usize].clone_from(default);
            }
        }
    });
    Ok(output)
}

/// The coordinates at their new indices, and zeros for the default of each empty row.
fn place_indices(
    ctx: &KernelContext<'_>,
    filled: &Filled,
    from: Coordinates<'_>,
) -> Result<Tensor> {
    let (starts, rank) = (filled.starts.as_slice::<i64>()?, from.rank);
    let total = starts.last().map_or(0, |&t| t as usize);
    let mut output = matrix(ctx, total, rank)?;
    let rows = output.as_mut_slice::<i64>()?;
    for (i, &place) in filled.positions.as_slice::<i64>()?.iter().enumerate() {
        rows[place as usize * rank..][..rank].copy_from_slice(from.row(i));
    }
    for (r, &empty) in filled.is_empty.as_slice::<bool>()?.iter().enumerate() {
        if empty {
            let row = &mut rows[starts[r] as usize * rank..][..rank];
            row.fill(0);
            row[0] = r as i64;
        }
    }
    Ok(output)
}

fn fill_sparse(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let sparse = Coordinates::of_inputs(ctx, 0)?;
        ensure!(sparse.rank > 0, InvalidArgument, "Dense shape cannot be empty.");
        ensure!(
            ctx.input(3)?.rank() == 0,
            InvalidArgument,
            "default_value must be a scalar, saw: {}",
            ctx.input(3)?.shape()
        );
        let rows = sparse.sizes[0];
        ensure!(
            rows > 0 || (rows == 0 && sparse.count == 0),
            InvalidArgument,
            "Received SparseTensor with dense_shape[0] = {rows} but indices.shape[0] = {}",
            sparse.count
        );
        let filled = count_rows(ctx, sparse.count, rows as usize, |i| sparse.row(i)[0])?;
        let (indices, values) = if filled.is_unchanged {
            (ctx.input(0)?.clone(), ctx.input(1)?.clone())
        } else {
            let values = place_values(ctx, &filled, ctx.input(1)?, ctx.input(3)?)?;
            (place_indices(ctx, &filled, sparse)?, values)
        };
        ctx.set_output(0, indices)?;
        ctx.set_output(1, values)?;
        ctx.set_output(2, filled.is_empty)?;
        ctx.set_output(3, filled.positions)
    })
}

const RAGGED_FILL_EMPTY_ROWS: OpDef =
    OpDef::new("RaggedFillEmptyRows", fill_ragged_shape).with_work(Work::serial::<10>);

fn fill_ragged_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let ids = c.with_rank(0, "value_rowids", 1)?;
    let values = c.with_rank(1, "values", 1)?;
    c.with_rank(2, "nrows", 0)?;
    c.with_rank(3, "default_value", 0)?;
    let count = ids.merge(&values)?;
    let rows = c.partial_value(2).and_then(|v| v.first());
    c.set_output(0, PartialShape::of_rank(1));
    c.set_output(1, PartialShape::of_rank(1));
    c.set_output(2, PartialShape::new([rows.and_then(|n| usize::try_from(n).ok())]));
    c.set_output(3, count);
    Ok(())
}

fn fill_ragged(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let (ids, values) = (ctx.input(0)?, ctx.input(1)?);
        ensure!(
            ids.rank() == 1 && values.shape() == ids.shape(),
            InvalidArgument,
            "value_rowids and values must be vectors of one length, saw: {} and {}",
            ids.shape(),
            values.shape()
        );
        ensure!(
            ctx.input(3)?.rank() == 0,
            InvalidArgument,
            "default_value must be a scalar, saw: {}",
            ctx.input(3)?.shape()
        );
        let rows = ctx.scalar_int(2, "nrows")?;
        let count = ids.num_elements();
        ensure!(
            rows > 0 || (rows == 0 && count == 0),
            InvalidArgument,
            "Received {count} values in nrows = {rows} rows"
        );
        let rowids = Coordinates { all: ids.as_slice()?, count, rank: 1, sizes: &[] };
        let filled = count_rows(ctx, count, rows as usize, |i| rowids.all[i])?;
        let (ids, values) = if rows == 0 {
            // As in TensorFlow, the result for zero rows is a matrix.
            (matrix(ctx, 0, 1)?, values.clone())
        } else if filled.is_unchanged {
            (ids.clone(), values.clone())
        } else {
            let placed = place_indices(ctx, &filled, rowids)?;
            let total = placed.num_elements();
            let values = place_values(ctx, &filled, values, ctx.input(3)?)?;
            (placed.reshaped(Shape::new(&[total])?)?, values)
        };
        ctx.set_output(0, ids)?;
        ctx.set_output(1, values)?;
        ctx.set_output(2, filled.is_empty)?;
        ctx.set_output(3, filled.positions)
    })
}

fn grad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let map = c.with_rank(0, "reverse_index_map", 1)?;
    c.with_rank(1, "grad_values", 1)?;
    c.set_output(0, map);
    c.set_output(1, PartialShape::scalar());
    Ok(())
}

fn grad<T: Number>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let (map, grad) = (ctx.input(0)?, ctx.input(1)?);
        ensure!(
            map.rank() == 1 && grad.rank() == 1,
            InvalidArgument,
            "reverse_index_map and grad_values must be vectors, saw: {} and {}",
            map.shape(),
            grad.shape()
        );
        let (positions, from) = (map.as_slice::<i64>()?, grad.as_slice::<T>()?);
        let mut output = ctx.allocate_output(0, map.shape().clone())?;
        let mut is_value = ctx.zeros(DType::Bool, grad.shape().clone())?;
        let is_value = is_value.as_mut_slice::<bool>()?;
        for (i, (slot, &place)) in output.as_mut_slice::<T>()?.iter_mut().zip(positions).enumerate()
        {
            ensure!(
                (0..from.len() as i64).contains(&place),
                InvalidArgument,
                "Elements in reverse index must be in [0, {}) but reverse_index_map({i}) = {place}",
                from.len()
            );
            *slot = from[place as usize];
            is_value[place as usize] = true;
        }
        let defaults = from.iter().zip(&*is_value).filter(|(_, is_value)| !**is_value);
        let total = defaults.fold(T::default(), |total, (x, _)| total.plus(*x));
        ctx.set_output(0, output)?;
        ctx.set_output(1, Tensor::scalar(total))
    })
}
