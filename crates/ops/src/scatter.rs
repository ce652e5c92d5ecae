//! `ScatterNd` and `TensorScatter` ops.

use smallvec::SmallVec;
use thalweg_graph::shape::{self, ShapeContext};
use thalweg_graph::{GradientContext, OpDef, Output};
use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{
    Bytes, Complex32, Complex64, DType, PartialShape, Result, Shape, Tensor, bail, bf16, ensure,
    f16,
};

use crate::cells::{Cell, nanoseconds_per_cell};
use crate::gather::{Points, has_lenient_policy, ignores_bad_indices};
use crate::gradient_shapes::shape_as;
use crate::indices::{Indices, coordinates};
use crate::number::{Number, Ordered};
use crate::rows_lowering::scattered;
use crate::split::Disjoint;
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        SCATTER_ND.with_gradient(scatter_nd_grad),
        TENSOR_SCATTER_UPDATE.with_gradient(scatter_update_grad),
        TENSOR_SCATTER_ADD.with_gradient(scatter_add_grad),
        TENSOR_SCATTER_SUB.with_gradient(scatter_sub_grad),
        TENSOR_SCATTER_MAX.with_gradient(scatter_extremum_grad),
        TENSOR_SCATTER_MIN.with_gradient(scatter_extremum_grad),
        SCATTER_ND_NON_ALIASING_ADD.with_gradient(scatter_add_grad),
    ],
    kernels: &[
        KernelSpec {
            op: "ScatterNd",
            host_inputs: &["shape"],
            create: scatter_nd,
            ..KernelSpec::CPU
        },
        KernelSpec { op: "TensorScatterUpdate", create: tensor_scatter, ..KernelSpec::CPU },
        KernelSpec { op: "TensorScatterAdd", create: tensor_scatter, ..KernelSpec::CPU },
        KernelSpec { op: "TensorScatterSub", create: tensor_scatter, ..KernelSpec::CPU },
        KernelSpec { op: "TensorScatterMax", create: tensor_scatter, ..KernelSpec::CPU },
        KernelSpec { op: "TensorScatterMin", create: tensor_scatter, ..KernelSpec::CPU },
        KernelSpec { op: "ScatterNdNonAliasingAdd", create: tensor_scatter, ..KernelSpec::CPU },
        KernelSpec::lowering("ScatterNd", lower_scatter_nd).with_host_inputs(&["shape"]),
        KernelSpec::lowering("TensorScatterUpdate", |l| lower_tensor_scatter(l, Update::Assign)),
        KernelSpec::lowering("TensorScatterAdd", |l| lower_tensor_scatter(l, Update::Add)),
        KernelSpec::lowering("TensorScatterSub", |l| lower_tensor_scatter(l, Update::Sub)),
        KernelSpec::lowering("TensorScatterMax", |l| lower_tensor_scatter(l, Update::Max)),
        KernelSpec::lowering("TensorScatterMin", |l| lower_tensor_scatter(l, Update::Min)),
        KernelSpec::lowering("ScatterNdNonAliasingAdd", |l| lower_tensor_scatter(l, Update::Add)),
    ],
};

/// How an update is combined with an element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Update {
    /// Replaces the element.
    Assign,
    /// Adds to the element.
    Add,
    /// Subtracts from the element.
    Sub,
    /// Takes the maximum.
    Max,
    /// Takes the minimum.
    Min,
}

impl Update {
    /// An element combined with an update, on an accelerator.
    pub(crate) fn lower(self, element: &Value, update: &Value) -> Value {
        match self {
            Update::Assign => update.clone(),
            Update::Add if element.dtype() == DType::Bool => element.or(update),
            Update::Add => element + update,
            Update::Sub => element - update,
            Update::Max => update.compare(Comparison::Greater, element).select(update, element),
            Update::Min => update.compare(Comparison::Less, element).select(update, element),
        }
    }
}

const SCATTER_ND: OpDef =
    OpDef::new("ScatterNd", scatter_nd_shape).with_work(|c| work::scatter(c, 0));

fn scatter_nd_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.shape_from_input(2)?;
    check_scatter_shapes(&shape, c.input(0), c.input(1))?;
    c.set_output(0, shape);
    Ok(())
}

