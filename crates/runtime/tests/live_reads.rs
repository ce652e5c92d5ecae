//! Reads of reference variables: ops that forward their input forward the variable's buffer.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use support::flow::{Flow, ints};
use support::*;
use thalweg_kernel::{DeviceDescription, DeviceName, HostDevice};
use thalweg_runtime::{Session, SessionOptions};
use thalweg_tensor::{Code, DType, PartialShape, Tensor};

const STEPS: usize = 50;

/// `v`, an int32 scalar that `init` sets to `value`, and `read`, an `Identity` of it.
fn variable(value: i32) -> Flow {
    let mut flow = Flow::default();
    flow.node("v", "VariableV2", &[]).attr("dtype", DType::Int32);
    flow.attr("shape", &PartialShape::scalar());
    flow.constant("start", Tensor::scalar(value), &[]).int("init", "Assign", &["v", "start"]);
    flow.constant("ten", Tensor::scalar(10i32), &[]);
    flow.int("read", "Identity", &["v"]);
    flow
}

/// `add`, which adds ten to `v` after `forwarded`, and `use`, which adds ten to that after `add`.
fn update_and_use(flow: &mut Flow, forwarded: &str) {
    let node = forwarded.split(':').next().unwrap();
    flow.int("add", "AssignAdd", &["v", "ten", &format!("^{node}")]);
    flow.int("use", "AddV2", &[forwarded, "ten", "^add"]);
}

fn check(flow: &Flow, forwarded: &str) {
    for threads in [1, 4] {
        let s = flow.session(threads).unwrap();
        for _ in 0..STEPS {
            s.run(&[], &[], &["init"]).unwrap();
            let got = ints(&s.run(&[], &[forwarded, "use", "read", "v"], &[]).unwrap());
            assert_eq!(got, [11, 21, 11, 11], "{forwarded}, {threads} threads");
        }
    }
}

#[test]
fn forwarding_ops_keep_the_buffer() {
    let mut flow = variable(1);
    flow.int("forwarded", "Identity", &["read"]);
    update_and_use(&mut flow, "forwarded");
    check(&flow, "forwarded");
}

#[test]
fn ops_that_share_their_input_keep_the_buffer() {
    let ops: [(&str, &[(&str, &str)]); 4] = [
        ("StopGradient", &[]),
        ("PreventGradient", &[("message", "no")]),
        ("DebugGradientIdentity", &[]),
        ("Print", &[("message", "the read: ")]),
    ];
    for source in ["read", "v"] {
        for (op, attrs) in ops {
            let mut flow = variable(1);
            flow.int("forwarded", op, &[source]);
            for &(name, value) in attrs {
                flow.attr(name, value);
            }
            if op == "Print" {
                flow.attr("U", &[][..] as &[DType]);
            }
            update_and_use(&mut flow, "forwarded");
            check(&flow, "forwarded");
        }
        let mut flow = variable(1);
        flow.node("forwarded", "PlaceholderWithDefault", &[source]).attr("dtype", DType::Int32);
        flow.attr("shape", &PartialShape::scalar());
        update_and_use(&mut flow, "forwarded");
        check(&flow, "forwarded");

        let mut flow = variable(1);
        flow.int("forwarded", "EnsureShape", &[source]).attr("shape", &PartialShape::scalar());
        update_and_use(&mut flow, "forwarded");
        check(&flow, "forwarded");

        // The second of two; the first is no alias.
        let mut flow = variable(1);
        flow.node("both", "IdentityN", &["ten", source]);
        flow.attr("T", &[DType::Int32; 2][..]);
        update_and_use(&mut flow, "both:1");
        flow.int("first", "AddV2", &["both", "ten", "^add"]);
        check(&flow, "both:1");
        let s = flow.session(1).unwrap();
        s.run(&[], &[], &["init"]).unwrap();
        assert_eq!(ints(&s.run(&[], &["both", "first"], &[]).unwrap()), [10, 20]);
    }
}

#[test]
fn check_numerics_keeps_the_buffer() {
    let text = r#"
        node { name: "c" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape {} float_val: 2 } } } }
        node { name: "v" op: "VariableV2" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "shape" value { shape {} } } }
        node { name: "init" op: "Assign" input: "v" input: "c" attr { key: "T" value { type: DT_FLOAT } } }
        node { name: "read" op: "CheckNumerics" input: "v" attr { key: "T" value { type: DT_FLOAT } } attr { key: "message" value { s: "sick" } } }
        node { name: "add" op: "AssignAdd" input: "v" input: "c" input: "^read" attr { key: "T" value { type: DT_FLOAT } } }
        node { name: "neg" op: "Neg" input: "read" input: "^add" attr { key: "T" value { type: DT_FLOAT } } }"#;
    for threads in [1, 4] {
        let s = text_session(text, threads).unwrap();
        let e = s.run(&[], &["read"], &[]).unwrap_err();
        assert_eq!(e.code(), Code::FailedPrecondition, "{e}");
        for _ in 0..STEPS {
            s.run(&[], &[], &["init"]).unwrap();
            assert_eq!(numbers(&s.run(&[], &["neg", "read"], &[]).unwrap()), [-4.0, 4.0]);
        }
    }
}

