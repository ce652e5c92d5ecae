//! Token queues: one queue per worker, on which the worker waits.

use thalweg_graph::{NodeId, Output, Scope};
use thalweg_tensor::{DType, PartialShape, Result, Tensor};

/// The capacity of a queue: a reader that is gone must not fill a server's memory.
const UNREAD_MAX: i32 = 1000;

/// An int64 queue with a single reader.
///
/// Numbers increase, and the reader takes all that are there and uses the greatest, so duplicates
/// do no harm. A number that finds the queue full is dropped: the reader, once it has emptied the
/// queue, waits for the next.
#[derive(Clone, Copy)]
pub(super) struct Tokens {
    handle: Output,
    unread_max: i32,
}

impl Tokens {
    /// The queue of worker `index`, shared by name.
    pub(super) fn new(scope: &mut Scope, name: &str, index: usize) -> Result<Tokens> {
        let name = format!("{name}/worker_{index}");
        let queue = scope.op("FIFOQueueV2").name(&name).attr("shared_name", name.as_str());
        let queue = queue.attr("component_types", &[DType::Int64][..]);
        let queue = queue.attr("shapes", &[PartialShape::scalar()][..]);
        Ok(Tokens { handle: queue.build()?, unread_max: UNREAD_MAX })
    }

    /// The queue as a condition variable: only whether it was signalled matters, not the numbers.
    pub(super) fn signal(self) -> Tokens {
        Tokens { unread_max: 1, ..self }
    }

    /// Enqueues a number.
    pub(super) fn write(self, scope: &mut Scope, number: Output) -> Result<NodeId> {
        let size = scope.op("QueueSizeV2").input(self.handle).build()?;
        let most = scope.constant(&Tensor::scalar(self.unread_max))?;
        let has_room = scope.add("Less", &[size, most])?;
        let count = scope.cast(has_room, DType::Int32)?;
        let count = vector(scope, count)?;
        let numbers = scope.add("Fill", &[count, number])?;
        scope.op("QueueEnqueueManyV2").inputs(&[self.handle, numbers]).build_node()
    }

    /// Waits for a number; returns the greatest in the queue.
    pub(super) fn wait(self, scope: &mut Scope) -> Result<Output> {
        let first = scope.op("QueueDequeueV2").input(self.handle);
        let first = first.attr("component_types", &[DType::Int64][..]).build()?;
        let rest = self.take_all(&mut scope.after(&[first.node]))?;
        let first = vector(scope, first)?;
        let axis = scope.constant(&Tensor::scalar(0i32))?;
        let all = scope.op("ConcatV2").inputs(&[first, rest, axis]).build()?;
        scope.add("Max", &[all, axis])
    }

    /// Empties the queue without waiting: there is no other reader.
    pub(super) fn take_all(self, scope: &mut Scope) -> Result<Output> {
        let size = scope.op("QueueSizeV2").input(self.handle).build()?;
        let all = scope.op("QueueDequeueManyV2").inputs(&[self.handle, size]);
        all.attr("component_types", &[DType::Int64][..]).build()
    }
}

/// A scalar as a vector of one element.
fn vector(scope: &mut Scope, scalar: Output) -> Result<Output> {
    let shape = scope.constant(&Tensor::vector(&[1i32])?)?;
    scope.add("Reshape", &[scalar, shape])
}
