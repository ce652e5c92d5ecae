//! Queue ops, with reference handles and, as `V2`, with resource handles.

use std::sync::Arc;

use thalweg_graph::{OpDef, ShapeContext, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec, Outputs};
use thalweg_tensor::{DType, Result, Tensor, bail, ensure};

use super::gate::{self, Answer, tensors, update};
use super::queue::{DEQUEUES, ENQUEUES, Queue, Request, listed};
use crate::CHEAP;
use crate::state::handle::{state_input, state_of_call};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        QUEUE_ENQUEUE.without_gradient(),
        QUEUE_ENQUEUE_V2,
        QUEUE_ENQUEUE_MANY.without_gradient(),
        QUEUE_ENQUEUE_MANY_V2,
        QUEUE_DEQUEUE.without_gradient(),
        QUEUE_DEQUEUE_V2,
        QUEUE_DEQUEUE_MANY.without_gradient(),
        QUEUE_DEQUEUE_MANY_V2,
        QUEUE_DEQUEUE_UP_TO.without_gradient(),
        QUEUE_DEQUEUE_UP_TO_V2,
        QUEUE_CLOSE.without_gradient(),
        QUEUE_CLOSE_V2,
        QUEUE_IS_CLOSED,
        QUEUE_IS_CLOSED_V2,
        QUEUE_SIZE.without_gradient(),
        QUEUE_SIZE_V2,
    ],
    kernels: &[
        KernelSpec { op: "QueueEnqueue", create: enqueue, ..KernelSpec::CPU },
        KernelSpec { op: "QueueEnqueueV2", create: enqueue, ..KernelSpec::CPU },
        KernelSpec { op: "QueueEnqueueMany", create: enqueue_many, ..KernelSpec::CPU },
        KernelSpec { op: "QueueEnqueueManyV2", create: enqueue_many, ..KernelSpec::CPU },
        KernelSpec { op: "QueueDequeue", create: dequeue, ..KernelSpec::CPU },
        KernelSpec { op: "QueueDequeueV2", create: dequeue, ..KernelSpec::CPU },
        KernelSpec { op: "QueueDequeueMany", create: dequeue_many, ..KernelSpec::CPU },
        KernelSpec { op: "QueueDequeueManyV2", create: dequeue_many, ..KernelSpec::CPU },
        KernelSpec { op: "QueueDequeueUpTo", create: dequeue_up_to, ..KernelSpec::CPU },
        KernelSpec { op: "QueueDequeueUpToV2", create: dequeue_up_to, ..KernelSpec::CPU },
        KernelSpec { op: "QueueClose", create: close, ..KernelSpec::CPU },
        KernelSpec { op: "QueueCloseV2", create: close, ..KernelSpec::CPU },
        KernelSpec { op: "QueueIsClosed", create: is_closed, ..CHEAP },
        KernelSpec { op: "QueueIsClosedV2", create: is_closed, ..CHEAP },
        KernelSpec { op: "QueueSize", create: size, ..CHEAP },
        KernelSpec { op: "QueueSizeV2", create: size, ..CHEAP },
    ],
};

const QUEUE_ENQUEUE: OpDef = OpDef::new("QueueEnqueue", shape::unknown).with_work(Work::fixed::<2>);

const QUEUE_ENQUEUE_V2: OpDef = OpDef { name: "QueueEnqueueV2", ..QUEUE_ENQUEUE };

const QUEUE_ENQUEUE_MANY: OpDef = OpDef { name: "QueueEnqueueMany", ..QUEUE_ENQUEUE };

const QUEUE_ENQUEUE_MANY_V2: OpDef = OpDef { name: "QueueEnqueueManyV2", ..QUEUE_ENQUEUE_V2 };

const QUEUE_DEQUEUE: OpDef = OpDef::new("QueueDequeue", shape::unknown).with_work(Work::fixed::<2>);

const QUEUE_DEQUEUE_V2: OpDef = OpDef { name: "QueueDequeueV2", ..QUEUE_DEQUEUE };

const QUEUE_DEQUEUE_MANY: OpDef =
    OpDef { name: "QueueDequeueMany", shape: batch_shapes, ..QUEUE_DEQUEUE };

const QUEUE_DEQUEUE_MANY_V2: OpDef = OpDef { name: "QueueDequeueManyV2", ..QUEUE_DEQUEUE_MANY };

const QUEUE_DEQUEUE_UP_TO: OpDef = OpDef { name: "QueueDequeueUpTo", ..QUEUE_DEQUEUE_MANY };

const QUEUE_DEQUEUE_UP_TO_V2: OpDef = OpDef { name: "QueueDequeueUpToV2", ..QUEUE_DEQUEUE_MANY_V2 };

/// Output shapes are unknown; the requested number of elements must be a scalar.
fn batch_shapes(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(1, "n", 0)?;
    Ok(())
}

const QUEUE_CLOSE: OpDef = OpDef::new("QueueClose", shape::unknown);

