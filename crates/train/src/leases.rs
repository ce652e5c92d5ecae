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

use thalweg_api::{Any, Graph, Operation, Output, tf};
use thalweg_tensor::{DType, PartialShape, Result, err};

use crate::section::{Mutex, Section, check};
use crate::state::State;
use crate::{Initializer, Model, Variable};
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

/// Holder, used and end of the lease, of each shard.
type Columns = [Output<i64>; COLUMNS];

/// The lease table of a model's shards, and the ops on it.
#[derive(Clone, Debug)]
pub struct Leases {
    shards: Shards,
    device: String,
    table: State<i64>,
    generation: State<i64>,
    mutex: Mutex,
    epochs: u64,
    lease_ms: i64,
    /// A row per worker where the chief applies gradients: shard, samples used before, samples in
    /// the batch.
    offers: Option<State<i64>>,
}

/// The tensors that a worker feeds with each batch: its identity, and the samples of the batch.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The worker's index.
    pub worker: Output<i64>,
    /// The generation of the variables that the worker trains.
    pub generation: Output<i64>,
    /// The shard that the worker holds.
    pub shard: Output<i64>,
    /// Samples of the shard that had been used before this batch.
    pub used: Output<i64>,
    /// Samples of this batch.
    pub count: Output<i64>,
}

/// A claim of a shard: tensors to feed and to fetch.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Fed: the index of the worker that claims.
    pub worker: Output<i64>,
    /// Fed: the generation of the variables that the worker trains.
    pub generation: Output<i64>,
    /// Fed: 1 if the worker is a straggler, whose gradients arrive too late, else 0. The shard with
    /// the fewest completed epochs then goes to another worker.
    pub is_late: Output<i64>,
    /// Fetched: the shard that the worker holds now; -1 if none is free.
    pub shard: Output<i64>,
    /// Fetched: samples of the shard that have been used, over all epochs.
    pub used: Output<i64>,
    /// Fetched: samples that remain to be used by all workers.
    pub left: Output<i64>,
    /// The node to run.
    pub done: Operation,
}

