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
    AsyncCall, AsyncKernel, KeptGraph, KernelOrigin, Outputs, StepContext, Value, VariableBuffer,
};
use thalweg_plan::Region;
use thalweg_tensor::{Charge, DType, Error, Result, Tensor, bail, ensure, err};

use crate::cells::Cells;
use crate::compile::{ArgumentSource, LoweredRegion, Source, Target, lower_region};
use crate::device::Accelerator;
use crate::inputs::{Input, Inputs, Signature};
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
    /// The region as a function that the executor runs, if it has calls: it may not compile as a whole.
    parts: Option<Parts>,
    device: Arc<Accelerator>,
    origin: KernelOrigin,
    programs: Mutex<Programs>,
    /// Held while a program is compiled: other steps wait for it instead of compiling it too. It is locked
    /// before `programs`, which is never held for long.
    compiling: Mutex<()>,
}

/// The programs of a region by what they were compiled for, the least recently used first.
#[derive(Default)]
struct Programs {
    all: Vec<Arc<Compiled>>,
    compilations: u64,
}

/// How a region runs for certain inputs.
struct Compiled {
    signature: Signature,
    /// `None` if it runs in parts: it has calls, and does not compile.
    whole: Option<Whole>,
}

/// A region as one program.
struct Whole {
    lowered: LoweredRegion,
    /// `None` if there is nothing to compute.
    executable: Option<Arc<Executable>>,
}

/// How far a step came.
enum Progress {
    Started(Vec<Delivered>),
    /// It runs in parts.
    InParts,
    /// A program for the inputs must be compiled first.
    Uncompiled,
}

/// A region as a function, whose calls are left to the executor.
struct Parts {
    graph: KeptGraph,
    /// For each argument, the input of the region that it is.
    args: Vec<usize>,
}

impl RegionKernel {
    pub(crate) fn new(mut region: Region, device: Arc<Accelerator>, origin: KernelOrigin) -> Self {
        let kept = |graph| KeptGraph::new(graph, origin.states.clone());
        let parts = region.parts.take();
        let parts = parts.map(|p| Parts { graph: kept(p.graph), args: p.args });
        let (programs, compiling) = (Mutex::default(), Mutex::default());
        RegionKernel(Arc::new(State { region, parts, device, origin, programs, compiling }))
    }
}

impl AsyncKernel for RegionKernel {
    fn start(&self, call: AsyncCall) {
        let state = self.0.clone();
        if state.reads_the_device(&call) {
            let background = call.step.background().clone();
            background.spawn_blocking(Box::new(move || {
                let inputs = state.inputs(&call);
                state.run(call, inputs, true);
            }));
        } else {
            let inputs = state.inputs(&call);
            state.run(call, inputs, false);
        }
    }
}

impl State {
    /// Whether a value must come from the device before the program is known.
    fn reads_the_device(&self, call: &AsyncCall) -> bool {
        let is_far = |(value, is_static): (&Value, &bool)| {
            *is_static && value.tensor().is_some_and(|t| t.device_memory().is_some())
        };
        call.inputs.iter().zip(&self.region.is_static).any(is_far)
    }

    /// Runs the region; compiles a program for it on this thread if that `may_block`, else on another.
    fn run(self: &Arc<Self>, call: AsyncCall, inputs: Result<Inputs>, may_block: bool) {
        let mut inputs = match inputs {
            Ok(inputs) => inputs,
            Err(e) => return call.complete(Err(e)),
        };
        match self.execute(&call, &mut inputs, may_block) {
            Ok(Progress::Started(outputs)) => self.deliver(&outputs, call),
            Ok(Progress::InParts) => self.run_in_parts(call),
            Ok(Progress::Uncompiled) => {
                let (state, background) = (self.clone(), call.step.background().clone());
                background.spawn_blocking(Box::new(move || state.run(call, Ok(inputs), true)));
            }
            Err(e) => call.complete(Err(e)),
        }
    }

    /// Runs the region as a function of the executor, which calls the functions of its calls.
    fn run_in_parts(self: &Arc<Self>, call: AsyncCall) {
        let prepared = self
            .arguments_of_parts(&call)
            .and_then(|(graph, args)| Ok((graph, args, call.step.functions()?)));
        let (graph, args, functions) = match prepared {
            Ok(prepared) => prepared,
            Err(e) => return call.complete(Err(e)),
        };
        let (state, step) = (self.clone(), call.step.clone());
        let done = move |results: Result<Vec<Tensor>>| match results {
            Ok(results) => {
                let outputs = results.into_iter().zip(&state.region.is_read_on_host);
                let outputs: Vec<Delivered> = outputs
                    .map(|(tensor, &is_read_on_host)| Delivered { tensor, is_read_on_host })
                    .collect();
                state.deliver(&outputs, call);
            }
            Err(e) => call.complete(Err(e)),
        };
        functions.call_graph(graph, args, &step, Box::new(done));
    }

