//! Rows about loops: graphs as TensorFlow's clients write them.

use std::sync::Arc;

use thalweg_graph::{Graph, OpRegistry};
use thalweg_proto as pb;
use thalweg_tensor::{Result, err};

/// Nodes that run in each iteration of the empty loop; in addition, an `Exit` receives a dead
/// value.
pub(crate) const EMPTY_LOOP_NODES: usize = 9;

/// `while i < iterations { i += 1 }` in the form of TensorFlow 1's `tf.while_loop`. `node_0` runs
/// after its end.
pub(crate) fn empty_loop(registry: Arc<OpRegistry>, iterations: usize) -> Result<Graph> {
    let int = |name: &str, op: &str, inputs: &[&str], attrs: &str| {
        node(name, op, inputs, &format!("{} {attrs}", attr("T", "type: DT_INT32")))
    };
    let constant = |name: &str, value: usize, inputs: &[&str]| {
        let tensor = format!("tensor {{ dtype: DT_INT32 tensor_shape {{}} int_val: {value} }}");
        let attrs = attr("dtype", "type: DT_INT32") + &attr("value", &tensor);
        node(name, "Const", inputs, &attrs)
    };
    let text = [
        constant("zero", 0, &[]),
        int("enter", "Enter", &["zero"], &attr("frame_name", "s: 'loop'")),
        int("merge", "Merge", &["enter", "next"], &attr("N", "i: 2")),
        constant("limit", iterations, &["^merge"]),
        int("less", "Less", &["merge", "limit"], ""),
        node("cond", "LoopCond", &["less"], ""),
        int("switch", "Switch", &["merge", "cond"], ""),
        int("body", "Identity", &["switch:1"], ""),
        constant("one", 1, &["^body"]),
        int("add", "AddV2", &["body", "one"], ""),
        int("next", "NextIteration", &["add"], ""),
        int("exit", "Exit", &["switch"], ""),
        node("node_0", "NoOp", &["^exit"], ""),
    ];
    let def: pb::GraphDef = pb::text::decode("tensorflow.GraphDef", &text.concat())
        .map_err(|e| err!(Internal, "the loop's text: {e}"))?;
    Graph::from_def(registry, def)
}

fn attr(name: &str, value: &str) -> String {
    format!("attr {{ key: '{name}' value {{ {value} }} }} ")
}

fn node(name: &str, op: &str, inputs: &[&str], attrs: &str) -> String {
    let inputs: String = inputs.iter().map(|i| format!("input: '{i}' ")).collect();
    format!("node {{ name: '{name}' op: '{op}' {inputs} {attrs} }}\n")
}
