//! Graphs: nodes, edges, and types and shapes of outputs.

use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use thalweg_proto as pb;
use thalweg_tensor::{Context, DType, PartialShape, Result, bail, ensure, err};

use crate::library::FunctionLibrary;
use crate::op::{ArgDef, ArgType, AttrDef, AttrKind, Op};
use crate::shape::ShapeContext;
use crate::{AttrValue, Attrs, NodeAttrs, OpRegistry, Role};

/// Maximum number of tensors in one argument list; TensorFlow's own graphs have far fewer.
const ARGS_MAX: usize = 1 << 20;

/// Index of a node in its graph; indices are dense, so they index plain vectors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The id as an index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

/// One output of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// The node.
    pub node: NodeId,
    /// Index among the node's outputs.
    pub index: u32,
}

/// Type and shape of an output.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputInfo {
    /// Dtype.
    pub dtype: DType,
    /// Whether the output is a reference to a variable.
    pub is_ref: bool,
    /// Shape, as far as known.
    pub shape: PartialShape,
}

/// An op with its inputs and attrs.
#[derive(Clone)]
pub struct Node {
    /// Unique within the graph.
    pub name: Arc<str>,
    /// Its op.
    pub op: Arc<Op>,
    /// Data inputs, in the order of the op's flattened arguments.
    pub inputs: SmallVec<[Endpoint; 2]>,
    /// Control inputs: nodes that must run before.
    pub control_inputs: SmallVec<[NodeId; 1]>,
    /// Device constraint as the client stated it: empty, partial or full.
    pub device: Arc<str>,
    /// Attrs that the node sets; defaults come from the op.
    pub attrs: Attrs,
    /// Types and shapes of the outputs.
    pub outputs: SmallVec<[OutputInfo; 1]>,
    /// Fields of the NodeDef that this crate does not interpret, kept for `to_def`.
    pub(crate) extras: Option<Box<NodeExtras>>,
}

#[derive(Clone, PartialEq)]
pub(crate) struct NodeExtras {
    pub(crate) debug_info: Option<pb::node_def::ExperimentalDebugInfo>,
    pub(crate) full_type: Option<pb::FullTypeDef>,
}

impl Node {
    /// A node without inputs, attrs or outputs, for passes that set the rest without checks.
    pub fn bare(name: impl Into<Arc<str>>, op: Arc<Op>) -> Node {
        Node {
            name: name.into(),
            op,
            inputs: SmallVec::new(),
            control_inputs: SmallVec::new(),
            device: "".into(),
            attrs: Attrs::default(),
            outputs: SmallVec::new(),
            extras: None,
        }
    }

    /// The role of the op for passes and the executor.
    #[inline]
    pub fn role(&self) -> Role {
        self.op.role
    }

    /// Typed access to the attrs, with defaults.
    pub fn attrs(&self) -> NodeAttrs<'_> {
        NodeAttrs::new(&self.op, &self.attrs)
    }

    /// Positions of the argument `name` among the flattened inputs.
    pub fn input_range(&self, name: &str) -> Result<std::ops::Range<usize>> {
        arg_range(&self.op, &self.op.inputs, name, &self.attrs())
    }

    /// Positions of the argument `name` among the flattened outputs.
    pub fn output_range(&self, name: &str) -> Result<std::ops::Range<usize>> {
        arg_range(&self.op, &self.op.outputs, name, &self.attrs())
    }
}

fn arg_range(
    op: &Op,
    args: &[ArgDef],
    name: &str,
    attrs: &NodeAttrs<'_>,
) -> Result<std::ops::Range<usize>> {
    let mut start = 0;
    for arg in args {
        let len = arg_len(arg, attrs)?;
        if arg.name == name {
            return Ok(start..start + len);
        }
        start += len;
    }
    bail!(InvalidArgument, "{} has no argument '{name}'", op.name)
}

