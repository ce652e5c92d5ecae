//! The kernel of a region: finds or compiles the program for its inputs, and starts it.
//!
//! A region reads its variables when it starts and replaces them when it is enqueued, both under their
//! locks: another step that updates them comes before or after as a whole. The device orders the work
//! itself, so neither waits for the computation. The memory of a variable that nothing else holds is
//! donated to its new value.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use thalweg_kernel::{
    AsyncCall, AsyncKernel, KernelRegistry, Outputs, StepContext, Value, Variable, VariableBuffer,
};
use thalweg_plan::Region;
use thalweg_tensor::{
    Charge, Code, DType, Error, ResourceHandle, Result, Tensor, bail, ensure, err,
};

use crate::cells::Cells;
use crate::compile::{
    ArgumentSource, InputKind, LoweredRegion, Source, VariableKind, lower_region,
};
use crate::device::{Accelerator, Precision};
use crate::memory::{Memory, memory_of};
use crate::pjrt::{Buffer, Executable};

/// Most programs that a region keeps; the least recently used one goes.
const PROGRAMS_MAX: usize = 64;
/// After so many compilations of one region a warning says that its shapes keep changing.
const MANY_COMPILATIONS: u64 = 16;
/// Name of the update of variables that an observer of state sees.
const UPDATE: &str = "_Region";

/// A region on an accelerator.
pub(crate) struct RegionKernel(Arc<State>);

struct State {
    region: Region,
    device: Arc<Accelerator>,
    kernels: Arc<KernelRegistry>,
    programs: Mutex<Programs>,
}

/// The programs of a region by what they were compiled for, the least recently used first.
#[derive(Default)]
struct Programs {
    all: Vec<(Key, Arc<Compiled>)>,
    compilations: u64,
}

/// Shapes and dtypes of inputs and variables, and the values of inputs that programs depend on.
type Key = Vec<u8>;

struct Compiled {
    lowered: LoweredRegion,
    /// `None` if there is nothing to compute.
    executable: Option<Arc<Executable>>,
}

/// An input of a region in one step.
enum Input {
    Known(Tensor),
    Memory(Arc<Memory>),
    Variable(usize),
}

/// The inputs of a region in one step.
struct Inputs {
    all: Vec<Input>,
    variables: Vec<Arc<Variable>>,
    /// Variables of handles that nothing has assigned yet: the region may be the first.
    missing: Vec<Missing>,
}

/// A variable that the task does not have yet.
struct Missing {
    position: usize,
    handle: ResourceHandle,
    error: Error,
}

impl RegionKernel {
    pub(crate) fn new(
        region: Region,
        device: Arc<Accelerator>,
        kernels: Arc<KernelRegistry>,
    ) -> Self {
        RegionKernel(Arc::new(State { region, device, kernels, programs: Mutex::default() }))
    }
}

impl AsyncKernel for RegionKernel {
    fn start(&self, call: AsyncCall) {
        let state = self.0.clone();
        if state.may_block(&call) {
            let background = call.step.background().clone();
            background.spawn_blocking(Box::new(move || state.run(call)));
        } else {
            state.run(call);
        }
    }
}

impl State {
    /// Whether running now would wait: for a compilation, or for a value to come from the device.
    fn may_block(&self, call: &AsyncCall) -> bool {
        let is_far = |(value, is_static): (&Value, &bool)| {
            *is_static && value.tensor().is_some_and(|t| t.device_memory().is_some())
        };
        self.programs.lock().all.is_empty()
            || call.inputs.iter().zip(&self.region.is_static).any(is_far)
    }

    fn run(&self, call: AsyncCall) {
        match self.execute(&call) {
            Ok(outputs) => self.deliver(&outputs, call),
            Err(e) => call.complete(Err(e)),
        }
    }

