//! The calling side: one connection to a server, made when it is needed and again when it broke.

use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use thalweg_kernel::Cancellation;
use thalweg_tensor::{Budget, Code, Error, Result, ensure, err};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::answer::Answer;
use super::message::{Coming, Limits};
use super::pieces::Pieces;
use super::rope::Rope;
use super::{gather, transport};
use crate::addresses::Addresses;
use crate::cluster_spec::TaskName;
use crate::network::descriptors::not_reached;

/// Between attempts to connect.
const RETRY: Duration = Duration::from_millis(50);

/// The codes by their numbers, less one.
const CODES: [Code; 16] = [
    Code::Cancelled,
    Code::Unknown,
    Code::InvalidArgument,
    Code::DeadlineExceeded,
    Code::NotFound,
    Code::AlreadyExists,
    Code::PermissionDenied,
    Code::ResourceExhausted,
    Code::FailedPrecondition,
    Code::Aborted,
    Code::OutOfRange,
    Code::Unimplemented,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
    Code::Unauthenticated,
];

/// What a number says: nothing is wrong, or an error.
pub(crate) fn check_status(number: i64, message: impl FnOnce() -> String) -> Result<()> {
    if number == 0 {
        return Ok(());
    }
    let code = usize::try_from(number - 1).ok().and_then(|i| CODES.get(i).copied());
    Err(Error::new(code.unwrap_or(Code::Unknown), message()))
}

/// A server, as its clients see it.
pub(crate) struct Channel {
    place: Place,
    /// Where it was when it was last looked for.
    address: parking_lot::Mutex<Arc<str>>,
    service: &'static str,
    patience: Patience,
    connection: Mutex<Option<Connected>>,
    pub(crate) incoming: Arc<Budget>,
}

/// A connection, and where it leads.
type Connected = (SendRequest<Answer>, Arc<str>);

/// How a server's address, `host:port`, is found.
#[derive(Clone)]
pub(crate) enum Place {
    /// It is always the same.
    Fixed(String),
    /// It is looked up for every connection.
    Named(TaskName, Arc<dyn Addresses>),
}

impl Place {
    fn look_up(&self) -> Option<Arc<str>> {
        match self {
            Place::Fixed(address) => Some(address.as_str().into()),
            Place::Named(task, addresses) => addresses.address(task).map(Into::into),
        }
    }
}

/// How long to try to reach a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Again and again: it may be about to start.
    Until(Duration),
    /// Once: one that refuses is not there. Nobody answers for that long if it is silent.
    Once(Duration),
}

/// One thread moves the bytes of all connections of a process.
pub(crate) fn runtime() -> Result<&'static tokio::runtime::Runtime> {
    static RUNTIME: OnceLock<std::io::Result<tokio::runtime::Runtime>> = OnceLock::new();
    // Made under the lock: a second one could not be dropped on a thread that does I/O.
    let made = RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("thalweg-client")
            .enable_all()
            .build()
    });
    made.as_ref().map_err(|e| err!(Internal, "there is no thread for connections: {e}"))
}

/// Waits for a call; cancelling ends it, here and at the server.
pub(crate) fn wait<T: Send + 'static>(
    call: impl Future<Output = Result<T>> + Send + 'static,
    cancellation: Option<&Cancellation>,
) -> Result<T> {
    let (tell, told) = mpsc::channel();
    let tell_end = tell.clone();
    let task = runtime()?.spawn(async move {
        // The receiver waits below.
        let _ = tell.send(call.await);
    });
    let _registration = cancellation.map(|cancellation| {
        cancellation.on_cancel(move |cause| {
            task.abort();
            let _ = tell_end.send(Err(cause.clone()));
        })
    });
    told.recv().unwrap_or_else(|_| Err(err!(Internal, "the call ended without an answer")))
}

/// Makes a call whose answer nobody waits for.
pub(crate) fn forget(call: impl Future<Output = Result<Rope>> + Send + 'static) {
    if let Ok(runtime) = runtime() {
        runtime.spawn(call);
    }
}

