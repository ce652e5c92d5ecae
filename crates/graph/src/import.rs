//! Conversion from and to GraphDef.
//!
//! Nodes of a GraphDef are in any order. Types and shapes are inferred in topological order without
//! the back edges of loops, which are checked at the end.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use thalweg_proto as pb;
use thalweg_tensor::{Context, DType, Result, bail, ensure, err};

use crate::graph::{MessageFields, NodeExtras, arg_types, build_node, is_node_name};
use crate::op::ArgType;
use crate::rewrite::Successors;
use crate::{
    AttrValue, Attrs, Endpoint, GRAPH_VERSION, Graph, NewNode, Node, NodeId, OpRegistry, Role,
    TensorName,
};

/// Maximum number of outputs, beyond the first of each node, in one message: a number in an attr
/// takes a few bytes, the outputs that it declares take megabytes.
const MORE_OUTPUTS_MAX: usize = 1 << 22;

impl Graph {
    /// The graph in a message.
    pub fn from_def(registry: Arc<OpRegistry>, def: pb::GraphDef) -> Result<Graph> {
        let mut graph = Graph::new(registry);
        graph.message = MessageFields::default();
        graph.extend(def)?;
        Ok(graph)
    }

    /// Adds the nodes and functions of a message. On error the graph is unchanged.
    pub fn extend(&mut self, mut def: pb::GraphDef) -> Result<()> {
        let len_before = self.len();
        let library_before = self.library().clone();
        let message_before = self.message.clone();
        let nodes = std::mem::take(&mut def.node);
        let result = self.take_fields(def).and_then(|()| self.take_nodes(nodes));
        if result.is_err() {
            self.truncate(len_before);
            self.set_library(library_before);
            self.message = message_before;
        }
        result
    }

    fn take_fields(&mut self, def: pb::GraphDef) -> Result<()> {
        if let Some(versions) = def.versions {
            check_versions(&versions)?;
            self.message.versions = Some(versions);
        }
        #[expect(deprecated, reason = "old graphs have it")]
        if def.version != 0 {
            self.message.version = def.version;
        }
        if def.debug_info.is_some() {
            self.message.debug_info = def.debug_info;
        }
        if let Some(library) = def.library {
            self.message.has_library = true;
            if library != Default::default() {
                self.library_mut().extend(library)?;
            }
        }
        Ok(())
    }

    fn take_nodes(&mut self, defs: Vec<pb::NodeDef>) -> Result<()> {
        let first = self.len();
        let mut importer = Importer::new(self, defs.len());
        let (nodes, inputs) = importer.name_all(defs)?;
        let edges = importer.resolve(&nodes, inputs)?;
        let order = topological_order(first, &nodes, &edges)?;
        self.infer_in_order(first, nodes, edges, &order)
    }

    fn infer_in_order(
        &mut self,
        first: usize,
        nodes: Vec<NewNode>,
        edges: Vec<Edges>,
        order: &[NodeId],
    ) -> Result<()> {
        // All nodes are appended without types; then each gets its types in topological order.
        let mut pending: Vec<Option<NewNode>> = Vec::with_capacity(nodes.len());
        let mut bare = Vec::with_capacity(nodes.len());
        for (new, edges) in nodes.into_iter().zip(edges) {
            bare.push(Node::bare(new.name.clone(), new.op.clone()));
            pending.push(Some(NewNode {
                inputs: edges.inputs,
                control_inputs: edges.control_inputs,
                ..new
            }));
        }
        self.append_prepared(bare);
        let mut is_typed = vec![false; pending.len()];
        let mut more_outputs = 0;
        for i in order.iter().map(|id| id.index()) {
            let new = pending[i].take().expect("each node is in the order once");
            let (name, op) = (new.name.clone(), new.op.clone());
            let node = self
                .typed_node(first, new, &is_typed)
                .context(|| format!("node '{name}' ({})", op.name))?;
            more_outputs += node.outputs.len().saturating_sub(1);
            ensure!(
                more_outputs <= MORE_OUTPUTS_MAX,
                ResourceExhausted,
                "node '{name}' ({}): the graph has more than {MORE_OUTPUTS_MAX} outputs",
                op.name
            );
            *self.node_mut(NodeId((first + i) as u32)) = node;
            is_typed[i] = true;
        }
        self.check_loop_edges(first)
    }

