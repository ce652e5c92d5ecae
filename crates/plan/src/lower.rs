//! Lowering of functional ops: calls are inlined, `If` and `Case` become `Switch` and `Merge`, `While`
//! becomes a frame. Lowered nodes can be placed one by one, and a worker runs them without a library.
//!
//! These stay calls: the recursive call of a function, a function with the attr `_noinline`, a
//! `While` without loop variables, a condition that is not a bool scalar, `For`, `RemoteCall` and
//! `SymbolicGradient`.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};
use thalweg_graph::{
    Attrs, Endpoint, Flag, FunctionBody, Graph, IntoAttr, Node, NodeId, OutputInfo, Renumbering,
    Role,
};
use thalweg_proto as pb;
use thalweg_tensor::{DType, PartialShape, Result, ensure, err};

/// Greatest nesting depth of inlined functions; deeper ones stay calls.
const DEPTH_MAX: usize = 32;
/// Most nodes that lowering makes.
const NODES_MAX: usize = 1 << 22;

/// Which nodes are lowered.
pub enum LowerSelection {
    /// All that call functions.
    All,
    /// These, and all calls in the functions that they call.
    Nodes(FxHashSet<NodeId>),
    /// Calls, but neither branches nor loops: no control flow ops are added.
    Calls,
}

impl LowerSelection {
    fn includes(&self, node: &Node) -> bool {
        let role = node.role();
        let is_flow = role.is_branch() || role == Role::While;
        role.is_call() && !(matches!(self, LowerSelection::Calls) && is_flow)
    }
}

/// `graph` with the selected nodes lowered.
pub fn lower(graph: &Graph, selection: &LowerSelection) -> Result<Graph> {
    let is_selected = |id: NodeId| match selection {
        LowerSelection::Nodes(nodes) => nodes.contains(&id),
        _ => selection.includes(graph.node(id)),
    };
    if !graph.ids().any(is_selected) {
        return Ok(graph.clone());
    }
    let mut lowering = Lowering::new(graph, selection);
    lowering.copy(graph, &InlineContext::top())?;
    Ok(Graph::from_nodes(graph, lowering.in_order()))
}

/// The context in which a body is inlined.
#[derive(Clone)]
struct InlineContext {
    prefix: String,
    device: Arc<str>,
    /// Control input of nodes without inputs, so that they run in the same frame and branch as the
    /// rest of the body.
    pivot: Option<NodeId>,
    /// Functions being inlined, the outermost first.
    within: Vec<String>,
}

impl InlineContext {
    fn top() -> InlineContext {
        InlineContext { prefix: String::new(), device: "".into(), pivot: None, within: Vec::new() }
    }
}

/// A node after lowering.
#[derive(Clone, Default)]
struct Lowered {
    outputs: Vec<Endpoint>,
    /// Nodes that have all run exactly if the original node has: sources of its control edges.
    ends: SmallVec<[NodeId; 1]>,
}

struct Lowering<'a> {
    like: &'a Graph,
    selection: &'a LowerSelection,
    nodes: Vec<Node>,
    names: FxHashSet<Arc<str>>,
    /// For each node, the position of the original node that it is or belongs to.
    origins: Vec<u32>,
    origin: u32,
}

impl<'a> Lowering<'a> {
    fn new(like: &'a Graph, selection: &'a LowerSelection) -> Self {
        let names = like.nodes().iter().map(|n| n.name.clone()).collect();
        Lowering {
            like,
            selection,
            nodes: Vec::with_capacity(like.len()),
            names,
            origins: Vec::new(),
            origin: 0,
        }
    }

    /// The nodes in the order of the original nodes: feeds and fetches are identified by position.
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
            "inlined functions have more than {NODES_MAX} nodes"
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

    /// Copies the nodes of a graph and lowers the selected ones.
    fn copy(&mut self, graph: &Graph, context: &InlineContext) -> Result<Vec<Lowered>> {
        self.copy_body(graph, context, &FxHashMap::default())
    }

