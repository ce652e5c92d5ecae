//! The steps of a task by id: their state machines and their rendezvous.

pub(crate) mod failure_log;
#[cfg(test)]
mod histories_tests;
pub(crate) mod recent_ids;
pub(crate) mod rendezvous;
pub(crate) mod sent_log;
pub(crate) mod worker_step;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use thalweg_kernel::{Entropy, Received, Rendezvous, RendezvousKey};
use thalweg_tensor::{Error, Result, ensure};

use crate::cluster_spec::TaskName;
use crate::diagnostics::Diagnostics;
use crate::network::transport::Transport;
use crate::step::rendezvous::TaskRendezvous;
use crate::step::worker_step::{Action, Event, WorkerStep, step_ended};

/// Maximum number of steps with a rendezvous.
const STEPS_MAX: usize = 1 << 20;
/// Maximum number of ended steps that are remembered, so that late requests do not make a new rendezvous.
const ENDED_MAX: usize = 1 << 16;

/// The steps of a task, under one of its names.
pub(crate) struct Steps {
    own: TaskName,
    transport: Option<Arc<dyn Transport>>,
    entropy: Arc<dyn Entropy>,
    diagnostics: Arc<Diagnostics>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    steps: FxHashMap<u64, Entry>,
    ended: FxHashMap<u64, Error>,
    /// Ids of `ended`, oldest first.
    order: VecDeque<u64>,
}

struct Entry {
    state: WorkerStep,
    table: Arc<TaskRendezvous>,
    /// The connection on which the master sent `RunGraph`.
    connection: Option<Weak<()>>,
    /// When that connection was first found closed.
    closed_since: Option<Duration>,
}

/// An accepted `RunGraph`.
pub(crate) enum Admitted {
    /// The first request of the step, which starts it.
    Starts(Arc<TaskRendezvous>),
    /// A later request of a partial run, which joins the running step.
    Joins(Arc<TaskRendezvous>),
}

impl Steps {
    pub(crate) fn new(
        own: TaskName,
        transport: Option<Arc<dyn Transport>>,
        entropy: Arc<dyn Entropy>,
        diagnostics: Arc<Diagnostics>,
    ) -> Steps {
        Steps { own, transport, entropy, diagnostics, state: Mutex::default() }
    }

    /// Begins a step of this task's own master.
    pub(crate) fn begin(&self, step: u64) -> Arc<TaskRendezvous> {
        let mut state = self.state.lock();
        let entry = state.steps.entry(step).or_insert_with(|| self.new_entry(step));
        entry.state.handle(step, Event::Run { is_partial: false });
        entry.table.clone()
    }

    /// Accepts or refuses a `RunGraph`.
    pub(crate) fn run(
        &self,
        step: u64,
        is_partial: bool,
        connection: Option<Weak<()>>,
    ) -> Result<Admitted> {
        let mut state = self.state.lock();
        let entry = self.find_or_insert(&mut state, step)?;
        match entry.state.handle(step, Event::Run { is_partial }) {
            Action::Start => {
                entry.connection = connection;
                Ok(Admitted::Starts(entry.table.clone()))
            }
            Action::Refuse(e) => Err(e),
            _ => Ok(Admitted::Joins(entry.table.clone())),
        }
    }

    /// The partitions of this task have ended.
    pub(crate) fn finished(&self, step: u64, error: Option<Error>) {
        self.event(step, Event::Finished(error));
    }

    /// The partitions of this task have ended. If they succeeded and no tensor is left in the rendezvous,
    /// the step is dropped at once and this returns true: it needs no `CleanupGraph`.
    pub(crate) fn finish_and_clean_up(&self, step: u64, error: Option<Error>) -> bool {
        let succeeded = error.is_none();
        let mut state = self.state.lock();
        let Some(entry) = state.steps.get_mut(&step) else { return false };
        if !succeeded || !entry.table.local().is_empty() {
            drop(state);
            self.finished(step, error);
            return false;
        }
        entry.state.handle(step, Event::Finished(None));
        let removed = state.steps.remove(&step);
        state.remember(step, step_ended(step));
        drop(state);
        // A request may have found the rendezvous just before it was removed.
        if let Some(entry) = removed {
            entry.table.local().abort(&step_ended(step));
        }
        true
    }

    /// Another task requests a tensor.
    pub(crate) fn request_tensor(&self, step: u64, key: &RendezvousKey, received: Received) {
        let found = {
            let mut state = self.state.lock();
            self.find_or_insert(&mut state, step).and_then(|entry| {
                match entry.state.handle(step, Event::TensorRequested) {
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

    /// Another task has cancelled a request for a tensor.
    pub(crate) fn cancel_request(&self, step: u64) {
        self.event(step, Event::RequestCancelled);
    }

    /// Drops a step: its master sent `CleanupGraph`, or is this task's own and has ended it.
    pub(crate) fn clean_up(&self, step: u64) {
        let mut state = self.state.lock();
        if !state.steps.contains_key(&step) {
            // `RunGraph` may arrive later and must be refused.
            state.remember(step, step_ended(step));
            return;
        }
        drop(state);
        self.event(step, Event::Cleanup);
    }

    /// Drops steps whose master's connection has been closed for `limit`. Until then the master may still
    /// send `CleanupGraph`, and other tasks may still request tensors.
    pub(crate) fn clean_up_orphans(&self, now: Duration, limit: Duration) {
        let is_orphan = |entry: &mut Entry| {
            let is_closed = entry.connection.as_ref().is_some_and(|c| c.strong_count() == 0);
            let since = *entry.closed_since.get_or_insert(now);
            if !is_closed {
                entry.closed_since = None;
            }
            is_closed && now.saturating_sub(since) >= limit
        };
        let orphans: Vec<u64> = {
            let mut state = self.state.lock();
            let all = state.steps.iter_mut();
            all.filter_map(|(&step, entry)| is_orphan(entry).then_some(step)).collect()
        };
        orphans.into_iter().for_each(|step| self.event(step, Event::Cleanup));
    }

    /// Number of steps with a rendezvous.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().steps.len()
    }

    fn event(&self, step: u64, event: Event) {
        let mut state = self.state.lock();
        let Some(entry) = state.steps.get_mut(&step) else { return };
        // After cancelled requests a step may still begin; after a cleanup it may not.
        let is_cleanup = matches!(event, Event::Cleanup);
        match entry.state.handle(step, event) {
            Action::Drop(cause) => {
                let table = entry.table.clone();
                state.steps.remove(&step);
                if is_cleanup {
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

    fn find_or_insert<'a>(&self, state: &'a mut State, step: u64) -> Result<&'a mut Entry> {
        if let Some(cause) = state.ended.get(&step) {
            return Err(cause.clone());
        }
        ensure!(
            state.steps.len() < STEPS_MAX,
            ResourceExhausted,
            "this task holds {STEPS_MAX} steps, its maximum; run fewer steps concurrently"
        );
        Ok(state.steps.entry(step).or_insert_with(|| self.new_entry(step)))
    }

    fn new_entry(&self, step: u64) -> Entry {
        let (transport, entropy) = (self.transport.clone(), self.entropy.clone());
        let table =
            TaskRendezvous::new(&self.own, transport, entropy, step, self.diagnostics.clone());
        let table = Arc::new(table);
        Entry { state: WorkerStep::new(), table, connection: None, closed_since: None }
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
