//! TFRecord files: byte strings one after the other, each with its length and checksums.
//!
//! A record is its length (8 bytes, little-endian), the masked CRC-32C of those 8 bytes, the data,
//! and the masked CRC-32C of the data. A file may be compressed as a whole.

mod index;
mod inflate;
mod reader;
mod window;
mod writer;

pub use index::{Entry, Index};
pub use reader::{BadRecord, ReadOptions, RecordReader};
pub use writer::RecordWriter;

use std::io::Read;

use flate2::bufread::MultiGzDecoder;
use thalweg_tensor::{Bytes, Error, Result, bail, ensure, err};

/// Bytes before a record's data: its length and that length's checksum.
pub const HEADER_BYTES: usize = 12;
/// Bytes after a record's data: their checksum.
pub const FOOTER_BYTES: usize = 4;

/// How a file is compressed as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// It is not.
    #[default]
    None,
    /// A zlib stream.
    Zlib,
    /// A gzip file.
    Gzip,
}

impl Compression {
    /// The compression that TensorFlow calls `name`.
    pub fn from_name(name: &str) -> Result<Compression> {
        match name {
            "" => Ok(Compression::None),
            "ZLIB" => Ok(Compression::Zlib),
            "GZIP" => Ok(Compression::Gzip),
            "SNAPPY" => bail!(Unimplemented, "compression type SNAPPY is not implemented"),
            other => bail!(InvalidArgument, "Unsupported compression_type:{other}"),
        }
    }

    /// The uncompressed content of a file, if it is no more than `bytes_max`.
    pub fn decompress(self, path: &str, content: &Bytes, bytes_max: usize) -> Result<Bytes> {
        let mut found = Vec::new();
        let limit = bytes_max as u64;
        let read = match self {
            Compression::None => return Ok(content.clone()),
            Compression::Zlib => inflate::Inflate::new(&content[..])
                .take(limit.saturating_add(1))
                .read_to_end(&mut found),
            Compression::Gzip => MultiGzDecoder::new(&content[..])
                .take(limit.saturating_add(1))
                .read_to_end(&mut found),
        };
        read.map_err(|e| err!(DataLoss, "{path}: {e}"))?;
        ensure!(
            found.len() <= bytes_max,
            ResourceExhausted,
            "{path}: uncompressed it has more than {bytes_max} bytes"
        );
        Ok(found.into())
    }

    /// What a file that begins with `bytes` seems to be compressed with. No record begins like a
    /// gzip file or a zlib stream: the second byte of its length would have to be that of one of
    /// tens of kilobytes, with a checksum that says otherwise.
    pub fn guess(bytes: &[u8]) -> Compression {
        if is_header(bytes) {
            return Compression::None;
        }
        match bytes {
            [0x1f, 0x8b, 8, ..] => Compression::Gzip,
            // Deflate with a window of up to 32 KiB, and a check of these two bytes.
            [first, second, ..]
                if first & 0x0f == 8
                    && first >> 4 <= 7
                    && (u16::from(*first) << 8 | u16::from(*second)).is_multiple_of(31) =>
            {
                Compression::Zlib
            }
            _ => Compression::None,
        }
    }
}

/// Whether the bytes begin with a length and that length's checksum.
fn is_header(bytes: &[u8]) -> bool {
    bytes.len() >= HEADER_BYTES && length_of(bytes).is_some()
}

/// The length in a header whose checksum is right; `header` has at least 12 bytes.
#[inline]
fn length_of(header: &[u8]) -> Option<u64> {
    let length = u64::from_le_bytes(header[..8].try_into().ok()?);
    let sum = u32::from_le_bytes(header[8..HEADER_BYTES].try_into().ok()?);
    (crate::masked_crc32c(&header[..8]) == sum).then_some(length)
}

/// What is wrong with a file, and where.
fn damaged(path: &str, offset: u64, what: impl std::fmt::Display) -> Error {
    err!(DataLoss, "{path}: record at byte {offset}: {what}")
}
