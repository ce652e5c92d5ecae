//! File datasets: text lines, TFRecords, fixed-length records, matching file names.

use std::sync::Arc;
use std::task::{Context, Poll};

use smallvec::smallvec;
use thalweg_formats::record::Compression;
use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Bytes, DType, Error, Result, Tensor, bail, charge_string, ensure, err};

use super::dataset::{Dataset, Iterate, Next, Source, Turns, dataset_kernel, string_input};
use super::element::Spec;
use super::records::{Content, Fixed};
use super::scope::Scope;
use crate::dataset::OnBadRecord;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        TEXT_LINE_DATASET,
        TF_RECORD_DATASET,
        TF_RECORD_DATASET_V2,
        FIXED_LENGTH_RECORD_DATASET,
        FIXED_LENGTH_RECORD_DATASET_V2,
        MATCHING_FILES_DATASET,
        EXPERIMENTAL_MATCHING_FILES_DATASET,
    ],
    kernels: &[
        KernelSpec { op: "TextLineDataset", create: text_lines, ..KernelSpec::CPU },
        KernelSpec { op: "TFRecordDataset", create: records, ..KernelSpec::CPU },
        KernelSpec { op: "TFRecordDatasetV2", create: records, ..KernelSpec::CPU },
        KernelSpec { op: "FixedLengthRecordDataset", create: fixed_length, ..KernelSpec::CPU },
        KernelSpec { op: "FixedLengthRecordDatasetV2", create: fixed_length, ..KernelSpec::CPU },
        KernelSpec { op: "MatchingFilesDataset", create: matching, ..KernelSpec::CPU },
        KernelSpec { op: "ExperimentalMatchingFilesDataset", create: matching, ..KernelSpec::CPU },
    ],
};

const TEXT_LINE_DATASET: OpDef = OpDef::new("TextLineDataset", shape::scalar);

const TF_RECORD_DATASET: OpDef = OpDef { name: "TFRecordDataset", ..TEXT_LINE_DATASET };

const TF_RECORD_DATASET_V2: OpDef = OpDef { name: "TFRecordDatasetV2", ..TEXT_LINE_DATASET };

const FIXED_LENGTH_RECORD_DATASET: OpDef =
    OpDef { name: "FixedLengthRecordDataset", ..TEXT_LINE_DATASET };

const FIXED_LENGTH_RECORD_DATASET_V2: OpDef =
    OpDef { name: "FixedLengthRecordDatasetV2", ..TEXT_LINE_DATASET };

const MATCHING_FILES_DATASET: OpDef = OpDef { name: "MatchingFilesDataset", ..TEXT_LINE_DATASET };

const EXPERIMENTAL_MATCHING_FILES_DATASET: OpDef =
    OpDef { name: "ExperimentalMatchingFilesDataset", ..MATCHING_FILES_DATASET };

/// File format.
#[derive(Clone, Copy)]
pub(crate) enum Format {
    Lines,
    Records,
    Fixed(Fixed),
}

/// Options of reading files.
#[derive(Clone)]
pub(crate) struct Reading {
    pub(crate) format: Format,
    /// `None` detects the compression of each file, for TFRecords only.
    pub(crate) compression: Option<Compression>,
    /// Byte offset at which to start in each file; 0 where there is none.
    pub(crate) offsets: Arc<[u64]>,
    /// Number of damaged records in all files that are skipped before damage is an error.
    pub(crate) bad_records_max: u64,
    pub(crate) on_bad: Option<OnBadRecord>,
}

impl Reading {
    pub(crate) fn new(format: Format, compression: Option<Compression>) -> Reading {
        let offsets = Arc::new([]);
        Reading { format, compression, offsets, bad_records_max: 0, on_bad: None }
    }
}

/// The records of several files in sequence.
pub(crate) struct OfFiles {
    files: Arc<[Bytes]>,
    reading: Reading,
    spec: Spec,
}

impl OfFiles {
    pub(crate) fn new(files: Arc<[Bytes]>, reading: Reading) -> OfFiles {
        OfFiles { files, reading, spec: Spec::scalars(DType::String) }
    }
}

fn text_lines(_: &KernelInit<'_>) -> Result<AnyKernel> {
    dataset_kernel(|ctx| of_files(ctx, Reading::new(Format::Lines, compression(ctx, 1)?)))
}

fn records(_: &KernelInit<'_>) -> Result<AnyKernel> {
    dataset_kernel(|ctx| {
        let mut reading = Reading::new(Format::Records, compression(ctx, 1)?);
        if ctx.num_inputs() > 3 {
            let offset = |offset| {
                u64::try_from(offset).map_err(|_| {
                    err!(InvalidArgument, "`byte_offsets` must be >= 0, one is {offset}")
                })
            };
            let offsets = ctx.ints(3, "byte_offsets")?;
            reading.offsets = offsets.into_iter().map(offset).collect::<Result<_>>()?;
        }
        of_files(ctx, reading)
    })
}

fn fixed_length(_: &KernelInit<'_>) -> Result<AnyKernel> {
    dataset_kernel(|ctx| {
        let bytes = |i: usize, name: &str| {
            let value = ctx.scalar_int(i, name)?;
            u64::try_from(value).map_err(|_| err!(InvalidArgument, "`{name}` must be >= 0"))
        };
        let fixed = Fixed {
            header: bytes(1, "header_bytes")?,
            record: bytes(2, "record_bytes")?,
            footer: bytes(3, "footer_bytes")?,
        };
        fixed.check()?;
        of_files(ctx, Reading::new(Format::Fixed(fixed), compression(ctx, 5)?))
    })
}

