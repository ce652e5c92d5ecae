//! One device's graph, flattened: nodes by dense index, edges as ranges, kernels made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use thalweg_graph::{Endpoint, Flag, Graph, Node, structural};
use thalweg_kernel::{
    AnyKernel, AsyncKernel, Device, Environment, Kernel, KernelInit, KernelRegistry, RendezvousKey,
};
use thalweg_plan::reads;
use thalweg_tensor::{Budget, DType, Result, Tensor, bail, ensure, err};

use crate::calls::CallSite;

/// Cost of a kernel that has not run yet: dear, so that it may go to another thread.
const UNKNOWN_COST_NS: u32 = 20_000;
/// Cheap kernels are measured again in one step out of this many.
const SAMPLE_STEPS: u32 = 64;

/// A partition that can run, any number of steps at once.
pub(crate) struct Executable {
    pub(crate) graph: Graph,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) device_name: Arc<str>,
    pub(crate) nodes: Box<[ExecNode]>,
    /// For each flattened input, where its value lies.
    pub(crate) inputs: Box<[Input]>,
    /// For each output that several inputs read, how many.
    pub(crate) readers: Box<[u32]>,
    /// Nodes that wait for others, for their data or just for their end.
    pub(crate) successors: Box<[Successor]>,
    /// For each node, how many edges it waits for.
    pub(crate) pending: Box<[u32]>,
    /// Nodes that wait for nothing.
    pub(crate) roots: Box<[u32]>,
    pub(crate) constants: Box<[Tensor]>,
    /// Dtypes of the flattened outputs; each has a slot for its value.
    pub(crate) output_dtypes: Box<[DType]>,
    /// For each output, whether nobody reads it: then it goes as soon as it is there.
    pub(crate) is_unread: Box<[bool]>,
    pub(crate) num_fetches: usize,
    /// Dtypes of what the caller gives; `None` for what no node here takes.
    pub(crate) feeds: Box<[Option<DType>]>,
    /// Steps begun, for sampling costs.
    steps: AtomicU32,
}

/// A node, ready to run.
pub(crate) struct ExecNode {
    pub(crate) kind: Kind,
    /// Its range in `inputs`.
    pub(crate) first_input: u32,
    pub(crate) num_inputs: u32,
    /// Its outputs' slots; they are consecutive.
    pub(crate) first_output: u32,
    pub(crate) num_outputs: u32,
    /// Its range in `successors`.
    pub(crate) successors: (u32, u32),
    /// Whether an input may be a reference that the op takes by value, or lie in other memory than
    /// the op reads.
    pub(crate) prepares: bool,
    /// Whether an output is not read by anybody.
    pub(crate) has_unread: bool,
    /// Average time of its kernel, learnt while running.
    pub(crate) cost_ns: AtomicU32,
}

/// What running a node means.
pub(crate) enum Kind {
    NoOp,
    Constant(u32),
    Identity,
    /// A tensor that the caller gave: a fed one, or a function's argument.
    Feed(u32),
    /// A tensor that the caller gets: a fetched one, or a function's result.
    Fetch(u32),
    Kernel(Arc<dyn Kernel>),
    Async(Arc<dyn AsyncKernel>),
    Send(RendezvousKey),
    Receive(RendezvousKey),
    Call(Box<CallSite>),
}

/// Where an input's value lies.
#[derive(Clone, Copy)]
pub(crate) struct Input {
    /// The output's slot.
    pub(crate) output: u32,
    /// Position in `readers` if others read the output too, else [`SOLE`].
    pub(crate) shared: u32,
    pub(crate) transfer: Transfer,
    /// Whether the op takes a reference here, not the value behind it.
    pub(crate) takes_ref: bool,
}

/// Marks an input that is the only reader of its output.
pub(crate) const SOLE: u32 = u32::MAX;

/// A node that waits, and whether for this edge alone.
#[derive(Clone, Copy)]
pub(crate) struct Successor(u32);

const ONLY: u32 = 1 << 31;

impl Successor {
    fn new(node: u32, pending: u32) -> Self {
        Successor(if pending == 1 { node | ONLY } else { node })
    }

