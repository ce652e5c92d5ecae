//! `FlatMapDataset` and `InterleaveDataset`.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Charge, Result, ensure};

use super::call::{Call, Function, FunctionAttr};
use super::dataset::{Iterate, Next, Source, Transform, YieldBudget, transformation};
use super::element::Element;
use super::mapped::{at_element, checked_calls};
use super::prefetch;
use super::scope::Scope;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        FLAT_MAP_DATASET,
        INTERLEAVE_DATASET,
        PARALLEL_INTERLEAVE_DATASET,
        EXPERIMENTAL_PARALLEL_INTERLEAVE_DATASET,
        LEGACY_PARALLEL_INTERLEAVE_DATASET_V2,
        PARALLEL_INTERLEAVE_DATASET_V2,
        PARALLEL_INTERLEAVE_DATASET_V3,
        PARALLEL_INTERLEAVE_DATASET_V4,
    ],
    kernels: &[
        KernelSpec { op: "FlatMapDataset", create: flat_map, ..KernelSpec::CPU },
        KernelSpec { op: "InterleaveDataset", create: interleave, ..KernelSpec::CPU },
        KernelSpec { op: "ParallelInterleaveDataset", create: interleave, ..KernelSpec::CPU },
        KernelSpec {
            op: "ExperimentalParallelInterleaveDataset",
            create: interleave,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "LegacyParallelInterleaveDatasetV2",
            create: interleave,
            ..KernelSpec::CPU
        },
        KernelSpec { op: "ParallelInterleaveDatasetV2", create: interleave, ..KernelSpec::CPU },
        KernelSpec { op: "ParallelInterleaveDatasetV3", create: interleave, ..KernelSpec::CPU },
        KernelSpec { op: "ParallelInterleaveDatasetV4", create: interleave, ..KernelSpec::CPU },
    ],
};

const FLAT_MAP_DATASET: OpDef = OpDef::new("FlatMapDataset", shape::scalar);

const INTERLEAVE_DATASET: OpDef = OpDef { name: "InterleaveDataset", ..FLAT_MAP_DATASET };

const PARALLEL_INTERLEAVE_DATASET: OpDef =
    OpDef { name: "ParallelInterleaveDataset", ..FLAT_MAP_DATASET };

const EXPERIMENTAL_PARALLEL_INTERLEAVE_DATASET: OpDef =
    OpDef { name: "ExperimentalParallelInterleaveDataset", ..PARALLEL_INTERLEAVE_DATASET };

const LEGACY_PARALLEL_INTERLEAVE_DATASET_V2: OpDef =
    OpDef { name: "LegacyParallelInterleaveDatasetV2", ..PARALLEL_INTERLEAVE_DATASET_V3 };

const PARALLEL_INTERLEAVE_DATASET_V2: OpDef =
    OpDef::new("ParallelInterleaveDatasetV2", shape::scalar);

const PARALLEL_INTERLEAVE_DATASET_V3: OpDef =
    OpDef { name: "ParallelInterleaveDatasetV3", ..PARALLEL_INTERLEAVE_DATASET_V2 };

const PARALLEL_INTERLEAVE_DATASET_V4: OpDef =
    OpDef { name: "ParallelInterleaveDatasetV4", ..PARALLEL_INTERLEAVE_DATASET_V3 };

/// `InterleaveDataset`: interleaves `cycle_length` datasets, with `block_length` consecutive
/// elements of each.
#[derive(Clone)]
pub(crate) struct InterleaveDataset {
    pub(crate) function: Arc<Function>,
    pub(crate) cycle: usize,
    pub(crate) block: u64,
    /// Number of elements of each open dataset that are prefetched.
    pub(crate) ahead: usize,
    /// Node name for error messages.
    pub(crate) node: Arc<str>,
}

fn flat_map(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let function = FunctionAttr::of(init.attrs(), "f", "other_arguments")?;
    let node = init.node.name.clone();
    transformation(init, move |ctx, input, spec| {
        let (function, node) = (function.bind(ctx)?, node.clone());
        input.then(spec, InterleaveDataset { function, cycle: 1, block: 1, ahead: 0, node })
    })
}

/// An int64 input, by name.
fn named(ctx: &KernelContext<'_>, name: &str) -> Result<Option<i64>> {
    match ctx.input_range(name) {
        Ok(range) => ctx.scalar_int(range.start, name).map(Some),
        Err(_) => Ok(None),
    }
}

