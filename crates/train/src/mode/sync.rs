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

use thalweg_api::{Graph, Operation, Output, tf, while_loop};
use thalweg_tensor::{PartialShape, Result};

use super::store::{Admitted, Store};
use super::tokens::Tokens;
use super::{ChiefOps, Coordinated, Ledger, Order, Replica, home};
use crate::gradient::Gradients;
use crate::leases::Leases;
use crate::section::{Mutex, Section, check};
use crate::state::State;
use crate::view::{after, group};
use crate::{Model, Optimizer};

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
    model: &Model,
    optimizer: &Optimizer,
    gradients: &Gradients,
    replica: Replica,
    terms: Terms<'_>,
) -> Result<Coordinated> {
    let store = Store::new(model, gradients, replica.count, terms.order);
    let rounds = Rounds::new(model, replica, terms)?;
    let (step, used) =
        rounds.step(model, |round| store.deliver(model, gradients, replica.index, round))?;
    let (start_worker, leave) = (rounds.start_worker()?, rounds.leave()?);
    let chief = match replica.index {
        0 => Some(rounds.chief(model, optimizer, &store)?),
        _ => None,
    };
    Ok(Coordinated {
        used: Some(used.name()?),
        start_worker: Some(start_worker.name()?),
        leave: Some(leave.name()?),
        chief,
        ..Coordinated::of(model, &step)?
    })
}

/// The state of the rounds, all on one device.
struct Rounds<'a> {
    /// The model on that device.
    at: Model,
    /// The worker's index.
    index: i64,
    workers: usize,
    terms: Terms<'a>,
    /// Guards the votes and the updates of variables.
    mutex: Mutex,
    /// The number of the current round; only the chief changes it.
    round: State<i64>,
    /// The round that each worker computes a gradient for.
    of_workers: State<i64>,
    /// How often each worker has started: the vote of an earlier incarnation does not count.
    starts: State<i64>,
    /// The round that each worker has voted for.
    votes: State<i64>,
    /// The last round that applied a gradient of each worker.
    last_used: State<i64>,
    /// Whether the chief has started.
    started: State<i64>,
    /// Signalled when votes change.
    signal: Tokens,
    tokens: Vec<Tokens>,
}

