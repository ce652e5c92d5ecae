//! Barriers: key-value stores whose elements can be taken once all components of a key are present.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use thalweg_graph::{OpDef, ShapeContext, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec, StepContext};
use thalweg_tensor::{Charge, DType, PartialShape, Resource, Result, Tensor, bail, ensure, err};

use super::access::{check_timeout, size_of_state};
use super::batch::row;
use super::create::FIFO_QUEUE;
use super::gate::{self, Answer, update};
use super::queue::{DEQUEUES, Kind, Queue, Request, Spec, listed};
use super::store::Components;
use crate::CHEAP;
use crate::state::handle::{state_input, state_kernel, state_of_call};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        BARRIER,
        OpDef::new("BarrierInsertMany", insert_shape).with_work(Work::fixed::<5>),
        OpDef::new("BarrierTakeMany", shape::unknown).with_work(Work::fixed::<5>),
        OpDef::new("BarrierClose", shape::unknown),
        BARRIER_READY_SIZE,
        BARRIER_INCOMPLETE_SIZE,
    ],
    kernels: &[
        KernelSpec { op: "Barrier", create: barrier, ..CHEAP },
        KernelSpec { op: "BarrierInsertMany", create: insert_many, ..KernelSpec::CPU },
        KernelSpec { op: "BarrierTakeMany", create: take_many, ..KernelSpec::CPU },
        KernelSpec { op: "BarrierClose", create: close, ..KernelSpec::CPU },
        KernelSpec { op: "BarrierReadySize", create: ready_size, ..CHEAP },
        KernelSpec { op: "BarrierIncompleteSize", create: incomplete_size, ..CHEAP },
    ],
};

/// `Barrier` has the attrs of a queue.
const BARRIER: OpDef = OpDef { name: "Barrier", ..FIFO_QUEUE };

/// One row of values per key.
fn insert_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let keys = c.with_rank(1, "keys", 1)?;
    let values = c.with_rank_at_least(2, "values", 1)?;
    keys.merge(&PartialShape::new([values.dim(0)]))?;
    Ok(())
}

const BARRIER_READY_SIZE: OpDef = OpDef::new("BarrierReadySize", shape::scalar);

const BARRIER_INCOMPLETE_SIZE: OpDef =
    OpDef { name: "BarrierIncompleteSize", ..BARRIER_READY_SIZE };

/// Incomplete elements by key, and a queue of complete ones.
struct Barrier {
    name: Arc<str>,
    dtypes: Vec<DType>,
    shapes: Vec<PartialShape>,
    keys: Mutex<Keys>,
    /// Complete elements as (index of the insertion that began the key, key, components).
    ready: Arc<Queue>,
}

impl Resource for Barrier {
    fn kind(&self) -> &'static str {
        "Barrier"
    }
}

struct Keys {
    is_closed: bool,
    is_cancelled: bool,
    /// The index of the next insertion that adds new keys.
    next_index: i64,
    incomplete: FxHashMap<Bytes, Incomplete>,
}

struct Incomplete {
    index: i64,
    components: Vec<Option<Tensor>>,
    _charge: Charge,
}

impl Barrier {
    fn new(name: &Arc<str>, dtypes: &[DType], shapes: &[PartialShape]) -> Barrier {
        let (scalar, number_and_key) = (PartialShape::scalar, [DType::Int64, DType::String]);
        let spec = Spec {
            kind: Kind::Priority,
            name: format!("{name}_queue").into(),
            capacity: i32::MAX as usize,
            dtypes: number_and_key.into_iter().chain(dtypes.iter().copied()).collect(),
            shapes: [scalar(), scalar()].into_iter().chain(shapes.iter().cloned()).collect(),
            min_after_dequeue: 0,
            seeds: (0, 0),
            generator: None,
        };
        Barrier {
            name: name.clone(),
            dtypes: dtypes.to_vec(),
            shapes: shapes.to_vec(),
            keys: Mutex::new(Keys {
                is_closed: false,
                is_cancelled: false,
                next_index: i64::MIN,
                incomplete: FxHashMap::default(),
            }),
            ready: Arc::new(Queue::new(spec)),
        }
    }

    fn check_same(&self, dtypes: &[DType], shapes: &[PartialShape]) -> Result<()> {
        ensure!(
            self.dtypes == dtypes,
            InvalidArgument,
            "Shared barrier '{}' has component types {} but requested component types were {}",
            self.name,
            listed(&self.dtypes),
            listed(dtypes)
        );
        ensure!(
            self.shapes == shapes,
            InvalidArgument,
            "Shared barrier '{}' has component shapes [{}] but requested component shapes were [{}]",
            self.name,
            listed(&self.shapes),
            listed(shapes)
        );
        Ok(())
    }

