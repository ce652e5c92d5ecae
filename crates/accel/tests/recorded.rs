//! The cases recorded from TensorFlow, with every node that has a lowering on an accelerator.
//!
//! `THALWEG_TEST_PJRT_PLUGIN` names the plugin. A tenth of the cases runs, chosen by name; `RECORDED=all` runs all
//! of them, `GOLDEN=Add` those of one op.
#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

#[path = "../../ops/tests/support/cases.rs"]
mod cases;
mod support;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value as Json;
use thalweg_accel::{Accelerator, AcceleratorOptions};
use thalweg_graph::{Graph, OpRegistry, structural};
use thalweg_kernel::KernelRegistry;
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_runtime::Session;
use thalweg_tensor::{Result, Tensor};

/// Cases and ops that differ, one to a line: name, the platform if it is on one only, a colon, the reason.
const EXCEPTIONS: &str = include_str!("exceptions.txt");

#[test]
fn recorded_cases_on_an_accelerator() {
    let Some(accelerator) = support::accelerator("recorded_cases_on_an_accelerator") else {
        return;
    };
    let suite = Suite::new(accelerator.client().platform_name());
    let filter = std::env::var("GOLDEN").ok();
    let runs_all = filter.is_some() || std::env::var("RECORDED").is_ok_and(|v| v == "all");
    let chosen: Vec<Json> = cases::cases()
        .into_iter()
        .filter(|case| filter.as_ref().is_none_or(|op| case["op"] == **op))
        .filter(|case| suite.has(case) && (runs_all || is_in_sample(case["id"].as_str().unwrap())))
        .collect();
    // Programs are compiled on the threads that run their regions first.
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let next = AtomicUsize::new(0);
    let outcome = Mutex::new(Outcome::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                // With counters of its own.
                let client = accelerator.client().clone();
                let options = AcceleratorOptions::default();
                let device = Accelerator::new(client, 0, "XLA_CPU", &options).unwrap();
                let scratch = cases::Scratch::new();
                while let Some(case) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let before = device.counts().1;
                    let result = suite.play(case, &device, &scratch);
                    let was_there = device.counts().1 > before;
                    outcome.lock().unwrap().add(case, &result, was_there);
                }
            });
        }
    });
    let Outcome { passed, there, absent, mut failures } = outcome.into_inner().unwrap();
    println!("{passed} cases pass, {} fail; the accelerator had a part in {there}", failures.len());
    if runs_all {
        absent.iter().for_each(|(op, count)| println!("  not there: {op} ({count})"));
    }
    failures.sort();
    assert!(failures.is_empty(), "{} cases failed:\n{}", failures.len(), failures.join("\n"));
    assert!(there > 0, "the accelerator had a part in no case");
}

/// What playing the cases came to.
#[derive(Default)]
struct Outcome {
    passed: usize,
    /// Cases in which the accelerator ran a program.
    there: usize,
    /// The number of the others, by op.
    absent: BTreeMap<String, usize>,
    failures: Vec<String>,
}

impl Outcome {
    fn add(&mut self, case: &Json, result: &Result<()>, was_there: bool) {
        let (id, op) = (case["id"].as_str().unwrap(), case["op"].as_str().unwrap());
        match result {
            Ok(()) => self.passed += 1,
            Err(e) => {
                let failure = format!("{id} ({}): {e}", case["kind"]);
                // At once: all cases take long.
                println!("{failure}");
                self.failures.push(failure);
            }
        }
        match was_there {
            true => self.there += 1,
            false => *self.absent.entry(op.to_owned()).or_default() += 1,
        }
    }
}

/// What the cases are played with.
struct Suite {
    ops: Arc<OpRegistry>,
    kernels: Arc<KernelRegistry>,
    exceptions: BTreeSet<&'static str>,
}

impl Suite {
    fn new(platform: &str) -> Suite {
        let exceptions = exceptions().into_iter().filter(|e| e.is_on(platform));
        Suite {
            ops: op_registry(FAMILIES).unwrap(),
            kernels: kernel_registry(FAMILIES),
            exceptions: exceptions.map(|e| e.name).collect(),
        }
    }