impl Rounds<'_> {
    fn new<'a>(model: &Model, replica: Replica, terms: Terms<'a>) -> Result<Rounds<'a>> {
        let device = match terms.ledger {
            Some(ledger) => ledger.leases.device().to_owned(),
            None => home(model)?,
        };
        let mutex = match terms.ledger {
            Some(ledger) => ledger.leases.mutex(),
            None => Mutex::new(model, &device, "coordination/mutex"),
        };
        let workers = replica.count;
        let each = |name: &str, value: i64| {
            let (name, shape) = (format!("coordination/{name}"), [Some(workers)]);
            let first = |g: &Graph| Some(g.constant(vec![value; workers]));
            model.local_ints((&name, &device), PartialShape::new(shape), first)
        };
        let one = |name: &str, value: Option<i64>| {
            let (name, shape) = (format!("coordination/{name}"), PartialShape::scalar());
            model.local_ints((&name, &device), shape, |g| Some(g.constant(value?)))
        };
        let at = model.at(model.device(&device).scope("coordination"));
        Ok(Rounds {
            index: replica.index as i64,
            workers,
            terms,
            mutex,
            round: one("round", Some(0)),
            of_workers: each("round_of_worker", NO_ROUND),
            starts: each("starts", 0),
            votes: each("votes", NO_ROUND),
            last_used: each("last_used", NO_ROUND),
            started: one("started", None),
            signal: Tokens::new(&at, "coordination/chief", 0).signal(),
            tokens: (0..workers).map(|index| Tokens::new(&at, "sync_token_q", index)).collect(),
            at,
        })
    }

    fn leases(&self) -> Option<&Leases> {
        self.terms.ledger.map(|ledger| &ledger.leases)
    }

    fn own_tokens(&self) -> &Tokens {
        &self.tokens[self.index as usize]
    }

    /// The worker's own element.
    fn own(&self, at: &Graph, of: &State<i64>) -> Output<i64> {
        of.gather(at, self.index)
    }

    /// Sets the worker's own element.
    fn set(&self, at: &Graph, of: &State<i64>, value: &Output<i64>) -> Operation {
        of.scatter_update(at, self.index, value)
    }

    /// A worker's step, and whether its gradient was applied.
    fn step(
        &self,
        model: &Model,
        deliver: impl FnOnce(&Output<i64>) -> Vec<Operation>,
    ) -> Result<(Operation, Output<bool>)> {
        let at = self.at.scope("step");
        let (round, start) = (self.own(&at, &self.of_workers), self.own(&at, &self.starts));
        let cast = self.cast(&at, (&round, &start), deliver(&round))?;
        let signalled = self.signal.ring(&at.after(&[&cast]));
        let token = self.own_tokens().wait(&at.after(&[&signalled]));
        let used = self.own(&at.after(&[&token]), &self.last_used).equal(&round);
        let go_on = self.set(&at.after(&[&used]), &self.of_workers, &token);
        Ok((model.train_step(vec![go_on]), used))
    }

    /// Votes for a worker once its gradients are in the buffers. A stale vote is void.
    fn cast(
        &self,
        at: &Graph,
        (round, start): (&Output<i64>, &Output<i64>),
        mut delivered: Vec<Operation>,
    ) -> Result<Operation> {
        delivered.extend([round.operation(), start.operation()]);
        let mut section = self.mutex.enter(at, &delivered);
        let last = self.own(&section.inside, &self.starts);
        let sentence = "another process has started as this worker";
        let is_same = check(&last.equal(start), sentence, &last);
        section.after(&[is_same]);
        let is_in_time = self.round.read(&section.inside).equal(round);
        if let Some(ledger) = self.terms.ledger {
            let offered = ledger.leases.offer(&mut section, &ledger.batch, &is_in_time)?;
            section.after(&[offered]);
        }
        let inside = &section.inside;
        let vote = is_in_time.within(inside).select(round, NO_ROUND);
        let cast = self.set(inside, &self.votes, &vote);
        Ok(section.leave("cast", &[cast]))
    }

    /// Lets a worker join the current round: tokens sent to an earlier incarnation are dropped, and
    /// its votes are void.
    fn start_worker(&self) -> Result<Operation> {
        let mut section = self.mutex.enter(&self.at.scope("start_worker"), &[]);
        let withdrawn = self.set_vote(&mut section, NO_ROUND)?;
        let inside = &section.inside;
        let old = self.own_tokens().take_all(inside);
        let round = self.round.read(&inside.after(&[&old]));
        let of_worker = self.set(inside, &self.of_workers, &round);
        let counted = self.starts.scatter_add(inside, self.index, 1);
        Ok(section.leave("start_worker", &[withdrawn, of_worker, counted]))
    }

    /// Removes a worker from the set that rounds wait for.
    fn leave(&self) -> Result<Operation> {
        let at = self.at.scope("leave");
        let mut section = self.mutex.enter(&at, &[]);
        let left = self.set_vote(&mut section, LEFT)?;
        let left = section.leave("left", &[left]);
        Ok(group(&at, "leave", &[self.signal.ring(&at.after(&[&left]))]))
    }

    fn chief(&self, model: &Model, optimizer: &Optimizer, store: &Store) -> Result<ChiefOps> {
        Ok(ChiefOps {
            start: self.start_chief(model, store)?.name()?,
            wait: self.wait().name()?,
            apply: self.apply(model, optimizer, store)?.name()?,
            release: self.release().name()?,
        })
    }

    /// Begins a new, empty round.
    fn start_chief(&self, model: &Model, store: &Store) -> Result<Operation> {
        let at = self.at.scope("start_chief");
        let mut section = self.mutex.enter(&at, &[]);
        let next = self.round.read(&section.inside) + 1;
        let mut cleared = store.clear(model, &next);
        if let Some(leases) = self.leases() {
            cleared.push(leases.withdraw_all(&section)?);
        }
        section.after(&cleared);
        let told = self.begin(&section.inside, &next);
        let begun = section.leave("begun", &told);
        let started = self.started.assign(&at.after(&[&begun]), 1);
        Ok(group(&at, "start_chief", &[started]))
    }

    /// Waits for votes. Some may be withdrawn later; the update checks again.
    fn wait(&self) -> Operation {
        let at = self.at.scope("wait");
        let is_ready = while_loop(self.is_ready(&at), Output::logical_not, |_| {
            let signalled = self.signal.wait(&at);
            self.is_ready(&at.after(&[&signalled])).within(&at)
        });
        group(&at, "wait", &[is_ready.operation()])
    }

    /// Whether a round is complete: it has at least one gradient, and no worker that it must wait
    /// for is missing.
    fn is_ready(&self, at: &Graph) -> Output<bool> {
        let (now, votes) = (self.round.read(at), self.votes.read(at));
        let has_cast = votes.equal(&now).cast::<i64>().sum();
        let have_left = votes.equal(LEFT).cast::<i64>().sum();
        let is_enough = (&has_cast + have_left).greater_equal(self.terms.needed as i64);
        is_enough.logical_and(has_cast.greater_equal(1))
    }

    fn apply(&self, model: &Model, optimizer: &Optimizer, store: &Store) -> Result<Operation> {
        let at = self.at.scope("apply");
        // Incarnations: a worker that restarts while gradients are combined has another one.
        let starts = self.starts.read(&at);
        let at = at.after(&[&starts]);
        let now = self.round.read(&at);
        let is_used = self.votes.read(&at).equal(&now);
        let admitted = Admitted { votes: is_used.cast(), count: self.workers };
        // The optimizer reads variables after the gradients have arrived, not before.
        let then = model.after(&[&admitted.votes]);
        let whole = store.are_whole(&then, &admitted);
        let counted: Vec<Operation> = whole.iter().map(Output::operation).collect();
        let then = after(&then, &counted);
        let gradients = store.combine(&then, &admitted);
        let gradients = optimizer.clipped(&then, gradients, |v| then.device(&v.device));
        let arrived = gradients.iter().flat_map(|(_, gradient)| gradient.operations());
        let ready: Vec<Operation> =
            arrived.chain([is_used.operation()]).chain(counted.iter().cloned()).collect();
        let mut section = self.mutex.enter(&at, &ready);
        let stands = self.check_stands(&section.inside, (&now, &starts, &is_used), &whole);
        section.after(&[stands]);
        let generation = self.leases().map(|leases| leases.begin_change(&mut section));
        let changed = optimizer.change_all(&self.at.at(section.inside.clone()), &gradients)?;
        section.after(&changed);
        if let Some((leases, generation)) = self.leases().zip(generation) {
            let settled = leases.settle(&mut section, &is_used)?;
            section.after(&[settled]);
            let ended = leases.end_change(&section, &generation);
            section.after(&[ended]);
        }
        let inside = &section.inside;
        let used = is_used.within(inside).select(&now, self.last_used.read(inside));
        let noted = self.last_used.assign(inside, &used);
        let next = self.round.read(inside) + 1;
        section.after(&[noted]);
        let told = self.begin(&section.inside, &next);
        Ok(section.leave("apply", &told))
    }

    /// Fails the step unless all votes that it counted still stand and the accumulators hold
    /// exactly the gradients of these votes: a worker that restarts withdraws its vote, but cannot
    /// take its gradient out of an accumulator.
    fn check_stands(
        &self,
        inside: &Graph,
        (round, starts, is_used): (&Output<i64>, &Output<i64>, &Output<bool>),
        whole: &[Output<bool>],
    ) -> Operation {
        let (now, is_used) = (self.round.read(inside), is_used.within(inside));
        let is_cast = self.votes.read(inside).equal(round);
        let is_cast = is_cast.logical_and(self.starts.read(inside).equal(starts));
        let stands = is_cast.logical_or(is_used.logical_not()).all();
        let mut all = vec![is_used.any_true(), now.equal(round), stands];
        all.extend_from_slice(whole);
        let sentence = "a worker of the round has restarted: the round is aborted";
        check(&tf::pack(inside, &all).all(), sentence, &now)
    }

    fn release(&self) -> Operation {
        let section = self.mutex.enter(&self.at.scope("release"), &[]);
        let now = self.round.read(&section.inside);
        let told = self.tell(&section.inside, &now);
        section.leave("release", &told)
    }

    /// Makes `round` the current round and sends tokens to the workers, under the mutex: a worker
    /// that starts must neither drop the token and read the old number, nor find a token of its own
    /// round.
    fn begin(&self, at: &Graph, round: &Output<i64>) -> Vec<Operation> {
        let begun = self.round.assign(at, round);
        self.tell(&at.after(&[&begun]), round)
    }

    fn tell(&self, at: &Graph, round: &Output<i64>) -> Vec<Operation> {
        self.tokens.iter().map(|tokens| tokens.write(at, round)).collect()
    }

    /// Withdraws the worker's vote and sets another.
    fn set_vote(&self, section: &mut Section, vote: i64) -> Result<Operation> {
        if let Some(leases) = self.leases() {
            let withdrawn = leases.withdraw(section, self.index)?;
            section.after(&[withdrawn]);
        }
        let inside = &section.inside;
        Ok(self.set(inside, &self.votes, &inside.constant(vote)))
    }
}
