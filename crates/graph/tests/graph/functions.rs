//! Functions: libraries, signatures as ops, bodies as graphs.

use std::collections::BTreeSet;
use std::sync::Arc;

use thalweg_graph::{AttrValue, Attrs, FunctionBody, Graph, Role, instantiate};
use thalweg_proto as pb;
use thalweg_proto::attr_value::Value;
use thalweg_tensor::{DType, Result};

use crate::support::{import, recorded_graphs, registry, text_graph};

/// Attrs under which a recorded function can be instantiated: those its signature needs come from
/// a call, and calls in these graphs set none.
fn no_attrs() -> Attrs {
    Attrs::default()
}

#[test]
fn every_recorded_function() {
    let registry = registry();
    let (mut functions, mut failures) = (0, Vec::new());
    for (case, def) in recorded_graphs() {
        let library = def.library.clone().unwrap_or_default();
        if library.function.is_empty() {
            continue;
        }
        let graph = Graph::from_def(registry.clone(), def).unwrap();
        for function in &library.function {
            functions += 1;
            match instantiate(function, &no_attrs(), &graph) {
                Ok(body) => check_body(function, &body),
                Err(e) => failures.push(format!("{case}: {e}")),
            }
        }
    }
    assert!(functions > 100, "{functions} functions");
    assert!(failures.is_empty(), "{} of {functions}:\n{}", failures.len(), failures.join("\n"));
}

