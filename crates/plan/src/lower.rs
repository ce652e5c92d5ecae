//! Calls, branches and loops of functions, written out in place: bodies as nodes, branches as
//! `Switch` and `Merge`, loops as frames. What is written out can be placed node by node, and any
//! worker that knows no functions runs it.
//!
//! A function that calls itself stays a call where it recurs, and so does one that says
//! `_noinline`; what has no variables or a condition that is no bool stays as it is too, and so do
//! `For`, `RemoteCall` and `SymbolicGradient`.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};
use thalweg_graph::{
    Attrs, Endpoint, Flag, FunctionBody, Graph, IntoAttr, Node, NodeId, OutputInfo, Renumbering,
    Role,
};
use thalweg_proto as pb;
use thalweg_tensor::{DType, PartialShape, Result, ensure, err};

/// Bodies within bodies that are written out; further in they stay calls.
const DEPTH_MAX: usize = 32;
/// Nodes that writing out may make.
const NODES_MAX: usize = 1 << 22;

/// Which of a graph's nodes are written out.
pub enum Which {
    /// All that run functions.
    All,
    /// These, with what they run in turn.
    These(FxHashSet<NodeId>),
    /// Calls, but neither branches nor loops: no frames come of it.
    Calls,
}

impl Which {
    fn covers(&self, node: &Node) -> bool {
        let role = node.role();
        let is_flow = role.is_branch() || role == Role::While;
        role.is_call() && !(matches!(self, Which::Calls) && is_flow)
    }
}

/// `graph` with the functions written out that its nodes run.
pub fn lower(graph: &Graph, which: &Which) -> Result<Graph> {
    let is_meant = |id: NodeId| match which {
        Which::These(these) => these.contains(&id),
        _ => which.covers(graph.node(id)),
    };
    if !graph.ids().any(is_meant) {
        return Ok(graph.clone());
    }
    let mut lowering = Lowering::new(graph, which);
    lowering.copy(graph, &Place::top())?;
    Ok(Graph::from_nodes(graph, lowering.in_order()))
}

/// Where nodes are written to.
#[derive(Clone)]
struct Place {
    prefix: String,
    device: Arc<str>,
    /// What nodes without inputs wait for, so that they run where and as often as the others.
    pivot: Option<NodeId>,
    /// Functions being written out, the outermost first.
    within: Vec<String>,
}

impl Place {
    fn top() -> Place {
        Place { prefix: String::new(), device: "".into(), pivot: None, within: Vec::new() }
    }
}

/// What became of a node.
#[derive(Clone, Default)]
struct Written {
    outputs: Vec<Endpoint>,
    /// What must have run for the node to have run.
    ends: SmallVec<[NodeId; 1]>,
}

struct Lowering<'a> {
    like: &'a Graph,
    which: &'a Which,
    nodes: Vec<Node>,
    names: FxHashSet<Arc<str>>,
    /// For each node, which of the graph's it is or stands for.
    origins: Vec<u32>,
    origin: u32,
}

impl<'a> Lowering<'a> {
    fn new(like: &'a Graph, which: &'a Which) -> Self {
        let names = like.nodes().iter().map(|n| n.name.clone()).collect();
        Lowering {
            like,
            which,
            nodes: Vec::with_capacity(like.len()),
            names,
            origins: Vec::new(),
            origin: 0,
        }
    }

    /// The nodes in the order of those they stand for: feeds and fetches are counted by it.
    fn in_order(self) -> Vec<Node> {
        let mut order: Vec<NodeId> = (0..self.nodes.len() as u32).map(NodeId).collect();
        order.sort_by_key(|id| self.origins[id.index()]);
        let renumbering = Renumbering::reorder(&order);
        let mut nodes: Vec<Option<Node>> = self.nodes.into_iter().map(Some).collect();
        let mut sorted: Vec<Node> =
            order.iter().filter_map(|id| nodes[id.index()].take()).collect();
        sorted.iter_mut().for_each(|node| renumbering.rewire(node));
        sorted
    }

    fn info(&self, e: Endpoint) -> &OutputInfo {
        &self.nodes[e.node.index()].outputs[e.index as usize]
    }

    fn push(&mut self, node: Node) -> Result<NodeId> {
        ensure!(
            self.nodes.len() < NODES_MAX,
            ResourceExhausted,
            "functions written out make more than {NODES_MAX} nodes"
        );
        self.nodes.push(node);
        self.origins.push(self.origin);
        Ok(NodeId(self.nodes.len() as u32 - 1))
    }