fn interleave(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let function = FunctionAttr::of(init.attrs(), "f", "other_arguments")?;
    let node = init.node.name.clone();
    let is_parallel = init.node.op.name != "InterleaveDataset";
    transformation(init, move |ctx, input, spec| {
        let cycle = named(ctx, "cycle_length")?.unwrap_or(1);
        ensure!(
            cycle > 0 || (is_parallel && cycle == -1),
            InvalidArgument,
            "cycle_length must be greater than zero."
        );
        let cycle = usize::try_from(cycle).unwrap_or(ctx.step().background().threads());
        let block = named(ctx, "block_length")?.unwrap_or(1);
        ensure!(block > 0, InvalidArgument, "block_length must be greater than zero.");
        if let Some(calls) = named(ctx, "num_parallel_calls")? {
            checked_calls(calls)?;
        }
        let buffered = named(ctx, "buffer_output_elements")?;
        for count in [buffered, named(ctx, "prefetch_input_elements")?].into_iter().flatten() {
            ensure!(
                count >= -1,
                InvalidArgument,
                "buffer_output_elements and prefetch_input_elements must not be negative."
            );
        }
        let ahead = match (is_parallel, buffered) {
            (false, _) => 0,
            (true, Some(n)) if n > 0 => n as usize,
            (true, _) => usize::try_from(block).unwrap_or(usize::MAX),
        };
        let (function, node) = (function.bind(ctx)?, node.clone());
        let block = block.unsigned_abs();
        input.then(spec, InterleaveDataset { function, cycle, block, ahead, node })
    })
}

impl Transform for InterleaveDataset {
    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(InterleaveIterator {
            input: Some(input.iterate(scope)?),
            how: self.clone(),
            scope: scope.clone(),
            open: Vec::new(),
            open_count: 0,
            at: 0,
            taken: 0,
            call: None,
            count: 0,
            yield_budget: YieldBudget::default(),
        }))
    }
}

/// An open dataset of the cycle.
struct OpenDataset {
    elements: Box<dyn Iterate>,
    _charge: Charge,
}

struct InterleaveIterator {
    input: Option<Box<dyn Iterate>>,
    how: InterleaveDataset,
    scope: Arc<Scope>,
    /// Open datasets by slot of the cycle; slots that were never used are missing.
    open: Vec<Option<OpenDataset>>,
    open_count: usize,
    /// The current slot.
    at: usize,
    /// Elements drawn from the current slot in this block.
    taken: u64,
    /// The call that makes the dataset for the current slot.
    call: Option<Call>,
    /// Number of datasets opened.
    count: u64,
    yield_budget: YieldBudget,
}

impl InterleaveIterator {
    fn next_place(&mut self) {
        self.taken = 0;
        self.at = (self.at + 1) % self.how.cycle;
        // The input has ended, so slots that were never used stay empty.
        if self.input.is_none() && self.at >= self.open.len() {
            self.at = 0;
        }
    }

    /// Opens the dataset that a call returned.
    fn open(&mut self, returned: Result<Element>) -> Result<()> {
        let number = self.count;
        self.count += 1;
        let opened = returned.and_then(|returned| {
            ensure!(
                returned.len() == 1,
                InvalidArgument,
                "The function must return a single dataset, it returned {} components",
                returned.len()
            );
            Source::of(&returned[0])?.iterate(&self.scope)
        });
        let mut opened = opened.map_err(|e| at_element(e, &self.how.node, number))?;
        if self.how.ahead > 0 {
            opened = prefetch::ahead(opened, self.how.ahead, &self.scope);
        }
        /// Bytes charged for an open dataset besides its own elements.
        const OPEN_BYTES: usize = 1024;
        let charge = Charge::new(&self.scope.budget, OPEN_BYTES)?;
        if self.at >= self.open.len() {
            self.open.resize_with(self.at + 1, || None);
        }
        self.open[self.at] = Some(OpenDataset { elements: opened, _charge: charge });
        self.open_count += 1;
        Ok(())
    }
}

impl Iterate for InterleaveIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        loop {
            if let Some(Some(current)) = self.open.get_mut(self.at) {
                if let Some(element) = ready!(current.elements.poll_next(cx))? {
                    self.taken += 1;
                    if self.taken == self.how.block {
                        self.next_place();
                    }
                    return Poll::Ready(Ok(Some(element)));
                }
                self.open[self.at] = None;
                self.open_count -= 1;
                self.next_place();
                ready!(self.yield_budget.poll(cx));
            } else if let Some(call) = &mut self.call {
                let returned = ready!(call.poll(cx));
                self.call = None;
                self.open(returned)?;
            } else if let Some(input) = &mut self.input {
                match ready!(input.poll_next(cx))? {
                    Some(element) => self.call = Some(self.how.function.call(&self.scope, element)),
                    None => self.input = None,
                }
            } else if self.open_count == 0 {
                return Poll::Ready(Ok(None));
            } else {
                self.next_place();
            }
        }
    }
}
