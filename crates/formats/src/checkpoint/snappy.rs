//! Snappy decompression, for tables with compressed blocks.

use thalweg_tensor::{Result, ensure, err};

use crate::wire::varint;

/// The maximum expansion: a copy of 64 bytes takes three bytes.
const GROWTH_MAX: usize = 32;

/// Decompresses a block.
pub(super) fn decompress(compressed: &[u8]) -> Result<Vec<u8>> {
    let (length, begin) =
        varint(compressed).map_err(|_| err!(DataLoss, "invalid snappy data: no length"))?;
    let bound = compressed.len().saturating_mul(GROWTH_MAX);
    let length = usize::try_from(length).ok().filter(|&n| n <= bound).ok_or_else(|| {
        err!(
            DataLoss,
            "invalid snappy data: {} compressed bytes cannot expand to {length}",
            compressed.len()
        )
    })?;
    let mut out = Vec::with_capacity(length);
    let mut rest = &compressed[begin..];
    while let Some((&tag, after)) = rest.split_first() {
        rest = match tag & 3 {
            0 => literal(tag, after, &mut out)?,
            _ => copy(tag, after, &mut out, length)?,
        };
        ensure!(
            out.len() <= length,
            DataLoss,
            "invalid snappy data: longer than the length in the header"
        );
    }
    ensure!(
        out.len() == length,
        DataLoss,
        "invalid snappy data: shorter than the length in the header"
    );
    Ok(out)
}

/// Splits `n` bytes off.
fn take(bytes: &[u8], n: usize) -> Result<(&[u8], &[u8])> {
    bytes.split_at_checked(n).ok_or_else(|| err!(DataLoss, "invalid snappy data: truncated"))
}

fn little_endian(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte))
}

fn literal<'a>(tag: u8, bytes: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8]> {
    let (length, bytes) = match usize::from(tag >> 2) {
        short @ 0..60 => (short, bytes),
        long => {
            let (number, rest) = take(bytes, long - 59)?;
            (little_endian(number), rest)
        }
    };
    let (data, rest) = take(bytes, length.saturating_add(1))?;
    out.extend_from_slice(data);
    Ok(rest)
}

fn copy<'a>(tag: u8, bytes: &'a [u8], out: &mut Vec<u8>, limit: usize) -> Result<&'a [u8]> {
    let (length, high, offset_bytes) = match tag & 3 {
        1 => (usize::from(tag >> 2 & 7) + 4, usize::from(tag >> 5) << 8, 1),
        2 => (usize::from(tag >> 2) + 1, 0, 2),
        _ => (usize::from(tag >> 2) + 1, 0, 4),
    };
    let (number, rest) = take(bytes, offset_bytes)?;
    let offset = high | little_endian(number);
    ensure!(
        (1..=out.len()).contains(&offset) && out.len() + length <= limit,
        DataLoss,
        "invalid snappy data: a copy is out of range"
    );
    // The source of a copy may overlap its target.
    let begin = out.len() - offset;
    for i in 0..length {
        out.push(out[begin + i]);
    }
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    #[test]
    fn literals_and_copies() {
        assert_eq!(decompress(b"\x03\x08abc").unwrap(), b"abc");
        // "ab", then a copy of six bytes from two back.
        assert_eq!(decompress(b"\x08\x04ab\x09\x02").unwrap(), b"abababab");
        assert_eq!(decompress(b"\x08\x04ab\x16\x02\x00").unwrap(), b"abababab");
        assert_eq!(decompress(b"\x08\x04ab\x17\x02\x00\x00\x00").unwrap(), b"abababab");
        let long = [&[200, 1, 60 << 2, 199][..], &[7; 200]].concat();
        assert_eq!(decompress(&long).unwrap(), [7; 200]);
        assert_eq!(decompress(b"\x00").unwrap(), b"");
    }

    #[test]
    fn broken_data_are_refused() {
        for bytes in [
            &b""[..],
            b"\x03\x08ab",
            b"\x02\x08abc",
            b"\x04\x08abc",
            b"\x08\x04ab\x09\x03",
            b"\x08\x04ab\x09\x00",
            b"\xff\xff\xff\xff\x0f\x00",
            b"\x08\x04ab\x16\x02",
            b"\x04\xfcab",
        ] {
            assert_eq!(
                decompress(bytes).err().map(|e| e.code()),
                Some(Code::DataLoss),
                "{bytes:?}"
            );
        }
    }
}
