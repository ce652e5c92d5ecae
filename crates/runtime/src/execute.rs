//! Running one step of an executable.
//!
//! Every output has a slot. A node writes the slots of its outputs and then counts its successors
//! down; whoever brings a node's count to zero owns it and runs it. Inputs are copied out of their
//! slots (tensors share memory, so that is cheap), the last reader takes the value with it: then
//! its buffer is unique and may be written over. Ready nodes lie on the stack of the thread that
//! made them ready; dear ones beyond the first go to the step's `overflow`, where the pool's threads
//! and the waiting caller help themselves. No lock is taken and nothing is allocated per node.
//!
//! An error cancels the step with itself as the cause, so the first one wins; what is ready then is
//! dropped. How a step ends, and who waits for that, is `step`'s affair.
//!
//! # Who runs what is in `overflow`
//!
//! Up to `inter_threads` threads run nodes of a partition at once. `active` counts them, `queued`
//! counts jobs in the pool that will ask to become one. A thread that offers a node writes
//! `overflow_len`, then wakes the waiting caller, or queues a job if `active` and `queued` leave room
//! for one. A thread that leaves takes itself off `active`, a job that begins takes itself off
//! `queued`, and then each looks at `overflow_len`. All of this is sequentially consistent, so if the
//! offer counted on somebody who was leaving, that one sees the node and comes back (or finds that
//! others have taken its place, to whom the same applies). No node is forgotten.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use thalweg_kernel::{
    AsyncCall, Cancellation, Kernel, KernelContext, Outputs, Rendezvous, RendezvousKey,
    StepContext, Value,
};
use thalweg_tensor::{Error, FlushDenormals, Result, Tensor, bail, ensure, err};

use crate::calls::{CallSite, Caller};
use crate::executable::{ExecNode, Executable, Input, Kind, SOLE, Transfer, at_node};
use crate::pool::Work;
use crate::rendezvous::LocalRendezvous;
use crate::step::StepShared;

/// Kernels below this run on the thread that made them ready.
const CHEAP_NS: u32 = 3_000;

/// A value that its producer writes before it counts its successors down, and that readers only
/// look at afterwards. Only the last reader changes it.
#[repr(transparent)]
struct Slot(UnsafeCell<Value>);

// SAFETY: the successors' counts order the one write before all reads, and the count of readers
// orders all reads before the last one's change.
unsafe impl Sync for Slot {}

/// One partition in one step.
pub(crate) struct StepState {
    pub(crate) exec: Arc<Executable>,
    values: Box<[Slot]>,
    /// For outputs that several inputs read, how many have yet to.
    readers: Box<[AtomicU32]>,
    pending: Box<[AtomicU32]>,
    feeds: Box<[Slot]>,
    fetches: Box<[Slot]>,
    /// Nodes for whoever has time.
    overflow: Mutex<Vec<u32>>,
    overflow_len: AtomicUsize,
    /// Threads that run nodes of this partition.
    active: AtomicUsize,
    /// Jobs in the pool that have not begun.
    queued: AtomicUsize,
    /// Most threads that may be active.
    threads_max: usize,
    samples_cost: bool,
    pub(crate) context: Arc<StepContext>,
    pub(crate) shared: Arc<StepShared>,
}

fn empty_slots(n: usize) -> Box<[Slot]> {
    (0..n).map(|_| Slot(UnsafeCell::new(Value::Empty))).collect()
}

/// What a thread needs to run nodes, kept between steps.
#[derive(Default)]
struct Runner {
    stack: Vec<u32>,
    inputs: Vec<Value>,
}

/// Where a kernel that completes while it is being started leaves what that makes ready.
#[derive(Default)]
struct Starting {
    /// The state whose node this thread is starting, if any.
    state: Cell<*const StepState>,
    ready: RefCell<Vec<u32>>,
}

thread_local! {
    static RUNNER: RefCell<Runner> = RefCell::default();
    static STARTING: Starting = const {
        Starting { state: Cell::new(ptr::null()), ready: RefCell::new(Vec::new()) }
    };
}

