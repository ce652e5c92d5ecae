//! Steps of which nobody waits for the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::execute::StepState;
use crate::session::options::RunOptions;
use crate::session::peers::RemoteParts;

impl StepState {
    /// Starts a step of which nobody waits for the end; `done` is called there, perhaps before
    /// this returns.
    pub(crate) fn start_all(
        states: &[Arc<StepState>],
        remote: Option<&dyn RemoteParts>,
        options: &RunOptions,
        done: Box<dyn FnOnce() + Send>,
    ) {
        let shared = &states[0].shared;
        // The step cannot end before all its partitions have begun.
        shared.outstanding.fetch_add(1, Ordering::Relaxed);
        if let Some(remote) = remote {
            shared.start_remote(remote, states[0].context.step_id().number, options);
        }
        for other in &states[1..] {
            other.offer_roots();
        }
        states[0].start(done);
        shared.release();
    }
}
