//! Kernels that iterate over a dataset until they have their result.

use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use thalweg_kernel::{AsyncCall, Outputs, Registration};
use thalweg_tensor::{Result, err};

use super::scope::Scope;
use super::task::{After, Task, Work};

/// A state machine that is polled until it returns the kernel's result.
pub(crate) type Machine = Box<dyn FnMut(&mut Context<'_>) -> Poll<Result<Outputs>> + Send>;

/// A machine that runs for an asynchronous call.
struct Drive {
    running: Mutex<Option<Running>>,
    registration: OnceLock<Registration>,
}

struct Running {
    machine: Machine,
    call: AsyncCall,
    scope: Arc<Scope>,
}

impl Drop for Drive {
    fn drop(&mut self) {
        if let Some(running) = self.running.get_mut() {
            running
                .scope
                .cancellation
                .cancel(err!(Cancelled, "the call was dropped by its caller"));
        }
    }
}

impl Work for Drive {
    fn advance(&self, cx: &mut Context<'_>) -> After {
        let mut running = self.running.lock();
        let Some(Running { machine, call, .. }) = &mut *running else { return After::default() };
        let result = match call.step.cancellation().check() {
            Ok(()) => match machine(cx) {
                Poll::Ready(result) => result,
                Poll::Pending => return After::default(),
            },
            Err(cause) => Err(cause),
        };
        let done = running.take();
        drop(running);
        After {
            is_more: false,
            then: done.map(|Running { machine, call, scope }| {
                Box::new(move || {
                    scope.cancellation.cancel(err!(Cancelled, "the call has completed"));
                    drop(machine);
                    call.complete(result);
                }) as Box<dyn FnOnce() + Send>
            }),
        }
    }
}

/// Runs the machine of `make` and completes `call` with its result; the step's cancellation ends
/// it.
pub(crate) fn drive(call: AsyncCall, make: impl FnOnce(&Arc<Scope>) -> Result<Machine>) {
    let scope = Scope::new(&call.step);
    let machine = match make(&scope) {
        Ok(machine) => machine,
        Err(e) => return call.complete(Err(e)),
    };
    let step = call.step.clone();
    let running = Mutex::new(Some(Running { machine, call, scope: scope.clone() }));
    let task = Task::new(&scope.background, Drive { running, registration: OnceLock::new() });
    task.run_here();
    if task.work.running.lock().is_none() {
        return;
    }
    let weak = Arc::downgrade(&task);
    let cancelled = scope.cancellation.clone();
    let registration = step.cancellation().on_cancel(move |cause| {
        // Cancels what the machine waits for, and then polls the machine once more.
        cancelled.cancel(cause.clone());
        if let Some(task) = weak.upgrade() {
            task.notify();
        }
    });
    // If the call has already completed, the registration is dropped with the task.
    let _ = task.work.registration.set(registration);
}