/// Runs `body` with this thread's runner, or a new one if that is in use further up the stack.
fn with_runner<R>(body: impl FnOnce(&mut Runner) -> R) -> R {
    let _flush = FlushDenormals::enter();
    let mut runner = RUNNER
        .with(|r| r.try_borrow_mut().map(|mut r| std::mem::take(&mut *r)).unwrap_or_default());
    let result = body(&mut runner);
    RUNNER.with(|r| {
        if let Ok(mut kept) = r.try_borrow_mut() {
            *kept = runner;
        }
    });
    result
}

impl StepState {
    /// A state for a step of `exec`.
    pub(crate) fn new(
        exec: &Arc<Executable>,
        context: Arc<StepContext>,
        shared: Arc<StepShared>,
    ) -> StepState {
        StepState {
            exec: exec.clone(),
            values: empty_slots(exec.output_dtypes.len()),
            readers: exec.readers.iter().map(|&n| AtomicU32::new(n)).collect(),
            pending: exec.pending.iter().map(|&n| AtomicU32::new(n)).collect(),
            feeds: empty_slots(exec.feeds.len()),
            fetches: empty_slots(exec.num_fetches),
            overflow: Mutex::default(),
            overflow_len: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            threads_max: shared.core.options.inter_threads,
            samples_cost: exec.begins_sampled_step(),
            context,
            shared,
        }
    }

    /// Makes the state of a step that ended well good for another. Nobody else may hold the state,
    /// so no thread is active and no job queued; all values were taken by their readers.
    pub(crate) fn reset(&mut self, step_id: u64) -> Option<()> {
        let context = Arc::get_mut(&mut self.context)?;
        let shared = Arc::get_mut(&mut self.shared)?;
        context.step_id = step_id;
        // `context` and `shared` hold the flag; a deadline that is just passing, or a kernel that
        // has not let go, may too, and must not end the next step.
        if !context.cancellation.reset(2) {
            context.cancellation = Cancellation::default();
        }
        shared.reset(context.cancellation.clone());
        self.rewind();
        Some(())
    }

    /// Makes the state good for another run within the same step; as for [`StepState::reset`], the
    /// last one ended well and nobody else holds the state.
    pub(crate) fn rewind(&mut self) {
        self.samples_cost = self.exec.begins_sampled_step();
        for (pending, &initial) in self.pending.iter_mut().zip(&self.exec.pending) {
            *pending.get_mut() = initial;
        }
        for (readers, &initial) in self.readers.iter_mut().zip(&self.exec.readers) {
            *readers.get_mut() = initial;
        }
    }

    /// Sets what `_Recv` of the client, or `_Arg`, gives.
    pub(crate) fn set_feed(&mut self, i: usize, tensor: Tensor) {
        *self.feeds[i].0.get_mut() = Value::Tensor(tensor);
    }

    /// Number of tensors to fetch.
    pub(crate) fn num_fetches(&self) -> usize {
        self.fetches.len()
    }

    /// Takes fetched tensor `i`; the step must be over.
    pub(crate) fn take_fetch(&self, i: usize) -> Result<Tensor> {
        // SAFETY: the step is over, so no thread runs nodes of it any more.
        match std::mem::take(unsafe { &mut *self.fetches[i].0.get() }) {
            Value::Tensor(tensor) => Ok(tensor),
            Value::Dead => {
                bail!(InvalidArgument, "fetch {i} is the result of a branch not taken")
            }
            _ => bail!(Internal, "fetch {i} was not produced"),
        }
    }

    /// Runs the step's partitions, this thread working too; returns when all is over.
    pub(crate) fn run_to_end(states: &[Arc<StepState>]) -> Result<()> {
        let (own, shared) = (&states[0], &states[0].shared);
        shared.outstanding.fetch_add(1, Ordering::Relaxed);
        own.active.fetch_add(1, Ordering::Relaxed);
        for other in &states[1..] {
            other.offer(&other.exec.roots);
        }
        with_runner(|runner| {
            runner.stack.extend_from_slice(&own.exec.roots);
            own.run_nodes(runner);
        });
        own.active.fetch_sub(1, Ordering::SeqCst);
        if !shared.release() {
            Self::wait(states);
        }
        shared.cancellation.check()
    }

