//! The state machine of queues: enqueue, dequeue, close, cancellation.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use thalweg_kernel::{Outputs, StepContext, Value};
use thalweg_tensor::{
    DType, Error, PartialShape, QueueSize, Resource, Result, Tensor, bail, ensure, err,
};

use super::batch::{batch_shape, row, stack};
use super::gate::{Gate, Gated, Lane, Machine, Progress};
use super::heap::Heap;
use super::store::{Components, Element, Store};
use crate::math::random::philox::{Philox, Samples};

/// The lane of enqueue and close requests.
pub(crate) const ENQUEUES: usize = 0;
/// The lane of dequeue requests.
pub(crate) const DEQUEUES: usize = 1;

/// Rows of a batch that are enqueued between two checks for cancellation.
const ROWS_BETWEEN_CHECKS: usize = 4096;

/// Kind of queue.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Kind {
    Fifo,
    PaddingFifo,
    RandomShuffle,
    Priority,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Fifo => "FIFOQueue",
            Kind::PaddingFifo => "PaddingFIFOQueue",
            Kind::RandomShuffle => "RandomShuffleQueue",
            Kind::Priority => "PriorityQueue",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Declaration of a queue.
#[derive(Clone)]
pub(crate) struct Spec {
    pub(crate) kind: Kind,
    pub(crate) name: Arc<str>,
    pub(crate) capacity: usize,
    pub(crate) dtypes: Vec<DType>,
    /// Shapes of the components; empty if elements may have any shape.
    pub(crate) shapes: Vec<PartialShape>,
    /// Minimum number of elements that an open shuffle queue keeps.
    pub(crate) min_after_dequeue: usize,
    /// The seed attrs.
    pub(crate) seeds: (i64, i64),
    /// Initial state of a shuffle queue's generator.
    pub(crate) generator: Option<Philox>,
}

impl Spec {
    /// Checks that a queue declared as `self` may be shared with a node declared as `other`.
    pub(crate) fn check_same(&self, other: &Spec) -> Result<()> {
        let name = &self.name;
        ensure!(
            self.kind == other.kind,
            InvalidArgument,
            "Expected {}, found {}: shared queue '{name}' is of the other kind",
            self.kind,
            other.kind
        );
        ensure!(
            self.capacity == other.capacity,
            InvalidArgument,
            "Shared queue '{name}' has capacity {} but requested capacity was {}",
            self.capacity,
            other.capacity
        );
        ensure!(
            self.min_after_dequeue == other.min_after_dequeue,
            InvalidArgument,
            "Shared queue '{name}' has min_after_dequeue {} but requested min_after_dequeue was {}.",
            self.min_after_dequeue,
            other.min_after_dequeue
        );
        // Unset seeds are random, and so differ from any explicit seeds.
        ensure!(
            self.seeds == other.seeds,
            InvalidArgument,
            "Shared queue '{name}' has random seeds {:?} but requested seeds are {:?}.",
            self.seeds,
            other.seeds
        );
        ensure!(
            self.dtypes == other.dtypes,
            InvalidArgument,
            "Shared queue '{name}' has component types {} but requested component types were {}",
            listed(&self.dtypes),
            listed(&other.dtypes)
        );
        ensure!(
            self.shapes == other.shapes,
            InvalidArgument,
            "Shared queue '{name}' has component shapes [{}] but requested component shapes were [{}]",
            listed(&self.shapes),
            listed(&other.shapes)
        );
        Ok(())
    }

    /// The shape of component `i`, which must be declared.
    fn shape(&self, i: usize) -> &PartialShape {
        self.shapes.get(i).unwrap_or(&PartialShape::UNKNOWN)
    }

