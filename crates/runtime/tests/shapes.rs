//! Plans specialized for shapes of feeds: fewer nodes, equal results, and other shapes are refused.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use support::*;
use thalweg_graph::{Output, Scope};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_runtime::{Callable, Session, SessionOptions};
use thalweg_tensor::{Code, DType, PartialShape, Shape, Tensor};

fn scope() -> Scope {
    Scope::new(op_registry(FAMILIES).unwrap())
}

fn session(s: &Scope) -> Session {
    Session::new(s.to_graph(), kernel_registry(FAMILIES), SessionOptions::default()).unwrap()
}

fn placeholder(s: &mut Scope, name: &str, shape: &PartialShape) -> Output {
    let node = s.op("Placeholder").name(name).attr("dtype", DType::Float).attr("shape", shape);
    node.build().unwrap()
}

fn ints(s: &mut Scope, values: &[i32]) -> Output {
    s.constant(&Tensor::vector(values).unwrap()).unwrap()
}

/// A part of a vector of sizes, as a scalar.
fn size_of(s: &mut Scope, sizes: Output, i: i32) -> Output {
    let (begin, end, stride) = (ints(s, &[i]), ints(s, &[i + 1]), ints(s, &[1]));
    let slice = s.op("StridedSlice").inputs(&[sizes, begin, end, stride]);
    slice.attr("shrink_axis_mask", 1i64).build().unwrap()
}

fn floats(dims: &[usize]) -> Tensor {
    let shape = Shape::new(dims).unwrap();
    let values: Vec<f32> = (0..shape.num_elements()).map(|i| i as f32 - 3.0).collect();
    Tensor::from_slice(shape, &values).unwrap()
}

/// Calls the general plan and the one for these feeds; both give the same.
fn both(general: &Callable, feeds: &[Tensor]) -> (Callable, Vec<Tensor>) {
    let shapes: Vec<Shape> = feeds.iter().map(|feed| feed.shape().clone()).collect();
    let special = general.for_shapes(&shapes).unwrap();
    assert!(special.is_for(feeds));
    let (wanted, given) = (general.call(feeds).unwrap(), special.call(feeds).unwrap());
    let protos = |tensors: &[Tensor]| -> Vec<_> {
        tensors.iter().map(|tensor| tensor.to_proto().unwrap()).collect()
    };
    assert_eq!(protos(&given), protos(&wanted));
    (special, given)
}

/// `x` of shape [rows, columns, 2] as [rows, columns * 2], by sizes that a step finds out; its size; and
/// zeros in so many rows.
fn chain(s: &mut Scope) {
    let x = placeholder(s, "x", &PartialShape::new([None, None, Some(2)]));
    let sizes = s.op("Shape").input(x).build().unwrap();
    let (rows, columns) = (size_of(s, sizes, 0), size_of(s, sizes, 1));
    let two = s.constant(&Tensor::scalar(2i32)).unwrap();
    let width = s.add("Mul", &[columns, two]).unwrap();
    let target = s.op("Pack").inputs(&[rows, width]).build().unwrap();
    s.op("Reshape").name("flat").inputs(&[x, target]).build().unwrap();
    s.op("Size").name("size").input(x).build().unwrap();
    let zero = s.constant(&Tensor::scalar(0.0f32)).unwrap();
    s.op("Fill").name("zeros").inputs(&[target, zero]).build().unwrap();
    s.op("ShapeN").name("shapes").inputs(&[x, zero]).build_node().unwrap();
}

#[test]
fn values_that_follow_from_shapes_are_folded() {
    let mut s = scope();
    chain(&mut s);
    let s = session(&s);
    let fetches = ["flat", "size", "zeros", "shapes:0", "shapes:1"];
    let general = s.make_callable(&["x"], &fetches, &[]).unwrap();
    for dims in [[1, 3, 2], [4, 1, 2], [0, 5, 2]] {
        let (special, given) = both(&general, &[floats(&dims)]);
        assert_eq!(given[0].shape().dims(), [dims[0], dims[1] * 2]);
        // The reshape; its target and the other fetches are constants.
        assert_eq!(special.size().nodes, 1 + 1 + fetches.len());
        assert!(special.size() < general.size());
    }
    let (special, _) =
        both(&s.make_callable(&["x"], &["zeros"], &[]).unwrap(), &[floats(&[2, 2, 2])]);
    assert_eq!(special.size().nodes, 2, "a feed and a fetch");
    let (special, _) =
        both(&s.make_callable(&["x"], &["flat"], &[]).unwrap(), &[floats(&[2, 2, 2])]);
    assert_eq!(special.size().nodes, 3);
}

