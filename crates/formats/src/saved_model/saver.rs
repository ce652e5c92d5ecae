//! Save and restore ops of a graph's variables.

use std::collections::BTreeMap;

use prost::Message;
use thalweg_proto::{self as pb, attr_value::Value};
use thalweg_tensor::{Bytes, DType, Result, Shape, Tensor, err};

use crate::checkpoint::object_graph::{self, ObjectGraph};

/// The attribute of a variable's node whose value is local state of a run and is not saved.
pub const RUN_STATE_ATTR: &str = "_run_state";
/// The attribute of a partition's node that names the whole variable.
pub const SLICE_OF_ATTR: &str = "_slice_of";
/// The attribute of a partition's node with its slice, in the notation of `SaveV2`.
pub const SLICE_ATTR: &str = "_slice";

/// The checkpoint format version of a SaverDef.
const CHECKPOINT_V2: i32 = 2;

/// The nodes that were added to a graph.
pub(super) struct Saver {
    /// How to save and restore.
    pub(super) def: pb::SaverDef,
    /// The variables collection.
    pub(super) variables: Vec<pb::VariableDef>,
}

/// Adds save and restore ops; `None` if the graph has no variables.
pub(super) fn add(graph: &mut pb::GraphDef) -> Result<Option<Saver>> {
    let mut objects = ObjectGraph::default();
    let variables = variables(graph, &mut objects)?;
    if variables.is_empty() {
        return Ok(None);
    }
    let initializers = initializers(graph);
    let mut nodes = Nodes { scope: free_scope(graph, "save"), nodes: Vec::new() };
    let filename = nodes.filename()?;
    nodes.save(&filename, &variables, &objects)?;
    nodes.restore(&filename, &variables)?;
    let defs = variables.iter().enumerate().map(|(i, variable)| pb::VariableDef {
        variable_name: format!("{}:0", variable.name),
        initializer_name: initializers
            .get(&variable.name)
            .cloned()
            .unwrap_or_else(|| nodes.name(&format!("Assign_{i}"))),
        snapshot_name: format!("{}:0", nodes.name(&format!("Read_{i}"))),
        is_resource: variable.is_resource,
        trainable: true,
        ..Default::default()
    });
    let saver = Saver {
        variables: defs.collect(),
        def: pb::SaverDef {
            filename_tensor_name: format!("{filename}:0"),
            save_tensor_name: format!("{}:0", nodes.name("control_dependency")),
            restore_op_name: nodes.name("restore_all"),
            version: CHECKPOINT_V2,
            ..Default::default()
        },
    };
    graph.node.append(&mut nodes.nodes);
    Ok(Some(saver))
}

/// Adds ops that restore from the checkpoint named by the tensor `filename`; returns the target.
pub(super) fn add_restore(
    graph: &mut pb::GraphDef,
    filename: &str,
    variables: &[Variable],
) -> Result<String> {
    let mut nodes = Nodes { scope: free_scope(graph, "restore"), nodes: Vec::new() };
    nodes.restore(filename, variables)?;
    graph.node.append(&mut nodes.nodes);
    Ok(nodes.name("restore_all"))
}

/// A name scope that no node uses.
fn free_scope(graph: &pb::GraphDef, name: &str) -> String {
    let is_free = |scope: &str| {
        let begin = format!("{scope}/");
        !graph.node.iter().any(|n| n.name == scope || n.name.starts_with(&begin))
    };
    let mut scope = name.to_owned();
    for i in 1.. {
        if is_free(&scope) {
            break;
        }
        scope = format!("{name}_{i}");
    }
    scope
}

/// A variable of a graph.
pub(super) struct Variable {
    /// The name of its node.
    pub(super) name: String,
    /// Its checkpoint key.
    pub(super) key: String,
    pub(super) dtype: i32,
    pub(super) is_resource: bool,
}

/// The variables; the components of their names become nested objects.
fn variables(graph: &pb::GraphDef, objects: &mut ObjectGraph) -> Result<Vec<Variable>> {
    let mut found = Vec::new();
    for node in &graph.node {
        let is_resource = match node.op.as_str() {
            "VarHandleOp" => true,
            "VariableV2" | "Variable" => false,
            _ => continue,
        };
        if node.attr.contains_key(RUN_STATE_ATTR) {
            continue;
        }
        let Some(Value::Type(dtype)) = node.attr.get("dtype").and_then(|a| a.value.as_ref()) else {
            return Err(err!(InvalidArgument, "variable '{}' has no dtype", node.name));
        };
        let path: Vec<&str> = node.name.split('/').collect();
        let key = objects.variable(&path, &node.name)?;
        found.push(Variable { name: node.name.clone(), key, dtype: *dtype, is_resource });
    }
    Ok(found)
}

/// The first assignment to each variable: its initializer.
fn initializers(graph: &pb::GraphDef) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for node in &graph.node {
        if matches!(node.op.as_str(), "Assign" | "AssignVariableOp")
            && let Some(variable) = node.input.first()
        {
            let variable = variable.strip_suffix(":0").unwrap_or(variable);
            found.entry(variable.to_owned()).or_insert_with(|| node.name.clone());
        }
    }
    found
}

