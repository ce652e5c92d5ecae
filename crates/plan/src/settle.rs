//! Plans for feeds of known shapes: what follows from the shapes is worked out once, not in every step.
//!
//! Calls are written out, so that shapes reach what functions do. Then shapes are inferred again from
//! the feeds on, integers that they settle (sizes, ranks, targets of reshapes) become constants, nodes
//! that only hand on their input are passed by, and what nobody needs any more goes. Which ops that
//! concerns is for their shape and value functions to say. Beyond branches and loops of frames, where
//! a value may be dead and shapes may differ between iterations, everything stays as it is.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thalweg_graph::{
    ArgType, Attrs, Endpoint, Flag, Graph, NewNode, Node, NodeId, Op, Role, dependencies,
    functions_in, keep_nodes,
};
use thalweg_proto as pb;
use thalweg_tensor::{DType, Result, Tensor, bail, ensure};

use crate::{StepSignature, Which, lower};

/// The pruned graph of a step whose feeds have the shapes that it says.
pub(crate) fn settle(pruned: &Graph, step: &StepSignature) -> Result<Graph> {
    ensure!(
        step.feed_shapes.len() == step.feeds.len(),
        InvalidArgument,
        "there are {} feeds and {} shapes of them",
        step.feeds.len(),
        step.feed_shapes.len()
    );
    check_functions(pruned)?;
    let graph = lower(pruned, &Which::Calls)?;
    let order = graph.topological_order();
    ensure!(order.len() == graph.len(), InvalidArgument, "the graph runs in a circle");
    let may_be_dead = after_control_flow(&graph, &order);
    let mut pass = Pass {
        const_op: graph.registry().get("Const")?.clone(),
        graph,
        moved: FxHashMap::default(),
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
    /// For outputs that are read elsewhere now, where.
    moved: FxHashMap<Endpoint, Endpoint>,
}

impl Pass {
    /// Reads what has moved where it is now.
    fn redirect(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        if self.moved.is_empty() || !node.inputs.iter().any(|e| self.moved.contains_key(e)) {
            return;
        }
        let mut node = node.clone();
        for input in &mut node.inputs {
            *input = self.moved.get(input).copied().unwrap_or(*input);
        }
        self.graph.replace(id, node);
    }

    fn visit(&mut self, id: NodeId) -> Result<()> {
        if self.graph.node(id).inputs.is_empty() {
            return Ok(());
        }
        self.graph.refine(id)?;
        let node = self.graph.node(id);
        // What waits for others has to go on doing so.
        if !self.graph.is_pure(node) || !node.control_inputs.is_empty() {
            return Ok(());
        }
        let source = node.inputs[0];
        if node.role() == Role::Identity && is_beside(&self.graph, node, source) {
            self.moved.insert(Endpoint { node: id, index: 0 }, source);
            return Ok(());
        }
        for index in 0..node.outputs.len() as u32 {
            let output = Endpoint { node: id, index };
            if let Some(value) = self.graph.settled_integers(output) {
                let constant = self.constant(output, &value)?;
                self.moved.insert(output, Endpoint { node: constant, index: 0 });
            }
        }
        Ok(())
    }

    /// A constant in the place of an output.
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

/// Whether a node asks for no other device than the one that its input comes from.
fn is_beside(graph: &Graph, node: &Node, source: Endpoint) -> bool {
    node.device.is_empty() || node.device == graph.node(source.node).device
}

/// Nodes that are, or come after, parts of branches and loops of frames.
fn after_control_flow(graph: &Graph, order: &[NodeId]) -> Vec<bool> {
    let mut after = vec![false; graph.len()];
    for &id in order {
        let node = graph.node(id);
        after[id.index()] = node.role().is_control_flow()
            || node.predecessors().any(|source| after[source.index()]);
    }
    after
}

/// Refuses functions that keep values in nodes of their own, as random ops do: each plan would begin
/// anew with them, and answers would depend on which plan runs.
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

/// Whether a node gives values that depend on earlier steps by more than a resource that it is given.
fn keeps_state(graph: &Graph, node: &pb::NodeDef) -> bool {
    let Ok(op) = graph.find_op(&node.op) else { return false };
    let takes_resource =
        op.inputs.iter().any(|arg| matches!(arg.ty, ArgType::Fixed(DType::Resource)));
    op.has(Flag::Stateful) && op.role != Role::Function && !op.outputs.is_empty() && !takes_resource
}

/// The graph without what neither a fetch nor an effect needs. What a caller runs for itself is hard to
/// tell from what is left over, so with targets everything stays.
fn without_unneeded(graph: &Graph, step: &StepSignature) -> Graph {
    let is_root = |id: &NodeId| !step.targets.is_empty() || graph.node(*id).op.has(Flag::Stateful);
    let is_kept = dependencies(graph.nodes(), graph.ids().filter(is_root));
    Graph::from_nodes(graph, keep_nodes(graph.nodes().iter().cloned(), &is_kept))
}
