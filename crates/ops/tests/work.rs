//! The work that ops state: numbers computed by hand, TensorFlow's, and bounds for any node.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/cases.rs"]
mod cases;

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_graph::{AttrKind, Attrs, Endpoint, Graph, OpRegistry, OutputInfo, Work, WorkContext};
use thalweg_ops::{FAMILIES, op_registry};
use thalweg_proto as pb;
use thalweg_proto::attr_value::{ListValue, Value};
use thalweg_tensor::{DType, PartialShape, Shape, Tensor};

/// Ops for which TensorFlow's number is not ours, with the reason.
const DIFFERENT: &[(&str, &str)] = &[
    ("ArgMax", "a comparison for each element; TensorFlow subtracts the number of results"),
    ("ArgMin", "as ArgMax"),
    ("AvgPool", "as MaxPool"),
    ("AvgPoolGrad", "its loop is not vectorized; TensorFlow counts two operations"),
    ("BatchMatMul", "TensorFlow takes the wrong inner dimension if adj_x is set"),
    ("BatchMatMulV2", "as BatchMatMul"),
    ("BiasAddGrad", "as Sum"),
    ("Conv2DBackpropInput", "TensorFlow counts windows beyond the border if padding is VALID"),
    ("Dilation2D", "its loop is not vectorized; TensorFlow counts two operations"),
    ("L2Loss", "a multiplication and an addition; TensorFlow counts three operations"),
    ("Log", "the cost of a polynomial; TensorFlow counts one operation"),
    ("MaxPool", "runs at a lower rate than products; TensorFlow counts one operation"),
    ("MaxPoolGrad", "its loop is not vectorized; TensorFlow counts one operation"),
    ("Pow", "the cost of two polynomials; TensorFlow counts one operation"),
    ("Softmax", "the cost of an exponential; TensorFlow counts five operations in all"),
    ("Sum", "an addition for each element; TensorFlow subtracts the number of results"),
];

#[test]
fn flops_of_tensorflow() {
    let registry = op_registry(FAMILIES).unwrap();
    let mut differs: BTreeMap<&str, bool> = BTreeMap::new();
    for line in include_str!("work_tensorflow.txt").lines().filter(|l| !l.starts_with('#')) {
        let case = Case::parse(&registry, line);
        let is_equal = case.work().flops == case.flops;
        *differs.entry(line.split_once('(').unwrap().0).or_default() |= !is_equal;
        println!("{line}, ours {}", case.work().flops);
    }
    let differs: Vec<&str> =
        differs.iter().filter(|(_, differs)| **differs).map(|(op, _)| *op).collect();
    let expected: Vec<&str> = DIFFERENT.iter().map(|(op, _)| *op).collect();
    assert_eq!(differs, expected);
}

