//! The log of failed steps, at level debug: clients get the error in any case.

use thalweg_tensor::Error;
use tracing::{Level, debug, enabled};

/// The session whose step is under way; empty where nobody asked for this log.
pub(crate) struct FailureLog(Option<String>);

impl FailureLog {
    pub(crate) fn new(session: &str) -> FailureLog {
        let is_on = enabled!(target: "thalweg::step", Level::DEBUG);
        FailureLog(is_on.then(|| session.to_owned()))
    }

    /// For the master of the step.
    pub(crate) fn of_master<R>(&self, result: &Result<R, Error>) {
        if let (Some(session), Err(error)) = (&self.0, result) {
            debug!(target: "thalweg::step", session, "a step of session {session} failed: {error}");
        }
    }

    /// For a worker that ran a partition of it.
    pub(crate) fn of_worker<R>(&self, step: u64, result: &Result<R, Error>) {
        if let (Some(session), Err(error)) = (&self.0, result) {
            debug!(
                target: "thalweg::step",
                session,
                step,
                "a partition of step {step} of session {session} failed: {error}"
            );
        }
    }
}