#[test]
fn branches_keep_the_buffer() {
    for (source, choice) in [("read", true), ("read", false), ("v", true)] {
        let mut flow = variable(1);
        flow.constant("choice", Tensor::scalar(choice), &[]);
        flow.int("switch", "Switch", &[source, "choice"]);
        flow.int("left", "Identity", &["switch"]).merge("forwarded", &["left", "switch:1"]);
        update_and_use(&mut flow, "forwarded");
        check(&flow, "forwarded");
    }
}

#[test]
fn loops_keep_the_buffer() {
    let mut flow = variable(1);
    flow.constant("zero", Tensor::scalar(0i32), &[]);
    flow.count("l_", "zero", 4, 1);
    // A loop variable that the loop forwards unchanged.
    flow.enter("r_enter", "read", "l_frame");
    flow.merge("r_merge", &["r_enter", "r_next"]);
    flow.int("r_switch", "Switch", &["r_merge", "l_cond"]);
    flow.int("r_next", "NextIteration", &["r_switch:1"]).int("forwarded", "Exit", &["r_switch"]);
    update_and_use(&mut flow, "forwarded");
    check(&flow, "forwarded");
}

#[test]
fn a_read_outside_a_loop_sees_what_a_branch_inside_assigns() {
    let mut flow = variable(2);
    flow.constant("zero", Tensor::scalar(0i32), &[]);
    flow.count("", "zero", 4, 1);
    flow.enter("read_in", "read", "frame").attr("is_constant", true);
    flow.int("v_in", "RefEnter", &["v"]).attr("frame_name", "frame").attr("is_constant", true);
    flow.constant("many", Tensor::scalar(100i32), &["^body"]);
    flow.int("is_small", "Less", &["body", "many"]);
    flow.int("switch2", "Switch", &["read_in", "is_small"]);
    flow.int("square", "Mul", &["switch2:1", "switch2:1"]);
    flow.int("assign", "Assign", &["v_in", "square"]).merge("either", &["switch2", "assign"]);
    let add = flow.def.node.iter_mut().find(|n| n.name == "add").unwrap();
    add.input.push("^either".to_owned());
    for threads in [1, 4] {
        let s = flow.session(threads).unwrap();
        for _ in 0..STEPS {
            s.run(&[], &[], &["init"]).unwrap();
            let got = ints(&s.run(&[], &["exit", "read", "v"], &[]).unwrap());
            assert_eq!(got, [4, 65536, 65536]);
        }
    }
}

#[test]
fn a_fetch_has_the_updates_of_its_step() {
    let mut flow = variable(1);
    flow.int("add", "AssignAdd", &["v", "ten"]);
    let s = flow.session(2).unwrap();
    s.run(&[], &[], &["init"]).unwrap();
    let callable = s.make_callable(&[], &["v", "read", "add"], &[]).unwrap();
    for step in 1..50 {
        let got = match step % 2 {
            0 => callable.call(&[]).unwrap(),
            _ => s.run(&[], &["v", "read", "add"], &[]).unwrap(),
        };
        assert_eq!(ints(&got), [1 + 10 * step; 3]);
    }
}

#[test]
fn fetches_of_another_device_have_them_too() {
    let mut flow = variable(1);
    flow.int("add", "AssignAdd", &["v", "ten"]);
    // On the client's device.
    flow.int("twice", "AddV2", &["read", "read", "^add"]);
    for node in flow.def.node.iter_mut().filter(|n| n.name != "twice") {
        node.device = "/cpu:1".to_owned();
    }
    let cpu =
        |i| HostDevice::shared(DeviceDescription::cpu(DeviceName::cpu("localhost", 0, i), 1 << 30));
    let (ops, kernels) = registries();
    let graph = thalweg_graph::Graph::from_def(ops, flow.def).unwrap();
    let options = SessionOptions { devices: vec![cpu(0), cpu(1)], ..Default::default() };
    let s = Session::new(graph, kernels, options).unwrap();
    s.run(&[], &[], &["init"]).unwrap();
    for step in 1..50 {
        let got = ints(&s.run(&[], &["v", "read", "read", "add", "twice"], &[]).unwrap());
        assert_eq!(got[..4], [1 + 10 * step; 4]);
        // What another device computes with was sent when it was read.
        assert!([2 + 20 * step, 20 * step - 18].contains(&got[4]), "{got:?}");
    }
}

