//! Gradients of gathers: scatters.

use thalweg_graph::{GradientContext, IndexedSlices, Output};
use thalweg_tensor::{DType, PartialShape, Result, err};

use crate::gradient_shapes::{flat, joined, part, rank_of, reshaped_like, shape_as};

/// Gradient of `Gather`: `IndexedSlices`.
pub(crate) fn gather(g: &mut GradientContext<'_>) -> Result<()> {
    let (params, indices) = (g.input(0), g.input(1));
    let (known, shape) = (g.shape(params), g.shape_of(params)?);
    set_rows(g, &known, shape, indices)
}

/// Gradient of `GatherV2`: `IndexedSlices` along axis 0, else a dense sum.
pub(crate) fn gather_v2(g: &mut GradientContext<'_>) -> Result<()> {
    let (params, indices, axis) = (g.input(0), g.input(1), g.input(2));
    let (known, shape) = (g.shape(params), g.shape_of(params)?);
    let known_axis = g.value(axis).and_then(|v| v.elements.first().copied().flatten());
    if known_axis == Some(0) {
        return set_rows(g, &known, shape, indices);
    }
    let batch_dims = BatchDims::of(g, indices)?;
    let sizes = match known_axis.and_then(|axis| known_sizes(g, &known, axis, &batch_dims)) {
        Some(sizes) => Sizes::constant(g, sizes)?,
        None => {
            let (rank, axis) = (rank_of(g, params)?, g.cast(axis, DType::Int32)?);
            let axis = g.add("FloorMod", &[axis, rank])?;
            Sizes::of(g, shape, axis, batch_dims.count)?
        }
    };
    let adjoint = sum_gathered(g, &sizes, indices, &batch_dims)?;
    let adjoint = reshaped_like(g, adjoint, params)?;
    g.set(0, adjoint)
}

/// Gradient of `ResourceGather`.
pub(crate) fn resource_gather(g: &mut GradientContext<'_>) -> Result<()> {
    let (handle, indices) = (g.input(0), g.input(1));
    let shape = g.add("VariableShape", &[handle])?;
    let batch_dims = BatchDims::of(g, indices)?;
    if batch_dims.known == Some(0) {
        return set_rows(g, &PartialShape::unknown(), shape, indices);
    }
    let sizes = Sizes::of(g, shape, batch_dims.count, batch_dims.count)?;
    let adjoint = sum_gathered(g, &sizes, indices, &batch_dims)?;
    let adjoint = g.add("Reshape", &[adjoint, shape])?;
    g.set(0, adjoint)
}

/// Number of batch dimensions: as a number if it is known, and as a scalar int32.
struct BatchDims {
    known: Option<usize>,
    count: Output,
}

impl BatchDims {
    fn of(g: &mut GradientContext<'_>, indices: Output) -> Result<BatchDims> {
        let given = g.attrs().int("batch_dims")?;
        let bad = || err!(InvalidArgument, "batch_dims must not be {given}");
        let given = i32::try_from(given).map_err(|_| bad())?;
        let rank = g.shape(indices).rank().map(|rank| rank as i32);
        let known = if given < 0 { rank.map(|rank| given + rank) } else { Some(given) };
        let Some(known) = known else {
            // A negative `batch_dims` counts from the rank of the indices.
            let (rank, given) = (rank_of(g, indices)?, g.int(given)?);
            return Ok(BatchDims { known: None, count: g.add("AddV2", &[rank, given])? });
        };
        let count = g.int(known)?;
        Ok(BatchDims { known: Some(usize::try_from(known).map_err(|_| bad())?), count })
    }
}

/// Sets the adjoint of the first input to `IndexedSlices`.
fn set_rows(
    g: &mut GradientContext<'_>,
    known: &PartialShape,
    dense_shape: Output,
    indices: Output,
) -> Result<()> {
    let grad = g.grad(0)?;
    let count = g.shape(indices).to_shape().and_then(|s| i32::try_from(s.num_elements()).ok());
    let tail: Option<Vec<i32>> = known
        .dims()
        .and_then(|dims| dims.get(1..)?.iter().map(|&d| i32::try_from(d?).ok()).collect());
    let shape = match (count, tail) {
        (Some(count), Some(tail)) => {
            let dims: Vec<i32> = std::iter::once(count).chain(tail).collect();
            g.ints(&dims)?
        }
        _ => {
            let count = g.add("Size", &[indices])?;
            let (count, tail) = (flat(g, count)?, part(g, dense_shape, 1, None)?);
            joined(g, &[count, tail])?
        }
    };
    let (values, indices) = (g.add("Reshape", &[grad, shape])?, flat(g, indices)?);
    g.set_rows(0, IndexedSlices { values, indices, dense_shape });
    Ok(())
}

