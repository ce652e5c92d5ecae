//! A planned step as the simulator executes it: per partition a flat list of nodes with their kernels,
//! costs and successors.
//!
//! Handles of state and constants are not nodes here but preset inputs, so that the graphs of workers
//! can be compared input by input, and a replica be described by the inputs in which it differs.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thalweg_graph::{Graph, IntoAttr, Node, NodeId, Role};
use thalweg_kernel::{AnyKernel, AsyncKernel, Kernel, KernelOrigin};
use thalweg_plan::Plan;
use thalweg_tensor::{DType, PartialShape, Result, Tensor, bail, ensure, err};

/// The size up to which tensors have values; larger ones are ghosts, of which only the size counts.
pub(super) const REAL_BYTES_MAX: u64 = 64 << 10;

/// Where a partition runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Site {
    /// On the worker whose step it is.
    Worker,
    /// On this parameter server.
    Ps(u32),
}

/// A step: its partitions, the worker's first if it has one.
pub(super) struct StepPlan {
    pub partitions: Vec<Arc<Program>>,
    /// All programs, those of functions too, by number.
    pub programs: Vec<Arc<Program>>,
    pub fetches: u32,
}

/// The nodes of a partition, or of the body of a function.
pub(super) struct Program {
    /// Its position among the step's programs.
    pub number: u32,
    pub site: Site,
    /// What kernels see of the nodes.
    pub graph: Vec<Node>,
    pub nodes: Vec<ProgramNode>,
    pub dtypes: Vec<Box<[DType]>>,
    pub presets: Vec<Preset>,
    /// For each node how many events it waits for.
    pub pending: Box<[u32]>,
    /// The nodes that may run when the program begins: they wait for nothing, or for a tensor.
    pub roots: Vec<u32>,
    pub slots: u32,
    /// The results of a function.
    pub results: Vec<Input>,
}

pub(super) struct ProgramNode {
    pub kind: Kind,
    pub inputs: Vec<Input>,
    pub first_slot: u32,
    pub outputs: u32,
    pub successors: Vec<u32>,
    pub seconds: f64,
    /// Whether its outputs are ghosts, whatever its inputs are.
    pub makes_ghosts: bool,
    /// Whether it increments the global step.
    pub counts_update: bool,
}

/// Where a node's input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// The value of a slot; the only reader takes it.
    Slot { slot: u32, is_only: bool },
    /// The preset of this number.
    Preset(u32),
}

/// An input that is known before the step.
#[derive(Clone)]
pub(super) enum Preset {
    Value(Tensor),
    /// A handle of state on the partition's device; the node that makes it.
    Handle(Arc<Node>),
    /// A handle of a variable that is not simulated.
    Ghost,
}

pub(super) enum Kind {
    NoOp,
    Identity,
    Kernel(Arc<dyn Kernel>),
    Async(Arc<dyn AsyncKernel>),
    /// Adds to an accumulator; stand-ins for these inputs.
    Accumulate(Arc<dyn Kernel>, Vec<(usize, Tensor)>),
    Ghosts,
    Send {
        partition: u32,
        node: u32,
        bytes: u64,
    },
    Recv,
    Fetch(u32),
    Arg(u32),
    Loop {
        cond: Arc<Program>,
        body: Arc<Program>,
    },
}

/// What programs are compiled with.
pub(super) struct Compiler<'a> {
    pub origin: &'a KernelOrigin,
    /// Seconds of a node at its site.
    pub seconds: &'a dyn Fn(&Graph, NodeId, Site) -> f64,
    /// The rows that dimensions of unknown size are taken to have.
    pub rows: u64,
}

