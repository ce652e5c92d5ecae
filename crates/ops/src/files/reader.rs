//! Readers: resources that dequeue file names and return records.
//!
//! A reader serves one call at a time. If it has no current file, it dequeues a name from the
//! call's queue; the call waits asynchronously, without blocking a thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use prost::Message;
use smallvec::{SmallVec, smallvec};
use thalweg_kernel::{AsyncCall, Outputs, StepContext, Value};
use thalweg_proto as pb;
use thalweg_tensor::{Bytes, DType, Error, Resource, Result, Shape, Tensor, bail, ensure, err};

use super::path_of;
use super::sources::{Record, Source};
use crate::queues::gate::{Gate, Gated, Lane, Machine, Progress};
use crate::queues::queue::{DEQUEUES, Queue, Request as QueueRequest};

/// The only lane: calls are served in FIFO order.
pub(crate) const READS: usize = 0;

/// Records read between two checks for cancellation.
const RECORDS_BETWEEN_CHECKS: usize = 256;

/// A reader resource.
pub(crate) struct Reader {
    kind: &'static str,
    pub(crate) gate: Arc<Gate<ReaderState>>,
}

impl Resource for Reader {
    fn kind(&self) -> &'static str {
        self.kind
    }
}

impl Gated for Reader {
    type Machine = ReaderState;

    fn gate(&self) -> &Gate<ReaderState> {
        &self.gate
    }
}

impl Reader {
    pub(crate) fn new(kind: &'static str, source: Box<dyn Source>) -> Reader {
        let reader_state = ReaderState {
            source,
            work: Bytes::new(),
            started: 0,
            finished: 0,
            produced: 0,
            dequeued: None,
            running_dequeue: None,
            pending_dequeue: None,
            is_dequeuing: false,
        };
        Reader { kind, gate: Gate::new(reader_state) }
    }
}

/// A call's request.
pub(crate) struct Request {
    number: u64,
    queue: Arc<Queue>,
    /// Maximum number of records (`ReaderReadUpTo`); `None` for `ReaderRead`.
    up_to: Option<usize>,
    /// The step of the call, in which the queue's dequeue op runs.
    step: Arc<StepContext>,
}

impl Request {
    pub(crate) fn new(queue: Arc<Queue>, up_to: Option<usize>, step: &Arc<StepContext>) -> Request {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Request { number, queue, up_to, step: step.clone() }
    }

    /// Whether it requests zero records.
    pub(crate) fn is_empty(&self) -> bool {
        self.up_to == Some(0)
    }
}

/// A file name that a request needs from its queue.
struct PendingDequeue {
    request: u64,
    queue: Arc<Queue>,
    step: Arc<StepContext>,
}

/// State of a reader.
pub(crate) struct ReaderState {
    source: Box<dyn Source>,
    /// The file name ("work unit") that is or was last read.
    work: Bytes,
    /// Number of work units started and finished: one less while one is being read.
    started: i64,
    finished: i64,
    produced: i64,
    /// A dequeue result, with the number of its request.
    dequeued: Option<(u64, Result<Bytes>)>,
    /// The request for which a dequeue is running.
    running_dequeue: Option<u64>,
    /// The request for which a dequeue is still to be started.
    pending_dequeue: Option<PendingDequeue>,
    /// A thread runs [`run_dequeues`] and will handle dequeues that become necessary meanwhile.
    is_dequeuing: bool,
}

impl Machine for ReaderState {
    type Request = Request;
    const LANES: &'static [Lane] = &[Lane::Ordered];

    fn advance(&mut self, request: &mut Request, step: &StepContext) -> Progress {
        loop {
            match self.ensure_work(request, step) {
                Ok(true) => {}
                Ok(false) => return Progress::Waits,
                Err(e) => return Progress::Done(Err(e)),
            }
            match self.read(request.up_to.unwrap_or(1), step) {
                // The file is empty: continue with the next.
                Ok(records) if records.is_empty() => {}
                Ok(records) => return Progress::Done(outputs(records, request.up_to.is_some())),
                Err(e) => return Progress::Done(Err(e)),
            }
        }
    }

    fn withdraw(&mut self, _: Request) -> Error {
        err!(Cancelled, "Read operation was cancelled")
    }
}

impl ReaderState {
    /// Whether a file is open for reading.
    fn ensure_work(&mut self, request: &Request, step: &StepContext) -> Result<bool> {
        if self.started > self.finished {
            return Ok(true);
        }
        match self.dequeued.take() {
            Some((_, Ok(work))) => {
                self.source.open(path_of(&work)?, step)?;
                self.work = work;
                self.started += 1;
                Ok(true)
            }
            Some((number, Err(e))) if number == request.number => {
                self.work = Bytes::new();
                Err(e)
            }
            // There is no result yet, or the error belonged to another request.
            _ => {
                if self.running_dequeue.is_none() {
                    let (queue, step) = (request.queue.clone(), request.step.clone());
                    self.pending_dequeue =
                        Some(PendingDequeue { request: request.number, queue, step });
                }
                Ok(false)
            }
        }
    }

