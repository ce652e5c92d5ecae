//! Zip archives, as far as `.npz` files need them: stored and deflated members, of any size.

mod reader;
mod writer;

pub use reader::{Archive, Member};
pub use writer::ArchiveWriter;

/// The signature of a local file header.
const LOCAL: u32 = 0x0403_4b50;
/// The signature of a central directory entry.
const CENTRAL: u32 = 0x0201_4b50;
/// The signature of the end of central directory record.
const END: u32 = 0x0605_4b50;
/// The signatures of the zip64 end of central directory record and its locator.
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;
/// The id of the zip64 extra field.
const EXTRA_64: u16 = 1;
/// The value of a 32-bit field that is stored in the zip64 extra field.
const SEE_64: u32 = u32::MAX;

const LOCAL_BYTES: usize = 30;
const CENTRAL_BYTES: usize = 46;
const END_BYTES: usize = 22;
const END_64_BYTES: usize = 56;
const LOCATOR_64_BYTES: usize = 20;

/// The stored (uncompressed) method.
const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// CRC-32, the checksum of a member.
fn crc32(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}
