//! Transformations of datasets.

use std::sync::Arc;

use thalweg_tensor::{PartialShape, Result, Tensor};

use super::{Dataset, code};
use crate::data::batch::{BatchDataset, UnbatchDataset, checked_size};
use crate::data::cache;
use crate::data::call::Function;
use crate::data::combine::{CountOp, CountedDataset, ShardDataset, concatenated, zipped};
use crate::data::dataset::{Iterate, Source, Transform};
use crate::data::element::Spec;
use crate::data::function_ops::{PredicateDataset, ScanDataset};
use crate::data::interleave::InterleaveDataset;
use crate::data::mapped::MapDataset;
use crate::data::padded::PaddedBatchDataset;
use crate::data::passing::IgnoreErrorsDataset;
use crate::data::prefetch::PrefetchDataset;
use crate::data::scope::Scope;
use crate::data::seeds::SeedGenerator;
use crate::data::shuffle::ShuffleDataset;
use crate::data::window::WindowDataset;

/// TensorFlow's default graph-level seed.
const DEFAULT_GRAPH_SEED: i64 = 87_654_321;

/// Options of shuffling.
#[derive(Clone, Copy, Debug)]
pub struct Shuffle {
    /// The buffer size.
    pub buffer: usize,
    /// The seed; the order is that of `tf.data.Dataset.shuffle` with this seed.
    pub seed: i64,
    /// Whether every iteration has its own order (`reshuffle_each_iteration`).
    pub reshuffles: bool,
}

/// The elements of another dataset with a different spec.
pub(super) struct WithSpec;

impl Transform for WithSpec {
    fn cardinality(&self, input: &Source) -> i64 {
        input.cardinality()
    }

    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        input.iterate(scope)
    }
}

/// The result of a predicate as a bool tensor.
fn predicate(holds: impl Fn(&[Tensor]) -> Result<bool> + Send + Sync + 'static) -> Arc<Function> {
    code(move |element| Ok(vec![Tensor::scalar(holds(&element)?)]))
}

/// The name used in error messages in place of a node.
fn name(what: &str) -> Arc<str> {
    what.into()
}

impl Dataset {
    /// Applies a function to each element.
    pub fn map(
        self,
        function: impl Fn(Vec<Tensor>) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    ) -> Dataset {
        self.mapped(None, code(function))
    }

    /// As [`Dataset::map`], with parallel calls; the order of elements is kept. At most `calls`
    /// results are being computed or waiting.
    pub fn parallel_map(
        self,
        calls: usize,
        function: impl Fn(Vec<Tensor>) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    ) -> Dataset {
        self.mapped(Some(i64::try_from(calls.max(1)).unwrap_or(i64::MAX)), code(function))
    }

    fn mapped(self, calls: Option<i64>, function: Arc<Function>) -> Dataset {
        let node = name("map");
        let mapped = MapDataset { function, preserves_cardinality: true, calls, node };
        self.then(|input, _| input.then(Spec::open(), mapped))
    }

    /// The elements that satisfy a predicate.
    pub fn filter(
        self,
        holds: impl Fn(&[Tensor]) -> Result<bool> + Send + Sync + 'static,
    ) -> Dataset {
        self.chosen(predicate(holds), false, "filter")
    }

    /// The elements before the first that does not satisfy a predicate.
    pub fn take_while(
        self,
        holds: impl Fn(&[Tensor]) -> Result<bool> + Send + Sync + 'static,
    ) -> Dataset {
        self.chosen(predicate(holds), true, "take_while")
    }

    fn chosen(self, predicate: Arc<Function>, is_take_while: bool, what: &str) -> Dataset {
        let chosen = PredicateDataset { predicate, is_take_while, node: name(what) };
        self.then(|input, spec| input.then(spec, chosen))
    }

