//! Bodies of answers: whole, or message by message.

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

use crate::connection::{Call, held};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The body of an answer.
pub(crate) struct GrpcBody {
    content: Content,
    /// What it answers.
    _call: Option<Arc<Call>>,
}

enum Content {
    /// All of it is there.
    Whole(MessageBody),
    /// Messages come as they are sent, up to an error; at the end comes the status.
    Stream(mpsc::Receiver<thalweg_tensor::Result<Bytes>>, bool),
}

/// The transport takes frames with more bytes as a whole, and may keep them long after the body is
/// gone.
const LARGE_FRAME_BYTES: usize = 16 << 10;

impl GrpcBody {
    /// An answer that is there.
    pub(crate) fn whole(answer: MessageBody) -> GrpcBody {
        GrpcBody { content: Content::Whole(answer), _call: None }
    }

    /// An answer whose messages come one by one, each as [`framed`] made it.
    pub(crate) fn stream(
        messages: mpsc::Receiver<thalweg_tensor::Result<Bytes>>,
    ) -> Response<GrpcBody> {
        let content = Content::Stream(messages, false);
        let mut response = Response::new(GrpcBody { content, _call: None });
        let kind = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
        response
    }

    /// The same; the call is over once it has left, and so is what its memory is charged to.
    pub(crate) fn leaving(
        mut self,
        mut call: Call,
        budget: &Arc<Budget>,
    ) -> thalweg_tensor::Result<GrpcBody> {
        // Messages of a stream are few and small, and nobody knows when the next one comes.
        if let Content::Whole(answer) = &self.content {
            call.answered(Some(Charge::new(budget, answer.data_bytes())?));
        }
        let call = Arc::new(call);
        if let Content::Whole(answer) = &mut self.content {
            answer.map_data(|bytes| match bytes.len() {
                0..LARGE_FRAME_BYTES => bytes,
                _ => held(bytes, call.clone()),
            });
        }
        Ok(GrpcBody { _call: Some(call), ..self })
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
    fn an_answer_is_charged_until_the_last_of_it_is_gone() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for len in [100, LARGE_FRAME_BYTES, 1 << 20] {
            let (budget, calls) = (Budget::new(2 << 20), Arc::<Calls>::default());
            let mut leaving = body(len).leaving(calls.begin(), &budget).unwrap();
            assert!((len..len + 100).contains(&budget.used_bytes()), "{}", budget.used_bytes());
            let mut frames = Vec::new();
            while let Some(frame) = runtime.block_on(leaving.frame()) {
                frames.push(frame.unwrap());
            }
            drop(leaving);
            // What the transport has in hand.
            let expected = if len < LARGE_FRAME_BYTES { 0 } else { len };
            assert!(budget.used_bytes() >= expected, "{}", budget.used_bytes());
            drop(frames);
            assert_eq!(budget.used_bytes(), 0);
        }
        let refused = body(1 << 20).leaving(Arc::<Calls>::default().begin(), &Budget::new(1000));
        assert_eq!(refused.err().map(|e| e.code()), Some(Code::ResourceExhausted));
    }
}
