//! The cases recorded from TensorFlow, on the real session: as planned by default, and with the
//! optimizer off on several threads.
#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

#[path = "../../ops/tests/support/cases.rs"]
mod cases;

use std::collections::HashMap;

use thalweg_graph::Graph;
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_plan::Options;
use thalweg_runtime::{Session, SessionOptions};
use thalweg_tensor::{Result, Tensor};

fn run(
    session: &Session,
    feeds: &HashMap<String, Tensor>,
    fetches: &[String],
    targets: &[String],
) -> Result<Vec<Tensor>> {
    let feeds: Vec<(&str, Tensor)> = feeds.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    let fetches: Vec<&str> = fetches.iter().map(String::as_str).collect();
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    session.run(&feeds, &fetches, &targets)
}

fn play_with(options: &SessionOptions) {
    let ops = op_registry(FAMILIES).unwrap();
    let kernels = kernel_registry(FAMILIES);
    cases::play_all(&kernels, |def, play| {
        let graph = Graph::from_def(ops.clone(), def)?;
        let session = Session::new(graph, kernels.clone(), options.clone())?;
        play(&mut |feeds, fetches, targets| run(&session, feeds, fetches, targets))
    });
}

#[test]
fn recorded_cases_as_planned() {
    play_with(&SessionOptions { memory_limit_bytes: 1 << 30, ..Default::default() });
}

#[test]
fn recorded_cases_unoptimized_on_four_threads() {
    play_with(&SessionOptions {
        memory_limit_bytes: 1 << 30,
        inter_threads: 4,
        intra_threads: 4,
        plan: Options { optimize: false, ..Options::default() },
        ..Default::default()
    });
}
