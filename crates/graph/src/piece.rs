//! Parts of graphs as functions.
//!
//! Bodies of branches and loops, and gradients of functions, are built as nodes of some graph and
//! then written down as a `FunctionDef`. What they read that is not among them is either given as
//! an argument or, where it is a source without inputs, copied.

use std::collections::BTreeMap;
use std::hash::Hasher;

use prost::Message;
use rustc_hash::{FxHashMap, FxHasher};
use thalweg_proto as pb;
use thalweg_tensor::{DType, PartialShape, Result, bail, ensure, err};

use crate::{AttrValue, Flag, Graph, IntoAttr, Node, NodeId, Output, Role};

/// Nodes that are to become a function.
#[derive(Clone, Default)]
pub(crate) struct Piece {
    nodes: Vec<(NodeId, Node)>,
    inside: FxHashMap<NodeId, usize>,
}

/// An argument or a result of a function.
#[derive(Clone)]
pub(crate) struct Slot {
    /// The tensor that the argument stands for or that the result is; an argument without one is
    /// not looked at, a result without one is never used.
    pub(crate) tensor: Option<Output>,
    pub(crate) dtype: DType,
    pub(crate) shape: PartialShape,
}

impl Slot {
    pub(crate) fn of(graph: &Graph, tensor: Output) -> Slot {
        let info = graph.output(tensor);
        Slot { tensor: Some(tensor), dtype: info.dtype, shape: info.shape.clone() }
    }

    /// The same slot where nothing is known of its tensor.
    pub(crate) fn foreign(&self) -> Slot {
        Slot { tensor: None, ..self.clone() }
    }
}

/// Whether a function has this node anew instead of getting its output as an argument.
fn is_copied(node: &Node) -> bool {
    node.inputs.is_empty() && matches!(node.role(), Role::Const | Role::VarHandle)
}

fn is_interface(node: &Node) -> bool {
    matches!(node.role(), Role::Arg | Role::Retval)
}

impl Piece {
    /// These nodes of `graph`, without its arguments and results.
    pub(crate) fn of(graph: &Graph, ids: impl IntoIterator<Item = NodeId>) -> Piece {
        let mut piece = Piece::default();
        for id in ids {
            if !is_interface(graph.node(id)) {
                piece.inside.insert(id, piece.nodes.len());
                piece.nodes.push((id, graph.node(id).clone()));
            }
        }
        piece
    }

    /// Lets the nodes read other tensors in the place of some that are outside.
    pub(crate) fn replace_inputs(&mut self, by: &FxHashMap<Output, Output>) {
        for input in self.nodes.iter_mut().flat_map(|(_, node)| &mut node.inputs) {
            if let Some(&other) = by.get(input) {
                *input = other;
            }
        }
    }

    /// Takes other nodes in.
    pub(crate) fn append(&mut self, other: Piece) {
        for (id, node) in other.nodes {
            self.inside.insert(id, self.nodes.len());
            self.nodes.push((id, node));
        }
    }

    fn contains(&self, id: NodeId) -> bool {
        self.inside.contains_key(&id)
    }

    /// Tensors outside that the nodes or `results` are made of, by first use; those in `given` and
    /// those that are copied are not among them.
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

    /// Nodes outside that the nodes wait for.
    pub(crate) fn control_captures(&self) -> Vec<NodeId> {
        let mut found: Vec<NodeId> =
            self.nodes.iter().flat_map(|(_, n)| n.control_inputs.clone()).collect();
        found.retain(|&id| !self.contains(id));
        found.sort();
        found.dedup();
        found
    }

    /// Whether running it has effects, or depends on more than its arguments.
    pub(crate) fn is_stateful(&self) -> bool {
        self.nodes.iter().any(|(_, node)| node.op.has(Flag::Stateful))
    }

