//! `UniqueDataset` and `SamplingDataset`.

use std::collections::HashSet;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Charge, DType, Result, Tensor, bail, ensure};

use super::dataset::{Iterate, Next, Source, Transform, YieldBudget, transformation};
use super::scope::Scope;
use super::seeds::{SeedGenerator, input_seeds};
use crate::math::random::distributions::unit_f32;
use crate::math::random::philox::{Philox, Samples};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("UniqueDataset", shape::scalar),
        OpDef::new("ExperimentalUniqueDataset", shape::scalar),
        OpDef::new("SamplingDataset", shape::scalar),
    ],
    kernels: &[
        KernelSpec { op: "UniqueDataset", create: unique, ..KernelSpec::CPU },
        KernelSpec { op: "ExperimentalUniqueDataset", create: unique, ..KernelSpec::CPU },
        KernelSpec { op: "SamplingDataset", create: sampling, ..KernelSpec::CPU },
    ],
};

/// `UniqueDataset`: drops elements that occurred before.
struct UniqueDataset;

fn unique(init: &KernelInit<'_>) -> Result<AnyKernel> {
    transformation(init, |_, input, spec| {
        let dtypes = &input.spec().dtypes;
        ensure!(
            matches!(**dtypes, [DType::Int32 | DType::Int64 | DType::String]),
            InvalidArgument,
            "UniqueDataset only supports inputs with a single int32, int64 or string component"
        );
        input.then(spec, UniqueDataset)
    })
}

impl Transform for UniqueDataset {
    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(UniqueIterator {
            input: input.iterate(scope)?,
            seen: HashSet::new(),
            charges: Vec::new(),
            scope: scope.clone(),
            yield_budget: YieldBudget::default(),
        }))
    }
}

struct UniqueIterator {
    input: Box<dyn Iterate>,
    seen: HashSet<Vec<u8>>,
    /// Charges for the set of seen elements.
    charges: Vec<Charge>,
    scope: Arc<Scope>,
    yield_budget: YieldBudget,
}

/// A byte encoding of an element that is different for different contents.
fn content(element: &[Tensor]) -> Result<Vec<u8>> {
    let [tensor] = element else {
        bail!(InvalidArgument, "an element has {} components, not one", element.len());
    };
    let mut bytes = Vec::new();
    match tensor.dtype() {
        DType::Int32 => {
            tensor.as_slice::<i32>()?.iter().for_each(|x| bytes.extend(x.to_le_bytes()));
        }
        DType::Int64 => {
            tensor.as_slice::<i64>()?.iter().for_each(|x| bytes.extend(x.to_le_bytes()));
        }
        DType::String => {
            for text in tensor.strings()? {
                bytes.extend((text.len() as u64).to_le_bytes());
                bytes.extend_from_slice(text);
            }
        }
        other => bail!(InvalidArgument, "UniqueDataset does not support elements of dtype {other}"),
    }
    Ok(bytes)
}

impl Iterate for UniqueIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        /// Bytes charged per entry besides the content.
        const ENTRY_BYTES: usize = 64;
        loop {
            ready!(self.yield_budget.poll(cx));
            let Some(element) = ready!(self.input.poll_next(cx))? else {
                return Poll::Ready(Ok(None));
            };
            let content = content(&element)?;
            if self.seen.contains(&content) {
                continue;
            }
            self.charges.push(Charge::new(&self.scope.budget, content.len() + ENTRY_BYTES)?);
            self.seen.insert(content);
            return Poll::Ready(Ok(Some(element)));
        }
    }
}

/// `SamplingDataset`: keeps each element with a probability.
struct SamplingDataset {
    rate: f32,
    seeds: SeedGenerator,
}

fn sampling(init: &KernelInit<'_>) -> Result<AnyKernel> {
    transformation(init, |ctx, input, spec| {
        let rate = ctx.input(1)?;
        ensure!(rate.num_elements() == 1, InvalidArgument, "rate must be a scalar");
        let (seed, seed2) = input_seeds(ctx, 2)?;
        let seeds = SeedGenerator::Fixed(seed, seed2);
        input.then(spec, SamplingDataset { rate: rate.scalar_value()?, seeds })
    })
}

impl Transform for SamplingDataset {
    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        let (seed, seed2) = self.seeds.generate();
        Ok(Box::new(SamplingIterator {
            input: input.iterate(scope)?,
            rate: self.rate,
            samples: Samples::new(Philox::from_seeds(seed, seed2)),
            yield_budget: YieldBudget::default(),
        }))
    }
}

struct SamplingIterator {
    input: Box<dyn Iterate>,
    rate: f32,
    samples: Samples,
    yield_budget: YieldBudget,
}

impl Iterate for SamplingIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        loop {
            ready!(self.yield_budget.poll(cx));
            let Some(element) = ready!(self.input.poll_next(cx))? else {
                return Poll::Ready(Ok(None));
            };
            if unit_f32(self.samples.next_u32()) < self.rate {
                return Poll::Ready(Ok(Some(element)));
            }
        }
    }
}
