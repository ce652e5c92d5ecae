//! The worker's state machine of one step: requests for its tensors, `RunGraph`, its end, `CleanupGraph`.
//!
//! It does no I/O: events in, actions out.

use thalweg_tensor::{Error, err};

/// The state of a step on this task.
#[derive(Debug)]
pub(crate) enum WorkerStep {
    /// Other tasks have requested tensors of it; `RunGraph` has not come.
    Awaited {
        /// Number of requests that wait.
        callers: usize,
    },
    /// Its partitions run.
    Running,
    /// Its partitions have ended; its tensors stay for requests that come later.
    Over(Option<Error>),
}

/// An input of the state machine.
#[derive(Debug)]
pub(crate) enum Event {
    /// Another task requests a tensor.
    TensorRequested,
    /// Another task has cancelled such a request.
    RequestCancelled,
    /// `RunGraph`; `is_partial` if several are expected (a partial run).
    Run { is_partial: bool },
    /// The partitions have ended.
    Finished(Option<Error>),
    /// `CleanupGraph`, or the master is gone.
    Cleanup,
}

/// An output of the state machine.
#[derive(Debug)]
pub(crate) enum Action {
    /// Nothing to do.
    None,
    /// Start the partitions.
    Start,
    /// The partitions have been started before: wait for their end.
    Join,
    /// Answer the request with this error.
    Refuse(Error),
    /// End all waits in the rendezvous with this cause.
    Abort(Error),
    /// Drop the rendezvous, after ending all waits in it with this cause.
    Drop(Error),
}

impl WorkerStep {
    /// A step before its first event.
    pub(crate) fn new() -> WorkerStep {
        WorkerStep::Awaited { callers: 0 }
    }

    /// Handles an event.
    pub(crate) fn on(&mut self, step: u64, event: Event) -> Action {
        match (&mut *self, event) {
            (WorkerStep::Awaited { callers }, Event::TensorRequested) => {
                *callers += 1;
                Action::None
            }
            (WorkerStep::Awaited { callers }, Event::RequestCancelled) => {
                *callers = callers.saturating_sub(1);
                // The step may never begin: an arbitrary id must not keep a rendezvous.
                if *callers == 0 { Action::Drop(is_over(step)) } else { Action::None }
            }
            (WorkerStep::Over(Some(cause)), Event::TensorRequested) => {
                Action::Refuse(cause.clone())
            }
            (
                WorkerStep::Running | WorkerStep::Over(None),
                Event::TensorRequested | Event::RequestCancelled,
            )
            | (WorkerStep::Over(Some(_)), Event::RequestCancelled) => Action::None,
            (WorkerStep::Awaited { .. }, Event::Run { .. }) => {
                *self = WorkerStep::Running;
                Action::Start
            }
            (WorkerStep::Running | WorkerStep::Over(_), Event::Run { is_partial: true }) => {
                Action::Join
            }
            (WorkerStep::Running | WorkerStep::Over(_), Event::Run { is_partial: false }) => {
                Action::Refuse(err!(Aborted, "step {step} was started twice"))
            }
            (WorkerStep::Running, Event::Finished(error)) => {
                *self = WorkerStep::Over(error.clone());
                error.map_or(Action::None, Action::Abort)
            }
            (WorkerStep::Awaited { .. } | WorkerStep::Over(_), Event::Finished(_)) => Action::None,
            (WorkerStep::Over(error), Event::Cleanup) => {
                Action::Drop(error.take().unwrap_or_else(|| is_over(step)))
            }
            (WorkerStep::Awaited { .. } | WorkerStep::Running, Event::Cleanup) => {
                Action::Drop(is_over(step))
            }
        }
    }
}

/// The error for requests that come after a step's end.
pub(crate) fn is_over(step: u64) -> Error {
    err!(Aborted, "step {step} is over")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_runs_once_and_late_comers_are_refused() {
        let mut step = WorkerStep::new();
        assert!(matches!(step.on(7, Event::TensorRequested), Action::None));
        assert!(matches!(step.on(7, Event::Run { is_partial: false }), Action::Start));
        assert!(matches!(step.on(7, Event::Run { is_partial: false }), Action::Refuse(_)));
        let cause = err!(Internal, "boom");
        assert!(matches!(step.on(7, Event::Finished(Some(cause))), Action::Abort(_)));
        let Action::Refuse(e) = step.on(7, Event::TensorRequested) else { panic!("it has failed") };
        assert_eq!(e.message(), "boom");
        assert!(matches!(step.on(7, Event::Cleanup), Action::Drop(_)));
    }

    #[test]
    fn a_step_that_nobody_awaits_any_more_is_dropped() {
        let mut step = WorkerStep::new();
        step.on(1, Event::TensorRequested);
        step.on(1, Event::TensorRequested);
        assert!(matches!(step.on(1, Event::RequestCancelled), Action::None));
        assert!(matches!(step.on(1, Event::RequestCancelled), Action::Drop(_)));
    }
}