/// The compression that input `i` names; none if there is no such input.
pub(crate) fn compression(ctx: &KernelContext<'_>, i: usize) -> Result<Option<Compression>> {
    if i >= ctx.num_inputs() {
        return Ok(Some(Compression::None));
    }
    let name = string_input(ctx, i, "compression_type")?;
    Compression::from_name(&String::from_utf8_lossy(&name)).map(Some)
}

fn of_files(ctx: &KernelContext<'_>, reading: Reading) -> Result<Source> {
    let names = ctx.input(0)?;
    ensure!(names.rank() <= 1, InvalidArgument, "`filenames` must be a scalar or a vector.");
    // For TFRecords, a buffer size of -1 selects the default.
    let least = if matches!(reading.format, Format::Records) { -1 } else { 0 };
    let buffer = ctx.input_range("buffer_size")?.start;
    ensure!(
        ctx.scalar_int(buffer, "buffer_size")? >= least,
        InvalidArgument,
        "`buffer_size` must be >= 0 (0 == default)"
    );
    Source::new(OfFiles::new(names.strings()?.into(), reading), 0)
}

impl Dataset for OfFiles {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn iterate(&self, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(ReadingFiles {
            files: self.files.clone(),
            reading: self.reading.clone(),
            next: 0,
            open: None,
            count: 0,
            scope: scope.clone(),
            turns: Turns::default(),
        }))
    }
}

struct ReadingFiles {
    files: Arc<[Bytes]>,
    /// `bad_records_max` counts down to the number that remains for the following files.
    reading: Reading,
    /// Number of files opened.
    next: usize,
    open: Option<Content>,
    /// Number of elements so far.
    count: u64,
    scope: Arc<Scope>,
    turns: Turns,
}

impl ReadingFiles {
    fn open(&mut self) -> Result<Content> {
        let i = self.next;
        self.next += 1;
        let path = std::str::from_utf8(&self.files[i])
            .map_err(|_| err!(InvalidArgument, "a file name is not valid UTF-8"))?;
        Content::open(&*self.scope.environment.storage, path, i, &self.reading)
    }

    /// Closes the current file and adds its damaged records to the count.
    fn leave(&mut self) {
        let Some(content) = self.open.take() else { return };
        for bad in content.bad_records() {
            self.reading.bad_records_max = self.reading.bad_records_max.saturating_sub(1);
            if let Some(on_bad) = &self.reading.on_bad {
                on_bad(bad);
            }
        }
    }

    fn at_element(&self, e: Error) -> Error {
        e.map_message(|m| format!("{m} (at element {} of the files)", self.count))
    }
}

impl Iterate for ReadingFiles {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        loop {
            let Some(open) = &mut self.open else {
                if self.next >= self.files.len() {
                    return Poll::Ready(Ok(None));
                }
                std::task::ready!(self.turns.poll(cx));
                self.open = Some(self.open().map_err(|e| self.at_element(e))?);
                continue;
            };
            match open.next() {
                Ok(Some(record)) => {
                    self.count += 1;
                    let record = charge_string(record, &self.scope.budget)?;
                    return Poll::Ready(Ok(Some(smallvec![Tensor::scalar_string(record)])));
                }
                Ok(None) => self.leave(),
                Err(e) => {
                    // The position after the damage is unknown, so reading continues with the next
                    // file.
                    self.leave();
                    return Poll::Ready(Err(self.at_element(e)));
                }
            }
        }
    }
}

/// `MatchingFilesDataset`: names of files that match patterns, one pattern after the other.
pub(crate) struct Matching {
    patterns: Arc<[Bytes]>,
    spec: Spec,
}

impl Matching {
    pub(crate) fn new(patterns: Arc<[Bytes]>) -> Matching {
        Matching { patterns, spec: Spec::scalars(DType::String) }
    }
}

fn matching(_: &KernelInit<'_>) -> Result<AnyKernel> {
    dataset_kernel(|ctx| {
        let patterns = ctx.input(0)?;
        ensure!(patterns.rank() <= 1, InvalidArgument, "`patterns` must be a scalar or a vector.");
        Source::new(Matching::new(patterns.strings()?.into()), 0)
    })
}

impl Dataset for Matching {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn iterate(&self, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(MatchingNames {
            patterns: self.patterns.clone(),
            found: None,
            scope: scope.clone(),
        }))
    }
}

struct MatchingNames {
    patterns: Arc<[Bytes]>,
    /// Remaining matches of the current pattern; `None` before the directory was listed.
    found: Option<std::vec::IntoIter<String>>,
    scope: Arc<Scope>,
}

impl MatchingNames {
    fn look(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for pattern in self.patterns.iter() {
            let pattern = String::from_utf8_lossy(pattern);
            found.extend(self.scope.environment.storage.matching(&pattern)?);
        }
        if found.is_empty() {
            let patterns: Vec<_> =
                self.patterns.iter().map(|p| String::from_utf8_lossy(p)).collect();
            bail!(NotFound, "Don't find any matched files: '{}'", patterns.join("', '"));
        }
        Ok(found)
    }
}

impl Iterate for MatchingNames {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Next {
        if self.found.is_none() {
            self.found = Some(self.look()?.into_iter());
        }
        let next = self.found.as_mut().and_then(Iterator::next);
        Poll::Ready(Ok(next.map(|name| smallvec![Tensor::scalar_string(name)])))
    }
}
