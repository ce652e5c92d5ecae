//! Batching: requests that come at the same time run as one step.

mod batch;
mod batcher;
mod learner;
mod parameters;
mod queue;
mod rows;

pub(crate) use batcher::{Batcher, Counts};
pub use parameters::{Batching, Parameters};
