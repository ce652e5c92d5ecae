//! Functional loops: `While` and `For`.
//!
//! A loop owns the execution state of its body and of its condition, and rewinds it for each iteration.
//! The variables move from one iteration to the next, so that the body can write into their memory.
//! If an iteration ends on the thread that started it, that thread runs the next one; if it ends on
//! another thread, because an asynchronous kernel completed it, a job of the pool does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use thalweg_kernel::CallDone;
use thalweg_tensor::{DType, Result, Tensor, ensure, err};

use crate::execute::StepState;
use crate::functions::Instance;
use crate::functions::calls::{NestedStep, on_host, truth};

/// A loop that runs.
pub(crate) struct Loop {
    step: NestedStep,
    until: Until,
    cond_state: Option<Arc<StepState>>,
    body: Arc<Instance>,
    body_state: Option<Arc<StepState>>,
    vars: Vec<Tensor>,
    /// The function that ran last.
    last_run: LastRun,
}

/// What ends a loop.
pub(crate) enum Until {
    /// This function's result.
    False(Arc<Instance>),
    /// A count, which is also the body's first argument.
    Counted(Counter),
}

#[derive(Clone, Copy, PartialEq)]
enum LastRun {
    None,
    Cond,
    Body,
}

/// Numbers from `next` to before `limit`.
pub(crate) struct Counter {
    next: i64,
    limit: i64,
    delta: i64,
}

impl Counter {
    pub(crate) fn new(start: i32, limit: i32, delta: i32) -> Result<Counter> {
        let is_valid = match delta {
            0 => start == limit,
            1.. => start <= limit,
            _ => start >= limit,
        };
        ensure!(is_valid, InvalidArgument, "Invalid start/limit/delta: {start} {limit} {delta}");
        Ok(Counter { next: start.into(), limit: limit.into(), delta: delta.into() })
    }

    fn take(&mut self) -> Option<i32> {
        let is_left = if self.delta > 0 { self.next < self.limit } else { self.next > self.limit };
        // `limit` is an int32, so what lies before it is one too.
        let taken = i32::try_from(self.next).ok().filter(|_| is_left)?;
        self.next += self.delta;
        Some(taken)
    }
}

impl Loop {
    /// A loop that has not begun; the functions' signatures must fit its variables.
    pub(crate) fn new(
        step: NestedStep,
        until: Until,
        body: Arc<Instance>,
        vars: Vec<Tensor>,
        results: &[DType],
    ) -> Result<Loop> {
        let in_body = |e: thalweg_tensor::Error| e.map_message(|m| format!("the loop's body: {m}"));
        body.check_results(results).map_err(in_body)?;
        match &until {
            Until::False(cond) => {
                let checked = cond.check_condition().and_then(|()| cond.check_args(&vars));
                checked.map_err(|e| e.map_message(|m| format!("the loop's condition: {m}")))?;
                body.check_args(&vars).map_err(in_body)?;
            }
            Until::Counted(_) => {
                let mut args = vec![Tensor::scalar(0i32)];
                args.extend_from_slice(&vars);
                body.check_args(&args).map_err(in_body)?;
            }
        }
        let (cond_state, body_state) = (None, None);
        Ok(Loop { step, until, cond_state, body, body_state, vars, last_run: LastRun::None })
    }

    /// Runs the loop; `done` gets the variables, perhaps before this returns.
    pub(crate) fn start(self, done: CallDone) {
        let stage = AtomicU8::new(STARTED);
        Arc::new(Running { inner: Mutex::new((self, Some(done))), stage }).go_on();
    }

    /// Takes the results of the function that ran last; returns the state to run next, or `None` at the
    /// end of the loop.
    fn next(&mut self) -> Result<Option<&Arc<StepState>>> {
        self.step.context.cancellation().check()?;
        match self.last_run {
            LastRun::None => {}
            LastRun::Cond => {
                let state = self.cond_state.as_ref().ok_or_else(lost)?;
                let cond = on_host(state.take_fetch(0)?, &**self.step.context.device())?;
                return if truth(&cond)? { self.begin_body(None).map(Some) } else { Ok(None) };
            }
            LastRun::Body => {
                let state = self.body_state.as_ref().ok_or_else(lost)?;
                state.take_fetches(&mut self.vars)?;
            }
        }
        match &mut self.until {
            Until::False(_) => self.begin_cond().map(Some),
            Until::Counted(counter) => match counter.take() {
                Some(i) => self.begin_body(Some(i)).map(Some),
                None => Ok(None),
            },
        }
    }

