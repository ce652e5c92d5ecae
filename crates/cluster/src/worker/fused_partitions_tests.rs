//! Partitions into which a TensorFlow master's optimizer has put fused ops, run by a worker of ours.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use thalweg_kernel::Cancellation;
use thalweg_ops::{FAMILIES, kernel_registry, op_registry, unfuse};
use thalweg_proto::{self as pb, attr_value};
use thalweg_tensor::Tensor;

use crate::member::Member;
use crate::task::{Task, TaskOptions};
use crate::worker::Worker;

const DEVICE: &str = "/job:local/replica:0/task:0/device:CPU:0";

fn worker() -> Arc<Worker> {
    let options = TaskOptions { rewrite: Some(unfuse), ..Default::default() };
    let task = Task::new(options, op_registry(FAMILIES).unwrap(), kernel_registry(FAMILIES));
    Arc::new(Worker::new(Member::standalone(Arc::new(task))))
}

fn attr(value: attr_value::Value) -> pb::AttrValue {
    pb::AttrValue { value: Some(value) }
}

fn text(value: &str) -> pb::AttrValue {
    attr(attr_value::Value::S(value.as_bytes().to_vec().into()))
}

fn float() -> pb::AttrValue {
    attr(attr_value::Value::Type(pb::DataType::DtFloat as i32))
}

fn int(value: i64) -> pb::AttrValue {
    attr(attr_value::Value::I(value))
}

fn boolean(value: bool) -> pb::AttrValue {
    attr(attr_value::Value::B(value))
}

fn ints(values: &[i64]) -> pb::AttrValue {
    let list = attr_value::ListValue { i: values.to_vec(), ..Default::default() };
    attr(attr_value::Value::List(Box::new(list)))
}

fn strings(values: &[&str]) -> pb::AttrValue {
    let s = values.iter().map(|word| word.as_bytes().to_vec().into()).collect();
    attr(attr_value::Value::List(Box::new(attr_value::ListValue { s, ..Default::default() })))
}

fn node(name: &str, op: &str, input: &[&str], attrs: &[(&str, pb::AttrValue)]) -> pb::NodeDef {
    pb::NodeDef {
        name: name.into(),
        op: op.into(),
        input: input.iter().map(|&i| i.to_owned()).collect(),
        device: DEVICE.into(),
        attr: attrs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        ..Default::default()
    }
}

/// A constant with numbers that are neither all positive nor all alike.
fn constant(name: &str, dims: &[i64], first: f32) -> pb::NodeDef {
    let count: i64 = dims.iter().product();
    let dim = |&size: &i64| pb::tensor_shape_proto::Dim { size, ..Default::default() };
    let tensor = pb::TensorProto {
        dtype: pb::DataType::DtFloat as i32,
        tensor_shape: Some(pb::TensorShapeProto {
            dim: dims.iter().map(dim).collect(),
            ..Default::default()
        }),
        float_val: (0..count).map(|i| first + ((i * 7) % 11) as f32 * 0.25).collect(),
        ..Default::default()
    };
    let value = attr(attr_value::Value::Tensor(Box::new(tensor)));
    node(name, "Const", &[], &[("dtype", float()), ("value", value)])
}

/// Registers and runs a graph as a master does; returns the values of `fetches`.
fn run(
    worker: &Arc<Worker>,
    step: i64,
    mut nodes: Vec<pb::NodeDef>,
    fetches: &[&str],
) -> Vec<Tensor> {
    let incarnation = worker.task().incarnation;
    let key = |i: usize| format!("{DEVICE};{incarnation:016x};{DEVICE};edge_{i};0:0");
    for (i, tensor) in fetches.iter().enumerate() {
        let attrs = [
            ("T", float()),
            ("tensor_name", text(&format!("edge_{i}"))),
            ("send_device", text(DEVICE)),
            ("send_device_incarnation", int(incarnation.cast_signed())),
            ("recv_device", text(DEVICE)),
            ("client_terminated", boolean(false)),
        ];
        nodes.push(node(&format!("send_{i}"), "_Send", &[tensor], &attrs));
    }
    let versions = pb::VersionDef { producer: thalweg_graph::GRAPH_VERSION, ..Default::default() };
    let graph = pb::GraphDef { node: nodes, versions: Some(versions), ..Default::default() };
    let request = pb::RegisterGraphRequest { graph_def: Some(graph), ..Default::default() };
    let graph_handle = worker.register_graph(request).unwrap().graph_handle;
    let request = pb::RunGraphRequest {
        graph_handle,
        step_id: step,
        request_id: step,
        recv_key: (0..fetches.len()).map(key).collect(),
        ..Default::default()
    };
    let (sender, receiver) = mpsc::channel();
    worker.run_graph(&request, Vec::new(), None, &Cancellation::default(), move |ran| {
        let _ = sender.send(ran.map(|ran| ran.received));
    });
    let received = receiver.recv_timeout(Duration::from_secs(20)).unwrap().unwrap();
    received.into_iter().map(|(_, tensor)| tensor).collect()
}

