//! Datasets composed of others: zip, concatenate, repeat, take, skip, shard.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Error, Result, ensure, err};

use super::dataset::{
    Dataset, INFINITE, Iterate, Next, Source, Transform, UNKNOWN, YieldBudget, dataset_kernel,
    transformation,
};
use super::element::{Element, Spec};
use super::scope::Scope;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("ZipDataset", shape::scalar),
        OpDef::new("ConcatenateDataset", shape::scalar),
        REPEAT_DATASET,
        TAKE_DATASET,
        SKIP_DATASET,
        OpDef::new("ShardDataset", shape::scalar),
    ],
    kernels: &[
        KernelSpec { op: "ZipDataset", create: zip, ..KernelSpec::CPU },
        KernelSpec { op: "ConcatenateDataset", create: concatenate, ..KernelSpec::CPU },
        KernelSpec { op: "RepeatDataset", create: repeat, ..KernelSpec::CPU },
        KernelSpec { op: "TakeDataset", create: take, ..KernelSpec::CPU },
        KernelSpec { op: "SkipDataset", create: skip, ..KernelSpec::CPU },
        KernelSpec { op: "ShardDataset", create: shard, ..KernelSpec::CPU },
    ],
};

const REPEAT_DATASET: OpDef = OpDef::new("RepeatDataset", shape::scalar);

const TAKE_DATASET: OpDef = OpDef { name: "TakeDataset", ..REPEAT_DATASET };

const SKIP_DATASET: OpDef = OpDef { name: "SkipDataset", ..REPEAT_DATASET };

/// The datasets of all inputs.
pub(crate) fn inputs(ctx: &KernelContext<'_>) -> Result<Vec<Source>> {
    (0..ctx.num_inputs()).map(|i| Source::input(ctx, i)).collect()
}

pub(crate) fn deepest(sources: &[Source]) -> usize {
    sources.iter().map(Source::depth).max().unwrap_or(0)
}

/// `ZipDataset`: elements with the components of several datasets.
struct ZipDataset {
    inputs: Vec<Source>,
    spec: Spec,
}

/// A `ZipDataset` of these inputs.
pub(crate) fn zipped(inputs: Vec<Source>, spec: Spec) -> Result<Source> {
    let depth = deepest(&inputs);
    Source::new(ZipDataset { inputs, spec }, depth)
}

fn zip(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let spec = Spec::of(init.attrs())?;
    dataset_kernel(move |ctx| zipped(inputs(ctx)?, spec.clone()))
}

impl Dataset for ZipDataset {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn inputs(&self) -> Vec<&Source> {
        self.inputs.iter().collect()
    }

    fn cardinality(&self) -> i64 {
        let mut least = INFINITE;
        for input in &self.inputs {
            match input.cardinality() {
                UNKNOWN => return UNKNOWN,
                INFINITE => {}
                n if least == INFINITE || n < least => least = n,
                _ => {}
            }
        }
        least
    }

    fn iterate(&self, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        let inputs = self.inputs.iter().map(|input| input.iterate(scope)).collect::<Result<_>>()?;
        Ok(Box::new(ZipIterator { inputs, drawn: 0, parts: Element::new(), error: None }))
    }
}

struct ZipIterator {
    /// Empty after one of them has ended.
    inputs: Vec<Box<dyn Iterate>>,
    /// Number of inputs whose part of the current element was drawn.
    drawn: usize,
    parts: Element,
    /// First error of an input; the remaining inputs are drawn nevertheless, so that all advance
    /// together.
    error: Option<Error>,
}

impl Iterate for ZipIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        if self.inputs.is_empty() {
            return Poll::Ready(Ok(None));
        }
        while let Some(input) = self.inputs.get_mut(self.drawn) {
            match ready!(input.poll_next(cx)) {
                Ok(Some(part)) => self.parts.extend(part),
                Ok(None) => {
                    self.inputs.clear();
                    self.parts.clear();
                    return Poll::Ready(Ok(None));
                }
                Err(e) => self.error = Some(self.error.take().unwrap_or(e)),
            }
            self.drawn += 1;
        }
        self.drawn = 0;
        let parts = std::mem::take(&mut self.parts);
        Poll::Ready(self.error.take().map_or(Ok(Some(parts)), Err))
    }
}

/// `ConcatenateDataset`: one dataset after another.
struct ConcatenateDataset {
    inputs: [Source; 2],
    spec: Spec,
}

/// A `ConcatenateDataset` of two inputs.
pub(crate) fn concatenated(inputs: [Source; 2], spec: Spec) -> Result<Source> {
    let [first, second] = [inputs[0].spec(), inputs[1].spec()];
    ensure!(
        first.is_open || second.is_open || first.dtypes == second.dtypes,
        InvalidArgument,
        "input dataset and another dataset have different output_types"
    );
    let depth = deepest(&inputs);
    Source::new(ConcatenateDataset { inputs, spec }, depth)
}

