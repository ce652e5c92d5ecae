//! Writing of uncompressed zip archives.

use thalweg_tensor::{Result, err};

use super::{
    CENTRAL, CENTRAL_BYTES, END, END_64, END_64_BYTES, EXTRA_64, LOCAL, LOCAL_BYTES, LOCATOR_64,
    SEE_64, STORED, crc32,
};
use crate::storage::WriteFile;

/// The date of all members, the earliest of the format, so that equal members make equal archives.
const DATE: u16 = 1 << 5 | 1;
/// The version needed to extract.
const VERSION: u16 = 20;
const VERSION_64: u16 = 45;
/// The flag for UTF-8 names.
const FLAGS: u16 = 1 << 11;

/// An archive that is being written.
pub struct ArchiveWriter {
    file: Box<dyn WriteFile>,
    offset: u64,
    directory: Vec<u8>,
    members: u64,
}

impl ArchiveWriter {
    /// Writes to a new file.
    pub fn new(file: Box<dyn WriteFile>) -> ArchiveWriter {
        ArchiveWriter { file, offset: 0, directory: Vec::new(), members: 0 }
    }

    /// Adds a member.
    pub fn add(&mut self, name: &str, content: &[u8]) -> Result<()> {
        let name_bytes = u16::try_from(name.len()).map_err(|_| {
            err!(InvalidArgument, "'{name}' exceeds the 65535 bytes of a zip member's name")
        })?;
        let (bytes, sum, offset) = (content.len() as u64, crc32(content), self.offset);
        let is_wide = bytes >= SEE_64.into() || offset >= SEE_64.into();
        let narrow = |number: u64| if is_wide { SEE_64 } else { number as u32 };
        let mut extra = Vec::new();
        if is_wide {
            extra.extend_from_slice(&EXTRA_64.to_le_bytes());
            extra.extend_from_slice(&24u16.to_le_bytes());
            for number in [bytes, bytes, offset] {
                extra.extend_from_slice(&number.to_le_bytes());
            }
        }
        // The fields that the local header and the directory entry share.
        let mut common = Vec::new();
        for number in [if is_wide { VERSION_64 } else { VERSION }, FLAGS, STORED, 0, DATE] {
            common.extend_from_slice(&number.to_le_bytes());
        }
        for number in [sum, narrow(bytes), narrow(bytes)] {
            common.extend_from_slice(&number.to_le_bytes());
        }
        common.extend_from_slice(&name_bytes.to_le_bytes());
        common.extend_from_slice(&(extra.len() as u16).to_le_bytes());

        let mut header = Vec::with_capacity(LOCAL_BYTES + name.len() + extra.len());
        header.extend_from_slice(&LOCAL.to_le_bytes());
        header.extend_from_slice(&common);
        header.extend_from_slice(name.as_bytes());
        header.extend_from_slice(&extra);
        self.file.write(&header)?;
        self.file.write(content)?;
        self.offset += header.len() as u64 + bytes;

        self.directory.reserve(CENTRAL_BYTES + name.len() + extra.len());
        self.directory.extend_from_slice(&CENTRAL.to_le_bytes());
        self.directory.extend_from_slice(&VERSION_64.to_le_bytes());
        self.directory.extend_from_slice(&common);
        // No comment, the first disk, no attributes.
        self.directory.extend_from_slice(&[0; 10]);
        self.directory.extend_from_slice(&narrow(offset).to_le_bytes());
        self.directory.extend_from_slice(name.as_bytes());
        self.directory.extend_from_slice(&extra);
        self.members += 1;
        Ok(())
    }

    /// Ends the archive.
    pub fn finish(mut self) -> Result<()> {
        let (offset, bytes) = (self.offset, self.directory.len() as u64);
        self.file.write(&self.directory)?;
        let is_wide =
            offset >= SEE_64.into() || bytes >= SEE_64.into() || self.members >= u16::MAX.into();
        let mut end = Vec::new();
        if is_wide {
            end.extend_from_slice(&END_64.to_le_bytes());
            end.extend_from_slice(&(END_64_BYTES as u64 - 12).to_le_bytes());
            end.extend_from_slice(&VERSION_64.to_le_bytes());
            end.extend_from_slice(&VERSION_64.to_le_bytes());
            end.extend_from_slice(&[0; 8]);
            for number in [self.members, self.members, bytes, offset] {
                end.extend_from_slice(&number.to_le_bytes());
            }
            end.extend_from_slice(&LOCATOR_64.to_le_bytes());
            end.extend_from_slice(&[0; 4]);
            end.extend_from_slice(&(offset + bytes).to_le_bytes());
            end.extend_from_slice(&1u32.to_le_bytes());
        }
        let members = if is_wide { u16::MAX } else { self.members as u16 };
        end.extend_from_slice(&END.to_le_bytes());
        end.extend_from_slice(&[0; 4]);
        end.extend_from_slice(&members.to_le_bytes());
        end.extend_from_slice(&members.to_le_bytes());
        for number in [bytes, offset] {
            let number = if is_wide { SEE_64 } else { number as u32 };
            end.extend_from_slice(&number.to_le_bytes());
        }
        end.extend_from_slice(&[0; 2]);
        self.file.write(&end)?;
        self.file.finish()
    }
}
