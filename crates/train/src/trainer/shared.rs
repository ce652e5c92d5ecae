//! Mutable state that the threads of a training share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_cluster::RemoteSession;
use thalweg_kernel::{Cancellation, Environment};
use thalweg_runtime::system_environment;
use thalweg_tensor::{Bytes, Error, Result, err};

use super::{
    Callback, Checkpoint, Control, Epoch, Evaluation, Event, Plan, Progress, Step, TrainOptions,
};
use crate::{Checkpoints, SaverOptions};

/// The weight of a step in the moving averages.
const WEIGHT: f32 = 0.05;

pub(super) struct Shared {
    environment: Environment,
    begin: Duration,
    /// Whether training is over, and what callbacks ask for.
    pub control: Control,
    /// Cancels the steps in flight.
    cancellation: Mutex<Cancellation>,
    /// The error that ended training.
    error: Mutex<Option<Error>>,
    counts: Mutex<Counts>,
    pub updates_lost: AtomicU64,
    pub interruptions: AtomicU64,
    pub at_work: AtomicUsize,
    /// The number of worker threads that have not ended.
    pub running: AtomicUsize,
    /// The chief's session while it is open.
    pub chief: Mutex<Option<Arc<RemoteSession>>>,
    /// Held while all variables are set or saved.
    pub leading: Mutex<Checkpoints>,
    pub checkpoint: Mutex<Option<String>>,
    /// Workers that lost their sessions, whose shards are to be freed.
    pub releases: Mutex<Vec<usize>>,
    averages: Mutex<Averages>,
    /// Sums over the steps of the current epoch.
    of_epoch: Mutex<EpochSums>,
    pub evaluations: Mutex<Vec<Evaluation>>,
    summaries: Mutex<Summaries>,
}

/// Summaries of steps.
#[derive(Default)]
struct Summaries {
    /// The number of updates at which the next summary is due; `None` while a step computes one.
    due: Option<u64>,
    /// Summaries that are not written yet, with the number of updates of their steps.
    found: Vec<(u64, Bytes)>,
}

/// Progress of the variables of one generation. Counts of another generation are ignored: its
/// updates were lost.
#[derive(Clone, Copy)]
struct Counts {
    generation: i64,
    /// The highest number of updates that this process has seen, and that of the last checkpoint.
    updates: u64,
    saved: u64,
    /// The number of remaining samples, as far as this process knows.
    left: i64,
    /// Whether the lease table said that none remain.
    is_used_up: bool,
}

impl Counts {
    /// Those of variables that have seen this number of updates.
    fn new(generation: i64, updates: u64, saved: u64) -> Counts {
        Counts { generation, updates, saved, left: i64::MAX, is_used_up: false }
    }
}

#[derive(Default)]
struct Averages {
    loss: Option<f32>,
    metrics: Vec<f32>,
}

/// Sums of the loss and the metrics over steps.
#[derive(Default)]
struct EpochSums {
    steps: u64,
    loss: f64,
    metrics: Vec<f64>,
}

impl Shared {
    pub(super) fn new(options: &TrainOptions) -> Shared {
        let environment = system_environment();
        let keep = SaverOptions { max_to_keep: options.checkpoints_max, ..SaverOptions::default() };
        Shared {
            begin: environment.clock.monotonic(),
            environment,
            control: Control::default(),
            cancellation: Mutex::default(),
            error: Mutex::default(),
            counts: Mutex::new(Counts::new(0, 0, 0)),
            updates_lost: AtomicU64::new(0),
            interruptions: AtomicU64::new(0),
            at_work: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            chief: Mutex::default(),
            leading: Mutex::new(Checkpoints::new(keep)),
            checkpoint: Mutex::default(),
            releases: Mutex::default(),
            averages: Mutex::default(),
            of_epoch: Mutex::default(),
            evaluations: Mutex::default(),
            summaries: Mutex::new(Summaries { due: Some(0), ..Summaries::default() }),
        }
    }

    /// Time since the training began.
    pub(super) fn elapsed(&self) -> Duration {
        self.environment.clock.monotonic().saturating_sub(self.begin)
    }

    /// Time since 1970.
    pub(super) fn wall(&self) -> Duration {
        self.environment.clock.wall()
    }

    /// A generation that no earlier run had.
    pub(super) fn new_generation(&self) -> i64 {
        (self.environment.entropy.next_u64() >> 1).max(1) as i64
    }

    pub(super) fn is_over(&self) -> bool {
        self.control.is_stopping()
    }

    /// Ends training in order.
    pub(super) fn finish(&self) {
        self.control.stop();
    }

    pub(super) fn fail(&self, error: Error) {
        self.error.lock().get_or_insert(error);
        self.finish();
        self.cancel_steps();
    }

    pub(super) fn take_error(&self) -> Option<Error> {
        self.error.lock().take()
    }

