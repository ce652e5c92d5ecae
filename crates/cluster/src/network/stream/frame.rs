//! The frame format of the stream protocol. All numbers are little-endian.
//!
//! Both sides begin with a [`Preface`]; the server closes the connection if the client's does not match. Then
//! come frames: a [`Header`] of 16 bytes and a body.
//!
//! | kind | from | body |
//! |---|---|---|
//! | `Want` | client | a `RecvTensorRequest` |
//! | `GiveUp` | client | nothing: the client cancels the request of this id |
//! | `Tensor` | server | a [`TensorStart`], then the first bytes of the content |
//! | `More` | server | the next bytes of the content |
//! | `Dead` | server | nothing: the tensor is dead (the result of a branch not taken) |
//! | `Failed` | server | the error's code, where it arose, and its text; see [`encode_error`] |
//! | `Ring` | client | an [`Offer`] of shared memory; its file descriptor is the frame's id, see `ring` |
//! | `Freed` | client | nothing: the slot of this id is free again |
//! | `Placed` | server | a [`SlotRange`]: the next bytes of the content lie there |
//!
//! The content of numbers is the tensor's memory; strings and other objects are a `TensorProto`.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use thalweg_kernel::Value;
use thalweg_proto as pb;
use thalweg_rpc::check_status;
use thalweg_tensor::{DType, Error, Result, Shape, Tensor, ensure, err};

use crate::network::own_messages::ErrorOrigin;

/// Changes with the format; tasks of different versions use gRPC.
pub(crate) const VERSION: u32 = 3;
/// The first bytes that a client sends. No other protocol of this port begins with the first of them.
pub(crate) const MAGIC: [u8; 8] = *b"\x17thalweg";
pub(crate) const PREFACE_BYTES: usize = 20;
pub(crate) const HEADER_BYTES: usize = 16;
/// The part of a [`TensorStart`] before its head.
pub(crate) const START_BYTES: usize = 13;
const OFFER_BYTES: usize = 8;
const SLOT_RANGE_BYTES: usize = 8;
/// Bytes of a `Want`, of a head, of an error.
pub(crate) const SMALL_BYTES_MAX: usize = 64 << 10;
/// Bytes of content in one frame: what a small tensor may have to wait for.
pub(crate) const PART_BYTES: usize = 1 << 20;

/// The first bytes of each side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Preface {
    pub(crate) version: u32,
    /// The server's: of the one that is called, or of the one that answers.
    pub(crate) incarnation: u64,
}

impl Preface {
    pub(crate) fn encode(&self) -> [u8; PREFACE_BYTES] {
        let mut bytes = [0; PREFACE_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; PREFACE_BYTES]) -> Result<Preface> {
        ensure!(bytes[..8] == MAGIC, InvalidArgument, "this is no stream of tensors");
        Ok(Preface { version: u32_at(bytes, 8), incarnation: u64_at(bytes, 12) })
    }
}

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Want = 1,
    GiveUp = 2,
    Tensor = 3,
    More = 4,
    Dead = 5,
    Failed = 6,
    Ring = 7,
    Freed = 8,
    Placed = 9,
}

const KINDS: [Kind; 9] = [
    Kind::Want,
    Kind::GiveUp,
    Kind::Tensor,
    Kind::More,
    Kind::Dead,
    Kind::Failed,
    Kind::Ring,
    Kind::Freed,
    Kind::Placed,
];

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Header {
    /// The id of the request that it belongs to.
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    /// Bytes of the body.
    pub(crate) len: usize,
}

impl Header {
    pub(crate) fn put(&self, out: &mut BytesMut) {
        out.put_u64_le(self.id);
        out.put_u32_le(self.len as u32);
        out.put_u32_le(self.kind as u32);
    }

    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header> {
        let number = u32_at(bytes, 12);
        let kind = KINDS.iter().copied().find(|kind| *kind as u32 == number);
        let kind = kind.ok_or_else(|| broken(&format!("there is no kind of frame {number}")))?;
        let len = u32_at(bytes, 8) as usize;
        let allowed = match kind {
            Kind::Want | Kind::Failed => 0..=SMALL_BYTES_MAX,
            Kind::GiveUp | Kind::Dead | Kind::Freed => 0..=0,
            Kind::Ring => OFFER_BYTES..=OFFER_BYTES,
            Kind::Placed => SLOT_RANGE_BYTES..=SLOT_RANGE_BYTES,
            Kind::Tensor => 0..=START_BYTES + SMALL_BYTES_MAX + PART_BYTES,
            Kind::More => 0..=PART_BYTES,
        };
        ensure!(
            allowed.contains(&len),
            DataLoss,
            "{}",
            broken(&format!("{len} bytes are no {kind:?} frame")).message()
        );
        Ok(Header { id: u64_at(bytes, 0), kind, len })
    }
}

/// An offer of shared memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Offer {
    /// Its file descriptor in the process that offers it.
    pub(crate) number: u64,
    /// Its inode number, to recognize the file.
    pub(crate) file: u64,
}

