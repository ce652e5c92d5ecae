//! One device's graph, flattened: nodes by dense index, edges as ranges, kernels made.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;
use thalweg_graph::{AttrValue, Attrs, Endpoint, Flag, Graph, Node};
use thalweg_kernel::{
    AnyKernel, AsyncKernel, Device, Environment, Kernel, KernelInit, KernelRegistry, RendezvousKey,
};
use thalweg_plan::reads;
use thalweg_tensor::{Budget, DType, Result, Tensor, err};

use crate::execute::StepState;

/// Cost of a kernel that has not run yet: dear, so that it may go to another thread.
const UNKNOWN_COST_NS: u32 = 20_000;

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
    pub(crate) num_feeds: usize,
    pub(crate) num_fetches: usize,
    /// States of finished steps, for the next ones.
    pub(crate) free: Mutex<Vec<Arc<StepState>>>,
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
    /// Whether an input may be a reference that the op takes by value.
    pub(crate) dereferences: bool,
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
    Call(Box<(String, Attrs)>),
}

/// Where an input's value lies.
#[derive(Clone, Copy)]
pub(crate) struct Input {
    /// The output's slot.
    pub(crate) output: u32,
    /// Position in `readers` if others read the output too, else [`SOLE`].
    pub(crate) shared: u32,
    pub(crate) transfer: Transfer,
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

/// Finds the kernel of a node, or makes it with what is given.
type FindOrMake<'a> = dyn Fn(&Node, &dyn Fn() -> Result<AnyKernel>) -> Result<AnyKernel> + 'a;

/// Where kernels come from.
pub(crate) struct KernelSource<'a> {
    pub(crate) kernels: &'a KernelRegistry,
    pub(crate) budget: &'a Arc<Budget>,
    pub(crate) environment: &'a Environment,
    /// Kernels with state, one per node for all plans of a session.
    pub(crate) stateful: &'a FindOrMake<'a>,
}

impl Executable {
    /// Flattens `graph` for `device`.
    pub(crate) fn new(
        graph: Graph,
        device: Arc<dyn Device>,
        source: &KernelSource<'_>,
    ) -> Result<Executable> {
        let mut builder =
            Builder { device: &*device, source, constants: Vec::new(), feeds: 0, fetches: 0 };
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
                dereferences: node.inputs.iter().any(|e| graph.output(*e).is_ref),
                cost_ns: AtomicU32::new(UNKNOWN_COST_NS),
            });
            inputs += node.inputs.len() as u32;
            outputs += node.outputs.len() as u32;
        }
        let (constants, num_feeds, num_fetches) =
            (builder.constants, builder.feeds, builder.fetches);
        let transfers = Transfers::of(&graph, &*device, source.kernels)?;
        let (inputs, readers) = flat_inputs(&graph, &nodes, outputs as usize, &transfers);
        let successors = flat_successors(&graph, &mut nodes, &pending);
        let output_dtypes =
            graph.nodes().iter().flat_map(|n| n.outputs.iter().map(|o| o.dtype)).collect();
        let roots = (0..graph.len() as u32).filter(|&i| pending[i as usize] == 0).collect();
        Ok(Executable {
            device_name: device.description().name.to_string().into(),
            device,
            nodes: nodes.into(),
            inputs: inputs.into(),
            readers: readers.into(),
            successors: successors.into(),
            pending: pending.into(),
            roots,
            constants: constants.into(),
            output_dtypes,
            num_feeds: num_feeds as usize,
            num_fetches: num_fetches as usize,
            free: Mutex::default(),
            graph,
        })
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

/// TensorFlow's way to say which node failed; its clients look for it.
pub(crate) fn at_node(error: thalweg_tensor::Error, name: &str) -> thalweg_tensor::Error {
    if error.message().contains("[[{{node ") {
        return error;
    }
    error.map_message(|message| format!("{message}\n\t [[{{{{node {name}}}}}]]"))
}

struct Builder<'a> {
    device: &'a dyn Device,
    source: &'a KernelSource<'a>,
    constants: Vec<Tensor>,
    feeds: u32,
    fetches: u32,
}

