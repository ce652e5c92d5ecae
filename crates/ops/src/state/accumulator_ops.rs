//! Conditional accumulator ops: workers apply gradients, and a take returns their mean once there
//! are enough.
//!
//! Synchronous training uses them: the chief takes a mean once enough workers have applied their
//! gradients, and stale gradients are dropped.

use std::sync::Arc;

use thalweg_graph::{OpDef, Work, shape};
use thalweg_kernel::{
    AnyKernel, AsyncCall, AsyncKernel, Family, KernelContext, KernelInit, KernelSpec,
};
use thalweg_tensor::{DType, Element, Result, Tensor, ensure};

use super::accumulator::Accumulator;
use super::handle::{state_input, state_kernel, state_of_call, two_strings};

use crate::CHEAP;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        CONDITIONAL_ACCUMULATOR,
        RESOURCE_CONDITIONAL_ACCUMULATOR,
        OpDef { name: "SparseConditionalAccumulator", ..CONDITIONAL_ACCUMULATOR },
        ACCUMULATOR_APPLY_GRADIENT,
        RESOURCE_ACCUMULATOR_APPLY_GRADIENT,
        OpDef::new("SparseAccumulatorApplyGradient", shape::unknown).with_work(Work::serial::<20>),
        ACCUMULATOR_TAKE_GRADIENT,
        RESOURCE_ACCUMULATOR_TAKE_GRADIENT,
        SPARSE_ACCUMULATOR_TAKE_GRADIENT,
        ACCUMULATOR_SET_GLOBAL_STEP,
        RESOURCE_ACCUMULATOR_SET_GLOBAL_STEP,
        ACCUMULATOR_NUM_ACCUMULATED,
        RESOURCE_ACCUMULATOR_NUM_ACCUMULATED,
    ],
    kernels: &[
        KernelSpec {
            op: "ConditionalAccumulator",
            constraints: FLOATS,
            create: accumulator,
            ..CHEAP
        },
        KernelSpec {
            op: "ResourceConditionalAccumulator",
            constraints: FLOATS,
            create: accumulator,
            ..CHEAP
        },
        KernelSpec {
            op: "SparseConditionalAccumulator",
            constraints: FLOATS,
            create: accumulator,
            ..CHEAP
        },
        KernelSpec { op: "AccumulatorApplyGradient", create: apply, ..KernelSpec::CPU },
        KernelSpec { op: "ResourceAccumulatorApplyGradient", create: apply, ..KernelSpec::CPU },
        KernelSpec {
            op: "SparseAccumulatorApplyGradient",
            create: sparse_apply,
            ..KernelSpec::CPU
        },
        KernelSpec { op: "AccumulatorTakeGradient", create: take, ..KernelSpec::CPU },
        KernelSpec { op: "ResourceAccumulatorTakeGradient", create: take, ..KernelSpec::CPU },
        KernelSpec { op: "SparseAccumulatorTakeGradient", create: take, ..KernelSpec::CPU },
        KernelSpec { op: "AccumulatorSetGlobalStep", create: set_global_step, ..CHEAP },
        KernelSpec { op: "ResourceAccumulatorSetGlobalStep", create: set_global_step, ..CHEAP },
        KernelSpec { op: "AccumulatorNumAccumulated", create: num_accumulated, ..CHEAP },
        KernelSpec { op: "ResourceAccumulatorNumAccumulated", create: num_accumulated, ..CHEAP },
    ],
};

const FLOATS: &[thalweg_kernel::Constraint] =
    &[("dtype", &[DType::Half, DType::Float, DType::Double])];

const CONDITIONAL_ACCUMULATOR: OpDef = OpDef::new("ConditionalAccumulator", two_strings);

const RESOURCE_CONDITIONAL_ACCUMULATOR: OpDef =
    OpDef { name: "ResourceConditionalAccumulator", ..CONDITIONAL_ACCUMULATOR };

const ACCUMULATOR_APPLY_GRADIENT: OpDef =
    OpDef::new("AccumulatorApplyGradient", shape::unknown).with_work(Work::updates::<1, 1>);

const RESOURCE_ACCUMULATOR_APPLY_GRADIENT: OpDef =
    OpDef { name: "ResourceAccumulatorApplyGradient", ..ACCUMULATOR_APPLY_GRADIENT };

const ACCUMULATOR_TAKE_GRADIENT: OpDef = OpDef::new("AccumulatorTakeGradient", shape::unknown);

const RESOURCE_ACCUMULATOR_TAKE_GRADIENT: OpDef =
    OpDef { name: "ResourceAccumulatorTakeGradient", ..ACCUMULATOR_TAKE_GRADIENT };

const SPARSE_ACCUMULATOR_TAKE_GRADIENT: OpDef =
    OpDef { name: "SparseAccumulatorTakeGradient", ..ACCUMULATOR_TAKE_GRADIENT };

const ACCUMULATOR_SET_GLOBAL_STEP: OpDef = OpDef::new("AccumulatorSetGlobalStep", shape::unknown);

