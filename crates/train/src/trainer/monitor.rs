//! The calling thread: it starts the workers, reports progress, writes checkpoints, and ends the
//! training.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thalweg_formats::events::{EventWriter, summary};
use thalweg_formats::storage::join;
use thalweg_storage::ByUrl;
use thalweg_tensor::{Code, Error, Result, Tensor, err};

use super::callbacks::is_passing;
use super::checkpoint;
use super::program::Program;
use super::replica::Replica;
use super::shared::Shared;
use super::{Event, Outcome, Plan};

/// The interval of checks on the workers.
const PAUSE: Duration = Duration::from_millis(5);
/// The interval of entries in the event file.
const ENTRY: Duration = Duration::from_millis(500);
/// The pause after a failed checkpoint, and the number of consecutive failures that end training.
const SAVE_PAUSE: Duration = Duration::from_millis(500);
const SAVES_FAILED_MAX: u32 = 5;
/// How long steps in flight may take after the end.
const GRACE: Duration = Duration::from_secs(1);

/// Runs a training to its end.
pub(super) fn run(
    plan: &Plan<'_>,
    shared: &Shared,
    programs: &[(usize, Program)],
) -> Result<Outcome> {
    let events = join(&plan.options.folder, "events");
    let mut monitor = Monitor::new(plan, shared, programs, &events)?;
    let chief = programs.iter().find(|(worker, _)| *worker == 0).map(|(_, program)| program);
    if chief.is_some() {
        shared.leading.lock().resume(&plan.options.folder)?;
    }
    let mut away_since = None;
    loop {
        shared.running.store(programs.len(), Ordering::SeqCst);
        std::thread::scope(|threads| {
            for (worker, program) in programs {
                let replica = Replica::new(plan, shared, *worker, program);
                threads.spawn(move || replica.run());
            }
            monitor.watch(chief, threads);
        });
        monitor.end_epochs();
        if let Some(error) = shared.take_error() {
            return Err(error);
        }
        shared.let_steps_run();
        match chief.map(|program| checkpoint::end(plan, shared, program)) {
            None | Some(Ok(())) => break,
            Some(Err(error)) if is_passing(&error) => {
                let now = shared.elapsed();
                if now - *away_since.get_or_insert(now) > plan.options.outage_max {
                    return Err(error);
                }
                shared.interruptions.fetch_add(1, Ordering::SeqCst);
                shared.tell(plan, &Event::Lost { worker: 0, error: error.to_string() });
                shared.go_on();
            }
            Some(Err(error)) => return Err(error),
        }
    }
    if let Some(error) = shared.take_error() {
        return Err(error);
    }
    monitor.entry()?;
    monitor.writer.flush()?;
    plan.screen.progress(&shared.progress(plan, &monitor.tags, monitor.rate));
    let samples = shared.progress(plan, &[], 0.0).samples.0;
    let checkpoint = shared.checkpoint.lock().clone();
    Ok(Outcome {
        updates: shared.updates(),
        samples,
        loss: shared.loss(),
        took: shared.elapsed(),
        updates_lost: shared.updates_lost.load(Ordering::SeqCst),
        interruptions: shared.interruptions.load(Ordering::SeqCst),
        checkpoint,
        evaluations: std::mem::take(&mut shared.evaluations.lock()),
        events,
        left: Vec::new(),
    })
}

struct Monitor<'a> {
    plan: &'a Plan<'a>,
    shared: &'a Shared,
    tags: Vec<String>,
    writer: EventWriter,
    /// When progress was last shown, and when an entry was last written to the event file.
    shown: Duration,
    entered: Duration,
    updates_shown: u64,
    save_after: Duration,
    saves_failed: u32,
    failing_since: Option<Duration>,
    /// The number of updates at the last entry, and the rate before it.
    updates: u64,
    rate: f64,
    /// The number of epochs that are over, those of earlier runs included; `None` at the beginning.
    epochs: Option<u64>,
    /// How often an evaluation was due, and whether one is running.
    evaluations_due: Option<u64>,
    is_evaluating: Arc<AtomicBool>,
    /// The number of evaluations in the event file.
    evaluations_entered: usize,
}

