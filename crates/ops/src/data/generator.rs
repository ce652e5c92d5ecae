//! `GeneratorDataset`: elements computed by an init, a next and a finalize function.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Code, Result};

use super::call::{Call, Function, FunctionAttr};
use super::dataset::{Dataset, Iterate, Next, Source, dataset_kernel};
use super::element::{Element, Spec};
use super::mapped::at_element;
use super::scope::Scope;

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("GeneratorDataset", shape::scalar)],
    kernels: &[KernelSpec { op: "GeneratorDataset", create: generator, ..KernelSpec::CPU }],
};

struct GeneratorDataset {
    functions: Arc<Functions>,
    spec: Spec,
    node: Arc<str>,
}

struct Functions {
    begin: Arc<Function>,
    next: Arc<Function>,
    end: Arc<Function>,
}

fn generator(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let begin = FunctionAttr::of(attrs, "init_func", "init_func_other_args")?;
    let next = FunctionAttr::of(attrs, "next_func", "next_func_other_args")?;
    let end = FunctionAttr::of(attrs, "finalize_func", "finalize_func_other_args")?;
    let (spec, node) = (Spec::of(attrs)?, init.node.name.clone());
    dataset_kernel(move |ctx| {
        let (begin, next, end) = (begin.bind(ctx)?, next.bind(ctx)?, end.bind(ctx)?);
        let functions = Arc::new(Functions { begin, next, end });
        Source::new(GeneratorDataset { functions, spec: spec.clone(), node: node.clone() }, 0)
    })
}

impl Dataset for GeneratorDataset {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn iterate(&self, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(GeneratorIterator {
            stage: Stage::Beginning(None),
            functions: self.functions.clone(),
            node: self.node.clone(),
            count: 0,
            scope: scope.clone(),
        }))
    }
}

/// The function whose call is awaited.
enum Stage {
    /// `init_func`, whose result is the state for all calls.
    Beginning(Option<Call>),
    /// `next_func`.
    Going(Element, Option<Call>),
    /// `finalize_func`, of whose result only an error is used.
    Ending(Call),
    Ended,
}

struct GeneratorIterator {
    stage: Stage,
    functions: Arc<Functions>,
    node: Arc<str>,
    count: u64,
    scope: Arc<Scope>,
}

impl Iterate for GeneratorIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        let scope = &self.scope;
        loop {
            match &mut self.stage {
                Stage::Beginning(call) => {
                    let begun = call.get_or_insert_with(|| self.functions.begin.call(scope, []));
                    let state = ready!(begun.poll(cx));
                    *call = None;
                    self.stage = Stage::Going(state?, None);
                }
                Stage::Going(state, call) => {
                    let begun = call.get_or_insert_with(|| {
                        self.functions.next.call(scope, state.iter().cloned())
                    });
                    let result = ready!(begun.poll(cx));
                    *call = None;
                    match result {
                        Err(e) if e.code() == Code::OutOfRange => {
                            let state = std::mem::take(state);
                            self.stage = Stage::Ending(self.functions.end.call(scope, state));
                        }
                        result => {
                            let number = self.count;
                            self.count += 1;
                            let result = result.map_err(|e| at_element(e, &self.node, number));
                            return Poll::Ready(result.map(Some));
                        }
                    }
                }
                Stage::Ending(call) => {
                    let result = ready!(call.poll(cx));
                    self.stage = Stage::Ended;
                    return Poll::Ready(result.map(|_| None));
                }
                Stage::Ended => return Poll::Ready(Ok(None)),
            }
        }
    }
}
