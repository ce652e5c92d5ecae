//! `Gather`, `GatherNd`, `OneHot` and `Tile`.

use smallvec::SmallVec;
use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{NodeAttrs, OpDef, PartialValue, ValueContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{PartialShape, RANK_MAX, Result, Shape, Tensor, bail, ensure, err};

use crate::cells::{Cell, blank, fill, nanoseconds_per_cell};
use crate::indices::{FirstBad, Indices, coordinates};
use crate::split::for_each_rows;
use crate::strided::{Dim, StridedCopy, strides};
use crate::work;
use crate::{gather_gradients, gather_lowering as lowering};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        GATHER.with_gradient(gather_gradients::gather),
        GATHER_V2.with_gradient(gather_gradients::gather_v2),
        GATHER_ND.with_gradient(gather_gradients::gather_nd),
        ONE_HOT.without_gradient(),
        TILE.with_gradient(gather_gradients::tile),
    ],
    kernels: &[
        KernelSpec { op: "Gather", create: gather_v1, ..KernelSpec::CPU },
        KernelSpec { op: "GatherV2", host_inputs: &["axis"], create: gather_v2, ..KernelSpec::CPU },
        KernelSpec { op: "GatherNd", create: gather_nd, ..KernelSpec::CPU },
        KernelSpec { op: "OneHot", host_inputs: &["depth"], create: one_hot, ..KernelSpec::CPU },
        KernelSpec { op: "Tile", host_inputs: &["multiples"], create: tile, ..KernelSpec::CPU },
        KernelSpec::lowering("Gather", |l| lowering::gather(l, 0, 0)),
        KernelSpec::lowering("GatherV2", |l| {
            lowering::gather(l, l.int(2)?, l.attrs().int("batch_dims")?)
        })
        .with_host_inputs(&["axis"]),
        KernelSpec::lowering("GatherNd", lowering::gather_nd),
        KernelSpec::lowering("OneHot", lowering::one_hot).with_host_inputs(&["depth"]),
        KernelSpec::lowering("Tile", lowering::tile).with_host_inputs(&["multiples"]),
    ],
};

type Dims = SmallVec<[Option<usize>; 4]>;

const GATHER: OpDef = OpDef::new("Gather", gather_v1_shape).with_work(|c| work::gather(c, 100.0));

fn gather_v1_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank_at_least(0, "params", 1)?;
    let (Some(params), Some(indices)) = (c.input(0).dims(), c.input(1).dims()) else {
        return Ok(());
    };
    let dims = indices.iter().chain(&params[1..]).copied();
    c.set_output(0, PartialShape::new(dims));
    Ok(())
}

fn gather_v1(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let output = gather(ctx, ctx.input(0)?, ctx.input(1)?, 0, 0)?;
        ctx.set_output(0, output)
    })
}

const GATHER_V2: OpDef = OpDef::new("GatherV2", gather_v2_shape)
    .with_work(|c| work::gather(c, 100.0))
    .with_value(gather_v2_value);

fn gather_v2_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank_at_least(0, "params", 1)?;
    c.with_rank(2, "axis", 0)?;
    let (Some(params), Some(indices)) = (c.input(0).dims(), c.input(1).dims()) else {
        return Ok(());
    };
    let batch_dims = c.attrs().int("batch_dims")?;
    let batch = checked_batch_dims(batch_dims, indices.len())?;
    ensure!(
        batch < params.len(),
        InvalidArgument,
        "batch_dims ({batch}) must be less than rank(params) ({})",
        params.len()
    );
    let Some(axis) = c.partial_value(2).and_then(|v| v.first()) else {
        let rank = params.len() - 1 + indices.len() - batch;
        c.set_output(0, PartialShape::of_rank(rank));
        return Ok(());
    };
    let axis = checked_axis(axis, params.len())?;
    check_order(batch, axis)?;
    let common = PartialShape::new(params[..batch].iter().copied())
        .merge(&PartialShape::new(indices[..batch].iter().copied()))?;
    let mut dims: Dims = common.dims().unwrap_or_default().into();
    dims.extend_from_slice(&params[batch..axis]);
    dims.extend_from_slice(&indices[batch..]);
    dims.extend_from_slice(&params[axis + 1..]);
    c.set_output(0, PartialShape::new(dims));
    Ok(())
}

