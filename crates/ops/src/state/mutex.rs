//! `MutexV2` and `MutexLock`: the lock is held as long as its tensor exists.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{
    AnyKernel, AsyncCall, AsyncKernel, Family, KernelInit, KernelSpec, Outputs, Registration,
};
use thalweg_tensor::{Bytes, Resource, Result, Shape, Tensor, Variant, bail, ensure};

use super::handle::{state_kernel, state_of_call};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("MutexV2", shape::scalar),
        OpDef::new("MutexLock", shape::scalar),
        OpDef::new("ConsumeMutexLock", shape::unknown),
    ],
    kernels: &[
        KernelSpec { op: "MutexV2", create: mutex, is_cheap: true, ..KernelSpec::CPU },
        KernelSpec { op: "MutexLock", create: lock, ..KernelSpec::CPU },
        KernelSpec { op: "ConsumeMutexLock", create: consume, is_cheap: true, ..KernelSpec::CPU },
    ],
};

/// A mutex resource.
#[derive(Default)]
struct Mutex(Arc<SharedLock>);

/// State of the lock and the waiting calls.
#[derive(Default)]
struct SharedLock(parking_lot::Mutex<State>);

#[derive(Default)]
struct State {
    is_held: bool,
    /// A thread runs [`SharedLock::serve`] and will handle changes that occur meanwhile.
    is_serving: bool,
    waiting: VecDeque<Waiting>,
    next_id: u64,
}

struct Waiting {
    id: u64,
    call: AsyncCall,
    /// Ends the wait when the step is cancelled.
    registration: Option<Registration>,
}

impl Resource for Mutex {
    fn kind(&self) -> &'static str {
        "Mutex"
    }
}

/// A held lock, which is released with the last tensor that holds it.
struct Lock(Arc<SharedLock>);

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.0.lock().is_held = false;
        self.0.serve();
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("mutex lock")
    }
}

impl Variant for Lock {
    fn type_name(&self) -> &str {
        "(anonymous namespace)::Mutex::SharedLockReleaser"
    }

    fn encode(&self) -> Option<(Bytes, Vec<Tensor>)> {
        None
    }
}

impl SharedLock {
    /// Grants the lock to the next call while it is free. A call may complete, and drop its lock,
    /// before `serve` continues: a loop instead of recursion bounds the stack for any number of
    /// waiting calls.
    fn serve(self: &Arc<Self>) {
        let mut state = self.0.lock();
        if state.is_serving {
            return;
        }
        state.is_serving = true;
        while !state.is_held
            && let Some(next) = state.waiting.pop_front()
        {
            state.is_held = true;
            drop(state);
            drop(next.registration);
            next.call.complete(locked(Lock(self.clone())));
            state = self.0.lock();
        }
        state.is_serving = false;
    }

    /// Completes `call` with the lock once it is free, or with its step's cancellation.
    fn acquire(self: &Arc<Self>, call: AsyncCall) {
        let cancellation = call.step.cancellation().clone();
        let id = {
            let mut state = self.0.lock();
            let id = state.next_id;
            state.next_id += 1;
            state.waiting.push_back(Waiting { id, call, registration: None });
            id
        };
        self.serve();
        if !self.0.lock().waiting.iter().any(|waiting| waiting.id == id) {
            return;
        }
        let this = Arc::downgrade(self);
        let registration = cancellation.on_cancel(move |cause| {
            let Some(this) = this.upgrade() else { return };
            let mut state = this.0.lock();
            let position = state.waiting.iter().position(|waiting| waiting.id == id);
            let waiting = position.and_then(|i| state.waiting.remove(i));
            drop(state);
            if let Some(waiting) = waiting {
                drop(waiting.registration);
                waiting.call.complete(Err(cause.clone()));
            }
        });
        let mut state = self.0.lock();
        match state.waiting.iter_mut().find(|waiting| waiting.id == id) {
            Some(waiting) => waiting.registration = Some(registration),
            // Served or cancelled meanwhile.
            None => {
                drop(state);
                drop(registration);
            }
        }
    }
}

fn locked(lock: Lock) -> Result<Outputs> {
    let lock: Arc<dyn Variant> = Arc::new(lock);
    let tensor = Tensor::from_variants(Shape::scalar(), vec![Some(lock)])?;
    Ok(smallvec::smallvec![tensor.into()])
}

fn mutex(init: &KernelInit<'_>) -> Result<AnyKernel> {
    state_kernel(init, true, |_, _| Ok(Mutex::default()), |_: &Mutex, _| Ok(()))
}

/// The kernel of `MutexLock`, which waits for the mutex or the end of the step.
struct AcquireKernel;

impl AsyncKernel for AcquireKernel {
    fn start(&self, call: AsyncCall) {
        match state_of_call::<Mutex>(&call, 0) {
            Ok(mutex) => mutex.0.acquire(call),
            Err(e) => call.complete(Err(e)),
        }
    }
}

fn lock(_: &KernelInit<'_>) -> Result<AnyKernel> {
    Ok(AnyKernel::Async(Arc::new(AcquireKernel)))
}

fn consume(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let tensor = ctx.input(0)?;
        let ([lock], 0) = (tensor.variants()?, tensor.rank()) else {
            bail!(InvalidArgument, "a lock is a scalar, got shape {}", tensor.shape());
        };
        let Some(lock) = lock else {
            bail!(InvalidArgument, "Expected input to contain a mutex lock, but it is empty");
        };
        let any: &dyn std::any::Any = &**lock;
        ensure!(
            any.is::<Lock>(),
            InvalidArgument,
            "Expected input to contain a mutex lock, got {}",
            lock.type_name()
        );
        // Tensors that share the lock's element count once; a copy of the element counts again.
        let users = Arc::strong_count(lock);
        ensure!(
            users == 1,
            InvalidArgument,
            "Expected use count of lock to be 1, but saw: {users}"
        );
        Ok(())
    })
}
