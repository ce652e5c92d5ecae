//! Slots and pending counts of a running step: one set per running iteration of each loop, and one for
//! the graph outside of loops.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use thalweg_kernel::Value;

use crate::execute::counts::{IterationCount, has_read, is_last_reader};
use crate::execute::executable::{Input, SOLE};
use crate::execute::framed::FrameInfo;

/// A value that its producer writes before it decrements its successors' counts, and that readers read
/// afterwards. Only the last reader moves it out.
#[repr(transparent)]
pub(super) struct Slot(pub(super) UnsafeCell<Value>);

// SAFETY: the successors' counts order the one write before all reads, and the count of readers
// orders all reads before the last one's change.
unsafe impl Sync for Slot {}

pub(super) fn empty_slots(n: usize) -> Box<[Slot]> {
    (0..n).map(|_| Slot(UnsafeCell::new(Value::Empty))).collect()
}

fn counters(initial: &[u32]) -> Box<[AtomicU32]> {
    initial.iter().map(|&n| AtomicU32::new(n)).collect()
}

/// A ready node in one iteration. Two words, which are kept in registers:
/// with a third field it would be copied through memory, at a third of an `Identity`'s time.
#[derive(Clone, Copy)]
pub(super) struct Ready {
    pub(super) iteration: *const Iteration,
    /// The node; the highest bit says whether it is dead.
    node: u32,
}

impl Ready {
    /// A dead node does not run, and its outputs are dead.
    #[inline]
    pub(super) fn new(iteration: *const Iteration, node: u32, is_dead: bool) -> Ready {
        Ready { iteration, node: node | u32::from(is_dead) << 31 }
    }

    #[inline]
    pub(super) fn node(self) -> u32 {
        self.node & (u32::MAX >> 1)
    }

    /// Whether an input or control input is dead.
    #[inline]
    pub(super) fn is_dead(self) -> bool {
        self.node >> 31 != 0
    }
}

// SAFETY: an iteration may be used from any thread; whoever holds a `Ready` is counted by the
// iteration's `outstanding` (or holds the step's state, which owns the outermost one), so it is there.
unsafe impl Send for Ready {}

/// The values of one iteration of a loop, or of the graph outside of loops.
pub(super) struct Iteration {
    pub(super) values: Box<[Slot]>,
    /// For each output with several readers, how many have not read it.
    pub(super) readers: Box<[AtomicU32]>,
    /// Pending counts, as `framed` describes them.
    pub(super) pending: Box<[AtomicU32]>,
    pub(super) outstanding: IterationCount,
    /// Its loop; null outside of loops.
    pub(super) frame: *const FrameState,
    pub(super) number: AtomicU64,
    /// The iteration after this one, once it has begun.
    pub(super) next: AtomicPtr<Iteration>,
    /// The running loops inside this iteration.
    pub(super) children: Box<[AtomicPtr<FrameState>]>,
    /// Whether each edge must be counted, even one that its node waits for alone.
    pub(super) is_strict: AtomicBool,
}

// SAFETY: all fields are atomic, or slots, or do not change; `frame` owns the iteration.
unsafe impl Send for Iteration {}
// SAFETY: as above.
unsafe impl Sync for Iteration {}

impl Iteration {
    /// Room for values and counts; `children` loops stand in it.
    pub(super) fn new(
        num_values: usize,
        readers: &[u32],
        pending: &[u32],
        children: usize,
        frame: *const FrameState,
    ) -> Iteration {
        Iteration {
            values: empty_slots(num_values),
            readers: counters(readers),
            pending: counters(pending),
            outstanding: IterationCount::default(),
            frame,
            number: AtomicU64::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            children: (0..children).map(|_| AtomicPtr::default()).collect(),
            is_strict: AtomicBool::new(false),
        }
    }

