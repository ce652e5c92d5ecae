//! The object graph of TensorFlow 2 checkpoints (`TrackableObjectGraph`).
//!
//! TensorFlow 2 saves a graph of objects with the tensors: each object's children by name, and the
//! checkpoint key of each variable's value. A program that builds its objects again finds their
//! values by traversing that graph along with its own.

use prost::Message;
use thalweg_proto::TrackableObjectGraph;
use thalweg_proto::google::protobuf::BoolValue;
use thalweg_proto::trackable_object_graph::TrackableObject;
use thalweg_proto::trackable_object_graph::trackable_object::{
    ObjectReference, SerializedTensor, SlotVariableReference,
};
use thalweg_tensor::{Result, Tensor, ensure, err};

use super::{BundleReader, data_path};

/// The name of the string tensor that holds the object graph.
pub const KEY: &str = "_CHECKPOINTABLE_OBJECT_GRAPH";
/// The attribute name of a variable's value.
pub const VALUE: &str = "VARIABLE_VALUE";

/// The object graph of a checkpoint, if it has one.
pub fn read(reader: &BundleReader) -> Result<Option<TrackableObjectGraph>> {
    let Some(entry) = reader.entry(KEY) else { return Ok(None) };
    let path = data_path(reader.prefix(), entry.shard, reader.shards());
    let broken = |what: String| err!(DataLoss, "{path}: the object graph is invalid: {what}");
    let tensor = reader.read(KEY)?;
    let [text] = tensor.strings()? else {
        return Err(broken(format!("{tensor:?} is not one string")));
    };
    let graph = TrackableObjectGraph::decode(text.clone()).map_err(|e| broken(e.to_string()))?;
    check(&graph).map_err(|e| broken(e.message().to_owned()))?;
    Ok(Some(graph))
}

/// Fails if an object refers to one that does not exist.
fn check(graph: &TrackableObjectGraph) -> Result<()> {
    let count = graph.nodes.len();
    for (i, node) in graph.nodes.iter().enumerate() {
        let children = node.children.iter().map(|child| child.node_id);
        let slots = node.slot_variables.iter();
        let slots = slots.flat_map(|s| [s.original_variable_node_id, s.slot_variable_node_id]);
        for id in children.chain(slots) {
            let is_there = usize::try_from(id).is_ok_and(|id| id < count);
            ensure!(is_there, DataLoss, "object {i} of {count} refers to object {id}");
        }
    }
    Ok(())
}

/// An object graph under construction. Object 0 is the root.
#[derive(Clone, Debug)]
pub struct ObjectGraph {
    nodes: Vec<TrackableObject>,
}

impl Default for ObjectGraph {
    fn default() -> Self {
        ObjectGraph { nodes: vec![TrackableObject::default()] }
    }
}

impl ObjectGraph {
    /// The child of `parent` called `name`; added if there is none.
    pub fn child(&mut self, parent: usize, name: &str) -> Result<usize> {
        let new = self.nodes.len();
        let holder = self.node(parent)?;
        if let Some(child) = holder.children.iter().find(|child| child.local_name == name) {
            return Ok(child.node_id as usize);
        }
        let node_id =
            i32::try_from(new).map_err(|_| err!(ResourceExhausted, "too many objects"))?;
        holder.children.push(ObjectReference { node_id, local_name: name.to_owned() });
        self.nodes.push(TrackableObject::default());
        Ok(new)
    }

    fn node(&mut self, id: usize) -> Result<&mut TrackableObject> {
        self.nodes.get_mut(id).ok_or_else(|| err!(Internal, "there is no object {id}"))
    }

    /// The object at a path of names from the root.
    pub fn at(&mut self, path: &[&str]) -> Result<usize> {
        path.iter().try_fold(0, |parent, name| self.child(parent, name))
    }

    /// Adds a variable at a path; returns the checkpoint key of its value. `full_name` is the
    /// variable's own name.
    pub fn variable(&mut self, path: &[&str], full_name: &str) -> Result<String> {
        let id = self.at(path)?;
        let key = format!("{}/.ATTRIBUTES/{VALUE}", joined(path));
        self.give_value(id, &key, full_name)?;
        Ok(key)
    }

    /// Adds a slot variable of an optimizer; returns the checkpoint key of its value.
    pub fn slot(
        &mut self,
        optimizer: &[&str],
        variable: &[&str],
        slot: &str,
        full_name: &str,
    ) -> Result<String> {
        let (holder, original) = (self.at(optimizer)?, self.at(variable)?);
        let key = format!(
            "{}/.OPTIMIZER_SLOT/{}/{}/.ATTRIBUTES/{VALUE}",
            joined(variable),
            joined(optimizer),
            escaped(slot)
        );
        let id = self.nodes.len();
        let number =
            |id: usize| i32::try_from(id).map_err(|_| err!(ResourceExhausted, "too many objects"));
        let reference = SlotVariableReference {
            original_variable_node_id: number(original)?,
            slot_name: slot.to_owned(),
            slot_variable_node_id: number(id)?,
        };
        self.nodes.push(TrackableObject::default());
        self.node(holder)?.slot_variables.push(reference);
        self.give_value(id, &key, full_name)?;
        Ok(key)
    }

    fn give_value(&mut self, id: usize, key: &str, full_name: &str) -> Result<()> {
        let node = self.node(id)?;
        ensure!(
            node.attributes.is_empty(),
            InvalidArgument,
            "the object '{key}' has a value already"
        );
        node.attributes.push(SerializedTensor {
            name: VALUE.to_owned(),
            full_name: full_name.to_owned(),
            checkpoint_key: key.to_owned(),
        });
        Ok(())
    }

    /// The message.
    pub fn to_proto(&self) -> TrackableObjectGraph {
        let mut nodes = self.nodes.clone();
        let mut has_values: Vec<bool> = nodes
            .iter()
            .map(|node| !node.attributes.is_empty() || !node.slot_variables.is_empty())
            .collect();
        // A child has a larger number than its parent.
        for id in (0..nodes.len()).rev() {
            let holds = nodes[id].children.iter().any(|child| has_values[child.node_id as usize]);
            has_values[id] |= holds;
        }
        for (node, value) in nodes.iter_mut().zip(has_values) {
            node.has_checkpoint_values = Some(BoolValue { value });
        }
        TrackableObjectGraph { nodes }
    }

    /// The tensor that a checkpoint holds under [`KEY`].
    pub fn to_tensor(&self) -> Tensor {
        Tensor::scalar_string(self.to_proto().encode_to_vec())
    }
}

/// The names of a path, separated by `/`.
fn joined(path: &[&str]) -> String {
    path.iter().map(|name| escaped(name)).collect::<Vec<_>>().join("/")
}

/// A name with the separator escaped.
fn escaped(name: &str) -> String {
    name.replace('.', "..").replace('/', ".S")
}
