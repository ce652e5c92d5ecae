//! Runs single nodes: inputs, kernels and outputs, in either form of an executable.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;
use thalweg_kernel::{
    AsyncCall, Kernel, KernelContext, Outputs, Rendezvous, RendezvousKey, Value, VariableBuffer,
};
use thalweg_plan::{fetches_alias, forwarded_inputs};
use thalweg_tensor::{Error, Result, bail, ensure, err};

use super::iteration::{Iteration, Ready};
use super::{Runner, STARTING, Starting, StepState};
use crate::execute::executable::{ExecNode, Input, Kind, Takes};
use crate::execute::transfers::Transfer;
use crate::execute::wait_list::{PendingKernel, WaitGuard};
use crate::functions::calls::{CallSite, Caller};

/// In a loop, inexpensive kernels are timed in one iteration out of this many.
const SAMPLE_ITERATIONS: u64 = 64;

/// The outcome of running a node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeOutcome {
    /// The node has set its outputs.
    Completed,
    /// The node failed, or its kernel completes later.
    FailedOrPending,
}

impl StepState {
    /// Runs a node of a graph without branches and loops.
    #[inline(always)]
    pub(super) fn process(
        self: &Arc<Self>,
        index: u32,
        start: Option<Duration>,
        runner: &mut Runner,
    ) {
        let ready = Ready::new(&self.outside, index, false);
        if self.run_node(&self.outside, ready, start, runner) == NodeOutcome::Completed {
            let node = &self.exec.nodes[index as usize];
            if start.is_some() {
                self.record(index, start, self.outputs_of(&self.outside, node));
            }
            self.for_each_ready(node, |ready| self.schedule(ready, runner));
        }
    }

    /// Runs a live node that is no control flow op.
    #[inline(always)]
    pub(super) fn run_node(
        self: &Arc<Self>,
        it: &Iteration,
        ready: Ready,
        start: Option<Duration>,
        runner: &mut Runner,
    ) -> NodeOutcome {
        let index = ready.node();
        let node = &self.exec.nodes[index as usize];
        let result = match &node.kind {
            Kind::NoOp => Ok(()),
            // Not by `map`: that becomes a call, at a fifth of the node's time.
            Kind::Identity => match self.only_input(it, node) {
                Ok(value) => {
                    self.put(it, node, 0, value);
                    Ok(())
                }
                Err(e) => Err(e),
            },
            Kind::Constant(i) => {
                let constant = self.exec.constants[*i as usize].clone();
                self.put(it, node, 0, Value::Tensor(constant));
                Ok(())
            }
            Kind::Feed(i) => {
                // SAFETY: only the one node of this feed reads the slot, once per step.
                let value = unsafe { std::mem::take(&mut *self.feeds[*i as usize].0.get()) };
                self.put(it, node, 0, value);
                Ok(())
            }
            Kind::Fetch(i) => self.only_input(it, node).and_then(|value| self.fetched(*i, value)),
            Kind::Kernel(kernel) => {
                if !self.run_kernel(it, index, node, &**kernel, &mut runner.inputs) {
                    return NodeOutcome::FailedOrPending;
                }
                Ok(())
            }
            Kind::Send(key) => {
                self.only_input(it, node).and_then(|value| self.send(it, key, value))
            }
            Kind::Async(_) | Kind::Receive(_) | Kind::Call(_) => {
                self.start_node(ready, start, runner);
                return NodeOutcome::FailedOrPending;
            }
            _ => Err(err!(Internal, "this node belongs to a loop or branch")),
        };
        match result {
            Ok(()) => NodeOutcome::Completed,
            Err(e) => {
                self.fail_at(index, e);
                NodeOutcome::FailedOrPending
            }
        }
    }