impl Offer {
    /// Encodes the whole frame.
    pub(crate) fn put(&self, out: &mut BytesMut) {
        Header { id: self.number, kind: Kind::Ring, len: OFFER_BYTES }.put(out);
        out.put_u64_le(self.file);
    }

    /// Decodes a frame's id and body.
    pub(crate) fn decode(number: u64, body: &[u8; OFFER_BYTES]) -> Offer {
        Offer { number, file: u64_at(body, 0) }
    }
}

/// The place of a part of a tensor in shared memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SlotRange {
    pub(crate) slot: usize,
    /// Number of bytes from the beginning of the slot.
    pub(crate) count: usize,
}

impl SlotRange {
    /// Encodes the whole frame.
    pub(crate) fn put(&self, id: u64, out: &mut BytesMut) {
        Header { id, kind: Kind::Placed, len: SLOT_RANGE_BYTES }.put(out);
        out.put_u32_le(self.slot as u32);
        out.put_u32_le(self.count as u32);
    }

    /// Decodes a frame's body.
    pub(crate) fn decode(body: &[u8; SLOT_RANGE_BYTES]) -> SlotRange {
        SlotRange { slot: u32_at(body, 0) as usize, count: u32_at(body, 4) as usize }
    }
}

/// The error for a violation of the protocol, which ends the stream.
pub(crate) fn broken(what: &str) -> Error {
    err!(DataLoss, "the stream of tensors is broken: {what}")
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("the caller has as many bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("the caller has as many bytes"))
}

/// The head of a tensor, which comes before its content.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TensorStart {
    /// Size of the whole content.
    pub(crate) content_bytes: u64,
    /// The dtype and shape if the content is the tensor's memory; none if it is a `TensorProto`.
    pub(crate) plain: Option<(DType, Shape)>,
}

impl TensorStart {
    /// The encoded head of a tensor, and its content.
    pub(crate) fn of(tensor: &Tensor) -> Result<(Bytes, Bytes)> {
        let mut proto = tensor.to_proto()?;
        let is_plain = !tensor.dtype().is_object();
        let (content, head) = match is_plain {
            true => (std::mem::take(&mut proto.tensor_content), proto.encode_to_vec()),
            false => (proto.encode_to_vec().into(), Vec::new()),
        };
        let mut start = BytesMut::with_capacity(START_BYTES + head.len());
        start.put_u64_le(content.len() as u64);
        start.put_u32_le(head.len() as u32);
        start.put_u8(is_plain.into());
        start.put_slice(&head);
        Ok((start.freeze(), content))
    }

    /// Length of the variable part of the head.
    pub(crate) fn head_bytes(fixed: &[u8; START_BYTES]) -> Result<usize> {
        let len = u32_at(fixed, 8) as usize;
        ensure!(len <= SMALL_BYTES_MAX, DataLoss, "{}", broken("a head is too large").message());
        Ok(len)
    }

    pub(crate) fn decode(fixed: &[u8; START_BYTES], head: &[u8]) -> Result<TensorStart> {
        let content_bytes = u64_at(fixed, 0);
        if fixed[12] == 0 {
            return Ok(TensorStart { content_bytes, plain: None });
        }
        let proto = pb::TensorProto::decode(head)
            .map_err(|e| broken(&format!("the head of a tensor cannot be decoded: {e}")))?;
        let dtype = DType::from_proto(proto.dtype)?;
        let shape = Shape::from_proto(&proto.tensor_shape.unwrap_or_default())?;
        let bytes = shape.num_elements().checked_mul(dtype.size()).map(|bytes| bytes as u64);
        ensure!(
            !dtype.is_object() && bytes == Some(content_bytes),
            DataLoss,
            "{}",
            broken(&format!("{content_bytes} bytes are no {dtype} tensor of shape {shape}"))
                .message()
        );
        Ok(TensorStart { content_bytes, plain: Some((dtype, shape)) })
    }
}

/// The frame of an answer: its kind, the bytes before the content, and the content.
pub(crate) fn answer(result: &Result<Value>) -> Result<(Kind, Bytes, Bytes)> {
    match result {
        Ok(Value::Tensor(tensor)) => {
            let (start, content) = TensorStart::of(tensor)?;
            Ok((Kind::Tensor, start, content))
        }
        Ok(Value::Dead) => Ok((Kind::Dead, Bytes::new(), Bytes::new())),
        Ok(_) => Err(err!(Internal, "there is no tensor to send")),
        Err(e) => Ok((Kind::Failed, encode_error(e), Bytes::new())),
    }
}

/// Bytes before the origin in an error: its code and the origin's length.
const ERROR_HEAD_BYTES: usize = 8;
/// Bytes of an origin; a longer one is left out.
const ORIGIN_BYTES_MAX: usize = SMALL_BYTES_MAX / 2;

