//! Rows of variables: gather without a snapshot, and scatter updates.
//!
//! Gathers and scatters hold the variable's lock, so that a sparse step costs only the rows that it
//! touches. All indices are checked before the first row changes.

use thalweg_graph::{OpDef, ShapeContext, Work};
use thalweg_hlo::Value;
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{
    Complex32, Complex64, DType, PartialShape, Result, Shape, Tensor, bail, bf16, ensure, f16,
};

use crate::cells::{Cell, blank, nanoseconds_per_cell};
use crate::gather_gradients;
use crate::indices::coordinates;
use crate::number::{Number, Ordered};
use crate::scatter::Update;
use crate::split::{Disjoint, for_each_rows};
use crate::variable::{change, forward_ref, variable_input};
use crate::variable_lowering::{ORDERED, RESOURCE_ORDERED, gather_rows, scatter_rows};
use crate::work;

/// Kernels of a scatter op and its resource form, for a list of element types.
macro_rules! scatter_kernels {
    ($op:literal, $resource_op:literal, [$($t:ty),+] => $create:ident) => {
        [
            cpu_kernel!($op, "T" in [$($t),+] => $create),
            cpu_kernel!($resource_op, "dtype" in [$($t),+] => $create),
        ]
    };
}

const ADD: [KernelSpec; 2] = scatter_kernels!("ScatterAdd", "ResourceScatterAdd", [f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64] => scatter_add);
const SUB: [KernelSpec; 2] = scatter_kernels!("ScatterSub", "ResourceScatterSub", [f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64] => scatter_sub);
const MUL: [KernelSpec; 2] = scatter_kernels!("ScatterMul", "ResourceScatterMul", [f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64] => scatter_mul);
const DIV: [KernelSpec; 2] = scatter_kernels!("ScatterDiv", "ResourceScatterDiv", [f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64] => scatter_div);
const MIN: [KernelSpec; 2] = scatter_kernels!("ScatterMin", "ResourceScatterMin", [f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64] => scatter_min);
const MAX: [KernelSpec; 2] = scatter_kernels!("ScatterMax", "ResourceScatterMax", [f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64] => scatter_max);

pub(crate) static FAMILY: Family = Family {
    ops: &[
        SCATTER_UPDATE,
        SCATTER_ADD.without_gradient(),
        OpDef { name: "ScatterSub", ..SCATTER_ADD }.without_gradient(),
        OpDef { name: "ScatterMul", ..SCATTER_ADD }.without_gradient(),
        OpDef { name: "ScatterDiv", ..SCATTER_ADD }.without_gradient(),
        SCATTER_MIN,
        OpDef { name: "ScatterMax", ..SCATTER_MIN },
        RESOURCE_SCATTER_UPDATE,
        RESOURCE_SCATTER_ADD,
        OpDef { name: "ResourceScatterSub", ..RESOURCE_SCATTER_ADD },
        OpDef { name: "ResourceScatterMul", ..RESOURCE_SCATTER_ADD },
        OpDef { name: "ResourceScatterDiv", ..RESOURCE_SCATTER_ADD },
        OpDef { name: "ResourceScatterMin", ..RESOURCE_SCATTER_ADD },
        OpDef { name: "ResourceScatterMax", ..RESOURCE_SCATTER_ADD },
        RESOURCE_GATHER.with_gradient(gather_gradients::resource_gather),
    ],
    kernels: &[
        KernelSpec { op: "ScatterUpdate", create: scatter_update, ..KernelSpec::CPU },
        KernelSpec { op: "ResourceScatterUpdate", create: scatter_update, ..KernelSpec::CPU },
        ADD[0],
        ADD[1],
        SUB[0],
        SUB[1],
        MUL[0],
        MUL[1],
        DIV[0],
        DIV[1],
        MIN[0],
        MIN[1],
        MAX[0],
        MAX[1],
        KernelSpec { op: "ResourceGather", create: gather, ..KernelSpec::CPU },
        KernelSpec::lowering("ScatterUpdate", |l| scatter_rows(l, |_, new| new.clone())),
        KernelSpec::lowering("ScatterAdd", |l| scatter_rows(l, Value::plus)),
        KernelSpec::lowering("ScatterSub", |l| scatter_rows(l, Value::minus)),
        KernelSpec::lowering("ScatterMul", |l| scatter_rows(l, Value::times)),
        KernelSpec::lowering("ScatterDiv", |l| scatter_rows(l, Value::divided_by)),
        KernelSpec::lowering("ScatterMin", |l| scatter_rows(l, lesser)).for_dtypes(ORDERED),
        KernelSpec::lowering("ScatterMax", |l| scatter_rows(l, greater)).for_dtypes(ORDERED),
        KernelSpec::lowering("ResourceScatterUpdate", |l| scatter_rows(l, |_, new| new.clone())),
        KernelSpec::lowering("ResourceScatterAdd", |l| scatter_rows(l, Value::plus)),
        KernelSpec::lowering("ResourceScatterSub", |l| scatter_rows(l, Value::minus)),
        KernelSpec::lowering("ResourceScatterMul", |l| scatter_rows(l, Value::times)),
        KernelSpec::lowering("ResourceScatterDiv", |l| scatter_rows(l, Value::divided_by)),
        KernelSpec::lowering("ResourceScatterMin", |l| scatter_rows(l, lesser))
            .for_dtypes(RESOURCE_ORDERED),
        KernelSpec::lowering("ResourceScatterMax", |l| scatter_rows(l, greater))
            .for_dtypes(RESOURCE_ORDERED),
        KernelSpec::lowering("ResourceGather", gather_rows),
    ],
};

