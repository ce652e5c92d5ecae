//! When tensors of traced steps were requested from this task, and when they were sent.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_kernel::RendezvousKey;
use thalweg_runtime::SentTensor;

/// Most traced steps that are kept; the master takes the log when the step has ended, or never.
const STEPS_MAX: usize = 16;
/// Most tensors kept of one step.
const TENSORS_MAX: usize = 1 << 13;
/// How long a step is kept: its master may be TensorFlow's, which never asks, or be gone.
const KEPT_TIME: Duration = Duration::from_secs(120);

/// The tensors that this task has sent in traced steps.
#[derive(Default)]
pub(crate) struct SentLog {
    /// How many steps are traced: the only thing that a step that is not traced reads.
    count: AtomicUsize,
    steps: Mutex<VecDeque<TracedStep>>,
}

/// A traced step, and what was sent in it.
struct TracedStep {
    number: u64,
    /// When it began, by the wall clock.
    begun: Duration,
    tensors: Vec<SentTensor>,
}

impl SentLog {
    /// Step number `step` is traced; it begins `now`, by the wall clock.
    pub(crate) fn begin(&self, step: u64, now: Duration) {
        let mut steps = self.steps.lock();
        // A task may be the master of a step and, under another name, a worker of it.
        if steps.iter().all(|traced| traced.number != step) {
            steps.push_back(TracedStep { number: step, begun: now, tensors: Vec::new() });
        }
        if steps.len() > STEPS_MAX {
            steps.pop_front();
        }
        self.count.store(steps.len(), Ordering::Relaxed);
    }

    /// A tensor that was requested at `requested` was sent at `sent`, by the wall clock.
    pub(crate) fn add(
        &self,
        step: u64,
        key: &RendezvousKey,
        requested: Duration,
        sent: impl FnOnce() -> Duration,
    ) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut steps = self.steps.lock();
        while steps.front().is_some_and(|traced| traced.begun + KEPT_TIME < requested) {
            steps.pop_front();
        }
        self.count.store(steps.len(), Ordering::Relaxed);
        let found = steps.iter_mut().find(|traced| traced.number == step);
        if let Some(traced) = found.filter(|traced| traced.tensors.len() < TENSORS_MAX) {
            traced.tensors.push(SentTensor {
                key: key.0.to_string(),
                requested_ns: requested.as_nanos() as u64,
                sent_ns: sent().as_nanos() as u64,
            });
        }
    }

    /// What was sent in a step, in ns since 1970; the step is not traced any more.
    pub(crate) fn take(&self, step: u64) -> Vec<SentTensor> {
        let mut steps = self.steps.lock();
        let position = steps.iter().position(|traced| traced.number == step);
        let taken = position.and_then(|i| steps.remove(i));
        self.count.store(steps.len(), Ordering::Relaxed);
        taken.map_or_else(Vec::new, |traced| traced.tensors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_traced_steps_are_logged() {
        let (log, key) = (SentLog::default(), RendezvousKey("k".into()));
        let at = Duration::from_nanos;
        log.add(1, &key, at(5), || unreachable!("no step is traced"));
        log.begin(1, at(0));
        log.begin(1, at(0));
        log.add(1, &key, at(5), || at(7));
        log.add(2, &key, at(5), || unreachable!("this step is not traced"));
        let expected = SentTensor { key: "k".into(), requested_ns: 5, sent_ns: 7 };
        assert_eq!(log.take(1), [expected]);
        assert!(log.take(1).is_empty());
        (0..100).for_each(|step| log.begin(step, at(0)));
        assert_eq!(log.steps.lock().len(), STEPS_MAX);
        let later = KEPT_TIME + at(1);
        log.add(99, &key, later, || unreachable!("the step is forgotten"));
        assert_eq!(log.count.load(Ordering::Relaxed), 0);
    }
}
