//! The context in which a kernel runs: the session, the step and the node.

use std::ops::Range;
use std::sync::{Arc, Weak};

use smallvec::SmallVec;
use thalweg_graph::Node;
use thalweg_tensor::{Budget, DType, Result, Shape, Tensor, bail, ensure, err};

use crate::{
    Background, Cancellation, Device, Environment, FunctionRunner, NoBackground, OneThread,
    Parallel, ResourceManager, Value, Variable,
};

/// Duration of one block of a parallel loop: long enough to be worth waking a thread.
const BLOCK_NANOSECONDS: f64 = 40_000.0;

/// Identifies a step, and the client's request that it serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepId {
    /// The step's number, unique within the process; within the cluster if other tasks take part.
    pub number: u64,
    /// The client's number for its request; 0 if it gave none.
    pub request: i64,
}

/// What the steps of one session share: memory, state, threads, functions and the outside world.
pub struct SessionContext {
    /// Bounds the bytes of the session's tensors.
    pub budget: Arc<Budget>,
    /// Bounds the bytes of the task's state.
    pub state_budget: Arc<Budget>,
    /// Whether kernels keep the packed form of weights that several steps multiply by.
    pub keeps_packed_weights: bool,
    /// Variables, queues, tables and other state that outlives a step.
    pub resources: Arc<ResourceManager>,
    /// Threads that share the loop of one kernel.
    pub parallel: Arc<dyn Parallel>,
    /// Threads for jobs that outlive the kernel that starts them.
    pub background: Arc<dyn Background>,
    /// Runs functions of the graph's library; `None` where there is no library. Weak, because the
    /// runner owns this context.
    pub functions: Option<Weak<dyn FunctionRunner>>,
    /// Clock, entropy and files.
    pub environment: Environment,
}

impl SessionContext {
    /// A context without a session: one thread, no functions, state of its own that is charged to
    /// `budget` as tensors are.
    pub fn isolated(budget: &Arc<Budget>, environment: Environment) -> SessionContext {
        SessionContext {
            budget: budget.clone(),
            state_budget: budget.clone(),
            keeps_packed_weights: false,
            resources: ResourceManager::new("localhost"),
            parallel: Arc::new(OneThread),
            background: Arc::new(NoBackground),
            functions: None,
            environment,
        }
    }
}

/// One step on one device, as its kernels see it.
#[derive(Clone)]
pub struct StepContext {
    session: Arc<SessionContext>,
    device: Arc<dyn Device>,
    step_id: StepId,
    call_depth: u32,
    cancellation: Cancellation,
    step_resources: Arc<ResourceManager>,
}

impl StepContext {
    /// A step of `session` on `device`, not within a function call.
    pub fn new(
        session: Arc<SessionContext>,
        device: Arc<dyn Device>,
        step_id: StepId,
        cancellation: Cancellation,
    ) -> StepContext {
        let step_resources = ResourceManager::new("step");
        StepContext { session, device, step_id, call_depth: 0, cancellation, step_resources }
    }

    /// The same step on another device: cancellation and step resources are shared.
    pub fn on_device(&self, device: Arc<dyn Device>) -> StepContext {
        StepContext { device, ..self.clone() }
    }

    /// The same step within a function call: `depth` calls are on the stack.
    pub fn at_call_depth(self, depth: u32) -> StepContext {
        StepContext { call_depth: depth, ..self }
    }

    /// Makes the context of a step that ended good for another step of the same session.
    /// `cancellation_holders` is how many clones of the cancellation the caller owns, this
    /// context's included; if there are more, the next step gets a new cancellation.
    pub fn restart(&mut self, step_id: StepId, cancellation_holders: usize) {
        self.step_id = step_id;
        if !self.cancellation.reset(cancellation_holders) {
            self.cancellation = Cancellation::default();
        }
    }

    /// Moves the context to another session, so that an idle one need not keep its session alive.
    pub fn set_session(&mut self, session: Arc<SessionContext>) {
        self.session = session;
    }

    /// What the steps of the session share.
    pub fn session(&self) -> &Arc<SessionContext> {
        &self.session
    }

