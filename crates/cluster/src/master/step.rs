//! The master's state machine of one step: `RunGraph` on every other task, the first error, `CleanupGraph`.
//!
//! It does no I/O. The partitions of the master's own task are not in it: the session runs them and
//! reports their failure as `Cancelled` and the end of the whole step as `Over`.

use smallvec::SmallVec;
use thalweg_tensor::{Error, Result};

/// An input of the state machine. Tasks are numbered from 0.
#[derive(Debug)]
pub(crate) enum Event {
    /// Start the step.
    Begin,
    /// `RunGraph` of a task was answered.
    Answered(usize, Result<Cleanup>),
    /// The step failed on the master's task, or was cancelled.
    Cancelled(Error),
    /// The whole step has ended.
    Over,
}

/// Whether a task that ran its partition without an error needs a `CleanupGraph`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Cleanup {
    /// It may hold tensors of the step.
    Needed,
    /// It has dropped the step already.
    Done,
}

/// An output of the state machine.
#[derive(Debug)]
pub(crate) enum Action {
    /// Send `RunGraph` to a task.
    Run(usize),
    /// Cancel the `RunGraph` call of a task.
    GiveUp(usize, Error),
    /// Report the result of all partitions to the session; happens once.
    Finish(Result<()>),
    /// Send `CleanupGraph` to a task.
    Cleanup(usize),
}

/// The outputs for one input.
pub(crate) type Actions = SmallVec<[Action; 4]>;

#[derive(Clone, Copy, PartialEq, Debug)]
enum PartitionState {
    Waiting,
    Running,
    Ended,
    Forgotten,
}

/// The state of one step on the other tasks.
pub(crate) struct MasterStep {
    partitions: SmallVec<[PartitionState; 4]>,
    is_finished: bool,
    is_over: bool,
}

impl MasterStep {
    /// A step with partitions on this many other tasks.
    pub(crate) fn new(tasks: usize) -> MasterStep {
        MasterStep {
            partitions: SmallVec::from_elem(PartitionState::Waiting, tasks),
            is_finished: false,
            is_over: false,
        }
    }

    /// Handles an event; pushes what to do to `actions`.
    pub(crate) fn on(&mut self, event: Event, actions: &mut Actions) {
        match event {
            Event::Begin => self.begin(actions),
            Event::Answered(task, result) => self.answered(task, result, actions),
            Event::Cancelled(cause) => self.end(&cause, actions),
            Event::Over => self.over(actions),
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

    fn answered(&mut self, task: usize, result: Result<Cleanup>, actions: &mut Actions) {
        let Some(partition @ PartitionState::Running) = self.partitions.get_mut(task) else {
            return;
        };
        *partition = if matches!(result, Ok(Cleanup::Done)) {
            PartitionState::Forgotten
        } else {
            PartitionState::Ended
        };
        match result {
            Err(cause) => self.end(&cause, actions),
            Ok(_) if !self.partitions.contains(&PartitionState::Running) => {
                self.finish(Ok(()), actions);
            }
            Ok(_) => {}
        }
    }

    /// Cancels all running partitions; the first cause is the step's result.
    fn end(&mut self, cause: &Error, actions: &mut Actions) {
        for (i, partition) in self.partitions.iter_mut().enumerate() {
            if *partition == PartitionState::Running {
                *partition = PartitionState::Ended;
                actions.push(Action::GiveUp(i, cause.clone()));
            }
        }
        self.finish(Err(cause.clone()), actions);
    }

    fn finish(&mut self, result: Result<()>, actions: &mut Actions) {
        if !std::mem::replace(&mut self.is_finished, true) {
            actions.push(Action::Finish(result));
        }
    }

    fn over(&mut self, actions: &mut Actions) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let cause = thalweg_tensor::err!(Cancelled, "the step is over");
        self.end(&cause, actions);
        let ended =
            self.partitions.iter().enumerate().filter(|(_, p)| **p == PartitionState::Ended);
        actions.extend(ended.map(|(i, _)| Action::Cleanup(i)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_tensor::err;

    fn told(step: &mut MasterStep, event: Event) -> Vec<String> {
        let mut actions = Actions::new();
        step.on(event, &mut actions);
        let text = |action: &Action| match action {
            Action::Run(i) => format!("run {i}"),
            Action::GiveUp(i, _) => format!("give up {i}"),
            Action::Finish(Ok(())) => "ok".into(),
            Action::Finish(Err(e)) => e.message().to_owned(),
            Action::Cleanup(i) => format!("cleanup {i}"),
        };
        actions.iter().map(text).collect()
    }

    #[test]
    fn a_step_that_goes_well() {
        let mut step = MasterStep::new(2);
        assert_eq!(told(&mut step, Event::Begin), ["run 0", "run 1"]);
        let kept = || Ok(Cleanup::Needed);
        assert!(told(&mut step, Event::Answered(1, kept())).is_empty());
        assert!(told(&mut step, Event::Answered(1, kept())).is_empty(), "it answered already");
        assert_eq!(told(&mut step, Event::Answered(0, kept())), ["ok"]);
        assert_eq!(told(&mut step, Event::Over), ["cleanup 0", "cleanup 1"]);
        assert!(told(&mut step, Event::Over).is_empty());
    }

    #[test]
    fn who_has_forgotten_a_step_is_not_told_to() {
        let mut step = MasterStep::new(2);
        told(&mut step, Event::Begin);
        assert!(told(&mut step, Event::Answered(0, Ok(Cleanup::Done))).is_empty());
        assert_eq!(told(&mut step, Event::Answered(1, Ok(Cleanup::Needed))), ["ok"]);
        assert_eq!(told(&mut step, Event::Over), ["cleanup 1"]);
    }

    #[test]
    fn the_first_cause_ends_all() {
        let mut step = MasterStep::new(3);
        told(&mut step, Event::Begin);
        let failed = Event::Answered(1, Err(err!(Internal, "boom")));
        assert_eq!(told(&mut step, failed), ["give up 0", "give up 2", "boom"]);
        assert!(told(&mut step, Event::Answered(0, Err(err!(Internal, "later")))).is_empty());
        assert!(told(&mut step, Event::Cancelled(err!(Internal, "later"))).is_empty());
        assert_eq!(told(&mut step, Event::Over), ["cleanup 0", "cleanup 1", "cleanup 2"]);
    }

    #[test]
    fn a_step_that_is_cancelled_before_it_begins_sends_nothing() {
        let mut step = MasterStep::new(1);
        assert_eq!(told(&mut step, Event::Cancelled(err!(Cancelled, "no"))), ["no"]);
        assert!(told(&mut step, Event::Begin).is_empty());
        assert!(told(&mut step, Event::Over).is_empty());
    }
}
