//! Synchronous training, with or without backup workers.
//!
//! Training runs in rounds. In a round each worker adds its gradients to the buffers and then
//! votes. The chief waits for enough votes, applies the gradients of the workers that voted, and
//! sends each worker a token with the number of the next round. Votes are cast, withdrawn and
//! counted under one mutex, so the set of gradients that a round applies is decided at one point,
//! for whole gradients; a vote that arrives after its round is void. A worker without samples
//! leaves, and the chief does not wait for it. Round numbers are independent of the global step: a
//! chief that restarts aborts the round in flight, and gradients that still arrive for that round
//! are stale.

use thalweg_graph::{Adjoint, NodeId, Output, Scope};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor};

use super::store::{Admitted, Store};
use super::tokens::Tokens;
use super::{ChiefOps, Coordinated, Ledger, Order, Replica, home};
use crate::model_scope::FirstValue;
use crate::section::{Mutex, Section, check};
use crate::{ModelScope, Optimizer, Variable};

/// The vote of a worker that has not voted.
const NO_ROUND: i64 = -1;
/// The vote of a worker that has left.
const LEFT: i64 = -2;

/// The parameters of a round.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    /// The number of votes that a round waits for; workers that have left count.
    pub needed: usize,
    pub order: Order,
    /// Where the samples of its gradients are recorded.
    pub ledger: Option<&'a Ledger>,
}

/// Adds a worker's step and, for worker 0, the chief's ops.
pub(super) fn apply(
    model: &mut ModelScope,
    optimizer: &Optimizer,
    gradients: &[(Variable, Adjoint)],
    replica: Replica,
    terms: Terms<'_>,
) -> Result<Coordinated> {
    let store = Store::new(model, gradients, replica.count, terms.order)?;
    let rounds = Rounds::new(model, replica, terms)?;
    let (step, used) =
        rounds.step(model, |model, round| store.deliver(model, gradients, replica.index, round))?;
    let (start_worker, leave) = (rounds.start_worker()?, rounds.leave()?);
    let chief = match replica.index {
        0 => Some(rounds.chief(model, optimizer, &store)?),
        _ => None,
    };
    Ok(Coordinated {
        used: Some(model.name_of(used)),
        start_worker: Some(model.node_name(start_worker)),
        leave: Some(model.node_name(leave)),
        chief,
        ..Coordinated::of(model, step)?
    })
}

/// The state of the rounds, all on one device.
struct Rounds<'a> {
    /// The model on that device.
    at: ModelScope,
    replica: Replica,
    terms: Terms<'a>,
    /// Guards the votes and the updates of variables.
    mutex: Mutex,
    /// The number of the current round; only the chief changes it.
    round: Output,
    /// The round that each worker computes a gradient for.
    of_workers: Output,
    /// How often each worker has started: the vote of an earlier incarnation does not count.
    starts: Output,
    /// The round that each worker has voted for.
    votes: Output,
    /// The last round that applied a gradient of each worker.
    last_used: Output,
    /// Whether the chief has started.
    started: Output,
    /// Signalled when votes change.
    signal: Tokens,
    tokens: Vec<Tokens>,
}

