//! The encoding of numbers, strings and sections in MLIR bytecode.

use thalweg_tensor::{Error, Result, bail, ensure, err};

/// Byte that fills the space before an aligned section.
const PADDING: u8 = 0xcb;

/// A part of a file, from `at` to `end`.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a> {
    file: &'a [u8],
    at: usize,
    end: usize,
}

fn truncated() -> Error {
    err!(InvalidArgument, "the module ends in the middle of a value")
}

impl<'a> Bytes<'a> {
    pub(super) fn new(file: &'a [u8]) -> Bytes<'a> {
        Bytes { file, at: 0, end: file.len() }
    }

    pub(super) fn len(&self) -> usize {
        self.end - self.at
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at == self.end
    }

    pub(super) fn take(&mut self, size: usize) -> Result<&'a [u8]> {
        ensure!(size <= self.len(), InvalidArgument, "{}", truncated().message());
        let taken = &self.file[self.at..self.at + size];
        self.at += size;
        Ok(taken)
    }

    /// The next `size` bytes as a part of their own.
    pub(super) fn part(&mut self, size: usize) -> Result<Bytes<'a>> {
        let at = self.at;
        self.take(size)?;
        Ok(Bytes { file: self.file, at, end: at + size })
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    /// An unsigned number: the trailing zero bits of the first byte count the bytes after it.
    pub(super) fn number(&mut self) -> Result<u64> {
        let first = self.byte()?;
        let more = first.trailing_zeros() as usize;
        let mut bytes = [0; 8];
        if more >= 8 {
            bytes.copy_from_slice(self.take(8)?);
            return Ok(u64::from_le_bytes(bytes));
        }
        bytes[0] = first;
        bytes[1..=more.min(7)].copy_from_slice(self.take(more)?);
        Ok(u64::from_le_bytes(bytes) >> (more + 1))
    }

    /// A number whose lowest bit is a flag.
    pub(super) fn flagged(&mut self) -> Result<(usize, bool)> {
        let number = self.number()?;
        Ok((to_usize(number >> 1)?, number & 1 == 1))
    }

    /// A signed number: its sign is the lowest bit.
    pub(super) fn signed(&mut self) -> Result<i64> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// A position in a table.
    pub(super) fn index(&mut self) -> Result<usize> {
        to_usize(self.number()?)
    }

    /// A number of things of at least one byte each.
    pub(super) fn count(&mut self) -> Result<usize> {
        let count = self.index()?;
        ensure!(count <= self.len(), InvalidArgument, "{}", truncated().message());
        Ok(count)
    }

    /// Text up to a zero byte.
    pub(super) fn terminated(&mut self) -> Result<&'a str> {
        let rest = &self.file[self.at..self.end];
        let end = rest.iter().position(|&b| b == 0).ok_or_else(truncated)?;
        let text = self.take(end)?;
        self.byte()?;
        to_text(text)
    }

    /// A section: what it is, and its contents.
    pub(super) fn section(&mut self) -> Result<(u8, Bytes<'a>)> {
        let id = self.byte()?;
        let length = self.index()?;
        if id & 0x80 != 0 {
            let alignment = self.index()?;
            ensure!(
                alignment.is_power_of_two() && alignment <= 1 << 20,
                InvalidArgument,
                "a section of the module is aligned to {alignment} bytes"
            );
            while !self.at.is_multiple_of(alignment) {
                if self.byte()? != PADDING {
                    bail!(InvalidArgument, "a section of the module is not aligned");
                }
            }
        }
        Ok((id & 0x7f, self.part(length)?))
    }
}

fn to_usize(number: u64) -> Result<usize> {
    usize::try_from(number).map_err(|_| truncated())
}

pub(super) fn to_text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes)
        .map_err(|_| err!(InvalidArgument, "a string of the module is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (bytes, expected) in [
            (&[0x01][..], 0),
            (&[0xff], 127),
            (&[0x02, 0x02], 128),
            (&[0x04, 0x00, 0x02], 1 << 14),
            (&[0, 1, 0, 0, 0, 0, 0, 0, 0x80], 1 | 1 << 63),
        ] {
            assert_eq!(Bytes::new(bytes).number().unwrap(), expected, "{bytes:?}");
        }
        // Zigzag: 0, -1, 1.
        let mut all = Bytes::new(&[0x01, 0x03, 0x05]);
        let signed: Vec<i64> = (0..3).map(|_| all.signed().unwrap()).collect();
        assert_eq!(signed, [0, -1, 1]);
        assert!(Bytes::new(&[0x02]).number().is_err());
        assert!(Bytes::new(&[0xff]).count().is_err());
    }

    #[test]
    fn sections_are_aligned_in_the_file() {
        let mut bytes = Bytes::new(&[0x84, 0x03, 0x09, PADDING, 7, 9]);
        let (id, mut contents) = bytes.section().unwrap();
        assert_eq!((id, contents.len(), contents.byte().unwrap()), (4, 1, 7));
        assert_eq!(bytes.byte().unwrap(), 9);
        assert!(Bytes::new(&[0x84, 0x03, 0x09, 0, 7]).section().is_err());
    }
}
