//! Sequential reading of TFRecord files.

use std::io::Read;
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;
use thalweg_tensor::{Error, Result};

use super::inflate::Inflate;
use super::window::Window;
use super::{Compression, FOOTER_BYTES, HEADER_BYTES, damaged, length_of};
use crate::masked_crc32c;
use crate::storage::{ReadAt, Sequential, Storage, from_io};

/// The read sizes for plain and for compressed files.
const CHUNK_BYTES: usize = 256 << 10;
const COMPRESSED_CHUNK_BYTES: usize = 64 << 10;

/// Options of reading.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// The compression of the file.
    pub compression: Compression,
    /// The start offset in the uncompressed bytes; it must be 0 for compressed files.
    pub offset: u64,
    /// The number of damaged places to skip before damage is an error.
    pub bad_records_max: u64,
    /// The maximum size of a record; a longer one is an error.
    pub record_bytes_max: usize,
    /// Whether a file that ends within a record's header ends before that record, as in TensorFlow:
    /// it may still be written.
    pub ends_within_header: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions {
            compression: Compression::None,
            offset: 0,
            bad_records_max: 0,
            record_bytes_max: 1 << 31,
            ends_within_header: false,
        }
    }
}

/// A damaged place that was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// The offset.
    pub offset: u64,
    /// The number of bytes that were skipped.
    pub bytes: u64,
    /// The error, with path and offset.
    pub error: Error,
}

/// Reads records one after the other.
pub struct RecordReader {
    path: Arc<str>,
    window: Window<Box<dyn Read + Send>>,
    /// The uncompressed size, if it is known.
    size: Option<u64>,
    options: ReadOptions,
    bad: Vec<BadRecord>,
    /// The size of the last record in the window.
    given: usize,
    /// The offset of the last record.
    last: u64,
    /// The error that ended reading.
    failure: Option<Error>,
}

impl RecordReader {
    /// Opens a file.
    pub fn open(storage: &dyn Storage, path: &str, options: ReadOptions) -> Result<RecordReader> {
        RecordReader::from_file(storage.open(path)?, options)
    }

    /// Opens a file and detects its compression.
    pub fn open_any(
        storage: &dyn Storage,
        path: &str,
        options: ReadOptions,
    ) -> Result<RecordReader> {
        let file = storage.open(path)?;
        let mut begin = [0; HEADER_BYTES];
        let read = file.read_at(0, &mut begin)?;
        let compression = Compression::detect(&begin[..read]);
        RecordReader::from_file(file, ReadOptions { compression, ..options })
    }