    fn check_types(&self, tuple: &[Tensor]) -> Result<()> {
        ensure!(
            tuple.len() == self.dtypes.len(),
            InvalidArgument,
            "Wrong number of components in tuple. Expected {}, got {}",
            self.dtypes.len(),
            tuple.len()
        );
        for (i, (tensor, dtype)) in tuple.iter().zip(&self.dtypes).enumerate() {
            ensure!(
                tensor.dtype() == *dtype,
                InvalidArgument,
                "Type mismatch in tuple component {i}. Expected {dtype}, got {}",
                tensor.dtype()
            );
        }
        Ok(())
    }

    /// Checks that a tuple is a valid element.
    pub(crate) fn check_element(&self, tuple: &[Tensor]) -> Result<()> {
        self.check_types(tuple)?;
        for (i, (tensor, shape)) in tuple.iter().zip(&self.shapes).enumerate() {
            ensure!(
                shape.is_compatible_with(tensor.shape()),
                InvalidArgument,
                "Shape mismatch in tuple component {i}. Expected {shape}, got {}",
                tensor.shape()
            );
        }
        Ok(())
    }

    /// Checks that a tuple is a valid batch; returns its number of elements.
    pub(crate) fn check_batch(&self, tuple: &[Tensor]) -> Result<usize> {
        self.check_types(tuple)?;
        let Some(&count) = tuple.first().and_then(|tensor| tensor.shape().first()) else {
            bail!(InvalidArgument, "Shape mismatch in tuple component 0. Expected a batch, got []");
        };
        for (i, tensor) in tuple.iter().enumerate() {
            let Some((&rows, dims)) = tensor.shape().split_first() else {
                bail!(
                    InvalidArgument,
                    "Shape mismatch in tuple component {i}. Expected a batch, got []"
                );
            };
            ensure!(
                rows == count,
                InvalidArgument,
                "All input tensors must have the same size in the 0th dimension. Component {i} has {rows}, and should have {count}"
            );
            let Some(wanted) = self.shapes.get(i).and_then(PartialShape::dims) else { continue };
            let fits = wanted.len() == dims.len()
                && wanted.iter().zip(dims).all(|(w, &d)| w.is_none_or(|w| w == d));
            ensure!(
                fits,
                InvalidArgument,
                "Shape mismatch in tuple component {i}. Expected {}, got {}",
                PartialShape::new(std::iter::once(Some(count)).chain(wanted.iter().copied())),
                tensor.shape()
            );
        }
        Ok(count)
    }

    /// Checks that elements can be dequeued as batches.
    pub(crate) fn check_batches(&self) -> Result<()> {
        ensure!(
            !self.shapes.is_empty(),
            InvalidArgument,
            "{}'s DequeueMany and DequeueUpTo require the components to have specified shapes.",
            self.kind
        );
        Ok(())
    }

    /// A batch of zero elements.
    pub(crate) fn empty_batch(&self, step: &StepContext) -> Result<Outputs> {
        let empty = |(&dtype, shape): (&DType, &PartialShape)| {
            let shape = batch_shape(0, shape)?;
            Ok(Value::Tensor(Tensor::blank_in(dtype, shape, Some(step.budget()))?))
        };
        self.dtypes.iter().zip(&self.shapes).map(empty).collect()
    }

    fn store(&self) -> Store {
        match self.kind {
            Kind::Fifo | Kind::PaddingFifo => Store::Fifo(Default::default()),
            Kind::Priority => Store::Priority(Heap::default()),
            Kind::RandomShuffle => {
                let generator = self.generator.unwrap_or_else(|| Philox::from_seeds(0, 0));
                Store::Shuffle(Vec::new(), Samples::new(generator))
            }
        }
    }
}

/// Comma-separated items for error messages.
pub(crate) fn listed<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// A queue.
pub(crate) struct Queue {
    pub(crate) spec: Arc<Spec>,
    gate: Arc<Gate<Contents>>,
}

impl Resource for Queue {
    fn kind(&self) -> &'static str {
        self.spec.kind.name()
    }

    fn queue_size(&self) -> Option<QueueSize> {
        let capacity = Some(self.spec.capacity).filter(|&max| max < i32::MAX as usize);
        Some(QueueSize { elements: self.len() as u64, capacity: capacity.map(|max| max as u64) })
    }
}