    pub(super) fn cancellation(&self) -> Cancellation {
        self.cancellation.lock().clone()
    }

    pub(super) fn cancel_steps(&self) {
        self.cancellation().cancel(err!(Cancelled, "training has ended"));
    }

    /// Resets the cancellation, so that new steps are not cancelled.
    pub(super) fn let_steps_run(&self) {
        *self.cancellation.lock() = Cancellation::default();
    }

    /// Continues after an end that was not final.
    pub(super) fn go_on(&self) {
        self.let_steps_run();
        let mut counts = self.counts.lock();
        (counts.left, counts.is_used_up) = (i64::MAX, false);
        drop(counts);
        self.control.go_on();
    }

    /// Begins with the variables of a generation that have seen this number of updates, all of them
    /// saved; returns how many updates were lost.
    pub(super) fn begin(&self, generation: i64, updates: u64) -> u64 {
        let mut counts = self.counts.lock();
        let lost = counts.updates.saturating_sub(updates);
        *counts = Counts::new(generation, updates, updates);
        lost
    }

    /// Continues with variables that another process has initialized.
    pub(super) fn join(&self, generation: i64, updates: u64, saved: u64) {
        let mut counts = self.counts.lock();
        if counts.generation != generation {
            *counts = Counts::new(generation, updates, saved);
        }
    }

    /// Records the final number of updates and of remaining samples.
    pub(super) fn end(&self, updates: u64, left: i64) {
        let mut counts = self.counts.lock();
        counts.updates = counts.updates.max(updates);
        counts.left = left;
    }

    /// Records a step with variables of a generation, and the number of updates that were saved
    /// then.
    pub(super) fn note(&self, generation: i64, step: &Step, saved: u64, is_wanted: bool) {
        let mut counts = self.counts.lock();
        if counts.generation == generation {
            counts.updates = counts.updates.max(step.updates);
            counts.saved = counts.saved.max(saved);
            let count = if step.is_used && is_wanted { step.samples as i64 } else { 0 };
            counts.left = counts.left.saturating_sub(count);
        }
        drop(counts);
        let mut averages = self.averages.lock();
        let old = averages.loss.unwrap_or(step.loss);
        averages.loss = Some(old + WEIGHT * (step.loss - old));
        if averages.metrics.len() != step.metrics.len() {
            averages.metrics.clone_from(&step.metrics);
        }
        for (average, metric) in averages.metrics.iter_mut().zip(&step.metrics) {
            *average += WEIGHT * (metric - *average);
        }
        drop(averages);
        let mut sums = self.of_epoch.lock();
        sums.steps += 1;
        sums.loss += f64::from(step.loss);
        sums.metrics.resize(step.metrics.len(), 0.0);
        for (sum, metric) in sums.metrics.iter_mut().zip(&step.metrics) {
            *sum += f64::from(*metric);
        }
    }

    /// The number of epochs that are over: as many samples were used as so many epochs have. `None`
    /// while this process does not know the lease table.
    pub(super) fn epochs(&self, plan: &Plan<'_>) -> Option<u64> {
        if self.counts.lock().left == i64::MAX {
            return None;
        }
        let used = self.progress(plan, &[], 0.0).samples.0;
        Some(used.checked_div(plan.shards.samples() as u64).unwrap_or(0))
    }

    /// Ends an epoch of the averages.
    pub(super) fn take_epoch(&self, epoch: u64, tags: &[String]) -> Epoch {
        let sums = std::mem::take(&mut *self.of_epoch.lock());
        let mean = |sum: f64| (sum / sums.steps as f64) as f32;
        let metrics = tags.iter().cloned().zip(sums.metrics.iter().map(|sum| mean(*sum)));
        Epoch { epoch, updates: self.updates(), loss: mean(sums.loss), metrics: metrics.collect() }
    }

    /// Records that this number of updates is saved.
    pub(super) fn note_saved(&self, generation: i64, saved: u64) {
        let mut counts = self.counts.lock();
        if counts.generation == generation {
            counts.saved = counts.saved.max(saved);
            // Others may have made the last of them.
            counts.updates = counts.updates.max(saved);
        }
    }

    /// Records the number of remaining samples from the lease table. Workers may report it in another
    /// order than they read it in: once none remain, an earlier number says nothing.
    pub(super) fn note_left(&self, generation: i64, left: i64) {
        let mut counts = self.counts.lock();
        if counts.generation == generation && !counts.is_used_up {
            (counts.left, counts.is_used_up) = (left, left == 0);
        }
    }

    /// The generation of the variables, as far as this process knows.
    pub(super) fn generation(&self) -> i64 {
        self.counts.lock().generation
    }

    /// The number of updates of the variables.
    pub(super) fn updates(&self) -> u64 {
        self.counts.lock().updates
    }