    /// A stateful map: the function gets the state and an element, and returns the next state and
    /// the output element.
    pub fn scan(
        self,
        state: Vec<Tensor>,
        function: impl Fn(&[Tensor], Vec<Tensor>) -> Result<(Vec<Tensor>, Vec<Tensor>)>
        + Send
        + Sync
        + 'static,
    ) -> Dataset {
        let states = state.len();
        let function = code(move |mut both| {
            let element = both.split_off(states.min(both.len()));
            let (mut state, element) = function(&both, element)?;
            state.extend(element);
            Ok(state)
        });
        let scanned = ScanDataset {
            function,
            initial: state.into(),
            outputs: None,
            preserves_cardinality: true,
            node: name("scan"),
        };
        self.then(|input, _| input.then(Spec::open(), scanned))
    }

    /// Concatenates the datasets that a function returns for each element.
    pub fn flat_map(
        self,
        function: impl Fn(Vec<Tensor>) -> Result<Dataset> + Send + Sync + 'static,
    ) -> Dataset {
        self.interleaved((1, 1, 0), function)
    }

    /// As [`Dataset::flat_map`], interleaved: `cycle` datasets are open at a time, and `block`
    /// elements are taken of each in turn.
    pub fn interleave(
        self,
        cycle: usize,
        block: u64,
        function: impl Fn(Vec<Tensor>) -> Result<Dataset> + Send + Sync + 'static,
    ) -> Dataset {
        self.interleaved((cycle, block, 0), function)
    }

    /// As [`Dataset::interleave`], with `block` elements of each open dataset read ahead on other
    /// threads; the order is the same.
    pub fn parallel_interleave(
        self,
        cycle: usize,
        block: u64,
        function: impl Fn(Vec<Tensor>) -> Result<Dataset> + Send + Sync + 'static,
    ) -> Dataset {
        let ahead = usize::try_from(block.max(1)).unwrap_or(usize::MAX);
        self.interleaved((cycle, block, ahead), function)
    }

    fn interleaved(
        self,
        (cycle, block, ahead): (usize, u64, usize),
        function: impl Fn(Vec<Tensor>) -> Result<Dataset> + Send + Sync + 'static,
    ) -> Dataset {
        let function = code(move |element| Ok(vec![function(element)?.into_tensor()?]));
        let (cycle, block) = (cycle.max(1), block.max(1));
        let interleaved =
            InterleaveDataset { function, cycle, block, ahead, node: name("interleave") };
        self.then(|input, _| input.then(Spec::open(), interleaved))
    }

    /// Batches of `size` stacked elements; the last batch may be smaller.
    pub fn batch(self, size: usize) -> Dataset {
        self.batched(size, false)
    }

    /// As [`Dataset::batch`], without a smaller last batch (`drop_remainder`).
    pub fn full_batches(self, size: usize) -> Dataset {
        self.batched(size, true)
    }

    fn batched(self, size: usize, drops_remainder: bool) -> Dataset {
        self.then(|input, spec| {
            let size = checked_size(i64::try_from(size).unwrap_or(i64::MAX))?;
            let spec = if spec.is_open { spec } else { batch_spec(&spec, size, drops_remainder)? };
            input.then(spec, BatchDataset { size, drops_remainder, continues_after_error: true })
        })
    }

    /// Batches of `size` elements, each padded with zeros (or empty strings) to the largest shape
    /// in the batch.
    pub fn padded_batch(self, size: usize) -> Dataset {
        self.then(|input, _| {
            let size = checked_size(i64::try_from(size).unwrap_or(i64::MAX))?;
            input.then(Spec::open(), PaddedBatchDataset::to_largest(size))
        })
    }

    /// Splits every element along its first dimension.
    pub fn unbatch(self) -> Dataset {
        self.then(|input, _| input.then(Spec::open(), UnbatchDataset))
    }

    /// Shuffles with the order of `tf.data.Dataset.shuffle` for this buffer size and seed, a new
    /// one for each iteration.
    pub fn shuffle(self, buffer: usize, seed: i64) -> Dataset {
        self.shuffle_with(Shuffle { buffer, seed, reshuffles: true })
    }

    /// As [`Dataset::shuffle`], with options.
    pub fn shuffle_with(self, options: Shuffle) -> Dataset {
        self.then(|input, spec| {
            let buffer = checked_size(i64::try_from(options.buffer).unwrap_or(i64::MAX))?;
            let seeds = (DEFAULT_GRAPH_SEED, options.seed);
            let seeds = Arc::new(SeedGenerator::new(seeds, options.reshuffles));
            input.then(spec, ShuffleDataset { buffer, count: 1, seeds })
        })
    }

