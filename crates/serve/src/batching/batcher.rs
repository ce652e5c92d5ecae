//! The batch scheduler of one method: requests wait in a queue, run as one step, and get their own
//! rows back.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_kernel::{Cancellation, Clock};
use thalweg_runtime::RunOptions;
use thalweg_tensor::{Code, Error, Result, Tensor, err};
use tokio::sync::oneshot;

use super::batch::{self, Batch};
use super::counts::Totals;
use super::learner::Learner;
use super::parameters::{Batching, Parameters};
use super::queue::{Key, Limits, Piece, Queue, Rejected};
use crate::sizes::Sizes;

/// In automatic mode, at most this many full batches of rows may wait.
const WAITING_BATCHES: usize = 16;
/// Dimensions up to this size are padded to any other size; larger ones to at most twice their
/// size, so that one request cannot make the others grow without bound.
const PADDED_FREELY_MAX: usize = 1024;

/// The batch scheduler of one method.
pub(crate) struct Batcher {
    settings: Batching,
    sizes: Arc<Sizes>,
    clock: Arc<dyn Clock>,
    totals: Arc<Totals>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: Queue,
    /// Parts of a batch that failed for lack of memory: each runs in a batch of its own.
    retries: VecDeque<Piece>,
    requests: HashMap<u64, Request>,
    batches: BTreeMap<u64, Running>,
    /// The number of requests and batches so far, used as their ids.
    count: u64,
    learner: Option<Learner>,
    /// When the queue is checked next, if a check is scheduled.
    next_check: Option<Duration>,
}

/// A request that has not been answered.
struct Request {
    inputs: Vec<Tensor>,
    rows: usize,
    /// The answers to some of its rows, by their first row.
    answers: BTreeMap<usize, Vec<Tensor>>,
    rows_answered: usize,
    sender: oneshot::Sender<Result<Vec<Tensor>>>,
}

/// A batch whose step runs.
struct Running {
    pieces: Vec<Piece>,
    begin: Duration,
    cancellation: Cancellation,
}

impl Batcher {
    /// A scheduler for this method, which counts in `totals`.
    pub(crate) fn new(
        settings: Batching,
        sizes: Arc<Sizes>,
        clock: Arc<dyn Clock>,
        totals: Arc<Totals>,
    ) -> Batcher {
        let learner = match &settings {
            Batching::Automatic { goal, .. } => Some(Learner::new(*goal)),
            Batching::Set(_) => None,
        };
        let state = Mutex::new(State { learner, ..State::default() });
        Batcher { settings, sizes, clock, totals, state }
    }

    /// Runs a request in a batch. If the future is dropped, the request leaves the queue, and a
    /// batch without remaining requests is cancelled.
    ///
    /// Returns `None` if the request cannot be batched: its inputs differ in the number of rows.
    pub(crate) fn run(
        self: &Arc<Self>,
        inputs: &[Tensor],
    ) -> Option<impl Future<Output = Result<Vec<Tensor>>> + use<>> {
        let rows = rows_of(inputs)?;
        let (sender, receiver) = oneshot::channel();
        let (this, inputs) = (self.clone(), inputs.to_vec());
        Some(async move {
            let request = this.push(inputs, rows, sender)?;
            let _remove_on_drop = RemoveOnDrop { batcher: &this, request };
            this.start_due_batches();
            receiver.await.unwrap_or_else(|_| {
                Err(err!(Internal, "internal error: the batch was dropped without a result"))
            })
        })
    }

    fn push(
        &self,
        inputs: Vec<Tensor>,
        rows: usize,
        sender: oneshot::Sender<Result<Vec<Tensor>>>,
    ) -> Result<u64> {
        let now = self.clock.monotonic();
        let key = self.key_of(&inputs);
        let mut state = self.state.lock();
        let limits = self.limits(&state);
        state.count += 1;
        let (request, before) = (state.count, state.queue.rows());
        if let Err(why) = state.queue.push((request, key), rows, now, &limits) {
            self.totals.rejected();
            return Err(rejection(why, rows, before, &limits));
        }
        self.totals.waiting(before, state.queue.rows());
        if let Some(learner) = &mut state.learner {
            learner.arrived(rows, now);
        }
        let answers = BTreeMap::new();
        state.requests.insert(request, Request { inputs, rows, answers, rows_answered: 0, sender });
        Ok(request)
    }

