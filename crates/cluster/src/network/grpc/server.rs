//! The server of a task: accepts connections, bounds them, shuts down.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use thalweg_rpc::{MessageBody, report_accept_error, server_builder};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::service::Service;
use crate::master::Master;
use crate::network::stream::hello::HelloResponse;
use crate::network::stream::{self, frame, socket};
use crate::task::TensorTransport;
use crate::worker::Worker;

/// Limits of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Maximum size of a message, in bytes.
    pub message_bytes_max: usize,
    /// Maximum number of open calls of a connection; more wait.
    pub calls_max: u32,
    /// Maximum number of open connections; more stay in the backlog.
    pub connections_max: usize,
    /// How long a session stays open after its client disconnected during a call.
    pub session_timeout: Duration,
    /// How long a connection may stay open before its first byte arrives.
    pub handshake_timeout: Duration,
    /// Whether `Stop` may end the server, as training does with its parameter servers.
    pub may_be_stopped: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            message_bytes_max: u32::MAX as usize,
            calls_max: 10_000,
            connections_max: 4096,
            session_timeout: Duration::from_secs(60),
            handshake_timeout: Duration::from_secs(10),
            may_be_stopped: false,
        }
    }
}

/// How often orphaned sessions and steps are closed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How often transports get a tick.
const TICK_INTERVAL: Duration = Duration::from_millis(100);
/// After `Stop` the server shuts down after this many ticks without a session: a client may close one session
/// before it creates the next.
const IDLE_TICKS: u32 = 10;
/// How long calls in progress may take when the server stops.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// A server of one task.
pub struct Server {
    service: Arc<Service>,
    options: ServerOptions,
}

impl Server {
    /// A server for `master` and a worker of the same task.
    pub fn new(master: Arc<Master>, options: ServerOptions) -> Server {
        let worker = Arc::new(Worker::new(master.member().clone()));
        let message_bytes_max = options.message_bytes_max;
        let service = Service {
            master,
            worker,
            message_bytes_max,
            hello: OnceLock::new(),
            is_stopping: AtomicBool::new(false),
            may_be_stopped: options.may_be_stopped,
            stop_requested: watch::channel(None).0,
        };
        Server { service: Arc::new(service), options }
    }

    /// Serves connections until `stopped` or a `Stop` request, then closes the sessions and waits up to
    /// 5 s for calls in progress.
    pub async fn serve(self, listener: TcpListener, mut stopped: watch::Receiver<bool>) {
        // Stops the connections, on `stopped` and on `Stop`.
        let (ending, stop) = watch::channel(false);
        let stop_requested = self.stop_requested();
        tokio::pin!(stop_requested);
        let member = self.service.master.member();
        member.server_runtime().set(tokio::runtime::Handle::current());
        let mut connections = JoinSet::new();
        let permits = Arc::new(Semaphore::new(self.options.connections_max));
        let accept = || async {
            // The semaphore is never closed, so this never fails.
            let permit = permits.clone().acquire_owned().await;
            (listener.accept().await, permit)
        };
        if let Some(listener) = self.open_stream() {
            let (worker, options) = (self.service.worker.clone(), &self.options);
            let (connections_max, limit) = (options.connections_max, options.handshake_timeout);
            let accept =
                stream::server::accept_all(listener, worker, connections_max, limit, stop.clone());
            connections.spawn(accept);
        }
        let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
        let mut tick = tokio::time::interval(TICK_INTERVAL);
        loop {
            let (accepted, permit) = tokio::select! {
                accepted = accept() => accepted,
                _ = sweep.tick() => {
                    self.service.master.close_orphans(self.options.session_timeout);
                    self.service.worker.sweep();
                    continue;
                }
                _ = tick.tick() => {
                    self.service.master.member().tick();
                    continue;
                }
                _ = stopped.wait_for(|stopped| *stopped) => break,
                () = &mut stop_requested => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    let connection = self.connection(stream, stop.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(permit);
                    });
                }
                // No file descriptor left, or the client has disconnected already.
                Err(e) => {
                    report_accept_error(&e);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            while connections.try_join_next().is_some() {}
        }
        self.service.is_stopping.store(true, Ordering::Relaxed);
        // There is no receiver if no connection is open.
        let _ = ending.send(true);
        self.service.master.close_all();
        let all = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(DRAIN_TIME, all).await;
    }

