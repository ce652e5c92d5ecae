//! Datasets with a user-defined predicate or state: filter, take-while, scan.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Code, Result, ensure};

use super::call::{Call, Function, FunctionAttr, bool_result};
use super::dataset::{Iterate, Next, Source, Transform, UNKNOWN, YieldBudget, transformation};
use super::element::Element;
use super::mapped::{at_element, out_of_range};
use super::scope::Scope;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        FILTER_DATASET,
        OpDef::new("ParallelFilterDataset", shape::scalar),
        TAKE_WHILE_DATASET,
        EXPERIMENTAL_TAKE_WHILE_DATASET,
        SCAN_DATASET,
        EXPERIMENTAL_SCAN_DATASET,
    ],
    kernels: &[
        KernelSpec { op: "FilterDataset", create: filter, ..KernelSpec::CPU },
        KernelSpec { op: "ParallelFilterDataset", create: filter, ..KernelSpec::CPU },
        KernelSpec { op: "TakeWhileDataset", create: take_while, ..KernelSpec::CPU },
        KernelSpec { op: "ExperimentalTakeWhileDataset", create: take_while, ..KernelSpec::CPU },
        KernelSpec { op: "ScanDataset", create: scan, ..KernelSpec::CPU },
        KernelSpec { op: "ExperimentalScanDataset", create: scan, ..KernelSpec::CPU },
    ],
};

const FILTER_DATASET: OpDef = OpDef::new("FilterDataset", shape::scalar);

const TAKE_WHILE_DATASET: OpDef = OpDef { name: "TakeWhileDataset", ..FILTER_DATASET };

const EXPERIMENTAL_TAKE_WHILE_DATASET: OpDef =
    OpDef { name: "ExperimentalTakeWhileDataset", ..FILTER_DATASET };

const SCAN_DATASET: OpDef = OpDef::new("ScanDataset", shape::scalar);

const EXPERIMENTAL_SCAN_DATASET: OpDef = OpDef { name: "ExperimentalScanDataset", ..SCAN_DATASET };

/// `FilterDataset` (elements that satisfy a predicate) or `TakeWhileDataset` (elements before the
/// first that does not).
pub(crate) struct PredicateDataset {
    pub(crate) predicate: Arc<Function>,
    pub(crate) is_take_while: bool,
    /// Node name for error messages.
    pub(crate) node: Arc<str>,
}

fn filter(init: &KernelInit<'_>) -> Result<AnyKernel> {
    chosen(init, false)
}

fn take_while(init: &KernelInit<'_>) -> Result<AnyKernel> {
    chosen(init, true)
}

fn chosen(init: &KernelInit<'_>, is_take_while: bool) -> Result<AnyKernel> {
    let predicate = FunctionAttr::of(init.attrs(), "predicate", "other_arguments")?;
    let node = init.node.name.clone();
    transformation(init, move |ctx, input, spec| {
        let (predicate, node) = (predicate.bind(ctx)?, node.clone());
        input.then(spec, PredicateDataset { predicate, is_take_while, node })
    })
}

impl Transform for PredicateDataset {
    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(PredicateIterator {
            input: Some(input.iterate(scope)?),
            predicate: self.predicate.clone(),
            is_take_while: self.is_take_while,
            node: self.node.clone(),
            scope: scope.clone(),
            asked: None,
            count: 0,
            yield_budget: YieldBudget::default(),
        }))
    }
}

struct PredicateIterator {
    input: Option<Box<dyn Iterate>>,
    predicate: Arc<Function>,
    is_take_while: bool,
    node: Arc<str>,
    scope: Arc<Scope>,
    asked: Option<(Element, Call)>,
    count: u64,
    yield_budget: YieldBudget,
}

impl Iterate for PredicateIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        loop {
            if self.asked.is_none() {
                ready!(self.yield_budget.poll(cx));
                let Some(input) = &mut self.input else { return Poll::Ready(Ok(None)) };
                let Some(element) = ready!(input.poll_next(cx))? else {
                    self.input = None;
                    continue;
                };
                let call = self.predicate.call(&self.scope, element.iter().cloned());
                self.asked = Some((element, call));
            }
            let Some((_, call)) = &mut self.asked else { continue };
            let answer = ready!(call.poll(cx));
            let number = self.count;
            self.count += 1;
            let Some((element, _)) = self.asked.take() else { continue };
            let holds = answer
                .and_then(|a| bool_result(&a, "Predicate function"))
                .map_err(|e| at_element(e, &self.node, number))?;
            if holds {
                return Poll::Ready(Ok(Some(element)));
            }
            if self.is_take_while {
                self.input = None;
            }
        }
    }
}

