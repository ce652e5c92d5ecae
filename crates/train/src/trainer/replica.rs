//! A worker of this process: its session, its leases, its steps.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use thalweg_cluster::RemoteSession;
use thalweg_runtime::RunOptions;
use thalweg_tensor::{Error, Result, Tensor, err};

use super::callbacks::is_passing;
use super::program::Program;
use super::shared::Shared;
use super::{Event, Plan, Step};
use crate::leases::NONE;
use crate::{Chief, RunSteps};

/// The polling interval while a worker waits for another.
const PAUSE: Duration = Duration::from_millis(10);
/// The interval of attempts to open a session.
const RETRY: Duration = Duration::from_millis(50);
/// The number of consecutive errors between two steps that are tolerated: a lost lease, or lost
/// variables.
const REFUSALS_MAX: u32 = 1;
const LOSSES_MAX: u32 = 5;
/// The number of consecutive stale gradients after which a worker returns its samples.
const LATE_MAX: u32 = 3;
/// The generation of variables whose training has ended.
pub(super) const FINISHED: i64 = -1;

/// A worker of this process.
pub(super) struct Replica<'a> {
    pub plan: &'a Plan<'a>,
    pub shared: &'a Shared,
    pub worker: usize,
    pub program: &'a Program,
    /// Since when the worker has not completed a step, if its session was lost.
    away_since: Cell<Option<Duration>>,
    /// Whether the worker has trained in this training.
    has_joined: Cell<bool>,
    /// The number of errors since the last step that no lost task explains.
    refusals: Cell<u32>,
}

/// Why a worker leaves its session.
pub(super) enum Trouble {
    /// The worker's generation of the variables is out of date.
    OutOfDate,
    /// A step failed; a new session may succeed.
    Failed(Error),
    /// An error that no new session resolves.
    Final(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Failed(error)
    }
}

/// The samples that a worker holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub shard: usize,
    pub used: u64,
}

