//! Errors of malformed GraphDefs: TensorFlow's code, and a message that names the node.

use thalweg_graph::Graph;
use thalweg_tensor::Code;

use crate::support::{import, registry, text_graph};

const FLOAT: &str =
    r#"node { name: "c" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }"#;
const INT: &str =
    r#"node { name: "i" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } }"#;

/// The message of the error that importing gives.
fn error(text: &str) -> String {
    match import(text) {
        Ok(_) => "imported".into(),
        Err(e) => e.to_string(),
    }
}

fn node(name: &str, op: &str, inputs: &[&str], attrs: &[(&str, &str)]) -> String {
    let inputs: String = inputs.iter().map(|i| format!("input: {i:?} ")).collect();
    let attrs: String =
        attrs.iter().map(|(k, v)| format!("attr {{ key: {k:?} value {{ {v} }} }} ")).collect();
    format!("node {{ name: {name:?} op: {op:?} {inputs}{attrs} }}\n")
}

fn identity(name: &str, input: &str) -> String {
    node(name, "Identity", &[input], &[("T", "type: DT_FLOAT")])
}

#[test]
fn nodes_and_edges() {
    for (text, expected) in [
        (
            node("a", "Nope", &[], &[]),
            "NOT_FOUND: node 'a': Op type not registered 'Nope': neither TensorFlow 2.21 nor this \
             program defines it",
        ),
        (
            node("a", "", &[], &[]),
            "NOT_FOUND: node 'a': Op type not registered '': neither TensorFlow 2.21 nor this \
             program defines it",
        ),
        (identity("b", "zz"), "INVALID_ARGUMENT: Node 'b': Unknown input node 'zz'"),
        (identity("b", "zz:1"), "INVALID_ARGUMENT: Node 'b': Unknown input node 'zz:1'"),
        (node("b", "NoOp", &["^zz"], &[]), "INVALID_ARGUMENT: Node 'b': Unknown input node '^zz'"),
        (identity("b", "c:-1"), "INVALID_ARGUMENT: Node 'b': \"c:-1\" is not the name of a tensor"),
        (identity("b", "c:x"), "INVALID_ARGUMENT: Node 'b': \"c:x\" is not the name of a tensor"),
        (
            identity("b", "c:1"),
            "INVALID_ARGUMENT: node 'b' (Identity): input 'c:1' does not exist: 'c' has 1 outputs",
        ),
        (node("c", "NoOp", &[], &[]), "INVALID_ARGUMENT: Node 'c' is not unique"),
        (
            identity("a", "b") + &identity("b", "a"),
            "INVALID_ARGUMENT: the graph has a cycle: 2 nodes wait for each other, among them \
             [\"a\", \"b\"]",
        ),
        (
            identity("a", "a"),
            "INVALID_ARGUMENT: the graph has a cycle: 1 nodes wait for each other, among them \
             [\"a\"]",
        ),
        (
            node("a", "NoOp", &["^a"], &[]),
            "INVALID_ARGUMENT: the graph has a cycle: 1 nodes wait for each other, among them \
             [\"a\"]",
        ),
        (
            node("b", "AddV2", &["^c", "c", "c"], &[("T", "type: DT_FLOAT")]),
            "INVALID_ARGUMENT: Node 'b': data input 'c' stands after a control input",
        ),
        (
            node("b", "AddV2", &["c"], &[("T", "type: DT_FLOAT")]),
            "INVALID_ARGUMENT: node 'b' (AddV2): AddV2 takes 2 inputs, got 1",
        ),
        (
            node("b", "Identity", &["c", "c"], &[("T", "type: DT_FLOAT")]),
            "INVALID_ARGUMENT: node 'b' (Identity): Identity takes 1 inputs, got 2",
        ),
        (
            identity("b", "i"),
            "INVALID_ARGUMENT: node 'b' (Identity): input 0 must be float, got int32",
        ),
        (
            node("b", "Assign", &["c", "c"], &[("T", "type: DT_FLOAT")]),
            "INVALID_ARGUMENT: node 'b' (Assign): input 0 must be a reference to a float variable, \
             got a value",
        ),
    ] {
        assert_eq!(error(&format!("{FLOAT}{INT}{text}")), expected, "{text}");
    }
}

