//! Functions: calls of every form, nesting, recursion limits, errors, and state per call site.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::time::Duration;

use support::*;
use thalweg_runtime::RunOptions;
use thalweg_tensor::{Code, Tensor};

/// Calls `name` as an op of that name.
fn call(node: &str, function: &str, input: &str) -> String {
    format!(r#"node {{ name: "{node}" op: "{function}" input: "{input}" }}"#)
}

/// Calls `name` by PartitionedCall or StatefulPartitionedCall.
fn partitioned(node: &str, op: &str, function: &str, input: &str) -> String {
    format!(
        r#"node {{ name: "{node}" op: "{op}" input: "{input}"
            attr {{ key: "Tin" value {{ list {{ type: DT_FLOAT }} }} }}
            attr {{ key: "Tout" value {{ list {{ type: DT_FLOAT }} }} }}
            attr {{ key: "f" value {{ func {{ name: "{function}" }} }} }} }}"#
    )
}

/// A function from float to float whose body is `nodes`, and whose result is `result`.
fn function(name: &str, nodes: &str, result: &str) -> String {
    format!(
        r#"function {{ signature {{ name: "{name}" input_arg {{ name: "x" type: DT_FLOAT }}
            output_arg {{ name: "y" type: DT_FLOAT }} }} {nodes} ret {{ key: "y" value: "{result}" }} }} "#
    )
}

fn library(functions: &[String]) -> String {
    format!("library {{ {} }} {X}", functions.concat())
}

const X: &str =
    r#"node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } } "#;

