//! Branches and loops whose parts are functions: which part runs, with what, how often, and what
//! is refused. What TensorFlow gives for the same graphs is in `testdata/golden`.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::fmt::Write;
use std::sync::mpsc;
use std::time::Duration;

use support::*;
use thalweg_graph::Graph;
use thalweg_kernel::{Cancellation, DeviceDescription, DeviceName, HostDevice};
use thalweg_plan::Options;
use thalweg_runtime::{Pool, RunOptions, Session, SessionOptions};
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

/// A session that calls functions, and one that inlines them.
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

/// Other steps run although more endless loops run than the pool has threads.
#[test]
fn endless_loops_take_turns_with_others() {
    watched("steps beside endless loops", || {
        let nodes = [
            while_node("endless", "While", "always", "inc"),
            while_node("short", "While", "below", "double"),
        ];
        let start = |session: &Session, fetch: &str, options| {
            let (sender, end) = mpsc::channel();
            let done = move |result: Result<(Vec<Tensor>, _), Error>| {
                sender.send(result.map(|(out, _)| numbers(&out)[0])).unwrap();
            };
            session.start(
                options,
                vec![("x".into(), number(1.0))],
                vec![fetch.into()],
                vec![],
                done,
            );
            end
        };
        for session in both(&nodes, 2) {
            let caller = Cancellation::default();
            let options = RunOptions { cancellation: Some(caller.clone()), ..Default::default() };
            let count = Pool::global().threads() + 2;
            let endless: Vec<_> =
                (0..count).map(|_| start(&session, "endless", options.clone())).collect();
            for _ in 0..20 {
                let short = start(&session, "short", RunOptions::default());
                assert_eq!(short.recv().unwrap().unwrap(), 128.0);
            }
            caller.cancel(thalweg_tensor::err!(Cancelled, "enough"));
            for end in endless {
                assert_eq!(end.recv().unwrap().unwrap_err().code(), Code::Cancelled);
            }
        }
    });
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

fn on_two_devices(text: &str) -> Session {
    let def = thalweg_proto::text::decode("tensorflow.GraphDef", text).unwrap();
    let graph = Graph::from_def(registries().0, def).unwrap();
    let cpu = |i| DeviceDescription::cpu(DeviceName::cpu("localhost", 0, i), 1 << 30);
    let devices = vec![HostDevice::shared(cpu(0)), HostDevice::shared(cpu(1))];
    let options = SessionOptions { devices, ..options(2) };
    Session::new(graph, registries().1, options).unwrap()
}

/// Runs a step; its result, and how often nodes of an op ran on each device.
fn ran_on(s: &Session, feeds: &[(&str, Tensor)], fetch: &str, op: &str) -> (f32, [usize; 2]) {
    let traced = RunOptions { trace: true, ..Default::default() };
    let (out, report) = s.run_with(&traced, feeds, &[fetch], &[]).unwrap();
    let ran = |device: &str| {
        report.nodes.iter().filter(|n| n.op == op && n.device.ends_with(device)).count()
    };
    (numbers(&out)[0], [ran("CPU:0"), ran("CPU:1")])
}

/// Nodes of functions run on the devices that they name, in branches and loops.
#[test]
fn functions_span_devices() {
    let text = LIBRARY.replace(
        r#"name: "a" op: "ToyAdd" input: "x" input: "one:output:0""#,
        r#"name: "a" op: "ToyAdd" device: "/device:CPU:1" input: "x" input: "one:output:0""#,
    ) + &branch("y", "If", "inc", "double")
        + &case("c", "Case", &["double", "inc"])
        + &while_node("w", "While", "below", "inc");
    watched("functions on two devices", move || {
        let s = on_two_devices(&text);
        let feeds = |p: bool, i: i32| {
            [("x", number(95.0)), ("p", Tensor::scalar(p)), ("i", Tensor::scalar(i))]
        };
        assert_eq!(ran_on(&s, &feeds(true, 0), "y", "ToyAdd"), (96.0, [0, 1]));
        assert_eq!(ran_on(&s, &feeds(false, 0), "y", "ToyAdd").0, 190.0);
        assert_eq!(ran_on(&s, &feeds(false, 1), "c", "ToyAdd"), (96.0, [0, 1]));
        assert_eq!(ran_on(&s, &feeds(false, 0), "c", "ToyAdd").0, 190.0);
        assert_eq!(ran_on(&s, &feeds(false, 0), "w", "ToyAdd"), (100.0, [0, 5]));
    });
}

/// A function may take state of several devices: its nodes go to the state.
#[test]
fn state_spans_devices() {
    let variable = |name: &str, cpu: u32| {
        format!(
            r#"node {{ name: "{name}" op: "VarHandleOp" device: "/device:CPU:{cpu}" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }} attr {{ key: "shape" value {{ shape {{}} }} }} attr {{ key: "shared_name" value {{ s: "{name}" }} }} }}
               node {{ name: "init_{name}" op: "AssignVariableOp" input: "{name}" input: "x" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }} }} "#
        )
    };
    let args = r#"input_arg { name: "a" type: DT_RESOURCE } input_arg { name: "b" type: DT_RESOURCE } input_arg { name: "x" type: DT_FLOAT }"#;
    let types = "type: DT_RESOURCE type: DT_RESOURCE type: DT_FLOAT";
    let read = |name: &str| {
        format!(
            r#"node_def {{ name: "r{name}" op: "ReadVariableOp" input: "{name}" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }} }} "#
        )
    };
    let sum = format!(
        r#"{} {} node_def {{ name: "s" op: "ToyAdd" input: "ra:value:0" input: "rb:value:0" }} node_def {{ name: "t" op: "ToyAdd" input: "s:y:0" input: "x" }} "#,
        read("a"),
        read("b")
    );
    let functions = format!(
        r#"library {{
          function {{ signature {{ name: "add" is_stateful: true {args} output_arg {{ name: "y" type: DT_FLOAT }} }} {sum} ret {{ key: "y" value: "t:y:0" }} }}
          function {{ signature {{ name: "only_x" {args} output_arg {{ name: "y" type: DT_FLOAT }} }} ret {{ key: "y" value: "x" }} }}
          function {{ signature {{ name: "turn" is_stateful: true {args} output_arg {{ name: "c" type: DT_RESOURCE }} output_arg {{ name: "d" type: DT_RESOURCE }} output_arg {{ name: "y" type: DT_FLOAT }} }} {sum}
            ret {{ key: "c" value: "a" }} ret {{ key: "d" value: "b" }} ret {{ key: "y" value: "t:y:0" }} }}
          function {{ signature {{ name: "below_x" {args} output_arg {{ name: "y" type: DT_BOOL }} }}
            node_def {{ name: "l" op: "Const" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }} attr {{ key: "value" value {{ tensor {{ dtype: DT_FLOAT tensor_shape {{}} float_val: 100 }} }} }} }}
            node_def {{ name: "c" op: "Less" input: "x" input: "l:output:0" attr {{ key: "T" value {{ type: DT_FLOAT }} }} }} ret {{ key: "y" value: "c:z:0" }} }} }} "#
    );
    let nodes = format!(
        r#"node {{ name: "x" op: "Placeholder" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }} }}
           node {{ name: "p" op: "Placeholder" attr {{ key: "dtype" value {{ type: DT_BOOL }} }} }}
           node {{ name: "call" op: "StatefulPartitionedCall" input: "va" input: "vb" input: "x" attr {{ key: "Tin" value {{ list {{ {types} }} }} }} attr {{ key: "Tout" value {{ list {{ type: DT_FLOAT }} }} }} {add} }}
           node {{ name: "if" op: "If" device: "/device:CPU:1" input: "p" input: "va" input: "vb" input: "x" attr {{ key: "Tcond" value {{ type: DT_BOOL }} }} attr {{ key: "Tin" value {{ list {{ {types} }} }} }} attr {{ key: "Tout" value {{ list {{ type: DT_FLOAT }} }} }} {then} {otherwise} }}
           node {{ name: "while" op: "While" input: "va" input: "vb" input: "x" attr {{ key: "T" value {{ list {{ {types} }} }} }} {cond} {body} }} "#,
        add = function_attr("f", "add"),
        then = function_attr("then_branch", "add"),
        otherwise = function_attr("else_branch", "only_x"),
        cond = function_attr("cond", "below_x"),
        body = function_attr("body", "turn"),
    );
    let text = functions + &nodes + &variable("va", 0) + &variable("vb", 1);
    watched("state on two devices", move || {
        let s = on_two_devices(&text);
        let feeds = |p: bool| [("x", number(10.0)), ("p", Tensor::scalar(p))];
        s.run(&feeds(true), &[], &["init_va", "init_vb"]).unwrap();
        let reads = |p: bool, fetch: &str| ran_on(&s, &feeds(p), fetch, "ReadVariableOp");
        assert_eq!(reads(true, "call"), (30.0, [1, 1]));
        assert_eq!(reads(true, "if"), (30.0, [1, 1]));
        assert_eq!(reads(false, "if").0, 10.0);
        assert_eq!(reads(true, "while:2"), (110.0, [5, 5]));
    });
}
