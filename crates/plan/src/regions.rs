//! Regions: what an accelerator compiles and runs as one program.
//!
//! The nodes of a partition that have a lowering are grouped into regions, and each region becomes one
//! node. All inputs of a region must be there before it runs, so grouping must not make a region wait
//! for what waits for it, also by way of other partitions, which this pass does not see. Therefore:
//!
//! - A *source* is an output that the partition cannot compute by itself: of a `_Recv`, of an argument, of
//!   a node without lowering, of a control flow op. `needs(v)` is the set of sources that node `v` waits
//!   for, directly or not.
//! - A node may run later than it could, but not later than its readers may: `waits(v)` is the
//!   intersection of `waits` of its readers in regions and of `needs` of its other readers.
//! - A region is the set of nodes of one frame with equal `waits`.
//!
//! A region then waits only for sources that each of its readers elsewhere needs as well, so it delays
//! nothing that its own inputs could depend on. The same holds for dead values: if a source of the region
//! is dead, whatever reads the region's nodes is dead too.

mod grouping;
mod uploads;

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use thalweg_graph::{
    ArgDef, ArgType, Endpoint, Graph, IntoAttr, Node, NodeId, Op, Role, Successors,
};
use thalweg_kernel::KernelRegistry;
use thalweg_tensor::{Result, err};

use crate::aliases::Aliases;
use crate::region_members::{
    Handles, IN_PARTS, Member, Members, VariableName, has_lists, misplaced, with_handles,
};
use grouping::{Grouping, known_by_shapes};

/// How often nodes are grouped again without the calls that regions cannot have.
const ATTEMPTS_MAX: usize = 4;
/// Name of a region's op.
const REGION: &str = "_Region";

/// A region of a partition.
pub struct Region {
    /// Its node in the partition's new graph.
    pub node: NodeId,
    /// Its nodes. The first are its inputs, as `_Arg`s in the order of the region's node's inputs.
    pub body: Graph,
    /// For each input, whether its value must be known when the region is compiled.
    pub is_static: Vec<bool>,
    /// The outputs of the region's node, as outputs of nodes of `body`.
    pub outputs: Vec<Endpoint>,
    /// For each output, whether all its readers are on the host.
    pub is_read_on_host: Vec<bool>,
    /// The inputs that are handles which functions of the region make.
    pub handles: BTreeMap<VariableName, usize>,
    /// How to run the region if it has calls and does not compile.
    pub parts: Option<Parts>,
}

/// A region as the body of a function, whose calls are left to the executor.
pub struct Parts {
    /// Its nodes, with the region's outputs as results.
    pub graph: Graph,
    /// For each argument, the input of the region that it is.
    pub args: Vec<usize>,
}

/// The partition with a node for each region, and the regions.
pub fn form_regions(
    graph: Graph,
    kernels: &KernelRegistry,
    device_type: &str,
) -> Result<(Graph, Vec<Region>)> {
    let mut finder = Members::new(kernels, device_type);
    let mut members: Vec<Member> = graph.ids().map(|id| finder.of(&graph, id)).collect();
    if !members.iter().any(|m| matches!(m, Member::Lowered { .. })) {
        return Ok((graph, Vec::new()));
    }
    let (graph, handles) = with_handles(graph, &mut members, finder.into_handles())?;
    let order = graph.topological_order();
    if order.len() < graph.len() {
        // The graph has a cycle that is not a loop; the executor reports it.
        return Ok((graph, Vec::new()));
    }
    let mut is_known = known_by_shapes(&graph, &members, &order);
    let mut groups = Grouping::new(&graph, &members, &order, &is_known)?.groups();
    for attempt in 1.. {
        let misplaced = misplaced(&graph, &members, &groups);
        if misplaced.is_empty() {
            break;
        }
        let is_left_out =
            |id: &NodeId| members[id.index()].is_call() || has_lists(&graph, graph.node(*id));
        let all = graph.ids().filter(is_left_out).collect();
        let left_out: Vec<NodeId> = if attempt < ATTEMPTS_MAX { misplaced } else { all };
        left_out.into_iter().for_each(|id| members[id.index()] = Member::Outside);
        is_known = known_by_shapes(&graph, &members, &order);
        groups = Grouping::new(&graph, &members, &order, &is_known)?.groups();
    }
    let (graph, members, order, handles) = (&graph, &members, &order, &handles);
    let aliases = Aliases::of(graph, []);
    Fusion { graph, members, order, handles, is_known, aliases }.fuse(groups)
}