/// Checks the known shapes of indices, updates and the target for compatibility.
pub(crate) fn check_scatter_shapes(
    target: &PartialShape,
    indices: &PartialShape,
    updates: &PartialShape,
) -> Result<()> {
    let (Some(target_dims), Some(indices_dims), Some(updates_dims)) =
        (target.dims(), indices.dims(), updates.dims())
    else {
        return Ok(());
    };
    let Some((&Some(depth), outer)) = indices_dims.split_last() else { return Ok(()) };
    let fits = target_dims.get(depth..).is_some_and(|inner| {
        let expected = PartialShape::new(outer.iter().chain(inner).copied());
        expected.merge(&PartialShape::new(updates_dims.iter().copied())).is_ok()
    });
    ensure!(
        fits,
        InvalidArgument,
        "updates of shape {updates} do not fit indices of shape {indices} into shape {target}"
    );
    Ok(())
}

fn scatter_nd(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let ignores = ignores_bad_indices(init)?;
    let dtype = init.output_dtype(0);
    AnyKernel::new(move |ctx| {
        let shape = ctx.shape_input(2, "shape")?;
        let (indices, updates) = (ctx.input(0)?, ctx.input(1)?);
        ensure!(
            indices.rank() >= 1,
            InvalidArgument,
            "Indices shape must have rank at least one. Found:{}",
            indices.shape()
        );
        ensure!(
            shape.num_elements() > 0
                || (indices.num_elements() == 0 && updates.num_elements() == 0),
            InvalidArgument,
            "Indices and updates specified for empty output.  indices shape: {}",
            indices.shape()
        );
        let mut output = ctx.zeros(dtype, shape)?;
        scatter(ctx, &mut output, indices, updates, Update::Add, ignores)?;
        ctx.set_output(0, output)
    })
}

fn lower_scatter_nd(l: &mut Lowering<'_>) -> Result<()> {
    has_lenient_policy(&l.attrs())?;
    let (indices, updates, dims) = (l.input(0)?, l.input(1)?, l.output_dims(0)?);
    ensure!(
        !dims.contains(&0) || (indices.num_elements() == 0 && updates.num_elements() == 0),
        InvalidArgument,
        "Indices and updates specified for empty output.  indices shape: {:?}",
        indices.dims()
    );
    let zeros = updates.splat(updates.dtype(), &dims, 0.0);
    l.set(0, scattered(&zeros, &indices, &updates, |x, y| Update::Add.lower(x, y))?)
}

fn lower_tensor_scatter(l: &mut Lowering<'_>, update: Update) -> Result<()> {
    has_lenient_policy(&l.attrs())?;
    let (x, indices, updates) = (l.input(0)?, l.input(1)?, l.input(2)?);
    ensure!(
        indices.rank() >= 1,
        InvalidArgument,
        "Indices shape must have rank at least one. Found:{:?}",
        indices.dims()
    );
    l.set(0, scattered(&x, &indices, &updates, |x, y| update.lower(x, y))?)
}

const TENSOR_SCATTER_UPDATE: OpDef =
    OpDef::new("TensorScatterUpdate", tensor_scatter_shape).with_work(|c| work::scatter(c, 1));
const TENSOR_SCATTER_ADD: OpDef =
    OpDef::new("TensorScatterAdd", tensor_scatter_shape).with_work(|c| work::scatter(c, 1));
const TENSOR_SCATTER_SUB: OpDef =
    OpDef::new("TensorScatterSub", tensor_scatter_shape).with_work(|c| work::scatter(c, 1));
const TENSOR_SCATTER_MAX: OpDef =
    OpDef::new("TensorScatterMax", tensor_scatter_shape).with_work(|c| work::scatter(c, 1));
const TENSOR_SCATTER_MIN: OpDef =
    OpDef::new("TensorScatterMin", tensor_scatter_shape).with_work(|c| work::scatter(c, 1));

fn tensor_scatter_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    check_scatter_shapes(c.input(0), c.input(1), c.input(2))?;
    shape::unchanged(c)
}

/// The predecessor of `TensorScatterAdd`, which may update its input in place.
const SCATTER_ND_NON_ALIASING_ADD: OpDef =
    OpDef { name: "ScatterNdNonAliasingAdd", ..TENSOR_SCATTER_ADD };

fn tensor_scatter(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let update = match init.node.op.name.as_str() {
        "TensorScatterAdd" | "ScatterNdNonAliasingAdd" => Update::Add,
        "TensorScatterSub" => Update::Sub,
        "TensorScatterMax" => Update::Max,
        "TensorScatterMin" => Update::Min,
        _ => Update::Assign,
    };
    let ignores = ignores_bad_indices(init)?;
    AnyKernel::new(move |ctx| {
        ensure!(
            ctx.input(1)?.rank() >= 1,
            InvalidArgument,
            "Indices shape must have rank at least one. Found:{}",
            ctx.input(1)?.shape()
        );
        let mut output = ctx.take_input(0)?;
        output.make_unique(Some(ctx.budget()))?;
        scatter(ctx, &mut output, ctx.input(1)?, ctx.input(2)?, update, ignores)?;
        ctx.set_output(0, output)
    })
}

