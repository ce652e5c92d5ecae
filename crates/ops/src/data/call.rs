//! Calls of the user-defined functions of datasets.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use thalweg_graph::{AttrValue, Attrs, NodeAttrs};
use thalweg_kernel::{
    CallDone, Cancellation, KeptFunction, KernelContext, Registration, StepContext,
};
use thalweg_proto as pb;
use thalweg_tensor::{Result, Tensor, bail, ensure, err};

use super::element::Element;
use super::scope::{CallStep, Scope};

/// A dataset op's function attr: the name of a function in the graph's library.
#[derive(Clone)]
pub(crate) struct FunctionAttr {
    name: String,
    attrs: Attrs,
    /// Name of the input argument with the captured tensors (`other_arguments`).
    captured: &'static str,
}

impl FunctionAttr {
    pub(crate) fn of(
        attrs: NodeAttrs<'_>,
        attr: &str,
        captured: &'static str,
    ) -> Result<FunctionAttr> {
        let pb::NameAttrList { name, attr } = &**attrs.function(attr)?;
        let value = |(n, v): (&String, &pb::AttrValue)| {
            (Arc::from(n.as_str()), AttrValue::from_proto(v.clone()))
        };
        Ok(FunctionAttr { name: name.clone(), attrs: attr.iter().map(value).collect(), captured })
    }

    /// The function with these captured tensors.
    pub(crate) fn with(&self, captured: Vec<Tensor>) -> Arc<Function> {
        let function = KeptFunction::new(self.name.clone(), self.attrs.clone());
        Arc::new(Function { body: Body::Graph(function), captured })
    }

    /// The function with the captured tensors that the node's inputs hold.
    pub(crate) fn bind(&self, ctx: &KernelContext<'_>) -> Result<Arc<Function>> {
        let mut captured = Vec::new();
        if !self.captured.is_empty() {
            for i in ctx.input_range(self.captured)? {
                captured.push(ctx.input(i)?.clone());
            }
        }
        Ok(self.with(captured))
    }
}

/// A user-defined function with its captured tensors, which follow the element's components as
/// arguments.
pub(crate) struct Function {
    body: Body,
    captured: Vec<Tensor>,
}

enum Body {
    /// A function of the graph's library.
    Graph(KeptFunction),
    /// A Rust closure.
    Closure(Closure),
}

/// A Rust closure that is called with an element.
pub(crate) type Closure =
    Box<dyn Fn(&Arc<StepContext>, Vec<Tensor>) -> Result<Vec<Tensor>> + Send + Sync>;

impl Function {
    /// A function from a Rust closure.
    pub(crate) fn from_closure(code: Closure) -> Arc<Function> {
        Arc::new(Function { body: Body::Closure(code), captured: Vec::new() })
    }

    /// Starts a call; inexpensive functions have returned when this returns.
    pub(crate) fn call(&self, scope: &Scope, args: impl IntoIterator<Item = Tensor>) -> Call {
        let step = match scope.begin_call() {
            Ok(step) => step,
            Err(e) => return Call::over(Err(e)),
        };
        let outcome = Arc::default();
        self.begin(&step.context, args, &outcome);
        if let Some(result) = outcome.take() {
            scope.end_call(step);
            return Call::over(result);
        }
        // The running call keeps its step alive; `RunningCall` does not, since the step keeps the session
        // alive.
        let CallStep { context, link } = step;
        let cancellation = context.cancellation().clone();
        Call(State::RunningCall(RunningCall {
            outcome,
            cancellation,
            link: Some(link),
            later: None,
        }))
    }

    /// A call that starts on a pool thread, or on the waiting thread if that is first.
    pub(crate) fn call_in_background(self: &Arc<Self>, scope: &Arc<Scope>, args: Element) -> Call {
        let (cancellation, outcome) = (Cancellation::default(), Arc::<Outcome>::default());
        let link = Some(scope.cancellation.link(&cancellation));
        let later = Arc::new(DeferredCall {
            function: self.clone(),
            scope: scope.clone(),
            args: Mutex::new(Some(args)),
            cancellation: cancellation.clone(),
            outcome: outcome.clone(),
        });
        let begins = later.clone();
        scope.background.spawn(Box::new(move || begins.begin()));
        Call(State::RunningCall(RunningCall { outcome, cancellation, link, later: Some(later) }))
    }