    /// The function that a region is, and its arguments, in the device's memory.
    fn arguments_of_parts(&self, call: &AsyncCall) -> Result<(&KeptGraph, Vec<Tensor>)> {
        let Some(parts) = &self.parts else { bail!(Internal, "a region has no parts") };
        let argument = |&i: &usize| {
            let tensor = call.input(i)?;
            match tensor.dtype().is_object() || tensor.device_memory().is_some() {
                true => Ok(tensor.clone()),
                false => self.device.put(tensor)?.into_tensor(),
            }
        };
        Ok((&parts.graph, parts.args.iter().map(argument).collect::<Result<_>>()?))
    }

    /// Starts the region's program; compiles one only if that `may_block`.
    fn execute(&self, call: &AsyncCall, inputs: &mut Inputs, may_block: bool) -> Result<Progress> {
        // First the program that the inputs alone suggest: its variables are looked at under their locks.
        // Then one for the variables as they are; they may change between that look and the locks.
        for attempt in 0..8 {
            let fits_variables = attempt > 0;
            let compiled = match self.known_program(inputs, fits_variables) {
                Some(compiled) => compiled,
                None if may_block => self.new_program(inputs, fits_variables)?,
                None => return Ok(Progress::Uncompiled),
            };
            let Some(whole) = &compiled.whole else { return Ok(Progress::InParts) };
            match inputs.create_missing(&whole.lowered, &call.step) {
                // Its functions may take the handle of a variable and leave it alone.
                Err(_) if self.parts.is_some() => return Ok(Progress::InParts),
                other => other?,
            }
            if let Some(outputs) = self.enqueue(&compiled.signature, whole, inputs, &call.step)? {
                return Ok(Progress::Started(outputs));
            }
        }
        bail!(Aborted, "the shapes of variables keep changing while a step reads them")
    }

    fn inputs(&self, call: &AsyncCall) -> Result<Inputs> {
        let mut inputs = Inputs::with_capacity(call.inputs.len());
        // Before a buffer is looked for among the variables, all of them must be known.
        if call.inputs.iter().any(|value| matches!(value, Value::Alias(_))) {
            for value in &call.inputs {
                if let Value::Ref(variable) = value {
                    inputs.variable(variable.clone());
                }
            }
        }
        for (value, &is_static) in call.inputs.iter().zip(&self.region.is_static) {
            let input = match value {
                Value::Ref(variable) => inputs.variable(variable.clone()),
                // What the region does to the variable shows in its buffer.
                Value::Alias(buffer) => match inputs.variable_of(buffer) {
                    Some(variable) => variable,
                    None if is_static => Input::Known(self.on_host(&buffer.snapshot())?),
                    None => Input::Memory(self.on_device(&buffer.snapshot())?),
                },
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
            Some(_) => self.device.read(&*memory_of(tensor)?),
            None => Ok(tensor.clone()),
        }
    }

    fn on_device(&self, tensor: &Tensor) -> Result<Arc<Memory>> {
        match tensor.device_memory() {
            Some(_) => memory_of(tensor),
            None => Ok(Arc::new(self.device.put(tensor)?)),
        }
    }

    /// The last used program for these inputs. Unless `fits_variables`, it may be one for variables of other
    /// shapes.
    fn known_program(&self, inputs: &Inputs, fits_variables: bool) -> Option<Arc<Compiled>> {
        let fits = |compiled: &Arc<Compiled>| {
            let signature = &compiled.signature;
            let may_differ = !fits_variables && compiled.whole.is_some();
            signature.takes(inputs) && (may_differ || signature.takes_variables(inputs))
        };
        let mut programs = self.programs.lock();
        let position = programs.all.iter().rposition(fits)?;
        let last = programs.all.len() - 1;
        if position != last {
            let found = programs.all.remove(position);
            programs.all.push(found);
        }
        Some(programs.all[last].clone())
    }

    /// A program for these inputs, compiled unless another step has just done so.
    fn new_program(&self, inputs: &Inputs, fits_variables: bool) -> Result<Arc<Compiled>> {
        let _compiling = self.compiling.lock();
        if let Some(compiled) = self.known_program(inputs, fits_variables) {
            return Ok(compiled);
        }
        let signature = inputs.signature();
        let whole = match self.compile(&signature, inputs) {
            Ok(whole) => Some(whole),
            // What does not compile as a whole may run in parts, or fails there as it must.
            Err(e) if self.parts.is_some() => {
                tracing::debug!(
                    target: "thalweg::accelerator",
                    "the region around {} runs in parts: {e}",
                    self.name()
                );
                None
            }
            Err(e) => return Err(e),
        };
        let compiled = Arc::new(Compiled { signature, whole });
        let mut programs = self.programs.lock();
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
        programs.all.push(compiled.clone());
        Ok(compiled)
    }

    /// Name of a node of the region, for messages.
    fn name(&self) -> &str {
        let first = self.region.is_static.len();
        self.region.body.nodes().get(first).map_or("", |node| &node.name)
    }

    fn compile(&self, signature: &Signature, inputs: &Inputs) -> Result<Whole> {
        let target = self.device.target();
        let lower = |target: Target<'_>| {
            lower_region(
                &self.region,
                signature.inputs(),
                &signature.variable_kinds(inputs),
                &self.origin,
                target,
            )
        };
        let lowered = lower(target)?;
        if lowered.num_results == 0 {
            return Ok(Whole { lowered, executable: None });
        }
        let (lowered, executable) = match self.compile_text(&lowered.text) {
            Err(e) if lowered.has_fused_attention => {
                self.device.give_up_fused_attention(&e);
                let lowered = lower(Target { fuses_attention: false, ..target })?;
                let executable = self.compile_text(&lowered.text)?;
                (lowered, executable)
            }
            compiled => (lowered, compiled?),
        };
        Ok(Whole { lowered, executable: Some(executable) })
    }

