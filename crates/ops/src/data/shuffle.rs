//! `ShuffleDataset`, with TensorFlow's order for a given seed.
//!
//! A buffer is filled from the input; each step takes a random element and replaces it by the
//! oldest element. If the dataset is also repeated (`ShuffleAndRepeatDataset`), all elements of one
//! iteration leave the buffer before those of the next, and each iteration has new seeds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Result, ensure, err};

use super::dataset::{INFINITE, Iterate, Next, Source, Transform, YieldBudget, transformation};
use super::element::BufferedElement;
use super::scope::Scope;
use super::seeds::{SeedGenerator, input_seeds, seed_generator};
use crate::math::random::philox::{Philox, Samples};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        SHUFFLE_DATASET,
        OpDef::new("ShuffleDatasetV2", shape::scalar),
        SHUFFLE_DATASET_V3,
        OpDef::new("ShuffleAndRepeatDataset", shape::scalar),
        OpDef::new("ShuffleAndRepeatDatasetV2", shape::scalar),
    ],
    kernels: &[
        KernelSpec { op: "ShuffleDataset", create: shuffle, ..KernelSpec::CPU },
        KernelSpec { op: "ShuffleDatasetV2", create: shuffle, ..KernelSpec::CPU },
        KernelSpec { op: "ShuffleDatasetV3", create: shuffle, ..KernelSpec::CPU },
        KernelSpec { op: "ShuffleAndRepeatDataset", create: shuffle, ..KernelSpec::CPU },
        KernelSpec { op: "ShuffleAndRepeatDatasetV2", create: shuffle, ..KernelSpec::CPU },
    ],
};

const SHUFFLE_DATASET: OpDef = OpDef::new("ShuffleDataset", shape::scalar);

const SHUFFLE_DATASET_V3: OpDef = OpDef { name: "ShuffleDatasetV3", ..SHUFFLE_DATASET };

pub(crate) struct ShuffleDataset {
    pub(crate) buffer: usize,
    /// Number of iterations; -1 means forever.
    pub(crate) count: i64,
    pub(crate) seeds: Arc<SeedGenerator>,
}

fn shuffle(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let position = |name: &str| init.node.input_range(name).ok().map(|range| range.start);
    let (seed, count_input) = (position("seed"), position("count"));
    let generator = position("seed_generator").unwrap_or(usize::MAX);
    let changes = init.attrs().get("reshuffle_each_iteration").is_none()
        || init.attrs().bool("reshuffle_each_iteration")?;
    transformation(init, move |ctx, input, spec| {
        let buffer = ctx.scalar_int(1, "buffer_size")?;
        ensure!(
            buffer > 0 || buffer == -1,
            InvalidArgument,
            "buffer_size must be greater than zero or UNKNOWN_CARDINALITY"
        );
        let buffer = match buffer {
            // The whole dataset.
            -1 => usize::MAX,
            size => usize::try_from(size).unwrap_or(usize::MAX),
        };
        let count = match count_input {
            Some(i) => ctx.scalar_int(i, "count")?,
            None => 1,
        };
        ensure!(
            count > 0 || count == -1,
            InvalidArgument,
            "count must be greater than zero or equal to -1."
        );
        let seeds = match seed {
            Some(i) => input_seeds(ctx, i)?,
            None => {
                let entropy = &ctx.step().environment().entropy;
                (entropy.next_u64().cast_signed(), entropy.next_u64().cast_signed())
            }
        };
        let seeds = seed_generator(ctx, generator, seeds, changes)?;
        input.then(spec, ShuffleDataset { buffer, count, seeds })
    })
}

impl Transform for ShuffleDataset {
    fn rewind(&self) {
        self.seeds.rewind();
    }

    fn cardinality(&self, input: &Source) -> i64 {
        match input.cardinality() {
            0 => 0,
            _ if self.count < 0 => INFINITE,
            n if n < 0 => n,
            n => n.saturating_mul(self.count),
        }
    }

    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        let (seed, seed2) = self.seeds.generate();
        Ok(Box::new(ShuffleIterator {
            dataset: input.clone(),
            input: None,
            seeds: self.seeds.clone(),
            samples: Samples::new(Philox::from_seeds(seed, seed2)),
            capacity: self.buffer,
            is_forever: self.count < 0,
            left: u64::try_from(self.count).unwrap_or(u64::MAX),
            slots: Vec::new(),
            held: 0,
            has_drawn: false,
            slices: VecDeque::new(),
            scope: scope.clone(),
            yield_budget: YieldBudget::default(),
        }))
    }
}

/// Positions of the elements of one iteration, which only increase; their index in the ring buffer
/// is the position modulo its size.
struct Slice {
    start: u64,
    end: u64,
}

struct ShuffleIterator {
    dataset: Source,
    input: Option<Box<dyn Iterate>>,
    seeds: Arc<SeedGenerator>,
    samples: Samples,
    capacity: usize,
    is_forever: bool,
    /// Remaining iterations.
    left: u64,
    slots: Vec<Option<BufferedElement>>,
    /// Number of elements in the buffer.
    held: usize,
    has_drawn: bool,
    slices: VecDeque<Slice>,
    scope: Arc<Scope>,
    yield_budget: YieldBudget,
}

impl ShuffleIterator {
    /// Fills the buffer until it is full or the input ends.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        while self.held < self.capacity {
            let Some(input) = &mut self.input else {
                if self.left == 0 {
                    break;
                }
                ready!(self.yield_budget.poll(cx));
                if !self.is_forever {
                    self.left -= 1;
                }
                let at = self.slices.back().map_or(0, |last| last.end);
                self.slices.push_back(Slice { start: at, end: at });
                self.input = Some(self.dataset.iterate(&self.scope)?);
                continue;
            };
            ready!(self.yield_budget.poll(cx));
            match ready!(input.poll_next(cx))? {
                Some(element) => {
                    let held = BufferedElement::new(element, &self.scope.budget)?;
                    self.put(held);
                }
                None => {
                    self.input = None;
                    // Repeating an empty dataset forever would never end.
                    if self.is_forever && !self.has_drawn {
                        self.left = 0;
                    }
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn put(&mut self, held: BufferedElement) {
        let Some(slice) = self.slices.back_mut() else { return };
        let place = place(slice.end, self.capacity);
        slice.end += 1;
        if place == self.slots.len() {
            self.slots.push(Some(held));
        } else {
            self.slots[place] = Some(held);
        }
        self.held += 1;
        self.has_drawn = true;
    }

    /// Takes a random element of the oldest iteration in the buffer.
    fn draw(&mut self) -> Result<BufferedElement> {
        while self.slices.front().is_some_and(|slice| slice.start == slice.end) {
            self.slices.pop_front();
            let (seed, seed2) = self.seeds.generate();
            self.samples = Samples::new(Philox::from_seeds(seed, seed2));
        }
        let empty = || err!(Internal, "a shuffle buffer lost its elements");
        let slice = self.slices.front_mut().ok_or_else(empty)?;
        let offset = u64::from(self.samples.next_u32()) % (slice.end - slice.start);
        let (first, chosen) =
            (place(slice.start, self.capacity), place(slice.start + offset, self.capacity));
        self.slots.swap(first, chosen);
        slice.start += 1;
        self.held -= 1;
        self.slots[first].take().ok_or_else(empty)
    }
}

fn place(number: u64, capacity: usize) -> usize {
    (number % capacity as u64) as usize
}

impl Iterate for ShuffleIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        ready!(self.fill(cx))?;
        if self.held == 0 {
            return Poll::Ready(Ok(None));
        }
        Poll::Ready(self.draw().map(|held| Some(held.element)))
    }
}