    fn unique(&mut self, name: &str) -> Arc<str> {
        let mut candidate: Arc<str> = name.into();
        let mut number = 1;
        while !self.names.insert(candidate.clone()) {
            candidate = format!("{name}_{number}").into();
            number += 1;
        }
        candidate
    }

    /// Copies the nodes of a graph, writing out those that run functions. Arguments are not nodes:
    /// `given` says what they stand for.
    fn copy(&mut self, graph: &Graph, place: &Place) -> Result<Vec<Written>> {
        self.copy_body(graph, place, &FxHashMap::default())
    }

    fn copy_body(
        &mut self,
        graph: &Graph,
        place: &Place,
        given: &FxHashMap<NodeId, Endpoint>,
    ) -> Result<Vec<Written>> {
        let mut written: Vec<Option<Written>> = vec![None; graph.len()];
        let mut later: Vec<(NodeId, NodeId)> = Vec::new();
        for id in graph.topological_order() {
            let node = graph.node(id);
            if place.within.is_empty() {
                self.origin = id.0;
            }
            if let Some(&tensor) = given.get(&id) {
                written[id.index()] =
                    Some(Written { outputs: vec![tensor], ends: SmallVec::new() });
                continue;
            }
            if !place.within.is_empty() && node.role() == Role::Retval {
                written[id.index()] = Some(Written::default());
                continue;
            }
            let mut copy = node.clone();
            let mut is_closed = true;
            for e in &mut copy.inputs {
                match &written[e.node.index()] {
                    Some(source) => *e = source.outputs[e.index as usize],
                    // The edge that closes a loop of frames comes when its source is there.
                    None => is_closed = false,
                }
            }
            copy.control_inputs = SmallVec::new();
            for &control in &node.control_inputs {
                if let Some(source) = &written[control.index()] {
                    copy.control_inputs.extend_from_slice(&source.ends);
                }
            }
            self.settle(&mut copy, place);
            let result = self.write(copy, place)?;
            if !is_closed {
                later.push((id, result.ends[0]));
            }
            written[id.index()] = Some(result);
        }
        for (id, copy) in later {
            for (i, e) in graph.node(id).inputs.iter().enumerate() {
                let source = written[e.node.index()].as_ref();
                let source = source.ok_or_else(|| err!(Internal, "a node was not written"))?;
                self.nodes[copy.index()].inputs[i] = source.outputs[e.index as usize];
            }
        }
        Ok(written.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Gives a copied node its name, device and, if it has no inputs, what it waits for.
    fn settle(&mut self, node: &mut Node, place: &Place) {
        if place.within.is_empty() {
            return;
        }
        node.name = self.unique(&format!("{}{}", place.prefix, node.name));
        // What takes a handle is where the state is, wherever the call is.
        let takes_handle = node.inputs.iter().any(|&e| self.info(e).dtype == DType::Resource);
        if node.device.is_empty() && !takes_handle {
            node.device = place.device.clone();
        }
        if node.inputs.is_empty() && node.control_inputs.is_empty() {
            node.control_inputs.extend(place.pivot);
        }
    }

    /// Writes a node whose inputs are written.
    fn write(&mut self, node: Node, place: &Place) -> Result<Written> {
        let is_meant = match self.which {
            Which::These(these) if place.within.is_empty() => these.contains(&NodeId(self.origin)),
            which => which.covers(&node),
        };
        if is_meant
            && place.within.len() < DEPTH_MAX
            && let Some(written) = self.write_out(&node, place)?
        {
            return Ok(written);
        }
        let outputs = node.outputs.len() as u32;
        let id = self.push(node)?;
        let outputs = (0..outputs).map(|index| Endpoint { node: id, index }).collect();
        Ok(Written { outputs, ends: smallvec![id] })
    }

    fn write_out(&mut self, node: &Node, place: &Place) -> Result<Option<Written>> {
        let attrs = node.attrs();
        match node.role() {
            Role::Function => {
                let name = &node.op.name;
                let Some(body) = self.body(name, &node.attrs, place)? else { return Ok(None) };
                self.call(node, &body, place)
            }
            Role::PartitionedCall => {
                let Some(body) = self.named(attrs.function("f")?, place)? else { return Ok(None) };
                self.call(node, &body, place)
            }
            Role::If => {
                let condition = self.info(node.inputs[0]);
                let is_scalar = condition.shape.rank().is_none_or(|rank| rank == 0);
                if condition.dtype != DType::Bool || !is_scalar {
                    return Ok(None);
                }
                let bodies = [attrs.function("else_branch")?, attrs.function("then_branch")?];
                let bodies =
                    bodies.map(|f| &**f).into_iter().zip(["else", "then"].map(String::from));
                self.branches(node, bodies, place)
            }
            Role::Case => {
                let names = (0..).map(|i| format!("branch_{i}"));
                self.branches(node, attrs.functions("branches")?.iter().zip(names), place)
            }
            Role::While if !node.inputs.is_empty() => {
                let (Some(cond), Some(body)) = (
                    self.named(attrs.function("cond")?, place)?,
                    self.named(attrs.function("body")?, place)?,
                ) else {
                    return Ok(None);
                };
                if !is_bool(&cond) {
                    return Ok(None);
                }
                self.while_loop(node, &cond, &body, place).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn named(&self, function: &pb::NameAttrList, place: &Place) -> Result<Option<Body>> {
        self.body(&function.name, &Attrs::from_proto(&function.attr), place)
    }

    /// A function's body, unless it is being written out already.
    fn body(&self, name: &str, attrs: &Attrs, place: &Place) -> Result<Option<Body>> {
        if place.within.iter().any(|outer| outer == name) {
            return Ok(None);
        }
        Ok(Some(Body { name: name.to_owned(), body: self.like.function_body(name, attrs)? }))
    }

    /// Writes a body with these arguments; what its results are, and what ends with it.
    fn inline(&mut self, body: &Body, args: &[Endpoint], place: Place) -> Result<Written> {
        let Body { name, body } = body;
        ensure!(
            args.len() == body.args.len(),
            InvalidArgument,
            "function '{name}' takes {} arguments, got {}",
            body.args.len(),
            args.len()
        );
        for (i, (&arg, &given)) in body.args.iter().zip(args).enumerate() {
            let (wanted, given) =
                (body.graph.node(arg).attrs().dtype("T")?, self.info(given).dtype);
            ensure!(
                wanted == given,
                InvalidArgument,
                "function '{name}': argument {i} must be {wanted}, got {given}"
            );
        }
        let mut place = place;
        place.within.push(name.clone());
        let given = body.args.iter().copied().zip(args.iter().copied()).collect();
        let written = self.copy_body(&body.graph, &place, &given)?;
        let results = body.result_tensors().into_iter();
        let outputs = results.map(|e| written[e.node.index()].outputs[e.index as usize]).collect();
        let mut ends: SmallVec<[NodeId; 1]> = SmallVec::new();
        for id in body.graph.ids() {
            let node = body.graph.node(id);
            let is_effect = node.op.has(Flag::Stateful) && node.role() != Role::Retval;
            if (is_effect && !body.args.contains(&id)) || body.control_results.contains(&id) {
                ends.extend_from_slice(&written[id.index()].ends);
            }
        }
        Ok(Written { outputs, ends })
    }

    fn call(&mut self, node: &Node, body: &Body, place: &Place) -> Result<Option<Written>> {
        let def = self.like.library().get(&body.name);
        let value = def.and_then(|def| def.attr.get("_noinline")?.value.as_ref());
        if value == Some(&pb::attr_value::Value::B(true)) {
            return Ok(None);
        }
        let mut inner = self.inside(node, "", place);
        let mut args = Vec::with_capacity(node.inputs.len());
        for &input in &node.inputs {
            let arg = self.forward(&inner, "arg", input, &node.control_inputs)?;
            args.push(arg);
        }
        if !node.control_inputs.is_empty() {
            inner.pivot = Some(self.after(&inner, "begin", &node.control_inputs)?);
        }
        let mut written = self.inline(body, &args, inner)?;
        self.check_results(node, &written)?;
        written.ends.extend(written.outputs.iter().map(|e| e.node));
        Ok(Some(written))
    }

    fn check_results(&self, node: &Node, written: &Written) -> Result<()> {
        let given: Vec<DType> = written.outputs.iter().map(|&e| self.info(e).dtype).collect();
        let wanted: Vec<DType> = node.outputs.iter().map(|o| o.dtype).collect();
        ensure!(
            given == wanted,
            InvalidArgument,
            "a function gives {given:?}, {wanted:?} is wanted\n\t [[{{{{node {}}}}}]]",
            node.name
        );
        Ok(())
    }

    /// The functions of which one runs, each with the name of its part; none if one of them must stay
    /// a call.
    fn branches<'f>(
        &mut self,
        node: &Node,
        functions: impl Iterator<Item = (&'f pb::NameAttrList, String)>,
        place: &Place,
    ) -> Result<Option<Written>> {
        let mut bodies = Vec::new();
        for (function, name) in functions {
            let Some(body) = self.named(function, place)? else { return Ok(None) };
            bodies.push((body, name));
        }
        self.branch(node, &bodies, place).map(Some)
    }

    fn branch(&mut self, node: &Node, bodies: &[(Body, String)], place: &Place) -> Result<Written> {
        let outer = self.inside(node, "", place);
        let (choice, after) =
            (Choice { by: node.inputs[0], of: bodies.len() }, &node.control_inputs);
        let pivot = self.switch(&outer, "pivot", choice.by, choice, after)?;
        let mut switched = Vec::with_capacity(node.inputs.len());
        for &input in &node.inputs[1..] {
            switched.push(self.switch(&outer, "switch", input, choice, after)?);
        }
        let (mut sides, mut side_ends) = (Vec::with_capacity(bodies.len()), Vec::new());
        for (side, (body, name)) in bodies.iter().enumerate() {
            let mut inner = self.inside(node, name, place);
            let at = Endpoint { node: pivot, index: side as u32 };
            let begin = self.forward(&inner, "pivot", at, &[])?;
            inner.pivot = Some(begin.node);
            let args: Vec<Endpoint> =
                switched.iter().map(|&node| Endpoint { node, index: side as u32 }).collect();
            let written = self.inline(body, &args, inner.clone())?;
            self.check_results(node, &written)?;
            // The side has run when all of this has.
            let results = written.outputs.iter().map(|e| e.node);
            let all: Vec<NodeId> = written.ends.iter().copied().chain(results).collect();
            side_ends.push(self.forward(&inner, "end", begin, &all)?);
            sides.push(written.outputs);
        }
        let mut outputs = Vec::with_capacity(node.outputs.len());
        for i in 0..node.outputs.len() {
            let values: Vec<Endpoint> = sides.iter().map(|side| side[i]).collect();
            outputs.push(self.merge(&outer, "merge", &values)?);
        }
        let end = self.merge(&outer, "end", &side_ends)?;
        Ok(Written { outputs, ends: smallvec![end.node] })
    }

    fn while_loop(
        &mut self,
        node: &Node,
        cond: &Body,
        body: &Body,
        place: &Place,
    ) -> Result<Written> {
        let outer = self.inside(node, "", place);
        let frame: Arc<str> = self.unique(&format!("{}frame", outer.prefix));
        let parallel = node.attrs().int("parallel_iterations").unwrap_or(10);
        let mut merges = Vec::with_capacity(node.inputs.len());
        for &input in &node.inputs {
            let mut enter = self.bare(&outer, "Enter", "enter", input)?;
            enter.attrs.set("frame_name", (&*frame).into_attr());
            enter.attrs.set("parallel_iterations", parallel.into_attr());
            enter.control_inputs.extend_from_slice(&node.control_inputs);
            let enter = Endpoint { node: self.push(enter)?, index: 0 };
            // The second input is the next iteration's; until it is there, the first stands for it.
            merges.push(self.merge(&outer, "merge", &[enter, enter])?);
        }
        let mut inner = self.inside(node, "cond", place);
        inner.pivot = Some(merges[0].node);
        let goes_on = self.inline(cond, &merges, inner.clone())?;
        let mut loop_cond = self.bare(&inner, "LoopCond", "loop_cond", goes_on.outputs[0])?;
        loop_cond.attrs = Attrs::default();
        loop_cond.control_inputs.extend_from_slice(&goes_on.ends);
        let loop_cond = Endpoint { node: self.push(loop_cond)?, index: 0 };
        let (mut exits, mut args) = (Vec::new(), Vec::new());
        let mut inner = self.inside(node, "body", place);
        for &merge in &merges {
            let choice = Choice { by: loop_cond, of: 2 };
            let switch = self.switch(&outer, "switch", merge, choice, &[])?;
            let exit = self.bare(&outer, "Exit", "exit", Endpoint { node: switch, index: 0 })?;
            exits.push(Endpoint { node: self.push(exit)?, index: 0 });
            args.push(self.forward(&inner, "arg", Endpoint { node: switch, index: 1 }, &[])?);
        }
        inner.pivot = Some(args[0].node);
        let written = self.inline(body, &args, inner.clone())?;
        self.check_results(node, &written)?;
        for (&result, merge) in written.outputs.iter().zip(&merges) {
            let mut next = self.bare(&inner, "NextIteration", "next", result)?;
            // What has effects is done before the next iteration begins.
            next.control_inputs.extend_from_slice(&written.ends);
            let next = Endpoint { node: self.push(next)?, index: 0 };
            self.nodes[merge.node.index()].inputs[1] = next;
        }
        let ends = exits.iter().map(|e| e.node).collect();
        Ok(Written { outputs: exits, ends })
    }

    /// Where the parts of a node's functions go.
    fn inside(&self, node: &Node, part: &str, place: &Place) -> Place {
        let separator = if part.is_empty() { "" } else { "/" };
        Place {
            prefix: format!("{}/{part}{separator}", node.name),
            device: node.device.clone(),
            ..place.clone()
        }
    }

    /// A node of one input, which it hands on.
    fn bare(&mut self, place: &Place, op: &str, name: &str, input: Endpoint) -> Result<Node> {
        let info = self.info(input).clone();
        let op = self.like.registry().get(op)?.clone();
        let mut node = Node::bare(self.unique(&format!("{}{name}", place.prefix)), op);
        if info.dtype != DType::Resource {
            node.device = place.device.clone();
        }
        node.inputs.push(input);
        node.attrs.set("T", info.dtype.into_attr());
        node.outputs.push(OutputInfo { is_ref: false, ..info });
        Ok(node)
    }

    fn forward(
        &mut self,
        place: &Place,
        name: &str,
        input: Endpoint,
        after: &[NodeId],
    ) -> Result<Endpoint> {
        let mut node = self.bare(place, "Identity", name, input)?;
        node.control_inputs.extend_from_slice(after);
        Ok(Endpoint { node: self.push(node)?, index: 0 })
    }

    /// A node that does nothing after others.
    fn after(&mut self, place: &Place, name: &str, nodes: &[NodeId]) -> Result<NodeId> {
        let op = self.like.registry().get("NoOp")?.clone();
        let mut node = Node::bare(self.unique(&format!("{}{name}", place.prefix)), op);
        node.device = place.device.clone();
        node.control_inputs.extend_from_slice(nodes);
        self.push(node)
    }

    fn switch(
        &mut self,
        place: &Place,
        name: &str,
        input: Endpoint,
        choice: Choice,
        after: &[NodeId],
    ) -> Result<NodeId> {
        let is_bool = self.info(choice.by).dtype == DType::Bool;
        let mut node =
            self.bare(place, if is_bool { "Switch" } else { "_SwitchN" }, name, input)?;
        if !is_bool {
            node.attrs.set("num_outs", (choice.of as i64).into_attr());
        }
        node.inputs.push(choice.by);
        node.control_inputs.extend_from_slice(after);
        let output = node.outputs[0].clone();
        node.outputs.resize(choice.of, output);
        self.push(node)
    }

    fn merge(&mut self, place: &Place, name: &str, values: &[Endpoint]) -> Result<Endpoint> {
        let mut node = self.bare(place, "Merge", name, values[0])?;
        node.inputs = values.iter().copied().collect();
        node.attrs.set("N", (values.len() as i64).into_attr());
        // Either side may come, and a later iteration may bring another shape.
        node.outputs[0].shape = PartialShape::unknown();
        let index =
            OutputInfo { dtype: DType::Int32, is_ref: false, shape: PartialShape::scalar() };
        node.outputs.push(index);
        Ok(Endpoint { node: self.push(node)?, index: 0 })
    }
}

/// What decides which of several outputs is alive.
#[derive(Clone, Copy)]
struct Choice {
    by: Endpoint,
    of: usize,
}

/// A function about to be written out.
struct Body {
    name: String,
    body: FunctionBody,
}

fn is_bool(cond: &Body) -> bool {
    let FunctionBody { graph, .. } = &cond.body;
    matches!(cond.body.result_tensors()[..], [e] if graph.output(e).dtype == DType::Bool)
}