fn arg_len(arg: &ArgDef, attrs: &NodeAttrs<'_>) -> Result<usize> {
    let len = match (&arg.number_attr, &arg.ty) {
        (Some(number), _) => attrs.size(number)?,
        (None, ArgType::ListAttr(list)) => attrs.dtypes(list)?.len(),
        _ => 1,
    };
    ensure!(len <= ARGS_MAX, InvalidArgument, "argument '{}' has {len} tensors", arg.name);
    Ok(len)
}

/// Dtypes of the flattened arguments.
pub(crate) fn arg_types(
    args: &[ArgDef],
    attrs: &NodeAttrs<'_>,
) -> Result<SmallVec<[(DType, bool); 4]>> {
    let mut types = SmallVec::new();
    for arg in args {
        match &arg.ty {
            ArgType::ListAttr(list) => {
                types.extend(attrs.dtypes(list)?.into_iter().map(|t| (t, arg.is_ref)));
            }
            ty => {
                let dtype = match ty {
                    ArgType::Fixed(dtype) => *dtype,
                    ArgType::Attr(name) | ArgType::ListAttr(name) => attrs.dtype(name)?,
                };
                let len = arg_len(arg, attrs)?;
                types.extend(std::iter::repeat_n((dtype, arg.is_ref), len));
            }
        }
    }
    Ok(types)
}

/// A dataflow graph: nodes in the order in which they were added. It only grows.
#[derive(Clone)]
pub struct Graph {
    nodes: Vec<Node>,
    by_name: FxHashMap<Arc<str>, NodeId>,
    registry: Arc<OpRegistry>,
    library: Arc<FunctionLibrary>,
    /// Other fields of the GraphDef, kept for `to_def`.
    pub(crate) message: MessageFields,
}

/// Fields of a GraphDef that belong to no node.
#[derive(Clone, Default)]
pub(crate) struct MessageFields {
    pub(crate) versions: Option<pb::VersionDef>,
    /// The deprecated form of `versions`.
    pub(crate) version: i32,
    /// TensorFlow writes the library even if it is empty, other producers omit it.
    pub(crate) has_library: bool,
    pub(crate) debug_info: Option<pb::GraphDebugInfo>,
}

impl Graph {
    /// An empty graph over these ops.
    pub fn new(registry: Arc<OpRegistry>) -> Graph {
        Graph {
            nodes: Vec::new(),
            by_name: FxHashMap::default(),
            registry,
            library: Arc::default(),
            message: MessageFields {
                versions: Some(pb::VersionDef {
                    producer: crate::GRAPH_VERSION,
                    ..Default::default()
                }),
                has_library: true,
                ..Default::default()
            },
        }
    }

    /// An empty graph with the same ops, functions and versions.
    pub fn new_like(other: &Graph) -> Graph {
        Graph {
            library: other.library.clone(),
            message: MessageFields { debug_info: None, ..other.message.clone() },
            ..Graph::new(other.registry.clone())
        }
    }

    /// A graph from nodes with types and shapes and with edges by index: the result of a pass over
    /// a checked graph. Ops, functions and versions are those of `like`.
    pub fn from_nodes(like: &Graph, nodes: Vec<Node>) -> Graph {
        let mut graph = Graph::new_like(like);
        graph.by_name.reserve(nodes.len());
        graph.nodes.reserve(nodes.len());
        graph.append_prepared(nodes);
        graph
    }

    /// The registry of ops that nodes may have.
    pub fn registry(&self) -> &Arc<OpRegistry> {
        &self.registry
    }

    /// The library of functions that nodes may call.
    pub fn library(&self) -> &Arc<FunctionLibrary> {
        &self.library
    }

    pub(crate) fn library_mut(&mut self) -> &mut FunctionLibrary {
        Arc::make_mut(&mut self.library)
    }

    pub(crate) fn set_library(&mut self, library: Arc<FunctionLibrary>) {
        self.library = library;
    }

