//! The kernel registry: for each kernel its op, device type and dtypes, and a function that creates it.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thalweg_graph::{Node, NodeAttrs, OpDef};
use thalweg_hlo::is_supported;
use thalweg_tensor::{Budget, DType, Result, err};

use crate::context::{AsyncCall, KernelContext};
use crate::environment::Environment;
use crate::lowering::Lower;
use crate::node_states::NodeStates;

/// Computes a node. Attrs are read when the kernel is created; `compute` must not block its thread.
pub trait Kernel: Send + Sync {
    /// Reads the inputs and sets every output.
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()>;
}

impl<F> Kernel for F
where
    F: Fn(&mut KernelContext<'_>) -> Result<()> + Send + Sync,
{
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        self(ctx)
    }
}

/// An asynchronous kernel: it starts, and completes later from any thread.
pub trait AsyncKernel: Send + Sync {
    /// Starts; `call.complete(..)` must be called exactly once, also when the step is cancelled.
    fn start(&self, call: AsyncCall);
}

/// A kernel of either form.
#[derive(Clone)]
pub enum AnyKernel {
    /// Computes and returns.
    Sync(Arc<dyn Kernel>),
    /// Starts and completes later.
    Async(Arc<dyn AsyncKernel>),
}

impl AnyKernel {
    /// A synchronous kernel, usually a closure over its attrs.
    pub fn new<F>(kernel: F) -> Result<AnyKernel>
    where
        F: Fn(&mut KernelContext<'_>) -> Result<()> + Send + Sync + 'static,
    {
        Ok(AnyKernel::Sync(Arc::new(kernel)))
    }
}

/// The node and the session's environment, from which a kernel is created.
pub struct KernelInit<'a> {
    /// The node.
    pub node: &'a Node,
    /// Bounds the bytes of tensors that the kernel owns.
    pub budget: &'a Arc<Budget>,
    /// Clock, entropy and files.
    pub environment: &'a Environment,
    /// What the kernels of stateful nodes keep.
    pub states: &'a NodeStates,
}

/// What kernels are created from, beside their nodes.
#[derive(Clone)]
pub struct KernelOrigin {
    /// The kernels that there are.
    pub kernels: Arc<KernelRegistry>,
    /// Bounds the bytes of tensors that kernels own.
    pub budget: Arc<Budget>,
    /// Clock, entropy and files.
    pub environment: Environment,
    /// What the kernels of stateful nodes keep.
    pub states: Arc<NodeStates>,
}

impl KernelOrigin {
    /// From which the kernel of a node is created.
    pub fn init<'a>(&'a self, node: &'a Node) -> KernelInit<'a> {
        let KernelOrigin { budget, environment, states, .. } = self;
        KernelInit { node, budget, environment, states }
    }
}

impl<'a> KernelInit<'a> {
    /// The node's attrs.
    pub fn attrs(&self) -> NodeAttrs<'a> {
        self.node.attrs()
    }

    /// Dtype of output `i`.
    pub fn output_dtype(&self, i: usize) -> DType {
        self.node.outputs[i].dtype
    }
}

/// The device types of accelerators: their devices run the specs of [`KernelSpec::ACCELERATOR`].
pub const ACCELERATORS: &[&str] = &["GPU", "TPU", "XLA_CPU"];

/// The device type of specs that serve every accelerator.
const ANY_ACCELERATOR: &str = "accelerator";

/// A type attr and the dtypes it may have.
pub type Constraint = (&'static str, &'static [DType]);

/// One kernel of the registry.
#[derive(Clone, Copy)]
pub struct KernelSpec {
    /// The op.
    pub op: &'static str,
    /// The device type.
    pub device: &'static str,
    /// Dtypes that the node's type attrs may have.
    pub constraints: &'static [Constraint],
    /// Input arguments that the kernel reads on the host, by name.
    pub host_inputs: &'static [&'static str],
    /// Output arguments that the kernel leaves on the host, by name.
    pub host_outputs: &'static [&'static str],
    /// Whether the node's work is too small to be worth another thread, whatever its inputs.
    pub is_cheap: bool,
    /// Creates the kernel for a node.
    pub create: fn(&KernelInit<'_>) -> Result<AnyKernel>,
    /// Lowers a node to StableHLO, instead of a kernel: on accelerators. `host_inputs` are then those
    /// that must be known when the node is compiled.
    pub lower: Option<Lower>,
    /// Whether the kernel runs on the host, for a node of an accelerator that is not part of a region: its
    /// inputs come from there, and its outputs are left there.
    pub runs_on_host: bool,
    /// Whether the lowering reads no elements of its inputs, so that its outputs are known when shapes
    /// are.
    pub reads_shapes: bool,
    /// Number of 64-bit words that the lowered node gets from the host in each step, by
    /// [`Lowering::step_words`](crate::Lowering::step_words).
    pub step_words: usize,
}

impl KernelSpec {
    /// A CPU kernel for every dtype; the base for `..KernelSpec::CPU`.
    pub const CPU: KernelSpec = KernelSpec {
        op: "",
        device: "CPU",
        constraints: &[],
        host_inputs: &[],
        host_outputs: &[],
        is_cheap: false,
        create: |init| Err(err!(Unimplemented, "{} has no kernel", init.node.op.name)),
        lower: None,
        runs_on_host: false,
        reads_shapes: false,
        step_words: 0,
    };

    /// A kernel that runs on the host for a node of any accelerator: it handles state, no elements.
    pub const ACCELERATOR: KernelSpec = KernelSpec { device: ANY_ACCELERATOR, ..KernelSpec::CPU };

