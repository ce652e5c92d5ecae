//! Random numbers as TensorFlow's CPU kernels make them: pure functions, no state, no threads.
//!
//! Everything starts from a [`philox::Philox`], a position in a stream of bits. The rest maps bits to
//! values: `distributions` in groups of fixed length, `rejection` and `truncated` by trial,
//! `selection` and `candidates` by choosing among given things.

pub(crate) mod candidates;
pub(crate) mod distributions;
mod elementary;
pub(crate) mod gamma;
pub(crate) mod philox;
pub(crate) mod rejection;
pub(crate) mod selection;
pub(crate) mod truncated;
