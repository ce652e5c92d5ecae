//! Request batching: requests that arrive at the same time run as one step.

mod batch;
mod batcher;
mod counts;
mod learner;
mod parameters;
mod queue;
mod rows;

pub(crate) use batcher::Batcher;
pub(crate) use counts::{Counts, Totals};
pub use parameters::{Batching, Parameters};
