//! Bodies of answers: whole, or message by message.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body::{Body, Frame, SizeHint};
use prost::Message;
use thalweg_cluster::grpc::framing::{Answer, status};
use tokio::sync::mpsc;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The body of an answer.
pub(crate) enum GrpcBody {
    /// All of it is there.
    Whole(Answer),
    /// Messages come as they are sent, up to an error; at the end comes the status.
    Stream(mpsc::Receiver<thalweg_tensor::Result<Bytes>>, bool),
}

impl GrpcBody {
    /// An answer whose messages come one by one, each as [`framed`] made it.
    pub(crate) fn stream(
        messages: mpsc::Receiver<thalweg_tensor::Result<Bytes>>,
    ) -> Response<GrpcBody> {
        let mut response = Response::new(GrpcBody::Stream(messages, false));
        let kind = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
        response
    }
}

/// A message of a stream, with its length in front.
pub(crate) fn framed(message: &impl Message) -> Bytes {
    let len = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(5 + len);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
    message.encode_raw(&mut bytes);
    bytes.freeze()
}

impl Body for GrpcBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            GrpcBody::Whole(answer) => Pin::new(answer).poll_frame(context),
            GrpcBody::Stream(_, true) => Poll::Ready(None),
            GrpcBody::Stream(messages, ended) => messages.poll_recv(context).map(|message| {
                let trailers = match message {
                    Some(Ok(message)) => return Some(Ok(Frame::data(message))),
                    Some(Err(e)) => {
                        let mut headers = std::mem::take(status(&e).headers_mut());
                        headers.remove(http::header::CONTENT_TYPE);
                        headers
                    }
                    None => HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]),
                };
                *ended = true;
                Some(Ok(Frame::trailers(trailers)))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            GrpcBody::Whole(answer) => answer.is_end_stream(),
            GrpcBody::Stream(_, ended) => *ended,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
