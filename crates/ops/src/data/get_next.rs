//! `IteratorGetNext`: queued calls, each for one element.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{
    AnyKernel, AsyncCall, AsyncKernel, Family, KernelInit, KernelSpec, Outputs, Registration, Value,
};
use thalweg_tensor::{Result, err};

use super::dataset::Iterate;
use super::element::{Element, Spec};
use super::iterator::IteratorResource;
use super::optional::{declared_shapes, optional};
use super::task::{After, Task, Work};
use crate::state::handle::state_of_call;

pub(crate) static FAMILY: Family = Family {
    ops: &[ITERATOR_GET_NEXT, ITERATOR_GET_NEXT_SYNC, ITERATOR_GET_NEXT_AS_OPTIONAL],
    kernels: &[
        KernelSpec { op: "IteratorGetNext", create: get_next, ..KernelSpec::CPU },
        KernelSpec { op: "IteratorGetNextSync", create: get_next, ..KernelSpec::CPU },
        KernelSpec { op: "IteratorGetNextAsOptional", create: get_optional, ..KernelSpec::CPU },
    ],
};

const ITERATOR_GET_NEXT: OpDef =
    OpDef::new("IteratorGetNext", declared_shapes).with_work(thalweg_graph::Work::fixed::<5>);

const ITERATOR_GET_NEXT_SYNC: OpDef = OpDef { name: "IteratorGetNextSync", ..ITERATOR_GET_NEXT };

const ITERATOR_GET_NEXT_AS_OPTIONAL: OpDef =
    OpDef { name: "IteratorGetNextAsOptional", shape: shape::scalar, ..ITERATOR_GET_NEXT };

/// A call that waits for an element.
pub(crate) struct Request {
    pub(crate) number: u64,
    pub(crate) call: AsyncCall,
    spec: Spec,
    is_optional: bool,
    pub(crate) registration: Option<Registration>,
}

impl Request {
    /// A call that expects elements of this spec.
    pub(crate) fn new(number: u64, call: AsyncCall, spec: Spec) -> Request {
        Request { number, call, spec, is_optional: false, registration: None }
    }

    /// The node's outputs for a drawn element.
    pub(crate) fn outputs(&self, next: Result<Option<Element>>) -> Result<Outputs> {
        let next = next?;
        if let Some(element) = &next {
            self.spec.check(element)?;
        }
        if self.is_optional {
            return Ok(Outputs::from_iter([Value::Tensor(optional(next)?)]));
        }
        let element = next.ok_or_else(|| err!(OutOfRange, "End of sequence"))?;
        Ok(element.into_iter().map(Value::Tensor).collect())
    }
}

/// An iterator and the queue of calls for its elements.
pub(crate) struct GetNextQueue {
    iterator: Mutex<Box<dyn Iterate>>,
    waiting: Mutex<VecDeque<Request>>,
    /// An element that was drawn for a call that was cancelled meanwhile.
    kept: Mutex<Option<Result<Option<Element>>>>,
    next_number: AtomicU64,
    drawn: AtomicU64,
}

impl GetNextQueue {
    /// `drawn` is the number of elements that the iterator has already produced.
    pub(crate) fn new(iterator: Box<dyn Iterate>, drawn: u64) -> GetNextQueue {
        GetNextQueue {
            iterator: Mutex::new(iterator),
            waiting: Mutex::default(),
            kept: Mutex::default(),
            next_number: AtomicU64::new(0),
            drawn: AtomicU64::new(drawn),
        }
    }

    /// Number of elements drawn.
    pub(crate) fn drawn(&self) -> u64 {
        self.drawn.load(Ordering::Relaxed)
    }

    fn withdraw(&self, number: u64) -> Option<Request> {
        let mut waiting = self.waiting.lock();
        let position = waiting.iter().position(|request| request.number == number)?;
        waiting.remove(position)
    }
}

impl Work for GetNextQueue {
    fn advance(&self, cx: &mut Context<'_>) -> After {
        if self.waiting.lock().is_empty() {
            return After::default();
        }
        let kept = self.kept.lock().take();
        let next = match kept {
            Some(next) => next,
            None => match self.iterator.lock().poll_next(cx) {
                Poll::Ready(next) => next,
                Poll::Pending => return After::default(),
            },
        };
        let (request, is_more) = {
            let mut waiting = self.waiting.lock();
            (waiting.pop_front(), !waiting.is_empty())
        };
        let Some(mut request) = request else {
            *self.kept.lock() = Some(next);
            return After::default();
        };
        if !matches!(next, Ok(None)) {
            self.drawn.fetch_add(1, Ordering::Relaxed);
        }
        let result = request.outputs(next);
        drop(request.registration.take());
        After { is_more, then: Some(Box::new(move || request.call.complete(result))) }
    }
}

/// Enqueues `call` for the next element; it completes at once if the element is available.
fn submit(queue: &Arc<Task<GetNextQueue>>, call: AsyncCall, spec: Spec, is_optional: bool) {
    let number = queue.work.next_number.fetch_add(1, Ordering::Relaxed);
    let step = call.step.clone();
    let request = Request { number, call, spec, is_optional, registration: None };
    queue.work.waiting.lock().push_back(request);
    queue.run_here();
    let is_waiting = || queue.work.waiting.lock().iter().any(|request| request.number == number);
    if !is_waiting() {
        return;
    }
    let weak = Arc::downgrade(queue);
    let registration = step.cancellation().on_cancel(move |cause| {
        let withdrawn = weak.upgrade().and_then(|queue| queue.work.withdraw(number));
        if let Some(request) = withdrawn {
            request.call.complete(Err(cause.clone()));
        }
    });
    let unused = {
        let mut waiting = queue.work.waiting.lock();
        match waiting.iter_mut().find(|request| request.number == number) {
            Some(request) => request.registration.replace(registration),
            None => Some(registration),
        }
    };
    drop(unused);
}

struct GetNext {
    spec: Spec,
    is_optional: bool,
}

impl AsyncKernel for GetNext {
    fn start(&self, call: AsyncCall) {
        let queue = state_of_call::<IteratorResource>(&call, 0).and_then(|found| found.queue());
        match queue {
            Ok(queue) => submit(&queue, call, self.spec.clone(), self.is_optional),
            Err(e) => call.complete(Err(e)),
        }
    }
}

fn get_next(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let spec = Spec::of(init.attrs())?;
    Ok(AnyKernel::Async(Arc::new(GetNext { spec, is_optional: false })))
}

fn get_optional(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let spec = Spec::of(init.attrs())?;
    Ok(AnyKernel::Async(Arc::new(GetNext { spec, is_optional: true })))
}
