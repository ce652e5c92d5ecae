//! Running the partitions of a step, or one function call: the caller waits, or a callback is called.

use std::sync::Arc;

use super::{StepState, with_runner};
use crate::session::options::RunOptions;
use crate::session::remote_tasks::RemotePartitions;

impl StepState {
    /// Runs the partitions of a step on this thread and the pool's; returns when all have ended.
    pub(crate) fn run_to_end(
        states: &[Arc<StepState>],
        remote: Option<&dyn RemotePartitions>,
        options: &RunOptions,
    ) {
        let (own, shared) = (&states[0], &states[0].shared);
        shared.outstanding.add(1);
        start_others(states, remote, options);
        own.offers.enter();
        with_runner(|runner| {
            own.push_roots(runner);
            own.run_nodes(runner);
        });
        own.offers.leave_to_wait();
        if !shared.release() {
            wait(states);
        }
    }

    /// Starts the partitions of a step; `done` is called at its end, perhaps before this returns.
    pub(crate) fn start_all(
        states: &[Arc<StepState>],
        remote: Option<&dyn RemotePartitions>,
        options: &RunOptions,
        done: Box<dyn FnOnce() + Send>,
    ) {
        // The step cannot end before all its partitions have begun.
        states[0].shared.outstanding.add(1);
        start_others(states, remote, options);
        states[0].start(done);
        states[0].shared.release();
    }

    /// Starts a function call; `done` is called at its end, perhaps before this returns.
    pub(crate) fn start(self: &Arc<Self>, done: Box<dyn FnOnce() + Send>) {
        self.shared.on_done(done);
        self.shared.outstanding.add(1);
        self.offers.enter();
        with_runner(|runner| {
            self.push_roots(runner);
            let has_yielded = self.run_nodes(runner);
            self.shared.release();
            if has_yielded {
                self.queue_again();
            } else if self.offers.leave() {
                self.assist(runner);
            }
        });
    }
}

/// Starts all partitions but the first: those of other tasks, and those of this one on the pool. The
/// caller counts as outstanding.
fn start_others(
    states: &[Arc<StepState>],
    remote: Option<&dyn RemotePartitions>,
    options: &RunOptions,
) {
    if let Some(remote) = remote {
        states[0].shared.start_remote(remote, states[0].context.step_id().number, options);
    }
    for other in &states[1..] {
        other.offer_roots();
    }
}

/// Waits for the end of the step, and runs nodes that others offer meanwhile.
fn wait(states: &[Arc<StepState>]) {
    loop {
        for (i, state) in states.iter().enumerate() {
            if state.offers.try_enter() {
                // This thread may run a loop without an end now, and may have been woken for other
                // partitions too.
                for other in states[i + 1..].iter().filter(|other| other.offers.is_wanting()) {
                    other.queue_jobs(1);
                }
                with_runner(|runner| state.assist(runner));
            }
        }
        let can_help = || states.iter().any(|s| s.offers.is_wanting());
        if states[0].shared.outstanding.wait(can_help) {
            return;
        }
    }
}