pub(crate) fn checked_batch_dims(batch_dims: i64, rank: usize) -> Result<usize> {
    let from_end = if batch_dims < 0 { batch_dims.wrapping_add(rank as i64) } else { batch_dims };
    usize::try_from(from_end).ok().filter(|&b| b <= rank).ok_or_else(|| {
        err!(
            InvalidArgument,
            "Expected batch_dims in the range [-{rank}, {rank}], but got {batch_dims}"
        )
    })
}

pub(crate) fn checked_axis(axis: i64, rank: usize) -> Result<usize> {
    let from_end = if axis < 0 { axis.wrapping_add(rank as i64) } else { axis };
    usize::try_from(from_end).ok().filter(|&a| a < rank).ok_or_else(|| {
        err!(InvalidArgument, "Expected axis in the range [-{rank}, {rank}), but got {axis}")
    })
}

pub(crate) fn check_order(batch_dims: usize, axis: usize) -> Result<()> {
    ensure!(
        batch_dims <= axis,
        InvalidArgument,
        "batch_dims ({batch_dims}) must be less than or equal to axis ({axis})."
    );
    Ok(())
}

/// Static value: elements of a vector.
fn gather_v2_value(c: &mut ValueContext<'_>) -> Option<PartialValue> {
    let (params, indices) = (c.input(0)?, c.input(1)?);
    if params.is_scalar || c.attrs().int("batch_dims").ok()? != 0 {
        return None;
    }
    let pick = |i: &Option<i64>| -> Option<Option<i64>> {
        match i {
            Some(i) => params.elements.get(usize::try_from(*i).ok()?).copied(),
            None => Some(None),
        }
    };
    let elements = indices.elements.iter().map(pick).collect::<Option<_>>()?;
    Some(PartialValue { elements, is_scalar: indices.is_scalar })
}

fn gather_v2(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let batch_dims = init.attrs().int("batch_dims")?;
    AnyKernel::new(move |ctx| {
        let axis = ctx.scalar_int(2, "axis")?;
        let output = gather(ctx, ctx.input(0)?, ctx.input(1)?, axis, batch_dims)?;
        ctx.set_output(0, output)
    })
}

/// Slices of `params` along `axis`, selected by `indices`, which share the first `batch_dims`
/// dimensions with it.
pub(crate) fn gather(
    ctx: &KernelContext<'_>,
    params: &Tensor,
    indices: &Tensor,
    axis: i64,
    batch_dims: i64,
) -> Result<Tensor> {
    ensure!(params.rank() > 0, InvalidArgument, "params must be at least 1 dimensional");
    let axis = checked_axis(axis, params.rank())?;
    let batch = checked_batch_dims(batch_dims, indices.rank())?;
    ensure!(
        batch < params.rank(),
        InvalidArgument,
        "batch_dims ({batch}) must be less than rank(params) ({})",
        params.rank()
    );
    check_order(batch, axis)?;
    for i in 0..batch {
        let (p, n) = (params.shape()[i], indices.shape()[i]);
        ensure!(
            p == n,
            InvalidArgument,
            "params.shape[{i}]: {p} should be equal to indices.shape[{i}]: {n}"
        );
    }
    let mut dims: SmallVec<[usize; 8]> = params.shape()[..axis].into();
    dims.extend_from_slice(&indices.shape()[batch..]);
    dims.extend_from_slice(&params.shape()[axis + 1..]);
    let mut output = blank(ctx, params.dtype(), Shape::new(&dims)?)?;
    let sizes = GatherSizes {
        outer: params.shape()[batch..axis].iter().product(),
        limit: params.shape()[axis],
        inner: params.shape()[axis + 1..].iter().product(),
        count: indices.shape()[batch..].iter().product(),
    };
    let bad = FirstBad::new();
    let indices_view = Indices::of(indices)?;
    with_cell!(params.dtype(), C => {
        let target = C::view_mut(&mut output)?;
        gather_cells::<C>(ctx, &sizes, C::view(params)?, indices_view, target, &bad)?;
    });
    if let Some(position) = bad.get() {
        bail!(
            InvalidArgument,
            "indices[{}] = {} is not in [0, {})",
            coordinates(position, indices.shape()),
            indices_view.at(position),
            sizes.limit
        );
    }
    Ok(output)
}

/// Sizes of a gather: params are `[batch, outer, limit, inner]`, indices `[batch, count]`.
struct GatherSizes {
    outer: usize,
    limit: usize,
    inner: usize,
    count: usize,
}

