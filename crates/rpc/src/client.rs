//! The client side of gRPC: channels, and blocking calls for threads outside of an async runtime.

use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use thalweg_kernel::Cancellation;
use thalweg_tensor::{Budget, Result, ensure, err};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::body::MessageBody;
use crate::descriptors::connect_error;
use crate::gather::FieldPath;
use crate::http2::{CONNECTION_WINDOW_BYTES, FRAME_BYTES, SEND_BUFFER_BYTES, STREAM_WINDOW_BYTES};
use crate::message::{MessageReader, ReceiveLimits, decode_response};
use crate::pieces::Pieces;
use crate::rope::Rope;
use crate::status::{check_headers, grpc_timeout};

/// Pause between attempts to connect.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// A unary method of a gRPC service.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// The service's full name, `tensorflow.WorkerService`.
    pub service: &'static str,
    /// The method's name.
    pub name: &'static str,
    /// The field path to the tensors of its responses.
    pub tensors: FieldPath,
}

impl Method {
    /// A method whose responses hold no tensors.
    pub const fn new(service: &'static str, name: &'static str) -> Method {
        Method { service, name, tensors: &[] }
    }
}

/// Resolves the address of a server.
pub trait Resolve: Send + Sync {
    /// The current address, `host:port`; none if it is not known. Called for every connection attempt.
    fn address(&self) -> Option<String>;
}

/// A fixed address.
impl Resolve for String {
    fn address(&self) -> Option<String> {
        Some(self.clone())
    }
}

/// Whether a refused connection is retried, and the timeout.
#[derive(Clone, Copy, Debug)]
pub enum ConnectPolicy {
    /// Retries refused connections for at most this long: the server may still start.
    Retry(Duration),
    /// One attempt, which fails at once if it is refused, and after this long without an answer.
    Once(Duration),
}

/// A gRPC channel to one server: connects on demand, and again after the connection broke.
pub struct Channel {
    resolver: Arc<dyn Resolve>,
    /// The last resolved address.
    address: parking_lot::Mutex<Arc<str>>,
    policy: ConnectPolicy,
    connection: Mutex<Option<Connected>>,
    incoming: Arc<Budget>,
}

/// A connection and the address it was made to.
type Connected = (SendRequest<MessageBody>, Arc<str>);

/// The process's I/O runtime, of one thread, for calls from outside of an async runtime.
pub fn runtime() -> Result<&'static tokio::runtime::Runtime> {
    static RUNTIME: OnceLock<std::io::Result<tokio::runtime::Runtime>> = OnceLock::new();
    // Built under the lock: a second runtime could not be dropped on a thread of a runtime.
    let made = RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("thalweg-client")
            .enable_all()
            .build()
    });
    made.as_ref().map_err(|e| err!(Internal, "the client's I/O thread cannot be started: {e}"))
}

/// Blocks the calling thread until the call has completed; `cancellation` cancels it, on the server too.
pub fn block_on<T: Send + 'static>(
    call: impl Future<Output = Result<T>> + Send + 'static,
    cancellation: Option<&Cancellation>,
) -> Result<T> {
    let (result_sender, receiver) = mpsc::channel();
    let cancel_sender = result_sender.clone();
    let task = runtime()?.spawn(async move {
        // The receiver waits below.
        let _ = result_sender.send(call.await);
    });
    let _registration = cancellation.map(|cancellation| {
        cancellation.on_cancel(move |cause| {
            task.abort();
            let _ = cancel_sender.send(Err(cause.clone()));
        })
    });
    receiver.recv().unwrap_or_else(|_| Err(err!(Internal, "the call ended without an answer")))
}

/// Runs a call in the background and ignores its result.
pub fn spawn_detached(call: impl Future<Output = Result<Rope>> + Send + 'static) {
    if let Ok(runtime) = runtime() {
        runtime.spawn(call);
    }
}

impl Channel {
    /// A channel without a connection; received messages are charged to `incoming`.
    pub fn new(
        resolver: Arc<dyn Resolve>,
        policy: ConnectPolicy,
        incoming: Arc<Budget>,
    ) -> Channel {
        let address = parking_lot::Mutex::new(resolve(&*resolver).unwrap_or_default());
        Channel { resolver, address, policy, connection: Mutex::default(), incoming }
    }

    /// Another channel to the same server; it shares no connection with this one.
    pub fn separate(&self) -> Channel {
        Channel::new(self.resolver.clone(), self.policy, self.incoming.clone())
    }

    /// The budget that received messages are charged to.
    pub fn incoming(&self) -> &Arc<Budget> {
        &self.incoming
    }

    /// The server's address, `host:port`, as last resolved.
    pub fn address(&self) -> Arc<str> {
        self.address.lock().clone()
    }

    /// Resolves the address again; returns it if it has changed. Later calls do not use a connection to
    /// the former address.
    pub fn refresh_address(&self) -> Option<Arc<str>> {
        let now = resolve(&*self.resolver)?;
        let mut address = self.address.lock();
        (*address != now).then(|| {
            *address = now.clone();
            now
        })
    }