    #[inline]
    pub(crate) fn node(self) -> u32 {
        self.0 & !ONLY
    }

    #[inline]
    pub(crate) fn is_only(self) -> bool {
        self.0 & ONLY != 0
    }
}

/// A copy between memories that an edge needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transfer {
    None,
    ToHost,
    ToDevice,
}

/// Makes a node's kernel.
pub(crate) type Create<'a> = &'a dyn Fn() -> Result<AnyKernel>;
/// Finds the kernel of a node, or makes it with what is given.
pub(crate) type FindOrMake<'a> = dyn Fn(&Node, Create<'_>) -> Result<AnyKernel> + 'a;

/// Where kernels come from.
pub(crate) struct KernelSource<'a> {
    pub(crate) kernels: &'a KernelRegistry,
    pub(crate) budget: &'a Arc<Budget>,
    pub(crate) environment: &'a Environment,
    /// Kernels with state, one per node for all plans of a session.
    pub(crate) stateful: &'a FindOrMake<'a>,
}

/// What goes in and out of a graph.
#[derive(Clone, Copy)]
pub(crate) struct Interface {
    /// Tensors that the caller gives: feeds, or a function's arguments.
    pub(crate) feeds: usize,
    /// Tensors that the caller gets: fetches, or a function's results.
    pub(crate) fetches: usize,
    /// Whether they pass through `_Arg` and `_Retval`.
    pub(crate) is_function: bool,
    /// Whether they pass through the step's rendezvous, each when it comes.
    pub(crate) is_partial: bool,
}

impl Executable {
    /// Flattens `graph` for `device`.
    pub(crate) fn new(
        graph: Graph,
        device: Arc<dyn Device>,
        interface: Interface,
        source: &KernelSource<'_>,
    ) -> Result<Executable> {
        check_size(&graph)?;
        let mut builder = Builder::new(&*device, interface, source);
        let pending: Vec<u32> = graph
            .nodes()
            .iter()
            .map(|n| (n.inputs.len() + n.control_inputs.len()) as u32)
            .collect();
        let mut nodes = Vec::with_capacity(graph.len());
        let (mut inputs, mut outputs) = (0u32, 0u32);
        for node in graph.nodes() {
            let kind = builder.kind(node).map_err(|e| at_node(e, &node.name))?;
            nodes.push(ExecNode {
                kind,
                first_input: inputs,
                num_inputs: node.inputs.len() as u32,
                first_output: outputs,
                num_outputs: node.outputs.len() as u32,
                successors: (0, 0),
                prepares: false,
                has_unread: false,
                cost_ns: AtomicU32::new(builder.cost_ns),
            });
            inputs += node.inputs.len() as u32;
            outputs += node.outputs.len() as u32;
        }
        let (constants, feeds) = (builder.constants, builder.feeds.into());
        let transfers = Transfers::of(&graph, &*device, source.kernels)?;
        let flat = FlatInputs::of(&graph, &mut nodes, outputs as usize, &transfers)?;
        let successors = flat_successors(&graph, &mut nodes, &pending);
        let output_dtypes =
            graph.nodes().iter().flat_map(|n| n.outputs.iter().map(|o| o.dtype)).collect();
        let roots = (0..graph.len() as u32).filter(|&i| pending[i as usize] == 0).collect();
        Ok(Executable {
            device_name: device.description().name.to_string().into(),
            device,
            nodes: nodes.into(),
            inputs: flat.inputs.into(),
            readers: flat.readers.into(),
            is_unread: flat.is_unread.into(),
            successors: successors.into(),
            pending: pending.into(),
            roots,
            constants: constants.into(),
            output_dtypes,
            feeds,
            num_fetches: interface.fetches,
            steps: AtomicU32::new(0),
            graph,
        })
    }

    /// Counts a step; whether it is one of those that measure cheap kernels too.
    pub(crate) fn begins_sampled_step(&self) -> bool {
        self.steps.fetch_add(1, Ordering::Relaxed).is_multiple_of(SAMPLE_STEPS)
    }

    /// Memory that one step's bookkeeping takes.
    pub(crate) fn state_bytes(&self) -> usize {
        16 * (self.output_dtypes.len() + self.feeds.len() + self.num_fetches)
            + 4 * (self.pending.len() + self.readers.len())
    }

