//! The cases recorded from TensorFlow, on the real session: as planned by default, and with the
//! optimizer off, functions written out, on several threads.
#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

#[path = "../../ops/tests/support/cases.rs"]
mod cases;

use std::collections::{BTreeSet, HashMap, HashSet};

use thalweg_graph::{Graph, structural};
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
    let scratch = cases::Scratch::new();
    let mut options = options.clone();
    options.environment.storage = scratch.storage();
    let is_interpreted = |op: &str| structural::OPS.iter().any(|def| def.name == op);
    cases::play_all(&kernels, is_interpreted, |def, play| {
        scratch.empty();
        let graph = Graph::from_def(ops.clone(), def)?;
        let session = Session::new(graph, kernels.clone(), options.clone())?;
        play(&mut |feeds, fetches, targets| run(&session, feeds, fetches, targets))
    })
}

/// Ops of ours that TensorFlow 2.21 cannot run on a CPU, so that nothing can be recorded of them.
/// Tests beside their kernels hold them to what they are documented to do.
const NOTHING_TO_RECORD: &[&str] = &[
    // No CPU kernel.
    "BatchFFT",
    "BatchFFT2D",
    "BatchFFT3D",
    "BatchIFFT",
    "BatchIFFT2D",
    "BatchIFFT3D",
    "CTCLossV2",
    "FFTND",
    "IFFTND",
    "IRFFTND",
    "MaxPoolGradGradWithArgmax",
    "RFFTND",
    // A kernel that asks for an attr that the op does not have.
    "FixedLengthRecordReader",
    "TopK",
    // Refused in graphs of all versions.
    "RandomCrop",
];

/// Every op that has a CPU kernel takes part in a recorded case. Ops that accelerators alone run have
/// theirs in `testdata/xla` (`accel/tests/xla_ops.rs`).
#[test]
fn every_op_has_a_case() {
    let mut seen: HashSet<String> = HashSet::new();
    for case in cases::cases() {
        seen.extend(cases::strings(&case["ops"]));
    }
    let of_cpu = FAMILIES.iter().flat_map(|f| f.kernels).filter(|k| k.serves("CPU"));
    let kernels = of_cpu.map(|k| k.op);
    let missing: BTreeSet<&str> =
        kernels.filter(|op| !seen.contains(*op) && !NOTHING_TO_RECORD.contains(op)).collect();
    assert!(missing.is_empty(), "ops without a recorded case: {missing:?}");
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
fn recorded_cases_written_out_on_four_threads() {
    play_with(&SessionOptions {
        memory_limit_bytes: 1 << 30,
        inter_threads: 4,
        intra_threads: 4,
        plan: Options { optimize: false, lower: true, ..Options::default() },
        ..Default::default()
    });
}
