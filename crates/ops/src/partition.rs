//! `DynamicPartition` and `DynamicStitch`.

use smallvec::SmallVec;
use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{GradientContext, OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, err};

use crate::cells::{Cell, blank, nanoseconds_per_cell};
use crate::gradient_shapes::reshaped_like;
use crate::indices::coordinates;
use crate::rows_lowering::gathered;
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        DYNAMIC_PARTITION.with_gradient(partition_grad),
        DYNAMIC_STITCH.with_gradient(stitch_grad),
        PARALLEL_DYNAMIC_STITCH.with_gradient(stitch_grad),
    ],
    kernels: &[
        KernelSpec { op: "DynamicPartition", create: dynamic_partition, ..KernelSpec::CPU },
        KernelSpec {
            op: "DynamicStitch",
            host_inputs: &["indices"],
            create: dynamic_stitch,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "ParallelDynamicStitch",
            host_inputs: &["indices"],
            create: dynamic_stitch,
            ..KernelSpec::CPU
        },
        KernelSpec::lowering("DynamicStitch", lower_dynamic_stitch)
            .with_host_inputs(&["indices"])
            .for_dtypes(STITCHED_SIZES),
        KernelSpec::lowering("ParallelDynamicStitch", lower_dynamic_stitch)
            .with_host_inputs(&["indices"])
            .for_dtypes(STITCHED_SIZES),
    ],
};

const DYNAMIC_PARTITION: OpDef =
    OpDef::new("DynamicPartition", dynamic_partition_shape).with_work(Work::per_input::<400>);

fn dynamic_partition_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (data, partitions) = (c.input(0), c.input(1));
    let shape = match (data.dims(), partitions.dims()) {
        (Some(data_dims), Some(partition_dims)) => {
            let prefix = PartialShape::new(data_dims.iter().copied().take(partition_dims.len()));
            ensure!(
                prefix.merge(partitions).is_ok(),
                InvalidArgument,
                "data.shape must start with partitions.shape, got data.shape = {data}, \
                 partitions.shape = {partitions}"
            );
            let rest = data_dims[partition_dims.len()..].iter().copied();
            PartialShape::new(std::iter::once(None).chain(rest))
        }
        _ => PartialShape::unknown(),
    };
    for i in 0..c.num_outputs() {
        c.set_output(i, shape.clone());
    }
    Ok(())
}

fn dynamic_partition(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let num = init.attrs().size("num_partitions")?;
    AnyKernel::new(move |ctx| {
        let (data, partitions) = (ctx.input(0)?, ctx.input(1)?);
        ensure!(
            data.shape().starts_with(partitions.shape()),
            InvalidArgument,
            "data.shape must start with partitions.shape, got data.shape = {}, partitions.shape = \
             {}",
            data.shape(),
            partitions.shape()
        );
        let numbers = partitions.as_slice::<i32>()?;
        let mut counts = vec![0usize; num];
        for (i, &number) in numbers.iter().enumerate() {
            let count = usize::try_from(number).ok().and_then(|n| counts.get_mut(n));
            let Some(count) = count else {
                let at = coordinates(i, partitions.shape());
                bail!(InvalidArgument, "partitions[{at}] = {number} is not in [0, {num})");
            };
            *count += 1;
        }
        let row_dims = &data.shape()[partitions.rank()..];
        let row: usize = row_dims.iter().product();
        let mut outputs = Vec::new();
        for &count in &counts {
            let dims: SmallVec<[usize; 6]> =
                std::iter::once(count).chain(row_dims.iter().copied()).collect();
            outputs.push(blank(ctx, data.dtype(), Shape::new(&dims)?)?);
        }
        with_cell!(data.dtype(), C => distribute::<C>(C::view(data)?, row, numbers, &mut outputs)?);
        for (i, output) in outputs.into_iter().enumerate() {
            ctx.set_output(i, output)?;
        }
        Ok(())
    })
}

