//! Which nodes regions may have: ops with a lowering, and calls, branches and loops of functions that do
//! nothing else.
//!
//! A function may be part of a region if all nodes of it that run have a lowering, directly or in the functions
//! that they call, and if what must be known when a program is compiled follows from constants, shapes and
//! arguments alone. Such arguments must then be known themselves; those of a loop must stay the same in every
//! iteration. Recursive functions are never part of a region, nor are those with state of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use thalweg_graph::{
    Attrs, Endpoint, Flag, FunctionBody, Graph, IntoAttr, Node, NodeId, OutputInfo, Role,
    dependencies,
};
use thalweg_hlo::is_supported;
use thalweg_kernel::{ANONYMOUS_VARIABLE, KernelRegistry};
use thalweg_proto as pb;
use thalweg_tensor::{DType, Result};

/// Most bytes of a constant that a region holds itself; larger ones are inputs, uploaded once.
const CONSTANT_BYTES_MAX: usize = 1024;
/// Deepest nesting of functions in a region.
const DEPTH_MAX: usize = 16;
/// Most nodes that a call may stand for. Constants, which are part of the program's text, count by their size.
const CALL_COST_MAX: usize = 1 << 18;
/// Bytes of a constant that count as one node.
const BYTES_PER_NODE: usize = 64;
/// Most arguments on which a value depends that is known when they are.
const KNOWN_BY_MAX: usize = 32;
/// The attr of a call that regions leave to the executor, because it was found not to compile.
pub(crate) const IN_PARTS: &str = "_run_in_parts";

/// What a node is to regions.
pub(crate) enum Member {
    /// It has a lowering; for each input, whether it must be known at compilation. Its outputs may
    /// follow from the shapes of its inputs.
    Lowered { is_static: Vec<bool>, reads_shapes: bool, is_call: bool },
    /// It belongs to whatever region it is next to: `Identity`, `NoOp`, a small constant with control inputs.
    Neutral,
    /// A constant, which each region that reads it holds itself, or gets as input.
    Constant { is_small: bool },
    /// A handle or reference of state that is always there.
    State,
    /// It stays a node of the executor.
    Outside,
}

impl Member {
    pub(crate) fn is_inside(&self) -> bool {
        matches!(self, Member::Lowered { .. } | Member::Neutral)
    }

    /// Whether it calls functions, which become part of the region.
    pub(crate) fn is_call(&self) -> bool {
        matches!(self, Member::Lowered { is_call: true, .. })
    }

    /// Whether the node's outputs are there without waiting.
    pub(crate) fn is_always_there(&self) -> bool {
        matches!(self, Member::Constant { .. } | Member::State)
    }

    pub(crate) fn needs_static(&self, input: usize) -> bool {
        matches!(self, Member::Lowered { is_static, .. } if is_static.get(input) == Some(&true))
    }
}

/// Finds what nodes are to regions.
pub(crate) struct Members<'a> {
    kernels: &'a KernelRegistry,
    device_type: &'a str,
    /// The functions that were examined, by name.
    functions: FxHashMap<String, Vec<(Attrs, Option<Facts>)>>,
    /// The functions that are being examined, the outermost first.
    within: Vec<String>,
    /// For each call of the partition, the handles that its functions make.
    handles: BTreeMap<NodeId, MadeHandles>,
}

/// Container and name of a variable.
pub type VariableName = (Arc<str>, Arc<str>);

/// The nodes of functions that make handles, by variable.
type MadeHandles = BTreeMap<VariableName, Node>;

/// What a region needs to know of a function.
#[derive(Clone)]
struct Facts {
    args: Vec<DType>,
    results: Vec<DType>,
    /// For each argument, whether it must be known at compilation.
    is_static: Vec<bool>,
    /// For each result, the argument that it is.
    forwarded: Vec<Option<usize>>,
    /// Nodes of it that make handles of variables.
    handles: MadeHandles,
    cost: usize,
}

/// A node that calls functions which a region may have.
struct Call {
    is_static: Vec<bool>,
    handles: MadeHandles,
    cost: usize,
}

/// The arguments on which a value depends that is known when they are; `None` if it never is.
type Known = Option<BTreeSet<usize>>;

impl<'a> Members<'a> {
    pub(crate) fn new(kernels: &'a KernelRegistry, device_type: &'a str) -> Self {
        Members {
            kernels,
            device_type,
            functions: FxHashMap::default(),
            within: Vec::new(),
            handles: BTreeMap::new(),
        }
    }