fn gather_cells<C: Cell>(
    ctx: &KernelContext<'_>,
    sizes: &GatherSizes,
    params: &[C],
    indices: Indices<'_>,
    target: &mut [C],
    bad: &FirstBad,
) -> Result<()> {
    let &GatherSizes { outer, limit, inner, count } = sizes;
    // Each index also costs a cache miss.
    let cost = 2.0 + inner as f64 * nanoseconds_per_cell::<C>();
    for_each_rows(ctx, target, inner, cost, |first, mut part| {
        let (mut block, mut i) = (first / count, first % count);
        while !part.is_empty() {
            // The rest of this block of the output selects from one of the params.
            let len = (count - i).min(part.len() / inner);
            let (rows, rest) = part.split_at_mut(len * inner);
            let source = &params[block * limit * inner..(block + 1) * limit * inner];
            pick(source, indices, block / outer * count + i, rows, (limit, inner), bad);
            part = rest;
            (block, i) = (block + 1, 0);
        }
    })
}

/// Sets each row to the row of `source` that the index at its position, counted from `first`,
/// selects.
fn pick<C: Cell>(
    source: &[C],
    indices: Indices<'_>,
    first: usize,
    rows: &mut [C],
    (limit, inner): (usize, usize),
    bad: &FirstBad,
) {
    if inner == 1 {
        for (n, cell) in rows.iter_mut().enumerate() {
            match indices.below(first + n, limit) {
                Some(index) => *cell = source[index].clone(),
                None => bad.note(first + n),
            }
        }
        return;
    }
    for (n, row) in rows.chunks_exact_mut(inner).enumerate() {
        match indices.below(first + n, limit) {
            Some(index) => row.clone_from_slice(&source[index * inner..][..inner]),
            None => bad.note(first + n),
        }
    }
}

const GATHER_ND: OpDef =
    OpDef::new("GatherNd", gather_nd_shape).with_work(|c| work::gather(c, 400.0));

fn gather_nd_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (params, indices) = (c.input(0), c.with_rank_at_least(1, "indices", 1)?);
    let (Some(params), Some(indices)) = (params.dims(), indices.dims()) else { return Ok(()) };
    let Some((&Some(depth), outer)) = indices.split_last() else { return Ok(()) };
    let Some(inner) = params.get(depth..) else {
        bail!(
            InvalidArgument,
            "indices.shape[-1] must be <= params.rank, but saw indices shape: {} and params \
             shape: {}",
            c.input(1),
            c.input(0)
        );
    };
    c.set_output(0, PartialShape::new(outer.iter().chain(inner).copied()));
    Ok(())
}

fn gather_nd(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let ignores = ignores_bad_indices(init)?;
    AnyKernel::new(move |ctx| {
        let output = gather_points(ctx, ctx.input(0)?, ctx.input(1)?, ignores)?;
        ctx.set_output(0, output)
    })
}

/// Whether out-of-bounds indices are ignored (`bad_indices_policy`) instead of an error.
pub(crate) fn ignores_bad_indices(init: &KernelInit<'_>) -> Result<bool> {
    has_lenient_policy(&init.attrs())
}

/// The same of the attrs of a node.
pub(crate) fn has_lenient_policy(attrs: &NodeAttrs<'_>) -> Result<bool> {
    match attrs.string("bad_indices_policy")? {
        "" | "DEFAULT" | "ERROR" => Ok(false),
        "IGNORE" => Ok(true),
        other => bail!(InvalidArgument, "bad_indices_policy {other:?} is not known"),
    }
}

