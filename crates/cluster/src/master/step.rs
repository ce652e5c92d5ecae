//! The master's state machine of one step: `RunGraph` on every other task, the first error, `CleanupGraph`.
//!
//! It does no I/O. The partitions of the master's own task are not in it: the session runs them and
//! reports their failure as `Cancelled` and the end of the whole step as `StepEnded`.

use smallvec::SmallVec;
use thalweg_tensor::{Error, Result};

/// An input of the state machine. Tasks are numbered from 0.
#[derive(Debug)]
pub(crate) enum Event {
    /// Start the step.
    Begin,
    /// `RunGraph` of a task has ended.
    RunGraphDone(usize, Result<Cleanup>),
    /// The step failed on the master's task, or was cancelled.
    Cancelled(Error),
    /// The whole step has ended.
    StepEnded,
}

/// Whether a task whose partition succeeded needs a `CleanupGraph`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Cleanup {
    /// The task may hold tensors of the step.
    Needed,
    /// The task has dropped the step already.
    Done,
}

/// An output of the state machine.
#[derive(Debug)]
pub(crate) enum Action {
    /// Send `RunGraph` to a task.
    Run(usize),
    /// Cancel the `RunGraph` call of a task.
    CancelCall(usize, Error),
    /// Report the result of all partitions to the session; happens once.
    Finish(Result<()>),
    /// Send `CleanupGraph` to a task.
    Cleanup(usize),
}

/// The outputs for one input.
pub(crate) type Actions = SmallVec<[Action; 4]>;

#[derive(Clone, Copy, PartialEq, Debug)]
enum PartitionState {
    Pending,
    Running,
    Ended,
    CleanedUp,
}

/// The state of one step on the other tasks.
pub(crate) struct MasterStep {
    partitions: SmallVec<[PartitionState; 4]>,
    is_finished: bool,
    has_ended: bool,
}

impl MasterStep {
    /// A step with partitions on this many other tasks.
    pub(crate) fn new(tasks: usize) -> MasterStep {
        MasterStep {
            partitions: SmallVec::from_elem(PartitionState::Pending, tasks),
            is_finished: false,
            has_ended: false,
        }
    }

    /// Handles an event; pushes what to do to `actions`.
    pub(crate) fn handle(&mut self, event: Event, actions: &mut Actions) {
        match event {
            Event::Begin => self.begin(actions),
            Event::RunGraphDone(task, result) => self.run_graph_done(task, result, actions),
            Event::Cancelled(cause) => self.cancel_all(&cause, actions),
            Event::StepEnded => self.step_ended(actions),
        }
    }

    fn begin(&mut self, actions: &mut Actions) {
        if self.is_finished {
            return;
        }
        for (i, partition) in self.partitions.iter_mut().enumerate() {
            *partition = PartitionState::Running;
            actions.push(Action::Run(i));
        }
        if self.partitions.is_empty() {
            self.finish(Ok(()), actions);
        }
    }

    fn run_graph_done(&mut self, task: usize, result: Result<Cleanup>, actions: &mut Actions) {
        let Some(partition @ PartitionState::Running) = self.partitions.get_mut(task) else {
            return;
        };
        *partition = if matches!(result, Ok(Cleanup::Done)) {
            PartitionState::CleanedUp
        } else {
            PartitionState::Ended
        };
        match result {
            Err(cause) => self.cancel_all(&cause, actions),
            Ok(_) if !self.partitions.contains(&PartitionState::Running) => {
                self.finish(Ok(()), actions);
            }
            Ok(_) => {}
        }
    }

    /// Cancels all running partitions; the first cause is the step's result.
    fn cancel_all(&mut self, cause: &Error, actions: &mut Actions) {
        for (i, partition) in self.partitions.iter_mut().enumerate() {
            if *partition == PartitionState::Running {
                *partition = PartitionState::Ended;
                actions.push(Action::CancelCall(i, cause.clone()));
            }
        }
        self.finish(Err(cause.clone()), actions);
    }

    fn finish(&mut self, result: Result<()>, actions: &mut Actions) {
        if !std::mem::replace(&mut self.is_finished, true) {
            actions.push(Action::Finish(result));
        }
    }

    fn step_ended(&mut self, actions: &mut Actions) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let cause = thalweg_tensor::err!(Cancelled, "the step has ended");
        self.cancel_all(&cause, actions);
        let ended =
            self.partitions.iter().enumerate().filter(|(_, p)| **p == PartitionState::Ended);
        actions.extend(ended.map(|(i, _)| Action::Cleanup(i)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_tensor::err;

    fn actions_of(step: &mut MasterStep, event: Event) -> Vec<String> {
        let mut actions = Actions::new();
        step.handle(event, &mut actions);
        let text = |action: &Action| match action {
            Action::Run(i) => format!("run {i}"),
            Action::CancelCall(i, _) => format!("cancel {i}"),
            Action::Finish(Ok(())) => "ok".into(),
            Action::Finish(Err(e)) => e.message().to_owned(),
            Action::Cleanup(i) => format!("cleanup {i}"),
        };
        actions.iter().map(text).collect()
    }

    #[test]
    fn a_step_that_succeeds() {
        let mut step = MasterStep::new(2);
        assert_eq!(actions_of(&mut step, Event::Begin), ["run 0", "run 1"]);
        let needed = || Ok(Cleanup::Needed);
        assert!(actions_of(&mut step, Event::RunGraphDone(1, needed())).is_empty());
        assert!(
            actions_of(&mut step, Event::RunGraphDone(1, needed())).is_empty(),
            "the task has answered already"
        );
        assert_eq!(actions_of(&mut step, Event::RunGraphDone(0, needed())), ["ok"]);
        assert_eq!(actions_of(&mut step, Event::StepEnded), ["cleanup 0", "cleanup 1"]);
        assert!(actions_of(&mut step, Event::StepEnded).is_empty());
    }

    #[test]
    fn a_task_that_has_cleaned_up_gets_no_cleanup_graph() {
        let mut step = MasterStep::new(2);
        actions_of(&mut step, Event::Begin);
        assert!(actions_of(&mut step, Event::RunGraphDone(0, Ok(Cleanup::Done))).is_empty());
        assert_eq!(actions_of(&mut step, Event::RunGraphDone(1, Ok(Cleanup::Needed))), ["ok"]);
        assert_eq!(actions_of(&mut step, Event::StepEnded), ["cleanup 1"]);
    }

    #[test]
    fn the_first_error_cancels_all_calls() {
        let mut step = MasterStep::new(3);
        actions_of(&mut step, Event::Begin);
        let failed = Event::RunGraphDone(1, Err(err!(Internal, "boom")));
        assert_eq!(actions_of(&mut step, failed), ["cancel 0", "cancel 2", "boom"]);
        assert!(
            actions_of(&mut step, Event::RunGraphDone(0, Err(err!(Internal, "later")))).is_empty()
        );
        assert!(actions_of(&mut step, Event::Cancelled(err!(Internal, "later"))).is_empty());
        assert_eq!(
            actions_of(&mut step, Event::StepEnded),
            ["cleanup 0", "cleanup 1", "cleanup 2"]
        );
    }

    #[test]
    fn a_step_that_is_cancelled_before_it_begins_sends_nothing() {
        let mut step = MasterStep::new(1);
        assert_eq!(actions_of(&mut step, Event::Cancelled(err!(Cancelled, "no"))), ["no"]);
        assert!(actions_of(&mut step, Event::Begin).is_empty());
        assert!(actions_of(&mut step, Event::StepEnded).is_empty());
    }
}