    /// For each call of the partition, the handles that its functions make.
    pub(crate) fn into_handles(self) -> BTreeMap<NodeId, MadeHandles> {
        self.handles
    }

    /// What a node of a partition is.
    pub(crate) fn of(&mut self, graph: &Graph, id: NodeId) -> Member {
        let node = graph.node(id);
        let is_free = node.control_inputs.is_empty() && node.inputs.is_empty();
        match node.role() {
            Role::Const if !node.outputs[0].dtype.is_object() => {
                let bytes = bytes_of(&node.outputs[0]);
                let is_small = bytes.is_some_and(|b| b <= CONSTANT_BYTES_MAX);
                match is_free {
                    true => Member::Constant { is_small },
                    // It belongs to one region, which keeps its place in the order of the step.
                    false if is_small => Member::Neutral,
                    false => Member::Outside,
                }
            }
            Role::Variable | Role::VarHandle if is_free => Member::State,
            Role::NoOp => Member::Neutral,
            Role::Identity
                if is_supported(node.outputs[0].dtype)
                    || node.outputs[0].dtype == DType::Variant =>
            {
                Member::Neutral
            }
            role if role.is_call() => match self.call(graph, node) {
                Some(Call { is_static, handles, .. }) => {
                    if !handles.is_empty() {
                        self.handles.insert(id, handles);
                    }
                    Member::Lowered { is_static, reads_shapes: false, is_call: true }
                }
                None => Member::Outside,
            },
            _ => match self.lowered(node) {
                // What only a function of a region can have.
                Some(_) if self.runs_on_host(node) && !has_lists(graph, node) => Member::Outside,
                Some((is_static, reads_shapes)) => {
                    Member::Lowered { is_static, reads_shapes, is_call: false }
                }
                None => Member::Outside,
            },
        }
    }

    /// Of a node with a lowering: the inputs that must be known, and whether its outputs follow from the
    /// shapes of its inputs.
    fn lowered(&self, node: &Node) -> Option<(Vec<bool>, bool)> {
        let spec = self.kernels.find(node, self.device_type).ok()?;
        spec.lower?;
        if spec.runs_on_host && node.attrs.get(IN_PARTS).is_some() {
            return None;
        }
        let mut is_static = vec![false; node.inputs.len()];
        for name in spec.host_inputs {
            // A name that the op lacks is found by the test of all lowerings.
            if let Ok(range) = node.input_range(name) {
                is_static[range].fill(true);
            }
        }
        Some((is_static, spec.reads_shapes))
    }

    fn runs_on_host(&self, node: &Node) -> bool {
        self.kernels.find(node, self.device_type).is_ok_and(|spec| spec.runs_on_host)
    }

    /// The call that a node is, if a region may have it.
    fn call(&mut self, graph: &Graph, node: &Node) -> Option<Call> {
        let is_value = |o: &OutputInfo| !o.is_ref && is_program_dtype(o.dtype);
        let fits = node.outputs.iter().all(is_value)
            && node.inputs.iter().all(|e| is_value(graph.output(*e)));
        if !fits || node.attrs.get(IN_PARTS).is_some() {
            return None;
        }
        let attrs = node.attrs();
        let (leading, functions): (usize, Vec<Facts>) = match node.role() {
            Role::Function => (0, vec![self.function(graph, &node.op.name, &node.attrs)?]),
            Role::PartitionedCall => (0, vec![self.named(graph, attrs.function("f").ok()?)?]),
            Role::If => {
                let names = ["then_branch", "else_branch"];
                let branches = names.map(|name| attrs.function(name).ok());
                (1, branches.into_iter().map(|f| self.named(graph, f?)).collect::<Option<_>>()?)
            }
            Role::Case => {
                let branches = attrs.functions("branches").ok()?.iter();
                (1, branches.map(|f| self.named(graph, f)).collect::<Option<_>>()?)
            }
            Role::While => {
                let parts = ["cond", "body"].map(|name| attrs.function(name).ok());
                (0, parts.into_iter().map(|f| self.named(graph, f?)).collect::<Option<_>>()?)
            }
            _ => return None,
        };
        let num_args = node.inputs.len().checked_sub(leading)?;
        let given: Vec<DType> =
            node.inputs[leading..].iter().map(|e| graph.output(*e).dtype).collect();
        let outputs: Vec<DType> = node.outputs.iter().map(|o| o.dtype).collect();
        let takes = |f: &Facts| f.args == given;
        // The executor reports functions that do not fit.
        let is_typed = match (node.role(), &functions[..]) {
            (Role::While, [cond, body]) => cond.results.len() == 1 && body.results == outputs,
            (_, functions) => functions.iter().all(|f| f.results == outputs),
        };
        if functions.is_empty() || !functions.iter().all(takes) || !is_typed {
            return None;
        }
        let mut is_static = vec![false; leading];
        is_static.extend((0..num_args).map(|i| functions.iter().any(|f| f.is_static[i])));
        if node.role() == Role::While {
            let body = functions.last()?;
            let is_handle = |i: usize| graph.output(node.inputs[i]).dtype == DType::Resource;
            let stays = |i: usize| body.forwarded.get(i) == Some(&Some(i));
            if (0..num_args).any(|i| (is_static[i] || is_handle(i)) && !stays(i)) {
                return None;
            }
        }
        let cost = functions.iter().fold(1, |sum: usize, f| sum.saturating_add(f.cost));
        if cost > CALL_COST_MAX {
            return None;
        }
        let handles = functions.into_iter().flat_map(|f| f.handles).collect();
        Some(Call { is_static, handles, cost })
    }

