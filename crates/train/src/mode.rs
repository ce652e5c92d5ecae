//! Coordination modes: how several workers train one model together.
//!
//! A mode is a part of the graph: workers wait on queues and accumulators on the parameter servers,
//! and a client only runs steps. The state of a mode is kept there too, in variables whose names
//! begin with `coordination/`, so nothing is lost with a worker, and a worker that restarts
//! continues after it runs its `start_worker` op.

mod ledger;
#[cfg(test)]
mod mode_tests;
mod stale;
mod store;
mod sync;
mod tokens;
mod towers;

use std::panic::Location;

use thalweg_api::{Operation, Output, on_behalf_of};
use thalweg_tensor::{Result, Tensor, ensure, err};

use crate::gradient::Gradients;
use crate::state::State;
use crate::{Model, Optimizer, RunSteps};

pub(crate) use ledger::Ledger;
pub use towers::train_towers;

/// How the workers that train one model synchronize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Asynchronous: each worker updates the variables as soon as it has a gradient.
    Async,
    /// Synchronous: the variables are updated once per round, by the mean of one gradient of each
    /// worker.
    Sync {
        /// The order in which gradients are added.
        order: Order,
    },
    /// Synchronous with backup workers: as [`Mode::Sync`], but a round waits for all workers except
    /// `spare` stragglers. Gradients that arrive after their round are dropped.
    Backup {
        /// The number of stragglers that a round does not wait for.
        spare: usize,
    },
    /// Stale synchronous parallel (SSP): each worker updates the variables as soon as it has a
    /// gradient, but no worker is more than `bound` steps ahead of the slowest.
    Stale {
        /// The staleness bound in steps, at least 1.
        bound: usize,
    },
}

/// The order in which the gradients of a round are added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// In the order of arrival, in one accumulator per variable, as TensorFlow's
    /// `SyncReplicasOptimizer` does. Sums may differ in their last bits from run to run.
    #[default]
    Arrival,
    /// In the order of the workers' indices: every run computes the same bits. Each worker's
    /// gradient has a slot beside its variable.
    Worker,
}

/// The replica that builds its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica {
    /// The worker's index; 0 is the chief.
    pub index: usize,
    /// The number of workers.
    pub count: usize,
}

/// The ops of a worker: names of nodes and tensors, as sessions take them.
#[derive(Clone, Debug)]
pub struct Coordinated {
    /// The training step, a target. It ends when the worker may begin the next step.
    pub step: String,
    /// The number of updates of the variables, a fetch.
    pub global_step: String,
    /// Whether the step's gradient was applied, a fetch: false if the gradient arrived too late or
    /// its round was aborted. `None` in modes that apply every gradient.
    pub used: Option<String>,
    /// The op that the worker runs each time it starts, once the model is ready, and again after
    /// `leave`. A target.
    pub start_worker: Option<String>,
    /// The op that a worker runs when it has no samples, for now or any more: other workers do not
    /// wait for it from then on. A target.
    pub leave: Option<String>,
    /// The ops of the chief; `None` for other workers, and in modes without a chief.
    pub chief: Option<ChiefOps>,
}

/// The ops of the chief, all targets. [`crate::Chief`] runs them on a thread of its own.
#[derive(Clone, Debug)]
pub struct ChiefOps {
    /// Runs each time the chief starts, after the variables are initialized or restored. The round
    /// in flight is aborted, and the workers that wait for it begin a new one.
    pub start: String,
    /// Waits until a round has its gradients. It may be cancelled.
    pub wait: String,
    /// Applies the gradients and releases the workers. It fails with `INVALID_ARGUMENT` if one of
    /// the workers has restarted since; the chief must then abort the round by `start`.
    pub apply: String,
    /// Releases all workers that wait, at the end of training.
    pub release: String,
}

impl Mode {
    /// Synchronous mode, with gradients added in the order of arrival.
    pub fn sync() -> Mode {
        Mode::Sync { order: Order::Arrival }
    }

    /// Adds the training step of one worker: to a graph of its own or, called once per worker with
    /// the same model, to one graph of all workers.
    #[track_caller]
    pub fn minimize(
        self,
        model: &Model,
        optimizer: &Optimizer,
        loss: &Output<f32>,
        replica: Replica,
    ) -> Result<Coordinated> {
        on_behalf_of(Location::caller(), || {
            // A loss of another graph is a mistake of this one.
            let _ = model.endpoint_of(loss);
            model.check()?;
            let gradients = optimizer.whole_gradients(model, loss)?;
            self.apply(model, optimizer, &gradients, (replica, None))
        })
    }

    /// As [`Mode::minimize`], for gradients that are not clipped yet, with the samples of each
    /// update recorded in the lease table.
    pub(crate) fn apply(
        self,
        model: &Model,
        optimizer: &Optimizer,
        gradients: &Gradients,
        terms: (Replica, Option<&Ledger>),
    ) -> Result<Coordinated> {
        let coordinated = self.added(model, optimizer, gradients, terms);
        model.check()?;
        coordinated
    }

    fn added(
        self,
        model: &Model,
        optimizer: &Optimizer,
        gradients: &Gradients,
        (replica, ledger): (Replica, Option<&Ledger>),
    ) -> Result<Coordinated> {
        let Replica { index, count } = replica;
        ensure!(
            index < count,
            InvalidArgument,
            "the worker index {index} is not below the number of workers, {count}"
        );
        match self {
            Mode::Async => {
                let step = match ledger {
                    Some(ledger) => ledger.apply(model, optimizer, gradients)?,
                    None => optimizer.clip_and_apply(model, gradients),
                };
                Coordinated::of(model, &step)
            }
            Mode::Sync { order } => {
                let terms = sync::Terms { needed: count, order, ledger };
                sync::apply(model, optimizer, gradients, replica, terms)
            }
            Mode::Backup { spare } => {
                ensure!(
                    spare < count,
                    InvalidArgument,
                    "{spare} backup workers of {count} leave no worker to wait for"
                );
                let terms = sync::Terms { needed: count - spare, order: Order::Worker, ledger };
                sync::apply(model, optimizer, gradients, replica, terms)
            }
            Mode::Stale { bound } => {
                ensure!(
                    bound > 0,
                    InvalidArgument,
                    "the staleness bound must be at least 1; a bound of 0 is synchronous training"
                );
                stale::apply(model, optimizer, gradients, replica, (bound, ledger))
            }
        }
    }
}

impl Coordinated {
    /// A step without synchronization.
    fn of(model: &Model, step: &Operation) -> Result<Coordinated> {
        let count = model.step_counter()?;
        let global_step = State::<i64>::of(model, &count).read(&model.device(&count.device));
        Ok(Coordinated {
            step: step.name()?,
            global_step: global_step.name()?,
            used: None,
            start_worker: None,
            leave: None,
            chief: None,
        })
    }

    /// Runs a training step; returns the fetches, and whether the gradient was applied.
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
        let used = tensors
            .pop()
            .ok_or_else(|| err!(Internal, "internal error: the step returned too few fetches"))?;
        Ok((tensors, used.scalar_value()?))
    }
}

/// The device of the shared synchronization state: that of the global step.
fn home(model: &Model) -> Result<String> {
    Ok(model.step_counter()?.device)
}
