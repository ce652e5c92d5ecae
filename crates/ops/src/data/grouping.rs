//! Datasets that group elements by key: by window, or by a reducer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Result, Tensor, ensure};

use super::call::{Call, Function, FunctionAttr, int_result};
use super::dataset::{Iterate, Next, Source, Transform, YieldBudget, transformation};
use super::element::{BufferedElement, Element, Spec};
use super::mapped::at_element;
use super::scope::Scope;
use super::window::ElementsDataset;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        GROUP_BY_WINDOW_DATASET,
        EXPERIMENTAL_GROUP_BY_WINDOW_DATASET,
        GROUP_BY_REDUCER_DATASET,
        EXPERIMENTAL_GROUP_BY_REDUCER_DATASET,
    ],
    kernels: &[
        KernelSpec { op: "GroupByWindowDataset", create: group_by_window, ..KernelSpec::CPU },
        KernelSpec {
            op: "ExperimentalGroupByWindowDataset",
            create: group_by_window,
            ..KernelSpec::CPU
        },
        KernelSpec { op: "GroupByReducerDataset", create: group_by_reducer, ..KernelSpec::CPU },
        KernelSpec {
            op: "ExperimentalGroupByReducerDataset",
            create: group_by_reducer,
            ..KernelSpec::CPU
        },
    ],
};

const GROUP_BY_WINDOW_DATASET: OpDef = OpDef::new("GroupByWindowDataset", shape::scalar);

const EXPERIMENTAL_GROUP_BY_WINDOW_DATASET: OpDef =
    OpDef { name: "ExperimentalGroupByWindowDataset", ..GROUP_BY_WINDOW_DATASET };

const GROUP_BY_REDUCER_DATASET: OpDef = OpDef::new("GroupByReducerDataset", shape::scalar);

const EXPERIMENTAL_GROUP_BY_REDUCER_DATASET: OpDef =
    OpDef { name: "ExperimentalGroupByReducerDataset", ..GROUP_BY_REDUCER_DATASET };

/// `GroupByWindowDataset`: a reduce function maps each window of elements with equal keys to a
/// dataset.
struct GroupByWindowDataset {
    key: Arc<Function>,
    size: Arc<Function>,
    reduce: Arc<Function>,
    node: Arc<str>,
}

fn group_by_window(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let key = FunctionAttr::of(attrs, "key_func", "key_func_other_arguments")?;
    let reduce = FunctionAttr::of(attrs, "reduce_func", "reduce_func_other_arguments")?;
    let size = FunctionAttr::of(attrs, "window_size_func", "window_size_func_other_arguments")?;
    let node = init.node.name.clone();
    transformation(init, move |ctx, input, spec| {
        let (key, size, reduce) = (key.bind(ctx)?, size.bind(ctx)?, reduce.bind(ctx)?);
        let node = node.clone();
        input.then(spec, GroupByWindowDataset { key, size, reduce, node })
    })
}

impl Transform for GroupByWindowDataset {
    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(GroupByWindowIterator {
            keyed: KeyedElements::new(input, &self.key, &self.node, scope)?,
            spec: input.spec().clone(),
            depth: input.depth(),
            size: self.size.clone(),
            reduce: self.reduce.clone(),
            groups: BTreeMap::new(),
            sizes: BTreeMap::new(),
            stage: Stage::Drawing,
            scope: scope.clone(),
            yield_budget: YieldBudget::default(),
        }))
    }
}

/// Elements with their keys.
struct KeyedElements {
    /// `None` after its end.
    input: Option<Box<dyn Iterate>>,
    key: Arc<Function>,
    /// An element whose key is being computed.
    asked: Option<(Element, Call)>,
    count: u64,
    node: Arc<str>,
    scope: Arc<Scope>,
}

impl KeyedElements {
    fn new(
        input: &Source,
        key: &Arc<Function>,
        node: &Arc<str>,
        scope: &Arc<Scope>,
    ) -> Result<KeyedElements> {
        Ok(KeyedElements {
            input: Some(input.iterate(scope)?),
            key: key.clone(),
            asked: None,
            count: 0,
            node: node.clone(),
            scope: scope.clone(),
        })
    }

