//! Random numbers with the bits of TensorFlow's CPU kernels: pure functions without state or
//! threads.
//!
//! A [`philox::Philox`] is a position in a stream of random bits. `distributions` maps blocks of
//! bits to groups of values of fixed length, `rejection` and `truncated` sample by rejection,
//! `selection` and `candidates` choose among given items.

pub(crate) mod candidates;
pub(crate) mod distributions;
pub(crate) mod elementary;
pub(crate) mod gamma;
pub(crate) mod philox;
pub(crate) mod rejection;
pub(crate) mod selection;
pub(crate) mod truncated;
