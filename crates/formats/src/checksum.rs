//! CRC-32C, and its masked form in files.

/// CRC-32C (Castagnoli) of the bytes.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The masked CRC-32C: rotated and offset by a constant, because the CRC of data that contains CRCs
/// is weak.
#[inline]
pub fn masked_crc32c(bytes: &[u8]) -> u32 {
    mask(crc32c(bytes))
}

/// Masks a checksum.
#[inline]
pub(crate) fn mask(sum: u32) -> u32 {
    const DELTA: u32 = 0xa282_ead8;
    sum.rotate_right(15).wrapping_add(DELTA)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One bit after the other.
    fn slow(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0u32, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| {
                (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
            })
        })
    }

    #[test]
    fn known_sums() {
        assert_eq!(crc32c(b""), 0);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn every_length_agrees_with_the_definition() {
        let bytes: Vec<u8> =
            (0..700u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for length in 0..bytes.len() {
            assert_eq!(crc32c(&bytes[..length]), slow(&bytes[..length]), "{length}");
        }
    }
}
