//! Scatter reads of a message: the bytes of large tensors are copied from each data frame into memory of their
//! own, which the tensors then keep.
//!
//! They are copied while they are in the cache, the memory of a frame is free for the next one, and a large
//! message is never in memory twice. All other fields stay in the frames they came in.

use bytes::Bytes;
use smallvec::SmallVec;
use thalweg_formats::wire::varint;
use thalweg_tensor::{DType, Result, Shape, Tensor};

use crate::rope::Rope;

/// Tensors with fewer bytes stay in their data frames.
const TENSOR_BYTES_MIN: usize = 64 << 10;
/// Maximum length of a tag and a length.
const HEADER_BYTES_MAX: usize = 20;

/// Field numbers that lead from a message to the `tensor_content` of its tensors; empty if it has none.
pub type FieldPath = &'static [u64];

/// A message that is being received.
pub(crate) struct Gather {
    path: FieldPath,
    rope: Rope,
    /// Bytes received.
    received: usize,
    /// Ends of the messages that the path has entered, outermost first.
    ends: SmallVec<[usize; 4]>,
    state: ParserState,
}

enum ParserState {
    /// The tag and the length of a field.
    Header(SmallVec<[u8; HEADER_BYTES_MAX]>),
    /// Bytes that stay in their frames; the number of missing bytes.
    Skip(usize),
    /// A tensor's bytes; the number of received bytes.
    Tensor(Tensor, usize),
}

/// The header of a field.
struct Field {
    number: u64,
    /// Bytes after the header.
    len: usize,
    is_bytes: bool,
}

impl Gather {
    /// A message of `len` bytes, none of them received.
    pub(crate) fn new(path: FieldPath, len: usize) -> Gather {
        let is_plain = path.is_empty() || len < TENSOR_BYTES_MIN;
        let state =
            if is_plain { ParserState::Skip(len) } else { ParserState::Header(SmallVec::new()) };
        Gather {
            path,
            rope: Rope::default(),
            received: 0,
            ends: SmallVec::from_slice(&[len]),
            state,
        }
    }

    /// Bytes received.
    pub(crate) fn len(&self) -> usize {
        self.received
    }

    /// Appends the next bytes, which must not exceed the message.
    pub(crate) fn push(&mut self, mut frame: Bytes) -> Result<()> {
        // Start of the bytes that stay in this frame.
        let mut kept = 0;
        let mut i = 0;
        while i < frame.len() {
            let count = match &mut self.state {
                ParserState::Header(header) => {
                    header.push(frame[i]);
                    1
                }
                ParserState::Skip(left) => {
                    let count = (*left).min(frame.len() - i);
                    *left -= count;
                    count
                }
                ParserState::Tensor(tensor, filled) => {
                    let rest = &mut tensor.as_mut_slice::<u8>()?[*filled..];
                    let count = rest.len().min(frame.len() - i);
                    rest[..count].copy_from_slice(&frame[i..i + count]);
                    *filled += count;
                    kept = i + count;
                    count
                }
            };
            i += count;
            self.received += count;
            let tensor = self.advance()?;
            if let Some(tensor) = tensor {
                self.rope.push(frame.slice(kept..i));
                kept = i;
                self.state = ParserState::Tensor(tensor, 0);
            }
        }
        self.rope.push(frame.split_off(kept));
        Ok(())
    }

    /// The message; the caller has checked that it is complete.
    pub(crate) fn finish(self) -> Rope {
        self.rope
    }

    /// Advances the parser; returns memory for a tensor if one begins here.
    fn advance(&mut self) -> Result<Option<Tensor>> {
        match &self.state {
            ParserState::Header(header) => match parse(header) {
                Parsed::Incomplete => return Ok(None),
                Parsed::Malformed => self.state = ParserState::Skip(usize::MAX),
                Parsed::Field(field) => return self.enter(&field),
            },
            ParserState::Skip(0) => self.next_field(),
            ParserState::Skip(_) => {}
            ParserState::Tensor(tensor, filled) if *filled == tensor.num_elements() => {
                self.rope.push(tensor.to_bytes()?);
                self.next_field();
            }
            ParserState::Tensor(..) => {}
        }
        Ok(None)
    }

    fn next_field(&mut self) {
        while self.ends.len() > 1 && self.ends.last() == Some(&self.received) {
            self.ends.pop();
        }
        self.state = ParserState::Header(SmallVec::new());
    }