impl Channel {
    /// A channel to a service; nothing is sent yet.
    pub(crate) fn new(
        place: Place,
        service: &'static str,
        patience: Patience,
        incoming: Arc<Budget>,
    ) -> Channel {
        let address = parking_lot::Mutex::new(place.look_up().unwrap_or_default());
        Channel { place, address, service, patience, connection: Mutex::default(), incoming }
    }

    /// Another channel to the same server, which shares no connection with this one.
    pub(crate) fn anew(&self) -> Channel {
        Channel::new(self.place.clone(), self.service, self.patience, self.incoming.clone())
    }

    /// Where the server was, `host:port`, when it was last looked for.
    pub(crate) fn address(&self) -> Arc<str> {
        self.address.lock().clone()
    }

    /// Looks where the server is, and says so if it has moved; connections to where it was are not
    /// used any more.
    pub(crate) fn follow(&self) -> Option<Arc<str>> {
        let now = self.place.look_up()?;
        let mut known = self.address.lock();
        (*known != now).then(|| {
            *known = now.clone();
            now
        })
    }

    /// Calls a method of another service than the channel's.
    pub(crate) async fn call_at<M: Message + Default>(
        &self,
        service: &str,
        method: &str,
        message: &impl Message,
        timeout: Option<Duration>,
    ) -> Result<M> {
        let mut pieces = Pieces::default();
        pieces.put_fields(message);
        decode(self.send_to(service, method, pieces, timeout).await?)
    }

    /// Lets calls that come have a new connection; those on their way stay on the old one.
    pub(crate) async fn renew(&self) {
        *self.connection.lock().await = None;
    }

    /// Calls a method with a message.
    pub(crate) async fn call<M: Message + Default>(
        &self,
        method: &str,
        message: &impl Message,
        timeout: Option<Duration>,
    ) -> Result<M> {
        let mut pieces = Pieces::default();
        pieces.put_fields(message);
        decode(self.send(method, pieces, timeout).await?)
    }

    /// As [`Channel::call`], with a message in pieces and the answer as it came.
    pub(crate) async fn send(
        &self,
        method: &str,
        pieces: Pieces,
        timeout: Option<Duration>,
    ) -> Result<Rope> {
        self.send_to(self.service, method, pieces, timeout).await
    }

    async fn send_to(
        &self,
        service: &str,
        method: &str,
        pieces: Pieces,
        timeout: Option<Duration>,
    ) -> Result<Rope> {
        let call = self.send_without_deadline(service, method, pieces, timeout);
        match timeout {
            None => call.await,
            Some(timeout) => tokio::time::timeout(timeout, call)
                .await
                .unwrap_or_else(|_| Err(err!(DeadlineExceeded, "Deadline Exceeded"))),
        }
    }

    async fn send_without_deadline(
        &self,
        service: &str,
        method: &str,
        pieces: Pieces,
        timeout: Option<Duration>,
    ) -> Result<Rope> {
        let (mut sender, address) = self.sender().await?;
        let mut request = Request::post(format!("http://{address}/{service}/{method}"))
            .header(http::header::CONTENT_TYPE, "application/grpc")
            .header("te", "trailers");
        if let Some(timeout) = timeout {
            request = request.header("grpc-timeout", grpc_timeout(timeout));
        }
        let request = request
            .body(Answer { frames: pieces.into_frames()? })
            .map_err(|e| err!(InvalidArgument, "'{address}' cannot be called: {e}"))?;
        let lost = |e: hyper::Error| err!(Unavailable, "{address} was lost: {e}");
        sender.ready().await.map_err(lost)?;
        let response = sender.send_request(request).await.map_err(lost)?;
        let limits = Limits { message_bytes_max: u32::MAX as usize, incoming: &self.incoming };
        read_response(response, limits, gather::answer_path(method)).await
    }