    fn compile_text(&self, text: &str) -> Result<Arc<Executable>> {
        tracing::debug!(
            target: "thalweg::accelerator",
            "compiling the region around {}:\n{text}",
            self.name()
        );
        self.device.compile(text).map_err(|e| self.not_compiled(e))
    }

    fn not_compiled(&self, error: Error) -> Error {
        let name = self.name();
        error.map_message(|m| format!("the region around {name} cannot be compiled: {m}"))
    }

    /// Starts the program; `None` if a variable has another shape now than it was compiled for.
    fn enqueue(
        &self,
        signature: &Signature,
        whole: &Whole,
        inputs: &Inputs,
        step: &Arc<StepContext>,
    ) -> Result<Option<Vec<Delivered>>> {
        let Whole { lowered, executable } = whole;
        // Changes that something observes happen one by one, as those of other kernels.
        let is_observed = step.resources().is_observed();
        let buffers: Vec<Option<Arc<VariableBuffer>>> =
            inputs.variables.iter().map(|v| v.buffer().ok()).collect();
        let mut cells = Cells::lock(&buffers, is_observed)?;
        if !cells.fit(signature) {
            return Ok(None);
        }
        let (results, arguments) = match executable {
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
        // A result that takes the memory of an argument takes its charge too. The others are charged before
        // the program starts, since it uses up what is donated.
        let donor =
            |result: usize| lowered.donors[result].filter(|i| kept.binary_search(i).is_err());
        let sizes = lowered.result_bytes.iter().enumerate();
        let new = sizes.filter(|(result, _)| donor(*result).is_none()).map(|(_, bytes)| bytes);
        let mut charge = Charge::new(&self.device.budget, new.sum())?;
        self.device.counters.executions.fetch_add(1, Ordering::Relaxed);
        let results = executable.execute(&buffers, &kept)?;
        ensure!(
            results.len() == lowered.num_results,
            Internal,
            "a program made {} results, not {}",
            results.len(),
            lowered.num_results
        );
        self.device.note_use();
        let mut charged = |(i, buffer): (usize, Buffer)| {
            let taken = donor(i).and_then(|donor| arguments[donor].memory().take_charge());
            Memory::new(buffer, taken.unwrap_or_else(|| charge.split(lowered.result_bytes[i])))
        };
        let results = results.into_iter().enumerate().map(&mut charged).collect();
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
                ArgumentSource::StepWords => {
                    let words = Tensor::vector(&lowered.step_words()?)?;
                    arguments.push(Argument(Arc::new(self.device.put(&words)?)));
                }
                ArgumentSource::Variable(position) => {
                    let is_sole_holder = cells.is_sole_holder(position);
                    let value = cells.value(position)?;
                    if value.device_memory().is_none() {
                        arguments.push(Argument(Arc::new(self.device.put(&value)?)));
                        continue;
                    }
                    if lowered.is_donated[i] && !is_sole_holder {
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
            let done = move |copy| Pending::arrive(&pending, i, copy);
            self.device.start_read(memory, &budget, done);
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