    /// Adds the functions of `other` that the library lacks. In graphs with a common origin, equal
    /// names mean equal functions.
    pub fn adopt_functions(&mut self, other: &Graph) {
        self.library_mut().absorb(other.library());
    }

    /// All nodes, by id.
    #[inline]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Ids of all nodes, in order.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// A node.
    #[inline]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Type and shape of an output.
    pub fn output(&self, endpoint: Endpoint) -> &OutputInfo {
        &self.nodes[endpoint.node.index()].outputs[endpoint.index as usize]
    }

    /// The node of this name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    /// The op called `name`: of the registry, or a function under its own name.
    pub fn find_op(&self, name: &str) -> Result<Arc<Op>> {
        match self.library.signature_op(name) {
            Some(op) => Ok(op),
            None => self.registry.get(name).cloned(),
        }
    }

    /// Sets the device constraint of a node.
    pub fn set_device(&mut self, id: NodeId, device: Arc<str>) {
        self.nodes[id.index()].device = device;
    }

    /// Adds a control edge to a node; `source` must not depend on the node.
    pub fn add_control_input(&mut self, id: NodeId, source: NodeId) {
        self.nodes[id.index()].control_inputs.push(source);
    }

    /// Adds a node whose inputs exist; types and shapes are inferred and checked.
    pub fn add(&mut self, node: NewNode) -> Result<NodeId> {
        let name = node.name.clone();
        let op = node.op.clone();
        self.add_unnamed(node).context(|| format!("node '{name}' ({})", op.name))
    }

    fn add_unnamed(&mut self, mut new: NewNode) -> Result<NodeId> {
        self.check_name(&new.name)?;
        let id = self.next_id()?;
        let types: SmallVec<[Option<(DType, bool)>; 4]> = new
            .inputs
            .iter()
            .map(|&e| self.checked_output(e).map(|o| Some((o.dtype, o.is_ref))))
            .collect::<Result<_>>()?;
        infer_attrs(&new.op, &mut new.attrs, &types)?;
        let mut built = build_node(new, &types)?;
        self.infer_shapes(&mut built)?;
        self.by_name.insert(built.name.clone(), id);
        self.nodes.push(built);
        Ok(id)
    }

    fn check_name(&self, name: &str) -> Result<()> {
        ensure!(is_node_name(name), InvalidArgument, "{name:?} is not a node name");
        ensure!(!self.by_name.contains_key(name), InvalidArgument, "the name is taken");
        Ok(())
    }

    fn next_id(&self) -> Result<NodeId> {
        let id = u32::try_from(self.nodes.len())
            .map_err(|_| err!(ResourceExhausted, "a graph holds at most 2^32 nodes"))?;
        Ok(NodeId(id))
    }

    pub(crate) fn checked_output(&self, endpoint: Endpoint) -> Result<&OutputInfo> {
        let node = self
            .nodes
            .get(endpoint.node.index())
            .ok_or_else(|| err!(InvalidArgument, "input {endpoint:?} does not exist"))?;
        node.outputs.get(endpoint.index as usize).ok_or_else(|| {
            err!(
                InvalidArgument,
                "output {} of '{}' does not exist: it has {}",
                endpoint.index,
                node.name,
                node.outputs.len()
            )
        })
    }

    pub(crate) fn infer_shapes(&self, node: &mut Node) -> Result<()> {
        let mut context = ShapeContext::new(self, node);
        (node.op.shape)(&mut context)?;
        let shapes = context.into_outputs();
        for (output, shape) in node.outputs.iter_mut().zip(shapes) {
            output.shape = shape;
        }
        Ok(())
    }

    /// Appends nodes that may refer to each other in any order; see `import`.
    pub(crate) fn append_prepared(&mut self, nodes: Vec<Node>) {
        for node in nodes {
            self.by_name.insert(node.name.clone(), NodeId(self.nodes.len() as u32));
            self.nodes.push(node);
        }
    }

    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.index()]
    }

    /// Removes nodes from index `len` on: undoes an import that failed, removes a traced body.
    pub(crate) fn truncate(&mut self, len: usize) {
        for node in self.nodes.drain(len..) {
            self.by_name.remove(&node.name);
        }
    }
}

