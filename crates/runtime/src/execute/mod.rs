//! The executor: runs the nodes of a partition in one step.
//!
//! Every output has a slot. A node writes the slots of its outputs and then decrements the pending
//! counts of its successors; the thread that brings a node's count to zero owns the node and runs it.
//! Inputs are copied out of their slots (tensors share memory), except that the last reader moves the
//! value: then its buffer is unique and a kernel may overwrite it. A thread keeps the nodes that it
//! made ready on its own stack; expensive ones beyond the first are offered (`offers`) to the
//! pool's threads and the waiting caller. No lock is taken and nothing is allocated per node.
//!
//! The first error cancels the step; ready nodes are dropped then. `outstanding` counts a step down to
//! its end; `run` starts it and waits for it.
//!
//! # Which threads run offered nodes
//!
//! Up to `inter_threads` threads run nodes of a partition at once; `offers` counts them, and the jobs in
//! the pool that will try to join them, so that no node is left behind.
//!
//! A step may run for ever, and the pool may have few threads: after a turn of [`TURN`] nodes a thread
//! runs an offered node, and a thread of the pool for which jobs are queued offers its ready nodes, leaves,
//! and queues behind them.

mod counts;
pub(crate) mod deadline;
pub(crate) mod executable;
mod flat_inputs;
pub(crate) mod framed;
mod frames;
mod iteration;
mod nodes;
mod offers;
mod outstanding;
pub(crate) mod recycler;
pub(crate) mod rendezvous;
mod run;
pub(crate) mod step;
mod storage;
mod transfers;
pub(crate) mod wait_list;

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_kernel::{StepContext, StepId, Value};
use thalweg_tensor::{FlushDenormals, Result, Tensor, bail};

use self::iteration::{FramePool, Iteration, Ready, Slot};
use self::offers::Offers;
pub(crate) use self::storage::KeptStorage;
use self::storage::Storage;
use crate::execute::executable::{Executable, Kind};
use crate::execute::step::StepShared;
use crate::pool::Work;

/// Kernels that take less than this run on the thread that made them ready.
const CHEAP_NS: u32 = 3_000;

/// Inexpensive nodes that a thread of the pool runs before it checks for queued jobs.
const TURN: u32 = 1024;
/// What an expensive node counts in a turn.
const EXPENSIVE: u32 = 32;

/// One partition in one step.
pub(crate) struct StepState {
    pub(crate) exec: Arc<Executable>,
    /// Values outside of loops.
    outside: Iteration,
    /// The loops.
    frames: Mutex<FramePool>,
    feeds: Box<[Slot]>,
    fetches: Box<[Slot]>,
    /// With branches and loops, for each fetch, whether it was set: a node in a loop may try again.
    is_fetched: Box<[AtomicBool]>,
    /// Ready nodes for any thread, and the threads that run nodes of this partition.
    offers: Offers<Ready>,
    samples_cost: bool,
    pub(crate) context: Arc<StepContext>,
    pub(crate) shared: Arc<StepShared>,
}

/// Buffers of a thread that runs nodes, kept between steps.
#[derive(Default)]
struct Runner {
    /// Ready nodes of a graph without branches and loops.
    nodes: Vec<u32>,
    /// Ready nodes of a graph with them.
    stack: Vec<Ready>,
    inputs: Vec<Value>,
}

/// Ready nodes of an asynchronous kernel that completes while this thread is starting it.
#[derive(Default)]
struct Starting {
    /// The state whose node this thread is starting, if any.
    state: Cell<*const StepState>,
    ready: RefCell<Vec<Ready>>,
}

