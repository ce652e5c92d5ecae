//! The listening side: gRPC on one port, HTTP on another.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use thalweg_cluster::grpc::framing::{
    CONNECTION_WINDOW_BYTES, FRAME_BYTES, SEND_BUFFER_BYTES, STREAM_WINDOW_BYTES,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::engine::Engine;
use crate::grpc::Services;
use crate::listen;
use crate::rest::Rest;
pub use crate::rest::RestOptions;

/// Limits of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Bytes that one message over gRPC may have.
    pub message_bytes_max: usize,
    /// Calls that one connection may have open at once; more wait.
    pub calls_max: u32,
    /// Connections that may be open at once, of each kind; more wait to be taken.
    pub connections_max: usize,
    /// How long requests on their way have to end when the server stops.
    pub drain_limit: Duration,
    /// Whether callers may run any part of a model's graph, not its signatures alone.
    pub session_service: bool,
    /// How HTTP is answered.
    pub rest: RestOptions,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            message_bytes_max: i32::MAX as usize,
            calls_max: 1000,
            connections_max: 16_384,
            drain_limit: Duration::from_secs(30),
            session_service: false,
            rest: RestOptions::default(),
        }
    }
}

/// A peer that is silent this long is asked whether it is there, and dropped if it does not answer.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// How long a connection without a request, or with half of one's head, stays open.
const IDLE_LIMIT: Duration = Duration::from_secs(60);

/// A server of models.
pub struct Server {
    engine: Arc<Engine>,
    options: ServerOptions,
}

impl Server {
    /// Answers from these models.
    pub fn new(engine: Arc<Engine>, options: ServerOptions) -> Server {
        Server { engine, options }
    }

    /// Serves until `stop` says so; then takes nothing new, lets what is on its way end, and returns.
    pub async fn serve(
        self,
        grpc: Option<TcpListener>,
        rest: Option<TcpListener>,
        stop: watch::Receiver<bool>,
    ) {
        let engine = self.engine.clone();
        let mut stopped = stop.clone();
        let draining = async move {
            // The sender gone means the same.
            let _ = stopped.wait_for(|stopped| *stopped).await;
            engine.drain();
        };
        let (max, limit) = (self.options.connections_max, self.options.drain_limit);
        let grpc = async {
            if let Some(listener) = grpc {
                let serve = |stream, stop| self.grpc(stream, stop);
                listen::accept(listener, max, limit, stop.clone(), serve).await;
            }
        };
        let rest = async {
            if let Some(listener) = rest {
                let serve = |stream, stop| self.rest(stream, stop);
                listen::accept(listener, max, limit, stop.clone(), serve).await;
            }
        };
        tokio::join!(draining, grpc, rest);
    }

    fn grpc(
        &self,
        stream: TcpStream,
        mut stop: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let services = Arc::new(Services {
            engine: self.engine.clone(),
            message_bytes_max: self.options.message_bytes_max,
            has_session_service: self.options.session_service,
        });
        let calls_max = self.options.calls_max;
        async move {
            let answer = service_fn(|request: Request<Incoming>| {
                let services = services.clone();
                async move { Ok::<_, Infallible>(services.answer(request).await) }
            });
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_frame_size(FRAME_BYTES)
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .max_send_buf_size(SEND_BUFFER_BYTES)
                .max_concurrent_streams(calls_max)
                .keep_alive_interval(KEEP_ALIVE)
                .serve_connection(TokioIo::new(stream), answer);
            tokio::pin!(connection);
            tokio::select! {
                _ = &mut connection => return,
                _ = stop.wait_for(|stopped| *stopped) => connection.as_mut().graceful_shutdown(),
            }
            // Whatever ended it, the client knows as well as we do.
            let _ = connection.await;
        }
    }

    fn rest(
        &self,
        stream: TcpStream,
        mut stop: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let rest =
            Arc::new(Rest { engine: self.engine.clone(), options: self.options.rest.clone() });
        async move {
            let answer = service_fn(|request: Request<Incoming>| {
                let rest = rest.clone();
                async move { Ok::<_, Infallible>(rest.answer(request).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(IDLE_LIMIT)
                .serve_connection(TokioIo::new(stream), answer);
            tokio::pin!(connection);
            tokio::select! {
                _ = &mut connection => return,
                _ = stop.wait_for(|stopped| *stopped) => connection.as_mut().graceful_shutdown(),
            }
            let _ = connection.await;
        }
    }
}
