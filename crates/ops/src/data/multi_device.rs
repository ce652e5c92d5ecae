//! `MultiDeviceIterator`: elements distributed round-robin over several devices.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, AsyncCall, AsyncKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Resource, Result, Tensor, bail, ensure, err};

use super::dataset::{Iterate, Source};
use super::element::{BufferedElement, Element, Spec};
use super::get_next::Request;
use super::iterator::{from_string, to_string};
use super::optional::declared_shapes;
use super::scope::Scope;
use super::seeds::set_anonymous;
use super::task::{After, Task, Work};
use crate::state::handle::{state_input, state_kernel, state_of_call};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        MULTI_DEVICE_ITERATOR,
        ANONYMOUS_MULTI_DEVICE_ITERATOR,
        ANONYMOUS_MULTI_DEVICE_ITERATOR_V3,
        MULTI_DEVICE_ITERATOR_INIT,
        MULTI_DEVICE_ITERATOR_GET_NEXT_FROM_SHARD,
        MULTI_DEVICE_ITERATOR_TO_STRING_HANDLE,
        MULTI_DEVICE_ITERATOR_FROM_STRING_HANDLE,
        DELETE_MULTI_DEVICE_ITERATOR,
    ],
    kernels: &[
        KernelSpec { op: "MultiDeviceIterator", create: named, ..KernelSpec::CPU },
        KernelSpec { op: "AnonymousMultiDeviceIterator", create: anonymous, ..KernelSpec::CPU },
        KernelSpec { op: "AnonymousMultiDeviceIteratorV3", create: anonymous, ..KernelSpec::CPU },
        KernelSpec { op: "MultiDeviceIteratorInit", create: start, ..KernelSpec::CPU },
        KernelSpec {
            op: "MultiDeviceIteratorGetNextFromShard",
            create: get_next,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "MultiDeviceIteratorToStringHandle",
            create: to_string::<MultiDevice>,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "MultiDeviceIteratorFromStringHandle",
            create: from_string::<MultiDevice>,
            ..KernelSpec::CPU
        },
        KernelSpec { op: "DeleteMultiDeviceIterator", create: delete, ..KernelSpec::CPU },
    ],
};

const MULTI_DEVICE_ITERATOR: OpDef = OpDef::new("MultiDeviceIterator", shape::scalar);

const ANONYMOUS_MULTI_DEVICE_ITERATOR: OpDef =
    OpDef { name: "AnonymousMultiDeviceIterator", ..ANONYMOUS_MULTI_DEVICE_ITERATOR_V3 };

const ANONYMOUS_MULTI_DEVICE_ITERATOR_V3: OpDef =
    OpDef { name: "AnonymousMultiDeviceIteratorV3", ..MULTI_DEVICE_ITERATOR };

const MULTI_DEVICE_ITERATOR_INIT: OpDef = OpDef {
    name: "MultiDeviceIteratorInit",
    work: thalweg_graph::Work::fixed::<20>,
    ..MULTI_DEVICE_ITERATOR
};

const MULTI_DEVICE_ITERATOR_GET_NEXT_FROM_SHARD: OpDef = OpDef {
    name: "MultiDeviceIteratorGetNextFromShard",
    shape: declared_shapes,
    work: thalweg_graph::Work::fixed::<5>,
    ..MULTI_DEVICE_ITERATOR
};

const MULTI_DEVICE_ITERATOR_TO_STRING_HANDLE: OpDef =
    OpDef { name: "MultiDeviceIteratorToStringHandle", ..MULTI_DEVICE_ITERATOR };

const MULTI_DEVICE_ITERATOR_FROM_STRING_HANDLE: OpDef =
    OpDef { name: "MultiDeviceIteratorFromStringHandle", ..MULTI_DEVICE_ITERATOR };

const DELETE_MULTI_DEVICE_ITERATOR: OpDef =
    OpDef { name: "DeleteMultiDeviceIterator", shape: shape::unknown, ..MULTI_DEVICE_ITERATOR };

/// The `MultiDeviceIterator` resource.
pub(crate) struct MultiDevice {
    spec: Spec,
    shards: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Incremented by each initialization (`incarnation_id`).
    incarnation: i64,
    distribution: Option<Distribution>,
}

/// A dataset that is being distributed over the shards.
struct Distribution {
    scope: Arc<Scope>,
    distributor: Arc<Task<Distributor>>,
}

