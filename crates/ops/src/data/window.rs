//! `WindowDataset`: windows that are datasets.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Result, bail, ensure};

use super::batch::stacked;
use super::dataset::{
    Dataset, Iterate, Next, Source, Transform, YieldBudget, dataset_kernel, flag_input,
    transformation,
};
use super::element::{BufferedElement, Element, GatheredElements, Spec};
use super::scope::Scope;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("WindowDataset", shape::scalar),
        WINDOW_OP,
        LIST_DATASET,
        SLIDING_WINDOW_DATASET,
        EXPERIMENTAL_SLIDING_WINDOW_DATASET,
    ],
    kernels: &[
        KernelSpec { op: "ListDataset", create: window_of_tensors, ..KernelSpec::CPU },
        KernelSpec { op: "SlidingWindowDataset", create: sliding, ..KernelSpec::CPU },
        KernelSpec { op: "ExperimentalSlidingWindowDataset", create: sliding, ..KernelSpec::CPU },
        KernelSpec { op: "WindowDataset", create: window, ..KernelSpec::CPU },
        KernelSpec { op: "WindowOp", create: window_of_tensors, ..KernelSpec::CPU },
    ],
};

const WINDOW_OP: OpDef = OpDef::new("WindowOp", shape::scalar);

const LIST_DATASET: OpDef = OpDef { name: "ListDataset", ..WINDOW_OP };

const SLIDING_WINDOW_DATASET: OpDef = OpDef::new("SlidingWindowDataset", shape::scalar);

const EXPERIMENTAL_SLIDING_WINDOW_DATASET: OpDef =
    OpDef { name: "ExperimentalSlidingWindowDataset", ..SLIDING_WINDOW_DATASET };

/// A dataset of given elements.
pub(crate) struct ElementsDataset {
    pub(crate) elements: Arc<Vec<Element>>,
    pub(crate) spec: Spec,
}

impl Dataset for ElementsDataset {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        self.elements.len() as i64
    }

    fn iterate(&self, _: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(ElementsIterator { elements: self.elements.clone(), next: 0 }))
    }
}

struct ElementsIterator {
    elements: Arc<Vec<Element>>,
    next: usize,
}

impl Iterate for ElementsIterator {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Next {
        let next = self.elements.get(self.next).cloned();
        self.next += 1;
        Poll::Ready(Ok(next))
    }
}

fn window_of_tensors(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let spec = Spec::of(init.attrs())?;
    dataset_kernel(move |ctx| {
        let components = spec.dtypes.len();
        ensure!(
            components > 0 && ctx.num_inputs().is_multiple_of(components),
            InvalidArgument,
            "{} tensors are not elements of {components} components each",
            ctx.num_inputs()
        );
        let mut elements = Vec::new();
        for first in (0..ctx.num_inputs()).step_by(components) {
            let element: Element = (first..first + components)
                .map(|i| ctx.input(i).cloned())
                .collect::<Result<_>>()?;
            elements.push(element);
        }
        Source::new(ElementsDataset { elements: Arc::new(elements), spec: spec.clone() }, 0)
    })
}

/// `WindowDataset`: windows of consecutive elements.
#[derive(Clone)]
pub(crate) struct WindowDataset {
    pub(crate) size: usize,
    pub(crate) shift: usize,
    pub(crate) stride: usize,
    pub(crate) drops_remainder: bool,
    /// Whether a window is stacked into one element instead of a nested dataset.
    pub(crate) is_batch: bool,
}

fn window(init: &KernelInit<'_>) -> Result<AnyKernel> {
    transformation(init, |ctx, input, spec| {
        let drops_remainder = flag_input(ctx, 4, "drop_remainder")?;
        input.then(spec, windowed(ctx, drops_remainder, false)?)
    })
}

fn sliding(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let has_choice = init.attrs().get("drop_remainder").is_some();
    let drops_remainder = !has_choice || init.attrs().bool("drop_remainder")?;
    transformation(init, move |ctx, input, spec| {
        input.then(spec, windowed(ctx, drops_remainder, true)?)
    })
}

