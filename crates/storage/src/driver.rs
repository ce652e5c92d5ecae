//! I/O threads for stores, with blocking callers.

use std::future::Future;
use std::sync::{Arc, mpsc};

use thalweg_tensor::{Result, err};
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;

/// The number of I/O threads.
const THREADS: usize = 2;

/// Runs asynchronous requests. Callers block on a channel, so they may be on any thread.
#[derive(Clone)]
pub(crate) struct Driver(Arc<Threads>);

struct Threads(Option<Runtime>);

impl Drop for Threads {
    fn drop(&mut self) {
        // The last owner may be a thread that must not block.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Driver {
    pub(crate) fn new() -> Result<Driver> {
        let mut builder = Builder::new_multi_thread();
        let builder = builder.worker_threads(THREADS).thread_name("thalweg-storage").enable_all();
        let runtime = builder.build().map_err(|e| {
            err!(ResourceExhausted, "cannot start the I/O threads for remote stores: {e}")
        })?;
        Ok(Driver(Arc::new(Threads(Some(runtime)))))
    }

    /// Starts a request whose result is awaited later.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Pending<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let runtime = self.0.0.as_ref().expect("only `drop` takes the runtime");
        let task = runtime.spawn(async move {
            let _ = sender.send(work.await);
        });
        Pending { receiver, task: task.abort_handle() }
    }

    /// Runs a request and waits for its result.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.start(work).wait()
    }

    /// The runtime handle for libraries that spawn tasks.
    #[cfg(feature = "hdfs")]
    pub(crate) fn handle(&self) -> tokio::runtime::Handle {
        self.0.0.as_ref().expect("only `drop` takes the runtime").handle().clone()
    }
}

/// A request in flight; cancelled on drop.
pub(crate) struct Pending<T> {
    receiver: mpsc::Receiver<Result<T>>,
    task: AbortHandle,
}

impl<T> Pending<T> {
    pub(crate) fn wait(self) -> Result<T> {
        // A task that panicked drops its sender.
        let lost =
            |_| err!(Internal, "internal error: a request to a store ended without a result");
        self.receiver.recv().map_err(lost)?
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