    /// The batching key of inputs: requests with equal keys can share a batch.
    fn key_of(&self, inputs: &[Tensor]) -> Key {
        let pads = self.parameters().is_some_and(|p| p.pad_variable_length_inputs);
        let size = |&dim: &usize| match pads {
            false => dim,
            true => (dim / PADDED_FREELY_MAX).checked_ilog2().map_or(0, |bits| bits as usize + 1),
        };
        let mut key = Vec::new();
        for input in inputs {
            key.extend([input.dtype() as usize, input.rank()]);
            key.extend(input.shape()[1..].iter().map(size));
        }
        key.into()
    }

    fn parameters(&self) -> Option<&Parameters> {
        match &self.settings {
            Batching::Set(parameters) => Some(parameters),
            Batching::Automatic { .. } => None,
        }
    }

    fn limits(&self, state: &State) -> Limits {
        match (&self.settings, &state.learner) {
            (Batching::Set(parameters), _) => parameters.limits(),
            (Batching::Automatic { batch_rows, .. }, learner) => {
                let lanes = self.settings.lanes();
                let (most, (enough_rows, wait)) = match learner {
                    Some(learner) => {
                        (learner.batch_rows(*batch_rows), learner.wait(*batch_rows, lanes))
                    }
                    None => (*batch_rows, (1, Duration::ZERO)),
                };
                Limits {
                    batch_rows: most,
                    enough_rows,
                    wait,
                    waiting_rows: batch_rows.saturating_mul(WAITING_BATCHES),
                    may_split: true,
                }
            }
        }
    }

