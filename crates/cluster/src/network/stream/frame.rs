//! The frame format of the stream protocol. All numbers are little-endian.
//!
//! Both sides begin with a [`Preface`]; the server closes the connection if the client's does not match. Then
//! come frames: a [`Header`] of 16 bytes and a body.
//!
//! | kind | from | body |
//! |---|---|---|
//! | `Request` | client | a `RecvTensorRequest` |
//! | `Cancel` | client | empty: cancels the request of this id |
//! | `Tensor` | server | a [`TensorStart`], then the first bytes of the content |
//! | `Continuation` | server | the next bytes of the content |
//! | `Dead` | server | empty: the tensor is dead (the result of a branch not taken) |
//! | `Error` | server | the error's code, origin and text; see [`encode_error`] |
//! | `Ring` | client | a [`RingOffer`] of shared memory; its file descriptor is the frame's id, see `ring` |
//! | `SlotFreed` | client | empty: the slot of this id may be filled again |
//! | `SlotFilled` | server | a [`SlotRange`]: the slot that holds the next bytes of the content |
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
/// Length of the fixed part of a [`TensorStart`].
pub(crate) const START_BYTES: usize = 13;
const OFFER_BYTES: usize = 8;
const SLOT_RANGE_BYTES: usize = 8;
/// Maximum size of a `Request`, of a tensor's head, of an error.
pub(crate) const SMALL_BYTES_MAX: usize = 64 << 10;
/// Maximum number of content bytes in one frame; a small tensor waits for at most one such frame.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;

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
        ensure!(
            bytes[..8] == MAGIC,
            InvalidArgument,
            "these bytes are not a preface of the stream protocol"
        );
        Ok(Preface { version: u32_at(bytes, 8), incarnation: u64_at(bytes, 12) })
    }
}

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FrameKind {
    Request = 1,
    Cancel = 2,
    Tensor = 3,
    Continuation = 4,
    Dead = 5,
    Error = 6,
    Ring = 7,
    SlotFreed = 8,
    SlotFilled = 9,
}

const KINDS: [FrameKind; 9] = [
    FrameKind::Request,
    FrameKind::Cancel,
    FrameKind::Tensor,
    FrameKind::Continuation,
    FrameKind::Dead,
    FrameKind::Error,
    FrameKind::Ring,
    FrameKind::SlotFreed,
    FrameKind::SlotFilled,
];

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Header {
    /// The id of the request that it belongs to.
    pub(crate) id: u64,
    pub(crate) kind: FrameKind,
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
        let kind = kind.ok_or_else(|| protocol_error(&format!("unknown frame kind {number}")))?;
        let len = u32_at(bytes, 8) as usize;
        let allowed = match kind {
            FrameKind::Request | FrameKind::Error => 0..=SMALL_BYTES_MAX,
            FrameKind::Cancel | FrameKind::Dead | FrameKind::SlotFreed => 0..=0,
            FrameKind::Ring => OFFER_BYTES..=OFFER_BYTES,
            FrameKind::SlotFilled => SLOT_RANGE_BYTES..=SLOT_RANGE_BYTES,
            FrameKind::Tensor => 0..=START_BYTES + SMALL_BYTES_MAX + CHUNK_BYTES,
            FrameKind::Continuation => 0..=CHUNK_BYTES,
        };
        ensure!(
            allowed.contains(&len),
            DataLoss,
            "{}",
            protocol_error(&format!("a {kind:?} frame cannot have {len} bytes")).message()
        );
        Ok(Header { id: u64_at(bytes, 0), kind, len })
    }
}

/// An offer of shared memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RingOffer {
    /// Its file descriptor in the process that offers it.
    pub(crate) fd: u64,
    /// Its inode number, to recognize the file.
    pub(crate) inode: u64,
}

impl RingOffer {
    /// Encodes the whole frame.
    pub(crate) fn put(&self, out: &mut BytesMut) {
        Header { id: self.fd, kind: FrameKind::Ring, len: OFFER_BYTES }.put(out);
        out.put_u64_le(self.inode);
    }

    /// Decodes a frame's id and body.
    pub(crate) fn decode(fd: u64, body: &[u8; OFFER_BYTES]) -> RingOffer {
        RingOffer { fd, inode: u64_at(body, 0) }
    }
}

/// The location of a chunk of a tensor in shared memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SlotRange {
    pub(crate) slot: usize,
    /// Number of bytes from the beginning of the slot.
    pub(crate) count: usize,
}

impl SlotRange {
    /// Encodes the whole frame.
    pub(crate) fn put(&self, id: u64, out: &mut BytesMut) {
        Header { id, kind: FrameKind::SlotFilled, len: SLOT_RANGE_BYTES }.put(out);
        out.put_u32_le(self.slot as u32);
        out.put_u32_le(self.count as u32);
    }

    /// Decodes a frame's body.
    pub(crate) fn decode(body: &[u8; SLOT_RANGE_BYTES]) -> SlotRange {
        SlotRange { slot: u32_at(body, 0) as usize, count: u32_at(body, 4) as usize }
    }
}