    /// Dtypes of a node's outputs.
    #[inline]
    pub(crate) fn output_dtypes_of(&self, node: &ExecNode) -> &[DType] {
        let first = node.first_output as usize;
        &self.output_dtypes[first..first + node.num_outputs as usize]
    }

    /// Where a node's inputs lie.
    #[inline]
    pub(crate) fn inputs_of(&self, node: &ExecNode) -> &[Input] {
        &self.inputs[node.first_input as usize..(node.first_input + node.num_inputs) as usize]
    }
}

impl ExecNode {
    /// Takes another run into the average cost. It at most doubles: a thread that lost its core in
    /// mid-kernel must not make the kernel look dear for the next hundred steps.
    pub(crate) fn learn_cost(&self, took_ns: u32) {
        let cost_ns = self.cost_ns.load(Ordering::Relaxed);
        let learnt = if took_ns > cost_ns {
            took_ns.min(cost_ns.saturating_mul(2))
        } else {
            cost_ns.midpoint(took_ns)
        };
        self.cost_ns.store(learnt.max(16), Ordering::Relaxed);
    }
}

/// TensorFlow's way to say which node failed; its clients look for it.
pub(crate) fn at_node(error: thalweg_tensor::Error, name: &str) -> thalweg_tensor::Error {
    if error.message().contains("[[{{node ") {
        return error;
    }
    error.map_message(|message| format!("{message}\n\t [[{{{{node {name}}}}}]]"))
}

/// Positions of nodes and outputs are 32 bits wide, and one bit of a successor's is taken.
fn check_size(graph: &Graph) -> Result<()> {
    let inputs: usize = graph.nodes().iter().map(|n| n.inputs.len() + n.control_inputs.len()).sum();
    let outputs: usize = graph.nodes().iter().map(|n| n.outputs.len()).sum();
    ensure!(
        graph.len() < ONLY as usize && inputs < SOLE as usize && outputs < SOLE as usize,
        ResourceExhausted,
        "{} nodes with {inputs} inputs and {outputs} outputs are more than one device runs",
        graph.len()
    );
    Ok(())
}

struct Builder<'a> {
    device: &'a dyn Device,
    source: &'a KernelSource<'a>,
    constants: Vec<Tensor>,
    is_function: bool,
    is_partial: bool,
    /// For each feed and fetch that has its node, the dtype.
    feeds: Vec<Option<DType>>,
    fetches: Vec<Option<DType>>,
    next_feed: usize,
    next_fetch: usize,
    /// What to take for the cost of the last kernel made, until it is measured.
    cost_ns: u32,
}

impl<'a> Builder<'a> {
    fn new(device: &'a dyn Device, interface: Interface, source: &'a KernelSource<'a>) -> Self {
        Builder {
            device,
            source,
            constants: Vec::new(),
            is_function: interface.is_function,
            is_partial: interface.is_partial,
            feeds: vec![None; interface.feeds],
            fetches: vec![None; interface.fetches],
            next_feed: 0,
            next_fetch: 0,
            cost_ns: UNKNOWN_COST_NS,
        }
    }

    /// The slot of an `_Arg` or `_Retval`, by its attr.
    fn index(&self, node: &Node) -> Result<usize> {
        ensure!(
            self.is_function,
            InvalidArgument,
            "{} stands outside of a function's body",
            node.op.name
        );
        node.attrs().size("index")
    }

    /// Whether a transfer is one with the client that goes through a slot of the step.
    fn is_slot(&self, node: &Node) -> Result<bool> {
        Ok(!self.is_partial && node.attrs().bool("client_terminated")?)
    }

