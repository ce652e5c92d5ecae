//! State that the gRPC and REST interfaces share: models, metrics, limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use thalweg_kernel::{Clock, Device};
use thalweg_tensor::{Budget, Result, ensure};

use crate::loader::Loader;
use crate::metrics::{Api, Entry, Metrics};
use crate::store::Store;

/// State of the server that all interfaces share.
pub struct Engine {
    /// The models.
    pub store: Store,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The memory budget of requests being received, of their decoded form, and of answers being
    /// sent.
    pub incoming: Arc<Budget>,
    /// The devices of the models.
    devices: Vec<Arc<dyn Device>>,
    clock: Arc<dyn Clock>,
    is_draining: AtomicBool,
    requests: AtomicUsize,
}

/// The maximum number of concurrent requests; further ones are rejected.
const REQUESTS_MAX: usize = 10_000;

/// One of the concurrent requests.
struct RequestSlot<'a>(&'a AtomicUsize);

impl Drop for RequestSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Engine {
    /// An engine for these models, which `loader` loads; requests and answers may take
    /// `incoming_bytes_max` bytes together.
    pub fn new(store: Store, loader: &Loader, incoming_bytes_max: usize) -> Engine {
        Engine {
            store,
            metrics: loader.metrics().clone(),
            incoming: Budget::new(incoming_bytes_max),
            devices: loader.session().devices.clone(),
            clock: loader.session().environment.clock.clone(),
            is_draining: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
        }
    }

    /// All metrics in Prometheus text format.
    pub fn metrics_text(&self) -> String {
        self.metrics.text(&self.store, &self.devices)
    }

    /// The number of concurrent requests.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    fn slot(&self) -> Result<RequestSlot<'_>> {
        let slot = RequestSlot(&self.requests);
        let before = self.requests.fetch_add(1, Ordering::Relaxed);
        ensure!(
            before < REQUESTS_MAX,
            ResourceExhausted,
            "{before} requests are in flight, the maximum of this server"
        );
        Ok(slot)
    }

    /// Marks the server as not ready.
    pub fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Whether the server is shutting down.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Whether every model has an available version, and the server is not shutting down.
    pub fn is_ready(&self) -> bool {
        !self.is_draining() && self.store.is_ready()
    }

    /// A monotonic clock.
    pub fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Answers one request and counts it in the metrics.
    pub async fn counted<T>(
        &self,
        model: &str,
        api: Api,
        entry: Entry,
        answer: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let begin = self.now();
        let result = match self.slot() {
            Ok(_place) => answer.await,
            Err(e) => Err(e),
        };
        let code = result.as_ref().err().map(thalweg_tensor::Error::code);
        // Unknown models must not add lines to the metrics.
        let model = if self.store.view(model).is_some() { model } else { "" };
        self.metrics.request(model, api, entry, code, self.now().saturating_sub(begin));
        result
    }
}
