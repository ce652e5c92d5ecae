//! `MapStage` and `OrderedMapStage`: staging areas by key.
//!
//! Without a requested key, the `OrderedMap...` ops take the smallest one. The others may take any
//! key; they also take the smallest, so that runs are reproducible.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;
use thalweg_graph::{OpDef, ShapeContext, Work, shape};
use thalweg_kernel::{
    AnyKernel, AsyncCall, Family, KernelInit, KernelSpec, Outputs, ResourceManager, StepContext,
    Value,
};
use thalweg_tensor::{Charge, Error, PartialShape, Resource, Result, Tensor, bail, ensure, err};

use super::access::size_of_state;
use super::gate::{self, Answer, Gate, Gated, Lane, Machine, Progress, tensors, update};
use super::staging::{Limits, total_bytes};
use super::store::Components;
use crate::CHEAP;
use crate::state::handle::ResourceName;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        MAP_STAGE,
        MAP_PEEK,
        MAP_UNSTAGE,
        MAP_UNSTAGE_NO_KEY,
        MAP_SIZE,
        MAP_INCOMPLETE_SIZE,
        MAP_CLEAR,
        OpDef { name: "OrderedMapStage", ..MAP_STAGE },
        OpDef { name: "OrderedMapPeek", ..MAP_PEEK },
        OpDef { name: "OrderedMapUnstage", ..MAP_UNSTAGE },
        OpDef { name: "OrderedMapUnstageNoKey", ..MAP_UNSTAGE_NO_KEY },
        OpDef { name: "OrderedMapSize", ..MAP_SIZE },
        OpDef { name: "OrderedMapIncompleteSize", ..MAP_INCOMPLETE_SIZE },
        OpDef { name: "OrderedMapClear", ..MAP_CLEAR },
    ],
    kernels: &[
        KernelSpec { op: "MapStage", create: stage, ..KernelSpec::CPU },
        KernelSpec { op: "MapPeek", create: peek, ..KernelSpec::CPU },
        KernelSpec { op: "MapUnstage", create: unstage, ..KernelSpec::CPU },
        KernelSpec { op: "MapUnstageNoKey", create: unstage_no_key, ..KernelSpec::CPU },
        KernelSpec { op: "MapSize", create: size, ..CHEAP },
        KernelSpec { op: "MapIncompleteSize", create: incomplete_size, ..CHEAP },
        KernelSpec { op: "MapClear", create: clear, ..KernelSpec::CPU },
        KernelSpec { op: "OrderedMapStage", create: stage, ..KernelSpec::CPU },
        KernelSpec { op: "OrderedMapPeek", create: peek, ..KernelSpec::CPU },
        KernelSpec { op: "OrderedMapUnstage", create: unstage, ..KernelSpec::CPU },
        KernelSpec { op: "OrderedMapUnstageNoKey", create: unstage_no_key, ..KernelSpec::CPU },
        KernelSpec { op: "OrderedMapSize", create: size, ..CHEAP },
        KernelSpec { op: "OrderedMapIncompleteSize", create: incomplete_size, ..CHEAP },
        KernelSpec { op: "OrderedMapClear", create: clear, ..KernelSpec::CPU },
    ],
};

const MAP_STAGE: OpDef = OpDef::new("MapStage", shape::unknown).with_work(Work::none);

const MAP_PEEK: OpDef = OpDef { name: "MapPeek", shape: shape::unknown, ..MAP_STAGE };

const MAP_UNSTAGE: OpDef = OpDef { name: "MapUnstage", ..MAP_PEEK };

const MAP_UNSTAGE_NO_KEY: OpDef = OpDef { name: "MapUnstageNoKey", shape: key_shape, ..MAP_PEEK };

fn key_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::scalar());
    Ok(())
}

const MAP_SIZE: OpDef = OpDef { name: "MapSize", shape: shape::scalar, ..MAP_STAGE };

const MAP_INCOMPLETE_SIZE: OpDef = OpDef { name: "MapIncompleteSize", ..MAP_SIZE };

const MAP_CLEAR: OpDef = OpDef { name: "MapClear", shape: shape::unknown, ..MAP_SIZE };

/// Lane of complete tuples, which wait for capacity in FIFO order.
const PUTS: usize = 0;
/// Lane of partial tuples, which only need memory.
const PARTS: usize = 1;
const GETS: usize = 2;