const SCATTER_UPDATE: OpDef =
    OpDef::new("ScatterUpdate", scatter_shape).with_work(Work::updates::<1, 1>);

const SCATTER_ADD: OpDef = OpDef { name: "ScatterAdd", ..SCATTER_UPDATE };

const SCATTER_MIN: OpDef = OpDef { name: "ScatterMin", ..SCATTER_UPDATE };

const RESOURCE_SCATTER_UPDATE: OpDef =
    OpDef::new("ResourceScatterUpdate", resource_scatter_shape).with_work(Work::updates::<1, 1>);

const RESOURCE_SCATTER_ADD: OpDef = OpDef { name: "ResourceScatterAdd", ..RESOURCE_SCATTER_UPDATE };

const RESOURCE_GATHER: OpDef =
    OpDef::new("ResourceGather", gather_shape).with_work(|c| work::gather(c, 100.0));

fn lesser(element: &Value, update: &Value) -> Value {
    Update::Min.lower(element, update)
}

fn greater(element: &Value, update: &Value) -> Value {
    Update::Max.lower(element, update)
}

fn scatter_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    check_updates(c, c.input(0))?;
    c.set_output(0, c.input(0).clone());
    Ok(())
}

fn resource_scatter_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    check_updates(c, &c.variable_shape(0))
}

/// Updates are a scalar, or have the indices' shape followed by that of a row.
fn check_updates(c: &ShapeContext<'_>, variable: &PartialShape) -> Result<()> {
    let (Some(rows), Some(indices)) = (variable.dims(), c.input(1).dims()) else { return Ok(()) };
    ensure!(
        !rows.is_empty(),
        InvalidArgument,
        "a variable must have rank 1 at least to have rows, but is a scalar"
    );
    if c.input(2).rank() != Some(0) {
        let wanted = PartialShape::new(indices.iter().chain(&rows[1..]).copied());
        wanted.merge(c.input(2))?;
    }
    Ok(())
}

fn gather_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let variable = c.variable_shape(0);
    let batch_dims = c.attrs().int("batch_dims")?;
    let (Some(rows), Some(indices)) = (variable.dims(), c.input(1).dims()) else { return Ok(()) };
    let batch_dims = batch_dimensions(batch_dims, indices.len())?;
    ensure!(
        batch_dims < rows.len(),
        InvalidArgument,
        "batch_dims is {batch_dims}, so the variable must have rank {} at least, got shape {variable}",
        batch_dims + 1
    );
    c.set_output(0, PartialShape::new(indices.iter().chain(&rows[batch_dims + 1..]).copied()));
    Ok(())
}

/// Number of leading dimensions that variable and indices share; negative ones count from the rank
/// of the indices.
pub(crate) fn batch_dimensions(batch_dims: i64, indices_rank: usize) -> Result<usize> {
    let rank = indices_rank as i64;
    let counted = if batch_dims < 0 { batch_dims + rank } else { batch_dims };
    ensure!(
        (0..=rank).contains(&counted),
        InvalidArgument,
        "batch_dims is {batch_dims}, but indices have rank {rank}"
    );
    Ok(counted as usize)
}

/// Input `i` as row indices, each checked to be below `rows`.
pub(crate) fn row_numbers(ctx: &KernelContext<'_>, i: usize, rows: usize) -> Result<Tensor> {
    let indices = ctx.input(i)?;
    let wide = match indices.dtype() {
        DType::Int64 => indices.clone(),
        _ => {
            let mut wide = ctx.allocate(DType::Int64, indices.shape().clone())?;
            let narrow = indices.as_slice::<i32>()?;
            wide.as_mut_slice::<i64>()?.iter_mut().zip(narrow).for_each(|(w, &n)| *w = n.into());
            wide
        }
    };
    let bad = wide.as_slice::<i64>()?.iter().position(|&row| row < 0 || row as usize >= rows);
    if let Some(bad) = bad {
        let value = wide.as_slice::<i64>()?[bad];
        let place = coordinates(bad, indices.shape());
        bail!(InvalidArgument, "indices[{place}] = {value} is not in [0, {rows})");
    }
    Ok(wide)
}

