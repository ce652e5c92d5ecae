//! Variables over several steps: names, errors, and snapshots.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::HashMap;

use support::Interpreter;
use thalweg_graph::{Endpoint, Graph, IntoAttr, NewNode, NodeId};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_tensor::*;

/// A graph to which each call adds one node.
struct Builder(Graph);

impl Builder {
    fn new() -> Self {
        Builder(Graph::new(op_registry(FAMILIES).unwrap()))
    }

    fn add(
        &mut self,
        name: &str,
        op: &str,
        inputs: &[NodeId],
        attrs: &[(&str, thalweg_graph::AttrValue)],
    ) -> NodeId {
        self.try_add(name, op, inputs, attrs).unwrap()
    }

    fn try_add(
        &mut self,
        name: &str,
        op: &str,
        inputs: &[NodeId],
        attrs: &[(&str, thalweg_graph::AttrValue)],
    ) -> Result<NodeId> {
        let mut node = NewNode::new(name, self.0.find_op(op)?);
        node.inputs = inputs.iter().map(|&node| Endpoint { node, index: 0 }).collect();
        for (attr, value) in attrs {
            node.attrs.set(*attr, value.clone());
        }
        self.0.add(node)
    }

    fn placeholder(&mut self, name: &str, dtype: DType) -> NodeId {
        self.add(name, "Placeholder", &[], &[("dtype", dtype.into_attr())])
    }

    fn finish(self) -> Interpreter {
        Interpreter::new(self.0, kernel_registry(FAMILIES))
    }
}

fn shape(dims: &[usize]) -> thalweg_graph::AttrValue {
    (&PartialShape::new(dims.iter().map(|&d| Some(d)))).into_attr()
}

fn run(interpreter: &mut Interpreter, fetch: &str, feeds: &[(&str, Tensor)]) -> Result<Tensor> {
    let feeds: HashMap<String, Tensor> =
        feeds.iter().map(|(name, value)| (format!("{name}:0"), value.clone())).collect();
    Ok(interpreter.run(&feeds, &[format!("{fetch}:0")], &[])?.remove(0))
}

fn target(interpreter: &mut Interpreter, node: &str, feeds: &[(&str, Tensor)]) -> Result<()> {
    let feeds: HashMap<String, Tensor> =
        feeds.iter().map(|(name, value)| (format!("{name}:0"), value.clone())).collect();
    interpreter.run(&feeds, &[], &[node.to_owned()]).map(|_| ())
}

fn floats(values: &[f32]) -> Tensor {
    Tensor::vector(values).unwrap()
}

#[test]
fn references() {
    let mut b = Builder::new();
    let attrs = [("dtype", DType::Float.into_attr()), ("shape", shape(&[2]))];
    let v = b.add("v", "VariableV2", &[], &attrs);
    let x = b.placeholder("x", DType::Float);
    b.add("ready", "IsVariableInitialized", &[v], &[("dtype", DType::Float.into_attr())]);
    b.add("set", "Assign", &[v, x], &[]);
    b.add("reset", "Assign", &[v, x], &[("validate_shape", false.into_attr())]);
    b.add("add", "AssignAdd", &[v, x], &[]);
    b.add("copy", "Identity", &[v], &[]);
    let mut i = b.finish();

    assert!(!run(&mut i, "ready", &[]).unwrap().scalar_value::<bool>().unwrap());
    let error = run(&mut i, "v", &[]).unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.message().contains("Attempting to use uninitialized value v"), "{error}");
    assert!(run(&mut i, "add", &[("x", floats(&[1.0, 2.0]))]).is_err());

    let error = run(&mut i, "set", &[("x", floats(&[1.0]))]).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("lhs shape= [2] rhs shape= [1]"), "{error}");
    run(&mut i, "set", &[("x", floats(&[1.0, 2.0]))]).unwrap();
    assert!(run(&mut i, "ready", &[]).unwrap().scalar_value::<bool>().unwrap());

    let before = run(&mut i, "v", &[]).unwrap();
    let sum = run(&mut i, "add", &[("x", floats(&[10.0, 20.0]))]).unwrap();
    assert_eq!(sum.as_slice::<f32>().unwrap(), [11.0, 22.0]);
    assert_eq!(before.as_slice::<f32>().unwrap(), [1.0, 2.0], "a snapshot stays");
    assert!(run(&mut i, "add", &[("x", floats(&[1.0]))]).is_err());

    run(&mut i, "reset", &[("x", floats(&[5.0]))]).unwrap();
    assert_eq!(run(&mut i, "copy", &[]).unwrap().as_slice::<f32>().unwrap(), [5.0]);
}

