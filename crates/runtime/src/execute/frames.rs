//! Control flow: dead values, frames and iterations, and how loops end.
//!
//! A loop begins when all its `Enter` nodes have run: then its constants are set for every iteration,
//! and only other edges are counted. An iteration ends when none of its nodes is ready or running, no
//! loop inside it runs, and the iteration before it has ended (until then values may still arrive);
//! `outstanding` counts all of these. A thread first counts the nodes that it made ready and then
//! offers them, so the count cannot fall to zero early. A loop ends when its last iteration has ended
//! and no value was passed to a next one; an `Exit` that has passed no value out is dead then.
//!
//! At most `iterations_max` iterations run at once. Values for one more are stored in it; it begins
//! when another ends. Iterations and frames are recycled, so a loop's memory does not grow with the
//! number of its iterations.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use thalweg_kernel::{Outputs, RendezvousKey, Value};
use thalweg_tensor::{Result, Tensor, ensure, err};

use super::counts::{counted, merge_control, merge_input};
use super::iteration::{FrameInner, FrameState, Iteration, Ready};
use super::nodes::NodeOutcome;
use super::{Runner, StepState};
use crate::execute::executable::{ExecNode, Kind};
use crate::execute::framed::{
    ARRIVED, CONTROL, DEAD, Edge, EdgeKind, EnterKind, FrameInfo, Framed, INPUTS_SHIFT, frame_id,
};

impl StepState {
    #[inline]
    fn framed(&self) -> &Framed {
        self.exec.framed.as_ref().expect("only executables with frames come here")
    }

    fn static_frame(&self, frame: &FrameState) -> &FrameInfo {
        &self.framed().frames[frame.index as usize]
    }

    #[inline]
    fn edges_of(&self, node: &ExecNode) -> &[Edge] {
        &self.framed().edges[node.successors.0 as usize..node.successors.1 as usize]
    }

    /// Runs a node of a graph with branches or loops.
    #[inline]
    pub(super) fn process_framed(
        self: &Arc<Self>,
        ready: Ready,
        start: Option<Duration>,
        runner: &mut Runner,
    ) {
        // SAFETY: a `Ready` is counted by its iteration, which therefore is alive.
        let it = unsafe { &*ready.iteration };
        let node = &self.exec.nodes[ready.node() as usize];
        let base = runner.stack.len();
        let result = match &node.kind {
            _ if ready.is_dead() && !matches!(node.kind, Kind::Trigger) => {
                self.pass_dead(it, ready, start, runner)
            }
            Kind::Switch => self.switch(it, node, &mut runner.stack),
            Kind::Merge(count) => self.merge(it, node, *count, &mut runner.stack),
            Kind::Enter(enter) => self.enter(it, node, *enter, false, &mut runner.stack),
            Kind::Exit(position) => self.exit(it, node, *position, &mut runner.stack),
            Kind::NextIteration => self.next_iteration(it, ready.node(), &mut runner.stack),
            Kind::Trigger => {
                self.pass_on(it, node, |_| false, &mut runner.stack);
                Ok(())
            }
            _ => {
                if self.run_node(it, ready, start, runner) == NodeOutcome::FailedOrPending {
                    return;
                }
                if start.is_some() {
                    self.record(ready.node(), start, self.outputs_of(it, node));
                }
                self.pass_on(it, node, |_| false, &mut runner.stack);
                Ok(())
            }
        };
        if let Err(e) = result {
            return self.fail_at(ready.node(), e);
        }
        if start.is_some() && node.kind.is_control_flow() && !ready.is_dead() {
            self.record(ready.node(), start, &[]);
        }
        if runner.stack.len() > base.max(1) && self.offers.is_parallel() {
            self.offer_expensive(base.max(1), runner);
        }
    }

    /// As `schedule`, with branches and loops.
    pub(super) fn schedule_framed(self: &Arc<Self>, ready: Ready, runner: &mut Runner) {
        let base = runner.stack.len().max(1);
        runner.stack.push(ready);
        if self.offers.is_parallel() {
            self.offer_expensive(base, runner);
        }
    }

    /// Offers the expensive nodes among those just made ready, beyond the first.
    fn offer_expensive(self: &Arc<Self>, from: usize, runner: &mut Runner) {
        let mut i = from;
        while i < runner.stack.len() {
            let ready = runner.stack[i];
            if ready.is_dead() || self.is_cheap(ready.node()) {
                i += 1;
            } else {
                runner.stack.swap_remove(i);
                self.offer(&[ready]);
            }
        }
    }

