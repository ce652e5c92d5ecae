//! `ParseExampleDataset`: batches of serialized examples, parsed.

use std::sync::Arc;

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Budget, Result, Tensor, bail};

use super::call::Function;
use super::dataset::transformation;
use super::mapped::{MapDataset, checked_calls};
use crate::parsing::example::ExampleParser;
use crate::sparse::ragged_variant::Ragged;
use crate::sparse::serialize::as_variants;

pub(crate) static FAMILY: Family = Family {
    ops: &[PARSE_EXAMPLE_DATASET, EXPERIMENTAL_PARSE_EXAMPLE_DATASET, PARSE_EXAMPLE_DATASET_V2],
    kernels: &[
        KernelSpec { op: "ParseExampleDataset", create: parse, ..KernelSpec::CPU },
        KernelSpec { op: "ExperimentalParseExampleDataset", create: parse, ..KernelSpec::CPU },
        KernelSpec { op: "ParseExampleDatasetV2", create: parse, ..KernelSpec::CPU },
    ],
};

const PARSE_EXAMPLE_DATASET: OpDef = OpDef::new("ParseExampleDataset", shape::scalar);

const EXPERIMENTAL_PARSE_EXAMPLE_DATASET: OpDef =
    OpDef { name: "ExperimentalParseExampleDataset", ..PARSE_EXAMPLE_DATASET };

const PARSE_EXAMPLE_DATASET_V2: OpDef =
    OpDef { name: "ParseExampleDatasetV2", ..PARSE_EXAMPLE_DATASET };

fn parse(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let parser = Arc::new(ExampleParser::new(init)?);
    let node = init.node.name.clone();
    transformation(init, move |ctx, input, spec| {
        let calls = checked_calls(ctx.scalar_int(1, "num_parallel_calls")?)?;
        let defaults = ctx.input_range("dense_defaults")?;
        let defaults: Vec<Tensor> =
            defaults.map(|i| ctx.input(i).cloned()).collect::<Result<_>>()?;
        parser.check_defaults(&defaults)?;
        let parser = parser.clone();
        let function = Function::from_closure(Box::new(move |step, mut element: Vec<Tensor>| {
            let (Some(serialized), true) = (element.pop(), element.is_empty()) else {
                bail!(InvalidArgument, "examples are elements of one component");
            };
            components(&parser, &parser.parse(serialized, &defaults, step)?, step.budget())
        }));
        let (calls, node) = (Some(calls), node.clone());
        input.then(spec, MapDataset { function, preserves_cardinality: true, calls, node })
    })
}

/// One component per feature, in the order of their keys; sparse and ragged features are variants.
fn components(
    parser: &ExampleParser,
    parts: &[Tensor],
    budget: &Arc<Budget>,
) -> Result<Vec<Tensor>> {
    let [sparse, dense, ragged] = parser.counts();
    let part = |i: usize| parts[i].clone();
    let mut features = Vec::with_capacity(sparse + dense + ragged);
    for s in 0..sparse {
        features.push(as_variants(vec![part(s), part(sparse + s), part(2 * sparse + s)], budget)?);
    }
    features.extend((0..dense).map(|d| part(3 * sparse + d)));
    for r in 0..ragged {
        let at = 3 * sparse + dense + r;
        features.push(Ragged::of_rows(part(at + ragged), part(at))?.into_tensor()?);
    }
    let mut order: Vec<usize> = (0..features.len()).collect();
    order.sort_by_key(|&i| parser.key(i));
    Ok(order.into_iter().map(|i| features[i].clone()).collect())
}