#[test]
fn other_shapes_are_refused() {
    let mut s = scope();
    chain(&mut s);
    let s = session(&s);
    let general = s.make_callable(&["x"], &["flat"], &[]).unwrap();
    let (special, _) = both(&general, &[floats(&[2, 3, 2])]);
    let wrong = [floats(&[3, 2, 2])];
    assert!(!special.is_for(&wrong) && general.is_for(&wrong));
    assert_eq!(special.call(&wrong).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(special.call(&[]).unwrap_err().code(), Code::InvalidArgument);
    // Neither what the graph says it never is, nor fewer shapes than feeds.
    for shapes in [vec![Shape::new(&[2, 3, 3]).unwrap()], vec![Shape::scalar(); 2]] {
        let refused = general.for_shapes(&shapes).map(|_| ()).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    }
}

#[test]
fn shapes_reach_into_calls_and_end_at_branches() {
    let function = |name: &str, body: &str, result: &str| {
        format!(
            r#"function {{ signature {{ name: "{name}" input_arg {{ name: "x" type: DT_FLOAT }}
                output_arg {{ name: "y" type: DT_FLOAT }} output_arg {{ name: "n" type: DT_INT32 }} }}
                {body} ret {{ key: "y" value: "{result}" }} ret {{ key: "n" value: "n:output:0" }} }} "#
        )
    };
    let size = r#"node_def { name: "n" op: "Size" input: "x" attr { key: "T" value { type: DT_FLOAT } } } "#;
    let negated = r#"node_def { name: "a" op: "Neg" input: "x" attr { key: "T" value { type: DT_FLOAT } } } "#;
    let called = r#"node_def { name: "c" op: "inner" input: "x" }
        node_def { name: "n" op: "Identity" input: "c:n:0" attr { key: "T" value { type: DT_INT32 } } } "#;
    let branches = r#"node { name: "p" op: "Placeholder" attr { key: "dtype" value { type: DT_BOOL } } }
        node { name: "if" op: "StatelessIf" input: "p" input: "call"
            attr { key: "Tcond" value { type: DT_BOOL } }
            attr { key: "Tin" value { list { type: DT_FLOAT } } }
            attr { key: "Tout" value { list { type: DT_FLOAT type: DT_INT32 } } }
            attr { key: "then_branch" value { func { name: "outer" } } }
            attr { key: "else_branch" value { func { name: "inner" } } } }
        node { name: "switch" op: "Switch" input: "call" input: "p" attr { key: "T" value { type: DT_FLOAT } } }
        node { name: "no" op: "Size" input: "switch:0" attr { key: "T" value { type: DT_FLOAT } } }
        node { name: "yes" op: "Rank" input: "switch:1" attr { key: "T" value { type: DT_FLOAT } } }
        node { name: "merge" op: "Merge" input: "no" input: "yes"
            attr { key: "T" value { type: DT_INT32 } } attr { key: "N" value { i: 2 } } }"#;
    let text = format!(
        r#"library {{ {} {} }} node {{ name: "x" op: "Placeholder" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }} }}
        node {{ name: "call" op: "outer" input: "x" }} {branches}"#,
        function("inner", &format!("{size} {negated}"), "a:y:0"),
        function("outer", called, "c:y:0"),
    );
    let s = text_session(&text, 1).unwrap();
    let general = s.make_callable(&["x"], &["call", "call:1"], &[]).unwrap();
    let (special, given) = both(&general, &[floats(&[3, 2])]);
    assert_eq!(given[1].as_slice::<i32>().unwrap(), [6]);
    assert_eq!((general.size().calls, special.size().calls), (1, 0));
    assert_eq!(special.size().nodes, 4, "a feed, Neg, two fetches");
    // A value that is not fetched is not computed.
    let count = s.make_callable(&["x"], &["call:1"], &[]).unwrap();
    assert_eq!(both(&count, &[floats(&[3, 2])]).0.size().nodes, 2);
    let fetches = ["if", "if:1", "merge", "merge:1"];
    let branches = s.make_callable(&["x", "p"], &fetches, &[]).unwrap();
    for p in [true, false] {
        both(&branches, &[floats(&[3, 2]), Tensor::scalar(p)]);
    }
}

/// A random op in a function has its state per plan, so results would depend on the plan that runs.
#[test]
fn functions_with_state_have_one_plan() {
    let text = r#"library { function {
          signature { name: "f" input_arg { name: "x" type: DT_INT32 } output_arg { name: "y" type: DT_FLOAT } }
          node_def { name: "r" op: "RandomUniform" input: "x" attr { key: "T" value { type: DT_INT32 } }
            attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "seed" value { i: 7 } } }
          ret { key: "y" value: "r:output:0" } } }
        node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } }
        node { name: "y" op: "f" input: "x" }"#;
    let s = text_session(text, 1).unwrap();
    let general = s.make_callable(&["x"], &["y"], &[]).unwrap();
    let refused = general.for_shapes(&[Shape::new(&[1]).unwrap()]).map(|_| ()).unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented, "{refused}");
}

/// Constants are held once, however many plans there are.
#[test]
fn constants_are_shared() {
    let mut s = scope();
    let x = placeholder(&mut s, "x", &PartialShape::new([None, Some(512)]));
    let weights = s.constant(&floats(&[512, 512])).unwrap();
    let product = s.add("MatMul", &[x, weights]).unwrap();
    let sizes = s.op("Shape").input(product).build().unwrap();
    s.op("Reshape").name("y").inputs(&[product, sizes]).build().unwrap();
    let s = session(&s);
    let general = s.make_callable(&["x"], &["y"], &[]).unwrap();
    let before = s.memory_used_bytes();
    let special: Vec<Callable> =
        (1..9).map(|rows| both(&general, &[floats(&[rows, 512])]).0).collect();
    assert!(s.memory_used_bytes() < before + (1 << 20), "{} more", s.memory_used_bytes() - before);
    assert!(special.iter().all(|special| special.size() < general.size()));
}

/// Sizes whose product leaves 32 bits are left to the kernel, which wraps around.
#[test]
fn sizes_that_overflow_are_not_folded() {
    let mut s = scope();
    let x = placeholder(&mut s, "x", &PartialShape::new([None]));
    let size = s.op("Size").input(x).build().unwrap();
    let large = s.constant(&Tensor::scalar(1i32 << 30)).unwrap();
    let wrapped = s.add("Mul", &[size, large]).unwrap();
    s.op("FloorDiv").name("y").inputs(&[wrapped, large]).build().unwrap();
    let s = session(&s);
    let general = s.make_callable(&["x"], &["y"], &[]).unwrap();
    for rows in [1, 4, 5] {
        both(&general, &[floats(&[rows])]);
    }
}