/// `GatherNd`: slices of `params`, each selected by a row of `indices`.
pub(crate) fn gather_points(
    ctx: &KernelContext<'_>,
    params: &Tensor,
    indices: &Tensor,
    ignores: bool,
) -> Result<Tensor> {
    ensure!(params.rank() >= 1, InvalidArgument, "params must be at least a vector");
    let Some((&depth, outer)) = indices.shape().split_last() else {
        bail!(InvalidArgument, "indices must be at least a vector");
    };
    let Some(inner) = params.shape().get(depth..) else {
        bail!(
            InvalidArgument,
            "index innermost dimension length must be <= params rank; saw: {depth} vs. {}",
            params.rank()
        );
    };
    let dims: SmallVec<[usize; 8]> = outer.iter().chain(inner).copied().collect();
    let shape = Shape::new(&dims)?;
    ensure!(
        params.num_elements() > 0 || shape.num_elements() == 0,
        InvalidArgument,
        "Requested more than 0 entries, but params is empty.  Params shape: {}",
        params.shape()
    );
    let points = Points::new(Indices::of(indices)?, depth, params.shape());
    let inner: usize = inner.iter().product();
    let mut output = blank(ctx, params.dtype(), shape)?;
    let bad = FirstBad::new();
    with_cell!(params.dtype(), C => {
        let (params, target) = (C::view(params)?, C::view_mut(&mut output)?);
        let cost = 2.0 + inner as f64 * nanoseconds_per_cell::<C>();
        for_each_rows(ctx, target, inner, cost, |first, part| {
            for (n, row) in part.chunks_exact_mut(inner).enumerate() {
                match points.offset(first + n) {
                    Some(start) => row.clone_from_slice(&params[start..start + inner]),
                    None if ignores => row.fill(C::default()),
                    None => bad.note(first + n),
                }
            }
        })?;
    });
    if let Some(position) = bad.get() {
        bail!(
            InvalidArgument,
            "indices[{}] = {} does not index into param shape {}, node name: {}",
            coordinates(position, &Shape::new(outer)?),
            points.show(position),
            params.shape(),
            ctx.node().name
        );
    }
    Ok(output)
}

/// Rows of indices, each of which selects a slice of a tensor.
pub(crate) struct Points<'a> {
    indices: Indices<'a>,
    limits: SmallVec<[usize; 6]>,
    strides: SmallVec<[usize; 6]>,
}

impl<'a> Points<'a> {
    /// Rows of `depth` indices into the first dimensions of a tensor of this shape.
    pub(crate) fn new(indices: Indices<'a>, depth: usize, shape: &Shape) -> Points<'a> {
        let mut all = strides(shape);
        all.truncate(depth);
        Points { indices, limits: shape[..depth].into(), strides: all }
    }

    /// Offset of the slice that row `i` selects.
    #[inline]
    pub(crate) fn offset(&self, i: usize) -> Option<usize> {
        let depth = self.limits.len();
        let mut offset = 0;
        for (k, (&limit, &stride)) in self.limits.iter().zip(&self.strides).enumerate() {
            offset += self.indices.below(i * depth + k, limit)? * stride;
        }
        Some(offset)
    }

    /// Row `i` for error messages.
    pub(crate) fn show(&self, i: usize) -> String {
        let depth = self.limits.len();
        let row: Vec<String> =
            (0..depth).map(|k| self.indices.at(i * depth + k).to_string()).collect();
        format!("[{}]", row.join(","))
    }
}

const ONE_HOT: OpDef = OpDef::new("OneHot", one_hot_shape).with_work(Work::moves);

fn one_hot_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for (i, name) in [(1, "depth"), (2, "on_value"), (3, "off_value")] {
        c.with_rank(i, name, 0)?;
    }
    let depth = match c.partial_value(1).and_then(|v| v.first()) {
        Some(depth) => Some(checked_depth(depth)?),
        None => None,
    };
    let Some(dims) = c.input(0).dims() else { return Ok(()) };
    let mut dims = Dims::from_slice(dims);
    dims.insert(one_hot_axis(c.attrs().int("axis")?, dims.len())?, depth);
    c.set_output(0, PartialShape::new(dims));
    Ok(())
}

pub(crate) fn checked_depth(depth: i64) -> Result<usize> {
    usize::try_from(depth)
        .map_err(|_| err!(InvalidArgument, "depth must be non-negative, got: {depth}"))
}

pub(crate) fn one_hot_axis(axis: i64, rank: usize) -> Result<usize> {
    let found = if axis == -1 { Ok(rank) } else { usize::try_from(axis) };
    found.ok().filter(|&a| a <= rank).ok_or_else(|| {
        err!(
            InvalidArgument,
            "Expected axis to be -1 or between [0, {}).  But received: {axis}",
            rank + 1
        )
    })
}