    /// Sets a fetch.
    #[inline]
    pub(super) fn fetched(&self, i: u32, value: Value) -> Result<()> {
        if let Some(flag) = self.is_fetched.get(i as usize) {
            ensure!(
                !flag.swap(true, Ordering::Relaxed),
                Internal,
                "Retval[{i}] has already been set."
            );
        }
        // SAFETY: only the one node of this fetch writes the slot, and only once, as just checked
        // where it could run more often; the caller reads it at the end.
        unsafe { *self.fetches[i as usize].0.get() = value };
        Ok(())
    }

    /// The value in the form and memory that its reader wants: a snapshot or the buffer of what a
    /// reference refers to, and a copy where the op reads other memory.
    #[cold]
    pub(super) fn prepare(&self, input: Input, value: &mut Value) -> Result<()> {
        // The host copies from the buffer when it reads it.
        let keeps_alias = input.takes == Takes::Alias && input.transfer != Transfer::ToDevice;
        match value {
            Value::Ref(_) | Value::Alias(_) if input.takes == Takes::Ref => {}
            Value::Ref(variable) if keeps_alias => *value = Value::Alias(variable.buffer()?),
            Value::Ref(variable) => *value = Value::Tensor(variable.read()?),
            Value::Alias(buffer) if !keeps_alias => *value = Value::Tensor(buffer.snapshot()),
            _ => {}
        }
        if let Value::Tensor(tensor) = value {
            match input.transfer {
                Transfer::None => {}
                Transfer::ToHost => *tensor = self.exec.device.download(tensor)?,
                Transfer::ToDevice => *tensor = self.exec.device.upload(tensor)?,
            }
        }
        Ok(())
    }

    /// Prepares all inputs of a kernel. `forwarded` gets, for each input that the op forwards, the buffer
    /// of the variable if the input has one: the kernel forwards a snapshot, the executor the buffer.
    #[cold]
    fn prepare_all(
        &self,
        index: u32,
        inputs: &mut [Value],
        forwarded: &mut Vec<Option<Arc<VariableBuffer>>>,
    ) -> Result<()> {
        let count = forwarded_inputs(&self.exec.graph.nodes()[index as usize]);
        let node = &self.exec.nodes[index as usize];
        for (i, (&input, value)) in self.exec.inputs_of(node).iter().zip(inputs).enumerate() {
            if i < count {
                let is_shared = input.takes == Takes::Tensor && input.transfer == Transfer::None;
                forwarded.push(match value {
                    Value::Ref(variable) if is_shared => Some(variable.buffer()?),
                    Value::Alias(buffer) if is_shared => Some(buffer.clone()),
                    _ => None,
                });
            }
            self.prepare(input, value)?;
        }
        Ok(())
    }

    /// The value of a node's first input.
    #[inline(always)]
    pub(super) fn only_input(&self, it: &Iteration, node: &ExecNode) -> Result<Value> {
        let input = self.exec.inputs_of(node)[0];
        let mut value = it.take(input);
        if node.prepares() {
            self.prepare(input, &mut value)?;
        }
        Ok(value)
    }

    /// All inputs of a node.
    fn owned_inputs(&self, it: &Iteration, node: &ExecNode) -> Result<SmallVec<[Value; 4]>> {
        let inputs = self.exec.inputs_of(node);
        let mut values: SmallVec<[Value; 4]> = inputs.iter().map(|&input| it.take(input)).collect();
        if node.prepares() {
            for (&input, value) in inputs.iter().zip(&mut values) {
                self.prepare(input, value)?;
            }
        }
        Ok(values)
    }

