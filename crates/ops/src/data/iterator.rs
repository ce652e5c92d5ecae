//! Iterator resources: creation, initialization, string handles, and checkpoints of positions.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use prost::Message;
use thalweg_graph::{AttrValue, Attrs, OpDef, Work, shape};
use thalweg_kernel::{
    AnyKernel, AsyncCall, AsyncKernel, Family, KernelContext, KernelInit, KernelSpec, Outputs,
    StepContext, Value,
};
use thalweg_proto as pb;
use thalweg_tensor::{
    Bytes, Error, Resource, ResourceHandle, Result, Shape, Tensor, Variant, bail, ensure, err,
};

use super::dataset::{Iterate, Next, Source, YieldBudget};
use super::element::Spec;
use super::get_next::GetNextQueue;
use super::scope::Scope;
use super::seeds::set_anonymous;
use super::task::Task;
use crate::state::handle::{Owner, ResourceName, state_input, state_kernel};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        ITERATOR,
        ITERATOR_V2,
        ANONYMOUS_ITERATOR,
        ANONYMOUS_ITERATOR_V2,
        ANONYMOUS_ITERATOR_V3,
        ONE_SHOT_ITERATOR,
        OpDef::new("MakeIterator", shape::unknown).with_work(Work::fixed::<20>),
        OpDef::new("DeleteIterator", shape::unknown),
        OpDef::new("IteratorToStringHandle", shape::scalar),
        ITERATOR_FROM_STRING_HANDLE,
        ITERATOR_FROM_STRING_HANDLE_V2,
        OpDef::new("SerializeIterator", shape::unknown),
        OpDef::new("DeserializeIterator", shape::unknown),
        ITERATOR_GET_DEVICE,
        EXPERIMENTAL_ITERATOR_GET_DEVICE,
    ],
    kernels: &[
        KernelSpec { op: "Iterator", create: iterator, ..KernelSpec::CPU },
        KernelSpec { op: "IteratorV2", create: iterator, ..KernelSpec::CPU },
        KernelSpec { op: "AnonymousIterator", create: anonymous, ..KernelSpec::CPU },
        KernelSpec { op: "AnonymousIteratorV2", create: anonymous, ..KernelSpec::CPU },
        KernelSpec { op: "AnonymousIteratorV3", create: anonymous, ..KernelSpec::CPU },
        KernelSpec { op: "OneShotIterator", create: one_shot, ..KernelSpec::CPU },
        KernelSpec { op: "MakeIterator", create: make_iterator, ..KernelSpec::CPU },
        KernelSpec { op: "DeleteIterator", create: delete, ..KernelSpec::CPU },
        KernelSpec {
            op: "IteratorToStringHandle",
            create: to_string::<IteratorResource>,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "IteratorFromStringHandle",
            create: from_string::<IteratorResource>,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "IteratorFromStringHandleV2",
            create: from_string::<IteratorResource>,
            ..KernelSpec::CPU
        },
        KernelSpec { op: "SerializeIterator", create: serialize, ..KernelSpec::CPU },
        KernelSpec { op: "DeserializeIterator", create: deserialize, ..KernelSpec::CPU },
        KernelSpec { op: "IteratorGetDevice", create: get_device, ..KernelSpec::CPU },
        KernelSpec { op: "ExperimentalIteratorGetDevice", create: get_device, ..KernelSpec::CPU },
    ],
};

const ITERATOR: OpDef = OpDef::new("Iterator", shape::scalar);

const ITERATOR_V2: OpDef = OpDef { name: "IteratorV2", ..ITERATOR };

const ANONYMOUS_ITERATOR: OpDef = OpDef { name: "AnonymousIterator", ..ITERATOR };

const ANONYMOUS_ITERATOR_V2: OpDef = OpDef { name: "AnonymousIteratorV2", ..ANONYMOUS_ITERATOR };

const ANONYMOUS_ITERATOR_V3: OpDef = OpDef { name: "AnonymousIteratorV3", ..ANONYMOUS_ITERATOR };

const ONE_SHOT_ITERATOR: OpDef =
    OpDef { name: "OneShotIterator", work: Work::fixed::<20>, ..ITERATOR };