    /// The device that the kernels run on.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The step's number and the client's number for its request.
    pub fn step_id(&self) -> StepId {
        self.step_id
    }

    /// How many function calls are on the stack.
    pub fn call_depth(&self) -> u32 {
        self.call_depth
    }

    /// Ends the step.
    #[inline]
    pub fn cancellation(&self) -> &Cancellation {
        &self.cancellation
    }

    /// State that is dropped when the step ends: stacks, tensor arrays.
    pub fn step_resources(&self) -> &Arc<ResourceManager> {
        &self.step_resources
    }

    /// Bounds the bytes of the session's tensors.
    #[inline]
    pub fn budget(&self) -> &Arc<Budget> {
        &self.session.budget
    }

    /// Bounds the bytes of the task's state.
    pub fn state_budget(&self) -> &Arc<Budget> {
        &self.session.state_budget
    }

    /// Whether kernels keep the packed form of weights that several steps multiply by.
    #[inline]
    pub fn keeps_packed_weights(&self) -> bool {
        self.session.keeps_packed_weights
    }

    /// Variables, queues, tables and other state that outlives the step.
    pub fn resources(&self) -> &Arc<ResourceManager> {
        &self.session.resources
    }

    /// Threads that share the loop of one kernel.
    #[inline]
    pub fn parallel(&self) -> &Arc<dyn Parallel> {
        &self.session.parallel
    }

    /// Threads for jobs that outlive the kernel that starts them.
    pub fn background(&self) -> &Arc<dyn Background> {
        &self.session.background
    }

    /// Clock, entropy and files.
    #[inline]
    pub fn environment(&self) -> &Environment {
        &self.session.environment
    }

    /// Runs functions of the graph's library. `Unimplemented` where there is no library, `Cancelled`
    /// if the session is closed.
    pub fn functions(&self) -> Result<Arc<dyn FunctionRunner>> {
        let Some(functions) = &self.session.functions else {
            bail!(Unimplemented, "functions cannot be called here");
        };
        functions.upgrade().ok_or_else(|| err!(Cancelled, "the session is closed"))
    }
}

/// Outputs of one node.
pub type Outputs = SmallVec<[Value; 1]>;

/// One node in one step, as its kernel sees it.
pub struct KernelContext<'a> {
    node: &'a Node,
    /// Dtypes of the outputs. A copy beside the node: the nodes of a large graph do not fit the caches.
    output_dtypes: &'a [DType],
    step: &'a Arc<StepContext>,
    inputs: &'a mut [Value],
    outputs: &'a mut [Value],
}

impl<'a> KernelContext<'a> {
    /// `inputs` are the node's flattened inputs, tensors where the op takes values and references
    /// where it takes those; `outputs` are as many as `output_dtypes`, and empty.
    #[inline]
    pub fn new(
        node: &'a Node,
        output_dtypes: &'a [DType],
        step: &'a Arc<StepContext>,
        inputs: &'a mut [Value],
        outputs: &'a mut [Value],
    ) -> Self {
        debug_assert_eq!(output_dtypes.len(), outputs.len());
        KernelContext { node, output_dtypes, step, inputs, outputs }
    }

