//! Stale synchronous parallel (SSP): workers may be ahead of each other by a bounded number of
//! steps.
//!
//! Each worker has a staleness clock that counts its steps; all clocks are on one device. After a
//! step a worker increments its clock, notifies all workers, and waits on its own queue until it is
//! within the bound. At each notification it reads the clocks again, so it does not matter which
//! worker notified, how often, or whether that worker still lives. A worker that restarts continues
//! with its clock.

use thalweg_api::{Graph, Operation, Output, while_loop};
use thalweg_tensor::{PartialShape, Result};

use super::tokens::Tokens;
use super::{Coordinated, Ledger, Replica, home};
use crate::gradient::Gradients;
use crate::state::State;
use crate::view::{after, group};
use crate::{Model, Optimizer};

/// The clock of a worker that has left: greater than all others, so that no worker waits for it.
const LEFT: i64 = i64::MAX / 2;

pub(super) fn apply(
    model: &Model,
    optimizer: &Optimizer,
    gradients: &Gradients,
    replica: Replica,
    (bound, ledger): (usize, Option<&Ledger>),
) -> Result<Coordinated> {
    let clocks = Clocks::new(model, replica)?;
    let trained = match ledger {
        Some(ledger) => ledger.apply(model, optimizer, gradients)?,
        None => optimizer.clip_and_apply(model, gradients),
    };
    let ticked = clocks.tick(&trained);
    let step = group(model, "step", &[clocks.wait(&ticked, bound)]);
    let (start_worker, leave) = (clocks.start(), clocks.leave());
    Ok(Coordinated {
        start_worker: Some(start_worker.name()?),
        leave: Some(leave.name()?),
        ..Coordinated::of(model, &step)?
    })
}

struct Clocks {
    /// The view of their nodes, on the device of the clocks.
    at: Graph,
    index: i64,
    clocks: State<i64>,
    signals: Vec<Tokens>,
}

impl Clocks {
    fn new(model: &Model, replica: Replica) -> Result<Clocks> {
        let device = home(model)?;
        let zeros = |g: &Graph| Some(g.constant(vec![0; replica.count]));
        let shape = PartialShape::new([Some(replica.count)]);
        let clocks = model.local_ints(("coordination/clocks", &device), shape, zeros);
        let at = model.device(&device).scope("coordination");
        let signal = |index| Tokens::new(&at, "coordination/signal", index).signal();
        let signals = (0..replica.count).map(signal).collect();
        Ok(Clocks { index: replica.index as i64, clocks, signals, at })
    }

    /// Increments the worker's clock and notifies all workers.
    fn tick(&self, trained: &Operation) -> Vec<Operation> {
        let at = self.at.scope("tick").after(&[trained]);
        let ticked = self.clocks.scatter_add(&at, self.index, 1);
        self.ring(&at.after(&[&ticked]))
    }

    /// Waits until one more step is within the bound.
    fn wait(&self, ticked: &[Operation], bound: usize) -> Operation {
        let at = self.at.scope("wait");
        let most = i64::try_from(bound).unwrap_or(i64::MAX);
        let signal = &self.signals[self.index as usize];
        let lead = self.lead(&after(&at, ticked)).within(&at);
        let lead = while_loop(
            lead,
            |lead| lead.greater_equal(most),
            |_| self.lead(&at.after(&[&signal.wait(&at)])).within(&at),
        );
        lead.operation()
    }

    /// How many steps this worker is ahead of the slowest.
    fn lead(&self, at: &Graph) -> Output<i64> {
        let clocks = self.clocks.read(at);
        clocks.gather(self.index) - clocks.min()
    }

    /// Sets the clock of a worker that had left to that of the slowest worker.
    fn start(&self) -> Operation {
        let at = self.at.scope("start_worker");
        let old = self.signals[self.index as usize].take_all(&at);
        let at = at.after(&[&old]);
        let last = self.clocks.read(&at).min();
        let last = last.greater_equal(LEFT).select(0, &last);
        let own = self.clocks.gather(&at, self.index);
        self.set(&at, &own.greater_equal(LEFT).select(&last, &own), "start_worker")
    }

    fn leave(&self) -> Operation {
        let at = self.at.scope("leave");
        self.set(&at, &at.constant(LEFT), "leave")
    }

    /// Sets the worker's clock and notifies all workers.
    fn set(&self, at: &Graph, clock: &Output<i64>, name: &str) -> Operation {
        let set = self.clocks.scatter_update(at, self.index, clock);
        group(at, name, &self.ring(&at.after(&[&set])))
    }

    fn ring(&self, at: &Graph) -> Vec<Operation> {
        self.signals.iter().map(|signal| signal.ring(at)).collect()
    }
}
