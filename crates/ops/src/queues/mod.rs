//! Queues, staging areas and barriers.
//!
//! A call that must wait (because the queue is full or empty) is stored in a [`gate::Gate`], and
//! its thread returns. Every state change retries the waiting calls in order of arrival; the end of
//! a step removes its calls.

mod batch;
pub(crate) mod gate;
mod heap;
#[cfg(test)]
mod model_tests;
pub(crate) mod queue;
mod store;

pub(crate) mod access;
pub(crate) mod barrier;
pub(crate) mod create;
pub(crate) mod map_staging;
pub(crate) mod staging;
