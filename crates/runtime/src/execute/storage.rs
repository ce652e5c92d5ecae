//! The slots and counts of a step, kept for a later one: functions that datasets call for every
//! element, and small branches, run too short to ask for memory each time.

use std::ptr;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use thalweg_kernel::Value;

use super::StepState;
use super::iteration::{Iteration, Slot, empty_slots};
use crate::execute::executable::Executable;

/// What an executable keeps: this many, if each takes no more than so much.
const KEPT_MAX: usize = 8;
const BYTES_MAX: usize = 64 << 10;

/// Where the values of a step lie.
pub(super) struct Storage {
    /// What lies outside of loops.
    pub(super) outside: Iteration,
    pub(super) feeds: Box<[Slot]>,
    pub(super) fetches: Box<[Slot]>,
    /// With branches and loops, for each fetch, whether it was set: a node in a loop may try again.
    pub(super) is_fetched: Box<[AtomicBool]>,
}

/// Storage of steps that ended well, empty.
#[derive(Default)]
pub(crate) struct KeptStorage(Mutex<Vec<Storage>>);

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

    /// Storage for a step, kept or new.
    pub(super) fn of(exec: &Executable) -> Storage {
        let kept = exec.kept_storage.0.lock().pop();
        match kept {
            Some(mut storage) => {
                storage.outside.reset(&exec.readers, &exec.pending);
                storage
            }
            None => Storage::new(exec),
        }
    }
}

impl Drop for StepState {
    /// Gives the storage back, if all values in it were taken: in a step that ended well, without
    /// branches, each was by its last reader.
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
        // What a caller gave and nobody read, or did not ask for.
        for slot in storage.feeds.iter_mut().chain(&mut storage.fetches) {
            *slot.0.get_mut() = Value::Empty;
        }
        let mut kept = exec.kept_storage.0.lock();
        if kept.len() < KEPT_MAX {
            kept.push(storage);
        }
    }
}
