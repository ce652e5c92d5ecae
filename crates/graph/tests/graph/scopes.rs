//! Building graphs: names, devices, control inputs, inferred attrs.

use thalweg_graph::{Graph, Scope};
use thalweg_tensor::{DType, PartialShape, Tensor};

use crate::support::{import, registry};

fn names(scope: &Scope) -> Vec<String> {
    scope.with_graph(|g| g.nodes().iter().map(|n| n.name.to_string()).collect())
}

#[test]
fn names_are_unique_by_scope() {
    let mut root = Scope::new(registry());
    let mut first = root.child("layer");
    let mut second = root.child("layer");
    for scope in [&mut root, &mut first, &mut second] {
        scope.op("NoOp").build_node().unwrap();
        scope.op("NoOp").build_node().unwrap();
        scope.op("NoOp").name("end").build_node().unwrap();
    }
    root.op("NoOp").name("NoOp_1").build_node().unwrap();
    root.op("NoOp").build_node().unwrap();
    assert_eq!(
        names(&root),
        [
            "NoOp",
            "NoOp_1",
            "end",
            "layer/NoOp",
            "layer/NoOp_1",
            "layer/end",
            "layer_1/NoOp",
            "layer_1/NoOp_1",
            "layer_1/end",
            "NoOp_1_1",
            "NoOp_2",
        ]
    );
}

#[test]
fn a_scope_of_a_graph_that_exists() {
    let graph = import("node { name: 'a/b/c' op: 'NoOp' } node { name: 'd' op: 'NoOp' }").unwrap();
    let mut scope = Scope::of(graph);
    scope.op("NoOp").name("d").build_node().unwrap();
    scope.child("a").op("NoOp").name("x").build_node().unwrap();
    assert_eq!(names(&scope), ["a/b/c", "d", "d_1", "a_1/x"]);
}

#[test]
fn attrs_come_from_inputs() {
    let mut s = Scope::new(registry());
    let x = s.constant(&Tensor::scalar(1.0f32)).unwrap();
    let n = s.constant(&Tensor::scalar(1i64)).unwrap();
    let sum = s.add("AddN", &[x, x, x]).unwrap();
    let all = s.op("IdentityN").inputs(&[x, n, sum]).build_all().unwrap();
    s.with_graph(|g| {
        let add = g.node(sum.node).attrs();
        assert_eq!((add.dtype("T").unwrap(), add.int("N").unwrap()), (DType::Float, 3));
        let types: Vec<DType> = all.iter().map(|&o| g.output(o).dtype).collect();
        assert_eq!(types, [DType::Float, DType::Int64, DType::Float]);
    });
    // What was inferred is in the message, so it can be read elsewhere.
    let def = s.to_graph().to_def();
    Graph::from_def(registry(), def.clone()).unwrap();
    assert_eq!(Graph::from_def(registry(), def.clone()).unwrap().to_def(), def);
}

#[test]
fn mistakes_fail_where_they_are_made() {
    let mut s = Scope::new(registry());
    let x = s.placeholder(DType::Float, &PartialShape::unknown()).unwrap();
    let n = s.placeholder(DType::Int32, &PartialShape::unknown()).unwrap();
    let missing = thalweg_graph::Endpoint { node: x.node, index: 1 };
    let nowhere = thalweg_graph::Endpoint { node: thalweg_graph::NodeId(99), index: 0 };
    for (result, expected) in [
        (
            s.add("Nope", &[x]),
            "NOT_FOUND: Op type not registered 'Nope': neither TensorFlow 2.21 nor this program \
             defines it",
        ),
        (
            s.add("AddV2", &[x, n]),
            "INVALID_ARGUMENT: node 'AddV2' (AddV2): input 1 must be float, got int32",
        ),
        (
            s.add("AddV2", &[x]),
            "INVALID_ARGUMENT: node 'AddV2_1' (AddV2): AddV2 takes 2 inputs, got 1",
        ),
        (
            s.add("Identity", &[missing]),
            "INVALID_ARGUMENT: node 'Identity' (Identity): output 1 of 'Placeholder' does not \
             exist: it has 1",
        ),
        (
            s.add("Identity", &[nowhere]),
            "INVALID_ARGUMENT: node 'Identity_1' (Identity): input Endpoint { node: n99, index: 0 \
             } does not exist",
        ),
        (
            s.op("NoOp").name("no good").build(),
            "INVALID_ARGUMENT: node 'no good' (NoOp): \"no good\" is not a node name",
        ),
    ] {
        assert_eq!(result.unwrap_err().to_string(), expected);
    }
    assert_eq!(names(&s), ["Placeholder", "Placeholder_1"]);
}

#[test]
fn devices_and_control_inputs() {
    let mut root = Scope::new(registry());
    let init = root.op("NoOp").name("init").build_node().unwrap();
    let mut after = root.on_device("/device:CPU:1").after(&[init]);
    let first = after.op("NoOp").name("first").build_node().unwrap();
    after.child("in").op("NoOp").name("second").after(&[first]).build_node().unwrap();
    let def = root.to_graph().to_def();
    let shown: Vec<String> = def
        .node
        .iter()
        .map(|n| format!("{} on {:?} after {:?}", n.name, n.device, n.input))
        .collect();
    assert_eq!(
        shown,
        [
            "init on \"\" after []",
            "first on \"/device:CPU:1\" after [\"^init\"]",
            "in/second on \"/device:CPU:1\" after [\"^init\", \"^first\"]",
        ]
    );
}