thread_local! {
    /// Nodes left of this thread's turn, over all steps that it runs.
    static TURN_LEFT: Cell<u32> = const { Cell::new(TURN) };
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
    /// The state of one execution of `exec`.
    pub(crate) fn new(
        exec: &Arc<Executable>,
        context: Arc<StepContext>,
        shared: Arc<StepShared>,
    ) -> StepState {
        let Storage { outside, feeds, fetches, is_fetched } = Storage::of(exec);
        StepState {
            exec: exec.clone(),
            outside,
            frames: Mutex::default(),
            feeds,
            fetches,
            is_fetched,
            offers: Offers::new(shared.core.options.inter_threads),
            samples_cost: exec.begins_sampled_step(),
            context,
            shared,
        }
    }

    /// Prepares the state of a step that ended well for another step. The caller owns it exclusively,
    /// so no thread is active and no job is queued. `None` if the state cannot be used again.
    pub(crate) fn reset(&mut self, step_id: StepId) -> Option<()> {
        self.rewind()?;
        let context = Arc::get_mut(&mut self.context)?;
        let shared = Arc::get_mut(&mut self.shared)?;
        // `context` and `shared` hold the cancellation. A deadline that is firing, or a kernel that has
        // not dropped its call, may hold it too, and must not end the next step.
        context.restart(step_id, 2);
        shared.reset(context.cancellation().clone());
        Some(())
    }

    /// Prepares the state for another execution within the same step; otherwise as
    /// [`StepState::reset`]. Without branches all values were moved out by their last readers.
    pub(crate) fn rewind(&mut self) -> Option<()> {
        if self.exec.framed.is_some() {
            // A loop that never received all its inputs.
            if self.frames.get_mut().live > 0 {
                return None;
            }
            self.outside.clear();
            self.is_fetched.iter_mut().for_each(|flag| *flag.get_mut() = false);
        }
        self.samples_cost = self.exec.begins_sampled_step();
        self.outside.reset(&self.exec.readers, &self.exec.pending);
        Some(())
    }

    /// Sets feed `i`, which the client's `_Recv` or a function's `_Arg` reads.
    pub(crate) fn set_feed(&mut self, i: usize, tensor: Tensor) {
        *self.feeds[i].0.get_mut() = Value::Tensor(tensor);
    }

    /// Number of fetches.
    pub(crate) fn num_fetches(&self) -> usize {
        self.fetches.len()
    }

    /// Appends all fetches to `fetches`, in order; the execution must have ended.
    pub(crate) fn take_fetches(&self, fetches: &mut Vec<Tensor>) -> Result<()> {
        for i in 0..self.fetches.len() {
            fetches.push(self.take_fetch(i)?);
        }
        Ok(())
    }

    /// Takes fetch `i`; the execution must have ended.
    pub(crate) fn take_fetch(&self, i: usize) -> Result<Tensor> {
        // SAFETY: the step is over, so no thread runs nodes of it any more.
        match std::mem::take(unsafe { &mut *self.fetches[i].0.get() }) {
            Value::Tensor(tensor) => Ok(tensor),
            // All updates of the step are done.
            Value::Alias(buffer) => buffer.snapshot().into_host(),
            Value::Dead => bail!(InvalidArgument, "Retval[{i}] does not have value"),
            // A loop's fetch has no value if no value reached it.
            _ if self.exec.framed.is_some() => {
                bail!(InvalidArgument, "Retval[{i}] does not have value: nothing reached it")
            }
            _ => bail!(Internal, "fetch {i} was not produced"),
        }
    }

    /// The root nodes: those without inputs and control inputs.
    fn roots(&self) -> impl Iterator<Item = Ready> + '_ {
        let iteration = ptr::from_ref(&self.outside);
        self.exec.roots.iter().map(move |&node| Ready::new(iteration, node, false))
    }

    fn push_roots(&self, runner: &mut Runner) {
        if self.exec.framed.is_some() {
            runner.stack.extend(self.roots());
        } else {
            runner.nodes.extend_from_slice(&self.exec.roots);
        }
    }

    fn push(&self, ready: Ready, runner: &mut Runner) {
        if self.exec.framed.is_some() {
            runner.stack.push(ready);
        } else {
            runner.nodes.push(ready.node());
        }
    }

    /// Offers the root nodes to other threads.
    pub(crate) fn offer_roots(self: &Arc<Self>) {
        let roots: Vec<Ready> = self.roots().collect();
        self.offer(&roots);
    }

    /// Offers ready nodes to other threads. The caller counts as outstanding.
    fn offer(self: &Arc<Self>, nodes: &[Ready]) {
        if nodes.is_empty() {
            return;
        }
        self.shared.outstanding.add(nodes.len());
        self.offers.push(nodes);
        let is_waiter_woken = self.shared.outstanding.wake_waiter();
        self.queue_jobs(nodes.len() - usize::from(is_waiter_woken));
    }

    /// Queues up to `wanted` jobs that run offered nodes.
    fn queue_jobs(self: &Arc<Self>, wanted: usize) {
        for _ in 0..wanted {
            if !self.offers.count_job() {
                return;
            }
            self.shared.pool().push(self.clone());
        }
    }

    /// Runs offered nodes, and those that they make ready, until none is left. This thread is active,
    /// and becomes inactive here.
    fn assist(self: &Arc<Self>, runner: &mut Runner) {
        loop {
            // The node's count in `outstanding` becomes this thread's.
            while let Some(ready) = self.offers.pop() {
                self.push(ready, runner);
                let has_yielded = self.run_nodes(runner);
                self.shared.release();
                if has_yielded {
                    self.queue_again();
                    return;
                }
            }
            if !self.offers.leave() {
                return;
            }
        }
    }

    /// Makes this thread inactive, and queues a job behind all queued jobs.
    fn queue_again(self: &Arc<Self>) {
        if self.offers.leave_for_job() {
            self.shared.pool().push_last(self.clone());
        }
    }

    /// Counts nodes of this thread's turn; true at its end. A turn is extended as long as this thread has
    /// no ready nodes.
    #[inline]
    fn ends_turn(nodes: u32, has_more: bool) -> bool {
        TURN_LEFT.with(|left| {
            if left.get() > nodes {
                left.set(left.get() - nodes);
                return false;
            }
            left.set(if has_more { TURN } else { 0 });
            has_more
        })
    }

    /// At the end of a turn, whether this thread yields to queued jobs. An offered node is the next to run
    /// in any case: if no other thread may become active, this one would run a loop without an end first.
    #[cold]
    fn yields(&self, runner: &mut Runner) -> bool {
        if let Some(ready) = self.offers.pop() {
            self.push(ready, runner);
            self.shared.outstanding.give_up();
        }
        self.shared.pool().is_asked()
    }

    /// Offers all ready nodes of this thread.
    #[cold]
    fn offer_all(self: &Arc<Self>, runner: &mut Runner) {
        let outside = ptr::from_ref(&self.outside);
        let plain = runner.nodes.drain(..).map(|node| Ready::new(outside, node, false));
        let all: Vec<Ready> = plain.chain(runner.stack.drain(..)).collect();
        self.offer(&all);
    }

    /// Runs ready nodes, and those that they make ready, until none is left; true if this thread's turn
    /// ended before.
    fn run_nodes(self: &Arc<Self>, runner: &mut Runner) -> bool {
        loop {
            let has_yielded = if self.exec.framed.is_some() {
                self.run_stack(runner)
            } else {
                self.run_plain_nodes(runner)
            };
            if has_yielded {
                self.offer_all(runner);
                return true;
            }
            if !self.offers.is_empty()
                && Self::ends_turn(EXPENSIVE, true)
                && self.shared.pool().is_asked()
            {
                return true;
            }
            match self.offers.pop() {
                Some(ready) => {
                    self.push(ready, runner);
                    // This thread is counted already; the node's own count is given up.
                    self.shared.outstanding.give_up();
                }
                None => return false,
            }
        }
    }

    /// Runs ready nodes, and those that they make ready; true if the turn ended before. Each form of an
    /// executable has a loop of its own, which keeps its state in registers.
    #[inline(never)]
    fn run_plain_nodes(self: &Arc<Self>, runner: &mut Runner) -> bool {
        while let Some(node) = runner.nodes.pop() {
            if self.shared.cancellation.is_cancelled() {
                runner.nodes.clear();
                return false;
            }
            let start = self.shared.trace.is_some().then(|| self.now());
            self.process(node, start, runner);
            if Self::ends_turn(1, !runner.nodes.is_empty()) && self.yields(runner) {
                return true;
            }
        }
        false
    }

    /// As [`StepState::run_plain_nodes`], with branches and loops.
    #[inline(never)]
    fn run_stack(self: &Arc<Self>, runner: &mut Runner) -> bool {
        while let Some(ready) = runner.stack.pop() {
            if self.shared.cancellation.is_cancelled() {
                runner.stack.clear();
                return false;
            }
            let start = self.shared.trace.is_some().then(|| self.now());
            self.process_framed(ready, start, runner);
            if Self::ends_turn(1, !runner.stack.is_empty()) && self.yields(runner) {
                return true;
            }
        }
        false
    }

    /// Keeps a ready node for this thread, or offers it if it is expensive and this thread has others.
    #[inline]
    fn schedule(self: &Arc<Self>, node: u32, runner: &mut Runner) {
        if runner.nodes.is_empty() || !self.offers.is_parallel() || self.is_cheap(node) {
            runner.nodes.push(node);
        } else {
            self.offer(&[Ready::new(&self.outside, node, false)]);
        }
    }

    #[inline]
    fn is_cheap(&self, node: u32) -> bool {
        let node = &self.exec.nodes[node as usize];
        !matches!(node.kind, Kind::Kernel(_) | Kind::Call(_))
            || node.cost_ns.load(Ordering::Relaxed) < CHEAP_NS
    }

    fn now(&self) -> Duration {
        self.context.environment().clock.monotonic()
    }

    /// Records the time of a node that set `outputs`, if the step is traced.
    #[inline]
    fn record(&self, index: u32, start: Option<Duration>, outputs: &[Value]) {
        if let (Some(trace), Some(start)) = (&self.shared.trace, start) {
            trace.record(&self.exec, index, (start, self.now()), outputs);
        }
    }
}

impl Work for StepState {
    fn help(self: Arc<Self>) {
        if self.offers.begin_job() {
            with_runner(|runner| self.assist(runner));
        }
    }
}
