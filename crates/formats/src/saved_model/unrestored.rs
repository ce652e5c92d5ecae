//! Variables that a model's functions use and that its saver does not restore.
//!
//! If a program keeps variables within objects of its own, as Keras 3 does, `tf.saved_model.save`
//! writes a graph whose saver restores unused copies. TensorFlow's Python loader is not affected:
//! it uses the object graphs of model and checkpoint. So does this module, for these variables.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use thalweg_proto::{self as pb, saved_object::Kind};
use thalweg_tensor::Result;

use super::captures;
use super::meta_graph::node_of;
use super::saver::Variable;
use crate::checkpoint::{BundleReader, object_graph};
use crate::storage::Storage;

/// The variables with their keys in the checkpoint `prefix`.
pub(super) fn find(
    meta: &pb::MetaGraphDef,
    restore_op: &str,
    storage: &Arc<dyn Storage>,
    prefix: &str,
) -> Result<Vec<Variable>> {
    let (Some(objects), Some(graph)) = (&meta.object_graph_def, &meta.graph_def) else {
        return Ok(Vec::new());
    };
    let forgotten = forgotten(meta, objects, graph, restore_op);
    if forgotten.is_empty() {
        return Ok(Vec::new());
    }
    let Some(saved) = object_graph::read(&BundleReader::open(storage, prefix)?)? else {
        return Ok(Vec::new());
    };
    let keys = keys(objects, &saved);
    let variable = |(id, (name, dtype)): (i32, (String, i32))| {
        let key = keys.get(&id)?.clone();
        Some(Variable { name, key, dtype, is_resource: true })
    };
    Ok(forgotten.into_iter().filter_map(variable).collect())
}

/// The nodes and dtypes of the variables, by object number.
fn forgotten(
    meta: &pb::MetaGraphDef,
    objects: &pb::SavedObjectGraph,
    graph: &pb::GraphDef,
    restore_op: &str,
) -> BTreeMap<i32, (String, i32)> {
    let handles: BTreeSet<&str> =
        graph.node.iter().filter(|n| n.op == "VarHandleOp").map(|n| n.name.as_str()).collect();
    let restored = graph.node.iter().filter(|n| n.name == restore_op).flat_map(|n| &n.input);
    let restored: BTreeSet<&str> = restored.map(|input| node_of(input)).collect();
    let mut found = BTreeMap::new();
    for (id, tensor) in captures::find(meta, objects, graph) {
        let object = usize::try_from(id).ok().and_then(|id| objects.nodes.get(id));
        let Some(Kind::Variable(variable)) = object.and_then(|o| o.kind.as_ref()) else { continue };
        let node = node_of(&tensor);
        if handles.contains(node) && !restored.contains(node) {
            found.insert(id, (node.to_owned(), variable.dtype));
        }
    }
    found
}

/// Checkpoint keys by the object numbers of the model, found by traversing both object graphs
/// together.
fn keys(objects: &pb::SavedObjectGraph, saved: &pb::TrackableObjectGraph) -> BTreeMap<i32, String> {
    let mut keys = BTreeMap::new();
    let mut seen = BTreeSet::from([0]);
    let mut pending = VecDeque::from([(0, 0)]);
    while let Some((id, saved_id)) = pending.pop_front() {
        let object = usize::try_from(id).ok().and_then(|id| objects.nodes.get(id));
        let beside = usize::try_from(saved_id).ok().and_then(|id| saved.nodes.get(id));
        let (Some(object), Some(beside)) = (object, beside) else { continue };
        if let Some(value) = beside.attributes.iter().find(|a| a.name == object_graph::VALUE) {
            keys.insert(id, value.checkpoint_key.clone());
        }
        let children: BTreeMap<&str, i32> =
            beside.children.iter().map(|c| (c.local_name.as_str(), c.node_id)).collect();
        for child in &object.children {
            if let Some(&saved_child) = children.get(child.local_name.as_str())
                && seen.insert(child.node_id)
            {
                pending.push_back((child.node_id, saved_child));
            }
        }
    }
    keys
}
