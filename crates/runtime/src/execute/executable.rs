//! The executable of a partition: nodes by dense index, edges as ranges of one array, kernels created.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustc_hash::FxHashMap;
use thalweg_graph::{Flag, Graph, Node, Role, Successors};
use thalweg_kernel::{AnyKernel, AsyncKernel, Device, Kernel, KernelOrigin, RendezvousKey};
use thalweg_tensor::{Context, DType, Result, Tensor, bail, ensure, err};

use crate::execute::KeptStorage;
use crate::execute::flat_inputs::FlatInputs;
use crate::execute::framed::{EnterKind, Framed, Layout};
use crate::execute::transfers::{Transfer, Transfers};
use crate::functions::calls::CallSite;
use crate::session::callable::SharedConstants;

/// Assumed cost of a kernel that has not run yet: expensive, so that it may go to another thread.
const UNKNOWN_COST_NS: u32 = 20_000;
/// Inexpensive kernels are timed again in one step out of this many.
const SAMPLE_STEPS: u32 = 64;

/// A partition in executable form, which any number of steps may run at once.
///
/// There are two forms. In a graph without branches and loops every node runs once, every output has
/// a slot and every edge is counted. Graphs with control flow have `framed` too: then `readers`,
/// `pending` and `roots` are those of the nodes outside of loops, and `successors` is empty.
pub(crate) struct Executable {
    pub(crate) graph: Graph,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) device_name: Arc<str>,
    pub(crate) nodes: Box<[ExecNode]>,
    /// For each flattened input, the slot of its value.
    pub(crate) inputs: Box<[Input]>,
    /// Number of readers of each output that has several.
    pub(crate) readers: Box<[u32]>,
    /// Successors of all nodes, by data and control edges.
    pub(crate) successors: Box<[Successor]>,
    /// For each node, its number of incoming edges.
    pub(crate) pending: Box<[u32]>,
    /// Nodes without incoming edges.
    pub(crate) roots: Box<[u32]>,
    /// Number of slots for values outside of loops.
    pub(crate) num_values: usize,
    /// The frames, if the graph has control flow.
    pub(crate) framed: Option<Framed>,
    pub(crate) constants: Box<[Tensor]>,
    /// Dtypes of the flattened outputs.
    pub(crate) output_dtypes: Box<[DType]>,
    /// For each output, whether no input reads it: then it is dropped when it is set.
    pub(crate) is_unread: Box<[bool]>,
    pub(crate) num_fetches: usize,
    /// Dtypes of the feeds or arguments; `None` for those that no node reads.
    pub(crate) feeds: Box<[Option<DType>]>,
    /// Number of steps begun, to sample costs.
    steps: AtomicU32,
    /// Storage of earlier executions, for later ones.
    pub(crate) kept_storage: KeptStorage,
}

/// A node of an executable.
pub(crate) struct ExecNode {
    pub(crate) kind: Kind,
    /// Its range in `inputs`.
    pub(crate) first_input: u32,
    pub(crate) num_inputs: u32,
    /// Its outputs' slots; they are consecutive. In a loop, those of one iteration.
    pub(crate) first_slot: u32,
    /// Its outputs among all outputs.
    pub(crate) first_output: u32,
    /// Number of outputs, with [`PREPARES`] and [`HAS_UNREAD`] in its high bits: a node takes 56 bytes.
    pub(crate) outputs: u32,
    /// Its range in `successors`.
    pub(crate) successors: (u32, u32),
    /// Moving average of its kernel's time, in ns.
    pub(crate) cost_ns: AtomicU32,
}

/// The action of a node.
pub(crate) enum Kind {
    NoOp,
    Constant(u32),
    Identity,
    /// Outputs a feed, or a function's argument.
    Feed(u32),
    /// Sets a fetch, or a function's result.
    Fetch(u32),
    Kernel(Arc<dyn Kernel>),
    Async(Arc<dyn AsyncKernel>),
    Send(RendezvousKey),
    Receive(RendezvousKey),
    Call(Box<CallSite>),
    /// Forwards its first input to the output that its second input selects.
    Switch,
    /// Forwards the input that is not dead, which the count at this position names.
    Merge(u32),
    /// Forwards its input into a frame.
    Enter(EnterKind),
    /// Forwards its input out of its frame; the number is its position among the frame's exits.
    Exit(u32),
    /// Forwards its input to the next iteration.
    NextIteration,
    /// Runs even if its control inputs are dead.
    Trigger,
}

impl Kind {
    /// Whether the node only forwards values between frames, iterations and branches.
    pub(crate) fn is_control_flow(&self) -> bool {
        matches!(
            self,
            Kind::Switch
                | Kind::Merge(_)
                | Kind::Enter(_)
                | Kind::Exit(_)
                | Kind::NextIteration
                | Kind::Trigger
        )
    }
}

