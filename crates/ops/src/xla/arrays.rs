//! XLA's ops of shapes, slices and sorting, and those that speak to its compiler.

use thalweg_graph::{OpDef, ShapeContext, Work, shape};
use thalweg_hlo::{Comparison, GatherDims, Value};
use thalweg_kernel::{Family, KernelSpec, Lowering};
use thalweg_tensor::{DType, PartialShape, Result, Tensor, bail, ensure, err};

use super::numbers::Numbers;

use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("XlaBroadcastHelper", shape::unknown).with_work(Work::none),
        OpDef::new("XlaDynamicSlice", slice_shape).with_work(Work::copies_outputs),
        OpDef::new("XlaDynamicUpdateSlice", shape::from_first_input),
        OpDef::new("XlaGather", shape::unknown).with_work(Work::copies_outputs),
        OpDef::new("XlaKeyValueSort", each_unchanged).with_work(work::sort),
        OpDef::new("XlaOptimizationBarrier", each_unchanged).with_work(Work::none),
        OpDef::new("XlaPad", pad_shape).with_work(Work::moves),
        OpDef::new("XlaReducePrecision", shape::unchanged),
        OpDef::new("XlaRemoveDynamicDimensionSize", shape::from_first_input).with_work(Work::none),
        OpDef::new("XlaReplicaId", shape::scalar).with_work(Work::none),
        OpDef::new("XlaSetBound", shape::from_first_input).with_work(Work::none),
        OpDef::new("XlaSharding", shape::unchanged).with_work(Work::none),
        OpDef::new("XlaSort", shape::unchanged).with_work(work::sort),
    ],
    kernels: &[
        KernelSpec::lowering("XlaBroadcastHelper", lower_broadcast)
            .with_host_inputs(&["broadcast_dims"]),
        KernelSpec::lowering("XlaDynamicSlice", lower_slice).with_host_inputs(&["size_indices"]),
        KernelSpec::lowering("XlaDynamicUpdateSlice", lower_update),
        KernelSpec::lowering("XlaGather", lower_gather).with_host_inputs(&["slice_sizes"]),
        KernelSpec::lowering("XlaKeyValueSort", lower_sort),
        KernelSpec::lowering("XlaOptimizationBarrier", lower_barrier),
        KernelSpec::lowering("XlaPad", lower_pad).with_host_inputs(&[
            "padding_low",
            "padding_high",
            "padding_interior",
        ]),
        KernelSpec::lowering("XlaReducePrecision", lower_precision),
        KernelSpec::lowering("XlaRemoveDynamicDimensionSize", |l| l.forward(0, 0)),
        KernelSpec::lowering("XlaReplicaId", |l| l.set_host(0, Tensor::scalar(0i32))).of_shapes(),
        KernelSpec::lowering("XlaSetBound", |l| l.forward(0, 0)),
        KernelSpec::lowering("XlaSharding", |l| l.forward(0, 0)),
        KernelSpec::lowering("XlaSort", lower_sort),
    ],
};

fn each_unchanged(c: &mut ShapeContext<'_>) -> Result<()> {
    (0..c.num_outputs()).for_each(|i| c.set_output(i, c.input(i).clone()));
    Ok(())
}

fn slice_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.shape_from_input(2)?;
    c.set_output(0, shape);
    Ok(())
}

fn pad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let numbers = |i: usize| c.constant(i).and_then(|t| integers(&t));
    let (Some(dims), Some(low), Some(high), Some(interior)) =
        (c.input(0).dims(), numbers(2), numbers(3), numbers(4))
    else {
        return Ok(());
    };
    let rank = dims.len();
    for (name, list) in [("low", &low), ("high", &high), ("interior", &interior)] {
        ensure!(
            list.len() == rank,
            InvalidArgument,
            "padding_{name} must have {rank} numbers, has {}",
            list.len()
        );
    }
    let dim = |i: usize| -> Result<Option<usize>> {
        let Some(dim) = dims[i] else { return Ok(None) };
        let total = i64::try_from(dim).ok().and_then(|dim| {
            let inside = (dim - 1).max(0).checked_mul(interior[i])?.checked_add(dim)?;
            inside.checked_add(low[i])?.checked_add(high[i])
        });
        let total = total.and_then(|total| usize::try_from(total).ok());
        total
            .map(Some)
            .ok_or_else(|| err!(InvalidArgument, "padding removes more than dimension {i}"))
    };
    let dims = (0..rank).map(dim).collect::<Result<Vec<_>>>()?;
    c.set_output(0, PartialShape::new(dims));
    Ok(())
}

