//! The worker's state machine of one step: requests for its tensors, `RunGraph`, its end, `CleanupGraph`.
//!
//! It does no I/O: events in, actions out.

use thalweg_tensor::{Error, err};

/// The state of a step on this task.
#[derive(Debug)]
pub(crate) enum WorkerStep {
    /// `RunGraph` has not arrived; other tasks may have requested tensors.
    NotStarted {
        /// Number of pending requests.
        requests: usize,
    },
    /// Its partitions run.
    Running,
    /// Its partitions have ended; its tensors are kept for later requests.
    Ended(Option<Error>),
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
    /// `CleanupGraph`, or the master's connection has been closed for too long.
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
        WorkerStep::NotStarted { requests: 0 }
    }

    /// Handles an event.
    pub(crate) fn handle(&mut self, step: u64, event: Event) -> Action {
        match (&mut *self, event) {
            (WorkerStep::NotStarted { requests }, Event::TensorRequested) => {
                *requests += 1;
                Action::None
            }
            (WorkerStep::NotStarted { requests }, Event::RequestCancelled) => {
                *requests = requests.saturating_sub(1);
                // The step may never begin: an arbitrary id must not keep a rendezvous.
                if *requests == 0 { Action::Drop(step_ended(step)) } else { Action::None }
            }
            (WorkerStep::Ended(Some(cause)), Event::TensorRequested) => {
                Action::Refuse(cause.clone())
            }
            (
                WorkerStep::Running | WorkerStep::Ended(None),
                Event::TensorRequested | Event::RequestCancelled,
            )
            | (WorkerStep::Ended(Some(_)), Event::RequestCancelled) => Action::None,
            (WorkerStep::NotStarted { .. }, Event::Run { .. }) => {
                *self = WorkerStep::Running;
                Action::Start
            }
            (WorkerStep::Running | WorkerStep::Ended(_), Event::Run { is_partial: true }) => {
                Action::Join
            }
            (WorkerStep::Running | WorkerStep::Ended(_), Event::Run { is_partial: false }) => {
                Action::Refuse(err!(Aborted, "step {step} was started twice"))
            }
            (WorkerStep::Running, Event::Finished(error)) => {
                *self = WorkerStep::Ended(error.clone());
                error.map_or(Action::None, Action::Abort)
            }
            (WorkerStep::NotStarted { .. } | WorkerStep::Ended(_), Event::Finished(_)) => {
                Action::None
            }
            (WorkerStep::Ended(error), Event::Cleanup) => {
                Action::Drop(error.take().unwrap_or_else(|| step_ended(step)))
            }
            (WorkerStep::NotStarted { .. } | WorkerStep::Running, Event::Cleanup) => {
                Action::Drop(step_ended(step))
            }
        }
    }
}

/// The error for requests after a step's end.
pub(crate) fn step_ended(step: u64) -> Error {
    err!(Aborted, "step {step} has ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_runs_once_and_later_requests_are_refused() {
        let mut step = WorkerStep::new();
        assert!(matches!(step.handle(7, Event::TensorRequested), Action::None));
        assert!(matches!(step.handle(7, Event::Run { is_partial: false }), Action::Start));
        assert!(matches!(step.handle(7, Event::Run { is_partial: false }), Action::Refuse(_)));
        let cause = err!(Internal, "boom");
        assert!(matches!(step.handle(7, Event::Finished(Some(cause))), Action::Abort(_)));
        let Action::Refuse(e) = step.handle(7, Event::TensorRequested) else {
            panic!("it has failed")
        };
        assert_eq!(e.message(), "boom");
        assert!(matches!(step.handle(7, Event::Cleanup), Action::Drop(_)));
    }

    #[test]
    fn a_step_without_requests_is_dropped() {
        let mut step = WorkerStep::new();
        step.handle(1, Event::TensorRequested);
        step.handle(1, Event::TensorRequested);
        assert!(matches!(step.handle(1, Event::RequestCancelled), Action::None));
        assert!(matches!(step.handle(1, Event::RequestCancelled), Action::Drop(_)));
    }
}
