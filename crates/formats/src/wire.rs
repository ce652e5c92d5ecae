//! The protobuf wire format, read in place: no message is built, no field is copied.
//!
//! Every length is checked against what is left; nothing here recurses or allocates.

use thalweg_tensor::{Result, bail};

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Content<'a> {
    /// A varint.
    Varint(u64),
    /// A 64-bit field.
    Fixed64(u64),
    /// A length-delimited field: a string, a message or packed numbers.
    Bytes(&'a [u8]),
    /// A 32-bit field.
    Fixed32(u32),
}

/// An iterator over the fields of a message. After an error there are no more.
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The fields of `message`.
    pub fn new(message: &'a [u8]) -> Fields<'a> {
        Fields { rest: message }
    }

    #[inline(always)]
    fn read(&mut self) -> Result<(u32, Content<'a>)> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).unwrap_or(0);
        if !(1..1 << 29).contains(&number) {
            return bad_number();
        }
        let content = match key & 7 {
            0 => Content::Varint(self.varint()?),
            1 => Content::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.varint()?;
                Content::Bytes(self.take(length)?)
            }
            5 => Content::Fixed32(u32::from_le_bytes(self.array()?)),
            kind => return bad_wire_type(number, kind),
        };
        Ok((number, content))
    }

    #[inline]
    fn varint(&mut self) -> Result<u64> {
        let (value, length) = varint(self.rest)?;
        self.rest = &self.rest[length..];
        Ok(value)
    }

    #[inline]
    fn take(&mut self, length: u64) -> Result<&'a [u8]> {
        let split = usize::try_from(length).ok().and_then(|n| self.rest.split_at_checked(n));
        let Some((taken, rest)) = split else { return too_long(length, self.rest.len()) };
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N as u64)?;
        Ok(bytes.try_into().expect("`take` gave as many bytes as were asked for"))
    }
}

// The errors are made out of line, so that the loop over fields stays small.

#[cold]
fn bad_number<T>() -> Result<T> {
    bail!(InvalidArgument, "a protobuf message has a field with number 0")
}

#[cold]
fn bad_wire_type<T>(number: u32, kind: u64) -> Result<T> {
    bail!(InvalidArgument, "field {number} of a protobuf message has the unknown wire type {kind}")
}

#[cold]
fn too_long<T>(length: u64, left: usize) -> Result<T> {
    bail!(InvalidArgument, "a protobuf field of {length} bytes exceeds the {left} that remain")
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Content<'a>)>;

    // Out of line its result would be written and read again through memory, for each field.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// Decodes a varint at the start of `bytes`; returns it with its length.
#[inline]
pub fn varint(bytes: &[u8]) -> Result<(u64, usize)> {
    // The common cases: tags, lengths and small numbers.
    match *bytes {
        [low, ..] if low < 0x80 => Ok((u64::from(low), 1)),
        [low, high, ..] if high < 0x80 => Ok((u64::from(low & 0x7f) | u64::from(high) << 7, 2)),
        _ => long_varint(bytes),
    }
}

fn long_varint(bytes: &[u8]) -> Result<(u64, usize)> {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i).min(63);
        if byte < 0x80 {
            return Ok((value, i + 1));
        }
    }
    bail!(InvalidArgument, "truncated varint in a protobuf message")
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    fn fields(bytes: &[u8]) -> Result<Vec<(u32, Content<'_>)>> {
        Fields::new(bytes).collect()
    }

    #[test]
    fn every_wire_type() {
        let read = fields(b"\x08\xac\x02\x12\x02hi\x1d\x01\0\0\0\x21\x02\0\0\0\0\0\0\0").unwrap();
        let expected = [
            (1, Content::Varint(300)),
            (2, Content::Bytes(b"hi")),
            (3, Content::Fixed32(1)),
            (4, Content::Fixed64(2)),
        ];
        assert_eq!(read, expected);
        for truncated in [&[0xff; 9][..], &[]] {
            assert_eq!(varint(truncated).unwrap_err().code(), Code::InvalidArgument);
        }
        // Of every length, and as long as zeroes make it.
        for (bytes, value) in [
            (&b"\x7f"[..], 127),
            (b"\x80\x01", 128),
            (b"\xff\x7f", 16383),
            (b"\x80\x80\x01", 16384),
            (b"\x80\x00", 0),
        ] {
            assert_eq!(varint(bytes).unwrap(), (value, bytes.len()), "{bytes:?}");
        }
        assert_eq!(varint(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").unwrap(), (u64::MAX, 10));
    }

    #[test]
    fn broken_messages() {
        for bytes in [
            &b"\x08"[..],
            b"\x12\x05hi",
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x0b\x0c",
            b"\x00\x01",
            b"\x1d\x01",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            assert_eq!(
                fields(bytes).err().map(|e| e.code()),
                Some(Code::InvalidArgument),
                "{bytes:?}"
            );
        }
    }
}