type Indices = SmallVec<[usize; 4]>;

/// A staging area by key; ordered and unordered areas of one name are distinct.
struct MapStaging<const ORDERED: bool> {
    limits: Limits,
    /// Number of tensors in a complete tuple.
    width: usize,
    gate: Arc<Gate<Staged>>,
}

impl<const ORDERED: bool> Resource for MapStaging<ORDERED> {
    fn kind(&self) -> &'static str {
        if ORDERED { "OrderedMapStagingArea" } else { "MapStagingArea" }
    }

    fn has_handle(&self) -> bool {
        false
    }
}

impl<const ORDERED: bool> Gated for MapStaging<ORDERED> {
    type Machine = Staged;

    fn gate(&self) -> &Gate<Staged> {
        &self.gate
    }
}

/// The tuple of a key.
struct Entry {
    parts: Vec<Option<Tensor>>,
    _charge: Charge,
}

struct Staged {
    limits: Limits,
    width: usize,
    entries: BTreeMap<i64, Entry>,
    incomplete: BTreeMap<i64, Entry>,
    bytes: usize,
}

enum Request {
    Put { key: i64, indices: Indices, values: Components },
    Get { key: Option<i64>, indices: Indices, is_peek: bool },
}

impl Machine for Staged {
    type Request = Request;
    const LANES: &'static [Lane] = &[Lane::Ordered, Lane::Free, Lane::Free];

    fn advance(&mut self, request: &mut Request, step: &StepContext) -> Progress {
        match request {
            Request::Put { key, indices, values } => self.put(*key, indices, values, step),
            Request::Get { key, indices, is_peek } => self.get(*key, indices, *is_peek),
        }
    }

    fn withdraw(&mut self, _: Request) -> Error {
        err!(Cancelled, "the staging area was dropped")
    }
}

impl Staged {
    fn put(
        &mut self,
        key: i64,
        indices: &[usize],
        values: &mut Components,
        step: &StepContext,
    ) -> Progress {
        let bytes = self.bytes.saturating_add(total_bytes(&*values));
        let is_whole = indices.len() == self.width;
        let has_room = !is_whole || self.limits.allow_count(self.entries.len() + 1);
        if !has_room || !self.limits.allow_bytes(bytes) {
            return Progress::Waits;
        }
        let values = std::mem::take(values);
        if let Err(e) = values.iter().try_for_each(|v| v.ensure_charged(step.state_budget())) {
            return Progress::Done(Err(e));
        }
        let result = if is_whole {
            self.put_whole(key, values, step)
        } else {
            self.put_parts(key, indices, values, step)
        };
        Progress::Done(result.map(|()| Outputs::new()))
    }

    fn entry(&self, step: &StepContext) -> Result<Entry> {
        let bytes = size_of::<Entry>() + 64 + self.width * size_of::<Option<Tensor>>();
        let _charge = Charge::new(step.state_budget(), bytes)?;
        Ok(Entry { parts: vec![None; self.width], _charge })
    }

    fn put_whole(&mut self, key: i64, values: Components, step: &StepContext) -> Result<()> {
        let mut entry = self.entry(step)?;
        let bytes = total_bytes(&values);
        entry.parts = values.into_iter().map(Some).collect();
        self.insert(key, entry, bytes);
        Ok(())
    }

    /// Components that a key already has are an error.
    fn insert(&mut self, key: i64, entry: Entry, bytes: usize) {
        if let std::collections::btree_map::Entry::Vacant(vacant) = self.entries.entry(key) {
            vacant.insert(entry);
            self.bytes = self.bytes.saturating_add(bytes);
        }
    }

    fn put_parts(
        &mut self,
        key: i64,
        indices: &[usize],
        values: Components,
        step: &StepContext,
    ) -> Result<()> {
        let present = self.incomplete.get(&key);
        for &index in indices {
            self.check_index(key, index)?;
            ensure!(
                present.is_none_or(|entry| entry.parts[index].is_none()),
                InvalidArgument,
                "The tensor for index '{index}' for key '{key}' was already initialized '{}'.",
                self.width
            );
        }
        if present.is_none() {
            let entry = self.entry(step)?;
            self.incomplete.insert(key, entry);
        }
        self.bytes = self.bytes.saturating_add(total_bytes(&values));
        let Some(entry) = self.incomplete.get_mut(&key) else { return Ok(()) };
        for (&index, value) in indices.iter().zip(values) {
            entry.parts[index] = Some(value);
        }
        if entry.parts.iter().all(Option::is_some)
            && let Some(entry) = self.incomplete.remove(&key)
        {
            let bytes = total_bytes(entry.parts.iter().flatten());
            self.bytes = self.bytes.saturating_sub(bytes);
            self.insert(key, entry, bytes);
        }
        Ok(())
    }