fn concatenate(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let spec = Spec::of(init.attrs())?;
    dataset_kernel(move |ctx| {
        concatenated([Source::input(ctx, 0)?, Source::input(ctx, 1)?], spec.clone())
    })
}

impl Dataset for ConcatenateDataset {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn inputs(&self) -> Vec<&Source> {
        self.inputs.iter().collect()
    }

    fn cardinality(&self) -> i64 {
        match [self.inputs[0].cardinality(), self.inputs[1].cardinality()] {
            [INFINITE, _] | [_, INFINITE] => INFINITE,
            [UNKNOWN, _] | [_, UNKNOWN] => UNKNOWN,
            [a, b] => a.saturating_add(b),
        }
    }

    fn iterate(&self, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(ConcatenateIterator {
            current: Some(self.inputs[0].iterate(scope)?),
            next: Some(self.inputs[1].clone()),
            scope: scope.clone(),
        }))
    }
}

struct ConcatenateIterator {
    current: Option<Box<dyn Iterate>>,
    next: Option<Source>,
    scope: Arc<Scope>,
}

impl Iterate for ConcatenateIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        while let Some(current) = &mut self.current {
            if let Some(element) = ready!(current.poll_next(cx))? {
                return Poll::Ready(Ok(Some(element)));
            }
            self.current = match self.next.take() {
                Some(next) => Some(next.iterate(&self.scope)?),
                None => None,
            };
        }
        Poll::Ready(Ok(None))
    }
}

/// Which op a dataset with a count is.
#[derive(Clone, Copy)]
pub(crate) enum CountOp {
    Repeat,
    Take,
    Skip,
}

/// `RepeatDataset`, `TakeDataset` or `SkipDataset`; a count of -1 means all elements, or forever.
pub(crate) struct CountedDataset {
    pub(crate) op: CountOp,
    pub(crate) count: i64,
}

fn repeat(init: &KernelInit<'_>) -> Result<AnyKernel> {
    counted(init, CountOp::Repeat)
}

fn take(init: &KernelInit<'_>) -> Result<AnyKernel> {
    counted(init, CountOp::Take)
}

fn skip(init: &KernelInit<'_>) -> Result<AnyKernel> {
    counted(init, CountOp::Skip)
}

fn counted(init: &KernelInit<'_>, op: CountOp) -> Result<AnyKernel> {
    transformation(init, move |ctx, input, spec| {
        let count = ctx.scalar_int(1, "count")?;
        input.then(spec, CountedDataset { op, count })
    })
}

impl Transform for CountedDataset {
    fn cardinality(&self, input: &Source) -> i64 {
        let (count, n) = (self.count, input.cardinality());
        match self.op {
            CountOp::Repeat | CountOp::Take if count == 0 => 0,
            CountOp::Repeat if n == 0 => 0,
            CountOp::Repeat if count < 0 => INFINITE,
            CountOp::Repeat if n < 0 => n,
            CountOp::Repeat => n.saturating_mul(count),
            CountOp::Take if count < 0 => n,
            CountOp::Take if n == INFINITE => count,
            CountOp::Take if n == UNKNOWN => UNKNOWN,
            CountOp::Take => n.min(count),
            CountOp::Skip if count < 0 => 0,
            CountOp::Skip if n < 0 => n,
            CountOp::Skip => n - count.min(n),
        }
    }

    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        let count = u64::try_from(self.count).unwrap_or(u64::MAX);
        Ok(match self.op {
            CountOp::Repeat => Box::new(RepeatIterator {
                input: input.clone(),
                current: None,
                is_forever: self.count < 0,
                left: count,
                scope: scope.clone(),
                yield_budget: YieldBudget::default(),
            }),
            CountOp::Take if self.count < 0 => input.iterate(scope)?,
            CountOp::Take if self.count == 0 => Box::new(EmptyIterator),
            CountOp::Skip if self.count < 0 => Box::new(EmptyIterator),
            CountOp::Take => Box::new(TakeIterator { input: input.iterate(scope)?, left: count }),
            CountOp::Skip => Box::new(SkipIterator {
                input: input.iterate(scope)?,
                left: count,
                yield_budget: YieldBudget::default(),
            }),
        })
    }
}

/// A dataset without elements.
pub(crate) struct EmptyIterator;

impl Iterate for EmptyIterator {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Next {
        Poll::Ready(Ok(None))
    }
}

