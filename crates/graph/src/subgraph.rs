//! Extraction of subgraphs as functions.
//!
//! Bodies of branches and loops, and gradients of functions, are built as nodes of a graph and then
//! written as a `FunctionDef`. A tensor from outside of the subgraph becomes an argument; a
//! constant or variable handle is copied into the function instead.

use std::collections::BTreeMap;
use std::hash::Hasher;

use rustc_hash::{FxHashMap, FxHasher};
use thalweg_proto::{self as pb, Codec};
use thalweg_tensor::{DType, PartialShape, Result, bail, ensure, err};

use crate::{AttrValue, Flag, Graph, IntoAttr, Node, NodeId, Output, Role};

/// Nodes of a graph that are extracted as a function.
#[derive(Clone, Default)]
pub(crate) struct Subgraph {
    nodes: Vec<(NodeId, Node)>,
    inside: FxHashMap<NodeId, usize>,
}

/// An argument or a result of a function.
#[derive(Clone)]
pub(crate) struct FunctionArg {
    /// The tensor that the argument replaces or that the function returns. An argument without one
    /// is unused; a result without one is a dummy.
    pub(crate) tensor: Option<Output>,
    pub(crate) dtype: DType,
    pub(crate) shape: PartialShape,
}

impl FunctionArg {
    pub(crate) fn of(graph: &Graph, tensor: Output) -> FunctionArg {
        let info = graph.output(tensor);
        FunctionArg { tensor: Some(tensor), dtype: info.dtype, shape: info.shape.clone() }
    }

    /// The same argument without a tensor.
    pub(crate) fn unbound(&self) -> FunctionArg {
        FunctionArg { tensor: None, ..self.clone() }
    }
}

/// Whether a function gets a copy of this node instead of its output as an argument.
fn is_copied(node: &Node) -> bool {
    node.inputs.is_empty() && matches!(node.role(), Role::Const | Role::VarHandle)
}

fn is_interface(node: &Node) -> bool {
    matches!(node.role(), Role::Arg | Role::Retval)
}

impl Subgraph {
    /// The nodes `ids` of `graph`, except `_Arg` and `_Retval`.
    pub(crate) fn of(graph: &Graph, ids: impl IntoIterator<Item = NodeId>) -> Subgraph {
        let mut subgraph = Subgraph::default();
        for id in ids {
            if !is_interface(graph.node(id)) {
                subgraph.inside.insert(id, subgraph.nodes.len());
                subgraph.nodes.push((id, graph.node(id).clone()));
            }
        }
        subgraph
    }

    /// Replaces inputs of the nodes.
    pub(crate) fn replace_inputs(&mut self, by: &FxHashMap<Output, Output>) {
        for input in self.nodes.iter_mut().flat_map(|(_, node)| &mut node.inputs) {
            if let Some(&other) = by.get(input) {
                *input = other;
            }
        }
    }

    /// Adds the nodes of another subgraph.
    pub(crate) fn append(&mut self, other: Subgraph) {
        for (id, node) in other.nodes {
            self.inside.insert(id, self.nodes.len());
            self.nodes.push((id, node));
        }
    }

    fn contains(&self, id: NodeId) -> bool {
        self.inside.contains_key(&id)
    }

    /// The captures: tensors from outside that the nodes read or `results` contains, in the order
    /// of their first use, except those in `given` and those that are copied.
    pub(crate) fn captures(
        &self,
        graph: &Graph,
        given: &[Output],
        results: &[Output],
    ) -> Vec<Output> {
        let mut found = Vec::new();
        let inputs = self.nodes.iter().flat_map(|(_, node)| &node.inputs);
        for &e in inputs.chain(results) {
            let is_outside = !self.contains(e.node) && !is_copied(graph.node(e.node));
            if is_outside && !given.contains(&e) && !found.contains(&e) {
                found.push(e);
            }
        }
        found
    }

    /// Nodes outside of the subgraph with a control edge to one of its nodes.
    pub(crate) fn control_captures(&self) -> Vec<NodeId> {
        let mut found: Vec<NodeId> =
            self.nodes.iter().flat_map(|(_, n)| n.control_inputs.clone()).collect();
        found.retain(|&id| !self.contains(id));
        found.sort();
        found.dedup();
        found
    }

    /// Whether a node is stateful.
    pub(crate) fn is_stateful(&self) -> bool {
        self.nodes.iter().any(|(_, node)| node.op.has(Flag::Stateful))
    }

    /// The function from `args` to `results`. `graph` is the graph of the captured tensors.
    pub(crate) fn to_function(
        &self,
        graph: &Graph,
        args: &[FunctionArg],
        results: &[FunctionArg],
    ) -> Result<pb::FunctionDef> {
        let mut writer = Writer::new(self, graph);
        for arg in args {
            writer.arg(arg);
        }
        for (_, node) in &self.nodes {
            writer.node(node)?;
        }
        for result in results {
            writer.result(result)?;
        }
        Ok(writer.def)
    }
}

/// A `FunctionDef` under construction.
struct Writer<'a> {
    subgraph: &'a Subgraph,
    graph: &'a Graph,
    /// A prefix that no node's name has.
    prefix: String,
    given: FxHashMap<Output, String>,
    copied: BTreeMap<NodeId, String>,
    def: pb::FunctionDef,
    signature_len: (usize, usize),
}

