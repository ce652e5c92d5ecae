//! Gathers the tensors that one call fetches from a step's rendezvous, and the step's end.
//!
//! A step that runs in several calls (`PartialRun`, and a worker's `RunGraph` of a partial run) has
//! its feeds and fetches pass through its rendezvous. [`FetchCollector`] belongs to one call,
//! [`StepEnd`] to the step.

use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_kernel::{Rendezvous, RendezvousKey, Value};
use thalweg_tensor::{Result, Tensor, bail};

use crate::session::metadata::RunMetadata;

/// The fetches of one call in order, and the step's report if the call waited for its end.
pub type Collected<R> = (Vec<Tensor>, Option<R>);

/// Waits for all fetches of one call and for a number of events, of which one may bring a report.
pub struct FetchCollector<R>(Mutex<State<R>>);

type Done<R> = Box<dyn FnOnce(Result<Collected<R>>) + Send>;

struct State<R> {
    /// Fetches and events still to come.
    pending: usize,
    /// Tensors, and aliases of variables until the call is answered.
    fetches: Vec<Option<Value>>,
    report: Option<R>,
    done: Option<Done<R>>,
}

impl<R: Send + 'static> FetchCollector<R> {
    /// A collector that calls `done` after so many fetches and events, or at the first error.
    pub fn new(
        fetches: usize,
        events: usize,
        done: impl FnOnce(Result<Collected<R>>) + Send + 'static,
    ) -> Arc<FetchCollector<R>> {
        Arc::new(FetchCollector(Mutex::new(State {
            pending: fetches + events,
            fetches: vec![None; fetches],
            report: None,
            done: Some(Box::new(done)),
        })))
    }

    /// Receives the fetches; `keys` are as many as the collector was made for.
    pub fn receive(self: &Arc<Self>, keys: &[RendezvousKey], rendezvous: &dyn Rendezvous) {
        for (i, key) in keys.iter().enumerate() {
            let collector = self.clone();
            let received =
                move |value: Result<Value>| collector.count(|state| state.put(i, value?));
            rendezvous.receive(key, Box::new(received));
        }
    }

    /// Counts an event, which may bring the report or the error that ends the call.
    pub fn event(&self, result: Result<Option<R>>) {
        self.count(|state| {
            if let Some(report) = result? {
                state.report = Some(report);
            }
            Ok(())
        });
    }

    fn count(&self, change: impl FnOnce(&mut State<R>) -> Result<()>) {
        let mut state = self.0.lock();
        let result = change(&mut state);
        state.pending = state.pending.saturating_sub(1);
        if result.is_ok() && state.pending > 0 {
            return;
        }
        // The first error answers the call; `done` is gone when the rest arrives.
        let Some(done) = state.done.take() else { return };
        let fetches = std::mem::take(&mut state.fetches);
        let report = state.report.take();
        drop(state);
        // An alias gives the variable's value with the updates that the call waited for.
        let tensor =
            |fetch: Option<Value>| match fetch.map(Value::without_alias_on_host).transpose()? {
                Some(Value::Tensor(tensor)) => Ok(tensor),
                _ => bail!(Internal, "a fetch was not produced"),
            };
        let tensors = |()| fetches.into_iter().map(tensor).collect::<Result<Vec<Tensor>>>();
        done(result.and_then(tensors).map(|tensors| (tensors, report)));
    }
}

impl<R> State<R> {
    fn put(&mut self, i: usize, value: Value) -> Result<()> {
        match value {
            Value::Tensor(_) | Value::Alias(_) => {}
            Value::Dead => bail!(InvalidArgument, "fetch {i} is the result of a branch not taken"),
            _ => bail!(Internal, "fetch {i} was not produced"),
        }
        // The call may have been answered with an error before; then there is no place for it.
        if let Some(slot) = self.fetches.get_mut(i) {
            *slot = Some(value);
        }
        Ok(())
    }
}

type OnEnd = Box<dyn FnOnce(Result<RunMetadata>) + Send>;

/// The end of a step that runs in several calls: its result is kept until the last call waits for it.
#[derive(Default)]
pub struct StepEnd(Mutex<EndState>);

#[derive(Default)]
enum EndState {
    #[default]
    Running,
    Awaited(OnEnd),
    Ended(Box<Result<RunMetadata>>),
}

impl StepEnd {
    /// Ends the step.
    pub fn set(&self, result: Result<RunMetadata>) {
        let mut state = self.0.lock();
        match std::mem::take(&mut *state) {
            EndState::Awaited(then) => {
                drop(state);
                then(result);
            }
            _ => *state = EndState::Ended(Box::new(result)),
        }
    }

    /// Calls `then` when the step has ended, at once if it has.
    pub fn wait(&self, then: impl FnOnce(Result<RunMetadata>) + Send + 'static) {
        let mut state = self.0.lock();
        match std::mem::take(&mut *state) {
            EndState::Ended(result) => {
                drop(state);
                then(*result);
            }
            _ => *state = EndState::Awaited(Box::new(then)),
        }
    }
}
