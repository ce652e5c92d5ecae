//! What the threads of a training tell each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_cluster::RemoteSession;
use thalweg_kernel::{Cancellation, Environment};
use thalweg_runtime::system_environment;
use thalweg_tensor::{Bytes, Error, err};

use super::{Event, Plan, Progress, Step, TrainOptions};
use crate::{Checkpoints, SaverOptions};

/// How much of the averages a step is.
const WEIGHT: f32 = 0.05;

pub(super) struct Shared {
    environment: Environment,
    begin: Duration,
    is_over: AtomicBool,
    /// Ends the steps that are on their way.
    cancellation: Mutex<Cancellation>,
    /// Why it failed.
    error: Mutex<Option<Error>>,
    counts: Mutex<Counts>,
    pub updates_lost: AtomicU64,
    pub interruptions: AtomicU64,
    pub at_work: AtomicUsize,
    /// Threads of workers that have not ended.
    pub running: AtomicUsize,
    /// The chief's session, while it is at work.
    pub chief: Mutex<Option<Arc<RemoteSession>>>,
    /// Held by whoever sets all variables or saves them.
    pub leading: Mutex<Checkpoints>,
    pub checkpoint: Mutex<Option<String>>,
    /// Workers that lost their sessions: their shards are given to others.
    pub releases: Mutex<Vec<usize>>,
    averages: Mutex<Averages>,
    summaries: Mutex<Summaries>,
}

/// Summaries of steps.
#[derive(Default)]
struct Summaries {
    /// The number of updates from which on the next is due; none while a step computes one.
    due: Option<u64>,
    /// Those that are not written yet, with the updates of their steps.
    found: Vec<(u64, Bytes)>,
}

/// How far the variables of one generation are. What is told of another generation is of no use: its
/// updates were lost.
#[derive(Clone, Copy)]
struct Counts {
    generation: i64,
    /// The most updates that anybody here has seen, and those of the last checkpoint.
    updates: u64,
    saved: u64,
    /// Samples that are still to be used, as far as is known here.
    left: i64,
}

#[derive(Default)]
struct Averages {
    loss: Option<f32>,
    figures: Vec<f32>,
}

impl Shared {
    pub(super) fn new(options: &TrainOptions) -> Shared {
        let environment = system_environment();
        let keep = SaverOptions { max_to_keep: options.checkpoints_max, ..SaverOptions::default() };
        Shared {
            begin: environment.clock.monotonic(),
            environment,
            is_over: AtomicBool::new(false),
            cancellation: Mutex::default(),
            error: Mutex::default(),
            counts: Mutex::new(Counts { generation: 0, updates: 0, saved: 0, left: i64::MAX }),
            updates_lost: AtomicU64::new(0),
            interruptions: AtomicU64::new(0),
            at_work: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            chief: Mutex::default(),
            leading: Mutex::new(Checkpoints::new(keep)),
            checkpoint: Mutex::default(),
            releases: Mutex::default(),
            averages: Mutex::default(),
            summaries: Mutex::new(Summaries { due: Some(0), ..Summaries::default() }),
        }
    }

    /// Time since it began.
    pub(super) fn elapsed(&self) -> Duration {
        self.environment.clock.monotonic().saturating_sub(self.begin)
    }

    /// Time since 1970.
    pub(super) fn wall(&self) -> Duration {
        self.environment.clock.wall()
    }