fn body_node(name: &str, op: &str, input: &str) -> String {
    format!(r#"node_def {{ name: "{name}" op: "{op}" input: "{input}" }} "#)
}

#[test]
fn calls_of_every_form() {
    let twice = body_node("a", "f", "x") + &body_node("b", "f", "a:y:0");
    let text = library(&[
        function("f", &body_node("d", "ToyExpensive", "x"), "d:y:0"),
        function("g", &twice, "b:y:0"),
    ]) + &call("direct", "f", "x")
        + &call("nested", "g", "x")
        + &partitioned("pure", "PartitionedCall", "g", "x")
        + &partitioned("stateful", "StatefulPartitionedCall", "f", "pure")
        + &partitioned("missing", "PartitionedCall", "nope", "x");
    for threads in [1, 2] {
        let s = text_session(&text, threads).unwrap();
        for _ in 0..3 {
            let fetches = ["direct", "nested", "pure", "stateful"];
            let out = s.run(&[("x", number(1.0))], &fetches, &[]).unwrap();
            assert_eq!(numbers(&out), [2.0, 3.0, 3.0, 4.0]);
        }
        let e = s.run(&[("x", number(1.0))], &["missing"], &[]).unwrap_err();
        assert_eq!(e.code(), Code::NotFound, "{e}");
        assert!(e.message().ends_with("[[{{node missing}}]]"), "{e}");
    }
}

#[test]
fn errors_and_waits_inside() {
    watched("a call", || {
        let wait = r#"node_def { name: "deep" op: "ToyAsync" input: "x" attr { key: "mode" value { s: "MODE" } } } "#;
        let text = library(&[
            function("fails", &body_node("broken", "ToyFail", "x"), "broken:y:0"),
            function("panics", &body_node("bang", "ToyPanic", "x"), "bang:y:0"),
            function("waits", &wait.replace("MODE", "forever"), "deep:y:0"),
            function("later", &wait.replace("MODE", "thread"), "deep:y:0"),
        ]) + &call("a", "fails", "x")
            + &call("b", "panics", "x")
            + &call("c", "waits", "x")
            + &call("d", "later", "x")
            + &call("e", "later", "d");
        let s = text_session(&text, 1).unwrap();
        let run = |name: &str| s.run(&[("x", number(1.0))], &[name], &[]);
        let e = run("a").unwrap_err();
        assert_eq!(e.code(), Code::OutOfRange);
        assert!(e.message().ends_with("[[{{node broken}}]]"), "{e}");
        assert!(run("b").unwrap_err().message().ends_with("[[{{node bang}}]]"));
        let timeout = Some(Duration::from_millis(30));
        let options = RunOptions { timeout, ..Default::default() };
        let e = s.run_with(&options, &[("x", number(1.0))], &["c"], &[]).unwrap_err();
        assert_eq!(e.code(), Code::DeadlineExceeded, "{e}");
        assert_eq!(numbers(&run("e").unwrap()), [3.0]);
    });
}

#[test]
fn recursion_depth_is_limited() {
    watched("recursion", || {
        let text = library(&[function("f", &body_node("again", "f", "x"), "again:y:0")])
            + &call("y", "f", "x");
        for threads in [1, 4] {
            let s = text_session(&text, threads).unwrap();
            let e = s.run(&[("x", number(1.0))], &["y"], &[]).unwrap_err();
            assert_eq!(e.code(), Code::ResourceExhausted, "{e}");
            let e = s.run(&[("x", number(1.0))], &["y"], &[]).unwrap_err();
            assert_eq!(e.code(), Code::ResourceExhausted, "{e}");
        }
    });
}

/// Recursion that a branch ends; inlining leaves the recursive call a call.
#[test]
fn functions_may_call_themselves() {
    const TYPES: &str = r#"attr { key: "Tin" value { list { type: DT_INT32 } } } attr { key: "Tout" value { list { type: DT_INT32 } } }"#;
    const INT: &str = r#"attr { key: "T" value { type: DT_INT32 } }"#;
    const INTERFACE: &str =
        r#"input_arg { name: "n" type: DT_INT32 } output_arg { name: "f" type: DT_INT32 }"#;
    let int = |name: &str, value: i32| {
        format!(
            r#"node_def {{ name: "{name}" op: "Const" attr {{ key: "dtype" value {{ type: DT_INT32 }} }} attr {{ key: "value" value {{ tensor {{ dtype: DT_INT32 tensor_shape {{}} int_val: {value} }} }} }} }} "#
        )
    };
    let fib = |def: &str, name: &str, input: &str| {
        format!(
            r#"{def} {{ name: "{name}" op: "PartitionedCall" input: "{input}" {TYPES} attr {{ key: "f" value {{ func {{ name: "fib" }} }} }} }} "#
        )
    };
    let text = format!(
        r#"node {{ name: "n" op: "Placeholder" attr {{ key: "dtype" value {{ type: DT_INT32 }} }} }} {}
        library {{
          function {{ signature {{ name: "fib" {INTERFACE} }} {}
            node_def {{ name: "small" op: "Less" input: "n" input: "two:output:0" {INT} }}
            node_def {{ name: "y" op: "StatelessIf" input: "small:z:0" input: "n" {TYPES} attr {{ key: "Tcond" value {{ type: DT_BOOL }} }}
              attr {{ key: "then_branch" value {{ func {{ name: "same" }} }} }} attr {{ key: "else_branch" value {{ func {{ name: "both" }} }} }} }}
            ret {{ key: "f" value: "y:output:0" }} }}
          function {{ signature {{ name: "same" {INTERFACE} }} ret {{ key: "f" value: "n" }} }}
          function {{ signature {{ name: "both" {INTERFACE} }} {}
            node_def {{ name: "n1" op: "Sub" input: "n" input: "one:output:0" {INT} }}
            node_def {{ name: "n2" op: "Sub" input: "n1:z:0" input: "one:output:0" {INT} }} {} {}
            node_def {{ name: "sum" op: "AddV2" input: "f1:output:0" input: "f2:output:0" {INT} }}
            ret {{ key: "f" value: "sum:z:0" }} }}
        }}"#,
        fib("node", "fib", "n"),
        int("two", 2),
        int("one", 1),
        fib("node_def", "f1", "n1:z:0"),
        fib("node_def", "f2", "n2:z:0"),
    );
    watched("recursion that ends", move || {
        for (threads, lower) in [(1, false), (4, false), (2, true)] {
            let def = thalweg_proto::text::decode("tensorflow.GraphDef", &text).unwrap();
            let graph = thalweg_graph::Graph::from_def(registries().0, def).unwrap();
            let mut options = options(threads);
            options.plan.lower = lower;
            let s = thalweg_runtime::Session::new(graph, registries().1, options).unwrap();
            let fib = |n: i32| {
                let out = s.run(&[("n", Tensor::scalar(n))], &["fib"], &[]);
                out.map(|out| out[0].as_slice::<i32>().unwrap()[0])
            };
            for (n, expected) in [(0, 0), (1, 1), (7, 13), (12, 144)] {
                assert_eq!(fib(n).unwrap(), expected, "{n}");
            }
            // Whichever of the two is called first, they go deeper than calls may.
            assert_eq!(fib(300).unwrap_err().code(), Code::ResourceExhausted);
            assert_eq!(fib(5).unwrap(), 5);
        }
    });
}

/// In TensorFlow's sessions a call is replaced by a copy of the body, so each call site has a
/// generator of its own; the node of the same name outside has another.
#[test]
fn state_belongs_to_the_call_site() {
    let random = r#"
        node_def { name: "shape" op: "Const" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { dim { size: 1 } } int_val: 1 } } } }
        node_def { name: "r" op: "RandomUniform" input: "shape:output:0" attr { key: "T" value { type: DT_INT32 } } attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "seed" value { i: 7 } } attr { key: "seed2" value { i: 3 } } } "#;
    let text = library(&[function("f", random, "r:output:0")])
        + r#"node { name: "r" op: "ToyExpensive" input: "x" } "#
        + &call("a", "f", "x")
        + &call("b", "f", "x");
    let s = text_session(&text, 1).unwrap();
    let run = |fetches: &[&str]| numbers(&s.run(&[("x", number(1.0))], fetches, &[]).unwrap());
    let first = run(&["a", "b", "r"]);
    let second = run(&["a", "b", "r"]);
    assert_eq!(first[0], first[1]);
    assert_eq!(second[0], second[1]);
    assert_ne!(first[0], second[0]);
    assert_eq!(first[2], 2.0);
    // Another plan has copies of its own, and starts anew.
    assert_eq!(run(&["a"]), [first[0]]);
    assert_eq!(run(&["a"]), [second[0]]);
}

