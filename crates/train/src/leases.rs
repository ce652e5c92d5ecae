//! Shard leases: which worker has which samples, kept beside the variables.
//!
//! One variable, `leases`, has a row per shard: who holds it, how many of its samples have been used
//! over all epochs, and when the holder's claim ends. It is changed only under a mutex, and the row of
//! a batch in the same critical section as the update that the batch led to. So whatever dies, the
//! table says which samples are in the variables, and a checkpoint whose values are read under the
//! mutex has both. Everything is nodes of a graph: workers in other processes need nothing else.

mod shards;

use std::time::Duration;

use thalweg_graph::{Adjoint, NodeId, Output, Scope};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor};

use crate::{Initializer, Model, Variable};
pub use shards::Shards;

/// Name of the table in graphs and checkpoints.
const TABLE: &str = "leases";
/// Columns of the table: holder, used, end of the lease.
const COLUMNS: usize = 3;
/// The holder of a shard that nobody holds; worker 0 is 1.
const NOBODY: i64 = 0;
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
    mutex: Output,
    epochs: u64,
    lease_ms: i64,
    /// Whether shards are dealt beyond the last epoch, until whoever leads ends the run.
    goes_on: bool,
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

/// A critical section that is open: nodes that are added to it run under the mutex.
struct Section {
    lock: Output,
    inside: Model,
}

