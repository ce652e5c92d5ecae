//! Atomics of the modules that `tests/loom` checks: it includes them by path and gives them loom's.

pub(crate) use std::sync::atomic;