    fn kind(&mut self, node: &Node) -> Result<Kind> {
        if let Some(site) = CallSite::of(node)? {
            return Ok(Kind::Call(Box::new(site)));
        }
        Ok(match node.op.name.as_str() {
            "NoOp" => Kind::NoOp,
            "Identity" => Kind::Identity,
            "Const" => {
                let value = node.attrs().tensor("value", Some(self.source.budget))?;
                let declared = node.attrs().dtype("dtype")?;
                if value.dtype() != declared {
                    return Err(err!(
                        InvalidArgument,
                        "the constant is declared {declared}, but its value is {}",
                        value.dtype()
                    ));
                }
                let value =
                    if declared.is_object() { value } else { self.device.upload(&value)? };
                self.constants.push(value);
                Kind::Constant(self.constants.len() as u32 - 1)
            }
            "_Recv" | "_HostRecv" if self.is_slot(node)? => {
                self.next_feed += 1;
                Kind::Feed(claim(&mut self.feeds, self.next_feed - 1, node, "tensor_type")?)
            }
            "_Send" | "_HostSend" if self.is_slot(node)? => {
                self.next_fetch += 1;
                Kind::Fetch(claim(&mut self.fetches, self.next_fetch - 1, node, "T")?)
            }
            "_Arg" => {
                let index = self.index(node)?;
                Kind::Feed(claim(&mut self.feeds, index, node, "T")?)
            }
            "_Retval" => {
                let index = self.index(node)?;
                Kind::Fetch(claim(&mut self.fetches, index, node, "T")?)
            }
            "_Send" | "_HostSend" => Kind::Send(key(node)?),
            "_Recv" | "_HostRecv" => Kind::Receive(key(node)?),
            _ => match self.make_kernel(node)? {
                AnyKernel::Sync(kernel) => Kind::Kernel(kernel),
                AnyKernel::Async(kernel) => Kind::Async(kernel),
            },
        })
    }

    fn make_kernel(&mut self, node: &Node) -> Result<AnyKernel> {
        let KernelSource { kernels, budget, environment, stateful } = self.source;
        let spec = kernels.find(node, &self.device.description().name.device_type)?;
        self.cost_ns = if spec.is_cheap { 0 } else { UNKNOWN_COST_NS };
        let init = KernelInit { node, budget, environment };
        if node.op.has(Flag::Stateful) {
            return stateful(node, &|| (spec.create)(&init));
        }
        (spec.create)(&init)
    }
}

/// Gives slot `index` to a node. One slot belongs to one node: the executor takes that for granted,
/// and a graph from outside may say otherwise.
fn claim(slots: &mut [Option<DType>], index: usize, node: &Node, type_attr: &str) -> Result<u32> {
    let count = slots.len();
    let Some(slot) = slots.get_mut(index) else {
        bail!(InvalidArgument, "there is no {} {index}: the caller has {count}", node.op.name);
    };
    ensure!(slot.is_none(), InvalidArgument, "{} {index} stands here twice", node.op.name);
    *slot = Some(node.attrs().dtype(type_attr)?);
    Ok(index as u32)
}

fn key(node: &Node) -> Result<RendezvousKey> {
    let attrs = node.attrs();
    Ok(RendezvousKey::new(
        attrs.string("send_device")?,
        attrs.int("send_device_incarnation")? as u64,
        attrs.string("recv_device")?,
        attrs.string("tensor_name")?,
    ))
}

/// Where each input's value lies, and how many read each output.
struct FlatInputs {
    inputs: Vec<Input>,
    /// For each output that several inputs read, how many.
    readers: Vec<u32>,
    is_unread: Vec<bool>,
}

impl FlatInputs {
    fn of(
        graph: &Graph,
        nodes: &mut [ExecNode],
        num_outputs: usize,
        transfers: &Transfers,
    ) -> Result<FlatInputs> {
        let slot = |nodes: &[ExecNode], e: &Endpoint| nodes[e.node.index()].first_output + e.index;
        let mut counts = vec![0u32; num_outputs];
        for e in graph.nodes().iter().flat_map(|n| &n.inputs) {
            counts[slot(nodes, e) as usize] += 1;
        }
        let mut readers = Vec::new();
        let mut shared = vec![SOLE; num_outputs];
        for (output, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 1) {
            shared[output] = readers.len() as u32;
            readers.push(count);
        }
        let mut inputs = Vec::new();
        for (i, node) in graph.nodes().iter().enumerate() {
            let takes_ref = ref_inputs(node)?;
            for (k, e) in node.inputs.iter().enumerate() {
                let output = slot(nodes, e);
                let transfer = transfers.between(*e, i, k);
                let takes_ref = takes_ref.get(k).copied().unwrap_or(false);
                let is_dereferenced = graph.output(*e).is_ref && !takes_ref;
                nodes[i].prepares |= transfer != Transfer::None || is_dereferenced;
                let shared = shared[output as usize];
                inputs.push(Input { output, shared, transfer, takes_ref });
            }
        }
        let is_unread: Vec<bool> = counts.iter().map(|&count| count == 0).collect();
        for node in nodes {
            let outputs =
                node.first_output as usize..(node.first_output + node.num_outputs) as usize;
            node.has_unread = is_unread[outputs].contains(&true);
        }
        Ok(FlatInputs { inputs, readers, is_unread })
    }
}