    fn execute(&self, call: &AsyncCall) -> Result<Vec<Delivered>> {
        let mut inputs = self.inputs(call)?;
        // The shape of a variable may change between the look at it and its lock.
        for _ in 0..8 {
            let compiled = self.program(&inputs)?;
            inputs.create_missing(&compiled.lowered, &call.step)?;
            match self.enqueue(&compiled, &inputs, &call.step)? {
                Some(outputs) => return Ok(outputs),
                None => continue,
            }
        }
        bail!(Aborted, "the shapes of variables keep changing while a step reads them")
    }

    fn inputs(&self, call: &AsyncCall) -> Result<Inputs> {
        let mut inputs = Inputs {
            all: Vec::with_capacity(call.inputs.len()),
            variables: Vec::new(),
            missing: Vec::new(),
        };
        for (value, &is_static) in call.inputs.iter().zip(&self.region.is_static) {
            let input = match value {
                Value::Ref(variable) => inputs.variable(variable.clone()),
                Value::Tensor(tensor) if tensor.dtype() == DType::Resource => {
                    let [handle] = tensor.resources()? else {
                        bail!(InvalidArgument, "expected one handle, got {}", tensor.shape());
                    };
                    inputs.handle(handle, &call.step)?
                }
                Value::Tensor(tensor) if is_static => Input::Known(self.on_host(tensor)?),
                Value::Tensor(tensor) => Input::Memory(self.on_device(tensor)?),
                _ => bail!(Internal, "an input of a region is not there"),
            };
            inputs.all.push(input);
        }
        Ok(inputs)
    }

    fn on_host(&self, tensor: &Tensor) -> Result<Tensor> {
        match tensor.device_memory() {
            Some(_) => memory_of(tensor)?.buffer.read(),
            None => Ok(tensor.clone()),
        }
    }

    fn on_device(&self, tensor: &Tensor) -> Result<Arc<Memory>> {
        match tensor.device_memory() {
            Some(_) => memory_of(tensor),
            None => Ok(Arc::new(self.device.put(tensor)?)),
        }
    }

    /// The program for these inputs.
    fn program(&self, inputs: &Inputs) -> Result<Arc<Compiled>> {
        let key = inputs.key();
        let mut programs = self.programs.lock();
        if let Some(position) = programs.all.iter().rposition(|(known, _)| *known == key) {
            let last = programs.all.len() - 1;
            if position != last {
                let found = programs.all.remove(position);
                programs.all.push(found);
            }
            return Ok(programs.all[last].1.clone());
        }
        // Compiled under the lock: other steps wait for the program instead of compiling it too.
        let compiled = Arc::new(self.compile(inputs)?);
        programs.compilations += 1;
        if programs.compilations == MANY_COMPILATIONS {
            tracing::warn!(
                target: "thalweg::accelerator",
                device = ?self.device,
                "the region around {} was compiled {MANY_COMPILATIONS} times, because the shapes of its \
                 inputs keep changing; feed batches of equal shapes",
                self.name()
            );
        }
        if programs.all.len() >= PROGRAMS_MAX {
            programs.all.remove(0);
        }
        programs.all.push((key, compiled.clone()));
        Ok(compiled)
    }

    /// Name of a node of the region, for messages.
    fn name(&self) -> &str {
        let first = self.region.is_static.len();
        self.region.body.nodes().get(first).map_or("", |node| &node.name)
    }

    fn compile(&self, inputs: &Inputs) -> Result<Compiled> {
        let lowered = lower_region(
            &self.region,
            &inputs.kinds(),
            &inputs.variable_kinds(),
            &self.kernels,
            self.device.device_type(),
            self.device.precision == Precision::Full,
        )?;
        let executable = match lowered.num_results {
            0 => None,
            _ => {
                tracing::debug!(
                    target: "thalweg::accelerator",
                    "compiling the region around {}:\n{}",
                    self.name(),
                    lowered.text
                );
                let compiled = self.device.compile(&lowered.text);
                Some(compiled.map_err(|e| self.not_compiled(e))?)
            }
        };
        Ok(Compiled { lowered, executable })
    }

    fn not_compiled(&self, error: Error) -> Error {
        let name = self.name();
        error.map_message(|m| format!("the region around {name} cannot be compiled: {m}"))
    }

