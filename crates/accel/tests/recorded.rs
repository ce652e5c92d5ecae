//! The cases recorded from TensorFlow, with every node that has a lowering on an accelerator.
//!
//! `THALWEG_TEST_PJRT_PLUGIN` names the plugin. A tenth of the cases runs, chosen by name; `RECORDED=all` runs all
//! of them, `GOLDEN=Add` those of one op and prints which of them the accelerator had no part in.
#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

#[path = "../../ops/tests/support/cases.rs"]
mod cases;
mod support;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use thalweg_graph::{Graph, structural};
use thalweg_kernel::KernelRegistry;
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_runtime::Session;
use thalweg_tensor::{Result, Tensor};

/// Cases and ops that differ, one to a line: name, a colon, the reason.
const EXCEPTIONS: &str = include_str!("exceptions.txt");

#[test]
fn recorded_cases_on_an_accelerator() {
    let Some(accelerator) = support::accelerator("recorded_cases_on_an_accelerator") else {
        return;
    };
    let ops = op_registry(FAMILIES).unwrap();
    let kernels = kernel_registry(FAMILIES);
    let filter = std::env::var("GOLDEN").ok();
    let runs_all = filter.is_some() || std::env::var("RECORDED").is_ok_and(|v| v == "all");
    let scratch = cases::Scratch::new();
    let (mut passed, mut there, mut failures) = (0, 0, Vec::new());
    let mut absent: BTreeMap<String, usize> = BTreeMap::new();
    let exceptions = exceptions();
    // Cases of ops with a lowering, and of calls.
    for case in cases::cases() {
        let (id, op) = (case["id"].as_str().unwrap(), case["op"].as_str().unwrap());
        if filter.as_ref().is_some_and(|f| f != op) || !(is_lowered(&kernels, op) || is_call(op)) {
            continue;
        }
        let needs = cases::strings(&case["ops"]);
        if exceptions.contains_key(id) || needs.iter().any(|op| exceptions.contains_key(&**op)) {
            continue;
        }
        if !runs_all && !is_in_sample(id) || !needs.iter().all(|op| can_run(&kernels, op)) {
            continue;
        }
        scratch.empty();
        let before = accelerator.counts().1;
        let run = || -> Result<()> {
            let mut def = cases::graph_of(&case);
            for node in &mut def.node {
                // Constants come from the host, or programs would be folded to their results.
                let is_host = node.op == "Const";
                node.device = (if is_host { support::CPU } else { support::DEVICE }).into();
                // Colocation with a constant would keep a node on the host.
                node.attr.remove("_class");
            }
            let mut options = support::options(&accelerator);
            options.environment.storage = scratch.storage();
            options.plan.optimize = false;
            let graph = Graph::from_def(ops.clone(), def)?;
            let session = Session::new(graph, kernels.clone(), options)?;
            cases::play(&case, &mut |feeds, fetches, targets| {
                run_step(&session, feeds, fetches, targets)
            })
        };
        match run() {
            Ok(()) => passed += 1,
            Err(e) => failures.push(format!("{id} ({}): {e}", case["kind"])),
        }
        match accelerator.counts().1 > before {
            true => there += 1,
            false => {
                *absent.entry(op.to_owned()).or_default() += 1;
                if filter.is_some() {
                    println!("  not there: {id} ({})", case["kind"]);
                }
            }
        }
    }
    println!("{passed} cases pass, {} fail; the accelerator had a part in {there}", failures.len());
    if filter.is_some() || runs_all {
        absent.iter().for_each(|(op, count)| println!("  not there: {op} ({count})"));
    }
    assert!(failures.is_empty(), "{} cases failed:\n{}", failures.len(), failures.join("\n"));
    assert!(there > 0, "the accelerator had a part in no case");
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

/// Names and reasons.
fn exceptions() -> BTreeMap<&'static str, &'static str> {
    let lines = EXCEPTIONS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(": ").expect("a name, a colon and a reason")).collect()
}

/// Every exception is an op or a case, and gives a reason.
#[test]
fn exceptions_exist() {
    let mut names: BTreeSet<String> = BTreeSet::new();
    for case in cases::cases() {
        names.insert(case["id"].as_str().unwrap().to_owned());
        names.extend(cases::strings(&case["ops"]));
    }
    for (name, reason) in exceptions() {
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
