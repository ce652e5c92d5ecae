//! Cases recorded from TensorFlow 2.21, for the ops that have kernels here.
//!
//! `GOLDEN=Add cargo test -p thalweg-ops --test golden` runs the cases of one op and prints every
//! failure; without it all runnable cases must pass.
#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

#[path = "support/cases.rs"]
mod cases;
mod support;

use support::Interpreter;
use thalweg_graph::Graph;
use thalweg_kernel::Environment;
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};

#[test]
fn recorded_cases() {
    let ops = op_registry(FAMILIES).unwrap();
    let kernels = kernel_registry(FAMILIES);
    let is_structural = |op: &str| matches!(op, "Const" | "Identity" | "NoOp");
    let scratch = cases::Scratch::new();
    cases::play_all(&kernels, is_structural, |def, play| {
        scratch.empty();
        let environment = Environment { storage: scratch.storage(), ..Environment::frozen() };
        let graph = Graph::from_def(ops.clone(), def)?;
        let mut interpreter = Interpreter::with_environment(graph, kernels.clone(), environment);
        play(&mut |feeds, fetches, targets| interpreter.run(feeds, fetches, targets))
    });
}