    async fn sender(&self) -> Result<Connected> {
        let mut connection = self.connection.lock().await;
        let is_good =
            |(sender, to): &&Connected| !sender.is_closed() && *to == *self.address.lock();
        if let Some(connected) = connection.as_ref().filter(is_good) {
            return Ok(connected.clone());
        }
        let (Patience::Until(limit) | Patience::Once(limit)) = self.patience;
        let connected = match tokio::time::timeout(limit, self.connect()).await {
            Ok(connected) => connected,
            Err(_) => Err(err!(
                Unavailable,
                "nobody answers at {} after {} s",
                self.address(),
                limit.as_secs_f32()
            )),
        }?;
        *connection = Some(connected.clone());
        Ok(connected)
    }

    async fn connect(&self) -> Result<Connected> {
        let (stream, address) = loop {
            self.follow();
            let address = self.address();
            match (TcpStream::connect(&*address).await, self.patience) {
                (Ok(stream), _) => break (stream, address),
                (Err(_), Patience::Until(_)) => tokio::time::sleep(RETRY).await,
                (Err(e), Patience::Once(_)) => {
                    return Err(not_reached(&address, &e));
                }
            }
        };
        // A small request must not wait for more bytes to send.
        let _ = stream.set_nodelay(true);
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_frame_size(transport::FRAME_BYTES)
            .initial_stream_window_size(transport::STREAM_WINDOW_BYTES)
            .initial_connection_window_size(transport::CONNECTION_WINDOW_BYTES)
            .max_send_buf_size(transport::SEND_BUFFER_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|e| err!(Unavailable, "{address} does not speak HTTP/2: {e}"))?;
        tokio::spawn(async move {
            // Calls on it learn of its end themselves.
            let _ = connection.await;
        });
        Ok((sender, address))
    }
}

/// The message of an answer.
pub(crate) fn decode<M: Message + Default>(rope: Rope) -> Result<M> {
    M::decode(rope).map_err(|e| err!(DataLoss, "the answer cannot be read: {e}"))
}

async fn read_response(
    response: Response<Incoming>,
    limits: Limits<'_>,
    tensors: gather::Path,
) -> Result<Rope> {
    let (head, mut body) = response.into_parts();
    ensure!(
        head.status == StatusCode::OK,
        Unavailable,
        "the server answered with HTTP status {}",
        head.status
    );
    check_headers(&head.headers)?;
    let mut coming = Coming::new(limits, tensors);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| err!(Unavailable, "the answer broke off: {e}"))?;
        match frame.into_data() {
            Ok(data) => coming.push(data)?,
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    check_headers(&trailers)?;
                }
            }
        }
    }
    coming.finish()
}

/// The status in headers or trailers; none is none.
fn check_headers(headers: &HeaderMap) -> Result<()> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(number) = text("grpc-status") else { return Ok(()) };
    let number = number.parse().unwrap_or(Code::Unknown as i64);
    check_status(number, || percent_decoded(text("grpc-message").unwrap_or_default()))
}

/// Undoes gRPC's `%XX`.
fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while let Some(&byte) = bytes.get(i) {
        let hex = bytes.get(i + 1..i + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(value) if byte == b'%' => {
                decoded.push(value);
                i += 3;
            }
            _ => {
                decoded.push(byte);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Eight digits and a unit, the finest that fits.
fn grpc_timeout(timeout: Duration) -> String {
    const DIGITS_MAX: u128 = 99_999_999;
    for (number, unit) in
        [(timeout.as_micros(), 'u'), (timeout.as_millis(), 'm'), (timeout.as_secs().into(), 'S')]
    {
        if number <= DIGITS_MAX {
            return format!("{number}{unit}");
        }
    }
    format!("{DIGITS_MAX}S")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_and_timeouts_in_headers() {
        assert_eq!(percent_decoded("50 %25 %C3%A9%0A %"), "50 % \u{e9}\n %");
        assert_eq!(grpc_timeout(Duration::from_millis(2)), "2000u");
        assert_eq!(grpc_timeout(Duration::from_secs(3600)), "3600000m");
        assert_eq!(grpc_timeout(Duration::MAX), "99999999S");
        let e = check_status(14, || "gone".into()).unwrap_err();
        assert_eq!((e.code(), e.message()), (Code::Unavailable, "gone"));
        assert_eq!(check_status(99, String::new).unwrap_err().code(), Code::Unknown);
        assert!(check_status(0, String::new).is_ok());
    }
}