    /// The next element and its key; `None` at the end.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<(i64, Element)>>> {
        if self.asked.is_none() {
            let Some(input) = &mut self.input else { return Poll::Ready(Ok(None)) };
            let Some(element) = ready!(input.poll_next(cx))? else {
                self.input = None;
                return Poll::Ready(Ok(None));
            };
            let call = self.key.call(&self.scope, element.iter().cloned());
            self.asked = Some((element, call));
        }
        let Some((_, call)) = &mut self.asked else { return Poll::Ready(Ok(None)) };
        let key = ready!(call.poll(cx));
        let number = self.count;
        self.count += 1;
        let element = self.asked.take().map(|(element, _)| element).unwrap_or_default();
        let key = key
            .and_then(|key| int_result(&key, "`key_func`"))
            .map_err(|e| at_element(e, &self.node, number))?;
        Poll::Ready(Ok(Some((key, element))))
    }
}

/// What the iterator waits for.
enum Stage {
    /// The next element and its key.
    Drawing,
    /// The window size of a new key.
    Sizing(Element, i64, Call),
    /// The dataset that the reduce function makes of a window.
    Reducing(Call),
    /// The next element of such a dataset.
    Flushing(Box<dyn Iterate>),
}

struct GroupByWindowIterator {
    keyed: KeyedElements,
    spec: Spec,
    depth: usize,
    size: Arc<Function>,
    reduce: Arc<Function>,
    groups: BTreeMap<i64, Vec<BufferedElement>>,
    sizes: BTreeMap<i64, usize>,
    stage: Stage,
    scope: Arc<Scope>,
    yield_budget: YieldBudget,
}

impl GroupByWindowIterator {
    /// Starts the reduce function on the elements of this key.
    fn flush(&mut self, key: i64) -> Result<Stage> {
        let held = self.groups.remove(&key).unwrap_or_default();
        let elements = Arc::new(held.into_iter().map(|held| held.element).collect());
        let listed = ElementsDataset { elements, spec: self.spec.clone() };
        let window = Source::new(listed, self.depth)?.into_tensor()?;
        Ok(Stage::Reducing(self.reduce.call(&self.scope, [Tensor::scalar(key), window])))
    }

    /// Adds an element to the window of its key, whose window size is known.
    fn add(&mut self, key: i64, element: Element) -> Result<Stage> {
        let size = self.sizes.get(&key).copied().unwrap_or(1);
        let held = BufferedElement::new(element, &self.scope.budget)?;
        let group = self.groups.entry(key).or_default();
        group.push(held);
        if group.len() >= size { self.flush(key) } else { Ok(Stage::Drawing) }
    }

    /// Continues with an element and its key.
    fn keyed(&mut self, key: i64, element: Element) -> Result<Stage> {
        if self.sizes.contains_key(&key) {
            return self.add(key, element);
        }
        let call = self.size.call(&self.scope, [Tensor::scalar(key)]);
        Ok(Stage::Sizing(element, key, call))
    }

    fn sized(&mut self, size: Result<Element>, key: i64, element: Element) -> Result<Stage> {
        let size = int_result(&size?, "`window_size_func`")?;
        ensure!(
            size > 0,
            InvalidArgument,
            "Window size must be greater than zero, but got {size}."
        );
        // The map entry of a key is charged like an element.
        self.sizes.insert(key, usize::try_from(size).unwrap_or(usize::MAX));
        self.add(key, element)
    }
}

impl Iterate for GroupByWindowIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        loop {
            ready!(self.yield_budget.poll(cx));
            match &mut self.stage {
                Stage::Drawing => match ready!(self.keyed.poll(cx))? {
                    Some((key, element)) => self.stage = self.keyed(key, element)?,
                    // The remaining windows are reduced in the order of their keys.
                    None => match self.groups.keys().next().copied() {
                        Some(key) => self.stage = self.flush(key)?,
                        None => return Poll::Ready(Ok(None)),
                    },
                },
                Stage::Sizing(element, key, call) => {
                    let (size, key) = (ready!(call.poll(cx)), *key);
                    let element = std::mem::take(element);
                    self.stage = Stage::Drawing;
                    self.stage = self.sized(size, key, element)?;
                }
                Stage::Reducing(call) => {
                    let returned = ready!(call.poll(cx));
                    self.stage = Stage::Drawing;
                    let returned = returned?;
                    ensure_one(&returned)?;
                    let dataset = Source::of(&returned[0])?.iterate(&self.scope)?;
                    self.stage = Stage::Flushing(dataset);
                }
                Stage::Flushing(dataset) => match ready!(dataset.poll_next(cx))? {
                    Some(element) => return Poll::Ready(Ok(Some(element))),
                    None => self.stage = Stage::Drawing,
                },
            }
        }
    }
}