impl<'a> Writer<'a> {
    fn new(subgraph: &'a Subgraph, graph: &'a Graph) -> Writer<'a> {
        let mut prefix = "arg".to_owned();
        while subgraph.nodes.iter().any(|(_, node)| node.name.starts_with(&prefix)) {
            prefix.push('_');
        }
        let def = pb::FunctionDef { signature: Some(pb::OpDef::default()), ..Default::default() };
        Writer {
            subgraph,
            graph,
            prefix,
            given: FxHashMap::default(),
            copied: BTreeMap::new(),
            def,
            signature_len: (0, 0),
        }
    }

    fn signature(&mut self) -> &mut pb::OpDef {
        self.def.signature.get_or_insert_default()
    }

    fn arg(&mut self, function_arg: &FunctionArg) {
        let index = self.signature_len.0;
        self.signature_len.0 += 1;
        let name = format!("{}{index}", self.prefix);
        self.signature().input_arg.push(pb::op_def::ArgDef {
            name: name.clone(),
            r#type: function_arg.dtype.to_proto(),
            ..Default::default()
        });
        let shapes = (&[function_arg.shape.clone()][..]).into_attr().to_proto();
        let mut attrs = pb::function_def::ArgAttrs::default();
        attrs.attr.insert("_output_shapes".to_owned(), shapes);
        self.def.arg_attr.insert(index as u32, attrs);
        if let Some(tensor) = function_arg.tensor {
            self.given.entry(tensor).or_insert(name);
        }
    }

    fn node(&mut self, node: &Node) -> Result<()> {
        let mut input = Vec::with_capacity(node.inputs.len() + node.control_inputs.len());
        for &e in &node.inputs {
            input.push(self.tensor(e)?);
        }
        for &id in node.control_inputs.iter().filter(|&&id| self.subgraph.contains(id)) {
            input.push(format!("^{}", self.inside(id)?.name));
        }
        self.push(node, node.name.to_string(), input);
        if node.op.has(Flag::Stateful) {
            let name = format!("effect{}", self.def.control_ret.len());
            self.def.control_ret.insert(name.clone(), node.name.to_string());
            let signature = self.signature();
            signature.control_output.push(name);
            signature.is_stateful = true;
        }
        Ok(())
    }

    fn push(&mut self, node: &Node, name: String, input: Vec<String>) {
        self.def.node_def.push(pb::NodeDef {
            name,
            op: node.op.name.clone(),
            input,
            device: node.device.to_string(),
            attr: node.attrs.to_proto(),
            ..Default::default()
        });
    }

    fn inside(&self, id: NodeId) -> Result<&'a Node> {
        let position = self.subgraph.inside.get(&id);
        let position = position.ok_or_else(|| err!(Internal, "a node is not in its function"))?;
        Ok(&self.subgraph.nodes[*position].1)
    }

    /// The name of a tensor within the function.
    fn tensor(&mut self, e: Output) -> Result<String> {
        if let Some(name) = self.given.get(&e) {
            return Ok(name.clone());
        }
        if self.subgraph.contains(e.node) {
            let node = self.inside(e.node)?;
            return output_name(node, &node.name, e.index);
        }
        let node = self.graph.node(e.node);
        ensure!(
            is_copied(node),
            Internal,
            "'{}' is neither a node nor an argument of the function",
            node.name
        );
        let name = match self.copied.get(&e.node) {
            Some(name) => name.clone(),
            None => {
                let name = format!("{}_copy{}", self.prefix, self.copied.len());
                self.copied.insert(e.node, name.clone());
                self.push(node, name.clone(), Vec::new());
                name
            }
        };
        output_name(node, &name, e.index)
    }

    fn result(&mut self, function_arg: &FunctionArg) -> Result<()> {
        let index = self.signature_len.1;
        self.signature_len.1 += 1;
        let source = match function_arg.tensor {
            Some(tensor) => self.tensor(tensor)?,
            None => self.unused(function_arg),
        };
        let name = format!("result{index}");
        self.signature().output_arg.push(pb::op_def::ArgDef {
            name: name.clone(),
            r#type: function_arg.dtype.to_proto(),
            ..Default::default()
        });
        self.def.ret.insert(name, source);
        Ok(())
    }

    /// A `FakeParam` of the result's type and shape.
    fn unused(&mut self, function_arg: &FunctionArg) -> String {
        let name = format!("{}_unused{}", self.prefix, self.signature_len.1);
        let shape = AttrValue::from(&function_arg.shape).to_proto();
        self.def.node_def.push(pb::NodeDef {
            name: name.clone(),
            op: "FakeParam".to_owned(),
            attr: BTreeMap::from([
                ("dtype".to_owned(), function_arg.dtype.into_attr().to_proto()),
                ("shape".to_owned(), shape),
            ]),
            ..Default::default()
        });
        format!("{name}:output:0")
    }
}

/// `node:argument:index`: the name of a tensor in function bodies.
fn output_name(node: &Node, name: &str, index: u32) -> Result<String> {
    let index = index as usize;
    for arg in &node.op.outputs {
        let range = node.output_range(&arg.name)?;
        if range.contains(&index) {
            return Ok(format!("{name}:{}:{}", arg.name, index - range.start));
        }
    }
    bail!(Internal, "'{name}' has no output {index}")
}

/// Adds a function to a graph's library. Its name is `base` and a hash of its content, so equal
/// functions are stored once and libraries of graphs with a common origin can be merged.
pub(crate) fn add_function(graph: &mut Graph, base: &str, def: pb::FunctionDef) -> Result<String> {
    let mut hasher = FxHasher::default();
    hasher.write(&def.to_bytes());
    let name = format!("{base}_{:016x}", hasher.finish());
    let mut def = def;
    def.signature.get_or_insert_default().name = name.clone();
    graph
        .library_mut()
        .extend(pb::FunctionDefLibrary { function: vec![def], ..Default::default() })?;
    Ok(name)
}