/// Products of dimension sizes of params and of the indices, each a scalar int32. Params are
/// `[batch, outer, rows, inner]`, indices `[batch, picked]`, the output `[batch, outer, picked,
/// inner]`.
struct Sizes {
    batch: Output,
    outer: Output,
    rows: Output,
    inner: Output,
    picked: Output,
}

/// The sizes, if all are known.
fn known_sizes(
    g: &GradientContext<'_>,
    params: &PartialShape,
    axis: i64,
    batch_dims: &BatchDims,
) -> Option<[i32; 5]> {
    let (params, indices) = (params.to_shape()?, g.shape(g.input(1)).to_shape()?);
    let axis = if axis < 0 { axis + params.rank() as i64 } else { axis };
    let (axis, batch_dims) = (usize::try_from(axis).ok()?, batch_dims.known?);
    let product = |dims: Option<&[usize]>| i32::try_from(dims?.iter().product::<usize>()).ok();
    Some([
        product(params.get(..batch_dims))?,
        product(params.get(batch_dims..axis))?,
        product(params.get(axis..=axis))?,
        product(params.get(axis + 1..))?,
        product(indices.get(batch_dims..))?,
    ])
}

impl Sizes {
    fn constant(g: &mut GradientContext<'_>, sizes: [i32; 5]) -> Result<Sizes> {
        let [batch, outer, rows, inner, picked] = sizes;
        Ok(Sizes {
            batch: g.int(batch)?,
            outer: g.int(outer)?,
            rows: g.int(rows)?,
            inner: g.int(inner)?,
            picked: g.int(picked)?,
        })
    }

    /// The sizes from the shape of params; `axis` is a non-negative scalar int32.
    fn of(
        g: &mut GradientContext<'_>,
        params: Output,
        axis: Output,
        batch_dims: Output,
    ) -> Result<Sizes> {
        let (zero, one) = (g.int(0)?, g.int(1)?);
        let (after, rank) = (g.add("AddV2", &[axis, one])?, g.add("Size", &[params])?);
        let indices = g.shape_of(g.input(1))?;
        let of_indices = g.add("Size", &[indices])?;
        Ok(Sizes {
            batch: product(g, params, zero, batch_dims)?,
            outer: product(g, params, batch_dims, axis)?,
            rows: product(g, params, axis, after)?,
            inner: product(g, params, after, rank)?,
            picked: product(g, indices, batch_dims, of_indices)?,
        })
    }
}

/// The product of `vector[begin..end]`.
fn product(
    g: &mut GradientContext<'_>,
    vector: Output,
    begin: Output,
    end: Output,
) -> Result<Output> {
    let size = g.add("Sub", &[end, begin])?;
    let (begin, size) = (flat(g, begin)?, flat(g, size)?);
    let part = g.add("Slice", &[vector, begin, size])?;
    let axis = g.int(0)?;
    g.add("Prod", &[part, axis])
}

/// The adjoint of params, as `[batch, outer, rows, inner]`: gathered adjoints are summed into their
/// rows.
fn sum_gathered(
    g: &mut GradientContext<'_>,
    sizes: &Sizes,
    indices: Output,
    batch_dims: &BatchDims,
) -> Result<Output> {
    let &Sizes { batch, outer, rows, inner, picked } = sizes;
    let grad = g.grad(0)?;
    let shape = g.op("Pack").inputs(&[batch, outer, picked, inner]).build()?;
    let grad = g.add("Reshape", &[grad, shape])?;
    let swap = g.ints(&[0, 2, 1, 3])?;
    let grad = g.add("Transpose", &[grad, swap])?;
    let (entries, count) = (g.add("Mul", &[batch, picked])?, g.add("Mul", &[batch, rows])?);
    let shape = g.op("Pack").inputs(&[entries, outer, inner]).build()?;
    let grad = g.add("Reshape", &[grad, shape])?;
    let ids = flat(g, indices)?;
    let ids = if batch_dims.known == Some(0) { ids } else { rows_in_batch(g, ids, sizes)? };
    let summed = g.add("UnsortedSegmentSum", &[grad, ids, count])?;
    let shape = g.op("Pack").inputs(&[batch, rows, outer, inner]).build()?;
    let summed = g.add("Reshape", &[summed, shape])?;
    g.add("Transpose", &[summed, swap])
}