    fn typed_node(&self, first: usize, new: NewNode, is_typed: &[bool]) -> Result<Node> {
        let mut types: SmallVec<[Option<(DType, bool)>; 4]> = SmallVec::new();
        for &input in &new.inputs {
            let source = self.node(input.node);
            if input.node.index() >= first && !is_typed[input.node.index() - first] {
                types.push(None);
                continue;
            }
            let output = source.outputs.get(input.index as usize).ok_or_else(|| {
                err!(
                    InvalidArgument,
                    "input '{}:{}' does not exist: '{}' has {} outputs",
                    source.name,
                    input.index,
                    source.name,
                    source.outputs.len()
                )
            })?;
            types.push(Some((output.dtype, output.is_ref)));
        }
        // Unlike a node under construction, one in a message must set its type attrs.
        check_signature_attrs(&new)?;
        let mut node = build_node(new, &types)?;
        self.infer_shapes(&mut node)?;
        Ok(node)
    }

    /// Checks back edges of loops, whose sources had no types when their targets were checked.
    fn check_loop_edges(&self, first: usize) -> Result<()> {
        for node in self.nodes()[first..].iter().filter(|n| n.role() == Role::Merge) {
            let expected = arg_types(&node.op.inputs, &node.attrs())?;
            for (i, (&input, (dtype, _))) in node.inputs.iter().zip(expected).enumerate() {
                let source = self.node(input.node);
                let given = source.outputs.get(input.index as usize).ok_or_else(|| {
                    err!(
                        InvalidArgument,
                        "node '{}': input '{}:{}' does not exist",
                        node.name,
                        source.name,
                        input.index
                    )
                })?;
                ensure!(
                    given.dtype == dtype,
                    InvalidArgument,
                    "node '{}' ({}): input {i} must be {dtype}, got {}",
                    node.name,
                    node.op.name,
                    given.dtype
                );
            }
        }
        Ok(())
    }

    /// TensorFlow's message; a graph from `from_def` gives an equal message, field by field.
    pub fn to_def(&self) -> pb::GraphDef {
        let message = &self.message;
        let has_library = message.has_library || !self.library().is_empty();
        #[expect(deprecated, reason = "old graphs have a version")]
        pb::GraphDef {
            node: self.nodes().iter().map(|node| self.node_def(node)).collect(),
            library: has_library.then(|| self.library().to_proto()),
            versions: message.versions.clone(),
            version: message.version,
            debug_info: message.debug_info.clone(),
        }
    }

    fn node_def(&self, node: &Node) -> pb::NodeDef {
        let input = |e: &Endpoint| match (e.index, &self.node(e.node).name) {
            (0, name) => name.to_string(),
            (index, name) => format!("{name}:{index}"),
        };
        let control = |id: &NodeId| format!("^{}", self.node(*id).name);
        let extras = node.extras.as_deref();
        pb::NodeDef {
            name: node.name.to_string(),
            op: node.op.name.clone(),
            input: node
                .inputs
                .iter()
                .map(input)
                .chain(node.control_inputs.iter().map(control))
                .collect(),
            device: node.device.to_string(),
            attr: node.attrs.to_proto(),
            experimental_debug_info: extras.and_then(|e| e.debug_info.clone()),
            experimental_type: extras.and_then(|e| e.full_type.clone()),
        }
    }
}

/// Attrs that determine types or lengths of arguments must be set; TensorFlow returns `NotFound`.
fn check_signature_attrs(new: &NewNode) -> Result<()> {
    for arg in new.op.inputs.iter().chain(&new.op.outputs) {
        let ty = match &arg.ty {
            ArgType::Attr(name) | ArgType::ListAttr(name) => Some(name),
            ArgType::Fixed(_) => None,
        };
        for name in ty.into_iter().chain(&arg.number_attr) {
            let has_default = || new.op.attr(name).is_some_and(|a| a.default.is_some());
            ensure!(
                new.attrs.get(name).is_some() || has_default(),
                NotFound,
                "No attr named '{name}' in NodeDef"
            );
        }
    }
    Ok(())
}

fn check_versions(versions: &pb::VersionDef) -> Result<()> {
    ensure!(
        versions.min_consumer <= GRAPH_VERSION,
        InvalidArgument,
        "GraphDef min consumer version {} above current version {GRAPH_VERSION}",
        versions.min_consumer
    );
    ensure!(
        !versions.bad_consumers.contains(&GRAPH_VERSION),
        InvalidArgument,
        "the GraphDef disallows consumers of version {GRAPH_VERSION}"
    );
    Ok(())
}

struct Edges {
    inputs: SmallVec<[Endpoint; 2]>,
    control_inputs: SmallVec<[NodeId; 1]>,
}

struct Importer<'a> {
    graph: &'a Graph,
    first: usize,
    by_name: FxHashMap<Arc<str>, u32>,
    /// Interned attr names and devices, which most nodes repeat.
    texts: FxHashSet<Arc<str>>,
}

