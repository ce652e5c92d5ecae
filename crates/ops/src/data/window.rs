//! Datasets of windows, each of them a dataset.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Result, ensure};

use super::dataset::{
    DATASET, Dataset, Iterate, Next, Source, Turns, dataset_kernel, flag_input, transformation,
};
use super::element::{Element, Held, Spec};
use super::scope::Scope;

pub(crate) static FAMILY: Family = Family {
    ops: &[WINDOW_DATASET, WINDOW_OP],
    kernels: &[
        KernelSpec { op: "WindowDataset", create: window, ..KernelSpec::CPU },
        KernelSpec { op: "WindowOp", create: window_of_tensors, ..KernelSpec::CPU },
    ],
};

const WINDOW_DATASET: OpDef = OpDef {
    name: "WindowDataset",
    inputs: &[
        "input_dataset: variant",
        "size: int64",
        "shift: int64",
        "stride: int64",
        "drop_remainder: bool",
    ],
    attrs: &[
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    ..DATASET
};

const WINDOW_OP: OpDef = OpDef {
    name: "WindowOp",
    inputs: &["inputs: Tinputs"],
    outputs: &["handle: variant"],
    attrs: &[
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "Tinputs: list(type) >= 1",
    ],
    shape: shape::scalar,
    ..OpDef::DEFAULT
};

/// Elements that are there.
pub(crate) struct Listed {
    pub(crate) elements: Arc<Vec<Element>>,
    pub(crate) spec: Spec,
}

impl Dataset for Listed {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        self.elements.len() as i64
    }

    fn iterate(&self, _: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(Listing { elements: self.elements.clone(), next: 0 }))
    }
}

struct Listing {
    elements: Arc<Vec<Element>>,
    next: usize,
}

impl Iterate for Listing {
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
        Source::new(Listed { elements: Arc::new(elements), spec: spec.clone() }, 0)
    })
}

struct Windowed {
    input: Source,
    size: usize,
    shift: usize,
    stride: usize,
    drops_remainder: bool,
    spec: Spec,
}

fn window(init: &KernelInit<'_>) -> Result<AnyKernel> {
    transformation(init, |ctx, input, spec| {
        let positive = |i: usize, name: &str| {
            let value = ctx.scalar_int(i, name)?;
            ensure!(value > 0, InvalidArgument, "Window {name} must be greater than zero.");
            Ok(usize::try_from(value).unwrap_or(usize::MAX))
        };
        let (size, shift, stride) =
            (positive(1, "size")?, positive(2, "shift")?, positive(3, "stride")?);
        let drops_remainder = flag_input(ctx, 4, "drop_remainder")?;
        let source = input.clone();
        source.under(Windowed { input, size, shift, stride, drops_remainder, spec })
    })
}

impl Windowed {
    /// Elements that a full window spans.
    fn span(&self) -> usize {
        (self.size - 1).saturating_mul(self.stride).saturating_add(1)
    }
}

impl Dataset for Windowed {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn inputs(&self) -> Vec<&Source> {
        vec![&self.input]
    }

    fn cardinality(&self) -> i64 {
        let n = self.input.cardinality();
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

    fn iterate(&self, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(Windowing {
            input: Some(self.input.iterate(scope)?),
            spec: self.input.spec().clone(),
            depth: self.input.depth(),
            span: self.span(),
            shift: self.shift,
            stride: self.stride,
            drops_remainder: self.drops_remainder,
            buffer: VecDeque::new(),
            to_skip: 0,
            scope: scope.clone(),
            turns: Turns::default(),
        }))
    }
}

struct Windowing {
    input: Option<Box<dyn Iterate>>,
    spec: Spec,
    depth: usize,
    span: usize,
    shift: usize,
    stride: usize,
    drops_remainder: bool,
    /// Elements, or what went wrong instead.
    buffer: VecDeque<Result<Held>>,
    /// Elements between two windows that belong to neither.
    to_skip: usize,
    scope: Arc<Scope>,
    turns: Turns,
}

impl Windowing {
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(input) = &mut self.input
            && (self.to_skip > 0 || self.buffer.len() < self.span)
        {
            ready!(self.turns.poll(cx));
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
            self.buffer.push_back(next.and_then(|e| Held::new(e, &self.scope.budget)));
        }
        Poll::Ready(())
    }

    /// One dataset for each component.
    fn window(&self) -> Result<Element> {
        let mut components = vec![Vec::new(); self.spec.dtypes.len()];
        for held in self.buffer.iter().step_by(self.stride) {
            let held = held.as_ref().map_err(Clone::clone)?;
            for (component, tensor) in components.iter_mut().zip(&held.element) {
                component.push(Element::from_iter([tensor.clone()]));
            }
        }
        let mut element = Element::new();
        for (i, elements) in components.into_iter().enumerate() {
            let spec = Spec::new(vec![self.spec.dtypes[i]], vec![self.spec.shapes[i].clone()])?;
            let listed = Listed { elements: Arc::new(elements), spec };
            element.push(Source::new(listed, self.depth)?.into_tensor()?);
        }
        Ok(element)
    }
}

impl Iterate for Windowing {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        ready!(self.fill(cx));
        let is_short = self.buffer.len() < self.span;
        if self.buffer.is_empty() || (is_short && self.drops_remainder) {
            return Poll::Ready(Ok(None));
        }
        let window = self.window();
        let gone = self.shift.min(self.buffer.len());
        self.to_skip = self.shift - gone;
        self.buffer.drain(..gone);
        Poll::Ready(window.map(Some))
    }
}