impl Compiler<'_> {
    /// Compiles a plan. `sites` are those of its devices, by name; `fetches` the fetched tensors.
    pub(super) fn step(
        &self,
        plan: &Plan,
        site_of: impl Fn(&Graph, &thalweg_kernel::DeviceName) -> Result<Site>,
        fetches: &[String],
    ) -> Result<StepPlan> {
        let mut receivers: FxHashMap<String, (u32, u32)> = FxHashMap::default();
        for (p, partition) in plan.partitions.iter().enumerate() {
            let numbered = partition.graph.nodes().iter().filter(|node| !is_preset(node));
            for (n, node) in numbered.enumerate() {
                if node.role() == Role::Recv {
                    let key = node.attrs().string("tensor_name")?.to_owned();
                    receivers.insert(key, (p as u32, n as u32));
                }
            }
        }
        let mut step = StepPlan {
            partitions: Vec::new(),
            programs: Vec::new(),
            fetches: fetches.len() as u32,
        };
        for partition in &plan.partitions {
            let site = site_of(&partition.graph, &partition.device)?;
            let links = Links { receivers: &receivers, fetches };
            let program = self.program(&mut step, &partition.graph, site, (&links, None))?;
            step.partitions.push(program);
        }
        Ok(step)
    }

    fn program(
        &self,
        step: &mut StepPlan,
        graph: &Graph,
        site: Site,
        (links, function): (&Links<'_>, Option<&thalweg_graph::FunctionBody>),
    ) -> Result<Arc<Program>> {
        let mut build = Building::new(graph);
        let mut nodes = Vec::with_capacity(graph.len());
        let mut own = Vec::with_capacity(graph.len());
        for id in graph.ids().filter(|&id| !is_preset(graph.node(id))) {
            let node = self.simplified(graph.node(id));
            let inputs = graph.node(id).inputs.iter().map(|&e| build.input(self, graph, e));
            let inputs = inputs.collect::<Result<_>>()?;
            let kind = self.kind(step, graph, &node, site, (links, function))?;
            nodes.push(ProgramNode {
                inputs,
                first_slot: build.first_slot[id.index()],
                outputs: node.outputs.len() as u32,
                successors: Vec::new(),
                seconds: match kind {
                    Kind::NoOp | Kind::Recv | Kind::Arg(_) | Kind::Fetch(_) => 0.0,
                    _ => (self.seconds)(graph, id, site),
                },
                makes_ghosts: self.makes_ghosts(&node),
                counts_update: counts_update(graph, &node)?,
                kind,
            });
            own.push(node);
        }
        let pending = build.connect(graph, &mut nodes);
        let results = match function {
            Some(body) => {
                let tensors = body.result_tensors();
                tensors.into_iter().map(|e| build.input(self, graph, e)).collect::<Result<_>>()?
            }
            None => Vec::new(),
        };
        let dtypes = own.iter().map(|n| n.outputs.iter().map(|o| o.dtype).collect()).collect();
        let is_root = |n: &usize| {
            pending[*n] == 0 || pending[*n] == 1 && matches!(nodes[*n].kind, Kind::Recv)
        };
        let program = Arc::new(Program {
            roots: (0..nodes.len()).filter(is_root).map(|n| n as u32).collect(),
            number: step.programs.len() as u32,
            site,
            graph: own,
            nodes,
            dtypes,
            presets: build.presets,
            pending,
            slots: build.slots,
            results,
        });
        step.programs.push(program.clone());
        Ok(program)
    }

    /// The node without what stand-ins for ghosts would not fit.
    fn simplified(&self, node: &Node) -> Node {
        let mut node = node.clone();
        if node.op.name == "SparseAccumulatorApplyGradient" {
            node.attrs.set("has_known_shape", false.into_attr());
        }
        node
    }

    fn kind(
        &self,
        step: &mut StepPlan,
        graph: &Graph,
        node: &Node,
        site: Site,
        (links, function): (&Links<'_>, Option<&thalweg_graph::FunctionBody>),
    ) -> Result<Kind> {
        Ok(match node.role() {
            Role::NoOp => Kind::NoOp,
            Role::Identity => Kind::Identity,
            Role::Recv if node.attrs().bool("client_terminated")? => Kind::Ghosts,
            Role::Recv => Kind::Recv,
            Role::Send => self.send(graph, node, links)?,
            Role::Arg => {
                let is_this = |id: &NodeId| graph.node(*id).name == node.name;
                let args = function.map_or(&[][..], |body| &body.args);
                let i = args.iter().position(is_this);
                Kind::Arg(i.ok_or_else(|| err!(Internal, "an argument outside a function"))? as u32)
            }
            Role::Retval => Kind::NoOp,
            Role::While => {
                let mut body_of = |attr: &str| {
                    let function = node.attrs().value(attr)?.functions();
                    let named = function.first();
                    let name = named.map_or("", |f| f.name.as_str()).to_owned();
                    let attrs = named.map(|f| thalweg_graph::Attrs::from_proto(&f.attr));
                    let body = graph.function_body(&name, &attrs.unwrap_or_default())?;
                    self.program(step, &body.graph, site, (links, Some(&body)))
                };
                Kind::Loop { cond: body_of("cond")?, body: body_of("body")? }
            }
            Role::Ordinary | Role::Forward | Role::Const | Role::Placeholder => {
                self.kernel(node)?
            }
            _ => bail!(
                Unimplemented,
                "'{}' ({}) is control flow that training is not simulated with",
                node.name,
                node.op.name
            ),
        })
    }

    fn kernel(&self, node: &Node) -> Result<Kind> {
        let stand_in = |dims: &[usize], dtype| {
            let shape = thalweg_tensor::Shape::new(dims)?;
            Tensor::zeros(dtype, shape)
        };
        let Ok(spec) = self.origin.kernels.find(node, "CPU") else { return Ok(Kind::Ghosts) };
        let Ok(kernel) = (spec.create)(&self.origin.init(node)) else { return Ok(Kind::Ghosts) };
        Ok(match (kernel, &*node.op.name) {
            (AnyKernel::Sync(kernel), "AccumulatorApplyGradient") => {
                let dtype = node.attrs().dtype("dtype")?;
                Kind::Accumulate(kernel, vec![(2, stand_in(&[], dtype)?)])
            }
            (AnyKernel::Sync(kernel), "SparseAccumulatorApplyGradient") => {
                let dtype = node.attrs().dtype("dtype")?;
                let stand_ins = vec![
                    (2, stand_in(&[1], DType::Int64)?),
                    (3, stand_in(&[1], dtype)?),
                    (4, stand_in(&[0], DType::Int64)?),
                ];
                Kind::Accumulate(kernel, stand_ins)
            }
            (AnyKernel::Sync(kernel), _) => Kind::Kernel(kernel),
            (AnyKernel::Async(kernel), _) => Kind::Async(kernel),
        })
    }

    fn send(&self, graph: &Graph, node: &Node, links: &Links<'_>) -> Result<Kind> {
        let key = node.attrs().string("tensor_name")?;
        if node.attrs().bool("client_terminated")? {
            let i = links.fetches.iter().position(|fetch| fetch == key);
            return i.map(|i| Kind::Fetch(i as u32)).ok_or_else(|| err!(Internal, "'{key}'?"));
        }
        let to = links.receivers.get(key);
        let &(partition, at) = to.ok_or_else(|| err!(Internal, "nobody receives '{key}'"))?;
        let output = graph.output(node.inputs[0]);
        let bytes = self.bytes(&output.shape, output.dtype);
        Ok(Kind::Send { partition, node: at, bytes })
    }

    /// The size of a tensor; dimensions that are not known are taken to be the rows of a step.
    fn bytes(&self, shape: &PartialShape, dtype: DType) -> u64 {
        let element = dtype.size().max(1) as u64;
        match shape.dims() {
            Some(dims) => dims.iter().fold(element, |bytes, dim| {
                bytes.saturating_mul(dim.map_or(self.rows, |dim| dim as u64))
            }),
            None => element * self.rows,
        }
    }

    fn makes_ghosts(&self, node: &Node) -> bool {
        let is_large = |output: &thalweg_graph::OutputInfo| {
            output.shape.dims().is_some()
                && self.bytes(&output.shape, output.dtype) > REAL_BYTES_MAX
        };
        node.op.name.ends_with("AccumulatorTakeGradient") || node.outputs.iter().any(is_large)
    }

    /// The preset that a node without inputs stands for, if it does.
    fn preset(&self, node: &Node) -> Result<Option<Preset>> {
        Ok(Some(match &*node.op.name {
            "Const" => {
                let value = node.attrs().tensor("value", None)?;
                match value.size_bytes() as u64 > REAL_BYTES_MAX {
                    true => Preset::Ghost,
                    false => Preset::Value(value),
                }
            }
            "VarHandleOp" => {
                let (dtype, shape) = (node.attrs().dtype("dtype")?, node.attrs().shape("shape")?);
                let is_whole = matches!(dtype, DType::Int64 | DType::Int32 | DType::Bool)
                    && shape.to_shape().is_some()
                    && self.bytes(&shape, dtype) <= REAL_BYTES_MAX;
                match is_whole {
                    true => Preset::Handle(Arc::new(node.clone())),
                    false => Preset::Ghost,
                }
            }
            "MutexV2" | "FIFOQueueV2" => Preset::Handle(Arc::new(node.clone())),
            "ConditionalAccumulator" | "SparseConditionalAccumulator" => {
                // Stand-ins for gradients have other shapes.
                let mut node = node.clone();
                node.attrs.set("shape", (&PartialShape::unknown()).into_attr());
                Preset::Handle(Arc::new(node))
            }
            _ => return Ok(None),
        }))
    }
}

struct Links<'a> {
    /// Partition and node that receives each tensor.
    receivers: &'a FxHashMap<String, (u32, u32)>,
    fetches: &'a [String],
}

