//! Events: the end of what a plugin does in the background.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use thalweg_tensor::Result;

use super::args::{Args, Function, Slot};
use super::{Client, Object};

thread_local! {
    /// Whether this thread is in a callback of a plugin.
    pub(super) static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Something that a plugin will have done.
pub(super) struct Event {
    pub(super) client: Arc<Client>,
    pub(super) object: Object,
}

/// A callback for the end of an event.
pub(super) type Callback = Box<dyn FnOnce(Result<()>) + Send>;

impl Event {
    /// Calls `callback` once the event has happened: at once, or on a thread of the plugin.
    pub(super) fn on_ready(self, callback: Callback) {
        let (api, event) = (self.client.api, self.object);
        let waiting = Box::into_raw(Box::new((self, callback)));
        let callee = address_of(completed);
        let mut args = Args::new(&[event.slot(), callee, waiting.cast()]);
        // SAFETY: the event is alive, the callback has PJRT's type and takes what it is given here.
        let registered = unsafe { api.call(Function::EventOnReady, &mut args) };
        if let Err(e) = registered {
            tracing::warn!("a PJRT plugin takes no callback: {e}");
            // SAFETY: the plugin did not take the callback, so the box is still this function's.
            let (event, callback) = *unsafe { Box::from_raw(waiting) };
            let outcome = event.wait();
            run(callback, outcome);
        }
    }

    /// Blocks until the event has happened.
    fn wait(&self) -> Result<()> {
        // SAFETY: the event is alive.
        unsafe { self.client.api.ask(Function::EventAwait, self.object) }.map(drop)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: nobody else has the event.
        unsafe { self.client.api.destroy(Function::EventDestroy, self.object) };
    }
}

fn address_of(callback: unsafe extern "C" fn(Slot, Slot)) -> Slot {
    callback as Slot
}

/// What a plugin calls when an event has happened.
///
/// # Safety
/// `error` is null or an error for the callee to free; `waiting` is from [`Event::on_ready`], whose event
/// calls this once.
unsafe extern "C" fn completed(error: Slot, waiting: Slot) {
    // SAFETY: `on_ready` made the box and gave it up.
    let (event, callback) = *unsafe { Box::from_raw(waiting.cast::<(Event, Callback)>()) };
    // SAFETY: the error is ours.
    let outcome = unsafe { event.client.api.result(error) };
    let was_in_callback = IN_CALLBACK.replace(true);
    run(callback, outcome);
    drop(event);
    IN_CALLBACK.set(was_in_callback);
}

/// Calls `callback`; a panic ends here, as a plugin cannot unwind.
pub(super) fn run(callback: Callback, outcome: Result<()>) {
    if catch_unwind(AssertUnwindSafe(|| callback(outcome))).is_err() {
        tracing::error!("a callback of a PJRT event panicked");
    }
}
