//! Responses: a message in pieces, so that tensors leave from where they are, or a status.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response};
use http_body::{Body, Frame, SizeHint};
use prost::Message;
use thalweg_proto as pb;
use thalweg_runtime::RunMetadata;
use thalweg_tensor::{DType, Error, Result, Tensor, ensure};

use crate::master::StepResult;

/// Tensors below this size are copied behind the header rather than sent as a piece of their own.
const SHARED_BYTES_MIN: usize = 4096;
/// What a length prefix can say.
const MESSAGE_BYTES_MAX: usize = u32::MAX as usize;
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

/// The body of a response.
pub(crate) struct Answer {
    frames: VecDeque<Frame<Bytes>>,
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
pub(crate) fn message(message: &impl Message) -> Response<Answer> {
    let mut pieces = Pieces::default();
    pieces.current.reserve(message.encoded_len());
    if let Err(e) = message.encode(&mut pieces.current) {
        return status(&Error::new(thalweg_tensor::Code::Internal, e.to_string()));
    }
    pieces.into_response()
}

/// A response that is nothing but an error.
pub(crate) fn status(error: &Error) -> Response<Answer> {
    let mut response = Response::new(Answer { frames: VecDeque::new() });
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, CONTENT_TYPE);
    headers.insert("grpc-status", HeaderValue::from(error.code() as u16));
    if let Ok(text) = HeaderValue::from_str(&percent_encoded(error.message())) {
        headers.insert("grpc-message", text);
    }
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
    let (tensors, metadata) = result.ran;
    // TensorFlow sorts them by name; clients look them up by it.
    let mut named: Vec<(&String, &Tensor)> = result.fetches.iter().zip(&tensors).collect();
    named.sort_by_key(|(name, _)| *name);
    named.dedup_by_key(|(name, _)| *name);
    let mut pieces = Pieces::default();
    for (name, tensor) in named {
        if let Err(e) = pieces.put_named_tensor(name, tensor) {
            return step(Err(e), errors_in_body);
        }
    }
    pieces.put_metadata(&metadata);
    pieces.into_response()
}

/// The response of `RunCallable`: tensors in order.
pub(crate) fn callable(result: Result<Vec<Tensor>>) -> Response<Answer> {
    let tensors = match result {
        Ok(tensors) => tensors,
        Err(e) => return status(&e),
    };
    let mut pieces = Pieces::default();
    for tensor in &tensors {
        if let Err(e) = pieces.put_tensor(1, tensor) {
            return status(&e);
        }
    }
    pieces.put_metadata(&RunMetadata::default());
    pieces.into_response()
}

/// A message on its way out: what was encoded, with large tensors between.
#[derive(Default)]
struct Pieces {
    done: Vec<Bytes>,
    current: BytesMut,
}

impl Pieces {
    fn put_named_tensor(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        let head = TensorHead::new(tensor)?;
        let named = field_len(1, name.len()) + field_len(2, head.message_len());
        put_len_field(&mut self.current, 1, named);
        put_len_field(&mut self.current, 1, name.len());
        self.current.put_slice(name.as_bytes());
        self.put_head(2, head);
        Ok(())
    }

    fn put_tensor(&mut self, field: u32, tensor: &Tensor) -> Result<()> {
        let head = TensorHead::new(tensor)?;
        self.put_head(field, head);
        Ok(())
    }

    fn put_head(&mut self, field: u32, head: TensorHead) {
        put_len_field(&mut self.current, field, head.message_len());
        self.current.put_slice(&head.encoded);
        if head.content.is_empty() {
            return;
        }
        put_len_field(&mut self.current, TENSOR_CONTENT, head.content.len());
        if head.content.len() < SHARED_BYTES_MIN {
            self.current.put_slice(&head.content);
        } else {
            self.done.push(self.current.split().freeze());
            self.done.push(head.content);
        }
    }

    /// TensorFlow sends it even if it is empty.
    fn put_metadata(&mut self, metadata: &RunMetadata) {
        let proto = step_stats(metadata);
        put_len_field(&mut self.current, 2, proto.encoded_len());
        proto.encode_raw(&mut self.current);
    }