#[test]
fn names() {
    for name in ["a b", "-a", "/a", "", "a:0", "^a", "é", "a\\n"] {
        let text = format!("node {{ name: \"{name}\" op: \"NoOp\" }}");
        assert!(
            error(&text).ends_with("Node name contains invalid characters")
                && error(&text).starts_with("INVALID_ARGUMENT: Node "),
            "{}",
            error(&text)
        );
    }
    for name in ["a", "A/b_c.d-e", "0", ".x", "a>b"] {
        assert_eq!(error(&node(name, "NoOp", &[], &[])), "imported");
    }
}

#[test]
fn attrs_of_another_type() {
    check_nodes(&[
        (
            node("b", "Identity", &["c"], &[]),
            "NOT_FOUND: node 'b' (Identity): No attr named 'T' in NodeDef",
        ),
        (
            node("b", "AddN", &["c"], &[("T", "type: DT_FLOAT")]),
            "NOT_FOUND: node 'b' (AddN): No attr named 'N' in NodeDef",
        ),
        (
            node("b", "Const", &[], &[("dtype", "type: DT_FLOAT")]),
            "INVALID_ARGUMENT: node 'b' (Const): attr 'value' is not set",
        ),
        (
            node("b", "Identity", &["c"], &[("T", "i: 3")]),
            "INVALID_ARGUMENT: node 'b' (Identity): attr 'T' must be type, is the int 3",
        ),
        (
            node("b", "Identity", &["c"], &[("T", "list { type: DT_FLOAT }")]),
            "INVALID_ARGUMENT: node 'b' (Identity): attr 'T' must be type, is a list",
        ),
        (
            node("b", "Identity", &["c"], &[("T", "")]),
            "INVALID_ARGUMENT: node 'b' (Identity): attr 'T' must be type, is not set",
        ),
        (
            node("b", "Identity", &["c"], &[("T", "type: DT_INVALID")]),
            "INVALID_ARGUMENT: node 'b' (Identity): attr 'T': 0 (DT_INVALID) is not a data type a \
             tensor can have",
        ),
        (
            node("b", "IdentityN", &["c"], &[("T", "type: DT_FLOAT")]),
            "INVALID_ARGUMENT: node 'b' (IdentityN): attr 'T' must be list(type), is the type float",
        ),
    ]);
}

#[test]
fn attrs_out_of_bounds() {
    check_nodes(&[
        (
            node("b", "IdentityN", &[], &[("T", "list { }")]),
            "INVALID_ARGUMENT: node 'b' (IdentityN): attr 'T' must have a length of at least 1, got 0",
        ),
        (
            node("b", "AddN", &[], &[("T", "type: DT_FLOAT"), ("N", "i: 0")]),
            "INVALID_ARGUMENT: node 'b' (AddN): attr 'N' must be at least 1, got 0",
        ),
        (
            node("b", "AddN", &[], &[("T", "type: DT_FLOAT"), ("N", "i: 1000000000000")]),
            "INVALID_ARGUMENT: node 'b' (AddN): argument 'inputs' has 1000000000000 tensors",
        ),
        (
            node("b", "SoftplusGrad", &["i", "i"], &[("T", "type: DT_INT32")]),
            "INVALID_ARGUMENT: node 'b' (SoftplusGrad): attr 'T' cannot be int32; allowed are \
             [half, bfloat16, float, double]",
        ),
        (
            node(
                "b",
                "Conv2D",
                &["c", "c"],
                &[
                    ("T", "type: DT_FLOAT"),
                    ("strides", "list { i: 1 i: 1 i: 1 i: 1 }"),
                    ("padding", "s: \"ODD\""),
                ],
            ),
            "INVALID_ARGUMENT: node 'b' (Conv2D): attr 'padding' cannot be \"ODD\"; allowed are \
             [\"SAME\", \"VALID\", \"EXPLICIT\"]",
        ),
        (
            node(
                "b",
                "Const",
                &[],
                &[("dtype", "type: DT_INT32"), ("value", "tensor { dtype: DT_FLOAT }")],
            ),
            "INVALID_ARGUMENT: node 'b' (Const): value is float, but dtype is int32",
        ),
        (node("b", "NoOp", &[], &[("unheard_of", "i: 0")]), "imported"),
    ]);
}

/// Imports each node, after the constants `c` and `i`, and compares the error with the expected one.
fn check_nodes(cases: &[(String, &str)]) {
    for (text, expected) in cases {
        assert_eq!(error(&format!("{FLOAT}{INT}{text}")), *expected, "{text}");
    }
}

