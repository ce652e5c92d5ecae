//! A call that is made once for all who need its answer.

use parking_lot::Mutex;
use thalweg_tensor::Result;

/// The answer of a call, or the call on its way. A failed call is made again by whoever comes next.
pub(crate) struct OnceCall<T>(Mutex<State<T>>);

enum State<T> {
    None,
    Asked(Vec<Waiter<T>>),
    Known(T),
}

type Waiter<T> = Box<dyn FnOnce(Result<T>) + Send>;

impl<T> Default for OnceCall<T> {
    fn default() -> Self {
        OnceCall(Mutex::new(State::None))
    }
}

impl<T: Clone> OnceCall<T> {
    /// The answer, if it is there.
    pub(crate) fn known(&self) -> Option<T> {
        match &*self.0.lock() {
            State::Known(value) => Some(value.clone()),
            _ => None,
        }
    }

    /// Gives `then` the answer when it is there; true if the caller is the one to ask, and to tell
    /// [`OnceCall::answered`] later.
    pub(crate) fn get(&self, then: Waiter<T>) -> bool {
        let mut state = self.0.lock();
        match &mut *state {
            State::Known(value) => {
                let value = value.clone();
                drop(state);
                then(Ok(value));
                false
            }
            State::Asked(waiters) => {
                waiters.push(then);
                false
            }
            State::None => {
                *state = State::Asked(vec![then]);
                true
            }
        }
    }

    /// The answer came.
    pub(crate) fn answered(&self, result: &Result<T>) {
        let mut state = self.0.lock();
        let next = match result {
            Ok(value) => State::Known(value.clone()),
            Err(_) => State::None,
        };
        let State::Asked(waiters) = std::mem::replace(&mut *state, next) else { return };
        drop(state);
        waiters.into_iter().for_each(|waiter| waiter(result.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use thalweg_tensor::err;

    #[test]
    fn one_asks_and_all_get_the_answer() {
        let call = OnceCall::<u32>::default();
        let told = Arc::new(Mutex::new(Vec::new()));
        let waiter = || -> Waiter<u32> {
            let told = told.clone();
            Box::new(move |result| told.lock().push(result.unwrap_or(0)))
        };
        assert!(call.get(waiter()));
        assert!(!call.get(waiter()));
        call.answered(&Err(err!(Unavailable, "not there")));
        assert_eq!(*told.lock(), [0, 0]);
        assert!(call.get(waiter()), "the next one asks again");
        call.answered(&Ok(7));
        assert!(!call.get(waiter()));
        assert_eq!(*told.lock(), [0, 0, 7, 7]);
        assert_eq!(call.known(), Some(7));
    }
}