    /// Whether a case is of an op with a lowering, or of a call, can run, and is no exception.
    fn has(&self, case: &Json) -> bool {
        let (id, op) = (case["id"].as_str().unwrap(), case["op"].as_str().unwrap());
        let needs = cases::strings(&case["ops"]);
        let is_exception =
            self.exceptions.contains(id) || needs.iter().any(|op| self.exceptions.contains(&**op));
        (is_lowered(&self.kernels, op) || is_call(op))
            && !is_exception
            && needs.iter().all(|op| can_run(&self.kernels, op))
    }

    fn play(
        &self,
        case: &Json,
        accelerator: &Arc<Accelerator>,
        scratch: &cases::Scratch,
    ) -> Result<()> {
        scratch.empty();
        let mut def = cases::graph_of(case);
        for node in &mut def.node {
            // Constants come from the host, or programs would be folded to their results.
            let is_host = node.op == "Const";
            node.device = (if is_host { support::CPU } else { support::DEVICE }).into();
            // Colocation with a constant would keep a node on the host.
            node.attr.remove("_class");
        }
        let mut options = support::options(accelerator);
        options.environment.storage = scratch.storage();
        options.plan.optimize = false;
        let graph = Graph::from_def(self.ops.clone(), def)?;
        let session = Session::new(graph, self.kernels.clone(), options)?;
        cases::play(case, &mut |feeds, fetches, targets| {
            run_step(&session, feeds, fetches, targets)
        })
    }
}

fn run_step(
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

fn is_lowered(kernels: &KernelRegistry, op: &str) -> bool {
    kernels.for_op(op).iter().any(|spec| spec.lower.is_some())
}

/// A tenth of all cases, the same whichever ops have a lowering.
fn is_in_sample(id: &str) -> bool {
    id.bytes().fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into())) % 10 == 0
}

fn is_call(op: &str) -> bool {
    structural::OPS.iter().any(|def| def.name == op && def.role.is_call())
}

fn can_run(kernels: &KernelRegistry, op: &str) -> bool {
    !kernels.for_op(op).is_empty() || structural::OPS.iter().any(|def| def.name == op)
}

/// A case or an op that differs.
struct Exception {
    name: &'static str,
    /// The only platform where it does.
    platform: Option<&'static str>,
    reason: &'static str,
}

impl Exception {
    fn is_on(&self, platform: &str) -> bool {
        self.platform.is_none_or(|only| only.eq_ignore_ascii_case(platform))
    }
}

fn exceptions() -> Vec<Exception> {
    let lines = EXCEPTIONS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, reason) = line.split_once(": ").expect("a name, a colon and a reason");
            match name.split_once(" on ") {
                Some((name, platform)) => Exception { name, platform: Some(platform), reason },
                None => Exception { name, platform: None, reason },
            }
        })
        .collect()
}

/// Every exception is an op or a case, and gives a reason.
#[test]
fn exceptions_exist() {
    let mut names: BTreeSet<String> = BTreeSet::new();
    for case in cases::cases() {
        names.insert(case["id"].as_str().unwrap().to_owned());
        names.extend(cases::strings(&case["ops"]));
    }
    for Exception { name, reason, .. } in exceptions() {
        assert!(names.contains(name), "no case or op is called {name}");
        assert!(reason.len() > 10, "{name} has no reason");
    }
}

/// Every input that a lowering wants to know at compilation is one of its op.
#[test]
fn host_inputs_exist() {
    let ops = op_registry(FAMILIES).unwrap();
    for spec in FAMILIES.iter().flat_map(|f| f.kernels).filter(|k| k.lower.is_some()) {
        let op = ops.get(spec.op).unwrap();
        for name in spec.host_inputs {
            let exists = op.inputs.iter().any(|arg| arg.name == *name);
            assert!(exists, "{} has no input '{name}'", spec.op);
        }
    }
}
