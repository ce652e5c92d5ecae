//! Lowering of gathers, `OneHot` and `Tile`.

use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::Lowering;
use thalweg_tensor::{Result, ensure};

use crate::gather::{
    check_order, checked_axis, checked_batch_dims, checked_depth, has_lenient_policy, one_hot_axis,
};
use crate::rows_lowering::{gathered, gathered_points, wide};

pub(crate) fn gather(l: &mut Lowering<'_>, axis: i64, batch_dims: i64) -> Result<()> {
    let (params, indices) = (l.input(0)?, l.input(1)?);
    let slices = gather_of(&params, &indices, axis, batch_dims)?;
    l.set(0, slices)
}

/// Slices of `params` along `axis`, as `GatherV2` checks and gathers them.
pub(crate) fn gather_of(
    params: &Value,
    indices: &Value,
    axis: i64,
    batch_dims: i64,
) -> Result<Value> {
    ensure!(params.rank() > 0, InvalidArgument, "params must be at least 1 dimensional");
    let axis = checked_axis(axis, params.rank())?;
    let batch = checked_batch_dims(batch_dims, indices.rank())?;
    check_order(batch, axis)?;
    ensure!(
        params.dims()[..batch] == indices.dims()[..batch],
        InvalidArgument,
        "params.shape {:?} and indices.shape {:?} should have equal batch dimensions",
        params.dims(),
        indices.dims()
    );
    Ok(gathered(params, indices, axis, batch))
}

pub(crate) fn gather_nd(l: &mut Lowering<'_>) -> Result<()> {
    has_lenient_policy(&l.attrs())?;
    let (params, indices) = (l.input(0)?, l.input(1)?);
    ensure!(params.rank() >= 1, InvalidArgument, "params must be at least a vector");
    l.set(0, gathered_points(&params, &indices)?)
}

pub(crate) fn one_hot(l: &mut Lowering<'_>) -> Result<()> {
    let (indices, on, off) = (wide(&l.input(0)?), l.input(2)?, l.input(3)?);
    let axis = one_hot_axis(l.attrs().int("axis")?, indices.rank())?;
    let mut dims = indices.dims().to_vec();
    dims.insert(axis, checked_depth(l.int(1)?)?);
    let places: Vec<usize> = (0..dims.len()).filter(|&i| i != axis).collect();
    let position = indices.iota(indices.dtype(), &dims, axis);
    let is_on = position.compare(Comparison::Equal, &indices.broadcast_in(&dims, &places));
    l.set(0, is_on.select(&on, &off))
}

pub(crate) fn tile(l: &mut Lowering<'_>) -> Result<()> {
    let (x, dims) = (l.input(0)?, l.output_dims(0)?);
    let multiples = l.ints(1)?;
    // Each dimension preceded by one that repeats it.
    let split: Vec<usize> = multiples
        .iter()
        .zip(x.dims())
        .flat_map(|(&multiple, &size)| [multiple.max(0) as usize, size])
        .collect();
    let places: Vec<usize> = (0..x.rank()).map(|i| 2 * i + 1).collect();
    l.set(0, x.broadcast_in(&split, &places).reshape(&dims))
}
