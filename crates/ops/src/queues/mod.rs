//! State through which steps hand each other tensors: queues, staging areas and barriers.
//!
//! An op that must wait (the queue is full, or empty) leaves its call at a [`gate::Gate`] and gives
//! its thread back. Whoever changes the state goes on with the calls that wait there, in the order
//! in which they came; a step that ends takes its calls away.

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
