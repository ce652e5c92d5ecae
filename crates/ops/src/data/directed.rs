//! Datasets that draw from several inputs, selected by another dataset.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Result, ensure, err};

use super::combine::{deepest, inputs};
use super::dataset::{Dataset, Iterate, Next, Source, YieldBudget, dataset_kernel};
use super::element::{Element, Spec};
use super::scope::Scope;

pub(crate) static FAMILY: Family = Family {
    ops: &[DIRECTED_INTERLEAVE_DATASET, EXPERIMENTAL_DIRECTED_INTERLEAVE_DATASET],
    kernels: &[
        KernelSpec { op: "DirectedInterleaveDataset", create: directed, ..KernelSpec::CPU },
        KernelSpec {
            op: "ExperimentalDirectedInterleaveDataset",
            create: directed,
            ..KernelSpec::CPU
        },
    ],
};

const DIRECTED_INTERLEAVE_DATASET: OpDef = OpDef::new("DirectedInterleaveDataset", shape::scalar);

const EXPERIMENTAL_DIRECTED_INTERLEAVE_DATASET: OpDef =
    OpDef { name: "ExperimentalDirectedInterleaveDataset", ..DIRECTED_INTERLEAVE_DATASET };

/// `DirectedInterleaveDataset`: a selector dataset gives the index of the input of each element.
struct DirectedInterleaveDataset {
    selector: Source,
    inputs: Vec<Source>,
    stops_on_empty: bool,
    spec: Spec,
}

fn directed(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let spec = Spec::of(init.attrs())?;
    let stops_on_empty = init.attrs().get("stop_on_empty_dataset").is_some()
        && init.attrs().bool("stop_on_empty_dataset")?;
    dataset_kernel(move |ctx| {
        let mut inputs = inputs(ctx)?;
        let depth = deepest(&inputs);
        let selector = inputs.remove(0);
        ensure!(
            *selector.spec().dtypes == [thalweg_tensor::DType::Int64],
            InvalidArgument,
            "The selector input must be a dataset of scalar int64 elements."
        );
        for input in &inputs {
            ensure!(
                input.spec().dtypes == inputs[0].spec().dtypes,
                InvalidArgument,
                "All inputs must have the same output_dtypes."
            );
        }
        Source::new(
            DirectedInterleaveDataset { selector, inputs, stops_on_empty, spec: spec.clone() },
            depth,
        )
    })
}

impl Dataset for DirectedInterleaveDataset {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn inputs(&self) -> Vec<&Source> {
        std::iter::once(&self.selector).chain(&self.inputs).collect()
    }

    fn iterate(&self, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        let open = |input: &Source| input.iterate(scope).map(Some);
        Ok(Box::new(DirectedInterleaveIterator {
            selector: Some(self.selector.iterate(scope)?),
            inputs: self.inputs.iter().map(open).collect::<Result<_>>()?,
            stops_on_empty: self.stops_on_empty,
            selected: None,
            yield_budget: YieldBudget::default(),
        }))
    }
}

struct DirectedInterleaveIterator {
    /// `None` after its end.
    selector: Option<Box<dyn Iterate>>,
    inputs: Vec<Option<Box<dyn Iterate>>>,
    stops_on_empty: bool,
    selected: Option<usize>,
    yield_budget: YieldBudget,
}

impl DirectedInterleaveIterator {
    fn select(&self, element: &Element) -> Result<usize> {
        let index = element
            .first()
            .ok_or_else(|| err!(InvalidArgument, "the selector has no components"))?
            .scalar_value::<i64>()?;
        usize::try_from(index).ok().filter(|&i| i < self.inputs.len()).ok_or_else(|| {
            err!(
                InvalidArgument,
                "Selector index out of range: {index} is not within [0, {})",
                self.inputs.len()
            )
        })
    }
}

impl Iterate for DirectedInterleaveIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        loop {
            let Some(selector) = &mut self.selector else { return Poll::Ready(Ok(None)) };
            let Some(selected) = self.selected else {
                ready!(self.yield_budget.poll(cx));
                match ready!(selector.poll_next(cx))? {
                    Some(element) => self.selected = Some(self.select(&element)?),
                    None => self.selector = None,
                }
                continue;
            };
            let next = match &mut self.inputs[selected] {
                Some(input) => ready!(input.poll_next(cx)),
                None => Ok(None),
            };
            self.selected = None;
            match next? {
                Some(element) => return Poll::Ready(Ok(Some(element))),
                None => self.inputs[selected] = None,
            }
            if self.stops_on_empty || self.inputs.iter().all(Option::is_none) {
                self.selector = None;
            }
        }
    }
}
