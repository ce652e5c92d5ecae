//! Constant folding and common subexpression elimination. Results are nodes of TensorFlow's own ops.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;
use thalweg_graph::{Attrs, Graph, Node, NodeId, OutputInfo, Role, dependencies, keep_nodes};
use thalweg_kernel::{KernelRegistry, Value};
use thalweg_proto::TensorProto;
use thalweg_tensor::{Budget, Result, Tensor};

use crate::{Evaluator, Placement};

/// Most bytes of inputs, and of outputs, of a node that is folded.
const FOLD_BYTES_MAX: usize = 1 << 20;
/// Most bytes that folding processes in one plan: a small graph may ask for a lot of work.
const FOLD_TOTAL_BYTES_MAX: usize = 64 << 20;
/// Bytes that a failed attempt counts.
const FOLD_FAILURE_BYTES: usize = 64 << 10;
/// Most bytes of decoded constants that are cached.
const CACHE_BYTES_MAX: usize = 16 << 20;
/// Most bytes of a constant's message for it to be merged with equal ones: comparing larger ones costs
/// more than it saves.
const MERGE_BYTES_MAX: usize = 4096;

/// The graph with constants folded and equal nodes merged; `placement` follows the nodes.
pub fn optimize(
    graph: Graph,
    placement: &mut Placement,
    kernels: &Arc<KernelRegistry>,
) -> Result<Graph> {
    let order = graph.topological_order();
    if order.len() < graph.len() {
        // The graph has a cycle that is not a loop; the executor reports it.
        return Ok(graph);
    }
    let mut nodes = graph.nodes().to_vec();
    let mut pass = Pass::new(&graph, kernels)?;
    for &id in &order {
        pass.visit(id, &mut nodes);
    }
    Ok(without_orphans(&graph, nodes, placement))
}

struct Pass<'a> {
    graph: &'a Graph,
    const_op: Arc<thalweg_graph::Op>,
    evaluator: Evaluator,
    /// For a merged node, the equal node that replaces it.
    same_as: FxHashMap<NodeId, NodeId>,
    seen: FxHashMap<u64, SmallVec<[NodeId; 1]>>,
    /// Constants decoded so far, while small.
    values: FxHashMap<NodeId, Tensor>,
    cache: Arc<Budget>,
    /// Bytes that folding has processed.
    spent: usize,
}

impl<'a> Pass<'a> {
    fn new(graph: &'a Graph, kernels: &'a Arc<KernelRegistry>) -> Result<Self> {
        Ok(Pass {
            graph,
            const_op: graph.registry().get("Const")?.clone(),
            evaluator: Evaluator::new(kernels, 8 * FOLD_BYTES_MAX),
            same_as: FxHashMap::default(),
            seen: FxHashMap::default(),
            values: FxHashMap::default(),
            cache: Budget::new(CACHE_BYTES_MAX),
            spent: 0,
        })
    }

    fn visit(&mut self, id: NodeId, nodes: &mut [Node]) {
        let node = &mut nodes[id.index()];
        for input in &mut node.inputs {
            if let Some(&other) = self.same_as.get(&input.node) {
                input.node = other;
            }
        }
        for control in &mut node.control_inputs {
            if let Some(&other) = self.same_as.get(control) {
                *control = other;
            }
        }
        if !self.graph.is_pure(node) {
            return;
        }
        if let Some(value) = self.folded(id, nodes) {
            let node = &mut nodes[id.index()];
            self.make_constant(node, &value);
        }
        self.merge(id, nodes);
    }

    /// The value of a node whose inputs are all constants, if it is small and its kernel succeeds.
    fn folded(&mut self, id: NodeId, nodes: &[Node]) -> Option<Tensor> {
        let node = &nodes[id.index()];
        if node.inputs.is_empty()
            || node.outputs.len() != 1
            || node.outputs[0].dtype.is_object()
            || known_bytes(&node.outputs[0]) > FOLD_BYTES_MAX
            || !node.control_inputs.is_empty()
            || self.spent > FOLD_TOTAL_BYTES_MAX
        {
            return None;
        }
        let mut inputs: SmallVec<[Value; 4]> = SmallVec::new();
        let mut bytes = 0;
        for endpoint in &node.inputs {
            let value = self.constant(endpoint.node, nodes)?;
            bytes += value.size_bytes();
            inputs.push(Value::Tensor(value));
        }
        if bytes > FOLD_BYTES_MAX {
            return None;
        }
        let value = if node.role() == Role::Identity {
            match std::mem::take(&mut inputs[0]) {
                Value::Tensor(value) => Some(value),
                _ => None,
            }
        } else {
            self.evaluator.evaluate(node, &mut inputs).and_then(|mut all| all.pop())
        };
        let Some(value) = value else {
            self.spent += bytes.max(FOLD_FAILURE_BYTES);
            return None;
        };
        self.spent += bytes + value.size_bytes();
        (value.size_bytes() <= FOLD_BYTES_MAX).then_some(value)
    }

