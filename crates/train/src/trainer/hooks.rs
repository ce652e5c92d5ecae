//! Hooks: callbacks of a training.

use parking_lot::Mutex;
use thalweg_tensor::{Error, Result};

use super::{Event, Outcome};

/// Whether training continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Training continues.
    Continue,
    /// Training ends with a last checkpoint.
    Stop,
}

/// A step of a worker.
#[derive(Clone, Debug)]
pub struct Step {
    /// The worker's index.
    pub worker: usize,
    /// The number of updates of the variables.
    pub updates: u64,
    /// The batch size.
    pub samples: usize,
    /// Whether the gradient was applied; if not, the samples are used again.
    pub is_used: bool,
    /// The loss of the batch.
    pub loss: f32,
    /// The values of the network's metrics, in its order.
    pub metrics: Vec<f32>,
}

/// Callbacks of a training, called on the threads of its workers.
pub trait Hook: Send + Sync {
    /// Called before a worker's step.
    fn before_step(&self, _worker: usize) -> Result<()> {
        Ok(())
    }

    /// Called after a worker's step.
    fn after_step(&self, _step: &Step) -> Result<Flow> {
        Ok(Flow::Continue)
    }

    /// Called for other events: a worker is lost, a checkpoint was written, ...
    fn event(&self, _event: &Event) {}

    /// Called when training has ended.
    fn end(&self, _outcome: &Outcome) -> Result<()> {
        Ok(())
    }
}

/// Early stopping: ends training when the averaged loss has not improved for some steps.
pub struct EarlyStop {
    /// The number of steps without improvement after which training ends.
    patience: u64,
    /// The minimum decrease of the loss that counts as improvement.
    margin: f32,
    state: Mutex<Smooth>,
}

#[derive(Default)]
struct Smooth {
    average: Option<f32>,
    best: Option<f32>,
    since: u64,
}

/// The weight of a step's loss in the moving average.
const WEIGHT: f32 = 0.05;

impl EarlyStop {
    /// Ends training after `patience` steps in which the averaged loss did not decrease by
    /// `margin`.
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

/// Whether a new session may succeed after a session failed with `error`.
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
            metrics: Vec::new(),
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
