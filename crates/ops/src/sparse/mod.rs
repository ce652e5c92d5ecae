//! Sparse and ragged tensors: coordinates and values, sets, counts, row splits.

mod coo;
mod gradients;

pub(crate) mod add;
pub(crate) mod counts;
pub(crate) mod cross;
pub(crate) mod dense;
mod dense_lowering;
pub(crate) mod empty_rows;
pub(crate) mod layout;
pub(crate) mod matmul;
pub(crate) mod pieces;
pub(crate) mod ragged;
pub(crate) mod ragged_dense;
pub(crate) mod ragged_variant;
pub(crate) mod reduction;
pub(crate) mod serialize;
pub(crate) mod sets;

#[cfg(test)]
mod sparse_tests;
