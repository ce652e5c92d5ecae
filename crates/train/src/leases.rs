//! Shard leases: which worker has which samples, kept beside the variables.
//!
//! One variable, `leases`, has a row per shard: who holds it, how many of its samples have been used
//! over all epochs, and when the holder's claim ends. It is changed only under a mutex, and the row of
//! a batch in the same critical section as the update that the batch led to. So whatever dies, the
//! table says which samples are in the variables, and a checkpoint whose values are read under the
//! mutex has both. Everything is nodes of a graph: workers in other processes need nothing else.

mod shards;

use std::time::Duration;

use thalweg_graph::{NodeId, Output, Scope};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, err};

use crate::section::{Mutex, Section, check};
use crate::{Initializer, Model, Variable};
pub use shards::Shards;

/// Name of the table in graphs and checkpoints.
const TABLE: &str = "leases";
/// Columns of the table: holder, used, end of the lease.
const COLUMNS: usize = 3;
/// The holder of a shard that nobody holds; worker 0 is 1.
const NOBODY: i64 = 0;
/// The generation of variables that are being changed or set; nobody knows it. Those of a step that
/// died between its first and its last change keep it until a checkpoint is restored.
pub(crate) const NONE: i64 = 0;
/// A key that comes after all others.
const LAST: i64 = i64::MAX;
/// No lease is longer than this, so that times do not overflow.
const LEASE_MS_MAX: i64 = 1 << 40;

/// The table of a model's shards, and what is done with it.
#[derive(Clone, Debug)]
pub struct Leases {
    shards: Shards,
    table: Variable,
    generation: Output,
    mutex: Mutex,
    epochs: u64,
    lease_ms: i64,
    /// A row per worker where somebody else applies gradients: shard, used before, count.
    offers: Option<Output>,
}

/// What a worker feeds to say who it is, and what it has computed a gradient of.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// The worker's number.
    pub worker: Output,
    /// The generation of the variables that it knows.
    pub generation: Output,
    /// The shard that it holds.
    pub shard: Output,
    /// Samples of the shard that had been used before this batch.
    pub used: Output,
    /// Samples of this batch.
    pub count: Output,
}

/// A claim: tensors to feed and to fetch.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The worker that claims, fed.
    pub worker: Output,
    /// The generation that it knows, fed.
    pub generation: Output,
    /// 1 if its gradients come too late, else 0, fed: others are more likely to get on with what is
    /// furthest behind.
    pub is_late: Output,
    /// The shard that it holds now; -1 where none is to be had.
    pub shard: Output,
    /// Samples of it that have been used, over all epochs.
    pub used: Output,
    /// Samples that are still to be used in all, by anybody.
    pub left: Output,
    /// The node to run with these.
    pub done: NodeId,
}