    fn enter(&mut self, field: &Field) -> Result<Option<Tensor>> {
        let rest = self.ends.last().map_or(0, |end| end.saturating_sub(self.received));
        if field.len > rest {
            // Malformed; decoding the message gives the error.
            self.state = ParserState::Skip(usize::MAX);
            return Ok(None);
        }
        let is_on_path =
            field.is_bytes && field.len > 0 && field.number == self.path[self.ends.len() - 1];
        if is_on_path && self.ends.len() < self.path.len() {
            self.ends.push(self.received + field.len);
            self.state = ParserState::Header(SmallVec::new());
        } else if is_on_path && field.len >= TENSOR_BYTES_MIN {
            return Tensor::allocate(DType::UInt8, Shape::new(&[field.len])?, None).map(Some);
        } else if field.len > 0 {
            self.state = ParserState::Skip(field.len);
        } else {
            self.next_field();
        }
        Ok(None)
    }
}

enum Parsed {
    Incomplete,
    Malformed,
    Field(Field),
}

fn parse(header: &[u8]) -> Parsed {
    if header.last().is_none_or(|byte| byte & 0x80 != 0) {
        // Within a number, which may take half of a header.
        let is_possible = header.len() < HEADER_BYTES_MAX;
        return if is_possible { Parsed::Incomplete } else { Parsed::Malformed };
    }
    let Ok((tag, tag_len)) = varint(header) else { return Parsed::Malformed };
    let rest = &header[tag_len..];
    let (len, is_bytes) = match tag & 7 {
        1 => (8, false),
        5 => (4, false),
        0 | 2 if rest.is_empty() => return Parsed::Incomplete,
        0 => (0, false),
        2 => match varint(rest).map(|(len, _)| usize::try_from(len)) {
            Ok(Ok(len)) => (len, true),
            _ => return Parsed::Malformed,
        },
        _ => return Parsed::Malformed,
    };
    Parsed::Field(Field { number: tag >> 3, len, is_bytes })
}

#[cfg(test)]
mod tests {
    use bytes::Buf;
    use prost::Message;
    use thalweg_proto as pb;

    use super::*;

    /// From a `RunStepRequest` to the bytes of its feeds.
    const FEEDS: FieldPath = &[2, 2, 4];

    fn request(sizes: &[usize]) -> pb::RunStepRequest {
        let feed = |(i, &size): (usize, &usize)| pb::NamedTensorProto {
            name: format!("x{i}:0"),
            tensor: Some(pb::TensorProto {
                dtype: 1,
                tensor_content: (0..size).map(|k| (k * 7 + i) as u8).collect::<Vec<u8>>().into(),
                ..Default::default()
            }),
        };
        pb::RunStepRequest {
            session_handle: "handle".into(),
            feed: sizes.iter().enumerate().map(feed).collect(),
            fetch: vec!["y:0".into()],
            request_id: -1,
            ..Default::default()
        }
    }

    fn gathered(bytes: &Bytes, frame: usize) -> Rope {
        let mut gather = Gather::new(FEEDS, bytes.len());
        let mut left = bytes.clone();
        while !left.is_empty() {
            gather.push(left.split_to(frame.min(left.len()))).unwrap();
        }
        assert_eq!(gather.len(), bytes.len());
        gather.finish()
    }

    #[test]
    fn messages_are_the_same_for_all_frame_sizes() {
        for sizes in [&[][..], &[100_000], &[0, 70_000, 3, 65_536, 65_535, 200_001], &[1, 2]] {
            let message = request(sizes);
            let bytes = Bytes::from(message.encode_to_vec());
            for frame in [1, 7, 1000, 16_384, usize::MAX] {
                let rope = gathered(&bytes, frame);
                assert_eq!(pb::RunStepRequest::decode(rope).unwrap(), message, "{sizes:?} {frame}");
            }
        }
    }

    #[test]
    fn large_tensors_lie_in_aligned_memory() {
        let bytes = Bytes::from(request(&[100_001, 80_000]).encode_to_vec());
        let message = pb::RunStepRequest::decode(gathered(&bytes, 16_384)).unwrap();
        for feed in &message.feed {
            let content = &feed.tensor.as_ref().unwrap().tensor_content;
            assert_eq!(content.as_ptr() as usize % 64, 0);
        }
    }

    /// Malformed messages come out byte for byte.
    #[test]
    fn malformed_messages_pass_unchanged() {
        let whole = request(&[70_000]).encode_to_vec();
        for received in 0..200 {
            for value in [0, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[received] = value;
                let mut rope = gathered(&Bytes::from(bytes.clone()), 999);
                assert_eq!(rope.copy_to_bytes(rope.remaining()), bytes, "{received} {value}");
            }
        }
    }
}