    fn check_index(&self, key: i64, index: usize) -> Result<()> {
        ensure!(
            index < self.width,
            InvalidArgument,
            "Index '{index}' for key '{key}' was out of bounds '{}'.",
            self.width
        );
        Ok(())
    }

    fn get(&mut self, key: Option<i64>, indices: &[usize], is_peek: bool) -> Progress {
        let found = match key {
            Some(key) => self.entries.contains_key(&key).then_some(key),
            None => self.entries.keys().next().copied(),
        };
        let Some(found) = found else { return Progress::Waits };
        Progress::Done(self.take(found, indices, is_peek).map(|mut outputs| {
            if key.is_none() {
                outputs.insert(0, Value::Tensor(Tensor::scalar(found)));
            }
            outputs
        }))
    }

    fn take(&mut self, key: i64, indices: &[usize], is_peek: bool) -> Result<Outputs> {
        indices.iter().try_for_each(|&index| self.check_index(key, index))?;
        let Some(entry) = self.entries.get_mut(&key) else { return Ok(Outputs::new()) };
        let missing = indices.iter().find(|&&index| entry.parts[index].is_none());
        if let Some(index) = missing {
            bail!(
                InvalidArgument,
                "Tensor at index '{index}' for key '{key}' has already been removed."
            );
        }
        let mut outputs = Outputs::new();
        for &index in indices {
            let part = &mut entry.parts[index];
            let tensor = if is_peek { part.clone() } else { part.take() };
            if let Some(tensor) = tensor {
                if !is_peek {
                    self.bytes = self.bytes.saturating_sub(tensor.size_bytes());
                }
                outputs.push(Value::Tensor(tensor));
            }
        }
        if entry.parts.iter().all(Option::is_none) {
            self.entries.remove(&key);
        }
        Ok(outputs)
    }
}

/// Finds or creates the staging area of a node.
struct NodeStagingArea {
    home: ResourceName,
    limits: Limits,
    width: usize,
}

impl NodeStagingArea {
    fn new(init: &KernelInit<'_>) -> Result<NodeStagingArea> {
        let width = init.attrs().dtypes("dtypes")?.len();
        Ok(NodeStagingArea {
            home: ResourceName::of(init, true)?,
            limits: Limits::new(init)?,
            width,
        })
    }

    fn find<const ORDERED: bool>(
        &self,
        resources: &ResourceManager,
    ) -> Result<Arc<MapStaging<ORDERED>>> {
        let (limits, width) = (self.limits, self.width);
        self.home.find_or_create(resources, || {
            let (entries, incomplete) = (BTreeMap::new(), BTreeMap::new());
            let staged = Staged { limits, width, entries, incomplete, bytes: 0 };
            Ok(MapStaging { limits, width, gate: Gate::new(staged) })
        })
    }
}

