//! Shard leases: a table of which worker processes which samples, kept beside the variables.
//!
//! The variable `leases` has a row per shard: the worker that holds the shard, the number of its
//! samples used over all epochs, and when the lease expires. It is changed only under a mutex, and
//! the row of a batch is changed in the same critical section as the update that the batch led to.
//! Therefore the table says which samples the variables have seen, whichever task fails, and a
//! checkpoint whose values are read under the mutex is consistent with it. All of this is nodes of
//! a graph: workers in other processes need no further protocol.

mod shards;

use std::time::Duration;

use thalweg_graph::{NodeId, Output, Scope};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, err};

use crate::section::{Mutex, Section, check};
use crate::{Initializer, ModelScope, Variable};
pub use shards::Shards;

/// Name of the table in graphs and checkpoints.
pub(crate) const TABLE: &str = "leases";
/// Columns of the table: holder, used, end of the lease.
const COLUMNS: usize = 3;
/// The holder column of a free shard; worker `i` is stored as `i + 1`.
const NOBODY: i64 = 0;
/// The generation while variables are being updated or set; no worker has it. A step that fails
/// between its first and its last update leaves it so, until a checkpoint is restored.
pub(crate) const NONE: i64 = 0;
/// A sort key that is greater than all others.
const LAST: i64 = i64::MAX;
/// The maximum length of a lease, so that times do not overflow.
const LEASE_MS_MAX: i64 = 1 << 40;

/// The lease table of a model's shards, and the ops on it.
#[derive(Clone, Debug)]
pub struct Leases {
    shards: Shards,
    table: Variable,
    generation: Output,
    mutex: Mutex,
    epochs: u64,
    lease_ms: i64,
    /// A row per worker where the chief applies gradients: shard, samples used before, samples in
    /// the batch.
    offers: Option<Output>,
}

/// The tensors that a worker feeds with each batch: its identity, and the samples of the batch.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// The worker's index.
    pub worker: Output,
    /// The generation of the variables that the worker trains.
    pub generation: Output,
    /// The shard that the worker holds.
    pub shard: Output,
    /// Samples of the shard that had been used before this batch.
    pub used: Output,
    /// Samples of this batch.
    pub count: Output,
}

/// A claim of a shard: tensors to feed and to fetch.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Fed: the index of the worker that claims.
    pub worker: Output,
    /// Fed: the generation of the variables that the worker trains.
    pub generation: Output,
    /// Fed: 1 if the worker is a straggler, whose gradients arrive too late, else 0. The shard with
    /// the fewest completed epochs then goes to another worker.
    pub is_late: Output,
    /// Fetched: the shard that the worker holds now; -1 if none is free.
    pub shard: Output,
    /// Fetched: samples of the shard that have been used, over all epochs.
    pub used: Output,
    /// Fetched: samples that remain to be used by all workers.
    pub left: Output,
    /// The node to run.
    pub done: NodeId,
}

