//! Cancellation of a step: by its first error, its deadline or its caller.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use parking_lot::Mutex;
use thalweg_tensor::{Error, Result, err};

/// The cancellation flag of a step, with the error that set it. Clones share the flag.
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

/// Removes a callback when it is dropped.
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
    /// Whether the step is cancelled: one relaxed load, cheap enough between blocks of a loop.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Relaxed)
    }

    /// The error that cancelled the step, if it is cancelled.
    pub fn check(&self) -> Result<()> {
        if !self.is_cancelled() {
            return Ok(());
        }
        let cause = self.0.state.lock().cause.clone();
        Err(cause.unwrap_or_else(|| err!(Cancelled, "the step was cancelled")))
    }

    /// Cancels the step and calls the registered callbacks on this thread; a later cause has no effect.
    pub fn cancel(&self, cause: Error) {
        let error = cause.clone();
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
            // A panic in a callback must not unwind into the canceller (the thread of a failing
            // kernel, the timer), and the other callbacks must still run.
            let _ = catch_unwind(AssertUnwindSafe(|| callback(&error)));
        }
    }

    /// Calls `callback` when the step is cancelled, at once if it is already. Dropping the
    /// registration removes the callback; it does not wait for one that another thread is running.
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

    /// Clears the flag for another step, if there are no clones besides the caller's `holders`. A timer
    /// that is firing, or a kernel that has not ended, may have one: then nothing changes, the result
    /// is false, and the next step needs a new flag.
    pub fn reset(&mut self, holders: usize) -> bool {
        // The caller owns all `holders` clones exclusively, so no thread can make another.
        if Arc::strong_count(&self.0) != holders {
            return false;
        }
        // Synchronizes with the drops of other clones.
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
