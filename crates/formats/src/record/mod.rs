//! TFRecord files: a sequence of byte strings, each with length and checksums.
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

/// The size of a record's header: the length and its checksum.
pub const HEADER_BYTES: usize = 12;
/// The size of a record's footer: the checksum of the data.
pub const FOOTER_BYTES: usize = 4;

/// The compression of a whole file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// zlib.
    Zlib,
    /// gzip.
    Gzip,
}

impl Compression {
    /// The compression with TensorFlow's name `name`.
    pub fn from_name(name: &str) -> Result<Compression> {
        match name {
            "" => Ok(Compression::None),
            "ZLIB" => Ok(Compression::Zlib),
            "GZIP" => Ok(Compression::Gzip),
            "SNAPPY" => bail!(Unimplemented, "compression type SNAPPY is not implemented"),
            other => bail!(InvalidArgument, "Unsupported compression_type:{other}"),
        }
    }

    /// Decompresses the content of a file to at most `bytes_max` bytes.
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
            "{path}: the decompressed file exceeds {bytes_max} bytes"
        );
        Ok(found.into())
    }

    /// Detects the compression of a file by its first `bytes`. No record begins like a gzip file or
    /// a zlib stream: the second byte of its length would mean a record of tens of kilobytes, and
    /// the checksum would not match.
    pub fn detect(bytes: &[u8]) -> Compression {
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

/// Whether the bytes begin with a length and a valid checksum.
fn is_header(bytes: &[u8]) -> bool {
    bytes.len() >= HEADER_BYTES && length_of(bytes).is_some()
}

/// The length in a header of at least 12 bytes, if its checksum is valid.
#[inline]
fn length_of(header: &[u8]) -> Option<u64> {
    let length = u64::from_le_bytes(header[..8].try_into().ok()?);
    let sum = u32::from_le_bytes(header[8..HEADER_BYTES].try_into().ok()?);
    (crate::masked_crc32c(&header[..8]) == sum).then_some(length)
}

/// The error for a damaged file, with path and offset.
fn damaged(path: &str, offset: u64, what: impl std::fmt::Display) -> Error {
    err!(DataLoss, "{path}: record at byte {offset}: {what}")
}