    /// The value of a constant without control inputs, unless it is large.
    fn constant(&mut self, id: NodeId, nodes: &[Node]) -> Option<Tensor> {
        if let Some(value) = self.values.get(&id) {
            return Some(value.clone());
        }
        let node = &nodes[id.index()];
        // Folding drops edges; a control edge to a constant must keep its effect.
        if node.role() != Role::Const
            || !node.control_inputs.is_empty()
            || known_bytes(&node.outputs[0]) > FOLD_BYTES_MAX
        {
            return None;
        }
        let value = node.attrs().tensor("value", Some(&self.cache)).ok()?;
        if value.size_bytes() <= FOLD_BYTES_MAX / 16 {
            self.values.insert(id, value.clone());
        }
        Some(value)
    }

    fn make_constant(&mut self, node: &mut Node, value: &Tensor) {
        let Ok(attrs) = Attrs::of_const(value) else { return };
        node.op = self.const_op.clone();
        node.inputs.clear();
        node.attrs = attrs;
    }

    fn merge(&mut self, id: NodeId, nodes: &mut [Node]) {
        let node = &nodes[id.index()];
        if node.role() == Role::Const
            && node.attrs().tensor_proto("value").is_ok_and(|t| message_bytes(t) > MERGE_BYTES_MAX)
        {
            return;
        }
        let candidates = self.seen.entry(fingerprint(node)).or_default();
        let equal = |other: &&NodeId| {
            let other = &nodes[other.index()];
            other.op.name == node.op.name
                && other.inputs == node.inputs
                && other.control_inputs == node.control_inputs
                && other.device == node.device
                && other.attrs == node.attrs
        };
        match candidates.iter().find(equal) {
            Some(&first) => {
                self.same_as.insert(id, first);
            }
            None => candidates.push(id),
        }
    }
}

/// Bytes of a tensor; zero if its shape is not known.
fn known_bytes(output: &OutputInfo) -> usize {
    let element_bytes = if output.dtype.is_object() { 32 } else { output.dtype.size() };
    let elements = output.shape.to_shape().map_or(0, |shape| shape.num_elements());
    elements.saturating_mul(element_bytes)
}

/// Approximate bytes of a tensor's message.
fn message_bytes(tensor: &TensorProto) -> usize {
    tensor.tensor_content.len()
        + tensor.string_val.iter().map(|s| s.len() + 8).sum::<usize>()
        + 4 * (tensor.float_val.len() + tensor.int_val.len() + tensor.half_val.len())
        + 8 * (tensor.double_val.len() + tensor.int64_val.len() + tensor.scomplex_val.len())
        + 8 * (tensor.dcomplex_val.len() + tensor.uint32_val.len() + tensor.uint64_val.len())
        + tensor.bool_val.len()
        + tensor.float8_val.len()
        + 64 * (tensor.resource_handle_val.len() + tensor.variant_val.len())
}

/// A hash of a node's op, edges, device and attrs; equal nodes have equal fingerprints.
fn fingerprint(node: &Node) -> u64 {
    let mut hasher = FxHasher::default();
    node.op.name.hash(&mut hasher);
    node.inputs.hash(&mut hasher);
    node.control_inputs.hash(&mut hasher);
    node.device.hash(&mut hasher);
    node.attrs.fingerprint(&mut hasher);
    hasher.finish()
}

/// Drops nodes that have no readers left.
fn without_orphans(graph: &Graph, nodes: Vec<Node>, placement: &mut Placement) -> Graph {
    // Nodes without readers before the pass are fetches and targets. Feeds are identified by position.
    let was_read = graph.has_successor();
    let is_root = |id: &NodeId| !was_read[id.index()] || graph.node(*id).role() == Role::Recv;
    let is_kept = dependencies(&nodes, graph.ids().filter(is_root));
    placement.retain(&is_kept);
    Graph::from_nodes(graph, keep_nodes(nodes, &is_kept))
}