const RESOURCE_ACCUMULATOR_SET_GLOBAL_STEP: OpDef =
    OpDef { name: "ResourceAccumulatorSetGlobalStep", ..ACCUMULATOR_SET_GLOBAL_STEP };

const ACCUMULATOR_NUM_ACCUMULATED: OpDef = OpDef::new("AccumulatorNumAccumulated", shape::scalar);

const RESOURCE_ACCUMULATOR_NUM_ACCUMULATED: OpDef =
    OpDef { name: "ResourceAccumulatorNumAccumulated", ..ACCUMULATOR_NUM_ACCUMULATED };

fn accumulator(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let (dtype, shape) = (attrs.dtype("dtype")?, attrs.shape("shape")?);
    let is_mean = attrs.string("reduction_type")? == "MEAN";
    let is_sparse = init.node.op.name == "SparseConditionalAccumulator";
    state_kernel(
        init,
        false,
        move |ctx, _| {
            let budget = ctx.step().state_budget().clone();
            Ok(Accumulator::new(dtype, shape.clone(), is_sparse, is_mean, budget))
        },
        move |found: &Accumulator, name| {
            ensure!(
                found.dtype == dtype && found.is_sparse == is_sparse,
                InvalidArgument,
                "Shared conditional accumulator '{name}' holds {}, not {dtype}",
                found.dtype
            );
            Ok(())
        },
    )
}

/// The element of a tensor that must be a scalar.
fn scalar<T: Element>(tensor: &Tensor, name: &str) -> Result<T> {
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "Argument {name} must be scalar, but had bad shape {}",
        tensor.shape()
    );
    tensor.scalar_value()
}

fn check_dtype(accumulator: &Accumulator, dtype: DType) -> Result<()> {
    ensure!(
        accumulator.dtype == dtype,
        InvalidArgument,
        "Signature mismatch: the accumulator is {}, the op {dtype}",
        accumulator.dtype
    );
    Ok(())
}

/// Changes an accumulator through [`update`], as all state changes are.
fn change(
    ctx: &KernelContext<'_>,
    accumulator: &Accumulator,
    change: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let (op, step) = (&ctx.node().op.name, ctx.step().step_id());
    ctx.resources().update(accumulator, op, step, change)
}

fn apply(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let accumulator: Arc<Accumulator> = state_input(ctx, 0)?;
        let local_step = scalar(ctx.input(1)?, "local_step")?;
        let gradient = ctx.take_input(2)?;
        check_dtype(&accumulator, gradient.dtype())?;
        change(ctx, &accumulator, || accumulator.apply_dense(ctx, local_step, gradient))
    })
}

fn sparse_apply(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let has_known_shape = init.attrs().bool("has_known_shape")?;
    AnyKernel::new(move |ctx| {
        let accumulator: Arc<Accumulator> = state_input(ctx, 0)?;
        let local_step = scalar(ctx.input(1)?, "local_step")?;
        let (indices, values) = (ctx.input(2)?, ctx.input(3)?);
        check_dtype(&accumulator, values.dtype())?;
        let shape = if has_known_shape { Some(ctx.input(4)?) } else { None };
        change(ctx, &accumulator, || accumulator.apply_sparse(local_step, indices, values, shape))
    })
}

/// The kernel of takes, which wait for enough gradients or the end of the step.
struct Take {
    op: Arc<str>,
    dtype: DType,
}

impl AsyncKernel for Take {
    fn start(&self, call: AsyncCall) {
        match self.prepare(&call) {
            Ok((accumulator, required)) => accumulator.take(&self.op, required, call),
            Err(e) => call.complete(Err(e)),
        }
    }
}

impl Take {
    fn prepare(&self, call: &AsyncCall) -> Result<(Arc<Accumulator>, i32)> {
        let accumulator: Arc<Accumulator> = state_of_call(call, 0)?;
        let required: i32 = scalar(call.input(1)?, "num_required")?;
        check_dtype(&accumulator, self.dtype)?;
        ensure!(
            accumulator.is_sparse == (call.num_outputs == 3),
            InvalidArgument,
            "{} cannot take from this accumulator: one of the two is sparse",
            self.op
        );
        ensure!(
            required > 0,
            InvalidArgument,
            "Argument num_required must be positive, but was {required}"
        );
        Ok((accumulator, required))
    }
}

fn take(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("dtype")?;
    Ok(AnyKernel::Async(Arc::new(Take { op: init.node.op.name.as_str().into(), dtype })))
}

fn set_global_step(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let accumulator: Arc<Accumulator> = state_input(ctx, 0)?;
        let step = scalar(ctx.input(1)?, "new_global_step")?;
        change(ctx, &accumulator, || {
            accumulator.set_global_step(step);
            Ok(())
        })
    })
}

fn num_accumulated(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let accumulator: Arc<Accumulator> = state_input(ctx, 0)?;
        ctx.set_output(0, Tensor::scalar(accumulator.count()))
    })
}