    /// Has later calls make a new connection; calls in progress stay on the old one.
    pub async fn reconnect(&self) {
        *self.connection.lock().await = None;
    }

    /// Calls a method and decodes its response.
    pub async fn call<M: Message + Default>(
        &self,
        method: Method,
        message: &impl Message,
        timeout: Option<Duration>,
    ) -> Result<M> {
        let mut pieces = Pieces::default();
        pieces.put_fields(message);
        self.call_with(method, pieces, timeout).await
    }

    /// As [`Channel::call`], with a request in pieces.
    pub async fn call_with<M: Message + Default>(
        &self,
        method: Method,
        request: Pieces,
        timeout: Option<Duration>,
    ) -> Result<M> {
        decode_response(self.send(method, request, timeout).await?)
    }

    /// As [`Channel::call_with`], with the encoded response.
    pub async fn send(
        &self,
        method: Method,
        request: Pieces,
        timeout: Option<Duration>,
    ) -> Result<Rope> {
        let call = self.send_without_deadline(method, request, timeout);
        match timeout {
            None => call.await,
            Some(timeout) => tokio::time::timeout(timeout, call)
                .await
                .unwrap_or_else(|_| Err(err!(DeadlineExceeded, "Deadline Exceeded"))),
        }
    }

    async fn send_without_deadline(
        &self,
        method: Method,
        pieces: Pieces,
        timeout: Option<Duration>,
    ) -> Result<Rope> {
        let Method { service, name, tensors } = method;
        let (mut sender, address) = self.sender().await?;
        let mut request = Request::post(format!("http://{address}/{service}/{name}"))
            .header(http::header::CONTENT_TYPE, "application/grpc")
            .header("te", "trailers");
        if let Some(timeout) = timeout {
            request = request.header("grpc-timeout", grpc_timeout(timeout));
        }
        let request = request
            .body(MessageBody { frames: pieces.into_frames()? })
            .map_err(|e| err!(InvalidArgument, "'{address}' is not a valid host:port: {e}"))?;
        let lost = |e: hyper::Error| err!(Unavailable, "the connection to {address} was lost: {e}");
        sender.ready().await.map_err(lost)?;
        let response = sender.send_request(request).await.map_err(lost)?;
        let limits =
            ReceiveLimits { message_bytes_max: u32::MAX as usize, incoming: &self.incoming };
        read_response(response, limits, tensors).await
    }

    async fn sender(&self) -> Result<Connected> {
        let mut connection = self.connection.lock().await;
        let is_current =
            |(sender, to): &&Connected| !sender.is_closed() && *to == *self.address.lock();
        if let Some(connected) = connection.as_ref().filter(is_current) {
            return Ok(connected.clone());
        }
        let (ConnectPolicy::Retry(limit) | ConnectPolicy::Once(limit)) = self.policy;
        let connected = match tokio::time::timeout(limit, self.connect()).await {
            Ok(connected) => connected,
            Err(_) => Err(err!(
                Unavailable,
                "{} did not answer within {} s",
                self.address(),
                limit.as_secs_f32()
            )),
        }?;
        *connection = Some(connected.clone());
        Ok(connected)
    }

    async fn connect(&self) -> Result<Connected> {
        let (stream, address) = loop {
            self.refresh_address();
            let address = self.address();
            match (TcpStream::connect(&*address).await, self.policy) {
                (Ok(stream), _) => break (stream, address),
                (Err(_), ConnectPolicy::Retry(_)) => tokio::time::sleep(RETRY_INTERVAL).await,
                (Err(e), ConnectPolicy::Once(_)) => {
                    return Err(connect_error(&address, &e));
                }
            }
        };
        // A small request must not wait for more bytes to send.
        let _ = stream.set_nodelay(true);
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_frame_size(FRAME_BYTES)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_send_buf_size(SEND_BUFFER_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|e| err!(Unavailable, "{address} does not speak HTTP/2: {e}"))?;
        tokio::spawn(async move {
            // Each call on the connection gets an error of its own.
            let _ = connection.await;
        });
        Ok((sender, address))
    }
}

fn resolve(resolver: &dyn Resolve) -> Option<Arc<str>> {
    resolver.address().map(Into::into)
}

async fn read_response(
    response: Response<Incoming>,
    limits: ReceiveLimits<'_>,
    tensors: FieldPath,
) -> Result<Rope> {
    let (head, mut body) = response.into_parts();
    ensure!(
        head.status == StatusCode::OK,
        Unavailable,
        "the server answered with HTTP status {}",
        head.status
    );
    check_headers(&head.headers)?;
    let mut reader = MessageReader::new(limits, tensors);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| err!(Unavailable, "the response was cut off: {e}"))?;
        match frame.into_data() {
            Ok(data) => reader.push(data)?,
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    check_headers(&trailers)?;
                }
            }
        }
    }
    reader.finish()
}
