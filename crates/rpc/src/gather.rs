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
    at: usize,
    /// Ends of the messages that the path has entered, outermost first.
    ends: SmallVec<[usize; 4]>,
    reading: Reading,
}

enum Reading {
    /// The tag and the length of a field.
    Header(SmallVec<[u8; HEADER_BYTES_MAX]>),
    /// Bytes that stay in their frames; how many are missing.
    Passing(usize),
    /// A tensor's bytes; how many are filled.
    Filling(Tensor, usize),
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
        let reading =
            if is_plain { Reading::Passing(len) } else { Reading::Header(SmallVec::new()) };
        Gather { path, rope: Rope::default(), at: 0, ends: SmallVec::from_slice(&[len]), reading }
    }

    /// Bytes received.
    pub(crate) fn len(&self) -> usize {
        self.at
    }

    /// Takes the next bytes, which must not exceed the message.
    pub(crate) fn push(&mut self, mut frame: Bytes) -> Result<()> {
        // Start of the part of the frame that stays in it.
        let mut kept = 0;
        let mut i = 0;
        while i < frame.len() {
            let count = match &mut self.reading {
                Reading::Header(header) => {
                    header.push(frame[i]);
                    1
                }
                Reading::Passing(left) => {
                    let count = (*left).min(frame.len() - i);
                    *left -= count;
                    count
                }
                Reading::Filling(tensor, filled) => {
                    let room = &mut tensor.as_mut_slice::<u8>()?[*filled..];
                    let count = room.len().min(frame.len() - i);
                    room[..count].copy_from_slice(&frame[i..i + count]);
                    *filled += count;
                    kept = i + count;
                    count
                }
            };
            i += count;
            self.at += count;
            let begun = self.go_on()?;
            if let Some(tensor) = begun {
                self.rope.push(frame.slice(kept..i));
                kept = i;
                self.reading = Reading::Filling(tensor, 0);
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
    fn go_on(&mut self) -> Result<Option<Tensor>> {
        match &self.reading {
            Reading::Header(header) => match parse(header) {
                Parsed::Incomplete => return Ok(None),
                Parsed::Broken => self.reading = Reading::Passing(usize::MAX),
                Parsed::Field(field) => return self.enter(&field),
            },
            Reading::Passing(0) => self.next_field(),
            Reading::Passing(_) => {}
            Reading::Filling(tensor, filled) if *filled == tensor.num_elements() => {
                self.rope.push(tensor.to_bytes()?);
                self.next_field();
            }
            Reading::Filling(..) => {}
        }
        Ok(None)
    }

    fn next_field(&mut self) {
        while self.ends.len() > 1 && self.ends.last() == Some(&self.at) {
            self.ends.pop();
        }
        self.reading = Reading::Header(SmallVec::new());
    }

    fn enter(&mut self, field: &Field) -> Result<Option<Tensor>> {
        let room = self.ends.last().map_or(0, |end| end.saturating_sub(self.at));
        if field.len > room {
            // Malformed; decoding the message gives the error.
            self.reading = Reading::Passing(usize::MAX);
            return Ok(None);
        }
        let is_on_path =
            field.is_bytes && field.len > 0 && field.number == self.path[self.ends.len() - 1];
        if is_on_path && self.ends.len() < self.path.len() {
            self.ends.push(self.at + field.len);
            self.reading = Reading::Header(SmallVec::new());
        } else if is_on_path && field.len >= TENSOR_BYTES_MIN {
            return Tensor::allocate(DType::UInt8, Shape::new(&[field.len])?, None).map(Some);
        } else if field.len > 0 {
            self.reading = Reading::Passing(field.len);
        } else {
            self.next_field();
        }
        Ok(None)
    }
}

enum Parsed {
    Incomplete,
    /// Malformed.
    Broken,
    Field(Field),
}

fn parse(header: &[u8]) -> Parsed {
    if header.last().is_none_or(|byte| byte & 0x80 != 0) {
        // Within a number, which may take half of a header.
        let is_possible = header.len() < HEADER_BYTES_MAX;
        return if is_possible { Parsed::Incomplete } else { Parsed::Broken };
    }
    let Ok((tag, tag_len)) = varint(header) else { return Parsed::Broken };
    let rest = &header[tag_len..];
    let (len, is_bytes) = match tag & 7 {
        1 => (8, false),
        5 => (4, false),
        0 | 2 if rest.is_empty() => return Parsed::Incomplete,
        0 => (0, false),
        2 => match varint(rest).map(|(len, _)| usize::try_from(len)) {
            Ok(Ok(len)) => (len, true),
            _ => return Parsed::Broken,
        },
        _ => return Parsed::Broken,
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
    fn messages_are_the_same_however_they_come() {
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

    /// Whatever bytes come, they come out again.
    #[test]
    fn broken_messages_pass_unchanged() {
        let whole = request(&[70_000]).encode_to_vec();
        for at in 0..200 {
            for value in [0, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                let mut rope = gathered(&Bytes::from(bytes.clone()), 999);
                assert_eq!(rope.copy_to_bytes(rope.remaining()), bytes, "{at} {value}");
            }
        }
    }
}