impl Leases {
    /// A lease table for these shards, each to be used `epochs` times. A worker that sends nothing
    /// for `lease` loses its shards.
    pub fn new(model: &ModelScope, shards: Shards, epochs: u64, lease: Duration) -> Result<Leases> {
        let dims = [shards.count(), COLUMNS];
        let table = model.top().counter(TABLE, DType::Int64, &dims, &Initializer::Zeros)?;
        let (name, scalar) = (format!("{TABLE}/generation"), PartialShape::scalar());
        let generation = model.local(&name, &table.device, DType::Int64, &scalar, None)?;
        let mutex = Mutex::new(model, &table.device, &format!("{TABLE}/mutex"))?;
        let lease_ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX).min(LEASE_MS_MAX);
        Ok(Leases { shards, table, generation, mutex, epochs, lease_ms, offers: None })
    }

    /// Adds the offers table, in which workers record the samples of gradients that the chief will
    /// apply.
    pub(crate) fn with_offers(self, model: &ModelScope, workers: usize) -> Result<Leases> {
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

    /// The shards of the table.
    pub fn shards(&self) -> &Shards {
        &self.shards
    }

    /// The device of the table.
    pub fn device(&self) -> &str {
        &self.table.device
    }

    /// The mutex that guards the table.
    pub(crate) fn mutex(&self) -> Mutex {
        self.mutex
    }

    /// Adds the placeholders that a worker feeds with each batch.
    pub fn batch(&self, model: &ModelScope) -> Result<Batch> {
        let mut at = self.beside(model, "batch");
        Ok(Batch {
            worker: fed(&mut at, "worker")?,
            generation: fed(&mut at, "generation")?,
            shard: fed(&mut at, "shard")?,
            used: fed(&mut at, "used")?,
            count: fed(&mut at, "count")?,
        })
    }

    /// Adds a claim: among the shards that are free, held by this worker, or whose lease has
    /// expired, it takes the one with the fewest completed epochs and returns the shard that the
    /// worker held. Samples that are offered cannot be claimed until their round has ended.
    pub fn claim(&self, model: &ModelScope) -> Result<Claim> {
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

    /// Assigns this shard to a worker and frees all others that it holds; assigns none if `found`
    /// is false.
    fn take(
        &self,
        at: &mut ModelScope,
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

    /// Which shards a worker may claim.
    fn is_open(
        &self,
        at: &mut ModelScope,
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

    /// Samples that remain to be used in all, given how many of each shard have been used.
    fn left_of(&self, at: &mut ModelScope, used: Output) -> Result<Output> {
        let (limits, zero) = (self.limits(at)?, long(at, 0)?);
        let left = at.add("Sub", &[limits, used])?;
        let left = at.add("Maximum", &[left, zero])?;
        let axis = at.int(0)?;
        at.add("Sum", &[left, axis])
    }

    /// How many samples of each shard are used over all epochs.
    fn limits(&self, at: &mut ModelScope) -> Result<Output> {
        self.per_shard(at, |size| size.saturating_mul(self.epochs))
    }

    /// Adds an update: under the mutex, if the worker still holds the batch, it runs the nodes that
    /// `change` adds, then records the batch as used. It enters the critical section only once the
    /// `ready` nodes have run, so it waits for nothing inside. Returns the node to run and the
    /// value of `step` after it.
    pub fn commit(
        &self,
        model: &ModelScope,
        batch: &Batch,
        ready: &[NodeId],
        change: impl FnOnce(&ModelScope) -> Result<Vec<NodeId>>,
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

    /// Adds the begin of an update of the variables: until its end the variables have no
    /// generation, so a step that fails in between leaves nothing that other workers would continue
    /// with. Returns the generation, for [`Leases::end_change`].
    pub(crate) fn begin_change(&self, section: &mut Section) -> Result<Output> {
        let at = &mut section.inside;
        let generation = self.read_generation(at)?;
        let none = long(at, NONE)?;
        let is_whole = at.add("NotEqual", &[generation, none])?;
        let is_whole = check(
            at,
            is_whole,
            "the variables have no generation: an update did not complete",
            generation,
        )?;
        section.after(&[is_whole]);
        let at = &mut section.inside;
        let node = at.op("AssignVariableOp").inputs(&[self.generation, none]);
        let begun = node.build_node()?;
        section.after(&[begun]);
        Ok(generation)
    }

    /// Adds the end of a complete update: it restores the generation.
    pub(crate) fn end_change(&self, section: &mut Section, generation: Output) -> Result<NodeId> {
        let node = section.inside.op("AssignVariableOp").inputs(&[self.generation, generation]);
        node.build_node()
    }

    /// Adds what a worker does with a batch whose gradient the chief will apply: if `is_in_time`,
    /// it records the batch as offered. It renews the lease in both cases.
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

    /// Records the offered batches of the workers in `is_used` as used, and clears all offers.
    pub(crate) fn settle(&self, section: &mut Section, is_used: Output) -> Result<NodeId> {
        let at = &mut section.inside;
        let [shards, _, counts] = rows(at, self.offers()?)?;
        let zero = long(at, 0)?;
        let counts = at.add("SelectV2", &[is_used, counts, zero])?;
        // An offered shard is not claimed by another worker, so no row is updated twice.
        let none = at.add("ZerosLike", &[counts])?;
        let added = at.op("Pack").inputs(&[none, counts, none]).attr("axis", 1i64).build()?;
        let node = at.op("ResourceScatterAdd").inputs(&[self.table.handle, shards, added]);
        let entered = node.build_node()?;
        section.after(&[entered]);
        self.withdraw_all(section)
    }

    /// Clears the offer of a worker.
    pub(crate) fn withdraw(&self, section: &mut Section, worker: Output) -> Result<NodeId> {
        let at = &mut section.inside;
        let none = at.constant(&Tensor::vector(&[0i64; COLUMNS])?)?;
        let node = at.op("ResourceScatterUpdate").inputs(&[self.offers()?, worker, none]);
        node.build_node()
    }

    /// Clears all offers.
    pub(crate) fn withdraw_all(&self, section: &mut Section) -> Result<NodeId> {
        let (at, offers) = (&mut section.inside, self.offers()?);
        let rows = at.op("ReadVariableOp").input(offers).attr("dtype", DType::Int64).build()?;
        let none = at.add("ZerosLike", &[rows])?;
        at.op("AssignVariableOp").inputs(&[offers, none]).build_node()
    }

    fn offers(&self) -> Result<Output> {
        self.offers.ok_or_else(|| err!(Internal, "the lease table has no offers"))
    }

    /// Adds a node that frees all shards of a worker, whose index is fed.
    pub fn release(&self, model: &ModelScope) -> Result<(Output, NodeId)> {
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

    /// Adds a node that frees all shards: after a restore, no worker holds the shards that the
    /// checkpoint says it does.
    pub fn release_all(&self, model: &ModelScope) -> Result<NodeId> {
        let at = self.beside(model, "release_all");
        let mut section = self.mutex.enter(&at, &[])?;
        let at = &mut section.inside;
        let [_, used, _] = self.columns(at)?;
        let none = at.add("ZerosLike", &[used])?;
        let released = self.set_columns(at, [none, used, none])?;
        section.leave("release_all", &[released])
    }

    /// Adds a node that sets the generation of the variables to a value that is fed. Commits and
    /// claims with another generation fail, so a generation that no worker has keeps all workers
    /// out.
    pub fn set_generation(&self, model: &ModelScope) -> Result<(Output, NodeId)> {
        let mut at = self.beside(model, "set_generation");
        let value = fed(&mut at, "value")?;
        let mut section = self.mutex.enter(&at, &[])?;
        let node = section.inside.op("AssignVariableOp").inputs(&[self.generation, value]);
        let set = node.build_node()?;
        Ok((value, section.leave("set_generation", &[set])?))
    }

    /// The generation of the variables, and the lease table.
    pub fn state(&self, model: &ModelScope) -> Result<(Output, Output)> {
        let at = self.beside(model, "state");
        // Under the mutex: during an update the variables have no generation.
        let mut section = self.mutex.enter(&at, &[])?;
        let generation = self.read_generation(&mut section.inside)?;
        let table = self.table.read(&mut section.inside)?;
        let left = section.leave("read", &[generation.node, table.node])?;
        let mut at = at.after(&[left]);
        let mut after = |output| at.op("Identity").input(output).build();
        Ok((after(generation)?, after(table)?))
    }

    /// Samples that remain to be used in all.
    pub fn left(&self, model: &ModelScope) -> Result<Output> {
        let mut at = self.beside(model, "left");
        let [_, used, _] = self.columns(&mut at)?;
        self.left_of(&mut at, used)
    }

    /// Adds reads of variables that see no partial update; returns the values, and the node to run
    /// with them.
    pub fn snapshot(
        &self,
        model: &ModelScope,
        variables: &[Variable],
    ) -> Result<(Vec<Output>, NodeId)> {
        let at = self.beside(model, "snapshot");
        let mut section = self.mutex.enter(&at, &[])?;
        let at = &mut section.inside;
        let (generation, none) = (self.read_generation(at)?, long(at, NONE)?);
        let is_whole = at.add("NotEqual", &[generation, none])?;
        let is_whole = check(
            at,
            is_whole,
            "the variables have no generation: an update did not complete",
            generation,
        )?;
        section.after(&[is_whole]);
        let mut values = Vec::with_capacity(variables.len());
        for variable in variables {
            values.push(variable.read(&mut section.inside.on(&variable.device))?);
        }
        let read: Vec<NodeId> = values.iter().map(|value| value.node).collect();
        let done = section.leave("snapshot", &read)?;
        Ok((values, done))
    }

    fn beside(&self, model: &ModelScope, name: &str) -> ModelScope {
        let at = model.top_on(&self.table.device);
        let scope = at.child(&format!("{TABLE}/{name}"));
        at.with_scope(scope)
    }

    fn columns(&self, at: &mut ModelScope) -> Result<[Output; COLUMNS]> {
        let table = self.table.read(at)?;
        unpacked(at, table)
    }

    fn set_columns(&self, at: &mut ModelScope, columns: [Output; COLUMNS]) -> Result<NodeId> {
        let table = at.op("Pack").inputs(&columns).attr("axis", 1i64).build()?;
        at.op("AssignVariableOp").inputs(&[self.table.handle, table]).build_node()
    }

    fn set_row(
        &self,
        at: &mut ModelScope,
        shard: Output,
        row: [Output; COLUMNS],
    ) -> Result<NodeId> {
        let row = at.op("Pack").inputs(&row).build()?;
        at.op("ResourceScatterUpdate").inputs(&[self.table.handle, shard, row]).build_node()
    }

    /// A tensor with one number per shard, computed from the shard's size.
    fn per_shard(&self, at: &mut ModelScope, number: impl Fn(u64) -> u64) -> Result<Output> {
        let sizes = (0..self.shards.count()).map(|shard| self.shards.size(shard) as u64);
        let numbers: Vec<i64> =
            sizes.map(|size| i64::try_from(number(size)).unwrap_or(i64::MAX)).collect();
        at.constant(&Tensor::vector(&numbers)?)
    }

    fn is_free(
        &self,
        at: &mut ModelScope,
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

    /// The open shard with the fewest completed epochs, the first of equal ones. A straggler gets
    /// one of the next epoch, if there is one.
    fn furthest_behind(
        &self,
        at: &mut ModelScope,
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
        // ArgMin returns the first of equal elements.
        at.add("ArgMin", &[keys, axis])
    }

    fn check_generation(&self, at: &mut ModelScope, known: Output) -> Result<NodeId> {
        let now = self.read_generation(at)?;
        let is_known = at.add("Equal", &[now, known])?;
        check(at, is_known, "the variables have another generation", now)
    }

    fn read_generation(&self, at: &mut ModelScope) -> Result<Output> {
        at.op("ReadVariableOp").input(self.generation).attr("dtype", DType::Int64).build()
    }

    fn check_held(&self, at: &mut ModelScope, batch: &Batch) -> Result<NodeId> {
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

    fn enter_used(&self, at: &mut ModelScope, batch: &Batch) -> Result<NodeId> {
        let used = at.add("AddV2", &[batch.used, batch.count])?;
        let me = holder_of(at, batch.worker)?;
        let now = now_ms(at)?;
        let end = self.end_of_lease(at, now)?;
        self.set_row(at, batch.shard, [me, used, end])
    }

    fn end_of_lease(&self, at: &mut ModelScope, now: Output) -> Result<Output> {
        let lease = long(at, self.lease_ms)?;
        at.add("AddV2", &[now, lease])
    }
}

/// An int64 placeholder.
fn fed(at: &mut ModelScope, name: &str) -> Result<Output> {
    at.input(name, DType::Int64, &[])
}

fn long(at: &mut ModelScope, value: i64) -> Result<Output> {
    at.constant(&Tensor::scalar(value))
}

/// The holder column of a worker.
fn holder_of(at: &mut ModelScope, worker: Output) -> Result<Output> {
    let one = long(at, 1)?;
    at.add("AddV2", &[worker, one])
}

/// Milliseconds since 1970, by the clock of the task that holds the table.
fn now_ms(at: &mut ModelScope) -> Result<Output> {
    let seconds = at.op("Timestamp").build()?;
    let thousand = at.constant(&Tensor::scalar(1000f64))?;
    let now = at.add("Mul", &[seconds, thousand])?;
    at.cast(now, DType::Int64)
}

fn element(at: &mut ModelScope, of: Output, index: Output) -> Result<Output> {
    let axis = at.int(0)?;
    at.add("GatherV2", &[of, index, axis])
}

/// The columns of a variable with a row per worker.
fn rows(at: &mut ModelScope, handle: Output) -> Result<[Output; COLUMNS]> {
    let rows = at.op("ReadVariableOp").input(handle).attr("dtype", DType::Int64).build()?;
    unpacked(at, rows)
}

fn unpacked(at: &mut ModelScope, rows: Output) -> Result<[Output; COLUMNS]> {
    let columns = at.op("Unpack").input(rows).attr("num", COLUMNS as i64).attr("axis", 1i64);
    let columns = columns.build_all()?;
    Ok([columns[0], columns[1], columns[2]])
}