/// `ScanDataset`: a function of a state and an element returns the next state and an output
/// element.
pub(crate) struct ScanDataset {
    pub(crate) function: Arc<Function>,
    pub(crate) initial: Element,
    /// Number of components of an output element, if known.
    pub(crate) outputs: Option<usize>,
    pub(crate) preserves_cardinality: bool,
    /// Node name for error messages.
    pub(crate) node: Arc<str>,
}

fn scan(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let function = FunctionAttr::of(init.attrs(), "f", "other_arguments")?;
    let preserves_cardinality = init.attrs().bool("preserve_cardinality")?;
    let node = init.node.name.clone();
    transformation(init, move |ctx, input, spec| {
        let initial = ctx.input_range("initial_state")?;
        let initial = initial.map(|i| ctx.input(i).cloned()).collect::<Result<Element>>()?;
        let (function, node) = (function.bind(ctx)?, node.clone());
        let outputs = Some(spec.dtypes.len());
        input.then(spec, ScanDataset { function, initial, outputs, preserves_cardinality, node })
    })
}

impl Transform for ScanDataset {
    fn cardinality(&self, input: &Source) -> i64 {
        if self.preserves_cardinality { input.cardinality() } else { UNKNOWN }
    }

    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(ScanIterator {
            input: input.iterate(scope)?,
            function: self.function.clone(),
            state: self.initial.clone(),
            outputs: self.outputs,
            preserves_cardinality: self.preserves_cardinality,
            node: self.node.clone(),
            scope: scope.clone(),
            call: None,
            count: 0,
        }))
    }
}

struct ScanIterator {
    input: Box<dyn Iterate>,
    function: Arc<Function>,
    state: Element,
    outputs: Option<usize>,
    preserves_cardinality: bool,
    node: Arc<str>,
    scope: Arc<Scope>,
    call: Option<Call>,
    count: u64,
}

impl ScanIterator {
    /// Splits the function's results into the next state and an element.
    fn part(&mut self, mut returned: Element) -> Result<Element> {
        let states = self.state.len();
        let is_fine = |outputs: usize| returned.len() == states + outputs;
        ensure!(
            self.outputs.map_or(returned.len() > states, is_fine),
            InvalidArgument,
            "a scan's function must return {states} components of state and {} of output, it returned {}",
            self.outputs.map_or("some".to_owned(), |n| n.to_string()),
            returned.len()
        );
        let element = returned.drain(states..).collect();
        for (i, (new, old)) in returned.iter().zip(&self.state).enumerate() {
            ensure!(
                new.dtype() == old.dtype(),
                InvalidArgument,
                "Expected component {i} of the scan's state to be {}, got {}",
                old.dtype(),
                new.dtype()
            );
        }
        self.state = returned;
        Ok(element)
    }
}

impl Iterate for ScanIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        if self.call.is_none() {
            let Some(element) = ready!(self.input.poll_next(cx))? else {
                return Poll::Ready(Ok(None));
            };
            let args = self.state.iter().cloned().chain(element);
            self.call = Some(self.function.call(&self.scope, args));
        }
        let Some(call) = &mut self.call else { return Poll::Ready(Ok(None)) };
        let result = ready!(call.poll(cx));
        self.call = None;
        let number = self.count;
        self.count += 1;
        match result.and_then(|returned| self.part(returned)) {
            Ok(element) => Poll::Ready(Ok(Some(element))),
            Err(e) if e.code() == Code::OutOfRange && !self.preserves_cardinality => {
                Poll::Ready(Ok(None))
            }
            Err(e) if e.code() == Code::OutOfRange => Poll::Ready(Err(out_of_range(e))),
            Err(e) => Poll::Ready(Err(at_element(e, &self.node, number))),
        }
    }
}
