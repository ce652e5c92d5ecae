//! What the interfaces share: models, metrics, limits, and how requests are answered and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thalweg_kernel::Clock;
use thalweg_tensor::{Budget, Result};

use crate::loader::Loader;
use crate::metrics::{Api, Entry, Metrics};
use crate::store::Store;

/// Answers requests, however they come.
pub struct Engine {
    /// The models.
    pub store: Store,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Memory of messages that are being received, and of what they say at length.
    pub incoming: Arc<Budget>,
    clock: Arc<dyn Clock>,
    is_draining: AtomicBool,
}

impl Engine {
    /// Answers from these models, which `loader` loads; messages on their way in may take so many
    /// bytes together.
    pub fn new(store: Store, loader: &Loader, incoming_bytes_max: usize) -> Engine {
        Engine {
            store,
            metrics: loader.metrics().clone(),
            incoming: Budget::new(incoming_bytes_max),
            clock: loader.session().environment.clock.clone(),
            is_draining: AtomicBool::new(false),
        }
    }

    /// From now on the server is not ready.
    pub fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Whether the server is about to end.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Whether every model has a version that takes requests, and the server is to stay.
    pub fn is_ready(&self) -> bool {
        !self.is_draining() && self.store.is_ready()
    }

    /// Time since some moment.
    pub fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Answers one request and counts it.
    pub async fn counted<T>(
        &self,
        model: &str,
        api: Api,
        entry: Entry,
        answer: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let begin = self.now();
        let result = answer.await;
        let code = result.as_ref().err().map(thalweg_tensor::Error::code);
        // Models that nobody has would each add lines of their own.
        let model = if self.store.view(model).is_some() { model } else { "" };
        self.metrics.request(model, api, entry, code, self.now().saturating_sub(begin));
        result
    }
}
