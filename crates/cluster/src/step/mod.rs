//! The steps that have something to do with this task, by number.

pub(crate) mod failure_log;
#[cfg(test)]
mod histories_tests;
pub(crate) mod life;
pub(crate) mod recent_ids;
pub(crate) mod rendezvous;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use thalweg_kernel::{Entropy, Received, Rendezvous, RendezvousKey};
use thalweg_tensor::{Error, Result, ensure};

use crate::cluster_spec::TaskName;
use crate::network::transport::Transport;
use crate::step::life::{Action, Event, Life, is_over};
use crate::step::rendezvous::TaskRendezvous;
use crate::watch::Watch;

/// Steps that may have a table at once.
const STEPS_MAX: usize = 1 << 20;
/// Ended steps that are remembered, so that who comes late does not make a new table.
const ENDED_MAX: usize = 1 << 16;

/// All steps of a task.
pub(crate) struct Steps {
    own: TaskName,
    transport: Option<Arc<dyn Transport>>,
    entropy: Arc<dyn Entropy>,
    watch: Arc<Watch>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    steps: FxHashMap<u64, Entry>,
    ended: FxHashMap<u64, Error>,
    /// The ended ones, oldest first.
    order: VecDeque<u64>,
}

struct Entry {
    life: Life,
    table: Arc<TaskRendezvous>,
    /// The connection by which the master had it run.
    connection: Option<Weak<()>>,
    /// When that connection was first seen to be gone.
    gone_since: Option<Duration>,
}

/// How a request to run a step is taken.
pub(crate) enum Admitted {
    /// It is the first.
    Begins(Arc<TaskRendezvous>),
    /// The step runs already.
    Joins(Arc<TaskRendezvous>),
}

impl Steps {
    pub(crate) fn new(
        own: TaskName,
        transport: Option<Arc<dyn Transport>>,
        entropy: Arc<dyn Entropy>,
        watch: Arc<Watch>,
    ) -> Steps {
        Steps { own, transport, entropy, watch, state: Mutex::default() }
    }

    /// A step that this task's master begins.
    pub(crate) fn begin(&self, step: u64) -> Arc<TaskRendezvous> {
        let mut state = self.state.lock();
        let entry = state.steps.entry(step).or_insert_with(|| self.entry(step));
        entry.life.on(step, Event::Run { is_partial: false });
        entry.table.clone()
    }

    /// A request to run a step.
    pub(crate) fn run(
        &self,
        step: u64,
        is_partial: bool,
        connection: Option<Weak<()>>,
    ) -> Result<Admitted> {
        let mut state = self.state.lock();
        let entry = self.find_or_make(&mut state, step)?;
        match entry.life.on(step, Event::Run { is_partial }) {
            Action::Start => {
                entry.connection = connection;
                Ok(Admitted::Begins(entry.table.clone()))
            }
            Action::Refuse(e) => Err(e),
            _ => Ok(Admitted::Joins(entry.table.clone())),
        }
    }

    /// What ran here of a step has ended.
    pub(crate) fn finished(&self, step: u64, error: Option<Error>) {
        self.event(step, Event::Finished(error));
    }

    /// What ran here of a step has ended. If it went well and everybody has what it gave, the step is
    /// forgotten at once, and the answer is true: its master need not say so.
    pub(crate) fn finished_whole(&self, step: u64, error: Option<Error>) -> bool {
        let went_well = error.is_none();
        let mut state = self.state.lock();
        let Some(entry) = state.steps.get_mut(&step) else { return false };
        if !went_well || !entry.table.local().is_empty() {
            drop(state);
            self.finished(step, error);
            return false;
        }
        entry.life.on(step, Event::Finished(None));
        let gone = state.steps.remove(&step);
        state.remember(step, is_over(step));
        drop(state);
        // Somebody may have found the table just before it went.
        if let Some(gone) = gone {
            gone.table.local().abort(&is_over(step));
        }
        true
    }

    /// Another task wants a tensor.
    pub(crate) fn want(&self, step: u64, key: &RendezvousKey, received: Received) {
        let found = {
            let mut state = self.state.lock();
            self.find_or_make(&mut state, step).and_then(|entry| {
                match entry.life.on(step, Event::Wanted) {
                    Action::Refuse(e) => Err(e),
                    _ => Ok(entry.table.clone()),
                }
            })
        };
        match found {
            Ok(table) => table.local().receive(key, received),
            Err(e) => received(Err(e)),
        }
    }

    /// A task that wanted a tensor has given up.
    pub(crate) fn want_no_more(&self, step: u64) {
        self.event(step, Event::WantedNoMore);
    }

    /// Lets a step go: its master forgets it.
    pub(crate) fn forget(&self, step: u64) {
        let mut state = self.state.lock();
        if !state.steps.contains_key(&step) {
            // Its RunGraph may still be on its way.
            state.remember(step, is_over(step));
            return;
        }
        drop(state);
        self.event(step, Event::Forget);
    }

    /// Lets those steps go whose master's connection has been gone for `limit`. Until then it may
    /// still come back to clean up, and others may still want what the step gave.
    pub(crate) fn forget_orphans(&self, now: Duration, limit: Duration) {
        let is_orphan = |entry: &mut Entry| {
            let is_gone = entry.connection.as_ref().is_some_and(|c| c.strong_count() == 0);
            let since = *entry.gone_since.get_or_insert(now);
            if !is_gone {
                entry.gone_since = None;
            }
            is_gone && now.saturating_sub(since) >= limit
        };
        let orphans: Vec<u64> = {
            let mut state = self.state.lock();
            let all = state.steps.iter_mut();
            all.filter_map(|(&step, entry)| is_orphan(entry).then_some(step)).collect()
        };
        orphans.into_iter().for_each(|step| self.event(step, Event::Forget));
    }

    /// Steps with a table.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().steps.len()
    }

    fn event(&self, step: u64, event: Event) {
        let mut state = self.state.lock();
        let Some(entry) = state.steps.get_mut(&step) else { return };
        // One that nobody awaits any more may still begin; one that its master forgets may not.
        let is_forgotten = matches!(event, Event::Forget);
        match entry.life.on(step, event) {
            Action::Drop(cause) => {
                let table = entry.table.clone();
                state.steps.remove(&step);
                if is_forgotten {
                    state.remember(step, cause.clone());
                }
                drop(state);
                table.abort(&cause);
            }
            Action::Abort(cause) => {
                let table = entry.table.clone();
                drop(state);
                table.abort(&cause);
            }
            _ => {}
        }
    }

    fn find_or_make<'a>(&self, state: &'a mut State, step: u64) -> Result<&'a mut Entry> {
        if let Some(cause) = state.ended.get(&step) {
            return Err(cause.clone());
        }
        ensure!(
            state.steps.len() < STEPS_MAX,
            ResourceExhausted,
            "{STEPS_MAX} steps are on their way on this task"
        );
        Ok(state.steps.entry(step).or_insert_with(|| self.entry(step)))
    }

    fn entry(&self, step: u64) -> Entry {
        let (transport, entropy) = (self.transport.clone(), self.entropy.clone());
        let table = TaskRendezvous::new(&self.own, transport, entropy, step, self.watch.clone());
        let table = Arc::new(table);
        Entry { life: Life::new(), table, connection: None, gone_since: None }
    }
}

impl State {
    fn remember(&mut self, step: u64, cause: Error) {
        if self.ended.insert(step, cause).is_none() {
            self.order.push_back(step);
        }
        while self.order.len() > ENDED_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.ended.remove(&oldest);
            }
        }
    }
}
