//! What a worker waits at: a queue of numbers with one reader.

use thalweg_graph::{NodeId, Output, Scope};
use thalweg_tensor::{DType, PartialShape, Result, Tensor};

/// Numbers that a reader may leave unread; one that is gone must not fill a server's memory.
const UNREAD_MAX: i32 = 1000;

/// A queue of int64 that only one worker reads.
///
/// Numbers grow, and the reader takes all there are and goes by the greatest, so what was written
/// too often does no harm. A number that finds the queue full is left out: its reader, once it has
/// read what there is, waits for the next.
#[derive(Clone, Copy)]
pub(super) struct Tokens {
    handle: Output,
    unread_max: i32,
}

impl Tokens {
    /// The queue of worker `index`, found by its name by whoever asks for it.
    pub(super) fn new(scope: &mut Scope, name: &str, index: usize) -> Result<Tokens> {
        let name = format!("{name}/worker_{index}");
        let queue = scope.op("FIFOQueueV2").name(&name).attr("shared_name", name.as_str());
        let queue = queue.attr("component_types", &[DType::Int64][..]);
        let queue = queue.attr("shapes", &[PartialShape::scalar()][..]);
        Ok(Tokens { handle: queue.build()?, unread_max: UNREAD_MAX })
    }

    /// The queue as a bell: it is rung or not, and numbers say nothing.
    pub(super) fn bell(self) -> Tokens {
        Tokens { unread_max: 1, ..self }
    }

    /// Writes a number.
    pub(super) fn write(self, scope: &mut Scope, number: Output) -> Result<NodeId> {
        let size = scope.op("QueueSizeV2").input(self.handle).build()?;
        let most = scope.constant(&Tensor::scalar(self.unread_max))?;
        let has_room = scope.add("Less", &[size, most])?;
        let count = scope.cast(has_room, DType::Int32)?;
        let count = vector(scope, count)?;
        let numbers = scope.add("Fill", &[count, number])?;
        scope.op("QueueEnqueueManyV2").inputs(&[self.handle, numbers]).build_node()
    }

    /// Waits for a number; the greatest there is.
    pub(super) fn wait(self, scope: &mut Scope) -> Result<Output> {
        let first = scope.op("QueueDequeueV2").input(self.handle);
        let first = first.attr("component_types", &[DType::Int64][..]).build()?;
        let rest = self.take_all(&mut scope.after(&[first.node]))?;
        let first = vector(scope, first)?;
        let axis = scope.constant(&Tensor::scalar(0i32))?;
        let all = scope.op("ConcatV2").inputs(&[first, rest, axis]).build()?;
        scope.add("Max", &[all, axis])
    }

    /// Takes what there is, without waiting: nobody else reads.
    pub(super) fn take_all(self, scope: &mut Scope) -> Result<Output> {
        let size = scope.op("QueueSizeV2").input(self.handle).build()?;
        let all = scope.op("QueueDequeueManyV2").inputs(&[self.handle, size]);
        all.attr("component_types", &[DType::Int64][..]).build()
    }
}

/// A scalar as a vector of one.
fn vector(scope: &mut Scope, scalar: Output) -> Result<Output> {
    let shape = scope.constant(&Tensor::vector(&[1i32])?)?;
    scope.add("Reshape", &[scalar, shape])
}
