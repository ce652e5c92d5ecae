//! Running one step of an executable.
//!
//! Every output has a slot. A node writes the slots of its outputs and then counts its successors
//! down; whoever brings a node's count to zero owns it and runs it. Inputs are copied out of their
//! slots (tensors share memory, so that is cheap), the last reader takes the value with it: then
//! its buffer is unique and may be written over. Ready nodes lie on the stack of the thread that made them ready; dear ones beyond
//! the first go to the step's `overflow`, where the pool's threads and the waiting caller help
//! themselves. No lock is taken and nothing is allocated per node.
//!
//! `outstanding` counts threads at work, nodes in `overflow` and kernels that complete later; the
//! step is over when it falls to zero. An error cancels the step with itself as the cause, so the
//! first one wins; what is ready then is dropped.

use std::cell::{RefCell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use thalweg_kernel::{
    AsyncCall, AsyncKernel, Cancellation, Kernel, KernelContext, Outputs, Rendezvous,
    RendezvousKey, StepContext, Value,
};
use thalweg_tensor::{Error, FlushDenormals, Result, Tensor, err};

use crate::executable::{ExecNode, Executable, Input, Kind, SOLE, Transfer, at_node};
use crate::metadata::NodeTiming;
use crate::pool::{Pool, Work};
use crate::rendezvous::LocalRendezvous;

/// Kernels below this run on the thread that made them ready.
const CHEAP_NS: u32 = 3_000;
/// Cheap kernels are measured again in one step out of this many.
const SAMPLE_STEPS: u64 = 64;

/// What all partitions of one step, or one function call, share.
pub(crate) struct StepShared {
    outstanding: AtomicUsize,
    cancellation: Cancellation,
    rendezvous: Option<Arc<LocalRendezvous>>,
    trace: Option<Trace>,
    /// Threads that may run nodes of this step at once.
    inter_threads: usize,
    pool: &'static Pool,
    /// Whether the caller waits, for its end or for something to do.
    is_waited_for: AtomicBool,
    is_done: Mutex<bool>,
    changed: Condvar,
    /// Called at the end, if nobody waits: for function calls.
    on_done: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

/// Times of nodes, collected when asked for.
pub(crate) struct Trace {
    begin: Duration,
    nodes: Mutex<Vec<NodeTiming>>,
    threads: Mutex<Vec<std::thread::ThreadId>>,
}

impl Trace {
    pub(crate) fn new(begin: Duration) -> Trace {
        Trace { begin, nodes: Mutex::default(), threads: Mutex::default() }
    }

    fn record(&self, exec: &Executable, node: u32, start: Duration, end: Duration) {
        let thread = {
            let mut threads = self.threads.lock();
            let current = std::thread::current().id();
            let position = threads.iter().position(|&t| t == current);
            position.unwrap_or_else(|| {
                threads.push(current);
                threads.len() - 1
            }) as u32
        };
        let node = &exec.graph.nodes()[node as usize];
        self.nodes.lock().push(NodeTiming {
            node: node.name.clone(),
            op: node.op.name.clone(),
            device: exec.device_name.clone(),
            thread,
            start_ns: (start.saturating_sub(self.begin)).as_nanos() as u64,
            end_ns: (end.saturating_sub(self.begin)).as_nanos() as u64,
        });
    }
}

impl StepShared {
    pub(crate) fn new(
        cancellation: Cancellation,
        rendezvous: Option<Arc<LocalRendezvous>>,
        trace: Option<Trace>,
        pool: &'static Pool,
        inter_threads: usize,
    ) -> StepShared {
        StepShared {
            outstanding: AtomicUsize::new(0),
            cancellation,
            rendezvous,
            trace,
            inter_threads,
            pool,
            is_waited_for: AtomicBool::new(false),
            is_done: Mutex::new(false),
            changed: Condvar::new(),
            on_done: Mutex::default(),
        }
    }

    fn fail(&self, error: Error) {
        self.cancellation.cancel(error);
        if let (Some(rendezvous), Err(cause)) = (&self.rendezvous, self.cancellation.check()) {
            rendezvous.abort(&cause);
        }
    }

    /// Takes one away from `outstanding`; whoever takes the last ends the step.
    fn release(&self) -> bool {
        // Sequentially consistent with `is_waited_for`: either we see the waiter, or it sees zero.
        if self.outstanding.fetch_sub(1, Ordering::SeqCst) != 1 {
            return false;
        }
        if let Some(on_done) = self.on_done.lock().take() {
            on_done();
        }
        if self.is_waited_for.load(Ordering::SeqCst) {
            *self.is_done.lock() = true;
            self.changed.notify_all();
        }
        true
    }

    /// Node times, if they were asked for.
    pub(crate) fn take_timings(&self) -> Vec<NodeTiming> {
        self.trace.as_ref().map(|t| std::mem::take(&mut *t.nodes.lock())).unwrap_or_default()
    }
}

/// A value that its producer writes before it counts its successors down, and that readers only
/// look at afterwards. Only the last reader changes it.
struct Slot(UnsafeCell<Value>);

// SAFETY: the successors' counts order the one write before all reads, and the count of readers
// orders all reads before the last one's change.
unsafe impl Sync for Slot {}

/// One partition in one step.
pub(crate) struct StepState {
    exec: Arc<Executable>,
    values: Box<[Slot]>,
    /// For outputs that several inputs read, how many have yet to.
    readers: Box<[AtomicU32]>,
    pending: Box<[AtomicU32]>,
    feeds: Box<[Slot]>,
    fetches: Box<[Slot]>,
    overflow: Mutex<Vec<u32>>,
    overflow_len: AtomicUsize,
    pub(crate) context: Arc<StepContext>,
    pub(crate) shared: Arc<StepShared>,
    samples_cost: bool,
}

fn empty_slots(n: usize) -> Box<[Slot]> {
    (0..n).map(|_| Slot(UnsafeCell::new(Value::Empty))).collect()
}

/// What a thread needs to run nodes, kept between steps.
#[derive(Default)]
struct Runner {
    stack: Vec<u32>,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
}

thread_local! {
    static RUNNER: RefCell<Runner> = RefCell::default();
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
    /// A state for a step of `exec`, recycled if there is one.
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
            feeds: empty_slots(exec.num_feeds),
            fetches: empty_slots(exec.num_fetches),
            overflow: Mutex::default(),
            overflow_len: AtomicUsize::new(0),
            samples_cost: context.step_id.is_multiple_of(SAMPLE_STEPS),
            context,
            shared,
        }
    }

    /// Makes a state that finished well good for another step.
    pub(crate) fn reset(&mut self, step_id: u64) -> Option<()> {
        let context = Arc::get_mut(&mut self.context)?;
        let shared = Arc::get_mut(&mut self.shared)?;
        context.step_id = step_id;
        context.cancellation.reset();
        *shared.is_waited_for.get_mut() = false;
        *shared.is_done.get_mut() = false;
        *shared.outstanding.get_mut() = 0;
        self.samples_cost = step_id.is_multiple_of(SAMPLE_STEPS);
        for (pending, &initial) in self.pending.iter_mut().zip(&self.exec.pending) {
            *pending.get_mut() = initial;
        }
        for (readers, &initial) in self.readers.iter_mut().zip(&self.exec.readers) {
            *readers.get_mut() = initial;
        }
        Some(())
    }

    /// Sets what `_Recv` of the client, or `_Arg`, gives.
    pub(crate) fn set_feed(&mut self, i: usize, tensor: Tensor) {
        *self.feeds[i].0.get_mut() = Value::Tensor(tensor);
    }

    /// Number of tensors to feed.
    pub(crate) fn num_feeds(&self) -> usize {
        self.feeds.len()
    }

    /// Number of tensors to fetch.
    pub(crate) fn num_fetches(&self) -> usize {
        self.fetches.len()
    }

    /// Takes fetched tensor `i`; the step must be over.
    pub(crate) fn take_fetch(&self, i: usize) -> Result<Tensor> {
        // SAFETY: the step is over, so no thread runs nodes of it any more.
        match unsafe { &mut *self.fetches[i].0.get() } {
            value @ Value::Tensor(_) => match std::mem::take(value) {
                Value::Tensor(tensor) => Ok(tensor),
                _ => unreachable!("it was a tensor a moment ago"),
            },
            Value::Dead => {
                Err(err!(InvalidArgument, "fetch {i} is the result of a branch not taken"))
            }
            _ => Err(err!(Internal, "fetch {i} was not produced")),
        }
    }

    /// Runs the step's partitions, this thread working too; returns when all is over.
    pub(crate) fn run_to_end(states: &[Arc<StepState>]) -> Result<()> {
        let shared = &states[0].shared;
        shared.outstanding.fetch_add(1, Ordering::Relaxed);
        for other in &states[1..] {
            other.offer(&other.exec.roots);
        }
        with_runner(|runner| {
            runner.stack.extend_from_slice(&states[0].exec.roots);
            states[0].run_nodes(runner);
        });
        if !shared.release() {
            Self::wait(states);
        }
        shared.cancellation.check()
    }

    /// Starts a function call; `done` is called at its end, perhaps before this returns.
    pub(crate) fn start(self: &Arc<Self>, done: Box<dyn FnOnce() + Send>) {
        *self.shared.on_done.lock() = Some(done);
        self.shared.outstanding.fetch_add(1, Ordering::Relaxed);
        with_runner(|runner| {
            runner.stack.extend_from_slice(&self.exec.roots);
            self.run_nodes(runner);
        });
        self.shared.release();
    }

    fn wait(states: &[Arc<StepState>]) {
        let shared = &states[0].shared;
        shared.is_waited_for.store(true, Ordering::SeqCst);
        loop {
            for state in states {
                state.help_once();
            }
            let mut is_done = shared.is_done.lock();
            // Looked at after `is_waited_for` was set: a release or an offer before that is seen
            // here, one after it takes the lock and notifies.
            if *is_done || shared.outstanding.load(Ordering::SeqCst) == 0 {
                return;
            }
            if states.iter().all(|s| s.overflow_len.load(Ordering::SeqCst) == 0) {
                shared.changed.wait(&mut is_done);
            }
        }
    }

    /// Makes nodes available to whoever has time.
    fn offer(self: &Arc<Self>, nodes: &[u32]) {
        if nodes.is_empty() {
            return;
        }
        self.shared.outstanding.fetch_add(nodes.len(), Ordering::Relaxed);
        let mut overflow = self.overflow.lock();
        overflow.extend_from_slice(nodes);
        self.overflow_len.store(overflow.len(), Ordering::SeqCst);
        drop(overflow);
        let mut helpers = nodes.len().min(self.shared.inter_threads.saturating_sub(1)).max(1);
        if self.shared.is_waited_for.load(Ordering::SeqCst) {
            let _guard = self.shared.is_done.lock();
            self.shared.changed.notify_all();
            helpers -= 1;
        }
        for _ in 0..helpers {
            self.shared.pool.push(self.clone());
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

    /// Runs what was offered, and what that makes ready.
    fn help_once(self: &Arc<Self>) {
        // The node's place in `outstanding` becomes this thread's.
        let Some(node) = self.take_offered() else { return };
        with_runner(|runner| {
            runner.stack.push(node);
            self.run_nodes(runner);
        });
        self.shared.release();
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
            Kind::Identity => {
                let mut value = self.take_input(self.exec.inputs_of(node)[0]);
                // A variable's identity is its value now; later updates do not show.
                if let Value::Ref(variable) = &value {
                    match variable.read() {
                        Ok(tensor) => value = Value::Tensor(tensor),
                        Err(e) => return self.fail_at(index, e),
                    }
                }
                self.put(node, 0, value);
            }
            Kind::Constant(i) => {
                self.put(node, 0, Value::Tensor(self.exec.constants[*i as usize].clone()));
            }
            Kind::Feed(i) => {
                // SAFETY: only the one node of this feed reads the slot, once per step.
                let value = unsafe { std::mem::take(&mut *self.feeds[*i as usize].0.get()) };
                self.put(node, 0, value);
            }
            Kind::Fetch(i) => self.fetch(index, node, *i),
            Kind::Kernel(kernel) => {
                if !self.run_kernel(index, node, &**kernel, runner) {
                    return;
                }
            }
            Kind::Async(kernel) => return self.start_kernel(index, node, kernel, start),
            Kind::Send(key) => self.send(index, node, key),
            Kind::Receive(key) => return self.receive(index, key, start),
            Kind::Call(function) => return self.call(index, node, function, start),
        }
        self.release_successors(node, runner);
        self.record(index, start);
    }

    fn now(&self) -> Duration {
        self.context.environment.clock.monotonic()
    }

    fn record(&self, index: u32, start: Option<Duration>) {
        if let (Some(trace), Some(start)) = (&self.shared.trace, start) {
            trace.record(&self.exec, index, start, self.now());
        }
    }

    /// An input's value; the last reader takes it away, so that nobody else holds it.
    #[inline]
    fn take_input(&self, input: Input) -> Value {
        let slot = self.values[input.output as usize].0.get();
        let value = if input.shared == SOLE {
            // SAFETY: the caller owns the only node that reads this slot, and it was written before
            // that node's count fell to zero.
            unsafe { std::mem::take(&mut *slot) }
        } else {
            let readers = &self.readers[input.shared as usize];
            // SAFETY: the slot was written before the node's count fell to zero, and nobody changes
            // it while a reader that has not counted itself off is left: this one.
            let value = unsafe { (*slot).clone() };
            if readers.fetch_sub(1, Ordering::AcqRel) == 1 {
                // SAFETY: all readers have counted themselves off, so this one is alone.
                unsafe { *slot = Value::Empty };
            }
            value
        };
        if input.transfer == Transfer::None {
            value
        } else {
            self.transferred(value, input.transfer)
        }
    }

    /// The value in the memory that its reader wants.
    #[cold]
    fn transferred(&self, value: Value, transfer: Transfer) -> Value {
        let Value::Tensor(tensor) = value else { return value };
        let device = &self.exec.device;
        let moved = match transfer {
            Transfer::ToHost => device.download(&tensor),
            _ => device.upload(&tensor),
        };
        moved.map_or_else(
            |e| {
                self.shared.fail(e);
                Value::Empty
            },
            Value::Tensor,
        )
    }

    /// Leaves an output for those who read it.
    #[inline]
    fn put(&self, node: &ExecNode, output: u32, value: Value) {
        // SAFETY: only this node writes the slot, and its readers wait to be counted down.
        unsafe { *self.values[(node.first_output + output) as usize].0.get() = value };
    }

    #[inline]
    fn release_successors(self: &Arc<Self>, node: &ExecNode, runner: &mut Runner) {
        let (start, end) = node.successors;
        for &to in &self.exec.successors[start as usize..end as usize] {
            let node = to.node();
            if to.is_only() || self.pending[node as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
                self.schedule(node, runner);
            }
        }
    }

    fn schedule(self: &Arc<Self>, node: u32, runner: &mut Runner) {
        if runner.stack.is_empty() || self.shared.inter_threads <= 1 || self.is_cheap(node) {
            runner.stack.push(node);
        } else {
            self.offer(&[node]);
        }
    }

    fn is_cheap(&self, node: u32) -> bool {
        let node = &self.exec.nodes[node as usize];
        !matches!(node.kind, Kind::Kernel(_)) || node.cost_ns.load(Ordering::Relaxed) < CHEAP_NS
    }

    fn fail_at(&self, index: u32, error: Error) {
        self.shared.fail(at_node(error, &self.exec.graph.nodes()[index as usize].name));
    }

    /// Replaces references by their values where the op takes values.
    fn dereference(&self, index: u32, inputs: &mut [Value]) -> Result<()> {
        let node = &self.exec.graph.nodes()[index as usize];
        for arg in &node.op.inputs {
            if arg.is_ref {
                continue;
            }
            for input in &mut inputs[node.input_range(&arg.name)?] {
                if let Value::Ref(variable) = input {
                    *input = Value::Tensor(variable.read()?);
                }
            }
        }
        Ok(())
    }

    /// All inputs of a node, references replaced where the op takes values.
    fn owned_inputs(&self, index: u32, node: &ExecNode) -> Result<SmallVec<[Value; 4]>> {
        let mut inputs: SmallVec<[Value; 4]> =
            self.exec.inputs_of(node).iter().map(|&input| self.take_input(input)).collect();
        if node.dereferences {
            self.dereference(index, &mut inputs)?;
        }
        Ok(inputs)
    }

    fn fetch(&self, index: u32, node: &ExecNode, fetch: u32) {
        let mut value = self.take_input(self.exec.inputs_of(node)[0]);
        if let Value::Ref(variable) = &value {
            match variable.read() {
                Ok(tensor) => value = Value::Tensor(tensor),
                Err(e) => return self.fail_at(index, e),
            }
        }
        // SAFETY: only the one node of this fetch writes the slot; the caller reads it at the end.
        unsafe { *self.fetches[fetch as usize].0.get() = value };
    }

    /// Runs a synchronous kernel; false if it failed.
    fn run_kernel(
        self: &Arc<Self>,
        index: u32,
        node: &ExecNode,
        kernel: &dyn Kernel,
        runner: &mut Runner,
    ) -> bool {
        let Runner { inputs, outputs, .. } = runner;
        inputs.extend(self.exec.inputs_of(node).iter().map(|&input| self.take_input(input)));
        outputs.resize_with(node.num_outputs as usize, Value::default);
        let cost = node.cost_ns.load(Ordering::Relaxed);
        let measured = (cost >= CHEAP_NS || self.samples_cost).then(|| self.now());
        let mut result = if node.dereferences { self.dereference(index, inputs) } else { Ok(()) };
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
            node.cost_ns.store(learnt_cost(cost, took), Ordering::Relaxed);
        }
        inputs.clear();
        for (i, value) in outputs.drain(..).enumerate() {
            if matches!(value, Value::Empty) && result.is_ok() {
                result = Err(err!(Internal, "the kernel did not set output {i}"));
            }
            self.put(node, i as u32, value);
        }
        if let Err(e) = result {
            self.fail_at(index, e);
            return false;
        }
        true
    }

    /// Hands a node over to something that completes later.
    fn completion(
        self: &Arc<Self>,
        index: u32,
        start: Option<Duration>,
    ) -> impl FnOnce(Result<Outputs>) + Send + use<> {
        self.shared.outstanding.fetch_add(1, Ordering::Relaxed);
        let state = self.clone();
        move |result| {
            match result {
                Ok(outputs) => state.completed(index, outputs, start),
                Err(e) => state.fail_at(index, e),
            }
            state.shared.release();
        }
    }

    fn completed(self: &Arc<Self>, index: u32, outputs: Outputs, start: Option<Duration>) {
        let node = &self.exec.nodes[index as usize];
        if outputs.len() != node.num_outputs as usize {
            let message = err!(
                Internal,
                "{} outputs came, {} were expected",
                outputs.len(),
                node.num_outputs
            );
            return self.fail_at(index, message);
        }
        // What becomes ready is offered, not run: this may be any thread, deep in any stack.
        let mut runner = Runner::default();
        for (i, value) in outputs.into_iter().enumerate() {
            self.put(node, i as u32, value);
        }
        self.release_successors(node, &mut runner);
        self.record(index, start);
        self.offer(&runner.stack);
    }

    fn start_kernel(
        self: &Arc<Self>,
        index: u32,
        node: &ExecNode,
        kernel: &Arc<dyn AsyncKernel>,
        start: Option<Duration>,
    ) {
        let inputs = match self.owned_inputs(index, node) {
            Ok(inputs) => inputs,
            Err(e) => return self.fail_at(index, e),
        };
        let done = Box::new(self.completion(index, start));
        kernel.start(AsyncCall::new(inputs, self.context.clone(), node.num_outputs as usize, done));
    }

    fn rendezvous(&self) -> Result<&Arc<LocalRendezvous>> {
        self.shared.rendezvous.as_ref().ok_or_else(|| err!(Internal, "the step has no rendezvous"))
    }

    fn send(&self, index: u32, node: &ExecNode, key: &RendezvousKey) {
        let mut value = self.take_input(self.exec.inputs_of(node)[0]);
        let result = (|| {
            if let Value::Ref(variable) = &value {
                value = Value::Tensor(variable.read()?);
            }
            self.rendezvous()?.send(key, value)
        })();
        if let Err(e) = result {
            self.fail_at(index, e);
        }
    }

    fn receive(self: &Arc<Self>, index: u32, key: &RendezvousKey, start: Option<Duration>) {
        let done = self.completion(index, start);
        match self.rendezvous() {
            Ok(rendezvous) => rendezvous.receive(
                key,
                Box::new(move |result| done(result.map(|value| smallvec::smallvec![value]))),
            ),
            Err(e) => done(Err(e)),
        }
    }

    fn call(
        self: &Arc<Self>,
        index: u32,
        node: &ExecNode,
        function: &(String, thalweg_graph::Attrs),
        start: Option<Duration>,
    ) {
        let args: Result<Vec<Tensor>> = self.owned_inputs(index, node).and_then(|inputs| {
            let tensor = |value: Value| match value {
                Value::Tensor(tensor) => Ok(tensor),
                _ => Err(err!(Internal, "an argument is not a tensor")),
            };
            inputs.into_iter().map(tensor).collect()
        });
        let done = self.completion(index, start);
        match args {
            Ok(args) => {
                let done = move |results: Result<Vec<Tensor>>| {
                    done(results.map(|tensors| tensors.into_iter().map(Value::Tensor).collect()));
                };
                let (name, attrs) = function;
                self.context.functions.call(name, attrs, args, &self.context, Box::new(done));
            }
            Err(e) => done(Err(e)),
        }
    }
}

/// The average cost after another run. It at most doubles: a thread that lost its core in mid-kernel
/// must not make the kernel look dear for the next hundred steps.
fn learnt_cost(cost_ns: u32, took_ns: u32) -> u32 {
    let learnt = if took_ns > cost_ns {
        took_ns.min(cost_ns.saturating_mul(2))
    } else {
        cost_ns.midpoint(took_ns)
    };
    learnt.max(16)
}

impl Work for StepState {
    fn help(self: Arc<Self>) {
        self.help_once();
    }
}
