//! Graphs and SavedModels.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value as Json, json};
use thalweg_formats::storage::join;
use thalweg_proto::{self as pb, Codec};
use thalweg_tensor::{Bytes, DType, PartialShape, Result, err};

use super::{Description, bytes_text, count, tensors};
use crate::checkpoint::source::storage;
use crate::{files, graph_file};

/// The maximum size of a protobuf message.
const BYTES_MAX: usize = i32::MAX as usize;

/// A GraphDef, binary or text: the last kind that is tried.
pub(super) fn file(path: &str) -> Result<Description> {
    let bytes = files::read(Path::new(path), BYTES_MAX)?;
    if let Some((model, form)) = decode_model(&bytes) {
        let mut description = Description::new("SavedModel");
        describe_model(&mut description, &model, form);
        description.note =
            Some("variables and assets are in its folder; pass the folder".to_owned());
        return Ok(description);
    }
    let meta = pb::MetaGraphDef::decode_from(&mut bytes.clone()).ok();
    if let Some(meta) = meta.filter(|m| m.graph_def.as_ref().is_some_and(|g| !g.node.is_empty())) {
        let mut description = Description::new("MetaGraphDef");
        describe_meta(&mut description, &meta);
        description.summary = format!("binary, {}", summary(meta.graph_def.as_ref()));
        description.is_verified = true;
        return Ok(description);
    }
    let form =
        if pb::GraphDef::decode_from(&mut bytes.clone()).is_ok() { "binary" } else { "text" };
    let graph = graph_file::decode(&bytes).map_err(|e| {
        e.map_message(|m| format!("{path} is of unknown kind; read as a graph: {m}"))
    })?;
    let mut description = Description::new("GraphDef");
    description.summary =
        format!("{form}, {}, {}", summary(Some(&graph)), bytes_text(bytes.len() as u64));
    describe_graph(&mut description, &graph);
    description.fact("form", form);
    description.is_verified = true;
    Ok(description)
}

