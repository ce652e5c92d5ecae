//! Completion of one call by the first of several events: the response, a cancellation, the loss of the
//! called task.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use thalweg_kernel::Registration;
use thalweg_tensor::Result;

use crate::network::transport::Done;

/// Passes the first result to its [`Done`] and ignores later ones.
pub(crate) struct Completion<T>(Arc<Mutex<State<T>>>);

struct State<T> {
    /// None once the call is completed.
    done: Option<Done<T>>,
    /// Registrations of events that may complete the call; dropped once it is completed.
    registrations: SmallVec<[Registration; 3]>,
}

impl<T> Clone for Completion<T> {
    fn clone(&self) -> Self {
        Completion(self.0.clone())
    }
}

impl<T> Completion<T> {
    pub(crate) fn new(done: Done<T>) -> Completion<T> {
        let state = State { done: Some(done), registrations: SmallVec::new() };
        Completion(Arc::new(Mutex::new(state)))
    }

    /// Keeps registrations of events that may complete the call until it is completed.
    pub(crate) fn keep<const N: usize>(&self, registrations: [Registration; N]) {
        let mut state = self.0.lock();
        if state.done.is_some() {
            state.registrations.extend(registrations);
        }
    }

    pub(crate) fn complete(&self, result: Result<T>) {
        let (done, registrations) = {
            let mut state = self.0.lock();
            (state.done.take(), std::mem::take(&mut state.registrations))
        };
        drop(registrations);
        if let Some(done) = done {
            done(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use thalweg_kernel::Cancellation;
    use thalweg_tensor::err;

    use super::*;

    #[test]
    fn the_first_result_counts() {
        let results = Arc::new(AtomicUsize::new(0));
        let counted = results.clone();
        let completion = Completion::new(Box::new(move |result: Result<usize>| {
            counted.fetch_add(result.unwrap(), Ordering::Relaxed);
        }));
        let (cancellation, cancelled) = (Cancellation::default(), completion.clone());
        completion
            .keep([cancellation.on_cancel(move |cause| cancelled.complete(Err(cause.clone())))]);
        completion.complete(Ok(1));
        completion.complete(Ok(10));
        cancellation.cancel(err!(Cancelled, "late"));
        assert_eq!(results.load(Ordering::Relaxed), 1);
    }
}
