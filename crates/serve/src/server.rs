//! The server: gRPC on one port, HTTP on another.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use thalweg_rpc::server_builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::connection::{ConnectionMonitor, ConnectionSlots, ConnectionTimeouts};
use crate::engine::Engine;
use crate::grpc::Services;
use crate::listen;
use crate::rest::Rest;
pub use crate::rest::RestOptions;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The maximum size of a gRPC message.
    pub message_bytes_max: usize,
    /// The maximum number of concurrent calls per connection; further calls wait.
    pub calls_max: u32,
    /// The maximum number of open connections per protocol; further ones wait to be accepted.
    pub connections_max: usize,
    /// Timeouts of connections.
    pub timeouts: ConnectionTimeouts,
    /// How long the server continues after a shutdown signal while it reports that it is not ready,
    /// so that load balancers send requests elsewhere.
    pub lame_duck: Duration,
    /// Timeout for requests in flight at shutdown.
    pub drain_limit: Duration,
    /// Whether callers may run any part of a model's graph, not only its signatures.
    pub session_service: bool,
    /// Options of the REST interface.
    pub rest: RestOptions,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            message_bytes_max: i32::MAX as usize,
            calls_max: 1000,
            connections_max: 16_384,
            timeouts: ConnectionTimeouts::default(),
            lame_duck: Duration::ZERO,
            drain_limit: Duration::from_secs(30),
            session_service: false,
            rest: RestOptions::default(),
        }
    }
}

/// The deadline for the head of an HTTP request.
const HEAD_LIMIT: Duration = Duration::from_secs(60);

/// A model server.
pub struct Server {
    engine: Arc<Engine>,
    options: ServerOptions,
}

impl Server {
    /// A server for these models.
    pub fn new(engine: Arc<Engine>, options: ServerOptions) -> Server {
        Server { engine, options }
    }

    /// Serves until `shutdown` completes and for [`ServerOptions::lame_duck`] longer; then refuses
    /// new requests, lets those in flight end, and returns.
    pub async fn serve(
        self,
        grpc: Option<TcpListener>,
        rest: Option<TcpListener>,
        mut shutdown: watch::Receiver<bool>,
    ) {
        let (engine, lame_duck) = (self.engine.clone(), self.options.lame_duck);
        let (close, stop) = watch::channel(false);
        let draining = async move {
            // A dropped sender means shutdown too.
            let _ = shutdown.wait_for(|shutdown| *shutdown).await;
            engine.drain();
            tokio::time::sleep(lame_duck).await;
            close.send_replace(true);
        };
        let (max, limit) = (self.options.connections_max, self.options.drain_limit);
        let grpc = async {
            if let Some(listener) = grpc {
                let serve = |stream, slots, stop| self.grpc(stream, slots, stop);
                listen::accept(listener, max, limit, stop.clone(), serve).await;
            }
        };
        let rest = async {
            if let Some(listener) = rest {
                let serve = |stream, slots, stop| self.rest(stream, slots, stop);
                listen::accept(listener, max, limit, stop.clone(), serve).await;
            }
        };
        tokio::join!(draining, grpc, rest);
    }

    fn watch(&self, slots: ConnectionSlots) -> ConnectionMonitor {
        ConnectionMonitor { calls: Arc::default(), timeouts: self.options.timeouts, slots }
    }

    fn grpc(
        &self,
        stream: TcpStream,
        slots: ConnectionSlots,
        mut stop: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let watch = self.watch(slots);
        let services = Arc::new(Services {
            engine: self.engine.clone(),
            calls: watch.calls.clone(),
            message_bytes_max: self.options.message_bytes_max,
            has_session_service: self.options.session_service,
        });
        let calls_max = self.options.calls_max;
        async move {
            if !watch.has_first_byte(&stream, &mut stop).await {
                return;
            }
            let answer = service_fn(|request: Request<Incoming>| {
                let services = services.clone();
                async move { Ok::<_, Infallible>(services.answer(request).await) }
            });
            let connection =
                server_builder(calls_max).serve_connection(TokioIo::new(stream), answer);
            watch.run(connection, http2::Connection::graceful_shutdown, stop).await;
        }
    }

    fn rest(
        &self,
        stream: TcpStream,
        slots: ConnectionSlots,
        mut stop: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let watch = self.watch(slots);
        let rest = Arc::new(Rest {
            engine: self.engine.clone(),
            calls: watch.calls.clone(),
            options: self.options.rest.clone(),
        });
        let head_limit = HEAD_LIMIT.min(self.options.timeouts.idle);
        async move {
            if !watch.has_first_byte(&stream, &mut stop).await {
                return;
            }
            let answer = service_fn(|request: Request<Incoming>| {
                let rest = rest.clone();
                async move { Ok::<_, Infallible>(rest.answer(request).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(head_limit)
                .serve_connection(TokioIo::new(stream), answer);
            watch.run(connection, http1::Connection::graceful_shutdown, stop).await;
        }
    }
}
