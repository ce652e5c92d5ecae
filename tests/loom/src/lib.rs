//! Models of the concurrent parts, for loom, which runs each in every order that the memory model
//! allows (within a bound on preemptions).
//!
//! The modules under test are those of the workspace, included by path. They take atomics and locks
//! from `crate::sync`, which is loom's here, and their other types from the stand-ins below.
#![allow(dead_code, reason = "a model needs a part of what a module offers")]
#![allow(unused_imports, reason = "as above")]

extern crate self as thalweg_kernel;
extern crate self as thalweg_tensor;

mod execute;
pub mod pool;
pub mod ring;
mod shared_cell;
mod stand_ins;
mod sync;

pub use execute::{counts_model, offers_model, outstanding_model, rendezvous_model};
pub use stand_ins::{Error, Received, Rendezvous, RendezvousKey, Result, Value};

/// Runs `model` in every order with at most `preemptions` switches between threads that could go
/// on; without a bound for `None`.
pub fn explore(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}
