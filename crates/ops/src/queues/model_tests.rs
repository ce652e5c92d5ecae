//! Model-based test of queues: random sequential requests, cancellations and closings.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::smallvec;
use thalweg_kernel::{AsyncCall, OneThread, Outputs, StepContext, Value};
use thalweg_tensor::{Budget, Code, DType, PartialShape, Result, Tensor, err};

use super::gate::Gated;
use super::queue::{DEQUEUES, ENQUEUES, Kind, Queue, Request, Spec};
use crate::math::random::philox::Philox;
use crate::testing::step;

/// Result of a call: dequeued elements or an error code.
type Outcome = std::result::Result<Vec<i64>, Code>;

enum Put {
    Elements(VecDeque<i64>),
    Close,
}

struct Get {
    count: usize,
    is_up_to: bool,
    taken: VecDeque<i64>,
}

/// Reference model of a queue.
struct Model {
    capacity: usize,
    elements: VecDeque<i64>,
    is_closed: bool,
    puts: VecDeque<(usize, Put)>,
    gets: VecDeque<(usize, Get)>,
    outcomes: BTreeMap<usize, Outcome>,
}

impl Model {
    fn new(capacity: usize) -> Model {
        Model {
            capacity,
            elements: VecDeque::new(),
            is_closed: false,
            puts: VecDeque::new(),
            gets: VecDeque::new(),
            outcomes: BTreeMap::new(),
        }
    }

    fn settle(&mut self) {
        while self.settle_put() || self.settle_get() {}
    }

    /// Advances the first enqueue; returns whether it made progress.
    fn settle_put(&mut self) -> bool {
        let Some((id, put)) = self.puts.front_mut() else { return false };
        let outcome = match put {
            _ if self.is_closed => Err(Code::Cancelled),
            Put::Close => {
                self.is_closed = true;
                Ok(Vec::new())
            }
            Put::Elements(elements) => {
                // Elements that were put back may exceed the capacity.
                let room = self.capacity.saturating_sub(self.elements.len());
                let moved = room.min(elements.len());
                self.elements.extend(elements.drain(..moved));
                if !elements.is_empty() {
                    return moved > 0;
                }
                Ok(Vec::new())
            }
        };
        self.outcomes.insert(*id, outcome);
        self.puts.pop_front();
        true
    }

    fn settle_get(&mut self) -> bool {
        let Some((id, get)) = self.gets.front_mut() else { return false };
        let moved = self.elements.len().min(get.count - get.taken.len());
        get.taken.extend(self.elements.drain(..moved));
        let outcome = if get.taken.len() == get.count
            || (self.is_closed && get.is_up_to && !get.taken.is_empty())
        {
            Ok(get.taken.drain(..).collect())
        } else if self.is_closed {
            Err(Code::OutOfRange)
        } else {
            return moved > 0;
        };
        self.outcomes.insert(*id, outcome);
        if let Some((_, get)) = self.gets.pop_front() {
            self.put_back(get);
        }
        true
    }

    fn put_back(&mut self, get: Get) {
        for element in get.taken.into_iter().rev() {
            self.elements.push_front(element);
        }
    }

    fn cancel(&mut self, id: usize, code: Code) {
        let waits = |waiting: usize| waiting == id;
        if let Some(i) = self.puts.iter().position(|(waiting, _)| waits(*waiting)) {
            self.puts.remove(i);
            self.outcomes.insert(id, Err(code));
        }
        if let Some(i) = self.gets.iter().position(|(waiting, _)| waits(*waiting)) {
            if let Some((_, get)) = self.gets.remove(i) {
                self.put_back(get);
            }
            self.outcomes.insert(id, Err(code));
        }
    }

