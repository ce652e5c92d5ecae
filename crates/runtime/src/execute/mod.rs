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
//!
//! A step may have no end, and the pool few threads: after a turn a thread of the pool that others
//! wait for offers all it has, leaves, and queues behind them.

mod counts;
pub(crate) mod deadline;
pub(crate) mod executable;
mod flat_inputs;
pub(crate) mod framed;
mod frames;
mod iteration;
mod nodes;
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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_kernel::{StepContext, StepId, Value};
use thalweg_tensor::{FlushDenormals, Result, Tensor, bail};

use self::iteration::{FramePool, Iteration, Ready, Slot};
pub(crate) use self::storage::KeptStorage;
use self::storage::Storage;
use crate::execute::executable::{Executable, Kind};
use crate::execute::step::StepShared;
use crate::pool::Work;

/// Kernels below this run on the thread that made them ready.
const CHEAP_NS: u32 = 3_000;

/// Cheap nodes that a thread of the pool runs before it looks whether others wait for it.
const TURN: u32 = 1024;
/// What a dear node counts in a turn.
const DEAR: u32 = 32;

/// One partition in one step.
pub(crate) struct StepState {
    pub(crate) exec: Arc<Executable>,
    /// What lies outside of loops.
    outside: Iteration,
    /// The loops.
    frames: Mutex<FramePool>,
    feeds: Box<[Slot]>,
    fetches: Box<[Slot]>,
    /// With branches and loops, for each fetch, whether it was set: a node in a loop may try again.
    is_fetched: Box<[AtomicBool]>,
    /// Nodes for whoever has time.
    overflow: Mutex<Vec<Ready>>,
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

/// What a thread needs to run nodes, kept between steps.
#[derive(Default)]
struct Runner {
    /// Ready nodes of a graph without branches and loops.
    nodes: Vec<u32>,
    /// Ready nodes of a graph with them.
    stack: Vec<Ready>,
    inputs: Vec<Value>,
}

/// Where a kernel that completes while it is being started leaves what that makes ready.
#[derive(Default)]
struct Starting {
    /// The state whose node this thread is starting, if any.
    state: Cell<*const StepState>,
    ready: RefCell<Vec<Ready>>,
}

thread_local! {
    /// What is left of this thread's turn, whatever it runs.
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
    /// A state for a step of `exec`.
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
    /// so no thread is active and no job queued.
    pub(crate) fn reset(&mut self, step_id: StepId) -> Option<()> {
        self.rewind()?;
        let context = Arc::get_mut(&mut self.context)?;
        let shared = Arc::get_mut(&mut self.shared)?;
        // `context` and `shared` hold the cancellation; a deadline that is just passing, or a kernel
        // that has not let go, may too, and must not end the next step.
        context.restart(step_id, 2);
        shared.reset(context.cancellation().clone());
        Some(())
    }

    /// Makes the state good for another run within the same step; otherwise as
    /// [`StepState::reset`]. All values were taken by their readers, unless there are branches.
    pub(crate) fn rewind(&mut self) -> Option<()> {
        if self.exec.framed.is_some() {
            // A loop that never got what it waits for.
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

    /// Sets what `_Recv` of the client, or `_Arg`, gives.
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
            Value::Dead => bail!(InvalidArgument, "Retval[{i}] does not have value"),
            // A loop may wait for ever for a value that nothing gives it.
            _ if self.exec.framed.is_some() => {
                bail!(InvalidArgument, "Retval[{i}] does not have value: nothing reached it")
            }
            _ => bail!(Internal, "fetch {i} was not produced"),
        }
    }

    /// The nodes that wait for nothing.
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

    /// Makes the nodes that wait for nothing available to whoever has time.
    pub(crate) fn offer_roots(self: &Arc<Self>) {
        let roots: Vec<Ready> = self.roots().collect();
        self.offer(&roots);
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
    fn offer(self: &Arc<Self>, nodes: &[Ready]) {
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

    fn take_offered(&self) -> Option<Ready> {
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
            while let Some(ready) = self.take_offered() {
                self.push(ready, runner);
                let has_yielded = self.run_nodes(runner);
                self.shared.release();
                if has_yielded {
                    self.queue_again();
                    return;
                }
            }
            if !self.leave() {
                return;
            }
        }
    }

    /// Takes this thread off those that run nodes, and queues for when others have had their turn.
    fn queue_again(self: &Arc<Self>) {
        self.active.fetch_sub(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.has_offers() {
            self.queued.fetch_add(1, Ordering::SeqCst);
            self.shared.pool().push_last(self.clone());
        }
    }

    /// Counts nodes of this thread's turn; true at its end if others wait for the thread. A turn
    /// goes on as long as there is nothing to leave to others.
    #[inline]
    fn ends_turn(&self, nodes: u32, has_more: bool) -> bool {
        TURN_LEFT.with(|left| {
            if left.get() > nodes {
                left.set(left.get() - nodes);
                return false;
            }
            left.set(if has_more { TURN } else { 0 });
            has_more && self.shared.pool().is_asked()
        })
    }

    /// Offers everything that is ready here.
    #[cold]
    fn offer_all(self: &Arc<Self>, runner: &mut Runner) {
        let outside = ptr::from_ref(&self.outside);
        let plain = runner.nodes.drain(..).map(|node| Ready::new(outside, node, false));
        let all: Vec<Ready> = plain.chain(runner.stack.drain(..)).collect();
        self.offer(&all);
    }

    /// Runs what is ready, and what that makes ready, until there is no more; true if this thread's
    /// turn ended before.
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
            if self.has_offers() && self.ends_turn(DEAR, true) {
                return true;
            }
            match self.take_offered() {
                Some(ready) => {
                    self.push(ready, runner);
                    // This thread counts already; the node's own place is given up.
                    self.shared.outstanding.fetch_sub(1, Ordering::AcqRel);
                }
                None => return false,
            }
        }
    }

    /// Runs what is ready, and what that makes ready; true if the turn ended before. Each form has
    /// its loop to itself, so that one does not take the other's registers.
    #[inline(never)]
    fn run_plain_nodes(self: &Arc<Self>, runner: &mut Runner) -> bool {
        while let Some(node) = runner.nodes.pop() {
            if self.shared.cancellation.is_cancelled() {
                runner.nodes.clear();
                return false;
            }
            let start = self.shared.trace.is_some().then(|| self.now());
            self.process(node, start, runner);
            if self.ends_turn(1, !runner.nodes.is_empty()) {
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
            if self.ends_turn(1, !runner.stack.is_empty()) {
                return true;
            }
        }
        false
    }

    /// Leaves a ready node for this thread, or for others if it is dear and this one has some.
    #[inline]
    fn schedule(self: &Arc<Self>, node: u32, runner: &mut Runner) {
        if runner.nodes.is_empty() || self.threads_max <= 1 || self.is_cheap(node) {
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

    /// Notes the time of a node that gave `outputs`, if asked to.
    #[inline]
    fn record(&self, index: u32, start: Option<Duration>, outputs: &[Value]) {
        if let (Some(trace), Some(start)) = (&self.shared.trace, start) {
            trace.record(&self.exec, index, (start, self.now()), outputs);
        }
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