    /// Starts the program; `None` if a variable has another shape now than it was compiled for.
    fn enqueue(
        &self,
        compiled: &Compiled,
        inputs: &Inputs,
        step: &Arc<StepContext>,
    ) -> Result<Option<Vec<Delivered>>> {
        let lowered = &compiled.lowered;
        // Changes that something observes happen one by one, as those of other kernels.
        let is_observed = step.resources().is_observed();
        let buffers: Vec<Option<Arc<VariableBuffer>>> =
            inputs.variables.iter().map(|v| v.buffer().ok()).collect();
        let mut cells = Cells::lock(&buffers, is_observed)?;
        if !cells.fit(lowered) {
            return Ok(None);
        }
        let (results, arguments) = match &compiled.executable {
            Some(executable) => self.start(executable, lowered, inputs, &mut cells)?,
            None => (Vec::new(), self.arguments(lowered, inputs, &mut cells)?.0),
        };
        let mut results: Vec<Option<Memory>> = results.into_iter().map(Some).collect();
        let mut made: Vec<Option<Tensor>> = vec![None; results.len()];
        let mut tensor = |source: &Source| -> Result<Tensor> {
            match source {
                Source::Known(tensor) => Ok(tensor.clone()),
                Source::Argument(i) => arguments[*i].tensor(),
                Source::Result(i) => {
                    if let Some(memory) = results[*i].take() {
                        made[*i] = Some(memory.into_tensor()?);
                    }
                    made[*i].clone().ok_or_else(|| err!(Internal, "result {i} is missing"))
                }
            }
        };
        let mut outputs = Vec::with_capacity(lowered.outputs.len());
        for (source, &is_read_on_host) in lowered.outputs.iter().zip(&self.region.is_read_on_host) {
            outputs.push(Delivered { tensor: tensor(source)?, is_read_on_host });
        }
        let mut assigned = Vec::with_capacity(lowered.assigned.len());
        for (position, source) in &lowered.assigned {
            let value = tensor(source)?;
            // Variables live in the device's memory.
            let value = match value.device_memory() {
                Some(_) => value,
                None => self.device.put(&value)?.into_tensor()?,
            };
            match cells.set(*position, value) {
                None => {}
                Some(value) => assigned.push((*position, value)),
            }
        }
        drop(cells);
        for (position, value) in assigned {
            let variable = &inputs.variables[position];
            let change = || variable.assign(value);
            step.resources().update(&**variable, UPDATE, step.step_id(), change)?;
        }
        Ok(Some(outputs))
    }

    /// Starts the executable; its results, and the arguments that outputs may forward.
    fn start(
        &self,
        executable: &Arc<Executable>,
        lowered: &LoweredRegion,
        inputs: &Inputs,
        cells: &mut Cells<'_>,
    ) -> Result<(Vec<Memory>, Vec<Argument>)> {
        let (arguments, kept) = self.arguments(lowered, inputs, cells)?;
        let buffers: Vec<&Buffer> = arguments.iter().map(|a| &a.memory().buffer).collect();
        self.device.counters.executions.fetch_add(1, Ordering::Relaxed);
        let results = executable.execute(&buffers, &kept)?;
        ensure!(
            results.len() == lowered.num_results,
            Internal,
            "a program made {} results, not {}",
            results.len(),
            lowered.num_results
        );
        let charged = |buffer: Buffer| {
            let _charge = Charge::new(&self.device.budget, buffer.size_bytes())?;
            Ok(Memory { buffer, _charge })
        };
        let results = results.into_iter().map(charged).collect::<Result<_>>()?;
        Ok((results, arguments))
    }

