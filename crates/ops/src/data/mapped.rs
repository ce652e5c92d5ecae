//! `MapDataset` and `ParallelMapDataset`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Code, Error, Result, ensure};

use super::call::{Call, Function, FunctionAttr};
use super::dataset::{Iterate, Next, Source, Transform, UNKNOWN, transformation};
use super::element::Element;
use super::scope::Scope;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("MapDataset", shape::scalar),
        OpDef::new("ParallelMapDataset", shape::scalar),
        OpDef::new("ParallelMapDatasetV2", shape::scalar),
    ],
    kernels: &[
        KernelSpec { op: "MapDataset", create: map, ..KernelSpec::CPU },
        KernelSpec { op: "ParallelMapDataset", create: map, ..KernelSpec::CPU },
        KernelSpec { op: "ParallelMapDatasetV2", create: map, ..KernelSpec::CPU },
    ],
};

/// A function applied to every element.
pub(crate) struct MapDataset {
    pub(crate) function: Arc<Function>,
    pub(crate) preserves_cardinality: bool,
    /// Number of parallel calls; `None` starts a call when its result is requested.
    pub(crate) calls: Option<i64>,
    /// Node name for error messages.
    pub(crate) node: Arc<str>,
}

/// The number of parallel calls: positive, or -1 for automatic.
pub(crate) fn checked_calls(calls: i64) -> Result<i64> {
    ensure!(
        calls > 0 || calls == -1,
        InvalidArgument,
        "num_parallel_calls must be greater than zero."
    );
    Ok(calls)
}

fn map(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let function = FunctionAttr::of(init.attrs(), "f", "other_arguments")?;
    let preserves_cardinality = init.attrs().bool("preserve_cardinality")?;
    let node = init.node.name.clone();
    let calls_input = init.node.input_range("num_parallel_calls").ok().map(|range| range.start);
    transformation(init, move |ctx, input, spec| {
        let calls = match calls_input {
            Some(i) => Some(checked_calls(ctx.scalar_int(i, "num_parallel_calls")?)?),
            None => None,
        };
        let function = function.bind(ctx)?;
        let node = node.clone();
        input.then(spec, MapDataset { function, preserves_cardinality, calls, node })
    })
}

impl Transform for MapDataset {
    fn cardinality(&self, input: &Source) -> i64 {
        if self.preserves_cardinality { input.cardinality() } else { UNKNOWN }
    }

    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        let input = input.iterate(scope)?;
        let calling = MapCalls {
            function: self.function.clone(),
            scope: scope.clone(),
            node: self.node.clone(),
            count: 0,
            preserves_cardinality: self.preserves_cardinality,
        };
        Ok(match self.calls.map(|n| scope.calls(n)) {
            None => Box::new(SequentialMapIterator { input, calling, call: None }),
            Some(window) => Box::new(ParallelMapIterator {
                input: Some(input),
                calling,
                window,
                begun: VecDeque::new(),
            }),
        })
    }
}

/// State shared by the calls of one iteration.
struct MapCalls {
    function: Arc<Function>,
    scope: Arc<Scope>,
    node: Arc<str>,
    /// Number of results so far.
    count: u64,
    preserves_cardinality: bool,
}

impl MapCalls {
    /// Converts the result of a call to the iterator's.
    fn outcome(&mut self, result: Result<Element>) -> Result<Option<Element>> {
        let number = self.count;
        self.count += 1;
        match result {
            Ok(element) => Ok(Some(element)),
            // OUT_OF_RANGE from the function ends the sequence, unless `preserve_cardinality`
            // forbids it.
            Err(e) if e.code() == Code::OutOfRange && !self.preserves_cardinality => Ok(None),
            Err(e) if e.code() == Code::OutOfRange => {
                Err(out_of_range(at_element(e, &self.node, number)))
            }
            Err(e) => Err(at_element(e, &self.node, number)),
        }
    }
}

/// The error for a function that ended a sequence whose cardinality must be preserved.
pub(crate) fn out_of_range(e: Error) -> Error {
    e.with_code(Code::InvalidArgument)
        .map_message(|m| format!("Function invocation produced OutOfRangeError: {m}"))
}

/// Adds the node and the index of the element to an error.
pub(crate) fn at_element(e: Error, node: &str, number: u64) -> Error {
    e.map_message(|m| format!("{m} (at element {number} of dataset '{node}')"))
}

/// Sequential calls.
struct SequentialMapIterator {
    input: Box<dyn Iterate>,
    calling: MapCalls,
    call: Option<Call>,
}

impl Iterate for SequentialMapIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        if self.call.is_none() {
            let Some(element) = ready!(self.input.poll_next(cx))? else {
                return Poll::Ready(Ok(None));
            };
            self.call = Some(self.calling.function.call(&self.calling.scope, element));
        }
        let Some(call) = &mut self.call else { return Poll::Ready(Ok(None)) };
        let result = ready!(call.poll(cx));
        self.call = None;
        Poll::Ready(self.calling.outcome(result))
    }
}

/// Parallel calls; results are returned in the elements' order.
struct ParallelMapIterator {
    /// `None` after its end.
    input: Option<Box<dyn Iterate>>,
    calling: MapCalls,
    window: usize,
    begun: VecDeque<Result<Call>>,
}

impl ParallelMapIterator {
    fn fill(&mut self, cx: &mut Context<'_>) {
        while let Some(input) = &mut self.input
            && self.begun.len() < self.window
        {
            let MapCalls { function, scope, .. } = &self.calling;
            match input.poll_next(cx) {
                Poll::Ready(Ok(Some(element))) => {
                    self.begun.push_back(Ok(function.call_in_background(scope, element)));
                }
                Poll::Ready(Ok(None)) => self.input = None,
                Poll::Ready(Err(e)) => self.begun.push_back(Err(e)),
                Poll::Pending => return,
            }
        }
    }
}

impl Iterate for ParallelMapIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        self.fill(cx);
        let result = match self.begun.front_mut() {
            Some(Ok(call)) => ready!(call.poll(cx)),
            Some(Err(_)) => match self.begun.pop_front() {
                Some(Err(e)) => return Poll::Ready(Err(e)),
                _ => return Poll::Ready(Ok(None)),
            },
            None if self.input.is_none() => return Poll::Ready(Ok(None)),
            None => return Poll::Pending,
        };
        self.begun.pop_front();
        self.fill(cx);
        Poll::Ready(self.calling.outcome(result))
    }
}