/// The kernel of the ordered or unordered op.
fn either(
    init: &KernelInit<'_>,
    ordered: fn(&KernelInit<'_>) -> Result<AnyKernel>,
    other: fn(&KernelInit<'_>) -> Result<AnyKernel>,
) -> Result<AnyKernel> {
    if init.node.op.name.starts_with("Ordered") { ordered(init) } else { other(init) }
}

fn key(call: &AsyncCall) -> Result<i64> {
    let key = call.input(0)?;
    ensure!(key.rank() == 0, InvalidArgument, "key must be a scalar, got shape {}", key.shape());
    key.scalar_value()
}

fn indices(call: &AsyncCall, input: usize) -> Result<Indices> {
    let given = call.input(input)?.as_slice::<i32>()?;
    let is_ordered = given.windows(2).all(|pair| pair[0] < pair[1]);
    ensure!(is_ordered, InvalidArgument, "Indices are not strictly ordered");
    given
        .iter()
        .map(|&index| {
            usize::try_from(index)
                .map_err(|_| err!(InvalidArgument, "Index '{index}' must not be negative"))
        })
        .collect()
}

fn stage(init: &KernelInit<'_>) -> Result<AnyKernel> {
    either(init, stage_in::<true>, stage_in::<false>)
}

fn stage_in<const ORDERED: bool>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let area = NodeStagingArea::new(init)?;
    gate::kernel(&init.node.op.name, move |call| {
        let area = area.find::<ORDERED>(call.step.resources())?;
        let (key, indices) = (key(call)?, indices(call, 1)?);
        let values = tensors(call, 2)?;
        ensure!(
            indices.len() == values.len(),
            InvalidArgument,
            "{} values came with {} indices",
            values.len(),
            indices.len()
        );
        area.limits.check(total_bytes(&values))?;
        let lane = if indices.len() == area.width { PUTS } else { PARTS };
        if let Some(&last) = indices.last()
            && last >= area.width
        {
            bail!(
                InvalidArgument,
                "Index '{last}' for key '{key}' was out of bounds '{}'.",
                area.width
            );
        }
        Ok(Answer::After(area, lane, Request::Put { key, indices, values }))
    })
}

fn peek(init: &KernelInit<'_>) -> Result<AnyKernel> {
    either(init, |i| get_from::<true>(i, true), |i| get_from::<false>(i, true))
}

fn unstage(init: &KernelInit<'_>) -> Result<AnyKernel> {
    either(init, |i| get_from::<true>(i, false), |i| get_from::<false>(i, false))
}

/// The number of indices must be that of the node's outputs.
fn check_outputs(outputs: usize, indices: &[usize]) -> Result<()> {
    ensure!(
        indices.len() == outputs,
        Internal,
        "Mismatch of staged tensors: {} indices for {outputs} outputs",
        indices.len()
    );
    Ok(())
}

fn get_from<const ORDERED: bool>(init: &KernelInit<'_>, is_peek: bool) -> Result<AnyKernel> {
    let area = NodeStagingArea::new(init)?;
    gate::kernel(&init.node.op.name, move |call| {
        let area = area.find::<ORDERED>(call.step.resources())?;
        let (key, indices) = (Some(key(call)?), indices(call, 1)?);
        check_outputs(call.num_outputs, &indices)?;
        Ok(Answer::After(area, GETS, Request::Get { key, indices, is_peek }))
    })
}

fn unstage_no_key(init: &KernelInit<'_>) -> Result<AnyKernel> {
    either(init, get_any_from::<true>, get_any_from::<false>)
}

fn get_any_from<const ORDERED: bool>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let area = NodeStagingArea::new(init)?;
    gate::kernel(&init.node.op.name, move |call| {
        let area = area.find::<ORDERED>(call.step.resources())?;
        let indices = indices(call, 0)?;
        check_outputs(call.num_outputs - 1, &indices)?;
        Ok(Answer::After(area, GETS, Request::Get { key: None, indices, is_peek: false }))
    })
}

fn size(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let count: fn(&Staged) -> usize = |staged| staged.entries.len();
    if init.node.op.name.starts_with("Ordered") {
        return count_in::<true>(init, count);
    }
    count_in::<false>(init, count)
}

fn incomplete_size(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let count: fn(&Staged) -> usize = |staged| staged.incomplete.len();
    if init.node.op.name.starts_with("Ordered") {
        return count_in::<true>(init, count);
    }
    count_in::<false>(init, count)
}

fn count_in<const ORDERED: bool>(
    init: &KernelInit<'_>,
    count: fn(&Staged) -> usize,
) -> Result<AnyKernel> {
    let area = NodeStagingArea::new(init)?;
    AnyKernel::new(move |ctx| {
        let len = area.find::<ORDERED>(ctx.resources())?.gate.inspect(count);
        ctx.set_output(0, Tensor::scalar(size_of_state(len)))
    })
}

fn clear(init: &KernelInit<'_>) -> Result<AnyKernel> {
    either(init, clear_of::<true>, clear_of::<false>)
}

fn clear_of<const ORDERED: bool>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let area = NodeStagingArea::new(init)?;
    AnyKernel::new(move |ctx| {
        let area = area.find::<ORDERED>(ctx.resources())?;
        let gone = update(ctx, &*area, || {
            area.gate.change(|staged| {
                staged.bytes = 0;
                (std::mem::take(&mut staged.entries), std::mem::take(&mut staged.incomplete))
            })
        })?;
        drop(gone);
        Ok(())
    })
}