#[test]
fn flops_by_hand() {
    let registry = op_registry(FAMILIES).unwrap();
    for (line, reason) in [
        ("MatMul(float[3,5], float[5,7]) = 210", "2 * 3 * 5 * 7"),
        ("MatMul(float[?,5], float[5,7]) = 2240", "an unknown size is 32"),
        ("MatMul(complex64[3,5], complex64[5,7]) = 840", "four times the real operations"),
        ("SparseMatMul(float[3,5], float[5,7]; Ta=float; Tb=float) = 210", "as MatMul"),
        ("BatchMatMulV2(float[4,8,16,32], float[4,8,32,16]) = 524288", "32 products 16 * 32 * 16"),
        ("BatchMatMulV2(float[4,8,16,32], float[4,8,16,32]; adj_y=true) = 524288", "q k^T"),
        (
            "SparseTensorDenseMatMul(int64[9,2], float[9], int64=[3,5], float[5,7]) = 3780",
            "2 * 9 * 7, at a thirtieth of the rate of products",
        ),
        ("Einsum(float[2,3,4], float[2,4,5]; N=2; equation=bij,bjk->bik) = 240", "2 * 2*3*4*5"),
        (
            "Einsum(float[2,16,8,64], float[2,16,8,64]; N=2; equation=bthd,bshd->bhts) = 524288",
            "scores of attention: 2 * 2*16*8*64*16",
        ),
        ("Einsum(float[9,2,3], float[3,5]; N=2; equation=...ij,jk->...ik) = 540", "9 products"),
        ("Einsum(float[3,4]; N=1; equation=ij->i) = 12", "a sum"),
        (
            "Conv2D(float[1,5,5,2], float[3,3,2,4]; strides=1,1,1,1; padding=SAME) = 3600",
            "100 numbers of 2 * 3*3*2",
        ),
        (
            "Conv2D(float[1,2,5,5], float[3,3,2,4]; strides=1,1,1,1; padding=SAME; data_format=NCHW) \
          = 3600",
            "the layout makes no difference",
        ),
        (
            "Conv2DBackpropInput(int32=[1,5,5,2], float[3,3,2,4], float[1,3,3,4]; strides=1,1,1,1; \
          padding=VALID) = 1296",
            "36 numbers of 2 * 3*3*2",
        ),
        (
            "Conv2DBackpropFilter(float[1,5,5,2], int32=[3,3,2,4], float[1,3,3,4]; strides=1,1,1,1; \
          padding=VALID) = 1296",
            "36 numbers of 2 * 3*3*2",
        ),
        (
            "Conv3D(float[1,4,4,4,2], float[2,2,2,2,3]; strides=1,2,2,2,1; padding=SAME) = 768",
            "24 numbers of 2 * 2*2*2*2",
        ),
        (
            "Conv3DBackpropFilterV2(float[1,4,4,4,2], int32=[2,2,2,2,3], float[1,2,2,2,3]; \
          strides=1,2,2,2,1; padding=SAME) = 768",
            "as forward",
        ),
        (
            "DepthwiseConv2dNativeBackpropFilter(float[1,5,5,2], int32=[3,3,2,2], float[1,5,5,4]; \
          strides=1,1,1,1; padding=SAME) = 21600",
            "100 numbers of 2 * 3*3, at a twelfth of the rate",
        ),
        (
            "MaxPool(float[1,4,4,3]; ksize=1,2,2,1; strides=1,2,2,1; padding=VALID) = 192",
            "12 * 4, at a fourth of the rate",
        ),
        (
            "BlockLSTM(int64[], float[20,8,5], float[8,7], float[8,7], float[12,28], float[7], \
          float[7], float[7], float[28]) = 331520",
            "160 * (2 * 12 * 28 + 200 * 7)",
        ),
        ("Cholesky(float[4,30,30]) = 216000", "4 * 30^3 / 3, at a sixth of the rate"),
        (
            "MatrixSolve(float[30,30], float[30,5]) = 162000",
            "30^3 * 2/3 + 2 * 30 * 150, at a sixth of the rate",
        ),
        ("FFT(complex64[10,64]) = 46080", "10 * 12 * 64 * 6"),
        ("Sum(float[30,50], int32=[1]) = 1500", "an addition for each element of the input"),
        ("Concat(int32=0, float[3,4], float[5,4]; N=2) = 0", "moves"),
        ("Reshape(float[3,4], int32=[12]) = 0", "passes on"),
        ("Tanh(float[10]) = 600", "10 polynomials"),
        ("Tanh(double[10]) = 4800", "one at a time"),
        (
            "ResourceApplyMomentum(resource[], resource[], float[], float[30,50], float[]) = 6000",
            "four operations for each element of the gradient",
        ),
    ] {
        let case = Case::parse(&registry, line);
        assert_eq!(case.work().flops, case.flops, "{line}: {reason}");
    }
}

#[test]
fn bytes_and_seconds() {
    let registry = op_registry(FAMILIES).unwrap();
    for (line, bytes) in [
        ("AddV2(float[30,50], float[50]) = 0", 4.0 * (1500.0 + 50.0 + 1500.0)),
        ("Reshape(float[3,4], int32=[12]) = 0", 0.0),
        ("GatherV2(float[1000,8], int32[10], int32=0) = 0", 2.0 * 320.0),
        ("Slice(float[10,8], int32=[0,0], int32=[10,4]) = 0", 2.0 * 160.0),
        ("Slice(float[10,8], int32=[2,0], int32=[5,8]) = 0", 0.0),
        ("Split(int32=0, float[10,8]; num_split=2) = 0", 0.0),
        ("Split(int32=1, float[10,8]; num_split=2) = 0", 2.0 * 320.0),
        // Gradient, three variables read and written, six scalars and three handles.
        (
            "ResourceApplyAdam(resource[], resource[], resource[], float[], float[], float[], float[], \
          float[], float[], float[100]) = 0",
            400.0 + 6.0 * 400.0 + 24.0 + 48.0,
        ),
        // The rows, read and written as well; not the table.
        ("ScatterAdd(float[1000,8], int32[10], float[10,8]) = 0", 3.0 * 320.0 + 40.0),
    ] {
        let case = Case::parse(&registry, line);
        assert_eq!(case.work().bytes, bytes, "{line}");
    }
    let strings = Case::parse(&registry, "StringLower(string[1000]) = 0").work();
    assert!(strings.seconds > 1e-5 && strings.seconds < 1e-3, "{strings:?}");
    let file = Case::parse(&registry, "ReadFile(string[]) = 0").work();
    assert!(file.seconds > 1e-5, "{file:?}");
}