/// Marks the end of a worker's thread, also on a panic, so that other threads do not wait for it.
struct Ends<'a>(&'a Shared);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(err!(Internal, "the thread of a worker has panicked"));
        }
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<'a> Replica<'a> {
    pub(super) fn new(
        plan: &'a Plan<'a>,
        shared: &'a Shared,
        worker: usize,
        program: &'a Program,
    ) -> Replica<'a> {
        Replica {
            plan,
            shared,
            worker,
            program,
            away_since: Cell::new(None),
            has_joined: Cell::new(false),
            refusals: Cell::new(0),
        }
    }

    /// Runs until training is over, opening new sessions as needed.
    pub(super) fn run(&self) {
        let _ends = Ends(self.shared);
        // Once at least: variables have values at the end, whatever the limits are.
        loop {
            match self.attend() {
                Ok(()) => {}
                Err(Trouble::Final(error)) => self.shared.fail(error),
                Err(_) if self.shared.is_over() => {}
                Err(Trouble::OutOfDate) => std::thread::sleep(PAUSE),
                Err(Trouble::Failed(error)) if is_passing(&error) => {
                    self.stay_away(error);
                    std::thread::sleep(RETRY);
                }
                Err(Trouble::Failed(error)) => self.shared.fail(error),
            }
            if self.shared.is_over() {
                break;
            }
        }
    }

    /// Handles a lost session or a failed step: for `outage_max` it is not a failure of the
    /// training.
    fn stay_away(&self, error: Error) {
        let now = self.shared.elapsed();
        let since = self.away_since.get().unwrap_or_else(|| {
            self.interrupted(&error);
            now
        });
        self.away_since.set(Some(since));
        if now.saturating_sub(since) > self.plan.options.outage_max {
            self.shared.fail(error);
        }
    }

    /// Marks the worker as training, or as waiting for samples.
    fn is_back(&self) {
        if let Some(since) = self.away_since.take() {
            let after = self.shared.elapsed().saturating_sub(since);
            self.shared.tell(self.plan, &Event::Back { worker: self.worker, after });
        }
    }

    fn interrupted(&self, error: &Error) {
        self.shared.interruptions.fetch_add(1, Ordering::SeqCst);
        self.shared.releases.lock().push(self.worker);
        let error = error.to_string();
        self.shared.tell(self.plan, &Event::Lost { worker: self.worker, error });
    }

    /// Opens a session and trains in it.
    fn attend(&self) -> Result<(), Trouble> {
        let session = Arc::new(self.plan.cluster.session(self.worker, &self.program.graph)?);
        let generation = match self.worker {
            0 => Some(self.lead(&session)?),
            _ => self.follow(&session)?,
        };
        let Some(generation) = generation else { return Ok(()) };
        self.has_joined.set(true);
        let names = &self.program.coordinated;
        // First the chief: it gives up a round that was on its way.
        let chief =
            names.chief.as_ref().map(|ops| Chief::start(session.clone(), ops)).transpose()?;
        self.run_if_any(&session, names.start_worker.as_deref())?;
        // Its next claim returns what it held.
        self.shared.releases.lock().retain(|&worker| worker != self.worker);
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
        if ended.is_ok() {
            self.release(&session, self.worker)?;
            self.run_if_any(&session, names.leave.as_deref())?;
        }
        ended
    }

    fn run_if_any(&self, session: &RemoteSession, target: Option<&str>) -> Result<()> {
        match target {
            Some(target) => self.run_step(session, &[], &[], &[target]).map(|_| ()),
            None => Ok(()),
        }
    }

    /// The chief: makes sure that the variables are initialized; returns their generation.
    fn lead(&self, session: &RemoteSession) -> Result<i64, Trouble> {
        let found = self.generation(session)?;
        if let Some(generation) = found.filter(|&generation| generation != FINISHED)
            && (self.has_joined.get() || !self.is_behind_checkpoint(session)?)
        {
            self.join(session, generation)?;
            return Ok(generation);
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
        let generation = self.shared.new_generation();
        self.began(checkpoint, generation, updates.max(0) as u64);
        self.set_generation(session, generation)?;
        Ok(generation)
    }

    /// Whether the latest checkpoint has more updates than the initialized variables: then another run, such as
    /// one that failed at its start, has left them.
    fn is_behind_checkpoint(&self, session: &RemoteSession) -> Result<bool> {
        let latest = self.shared.leading.lock().latest(&self.plan.options.folder)?;
        let step = latest.as_deref().and_then(|prefix| prefix.rsplit_once('-')?.1.parse().ok());
        let updates = self.run_step(session, &[], &[&self.program.state[1]], &[])?;
        let updates = updates[0].scalar_value::<i64>()?;
        Ok(step.is_some_and(|step: i64| step > updates))
    }

    /// Reports which checkpoint the variables were restored from, and how many updates were lost.
    fn began(&self, checkpoint: Option<String>, generation: i64, updates: u64) {
        let lost = self.shared.begin(generation, updates);
        self.shared.updates_lost.fetch_add(lost, Ordering::SeqCst);
        let event = match checkpoint {
            Some(checkpoint) => Event::Restored { checkpoint, updates, lost },
            None => Event::Began { workers: self.shared.running.load(Ordering::SeqCst), lost },
        };
        self.shared.tell(self.plan, &event);
    }

    /// Another worker: waits until the variables are initialized; returns their generation, `None`
    /// if training is over.
    fn follow(&self, session: &RemoteSession) -> Result<Option<i64>, Trouble> {
        let begin = self.shared.elapsed();
        while !self.shared.is_over() {
            let found = self.generation(session)?;
            let is_finished = found == Some(FINISHED);
            if let Some(generation) = found.filter(|_| !is_finished) {
                if !self.plan.has_chief {
                    self.join(session, generation)?;
                }
                return Ok(Some(generation));
            }
            if is_finished && self.is_finished_for_good(session)? {
                self.shared.finish();
                return Ok(None);
            }
            let waited = self.shared.elapsed().saturating_sub(begin);
            if waited > self.plan.options.outage_max {
                let what = if is_finished {
                    "restarted the training"
                } else {
                    "initialized the variables"
                };
                let error = err!(Unavailable, "no chief has {what}");
                return Err(Trouble::Final(error));
            }
            std::thread::sleep(RETRY);
        }
        Ok(None)
    }

    /// Continues with variables that another process, or an earlier chief, has initialized.
    fn join(&self, session: &RemoteSession, generation: i64) -> Result<()> {
        let names = [&self.program.state[1], &self.program.step.counts[1]].map(String::as_str);
        let found = self.run_step(session, &[], &names, &[])?;
        let number = |i: usize| Ok(found[i].scalar_value::<i64>()?.max(0) as u64);
        let (updates, saved) = (number(0)?, number(1)?);
        self.shared.join(generation, updates, saved);
        if !self.has_joined.get() {
            self.shared.tell(self.plan, &Event::Joined { worker: self.worker, updates });
        }
        Ok(())
    }

    /// Whether a finished training is over for this worker. If training was stopped before its
    /// samples were used up and this worker has not trained, a chief that starts later may continue
    /// it.
    fn is_finished_for_good(&self, session: &RemoteSession) -> Result<bool> {
        // The chief is in this process, and begins anew.
        if self.plan.has_chief && !self.has_joined.get() {
            return Ok(false);
        }
        let state = &self.program.state;
        let found = self.run_step(session, &[], &[&state[1], &state[2]], &[])?;
        let updates = found[0].scalar_value::<i64>()?.max(0) as u64;
        let left = found[1].scalar_value::<i64>()?;
        let is_enough = self.plan.options.updates_max.is_some_and(|most| updates >= most);
        let is_so = self.has_joined.get() || left == 0 || is_enough;
        if is_so {
            self.shared.end(updates, left);
        }
        Ok(is_so)
    }

    /// The generation of the variables; `None` while they are uninitialized.
    pub(super) fn generation(&self, session: &RemoteSession) -> Result<Option<i64>> {
        let ready = self.run_step(session, &[], &[&self.program.ready], &[])?;
        if !ready[0].scalar_value::<bool>()? {
            return Ok(None);
        }
        let generation = self.run_step(session, &[], &[&self.program.state[0]], &[])?;
        Ok(Some(generation[0].scalar_value::<i64>()?).filter(|&generation| generation != NONE))
    }

    pub(super) fn set_generation(&self, session: &RemoteSession, generation: i64) -> Result<()> {
        let (fed, node) = &self.program.lead.set_generation;
        self.run_step(session, &[(fed, Tensor::scalar(generation))], &[], &[node]).map(|_| ())
    }

    /// Claims shards and trains on them.
    fn train(
        &self,
        session: &RemoteSession,
        generation: i64,
        chief: Option<&Chief>,
    ) -> Result<(), Trouble> {
        let (mut is_late, mut is_idle) = (false, false);
        while !self.shared.is_over() {
            let used_up = match chief.filter(|chief| !chief.is_leading()) {
                // Its own step may have failed too, but the chief knows why.
                Some(chief) => Err(Trouble::Failed(
                    chief
                        .failure()
                        .unwrap_or_else(|| err!(Aborted, "the chief's rounds have ended")),
                )),
                None => self.work(session, generation, (&mut is_late, &mut is_idle)),
            };
            match used_up {
                Ok(()) => {}
                Err(Trouble::Failed(error)) if !is_passing(&error) => {
                    // The variables were lost, or the lease; or it is a mistake and comes again.
                    let is_known = self.generation(session)? == Some(generation);
                    self.refusals.update(|refusals| refusals + 1);
                    let most = if is_known { REFUSALS_MAX } else { LOSSES_MAX };
                    if self.refusals.get() > most {
                        return Err(Trouble::Final(error));
                    }
                    if !is_known {
                        return Err(Trouble::OutOfDate);
                    }
                }
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(())
    }

    /// Claims a shard and trains on it. A worker without a shard is idle, and rounds do not wait
    /// for it.
    fn work(
        &self,
        session: &RemoteSession,
        generation: i64,
        (is_late, is_idle): (&mut bool, &mut bool),
    ) -> Result<(), Trouble> {
        let names = &self.program.coordinated;
        self.release_others(session)?;
        let Some(lease) = self.claim(session, generation, *is_late)? else {
            // Others hold what is left; they may yet return it.
            if !std::mem::replace(is_idle, true) {
                self.run_if_any(session, names.leave.as_deref())?;
                self.is_back();
            }
            std::thread::sleep(PAUSE);
            return Ok(());
        };
        if std::mem::replace(is_idle, false) {
            self.run_if_any(session, names.start_worker.as_deref())?;
        }
        *is_late = !self.use_up(session, generation, lease)?;
        Ok(())
    }

    /// Frees the shards of workers that lost their sessions.
    fn release_others(&self, session: &RemoteSession) -> Result<()> {
        loop {
            let Some(worker) = self.shared.releases.lock().pop() else { return Ok(()) };
            if let Err(error) = self.release(session, worker) {
                self.shared.releases.lock().push(worker);
                return Err(error);
            }
        }
    }

    /// Frees the shards of a worker.
    fn release(&self, session: &RemoteSession, worker: usize) -> Result<()> {
        let (fed, node) = &self.program.release;
        self.run_step(session, &[(fed, Tensor::scalar(worker as i64))], &[], &[node]).map(|_| ())
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
        self.shared.note_left(generation, left);
        if left == 0 {
            self.shared.finish();
            return Ok(None);
        }
        let lease = usize::try_from(shard).ok().zip(u64::try_from(used).ok());
        Ok(lease.map(|(shard, used)| Lease { shard, used }))
    }

    /// Trains on the samples of a lease to the end of their epoch, or until too many gradients are
    /// stale; then the rest goes to other workers. Returns whether all samples were used.
    fn use_up(
        &self,
        session: &RemoteSession,
        generation: i64,
        mut lease: Lease,
    ) -> Result<bool, Trouble> {
        let size = self.plan.shards.size(lease.shard).max(1) as u64;
        let end = (lease.used / size + 1) * size;
        let mut late = 0;
        while lease.used < end && !self.shared.is_over() {
            self.hold_back(session, generation)?;
            let trained = self.step(session, generation, lease);
            let (step, saved) = match trained {
                Ok(trained) => trained,
                Err(trouble) => {
                    if matches!(&trouble, Trouble::Failed(error) if is_passing(error))
                        && !self.shared.is_over()
                    {
                        self.returned(lease, end);
                    }
                    return Err(trouble);
                }
            };
            self.refusals.set(0);
            self.is_back();
            let is_wanted = lease.used < size.saturating_mul(self.plan.options.epochs);
            self.shared.note(generation, &step, saved, is_wanted);
            let is_enough = self.plan.options.updates_max.is_some_and(|most| step.updates >= most);
            if is_enough {
                self.shared.finish();
            }
            self.after_step(&step)?;
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

    /// Calls the callbacks; the error of one ends training.
    fn after_step(&self, step: &Step) -> Result<(), Trouble> {
        for callback in self.plan.callbacks {
            callback.on_step(step, &self.shared.control).map_err(Trouble::Final)?;
        }
        Ok(())
    }

    /// Waits while so many updates are unsaved that, with those in flight, more than
    /// `updates_lost_max` could be lost.
    fn hold_back(&self, session: &RemoteSession, generation: i64) -> Result<(), Trouble> {
        let options = self.plan.options;
        let most = self.plan.updates_unsaved_max();
        let begin = self.shared.elapsed();
        let patience = options.outage_max.saturating_add(options.save_time_max);
        while self.shared.unsaved() > most && !self.shared.is_over() {
            std::thread::sleep(PAUSE);
            let saved = self.run_step(session, &[], &[&self.program.step.counts[1]], &[])?;
            let saved = saved[0].scalar_value::<i64>()?.max(0) as u64;
            self.shared.note_saved(generation, saved);
            let waited = self.shared.elapsed().saturating_sub(begin);
            if waited > patience {
                let error = err!(
                    Unavailable,
                    "{} updates are in no checkpoint, and none was written for {:.0} s",
                    self.shared.unsaved(),
                    waited.as_secs_f64()
                );
                return Err(Trouble::Final(error));
            }
        }
        Ok(())
    }

    pub(super) fn run_step(
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