    /// The slots of a node's outputs; the caller owns the node and has not released its successors.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "until they are released, the slots are the owner's")]
    pub(super) fn outputs_of<'a>(&self, it: &'a Iteration, node: &ExecNode) -> &'a mut [Value] {
        let first = node.first_slot as usize;
        let slots = &it.values[first..first + node.num_outputs() as usize];
        // SAFETY: a slot is a transparent cell over a value; only this node writes these, and their
        // readers wait to be counted down, so no other thread reads them.
        unsafe { std::slice::from_raw_parts_mut(slots.as_ptr().cast_mut().cast(), slots.len()) }
    }

    /// Stores an output for its readers.
    #[inline(always)]
    pub(super) fn put(&self, it: &Iteration, node: &ExecNode, output: u32, value: Value) {
        // No reader would move it out, and it would outlive the step.
        if node.has_unread() && self.exec.is_unread[(node.first_output + output) as usize] {
            return;
        }
        let slot = (node.first_slot + output) as usize;
        // SAFETY: only this node writes the slot, and its readers wait to be counted down.
        unsafe { (*it.values[slot].0.get()).set(value) };
    }

    /// Decrements the counts of a node's successors and schedules those that are ready.
    #[inline]
    fn for_each_ready(&self, node: &ExecNode, mut ready: impl FnMut(u32)) {
        let (start, end) = node.successors;
        for &to in &self.exec.successors[start as usize..end as usize] {
            let node = to.node();
            // Release: the thread that runs the node sees this thread's writes. Acquire: the last
            // thread sees those of the others.
            if to.is_only()
                || self.outside.pending[node as usize].fetch_sub(1, Ordering::AcqRel) == 1
            {
                ready(node);
            }
        }
    }

    pub(super) fn fail_at(&self, index: u32, error: Error) {
        self.shared.fail(error.at_node(&self.exec.graph.nodes()[index as usize].name));
    }

    /// Runs a synchronous kernel; false if it failed.
    #[inline(always)]
    fn run_kernel(
        &self,
        it: &Iteration,
        index: u32,
        node: &ExecNode,
        kernel: &dyn Kernel,
        inputs: &mut Vec<Value>,
    ) -> bool {
        inputs.extend(self.exec.inputs_of(node).iter().map(|&input| it.take(input)));
        let outputs = self.outputs_of(it, node);
        let measured = (self.samples_cost(it) || !self.is_cheap(index)).then(|| self.now());
        let mut result = Ok(());
        let mut forwarded = Vec::new();
        if node.prepares() {
            result = self.prepare_all(index, inputs, &mut forwarded);
        }
        if result.is_ok() {
            let graph_node = &self.exec.graph.nodes()[index as usize];
            let dtypes = self.exec.output_dtypes_of(node);
            let mut ctx = KernelContext::new(graph_node, dtypes, &self.context, inputs, outputs);
            // A panic is a bug of ours, but not a reason to end the process.
            result = catch_unwind(AssertUnwindSafe(|| kernel.compute(&mut ctx)))
                .unwrap_or_else(|_| Err(err!(Internal, "the kernel panicked; this is a bug")));
        }
        if let Some(start) = measured {
            let took =
                (self.now().saturating_sub(start)).as_nanos().min(u128::from(u32::MAX)) as u32;
            node.learn_cost(took);
        }
        inputs.clear();
        if !forwarded.is_empty() && result.is_ok() {
            forward(forwarded, self.outputs_of(it, node));
        }
        for (i, value) in self.outputs_of(it, node).iter_mut().enumerate() {
            if matches!(value, Value::Empty) && result.is_ok() {
                result = Err(err!(Internal, "the kernel did not set output {i}"));
            }
            if node.has_unread() && self.exec.is_unread[node.first_output as usize + i] {
                *value = Value::Empty;
            }
        }
        if let Err(e) = result {
            self.fail_at(index, e);
            return false;
        }
        true
    }

    /// Whether inexpensive kernels are timed in this step or iteration too.
    #[inline]
    fn samples_cost(&self, it: &Iteration) -> bool {
        self.samples_cost && it.number.load(Ordering::Relaxed).is_multiple_of(SAMPLE_ITERATIONS)
    }

    /// Starts an asynchronous node. If it completes at once on this thread, this thread runs the nodes
    /// that it makes ready.
    pub(super) fn start_node(
        self: &Arc<Self>,
        ready: Ready,
        start: Option<Duration>,
        runner: &mut Runner,
    ) {
        let node = &self.exec.nodes[ready.node() as usize];
        // SAFETY: a `Ready` is counted by its iteration, which therefore is alive.
        let it = unsafe { &*ready.iteration };
        let (previous, base) =
            STARTING.with(|s| (s.state.replace(Arc::as_ptr(self)), s.ready.borrow().len()));
        // A panic drops the completion, which ends the node with an error.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let pending = Pending::new(self, ready, start);
            match &node.kind {
                Kind::Async(kernel) => match self.owned_inputs(it, node) {
                    Ok(inputs) => {
                        let pending = pending.listed();
                        let done = Box::new(move |result| pending.finish(result));
                        let outputs = node.num_outputs() as usize;
                        kernel.start(AsyncCall::new(inputs, self.context.clone(), outputs, done));
                    }
                    Err(e) => pending.finish(Err(e)),
                },
                Kind::Receive(key) => self.receive(it, key, pending),
                Kind::Call(site) => self.call(it, node, site, pending),
                _ => pending.finish(Err(err!(Internal, "this node does not complete later"))),
            }
        }));
        STARTING.with(|s| s.state.set(previous));
        let next = || {
            STARTING.with(|s| {
                let mut ready = s.ready.borrow_mut();
                if ready.len() > base { ready.pop() } else { None }
            })
        };
        while let Some(ready) = next() {
            if self.exec.framed.is_some() {
                self.schedule_framed(ready, runner);
            } else {
                self.schedule(ready.node(), runner);
            }
        }
    }

    fn completed(
        self: &Arc<Self>,
        ready: Ready,
        start: Option<Duration>,
        outputs: Outputs,
    ) -> Result<()> {
        let node = &self.exec.nodes[ready.node() as usize];
        self.check_outputs(ready.node(), &outputs)?;
        self.record(ready.node(), start, &outputs);
        let is_starting = |s: &Starting| ptr::eq(s.state.get(), Arc::as_ptr(self));
        let is_starting = STARTING.try_with(is_starting).unwrap_or(false);
        if self.exec.framed.is_some() {
            let mut all = Vec::new();
            self.release_framed(ready, outputs, &mut all);
            self.hand_over(is_starting, &all);
            return Ok(());
        }
        for (i, value) in outputs.into_iter().enumerate() {
            self.put(&self.outside, node, i as u32, value);
        }
        let mut all: SmallVec<[Ready; 16]> = SmallVec::new();
        self.for_each_ready(node, |node| all.push(Ready::new(&self.outside, node, false)));
        self.hand_over(is_starting, &all);
        Ok(())
    }

    /// Keeps ready nodes for this thread if it is starting a node of this state; else offers them,
    /// because the completing thread may be any, at any stack depth.
    fn hand_over(self: &Arc<Self>, is_starting: bool, all: &[Ready]) {
        if is_starting {
            STARTING.with(|s| s.ready.borrow_mut().extend_from_slice(all));
        } else {
            self.offer(all);
        }
    }

    /// Checks the outputs of an asynchronous kernel or a function: number, dtypes and references.
    fn check_outputs(&self, index: u32, outputs: &Outputs) -> Result<()> {
        let declared = &self.exec.graph.nodes()[index as usize].outputs;
        let kind = &self.exec.nodes[index as usize].kind;
        ensure!(
            outputs.len() == declared.len(),
            Internal,
            "{} outputs came, {} were expected",
            outputs.len(),
            declared.len()
        );
        for (i, (value, declared)) in outputs.iter().zip(declared).enumerate() {
            let given = match value {
                Value::Tensor(tensor) => tensor.dtype(),
                Value::Ref(variable) if declared.is_ref => variable.dtype(),
                // A fetch of another device's variable.
                Value::Alias(_) if matches!(kind, Kind::Receive(_)) => continue,
                Value::Ref(_) | Value::Alias(_) => {
                    bail!(Internal, "output {i} is a reference, not a tensor")
                }
                Value::Empty => bail!(Internal, "the kernel did not set output {i}"),
                Value::Dead => continue,
            };
            ensure!(
                given == declared.dtype,
                Internal,
                "Output {i} of type {given} does not match declared output type {}",
                declared.dtype
            );
        }
        Ok(())
    }

    fn rendezvous(&self) -> Result<&Arc<dyn Rendezvous>> {
        self.shared.rendezvous.as_ref().ok_or_else(|| {
            err!(
                InvalidArgument,
                "a step on one device has no rendezvous: it cannot send or receive tensors"
            )
        })
    }

    pub(super) fn send(&self, it: &Iteration, key: &RendezvousKey, value: Value) -> Result<()> {
        self.rendezvous()?.send(&self.key_in(it, key), value)
    }

    fn receive(&self, it: &Iteration, key: &RendezvousKey, pending: Pending) {
        match self.rendezvous() {
            Ok(rendezvous) => rendezvous
                .receive(&self.key_in(it, key), Box::new(move |result| pending.received(result))),
            Err(e) => pending.finish(Err(e)),
        }
    }

    fn call(&self, it: &Iteration, node: &ExecNode, site: &CallSite, pending: Pending) {
        let caller = Caller { step: &self.context, trace: self.shared.trace.clone() };
        let done = Box::new(move |results| pending.finish(results));
        self.shared.core.call_site(site, self.owned_inputs(it, node), caller, done);
    }
}

