//! Finds the tensors of the graph that correspond to a model's captured objects.
//!
//! The file does not list them for variables and tables. But the graph calls functions whose
//! captured objects are listed, in the order of the call's last inputs.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_proto::{self as pb, attr_value::Value, saved_object::Kind, tensor_info::Encoding};

/// Function call ops.
const CALLS: [&str; 2] = ["StatefulPartitionedCall", "PartitionedCall"];

/// Tensors by object number.
pub(super) fn find(
    meta: &pb::MetaGraphDef,
    objects: &pb::SavedObjectGraph,
    graph: &pb::GraphDef,
) -> BTreeMap<i32, String> {
    let mut tensors = BTreeMap::new();
    for (id, object) in (0i32..).zip(&objects.nodes) {
        let tensor = match &object.kind {
            Some(Kind::Constant(constant)) => Some(constant.operation.clone()),
            Some(Kind::Asset(asset)) => asset_tensor(meta, asset.asset_file_def_index),
            _ => None,
        };
        tensors.extend(tensor.map(|tensor| (id, tensor)));
    }
    for node in graph.node.iter().filter(|n| CALLS.contains(&n.op.as_str())) {
        let Some(Value::Func(function)) = node.attr.get("f").and_then(|a| a.value.as_ref()) else {
            continue;
        };
        let Some(called) = objects.concrete_functions.get(&function.name) else { continue };
        let inputs: Vec<&String> = node.input.iter().filter(|i| !i.starts_with('^')).collect();
        let arguments = inputs.len().saturating_sub(called.bound_inputs.len());
        for (&object, &tensor) in called.bound_inputs.iter().zip(&inputs[arguments..]) {
            tensors.entry(object).or_insert_with(|| tensor.clone());
        }
    }
    add_by_name(objects, graph, &mut tensors);
    tensors
}

fn asset_tensor(meta: &pb::MetaGraphDef, index: i32) -> Option<String> {
    let def = meta.asset_file_def.get(usize::try_from(index).ok()?)?;
    match def.tensor_info.as_ref()?.encoding.as_ref()? {
        Encoding::Name(name) => Some(name.clone()),
        _ => None,
    }
}

/// Adds variables that no call captures and that their name identifies uniquely.
fn add_by_name(
    objects: &pb::SavedObjectGraph,
    graph: &pb::GraphDef,
    tensors: &mut BTreeMap<i32, String>,
) {
    let handles: BTreeSet<&str> =
        graph.node.iter().filter(|n| n.op == "VarHandleOp").map(|n| n.name.as_str()).collect();
    let mut ids_by_name: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (id, object) in (0i32..).zip(&objects.nodes) {
        if let Some(Kind::Variable(variable)) = &object.kind {
            ids_by_name.entry(&variable.name).or_default().push(id);
        }
    }
    for (name, ids) in ids_by_name {
        if let [id] = ids[..]
            && handles.contains(name)
        {
            tensors.entry(id).or_insert_with(|| name.to_owned());
        }
    }
}
