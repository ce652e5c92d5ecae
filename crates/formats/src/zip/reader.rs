//! Reading of zip archives through the central directory.

use std::io::Read;
use std::sync::Arc;

use flate2::bufread::DeflateDecoder;
use thalweg_tensor::{Bytes, Error, Result, ensure, err};

use super::{
    CENTRAL, CENTRAL_BYTES, DEFLATED, END, END_64, END_64_BYTES, END_BYTES, EXTRA_64, LOCAL,
    LOCAL_BYTES, LOCATOR_64, LOCATOR_64_BYTES, SEE_64, STORED, crc32,
};
use crate::storage::ReadAt;

/// The maximum length of the archive comment.
const COMMENT_BYTES_MAX: u64 = 65_535;

/// An archive with its central directory in memory.
pub struct Archive {
    file: Arc<dyn ReadAt>,
    size: u64,
    members: Vec<Member>,
}

/// The directory entry of a member.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// The uncompressed size in bytes.
    pub bytes: u64,
    /// The stored size in bytes.
    pub stored_bytes: u64,
    method: u16,
    sum: u32,
    offset: u64,
}

/// The position of the central directory and its number of members.
struct Directory {
    offset: u64,
    bytes: u64,
    members: u64,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

impl Archive {
    /// Reads the central directory of an archive.
    pub fn open(file: Arc<dyn ReadAt>) -> Result<Archive> {
        let size = file.size()?;
        let mut archive = Archive { file, size, members: Vec::new() };
        let directory = archive.directory()?;
        archive.read_directory(&directory)?;
        Ok(archive)
    }

    fn broken(&self, offset: u64, what: &str) -> Error {
        err!(DataLoss, "{}: byte {offset}: {what}", self.file.path())
    }

    fn bytes(&self, offset: u64, length: u64) -> Result<Vec<u8>> {
        let is_inside = offset.checked_add(length).is_some_and(|end| end <= self.size);
        let length = usize::try_from(length).ok().filter(|_| is_inside).ok_or_else(|| {
            self.broken(offset, &format!("the archive ends; {length} bytes were expected"))
        })?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| {
            err!(ResourceExhausted, "{}: out of memory for {length} bytes", self.file.path())
        })?;
        bytes.resize(length, 0);
        let read = self.file.read_at(offset, &mut bytes)?;
        ensure!(
            read == length,
            DataLoss,
            "{}",
            self.broken(offset + read as u64, "the archive became shorter").message()
        );
        Ok(bytes)
    }

    fn directory(&self) -> Result<Directory> {
        let tail_bytes = self.size.min(COMMENT_BYTES_MAX + END_BYTES as u64);
        let tail_at = self.size - tail_bytes;
        let tail = self.bytes(tail_at, tail_bytes)?;
        let is_end = |at: &usize| {
            u32_at(&tail, *at) == END
                && at + END_BYTES + usize::from(u16_at(&tail, at + 20)) == tail.len()
        };
        let end = (0..(tail.len() + 1).saturating_sub(END_BYTES)).rev().find(is_end);
        let end = end.ok_or_else(|| {
            self.broken(
                self.size,
                "the end of central directory record is missing: the file is truncated or not a zip \
                 archive",
            )
        })?;
        let mut directory = Directory {
            members: u16_at(&tail, end + 10).into(),
            bytes: u32_at(&tail, end + 12).into(),
            offset: u32_at(&tail, end + 16).into(),
        };
        if let Some(at) = end.checked_sub(LOCATOR_64_BYTES)
            && u32_at(&tail, at) == LOCATOR_64
        {
            let place = u64_at(&tail, at + 8);
            let end = self.bytes(place, END_64_BYTES as u64)?;
            ensure!(
                u32_at(&end, 0) == END_64,
                DataLoss,
                "{}",
                self.broken(place, "the end of central directory record is invalid").message()
            );
            directory = Directory {
                members: u64_at(&end, 32),
                bytes: u64_at(&end, 40),
                offset: u64_at(&end, 48),
            };
        }
        Ok(directory)
    }