    /// An input's value; the last reader takes it away, so that it holds the only reference.
    #[inline(always)]
    pub(super) fn take(&self, input: Input) -> Value {
        if input.shared == SOLE {
            // SAFETY: the caller owns the only node that reads this slot, and it was written before
            // that node's count fell to zero.
            return unsafe { std::mem::take(&mut *self.values[input.slot as usize].0.get()) };
        }
        self.take_shared(input)
    }

    /// The value of an input that others read too.
    #[inline]
    fn take_shared(&self, input: Input) -> Value {
        let Some(readers) = self.readers.get(input.shared as usize) else {
            return self.entered_once(input);
        };
        let slot = self.values[input.slot as usize].0.get();
        if is_last_reader(readers) {
            // SAFETY: all others have counted themselves off, after they read: this one is alone.
            return unsafe { std::mem::take(&mut *slot) };
        }
        // SAFETY: the slot was written before the node's count fell to zero, and no thread changes
        // it while a reader that has not counted itself off is left: this one.
        let value = unsafe { (*slot).clone() };
        if has_read(readers) {
            // SAFETY: all readers have counted themselves off, so this one is alone.
            unsafe { *slot = Value::Empty };
        }
        value
    }

    /// A value that entered a loop once.
    #[cold]
    fn entered_once(&self, input: Input) -> Value {
        // SAFETY: only nodes in loops have such inputs; the frame outlives its iterations, and its
        // constants were written before the first began.
        unsafe { (*(*self.frame).constants[input.slot as usize].0.get()).clone() }
    }

    /// Sets all counts of an iteration that is not in use.
    pub(super) fn reset(&mut self, readers: &[u32], pending: &[u32]) {
        for (count, &initial) in self.pending.iter_mut().zip(pending) {
            *count.get_mut() = initial;
        }
        for (count, &initial) in self.readers.iter_mut().zip(readers) {
            *count.get_mut() = initial;
        }
    }

    /// Drops values that no reader moved out.
    pub(super) fn clear(&mut self) {
        for slot in &mut self.values {
            *slot.0.get_mut() = Value::Empty;
        }
    }
}

/// A frame of a running loop, or an idle one.
pub(super) struct FrameState {
    /// Position among the executable's frames.
    pub(super) index: u32,
    /// The parent iteration.
    pub(super) parent: AtomicPtr<Iteration>,
    /// TensorFlow's id of this frame, a part of rendezvous keys.
    pub(super) id: AtomicU64,
    /// Loop constants: values that are the same in all iterations.
    pub(super) constants: Box<[Slot]>,
    /// Number of `Enter` nodes that have not run.
    pub(super) enters_left: AtomicU32,
    /// For each `Enter` node, whether its value is dead.
    pub(super) dead_enters: Box<[AtomicBool]>,
    /// For each exit, whether its value has left.
    pub(super) exited: Box<[AtomicBool]>,
    /// The first iteration.
    pub(super) first: AtomicPtr<Iteration>,
    pub(super) inner: Mutex<FrameInner>,
}

// SAFETY: as for `Iteration`; pointers in it are to iterations that it owns, or that outlive it.
unsafe impl Send for FrameState {}
// SAFETY: as above.
unsafe impl Sync for FrameState {}

/// A frame's iterations.
pub(super) struct FrameInner {
    /// All there are. Boxed, as others point to them.
    #[expect(clippy::vec_box, reason = "pointers to iterations must stay good")]
    owned: Vec<Box<Iteration>>,
    free: Vec<*mut Iteration>,
    /// Iterations that have begun and are not over.
    pub(super) live: u32,
    /// The iteration that may begin when another is over, if it has values; else null.
    pub(super) parked: *mut Iteration,
    /// The iteration before it.
    pub(super) parked_after: *const Iteration,
    /// The nodes that have handed it values.
    pub(super) parked_nodes: Vec<u32>,
}

