//! The bare server.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

use crate::Outcome;

/// A message and its status.
struct Echoed(VecDeque<Frame<Bytes>>);

impl Body for Echoed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

/// Serves until it is killed; says where on standard output.
pub(crate) async fn serve() -> Outcome<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("gRPC listening on {}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(
            http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service_fn(echoed)),
        );
    }
}

async fn echoed(request: Request<Incoming>) -> Result<Response<Echoed>, hyper::Error> {
    let message = request.into_body().collect().await?.to_bytes();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let frames = [Frame::data(message), Frame::trailers(trailers)];
    let mut response = Response::new(Echoed(frames.into()));
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    Ok(response)
}