    /// The arguments of the program, and the positions of those that must not be donated.
    fn arguments(
        &self,
        lowered: &LoweredRegion,
        inputs: &Inputs,
        cells: &mut Cells<'_>,
    ) -> Result<(Vec<Argument>, Vec<usize>)> {
        let mut arguments = Vec::with_capacity(lowered.arguments.len());
        let mut kept = Vec::new();
        for (i, source) in lowered.arguments.iter().enumerate() {
            match *source {
                ArgumentSource::Input(input) => match &inputs.all[input] {
                    Input::Memory(memory) => arguments.push(Argument(memory.clone())),
                    _ => bail!(Internal, "an argument of a region has no memory"),
                },
                ArgumentSource::Variable(position) => {
                    let is_sole_holder = cells.is_sole_holder(position);
                    let value = cells.value(position)?;
                    let is_assigned = lowered.assigned.iter().any(|(p, _)| *p == position);
                    if value.device_memory().is_none() {
                        arguments.push(Argument(Arc::new(self.device.put(&value)?)));
                        continue;
                    }
                    if !(is_assigned && is_sole_holder) {
                        kept.push(i);
                    }
                    arguments.push(Argument(memory_of(&value)?));
                }
            }
        }
        Ok((arguments, kept))
    }

    /// Completes the call: at once, or when what the host reads has been copied.
    fn deliver(&self, outputs: &[Delivered], call: AsyncCall) {
        let is_far = |o: &Delivered| o.is_read_on_host && o.tensor.device_memory().is_some();
        let far: Vec<usize> = (0..outputs.len()).filter(|&i| is_far(&outputs[i])).collect();
        let values: Result<Outputs> = outputs
            .iter()
            .map(|output| match output.is_read_on_host || output.tensor.device_memory().is_some() {
                true => Ok(Value::Tensor(output.tensor.clone())),
                false => Ok(Value::Tensor(self.device.put(&output.tensor)?.into_tensor()?)),
            })
            .collect();
        let values = match values {
            Ok(values) => values,
            Err(e) => return call.complete(Err(e)),
        };
        if far.is_empty() {
            return call.complete(Ok(values));
        }
        let budget = call.step.budget().clone();
        let memories: Result<Vec<Arc<Memory>>> =
            far.iter().map(|&i| memory_of(&outputs[i].tensor)).collect();
        let memories = match memories {
            Ok(memories) => memories,
            Err(e) => return call.complete(Err(e)),
        };
        let pending = Pending { left: far.len(), values, error: None, call: Some(call) };
        let pending = Arc::new(Mutex::new(pending));
        for (&i, memory) in far.iter().zip(&memories) {
            let pending = pending.clone();
            memory.buffer.download(Some(&budget), move |copy| Pending::arrive(&pending, i, copy));
        }
    }
}

/// An output of a region.
struct Delivered {
    tensor: Tensor,
    is_read_on_host: bool,
}

/// An argument of a program.
struct Argument(Arc<Memory>);

impl Argument {
    fn memory(&self) -> &Memory {
        &self.0
    }

    fn tensor(&self) -> Result<Tensor> {
        let buffer = &self.0.buffer;
        Tensor::from_device(buffer.dtype(), buffer.shape().clone(), self.0.clone())
    }
}

/// A call that waits for copies of its outputs.
struct Pending {
    left: usize,
    values: Outputs,
    error: Option<Error>,
    call: Option<AsyncCall>,
}

impl Pending {
    /// Takes one copy; the last one completes the call, on a thread of the pool: this one is the plugin's.
    fn arrive(this: &Mutex<Pending>, output: usize, copy: Result<Tensor>) {
        let mut pending = this.lock();
        match copy {
            Ok(tensor) => pending.values[output] = Value::Tensor(tensor),
            Err(e) => {
                pending.error.get_or_insert(e);
            }
        }
        pending.left -= 1;
        if pending.left > 0 {
            return;
        }
        let result = match pending.error.take() {
            Some(e) => Err(e),
            None => Ok(std::mem::take(&mut pending.values)),
        };
        if let Some(call) = pending.call.take() {
            let background = call.step.background().clone();
            background.spawn(Box::new(move || call.complete(result)));
        }
    }
}