    /// Decrements the counts of a node's successors, by live or dead edges, and then counts the node off
    /// its iteration.
    #[inline]
    fn pass_on(
        &self,
        it: &Iteration,
        node: &ExecNode,
        is_dead: impl Fn(u32) -> bool,
        ready: &mut Vec<Ready>,
    ) {
        let made = self.release(it, node, is_dead, ready);
        self.settle(it, made as isize - 1, ready);
    }

    /// Decrements the counts of a node's successors in iteration `it`; returns how many are ready now.
    #[inline]
    fn release(
        &self,
        it: &Iteration,
        node: &ExecNode,
        is_dead: impl Fn(u32) -> bool,
        ready: &mut Vec<Ready>,
    ) -> usize {
        let before = ready.len();
        for edge in self.edges_of(node) {
            let mut dead = is_dead(edge.output);
            let is_ready = match edge.kind {
                EdgeKind::Only | EdgeKind::End if it.is_strict.load(Ordering::Relaxed) => {
                    counted(&it.pending[edge.pending as usize], &mut dead)
                }
                EdgeKind::Only => true,
                EdgeKind::End => !dead,
                EdgeKind::Counted => counted(&it.pending[edge.pending as usize], &mut dead),
                EdgeKind::Merge(input) => {
                    let is_entering = matches!(node.kind, Kind::Enter(_));
                    let count = &it.pending[edge.pending as usize];
                    merge_input(count, input, is_entering, &mut dead)
                }
                EdgeKind::MergeControl => {
                    merge_control(&it.pending[edge.pending as usize], &mut dead)
                }
            };
            if is_ready {
                ready.push(Ready::new(it, edge.node, dead));
            }
        }
        ready.len() - before
    }

    /// Adds `change` to what is outstanding in an iteration; if nothing is left, ends it, and with it
    /// perhaps its loop, and what that ends in turn.
    #[inline]
    fn settle(&self, it: &Iteration, change: isize, ready: &mut Vec<Ready>) {
        if it.frame.is_null() || change == 0 {
            return;
        }
        if change > 0 {
            it.outstanding.add(change as usize);
        } else if it.outstanding.release() {
            self.end_iterations(it, ready);
        }
    }

    /// Ends an iteration in which nothing is outstanding, then the iterations and loops that end with it.
    fn end_iterations(&self, first: &Iteration, ready: &mut Vec<Ready>) {
        let mut it: *const Iteration = first;
        loop {
            // SAFETY: nothing is outstanding in it, and it was not given back: this thread brought
            // the count to zero, so the iteration is its own now. A frame outlives its iterations.
            let frame = unsafe { &*(*it).frame };
            let (then, change) = self.end_iteration(frame, it.cast_mut(), ready);
            // SAFETY: the next iteration counts the one before, the parent its loops, until the
            // change below; so they are there.
            let then = unsafe { &*then };
            if then.frame.is_null() {
                return;
            }
            if change >= 0 {
                then.outstanding.add(change as usize);
                return;
            }
            if !then.outstanding.release() {
                return;
            }
            it = then;
        }
    }

    /// Ends one iteration; returns the one to settle then, and by how much.
    fn end_iteration(
        &self,
        frame: &FrameState,
        it: *mut Iteration,
        ready: &mut Vec<Ready>,
    ) -> (*const Iteration, isize) {
        let kind = self.static_frame(frame);
        let mut inner = frame.inner.lock();
        inner.live -= 1;
        if !inner.parked.is_null() {
            self.begin_parked(frame, kind, &mut inner, ready);
        }
        // SAFETY: as in `end_iterations`, the iteration is this thread's own.
        let next = unsafe { (*it).next.load(Ordering::Acquire) };
        // SAFETY: likewise; it is one of the frame's.
        unsafe { inner.give_back(it, kind) };
        drop(inner);
        if next.is_null() { self.end_frame(frame, ready) } else { (next, -1) }
    }

    /// Ends a loop whose last iteration has ended: exits that have passed no value out are dead.
    fn end_frame(&self, frame: &FrameState, ready: &mut Vec<Ready>) -> (*const Iteration, isize) {
        let kind = self.static_frame(frame);
        let parent = frame.parent.load(Ordering::Relaxed).cast_const();
        // SAFETY: the iteration that a loop stands in counts it until the caller settles it.
        let outside = unsafe { &*parent };
        let mut made = 0;
        for (&node, exited) in kind.exits.iter().zip(&frame.exited) {
            if !exited.load(Ordering::Relaxed) {
                let node = &self.exec.nodes[node as usize];
                made += self.release(outside, node, |_| true, ready);
            }
        }
        for slot in &frame.constants {
            // SAFETY: the loop is over, so no node reads its constants.
            unsafe { *slot.0.get() = Value::Empty };
        }
        outside.children[kind.child as usize].store(ptr::null_mut(), Ordering::Relaxed);
        self.frames.lock().give_back(frame);
        (parent, made as isize - 1)
    }