struct Nodes {
    scope: String,
    nodes: Vec<pb::NodeDef>,
}

impl Nodes {
    fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.scope)
    }

    fn add(
        &mut self,
        name: &str,
        op: &str,
        input: Vec<String>,
        attrs: Vec<(&str, Value)>,
    ) -> String {
        let name = self.name(name);
        let attr =
            |(name, value): (&str, Value)| (name.to_owned(), pb::AttrValue { value: Some(value) });
        self.nodes.push(pb::NodeDef {
            name: name.clone(),
            op: op.to_owned(),
            input,
            attr: attrs.into_iter().map(attr).collect(),
            ..Default::default()
        });
        name
    }

    fn constant(&mut self, name: &str, value: &Tensor) -> Result<String> {
        let attrs = vec![
            ("dtype", Value::Type(value.dtype().to_proto())),
            ("value", Value::Tensor(Box::new(value.to_proto()?))),
        ];
        Ok(self.add(name, "Const", Vec::new(), attrs))
    }

    fn strings(&mut self, name: &str, texts: Vec<String>) -> Result<String> {
        let shape = Shape::new(&[texts.len()])?;
        let value = Tensor::from_strings(shape, texts.into_iter().map(Bytes::from).collect())?;
        self.constant(name, &value)
    }

    fn filename(&mut self) -> Result<String> {
        let default = self.constant("Const/input", &Tensor::scalar_string("model"))?;
        let attrs = vec![
            ("dtype", Value::Type(DType::String.to_proto())),
            ("shape", Value::Shape(pb::TensorShapeProto::default())),
        ];
        Ok(self.add("Const", "PlaceholderWithDefault", vec![default], attrs))
    }

    fn save(
        &mut self,
        filename: &str,
        variables: &[Variable],
        objects: &ObjectGraph,
    ) -> Result<()> {
        let objects = Tensor::scalar_string(objects.to_proto().encode_to_vec());
        let objects = self.constant("object_graph", &objects)?;
        let (mut names, mut tensors, mut dtypes) = (Vec::new(), Vec::new(), Vec::new());
        for (i, variable) in variables.iter().enumerate() {
            let (op, attr) =
                if variable.is_resource { ("ReadVariableOp", "dtype") } else { ("Identity", "T") };
            let attrs = vec![(attr, Value::Type(variable.dtype))];
            tensors.push(self.add(&format!("Read_{i}"), op, vec![variable.name.clone()], attrs));
            names.push(variable.key.clone());
            dtypes.push(variable.dtype);
        }
        tensors.push(objects);
        names.push(object_graph::KEY.to_owned());
        dtypes.push(DType::String.to_proto());
        let slices = vec![String::new(); names.len()];
        let names = self.strings("SaveV2/tensor_names", names)?;
        let slices = self.strings("SaveV2/shape_and_slices", slices)?;
        let mut inputs = vec![filename.to_owned(), names, slices];
        inputs.append(&mut tensors);
        let saved = self.add("SaveV2", "SaveV2", inputs, vec![("dtypes", types(dtypes))]);
        let inputs = vec![filename.to_owned(), format!("^{saved}")];
        let attrs = vec![("T", Value::Type(DType::String.to_proto()))];
        self.add("control_dependency", "Identity", inputs, attrs);
        Ok(())
    }

    fn restore(&mut self, filename: &str, variables: &[Variable]) -> Result<()> {
        let names = variables.iter().map(|v| v.key.clone()).collect();
        let names = self.strings("RestoreV2/tensor_names", names)?;
        let slices = vec![String::new(); variables.len()];
        let slices = self.strings("RestoreV2/shape_and_slices", slices)?;
        let dtypes = types(variables.iter().map(|v| v.dtype).collect());
        let inputs = vec![filename.to_owned(), names, slices];
        let restored = self.add("RestoreV2", "RestoreV2", inputs, vec![("dtypes", dtypes)]);
        let mut assigned = Vec::new();
        for (i, variable) in variables.iter().enumerate() {
            let inputs = vec![variable.name.clone(), format!("{restored}:{i}")];
            let (op, attrs) = if variable.is_resource {
                ("AssignVariableOp", vec![("dtype", Value::Type(variable.dtype))])
            } else {
                let beside = Bytes::from(format!("loc:@{}", variable.name));
                let beside = pb::attr_value::ListValue { s: vec![beside], ..Default::default() };
                let attrs = vec![
                    ("T", Value::Type(variable.dtype)),
                    ("_class", Value::List(Box::new(beside))),
                ];
                ("Assign", attrs)
            };
            assigned.push(format!("^{}", self.add(&format!("Assign_{i}"), op, inputs, attrs)));
        }
        self.add("restore_all", "NoOp", assigned, Vec::new());
        Ok(())
    }
}

fn types(dtypes: Vec<i32>) -> Value {
    Value::List(Box::new(pb::attr_value::ListValue { r#type: dtypes, ..Default::default() }))
}
