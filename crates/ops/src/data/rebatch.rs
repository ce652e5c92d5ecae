//! `RebatchDataset`: batches split into batches of other sizes.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Result, Shape, Tensor, bail, ensure};

use super::batch::common_rows;
use super::dataset::{Iterate, Next, Source, Transform, YieldBudget, flag_input, transformation};
use super::element::{Element, Spec};
use super::scope::Scope;
use crate::cells::Cell;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        REBATCH_DATASET,
        EXPERIMENTAL_REBATCH_DATASET,
        OpDef::new("RebatchDatasetV2", shape::scalar),
    ],
    kernels: &[
        KernelSpec { op: "RebatchDataset", create: split, ..KernelSpec::CPU },
        KernelSpec { op: "ExperimentalRebatchDataset", create: split, ..KernelSpec::CPU },
        KernelSpec { op: "RebatchDatasetV2", create: rebatch, ..KernelSpec::CPU },
    ],
};

const REBATCH_DATASET: OpDef = OpDef::new("RebatchDataset", shape::scalar);

const EXPERIMENTAL_REBATCH_DATASET: OpDef =
    OpDef { name: "ExperimentalRebatchDataset", ..REBATCH_DATASET };

/// `RebatchDataset`: every batch is split into parts; the last part may be smaller or empty.
struct RebatchDataset {
    parts: usize,
}

fn split(init: &KernelInit<'_>) -> Result<AnyKernel> {
    transformation(init, |ctx, input, spec| {
        let parts = ctx.scalar_int(1, "num_replicas")?;
        ensure!(parts > 0, InvalidArgument, "num_replicas must be greater than zero.");
        input.then(spec, RebatchDataset { parts: usize::try_from(parts).unwrap_or(usize::MAX) })
    })
}

impl Transform for RebatchDataset {
    fn cardinality(&self, input: &Source) -> i64 {
        match input.cardinality() {
            n if n < 0 => n,
            n => n.saturating_mul(i64::try_from(self.parts).unwrap_or(i64::MAX)),
        }
    }

    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        let input = input.iterate(scope)?;
        let scope = scope.clone();
        Ok(Box::new(RebatchIterator { input, parts: self.parts, current: None, scope }))
    }
}

struct RebatchIterator {
    input: Box<dyn Iterate>,
    parts: usize,
    /// The current batch, its number of rows, and the next part.
    current: Option<(Element, usize, usize)>,
    scope: Arc<Scope>,
}

impl Iterate for RebatchIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        if self.current.is_none() {
            let Some(batch) = ready!(self.input.poll_next(cx))? else {
                return Poll::Ready(Ok(None));
            };
            let rows = common_rows(&batch)?;
            self.current = Some((batch, rows, 0));
        }
        let Some((batch, rows, part)) = &mut self.current else { return Poll::Ready(Ok(None)) };
        let size = rows.div_ceil(self.parts);
        let from = part.saturating_mul(size).min(*rows);
        let to = from.saturating_add(size).min(*rows);
        let budget = Some(&self.scope.budget);
        let cut =
            batch.iter().map(|t| t.rows(from, to - from, budget)).collect::<Result<Element>>();
        *part += 1;
        if *part == self.parts {
            self.current = None;
        }
        Poll::Ready(cut.map(Some))
    }
}

/// `RebatchDatasetV2`: rows of all batches, regrouped into batches of the given sizes in turn.
struct RebatchDatasetV2 {
    sizes: Arc<[usize]>,
    drops_remainder: bool,
    spec: Spec,
}

fn rebatch(init: &KernelInit<'_>) -> Result<AnyKernel> {
    transformation(init, |ctx, input, spec| {
        let rank = ctx.input(1)?.rank();
        ensure!(rank <= 1, InvalidArgument, "batch_sizes must be a scalar or a vector.");
        let size = |size: i64| match usize::try_from(size) {
            Ok(size) => Ok(size),
            Err(_) => bail!(InvalidArgument, "batch_sizes must not be negative, one is {size}"),
        };
        let sizes: Arc<[usize]> =
            ctx.ints(1, "batch_sizes")?.into_iter().map(size).collect::<Result<_>>()?;
        ensure!(!sizes.is_empty(), InvalidArgument, "batch_sizes must not be empty.");
        let drops_remainder = flag_input(ctx, 2, "drop_remainder")?;
        input.then(spec.clone(), RebatchDatasetV2 { sizes, drops_remainder, spec })
    })
}