    fn insert(
        &self,
        keys: &[Bytes],
        values: &Tensor,
        component: usize,
        step: &StepContext,
    ) -> Result<()> {
        let mut state = self.keys.lock();
        let left = state.incomplete.len();
        if state.is_closed && (state.is_cancelled || (!keys.is_empty() && left == 0)) {
            bail!(
                Cancelled,
                "Barrier {} is closed.  Pending enqueues cancelled: {}.  Number of new insertions: {}.  Number of incomplete keys: {left}.",
                self.name,
                u8::from(state.is_cancelled),
                keys.len()
            );
        }
        let mut ready = Vec::new();
        let mut has_new = false;
        let result = keys.iter().enumerate().try_for_each(|(i, key)| {
            let value =
                if values.rank() == 0 { values.clone() } else { row(values, i, step.budget())? };
            let whole = self.insert_one(&mut state, (i, key), value, component, step);
            has_new |= whole.as_ref().is_ok_and(|(is_new, _)| *is_new);
            ready.extend(whole?.1);
            Ok(())
        });
        if has_new {
            state.next_index += 1;
        }
        let is_last = state.is_closed && state.incomplete.is_empty();
        // Still locked: a key that is no longer incomplete is already in the queue, for readers of
        // both sizes.
        let pushed = self.ready.push_all(ready, is_last, step);
        drop(state);
        result.and(pushed)
    }

    /// Adds a component to a key. Returns whether the key is new, and the tuple if it is complete.
    fn insert_one(
        &self,
        state: &mut Keys,
        (i, key): (usize, &Bytes),
        value: Tensor,
        component: usize,
        step: &StepContext,
    ) -> Result<(bool, Option<Components>)> {
        let index = state.next_index;
        let left = state.incomplete.len();
        let mut is_new = false;
        if !state.incomplete.contains_key(key) {
            ensure!(
                !state.is_closed,
                Cancelled,
                "Barrier {} is closed, but attempted to insert a brand new key: {}.  Pending enqueues cancelled: {}.  Insertion index: {i}.  Number of incomplete keys: {left}.",
                self.name,
                String::from_utf8_lossy(key),
                u8::from(state.is_cancelled)
            );
            is_new = true;
            let components = vec![None; self.dtypes.len()];
            let bytes = size_of::<Incomplete>()
                + key.len()
                + self.dtypes.len() * size_of::<Option<Tensor>>();
            let _charge = Charge::new(step.state_budget(), bytes)?;
            state.incomplete.insert(key.clone(), Incomplete { index, components, _charge });
        }
        let Some(entry) = state.incomplete.get_mut(key) else {
            bail!(Internal, "a key that was just inserted is missing");
        };
        value.ensure_charged(step.state_budget())?;
        let place = &mut entry.components[component];
        ensure!(
            place.is_none(),
            InvalidArgument,
            "Key {} already has a value for component {component} in barrier {}",
            String::from_utf8_lossy(key),
            self.name
        );
        *place = Some(value);
        if entry.components.iter().any(Option::is_none) {
            return Ok((is_new, None));
        }
        let Some(entry) = state.incomplete.remove(key) else {
            bail!(Internal, "a key that was just completed is missing");
        };
        let name = [Tensor::scalar(entry.index), Tensor::scalar_string(key.clone())];
        let tuple: Components =
            name.into_iter().chain(entry.components.into_iter().flatten()).collect();
        self.ready.spec.check_element(&tuple)?;
        Ok((is_new, Some(tuple)))
    }

    /// Number of elements that a `BarrierTakeMany` can take, if it can complete.
    fn deliverable(&self, wanted: usize, allow_small_batch: bool) -> Result<usize> {
        let state = self.keys.lock();
        if !state.is_closed {
            return Ok(wanted);
        }
        let ready = self.ready.len();
        let (count, available) = if allow_small_batch {
            (wanted.min(ready), ready)
        } else {
            (wanted, ready + state.incomplete.len())
        };
        ensure!(
            available >= count.max(1),
            OutOfRange,
            "Barrier '{}' is closed and has insufficient elements (requested {count}, total size {available})",
            self.name
        );
        Ok(count)
    }

    fn close(&self, cancel_pending_enqueues: bool) -> Result<()> {
        let mut state = self.keys.lock();
        // A closed barrier can still be closed again with cancellation.
        ensure!(
            !state.is_closed || (cancel_pending_enqueues && !state.is_cancelled),
            Cancelled,
            "Barrier '{}' is already closed.",
            self.name
        );
        state.is_closed = true;
        state.is_cancelled = cancel_pending_enqueues;
        let gone = cancel_pending_enqueues.then(|| std::mem::take(&mut state.incomplete));
        if state.incomplete.is_empty() {
            self.ready.close_and_cancel();
        }
        drop(state);
        drop(gone);
        Ok(())
    }
}