/// Appends each row to the output with its partition number.
fn distribute<C: Cell>(
    data: &[C],
    row: usize,
    numbers: &[i32],
    outputs: &mut [Tensor],
) -> Result<()> {
    if row == 0 {
        return Ok(());
    }
    let mut targets = Vec::new();
    for output in outputs {
        targets.push(C::view_mut(output)?.chunks_exact_mut(row));
    }
    for (from, &number) in data.chunks_exact(row).zip(numbers) {
        if let Some(to) = targets[number as usize].next() {
            to.clone_from_slice(from);
        }
    }
    Ok(())
}

const DYNAMIC_STITCH: OpDef =
    OpDef::new("DynamicStitch", dynamic_stitch_shape).with_work(Work::per_input::<60>);
const PARALLEL_DYNAMIC_STITCH: OpDef =
    OpDef::new("ParallelDynamicStitch", dynamic_stitch_shape).with_work(Work::per_input::<60>);

fn dynamic_stitch_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let n = c.attrs().size("N")?;
    let mut row = PartialShape::unknown();
    // The number of output rows is the largest index plus one, if all indices are known.
    let mut rows = Some(0i64);
    for i in 0..n {
        let known = c.constant(i).and_then(|t| {
            Some(t.as_slice::<i32>().ok()?.iter().map(|&x| i64::from(x) + 1).max().unwrap_or(0))
        });
        rows = rows.zip(known).map(|(a, b)| a.max(b));
        let (Some(indices), Some(data)) = (c.input(i).dims(), c.input(n + i).dims()) else {
            continue;
        };
        let prefix = PartialShape::new(data.iter().copied().take(indices.len()));
        ensure!(
            prefix.merge(c.input(i)).is_ok(),
            InvalidArgument,
            "data[{i}].shape = {} does not start with indices[{i}].shape = {}",
            c.input(n + i),
            c.input(i)
        );
        row = row.merge(&PartialShape::new(data[indices.len()..].iter().copied()))?;
    }
    if let Some(row) = row.dims() {
        let rows = rows.and_then(|r| usize::try_from(r).ok());
        c.set_output(0, PartialShape::new(std::iter::once(rows).chain(row.iter().copied())));
    }
    Ok(())
}

/// Marks an output row that no input row is copied to.
const NO_SOURCE: i64 = -1;

fn dynamic_stitch(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let n = init.attrs().size("N")?;
    AnyKernel::new(move |ctx| {
        let (rows, row_dims) = check_stitch(ctx, n)?;
        let dims: SmallVec<[usize; 6]> =
            std::iter::once(rows).chain(row_dims.iter().copied()).collect();
        let mut output = blank(ctx, ctx.input(n)?.dtype(), Shape::new(&dims)?)?;
        let mut map = ctx.allocate(DType::Int64, Shape::new(&[rows, 2])?)?;
        let (map, _) = map.as_mut_slice::<i64>()?.as_chunks_mut::<2>();
        map.fill([NO_SOURCE; 2]);
        for i in 0..n {
            let indices = ctx.input(i)?.as_slice::<i32>()?;
            // For equal indices, later inputs and later rows apply.
            for (from, &to) in indices.iter().enumerate() {
                map[to as usize] = [i as i64, from as i64];
            }
        }
        let row: usize = row_dims.iter().product();
        with_cell!(output.dtype(), C => {
            stitch::<C>(ctx, n, row, map, C::view_mut(&mut output)?)?;
        });
        ctx.set_output(0, output)
    })
}

/// Integers, as gradients stitch sizes at constant indices. The indices of other elements usually change
/// with every step, and each change would compile a program.
const STITCHED_SIZES: &[(&str, &[DType])] = &[("T", &[DType::Int32, DType::Int64])];

