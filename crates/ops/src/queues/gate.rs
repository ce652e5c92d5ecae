//! A monitor for asynchronous calls: state with queues of waiting calls.
//!
//! A [`Gate`] owns a [`Machine`] and, in lanes, the calls that the machine could not serve yet.
//! After every state change, waiting calls are retried until none makes progress. Calls complete
//! outside the lock, exactly once: the thread that removes a call from its lane, under the lock,
//! completes it.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use thalweg_kernel::{
    AnyKernel, AsyncCall, AsyncKernel, KernelContext, Outputs, Registration, StepContext, Value,
};
use thalweg_tensor::{Error, Resource, Result, bail};

use super::store::Components;

/// Result of advancing a request.
pub(crate) enum Progress {
    /// The request cannot proceed; the state is unchanged.
    Waits,
    /// The request has made progress and changed the state, but is not complete.
    Partly,
    /// The request is complete.
    Done(Result<Outputs>),
}

/// A state machine driven by requests.
pub(crate) trait Machine: Send + 'static {
    /// The request of a call.
    type Request: Send + 'static;

    /// Lanes of waiting calls; see [`Lane`].
    const LANES: &'static [Lane];

    /// Advances a request as far as the state allows.
    fn advance(&mut self, request: &mut Self::Request, step: &StepContext) -> Progress;

    /// Undoes the effects of an incomplete request; returns the error for its call, unless the step
    /// has an error of its own.
    fn withdraw(&mut self, request: Self::Request) -> Error;
}

/// Order in which the calls of a lane are served.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Lane {
    /// FIFO: the first call must complete before the next is tried.
    Ordered,
    /// Every call is tried, in the order of arrival.
    Free,
}

/// A machine and the calls that wait for it.
pub(crate) struct Gate<M: Machine> {
    this: Weak<Gate<M>>,
    state: Mutex<State<M>>,
}

struct State<M: Machine> {
    machine: M,
    /// Waiting calls by lane, in order of arrival.
    waiting: Vec<VecDeque<Waiting<M::Request>>>,
    next_number: u64,
}

struct Waiting<R> {
    number: u64,
    request: R,
    call: AsyncCall,
    registration: Option<Registration>,
}

/// A removed call, to be completed when no lock is held.
struct Ended {
    call: AsyncCall,
    registration: Option<Registration>,
    result: Result<Outputs>,
}

impl Ended {
    fn complete(self) {
        // The step may end when the call completes, so the registration with it is dropped first.
        drop(self.registration);
        self.call.complete(self.result);
    }
}

impl<M: Machine> Gate<M> {
    /// A gate without waiting calls.
    pub(crate) fn new(machine: M) -> Arc<Gate<M>> {
        let waiting = M::LANES.iter().map(|_| VecDeque::new()).collect();
        let state = Mutex::new(State { machine, waiting, next_number: 0 });
        Arc::new_cyclic(|this| Gate { this: this.clone(), state })
    }

    /// Serves a call, now or after a state change.
    pub(crate) fn submit(&self, lane: usize, request: M::Request, call: AsyncCall) {
        let step = call.step.clone();
        let mut ended = Vec::new();
        let number = {
            let mut state = self.state.lock();
            let number = state.next_number;
            state.next_number += 1;
            let waiting = Waiting { number, request, call, registration: None };
            state.waiting[lane].push_back(waiting);
            state.flush(&mut ended);
            state.position(lane, number).map(|_| number)
        };
        if let Some(number) = number {
            self.watch(lane, number, &step);
        }
        drop(step);
        ended.into_iter().for_each(Ended::complete);
    }

    /// Withdraws the waiting call when its step is cancelled.
    fn watch(&self, lane: usize, number: u64, step: &StepContext) {
        // Weak: callbacks are dropped under the cancellation's lock, where a gate must not be
        // dropped.
        let gate = self.this.clone();
        let registration = step.cancellation().on_cancel(move |cause| {
            if let Some(gate) = gate.upgrade() {
                gate.cancel(lane, number, cause);
            }
        });
        let unused = {
            let mut state = self.state.lock();
            match state.position(lane, number) {
                Some(i) => state.waiting[lane][i].registration.replace(registration),
                None => Some(registration),
            }
        };
        drop(unused);
    }

    fn cancel(&self, lane: usize, number: u64, cause: &Error) {
        let mut ended = Vec::new();
        {
            let mut state = self.state.lock();
            let Some(i) = state.position(lane, number) else { return };
            let Some(waiting) = state.waiting[lane].remove(i) else { return };
            let _ = state.machine.withdraw(waiting.request);
            let Waiting { call, registration, .. } = waiting;
            ended.push(Ended { call, registration, result: Err(cause.clone()) });
            state.flush(&mut ended);
        }
        ended.into_iter().for_each(Ended::complete);
    }

    /// Changes the state, then retries the waiting calls.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut M) -> R) -> R {
        let mut ended = Vec::new();
        let result = {
            let mut state = self.state.lock();
            let result = change(&mut state.machine);
            state.flush(&mut ended);
            result
        };
        ended.into_iter().for_each(Ended::complete);
        result
    }

    /// As [`Gate::change`], but withdraws the calls that wait in `lane` and completes them with the
    /// resulting errors.
    pub(crate) fn change_and_withdraw<R>(
        &self,
        lane: usize,
        change: impl FnOnce(&mut M) -> R,
    ) -> R {
        let mut ended = Vec::new();
        let result = {
            let mut state = self.state.lock();
            state.withdraw_lane(lane, &mut ended);
            let result = change(&mut state.machine);
            state.flush(&mut ended);
            result
        };
        ended.into_iter().for_each(Ended::complete);
        result
    }

    /// Reads the state.
    pub(crate) fn inspect<R>(&self, inspect: impl FnOnce(&M) -> R) -> R {
        inspect(&self.state.lock().machine)
    }
}