const ITERATOR_FROM_STRING_HANDLE: OpDef = OpDef::new("IteratorFromStringHandle", shape::scalar);

const ITERATOR_FROM_STRING_HANDLE_V2: OpDef =
    OpDef { name: "IteratorFromStringHandleV2", ..ITERATOR_FROM_STRING_HANDLE };

const ITERATOR_GET_DEVICE: OpDef = OpDef::new("IteratorGetDevice", shape::scalar);

const EXPERIMENTAL_ITERATOR_GET_DEVICE: OpDef =
    OpDef { name: "ExperimentalIteratorGetDevice", ..ITERATOR_GET_DEVICE };

/// A resource from which elements are drawn.
pub(crate) trait ElementSource: Resource {
    /// Dtypes and shapes of the elements.
    fn spec(&self) -> &Spec;
}

impl ElementSource for IteratorResource {
    fn spec(&self) -> &Spec {
        &self.spec
    }
}

/// An iterator resource; it has no dataset before it is initialized.
pub(crate) struct IteratorResource {
    spec: Spec,
    opened: Mutex<Option<OpenIterator>>,
}

/// A dataset and its iterator.
struct OpenIterator {
    dataset: Source,
    scope: Arc<Scope>,
    queue: Arc<Task<GetNextQueue>>,
}

impl Drop for OpenIterator {
    fn drop(&mut self) {
        self.scope.cancellation.cancel(err!(Cancelled, "the iterator was dropped"));
    }
}

impl OpenIterator {
    /// Starts an iteration at element `done`.
    fn new(dataset: Source, step: &StepContext, done: u64) -> Result<OpenIterator> {
        let scope = Scope::new(step);
        if done > 0 {
            dataset.rewind_all();
        }
        let mut iterator = dataset.iterate(&scope)?;
        if done > 0 {
            iterator = Box::new(FastForwardIterator {
                input: iterator,
                left: done,
                yield_budget: YieldBudget::default(),
            });
        }
        let queue = Task::new(&scope.background, GetNextQueue::new(iterator, done));
        Ok(OpenIterator { dataset, scope, queue })
    }
}

/// Skips the elements before a restored position.
struct FastForwardIterator {
    input: Box<dyn Iterate>,
    left: u64,
    yield_budget: YieldBudget,
}

impl Iterate for FastForwardIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        while self.left > 0 {
            ready!(self.yield_budget.poll(cx));
            // Failed elements count as well: they were drawn.
            if let Ok(None) = ready!(self.input.poll_next(cx)) {
                return Poll::Ready(Ok(None));
            }
            self.left -= 1;
        }
        self.input.poll_next(cx)
    }
}

impl Resource for IteratorResource {
    fn kind(&self) -> &'static str {
        "Iterator"
    }
}

impl IteratorResource {
    fn new(spec: Spec) -> IteratorResource {
        IteratorResource { spec, opened: Mutex::new(None) }
    }

    /// Starts over with this dataset, at element `done`.
    fn open(&self, dataset: Source, step: &StepContext, done: u64) -> Result<()> {
        self.spec.check_accepts(dataset.spec())?;
        let opened = OpenIterator::new(dataset, step, done)?;
        let before = self.opened.lock().replace(opened);
        drop(before);
        Ok(())
    }

    /// The queue of calls for the iterator's elements.
    pub(crate) fn queue(&self) -> Result<Arc<Task<GetNextQueue>>> {
        match &*self.opened.lock() {
            Some(opened) => Ok(opened.queue.clone()),
            None => bail!(
                FailedPrecondition,
                "GetNext() failed because the iterator has not been initialized. Ensure that you have run the initializer operation for this iterator before getting the next element."
            ),
        }
    }
}

fn iterator(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let spec = Spec::of(init.attrs())?;
    let wanted = spec.clone();
    state_kernel(
        init,
        false,
        move |_, _| Ok(IteratorResource::new(spec.clone())),
        move |found: &IteratorResource, _| wanted.check_accepts(&found.spec),
    )
}