    /// The number of updates that are in no checkpoint.
    pub(super) fn unsaved(&self) -> u64 {
        let counts = self.counts.lock();
        counts.updates.saturating_sub(counts.saved)
    }

    /// Whether the next step computes the summary; the step reports when it has.
    pub(super) fn takes_summary(&self, plan: &Plan<'_>) -> bool {
        let updates = self.updates();
        let mut summaries = self.summaries.lock();
        let is_due = plan.writes_summaries() && summaries.due.is_some_and(|due| due <= updates);
        if is_due {
            summaries.due = None;
        }
        is_due
    }

    /// Records the summary of a step; if there is none, the next step computes it.
    pub(super) fn note_summary(&self, plan: &Plan<'_>, found: Option<(u64, Bytes)>) {
        let mut summaries = self.summaries.lock();
        let after = found.as_ref().map_or(0, |(updates, _)| *updates);
        summaries.due = Some(if found.is_some() { after + plan.options.summary_steps } else { 0 });
        summaries.found.extend(found);
    }

    /// Takes the summaries that are to be written.
    pub(super) fn take_summaries(&self) -> Vec<(u64, Bytes)> {
        std::mem::take(&mut self.summaries.lock().found)
    }

    /// Whether there may be no samples left: the local count may be ahead of the lease table by a
    /// step or two, since other workers update the table too. A claim decides.
    pub(super) fn may_have_all(&self) -> bool {
        self.counts.lock().left <= 0
    }

    pub(super) fn loss(&self) -> f32 {
        self.averages.lock().loss.unwrap_or(f32::NAN)
    }

    pub(super) fn progress(&self, plan: &Plan<'_>, tags: &[String], rate: f64) -> Progress {
        let all = plan.options.epochs.saturating_mul(plan.shards.samples() as u64);
        let counts = *self.counts.lock();
        let left = counts.left.clamp(0, i64::try_from(all).unwrap_or(i64::MAX));
        let averages = self.averages.lock();
        Progress {
            updates: counts.updates,
            samples: (all - left as u64, all),
            loss: averages.loss.unwrap_or(f32::NAN),
            metrics: tags.iter().cloned().zip(averages.metrics.iter().copied()).collect(),
            rate,
            workers: self.at_work.load(Ordering::SeqCst),
            evaluation: self.evaluations.lock().last().cloned(),
        }
    }

    /// Shows an event and calls the callbacks.
    pub(super) fn tell(&self, plan: &Plan<'_>, event: &Event) {
        plan.screen.event(event);
        for callback in plan.callbacks {
            callback.on_event(event);
        }
    }

    /// Calls all callbacks; the first error ends training.
    pub(super) fn call(
        &self,
        plan: &Plan<'_>,
        call: impl Fn(&dyn Callback, &Control) -> Result<()>,
    ) {
        for callback in plan.callbacks {
            if let Err(error) = call(&**callback, &self.control) {
                self.fail(error);
            }
        }
    }

    /// Reports a checkpoint.
    pub(super) fn saved(&self, plan: &Plan<'_>, prefix: &str, updates: u64, took: Duration) {
        self.tell(plan, &Event::Saved { checkpoint: prefix.to_owned(), updates, took });
        let checkpoint = Checkpoint { prefix: prefix.to_owned(), updates };
        self.call(plan, |callback, control| callback.on_checkpoint(&checkpoint, control));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_lost_variables_count_no_more() {
        let shared = Shared::new(&TrainOptions::default());
        let step = |updates| Step {
            worker: 0,
            updates,
            samples: 5,
            is_used: true,
            loss: 1.0,
            metrics: Vec::new(),
        };
        assert_eq!(shared.begin(7, 0), 0);
        shared.note_left(7, 100);
        shared.note(7, &step(80), 60, true);
        assert_eq!((shared.updates(), shared.unsaved()), (80, 20));
        // Variables are restored; then somebody tells of a step with those that were lost.
        assert_eq!(shared.begin(8, 60), 20);
        shared.note_left(8, 120);
        shared.note(7, &step(81), 60, true);
        shared.note_saved(7, 81);
        shared.note_left(7, 0);
        assert_eq!((shared.updates(), shared.unsaved()), (60, 0));
        assert!(!shared.may_have_all());
        shared.note(8, &step(61), 60, true);
        assert_eq!((shared.updates(), shared.unsaved()), (61, 1));
        // Another worker reports late what it read before the last sample was used.
        shared.note_left(8, 0);
        shared.note_left(8, 24);
        assert!(shared.may_have_all());
        // A process that does not restore them itself begins anew too.
        shared.join(8, 70, 60);
        assert_eq!(shared.updates(), 61);
        shared.join(9, 55, 50);
        assert_eq!((shared.updates(), shared.unsaved()), (55, 5));
    }
}