/// A code, the length of the origin, the origin ([`ErrorOrigin`]) and the text, cut where it gets too long.
pub(crate) fn encode_error(error: &Error) -> Bytes {
    let origin = error.origin().map(ErrorOrigin::from).unwrap_or_default().encode_to_vec();
    let origin = if origin.len() <= ORIGIN_BYTES_MAX { &*origin } else { &[] };
    let text = error.message().as_bytes();
    let text = &text[..text.len().min(SMALL_BYTES_MAX - ERROR_HEAD_BYTES - origin.len())];
    let mut body = BytesMut::with_capacity(ERROR_HEAD_BYTES + origin.len() + text.len());
    body.put_u32_le(error.code() as u32);
    body.put_u32_le(origin.len() as u32);
    body.put_slice(origin);
    body.put_slice(text);
    body.freeze()
}

/// See [`encode_error`].
pub(crate) fn decode_error(body: &[u8]) -> Error {
    let Some((head, rest)) = body.split_at_checked(ERROR_HEAD_BYTES) else {
        return broken("an error has no code");
    };
    let Some((origin, text)) = rest.split_at_checked(u32_at(head, 4) as usize) else {
        return broken("the origin of an error is longer than the error");
    };
    let Ok(origin) = ErrorOrigin::decode(origin) else {
        return broken("the origin of an error cannot be read");
    };
    match check_status(u32_at(head, 0).into(), || String::from_utf8_lossy(text).into_owned()) {
        Err(e) if origin == ErrorOrigin::default() => e,
        Err(e) => e.with_shown_origin(origin.into()),
        Ok(()) => broken("an error says that nothing is wrong"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_tensor::Code;

    #[test]
    fn prefaces_and_headers_round_trip() {
        let preface = Preface { version: 7, incarnation: 0x0123_4567_89ab_cdef };
        assert_eq!(Preface::decode(&preface.encode()).unwrap(), preface);
        let mut other = preface.encode();
        other[0] = b'P';
        assert!(Preface::decode(&other).is_err());
        for kind in KINDS {
            let len = if matches!(kind, Kind::Ring | Kind::Placed) { 8 } else { 0 };
            let header = Header { id: u64::MAX - 1, kind, len };
            let mut bytes = BytesMut::new();
            header.put(&mut bytes);
            assert_eq!(Header::decode(bytes[..].try_into().unwrap()).unwrap(), header);
        }
    }

    #[test]
    fn frames_that_are_too_large_or_unknown_are_refused() {
        for (kind, len) in [
            (0, 0),
            (10, 0),
            (2, 1),
            (1, 1 << 20),
            (4, (1 << 20) + 1),
            (4, u32::MAX),
            (7, 0),
            (7, 9),
            (8, 1),
            (9, 7),
            (9, 16),
        ] {
            let mut bytes = BytesMut::new();
            bytes.put_u64_le(1);
            bytes.put_u32_le(len);
            bytes.put_u32_le(kind);
            assert!(Header::decode(bytes[..].try_into().unwrap()).is_err(), "{kind} {len}");
        }
    }

    #[test]
    fn tensors_are_described() {
        let numbers = Tensor::from_slice(Shape::new(&[2, 3]).unwrap(), &[1i16; 6]).unwrap();
        let (start, content) = TensorStart::of(&numbers).unwrap();
        let fixed: [u8; START_BYTES] = start[..START_BYTES].try_into().unwrap();
        let head = &start[START_BYTES..];
        assert_eq!(TensorStart::head_bytes(&fixed).unwrap(), head.len());
        let decoded = TensorStart::decode(&fixed, head).unwrap();
        assert_eq!(decoded.content_bytes, 12);
        assert_eq!(decoded.plain, Some((DType::Int16, numbers.shape().clone())));
        assert_eq!(content.as_ptr(), numbers.as_bytes().unwrap().as_ptr(), "nothing is copied");
        // Another length than the shape says.
        let mut wrong = fixed;
        wrong[0] += 1;
        assert_eq!(TensorStart::decode(&wrong, head).unwrap_err().code(), Code::DataLoss);
        let strings = Tensor::scalar_string("ab");
        let (start, content) = TensorStart::of(&strings).unwrap();
        assert_eq!((start.len(), start[12]), (START_BYTES, 0));
        assert!(!content.is_empty());
    }

    #[test]
    fn errors_keep_their_code() {
        let e = decode_error(&encode_error(&err!(Aborted, "step 7 is over")));
        assert_eq!((e.code(), e.message()), (Code::Aborted, "step 7 is over"));
        let e = err!(Internal, "boom").at_node("x").from_task("/job:ps");
        assert_eq!(decode_error(&encode_error(&e)), e);
        for strange in [&[][..], &[1, 0], &[0; 8], &[255; 8], &[13, 0, 0, 0, 1, 0, 0, 0, 255]] {
            assert!(!decode_error(strange).message().is_empty(), "{strange:?}");
        }
        let long = err!(Internal, "{}", "x".repeat(1 << 20));
        assert_eq!(encode_error(&long).len(), SMALL_BYTES_MAX);
    }
}