/// Replaces groups of nodes by regions.
struct Fusion<'a> {
    graph: &'a Graph,
    members: &'a [Member],
    order: &'a [NodeId],
    handles: &'a Handles,
    /// For each node, whether its outputs follow from shapes and constants.
    is_known: Vec<bool>,
    /// The outputs that may be a variable's buffer.
    aliases: Aliases,
}

impl Fusion<'_> {
    /// Whether a node needs an input from another region when its own is compiled: to know a shape, or for
    /// what follows from it.
    fn needs_static(&self, id: NodeId, input: usize, e: Endpoint) -> bool {
        let follows = self.is_known[id.index()] && self.is_shape_value(e.node);
        self.members[id.index()].needs_static(input) || follows
    }

    /// Whether a region computes a node's outputs from shapes alone, and hands them on in host memory.
    fn is_shape_value(&self, id: NodeId) -> bool {
        self.is_known[id.index()] && self.members[id.index()].is_inside()
    }

    fn fuse(&self, groups: Vec<Vec<NodeId>>) -> Result<(Graph, Vec<Region>)> {
        let is_worth_it = |group: &Vec<NodeId>| {
            group.iter().any(|id| matches!(self.members[id.index()], Member::Lowered { .. }))
        };
        let groups: Vec<Vec<NodeId>> = groups.into_iter().filter(is_worth_it).collect();
        let mut group_of: Vec<Option<u32>> = vec![None; self.graph.len()];
        for (number, group) in groups.iter().enumerate() {
            group.iter().for_each(|id| group_of[id.index()] = Some(number as u32));
        }
        let successors = Successors::of(self.graph);
        let drafts: Vec<Draft> = groups
            .iter()
            .enumerate()
            .map(|(number, group)| self.draft(number as u32, group, &group_of, &successors))
            .collect::<Result<_>>()?;
        self.assemble(drafts, &group_of)
    }

    /// The region of a group, with its inputs and outputs as outputs of nodes of the partition.
    fn draft(
        &self,
        number: u32,
        group: &[NodeId],
        group_of: &[Option<u32>],
        successors: &Successors,
    ) -> Result<Draft> {
        let mut draft = Draft::default();
        for &id in group {
            let node = self.graph.node(id);
            for (i, e) in node.inputs.iter().enumerate() {
                if group_of[e.node.index()] == Some(number) {
                    continue;
                }
                let is_static = self.needs_static(id, i, *e);
                let is_held = match &self.members[e.node.index()] {
                    Member::Constant { is_small } => *is_small || is_static,
                    _ => false,
                };
                if is_held {
                    draft.constants.insert(e.node);
                    continue;
                }
                let position = draft.input(*e);
                draft.is_static[position] |= is_static;
            }
            for (name, e) in self.handles.get(&id).into_iter().flatten() {
                let position = draft.input(*e);
                draft.handles.insert(name.clone(), position);
            }
            for control in &node.control_inputs {
                if group_of[control.index()] != Some(number)
                    && !self.members[control.index()].is_always_there()
                    && !draft.controls.contains(control)
                {
                    draft.controls.push(*control);
                }
            }
            self.find_outputs(number, id, group_of, successors, &mut draft);
        }
        draft.nodes = group.to_vec();
        Ok(draft)
    }

    /// What is outside of the group and `e` forwards, if `e` is a variable or its buffer: a region's output
    /// would be a copy, which sees no later update.
    fn forwarded_reference(
        &self,
        mut e: Endpoint,
        number: u32,
        group_of: &[Option<u32>],
    ) -> Option<Endpoint> {
        if !self.aliases.contains(e) {
            return None;
        }
        while group_of[e.node.index()] == Some(number) {
            let node = self.graph.node(e.node);
            let first = match node.role() {
                Role::Identity => 0,
                _ if self.graph.output(e).is_ref => {
                    let by_reference = node.op.inputs.iter().find(|arg| arg.is_ref)?;
                    node.input_range(&by_reference.name).ok()?.start
                }
                _ => return None,
            };
            e = *node.inputs.get(first)?;
        }
        Some(e)
    }

    fn find_outputs(
        &self,
        number: u32,
        id: NodeId,
        group_of: &[Option<u32>],
        successors: &Successors,
        draft: &mut Draft,
    ) {
        for index in 0..self.graph.node(id).outputs.len() as u32 {
            let e = Endpoint { node: id, index };
            let reads = |reader: &&NodeId| {
                group_of[reader.index()] != Some(number)
                    && self.graph.node(**reader).inputs.contains(&e)
            };
            let readers: SmallVec<[&NodeId; 4]> =
                successors.after(id).iter().filter(reads).collect();
            if readers.is_empty() {
                continue;
            }
            if let Some(source) = self.forwarded_reference(e, number, group_of) {
                draft.forwarded.push((e, source));
                continue;
            }
            // What both sides read is two outputs, so that the copy to the host is made once, and nobody
            // waits for it but those who read it there.
            let is_host = |reader: &&NodeId| {
                let node = self.graph.node(**reader);
                let mut inputs = node.inputs.iter().enumerate().filter(|(_, input)| **input == e);
                node.role() == Role::Send
                    || self.is_shape_value(id)
                        && inputs.any(|(i, e)| self.needs_static(**reader, i, *e))
            };
            for side in [false, true] {
                if readers.iter().any(|reader| is_host(reader) == side) {
                    draft.outputs.push(e);
                    draft.is_read_on_host.push(side);
                }
            }
        }
    }

    /// The new graph: nodes outside of regions in their order, then the regions.
    fn assemble(
        &self,
        drafts: Vec<Draft>,
        group_of: &[Option<u32>],
    ) -> Result<(Graph, Vec<Region>)> {
        let (kept, position) = self.kept_nodes(&drafts, group_of);
        let uploads = self.shared_receives(&drafts);
        let first_upload = kept.len() as u32;
        let first_region = first_upload + uploads.len() as u32;
        let first_forward = first_region + drafts.len() as u32;
        let forwarded = drafts.iter().zip(first_region..).flat_map(|(draft, region)| {
            draft.forwarded.iter().map(move |&(e, source)| (e, source, NodeId(region)))
        });
        let forwarded: Vec<(Endpoint, Endpoint, NodeId)> = forwarded.collect();
        let mut moved = region_outputs(&drafts, first_region);
        for ((e, ..), node) in forwarded.iter().zip(first_forward..) {
            let forward = Endpoint { node: NodeId(node), index: 0 };
            moved.extend([((*e, false), forward), ((*e, true), forward)]);
        }
        let place = |id: NodeId| match group_of[id.index()] {
            Some(number) => NodeId(first_region + number),
            None => position[id.index()],
        };
        let endpoint = |e: &Endpoint, is_host: bool| {
            let found = moved.get(&(*e, is_host)).copied();
            found.unwrap_or(Endpoint { node: position[e.node.index()], ..*e })
        };
        let mut nodes: Vec<Node> = kept.iter().map(|&id| self.graph.node(id).clone()).collect();
        for node in &mut nodes {
            let is_host = node.role() == Role::Send;
            node.inputs.iter_mut().for_each(|e| *e = endpoint(e, is_host));
            let mut seen = FxHashSet::default();
            node.control_inputs.iter_mut().for_each(|c| *c = place(*c));
            node.control_inputs.retain(|c| seen.insert(*c));
        }
        for e in &uploads {
            nodes.push(self.upload_node(*e, endpoint(e, false))?);
        }
        let input = |(e, &is_static): (&Endpoint, &bool)| {
            let upload = uploads.iter().position(|shared| shared == e).filter(|_| !is_static);
            let upload = upload.map(|i| NodeId(first_upload + i as u32));
            let is_on_host = is_static && moved.contains_key(&(*e, true));
            upload.map_or_else(|| endpoint(e, is_on_host), |node| Endpoint { node, index: 0 })
        };
        let mut regions = Vec::with_capacity(drafts.len());
        for (number, draft) in drafts.into_iter().enumerate() {
            let mut node = self.region_node(&draft, number)?;
            node.inputs = draft.inputs.iter().zip(&draft.is_static).map(input).collect();
            let mut seen = FxHashSet::default();
            node.control_inputs =
                draft.controls.iter().map(|&c| place(c)).filter(|c| seen.insert(*c)).collect();
            let id = NodeId(nodes.len() as u32);
            nodes.push(node);
            regions.push(self.region(draft, id)?);
        }
        for (e, source, region) in forwarded {
            nodes.push(self.forward_node(e, endpoint(&source, false), region)?);
        }
        Ok((Graph::from_nodes(self.graph, nodes), regions))
    }

    /// The nodes that stay nodes of the new graph, and for each node of the graph its position among them.
    fn kept_nodes(&self, drafts: &[Draft], group_of: &[Option<u32>]) -> (Vec<NodeId>, Vec<NodeId>) {
        let is_dropped = self.unread_constants(drafts, group_of);
        let mut position = vec![NodeId(0); self.graph.len()];
        let mut kept = Vec::new();
        for id in self.graph.ids() {
            if group_of[id.index()].is_none() && !is_dropped[id.index()] {
                position[id.index()] = NodeId(kept.len() as u32);
                kept.push(id);
            }
        }
        (kept, position)
    }

    /// An identity that forwards a variable or its buffer when the region has run.
    fn forward_node(&self, e: Endpoint, source: Endpoint, region: NodeId) -> Result<Node> {
        let (old, output) = (self.graph.node(e.node), self.graph.output(e));
        let op = if output.is_ref { "RefIdentity" } else { "Identity" };
        let op = self.graph.registry().get(op)?.clone();
        let mut node = Node::bare(format!("{}/forwarded_{}", old.name, e.index), op);
        node.device = old.device.clone();
        node.attrs.set("T", output.dtype.into_attr());
        node.inputs.push(source);
        node.control_inputs.push(region);
        node.outputs.push(output.clone());
        Ok(node)
    }

    /// Constants that only regions read, all of which hold them.
    fn unread_constants(&self, drafts: &[Draft], group_of: &[Option<u32>]) -> Vec<bool> {
        let mut is_held = vec![false; self.graph.len()];
        for id in drafts.iter().flat_map(|draft| &draft.constants) {
            is_held[id.index()] = true;
        }
        let inputs = drafts.iter().flat_map(|draft| &draft.inputs).map(|e| e.node);
        let others = self.graph.ids().filter(|id| group_of[id.index()].is_none());
        let read = others.flat_map(|id| self.graph.node(id).predecessors()).chain(inputs);
        read.for_each(|id| is_held[id.index()] = false);
        is_held
    }

    fn region_node(&self, draft: &Draft, number: usize) -> Result<Node> {
        let arg = |prefix: &str, i: usize, e: &Endpoint, is_ref: bool| ArgDef {
            name: format!("{prefix}{i}"),
            ty: ArgType::Fixed(self.graph.output(*e).dtype),
            number_attr: None,
            is_ref,
        };
        let is_ref = |e: &Endpoint| self.graph.output(*e).is_ref || self.aliases.contains(*e);
        let inputs = draft.inputs.iter().enumerate();
        let outputs = draft.outputs.iter().enumerate();
        let base = self.graph.registry().get("NoOp")?;
        let op = Op {
            name: REGION.into(),
            inputs: inputs.map(|(i, e)| arg("input", i, e, is_ref(e))).collect(),
            outputs: outputs.map(|(i, e)| arg("output", i, e, false)).collect(),
            attrs: Vec::new(),
            role: Role::Ordinary,
            ..(**base).clone()
        };
        let first = draft
            .nodes
            .iter()
            .find(|id| matches!(self.members[id.index()], Member::Lowered { .. }));
        let first = first.ok_or_else(|| err!(Internal, "a region without an operation"))?;
        let first = self.graph.node(*first);
        let name = format!("{}/region_{number}_of_{}", first.name, draft.nodes.len());
        let mut node = Node::bare(name, Arc::new(op));
        node.device = first.device.clone();
        node.outputs = draft
            .outputs
            .iter()
            .map(|e| thalweg_graph::OutputInfo { is_ref: false, ..self.graph.output(*e).clone() })
            .collect();
        Ok(node)
    }

    fn region(&self, draft: Draft, node: NodeId) -> Result<Region> {
        let arg_op = self.graph.registry().get("_Arg")?.clone();
        let mut nodes: Vec<Node> = Vec::new();
        let mut position: FxHashMap<NodeId, u32> = FxHashMap::default();
        for (i, e) in draft.inputs.iter().enumerate() {
            let mut arg = Node::bare(format!("_region_input_{i}"), arg_op.clone());
            arg.outputs.push(self.graph.output(*e).clone());
            nodes.push(arg);
        }
        let constants = self.order.iter().filter(|id| draft.constants.contains(id));
        for &id in constants.chain(&draft.nodes) {
            position.insert(id, nodes.len() as u32);
            nodes.push(self.graph.node(id).clone());
        }
        let endpoint = |e: &Endpoint| match draft.input_positions.get(e) {
            Some(&i) => Ok(Endpoint { node: NodeId(i as u32), index: 0 }),
            None => position
                .get(&e.node)
                .map(|&p| Endpoint { node: NodeId(p), index: e.index })
                .ok_or_else(|| err!(Internal, "an input of a region is missing")),
        };
        for node in nodes.iter_mut().skip(draft.inputs.len()) {
            for e in &mut node.inputs {
                *e = endpoint(e)?;
            }
            node.control_inputs = node
                .control_inputs
                .iter()
                .filter_map(|c| position.get(c).map(|&p| NodeId(p)))
                .collect();
        }
        let outputs: Vec<Endpoint> = draft.outputs.iter().map(endpoint).collect::<Result<_>>()?;
        let is_left_out = |id: &NodeId| {
            self.members[id.index()].is_call() || has_lists(self.graph, self.graph.node(*id))
        };
        let parts = match draft.nodes.iter().any(is_left_out) {
            true => Some(self.parts(&draft, nodes.clone(), &outputs)?),
            false => None,
        };
        Ok(Region {
            node,
            parts,
            body: Graph::from_nodes(self.graph, nodes),
            is_static: draft.is_static,
            handles: draft.handles,
            outputs,
            is_read_on_host: draft.is_read_on_host,
        })
    }

    /// The region as the body of a function. A reference cannot be an argument: the node that it comes from
    /// is part of the body.
    fn parts(&self, draft: &Draft, mut nodes: Vec<Node>, outputs: &[Endpoint]) -> Result<Parts> {
        let mut args = Vec::with_capacity(draft.inputs.len());
        for (i, e) in draft.inputs.iter().enumerate() {
            let output = self.graph.output(*e);
            if output.is_ref {
                nodes[i] = self.graph.node(e.node).clone();
                continue;
            }
            nodes[i].attrs.set("T", output.dtype.into_attr());
            nodes[i].attrs.set("index", (args.len() as i64).into_attr());
            args.push(i);
        }
        let first = draft.inputs.len() + draft.constants.len();
        for (node, id) in nodes[first..].iter_mut().zip(&draft.nodes) {
            let is_left_out = node.role().is_call() || has_lists(self.graph, self.graph.node(*id));
            if is_left_out && node.role() != Role::Identity {
                node.attrs.set(IN_PARTS, true.into_attr());
            }
        }
        let result_op = self.graph.registry().get("_Retval")?.clone();
        for (i, (e, source)) in outputs.iter().zip(&draft.outputs).enumerate() {
            let mut result = Node::bare(format!("_region_output_{i}"), result_op.clone());
            result.attrs.set("T", self.graph.output(*source).dtype.into_attr());
            result.attrs.set("index", (i as i64).into_attr());
            result.inputs.push(*e);
            nodes.push(result);
        }
        Ok(Parts { graph: Graph::from_nodes(self.graph, nodes), args })
    }
}

