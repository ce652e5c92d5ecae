//! Gathers and scatters on accelerators, which several families lower to.
//!
//! An index out of range selects zeros, and its update is left out, as by TensorFlow's GPU kernels.

use thalweg_hlo::{Comparison, GatherDims, Reduction, ScatterDims, Value};
use thalweg_tensor::{DType, Result, Tensor, bail, ensure};

/// The slices of `params` along `axis` that `indices` select; both share the first `batch`
/// dimensions, `batch` being at most `axis` and the rank of the indices.
pub(crate) fn gathered(params: &Value, indices: &Value, axis: usize, batch: usize) -> Value {
    let indices = wide(indices);
    let (count, limit) = (indices.rank() - batch, params.dims()[axis]);
    let (before, after) = (&params.dims()[..axis], &params.dims()[axis + 1..]);
    let dims = [before, &indices.dims()[batch..], after].concat();
    if limit == 0 || dims.contains(&0) {
        return params.splat(params.dtype(), &dims, 0.0);
    }
    let mut sizes = params.dims().to_vec();
    (0..batch).chain([axis]).for_each(|i| sizes[i] = 1);
    let by = GatherDims {
        offset_dims: (batch..axis).chain(axis + count..dims.len()).collect(),
        collapsed_slice_dims: vec![axis],
        operand_batching_dims: (0..batch).collect(),
        start_indices_batching_dims: (0..batch).collect(),
        start_index_map: vec![axis],
        index_vector_dim: indices.rank(),
    };
    let slices = params.gather(&indices, &by, &sizes, &dims);
    let limit = indices.splat_integer(indices.dtype(), &[], limit as i128);
    let places: Vec<usize> = (0..batch).chain(axis..axis + count).collect();
    is_below(&indices, &limit).broadcast_in(&dims, &places).select(&slices, &zero(params))
}

/// The slices of `params` that the rows of `indices` select.
pub(crate) fn gathered_points(params: &Value, indices: &Value) -> Result<Value> {
    let Some((&depth, outer)) = indices.dims().split_last() else {
        bail!(InvalidArgument, "indices must be at least a vector");
    };
    ensure!(
        depth <= params.rank(),
        InvalidArgument,
        "index innermost dimension length must be <= params rank; saw: {depth} vs. {}",
        params.rank()
    );
    let inner = &params.dims()[depth..];
    let dims = [outer, inner].concat();
    ensure!(
        params.num_elements() > 0 || dims.contains(&0),
        InvalidArgument,
        "Requested more than 0 entries, but params is empty.  Params shape: {:?}",
        params.dims()
    );
    if dims.contains(&0) {
        return Ok(params.splat(params.dtype(), &dims, 0.0));
    }
    if depth == 0 {
        return Ok(params.broadcast_to(&dims));
    }
    let indices = wide(indices);
    let sizes = [&vec![1; depth][..], inner].concat();
    let by = GatherDims {
        offset_dims: (outer.len()..dims.len()).collect(),
        collapsed_slice_dims: (0..depth).collect(),
        start_index_map: (0..depth).collect(),
        index_vector_dim: outer.len(),
        ..GatherDims::default()
    };
    let slices = params.gather(&indices, &by, &sizes, &dims);
    let limits: Vec<i64> = params.dims()[..depth].iter().map(|&d| d as i64).collect();
    let limits = indices.constant(&Tensor::vector(&limits)?).convert(indices.dtype());
    let is_there = is_below(&indices, &limits).reduce(Reduction::And, &[outer.len()]);
    let places: Vec<usize> = (0..outer.len()).collect();
    Ok(is_there.broadcast_in(&dims, &places).select(&slices, &zero(params)))
}

/// `target` with `updates` combined, in their order, into the slices that the rows of `indices` select.
pub(crate) fn scattered(
    target: &Value,
    indices: &Value,
    updates: &Value,
    combine: impl FnOnce(&Value, &Value) -> Value,
) -> Result<Value> {
    let (depth, outer) = match indices.dims().split_last() {
        Some((&depth, outer)) => (depth, outer),
        None => (1, &[][..]),
    };
    let inner = target.dims().get(depth..).unwrap_or_default();
    ensure!(
        depth <= target.rank() && *updates.dims() == [outer, inner].concat(),
        InvalidArgument,
        "updates of shape {:?} do not fit indices of shape {:?} into shape {:?}",
        updates.dims(),
        indices.dims(),
        target.dims()
    );
    if updates.num_elements() == 0 {
        return Ok(target.clone());
    }
    if depth == 0 {
        // Each update is of the whole target: the only row of a larger one.
        let row = indices.splat(DType::Int32, &[outer, &[1]].concat(), 0.0);
        let rows = scattered(&target.expand(0), &row, updates, combine)?;
        return Ok(rows.reshape(target.dims()));
    }
    let indices = wide(indices).reshape(&[outer, &[depth]].concat());
    let by = ScatterDims {
        update_window_dims: (outer.len()..updates.rank()).collect(),
        inserted_window_dims: (0..depth).collect(),
        scatter_dims_to_operand_dims: (0..depth).collect(),
        index_vector_dim: outer.len(),
        ..ScatterDims::default()
    };
    Ok(target.scatter(&indices, updates, &by, false, combine))
}

/// Indices in a dtype that holds the sizes they are compared with.
pub(crate) fn wide(indices: &Value) -> Value {
    match indices.dtype() {
        DType::Int32 | DType::Int64 => indices.clone(),
        DType::UInt32 | DType::UInt64 => indices.convert(DType::Int64),
        _ => indices.convert(DType::Int32),
    }
}

fn is_below(indices: &Value, limit: &Value) -> Value {
    indices.compare_to(Comparison::GreaterEqual, 0.0).and(&indices.compare(Comparison::Less, limit))
}

fn zero(like: &Value) -> Value {
    like.scalar_like(0.0)
}