#[test]
fn handles() {
    let mut b = Builder::new();
    let dtype = || ("dtype", DType::Float.into_attr());
    let named = |name: &str| [dtype(), ("shape", shape(&[2])), ("shared_name", name.into_attr())];
    let h = b.add("h", "VarHandleOp", &[], &named("w"));
    let same = b.add("same", "VarHandleOp", &[], &named("w"));
    let r = b.add("r", "VariableV2", &[], &named("w"));
    let x = b.placeholder("x", DType::Float);
    b.add("set", "AssignVariableOp", &[h, x], &[dtype()]);
    b.add("set_ref", "Assign", &[r, x], &[]);
    b.add("add", "AssignAddVariableOp", &[h, x], &[dtype()]);
    b.add("read", "ReadVariableOp", &[same], &[dtype()]);
    b.add("read_int", "ReadVariableOp", &[same], &[("dtype", DType::Int32.into_attr())]);
    b.add("sizes", "VariableShape", &[h], &[]);
    b.add("ready", "VarIsInitializedOp", &[h], &[]);
    b.add("destroy", "DestroyResourceOp", &[h], &[("ignore_lookup_error", false.into_attr())]);
    let wrong = b.try_add("bad", "ReadVariableOp", &[x], &[dtype()]);
    assert!(wrong.is_err(), "a float is no handle");
    let mut i = b.finish();

    assert_eq!(i.graph.node(i.graph.find("read").unwrap()).outputs[0].shape.to_string(), "[2]");
    let error = run(&mut i, "read", &[]).unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(
        error.message().ends_with(
            "Could not find variable w. This could mean that the variable has been deleted. In TF1, it can also mean the variable is uninitialized. Debug info: container=localhost, status error message=Resource localhost/w/N10tensorflow3VarE does not exist."
        ),
        "{error}"
    );
    assert_eq!(run(&mut i, "sizes", &[]).unwrap_err().code(), Code::NotFound);
    assert_eq!(target(&mut i, "destroy", &[]).unwrap_err().code(), Code::NotFound);

    target(&mut i, "set", &[("x", floats(&[1.0, 2.0]))]).unwrap();
    assert!(run(&mut i, "r", &[]).is_err(), "a reference variable of the same name is another");
    run(&mut i, "set_ref", &[("x", floats(&[7.0, 8.0]))]).unwrap();
    target(&mut i, "add", &[("x", floats(&[1.0, 1.0]))]).unwrap();
    assert_eq!(run(&mut i, "read", &[]).unwrap().as_slice::<f32>().unwrap(), [2.0, 3.0]);
    assert_eq!(run(&mut i, "sizes", &[]).unwrap().as_slice::<i32>().unwrap(), [2]);
    assert_eq!(run(&mut i, "read_int", &[]).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(
        target(&mut i, "add", &[("x", floats(&[1.0]))]).unwrap_err().code(),
        Code::InvalidArgument
    );

    target(&mut i, "destroy", &[]).unwrap();
    assert!(!run(&mut i, "ready", &[]).unwrap().scalar_value::<bool>().unwrap());
    assert_eq!(run(&mut i, "r", &[]).unwrap().as_slice::<f32>().unwrap(), [7.0, 8.0]);
}

#[test]
fn rows() {
    let mut b = Builder::new();
    let dtype = || ("dtype", DType::Float.into_attr());
    let h = b.add("h", "VarHandleOp", &[], &[dtype(), ("shape", shape(&[3, 2]))]);
    let x = b.placeholder("x", DType::Float);
    let rows = b.placeholder("rows", DType::Int32);
    let attrs = || [dtype(), ("Tindices", DType::Int32.into_attr())];
    b.add("set", "AssignVariableOp", &[h, x], &[dtype()]);
    b.add("read", "ReadVariableOp", &[h], &[dtype()]);
    b.add("add", "ResourceScatterAdd", &[h, rows, x], &attrs());
    b.add("put", "ResourceScatterUpdate", &[h, rows, x], &attrs());
    b.add("get", "ResourceGather", &[h, rows], &attrs());
    b.add("get_nd", "ResourceGatherNd", &[h, rows], &attrs());
    let mut i = b.finish();
    let table = |values: &[f32]| {
        Tensor::from_slice(Shape::new(&[values.len() / 2, 2]).unwrap(), values).unwrap()
    };
    let numbers = |dims: &[usize], values: &[i32]| {
        ("rows", Tensor::from_slice(Shape::new(dims).unwrap(), values).unwrap())
    };
    let read =
        |i: &mut Interpreter| run(i, "read", &[]).unwrap().as_slice::<f32>().unwrap().to_vec();

    target(&mut i, "set", &[("x", table(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))]).unwrap();
    let updates = ("x", table(&[10.0, 20.0, 1.0, 2.0]));
    target(&mut i, "add", &[numbers(&[2], &[1, 1]), updates.clone()]).unwrap();
    assert_eq!(read(&mut i), [1.0, 2.0, 14.0, 26.0, 5.0, 6.0]);
    let error = target(&mut i, "add", &[numbers(&[2], &[0, 3]), updates.clone()]).unwrap_err();
    assert!(error.message().ends_with("indices[1] = 3 is not in [0, 3)"), "{error}");
    assert_eq!(read(&mut i), [1.0, 2.0, 14.0, 26.0, 5.0, 6.0], "nothing changed");
    assert!(target(&mut i, "add", &[numbers(&[1], &[0]), updates]).is_err());
    target(&mut i, "put", &[numbers(&[2], &[2, 0]), ("x", Tensor::scalar(9.0f32))]).unwrap();
    assert_eq!(read(&mut i), [9.0, 9.0, 14.0, 26.0, 9.0, 9.0]);

    let got = run(&mut i, "get", &[numbers(&[1, 2], &[1, 0])]).unwrap();
    assert_eq!(got.shape().dims(), [1, 2, 2]);
    assert_eq!(got.as_slice::<f32>().unwrap(), [14.0, 26.0, 9.0, 9.0]);
    assert!(run(&mut i, "get", &[numbers(&[1], &[-1])]).is_err());
    let got = run(&mut i, "get_nd", &[numbers(&[2, 2], &[1, 1, 0, 0])]).unwrap();
    assert_eq!(got.as_slice::<f32>().unwrap(), [26.0, 9.0]);
    let got = run(&mut i, "get_nd", &[numbers(&[0], &[])]).unwrap();
    assert_eq!(got.shape().dims(), [3, 2]);
    assert!(run(&mut i, "get_nd", &[numbers(&[2, 2], &[1, 1, 0, 2])]).is_err());
    assert!(run(&mut i, "get_nd", &[numbers(&[1, 3], &[1, 1, 0])]).is_err());
}

#[test]
fn optimizers() {
    let mut b = Builder::new();
    let dtype = || ("dtype", DType::Float.into_attr());
    let attrs = || [("T", DType::Float.into_attr())];
    let named =
        |name: &str| [dtype(), ("shape", shape(&[3, 2])), ("shared_name", name.into_attr())];
    let var = b.add("var", "VarHandleOp", &[], &named("var"));
    let alias = b.add("alias", "VarHandleOp", &[], &named("var"));
    let accum = b.add("accum", "VarHandleOp", &[], &named("accum"));
    let x = b.placeholder("x", DType::Float);
    let rate = b.placeholder("rate", DType::Float);
    let rows = b.placeholder("rows", DType::Int32);
    b.add("set", "AssignVariableOp", &[var, x], &[dtype()]);
    b.add("set_accum", "AssignVariableOp", &[accum, x], &[dtype()]);
    b.add("read", "ReadVariableOp", &[var], &[dtype()]);
    b.add("descend", "ResourceApplyGradientDescent", &[var, rate, x], &attrs());
    b.add("momentum", "ResourceApplyMomentum", &[var, accum, rate, x, rate], &attrs());
    b.add("twice", "ResourceApplyMomentum", &[var, alias, rate, x, rate], &attrs());
    let sparse = [attrs()[0].clone(), ("Tindices", DType::Int32.into_attr())];
    b.add("adagrad", "ResourceSparseApplyAdagrad", &[var, accum, rate, x, rows], &sparse);
    let mut i = b.finish();

    let table = |values: &[f32]| {
        ("x", Tensor::from_slice(Shape::new(&[values.len() / 2, 2]).unwrap(), values).unwrap())
    };
    let half = ("rate", Tensor::scalar(0.5f32));
    let numbers = |values: &[i32]| ("rows", Tensor::vector(values).unwrap());
    let ones = || table(&[1.0; 6]);
    let read =
        |i: &mut Interpreter| run(i, "read", &[]).unwrap().as_slice::<f32>().unwrap().to_vec();

    let error = target(&mut i, "descend", &[ones(), half.clone()]).unwrap_err();
    assert_eq!(error.code(), Code::Internal, "as in TensorFlow: {error}");
    target(&mut i, "set", &[ones()]).unwrap();
    target(&mut i, "set_accum", &[ones()]).unwrap();
    target(&mut i, "descend", &[ones(), half.clone()]).unwrap();
    assert_eq!(read(&mut i), [0.5; 6]);
    target(&mut i, "momentum", &[ones(), half.clone()]).unwrap();
    assert_eq!(read(&mut i), [-0.25; 6], "the accumulator is 1.5");

    let error = target(&mut i, "twice", &[ones(), half.clone()]).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    let error = target(&mut i, "descend", &[table(&[1.0; 4]), half.clone()]).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    let error = target(&mut i, "descend", &[ones(), ("rate", floats(&[0.5]))]).unwrap_err();
    assert!(error.message().contains("alpha is not a scalar: [1]"), "{error}");

    // Row 1 occurs twice, so its accumulator grows from 4 to 9 between the updates.
    target(&mut i, "set", &[table(&[0.0; 6])]).unwrap();
    target(&mut i, "set_accum", &[table(&[0.0; 6])]).unwrap();
    let gradient = table(&[2.0, 2.0, 5f32.sqrt(), 5f32.sqrt()]);
    let rate = ("rate", Tensor::scalar(6.0f32));
    target(&mut i, "adagrad", &[gradient.clone(), rate.clone(), numbers(&[1, 1])]).unwrap();
    let after = read(&mut i);
    let wanted = -6.0 - 6.0 * 5f32.sqrt() / 3.0;
    assert_eq!((after[0], after[4]), (0.0, 0.0));
    assert!((after[2] - wanted).abs() < 1e-5, "{after:?}");
    for bad in [numbers(&[0, 3]), numbers(&[-1, 0]), numbers(&[0])] {
        let error = target(&mut i, "adagrad", &[gradient.clone(), rate.clone(), bad]).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    }
    assert_eq!(read(&mut i), after);
}
