//! Sets of slots of a shared-memory ring: one thread takes slots out, another puts them back.
//!
//! Adding a slot has release ordering, taking it acquire ordering: all reads of a slot happen before the next
//! write to it. `tests/loom` checks this.

use crate::sync::atomic::{AtomicU32, Ordering};

/// Slots of a ring.
pub(super) const SLOTS: usize = 4;

/// A set of slots.
#[derive(Default)]
pub(super) struct SlotSet(AtomicU32);

impl SlotSet {
    pub(super) fn all() -> SlotSet {
        SlotSet(AtomicU32::new((1 << SLOTS) - 1))
    }

    /// False if there is no such slot, or it is in the set already.
    pub(super) fn add(&self, slot: u64) -> bool {
        slot < SLOTS as u64 && self.0.fetch_or(1 << slot, Ordering::AcqRel) & (1 << slot) == 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    /// Takes a slot out of the set, if there is one.
    pub(super) fn take(&self) -> Option<usize> {
        let slot = self.0.load(Ordering::Acquire).trailing_zeros();
        // Only one side takes, so the slot is still there.
        let is_there = slot < u32::BITS;
        is_there.then(|| self.0.fetch_and(!(1 << slot), Ordering::AcqRel)).map(|_| slot as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_taken_and_given_back_once() {
        let free = SlotSet::all();
        let taken: Vec<usize> = std::iter::from_fn(|| free.take()).collect();
        assert_eq!(taken, [0, 1, 2, 3]);
        assert!(free.is_empty());
        assert!(free.add(2) && !free.add(2) && !free.add(SLOTS as u64) && !free.add(u64::MAX));
        assert_eq!((free.take(), free.take()), (Some(2), None));
    }
}