#[test]
fn messages_stay_short() {
    let long = "x".repeat(1 << 20);
    let text = node("b", "Identity", &["c"], &[("T", &format!("s: \"{long}\""))]);
    let message = error(&format!("{FLOAT}{text}"));
    assert!(message.len() < 400 && message.contains("\"xxxx"), "{} bytes", message.len());
}

#[test]
fn versions() {
    assert_eq!(
        error("versions { min_consumer: 99999 }"),
        "INVALID_ARGUMENT: GraphDef min consumer version 99999 above current version 2474"
    );
    assert_eq!(
        error("versions { bad_consumers: 2474 }"),
        "INVALID_ARGUMENT: the GraphDef disallows consumers of version 2474"
    );
    assert_eq!(error("versions { producer: 99999 }"), "imported");
}

#[test]
fn a_failed_extend_changes_nothing() {
    let first = text_graph(&format!("{FLOAT} library {{}} versions {{ producer: 7 }}"));
    let mut graph = Graph::from_def(registry(), first.clone()).unwrap();
    for text in [
        format!("{FLOAT} versions {{ producer: 8 }}"),
        format!("versions {{ producer: 8 }} {}", identity("b", "nowhere")),
        format!("{} {}", identity("d", "c"), identity("b", "i")),
        "library { function { signature { name: 'f' } } function { } }".into(),
        "debug_info { files: 'a.py' } versions { min_consumer: 9999 }".into(),
    ] {
        let e = graph.extend(text_graph(&text)).unwrap_err();
        assert_eq!(e.code(), Code::InvalidArgument, "{text}: {e}");
        assert_eq!(graph.to_def(), first, "{text}");
        assert!(graph.find("d").is_none() && graph.find("b").is_none());
    }
    let again = graph.extend(text_graph(FLOAT)).unwrap_err();
    assert_eq!(
        again.message(),
        "GraphDef argument to Extend includes node 'c', which was created by a previous call to \
         Create or Extend in this session."
    );
    graph.extend(text_graph(&identity("b", "c"))).unwrap();
    assert_eq!(graph.len(), 2);
}

/// Enter, Merge, Switch, NextIteration: the back edge of a loop, and what it must not be.
fn while_loop(next_type: &str, closing: &str) -> String {
    let float = ("T", "type: DT_FLOAT");
    [
        FLOAT.to_owned(),
        node("enter", "Enter", &["c"], &[float, ("frame_name", "s: \"f\"")]),
        node("merge", closing, &["enter", "next"], &[float, ("N", "i: 2")]),
        node("body", "Placeholder", &["^merge"], &[("dtype", next_type)]),
        node("next", "NextIteration", &["body"], &[("T", next_type)]),
    ]
    .concat()
}

#[test]
fn loops() {
    assert_eq!(error(&while_loop("type: DT_FLOAT", "Merge")), "imported");
    assert_eq!(
        error(&while_loop("type: DT_INT32", "Merge")),
        "INVALID_ARGUMENT: node 'merge' (Merge): input 1 must be float, got int32"
    );
    assert_eq!(
        error(&while_loop("type: DT_FLOAT", "AddN")),
        "INVALID_ARGUMENT: the graph has a cycle: 3 nodes wait for each other, among them \
         [\"merge\", \"body\", \"next\"]"
    );
    let text = while_loop("type: DT_FLOAT", "Merge").replace("\"next\" input", "\"next:1\" input");
    assert_eq!(
        error(&text.replace("input: \"next\"", "input: \"next:1\"")),
        "INVALID_ARGUMENT: node 'merge': input 'next:1' does not exist"
    );
}

#[test]
fn a_number_cannot_ask_for_unbounded_outputs() {
    let split = |i: usize| {
        let name = format!("s{i}");
        let attrs = [("T", "type: DT_FLOAT"), ("num_split", "i: 1000000")];
        node(&name, "Split", &["axis", "c"], &attrs)
    };
    let axis = node("axis", "Placeholder", &[], &[("dtype", "type: DT_INT32")]);
    let text = format!("{FLOAT}{axis}{}", (0..6).map(split).collect::<String>());
    let refused = import(&text).err().unwrap();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().ends_with("the graph has more than 4194304 outputs"), "{refused}");
}
