//! Lists in loops: what a loop pushes to is changed in place.
#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

use std::time::Duration;

use thalweg_graph::Graph;
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_proto::text;
use thalweg_runtime::{RunOptions, Session, SessionOptions};
use thalweg_tensor::Tensor;

/// Pushes the numbers below `n` to a list, and takes the sum of them from it.
const PUSHES: &str = r#"
library {
  function {
    signature { name: "cond" input_arg { name: "i" type: DT_INT32 } input_arg { name: "n" type: DT_INT32 }
      input_arg { name: "list" type: DT_VARIANT } output_arg { name: "goes_on" type: DT_BOOL } }
    node_def { name: "less" op: "Less" input: "i" input: "n" attr { key: "T" value { type: DT_INT32 } } }
    ret { key: "goes_on" value: "less:z:0" }
  }
  function {
    signature { name: "body" input_arg { name: "i" type: DT_INT32 } input_arg { name: "n" type: DT_INT32 }
      input_arg { name: "list" type: DT_VARIANT } output_arg { name: "next" type: DT_INT32 }
      output_arg { name: "same" type: DT_INT32 } output_arg { name: "pushed" type: DT_VARIANT } }
    node_def { name: "one" op: "Const" attr { key: "dtype" value { type: DT_INT32 } }
      attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 1 } } } }
    node_def { name: "add" op: "AddV2" input: "i" input: "one:output:0" attr { key: "T" value { type: DT_INT32 } } }
    node_def { name: "push" op: "TensorListPushBack" input: "list" input: "i"
      attr { key: "element_dtype" value { type: DT_INT32 } } }
    ret { key: "next" value: "add:z:0" } ret { key: "same" value: "n" }
    ret { key: "pushed" value: "push:output_handle:0" }
  }
}
node { name: "n" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } }
node { name: "zero" op: "Const" attr { key: "dtype" value { type: DT_INT32 } }
  attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 0 } } } }
node { name: "scalar" op: "Const" attr { key: "dtype" value { type: DT_INT32 } }
  attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { dim { size: 0 } } } } } }
node { name: "any" op: "Const" attr { key: "dtype" value { type: DT_INT32 } }
  attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: -1 } } } }
node { name: "empty" op: "EmptyTensorList" input: "scalar" input: "any"
  attr { key: "element_dtype" value { type: DT_INT32 } } attr { key: "shape_type" value { type: DT_INT32 } } }
node { name: "loop" op: "While" input: "zero" input: "n" input: "empty"
  attr { key: "T" value { list { type: DT_INT32 type: DT_INT32 type: DT_VARIANT } } }
  attr { key: "cond" value { func { name: "cond" } } } attr { key: "body" value { func { name: "body" } } } }
node { name: "length" op: "TensorListLength" input: "loop:2" }
node { name: "last" op: "TensorListGetItem" input: "loop:2" input: "index" input: "scalar"
  attr { key: "element_dtype" value { type: DT_INT32 } } }
node { name: "one" op: "Const" attr { key: "dtype" value { type: DT_INT32 } }
  attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 1 } } } }
node { name: "index" op: "Sub" input: "length" input: "one" attr { key: "T" value { type: DT_INT32 } } }
"#;

fn push(count: i32) {
    let graph = Graph::from_def(
        op_registry(FAMILIES).unwrap(),
        text::decode("tensorflow.GraphDef", PUSHES).unwrap(),
    )
    .unwrap();
    let options = SessionOptions { memory_limit_bytes: 1 << 30, ..Default::default() };
    let session = Session::new(graph, kernel_registry(FAMILIES), options).unwrap();
    // Copying the list for every push would take far longer: 20 billion elements, or 500 billion.
    let limited = RunOptions { timeout: Some(Duration::from_secs(180)), ..Default::default() };
    let feeds = [("n", Tensor::scalar(count))];
    let (got, _) = session.run_with(&limited, &feeds, &["length", "last"], &[]).unwrap();
    let got: Vec<i32> = got.iter().map(|t| t.scalar_value().unwrap()).collect();
    assert_eq!(got, [count, count - 1]);
}

#[test]
fn pushes_in_a_loop_are_linear() {
    push(200_000);
}

#[test]
#[ignore = "long: a million iterations"]
fn a_million_pushes() {
    push(1_000_000);
}