fn one_hot(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let axis = init.attrs().int("axis")?;
    AnyKernel::new(move |ctx| {
        for (i, name) in [(1, "depth"), (2, "on_value"), (3, "off_value")] {
            let shape = ctx.input(i)?.shape();
            ensure!(
                shape.rank() == 0,
                InvalidArgument,
                "{name} must be a scalar, but got: {shape}"
            );
        }
        let depth = checked_depth(ctx.scalar_int(1, "depth")?)?;
        let indices = ctx.input(0)?;
        let axis = one_hot_axis(axis, indices.rank())?;
        let mut dims = indices.shape().to_vec();
        dims.insert(axis, depth);
        let suffix: usize = indices.shape()[axis..].iter().product();
        let indices = Indices::of(indices)?;
        let (on, off) = (ctx.input(2)?, ctx.input(3)?);
        let mut output = blank(ctx, on.dtype(), Shape::new(&dims)?)?;
        with_cell!(on.dtype(), C => {
            let (on, off) = (&C::view(on)?[0], &C::view(off)?[0]);
            one_hot_cells::<C>(ctx, C::view_mut(&mut output)?, indices, (depth, suffix), (on, off))?;
        });
        ctx.set_output(0, output)
    })
}

fn one_hot_cells<C: Cell>(
    ctx: &KernelContext<'_>,
    target: &mut [C],
    indices: Indices<'_>,
    (depth, suffix): (usize, usize),
    (on, off): (&C, &C),
) -> Result<()> {
    let block = depth * suffix;
    let cost = block as f64 * nanoseconds_per_cell::<C>() + suffix as f64;
    for_each_rows(ctx, target, block, cost, |first, part| {
        fill(part, off);
        for (n, block) in part.chunks_exact_mut(block).enumerate() {
            for i in 0..suffix {
                if let Some(index) = indices.below((first + n) * suffix + i, depth) {
                    block[index * suffix + i] = on.clone();
                }
            }
        }
    })
}

const TILE: OpDef = OpDef::new("Tile", tile_shape).with_work(Work::moves);

fn tile_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let len = c.with_rank(1, "multiples", 1)?.dim(0);
    let multiples = c.partial_value(1);
    let Some(rank) = c.input(0).rank().or(len).filter(|&r| r <= RANK_MAX) else { return Ok(()) };
    ensure!(
        len.is_none_or(|n| n == rank),
        InvalidArgument,
        "Expected multiples argument to be a vector of length {rank} but got length {}",
        len.unwrap_or(0)
    );
    let mut dims = Dims::new();
    for i in 0..rank {
        let multiple = multiples.as_ref().and_then(|m| m.elements.get(i).copied().flatten());
        dims.push(match (multiple, c.input(0).dim(i)) {
            (Some(multiple), size) => {
                let multiple = checked_multiple(i, multiple)?;
                size.map(|size| tiled_size(size, multiple)).transpose()?
            }
            (None, _) => None,
        });
    }
    c.set_output(0, PartialShape::new(dims));
    Ok(())
}

fn checked_multiple(i: usize, multiple: i64) -> Result<usize> {
    usize::try_from(multiple)
        .map_err(|_| err!(InvalidArgument, "Expected multiples[{i}] >= 0, but got {multiple}"))
}

fn tiled_size(size: usize, multiple: usize) -> Result<usize> {
    size.checked_mul(multiple)
        .ok_or_else(|| err!(InvalidArgument, "{size} repeated {multiple} times is too much"))
}

fn tile(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let (input, multiples) = (ctx.input(0)?, ctx.input(1)?);
        ensure!(
            multiples.rank() == 1,
            InvalidArgument,
            "Expected multiples to be 1-D, but got shape {}",
            multiples.shape()
        );
        ensure!(
            multiples.num_elements() == input.rank(),
            InvalidArgument,
            "Expected multiples argument to be a vector of length {} but got length {}",
            input.rank(),
            multiples.num_elements()
        );
        let multiples = ctx.ints(1, "multiples")?;
        let mut dims: SmallVec<[usize; 6]> = SmallVec::new();
        for (i, (&size, &multiple)) in input.shape().iter().zip(&multiples).enumerate() {
            dims.push(tiled_size(size, checked_multiple(i, multiple)?)?);
        }
        if dims[..] == input.shape()[..] {
            let input = ctx.take_input(0)?;
            return ctx.set_output(0, input);
        }
        let shape = Shape::new(&dims)?;
        let mut copy = StridedCopy::default();
        let steps = input.shape().iter().zip(strides(input.shape())).zip(strides(&shape));
        for (((&len, source), target), &multiple) in steps.zip(&multiples) {
            copy.dims.push(Dim { len: multiple as usize, source: 0, target: target * len });
            copy.dims.push(Dim { len, source: source as isize, target });
        }
        let mut output = blank(ctx, input.dtype(), shape)?;
        copy.run(ctx, input, &mut output)?;
        ctx.set_output(0, output)
    })
}