impl Leases {
    /// A table for these shards, each to be used `epochs` times. A worker of which nothing has been
    /// heard for `lease` loses its shards.
    pub fn new(model: &Model, shards: Shards, epochs: u64, lease: Duration) -> Result<Leases> {
        let dims = [shards.count(), COLUMNS];
        let table = model.top().counter(TABLE, DType::Int64, &dims, &Initializer::Zeros)?;
        let (name, scalar) = (format!("{TABLE}/generation"), PartialShape::scalar());
        let generation = model.local(&name, &table.device, DType::Int64, &scalar, None)?;
        let mut beside = model.top_on(&table.device);
        let name = format!("{TABLE}/mutex");
        let mutex = beside.op("MutexV2").name(&name).attr("shared_name", &*name).build()?;
        let lease_ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX).min(LEASE_MS_MAX);
        Ok(Leases { shards, table, generation, mutex, epochs, lease_ms, goes_on: false })
    }

    /// Deals shards beyond the last epoch too: workers that wait for each other need samples until
    /// the run is ended.
    #[must_use]
    pub fn going_on(self) -> Leases {
        Leases { goes_on: true, ..self }
    }

    /// The shards it is about.
    pub fn shards(&self) -> &Shards {
        &self.shards
    }

    /// The device that keeps the table.
    pub fn device(&self) -> &str {
        &self.table.device
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
    /// has not been heard of, it takes the one that is furthest behind.
    pub fn claim(&self, model: &Model) -> Result<Claim> {
        let mut at = self.beside(model, "claim");
        let (worker, generation) = (fed(&mut at, "worker")?, fed(&mut at, "generation")?);
        let is_late = fed(&mut at, "is_late")?;
        let mut section = self.enter(&at, &[])?;
        let known = self.check_generation(&mut section.inside, generation)?;
        section.after(&[known]);
        let at = &mut section.inside;
        let [holder, used, until] = self.columns(at)?;
        let me = holder_of(at, worker)?;
        let now = now_ms(at)?;
        let is_free = self.is_free(at, (holder, until), me, now)?;
        let limits = self.per_shard(at, |size| size.saturating_mul(self.epochs))?;
        let is_short = at.add("Less", &[used, limits])?;
        let is_open =
            if self.goes_on { is_free } else { at.add("LogicalAnd", &[is_free, is_short])? };
        let shard = self.furthest_behind(at, used, is_open, is_late)?;
        let found = element(at, is_open, shard)?;
        let [own_holder, own_used, own_until] =
            [element(at, holder, shard)?, element(at, used, shard)?, element(at, until, shard)?];
        let new_holder = at.add("SelectV2", &[found, me, own_holder])?;
        let end = self.end_of_lease(at, now)?;
        let new_until = at.add("SelectV2", &[found, end, own_until])?;
        let taken = self.set_row(at, shard, [new_holder, own_used, new_until])?;
        let none = long(at, -1)?;
        let shard = at.add("SelectV2", &[found, shard, none])?;
        let zero = long(at, 0)?;
        let left = at.add("Sub", &[limits, used])?;
        let left = at.add("Maximum", &[left, zero])?;
        let axis = at.int(0)?;
        let left = at.add("Sum", &[left, axis])?;
        let done = section.leave("claim", &[taken])?;
        Ok(Claim { worker, generation, is_late, shard, used: own_used, left, done })
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
        let mut section = self.enter(&at, ready)?;
        let known = self.check_generation(&mut section.inside, batch.generation)?;
        let is_held = self.check_held(&mut section.inside, batch)?;
        section.after(&[known, is_held]);
        let changed = change(&section.inside)?;
        section.after(&changed);
        let entered = self.enter_used(&mut section.inside, batch)?;
        section.leave("commit", &[entered])
    }

    /// Adds what a worker does with a batch whose gradient somebody else will apply: it says what it
    /// has, where `offers` keeps a row for each worker, and its lease begins anew.
    pub(crate) fn offer(&self, model: &Model, batch: &Batch, offers: Output) -> Result<NodeId> {
        let at = self.beside(model, "offer");
        let mut section = self.enter(&at, &[])?;
        let known = self.check_generation(&mut section.inside, batch.generation)?;
        let is_held = self.check_held(&mut section.inside, batch)?;
        section.after(&[known, is_held]);
        let at = &mut section.inside;
        let me = holder_of(at, batch.worker)?;
        let now = now_ms(at)?;
        let end = self.end_of_lease(at, now)?;
        let renewed = self.set_row(at, batch.shard, [me, batch.used, end])?;
        let row = at.op("Pack").inputs(&[batch.shard, batch.used, batch.count]).build()?;
        let node = at.op("ResourceScatterUpdate").inputs(&[offers, batch.worker, row]);
        let offered = node.build_node()?;
        section.leave("offer", &[renewed, offered])
    }

    /// The shape that `offers` have for so many workers: shard, used before, count.
    pub(crate) fn offers(model: &Model, device: &str, workers: usize) -> Result<Output> {
        let shape = Shape::new(&[workers, COLUMNS])?;
        let first = |scope: &mut Scope| {
            let zeros = Tensor::zeros(DType::Int64, shape.clone())?;
            scope.constant(&zeros)
        };
        let partial = PartialShape::from(&shape);
        let name = format!("{TABLE}/offers");
        model.local(&name, device, DType::Int64, &partial, Some(&first))
    }

    /// Adds an update by the gradients of several workers: what `change` adds runs under the mutex,
    /// then the batches of those for whom `is_used` says so are entered. The node to run.
    pub(crate) fn settle(
        &self,
        model: &Model,
        (offers, is_used): (Output, Output),
        gradients: &[(Variable, Adjoint)],
        change: impl FnOnce(&Model) -> Result<Vec<NodeId>>,
    ) -> Result<NodeId> {
        let at = self.beside(model, "settle");
        let of_gradients = gradients.iter().map(|(_, adjoint)| match adjoint {
            Adjoint::Dense(gradient) => gradient.node,
            Adjoint::Sparse(rows) => rows.values.node,
        });
        let ready: Vec<NodeId> = of_gradients.chain([is_used.node]).collect();
        let mut section = self.enter(&at, &ready)?;
        let changed = change(&section.inside)?;
        section.after(&changed);
        let at = &mut section.inside;
        let rows = at.op("ReadVariableOp").input(offers).attr("dtype", DType::Int64).build()?;
        let columns = at.op("Unpack").input(rows).attr("num", COLUMNS as i64).attr("axis", 1i64);
        let columns = columns.build_all()?;
        let zero = long(at, 0)?;
        let counts = at.add("SelectV2", &[is_used, columns[2], zero])?;
        // Each worker holds shards of its own, so no row gets two of them.
        let none = at.add("ZerosLike", &[counts])?;
        let added = at.op("Pack").inputs(&[none, counts, none]).attr("axis", 1i64).build()?;
        let node = at.op("ResourceScatterAdd").inputs(&[self.table.handle, columns[0], added]);
        let entered = node.build_node()?;
        section.leave("settle", &[entered])
    }

    /// Adds a node that takes all shards from a worker, which is fed.
    pub fn release(&self, model: &Model) -> Result<(Output, NodeId)> {
        let mut at = self.beside(model, "release");
        let worker = fed(&mut at, "worker")?;
        let mut section = self.enter(&at, &[])?;
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
        let mut section = self.enter(&at, &[])?;
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
        let mut section = self.enter(&at, &[])?;
        let node = section.inside.op("AssignVariableOp").inputs(&[self.generation, value]);
        let set = node.build_node()?;
        Ok((value, section.leave("set_generation", &[set])?))
    }

    /// The generation of the variables, and a row per shard.
    pub fn state(&self, model: &Model) -> Result<(Output, Output)> {
        let mut at = self.beside(model, "state");
        let generation = self.read_generation(&mut at)?;
        Ok((generation, self.table.read(&mut at)?))
    }

    /// Adds reads of variables that see no update in part; the values, and the node to run with
    /// them.
    pub fn snapshot(&self, model: &Model, variables: &[Variable]) -> Result<(Vec<Output>, NodeId)> {
        let at = self.beside(model, "snapshot");
        let section = self.enter(&at, &[])?;
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

    /// Waits for the mutex once `ready` nodes have run.
    fn enter(&self, at: &Model, ready: &[NodeId]) -> Result<Section> {
        let mut at = at.with_scope(at.after(&[]));
        let lock = at.op("MutexLock").input(self.mutex).after(ready).build()?;
        Ok(Section { lock, inside: at.with_scope(at.after(&[lock.node])) })
    }

    fn columns(&self, at: &mut Model) -> Result<[Output; COLUMNS]> {
        let table = self.table.read(at)?;
        let columns = at.op("Unpack").input(table).attr("num", COLUMNS as i64).attr("axis", 1i64);
        let columns = columns.build_all()?;
        Ok([columns[0], columns[1], columns[2]])
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

impl Section {
    /// What is added from now on runs after `nodes` too.
    fn after(&mut self, nodes: &[NodeId]) {
        self.inside = self.inside.with_scope(self.inside.after(nodes));
    }

    /// Ends it after `nodes`.
    fn leave(mut self, name: &str, nodes: &[NodeId]) -> Result<NodeId> {
        let node = self.inside.op("ConsumeMutexLock").name(name).input(self.lock);
        node.after(nodes).build_node()
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

/// Fails the step, with this sentence, unless it holds.
fn check(at: &mut Model, holds: Output, sentence: &str, shown: Output) -> Result<NodeId> {
    let sentence = at.constant(&Tensor::scalar_string(sentence.to_owned()))?;
    let types = [DType::String, DType::Int64];
    let node = at.op("Assert").inputs(&[holds, sentence, shown]).attr("T", &types[..]);
    node.build_node()
}
