//! `BatchDataset` and `UnbatchDataset`: elements stacked into batches, batches split into elements.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Budget, Bytes, DType, Error, Result, Shape, Tensor, bail, ensure};

use super::call::FunctionAttr;
use super::dataset::{
    Iterate, Next, Source, Transform, UNKNOWN, YieldBudget, flag_input, transformation,
};
use super::element::{Element, GatheredElements, slice};
use super::mapped::{MapDataset, checked_calls};
use super::scope::Scope;
use crate::cells::Cell;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("BatchDataset", shape::scalar),
        OpDef::new("BatchDatasetV2", shape::scalar),
        OpDef::new("ParallelBatchDataset", shape::scalar),
        MAP_AND_BATCH_DATASET,
        EXPERIMENTAL_MAP_AND_BATCH_DATASET,
        OpDef::new("UnbatchDataset", shape::scalar),
        OpDef::new("ExperimentalUnbatchDataset", shape::scalar),
    ],
    kernels: &[
        KernelSpec { op: "BatchDataset", create: batch, ..KernelSpec::CPU },
        KernelSpec { op: "BatchDatasetV2", create: batch, ..KernelSpec::CPU },
        KernelSpec { op: "ParallelBatchDataset", create: batch, ..KernelSpec::CPU },
        KernelSpec { op: "MapAndBatchDataset", create: map_and_batch, ..KernelSpec::CPU },
        KernelSpec {
            op: "ExperimentalMapAndBatchDataset",
            create: map_and_batch,
            ..KernelSpec::CPU
        },
        KernelSpec { op: "UnbatchDataset", create: unbatch, ..KernelSpec::CPU },
        KernelSpec { op: "ExperimentalUnbatchDataset", create: unbatch, ..KernelSpec::CPU },
    ],
};

const MAP_AND_BATCH_DATASET: OpDef = OpDef::new("MapAndBatchDataset", shape::scalar);

const EXPERIMENTAL_MAP_AND_BATCH_DATASET: OpDef =
    OpDef { name: "ExperimentalMapAndBatchDataset", ..MAP_AND_BATCH_DATASET };

/// `BatchDataset`: consecutive elements stacked into batches of a fixed size.
pub(crate) struct BatchDataset {
    pub(crate) size: usize,
    pub(crate) drops_remainder: bool,
    /// Whether a batch consumes its full number of elements even if one of them fails.
    pub(crate) continues_after_error: bool,
}

/// The batch size, which must be positive.
pub(crate) fn checked_size(size: i64) -> Result<usize> {
    ensure!(size > 0, InvalidArgument, "Batch size must be greater than zero.");
    Ok(usize::try_from(size).unwrap_or(usize::MAX))
}

fn batch(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let drop_input = init.node.input_range("drop_remainder").ok().map(|range| range.start);
    let continues_after_error = init.node.op.name != "ParallelBatchDataset";
    transformation(init, move |ctx, input, spec| {
        let size = checked_size(ctx.scalar_int(1, "batch_size")?)?;
        let drops_remainder = match drop_input {
            Some(i) => flag_input(ctx, i, "drop_remainder")?,
            None => false,
        };
        input.then(spec, BatchDataset { size, drops_remainder, continues_after_error })
    })
}

fn map_and_batch(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let function = FunctionAttr::of(init.attrs(), "f", "other_arguments")?;
    let preserves_cardinality = init.attrs().bool("preserve_cardinality")?;
    let node = init.node.name.clone();
    let first = init.node.input_range("batch_size")?.start;
    transformation(init, move |ctx, input, spec| {
        let size = checked_size(ctx.scalar_int(first, "batch_size")?)?;
        let calls = checked_calls(ctx.scalar_int(first + 1, "num_parallel_calls")?)?;
        let drops_remainder = flag_input(ctx, first + 2, "drop_remainder")?;
        let (function, node) = (function.bind(ctx)?, node.clone());
        let mapped = MapDataset { function, preserves_cardinality, calls: Some(calls), node };
        // The shapes of the function's results are known only in the batches' shapes.
        let input = input.then(spec.clone(), mapped)?;
        input.then(spec, BatchDataset { size, drops_remainder, continues_after_error: true })
    })
}

