//! One flag per step: the first error, a deadline or the caller's wish ends everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
            callback(&told);
        }
    }

    /// Runs `callback` when the step is cancelled, at once if it is already; not after the
    /// registration is dropped.
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

    /// Makes the flag good for another step; nobody may be waiting on it.
    pub fn reset(&self) {
        let mut state = self.0.state.lock();
        state.cause = None;
        state.callbacks.clear();
        self.0.is_cancelled.store(false, Ordering::Release);
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
}
