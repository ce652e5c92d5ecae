//! The rendezvous of a step within one process.

use rustc_hash::FxHashMap;
use thalweg_kernel::{Received, Rendezvous, RendezvousKey, Value};
use thalweg_tensor::{Error, Result, bail};

use crate::sync::Mutex;

/// A table of values that were sent and not received, and of receivers that wait.
#[derive(Default)]
pub struct LocalRendezvous {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    slots: FxHashMap<RendezvousKey, Slot>,
    aborted: Option<Error>,
}

enum Slot {
    Sent(Value),
    Wanted(Received),
}

impl LocalRendezvous {
    /// Whether no value and no receiver is left.
    pub fn is_empty(&self) -> bool {
        self.state.lock().slots.is_empty()
    }
}

impl Rendezvous for LocalRendezvous {
    fn send(&self, key: &RendezvousKey, value: Value) -> Result<()> {
        let mut state = self.state.lock();
        if let Some(cause) = &state.aborted {
            return Err(cause.clone());
        }
        match state.slots.remove(key) {
            Some(Slot::Wanted(received)) => {
                drop(state);
                received(Ok(value));
            }
            Some(Slot::Sent(_)) => bail!(Internal, "{key:?} was sent twice"),
            None => {
                state.slots.insert(key.clone(), Slot::Sent(value));
            }
        }
        Ok(())
    }

    fn receive(&self, key: &RendezvousKey, received: Received) {
        let mut state = self.state.lock();
        if let Some(cause) = state.aborted.clone() {
            drop(state);
            received(Err(cause));
            return;
        }
        match state.slots.remove(key) {
            Some(Slot::Sent(value)) => {
                drop(state);
                received(Ok(value));
            }
            Some(Slot::Wanted(other)) => {
                drop(state);
                let twice = thalweg_tensor::err!(Internal, "{key:?} is received twice");
                other(Err(twice.clone()));
                received(Err(twice));
            }
            None => {
                state.slots.insert(key.clone(), Slot::Wanted(received));
            }
        }
    }

    fn abort(&self, cause: &Error) {
        let waiting = {
            let mut state = self.state.lock();
            state.aborted.get_or_insert_with(|| cause.clone());
            std::mem::take(&mut state.slots)
        };
        for slot in waiting.into_values() {
            if let Slot::Wanted(received) = slot {
                received(Err(cause.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use thalweg_tensor::err;

    #[test]
    fn either_order_meets_and_abort_ends_waiting() {
        let (table, arrived) = (LocalRendezvous::default(), Arc::new(AtomicUsize::new(0)));
        let key = |name: &str| RendezvousKey::new("a", 1, "b", name);
        let count = |weight: usize| -> Received {
            let arrived = arrived.clone();
            Box::new(move |result| {
                arrived.fetch_add(
                    if result.is_ok() { weight } else { 100 * weight },
                    Ordering::Relaxed,
                );
            })
        };
        table.send(&key("x"), Value::Dead).unwrap();
        table.receive(&key("x"), count(1));
        table.receive(&key("y"), count(2));
        table.send(&key("y"), Value::Dead).unwrap();
        assert_eq!(arrived.load(Ordering::Relaxed), 3);
        table.receive(&key("z"), count(1));
        table.abort(&err!(Aborted, "over"));
        table.receive(&key("z"), count(1));
        assert_eq!(arrived.load(Ordering::Relaxed), 203);
        assert_eq!(table.send(&key("z"), Value::Dead).unwrap_err().code(), Code::Aborted);
    }
}
