//! Responses: a message in pieces, so that tensors leave from where they are, or a status.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use prost::Message;
use thalweg_kernel::Value;
use thalweg_proto as pb;
use thalweg_tensor::{DType, Error, Result, Shape, Tensor, err};

use super::pieces::Pieces;
use crate::master::StepResult;
use crate::master::session::Ran;
use crate::metadata;
use crate::worker::part_answer::RanGraph;

const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

/// The body of a response, or of a request: all of it is there.
pub struct Answer {
    pub(crate) frames: VecDeque<Frame<Bytes>>,
}

impl Answer {
    /// Bytes of the messages in it.
    pub fn data_bytes(&self) -> usize {
        self.frames.iter().filter_map(Frame::data_ref).map(Bytes::len).sum()
    }

    /// Replaces the bytes of the messages, frame by frame, by such as hold something else too.
    pub fn map_data(&mut self, mut replace: impl FnMut(Bytes) -> Bytes) {
        for frame in &mut self.frames {
            if let Some(data) = frame.data_mut() {
                *data = replace(std::mem::take(data));
            }
        }
    }
}

impl Body for Answer {
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

/// A response with this message.
pub fn message(message: &impl Message) -> Response<Answer> {
    let mut pieces = Pieces::default();
    pieces.current.reserve(message.encoded_len());
    if let Err(e) = message.encode(&mut pieces.current) {
        return status(&Error::new(thalweg_tensor::Code::Internal, e.to_string()));
    }
    response(pieces)
}

/// What is no gRPC at all.
pub fn not_grpc() -> Response<Answer> {
    let mut response = Response::new(Answer { frames: VecDeque::new() });
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

/// A response whose message is all there.
pub fn response(pieces: Pieces) -> Response<Answer> {
    let mut frames = match pieces.into_frames() {
        Ok(frames) => frames,
        Err(e) => return status(&e),
    };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    frames.push_back(Frame::trailers(trailers));
    let mut response = Response::new(Answer { frames });
    response.headers_mut().insert(http::header::CONTENT_TYPE, CONTENT_TYPE);
    response
}

/// A response that is nothing but an error.
pub fn status(error: &Error) -> Response<Answer> {
    let mut response = Response::new(Answer { frames: VecDeque::new() });
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, CONTENT_TYPE);
    headers.insert("grpc-status", HeaderValue::from(error.code() as u16));
    if let Ok(text) = HeaderValue::from_str(&percent_encoded(error.message())) {
        headers.insert("grpc-message", text);
    }
    response
}

/// What TensorFlow's workers put beside an error that tells of a restart: a map with the name of
/// `WorkerPossiblyRestarted` in it, in base64.
const RESTARTED: HeaderValue = HeaderValue::from_static(
    "Ck4KSnR5cGUuZ29vZ2xlYXBpcy5jb20vdGVuc29yZmxvdy5kaXN0cmlidXRlZF9ydW50aW1lLldvcmtlclBvc3NpYmx5\
     UmVzdGFydGVkEgA=",
);

/// As [`status`], for an error that whoever asked meets because this task was restarted.
pub(crate) fn restarted(error: &Error) -> Response<Answer> {
    let mut response = status(error);
    response.headers_mut().insert("grpc-status-details-bin", RESTARTED);
    response
}

/// Headers have room for some kilobytes only.
const STATUS_TEXT_BYTES_MAX: usize = 4096;

/// As gRPC wants it: printable ASCII without `%` as it is, other bytes as `%XX`.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for &byte in text.as_bytes().iter().take(STATUS_TEXT_BYTES_MAX) {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(byte as char),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The response of `RunStep`: fetched tensors under their names.
pub(crate) fn step(result: Result<StepResult>, errors_in_body: bool) -> Response<Answer> {
    let result = match result {
        Ok(result) => result,
        Err(e) if errors_in_body => {
            return message(&pb::RunStepResponse {
                status_code: e.code() as i32,
                status_error_message: e.message().to_owned(),
                ..Default::default()
            });
        }
        Err(e) => return status(&e),
    };
    let (tensors, report) = result.ran;
    // TensorFlow sorts them by name; clients look them up by it.
    let mut named: Vec<(&String, &Tensor)> = result.fetches.iter().zip(&tensors).collect();
    named.sort_by_key(|(name, _)| *name);
    named.dedup_by_key(|(name, _)| *name);
    let mut pieces = Pieces::default();
    for (name, tensor) in named {
        if let Err(e) = pieces.put_named_tensor(1, name, tensor) {
            return step(Err(e), errors_in_body);
        }
    }
    // TensorFlow sends it even if it is empty, but not before the last part of a partial run.
    if let Some(report) = report {
        pieces.put_message(2, &metadata::to_proto(&report));
    }
    response(pieces)
}

/// The response of `RunCallable`: tensors in order.
pub(crate) fn callable(result: Result<Ran>) -> Response<Answer> {
    let (tensors, report) = match result {
        Ok(ran) => ran,
        Err(e) => return status(&e),
    };
    let mut pieces = Pieces::default();
    for tensor in &tensors {
        if let Err(e) = pieces.put_tensor(1, tensor) {
            return status(&e);
        }
    }
    pieces.put_message(2, &metadata::to_proto(&report));
    response(pieces)
}

/// The response of `RunGraph`.
pub(crate) fn ran(result: Result<RanGraph>, errors_in_body: bool) -> Response<Answer> {
    let ran = match result {
        Ok(ran) => ran,
        Err(e) if errors_in_body => {
            return message(&pb::RunGraphResponse {
                status_code: e.code() as i32,
                status_error_message: e.message().to_owned(),
                ..Default::default()
            });
        }
        Err(e) => return status(&e),
    };
    let mut pieces = Pieces::default();
    for (key, tensor) in &ran.received {
        if let Err(e) = pieces.put_named_tensor(1, key, tensor) {
            return self::ran(Err(e), errors_in_body);
        }
    }
    if !ran.goes_on {
        pieces.put_fields(&ran.report());
    }
    response(pieces)
}

/// The response of `RecvTensor`, sent at `now` since 1970. TensorFlow reads it fastest with the
/// tensor at its end.
pub(crate) fn received(result: Result<Value>, now: Duration) -> Response<Answer> {
    let value = match result {
        Ok(value) => value,
        Err(e) => return status(&e),
    };
    let mut pieces = Pieces::default();
    pieces.put_fields(&pb::RecvTensorResponse {
        is_dead: matches!(value, Value::Dead),
        send_start_micros: now.as_micros() as i64,
        ..Default::default()
    });
    let put = match &value {
        Value::Tensor(tensor) => pieces.put_tensor(1, tensor),
        Value::Dead => Shape::new(&[0])
            .and_then(|shape| Tensor::zeros(DType::Float, shape))
            .and_then(|tensor| pieces.put_tensor(1, &tensor)),
        _ => Err(err!(Internal, "there is no tensor to send")),
    };
    match put {
        Ok(()) => response(pieces),
        Err(e) => status(&e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use thalweg_runtime::RunMetadata;

    fn body(response: Response<Answer>) -> Vec<u8> {
        let collected = response.into_body().collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(collected).unwrap().to_bytes().to_vec()
    }

    #[test]
    fn hand_made_messages_decode() {
        let large = Tensor::zeros(DType::Float, Shape::new(&[100, 100]).unwrap()).unwrap();
        let small = Tensor::vector(&[1i64, 2]).unwrap();
        let strings = Tensor::from_strings(
            Shape::new(&[2]).unwrap(),
            vec![Bytes::from_static(b"ab"), Bytes::from_static(b"c")],
        )
        .unwrap();
        let fetches = vec!["s:0".to_owned(), "large:0".to_owned(), "i:0".to_owned()];
        let tensors = vec![strings, large, small.clone()];
        let result = StepResult { fetches, ran: (tensors, Some(RunMetadata::default())) };
        let bytes = body(step(Ok(result), true));
        assert_eq!(bytes.len() - 5, u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize);
        let decoded = pb::RunStepResponse::decode(&bytes[5..]).unwrap();
        let names: Vec<&str> = decoded.tensor.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["i:0", "large:0", "s:0"]);
        let tensor = |i: usize| {
            Tensor::from_proto(decoded.tensor[i].tensor.as_ref().unwrap(), None).unwrap()
        };
        assert_eq!(tensor(0).as_slice::<i64>().unwrap(), small.as_slice::<i64>().unwrap());
        assert_eq!(tensor(1).shape().to_string(), "[100,100]");
        assert_eq!(tensor(2).strings().unwrap(), ["ab", "c"]);
        let content = &decoded.tensor[2].tensor.as_ref().unwrap().tensor_content;
        assert_eq!(content, &b"\x02\x01abc"[..]);
        assert!(decoded.metadata.is_some());
    }

    #[test]
    fn errors_travel_in_the_body_or_as_status() {
        let bytes = body(step(Err(err!(NotFound, "no")), true));
        let decoded = pb::RunStepResponse::decode(&bytes[5..]).unwrap();
        assert_eq!((decoded.status_code, &*decoded.status_error_message), (5, "no"));
        let response = step(Err(err!(NotFound, "50 % \u{e9}\n")), false);
        assert_eq!(response.headers()["grpc-status"], "5");
        assert_eq!(response.headers()["grpc-message"], "50 %25 %C3%A9%0A");
        let response = restarted(&err!(Aborted, "gone"));
        let details = &response.headers()["grpc-status-details-bin"];
        assert_eq!((details.len(), details.as_bytes()[details.len() - 1]), (108, b'='));
    }
}
