//! Decompression of requests.

use std::io::Read;

use bytes::Bytes;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use thalweg_tensor::{Result, ensure, err};

/// A content encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Gzip,
    Deflate,
}

impl Encoding {
    /// The encoding with this name in headers.
    pub(crate) fn named(name: &[u8]) -> Option<Encoding> {
        match name {
            b"gzip" => Some(Encoding::Gzip),
            b"deflate" => Some(Encoding::Deflate),
            _ => None,
        }
    }
}

/// Decompresses `what` to at most `bytes_max` bytes; `take` is called to charge memory before the
/// output grows.
pub(crate) fn inflate(
    (what, packed): (&str, &[u8]),
    encoding: Encoding,
    bytes_max: usize,
    mut take: impl FnMut(usize) -> Result<()>,
) -> Result<Bytes> {
    let mut decoder: Box<dyn Read + '_> = match encoding {
        Encoding::Gzip => Box::new(MultiGzDecoder::new(packed)),
        Encoding::Deflate => Box::new(ZlibDecoder::new(packed)),
    };
    let mut plain = Vec::new();
    let mut chunk = [0; 16 << 10];
    loop {
        let count = decoder
            .read(&mut chunk)
            .map_err(|e| err!(InvalidArgument, "{what} cannot be decompressed: {e}"))?;
        if count == 0 {
            return Ok(Bytes::from(plain));
        }
        ensure!(
            count <= bytes_max - plain.len(),
            ResourceExhausted,
            "{what} has more than {bytes_max} bytes once it is decompressed"
        );
        if plain.capacity() - plain.len() < count {
            // It grows by doubling.
            take(count.max(plain.len()))?;
        }
        plain.extend_from_slice(&chunk[..count]);
    }
}
