//! A SavedModel larger than 2 GB, with its weights in the graph: read once, copied nowhere.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use prost::Message;
use thalweg_proto::{self as pb, attr_value::Value, tensor_info::Encoding};
use thalweg_runtime::{LoadOptions, SavedModel};
use thalweg_tensor::{Bytes, DType, PartialShape, Shape, Tensor};

/// Floats of each weight, an odd number so that hardly any lies aligned in the file.
const FLOATS: usize = 115_000_001;
const WEIGHTS: usize = 5;

fn attr(name: &str, value: Value) -> (String, pb::AttrValue) {
    (name.to_owned(), pb::AttrValue { value: Some(value) })
}

fn node(name: &str, op: &str, input: &[&str], attrs: Vec<(String, pb::AttrValue)>) -> pb::NodeDef {
    pb::NodeDef {
        name: name.to_owned(),
        op: op.to_owned(),
        input: input.iter().map(|&i| i.to_owned()).collect(),
        attr: attrs.into_iter().collect(),
        ..Default::default()
    }
}

fn info(tensor: &str, dtype: DType) -> pb::TensorInfo {
    pb::TensorInfo {
        dtype: dtype.to_proto(),
        tensor_shape: Some(PartialShape::unknown().to_proto()),
        encoding: Some(Encoding::Name(tensor.to_owned())),
    }
}

/// Gathers row `x` of every weight and sums them.
fn model() -> pb::SavedModel {
    let float = || Value::Type(DType::Float.to_proto());
    let int = || Value::Type(DType::Int32.to_proto());
    let content =
        Bytes::from([1.5f32.to_le_bytes(), 2.5f32.to_le_bytes()].concat().repeat(FLOATS / 2 + 1));
    let mut nodes = vec![node("x", "Placeholder", &[], vec![attr("dtype", int())])];
    let axis = Tensor::scalar(0i32).to_proto().unwrap();
    let axis = vec![attr("dtype", int()), attr("value", Value::Tensor(Box::new(axis)))];
    nodes.push(node("axis", "Const", &[], axis));
    let mut sum = None;
    for i in 0..WEIGHTS {
        let tensor = pb::TensorProto {
            dtype: DType::Float.to_proto(),
            tensor_shape: Some(Shape::new(&[FLOATS]).unwrap().to_proto()),
            tensor_content: content.slice(..4 * FLOATS),
            ..Default::default()
        };
        let (weight, row, total) = (format!("w{i}"), format!("row{i}"), format!("sum{i}"));
        let attrs = vec![attr("dtype", float()), attr("value", Value::Tensor(Box::new(tensor)))];
        nodes.push(node(&weight, "Const", &[], attrs));
        let attrs = vec![attr("Tparams", float()), attr("Tindices", int()), attr("Taxis", int())];
        nodes.push(node(&row, "GatherV2", &[&weight, "x", "axis"], attrs));
        let before = sum.replace(total.clone()).unwrap_or_else(|| row.clone());
        nodes.push(node(&total, "AddV2", &[&before, &row], vec![attr("T", float())]));
    }
    let signature = pb::SignatureDef {
        inputs: [("x".to_owned(), info("x:0", DType::Int32))].into(),
        outputs: [("y".to_owned(), info(&format!("{}:0", sum.unwrap()), DType::Float))].into(),
        ..Default::default()
    };
    let meta = pb::MetaGraphDef {
        graph_def: Some(pb::GraphDef { node: nodes, ..Default::default() }),
        signature_def: [("s".to_owned(), signature)].into(),
        ..Default::default()
    };
    pb::SavedModel { saved_model_schema_version: 1, meta_graphs: vec![meta] }
}

fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
#[ignore = "writes and reads 2.3 GB"]
fn weights_are_read_once() {
    let folder = std::env::temp_dir().join(format!("thalweg-large-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("saved_model.pb"), model().encode_to_vec()).unwrap();
    let size = 4 * FLOATS * WEIGHTS;
    assert!(size > i32::MAX as usize);
    // Sets the peak back to what is in use now.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let families = thalweg_ops::FAMILIES;
    let registries =
        (thalweg_ops::op_registry(families).unwrap(), thalweg_ops::kernel_registry(families));
    let path = folder.to_str().unwrap();
    let model = SavedModel::load(path, &[], registries, LoadOptions::default()).unwrap();
    for (x, expected) in [(0, 9.0), (FLOATS as i32 - 2, 15.0)] {
        let outputs = model.run("s", &[("x", Tensor::scalar(x))]).unwrap();
        assert_eq!(outputs["y"].scalar_value::<f32>().unwrap(), expected);
    }
    let peak = peak_bytes();
    std::fs::remove_dir_all(folder).unwrap();
    assert!(peak < size + size / 8, "{peak} bytes at most for a model of {size}");
}