impl Inputs {
    /// The input that refers to a variable; several may refer to the same one.
    fn variable(&mut self, variable: Arc<Variable>) -> Input {
        let known = self.variables.iter().position(|v| Arc::ptr_eq(v, &variable));
        Input::Variable(known.unwrap_or_else(|| {
            self.variables.push(variable);
            self.variables.len() - 1
        }))
    }

    /// The input that is a handle of a variable, which need not exist.
    fn handle(&mut self, handle: &ResourceHandle, step: &StepContext) -> Result<Input> {
        let error = match step.resources().resolve(handle) {
            Ok(variable) => return Ok(self.variable(variable)),
            Err(e) => e,
        };
        let is_same = |m: &&Missing| {
            (&m.handle.container, &m.handle.name) == (&handle.container, &handle.name)
        };
        if let Some(known) = self.missing.iter().find(is_same) {
            return Ok(Input::Variable(known.position));
        }
        let declared = handle.dtypes_and_shapes.first().filter(|_| handle.owned.is_none());
        let (Some((dtype, shape)), Code::NotFound) = (declared, error.code()) else {
            return Err(error);
        };
        let budget = step.state_budget().clone();
        let variable = Variable::new(handle.name.clone(), *dtype, shape.clone(), budget);
        let input = self.variable(Arc::new(variable));
        let position = self.variables.len() - 1;
        self.missing.push(Missing { position, handle: handle.clone(), error });
        Ok(input)
    }

    /// Makes the variables that the region is the first to assign; the error of one that it does not.
    fn create_missing(&mut self, lowered: &LoweredRegion, step: &StepContext) -> Result<()> {
        for Missing { position, handle, error } in std::mem::take(&mut self.missing) {
            if !lowered.assigned.iter().any(|(assigned, _)| *assigned == position) {
                return Err(error);
            }
            let (container, name) = (handle.container.clone(), handle.name.clone());
            let new = &self.variables[position];
            let (dtype, shape) = (new.dtype(), new.shape().clone());
            let budget = step.state_budget().clone();
            let make = || Ok(Variable::new(name.clone(), dtype, shape, budget));
            self.variables[position] =
                step.resources().find_or_create(container, name.clone(), make)?;
        }
        Ok(())
    }

    fn kinds(&self) -> Vec<InputKind> {
        let kind = |input: &Input| match input {
            Input::Known(tensor) => InputKind::Known(tensor.clone()),
            Input::Memory(memory) => {
                InputKind::Buffer(memory.buffer.dtype(), memory.buffer.shape().clone())
            }
            Input::Variable(position) => InputKind::Variable(*position),
        };
        self.all.iter().map(kind).collect()
    }

    fn variable_kinds(&self) -> Vec<VariableKind> {
        let kind = |v: &Arc<Variable>| VariableKind {
            name: v.name().to_string(),
            dtype: v.dtype(),
            declared: v.shape().clone(),
            shape: v.snapshot().map(|t| t.shape().clone()),
        };
        self.variables.iter().map(kind).collect()
    }

    fn key(&self) -> Key {
        let mut key = Key::new();
        let put = |key: &mut Key, n: usize| key.extend((n as u64).to_le_bytes());
        let shape = |key: &mut Key, dtype: DType, dims: &[usize]| {
            key.push(dtype as u8);
            put(key, dims.len());
            dims.iter().for_each(|&d| put(key, d));
        };
        for input in &self.all {
            match input {
                Input::Known(tensor) => {
                    key.push(0);
                    shape(&mut key, tensor.dtype(), tensor.shape().dims());
                    key.extend(tensor.as_bytes().unwrap_or_default());
                }
                Input::Memory(memory) => {
                    key.push(1);
                    shape(&mut key, memory.buffer.dtype(), memory.buffer.dims());
                }
                Input::Variable(position) => {
                    key.push(2);
                    put(&mut key, *position);
                }
            }
        }
        for variable in &self.variables {
            match variable.snapshot() {
                Some(value) => shape(&mut key, value.dtype(), value.shape().dims()),
                None => key.push(u8::MAX),
            }
        }
        key
    }
}