    fn begin_cond(&mut self) -> Result<&Arc<StepState>> {
        let Until::False(cond) = &self.until else { return Err(lost()) };
        let state = rewound(&mut self.cond_state, &self.step, cond)?;
        for (i, var) in self.vars.iter().enumerate() {
            // A variable that the condition does not read keeps its buffer unique.
            if cond.exec.feeds[i].is_some() {
                state.set_feed(i, var.clone());
            }
        }
        self.last_run = LastRun::Cond;
        self.cond_state.as_ref().ok_or_else(lost)
    }

    fn begin_body(&mut self, count: Option<i32>) -> Result<&Arc<StepState>> {
        let state = rewound(&mut self.body_state, &self.step, &self.body)?;
        let device = self.step.context.device();
        let count = count.map(|count| device.upload(&Tensor::scalar(count))).transpose()?;
        for (i, arg) in count.into_iter().chain(self.vars.drain(..)).enumerate() {
            if self.body.exec.feeds[i].is_some() {
                state.set_feed(i, arg);
            }
        }
        self.last_run = LastRun::Body;
        self.body_state.as_ref().ok_or_else(lost)
    }
}

fn lost() -> thalweg_tensor::Error {
    err!(Internal, "a loop lost its state")
}

/// The execution state, rewound, or a new one if another thread still holds the old one.
fn rewound<'a>(
    kept: &'a mut Option<Arc<StepState>>,
    step: &NestedStep,
    instance: &Instance,
) -> Result<&'a mut StepState> {
    if kept.as_mut().and_then(Arc::get_mut).and_then(StepState::rewind).is_none() {
        *kept = Some(Arc::new(step.state(instance)));
    }
    kept.as_mut().and_then(Arc::get_mut).ok_or_else(lost)
}

/// Runs of condition and body after which a thread of the pool checks for queued jobs: a loop may have
/// no end.
const TURN: u32 = 64;

/// The thread that started the run has not returned from it.
const STARTED: u8 = 0;
/// That thread returned before the run ended: the thread that ends it continues the loop.
const LEFT: u8 = 1;
/// The run has ended.
const ENDED: u8 = 2;

/// A loop and what is called at its end.
struct Running {
    inner: Mutex<(Loop, Option<CallDone>)>,
    stage: AtomicU8,
}

impl Running {
    fn go_on(self: Arc<Self>) {
        let mut inner = self.inner.lock();
        let pool = inner.0.step.shared.pool();
        let mut runs = 0u32;
        let result = loop {
            runs += 1;
            if runs.is_multiple_of(TURN) && pool.is_asked() {
                drop(inner);
                pool.spawn_last(move || self.go_on());
                return;
            }
            let state = match inner.0.next() {
                Ok(Some(state)) => state,
                Ok(None) => break Ok(std::mem::take(&mut inner.0.vars)),
                Err(e) => break Err(e),
            };
            self.stage.store(STARTED, Ordering::Relaxed);
            let this = self.clone();
            state.start(Box::new(move || this.ended()));
            // Release: the thread that continues sees this one's writes. Acquire: if the run has ended.
            if self.stage.swap(LEFT, Ordering::AcqRel) != ENDED {
                return;
            }
        };
        let done = inner.1.take();
        drop(inner);
        if let Some(done) = done {
            done(result);
        }
    }

    /// Called at the end of a run, by any thread and at any stack depth.
    fn ended(self: Arc<Self>) {
        if self.stage.swap(ENDED, Ordering::AcqRel) == LEFT {
            let pool = self.inner.lock().0.step.shared.pool();
            pool.spawn(move || self.go_on());
        }
    }
}