    /// A generation that no run has had.
    pub(super) fn new_generation(&self) -> i64 {
        (self.environment.entropy.next_u64() >> 1).max(1) as i64
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Ends it in order.
    pub(super) fn finish(&self) {
        self.is_over.store(true, Ordering::SeqCst);
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

    /// Steps that begin from now on are not among those that were cancelled.
    pub(super) fn let_steps_run(&self) {
        *self.cancellation.lock() = Cancellation::default();
    }

    /// Goes on after what seemed to be the end.
    pub(super) fn go_on(&self) {
        self.let_steps_run();
        self.counts.lock().left = i64::MAX;
        self.is_over.store(false, Ordering::SeqCst);
    }

    /// Begins with the variables of a generation, which have seen so many updates, all of them in a
    /// checkpoint; how many have been lost.
    pub(super) fn begin(&self, generation: i64, updates: u64) -> u64 {
        let mut counts = self.counts.lock();
        let lost = counts.updates.saturating_sub(updates);
        *counts = Counts { generation, updates, saved: updates, left: i64::MAX };
        lost
    }

    /// Goes on with variables that somebody else has given their values.
    pub(super) fn join(&self, generation: i64, updates: u64, saved: u64) {
        let mut counts = self.counts.lock();
        if counts.generation != generation {
            *counts = Counts { generation, updates, saved, left: i64::MAX };
        }
    }

    /// Notes how far the variables were when training ended.
    pub(super) fn end(&self, updates: u64, left: i64) {
        let mut counts = self.counts.lock();
        counts.updates = counts.updates.max(updates);
        counts.left = left;
    }

    /// Notes a step with variables of a generation, and how many updates were saved then.
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
        if averages.figures.len() != step.figures.len() {
            averages.figures.clone_from(&step.figures);
        }
        for (average, figure) in averages.figures.iter_mut().zip(&step.figures) {
            *average += WEIGHT * (figure - *average);
        }
    }

    /// Notes that so many updates are in a checkpoint.
    pub(super) fn note_saved(&self, generation: i64, saved: u64) {
        let mut counts = self.counts.lock();
        if counts.generation == generation {
            counts.saved = counts.saved.max(saved);
            // Others may have made the last of them.
            counts.updates = counts.updates.max(saved);
        }
    }

    /// Notes how many samples are left, as the table has it.
    pub(super) fn note_left(&self, generation: i64, left: i64) {
        let mut counts = self.counts.lock();
        if counts.generation == generation {
            counts.left = left;
        }
    }

    /// The generation of the variables, as far as is known here.
    pub(super) fn generation(&self) -> i64 {
        self.counts.lock().generation
    }

    /// Updates that the variables have seen.
    pub(super) fn updates(&self) -> u64 {
        self.counts.lock().updates
    }

    /// Updates that are in no checkpoint.
    pub(super) fn unsaved(&self) -> u64 {
        let counts = self.counts.lock();
        counts.updates.saturating_sub(counts.saved)
    }

    /// Whether the step that is about to begin is to compute the summaries; it says when it has.
    pub(super) fn takes_summary(&self, plan: &Plan<'_>) -> bool {
        let updates = self.updates();
        let mut summaries = self.summaries.lock();
        let is_due = plan.writes_summaries() && summaries.due.is_some_and(|due| due <= updates);
        if is_due {
            summaries.due = None;
        }
        is_due
    }

    /// Notes the summaries of a step; without them the next step computes them.
    pub(super) fn note_summary(&self, plan: &Plan<'_>, found: Option<(u64, Bytes)>) {
        let mut summaries = self.summaries.lock();
        let after = found.as_ref().map_or(0, |(updates, _)| *updates);
        summaries.due = Some(if found.is_some() { after + plan.options.summary_steps } else { 0 });
        summaries.found.extend(found);
    }

    /// Summaries that are to be written.
    pub(super) fn take_summaries(&self) -> Vec<(u64, Bytes)> {
        std::mem::take(&mut self.summaries.lock().found)
    }

    /// Whether there may be no samples left: what is known here may be a step or two ahead of what is
    /// so, since others write it down too. A claim tells.
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
            figures: tags.iter().cloned().zip(averages.figures.iter().copied()).collect(),
            rate,
            workers: self.at_work.load(Ordering::SeqCst),
        }
    }

    /// Tells the screen and the hooks.
    pub(super) fn tell(&self, plan: &Plan<'_>, event: &Event) {
        plan.screen.event(event);
        for hook in plan.hooks {
            hook.event(event);
        }
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
            figures: Vec::new(),
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
        // A process that does not restore them itself begins anew too.
        shared.join(8, 70, 60);
        assert_eq!(shared.updates(), 61);
        shared.join(9, 55, 50);
        assert_eq!((shared.updates(), shared.unsaved()), (55, 5));
    }
}
