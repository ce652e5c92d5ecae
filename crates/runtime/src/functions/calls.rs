//! Nodes that call functions: calls, `If` and `Case` here, `While` and `For` in `loops`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;
use thalweg_graph::{Attrs, Node, Role};
use thalweg_kernel::{
    CallDone, Device, DeviceName, DeviceSpec, FunctionRunner, KeptFunction, KeptGraph, Outputs,
    StepContext, Value,
};
use thalweg_tensor::{DType, Result, Tensor, bail, ensure, err};

use crate::execute::StepState;
use crate::execute::step::StepShared;
use crate::functions::loops::{Counter, Loop, Until};
use crate::functions::{Callee, Instance};
use crate::session::SessionCore;
use crate::session::trace::Trace;

/// Deepest nesting of calls; each level uses its thread's stack.
const CALL_DEPTH_MAX: u32 = 100;

/// A node that calls functions.
pub(crate) struct CallSite {
    form: Form,
    results: Box<[DType]>,
    /// Whether its functions were found in the library.
    is_checked: AtomicBool,
}

enum Form {
    /// This function.
    Call(Callee),
    /// This function, on the device that the first input names.
    Remote(Callee),
    /// The first function if the first input is true, else the second.
    If([Callee; 2]),
    /// The function at the position that the first input gives; the last one if there is none.
    Case(Box<[Callee]>),
    /// The second function, repeated while the first one is true.
    While([Callee; 2]),
    /// This function for each number from the first input to the second in steps of the third.
    For(Callee),
}

impl CallSite {
    /// The call site of a node that calls functions.
    pub(crate) fn new(node: &Node) -> Result<CallSite> {
        let attrs = node.attrs();
        let callee = |attr: &str| attrs.function(attr).map(|f| Callee::from_attr(f));
        let form = match node.role() {
            Role::Function => Form::Call(Callee::new(node.op.name.clone(), node.attrs.clone())),
            Role::PartitionedCall => Form::Call(callee("f")?),
            Role::SymbolicGradient => Form::Call(callee("f")?.differentiated()),
            Role::RemoteCall => Form::Remote(callee("f")?),
            Role::If => Form::If([callee("then_branch")?, callee("else_branch")?]),
            Role::Case => {
                Form::Case(attrs.functions("branches")?.iter().map(Callee::from_attr).collect())
            }
            Role::While => Form::While([callee("cond")?, callee("body")?]),
            Role::For => Form::For(callee("body")?),
            other => bail!(Internal, "an op with the role {other:?} runs no function"),
        };
        let results = node.outputs.iter().map(|o| o.dtype).collect();
        Ok(CallSite { form, results, is_checked: AtomicBool::new(false) })
    }

    fn callees(&self) -> &[Callee] {
        match &self.form {
            Form::Call(callee) | Form::Remote(callee) | Form::For(callee) => {
                std::slice::from_ref(callee)
            }
            Form::If(callees) | Form::While(callees) => callees,
            Form::Case(callees) => callees,
        }
    }
}

/// The step that a call belongs to.
pub(crate) struct Caller<'a> {
    pub(crate) step: &'a Arc<StepContext>,
    pub(crate) trace: Option<Arc<Trace>>,
}

/// The step of a function call: within the caller's, one call deeper. A loop runs its condition and
/// its body in one.
#[derive(Clone)]
pub(crate) struct NestedStep {
    pub(crate) context: Arc<StepContext>,
    pub(crate) shared: Arc<StepShared>,
}

impl NestedStep {
    /// A step one call deeper than its caller's.
    fn new(core: &SessionCore, caller: Caller<'_>) -> Result<NestedStep> {
        let Caller { step, trace } = caller;
        let context = Arc::new(StepContext::clone(step).at_call_depth(step.call_depth() + 1));
        NestedStep::within(core, context, trace)
    }

    /// A step with this context.
    fn within(
        core: &SessionCore,
        context: Arc<StepContext>,
        trace: Option<Arc<Trace>>,
    ) -> Result<NestedStep> {
        ensure!(
            context.call_depth() <= CALL_DEPTH_MAX,
            ResourceExhausted,
            "functions call each other more than {CALL_DEPTH_MAX} deep"
        );
        let core =
            core.this.upgrade().ok_or_else(|| err!(Internal, "the session is being dropped"))?;
        let shared = Arc::new(StepShared::new(core, context.cancellation().clone(), None, trace));
        Ok(NestedStep { context, shared })
    }

    /// The execution state of one call of `instance`.
    pub(crate) fn state(&self, instance: &Instance) -> StepState {
        StepState::new(&instance.exec, self.context.clone(), self.shared.clone())
    }
}

