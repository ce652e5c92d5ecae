//! Functions of a model's objects, besides its signatures.
//!
//! TensorFlow 2 saves the object graph with the functions that were traced for its objects. A
//! concrete function takes its arguments and then its captures: variables, tables, constants. The
//! graph has a tensor for each capture, which is found through calls of other functions with the
//! same captures.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use thalweg_proto::{
    self as pb, attr_value::Value, saved_object::Kind, structured_value::Kind as Structure,
    tensor_info::Encoding,
};
use thalweg_tensor::{DType, PartialShape, Result, ensure, err};

use super::captures;

/// The maximum number of visited objects; an object graph may share subtrees, and so have far more
/// paths than objects.
const OBJECTS_MAX: usize = 1 << 20;
/// The maximum number of elements of a structured argument or result.
const PARTS_MAX: usize = 1 << 16;

/// A concrete function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name in the graph's library.
    pub name: String,
    /// Its arguments with dtypes and shapes, as text.
    pub arguments: String,
}

/// The nodes of a function call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Nodes to add to the graph: a placeholder for each argument, and the call.
    pub nodes: Vec<pb::NodeDef>,
    /// The arguments and results by name.
    pub signature: pb::SignatureDef,
}

/// The functions of a model, by path and by name.
#[derive(Clone, Debug, Default)]
pub struct Functions {
    by_path: BTreeMap<String, Vec<Function>>,
    concrete: BTreeMap<String, Concrete>,
    /// Tensors of the graph that correspond to captured objects.
    captures: BTreeMap<i32, String>,
    /// The name scope of call nodes.
    scope: String,
}

/// The data needed to call a function.
#[derive(Clone, Debug)]
struct Concrete {
    definition: pb::SavedConcreteFunction,
    signature: pb::OpDef,
}

impl Functions {
    pub(super) fn of(meta: &pb::MetaGraphDef) -> Functions {
        let (Some(objects), Some(graph)) = (&meta.object_graph_def, &meta.graph_def) else {
            return Functions::default();
        };
        let library = graph.library.iter().flat_map(|l| &l.function);
        let mut concrete = BTreeMap::new();
        for signature in library.filter_map(|f| f.signature.as_ref()) {
            if let Some(definition) = objects.concrete_functions.get(&signature.name) {
                let (definition, signature) = (definition.clone(), signature.clone());
                concrete.insert(signature.name.clone(), Concrete { definition, signature });
            }
        }
        let mut scope = "functions".to_owned();
        while graph.node.iter().any(|n| n.name.starts_with(&scope)) {
            scope.push('_');
        }
        let captures = captures::find(meta, objects, graph);
        Functions { by_path: find(objects), concrete, captures, scope }
    }

    /// Functions by the path of attributes from the model.
    pub fn by_path(&self) -> &BTreeMap<String, Vec<Function>> {
        &self.by_path
    }

    /// The function with this path or name, if there is one.
    pub fn find(&self, name: &str) -> Result<Option<&str>> {
        match self.by_path.get(name).map(Vec::as_slice) {
            Some([one]) => Ok(Some(&one.name)),
            Some(several) => {
                let shown: Vec<String> =
                    several.iter().map(|f| format!("{} ({})", f.name, f.arguments)).collect();
                Err(err!(
                    InvalidArgument,
                    "'{name}' was traced for different arguments; name one of {}",
                    shown.join(", ")
                ))
            }
            None => Ok(self.concrete.get_key_value(name).map(|(name, _)| name.as_str())),
        }
    }

    /// The call of the function with this name.
    pub fn call(&self, name: &str) -> Result<Call> {
        let concrete = self
            .concrete
            .get(name)
            .ok_or_else(|| err!(NotFound, "the model has no such function"))?;
        let Concrete { definition, signature } = concrete;
        let captured = definition.bound_inputs.len();
        let count = signature.input_arg.len().checked_sub(captured).ok_or_else(|| {
            err!(InvalidArgument, "it has {captured} captures and fewer arguments")
        })?;
        let mut call = Builder::new(name, format!("{}/{name}/", self.scope));
        let specs = named(arguments(definition), count);
        for (arg, spec) in signature.input_arg[..count].iter().zip(specs) {
            call.argument(arg, spec)?;
        }
        for object in &definition.bound_inputs {
            let tensor = self.captures.get(object).cloned();
            call.inputs.push(tensor.ok_or_else(|| {
                err!(
                    Unimplemented,
                    "it captures object {object} of the model, which no signature uses; save the model \
                     with a signature for this function"
                )
            })?);
        }
        call.types("Tin", &signature.input_arg)?;
        call.types("Tout", &signature.output_arg)?;
        let specs = named(results(definition), signature.output_arg.len());
        for (i, (arg, spec)) in signature.output_arg.iter().zip(specs).enumerate() {
            call.result(i, arg, spec)?;
        }
        Ok(call.finish())
    }
}