/// The error for a violation of the protocol, which ends the stream.
pub(crate) fn protocol_error(what: &str) -> Error {
    err!(DataLoss, "stream protocol error: {what}")
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(
        bytes[at..at + 4].try_into().expect("the slice has the length of the number"),
    )
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(
        bytes[at..at + 8].try_into().expect("the slice has the length of the number"),
    )
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
        ensure!(
            len <= SMALL_BYTES_MAX,
            DataLoss,
            "{}",
            protocol_error("the head of a tensor is too large").message()
        );
        Ok(len)
    }

    pub(crate) fn decode(fixed: &[u8; START_BYTES], head: &[u8]) -> Result<TensorStart> {
        let content_bytes = u64_at(fixed, 0);
        if fixed[12] == 0 {
            return Ok(TensorStart { content_bytes, plain: None });
        }
        let proto = pb::TensorProto::decode(head)
            .map_err(|e| protocol_error(&format!("the head of a tensor cannot be decoded: {e}")))?;
        let dtype = DType::from_proto(proto.dtype)?;
        let shape = Shape::from_proto(&proto.tensor_shape.unwrap_or_default())?;
        let bytes = shape.num_elements().checked_mul(dtype.size()).map(|bytes| bytes as u64);
        ensure!(
            !dtype.is_object() && bytes == Some(content_bytes),
            DataLoss,
            "{}",
            protocol_error(&format!(
                "{content_bytes} bytes of content for a {dtype} tensor of shape {shape}"
            ))
            .message()
        );
        Ok(TensorStart { content_bytes, plain: Some((dtype, shape)) })
    }
}

/// The frame of an answer: its kind, the bytes before the content, and the content.
pub(crate) fn answer(result: &Result<Value>) -> Result<(FrameKind, Bytes, Bytes)> {
    match result {
        Ok(Value::Tensor(tensor)) => {
            let (start, content) = TensorStart::of(tensor)?;
            Ok((FrameKind::Tensor, start, content))
        }
        Ok(Value::Dead) => Ok((FrameKind::Dead, Bytes::new(), Bytes::new())),
        Ok(_) => {
            Err(err!(Internal, "internal error: the rendezvous holds a value that is not a tensor"))
        }
        Err(e) => Ok((FrameKind::Error, encode_error(e), Bytes::new())),
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
        return protocol_error("an Error frame has no code");
    };
    let Some((origin, text)) = rest.split_at_checked(u32_at(head, 4) as usize) else {
        return protocol_error("the origin of an error is longer than its frame");
    };
    let Ok(origin) = ErrorOrigin::decode(origin) else {
        return protocol_error("the origin of an error cannot be decoded");
    };
    match check_status(u32_at(head, 0).into(), || String::from_utf8_lossy(text).into_owned()) {
        Err(e) if origin == ErrorOrigin::default() => e,
        Err(e) => e.with_shown_origin(origin.into()),
        Ok(()) => protocol_error("an Error frame has the code OK"),
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
        assert_eq!(Preface::decode(&other).unwrap_err().code(), Code::InvalidArgument);
        for kind in KINDS {
            let len = if matches!(kind, FrameKind::Ring | FrameKind::SlotFilled) { 8 } else { 0 };
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
            let e = Header::decode(bytes[..].try_into().unwrap()).unwrap_err();
            assert_eq!(e.code(), Code::DataLoss, "{kind} {len}: {e}");
        }
    }

    #[test]
    fn heads_describe_tensors() {
        let numbers = Tensor::from_slice(Shape::new(&[2, 3]).unwrap(), &[1i16; 6]).unwrap();
        let (start, content) = TensorStart::of(&numbers).unwrap();
        let fixed: [u8; START_BYTES] = start[..START_BYTES].try_into().unwrap();
        let head = &start[START_BYTES..];
        assert_eq!(TensorStart::head_bytes(&fixed).unwrap(), head.len());
        let decoded = TensorStart::decode(&fixed, head).unwrap();
        assert_eq!(decoded.content_bytes, 12);
        assert_eq!(decoded.plain, Some((DType::Int16, numbers.shape().clone())));
        assert_eq!(content.as_ptr(), numbers.as_bytes().unwrap().as_ptr(), "nothing is copied");
        // A length that differs from the shape's.
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
        for (body, words) in [
            (&[][..], "has no code"),
            (&[1, 0], "has no code"),
            (&[0; 8], "has the code OK"),
            (&[255; 8], "longer than its frame"),
            (&[13, 0, 0, 0, 1, 0, 0, 0, 255], "cannot be decoded"),
        ] {
            let e = decode_error(body);
            assert_eq!(e.code(), Code::DataLoss, "{body:?}: {e}");
            assert!(e.message().contains(words), "{body:?}: {e}");
        }
        let long = err!(Internal, "{}", "x".repeat(1 << 20));
        assert_eq!(encode_error(&long).len(), SMALL_BYTES_MAX);
    }
}
