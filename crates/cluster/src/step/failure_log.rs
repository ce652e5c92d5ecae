//! The log of failed steps, at level debug: clients get the error in any case.

use thalweg_tensor::Error;
use tracing::{Level, debug, enabled};

/// The handle of the step's session; none if the log is off.
pub(crate) struct FailureLog(Option<String>);

impl FailureLog {
    pub(crate) fn new(session: &str) -> FailureLog {
        let is_on = enabled!(target: "thalweg::step", Level::DEBUG);
        FailureLog(is_on.then(|| session.to_owned()))
    }

    /// Logs the error of a step on its master.
    pub(crate) fn log_master_step<R>(&self, result: &Result<R, Error>) {
        if let (Some(session), Err(error)) = (&self.0, result) {
            debug!(target: "thalweg::step", session, "a step of session {session} failed: {error}");
        }
    }

    /// Logs the error of a partition on its worker.
    pub(crate) fn log_worker_step<R>(&self, step: u64, result: &Result<R, Error>) {
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
