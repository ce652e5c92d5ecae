//! XLA's ops on an accelerator, against what TensorFlow computes with them (`testdata/xla/make_ops.py`).
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "support/arrays.rs"]
mod arrays;
mod support;

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use thalweg_graph::Graph;
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_proto as pb;
use thalweg_runtime::Session;
use thalweg_tensor::{Code, Result, Tensor};

#[test]
fn ops_of_xla_give_tensorflows_numbers() {
    let Some(accelerator) = support::accelerator("ops_of_xla_give_tensorflows_numbers") else {
        return;
    };
    let (ops, kernels) = (op_registry(FAMILIES).unwrap(), kernel_registry(FAMILIES));
    let mut failures = Vec::new();
    for case in arrays::lines("ops.jsonl.gz") {
        let name = case["name"].as_str().unwrap();
        let before = accelerator.counts().1;
        let run = || -> Result<Vec<Tensor>> {
            let graph = STANDARD.decode(case["graph"].as_str().unwrap()).unwrap();
            let graph = Graph::from_def(ops.clone(), pb::GraphDef::decode(&graph[..]).unwrap())?;
            let session = Session::new(graph, kernels.clone(), support::options(&accelerator))?;
            let args = case["args"].as_array().unwrap().iter().map(arrays::tensor);
            let names: Vec<String> = (0..args.len()).map(|i| format!("x{i}:0")).collect();
            let feeds: Vec<(&str, Tensor)> = names.iter().map(String::as_str).zip(args).collect();
            let count = case["results"].as_array().unwrap().len();
            let fetches: Vec<String> = (0..count).map(|i| format!("y{i}:0")).collect();
            let fetches: Vec<&str> = fetches.iter().map(String::as_str).collect();
            session.run(&feeds, &fetches, &[])
        };
        match run() {
            Ok(got) => {
                let wanted = case["results"].as_array().unwrap();
                if let Some(difference) = arrays::difference(&got, wanted, 1e-5) {
                    failures.push(format!("{name}: {difference}"));
                }
            }
            Err(e) => failures.push(format!("{name}: {e}")),
        }
        if accelerator.counts().1 == before {
            failures.push(format!("{name}: the accelerator had no part in it"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Ops that accelerators alone run and that TensorFlow gives no numbers for, with the reason.
const NOTHING_TO_RECORD: &[(&str, &str)] = &[
    ("XlaCallModule", "tests/modules.rs compares modules with JAX"),
    ("XlaReplicaId", "TensorFlow ends when it compiles it"),
    ("XlaSetBound", "it forwards its input; the bound is for compilers of open shapes"),
];

/// Every op that accelerators alone run takes part in a recorded case, or there is a reason.
#[test]
fn every_op_has_a_case() {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for case in arrays::lines("ops.jsonl.gz") {
        let graph = STANDARD.decode(case["graph"].as_str().unwrap()).unwrap();
        let graph = pb::GraphDef::decode(&graph[..]).unwrap();
        let functions = graph.library.iter().flat_map(|library| &library.function);
        let nodes = graph.node.iter().chain(functions.flat_map(|f| &f.node_def));
        seen.extend(nodes.map(|node| node.op.clone()));
    }
    let kernels = kernel_registry(FAMILIES);
    let specs = FAMILIES.iter().flat_map(|f| f.kernels);
    let has_cpu_kernel = |op: &str| kernels.for_op(op).iter().any(|k| k.serves("CPU"));
    let missing: BTreeSet<&str> = specs
        .map(|k| k.op)
        .filter(|op| !has_cpu_kernel(op) && !seen.contains(*op))
        .filter(|op| NOTHING_TO_RECORD.iter().all(|(name, _)| name != op))
        .collect();
    assert!(missing.is_empty(), "ops without a recorded case: {missing:?}");
    assert!(NOTHING_TO_RECORD.iter().all(|(op, _)| !seen.contains(*op) && !has_cpu_kernel(op)));
}

/// A reducer that reduces by itself is refused.
#[test]
fn a_reducer_that_calls_itself() {
    let Some(accelerator) = support::accelerator("a_reducer_that_calls_itself") else { return };
    let (ops, kernels) = (op_registry(FAMILIES).unwrap(), kernel_registry(FAMILIES));
    let case = arrays::lines("ops.jsonl.gz").into_iter().find(|c| c["name"] == "reduce").unwrap();
    let graph = STANDARD.decode(case["graph"].as_str().unwrap()).unwrap();
    let mut def = pb::GraphDef::decode(&graph[..]).unwrap();
    let outer = def.node.iter().find(|node| node.op == "XlaReduce").unwrap().clone();
    let Some(pb::attr_value::Value::Func(reducer)) = &outer.attr["reducer"].value else { panic!() };
    let functions = &mut def.library.as_mut().unwrap().function;
    let is_reducer = |f: &&mut pb::FunctionDef| f.signature.as_ref().unwrap().name == reducer.name;
    let function = &mut functions.iter_mut().find(is_reducer).unwrap().node_def;
    let sum = function.iter_mut().find(|node| node.op == "AddV2").unwrap();
    sum.op = "XlaReduce".into();
    let none = pb::attr_value::Value::List(Box::default());
    sum.attr.insert("dimensions_to_reduce".into(), pb::AttrValue { value: Some(none) });
    sum.attr.insert("reducer".into(), outer.attr["reducer"].clone());
    let session = Graph::from_def(ops, def)
        .and_then(|graph| Session::new(graph, kernels, support::options(&accelerator)));
    let feeds = [("x0:0", arrays::tensor(&case["args"][0]))];
    let e = session.and_then(|s| s.run(&feeds, &["y0:0"], &[])).unwrap_err();
    assert_ne!(e.code(), Code::Internal, "{e}");
}