fn lower_dynamic_stitch(l: &mut Lowering<'_>) -> Result<()> {
    let (n, dims) = (l.attrs().size("N")?, l.output_dims(0)?);
    let mut sources = vec![NO_SOURCE; dims[0]];
    let (mut rows, mut data) = (0, Vec::new());
    for i in 0..n {
        // For equal indices, later inputs and later rows apply.
        for (from, to) in (rows..).zip(l.ints(i)?) {
            let slot = usize::try_from(to).ok().and_then(|to| sources.get_mut(to));
            *slot.ok_or_else(|| err!(InvalidArgument, "indices[{i}] is out of range"))? = from;
        }
        let count: usize = l.input_dims(i)?.iter().product();
        rows += count as i64;
        data.push(l.input(n + i)?.reshape(&[&[count], &dims[1..]].concat()));
    }
    let rows = data[0].concatenate(&data[1..], 0);
    let sources = rows.constant(&Tensor::vector(&sources)?);
    l.set(0, gathered(&rows, &sources, 0, 0))
}

/// Number and shape of the result's rows.
fn check_stitch(ctx: &KernelContext<'_>, n: usize) -> Result<(usize, SmallVec<[usize; 6]>)> {
    let mut rows = 0;
    let first = (ctx.input(0)?, ctx.input(n)?);
    let row_of = |indices: &Tensor, data: &Tensor| -> SmallVec<[usize; 6]> {
        data.shape().get(indices.rank()..).unwrap_or_default().into()
    };
    let row = row_of(first.0, first.1);
    for i in 0..n {
        let (indices, data) = (ctx.input(i)?, ctx.input(n + i)?);
        ensure!(
            data.shape().starts_with(indices.shape()),
            InvalidArgument,
            "data[{i}].shape = {} does not start with indices[{i}].shape = {}",
            data.shape(),
            indices.shape()
        );
        ensure!(
            row_of(indices, data) == row,
            InvalidArgument,
            "Need data[0].shape[{}:] = data[{i}].shape[{}:], got data[0].shape = {}, \
             data[{i}].shape = {}",
            first.0.rank(),
            indices.rank(),
            first.1.shape(),
            data.shape()
        );
        for &index in indices.as_slice::<i32>()? {
            ensure!(index >= 0, InvalidArgument, "indices[{i}] is out of range");
            rows = rows.max(index as usize + 1);
        }
    }
    Ok((rows, row))
}

fn stitch<C: Cell>(
    ctx: &KernelContext<'_>,
    n: usize,
    row: usize,
    map: &[[i64; 2]],
    target: &mut [C],
) -> Result<()> {
    let mut sources = Vec::new();
    for i in 0..n {
        sources.push(C::view(ctx.input(n + i)?)?);
    }
    let cost = 2.0 + row as f64 * nanoseconds_per_cell::<C>();
    for_each_rows(ctx, target, row, cost, |first, part| {
        for (to, &[source, from]) in part.chunks_exact_mut(row).zip(&map[first..]) {
            if source == NO_SOURCE {
                to.fill(C::default());
            } else {
                let from = from as usize * row;
                to.clone_from_slice(&sources[source as usize][from..from + row]);
            }
        }
    })
}

/// Stitches the adjoints together at the original positions of the rows.
fn partition_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (data, partitions) = (g.input(0), g.input(1));
    let (zero, count, one) = (g.int(0)?, g.add("Size", &[partitions])?, g.int(1)?);
    let places = g.add("Range", &[zero, count, one])?;
    let places = reshaped_like(g, places, partitions)?;
    let node = g.op_like("DynamicPartition", &["num_partitions"]);
    let places = node.inputs(&[places, partitions]).build_all()?;
    let grads = (0..g.num_outputs()).map(|i| g.grad(i)).collect::<Result<Vec<_>>>()?;
    let node = g.op("ParallelDynamicStitch").attr("N", places.len() as i64);
    let rows = node.inputs(&places).inputs(&grads).build()?;
    let adjoint = reshaped_like(g, rows, data)?;
    g.set(0, adjoint)
}

/// Every input gets the adjoint rows at its indices, even those that a later input overwrote.
fn stitch_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, axis) = (g.grad(0)?, g.int(0)?);
    let count = g.num_inputs() / 2;
    for i in 0..count {
        let indices = g.input(i);
        let adjoint = g.add("GatherV2", &[grad, indices, axis])?;
        g.set(count + i, adjoint)?;
    }
    Ok(())
}