    /// Starts the batches that are due, and schedules the next check.
    fn start_due_batches(self: &Arc<Self>) {
        while let Some((number, batch, cancellation)) = self.next_batch() {
            self.start(number, batch, cancellation);
        }
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        if state.batches.len() >= self.settings.lanes() {
            // The end of a batch calls this function again.
            return;
        }
        let limits = self.limits(&state);
        let Some(next) = state.queue.next_due(&limits) else { return };
        if state.next_check.is_some_and(|next_check| next_check > now && next_check <= next) {
            return;
        }
        state.next_check = Some(next);
        drop(state);
        let this = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(next.saturating_sub(now)).await;
            if let Some(this) = this.upgrade() {
                this.state.lock().next_check = None;
                this.start_due_batches();
            }
        });
    }

    /// The next batch that is due, if one may run.
    fn next_batch(&self) -> Option<(u64, Batch, Cancellation)> {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        if state.batches.len() >= self.settings.lanes() {
            return None;
        }
        let pieces = match state.retries.pop_front() {
            Some(piece) => vec![piece],
            None => {
                let limits = self.limits(&state);
                let before = state.queue.rows();
                let pieces = state.queue.take(now, &limits)?;
                self.totals.waiting(before, state.queue.rows());
                pieces
            }
        };
        let batch = Batch {
            parts: pieces
                .iter()
                .map(|piece| (state.requests[&piece.request].inputs.clone(), *piece))
                .collect(),
            parameters: self.parameters().cloned(),
            budget: self.sizes.budget().clone(),
        };
        state.count += 1;
        let number = state.count;
        let cancellation = Cancellation::default();
        let running = Running { pieces, begin: now, cancellation: cancellation.clone() };
        state.batches.insert(number, running);
        Some((number, batch, cancellation))
    }

    fn start(self: &Arc<Self>, number: u64, batch: Batch, cancellation: Cancellation) {
        let rows = batch.padded_rows();
        self.start_with(number, rows, cancellation, move || batch.join());
    }

    fn start_with(
        self: &Arc<Self>,
        number: u64,
        rows: usize,
        cancellation: Cancellation,
        join: impl FnOnce() -> Result<Vec<Tensor>> + Send + 'static,
    ) {
        let options = RunOptions { cancellation: Some(cancellation), ..Default::default() };
        let end_on_drop = EndOnDrop {
            batcher: self.clone(),
            number,
            has_ended: false,
            runtime: tokio::runtime::Handle::current(),
        };
        self.sizes.start_with(options, join, move |result| {
            let result =
                result.and_then(|(outputs, _)| batch::check(&outputs, rows).map(|()| outputs));
            end_on_drop.end(&result);
        });
    }

    /// Ends a batch: its requests get their rows, or its error. A batch that failed for lack of
    /// memory is split into single requests: padded inputs take more memory together than alone.
    fn ended(&self, number: u64, result: &Result<Vec<Tensor>>) {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        let Some(running) = state.batches.remove(&number) else { return };
        let is_out_of_memory = result.as_ref().is_err_and(|e| e.code() == Code::ResourceExhausted);
        if is_out_of_memory && running.pieces.len() > 1 {
            let State { retries, requests, .. } = &mut *state;
            let waits = |piece: &Piece| requests.contains_key(&piece.request);
            retries.extend(running.pieces.into_iter().filter(waits));
            return;
        }
        let rows: usize = running.pieces.iter().map(|piece| piece.rows).sum();
        self.totals.ran(rows);
        if let (Some(learner), true) = (&mut state.learner, result.is_ok()) {
            learner.ran(rows, now.saturating_sub(running.begin));
        }
        let (mut at, mut ready) = (0, Vec::new());
        for piece in running.pieces {
            let rows = batch::slice(result, at, piece.rows);
            at += piece.rows;
            ready.extend(state.answer(&piece, rows));
        }
        drop(state);
        for (request, result) in ready {
            let result =
                result.and_then(|()| batch::concatenated(request.answers, self.sizes.budget()));
            // The receiver is dropped if the client has disconnected.
            let _ = request.sender.send(result);
        }
    }

    fn remove_request(&self, request: u64) {
        let mut state = self.state.lock();
        // None if the request was answered.
        let Some(request_state) = state.requests.remove(&request) else { return };
        let before = state.queue.rows();
        state.cancel(request);
        self.totals.waiting(before, state.queue.rows());
        let has_no_requests = |running: &&Running| {
            running.pieces.iter().all(|piece| !state.requests.contains_key(&piece.request))
        };
        let idle: Vec<Cancellation> = state
            .batches
            .values()
            .filter(has_no_requests)
            .map(|b| b.cancellation.clone())
            .collect();
        drop(state);
        drop(request_state);
        for cancellation in idle {
            cancellation.cancel(err!(Cancelled, "the clients disconnected"));
        }
    }
}

impl State {
    /// Removes a request.
    fn cancel(&mut self, request: u64) {
        self.queue.cancel(request);
        self.retries.retain(|piece| piece.request != request);
    }

    /// Stores the answer to a part of a request; returns the request once it is complete.
    fn answer(
        &mut self,
        piece: &Piece,
        rows: Result<Vec<Tensor>>,
    ) -> Option<(Request, Result<()>)> {
        let request = self.requests.get_mut(&piece.request)?;
        match rows {
            Ok(tensors) => {
                request.answers.insert(piece.start, tensors);
                request.rows_answered += piece.rows;
                if request.rows_answered < request.rows {
                    return None;
                }
                Some((self.requests.remove(&piece.request)?, Ok(())))
            }
            Err(e) => {
                self.cancel(piece.request);
                Some((self.requests.remove(&piece.request)?, Err(e)))
            }
        }
    }
}

fn rejection(why: Rejected, rows: usize, waiting: usize, limits: &Limits) -> Error {
    match why {
        Rejected::Full => err!(
            ResourceExhausted,
            "the batching queue is full: {waiting} rows wait, at most {} may; try again later",
            limits.waiting_rows
        ),
        Rejected::TooLarge => err!(
            InvalidArgument,
            "the request has {rows} rows; a batch has at most {}",
            limits.batch_rows
        ),
    }
}

