//! The record formats of readers: lines, fixed-length records, TFRecords, whole files, names.

use std::io::{BufRead, BufReader, Read};

use thalweg_formats::record::{Compression, ReadOptions, RecordReader};
use thalweg_formats::storage::{Sequential, Storage};
use thalweg_kernel::StepContext;
use thalweg_tensor::{
    Bytes, Charge, Result, bail, charge_string, copy_string, ensure, err, with_charge,
};

/// Bytes of a text file per read.
const CHUNK_BYTES: usize = 64 << 10;

/// A record's key and its value.
pub(crate) type Record = (Bytes, Bytes);

/// Result of reading from a file.
pub(crate) struct Next {
    /// The next record.
    pub(crate) record: Option<Record>,
    /// Whether the file has no further records.
    pub(crate) is_at_end: bool,
}

impl Next {
    const END: Next = Next { record: None, is_at_end: true };

    fn record(key: String, value: impl Into<Bytes>) -> Next {
        Next { record: Some((key.into(), value.into())), is_at_end: false }
    }
}

/// A record format, with the state of one file.
pub(crate) trait Source: Send {
    /// Opens a file.
    fn open(&mut self, path: &str, step: &StepContext) -> Result<()>;
    /// Reads the next record.
    fn next(&mut self, path: &str, step: &StepContext) -> Result<Next>;
    /// Closes the file.
    fn close(&mut self);
    /// Whether the reader's state can be serialized.
    fn keeps_state(&self) -> bool {
        false
    }
}

fn storage(step: &StepContext) -> &dyn Storage {
    &*step.environment().storage
}

/// Lines, without line ends.
pub(crate) struct Lines {
    /// Number of header lines to skip.
    pub(crate) skipped: i64,
    file: Option<BufReader<Sequential>>,
    number: u64,
}

impl Lines {
    pub(crate) fn new(skipped: i64) -> Lines {
        Lines { skipped, file: None, number: 0 }
    }

    fn line(&mut self, step: &StepContext) -> Result<Option<Vec<u8>>> {
        let Some(file) = &mut self.file else { return Ok(None) };
        let mut line = Vec::new();
        let limit = step.budget().left_bytes() as u64;
        let read = file.by_ref().take(limit).read_until(b'\n', &mut line);
        let read = read.map_err(|e| err!(DataLoss, "{e}"))?;
        ensure!(
            (read as u64) < limit || line.ends_with(b"\n"),
            ResourceExhausted,
            "a line has more than {limit} bytes"
        );
        if read == 0 {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
        }
        Ok(Some(line))
    }
}

impl Source for Lines {
    fn open(&mut self, path: &str, step: &StepContext) -> Result<()> {
        self.number = 0;
        let file = Sequential::new(storage(step).open(path)?, 0);
        self.file = Some(BufReader::with_capacity(CHUNK_BYTES, file));
        for _ in 0..self.skipped {
            if self.line(step)?.is_none() {
                break;
            }
            self.number += 1;
        }
        Ok(())
    }

    fn next(&mut self, path: &str, step: &StepContext) -> Result<Next> {
        let Some(line) = self.line(step)? else { return Ok(Next::END) };
        self.number += 1;
        let line = charge_string(line, step.budget())?;
        Ok(Next::record(format!("{path}:{}", self.number), line))
    }

    fn close(&mut self) {
        self.file = None;
    }
}

/// `WholeFileReader`: a file's name and its content.
pub(crate) struct Whole;

impl Source for Whole {
    fn open(&mut self, _: &str, _: &StepContext) -> Result<()> {
        Ok(())
    }

    fn next(&mut self, path: &str, step: &StepContext) -> Result<Next> {
        let content = storage(step).read(path, step.budget().left_bytes())?;
        let charge = Charge::new(step.budget(), content.len())?;
        let content = with_charge(content, charge);
        Ok(Next { is_at_end: true, ..Next::record(path.to_owned(), content) })
    }

    fn close(&mut self) {}

    fn keeps_state(&self) -> bool {
        true
    }
}

/// `IdentityReader`: the work unit as key and value; no file is opened.
pub(crate) struct Names;

impl Source for Names {
    fn open(&mut self, _: &str, _: &StepContext) -> Result<()> {
        Ok(())
    }