    /// Starts a function call; `done` is called at its end, perhaps before this returns.
    pub(crate) fn start(self: &Arc<Self>, done: Box<dyn FnOnce() + Send>) {
        self.shared.on_done(done);
        self.shared.outstanding.fetch_add(1, Ordering::Relaxed);
        self.active.fetch_add(1, Ordering::Relaxed);
        with_runner(|runner| {
            runner.stack.extend_from_slice(&self.exec.roots);
            self.run_nodes(runner);
            self.shared.release();
            if self.leave() {
                self.assist(runner);
            }
        });
    }

    fn wait(states: &[Arc<StepState>]) {
        loop {
            for state in states {
                if state.has_offers() && state.try_enter() {
                    with_runner(|runner| state.assist(runner));
                }
            }
            let can_help = || states.iter().any(|s| s.has_offers() && s.has_room());
            if states[0].shared.wait(can_help) {
                return;
            }
        }
    }

    fn has_offers(&self) -> bool {
        self.overflow_len.load(Ordering::SeqCst) > 0
    }

    fn has_room(&self) -> bool {
        self.active.load(Ordering::SeqCst) < self.threads_max
    }

    /// Makes this thread one of those that run nodes, if there may be more.
    fn try_enter(&self) -> bool {
        let one_more = |n: usize| (n < self.threads_max).then_some(n + 1);
        self.active.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_ok()
    }

