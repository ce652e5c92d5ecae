//! How several workers train one model together.
//!
//! A mode is a part of the graph: what a worker waits for are queues and accumulators on the
//! parameter servers, and all that a client does is to run steps. State that the modes keep lies
//! there too, under names that begin with `coordination/`, so a worker that dies takes nothing along,
//! and one that comes back goes on after its `start_worker`.

mod ledger;
#[cfg(test)]
mod mode_tests;
mod stale;
mod store;
mod sync;
mod tokens;
mod towers;

use thalweg_graph::{NodeId, Output};
use thalweg_tensor::{Result, Tensor, ensure, err};

use crate::{Model, Optimizer, RunSteps};

pub(crate) use ledger::Ledger;
pub use towers::train_towers;

/// How workers that train one model wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Not at all: each changes the variables when it has a gradient.
    Async,
    /// Variables change once per round, by the mean of one gradient of each worker.
    Sync {
        /// In which order gradients are added.
        order: Order,
    },
    /// As [`Mode::Sync`], but a round waits for all workers but `spare` of them; gradients that come
    /// after it are dropped whole.
    Backup {
        /// Workers that a round does without.
        spare: usize,
    },
    /// Each changes the variables when it has a gradient, but none is ever more than `bound` steps
    /// ahead of another.
    Stale {
        /// The greatest distance, at least 1.
        bound: usize,
    },
}

/// In which order the gradients of a round are added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As they come, in one accumulator per variable: the one that TensorFlow's
    /// `SyncReplicasOptimizer` has. Sums may differ in their last bits from run to run.
    #[default]
    Arrival,
    /// By the workers' numbers: every run gives the same bits. Each worker's gradient has a place of
    /// its own beside its variable.
    Worker,
}

/// Which of the workers builds its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Its number; 0 is the chief.
    pub index: usize,
    /// How many there are.
    pub count: usize,
}

/// What a worker runs: names of nodes and tensors, as sessions take them.
#[derive(Clone, Debug)]
pub struct Coordinated {
    /// A training step, a target; it ends when the worker may begin the next one.
    pub step: String,
    /// The number of changes that the variables have seen, a fetch.
    pub global_step: String,
    /// Whether the step's gradient was used, a fetch: it is false if the gradient came too late, or
    /// if the round that it was for was given up. None in modes that use every gradient.
    pub used: Option<String>,
    /// What the worker runs each time it starts, once the model is ready and again after it has left,
    /// a target.
    pub start_worker: Option<String>,
    /// What a worker runs that will not train for now, as it has no samples, or any more, a target:
    /// nobody waits for it then.
    pub leave: Option<String>,
    /// What the chief runs besides; none for other workers, and in modes without a chief.
    pub chief: Option<ChiefOps>,
}

/// What a chief runs, all targets. [`crate::Chief`] does so on a thread of its own.
#[derive(Clone, Debug)]
pub struct ChiefOps {
    /// Each time the chief starts, after the variables are set or restored. A round that was on its
    /// way is given up, and workers that wait begin it anew.
    pub start: String,
    /// Waits until a round has its gradients. It may be cancelled.
    pub wait: String,
    /// Changes the variables by them and lets the workers go on. It is refused, with
    /// `INVALID_ARGUMENT`, if one of them has started anew since: the round is to be given up then, by
    /// `start`.
    pub apply: String,
    /// Wakes all workers that wait: for the end of training.
    pub release: String,
}

impl Mode {
    /// Synchronous, gradients added as they come.
    pub fn sync() -> Mode {
        Mode::Sync { order: Order::Arrival }
    }

    /// Adds a training step of one worker: to a graph of its own, or, called once for each with the
    /// same model, to one graph of all workers.
    pub fn minimize(
        self,
        model: &mut Model,
        optimizer: &Optimizer,
        loss: Output,
        replica: Replica,
    ) -> Result<Coordinated> {
        self.minimize_with(model, optimizer, loss, replica, None)
    }

    /// As [`Mode::minimize`], and the samples of each update are accounted for.
    pub(crate) fn minimize_with(
        self,
        model: &mut Model,
        optimizer: &Optimizer,
        loss: Output,
        replica: Replica,
        ledger: Option<&Ledger>,
    ) -> Result<Coordinated> {
        let Replica { index, count } = replica;
        ensure!(index < count, InvalidArgument, "of {count} workers none has the number {index}");
        match self {
            Mode::Async => {
                let step = match ledger {
                    Some(ledger) => ledger.minimize(model, optimizer, loss)?,
                    None => optimizer.minimize(model, loss)?,
                };
                Coordinated::of(model, step)
            }
            Mode::Sync { order } => {
                let terms = sync::Terms { needed: count, order, ledger };
                sync::minimize(model, optimizer, loss, replica, terms)
            }
            Mode::Backup { spare } => {
                ensure!(
                    spare < count,
                    InvalidArgument,
                    "{spare} spare workers of {count} leave none to wait for"
                );
                let terms = sync::Terms { needed: count - spare, order: Order::Worker, ledger };
                sync::minimize(model, optimizer, loss, replica, terms)
            }
            Mode::Stale { bound } => {
                ensure!(
                    bound > 0,
                    InvalidArgument,
                    "workers that are never a step apart are synchronous: the bound is at least 1"
                );
                stale::minimize(model, optimizer, loss, replica, (bound, ledger))
            }
        }
    }
}

impl Coordinated {
    /// A step that waits for nobody.
    fn of(model: &mut Model, step: NodeId) -> Result<Coordinated> {
        let count = model.global_step()?;
        let global_step = count.read(&mut model.on(&count.device))?;
        Ok(Coordinated {
            step: model.node_name(step),
            global_step: model.name_of(global_step),
            used: None,
            start_worker: None,
            leave: None,
            chief: None,
        })
    }

    /// Runs a training step: the fetches, and whether the gradient was used.
    pub fn run(
        &self,
        session: &impl RunSteps,
        feeds: &[(&str, Tensor)],
        fetches: &[&str],
    ) -> Result<(Vec<Tensor>, bool)> {
        let Some(used) = &self.used else {
            return Ok((session.run_step(feeds, fetches, &[&self.step])?, true));
        };
        let with_used = [fetches, &[used.as_str()]].concat();
        let mut tensors = session.run_step(feeds, &with_used, &[&self.step])?;
        let used = tensors.pop().ok_or_else(|| err!(Internal, "a step without its fetches"))?;
        Ok((tensors, used.scalar_value()?))
    }
}

/// The device for what all workers wait at: that of the step's number.
fn home(model: &Model) -> Result<String> {
    Ok(model.global_step()?.device)
}
