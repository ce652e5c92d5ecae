//! loom's atomics and locks under the names, and with the calls, that the workspace uses.

use std::ops::{Deref, DerefMut};

pub(crate) use crossbeam_utils::CachePadded;
pub(crate) use loom::hint::spin_loop;
pub(crate) use loom::sync::atomic;
pub(crate) use loom::thread::yield_now;

/// A lock with `parking_lot`'s calls.
#[derive(Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

pub(crate) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().expect("no model goes on after a panic")))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().expect("it is held but while it waits")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_deref_mut().expect("it is held but while it waits")
    }
}

/// A condition variable with `parking_lot`'s calls.
pub(crate) struct Condvar(loom::sync::Condvar);

impl Condvar {
    pub(crate) fn new() -> Condvar {
        Condvar(loom::sync::Condvar::new())
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("a waiting thread holds the lock");
        guard.0 = Some(self.0.wait(held).expect("no model goes on after a panic"));
    }
}