/// The body has one `_Arg` and `_Retval` for each argument and result, of their types, in order.
fn check_body(function: &pb::FunctionDef, body: &FunctionBody) {
    let signature = function.signature.as_ref().unwrap();
    let types = |args: &[pb::op_def::ArgDef]| -> Vec<DType> {
        args.iter().map(|a| DType::from_proto(a.r#type).unwrap()).collect()
    };
    let node_types = |ids: &[thalweg_graph::NodeId], op: &str| -> Vec<DType> {
        ids.iter()
            .enumerate()
            .map(|(i, &id)| {
                let node = body.graph.node(id);
                assert_eq!((&*node.op.name, node.attrs().int("index").unwrap()), (op, i as i64));
                node.attrs().dtype("T").unwrap()
            })
            .collect()
    };
    assert_eq!(node_types(&body.args, "_Arg"), types(&signature.input_arg), "{}", signature.name);
    assert_eq!(node_types(&body.results, "_Retval"), types(&signature.output_arg));
    assert_eq!(body.control_results.len(), function.control_ret.len());
    assert_eq!(
        body.graph.len(),
        function.node_def.len() + body.args.len() + body.results.len(),
        "{}",
        signature.name
    );
    let names: BTreeSet<&str> = body.graph.nodes().iter().map(|n| &*n.name).collect();
    assert!(function.node_def.iter().all(|n| names.contains(&*n.name)));
}

const LIBRARY: &str = r#"
    library { function {
      signature {
        name: "sum_all"
        input_arg { name: "values" type_attr: "T" number_attr: "N" }
        input_arg { name: "rest" type_list_attr: "Rest" }
        output_arg { name: "sum" type_attr: "T" }
        output_arg { name: "same" type_list_attr: "Rest" }
        attr { name: "T" type: "type" }
        attr { name: "N" type: "int" has_minimum: true minimum: 1 }
        attr { name: "Rest" type: "list(type)" }
      }
      node_def {
        name: "add" op: "AddN" input: "values"
        attr { key: "T" value { placeholder: "T" } } attr { key: "N" value { placeholder: "N" } }
      }
      node_def {
        name: "all" op: "IdentityN" input: "rest" input: "^add"
        attr { key: "T" value { placeholder: "Rest" } }
      }
      node_def {
        name: "call" op: "PartitionedCall" input: "values:1" input: "all:output:0"
        attr { key: "Tin" value { list { type: DT_FLOAT type: DT_INT32 } } }
        attr { key: "Tout" value { list { type: DT_FLOAT } } }
        attr { key: "f" value { func {
          name: "other" attr { key: "U" value { placeholder: "T" } }
        } } }
      }
      ret { key: "sum" value: "add:sum:0" }
      ret { key: "same" value: "all:output" }
      control_ret { key: "effect" value: "call" }
    } }
"#;

fn attrs(n: i64, rest: &[DType]) -> Attrs {
    let mut attrs = Attrs::default();
    attrs.set("T", AttrValue::Type(DType::Float.to_proto()));
    attrs.set("N", AttrValue::Int(n));
    attrs.set("Rest", thalweg_graph::IntoAttr::into_attr(rest));
    attrs
}

fn body(attrs: &Attrs) -> Result<FunctionBody> {
    let graph = import(LIBRARY)?;
    let function = graph.library().get("sum_all").unwrap().clone();
    instantiate(&function, attrs, &graph)
}

#[test]
fn lists_and_placeholders() {
    let body = body(&attrs(2, &[DType::Int32, DType::String])).unwrap();
    let shown: Vec<String> = body
        .graph
        .to_def()
        .node
        .iter()
        .map(|n| format!("{} = {}({})", n.name, n.op, n.input.join(", ")))
        .collect();
    assert_eq!(
        shown,
        [
            "values_0 = _Arg()",
            "values_1 = _Arg()",
            "rest_0 = _Arg()",
            "rest_1 = _Arg()",
            "add = AddN(values_0, values_1)",
            "all = IdentityN(rest_0, rest_1, ^add)",
            "call = PartitionedCall(values_1, all)",
            "_retval_0 = _Retval(add)",
            "_retval_1 = _Retval(all)",
            "_retval_2 = _Retval(all:1)",
        ]
    );
    let call = body.graph.node(body.graph.find("call").unwrap());
    let called = call.attrs().function("f").unwrap();
    assert_eq!(called.attr["U"].value, Some(Value::Type(DType::Float.to_proto())));
    let control: Vec<&str> =
        body.control_results.iter().map(|&id| &*body.graph.node(id).name).collect();
    assert_eq!(control, ["call"]);
}

#[test]
fn mistakes() {
    let lacks = |name: &str| {
        let mut attrs = attrs(2, &[DType::Int32]);
        attrs.remove(name);
        body(&attrs).err().unwrap().to_string()
    };
    assert_eq!(
        lacks("T"),
        "INVALID_ARGUMENT: function 'sum_all': attr 'T' is not set by the caller"
    );
    let wrong = |name: &str, value: AttrValue| {
        let mut attrs = attrs(2, &[DType::Int32]);
        attrs.set(name, value);
        body(&attrs).err().unwrap().to_string()
    };
    for (name, value, expected) in [
        ("T", AttrValue::Int(1), "attr 'T' must be type, is the int 1"),
        ("N", AttrValue::Int(-1), "attr 'N' must be int from 0 to 65536, is the int -1"),
        ("N", AttrValue::Int(i64::MAX), "attr 'N' must be int from 0 to 65536, is the int"),
        ("Rest", AttrValue::Bool(true), "attr 'Rest' must be list(type), is the bool true"),
        ("N", AttrValue::Int(1), "input 'values:1' is not defined"),
        ("Rest", AttrValue::None, "attr 'Rest' must be list(type), is not set"),
    ] {
        let message = wrong(name, value);
        let expected = format!("INVALID_ARGUMENT: function 'sum_all': {expected}");
        assert!(message.starts_with(&expected), "{message}");
    }
}

#[test]
fn bodies_that_do_not_fit_their_signature() {
    let signature = r#"signature { name: "f" output_arg { name: "y" type: DT_FLOAT } }"#;
    let constant = r#"node_def { name: "c" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }"#;
    for (text, expected) in [
        (signature.to_owned(), "result 'y' is not defined"),
        (
            format!("{signature} ret {{ key: 'y' value: 'nowhere:out:0' }}"),
            "input 'nowhere:out:0' is not defined",
        ),
        (
            format!("{signature} {constant} ret {{ key: 'y' value: 'c:output:1' }}"),
            "input 'c:output:1' is not defined",
        ),
        (
            format!(
                "{signature} {constant} ret {{ key: 'y' value: 'c:output:0' }} \
                 control_ret {{ key: 'e' value: 'gone' }}"
            ),
            "control output 'gone' is no node",
        ),
        (
            format!(
                "{signature} {} ret {{ key: 'y' value: 'c:output:0' }}",
                constant.replace("FLOAT", "INT32")
            ),
            "node '_retval_0' (_Retval): input 0 must be float, got int32",
        ),
        (
            format!("{signature} {constant}{constant} ret {{ key: 'y' value: 'c:output:0' }}"),
            "Node 'c' is not unique",
        ),
    ] {
        let graph = import(&format!("library {{ function {{ {text} }} }}")).unwrap();
        let function = graph.library().get("f").unwrap().clone();
        let refused = instantiate(&function, &no_attrs(), &graph).err().unwrap();
        assert_eq!(refused.to_string(), format!("INVALID_ARGUMENT: function 'f': {expected}"));
    }
}

#[test]
fn expansion_is_bounded() {
    let inputs = "input: 'x' ".repeat(100);
    let text = format!(
        "library {{ function {{
           signature {{ name: 'f' input_arg {{ name: 'x' type: DT_FLOAT number_attr: 'N' }}
                        attr {{ name: 'N' type: 'int' }} }}
           node_def {{ name: 'n' op: 'AddN' {inputs}
             attr {{ key: 'T' value {{ type: DT_FLOAT }} }} attr {{ key: 'N' value {{ i: 1 }} }} }}
         }} }}"
    );
    let graph = import(&text).unwrap();
    let function = graph.library().get("f").unwrap().clone();
    let mut attrs = Attrs::default();
    attrs.set("N", AttrValue::Int(1 << 16));
    assert_eq!(
        instantiate(&function, &attrs, &graph).err().unwrap().to_string(),
        "RESOURCE_EXHAUSTED: function 'f': it expands to more than 1048576 tensors"
    );
}