    fn read_directory(&mut self, directory: &Directory) -> Result<()> {
        let bytes = self.bytes(directory.offset, directory.bytes)?;
        let mut at = 0;
        for _ in 0..directory.members {
            let place = directory.offset + at as u64;
            let broken = || self.broken(place, "the central directory is invalid");
            let entry = bytes.get(at..).filter(|rest| rest.len() >= CENTRAL_BYTES);
            let entry = entry.filter(|e| u32_at(e, 0) == CENTRAL).ok_or_else(broken)?;
            let [name, extra, comment] = [28, 30, 32].map(|i| usize::from(u16_at(entry, i)));
            let length = CENTRAL_BYTES + name + extra + comment;
            let entry = entry.get(..length).ok_or_else(broken)?;
            let text = std::str::from_utf8(&entry[CENTRAL_BYTES..CENTRAL_BYTES + name]);
            let mut member = Member {
                name: text.map_err(|_| broken())?.to_owned(),
                method: u16_at(entry, 10),
                sum: u32_at(entry, 16),
                stored_bytes: u32_at(entry, 20).into(),
                bytes: u32_at(entry, 24).into(),
                offset: u32_at(entry, 42).into(),
            };
            let extra = &entry[CENTRAL_BYTES + name..CENTRAL_BYTES + name + extra];
            member.widen(extra).ok_or_else(broken)?;
            self.members.push(member);
            at += length;
        }
        Ok(())
    }

    /// All members, in the directory's order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Reads a member of at most `bytes_max` bytes and verifies its checksum.
    pub fn read(&self, member: &Member, bytes_max: u64) -> Result<Bytes> {
        ensure!(
            member.bytes <= bytes_max,
            ResourceExhausted,
            "{}: '{}' has {} bytes, more than {bytes_max}",
            self.file.path(),
            member.name,
            member.bytes
        );
        let (offset, stored) = self.stored(member, member.stored_bytes)?;
        let content = self.inflated(member, &stored, member.bytes)?;
        let is_right = content.len() as u64 == member.bytes && crc32(&content) == member.sum;
        ensure!(
            is_right,
            DataLoss,
            "{}",
            self.broken(offset, &format!("the checksum of '{}' is wrong", member.name)).message()
        );
        Ok(content)
    }

    /// The first bytes of a member, at most `bytes_max`, unverified.
    pub fn read_start(&self, member: &Member, bytes_max: u64) -> Result<Bytes> {
        let (_, stored) = self.stored(member, member.stored_bytes.min(bytes_max))?;
        self.inflated(member, &stored, member.bytes.min(bytes_max))
    }

    /// The offset of a member's data, and its first bytes.
    fn stored(&self, member: &Member, length: u64) -> Result<(u64, Bytes)> {
        let header = self.bytes(member.offset, LOCAL_BYTES as u64)?;
        ensure!(
            u32_at(&header, 0) == LOCAL,
            DataLoss,
            "{}",
            self.broken(
                member.offset,
                &format!("the local header of '{}' is missing", member.name)
            )
            .message()
        );
        let skipped =
            LOCAL_BYTES + usize::from(u16_at(&header, 26)) + usize::from(u16_at(&header, 28));
        let offset = member.offset + skipped as u64;
        Ok((offset, self.bytes(offset, length)?.into()))
    }

    fn inflated(&self, member: &Member, stored: &Bytes, length: u64) -> Result<Bytes> {
        match member.method {
            STORED => Ok(stored.clone()),
            DEFLATED => {
                let mut content = Vec::new();
                // A deliberately truncated stream ends in an error, after the bytes that it contains.
                let read = DeflateDecoder::new(&stored[..]).take(length).read_to_end(&mut content);
                match read {
                    Err(e) if stored.len() as u64 == member.stored_bytes => {
                        Err(self.broken(member.offset, &format!("'{}': {e}", member.name)))
                    }
                    _ => Ok(content.into()),
                }
            }
            method => Err(err!(
                Unimplemented,
                "{}: '{}' has the unsupported zip compression method {method}",
                self.file.path(),
                member.name
            )),
        }
    }
}

impl Member {
    /// Takes 64-bit values from the zip64 extra field.
    fn widen(&mut self, mut extra: &[u8]) -> Option<()> {
        while extra.len() >= 4 {
            let (id, length) = (u16_at(extra, 0), usize::from(u16_at(extra, 2)));
            let mut field = extra.get(4..4 + length)?;
            extra = &extra[4 + length..];
            if id != EXTRA_64 {
                continue;
            }
            for number in [&mut self.bytes, &mut self.stored_bytes, &mut self.offset] {
                if *number == u64::from(SEE_64) {
                    let (wide, rest) = field.split_first_chunk::<8>()?;
                    *number = u64::from_le_bytes(*wide);
                    field = rest;
                }
            }
        }
        Some(())
    }
}