fn anonymous(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let spec = Spec::of(init.attrs())?;
    AnyKernel::new(move |ctx| {
        set_anonymous(ctx, Arc::new(IteratorResource::new(spec.clone())), "AnonymousIterator")
    })
}

fn make_iterator(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let dataset = Source::input(ctx, 0)?;
        let iterator: Arc<IteratorResource> = state_input(ctx, 1)?;
        iterator.open(dataset, ctx.step(), 0)
    })
}

/// Deletes an anonymous iterator: its handles own it, so it is freed with the last of them.
fn delete(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| state_input::<IteratorResource>(ctx, 0).map(drop))
}

/// The deleter output of V2 ops; it has no function here, because the handle owns the state.
pub(crate) fn deleter() -> Result<Tensor> {
    Tensor::from_variants(Shape::scalar(), vec![Some(Arc::new(Deleter))])
}

#[derive(Debug)]
struct Deleter;

impl Variant for Deleter {
    fn type_name(&self) -> &str {
        "ResourceDeleter"
    }

    fn encode(&self) -> Option<(Bytes, Vec<Tensor>)> {
        None
    }
}

/// `OneShotIterator`: a function makes the dataset when the iterator is first used.
struct OneShot {
    factory: String,
    attrs: Attrs,
    spec: Spec,
    owner: Arc<Owner<IteratorResource>>,
    state: Arc<Mutex<OneShotState>>,
}

#[derive(Default)]
enum OneShotState {
    #[default]
    New,
    /// The function is running; these calls wait for it.
    Starting(Vec<AsyncCall>),
    Ready(Tensor),
}

fn one_shot(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let pb::NameAttrList { name, attr } = &**init.attrs().function("dataset_factory")?;
    let value = |(n, v): (&String, &pb::AttrValue)| {
        (Arc::from(n.as_str()), AttrValue::from_proto(v.clone()))
    };
    Ok(AnyKernel::Async(Arc::new(OneShot {
        factory: name.clone(),
        attrs: attr.iter().map(value).collect(),
        spec: Spec::of(init.attrs())?,
        owner: Arc::new(Owner::new(ResourceName::of(init, false)?)),
        state: Arc::default(),
    })))
}

impl AsyncKernel for OneShot {
    fn start(&self, call: AsyncCall) {
        let step = call.step.clone();
        {
            let mut state = self.state.lock();
            match &mut *state {
                OneShotState::Ready(handle) => {
                    let outputs = Outputs::from_iter([Value::Tensor(handle.clone())]);
                    drop(state);
                    return call.complete(Ok(outputs));
                }
                OneShotState::Starting(waiting) => return waiting.push(call),
                OneShotState::New => *state = OneShotState::Starting(vec![call]),
            }
        }
        let (state, spec, within) = (self.state.clone(), self.spec.clone(), step.clone());
        let owner = self.owner.clone();
        let made = move |result: Result<Vec<Tensor>>| {
            let handle = result.and_then(|returned| {
                owner.handle(&within, || one_shot_iterator(&returned, spec, &within))
            });
            let next = match &handle {
                Ok(handle) => OneShotState::Ready(handle.clone()),
                Err(_) => OneShotState::New,
            };
            let waiting = std::mem::replace(&mut *state.lock(), next);
            if let OneShotState::Starting(calls) = waiting {
                let output = |h: &Tensor| Outputs::from_iter([Value::Tensor(h.clone())]);
                let answer = handle.as_ref().map(output);
                calls.into_iter().for_each(|c| c.complete(answer.clone().map_err(Error::clone)));
            }
        };
        match step.functions() {
            Ok(functions) => {
                functions.call(&self.factory, &self.attrs, Vec::new(), &step, Box::new(made));
            }
            Err(e) => made(Err(e)),
        }
    }
}

/// A new iterator over the dataset that the factory function returned.
fn one_shot_iterator(
    returned: &[Tensor],
    spec: Spec,
    step: &StepContext,
) -> Result<IteratorResource> {
    let [dataset] = returned else {
        bail!(
            InvalidArgument,
            "The `dataset_factory` function must return a single scalar of dtype DT_VARIANT."
        );
    };
    let iterator = IteratorResource::new(spec);
    iterator.open(Source::of(dataset)?, step, 0)?;
    Ok(iterator)
}