/// An input of a node.
#[derive(Clone, Copy)]
pub(crate) struct Input {
    /// The output's slot.
    pub(crate) slot: u32,
    /// Position in `readers` if others read the output too, else [`SOLE`]; [`ENTERED_ONCE`] if it
    /// is the same in all iterations of a loop.
    pub(crate) shared: u32,
    pub(crate) transfer: Transfer,
    pub(crate) takes: Takes,
}

/// How a node takes an input that is a reference or an alias.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// A snapshot, when the node starts.
    Tensor,
    /// The variable's buffer, to be forwarded or fetched.
    Alias,
    /// The reference itself.
    Ref,
}

/// Marks an input that is the only reader of its output.
pub(crate) const SOLE: u32 = u32::MAX;

/// Marks an input that all iterations of its loop share; it lies beyond all of `readers`.
pub(crate) const ENTERED_ONCE: u32 = u32::MAX - 1;

/// A successor, with a flag if this edge is its only incoming one.
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

/// Creates a node's kernel.
pub(crate) type Create<'a> = &'a dyn Fn() -> Result<AnyKernel>;
/// Finds the kernel of a stateful node, or creates it.
pub(crate) type StatefulKernels<'a> = dyn Fn(&Node, Create<'_>) -> Result<AnyKernel> + 'a;

/// The registries and the session's state from which kernels are created.
pub(crate) struct KernelSource<'a> {
    pub(crate) origin: &'a KernelOrigin,
    /// Kernels of stateful nodes, one per node for all plans of a session.
    pub(crate) stateful: &'a StatefulKernels<'a>,
    /// Constants that another plan of the graph has made.
    pub(crate) constants: &'a SharedConstants,
}

/// Feeds and fetches of a partition, or arguments and results of a function.
#[derive(Clone, Copy)]
pub(crate) struct Interface {
    /// Number of feeds, or of a function's arguments.
    pub(crate) feeds: usize,
    /// Number of fetches, or of a function's results.
    pub(crate) fetches: usize,
    /// Whether they pass through `_Arg` and `_Retval`.
    pub(crate) is_function: bool,
    /// Whether they pass through the step's rendezvous, as in a partial run.
    pub(crate) is_partial: bool,
    /// Whether other devices may send dead values, because they run branches.
    pub(crate) may_receive_dead: bool,
}

impl Executable {
    /// Makes an executable of `graph` for `device`.
    pub(crate) fn new(
        graph: Graph,
        device: Arc<dyn Device>,
        interface: Interface,
        source: &KernelSource<'_>,
    ) -> Result<Executable> {
        check_size(&graph)?;
        let (graph, fused) = device.fuse(graph, source.origin)?;
        let is_framed = interface.may_receive_dead || graph.has_control_flow();
        let layout = if is_framed { Some(Layout::of(&graph)?) } else { None };
        let mut builder = Builder::new(&*device, interface, source, layout);
        for node in &fused {
            builder.fused.insert(node.node.index(), node.kernel.clone());
        }
        let mut nodes = builder.nodes(&graph)?;
        let (constants, feeds) = (builder.constants, builder.feeds.into());
        let mut layout = builder.layout;
        let transfers = Transfers::of(&graph, &*device, &source.origin.kernels, &fused)?;
        let flat = FlatInputs::of(&graph, &mut nodes, layout.as_mut(), &transfers)?;
        let mut exec = Executable {
            device_name: device.description().name.to_string().into(),
            device,
            nodes: nodes.into(),
            inputs: flat.inputs.into(),
            readers: flat.readers.into(),
            num_values: flat.is_unread.len(),
            is_unread: flat.is_unread.into(),
            successors: Box::default(),
            pending: Box::default(),
            roots: Box::default(),
            framed: None,
            constants: constants.into(),
            output_dtypes: graph
                .nodes()
                .iter()
                .flat_map(|n| n.outputs.iter().map(|o| o.dtype))
                .collect(),
            feeds,
            num_fetches: interface.fetches,
            steps: AtomicU32::new(0),
            kept_storage: KeptStorage::default(),
            graph,
        };
        match layout {
            Some(layout) => exec.count_in_frames(layout),
            None => exec.count_edges(),
        }
        Ok(exec)
    }

    /// Sets pending counts and successors of a graph without control flow.
    fn count_edges(&mut self) {
        let waits = |n: &Node| (n.inputs.len() + n.control_inputs.len()) as u32;
        self.pending = self.graph.nodes().iter().map(waits).collect();
        self.successors = flat_successors(&self.graph, &mut self.nodes, &self.pending).into();
        let len = self.graph.len() as u32;
        self.roots = (0..len).filter(|&i| self.pending[i as usize] == 0).collect();
    }

