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

fn play_with(options: &SessionOptions) -> cases::Results {
    let ops = op_registry(FAMILIES).unwrap();
    let kernels = kernel_registry(FAMILIES);
    cases::play_all(&kernels, |def, play| {
        let graph = Graph::from_def(ops.clone(), def)?;
        let session = Session::new(graph, kernels.clone(), options.clone())?;
        play(&mut |feeds, fetches, targets| run(&session, feeds, fetches, targets))
    })
}

/// The published results are those of this run. `GOLDEN_RESULTS=FILE` writes them there instead.
fn check_results(results: &cases::Results) {
    let line =
        |(op, (passed, total)): (&String, &(usize, usize))| format!("{op} {passed} {total}\n");
    let text: String = results.iter().map(line).collect();
    match std::env::var("GOLDEN_RESULTS") {
        Ok(file) => std::fs::write(file, text).unwrap(),
        Err(_) if std::env::var("GOLDEN").is_err() => assert!(
            text == thalweg_ops::GOLDEN_RESULTS,
            "crates/ops/src/golden_results.txt is stale: run `cargo xtask docs`"
        ),
        Err(_) => {}
    }
}

#[test]
fn recorded_cases_as_planned() {
    let options = SessionOptions { memory_limit_bytes: 1 << 30, ..Default::default() };
    check_results(&play_with(&options));
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
