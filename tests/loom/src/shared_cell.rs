//! A value that several threads use, as code with `unsafe` does: loom fails if their uses conflict.

use loom::cell::UnsafeCell;

pub(crate) struct SharedCell<T>(UnsafeCell<T>);

// SAFETY: loom runs one thread at a time and checks every access.
unsafe impl<T: Send> Sync for SharedCell<T> {}

impl<T> SharedCell<T> {
    pub(crate) fn new(value: T) -> SharedCell<T> {
        SharedCell(UnsafeCell::new(value))
    }

    /// Shared access: loom fails if another thread has exclusive access at the same time.
    pub(crate) fn read<R>(&self, body: impl FnOnce(&T) -> R) -> R {
        // SAFETY: loom fails if another thread has it to itself.
        self.0.with(|value| body(unsafe { &*value }))
    }

    /// Exclusive access: loom fails if another thread has access at the same time.
    pub(crate) fn write<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: loom fails if another thread uses it.
        self.0.with_mut(|value| body(unsafe { &mut *value }))
    }
}
