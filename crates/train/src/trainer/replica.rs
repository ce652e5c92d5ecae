//! One worker: its session, its leases, its steps.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use thalweg_cluster::RemoteSession;
use thalweg_runtime::RunOptions;
use thalweg_tensor::{Error, Result, Tensor, bail, err};

use super::hooks::is_passing;
use super::program::Program;
use super::shared::Shared;
use super::{Event, Flow, Plan, Step};
use crate::{Chief, RunSteps};

/// Between two looks at what somebody else has to do first.
const PAUSE: Duration = Duration::from_millis(10);
/// Between two attempts to open a session.
const RETRY: Duration = Duration::from_millis(50);
/// Gradients in a row that come too late before their samples are returned.
const LATE_MAX: u32 = 3;
/// The generation of variables that are being set.
const NONE: i64 = 0;
/// The generation of variables whose training has ended.
pub(super) const FINISHED: i64 = -1;

/// A worker of this process.
pub(super) struct Replica<'a> {
    pub plan: &'a Plan<'a>,
    pub shared: &'a Shared,
    pub worker: usize,
    pub program: &'a Program,
}

/// Why a worker stops.
enum Trouble {
    /// What it knows of the variables is out of date.
    OutOfDate,
    /// A step failed.
    Failed(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Failed(error)
    }
}

/// Samples that a worker holds.
#[derive(Clone, Copy, Debug)]
struct Lease {
    shard: usize,
    used: u64,
}