impl Transform for RebatchDatasetV2 {
    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(RebatchIteratorV2 {
            input: Some(input.iterate(scope)?),
            sizes: self.sizes.clone(),
            turn: 0,
            drops_remainder: self.drops_remainder,
            spec: self.spec.clone(),
            batch: Element::new(),
            used: 0,
            rows: 0,
            parts: Vec::new(),
            gathered: 0,
            scope: scope.clone(),
            yield_budget: YieldBudget::default(),
        }))
    }
}

struct RebatchIteratorV2 {
    /// `None` after its end.
    input: Option<Box<dyn Iterate>>,
    sizes: Arc<[usize]>,
    /// Index of the current batch size.
    turn: usize,
    drops_remainder: bool,
    spec: Spec,
    /// The rest of the input batch.
    batch: Element,
    used: usize,
    rows: usize,
    /// Parts of the output batch, and their number of rows.
    parts: Vec<Element>,
    gathered: usize,
    scope: Arc<Scope>,
    yield_budget: YieldBudget,
}

impl RebatchIteratorV2 {
    /// Collects rows until there are `wanted` of them or the input ends.
    fn gather(&mut self, cx: &mut Context<'_>, wanted: usize) -> Poll<Result<()>> {
        while self.gathered < wanted {
            if self.used == self.rows {
                ready!(self.yield_budget.poll(cx));
                let Some(input) = &mut self.input else { break };
                let Some(batch) = ready!(input.poll_next(cx))? else {
                    self.input = None;
                    break;
                };
                let rows = common_rows(&batch)?;
                (self.batch, self.used, self.rows) = (batch, 0, rows);
                continue;
            }
            let count = (wanted - self.gathered).min(self.rows - self.used);
            let part =
                self.batch.iter().map(|t| t.rows(self.used, count, Some(&self.scope.budget)));
            self.parts.push(part.collect::<Result<Element>>()?);
            self.used += count;
            self.gathered += count;
        }
        Poll::Ready(Ok(()))
    }

    /// A batch of zero rows.
    fn empty_batch(&self) -> Result<Element> {
        let components = self.spec.dtypes.iter().zip(self.spec.shapes.iter()).enumerate();
        components
            .map(|(i, (&dtype, declared))| {
                let mut dims = match (self.batch.get(i), declared.dims()) {
                    (Some(last), _) => last.shape().dims().to_vec(),
                    (None, Some(dims)) => dims.iter().map(|d| d.unwrap_or(0)).collect(),
                    (None, None) => vec![0],
                };
                match dims.first_mut() {
                    Some(first) => *first = 0,
                    None => dims.push(0),
                }
                Tensor::blank_in(dtype, Shape::new(&dims)?, Some(&self.scope.budget))
            })
            .collect()
    }

    fn joined(&mut self) -> Result<Element> {
        let parts = std::mem::take(&mut self.parts);
        self.gathered = 0;
        match parts.as_slice() {
            [] => self.empty_batch(),
            [only] => Ok(only.clone()),
            [first, ..] => (0..first.len()).map(|i| self.join(&parts, i)).collect(),
        }
    }

    /// Concatenates component `i` of all parts.
    fn join(&self, parts: &[Element], i: usize) -> Result<Tensor> {
        let first = &parts[0][i];
        let mut rows = 0;
        for part in parts {
            ensure!(
                part.len() > i
                    && part[i].dtype() == first.dtype()
                    && part[i].shape().dims()[1..] == first.shape().dims()[1..],
                InvalidArgument,
                "Cannot join batches with different shapes in component {i}: {} and others.",
                first.shape()
            );
            rows += part[i].shape()[0];
        }
        let mut dims = first.shape().dims().to_vec();
        dims[0] = rows;
        let shape = Shape::new(&dims)?;
        let mut joined = Tensor::blank_in(first.dtype(), shape, Some(&self.scope.budget))?;
        with_cell!(first.dtype(), C => {
            let mut target = <C as Cell>::view_mut(&mut joined)?;
            for part in parts {
                let source = <C as Cell>::view(&part[i])?;
                let (head, rest) = target.split_at_mut(source.len());
                head.clone_from_slice(source);
                target = rest;
            }
        });
        Ok(joined)
    }
}

impl Iterate for RebatchIteratorV2 {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        if self.input.is_none() && self.used == self.rows && self.parts.is_empty() {
            return Poll::Ready(Ok(None));
        }
        let wanted = self.sizes[self.turn];
        if let Err(e) = ready!(self.gather(cx, wanted)) {
            return Poll::Ready(Err(e));
        }
        self.turn = (self.turn + 1) % self.sizes.len();
        let is_short = self.gathered < wanted;
        if is_short && (self.gathered == 0 || self.drops_remainder) {
            self.parts.clear();
            self.gathered = 0;
            return Poll::Ready(Ok(None));
        }
        Poll::Ready(self.joined().map(Some))
    }
}