    /// Takes this thread off those that run nodes; true if it is one again, because there is more.
    fn leave(&self) -> bool {
        self.active.fetch_sub(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.has_offers() && self.try_enter()
    }

    /// Makes nodes available to whoever has time. The caller counts as outstanding.
    pub(crate) fn offer(self: &Arc<Self>, nodes: &[u32]) {
        if nodes.is_empty() {
            return;
        }
        self.shared.outstanding.fetch_add(nodes.len(), Ordering::Relaxed);
        let mut overflow = self.overflow.lock();
        overflow.extend_from_slice(nodes);
        self.overflow_len.store(overflow.len(), Ordering::SeqCst);
        drop(overflow);
        fence(Ordering::SeqCst);
        let mut wanted = nodes.len();
        if self.shared.wake_waiter() {
            wanted -= 1;
        }
        while wanted > 0
            && self.active.load(Ordering::SeqCst) + self.queued.load(Ordering::SeqCst)
                < self.threads_max
        {
            self.queued.fetch_add(1, Ordering::SeqCst);
            self.shared.pool().push(self.clone());
            wanted -= 1;
        }
    }

    fn take_offered(&self) -> Option<u32> {
        if self.overflow_len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut overflow = self.overflow.lock();
        let node = overflow.pop();
        self.overflow_len.store(overflow.len(), Ordering::SeqCst);
        node
    }

    /// Runs what was offered, and what that makes ready, until there is no more. This thread has
    /// entered, and leaves here.
    fn assist(self: &Arc<Self>, runner: &mut Runner) {
        loop {
            // The node's place in `outstanding` becomes this thread's.
            while let Some(node) = self.take_offered() {
                runner.stack.push(node);
                self.run_nodes(runner);
                self.shared.release();
            }
            if !self.leave() {
                return;
            }
        }
    }

    fn run_nodes(self: &Arc<Self>, runner: &mut Runner) {
        loop {
            while let Some(node) = runner.stack.pop() {
                if self.shared.cancellation.is_cancelled() {
                    runner.stack.clear();
                    break;
                }
                self.process(node, runner);
            }
            match self.take_offered() {
                Some(node) => {
                    runner.stack.push(node);
                    // This thread counts already; the node's own place is given up.
                    self.shared.outstanding.fetch_sub(1, Ordering::AcqRel);
                }
                None => return,
            }
        }
    }

    fn process(self: &Arc<Self>, index: u32, runner: &mut Runner) {
        let node = &self.exec.nodes[index as usize];
        let start = self.shared.trace.is_some().then(|| self.now());
        match &node.kind {
            Kind::NoOp => {}
            Kind::Identity => match self.only_input(node) {
                Ok(value) => self.put(node, 0, value),
                Err(e) => return self.fail_at(index, e),
            },
            Kind::Constant(i) => {
                self.put(node, 0, Value::Tensor(self.exec.constants[*i as usize].clone()));
            }
            Kind::Feed(i) => {
                // SAFETY: only the one node of this feed reads the slot, once per step.
                let value = unsafe { std::mem::take(&mut *self.feeds[*i as usize].0.get()) };
                self.put(node, 0, value);
            }
            Kind::Fetch(i) => match self.only_input(node) {
                // SAFETY: only the one node of this fetch writes the slot; the caller reads it at
                // the end.
                Ok(value) => unsafe { *self.fetches[*i as usize].0.get() = value },
                Err(e) => return self.fail_at(index, e),
            },
            Kind::Kernel(kernel) => {
                if !self.run_kernel(index, node, &**kernel, runner) {
                    return;
                }
            }
            Kind::Send(key) => {
                if let Err(e) = self.send(node, key) {
                    return self.fail_at(index, e);
                }
            }
            Kind::Async(_) | Kind::Receive(_) | Kind::Call(_) => {
                return self.start_node(index, node, start, runner);
            }
        }
        self.record(index, node, start);
        self.for_each_ready(node, |ready| self.schedule(ready, runner));
    }

    fn now(&self) -> Duration {
        self.context.environment.clock.monotonic()
    }

    /// Notes a node's time, if asked to; the caller owns it and has not released its successors.
    fn record(&self, index: u32, node: &ExecNode, start: Option<Duration>) {
        if let (Some(trace), Some(start)) = (&self.shared.trace, start) {
            trace.record(&self.exec, index, (start, self.now()), self.outputs_of(node));
        }
    }

    /// An input's value; the last reader takes it away, so that nobody else holds it.
    #[inline]
    fn take_input(&self, input: Input) -> Value {
        let slot = self.values[input.output as usize].0.get();
        if input.shared == SOLE {
            // SAFETY: the caller owns the only node that reads this slot, and it was written before
            // that node's count fell to zero.
            return unsafe { std::mem::take(&mut *slot) };
        }
        let readers = &self.readers[input.shared as usize];
        if readers.load(Ordering::Acquire) == 1 {
            // SAFETY: all others have counted themselves off, after they read: this one is alone.
            return unsafe { std::mem::take(&mut *slot) };
        }
        // SAFETY: the slot was written before the node's count fell to zero, and nobody changes
        // it while a reader that has not counted itself off is left: this one.
        let value = unsafe { (*slot).clone() };
        if readers.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: all readers have counted themselves off, so this one is alone.
            unsafe { *slot = Value::Empty };
        }
        value
    }