    /// The node: its name, op and attrs.
    pub fn node(&self) -> &'a Node {
        self.node
    }

    /// The step.
    pub fn step(&self) -> &'a Arc<StepContext> {
        self.step
    }

    /// Number of flattened inputs.
    pub fn num_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// Number of flattened outputs.
    pub fn num_outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Positions of the argument `name` among the flattened inputs.
    pub fn input_range(&self, name: &str) -> Result<Range<usize>> {
        self.node.input_range(name)
    }

    /// Input `i`.
    #[inline]
    pub fn input(&self, i: usize) -> Result<&Tensor> {
        self.inputs
            .get(i)
            .and_then(Value::tensor)
            .ok_or_else(|| err!(Internal, "input {i} is not there, or not a tensor"))
    }

    /// Elements of input `i`.
    #[inline]
    pub fn slice<T: thalweg_tensor::Element>(&self, i: usize) -> Result<&[T]> {
        self.input(i)?.as_slice()
    }

    /// Input `i` by move: its buffer is unique if no other node reads it.
    #[inline]
    pub fn take_input(&mut self, i: usize) -> Result<Tensor> {
        match self.inputs.get_mut(i).map(std::mem::take) {
            Some(Value::Tensor(tensor)) => Ok(tensor),
            _ => Err(err!(Internal, "input {i} is not there, or not a tensor")),
        }
    }

    /// The variable that input `i` refers to.
    pub fn input_ref(&self, i: usize) -> Result<Arc<Variable>> {
        match self.inputs.get(i) {
            Some(Value::Ref(variable)) => Ok(variable.clone()),
            _ => Err(err!(Internal, "input {i} is not a reference")),
        }
    }

    /// Input `i` as an integer scalar, int32 or int64.
    pub fn scalar_int(&self, i: usize, name: &str) -> Result<i64> {
        let tensor = self.input(i)?;
        ensure!(
            tensor.rank() == 0,
            InvalidArgument,
            "{name} must be a scalar, got shape {}",
            tensor.shape()
        );
        Ok(self.ints(i, name)?[0])
    }

    /// Elements of input `i`, int32 or int64, in row-major order.
    pub fn ints(&self, i: usize, name: &str) -> Result<SmallVec<[i64; 4]>> {
        let tensor = self.input(i)?;
        Ok(match tensor.dtype() {
            DType::Int32 => tensor.as_slice::<i32>()?.iter().map(|&x| i64::from(x)).collect(),
            DType::Int64 => SmallVec::from_slice(tensor.as_slice::<i64>()?),
            DType::Int16 => tensor.as_slice::<i16>()?.iter().map(|&x| i64::from(x)).collect(),
            other => {
                return Err(err!(InvalidArgument, "{name} must be int32 or int64, is {other}"));
            }
        })
    }

    /// The shape that input `i`, an integer vector called `name`, describes.
    pub fn shape_input(&self, i: usize, name: &str) -> Result<Shape> {
        let tensor = self.input(i)?;
        ensure!(
            tensor.rank() == 1,
            InvalidArgument,
            "{name} must be a vector, got shape {}",
            tensor.shape()
        );
        Shape::from_i64(&self.ints(i, name)?)
    }

    /// Memory for scratch or an output, charged to the session; contents are unspecified.
    pub fn allocate(&self, dtype: DType, shape: Shape) -> Result<Tensor> {
        Tensor::allocate(dtype, shape, Some(self.step.budget()))
    }

    /// Zeroes, charged to the session.
    pub fn zeros(&self, dtype: DType, shape: Shape) -> Result<Tensor> {
        Tensor::zeros_in(dtype, shape, Some(self.step.budget()))
    }

    /// Memory for output `i` in its dtype.
    pub fn allocate_output(&self, i: usize, shape: Shape) -> Result<Tensor> {
        self.allocate(self.output_dtype(i)?, shape)
    }

    /// The tensor of the first input among `candidates` whose buffer is unique and which has this dtype
    /// and shape, with its elements; else new memory. The second result is the input's position.
    ///
    /// A forwarded input is removed from the context.
    #[inline]
    pub fn forward_input_or_allocate(
        &mut self,
        candidates: &[usize],
        dtype: DType,
        shape: &Shape,
    ) -> Result<(Tensor, Option<usize>)> {
        for &i in candidates {
            let Some(Value::Tensor(tensor)) = self.inputs.get(i) else { continue };
            if tensor.dtype() == dtype && tensor.shape() == shape && tensor.is_unique() {
                return Ok((self.take_input(i)?, Some(i)));
            }
        }
        Ok((self.allocate(dtype, shape.clone())?, None))
    }

    /// Dtype of output `i`.
    #[inline]
    pub fn output_dtype(&self, i: usize) -> Result<DType> {
        self.output_dtypes
            .get(i)
            .copied()
            .ok_or_else(|| err!(Internal, "{} has no output {i}", self.node.op.name))
    }

    /// Sets output `i`.
    #[inline]
    pub fn set_output(&mut self, i: usize, tensor: Tensor) -> Result<()> {
        let dtype = self.output_dtype(i)?;
        ensure!(
            tensor.dtype() == dtype,
            Internal,
            "output {i} must be {dtype}, the kernel made {}",
            tensor.dtype()
        );
        self.outputs[i].set(Value::Tensor(tensor));
        Ok(())
    }

    /// Sets output `i` to a reference.
    pub fn set_output_ref(&mut self, i: usize, variable: Arc<Variable>) -> Result<()> {
        let dtype = self.output_dtype(i)?;
        ensure!(
            self.node.outputs[i].is_ref && variable.dtype() == dtype,
            Internal,
            "output {i} must be {dtype}{}, the kernel made a reference to {}",
            if self.node.outputs[i].is_ref { "_ref" } else { "" },
            variable.dtype()
        );
        self.outputs[i].set(Value::Ref(variable));
        Ok(())
    }

    /// Bounds the bytes of the session's tensors.
    pub fn budget(&self) -> &'a Arc<Budget> {
        self.step.budget()
    }

    /// Variables, queues, tables and other state that outlives the step.
    pub fn resources(&self) -> &'a ResourceManager {
        self.step.resources()
    }

    /// The error that cancelled the step, if it is cancelled.
    pub fn check_cancelled(&self) -> Result<()> {
        self.step.cancellation().check()
    }

    /// Threads for a loop that the caller cuts into blocks.
    pub fn parallel(&self) -> &'a dyn Parallel {
        &**self.step.parallel()
    }

    /// Calls `body` on ranges that partition `0..total`, on several threads if the loop is long enough.
    /// The ranges depend on `total` and the cost of an item, never on the number of threads;
    /// cancellation is checked between ranges.
    #[inline]
    pub fn parallel_for(
        &self,
        total: usize,
        nanoseconds_per_item: f64,
        body: impl Fn(Range<usize>) + Sync,
    ) -> Result<()> {
        // Most loops are short: the check costs one multiplication.
        if total as f64 * nanoseconds_per_item <= BLOCK_NANOSECONDS {
            if total > 0 {
                body(0..total);
            }
            return Ok(());
        }
        self.parallel_blocks(total, nanoseconds_per_item, &body)
    }

    /// The part of [`Self::parallel_for`] that is compiled once, not for every loop.
    #[inline(never)]
    fn parallel_blocks(
        &self,
        total: usize,
        nanoseconds_per_item: f64,
        body: &(dyn Fn(Range<usize>) + Sync),
    ) -> Result<()> {
        let items = block_items(total, nanoseconds_per_item);
        let blocks = total.div_ceil(items);
        let cancellation = self.step.cancellation();
        self.step.parallel().run(blocks, &|block| {
            if !cancellation.is_cancelled() {
                body(block * items..((block + 1) * items).min(total));
            }
        });
        cancellation.check()
    }
}