/// The outputs of the regions' nodes, the first of which is `first_region`, by the output of the partition
/// that each replaces and by whether its readers are on the host.
fn region_outputs(drafts: &[Draft], first_region: u32) -> FxHashMap<(Endpoint, bool), Endpoint> {
    let mut outputs = FxHashMap::default();
    for (number, draft) in drafts.iter().enumerate() {
        let node = NodeId(first_region + number as u32);
        for (index, (e, side)) in draft.outputs.iter().zip(&draft.is_read_on_host).enumerate() {
            outputs.insert((*e, *side), Endpoint { node, index: index as u32 });
        }
    }
    outputs
}

/// A region before the partition is rewritten; edges are those of the partition.
#[derive(Default)]
struct Draft {
    nodes: Vec<NodeId>,
    inputs: Vec<Endpoint>,
    input_positions: FxHashMap<Endpoint, usize>,
    is_static: Vec<bool>,
    constants: FxHashSet<NodeId>,
    handles: BTreeMap<VariableName, usize>,
    controls: Vec<NodeId>,
    outputs: Vec<Endpoint>,
    is_read_on_host: Vec<bool>,
    /// Outputs of nodes that are a variable or its buffer, and from where outside they have it.
    forwarded: Vec<(Endpoint, Endpoint)>,
}

impl Draft {
    /// The position of an input.
    fn input(&mut self, e: Endpoint) -> usize {
        let next = self.inputs.len();
        let position = *self.input_positions.entry(e).or_insert(next);
        if position == next {
            self.inputs.push(e);
            self.is_static.push(false);
        }
        position
    }
}
