//! What a program does beside the steps of its training.

use parking_lot::Mutex;
use thalweg_tensor::{Error, Result};

use super::{Event, Outcome};

/// Whether training goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It does.
    Continue,
    /// It ends in order: with a last checkpoint.
    Stop,
}

/// A step that a worker has taken.
#[derive(Clone, Debug)]
pub struct Step {
    /// The worker.
    pub worker: usize,
    /// Updates that the variables have seen.
    pub updates: u64,
    /// Samples of its batch.
    pub samples: usize,
    /// Whether its gradient was used; else the samples come again.
    pub is_used: bool,
    /// Its loss.
    pub loss: f32,
    /// The figures that the net names, in its order.
    pub figures: Vec<f32>,
}

/// Called as training goes on, by the threads of its workers.
pub trait Hook: Send + Sync {
    /// Before a worker's step.
    fn before_step(&self, _worker: usize) -> Result<()> {
        Ok(())
    }

    /// After a worker's step.
    fn after_step(&self, _step: &Step) -> Result<Flow> {
        Ok(Flow::Continue)
    }

    /// When something else happens: a worker is lost, a checkpoint is there, ...
    fn event(&self, _event: &Event) {}

    /// When training has ended.
    fn end(&self, _outcome: &Outcome) -> Result<()> {
        Ok(())
    }
}

/// Ends training when the loss, averaged over some steps, has not fallen for some time.
pub struct EarlyStop {
    /// Steps without a better loss that end it.
    patience: u64,
    /// By how much a loss is better.
    margin: f32,
    state: Mutex<Smooth>,
}

#[derive(Default)]
struct Smooth {
    average: Option<f32>,
    best: Option<f32>,
    since: u64,
}

/// How much of the average a step's loss is.
const WEIGHT: f32 = 0.05;

impl EarlyStop {
    /// Ends it after `patience` steps in which the averaged loss did not fall by `margin`.
    pub fn new(patience: u64, margin: f32) -> EarlyStop {
        EarlyStop { patience, margin, state: Mutex::default() }
    }
}

impl Hook for EarlyStop {
    fn after_step(&self, step: &Step) -> Result<Flow> {
        let mut state = self.state.lock();
        let average = state.average.map_or(step.loss, |old| old + WEIGHT * (step.loss - old));
        state.average = Some(average);
        if state.best.is_none_or(|best| average < best - self.margin) {
            state.best = Some(average);
            state.since = 0;
        } else {
            state.since += 1;
        }
        Ok(if state.since > self.patience { Flow::Stop } else { Flow::Continue })
    }
}

/// Whether another session may succeed where this one ended with `error`.
pub(super) fn is_passing(error: &Error) -> bool {
    use thalweg_tensor::Code;
    matches!(
        error.code(),
        Code::Unavailable | Code::Aborted | Code::Cancelled | Code::DeadlineExceeded
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_that_does_not_fall_ends_it() {
        let step = |loss: f32| Step {
            worker: 0,
            updates: 0,
            samples: 1,
            is_used: true,
            loss,
            figures: Vec::new(),
        };
        let hook = EarlyStop::new(10, 0.001);
        for i in 0..100 {
            let falling = step(10.0 - 0.1 * i as f32);
            assert_eq!(hook.after_step(&falling).unwrap(), Flow::Continue, "step {i}");
        }
        let ends = (0..200).find(|_| hook.after_step(&step(5.0)).unwrap() == Flow::Stop);
        assert!(ends.is_some_and(|steps| (10..30).contains(&steps)), "{ends:?}");
    }
}
