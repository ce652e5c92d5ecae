//! What the threads of a training tell each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_cluster::RemoteSession;
use thalweg_kernel::{Cancellation, Environment};
use thalweg_runtime::system_environment;
use thalweg_tensor::{Bytes, Error, err};

use super::{Event, Plan, Progress, Step};
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
    /// The most updates that anybody here has seen, and those of the last checkpoint.
    pub updates: AtomicU64,
    pub saved: AtomicU64,
    pub updates_lost: AtomicU64,
    pub interruptions: AtomicU64,
    /// Samples that are still to be used, as far as is known here.
    pub left: AtomicI64,
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

#[derive(Default)]
struct Averages {
    loss: Option<f32>,
    figures: Vec<f32>,
}

impl Shared {
    pub(super) fn new(plan: &Plan<'_>) -> Shared {
        let environment = system_environment();
        let keep =
            SaverOptions { max_to_keep: plan.options.checkpoints_max, ..SaverOptions::default() };
        Shared {
            begin: environment.clock.monotonic(),
            environment,
            is_over: AtomicBool::new(false),
            cancellation: Mutex::default(),
            error: Mutex::default(),
            updates: AtomicU64::new(0),
            saved: AtomicU64::new(0),
            updates_lost: AtomicU64::new(0),
            interruptions: AtomicU64::new(0),
            left: AtomicI64::new(i64::MAX),
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
        self.left.store(i64::MAX, Ordering::SeqCst);
        self.is_over.store(false, Ordering::SeqCst);
    }

    /// Notes a step.
    pub(super) fn note(&self, step: &Step, is_wanted: bool) {
        self.updates.fetch_max(step.updates, Ordering::SeqCst);
        let mut averages = self.averages.lock();
        let old = averages.loss.unwrap_or(step.loss);
        averages.loss = Some(old + WEIGHT * (step.loss - old));
        if averages.figures.len() != step.figures.len() {
            averages.figures.clone_from(&step.figures);
        }
        for (average, figure) in averages.figures.iter_mut().zip(&step.figures) {
            *average += WEIGHT * (figure - *average);
        }
        drop(averages);
        let count = if step.is_used && is_wanted { step.samples as i64 } else { 0 };
        self.left.fetch_sub(count, Ordering::SeqCst);
    }

    /// Whether the step that is about to begin is to compute the summaries; it says when it has.
    pub(super) fn takes_summary(&self, plan: &Plan<'_>) -> bool {
        let updates = self.updates.load(Ordering::SeqCst);
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
        self.left.load(Ordering::SeqCst) <= 0
    }

    pub(super) fn loss(&self) -> f32 {
        self.averages.lock().loss.unwrap_or(f32::NAN)
    }

    pub(super) fn progress(&self, plan: &Plan<'_>, tags: &[String], rate: f64) -> Progress {
        let all = plan.options.epochs.saturating_mul(plan.shards.samples() as u64);
        let left =
            self.left.load(Ordering::SeqCst).clamp(0, i64::try_from(all).unwrap_or(i64::MAX));
        let averages = self.averages.lock();
        Progress {
            updates: self.updates.load(Ordering::SeqCst),
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