    fn named(&mut self, graph: &Graph, function: &pb::NameAttrList) -> Option<Facts> {
        self.function(graph, &function.name, &Attrs::from_proto(&function.attr))
    }

    /// The facts of a function that a region may have.
    fn function(&mut self, graph: &Graph, name: &str, attrs: &Attrs) -> Option<Facts> {
        if self.within.len() >= DEPTH_MAX || self.within.iter().any(|outer| outer == name) {
            return None;
        }
        let examined = self.functions.get(name).into_iter().flatten();
        if let Some((_, facts)) = examined.into_iter().find(|(known, _)| known == attrs) {
            return facts.clone();
        }
        self.within.push(name.to_owned());
        let body = graph.function_body(name, attrs).ok();
        let facts = body.and_then(|body| self.examine(&body));
        self.within.pop();
        self.functions.entry(name.to_owned()).or_default().push((attrs.clone(), facts.clone()));
        facts
    }

    fn examine(&mut self, body: &FunctionBody) -> Option<Facts> {
        let graph = &body.graph;
        let dtype = |id: &NodeId| graph.node(*id).attrs().dtype("T").ok();
        let mut facts = Facts {
            args: body.args.iter().map(dtype).collect::<Option<_>>()?,
            results: body.results.iter().map(dtype).collect::<Option<_>>()?,
            is_static: vec![false; body.args.len()],
            forwarded: forwarded_arguments(body),
            handles: MadeHandles::new(),
            cost: 0,
        };
        let mut known: Vec<Known> = vec![None; graph.len()];
        for (i, &id) in body.args.iter().enumerate() {
            // Whether the elements of a list are known shows when a program is compiled.
            let is_list = facts.args[i] == DType::Variant;
            known[id.index()] = Some(if is_list { BTreeSet::new() } else { BTreeSet::from([i]) });
        }
        for id in nodes_that_run(body)? {
            let node = graph.node(id);
            if !node.device.is_empty() || node.outputs.iter().any(|o| o.is_ref) {
                return None;
            }
            facts.cost += 1;
            match node.role() {
                Role::Arg if !is_program_dtype(node.outputs[0].dtype) => return None,
                Role::Arg | Role::Retval | Role::NoOp => {}
                Role::Identity if is_program_dtype(node.outputs[0].dtype) => {
                    known[id.index()] = known[node.inputs[0].node.index()].clone();
                }
                Role::Const if is_supported(node.outputs[0].dtype) => {
                    facts.cost += bytes_of(&node.outputs[0])? / BYTES_PER_NODE;
                    known[id.index()] = Some(BTreeSet::new());
                }
                Role::VarHandle => {
                    let name = variable_name(node).ok()?;
                    if *name.1 == *ANONYMOUS_VARIABLE {
                        return None;
                    }
                    facts.handles.entry(name).or_insert_with(|| node.clone());
                }
                role if role.is_call() => {
                    let Call { is_static, handles, cost } = self.call(graph, node)?;
                    facts.cost = facts.cost.saturating_add(cost);
                    facts.handles.extend(handles);
                    facts.need(node, &is_static, &known)?;
                }
                role if role.is_control_flow() || role.is_variable() => return None,
                _ => {
                    let (is_static, reads_shapes) = self.lowered(node)?;
                    let takes_state =
                        node.inputs.iter().any(|e| graph.output(*e).dtype == DType::Resource);
                    if node.op.has(Flag::Stateful) && !takes_state {
                        return None;
                    }
                    facts.need(node, &is_static, &known)?;
                    known[id.index()] = match reads_shapes {
                        true => Some(BTreeSet::new()),
                        false if takes_state || !graph.is_pure(node) => None,
                        false => union(node, &known),
                    };
                }
            }
            if facts.cost > CALL_COST_MAX {
                return None;
            }
        }
        Some(facts)
    }
}