fn get_device(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| match ctx.input(0)?.resources()? {
        [handle] => {
            let device = Tensor::scalar_string(handle.device.to_string());
            ctx.set_output(0, device)
        }
        _ => bail!(InvalidArgument, "resource must be a scalar"),
    })
}

/// `IteratorToStringHandle`: serializes a handle.
pub(crate) fn to_string<T: ElementSource>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let _: Arc<T> = state_input(ctx, 0)?;
        let proto = ctx.input(0)?.to_proto()?;
        let handle = proto.resource_handle_val.first().map(Message::encode_to_vec);
        ctx.set_output(0, Tensor::scalar_string(handle.unwrap_or_default()))
    })
}

/// `IteratorFromStringHandle`: parses the output of [`to_string`].
pub(crate) fn from_string<T: ElementSource>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let spec = Spec::of(init.attrs())?;
    AnyKernel::new(move |ctx| {
        let handle = handle_from_string(ctx)?;
        let device = ctx.step().device().description().name.to_string();
        ensure!(
            *handle.device == *device,
            InvalidArgument,
            "Attempted create an iterator on device \"{device}\" from handle defined on device \"{}\"",
            handle.device
        );
        let iterator: Arc<T> = ctx.resources().resolve(&handle)?;
        if !spec.dtypes.is_empty() {
            spec.check_accepts(iterator.spec())?;
        }
        ctx.set_output(0, Tensor::from_resources(Shape::scalar(), vec![handle])?)
    })
}

fn handle_from_string(ctx: &KernelContext<'_>) -> Result<ResourceHandle> {
    let text = super::dataset::string_input(ctx, 0, "string_handle")?;
    let bad = || {
        err!(
            InvalidArgument,
            "Could not parse string_handle as a valid ResourceHandle: it has {} bytes",
            text.len()
        )
    };
    let handle = pb::ResourceHandleProto::decode(text.clone()).map_err(|_| bad())?;
    let proto = pb::TensorProto {
        dtype: thalweg_tensor::DType::Resource.to_proto(),
        tensor_shape: Some(pb::TensorShapeProto::default()),
        resource_handle_val: vec![handle],
        ..Default::default()
    };
    Tensor::from_proto(&proto, None)?.resources()?.first().cloned().ok_or_else(bad)
}

/// Type name of a serialized position, which only this implementation reads.
const STATE_TYPE: &str = "thalweg::IteratorState";

/// Number of elements drawn from an iterator. Skipping as many elements of an equal dataset
/// restores the position, unless the dataset is random without a seed.
#[derive(Debug)]
struct SavedPosition(u64);

impl Variant for SavedPosition {
    fn type_name(&self) -> &str {
        STATE_TYPE
    }

    fn encode(&self) -> Option<(Bytes, Vec<Tensor>)> {
        Some((Bytes::copy_from_slice(&self.0.to_le_bytes()), Vec::new()))
    }
}

fn serialize(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let iterator: Arc<IteratorResource> = state_input(ctx, 0)?;
        let saved = SavedPosition(iterator.queue()?.work.drawn());
        let shape = Shape::new(&[1])?;
        ctx.set_output(0, Tensor::from_variants(shape, vec![Some(Arc::new(saved))])?)
    })
}

fn deserialize(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let iterator: Arc<IteratorResource> = state_input(ctx, 0)?;
        let encoded = match ctx.input(1)?.variants()? {
            [Some(value)] if value.type_name() == STATE_TYPE => value.encode(),
            _ => None,
        };
        let Some(bytes) = encoded.and_then(|(bytes, _)| bytes.as_ref().try_into().ok()) else {
            bail!(InvalidArgument, "the variant does not hold an iterator's state saved here");
        };
        let dataset = iterator.opened.lock().as_ref().map(|opened| opened.dataset.clone());
        let Some(dataset) = dataset else {
            bail!(
                FailedPrecondition,
                "Restore() failed because the iterator has not been initialized. Ensure that you have run the initializer operation for this iterator before restoring it."
            );
        };
        iterator.open(dataset, ctx.step(), u64::from_le_bytes(bytes))
    })
}