fn barrier(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtypes = init.attrs().dtypes("component_types")?;
    let shapes = init.attrs().shapes("shapes")?;
    ensure!(
        shapes.len() == dtypes.len() && shapes.iter().all(|shape| shape.to_shape().is_some()),
        InvalidArgument,
        "All of the component shapes must be specified"
    );
    let capacity = init.attrs().int("capacity")?;
    ensure!(
        capacity == -1,
        InvalidArgument,
        "Barrier only accepts capacity=-1.  Feed the inputs to your Barrier through a queue to enforce a limited capacity."
    );
    let (wanted_dtypes, wanted_shapes) = (dtypes.clone(), shapes.clone());
    state_kernel(
        init,
        false,
        move |_, name| Ok(Barrier::new(name, &dtypes, &shapes)),
        move |barrier: &Barrier, _| barrier.check_same(&wanted_dtypes, &wanted_shapes),
    )
}

fn insert_many(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let component = init.attrs().int("component_index")?;
    AnyKernel::new(move |ctx| {
        let barrier: Arc<Barrier> = state_input(ctx, 0)?;
        let (keys, values) = (ctx.input(1)?, ctx.input(2)?);
        let known = barrier.dtypes.len();
        let place = usize::try_from(component).ok().filter(|&i| i < known).ok_or_else(|| {
            err!(
                InvalidArgument,
                "The component ID is out of range {component} > num_components (= {known})"
            )
        })?;
        ensure!(
            values.dtype() == barrier.dtypes[place],
            InvalidArgument,
            "Signature mismatch, have: {} expected: {}",
            values.dtype(),
            barrier.dtypes[place]
        );
        let rows = values.shape().first().copied().unwrap_or(1);
        let count = keys.num_elements();
        ensure!(
            count == 0 || values.num_elements() > 0,
            InvalidArgument,
            "Tensors with no elements are not supported {}: received shape {}",
            barrier.name,
            values.shape()
        );
        ensure!(
            rows == count,
            InvalidArgument,
            "{count} keys came with {rows} values: keys of shape {}, values of shape {}",
            keys.shape(),
            values.shape()
        );
        let keys = keys.strings()?;
        update(ctx, &*barrier, || barrier.insert(keys, values, place, ctx.step()))?
    })
}

fn take_many(init: &KernelInit<'_>) -> Result<AnyKernel> {
    check_timeout(init)?;
    let allow_small_batch = init.attrs().bool("allow_small_batch")?;
    let dtypes = init.attrs().dtypes("component_types")?;
    gate::kernel(&init.node.op.name, move |call| {
        let barrier: Arc<Barrier> = state_of_call(call, 0)?;
        let wanted = call.input(1)?;
        ensure!(wanted.rank() == 0, InvalidArgument, "num_elements must be a scalar.");
        let wanted: i32 = wanted.scalar_value()?;
        let Ok(wanted) = usize::try_from(wanted) else {
            bail!(InvalidArgument, "num_elements must not be negative, is {wanted}");
        };
        ensure!(
            barrier.dtypes == dtypes,
            InvalidArgument,
            "Signature mismatch, have: {} expected: {}",
            listed(&dtypes),
            listed(&barrier.dtypes)
        );
        let count = barrier.deliverable(wanted, allow_small_batch)?;
        let ready = barrier.ready.clone();
        if count == 0 {
            return Ok(Answer::Now(ready.spec.empty_batch(&call.step)?));
        }
        let is_up_to = allow_small_batch;
        let request = Request::DequeueMany { count, is_up_to, taken: Vec::new() };
        Ok(Answer::After(ready, DEQUEUES, request))
    })
}

fn close(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let cancel_pending_enqueues = init.attrs().bool("cancel_pending_enqueues")?;
    AnyKernel::new(move |ctx| {
        let barrier: Arc<Barrier> = state_input(ctx, 0)?;
        update(ctx, &*barrier, || barrier.close(cancel_pending_enqueues))?
    })
}

fn ready_size(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let barrier: Arc<Barrier> = state_input(ctx, 0)?;
        ctx.set_output(0, Tensor::scalar(size_of_state(barrier.ready.len())))
    })
}

fn incomplete_size(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let barrier: Arc<Barrier> = state_input(ctx, 0)?;
        let len = barrier.keys.lock().incomplete.len();
        ctx.set_output(0, Tensor::scalar(size_of_state(len)))
    })
}