    /// Sets pending counts and successors of a graph with control flow.
    fn count_in_frames(&mut self, layout: Layout) {
        let nodes = &mut self.nodes;
        let mut framed = layout.finish(&self.graph, |i, range| nodes[i].successors = range);
        let outside = &mut framed.frames[0];
        self.readers = std::mem::take(&mut outside.readers).into();
        self.pending = std::mem::take(&mut outside.pending).into();
        self.roots = outside.roots.iter().map(|root| root.node).collect();
        self.num_values = outside.num_values;
        self.framed = Some(framed);
    }

    /// Counts a step; true if inexpensive kernels are timed in it too.
    pub(crate) fn begins_sampled_step(&self) -> bool {
        self.steps.fetch_add(1, Ordering::Relaxed).is_multiple_of(SAMPLE_STEPS)
    }

    /// Bytes that the slots and counts of one execution take.
    pub(crate) fn state_bytes(&self) -> usize {
        16 * (self.num_values + self.feeds.len() + self.num_fetches)
            + 4 * (self.pending.len() + self.readers.len())
    }

    /// Dtypes of a node's outputs.
    #[inline]
    pub(crate) fn output_dtypes_of(&self, node: &ExecNode) -> &[DType] {
        let first = node.first_output as usize;
        &self.output_dtypes[first..first + node.num_outputs() as usize]
    }

    /// The inputs of a node.
    #[inline]
    pub(crate) fn inputs_of(&self, node: &ExecNode) -> &[Input] {
        &self.inputs[node.first_input as usize..(node.first_input + node.num_inputs) as usize]
    }
}

/// Marks a node with an input that must be converted: a reference or alias of which the node takes
/// something else, or a tensor in other memory than the op reads.
pub(crate) const PREPARES: u32 = 1 << 31;
/// Marks a node with an output that no input reads.
pub(crate) const HAS_UNREAD: u32 = 1 << 30;

impl ExecNode {
    #[inline]
    pub(crate) fn num_outputs(&self) -> u32 {
        self.outputs & (HAS_UNREAD - 1)
    }

    /// Whether inputs must be converted.
    #[inline]
    pub(crate) fn prepares(&self) -> bool {
        self.outputs & PREPARES != 0
    }

    /// Whether no input reads some output.
    #[inline]
    pub(crate) fn has_unread(&self) -> bool {
        self.outputs & HAS_UNREAD != 0
    }