impl Transform for BatchDataset {
    fn cardinality(&self, input: &Source) -> i64 {
        batches(input.cardinality(), self.size, self.drops_remainder)
    }

    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        let stack: Stack = Box::new(stacked);
        Ok(Box::new(BatchIterator {
            input: Some(input.iterate(scope)?),
            size: self.size,
            drops_remainder: self.drops_remainder,
            continues_after_error: self.continues_after_error,
            gathered: GatheredElements::new(&scope.budget),
            failed: 0,
            error: None,
            scope: scope.clone(),
            stack,
            yield_budget: YieldBudget::default(),
        }))
    }
}

/// Number of batches of `elements` elements.
pub(crate) fn batches(elements: i64, size: usize, drops_remainder: bool) -> i64 {
    let size = i64::try_from(size).unwrap_or(i64::MAX);
    match elements {
        n if n < 0 => n,
        n if drops_remainder => n / size,
        n => n / size + i64::from(n % size != 0),
    }
}

/// Stacks several elements into one; it may move tensors out of them.
pub(crate) type Stack = Box<dyn Fn(&mut [Element], &Arc<Budget>) -> Result<Element> + Send>;

/// Iterator that gathers elements until a batch is full.
pub(crate) struct BatchIterator {
    pub(crate) input: Option<Box<dyn Iterate>>,
    pub(crate) size: usize,
    pub(crate) drops_remainder: bool,
    pub(crate) continues_after_error: bool,
    pub(crate) gathered: GatheredElements,
    /// Number of elements of the batch that failed, and the first error.
    pub(crate) failed: usize,
    pub(crate) error: Option<Error>,
    pub(crate) scope: Arc<Scope>,
    pub(crate) stack: Stack,
    pub(crate) yield_budget: YieldBudget,
}

impl Iterate for BatchIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        while let Some(input) = &mut self.input
            && self.gathered.len() + self.failed < self.size
        {
            ready!(self.yield_budget.poll(cx));
            let (error, continues_after_error) = match ready!(input.poll_next(cx)) {
                Ok(None) => {
                    self.input = None;
                    continue;
                }
                Ok(Some(element)) => match self.gathered.push(element) {
                    Ok(()) => continue,
                    Err(e) => (e, false),
                },
                Err(e) => (e, self.continues_after_error),
            };
            self.failed += 1;
            self.error.get_or_insert(error);
            if !continues_after_error {
                break;
            }
        }
        self.failed = 0;
        if let Some(error) = self.error.take() {
            // A batch with a failed element is an error; its other elements are dropped.
            self.gathered.take(0);
            return Poll::Ready(Err(error));
        }
        let is_short = self.gathered.len() < self.size;
        if self.gathered.len() == 0 || (is_short && self.drops_remainder) {
            self.gathered.take(0);
            return Poll::Ready(Ok(None));
        }
        let capacity = if is_short { 0 } else { self.gathered.len() };
        let mut gathered = self.gathered.take(capacity);
        Poll::Ready((self.stack)(&mut gathered.elements, &self.scope.budget).map(Some))
    }
}

/// Stacks elements of equal shapes.
pub(crate) fn stacked(elements: &mut [Element], budget: &Arc<Budget>) -> Result<Element> {
    let Some(first) = elements.first() else { bail!(Internal, "an empty batch") };
    let components = first.len();
    (0..components).map(|i| stacked_component(elements, i, budget)).collect()
}