impl Leases {
    /// A table for these shards, each to be used `epochs` times. A worker of which nothing has been
    /// heard for `lease` loses its shards.
    pub fn new(model: &Model, shards: Shards, epochs: u64, lease: Duration) -> Result<Leases> {
        let dims = [shards.count(), COLUMNS];
        let table = model.top().counter(TABLE, DType::Int64, &dims, &Initializer::Zeros)?;
        let (name, scalar) = (format!("{TABLE}/generation"), PartialShape::scalar());
        let generation = model.local(&name, &table.device, DType::Int64, &scalar, None)?;
        let mutex = Mutex::new(model, &table.device, &format!("{TABLE}/mutex"))?;
        let lease_ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX).min(LEASE_MS_MAX);
        Ok(Leases { shards, table, generation, mutex, epochs, lease_ms, offers: None })
    }

    /// Has workers say which samples they have computed gradients of, for somebody else to apply.
    pub(crate) fn with_offers(self, model: &Model, workers: usize) -> Result<Leases> {
        let shape = Shape::new(&[workers, COLUMNS])?;
        let first = |scope: &mut Scope| {
            let zeros = Tensor::zeros(DType::Int64, shape.clone())?;
            scope.constant(&zeros)
        };
        let partial = PartialShape::from(&shape);
        let name = format!("{TABLE}/offers");
        let offers = model.local(&name, self.device(), DType::Int64, &partial, Some(&first))?;
        Ok(Leases { offers: Some(offers), ..self })
    }

    /// The shards it is about.
    pub fn shards(&self) -> &Shards {
        &self.shards
    }

    /// The device that keeps the table.
    pub fn device(&self) -> &str {
        &self.table.device
    }

    /// What the table is changed under.
    pub(crate) fn mutex(&self) -> Mutex {
        self.mutex
    }

    /// Adds the tensors that a worker feeds with each batch.
    pub fn batch(&self, model: &Model) -> Result<Batch> {
        let mut at = self.beside(model, "batch");
        Ok(Batch {
            worker: fed(&mut at, "worker")?,
            generation: fed(&mut at, "generation")?,
            shard: fed(&mut at, "shard")?,
            used: fed(&mut at, "used")?,
            count: fed(&mut at, "count")?,
        })
    }

    /// Adds a claim: of the shards that nobody holds, that the worker itself holds or whose holder
    /// has not been heard of, it takes the one that is furthest behind, and returns what it held.
    /// Samples that are offered are nobody's until their round has ended.
    pub fn claim(&self, model: &Model) -> Result<Claim> {
        let mut at = self.beside(model, "claim");
        let (worker, generation) = (fed(&mut at, "worker")?, fed(&mut at, "generation")?);
        let is_late = fed(&mut at, "is_late")?;
        let mut section = self.mutex.enter(&at, &[])?;
        let known = self.check_generation(&mut section.inside, generation)?;
        section.after(&[known]);
        let at = &mut section.inside;
        let [holder, used, until] = self.columns(at)?;
        let me = holder_of(at, worker)?;
        let now = now_ms(at)?;
        let is_open = self.is_open(at, [holder, used, until], me, now)?;
        let shard = self.furthest_behind(at, used, is_open, is_late)?;
        let found = element(at, is_open, shard)?;
        let own_used = element(at, used, shard)?;
        let taken = self.take(at, (shard, found), [holder, used, until], (me, now))?;
        let none = long(at, -1)?;
        let shard = at.add("SelectV2", &[found, shard, none])?;
        let left = self.left_of(at, used)?;
        let done = section.leave("claim", &[taken])?;
        Ok(Claim { worker, generation, is_late, shard, used: own_used, left, done })
    }

    /// Of all shards a worker holds this one from now on, or none if it was not `found`.
    fn take(
        &self,
        at: &mut Model,
        (shard, found): (Output, Output),
        [holder, used, until]: [Output; COLUMNS],
        (me, now): (Output, Output),
    ) -> Result<NodeId> {
        let (first, count, step) =
            (long(at, 0)?, long(at, self.shards.count() as i64)?, long(at, 1)?);
        let numbers = at.add("Range", &[first, count, step])?;
        let is_it = at.add("Equal", &[numbers, shard])?;
        let is_it = at.add("LogicalAnd", &[is_it, found])?;
        let (nobody, end) = (long(at, NOBODY)?, self.end_of_lease(at, now)?);
        let is_own = at.add("Equal", &[holder, me])?;
        let holder = at.add("SelectV2", &[is_own, nobody, holder])?;
        let holder = at.add("SelectV2", &[is_it, me, holder])?;
        let until = at.add("SelectV2", &[is_it, end, until])?;
        self.set_columns(at, [holder, used, until])
    }

    /// Which shards a worker may take.
    fn is_open(
        &self,
        at: &mut Model,
        [holder, used, until]: [Output; COLUMNS],
        me: Output,
        now: Output,
    ) -> Result<Output> {
        let is_free = self.is_free(at, (holder, until), me, now)?;
        let limits = self.limits(at)?;
        let is_short = at.add("Less", &[used, limits])?;
        let is_open = at.add("LogicalAnd", &[is_free, is_short])?;
        let Some(offers) = self.offers else { return Ok(is_open) };
        let [shards, _, counts] = rows(at, offers)?;
        let axis = at.int(1)?;
        let shards = at.add("ExpandDims", &[shards, axis])?;
        let shape = at.constant(&Tensor::vector(&[self.shards.count() as i64])?)?;
        let counts = at.add("ScatterNd", &[shards, counts, shape])?;
        let none = long(at, 0)?;
        let is_not_offered = at.add("Equal", &[counts, none])?;
        at.add("LogicalAnd", &[is_open, is_not_offered])
    }

    /// Samples that are still to be used in all, given those of each shard that have been.
    fn left_of(&self, at: &mut Model, used: Output) -> Result<Output> {
        let (limits, zero) = (self.limits(at)?, long(at, 0)?);
        let left = at.add("Sub", &[limits, used])?;
        let left = at.add("Maximum", &[left, zero])?;
        let axis = at.int(0)?;
        at.add("Sum", &[left, axis])
    }

    /// How often samples of each shard are used in all.
    fn limits(&self, at: &mut Model) -> Result<Output> {
        self.per_shard(at, |size| size.saturating_mul(self.epochs))
    }

    /// Adds an update: what `change` adds runs once its `ready` nodes have, under the mutex, if the
    /// worker still holds the batch; then the batch is entered as used. Nothing is waited for inside
    /// that is not there already. The node to run, and the number that `step` has after it.
    pub fn commit(
        &self,
        model: &Model,
        batch: &Batch,
        ready: &[NodeId],
        change: impl FnOnce(&Model) -> Result<Vec<NodeId>>,
    ) -> Result<NodeId> {
        let at = self.beside(model, "commit");
        let mut section = self.mutex.enter(&at, ready)?;
        let known = self.check_generation(&mut section.inside, batch.generation)?;
        let is_held = self.check_held(&mut section.inside, batch)?;
        section.after(&[known, is_held]);
        let generation = self.begin_change(&mut section)?;
        let changed = change(&section.inside)?;
        section.after(&changed);
        let entered = self.enter_used(&mut section.inside, batch)?;
        section.after(&[entered]);
        let ended = self.end_change(&mut section, generation)?;
        section.leave("commit", &[ended])
    }

    /// Adds what comes before a change of the variables: until its end they are of no generation, so
    /// whoever dies in between leaves nothing that others would go on with. The generation, for the
    /// end.
    pub(crate) fn begin_change(&self, section: &mut Section) -> Result<Output> {
        let at = &mut section.inside;
        let generation = self.read_generation(at)?;
        let none = long(at, NONE)?;
        let is_whole = at.add("NotEqual", &[generation, none])?;
        let is_whole = check(at, is_whole, "the variables are of no generation", generation)?;
        section.after(&[is_whole]);
        let at = &mut section.inside;
        let node = at.op("AssignVariableOp").inputs(&[self.generation, none]);
        let begun = node.build_node()?;
        section.after(&[begun]);
        Ok(generation)
    }

    /// Adds the end of a change that has been made whole.
    pub(crate) fn end_change(&self, section: &mut Section, generation: Output) -> Result<NodeId> {
        let node = section.inside.op("AssignVariableOp").inputs(&[self.generation, generation]);
        node.build_node()
    }

    /// Adds what a worker does with a batch whose gradient somebody else will apply: if it
    /// `is_in_time`, it says what it has. Its lease begins anew either way.
    pub(crate) fn offer(
        &self,
        section: &mut Section,
        batch: &Batch,
        is_in_time: Output,
    ) -> Result<NodeId> {
        let known = self.check_generation(&mut section.inside, batch.generation)?;
        let is_held = self.check_held(&mut section.inside, batch)?;
        section.after(&[known, is_held]);
        let at = &mut section.inside;
        let me = holder_of(at, batch.worker)?;
        let now = now_ms(at)?;
        let end = self.end_of_lease(at, now)?;
        let renewed = self.set_row(at, batch.shard, [me, batch.used, end])?;
        let none = long(at, 0)?;
        let count = at.add("SelectV2", &[is_in_time, batch.count, none])?;
        let row = at.op("Pack").inputs(&[batch.shard, batch.used, count]).build()?;
        let offers = self.offers()?;
        let node = at.op("ResourceScatterUpdate").inputs(&[offers, batch.worker, row]);
        node.after(&[renewed]).build_node()
    }

    /// Enters the batches that were offered by those for whom `is_used` says so. Nothing is offered
    /// any more.
    pub(crate) fn settle(&self, section: &mut Section, is_used: Output) -> Result<NodeId> {
        let at = &mut section.inside;
        let [shards, _, counts] = rows(at, self.offers()?)?;
        let zero = long(at, 0)?;
        let counts = at.add("SelectV2", &[is_used, counts, zero])?;
        // What is offered by one is not dealt to another, so no row gets two of them.
        let none = at.add("ZerosLike", &[counts])?;
        let added = at.op("Pack").inputs(&[none, counts, none]).attr("axis", 1i64).build()?;
        let node = at.op("ResourceScatterAdd").inputs(&[self.table.handle, shards, added]);
        let entered = node.build_node()?;
        section.after(&[entered]);
        self.withdraw_all(section)
    }

    /// Takes back what a worker has offered.
    pub(crate) fn withdraw(&self, section: &mut Section, worker: Output) -> Result<NodeId> {
        let at = &mut section.inside;
        let none = at.constant(&Tensor::vector(&[0i64; COLUMNS])?)?;
        let node = at.op("ResourceScatterUpdate").inputs(&[self.offers()?, worker, none]);
        node.build_node()
    }

    /// Takes back what everybody has offered.
    pub(crate) fn withdraw_all(&self, section: &mut Section) -> Result<NodeId> {
        let (at, offers) = (&mut section.inside, self.offers()?);
        let rows = at.op("ReadVariableOp").input(offers).attr("dtype", DType::Int64).build()?;
        let none = at.add("ZerosLike", &[rows])?;
        at.op("AssignVariableOp").inputs(&[offers, none]).build_node()
    }

    fn offers(&self) -> Result<Output> {
        self.offers.ok_or_else(|| err!(Internal, "a table of leases without a place for offers"))
    }

    /// Adds a node that takes all shards from a worker, which is fed.
    pub fn release(&self, model: &Model) -> Result<(Output, NodeId)> {
        let mut at = self.beside(model, "release");
        let worker = fed(&mut at, "worker")?;
        let mut section = self.mutex.enter(&at, &[])?;
        let at = &mut section.inside;
        let [holder, used, until] = self.columns(at)?;
        let me = holder_of(at, worker)?;
        let is_own = at.add("Equal", &[holder, me])?;
        let nobody = long(at, NOBODY)?;
        let holder = at.add("SelectV2", &[is_own, nobody, holder])?;
        let released = self.set_columns(at, [holder, used, until])?;
        Ok((worker, section.leave("release", &[released])?))
    }

    /// Adds a node that takes all shards from everybody: after variables were restored nobody holds
    /// what the checkpoint says.
    pub fn release_all(&self, model: &Model) -> Result<NodeId> {
        let at = self.beside(model, "release_all");
        let mut section = self.mutex.enter(&at, &[])?;
        let at = &mut section.inside;
        let [_, used, _] = self.columns(at)?;
        let none = at.add("ZerosLike", &[used])?;
        let released = self.set_columns(at, [none, used, none])?;
        section.leave("release_all", &[released])
    }

    /// Adds a node that sets the generation of the variables, which is fed. Commits and claims of
    /// those who know another one fail, so one that nobody knows keeps all of them out.
    pub fn set_generation(&self, model: &Model) -> Result<(Output, NodeId)> {
        let mut at = self.beside(model, "set_generation");
        let value = fed(&mut at, "value")?;
        let mut section = self.mutex.enter(&at, &[])?;
        let node = section.inside.op("AssignVariableOp").inputs(&[self.generation, value]);
        let set = node.build_node()?;
        Ok((value, section.leave("set_generation", &[set])?))
    }

    /// The generation of the variables, and a row per shard.
    pub fn state(&self, model: &Model) -> Result<(Output, Output)> {
        let at = self.beside(model, "state");
        // Between two changes: during one the variables are of no generation.
        let mut section = self.mutex.enter(&at, &[])?;
        let generation = self.read_generation(&mut section.inside)?;
        let table = self.table.read(&mut section.inside)?;
        let left = section.leave("read", &[generation.node, table.node])?;
        let mut at = at.after(&[left]);
        let mut after = |output| at.op("Identity").input(output).build();
        Ok((after(generation)?, after(table)?))
    }

    /// Samples that are still to be used in all.
    pub fn left(&self, model: &Model) -> Result<Output> {
        let mut at = self.beside(model, "left");
        let [_, used, _] = self.columns(&mut at)?;
        self.left_of(&mut at, used)
    }

    /// Adds reads of variables that see no update in part; the values, and the node to run with
    /// them.
    pub fn snapshot(&self, model: &Model, variables: &[Variable]) -> Result<(Vec<Output>, NodeId)> {
        let at = self.beside(model, "snapshot");
        let mut section = self.mutex.enter(&at, &[])?;
        let at = &mut section.inside;
        let (generation, none) = (self.read_generation(at)?, long(at, NONE)?);
        let is_whole = at.add("NotEqual", &[generation, none])?;
        let is_whole = check(at, is_whole, "the variables are of no generation", generation)?;
        section.after(&[is_whole]);
        let mut values = Vec::with_capacity(variables.len());
        for variable in variables {
            values.push(variable.read(&mut section.inside.on(&variable.device))?);
        }
        let read: Vec<NodeId> = values.iter().map(|value| value.node).collect();
        let done = section.leave("snapshot", &read)?;
        Ok((values, done))
    }

    fn beside(&self, model: &Model, name: &str) -> Model {
        let at = model.top_on(&self.table.device);
        let scope = at.child(&format!("{TABLE}/{name}"));
        at.with_scope(scope)
    }

    fn columns(&self, at: &mut Model) -> Result<[Output; COLUMNS]> {
        let table = self.table.read(at)?;
        unpacked(at, table)
    }

    fn set_columns(&self, at: &mut Model, columns: [Output; COLUMNS]) -> Result<NodeId> {
        let table = at.op("Pack").inputs(&columns).attr("axis", 1i64).build()?;
        at.op("AssignVariableOp").inputs(&[self.table.handle, table]).build_node()
    }

    fn set_row(&self, at: &mut Model, shard: Output, row: [Output; COLUMNS]) -> Result<NodeId> {
        let row = at.op("Pack").inputs(&row).build()?;
        at.op("ResourceScatterUpdate").inputs(&[self.table.handle, shard, row]).build_node()
    }

    /// A number of each shard, from its size.
    fn per_shard(&self, at: &mut Model, number: impl Fn(u64) -> u64) -> Result<Output> {
        let sizes = (0..self.shards.count()).map(|shard| self.shards.size(shard) as u64);
        let numbers: Vec<i64> =
            sizes.map(|size| i64::try_from(number(size)).unwrap_or(i64::MAX)).collect();
        at.constant(&Tensor::vector(&numbers)?)
    }

    fn is_free(
        &self,
        at: &mut Model,
        (holder, until): (Output, Output),
        me: Output,
        now: Output,
    ) -> Result<Output> {
        let nobody = long(at, NOBODY)?;
        let is_free = at.add("Equal", &[holder, nobody])?;
        let is_own = at.add("Equal", &[holder, me])?;
        let is_over = at.add("Less", &[until, now])?;
        let is_free = at.add("LogicalOr", &[is_free, is_own])?;
        at.add("LogicalOr", &[is_free, is_over])
    }

    /// Of the open shards that with the fewest epochs; of those the first. Whoever is late gets one of
    /// the next epoch, if there is one.
    fn furthest_behind(
        &self,
        at: &mut Model,
        used: Output,
        is_open: Output,
        is_late: Output,
    ) -> Result<Output> {
        let sizes = self.per_shard(at, |size| size)?;
        let epochs = at.add("FloorDiv", &[used, sizes])?;
        let axis = at.int(0)?;
        let fewest = at.add("Min", &[epochs, axis])?;
        let is_behind = at.add("Equal", &[epochs, fewest])?;
        let one = long(at, 1)?;
        let is_late = at.add("Equal", &[is_late, one])?;
        let is_for_others = at.add("LogicalAnd", &[is_behind, is_late])?;
        let (last, next_to_last) = (long(at, LAST)?, long(at, LAST - 1)?);
        let keys = at.add("SelectV2", &[is_for_others, next_to_last, epochs])?;
        let keys = at.add("SelectV2", &[is_open, keys, last])?;
        // Of equal ones ArgMin takes the first.
        at.add("ArgMin", &[keys, axis])
    }

    fn check_generation(&self, at: &mut Model, known: Output) -> Result<NodeId> {
        let now = self.read_generation(at)?;
        let is_known = at.add("Equal", &[now, known])?;
        check(at, is_known, "the variables are of another generation", now)
    }

    fn read_generation(&self, at: &mut Model) -> Result<Output> {
        at.op("ReadVariableOp").input(self.generation).attr("dtype", DType::Int64).build()
    }

    fn check_held(&self, at: &mut Model, batch: &Batch) -> Result<NodeId> {
        let row = self.table.gather(at, batch.shard)?;
        let me = holder_of(at, batch.worker)?;
        let wanted = at.op("Pack").inputs(&[me, batch.used]).build()?;
        let (begin, end, stride) = (at.ints(&[0])?, at.ints(&[2])?, at.ints(&[1])?);
        let found = at.add("StridedSlice", &[row, begin, end, stride])?;
        let equal = at.add("Equal", &[found, wanted])?;
        let axis = at.int(0)?;
        let is_held = at.add("All", &[equal, axis])?;
        check(at, is_held, "the worker does not hold these samples any more", row)
    }

    fn enter_used(&self, at: &mut Model, batch: &Batch) -> Result<NodeId> {
        let used = at.add("AddV2", &[batch.used, batch.count])?;
        let me = holder_of(at, batch.worker)?;
        let now = now_ms(at)?;
        let end = self.end_of_lease(at, now)?;
        self.set_row(at, batch.shard, [me, used, end])
    }

    fn end_of_lease(&self, at: &mut Model, now: Output) -> Result<Output> {
        let lease = long(at, self.lease_ms)?;
        at.add("AddV2", &[now, lease])
    }
}

