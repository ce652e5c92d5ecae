//! Shape specialization: a plan for feeds of known shapes computes once what follows from the shapes.
//!
//! Calls are inlined, so that shapes propagate into functions. Shapes are inferred again from the
//! feeds; integers with a static value (sizes, ranks, targets of reshapes) become constants;
//! `Identity` nodes are bypassed; nodes without readers are dropped. The shape and value functions of
//! ops determine what has a static value. Nodes behind control flow ops stay unchanged: their inputs
//! may be dead, and shapes may differ between iterations.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thalweg_graph::{
    ArgType, Attrs, Endpoint, Flag, Graph, NewNode, Node, NodeId, Op, Role, dependencies,
    functions_in, keep_nodes,
};
use thalweg_proto as pb;
use thalweg_tensor::{DType, Result, Tensor, bail, ensure};

use crate::{LowerSelection, StepSignature, lower};

/// `pruned`, specialized for the feed shapes of `step`.
pub(crate) fn specialize(pruned: &Graph, step: &StepSignature) -> Result<Graph> {
    ensure!(
        step.feed_shapes.len() == step.feeds.len(),
        InvalidArgument,
        "there are {} feeds, but {} feed shapes",
        step.feeds.len(),
        step.feed_shapes.len()
    );
    check_functions(pruned)?;
    let graph = lower(pruned, &LowerSelection::Calls)?;
    let order = graph.topological_order();
    ensure!(order.len() == graph.len(), InvalidArgument, "the graph has a cycle");
    let may_be_dead = after_control_flow(&graph, &order);
    let mut pass = Pass {
        const_op: graph.registry().get("Const")?.clone(),
        graph,
        replaced: FxHashMap::default(),
    };
    for id in order {
        pass.redirect(id);
        if !may_be_dead[id.index()] {
            pass.visit(id)?;
        }
    }
    Ok(without_unneeded(&pass.graph, step))
}

struct Pass {
    graph: Graph,
    const_op: Arc<Op>,
    /// Replaced outputs, and their replacements.
    replaced: FxHashMap<Endpoint, Endpoint>,
}

impl Pass {
    /// Replaces inputs of a node.
    fn redirect(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        if self.replaced.is_empty() || !node.inputs.iter().any(|e| self.replaced.contains_key(e)) {
            return;
        }
        let mut node = node.clone();
        for input in &mut node.inputs {
            *input = self.replaced.get(input).copied().unwrap_or(*input);
        }
        self.graph.replace(id, node);
    }

    fn visit(&mut self, id: NodeId) -> Result<()> {
        if self.graph.node(id).inputs.is_empty() {
            return Ok(());
        }
        self.graph.refine(id)?;
        let node = self.graph.node(id);
        // A control edge must keep its effect on the readers.
        if !self.graph.is_pure(node) || !node.control_inputs.is_empty() {
            return Ok(());
        }
        let source = node.inputs[0];
        if node.role() == Role::Identity && is_beside(&self.graph, node, source) {
            self.replaced.insert(Endpoint { node: id, index: 0 }, source);
            return Ok(());
        }
        for index in 0..node.outputs.len() as u32 {
            let output = Endpoint { node: id, index };
            if let Some(value) = self.graph.static_value(output) {
                let constant = self.constant(output, &value)?;
                self.replaced.insert(output, Endpoint { node: constant, index: 0 });
            }
        }
        Ok(())
    }

    /// Adds a constant that replaces an output.
    fn constant(&mut self, output: Endpoint, value: &Tensor) -> Result<NodeId> {
        let from = self.graph.node(output.node);
        let mut name = format!("{}/settled_{}", from.name, output.index);
        while self.graph.find(&name).is_some() {
            name.push('_');
        }
        let mut node = NewNode::new(name, self.const_op.clone());
        node.device = from.device.clone();
        node.attrs = Attrs::of_const(value)?;
        self.graph.add(node)
    }
}

/// Whether the node has no device constraint, or the same as the node of its input.
fn is_beside(graph: &Graph, node: &Node, source: Endpoint) -> bool {
    node.device.is_empty() || node.device == graph.node(source.node).device
}

/// For each node, whether it is a control flow op or depends on one.
fn after_control_flow(graph: &Graph, order: &[NodeId]) -> Vec<bool> {
    let mut after = vec![false; graph.len()];
    for &id in order {
        let node = graph.node(id);
        after[id.index()] = node.role().is_control_flow()
            || node.predecessors().any(|source| after[source.index()]);
    }
    after
}

/// Refuses functions with nodes that keep state, as random ops do: each specialized plan would have
/// its own state, and results would depend on which plan runs.
fn check_functions(graph: &Graph) -> Result<()> {
    let calls = graph.nodes().iter().filter(|node| node.role().is_call());
    for function in graph.library().reachable(calls.flat_map(Node::callees)) {
        let is_call = |node: &pb::NodeDef| node.attr.values().any(|v| !functions_in(v).is_empty());
        if let Some(node) = function.node_def.iter().find(|n| !is_call(n) && keeps_state(graph, n))
        {
            bail!(
                Unimplemented,
                "function '{}' keeps state in '{}' ({}), which plans cannot share",
                function.signature.as_ref().map_or("", |signature| &signature.name),
                node.name,
                node.op
            );
        }
    }
    Ok(())
}

/// Whether a node's outputs depend on earlier steps other than by a resource that it takes.
fn keeps_state(graph: &Graph, node: &pb::NodeDef) -> bool {
    let Ok(op) = graph.find_op(&node.op) else { return false };
    let takes_resource =
        op.inputs.iter().any(|arg| matches!(arg.ty, ArgType::Fixed(DType::Resource)));
    op.has(Flag::Stateful) && op.role != Role::Function && !op.outputs.is_empty() && !takes_resource
}

/// The graph without nodes that no stateful node (a fetch is one) depends on. A target may be any
/// node, so with targets all nodes stay.
fn without_unneeded(graph: &Graph, step: &StepSignature) -> Graph {
    let is_root = |id: &NodeId| !step.targets.is_empty() || graph.node(*id).op.has(Flag::Stateful);
    let is_kept = dependencies(graph.nodes(), graph.ids().filter(is_root));
    Graph::from_nodes(graph, keep_nodes(graph.nodes().iter().cloned(), &is_kept))
}
