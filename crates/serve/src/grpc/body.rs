//! Bodies of responses: a complete message, or a stream of messages.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body::{Body, Frame, SizeHint};
use prost::Message;
use thalweg_rpc::{MessageBody, status};
use thalweg_tensor::{Budget, Charge};
use tokio::sync::mpsc;

use crate::connection::{Call, with_call};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The body of a response.
pub(crate) struct GrpcBody {
    content: Content,
    /// The call that it answers, until it is sent.
    _call: Option<Arc<Call>>,
}

enum Content {
    /// A complete unary response.
    Whole(MessageBody),
    /// A stream of messages up to an error; the status is the trailer.
    Stream(mpsc::Receiver<thalweg_tensor::Result<Bytes>>, bool),
}

/// The transport takes larger frames without a copy, and may keep them long after the body was dropped.
const LARGE_FRAME_BYTES: usize = 16 << 10;

impl GrpcBody {
    /// A unary response.
    pub(crate) fn whole(answer: MessageBody) -> GrpcBody {
        GrpcBody { content: Content::Whole(answer), _call: None }
    }

    /// A streaming response; each message is encoded by [`framed`].
    pub(crate) fn stream(
        messages: mpsc::Receiver<thalweg_tensor::Result<Bytes>>,
    ) -> Response<GrpcBody> {
        let content = Content::Stream(messages, false);
        let mut response = Response::new(GrpcBody { content, _call: None });
        let kind = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
        response
    }

    /// Keeps the call open, and the response charged to its budget, until the body is sent.
    pub(crate) fn with_charge(
        mut self,
        mut call: Call,
        budget: &Arc<Budget>,
    ) -> thalweg_tensor::Result<GrpcBody> {
        // Messages of a stream are few and small, so they are not charged.
        if let Content::Whole(answer) = &self.content {
            call.answered(Some(Charge::new(budget, answer.data_bytes())?));
        }
        let call = Arc::new(call);
        if let Content::Whole(answer) = &mut self.content {
            answer.map_data(|bytes| match bytes.len() {
                0..LARGE_FRAME_BYTES => bytes,
                _ => with_call(bytes, call.clone()),
            });
        }
        Ok(GrpcBody { _call: Some(call), ..self })
    }
}

/// A message of a stream with gRPC's length prefix.
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
        match &mut self.get_mut().content {
            Content::Whole(answer) => Pin::new(answer).poll_frame(context),
            Content::Stream(_, true) => Poll::Ready(None),
            Content::Stream(messages, ended) => messages.poll_recv(context).map(|message| {
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
        match &self.content {
            Content::Whole(answer) => answer.is_end_stream(),
            Content::Stream(_, ended) => *ended,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use thalweg_rpc::{Pieces, response};
    use thalweg_tensor::Code;

    use super::*;
    use crate::connection::Calls;

    fn body(len: usize) -> GrpcBody {
        let mut pieces = Pieces::default();
        pieces.put_bytes(1, Bytes::from(vec![7; len]));
        GrpcBody::whole(response(pieces).into_body())
    }

    #[test]
    fn a_response_is_charged_until_its_last_byte_is_sent() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for len in [100, LARGE_FRAME_BYTES, 1 << 20] {
            let (budget, calls) = (Budget::new(2 << 20), Arc::<Calls>::default());
            let mut with_charge = body(len).with_charge(calls.begin(), &budget).unwrap();
            assert!((len..len + 100).contains(&budget.used_bytes()), "{}", budget.used_bytes());
            let mut frames = Vec::new();
            while let Some(frame) = runtime.block_on(with_charge.frame()) {
                frames.push(frame.unwrap());
            }
            drop(with_charge);
            // Bytes that the transport holds.
            let expected = if len < LARGE_FRAME_BYTES { 0 } else { len };
            assert!(budget.used_bytes() >= expected, "{}", budget.used_bytes());
            drop(frames);
            assert_eq!(budget.used_bytes(), 0);
        }
        let refused =
            body(1 << 20).with_charge(Arc::<Calls>::default().begin(), &Budget::new(1000));
        assert_eq!(refused.err().map(|e| e.code()), Some(Code::ResourceExhausted));
    }
}