#[test]
fn lists_placeholders_and_control_outputs() {
    let text = r#"
        library { function {
          signature { name: "sum" input_arg { name: "v" type_attr: "T" number_attr: "N" } output_arg { name: "y" type_attr: "T" }
            attr { name: "T" type: "type" } attr { name: "N" type: "int" } control_output: "effect" }
          node_def { name: "add" op: "AddN" input: "v" attr { key: "T" value { placeholder: "T" } } attr { key: "N" value { placeholder: "N" } } }
          node_def { name: "broken" op: "ToyFail" input: "zero:output:0" }
          node_def { name: "zero" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape {} float_val: 0 } } } }
          ret { key: "y" value: "add:sum:0" } CONTROL } }
        node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
        node { name: "y" op: "sum" input: "x" input: "x" input: "x" attr { key: "T" value { type: DT_FLOAT } } attr { key: "N" value { i: 3 } } }"#;
    let s = text_session(&text.replace("CONTROL", ""), 1).unwrap();
    assert_eq!(numbers(&s.run(&[("x", number(2.0))], &["y"], &[]).unwrap()), [6.0]);
    let control = r#"control_ret { key: "effect" value: "broken" }"#;
    let s = text_session(&text.replace("CONTROL", control), 1).unwrap();
    let e = s.run(&[("x", number(2.0))], &["y"], &[]).unwrap_err();
    assert!(e.message().ends_with("[[{{node broken}}]]"), "{e}");
}