    fn close_and_cancel(&mut self) {
        self.is_closed = true;
        for (id, _) in self.puts.drain(..) {
            self.outcomes.insert(id, Err(Code::Cancelled));
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }
}

/// A queue under test and the outcomes of its calls.
struct Tested {
    queue: Queue,
    budget: Arc<Budget>,
    steps: Vec<Arc<StepContext>>,
    outcomes: Arc<Mutex<BTreeMap<usize, Outcome>>>,
}

fn elements(outputs: &Outputs) -> Vec<i64> {
    let tensor = outputs.first().and_then(Value::tensor);
    tensor.map_or(Vec::new(), |tensor| tensor.as_slice::<i64>().unwrap().to_vec())
}

impl Tested {
    fn new(kind: Kind, capacity: usize) -> Tested {
        let queue = Queue::new(Spec {
            kind,
            name: "q".into(),
            capacity,
            dtypes: vec![DType::Int64],
            shapes: vec![PartialShape::scalar()],
            min_after_dequeue: 0,
            seeds: (0, 0),
            generator: None,
        });
        let outcomes = Arc::default();
        Tested { queue, budget: Budget::new(1 << 20), steps: Vec::new(), outcomes }
    }

    fn submit(&mut self, lane: usize, request: Request) -> usize {
        let id = self.steps.len();
        let step = step(&self.budget, Arc::new(OneThread));
        let outcomes = self.outcomes.clone();
        let done = Box::new(move |result: Result<Outputs>| {
            let outcome = result.map(|outputs| elements(&outputs)).map_err(|e| e.code());
            assert!(outcomes.lock().insert(id, outcome).is_none(), "call {id} ended twice");
        });
        self.steps.push(step.clone());
        self.queue.gate().submit(lane, request, AsyncCall::new(smallvec![], step, 1, done));
        id
    }
}

/// One random event, applied to the queue and the model.
fn event(tested: &mut Tested, model: &mut Model, random: &mut Random) {
    let first = (tested.steps.len() * 100) as i64;
    let count = 1 + random.below(6);
    match random.below(14) {
        0..=3 => {
            let request = Request::Enqueue(smallvec![Tensor::scalar(first)]);
            let id = tested.submit(ENQUEUES, request);
            model.puts.push_back((id, Put::Elements([first].into())));
        }
        4..=5 => {
            let rows: Vec<i64> = (first..first + count as i64).collect();
            let batch = smallvec![Tensor::vector(&rows).unwrap()];
            let id = tested.submit(ENQUEUES, Request::EnqueueMany { batch, next: 0, count });
            model.puts.push_back((id, Put::Elements(rows.into())));
        }
        6..=8 => {
            let id = tested.submit(DEQUEUES, Request::Dequeue);
            model.gets.push_back((id, Get { count: 1, is_up_to: false, taken: [].into() }));
        }
        kind @ 9..=10 => {
            let is_up_to = kind == 9;
            let request = Request::DequeueMany { count, is_up_to, taken: Vec::new() };
            let id = tested.submit(DEQUEUES, request);
            model.gets.push_back((id, Get { count, is_up_to, taken: [].into() }));
        }
        11..=12 if !tested.steps.is_empty() => {
            let id = random.below(tested.steps.len());
            tested.steps[id].cancellation().cancel(err!(DeadlineExceeded, "late"));
            model.cancel(id, Code::DeadlineExceeded);
        }
        _ if random.below(6) == 0 => {
            let id = tested.submit(ENQUEUES, Request::Close);
            model.puts.push_back((id, Put::Close));
        }
        _ if random.below(12) == 0 => {
            tested.queue.close_and_cancel();
            model.close_and_cancel();
        }
        _ => {}
    }
    model.settle();
}

#[test]
fn queues_do_what_the_model_does() {
    for seed in 0..400 {
        let mut random = Random(seed);
        let capacity = 1 + random.below(5);
        let kind = [Kind::Fifo, Kind::PaddingFifo][random.below(2)];
        let (mut tested, mut model) = (Tested::new(kind, capacity), Model::new(capacity));
        for n in 0..60 {
            event(&mut tested, &mut model, &mut random);
            assert_eq!(*tested.outcomes.lock(), model.outcomes, "seed {seed}, event {n}");
            assert_eq!(tested.queue.len(), model.elements.len(), "seed {seed}, event {n}");
        }
        // Dropping the queue frees its elements and fails the waiting calls.
        let Tested { queue, budget, steps, outcomes } = tested;
        drop(queue);
        let outcomes = outcomes.lock();
        assert_eq!(outcomes.len(), steps.len(), "seed {seed}");
        assert_eq!(budget.used_bytes(), 0, "seed {seed}");
    }
}

#[test]
fn a_shuffling_queue_loses_and_doubles_nothing() {
    for kind in [Kind::RandomShuffle, Kind::Priority] {
        let mut tested = Tested::new(kind, 100);
        let rows: Vec<i64> = (0..60).collect();
        let batch = smallvec![Tensor::vector(&rows).unwrap()];
        tested.submit(ENQUEUES, Request::EnqueueMany { batch, next: 0, count: 60 });
        let many = |count, is_up_to| Request::DequeueMany { count, is_up_to, taken: Vec::new() };
        let got =
            [tested.submit(DEQUEUES, many(50, false)), tested.submit(DEQUEUES, many(20, true))];
        let failing = tested.submit(DEQUEUES, many(20, false));
        // The second dequeue has taken or waits for the rest; when cancelled, it puts everything
        // back.
        tested.steps[got[1]].cancellation().cancel(err!(Cancelled, "no more"));
        let rest = tested.submit(DEQUEUES, many(20, true));
        tested.submit(ENQUEUES, Request::Close);
        let outcomes = tested.outcomes.lock();
        assert_eq!(outcomes[&got[1]], Err(Code::Cancelled));
        assert_eq!(outcomes[&failing], Err(Code::OutOfRange));
        let mut all: Vec<i64> =
            [got[0], rest].iter().flat_map(|id| outcomes[id].clone().unwrap()).collect();
        if kind == Kind::Priority {
            assert_eq!(all, rows);
        }
        all.sort_unstable();
        assert_eq!(all, rows);
    }
}

#[test]
fn a_seed_shuffles_as_in_tensorflow() {
    let mut tested = Tested::new(Kind::RandomShuffle, 20);
    tested.queue = Queue::new(Spec {
        generator: Some(Philox::from_seeds(87_654_321, 3)),
        ..(*tested.queue.spec).clone()
    });
    let many = |count, is_up_to| Request::DequeueMany { count, is_up_to, taken: Vec::new() };
    let rows = |rows: std::ops::Range<i64>| {
        let count = rows.clone().count();
        let batch = smallvec![Tensor::vector(&rows.collect::<Vec<_>>()).unwrap()];
        Request::EnqueueMany { batch, next: 0, count }
    };
    tested.submit(ENQUEUES, rows(0..9));
    let ids = [tested.submit(DEQUEUES, many(4, false)), tested.submit(DEQUEUES, many(2, true))];
    tested.submit(ENQUEUES, rows(9..12));
    tested.submit(ENQUEUES, Request::Close);
    let failing = tested.submit(DEQUEUES, many(10, false));
    let rest = tested.submit(DEQUEUES, many(10, true));
    let outcomes = tested.outcomes.lock();
    assert_eq!(outcomes[&ids[0]], Ok(vec![2, 7, 5, 8]));
    assert_eq!(outcomes[&ids[1]], Ok(vec![6, 0]));
    assert_eq!(outcomes[&failing], Err(Code::OutOfRange));
    assert_eq!(outcomes[&rest], Ok(vec![4, 11, 1, 10, 3, 9]));
}

#[test]
fn elements_without_memory_of_their_own_are_counted() {
    let mut tested = Tested::new(Kind::Fifo, i32::MAX as usize);
    let count = 1 << 30;
    let batch = smallvec![
        Tensor::zeros(DType::Int64, thalweg_tensor::Shape::new(&[count, 0]).unwrap()).unwrap()
    ];
    let id = tested.submit(ENQUEUES, Request::EnqueueMany { batch, next: 0, count });
    assert_eq!(tested.outcomes.lock()[&id], Err(Code::ResourceExhausted));
}