impl Drop for Distribution {
    fn drop(&mut self) {
        self.scope.cancellation.cancel(err!(Cancelled, "the iterator was dropped"));
        let shards = std::mem::take(&mut self.distributor.work.queues.lock().shards);
        for request in shards.into_iter().flat_map(|shard| shard.waiting) {
            request
                .call
                .complete(Err(err!(Cancelled, "the MultiDeviceIterator was initialized again")));
        }
    }
}

impl Resource for MultiDevice {
    fn kind(&self) -> &'static str {
        "MultiDeviceIterator"
    }
}

impl super::iterator::ElementSource for MultiDevice {
    fn spec(&self) -> &Spec {
        &self.spec
    }
}

fn new(init: &KernelInit<'_>) -> Result<impl Fn() -> MultiDevice + Send + Sync + use<>> {
    let spec = Spec::of(init.attrs())?;
    let shards = init.attrs().strings("devices")?.len();
    Ok(move || MultiDevice { spec: spec.clone(), shards, state: Mutex::default() })
}

fn named(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let (new, wanted) = (new(init)?, Spec::of(init.attrs())?);
    state_kernel(
        init,
        false,
        move |_, _| Ok(new()),
        move |found: &MultiDevice, _| wanted.check_accepts(&found.spec),
    )
}

fn anonymous(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let new = new(init)?;
    AnyKernel::new(move |ctx| set_anonymous(ctx, Arc::new(new()), "AnonymousMultiDeviceIterator"))
}

/// Deletes an anonymous iterator: its handles own it, so it is freed with the last of them.
fn delete(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| state_input::<MultiDevice>(ctx, 0).map(drop))
}

fn start(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let (dataset, iterator) = (Source::input(ctx, 0)?, state_input::<MultiDevice>(ctx, 1)?);
        let capacity = ctx.scalar_int(2, "max_buffer_size")?;
        iterator.spec.check_accepts(dataset.spec())?;
        let scope = Scope::new(ctx.step());
        let queues = ShardQueues {
            shards: (0..iterator.shards).map(|_| Shard::default()).collect(),
            next: 0,
            is_ended: false,
            number: 0,
        };
        let distributor = Distributor {
            input: Mutex::new(dataset.iterate(&scope)?),
            queues: Mutex::new(queues),
            capacity: usize::try_from(capacity).unwrap_or(1).max(1),
            scope: scope.clone(),
        };
        let distributor = Task::new(&scope.background, distributor);
        let mut state = iterator.state.lock();
        let before = state.distribution.replace(Distribution { scope, distributor });
        state.incarnation += 1;
        let incarnation = state.incarnation;
        drop(state);
        drop(before);
        ctx.set_output(0, Tensor::scalar(incarnation))
    })
}

/// Draws elements and distributes them round-robin, as long as a call waits for one.
struct Distributor {
    input: Mutex<Box<dyn Iterate>>,
    queues: Mutex<ShardQueues>,
    /// Maximum buffered elements per shard (`max_buffer_size`).
    capacity: usize,
    scope: Arc<Scope>,
}

struct ShardQueues {
    shards: Vec<Shard>,
    /// Index of the shard that gets the next element.
    next: usize,
    is_ended: bool,
    /// Next request number.
    number: u64,
}

#[derive(Default)]
struct Shard {
    distributed: VecDeque<Result<BufferedElement>>,
    waiting: VecDeque<Request>,
}

impl ShardQueues {
    /// A request that can be completed, with its result.
    fn ready(&mut self) -> Option<(Request, Result<Option<Element>>)> {
        let is_ended = self.is_ended;
        self.shards.iter_mut().find_map(|shard| {
            if shard.waiting.is_empty() || (shard.distributed.is_empty() && !is_ended) {
                return None;
            }
            let answer = match shard.distributed.pop_front() {
                Some(next) => next.map(|held| Some(held.element)),
                None => Ok(None),
            };
            shard.waiting.pop_front().map(|request| (request, answer))
        })
    }

    fn is_awaited(&self) -> bool {
        self.shards.iter().any(|shard| !shard.waiting.is_empty())
    }

    fn distribute(&mut self, next: Result<Option<BufferedElement>>) {
        match next.transpose() {
            Some(next) => {
                let at = self.next;
                if let Some(shard) = self.shards.get_mut(at) {
                    shard.distributed.push_back(next);
                    self.next = (at + 1) % self.shards.len();
                }
            }
            None => self.is_ended = true,
        }
    }

