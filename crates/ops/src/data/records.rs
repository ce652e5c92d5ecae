//! Record readers of one file: lines, TFRecords, fixed-length records.

use std::borrow::Cow;
use std::io::{BufRead, BufReader, Read};

use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use thalweg_formats::Storage;
use thalweg_formats::record::{BadRecord, Compression, ReadOptions, RecordReader};
use thalweg_formats::storage::Sequential;
use thalweg_tensor::{Result, ensure, err};

use super::files::{FileOptions, Format};

/// Maximum bytes of a line or record.
pub(crate) const RECORD_BYTES_MAX: usize = 1 << 31;
/// Bytes per read.
const CHUNK_BYTES: usize = 256 << 10;

pub(crate) type Stream = Box<dyn BufRead + Send>;

/// Layout of files of fixed-length records between a header and a footer.
#[derive(Clone, Copy)]
pub(crate) struct FixedLengthLayout {
    pub(crate) header: u64,
    pub(crate) record: u64,
    pub(crate) footer: u64,
}

impl FixedLengthLayout {
    /// Whether the sizes are valid.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(self.record > 0, InvalidArgument, "`record_bytes` must be > 0");
        let kept = self.record.saturating_add(self.footer);
        ensure!(
            kept <= RECORD_BYTES_MAX as u64,
            ResourceExhausted,
            "a record and the footer have {kept} bytes, which is more than {RECORD_BYTES_MAX}"
        );
        Ok(())
    }
}

/// An open file.
pub(crate) enum Content {
    Lines(Lines),
    Records(Box<RecordReader>),
    Fixed(FixedLengthRecords),
    Nothing,
}

impl Content {
    /// Opens file number `i` with the options in `reading`.
    pub(crate) fn open(
        storage: &dyn Storage,
        path: &str,
        i: usize,
        reading: &FileOptions,
    ) -> Result<Content> {
        let compression = reading.compression.unwrap_or_default();
        Ok(match reading.format {
            Format::Records => {
                let options = ReadOptions {
                    compression,
                    offset: reading.offsets.get(i).copied().unwrap_or(0),
                    bad_records_max: reading.bad_records_max,
                    record_bytes_max: RECORD_BYTES_MAX,
                    ends_within_header: true,
                };
                if options.offset > 0 && storage.metadata(path)?.bytes <= options.offset {
                    return Ok(Content::Nothing);
                }
                Content::Records(Box::new(match reading.compression {
                    Some(_) => RecordReader::open(storage, path, options)?,
                    None => RecordReader::open_any(storage, path, options)?,
                }))
            }
            Format::Lines => {
                let content = stream(storage, path, compression)?;
                Content::Lines(Lines { content, path: path.to_owned() })
            }
            Format::Fixed(fixed) => {
                Content::Fixed(FixedLengthRecords::open(storage, path, fixed, compression)?)
            }
        })
    }

    /// The next record.
    pub(crate) fn next(&mut self) -> Result<Option<Cow<'_, [u8]>>> {
        match self {
            Content::Lines(lines) => Ok(lines.next()?.map(Cow::Owned)),
            Content::Records(reader) => Ok(reader.next_record()?.map(Cow::Borrowed)),
            Content::Fixed(pieces) => Ok(pieces.next()?.map(Cow::Owned)),
            Content::Nothing => Ok(None),
        }
    }

    /// Number of damaged records that were skipped.
    pub(crate) fn bad_records(&self) -> &[BadRecord] {
        match self {
            Content::Records(reader) => reader.bad_records(),
            _ => &[],
        }
    }
}

/// The uncompressed content of a file.
pub(crate) fn stream(
    storage: &dyn Storage,
    path: &str,
    compression: Compression,
) -> Result<Stream> {
    let raw = BufReader::with_capacity(CHUNK_BYTES, Sequential::new(storage.open(path)?, 0));
    Ok(match compression {
        Compression::None => Box::new(raw),
        Compression::Zlib => Box::new(BufReader::new(ZlibDecoder::new(raw))),
        Compression::Gzip => Box::new(BufReader::new(MultiGzDecoder::new(raw))),
    })
}

/// Lines of a text file.
pub(crate) struct Lines {
    content: Stream,
    path: String,
}

impl Lines {
    /// A line without its line end; carriage returns are removed anywhere, as in TensorFlow.
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let limit = RECORD_BYTES_MAX as u64;
        let read = self
            .content
            .by_ref()
            .take(limit)
            .read_until(b'\n', &mut line)
            .map_err(|e| err!(DataLoss, "{}: {e}", self.path))?;
        if read == 0 {
            return Ok(None);
        }
        let is_whole = line.pop_if(|last| *last == b'\n').is_some();
        ensure!(
            is_whole || (read as u64) < limit,
            ResourceExhausted,
            "{}: a line has more than {limit} bytes",
            self.path
        );
        line.retain(|&byte| byte != b'\r');
        Ok(Some(line))
    }
}

/// Fixed-length records between a header and a footer.
pub(crate) struct FixedLengthRecords {
    content: Stream,
    path: String,
    fixed: FixedLengthLayout,
    /// Bytes read ahead, to detect the footer.
    ahead: Vec<u8>,
    offset: u64,
}

impl FixedLengthRecords {
    fn open(
        storage: &dyn Storage,
        path: &str,
        fixed: FixedLengthLayout,
        compression: Compression,
    ) -> Result<FixedLengthRecords> {
        let FixedLengthLayout { header, record, footer } = fixed;
        if compression == Compression::None {
            // The size of an uncompressed file tells in advance whether its records are complete.
            let size = storage.metadata(path)?.bytes;
            let body = size.checked_sub(header).and_then(|rest| rest.checked_sub(footer));
            ensure!(
                body.is_some_and(|body| body.is_multiple_of(record)),
                InvalidArgument,
                "{path}: {size} bytes are not a header of {header} bytes, whole records of {record} bytes and a footer of {footer} bytes"
            );
        }
        let mut content = stream(storage, path, compression)?;
        let read = std::io::copy(&mut content.by_ref().take(header), &mut std::io::sink())
            .map_err(|e| err!(DataLoss, "{path}: {e}"))?;
        ensure!(
            read == header,
            DataLoss,
            "{path}: the file ends at byte {read}, within its header of {header} bytes"
        );
        Ok(FixedLengthRecords {
            content,
            path: path.to_owned(),
            fixed,
            ahead: Vec::new(),
            offset: header,
        })
    }

    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let FixedLengthLayout { record, footer, .. } = self.fixed;
        let wanted = record + footer - self.ahead.len() as u64;
        self.content
            .by_ref()
            .take(wanted)
            .read_to_end(&mut self.ahead)
            .map_err(|e| err!(DataLoss, "{}: {e}", self.path))?;
        let found = self.ahead.len() as u64;
        if found == footer {
            return Ok(None);
        }
        ensure!(
            found == record + footer,
            DataLoss,
            "{}: {found} bytes at byte {} are no record of {record} bytes and a footer of {footer} bytes",
            self.path,
            self.offset
        );
        let rest = self.ahead.split_off(record as usize);
        self.offset += record;
        Ok(Some(std::mem::replace(&mut self.ahead, rest)))
    }
}
