//! Datasets that read files: lines of text and TFRecords.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::task::{Context, Poll};

use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use smallvec::smallvec;
use thalweg_formats::record::{Compression, ReadOptions, RecordReader};
use thalweg_formats::storage::Sequential;
use thalweg_graph::{Flag, OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Bytes, DType, Result, Tensor, ensure, err};

use super::dataset::{Dataset, Iterate, Next, Source, dataset_kernel, string_input};
use super::element::Spec;
use super::scope::Scope;

pub(crate) static FAMILY: Family = Family {
    ops: &[TEXT_LINE_DATASET, TF_RECORD_DATASET],
    kernels: &[
        KernelSpec { op: "TextLineDataset", create: text_lines, ..KernelSpec::CPU },
        KernelSpec { op: "TFRecordDataset", create: records, ..KernelSpec::CPU },
    ],
};

const TEXT_LINE_DATASET: OpDef = OpDef {
    name: "TextLineDataset",
    inputs: &["filenames: string", "compression_type: string", "buffer_size: int64"],
    outputs: &["handle: variant"],
    attrs: &["metadata: string = ''"],
    shape: shape::scalar,
    flags: &[Flag::Stateful],
    ..OpDef::DEFAULT
};

const TF_RECORD_DATASET: OpDef = OpDef { name: "TFRecordDataset", ..TEXT_LINE_DATASET };

/// The largest line or record: what a message may hold.
const RECORD_BYTES_MAX: usize = 1 << 31;
/// Bytes that are read at once.
const CHUNK_BYTES: usize = 256 << 10;

/// What files are read as.
#[derive(Clone, Copy)]
enum Format {
    Lines,
    Records,
}

/// Records of files, one file after the other.
struct OfFiles {
    files: Arc<[Bytes]>,
    compression: Compression,
    format: Format,
    spec: Spec,
}

fn text_lines(_: &KernelInit<'_>) -> Result<AnyKernel> {
    dataset_kernel(|ctx| of_files(ctx, Format::Lines))
}

fn records(_: &KernelInit<'_>) -> Result<AnyKernel> {
    dataset_kernel(|ctx| of_files(ctx, Format::Records))
}

fn of_files(ctx: &KernelContext<'_>, format: Format) -> Result<Source> {
    let names = ctx.input(0)?;
    ensure!(names.rank() <= 1, InvalidArgument, "`filenames` must be a scalar or a vector.");
    let compression = string_input(ctx, 1, "compression_type")?;
    // Of TFRecords, -1 says that whoever reads may choose.
    let least = if matches!(format, Format::Records) { -1 } else { 0 };
    ensure!(
        ctx.scalar_int(2, "buffer_size")? >= least,
        InvalidArgument,
        "`buffer_size` must be >= 0 (0 == default)"
    );
    let dataset = OfFiles {
        files: names.strings()?.into(),
        compression: Compression::from_name(&String::from_utf8_lossy(&compression))?,
        format,
        spec: Spec::scalars(DType::String),
    };
    Source::new(dataset, 0)
}

impl Dataset for OfFiles {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn iterate(&self, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(Reading {
            files: self.files.clone(),
            compression: self.compression,
            format: self.format,
            next: 0,
            open: None,
            scope: scope.clone(),
        }))
    }
}

struct Reading {
    files: Arc<[Bytes]>,
    compression: Compression,
    format: Format,
    /// Files that were opened.
    next: usize,
    open: Option<Open>,
    scope: Arc<Scope>,
}

/// A file being read.
enum Open {
    Lines(Lines),
    Records(Box<RecordReader>),
}

type Stream = Box<dyn BufRead + Send>;

impl Reading {
    fn open(&self, i: usize) -> Result<Open> {
        let path = std::str::from_utf8(&self.files[i])
            .map_err(|_| err!(InvalidArgument, "a file name is not valid UTF-8"))?;
        let storage = &*self.scope.environment.storage;
        Ok(match self.format {
            Format::Records => {
                let options = ReadOptions {
                    compression: self.compression,
                    record_bytes_max: RECORD_BYTES_MAX,
                    ends_within_header: true,
                    ..Default::default()
                };
                Open::Records(Box::new(RecordReader::open(storage, path, options)?))
            }
            Format::Lines => {
                Open::Lines(Lines { content: self.stream(path)?, path: path.to_owned() })
            }
        })
    }

    /// The uncompressed content.
    fn stream(&self, path: &str) -> Result<Stream> {
        let file = self.scope.environment.storage.open(path)?;
        let raw = BufReader::with_capacity(CHUNK_BYTES, Sequential::new(file, 0));
        Ok(match self.compression {
            Compression::None => Box::new(raw),
            Compression::Zlib => Box::new(BufReader::new(ZlibDecoder::new(raw))),
            Compression::Gzip => Box::new(BufReader::new(MultiGzDecoder::new(raw))),
        })
    }
}

impl Open {
    fn next(&mut self) -> Result<Option<Bytes>> {
        match self {
            Open::Lines(lines) => lines.next(),
            Open::Records(reader) => Ok(reader.next_record()?.map(Bytes::copy_from_slice)),
        }
    }
}

/// Lines of a text.
struct Lines {
    content: Stream,
    path: String,
}

impl Lines {
    /// A line without its end; carriage returns are left out wherever they are.
    fn next(&mut self) -> Result<Option<Bytes>> {
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
        Ok(Some(line.into()))
    }
}

impl Iterate for Reading {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Next {
        loop {
            let Some(open) = &mut self.open else {
                if self.next >= self.files.len() {
                    return Poll::Ready(Ok(None));
                }
                let i = self.next;
                self.next += 1;
                self.open = Some(self.open(i)?);
                continue;
            };
            match open.next() {
                Ok(Some(record)) => {
                    return Poll::Ready(Ok(Some(smallvec![Tensor::scalar_string(record)])));
                }
                Ok(None) => self.open = None,
                Err(e) => {
                    // What comes after damage cannot be told from it: the next file is.
                    self.open = None;
                    return Poll::Ready(Err(e));
                }
            }
        }
    }
}
