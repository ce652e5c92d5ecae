//! One step as its master sees it: which tasks run parts of it, and how it ends.
//!
//! A state machine without I/O. The part of the master's own task is not among these: its session
//! runs it and tells of its failure (`Cancelled`) and of the end of all (`Over`).

use smallvec::SmallVec;
use thalweg_tensor::{Error, Result};

/// What happens.
#[derive(Debug)]
pub(crate) enum Event {
    /// The step begins.
    Begin,
    /// A task's part has ended.
    Answered(usize, Result<Rest>),
    /// The step ends before its time.
    Cancelled(Error),
    /// Nobody needs anything of the step any more.
    Over,
}

/// What a task keeps of a step that went well.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Rest {
    /// Perhaps something; it waits to be told to forget it.
    Something,
    /// Nothing: it has forgotten the step already.
    Nothing,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Action {
    /// Have a task run its part.
    Run(usize),
    /// End a task's part.
    GiveUp(usize, Error),
    /// Tell the session how the parts ended; happens once.
    Finish(Result<()>),
    /// Have a task forget the step.
    Cleanup(usize),
}

/// Actions of one event.
pub(crate) type Actions = SmallVec<[Action; 4]>;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Part {
    Waiting,
    Running,
    Ended,
    Forgotten,
}

/// A step's parts.
pub(crate) struct MasterStep {
    parts: SmallVec<[Part; 4]>,
    is_finished: bool,
    is_over: bool,
}

impl MasterStep {
    /// A step that so many tasks take part in.
    pub(crate) fn new(tasks: usize) -> MasterStep {
        MasterStep {
            parts: SmallVec::from_elem(Part::Waiting, tasks),
            is_finished: false,
            is_over: false,
        }
    }

    /// Takes note of an event.
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
        for (i, part) in self.parts.iter_mut().enumerate() {
            *part = Part::Running;
            actions.push(Action::Run(i));
        }
        if self.parts.is_empty() {
            self.finish(Ok(()), actions);
        }
    }

    fn answered(&mut self, task: usize, result: Result<Rest>, actions: &mut Actions) {
        let Some(part @ Part::Running) = self.parts.get_mut(task) else { return };
        *part = if matches!(result, Ok(Rest::Nothing)) { Part::Forgotten } else { Part::Ended };
        match result {
            Err(cause) => self.end(&cause, actions),
            Ok(_) if !self.parts.contains(&Part::Running) => {
                self.finish(Ok(()), actions);
            }
            Ok(_) => {}
        }
    }

    /// Ends all parts with the step's first cause.
    fn end(&mut self, cause: &Error, actions: &mut Actions) {
        for (i, part) in self.parts.iter_mut().enumerate() {
            if *part == Part::Running {
                *part = Part::Ended;
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
        let ended = self.parts.iter().enumerate().filter(|(_, p)| **p == Part::Ended);
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
        let kept = || Ok(Rest::Something);
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
        assert!(told(&mut step, Event::Answered(0, Ok(Rest::Nothing))).is_empty());
        assert_eq!(told(&mut step, Event::Answered(1, Ok(Rest::Something))), ["ok"]);
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
