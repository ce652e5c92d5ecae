//! The protobuf wire format, read in place: no message is built, no field is copied.
//!
//! Every length is checked against what is left; nothing here recurses or allocates.

use thalweg_tensor::{Result, bail, err};

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

    #[inline]
    fn read(&mut self) -> Result<(u32, Content<'a>)> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3)
            .ok()
            .filter(|n| (1..1 << 29).contains(n))
            .ok_or_else(|| err!(InvalidArgument, "a protobuf message has a field with number 0"))?;
        let content = match key & 7 {
            0 => Content::Varint(self.varint()?),
            1 => Content::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.varint()?;
                Content::Bytes(self.take(length)?)
            }
            5 => Content::Fixed32(u32::from_le_bytes(self.array()?)),
            kind => bail!(
                InvalidArgument,
                "field {number} of a protobuf message has the unknown wire type {kind}"
            ),
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
        let (taken, rest) = split.ok_or_else(|| {
            let left = self.rest.len();
            err!(
                InvalidArgument,
                "a protobuf field of {length} bytes exceeds the {left} that remain"
            )
        })?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N as u64)?;
        Ok(bytes.try_into().expect("`take` gave as many bytes as were asked for"))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Content<'a>)>;

    #[inline]
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
    // The common case: tags, lengths and small numbers.
    if let Some(&byte) = bytes.first()
        && byte < 0x80
    {
        return Ok((u64::from(byte), 1));
    }
    long_varint(bytes)
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