    /// Repeats the elements indefinitely.
    pub fn repeat(self) -> Dataset {
        self.counted(CountOp::Repeat, -1)
    }

    /// Repeats the elements `count` times.
    pub fn repeat_times(self, count: u64) -> Dataset {
        self.counted(CountOp::Repeat, clamped(count))
    }

    /// The first `count` elements.
    pub fn take(self, count: u64) -> Dataset {
        self.counted(CountOp::Take, clamped(count))
    }

    /// The elements after the first `count`.
    pub fn skip(self, count: u64) -> Dataset {
        self.counted(CountOp::Skip, clamped(count))
    }

    fn counted(self, op: CountOp, count: i64) -> Dataset {
        self.then(|input, spec| input.then(spec, CountedDataset { op, count }))
    }

    /// Every `shards`-th element, beginning with element `index`.
    pub fn shard(self, shards: u64, index: u64) -> Dataset {
        self.then(|input, spec| {
            input.then(spec, ShardDataset::new(clamped(shards), clamped(index), false)?)
        })
    }

    /// The elements, followed by those of another dataset.
    pub fn concatenate(self, other: Dataset) -> Dataset {
        self.then(|input, spec| {
            let other = other.source?;
            let spec = match spec.check_accepts(other.spec()) {
                Ok(()) if !other.spec().is_open => spec,
                _ => Spec::open(),
            };
            concatenated([input, other], spec)
        })
    }

    /// Zips datasets: an element has the components of all.
    pub fn zip(datasets: impl IntoIterator<Item = Dataset>) -> Dataset {
        let sources = datasets.into_iter().map(|d| d.source).collect::<Result<Vec<_>>>();
        Dataset::new(sources.and_then(|sources| zipped(sources, Spec::open())))
    }

    /// Windows of `size` elements, each beginning `shift` elements after the one before; a window
    /// is one element with its elements stacked. The last windows may have fewer.
    pub fn window(self, size: usize, shift: usize) -> Dataset {
        let (size, shift) = (size.max(1), shift.max(1));
        let how = WindowDataset { size, shift, stride: 1, drops_remainder: false, is_batch: true };
        self.then(|input, _| input.then(Spec::open(), how))
    }

    /// Caches the elements of the first complete iteration in memory.
    pub fn cache(self) -> Dataset {
        self.then(|input, spec| cache::in_memory(input, spec, Arc::default()))
    }

    /// As [`Dataset::cache`], in a file that later processes can read; it appears when it is
    /// complete.
    pub fn cache_in(self, file: &str) -> Dataset {
        self.then(|input, spec| cache::in_file(input, spec, file))
    }

    /// Prefetches `count` elements on other threads.
    pub fn prefetch(self, count: usize) -> Dataset {
        let buffer = i64::try_from(count).unwrap_or(i64::MAX);
        self.then(|input, spec| input.then(spec, PrefetchDataset { buffer }))
    }

    /// Drops elements whose computation fails.
    pub fn ignore_errors(self) -> Dataset {
        self.then(|input, spec| input.then(spec, IgnoreErrorsDataset))
    }

    /// Adds the index of each element as first component.
    pub fn enumerate(self) -> Dataset {
        let state = vec![Tensor::scalar(0i64)];
        self.scan(state, |state, element| {
            let number: i64 = state[0].scalar_value()?;
            let mut numbered = vec![Tensor::scalar(number)];
            numbered.extend(element);
            Ok((vec![Tensor::scalar(number + 1)], numbered))
        })
    }
}

/// The spec of batches of such elements.
fn batch_spec(spec: &Spec, size: usize, is_full: bool) -> Result<Spec> {
    let rows = is_full.then_some(size);
    let batch = |shape: &PartialShape| match shape.dims() {
        Some(dims) => PartialShape::new([rows].into_iter().chain(dims.iter().copied())),
        None => PartialShape::unknown(),
    };
    Spec::new(spec.dtypes.clone(), spec.shapes.iter().map(batch).collect::<Vec<_>>())
}

fn clamped(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