    /// The next records of the file, at most `count`; fewer at its end, which finishes the work
    /// unit.
    fn read(&mut self, count: usize, step: &StepContext) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        let read = self.read_into(&mut records, count, step);
        // Records before a damaged one count as produced, although they are not returned.
        self.produced += records.len() as i64;
        read.map(|()| records)
    }

    fn read_into(
        &mut self,
        records: &mut Vec<Record>,
        count: usize,
        step: &StepContext,
    ) -> Result<()> {
        let work = self.work.clone();
        let path = path_of(&work)?;
        let mut bytes = 0;
        while records.len() < count {
            if records.len().is_multiple_of(RECORDS_BETWEEN_CHECKS) {
                step.cancellation().check()?;
            }
            let next = self.source.next(path, step)?;
            if let Some(record) = next.record {
                bytes += size_of::<Record>() + record.0.len();
                step.budget().check(bytes)?;
                records.push(record);
            }
            if next.is_at_end {
                self.finish();
                break;
            }
        }
        Ok(())
    }

    fn finish(&mut self) {
        self.source.close();
        self.finished = self.started;
    }

    /// Numbers of records produced and work units completed.
    pub(crate) fn counts(&self) -> (i64, i64) {
        (self.produced, self.finished)
    }

    /// `ReaderReset`: returns to the initial state.
    pub(crate) fn reset(&mut self) {
        self.source.close();
        self.work = Bytes::new();
        (self.started, self.finished, self.produced) = (0, 0, 0);
    }

    /// Serializes the state (`ReaderSerializeState`).
    pub(crate) fn state(&self) -> Result<Vec<u8>> {
        ensure!(self.source.keeps_state(), Unimplemented, "Reader SerializeState");
        let state = pb::ReaderBaseState {
            work_started: self.started,
            work_finished: self.finished,
            num_records_produced: self.produced,
            current_work: self.work.clone(),
        };
        Ok(state.encode_to_vec())
    }

    /// Restores a state that [`ReaderState::state`] serialized.
    pub(crate) fn restore(&mut self, state: &Bytes) -> Result<()> {
        ensure!(self.source.keeps_state(), Unimplemented, "Reader RestoreState");
        let Ok(state) = pb::ReaderBaseState::decode(state.clone()) else {
            bail!(InvalidArgument, "Could not parse state for reader: {state:?}");
        };
        let (started, finished) = (state.work_started, state.work_finished);
        // A position within a file cannot be restored.
        let is_possible = started >= 0 && finished >= started && state.num_records_produced >= 0;
        ensure!(
            is_possible,
            InvalidArgument,
            "Unexpected state of a reader: {started} files begun, {finished} done, {} records",
            state.num_records_produced
        );
        self.source.close();
        (self.started, self.finished) = (started, finished);
        self.produced = state.num_records_produced;
        self.work = state.current_work;
        Ok(())
    }
}

/// Keys and values as the outputs of a call.
pub(crate) fn outputs(records: Vec<Record>, is_batch: bool) -> Result<Outputs> {
    let (keys, values): (Vec<Bytes>, Vec<Bytes>) = records.into_iter().unzip();
    let shape = if is_batch { Shape::new(&[keys.len()])? } else { Shape::scalar() };
    let keys = Tensor::from_strings(shape.clone(), keys)?;
    Ok(smallvec![keys.into(), Tensor::from_strings(shape, values)?.into()])
}

/// Starts the dequeues that waiting calls need, until none is left.
///
/// A dequeue may complete before `start` returns; its callback then finds `is_dequeuing` set and
/// leaves the rest to this loop. A loop instead of recursion bounds the stack for any number of
/// empty files.
pub(crate) fn run_dequeues(gate: &Arc<Gate<ReaderState>>) {
    if gate.change(|reader_state| std::mem::replace(&mut reader_state.is_dequeuing, true)) {
        return;
    }
    loop {
        let pending_dequeue = gate.change(|reader_state| {
            let pending_dequeue = reader_state.pending_dequeue.take();
            match &pending_dequeue {
                Some(pending_dequeue) => {
                    reader_state.running_dequeue = Some(pending_dequeue.request);
                }
                None => reader_state.is_dequeuing = false,
            }
            pending_dequeue
        });
        match pending_dequeue {
            Some(pending_dequeue) => start_dequeue(pending_dequeue, Arc::downgrade(gate)),
            None => return,
        }
    }
}

fn start_dequeue(
    PendingDequeue { request, queue, step }: PendingDequeue,
    reader_state: Weak<Gate<ReaderState>>,
) {
    let answered = move |result: Result<Outputs>| {
        let Some(gate) = reader_state.upgrade() else { return };
        let dequeued = result.and_then(|outputs| work_of(&outputs));
        gate.change(|reader_state| {
            reader_state.running_dequeue = None;
            reader_state.dequeued = Some((request, dequeued));
        });
        run_dequeues(&gate);
    };
    let (resources, step_id) = (step.resources().clone(), step.step_id());
    let mut call = Some(AsyncCall::new(SmallVec::new(), step, 1, Box::new(answered)));
    let result = resources.update(&*queue, "ReaderRead", step_id, || {
        if let Some(call) = call.take() {
            queue.gate().submit(DEQUEUES, QueueRequest::Dequeue, call);
        }
        Ok(())
    });
    if let (Err(e), Some(call)) = (result, call) {
        call.complete(Err(e));
    }
}

/// The file name that a dequeue returned.
fn work_of(outputs: &[Value]) -> Result<Bytes> {
    let [Value::Tensor(tensor)] = outputs else {
        bail!(InvalidArgument, "Expected single component queue, got {} components", outputs.len());
    };
    ensure!(
        tensor.dtype() == DType::String,
        InvalidArgument,
        "Expected queue with single string component, got {}",
        tensor.dtype()
    );
    match tensor.strings()? {
        [work] => Ok(work.clone()),
        _ => bail!(
            InvalidArgument,
            "Expected to dequeue a one-element string tensor, got shape {}",
            tensor.shape()
        ),
    }
}
