//! Which calls become parts of regions.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use thalweg_graph::{AttrValue, Attrs, Graph, IntoAttr};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_plan::form_regions;
use thalweg_proto as pb;
use thalweg_tensor::DType;

fn node(name: &str, op: &str, inputs: &[&str], attrs: &[(&str, AttrValue)]) -> pb::NodeDef {
    pb::NodeDef {
        name: name.into(),
        op: op.into(),
        input: inputs.iter().map(|&input| input.into()).collect(),
        attr: attrs.iter().map(|(name, value)| ((*name).into(), value.to_proto())).collect(),
        ..Default::default()
    }
}

fn call(name: &str, function: &str, input: &str) -> pb::NodeDef {
    let types = (&[DType::Float][..]).into_attr();
    let f = AttrValue::function(function, &Attrs::default());
    let attrs = [("Tin", types.clone()), ("Tout", types), ("f", f)];
    node(name, "PartitionedCall", &[input], &attrs)
}

/// A function from `x` to the given output of its last node.
fn function(name: &str, nodes: Vec<pb::NodeDef>, result: &str) -> pb::FunctionDef {
    let arg = |name: &str| pb::op_def::ArgDef {
        name: name.into(),
        r#type: DType::Float.to_proto(),
        ..Default::default()
    };
    pb::FunctionDef {
        signature: Some(pb::OpDef {
            name: name.into(),
            input_arg: vec![arg("x")],
            output_arg: vec![arg("y")],
            ..Default::default()
        }),
        node_def: nodes,
        ret: [("y".to_owned(), result.to_owned())].into(),
        ..Default::default()
    }
}

/// Number of regions, and of nodes besides them, of a graph that calls `callee`.
fn regions(functions: Vec<pb::FunctionDef>, callee: &str) -> (usize, usize) {
    let dtype = DType::Float.into_attr();
    let feed = node("feed", "Placeholder", &[], &[("dtype", dtype.clone())]);
    let read = node("read", "Neg", &["called"], &[("T", dtype)]);
    let def = pb::GraphDef {
        node: vec![feed, call("called", callee, "feed"), read],
        library: Some(pb::FunctionDefLibrary { function: functions, ..Default::default() }),
        ..Default::default()
    };
    let graph = Graph::from_def(op_registry(FAMILIES).unwrap(), def).unwrap();
    let (graph, regions) = form_regions(graph, &kernel_registry(FAMILIES), "GPU").unwrap();
    let others = graph.nodes().iter().filter(|n| n.role().is_call()).count();
    (regions.len(), others)
}

/// `f0` negates; each other function calls the one before it twice.
fn doubling(count: usize) -> Vec<pb::FunctionDef> {
    let negate = node("n", "Neg", &["x"], &[("T", DType::Float.into_attr())]);
    let mut all = vec![function("f0", vec![negate], "n:y:0")];
    for i in 1..count {
        let callee = format!("f{}", i - 1);
        let nodes = vec![call("a", &callee, "x"), call("b", &callee, "a:output:0")];
        all.push(function(&format!("f{i}"), nodes, "b:output:0"));
    }
    all
}

#[test]
fn a_call_of_what_has_a_lowering_is_part_of_a_region() {
    assert_eq!(regions(doubling(1), "f0").1, 0);
    assert_eq!(regions(doubling(4), "f3").1, 0);
}

/// Functions that would be inlined a million times, or nest too deeply, stay calls.
#[test]
fn calls_that_multiply_stay_calls() {
    assert_eq!(regions(doubling(30), "f29").1, 1);
    let mut deep = vec![function("g0", doubling(1).remove(0).node_def, "n:y:0")];
    for i in 1..100 {
        let nodes = vec![call("a", &format!("g{}", i - 1), "x")];
        deep.push(function(&format!("g{i}"), nodes, "a:output:0"));
    }
    assert_eq!(regions(deep.clone(), "g8").1, 0);
    assert_eq!(regions(deep, "g99").1, 1);
}

#[test]
fn recursive_functions_stay_calls() {
    let own = function("f", vec![call("a", "f", "x")], "a:output:0");
    assert_eq!(regions(vec![own], "f").1, 1);
    let first = function("f", vec![call("a", "g", "x")], "a:output:0");
    let second = function("g", vec![call("a", "f", "x")], "a:output:0");
    assert_eq!(regions(vec![first, second], "f").1, 1);
}

/// A function with an op that has no lowering, or with state of its own, stays a call.
#[test]
fn what_has_no_lowering_stays_a_call() {
    let nodes = vec![node("u", "Unique", &["x"], &[("T", DType::Float.into_attr())])];
    assert_eq!(regions(vec![function("f", nodes, "u:y:0")], "f").1, 1);
}