/// The end of a worker's thread, however it ends: the others must not wait for it.
struct Ends<'a>(&'a Shared);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(err!(Internal, "the thread of a worker has panicked"));
        }
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Replica<'_> {
    /// Works until training is over, whatever happens to its session.
    pub(super) fn run(&self) {
        let _ends = Ends(self.shared);
        let mut away_since = None;
        let mut has_joined = false;
        // Once at least: variables have values at the end, whatever the limits are.
        loop {
            let ended = self.attend(&mut away_since, &mut has_joined);
            match ended {
                Ok(()) => {}
                Err(_) if self.shared.is_over() => {}
                Err(Trouble::OutOfDate) => std::thread::sleep(PAUSE),
                Err(Trouble::Failed(error)) if is_passing(&error) => {
                    let now = self.shared.elapsed();
                    let since = *away_since.get_or_insert_with(|| {
                        self.interrupted(&error);
                        now
                    });
                    if now.saturating_sub(since) > self.plan.options.outage_max {
                        self.shared.fail(error);
                    }
                    std::thread::sleep(RETRY);
                }
                Err(Trouble::Failed(error)) => self.shared.fail(error),
            }
            if self.shared.is_over() {
                break;
            }
        }
    }

    fn interrupted(&self, error: &Error) {
        self.shared.interruptions.fetch_add(1, Ordering::SeqCst);
        self.shared.releases.lock().push(self.worker);
        let error = error.to_string();
        self.shared.tell(self.plan, &Event::Lost { worker: self.worker, error });
    }

    /// Opens a session and trains in it.
    fn attend(
        &self,
        away_since: &mut Option<Duration>,
        has_joined: &mut bool,
    ) -> Result<(), Trouble> {
        let session = Arc::new(self.plan.cluster.session(self.worker, &self.program.graph)?);
        let generation = match self.worker {
            0 => self.lead(&session)?,
            _ => self.follow(&session, *has_joined)?,
        };
        let Some(generation) = generation else { return Ok(()) };
        *has_joined = true;
        let names = &self.program.coordinated;
        if let Some(start) = &names.start_worker {
            self.run_step(&session, &[], &[], &[start])?;
        }
        let chief =
            names.chief.as_ref().map(|ops| Chief::start(session.clone(), ops)).transpose()?;
        if let Some(since) = away_since.take() {
            let after = self.shared.elapsed().saturating_sub(since);
            self.shared.tell(self.plan, &Event::Back { worker: self.worker, after });
        }
        self.shared.at_work.fetch_add(1, Ordering::SeqCst);
        if self.worker == 0 {
            *self.shared.chief.lock() = Some(session.clone());
        }
        let ended = self.train(&session, generation, chief.as_ref());
        if self.worker == 0 {
            *self.shared.chief.lock() = None;
        }
        self.shared.at_work.fetch_sub(1, Ordering::SeqCst);
        drop(chief);
        if let (Ok(()), Some(leave)) = (&ended, &names.leave) {
            self.run_step(&session, &[], &[], &[leave])?;
        }
        ended
    }

    /// As the chief: sees to it that the variables have values; their generation.
    fn lead(&self, session: &RemoteSession) -> Result<Option<i64>, Trouble> {
        let found = self.generation(session)?;
        if let Some(generation) = found.filter(|&generation| generation != FINISHED) {
            return Ok(Some(generation));
        }
        let checkpoints = self.shared.leading.lock();
        let folder = &self.plan.options.folder;
        let names = &self.program.lead;
        self.set_generation(session, NONE)?;
        let checkpoint = checkpoints.latest(folder)?;
        match &checkpoint {
            Some(prefix) => {
                let prefix = Tensor::scalar_string(prefix.clone());
                let (fed, node) = &names.restore;
                self.run_step(session, &[(fed, prefix)], &[], &[node])?;
                self.run_step(session, &[], &[], &[&names.init_local])?;
            }
            None => {
                self.run_step(session, &[], &[], &[&names.init])?;
            }
        }
        self.run_step(session, &[], &[], &[&names.release_all])?;
        let updates = self.run_step(session, &[], &[&self.program.state[1]], &[])?;
        let updates = updates[0].scalar_value::<i64>()?;
        let (fed, node) = &names.set_saved;
        self.run_step(session, &[(fed, Tensor::scalar(updates))], &[], &[node])?;
        self.began(checkpoint, updates.max(0) as u64);
        let generation = self.shared.new_generation();
        self.set_generation(session, generation)?;
        Ok(Some(generation))
    }

    /// Tells with what the variables begin, and what was lost.
    fn began(&self, checkpoint: Option<String>, updates: u64) {
        let seen = self.shared.updates.swap(updates, Ordering::SeqCst);
        self.shared.saved.store(updates, Ordering::SeqCst);
        self.shared.left.store(i64::MAX, Ordering::SeqCst);
        let lost = seen.saturating_sub(updates);
        self.shared.updates_lost.fetch_add(lost, Ordering::SeqCst);
        let event = match checkpoint {
            Some(checkpoint) => Event::Restored { checkpoint, updates, lost },
            None => Event::Began { workers: self.shared.running.load(Ordering::SeqCst), lost },
        };
        self.shared.tell(self.plan, &event);
    }

    /// As another worker: waits until the variables have values; their generation, none if training
    /// is over.
    fn follow(&self, session: &RemoteSession, has_joined: bool) -> Result<Option<i64>, Trouble> {
        let begin = self.shared.elapsed();
        while !self.shared.is_over() {
            match self.generation(session)? {
                Some(FINISHED) if has_joined => {
                    self.shared.finish();
                    return Ok(None);
                }
                Some(FINISHED) | None => {}
                Some(generation) => return Ok(Some(generation)),
            }
            let waited = self.shared.elapsed().saturating_sub(begin);
            if waited > self.plan.options.outage_max {
                return Err(err!(Unavailable, "no chief has given the variables values").into());
            }
            std::thread::sleep(RETRY);
        }
        Ok(None)
    }

    /// The generation of the variables; none while they have no values.
    fn generation(&self, session: &RemoteSession) -> Result<Option<i64>> {
        let ready = self.run_step(session, &[], &[&self.program.ready], &[])?;
        if !ready[0].scalar_value::<bool>()? {
            return Ok(None);
        }
        let generation = self.run_step(session, &[], &[&self.program.state[0]], &[])?;
        Ok(Some(generation[0].scalar_value::<i64>()?).filter(|&generation| generation != NONE))
    }

    fn set_generation(&self, session: &RemoteSession, generation: i64) -> Result<()> {
        let (fed, node) = &self.program.lead.set_generation;
        self.run_step(session, &[(fed, Tensor::scalar(generation))], &[], &[node]).map(|_| ())
    }

    /// Takes leases and uses them up.
    fn train(
        &self,
        session: &RemoteSession,
        generation: i64,
        chief: Option<&Chief>,
    ) -> Result<(), Trouble> {
        let (mut refusals, mut is_late) = (0, false);
        while !self.shared.is_over() {
            if chief.is_some_and(|chief| !chief.is_leading()) {
                return Err(err!(Aborted, "the chief's rounds have ended").into());
            }
            let used_up = self.release_others(session).and_then(|()| {
                match self.claim(session, generation, is_late)? {
                    Some(lease) => self.use_up(session, generation, lease, &mut refusals),
                    // Others hold what is left; they may yet return it.
                    None => {
                        std::thread::sleep(PAUSE);
                        Ok(true)
                    }
                }
            });
            match used_up {
                Ok(is_used) => is_late = !is_used,
                Err(error) if is_passing(&error) => return Err(error.into()),
                // The variables were lost, or the lease; or it is a mistake and comes again.
                Err(error) => {
                    if self.generation(session)? != Some(generation) {
                        return Err(Trouble::OutOfDate);
                    }
                    refusals += 1;
                    if refusals > 1 {
                        return Err(error.into());
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives the shards of workers that lost their sessions to whoever asks for them.
    fn release_others(&self, session: &RemoteSession) -> Result<()> {
        loop {
            let Some(worker) = self.shared.releases.lock().pop() else { return Ok(()) };
            let (fed, node) = &self.program.release;
            let released =
                self.run_step(session, &[(fed, Tensor::scalar(worker as i64))], &[], &[node]);
            if let Err(error) = released {
                self.shared.releases.lock().push(worker);
                return Err(error);
            }
        }
    }

    fn claim(
        &self,
        session: &RemoteSession,
        generation: i64,
        is_late: bool,
    ) -> Result<Option<Lease>> {
        let names = &self.program.claim;
        let numbers = [self.worker as i64, generation, i64::from(is_late)].map(Tensor::scalar);
        let feeds: Vec<(&str, Tensor)> =
            names.fed.iter().map(String::as_str).zip(numbers).collect();
        let fetches: Vec<&str> = names.fetched.iter().map(String::as_str).collect();
        let found = self.run_step(session, &feeds, &fetches, &[&names.done])?;
        let number = |i: usize| found[i].scalar_value::<i64>();
        let (shard, used, left) = (number(0)?, number(1)?, number(2)?);
        self.shared.left.store(left, Ordering::SeqCst);
        if left == 0 {
            self.shared.finish();
            return Ok(None);
        }
        let lease = usize::try_from(shard).ok().zip(u64::try_from(used).ok());
        Ok(lease.map(|(shard, used)| Lease { shard, used }))
    }

    /// Trains on the samples of a lease, to the end of their epoch, or until gradients come too late
    /// again and again: then the rest is for others. Whether all were used.
    fn use_up(
        &self,
        session: &RemoteSession,
        generation: i64,
        mut lease: Lease,
        refusals: &mut u32,
    ) -> Result<bool> {
        let size = self.plan.shards.size(lease.shard).max(1) as u64;
        let end = (lease.used / size + 1) * size;
        let mut late = 0;
        while lease.used < end && !self.shared.is_over() {
            self.hold_back(session)?;
            let trained = self.step(session, generation, lease);
            let step = match trained {
                Ok(step) => step,
                Err(error) => {
                    if is_passing(&error) && !self.shared.is_over() {
                        self.returned(lease, end);
                    }
                    return Err(error);
                }
            };
            *refusals = 0;
            let is_wanted = lease.used < size.saturating_mul(self.plan.options.epochs);
            self.shared.note(&step, is_wanted);
            let is_enough = self.plan.options.updates_max.is_some_and(|most| step.updates >= most);
            if is_enough || self.after_step(&step)? == Flow::Stop {
                self.shared.finish();
            }
            if step.is_used {
                lease.used += step.samples as u64;
                late = 0;
            } else {
                late += 1;
                if late == LATE_MAX {
                    return Ok(false);
                }
            }
            if self.shared.may_have_all() {
                break;
            }
        }
        Ok(true)
    }

    fn returned(&self, lease: Lease, end: u64) {
        let event = Event::Returned {
            worker: self.worker,
            shard: lease.shard,
            unused: end.saturating_sub(lease.used),
        };
        self.shared.tell(self.plan, &event);
    }

    fn after_step(&self, step: &Step) -> Result<Flow> {
        let mut flow = Flow::Continue;
        for hook in self.plan.hooks {
            if hook.after_step(step)? == Flow::Stop {
                flow = Flow::Stop;
            }
        }
        Ok(flow)
    }

    /// Waits while so many updates are in no checkpoint that with those on their way there might be
    /// more than may be lost.
    fn hold_back(&self, session: &RemoteSession) -> Result<()> {
        let most = self.plan.updates_unsaved_max();
        let unsaved = || {
            let updates = self.shared.updates.load(Ordering::SeqCst);
            updates.saturating_sub(self.shared.saved.load(Ordering::SeqCst))
        };
        while unsaved() > most && !self.shared.is_over() {
            std::thread::sleep(PAUSE);
            let saved = self.run_step(session, &[], &[&self.program.step.counts[1]], &[])?;
            let saved = saved[0].scalar_value::<i64>()?.max(0) as u64;
            self.shared.saved.fetch_max(saved, Ordering::SeqCst);
        }
        Ok(())
    }

    fn step(&self, session: &RemoteSession, generation: i64, lease: Lease) -> Result<Step> {
        for hook in self.plan.hooks {
            hook.before_step(self.worker)?;
        }
        let indices = self.plan.shards.batch(lease.shard, lease.used, self.plan.options.batch);
        let tensors = self.plan.samples.batch(&indices)?;
        let names = &self.program.step;
        let numbers = [
            self.worker as i64,
            generation,
            lease.shard as i64,
            lease.used as i64,
            indices.len() as i64,
        ];
        let mut feeds: Vec<(&str, Tensor)> =
            names.inputs.iter().map(String::as_str).zip(tensors).collect();
        feeds.extend(names.batch.iter().map(String::as_str).zip(numbers.map(Tensor::scalar)));
        let mut fetches = vec![names.loss.as_str(), &names.counts[0], &names.counts[1]];
        fetches.extend(names.figures.iter().map(|(_, name)| name.as_str()));
        let coordinated = &self.program.coordinated;
        fetches.extend(coordinated.used.as_deref());
        let summary = names.summary.as_deref().filter(|_| self.shared.takes_summary(self.plan));
        fetches.extend(summary);
        let found = self.run_step(session, &feeds, &fetches, &[&coordinated.step]);
        let mut found = match (found, summary) {
            (found, None) => found?,
            (found, Some(_)) => self.without_summary(found)?,
        };
        let is_used = match coordinated.used {
            Some(_) => found.pop().map_or(Ok(true), |used| used.scalar_value())?,
            None => true,
        };
        let saved = found[2].scalar_value::<i64>()?.max(0) as u64;
        self.shared.saved.fetch_max(saved, Ordering::SeqCst);
        Ok(Step {
            worker: self.worker,
            updates: found[1].scalar_value::<i64>()?.max(0) as u64,
            samples: indices.len(),
            is_used,
            loss: found[0].scalar_value()?,
            figures: found[3..].iter().map(Tensor::scalar_value).collect::<Result<_>>()?,
        })
    }

    /// What a step gave, but for the summaries, which come last; they are noted.
    fn without_summary(&self, found: Result<Vec<Tensor>>) -> Result<Vec<Tensor>> {
        let noted = found.and_then(|mut found| {
            let summary = found.pop().ok_or_else(|| err!(Internal, "a step without fetches"))?;
            let summary = summary.strings()?.first().cloned().unwrap_or_default();
            Ok((found[1].scalar_value::<i64>()?.max(0) as u64, summary, found))
        });
        match noted {
            Ok((updates, summary, found)) => {
                self.shared.note_summary(self.plan, Some((updates, summary)));
                Ok(found)
            }
            Err(error) => {
                self.shared.note_summary(self.plan, None);
                Err(error)
            }
        }
    }

    fn run_step(
        &self,
        session: &RemoteSession,
        feeds: &[(&str, Tensor)],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<Vec<Tensor>> {
        let options = RunOptions {
            timeout: Some(self.plan.options.step_time_max),
            cancellation: Some(self.shared.cancellation()),
            ..RunOptions::default()
        };
        session.run_step_with(&options, feeds, fetches, targets).map(|(tensors, _)| tensors)
    }
}

/// Saves all variables as they are, and lets the workers know.
pub(super) fn save(
    plan: &Plan<'_>,
    shared: &Shared,
    program: &Program,
    session: &RemoteSession,
) -> Result<()> {
    let mut checkpoints = shared.leading.lock();
    let begin = shared.elapsed();
    let base = format!("{}/model", plan.options.folder.trim_end_matches('/'));
    let (fed, fetches, targets) = &program.lead.save;
    let fetches: Vec<&str> = fetches.iter().map(String::as_str).collect();
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    let found = session.run_step(&[(fed, Tensor::scalar_string(base))], &fetches, &targets)?;
    let prefix =
        found[0].strings()?.first().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let prefix = prefix.ok_or_else(|| err!(Internal, "a checkpoint without a name"))?;
    let updates = found[1].scalar_value::<i64>()?;
    checkpoints.add(&prefix)?;
    let (fed, node) = &program.lead.set_saved;
    session.run_step(&[(fed, Tensor::scalar(updates))], &[], &[node])?;
    let updates = updates.max(0) as u64;
    shared.saved.store(updates, Ordering::SeqCst);
    *shared.checkpoint.lock() = Some(prefix.clone());
    let took = shared.elapsed().saturating_sub(begin);
    shared.tell(plan, &Event::Saved { checkpoint: prefix, updates, took });
    Ok(())
}

/// The last checkpoint, and a word to whoever still works: training has ended.
pub(super) fn end(plan: &Plan<'_>, shared: &Shared, program: &Program) -> Result<()> {
    let session = plan.cluster.session(0, &program.graph)?;
    let replica = Replica { plan, shared, worker: 0, program };
    // A parameter server that was lost after the last step is no end: training goes on from the
    // checkpoint.
    if replica.generation(&session)?.is_none() {
        bail!(Aborted, "the variables were lost at the end");
    }
    save(plan, shared, program, &session)?;
    replica.set_generation(&session, FINISHED)
}
