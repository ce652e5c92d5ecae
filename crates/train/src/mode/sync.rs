//! Synchronous training, with or without spare workers.
//!
//! Training goes in rounds. In a round each worker delivers its gradients to their store and then
//! casts its vote; the chief takes the votes once there are enough, changes the variables by the
//! gradients of those who voted, and hands each worker a token with the number of the next round.
//! Votes are one accumulator, so which gradients a round used is decided at one place and time, for
//! whole gradients; a vote that comes after its round is dropped by it. Rounds are numbered apart
//! from steps: a chief that starts anew gives the round up that was on its way, and whatever is still
//! coming for it is late.

use thalweg_graph::{NodeId, Output, Scope};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor};

use super::store::{Admitted, Store};
use super::tokens::Tokens;
use super::{ChiefOps, Coordinated, Ledger, Order, Replica, home};
use crate::leases::Leases;
use crate::model::FirstValue;
use crate::{Model, Optimizer, Variable};

/// Votes that nobody cast are of no round.
const NO_ROUND: i64 = -1;

/// What a round asks for.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    /// Gradients that it waits for.
    pub needed: usize,
    pub order: Order,
    /// Where the samples of its gradients are accounted for.
    pub ledger: Option<&'a Ledger>,
}

/// Adds a worker's step and, for worker 0, what the chief runs.
pub(super) fn minimize(
    model: &mut Model,
    optimizer: &Optimizer,
    loss: Output,
    replica: Replica,
    terms: Terms<'_>,
) -> Result<Coordinated> {
    let gradients = optimizer.whole_gradients(model, loss)?;
    let store = Store::new(model, &gradients, replica.count, terms.order)?;
    let rounds = Rounds::new(model, replica.count)?;
    let offers = match terms.ledger {
        Some(ledger) => {
            Some((ledger, Leases::offers(model, ledger.leases.device(), replica.count)?))
        }
        None => None,
    };
    let (step, used) = rounds.step(model, replica.index, |model, round| {
        let mut delivered = store.deliver(model, &gradients, replica.index, round)?;
        if let Some((ledger, offers)) = offers {
            delivered.push(ledger.leases.offer(model, &ledger.batch, offers)?);
        }
        Ok(delivered)
    })?;
    let start_worker = rounds.start_worker(replica.index)?;
    let chief = match replica.index {
        0 => Some(rounds.chief(model, optimizer, &store, (terms.needed, offers))?),
        _ => None,
    };
    Ok(Coordinated {
        used: Some(model.name_of(used)),
        start_worker: Some(model.node_name(start_worker)),
        chief,
        ..Coordinated::of(model, step)?
    })
}

/// The state that rounds are made of, all on one device.
struct Rounds {
    /// At that device.
    scope: Scope,
    count: usize,
    /// The number of this round: only the chief changes it.
    round: Output,
    /// The round that each worker computes a gradient for.
    of_workers: Output,
    /// The last round that used a gradient of each worker.
    last_used: Output,
    /// Votes of the round that the chief changes variables for.
    admitted: Output,
    /// Set once the chief has started.
    started: Output,
    /// An accumulator of a vector with one element per worker.
    votes: Output,
    tokens: Vec<Tokens>,
}

