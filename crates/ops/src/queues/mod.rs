//! Queues, staging areas and barriers.
//!
//! An op that must wait (the queue is full, or empty) leaves its call at a [`gate::Gate`] and
//! returns its thread. A change of the state retries the waiting calls in the order of their
//! arrival; a step that ends removes its calls.

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