/// A node before its types and shapes are inferred.
#[derive(Clone)]
pub struct NewNode {
    /// Unique name.
    pub name: Arc<str>,
    /// Its op.
    pub op: Arc<Op>,
    /// Data inputs.
    pub inputs: SmallVec<[Endpoint; 2]>,
    /// Control inputs.
    pub control_inputs: SmallVec<[NodeId; 1]>,
    /// Device constraint.
    pub device: Arc<str>,
    /// Attrs; those that the inputs' types determine may be omitted.
    pub attrs: Attrs,
    pub(crate) extras: Option<Box<NodeExtras>>,
}

impl NewNode {
    /// A node without inputs.
    pub fn new(name: impl Into<Arc<str>>, op: Arc<Op>) -> NewNode {
        NewNode {
            name: name.into(),
            op,
            inputs: SmallVec::new(),
            control_inputs: SmallVec::new(),
            device: "".into(),
            attrs: Attrs::default(),
            extras: None,
        }
    }
}

/// Sets the attrs that the inputs' types and number determine.
pub(crate) fn infer_attrs(
    op: &Op,
    attrs: &mut Attrs,
    types: &[Option<(DType, bool)>],
) -> Result<()> {
    let mut position = 0;
    for (i, arg) in op.inputs.iter().enumerate() {
        let left = types.len().saturating_sub(position);
        // A list without a length takes all inputs except one for each argument after it.
        let rest = op.inputs.len() - i - 1;
        let unset = |name: &str, attrs: &Attrs| attrs.get(name).is_none();
        let len = match (&arg.number_attr, &arg.ty) {
            (Some(number), _)
                if unset(number, attrs) && op.attr(number).is_some_and(|a| a.default.is_none()) =>
            {
                let len = left.saturating_sub(rest);
                attrs.set(number.as_str(), AttrValue::Int(len as i64));
                len
            }
            (None, ArgType::ListAttr(list)) if unset(list, attrs) => {
                let len = left.saturating_sub(rest);
                let given: Option<Vec<DType>> =
                    types[position..position + len].iter().map(|t| t.map(|t| t.0)).collect();
                if let Some(given) = given {
                    attrs.set(list.as_str(), crate::IntoAttr::into_attr(&given[..]));
                }
                len
            }
            _ => arg_len(arg, &NodeAttrs::new(op, attrs))?,
        };
        if let ArgType::Attr(name) = &arg.ty
            && unset(name, attrs)
            && let Some(Some((dtype, _))) =
                types.get(position..(position + len).min(types.len())).and_then(|t| t.first())
        {
            attrs.set(name.as_str(), AttrValue::Type(dtype.to_proto()));
        }
        position += len;
    }
    Ok(())
}

/// Checks attrs and input types; sets the outputs' types and leaves their shapes unknown.
pub(crate) fn build_node(new: NewNode, types: &[Option<(DType, bool)>]) -> Result<Node> {
    for attr in &new.op.attrs {
        check_attr(&new, attr)?;
    }
    let attrs = NodeAttrs::new(&new.op, &new.attrs);
    let expected = arg_types(&new.op.inputs, &attrs)?;
    ensure!(
        expected.len() == types.len(),
        InvalidArgument,
        "{} takes {} inputs, got {}",
        new.op.name,
        expected.len(),
        types.len()
    );
    for (i, (&(dtype, is_ref), given)) in expected.iter().zip(types).enumerate() {
        let Some((given, given_ref)) = *given else { continue };
        ensure!(dtype == given, InvalidArgument, "input {i} must be {dtype}, got {given}");
        ensure!(
            !is_ref || given_ref,
            InvalidArgument,
            "input {i} must be a reference to a {dtype} variable, got a value"
        );
    }
    let outputs = arg_types(&new.op.outputs, &attrs)?
        .into_iter()
        .map(|(dtype, is_ref)| OutputInfo { dtype, is_ref, shape: PartialShape::unknown() })
        .collect();
    Ok(Node {
        name: new.name,
        op: new.op,
        inputs: new.inputs,
        control_inputs: new.control_inputs,
        device: new.device,
        attrs: new.attrs,
        outputs,
        extras: new.extras,
    })
}