/// A node and the flops that are expected of it:
/// `Op(dtype[size,?], dtype=[value,value], dtype=value; attr=value; attr=value,value) = flops`.
struct Case {
    graph: Graph,
    flops: f64,
}

impl Case {
    fn parse(registry: &Arc<OpRegistry>, line: &str) -> Case {
        let (call, flops) = line.rsplit_once(" = ").unwrap();
        let (name, rest) = call.trim().strip_suffix(')').unwrap().split_once('(').unwrap();
        let mut parts = rest.split("; ");
        let op = registry.get(name).unwrap();
        let mut node = pb::NodeDef { name: "op".into(), op: name.into(), ..Default::default() };
        let inputs: Vec<&str> = parts.next().unwrap().split(", ").collect();
        for part in parts {
            let (attr, value) = part.split_once('=').unwrap();
            let definition = op.attr(attr).unwrap_or_else(|| panic!("{name} has no {attr}"));
            node.attr.insert(attr.into(), attr_value(definition.kind, definition.is_list, value));
        }
        let mut def = pb::GraphDef::default();
        for (i, text) in inputs.iter().enumerate() {
            let arg =
                op.inputs.get(i).filter(|_| op.inputs.iter().all(|a| a.number_attr.is_none()));
            let (mut input, dtype) = input(text);
            if arg.is_some_and(|arg| arg.is_ref) {
                input.op = "VariableV2".into();
            }
            // The type of an argument is that of its attr, unless the case states it.
            let arg = arg.or_else(|| op.inputs.iter().find(|a| a.number_attr.is_some()));
            if let Some(thalweg_graph::ArgType::Attr(attr)) = arg.map(|arg| &arg.ty) {
                let value = pb::AttrValue { value: Some(Value::Type(dtype.to_proto())) };
                node.attr.insert(attr.clone(), value);
            }
            input.name = format!("input{i}");
            node.input.push(input.name.clone());
            def.node.push(input);
        }
        def.node.push(node);
        let graph =
            Graph::from_def(registry.clone(), def).unwrap_or_else(|e| panic!("{line}: {e}"));
        Case { graph, flops: flops.trim().parse().unwrap() }
    }

    fn work(&self) -> Work {
        WorkContext::new(&self.graph, self.graph.node(self.graph.find("op").unwrap())).work()
    }
}

fn input(text: &str) -> (pb::NodeDef, DType) {
    let mut node = pb::NodeDef::default();
    let (dtype, shape) = text.split_once(['[', '=']).unwrap();
    let dtype = DType::from_name(dtype).unwrap();
    let (attr, value) = match text.split_once('=') {
        Some((_, values)) => {
            let shape = match values.starts_with('[') {
                true => Shape::new(&[values.split(',').count()]).unwrap(),
                false => Shape::scalar(),
            };
            let values = values.trim_matches(['[', ']']).split(',');
            let tensor = match dtype {
                DType::Int32 => Tensor::from_slice(
                    shape,
                    &values.map(|v| v.parse::<i32>().unwrap()).collect::<Vec<_>>(),
                ),
                _ => Tensor::from_slice(
                    shape,
                    &values.map(|v| v.parse::<i64>().unwrap()).collect::<Vec<_>>(),
                ),
            };
            node.op = "Const".into();
            ("value", Value::Tensor(Box::new(tensor.unwrap().to_proto().unwrap())))
        }
        None => {
            let sizes = shape.trim_end_matches(']').split(',').filter(|size| !size.is_empty());
            let shape: PartialShape = PartialShape::new(sizes.map(|size| size.parse().ok()));
            node.op = "Placeholder".into();
            ("shape", Value::Shape(shape.to_proto()))
        }
    };
    node.attr.insert(attr.into(), pb::AttrValue { value: Some(value) });
    let value = Some(Value::Type(dtype.to_proto()));
    node.attr.insert("dtype".into(), pb::AttrValue { value });
    (node, dtype)
}