    /// The lowering of an op, for every accelerator and every dtype that programs know.
    pub const fn lowering(op: &'static str, lower: Lower) -> KernelSpec {
        KernelSpec { op, lower: Some(lower), ..KernelSpec::ACCELERATOR }
    }

    /// The lowering of an op on what only programs have, such as lists, and the kernel for nodes that are not
    /// part of a region.
    pub const fn beside_regions(
        op: &'static str,
        lower: Lower,
        create: fn(&KernelInit<'_>) -> Result<AnyKernel>,
    ) -> KernelSpec {
        KernelSpec { create, runs_on_host: true, ..KernelSpec::lowering(op, lower) }
    }

    /// The same with inputs that must be known when the node is compiled.
    pub const fn with_host_inputs(self, host_inputs: &'static [&'static str]) -> KernelSpec {
        KernelSpec { host_inputs, ..self }
    }

    /// The same for an op whose outputs follow from the shapes of its inputs.
    pub const fn of_shapes(self) -> KernelSpec {
        KernelSpec { reads_shapes: true, ..self }
    }

    /// The same for an op that gets words from the host in each step.
    pub const fn with_step_words(self, step_words: usize) -> KernelSpec {
        KernelSpec { step_words, ..self }
    }

    /// The same for some dtypes only.
    pub const fn for_dtypes(self, constraints: &'static [Constraint]) -> KernelSpec {
        KernelSpec { constraints, ..self }
    }

    /// Whether a device of this type runs the spec's nodes.
    pub fn serves(&self, device_type: &str) -> bool {
        self.device == device_type
            || self.device == ANY_ACCELERATOR && ACCELERATORS.contains(&device_type)
    }

    fn accepts(&self, node: &Node) -> bool {
        let is_lowered = || self.lower.is_none() || has_program_dtypes(node, self.runs_on_host);
        self.constraints.iter().all(|(attr, allowed)| {
            node.attrs().dtype(attr).is_ok_and(|dtype| allowed.contains(&dtype))
        }) && is_lowered()
    }
}

/// Ops and kernels that belong together, from one file.
pub struct Family {
    /// Definitions.
    pub ops: &'static [OpDef],
    /// Kernels.
    pub kernels: &'static [KernelSpec],
}

/// All kernels that a process has, by op.
#[derive(Default)]
pub struct KernelRegistry {
    by_op: FxHashMap<&'static str, Vec<KernelSpec>>,
}

impl KernelRegistry {
    /// A registry of these kernels; of several that fit a node, the first is taken.
    pub fn new<'a>(kernels: impl IntoIterator<Item = &'a KernelSpec>) -> Arc<KernelRegistry> {
        let mut by_op: FxHashMap<&'static str, Vec<KernelSpec>> = FxHashMap::default();
        for &kernel in kernels {
            by_op.entry(kernel.op).or_default().push(kernel);
        }
        Arc::new(KernelRegistry { by_op })
    }

    /// The kernels for an op, whatever the device.
    pub fn for_op(&self, op: &str) -> &[KernelSpec] {
        self.by_op.get(op).map_or(&[], Vec::as_slice)
    }

    /// The kernel for a node on a device type.
    pub fn find(&self, node: &Node, device_type: &str) -> Result<&KernelSpec> {
        let specs = self.for_op(&node.op.name);
        specs.iter().find(|s| s.serves(device_type) && s.accepts(node)).ok_or_else(|| {
            if specs.is_empty() {
                let why = why_missing(&node.op.name);
                return err!(Unimplemented, "{} has no kernel here{why}", node.op.name);
            }
            if specs.iter().all(|s| s.device == ANY_ACCELERATOR) && device_type == "CPU" {
                return err!(
                    Unimplemented,
                    "{} runs on accelerators only: start with --accelerator PLUGIN.so (XLA's CPU backend is one)",
                    node.op.name
                );
            }
            let types: Vec<String> = node
                .op
                .attrs
                .iter()
                .filter_map(|a| Some(format!("{}={}", a.name, node.attrs().dtype(&a.name).ok()?)))
                .collect();
            err!(
                Unimplemented,
                "{} has no {device_type} kernel for {}; there are kernels for {}",
                node.op.name,
                types.join(", "),
                specs.iter().map(describe).collect::<Vec<_>>().join("; ")
            )
        })
    }
}

/// Whether a program can have all values of a node: numbers, handles of variables, and lists.
fn has_program_dtypes(node: &Node, has_lists: bool) -> bool {
    let fits = |dtype: DType| {
        is_supported(dtype) || dtype == DType::Resource || dtype == DType::Variant && has_lists
    };
    let attrs = node.attrs();
    let is_type = |name: &str| attrs.dtype(name).is_ok_and(|dtype| !fits(dtype));
    let is_list = |name: &str| attrs.dtypes(name).is_ok_and(|all| !all.iter().all(|&d| fits(d)));
    node.outputs.iter().all(|output| fits(output.dtype))
        && !node.op.attrs.iter().any(|attr| is_type(&attr.name) || is_list(&attr.name))
}

/// What to do instead, where an op cannot have a kernel.
fn why_missing(op: &str) -> &'static str {
    match op {
        "PyFunc" | "PyFuncStateless" | "EagerPyFunc" | "GeneratorDataset" => {
            ": it runs Python of the client's process, which no other process can do; write it with TensorFlow's own ops, feed the data, or put it into files first"
        }
        _ => "",
    }
}

fn describe(spec: &KernelSpec) -> String {
    let constraint = |(attr, allowed): &Constraint| format!("{attr} in {allowed:?}");
    let constraints: Vec<String> = spec.constraints.iter().map(constraint).collect();
    format!("{} {}", spec.device, constraints.join(", "))
}
