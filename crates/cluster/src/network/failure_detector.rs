//! Failure detector of one task: probes it while calls wait for it, reports its silence, declares it lost.
//!
//! A state machine without I/O. Broken connections end calls at once without it; it is for tasks that are
//! stopped or cut off. Any answer of the task counts as a sign of life.

use std::time::Duration;

/// Durations of silence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// After this much silence the task is probed.
    pub(crate) ask: Duration,
    /// A probe that is not answered after this long is repeated on a new connection.
    pub(crate) again: Duration,
    /// After this much silence it is reported in the log.
    pub(crate) report: Duration,
    /// After this much silence the task is declared lost.
    pub(crate) loss: Duration,
}

impl Limits {
    /// The limits for tasks that are declared lost after `loss`.
    pub(crate) fn with_loss(loss: Duration) -> Limits {
        // With a tick every 100 ms silence is reported before 3 s have passed, and a task that takes 2 s
        // for every answer is not silent.
        let [ask, report] = [500, 2700].map(Duration::from_millis);
        Limits { ask: ask.min(loss / 4), again: report, report: report.min(loss), loss }
    }
}

/// An output of the failure detector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    /// Send `GetStatus`.
    Probe,
    /// Send `GetStatus` on a new connection: packets of the old one may be lost.
    ProbeAnew,
    /// Report that the task has been silent for this long.
    ReportSilence(Duration),
    /// Report that the task has answered after this much silence.
    ReportRecovery(Duration),
    /// End the calls that wait for the task, which has been silent for this long.
    DeclareLost(Duration),
}

/// The failure detector of one task.
#[derive(Debug, Default)]
pub(crate) struct FailureDetector {
    /// When the task last answered, or when a call began to wait for it.
    heard: Duration,
    /// When the probe was sent that is not answered yet.
    asked: Option<Duration>,
    is_reported: bool,
    is_in_use: bool,
}

impl FailureDetector {
    /// It is `now`; `is_in_use` if a call waits for the task.
    pub(crate) fn tick(&mut self, now: Duration, is_in_use: bool, limits: &Limits) -> Vec<Action> {
        let mut actions = Vec::new();
        if !is_in_use {
            // Without a call the task owes no answer.
            *self = FailureDetector::default();
            return actions;
        }
        if !std::mem::replace(&mut self.is_in_use, true) {
            self.heard = now;
        }
        let silent = now.saturating_sub(self.heard);
        if silent >= limits.loss {
            *self = FailureDetector::default();
            actions.push(Action::DeclareLost(silent));
            return actions;
        }
        if silent >= limits.report && self.asked.is_some() && !self.is_reported {
            self.is_reported = true;
            actions.push(Action::ReportSilence(silent));
        }
        match self.asked {
            None if silent >= limits.ask => {
                self.asked = Some(now);
                actions.push(Action::Probe);
            }
            Some(asked) if now.saturating_sub(asked) >= limits.again => {
                self.asked = Some(now);
                actions.push(Action::ProbeAnew);
            }
            _ => {}
        }
        actions
    }

    /// The duration of its silence, if it was reported.
    pub(crate) fn reported(&self, now: Duration) -> Option<Duration> {
        self.is_reported.then(|| now.saturating_sub(self.heard))
    }

    /// The task has answered a call or a probe.
    pub(crate) fn hear(&mut self, now: Duration) -> Option<Action> {
        let silent = now.saturating_sub(self.heard);
        self.heard = now;
        self.asked = None;
        std::mem::take(&mut self.is_reported).then_some(Action::ReportRecovery(silent))
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
        let mut task = FailureDetector::default();
        assert!(task.tick(at(100), true, &LIMITS).is_empty());
        assert_eq!(task.tick(at(101), true, &LIMITS), [Action::Probe]);
        assert!(task.tick(at(102), true, &LIMITS).is_empty(), "one question at a time");
        assert_eq!(task.tick(at(103), true, &LIMITS), [Action::ReportSilence(at(3))]);
        assert!(task.tick(at(105), true, &LIMITS).is_empty(), "it is reported once");
        assert_eq!(task.tick(at(106), true, &LIMITS), [Action::ProbeAnew]);
        assert!(task.tick(at(107), true, &LIMITS).is_empty());
        assert_eq!(task.reported(at(107)), Some(at(7)));
        assert_eq!(task.tick(at(130), true, &LIMITS), [Action::DeclareLost(at(30))]);
    }

    #[test]
    fn a_pause_heals() {
        let mut task = FailureDetector::default();
        task.tick(at(0), true, &LIMITS);
        task.tick(at(1), true, &LIMITS);
        task.tick(at(20), true, &LIMITS);
        assert_eq!(task.hear(at(21)), Some(Action::ReportRecovery(at(21))));
        assert_eq!(task.reported(at(21)), None);
        assert!(task.tick(at(21), true, &LIMITS).is_empty());
        assert_eq!(task.tick(at(22), true, &LIMITS), [Action::Probe]);
        assert_eq!(task.hear(at(22)), None);
    }

    #[test]
    fn a_task_that_nobody_needs_may_be_silent() {
        let mut task = FailureDetector::default();
        task.tick(at(0), true, &LIMITS);
        task.tick(at(1), true, &LIMITS);
        assert!(task.tick(at(50), false, &LIMITS).is_empty());
        assert!(task.tick(at(90), true, &LIMITS).is_empty(), "it begins anew");
    }
}