fn check_attr(new: &NewNode, attr: &AttrDef) -> Result<()> {
    let name = &attr.name;
    let Some(value) = new.attrs.get(name).or(attr.default.as_ref()) else {
        bail!(InvalidArgument, "attr '{name}' is not set");
    };
    let kind =
        if attr.is_list { format!("list({})", attr.kind.name()) } else { attr.kind.name().into() };
    ensure!(
        value.is(attr.kind, attr.is_list),
        InvalidArgument,
        "attr '{name}' must be {kind}, is {}",
        value.summary()
    );
    if let Some(minimum) = attr.minimum {
        let actual = match value {
            AttrValue::Int(i) if !attr.is_list => *i,
            AttrValue::Placeholder(_) => minimum,
            _ => value.list_len(attr.kind) as i64,
        };
        let what = if attr.is_list { "have a length of" } else { "be" };
        ensure!(
            actual >= minimum,
            InvalidArgument,
            "attr '{name}' must {what} at least {minimum}, got {actual}"
        );
    }
    if attr.kind == AttrKind::Type {
        let types: &[i32] = match value {
            AttrValue::Type(t) => std::slice::from_ref(t),
            AttrValue::List(l) => &l.r#type,
            _ => &[],
        };
        for &t in types {
            let dtype = DType::from_proto(t).context(|| format!("attr '{name}'"))?;
            ensure!(
                attr.allowed_types.is_empty() || attr.allowed_types.contains(&dtype),
                InvalidArgument,
                "attr '{name}' cannot be {dtype}; allowed are {:?}",
                attr.allowed_types
            );
        }
    }
    if let (AttrValue::String(s), false) = (value, attr.allowed_strings.is_empty()) {
        ensure!(
            attr.allowed_strings.iter().any(|a| a.as_bytes() == &s[..]),
            InvalidArgument,
            "attr '{name}' cannot be {:?}; allowed are {:?}",
            String::from_utf8_lossy(s),
            attr.allowed_strings
        );
    }
    Ok(())
}

/// TensorFlow's rule: `[A-Za-z0-9.][A-Za-z0-9_.\\-/>]*`, with `_` first for its own nodes.
pub(crate) fn is_node_name(name: &str) -> bool {
    let ok = |c: u8| c.is_ascii_alphanumeric() || b"_.\\-/>".contains(&c);
    !name.is_empty() && name.bytes().all(ok) && !name.starts_with(['-', '\\', '/', '>'])
}

/// `node`, `node:1` or `^node`: names of tensors in feeds, fetches and GraphDefs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorName<'a> {
    /// The node.
    pub node: &'a str,
    /// The output; 0 if the name has no index.
    pub index: u32,
    /// Whether it is a control input.
    pub is_control: bool,
}

impl<'a> TensorName<'a> {
    /// Parses a name; the part after the last colon must be a number.
    pub fn parse(text: &'a str) -> Result<TensorName<'a>> {
        if let Some(node) = text.strip_prefix('^') {
            return Ok(TensorName { node, index: 0, is_control: true });
        }
        let Some((node, index)) = text.rsplit_once(':') else {
            return Ok(TensorName { node: text, index: 0, is_control: false });
        };
        let index = index
            .parse()
            .map_err(|_| err!(InvalidArgument, "{text:?} is not the name of a tensor"))?;
        Ok(TensorName { node, index, is_control: false })
    }
}