impl<M: Machine> Drop for Gate<M> {
    /// Fails the waiting calls, whose state is gone.
    fn drop(&mut self) {
        let mut ended = Vec::new();
        let state = self.state.get_mut();
        for lane in 0..state.waiting.len() {
            state.withdraw_lane(lane, &mut ended);
        }
        ended.into_iter().for_each(Ended::complete);
    }
}

impl<M: Machine> State<M> {
    fn position(&self, lane: usize, number: u64) -> Option<usize> {
        self.waiting[lane].binary_search_by_key(&number, |waiting| waiting.number).ok()
    }

    fn withdraw_lane(&mut self, lane: usize, ended: &mut Vec<Ended>) {
        for Waiting { request, call, registration, .. } in self.waiting[lane].drain(..) {
            let result = Err(self.machine.withdraw(request));
            ended.push(Ended { call, registration, result });
        }
    }

    /// Retries waiting calls until none makes progress.
    fn flush(&mut self, ended: &mut Vec<Ended>) {
        let mut is_moving = true;
        while is_moving {
            is_moving = false;
            for (lane, kind) in M::LANES.iter().enumerate() {
                is_moving |= self.flush_lane(lane, *kind, ended);
            }
        }
    }

    fn flush_lane(&mut self, lane: usize, kind: Lane, ended: &mut Vec<Ended>) -> bool {
        let mut is_moving = false;
        let mut i = 0;
        while let Some(waiting) = self.waiting[lane].get_mut(i) {
            let step = &waiting.call.step;
            // The cancellation of the step is about to withdraw its calls; an element given to them
            // would be lost.
            let progress = if step.cancellation().is_cancelled() {
                Progress::Waits
            } else {
                self.machine.advance(&mut waiting.request, step)
            };
            match progress {
                Progress::Waits if kind == Lane::Ordered => break,
                Progress::Waits => i += 1,
                Progress::Partly => {
                    is_moving = true;
                    if kind == Lane::Ordered {
                        break;
                    }
                    i += 1;
                }
                Progress::Done(result) => {
                    is_moving = true;
                    if let Some(Waiting { call, registration, .. }) = self.waiting[lane].remove(i) {
                        ended.push(Ended { call, registration, result });
                    }
                }
            }
        }
        is_moving
    }
}

/// An asynchronous kernel; `answer` returns how a call is completed.
pub(crate) fn kernel<M, S, F>(op: &str, answer: F) -> Result<AnyKernel>
where
    M: Machine,
    S: Resource + Gated<Machine = M>,
    F: Fn(&mut AsyncCall) -> Result<Answer<S>> + Send + Sync + 'static,
{
    Ok(AnyKernel::Async(Arc::new(Access { op: op.to_owned(), answer })))
}

/// Takes the tensors of a call from input `first` on.
pub(crate) fn tensors(call: &mut AsyncCall, first: usize) -> Result<Components> {
    let tensor = |value: &mut Value| match std::mem::take(value) {
        Value::Tensor(tensor) => Ok(tensor),
        _ => bail!(Internal, "an input is not a tensor"),
    };
    call.inputs.iter_mut().skip(first).map(tensor).collect()
}

/// A resource with a gate.
pub(crate) trait Gated {
    /// The machine of its gate.
    type Machine: Machine;
    /// Its gate.
    fn gate(&self) -> &Gate<Self::Machine>;
}

/// How a call is completed.
pub(crate) enum Answer<S: Gated> {
    /// Immediately, with these outputs.
    Now(Outputs),
    /// After the gate has served a request in this lane.
    After(Arc<S>, usize, <S::Machine as Machine>::Request),
}

struct Access<F> {
    op: String,
    answer: F,
}

impl<M, S, F> AsyncKernel for Access<F>
where
    M: Machine,
    S: Resource + Gated<Machine = M>,
    F: Fn(&mut AsyncCall) -> Result<Answer<S>> + Send + Sync,
{
    fn start(&self, mut call: AsyncCall) {
        let (state, lane, request) = match (self.answer)(&mut call) {
            Ok(Answer::After(state, lane, request)) => (state, lane, request),
            Ok(Answer::Now(outputs)) => return call.complete(Ok(outputs)),
            Err(e) => return call.complete(Err(e)),
        };
        let step = call.step.clone();
        let mut call = Some(call);
        let result = step.resources().update(&*state, &self.op, step.step_id(), || {
            if let Some(call) = call.take() {
                state.gate().submit(lane, request, call);
            }
            Ok(())
        });
        if let (Err(e), Some(call)) = (result, call) {
            call.complete(Err(e));
        }
    }
}

/// Changes the state of a resource from a synchronous kernel.
pub(crate) fn update<R>(
    ctx: &KernelContext<'_>,
    state: &dyn Resource,
    change: impl FnOnce() -> R,
) -> Result<R> {
    let (op, step) = (&ctx.node().op.name, ctx.step().step_id());
    ctx.resources().update(state, op, step, || Ok(change()))
}
