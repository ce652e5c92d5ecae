//! XLA's ops: their inputs and outputs are StableHLO's, and they run on accelerators only.

pub(crate) mod arrays;
pub(crate) mod call_module;
pub(crate) mod computations;
mod numbers;
pub(crate) mod products;