    fn withdraw(&mut self, shard: usize, number: u64) -> Option<Request> {
        let waiting = &mut self.shards.get_mut(shard)?.waiting;
        let position = waiting.iter().position(|request| request.number == number)?;
        waiting.remove(position)
    }
}

impl Work for Distributor {
    fn advance(&self, cx: &mut Context<'_>) -> After {
        loop {
            let mut queues = self.queues.lock();
            if let Some((mut request, answer)) = queues.ready() {
                drop(queues);
                let result = request.outputs(answer);
                drop(request.registration.take());
                let then = Box::new(move || request.call.complete(result));
                return After { is_more: true, then: Some(then) };
            }
            let is_full = |queues: &ShardQueues| {
                queues
                    .shards
                    .get(queues.next)
                    .is_none_or(|shard| shard.distributed.len() >= self.capacity)
            };
            // If the next shard's buffer is full, a call that takes from it resumes the
            // distribution.
            if !queues.is_awaited() || is_full(&queues) {
                return After::default();
            }
            drop(queues);
            let Poll::Ready(next) = self.input.lock().poll_next(cx) else {
                return After::default();
            };
            let hold = |element| BufferedElement::new(element, &self.scope.budget);
            let next = next.and_then(|next| next.map(hold).transpose());
            self.queues.lock().distribute(next);
        }
    }
}

struct GetNext {
    spec: Spec,
}

fn get_next(init: &KernelInit<'_>) -> Result<AnyKernel> {
    Ok(AnyKernel::Async(Arc::new(GetNext { spec: Spec::of(init.attrs())? })))
}

/// The distributor and the shard that a call refers to.
fn requested_shard(call: &AsyncCall) -> Result<(Arc<Task<Distributor>>, usize)> {
    let iterator: Arc<MultiDevice> = state_of_call(call, 0)?;
    let shard = call.input(1)?;
    let incarnation = call.input(2)?;
    ensure!(
        shard.num_elements() == 1 && incarnation.num_elements() == 1,
        InvalidArgument,
        "shard_num and incarnation_id must be scalars"
    );
    let (shard, incarnation): (i32, i64) = (shard.scalar_value()?, incarnation.scalar_value()?);
    let state = iterator.state.lock();
    let Some(distribution) = &state.distribution else {
        bail!(FailedPrecondition, "the MultiDeviceIterator has not been initialized");
    };
    ensure!(
        incarnation == state.incarnation,
        InvalidArgument,
        "Invalid incarnation id: {incarnation}; the iterator's is {}",
        state.incarnation
    );
    match usize::try_from(shard) {
        Ok(shard) if shard < iterator.shards => Ok((distribution.distributor.clone(), shard)),
        _ => bail!(InvalidArgument, "shard {shard} is not one of {}", iterator.shards),
    }
}

impl AsyncKernel for GetNext {
    fn start(&self, call: AsyncCall) {
        let (distributor, shard) = match requested_shard(&call) {
            Ok(requested_shard) => requested_shard,
            Err(e) => return call.complete(Err(e)),
        };
        let step = call.step.clone();
        let number = {
            let mut queues = distributor.work.queues.lock();
            queues.number += 1;
            let number = queues.number;
            let request = Request::new(number, call, self.spec.clone());
            match queues.shards.get_mut(shard) {
                Some(shard) => shard.waiting.push_back(request),
                None => {
                    drop(queues);
                    let gone = err!(Cancelled, "the MultiDeviceIterator was initialized again");
                    return request.call.complete(Err(gone));
                }
            }
            number
        };
        distributor.run_here();
        let weak = Arc::downgrade(&distributor);
        let registration = step.cancellation().on_cancel(move |cause| {
            let withdrawn =
                weak.upgrade().and_then(|d| d.work.queues.lock().withdraw(shard, number));
            if let Some(request) = withdrawn {
                request.call.complete(Err(cause.clone()));
            }
        });
        let unused = {
            let mut queues = distributor.work.queues.lock();
            let waiting = queues.shards.get_mut(shard).map(|shard| &mut shard.waiting);
            match waiting.and_then(|w| w.iter_mut().find(|r| r.number == number)) {
                Some(request) => request.registration.replace(registration),
                None => Some(registration),
            }
        };
        drop(unused);
    }
}