impl Rounds {
    fn new(model: &Model, count: usize) -> Result<Rounds> {
        let device = home(model)?;
        let each = PartialShape::from(&Shape::new(&[count])?);
        let scalar = PartialShape::scalar();
        let number = |value: i64| move |scope: &mut Scope| scope.constant(&Tensor::scalar(value));
        let numbers = |value: i64| {
            let values = vec![value; count];
            move |scope: &mut Scope| scope.constant(&Tensor::vector(&values)?)
        };
        let none = vec![0f32; count];
        let no_votes = |scope: &mut Scope| scope.constant(&Tensor::vector(&none)?);
        let local = |name: &str, shape: &PartialShape, first: &FirstValue<'_>| {
            model.local(&format!("coordination/{name}"), &device, DType::Int64, shape, Some(first))
        };
        let round = local("round", &scalar, &number(0))?;
        let of_workers = local("round_of_worker", &each, &numbers(NO_ROUND))?;
        let last_used = local("last_used", &each, &numbers(NO_ROUND))?;
        let admitted = "coordination/admitted";
        let admitted = model.local(admitted, &device, DType::Float, &each, Some(&no_votes))?;
        let started = model.local("coordination/started", &device, DType::Int64, &scalar, None)?;
        let mut scope = model.on_device(&device).child("coordination");
        let votes = scope.op("ConditionalAccumulator").name("votes").attr("dtype", DType::Float);
        let votes = votes.attr("shape", &each).attr("shared_name", "coordination/votes");
        let votes = votes.attr("reduction_type", "SUM").build()?;
        let mut tokens = Vec::with_capacity(count);
        for index in 0..count {
            tokens.push(Tokens::new(&mut scope, "sync_token_q", index)?);
        }
        Ok(Rounds { scope, count, round, of_workers, last_used, admitted, started, votes, tokens })
    }

    /// A worker's step, and whether its gradient was used.
    fn step(
        &self,
        model: &mut Model,
        index: usize,
        deliver: impl FnOnce(&Model, Output) -> Result<Vec<NodeId>>,
    ) -> Result<(NodeId, Output)> {
        let mut scope = self.scope.child("step");
        let position = scope.constant(&Tensor::scalar(index as i64))?;
        let round = element(&mut scope, self.of_workers, position)?;
        let delivered = deliver(model, round)?;
        let mut own = vec![0f32; self.count];
        own[index] = 1.0;
        let own = scope.constant(&Tensor::vector(&own)?)?;
        let vote = scope.op("AccumulatorApplyGradient").inputs(&[self.votes, round, own]);
        let vote = vote.after(&delivered).build_node()?;
        let token = self.tokens[index].wait(&mut scope.after(&[vote]))?;
        let mut then = scope.after(&[token.node]);
        let last_used = element(&mut then, self.last_used, position)?;
        let used = then.add("Equal", &[last_used, round])?;
        let node = scope.op("ResourceScatterUpdate").inputs(&[self.of_workers, position, token]);
        let go_on = node.after(&[used.node]).build_node()?;
        let all = [vec![go_on], model.updates()].concat();
        Ok((model.op("NoOp").name("train_step").after(&all).build_node()?, used))
    }

    /// A worker begins with the round that is on its way; what it was told before is of no interest.
    fn start_worker(&self, index: usize) -> Result<NodeId> {
        let mut scope = self.scope.child("start_worker");
        let old = self.tokens[index].take_all(&mut scope)?;
        let round = read(&mut scope.after(&[old.node]), self.round, DType::Int64)?;
        let position = scope.constant(&Tensor::scalar(index as i64))?;
        let node = scope.op("ResourceScatterUpdate").name("start_worker");
        node.inputs(&[self.of_workers, position, round]).build_node()
    }

    fn chief(
        &self,
        model: &mut Model,
        optimizer: &Optimizer,
        store: &Store,
        (needed, offers): (usize, Option<(&Ledger, Output)>),
    ) -> Result<ChiefOps> {
        let nodes = [
            self.start_chief(model, store)?,
            self.wait(needed)?,
            self.apply(model, optimizer, store, offers)?,
            self.release()?,
        ];
        let [start, wait, apply, release] = nodes.map(|node| model.node_name(node));
        Ok(ChiefOps { start, wait, apply, release })
    }

    /// Begins a new round, with nothing in it.
    fn start_chief(&self, model: &Model, store: &Store) -> Result<NodeId> {
        let mut scope = self.scope.child("start_chief");
        let next = self.next_round(&mut scope)?;
        let none = scope.constant(&Tensor::vector(&vec![0f32; self.count])?)?;
        let (votes, op) = (self.votes, "AccumulatorApplyGradient");
        let mut cleared = vec![clear(&mut scope, votes, next, |scope, last| {
            scope.op(op).inputs(&[votes, last, none]).build_node()
        })?];
        cleared.extend(store.clear(model, next)?);
        let told = self.begin(&mut scope.after(&cleared), next)?;
        let one = scope.constant(&Tensor::scalar(1i64))?;
        let node = scope.op("AssignVariableOp").name("start_chief");
        node.inputs(&[self.started, one]).after(&told).build_node()
    }

    fn wait(&self, needed: usize) -> Result<NodeId> {
        let mut scope = self.scope.child("wait");
        let taken = take(&mut scope, self.votes, needed)?;
        let node = scope.op("AssignVariableOp").name("wait");
        node.inputs(&[self.admitted, taken]).build_node()
    }

    fn apply(
        &self,
        model: &Model,
        optimizer: &Optimizer,
        store: &Store,
        offers: Option<(&Ledger, Output)>,
    ) -> Result<NodeId> {
        let mut scope = self.scope.child("apply");
        let votes = read(&mut scope, self.admitted, DType::Float)?;
        let admitted = Admitted { votes, count: self.count };
        // Whatever the optimizer reads is as it is now, not as it was before the gradients came.
        let after = model.with_scope(model.after(&[votes.node]));
        let gradients = store.combine(&after, admitted)?;
        let beside = |model: &Model, variable: &Variable| model.on(&variable.device);
        let gradients = optimizer.clipped(&after, gradients, beside)?;
        let zero = scope.constant(&Tensor::scalar(0f32))?;
        let is_used = scope.add("Greater", &[votes, zero])?;
        let changed = match offers {
            Some((ledger, offers)) => {
                let change = |inside: &Model| optimizer.change_all(inside, &gradients);
                vec![ledger.leases.settle(model, (offers, is_used), &gradients, change)?]
            }
            None => optimizer.change_all(&after, &gradients)?,
        };
        let now = read(&mut scope, self.round, DType::Int64)?;
        let before = read(&mut scope, self.last_used, DType::Int64)?;
        let used = scope.add("SelectV2", &[is_used, now, before])?;
        let node = scope.op("AssignVariableOp").inputs(&[self.last_used, used]);
        let noted = node.after(&changed).build_node()?;
        let one = scope.constant(&Tensor::scalar(1i64))?;
        let next = scope.add("AddV2", &[now, one])?;
        let told = self.begin(&mut scope.after(&[noted]), next)?;
        scope.op("NoOp").name("apply").after(&told).build_node()
    }

    fn release(&self) -> Result<NodeId> {
        let mut scope = self.scope.child("release");
        let now = read(&mut scope, self.round, DType::Int64)?;
        let told = self.tell(&mut scope, now)?;
        scope.op("NoOp").name("release").after(&told).build_node()
    }

    fn next_round(&self, scope: &mut Scope) -> Result<Output> {
        let now = read(scope, self.round, DType::Int64)?;
        let one = scope.constant(&Tensor::scalar(1i64))?;
        scope.add("AddV2", &[now, one])
    }

    /// Makes a round the present one, then tells the workers: one that starts in between must not
    /// throw the token away and read the old number.
    fn begin(&self, scope: &mut Scope, round: Output) -> Result<Vec<NodeId>> {
        let node = scope.op("AssignVariableOp").inputs(&[self.round, round]);
        let begun = node.build_node()?;
        self.tell(&mut scope.after(&[begun]), round)
    }

    fn tell(&self, scope: &mut Scope, round: Output) -> Result<Vec<NodeId>> {
        self.tokens.iter().map(|tokens| tokens.write(scope, round)).collect()
    }
}

