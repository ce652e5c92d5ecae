//! Datasets that do not change elements: options, assertions about cardinality, and ignored errors.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Bytes, Code, Result, ensure, err};

use super::dataset::{
    Dataset, INFINITE, Iterate, Next, Source, Transform, YieldBudget, transformation,
};
use super::element::Spec;
use super::scope::Scope;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("OptionsDataset", shape::scalar),
        OpDef::new("ModelDataset", shape::scalar),
        OPTIMIZE_DATASET,
        OPTIMIZE_DATASET_V2,
        OpDef::new("FinalizeDataset", shape::scalar),
        OpDef::new("RewriteDataset", shape::scalar),
        MAX_INTRA_OP_PARALLELISM_DATASET,
        EXPERIMENTAL_MAX_INTRA_OP_PARALLELISM_DATASET,
        PRIVATE_THREAD_POOL_DATASET,
        EXPERIMENTAL_PRIVATE_THREAD_POOL_DATASET,
        OpDef::new("NonSerializableDataset", shape::scalar),
        OpDef::new("ExperimentalNonSerializableDataset", shape::scalar),
        WRAP_DATASET_VARIANT,
        UNWRAP_DATASET_VARIANT,
        OpDef::new("AssertCardinalityDataset", shape::scalar),
        IGNORE_ERRORS_DATASET,
        EXPERIMENTAL_IGNORE_ERRORS_DATASET,
        LATENCY_STATS_DATASET,
        EXPERIMENTAL_LATENCY_STATS_DATASET,
        BYTES_PRODUCED_STATS_DATASET,
        EXPERIMENTAL_BYTES_PRODUCED_STATS_DATASET,
        CHOOSE_FASTEST_DATASET,
        EXPERIMENTAL_CHOOSE_FASTEST_DATASET,
        ASSERT_NEXT_DATASET,
        EXPERIMENTAL_ASSERT_NEXT_DATASET,
        ASSERT_PREV_DATASET,
    ],
    kernels: &[
        KernelSpec { op: "LatencyStatsDataset", create: pass, ..KernelSpec::CPU },
        KernelSpec { op: "ExperimentalLatencyStatsDataset", create: pass, ..KernelSpec::CPU },
        KernelSpec { op: "BytesProducedStatsDataset", create: pass, ..KernelSpec::CPU },
        KernelSpec { op: "ExperimentalBytesProducedStatsDataset", create: pass, ..KernelSpec::CPU },
        KernelSpec { op: "ChooseFastestDataset", create: pass, ..KernelSpec::CPU },
        KernelSpec { op: "ExperimentalChooseFastestDataset", create: pass, ..KernelSpec::CPU },
        KernelSpec { op: "AssertNextDataset", create: assert_rewrites, ..KernelSpec::CPU },
        KernelSpec {
            op: "ExperimentalAssertNextDataset",
            create: assert_rewrites,
            ..KernelSpec::CPU
        },
        KernelSpec { op: "AssertPrevDataset", create: assert_rewrites, ..KernelSpec::CPU },
        KernelSpec { op: "OptionsDataset", create: options, ..KernelSpec::CPU },
        KernelSpec { op: "ModelDataset", create: pass, ..KernelSpec::CPU },
        KernelSpec { op: "OptimizeDataset", create: pass, ..KernelSpec::CPU },
        KernelSpec { op: "OptimizeDatasetV2", create: pass, ..KernelSpec::CPU },
        KernelSpec { op: "FinalizeDataset", create: pass, ..KernelSpec::CPU },
        KernelSpec { op: "RewriteDataset", create: pass, ..KernelSpec::CPU },
        KernelSpec { op: "MaxIntraOpParallelismDataset", create: pass, ..KernelSpec::CPU },
        KernelSpec {
            op: "ExperimentalMaxIntraOpParallelismDataset",
            create: pass,
            ..KernelSpec::CPU
        },
        KernelSpec { op: "PrivateThreadPoolDataset", create: pass, ..KernelSpec::CPU },
        KernelSpec { op: "ExperimentalPrivateThreadPoolDataset", create: pass, ..KernelSpec::CPU },
        KernelSpec { op: "NonSerializableDataset", create: pass, ..KernelSpec::CPU },
        KernelSpec { op: "ExperimentalNonSerializableDataset", create: pass, ..KernelSpec::CPU },
        KernelSpec { op: "WrapDatasetVariant", create: pass, ..KernelSpec::CPU },
        KernelSpec { op: "UnwrapDatasetVariant", create: pass, ..KernelSpec::CPU },
        KernelSpec {
            op: "AssertCardinalityDataset",
            create: assert_cardinality,
            ..KernelSpec::CPU
        },
        KernelSpec { op: "IgnoreErrorsDataset", create: ignore_errors, ..KernelSpec::CPU },
        KernelSpec {
            op: "ExperimentalIgnoreErrorsDataset",
            create: ignore_errors,
            ..KernelSpec::CPU
        },
    ],
};