impl<'a> Importer<'a> {
    fn new(graph: &'a Graph, nodes: usize) -> Self {
        let by_name = FxHashMap::with_capacity_and_hasher(nodes, Default::default());
        Importer { graph, first: graph.len(), by_name, texts: FxHashSet::default() }
    }

    fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.texts.insert(text.clone());
        text
    }

    /// Finds the ops and converts attrs; returns the nodes and the names of their inputs.
    fn name_all(&mut self, defs: Vec<pb::NodeDef>) -> Result<(Vec<NewNode>, Vec<Vec<String>>)> {
        let mut nodes = Vec::with_capacity(defs.len());
        let mut inputs = Vec::with_capacity(defs.len());
        for def in defs {
            let op = self.graph.find_op(&def.op).context(|| format!("node '{}'", def.name))?;
            let name: Arc<str> = def.name.into();
            ensure!(
                is_node_name(&name),
                InvalidArgument,
                "Node {name:?}: Node name contains invalid characters"
            );
            ensure!(
                self.graph.find(&name).is_none(),
                InvalidArgument,
                "GraphDef argument to Extend includes node '{name}', which was created by a \
                 previous call to Create or Extend in this session."
            );
            let index = (self.first + nodes.len()) as u32;
            ensure!(
                self.by_name.insert(name.clone(), index).is_none(),
                InvalidArgument,
                "Node '{name}' is not unique"
            );
            let attrs: Attrs = def
                .attr
                .into_iter()
                .map(|(n, v)| (self.intern(&n), AttrValue::from_proto(v)))
                .collect();
            let extras = (def.experimental_debug_info.is_some() || def.experimental_type.is_some())
                .then(|| {
                    Box::new(NodeExtras {
                        debug_info: def.experimental_debug_info,
                        full_type: def.experimental_type,
                    })
                });
            let device = self.intern(&def.device);
            nodes.push(NewNode { device, attrs, extras, ..NewNode::new(name, op) });
            inputs.push(def.input);
        }
        Ok((nodes, inputs))
    }

    /// Resolves the names of inputs to edges.
    fn resolve(&self, nodes: &[NewNode], inputs: Vec<Vec<String>>) -> Result<Vec<Edges>> {
        let mut all = Vec::with_capacity(nodes.len());
        for (node, inputs) in nodes.iter().zip(inputs) {
            let mut edges = Edges { inputs: SmallVec::new(), control_inputs: SmallVec::new() };
            for input in &inputs {
                let tensor =
                    TensorName::parse(input).context(|| format!("Node '{}'", node.name))?;
                let source = match self.by_name.get(tensor.node) {
                    Some(&index) => NodeId(index),
                    None => self.graph.find(tensor.node).ok_or_else(|| {
                        err!(InvalidArgument, "Node '{}': Unknown input node '{input}'", node.name)
                    })?,
                };
                if tensor.is_control {
                    edges.control_inputs.push(source);
                } else {
                    ensure!(
                        edges.control_inputs.is_empty(),
                        InvalidArgument,
                        "Node '{}': data input '{input}' stands after a control input",
                        node.name
                    );
                    edges.inputs.push(Endpoint { node: source, index: tensor.index });
                }
            }
            all.push(edges);
        }
        Ok(all)
    }
}

/// The new nodes in topological order, by position from `first`; back edges of loops do not count.
fn topological_order(first: usize, nodes: &[NewNode], edges: &[Edges]) -> Result<Vec<NodeId>> {
    let local = |id: NodeId| id.index().checked_sub(first).map(|i| NodeId(i as u32));
    let is_back_edge = |source: NodeId, target: usize| {
        nodes[source.index()].op.role == Role::NextIteration && nodes[target].op.role == Role::Merge
    };
    let successors = Successors::new(nodes.len(), |i| {
        let Edges { inputs, control_inputs } = &edges[i];
        let sources = inputs.iter().map(|e| e.node).chain(control_inputs.iter().copied());
        sources.filter_map(local).filter(move |&source| !is_back_edge(source, i))
    });
    let order = successors.topological_order();
    if order.len() < nodes.len() {
        let mut is_ordered = vec![false; nodes.len()];
        order.iter().for_each(|id| is_ordered[id.index()] = true);
        let stuck: Vec<&str> =
            (0..nodes.len()).filter(|&i| !is_ordered[i]).take(3).map(|i| &*nodes[i].name).collect();
        bail!(
            InvalidArgument,
            "the graph has a cycle: {} nodes wait for each other, among them {stuck:?}",
            nodes.len() - order.len()
        );
    }
    Ok(order)
}