/// Ends a batch on drop, so that a step that panics or is dropped does not keep its thread slot.
struct EndOnDrop {
    batcher: Arc<Batcher>,
    number: u64,
    has_ended: bool,
    runtime: tokio::runtime::Handle,
}

impl EndOnDrop {
    fn end(mut self, result: &Result<Vec<Tensor>>) {
        self.batcher.ended(self.number, result);
        self.has_ended = true;
    }
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        if !self.has_ended {
            let lost = Err(err!(Internal, "internal error: the batch ended without a result"));
            self.batcher.ended(self.number, &lost);
        }
        let _on_runtime = self.runtime.enter();
        self.batcher.start_due_batches();
    }
}

/// Removes a request when its future is dropped.
struct RemoveOnDrop<'a> {
    batcher: &'a Batcher,
    request: u64,
}

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        self.batcher.remove_request(self.request);
    }
}

/// The number of rows, if it is the same for all inputs.
fn rows_of(inputs: &[Tensor]) -> Option<usize> {
    let rows = *inputs.first()?.shape().first()?;
    let same = inputs.iter().all(|input| input.shape().first() == Some(&rows));
    (same && rows > 0).then_some(rows)
}

#[cfg(test)]
mod tests {
    use thalweg_graph::Scope;
    use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
    use thalweg_runtime::{Session, SessionOptions};
    use thalweg_tensor::{DType, PartialShape, Shape};

    use super::*;
    use crate::sizes::PlanLimiter;

    /// Batches of `x + x`, or of the sum of all rows if the model cannot be batched.
    fn batcher(settings: Batching, fetch: &str) -> Arc<Batcher> {
        batcher_in(SessionOptions::default(), settings, fetch)
    }

    fn batcher_in(options: SessionOptions, settings: Batching, fetch: &str) -> Arc<Batcher> {
        let mut s = Scope::new(op_registry(FAMILIES).unwrap());
        let shape = PartialShape::new([None, None]);
        let x = s.op("Placeholder").name("x").attr("dtype", DType::Float).attr("shape", &shape);
        let x = x.build().unwrap();
        s.op("AddV2").name("double").inputs(&[x, x]).build().unwrap();
        let axis = s.constant(&Tensor::scalar(0i32)).unwrap();
        s.op("Sum").name("sum").inputs(&[x, axis]).build().unwrap();
        let clock = options.environment.clock.clone();
        let session = Session::new(s.to_graph(), kernel_registry(FAMILIES), options).unwrap();
        let callable = session.make_callable(&["x"], &[fetch], &[]).unwrap();
        let sizes = Sizes::new(callable, PlanLimiter::new(clock.clone()));
        Arc::new(Batcher::new(settings, sizes, clock, Arc::default()))
    }

    fn set(parameters: Parameters) -> Batching {
        Batching::Set(Parameters { threads: 1, ..parameters })
    }

    fn rows(first: usize, count: usize, width: usize) -> Tensor {
        let values: Vec<f32> = (0..count * width).map(|i| (first + i) as f32).collect();
        Tensor::from_slice(Shape::new(&[count, width]).unwrap(), &values).unwrap()
    }

    fn doubled(tensor: &Tensor) -> Vec<f32> {
        tensor.as_slice::<f32>().unwrap().iter().map(|v| v + v).collect()
    }

    async fn run_one(batcher: &Arc<Batcher>, input: Tensor) -> Result<Vec<f32>> {
        let outputs = batcher.run(&[input]).expect("it has rows").await?;
        Ok(outputs[0].as_slice::<f32>().unwrap().to_vec())
    }

    /// Runs all inputs concurrently and checks each output.
    async fn check_all(batcher: &Arc<Batcher>, inputs: Vec<Tensor>) {
        let runs: Vec<_> = inputs
            .into_iter()
            .map(|input| {
                let batcher = batcher.clone();
                tokio::spawn(
                    async move { (doubled(&input), run_one(&batcher, input).await.unwrap()) },
                )
            })
            .collect();
        for run in runs {
            let (expected, answer) = run.await.unwrap();
            assert_eq!(answer, expected);
        }
    }

