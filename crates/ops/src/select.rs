//! `Select` and `SelectV2`.

use thalweg_graph::{GradientContext, OpDef, ShapeContext, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{DType, Result, Shape, ensure};

use crate::broadcast::{Plan, broadcast_shape};
use crate::cells::{Cell, blank, nanoseconds_per_cell};
use crate::gradients::{Arithmetic, set_repeated};
use crate::lowering::{VALUES, check_same_shapes};
use crate::split::for_each_rows;

const SELECT: OpDef =
    OpDef::new("Select", select_shape).with_work(Work::per_output::<50>).with_gradient(select_grad);

const SELECT_V2: OpDef =
    OpDef { name: "SelectV2", shape: select_v2_shape, ..SELECT }.with_gradient(select_v2_grad);

/// The gradient is the same op on the adjoint and zeros, because the condition may be one bool per
/// row.
fn select_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, condition) = (g.grad(0)?, g.input(0));
    let zeros = g.add("ZerosLike", &[grad])?;
    let of_t = g.add("Select", &[condition, grad, zeros])?;
    let of_e = g.add("Select", &[condition, zeros, grad])?;
    g.set(1, of_t)?;
    g.set(2, of_e)
}

fn select_v2_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, condition) = (g.grad(0)?, g.input(0));
    let zero = g.number_like(grad, 0.0)?;
    let (of_t, of_e) = (g.select(condition, grad, zero)?, g.select(condition, zero, grad)?);
    set_repeated(g, 1, of_t)?;
    set_repeated(g, 2, of_e)
}

/// Dtypes of the kernels.
const TYPES: &[DType] = &[
    DType::BFloat16,
    DType::Bool,
    DType::Complex64,
    DType::Complex128,
    DType::Double,
    DType::Float,
    DType::Half,
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::Resource,
    DType::String,
    DType::UInt8,
    DType::UInt16,
    DType::UInt32,
    DType::UInt64,
    DType::Variant,
];

pub(crate) static FAMILY: Family = Family {
    ops: &[SELECT, SELECT_V2],
    kernels: &[
        KernelSpec {
            op: "Select",
            constraints: &[("T", TYPES)],
            create: select,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "SelectV2",
            constraints: &[("T", TYPES)],
            create: select_v2,
            ..KernelSpec::CPU
        },
        KernelSpec::lowering("Select", lower_select).for_dtypes(&[("T", VALUES)]),
        KernelSpec::lowering("SelectV2", |l| {
            let (condition, t, e) = (l.input(0)?, l.input(1)?, l.input(2)?);
            l.set(0, condition.select(&t, &e))
        })
        .for_dtypes(&[("T", VALUES)]),
    ],
};

/// `t` and `e` have one shape; the condition is a scalar, a vector over the rows, or of that shape.
fn select_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (condition, branches) = (c.input(0), c.input(1).merge(c.input(2))?);
    if let (Some(condition_rank), Some(rank)) = (condition.rank(), branches.rank())
        && condition_rank > 0
    {
        if condition_rank == 1 && rank > 0 {
            let (flags, rows) = (condition.dim(0), branches.dim(0));
            ensure!(
                flags.is_none() || rows.is_none() || flags == rows,
                InvalidArgument,
                "condition {condition} must have as many elements as t has rows, {branches}"
            );
        } else {
            condition.merge(&branches)?;
        }
    }
    c.set_output(0, branches);
    Ok(())
}

fn select_v2_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let branches = shape::broadcast_shapes(c.input(1), c.input(2))?;
    c.set_output(0, shape::broadcast_shapes(c.input(0), &branches)?);
    Ok(())
}

fn lower_select(l: &mut Lowering<'_>) -> Result<()> {
    check_same_shapes(l, 1)?;
    let (mut condition, t, e) = (l.input(0)?, l.input(1)?, l.input(2)?);
    let by_row = condition.rank() == 1 && t.rank() != 1;
    ensure!(
        condition.rank() == 0
            || if by_row {
                t.dims().first() == condition.dims().first()
            } else {
                t.dims() == condition.dims()
            },
        InvalidArgument,
        "condition {:?} must be a scalar, have the shape {:?} of t, or one element for each of its rows",
        condition.dims(),
        t.dims()
    );
    if by_row {
        condition = condition.broadcast_in(t.dims(), &[0]);
    }
    l.set(0, condition.select(&t, &e))
}