/// Both graphs give the same numbers, bit by bit; some of them are not zero.
fn assert_same(fused: Vec<pb::NodeDef>, plain: Vec<pb::NodeDef>, fetches: &[(&str, &str)]) {
    let worker = worker();
    let first: Vec<&str> = fetches.iter().map(|(fused, _)| *fused).collect();
    let second: Vec<&str> = fetches.iter().map(|(_, plain)| *plain).collect();
    let (got, expected) = (run(&worker, 1, fused, &first), run(&worker, 2, plain, &second));
    assert_eq!((got.len(), expected.len()), (fetches.len(), fetches.len()));
    for ((got, expected), (name, _)) in got.iter().zip(&expected).zip(fetches) {
        let (got, expected) = (got.as_slice::<f32>().unwrap(), expected.as_slice::<f32>().unwrap());
        assert_eq!(got, expected, "{name}");
        assert!(got.iter().any(|x| *x != 0.0), "{name} is all zeros");
    }
}

fn normalization_inputs() -> Vec<pb::NodeDef> {
    vec![
        constant("x", &[2, 3, 3, 4], -1.5),
        constant("scale", &[4], 0.5),
        constant("offset", &[4], -0.75),
        constant("mean", &[4], 0.1),
        constant("variance", &[4], 0.5),
        constant("side", &[2, 3, 3, 4], -0.5),
    ]
}

#[test]
fn fused_batch_norm_with_add_and_activation() {
    let inputs = ["x", "scale", "offset", "mean", "variance", "side"];
    for (is_training, has_side, has_relu) in
        [(true, true, true), (false, true, true), (false, false, true), (true, true, false)]
    {
        let attrs = vec![
            ("T", float()),
            ("U", float()),
            ("epsilon", attr(attr_value::Value::F(0.01))),
            ("data_format", text("NHWC")),
            ("is_training", boolean(is_training)),
        ];
        let more = [
            ("num_side_inputs", int(i64::from(has_side))),
            ("activation_mode", text(if has_relu { "Relu" } else { "Identity" })),
        ];
        let mut fused = normalization_inputs();
        let taken = &inputs[..5 + usize::from(has_side)];
        fused.push(node("n", "_FusedBatchNormEx", taken, &[&attrs[..], &more].concat()));
        let mut plain = normalization_inputs();
        plain.push(node("y0", "FusedBatchNormV3", &inputs[..5], &attrs));
        let mut last = "y0";
        if has_side {
            plain.push(node("y1", "AddV2", &[last, "side"], &[("T", float())]));
            last = "y1";
        }
        if has_relu {
            plain.push(node("y2", "Relu", &[last], &[("T", float())]));
            last = "y2";
        }
        // Outputs 1 and 2 are the batch statistics.
        assert_same(fused, plain, &[("n", last), ("n:1", "y0:1"), ("n:2", "y0:2")]);
    }
}

#[test]
fn fused_depthwise_convolution_with_bias_and_activation() {
    let inputs = || {
        vec![
            constant("x", &[2, 5, 5, 3], -1.25),
            constant("filter", &[3, 3, 3, 2], -0.5),
            constant("bias", &[6], -0.5),
        ]
    };
    let attrs = [
        ("T", float()),
        ("strides", ints(&[1, 2, 2, 1])),
        ("dilations", ints(&[1, 1, 1, 1])),
        ("padding", text("SAME")),
        ("explicit_paddings", ints(&[])),
        ("data_format", text("NHWC")),
    ];
    for activation in [None, Some("Relu"), Some("Relu6"), Some("Elu")] {
        let ops: Vec<&str> = std::iter::once("BiasAdd").chain(activation).collect();
        let more = [
            ("num_args", int(1)),
            ("fused_ops", strings(&ops)),
            ("epsilon", attr(attr_value::Value::F(0.0))),
        ];
        let mut fused = inputs();
        let taken = ["x", "filter", "bias"];
        let all = [&attrs[..], &more].concat();
        fused.push(node("c", "_FusedDepthwiseConv2dNative", &taken, &all));
        let mut plain = inputs();
        plain.push(node("y0", "DepthwiseConv2dNative", &["x", "filter"], &attrs));
        let of_bias = [("T", float()), ("data_format", text("NHWC"))];
        plain.push(node("y1", "BiasAdd", &["y0", "bias"], &of_bias));
        if let Some(activation) = activation {
            plain.push(node("y2", activation, &["y1"], &[("T", float())]));
        }
        let last = if activation.is_some() { "y2" } else { "y1" };
        assert_same(fused, plain, &[("c", last)]);
    }
}