const OPTIMIZE_DATASET: OpDef = OpDef::new("OptimizeDataset", shape::scalar);

const OPTIMIZE_DATASET_V2: OpDef = OpDef { name: "OptimizeDatasetV2", ..OPTIMIZE_DATASET };

const MAX_INTRA_OP_PARALLELISM_DATASET: OpDef =
    OpDef::new("MaxIntraOpParallelismDataset", shape::scalar);

const EXPERIMENTAL_MAX_INTRA_OP_PARALLELISM_DATASET: OpDef =
    OpDef { name: "ExperimentalMaxIntraOpParallelismDataset", ..MAX_INTRA_OP_PARALLELISM_DATASET };

const PRIVATE_THREAD_POOL_DATASET: OpDef = OpDef::new("PrivateThreadPoolDataset", shape::scalar);

const EXPERIMENTAL_PRIVATE_THREAD_POOL_DATASET: OpDef =
    OpDef { name: "ExperimentalPrivateThreadPoolDataset", ..PRIVATE_THREAD_POOL_DATASET };

const WRAP_DATASET_VARIANT: OpDef = OpDef::new("WrapDatasetVariant", shape::scalar);

const UNWRAP_DATASET_VARIANT: OpDef =
    OpDef { name: "UnwrapDatasetVariant", ..WRAP_DATASET_VARIANT };

const IGNORE_ERRORS_DATASET: OpDef = OpDef::new("IgnoreErrorsDataset", shape::scalar);

const EXPERIMENTAL_IGNORE_ERRORS_DATASET: OpDef =
    OpDef { name: "ExperimentalIgnoreErrorsDataset", ..IGNORE_ERRORS_DATASET };

const LATENCY_STATS_DATASET: OpDef = OpDef::new("LatencyStatsDataset", shape::scalar);

const EXPERIMENTAL_LATENCY_STATS_DATASET: OpDef =
    OpDef { name: "ExperimentalLatencyStatsDataset", ..LATENCY_STATS_DATASET };

const BYTES_PRODUCED_STATS_DATASET: OpDef =
    OpDef { name: "BytesProducedStatsDataset", ..LATENCY_STATS_DATASET };

const EXPERIMENTAL_BYTES_PRODUCED_STATS_DATASET: OpDef =
    OpDef { name: "ExperimentalBytesProducedStatsDataset", ..LATENCY_STATS_DATASET };

const CHOOSE_FASTEST_DATASET: OpDef = OpDef::new("ChooseFastestDataset", shape::scalar);

const EXPERIMENTAL_CHOOSE_FASTEST_DATASET: OpDef =
    OpDef { name: "ExperimentalChooseFastestDataset", ..CHOOSE_FASTEST_DATASET };

const ASSERT_NEXT_DATASET: OpDef = OpDef::new("AssertNextDataset", shape::scalar);

const EXPERIMENTAL_ASSERT_NEXT_DATASET: OpDef =
    OpDef { name: "ExperimentalAssertNextDataset", ..ASSERT_NEXT_DATASET };

const ASSERT_PREV_DATASET: OpDef = OpDef { name: "AssertPrevDataset", ..ASSERT_NEXT_DATASET };

/// The first input, unchanged. Options such as thread counts, statistics and rewriting do not apply
/// to this runtime: it has one pool and does not rewrite pipelines.
fn pass(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        Source::input(ctx, 0)?;
        let dataset = ctx.take_input(0)?;
        ctx.set_output(0, dataset)
    })
}