#[test]
fn a_function_is_an_op_under_its_own_name() {
    let mut graph = import(LIBRARY).unwrap();
    let call = |attrs: &str| {
        text_graph(&format!(
            r#"node {{ name: "x" op: "Placeholder" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }} }}
               node {{ name: "y" op: "sum_all" input: "x" input: "x" {attrs} }}"#
        ))
    };
    let all = r#"attr { key: "T" value { type: DT_FLOAT } } attr { key: "N" value { i: 2 } }
                 attr { key: "Rest" value { list { } } }"#;
    graph.extend(call(all)).unwrap();
    let node = graph.node(graph.find("y").unwrap());
    assert_eq!(node.role(), Role::Function);
    assert_eq!(node.outputs[0].dtype, DType::Float);
    let unset = Graph::from_def(graph.registry().clone(), text_graph(LIBRARY))
        .and_then(|mut g| g.extend(call(r#"attr { key: "T" value { type: DT_FLOAT } }"#)))
        .unwrap_err();
    assert_eq!(unset.to_string(), "NOT_FOUND: node 'y' (sum_all): No attr named 'N' in NodeDef");
}

#[test]
fn libraries_grow_and_never_change() {
    let mut graph = import(LIBRARY).unwrap();
    let before = Arc::clone(graph.library());
    graph.extend(text_graph(LIBRARY)).unwrap();
    assert_eq!(graph.library().names().collect::<Vec<_>>(), ["sum_all"]);
    let changed = LIBRARY.replace("effect", "cause");
    assert_eq!(
        graph.extend(text_graph(&changed)).unwrap_err().to_string(),
        "INVALID_ARGUMENT: function 'sum_all' is defined already, and differently"
    );
    graph
        .extend(text_graph(
            "library { function { signature { name: 'a' } }
                       gradient { function_name: 'a' gradient_func: 'sum_all' } }",
        ))
        .unwrap();
    assert_eq!(graph.library().names().collect::<Vec<_>>(), ["a", "sum_all"]);
    assert_eq!(graph.library().gradient("a"), Some("sum_all"));
    assert_eq!(
        graph
            .extend(text_graph("library { gradient { function_name: 'a' gradient_func: 'b' } }"))
            .unwrap_err()
            .to_string(),
        "INVALID_ARGUMENT: function 'a' has the gradient 'sum_all' already, not 'b'"
    );
    assert!(before.get("a").is_none(), "the old library is another's");
    for (text, expected) in [
        ("function { }", "a function has no signature"),
        ("function { signature { } }", "a function has no name"),
        (
            "function { signature { name: 'f' attr { name: 'x' type: 'color' } } }",
            "function 'f': attr 'x' has kind \"color\"",
        ),
        (
            "function { signature { name: 'f' input_arg { name: 'x' } } }",
            "function 'f': 0 (DT_INVALID) is not a data type a tensor can have",
        ),
    ] {
        let refused = import(&format!("library {{ {text} }}")).err().unwrap();
        assert_eq!(refused.to_string(), format!("INVALID_ARGUMENT: {expected}"));
    }
}