fn integers(tensor: &Tensor) -> Option<Vec<i64>> {
    match tensor.dtype() {
        DType::Int32 => Some(tensor.as_slice::<i32>().ok()?.iter().map(|&x| x.into()).collect()),
        DType::Int64 => Some(tensor.as_slice::<i64>().ok()?.to_vec()),
        _ => None,
    }
}

/// Input `i` in host memory as sizes.
pub(super) fn sizes(l: &Lowering<'_>, i: usize) -> Result<Vec<usize>> {
    let size = |x: i64| {
        usize::try_from(x)
            .map_err(|_| err!(InvalidArgument, "input {i} of {} has {x}", l.node().op.name))
    };
    l.ints(i)?.into_iter().map(size).collect()
}

/// Makes operands of different ranks equal in rank: the smaller one is broadcast.
fn lower_broadcast(l: &mut Lowering<'_>) -> Result<()> {
    let (lhs, rhs, places) = (l.input(0)?, l.input(1)?, sizes(l, 2)?);
    if lhs.rank() == rhs.rank() || places.is_empty() {
        ensure!(
            places.is_empty() && (lhs.rank() == rhs.rank() || lhs.rank() * rhs.rank() == 0),
            InvalidArgument,
            "If broadcast_dims is empty, both arguments must have equal rank; argument shapes, or at \
             least one of the arguments must be a scalar: {:?} and {:?}",
            lhs.dims(),
            rhs.dims()
        );
        l.set(0, lhs)?;
        return l.set(1, rhs);
    }
    let (small, large) = if lhs.rank() < rhs.rank() { (&lhs, &rhs) } else { (&rhs, &lhs) };
    ensure!(
        places.len() == small.rank() && places.iter().all(|&place| place < large.rank()),
        InvalidArgument,
        "broadcast_dims {places:?} do not place {:?} in {:?}",
        small.dims(),
        large.dims()
    );
    let mut dims = vec![1; large.rank()];
    for (&place, &dim) in places.iter().zip(small.dims()) {
        dims[place] = dim;
    }
    let is_increasing = places.windows(2).all(|pair| pair[0] < pair[1]);
    ensure!(is_increasing, Unimplemented, "broadcast_dims {places:?} are not in order");
    let broadcast = small.reshape(&dims);
    let both = if lhs.rank() < rhs.rank() { (broadcast, rhs) } else { (lhs, broadcast) };
    l.set(0, both.0)?;
    l.set(1, both.1)
}

/// The elements of a vector of indices as scalars.
fn starts(l: &Lowering<'_>, i: usize, rank: usize) -> Result<Vec<Value>> {
    let indices = l.input(i)?;
    ensure!(
        indices.dims() == [rank],
        InvalidArgument,
        "{} needs {rank} indices, got shape {:?}",
        l.node().op.name,
        indices.dims()
    );
    Ok((0..rank).map(|d| indices.slice_dim(0, d, d + 1).reshape(&[])).collect())
}

fn lower_slice(l: &mut Lowering<'_>) -> Result<()> {
    let (x, sizes) = (l.input(0)?, sizes(l, 2)?);
    let fits = sizes.len() == x.rank() && sizes.iter().zip(x.dims()).all(|(s, d)| s <= d);
    ensure!(fits, InvalidArgument, "slices of size {sizes:?} do not fit {:?}", x.dims());
    let starts = starts(l, 1, x.rank())?;
    let slice = if x.rank() == 0 { x } else { x.dynamic_slice(&starts, &sizes) };
    l.set(0, slice)
}

