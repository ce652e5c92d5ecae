//! The life of one step on one task: who may still send, run or fetch.
//!
//! A state machine without I/O: events in, what to do about them out.

use thalweg_tensor::{Error, err};

/// Where a step stands on this task.
#[derive(Debug)]
pub(crate) enum Life {
    /// Other tasks wait for tensors of it; it has not begun here.
    Awaited {
        /// How many wait.
        callers: usize,
    },
    /// It runs.
    Running,
    /// What ran here has ended; its tensors stay until everybody has them.
    Over(Option<Error>),
}

/// What happens to a step.
#[derive(Debug)]
pub(crate) enum Event {
    /// Another task wants a tensor.
    Wanted,
    /// A task that wanted one has given up.
    WantedNoMore,
    /// The master has it run; `is_partial` if it may say so several times.
    Run { is_partial: bool },
    /// What ran has ended.
    Finished(Option<Error>),
    /// The master forgets it, or is gone.
    Forget,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Action {
    /// Nothing: as it should be.
    None,
    /// Run the graph.
    Start,
    /// The graph runs already, or has run: this request waits for that.
    Join,
    /// Answer with an error.
    Refuse(Error),
    /// End all waiting with this cause.
    Abort(Error),
    /// Let the step's tensors go, after ending all waiting with this cause.
    Drop(Error),
}

impl Life {
    /// A step that `event` is the first to tell of.
    pub(crate) fn new() -> Life {
        Life::Awaited { callers: 0 }
    }

    /// Takes note of an event.
    pub(crate) fn on(&mut self, step: u64, event: Event) -> Action {
        match (&mut *self, event) {
            (Life::Awaited { callers }, Event::Wanted) => {
                *callers += 1;
                Action::None
            }
            (Life::Awaited { callers }, Event::WantedNoMore) => {
                *callers = callers.saturating_sub(1);
                // It may never begin; somebody else's number must not keep a table.
                if *callers == 0 { Action::Drop(is_over(step)) } else { Action::None }
            }
            (Life::Over(Some(cause)), Event::Wanted) => Action::Refuse(cause.clone()),
            (Life::Running | Life::Over(None), Event::Wanted | Event::WantedNoMore)
            | (Life::Over(Some(_)), Event::WantedNoMore) => Action::None,
            (Life::Awaited { .. }, Event::Run { .. }) => {
                *self = Life::Running;
                Action::Start
            }
            (Life::Running | Life::Over(_), Event::Run { is_partial: true }) => Action::Join,
            (Life::Running | Life::Over(_), Event::Run { is_partial: false }) => {
                Action::Refuse(err!(Aborted, "step {step} was started twice"))
            }
            (Life::Running, Event::Finished(error)) => {
                *self = Life::Over(error.clone());
                error.map_or(Action::None, Action::Abort)
            }
            (Life::Awaited { .. } | Life::Over(_), Event::Finished(_)) => Action::None,
            (Life::Over(error), Event::Forget) => {
                Action::Drop(error.take().unwrap_or_else(|| is_over(step)))
            }
            (Life::Awaited { .. } | Life::Running, Event::Forget) => Action::Drop(is_over(step)),
        }
    }
}

/// Why what comes after a step's end is refused.
pub(crate) fn is_over(step: u64) -> Error {
    err!(Aborted, "step {step} is over")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_runs_once_and_late_comers_are_refused() {
        let mut life = Life::new();
        assert!(matches!(life.on(7, Event::Wanted), Action::None));
        assert!(matches!(life.on(7, Event::Run { is_partial: false }), Action::Start));
        assert!(matches!(life.on(7, Event::Run { is_partial: false }), Action::Refuse(_)));
        let cause = err!(Internal, "boom");
        assert!(matches!(life.on(7, Event::Finished(Some(cause))), Action::Abort(_)));
        let Action::Refuse(e) = life.on(7, Event::Wanted) else { panic!("it has failed") };
        assert_eq!(e.message(), "boom");
        assert!(matches!(life.on(7, Event::Forget), Action::Drop(_)));
    }

    #[test]
    fn a_step_that_nobody_awaits_any_more_is_dropped() {
        let mut life = Life::new();
        life.on(1, Event::Wanted);
        life.on(1, Event::Wanted);
        assert!(matches!(life.on(1, Event::WantedNoMore), Action::None));
        assert!(matches!(life.on(1, Event::WantedNoMore), Action::Drop(_)));
    }
}
