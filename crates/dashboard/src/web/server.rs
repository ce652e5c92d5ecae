//! Connections: their number, their requests and their deadlines.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, IF_NONE_MATCH};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use thalweg_tensor::{Result, bail, ensure, err};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::access::{Access, Admission};
use super::assets;
use super::deadline::WriteDeadline;
use super::reply::{JSON, Reply};
use crate::api::Api;

/// Limits on clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Most open connections; further ones wait to be accepted.
    pub(crate) connections_max: usize,
    /// The deadline for the head of a request, and how long a connection may be idle.
    pub(crate) head: Duration,
    /// The same for a connection that is accepted while few are left.
    pub(crate) head_crowded: Duration,
    /// The deadline for the body of a request.
    pub(crate) body: Duration,
    /// How long a client may leave an answer unread.
    pub(crate) write: Duration,
    /// Largest head of a request.
    pub(crate) head_bytes_max: usize,
    /// Largest body of a request.
    pub(crate) body_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: 256,
            head: Duration::from_secs(15),
            head_crowded: Duration::from_secs(3),
            body: Duration::from_secs(10),
            write: Duration::from_secs(30),
            head_bytes_max: 16 << 10,
            body_bytes_max: 64 << 10,
        }
    }
}

/// Most headers of a request.
const HEADERS_MAX: usize = 64;
/// How long requests may take that are in flight when the server ends.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// What every connection needs.
pub(crate) struct Context {
    pub(crate) api: Api,
    pub(crate) access: Access,
    pub(crate) limits: Limits,
}

/// Accepts connections until `stop` is set, then waits for those with a request up to a deadline.
pub(crate) async fn serve(
    listener: TcpListener,
    context: Arc<Context>,
    mut stop: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    let free = Arc::new(Semaphore::new(context.limits.connections_max));
    let next = || async {
        // The semaphore is never closed, so a permit becomes free eventually.
        let permit = free.clone().acquire_owned().await;
        (listener.accept().await, permit)
    };
    loop {
        let (accepted, permit) = tokio::select! {
            accepted = next() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = stop.wait_for(|stopped| *stopped) => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                let limits = context.limits;
                let head = match free.available_permits() < limits.connections_max / 8 {
                    true => limits.head_crowded,
                    false => limits.head,
                };
                let connection = connection(stream, head, context.clone(), stop.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(permit);
                });
            }
            // Out of descriptors, or the client disconnected before the accept: later accepts may succeed.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(DRAIN_LIMIT, all).await;
}

async fn connection(
    stream: TcpStream,
    head: Duration,
    context: Arc<Context>,
    mut stop: watch::Receiver<bool>,
) {
    let limits = context.limits;
    let answer = service_fn(|request: Request<Incoming>| {
        let context = context.clone();
        async move { Ok::<_, Infallible>(context.answer(request).await) }
    });
    let stream = TokioIo::new(WriteDeadline::new(stream, limits.write));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .max_headers(HEADERS_MAX)
        .max_buf_size(limits.head_bytes_max)
        .serve_connection(stream, answer);
    tokio::pin!(connection);
    let has_stopped = tokio::select! {
        _ = &mut connection => false,
        _ = stop.wait_for(|stopped| *stopped) => true,
    };
    if has_stopped {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

impl Context {
    async fn answer<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let (parts, body) = request.into_parts();
        let is_head = parts.method == Method::HEAD;
        self.reply(&parts, body).await.into_response(is_head)
    }

    async fn reply<B>(&self, parts: &Parts, body: B) -> Reply
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        match self.access.check(parts) {
            Admission::Granted => {}
            Admission::Redirect { to, cookie } => return Reply::redirect(&to, &cookie),
            Admission::Unauthorized => return Reply::unauthorized(),
            Admission::Forbidden(why) => return Reply::refusal(StatusCode::FORBIDDEN, why),
        }
        let is_read = parts.method == Method::GET || parts.method == Method::HEAD;
        let path = parts.uri.path();
        if !path.starts_with("/api/") {
            return match assets::find(path) {
                Some(_) if !is_read => Reply::method_not_allowed("GET, HEAD"),
                Some(asset) => {
                    let known = parts.headers.get(IF_NONE_MATCH).and_then(|v| v.to_str().ok());
                    Reply::asset(asset.kind, asset.bytes, &asset.tag(), known)
                }
                None => Reply::refusal(StatusCode::NOT_FOUND, &format!("there is no page {path}")),
            };
        }
        let query = parts.uri.query().unwrap_or_default();
        if is_read {
            return self.api.get(path, query).await;
        }
        if parts.method != Method::POST {
            return Reply::method_not_allowed("GET, HEAD, POST");
        }
        if !is_json(parts) {
            let sentence = "a POST needs the content type application/json";
            return Reply::refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, sentence);
        }
        match self.read(body).await {
            Ok(body) => self.api.post(path, &body).await,
            Err(e) => Reply::error(&e),
        }
    }

    /// Reads a body within its limits.
    async fn read<B>(&self, mut body: B) -> Result<Bytes>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let max = self.limits.body_bytes_max;
        let too_large = || err!(ResourceExhausted, "a request has at most {max} bytes");
        ensure!(
            body.size_hint().lower() <= max as u64,
            ResourceExhausted,
            "{}",
            too_large().message()
        );
        let read = async {
            let mut bytes = BytesMut::new();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|e| err!(Cancelled, "the request was cut off: {e}"))?;
                let Ok(data) = frame.into_data() else { continue };
                if data.len() > max - bytes.len() {
                    return Err(too_large());
                }
                bytes.extend_from_slice(&data);
            }
            Ok(bytes.freeze())
        };
        match tokio::time::timeout(self.limits.body, read).await {
            Ok(read) => read,
            Err(_) => bail!(DeadlineExceeded, "the request did not arrive in time"),
        }
    }
}

fn is_json(parts: &Parts) -> bool {
    let kind = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
    kind.trim().eq_ignore_ascii_case(JSON)
}
