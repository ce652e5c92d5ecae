//! A bounded pool of objects that later steps use again.
//!
//! Step state is recycled on two levels. A plan keeps whole [`StepState`](super::StepState)s, with their
//! contexts, for its next steps. An executable keeps the [`Storage`](super::storage) of states that are
//! dropped: function calls get a new state each time, which refers to the caller's session, and an
//! executable may outlive that session.

use parking_lot::Mutex;

pub(crate) struct Recycler<T> {
    idle: Mutex<Vec<T>>,
    max: usize,
}

impl<T> Recycler<T> {
    /// A pool that keeps at most `max` objects.
    pub(crate) fn new(max: usize) -> Recycler<T> {
        Recycler { idle: Mutex::default(), max }
    }

    /// The object that was put last.
    pub(crate) fn take(&self) -> Option<T> {
        self.idle.lock().pop()
    }

    /// Keeps `object`, or drops it if the pool is full.
    pub(crate) fn put(&self, object: T) {
        let mut idle = self.idle.lock();
        if idle.len() < self.max {
            idle.push(object);
        }
    }
}
