//! Bodies and responses: a message in pieces, so that tensors are sent from their own memory, or a status.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use prost::Message;
use thalweg_tensor::{Code, Error, Result};

use crate::pieces::Pieces;
use crate::status::{percent_encoded, put_origin};

const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

/// The body of a unary request or response, encoded completely before the first frame is sent.
pub struct MessageBody {
    pub(crate) frames: VecDeque<Frame<Bytes>>,
}

impl MessageBody {
    /// Bytes of all data frames.
    pub fn data_bytes(&self) -> usize {
        self.frames.iter().filter_map(Frame::data_ref).map(Bytes::len).sum()
    }

    /// Replaces the bytes of each data frame, for example by bytes that also own a charge.
    pub fn map_data(&mut self, mut replace: impl FnMut(Bytes) -> Bytes) {
        for frame in &mut self.frames {
            if let Some(data) = frame.data_mut() {
                *data = replace(std::mem::take(data));
            }
        }
    }
}

impl Body for MessageBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.frames.pop_front().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// A response with status OK and this message.
pub fn message(message: &impl Message) -> Response<MessageBody> {
    let mut pieces = Pieces::default();
    pieces.current.reserve(message.encoded_len());
    if let Err(e) = message.encode(&mut pieces.current) {
        return status(&Error::new(Code::Internal, e.to_string()));
    }
    response(pieces)
}

/// The response to a request that is not gRPC: HTTP status 415.
pub fn not_grpc() -> Response<MessageBody> {
    let mut response = Response::new(MessageBody { frames: VecDeque::new() });
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

/// A response with status OK and the message in `pieces`.
pub fn response(pieces: Pieces) -> Response<MessageBody> {
    let mut frames = match pieces.into_frames() {
        Ok(frames) => frames,
        Err(e) => return status(&e),
    };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    frames.push_back(Frame::trailers(trailers));
    let mut response = Response::new(MessageBody { frames });
    response.headers_mut().insert(http::header::CONTENT_TYPE, CONTENT_TYPE);
    response
}

/// A response without a message: the code and the text of `error` as gRPC status headers.
pub fn status(error: &Error) -> Response<MessageBody> {
    let mut response = Response::new(MessageBody { frames: VecDeque::new() });
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, CONTENT_TYPE);
    headers.insert("grpc-status", HeaderValue::from(error.code() as u16));
    if let Ok(text) = HeaderValue::from_str(&percent_encoded(error.message())) {
        headers.insert("grpc-message", text);
    }
    response
}

/// As [`status`], with the error's origin in headers of ours, which tasks of ours read.
pub fn status_with_origin(error: &Error) -> Response<MessageBody> {
    let mut response = status(error);
    if let Some(origin) = error.origin() {
        put_origin(response.headers_mut(), origin);
    }
    response
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::err;

    use super::*;
    use crate::status::check_headers;

    #[test]
    fn a_status_is_percent_encoded() {
        let response = status(&err!(NotFound, "50 % \u{e9}\n"));
        assert_eq!(response.headers()["grpc-status"], "5");
        assert_eq!(response.headers()["grpc-message"], "50 %25 %C3%A9%0A");
    }

    #[test]
    fn an_errors_origin_travels_beside_its_text() {
        let error = err!(NotFound, "no file").at_node("lesen/ä").from_task("/job:ps");
        let response = status_with_origin(&error);
        let read = check_headers(response.headers()).unwrap_err();
        assert_eq!((read.message(), read.origin()), (error.message(), error.origin()));
        let long = err!(NotFound, "no file").at_node(&"x".repeat(100_000));
        let read = check_headers(status_with_origin(&long).headers()).unwrap_err();
        assert_eq!((read.code(), read.origin()), (Code::NotFound, None));
    }
}