    fn next(&mut self, path: &str, _: &StepContext) -> Result<Next> {
        Ok(Next { is_at_end: true, ..Next::record(path.to_owned(), path.to_owned()) })
    }

    fn close(&mut self) {}

    fn keeps_state(&self) -> bool {
        true
    }
}

/// `TFRecordReader`.
pub(crate) struct Records {
    compression: Compression,
    reader: Option<RecordReader>,
}

impl Records {
    pub(crate) fn new(compression: Compression) -> Records {
        Records { compression, reader: None }
    }
}

impl Source for Records {
    fn open(&mut self, path: &str, step: &StepContext) -> Result<()> {
        let options = ReadOptions {
            compression: self.compression,
            record_bytes_max: step.budget().left_bytes(),
            ends_within_header: true,
            ..Default::default()
        };
        self.reader = Some(RecordReader::open(storage(step), path, options)?);
        Ok(())
    }

    fn next(&mut self, path: &str, step: &StepContext) -> Result<Next> {
        let Some(reader) = &mut self.reader else { return Ok(Next::END) };
        let Some(record) = reader.next_record()? else { return Ok(Next::END) };
        let value = copy_string(record, step.budget())?;
        let key = format!("{path}:{}", reader.record_offset());
        Ok(Next::record(key, value))
    }

    fn close(&mut self) {
        self.reader = None;
    }
}

/// Sizes of `FixedLengthRecordReader`.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) header: usize,
    pub(crate) record: usize,
    pub(crate) footer: usize,
    /// Distance between the beginnings of two records (`hop_bytes`).
    pub(crate) hop: usize,
}

/// `FixedLengthRecordReader`.
pub(crate) struct FixedLength {
    sizes: Sizes,
    compression: Compression,
    /// The remaining content without the footer, or the error of reading it.
    content: Result<Bytes>,
    number: u64,
}

impl FixedLength {
    pub(crate) fn new(sizes: Sizes, compression: Compression) -> FixedLength {
        FixedLength { sizes, compression, content: Ok(Bytes::new()), number: 0 }
    }
}

impl Source for FixedLength {
    fn open(&mut self, path: &str, step: &StepContext) -> Result<()> {
        self.number = 0;
        let limit = step.budget().left_bytes();
        let mut content = storage(step).read(path, limit)?;
        let Sizes { header, footer, .. } = self.sizes;
        match self.compression.decompress(path, &content, limit) {
            Ok(decompressed) => content = decompressed,
            // As in TensorFlow, the error is that of the first read: the header or a record.
            Err(e) if header == 0 => {
                self.content = Err(e);
                return Ok(());
            }
            Err(e) => return Err(e),
        }
        ensure!(
            header <= content.len(),
            OutOfRange,
            "{path}: it ends, with {} bytes, within the {header} of its header",
            content.len()
        );
        let end = content.len().saturating_sub(footer).max(header);
        self.content = Ok(content.slice(header..end));
        Ok(())
    }

    fn next(&mut self, path: &str, step: &StepContext) -> Result<Next> {
        let Sizes { record, hop, .. } = self.sizes;
        let content = self.content.as_mut().map_err(|e| e.clone())?;
        if content.len() < record {
            return Ok(Next::END);
        }
        let value = copy_string(&content[..record], step.budget())?;
        *content = content.slice(hop.min(content.len())..);
        let key = format!("{path}:{}", self.number);
        self.number += 1;
        Ok(Next::record(key, value))
    }

    fn close(&mut self) {
        self.content = Ok(Bytes::new());
    }
}

/// Checks the sizes in the attrs.
pub(crate) fn checked_sizes(header: i64, record: i64, footer: i64, hop: i64) -> Result<Sizes> {
    let size = |value: i64, name: &str| match usize::try_from(value) {
        Ok(size) => Ok(size),
        Err(_) => bail!(InvalidArgument, "{name} must be >= 0 but got {value}"),
    };
    let header = size(header, "header_bytes")?;
    let record = size(record, "record_bytes")?;
    let footer = size(footer, "footer_bytes")?;
    let hop = match size(hop, "hop_bytes")? {
        0 => record,
        hop => hop,
    };
    Ok(Sizes { header, record, footer, hop })
}