    /// Updates the average cost with another run. It at most doubles: a thread that was preempted in a
    /// kernel must not make the kernel count as expensive for the next hundred steps.
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

/// Positions of nodes and outputs are 32 bits wide, and one bit of a successor's is taken.
fn check_size(graph: &Graph) -> Result<()> {
    let inputs: usize = graph.nodes().iter().map(|n| n.inputs.len() + n.control_inputs.len()).sum();
    let outputs: usize = graph.nodes().iter().map(|n| n.outputs.len()).sum();
    ensure!(
        graph.len() < ONLY as usize && inputs < SOLE as usize && outputs < HAS_UNREAD as usize,
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
    /// Kernels of nodes that stand for several.
    fused: FxHashMap<usize, AnyKernel>,
    is_function: bool,
    is_partial: bool,
    layout: Option<Layout>,
    /// For each feed and fetch that has its node, the dtype.
    feeds: Vec<Option<DType>>,
    fetches: Vec<Option<DType>>,
    next_feed: usize,
    next_fetch: usize,
    /// Assumed cost of the last kernel created, until it is measured.
    cost_ns: u32,
}

impl<'a> Builder<'a> {
    fn new(
        device: &'a dyn Device,
        interface: Interface,
        source: &'a KernelSource<'a>,
        layout: Option<Layout>,
    ) -> Self {
        Builder {
            device,
            source,
            layout,
            constants: Vec::new(),
            fused: FxHashMap::default(),
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

    /// Whether a `_Send` or `_Recv` is a fetch or feed of the client that passes through a slot.
    fn is_slot(&self, node: &Node) -> Result<bool> {
        Ok(!self.is_partial && node.attrs().bool("client_terminated")?)
    }

    fn nodes(&mut self, graph: &Graph) -> Result<Vec<ExecNode>> {
        let mut nodes = Vec::with_capacity(graph.len());
        let (mut inputs, mut outputs) = (0u32, 0u32);
        for (i, node) in graph.nodes().iter().enumerate() {
            let kind = self.kind(i, node).at_node(&node.name)?;
            nodes.push(ExecNode {
                kind,
                first_input: inputs,
                num_inputs: node.inputs.len() as u32,
                first_slot: self.layout.as_ref().map_or(outputs, |l| l.first_output[i]),
                first_output: outputs,
                outputs: node.outputs.len() as u32,
                successors: (0, 0),
                cost_ns: AtomicU32::new(self.cost_ns),
            });
            inputs += node.inputs.len() as u32;
            outputs += node.outputs.len() as u32;
        }
        Ok(nodes)
    }

    fn kind(&mut self, i: usize, node: &Node) -> Result<Kind> {
        Ok(match node.role() {
            Role::NoOp => Kind::NoOp,
            Role::Identity | Role::LoopCond => Kind::Identity,
            Role::Const => {
                let value = self.constant(node)?;
                self.constants.push(value);
                Kind::Constant(self.constants.len() as u32 - 1)
            }
            Role::Recv if self.is_slot(node)? => {
                self.next_feed += 1;
                Kind::Feed(claim(&mut self.feeds, self.next_feed - 1, node, "tensor_type")?)
            }
            Role::Send if self.is_slot(node)? => {
                self.next_fetch += 1;
                Kind::Fetch(claim(&mut self.fetches, self.next_fetch - 1, node, "T")?)
            }
            Role::Arg => {
                let index = self.index(node)?;
                Kind::Feed(claim(&mut self.feeds, index, node, "T")?)
            }
            Role::Retval => {
                let index = self.index(node)?;
                Kind::Fetch(claim(&mut self.fetches, index, node, "T")?)
            }
            Role::Send => Kind::Send(key(node)?),
            Role::Recv => Kind::Receive(key(node)?),
            Role::Switch => Kind::Switch,
            Role::Merge => Kind::Merge(self.layout()?.pending[i]),
            Role::Enter => self.layout()?.enters[i].map_or(Kind::NoOp, Kind::Enter),
            Role::Exit => Kind::Exit(self.layout()?.exit_position[i]),
            Role::NextIteration => Kind::NextIteration,
            Role::ControlTrigger => Kind::Trigger,
            Role::Function
            | Role::PartitionedCall
            | Role::RemoteCall
            | Role::SymbolicGradient
            | Role::If
            | Role::Case
            | Role::While
            | Role::For => Kind::Call(Box::new(CallSite::new(node)?)),
            Role::Ordinary
            | Role::Forward
            | Role::Placeholder
            | Role::PlaceholderWithDefault
            | Role::Variable
            | Role::VarHandle => match self.make_kernel(i, node)? {
                AnyKernel::Sync(kernel) => Kind::Kernel(kernel),
                AnyKernel::Async(kernel) => Kind::Async(kernel),
            },
        })
    }

    /// The frames of the graph, which a graph with control flow has.
    fn layout(&self) -> Result<&Layout> {
        self.layout
            .as_ref()
            .ok_or_else(|| err!(Internal, "a graph with control flow has no frames"))
    }

    /// The value of a constant, on the device.
    fn constant(&self, node: &Node) -> Result<Tensor> {
        let proto = node.attrs().tensor_proto("value")?;
        if let Some(known) = self.source.constants.find(proto) {
            return Ok(known);
        }
        let value = Tensor::from_proto(proto, Some(&self.source.origin.budget))?;
        let declared = node.attrs().dtype("dtype")?;
        ensure!(
            value.dtype() == declared,
            InvalidArgument,
            "the constant is declared {declared}, but its value is {}",
            value.dtype()
        );
        if declared.is_object() { Ok(value) } else { self.device.upload(&value) }
    }

    fn make_kernel(&mut self, i: usize, node: &Node) -> Result<AnyKernel> {
        if let Some(kernel) = self.fused.get(&i) {
            self.cost_ns = UNKNOWN_COST_NS;
            return Ok(kernel.clone());
        }
        let KernelSource { origin, stateful, .. } = self.source;
        let spec = origin.kernels.find(node, &self.device.description().name.device_type)?;
        self.cost_ns = if spec.is_cheap { 0 } else { UNKNOWN_COST_NS };
        let init = origin.init(node);
        if node.op.has(Flag::Stateful) {
            return stateful(node, &|| (spec.create)(&init));
        }
        (spec.create)(&init)
    }
}

/// Gives slot `index` to a node. The executor requires that one node has a slot; a graph from outside
/// may violate that, so it is checked.
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

/// The successors of all nodes with their counts, as one array; each node gets its range of it.
fn flat_successors(graph: &Graph, nodes: &mut [ExecNode], pending: &[u32]) -> Vec<Successor> {
    let successors = Successors::of(graph);
    let mut flat = Vec::with_capacity(successors.num_edges());
    for (id, node) in graph.ids().zip(nodes) {
        let start = flat.len() as u32;
        let targets = successors.after(id).iter();
        flat.extend(targets.map(|target| Successor::new(target.0, pending[target.index()])));
        node.successors = (start, flat.len() as u32);
    }
    flat
}

impl std::fmt::Debug for Executable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Executable({} nodes on {})", self.nodes.len(), self.device_name)
    }
}