fn scatter_add<T: Number>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    scatter(|ctx, target, rows, updates| combine_rows::<T>(ctx, target, rows, updates, T::plus))
}

fn scatter_sub<T: Number>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    scatter(|ctx, target, rows, updates| combine_rows::<T>(ctx, target, rows, updates, T::minus))
}

fn scatter_mul<T: Number>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    scatter(|ctx, target, rows, updates| combine_rows::<T>(ctx, target, rows, updates, T::times))
}

fn scatter_div<T: Number>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    scatter(|ctx, target, rows, updates| {
        T::check_divisor(updates)?;
        combine_rows::<T>(ctx, target, rows, updates, T::over)
    })
}

fn scatter_min<T: Ordered>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    scatter(|ctx, target, rows, updates| combine_rows::<T>(ctx, target, rows, updates, T::lesser))
}

fn scatter_max<T: Ordered>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    scatter(|ctx, target, rows, updates| combine_rows::<T>(ctx, target, rows, updates, T::greater))
}

fn scatter_update(_: &KernelInit<'_>) -> Result<AnyKernel> {
    scatter(
        |ctx, target, rows, updates| with_cell!(target.dtype(), C => replace_rows::<C>(ctx, target, rows, updates)),
    )
}

/// The change of a scatter op, called with the variable, the checked row indices and the updates.
type ChangeRows = fn(&KernelContext<'_>, &mut Tensor, &[i64], &Tensor) -> Result<()>;

fn scatter(change_rows: ChangeRows) -> Result<AnyKernel> {
    AnyKernel::new(move |ctx| {
        let variable = variable_input(ctx, 0)?;
        let (indices, updates) = (ctx.input(1)?, ctx.input(2)?);
        if indices.num_elements() > 0 {
            variable.with_value(|value| check_scatter(value, indices, updates))?;
            change(ctx, &variable, |target| {
                let rows = row_numbers(ctx, 1, target.shape()[0])?;
                change_rows(ctx, target, rows.as_slice()?, updates)
            })?;
        } else {
            variable.with_value(|_| Ok(()))?;
        }
        forward_ref(ctx, variable)
    })
}

fn check_scatter(value: &Tensor, indices: &Tensor, updates: &Tensor) -> Result<()> {
    let shape = value.shape();
    ensure!(!shape.is_empty(), InvalidArgument, "params must be at least 1-D, got shape {shape}");
    ensure!(
        value.dtype() == updates.dtype(),
        InvalidArgument,
        "the variable is {}, the updates {}",
        value.dtype(),
        updates.dtype()
    );
    let wanted = indices.shape().iter().chain(&shape[1..]);
    ensure!(
        updates.rank() == 0 || updates.shape().iter().eq(wanted),
        InvalidArgument,
        "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got updates.shape {}, indices.shape {}, params.shape {shape}",
        updates.shape(),
        indices.shape()
    );
    Ok(())
}

/// Combines rows of updates, or one scalar, with the rows at `rows`, in their order.
fn combine_rows<T: Number>(
    ctx: &KernelContext<'_>,
    target: &mut Tensor,
    rows: &[i64],
    updates: &Tensor,
    combine: impl Fn(T, T) -> T + Sync,
) -> Result<()> {
    let updates_scalar = (updates.rank() == 0).then(|| updates.scalar_value::<T>()).transpose()?;
    let updates = updates.as_slice::<T>()?;
    let row_len = row_len(target.shape());
    change_rows(ctx, target.as_mut_slice::<T>()?, rows, row_len, |position, row| {
        if let Some(update) = updates_scalar {
            row.iter_mut().for_each(|x| *x = combine(*x, update));
        } else {
            let update = &updates[position * row_len..(position + 1) * row_len];
            row.iter_mut().zip(update).for_each(|(x, &update)| *x = combine(*x, update));
        }
    })
}

fn replace_rows<C: Cell>(
    ctx: &KernelContext<'_>,
    target: &mut Tensor,
    rows: &[i64],
    updates: &Tensor,
) -> Result<()> {
    let is_scalar = updates.rank() == 0;
    let updates = C::view(updates)?;
    let row_len = row_len(target.shape());
    change_rows(ctx, C::view_mut(target)?, rows, row_len, |position, row| {
        if is_scalar {
            row.fill(updates[0].clone());
        } else {
            row.clone_from_slice(&updates[position * row_len..(position + 1) * row_len]);
        }
    })
}

fn row_len(shape: &Shape) -> usize {
    shape.iter().skip(1).product()
}

/// Calls `change(position, row)` for every row index, in parallel if the rows are long.
fn change_rows<T: Send>(
    ctx: &KernelContext<'_>,
    target: &mut [T],
    rows: &[i64],
    row_len: usize,
    change: impl Fn(usize, &mut [T]) + Sync,
) -> Result<()> {
    if row_len == 0 {
        return Ok(());
    }
    let count = target.len() / row_len;
    let target = Disjoint::new(target);
    walk_rows(ctx, rows, count, row_len as f64 * 0.5, |position, row| {
        // SAFETY: `walk_rows` gives a row to one thread only, and one after the other.
        change(position, unsafe { target.part(row * row_len..(row + 1) * row_len) });
    })
}

/// Calls `visit(position, row)` for every row index, all below `count`, in parallel if a row costs
/// much. Calls for the same row are sequential, on one thread, in the order of the indices.
///
/// Each thread owns a range of rows and scans all indices, so a row that occurs twice changes in
/// the same order for any number of threads.
pub(crate) fn walk_rows(
    ctx: &KernelContext<'_>,
    rows: &[i64],
    count: usize,
    nanoseconds_per_row: f64,
    visit: impl Fn(usize, usize) + Sync,
) -> Result<()> {
    /// Cost of a row for which scanning all indices once more is negligible.
    const COSTLY_NANOSECONDS: f64 = 32.0;
    const SHARES_MAX: f64 = 16.0;
    const SHARE_NANOSECONDS: f64 = 40_000.0;
    const ROWS_BETWEEN_CHECKS: usize = 1 << 16;
    if nanoseconds_per_row < COSTLY_NANOSECONDS {
        for (position, &row) in rows.iter().enumerate() {
            if position % ROWS_BETWEEN_CHECKS == 0 {
                ctx.check_cancelled()?;
            }
            visit(position, row as usize);
        }
        return Ok(());
    }
    let work = (rows.len() as f64 * nanoseconds_per_row).min(SHARES_MAX * SHARE_NANOSECONDS);
    ctx.parallel_for(count, work / count as f64, |share| {
        for (position, &row) in rows.iter().enumerate() {
            if share.contains(&(row as usize)) {
                visit(position, row as usize);
            }
        }
    })
}

/// Gathers rows; the first `batch_dims` dimensions are shared with the indices.
fn gather(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let batch_dims = init.attrs().int("batch_dims")?;
    AnyKernel::new(move |ctx| {
        let out = variable_input(ctx, 0)?.with_value(|value| {
            let indices = ctx.input(1)?;
            let batch_dims = batch_dimensions(batch_dims, indices.rank())?;
            let shape = value.shape();
            ensure!(
                batch_dims < shape.len() && shape[..batch_dims] == indices.shape()[..batch_dims],
                InvalidArgument,
                "params.shape {shape} and indices.shape {} must agree in their first {batch_dims} dimensions, and params have one more",
                indices.shape()
            );
            let numbers = row_numbers(ctx, 1, shape[batch_dims])?;
            let out_shape = [indices.shape().dims(), &shape[batch_dims + 1..]].concat();
            let rows = Rows {
                row_len: shape[batch_dims + 1..].iter().product(),
                rows_per_batch: shape[batch_dims],
                numbers_per_batch: indices.shape()[batch_dims..].iter().product(),
            };
            copy_rows(ctx, value, Shape::new(&out_shape)?, &rows, numbers.as_slice()?)
        })?;
        ctx.set_output(0, out)
    })
}

/// Layout of gathered rows: batches of rows, from each of which several are taken.
struct Rows {
    row_len: usize,
    rows_per_batch: usize,
    numbers_per_batch: usize,
}

fn copy_rows(
    ctx: &KernelContext<'_>,
    value: &Tensor,
    shape: Shape,
    rows: &Rows,
    numbers: &[i64],
) -> Result<Tensor> {
    let mut out = blank(ctx, value.dtype(), shape)?;
    with_cell!(value.dtype(), C => copy_cells::<C>(ctx, C::view(value)?, C::view_mut(&mut out)?, rows, numbers))?;
    Ok(out)
}

fn copy_cells<C: Cell>(
    ctx: &KernelContext<'_>,
    source: &[C],
    out: &mut [C],
    rows: &Rows,
    numbers: &[i64],
) -> Result<()> {
    let row_len = rows.row_len;
    let cost = 5.0 + row_len as f64 * nanoseconds_per_cell::<C>();
    for_each_rows(ctx, out, row_len, cost, |first, part| {
        for (position, target) in (first..).zip(part.chunks_exact_mut(row_len)) {
            let batch = position / rows.numbers_per_batch;
            let row = batch * rows.rows_per_batch + numbers[position] as usize;
            target.clone_from_slice(&source[row * row_len..(row + 1) * row_len]);
        }
    })
}
