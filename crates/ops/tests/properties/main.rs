//! Property-based tests of ops on random inputs: each result equals that of a plain loop written
//! from the op's definition, or a pair of ops is an identity.
//!
//! A failure prints its seed; `PROPERTY_SEED=0x.. cargo test -p thalweg-ops --test properties NAME`
//! runs that case alone. `PROPERTY_TIMES=100` runs a hundred times as many cases.
#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

#[path = "../support/mod.rs"]
mod support;

mod array;
mod broadcast;
mod cast;
mod contraction;
mod convolution;
mod harness;
mod indexing;
mod movement;
mod reduction;
mod search;
mod segments;
mod slicing;
mod sparse;
mod strings;
