//! Token queues: one queue per worker, on which the worker waits.

use thalweg_api::{Graph, NewOp, Operation, Output, Resource, tf};
use thalweg_tensor::{DType, PartialShape};

/// The capacity of a queue: a reader that is gone must not fill a server's memory.
const UNREAD_MAX: i32 = 1000;

/// An int64 queue with a single reader.
///
/// Numbers increase, and the reader takes all that are there and uses the greatest, so duplicates
/// do no harm. A number that finds the queue full is dropped: the reader, once it has emptied the
/// queue, waits for the next.
#[derive(Clone)]
pub(super) struct Tokens {
    handle: Output<Resource>,
    unread_max: i32,
}

impl Tokens {
    /// The queue of worker `index`, shared by name.
    pub(super) fn new(at: &Graph, name: &str, index: usize) -> Tokens {
        let name = format!("{name}/worker_{index}");
        let queue = NewOp::new(at, "FIFOQueueV2").name(&*name).attr("shared_name", &*name);
        let queue = queue.attr("component_types", &[DType::Int64][..]);
        let queue = queue.attr("shapes", &[PartialShape::scalar()][..]);
        Tokens { handle: queue.output(), unread_max: UNREAD_MAX }
    }

    /// The queue as a condition variable: only whether it was signalled matters, not the numbers.
    pub(super) fn signal(self) -> Tokens {
        Tokens { unread_max: 1, ..self }
    }

    /// Enqueues a number.
    pub(super) fn write(&self, at: &Graph, number: &Output<i64>) -> Operation {
        let queue = self.handle.within(at);
        let has_room = tf::queue_size_v2(&queue).less(self.unread_max);
        let numbers = tf::fill(has_room.cast::<i32>().reshape([1]), number);
        tf::queue_enqueue_many_v2(queue, &[numbers.any()])
    }

    /// Enqueues a number that says nothing.
    pub(super) fn ring(&self, at: &Graph) -> Operation {
        self.write(at, &at.constant(0))
    }

    /// Waits for a number; returns the greatest in the queue.
    pub(super) fn wait(&self, at: &Graph) -> Output<i64> {
        let first = tf::queue_dequeue_v2(self.handle.within(at), &[DType::Int64]);
        let first: Output<i64> = first[0].typed();
        let rest = self.take_all(&at.after(&[&first])).within(at);
        at.concat(&[&first.reshape([1]), &rest], 0).max()
    }

    /// Empties the queue without waiting: there is no other reader.
    pub(super) fn take_all(&self, at: &Graph) -> Output<i64> {
        let queue = self.handle.within(at);
        let size = tf::queue_size_v2(&queue);
        tf::queue_dequeue_many_v2(queue, size, &[DType::Int64])[0].typed()
    }
}