impl FunctionRunner for SessionCore {
    fn call(
        &self,
        name: &str,
        attrs: &Attrs,
        args: Vec<Tensor>,
        step: &Arc<StepContext>,
        done: CallDone,
    ) {
        let prepared = NestedStep::new(self, Caller { step, trace: None }).and_then(|nested| {
            prepare(&nested, &*self.named_instance(name, attrs, step.device())?, args)
        });
        start_named(name, prepared, done);
    }

    fn call_kept(
        &self,
        function: &KeptFunction,
        args: Vec<Tensor>,
        step: &Arc<StepContext>,
        done: CallDone,
    ) {
        let KeptFunction { name, attrs, kept } = function;
        let callee = kept.get_or_init(|| Box::new(Callee::new(name.clone(), attrs.clone())));
        let instance = || match callee.downcast_ref() {
            Some(callee) => self.instance_of(callee, step.device()),
            None => Err(err!(Internal, "function '{name}' was kept for another runtime")),
        };
        let prepared = NestedStep::within(self, step.clone(), None)
            .and_then(|step| prepare(&step, &*instance()?, args));
        start_named(name, prepared, done);
    }

    fn call_graph(
        &self,
        graph: &KeptGraph,
        args: Vec<Tensor>,
        step: &Arc<StepContext>,
        done: CallDone,
    ) {
        let prepared = NestedStep::new(self, Caller { step, trace: None }).and_then(|nested| {
            prepare(&nested, &*self.instance_of_graph(graph, step.device())?, args)
        });
        match prepared {
            Ok(state) => start(&state, done),
            Err(e) => done(Err(e)),
        }
    }
}

/// A call that is ready to start.
enum PreparedCall {
    Function(Arc<StepState>),
    Loop(Loop),
}

impl SessionCore {
    /// Runs the functions of a call site.
    pub(crate) fn call_site(
        &self,
        site: &CallSite,
        inputs: Result<SmallVec<[Value; 4]>>,
        caller: Caller<'_>,
        done: Box<dyn FnOnce(Result<Outputs>) + Send>,
    ) {
        let begun = NestedStep::new(self, caller)
            .and_then(|step| self.begin_site(site, arguments(inputs?)?, step));
        let values = |tensors: Vec<Tensor>| tensors.into_iter().map(Value::Tensor).collect();
        let done = move |results: Result<Vec<Tensor>>| done(results.map(values));
        match begun {
            Ok(PreparedCall::Function(state)) => start(&state, Box::new(done)),
            Ok(PreparedCall::Loop(turns)) => turns.start(Box::new(done)),
            Err(e) => done(Err(e)),
        }
    }

    fn begin_site(
        &self,
        site: &CallSite,
        mut args: Vec<Tensor>,
        step: NestedStep,
    ) -> Result<PreparedCall> {
        self.check_callees(site)?;
        let device = step.context.device().clone();
        let callee = match &site.form {
            Form::Call(callee) => callee,
            Form::Remote(callee) => {
                let [target] = leading(&mut args, &*device)?;
                check_target(&target, &device.description().name)?;
                callee
            }
            Form::If([then_branch, else_branch]) => {
                let [cond] = leading(&mut args, &*device)?;
                if truth(&cond)? { then_branch } else { else_branch }
            }
            Form::Case(branches) => {
                let [index] = leading(&mut args, &*device)?;
                let index = usize::try_from(int_scalar(&index, "branch_index")?);
                let last = branches.len() - 1;
                &branches[index.map_or(last, |i| i.min(last))]
            }
            Form::While([cond, body]) => {
                let until = Until::False(self.instance_of(cond, &device)?);
                let body = self.instance_of(body, &device)?;
                return Loop::new(step, until, body, args, &site.results).map(PreparedCall::Loop);
            }
            Form::For(body) => {
                let [start, limit, delta] = leading(&mut args, &*device)?;
                let until = Until::Counted(Counter::new(
                    int_scalar(&start, "start")?,
                    int_scalar(&limit, "limit")?,
                    int_scalar(&delta, "delta")?,
                )?);
                let body = self.instance_of(body, &device)?;
                return Loop::new(step, until, body, args, &site.results).map(PreparedCall::Loop);
            }
        };
        let prepared = self.instance_of(callee, &device).and_then(|instance| {
            instance.check_results(&site.results)?;
            prepare(&step, &instance, args)
        });
        prepared.map(PreparedCall::Function).map_err(|e| e.in_function(&callee.function.name))
    }

