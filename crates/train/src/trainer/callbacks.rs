//! Callbacks of a training: the trait, and those that most trainings need.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use thalweg_tensor::{Error, Result, ensure, err};

use super::{Evaluation, Event, Outcome};

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

/// An epoch that is over: as many samples were used as the data set has.
#[derive(Clone, Debug, PartialEq)]
pub struct Epoch {
    /// The number of epochs that are over.
    pub epoch: u64,
    /// The number of updates of the variables.
    pub updates: u64,
    /// The mean loss over the epoch's steps of this process; NaN if it had none.
    pub loss: f32,
    /// The network's metrics, averaged likewise, by name.
    pub metrics: Vec<(String, f32)>,
}

/// A checkpoint that was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Its prefix.
    pub prefix: String,
    /// The number of updates that it holds.
    pub updates: u64,
}

/// Callbacks of a training. An error that one returns ends training.
///
/// Steps are reported on the threads of their workers, several at a time. Epochs and checkpoints
/// are reported on the thread that called `Trainer::run`, evaluations on a thread of their own.
pub trait Callback: Send + Sync {
    /// Called before a worker's step.
    fn on_step_begin(&self, _worker: usize) -> Result<()> {
        Ok(())
    }

    /// Called after a worker's step.
    fn on_step(&self, _step: &Step, _control: &Control) -> Result<()> {
        Ok(())
    }

    /// Called after each epoch.
    fn on_epoch(&self, _epoch: &Epoch, _control: &Control) -> Result<()> {
        Ok(())
    }

    /// Called after each evaluation, in the process of worker 0.
    fn on_evaluation(&self, _evaluation: &Evaluation, _control: &Control) -> Result<()> {
        Ok(())
    }

    /// Called after each checkpoint, in the process of worker 0.
    fn on_checkpoint(&self, _checkpoint: &Checkpoint, _control: &Control) -> Result<()> {
        Ok(())
    }

    /// Called for events: a worker is lost, a checkpoint was written, ...
    fn on_event(&self, _event: &Event) {}

    /// Called when training has ended without an error.
    fn on_end(&self, _outcome: &Outcome) -> Result<()> {
        Ok(())
    }
}

/// Callbacks behind pointers: the caller keeps one and looks at it afterwards.
macro_rules! forward {
    ($pointer:ty) => {
        impl<C: Callback + ?Sized> Callback for $pointer {
            fn on_step_begin(&self, worker: usize) -> Result<()> {
                (**self).on_step_begin(worker)
            }

            fn on_step(&self, step: &Step, control: &Control) -> Result<()> {
                (**self).on_step(step, control)
            }

            fn on_epoch(&self, epoch: &Epoch, control: &Control) -> Result<()> {
                (**self).on_epoch(epoch, control)
            }

            fn on_evaluation(&self, evaluation: &Evaluation, control: &Control) -> Result<()> {
                (**self).on_evaluation(evaluation, control)
            }

            fn on_checkpoint(&self, checkpoint: &Checkpoint, control: &Control) -> Result<()> {
                (**self).on_checkpoint(checkpoint, control)
            }

            fn on_event(&self, event: &Event) {
                (**self).on_event(event);
            }

            fn on_end(&self, outcome: &Outcome) -> Result<()> {
                (**self).on_end(outcome)
            }
        }
    };
}

forward!(Arc<C>);
forward!(&C);

/// What callbacks ask of a training.
#[derive(Debug, Default)]
pub struct Control {
    is_over: AtomicBool,
    requests: Mutex<Requests>,
}

#[derive(Debug, Default)]
struct Requests {
    /// Checkpoints that are not deleted; as often as they were asked for.
    kept: Vec<String>,
    restored: Option<String>,
    rate_factor: Option<f32>,
}