/// `AssertNextDataset`: the input itself if the asserted list is empty; pipelines are not
/// rewritten.
fn assert_rewrites(init: &KernelInit<'_>) -> Result<AnyKernel> {
    transformation(init, |ctx, input, _| {
        let names = ctx.input(1)?.strings()?;
        ensure!(
            names.is_empty(),
            InvalidArgument,
            "the list of asserted transformations must be empty, got {}: pipelines are not rewritten",
            names.len()
        );
        Ok(input)
    })
}

/// `OptionsDataset`: the input with serialized `tf.data.Options`.
struct OptionsDataset {
    input: Source,
    options: Bytes,
}

fn options(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let options = init.attrs().bytes("serialized_options")?.clone();
    transformation(init, move |_, input, _| {
        let source = input.clone();
        source.under(OptionsDataset { input, options: options.clone() })
    })
}

impl Dataset for OptionsDataset {
    fn spec(&self) -> &Spec {
        self.input.spec()
    }

    fn inputs(&self) -> Vec<&Source> {
        vec![&self.input]
    }

    fn cardinality(&self) -> i64 {
        self.input.cardinality()
    }

    fn iterate(&self, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        self.input.iterate(scope)
    }

    fn options(&self) -> Bytes {
        self.options.clone()
    }
}

/// `AssertCardinalityDataset`: fails if the number of elements differs.
struct AssertCardinalityDataset {
    count: i64,
}

fn assert_cardinality(init: &KernelInit<'_>) -> Result<AnyKernel> {
    transformation(init, |ctx, input, spec| {
        let count = ctx.scalar_int(1, "cardinality")?;
        input.then(spec, AssertCardinalityDataset { count })
    })
}

impl Transform for AssertCardinalityDataset {
    fn cardinality(&self, _: &Source) -> i64 {
        self.count
    }

    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        let input = input.iterate(scope)?;
        Ok(Box::new(AssertCardinalityIterator { input, expected: self.count, seen: 0 }))
    }
}

struct AssertCardinalityIterator {
    input: Box<dyn Iterate>,
    expected: i64,
    seen: i64,
}

impl Iterate for AssertCardinalityIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        let next = ready!(self.input.poll_next(cx))?;
        if next.is_some() {
            self.seen += 1;
        }
        let elements = |n: i64| format!("{n} element{}", if n == 1 { "" } else { "s" });
        Poll::Ready(match (next, self.expected) {
            (None, INFINITE) => Err(err!(
                FailedPrecondition,
                "Input dataset was expected to contain an infinite number of elements but contained only {}.",
                elements(self.seen)
            )),
            (None, expected) if self.seen != expected => Err(err!(
                FailedPrecondition,
                "Input dataset was expected to contain {} but contained only {}.",
                elements(expected),
                elements(self.seen)
            )),
            (Some(_), expected) if expected != INFINITE && self.seen > expected => Err(err!(
                FailedPrecondition,
                "Input dataset was expected to contain {} but contained at least {}.",
                elements(expected),
                elements(self.seen)
            )),
            (next, _) => Ok(next),
        })
    }
}

/// `IgnoreErrorsDataset`: drops elements whose computation fails.
pub(crate) struct IgnoreErrorsDataset;

fn ignore_errors(init: &KernelInit<'_>) -> Result<AnyKernel> {
    transformation(init, |_, input, spec| input.then(spec, IgnoreErrorsDataset))
}

impl Transform for IgnoreErrorsDataset {
    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        let input = input.iterate(scope)?;
        Ok(Box::new(IgnoreErrorsIterator { input, yield_budget: YieldBudget::default() }))
    }
}

struct IgnoreErrorsIterator {
    input: Box<dyn Iterate>,
    yield_budget: YieldBudget,
}

impl Iterate for IgnoreErrorsIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        loop {
            match ready!(self.input.poll_next(cx)) {
                Err(e) if e.code() != Code::Cancelled => ready!(self.yield_budget.poll(cx)),
                next => return Poll::Ready(next),
            }
        }
    }
}