impl Builder<'_> {
    fn kind(&mut self, node: &Node) -> Result<Kind> {
        if node.op.is_function {
            return Ok(Kind::Call(Box::new((node.op.name.clone(), node.attrs.clone()))));
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
                let value = self.device.upload(&value)?;
                self.constants.push(value);
                Kind::Constant(self.constants.len() as u32 - 1)
            }
            "_Recv" | "_HostRecv" if node.attrs().bool("client_terminated")? => {
                self.feeds += 1;
                Kind::Feed(self.feeds - 1)
            }
            "_Send" | "_HostSend" if node.attrs().bool("client_terminated")? => {
                self.fetches += 1;
                Kind::Fetch(self.fetches - 1)
            }
            "_Arg" => {
                let index = node.attrs().size("index")? as u32;
                self.feeds = self.feeds.max(index + 1);
                Kind::Feed(index)
            }
            "_Retval" => {
                let index = node.attrs().size("index")? as u32;
                self.fetches = self.fetches.max(index + 1);
                Kind::Fetch(index)
            }
            "_Send" | "_HostSend" => Kind::Send(key(node)?),
            "_Recv" | "_HostRecv" => Kind::Receive(key(node)?),
            "PartitionedCall" | "StatefulPartitionedCall" => {
                let function = node.attrs().function("f")?;
                let attrs = function
                    .attr
                    .iter()
                    .map(|(n, v)| (n.as_str().into(), AttrValue::from_proto(v.clone())))
                    .collect();
                Kind::Call(Box::new((function.name.clone(), attrs)))
            }
            _ => match self.make_kernel(node)? {
                AnyKernel::Sync(kernel) => Kind::Kernel(kernel),
                AnyKernel::Async(kernel) => Kind::Async(kernel),
            },
        })
    }

    fn make_kernel(&self, node: &Node) -> Result<AnyKernel> {
        let KernelSource { kernels, budget, environment, stateful } = self.source;
        let spec = kernels.find(node, &self.device.description().name.device_type)?;
        let init = KernelInit { node, budget, environment };
        if node.op.has(Flag::Stateful) {
            return stateful(node, &|| (spec.create)(&init));
        }
        (spec.create)(&init)
    }
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

/// Where each input's value lies, and how many read each output that several do.
fn flat_inputs(
    graph: &Graph,
    nodes: &[ExecNode],
    num_outputs: usize,
    transfers: &Transfers,
) -> (Vec<Input>, Vec<u32>) {
    let slot = |e: &Endpoint| nodes[e.node.index()].first_output + e.index;
    let mut counts = vec![0u32; num_outputs];
    for e in graph.nodes().iter().flat_map(|n| &n.inputs) {
        counts[slot(e) as usize] += 1;
    }
    let mut readers = Vec::new();
    let mut shared = vec![SOLE; num_outputs];
    for (output, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 1) {
        shared[output] = readers.len() as u32;
        readers.push(count);
    }
    let mut inputs = Vec::new();
    for (i, node) in graph.nodes().iter().enumerate() {
        for (k, e) in node.inputs.iter().enumerate() {
            let output = slot(e);
            let transfer = transfers.between(*e, i, k);
            inputs.push(Input { output, shared: shared[output as usize], transfer });
        }
    }
    (inputs, readers)
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
            let mut inputs = vec![false; node.inputs.len()];
            let mut outputs: Vec<bool> = node.outputs.iter().map(|o| o.dtype.is_object()).collect();
            match kernels.find(node, device_type) {
                Ok(spec) => {
                    for name in spec.host_inputs {
                        inputs[node.input_range(name)?].fill(true);
                    }
                    for name in spec.host_outputs {
                        outputs[node.output_range(name)?].fill(true);
                    }
                }
                // What enters and leaves a device does so through the host.
                Err(_) if node.op.name.starts_with('_') => {
                    inputs.fill(true);
                    outputs.fill(true);
                }
                Err(_) => {}
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
