//! Ops that consume a whole dataset: reduce, single element, write to TFRecords.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use thalweg_formats::record::{Compression, RecordWriter};
use thalweg_graph::{OpDef, Work, shape};
use thalweg_kernel::{
    AnyKernel, AsyncCall, AsyncKernel, Family, KernelInit, KernelSpec, Outputs, Value,
};
use thalweg_tensor::{DType, Result, Tensor, bail, ensure, err};

use super::call::{Call, Function, FunctionAttr};
use super::dataset::{Iterate, Source, YieldBudget};
use super::drive::{Machine, drive};
use super::element::{Element, Spec};
use super::mapped::at_element;
use super::optional::declared_shapes;
use super::scope::Scope;

use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("ReduceDataset", declared_shapes).with_work(Work::fixed::<100>),
        OpDef::new("DatasetToSingleElement", declared_shapes).with_work(Work::fixed::<100>),
        DATASET_CARDINALITY,
        EXPERIMENTAL_DATASET_CARDINALITY,
        OpDef::new("GetOptions", shape::scalar),
        DATASET_TO_TF_RECORD,
        EXPERIMENTAL_DATASET_TO_TF_RECORD,
    ],
    kernels: &[
        KernelSpec { op: "DatasetToTFRecord", create: to_records, ..KernelSpec::CPU },
        KernelSpec { op: "ExperimentalDatasetToTFRecord", create: to_records, ..KernelSpec::CPU },
        KernelSpec { op: "ReduceDataset", create: reduce, ..KernelSpec::CPU },
        KernelSpec { op: "DatasetToSingleElement", create: single_element, ..KernelSpec::CPU },
        KernelSpec { op: "DatasetCardinality", create: cardinality, ..KernelSpec::CPU },
        KernelSpec { op: "ExperimentalDatasetCardinality", create: cardinality, ..KernelSpec::CPU },
        KernelSpec { op: "GetOptions", create: get_options, ..KernelSpec::CPU },
    ],
};

const DATASET_CARDINALITY: OpDef = OpDef::new("DatasetCardinality", shape::scalar);

const EXPERIMENTAL_DATASET_CARDINALITY: OpDef =
    OpDef { name: "ExperimentalDatasetCardinality", ..DATASET_CARDINALITY };

const DATASET_TO_TF_RECORD: OpDef =
    OpDef::new("DatasetToTFRecord", shape::unknown).with_work(work::file);

const EXPERIMENTAL_DATASET_TO_TF_RECORD: OpDef =
    OpDef { name: "ExperimentalDatasetToTFRecord", ..DATASET_TO_TF_RECORD };

fn cardinality(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let count = Source::input(ctx, 0)?.cardinality();
        ctx.set_output(0, Tensor::scalar(count))
    })
}

fn get_options(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let options = Source::input(ctx, 0)?.options();
        ctx.set_output(0, Tensor::scalar_string(options))
    })
}

fn outputs(element: Element) -> Outputs {
    element.into_iter().map(Value::Tensor).collect()
}

/// `DatasetToSingleElement`: the element of a dataset that has exactly one.
struct SingleElement {
    spec: Spec,
}

fn single_element(init: &KernelInit<'_>) -> Result<AnyKernel> {
    Ok(AnyKernel::Async(Arc::new(SingleElement { spec: Spec::of(init.attrs())? })))
}

impl AsyncKernel for SingleElement {
    fn start(&self, call: AsyncCall) {
        let dataset = call.input(0).and_then(Source::of);
        let spec = self.spec.clone();
        drive(call, |scope| {
            let mut iterator = dataset?.iterate(scope)?;
            let mut first: Option<Element> = None;
            Ok(Box::new(move |cx: &mut Context<'_>| {
                loop {
                    match (ready!(iterator.poll_next(cx))?, first.take()) {
                        (Some(_), Some(_)) => {
                            let error = err!(InvalidArgument, "Dataset had more than one element.");
                            return Poll::Ready(Err(error));
                        }
                        (Some(element), None) => first = Some(element),
                        (None, Some(element)) => {
                            return Poll::Ready(spec.check(&element).map(|()| outputs(element)));
                        }
                        (None, None) => {
                            return Poll::Ready(Err(err!(InvalidArgument, "Dataset was empty.")));
                        }
                    }
                }
            }) as Machine)
        });
    }
}

/// `ReduceDataset`: folds a function over the elements.
struct Reduce {
    function: FunctionAttr,
    spec: Spec,
    states: std::ops::Range<usize>,
    captured: std::ops::Range<usize>,
    node: Arc<str>,
}