impl Leases {
    /// A lease table for these shards, each to be used `epochs` times. A worker that sends nothing
    /// for `lease` loses its shards.
    pub fn new(model: &Model, shards: Shards, epochs: u64, lease: Duration) -> Result<Leases> {
        let dims = [shards.count(), COLUMNS];
        let table = model.top().untrained(TABLE, DType::Int64, &dims, &Initializer::Zeros)?;
        let (name, device) = (format!("{TABLE}/generation"), table.device.clone());
        let generation = model.local_ints((&name, &device), PartialShape::scalar(), |_| None);
        let mutex = Mutex::new(model, &device, &format!("{TABLE}/mutex"));
        let lease_ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX).min(LEASE_MS_MAX);
        let table = State::of(model, &table);
        Ok(Leases { shards, device, table, generation, mutex, epochs, lease_ms, offers: None })
    }

    /// Adds the offers table, in which workers record the samples of gradients that the chief will
    /// apply.
    pub(crate) fn with_offers(self, model: &Model, workers: usize) -> Leases {
        let (name, shape) = (format!("{TABLE}/offers"), [Some(workers), Some(COLUMNS)]);
        let none = |g: &Graph| Some(g.constant(vec![[0i64; COLUMNS]; workers]));
        let offers = model.local_ints((&name, &self.device), PartialShape::new(shape), none);
        Leases { offers: Some(offers), ..self }
    }

    /// The shards of the table.
    pub fn shards(&self) -> &Shards {
        &self.shards
    }

    /// The device of the table.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The mutex that guards the table.
    pub(crate) fn mutex(&self) -> Mutex {
        self.mutex.clone()
    }

    /// Adds the placeholders that a worker feeds with each batch.
    pub fn batch(&self, graph: &Graph) -> Batch {
        let at = self.beside(graph, "batch");
        let [worker, generation, shard, used, count] =
            ["worker", "generation", "shard", "used", "count"].map(|name| at.placeholder(name, []));
        Batch { worker, generation, shard, used, count }
    }

    /// Adds a claim: among the shards that are free, held by this worker, or whose lease has
    /// expired, it takes the one with the fewest completed epochs and returns the shard that the
    /// worker held. Samples that are offered cannot be claimed until their round has ended.
    pub fn claim(&self, graph: &Graph) -> Claim {
        let at = self.beside(graph, "claim");
        let [worker, generation, is_late] =
            ["worker", "generation", "is_late"].map(|name| at.placeholder(name, []));
        let mut section = self.mutex.enter(&at, &[]);
        let known = self.check_generation(&section.inside, &generation);
        section.after(&[known]);
        let at = &section.inside;
        let columns = unpacked(&self.table.read(at));
        let [_, used, _] = &columns;
        let (me, now) = (holder_of(at, &worker), now_ms(at));
        let is_open = self.is_open(at, &columns, &me, &now);
        let shard = self.furthest_behind(at, used, &is_open, &is_late);
        let found = is_open.gather(&shard);
        let own_used = used.gather(&shard);
        let left = self.left_of(at, used);
        let taken = self.take(at, (&shard, &found), &columns, (&me, &now));
        let shard = found.select(&shard, -1);
        let done = section.leave("claim", &[taken]);
        Claim { worker, generation, is_late, shard, used: own_used, left, done }
    }

    /// Assigns this shard to a worker and frees all others that it holds; assigns none if `found`
    /// is false.
    fn take(
        &self,
        at: &Graph,
        (shard, found): (&Output<i64>, &Output<bool>),
        [holder, used, until]: &Columns,
        (me, now): (&Output<i64>, &Output<i64>),
    ) -> Operation {
        let numbers = at.range(0i64, self.shards.count() as i64, 1);
        let is_it = numbers.equal(shard).logical_and(found);
        let holder = is_it.select(me, holder.equal(me).select(NOBODY, holder));
        let until = is_it.select(now + self.lease_ms, until);
        self.set_columns(at, [&holder, used, &until])
    }

    /// Which shards a worker may claim.
    fn is_open(
        &self,
        at: &Graph,
        [holder, used, until]: &Columns,
        me: &Output<i64>,
        now: &Output<i64>,
    ) -> Output<bool> {
        let is_free = holder.equal(NOBODY).logical_or(holder.equal(me));
        let is_free = is_free.logical_or(until.less(now));
        let is_open = is_free.logical_and(used.less(self.limits(at)));
        let Some(offers) = &self.offers else { return is_open };
        let [shards, _, counts] = unpacked(&offers.read(at));
        let size = [self.shards.count() as i64];
        let counts = tf::scatter_nd(shards.expand_dims(1), &counts, size);
        is_open.logical_and(counts.equal(0))
    }

    /// Samples that remain to be used in all, given how many of each shard have been used.
    fn left_of(&self, at: &Graph, used: &Output<i64>) -> Output<i64> {
        (self.limits(at) - used).maximum(0).sum()
    }

    /// How many samples of each shard are used over all epochs.
    fn limits(&self, at: &Graph) -> Output<i64> {
        self.per_shard(at, |size| size.saturating_mul(self.epochs))
    }

    /// Adds an update: under the mutex, if the worker still holds the batch, it runs the nodes that
    /// `change` adds, then records the batch as used. It enters the critical section only once the
    /// `ready` nodes have run, so it waits for nothing inside. Returns the node to run.
    pub fn commit(
        &self,
        graph: &Graph,
        batch: &Batch,
        ready: &[Operation],
        change: impl FnOnce(&Graph) -> Result<Vec<Operation>>,
    ) -> Result<Operation> {
        let mut section = self.mutex.enter(&self.beside(graph, "commit"), ready);
        let known = self.check_generation(&section.inside, &batch.generation);
        let is_held = self.check_held(&section.inside, batch);
        section.after(&[known, is_held]);
        let generation = self.begin_change(&mut section);
        let changed = change(&section.inside)?;
        section.after(&changed);
        let at = &section.inside;
        let used = batch.used.within(at) + &batch.count;
        let entered = self.renew(at, batch, &used);
        section.after(&[entered]);
        let ended = self.end_change(&section, &generation);
        Ok(section.leave("commit", &[ended]))
    }

    /// Adds the begin of an update of the variables: until its end the variables have no
    /// generation, so a step that fails in between leaves nothing that other workers would continue
    /// with. Returns the generation, for [`Leases::end_change`].
    pub(crate) fn begin_change(&self, section: &mut Section) -> Output<i64> {
        let generation = self.whole_generation(section);
        let begun = self.generation.assign(&section.inside, NONE);
        section.after(&[begun]);
        generation
    }

    /// The generation of the variables; the step fails if they have none.
    fn whole_generation(&self, section: &mut Section) -> Output<i64> {
        let generation = self.generation.read(&section.inside);
        let sentence = "the variables have no generation: an update did not complete";
        let is_whole = check(&generation.not_equal(NONE), sentence, &generation);
        section.after(&[is_whole]);
        generation
    }

    /// Adds the end of a complete update: it restores the generation.
    pub(crate) fn end_change(&self, section: &Section, generation: &Output<i64>) -> Operation {
        self.generation.assign(&section.inside, generation)
    }

    /// Adds what a worker does with a batch whose gradient the chief will apply: if `is_in_time`,
    /// it records the batch as offered. It renews the lease in both cases.
    pub(crate) fn offer(
        &self,
        section: &mut Section,
        batch: &Batch,
        is_in_time: &Output<bool>,
    ) -> Result<Operation> {
        let known = self.check_generation(&section.inside, &batch.generation);
        let is_held = self.check_held(&section.inside, batch);
        section.after(&[known, is_held]);
        let renewed = self.renew(&section.inside, batch, &batch.used);
        section.after(&[renewed]);
        let at = &section.inside;
        let count = is_in_time.within(at).select(&batch.count, 0);
        let row = at.stack(&[&batch.shard, &batch.used, &count], 0);
        Ok(self.offers()?.scatter_update(at, &batch.worker, &row))
    }

    /// Records the offered batches of the workers in `is_used` as used, and clears all offers.
    pub(crate) fn settle(
        &self,
        section: &mut Section,
        is_used: &Output<bool>,
    ) -> Result<Operation> {
        let at = &section.inside;
        let [shards, _, counts] = unpacked(&self.offers()?.read(at));
        let counts = is_used.within(at).select(&counts, 0);
        // An offered shard is not claimed by another worker, so no row is updated twice.
        let none = counts.zeros_like();
        let entered = self.table.scatter_add(at, &shards, at.stack(&[&none, &counts, &none], 1));
        section.after(&[entered]);
        self.withdraw_all(section)
    }

    /// Clears the offer of a worker.
    pub(crate) fn withdraw(&self, section: &Section, worker: i64) -> Result<Operation> {
        Ok(self.offers()?.scatter_update(&section.inside, worker, [0; COLUMNS]))
    }

    /// Clears all offers.
    pub(crate) fn withdraw_all(&self, section: &Section) -> Result<Operation> {
        let (at, offers) = (&section.inside, self.offers()?);
        Ok(offers.assign(at, offers.read(at).zeros_like()))
    }

    fn offers(&self) -> Result<&State<i64>> {
        self.offers.as_ref().ok_or_else(|| err!(Internal, "the lease table has no offers"))
    }

    /// Adds a node that frees all shards of a worker, whose index is fed.
    pub fn release(&self, graph: &Graph) -> (Output<i64>, Operation) {
        let at = self.beside(graph, "release");
        let worker = at.placeholder("worker", []);
        let section = self.mutex.enter(&at, &[]);
        let at = &section.inside;
        let [holder, used, until] = unpacked(&self.table.read(at));
        let holder = holder.equal(holder_of(at, &worker)).select(NOBODY, &holder);
        let released = self.set_columns(at, [&holder, &used, &until]);
        (worker, section.leave("release", &[released]))
    }

    /// Adds a node that frees all shards: after a restore, no worker holds the shards that the
    /// checkpoint says it does.
    pub fn release_all(&self, graph: &Graph) -> Operation {
        let section = self.mutex.enter(&self.beside(graph, "release_all"), &[]);
        let at = &section.inside;
        let [_, used, _] = unpacked(&self.table.read(at));
        let none = used.zeros_like();
        let released = self.set_columns(at, [&none, &used, &none]);
        section.leave("release_all", &[released])
    }

    /// Adds a node that sets the generation of the variables to a value that is fed. Commits and
    /// claims with another generation fail, so a generation that no worker has keeps all workers
    /// out.
    pub fn set_generation(&self, graph: &Graph) -> (Output<i64>, Operation) {
        let at = self.beside(graph, "set_generation");
        let value = at.placeholder("value", []);
        let section = self.mutex.enter(&at, &[]);
        let set = self.generation.assign(&section.inside, &value);
        (value, section.leave("set_generation", &[set]))
    }

    /// The generation of the variables, and the lease table.
    pub fn state(&self, graph: &Graph) -> (Output<i64>, Output<i64>) {
        let at = self.beside(graph, "state");
        // Under the mutex: during an update the variables have no generation.
        let section = self.mutex.enter(&at, &[]);
        let read = [&self.generation, &self.table].map(|state| state.read(&section.inside));
        let left = section.leave("read", &read.each_ref().map(Output::operation));
        let at = at.after(&[&left]);
        let [generation, table] = read.map(|value| tf::identity(value.within(&at)));
        (generation, table)
    }

    /// Samples that remain to be used in all.
    pub fn left(&self, graph: &Graph) -> Output<i64> {
        let at = self.beside(graph, "left");
        let [_, used, _] = unpacked(&self.table.read(&at));
        self.left_of(&at, &used)
    }

    /// Adds reads of variables that see no partial update; returns the values, and the node to run
    /// with them.
    pub fn snapshot(&self, graph: &Graph, variables: &[Variable]) -> (Vec<Output<Any>>, Operation) {
        let mut section = self.mutex.enter(&self.beside(graph, "snapshot"), &[]);
        self.whole_generation(&mut section);
        let at = &section.inside;
        let read = |variable: &Variable| State::of(at, variable).read(&at.device(&variable.device));
        let values: Vec<Output<Any>> = variables.iter().map(read).collect();
        let read: Vec<Operation> = values.iter().map(Output::operation).collect();
        (values, section.leave("snapshot", &read))
    }

    /// The view of the nodes of one of the table's ops.
    fn beside(&self, graph: &Graph, name: &str) -> Graph {
        graph.root().device(&self.device).scope(&format!("{TABLE}/{name}"))
    }

    fn set_columns(&self, at: &Graph, columns: [&Output<i64>; COLUMNS]) -> Operation {
        self.table.assign(at, at.stack(&columns, 1))
    }

    /// A tensor with one number per shard, computed from the shard's size.
    fn per_shard(&self, at: &Graph, number: impl Fn(u64) -> u64) -> Output<i64> {
        let sizes = (0..self.shards.count()).map(|shard| self.shards.size(shard) as u64);
        let numbers = sizes.map(|size| i64::try_from(number(size)).unwrap_or(i64::MAX));
        at.constant(numbers.collect::<Vec<i64>>())
    }

    /// The open shard with the fewest completed epochs, the first of equal ones. A straggler gets
    /// one of the next epoch, if there is one.
    fn furthest_behind(
        &self,
        at: &Graph,
        used: &Output<i64>,
        is_open: &Output<bool>,
        is_late: &Output<i64>,
    ) -> Output<i64> {
        let epochs = used.floor_div(self.per_shard(at, |size| size));
        let is_for_others = epochs.equal(epochs.min()).logical_and(is_late.within(at).equal(1));
        let keys = is_open.select(is_for_others.select(LAST - 1, &epochs), LAST);
        // ArgMin returns the first of equal elements.
        tf::arg_min::<i64, i64, i32>(keys, 0)
    }

    fn check_generation(&self, at: &Graph, known: &Output<i64>) -> Operation {
        let now = self.generation.read(at);
        check(&now.equal(known), "the variables have another generation", &now)
    }

    fn check_held(&self, at: &Graph, batch: &Batch) -> Operation {
        let row = self.table.gather(at, &batch.shard);
        let wanted = at.stack(&[&holder_of(at, &batch.worker), &batch.used], 0);
        let is_held = row.index(0..2).equal(&wanted).all();
        check(&is_held, "the worker does not hold these samples any more", &row)
    }

    /// Sets how many samples of the batch's shard are used, and begins its lease anew.
    fn renew(&self, at: &Graph, batch: &Batch, used: &Output<i64>) -> Operation {
        let row =
            at.stack(&[&holder_of(at, &batch.worker), used, &(now_ms(at) + self.lease_ms)], 0);
        self.table.scatter_update(at, &batch.shard, &row)
    }
}

/// The holder column of a worker.
fn holder_of(at: &Graph, worker: &Output<i64>) -> Output<i64> {
    worker.within(at) + 1
}

/// Milliseconds since 1970, by the clock of the task that holds the table.
fn now_ms(at: &Graph) -> Output<i64> {
    (tf::timestamp(at) * 1000.0).cast()
}

/// The columns of a table.
fn unpacked(table: &Output<i64>) -> Columns {
    let columns = tf::Unpack::new().axis(1).build(table, COLUMNS as i64);
    columns.try_into().unwrap_or_else(|_| std::array::from_fn(|_| Output::poisoned(table.graph())))
}
