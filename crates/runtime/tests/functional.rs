//! Branches and loops whose parts are functions: which part runs, with what, how often, and what
//! is refused. What TensorFlow gives for the same graphs is in `testdata/golden`.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::fmt::Write;
use std::time::Duration;

use support::*;
use thalweg_graph::Graph;
use thalweg_kernel::{DeviceDescription, DeviceName, HostDevice};
use thalweg_plan::Options;
use thalweg_runtime::{RunOptions, Session, SessionOptions};
use thalweg_tensor::{Code, Error, Tensor};

/// Functions of one float: `inc`, `double`, `below` (100), and some that do not fit.
const LIBRARY: &str = r#"
    library {
      function { signature { name: "inc" input_arg { name: "x" type: DT_FLOAT } output_arg { name: "y" type: DT_FLOAT } }
        node_def { name: "one" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape {} float_val: 1 } } } }
        node_def { name: "a" op: "ToyAdd" input: "x" input: "one:output:0" } ret { key: "y" value: "a:y:0" } }
      function { signature { name: "double" input_arg { name: "x" type: DT_FLOAT } output_arg { name: "y" type: DT_FLOAT } }
        node_def { name: "a" op: "ToyAdd" input: "x" input: "x" } ret { key: "y" value: "a:y:0" } }
      function { signature { name: "below" input_arg { name: "x" type: DT_FLOAT } output_arg { name: "y" type: DT_BOOL } }
        node_def { name: "c" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape {} float_val: 100 } } } }
        node_def { name: "a" op: "Less" input: "x" input: "c:output:0" attr { key: "T" value { type: DT_FLOAT } } } ret { key: "y" value: "a:z:0" } }
      function { signature { name: "always" input_arg { name: "x" type: DT_FLOAT } output_arg { name: "y" type: DT_BOOL } }
        node_def { name: "c" op: "Const" attr { key: "dtype" value { type: DT_BOOL } } attr { key: "value" value { tensor { dtype: DT_BOOL tensor_shape {} bool_val: true } } } } ret { key: "y" value: "c:output:0" } }
      function { signature { name: "same" input_arg { name: "x" type: DT_FLOAT } output_arg { name: "y" type: DT_FLOAT } } ret { key: "y" value: "x" } }
      function { signature { name: "two_args" input_arg { name: "x" type: DT_FLOAT } input_arg { name: "z" type: DT_FLOAT } output_arg { name: "y" type: DT_FLOAT } }
        node_def { name: "a" op: "ToyAdd" input: "x" input: "z" } ret { key: "y" value: "a:y:0" } }
      function { signature { name: "two_results" input_arg { name: "x" type: DT_FLOAT } output_arg { name: "y" type: DT_FLOAT } output_arg { name: "w" type: DT_FLOAT } }
        ret { key: "y" value: "x" } ret { key: "w" value: "x" } }
      function { signature { name: "ints" input_arg { name: "x" type: DT_INT32 } output_arg { name: "y" type: DT_INT32 } } ret { key: "y" value: "x" } }
      function { signature { name: "later" input_arg { name: "x" type: DT_FLOAT } output_arg { name: "y" type: DT_FLOAT } is_stateful: true }
        node_def { name: "wait" op: "ToyAsync" input: "x" attr { key: "mode" value { s: "thread" } } } ret { key: "y" value: "wait:y:0" } }
      function { signature { name: "fails" input_arg { name: "x" type: DT_FLOAT } output_arg { name: "y" type: DT_FLOAT } }
        node_def { name: "broken" op: "ToyFail" input: "x" } ret { key: "y" value: "broken:y:0" } }
      function { signature { name: "add_count" input_arg { name: "i" type: DT_INT32 } input_arg { name: "x" type: DT_FLOAT } output_arg { name: "y" type: DT_FLOAT } }
        node_def { name: "c" op: "Cast" input: "i" attr { key: "SrcT" value { type: DT_INT32 } } attr { key: "DstT" value { type: DT_FLOAT } } }
        node_def { name: "a" op: "ToyAdd" input: "x" input: "c:y:0" } ret { key: "y" value: "a:y:0" } }
      function { signature { name: "call" input_arg { name: "x" type: DT_FLOAT } output_arg { name: "y" type: DT_FLOAT } attr { name: "f" type: "func" } attr { name: "T" type: "type" default_value { type: DT_FLOAT } } }
        node_def { name: "a" op: "StatelessWhile" input: "x" attr { key: "T" value { list { type: DT_FLOAT } } } attr { key: "cond" value { func { name: "below" } } } attr { key: "body" value { placeholder: "f" } } }
        node_def { name: "b" op: "Identity" input: "a:output:0" attr { key: "T" value { placeholder: "T" } } } ret { key: "y" value: "b:output:0" } }
    }
    node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
    node { name: "p" op: "Placeholder" attr { key: "dtype" value { type: DT_BOOL } } }
    node { name: "i" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } } "#;

