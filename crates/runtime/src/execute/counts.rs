//! Pending counts of nodes in graphs with control flow, where values may be dead; `framed` describes
//! their layout.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::execute::framed::{ARRIVED, CONTROLS, DEAD, INPUTS_SHIFT};

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