fn attr_value(kind: AttrKind, is_list: bool, text: &str) -> pb::AttrValue {
    let value = match kind {
        AttrKind::Int if is_list => {
            let i = text.split(',').map(|v| v.parse().unwrap()).collect();
            Value::List(Box::new(ListValue { i, ..ListValue::default() }))
        }
        AttrKind::Int => Value::I(text.parse().unwrap()),
        AttrKind::Bool => Value::B(text.to_lowercase() == "true"),
        AttrKind::String => Value::S(text.as_bytes().to_vec().into()),
        AttrKind::Type => Value::Type(DType::from_name(text).unwrap().to_proto()),
        other => panic!("no attr of kind {}", other.name()),
    };
    pb::AttrValue { value: Some(value) }
}

fn assert_finite(work: Work, what: &dyn std::fmt::Display) {
    for number in [work.flops, work.bytes, work.seconds] {
        assert!(number.is_finite() && number >= 0.0, "{what}: {work:?}");
    }
}

#[test]
fn any_op_with_any_shapes() {
    let registry = op_registry(FAMILIES).unwrap();
    let shapes = [
        PartialShape::unknown(),
        PartialShape::scalar(),
        PartialShape::new([Some(0)]),
        PartialShape::new([None, None, Some(3)]),
        PartialShape::new([Some(1 << 40), Some(1 << 20), None, None]),
        PartialShape::new([Some(7), Some(5), Some(3), Some(2)]),
    ];
    let ints = pb::AttrValue {
        value: Some(Value::List(Box::new(ListValue {
            i: vec![i64::MAX; 5],
            ..ListValue::default()
        }))),
    };
    let equation =
        |text: &str| pb::AttrValue { value: Some(Value::S(text.as_bytes().to_vec().into())) };
    for shape in &shapes {
        let mut def = pb::GraphDef::default();
        for dtype in [DType::Float, DType::String] {
            let (mut node, _) = input(&format!("{}[]", dtype.name()));
            node.name = dtype.name().into();
            let value = Some(Value::Shape(shape.to_proto()));
            node.attr.insert("shape".into(), pb::AttrValue { value });
            def.node.push(node);
        }
        let graph = Graph::from_def(registry.clone(), def).unwrap();
        let output = |shape: &PartialShape| OutputInfo {
            dtype: DType::Complex64,
            is_ref: false,
            shape: shape.clone(),
        };
        let huge = PartialShape::new(vec![Some(usize::MAX); 40]);
        let attrs = [
            Attrs::default(),
            Attrs::from_proto(
                &[("ksize".to_owned(), ints.clone()), ("equation".to_owned(), equation("...,->"))]
                    .into(),
            ),
            Attrs::from_proto(
                &[("equation".to_owned(), equation("a...bcdefgh,ijk...lmn->z"))].into(),
            ),
        ];
        for name in registry.names() {
            let op = registry.get(name).unwrap();
            for count in [0, 1, 2, 3, 5, 9] {
                for (attrs, out) in attrs.iter().zip([shape, &huge, &shapes[1]]) {
                    let mut node = graph.node(graph.find("float").unwrap()).clone();
                    let producers = ["float", "string", "float"].iter().cycle().take(count);
                    node.inputs = producers
                        .map(|name| Endpoint { node: graph.find(name).unwrap(), index: 0 })
                        .collect();
                    (node.op, node.attrs) = (op.clone(), attrs.clone());
                    node.outputs = (0..count.min(3)).map(|_| output(out)).collect();
                    assert_finite(WorkContext::new(&graph, &node).work(), &name);
                }
            }
        }
    }
}

#[test]
fn recorded_graphs() {
    let registry = op_registry(FAMILIES).unwrap();
    let mut seen = 0;
    for case in cases::cases() {
        // Cases that TensorFlow refuses may not import.
        let Ok(graph) = Graph::from_def(registry.clone(), cases::graph_of(&case)) else { continue };
        for id in graph.ids() {
            let node = graph.node(id);
            // Without the bound that `WorkContext::work` adds.
            let work = (node.op.work)(&WorkContext::new(&graph, node));
            assert_finite(work, &format!("{} in {}", node.op.name, case["id"]));
            if node.op.role.is_interpreted() {
                assert_eq!(work, Work::default(), "{}: a kernel does not run", node.op.name);
            }
            seen += 1;
        }
    }
    assert!(seen > 10_000, "{seen}");
}