    /// Marks the readers of dead constants, and makes nodes ready that read only constants.
    fn begin_iteration(
        &self,
        frame: &FrameState,
        kind: &FrameInfo,
        it: &Iteration,
        ready: &mut Vec<Ready>,
    ) -> usize {
        let mut is_strict = false;
        for (enter, is_dead) in kind.enters.iter().zip(&frame.dead_enters) {
            if !enter.is_constant || !is_dead.load(Ordering::Relaxed) {
                continue;
            }
            is_strict = true;
            for edge in self.edges_of(&self.exec.nodes[enter.node as usize]) {
                if edge.kind != EdgeKind::MergeControl {
                    it.pending[edge.pending as usize].fetch_or(DEAD, Ordering::Relaxed);
                }
            }
        }
        it.is_strict.store(is_strict, Ordering::Relaxed);
        for root in &kind.roots {
            let is_dead = it.pending[root.pending as usize].load(Ordering::Relaxed) & DEAD != 0;
            ready.push(Ready::new(it, root.node, is_dead));
        }
        kind.roots.len()
    }

    /// Begins the iteration that was deferred.
    fn begin_parked(
        &self,
        frame: &FrameState,
        kind: &FrameInfo,
        inner: &mut FrameInner,
        ready: &mut Vec<Ready>,
    ) {
        let parked = std::mem::replace(&mut inner.parked, ptr::null_mut());
        // SAFETY: it is one of the frame's, was taken and has not begun; so is the one before it,
        // which is not over.
        let (it, before) = unsafe { (&*parked, &*inner.parked_after) };
        inner.live += 1;
        let mut made = self.begin_iteration(frame, kind, it, ready);
        for node in inner.parked_nodes.drain(..) {
            made += self.release(it, &self.exec.nodes[node as usize], |_| false, ready);
        }
        // One for the iteration before.
        it.outstanding.begin(made + 1);
        before.next.store(parked, Ordering::Release);
    }

    fn switch(&self, it: &Iteration, node: &ExecNode, ready: &mut Vec<Ready>) -> Result<()> {
        let inputs = self.exec.inputs_of(node);
        let (mut data, mut choice) = (it.take(inputs[0]), it.take(inputs[1]));
        if node.prepares() {
            self.prepare(inputs[0], &mut data)?;
            self.prepare(inputs[1], &mut choice)?;
        }
        let chosen = chosen_output(&choice, node.num_outputs())?;
        self.put(it, node, chosen, data);
        self.pass_on(it, node, |output| output != chosen && output != CONTROL, ready);
        Ok(())
    }

    fn merge(
        &self,
        it: &Iteration,
        node: &ExecNode,
        count: u32,
        ready: &mut Vec<Ready>,
    ) -> Result<()> {
        let count = it.pending[count as usize].load(Ordering::Relaxed);
        let position = (count & !ARRIVED) >> INPUTS_SHIFT;
        let input = self.exec.inputs_of(node)[position as usize];
        let mut value = it.take(input);
        if node.prepares() {
            self.prepare(input, &mut value)?;
        }
        self.put(it, node, 0, value);
        if !self.exec.is_unread[node.first_output as usize + 1] {
            self.put(it, node, 1, Value::Tensor(Tensor::scalar(position as i32)));
        }
        self.pass_on(it, node, |_| false, ready);
        Ok(())
    }