    /// The value in the form and memory that its reader wants: what a reference refers to where
    /// the op takes values, and a copy where the op reads other memory.
    #[cold]
    fn prepare(&self, input: Input, value: &mut Value) -> Result<()> {
        if let Value::Ref(variable) = value
            && !input.takes_ref
        {
            *value = Value::Tensor(variable.read()?);
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

    /// The value of a node's first input.
    #[inline]
    fn only_input(&self, node: &ExecNode) -> Result<Value> {
        let input = self.exec.inputs_of(node)[0];
        let mut value = self.take_input(input);
        if node.prepares {
            self.prepare(input, &mut value)?;
        }
        Ok(value)
    }

    /// All inputs of a node.
    fn owned_inputs(&self, node: &ExecNode) -> Result<SmallVec<[Value; 4]>> {
        let inputs = self.exec.inputs_of(node);
        let mut values: SmallVec<[Value; 4]> =
            inputs.iter().map(|&input| self.take_input(input)).collect();
        if node.prepares {
            for (&input, value) in inputs.iter().zip(&mut values) {
                self.prepare(input, value)?;
            }
        }
        Ok(values)
    }

    /// The slots of a node's outputs; the caller owns the node and has not released its successors.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "until they are released, the slots are the owner's")]
    fn outputs_of(&self, node: &ExecNode) -> &mut [Value] {
        let first = node.first_output as usize;
        let slots = &self.values[first..first + node.num_outputs as usize];
        // SAFETY: a slot is a transparent cell over a value; only this node writes these, and their
        // readers wait to be counted down, so nobody else looks at them.
        unsafe { std::slice::from_raw_parts_mut(slots.as_ptr().cast_mut().cast(), slots.len()) }
    }

    /// Leaves an output for those who read it.
    #[inline]
    fn put(&self, node: &ExecNode, output: u32, value: Value) {
        let slot = (node.first_output + output) as usize;
        // Nobody would take it out, and it would outlive the step.
        if node.has_unread && self.exec.is_unread[slot] {
            return;
        }
        // SAFETY: only this node writes the slot, and its readers wait to be counted down.
        unsafe { *self.values[slot].0.get() = value };
    }

    /// Counts a node's successors down and names those that have nothing left to wait for.
    #[inline]
    fn for_each_ready(&self, node: &ExecNode, mut ready: impl FnMut(u32)) {
        let (start, end) = node.successors;
        for &to in &self.exec.successors[start as usize..end as usize] {
            let node = to.node();
            // Released so that whoever runs the node sees what this one wrote; acquired so that
            // the last sees what the others wrote.
            if to.is_only() || self.pending[node as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
                ready(node);
            }
        }
    }

    fn schedule(self: &Arc<Self>, node: u32, runner: &mut Runner) {
        if runner.stack.is_empty() || self.threads_max <= 1 || self.is_cheap(node) {
            runner.stack.push(node);
        } else {
            self.offer(&[node]);
        }
    }

    fn is_cheap(&self, node: u32) -> bool {
        let node = &self.exec.nodes[node as usize];
        !matches!(node.kind, Kind::Kernel(_) | Kind::Call(_))
            || node.cost_ns.load(Ordering::Relaxed) < CHEAP_NS
    }

    fn fail_at(&self, index: u32, error: Error) {
        self.shared.fail(at_node(error, &self.exec.graph.nodes()[index as usize].name));
    }

    /// Runs a synchronous kernel; false if it failed.
    fn run_kernel(
        self: &Arc<Self>,
        index: u32,
        node: &ExecNode,
        kernel: &dyn Kernel,
        runner: &mut Runner,
    ) -> bool {
        let inputs = &mut runner.inputs;
        inputs.extend(self.exec.inputs_of(node).iter().map(|&input| self.take_input(input)));
        let outputs = self.outputs_of(node);
        let measured = (self.samples_cost || !self.is_cheap(index)).then(|| self.now());
        let mut result = Ok(());
        if node.prepares {
            let mut each = self.exec.inputs_of(node).iter().zip(&mut *inputs);
            result = each.try_for_each(|(&input, value)| self.prepare(input, value));
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
        for (i, value) in self.outputs_of(node).iter_mut().enumerate() {
            if matches!(value, Value::Empty) && result.is_ok() {
                result = Err(err!(Internal, "the kernel did not set output {i}"));
            }
            if node.has_unread && self.exec.is_unread[node.first_output as usize + i] {
                *value = Value::Empty;
            }
        }
        if let Err(e) = result {
            self.fail_at(index, e);
            return false;
        }
        true
    }

    /// Starts a node that may complete later, from any thread. If it completes at once, on this
    /// thread, what that makes ready is run here.
    fn start_node(
        self: &Arc<Self>,
        index: u32,
        node: &ExecNode,
        start: Option<Duration>,
        runner: &mut Runner,
    ) {
        let (previous, base) =
            STARTING.with(|s| (s.state.replace(Arc::as_ptr(self)), s.ready.borrow().len()));
        // A panic drops the completion, which ends the node with an error.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let pending = Pending::new(self, index, start);
            match &node.kind {
                Kind::Async(kernel) => match self.owned_inputs(node) {
                    Ok(inputs) => {
                        let done = Box::new(move |result| pending.finish(result));
                        let outputs = node.num_outputs as usize;
                        kernel.start(AsyncCall::new(inputs, self.context.clone(), outputs, done));
                    }
                    Err(e) => pending.finish(Err(e)),
                },
                Kind::Receive(key) => self.receive(key, pending),
                Kind::Call(site) => self.call(node, site, pending),
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
            self.schedule(ready, runner);
        }
    }

    fn completed(
        self: &Arc<Self>,
        index: u32,
        start: Option<Duration>,
        outputs: Outputs,
    ) -> Result<()> {
        let node = &self.exec.nodes[index as usize];
        self.check_outputs(index, &outputs)?;
        for (i, value) in outputs.into_iter().enumerate() {
            self.put(node, i as u32, value);
        }
        self.record(index, node, start);
        let is_starting = |s: &Starting| ptr::eq(s.state.get(), Arc::as_ptr(self));
        if STARTING.try_with(is_starting).unwrap_or(false) {
            self.for_each_ready(node, |ready| STARTING.with(|s| s.ready.borrow_mut().push(ready)));
        } else {
            // Offered, not run: this may be any thread, deep in any stack.
            let mut all: SmallVec<[u32; 16]> = SmallVec::new();
            self.for_each_ready(node, |ready| all.push(ready));
            self.offer(&all);
        }
        Ok(())
    }

    /// What came from outside the executor, a kernel or a function, is not trusted.
    fn check_outputs(&self, index: u32, outputs: &Outputs) -> Result<()> {
        let declared = &self.exec.graph.nodes()[index as usize].outputs;
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
                Value::Ref(_) => bail!(Internal, "output {i} is a reference, not a tensor"),
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

    fn rendezvous(&self) -> Result<&Arc<LocalRendezvous>> {
        self.shared.rendezvous.as_ref().ok_or_else(|| {
            err!(InvalidArgument, "a step on one device has nobody to exchange tensors with")
        })
    }

    fn send(&self, node: &ExecNode, key: &RendezvousKey) -> Result<()> {
        let value = self.only_input(node)?;
        self.rendezvous()?.send(key, value)
    }

    fn receive(&self, key: &RendezvousKey, pending: Pending) {
        match self.rendezvous() {
            Ok(rendezvous) => rendezvous.receive(
                key,
                Box::new(move |result| {
                    pending.finish(result.map(|value| smallvec::smallvec![value]));
                }),
            ),
            Err(e) => pending.finish(Err(e)),
        }
    }

    fn call(&self, node: &ExecNode, site: &CallSite, pending: Pending) {
        let caller = Caller { step: &self.context, trace: self.shared.trace.clone() };
        let done = Box::new(move |results| pending.finish(results));
        self.shared.core.call_site(site, self.owned_inputs(node), caller, done);
    }
}

/// A node that completes later. Counts as outstanding; if it is dropped without an end, that is one.
struct Pending {
    state: Arc<StepState>,
    index: u32,
    start: Option<Duration>,
    is_finished: bool,
}

impl Pending {
    fn new(state: &Arc<StepState>, index: u32, start: Option<Duration>) -> Pending {
        state.shared.outstanding.fetch_add(1, Ordering::Relaxed);
        Pending { state: state.clone(), index, start, is_finished: false }
    }

    fn finish(mut self, result: Result<Outputs>) {
        self.is_finished = true;
        let (state, index) = (&self.state, self.index);
        let result = result.and_then(|outputs| state.completed(index, self.start, outputs));
        if let Err(e) = result {
            state.fail_at(index, e);
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
        self.state.fail_at(self.index, err!(Internal, "the kernel {what}; this is a bug"));
        self.state.shared.release();
    }
}

impl Work for StepState {
    fn help(self: Arc<Self>) {
        self.queued.fetch_sub(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.has_offers() && self.try_enter() {
            with_runner(|runner| self.assist(runner));
        }
    }
}