fn ensure_one(returned: &[Tensor]) -> Result<()> {
    ensure!(
        returned.len() == 1,
        InvalidArgument,
        "`reduce_func` must return a single dataset, it returned {} components",
        returned.len()
    );
    Ok(())
}

/// `GroupByReducerDataset`: a reducer's result for each key.
struct GroupByReducerDataset {
    functions: Arc<[Arc<Function>; 4]>,
    node: Arc<str>,
}

fn group_by_reducer(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let functions = [
        FunctionAttr::of(attrs, "key_func", "key_func_other_arguments")?,
        FunctionAttr::of(attrs, "init_func", "init_func_other_arguments")?,
        FunctionAttr::of(attrs, "reduce_func", "reduce_func_other_arguments")?,
        FunctionAttr::of(attrs, "finalize_func", "finalize_func_other_arguments")?,
    ];
    let node = init.node.name.clone();
    transformation(init, move |ctx, input, spec| {
        let [key, begin, reduce, finalize] = &functions;
        let functions =
            Arc::new([key.bind(ctx)?, begin.bind(ctx)?, reduce.bind(ctx)?, finalize.bind(ctx)?]);
        input.then(spec, GroupByReducerDataset { functions, node: node.clone() })
    })
}

impl Transform for GroupByReducerDataset {
    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(GroupByReducerIterator {
            keyed: KeyedElements::new(input, &self.functions[0], &self.node, scope)?,
            functions: self.functions.clone(),
            states: BTreeMap::new(),
            stage: ReduceStage::Drawing,
            scope: scope.clone(),
            yield_budget: YieldBudget::default(),
        }))
    }
}

/// What the iterator waits for.
enum ReduceStage {
    Drawing,
    Beginning(Element, i64, Call),
    Reducing(i64, Call),
    Finalizing(Call),
}

struct GroupByReducerIterator {
    keyed: KeyedElements,
    functions: Arc<[Arc<Function>; 4]>,
    states: BTreeMap<i64, BufferedElement>,
    stage: ReduceStage,
    scope: Arc<Scope>,
    yield_budget: YieldBudget,
}

impl GroupByReducerIterator {
    fn reduce(&self, key: i64, state: Element, element: Element) -> ReduceStage {
        let args = state.into_iter().chain(element);
        ReduceStage::Reducing(key, self.functions[2].call(&self.scope, args))
    }

    fn keyed(&mut self, key: i64, element: Element) -> ReduceStage {
        match self.states.remove(&key) {
            Some(state) => self.reduce(key, state.element, element),
            None => {
                let call = self.functions[1].call(&self.scope, [Tensor::scalar(key)]);
                ReduceStage::Beginning(element, key, call)
            }
        }
    }
}

impl Iterate for GroupByReducerIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        loop {
            ready!(self.yield_budget.poll(cx));
            match &mut self.stage {
                ReduceStage::Drawing => match ready!(self.keyed.poll(cx))? {
                    Some((key, element)) => self.stage = self.keyed(key, element),
                    None => match self.states.pop_first() {
                        Some((_, state)) => {
                            let call = self.functions[3].call(&self.scope, state.element);
                            self.stage = ReduceStage::Finalizing(call);
                        }
                        None => return Poll::Ready(Ok(None)),
                    },
                },
                ReduceStage::Beginning(element, key, call) => {
                    let (state, key) = (ready!(call.poll(cx)), *key);
                    let element = std::mem::take(element);
                    self.stage = ReduceStage::Drawing;
                    self.stage = self.reduce(key, state?, element);
                }
                ReduceStage::Reducing(key, call) => {
                    let (state, key) = (ready!(call.poll(cx)), *key);
                    self.stage = ReduceStage::Drawing;
                    self.states.insert(key, BufferedElement::new(state?, &self.scope.budget)?);
                }
                ReduceStage::Finalizing(call) => {
                    let result = ready!(call.poll(cx));
                    self.stage = ReduceStage::Drawing;
                    return Poll::Ready(result.map(Some));
                }
            }
        }
    }
}