const QUEUE_CLOSE_V2: OpDef = OpDef { name: "QueueCloseV2", ..QUEUE_CLOSE };

const QUEUE_IS_CLOSED: OpDef = OpDef::new("QueueIsClosed", shape::scalar);

const QUEUE_IS_CLOSED_V2: OpDef = OpDef { name: "QueueIsClosedV2", ..QUEUE_IS_CLOSED };

const QUEUE_SIZE: OpDef = OpDef::new("QueueSize", shape::scalar);

const QUEUE_SIZE_V2: OpDef = OpDef { name: "QueueSizeV2", ..QUEUE_SIZE };

/// Checks the deprecated attr `timeout_ms`: steps have deadlines instead.
pub(crate) fn check_timeout(init: &KernelInit<'_>) -> Result<()> {
    let timeout = init.attrs().int("timeout_ms")?;
    ensure!(timeout == -1, InvalidArgument, "Timeout not supported yet.");
    Ok(())
}

fn enqueue(init: &KernelInit<'_>) -> Result<AnyKernel> {
    check_timeout(init)?;
    gate::kernel(&init.node.op.name, |call| {
        let queue: Arc<Queue> = state_of_call(call, 0)?;
        let components = tensors(call, 1)?;
        queue.spec.check_element(&components)?;
        Ok(Answer::After(queue, ENQUEUES, Request::Enqueue(components)))
    })
}

fn enqueue_many(init: &KernelInit<'_>) -> Result<AnyKernel> {
    check_timeout(init)?;
    gate::kernel(&init.node.op.name, |call| {
        let queue: Arc<Queue> = state_of_call(call, 0)?;
        let batch = tensors(call, 1)?;
        let count = queue.spec.check_batch(&batch)?;
        if count == 0 {
            return Ok(Answer::Now(Outputs::new()));
        }
        Ok(Answer::After(queue, ENQUEUES, Request::EnqueueMany { batch, next: 0, count }))
    })
}

fn check_signature(queue: &Queue, dtypes: &[DType]) -> Result<()> {
    ensure!(
        queue.spec.dtypes == dtypes,
        InvalidArgument,
        "Signature mismatch, have: {} expected: {}",
        listed(dtypes),
        listed(&queue.spec.dtypes)
    );
    Ok(())
}

fn dequeue(init: &KernelInit<'_>) -> Result<AnyKernel> {
    check_timeout(init)?;
    let dtypes = init.attrs().dtypes("component_types")?;
    gate::kernel(&init.node.op.name, move |call| {
        let queue: Arc<Queue> = state_of_call(call, 0)?;
        check_signature(&queue, &dtypes)?;
        Ok(Answer::After(queue, DEQUEUES, Request::Dequeue))
    })
}

fn dequeue_many(init: &KernelInit<'_>) -> Result<AnyKernel> {
    dequeue_batch(init, "DequeueManyOp", false)
}

fn dequeue_up_to(init: &KernelInit<'_>) -> Result<AnyKernel> {
    dequeue_batch(init, "DequeueUpToOp", true)
}

fn dequeue_batch(init: &KernelInit<'_>, called: &'static str, is_up_to: bool) -> Result<AnyKernel> {
    check_timeout(init)?;
    let dtypes = init.attrs().dtypes("component_types")?;
    gate::kernel(&init.node.op.name, move |call| {
        let queue: Arc<Queue> = state_of_call(call, 0)?;
        let requested: i32 = call.input(1)?.scalar_value()?;
        let Ok(count) = usize::try_from(requested) else {
            bail!(InvalidArgument, "{called} requested {requested} < 0 elements");
        };
        check_signature(&queue, &dtypes)?;
        queue.spec.check_batches()?;
        if count == 0 {
            return Ok(Answer::Now(queue.spec.empty_batch(&call.step)?));
        }
        let request = Request::DequeueMany { count, is_up_to, taken: Vec::new() };
        Ok(Answer::After(queue, DEQUEUES, request))
    })
}

fn close(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let cancel_pending_enqueues = init.attrs().bool("cancel_pending_enqueues")?;
    if !cancel_pending_enqueues {
        return gate::kernel(&init.node.op.name, |call| {
            let queue: Arc<Queue> = state_of_call(call, 0)?;
            Ok(Answer::After(queue, ENQUEUES, Request::Close))
        });
    }
    AnyKernel::new(|ctx| {
        let queue: Arc<Queue> = state_input(ctx, 0)?;
        update(ctx, &*queue, || queue.close_and_cancel())
    })
}

fn is_closed(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let queue: Arc<Queue> = state_input(ctx, 0)?;
        ctx.set_output(0, Tensor::scalar(queue.is_closed()))
    })
}

fn size(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let queue: Arc<Queue> = state_input(ctx, 0)?;
        ctx.set_output(0, Tensor::scalar(size_of_state(queue.len())))
    })
}

/// A number of elements, as size ops return it.
pub(crate) fn size_of_state(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}
