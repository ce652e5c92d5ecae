//! Data files, read in parts with checksums.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use thalweg_tensor::{Bytes, Result, Tensor, ensure, err};

use super::digest::{Digest, combine};
use super::{Entry, ParallelFor, damaged};
use crate::checksum::{crc32c, mask};
use crate::storage::ReadAt;

/// The size of a part that one thread reads.
const PART_BYTES: usize = 4 << 20;
/// The size of a chunk that is read and then checksummed while it is in the cache.
const CHUNK_BYTES: usize = 128 << 10;

/// An open data file.
pub(super) struct Shard {
    file: Arc<dyn ReadAt>,
    size: u64,
    /// The content, if it is memory-mapped.
    mapped: Option<Bytes>,
}

impl Shard {
    pub(super) fn new(file: Arc<dyn ReadAt>, is_mapped: bool) -> Result<Shard> {
        let mapped = if is_mapped { file.map()? } else { None };
        let size = match &mapped {
            Some(content) => content.len() as u64,
            None => file.size()?,
        };
        Ok(Shard { file, size, mapped })
    }

    /// A verified view of a tensor in the mapped file; `None` if the file is not mapped or the
    /// elements are not aligned.
    pub(super) fn view(
        &self,
        name: &str,
        entry: &Entry,
        spread: ParallelFor<'_>,
    ) -> Result<Option<Tensor>> {
        let Some(content) = &self.mapped else { return Ok(None) };
        let range = entry.offset as usize..(entry.offset + entry.bytes) as usize;
        let bytes = content.slice(range);
        if !bytes.as_ptr().addr().is_multiple_of(entry.dtype.size()) {
            return Ok(None);
        }
        let sums: Vec<AtomicU32> = bytes.chunks(PART_BYTES).map(|_| AtomicU32::new(0)).collect();
        spread(sums.len(), &|i| {
            let part = bytes.chunks(PART_BYTES).nth(i).unwrap_or_default();
            sums[i].store(crc32c(part), Ordering::Relaxed);
        });
        let lengths = bytes.chunks(PART_BYTES).map(<[u8]>::len);
        let sum = sums.iter().zip(lengths).fold(0, |whole, (sum, length)| {
            combine(whole, sum.load(Ordering::Relaxed), length as u64)
        });
        self.check_sum(name, entry, mask(sum))?;
        Tensor::from_bytes(entry.dtype, entry.shape.clone(), bytes).map(Some)
    }

    pub(super) fn path(&self) -> &str {
        self.file.path()
    }

    /// Fails if the file is too short for the tensor, before memory is allocated. TensorFlow has
    /// another error code for this than for a wrong checksum.
    pub(super) fn check(&self, name: &str, entry: &Entry) -> Result<()> {
        ensure!(
            entry.offset.checked_add(entry.bytes).is_some_and(|end| end <= self.size),
            OutOfRange,
            "{}: byte {}: the file ends; tensor '{name}' has {} bytes from byte {} on",
            self.path(),
            self.size,
            entry.bytes,
            entry.offset
        );
        Ok(())
    }

    /// Reads the bytes of an entry into `target` and verifies the checksum.
    pub(super) fn fill(
        &self,
        name: &str,
        entry: &Entry,
        target: &mut [u8],
        spread: ParallelFor<'_>,
    ) -> Result<()> {
        let sum = match target.len() {
            0..=PART_BYTES => self.read_part(entry.offset, target)?,
            _ => self.read_parts(entry.offset, target, spread)?,
        };
        self.check_sum(name, entry, mask(sum))
    }

    pub(super) fn check_sum(&self, name: &str, entry: &Entry, sum: u32) -> Result<()> {
        ensure!(
            sum == entry.sum,
            DataLoss,
            "{}: byte {}: the checksum of tensor '{name}' ({} bytes) is wrong",
            self.path(),
            entry.offset,
            entry.bytes
        );
        Ok(())
    }

    fn read_parts(&self, offset: u64, target: &mut [u8], spread: ParallelFor<'_>) -> Result<u32> {
        struct Part<'a> {
            target: &'a mut [u8],
            sum: Result<u32>,
        }
        let parts: Vec<Mutex<Part<'_>>> = target
            .chunks_mut(PART_BYTES)
            .map(|target| {
                Mutex::new(Part {
                    target,
                    sum: Err(err!(Internal, "a part of the data was not read")),
                })
            })
            .collect();
        spread(parts.len(), &|i| {
            // If a read panicked, the sum would still be the error that the part was not read.
            let mut part = parts[i].lock().unwrap_or_else(PoisonError::into_inner);
            let at = offset + (i * PART_BYTES) as u64;
            part.sum = self.read_part(at, part.target);
        });
        let mut whole = 0;
        for part in parts {
            let part = part.into_inner().unwrap_or_else(PoisonError::into_inner);
            whole = combine(whole, part.sum?, part.target.len() as u64);
        }
        Ok(whole)
    }

    fn read_part(&self, mut offset: u64, target: &mut [u8]) -> Result<u32> {
        let mut digest = Digest::new();
        for chunk in target.chunks_mut(CHUNK_BYTES) {
            self.read_exactly(offset, chunk)?;
            digest.update(chunk);
            offset += chunk.len() as u64;
        }
        Ok(digest.sum())
    }

    fn read_exactly(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        let read = self.file.read_at(offset, target)?;
        ensure!(
            read == target.len(),
            DataLoss,
            "{}",
            damaged(self.path(), offset + read as u64, "the file became shorter").message()
        );
        Ok(())
    }

    /// The bytes of an entry, unverified.
    pub(super) fn bytes(&self, entry: &Entry) -> Result<Bytes> {
        let out_of_memory =
            || err!(ResourceExhausted, "{}: out of memory for {} bytes", self.path(), entry.bytes);
        let length = usize::try_from(entry.bytes).map_err(|_| out_of_memory())?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| out_of_memory())?;
        bytes.resize(length, 0);
        self.read_exactly(entry.offset, &mut bytes)?;
        Ok(bytes.into())
    }

    /// Verifies the checksum of numeric elements without keeping them.
    pub(super) fn verify(&self, name: &str, entry: &Entry) -> Result<()> {
        let mut digest = Digest::new();
        let mut chunk =
            vec![0; CHUNK_BYTES.min(usize::try_from(entry.bytes).unwrap_or(CHUNK_BYTES))];
        let (mut at, end) = (entry.offset, entry.offset + entry.bytes);
        while at < end {
            let length = usize::try_from(end - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            self.read_exactly(at, &mut chunk[..length])?;
            digest.update(&chunk[..length]);
            at += length as u64;
        }
        self.check_sum(name, entry, digest.masked())
    }
}