    fn begin(
        &self,
        step: &Arc<StepContext>,
        args: impl IntoIterator<Item = Tensor>,
        outcome: &Arc<Outcome>,
    ) {
        let args = args.into_iter().chain(self.captured.iter().cloned()).collect();
        match &self.body {
            Body::Graph(function) => {
                let outcome = outcome.clone();
                let done: CallDone = Box::new(move |result| outcome.set(result));
                match step.functions() {
                    Ok(functions) => functions.call_kept(function, args, step, done),
                    Err(e) => done(Err(e)),
                }
            }
            Body::Closure(code) => outcome.set(catch_panic("a function", || code(step, args))),
        }
    }
}

/// Converts a panic of user code to an error; the waiting thread would not see a panic on another
/// thread.
pub(crate) fn catch_panic<T>(what: &str, code: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(AssertUnwindSafe(code)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
        bail!(Aborted, "{what} panicked: {}", message.unwrap_or_default())
    })
}

/// A call that has not started.
struct DeferredCall {
    function: Arc<Function>,
    scope: Arc<Scope>,
    args: Mutex<Option<Element>>,
    cancellation: Cancellation,
    outcome: Arc<Outcome>,
}

impl DeferredCall {
    /// Starts the call, unless it was started.
    fn begin(&self) {
        let args = self.args.lock().take();
        let Some(args) = args else { return };
        match self.scope.step(self.cancellation.clone()) {
            Ok(step) => self.function.begin(&step, args, &self.outcome),
            Err(e) => self.outcome.set(Err(e)),
        }
    }
}

/// Result slot of a call.
#[derive(Default)]
struct Outcome(Mutex<Progress>);

#[derive(Default)]
enum Progress {
    #[default]
    Running,
    Awaited(Waker),
    Done(Result<Vec<Tensor>>),
    Taken,
}

impl Outcome {
    fn set(&self, result: Result<Vec<Tensor>>) {
        let before = std::mem::replace(&mut *self.0.lock(), Progress::Done(result));
        if let Progress::Awaited(waker) = before {
            waker.wake();
        }
    }

    /// Takes the result, if it is there.
    fn take(&self) -> Option<Result<Element>> {
        let mut progress = self.0.lock();
        match std::mem::replace(&mut *progress, Progress::Taken) {
            Progress::Done(result) => Some(result.map(Element::from_vec)),
            before => {
                *progress = before;
                None
            }
        }
    }
}

/// A running call, or its result. Dropping it cancels the call.
pub(crate) struct Call(State);

enum State {
    Over(Option<Result<Element>>),
    RunningCall(RunningCall),
}

struct RunningCall {
    outcome: Arc<Outcome>,
    cancellation: Cancellation,
    link: Option<Registration>,
    later: Option<Arc<DeferredCall>>,
}

impl Call {
    fn over(result: Result<Element>) -> Call {
        Call(State::Over(Some(result)))
    }

    /// The function's result; ready once.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Element>> {
        let twice = || err!(Internal, "a call was awaited twice");
        match &mut self.0 {
            State::Over(result) => Poll::Ready(result.take().unwrap_or_else(|| Err(twice()))),
            State::RunningCall(begun) => begun.poll(cx),
        }
    }
}

impl RunningCall {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Element>> {
        if let Some(later) = self.later.take() {
            later.begin();
        }
        let mut progress = self.outcome.0.lock();
        match std::mem::replace(&mut *progress, Progress::Taken) {
            Progress::Done(result) => {
                drop(progress);
                self.link = None;
                Poll::Ready(result.map(Element::from_vec))
            }
            Progress::Taken => Poll::Ready(Err(err!(Internal, "a call was awaited twice"))),
            Progress::Running | Progress::Awaited(_) => {
                *progress = Progress::Awaited(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn is_done(&self) -> bool {
        matches!(*self.outcome.0.lock(), Progress::Done(_))
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        if let Some(later) = self.later.take()
            && later.args.lock().take().is_some()
        {
            return;
        }
        if self.link.take().is_some() && !self.is_done() {
            self.cancellation
                .cancel(err!(Cancelled, "the function call was dropped by its iterator"));
        }
    }
}

/// The scalar bool that a predicate returns.
pub(crate) fn bool_result(result: &[Tensor], what: &str) -> Result<bool> {
    match result {
        [answer] if answer.dtype() == thalweg_tensor::DType::Bool && answer.num_elements() == 1 => {
            answer.scalar_value()
        }
        _ => bail!(InvalidArgument, "{what} must return a scalar of type bool"),
    }
}

/// The scalar integer that a function returns.
pub(crate) fn int_result(result: &[Tensor], what: &str) -> Result<i64> {
    ensure!(
        matches!(result, [answer] if answer.dtype() == thalweg_tensor::DType::Int64 && answer.num_elements() == 1),
        InvalidArgument,
        "{what} must return a scalar of type int64"
    );
    result[0].scalar_value()
}
