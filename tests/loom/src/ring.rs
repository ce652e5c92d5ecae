//! The shared-memory ring between two tasks: which slots may be filled.

use loom::sync::{Arc, mpsc};
use loom::thread;

use crate::shared_cell::SharedCell;

#[path = "../../../crates/cluster/src/network/stream/slot_set.rs"]
mod slot_set;

use slot_set::{SLOTS, SlotSet};

/// Parts of tensors go through the slots, the receiver frees each after it has read it: every part
/// arrives whole, in order, and a sender that found no free slot is notified of the next.
///
/// The channels stand for the socket, by which the receiver learns of a filled slot; in a task the
/// thread that reads the socket adds the freed slots to the set and wakes the one that fills them.
pub fn slots_model(slots: usize, parts: u32) {
    let free = Arc::new(SlotSet::default());
    (0..slots).for_each(|slot| assert!(free.add(slot as u64)));
    let memory: Arc<Vec<_>> = Arc::new((0..SLOTS).map(|_| SharedCell::new(0)).collect());
    let (filled, places) = mpsc::channel::<usize>();
    let (freed, calls) = mpsc::channel::<()>();
    let receiver = {
        let (free, memory) = (free.clone(), memory.clone());
        thread::spawn(move || {
            for part in 0..parts {
                let slot = places.recv().unwrap();
                memory[slot].read(|bytes| assert_eq!(*bytes, part + 1));
                assert!(free.add(slot as u64), "it was taken");
                freed.send(()).unwrap();
            }
        })
    };
    for part in 0..parts {
        let slot = loop {
            match free.take() {
                Some(slot) => break slot,
                None => calls.recv().unwrap(),
            }
        };
        memory[slot].write(|bytes| *bytes = part + 1);
        filled.send(slot).unwrap();
    }
    receiver.join().unwrap();
    assert_eq!(std::iter::from_fn(|| free.take()).count(), slots);
}
