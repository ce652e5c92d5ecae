//! Zip archives, as far as `.npz` files need them: stored and deflated members, of any size.

mod reader;
mod writer;

pub use reader::{Archive, Member};
pub use writer::ArchiveWriter;

/// Begins a member.
const LOCAL: u32 = 0x0403_4b50;
/// Begins a member's entry in the directory.
const CENTRAL: u32 = 0x0201_4b50;
/// Begins the end of the archive.
const END: u32 = 0x0605_4b50;
/// Begins the end of an archive with numbers of 64 bits, and the place of that.
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;
/// The extra field that has numbers of 64 bits.
const EXTRA_64: u16 = 1;
/// What a number of 32 bits is if the one of 64 bits holds.
const SEE_64: u32 = u32::MAX;

const LOCAL_BYTES: usize = 30;
const CENTRAL_BYTES: usize = 46;
const END_BYTES: usize = 22;
const END_64_BYTES: usize = 56;
const LOCATOR_64_BYTES: usize = 20;

/// Members are not compressed.
const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// The checksum of a member.
fn crc32(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}
