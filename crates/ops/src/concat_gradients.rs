//! Gradients of concatenation and splitting.

use thalweg_graph::{Adjoint, GradientContext, IndexedSlices, Output};
use thalweg_tensor::{DType, Result};

use crate::gradient_shapes::{element, flat, rank_of};

/// Gradient of `Concat`, whose first input is the axis.
pub(crate) fn concat(g: &mut GradientContext<'_>) -> Result<()> {
    split_adjoint(g, 0, 1)
}

/// Gradient of `ConcatV2`, whose last input is the axis.
pub(crate) fn concat_v2(g: &mut GradientContext<'_>) -> Result<()> {
    let last = g.num_inputs() - 1;
    split_adjoint(g, last, 0)
}

/// Splits the adjoint among the values, which begin at input `first`.
fn split_adjoint(g: &mut GradientContext<'_>, axis_input: usize, first: usize) -> Result<()> {
    let values: Vec<usize> = (first..g.num_inputs()).filter(|&i| i != axis_input).collect();
    let axis = g.input(axis_input);
    let sizes = sizes_along(g, axis, &values)?;
    match (g.adjoint(0), known_axis(g, axis, values[0])) {
        (Some(Adjoint::Sparse(rows)), Some(0)) => divide_rows(g, rows, sizes, &values),
        (Some(Adjoint::Sparse(rows)), Some(_)) => {
            let parts = split(g, rows.values, sizes, axis, values.len())?;
            for (&i, part) in values.iter().zip(parts) {
                let dense_shape = g.shape_of(g.input(i))?;
                g.set_rows(i, IndexedSlices { values: part, indices: rows.indices, dense_shape });
            }
            Ok(())
        }
        _ => {
            let grad = g.grad(0)?;
            let parts = split(g, grad, sizes, axis, values.len())?;
            values.iter().zip(parts).try_for_each(|(&i, part)| g.set(i, part))
        }
    }
}

fn split(
    g: &mut GradientContext<'_>,
    x: Output,
    sizes: Output,
    axis: Output,
    count: usize,
) -> Result<Vec<Output>> {
    let axis = g.cast(axis, DType::Int32)?;
    g.op("SplitV").inputs(&[x, sizes, axis]).attr("num_split", count as i64).build_all()
}

/// The non-negative axis, if its value is known.
fn known_axis(g: &GradientContext<'_>, axis: Output, value: usize) -> Option<i64> {
    let axis = g.value(axis)?.elements.first().copied().flatten()?;
    if axis >= 0 {
        return Some(axis);
    }
    g.shape(g.input(value)).rank().map(|rank| axis + rank as i64)
}

/// The sizes of these inputs along the axis, as a vector of int32.
fn sizes_along(g: &mut GradientContext<'_>, axis: Output, values: &[usize]) -> Result<Output> {
    let known = known_axis(g, axis, values[0]).and_then(|axis| {
        let size = |&i: &usize| {
            let shape = g.shape(g.input(i));
            let size = shape.dims()?.get(usize::try_from(axis).ok()?).copied().flatten()?;
            i32::try_from(size).ok()
        };
        values.iter().map(size).collect::<Option<Vec<i32>>>()
    });
    if let Some(sizes) = known {
        return g.ints(&sizes);
    }
    let (rank, axis) = (rank_of(g, g.input(values[0]))?, g.cast(axis, DType::Int32)?);
    let (axis, front) = (g.add("FloorMod", &[axis, rank])?, g.int(0)?);
    let mut sizes = Vec::with_capacity(values.len());
    for &i in values {
        let shape = g.shape_of(g.input(i))?;
        sizes.push(g.add("GatherV2", &[shape, axis, front])?);
    }
    g.op("Pack").inputs(&sizes).build()
}

/// Along the first axis, each value gets the rows of the `IndexedSlices` in its range.
fn divide_rows(
    g: &mut GradientContext<'_>,
    rows: IndexedSlices,
    sizes: Output,
    values: &[usize],
) -> Result<()> {
    let dtype = g.dtype(rows.indices);
    let (sizes, axis) = (g.cast(sizes, dtype)?, g.int(0)?);
    let mut start = g.number(dtype, 0.0)?;
    for (k, &i) in values.iter().enumerate() {
        let size = element(g, sizes, k as i32)?;
        let end = g.add("AddV2", &[start, size])?;
        let is_above = g.add("GreaterEqual", &[rows.indices, start])?;
        let is_below = g.add("Less", &[rows.indices, end])?;
        let is_inside = g.add("LogicalAnd", &[is_above, is_below])?;
        let found = g.add("Where", &[is_inside])?;
        let found = flat(g, found)?;
        let indices = g.add("GatherV2", &[rows.indices, found, axis])?;
        let indices = g.add("Sub", &[indices, start])?;
        let part = g.add("GatherV2", &[rows.values, found, axis])?;
        let dense_shape = g.shape_of(g.input(i))?;
        g.set_rows(i, IndexedSlices { values: part, indices, dense_shape });
        start = end;
    }
    Ok(())
}

/// Gradient of `Pack`.
pub(crate) fn pack(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, count) = (g.grad(0)?, g.num_inputs());
    let parts = g.op_like("Unpack", &["axis"]).input(grad).attr("num", count as i64).build_all()?;
    parts.into_iter().enumerate().try_for_each(|(i, part)| g.set(i, part))
}

/// Gradient of `Unpack`.
pub(crate) fn unpack(g: &mut GradientContext<'_>) -> Result<()> {
    let grads = all_grads(g)?;
    let adjoint = g.op_like("Pack", &["axis"]).inputs(&grads).build()?;
    g.set(0, adjoint)
}

/// Gradient of `Split`.
pub(crate) fn split_evenly(g: &mut GradientContext<'_>) -> Result<()> {
    join(g, 1, 0)
}

/// Gradient of `SplitV`.
pub(crate) fn split_v(g: &mut GradientContext<'_>) -> Result<()> {
    join(g, 0, 2)
}

fn join(g: &mut GradientContext<'_>, value: usize, axis_input: usize) -> Result<()> {
    let (grads, axis) = (all_grads(g)?, g.input(axis_input));
    // `Concat` needs at least two inputs.
    let adjoint = match grads[..] {
        [only] => only,
        _ => g.op("ConcatV2").inputs(&grads).input(axis).build()?,
    };
    g.set(value, adjoint)
}

/// The adjoints of all outputs, with zeros for missing ones.
fn all_grads(g: &mut GradientContext<'_>) -> Result<Vec<Output>> {
    (0..g.num_outputs()).map(|i| g.grad(i)).collect()
}