impl Facts {
    /// Notes the arguments that must be known because a node's inputs must; `None` if that cannot be.
    fn need(&mut self, node: &Node, is_static: &[bool], known: &[Known]) -> Option<()> {
        let inputs = node.inputs.iter().zip(is_static).filter(|(_, is_static)| **is_static);
        for (e, _) in inputs {
            for &argument in known[e.node.index()].as_ref()? {
                self.is_static[argument] = true;
            }
        }
        Some(())
    }
}

/// Container and name of the variable whose handle or reference a node makes.
pub fn variable_name(node: &Node) -> Result<VariableName> {
    let attrs = node.attrs();
    let name = attrs.string("shared_name")?;
    let name = if name.is_empty() { node.name.clone() } else { name.into() };
    Ok((attrs.string("container")?.into(), name))
}

/// For each call, the variables that its functions make handles of, as outputs of the partition.
pub(crate) type Handles = FxHashMap<NodeId, Vec<(VariableName, Endpoint)>>;

/// The partition with a node for each handle that functions of regions make.
pub(crate) fn with_handles(
    graph: Graph,
    members: &mut Vec<Member>,
    wanted: BTreeMap<NodeId, MadeHandles>,
) -> Result<(Graph, Handles)> {
    let mut handles = Handles::default();
    if wanted.is_empty() {
        return Ok((graph, handles));
    }
    let mut known: FxHashMap<VariableName, NodeId> = FxHashMap::default();
    for (id, node) in graph.ids().zip(graph.nodes()) {
        if node.role() == Role::VarHandle && members[id.index()].is_always_there() {
            known.entry(variable_name(node)?).or_insert(id);
        }
    }
    let mut nodes = graph.nodes().to_vec();
    for (call, made) in wanted {
        for (name, mut node) in made {
            let id = *known.entry(name.clone()).or_insert_with(|| {
                // One name for all plans of a session, which share the node's kernel.
                let mut own = format!("_region_handle/{}/{}", name.0, name.1);
                while graph.find(&own).is_some() {
                    own.push('_');
                }
                node.name = own.into();
                node.attrs.set("shared_name", (&*name.1).into_attr());
                node.control_inputs.clear();
                node.device = graph.node(call).device.clone();
                nodes.push(node);
                members.push(Member::State);
                NodeId(nodes.len() as u32 - 1)
            });
            handles.entry(call).or_default().push((name, Endpoint { node: id, index: 0 }));
        }
    }
    Ok((Graph::from_nodes(&graph, nodes), handles))
}

/// The arguments on which the outputs of a pure node depend.
fn union(node: &Node, known: &[Known]) -> Known {
    if node.inputs.is_empty() {
        return None;
    }
    let mut all = BTreeSet::new();
    for e in &node.inputs {
        all.extend(known[e.node.index()].as_ref()?);
    }
    (all.len() <= KNOWN_BY_MAX).then_some(all)
}

/// The nodes of a function that run, each after its inputs; `None` if they have a cycle.
pub fn nodes_that_run(body: &FunctionBody) -> Option<Vec<NodeId>> {
    let graph = &body.graph;
    let effects = graph.ids().filter(|&id| graph.node(id).op.has(Flag::Stateful));
    let ends = body.results.iter().chain(&body.control_results).chain(&body.args).copied();
    let runs = dependencies(graph.nodes(), ends.chain(effects));
    let order = graph.topological_order();
    (order.len() == graph.len()).then(|| order.into_iter().filter(|id| runs[id.index()]).collect())
}