/// Functions by the path from the model.
fn find(objects: &pb::SavedObjectGraph) -> BTreeMap<String, Vec<Function>> {
    let mut found = BTreeMap::new();
    let mut seen = BTreeSet::from([0]);
    let mut pending = VecDeque::from([(0usize, String::new())]);
    while let Some((id, path)) = pending.pop_front() {
        let Some(object) = objects.nodes.get(id) else { continue };
        let names: &[String] = match &object.kind {
            Some(Kind::Function(f)) => &f.concrete_functions,
            Some(Kind::BareConcreteFunction(f)) => std::slice::from_ref(&f.concrete_function_name),
            _ => &[],
        };
        if !names.is_empty() {
            let function = |name: &String| Function {
                name: name.clone(),
                arguments: shown_arguments(objects, name),
            };
            found.insert(path, names.iter().map(function).collect());
            continue;
        }
        for child in &object.children {
            let name = &child.local_name;
            let Ok(id) = usize::try_from(child.node_id) else { continue };
            // Attributes with a leading underscore are internal; signatures are found by themselves.
            let is_private = name.starts_with('_') && name != "__call__";
            if !is_private && name != "signatures" && seen.len() < OBJECTS_MAX && seen.insert(id) {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                pending.push_back((id, path));
            }
        }
    }
    found
}

fn shown_arguments(objects: &pb::SavedObjectGraph, name: &str) -> String {
    let specs = objects.concrete_functions.get(name).map(|f| arguments(f).unwrap_or_default());
    let shown: Vec<String> = specs.unwrap_or_default().iter().map(Spec::shown).collect();
    shown.join(", ")
}

/// The description of one tensor in a structure.
#[derive(Clone, Debug, Default)]
struct Spec {
    name: String,
    dtype: i32,
    shape: Option<pb::TensorShapeProto>,
}

impl Spec {
    fn shown(&self) -> String {
        let dtype = DType::from_proto(self.dtype).map_or("?", DType::name);
        let shape = self.shape.as_ref().and_then(|s| PartialShape::from_proto(s).ok());
        format!("{}: {dtype} {}", self.name, shape.unwrap_or_else(PartialShape::unknown))
    }
}

/// The arguments of a function, in the order of its body.
fn arguments(function: &pb::SavedConcreteFunction) -> Option<Vec<Spec>> {
    let mut specs = Vec::new();
    flatten(function.canonicalized_input_signature.as_ref()?, &mut Vec::new(), &mut |_, spec| {
        specs.push(spec);
    })?;
    Some(specs)
}

/// The results of a function; an element of a tuple is named `output_` and its index, one of a
/// dictionary by its key.
fn results(function: &pb::SavedConcreteFunction) -> Option<Vec<Spec>> {
    let mut specs = Vec::new();
    flatten(function.output_signature.as_ref()?, &mut Vec::new(), &mut |path, spec| {
        let name = match path {
            [] => "output_0".to_owned(),
            [first, rest @ ..] => {
                let first = match first.parse::<usize>() {
                    Ok(_) => format!("output_{first}"),
                    Err(_) => first.clone(),
                };
                [&[first], rest].concat().join(".")
            }
        };
        specs.push(Spec { name, ..spec });
    })?;
    Some(specs)
}

/// The specs if there are as many as tensors, else empty ones.
fn named(specs: Option<Vec<Spec>>, count: usize) -> Vec<Spec> {
    match specs {
        Some(specs) if specs.len() == count => specs,
        _ => vec![Spec::default(); count],
    }
}