impl<'a> Monitor<'a> {
    fn new(
        plan: &'a Plan<'a>,
        shared: &'a Shared,
        programs: &[(usize, Program)],
        events: &str,
    ) -> Result<Monitor<'a>> {
        let workers: Vec<String> =
            programs.iter().map(|(worker, _)| format!(".worker_{worker}")).collect();
        let suffix = match programs.len() {
            1 => workers.concat(),
            _ => String::new(),
        };
        let mut writer = EventWriter::create(&ByUrl::default(), events, shared.wall(), &suffix)?;
        let tags = programs.first().map_or_else(Vec::new, |(_, program)| {
            program.step.metrics.iter().map(|(tag, ..)| tag.clone()).collect()
        });
        if let Some((_, program)) = programs.first() {
            writer.graph(shared.wall(), &program.graph.to_def())?;
        }
        Ok(Monitor {
            plan,
            shared,
            tags,
            writer,
            shown: Duration::ZERO,
            entered: Duration::ZERO,
            updates_shown: 0,
            save_after: Duration::ZERO,
            saves_failed: 0,
            failing_since: None,
            updates: 0,
            rate: 0.0,
            epochs: None,
            evaluations_due: None,
            is_evaluating: Arc::default(),
            evaluations_entered: 0,
        })
    }

    /// Waits until all workers have ended.
    fn watch<'scope>(
        &mut self,
        chief: Option<&Program>,
        threads: &'scope std::thread::Scope<'scope, '_>,
    ) where
        'a: 'scope,
    {
        let mut over_since = None;
        while self.shared.running.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(PAUSE);
            let now = self.shared.elapsed();
            if self.plan.options.time_max.is_some_and(|most| now >= most) {
                self.shared.finish();
            }
            if self.shared.is_over() {
                if now.saturating_sub(*over_since.get_or_insert(now)) > GRACE {
                    self.shared.cancel_steps();
                }
                continue;
            }
            self.end_epochs();
            if let Some(program) = chief {
                self.scale_rate(program);
                self.evaluate_if_due(program, threads);
                self.save_if_due(program, now);
            }
            if now.saturating_sub(self.entered) >= ENTRY
                && let Err(error) = self.entry()
            {
                self.shared.fail(error);
            }
            self.show(now);
        }
    }

    /// Reports the epochs that are over.
    fn end_epochs(&mut self) {
        let Some(now) = self.shared.epochs(self.plan) else { return };
        let epochs = self.epochs.get_or_insert(now);
        while *epochs < now {
            *epochs += 1;
            let epoch = self.shared.take_epoch(*epochs, &self.tags);
            self.shared.call(self.plan, |callback, control| callback.on_epoch(&epoch, control));
        }
    }

    /// Scales the learning rate if a callback asked for that; tried again if a task is lost.
    fn scale_rate(&mut self, program: &Program) {
        let Some(session) = self.shared.chief.lock().clone() else { return };
        let Some(factor) = self.shared.control.take_rate_factor() else { return };
        let Some((fed, node)) = &program.lead.scale_rate else {
            let error = err!(
                FailedPrecondition,
                "a callback scales the learning rate, but the rate is not Rate::adjustable"
            );
            return self.shared.fail(error);
        };
        let replica = Replica::new(self.plan, self.shared, 0, program);
        let feeds = [(fed.as_str(), Tensor::scalar(factor))];
        if let Err(error) = replica.run_step(&session, &feeds, &[], &[node]) {
            self.shared.control.scale_learning_rate(factor);
            if !is_passing(&error) {
                self.shared.fail(error);
            }
        }
    }

    /// Writes a checkpoint and starts its evaluation, on a thread of its own, if one is due. One
    /// that becomes due while another runs follows that one.
    fn evaluate_if_due<'scope>(
        &mut self,
        program: &Program,
        threads: &'scope std::thread::Scope<'scope, '_>,
    ) where
        'a: 'scope,
    {
        let (plan, shared) = (self.plan, self.shared);
        let Some(evaluator) = &plan.evaluator else { return };
        let Some(epochs) = self.epochs else { return };
        let due = evaluator.every.times(epochs, shared.updates());
        if due <= *self.evaluations_due.get_or_insert(due)
            || self.is_evaluating.load(Ordering::SeqCst)
        {
            return;
        }
        let now = shared.elapsed();
        let Some(session) = shared.chief.lock().clone().filter(|_| now >= self.save_after) else {
            return;
        };
        match checkpoint::save(plan, shared, program, &session) {
            Ok((prefix, updates)) => {
                self.evaluations_due = Some(due);
                self.is_evaluating.store(true, Ordering::SeqCst);
                let is_evaluating = self.is_evaluating.clone();
                shared.control.keep_checkpoint(&prefix);
                threads.spawn(move || {
                    checkpoint::evaluate(plan, shared, evaluator, (&prefix, updates));
                    shared.control.release_checkpoint(&prefix);
                    is_evaluating.store(false, Ordering::SeqCst);
                });
            }
            Err(error) => self.save_failed(error, now),
        }
    }

    /// Shows progress: rate-limited, and in a log only if it changed.
    fn show(&mut self, now: Duration) {
        let updates = self.shared.updates();
        let has_news = self.plan.screen.is_terminal() || updates != self.updates_shown;
        if has_news && now.saturating_sub(self.shown) >= self.plan.screen.pause() {
            (self.shown, self.updates_shown) = (now, updates);
            self.plan.screen.progress(&self.shared.progress(self.plan, &self.tags, self.rate));
        }
    }

    /// Writes a checkpoint once half of `updates_lost_max` updates are unsaved: the other half can
    /// be made while it is written.
    fn save_if_due(&mut self, program: &Program, now: Duration) {
        let unsaved = self.shared.unsaved();
        // Workers hold back at the second number: with many of them it comes first.
        let held = self.plan.updates_unsaved_max();
        let due = (self.plan.options.updates_lost_max / 2).min(held).max(1);
        if unsaved < due || now < self.save_after {
            return;
        }
        let Some(session) = self.shared.chief.lock().clone() else { return };
        match checkpoint::save(self.plan, self.shared, program, &session) {
            Ok(_) => (self.saves_failed, self.failing_since) = (0, None),
            Err(error) => self.save_failed(error, now),
        }
    }

    fn save_failed(&mut self, error: Error, begun: Duration) {
        let now = self.shared.elapsed();
        self.save_after = now + SAVE_PAUSE;
        // The chief meets the same trouble, and sees to it.
        if self.shared.is_over() || is_passing(&error) && error.code() != Code::DeadlineExceeded {
            return;
        }
        self.shared.tell(self.plan, &Event::NotSaved { error: error.to_string() });
        // What is lost while it is written passes too; a disk that is full does not.
        self.saves_failed += 1;
        let away = now.saturating_sub(*self.failing_since.get_or_insert(begun));
        if self.saves_failed == SAVES_FAILED_MAX || away > self.plan.options.outage_max {
            self.shared.fail(error);
        }
    }

    /// Writes loss, metrics and rate to the event file.
    fn entry(&mut self) -> Result<()> {
        let now = self.shared.elapsed();
        let progress = self.shared.progress(self.plan, &self.tags, self.rate);
        let span = now.saturating_sub(self.entered).as_secs_f64();
        self.entered = now;
        if progress.updates > self.updates && span > 0.0 {
            self.rate = (progress.updates - self.updates) as f64 / span;
        }
        self.updates = progress.updates;
        for (updates, summary) in self.shared.take_summaries() {
            self.writer.write_summary(self.shared.wall(), updates as i64, &summary)?;
        }
        let evaluations = self.shared.evaluations.lock().clone();
        for evaluation in &evaluations[self.evaluations_entered..] {
            let all = [vec![("loss".to_owned(), evaluation.loss)], evaluation.metrics.clone()];
            let values = all.concat().into_iter();
            let values =
                values.map(|(tag, value)| summary::scalar(&format!("evaluation/{tag}"), value));
            let values = values.collect::<Result<_>>()?;
            self.writer.summary(self.shared.wall(), evaluation.updates as i64, values)?;
        }
        self.evaluations_entered = evaluations.len();
        if progress.loss.is_nan() {
            return self.writer.flush();
        }
        let mut values = vec![
            summary::scalar("loss", progress.loss)?,
            summary::scalar("updates_per_second", self.rate as f32)?,
            summary::scalar("samples", progress.samples.0 as f32)?,
            summary::scalar("workers", progress.workers as f32)?,
        ];
        for (tag, value) in &progress.metrics {
            values.push(summary::scalar(tag, *value)?);
        }
        self.writer.summary(self.shared.wall(), progress.updates as i64, values)?;
        self.writer.flush()
    }
}