    /// Reads an open file.
    pub fn from_file(file: Arc<dyn ReadAt>, options: ReadOptions) -> Result<RecordReader> {
        let path: Arc<str> = file.path().into();
        let size = match options.compression {
            Compression::None => Some(file.size()?).filter(|&size| size > 0),
            _ => None,
        };
        let raw = Sequential::new(
            file,
            if options.compression == Compression::None { options.offset } else { 0 },
        );
        let source: Box<dyn Read + Send> = match options.compression {
            Compression::None => Box::new(raw),
            Compression::Zlib => Box::new(Inflate::new(buffered(raw))),
            Compression::Gzip => Box::new(MultiGzDecoder::new(buffered(raw))),
        };
        let chunk_bytes = match size {
            // One byte more, to detect trailing data.
            Some(size) => usize::try_from(size).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES - 1) + 1,
            None => COMPRESSED_CHUNK_BYTES,
        };
        Ok(RecordReader {
            path,
            window: Window::new(source, options.offset, chunk_bytes),
            size,
            options,
            bad: Vec::new(),
            given: 0,
            last: options.offset,
            failure: None,
        })
    }

    /// The file's path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// How the file is compressed.
    pub fn compression(&self) -> Compression {
        self.options.compression
    }

    /// The offset of the next record in the uncompressed bytes.
    pub fn offset(&self) -> u64 {
        self.window.offset() + self.given as u64
    }

    /// The offset of the last record in the uncompressed bytes.
    pub fn record_offset(&self) -> u64 {
        self.last
    }

    /// The damaged places that were skipped so far.
    pub fn bad_records(&self) -> &[BadRecord] {
        &self.bad
    }

    /// The data of the next record, or `None` at the end of the file. After an error there are no
    /// more records.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<&[u8]>> {
        match self.find() {
            Ok(Some(length)) => Ok(Some(&self.window.bytes()[HEADER_BYTES..HEADER_BYTES + length])),
            Ok(None) => Ok(None),
            Err(e) => {
                self.failure = Some(e.clone());
                Err(e)
            }
        }
    }

    /// Moves the window to the next valid record; returns its length.
    #[inline]
    fn find(&mut self) -> Result<Option<usize>> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.window.advance(std::mem::take(&mut self.given));
        loop {
            match self.check() {
                Ok(None) => return Ok(None),
                Ok(Some(length)) => {
                    self.given = HEADER_BYTES + length + FOOTER_BYTES;
                    self.last = self.window.offset();
                    return Ok(Some(length));
                }
                Err(damage) => self.pass_over(damage)?,
            }
        }
    }

    /// Checks the record at the start of the window; returns its length, or `None` at the end.
    #[inline]
    fn check(&mut self) -> Result<Option<usize>, Damage> {
        if !self.fill(HEADER_BYTES)? {
            return match self.window.bytes().len() {
                0 => Ok(None),
                _ if self.options.ends_within_header => Ok(None),
                there => Err(self.truncated(there, "the length")),
            };
        }
        let Some(length) = length_of(self.window.bytes()) else {
            let error = self.damage("the checksum of its length is wrong");
            return Err(Damage { error, extent: Extent::Unknown });
        };
        let whole = self.check_length(length)?;
        if !self.fill(whole)? {
            let there = self.window.bytes().len();
            return Err(self.truncated(there, &format!("{length} bytes of data")));
        }
        let bytes = &self.window.bytes()[..whole];
        let (data, sum) = bytes[HEADER_BYTES..].split_at(whole - HEADER_BYTES - FOOTER_BYTES);
        if masked_crc32c(data).to_le_bytes() != *sum {
            let error = self.damage(format!("the checksum of its {length} bytes is wrong"));
            return Err(Damage { error, extent: Extent::Bytes(whole) });
        }
        Ok(Some(data.len()))
    }

    /// The total size of a record with this data length, if it is plausible.
    #[inline]
    fn check_length(&self, length: u64) -> Result<usize, Damage> {
        let frame = (HEADER_BYTES + FOOTER_BYTES) as u64;
        if let Some(size) = self.size
            && length.saturating_add(frame) > size.saturating_sub(self.window.offset())
        {
            let there = size.saturating_sub(self.window.offset());
            return Err(self.truncated(there as usize, &format!("{length} bytes of data")));
        }
        match usize::try_from(length) {
            Ok(length) if length <= self.options.record_bytes_max => {
                Ok(HEADER_BYTES + length + FOOTER_BYTES)
            }
            _ => {
                let max = self.options.record_bytes_max;
                let error = self
                    .damage(format!("its length, {length} bytes, is beyond the limit of {max}"));
                Err(Damage { error, extent: Extent::Unknown })
            }
        }
    }

    #[inline]
    fn fill(&mut self, count: usize) -> Result<bool, Damage> {
        self.window.fill(count).map_err(|e| {
            let error = from_io(&self.path, e);
            let offset = self.window.offset();
            let error = error.map_message(|m| format!("{m} (record at byte {offset})"));
            Damage { error, extent: Extent::Source }
        })
    }

    fn damage(&self, what: impl std::fmt::Display) -> Error {
        damaged(&self.path, self.window.offset(), what)
    }

    fn truncated(&self, there: usize, wanted: &str) -> Damage {
        let error = self.damage(format!(
            "truncated: the file ends {there} bytes after it begins, before the end of {wanted}"
        ));
        Damage { error, extent: Extent::Unknown }
    }

    /// Skips a damaged place if the options allow it.
    #[cold]
    fn pass_over(&mut self, damage: Damage) -> Result<()> {
        let is_over_budget = self.bad.len() as u64 >= self.options.bad_records_max;
        if is_over_budget || matches!(damage.extent, Extent::Source) {
            return Err(damage.error);
        }
        let offset = self.window.offset();
        match damage.extent {
            Extent::Bytes(count) => self.window.advance(count),
            _ => self.find_header()?,
        }
        let bytes = self.window.offset() - offset;
        self.bad.push(BadRecord { offset, bytes, error: damage.error });
        Ok(())
    }

    /// Advances, by at least one byte, to the next plausible header, or to the end.
    fn find_header(&mut self) -> Result<()> {
        self.window.advance(1.min(self.window.bytes().len()));
        loop {
            let is_enough = self.fill(HEADER_BYTES).map_err(|damage| damage.error)?;
            if !is_enough {
                self.window.advance(self.window.bytes().len());
                return Ok(());
            }
            let size = self.size.unwrap_or(u64::MAX);
            let (offset, bytes) = (self.window.offset(), self.window.bytes());
            let is_record = |(i, header): (usize, &[u8])| {
                let rest = size.saturating_sub(offset + i as u64);
                length_of(header).is_some_and(|n| n.saturating_add(16) <= rest)
            };
            let found = bytes.windows(HEADER_BYTES).enumerate().position(is_record);
            // The last bytes may be the beginning of a header.
            self.window.advance(found.unwrap_or(bytes.len() - (HEADER_BYTES - 1)));
            if found.is_some() {
                return Ok(());
            }
        }
    }
}

/// The damage of a record, and its extent.
struct Damage {
    error: Error,
    extent: Extent,
}

enum Extent {
    /// The record has this many bytes.
    Bytes(usize),
    /// Its length is not reliable.
    Unknown,
    /// The file cannot be read any further.
    Source,
}

fn buffered(raw: Sequential) -> std::io::BufReader<Sequential> {
    std::io::BufReader::with_capacity(COMPRESSED_CHUNK_BYTES, raw)
}