fn stacked_component(elements: &mut [Element], i: usize, budget: &Arc<Budget>) -> Result<Tensor> {
    let first = &elements[0][i];
    for (n, other) in elements.iter().enumerate() {
        let Some(tensor) = other.get(i) else {
            bail!(InvalidArgument, "element {n} of the batch has no component {i}");
        };
        ensure!(
            tensor.shape() == first.shape() && tensor.dtype() == first.dtype(),
            InvalidArgument,
            "Cannot batch tensors with different shapes in component {i}. First element had shape {} and element {n} had shape {}.",
            first.shape(),
            tensor.shape()
        );
    }
    let mut dims = vec![elements.len()];
    dims.extend_from_slice(first.shape().dims());
    let mut batch = Tensor::blank_in(first.dtype(), Shape::new(&dims)?, Some(budget))?;
    let row = first.num_elements();
    if row == 0 {
        return Ok(batch);
    }
    if first.dtype() == DType::String {
        move_strings(elements, i, batch.strings_mut()?.chunks_exact_mut(row))?;
        return Ok(batch);
    }
    with_cell!(first.dtype(), C => {
        let rows = <C as Cell>::view_mut(&mut batch)?.chunks_exact_mut(row);
        for (target, element) in rows.zip(elements) {
            target.clone_from_slice(<C as Cell>::view(&element[i])?);
        }
    });
    Ok(batch)
}

/// Moves strings out of tensors that are not shared, and clones the others.
fn move_strings<'a>(
    elements: &mut [Element],
    i: usize,
    rows: impl Iterator<Item = &'a mut [Bytes]>,
) -> Result<()> {
    for (target, element) in rows.zip(elements) {
        let tensor = &mut element[i];
        match tensor.is_unique() {
            true => target.swap_with_slice(tensor.strings_mut()?),
            false => target.clone_from_slice(tensor.strings()?),
        }
    }
    Ok(())
}

/// `UnbatchDataset`: every element split along its first dimension.
pub(crate) struct UnbatchDataset;

fn unbatch(init: &KernelInit<'_>) -> Result<AnyKernel> {
    transformation(init, |_, input, spec| input.then(spec, UnbatchDataset))
}

impl Transform for UnbatchDataset {
    fn cardinality(&self, input: &Source) -> i64 {
        let rows = input.spec().shapes.first().and_then(|shape| shape.dim(0));
        match (input.cardinality(), rows) {
            (n, _) if n < 0 => n,
            (n, Some(rows)) => n.saturating_mul(i64::try_from(rows).unwrap_or(i64::MAX)),
            (_, None) => UNKNOWN,
        }
    }

    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(UnbatchIterator {
            input: input.iterate(scope)?,
            scope: scope.clone(),
            current: Element::new(),
            next: 0,
            rows: 0,
            yield_budget: YieldBudget::default(),
        }))
    }
}

struct UnbatchIterator {
    input: Box<dyn Iterate>,
    scope: Arc<Scope>,
    current: Element,
    next: usize,
    rows: usize,
    yield_budget: YieldBudget,
}

impl Iterate for UnbatchIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        while self.next >= self.rows {
            ready!(self.yield_budget.poll(cx));
            let Some(element) = ready!(self.input.poll_next(cx))? else {
                self.current.clear();
                return Poll::Ready(Ok(None));
            };
            let rows = common_rows(&element)?;
            (self.current, self.next, self.rows) = (element, 0, rows);
        }
        let i = self.next;
        self.next += 1;
        let cut = |t: &Tensor| slice(t, i, &self.scope.budget);
        Poll::Ready(self.current.iter().map(cut).collect::<Result<Element>>().map(Some))
    }
}

/// The common size of the first dimension of all components.
pub(crate) fn common_rows(element: &[Tensor]) -> Result<usize> {
    let mut rows = None;
    for tensor in element {
        let Some(&size) = tensor.shape().first() else {
            bail!(InvalidArgument, "Input element must have a non-zero rank");
        };
        ensure!(
            rows.is_none_or(|rows| rows == size),
            InvalidArgument,
            "Input element must have the same batch size in each component."
        );
        rows = Some(size);
    }
    Ok(rows.unwrap_or(0))
}