impl Rounds<'_> {
    fn new<'a>(model: &ModelScope, replica: Replica, terms: Terms<'a>) -> Result<Rounds<'a>> {
        let device = match terms.ledger {
            Some(ledger) => ledger.leases.device().to_owned(),
            None => home(model)?,
        };
        let mutex = match terms.ledger {
            Some(ledger) => ledger.leases.mutex(),
            None => Mutex::new(model, &device, "coordination/mutex")?,
        };
        let each = PartialShape::from(&Shape::new(&[replica.count])?);
        let scalar = PartialShape::scalar();
        let number = |value: i64| move |scope: &mut Scope| scope.constant(&Tensor::scalar(value));
        let numbers = |value: i64| {
            let values = vec![value; replica.count];
            move |scope: &mut Scope| scope.constant(&Tensor::vector(&values)?)
        };
        let local = |name: &str, shape: &PartialShape, first: Option<&FirstValue<'_>>| {
            model.local(&format!("coordination/{name}"), &device, DType::Int64, shape, first)
        };
        let at = model.on(&device);
        let mut at = at.with_scope(at.child("coordination"));
        let mut tokens = Vec::with_capacity(replica.count);
        for index in 0..replica.count {
            tokens.push(Tokens::new(&mut at, "sync_token_q", index)?);
        }
        Ok(Rounds {
            replica,
            terms,
            mutex,
            round: local("round", &scalar, Some(&number(0)))?,
            of_workers: local("round_of_worker", &each, Some(&numbers(NO_ROUND)))?,
            starts: local("starts", &each, Some(&numbers(0)))?,
            votes: local("votes", &each, Some(&numbers(NO_ROUND)))?,
            last_used: local("last_used", &each, Some(&numbers(NO_ROUND)))?,
            started: local("started", &scalar, None)?,
            signal: Tokens::new(&mut at, "coordination/chief", 0)?.signal(),
            tokens,
            at,
        })
    }

    /// A worker's step, and whether its gradient was applied.
    fn step(
        &self,
        model: &mut ModelScope,
        deliver: impl FnOnce(&ModelScope, Output) -> Result<Vec<NodeId>>,
    ) -> Result<(NodeId, Output)> {
        let mut at = self.part("step");
        let position = self.position(&mut at)?;
        let round = element(&mut at, self.of_workers, position)?;
        let start = element(&mut at, self.starts, position)?;
        let delivered = deliver(model, round)?;
        let cast = self.cast(&at, round, start, &delivered)?;
        let signalled = self.ring(&mut at.after(&[cast]))?;
        let token = self.tokens[self.replica.index].wait(&mut at.after(&[signalled]))?;
        let mut then = at.after(&[token.node]);
        let last_used = element(&mut then, self.last_used, position)?;
        let used = then.add("Equal", &[last_used, round])?;
        let node = at.op("ResourceScatterUpdate").inputs(&[self.of_workers, position, token]);
        let go_on = node.after(&[used.node]).build_node()?;
        let all = [vec![go_on], model.updates()].concat();
        Ok((model.op("NoOp").name("train_step").after(&all).build_node()?, used))
    }

    /// Votes for a worker once its gradients are in the buffers. A stale vote is void.
    fn cast(
        &self,
        at: &ModelScope,
        round: Output,
        start: Output,
        delivered: &[NodeId],
    ) -> Result<NodeId> {
        let mut section = self.mutex.enter(at, &[delivered, &[round.node, start.node]].concat())?;
        let inside = &mut section.inside;
        let position = self.position(inside)?;
        let last = element(inside, self.starts, position)?;
        let is_same = inside.add("Equal", &[last, start])?;
        let is_same = check(inside, is_same, "another process has started as this worker", last)?;
        section.after(&[is_same]);
        let inside = &mut section.inside;
        let now = read(inside, self.round)?;
        let is_in_time = inside.add("Equal", &[now, round])?;
        if let Some(ledger) = self.terms.ledger {
            let offered = ledger.leases.offer(&mut section, &ledger.batch, is_in_time)?;
            section.after(&[offered]);
        }
        let inside = &mut section.inside;
        let none = inside.constant(&Tensor::scalar(NO_ROUND))?;
        let vote = inside.add("SelectV2", &[is_in_time, round, none])?;
        let cast = self.set(inside, self.votes, vote)?;
        section.leave("cast", &[cast])
    }

    /// Lets a worker join the current round: tokens sent to an earlier incarnation are dropped, and
    /// its votes are void.
    fn start_worker(&self) -> Result<NodeId> {
        let mut section = self.mutex.enter(&self.part("start_worker"), &[])?;
        let withdrawn = self.set_vote(&mut section, NO_ROUND)?;
        let inside = &mut section.inside;
        let old = self.tokens[self.replica.index].take_all(inside)?;
        let round = read(&mut inside.after(&[old.node]), self.round)?;
        let of_worker = self.set(inside, self.of_workers, round)?;
        let (position, one) = (self.position(inside)?, inside.constant(&Tensor::scalar(1i64))?);
        let node = inside.op("ResourceScatterAdd").inputs(&[self.starts, position, one]);
        let counted = node.build_node()?;
        section.leave("start_worker", &[withdrawn, of_worker, counted])
    }

    /// Removes a worker from the set that rounds wait for.
    fn leave(&self) -> Result<NodeId> {
        let at = self.part("leave");
        let mut section = self.mutex.enter(&at, &[])?;
        let left = self.set_vote(&mut section, LEFT)?;
        let left = section.leave("left", &[left])?;
        let signalled = self.ring(&mut at.after(&[left]))?;
        at.after(&[signalled]).op("NoOp").name("leave").build_node()
    }

    fn chief(&self, model: &ModelScope, optimizer: &Optimizer, store: &Store) -> Result<ChiefOps> {
        let nodes = [
            self.start_chief(model, store)?,
            self.wait()?,
            self.apply(model, optimizer, store)?,
            self.release()?,
        ];
        let [start, wait, apply, release] = nodes.map(|node| model.node_name(node));
        Ok(ChiefOps { start, wait, apply, release })
    }

    /// Begins a new, empty round.
    fn start_chief(&self, model: &ModelScope, store: &Store) -> Result<NodeId> {
        let at = self.part("start_chief");
        let mut section = self.mutex.enter(&at, &[])?;
        let next = self.next_round(&mut section.inside)?;
        let mut cleared = store.clear(model, next)?;
        if let Some(ledger) = self.terms.ledger {
            cleared.push(ledger.leases.withdraw_all(&mut section)?);
        }
        section.after(&cleared);
        let told = self.begin(&mut section.inside, next)?;
        let begun = section.leave("begun", &told)?;
        let mut at = at.after(&[begun]);
        let one = at.constant(&Tensor::scalar(1i64))?;
        let node = at.op("AssignVariableOp").name("start_chief");
        node.inputs(&[self.started, one]).build_node()
    }

    /// Waits for votes. Some may be withdrawn later; the update checks again.
    fn wait(&self) -> Result<NodeId> {
        let mut at = self.part("wait");
        let is_ready = self.is_ready(&mut at)?;
        let condition = |scope: &mut Scope, ready: &[Output]| scope.add("LogicalNot", &[ready[0]]);
        let body = |scope: &mut Scope, _: &[Output]| {
            let signalled = self.signal.wait(scope)?;
            Ok(vec![self.is_ready(&mut scope.after(&[signalled.node]))?])
        };
        let ready = at.while_loop(&[is_ready], condition, body)?[0];
        at.op("NoOp").name("wait").after(&[ready.node]).build_node()
    }

    /// Whether a round is complete: it has at least one gradient, and no worker that it must wait
    /// for is missing.
    fn is_ready(&self, scope: &mut Scope) -> Result<Output> {
        let (now, votes) = (read(scope, self.round)?, read(scope, self.votes)?);
        let left = scope.constant(&Tensor::scalar(LEFT))?;
        let axis = scope.constant(&Tensor::scalar(0i32))?;
        let mut count = |of: Output| {
            let is_so = scope.add("Equal", &[votes, of])?;
            let ones = scope.cast(is_so, DType::Int64)?;
            scope.add("Sum", &[ones, axis])
        };
        let (has_cast, have_left) = (count(now)?, count(left)?);
        let (one, needed) = (
            scope.constant(&Tensor::scalar(1i64))?,
            scope.constant(&Tensor::scalar(self.terms.needed as i64))?,
        );
        let all = scope.add("AddV2", &[has_cast, have_left])?;
        let is_enough = scope.add("GreaterEqual", &[all, needed])?;
        let is_any = scope.add("GreaterEqual", &[has_cast, one])?;
        scope.add("LogicalAnd", &[is_enough, is_any])
    }

    fn apply(&self, model: &ModelScope, optimizer: &Optimizer, store: &Store) -> Result<NodeId> {
        let mut at = self.part("apply");
        // Incarnations: a worker that restarts while gradients are combined has another one.
        let starts = read(&mut at, self.starts)?;
        let mut at = at.with_scope(at.after(&[starts.node]));
        let (now, votes) = (read(&mut at, self.round)?, read(&mut at, self.votes)?);
        let is_used = at.add("Equal", &[votes, now])?;
        let votes = at.cast(is_used, DType::Float)?;
        let admitted = Admitted { votes, count: self.replica.count };
        // The optimizer reads variables after the gradients have arrived, not before.
        let after = model.with_scope(model.after(&[votes.node]));
        let whole = store.are_whole(&after, admitted)?;
        let counted: Vec<NodeId> = whole.iter().map(|output| output.node).collect();
        let after = after.with_scope(after.after(&counted));
        let gradients = store.combine(&after, admitted)?;
        let beside = |model: &ModelScope, variable: &Variable| model.on(&variable.device);
        let gradients = optimizer.clipped(&after, gradients, beside)?;
        let ready = [nodes(&gradients), vec![is_used.node], counted].concat();
        let mut section = self.mutex.enter(&at, &ready)?;
        let stands = self.check_stands(&mut section.inside, (now, starts, is_used), &whole)?;
        section.after(&[stands]);
        let leases = self.terms.ledger.map(|ledger| &ledger.leases);
        let generation = leases.map(|leases| leases.begin_change(&mut section)).transpose()?;
        let changed = optimizer.change_all(&section.inside, &gradients)?;
        section.after(&changed);
        if let Some((leases, generation)) = leases.zip(generation) {
            let settled = leases.settle(&mut section, is_used)?;
            section.after(&[settled]);
            let ended = leases.end_change(&mut section, generation)?;
            section.after(&[ended]);
        }
        let inside = &mut section.inside;
        let before = read(inside, self.last_used)?;
        let used = inside.add("SelectV2", &[is_used, now, before])?;
        let node = inside.op("AssignVariableOp").inputs(&[self.last_used, used]);
        let noted = node.build_node()?;
        let next = self.next_round(inside)?;
        section.after(&[noted]);
        let told = self.begin(&mut section.inside, next)?;
        section.leave("apply", &told)
    }

    /// Fails the step unless all votes that it counted still stand and the accumulators hold
    /// exactly the gradients of these votes: a worker that restarts withdraws its vote, but cannot
    /// take its gradient out of an accumulator.
    fn check_stands(
        &self,
        inside: &mut ModelScope,
        (round, starts, is_used): (Output, Output, Output),
        whole: &[Output],
    ) -> Result<NodeId> {
        let (now, votes) = (read(inside, self.round)?, read(inside, self.votes)?);
        let axis = inside.int(0)?;
        let is_any = inside.add("Any", &[is_used, axis])?;
        let is_same = inside.add("Equal", &[now, round])?;
        let is_cast = inside.add("Equal", &[votes, round])?;
        let last_starts = read(inside, self.starts)?;
        let is_its = inside.add("Equal", &[last_starts, starts])?;
        let is_cast = inside.add("LogicalAnd", &[is_cast, is_its])?;
        let is_not_used = inside.add("LogicalNot", &[is_used])?;
        let stands = inside.add("LogicalOr", &[is_cast, is_not_used])?;
        let stands = inside.add("All", &[stands, axis])?;
        let all = [&[is_any, is_same, stands], whole].concat();
        let all = inside.op("Pack").inputs(&all).build()?;
        let holds = inside.add("All", &[all, axis])?;
        check(inside, holds, "a worker of the round has restarted: the round is aborted", now)
    }

    fn release(&self) -> Result<NodeId> {
        let mut section = self.mutex.enter(&self.part("release"), &[])?;
        let inside = &mut section.inside;
        let now = read(inside, self.round)?;
        let told = self.tell(inside, now)?;
        section.leave("release", &told)
    }

    fn next_round(&self, scope: &mut Scope) -> Result<Output> {
        let now = read(scope, self.round)?;
        let one = scope.constant(&Tensor::scalar(1i64))?;
        scope.add("AddV2", &[now, one])
    }

    /// Makes `round` the current round and sends tokens to the workers, under the mutex: a worker
    /// that starts must neither drop the token and read the old number, nor find a token of its own
    /// round.
    fn begin(&self, scope: &mut Scope, round: Output) -> Result<Vec<NodeId>> {
        let node = scope.op("AssignVariableOp").inputs(&[self.round, round]);
        let begun = node.build_node()?;
        self.tell(&mut scope.after(&[begun]), round)
    }

    fn tell(&self, scope: &mut Scope, round: Output) -> Result<Vec<NodeId>> {
        self.tokens.iter().map(|tokens| tokens.write(scope, round)).collect()
    }

    fn ring(&self, scope: &mut Scope) -> Result<NodeId> {
        let zero = scope.constant(&Tensor::scalar(0i64))?;
        self.signal.write(scope, zero)
    }

    /// Withdraws the worker's vote and sets another.
    fn set_vote(&self, section: &mut Section, vote: i64) -> Result<NodeId> {
        if let Some(ledger) = self.terms.ledger {
            let position = self.position(&mut section.inside)?;
            let withdrawn = ledger.leases.withdraw(section, position)?;
            section.after(&[withdrawn]);
        }
        let inside = &mut section.inside;
        let vote = inside.constant(&Tensor::scalar(vote))?;
        self.set(inside, self.votes, vote)
    }

    /// Sets the worker's own element.
    fn set(&self, scope: &mut Scope, of: Output, value: Output) -> Result<NodeId> {
        let position = self.position(scope)?;
        scope.op("ResourceScatterUpdate").inputs(&[of, position, value]).build_node()
    }

    fn position(&self, scope: &mut Scope) -> Result<Output> {
        scope.constant(&Tensor::scalar(self.replica.index as i64))
    }

    fn part(&self, name: &str) -> ModelScope {
        self.at.with_scope(self.at.child(name))
    }
}