struct RepeatIterator {
    input: Source,
    /// The current iteration, and whether it has produced an element.
    current: Option<(Box<dyn Iterate>, bool)>,
    is_forever: bool,
    left: u64,
    scope: Arc<Scope>,
    yield_budget: YieldBudget,
}

impl Iterate for RepeatIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        loop {
            let Some((current, has_given)) = &mut self.current else {
                if self.left == 0 {
                    return Poll::Ready(Ok(None));
                }
                ready!(self.yield_budget.poll(cx));
                if !self.is_forever {
                    self.left -= 1;
                }
                self.current = Some((self.input.iterate(&self.scope)?, false));
                continue;
            };
            if let Some(element) = ready!(current.poll_next(cx))? {
                *has_given = true;
                return Poll::Ready(Ok(Some(element)));
            }
            // Repeating an empty dataset forever would never end.
            if self.is_forever && !*has_given {
                self.left = 0;
            }
            self.current = None;
        }
    }
}

struct TakeIterator {
    input: Box<dyn Iterate>,
    left: u64,
}

impl Iterate for TakeIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        if self.left == 0 {
            return Poll::Ready(Ok(None));
        }
        let next = ready!(self.input.poll_next(cx))?;
        self.left = if next.is_some() { self.left - 1 } else { 0 };
        Poll::Ready(Ok(next))
    }
}

struct SkipIterator {
    input: Box<dyn Iterate>,
    left: u64,
    yield_budget: YieldBudget,
}

impl Iterate for SkipIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        while self.left > 0 {
            ready!(self.yield_budget.poll(cx));
            match ready!(self.input.poll_next(cx))? {
                Some(_) => self.left -= 1,
                None => return Poll::Ready(Ok(None)),
            }
        }
        self.input.poll_next(cx)
    }
}

/// `ShardDataset`: every `num_shards`-th element.
pub(crate) struct ShardDataset {
    shards: u64,
    index: u64,
    requires_non_empty: bool,
}

impl ShardDataset {
    pub(crate) fn new(shards: i64, index: i64, requires_non_empty: bool) -> Result<ShardDataset> {
        ensure!(
            shards > 0,
            InvalidArgument,
            "Number of shards must be greater than zero (currently num_shards = {shards})."
        );
        ensure!(
            index >= 0 && index < shards,
            InvalidArgument,
            "Index must be between 0 and {} (currently index = {index}).",
            shards - 1
        );
        let (shards, index) = (shards.unsigned_abs(), index.unsigned_abs());
        Ok(ShardDataset { shards, index, requires_non_empty })
    }
}

fn shard(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let requires_non_empty = init.attrs().bool("require_non_empty")?;
    transformation(init, move |ctx, input, spec| {
        let shards = ctx.scalar_int(1, "num_shards")?;
        let index = ctx.scalar_int(2, "index")?;
        input.then(spec, ShardDataset::new(shards, index, requires_non_empty)?)
    })
}

impl Transform for ShardDataset {
    fn cardinality(&self, input: &Source) -> i64 {
        match u64::try_from(input.cardinality()) {
            Ok(n) => (n / self.shards + u64::from(self.index < n % self.shards)).cast_signed(),
            Err(_) => input.cardinality(),
        }
    }

    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(ShardIterator {
            input: input.iterate(scope)?,
            shards: self.shards,
            index: self.index,
            requires_non_empty: self.requires_non_empty,
            seen: 0,
            first: None,
            yield_budget: YieldBudget::default(),
        }))
    }
}

struct ShardIterator {
    input: Box<dyn Iterate>,
    shards: u64,
    index: u64,
    requires_non_empty: bool,
    seen: u64,
    /// The shard's element, kept while `require_non_empty` looks for elements of the other shards.
    first: Option<Element>,
    yield_budget: YieldBudget,
}

impl Iterate for ShardIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        loop {
            if self.seen >= self.shards
                && let Some(first) = self.first.take()
            {
                return Poll::Ready(Ok(Some(first)));
            }
            ready!(self.yield_budget.poll(cx));
            let Some(element) = ready!(self.input.poll_next(cx))? else {
                if self.requires_non_empty && self.seen < self.shards {
                    self.requires_non_empty = false;
                    self.first = None;
                    return Poll::Ready(Err(err!(
                        InvalidArgument,
                        "Could not apply FILE based sharding: the dataset only has {} file(s), which is not enough for the required {} shards/workers.",
                        self.seen,
                        self.shards
                    )));
                }
                return Poll::Ready(Ok(None));
            };
            let at = self.seen % self.shards;
            self.seen += 1;
            if at != self.index {
                continue;
            }
            if !self.requires_non_empty || self.seen > self.shards {
                return Poll::Ready(Ok(Some(element)));
            }
            self.first = Some(element);
        }
    }
}
