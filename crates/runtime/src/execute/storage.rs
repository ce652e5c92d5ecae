//! The slots and counts of one execution of an executable, recycled: functions that datasets call for
//! every element, and small branches, are too short to allocate them each time.

use std::ptr;
use std::sync::atomic::AtomicBool;

use thalweg_kernel::Value;

use super::StepState;
use super::iteration::{Iteration, Slot, empty_slots};
use crate::execute::executable::Executable;
use crate::execute::recycler::Recycler;

/// Most storages that an executable keeps.
const KEPT_MAX: usize = 8;
/// Most bytes of one that is kept.
const BYTES_MAX: usize = 64 << 10;

/// The values of one execution.
pub(super) struct Storage {
    /// Values outside of loops.
    pub(super) outside: Iteration,
    pub(super) feeds: Box<[Slot]>,
    pub(super) fetches: Box<[Slot]>,
    /// With branches and loops, for each fetch, whether it was set: a node in a loop may try again.
    pub(super) is_fetched: Box<[AtomicBool]>,
}

/// Storage of executions that ended well; all its slots are empty.
pub(crate) struct KeptStorage(Recycler<Storage>);

impl Default for KeptStorage {
    fn default() -> KeptStorage {
        KeptStorage(Recycler::new(KEPT_MAX))
    }
}

impl Storage {
    fn new(exec: &Executable) -> Storage {
        Storage {
            outside: Iteration::new(
                exec.num_values,
                &exec.readers,
                &exec.pending,
                exec.framed.as_ref().map_or(0, |f| f.frames[0].num_children as usize),
                ptr::null(),
            ),
            feeds: empty_slots(exec.feeds.len()),
            fetches: empty_slots(exec.num_fetches),
            is_fetched: match exec.framed {
                Some(_) => (0..exec.num_fetches).map(|_| AtomicBool::new(false)).collect(),
                None => Box::default(),
            },
        }
    }

    /// Storage for an execution, recycled or new.
    pub(super) fn of(exec: &Executable) -> Storage {
        match exec.kept_storage.0.take() {
            Some(mut storage) => {
                storage.outside.reset(&exec.readers, &exec.pending);
                storage
            }
            None => Storage::new(exec),
        }
    }
}

impl Drop for StepState {
    /// Recycles the storage, if all its values were taken: in an execution that ended well, without
    /// branches, the last reader of each value takes it.
    fn drop(&mut self) {
        let exec = &self.exec;
        let is_empty = exec.framed.is_none() && !self.shared.cancellation.is_cancelled();
        if !is_empty || exec.state_bytes() > BYTES_MAX {
            return;
        }
        let mut storage = Storage {
            outside: std::mem::replace(
                &mut self.outside,
                Iteration::new(0, &[], &[], 0, ptr::null()),
            ),
            feeds: std::mem::take(&mut self.feeds),
            fetches: std::mem::take(&mut self.fetches),
            is_fetched: Box::default(),
        };
        // Feeds that no node read, and fetches that the caller did not take.
        for slot in storage.feeds.iter_mut().chain(&mut storage.fetches) {
            *slot.0.get_mut() = Value::Empty;
        }
        exec.kept_storage.0.put(storage);
    }
}