fn decode_model(bytes: &Bytes) -> Option<(pb::SavedModel, &'static str)> {
    let is_model = |model: &pb::SavedModel| {
        model.saved_model_schema_version > 0 && !model.meta_graphs.is_empty()
    };
    if let Some(model) = pb::SavedModel::decode_from(&mut bytes.clone()).ok().filter(is_model) {
        return Some((model, "binary"));
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let model = pb::text::decode::<pb::SavedModel>("tensorflow.SavedModel", text).ok()?;
    is_model(&model).then_some((model, "text"))
}

fn summary(graph: Option<&pb::GraphDef>) -> String {
    let nodes = graph.map_or(0, |g| g.node.len());
    let functions = graph.and_then(|g| g.library.as_ref()).map_or(0, |l| l.function.len());
    format!("{}, {}", count(nodes, "node"), count(functions, "function"))
}

fn describe_graph(description: &mut Description, graph: &pb::GraphDef) {
    let mut ops = BTreeMap::new();
    for node in &graph.node {
        *ops.entry(node.op.as_str()).or_insert(0usize) += 1;
    }
    for node in graph.node.iter().filter(|node| node.op.starts_with("Placeholder")).take(20) {
        description.lines.push(format!("takes {}: {}", node.name, placeholder(node)));
    }
    description.fact("nodes", graph.node.len());
    description.fact("functions", graph.library.as_ref().map_or(0, |l| l.function.len()));
    description.fact("producer", graph.versions.as_ref().map_or(0, |v| v.producer));
    description.fact("ops", json!(ops));
}

fn placeholder(node: &pb::NodeDef) -> String {
    use pb::attr_value::Value;
    let dtype = match node.attr.get("dtype").and_then(|a| a.value.as_ref()) {
        Some(Value::Type(number)) => *number,
        _ => 0,
    };
    let shape = match node.attr.get("shape").and_then(|a| a.value.as_ref()) {
        Some(Value::Shape(shape)) => Some(shape),
        _ => None,
    };
    kind(dtype, shape)
}

/// A dtype and a shape as text.
fn kind(dtype: i32, shape: Option<&pb::TensorShapeProto>) -> String {
    let dtype = DType::from_proto(dtype).map_or("unknown dtype", DType::name);
    match shape.map(PartialShape::from_proto) {
        Some(Ok(shape)) => format!("{dtype} {shape}"),
        _ => dtype.to_owned(),
    }
}

fn describe_model(description: &mut Description, model: &pb::SavedModel, form: &str) {
    let graphs = count(model.meta_graphs.len(), "graph");
    let is_v2 = model.meta_graphs.iter().any(|m| m.object_graph_def.is_some());
    let version = if is_v2 { 2 } else { 1 };
    description.summary = format!("version {version}, {form}, {graphs}");
    description.fact("version", version);
    description.fact("form", form);
    let listed: Vec<Json> =
        model.meta_graphs.iter().map(|m| describe_meta(description, m)).collect();
    description.fact("graphs", listed);
    description.is_verified = true;
}

/// Adds the description of a MetaGraph with tags and signatures; returns it as JSON.
fn describe_meta(description: &mut Description, meta: &pb::MetaGraphDef) -> Json {
    let info = meta.meta_info_def.as_ref();
    let tags = info.map_or(&[][..], |info| &info.tags);
    let by = info.map_or("", |info| info.tensorflow_version.as_str());
    let by = if by.is_empty() { String::new() } else { format!(", written by TensorFlow {by}") };
    description.lines.push(format!(
        "graph [{}]: {}{by}",
        tags.join(", "),
        summary(meta.graph_def.as_ref())
    ));
    let mut signatures = BTreeMap::new();
    for (name, signature) in &meta.signature_def {
        // Internal to TensorFlow.
        if name.starts_with("__saved_model_init_op") {
            continue;
        }
        description.lines.push(format!("  signature {name} ({})", signature.method_name));
        let mut side = |word: &str, infos: &BTreeMap<String, pb::TensorInfo>| -> Json {
            let mut all = BTreeMap::new();
            for (key, info) in infos {
                let kind = kind(info.dtype, info.tensor_shape.as_ref());
                description.lines.push(format!("    {word} {key}: {kind}"));
                all.insert(key.clone(), kind);
            }
            json!(all)
        };
        let inputs = side("takes", &signature.inputs);
        let outputs = side("gives", &signature.outputs);
        signatures.insert(name.clone(), json!({"inputs": inputs, "outputs": outputs}));
    }
    let objects = meta.object_graph_def.as_ref().map(|graph| graph.nodes.len());
    json!({
        "tags": tags, "signatures": signatures, "objects": objects,
        "nodes": meta.graph_def.as_ref().map_or(0, |g| g.node.len()),
        "assets": meta.asset_file_def.iter().map(|asset| &asset.filename).collect::<Vec<_>>(),
    })
}

/// A SavedModel folder: graphs, variables and assets.
pub(super) fn saved_model(folder: &str, path: &str, verify: bool) -> Result<Description> {
    let bytes = files::read(Path::new(path), BYTES_MAX)?;
    let (model, form) =
        decode_model(&bytes).ok_or_else(|| err!(DataLoss, "{path} is not a SavedModel"))?;
    let mut description = Description::new("SavedModel");
    describe_model(&mut description, &model, form);
    add_variables(&mut description, folder, &model, verify)?;
    let assets: Vec<&str> = model
        .meta_graphs
        .iter()
        .flat_map(|m| &m.asset_file_def)
        .map(|asset| asset.filename.as_str())
        .collect();
    for asset in &assets {
        let asset = join(&join(folder, "assets"), asset);
        if !storage().exists(&asset)? {
            description.problems.push(format!("the asset {asset} is missing"));
        }
    }
    if !assets.is_empty() {
        description.summary += &format!(", {}", count(assets.len(), "asset"));
    }
    description.is_verified = verify;
    Ok(description)
}

fn add_variables(
    description: &mut Description,
    folder: &str,
    model: &pb::SavedModel,
    verify: bool,
) -> Result<()> {
    let prefix = join(folder, "variables/variables");
    let has_variables = storage().exists(&join(folder, "variables"))?;
    match tensors::checkpoint(&prefix, verify) {
        Ok(variables) => {
            description.summary += &format!(", variables: {}", variables.summary);
            description.problems.extend(variables.problems);
            description.fact("variables", Json::Object(variables.facts));
        }
        Err(e) if has_variables => description.problem(&e),
        Err(_) => {
            let needs = model.meta_graphs.iter().filter_map(|m| m.graph_def.as_ref());
            let needs = needs
                .flat_map(|g| &g.node)
                .find(|n| matches!(n.op.as_str(), "VarHandleOp" | "VariableV2" | "Variable"));
            match needs {
                Some(node) => description.problems.push(format!(
                    "the graph has variables ({} is one) and {prefix}.index is missing",
                    node.name
                )),
                None => description.summary += ", no variables",
            }
        }
    }
    Ok(())
}

/// A folder of numbered SavedModel folders, as model servers take it.
pub(super) fn versions(folder: &str, versions: &[&String], verify: bool) -> Result<Description> {
    let mut description = Description::new("folder of a served model");
    description.summary = count(versions.len(), "version");
    description.is_verified = verify;
    for version in versions {
        let inner = join(folder, version);
        match saved_model(&inner, &join(&inner, "saved_model.pb"), verify) {
            Ok(one) => {
                description.lines.push(format!("{version}: {}", one.summary));
                description.problems.extend(one.problems);
            }
            Err(e) => description.problem(&e),
        }
    }
    description.fact("versions", json!(versions));
    Ok(description)
}
