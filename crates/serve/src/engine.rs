//! What the interfaces share: models, metrics, limits, and how requests are answered and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use thalweg_kernel::Clock;
use thalweg_tensor::{Budget, Result, ensure};

use crate::loader::Loader;
use crate::metrics::{Api, Entry, Metrics};
use crate::store::Store;

/// Answers requests, however they come.
pub struct Engine {
    /// The models.
    pub store: Store,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Memory of requests on their way in and of what they become, and of answers on their way out.
    pub incoming: Arc<Budget>,
    clock: Arc<dyn Clock>,
    is_draining: AtomicBool,
    requests: AtomicUsize,
}

/// Requests that may be on their way at once; whoever asks beyond that is told to come back.
const REQUESTS_MAX: usize = 10_000;

/// One of the requests on their way.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Engine {
    /// Answers from these models, which `loader` loads; requests and answers on their way may take so
    /// many bytes together.
    pub fn new(store: Store, loader: &Loader, incoming_bytes_max: usize) -> Engine {
        Engine {
            store,
            metrics: loader.metrics().clone(),
            incoming: Budget::new(incoming_bytes_max),
            clock: loader.session().environment.clock.clone(),
            is_draining: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
        }
    }

    /// Requests on their way now.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    fn place(&self) -> Result<Place<'_>> {
        let place = Place(&self.requests);
        let before = self.requests.fetch_add(1, Ordering::Relaxed);
        ensure!(
            before < REQUESTS_MAX,
            ResourceExhausted,
            "{before} requests are on their way, as many as this server takes"
        );
        Ok(place)
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
        let result = match self.place() {
            Ok(_place) => answer.await,
            Err(e) => Err(e),
        };
        let code = result.as_ref().err().map(thalweg_tensor::Error::code);
        // Models that nobody has would each add lines of their own.
        let model = if self.store.view(model).is_some() { model } else { "" };
        self.metrics.request(model, api, entry, code, self.now().saturating_sub(begin));
        result
    }
}