fn windowed(
    ctx: &KernelContext<'_>,
    drops_remainder: bool,
    is_batch: bool,
) -> Result<WindowDataset> {
    let positive = |i: usize, name: &str| {
        let value = ctx.scalar_int(i, name)?;
        ensure!(value > 0, InvalidArgument, "Window {name} must be greater than zero.");
        Ok(usize::try_from(value).unwrap_or(usize::MAX))
    };
    let (size, shift, stride) =
        (positive(1, "size")?, positive(2, "shift")?, positive(3, "stride")?);
    Ok(WindowDataset { size, shift, stride, drops_remainder, is_batch })
}

impl WindowDataset {
    /// Number of input elements that a full window spans.
    fn span(&self) -> usize {
        (self.size - 1).saturating_mul(self.stride).saturating_add(1)
    }
}

impl Transform for WindowDataset {
    fn cardinality(&self, input: &Source) -> i64 {
        let n = input.cardinality();
        if n <= 0 {
            return n;
        }
        let clamped = |x: usize| i64::try_from(x).unwrap_or(i64::MAX);
        let (span, shift) = (clamped(self.span()), clamped(self.shift));
        if self.drops_remainder {
            return if n < span { 0 } else { (n - span) / shift + 1 };
        }
        (n - 1) / shift + 1
    }

    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(WindowIterator {
            input: Some(input.iterate(scope)?),
            spec: input.spec().clone(),
            depth: input.depth(),
            span: self.span(),
            how: self.clone(),
            buffer: VecDeque::new(),
            to_skip: 0,
            scope: scope.clone(),
            yield_budget: YieldBudget::default(),
        }))
    }
}

struct WindowIterator {
    input: Option<Box<dyn Iterate>>,
    spec: Spec,
    depth: usize,
    span: usize,
    how: WindowDataset,
    /// Buffered elements or their errors.
    buffer: VecDeque<Result<BufferedElement>>,
    /// Number of elements to skip before the next window.
    to_skip: usize,
    scope: Arc<Scope>,
    yield_budget: YieldBudget,
}

impl WindowIterator {
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(input) = &mut self.input
            && (self.to_skip > 0 || self.buffer.len() < self.span)
        {
            ready!(self.yield_budget.poll(cx));
            let next = match ready!(input.poll_next(cx)) {
                Ok(None) => {
                    self.input = None;
                    break;
                }
                Ok(Some(element)) => Ok(element),
                Err(e) => Err(e),
            };
            if self.to_skip > 0 {
                self.to_skip -= 1;
                continue;
            }
            self.buffer.push_back(next.and_then(|e| BufferedElement::new(e, &self.scope.budget)));
        }
        Poll::Ready(())
    }

    /// The window as one element: stacked, or with a nested dataset for each component.
    fn window(&self) -> Result<Element> {
        let mut elements = Vec::new();
        for held in self.buffer.iter().step_by(self.how.stride) {
            elements.push(held.as_ref().map_err(Clone::clone)?);
        }
        if self.how.is_batch {
            let mut copies = GatheredElements::new(&self.scope.budget);
            elements.iter().try_for_each(|held| copies.push(held.element.clone()))?;
            return stacked(&mut copies.elements, &self.scope.budget);
        }
        let components = elements.first().map_or(0, |held| held.element.len());
        let component = |i: usize| {
            let listed: Option<Vec<Element>> = elements
                .iter()
                .map(|held| held.element.get(i).map(|t| Element::from_iter([t.clone()])))
                .collect();
            let Some(listed) = listed else {
                bail!(InvalidArgument, "elements of a window differ in their components");
            };
            let spec = self.spec.component(i)?;
            Source::new(ElementsDataset { elements: Arc::new(listed), spec }, self.depth)?
                .into_tensor()
        };
        (0..components).map(component).collect()
    }
}

impl Iterate for WindowIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        ready!(self.fill(cx));
        let is_short = self.buffer.len() < self.span;
        if self.buffer.is_empty() || (is_short && self.how.drops_remainder) {
            return Poll::Ready(Ok(None));
        }
        let window = self.window();
        let gone = self.how.shift.min(self.buffer.len());
        self.to_skip = self.how.shift - gone;
        self.buffer.drain(..gone);
        Poll::Ready(window.map(Some))
    }
}
