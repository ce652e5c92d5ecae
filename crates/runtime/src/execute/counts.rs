//! Atomic counts of the executor: pending counts of nodes in graphs with control flow, where values
//! may be dead (`framed` describes their layout), readers of a value, and the outstanding work of an
//! iteration. `tests/loom` checks them.

use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Raised in an ordinary node's count when an edge into it is dead.
pub(crate) const DEAD: u32 = 1 << 31;
/// Raised in a merge's count when it has what it waits for.
pub(crate) const ARRIVED: u32 = 1 << 31;
/// The lower half of a merge's count: control edges.
pub(crate) const CONTROLS: u32 = (1 << INPUTS_SHIFT) - 1;
/// Where the upper half of a merge's count begins.
pub(crate) const INPUTS_SHIFT: u32 = 16;

/// Counts one edge into an ordinary node; whether it was the last. `dead` becomes the node's.
#[inline]
pub(super) fn counted(count: &AtomicU32, dead: &mut bool) -> bool {
    if *dead {
        count.fetch_or(DEAD, Ordering::Relaxed);
    }
    // Release: the thread that runs the node sees this thread's writes. Acquire: the last thread sees
    // those of the others.
    let before = count.fetch_sub(1, Ordering::AcqRel);
    *dead |= before & DEAD != 0;
    before & !DEAD == 1
}

/// Counts an input of a merge; whether the merge is ready, and if so, `dead` is the merge's. A dead
/// value that enters a loop is the end of it: nothing else comes in the first iteration.
pub(super) fn merge_input(
    count: &AtomicU32,
    input: u16,
    is_entering: bool,
    dead: &mut bool,
) -> bool {
    let after = |old: u32| {
        if old & ARRIVED != 0 {
            return None;
        }
        let controls = old & CONTROLS;
        if !*dead {
            return Some(ARRIVED | u32::from(input) << INPUTS_SHIFT | controls);
        }
        let left = if is_entering { 0 } else { (old >> INPUTS_SHIFT).saturating_sub(1) };
        let new = left << INPUTS_SHIFT | controls;
        // Nothing that comes later may make it run again.
        Some(if new == 0 { ARRIVED } else { new })
    };
    match count.fetch_update(Ordering::AcqRel, Ordering::Acquire, after) {
        Ok(old) => after(old).is_some_and(|new| new & ARRIVED != 0 && new & CONTROLS == 0),
        // Another input came first.
        Err(_) => false,
    }
}

/// Counts a control edge into a merge; as [`merge_input`].
pub(super) fn merge_control(count: &AtomicU32, dead: &mut bool) -> bool {
    let after = |old: u32| Some(if old == 1 { ARRIVED } else { old - 1 });
    match count.fetch_update(Ordering::AcqRel, Ordering::Acquire, after) {
        Ok(old) => {
            *dead = old == 1;
            old == 1 || old & ARRIVED != 0 && old & CONTROLS == 1
        }
        Err(_) => false,
    }
}

/// Whether all other readers of a value have read it, so that the caller may take it.
#[inline]
pub(super) fn is_last_reader(readers: &AtomicU32) -> bool {
    readers.load(Ordering::Acquire) == 1
}

/// Counts a reader off that has read the value; whether it was the last.
#[inline]
pub(super) fn has_read(readers: &AtomicU32) -> bool {
    readers.fetch_sub(1, Ordering::AcqRel) == 1
}

/// What is outstanding in an iteration: nodes ready or running, loops under way inside, and the
/// iteration before while it lasts.
#[derive(Default)]
pub(super) struct IterationCount(AtomicUsize);

impl IterationCount {
    /// Sets the count of an iteration that no other thread uses yet.
    #[inline]
    pub(super) fn begin(&self, count: usize) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// Counts `more`; the caller is counted already.
    #[inline]
    pub(super) fn add(&self, more: usize) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Counts one off; whether it was the last: then the iteration is the caller's own.
    #[inline]
    pub(super) fn release(&self) -> bool {
        self.0.fetch_sub(1, Ordering::AcqRel) == 1
    }
}