fn function_attr(name: &str, function: &str) -> String {
    format!(r#"attr {{ key: "{name}" value {{ func {{ name: "{function}" }} }} }} "#)
}

const TYPES: &str = r#"attr { key: "Tin" value { list { type: DT_FLOAT } } } attr { key: "Tout" value { list { type: DT_FLOAT } } } "#;

fn branch(name: &str, op: &str, then_branch: &str, else_branch: &str) -> String {
    let mut node = format!(r#"node {{ name: "{name}" op: "{op}" input: "p" input: "x" {TYPES} "#);
    node += &function_attr("then_branch", then_branch);
    node += &function_attr("else_branch", else_branch);
    node + r#"attr { key: "Tcond" value { type: DT_BOOL } } } "#
}

fn case(name: &str, op: &str, branches: &[&str]) -> String {
    let mut list = String::new();
    for b in branches {
        write!(list, r#"func {{ name: "{b}" }} "#).unwrap();
    }
    format!(
        r#"node {{ name: "{name}" op: "{op}" input: "i" input: "x" {TYPES} attr {{ key: "branches" value {{ list {{ {list} }} }} }} }} "#
    )
}

fn while_node(name: &str, op: &str, cond: &str, body: &str) -> String {
    let functions = function_attr("cond", cond) + &function_attr("body", body);
    format!(
        r#"node {{ name: "{name}" op: "{op}" input: "x" {functions} attr {{ key: "T" value {{ list {{ type: DT_FLOAT }} }} }} }} "#
    )
}

fn session_of(nodes: &[String], threads: usize) -> Session {
    text_session(&(LIBRARY.to_owned() + &nodes.concat()), threads).unwrap()
}

/// A session that runs functions, and one that writes them out.
fn both(nodes: &[String], threads: usize) -> [Session; 2] {
    [false, true].map(|lower| {
        let text = LIBRARY.to_owned() + &nodes.concat();
        let def = thalweg_proto::text::decode("tensorflow.GraphDef", &text).unwrap();
        let graph = Graph::from_def(registries().0, def).unwrap();
        let plan = Options { lower, ..Options::default() };
        let options = SessionOptions { plan, ..options(threads) };
        Session::new(graph, registries().1, options).unwrap()
    })
}

fn run(s: &Session, x: f32, p: bool, i: i32, fetch: &str) -> Result<f32, Error> {
    let feeds = [("x", number(x)), ("p", Tensor::scalar(p)), ("i", Tensor::scalar(i))];
    s.run(&feeds, &[fetch], &[]).map(|out| numbers(&out)[0])
}

#[test]
fn branches() {
    let nodes = [
        branch("if", "If", "inc", "double"),
        branch("stateless", "StatelessIf", "inc", "double"),
        branch("internal", "_If", "inc", "double"),
        case("case", "Case", &["inc", "double", "same"]),
        case("stateless_case", "StatelessCase", &["inc", "double", "same"]),
    ];
    for s in [1, 3].into_iter().flat_map(|threads| both(&nodes, threads)) {
        for name in ["if", "stateless", "internal"] {
            assert_eq!(run(&s, 5.0, true, 0, name).unwrap(), 6.0);
            assert_eq!(run(&s, 5.0, false, 0, name).unwrap(), 10.0);
        }
        for name in ["case", "stateless_case"] {
            for (i, expected) in [(0, 6.0), (1, 10.0), (2, 5.0), (3, 5.0), (-1, 5.0)] {
                assert_eq!(run(&s, 5.0, true, i, name).unwrap(), expected, "{name} {i}");
            }
        }
    }
}

#[test]
fn loops() {
    let nodes = [
        while_node("while", "While", "below", "double"),
        while_node("stateless", "StatelessWhile", "below", "inc"),
        while_node("internal", "_While", "below", "double"),
        while_node("waits", "While", "below", "later"),
        r#"node { name: "attr" op: "call" input: "x" attr { key: "f" value { func { name: "double" } } } } "#
            .to_owned(),
    ];
    watched("a loop", move || {
        for s in [1, 3].into_iter().flat_map(|threads| both(&nodes, threads)) {
            for _ in 0..2 {
                assert_eq!(run(&s, 3.0, true, 0, "while").unwrap(), 192.0);
                assert_eq!(run(&s, 300.0, true, 0, "while").unwrap(), 300.0);
                assert_eq!(run(&s, 0.5, true, 0, "stateless").unwrap(), 100.5);
                assert_eq!(run(&s, 3.0, true, 0, "internal").unwrap(), 192.0);
                assert_eq!(run(&s, 0.0, true, 0, "waits").unwrap(), 100.0);
                assert_eq!(run(&s, 3.0, true, 0, "attr").unwrap(), 192.0);
            }
        }
    });
}

#[test]
fn counted_loops() {
    let bound = |name: &str| {
        format!(
            r#"node {{ name: "{name}" op: "Placeholder" attr {{ key: "dtype" value {{ type: DT_INT32 }} }} }} "#
        )
    };
    let body = function_attr("body", "add_count");
    let node = format!(
        r#"node {{ name: "y" op: "For" input: "i" input: "l" input: "d" input: "x" attr {{ key: "T" value {{ list {{ type: DT_FLOAT }} }} }} {body} }} "#
    );
    let s = session_of(&[bound("l"), bound("d"), node], 1);
    let run = |i: i32, l: i32, d: i32| {
        let feeds = [
            ("x", number(3.0)),
            ("i", Tensor::scalar(i)),
            ("l", Tensor::scalar(l)),
            ("d", Tensor::scalar(d)),
        ];
        s.run(&feeds, &["y"], &[]).map(|out| numbers(&out)[0])
    };
    for (i, l, d, expected) in
        [(0, 5, 1, 13.0), (0, 5, 2, 9.0), (5, 0, -1, 18.0), (0, 0, 0, 3.0), (3, 3, 1, 3.0)]
    {
        assert_eq!(run(i, l, d).unwrap(), expected, "{i} {l} {d}");
    }
    // The next number would not be an int32.
    assert_eq!(run(i32::MAX - 1, i32::MAX, i32::MAX).unwrap(), 3.0 + (i32::MAX - 1) as f32);
    for (i, l, d) in [(5, 0, 1), (0, 5, -1), (0, 5, 0)] {
        assert_eq!(run(i, l, d).unwrap_err().code(), Code::InvalidArgument, "{i} {l} {d}");
    }
}

#[test]
fn functions_that_do_not_fit() {
    for (node, code) in [
        (branch("y", "If", "two_args", "inc"), Code::InvalidArgument),
        (branch("y", "If", "two_results", "inc"), Code::InvalidArgument),
        (branch("y", "StatelessIf", "ints", "inc"), Code::InvalidArgument),
        (branch("y", "StatelessIf", "below", "inc"), Code::InvalidArgument),
        (branch("y", "If", "inc", "nowhere"), Code::NotFound),
        (case("y", "Case", &["inc", "nowhere"]), Code::NotFound),
        (while_node("y", "While", "two_results", "inc"), Code::InvalidArgument),
        (while_node("y", "While", "two_args", "inc"), Code::InvalidArgument),
        (while_node("y", "While", "below", "two_results"), Code::InvalidArgument),
        (while_node("y", "StatelessWhile", "below", "below"), Code::InvalidArgument),
        (while_node("y", "StatelessWhile", "below", "ints"), Code::InvalidArgument),
        (while_node("y", "StatelessWhile", "below", "nowhere"), Code::NotFound),
        (while_node("y", "While", "below", "fails"), Code::OutOfRange),
    ] {
        let [native, lowered] = both(std::slice::from_ref(&node), 1);
        let e = run(&native, 1.0, true, 0, "y").unwrap_err();
        assert_eq!(e.code(), code, "{e} of {node}");
        assert!(e.message().contains("[[{{node "), "{e}");
        let e = run(&lowered, 1.0, true, 0, "y").unwrap_err();
        assert_eq!(e.code(), code, "{e} of {node}, written out");
    }
}

#[test]
fn loops_end_with_their_step() {
    watched("an endless loop", || {
        for body in ["inc", "later"] {
            for s in both(&[while_node("y", "While", "always", body)], 1) {
                let options =
                    RunOptions { timeout: Some(Duration::from_millis(50)), ..Default::default() };
                let e = s.run_with(&options, &[("x", number(1.0))], &["y"], &[]).unwrap_err();
                assert_eq!(e.code(), Code::DeadlineExceeded, "{e}");
            }
        }
    });
}

/// The stack does not grow with the iterations, and the body has its variable to itself.
#[test]
fn many_iterations() {
    let text = LIBRARY.replace("float_val: 100", "float_val: 200000")
        + &while_node("y", "StatelessWhile", "below", "inc");
    let s = text_session(&text, 1).unwrap();
    assert_eq!(run(&s, 0.0, true, 0, "y").unwrap(), 200_000.0);
}

#[test]
fn traces_show_what_runs_inside() {
    let s = session_of(&[while_node("y", "While", "below", "double")], 1);
    let options = RunOptions { trace: true, ..Default::default() };
    let (_, report) = s.run_with(&options, &[("x", number(40.0))], &["y"], &[]).unwrap();
    let count = |op: &str| report.nodes.iter().filter(|n| n.op == op).count();
    assert_eq!((count("ToyAdd"), count("Less"), count("While")), (2, 3, 1));
}

/// Nodes of a branch that say where they are run there.
#[test]
fn branches_span_devices() {
    let text = LIBRARY.replace(
        r#"name: "a" op: "ToyAdd" input: "x" input: "one:output:0""#,
        r#"name: "a" op: "ToyAdd" device: "/device:CPU:1" input: "x" input: "one:output:0""#,
    ) + &branch("y", "If", "inc", "double");
    let def = thalweg_proto::text::decode("tensorflow.GraphDef", &text).unwrap();
    let graph = Graph::from_def(registries().0, def).unwrap();
    let cpu = |i| DeviceDescription::cpu(DeviceName::cpu("localhost", 0, i), 1 << 30);
    let devices = vec![HostDevice::shared(cpu(0)), HostDevice::shared(cpu(1))];
    let options = SessionOptions { devices, ..options(2) };
    let s = Session::new(graph, registries().1, options).unwrap();
    let traced = RunOptions { trace: true, ..Default::default() };
    for (p, expected, device) in [(true, 6.0, "CPU:1"), (false, 10.0, "CPU:0")] {
        let feeds = [("x", number(5.0)), ("p", Tensor::scalar(p))];
        let (out, report) = s.run_with(&traced, &feeds, &["y"], &[]).unwrap();
        assert_eq!(numbers(&out), [expected]);
        let ran: Vec<&str> =
            report.nodes.iter().filter(|n| n.op == "ToyAdd").map(|n| &*n.device).collect();
        assert!(ran.iter().any(|d| d.ends_with(device)), "{p}: {ran:?}");
    }
}