/// Visits the tensors of a structure in TensorFlow's order; `None` if it contains something else
/// than tensors.
fn flatten(
    value: &pb::StructuredValue,
    path: &mut Vec<String>,
    visit: &mut dyn FnMut(&[String], Spec),
) -> Option<()> {
    let mut each = |key: String, value: &pb::StructuredValue| {
        path.push(key);
        let done = flatten(value, path, visit);
        path.pop();
        done
    };
    match value.kind.as_ref()? {
        Structure::TensorSpecValue(spec) => {
            let spec =
                Spec { name: spec.name.clone(), dtype: spec.dtype, shape: spec.shape.clone() };
            visit(path, spec);
            Some(())
        }
        Structure::ListValue(list) if list.values.len() <= PARTS_MAX => {
            list.values.iter().enumerate().try_for_each(|(i, v)| each(i.to_string(), v))
        }
        Structure::TupleValue(tuple) if tuple.values.len() <= PARTS_MAX => {
            tuple.values.iter().enumerate().try_for_each(|(i, v)| each(i.to_string(), v))
        }
        Structure::DictValue(dict) if dict.fields.len() <= PARTS_MAX => {
            dict.fields.iter().try_for_each(|(key, v)| each(key.clone(), v))
        }
        Structure::NamedTupleValue(tuple) if tuple.values.len() <= PARTS_MAX => {
            tuple.values.iter().try_for_each(|pair| each(pair.key.clone(), pair.value.as_ref()?))
        }
        // Python values that the function was traced with.
        Structure::NoneValue(_)
        | Structure::Float64Value(_)
        | Structure::Int64Value(_)
        | Structure::StringValue(_)
        | Structure::BoolValue(_) => Some(()),
        _ => None,
    }
}

/// A call under construction.
struct Builder {
    /// The name scope of its nodes.
    scope: String,
    nodes: Vec<pb::NodeDef>,
    inputs: Vec<String>,
    attrs: BTreeMap<String, pb::AttrValue>,
    signature: pb::SignatureDef,
}

impl Builder {
    fn new(name: &str, scope: String) -> Builder {
        let function = pb::NameAttrList { name: name.to_owned(), ..Default::default() };
        Builder {
            scope,
            nodes: Vec::new(),
            inputs: Vec::new(),
            attrs: BTreeMap::from([("f".to_owned(), attr(Value::Func(function)))]),
            signature: pb::SignatureDef {
                method_name: super::PREDICT_METHOD.to_owned(),
                ..Default::default()
            },
        }
    }

    fn argument(&mut self, arg: &pb::op_def::ArgDef, spec: Spec) -> Result<()> {
        let name = format!("{}argument_{}", self.scope, self.nodes.len());
        let shape = spec.shape.unwrap_or_else(|| PartialShape::unknown().to_proto());
        let attrs = [("dtype", Value::Type(arg.r#type)), ("shape", Value::Shape(shape.clone()))];
        self.nodes.push(pb::NodeDef {
            name: name.clone(),
            op: "Placeholder".to_owned(),
            attr: attrs.into_iter().map(|(name, v)| (name.to_owned(), attr(v))).collect(),
            ..Default::default()
        });
        let key = if spec.name.is_empty() { arg.name.clone() } else { spec.name };
        let info = info(format!("{name}:0"), arg.r#type, shape);
        let before = self.signature.inputs.insert(key.clone(), info);
        ensure!(before.is_none(), InvalidArgument, "two of its arguments are called '{key}'");
        self.inputs.push(name);
        Ok(())
    }

    fn types(&mut self, name: &str, args: &[pb::op_def::ArgDef]) -> Result<()> {
        for arg in args {
            let is_plain = arg.type_attr.is_empty()
                && arg.number_attr.is_empty()
                && arg.type_list_attr.is_empty();
            ensure!(is_plain, InvalidArgument, "the dtype of '{}' is left open", arg.name);
        }
        let r#type = args.iter().map(|a| a.r#type).collect();
        let list = pb::attr_value::ListValue { r#type, ..Default::default() };
        self.attrs.insert(name.to_owned(), attr(Value::List(Box::new(list))));
        Ok(())
    }

    fn result(&mut self, i: usize, arg: &pb::op_def::ArgDef, spec: Spec) -> Result<()> {
        let key = if spec.name.is_empty() { arg.name.clone() } else { spec.name };
        let shape = spec.shape.unwrap_or_else(|| PartialShape::unknown().to_proto());
        let info = info(format!("{}call:{i}", self.scope), arg.r#type, shape);
        let before = self.signature.outputs.insert(key.clone(), info);
        ensure!(before.is_none(), InvalidArgument, "two of its results are called '{key}'");
        Ok(())
    }

    fn finish(mut self) -> Call {
        self.nodes.push(pb::NodeDef {
            name: format!("{}call", self.scope),
            op: "StatefulPartitionedCall".to_owned(),
            input: self.inputs,
            attr: self.attrs,
            ..Default::default()
        });
        Call { nodes: self.nodes, signature: self.signature }
    }
}

fn info(tensor: String, dtype: i32, shape: pb::TensorShapeProto) -> pb::TensorInfo {
    pb::TensorInfo { dtype, tensor_shape: Some(shape), encoding: Some(Encoding::Name(tensor)) }
}

fn attr(value: Value) -> pb::AttrValue {
    pb::AttrValue { value: Some(value) }
}