fn lower_update(l: &mut Lowering<'_>) -> Result<()> {
    let (x, update) = (l.input(0)?, l.input(1)?);
    let fits = update.rank() == x.rank() && update.dims().iter().zip(x.dims()).all(|(u, d)| u <= d);
    ensure!(fits, InvalidArgument, "an update {:?} does not fit {:?}", update.dims(), x.dims());
    let starts = starts(l, 2, x.rank())?;
    let updated = if x.rank() == 0 { update } else { x.dynamic_update_slice(&update, &starts) };
    l.set(0, updated)
}

fn lower_gather(l: &mut Lowering<'_>) -> Result<()> {
    let (x, indices, sizes, numbers) = (l.input(0)?, l.input(1)?, sizes(l, 2)?, Numbers::of(l)?);
    let dims = GatherDims {
        offset_dims: numbers.all(1)?,
        collapsed_slice_dims: numbers.all(2)?,
        start_index_map: numbers.all(3)?,
        index_vector_dim: numbers.one(4)?,
        operand_batching_dims: numbers.all(5)?,
        start_indices_batching_dims: numbers.all(6)?,
    };
    let dropped =
        |i: &usize| dims.collapsed_slice_dims.contains(i) || dims.operand_batching_dims.contains(i);
    let mut window = (0..sizes.len()).filter(|i| !dropped(i)).map(|i| sizes[i]);
    let places = (0..indices.rank()).filter(|&i| i != dims.index_vector_dim);
    let mut batch = places.map(|i| indices.dims()[i]);
    let rank = dims.offset_dims.len() + batch.clone().count();
    let result: Option<Vec<usize>> = (0..rank)
        .map(|i| if dims.offset_dims.contains(&i) { window.next() } else { batch.next() })
        .collect();
    let Some(result) = result else {
        bail!(InvalidArgument, "slices of size {sizes:?} do not fit the result by {dims:?}");
    };
    l.set(0, x.gather(&indices, &dims, &sizes, &result))
}

/// Sorts along the last dimension: keys, and values by them.
fn lower_sort(l: &mut Lowering<'_>) -> Result<()> {
    let inputs = l.inputs_from(0)?;
    let keys = &inputs[0];
    ensure!(
        inputs.iter().all(|x| x.dims() == keys.dims()),
        InvalidArgument,
        "keys {:?} and values {:?} must have the same shape",
        keys.dims(),
        inputs[inputs.len() - 1].dims()
    );
    let sorted = match keys.rank() {
        0 => inputs,
        rank => Value::sort_together(&inputs, rank - 1, |pairs| {
            pairs[0].0.compare(Comparison::Less, &pairs[0].1)
        }),
    };
    sorted.into_iter().enumerate().try_for_each(|(i, value)| l.set(i, value))
}

fn lower_barrier(l: &mut Lowering<'_>) -> Result<()> {
    let values = Value::barrier(&l.inputs_from(0)?);
    values.into_iter().enumerate().try_for_each(|(i, value)| l.set(i, value))
}

fn lower_pad(l: &mut Lowering<'_>) -> Result<()> {
    let (x, padding) = (l.input(0)?, l.input(1)?);
    let [low, high, interior] = [l.ints(2)?, l.ints(3)?, l.ints(4)?];
    let fits = [&low, &high, &interior].iter().all(|list| list.len() == x.rank());
    ensure!(fits, InvalidArgument, "padding {low:?}, {high:?}, {interior:?} of {:?}", x.dims());
    let is_small = low.iter().chain(&high).chain(&interior).all(|n| n.unsigned_abs() < 1 << 40);
    ensure!(is_small, InvalidArgument, "padding {low:?}, {high:?}, {interior:?} is too large");
    l.set(0, x.pad(&padding, &low, &high, &interior))
}

fn lower_precision(l: &mut Lowering<'_>) -> Result<()> {
    let bits = |name: &str| {
        let bits = l.attrs().int(name)?;
        u32::try_from(bits).map_err(|_| err!(InvalidArgument, "{name} is {bits}"))
    };
    let (exponent, mantissa) = (bits("exponent_bits")?, bits("mantissa_bits")?);
    l.unary(|x| x.reduce_precision(exponent, mantissa))
}