/// Combines slices of `updates` with the slices of `target` that the rows of `indices` select.
///
/// All indices are checked before anything is written.
pub(crate) fn scatter(
    ctx: &KernelContext<'_>,
    target: &mut Tensor,
    indices: &Tensor,
    updates: &Tensor,
    update: Update,
    ignores: bool,
) -> Result<()> {
    let shape = target.shape().clone();
    let (depth, outer) = match indices.shape().split_last() {
        Some((&depth, outer)) => (depth, outer),
        None => (1, &[][..]),
    };
    let inner = shape.get(depth..).unwrap_or_default();
    let expected: SmallVec<[usize; 8]> = outer.iter().chain(inner).copied().collect();
    ensure!(
        depth <= shape.rank() && updates.shape()[..] == expected[..],
        InvalidArgument,
        "Dimensions [{depth},{}) of input[shape={shape}] must match dimensions [{},{}) of \
         updates[shape={}]",
        shape.rank(),
        outer.len(),
        updates.rank(),
        updates.shape()
    );
    let outer = Shape::new(outer)?;
    let points = Points::new(Indices::of(indices)?, depth, &shape);
    let rows = if updates.num_elements() == 0 { 0 } else { outer.num_elements() };
    for row in 0..rows {
        if !ignores && points.offset(row).is_none() {
            bail!(
                InvalidArgument,
                "indices[{}] = {} does not index into shape {shape}",
                coordinates(row, &outer),
                points.show(row)
            );
        }
    }
    let inner = inner.iter().product();
    let job = Job { ctx, points: &points, rows, inner };
    if update == Update::Assign {
        return with_cell!(target.dtype(), C => {
            job.run(C::view_mut(target)?, C::view(updates)?, nanoseconds_per_cell::<C>(), |to, from| {
                to.clone_from_slice(from);
            })
        });
    }
    combine(&job, target, updates, update)
}

/// A scatter whose inputs have been checked.
struct Job<'a, 'b> {
    ctx: &'a KernelContext<'b>,
    points: &'a Points<'a>,
    rows: usize,
    inner: usize,
}

impl Job<'_, '_> {
    /// Calls `write` on each slice and its update, in the order of the indices. Work is divided by
    /// columns, so that the order holds for every element.
    fn run<T: Send + Sync>(
        &self,
        target: &mut [T],
        updates: &[T],
        cost: f64,
        write: impl Fn(&mut [T], &[T]) + Sync,
    ) -> Result<()> {
        let inner = self.inner;
        let target = Disjoint::new(target);
        self.ctx.parallel_for(inner, self.rows as f64 * cost, |columns| {
            for row in 0..self.rows {
                let Some(start) = self.points.offset(row) else { continue };
                let range = start + columns.start..start + columns.end;
                // SAFETY: ranges of columns are disjoint, and slices are whole rows of `inner`
                // columns, so parts of different threads are; one thread's parts live in turn.
                let to = unsafe { target.part(range) };
                write(to, &updates[row * inner..][columns.clone()]);
            }
        })
    }

    fn number<T: Number>(
        &self,
        target: &mut Tensor,
        updates: &Tensor,
        update: Update,
    ) -> Result<()> {
        let (target, updates) = (target.as_mut_slice::<T>()?, updates.as_slice::<T>()?);
        if update == Update::Sub {
            return self.run(target, updates, 1.0, |to, from| {
                to.iter_mut().zip(from).for_each(|(t, &x)| *t = t.minus(x));
            });
        }
        self.run(target, updates, 1.0, |to, from| {
            to.iter_mut().zip(from).for_each(|(t, &x)| *t = t.plus(x));
        })
    }

    fn extreme<T: Ordered>(
        &self,
        target: &mut Tensor,
        updates: &Tensor,
        update: Update,
    ) -> Result<()> {
        if !matches!(update, Update::Max | Update::Min) {
            return self.number::<T>(target, updates, update);
        }
        let (target, updates) = (target.as_mut_slice::<T>()?, updates.as_slice::<T>()?);
        if update == Update::Max {
            return self.run(target, updates, 1.0, |to, from| {
                to.iter_mut().zip(from).for_each(|(t, &x)| *t = t.greater(x));
            });
        }
        self.run(target, updates, 1.0, |to, from| {
            to.iter_mut().zip(from).for_each(|(t, &x)| *t = t.lesser(x));
        })
    }
}

