//! Failure detector of one task: probes the task while calls wait for it, reports its silence, declares it lost.
//!
//! A state machine without I/O. Broken connections end calls at once without it; the detector finds
//! tasks that are stopped and hosts that are partitioned. Any answer of the task ends its silence.

use std::time::Duration;

/// Durations of silence after which the detector acts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SilenceLimits {
    /// After this much silence the task is probed.
    pub(crate) probe_after: Duration,
    /// A probe that is not answered after this long is repeated on a new connection.
    pub(crate) reprobe_after: Duration,
    /// After this much silence it is reported in the log.
    pub(crate) report_after: Duration,
    /// After this much silence the task is declared lost.
    pub(crate) lost_after: Duration,
}

impl SilenceLimits {
    /// The limits for tasks that are declared lost after `loss`.
    pub(crate) fn with_loss(loss: Duration) -> SilenceLimits {
        // With a tick every 100 ms silence is reported before 3 s have passed, and a task that takes 2 s
        // for every answer is not silent.
        let [probe_after, report_after] = [500, 2700].map(Duration::from_millis);
        SilenceLimits {
            probe_after: probe_after.min(loss / 4),
            reprobe_after: report_after,
            report_after: report_after.min(loss),
            lost_after: loss,
        }
    }
}

/// An output of the failure detector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    /// Send `GetStatus`.
    Probe,
    /// Send `GetStatus` on a new connection: packets of the old one may be lost.
    ProbeOnNewConnection,
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
    last_answer: Duration,
    /// When the probe was sent that is not answered yet.
    probe_sent: Option<Duration>,
    is_reported: bool,
    is_in_use: bool,
}

impl FailureDetector {
    /// It is `now`; `is_in_use` if a call waits for the task.
    pub(crate) fn tick(
        &mut self,
        now: Duration,
        is_in_use: bool,
        limits: &SilenceLimits,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        if !is_in_use {
            // Without a call the task owes no answer.
            *self = FailureDetector::default();
            return actions;
        }
        if !std::mem::replace(&mut self.is_in_use, true) {
            self.last_answer = now;
        }
        let silence = now.saturating_sub(self.last_answer);
        if silence >= limits.lost_after {
            *self = FailureDetector::default();
            actions.push(Action::DeclareLost(silence));
            return actions;
        }
        if silence >= limits.report_after && self.probe_sent.is_some() && !self.is_reported {
            self.is_reported = true;
            actions.push(Action::ReportSilence(silence));
        }
        match self.probe_sent {
            None if silence >= limits.probe_after => {
                self.probe_sent = Some(now);
                actions.push(Action::Probe);
            }
            Some(probe_sent) if now.saturating_sub(probe_sent) >= limits.reprobe_after => {
                self.probe_sent = Some(now);
                actions.push(Action::ProbeOnNewConnection);
            }
            _ => {}
        }
        actions
    }

    /// The duration of its silence, if it was reported.
    pub(crate) fn reported(&self, now: Duration) -> Option<Duration> {
        self.is_reported.then(|| now.saturating_sub(self.last_answer))
    }

    /// The task has answered a call or a probe.
    pub(crate) fn answered(&mut self, now: Duration) -> Option<Action> {
        let silence = now.saturating_sub(self.last_answer);
        self.last_answer = now;
        self.probe_sent = None;
        std::mem::take(&mut self.is_reported).then_some(Action::ReportRecovery(silence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: SilenceLimits = SilenceLimits {
        probe_after: Duration::from_secs(1),
        reprobe_after: Duration::from_secs(5),
        report_after: Duration::from_secs(3),
        lost_after: Duration::from_secs(30),
    };

    #[test]
    fn a_task_is_probed_before_it_is_lost() {
        let usual = SilenceLimits::with_loss(at(30));
        assert!(
            usual.probe_after < at(1) && usual.report_after < at(3) && usual.lost_after == at(30),
            "{usual:?}"
        );
        let short = SilenceLimits::with_loss(at(1));
        assert!(
            short.probe_after <= short.lost_after / 4 && short.report_after == at(1),
            "{short:?}"
        );
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn silence_is_reported_and_then_is_a_loss() {
        let mut task = FailureDetector::default();
        assert!(task.tick(at(100), true, &LIMITS).is_empty());
        assert_eq!(task.tick(at(101), true, &LIMITS), [Action::Probe]);
        assert!(task.tick(at(102), true, &LIMITS).is_empty(), "one probe at a time");
        assert_eq!(task.tick(at(103), true, &LIMITS), [Action::ReportSilence(at(3))]);
        assert!(task.tick(at(105), true, &LIMITS).is_empty(), "it is reported once");
        assert_eq!(task.tick(at(106), true, &LIMITS), [Action::ProbeOnNewConnection]);
        assert!(task.tick(at(107), true, &LIMITS).is_empty());
        assert_eq!(task.reported(at(107)), Some(at(7)));
        assert_eq!(task.tick(at(130), true, &LIMITS), [Action::DeclareLost(at(30))]);
    }

    #[test]
    fn an_answer_ends_the_silence() {
        let mut task = FailureDetector::default();
        task.tick(at(0), true, &LIMITS);
        task.tick(at(1), true, &LIMITS);
        task.tick(at(20), true, &LIMITS);
        assert_eq!(task.answered(at(21)), Some(Action::ReportRecovery(at(21))));
        assert_eq!(task.reported(at(21)), None);
        assert!(task.tick(at(21), true, &LIMITS).is_empty());
        assert_eq!(task.tick(at(22), true, &LIMITS), [Action::Probe]);
        assert_eq!(task.answered(at(22)), None);
    }

    #[test]
    fn a_task_without_calls_may_be_silent() {
        let mut task = FailureDetector::default();
        task.tick(at(0), true, &LIMITS);
        task.tick(at(1), true, &LIMITS);
        assert!(task.tick(at(50), false, &LIMITS).is_empty());
        assert!(task.tick(at(90), true, &LIMITS).is_empty(), "it begins anew");
    }
}
