//! A connection pool for the store's endpoint.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::settings::{Endpoint, S3Settings};

/// The maximum number of idle connections.
const IDLE_MAX: usize = 32;
/// The timeout of opening a connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// The minimum throughput that body timeouts assume.
const BYTES_PER_SECOND_MIN: u64 = 128 << 10;

type Sender = SendRequest<Full<Bytes>>;

/// The transport of a connection, TLS or plain TCP.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// The error of an attempt without a complete answer; another attempt may succeed.
#[derive(Debug)]
pub(super) struct AttemptError(pub(super) String);

impl fmt::Display for AttemptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The connection pool of an endpoint.
pub(super) struct Connections {
    endpoint: Endpoint,
    silence_max: Duration,
    idle: Mutex<Vec<Sender>>,
    #[cfg(feature = "https")]
    tls: Option<super::tls::Tls>,
}

impl Connections {
    pub(super) fn new(settings: &S3Settings) -> thalweg_tensor::Result<Arc<Connections>> {
        let endpoint = Endpoint::parse(&settings.endpoint)?;
        #[cfg(not(feature = "https"))]
        thalweg_tensor::ensure!(
            !endpoint.is_encrypted,
            Unimplemented,
            "{}: this program was built without the feature 'https'; S3_ENDPOINT names a store \
             that is reached over http",
            endpoint.authority
        );
        Ok(Arc::new(Connections {
            #[cfg(feature = "https")]
            tls: match endpoint.is_encrypted {
                true => {
                    Some(super::tls::Tls::new(&endpoint.host, settings.certificates.as_deref())?)
                }
                false => None,
            },
            endpoint,
            silence_max: settings.retries.silence_max,
            idle: Mutex::default(),
        }))
    }

    /// The authority in requests.
    pub(super) fn authority(&self) -> &str {
        &self.endpoint.authority
    }

    /// Sends a request and returns the head of its answer. A request that is not idempotent uses a
    /// new connection, so that it is never resent.
    pub(super) async fn send(
        self: &Arc<Self>,
        request: Request<Full<Bytes>>,
        body_bytes: usize,
        again: bool,
    ) -> Result<Answer, AttemptError> {
        // The store may have closed an idle connection; that does not count as a failed attempt.
        while let Some(mut sender) = self.take_idle().filter(|_| again) {
            if self.with_timeout(sender.ready()).await.is_ok_and(|ready| ready.is_ok())
                && let Ok(answer) = self.exchange(sender, request.clone(), body_bytes).await
            {
                return Ok(answer);
            }
        }
        let sender = self.connect().await?;
        self.exchange(sender, request, body_bytes).await
    }

    fn take_idle(&self) -> Option<Sender> {
        let mut idle = self.idle.lock();
        loop {
            match idle.pop()? {
                closed if closed.is_closed() => {}
                open => return Some(open),
            }
        }
    }

    async fn exchange(
        self: &Arc<Self>,
        mut sender: Sender,
        request: Request<Full<Bytes>>,
        body_bytes: usize,
    ) -> Result<Answer, AttemptError> {
        let sending = Duration::from_secs(body_bytes as u64 / BYTES_PER_SECOND_MIN);
        let answer = tokio::time::timeout(self.silence_max + sending, sender.send_request(request));
        let answer = answer
            .await
            .map_err(|_| {
                AttemptError(format!("no answer within {:?}", self.silence_max + sending))
            })?
            .map_err(|e| lost(&e))?;
        let (parts, body) = answer.into_parts();
        let (status, headers) = (parts.status, parts.headers);
        Ok(Answer { status, headers, body, sender: Some(sender), pool: Arc::clone(self) })
    }

    async fn connect(&self) -> Result<Sender, AttemptError> {
        let Endpoint { host, port, .. } = &self.endpoint;
        let attempt_error =
            |e: &dyn fmt::Display| AttemptError(format!("cannot connect to {host}:{port}: {e}"));
        let opened = tokio::time::timeout(CONNECT_MAX, self.open(host, *port)).await;
        let stream = opened
            .map_err(|_| attempt_error(&format_args!("no answer within {CONNECT_MAX:?}")))?
            .map_err(|e| attempt_error(&e))?;
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|e| attempt_error(&e))?;
        // The sender of a request gets the connection's error.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(sender)
    }

    async fn open(&self, host: &str, port: u16) -> std::io::Result<Box<dyn Stream>> {
        let plain = TcpStream::connect((host, port)).await?;
        plain.set_nodelay(true)?;
        #[cfg(feature = "https")]
        if let Some(tls) = &self.tls {
            return tls.over(plain).await;
        }
        Ok(Box::new(plain))
    }

    async fn with_timeout<T>(&self, what: impl Future<Output = T>) -> Result<T, AttemptError> {
        let done = tokio::time::timeout(self.silence_max, what).await;
        done.map_err(|_| AttemptError(format!("no data received for {:?}", self.silence_max)))
    }
}

fn lost(error: &hyper::Error) -> AttemptError {
    // The cause of hyper's error is the socket's error.
    let cause = std::error::Error::source(error).map_or(String::new(), |c| format!(": {c}"));
    AttemptError(format!("the connection was lost: {error}{cause}"))
}

/// An answer whose body has not been read.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Incoming,
    sender: Option<Sender>,
    pool: Arc<Connections>,
}

impl Answer {
    /// The next bytes of the body; `None` at its end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, AttemptError> {
        loop {
            let Some(frame) = self.pool.with_timeout(self.body.frame()).await? else {
                self.keep_connection();
                return Ok(None);
            };
            if let Ok(data) = frame.map_err(|e| lost(&e))?.into_data() {
                return Ok(Some(data));
            }
        }
    }

    fn keep_connection(&mut self) {
        if let Some(sender) = self.sender.take().filter(|sender| !sender.is_closed()) {
            let mut idle = self.pool.idle.lock();
            if idle.len() < IDLE_MAX {
                idle.push(sender);
            }
        }
    }

    /// The whole body, at most `bytes_max` bytes.
    pub(super) async fn content(&mut self, bytes_max: usize) -> Result<Vec<u8>, AttemptError> {
        let mut content = Vec::new();
        while let Some(data) = self.next().await? {
            if content.len() + data.len() > bytes_max {
                return Err(AttemptError(format!("the response has more than {bytes_max} bytes")));
            }
            content.extend_from_slice(&data);
        }
        Ok(content)
    }

    /// A header as text; empty if there is none.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}