fn reduce(init: &KernelInit<'_>) -> Result<AnyKernel> {
    Ok(AnyKernel::Async(Arc::new(Reduce {
        function: FunctionAttr::of(init.attrs(), "f", "other_arguments")?,
        spec: Spec::of(init.attrs())?,
        states: init.node.input_range("initial_state")?,
        captured: init.node.input_range("other_arguments")?,
        node: init.node.name.clone(),
    })))
}

impl AsyncKernel for Reduce {
    fn start(&self, call: AsyncCall) {
        let tensors = |range: &std::ops::Range<usize>| {
            range.clone().map(|i| call.input(i).cloned()).collect::<Result<Element>>()
        };
        let parts = call
            .input(0)
            .and_then(Source::of)
            .and_then(|dataset| Ok((dataset, tensors(&self.states)?, tensors(&self.captured)?)));
        let (function, spec, node) = (self.function.clone(), self.spec.clone(), self.node.clone());
        drive(call, |scope| {
            let (dataset, state, captured) = parts?;
            let mut reducing = Reduction {
                input: dataset.iterate(scope)?,
                function: function.with(captured.into_vec()),
                scope: scope.clone(),
                state,
                call: None,
                count: 0,
                node,
                yield_budget: YieldBudget::default(),
            };
            Ok(Box::new(move |cx: &mut Context<'_>| {
                let state = ready!(reducing.poll(cx))?;
                Poll::Ready(spec.check(&state).map(|()| outputs(state)))
            }) as Machine)
        });
    }
}

/// A reduction in progress.
pub(crate) struct Reduction {
    input: Box<dyn Iterate>,
    function: Arc<Function>,
    scope: Arc<Scope>,
    state: Element,
    call: Option<Call>,
    count: u64,
    node: Arc<str>,
    yield_budget: YieldBudget,
}

impl Reduction {
    /// The final state.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Element>> {
        loop {
            ready!(self.yield_budget.poll(cx));
            if self.call.is_none() {
                let Some(element) = ready!(self.input.poll_next(cx))? else {
                    return Poll::Ready(Ok(std::mem::take(&mut self.state)));
                };
                let args = self.state.drain(..).chain(element);
                self.call = Some(self.function.call(&self.scope, args));
            }
            let Some(call) = &mut self.call else { continue };
            let result = ready!(call.poll(cx));
            self.call = None;
            let number = self.count;
            self.count += 1;
            self.state = result.map_err(|e| at_element(e, &self.node, number))?;
        }
    }
}

/// `DatasetToTFRecord`: writes strings to a file, which is renamed into place when complete.
struct DatasetToTfRecord;

fn to_records(_: &KernelInit<'_>) -> Result<AnyKernel> {
    Ok(AnyKernel::Async(Arc::new(DatasetToTfRecord)))
}

/// The dataset, and the file that its elements are written to.
fn record_file(call: &AsyncCall) -> Result<(Source, RecordWriter)> {
    let text = |i: usize, name: &str| match call.input(i)?.strings()? {
        [text] => Ok(String::from_utf8_lossy(text).into_owned()),
        _ => bail!(InvalidArgument, "{name} must be a scalar"),
    };
    let dataset = Source::of(call.input(0)?)?;
    ensure!(
        dataset.spec().is_open || *dataset.spec().dtypes == [DType::String],
        InvalidArgument,
        "the input dataset must have scalar strings as elements"
    );
    let compression = Compression::from_name(&text(2, "compression_type")?)?;
    let file = call.step.environment().storage.replace(&text(1, "filename")?)?;
    Ok((dataset, RecordWriter::new(file, compression)))
}

impl AsyncKernel for DatasetToTfRecord {
    fn start(&self, call: AsyncCall) {
        let parts = record_file(&call);
        drive(call, |scope| {
            let (dataset, writer) = parts?;
            let (mut iterator, mut writer) = (dataset.iterate(scope)?, Some(writer));
            let mut yield_budget = YieldBudget::default();
            Ok(Box::new(move |cx: &mut Context<'_>| {
                loop {
                    ready!(yield_budget.poll(cx));
                    let next = ready!(iterator.poll_next(cx))?;
                    let Some(open) = &mut writer else { return Poll::Ready(Ok(Outputs::new())) };
                    match next.as_deref() {
                        Some([text]) if text.rank() == 0 => open.write(&text.strings()?[0])?,
                        Some(_) => {
                            let error = err!(InvalidArgument, "an element is not a scalar string");
                            return Poll::Ready(Err(error));
                        }
                        None => {
                            let whole = writer.take().map_or(Ok(()), RecordWriter::finish);
                            return Poll::Ready(whole.map(|()| Outputs::new()));
                        }
                    }
                }
            }) as Machine)
        });
    }
}
