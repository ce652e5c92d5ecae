//! Deadlines of steps: one timer thread cancels those that have passed theirs.
#![expect(clippy::disallowed_methods, reason = "deadlines are real time, on a thread of their own")]

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use thalweg_kernel::Cancellation;
use thalweg_tensor::err;

static TIMER: OnceLock<Arc<Timer>> = OnceLock::new();

struct Timer {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    next_id: u64,
    /// Earliest first. Disarmed deadlines leave at once: a server may arm millions of long ones.
    waiting: BTreeMap<(Instant, u64), (Cancellation, Duration)>,
}

/// A deadline of a step; dropping it disarms it.
pub(crate) struct Deadline {
    timer: Arc<Timer>,
    key: (Instant, u64),
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.timer.state.lock().waiting.remove(&self.key);
    }
}

impl Deadline {
    /// Cancels `step` with `DeadlineExceeded` after `timeout`, unless it is dropped before. `None` for a
    /// timeout beyond what the clock can express.
    pub(crate) fn after(timeout: Duration, step: &Cancellation) -> Option<Deadline> {
        let due = Instant::now().checked_add(timeout)?;
        let timer = TIMER.get_or_init(start).clone();
        let mut state = timer.state.lock();
        let key = (due, state.next_id);
        state.next_id += 1;
        let is_first = state.waiting.first_key_value().is_none_or(|(first, _)| key < *first);
        state.waiting.insert(key, (step.clone(), timeout));
        drop(state);
        // The timer sleeps until the earliest deadline, so only an earlier one wakes it.
        if is_first {
            timer.changed.notify_one();
        }
        Some(Deadline { timer, key })
    }
}

fn start() -> Arc<Timer> {
    let timer = Arc::new(Timer { state: Mutex::default(), changed: Condvar::new() });
    let shared = timer.clone();
    std::thread::Builder::new()
        .name("thalweg-timer".into())
        .spawn(move || shared.run())
        .expect("the system has room for one thread");
    timer
}

impl Timer {
    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            let Some((&(due, _), _)) = state.waiting.first_key_value() else {
                self.changed.wait(&mut state);
                continue;
            };
            if Instant::now() < due {
                self.changed.wait_until(&mut state, due);
                continue;
            }
            if let Some((_, (step, timeout))) = state.waiting.pop_first() {
                // Cancelling runs callbacks, and so may letting go of the step: not under the lock.
                MutexGuard::unlocked(&mut state, move || {
                    step.cancel(err!(
                        DeadlineExceeded,
                        "the step did not finish within {} ms",
                        timeout.as_millis()
                    ));
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting() -> usize {
        TIMER.get().map_or(0, |t| t.state.lock().waiting.len())
    }

    #[test]
    fn disarmed_deadlines_leave_nothing_behind() {
        let step = Cancellation::default();
        let hour = Duration::from_secs(3600);
        for _ in 0..10_000 {
            drop(Deadline::after(hour, &step));
        }
        assert!(waiting() < 100, "{}", waiting());
        assert!(Deadline::after(Duration::MAX, &step).is_none());
        assert!(step.check().is_ok());
    }

    #[test]
    fn an_earlier_deadline_overtakes() {
        let (late, soon) = (Cancellation::default(), Cancellation::default());
        let _late = Deadline::after(Duration::from_secs(3600), &late);
        let _soon = Deadline::after(Duration::from_millis(5), &soon);
        let begin = Instant::now();
        while !soon.is_cancelled() {
            assert!(begin.elapsed() < Duration::from_secs(30), "the timer did not fire");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(soon.check().unwrap_err().code(), thalweg_tensor::Code::DeadlineExceeded);
        assert!(late.check().is_ok());
    }
}
