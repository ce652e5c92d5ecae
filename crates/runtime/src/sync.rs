//! Atomics and locks of the modules that `tests/loom` checks: it includes them by path and gives
//! them loom's instead.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic;
pub(crate) use std::thread::yield_now;

pub(crate) use crossbeam_utils::CachePadded;
pub(crate) use parking_lot::{Condvar, Mutex};