/// Segment ids that are distinct between batches: `ids`, a vector, plus the offset of each batch.
fn rows_in_batch(g: &mut GradientContext<'_>, ids: Output, sizes: &Sizes) -> Result<Output> {
    // 16-bit ids cover the rows of one batch, but not of all.
    let is_short = g.dtype(ids) == DType::Int16;
    let ids = if is_short { g.cast(ids, DType::Int32)? } else { ids };
    let (zero, one) = (g.int(0)?, g.int(1)?);
    let offsets = g.add("Range", &[zero, sizes.batch, one])?;
    let offsets = g.add("Mul", &[offsets, sizes.rows])?;
    let (offsets, last) = (g.cast(offsets, g.dtype(ids))?, g.int(1)?);
    let offsets = g.add("ExpandDims", &[offsets, last])?;
    let shape = g.op("Pack").inputs(&[sizes.batch, sizes.picked]).build()?;
    let ids = g.add("Reshape", &[ids, shape])?;
    let ids = g.add("AddV2", &[ids, offsets])?;
    flat(g, ids)
}

/// Gradient of `GatherNd`.
pub(crate) fn gather_nd(g: &mut GradientContext<'_>) -> Result<()> {
    let (params, indices) = (g.input(0), g.input(1));
    let shape = shape_as(g, params, g.dtype(indices))?;
    set_points(g, shape, indices)
}

/// Gradient of `ResourceGatherNd`.
pub(crate) fn resource_gather_nd(g: &mut GradientContext<'_>) -> Result<()> {
    let (handle, indices) = (g.input(0), g.input(1));
    let dtype = g.dtype(indices);
    let shape = g.op("VariableShape").input(handle).attr("out_type", dtype).build()?;
    set_points(g, shape, indices)
}

/// Sets the adjoint of the first input: `ScatterNd` of the points `indices`, or `IndexedSlices` if
/// they have one coordinate.
fn set_points(g: &mut GradientContext<'_>, dense_shape: Output, indices: Output) -> Result<()> {
    let grad = g.grad(0)?;
    if matches!(g.shape(indices).dims(), Some([_, Some(1)])) {
        let indices = flat(g, indices)?;
        g.set_rows(0, IndexedSlices { values: grad, indices, dense_shape });
        return Ok(());
    }
    let node = g.op_like("ScatterNd", &["bad_indices_policy"]);
    let adjoint = node.inputs(&[indices, grad, dense_shape]).build()?;
    g.set(0, adjoint)
}

/// Gradient of `Tile`: sums the copies.
pub(crate) fn tile(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, multiples) = (g.grad(0)?, g.input(0), g.input(1));
    let sizes = shape_as(g, x, g.dtype(multiples))?;
    // Splits every dimension in two, the first of which counts the copies.
    let pairs = g.op("Pack").inputs(&[multiples, sizes]).attr("axis", 1i64).build()?;
    let pairs = flat(g, pairs)?;
    let apart = g.add("Reshape", &[grad, pairs])?;
    let copies = match g.shape(x).rank() {
        Some(rank) => {
            let axes: Vec<i32> = (0..rank as i32).map(|i| 2 * i).collect();
            g.ints(&axes)?
        }
        None => {
            let (zero, end, two) = (g.int(0)?, g.add("Size", &[pairs])?, g.int(2)?);
            g.add("Range", &[zero, end, two])?
        }
    };
    let summed = g.add("Sum", &[apart, copies])?;
    let adjoint = reshaped_like(g, summed, x)?;
    g.set(0, adjoint)
}