/// For each result of a function, the argument that it is, passed on unchanged.
pub fn forwarded_arguments(body: &FunctionBody) -> Vec<Option<usize>> {
    let graph = &body.graph;
    let mut source: Vec<Option<usize>> = vec![None; graph.len()];
    for (i, id) in body.args.iter().enumerate() {
        source[id.index()] = Some(i);
    }
    for id in graph.topological_order() {
        let node = graph.node(id);
        if let (Role::Identity, Some(e)) = (node.role(), node.inputs.first()) {
            source[id.index()] = source[e.node.index()];
        }
    }
    let of_result = |id: &NodeId| source[graph.node(*id).inputs.first()?.node.index()];
    body.results.iter().map(of_result).collect()
}

/// Whether a program can have a value of this dtype: numbers, handles of variables, and lists.
fn is_program_dtype(dtype: DType) -> bool {
    is_supported(dtype) || matches!(dtype, DType::Resource | DType::Variant)
}

/// Whether a node takes or makes lists.
pub(crate) fn has_lists(graph: &Graph, node: &Node) -> bool {
    let is_list = |o: &OutputInfo| o.dtype == DType::Variant;
    node.outputs.iter().any(is_list) || node.inputs.iter().any(|e| is_list(graph.output(*e)))
}

fn bytes_of(output: &OutputInfo) -> Option<usize> {
    let shape = output.shape.to_shape()?;
    Some(shape.num_elements().saturating_mul(output.dtype.size()))
}

/// The nodes whose groups cannot have them: they give values that only a program can have to nodes outside of
/// the group, or they are calls of a group that takes references, which a function cannot.
pub(crate) fn misplaced(graph: &Graph, members: &[Member], groups: &[Vec<NodeId>]) -> Vec<NodeId> {
    let mut group_of: Vec<Option<u32>> = vec![None; graph.len()];
    for (number, group) in groups.iter().enumerate() {
        group.iter().for_each(|id| group_of[id.index()] = Some(number as u32));
    }
    let is_call = |id: NodeId| members[id.index()].is_call();
    let mut takes_references = vec![false; groups.len()];
    let mut misplaced = spread_lists(graph, members, &group_of);
    for id in graph.ids() {
        for e in &graph.node(id).inputs {
            let (group, from) = (group_of[id.index()], group_of[e.node.index()]);
            let output = graph.output(*e);
            if group == from {
                continue;
            }
            if is_call(e.node) && !is_supported(output.dtype) {
                misplaced.insert(e.node);
            }
            let is_variable = graph.node(e.node).role() == Role::Variable;
            if let (Some(group), true) = (group, output.is_ref && !is_variable) {
                takes_references[group as usize] = true;
            }
        }
    }
    for (group, _) in groups.iter().zip(takes_references).filter(|(_, takes)| *takes) {
        let is_left_out = |id: &NodeId| is_call(*id) || has_lists(graph, graph.node(*id));
        misplaced.extend(group.iter().copied().filter(is_left_out));
    }
    misplaced.into_iter().collect()
}

/// The nodes in regions that are connected by lists and are not all of one group.
fn spread_lists(graph: &Graph, members: &[Member], group_of: &[Option<u32>]) -> BTreeSet<NodeId> {
    let mut lists: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
    for id in graph.ids() {
        for e in &graph.node(id).inputs {
            if graph.output(*e).dtype == DType::Variant {
                lists.entry(id).or_default().push(e.node);
                lists.entry(e.node).or_default().push(id);
            }
        }
        // A list that nothing reads.
        if graph.node(id).outputs.iter().any(|o| o.dtype == DType::Variant) {
            lists.entry(id).or_default();
        }
    }
    let mut spread = BTreeSet::new();
    let mut seen: BTreeSet<NodeId> = BTreeSet::new();
    for &first in lists.keys() {
        let (mut connected, mut stack) = (Vec::new(), vec![first]);
        while let Some(id) = stack.pop() {
            if seen.insert(id) {
                connected.push(id);
                stack.extend(&lists[&id]);
            }
        }
        let group = group_of[first.index()];
        let is_together = |id: &NodeId| group.is_some() && group_of[id.index()] == group;
        if !connected.iter().all(is_together) {
            spread.extend(connected.into_iter().filter(|id| members[id.index()].is_inside()));
        }
    }
    spread
}
