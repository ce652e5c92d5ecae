//! Index of a TFRecord file, for random access.

use std::fmt::Write;

use thalweg_tensor::{Bytes, Result, ensure, err};

use super::{Compression, FOOTER_BYTES, HEADER_BYTES, ReadOptions, RecordReader, damaged};
use crate::storage::{ReadAt, Storage};

/// The position of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The offset.
    pub offset: u64,
    /// The size of the whole record in bytes: length, data and checksums.
    pub bytes: u64,
}

/// The positions of a file's records, in order. As text it has a line `offset bytes` per record, as
/// other TFRecord loaders use it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// One entry per record.
    pub entries: Vec<Entry>,
}

impl Index {
    /// Builds the index of an uncompressed file.
    pub fn build(storage: &dyn Storage, path: &str) -> Result<Index> {
        let mut reader = RecordReader::open_any(storage, path, ReadOptions::default())?;
        ensure!(
            reader.compression() == Compression::None,
            InvalidArgument,
            "{path}: the file is compressed, so its records cannot be read individually"
        );
        let mut entries = Vec::new();
        while let Some(data) = reader.next_record()? {
            let bytes = (HEADER_BYTES + data.len() + FOOTER_BYTES) as u64;
            entries.push(Entry { offset: reader.record_offset(), bytes });
        }
        Ok(Index { entries })
    }

    /// The index as text.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for entry in &self.entries {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{} {}", entry.offset, entry.bytes);
        }
        text
    }

    /// Parses `text`, the content of `path`.
    pub fn parse(path: &str, text: &str) -> Result<Index> {
        let entry = |(i, line): (usize, &str)| {
            let mut numbers = line.split_ascii_whitespace().map(str::parse);
            match (numbers.next(), numbers.next(), numbers.next()) {
                (Some(Ok(offset)), Some(Ok(bytes)), None) => Ok(Entry { offset, bytes }),
                _ => Err(err!(
                    DataLoss,
                    "{path}: line {} must be an offset and a number of bytes, is {line:?}",
                    i + 1
                )),
            }
        };
        Ok(Index { entries: text.lines().enumerate().map(entry).collect::<Result<_>>()? })
    }

    /// The data of record `i`.
    pub fn record(&self, file: &dyn ReadAt, i: usize) -> Result<Bytes> {
        let path = file.path();
        let Some(&Entry { offset, bytes }) = self.entries.get(i) else {
            let count = self.entries.len();
            return Err(err!(OutOfRange, "{path}: there is no record {i} of {count}"));
        };
        let frame = (HEADER_BYTES + FOOTER_BYTES) as u64;
        let size = file.size()?;
        let end = offset.checked_add(bytes).filter(|&end| bytes >= frame && end <= size);
        ensure!(
            end.is_some(),
            DataLoss,
            "{path}: the index has record {i} at byte {offset} with {bytes} bytes, which is not in \
             the file"
        );
        let mut record = vec![0; bytes as usize];
        let read = file.read_at(offset, &mut record)?;
        ensure!(
            read == record.len(),
            DataLoss,
            "{path}: the file became shorter while it was read"
        );
        let data = HEADER_BYTES..record.len() - FOOTER_BYTES;
        let is_right = super::length_of(&record) == Some(data.len() as u64)
            && crate::masked_crc32c(&record[data.clone()]).to_le_bytes() == record[data.end..];
        ensure!(is_right, DataLoss, "{}", damaged(path, offset, "a checksum is wrong").message());
        Ok(Bytes::from(record).slice(data))
    }
}