impl Control {
    /// Ends training after the steps in flight, with a last checkpoint.
    pub fn stop(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Whether training ends: by [`Control::stop`], a limit, an error or the last sample.
    pub fn is_stopping(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Continues after an end that was not final.
    pub(super) fn go_on(&self) {
        self.is_over.store(false, Ordering::SeqCst);
    }

    /// Keeps a checkpoint that would be deleted once there are `checkpoints_max` newer ones, until
    /// [`Control::release_checkpoint`] is called as often.
    pub fn keep_checkpoint(&self, prefix: &str) {
        self.requests.lock().kept.push(prefix.to_owned());
    }

    /// Lets a checkpoint be deleted that was kept.
    pub fn release_checkpoint(&self, prefix: &str) {
        let kept = &mut self.requests.lock().kept;
        if let Some(index) = kept.iter().position(|other| other == prefix) {
            kept.swap_remove(index);
        }
    }

    /// Restores the model's variables from this checkpoint when training has ended;
    /// `Outcome::checkpoint` names it then. The last call counts.
    pub fn restore_at_end(&self, prefix: &str) {
        self.requests.lock().restored = Some(prefix.to_owned());
    }

    /// Multiplies the learning rate, which must be a [`crate::Rate::adjustable`] one.
    pub fn scale_learning_rate(&self, factor: f32) {
        let mut requests = self.requests.lock();
        requests.rate_factor = Some(requests.rate_factor.unwrap_or(1.0) * factor);
    }

    pub(super) fn kept(&self) -> Vec<String> {
        self.requests.lock().kept.clone()
    }

    pub(super) fn restored(&self) -> Option<String> {
        self.requests.lock().restored.clone()
    }

    pub(super) fn take_rate_factor(&self) -> Option<f32> {
        self.requests.lock().rate_factor.take()
    }
}

/// Whether a metric of evaluations has improved, and since when it has not.
#[derive(Debug)]
struct Watch {
    metric: String,
    is_higher_better: bool,
    min_delta: f32,
    best: Option<f32>,
    /// The number of evaluations since the best one.
    since: u64,
}

impl Watch {
    fn new(metric: &str, is_higher_better: bool) -> Watch {
        Watch { metric: metric.into(), is_higher_better, min_delta: 0.0, best: None, since: 0 }
    }

    /// Whether the watched value is the best so far. NaN is never better.
    fn improves(&mut self, loss: f32, metrics: &[(String, f32)]) -> Result<bool> {
        let found = metrics.iter().find(|(name, _)| *name == self.metric);
        let value = found.map(|(_, value)| *value).or((self.metric == "loss").then_some(loss));
        let value = value.ok_or_else(|| {
            let known: String = metrics.iter().map(|(name, _)| format!(", '{name}'")).collect();
            let metric = &self.metric;
            err!(InvalidArgument, "there is no metric '{metric}' to watch, only 'loss'{known}")
        })?;
        Ok(self.note(value))
    }

    fn note(&mut self, value: f32) -> bool {
        let sign = if self.is_higher_better { 1.0 } else { -1.0 };
        let is_better = match self.best {
            _ if value.is_nan() => false,
            None => true,
            Some(best) => sign * (value - best) > self.min_delta,
        };
        if is_better {
            (self.best, self.since) = (Some(value), 0);
        } else {
            self.since += 1;
        }
        is_better
    }
}

/// Early stopping: ends training when a metric of the evaluations has not improved for some of
/// them.
///
/// ```
/// use thalweg_train::trainer::EarlyStopping;
///
/// let stopping = EarlyStopping::maximize("accuracy").patience(3).restore_best();
/// # let _ = stopping;
/// ```
#[derive(Debug)]
pub struct EarlyStopping {
    patience: u64,
    restores_best: bool,
    watches_training: bool,
    state: Mutex<Watch>,
    best: Mutex<Option<String>>,
}

impl EarlyStopping {
    fn of(metric: &str, is_higher_better: bool) -> EarlyStopping {
        EarlyStopping {
            patience: 1,
            restores_best: false,
            watches_training: false,
            state: Mutex::new(Watch::new(metric, is_higher_better)),
            best: Mutex::default(),
        }
    }

    /// Ends training when this metric no longer rises.
    pub fn maximize(metric: &str) -> EarlyStopping {
        EarlyStopping::of(metric, true)
    }

    /// Ends training when this metric, or `loss`, no longer falls.
    pub fn minimize(metric: &str) -> EarlyStopping {
        EarlyStopping::of(metric, false)
    }

    /// Watches the means over each epoch of training, not evaluations.
    #[must_use]
    pub fn of_training(self) -> EarlyStopping {
        EarlyStopping { watches_training: true, ..self }
    }

    /// Sets the number of consecutive evaluations without improvement that end training; 1 by
    /// default.
    #[must_use]
    pub fn patience(self, evaluations: u64) -> EarlyStopping {
        EarlyStopping { patience: evaluations, ..self }
    }

    /// Sets the smallest change that counts as improvement; 0 by default.
    #[must_use]
    pub fn min_delta(mut self, min_delta: f32) -> EarlyStopping {
        self.state.get_mut().min_delta = min_delta;
        self
    }

    /// Keeps the checkpoint with the best value and restores it at the end, also where training
    /// ends for another reason. Evaluations are of checkpoints, epochs are not: it does nothing with
    /// [`EarlyStopping::of_training`].
    #[must_use]
    pub fn restore_best(self) -> EarlyStopping {
        EarlyStopping { restores_best: true, ..self }
    }
}

impl Callback for EarlyStopping {
    fn on_epoch(&self, epoch: &Epoch, control: &Control) -> Result<()> {
        let mut state = self.state.lock();
        if self.watches_training
            && !state.improves(epoch.loss, &epoch.metrics)?
            && state.since >= self.patience
        {
            control.stop();
        }
        Ok(())
    }

    fn on_evaluation(&self, evaluation: &Evaluation, control: &Control) -> Result<()> {
        if self.watches_training {
            return Ok(());
        }
        let mut state = self.state.lock();
        if state.improves(evaluation.loss, &evaluation.metrics)? {
            if self.restores_best {
                control.keep_checkpoint(&evaluation.checkpoint);
                control.restore_at_end(&evaluation.checkpoint);
                if let Some(old) = self.best.lock().replace(evaluation.checkpoint.clone()) {
                    control.release_checkpoint(&old);
                }
            }
        } else if state.since >= self.patience {
            control.stop();
        }
        Ok(())
    }
}

/// Multiplies the learning rate by a factor when a metric of the evaluations has not improved for
/// some of them. The optimizer's rate must be [`crate::Rate::adjustable`].
#[derive(Debug)]
pub struct ReduceOnPlateau {
    factor: f32,
    patience: u64,
    state: Mutex<Watch>,
}

impl ReduceOnPlateau {
    fn of(metric: &str, is_higher_better: bool) -> ReduceOnPlateau {
        let state = Mutex::new(Watch::new(metric, is_higher_better));
        ReduceOnPlateau { factor: 0.1, patience: 10, state }
    }

    /// Reduces the rate when this metric no longer rises.
    pub fn maximize(metric: &str) -> ReduceOnPlateau {
        ReduceOnPlateau::of(metric, true)
    }

    /// Reduces the rate when this metric, or `loss`, no longer falls.
    pub fn minimize(metric: &str) -> ReduceOnPlateau {
        ReduceOnPlateau::of(metric, false)
    }

    /// Sets the factor, between 0 and 1; 0.1 by default.
    #[must_use]
    pub fn factor(self, factor: f32) -> ReduceOnPlateau {
        ReduceOnPlateau { factor, ..self }
    }

    /// Sets the number of consecutive evaluations without improvement before a reduction; 10 by
    /// default. The count begins again afterwards.
    #[must_use]
    pub fn patience(self, evaluations: u64) -> ReduceOnPlateau {
        ReduceOnPlateau { patience: evaluations, ..self }
    }

    /// Sets the smallest change that counts as improvement; 0 by default.
    #[must_use]
    pub fn min_delta(mut self, min_delta: f32) -> ReduceOnPlateau {
        self.state.get_mut().min_delta = min_delta;
        self
    }
}

impl Callback for ReduceOnPlateau {
    fn on_evaluation(&self, evaluation: &Evaluation, control: &Control) -> Result<()> {
        ensure!(
            self.factor > 0.0 && self.factor < 1.0,
            InvalidArgument,
            "the factor of the learning rate must be between 0 and 1, got {}",
            self.factor
        );
        let mut state = self.state.lock();
        if !state.improves(evaluation.loss, &evaluation.metrics)? && state.since >= self.patience {
            state.since = 0;
            control.scale_learning_rate(self.factor);
        }
        Ok(())
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

    fn evaluation(at: usize, accuracy: f32) -> Evaluation {
        Evaluation {
            updates: at as u64,
            loss: 1.0,
            metrics: vec![("accuracy".into(), accuracy)],
            checkpoint: format!("model-{at}"),
        }
    }

    /// The number of the evaluation that ends training, and what the training has to do then.
    fn stops(stopping: &EarlyStopping, values: &[f32]) -> (Option<usize>, Control) {
        let control = Control::default();
        let ends = values.iter().enumerate().find(|(at, value)| {
            stopping.on_evaluation(&evaluation(*at, **value), &control).unwrap();
            control.is_stopping()
        });
        (ends.map(|(at, _)| at), control)
    }

    #[test]
    fn early_stopping_counts_evaluations_without_improvement() {
        let rising = EarlyStopping::maximize("accuracy").patience(2);
        assert_eq!(stops(&rising, &[0.1, 0.2, 0.2, 0.3, 0.3, 0.2, 0.9]).0, Some(5));
        let falling = EarlyStopping::minimize("accuracy").patience(2);
        assert_eq!(stops(&falling, &[0.5, 0.4, 0.45, 0.3, f32::NAN, 0.3]).0, Some(5));
        let coarse = EarlyStopping::maximize("accuracy").min_delta(0.15);
        assert_eq!(stops(&coarse, &[0.1, 0.3, 0.4]).0, Some(2));
        let (ends, control) = stops(
            &EarlyStopping::maximize("accuracy").patience(9).restore_best(),
            &[0.1, 0.5, 0.3, 0.6, 0.2],
        );
        assert_eq!((ends, control.restored()), (None, Some("model-3".into())));
        assert_eq!(control.kept(), ["model-3"]);
    }

    #[test]
    fn an_unknown_metric_is_named() {
        let stopping = EarlyStopping::minimize("accuracies");
        let error = stopping.on_evaluation(&evaluation(0, 0.5), &Control::default()).unwrap_err();
        let wanted = "there is no metric 'accuracies' to watch, only 'loss', 'accuracy'";
        assert_eq!(error.message(), wanted);
    }

    #[test]
    fn a_plateau_reduces_the_rate() {
        let plateau = ReduceOnPlateau::minimize("accuracy").patience(2).factor(0.5);
        let control = Control::default();
        let factors: Vec<Option<f32>> = [0.5, 0.4, 0.4, 0.4, 0.4, 0.4, 0.1, 0.2]
            .into_iter()
            .enumerate()
            .map(|(at, value)| {
                plateau.on_evaluation(&evaluation(at, value), &control).unwrap();
                control.take_rate_factor()
            })
            .collect();
        let half = Some(0.5);
        assert_eq!(factors, [None, None, None, half, None, half, None, None]);
        let wrong = ReduceOnPlateau::minimize("loss").factor(2.0);
        assert!(wrong.on_evaluation(&evaluation(0, 0.0), &control).is_err());
    }
}
