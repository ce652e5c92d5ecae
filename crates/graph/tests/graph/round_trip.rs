//! Round trips: GraphDefs that TensorFlow wrote are imported and exported unchanged.

use prost::Message;
use thalweg_graph::Graph;
use thalweg_proto as pb;

use crate::support::{recorded_graphs, registry, text_graph};

#[test]
fn every_recorded_graph() {
    let registry = registry();
    let mut failures = Vec::new();
    let graphs = recorded_graphs();
    for (name, def) in &graphs {
        match Graph::from_def(registry.clone(), def.clone()) {
            Err(e) => failures.push(format!("{name}: {e}")),
            // As bytes, since NaN differs from itself.
            Ok(graph) if graph.to_def().encode_to_vec() != def.encode_to_vec() => {
                failures.push(format!("{name}: differs"));
            }
            Ok(_) => {}
        }
    }
    assert!(graphs.len() >= 4005, "only {} recorded graphs", graphs.len());
    assert!(failures.is_empty(), "{} graphs fail:\n{}", failures.len(), failures.join("\n"));
}

/// A graph that sets every field that a GraphDef of ours declares.
const EVERY_FIELD: &str = r#"
    node {
      name: "x" op: "Placeholder" device: "/job:worker/task:1"
      attr { key: "dtype" value { type: DT_FLOAT } }
      attr { key: "shape" value { shape { dim { size: 2 name: "rows" } dim { size: -1 } } } }
      attr { key: "_class" value { list { s: "loc:@x" } } }
      attr { key: "_nothing" value { } }
      attr { key: "_of_all" value { list {
        s: "a" i: 1 f: 0.5 b: true type: DT_INT32 shape { unknown_rank: true }
        tensor { dtype: DT_INT32 int_val: 7 } func { name: "f" }
      } } }
      attr { key: "_call" value { func { name: "f" attr { key: "T" value { placeholder: "U" } } } } }
      experimental_debug_info { original_node_names: "y" original_func_names: "g" }
      experimental_type { type_id: TFT_TENSOR args { type_id: TFT_FLOAT } }
    }
    node { name: "first" op: "NoOp" input: "^last" input: "^last" }
    node { name: "last" op: "NoOp" input: "^x" }
    node { name: "called" op: "twice" input: "x" }
    node {
      name: "split" op: "SplitV" input: "x" input: "sizes" input: "axis"
      attr { key: "num_split" value { i: 2 } } attr { key: "T" value { type: DT_FLOAT } }
      attr { key: "Tlen" value { type: DT_INT64 } }
    }
    node {
      name: "second" op: "Identity" input: "split:1" input: "^first"
      attr { key: "T" value { type: DT_FLOAT } }
    }
    node {
      name: "sizes" op: "Const" attr { key: "dtype" value { type: DT_INT64 } }
      attr { key: "value" value { tensor {
        dtype: DT_INT64 tensor_shape { dim { size: 2 } } int64_val: 1 version_number: 3
      } } }
    }
    node {
      name: "axis" op: "Const" attr { key: "dtype" value { type: DT_INT32 } }
      attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 0 } } }
    }
    library {
      function {
        signature {
          name: "twice" description: "adds to itself" is_stateful: true
          input_arg { name: "a" type: DT_FLOAT } output_arg { name: "b" type: DT_FLOAT }
        }
        node_def {
          name: "add" op: "AddV2" input: "a" input: "a" attr { key: "T" value { type: DT_FLOAT } }
        }
        ret { key: "b" value: "add:z:0" }
        attr { key: "_noinline" value { b: true } }
        arg_attr { key: 0 value { attr { key: "_user_specified_name" value { s: "a" } } } }
        resource_arg_unique_id { key: 0 value: 4 }
        control_ret { key: "add" value: "add" }
      }
      function { signature { name: "f" } }
      gradient { function_name: "twice" gradient_func: "f" }
      gradient { function_name: "a" gradient_func: "f" }
      registered_gradients { gradient_func: "f" registered_op_type: "T" }
    }
    versions { producer: 2474 min_consumer: 12 bad_consumers: 5 }
    version: 26
    debug_info { files: "model.py" }
"#;

#[test]
fn every_field() {
    let def = text_graph(EVERY_FIELD);
    let graph = Graph::from_def(registry(), def.clone()).unwrap();
    let show = |def: &pb::GraphDef| pb::text::encode("tensorflow.GraphDef", def);
    assert_eq!(show(&graph.to_def()), show(&def));
}

#[test]
fn absent_fields_stay_absent() {
    for text in ["", "library {}", "versions { producer: 3 }", "versions {}"] {
        let def = text_graph(text);
        assert_eq!(Graph::from_def(registry(), def.clone()).unwrap().to_def(), def, "{text:?}");
    }
    let made = Graph::new(registry()).to_def();
    assert_eq!(made.versions.unwrap().producer, thalweg_graph::GRAPH_VERSION);
}

#[test]
fn the_first_output_has_two_spellings() {
    let spelled = text_graph(
        r#"node { name: "a" op: "NoOp" }
           node { name: "s" op: "Identity" input: "p:0" attr { key: "T" value { type: DT_FLOAT } } }
           node { name: "p" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }"#,
    );
    let graph = Graph::from_def(registry(), spelled).unwrap();
    assert_eq!(graph.to_def().node[1].input, ["p"]);
}
