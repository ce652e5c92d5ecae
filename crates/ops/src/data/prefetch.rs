//! `PrefetchDataset`: a buffer that is filled ahead of the consumer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Result, ensure};

use super::dataset::{Iterate, Next, Source, Transform, transformation};
use super::element::BufferedElement;
use super::scope::Scope;
use super::task::{After, Task, Work};

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("PrefetchDataset", shape::scalar)],
    kernels: &[KernelSpec { op: "PrefetchDataset", create: prefetch, ..KernelSpec::CPU }],
};

/// Maximum buffer size; more elements would only take memory.
const AHEAD_MAX: usize = 4096;
/// Elements drawn per background job, so that other jobs get their turn.
const ELEMENTS_PER_JOB: usize = 32;

/// `PrefetchDataset`: elements drawn in the background; a count of -1 is automatic.
pub(crate) struct PrefetchDataset {
    pub(crate) buffer: i64,
}

fn prefetch(init: &KernelInit<'_>) -> Result<AnyKernel> {
    transformation(init, |ctx, input, spec| {
        let buffer = ctx.scalar_int(1, "buffer_size")?;
        ensure!(
            buffer >= -1,
            InvalidArgument,
            "buffer_size must be >= 0 or set buffer_size to be -1 for auto-tuning"
        );
        input.then(spec, PrefetchDataset { buffer })
    })
}

impl Transform for PrefetchDataset {
    fn cardinality(&self, input: &Source) -> i64 {
        input.cardinality()
    }

    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        let input = input.iterate(scope)?;
        Ok(match usize::try_from(self.buffer) {
            Ok(0) => input,
            Ok(size) => ahead(input, size, scope),
            // Automatic: two elements per thread.
            Err(_) => ahead(input, scope.background.threads() * 2, scope),
        })
    }
}

/// Prefetches up to `count` elements of `input` in the background.
pub(crate) fn ahead(input: Box<dyn Iterate>, count: usize, scope: &Arc<Scope>) -> Box<dyn Iterate> {
    let producer = Producer {
        input: Mutex::new(Some(input)),
        buffer: Mutex::default(),
        capacity: count.clamp(1, AHEAD_MAX),
        scope: scope.clone(),
    };
    Box::new(Consumer { task: Task::new(&scope.background, producer) })
}

#[derive(Default)]
struct Buffer {
    elements: VecDeque<Result<BufferedElement>>,
    /// The input has ended, or the consumer was dropped.
    is_ended: bool,
    /// The producer stopped because the buffer was full.
    is_stalled: bool,
    awaited: Option<Waker>,
}

struct Producer {
    /// `None` after its end, or after the consumer was dropped.
    input: Mutex<Option<Box<dyn Iterate>>>,
    buffer: Mutex<Buffer>,
    capacity: usize,
    scope: Arc<Scope>,
}

impl Producer {
    /// Whether the buffer has room for another element.
    fn has_room(&self) -> bool {
        let mut buffer = self.buffer.lock();
        buffer.is_stalled = buffer.elements.len() >= self.capacity;
        !buffer.is_stalled && !buffer.is_ended
    }

    fn put(&self, next: Result<Option<BufferedElement>>) {
        let waker = {
            let mut buffer = self.buffer.lock();
            match next.transpose() {
                Some(next) => buffer.elements.push_back(next),
                None => buffer.is_ended = true,
            }
            buffer.awaited.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Work for Producer {
    fn advance(&self, cx: &mut Context<'_>) -> After {
        let mut input = self.input.lock();
        for _ in 0..ELEMENTS_PER_JOB {
            if self.buffer.lock().is_ended {
                let ended = input.take();
                drop(input);
                drop(ended);
                return After::default();
            }
            let Some(source) = &mut *input else { return After::default() };
            if !self.has_room() {
                return After::default();
            }
            let Poll::Ready(next) = source.poll_next(cx) else { return After::default() };
            let hold = |element| BufferedElement::new(element, &self.scope.budget);
            self.put(next.and_then(|next| next.map(hold).transpose()));
        }
        After { is_more: true, then: None }
    }
}

struct Consumer {
    task: Arc<Task<Producer>>,
}

impl Consumer {
    /// Takes an element from the buffer; if it is empty, returns `None` and registers `waker`.
    fn take(&self, waker: &Waker) -> Option<Result<Option<BufferedElement>>> {
        let producer = &self.task.work;
        let mut buffer = producer.buffer.lock();
        let next = buffer.elements.pop_front();
        let is_low = buffer.elements.len() <= producer.capacity / 2;
        let resumes = buffer.is_stalled && is_low && next.is_some();
        if resumes {
            buffer.is_stalled = false;
        }
        let taken = match next {
            Some(next) => Some(next.map(Some)),
            None if buffer.is_ended => Some(Ok(None)),
            None => {
                buffer.awaited = Some(waker.clone());
                None
            }
        };
        drop(buffer);
        if resumes {
            self.task.notify();
        }
        taken
    }
}

impl Iterate for Consumer {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        let mut taken = self.take(cx.waker());
        if taken.is_none() {
            // The consumer's thread runs the producer instead of waiting.
            self.task.run_here();
            taken = self.take(cx.waker());
        }
        match taken {
            Some(next) => Poll::Ready(next.map(|held| held.map(|held| held.element))),
            None => Poll::Pending,
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        let elements = {
            let mut buffer = self.task.work.buffer.lock();
            buffer.is_ended = true;
            buffer.awaited = None;
            std::mem::take(&mut buffer.elements)
        };
        drop(elements);
        // The producer drops the input, on a thread where no poll of it is running.
        self.task.notify();
    }
}
