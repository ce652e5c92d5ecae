//! Test helpers: run one op on given tensors, or infer its shapes.

use std::sync::{Arc, LazyLock};

use thalweg_graph::{Attrs, IntoAttr, OpRegistry, Scope};
use thalweg_kernel::*;
use thalweg_tensor::{Budget, Code, DType, FlushDenormals, PartialShape, Result, Tensor, bail};

use crate::{FAMILIES, kernel_registry, op_registry};

/// All op definitions, shared by all tests.
static OPS: LazyLock<Arc<OpRegistry>> =
    LazyLock::new(|| op_registry(FAMILIES).expect("the families are consistent"));
/// All kernels, shared by all tests.
static KERNELS: LazyLock<Arc<KernelRegistry>> = LazyLock::new(|| kernel_registry(FAMILIES));

/// A node under construction.
pub(crate) struct Call {
    op: &'static str,
    inputs: Vec<Input>,
    attrs: Attrs,
    threads: Arc<dyn Parallel>,
    weights: Option<Arc<Budget>>,
}

enum Input {
    Value(Tensor),
    Constant(Tensor),
    Shape(DType, PartialShape),
}

/// Starts a node of this op.
pub(crate) fn call(op: &'static str) -> Call {
    let threads = Arc::new(OneThread);
    Call { op, inputs: Vec::new(), attrs: Attrs::default(), threads, weights: None }
}

/// The code of a result's error; `None` for a value.
pub(crate) fn code<T>(result: Result<T>) -> Option<Code> {
    result.err().map(|error| error.code())
}

/// Pairs of elements of two slices. Panics if the slices differ in length, which `zip` would hide.
#[track_caller]
pub(crate) fn pairs<'a, A, B>(
    got: &'a [A],
    wanted: &'a [B],
) -> impl Iterator<Item = (&'a A, &'a B)> {
    assert_eq!(got.len(), wanted.len(), "the slices differ in length");
    got.iter().zip(wanted)
}

/// A step without a session.
pub(crate) fn step(budget: &Arc<Budget>, parallel: Arc<dyn Parallel>) -> Arc<StepContext> {
    step_of(SessionContext { parallel, ..SessionContext::isolated(budget, Environment::frozen()) })
}

/// A step on one CPU.
fn step_of(session: SessionContext) -> Arc<StepContext> {
    let name = DeviceName::cpu("localhost", 0, 0);
    let device = HostDevice::shared(DeviceDescription::cpu(name, 1 << 30));
    let id = StepId { number: 1, request: 0 };
    Arc::new(StepContext::new(Arc::new(session), device, id, Cancellation::default()))
}

/// `"2,?,3"` as a partial shape; `"unknown"` has no rank, `""` is a scalar's.
pub(crate) fn partial_shape(text: &str) -> PartialShape {
    if text == "unknown" {
        return PartialShape::unknown();
    }
    PartialShape::new(text.split(',').filter(|d| !d.is_empty()).map(|d| d.parse().ok()))
}

impl Call {
    /// Adds an input that a step feeds.
    pub(crate) fn input(mut self, tensor: Tensor) -> Self {
        self.inputs.push(Input::Value(tensor));
        self
    }

    /// Adds an input whose value is known to shape inference.
    pub(crate) fn constant(mut self, tensor: Tensor) -> Self {
        self.inputs.push(Input::Constant(tensor));
        self
    }

    /// Adds an input of which only the shape is known, in the notation of [`partial_shape`].
    pub(crate) fn shape(mut self, dtype: DType, shape: &str) -> Self {
        self.inputs.push(Input::Shape(dtype, partial_shape(shape)));
        self
    }

    /// Sets an attr.
    pub(crate) fn attr(mut self, name: &'static str, value: impl IntoAttr) -> Self {
        self.attrs.set(name, value.into_attr());
        self
    }

    /// Runs the blocks of parallel loops last to first, which must not change the result.
    pub(crate) fn backwards(mut self) -> Self {
        self.threads = Arc::new(Backwards);
        self
    }

    /// Enables the cache of packed weights, charged to this budget.
    pub(crate) fn caching_weights(mut self, budget: &Arc<Budget>) -> Self {
        self.weights = Some(budget.clone());
        self
    }

    fn node(&self) -> Result<thalweg_graph::Node> {
        let mut scope = Scope::new(OPS.clone());
        let mut inputs = Vec::new();
        for input in &self.inputs {
            inputs.push(match input {
                // Fed shapes are unknown, so that the kernel's own checks are tested.
                Input::Value(t) => scope.placeholder(t.dtype(), &PartialShape::unknown())?,
                Input::Constant(t) => scope.constant(t)?,
                Input::Shape(dtype, shape) => scope.placeholder(*dtype, shape)?,
            });
        }
        let mut builder = scope.op(self.op).inputs(&inputs);
        for (name, value) in self.attrs.iter() {
            builder = builder.attr(name, value.clone());
        }
        let node = builder.build_node()?;
        Ok(scope.with_graph(|graph| graph.node(node).clone()))
    }

    /// The inferred shapes of the outputs, separated by spaces; or the error.
    pub(crate) fn infer(self) -> String {
        match self.node() {
            Ok(node) => {
                let shapes: Vec<String> =
                    node.outputs.iter().map(|o| o.shape.to_string()).collect();
                shapes.join(" ")
            }
            Err(e) => format!("{e}"),
        }
    }

    /// Runs the node and returns all outputs.
    pub(crate) fn run_all(self) -> Result<Vec<Tensor>> {
        let node = self.node()?;
        let budget = self.weights.clone().unwrap_or_else(|| Budget::new(1 << 30));
        let step = step_of(SessionContext {
            parallel: self.threads.clone(),
            keeps_packed_weights: self.weights.is_some(),
            ..SessionContext::isolated(&budget, Environment::frozen())
        });
        let registry = &*KERNELS;
        let states = NodeStates::default();
        let environment = step.environment();
        let init = KernelInit { node: &node, budget: &budget, environment, states: &states };
        let AnyKernel::Sync(kernel) = (registry.find(&node, "CPU")?.create)(&init)? else {
            bail!(Unimplemented, "{} completes later", self.op);
        };
        let mut inputs = Vec::new();
        for input in self.inputs {
            match input {
                Input::Value(t) | Input::Constant(t) => inputs.push(Value::Tensor(t)),
                Input::Shape(..) => bail!(InvalidArgument, "a shape is not a value"),
            }
        }
        let mut outputs = vec![Value::Empty; node.outputs.len()];
        let _flush = FlushDenormals::enter();
        let dtypes: Vec<DType> = node.outputs.iter().map(|o| o.dtype).collect();
        let mut ctx = KernelContext::new(&node, &dtypes, &step, &mut inputs, &mut outputs);
        kernel.compute(&mut ctx)?;
        let tensor = |v: Value| v.tensor().cloned();
        outputs
            .into_iter()
            .map(|v| {
                tensor(v).ok_or_else(|| thalweg_tensor::err!(Internal, "an output is missing"))
            })
            .collect()
    }

    /// Runs the node and returns the first output.
    pub(crate) fn run(self) -> Result<Tensor> {
        Ok(self.run_all()?.swap_remove(0))
    }
}

struct Backwards;

impl Parallel for Backwards {
    fn run(&self, blocks: usize, body: &(dyn Fn(usize) + Sync)) {
        (0..blocks).rev().for_each(body);
    }

    fn threads(&self) -> usize {
        3
    }
}