/// Which inputs an op takes by reference; empty if none.
fn ref_inputs(node: &Node) -> Result<Vec<bool>> {
    let mut flags = Vec::new();
    for arg in node.op.inputs.iter().filter(|arg| arg.is_ref) {
        flags.resize(node.inputs.len(), false);
        flags[node.input_range(&arg.name)?].fill(true);
    }
    Ok(flags)
}

/// Whom each node releases: counted first, then filled, so that it is one flat array.
fn flat_successors(graph: &Graph, nodes: &mut [ExecNode], pending: &[u32]) -> Vec<Successor> {
    let mut counts = vec![0u32; graph.len()];
    for source in graph.nodes().iter().flat_map(reads) {
        counts[source.index()] += 1;
    }
    let mut total = 0;
    for (node, count) in nodes.iter_mut().zip(&counts) {
        node.successors = (total, total);
        total += count;
    }
    let mut successors = vec![Successor(0); total as usize];
    for (i, node) in graph.nodes().iter().enumerate() {
        for source in reads(node) {
            let range = &mut nodes[source.index()].successors;
            successors[range.1 as usize] = Successor::new(i as u32, pending[i]);
            range.1 += 1;
        }
    }
    successors
}

/// Which inputs and outputs live on the host, where the device has memory of its own.
struct Transfers {
    /// For each node, whether each input and output is on the host; empty if all memory is.
    on_host: Vec<(Vec<bool>, Vec<bool>)>,
}

impl Transfers {
    fn of(graph: &Graph, device: &dyn Device, kernels: &KernelRegistry) -> Result<Transfers> {
        if device.description().shares_host_memory {
            return Ok(Transfers { on_host: Vec::new() });
        }
        let device_type = &device.description().name.device_type;
        let mut on_host = Vec::with_capacity(graph.len());
        for node in graph.nodes() {
            // Strings, handles and variants have no other memory than the host's.
            let mut inputs: Vec<bool> =
                node.inputs.iter().map(|e| graph.output(*e).dtype.is_object()).collect();
            let mut outputs: Vec<bool> = node.outputs.iter().map(|o| o.dtype.is_object()).collect();
            match node.op.name.as_str() {
                // What leaves a device, and what enters it, does so through the host.
                "_Send" | "_HostSend" | "_Recv" | "_HostRecv" => {
                    inputs.fill(true);
                    outputs.fill(true);
                }
                // Identities, constants and calls with their `_Arg` and `_Retval` move nothing.
                name if node.op.is_function || structural::is_interpreted(name) => {}
                _ => {
                    let spec = kernels.find(node, device_type)?;
                    for name in spec.host_inputs {
                        inputs[node.input_range(name)?].fill(true);
                    }
                    for name in spec.host_outputs {
                        outputs[node.output_range(name)?].fill(true);
                    }
                }
            }
            on_host.push((inputs, outputs));
        }
        Ok(Transfers { on_host })
    }

    fn between(&self, from: Endpoint, to: usize, input: usize) -> Transfer {
        if self.on_host.is_empty() {
            return Transfer::None;
        }
        let is_on_host = self.on_host[from.node.index()].1[from.index as usize];
        match (is_on_host, self.on_host[to].0[input]) {
            (false, true) => Transfer::ToHost,
            (true, false) => Transfer::ToDevice,
            _ => Transfer::None,
        }
    }
}

impl std::fmt::Debug for Executable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Executable({} nodes on {})", self.nodes.len(), self.device_name)
    }
}