    /// The function from `args` to `results`. `graph` has the tensors outside.
    pub(crate) fn to_function(
        &self,
        graph: &Graph,
        args: &[Slot],
        results: &[Slot],
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

/// A function on its way to be written down.
struct Writer<'a> {
    piece: &'a Piece,
    graph: &'a Graph,
    /// A name that no node's begins with.
    prefix: String,
    given: FxHashMap<Output, String>,
    copied: BTreeMap<NodeId, String>,
    def: pb::FunctionDef,
    signature_len: (usize, usize),
}

impl<'a> Writer<'a> {
    fn new(piece: &'a Piece, graph: &'a Graph) -> Writer<'a> {
        let mut prefix = "arg".to_owned();
        while piece.nodes.iter().any(|(_, node)| node.name.starts_with(&prefix)) {
            prefix.push('_');
        }
        let def = pb::FunctionDef { signature: Some(pb::OpDef::default()), ..Default::default() };
        Writer {
            piece,
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

    fn arg(&mut self, slot: &Slot) {
        let index = self.signature_len.0;
        self.signature_len.0 += 1;
        let name = format!("{}{index}", self.prefix);
        self.signature().input_arg.push(pb::op_def::ArgDef {
            name: name.clone(),
            r#type: slot.dtype.to_proto(),
            ..Default::default()
        });
        let shapes = (&[slot.shape.clone()][..]).into_attr().to_proto();
        let mut attrs = pb::function_def::ArgAttrs::default();
        attrs.attr.insert("_output_shapes".to_owned(), shapes);
        self.def.arg_attr.insert(index as u32, attrs);
        if let Some(tensor) = slot.tensor {
            self.given.entry(tensor).or_insert(name);
        }
    }

    fn node(&mut self, node: &Node) -> Result<()> {
        let mut input = Vec::with_capacity(node.inputs.len() + node.control_inputs.len());
        for &e in &node.inputs {
            input.push(self.tensor(e)?);
        }
        for &id in node.control_inputs.iter().filter(|&&id| self.piece.contains(id)) {
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
        let position = self.piece.inside.get(&id);
        let position = position.ok_or_else(|| err!(Internal, "a node is not in its function"))?;
        Ok(&self.piece.nodes[*position].1)
    }

    /// What the function calls a tensor.
    fn tensor(&mut self, e: Output) -> Result<String> {
        if let Some(name) = self.given.get(&e) {
            return Ok(name.clone());
        }
        if self.piece.contains(e.node) {
            let node = self.inside(e.node)?;
            return output_name(node, &node.name, e.index);
        }
        let node = self.graph.node(e.node);
        ensure!(
            is_copied(node),
            Internal,
            "'{}' is neither in the function nor given to it",
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

    fn result(&mut self, slot: &Slot) -> Result<()> {
        let index = self.signature_len.1;
        self.signature_len.1 += 1;
        let source = match slot.tensor {
            Some(tensor) => self.tensor(tensor)?,
            None => self.unused(slot),
        };
        let name = format!("result{index}");
        self.signature().output_arg.push(pb::op_def::ArgDef {
            name: name.clone(),
            r#type: slot.dtype.to_proto(),
            ..Default::default()
        });
        self.def.ret.insert(name, source);
        Ok(())
    }

    /// Something of the right type, and of a shape that may be there.
    fn unused(&mut self, slot: &Slot) -> String {
        let name = format!("{}_unused{}", self.prefix, self.signature_len.1);
        let shape = AttrValue::from(&slot.shape).to_proto();
        self.def.node_def.push(pb::NodeDef {
            name: name.clone(),
            op: "FakeParam".to_owned(),
            attr: BTreeMap::from([
                ("dtype".to_owned(), slot.dtype.into_attr().to_proto()),
                ("shape".to_owned(), shape),
            ]),
            ..Default::default()
        });
        format!("{name}:output:0")
    }
}

/// `node:argument:position`, as functions name tensors.
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

/// Adds a function to a graph's library under a name made of `base` and of what it does, so that
/// the same function is there once and graphs that grew apart can be joined.
pub(crate) fn add_function(graph: &mut Graph, base: &str, def: pb::FunctionDef) -> Result<String> {
    let mut hasher = FxHasher::default();
    hasher.write(&def.encode_to_vec());
    let name = format!("{base}_{:016x}", hasher.finish());
    let mut def = def;
    def.signature.get_or_insert_default().name = name.clone();
    graph
        .library_mut()
        .extend(pb::FunctionDefLibrary { function: vec![def], ..Default::default() })?;
    Ok(name)
}