    #[tokio::test]
    async fn each_request_gets_its_own_rows() {
        let wait = Duration::from_millis(20);
        let sizes = vec![4, 16];
        let batcher = batcher(
            set(Parameters {
                max_batch_size: 16,
                batch_timeout: wait,
                allowed_batch_sizes: sizes,
                ..Default::default()
            }),
            "double",
        );
        // Widths do not mix, and the last is larger than a batch.
        let mut inputs: Vec<Tensor> = (0..24).map(|i| rows(i, 1 + i % 3, 1 + i % 2)).collect();
        inputs.push(rows(7, 50, 2));
        check_all(&batcher, inputs).await;
        let counts = batcher.totals.now();
        assert_eq!((counts.rows, counts.waiting), (48 + 50, 0));
        assert!(counts.batches < 20, "{counts:?}");
    }

    #[tokio::test]
    async fn different_widths_are_padded_when_asked() {
        let parameters = Parameters {
            max_batch_size: 4,
            batch_timeout: Duration::from_millis(20),
            pad_variable_length_inputs: true,
            ..Default::default()
        };
        let batcher = batcher(set(parameters), "double");
        let (narrow, wide) =
            tokio::join!(run_one(&batcher, rows(1, 1, 1)), run_one(&batcher, rows(1, 3, 2)));
        assert_eq!(narrow.unwrap(), [2.0, 2.0]);
        assert_eq!(wide.unwrap(), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
        // A far wider request runs in a batch of its own.
        let (narrow, wide) =
            tokio::join!(run_one(&batcher, rows(1, 1, 1)), run_one(&batcher, rows(1, 1, 5000)));
        assert_eq!((narrow.unwrap().len(), wide.unwrap().len()), (1, 5000));
    }

    /// One wide request among narrow ones: together they would take seventeen times its size.
    #[tokio::test]
    async fn a_batch_beyond_the_budget_is_split() {
        let parameters = Parameters {
            max_batch_size: 17,
            batch_timeout: Duration::from_secs(3600),
            pad_variable_length_inputs: true,
            ..Default::default()
        };
        let options = SessionOptions { memory_limit_bytes: 40 << 10, ..Default::default() };
        let batcher = batcher_in(options, set(parameters), "double");
        let mut inputs: Vec<Tensor> = (0..16).map(|i| rows(i, 1, 1)).collect();
        inputs.push(rows(3, 1, 1000));
        check_all(&batcher, inputs).await;
        assert_eq!(batcher.totals.now().batches, 17);
        assert!(batcher.state.lock().retries.is_empty());
    }

    /// A request that exceeds the budget alone fails; the others succeed.
    #[tokio::test]
    async fn a_request_beyond_the_budget_fails_alone() {
        let parameters = Parameters {
            max_batch_size: 3,
            batch_timeout: Duration::from_secs(3600),
            pad_variable_length_inputs: true,
            ..Default::default()
        };
        let options = SessionOptions { memory_limit_bytes: 3 << 10, ..Default::default() };
        let batcher = batcher_in(options, set(parameters), "double");
        let (one, wide, other) = tokio::join!(
            run_one(&batcher, rows(1, 1, 1)),
            run_one(&batcher, rows(0, 1, 1000)),
            run_one(&batcher, rows(2, 1, 1))
        );
        assert_eq!((one.unwrap(), other.unwrap()), (vec![2.0], vec![4.0]));
        assert_eq!(wide.unwrap_err().code(), Code::ResourceExhausted);
    }

    #[test]
    fn keys_describe_dtypes_and_shapes() {
        let pads = Parameters { pad_variable_length_inputs: true, ..Default::default() };
        let (plain, pads) =
            (batcher(set(Parameters::default()), "double"), batcher(set(pads), "double"));
        let floats =
            |dims: &[usize]| Tensor::zeros(DType::Float, Shape::new(dims).unwrap()).unwrap();
        let words = Tensor::zeros(DType::String, Shape::new(&[1, 2]).unwrap()).unwrap();
        for (one, other, same, same_padded) in [
            (vec![floats(&[1, 2])], vec![floats(&[5, 2])], true, true),
            (vec![floats(&[1, 2])], vec![floats(&[1, 1023])], false, true),
            (vec![floats(&[1, 2])], vec![floats(&[1, 1024])], false, false),
            (vec![floats(&[1, 1500])], vec![floats(&[1, 2047])], false, true),
            (vec![floats(&[1, 1500])], vec![floats(&[1, 2048])], false, false),
            (vec![floats(&[1, 2])], vec![floats(&[1, 2, 1])], false, false),
            (vec![floats(&[1, 2])], vec![words], false, false),
            // Dimensions are not confused across inputs.
            (
                vec![floats(&[1, 2, 3]), floats(&[1])],
                vec![floats(&[1, 2]), floats(&[1, 3])],
                false,
                false,
            ),
        ] {
            assert_eq!(plain.key_of(&one) == plain.key_of(&other), same, "{one:?} {other:?}");
            assert_eq!(pads.key_of(&one) == pads.key_of(&other), same_padded, "{one:?} {other:?}");
        }
    }

    #[tokio::test]
    async fn a_panic_frees_its_lane() {
        let batcher = batcher(set(Parameters { threads: 1, ..Default::default() }), "double");
        let (sender, receiver) = oneshot::channel();
        batcher.push(vec![rows(0, 1, 1)], 1, sender).unwrap();
        let (number, _, cancellation) = batcher.next_batch().expect("the batch timeout is zero");
        assert!(batcher.next_batch().is_none(), "the only lane is taken");
        batcher.start_with(number, 1, cancellation, || panic!("injected"));
        // This request waits for the lane.
        let next = tokio::time::timeout(Duration::from_secs(60), run_one(&batcher, rows(2, 1, 1)));
        assert_eq!(next.await.expect("the lane is free").unwrap(), [4.0]);
        assert_eq!(receiver.await.unwrap().unwrap_err().code(), Code::Internal);
    }

    #[tokio::test]
    async fn the_automatic_mode_answers() {
        let goal = Duration::from_millis(50);
        let batcher = batcher(Batching::Automatic { goal, batch_rows: 64 }, "double");
        for round in 0..5 {
            check_all(&batcher, (0..40).map(|i| rows(i + round, 1 + i % 5, 3)).collect()).await;
        }
        assert_eq!(batcher.totals.now().rows, 5 * 120);
    }

    #[tokio::test]
    async fn a_dropped_request_leaves_the_queue() {
        let parameters = Parameters {
            max_batch_size: 2,
            max_enqueued_batches: 1,
            batch_timeout: Duration::from_secs(3600),
            ..Default::default()
        };
        let batcher = batcher(set(parameters), "double");
        let waiting = run_one(&batcher, rows(0, 1, 1));
        assert!(tokio::time::timeout(Duration::from_millis(10), waiting).await.is_err());
        assert_eq!(batcher.totals.now().waiting, 0);
        assert!(batcher.state.lock().requests.is_empty());
        let (one, other) =
            tokio::join!(run_one(&batcher, rows(0, 1, 1)), run_one(&batcher, rows(5, 1, 1)));
        assert_eq!((one.unwrap(), other.unwrap()), (vec![0.0], vec![10.0]));
    }

    #[tokio::test]
    async fn a_full_queue_and_a_model_without_rows_are_refused() {
        let parameters = Parameters {
            max_batch_size: 2,
            max_enqueued_batches: 1,
            batch_timeout: Duration::from_millis(50),
            ..Default::default()
        };
        let full = batcher(set(parameters), "double");
        let (first, second) = tokio::join!(run_one(&full, rows(0, 1, 1)), async {
            run_one(&full, rows(0, 9, 1)).await
        });
        assert!(first.is_ok());
        assert_eq!(second.unwrap_err().code(), Code::ResourceExhausted);
        assert_eq!(full.totals.now().rejected, 1);
        let sums = batcher(set(Parameters::default()), "sum");
        let error = run_one(&sums, rows(0, 3, 2)).await.unwrap_err();
        assert!(error.message().contains("cannot be batched"), "{error}");
    }
}
