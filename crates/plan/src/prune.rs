//! Pruning: keeps the nodes that fetches and targets depend on. Feeds and fetches become `_Recv` and
//! `_Send` nodes with `client_terminated`, named as in TensorFlow.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::smallvec;
use thalweg_graph::{
    Attrs, Endpoint, Graph, IntoAttr, Node, NodeId, OutputInfo, Renumbering, Role, dependencies,
    reachable,
};
use thalweg_kernel::DeviceDescription;
use thalweg_tensor::{PartialShape, Result, Shape, ensure, err};

use crate::StepSignature;
use crate::partition::transfer_attrs;

/// The nodes of `graph` that a step runs. Feed `i` is node `i`; the fetches are the last nodes.
pub fn prune(graph: &Graph, step: &StepSignature, client: &DeviceDescription) -> Result<Graph> {
    let fed: FxHashMap<Endpoint, u32> =
        step.feeds.iter().enumerate().map(|(i, &e)| (e, i as u32)).collect();
    let needed = needed_nodes(graph, step, &fed);

    let renumbering = Renumbering::keep(&needed, step.feeds.len() as u32);
    let renumbered = |e: &Endpoint| match (fed.get(e), renumbering.get(e.node)) {
        (Some(&feed), _) => Endpoint { node: NodeId(feed), index: 0 },
        (None, Some(node)) => Endpoint { node, index: e.index },
        (None, None) => unreachable!("a node that is needed has inputs that are needed or fed"),
    };

    let recv = graph.registry().get("_Recv")?.clone();
    let send = graph.registry().get("_Send")?.clone();
    let kept = needed.iter().filter(|is_needed| **is_needed).count();
    let mut nodes = Vec::with_capacity(step.feeds.len() + kept + step.fetches.len());
    for (i, &feed) in step.feeds.iter().enumerate() {
        let output = graph.output(feed);
        let name = client_name(graph, "_recv", feed);
        // A feed may have another shape than the fed tensor declares.
        let shape = match step.feed_shapes.get(i) {
            Some(shape) => specialized_shape(graph, feed, shape)?,
            None => PartialShape::unknown(),
        };
        let outputs = smallvec![OutputInfo { dtype: output.dtype, is_ref: false, shape }];
        let mut node = client_node(name, &recv, client);
        node.attrs = client_attrs(graph, feed, "tensor_type", client);
        node.outputs = outputs;
        nodes.push(node);
    }
    for node in graph.ids().filter(|id| needed[id.index()]).map(|id| graph.node(id)) {
        check_kept(graph, node, &fed)?;
        let mut kept = node.clone();
        kept.inputs.iter_mut().for_each(|e| *e = renumbered(e));
        // A control edge from a placeholder that is fed orders nothing.
        let controls = node.control_inputs.iter();
        kept.control_inputs = controls.filter_map(|&c| renumbering.get(c)).collect();
        nodes.push(kept);
    }
    let mut names: FxHashSet<String> = FxHashSet::default();
    for (i, &fetch) in step.fetches.iter().enumerate() {
        let mut name = client_name(graph, "_send", fetch);
        // A tensor may be fetched twice, but names are unique.
        if !names.insert(name.clone()) {
            name = format!("{name}_{i}");
        }
        let mut node = client_node(name, &send, client);
        node.attrs = client_attrs(graph, fetch, "T", client);
        node.inputs = smallvec![renumbered(&fetch)];
        nodes.push(node);
    }
    Ok(Graph::from_nodes(graph, nodes))
}

/// The shape of a feed in a specialized plan. It must be compatible with the declared shape, from
/// which other shapes of the graph were inferred.
fn specialized_shape(graph: &Graph, feed: Endpoint, shape: &Shape) -> Result<PartialShape> {
    let declared = &graph.output(feed).shape;
    ensure!(
        declared.is_compatible_with(shape),
        InvalidArgument,
        "'{}:{}' is declared {declared}, and a plan for {shape} is asked for",
        graph.node(feed.node).name,
        feed.index
    );
    Ok(PartialShape::from(shape))
}

fn needed_nodes(graph: &Graph, step: &StepSignature, fed: &FxHashMap<Endpoint, u32>) -> Vec<bool> {
    let roots = step.fetches.iter().filter(|e| !fed.contains_key(e)).map(|e| e.node);
    let roots = roots.chain(step.targets.iter().copied());
    if fed.is_empty() {
        return dependencies(graph.nodes(), roots);
    }
    // As in TensorFlow, a fed placeholder does not run, even for nodes with control edges from it; any
    // other fed node does run for those.
    let is_replaced = |id: &NodeId| {
        graph.node(*id).role() == Role::Placeholder
            && fed.contains_key(&Endpoint { node: *id, index: 0 })
    };
    reachable(graph.len(), roots, |id, stack| {
        let node = graph.node(id);
        stack.extend(node.inputs.iter().filter(|e| !fed.contains_key(e)).map(|e| e.node));
        stack.extend(node.control_inputs.iter().copied().filter(|id| !is_replaced(id)));
    })
}

/// Refuses transfers with `client_terminated` in the client's graph, and feeds of references.
fn check_kept(graph: &Graph, node: &Node, fed: &FxHashMap<Endpoint, u32>) -> Result<()> {
    if node.role().is_transfer() && node.attrs().bool("client_terminated")? {
        let e = err!(
            InvalidArgument,
            "{} with client_terminated is reserved for feeds and fetches",
            node.op.name
        );
        return Err(e.at_node(&node.name));
    }
    if fed.is_empty() || node.op.inputs.iter().all(|arg| !arg.is_ref) {
        return Ok(());
    }
    for arg in node.op.inputs.iter().filter(|arg| arg.is_ref) {
        let inputs = &node.inputs[node.input_range(&arg.name)?];
        if let Some(e) = inputs.iter().find(|e| fed.contains_key(e)) {
            let e = err!(
                InvalidArgument,
                "'{}:{}' cannot be fed: '{}' ({}) takes a reference to a variable, a feed is a value",
                graph.node(e.node).name,
                e.index,
                node.name,
                node.op.name
            );
            return Err(e.at_node(&node.name));
        }
    }
    Ok(())
}

fn client_name(graph: &Graph, prefix: &str, tensor: Endpoint) -> String {
    format!("{prefix}_{}_{}", graph.node(tensor.node).name, tensor.index)
}

fn client_node(name: String, op: &Arc<thalweg_graph::Op>, client: &DeviceDescription) -> Node {
    let mut node = Node::bare(name, op.clone());
    node.device = client.name.to_string().into();
    node
}

fn client_attrs(
    graph: &Graph,
    tensor: Endpoint,
    type_attr: &str,
    client: &DeviceDescription,
) -> Attrs {
    let name = format!("{}:{}", graph.node(tensor.node).name, tensor.index);
    let dtype = graph.output(tensor).dtype;
    let mut attrs = transfer_attrs(type_attr, dtype, &name, client, client);
    attrs.set("client_terminated", true.into_attr());
    attrs
}
