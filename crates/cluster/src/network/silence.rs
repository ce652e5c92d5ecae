//! Tasks that say nothing: noticed, reported, and after a while taken for lost.
//!
//! A state machine without I/O. A task that dies is noticed by its connections, at once; this is for
//! one that is stopped or cut off. While something is asked of a task and nothing comes, it is also
//! asked whether it is there; any answer will do, to whatever question.

use std::time::Duration;

/// When silence is what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// A task from which nothing comes for so long is asked.
    pub(crate) ask: Duration,
    /// A question that is not answered by then is asked again, by another way.
    pub(crate) again: Duration,
    /// Silence is worth a line in the log.
    pub(crate) report: Duration,
    /// The task is taken for lost.
    pub(crate) loss: Duration,
}

impl Limits {
    /// A task is lost after this much silence; before that it is asked, and its silence reported.
    pub(crate) fn with_loss(loss: Duration) -> Limits {
        // Somebody looks ten times a second: silence is reported before 3 s have passed, and a task
        // that takes 2 s for every answer is not silent.
        let [ask, report] = [500, 2700].map(Duration::from_millis);
        Limits { ask: ask.min(loss / 4), again: report, report: report.min(loss), loss }
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    /// Ask whether the task is there.
    Ask,
    /// Ask once more, on a new connection: the old one may have lost its way.
    AskAnew,
    /// Say that it has been silent for that long.
    Report(Duration),
    /// Say that it is back.
    ReportBack(Duration),
    /// End what waits for it.
    Lose(Duration),
}

/// What is known of one task.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// When it was last heard, or when it began to matter.
    heard: Duration,
    /// When it was last asked, if it has not answered.
    asked: Option<Duration>,
    is_reported: bool,
    is_in_use: bool,
}

impl Silence {
    /// Time has passed; `is_in_use` if somebody waits for the task.
    pub(crate) fn tick(&mut self, now: Duration, is_in_use: bool, limits: &Limits) -> Vec<Action> {
        let mut actions = Vec::new();
        if !is_in_use {
            // Nobody asks, so it has nothing to answer; what it owes from before does not count.
            *self = Silence::default();
            return actions;
        }
        if !std::mem::replace(&mut self.is_in_use, true) {
            self.heard = now;
        }
        let silent = now.saturating_sub(self.heard);
        if silent >= limits.loss {
            *self = Silence::default();
            actions.push(Action::Lose(silent));
            return actions;
        }
        if silent >= limits.report && self.asked.is_some() && !self.is_reported {
            self.is_reported = true;
            actions.push(Action::Report(silent));
        }
        match self.asked {
            None if silent >= limits.ask => {
                self.asked = Some(now);
                actions.push(Action::Ask);
            }
            Some(asked) if now.saturating_sub(asked) >= limits.again => {
                self.asked = Some(now);
                actions.push(Action::AskAnew);
            }
            _ => {}
        }
        actions
    }

    /// For how long it has been silent, if that was reported.
    pub(crate) fn reported(&self, now: Duration) -> Option<Duration> {
        self.is_reported.then(|| now.saturating_sub(self.heard))
    }

    /// It has answered something.
    pub(crate) fn hear(&mut self, now: Duration) -> Option<Action> {
        let silent = now.saturating_sub(self.heard);
        self.heard = now;
        self.asked = None;
        std::mem::take(&mut self.is_reported).then_some(Action::ReportBack(silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        ask: Duration::from_secs(1),
        again: Duration::from_secs(5),
        report: Duration::from_secs(3),
        loss: Duration::from_secs(30),
    };

    #[test]
    fn a_task_is_asked_before_it_is_lost() {
        let usual = Limits::with_loss(at(30));
        assert!(usual.ask < at(1) && usual.report < at(3) && usual.loss == at(30), "{usual:?}");
        let short = Limits::with_loss(at(1));
        assert!(short.ask <= short.loss / 4 && short.report == at(1), "{short:?}");
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn silence_is_reported_and_then_is_a_loss() {
        let mut task = Silence::default();
        assert!(task.tick(at(100), true, &LIMITS).is_empty());
        assert_eq!(task.tick(at(101), true, &LIMITS), [Action::Ask]);
        assert!(task.tick(at(102), true, &LIMITS).is_empty(), "one question at a time");
        assert_eq!(task.tick(at(103), true, &LIMITS), [Action::Report(at(3))]);
        assert!(task.tick(at(105), true, &LIMITS).is_empty(), "it is reported once");
        assert_eq!(task.tick(at(106), true, &LIMITS), [Action::AskAnew]);
        assert!(task.tick(at(107), true, &LIMITS).is_empty());
        assert_eq!(task.reported(at(107)), Some(at(7)));
        assert_eq!(task.tick(at(130), true, &LIMITS), [Action::Lose(at(30))]);
    }

    #[test]
    fn a_pause_heals() {
        let mut task = Silence::default();
        task.tick(at(0), true, &LIMITS);
        task.tick(at(1), true, &LIMITS);
        task.tick(at(20), true, &LIMITS);
        assert_eq!(task.hear(at(21)), Some(Action::ReportBack(at(21))));
        assert_eq!(task.reported(at(21)), None);
        assert!(task.tick(at(21), true, &LIMITS).is_empty());
        assert_eq!(task.tick(at(22), true, &LIMITS), [Action::Ask]);
        assert_eq!(task.hear(at(22)), None);
    }

    #[test]
    fn a_task_that_nobody_needs_may_be_silent() {
        let mut task = Silence::default();
        task.tick(at(0), true, &LIMITS);
        task.tick(at(1), true, &LIMITS);
        assert!(task.tick(at(50), false, &LIMITS).is_empty());
        assert!(task.tick(at(90), true, &LIMITS).is_empty(), "it begins anew");
    }
}
