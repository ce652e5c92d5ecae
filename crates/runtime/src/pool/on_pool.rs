//! Jobs of the pool whose results async tasks await; any async runtime will do.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use thalweg_tensor::{Result, err};

use super::Pool;

/// Runs `body` on the process's pool, so that it does not hold up the I/O thread that awaits it.
pub fn on_pool<T: Send + 'static>(
    body: impl FnOnce() -> Result<T> + Send + 'static,
) -> impl Future<Output = Result<T>> {
    let slot = Arc::new(Slot(Mutex::new(State::Running(None))));
    let completion = Completion(slot.clone());
    Pool::global().spawn(move || completion.0.complete(body()));
    Awaited(slot)
}

enum State<T> {
    Running(Option<Waker>),
    Done(Result<T>),
    Taken,
}

struct Slot<T>(Mutex<State<T>>);

impl<T> Slot<T> {
    /// Stores the first result and wakes the task that awaits it.
    fn complete(&self, result: Result<T>) {
        let mut state = self.0.lock();
        if let State::Running(waker) = &mut *state {
            let waker = waker.take();
            *state = State::Done(result);
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

/// Completes a job that panicked, or that the pool dropped.
struct Completion<T>(Arc<Slot<T>>);

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        self.0.complete(Err(err!(Internal, "a job of the pool ended without a result")));
    }
}

struct Awaited<T>(Arc<Slot<T>>);

impl<T> Future for Awaited<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let mut state = self.0.0.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Done(result) => Poll::Ready(result),
            _ => {
                *state = State::Running(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;
    use std::thread::Thread;

    use thalweg_tensor::Code;

    use super::*;

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut future = std::pin::pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(result) => return result,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    #[test]
    fn results_errors_and_dropped_jobs_are_awaited() {
        assert_eq!(block_on(on_pool(|| Ok(7))).unwrap(), 7);
        let failed: Result<()> = block_on(on_pool(|| Err(err!(NotFound, "no"))));
        assert_eq!(failed.unwrap_err().code(), Code::NotFound);
        let slot = Arc::new(Slot::<()>(Mutex::new(State::Running(None))));
        drop(Completion(slot.clone()));
        assert_eq!(block_on(Awaited(slot)).unwrap_err().code(), Code::Internal);
    }
}