fn select(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("T")?;
    AnyKernel::new(move |ctx| {
        let (condition, t, e) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        ensure!(
            t.shape() == e.shape(),
            InvalidArgument,
            "t and e must have one shape, got {} and {}",
            t.shape(),
            e.shape()
        );
        if condition.rank() == 0 {
            let chosen = if condition.scalar_value::<bool>()? { 1 } else { 2 };
            let output = ctx.take_input(chosen)?;
            return ctx.set_output(0, output);
        }
        let by_row = condition.rank() == 1 && t.rank() != 1;
        ensure!(
            if by_row {
                t.shape().first() == condition.shape().first()
            } else {
                t.shape() == condition.shape()
            },
            InvalidArgument,
            "condition of shape {} must be a scalar, a vector over the rows of t, or of t's shape {}",
            condition.shape(),
            t.shape()
        );
        let mut lined_up = condition.shape().clone();
        if by_row {
            let mut sizes = vec![1; t.rank()];
            sizes[0] = condition.num_elements();
            lined_up = Shape::new(&sizes)?;
        }
        choose(ctx, dtype, &lined_up)
    })
}

fn select_v2(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("T")?;
    AnyKernel::new(move |ctx| {
        let condition = ctx.input(0)?.shape().clone();
        choose(ctx, dtype, &condition)
    })
}

/// Selects from broadcast inputs; the condition is broadcast from shape `condition`.
fn choose(ctx: &mut KernelContext<'_>, dtype: DType, condition: &Shape) -> Result<()> {
    let (t, e) = (ctx.input(1)?, ctx.input(2)?);
    let shapes = [condition, t.shape(), e.shape()];
    let shape = broadcast_shape(&shapes)?;
    let plan = Plan::new(&shape, shapes);
    with_cell!(dtype, C => choose_cells::<C>(ctx, dtype, shape, &plan))
}

fn choose_cells<C: Cell>(
    ctx: &mut KernelContext<'_>,
    dtype: DType,
    shape: Shape,
    plan: &Plan<3>,
) -> Result<()> {
    let mut out = blank(ctx, dtype, shape)?;
    let flags = ctx.slice::<bool>(0)?;
    let (t, e) = (C::view(ctx.input(1)?)?, C::view(ctx.input(2)?)?);
    let cost = nanoseconds_per_cell::<C>() * 3.0 + 0.2;
    let strides = plan.row_strides();
    for_each_rows(ctx, C::view_mut(&mut out)?, 1, cost, |first, part| {
        plan.for_each_row(first..first + part.len(), |at, position, len| {
            let out = &mut part[position - first..][..len];
            choose_row(out, &flags[at[0]..], &t[at[1]..], &e[at[2]..], strides);
        });
    })?;
    ctx.set_output(0, out)
}

/// One row, in which each operand has stride 0 or 1.
#[inline]
fn choose_row<C: Cell>(out: &mut [C], flags: &[bool], t: &[C], e: &[C], strides: [usize; 3]) {
    let n = out.len();
    match strides {
        [1, 1, 1] => {
            let operands = flags[..n].iter().zip(&t[..n]).zip(&e[..n]);
            for (out, ((&flag, t), e)) in out.iter_mut().zip(operands) {
                *out = if flag { t.clone() } else { e.clone() };
            }
        }
        [0, t_stride, e_stride] => {
            let (chosen, stride) = if flags[0] { (t, t_stride) } else { (e, e_stride) };
            for (i, out) in out.iter_mut().enumerate() {
                *out = chosen[i * stride].clone();
            }
        }
        [_, t_stride, e_stride] => {
            for (i, (out, &flag)) in out.iter_mut().zip(flags).enumerate() {
                *out = if flag { t[i * t_stride].clone() } else { e[i * e_stride].clone() };
            }
        }
    }
}