/// The nodes after which the gradients are computed.
fn nodes(gradients: &[(Variable, Adjoint)]) -> Vec<NodeId> {
    let of = |(_, adjoint): &(Variable, Adjoint)| match adjoint {
        Adjoint::Dense(gradient) => vec![gradient.node],
        Adjoint::Sparse(rows) => vec![rows.values.node, rows.indices.node],
    };
    gradients.iter().flat_map(of).collect()
}

/// Empties an accumulator for `round`; gradients with an earlier round number are dropped from then
/// on. `add` adds a zero gradient, so that there is one to take.
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
    // Taking the gradient has incremented the round.
    set(&mut scope.after(&[taken.node]))
}

/// The value of an accumulator once it has `needed` gradients.
pub(super) fn take(scope: &mut Scope, accumulator: Output, needed: usize) -> Result<Output> {
    let needed = scope.constant(&Tensor::scalar(i32::try_from(needed).unwrap_or(i32::MAX)))?;
    let (is_sparse, dtype) = scope.with_graph(|graph| {
        let node = graph.node(accumulator.node);
        (node.op.name.starts_with("Sparse"), node.attrs().dtype("dtype"))
    });
    let op = if is_sparse { "SparseAccumulatorTakeGradient" } else { "AccumulatorTakeGradient" };
    scope.op(op).inputs(&[accumulator, needed]).attr("dtype", dtype?).build()
}

/// Reads an int64 variable.
fn read(scope: &mut Scope, handle: Output) -> Result<Output> {
    scope.op("ReadVariableOp").input(handle).attr("dtype", DType::Int64).build()
}

/// Reads one element of an int64 vector variable.
pub(super) fn element(scope: &mut Scope, handle: Output, position: Output) -> Result<Output> {
    let node = scope.op("ResourceGather").inputs(&[handle, position]);
    node.attr("dtype", DType::Int64).build()
}