    /// Fails if a function is not in the library, even if this call does not run it.
    fn check_callees(&self, site: &CallSite) -> Result<()> {
        if site.is_checked.load(Ordering::Relaxed) {
            return Ok(());
        }
        for Callee { function, .. } in site.callees() {
            ensure!(
                self.with_graph(|graph| graph.library().get(&function.name).is_some()),
                NotFound,
                "function '{}' is not in the graph's library",
                function.name
            );
        }
        site.is_checked.store(true, Ordering::Relaxed);
        Ok(())
    }
}

fn arguments(inputs: SmallVec<[Value; 4]>) -> Result<Vec<Tensor>> {
    let tensor = |value: Value| match value {
        Value::Tensor(tensor) => Ok(tensor),
        _ => Err(err!(Internal, "an argument is not a tensor")),
    };
    inputs.into_iter().map(tensor).collect()
}

/// Removes the first `N` inputs, which select the function, and copies them to host memory.
fn leading<const N: usize>(args: &mut Vec<Tensor>, device: &dyn Device) -> Result<[Tensor; N]> {
    ensure!(args.len() >= N, Internal, "{} inputs are fewer than {N}", args.len());
    let taken: Vec<Tensor> =
        args.drain(..N).map(|tensor| on_host(tensor, device)).collect::<Result<_>>()?;
    taken.try_into().map_err(|_| err!(Internal, "{N} inputs are not {N} inputs"))
}

/// The tensor in host memory.
pub(crate) fn on_host(tensor: Tensor, device: &dyn Device) -> Result<Tensor> {
    if device.description().shares_host_memory || tensor.dtype().is_object() {
        return Ok(tensor);
    }
    device.download(&tensor)
}

fn int_scalar(tensor: &Tensor, name: &str) -> Result<i32> {
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "{name} must be scalar, got shape {}",
        tensor.shape()
    );
    Ok(tensor.as_slice::<i32>()?[0])
}

/// A condition's truth value: a scalar is true if it is not zero or empty, another tensor if it has
/// elements.
pub(crate) fn truth(tensor: &Tensor) -> Result<bool> {
    if tensor.rank() != 0 {
        return Ok(tensor.num_elements() > 0);
    }
    Ok(match tensor.dtype() {
        DType::Bool => tensor.as_slice::<bool>()?[0],
        DType::Float => tensor.as_slice::<f32>()?[0] != 0.0,
        DType::Double => tensor.as_slice::<f64>()?[0] != 0.0,
        DType::Int8 => tensor.as_slice::<i8>()?[0] != 0,
        DType::Int16 => tensor.as_slice::<i16>()?[0] != 0,
        DType::Int32 => tensor.as_slice::<i32>()?[0] != 0,
        DType::Int64 => tensor.as_slice::<i64>()?[0] != 0,
        DType::UInt8 => tensor.as_slice::<u8>()?[0] != 0,
        DType::String => !tensor.strings()?[0].is_empty(),
        other => bail!(InvalidArgument, "{other} cannot be converted to a boolean"),
    })
}

/// Fails unless the target of a `RemoteCall` matches the caller's device: nodes of other devices get
/// there by placement.
fn check_target(target: &Tensor, own: &DeviceName) -> Result<()> {
    let strings = target.strings()?;
    let name = strings.first().ok_or_else(|| err!(InvalidArgument, "target must not be empty"))?;
    let name = String::from_utf8_lossy(name);
    let wanted = name.parse::<DeviceSpec>()?;
    ensure!(wanted.matches(own), Internal, "functions cannot be run on device '{name}' from {own}");
    Ok(())
}

/// The execution state of a call with these arguments.
fn prepare(step: &NestedStep, instance: &Instance, args: Vec<Tensor>) -> Result<Arc<StepState>> {
    instance.check_args(&args)?;
    let mut state = step.state(instance);
    for (i, arg) in args.into_iter().enumerate() {
        state.set_feed(i, arg);
    }
    Ok(Arc::new(state))
}

/// Starts a call of the function `name`, if it could be prepared.
fn start_named(name: &str, prepared: Result<Arc<StepState>>, done: CallDone) {
    match prepared {
        Ok(state) => start(&state, done),
        Err(e) => done(Err(e.in_function(name))),
    }
}

fn start(state: &Arc<StepState>, done: CallDone) {
    let running = state.clone();
    let results = move || {
        running.context.cancellation().check()?;
        let mut results = Vec::with_capacity(running.num_fetches());
        running.take_fetches(&mut results)?;
        Ok(results)
    };
    state.start(Box::new(move || done(results())));
}