impl Gated for Queue {
    type Machine = Contents;

    fn gate(&self) -> &Gate<Contents> {
        &self.gate
    }
}

impl Queue {
    pub(crate) fn new(spec: Spec) -> Queue {
        let spec = Arc::new(spec);
        let store = spec.store();
        let gate = Gate::new(Contents { spec: spec.clone(), store, is_closed: false });
        Queue { spec, gate }
    }

    pub(crate) fn len(&self) -> usize {
        self.gate.inspect(|contents| contents.store.len())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.gate.inspect(|contents| contents.is_closed)
    }

    /// Enqueues elements regardless of the capacity, and closes the queue if they are the last.
    pub(crate) fn push_all(
        &self,
        elements: Vec<Components>,
        are_last: bool,
        step: &StepContext,
    ) -> Result<()> {
        self.gate.change(|contents| {
            let mut pushed = elements.into_iter().map(|element| contents.push(element, step));
            let result = pushed.try_for_each(|pushed| pushed);
            contents.is_closed |= are_last;
            result
        })
    }

    /// Closes the queue; waiting enqueues are cancelled.
    pub(crate) fn close_and_cancel(&self) {
        self.gate.change_and_withdraw(ENQUEUES, |contents| contents.is_closed = true);
    }
}

/// A request to a queue.
pub(crate) enum Request {
    /// Enqueues one element.
    Enqueue(Components),
    /// Enqueues the rows of a batch, as capacity allows.
    EnqueueMany { batch: Components, next: usize, count: usize },
    /// Closes the queue after the enqueues that wait before it.
    Close,
    /// Dequeues one element.
    Dequeue,
    /// Dequeues `count` elements; fewer if the queue is closed and `is_up_to`.
    DequeueMany { count: usize, is_up_to: bool, taken: Vec<Element> },
}

/// Elements of a queue, and whether it is closed.
pub(crate) struct Contents {
    spec: Arc<Spec>,
    store: Store,
    is_closed: bool,
}

impl Machine for Contents {
    type Request = Request;
    const LANES: &'static [Lane] = &[Lane::Ordered, Lane::Ordered];

    fn advance(&mut self, request: &mut Request, step: &StepContext) -> Progress {
        match request {
            Request::Enqueue(components) => self.enqueue(components, step),
            Request::EnqueueMany { batch, next, count } => {
                self.enqueue_many(batch, next, *count, step)
            }
            Request::Close => Progress::Done(self.close()),
            Request::Dequeue => self.dequeue(),
            Request::DequeueMany { count, is_up_to, taken } => {
                self.dequeue_many(count, *is_up_to, taken, step)
            }
        }
    }

    fn withdraw(&mut self, request: Request) -> Error {
        match request {
            Request::Dequeue => err!(Cancelled, "Dequeue operation was cancelled"),
            Request::DequeueMany { taken, .. } => {
                self.store.put_back(taken);
                err!(Cancelled, "Dequeue operation was cancelled")
            }
            _ => err!(Cancelled, "Enqueue operation was cancelled"),
        }
    }
}

impl Contents {
    fn closed(&self) -> Error {
        err!(Cancelled, "{} '{}' is closed.", self.spec.kind, self.spec.name)
    }

    fn insufficient(&self, requested: usize) -> Error {
        let Spec { kind, name, .. } = &*self.spec;
        let size = self.store.len();
        err!(
            OutOfRange,
            "{kind} '{name}' is closed and has insufficient elements (requested {requested}, current size {size})"
        )
    }

    fn close(&mut self) -> Result<Outputs> {
        ensure!(!self.is_closed, Cancelled, "Queue '{}' is already closed.", self.spec.name);
        self.is_closed = true;
        Ok(Outputs::new())
    }