/// An asynchronous node that has started. It counts as outstanding; dropping it without completion fails
/// the node.
struct Pending {
    state: Arc<StepState>,
    ready: Ready,
    start: Option<Duration>,
    is_finished: bool,
    /// Its entry among the session's pending kernels, if it is a kernel.
    wait: Option<WaitGuard<PendingKernel>>,
}

impl Pending {
    fn new(state: &Arc<StepState>, ready: Ready, start: Option<Duration>) -> Pending {
        state.shared.outstanding.add(1);
        Pending { state: state.clone(), ready, start, is_finished: false, wait: None }
    }

    /// Adds the node to the session's list of pending kernels.
    fn listed(mut self) -> Pending {
        let state = &self.state;
        self.wait = Some(state.shared.core.waits.add(PendingKernel {
            step: state.context.step_id().number,
            exec: state.exec.clone(),
            node: self.ready.node(),
            since: state.now(),
        }));
        self
    }

    /// Ends a `_Recv`. Only the readers of one that fetches an alias expect an alias.
    fn received(self, result: Result<Value>) {
        let node = &self.state.exec.graph.nodes()[self.ready.node() as usize];
        let outputs = result.and_then(|value| match value {
            Value::Alias(_) if !fetches_alias(node) => value.without_alias_on_host(),
            other => Ok(other),
        });
        let outputs = outputs.map(|value| smallvec::smallvec![value]);
        self.finish(outputs);
    }

    fn finish(mut self, result: Result<Outputs>) {
        self.is_finished = true;
        self.wait = None;
        let (state, ready) = (&self.state, self.ready);
        let result = result.and_then(|outputs| state.completed(ready, self.start, outputs));
        if let Err(e) = result {
            state.fail_at(ready.node(), e);
        }
        state.shared.release();
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let what = if std::thread::panicking() { "panicked" } else { "ended without completing" };
        self.state.fail_at(self.ready.node(), err!(Internal, "the kernel {what}; this is a bug"));
        self.state.shared.release();
    }
}

/// Replaces the outputs of a kernel by the buffers that its inputs were snapshots of.
#[cold]
fn forward(buffers: Vec<Option<Arc<VariableBuffer>>>, outputs: &mut [Value]) {
    for (buffer, output) in buffers.into_iter().zip(outputs) {
        if let Some(buffer) = buffer {
            *output = Value::Alias(buffer);
        }
    }
}