/// A number that a step feeds.
fn fed(at: &mut Model, name: &str) -> Result<Output> {
    at.input(name, DType::Int64, &[])
}

fn long(at: &mut Model, value: i64) -> Result<Output> {
    at.constant(&Tensor::scalar(value))
}

/// How the table writes a worker.
fn holder_of(at: &mut Model, worker: Output) -> Result<Output> {
    let one = long(at, 1)?;
    at.add("AddV2", &[worker, one])
}

/// Milliseconds since 1970, by the clock of the task that keeps the table.
fn now_ms(at: &mut Model) -> Result<Output> {
    let seconds = at.op("Timestamp").build()?;
    let thousand = at.constant(&Tensor::scalar(1000f64))?;
    let now = at.add("Mul", &[seconds, thousand])?;
    at.cast(now, DType::Int64)
}

fn element(at: &mut Model, of: Output, index: Output) -> Result<Output> {
    let axis = at.int(0)?;
    at.add("GatherV2", &[of, index, axis])
}

/// The columns of a variable with a row per worker.
fn rows(at: &mut Model, handle: Output) -> Result<[Output; COLUMNS]> {
    let rows = at.op("ReadVariableOp").input(handle).attr("dtype", DType::Int64).build()?;
    unpacked(at, rows)
}

fn unpacked(at: &mut Model, rows: Output) -> Result<[Output; COLUMNS]> {
    let columns = at.op("Unpack").input(rows).attr("num", COLUMNS as i64).attr("axis", 1i64);
    let columns = columns.build_all()?;
    Ok([columns[0], columns[1], columns[2]])
}