    /// Ready when a client has called `Stop` and the task has no session, or the grace period is over.
    fn stop_requested(&self) -> impl Future<Output = ()> + Send + 'static {
        let service = self.service.clone();
        async move {
            let mut stop = service.stop_requested.subscribe();
            // The service owns the sender, so this cannot fail.
            let grace = stop.wait_for(Option::is_some).await.map_or(None, |grace| *grace);
            let idle = async {
                let mut ticks = 0;
                while ticks < IDLE_TICKS {
                    let sessions = service.master.session_count() + service.worker.session_count();
                    ticks = if sessions > 0 { 0 } else { ticks + 1 };
                    tokio::time::sleep(TICK_INTERVAL).await;
                }
            };
            // Sessions that are still open are closed by the caller.
            let _ = tokio::time::timeout(grace.unwrap_or_default(), idle).await;
        }
    }

    /// Listens on a unix socket for streams of other tasks, and sets the response of `Hello`.
    fn open_stream(&self) -> Option<UnixListener> {
        let member = self.service.master.member();
        let task = member.task();
        if member.cluster.is_empty() || task.options.tensor_transport == TensorTransport::Grpc {
            return None;
        }
        let entropy = &task.options.environment.entropy;
        // Without a unix socket streams use TCP.
        let (listener, unix_name) = socket::listen(entropy.as_ref()).ok().unzip();
        let hello = HelloResponse {
            version: frame::VERSION,
            incarnation: task.incarnation,
            unix_name: unix_name.unwrap_or_default(),
            software: env!("CARGO_PKG_VERSION").to_owned(),
        };
        // Set before in tests only.
        let _ = self.service.hello.set(hello);
        listener
    }

    /// Replaces the response of `Hello`.
    #[cfg(test)]
    pub(crate) fn set_hello(&self, hello: HelloResponse) {
        let _ = self.service.hello.set(hello);
    }

    fn connection(
        &self,
        stream: TcpStream,
        mut stop: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (service, calls_max) = (self.service.clone(), self.options.calls_max);
        let limit = self.options.handshake_timeout;
        async move {
            socket::tune_tcp(&stream);
            let mut first = [0];
            let peeked = tokio::select! {
                peeked = tokio::time::timeout(limit, stream.peek(&mut first)) => peeked,
                _ = stop.wait_for(|stopped| *stopped) => return,
            };
            // An idle connection must not count against `connections_max`.
            let Ok(peeked) = peeked else { return };
            let is_stream = matches!(peeked, Ok(1)) && first[0] == frame::MAGIC[0];
            if is_stream && service.hello.get().is_some() {
                let (reader, writer) = stream.into_split();
                let worker = service.worker.clone();
                return stream::server::serve(worker, reader, writer, None, limit, stop).await;
            }
            // Dropped with the connection.
            let alive = Arc::new(());
            let respond = service_fn(|request: Request<Incoming>| {
                let (service, connection) = (service.clone(), Arc::downgrade(&alive));
                async move {
                    let respond = service.respond(request, &connection).await;
                    Ok::<Response<MessageBody>, std::convert::Infallible>(respond)
                }
            });
            let connection =
                server_builder(calls_max).serve_connection(TokioIo::new(stream), respond);
            tokio::pin!(connection);
            tokio::select! {
                _ = &mut connection => return,
                _ = stop.wait_for(|stopped| *stopped) => connection.as_mut().graceful_shutdown(),
            }
            // The client sees how the connection ended.
            let _ = connection.await;
        }
    }
}
