//! Single flight: concurrent callers share one call and its result.

use parking_lot::Mutex;
use thalweg_tensor::Result;

use crate::network::transport::Done;

/// The result of a call, or the callers that wait for it. After an error the next caller makes the call
/// again.
pub(crate) struct SingleFlight<T>(Mutex<State<T>>);

enum State<T> {
    None,
    InFlight(Vec<Done<T>>),
    Done(T),
}

impl<T> Default for SingleFlight<T> {
    fn default() -> Self {
        SingleFlight(Mutex::new(State::None))
    }
}

impl<T: Clone> SingleFlight<T> {
    /// The result, if the call has succeeded.
    pub(crate) fn result(&self) -> Option<T> {
        match &*self.0.lock() {
            State::Done(value) => Some(value.clone()),
            _ => None,
        }
    }

    /// Passes the result to `done`, now or later. If this returns true, the caller must make the call
    /// and pass its result to [`SingleFlight::complete`].
    #[must_use]
    pub(crate) fn get(&self, done: Done<T>) -> bool {
        let mut state = self.0.lock();
        match &mut *state {
            State::Done(value) => {
                let value = value.clone();
                drop(state);
                done(Ok(value));
                false
            }
            State::InFlight(waiters) => {
                waiters.push(done);
                false
            }
            State::None => {
                *state = State::InFlight(vec![done]);
                true
            }
        }
    }

    /// Passes the result of the call to all who wait for it.
    pub(crate) fn complete(&self, result: &Result<T>) {
        let mut state = self.0.lock();
        let next = match result {
            Ok(value) => State::Done(value.clone()),
            Err(_) => State::None,
        };
        let State::InFlight(waiters) = std::mem::replace(&mut *state, next) else { return };
        drop(state);
        waiters.into_iter().for_each(|done| done(result.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use thalweg_tensor::err;

    #[test]
    fn one_caller_calls_and_all_get_the_result() {
        let call = SingleFlight::<u32>::default();
        let results = Arc::new(Mutex::new(Vec::new()));
        let waiter = || -> Done<u32> {
            let results = results.clone();
            Box::new(move |result| results.lock().push(result.unwrap_or(0)))
        };
        assert!(call.get(waiter()));
        assert!(!call.get(waiter()));
        call.complete(&Err(err!(Unavailable, "not there")));
        assert_eq!(*results.lock(), [0, 0]);
        assert!(call.get(waiter()), "after an error the next caller calls again");
        call.complete(&Ok(7));
        assert!(!call.get(waiter()));
        assert_eq!(*results.lock(), [0, 0, 7, 7]);
        assert_eq!(call.result(), Some(7));
    }
}