    /// As `copy`; `given` holds the tensors that replace `_Arg` nodes.
    fn copy_body(
        &mut self,
        graph: &Graph,
        context: &InlineContext,
        given: &FxHashMap<NodeId, Endpoint>,
    ) -> Result<Vec<Lowered>> {
        let mut lowered: Vec<Option<Lowered>> = vec![None; graph.len()];
        let mut later: Vec<(NodeId, NodeId)> = Vec::new();
        // Nodes that output a handle which the caller gave.
        let mut given_handles: FxHashSet<NodeId> = given.keys().copied().collect();
        for id in graph.topological_order() {
            let node = graph.node(id);
            if context.within.is_empty() {
                self.origin = id.0;
            }
            if let Some(&tensor) = given.get(&id) {
                lowered[id.index()] =
                    Some(Lowered { outputs: vec![tensor], ends: SmallVec::new() });
                continue;
            }
            if !context.within.is_empty() && node.role() == Role::Retval {
                lowered[id.index()] = Some(Lowered::default());
                continue;
            }
            let mut copy = node.clone();
            let mut is_closed = true;
            for e in &mut copy.inputs {
                match &lowered[e.node.index()] {
                    Some(source) => *e = source.outputs[e.index as usize],
                    // The back edge of a frame is set once its source is copied.
                    None => is_closed = false,
                }
            }
            copy.control_inputs = SmallVec::new();
            for &control in &node.control_inputs {
                if let Some(source) = &lowered[control.index()] {
                    copy.control_inputs.extend_from_slice(&source.ends);
                }
            }
            let takes_given = node.inputs.iter().any(|e| {
                graph.output(*e).dtype == DType::Resource && given_handles.contains(&e.node)
            });
            if takes_given {
                // The state's device counts: files name that of the machine that wrote them.
                copy.device = "".into();
                if node.role() == Role::Identity {
                    given_handles.insert(id);
                }
            }
            self.adapt(&mut copy, context);
            let result = self.lower_node(copy, context)?;
            if !is_closed {
                later.push((id, result.ends[0]));
            }
            lowered[id.index()] = Some(result);
        }
        for (id, copy) in later {
            for (i, e) in graph.node(id).inputs.iter().enumerate() {
                let source = lowered[e.node.index()].as_ref();
                let source = source.ok_or_else(|| err!(Internal, "a node was not lowered"))?;
                self.nodes[copy.index()].inputs[i] = source.outputs[e.index as usize];
            }
        }
        Ok(lowered.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Sets the name and device of a copied node and, if it has no inputs, its control input.
    fn adapt(&mut self, node: &mut Node, context: &InlineContext) {
        if context.within.is_empty() {
            return;
        }
        node.name = self.unique(&format!("{}{}", context.prefix, node.name));
        // A node that takes a resource handle is placed with the state, not with the call.
        let takes_handle = node.inputs.iter().any(|&e| self.info(e).dtype == DType::Resource);
        if node.device.is_empty() && !takes_handle {
            node.device = context.device.clone();
        }
        if node.inputs.is_empty() && node.control_inputs.is_empty() {
            node.control_inputs.extend(context.pivot);
        }
    }

    /// Adds a node whose inputs are lowered, or its lowered form.
    fn lower_node(&mut self, node: Node, context: &InlineContext) -> Result<Lowered> {
        let is_selected = match self.selection {
            LowerSelection::Nodes(nodes) if context.within.is_empty() => {
                nodes.contains(&NodeId(self.origin))
            }
            selection => selection.includes(&node),
        };
        if is_selected
            && context.within.len() < DEPTH_MAX
            && let Some(lowered) = self.lowered(&node, context)?
        {
            return Ok(lowered);
        }
        let outputs = node.outputs.len() as u32;
        let id = self.push(node)?;
        let outputs = (0..outputs).map(|index| Endpoint { node: id, index }).collect();
        Ok(Lowered { outputs, ends: smallvec![id] })
    }

    /// The lowered form of a node; `None` if it stays a call.
    fn lowered(&mut self, node: &Node, context: &InlineContext) -> Result<Option<Lowered>> {
        let attrs = node.attrs();
        match node.role() {
            Role::Function => {
                let name = &node.op.name;
                let Some(body) = self.body(name, &node.attrs, context)? else { return Ok(None) };
                self.call(node, &body, context)
            }
            Role::PartitionedCall => {
                let Some(body) = self.named(attrs.function("f")?, context)? else {
                    return Ok(None);
                };
                self.call(node, &body, context)
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
                self.branches(node, bodies, context)
            }
            Role::Case => {
                let names = (0..).map(|i| format!("branch_{i}"));
                self.branches(node, attrs.functions("branches")?.iter().zip(names), context)
            }
            Role::While if !node.inputs.is_empty() => {
                let (Some(cond), Some(body)) = (
                    self.named(attrs.function("cond")?, context)?,
                    self.named(attrs.function("body")?, context)?,
                ) else {
                    return Ok(None);
                };
                if !is_bool(&cond) {
                    return Ok(None);
                }
                self.while_loop(node, &cond, &body, context).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn named(&self, function: &pb::NameAttrList, context: &InlineContext) -> Result<Option<Body>> {
        self.body(&function.name, &Attrs::from_proto(&function.attr), context)
    }

    /// The body of a function; `None` if the call is recursive.
    fn body(&self, name: &str, attrs: &Attrs, context: &InlineContext) -> Result<Option<Body>> {
        if context.within.iter().any(|outer| outer == name) {
            return Ok(None);
        }
        Ok(Some(Body { name: name.to_owned(), body: self.like.function_body(name, attrs)? }))
    }

    /// Inlines a body with these arguments; its results, and the nodes after which it has run.
    fn inline(
        &mut self,
        body: &Body,
        args: &[Endpoint],
        context: InlineContext,
    ) -> Result<Lowered> {
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
        let mut context = context;
        context.within.push(name.clone());
        let given = body.args.iter().copied().zip(args.iter().copied()).collect();
        let lowered = self.copy_body(&body.graph, &context, &given)?;
        let results = body.result_tensors().into_iter();
        let outputs = results.map(|e| lowered[e.node.index()].outputs[e.index as usize]).collect();
        let mut ends: SmallVec<[NodeId; 1]> = SmallVec::new();
        for id in body.graph.ids() {
            let node = body.graph.node(id);
            let is_effect = node.op.has(Flag::Stateful) && node.role() != Role::Retval;
            if (is_effect && !body.args.contains(&id)) || body.control_results.contains(&id) {
                ends.extend_from_slice(&lowered[id.index()].ends);
            }
        }
        Ok(Lowered { outputs, ends })
    }

    fn call(
        &mut self,
        node: &Node,
        body: &Body,
        context: &InlineContext,
    ) -> Result<Option<Lowered>> {
        let def = self.like.library().get(&body.name);
        let value = def.and_then(|def| def.attr.get("_noinline")?.value.as_ref());
        if value == Some(&pb::attr_value::Value::B(true)) {
            return Ok(None);
        }
        let mut inner = self.inside(node, "", context);
        let mut args = Vec::with_capacity(node.inputs.len());
        for &input in &node.inputs {
            let arg = self.forward(&inner, "arg", input, &node.control_inputs)?;
            args.push(arg);
        }
        if !node.control_inputs.is_empty() {
            inner.pivot = Some(self.after(&inner, "begin", &node.control_inputs)?);
        }
        let mut lowered = self.inline(body, &args, inner)?;
        self.check_results(node, &lowered)?;
        lowered.ends.extend(lowered.outputs.iter().map(|e| e.node));
        Ok(Some(lowered))
    }

    fn check_results(&self, node: &Node, lowered: &Lowered) -> Result<()> {
        let given: Vec<DType> = lowered.outputs.iter().map(|&e| self.info(e).dtype).collect();
        let wanted: Vec<DType> = node.outputs.iter().map(|o| o.dtype).collect();
        match given == wanted {
            true => Ok(()),
            false => Err(err!(
                InvalidArgument,
                "the function returns {given:?}, but the node has outputs {wanted:?}"
            )
            .at_node(&node.name)),
        }
    }

    /// A branch with these functions and the names of their scopes; `None` if one of them must stay a
    /// call.
    fn branches<'f>(
        &mut self,
        node: &Node,
        functions: impl Iterator<Item = (&'f pb::NameAttrList, String)>,
        context: &InlineContext,
    ) -> Result<Option<Lowered>> {
        let mut bodies = Vec::new();
        for (function, name) in functions {
            let Some(body) = self.named(function, context)? else { return Ok(None) };
            bodies.push((body, name));
        }
        self.branch(node, &bodies, context).map(Some)
    }

    fn branch(
        &mut self,
        node: &Node,
        bodies: &[(Body, String)],
        context: &InlineContext,
    ) -> Result<Lowered> {
        let outer = self.inside(node, "", context);
        let (selector, after) =
            (Selector { index: node.inputs[0], num_outputs: bodies.len() }, &node.control_inputs);
        let pivot = self.switch(&outer, "pivot", selector.index, selector, after)?;
        let mut switched = Vec::with_capacity(node.inputs.len());
        for &input in &node.inputs[1..] {
            switched.push(self.switch(&outer, "switch", input, selector, after)?);
        }
        let (mut sides, mut side_ends) = (Vec::with_capacity(bodies.len()), Vec::new());
        for (side, (body, name)) in bodies.iter().enumerate() {
            let mut inner = self.inside(node, name, context);
            let at = Endpoint { node: pivot, index: side as u32 };
            let begin = self.forward(&inner, "pivot", at, &[])?;
            inner.pivot = Some(begin.node);
            let args: Vec<Endpoint> =
                switched.iter().map(|&node| Endpoint { node, index: side as u32 }).collect();
            let lowered = self.inline(body, &args, inner.clone())?;
            self.check_results(node, &lowered)?;
            // The branch has run when all of these have.
            let results = lowered.outputs.iter().map(|e| e.node);
            let all: Vec<NodeId> = lowered.ends.iter().copied().chain(results).collect();
            side_ends.push(self.forward(&inner, "end", begin, &all)?);
            sides.push(lowered.outputs);
        }
        let mut outputs = Vec::with_capacity(node.outputs.len());
        for i in 0..node.outputs.len() {
            let values: Vec<Endpoint> = sides.iter().map(|side| side[i]).collect();
            outputs.push(self.merge(&outer, "merge", &values)?);
        }
        let end = self.merge(&outer, "end", &side_ends)?;
        Ok(Lowered { outputs, ends: smallvec![end.node] })
    }

    fn while_loop(
        &mut self,
        node: &Node,
        cond: &Body,
        body: &Body,
        context: &InlineContext,
    ) -> Result<Lowered> {
        let outer = self.inside(node, "", context);
        let frame: Arc<str> = self.unique(&format!("{}frame", outer.prefix));
        let parallel = node.attrs().int("parallel_iterations").unwrap_or(10);
        let mut merges = Vec::with_capacity(node.inputs.len());
        for &input in &node.inputs {
            let mut enter = self.bare(&outer, "Enter", "enter", input)?;
            enter.attrs.set("frame_name", (&*frame).into_attr());
            enter.attrs.set("parallel_iterations", parallel.into_attr());
            enter.control_inputs.extend_from_slice(&node.control_inputs);
            let enter = Endpoint { node: self.push(enter)?, index: 0 };
            // The second input becomes the back edge once `NextIteration` is made.
            merges.push(self.merge(&outer, "merge", &[enter, enter])?);
        }
        let mut inner = self.inside(node, "cond", context);
        inner.pivot = Some(merges[0].node);
        let goes_on = self.inline(cond, &merges, inner.clone())?;
        let mut loop_cond = self.bare(&inner, "LoopCond", "loop_cond", goes_on.outputs[0])?;
        loop_cond.attrs = Attrs::default();
        loop_cond.control_inputs.extend_from_slice(&goes_on.ends);
        let loop_cond = Endpoint { node: self.push(loop_cond)?, index: 0 };
        let (mut exits, mut args) = (Vec::new(), Vec::new());
        let mut inner = self.inside(node, "body", context);
        for &merge in &merges {
            let selector = Selector { index: loop_cond, num_outputs: 2 };
            let switch = self.switch(&outer, "switch", merge, selector, &[])?;
            let exit = self.bare(&outer, "Exit", "exit", Endpoint { node: switch, index: 0 })?;
            exits.push(Endpoint { node: self.push(exit)?, index: 0 });
            args.push(self.forward(&inner, "arg", Endpoint { node: switch, index: 1 }, &[])?);
        }
        inner.pivot = Some(args[0].node);
        let lowered = self.inline(body, &args, inner.clone())?;
        self.check_results(node, &lowered)?;
        for (&result, merge) in lowered.outputs.iter().zip(&merges) {
            let mut next = self.bare(&inner, "NextIteration", "next", result)?;
            // Side effects of an iteration happen before the next one begins.
            next.control_inputs.extend_from_slice(&lowered.ends);
            let next = Endpoint { node: self.push(next)?, index: 0 };
            self.nodes[merge.node.index()].inputs[1] = next;
        }
        let ends = exits.iter().map(|e| e.node).collect();
        Ok(Lowered { outputs: exits, ends })
    }

    /// The context of a part of a node's functions.
    fn inside(&self, node: &Node, part: &str, context: &InlineContext) -> InlineContext {
        let separator = if part.is_empty() { "" } else { "/" };
        InlineContext {
            prefix: format!("{}/{part}{separator}", node.name),
            device: node.device.clone(),
            ..context.clone()
        }
    }

    /// A node of a forwarding op with one input.
    fn bare(
        &mut self,
        context: &InlineContext,
        op: &str,
        name: &str,
        input: Endpoint,
    ) -> Result<Node> {
        let info = self.info(input).clone();
        let op = self.like.registry().get(op)?.clone();
        let mut node = Node::bare(self.unique(&format!("{}{name}", context.prefix)), op);
        if info.dtype != DType::Resource {
            node.device = context.device.clone();
        }
        node.inputs.push(input);
        node.attrs.set("T", info.dtype.into_attr());
        node.outputs.push(OutputInfo { is_ref: false, ..info });
        Ok(node)
    }

    /// Adds an `Identity` of `input` with control edges from `after`.
    fn forward(
        &mut self,
        context: &InlineContext,
        name: &str,
        input: Endpoint,
        after: &[NodeId],
    ) -> Result<Endpoint> {
        let mut node = self.bare(context, "Identity", name, input)?;
        node.control_inputs.extend_from_slice(after);
        Ok(Endpoint { node: self.push(node)?, index: 0 })
    }

    /// Adds a `NoOp` with control edges from `nodes`.
    fn after(&mut self, context: &InlineContext, name: &str, nodes: &[NodeId]) -> Result<NodeId> {
        let op = self.like.registry().get("NoOp")?.clone();
        let mut node = Node::bare(self.unique(&format!("{}{name}", context.prefix)), op);
        node.device = context.device.clone();
        node.control_inputs.extend_from_slice(nodes);
        self.push(node)
    }

    fn switch(
        &mut self,
        context: &InlineContext,
        name: &str,
        input: Endpoint,
        selector: Selector,
        after: &[NodeId],
    ) -> Result<NodeId> {
        let is_bool = self.info(selector.index).dtype == DType::Bool;
        let mut node =
            self.bare(context, if is_bool { "Switch" } else { "_SwitchN" }, name, input)?;
        if !is_bool {
            node.attrs.set("num_outs", (selector.num_outputs as i64).into_attr());
        }
        node.inputs.push(selector.index);
        node.control_inputs.extend_from_slice(after);
        let output = node.outputs[0].clone();
        node.outputs.resize(selector.num_outputs, output);
        self.push(node)
    }

    fn merge(
        &mut self,
        context: &InlineContext,
        name: &str,
        values: &[Endpoint],
    ) -> Result<Endpoint> {
        let mut node = self.bare(context, "Merge", name, values[0])?;
        node.inputs = values.iter().copied().collect();
        node.attrs.set("N", (values.len() as i64).into_attr());
        // Branches and iterations may have different shapes.
        node.outputs[0].shape = PartialShape::unknown();
        let index =
            OutputInfo { dtype: DType::Int32, is_ref: false, shape: PartialShape::scalar() };
        node.outputs.push(index);
        Ok(Endpoint { node: self.push(node)?, index: 0 })
    }
}

/// Selects which output of a switch is alive.
#[derive(Clone, Copy)]
struct Selector {
    index: Endpoint,
    num_outputs: usize,
}

/// A function to inline.
struct Body {
    name: String,
    body: FunctionBody,
}

fn is_bool(cond: &Body) -> bool {
    let FunctionBody { graph, .. } = &cond.body;
    matches!(cond.body.result_tensors()[..], [e] if graph.output(e).dtype == DType::Bool)
}
