//! Incremental CRC-32C, and the combination of checksums of adjacent pieces.

use crc_fast::{CrcAlgorithm, Digest as Running};

use crate::checksum::mask;

/// An incremental CRC-32C.
pub(super) struct Digest(Running);

impl Digest {
    pub(super) fn new() -> Digest {
        Digest(Running::new(CrcAlgorithm::Crc32Iscsi))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum so far.
    pub(super) fn sum(&self) -> u32 {
        self.0.finalize() as u32
    }

    /// The masked checksum so far.
    pub(super) fn masked(&self) -> u32 {
        mask(self.sum())
    }
}

/// The checksum of the concatenation of two pieces, of which the second has `length` bytes.
pub(super) fn combine(first: u32, second: u32, length: u64) -> u32 {
    let algorithm = CrcAlgorithm::Crc32Iscsi;
    crc_fast::checksum_combine(algorithm, first.into(), second.into(), length) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc32c;

    #[test]
    fn pieces_make_the_whole() {
        let bytes: Vec<u8> = (0..1000u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for cut in [0, 1, 7, 500, 1000] {
            let (a, b) = bytes.split_at(cut);
            let mut digest = Digest::new();
            digest.update(a);
            digest.update(b);
            assert_eq!(digest.sum(), crc32c(&bytes), "{cut}");
            assert_eq!(combine(crc32c(a), crc32c(b), b.len() as u64), crc32c(&bytes), "{cut}");
        }
    }
}