/// Empties an accumulator for `round`: what was meant for earlier ones is dropped from now on.
/// `add` adds nothing to it, so that there is something to take.
pub(super) fn clear(
    scope: &mut Scope,
    accumulator: Output,
    round: Output,
    add: impl FnOnce(&mut Scope, Output) -> Result<NodeId>,
) -> Result<NodeId> {
    let set = |scope: &mut Scope| {
        scope.op("AccumulatorSetGlobalStep").inputs(&[accumulator, round]).build_node()
    };
    let closed = set(scope)?;
    let last = scope.constant(&Tensor::scalar(i64::MAX))?;
    let added = add(&mut scope.after(&[closed]), last)?;
    let taken = take(&mut scope.after(&[added]), accumulator, 1)?;
    // Taking has counted the round up.
    set(&mut scope.after(&[taken.node]))
}

/// What an accumulator holds, once it has enough: the first of its outputs.
pub(super) fn take(scope: &mut Scope, accumulator: Output, needed: usize) -> Result<Output> {
    let needed = scope.constant(&Tensor::scalar(i32::try_from(needed).unwrap_or(i32::MAX)))?;
    let (is_sparse, dtype) = scope.with_graph(|graph| {
        let node = graph.node(accumulator.node);
        (node.op.name.starts_with("Sparse"), node.attrs().dtype("dtype"))
    });
    let op = if is_sparse { "SparseAccumulatorTakeGradient" } else { "AccumulatorTakeGradient" };
    scope.op(op).inputs(&[accumulator, needed]).attr("dtype", dtype?).build()
}

fn read(scope: &mut Scope, handle: Output, dtype: DType) -> Result<Output> {
    scope.op("ReadVariableOp").input(handle).attr("dtype", dtype).build()
}

/// One element of a vector of int64.
pub(super) fn element(scope: &mut Scope, handle: Output, position: Output) -> Result<Output> {
    let node = scope.op("ResourceGather").inputs(&[handle, position]);
    node.attr("dtype", DType::Int64).build()
}
