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
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};

#[test]
fn recorded_cases() {
    let ops = op_registry(FAMILIES).unwrap();
    let kernels = kernel_registry(FAMILIES);
    let is_structural = |op: &str| matches!(op, "Const" | "Identity" | "NoOp");
    cases::play_all(&kernels, is_structural, |def, play| {
        let mut interpreter = Interpreter::new(Graph::from_def(ops.clone(), def)?, kernels.clone());
        play(&mut |feeds, fetches, targets| interpreter.run(feeds, fetches, targets))
    });
}