    fn into_response(mut self) -> Response<Answer> {
        self.done.push(self.current.freeze());
        let len: usize = self.done.iter().map(Bytes::len).sum();
        if let Err(e) = check_len(len) {
            return status(&e);
        }
        let mut prefix = BytesMut::with_capacity(5 + self.done[0].len());
        prefix.put_u8(0);
        prefix.put_u32(len as u32);
        // Small messages leave as one frame.
        prefix.put_slice(&self.done[0]);
        let mut frames = VecDeque::with_capacity(self.done.len() + 1);
        frames.push_back(Frame::data(prefix.freeze()));
        let rest = self.done.into_iter().skip(1).filter(|piece| !piece.is_empty());
        frames.extend(rest.map(Frame::data));
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        frames.push_back(Frame::trailers(trailers));
        let mut response = Response::new(Answer { frames });
        response.headers_mut().insert(http::header::CONTENT_TYPE, CONTENT_TYPE);
        response
    }
}

fn check_len(len: usize) -> Result<()> {
    ensure!(
        len <= MESSAGE_BYTES_MAX,
        ResourceExhausted,
        "the answer has {len} bytes; a message holds at most {MESSAGE_BYTES_MAX}"
    );
    Ok(())
}

/// Number of `TensorProto.tensor_content`.
const TENSOR_CONTENT: u32 = 4;

/// A TensorProto without its content, and the content.
struct TensorHead {
    encoded: Vec<u8>,
    content: Bytes,
}

impl TensorHead {
    fn new(tensor: &Tensor) -> Result<TensorHead> {
        let mut proto = tensor.to_proto()?;
        let mut content = std::mem::take(&mut proto.tensor_content);
        if tensor.dtype() == DType::String {
            content = string_content(&std::mem::take(&mut proto.string_val));
        }
        Ok(TensorHead { encoded: proto.encode_to_vec(), content })
    }

    fn message_len(&self) -> usize {
        let content = match self.content.len() {
            0 => 0,
            len => field_len(TENSOR_CONTENT, len),
        };
        self.encoded.len() + content
    }
}

/// Strings as TensorFlow sends them: all lengths, then all bytes.
fn string_content(strings: &[Bytes]) -> Bytes {
    let bytes: usize = strings.iter().map(|s| s.len() + 10).sum();
    let mut content = BytesMut::with_capacity(bytes);
    for string in strings {
        prost::encoding::encode_varint(string.len() as u64, &mut content);
    }
    strings.iter().for_each(|string| content.put_slice(string));
    content.freeze()
}

/// Bytes that a length-delimited field takes with its tag.
fn field_len(field: u32, len: usize) -> usize {
    prost::encoding::key_len(field) + prost::encoding::encoded_len_varint(len as u64) + len
}

fn put_len_field(out: &mut BytesMut, field: u32, len: usize) {
    prost::encoding::encode_key(field, prost::encoding::WireType::LengthDelimited, out);
    prost::encoding::encode_varint(len as u64, out);
}

/// What was traced, as TensorFlow's tools read it.
fn step_stats(metadata: &RunMetadata) -> pb::RunMetadata {
    let mut devices: Vec<pb::DeviceStepStats> = Vec::new();
    for node in &metadata.nodes {
        let position = devices.iter().position(|d| *d.device == *node.device);
        let device = match position {
            Some(i) => &mut devices[i],
            None => {
                devices.push(pb::DeviceStepStats {
                    device: node.device.to_string(),
                    ..Default::default()
                });
                devices.last_mut().expect("one was pushed")
            }
        };
        let took = node.end_ns.saturating_sub(node.start_ns) as i64;
        device.node_stats.push(pb::NodeExecStats {
            node_name: node.node.to_string(),
            timeline_label: format!("{} = {}()", node.node, node.op),
            all_start_micros: (node.start_ns / 1000) as i64,
            all_start_nanos: node.start_ns as i64,
            op_end_rel_micros: took / 1000,
            op_end_rel_nanos: took,
            all_end_rel_micros: took / 1000,
            all_end_rel_nanos: took,
            thread_id: node.thread,
            ..Default::default()
        });
    }
    let step_stats = (!devices.is_empty()).then_some(pb::StepStats { dev_stats: devices });
    pb::RunMetadata { step_stats, ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use thalweg_tensor::{Shape, err};

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
        let result = StepResult { fetches, ran: (tensors, RunMetadata::default()) };
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
    }
}