fn combine(job: &Job<'_, '_>, target: &mut Tensor, updates: &Tensor, update: Update) -> Result<()> {
    match target.dtype() {
        DType::Float => job.extreme::<f32>(target, updates, update),
        DType::Double => job.extreme::<f64>(target, updates, update),
        DType::Half => job.extreme::<f16>(target, updates, update),
        DType::BFloat16 => job.extreme::<bf16>(target, updates, update),
        DType::Int8 => job.extreme::<i8>(target, updates, update),
        DType::Int16 => job.extreme::<i16>(target, updates, update),
        DType::Int32 => job.extreme::<i32>(target, updates, update),
        DType::Int64 => job.extreme::<i64>(target, updates, update),
        DType::UInt8 => job.extreme::<u8>(target, updates, update),
        DType::UInt16 => job.extreme::<u16>(target, updates, update),
        DType::UInt32 => job.extreme::<u32>(target, updates, update),
        DType::UInt64 => job.extreme::<u64>(target, updates, update),
        DType::Complex64 if matches!(update, Update::Add | Update::Sub) => {
            job.number::<Complex32>(target, updates, update)
        }
        DType::Complex128 if matches!(update, Update::Add | Update::Sub) => {
            job.number::<Complex64>(target, updates, update)
        }
        DType::Bool if update == Update::Add => {
            job.run(target.as_mut_slice::<bool>()?, updates.as_slice::<bool>()?, 1.0, |to, from| {
                to.iter_mut().zip(from).for_each(|(t, &x)| *t |= x);
            })
        }
        DType::String if update == Update::Add => {
            job.run(Bytes::view_mut(target)?, Bytes::view(updates)?, 50.0, |to, from| {
                to.iter_mut().zip(from).for_each(|(t, x)| *t = [&t[..], &x[..]].concat().into());
            })
        }
        other => bail!(Unimplemented, "{update:?} has no kernel for {other}"),
    }
}

/// The slices of `x` at the indices.
fn picked(g: &mut GradientContext<'_>, x: Output, indices: Output) -> Result<Output> {
    // `GatherNd` does not support this dtype of indices.
    let is_unsigned = g.dtype(indices) == DType::UInt16;
    let indices = if is_unsigned { g.cast(indices, DType::Int32)? } else { indices };
    g.op_like("GatherNd", &["bad_indices_policy"]).inputs(&[x, indices]).build()
}

fn scatter_nd_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, indices) = (g.grad(0)?, g.input(0));
    let adjoint = picked(g, grad, indices)?;
    g.set(1, adjoint)
}

/// Overwritten elements get no gradient. Of several updates of one element, each gets its adjoint,
/// as in TensorFlow.
fn scatter_update_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, indices, updates) = (g.grad(0)?, g.input(1), g.input(2));
    let zeros = g.add("ZerosLike", &[updates])?;
    let node = g.op_like("TensorScatterUpdate", &["bad_indices_policy"]);
    let kept = node.inputs(&[grad, indices, zeros]).build()?;
    g.set(0, kept)?;
    let adjoint = picked(g, grad, indices)?;
    g.set(2, adjoint)
}

fn scatter_add_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, indices) = (g.grad(0)?, g.input(1));
    g.set(0, grad)?;
    let adjoint = picked(g, grad, indices)?;
    g.set(2, adjoint)
}

fn scatter_sub_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, indices) = (g.grad(0)?, g.input(1));
    g.set(0, grad)?;
    let added = picked(g, grad, indices)?;
    let adjoint = g.add("Neg", &[added])?;
    g.set(2, adjoint)
}

/// All elements and updates that equal the result share its adjoint.
fn scatter_extremum_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, indices, updates) = (g.grad(0)?, g.input(0), g.input(1), g.input(2));
    let (dtype, best) = (g.dtype(grad), g.output(0));
    let is_best = g.add("Equal", &[x, best])?;
    let of_x = g.cast(is_best, dtype)?;
    let best = picked(g, best, indices)?;
    let is_best = g.add("Equal", &[updates, best])?;
    let of_updates = g.cast(is_best, dtype)?;
    let shape = shape_as(g, x, g.dtype(indices))?;
    let node = g.op_like("ScatterNd", &["bad_indices_policy"]);
    let others = node.inputs(&[indices, of_updates, shape]).build()?;
    let count = g.add("AddV2", &[of_x, others])?;
    let share = g.add("RealDiv", &[grad, count])?;
    let adjoint = g.add("Mul", &[share, of_x])?;
    g.set(0, adjoint)?;
    let share = picked(g, share, indices)?;
    let adjoint = g.add("Mul", &[share, of_updates])?;
    g.set(2, adjoint)
}
