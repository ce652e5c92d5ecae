//! One flag per step: the first error, a deadline or the caller's wish ends everything.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use parking_lot::Mutex;
use thalweg_tensor::{Error, Result, err};

/// Tells kernels of a step to stop, and why. Clones share the flag.
#[derive(Clone, Default)]
pub struct Cancellation(Arc<Inner>);

#[derive(Default)]
struct Inner {
    is_cancelled: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    cause: Option<Error>,
    next_id: u64,
    callbacks: Vec<(u64, Callback)>,
}

type Callback = Box<dyn FnOnce(&Error) + Send>;

/// Ends a callback's registration when it is dropped.
pub struct Registration {
    inner: Arc<Inner>,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.inner.state.lock().callbacks.retain(|(id, _)| *id != self.id);
    }
}

impl Cancellation {
    /// Whether the step is to stop. Cheap; ask between blocks of work.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Relaxed)
    }

    /// The cause as an error, if the step is to stop.
    pub fn check(&self) -> Result<()> {
        if !self.is_cancelled() {
            return Ok(());
        }
        let cause = self.0.state.lock().cause.clone();
        Err(cause.unwrap_or_else(|| err!(Cancelled, "the step was cancelled")))
    }

    /// Stops the step. The first cause wins; waiting kernels are woken.
    pub fn cancel(&self, cause: Error) {
        let told = cause.clone();
        let callbacks = {
            let mut state = self.0.state.lock();
            if state.cause.is_some() {
                return;
            }
            state.cause = Some(cause);
            self.0.is_cancelled.store(true, Ordering::Release);
            std::mem::take(&mut state.callbacks)
        };
        for (_, callback) in callbacks {
            // Whoever cancels (a failing kernel's thread, the timer) must not pay for a bug here,
            // and the other callbacks must still run.
            let _ = catch_unwind(AssertUnwindSafe(|| callback(&told)));
        }
    }

    /// Runs `callback` when the step is cancelled, at once if it is already. Dropping the
    /// registration ends it, but does not wait: a callback that another thread has begun to run
    /// goes on.
    pub fn on_cancel(&self, callback: impl FnOnce(&Error) + Send + 'static) -> Registration {
        let mut state = self.0.state.lock();
        let id = state.next_id;
        state.next_id += 1;
        match state.cause.clone() {
            Some(cause) => {
                drop(state);
                callback(&cause);
            }
            None => state.callbacks.push((id, Box::new(callback))),
        }
        Registration { inner: self.0.clone(), id }
    }

    /// Cancels `other` too, with the same cause, for as long as the registration lives.
    pub fn link(&self, other: &Cancellation) -> Registration {
        let other = other.clone();
        self.on_cancel(move |cause| other.cancel(cause.clone()))
    }

    /// Makes the flag good for another step, unless somebody besides the caller's own `holders`
    /// clones knows it: a timer that is just firing, a kernel that has not let go. Then it stays
    /// as it is, the answer is false, and the next step needs a flag of its own.
    pub fn reset(&mut self, holders: usize) -> bool {
        // The caller has all `holders` to itself, so the count cannot grow under its hands.
        if Arc::strong_count(&self.0) != holders {
            return false;
        }
        // What others did before they let go comes before what is done here.
        fence(Ordering::Acquire);
        let mut state = self.0.state.lock();
        state.cause = None;
        state.callbacks.clear();
        self.0.is_cancelled.store(false, Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn first_cause_wins_and_callbacks_run_once() {
        let c = Cancellation::default();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = |count: &Arc<AtomicUsize>| {
            let count = count.clone();
            move |_: &Error| {
                count.fetch_add(1, Ordering::Relaxed);
            }
        };
        let _kept = c.on_cancel(counted(&count));
        drop(c.on_cancel(counted(&count)));
        assert!(c.check().is_ok());
        c.cancel(err!(DeadlineExceeded, "late"));
        c.cancel(err!(Internal, "later"));
        let _late = c.on_cancel(counted(&count));
        assert_eq!(count.load(Ordering::Relaxed), 2);
        assert_eq!(c.check().unwrap_err().message(), "late");
    }

    #[test]
    fn a_panicking_callback_hurts_nobody() {
        let (c, other) = (Cancellation::default(), Cancellation::default());
        let _first = c.on_cancel(|_| panic!("a bug"));
        let link = c.link(&other);
        let late = Cancellation::default();
        drop(c.link(&late));
        c.cancel(err!(Aborted, "over"));
        assert_eq!(other.check().unwrap_err().message(), "over");
        assert!(late.check().is_ok(), "the link was dropped");
        drop(link);
    }

    #[test]
    fn only_a_flag_that_nobody_knows_is_reset() {
        let mut c = Cancellation::default();
        let known = c.clone();
        assert!(!c.reset(1));
        drop(known);
        let waiting = c.on_cancel(|_| {});
        assert!(!c.reset(1));
        drop(waiting);
        c.cancel(err!(Aborted, "over"));
        assert!(c.reset(1));
        assert!(c.check().is_ok());
    }
}
