//! Encoding messages without copying large tensors: their memory becomes HTTP/2 data frames.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use http_body::Frame;
use prost::Message;
use thalweg_tensor::{DType, Result, Tensor, ensure};

/// Smaller byte fields are copied behind their header rather than sent as a piece of their own.
const SHARED_BYTES_MIN: usize = 4096;
/// Maximum value of gRPC's length prefix.
const MESSAGE_BYTES_MAX: usize = u32::MAX as usize;

/// An encoded message: pieces of encoded fields, with the memory of large tensors between them.
#[derive(Default)]
pub struct Pieces {
    /// The complete pieces.
    complete: Vec<Bytes>,
    /// The fields after the complete pieces.
    pub(crate) current: BytesMut,
}

impl Pieces {
    /// Appends the fields of a message.
    pub fn put_fields(&mut self, message: &impl Message) {
        message.encode_raw(&mut self.current);
    }

    /// Appends a `NamedTensorProto` as field `field`.
    pub fn put_named_tensor(&mut self, field: u32, name: &str, tensor: &Tensor) -> Result<()> {
        let head = TensorHead::new(tensor)?;
        let named = field_len(1, name.len()) + field_len(2, head.message_len());
        put_len_field(&mut self.current, field, named);
        put_len_field(&mut self.current, 1, name.len());
        self.current.put_slice(name.as_bytes());
        self.put_head(2, head);
        Ok(())
    }

    /// Appends a `TensorProto` as field `field`.
    pub fn put_tensor(&mut self, field: u32, tensor: &Tensor) -> Result<()> {
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
        self.put_bytes(TENSOR_CONTENT, head.content);
    }

    /// Appends bytes as field `field`; large ones are not copied.
    pub fn put_bytes(&mut self, field: u32, bytes: Bytes) {
        put_len_field(&mut self.current, field, bytes.len());
        if bytes.len() < SHARED_BYTES_MIN {
            self.current.put_slice(&bytes);
        } else {
            self.complete.push(self.current.split().freeze());
            self.complete.push(bytes);
        }
    }

    /// Appends the header of a field of `len` bytes, which the caller appends next.
    pub fn begin_field(&mut self, field: u32, len: usize) {
        put_len_field(&mut self.current, field, len);
    }

    /// Appends a message as field `field`.
    pub fn put_message(&mut self, field: u32, message: &impl Message) {
        put_len_field(&mut self.current, field, message.encoded_len());
        message.encode_raw(&mut self.current);
    }

    /// The data frames, with gRPC's length prefix.
    pub fn into_frames(mut self) -> Result<VecDeque<Frame<Bytes>>> {
        self.complete.push(self.current.freeze());
        let len: usize = self.complete.iter().map(Bytes::len).sum();
        check_len(len)?;
        let mut prefix = BytesMut::with_capacity(5 + self.complete[0].len());
        prefix.put_u8(0);
        prefix.put_u32(len as u32);
        // A small message is one frame.
        prefix.put_slice(&self.complete[0]);
        let mut frames = VecDeque::with_capacity(self.complete.len() + 1);
        frames.push_back(Frame::data(prefix.freeze()));
        let rest = self.complete.into_iter().skip(1).filter(|piece| !piece.is_empty());
        frames.extend(rest.map(Frame::data));
        Ok(frames)
    }
}

fn check_len(len: usize) -> Result<()> {
    ensure!(
        len <= MESSAGE_BYTES_MAX,
        ResourceExhausted,
        "the message has {len} bytes; a gRPC message has at most {MESSAGE_BYTES_MAX}"
    );
    Ok(())
}

/// Field number of `TensorProto.tensor_content`.
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
pub fn field_len(field: u32, len: usize) -> usize {
    prost::encoding::key_len(field) + prost::encoding::encoded_len_varint(len as u64) + len
}

fn put_len_field(out: &mut BytesMut, field: u32, len: usize) {
    prost::encoding::encode_key(field, prost::encoding::WireType::LengthDelimited, out);
    prost::encoding::encode_varint(len as u64, out);
}
