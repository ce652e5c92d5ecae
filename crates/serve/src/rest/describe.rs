//! Model status and metadata as JSON.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use thalweg_proto as pb;
use thalweg_proto::tensor_info::Encoding;
use thalweg_proto::tensorflow::serving;

use crate::servable::Servable;

/// The answer to a status request.
pub(super) fn status(statuses: &[serving::ModelVersionStatus]) -> String {
    let one = |status: &serving::ModelVersionStatus| {
        let found = status.status.clone().unwrap_or_default();
        json!({
            "version": status.version.to_string(),
            "state": status.state().as_str_name(),
            "status": {
                "error_code": found.error_code().as_str_name(),
                "error_message": found.error_message,
            },
        })
    };
    let list: Vec<Value> = statuses.iter().map(one).collect();
    pretty(&json!({ "model_version_status": list }))
}

/// The answer to a metadata request.
pub(super) fn metadata(servable: &Servable) -> String {
    let signatures: Map<String, Value> =
        servable.signature_defs().iter().map(|(n, s)| (n.clone(), signature(s))).collect();
    pretty(&json!({
        "model_spec": {
            "name": servable.model(),
            "signature_name": "",
            "version": servable.version().to_string(),
        },
        "metadata": { "signature_def": { "signature_def": signatures } },
    }))
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

fn signature(signature: &pb::SignatureDef) -> Value {
    let infos = |map: &BTreeMap<String, pb::TensorInfo>| {
        let infos: Map<String, Value> = map.iter().map(|(n, i)| (n.clone(), info(i))).collect();
        infos
    };
    json!({
        "inputs": infos(&signature.inputs),
        "outputs": infos(&signature.outputs),
        "method_name": signature.method_name,
        "defaults": {},
    })
}

fn info(info: &pb::TensorInfo) -> Value {
    let mut value = json!({
        "dtype": info.dtype().as_str_name(),
        "tensor_shape": shape(info.tensor_shape.as_ref()),
    });
    match &info.encoding {
        Some(Encoding::Name(name)) => value["name"] = json!(name),
        Some(Encoding::CooSparse(parts)) => {
            value["coo_sparse"] = json!({
                "values_tensor_name": parts.values_tensor_name,
                "indices_tensor_name": parts.indices_tensor_name,
                "dense_shape_tensor_name": parts.dense_shape_tensor_name,
            });
        }
        // gRPC returns the full message.
        Some(Encoding::CompositeTensor(_)) | None => {}
    }
    value
}

fn shape(shape: Option<&pb::TensorShapeProto>) -> Value {
    let Some(shape) = shape else { return json!({ "dim": [], "unknown_rank": false }) };
    let dims: Vec<Value> = shape
        .dim
        .iter()
        .map(|dim| json!({ "size": dim.size.to_string(), "name": dim.name }))
        .collect();
    json!({ "dim": dims, "unknown_rank": shape.unknown_rank })
}