#[test]
fn calls_of_a_partial_run_have_the_updates_that_they_waited_for() {
    let mut flow = variable(1);
    flow.node("x", "Placeholder", &[]).attr("dtype", DType::Int32);
    flow.int("add", "AssignAdd", &["v", "ten", "^read"]);
    flow.int("later", "AssignAdd", &["v", "x", "^add"]);
    let s = flow.session(2).unwrap();
    for _ in 0..STEPS {
        s.run(&[], &[], &["init"]).unwrap();
        let run = s.partial_run(&["x"], &["read", "add", "later"], &[]).unwrap();
        assert_eq!(ints(&run.run(&[], &["read", "add"]).unwrap()), [11, 11]);
        let x = Tensor::scalar(100i32);
        assert_eq!(ints(&run.run(&[("x", x)], &["later"]).unwrap()), [111]);
    }
}

#[test]
fn another_number_of_elements_is_another_buffer() {
    let mut flow = Flow::default();
    flow.node("v", "VariableV2", &[]).attr("dtype", DType::Int32);
    flow.attr("shape", &PartialShape::unknown());
    flow.constant("one", Tensor::vector(&[1i32]).unwrap(), &[]);
    flow.int("init", "Assign", &["v", "one"]).attr("validate_shape", false);
    flow.int("read", "Identity", &["v"]);
    flow.constant("two", Tensor::vector(&[2i32, 3]).unwrap(), &[]);
    flow.int("grow", "Assign", &["v", "two", "^read"]).attr("validate_shape", false);
    flow.int("use", "AddV2", &["read", "one", "^grow"]);
    let s = flow.session(2).unwrap();
    for _ in 0..STEPS {
        s.run(&[], &[], &["init"]).unwrap();
        let got = s.run(&[], &["read", "use", "grow"], &[]).unwrap();
        let got: Vec<&[i32]> = got.iter().map(|t| t.as_slice().unwrap()).collect();
        assert_eq!(got, [&[1][..], &[2], &[2, 3]]);
    }
}

#[test]
fn the_node_that_forwards_says_that_there_is_no_value() {
    let mut flow = variable(1);
    update_and_use(&mut flow, "read");
    flow.node("is_set", "IsVariableInitialized", &["v"]).attr("dtype", DType::Int32);
    let s = flow.session(1).unwrap();
    for (fetch, node) in [("use", "read"), ("v", "_send_v_0"), ("read", "read")] {
        let e = s.run(&[], &[fetch], &[]).unwrap_err();
        assert_eq!(e.code(), Code::FailedPrecondition);
        let text = format!("Attempting to use uninitialized value v\n\t [[{{{{node {node}}}}}]]");
        assert_eq!(e.message(), text);
    }
    let is_set = |s: &Session| s.run(&[], &["is_set"], &[]).unwrap()[0].scalar_value::<bool>();
    assert!(!is_set(&s).unwrap());
    s.run(&[], &[], &["init"]).unwrap();
    assert!(is_set(&s).unwrap());
    let e = s.run(&[("v", Tensor::scalar(1i32))], &["add"], &[]).unwrap_err();
    assert_eq!(e.code(), Code::InvalidArgument);
    assert_eq!(ints(&s.run(&[("v", Tensor::scalar(9i32))], &["read"], &[]).unwrap()), [9]);
}

#[test]
fn kernels_do_not_overwrite_a_variables_buffer() {
    let text = r#"
        node { name: "c" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape {} float_val: 2 } } } }
        node { name: "v" op: "VariableV2" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "shape" value { shape {} } } }
        node { name: "init" op: "Assign" input: "v" input: "c" attr { key: "T" value { type: DT_FLOAT } } }
        node { name: "read" op: "Identity" input: "v" attr { key: "T" value { type: DT_FLOAT } } }
        node { name: "alone" op: "ToyUnique" input: "read" }
        node { name: "neg" op: "Neg" input: "read" attr { key: "T" value { type: DT_FLOAT } } }"#;
    let s = text_session(text, 1).unwrap();
    s.run(&[], &[], &["init"]).unwrap();
    for _ in 0..3 {
        let alone = s.run(&[], &["alone"], &[]).unwrap();
        assert!(!alone[0].scalar_value::<bool>().unwrap());
        assert_eq!(numbers(&s.run(&[], &["neg", "v"], &[]).unwrap()), [-2.0, 2.0]);
    }
}