impl FrameState {
    pub(super) fn new(index: u32, kind: &FrameInfo) -> Box<FrameState> {
        let flags = |n: usize| (0..n).map(|_| AtomicBool::new(false)).collect();
        Box::new(FrameState {
            index,
            parent: AtomicPtr::default(),
            id: AtomicU64::new(0),
            constants: empty_slots(kind.num_constants),
            enters_left: AtomicU32::new(0),
            dead_enters: flags(kind.enters.len()),
            exited: flags(kind.exits.len()),
            first: AtomicPtr::default(),
            inner: Mutex::new(FrameInner {
                owned: Vec::new(),
                free: Vec::new(),
                live: 0,
                parked: ptr::null_mut(),
                parked_after: ptr::null(),
                parked_nodes: Vec::new(),
            }),
        })
    }

    /// Resets an idle frame for another run of the loop.
    pub(super) fn prepare(&self, kind: &FrameInfo, parent: *const Iteration, id: u64) {
        self.parent.store(parent.cast_mut(), Ordering::Relaxed);
        self.id.store(id, Ordering::Relaxed);
        self.enters_left.store(kind.enters.len() as u32, Ordering::Relaxed);
        for flag in self.dead_enters.iter().chain(&self.exited) {
            flag.store(false, Ordering::Relaxed);
        }
        let mut inner = self.inner.lock();
        let first = inner.take(self, kind, 0);
        self.first.store(first, Ordering::Relaxed);
    }
}

impl FrameInner {
    /// An unused iteration, with its counts set.
    pub(super) fn take(
        &mut self,
        frame: &FrameState,
        kind: &FrameInfo,
        number: u64,
    ) -> *mut Iteration {
        let it = self.free.pop().unwrap_or_else(|| {
            let (values, children) = (kind.num_values, kind.num_children as usize);
            let new = Iteration::new(values, &kind.readers, &kind.pending, children, frame);
            self.owned.push(Box::new(new));
            let last = self.owned.last_mut().expect("one was just pushed");
            ptr::from_mut::<Iteration>(last)
        });
        // SAFETY: the frame owns it, and it is not in use: it is new, or was given back.
        let it_ref = unsafe { &mut *it };
        *it_ref.number.get_mut() = number;
        *it_ref.next.get_mut() = ptr::null_mut();
        *it_ref.is_strict.get_mut() = false;
        it
    }

    /// Takes an iteration back.
    ///
    /// # Safety
    ///
    /// It is one of this frame's, and not in use.
    pub(super) unsafe fn give_back(&mut self, it: *mut Iteration, kind: &FrameInfo) {
        // SAFETY: the caller's promise.
        let it_ref = unsafe { &mut *it };
        it_ref.clear();
        it_ref.reset(&kind.readers, &kind.pending);
        self.free.push(it);
    }
}

/// The frames of one step, running and idle.
#[derive(Default)]
pub(super) struct FramePool {
    /// All there are. Boxed, as others point to them.
    #[expect(clippy::vec_box, reason = "pointers to frames must stay good")]
    owned: Vec<Box<FrameState>>,
    /// For each of the executable's frames, those that are idle.
    free: Vec<Vec<*const FrameState>>,
    /// Number of running frames.
    pub(super) live: usize,
}

// SAFETY: the pointers are to frames that it owns.
unsafe impl Send for FramePool {}

impl FramePool {
    /// An unused frame.
    pub(super) fn take(&mut self, index: u32, kind: &FrameInfo) -> *const FrameState {
        self.live += 1;
        if let Some(frame) = self.free.get_mut(index as usize).and_then(Vec::pop) {
            return frame;
        }
        self.owned.push(FrameState::new(index, kind));
        let last = self.owned.last().expect("one was just pushed");
        ptr::from_ref::<FrameState>(last)
    }

    /// Recycles a frame that is not used any more.
    pub(super) fn give_back(&mut self, frame: &FrameState) {
        self.live -= 1;
        let index = frame.index as usize;
        if self.free.len() <= index {
            self.free.resize_with(index + 1, Vec::new);
        }
        self.free[index].push(frame);
    }
}