/// Ops that are no nodes of programs: their outputs are known before the step.
const PRESETS: [&str; 6] = [
    "Const",
    "VarHandleOp",
    "MutexV2",
    "FIFOQueueV2",
    "ConditionalAccumulator",
    "SparseConditionalAccumulator",
];

fn is_preset(node: &Node) -> bool {
    PRESETS.contains(&&*node.op.name)
}

/// Whether a node increments the variable `global_step`.
fn counts_update(graph: &Graph, node: &Node) -> Result<bool> {
    if node.op.name != "AssignAddVariableOp" {
        return Ok(false);
    }
    let handle = graph.node(node.inputs[0].node);
    Ok(handle.op.name == "VarHandleOp" && handle.attrs().string("shared_name")? == "global_step")
}

/// What the nodes of a program share while it is compiled.
struct Building {
    is_preset: Vec<bool>,
    /// Their positions among those that are none.
    numbers: Vec<u32>,
    first_slot: Vec<u32>,
    /// How many inputs read each slot.
    readers: Vec<u32>,
    slots: u32,
    presets: Vec<Preset>,
}

impl Building {
    fn new(graph: &Graph) -> Building {
        let is_preset: Vec<bool> = graph.nodes().iter().map(is_preset).collect();
        let (mut first_slot, mut slots) = (Vec::with_capacity(graph.len()), 0);
        let (mut numbers, mut count) = (Vec::with_capacity(graph.len()), 0);
        for (node, is_preset) in graph.nodes().iter().zip(&is_preset) {
            numbers.push(count);
            count += u32::from(!is_preset);
            first_slot.push(slots);
            slots += if *is_preset { 0 } else { node.outputs.len() as u32 };
        }
        let mut readers = vec![0; slots as usize];
        for e in graph.nodes().iter().flat_map(|node| &node.inputs) {
            if !is_preset[e.node.index()] {
                readers[(first_slot[e.node.index()] + e.index) as usize] += 1;
            }
        }
        Building { is_preset, numbers, first_slot, readers, slots, presets: Vec::new() }
    }