    fn enqueue(&mut self, components: &mut Components, step: &StepContext) -> Progress {
        if self.is_closed {
            return Progress::Done(Err(self.closed()));
        }
        if self.store.len() >= self.spec.capacity {
            return Progress::Waits;
        }
        Progress::Done(self.push(std::mem::take(components), step).map(|()| Outputs::new()))
    }

    fn push(&mut self, components: Components, step: &StepContext) -> Result<()> {
        self.store.push(Element::new(components, step.state_budget())?)
    }

    fn enqueue_many(
        &mut self,
        batch: &[Tensor],
        next: &mut usize,
        count: usize,
        step: &StepContext,
    ) -> Progress {
        if self.is_closed {
            return Progress::Done(Err(self.closed()));
        }
        let room = self.spec.capacity.saturating_sub(self.store.len());
        let rows = room.min(count - *next);
        for _ in 0..rows {
            if let Err(e) = self.push_row(batch, *next, step) {
                return Progress::Done(Err(e));
            }
            *next += 1;
        }
        match rows {
            _ if *next == count => Progress::Done(Ok(Outputs::new())),
            0 => Progress::Waits,
            _ => Progress::Partly,
        }
    }

    fn push_row(&mut self, batch: &[Tensor], index: usize, step: &StepContext) -> Result<()> {
        if index.is_multiple_of(ROWS_BETWEEN_CHECKS) {
            step.cancellation().check()?;
        }
        let mut components = Components::with_capacity(batch.len());
        for tensor in batch {
            let mut row = row(tensor, index, step.budget())?;
            if self.store.may_keep_elements_long() {
                // A row that stays long must not keep the whole batch in memory.
                row = row.deep_copy(Some(step.budget()))?;
            }
            components.push(row);
        }
        self.push(components, step)
    }

    /// Number of elements that may be dequeued now.
    fn available(&self) -> usize {
        let kept = if self.is_closed { 0 } else { self.spec.min_after_dequeue };
        self.store.len().saturating_sub(kept)
    }

    fn dequeue(&mut self) -> Progress {
        if self.is_closed && self.store.len() == 0 {
            return Progress::Done(Err(self.insufficient(1)));
        }
        if self.available() == 0 {
            return Progress::Waits;
        }
        match self.store.pop() {
            Some(element) => {
                Progress::Done(Ok(element.components.into_iter().map(Value::Tensor).collect()))
            }
            None => Progress::Waits,
        }
    }

    fn dequeue_many(
        &mut self,
        count: &mut usize,
        is_up_to: bool,
        taken: &mut Vec<Element>,
        step: &StepContext,
    ) -> Progress {
        let missing = *count - taken.len();
        if self.is_closed && self.store.len() < missing {
            let error = self.insufficient(missing);
            self.store.put_back(std::mem::take(taken));
            if !is_up_to || self.store.len() == 0 {
                return Progress::Done(Err(error));
            }
            *count = self.store.len();
        }
        let wanted = *count - taken.len();
        // A priority batch is sorted, so it is taken all at once.
        if self.spec.kind == Kind::Priority && self.available() < wanted {
            return Progress::Waits;
        }
        let before = taken.len();
        for _ in 0..self.available().min(wanted) {
            taken.extend(self.store.pop());
        }
        if taken.len() == *count {
            return Progress::Done(self.batch(taken, step));
        }
        if taken.len() > before { Progress::Partly } else { Progress::Waits }
    }

    /// The taken elements as one batch; if the allocation fails, the elements stay.
    fn batch(&mut self, taken: &mut Vec<Element>, step: &StepContext) -> Result<Outputs> {
        let elements = std::mem::take(taken);
        let stacked: Result<SmallVec<_>> = (0..self.spec.dtypes.len())
            .map(|i| {
                let components = elements.iter().map(|element| &element.components[i]);
                stack(components, self.spec.dtypes[i], self.spec.shape(i), step.budget())
            })
            .map(|tensor| tensor.map(Value::Tensor))
            .collect();
        if stacked.is_err() {
            self.store.put_back(elements);
        }
        stacked
    }
}