    fn enter(
        &self,
        it: &Iteration,
        node: &ExecNode,
        enter: EnterKind,
        is_dead: bool,
        ready: &mut Vec<Ready>,
    ) -> Result<()> {
        let value = match is_dead {
            true => it.take(self.exec.inputs_of(node)[0]),
            false => self.only_input(it, node)?,
        };
        let kind = &self.framed().frames[enter.frame as usize];
        let frame = self.frame_in(it, enter.frame, kind);
        let first = frame.first.load(Ordering::Relaxed);
        if is_dead {
            frame.dead_enters[enter.position as usize].store(true, Ordering::Relaxed);
        } else if enter.is_constant {
            if !node.has_unread() {
                let slot = frame.constants[node.first_slot as usize].0.get();
                // SAFETY: only this node writes the slot, before the loop begins; all read it later.
                unsafe { *slot = value };
            }
        } else {
            // SAFETY: the first iteration waits for this node among others.
            self.put(unsafe { &*first }, node, 0, value);
        }
        if frame.enters_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.begin_frame(frame, kind, ready);
        }
        self.settle(it, -1, ready);
        Ok(())
    }

    /// The frame of a loop inside an iteration; it is made when the first value enters.
    fn frame_in<'a>(&'a self, it: &'a Iteration, index: u32, kind: &FrameInfo) -> &'a FrameState {
        let place = &it.children[kind.child as usize];
        let mut frame = place.load(Ordering::Acquire).cast_const();
        if frame.is_null() {
            let mut frames = self.frames.lock();
            frame = place.load(Ordering::Acquire).cast_const();
            if frame.is_null() {
                frame = frames.take(index, kind);
                let (id, number) = self.position(it);
                // SAFETY: the pool owns it alone.
                unsafe { (*frame).prepare(kind, it, frame_id(id, number, kind.name_hash)) };
                self.settle(it, 1, &mut Vec::new());
                place.store(frame.cast_mut(), Ordering::Release);
            }
        }
        // SAFETY: a frame that stands in an iteration lasts until all that enters has, and this
        // node has not; the pool keeps its memory as long as the step lasts.
        unsafe { &*frame }
    }

    /// TensorFlow's ids of the frame and the iteration.
    fn position(&self, it: &Iteration) -> (u64, u64) {
        // SAFETY: a frame outlives its iterations.
        let frame = unsafe { it.frame.as_ref() };
        let id = frame.map_or(0, |f| f.id.load(Ordering::Relaxed));
        (id, it.number.load(Ordering::Relaxed))
    }

    /// The key of a transfer in an iteration.
    pub(super) fn key_in(&self, it: &Iteration, key: &RendezvousKey) -> RendezvousKey {
        if it.frame.is_null() {
            return key.clone();
        }
        let (frame, iteration) = self.position(it);
        key.in_frame(frame, iteration)
    }

    /// Begins a loop, all of whose `Enter` nodes have run.
    fn begin_frame(&self, frame: &FrameState, kind: &FrameInfo, ready: &mut Vec<Ready>) {
        // SAFETY: the frame owns its first iteration, which has not begun.
        let it = unsafe { &*frame.first.load(Ordering::Relaxed) };
        frame.inner.lock().live = 1;
        // One for this thread, until it has counted what it makes ready.
        it.outstanding.begin(1);
        let mut made = self.begin_iteration(frame, kind, it, ready);
        for (enter, is_dead) in kind.enters.iter().zip(&frame.dead_enters) {
            if !enter.is_constant {
                let is_dead = is_dead.load(Ordering::Relaxed);
                let node = &self.exec.nodes[enter.node as usize];
                made += self.release(it, node, |_| is_dead, ready);
            }
        }
        self.settle(it, made as isize - 1, ready);
    }

    fn exit(
        &self,
        it: &Iteration,
        node: &ExecNode,
        position: u32,
        ready: &mut Vec<Ready>,
    ) -> Result<()> {
        let value = self.only_input(it, node)?;
        // SAFETY: an `Exit` stands in a loop; the frame outlives its iterations, and the iteration
        // that it stands in outlives the frame.
        let (frame, outside) = unsafe {
            let frame = &*it.frame;
            (frame, &*frame.parent.load(Ordering::Relaxed))
        };
        if frame.exited[position as usize].swap(true, Ordering::Relaxed) {
            ensure!(
                self.edges_of(node).is_empty(),
                InvalidArgument,
                "a second value leaves the loop here: an Exit takes what a Switch gives it when the \
                 loop ends"
            );
        } else {
            self.put(outside, node, 0, value);
            let made = self.release(outside, node, |_| false, ready);
            self.settle(outside, made as isize, ready);
        }
        self.settle(it, -1, ready);
        Ok(())
    }

    fn next_iteration(&self, it: &Iteration, index: u32, ready: &mut Vec<Ready>) -> Result<()> {
        let node = &self.exec.nodes[index as usize];
        let value = self.only_input(it, node)?;
        let mut next = it.next.load(Ordering::Acquire);
        if next.is_null() {
            next = self.begin_next(it, index, value, ready);
        } else {
            // SAFETY: the next iteration counts this one, which counts this node.
            self.put(unsafe { &*next }, node, 0, value);
        }
        // SAFETY: likewise.
        if let Some(next) = unsafe { next.as_ref() } {
            let made = self.release(next, node, |_| false, ready);
            self.settle(next, made as isize, ready);
        }
        self.settle(it, -1, ready);
        Ok(())
    }

    /// Passes a value to an iteration that had not begun when the caller checked; begins it unless
    /// `iterations_max` run. Null if it is deferred.
    fn begin_next(
        &self,
        it: &Iteration,
        index: u32,
        value: Value,
        ready: &mut Vec<Ready>,
    ) -> *mut Iteration {
        let node = &self.exec.nodes[index as usize];
        // SAFETY: a `NextIteration` stands in a loop; the frame outlives its iterations.
        let frame = unsafe { &*it.frame };
        let kind = self.static_frame(frame);
        let mut inner = frame.inner.lock();
        let begun = it.next.load(Ordering::Acquire);
        if !begun.is_null() {
            drop(inner);
            // SAFETY: as in `next_iteration`.
            self.put(unsafe { &*begun }, node, 0, value);
            return begun;
        }
        let is_new = inner.parked.is_null();
        if is_new {
            let number = it.number.load(Ordering::Relaxed) + 1;
            inner.parked = inner.take(frame, kind, number);
            inner.parked_after = it;
        }
        // SAFETY: the iteration is taken and waits; each node has its own slot in it.
        self.put(unsafe { &*inner.parked }, node, 0, value);
        if !is_new || inner.live >= kind.iterations_max {
            inner.parked_nodes.push(index);
            return ptr::null_mut();
        }
        let next = inner.parked;
        self.begin_parked(frame, kind, &mut inner, ready);
        next
    }

    /// Propagates deadness: a node with a dead input does not run, and its outputs are dead.
    fn pass_dead(
        self: &Arc<Self>,
        it: &Iteration,
        ready: Ready,
        start: Option<Duration>,
        runner: &mut Runner,
    ) -> Result<()> {
        let node = &self.exec.nodes[ready.node() as usize];
        match &node.kind {
            // A dead `_Send` sends a dead value, because its `_Recv` waits for one; a dead `_Recv` still
            // receives, because its `_Send` has sent.
            Kind::Send(key) => self.send(it, key, Value::Dead)?,
            Kind::Receive(_) => {
                self.start_node(ready, start, runner);
                return Ok(());
            }
            Kind::Fetch(i) => self.fetched(*i, Value::Dead)?,
            Kind::Enter(enter) => return self.enter(it, node, *enter, true, &mut runner.stack),
            _ => {}
        }
        if !matches!(node.kind, Kind::Merge(_)) {
            for &input in self.exec.inputs_of(node) {
                drop(it.take(input));
            }
        }
        match node.kind {
            Kind::Exit(_) | Kind::NextIteration => self.settle(it, -1, &mut runner.stack),
            _ => self.pass_on(it, node, |_| true, &mut runner.stack),
        }
        Ok(())
    }

    /// Stores the outputs of a node that completed later, and decrements its successors' counts.
    pub(super) fn release_framed(&self, done: Ready, outputs: Outputs, ready: &mut Vec<Ready>) {
        let node = &self.exec.nodes[done.node() as usize];
        // SAFETY: a `Ready` is counted by its iteration, which therefore is alive.
        let it = unsafe { &*done.iteration };
        let mut dead: smallvec::SmallVec<[bool; 8]> = smallvec::SmallVec::new();
        for (i, value) in outputs.into_iter().enumerate() {
            let is_dead = done.is_dead() || matches!(value, Value::Dead);
            if !is_dead {
                self.put(it, node, i as u32, value);
            }
            dead.push(is_dead);
        }
        let is_dead = |output: u32| match output {
            CONTROL => done.is_dead(),
            _ => dead[output as usize],
        };
        self.pass_on(it, node, is_dead, ready);
    }
}

/// The output of a `Switch` that a predicate selects: a bool, or an index, where one out of range means
/// the last output.
fn chosen_output(choice: &Value, outputs: u32) -> Result<u32> {
    let tensor = choice.tensor().ok_or_else(|| err!(Internal, "the choice is not a tensor"))?;
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "The second input must be a scalar, but it has shape {}",
        tensor.shape()
    );
    if let Ok(choice) = tensor.as_slice::<bool>() {
        return Ok(u32::from(choice[0]));
    }
    let choice = tensor.as_slice::<i32>()?[0];
    Ok(u32::try_from(choice).map_or(outputs - 1, |choice| choice.min(outputs - 1)))
}