/// Items in one block of a parallel loop.
fn block_items(total: usize, nanoseconds_per_item: f64) -> usize {
    let items = (BLOCK_NANOSECONDS / nanoseconds_per_item.max(0.01)) as usize;
    items.clamp(1, total)
}

/// Called once with a node's outputs, or with its error.
pub type Completion = Box<dyn FnOnce(Result<Outputs>) + Send>;

/// One node in one step, as its asynchronous kernel sees it.
pub struct AsyncCall {
    /// The node's flattened inputs.
    pub inputs: SmallVec<[Value; 4]>,
    /// The step.
    pub step: Arc<StepContext>,
    /// Number of outputs that the node has.
    pub num_outputs: usize,
    done: Completion,
}

impl AsyncCall {
    /// A call that completes by calling `done`.
    pub fn new(
        inputs: SmallVec<[Value; 4]>,
        step: Arc<StepContext>,
        num_outputs: usize,
        done: Completion,
    ) -> Self {
        AsyncCall { inputs, step, num_outputs, done }
    }

    /// Input `i`.
    #[inline]
    pub fn input(&self, i: usize) -> Result<&Tensor> {
        self.inputs
            .get(i)
            .and_then(Value::tensor)
            .ok_or_else(|| err!(Internal, "input {i} is not there, or not a tensor"))
    }

    /// Completes the call.
    pub fn complete(self, result: Result<Outputs>) {
        (self.done)(result);
    }
}
