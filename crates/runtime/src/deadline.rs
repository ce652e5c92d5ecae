//! One thread that cancels steps whose time is up.
#![expect(clippy::disallowed_methods, reason = "deadlines are real time, on a thread of their own")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
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
    /// Earliest first; an id that is no longer in `waiting` has been disarmed.
    order: BinaryHeap<Reverse<(Instant, u64)>>,
    waiting: rustc_hash::FxHashMap<u64, (Cancellation, Duration)>,
}

/// Disarms the deadline when dropped.
pub(crate) struct Armed {
    timer: Arc<Timer>,
    id: u64,
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.timer.state.lock().waiting.remove(&self.id);
    }
}

/// Cancels `step` with `DeadlineExceeded` after `timeout`, unless the result is dropped before.
pub(crate) fn arm(step: &Cancellation, timeout: Duration) -> Armed {
    let timer = TIMER.get_or_init(start).clone();
    let due = Instant::now() + timeout;
    let mut state = timer.state.lock();
    let id = state.next_id;
    state.next_id += 1;
    state.order.push(Reverse((due, id)));
    state.waiting.insert(id, (step.clone(), timeout));
    drop(state);
    timer.changed.notify_one();
    Armed { timer, id }
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
            let Some(&Reverse((due, id))) = state.order.peek() else {
                self.changed.wait(&mut state);
                continue;
            };
            if Instant::now() < due {
                self.changed.wait_until(&mut state, due);
                continue;
            }
            state.order.pop();
            if let Some((step, timeout)) = state.waiting.remove(&id) {
                // Cancelling runs callbacks; the lock must not be held meanwhile.
                parking_lot::MutexGuard::unlocked(&mut state, || {
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