    fn input(
        &mut self,
        compiler: &Compiler<'_>,
        graph: &Graph,
        e: thalweg_graph::Endpoint,
    ) -> Result<Input> {
        if !self.is_preset[e.node.index()] {
            let slot = self.first_slot[e.node.index()] + e.index;
            return Ok(Input::Slot { slot, is_only: self.readers[slot as usize] == 1 });
        }
        let node = graph.node(e.node);
        let preset = compiler.preset(node)?;
        let preset = preset.ok_or_else(|| err!(Internal, "'{}' is no preset", node.name))?;
        self.presets.push(preset);
        Ok(Input::Preset(self.presets.len() as u32 - 1))
    }

    /// Connects nodes to those that run after them; returns for each how many it runs after.
    fn connect(&self, graph: &Graph, nodes: &mut [ProgramNode]) -> Box<[u32]> {
        let mut pending = vec![0; nodes.len()].into_boxed_slice();
        for id in graph.ids().filter(|id| !self.is_preset[id.index()]) {
            let (node, number) = (graph.node(id), self.numbers[id.index()]);
            let mut sources: Vec<u32> = Vec::new();
            let (mut stack, mut seen): (Vec<NodeId>, Vec<NodeId>) = (Vec::new(), Vec::new());
            stack.extend(node.inputs.iter().map(|e| e.node));
            stack.extend(node.control_inputs.iter().copied());
            while let Some(source) = stack.pop() {
                if !self.is_preset[source.index()] {
                    sources.push(self.numbers[source.index()]);
                } else if !seen.contains(&source) {
                    // What runs after a preset runs after what that runs after.
                    seen.push(source);
                    stack.extend(graph.node(source).control_inputs.iter().copied());
                }
            }
            sources.sort_unstable();
            sources.dedup();
            pending[number as usize] = sources.len() as u32;
            if matches!(nodes[number as usize].kind, Kind::Recv) {
                // And after the tensor has arrived.
                pending[number as usize] += 1;
            }
            for source in sources {
                nodes[source as usize].successors.push(number);
            }
        }
        pending
    }
}

impl ProgramNode {
    /// Whether it takes no time, and other threads than the device's do it.
    pub(super) fn is_light(&self) -> bool {
        use Kind::{Arg, Fetch, Identity, NoOp, Recv, Send};
        matches!(self.kind, NoOp | Identity | Send { .. } | Recv | Fetch(_) | Arg(_))
    }
}

impl StepPlan {
    pub(super) fn fetch_names(names: &[&str]) -> Result<Vec<String>> {
        let full = |name: &&str| {
            let parsed = thalweg_graph::TensorName::parse(name)?;
            ensure!(!parsed.is_control, InvalidArgument, "'{name}' is no tensor");
            Ok(format!("{}:{}", parsed.node, parsed.index))
        };
        names.iter().map(full).collect()
    }
}
